// Macros that hide the differences between nvcc and a C++20 compiler.
//
// Device code is written once. For a GPU, nvcc compiles it. For CPU threads, a C++20 compiler compiles the same sources after
// cpu/functions.h, with one thread per lane.
#pragma once

#include <warpbell/standard.h>

// WB_FN: device code. WB_FN_BOTH: also for the host part of a .cu file. WB_FN_COLD: device code that is called, not inlined.
#if defined(__CUDACC__)
#define WB_GPU 1
#define WB_FN __device__ __forceinline__
#define WB_FN_BOTH __host__ __device__ __forceinline__
#define WB_FN_COLD inline __device__ __noinline__
#define WB_CONST __device__ const
#else
#define WB_GPU 0
#define WB_FN inline
#define WB_FN_BOTH inline
#define WB_FN_COLD inline
#define WB_CONST inline constexpr
#include "cpu/functions.h"
#endif

/// @brief Evaluates `condition`, and tells the compiler to expect true, so that the common path has no taken branch.
#define WB_LIKELY(condition) (__builtin_expect(static_cast<bool>(condition), 1))

// Defined to 1 while nvcc compiles for the device (and always on the CPU engine): guards bodies with device intrinsics.
#if defined(__CUDA_ARCH__) || !WB_GPU
#define WB_DEVICE_PASS 1
#else
#define WB_DEVICE_PASS 0
#endif

/// @brief Qualifies a kernel parameter that is passed by value.
///
/// On a GPU the parameter then stays in constant memory, and kernels read it without a local copy.
#if WB_GPU
#define WB_PARAM const __grid_constant__
#else
#define WB_PARAM const
#endif

namespace warpbell {

/// @brief Type of a parameter of a `WB_FN_COLD` function that takes a structure by value. The function does not change it.
///
/// A reference where clang compiles for a GPU. Its code passes structures by value in memory, at an address of local memory. LLVM stops
/// with an assertion at such a parameter if those addresses have 32 bits (`nvptx-short-ptr`), as Triton sets them.
#if defined(__clang__) && defined(__CUDA__) && !defined(__NVCC__)
template <class T> using by_value = const T&;
#else
template <class T> using by_value = T;
#endif

/// @brief Returns `p`, which must point to global memory.
///
/// The compiler then omits the address-space test of a generic load. One thread calls this.
template <class T> WB_FN T* global_memory(T* p) {
#if WB_GPU && WB_DEVICE_PASS
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

}  // namespace warpbell
