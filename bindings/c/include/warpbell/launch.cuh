// Launches of a program's own kernels: by nvcc with <<<>>>, and by a C++20 compiler on CPU threads, from one source.
//
//   __global__ void scale(float* x, float by, size_t n) { ... }
//   WB_LAUNCH(scale, grid, stream, x, 2.0f, n);     // grid: wb_grid of wb_engine_grid; stream: of wb_stream_raw, or a cudaStream_t
//
// A program that nvcc alone compiles needs none of this. On CPU threads the launch returns when the kernel has ended.
#pragma once

#include <warpbell.h>
#include <warpbell/kernel.h>

#if WB_GPU
/// @brief Launches a kernel of this program on a stream.
#define WB_LAUNCH(KERNEL, GRID, STREAM, ...) KERNEL<<<(GRID).blocks, (GRID).threads, 0, static_cast<cudaStream_t>(STREAM)>>>(__VA_ARGS__)
/// @brief Kind of the engine that a program with kernels of its own opens: that which its compiler compiled them for.
#define WB_ENGINE_OF_COMPILER WB_ENGINE_GPU
#else
#include <warpbell/cpu/launch.h>
#define WB_LAUNCH(KERNEL, GRID, STREAM, ...) \
  (static_cast<void>(STREAM), ::warpbell::cpu::launch((GRID).blocks, (GRID).threads, KERNEL, __VA_ARGS__))
#define WB_ENGINE_OF_COMPILER WB_ENGINE_CPU
#endif
