// CUDA's keywords and global names, so that kernels compile as C++20 and run on CPU threads.
//
// <warpbell/kernel.h> includes this file; the other device headers leave the global names to CUDA. A file with both
// <cuda_runtime.h> and <warpbell/kernel.h> includes <cuda_runtime.h> first, and has CUDA's `dim3`.
#pragma once

#include "functions.h"

#if !defined(__global__)
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#endif
// CUDA's own makes an attribute of it, which a C++ compiler does not know.
#undef __launch_bounds__
#define __launch_bounds__(...)

// The guard of CUDA's vector_types.h, which <cuda_runtime.h> includes.
#if !defined(__VECTOR_TYPES_H__)
using warpbell::cpu::dim3;
#endif
using warpbell::cpu::blockDim;
using warpbell::cpu::blockIdx;
using warpbell::cpu::gridDim;
using warpbell::cpu::threadIdx;

using warpbell::cpu::__syncthreads;
using warpbell::cpu::__syncthreads_or;
using warpbell::cpu::__threadfence;
using warpbell::cpu::atomicAdd;
using warpbell::cpu::atomicAnd;
using warpbell::cpu::atomicCAS;
using warpbell::cpu::atomicExch;
using warpbell::cpu::atomicMax;
using warpbell::cpu::atomicMin;
using warpbell::cpu::atomicOr;
