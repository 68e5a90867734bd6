"""Stores of PyTorch Geometric: features of nodes, and edges of graphs, on storage."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.utils.dlpack
from torch_geometric.data import FeatureStore as _FeatureStore  # type: ignore[import-untyped]
from torch_geometric.data import GraphStore as _GraphStore
from torch_geometric.data import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout  # type: ignore[import-untyped]

from . import Table, Volume
from ._errors import DamagedError, InvalidError

__all__ = ["FeatureStore", "GraphStore"]

#: Bytes of a row that a table can hold.
_LEAST, _MOST = 64, 65536


class FeatureStore(_FeatureStore):  # type: ignore[misc]
    """Features of nodes as tables of a volume, for PyTorch Geometric's loaders.

    A tensor whose rows have 64 bytes to 64 KiB, a multiple of 4, becomes the table ``GROUP.NAME`` of the volume, or ``NAME`` without a group.
    Tables that are there already are attributes from the start. Other tensors, such as labels and masks, stay in memory.

    ``options`` are those of ``Table.open``: ``cache_bytes``, ``host_cache_bytes``, ``in_flight``.
    """

    def __init__(self, volume: Volume, **options: Any) -> None:
        super().__init__()
        # The base class stores attributes in a dict of its own.
        self.__dict__["_volume"], self.__dict__["_options"] = volume, options
        self.__dict__["_tables"], self.__dict__["_tensors"] = {}, {}
        for name in volume.tables():
            group, _, attribute = name.rpartition(".")
            self._tables[group or None, attribute] = Table.open(volume, name, **options)

    @staticmethod
    def _key(attr: TensorAttr) -> Tuple[Optional[str], str]:
        if not (attr.group_name is None or isinstance(attr.group_name, str)):
            raise InvalidError(f"the group {attr.group_name!r} is no text; features belong to types of nodes")
        return attr.group_name, attr.attr_name

    @staticmethod
    def _name(key: Tuple[Optional[str], str]) -> str:
        group, attribute = key
        return attribute if group is None else f"{group}.{attribute}"

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        key = self._key(attr)
        index = _index(attr.index)
        if index is not None:
            if key in self._tables:
                self._tables[key][index] = tensor
            elif key in self._tensors:
                self._tensors[key][index] = torch.as_tensor(tensor)
            else:
                return False
            return True
        tensor = torch.as_tensor(tensor)
        row = tensor[0].numel() * tensor.element_size() if tensor.dim() > 1 and len(tensor) else 0
        if not (_LEAST <= row <= _MOST and row % 4 == 0):
            if self._tables.pop(key, None) is not None:
                self._volume.remove_table(self._name(key))
            self._tensors[key] = tensor
            return True
        self._tables.pop(key, None)
        self._tensors.pop(key, None)
        Table.from_numpy(self._volume, self._name(key), tensor.detach().cpu().numpy(), replace=True)
        self._tables[key] = Table.open(self._volume, self._name(key), **self._options)
        return True

    def _get_tensor(self, attr: TensorAttr) -> Optional[torch.Tensor]:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: Sequence[TensorAttr]) -> List[Optional[torch.Tensor]]:
        # All batches are in flight together.
        found: List[Any] = []
        for attr in attrs:
            key, index = self._key(attr), _index(attr.index)
            table, tensor = self._tables.get(key), self._tensors.get(key)
            if table is not None:
                found.append(table.prefetch(slice(None) if index is None else index))
            else:
                found.append(tensor if tensor is None or index is None else tensor[index])
        return [one if one is None or isinstance(one, torch.Tensor) else torch.utils.dlpack.from_dlpack(one.take()) for one in found]

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        key = self._key(attr)
        if self._tables.pop(key, None) is not None:
            self._volume.remove_table(self._name(key))
            return True
        return self._tensors.pop(key, None) is not None

    def update_tensor(self, tensor: Any, *args: Any, **kwargs: Any) -> bool:
        """Writes a tensor over the one that is there, or over some of its rows. The base class would remove all rows before."""
        return bool(self.put_tensor(tensor, *args, **kwargs))

    def _get_tensor_size(self, attr: TensorAttr) -> Optional[Tuple[int, ...]]:
        key = self._key(attr)
        found = self._tables.get(key, self._tensors.get(key))
        if found is None:
            return None
        index = _index(attr.index)
        if index is None:
            return tuple(found.shape)
        return tuple(np.empty(len(found), dtype=np.bool_)[index].shape) + tuple(found.shape[1:])

    def get_all_tensor_attrs(self) -> List[TensorAttr]:
        """Returns the attributes of all tensors."""
        keys: Dict[Tuple[Optional[str], str], None] = dict.fromkeys([*self._tables, *self._tensors])
        return [TensorAttr(group, attribute, None) for group, attribute in keys]

    def __len__(self) -> int:
        return len(self._tables) + len(self._tensors)


def _index(index: Any) -> Any:
    """Returns the numbers of the rows, or ``None`` for all."""
    if index is None or (isinstance(index, slice) and index == slice(None)):
        return None
    return index


_Key = Tuple[Any, EdgeLayout]


class _Edges(NamedTuple):
    """A stored edge index."""

    number: int
    attr: EdgeAttr
    #: Lengths of the two arrays. One without elements is not stored.
    lengths: Tuple[int, int]
    dtypes: Tuple[str, str]


class GraphStore(_GraphStore):  # type: ignore[misc]
    """Edges of graphs as arrays of a volume, for PyTorch Geometric's loaders: ``NeighborLoader((FeatureStore(volume), GraphStore(volume)), ...)``.

    An edge index of any layout (COO, CSR, CSC) becomes the arrays ``NAME.N.row`` and ``NAME.N.col``, and ``NAME.N.attr`` with its attributes.
    Edge indices that are there already are attributes from the start. A tensor that PyTorch Geometric asks for is read completely, and
    compared with its checksum. Its samplers ask once, so store edges as CSC: that is the layout they sample from.

    ``name`` tells the graphs of a volume apart.
    """

    def __init__(self, volume: Volume, name: str = "edges") -> None:
        super().__init__()
        self._volume, self._name = volume, name
        self._file = re.compile(re.escape(name) + r"\.(\d+)\.(row|col|attr)")
        self._edges: Dict[_Key, _Edges] = {}
        for number in sorted(n for n, part in self._stored() if part == "attr"):
            edges = self._read(number)
            # Of two with the same key, the program ended before it had removed the old one.
            self._edges[self._key(edges.attr)] = edges

    def _stored(self) -> List[Tuple[int, str]]:
        """Returns number and part of all arrays of the store."""
        found = (self._file.fullmatch(array["name"]) for array in self._volume.arrays())
        return [(int(one[1]), one[2]) for one in found if one]

    def _array(self, number: int, part: str) -> str:
        return f"{self._name}.{number}.{part}"

    def _read(self, number: int) -> _Edges:
        name = self._array(number, "attr")
        try:
            facts = json.loads(bytes(self._volume.load(name)))
            kind = facts["edge_type"]
            size = None if facts["size"] is None else tuple(facts["size"])
            attr = EdgeAttr(None if kind is None else tuple(kind), EdgeLayout(facts["layout"]), facts["is_sorted"], size)
            return _Edges(number, attr, tuple(facts["lengths"]), tuple(facts["dtypes"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"array `{name}` does not describe edges ({error}); remove it, or name the store otherwise") from error

    @staticmethod
    def _key(attr: EdgeAttr) -> _Key:
        kind = attr.edge_type
        if kind is not None and not (isinstance(kind, tuple) and len(kind) == 3 and all(isinstance(part, str) for part in kind)):
            raise InvalidError(f"the type of edges {kind!r} is not three texts: source, relation, destination; use None for a graph of one type")
        return kind, attr.layout

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        key = self._key(edge_attr)
        row, col = (_integers(part, name) for part, name in zip(edge_index, ("row", "col")))
        attr = EdgeAttr(edge_attr.edge_type, edge_attr.layout, edge_attr.is_sorted and edge_attr.layout != EdgeLayout.CSR, _size_of(row, col, edge_attr))
        stored, complete = self._stored(), {edges.number for edges in self._edges.values()}
        number = 1 + max((n for n, _ in stored), default=-1)
        facts = {
            "edge_type": attr.edge_type,
            "layout": attr.layout.value,
            "is_sorted": attr.is_sorted,
            "size": attr.size,
            "lengths": (len(row), len(col)),
            "dtypes": (row.dtype.name, col.dtype.name),
        }
        for part, values in (("row", row), ("col", col)):
            if len(values):
                self._volume.store(self._array(number, part), values)
        # With this array the edge index is there. Until then the old one is.
        self._volume.store(self._array(number, "attr"), np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8))
        old = self._edges.get(key)
        self._edges[key] = _Edges(number, attr, facts["lengths"], facts["dtypes"])  # type: ignore[arg-type]
        # The one that was replaced, and what programs have left that ended too early.
        gone = [self._array(n, part) for n, part in stored if n not in complete or (old is not None and n == old.number)]
        if gone:
            self._volume.remove(*gone)
        return True

    def _get_edge_index(self, edge_attr: EdgeAttr) -> Optional[Tuple[torch.Tensor, torch.Tensor]]:
        edges = self._edges.get(self._key(edge_attr))
        if edges is None:
            return None
        row, col = (
            torch.from_numpy(self._volume.load(self._array(edges.number, part)) if length else np.empty(0, dtype))
            for part, length, dtype in zip(("row", "col"), edges.lengths, edges.dtypes)
        )
        return row, col

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        edges = self._edges.pop(self._key(edge_attr), None)
        if edges is None:
            return False
        self._volume.remove(*(self._array(n, part) for n, part in self._stored() if n == edges.number))
        return True

    def get_all_edge_attrs(self) -> List[EdgeAttr]:
        """Returns the attributes of all edge indices."""
        return [EdgeAttr(a.edge_type, a.layout, a.is_sorted and a.layout != EdgeLayout.CSR, a.size) for a in (e.attr for e in self._edges.values())]

    def array_names(self, *args: Any, **kwargs: Any) -> Tuple[str, str]:
        """Returns the names of the arrays of an edge index, for kernels that read it from storage (``Cache.open``)."""
        attr = self._edge_attr_cls.cast(*args, **kwargs)
        edges = self._edges.get(self._key(attr))
        if edges is None:
            raise KeyError(f"'edge_index' for '{attr}' not found")
        return self._array(edges.number, "row"), self._array(edges.number, "col")

    def __len__(self) -> int:
        return len(self._edges)


def _integers(part: Any, name: str) -> Any:
    """Returns one half of an edge index as an array of numpy."""
    values = torch.as_tensor(part).detach().cpu().contiguous().numpy()
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InvalidError(f"{name}: it is of type {values.dtype} with {values.ndim} dimensions; an edge index is two lists of integers")
    return values


def _size_of(row: Any, col: Any, attr: EdgeAttr) -> Tuple[int, int]:
    """Checks an edge index, and returns the numbers of its source and destination nodes."""
    pointers, others = {EdgeLayout.CSR: (row, col), EdgeLayout.CSC: (col, row), EdgeLayout.COO: (None, None)}[attr.layout]
    if pointers is None:
        if len(row) != len(col):
            raise InvalidError(f"an edge index of {len(row)} sources and {len(col)} destinations; each edge has both")
        found = [int(part.max()) + 1 if len(part) else 0 for part in (row, col)]
    else:
        if len(pointers) == 0 or pointers[0] != 0 or pointers[-1] != len(others) or (np.diff(pointers) < 0).any():
            ends = f"from {pointers[0]} to {pointers[-1]}" if len(pointers) else "without elements"
            raise InvalidError(f"pointers {ends} for {len(others)} edges; they rise from 0 to the number of edges")
        found = [len(pointers) - 1, int(others.max()) + 1 if len(others) else 0]
        if attr.layout == EdgeLayout.CSC:
            found.reverse()
    if min((int(part.min()) for part in (row, col) if len(part)), default=0) < 0:
        raise InvalidError("an edge index with a negative number of a node; nodes are numbered from 0")
    if attr.size is None:
        kind = attr.edge_type
        return (max(found), max(found)) if kind is None or kind[0] == kind[2] else (found[0], found[1])
    # PyG allows None for a number that is not known.
    size = [f if given is None else int(given) for f, given in zip(found, attr.size)]
    exact = {EdgeLayout.CSR: size[0] == found[0], EdgeLayout.CSC: size[1] == found[1], EdgeLayout.COO: True}[attr.layout]
    if not exact or size[0] < found[0] or size[1] < found[1]:
        raise InvalidError(f"the edge index names {found[0]} sources and {found[1]} destinations, and its size is {tuple(size)}; give the numbers of nodes")
    return size[0], size[1]
