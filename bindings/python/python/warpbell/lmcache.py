"""The back end ``warpbell`` of LMCache's GPU storage tier: a slab on a volume, between which and GPU memory kernels move chunks.

LMCache looks for back ends among the modules of its own package. One file there makes this one known:

    python -m warpbell.lmcache install      writes it; --any-version also for a version of LMCache that is not known here
    python -m warpbell.lmcache uninstall    removes it

The location of the slab (``--gds-l1-path``) is a folder, a file, or a device such as ``nvme:0000:65:00.0``. ``WARPBELL_LMCACHE_DEVICE`` names
a device in its place. A device with other data is refused, unless ``WARPBELL_LMCACHE_OVERWRITE`` names it once more.
"""

from __future__ import annotations

import errno
import importlib.metadata
import importlib.util
import logging
import os
import sys
import threading
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import Engine, SegmentQueue, SegmentTransfer, Table, Volume
from ._errors import CancelledError, Error, InvalidError, OutOfMemoryError, TimeoutError, UnsupportedError
from ._memory import GpuMemory

try:
    from lmcache.v1.gpu_connector.gds_backends._driver import SharedDriver  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from lmcache.v1.gpu_connector.gds_backends.base import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        GDSBackend,
        GDSHandle,
        Submission,
    )
except ImportError as error:
    raise ImportError(f"LMCache with back ends for GPU storage cannot be imported ({error}); install lmcache 0.5.6 in this environment") from error

__all__ = ["Backend", "Handle"]

#: Versions of LMCache whose interface this module has.
KNOWN = ("0.5.6",)
#: The whole text of the file in LMCache's package.
IMPORT = "from warpbell.lmcache import Backend\n"
#: Table that is the slab, and its array.
TABLE = "lmcache-slab"
ARRAY = f"{TABLE}:rows"
#: Name of the slab's file in a folder.
FILE = "warpbell_slab.img"
DEVICE, OVERWRITE = "WARPBELL_LMCACHE_DEVICE", "WARPBELL_LMCACHE_OVERWRITE"

_KINDS = ("soft:", "nvme:", "nvmf:", "qtest:")
#: Bytes of a row of the table. The slab is whole rows.
_ROW = 65536
#: Bytes of a new volume beside the slab: its manifest, and the description of the table.
_BESIDE = 1 << 20

_log = logging.getLogger(__name__)


def device_of(location: str, direct_io: bool) -> str:
    """Returns the device for a location that LMCache's configuration has. Makes the folder of a file."""
    named = os.environ.get(DEVICE)
    if named:
        return named
    if location.startswith(_KINDS):
        return location
    path = os.path.abspath(location)
    if location.endswith(os.sep) or os.path.isdir(path):
        path = os.path.join(path, FILE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    escaped = path.replace("\\", "\\\\").replace(",", "\\,")
    return f"soft:file:{escaped}{',direct' if direct_io else ''}"


def _open_slab(engine: Engine, device: str, size: int) -> Volume:
    """Opens a device, and makes the slab on it. One of the right size is used again. LMCache knows nothing of its content after a start."""
    named = os.environ.get(OVERWRITE)
    rows = -(-size // _ROW)
    volume = Volume.create(engine, device, rows * _ROW + _BESIDE, overwrite=[named] if named else [], for_segments=True)
    arrays = {array["name"]: array["element_bytes"] * array["count"] for array in volume.arrays()}
    if arrays.get(ARRAY) == rows * _ROW:
        return volume
    if TABLE in volume.tables():
        volume.remove_table(TABLE)
    Table.create(volume, TABLE, rows, _ROW, "uint8")
    return volume


class _Region(NamedTuple):
    """A registered buffer."""

    #: Keeps the memory.
    tensor: Any
    nbytes: int

    def part(self, offset: int, length: int) -> Any:
        """Returns bytes of the buffer as an array that kernels of the engine take."""
        if not self.tensor.is_cuda:
            return self.tensor.numpy().reshape(-1).view(np.uint8)[offset : offset + length]
        return GpuMemory(self.tensor, self.tensor.data_ptr() + offset, (length,))


def _number_of(error: Error) -> int:
    """Returns the number of the operating system that is closest to an error."""
    for kind, number in ((TimeoutError, errno.ETIMEDOUT), (CancelledError, errno.ECANCELED), (OutOfMemoryError, errno.ENOMEM)):
        if isinstance(error, kind):
            return number
    return errno.EIO


class _Transfer(Submission):  # type: ignore[misc, unused-ignore]
    """A kernel on its way, and its outcome."""

    __slots__ = ("transfer", "reads", "error")

    def __init__(self, transfer: SegmentTransfer, reads: bool, size: int, file_offset: int, buf_offset: int) -> None:
        super().__init__(size, file_offset, buf_offset)
        self.transfer: Optional[SegmentTransfer] = transfer
        self.reads = reads
        #: Text of the error. The exception itself would keep the volume.
        self.error: Optional[str] = None

    @property
    def bytes_done(self) -> int:
        """Returns the bytes that were transferred once the kernel has ended, a negative number of errno if it failed, and 0 before."""
        transfer = self.transfer
        if transfer is not None and transfer.is_ended():
            try:
                # The rest of the last block is no part of the request.
                self.result.value = min(transfer.finish(), self.size.value)
            except Error as error:
                self.error = str(error)
                self.result.value = -_number_of(error)
            self.transfer = None
        return int(self.result.value)

    def has_ended(self) -> bool:
        """Returns true if the outcome is there."""
        return self.bytes_done != 0


class _Stream:
    """A stream of LMCache, and what was launched on it."""

    def __init__(self, queue: SegmentQueue) -> None:
        self.queue = queue
        self.launched: Deque[_Transfer] = deque()


class Handle(GDSHandle):  # type: ignore[misc, unused-ignore]
    """A slab. Each transfer is one kernel on the caller's stream; nothing waits for it on the host.

    LMCache 0.5.6 does not read the outcome of a transfer. Ranges of which a transfer has failed are therefore kept: later reads of them raise,
    until they were written again.
    """

    def __init__(self, backend: Backend, engine: Engine, device: str, size: int) -> None:
        super().__init__(device)
        self._backend, self._size = backend, size
        self._lock = threading.RLock()
        self._streams: Dict[int, _Stream] = {}
        #: Ranges of the slab of which a transfer has failed.
        self._failed: List[Tuple[int, int]] = []
        self._used = False
        self._engine: Optional[Engine] = engine
        self._volume: Optional[Volume] = _open_slab(engine, device, size)

    @property
    def is_closed(self) -> bool:
        """True after ``close``."""
        return self._volume is None

    @property
    def volume(self) -> Volume:
        """The volume of the slab."""
        if self._volume is None:
            raise InvalidError(f"the slab on {self.path} is closed; open it again")
        return self._volume

    def read_async(self, buf_base: int, size: int, file_offset: int, buf_offset: int, raw_stream: int) -> Submission:
        """Adds to the stream a kernel that reads a range of the slab into a registered buffer."""
        with self._lock:
            for stream in self._streams.values():
                self._sweep(stream)
            failed = next((r for r in self._failed if r[0] < file_offset + size and file_offset < r[1]), None)
        if failed is not None:
            raise OSError(errno.EIO, f"slab on {self.path}: a transfer of bytes {failed[0]} to {failed[1]} has failed, and they were not written since")
        return self._launch(True, buf_base, size, file_offset, buf_offset, raw_stream)

    def write_async(self, buf_base: int, size: int, file_offset: int, buf_offset: int, raw_stream: int) -> Submission:
        """Adds to the stream a kernel that writes a range of the slab from a registered buffer."""
        return self._launch(False, buf_base, size, file_offset, buf_offset, raw_stream)

    def close(self) -> None:
        """Closes the volume. Further calls do nothing."""
        with self._lock:
            for stream in self._streams.values():
                self._sweep(stream)
            self._streams.clear()
            if self._volume is not None:
                try:
                    # Otherwise the volume would say that a program has ended while it wrote.
                    self._volume.flush()
                except Error as error:
                    _log.warning("slab on %s: %s", self.path, error)
            self._engine = self._volume = None

    def attach(self, engine: Engine) -> None:
        """Opens the slab for the GPU of a buffer. Once it is in use there, the GPU is fixed."""
        with self._lock:
            if self._volume is None or engine is self._engine:
                return
            if self._used:
                raise UnsupportedError(
                    f"the slab on {self.path} is in use by another GPU than that of the new buffer; run one LMCache server for each GPU, each with a device"
                )
            # The device is locked until the volume is gone.
            self._volume = None
            self._volume = _open_slab(engine, self.path, self._size)
            self._engine = engine

    def prepare(self, raw_stream: int) -> None:
        """Makes the queue of a stream, with its memory."""
        with self._lock:
            self._stream(raw_stream)

    def leave(self, raw_stream: int) -> None:
        """Drops the queue of a stream."""
        with self._lock:
            stream = self._streams.pop(raw_stream, None)
            if stream is not None:
                self._sweep(stream)

    def _stream(self, raw_stream: int) -> _Stream:
        stream = self._streams.get(raw_stream)
        if stream is None:
            volume, engine = self.volume, self._engine
            # Numbers of CUDA streams mean nothing to CPU threads: each has a stream of its own there.
            adopted = None if engine is None or engine.kind == "cpu" else raw_stream
            stream = self._streams[raw_stream] = _Stream(SegmentQueue(volume, stream=adopted))
            self._used = True
        return stream

    def _launch(self, reads: bool, buf_base: int, size: int, file_offset: int, buf_offset: int, raw_stream: int) -> Submission:
        region = self._backend.region(buf_base)
        if size <= 0 or file_offset < 0 or buf_offset < 0 or file_offset + size > self._size or buf_offset + size > region.nbytes:
            raise InvalidError(
                f"{size} bytes at {file_offset} of a slab of {self._size}, and at {buf_offset} of a buffer of {region.nbytes}; they must be within both"
            )
        length = size
        if not reads:
            # The allocator of LMCache gives out units of 4096 bytes, so the rest of a block belongs to the same chunk.
            block = self.volume.block_bytes
            whole = -(-size // block) * block
            length = whole if buf_offset + whole <= region.nbytes else size
        part = region.part(buf_offset, length)
        with self._lock:
            stream = self._stream(raw_stream)
            self._sweep(stream)
            move = stream.queue.load if reads else stream.queue.store
            launched = _Transfer(move(ARRAY, file_offset, part), reads, size, file_offset, buf_offset)
            stream.launched.append(launched)
        return launched

    def _sweep(self, stream: _Stream) -> None:
        """Looks at the outcomes of transfers that have ended. They end in the order of their launches."""
        while stream.launched and stream.launched[0].has_ended():
            ended = stream.launched.popleft()
            first = ended.file_offset.value
            end = first + ended.size.value
            if ended.error is not None:
                _log.error("slab on %s: a %s of bytes %d to %d failed: %s", self.path, "read" if ended.reads else "write", first, end, ended.error)
                self._failed.append((first, end))
            elif not ended.reads and self._failed:
                self._failed = [r for r in self._failed if not (first <= r[0] and r[1] <= end)]


class Backend(GDSBackend):  # type: ignore[misc, unused-ignore]
    """The back end ``warpbell``. LMCache makes it without arguments; ``engine`` is for tests."""

    name = "warpbell"
    _driver = SharedDriver()
    #: Engines of this process, one for each GPU, until the last back end is closed.
    _engines: Dict[str, Engine] = {}
    _opening = threading.Lock()

    def __init__(self, engine: Optional[Engine] = None) -> None:
        super().__init__()
        self._given = engine
        self._handle: Optional[Handle] = None
        self._regions: Dict[int, _Region] = {}
        self._raw_streams: Dict[int, None] = {}

    def validate_environment(self) -> None:
        """Raises if torch has no CUDA."""
        if self._given is not None:
            return
        import torch

        if torch.version.cuda is None:
            raise ValueError("warpbell needs PyTorch with CUDA; this one has none: install a build for CUDA, or choose another back end")

    def open_slab(self, location: str, size: int, direct_io: bool) -> Handle:
        """Opens the device of a location, and makes the slab on it if there is none of this size."""
        if self._handle is not None and not self._handle.is_closed:
            raise InvalidError(f"this back end has the slab on {self._handle.path} open; close that first, or make another back end")
        self._ensure_driver_open()
        self._handle = Handle(self, self._engine(None), device_of(location, direct_io), size)
        return self._handle

    def register_buffer(self, buf: Any) -> None:
        """Keeps a tensor as memory of transfers, and prepares the slab for its GPU."""
        if not buf.is_contiguous():
            raise InvalidError("the tensor is not contiguous; register contiguous memory")
        self._ensure_driver_open()
        if self._handle is not None:
            self._handle.attach(self._engine(buf))
            for raw_stream in self._raw_streams:
                self._handle.prepare(raw_stream)
        self._regions[buf.data_ptr()] = _Region(buf, buf.numel() * buf.element_size())

    def deregister_buffer(self, buf: Any) -> None:
        """Forgets a tensor. Transfers that are in flight keep its memory."""
        self._regions.pop(buf.data_ptr(), None)

    def register_stream(self, raw_stream: int) -> None:
        """Takes the number of a CUDA stream. Its queue is made with the first buffer, which tells the GPU."""
        self._ensure_driver_open()
        self._raw_streams[raw_stream] = None

    def deregister_stream(self, raw_stream: int) -> None:
        """Drops the queue of a stream."""
        self._raw_streams.pop(raw_stream, None)
        if self._handle is not None:
            self._handle.leave(raw_stream)

    def region(self, buf_base: int) -> _Region:
        """Returns the registered buffer at an address."""
        found = self._regions.get(buf_base)
        if found is None:
            raise InvalidError(f"no buffer is registered at {buf_base:#x}; register it first")
        return found

    def _engine(self, buf: Any) -> Engine:
        """Returns the engine for the GPU of a tensor, or for the current one."""
        if self._given is not None:
            return self._given
        if buf is not None and not buf.is_cuda:
            raise InvalidError("the tensor is in memory of the host; register memory of a GPU")
        import torch

        ordinal = torch.cuda.current_device() if buf is None else buf.device.index
        with self._opening:
            found = self._engines.get(f"gpu:{ordinal}")
            if found is None:
                found = self._engines[f"gpu:{ordinal}"] = Engine(f"gpu:{ordinal}")
            return found

    def _close_driver(self) -> None:
        # The last back end of the process is gone.
        with self._opening:
            self._engines.clear()


def _package() -> Tuple[str, str]:
    """Returns the folder of LMCache's back ends, and its version."""
    spec = importlib.util.find_spec("lmcache")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    version = importlib.metadata.version("lmcache")
    return os.path.join(folders[0], "v1", "gpu_connector", "gds_backends"), version


def main(words: Sequence[str]) -> int:
    """Runs ``install`` or ``uninstall``. Returns the exit code."""
    words = list(words)
    any_version = "--any-version" in words
    if any_version:
        words.remove("--any-version")
    if words not in (["install"], ["uninstall"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        folder, version = _package()
    except (ImportError, importlib.metadata.PackageNotFoundError, IndexError) as error:
        print(f"error: the package lmcache was not found ({error}); install it in this environment first", file=sys.stderr)
        return 1
    path = os.path.join(folder, "warpbell.py")
    found: Optional[str] = None
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            found = file.read()
    if found is not None and found != IMPORT:
        print(f"error: {path} is not a file of this program; nothing was changed: move it away first", file=sys.stderr)
        return 1
    if words == ["uninstall"]:
        if found is None:
            print(f"LMCache {version}: there is no {path}")
        else:
            os.remove(path)
            print(f"LMCache {version}: removed {path}")
        return 0
    if version not in KNOWN and not any_version:
        text = f"error: LMCache {version} is not known here, only {', '.join(KNOWN)}; nothing was written: add --any-version to try it"
        print(text, file=sys.stderr)
        return 1
    if found is not None:
        print(f"LMCache {version}: {path} is there already")
        return 0
    with open(path, "x", encoding="utf-8") as file:
        file.write(IMPORT)
    print(f"LMCache {version}: wrote {path}; choose it by --gds-l1-backend warpbell")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
