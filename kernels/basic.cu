// Kernel wb_iota: fills memory with an arithmetic sequence. The smallest kernel, which tests launches, arguments and memory. Launch
// shape: any grid.
#include <warpbell/kernel.h>
#include <warpbell/warp.cuh>

// Writes out[i] = start + i * step for all i < count.
WB_KERNEL void wb_iota(uint64_t* out, WB_PARAM uint64_t count, WB_PARAM uint64_t start, WB_PARAM uint64_t step) {
  for (uint64_t i = warpbell::warp::thread_index(); i < count; i += warpbell::warp::thread_total()) out[i] = start + i * step;
}
WB_EXPORT(wb_iota)
