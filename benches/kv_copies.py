#!/usr/bin/env python3
"""Ways by which servers move KV caches between a GPU and host memory or files today, beside `warpbell bench kv` in the same run.

Needs PyTorch with CUDA. All data is compared after each measurement. Options that are not its own go to `bench kv`.

    python3 benches/kv_copies.py target/dist/warpbell --tokens 8192 --file /dev/shm/kv.dat \\
        --device soft:mem,threads=12,streaming=never --queues 24 --depth 16
"""

import argparse
import json
import os
import statistics
import subprocess
import threading
import time

import torch

#: Bytes of a token: 32 layers, 8 heads of 128 elements of 2 bytes, keys and values.
TOKEN = 128 << 10
#: Bytes of a read, and of each of the two buffers of a thread.
PIECE = 4 << 20


def pattern(nbytes):
    return (torch.arange(nbytes // 8, device="cuda") * 0x9E3779B1).view(torch.uint8)


def timed(runs, run):
    took = []
    for _ in range(runs + 1):
        torch.cuda.synchronize()
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        took.append(time.perf_counter() - started)
    return took[1:]  # the first one warms up


def row(name, nbytes, took, reference):
    rate = nbytes / statistics.median(took)
    share = f"{100 * rate / reference:5.1f} %" if reference else "      -"
    print(f"  {name:58} {rate / 1e9:6.2f} GB/s ({nbytes / max(took) / 1e9:.2f} to {nbytes / min(took) / 1e9:.2f})  {share}", flush=True)
    return rate


def read_file(path, to, threads):
    """Reads a file with two pinned buffers for each thread: one is filled while the other one is copied."""
    pieces = iter(range(0, to.numel(), PIECE))
    lock = threading.Lock()

    def work():
        fd = os.open(path, os.O_RDONLY)
        stream = torch.cuda.Stream()
        buffers = [(torch.empty(PIECE, dtype=torch.uint8, pin_memory=True), torch.cuda.Event()) for _ in range(2)]
        turn = 0
        while True:
            with lock:
                first = next(pieces, None)
            if first is None:
                break
            buffer, copied = buffers[turn % 2]
            turn += 1
            copied.synchronize()
            part = buffer[: min(PIECE, to.numel() - first)]
            assert os.preadv(fd, [part.numpy()], first) == len(part)
            with torch.cuda.stream(stream):
                to[first : first + len(part)].copy_(part, non_blocking=True)
                copied.record()
        stream.synchronize()
        os.close(fd)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("warpbell", help="program")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--file", required=True, help="file to write and read; it is deleted afterwards")
    parser.add_argument("--runs", type=int, default=5)
    options, others = parser.parse_known_args()
    nbytes = options.tokens * TOKEN
    print(f"# {torch.cuda.get_device_name()}  torch {torch.__version__}  {options.tokens} tokens, {nbytes >> 20} MiB  medians of {options.runs} runs (range)")
    wanted, on_gpu = pattern(nbytes), torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    reference = {}
    reference["store"] = row("copy to pinned memory", nbytes, timed(options.runs, lambda: pinned.copy_(wanted, non_blocking=True)), None)
    reference["load"] = row("copy from pinned memory", nbytes, timed(options.runs, lambda: on_gpu.copy_(pinned, non_blocking=True)), None)
    assert torch.equal(on_gpu, wanted), "the copy differs"
    pinned.numpy().tofile(options.file)
    del pinned
    best_of_files = 0
    for threads in (1, 8):
        on_gpu.zero_()
        took = timed(options.runs, lambda: read_file(options.file, on_gpu, threads))
        best_of_files = max(best_of_files, row(f"file reads and copies, two buffers, threads: {threads}", nbytes, took, reference["load"]))
        assert torch.equal(on_gpu, wanted), "a read differs"
    try:
        on_gpu.zero_()
        file = torch.cuda.gds.GdsFile(options.file, os.O_RDONLY)
        took = timed(options.runs, lambda: file.load_storage(on_gpu.untyped_storage()))
        row("cuFile", nbytes, took, reference["load"])
        assert torch.equal(on_gpu, wanted), "a read by cuFile differs"
    except (RuntimeError, AttributeError) as error:
        print(f"  cuFile: not here: {str(error).splitlines()[0]}")
    os.unlink(options.file)
    del on_gpu, wanted
    torch.cuda.empty_cache()

    command = [options.warpbell, "bench", "kv", "--engine", "gpu", "--tokens", str(options.tokens), "--runs", str(options.runs), "--json", "-"]
    said = subprocess.run(command + others, check=True, capture_output=True, text=True).stdout
    for result in json.loads(said[said.index("{") :])["results"]:
        direction, rates = result["direction"], result["bytes_per_s"]
        took = [result["bytes"] / rates[which] for which in ("min", "median", "max")]
        rate = row(f"warpbell bench kv, {direction}", result["bytes"], took, reference[direction])
        if direction == "load":
            first = result["first_layer_seconds"]["median"] / result["seconds"]["median"]
            print(f"    {rate / best_of_files:.2f} times the file reads; first layer after 1/{1 / first:.1f} of the load")
    print("  verified: every byte")


main()
