"""The worker of a rank: opens its store, and moves blocks between that and the pages of the KV cache."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    OffloadingWorker,
    TransferResult,
)

from .. import Engine, KvStore, KvTransfer, SegmentQueue, Stream, Volume
from .._errors import Error, InvalidError, UnsupportedError
from .._memory import GpuMemory
from ._keys import KeyLog, ObjectKeys, read
from ._settings import Settings
from ._storing import Group, Part, StoreJob, Storing

_log = logging.getLogger("warpbell.vllm")

#: Allocation unit of a store, and bytes of a record.
_UNIT, _RECORD = 4096, 128
#: Bytes of a new volume beside its store.
_BESIDE = 1 << 20
#: Chunks that are looked up at once when a store is opened.
_TOGETHER = 16384
#: Deadlines that a transfer may take. Each wait of a kernel has one, and few follow each other once a device is late.
_DEADLINES = 8
#: Seconds for a transfer that has ended, or has not by then.
_GRACE = 1.0


@dataclass
class _Load:
    job_id: int
    started: float
    expedited: bool
    transfers: List[Tuple[Part, KvTransfer]] = field(default_factory=list)
    #: Parts whose kernels could not be launched.
    failed: List[Tuple[Part, Error]] = field(default_factory=list)


def _array(tensor: Any, page_bytes: int) -> Any:
    """Returns a tensor as the native part takes it: an array of pages."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if not tensor.is_cuda:
        return tensor.numpy()
    if not tensor.is_contiguous():
        raise InvalidError(f"a KV cache of the shape {tuple(tensor.shape)} is not contiguous; choose a layout in which each layer has memory of its own")
    return GpuMemory(tensor, tensor.data_ptr(), (len(tensor), page_bytes))


def _is_on_gpu(tensor: Any) -> bool:
    return not isinstance(tensor, np.ndarray) and tensor.is_cuda


def _engine_of(tensor: Any) -> Engine:
    return Engine(f"gpu:{tensor.device.index}" if _is_on_gpu(tensor) else "cpu")


def _layout(config: Any, groups: Sequence[Group]) -> bytes:
    """Returns a hash of all on which the bytes of an object depend, beside the tokens and the weights."""
    try:
        version = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        version = None
    facts = {
        "vllm": version,
        "model": config.model.name,
        "dtype": config.model.dtype,
        "layout": config.kv_cache_layout,
        "tokens_per_hash": config.cache.tokens_per_hash,
        "groups": [(group.group_id, group.tokens_per_block, list(group.layer_names)) for group in config.groups],
        "parallel": [getattr(config.parallel, name) for name in ("rank", "world_size", "tp_size", "pp_size", "pcp_size", "dcp_size")],
        "pages": [group.page_bytes for group in groups],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()


def _groups(kv_caches: Any, numbers: Sequence[int]) -> List[Group]:
    tensors = [_array(cache.tensor, cache.page_size_bytes) for cache in kv_caches.tensors]
    groups = []
    for number, refs in zip(numbers, kv_caches.group_data_refs):
        used = list(dict.fromkeys(ref.tensor_idx for ref in refs))
        groups.append(Group(number, [tensors[i] for i in used], [kv_caches.tensors[i].page_size_bytes for i in used]))
    return groups


class WarpbellWorker(OffloadingWorker):  # type: ignore[misc, unused-ignore]
    """Moves blocks for one rank.

    A load is one kernel for each group of layers, launched by the caller. A thread stores. A job is reported as finished after the key log says what
    has become of its chunks.
    """

    def __init__(self, kv_caches: Any, config: Any, settings: Settings, engine: Optional[Engine] = None) -> None:
        rank = config.parallel.rank
        self._blocks_per_chunk: int = config.cache.blocks_per_chunk
        numbers = [group.group_id for group in config.groups]
        self._groups = _groups(kv_caches, numbers)
        self._first = kv_caches.tensors[0].tensor
        self._engine = engine or _engine_of(self._first)
        layout = _layout(config, self._groups)
        self._keys = ObjectKeys(layout, numbers, self._blocks_per_chunk)
        self._volume, self._store = self._open(settings, rank)
        largest = max(-(-group.object_bytes // _UNIT) * _UNIT for group in self._groups)
        blocks = min(self._store.bytes // largest, self._store.objects)
        if blocks < self._blocks_per_chunk:
            raise InvalidError(
                f"KV store `{self._store.name}` of {self._volume.name} has {self._store.bytes} bytes, and a chunk of {self._blocks_per_chunk} blocks takes up to "
                f"{largest * self._blocks_per_chunk}; give more bytes_per_worker"
            )
        facts = {
            "engine": config.engine_id,
            "rank": rank,
            "ranks": config.parallel.world_size,
            "layout": layout.hex(),
            "blocks": blocks,
        }
        path = settings.log_path(rank)
        self._key_log = KeyLog(path, facts, self._restore(path, layout))
        self._limit = _DEADLINES * self._engine.deadline
        self._load_queue, self._expedited_queue, self._store_queue = (self._queue(settings) for _ in range(3))
        self._loads: Dict[int, _Load] = {}
        self._storing = Storing(self._store, self._store_queue[1], self._groups, self._keys, self._key_log, self._limit)
        self._is_closed = False
        self._reports_failures = False
        self._failed_blocks: Set[int] = set()
        self._failed_jobs: Set[int] = set()

    def _open(self, settings: Settings, rank: int) -> Tuple[Volume, KvStore]:
        device, name = settings.devices[rank], settings.store
        smallest = min(-(-group.object_bytes // _UNIT) * _UNIT for group in self._groups)
        objects = max(settings.nbytes // smallest, 1)
        needs = settings.nbytes + objects * _RECORD + _BESIDE
        options: Dict[str, Any] = {"for_segments": True, **settings.volume}
        volume = Volume.create(self._engine, device, needs, overwrite=settings.overwrite, **options)
        if all(stored["name"] != name for stored in volume.kv_stores()):
            return volume, KvStore.create(volume, name, bytes=settings.nbytes, objects=objects, key_bytes=32)
        store = KvStore.open(volume, name)
        if store.key_bytes != 32:
            raise InvalidError(f"KV store `{name}` of {volume.name} has keys of {store.key_bytes} bytes, and 32 are needed; remove it, or take another name")
        if store.bytes < settings.nbytes:
            _log.warning("KV store `%s` of %s has %d bytes, and not %d: remove it to change its size", name, volume.name, store.bytes, settings.nbytes)
        return volume, store

    def _restore(self, path: str, layout: bytes) -> Dict[bytes, int]:
        """Returns the chunks of the last log that the store holds. Looks up the oldest first, which keeps the order of uses."""
        facts, told = read(path)
        if facts is None or facts.get("layout") != layout.hex():
            return {}
        sizes = {group.number: group.object_bytes for group in self._groups}
        chunks: Dict[bytes, int] = {}
        keys = list(told)
        for at in range(0, len(keys), _TOGETHER):
            some = keys[at : at + _TOGETHER]
            objects = [self._keys.all_of(key, told[key]) for key in some]
            # The first key of a call counts as the last use.
            found = iter(self._store.lookup([one for several in reversed(objects) for one in several]))
            whole = set()
            for key, several in zip(reversed(some), reversed(objects)):
                expected = sizes[int.from_bytes(key[-4:], "big")]
                if [next(found) for _ in several] == [expected] * len(several):
                    whole.add(key)
            chunks.update((key, told[key]) for key in some if key in whole)
        return chunks

    def _queue(self, settings: Settings) -> Tuple[Stream, SegmentQueue]:
        stream = self._engine.stream()
        return stream, SegmentQueue(self._volume, stream=stream, **settings.queue)

    def _follow(self, stream: Stream) -> None:
        """Lets a stream wait for what the model has launched so far: writes of the pages, or zeros in them."""
        if _is_on_gpu(self._first):
            import torch

            stream.wait_for(torch.cuda.current_stream(self._first.device))

    def _parts(self, keys: Sequence[bytes], blocks: Any) -> List[Part]:
        """Returns the blocks of a job by group. The first chunk of a group may begin, and the last one end, between its blocks."""
        parts, at, first = [], 0, 0
        for group, (count, index) in enumerate(zip(blocks.group_sizes, blocks.block_indices)):
            if count == 0:
                continue
            numbers = np.arange(count, dtype=np.int64) + index % self._blocks_per_chunk
            chunks = numbers // self._blocks_per_chunk + first
            last = int(chunks[-1]) + 1
            if last > len(keys):
                break
            pages = np.asarray(blocks.block_ids[at : at + count], dtype=np.int64)
            parts.append(Part(group, [keys[i] for i in chunks], numbers % self._blocks_per_chunk, pages))
            at, first = at + count, last
        if at != len(blocks.block_ids) or first != len(keys):
            raise InvalidError(f"{len(keys)} chunks for {len(blocks.block_ids)} blocks in groups of {list(blocks.group_sizes)}; the scheduler gives one key a chunk")
        return parts

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Takes a job of the store's thread. Its kernel runs behind what the model has launched so far."""
        self._follow(self._store_queue[0])
        try:
            parts = self._parts(dst_spec.keys, src_spec)
        except InvalidError as error:
            _log.warning("job %d is not stored: %s", job_id, str(error))
            parts = []
        self._storing.submit(StoreJob(job_id, parts, dst_spec.dropped))
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        """Launches the kernels of a load, behind what the model has launched so far. Waits for nothing."""
        stream, segments = self._expedited_queue if expedited else self._load_queue
        self._follow(stream)
        load = self._loads[job_id] = _Load(job_id, time.monotonic(), expedited)
        for part in self._parts(src_spec.keys, dst_spec):
            try:
                transfer = self._store.load(segments, part.objects(self._keys), self._groups[part.group].tensors, part.pages)
                load.transfers.append((part, transfer))
            except Error as error:
                load.failed.append((part, error))
        return True

    def report_failures(self) -> None:
        """Lets failed loads be taken by ``take_failed_blocks`` and ``take_failed_jobs``. Otherwise ``get_finished`` raises for them."""
        self._reports_failures = True

    def loads(self) -> Set[int]:
        """Returns the jobs of loads that `get_finished` has not returned."""
        return set(self._loads)

    def take_failed_blocks(self) -> Set[int]:
        """Returns the pages that loads have left without what was stored, since the last call."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def take_failed_jobs(self) -> Set[int]:
        """Returns the jobs of which such pages are, for models with several groups of layers, whose page numbers are not unique."""
        failed, self._failed_jobs = self._failed_jobs, set()
        return failed

    def get_finished(self) -> List[TransferResult]:
        """Returns the jobs that have ended since the last call."""
        results = [self._result(job.job_id, job.nbytes, job.started) for job in self._storing.finished()]
        late = time.monotonic() - self._limit
        for load in list(self._loads.values()):
            if load.started < late or all(transfer.is_ended() for _, transfer in load.transfers):
                del self._loads[load.job_id]
                results.append(self._result(load.job_id, self._end(load), load.started))
        return results

    @staticmethod
    def _result(job_id: int, nbytes: int, started: float) -> TransferResult:
        return TransferResult(job_id=job_id, success=True, transfer_size=nbytes, transfer_time=time.monotonic() - started)

    def _end(self, load: _Load) -> int:
        """Looks at the outcomes of a load, and returns the bytes that were loaded."""
        nbytes = 0
        failed: List[Tuple[bytes, int, Error]] = []
        for part, error in load.failed:
            failed += [(chunk, int(page), error) for chunk, page in zip(part.chunks, part.pages)]
        for part, transfer in load.transfers:
            try:
                outcomes: Sequence[Any] = transfer.finish(_GRACE)
            except Error as error:
                if not transfer.is_ended():
                    # The scheduler would give the pages to others, and the kernel may still write to them.
                    raise
                outcomes = [error] * len(part.chunks)
            for chunk, page, outcome in zip(part.chunks, part.pages, outcomes):
                if isinstance(outcome, Error):
                    failed.append((chunk, int(page), outcome))
                else:
                    nbytes += outcome
        if not failed:
            return nbytes
        chunks = list(dict.fromkeys(chunk for chunk, _, _ in failed))
        text = f"{len(failed)} blocks of load {load.job_id} were not loaded, the first because of: {failed[0][2]}"
        _log.error("%s; %d chunks are deleted", text, len(chunks))
        self._key_log.put((chunk, 0) for chunk in chunks)
        self._storing.delete(chunks)
        several = len(self._groups) > 1
        if not self._reports_failures:
            raise UnsupportedError(f"{text}; OffloadingConnector of vLLM 0.33 cannot compute them again: use WarpbellConnector")
        if several and load.expedited:
            raise UnsupportedError(f"{text}; vLLM 0.33 cannot compute them again in a model with several groups of layers: set no budget for synchronous loads")
        if several:
            self._failed_jobs.add(load.job_id)
        else:
            self._failed_blocks.update(page for _, page, _ in failed)
        return nbytes

    def wait(self, job_ids: Set[int]) -> None:
        """Waits for jobs. ``get_finished`` returns them afterwards."""
        for job_id in job_ids:
            load = self._loads.get(job_id)
            for _, transfer in load.transfers if load is not None else ():
                try:
                    transfer.finish(self._limit)
                except Error:
                    # `get_finished` meets it again.
                    pass
            self._storing.wait(job_id)

    def shutdown(self) -> None:
        """Waits for what is in flight, and closes the store. Further calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._storing.stop()
        for load in self._loads.values():
            for _, transfer in load.transfers:
                try:
                    transfer.finish(self._limit)
                except Error as error:
                    _log.warning("load %d failed: %s", load.job_id, str(error))
        self._loads.clear()
        self._key_log.close()
        try:
            # Otherwise the volume would say that a program has ended while it wrote.
            self._volume.flush()
        except Error as error:
            _log.warning("%s: %s", self._volume.name, str(error))
        # The device is locked until the last of these is gone.
        del self._load_queue, self._expedited_queue, self._store_queue, self._storing, self._store, self._volume
