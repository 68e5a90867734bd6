// Macros that define the kernels of `warpbell bench shmem`.
#pragma once

#include <warpbell/kernel.h>

#include "run.cuh"

// Kernels of one test: for each scope, with the library and by hand.
#define WB_BENCH_KERNEL(NAME, ...)                                                                                                     \
  WB_KERNEL void __launch_bounds__(512) wb_shmem_##NAME(WB_PARAM warpbell::world_ref w, WB_PARAM shmem_bench::test t) { __VA_ARGS__; } \
  WB_EXPORT(wb_shmem_##NAME)
#define WB_BENCH_SCOPES(NAME, ...)                                                    \
  WB_BENCH_KERNEL(NAME##_thread, shmem_bench::__VA_ARGS__(warpbell::by_thread, w, t)) \
  WB_BENCH_KERNEL(NAME##_warp, shmem_bench::__VA_ARGS__(warpbell::by_warp, w, t))     \
  WB_BENCH_KERNEL(NAME##_block, shmem_bench::__VA_ARGS__(warpbell::by_block, w, t))
