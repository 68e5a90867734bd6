"""Measures gathers from Python beside ``warpbell bench gather``: the same rows, batches and device.

    bench.py [ROWS [ROW_BYTES [BATCH [DEVICE]]]]    1,000,000 rows of 512 bytes, batches of 100,000, soft:mem
"""

import statistics
import subprocess
import sys
import time

import numpy as np
import warpbell

rows, row_bytes, batch, device = (*sys.argv[1:], *["1000000", "512", "100000", "soft:mem"][len(sys.argv) - 1 :])
rows, row_bytes, batch = int(rows), int(row_bytes), int(batch)


def rate(call, seconds=3.0):
    """Returns the median of the calls' rates in calls per second, after a warm-up."""
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return 1 / statistics.median(times)


engine = warpbell.Engine()
print("engine:", engine)
volume = warpbell.Volume.create(engine, device, rows * row_bytes + (64 << 20))
table = warpbell.Table.create(volume, "bench", rows, row_bytes // 4)
indices = np.random.default_rng(1).integers(0, rows, batch).astype(np.uint32)
out = np.empty((batch, row_bytes // 4), np.float32)
calls = {"table[idx] of the host": lambda: table[indices], "prefetch, take": lambda: table.prefetch(indices).take()}
try:
    import torch

    on_engine = torch.from_numpy(indices.astype(np.int64)).to(table.device)
    target = torch.empty(batch, row_bytes // 4, device=table.device)
    calls["table[idx] of torch"] = lambda: table[on_engine]
    calls["gather(idx, out) of torch"] = lambda: table.gather(on_engine, target)
except ImportError:
    pass
for name, call in calls.items():
    print(f"{name:28} {rate(call) * batch / 1e6:10.2f} M rows/s")
print(f"{'one row':28} {1e6 / rate(lambda: table[7], 1.0):10.1f} us a call")
words = ["bench", "gather", "--rows", rows, "--row-size", row_bytes, "--batch", batch, "--device", device, "--runs", 3]
words += ["--runtime", "3s", "--engine", engine.kind]
program = "import sys; from warpbell._program import main; sys.argv[0] = 'warpbell'; main()"
del volume, table
done = subprocess.run([sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True)
print(done.stdout or done.stderr)
