#!/usr/bin/env python3
"""A world of two GPUs in a process that also belongs to others: NCCL, a persistent kernel and PyTorch's allocator.

    guest.py LIBRARY [ROUNDS]      needs two GPUs, PyTorch with NCCL, and CuPy

Two PEs of one process, one on each GPU, exchange numbers by puts and meet at barriers, while NCCL sums tensors on the same GPUs
between the rounds. First a kernel of the program occupies a processor of each GPU all the time. Then threads allocate tensors and
give their memory back to the driver. Every byte is checked.
"""

import ctypes
import sys
import threading
import time

import cupy
import numpy
import torch

u32, u64, size, ptr = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
COUNT = 1 << 16  # numbers in a message
SPIN = r"""
extern "C" __global__ void spin(volatile unsigned* stop, unsigned long long most_ns) {
  unsigned long long first, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(first));
  do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (!*stop && now - first < most_ns);
}
"""


class EngineOptions(ctypes.Structure):
    _fields_ = [
        ("size", size), ("kind", u32), ("gpu", u32), ("threads", u32), ("without_shipped", u32), ("images", ptr), ("image_count", size)
    ]


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.wb_last_error.restype = ctypes.c_char_p

    def __getattr__(self, name):
        function = getattr(self.c, "wb_" + name)

        def call(*arguments):
            if function(*arguments) != 0:
                raise RuntimeError(f"wb_{name}: {self.c.wb_last_error().decode()}")

        return call


class Pe:
    """One PE: its engine, its world, and memory for a message from the other."""

    def __init__(self, wb, world, pe):
        self.wb, self.world, self.pe, self.memory = wb, world, pe, ptr()

    def allocate(self):
        self.wb.symmetric_allocate(self.world, size(COUNT * 8), size(0), ctypes.byref(self.memory))

    def round(self, number):
        message = numpy.arange(COUNT, dtype=numpy.uint64) * (number + 1) + self.pe
        other = 1 - self.pe
        self.wb.symmetric_put(self.memory, size(0), message.ctypes.data_as(ptr), size(message.nbytes), u32(other))
        self.wb.world_barrier_all(self.world, None)
        received = numpy.empty(COUNT, dtype=numpy.uint64)
        self.wb.symmetric_read(self.memory, size(0), received.ctypes.data_as(ptr), size(received.nbytes))
        expected = numpy.arange(COUNT, dtype=numpy.uint64) * (number + 1) + other
        if not (received == expected).all():
            raise RuntimeError(f"round {number}: PE {self.pe} has received wrong numbers")
        self.wb.world_barrier_all(self.world, None)


def together(calls):
    """Runs calls on threads of their own; raises the first error."""
    errors = []

    def caught(call):
        try:
            call()
        except Exception as e:  # all are raised again
            errors.append(e)

    threads = [threading.Thread(target=caught, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def rounds(pes, first, count, tensors, streams):
    for number in range(first, first + count):
        for tensor, device in zip(tensors, (0, 1)):
            with torch.cuda.stream(streams[device]):
                tensor.fill_(number + device)
        torch.cuda.nccl.all_reduce(tensors, streams=streams)
        # NCCL's kernels may still run.
        together([lambda pe=pe: pe.round(number) for pe in pes])
        for device, tensor in enumerate(tensors):
            streams[device].synchronize()
            if not bool((tensor == 2 * number + 1).all()):
                raise RuntimeError(f"round {number}: NCCL's sum is wrong on GPU {device}")


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    wb = Library(sys.argv[1])
    engines = (ptr * 2)()
    for gpu in (0, 1):
        options = EngineOptions(ctypes.sizeof(EngineOptions), 2, gpu, 0, 0, None, 0)
        handle = ptr()
        wb.engine_open(ctypes.byref(options), ctypes.byref(handle))
        engines[gpu] = handle.value
    worlds = (ptr * 2)()
    wb.world_create_local(engines, size(2), None, worlds)
    pes = [Pe(wb, ptr(worlds[pe]), pe) for pe in (0, 1)]
    together([pe.allocate for pe in pes])
    tensors = [torch.zeros(1 << 20, device=f"cuda:{gpu}") for gpu in (0, 1)]
    streams = [torch.cuda.Stream(device=gpu) for gpu in (0, 1)]
    rounds(pes, 0, 5, tensors, streams)  # modules are loaded, communicators made

    spin = cupy.RawKernel(SPIN, "spin")
    flag = cupy.cuda.alloc_pinned_memory(4)
    word = numpy.frombuffer(flag, dtype=numpy.uint32, count=1)
    word[0] = 0
    began = time.monotonic()
    own = []
    for gpu in (0, 1):
        with cupy.cuda.Device(gpu):
            own.append(cupy.cuda.Stream(non_blocking=True))
            spin((1,), (32,), (u64(flag.ptr).value, numpy.uint64(300_000_000_000)), stream=own[gpu])
    rounds(pes, 5, count // 2, tensors, streams)
    busy = [not stream.done for stream in own]
    word[0] = 1
    for gpu in (0, 1):
        with cupy.cuda.Device(gpu):
            own[gpu].synchronize()
    if not all(busy):
        raise RuntimeError("the persistent kernels ended too early")
    print(f"{count // 2} rounds beside a persistent kernel on each GPU: {time.monotonic() - began:.1f} s", flush=True)

    began, over, allocations = time.monotonic(), threading.Event(), [0, 0]

    def allocate(gpu):
        with torch.cuda.device(gpu):
            while not over.is_set():
                kept = [torch.full((n,), 3, dtype=torch.uint8, device="cuda") for n in (1 << 10, 3 << 20, 50 << 20)]
                if any(int(k[-1]) != 3 for k in kept):
                    raise RuntimeError(f"a tensor on GPU {gpu} has changed")
                del kept
                torch.cuda.empty_cache()
                allocations[gpu] += 3

    def work():
        try:
            rounds(pes, 5 + count // 2, count - count // 2, tensors, streams)
        finally:
            over.set()

    together([work, lambda: allocate(0), lambda: allocate(1)])
    print(f"{count - count // 2} rounds beside {sum(allocations)} allocations that were given back: {time.monotonic() - began:.1f} s", flush=True)
    together([lambda pe=pe: wb.symmetric_free(pe.memory) for pe in pes])
    for world in worlds:
        wb.c.wb_world_release(ptr(world))
    for engine in engines:
        wb.c.wb_engine_release(ptr(engine))
    print("correct")


if __name__ == "__main__":
    main()
