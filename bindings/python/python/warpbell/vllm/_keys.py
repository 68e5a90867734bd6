"""Key logs: each worker writes which chunks its store holds, and the scheduler's process reads that.

A log is a file of records of 64 bytes behind a header of 4096. It begins with all chunks that the store holds, and a record says that these are
complete. Later records follow each change: a chunk after it was stored, and before the job is reported as finished; or a chunk that is gone.
A worker replaces the file when it opens its store, and when the file has become much larger than its chunks need.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import threading
import zlib
from typing import Any, Container, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .._errors import InvalidError

_log = logging.getLogger("warpbell.vllm")

VERSION = 1
_MAGIC = b"warpbell key log\n"
_HEADER = 4096
#: Kind, bytes of the key, blocks of the chunk as a mask, key, CRC-32 of what is before.
_RECORD = struct.Struct("<BB6xQ44sI")
_CHUNK, _COMPLETE = 1, 2
#: Largest key, and most blocks of a chunk.
KEY_BYTES, BLOCKS = 44, 64
#: Bytes of a log that is not replaced, whatever it holds.
_SMALL = 16 << 20

Facts = Dict[str, Any]


def _record(kind: int, key: bytes, blocks: int) -> bytes:
    body = _RECORD.pack(kind, len(key), blocks, key, 0)[:-4]
    return body + zlib.crc32(body).to_bytes(4, "little")


def _header(facts: Facts) -> bytes:
    text = _MAGIC + json.dumps(facts, sort_keys=True).encode() + b"\n"
    if len(text) > _HEADER:
        raise InvalidError(f"the header of a key log has {len(text)} bytes; {_HEADER} are the most: take shorter names")
    return text.ljust(_HEADER, b"\0")


def _facts(header: bytes) -> Optional[Facts]:
    """Returns what a header says, or ``None`` if it is not one of this version."""
    if not header.startswith(_MAGIC):
        return None
    try:
        facts = json.loads(header[len(_MAGIC) :].rstrip(b"\0"))
    except ValueError:
        return None
    return facts if isinstance(facts, dict) and facts.get("version") == VERSION else None


def _records(data: bytes) -> Iterator[Tuple[int, bytes, int]]:
    """Yields kind, key and blocks of whole records. Ends before the first one that is damaged."""
    for at in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
        kind, length, blocks, key, crc = _RECORD.unpack_from(data, at)
        if zlib.crc32(data[at : at + _RECORD.size - 4]) != crc or length > KEY_BYTES:
            return
        yield kind, key[:length], blocks


def read(path: str) -> Tuple[Optional[Facts], Dict[bytes, int]]:
    """Returns what a log says that an earlier process has left: header, and blocks of each chunk, in the order in which they were stored."""
    try:
        with open(path, "rb") as file:
            header, data = file.read(_HEADER), file.read()
    except OSError:
        return None, {}
    chunks: Dict[bytes, int] = {}
    for kind, key, blocks in _records(data):
        if kind == _CHUNK:
            chunks.pop(key, None)
            if blocks:
                chunks[key] = blocks
    return _facts(header), chunks


class KeyLog:
    """The log of a worker, which writes it."""

    def __init__(self, path: str, facts: Facts, chunks: Dict[bytes, int]) -> None:
        self.path, self.chunks = path, chunks
        self._header = _header({**facts, "version": VERSION})
        self._file = -1
        self._size = 0
        self._lock = threading.Lock()
        self._replace()

    def _replace(self) -> None:
        """Writes the file anew. A reader finds the old one or the new one."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        new = f"{self.path}.{os.getpid()}"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            parts = [_record(_CHUNK, key, blocks) for key, blocks in self.chunks.items()]
            data = b"".join([self._header, *parts, _record(_COMPLETE, b"", 0)])
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
            os.replace(new, self.path)
        except OSError:
            os.close(file)
            raise
        self.close()
        self._file, self._size = file, len(data)

    def put(self, changes: Iterable[Tuple[bytes, int]]) -> None:
        """Appends the blocks of chunks, or 0 for one that is gone. Readers see them when it returns.

        Without space on the file system the changes are not told. Chunks that are not told of are not loaded; of those that are gone, a load
        fails and is told of.
        """
        with self._lock:
            parts = []
            for key, blocks in changes:
                self.chunks.pop(key, None)
                if blocks:
                    self.chunks[key] = blocks
                parts.append(_record(_CHUNK, key, blocks))
            data = b"".join(parts)
            try:
                if self._size > max(_SMALL, 8 * _RECORD.size * len(self.chunks)):
                    self._replace()
                elif data:
                    written = os.write(self._file, data)
                    if written != len(data):
                        os.ftruncate(self._file, self._size)
                        raise OSError(f"{written} of {len(data)} bytes were written")
                    self._size += written
            except OSError as error:
                _log.warning("%s: %s; the scheduler does not learn of these chunks", self.path, error)

    def close(self) -> None:
        """Closes the file. Further calls do nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Changes(NamedTuple):
    """New records of a log."""

    #: The file is new: what is not among the chunks is gone.
    is_new: bool
    #: Keys, and their blocks, or 0.
    chunks: List[Tuple[bytes, int]]


class Follower:
    """Reads the log of a worker while that writes it. Logs that workers of another engine have left are not read."""

    def __init__(self, path: str, engine: str) -> None:
        self.path = path
        #: Header of the log that is read.
        self.facts: Optional[Facts] = None
        self._engine = engine
        self._file = -1
        self._inode = 0
        self._at = 0

    def poll(self) -> Optional[Changes]:
        """Returns what was appended since the last call, or ``None`` if there is nothing new."""
        try:
            status = os.stat(self.path)
            is_new = self._file < 0 or status.st_ino != self._inode
            if is_new and not self._open():
                return None
            if not is_new and status.st_size < self._at + _RECORD.size:
                return None
            data = b""
            while part := os.pread(self._file, 1 << 24, self._at + len(data)):
                data += part
        except OSError:
            # The worker has not written it yet.
            return None
        whole = len(data) // _RECORD.size
        chunks = [(key, blocks) for kind, key, blocks in _records(data) if kind == _CHUNK]
        read = sum(1 for _ in _records(data))
        if read < whole:
            _log.error("%s: record %d is damaged; nothing that the worker stores from now on is found", self.path, self._at // _RECORD.size + read)
            self._at = 1 << 62
        else:
            self._at += whole * _RECORD.size
        return Changes(is_new, chunks)

    def _open(self) -> bool:
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        facts = _facts(os.pread(file, _HEADER, 0))
        if facts is None or facts.get("engine") != self._engine:
            os.close(file)
            return False
        self.close()
        self._file, self._inode, self._at = file, os.fstat(file).st_ino, _HEADER
        self.facts = facts
        return True

    def close(self) -> None:
        """Closes the file. Further calls do nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class ObjectKeys:
    """Keys of objects: one for each block of a chunk.

    The key of an object is the hash of the chunk with a mask for layout, group and block. So a key of another model or another shape of the pages
    is never found, and the chunk follows from the key of an object.
    """

    def __init__(self, layout: bytes, groups: Sequence[int], blocks_per_chunk: int) -> None:
        self._masks = {
            group: [
                int.from_bytes(hashlib.sha256(layout + group.to_bytes(4, "big") + block.to_bytes(4, "big")).digest(), "big")
                for block in range(blocks_per_chunk)
            ]
            for group in groups
        }

    @staticmethod
    def _number(key: bytes) -> Tuple[int, int]:
        """Returns group and hash of the key of a chunk."""
        if not 4 < len(key) <= 36:
            raise InvalidError(f"a key of {len(key)} bytes; hashes of blocks have up to 32 bytes, and 4 for the group: use sha256 or xxhash")
        return int.from_bytes(key[-4:], "big"), int.from_bytes(key[:-4].ljust(32, b"\0"), "big")

    def of(self, key: bytes, block: int) -> bytes:
        """Returns the key of the object for a block of a chunk."""
        group, number = self._number(key)
        return (number ^ self._masks[group][block]).to_bytes(32, "big")

    def all_of(self, key: bytes, blocks: int) -> List[bytes]:
        """Returns the keys of the objects for those blocks of a chunk whose bits are set."""
        group, number = self._number(key)
        return [(number ^ mask).to_bytes(32, "big") for bit, mask in enumerate(self._masks[group]) if blocks >> bit & 1]

    def chunk_of(self, found: bytes, chunks: Container[bytes]) -> Optional[bytes]:
        """Returns the chunk among ``chunks`` to which the object of this key belongs."""
        number = int.from_bytes(found, "big")
        for group, masks in self._masks.items():
            for mask in masks:
                whole = (number ^ mask).to_bytes(32, "big")
                for length in (32, 16):
                    key = whole[:length] + group.to_bytes(4, "big")
                    if not any(whole[length:]) and key in chunks:
                        return key
        return None
