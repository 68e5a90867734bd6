// The smallest kernel: it shows that launching, arguments and memory work.
#include <warpbell/kernel.h>
#include <warpbell/warp.cuh>

// out[i] = start + i * step
WB_KERNEL void wb_iota(uint64_t* out, WB_PARAM uint64_t count, WB_PARAM uint64_t start, WB_PARAM uint64_t step) {
  for (uint64_t i = warpbell::warp::thread_index(); i < count; i += warpbell::warp::thread_total()) out[i] = start + i * step;
}
WB_EXPORT(wb_iota)
