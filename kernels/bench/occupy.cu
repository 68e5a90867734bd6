// Occupies multiprocessors while another kernel is measured, so that it has a chosen number of them, and computes there: what other
// kernels can do beside the measured one. Launch shape: WB_OCCUPY_BLOCKS blocks for each multiprocessor, of so many threads that a
// multiprocessor holds no more, and nothing else on the GPU.
#include <warpbell/clock.cuh>
#include <warpbell/kernel.h>
#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

#include "compute.cuh"
#include "params.h"

namespace occupy {

using namespace warpbell;

// Rounds between two looks at the stop flag, which is across the bus: some milliseconds.
constexpr uint64_t rounds = WB_GPU ? 1u << 16 : 1u << 10;

// Returns the number of this block's multiprocessor. On CPU threads, blocks take places side by side.
WB_FN uint32_t multiprocessor() {
#if WB_GPU
  uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
#else
  return blockIdx.x / WB_OCCUPY_BLOCKS;
#endif
}

// Returns true if the time is over or the host has told the kernel to end.
WB_FN bool over(const wb_occupy& p, uint64_t start) {
  return now_ns() - start >= p.limit_ns || order::load<order::relaxed, order::system>(p.stop) != 0;
}

// Returns true if this block stays: its multiprocessor is not among those that are left to others. Decides when all blocks have come,
// since a block that left earlier would make room for one of them. One thread of each block calls this.
WB_FN bool stays(const wb_occupy& p, uint64_t start) {
  const uint32_t id = multiprocessor();
  if (id < WB_OCCUPY_PROCESSORS && order::fetch_add<order::relaxed>(p.blocks_of + id, 1u) == 0) {
    order::store<order::relaxed>(p.rank_of + id, order::fetch_add<order::relaxed>(p.counts, 1u));
  }
  order::fetch_add<order::acq_rel>(p.counts + 1, 1u);
  while (order::load<order::acquire>(p.counts + 1) != gridDim.x) {
    if (over(p, start)) return false;
    order::relax(100);
  }
  return id < WB_OCCUPY_PROCESSORS && order::load<order::relaxed>(p.blocks_of + id) == WB_OCCUPY_BLOCKS &&
         order::load<order::relaxed>(p.rank_of + id) >= p.left;
}

}  // namespace occupy

WB_KERNEL void __launch_bounds__(1024, WB_OCCUPY_BLOCKS) wb_occupy_processors(WB_PARAM wb_occupy p, float* sum) {
  using namespace warpbell;
  const bool first = threadIdx.x == 0;
  uint64_t start = now_ns();
  bool leaves = false;
  if (first) leaves = !occupy::stays(p, start);
  if (__syncthreads_or(leaves)) return;
  const uint32_t others = gridDim.x - 1 - WB_OCCUPY_BLOCKS * p.left;
  if (first && order::fetch_add<order::acq_rel>(p.counts + 2, 1u) == others) order::store<order::release, order::system>(p.ready, 1u);
  const uint64_t began = now_ns();
  uint64_t done = 0;
  for (bool ends = false; !ends;) {
    const float s = bench::compute(occupy::rounds);
    if (s < 0.0f) *sum = s;
    ++done;
    ends = __syncthreads_or(first && occupy::over(p, start)) != 0;
  }
  // Rounds in a second, in thousandths: slower blocks end later.
  if (first) order::add<order::relaxed>(p.rate, done * uint64_t{1000000000000} / (now_ns() - began + 1));
}
WB_EXPORT(wb_occupy_processors)
