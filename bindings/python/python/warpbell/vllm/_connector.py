"""Spec and connector: what vLLM makes, in the scheduler's process and in each worker."""

from __future__ import annotations

from typing import Any, Dict, Optional, Set

from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    KVConnectorTransferResults,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    OffloadingConnector,
)
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
    OffloadingManager,
    OffloadingSpec,
    OffloadingWorker,
)

from .._errors import InvalidError
from ._manager import CHUNKS, LOST, USAGE, WarpbellManager
from ._settings import settings_of
from ._worker import WarpbellWorker

__all__ = ["WarpbellConnector", "WarpbellSpec"]


class WarpbellSpec(OffloadingSpec):  # type: ignore[misc, unused-ignore]
    """Keeps blocks of the KV cache in KV stores of warpbell volumes, one for each worker: ``spec_name`` of vLLM's ``OffloadingConnector``."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._settings = settings_of(config)
        self._manager: Optional[WarpbellManager] = None
        self._worker: Optional[WarpbellWorker] = None

    @classmethod
    def build_metric_definitions(cls, extra_config: Dict[str, Any]) -> Dict[str, Any]:
        """Describes the metrics of the manager."""
        return {
            USAGE: OffloadingGaugeMetadata(documentation="Fraction of the stores' space that chunks occupy (0.0 = empty, 1.0 = full)."),
            CHUNKS: OffloadingGaugeMetadata(documentation="Chunks that all workers hold or are storing."),
            LOST: OffloadingCounterMetadata(documentation="Chunks that were not stored by all workers, or that a worker has lost."),
        }

    def get_manager(self) -> OffloadingManager:
        """Returns the manager of the scheduler's process."""
        if self._manager is None:
            config = self.config
            events = self.kv_events_config.enable_kv_cache_events
            self._manager = WarpbellManager(self._settings, config.engine_id, config.parallel.world_size, self.blocks_per_chunk, events)
        return self._manager

    def get_worker(self, kv_caches: Any) -> OffloadingWorker:
        """Opens the store of this rank, and returns its worker."""
        if self._worker is None:
            self._worker = WarpbellWorker(kv_caches, self.config, self._settings)
        return self._worker


class WarpbellConnector(OffloadingConnector):  # type: ignore[misc, unused-ignore]
    """vLLM's ``OffloadingConnector``, which also tells the scheduler of blocks that could not be loaded, so that they are computed again.

    Set ``kv_load_failure_policy`` to ``recompute``: by default vLLM fails the requests of such blocks.
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        #: Requests of loads that are in flight.
        self._requests: Dict[int, str] = {}

    def register_kv_caches(self, kv_caches: Dict[str, Any]) -> None:
        """Opens the store for these tensors."""
        super().register_kv_caches(kv_caches)
        self._own_worker().report_failures()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Launches loads."""
        self._requests.update((job_id, job.req_id) for job_id, job in self._connector_metadata.load_jobs.items())
        super().start_load_kv(forward_context, **kwargs)

    def get_transfer_results(self, finished_req_ids: Set[str]) -> KVConnectorTransferResults:
        """Returns requests whose loads have ended or failed. In models with several groups of layers, a request fails as a whole."""
        results = super().get_transfer_results(finished_req_ids)
        results.failed_recving.update(self._requests[job_id] for job_id in self._own_worker().take_failed_jobs())
        in_flight = self._own_worker().loads()
        self._requests = {job_id: request for job_id, request in self._requests.items() if job_id in in_flight}
        return results

    def get_block_ids_with_load_errors(self) -> Set[int]:
        """Returns the blocks that could not be loaded since the last call."""
        return self._own_worker().take_failed_blocks()

    def _own_worker(self) -> WarpbellWorker:
        worker = self.connector_worker.worker if self.connector_worker is not None else None
        if not isinstance(worker, WarpbellWorker):
            raise InvalidError("WarpbellConnector has no worker of a WarpbellSpec; set spec_name and spec_module_path to WarpbellSpec and warpbell.vllm")
        return worker
