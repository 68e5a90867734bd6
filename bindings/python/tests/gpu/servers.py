"""Does on a GPU what LMCache and vLLM do with the plug-ins, with torch, and measures it. The last line counts the checks.

    servers.py [--device soft:mem] [--folder FOLDER] [--tokens 8192] [--layers 32] [--page-bytes 65536] [--runs 5] [PART...]

| part | does | checks |
|---|---|---|
| vllm | stores the pages of a request and loads them into other pages, with a scheduler and a worker | every byte; that stores follow the kernels which write the pages, and loads those which clear them, without a wait of the host |
| restart | opens the store again, in the same process | hits, and every byte |
| lmcache | moves chunks through a staging buffer on a stream of torch, behind and before kernels of torch | every byte, and each outcome |
| failures | reads blocks that the device does not read | which pages and chunks are told |

Devices are files of ``--folder`` but for ``--device``, which vllm and lmcache take; ``{rank}`` there becomes 0. Uses the interfaces of LMCache and vLLM if they
can be imported, and stand-ins otherwise. Also runs on CPU threads (``WARPBELL_TEST_ENGINE=cpu``), without torch and with fewer tokens.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
os.environ.setdefault("WARPBELL_TEST_ENGINE", "gpu")
import server_stand_ins  # noqa: E402
import test_lmcache  # noqa: E402
import vllm_server  # noqa: E402
from conftest import open_engine  # noqa: E402

ON_GPU = vllm_server.ON_GPU
TOKENS_OF_A_PAGE = 16
#: Bytes of a chunk of LMCache: 256 tokens of a model with 128 KiB for each.
CHUNK = 32 << 20

outcomes = {"passed": 0, "failed": 0}


def check(name, good, facts):
    outcomes["passed" if good else "failed"] += 1
    print(f"{'ok' if good else 'FAILED':8} {name}: {facts}", flush=True)


def say(name, nbytes, times):
    best, middle = min(times), statistics.median(times)
    print(f"{name:44} {nbytes / 2**20:8.0f} MiB  {middle * 1e3:9.2f} ms, {nbytes / middle / 1e9:7.2f} GB/s  (best {best * 1e3:.2f} ms)", flush=True)


class Pages:
    """The KV cache of a model: a tensor for each layer."""

    def __init__(self, given, blocks):
        self.given, self.blocks = given, blocks
        shape = (blocks, given.page_bytes)
        if ON_GPU:
            import torch

            self.tensors = [torch.zeros(shape, dtype=torch.int8, device="cuda:0") for _ in range(given.layers)]
        else:
            self.tensors = [np.zeros(shape, np.int8) for _ in range(given.layers)]

    def caches(self):
        stand = vllm_server
        refs = [[stand.CanonicalKVCacheRef(i, self.given.page_bytes) for i in range(len(self.tensors))]]
        return stand.CanonicalKVCaches([stand.CanonicalKVCacheTensor(tensor, self.given.page_bytes) for tensor in self.tensors], refs)

    def write(self, pages, seed):
        """Launches kernels that write these pages, slowly, and does not wait for them."""
        index = self._index(pages)
        for layer, tensor in enumerate(self.tensors):
            if ON_GPU:
                import torch

                torch.cuda._sleep(200_000)
                rows = torch.arange(self.given.page_bytes, device="cuda:0").add(seed * 31 + layer * 7)
                tensor[index] = (rows[None, :] * torch.arange(1, len(pages) + 1, device="cuda:0")[:, None]).to(torch.int8)
            else:
                rows = np.arange(self.given.page_bytes) + seed * 31 + layer * 7
                tensor[index] = (rows[None, :] * np.arange(1, len(pages) + 1)[:, None]).astype(np.int8)

    def clear(self, pages):
        """Launches kernels that clear these pages, and does not wait for them."""
        index = self._index(pages)
        for tensor in self.tensors:
            if ON_GPU:
                import torch

                torch.cuda._sleep(200_000)
            tensor[index] = 0

    def alike(self, pages, others):
        """Compares pages with others by kernels that are launched now."""
        one, two = self._index(pages), self._index(others)
        return all(bool((tensor[one] == tensor[two]).all()) for tensor in self.tensors)

    @staticmethod
    def _index(pages):
        if not ON_GPU:
            return np.asarray(pages)
        import torch

        return torch.as_tensor(np.asarray(pages), device="cuda:0")


class Server:
    """A scheduler and one worker in this process."""

    def __init__(self, given, pages, run, device=None):
        count = given.tokens // TOKENS_OF_A_PAGE
        extra = {"bytes_per_worker": 2 * count * given.layers * given.page_bytes, "index": str(given.folder / "index")}
        self.spec = vllm_server.WarpbellSpec(vllm_server.config_of(device or given.device, engine=run, **extra))
        self.worker = self.spec.get_worker(pages.caches())
        self.worker.report_failures()
        self.manager, self.context, self.job = self.spec.get_manager(), vllm_server.ReqContext("request"), 0
        self.manager.on_new_request(self.context)

    def _end(self, loads):
        end = time.monotonic() + 120
        while True:
            for result in self.worker.get_finished():
                assert result.success and result.job_id == self.job
                return
            if time.monotonic() > end:
                sys.exit(f"{'a load' if loads else 'a store'} does not end")

    def store(self, keys, pages):
        output = self.manager.prepare_store(keys, self.context)
        assert output is not None and output.keys_to_store == keys, "no room"
        self.job += 1
        self.worker.submit_store(self.job, vllm_server.GPULoadStoreSpec(pages, [len(pages)], [0]), output.store_spec)
        self._end(loads=False)
        self.manager.complete_store(keys, self.context)
        self.manager.on_schedule_end(vllm_server.ScheduleEndContext((), ()))

    def load(self, keys, pages):
        source = self.manager.prepare_load(keys, self.context)
        self.job += 1
        self.worker.submit_load(self.job, source, vllm_server.GPULoadStoreSpec(pages, [len(pages)], [0]))
        self._end(loads=True)
        self.manager.complete_load(keys, self.context)
        return self.worker.take_failed_blocks()

    def hits(self, keys):
        self.manager.on_new_request(self.context)
        return sum(self.manager.lookup(key, self.context) is vllm_server.LookupResult.HIT for key in keys)

    def close(self):
        self.worker.shutdown()
        self.manager.shutdown()


def vllm(given, engine):
    count = given.tokens // TOKENS_OF_A_PAGE
    pages = Pages(given, 2 * count)
    shuffled = np.random.default_rng(1).permutation(2 * count)
    source, target = shuffled[:count].tolist(), shuffled[count:].tolist()
    server = Server(given, pages, "measured")
    nbytes, stores, loads, good = count * given.layers * given.page_bytes, [], [], True
    for run in range(given.runs):
        keys = vllm_server.keys_of(count, seed=run)
        # Not measured: kernels that write the pages are in flight when the store is submitted, as after a step of the model.
        pages.write(source, run)
        server.store(keys, source)
        pages.clear(target)
        good = good and server.load(keys, target) == set() and pages.alike(source, target)
        again = vllm_server.keys_of(count, seed=run + 1000)
        synchronize()
        begun = time.perf_counter()
        server.store(again, source)
        stores.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        hits = server.hits(keys)
        failed = server.load(keys, target) if hits == count else {0}
        loads.append(time.perf_counter() - begun)
        good = good and not failed and pages.alike(source, target)
    say(f"vllm: store of {given.tokens} tokens, until durable", nbytes, stores)
    say(f"vllm: lookup and load of {given.tokens} tokens", nbytes, loads)
    check("vllm", good, f"{given.runs} runs of {count} pages of {given.layers} layers, behind kernels that were in flight")
    server.close()


def synchronize():
    if ON_GPU:
        import torch

        torch.cuda.synchronize()


def restart(given, engine):
    count = min(given.tokens, 1024) // TOKENS_OF_A_PAGE
    pages = Pages(given, 2 * count)
    device, keys = f"soft:{given.folder}/restart.img", vllm_server.keys_of(count)
    server = Server(given, pages, "one", device)
    pages.write(range(count), 3)
    server.store(keys, list(range(count)))
    server.close()
    begun = time.perf_counter()
    server = Server(given, pages, "two", device)
    hits, opened = server.hits(keys), time.perf_counter() - begun
    failed = server.load(keys, list(range(count, 2 * count)))
    good = hits == count and not failed and pages.alike(range(count), range(count, 2 * count))
    check("restart", good, f"{hits} of {count} chunks are found {opened:.2f} s later")
    server.close()


def lmcache(given, engine):
    size = 64 * CHUNK if ON_GPU else 4 * test_lmcache.MIB
    chunk = CHUNK if ON_GPU else test_lmcache.MIB
    test_lmcache.REGION = (16 if ON_GPU else 1) * test_lmcache.MIB
    server = test_lmcache.Server(engine, given.device.replace("{rank}", "0"), size=size, buffer=2 * chunk)
    writes, reads, good = [], [], True
    for run in range(given.runs):
        at = run % (size // chunk) * chunk
        data = test_lmcache.values(run, chunk)
        server.put(0, data)
        launched = server.transfer(False, at, 0, chunk)
        launched += server.transfer(True, at, chunk, chunk)
        # The stream orders a copy of torch behind the read.
        copied = server.get(chunk, chunk)
        if not ON_GPU:
            test_lmcache.complete(launched)
            copied = server.get(chunk, chunk)
        good = good and bool((copied == data).all())
        test_lmcache.complete(launched)
        for reading, times in ((False, writes), (True, reads)):
            synchronize()
            begun = time.perf_counter()
            test_lmcache.complete(server.transfer(reading, at, chunk if reading else 0, chunk))
            times.append(time.perf_counter() - begun)
    say("lmcache: write of a chunk", chunk, writes)
    say("lmcache: read of a chunk", chunk, reads)
    check("lmcache", good, f"{given.runs} chunks through regions of {test_lmcache.REGION >> 20} MiB")
    server.close()


def failures(given, engine):
    path, count = given.folder / "failures.img", 8
    pages, keys = Pages(given, 3 * count), vllm_server.keys_of(count)
    server = Server(given, pages, "one", f"soft:{path}")
    pages.write(range(count), 5)
    server.store(keys, list(range(count)))
    server.close()
    bad = vllm_server.blocks_of_slab(engine, path, given.page_bytes)
    server = Server(given, pages, "two", f"soft:{path},media-error=read:{bad}")
    target = list(range(count, 2 * count))
    failed = server.load(keys, target)
    good = [i for i in range(count) if count + i not in failed]
    same = pages.alike(good, [count + i for i in good])
    check("failures", len(failed) == 1 and same and server.hits(keys) == count - 1, f"page {sorted(failed)} of {count} was not loaded")
    server.close()


PARTS = {"vllm": vllm, "restart": restart, "lmcache": lmcache, "failures": failures}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="soft:mem,threads=12,streaming=never" if ON_GPU else "soft:mem")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=8192 if ON_GPU else 256)
    parser.add_argument("--layers", type=int, default=32 if ON_GPU else 3)
    parser.add_argument("--page-bytes", type=int, default=65536 if ON_GPU else 8192)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []])
    given = parser.parse_args()
    engine = open_engine()
    vllm_server._worker._engine_of = lambda tensor: engine
    real = [name for name, is_real in (("lmcache", server_stand_ins.lmcache_modules()), ("vllm", server_stand_ins.vllm_modules())) if is_real]
    print(f"{engine}; interfaces: {', '.join(real) or 'stand-ins'}")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        given.folder = pathlib.Path(folder)
        for name in given.part or PARTS:
            PARTS[name](given, engine)
    print(f"{outcomes['passed']} passed, {outcomes['failed']} failed")
    sys.exit(1 if outcomes["failed"] else 0)


if __name__ == "__main__":
    main()
