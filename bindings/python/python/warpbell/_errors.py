"""Exceptions of warpbell. All are subclasses of `Error`."""

from __future__ import annotations

import builtins
from typing import NamedTuple, Optional, Tuple


class FailedOperation(NamedTuple):
    """One operation that failed inside a kernel."""

    #: Text that says what failed, where and how.
    text: str
    #: Name of the device.
    device: str
    #: First logical block.
    lba: int
    #: Number of logical blocks.
    blocks: int
    #: Outcome, such as ``timed out`` or ``device error: unrecovered read error``.
    status: str


class Error(Exception):
    """Base of all exceptions of warpbell. The text has the fact, the cause and the next step."""

    #: Name of the device whose command failed, or ``None``.
    device: Optional[str] = None
    #: First logical block of the command that failed, or ``None``.
    lba: Optional[int] = None
    #: Outcome of the command that failed, or ``None``.
    status: Optional[str] = None
    #: The next step, if the library knows one: the best of them.
    remedy: Optional[str] = None
    #: Operations that failed inside a kernel. Those that caused the others come first.
    operations: Tuple[FailedOperation, ...] = ()


class InvalidError(Error, ValueError):
    """An argument is out of its range, or does not fit the object."""


class RowIndexError(Error, IndexError):
    """An index is no row of the table."""


class NotFoundError(Error, LookupError):
    """There is no array, table, graph, file or device of this name."""


class ExistsError(Error):
    """The name is in use, or a file or device holds data that must not be overwritten."""


class SpaceError(Error):
    """A device or file system has too little space."""


class OutOfMemoryError(Error, MemoryError):
    """Memory of the host or of the GPU could not be allocated."""


class UnsupportedError(Error):
    """This machine, engine or memory does not support the request."""


class DamagedError(Error):
    """Stored data does not match its checksum or its description."""


class InputError(Error, ValueError):
    """An input file cannot be read, or its content is invalid."""


class DeviceError(Error):
    """A device, a file or the operating system failed an operation."""


class TimeoutError(DeviceError, builtins.TimeoutError):
    """A device or a kernel did not respond within its time limit."""


class CancelledError(Error):
    """The call was stopped, for example because another thread's call was interrupted by Ctrl-C."""


class KernelError(Error):
    """A kernel broke, or did not end when it was told to stop. Start the program again."""


class CudaError(Error):
    """A call of the CUDA driver failed."""


class ForkError(Error):
    """The process was forked from one that has used warpbell: threads and GPU contexts do not survive that."""


class WorldError(Error):
    """A world of PEs failed: its PEs disagree, a connection failed, or the world is closed."""

    #: Number of the PE that is the cause, or ``None``.
    pe: Optional[int] = None
    #: Fault of that PE, such as ``connection closed``, or ``None``.
    fault: Optional[str] = None


class LostPeError(WorldError, ConnectionError):
    """A PE is gone. The engine of its world starts no more kernels."""


class WorldTimeoutError(WorldError, TimeoutError):
    """A PE did not come within the time limit."""


class InternalError(Error):
    """A defect of warpbell. Please report the text."""
