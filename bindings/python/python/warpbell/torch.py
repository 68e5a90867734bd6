"""Rows of tables in torch: an operator that works under ``torch.compile``, and a module around it."""

from __future__ import annotations

import itertools
import weakref

import torch

from . import Table
from ._errors import InvalidError

__all__ = ["Rows"]

#: Operators take numbers and tensors only, so a table is passed by its number.
_tables: weakref.WeakValueDictionary[int, Table] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def _find(number: int) -> Table:
    table = _tables.get(number)
    if table is None:
        raise InvalidError(f"there is no table {number}: the module that the operator was compiled for is gone; compile it again")
    return table


def _memory(table: Table, indices: torch.Tensor) -> torch.Tensor:
    shape = (*indices.shape, *table.shape[1:])
    return torch.empty(shape, dtype=getattr(torch, table.dtype), device=table.device)


@torch.library.custom_op("warpbell::gather", mutates_args=())
def _gather(table: int, indices: torch.Tensor) -> torch.Tensor:
    found = _find(table)
    rows = _memory(found, indices)
    found.gather(indices.contiguous(), rows)
    return rows


@_gather.register_fake
def _(table: int, indices: torch.Tensor) -> torch.Tensor:
    return _memory(_find(table), indices)


class Rows(torch.nn.Module):
    """Gathers rows of a table: ``rows(indices)`` is a tensor on the device of the table's engine.

    The rows are complete on torch's current stream. They have no gradient: ``Table.scatter`` changes rows.
    """

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table
        self._number = next(_numbers)
        _tables[self._number] = table

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Gathers the rows with these numbers: integers of any shape."""
        rows: torch.Tensor = torch.ops.warpbell.gather(self._number, indices)
        return rows

    def extra_repr(self) -> str:
        return repr(self.table)
