#!/usr/bin/env python3
"""Rates of the ways by which programs bring rows from host memory to a GPU today, for a comparison with `warpbell bench gather`.

Needs PyTorch with CUDA, and Triton. Every row of a batch is compared with what its number says.

    python3 benches/gather.py --row-size 512 --table 4G --batch 1048576 [--zipf 0.99]
"""

import argparse
import time

import torch
import triton
import triton.language as tl


@triton.jit
def copy_rows(table, indices, out, words, BLOCK: tl.constexpr):
    """One program for each row: reads it over the link, word by word of 4 bytes."""
    row = tl.program_id(0).to(tl.int64)
    index = tl.load(indices + row)
    for first in range(0, words, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < words
        tl.store(out + row * words + at, tl.load(table + index * words + at, mask=inside), mask=inside)


def size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1].upper() in units else int(text)


def batches(options, rows):
    """Indices of the batches: uniform, or by Zipf's law with popular rows anywhere in the table."""
    generator = torch.Generator().manual_seed(1)
    if options.zipf is None:
        return [torch.randint(0, rows, (options.batch,), generator=generator) for _ in range(options.batches)]
    weights = torch.arange(1, rows + 1, dtype=torch.float64).pow(-options.zipf).cumsum(0)
    where = torch.randperm(rows, generator=generator)
    shares = [torch.rand(options.batch, generator=generator, dtype=torch.float64) for _ in range(options.batches)]
    return [where[torch.searchsorted(weights, share * weights[-1]).clamp_(max=rows - 1)] for share in shares]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row-size", type=size, default=512, help="bytes of a row, a multiple of 4")
    parser.add_argument("--table", type=size, default=1 << 30, help="bytes of the table in host memory")
    parser.add_argument("--batch", type=int, default=1 << 20, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=5, help="batches of a measurement; the median counts")
    parser.add_argument("--zipf", type=float, help="exponent of Zipf's law [default: uniform]")
    options = parser.parse_args()
    words = options.row_size // 4
    rows = options.table // options.row_size
    table = torch.empty((rows, words), dtype=torch.int32, pin_memory=True)
    # Each word has the lower bits of its position.
    for first in range(0, rows, 1 << 16):
        last = min(first + (1 << 16), rows)
        table[first:last] = torch.arange(first * words, last * words, dtype=torch.int64).to(torch.int32).view(-1, words)
    staging = torch.empty((options.batch, words), dtype=torch.int32, pin_memory=True)
    out = torch.empty((options.batch, words), dtype=torch.int32, device="cuda")
    column = torch.arange(words, device="cuda")

    def indexed(host, _):
        out.copy_(table[host])

    def selected(host, _):
        torch.index_select(table, 0, host, out=staging)
        out.copy_(staging, non_blocking=True)

    def zero_copy(_, device):
        block = min(1024, triton.next_power_of_2(words))
        copy_rows[(options.batch,)](table, device, out, words, BLOCK=block, num_warps=4 if block > 128 else 1)

    print(f"# {torch.cuda.get_device_name()}  torch {torch.__version__}  triton {triton.__version__}  {torch.get_num_threads()} threads")
    law = "uniform" if options.zipf is None else f"zipf:{options.zipf}"
    print(f"# {rows} rows of {options.row_size} bytes  batch {options.batch}  indices {law}")
    lists = [(host, host.cuda()) for host in batches(options, rows)]
    for name, gather in [("index, then copy", indexed), ("index_select to pinned memory, then copy", selected),
                         ("kernel that reads host memory", zero_copy)]:
        gather(*lists[0])
        took = []
        for host, device in lists:
            out.zero_()
            torch.cuda.synchronize()
            started = time.perf_counter()
            gather(host, device)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - started)
            for first in range(0, options.batch, 1 << 16):
                piece = device[first:first + (1 << 16)]
                wanted = (piece[:, None] * words + column).to(torch.int32)
                assert torch.equal(out[first:first + (1 << 16)], wanted), f"{name}: a row is not that of its index"
        median = sorted(took)[len(took) // 2]
        rate = options.batch / median
        print(f"  {name}: {rate / 1e6:.2f} M rows/s   {rate * options.row_size / 1e9:.2f} GB/s   batch {median * 1e3:.2f} ms")
    print("  verified: every byte of every row")


main()
