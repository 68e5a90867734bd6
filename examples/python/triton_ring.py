#!/usr/bin/env python3
"""Adds up vectors of several PEs by a kernel of Triton: it puts to the next PE in a ring, and waits for what the one before has put.

Needs a GPU, torch, Triton, and a wheel with device functions for the GPU (docs/device-functions.md).

    warpbell run -n 2 -- examples/python/triton_ring.py     two PEs, each with a GPU of its own, or both on one
    examples/python/triton_ring.py                          one PE, which has nobody to wait for
"""

import argparse
import os
import sys

import torch
import triton
import triton.language as tl
import warpbell
from warpbell.triton import CMP_GE, SIGNAL_ADD, function, libraries

ELEMENTS = 1024
#: Seconds that a PE waits for another one: its kernel may still be compiled.
DEADLINE = 60

my_pe, n_pes = function("wbd_my_pe"), function("wbd_n_pes")
put_signal, wait = function("wbd_putmem_signal_block"), function("wbd_signal_wait_until_block")


@triton.jit
def sum_over_ring(world, mine, slots, arrived, sums, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    steps = n_pes(world).to(tl.int32) - 1
    next_pe = (my_pe(world).to(tl.int32) + 1) % (steps + 1)
    total, sent = tl.load(mine + i), mine
    for step in range(steps):
        slot = slots + step * BLOCK
        # Every thread of the program makes the call. The signal is there after the elements.
        put_signal(world, slot, sent, 4 * BLOCK, arrived, 1, SIGNAL_ADD, next_pe)
        wait(world, arrived, CMP_GE, step + 1)
        # Adds what has come, and passes that on in the next step.
        total += tl.load(slot + i)
        sent = slot
    tl.store(sums + i, total)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="gpu", choices=["gpu"], help="kernels of Triton run on a GPU")
    parser.parse_args()
    gpu = int(os.environ.get("WARPBELL_LOCAL_RANK", 0)) % torch.cuda.device_count()
    torch.cuda.set_device(gpu)
    engine = warpbell.Engine(f"gpu:{gpu}", deadline=DEADLINE)
    with warpbell.World.from_env(engine) as world:
        # Symmetric memory, which torch shares: a slot for each step, and the word that counts what has arrived.
        slots, arrived = world.zeros((world.size, ELEMENTS)), world.zeros(1, "uint64")
        landing = torch.from_dlpack(slots)
        mine = torch.arange(ELEMENTS, device="cuda", dtype=torch.float32) * (world.rank + 1)
        sums = torch.empty_like(mine)
        view = world.device_view()
        # The run waits for the kernel, and raises the errors of its calls.
        with engine.external("sum_over_ring", torch.cuda.current_stream(), keep=[view, slots, arrived]):
            sum_over_ring[(1,)](view.address, mine, landing, arrived.address, sums, ELEMENTS, extern_libs=libraries())
        expected = torch.arange(ELEMENTS, device="cuda", dtype=torch.float32) * sum(range(1, world.size + 1))
        if not torch.equal(sums, expected):
            sys.exit(f"PE {world.rank}: the sums differ")
        print(f"PE {world.rank} of {world.size}: the sum of all vectors is correct")


if __name__ == "__main__":
    main()
