// CUDA's built-in variables, barriers and atomics for CPU threads, in a namespace of their own.
//
// The device headers use these names inside of `warpbell`. So a host file may include them together with CUDA's headers, which have
// the same names outside of it. cpu/cuda.h makes the names global for kernels.
#pragma once

#include "lanes.h"

namespace warpbell {
namespace cpu {

struct dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

inline thread_local dim3 threadIdx{0, 0, 0}, blockIdx{0, 0, 0}, blockDim, gridDim;

inline void __syncthreads() {
  auto* b = here().all;
  if (b && b->count > 1) barrier(b->arrived, b->generation, b->count);
}
// Returns true if `p` is true in any thread of the block. All threads between two barriers see the same generation. A vote word is
// used again two barriers later, when every thread has read it.
inline int __syncthreads_or(int p) {
  auto* b = here().all;
  if (!b || b->count <= 1) return p;
  const uint32_t g = b->generation.load(std::memory_order_acquire);
  if (p) b->vote[g & 1].store(g + 1, std::memory_order_relaxed);
  barrier(b->arrived, b->generation, b->count);
  return b->vote[g & 1].load(std::memory_order_relaxed) == g + 1;
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Atomics that kernels use on plain memory, with CUDA's names and relaxed order.
template <class T> inline T atomicAdd(T* p, T v) {
  if constexpr (std::is_integral<T>::value) {
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
  } else {
    T old, next;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
      next = old + v;
    } while (!__atomic_compare_exchange(p, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
  }
}
template <class T> inline T atomicOr(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }
template <class T> inline T atomicAnd(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }
template <class T> inline T atomicExch(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }
template <class T> inline T atomicCAS(T* p, T expected, T desired) {
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T> inline T atomicMin(T* p, T v) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v < old && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T> inline T atomicMax(T* p, T v) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v > old && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

}  // namespace cpu

using cpu::__syncthreads;
using cpu::__syncthreads_or;
using cpu::atomicAdd;
using cpu::blockDim;
using cpu::blockIdx;
using cpu::gridDim;
using cpu::threadIdx;

}  // namespace warpbell
