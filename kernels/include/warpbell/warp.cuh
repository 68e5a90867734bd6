// Lanes that work together: masks, votes, shuffles. 32 lanes on a GPU; 1, 4 or 32 on the CPU engine (WB_WARP_WIDTH).
//
// A mask names the lanes that take part. Every lane in the mask must make the same call. `full()` is a promise by the caller
// that the whole warp is here; `active()` is whoever happens to be converged (on the CPU engine: the calling lane alone, so
// code that relies on `active()` for correctness fails there, as it should).
#pragma once

#include <warpbell/platform.h>

#if !defined(WB_WARP_WIDTH)
#define WB_WARP_WIDTH 32
#endif

namespace warpbell {
namespace warp {

using mask_t = uint32_t;
constexpr uint32_t width = WB_WARP_WIDTH;
static_assert(width == 1 || width == 4 || width == 32, "a warp has 1, 4 or 32 lanes");
static_assert(!WB_GPU || width == 32, "a GPU warp has 32 lanes");

WB_FN mask_t full() { return width == 32 ? 0xffffffffu : (1u << (width & 31)) - 1u; }

#if WB_GPU
WB_FN uint32_t lane() {
  uint32_t l;
  asm("mov.u32 %0, %%laneid;" : "=r"(l));
  return l;
}
WB_FN mask_t active() { return __activemask(); }
WB_FN void sync(mask_t m) { __syncwarp(m); }
WB_FN mask_t ballot(mask_t m, bool p) { return __ballot_sync(m, p); }
template <class T> WB_FN T shuffle(mask_t m, T v, uint32_t from) { return __shfl_sync(m, v, from); }
template <class T> WB_FN mask_t match(mask_t m, T v) { return __match_any_sync(m, v); }
WB_FN uint32_t popcount(uint32_t v) { return __popc(v); }
WB_FN uint32_t first(mask_t m) { return __ffs(m) - 1; }
WB_FN uint32_t last(mask_t m) { return 31 - __clz(m); }
// A number that differs between multiprocessors: spreads queues and counters.
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

WB_FN bool any(mask_t m, bool p) { return ballot(m, p) != 0; }
WB_FN bool all(mask_t m, bool p) { return ballot(m, p) == m; }
// How many lanes of the mask come before a lane, and before this one; and how many there are.
WB_FN uint32_t rank_of(mask_t m, uint32_t lane) { return popcount(m & ((1u << lane) - 1u)); }
WB_FN uint32_t rank(mask_t m) { return popcount(m & ((1u << lane()) - 1u)); }
WB_FN uint32_t count(mask_t m) { return popcount(m); }
// The lane that acts for the others.
WB_FN uint32_t leader(mask_t m) { return first(m); }
WB_FN bool is_leader(mask_t m) { return lane() == first(m); }

// The lane number of the mask's n-th member.
WB_FN uint32_t nth(mask_t m, uint32_t n) {
#if WB_GPU
  return __fns(m, 0, static_cast<int>(n) + 1);
#else
  for (; n; --n) m &= m - 1;
  return first(m);
#endif
}

// Sum over the mask's lanes; every lane gets it.
template <class T> WB_FN T sum(mask_t m, T v) {
  if (m == full()) {
    for (uint32_t d = width / 2; d; d /= 2) v += shuffle(m, v, lane() ^ d);
    return v;
  }
  T s = 0;
  for (mask_t left = m; left; left &= left - 1) s += shuffle(m, v, first(left));
  return s;
}

// How many of the mask's lanes say yes before the first that says no.
WB_FN uint32_t prefix(mask_t m, bool p) {
  mask_t no = m & ~ballot(m, p);
  return no ? popcount(m & ((1u << first(no)) - 1u)) : popcount(m);
}

// This thread's place in the whole grid, counted in warps. Blocks are whole warps.
WB_FN uint32_t warps_per_block() { return (blockDim.x + width - 1) / width; }
WB_FN uint32_t index() { return blockIdx.x * warps_per_block() + threadIdx.x / width; }
WB_FN uint32_t total() { return gridDim.x * warps_per_block(); }
// And counted in threads.
WB_FN uint64_t thread_index() { return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
WB_FN uint64_t thread_total() { return static_cast<uint64_t>(gridDim.x) * blockDim.x; }

}  // namespace warp
}  // namespace warpbell
