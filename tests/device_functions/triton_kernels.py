"""Triton kernels of gpu.py: Triton reads the source of kernels from a file."""

import triton
import triton.language as tl
from triton.language import core

U32, U64 = core.dtype("uint32"), core.dtype("uint64")


@core.extern
def array_load(view, index, wanted, _semantic=None):
    symbols = {(U64, U64, U32): ("wbd_array_load_u32_warp", U32)}
    return core.extern_elementwise("warpbell", "", [view, index, wanted], symbols, is_pure=False, _semantic=_semantic)


@core.extern
def array_add(view, index, value, wanted, _semantic=None):
    symbols = {(U64, U64, U32, U32): ("wbd_array_atomic_add_u32_warp", U32)}
    return core.extern_elementwise("warpbell", "", [view, index, value, wanted], symbols, is_pure=False, _semantic=_semantic)


@triton.jit
def load(view, out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wanted = i < count
    value = array_load(tl.full((BLOCK,), view, tl.uint64), i.to(tl.uint64), wanted.to(tl.uint32))
    tl.store(out + i, value.to(tl.int32, bitcast=True), mask=wanted)


@triton.jit
def draw(view, out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wanted = i < count
    view = tl.full((BLOCK,), view, tl.uint64)
    value = array_add(view, tl.full((BLOCK,), 0, tl.uint64), tl.full((BLOCK,), 1, tl.uint32), wanted.to(tl.uint32))
    tl.store(out + i, value.to(tl.int32, bitcast=True), mask=wanted)
