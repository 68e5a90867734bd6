// Warp operations: masks, votes, shuffles. A warp has 32 lanes on a GPU, and 1, 4 or 32 on the CPU engine (WB_WARP_WIDTH).
//
// A mask names the lanes that take part. Every lane in the mask must make the same call. `full()` is the caller's promise that the
// whole warp is converged. `active()` returns the lanes that happen to be converged. On the CPU engine that is the calling lane
// alone, so that code which relies on `active()` for correctness fails there.
#pragma once

#include <warpbell/platform.h>

#if !defined(WB_WARP_WIDTH)
#define WB_WARP_WIDTH 32
#endif

namespace warpbell {
namespace warp {

/// @brief A set of lanes of a warp: bit i is lane i.
using mask_t = uint32_t;
/// @brief Lanes of a warp.
constexpr uint32_t width = WB_WARP_WIDTH;
static_assert(width == 1 || width == 4 || width == 32, "a warp has 1, 4 or 32 lanes");
static_assert(!WB_GPU || width == 32, "a GPU warp has 32 lanes");

/// @brief Returns the mask of all lanes.
WB_FN mask_t full() { return width == 32 ? 0xffffffffu : (1u << (width & 31)) - 1u; }

#if WB_GPU
/// @brief Returns the number of this lane, from 0 to width - 1.
WB_FN uint32_t lane() {
  uint32_t l;
  asm("mov.u32 %0, %%laneid;" : "=r"(l));
  return l;
}
/// @brief Returns the mask of the lanes that are converged here, with the calling lane among them.
WB_FN mask_t active() { return __activemask(); }
/// @brief Waits for all lanes of the mask, and orders their memory accesses before and after. Collective over `m`.
WB_FN void sync(mask_t m) { __syncwarp(m); }
/// @brief Returns the mask of the lanes of `m` whose `p` is true. Collective over `m`.
WB_FN mask_t ballot(mask_t m, bool p) { return __ballot_sync(m, p); }
/// @brief Returns the value `v` of lane `from`, which must be in `m`. Collective over `m`. A `T` has at most 8 bytes.
template <class T> WB_FN T shuffle(mask_t m, T v, uint32_t from) { return __shfl_sync(m, v, from); }
/// @brief Returns the mask of the lanes of `m` whose `v` equals this lane's. Collective over `m`.
template <class T> WB_FN mask_t match(mask_t m, T v) { return __match_any_sync(m, v); }
/// @brief Returns the number of bits set.
WB_FN uint32_t popcount(uint32_t v) { return __popc(v); }
/// @brief Returns the lowest lane of a mask that is not empty.
WB_FN uint32_t first(mask_t m) { return __ffs(m) - 1; }
/// @brief Returns the highest lane of a mask that is not empty.
WB_FN uint32_t last(mask_t m) { return 31 - __clz(m); }
/// @brief Returns the number of this multiprocessor (on the CPU engine: of the block), to spread queues and counters.
WB_FN uint32_t processor() {
  uint32_t s;
  asm("mov.u32 %0, %%smid;" : "=r"(s));
  return s;
}
#else
WB_FN uint32_t lane() { return cpu::here().lane; }
WB_FN mask_t active() { return 1u << lane(); }
WB_FN void sync(mask_t m) { cpu::sync(m); }
WB_FN mask_t ballot(mask_t m, bool p) { return cpu::ballot(m, p); }
template <class T> WB_FN T shuffle(mask_t m, T v, uint32_t from) { return cpu::shuffle(m, v, from); }
template <class T> WB_FN mask_t match(mask_t m, T v) { return cpu::match(m, v); }
WB_FN uint32_t popcount(uint32_t v) { return static_cast<uint32_t>(__builtin_popcount(v)); }
WB_FN uint32_t first(mask_t m) { return static_cast<uint32_t>(__builtin_ctz(m)); }
WB_FN uint32_t last(mask_t m) { return 31u - static_cast<uint32_t>(__builtin_clz(m)); }
WB_FN uint32_t processor() { return cpu::here().block; }
#endif

/// @brief Returns true in all lanes if `p` is true in a lane of `m`. Collective over `m`.
WB_FN bool any(mask_t m, bool p) { return ballot(m, p) != 0; }
/// @brief Returns true in all lanes if `p` is true in every lane of `m`. Collective over `m`.
WB_FN bool all(mask_t m, bool p) { return ballot(m, p) == m; }
/// @brief Returns the number of lanes of the mask that are below `lane`.
WB_FN uint32_t rank_of(mask_t m, uint32_t lane) { return popcount(m & ((1u << lane) - 1u)); }
/// @brief Returns the number of lanes of the mask that are below this lane.
WB_FN uint32_t rank(mask_t m) { return popcount(m & ((1u << lane()) - 1u)); }
/// @brief Returns the number of lanes of the mask.
WB_FN uint32_t count(mask_t m) { return popcount(m); }
/// @brief Returns the lane that acts for the others: the lowest of a mask that is not empty.
WB_FN uint32_t leader(mask_t m) { return first(m); }
/// @brief Returns true in the leader of the mask.
WB_FN bool is_leader(mask_t m) { return lane() == first(m); }

/// @brief Returns the lane number of the mask's n-th member, counted from 0. `n` is less than count(m).
WB_FN uint32_t nth(mask_t m, uint32_t n) {
#if WB_GPU
  return __fns(m, 0, static_cast<int>(n) + 1);
#else
  for (; n; --n) m &= m - 1;
  return first(m);
#endif
}

/// @brief Returns the sum of `v` over the mask's lanes, in every lane. Collective over `m`.
template <class T> WB_FN T sum(mask_t m, T v) {
  if (m == full()) {
    for (uint32_t d = width / 2; d; d /= 2) v += shuffle(m, v, lane() ^ d);
    return v;
  }
  T s = 0;
  for (mask_t left = m; left; left &= left - 1) s += shuffle(m, v, first(left));
  return s;
}

/// @brief Returns the number of the mask's lanes that come before its first lane with false `p`. Collective over `m`.
WB_FN uint32_t prefix(mask_t m, bool p) {
  mask_t no = m & ~ballot(m, p);
  return no ? popcount(m & ((1u << first(no)) - 1u)) : popcount(m);
}

/// @brief Returns the number of warps in a block. Blocks are whole warps.
WB_FN uint32_t warps_per_block() { return (blockDim.x + width - 1) / width; }
/// @brief Returns this warp's number in the grid, from 0 to total() - 1.
WB_FN uint32_t index() { return blockIdx.x * warps_per_block() + threadIdx.x / width; }
/// @brief Returns the number of warps in the grid.
WB_FN uint32_t total() { return gridDim.x * warps_per_block(); }
/// @brief Returns this thread's number in the grid, from 0 to thread_total() - 1.
WB_FN uint64_t thread_index() { return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
/// @brief Returns the number of threads in the grid.
WB_FN uint64_t thread_total() { return static_cast<uint64_t>(gridDim.x) * blockDim.x; }

}  // namespace warp
}  // namespace warpbell
