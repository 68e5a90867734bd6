"""A scheduler and workers of vLLM, without the model: what calls the plug-in, and how."""

import os
import pickle
import random
import time

import numpy as np
import pytest
import server_stand_ins
import warpbell

server_stand_ins.vllm_modules()
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingConnectorMetadata, TransferJob  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker  # noqa: E402
from vllm.v1.kv_offload.base import (  # noqa: E402
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    GPULoadStoreSpec,
    LookupResult,
    Medium,
    ReqContext,
    ScheduleEndContext,
    make_offload_key,
)
from vllm.v1.kv_offload.config import (  # noqa: E402
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from warpbell.vllm import WarpbellConnector, WarpbellSpec, _worker  # noqa: E402

PAGE, PAGES = 8192, 48
LAYERS = 3
ON_GPU = os.environ.get("WARPBELL_TEST_ENGINE") == "gpu"


def tensor_of(array):
    """Returns an array in memory that the engine's kernels reach."""
    if not ON_GPU:
        return array.copy()
    torch = pytest.importorskip("torch", reason="needs torch")
    return torch.from_numpy(array).cuda()


def bytes_of(page):
    return (page.cpu().numpy() if ON_GPU else page).tobytes()


def config_of(device, *, rank=0, ranks=1, groups=1, blocks_per_chunk=1, engine="engine", events=False, dp=(0, 1), model="model", **extra):
    return OffloadingConfig(
        groups=tuple(OffloadingGroupConfig(16, tuple(f"layer.{g}.{n}" for n in range(LAYERS)), g) for g in range(groups)),
        worker_kv_bytes_per_block=LAYERS * PAGE,
        enable_kv_cache_events=events,
        extra_config={"device": device, **extra},
        engine_id=engine,
        model=OffloadingModelConfig(model, "bfloat16"),
        cache=OffloadingCacheConfig(16, blocks_per_chunk),
        parallel=OffloadingParallelConfig(rank, ranks, ranks, 1, 1, 1, dp[0], dp[1], None, False),
    )


def connector_of(spec, caches):
    """Returns the connector of a worker, without vLLM's configuration. The tensors are those that it would find."""
    connector = object.__new__(WarpbellConnector)
    connector._requests = {}
    worker = connector.connector_worker = OffloadingConnectorWorker(spec, None, None)
    worker.register_kv_caches = lambda kv_caches: setattr(worker, "worker", spec.get_worker(kv_caches))
    connector.register_kv_caches(caches)
    return connector


def start_load(connector, job_id, source, target):
    """Starts a load as a step of the model does."""
    connector._connector_metadata = OffloadingConnectorMetadata({job_id: TransferJob("request", source, target)}, {})
    connector.start_load_kv(None)


class Server:
    """A scheduler, and a worker for each rank with its own tensors."""

    def __init__(self, engine, folder, *, chunks=16, ranks=1, groups=1, blocks_per_chunk=1, options="", connector=False, run=None, **more):
        self.context, self.job, self.blocks_per_chunk = ReqContext("request"), 0, blocks_per_chunk
        self.device = f"soft:{folder}/kv-{{rank}}.img{options}"
        extra = {"bytes_per_worker": chunks * blocks_per_chunk * LAYERS * PAGE, "index": str(folder / "index"), **more}
        known = {name: extra.pop(name) for name in ("events", "model") if name in extra}
        if run is not None:
            known["engine"] = run

        def spec(rank):
            return WarpbellSpec(config_of(self.device, rank=rank, ranks=ranks, groups=groups, blocks_per_chunk=blocks_per_chunk, **known, **extra))

        self.caches, self.workers, self.connectors = [], [], []
        original, _worker._engine_of = _worker._engine_of, lambda tensor: engine
        try:
            for rank in range(ranks):
                # Groups have the same tensors, as in models with several kinds of layers.
                tensors = [tensor_of(np.zeros((PAGES, PAGE), np.int8)) for _ in range(LAYERS)]
                refs = [[CanonicalKVCacheRef(i, PAGE) for i in range(LAYERS)] for _ in range(groups)]
                caches = CanonicalKVCaches([CanonicalKVCacheTensor(tensor, PAGE) for tensor in tensors], refs)
                made = spec(rank)
                if connector:
                    self.connectors.append(connector_of(made, caches))
                self.workers.append(made.get_worker(caches))
                self.caches.append(tensors)
        finally:
            _worker._engine_of = original
        self.manager = spec(0).get_manager()
        self.step()

    def step(self):
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def lookup(self, keys):
        self.manager.on_new_request(self.context)
        return [self.manager.lookup(key, self.context) for key in keys]

    def hits(self, keys):
        return [found is LookupResult.HIT for found in self.lookup(keys)]

    def fill(self, pages, seed):
        for rank, tensors in enumerate(self.caches):
            for layer, tensor in enumerate(tensors):
                for i, page in enumerate(pages):
                    tensor[page] = tensor_of(np.random.default_rng([seed + i, layer, rank]).integers(-128, 128, PAGE, dtype=np.int8))

    def content(self, pages):
        return [[bytes_of(tensor[page]) for tensor in tensors] for tensors in self.caches for page in pages]

    def spec_of(self, pages, group_sizes=None, first=None):
        sizes = group_sizes or [len(pages)] + [0] * (len(self.workers[0]._groups) - 1)
        return GPULoadStoreSpec(list(pages), group_sizes=sizes, block_indices=first or [0] * len(sizes))

    def begin_store(self, keys, pages, **blocks):
        """Returns the job, or ``None`` if nothing is to be stored."""
        output = self.manager.prepare_store(keys, self.context)
        if output is None or not output.keys_to_store:
            return None
        assert output.keys_to_store == list(keys)
        self.job += 1
        for worker in self.workers:
            # A message between processes.
            assert worker.submit_store(self.job, self.spec_of(pages, **blocks), pickle.loads(pickle.dumps(output.store_spec)))
        return self.job

    def end(self, job, within=60.0):
        """Waits until all workers have reported a job."""
        missing, end = set(range(len(self.workers))), time.monotonic() + within
        while missing:
            assert time.monotonic() < end, "a job does not end"
            for rank in list(missing):
                results = self.workers[rank].get_finished()
                assert all(result.success for result in results)
                if any(result.job_id == job for result in results):
                    missing.discard(rank)
            time.sleep(0.001)

    def store(self, keys, pages, **blocks):
        job = self.begin_store(keys, pages, **blocks)
        assert job is not None
        self.step()
        self.end(job)
        self.manager.complete_store(set(keys), self.context)

    def load(self, keys, pages, **blocks):
        """Loads chunks. Returns the pages that no rank has loaded."""
        source = pickle.loads(pickle.dumps(self.manager.prepare_load(keys, self.context)))
        self.job += 1
        for worker in self.workers:
            worker.report_failures()
            assert worker.submit_load(self.job, source, self.spec_of(pages, **blocks))
        self.end(self.job)
        self.manager.complete_load(set(keys), self.context)
        return set().union(*(worker.take_failed_blocks() for worker in self.workers))

    def events(self):
        """Returns what other programs are told since the last call. What is gone is released beside."""
        told, gone, released = [], set(), set()
        for event in self.manager.take_events():
            if event.metadata_only:
                assert event.removed and event.medium is Medium.CPU
                released.update(event.keys)
            else:
                assert event.medium is Medium.STORAGE
                told.append((event.removed, event.keys))
                gone.update(event.keys if event.removed else ())
        self.released = released
        assert gone <= released
        return told

    def close(self):
        for worker in self.workers:
            worker.shutdown()
            worker.shutdown()
        self.manager.shutdown()
        self.workers, self.connectors = [], []


def keys_of(count, seed=0, group=0):
    return [make_offload_key(random.Random(f"{seed}/{i}").randbytes(32), group) for i in range(count)]


def blocks_of_slab(engine, path, nbytes):
    volume = warpbell.Volume.open(engine, f"soft:{path}", read_only=True)
    first = next(a["offset"] for a in volume.arrays() if a["name"] == "vllm:slab")
    return f"{first // 512}-{(first + nbytes) // 512 - 1}"
