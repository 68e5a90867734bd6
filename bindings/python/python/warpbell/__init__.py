"""Rows, graphs and arrays on NVMe storage that GPU kernels read by themselves."""

import os as _os

from ._errors import (
    CancelledError,
    CudaError,
    DamagedError,
    DeviceError,
    Error,
    ExistsError,
    FailedOperation,
    ForkError,
    InputError,
    InternalError,
    InvalidError,
    KernelError,
    NotFoundError,
    OutOfMemoryError,
    RowIndexError,
    SpaceError,
    TimeoutError,
    UnsupportedError,
)
from ._native import (
    Array,
    BfsResult,
    Cache,
    ComponentsResult,
    Engine,
    Graph,
    PageRankResult,
    Prefetch,
    SsspResult,
    Stream,
    Table,
    Tensor,
    Volume,
    __version__,
)

__all__ = [
    "Array",
    "BfsResult",
    "Cache",
    "CancelledError",
    "ComponentsResult",
    "CudaError",
    "DamagedError",
    "DeviceError",
    "Engine",
    "Error",
    "ExistsError",
    "FailedOperation",
    "ForkError",
    "Graph",
    "InputError",
    "InternalError",
    "InvalidError",
    "KernelError",
    "NotFoundError",
    "OutOfMemoryError",
    "PageRankResult",
    "Prefetch",
    "RowIndexError",
    "SpaceError",
    "SsspResult",
    "Stream",
    "Table",
    "Tensor",
    "TimeoutError",
    "UnsupportedError",
    "Volume",
    "__version__",
    "get_include",
]


def get_include() -> str:
    """Returns the folder with the headers for kernels, for a compiler's option ``-I``."""
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "include")
