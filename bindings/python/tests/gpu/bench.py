"""Measures the package on a GPU, and checks what it measures. The last line counts the checks.

    bench.py [--rows 1000000] [--row-bytes 512] [--batch 100000] [--device soft:mem] [--calls 10000] [--nodes 300000] [PART...]

| part | measures | checks |
|---|---|---|
| gather | `table[indices]` beside `warpbell bench gather`: batches, device and rows alike | at most 5 % slower |
| call | the time of a call for one row | |
| leaks | memory of the GPU and of the process over many calls | that it does not grow |
| memory | | a batch that is too large for the GPU raises `OutOfMemoryError`; the engine works afterwards |
| training | epochs per second of `examples/python/graphsage.py` | the losses are the same with features on storage |

Needs torch for all but `call` and `gather`; training needs PyTorch Geometric. A part without what it needs is skipped, with the reason.
Also runs on CPU threads (`WARPBELL_TEST_ENGINE=cpu`), with fewer rows.
"""

import argparse
import gc
import importlib.util
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import warpbell

EXAMPLE = pathlib.Path(__file__).resolve().parents[4] / "examples" / "python" / "graphsage.py"
PROGRAM = "import sys; from warpbell._program import main; sys.argv[0] = 'warpbell'; main()"
#: Batches of different indices, in turn.
BATCHES = 8
#: Share of the program's rate that Python has to reach.
SHARE = 0.95
#: Growth over all calls that is no leak, in bytes: of pools, and of the interpreter.
GPU_GROWTH, HOST_GROWTH = 16 << 20, 48 << 20

outcomes = {"passed": 0, "failed": 0, "skipped": 0}


def check(name, good, facts):
    outcomes["passed" if good else "failed"] += 1
    print(f"{'ok' if good else 'FAILED':8} {name}: {facts}", flush=True)


def skipped(name, reason):
    outcomes["skipped"] += 1
    print(f"skipped  {name}: {reason}", flush=True)


def torch_or_skip(name):
    if importlib.util.find_spec("torch") is None:
        return skipped(name, "needs torch")
    import torch

    return torch


def rate(calls, seconds):
    """Calls the functions in turn. Returns the median rate in calls per second, after a warm-up."""
    for call in calls:
        call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 * len(calls) or time.perf_counter() < end:
        call = calls[len(times) % len(calls)]
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return 1 / statistics.median(times)


def made(given, engine):
    volume = warpbell.Volume.create(engine, given.device, given.rows * given.row_bytes + (64 << 20))
    return warpbell.Table.create(volume, "bench", given.rows, given.row_bytes // 4, replace=True)


def program(given, engine):
    """Returns the rows per second of ``warpbell bench gather``."""
    words = ["bench", "gather", "--rows", given.rows, "--row-size", given.row_bytes, "--batch", given.batch, "--device", given.device]
    words += ["--runs", 3, "--runtime", "2s", "--engine", engine.kind, "--json", "-"]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"warpbell bench gather failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)["results"][0]["rows_per_s"]["median"]


def gather(given, engine):
    before = program(given, engine)
    table = made(given, engine)
    generator = np.random.default_rng(1)
    batches = [generator.integers(0, given.rows, given.batch).astype(np.int32) for _ in range(BATCHES)]
    ways = {
        "table[indices] of the host": [lambda b=b: table[b] for b in batches],
        "prefetch(indices of the host), take": [lambda b=b: table.prefetch(b).take() for b in batches],
    }
    if importlib.util.find_spec("torch") is not None:
        import torch

        near = [torch.from_numpy(b).to(table.device) for b in batches]
        out = torch.empty(given.batch, given.row_bytes // 4, device=table.device)
        ways["table[indices] of torch"] = [lambda b=b: table[b] for b in near]
        ways["gather(indices, out) of torch"] = [lambda b=b: table.gather(b, out) for b in near]
    rates = {name: rate(calls, 3.0) * given.batch for name, calls in ways.items()}
    del table, ways
    gc.collect()
    # Before and behind: clocks of a GPU change.
    after = program(given, engine)
    reference = (before + after) / 2
    print(f"{'warpbell bench gather':38} {reference / 1e3:11,.1f} k rows/s ({before / 1e3:,.1f} before, {after / 1e3:,.1f} after)")
    for name, found in rates.items():
        print(f"{name:38} {found / 1e3:11,.1f} k rows/s  {found / reference:7.1%}")
    name = next((n for n in rates if n == "table[indices] of torch"), "table[indices] of the host")
    share = rates[name] / reference
    check("gather", share >= SHARE, f"{name} has {share:.1%} of the program's rate; {SHARE:.0%} are asked for")


def call(given, engine):
    table = made(given, engine)
    print(f"one row, index of the host: {1e6 / rate([lambda: table[7]], 1.0):.1f} us a call")
    if importlib.util.find_spec("torch") is not None:
        import torch

        index, out = torch.tensor([7], device=table.device), torch.empty(1, given.row_bytes // 4, device=table.device)
        print(f"one row, index and output of torch: {1e6 / rate([lambda: table.gather(index, out)], 1.0):.1f} us a call")


def used(torch, engine):
    """Returns the used memory of the GPU, and of the process."""
    gc.collect()
    with open("/proc/self/statm") as file:
        host = int(file.read().split()[1]) * resource.getpagesize()
    if engine.kind != "gpu":
        return 0, host
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free, host


def leaks(given, engine):
    torch = torch_or_skip("leaks")
    if torch is None:
        return
    table = made(given, engine)
    host = np.arange(1000)
    near, out = torch.from_numpy(host).to(table.device), torch.empty(1000, given.row_bytes // 4, device=table.device)
    calls = (
        lambda: table[host],
        lambda: torch.from_dlpack(table[near]),
        lambda: table.gather(near, out),
        lambda: table.prefetch(host).take(),
        lambda: table.scatter(near, out),
        lambda: table.device_view(),
    )
    for number in range(200 * len(calls)):
        calls[number % len(calls)]()
    before = used(torch, engine)
    for number in range(given.calls):
        calls[number % len(calls)]()
    gpu, host = (b - a for a, b in zip(before, used(torch, engine)))
    facts = f"{given.calls} calls, {gpu / 2**20:+.1f} MiB of the GPU, {host / 2**20:+.1f} MiB of the process"
    check("leaks", gpu <= GPU_GROWTH and host <= HOST_GROWTH, facts)


def memory(given, engine):
    if engine.kind != "gpu":
        return skipped("memory", "needs a GPU")
    torch = torch_or_skip("memory")
    if torch is None:
        return
    volume = warpbell.Volume.create(engine, "soft:mem", 16 << 20)
    large = warpbell.Table.create(volume, "large", 10, 65536, "uint8")
    values = np.arange(1000 * 32, dtype=np.float32).reshape(1000, 32)
    small = warpbell.Table.from_numpy(volume, "small", values)
    large[[0, 1]]
    before = used(torch, engine)[0]
    for _ in range(3):
        try:
            large[np.zeros(1 << 22, np.uint32)]  # 256 GiB
        except warpbell.OutOfMemoryError as error:
            text = str(error)
        else:
            return check("memory", False, "a batch of 256 GiB raised nothing")
    same = np.array_equal(small[[1, 999]].numpy(), values[[1, 999]])
    grown = used(torch, engine)[0] - before
    check("memory", same and grown <= GPU_GROWTH, f"{text!r}; rows afterwards {'right' if same else 'WRONG'}, {grown / 2**20:+.1f} MiB")


def training(given, engine):
    for name in ("torch", "torch_geometric"):
        if importlib.util.find_spec(name) is None:
            return skipped("training", f"needs {name}")
    if not EXAMPLE.exists():
        return skipped("training", f"needs {EXAMPLE}")
    gpu = engine.kind == "gpu"
    words = ["--nodes", given.nodes if gpu else 3000, "--dims", 256 if gpu else 64, "--batch", 4096 if gpu else 512]
    words += ["--hidden", 256 if gpu else 64, "--epochs", 4, "--cache-bytes", 64 << 20 if gpu else 1 << 20, "--engine", engine.kind]
    done = subprocess.run([sys.executable, str(EXAMPLE), *map(str, words)], capture_output=True, text=True, timeout=540)
    print(done.stdout, end="")
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or [f"exit status {done.returncode}"]
    check("training", done.returncode == 0, lines[-1])


PARTS = {part.__name__: part for part in (gather, call, leaks, memory, training)}


def main():
    cpu = os.environ.get("WARPBELL_TEST_ENGINE") == "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000 if cpu else 1_000_000)
    parser.add_argument("--row-bytes", type=int, default=512)
    parser.add_argument("--batch", type=int, default=200 if cpu else 100_000)
    parser.add_argument("--device", default="soft:mem")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (all)")
    given = parser.parse_args()
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    engine = warpbell.Engine("cpu" if cpu else "gpu")
    print("engine:", engine)
    for name in given.parts or PARTS:
        begun = time.perf_counter()
        try:
            PARTS[name](given, engine)
        except Exception as error:  # noqa: BLE001: the next part runs whatever this one has met
            check(name, False, f"{type(error).__name__}: {error}")
        gc.collect()
        print(f"         ({name}: {time.perf_counter() - begun:.0f} s)", flush=True)
    print(f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped")
    sys.exit(1 if outcomes["failed"] else 0)


main()
