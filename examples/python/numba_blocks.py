#!/usr/bin/env python3
"""Doubles the numbers of a stored array by a kernel of Numba: each of its blocks reads blocks of the volume, and writes them elsewhere.

Needs a GPU, numba-cuda, and a wheel with device functions for the GPU (docs/device-functions.md).

    examples/python/numba_blocks.py                                  a software device in memory
    examples/python/numba_blocks.py --device nvme:0000:65:00.0       a drive that is empty or warpbell's own
"""

import argparse
import sys

import numpy as np
import warpbell
from numba import cuda
from warpbell.numba import function

COUNT = 1 << 20
#: Blocks of the kernel, and threads of each.
GRID, THREADS = 64, 128


def compiled():
    """Returns the kernel. A failure of a call ends the run, which raises it: no call needs a check of its own."""
    block_bytes, flush = function("wbd_volume_block_bytes"), function("wbd_volume_flush_block")
    read, write = function("wbd_volume_read_block"), function("wbd_volume_write_block")

    @cuda.jit
    def double(volume, source, target, count, buffer):
        first = cuda.blockIdx.x * count
        words = block_bytes(volume) // 4
        part = buffer[first * words : (first + count) * words]
        # All threads of the block make these calls.
        read(volume, source + first, count, part.ctypes.data)
        for i in range(cuda.threadIdx.x, part.size, cuda.blockDim.x):
            part[i] *= 2
        write(volume, target + first, count, part.ctypes.data)
        flush(volume)

    return double


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="gpu", choices=["gpu"], help="kernels of Numba run on a GPU")
    parser.add_argument("--device", default="soft:mem", help="device for the arrays (soft:mem)")
    given = parser.parse_args()
    engine = warpbell.Engine(given.engine)
    volume = warpbell.Volume.create(engine, given.device, 64 << 20)
    numbers = np.arange(COUNT, dtype=np.int32)
    for name in ("numbers", "doubled"):
        volume.store(name, numbers, replace=True)
    source, target = ({e["name"]: e["offset"] for e in volume.arrays()}[name] // volume.block_bytes for name in ("numbers", "doubled"))
    # Memory of the GPU in which reads land, and a view of the volume there.
    memory = cuda.device_array(COUNT, np.int32)
    buffer, view = volume.map(memory), volume.device_view()
    count = numbers.nbytes // volume.block_bytes // GRID
    kernel = compiled()
    # The run waits for the kernel, and raises the errors of its calls.
    with engine.external("double", keep=[view, buffer]) as run:
        kernel[GRID, THREADS, cuda.external_stream(run.stream.handle)](view.address, source, target, count, memory)
    if not np.array_equal(volume.load("doubled"), numbers * 2):
        sys.exit("the array is not what the kernel should have written")
    print(f"doubled {COUNT} numbers, {count} blocks of {volume.block_bytes} bytes at a time")


if __name__ == "__main__":
    main()
