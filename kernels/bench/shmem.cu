// Kernels of `warpbell bench shmem`: puts, gets, single elements, atomics and signals, timed on the device. Launch shape: blocks of
// up to 512 threads, all resident together. Collectives are in shmem_collective.cu.
#include <warpbell/kernel.h>

#include "shmem/checks.cuh"
#include "shmem/elements.cuh"
#include "shmem/kernels.cuh"
#include "shmem/messages.cuh"

// Fills memory at any alignment with the pattern: byte j of the memory is byte j % 8 of word j / 8.
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

// Counts bytes from `first` to `last` - 1 that differ from the pattern. `at` need not be aligned.
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

// Counts 8-byte words that differ between two arrays.
WB_KERNEL void wb_shmem_bench_compare(const uint64_t* a, const uint64_t* b, WB_PARAM uint64_t n, uint64_t* wrong) {
  using namespace warpbell;
  uint64_t bad = 0;
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) bad += a[i] != b[i];
  shmem_bench::count_wrong(wrong, bad);
}
WB_EXPORT(wb_shmem_bench_compare)

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
WB_BENCH_SCOPES(put_bw_bulk, bandwidth_through_shared<true, shmem_bench::by_engine>)
WB_BENCH_SCOPES(get_bw_bulk, bandwidth_through_shared<false, shmem_bench::by_engine>)
WB_BENCH_SCOPES(put_bw_buffer, bandwidth_through_shared<true, shmem_bench::by_buffer>)
WB_BENCH_SCOPES(get_bw_buffer, bandwidth_through_shared<false, shmem_bench::by_buffer>)
WB_BENCH_SCOPES(put_bw_shared, bandwidth_from_shared)
WB_BENCH_KERNEL(p_signal_ping_pong, shmem_bench::p_signal_ping_pong<shmem_bench::library>(w, t))
WB_BENCH_KERNEL(p_signal_ping_pong_raw, shmem_bench::p_signal_ping_pong<shmem_bench::by_hand>(w, t))
WB_BENCH_KERNEL(p_ping_pong, shmem_bench::p_ping_pong<shmem_bench::library>(w, t))
WB_BENCH_KERNEL(p_ping_pong_raw, shmem_bench::p_ping_pong<shmem_bench::by_hand>(w, t))

#define WB_BENCH_ELEMENTS(NAME)                                                          \
  WB_BENCH_KERNEL(NAME##_4, shmem_bench::NAME<uint32_t, shmem_bench::library>(w, t))     \
  WB_BENCH_KERNEL(NAME##_8, shmem_bench::NAME<uint64_t, shmem_bench::library>(w, t))     \
  WB_BENCH_KERNEL(NAME##_raw_4, shmem_bench::NAME<uint32_t, shmem_bench::by_hand>(w, t)) \
  WB_BENCH_KERNEL(NAME##_raw_8, shmem_bench::NAME<uint64_t, shmem_bench::by_hand>(w, t))

WB_BENCH_ELEMENTS(p_rate)
WB_BENCH_ELEMENTS(g_rate)
WB_BENCH_ELEMENTS(atomic_rate)

#define WB_BENCH_CHECKS(BYTES, T)                                                                                                \
  WB_KERNEL void wb_shmem_bench_sums_##BYTES(WB_PARAM shmem_bench::test t, WB_PARAM uint64_t threads, WB_PARAM uint64_t pattern, \
                                             uint64_t* wrong) {                                                                  \
    shmem_bench::sums_hold<T>(t, threads, pattern, wrong);                                                                       \
  }                                                                                                                              \
  WB_EXPORT(wb_shmem_bench_sums_##BYTES)                                                                                         \
  WB_KERNEL void wb_shmem_bench_replay_##BYTES(WB_PARAM shmem_bench::test t, WB_PARAM uint64_t threads) {                        \
    shmem_bench::replay<T>(t, threads);                                                                                          \
  }                                                                                                                              \
  WB_EXPORT(wb_shmem_bench_replay_##BYTES)

WB_BENCH_CHECKS(4, uint32_t)
WB_BENCH_CHECKS(8, uint64_t)

#undef WB_BENCH_ELEMENTS
#undef WB_BENCH_CHECKS
