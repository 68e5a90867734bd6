// Kernels of `warpbell bench shmem`: barriers and collectives, timed on the device. Launch shape: blocks of up to 512 threads, all
// resident together; the same grid on every PE. In a file of their own, because the compiler processes every function that is
// called through its address once for each kernel of a file.
#include <warpbell/kernel.h>

#include "shmem/checks.cuh"
#include "shmem/collectives.cuh"
#include "shmem/kernels.cuh"

#define WB_BENCH_BARRIER(NAME, CALL)                                                                                              \
  WB_BENCH_KERNEL(NAME##_thread, shmem_bench::in_turn(warpbell::by_thread, w, t, [&](uint32_t) { w.CALL(warpbell::by_thread); })) \
  WB_BENCH_KERNEL(NAME##_warp, shmem_bench::in_turn(warpbell::by_warp, w, t, [&](uint32_t) { w.CALL(warpbell::by_warp); }))       \
  WB_BENCH_KERNEL(NAME##_block, shmem_bench::in_turn(warpbell::by_block, w, t, [&](uint32_t) { w.CALL(warpbell::by_block); }))
WB_BENCH_BARRIER(bench_barrier, barrier_all)
WB_BENCH_BARRIER(bench_sync, sync_all)

WB_BENCH_SCOPES(broadcast, collective<shmem_bench::broadcast, uint32_t>)
WB_BENCH_SCOPES(fcollect, collective<shmem_bench::fcollect, uint32_t>)
WB_BENCH_SCOPES(alltoall, collective<shmem_bench::alltoall, uint32_t>)
#define WB_BENCH_REDUCTION(NAME, T)                                                                                             \
  WB_BENCH_SCOPES(reduce_##NAME, collective<shmem_bench::reduce_sum, T>)                                                        \
  WB_KERNEL void wb_shmem_bench_summands_##NAME(T* at, WB_PARAM uint64_t n, WB_PARAM uint64_t seed, WB_PARAM uint64_t pe) {     \
    using namespace warpbell;                                                                                                   \
    for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) {                                                 \
      at[i] = shmem_bench::summand<T>(seed, pe, i);                                                                             \
    }                                                                                                                           \
  }                                                                                                                             \
  WB_EXPORT(wb_shmem_bench_summands_##NAME)                                                                                     \
  WB_KERNEL void wb_shmem_bench_reduced_##NAME(const T* at, WB_PARAM uint64_t n, WB_PARAM uint64_t seed, WB_PARAM uint32_t pes, \
                                               uint64_t* wrong) {                                                               \
    shmem_bench::reduction_holds<T>(at, n, seed, pes, wrong);                                                                   \
  }                                                                                                                             \
  WB_EXPORT(wb_shmem_bench_reduced_##NAME)
WB_BENCH_REDUCTION(uint64, uint64_t)
WB_BENCH_REDUCTION(float, float)

#define WB_BENCH_BARRIER_CHECK(SCOPE)                                                                                                  \
  WB_KERNEL void wb_shmem_bench_barrier_check_##SCOPE(WB_PARAM warpbell::world_ref w, WB_PARAM shmem_bench::test t, uint64_t* wrong) { \
    shmem_bench::barrier_holds(warpbell::by_##SCOPE, w, t, wrong);                                                                     \
  }                                                                                                                                    \
  WB_EXPORT(wb_shmem_bench_barrier_check_##SCOPE)
WB_BENCH_BARRIER_CHECK(thread)
WB_BENCH_BARRIER_CHECK(warp)
WB_BENCH_BARRIER_CHECK(block)

#undef WB_BENCH_BARRIER
#undef WB_BENCH_REDUCTION
#undef WB_BENCH_BARRIER_CHECK
