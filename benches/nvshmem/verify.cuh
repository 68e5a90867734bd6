// Data whose every word tells its place and its sender, and kernels that count the words that differ.
#pragma once

#include <cstdint>

#include "clock.cuh"

namespace beside {

// Bytes behind received data that must not change.
constexpr size_t guard = 64;
// Word of memory that nobody has written.
constexpr uint32_t untouched = 0xeeeeeeee;

// The finaliser of MurmurHash3 over place and sender.
__host__ __device__ inline uint32_t pattern(uint32_t seed, size_t i) {
  uint32_t x = static_cast<uint32_t>(i) + seed * 0x9e3779b1u;
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}
// A summand so small that a float holds the sum of all PEs exactly.
__host__ __device__ inline float summand(int pe, size_t i) { return static_cast<float>(pattern(pe, i) & 0xff); }

__device__ inline size_t thread_index() { return blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; }
__device__ inline size_t thread_total() { return gridDim.x * static_cast<size_t>(blockDim.x); }

__global__ void fill_words(uint32_t* to, size_t n, uint32_t seed) {
  for (size_t i = thread_index(); i < n; i += thread_total()) to[i] = pattern(seed, i);
}
__global__ void fill_summands(float* to, size_t n, int pe) {
  for (size_t i = thread_index(); i < n; i += thread_total()) to[i] = summand(pe, i);
}
__global__ void count_words(const uint32_t* at, size_t n, uint32_t seed, size_t first, unsigned long long* wrong) {
  for (size_t i = thread_index(); i < n; i += thread_total()) {
    if (at[i] != pattern(seed, first + i)) atomicAdd(wrong, 1);
  }
}
__global__ void count_touched(const uint32_t* at, size_t n, unsigned long long* wrong) {
  for (size_t i = thread_index(); i < n; i += thread_total()) {
    if (at[i] != untouched) atomicAdd(wrong, 1);
  }
}
__global__ void count_sums(const float* at, size_t n, int pes, unsigned long long* wrong) {
  for (size_t i = thread_index(); i < n; i += thread_total()) {
    float sum = 0;
    for (int pe = 0; pe < pes; ++pe) sum += summand(pe, i);
    if (at[i] != sum) atomicAdd(wrong, 1);
  }
}
__global__ void count_different(const uint32_t* a, const uint32_t* b, size_t n, unsigned long long* wrong) {
  for (size_t i = thread_index(); i < n; i += thread_total()) {
    if (a[i] != b[i]) atomicAdd(wrong, 1);
  }
}

// Fills and checks memory of this PE's GPU, and counts what is wrong.
class verifier {
 public:
  verifier() {
    BESIDE_CUDA(cudaMalloc(&wrong_, sizeof *wrong_));
    BESIDE_CUDA(cudaMemset(wrong_, 0, sizeof *wrong_));
  }
  verifier(const verifier&) = delete;
  ~verifier() { cudaFree(wrong_); }

  static constexpr int blocks = 512, threads = 256;

  unsigned long long* wrong() { return wrong_; }
  void fill(void* to, size_t bytes, uint32_t seed) { fill_words<<<blocks, threads>>>(static_cast<uint32_t*>(to), bytes / 4, seed); }
  void fill_for_sum(void* to, size_t bytes, int pe) { fill_summands<<<blocks, threads>>>(static_cast<float*>(to), bytes / 4, pe); }
  void clear(void* to, size_t bytes) { BESIDE_CUDA(cudaMemset(to, untouched & 0xff, bytes + guard)); }
  // Counts what differs from the pattern, whose place `first` is the first one here.
  void holds(const void* at, size_t bytes, uint32_t seed, size_t first = 0) {
    count_words<<<blocks, threads>>>(static_cast<const uint32_t*>(at), bytes / 4, seed, first, wrong_);
  }
  void holds_sum(const void* at, size_t bytes, int pes) {
    count_sums<<<blocks, threads>>>(static_cast<const float*>(at), bytes / 4, pes, wrong_);
  }
  void same(const void* a, const void* b, size_t bytes) {
    count_different<<<blocks, threads>>>(static_cast<const uint32_t*>(a), static_cast<const uint32_t*>(b), bytes / 4, wrong_);
  }
  // Checks the guard behind received data.
  void ends(const void* at, size_t bytes) {
    count_touched<<<1, guard / 4>>>(reinterpret_cast<const uint32_t*>(static_cast<const char*>(at) + bytes), guard / 4, wrong_);
  }
  // Waits for all checks, returns their count, and starts anew.
  unsigned long long take() {
    BESIDE_CUDA(cudaGetLastError());
    BESIDE_CUDA(cudaDeviceSynchronize());
    unsigned long long count;
    BESIDE_CUDA(cudaMemcpy(&count, wrong_, sizeof count, cudaMemcpyDeviceToHost));
    BESIDE_CUDA(cudaMemset(wrong_, 0, sizeof count));
    return count;
  }

 private:
  unsigned long long* wrong_ = nullptr;
};

}  // namespace beside
