// Common part of all tests: parameters, contents of messages, timing.
#pragma once

#include <warpbell/shmem.cuh>

#include "../params.h"

namespace shmem_bench {

using namespace warpbell;

using test = wb_shmem_test;

WB_FN uint64_t ticks() {
#if WB_GPU
  return static_cast<uint64_t>(clock64());
#else
  return now_ns();
#endif
}

// --- contents of messages ----------------------------------------------------------------------------------------------

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
WB_FN uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Returns 8 bytes of the pattern.
WB_FN uint64_t word(uint64_t seed, uint64_t i) { return mix(seed + (i + 1) * 0x9e3779b97f4a7c15ull); }
// Returns element `i` of 4 or 8 bytes of the pattern.
template <class T> WB_FN T element(uint64_t seed, uint64_t i) {
  if constexpr (sizeof(T) == 8) {
    return word(seed, i);
  } else {
    return static_cast<T>(word(seed, i / 2) >> (i % 2 * 32));
  }
}

// --- the timed part ----------------------------------------------------------------------------------------------------

WB_FN wb_block_clock& my_clock(const test& t) { return t.clock[blockIdx.x]; }

WB_FN void wait_for(const world_ref& w, const uint32_t* word, uint32_t at_least) {
  deadline p(w.control());
  while (order::load<order::acquire>(word) < at_least) {
    if (wait_status v = p.expired(); v != wait_status::go_on) {
      w.fail(WB_CALL_WAIT, status_word(v), word, sizeof *word, w.my_pe());
      return;
    }
  }
}

// Waits for all blocks of this grid, and for those of the other PEs; then all begin together. All blocks of the grid are resident.
WB_FN void begin(const world_ref& w, const test& t) {
  wb_gate_words* gate = t.gate;
  __syncthreads();
  if (threadIdx.x == 0) {
    order::fetch_add<order::acq_rel>(&gate->arrived, 1u);
    if (blockIdx.x == 0) {
      wait_for(w, &gate->arrived, gridDim.x);
      if (t.everybody) w.sync_all(by_thread);
      order::store<order::release>(&gate->open, 1u);
    } else {
      wait_for(w, &gate->open, 1);
    }
    my_clock(t).start_ns = now_ns();
    my_clock(t).start_ticks = ticks();
  }
  __syncthreads();
}

// Completes everything that the threads of this block did, and stops the clock.
WB_FN void end(const world_ref& w, const test& t) {
  w.quiet();
  __syncthreads();
  if (threadIdx.x == 0) {
    my_clock(t).end_ticks = ticks();
    my_clock(t).end_ns = now_ns();
  }
}

// Executes operations one after the other, by the first `S` of each block; `once` gets their number. Samples are of the first
// block. One loop for warm-up, timing and sampling, so that the measured code is compiled once.
template <class S, class F> WB_FN void in_turn(S, const world_ref& w, const test& t, F once) {
  const bool works = threadIdx.x < S::count(), samples = t.samples && blockIdx.x == 0;
  uint32_t* sample = t.samples;
  const uint32_t all = t.warmup + t.iterations;
  for (uint32_t i = 0; i < all; ++i) {
    if (i == t.warmup) begin(w, t);
    if (!works) continue;
    const uint64_t from = samples ? ticks() : 0;
    once(i);
    if (samples && threadIdx.x == 0 && i >= t.warmup) sample[i - t.warmup] = static_cast<uint32_t>(ticks() - from);
  }
  end(w, t);
}

}  // namespace shmem_bench
