"""A feature store of PyTorch Geometric with its features on storage."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.utils.dlpack
from torch_geometric.data import FeatureStore as _FeatureStore  # type: ignore[import-untyped]
from torch_geometric.data import TensorAttr

from . import Table, Volume
from ._errors import InvalidError

__all__ = ["FeatureStore"]

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
