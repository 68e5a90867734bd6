"""The manager of offloaded chunks, in the scheduler's process."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any, Collection, Dict, Iterable, List, Optional, Set

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    LoadStoreSpec,
    Locality,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadingManager,
    PrepareStoreOutput,
    RequestOffloadingContext,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ._keys import Changes, Follower
from ._settings import Settings

_log = logging.getLogger("warpbell.vllm")

USAGE, CHUNKS, LOST = "vllm:kv_offload_warpbell_usage_perc", "vllm:kv_offload_warpbell_chunks", "vllm:kv_offload_warpbell_chunks_lost"
#: Most chunks that one job deletes beside those that make room for its own.
_TOGETHER = 4096


@dataclass
class WarpbellLoadStoreSpec(LoadStoreSpec):  # type: ignore[misc, unused-ignore]
    """Chunks of a job, by their keys."""

    keys: List[bytes]
    #: Chunks that workers delete before they store.
    dropped: List[bytes] = field(default_factory=list)


class _Chunk:
    __slots__ = ("holders", "is_pending")

    def __init__(self, holders: int, is_pending: bool) -> None:
        #: Ranks whose stores hold the chunk, as a mask.
        self.holders = holders
        self.is_pending = is_pending


class WarpbellManager(OffloadingManager):  # type: ignore[misc, unused-ignore]
    """Knows which chunks all workers hold, from their key logs, and chooses which ones are evicted: those that were not used for longest.

    A chunk is found if every rank holds it. One that a rank has lost is deleted by the others with the next job.
    """

    def __init__(self, settings: Settings, engine: str, ranks: int, blocks_per_chunk: int, enable_events: bool) -> None:
        self._followers = [Follower(settings.log_path(rank), engine) for rank in range(ranks)]
        self._blocks_per_chunk = blocks_per_chunk
        self._all = (1 << ranks) - 1
        #: From the one that was not used for longest to the one that was used last.
        self._chunks: OrderedDict[bytes, _Chunk] = OrderedDict()
        self._readers: Counter[bytes] = Counter()
        #: Chunks that workers hold in vain.
        self._dropped: Dict[bytes, None] = {}
        #: Chunks that were evicted in this step. Their deletion may come behind a store of the same step.
        self._evicted: Set[bytes] = set()
        self._events: Optional[List[Any]] = [] if enable_events else None
        self._lost = 0
        self.capacity = 0
        self.is_ready = False

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        """Returns a hit if all workers hold the chunk."""
        chunk = self._chunks.get(key)
        if chunk is None or not self.is_ready or not req_context.load_tier_filter.allows(Medium.STORAGE, Locality.LOCAL):
            return LookupResult.MISS
        return LookupResult.HIT_PENDING if chunk.is_pending else LookupResult.HIT

    def get_load_source(self, key: bytes, req_context: Any) -> CacheHitSource:
        """Returns that chunks come from storage."""
        return CacheHitSource.DISK

    def prepare_load(self, keys: Collection[bytes], req_context: Any) -> LoadStoreSpec:
        """Keeps chunks from being evicted until they are loaded."""
        keys = list(keys)
        self._readers.update(keys)
        self.touch(keys, req_context)
        return WarpbellLoadStoreSpec(keys)

    def touch(self, keys: Collection[bytes], req_context: Any) -> None:
        """Counts as a use of each chunk. The first key counts as the last use: the end of a sequence is evicted before its beginning."""
        for key in reversed(list(keys)):
            if key in self._chunks:
                self._chunks.move_to_end(key)

    def complete_load(self, keys: Collection[bytes], req_context: Any) -> None:
        """Lets chunks be evicted again."""
        for key in keys:
            if self._readers[key] > 1:
                self._readers[key] -= 1
            else:
                del self._readers[key]
        self._poll()

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Optional[PrepareStoreOutput]:
        """Makes room for chunks. Returns ``None`` before the workers have opened their stores, or without enough chunks to evict."""
        self._poll()
        if not self.is_ready:
            return None
        new = [key for key in dict.fromkeys(keys) if key not in self._chunks and key not in self._evicted]
        if not new:
            return PrepareStoreOutput(keys_to_store=[], store_spec=WarpbellLoadStoreSpec([]), evicted_keys=[])
        evicted = self._victims(len(self._chunks) + len(new) - self.capacity, set(keys))
        if evicted is None:
            return None
        for key in evicted:
            del self._chunks[key]
        self._evicted.update(evicted)
        self._tell(evicted, removed=True)
        # Some workers may hold a chunk that is stored again. Deleted, it takes no space beside the new one.
        again = [key for key in new if key in self._dropped]
        dropped = list(dict.fromkeys([*evicted, *again, *list(self._dropped)[:_TOGETHER]]))
        for key in dropped:
            self._dropped.pop(key, None)
        for key in reversed(new):
            self._chunks[key] = _Chunk(0, is_pending=True)
        return PrepareStoreOutput(keys_to_store=new, store_spec=WarpbellLoadStoreSpec(new, dropped), evicted_keys=evicted)

    def complete_store(self, keys: Collection[bytes], req_context: Any, success: bool = True) -> None:
        """Makes chunks visible that every worker has stored, and forgets the others."""
        self._poll()
        stored, failed = [], []
        for key in keys:
            chunk = self._chunks.get(key)
            if chunk is None or not chunk.is_pending:
                continue
            chunk.is_pending = False
            if success and chunk.holders == self._all:
                stored.append(key)
            else:
                del self._chunks[key]
                failed.append(key)
        self._dropped.update(dict.fromkeys(failed))
        self._lost += len(failed)
        self._tell(stored, removed=False)
        self._release(failed)

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        """Looks for what the workers have told."""
        self._poll()
        return RequestOffloadingContext()

    def on_schedule_end(self, context: Any) -> None:
        """Looks for what the workers have told."""
        self._evicted.clear()
        self._poll()

    def take_events(self) -> Iterable[Any]:
        """Yields what was stored and removed since the last call, if events are enabled."""
        events, self._events = self._events or [], None if self._events is None else []
        for event in events:
            if event.metadata_only:
                # Some may be stored again already.
                event.keys = [key for key in event.keys if key not in self._chunks]
            if event.keys:
                yield event

    def reset_cache(self) -> None:
        """Forgets all chunks. Workers delete them with the next jobs."""
        self._tell([key for key, chunk in self._chunks.items() if not chunk.is_pending], removed=True)
        self._dropped.update(dict.fromkeys(self._chunks))
        self._chunks.clear()
        self._readers.clear()

    def get_stats(self) -> Optional[OffloadingConnectorStats]:
        """Returns how full the stores are, and how many chunks were lost since the last call."""
        if not self.is_ready:
            return None
        stats = OffloadingConnectorStats()
        stats.set_gauge(USAGE, len(self._chunks) / self.capacity if self.capacity else 0.0)
        stats.set_gauge(CHUNKS, len(self._chunks))
        stats.increase_counter(LOST, self._lost)
        self._lost = 0
        return stats

    def shutdown(self) -> None:
        """Closes the key logs."""
        for follower in self._followers:
            follower.close()

    def _victims(self, count: int, protected: Set[bytes]) -> Optional[List[bytes]]:
        """Returns chunks to evict, or ``None`` if too few may be."""
        victims: List[bytes] = []
        for key, chunk in self._chunks.items() if count > 0 else ():
            if not chunk.is_pending and key not in protected and key not in self._readers:
                victims.append(key)
                if len(victims) == count:
                    break
        return victims if len(victims) >= count else None

    def _tell(self, keys: Collection[bytes], removed: bool) -> None:
        if keys and self._events is not None:
            self._events.append(OffloadingEvent(keys=list(keys), medium=Medium.STORAGE, removed=removed, locality=Locality.LOCAL))
            if removed:
                self._release(keys)

    def _release(self, keys: Collection[bytes]) -> None:
        """Lets the scheduler forget what it keeps for events of chunks that are gone. It enters them as those of the medium CPU."""
        if keys and self._events is not None:
            self._events.append(OffloadingEvent(keys=list(keys), medium=Medium.CPU, removed=True, metadata_only=True))

    def _poll(self) -> None:
        """Reads what the workers have appended to their logs."""
        for rank, follower in enumerate(self._followers):
            changes = follower.poll()
            if changes is not None:
                self._apply(1 << rank, changes)
        if not self.is_ready and all(follower.facts is not None for follower in self._followers):
            self._begin()

    def _apply(self, bit: int, changes: Changes) -> None:
        if changes.is_new:
            for chunk in self._chunks.values():
                chunk.holders &= ~bit
        for key, blocks in changes.chunks:
            found = self._chunks.get(key)
            if found is not None:
                found.holders = found.holders | bit if blocks else found.holders & ~bit
                if not blocks and self.is_ready and not found.is_pending:
                    self._lose(key)
            elif blocks and not self.is_ready:
                self._chunks[key] = _Chunk(bit, is_pending=False)
            elif blocks:
                self._dropped[key] = None
        if changes.is_new and self.is_ready:
            for key in [key for key, chunk in self._chunks.items() if not chunk.is_pending and not chunk.holders & bit]:
                self._lose(key)

    def _lose(self, key: bytes) -> None:
        """Forgets a chunk that a worker does not hold any more."""
        del self._chunks[key]
        self._dropped[key] = None
        self._lost += 1
        self._tell([key], removed=True)

    def _begin(self) -> None:
        """Begins once all workers have told what their stores hold."""
        facts = [follower.facts or {} for follower in self._followers]
        blocks = min(int(fact.get("blocks", 0)) for fact in facts)
        self.capacity = blocks // self._blocks_per_chunk
        for key in [key for key, chunk in self._chunks.items() if chunk.holders != self._all]:
            del self._chunks[key]
            self._dropped[key] = None
        self.is_ready = True
        self._tell(self._chunks, removed=False)
        _log.info("%d workers hold %d chunks, of at most %d", len(facts), len(self._chunks), self.capacity)
