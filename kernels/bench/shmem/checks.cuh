// Checks of results: barriers, sums of random elements, reductions.
#pragma once

#include "collectives.cuh"
#include "elements.cuh"

namespace shmem_bench {

using namespace warpbell;

WB_FN void count_wrong(uint64_t* wrong, uint64_t n) {
  if (n) order::fetch_add<order::relaxed>(wrong, n);
}

// Counts rounds in which the barrier let this PE go on before the other PE's put had arrived.
template <class S> WB_FN void barrier_holds(S s, const world_ref& w, const test& t, uint64_t* wrong) {
  uint64_t* flag = t.flag;
  uint64_t bad = 0;
  if (threadIdx.x >= S::count()) return;
  for (uint32_t i = 0; i < t.iterations; ++i) {
    const uint64_t v = t.turn + i + 1;
    if (S::rank() == 0) w.p(flag, v, (w.my_pe() + 1) % w.n_pes());
    w.barrier_all(s);
    if (S::rank() == 0 && order::load<order::relaxed, order::world>(flag) != v) ++bad;
    w.barrier_all(s);
  }
  count_wrong(wrong, bad);
}

// Counts threads whose sum of random elements differs from the pattern's.
template <class T> WB_FN void sums_hold(const test& t, uint64_t threads, uint64_t pattern, uint64_t* wrong) {
  uint64_t bad = 0;
  for (uint64_t thread = warp::thread_index(); thread < threads; thread += warp::thread_total()) {
    stream random(t.seed, thread);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t.iterations; ++i) sum += element<T>(pattern, random.below(t.elements));
    bad += t.sums[thread] != sum;
  }
  count_wrong(wrong, bad);
}

// Counts elements that differ from the sum of all PEs' summands.
template <class T> WB_FN void reduction_holds(const T* at, uint64_t n, uint64_t seed, uint32_t pes, uint64_t* wrong) {
  uint64_t bad = 0;
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) {
    T expected{};
    for (uint32_t pe = 0; pe < pes; ++pe) expected += summand<T>(seed, pe, i);
    bad += at[i] != expected;
  }
  count_wrong(wrong, bad);
}

}  // namespace shmem_bench
