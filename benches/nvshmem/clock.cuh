// Time on the device, as `warpbell bench shmem` takes it: from the moment when all blocks have met until the operations of the last
// block are complete. Launches are in no figure.
#pragma once

#include <cuda_runtime.h>

#include "program.h"

#define BESIDE_CUDA(CALL) beside::cuda_succeeds((CALL), #CALL, __FILE__, __LINE__)

namespace beside {

inline void cuda_succeeds(cudaError_t error, const char* call, const char* file, int line) {
  if (error != cudaSuccess) fail("%s:%d: %s: %s", file, line, call, cudaGetErrorString(error));
}

struct clock_words {
  unsigned long long start, end;
  unsigned arrived;
};

__device__ inline unsigned long long now_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// Waits for all blocks, which have to be resident together, and starts the clock. By all threads.
__device__ inline void begin(clock_words* c) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(&c->arrived, 1);
    while (*const_cast<volatile unsigned*>(&c->arrived) < gridDim.x) {
    }
    atomicMin(&c->start, now_ns());
  }
  __syncthreads();
}

// Stops the clock, if this is the last block. By all threads, after their operations are complete.
__device__ inline void end(clock_words* c) {
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(&c->end, now_ns());
}

// Clock of one kernel at a time.
class kernel_clock {
 public:
  kernel_clock() { BESIDE_CUDA(cudaMalloc(&words_, sizeof(clock_words))); }
  kernel_clock(const kernel_clock&) = delete;
  ~kernel_clock() { cudaFree(words_); }

  clock_words* words() { return words_; }
  void reset() {
    const clock_words fresh{~0ull, 0, 0};
    BESIDE_CUDA(cudaMemcpy(words_, &fresh, sizeof fresh, cudaMemcpyHostToDevice));
  }
  // Waits for the kernel, and returns its time in nanoseconds.
  double ns() {
    BESIDE_CUDA(cudaGetLastError());
    BESIDE_CUDA(cudaDeviceSynchronize());
    clock_words w;
    BESIDE_CUDA(cudaMemcpy(&w, words_, sizeof w, cudaMemcpyDeviceToHost));
    return static_cast<double>(w.end - w.start);
  }

 private:
  clock_words* words_ = nullptr;
};

// Time of what is enqueued on a stream, for calls of the host.
class stream_clock {
 public:
  stream_clock() {
    BESIDE_CUDA(cudaStreamCreate(&stream_));
    BESIDE_CUDA(cudaEventCreate(&first_));
    BESIDE_CUDA(cudaEventCreate(&last_));
  }
  stream_clock(const stream_clock&) = delete;
  ~stream_clock() {
    cudaEventDestroy(first_);
    cudaEventDestroy(last_);
    cudaStreamDestroy(stream_);
  }

  cudaStream_t stream() { return stream_; }
  void start() { BESIDE_CUDA(cudaEventRecord(first_, stream_)); }
  // Waits for all that was enqueued, and returns the nanoseconds since `start`.
  double ns() {
    BESIDE_CUDA(cudaEventRecord(last_, stream_));
    BESIDE_CUDA(cudaStreamSynchronize(stream_));
    float ms;
    BESIDE_CUDA(cudaEventElapsedTime(&ms, first_, last_));
    return ms * 1e6;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t first_ = nullptr, last_ = nullptr;
};

}  // namespace beside
