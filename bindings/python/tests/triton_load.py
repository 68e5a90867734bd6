"""The kernel of Triton for ``kernels_with.py``: Triton reads the source of kernels from a file."""

import triton
import triton.language as tl
from warpbell.triton import function

array_load = function("wbd_array_load_u32_warp")


@triton.jit
def load(view, indices, out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    index = tl.load(indices + i, mask=mask, other=0)
    value = array_load(view, index, mask)
    tl.store(out + i, value.to(tl.int32, bitcast=True), mask=mask)
