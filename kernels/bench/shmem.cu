// What `warpbell bench shmem` runs: puts, gets, single elements, atomics, signals, barriers and collectives, timed on the device.
#include <warpbell/kernel.h>

#include "shmem/checks.cuh"
#include "shmem/collectives.cuh"
#include "shmem/elements.cuh"
#include "shmem/messages.cuh"

// The same pattern anywhere: byte j of the memory is byte j % 8 of word j / 8.
WB_KERNEL void wb_shmem_bench_fill(uint8_t* at, WB_PARAM uint64_t bytes, WB_PARAM uint64_t seed) {
  using namespace warpbell;
  uint64_t* words = reinterpret_cast<uint64_t*>(at);
  const uint64_t n = bytes / 8;
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) words[i] = shmem_bench::word(seed, i);
  for (uint64_t j = n * 8 + warp::thread_index(); j < bytes; j += warp::thread_total()) {
    at[j] = static_cast<uint8_t>(shmem_bench::word(seed, j / 8) >> (j % 8 * 8));
  }
}
WB_EXPORT(wb_shmem_bench_fill)

// Counts bytes from `first` to `last` that are not the pattern's. `at` need not be aligned.
WB_KERNEL void wb_shmem_bench_check(const uint8_t* at, WB_PARAM uint64_t first, WB_PARAM uint64_t last, WB_PARAM uint64_t seed,
                                    uint64_t* wrong) {
  using namespace warpbell;
  const bool aligned = reinterpret_cast<uint64_t>(at) % 8 == 0;
  uint64_t bad = 0;
  for (uint64_t i = first / 8 + warp::thread_index(); i * 8 < last; i += warp::thread_total()) {
    const uint64_t expected = shmem_bench::word(seed, i);
    if (aligned && i * 8 >= first && i * 8 + 8 <= last) {
      uint64_t apart = reinterpret_cast<const uint64_t*>(at)[i] ^ expected;
      for (; apart; apart >>= 8) bad += (apart & 0xff) != 0;
      continue;
    }
    for (uint64_t j = i * 8 < first ? first : i * 8; j < i * 8 + 8 && j < last; ++j) {
      bad += at[j] != static_cast<uint8_t>(expected >> (j % 8 * 8));
    }
  }
  shmem_bench::count_wrong(wrong, bad);
}
WB_EXPORT(wb_shmem_bench_check)

// Counts 8-byte words of two arrays that differ.
WB_KERNEL void wb_shmem_bench_compare(const uint64_t* a, const uint64_t* b, WB_PARAM uint64_t n, uint64_t* wrong) {
  using namespace warpbell;
  uint64_t bad = 0;
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) bad += a[i] != b[i];
  shmem_bench::count_wrong(wrong, bad);
}
WB_EXPORT(wb_shmem_bench_compare)

// Kernels of one test: for each scope, with the library and by hand.
#define WB_BENCH_KERNEL(NAME, ...)                                                                                    \
  WB_KERNEL void __launch_bounds__(512) wb_shmem_##NAME(WB_PARAM warpbell::world_ref w,                               \
                                                        WB_PARAM shmem_bench::test t) {                               \
    __VA_ARGS__;                                                                                                      \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_##NAME)
#define WB_BENCH_SCOPES(NAME, ...)                                                                                    \
  WB_BENCH_KERNEL(NAME##_thread, shmem_bench::__VA_ARGS__(warpbell::by_thread, w, t))                                 \
  WB_BENCH_KERNEL(NAME##_warp, shmem_bench::__VA_ARGS__(warpbell::by_warp, w, t))                                     \
  WB_BENCH_KERNEL(NAME##_block, shmem_bench::__VA_ARGS__(warpbell::by_block, w, t))

WB_BENCH_SCOPES(put_bw, bandwidth<true, shmem_bench::library>)
WB_BENCH_SCOPES(put_bw_raw, bandwidth<true, shmem_bench::by_hand>)
WB_BENCH_SCOPES(get_bw, bandwidth<false, shmem_bench::library>)
WB_BENCH_SCOPES(get_bw_raw, bandwidth<false, shmem_bench::by_hand>)
WB_BENCH_SCOPES(put_latency, latency<true, shmem_bench::library>)
WB_BENCH_SCOPES(put_latency_raw, latency<true, shmem_bench::by_hand>)
WB_BENCH_SCOPES(get_latency, latency<false, shmem_bench::library>)
WB_BENCH_SCOPES(get_latency_raw, latency<false, shmem_bench::by_hand>)
WB_BENCH_SCOPES(put_signal_ping_pong, put_signal_ping_pong<shmem_bench::library>)
WB_BENCH_SCOPES(put_signal_ping_pong_raw, put_signal_ping_pong<shmem_bench::by_hand>)
WB_BENCH_KERNEL(p_ping_pong, shmem_bench::p_ping_pong<shmem_bench::library>(w, t))
WB_BENCH_KERNEL(p_ping_pong_raw, shmem_bench::p_ping_pong<shmem_bench::by_hand>(w, t))

#define WB_BENCH_ELEMENTS(NAME)                                                                                       \
  WB_BENCH_KERNEL(NAME##_4, shmem_bench::NAME<uint32_t, shmem_bench::library>(w, t))                                  \
  WB_BENCH_KERNEL(NAME##_8, shmem_bench::NAME<uint64_t, shmem_bench::library>(w, t))                                  \
  WB_BENCH_KERNEL(NAME##_raw_4, shmem_bench::NAME<uint32_t, shmem_bench::by_hand>(w, t))                              \
  WB_BENCH_KERNEL(NAME##_raw_8, shmem_bench::NAME<uint64_t, shmem_bench::by_hand>(w, t))

WB_BENCH_ELEMENTS(p_rate)
WB_BENCH_ELEMENTS(g_rate)
WB_BENCH_ELEMENTS(atomic_rate)

#define WB_BENCH_CHECKS(BYTES, T)                                                                                     \
  WB_KERNEL void wb_shmem_bench_sums_##BYTES(WB_PARAM shmem_bench::test t, WB_PARAM uint64_t threads,                 \
                                             WB_PARAM uint64_t pattern, uint64_t* wrong) {                            \
    shmem_bench::sums_hold<T>(t, threads, pattern, wrong);                                                                     \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_sums_##BYTES)                                                                              \
  WB_KERNEL void wb_shmem_bench_replay_##BYTES(WB_PARAM shmem_bench::test t, WB_PARAM uint64_t threads) {             \
    shmem_bench::replay<T>(t, threads);                                                                               \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_replay_##BYTES)

WB_BENCH_CHECKS(4, uint32_t)
WB_BENCH_CHECKS(8, uint64_t)

#define WB_BENCH_MEETING(NAME, CALL)                                                                                  \
  WB_BENCH_KERNEL(NAME##_thread, shmem_bench::in_turn(warpbell::by_thread, w, t, [&](uint32_t) { w.CALL(warpbell::by_thread); }))  \
  WB_BENCH_KERNEL(NAME##_warp, shmem_bench::in_turn(warpbell::by_warp, w, t, [&](uint32_t) { w.CALL(warpbell::by_warp); }))        \
  WB_BENCH_KERNEL(NAME##_block, shmem_bench::in_turn(warpbell::by_block, w, t, [&](uint32_t) { w.CALL(warpbell::by_block); }))
WB_BENCH_MEETING(bench_barrier, barrier_all)
WB_BENCH_MEETING(bench_sync, sync_all)

WB_BENCH_SCOPES(broadcast, collective<shmem_bench::broadcast, uint32_t>)
WB_BENCH_SCOPES(fcollect, collective<shmem_bench::fcollect, uint32_t>)
WB_BENCH_SCOPES(alltoall, collective<shmem_bench::alltoall, uint32_t>)
#define WB_BENCH_REDUCTION(NAME, T)                                                                                   \
  WB_BENCH_SCOPES(reduce_##NAME, collective<shmem_bench::reduce_sum, T>)                                          \
  WB_KERNEL void wb_shmem_bench_summands_##NAME(T* at, WB_PARAM uint64_t n, WB_PARAM uint64_t seed,                   \
                                                WB_PARAM uint64_t pe) {                                               \
    using namespace warpbell;                                                                                         \
    for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) {                                       \
      at[i] = shmem_bench::summand<T>(seed, pe, i);                                                                   \
    }                                                                                                                 \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_summands_##NAME)                                                                           \
  WB_KERNEL void wb_shmem_bench_reduced_##NAME(const T* at, WB_PARAM uint64_t n, WB_PARAM uint64_t seed,              \
                                               WB_PARAM uint32_t pes, uint64_t* wrong) {                              \
    shmem_bench::reduction_holds<T>(at, n, seed, pes, wrong);                                                                     \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_reduced_##NAME)
WB_BENCH_REDUCTION(uint64, uint64_t)
WB_BENCH_REDUCTION(float, float)

#define WB_BENCH_BARRIER_CHECK(SCOPE)                                                                                 \
  WB_KERNEL void wb_shmem_bench_barrier_check_##SCOPE(WB_PARAM warpbell::world_ref w, WB_PARAM shmem_bench::test t,   \
                                                      uint64_t* wrong) {                                              \
    shmem_bench::barrier_holds(warpbell::by_##SCOPE, w, t, wrong);                                                    \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_barrier_check_##SCOPE)
WB_BENCH_BARRIER_CHECK(thread)
WB_BENCH_BARRIER_CHECK(warp)
WB_BENCH_BARRIER_CHECK(block)

#undef WB_BENCH_KERNEL
#undef WB_BENCH_SCOPES
#undef WB_BENCH_ELEMENTS
#undef WB_BENCH_CHECKS
#undef WB_BENCH_MEETING
#undef WB_BENCH_BARRIER_CHECK
#undef WB_BENCH_REDUCTION
