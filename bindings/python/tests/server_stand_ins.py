"""The interfaces of LMCache 0.5.6 and vLLM 0.33.0 that the plug-ins use: those of the packages if they can be imported, and otherwise classes of the
same names and signatures."""

import contextlib
import ctypes
import dataclasses
import enum
import sys
import threading
import types
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


def _module(name, **names):
    """Makes a module and the packages around it."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            sys.modules[path] = types.ModuleType(path)
            sys.modules[path].__path__ = []
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[path])
    for key, value in names.items():
        if isinstance(value, type):
            # Pickle finds classes by this.
            value.__module__, value.__qualname__ = name, key
        setattr(sys.modules[name], key, value)


class HostTensor:
    """What the plug-ins use of a tensor of torch, in memory of the host."""

    is_cuda = False

    def __init__(self, array):
        self.array = array

    def numpy(self):
        return self.array

    def data_ptr(self):
        return self.array.ctypes.data

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def is_contiguous(self):
        return self.array.flags["C_CONTIGUOUS"]


def lmcache_modules():
    """Makes ``lmcache`` importable. Returns true if it is the real one."""
    with contextlib.suppress(ImportError):
        import lmcache.v1.gpu_connector.gds_backends.base  # noqa: F401

        return hasattr(sys.modules["lmcache"], "__file__")
    for name in [name for name in sys.modules if name.split(".")[0] == "lmcache"]:
        del sys.modules[name]
    base = "lmcache.v1.gpu_connector.gds_backends"
    _module(f"{base}._driver", SharedDriver=SharedDriver)
    _module(f"{base}.base", GDSBackend=GDSBackend, GDSHandle=GDSHandle, Submission=Submission)
    return False


class SharedDriver:
    def __init__(self):
        self._owners, self._lock = set(), threading.Lock()

    def acquire(self, owner, open_driver):
        with self._lock:
            if owner not in self._owners:
                if not self._owners:
                    open_driver()
                self._owners.add(owner)

    def release(self, owner, close_driver):
        with self._lock:
            if owner in self._owners:
                self._owners.remove(owner)
                if not self._owners:
                    close_driver()


class Submission:
    __slots__ = ("size", "file_offset", "buf_offset", "result", "__weakref__")

    def __init__(self, size, file_offset, buf_offset):
        self.size, self.file_offset, self.buf_offset = ctypes.c_size_t(size), ctypes.c_int64(file_offset), ctypes.c_int64(buf_offset)
        self.result = ctypes.c_int64(0)

    @property
    def bytes_done(self):
        return self.result.value


class GDSBackend(ABC):
    _driver = None

    @classmethod
    def is_default(cls):
        return False

    def validate_environment(self):
        return None

    @abstractmethod
    def open_slab(self, location, size, direct_io): ...

    @abstractmethod
    def register_buffer(self, buf): ...

    @abstractmethod
    def deregister_buffer(self, buf): ...

    @abstractmethod
    def register_stream(self, raw_stream): ...

    @abstractmethod
    def deregister_stream(self, raw_stream): ...

    def close_driver(self):
        if self._driver is not None:
            self._driver.release(self, self._close_driver)

    def _ensure_driver_open(self):
        if self._driver is not None:
            self._driver.acquire(self, self._open_driver)

    def _open_driver(self):
        return None

    def _close_driver(self):
        return None


class GDSHandle(ABC):
    def __init__(self, path):
        self.path = path

    @abstractmethod
    def read_async(self, buf_base, size, file_offset, buf_offset, raw_stream): ...

    @abstractmethod
    def write_async(self, buf_base, size, file_offset, buf_offset, raw_stream): ...

    @abstractmethod
    def close(self): ...

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.close()


def vllm_modules():
    """Makes ``vllm`` importable. Returns true if it is the real one."""
    with contextlib.suppress(ImportError):
        import vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector  # noqa: F401

        return hasattr(sys.modules["vllm"], "__file__")
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]
    connector = "vllm.distributed.kv_transfer.kv_connector.v1"
    base = (
        LoadStoreSpec, Locality, LookupResult, Medium, OffloadingEvent, OffloadingManager, PrepareStoreOutput, RequestOffloadingContext, OffloadingWorker,
        TransferResult, OffloadingMetricMetadata, OffloadingCounterMetadata, OffloadingGaugeMetadata, OffloadingKVEventsConfig, OffloadingSpec,
        GPULoadStoreSpec, CanonicalKVCacheTensor, CanonicalKVCacheRef, CanonicalKVCaches, ReqContext, TierFilter, ScheduleEndContext,
    )  # fmt: skip
    _module("vllm.v1.kv_offload.base", **{one.__name__: one for one in base}, make_offload_key=make_offload_key)
    config = (OffloadingGroupConfig, OffloadingModelConfig, OffloadingCacheConfig, OffloadingParallelConfig, OffloadingConfig)
    _module("vllm.v1.kv_offload.config", **{one.__name__: one for one in config})
    _module("vllm.v1.metrics.cache_hit_source", CacheHitSource=CacheHitSource)
    common = (TransferJob, OffloadingConnectorMetadata)
    _module(f"{connector}.offloading.common", **{one.__name__: one for one in common})
    _module(f"{connector}.offloading.worker", OffloadingConnectorWorker=OffloadingConnectorWorker)
    _module(f"{connector}.offloading.metrics", OffloadingConnectorStats=OffloadingConnectorStats)
    _module(f"{connector}.base", KVConnectorTransferResults=KVConnectorTransferResults)
    _module(f"{connector}.offloading_connector", OffloadingConnector=OffloadingConnector)
    return False


def make_offload_key(block_hash, group_idx):
    return block_hash + group_idx.to_bytes(4, "big", signed=False)


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(enum.Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


class LookupResult(enum.Enum):
    MISS = enum.auto()
    HIT = enum.auto()
    HIT_PENDING = enum.auto()
    RETRY = enum.auto()


class CacheHitSource(str, enum.Enum):
    DISK = "disk"
    EXTERNAL_UNSPECIFIED = "external_unspecified"


class TierFilter:
    def __init__(self, allowed=True):
        self.allowed = allowed

    def allows(self, medium, locality):
        return self.allowed


TierFilter.ALL = TierFilter()


@dataclasses.dataclass
class ReqContext:
    req_id: str
    kv_transfer_params: Any = None
    kv_hints: Any = None
    load_tier_filter: TierFilter = TierFilter.ALL


class LoadStoreSpec:
    pass


@dataclasses.dataclass
class PrepareStoreOutput:
    keys_to_store: list
    store_spec: LoadStoreSpec
    evicted_keys: list


@dataclasses.dataclass
class OffloadingEvent:
    keys: list
    medium: Medium
    removed: bool
    locality: Locality | None = None
    ownership: str | None = None
    removal_expected: bool = False
    metadata_only: bool = False


@dataclasses.dataclass
class RequestOffloadingContext:
    policy: Any = "chunk_level"


class ScheduleEndContext(NamedTuple):
    new_req_ids: Any
    preempted_req_ids: Any


@dataclasses.dataclass(frozen=True)
class OffloadingMetricMetadata:
    documentation: str
    labelnames: tuple = ()


class OffloadingCounterMetadata(OffloadingMetricMetadata):
    pass


@dataclasses.dataclass(frozen=True)
class OffloadingGaugeMetadata(OffloadingMetricMetadata):
    multiprocess_mode: str = "mostrecent"


@dataclasses.dataclass(frozen=True)
class OffloadingKVEventsConfig:
    enable_kv_cache_events: bool
    self_describing_kv_events: bool


class OffloadingConnectorStats:
    def __init__(self, data=None):
        self.values = {}

    def set_gauge(self, gauge_name, gauge_value, labelvalues=()):
        self.values[gauge_name] = gauge_value

    def increase_counter(self, counter_name, counter_increase_value=1, labelvalues=()):
        self.values[counter_name] = self.values.get(counter_name, 0) + counter_increase_value

    def reduce(self):
        return self.values


class OffloadingManager(ABC):
    @property
    def lock(self):
        return contextlib.nullcontext()

    @abstractmethod
    def lookup(self, key, req_context): ...

    def get_load_source(self, key, req_context):
        return CacheHitSource.EXTERNAL_UNSPECIFIED

    @abstractmethod
    def prepare_load(self, keys, req_context): ...

    def touch(self, keys, req_context):
        return

    def complete_load(self, keys, req_context):
        return

    @abstractmethod
    def prepare_store(self, keys, req_context): ...

    def complete_store(self, keys, req_context, success=True):
        return

    @abstractmethod
    def on_new_request(self, req_context): ...

    def on_request_finished(self, req_context):
        return

    def take_events(self):
        return ()

    def on_schedule_end(self, context):
        return

    def has_pending_work(self):
        return False

    def reset_cache(self):
        return

    def on_reset_flushed(self):
        return

    def get_stats(self):
        return None

    def config_info(self):
        return [{}]

    def shutdown(self):
        return


class GPULoadStoreSpec(LoadStoreSpec):
    def __init__(self, block_ids, group_sizes, block_indices):
        self.block_ids = np.array(block_ids, dtype=np.int32)
        assert sum(group_sizes) == len(block_ids)
        assert len(block_indices) == len(group_sizes)
        self.group_sizes, self.block_indices = group_sizes, block_indices


@dataclasses.dataclass
class CanonicalKVCacheTensor:
    tensor: Any
    page_size_bytes: int


@dataclasses.dataclass
class CanonicalKVCacheRef:
    tensor_idx: int
    page_size_bytes: int
    mapping: Any = None


@dataclasses.dataclass
class CanonicalKVCaches:
    tensors: list
    group_data_refs: list


@dataclasses.dataclass
class TransferResult:
    job_id: int
    success: bool
    transfer_size: int | None = None
    transfer_time: float | None = None


class OffloadingWorker(ABC):
    @abstractmethod
    def submit_store(self, job_id, src_spec, dst_spec): ...

    @abstractmethod
    def submit_load(self, job_id, src_spec, dst_spec, expedited=False): ...

    @abstractmethod
    def get_finished(self): ...

    @abstractmethod
    def wait(self, job_ids): ...

    def shutdown(self):
        return


class OffloadingSpec(ABC):
    @classmethod
    def build_metric_definitions(cls, extra_config):
        return {}

    @classmethod
    def config_info_keys(cls, extra_config):
        return ()

    def __init__(self, config):
        self.config, self.extra_config, self.replicated_layout = config, config.extra_config, False
        self.kv_events_config = OffloadingKVEventsConfig(config.enable_kv_cache_events, False)
        self.blocks_per_chunk = config.cache.blocks_per_chunk

    @abstractmethod
    def get_manager(self): ...

    @abstractmethod
    def get_worker(self, kv_caches): ...


@dataclasses.dataclass(frozen=True)
class OffloadingGroupConfig:
    tokens_per_block: int
    layer_names: tuple
    group_id: int
    sliding_window_size_in_chunks: int | None = None


@dataclasses.dataclass(frozen=True)
class OffloadingModelConfig:
    name: str
    dtype: str
    max_model_len: int = 0


@dataclasses.dataclass(frozen=True)
class OffloadingCacheConfig:
    tokens_per_hash: int
    blocks_per_chunk: int


@dataclasses.dataclass(frozen=True)
class OffloadingParallelConfig:
    rank: int
    world_size: int
    tp_size: int
    pp_size: int
    pcp_size: int
    dcp_size: int
    data_parallel_index: int
    data_parallel_size: int
    data_parallel_rank_local: int | None
    is_parallelism_agnostic: bool


@dataclasses.dataclass(frozen=True)
class OffloadingConfig:
    groups: tuple
    worker_kv_bytes_per_block: int
    enable_kv_cache_events: bool
    extra_config: Mapping
    engine_id: str
    model: OffloadingModelConfig
    cache: OffloadingCacheConfig
    parallel: OffloadingParallelConfig
    replicated_layout: bool = False
    canonical_layout: bool = False
    kv_cache_layout: str | None = None


@dataclasses.dataclass
class KVConnectorTransferResults:
    finished_sending: set = dataclasses.field(default_factory=set)
    finished_recving: set = dataclasses.field(default_factory=set)
    failed_recving: set = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class TransferJob:
    req_id: str
    src_spec: LoadStoreSpec
    dst_spec: LoadStoreSpec
    sync: bool = False


@dataclasses.dataclass
class OffloadingConnectorMetadata:
    load_jobs: dict
    store_jobs: dict
    jobs_to_flush: set | None = None


class OffloadingConnectorWorker:
    """Takes jobs, and insists that they succeed."""

    def __init__(self, spec, vllm_config, kv_cache_config):
        self.spec, self.worker, self._load_jobs = spec, None, {}

    def start_kv_transfers(self, metadata):
        for job_id, job in metadata.load_jobs.items():
            self._load_jobs[job_id] = job.req_id
            assert self.worker.submit_load(job_id, job.src_spec, job.dst_spec)

    def get_finished(self, finished_req_ids):
        received = set()
        for result in self.worker.get_finished():
            assert result.success
            received.add(self._load_jobs.pop(result.job_id, None))
        return set(), received - {None}


class OffloadingConnector:
    def register_kv_caches(self, kv_caches):
        self.connector_worker.register_kv_caches(kv_caches)

    def start_load_kv(self, forward_context, **kwargs):
        self.connector_worker.start_kv_transfers(self._connector_metadata)

    def get_finished(self, finished_req_ids):
        return self.connector_worker.get_finished(finished_req_ids)

    def get_transfer_results(self, finished_req_ids):
        sending, receiving = self.get_finished(finished_req_ids)
        return KVConnectorTransferResults(finished_sending=sending, finished_recving=receiving)

    def get_block_ids_with_load_errors(self):
        return set()
