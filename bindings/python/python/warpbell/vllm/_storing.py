"""The thread of a worker that stores chunks, and deletes those that the scheduler has evicted."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

import numpy as np
import numpy.typing as npt

from .. import KvStore, KvTransfer, SegmentQueue
from .._errors import Error, TimeoutError
from ._keys import KeyLog, ObjectKeys

#: Gets texts of errors. An exception would keep the store as long as a handler keeps its record.
_log = logging.getLogger("warpbell.vllm")


class Group(NamedTuple):
    """Pages of a group of layers."""

    #: Number in the keys of chunks.
    number: int
    #: Tensors of shape (pages, bytes of a page). An object is one page of each.
    tensors: List[Any]
    page_bytes: List[int]

    @property
    def object_bytes(self) -> int:
        """Bytes of an object."""
        return sum(self.page_bytes)


class Part(NamedTuple):
    """Blocks of a job that belong to one group, in order."""

    group: int
    #: Chunk of each block, and the place of the block there.
    chunks: List[bytes]
    places: npt.NDArray[np.int64]
    pages: npt.NDArray[np.int64]

    def objects(self, keys: ObjectKeys) -> List[bytes]:
        """Returns the keys of the objects."""
        return [keys.of(chunk, int(place)) for chunk, place in zip(self.chunks, self.places)]


@dataclass
class StoreJob:
    """Chunks to store, and to delete before."""

    job_id: int
    parts: List[Part]
    dropped: Sequence[bytes]
    started: float = field(default_factory=time.monotonic)
    nbytes: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def chunks(self) -> Set[bytes]:
        """Returns the chunks to store."""
        return {chunk for part in self.parts for chunk in part.chunks}


class Storing:
    """Stores the jobs that wait together, so that they share the flushes of the devices."""

    def __init__(self, store: KvStore, segments: SegmentQueue, groups: List[Group], keys: ObjectKeys, log: KeyLog, limit: float) -> None:
        self._store, self._segments, self._groups, self._keys, self._key_log, self._limit = store, segments, groups, keys, log, limit
        self._wake = threading.Condition()
        self._queued: List[StoreJob] = []
        #: Jobs that `finished` has not returned.
        self._jobs: Dict[int, StoreJob] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="warpbell-store", daemon=True)
        self._thread.start()

    def submit(self, job: StoreJob) -> None:
        """Takes a job."""
        with self._wake:
            self._jobs[job.job_id] = job
            self._queued.append(job)
            self._wake.notify()

    def delete(self, chunks: Iterable[bytes]) -> None:
        """Deletes chunks behind the jobs that wait."""
        with self._wake:
            self._queued.append(StoreJob(-1, [], list(chunks)))
            self._wake.notify()

    def finished(self) -> List[StoreJob]:
        """Returns the jobs that have ended since the last call."""
        with self._wake:
            ended = [job for job in self._jobs.values() if job.done.is_set()]
            for job in ended:
                del self._jobs[job.job_id]
        return ended

    def wait(self, job_id: int) -> None:
        """Waits for a job, which `finished` returns afterwards."""
        with self._wake:
            job = self._jobs.get(job_id)
            # Each job before this one may take the limit.
            limit = self._limit * (len(self._jobs) + 1)
        if job is not None and not job.done.wait(limit):
            raise TimeoutError(f"job {job_id} was not stored within {limit:.0f} seconds; look at the device, and start the server again")

    def stop(self) -> None:
        """Ends the thread behind the jobs that wait."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
            limit = self._limit * (len(self._jobs) + 1)
        self._thread.join(limit)

    def _take(self) -> List[StoreJob]:
        """Waits for jobs. Returns them up to one with a chunk that is stored already, or none at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._queued or self._is_stopping)
            count = 0
            chunks: Set[bytes] = set()
            for job in self._queued:
                own = job.chunks()
                if chunks & own:
                    break
                count, chunks = count + 1, chunks | own
            jobs, self._queued = self._queued[:count], self._queued[count:]
        return jobs

    def _run(self) -> None:
        while jobs := self._take():
            try:
                self._delete(jobs)
                self._put(jobs)
            except Exception:
                # A job that does not end would stop the server.
                _log.exception("%d jobs were not stored", len(jobs))
            for job in jobs:
                job.done.set()

    def _delete(self, jobs: List[StoreJob]) -> None:
        chunks = dict.fromkeys(chunk for job in jobs for chunk in job.dropped)
        if not chunks:
            return
        known = self._key_log.chunks
        try:
            self._store.delete([key for chunk in chunks for key in self._keys.all_of(chunk, known.get(chunk, -1))])
        except Error as error:
            _log.warning("%d chunks were not deleted: %s", len(chunks), str(error))
        self._key_log.put((chunk, 0) for chunk in chunks if chunk in known)

    def _put(self, jobs: List[StoreJob]) -> None:
        launched: List[Tuple[Part, KvTransfer]] = []
        failed: Set[bytes] = set()
        for group in range(len(self._groups)):
            parts = [part for job in jobs for part in job.parts if part.group == group]
            if not parts:
                continue
            whole = Part(
                group,
                [chunk for part in parts for chunk in part.chunks],
                np.concatenate([part.places for part in parts]),
                np.concatenate([part.pages for part in parts]),
            )
            try:
                transfer = self._store.store(self._segments, whole.objects(self._keys), self._groups[group].tensors, whole.pages)
                launched.append((whole, transfer))
            except Error as error:
                failed.update(whole.chunks)
                _log.warning("%d blocks were not stored: %s", len(whole.chunks), str(error))
        stored: Dict[bytes, int] = {}
        for whole, transfer in launched:
            try:
                transfer.finish(self._limit)
            except Error as error:
                failed.update(whole.chunks)
                _log.warning("%d blocks were not stored: %s", len(whole.chunks), str(error))
                continue
            for chunk, place in zip(whole.chunks, whole.places):
                stored[chunk] = stored.get(chunk, 0) | 1 << int(place)
        # Evicts what the scheduler did not know of, as long as that takes space.
        evicted = {self._keys.chunk_of(key, self._key_log.chunks) for key in self._store.take_evictions()}
        self._key_log.put([*((chunk, 0) for chunk in evicted if chunk is not None), *((c, blocks) for c, blocks in stored.items() if c not in failed)])
        for job in jobs:
            job.nbytes = sum(self._groups[part.group].object_bytes * len(part.chunks) for part in job.parts if failed.isdisjoint(part.chunks))
