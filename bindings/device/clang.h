// The parts of CUDA that the device headers use, for clang: bitcode needs neither CUDA's headers nor a version of CUDA that clang knows.
// `make` includes this file first (`-nocudainc -include clang.h`).
//
// Warp operations are PTX, which every version of clang passes on. Its builtins are bound to versions of PTX.
#pragma once

#if !defined(__clang__) || !defined(__CUDA__)
#error "clang.h is for clang with -x cuda; nvcc has CUDA's own headers"
#endif

#include <stddef.h>
#include <stdint.h>

#define __CUDACC__ 1
// Compilers that read the bitcode write PTX ISA 8.6 or newer: that of CUDA 12.7.
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 7
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __grid_constant__

struct uint3;
struct dim3;
#include <__clang_cuda_builtin_vars.h>

#define WB_CUDA static __device__ __forceinline__

WB_CUDA void* memcpy(void* to, const void* from, size_t bytes) { return __builtin_memcpy(to, from, bytes); }
WB_CUDA int __popc(unsigned v) { return __builtin_popcount(v); }
WB_CUDA int __ffs(int v) { return __builtin_ffs(v); }
WB_CUDA int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
WB_CUDA unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
WB_CUDA unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned v;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(selector));
  return v;
}
WB_CUDA unsigned __fns(unsigned mask, unsigned base, int offset) {
  unsigned bit;
  asm("fns.b32 %0, %1, %2, %3;" : "=r"(bit) : "r"(mask), "r"(base), "r"(offset));
  return bit;
}
WB_CUDA __attribute__((const)) bool __isGlobal(const void* p) { return __nvvm_isspacep_global(p); }
WB_CUDA void __nanosleep(unsigned nanoseconds) { asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds)); }

WB_CUDA unsigned __activemask() {
  unsigned mask;
  asm volatile("activemask.b32 %0;" : "=r"(mask));
  return mask;
}
WB_CUDA void __syncwarp(unsigned mask) { asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory"); }
WB_CUDA unsigned __ballot_sync(unsigned mask, int p) {
  unsigned lanes;
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %1, 0;\nvote.sync.ballot.b32 %0, p, %2;\n}" : "=r"(lanes) : "r"(p), "r"(mask) : "memory");
  return lanes;
}
WB_CUDA int __syncthreads_or(int p) {
  int any;
  asm volatile("{\n.reg .pred p, q;\nsetp.ne.s32 p, %1, 0;\nbarrier.red.or.pred q, 0, p;\nselp.s32 %0, 1, 0, q;\n}"
               : "=r"(any)
               : "r"(p)
               : "memory");
  return any;
}

static __device__ __forceinline__ unsigned wb_shuffle(unsigned mask, unsigned v, int from) {
  unsigned got;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, %3;" : "=r"(got) : "r"(v), "r"(from), "r"(mask) : "memory");
  return got;
}
// `T` is an integer or an enumeration of up to 8 bytes.
template <class T> WB_CUDA T __shfl_sync(unsigned mask, T v, int from) {
  static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
  if constexpr (sizeof(T) <= 4) {
    return static_cast<T>(wb_shuffle(mask, static_cast<unsigned>(v), from));
  } else {
    const uint64_t bits = static_cast<uint64_t>(v);
    const uint64_t low = wb_shuffle(mask, static_cast<unsigned>(bits), from),
                   high = wb_shuffle(mask, static_cast<unsigned>(bits >> 32), from);
    return static_cast<T>(high << 32 | low);
  }
}
template <class T> WB_CUDA unsigned __match_any_sync(unsigned mask, T v) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "words of 4 or 8 bytes are compared");
  unsigned lanes;
  if constexpr (sizeof(T) == 4) {
    asm volatile("match.any.sync.b32 %0, %1, %2;" : "=r"(lanes) : "r"(v), "r"(mask) : "memory");
  } else {
    asm volatile("match.any.sync.b64 %0, %1, %2;" : "=r"(lanes) : "l"(v), "r"(mask) : "memory");
  }
  return lanes;
}

#undef WB_CUDA
