// Partition of a host call's elements over the blocks of a grid.
#pragma once

#include <warpbell/warp.cuh>

// Launch bounds: the host launches blocks of up to 512 threads on a GPU (host/shmem/calls/mod.rs).
#define WB_CALL_KERNEL WB_KERNEL void __launch_bounds__(512)

namespace warpbell {
namespace host_calls {

// This block's part of n elements: whole lines of a GPU's L2. Blocks beyond the end have no elements.
template <class T> struct part {
  size_t first, n;

  WB_FN explicit part(size_t all) {
    constexpr size_t line = 128 / sizeof(T);
    const size_t each = ((all + gridDim.x - 1) / gridDim.x + line - 1) / line * line;
    const size_t from = blockIdx.x * each;
    first = from < all ? from : all;
    n = all - first < each ? all - first : each;
  }
};

}  // namespace host_calls
}  // namespace warpbell
