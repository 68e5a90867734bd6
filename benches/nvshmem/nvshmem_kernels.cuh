// Kernels that make NVSHMEM's device calls in the loops of `warpbell bench shmem`.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>
#include <non_abi/nvshmem_version.h>

#include "verify.cuh"

// Since 3.7, blocks can give NVSHMEM shared memory for copies by TMA.
#define BESIDE_HAS_TMA (NVSHMEM_VENDOR_MAJOR_VERSION * 100 + NVSHMEM_VENDOR_MINOR_VERSION >= 307)

namespace beside {

// Parameters of a kernel of messages. `tma_bytes` of shared memory are given to NVSHMEM if not 0.
struct messages {
  char* target;
  const char* source;
  uint64_t* flag;
  size_t bytes;
  unsigned places;
  int me, peer, warmup, iterations, tma_bytes;
  clock_words* clock;
};

// Parameters of a kernel of single elements.
struct elements {
  void* target;
  const void* source;
  size_t count;
  int peer, warmup, iterations;
  uint32_t seed;
  unsigned long long* sums;
  clock_words* clock;
};

// Gives shared memory, by all threads of the block.
__device__ inline void give_shared_memory(int bytes) {
#if BESIDE_HAS_TMA
  extern __shared__ __align__(128) unsigned char given[];
  if (bytes) {
    nvshmemx_give_smem(given, bytes);
    __syncthreads();
  }
#endif
}
__device__ inline void take_shared_memory_back(int bytes) {
#if BESIDE_HAS_TMA
  if (bytes) {
    __syncthreads();
    nvshmemx_release_smem();
  }
#endif
}

template <bool Put, bool ByBlock> __device__ inline void move(char* to, const char* from, size_t bytes, int peer) {
  if (Put && ByBlock) nvshmemx_putmem_nbi_block(to, from, bytes, peer);
  if (Put && !ByBlock) nvshmemx_putmem_nbi_warp(to, from, bytes, peer);
  if (!Put && ByBlock) nvshmemx_getmem_nbi_block(to, from, bytes, peer);
  if (!Put && !ByBlock) nvshmemx_getmem_nbi_warp(to, from, bytes, peer);
}

// Sends message after message in parts by all blocks, each to the next place. Every thread waits for completion: a block's copy by TMA
// completes for the thread that started it.
template <bool Put, bool ByBlock> __global__ void __launch_bounds__(512) bandwidth(messages m) {
  give_shared_memory(m.tma_bytes);
  const size_t part = m.bytes / gridDim.x, first = part * blockIdx.x;
  for (int timed = 0; timed < 2; ++timed) {
    if (timed) {
      nvshmem_quiet();
      begin(m.clock);
    }
    unsigned place = 0;
    for (int i = 0; i < (timed ? m.iterations : m.warmup); ++i) {
      const size_t at = first + m.bytes * place;
      move<Put, ByBlock>(m.target + at, m.source + at, part, m.peer);
      if (++place == m.places) place = 0;
    }
  }
  nvshmem_quiet();
  end(m.clock);
  take_shared_memory_back(m.tma_bytes);
}

// One word there and back, by one thread.
__global__ void p_ping_pong(messages m) {
  for (int i = 1; i <= m.warmup + m.iterations; ++i) {
    if (i == m.warmup + 1) begin(m.clock);
    for (int half = 0; half < 2; ++half) {
      if (half == m.me) {
        nvshmem_uint64_p(m.flag, i, m.peer);
      } else {
        nvshmem_uint64_wait_until(m.flag, NVSHMEM_CMP_EQ, i);
      }
    }
  }
  end(m.clock);
}

// A message and its signal there and back.
template <bool ByBlock> __global__ void __launch_bounds__(512) put_signal_ping_pong(messages m) {
  give_shared_memory(m.tma_bytes);
  for (int i = 1; i <= m.warmup + m.iterations; ++i) {
    if (i == m.warmup + 1) begin(m.clock);
    for (int half = 0; half < 2; ++half) {
      if (half != m.me) {
        if (threadIdx.x == 0) nvshmem_signal_wait_until(m.flag, NVSHMEM_CMP_EQ, i);
        __syncthreads();
      } else if (ByBlock) {
        nvshmemx_putmem_signal_nbi_block(m.target, m.source, m.bytes, m.flag, i, NVSHMEM_SIGNAL_SET, m.peer);
      } else {
        nvshmem_putmem_signal_nbi(m.target, m.source, m.bytes, m.flag, i, NVSHMEM_SIGNAL_SET, m.peer);
      }
    }
  }
  nvshmem_quiet();
  end(m.clock);
  take_shared_memory_back(m.tma_bytes);
}

// --- collectives of one block -------------------------------------------------------------------------------------------------

__global__ void barrier(messages m) {
  for (int i = 0; i < m.warmup + m.iterations; ++i) {
    if (i == m.warmup) begin(m.clock);
    nvshmemx_barrier_all_block();
  }
  end(m.clock);
}

// Counts rounds in which a PE leaves a barrier before its neighbour's put has arrived.
__global__ void barrier_holds(messages m, int next, unsigned long long* wrong) {
  for (int i = 1; i <= m.iterations; ++i) {
    if (threadIdx.x == 0) nvshmem_uint64_p(m.flag, i, next);
    nvshmemx_barrier_all_block();
    if (threadIdx.x == 0 && *const_cast<volatile uint64_t*>(m.flag) != static_cast<uint64_t>(i)) atomicAdd(wrong, 1);
    nvshmemx_barrier_all_block();
  }
}

struct reduce {
  static __device__ void call(float* to, const float* from, size_t n) { nvshmemx_float_sum_reduce_block(NVSHMEM_TEAM_WORLD, to, from, n); }
  static int enqueue(float* to, const float* from, size_t n, cudaStream_t stream) {
    return nvshmemx_float_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, to, from, n, stream);
  }
};
struct fcollect {
  static __device__ void call(float* to, const float* from, size_t n) { nvshmemx_float_fcollect_block(NVSHMEM_TEAM_WORLD, to, from, n); }
  static int enqueue(float* to, const float* from, size_t n, cudaStream_t stream) {
    return nvshmemx_float_fcollect_on_stream(NVSHMEM_TEAM_WORLD, to, from, n, stream);
  }
};
struct alltoall {
  static __device__ void call(float* to, const float* from, size_t n) { nvshmemx_float_alltoall_block(NVSHMEM_TEAM_WORLD, to, from, n); }
  static int enqueue(float* to, const float* from, size_t n, cudaStream_t stream) {
    return nvshmemx_float_alltoall_on_stream(NVSHMEM_TEAM_WORLD, to, from, n, stream);
  }
};
struct broadcast {
  static __device__ void call(float* to, const float* from, size_t n) {
    nvshmemx_float_broadcast_block(NVSHMEM_TEAM_WORLD, to, from, n, 0);
  }
  static int enqueue(float* to, const float* from, size_t n, cudaStream_t stream) {
    return nvshmemx_float_broadcast_on_stream(NVSHMEM_TEAM_WORLD, to, from, n, 0, stream);
  }
};

// Each of the collectives above. PEs start together.
template <class What> __global__ void __launch_bounds__(512) collective(messages m) {
  give_shared_memory(m.tma_bytes);
  for (int i = 0; i < m.warmup + m.iterations; ++i) {
    if (i == m.warmup) {
      nvshmemx_barrier_all_block();
      begin(m.clock);
    }
    What::call(reinterpret_cast<float*>(m.target), reinterpret_cast<const float*>(m.source), m.bytes / sizeof(float));
  }
  nvshmem_quiet();
  end(m.clock);
  take_shared_memory_back(m.tma_bytes);
}

// --- single elements ------------------------------------------------------------------------------------------------------------

__device__ inline void increment(uint32_t* at, int pe) { nvshmem_uint32_atomic_inc(at, pe); }
__device__ inline void increment(uint64_t* at, int pe) { nvshmem_uint64_atomic_inc(at, pe); }

// A random stream with the multiplier and the increment of Knuth's MMIX; the upper half is the random one.
struct stream {
  uint64_t state;

  __device__ stream(uint32_t seed, size_t thread) : state(static_cast<uint64_t>(pattern(seed, thread)) << 32 | thread) {}
  __device__ size_t below(size_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 32) * n >> 32;
  }
};

// Stores side by side, one element of each thread in each iteration.
__global__ void __launch_bounds__(256) p_rate(elements e) {
  uint32_t* to = static_cast<uint32_t*>(e.target);
  for (int timed = 0; timed < 2; ++timed) {
    if (timed) {
      nvshmem_quiet();
      begin(e.clock);
    }
    size_t at = thread_index();
    for (int i = 0; i < (timed ? e.iterations : e.warmup); ++i) {
      nvshmem_uint32_p(to + at, pattern(e.seed, at), e.peer);
      at += thread_total();
      if (at >= e.count) at = thread_index();
    }
  }
  nvshmem_quiet();
  end(e.clock);
}

// Gets random elements, eight of each thread in flight, and sums them up.
__global__ void __launch_bounds__(256) g_rate(elements e) {
  constexpr int ahead = 8;
  const uint32_t* from = static_cast<const uint32_t*>(e.source);
  unsigned long long sum = 0;
  for (int timed = 0; timed < 2; ++timed) {
    if (timed) begin(e.clock);
    stream random(e.seed + !timed, thread_index());
    sum = 0;
    for (int i = 0; i < (timed ? e.iterations : e.warmup); i += ahead) {
      uint32_t v[ahead];
#pragma unroll
      for (uint32_t& one : v) one = nvshmem_uint32_g(from + random.below(e.count), e.peer);
#pragma unroll
      for (uint32_t one : v) sum += one;
    }
    e.sums[thread_index()] = sum;
  }
  end(e.clock);
}
// Counts sums of the kernel above that differ from those of the pattern.
__global__ void __launch_bounds__(256) sums_hold(elements e, uint32_t pattern_seed, unsigned long long* wrong) {
  stream random(e.seed, thread_index());
  unsigned long long sum = 0;
  for (int i = 0; i < e.iterations; ++i) sum += pattern(pattern_seed, random.below(e.count));
  if (sum != e.sums[thread_index()]) atomicAdd(wrong, 1);
}

// Increments random elements.
template <class T> __global__ void __launch_bounds__(256) atomic_rate(elements e) {
  T* to = static_cast<T*>(e.target);
  stream random(e.seed, thread_index());
  for (int timed = 0; timed < 2; ++timed) {
    if (timed) {
      nvshmem_quiet();
      begin(e.clock);
    }
    for (int i = 0; i < (timed ? e.iterations : e.warmup); ++i) increment(to + random.below(e.count), e.peer);
  }
  nvshmem_quiet();
  end(e.clock);
}
// Does the same in memory of this GPU.
template <class T> __global__ void __launch_bounds__(256) replay(elements e) {
  T* to = static_cast<T*>(e.target);
  stream random(e.seed, thread_index());
  for (int i = 0; i < e.warmup + e.iterations; ++i) {
    if (sizeof(T) == 4) atomicAdd(reinterpret_cast<unsigned*>(to + random.below(e.count)), 1);
    if (sizeof(T) == 8) atomicAdd(reinterpret_cast<unsigned long long*>(to + random.below(e.count)), 1);
  }
}

}  // namespace beside
