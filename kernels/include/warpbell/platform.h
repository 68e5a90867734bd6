// What differs between nvcc and a C++20 compiler, in one place.
//
// Device code is written once. On a GPU it is compiled by nvcc; on CPU threads the same sources are compiled as C++20 with
// kernels/cpu in front (see kernels/cpu/shim.h), one thread per lane.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define WB_GPU 1
#define WB_FN __device__ __forceinline__
#define WB_FN_COLD inline __device__ __noinline__
#define WB_CONST __device__ const
#else
#define WB_GPU 0
#define WB_FN inline
#define WB_FN_COLD inline
#define WB_CONST inline constexpr
#include "../../cpu/shim.h"
#endif

// What is nearly always so, and must not cost a jump.
#define WB_LIKELY(condition) (__builtin_expect(static_cast<bool>(condition), 1))

// Defined to 1 while nvcc compiles for the device (and always on the CPU engine): guards bodies with device intrinsics.
#if defined(__CUDA_ARCH__) || !WB_GPU
#define WB_DEVICE_PASS 1
#else
#define WB_DEVICE_PASS 0
#endif

// A kernel parameter block travels by value; on a GPU it then lives in constant memory, read without a local copy.
#if WB_GPU
#define WB_PARAM const __grid_constant__
#else
#define WB_PARAM const
#endif

namespace warpbell {

// The same pointer, known to be to global memory: spares the address-space test that a generic load makes.
template <class T> WB_FN T* global_memory(T* p) {
#if WB_GPU && WB_DEVICE_PASS
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

}  // namespace warpbell
