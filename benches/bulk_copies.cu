// Puts and gets between two GPUs of one host: the library's loads and stores beside the multiprocessors' copy engines, by number of
// multiprocessors and warps and by message size. Each block moves messages of its own to or from the next of its places, one after
// the other. Every byte is verified.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 --expt-relaxed-constexpr -Ikernels/include benches/bulk_copies.cu -o bulk_copies && ./bulk_copies
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <warpbell/bulk.cuh>
#include <warpbell/peer_copy.cuh>
#include <warpbell/shmem/scope.cuh>

using namespace warpbell;

void check(cudaError_t e, int line) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "line %d: %s\n", line, cudaGetErrorString(e));
  std::exit(1);
}
#define CHECK(CALL) check(CALL, __LINE__)

// Of one launch: blocks meet, and the time is from then to the end of the last one.
struct times {
  unsigned long long start = ~0ull, end = 0;
  unsigned arrived = 0;
};

__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
__device__ void begin(times* t) {
  __syncthreads();
  if (threadIdx.x == 0) {
    order::fetch_add<order::acq_rel>(&t->arrived, 1u);
    while (order::load<order::acquire>(&t->arrived) < gridDim.x) {
    }
    atomicMin(&t->start, now());
  }
  __syncthreads();
}

enum means : int { loads, engine, from_shared, shared_by_engine };
const char* const means_names[] = {"loads and stores", "copy engine", "loads of shared memory", "copy engine from shared memory"};

template <bool Put, int M> __global__ void __launch_bounds__(512)
    transfer_messages(uint64_t to, uint64_t from, uint64_t bytes, uint32_t places, uint32_t messages, uint32_t warmup,
                      uint32_t buffer_bytes, times* t) {
  extern __shared__ __align__(128) unsigned char memory[];
  using how = std::conditional_t<Put, transfer::put_words, transfer::get_words>;
  const uint64_t first = blockIdx.x * uint64_t{places} * bytes;
  bulk_buffer through(by_block, memory, M == engine ? buffer_bytes : 0);
  const uint64_t shared = reinterpret_cast<uint64_t>(memory);
  if (M >= from_shared) transfer::move<transfer::get_words>(by_block, shared, from, bytes, 0);
  for (uint32_t timed = 0; timed < 2; ++timed) {
    if (timed) begin(t);
    uint32_t place = 0;
    for (uint32_t i = 0; i < (timed ? messages : warmup); ++i) {
      const uint64_t at = first + place * bytes;
      place = place + 1 == places ? 0 : place + 1;
      if (M == loads) {
        transfer::move<how>(by_block, to + at, from + at, bytes, 0);
      } else if (M == engine) {
        through.copy(by_block, to + at, from + at, bytes);
      } else if (M == from_shared) {
        transfer::move<how>(by_block, to + at, shared, bytes, 0);
      } else {
#if WB_HAS_BULK_COPIES
        order::async::proxy_fence_of_shared();
        __syncthreads();
        in_bulk::put_shared(to + at, shared, bytes, threadIdx.x, blockDim.x);
#endif
      }
    }
    order::fence<order::seq_cst, order::system>();
  }
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(&t->end, now());
  through.release(by_block);
}

__device__ unsigned pattern(uint64_t i, unsigned seed) { return static_cast<unsigned>(i) * 2654435761u + seed; }
__global__ void fill(unsigned* at, uint64_t n, unsigned seed) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < n; i += gridDim.x * blockDim.x) at[i] = pattern(i, seed);
}
// With `period`, each place has the first one's data.
__global__ void differences(const unsigned* at, uint64_t n, uint64_t period, unsigned seed, unsigned long long* wrong) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (at[i] != pattern(period ? i % period : i, seed)) atomicAdd(wrong, 1ull);
  }
}

constexpr uint64_t area = 256 << 20;
struct memory_of {
  unsigned char *here, *peer;
  times* clock;
  unsigned long long* wrong;
};

// Returns GB/s of the median of three runs.
template <bool Put, int M> double measure(const memory_of& m, uint32_t blocks, uint32_t threads, uint64_t bytes, uint32_t buffer_bytes) {
  static unsigned seed = 0;
  const auto kernel = transfer_messages<Put, M>;
  const uint32_t places = static_cast<uint32_t>(std::min<uint64_t>(64, area / bytes / blocks));
  const uint32_t messages = static_cast<uint32_t>(std::clamp<uint64_t>((64 << 20) / bytes, places, 4000));
  const uint32_t shared = M == engine ? buffer_bytes : M >= from_shared ? static_cast<uint32_t>(bytes) : 0;
  unsigned char *to = Put ? m.peer : m.here, *from = Put ? m.here : m.peer;
  const uint64_t words = uint64_t{places} * blocks * bytes / 4;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  std::vector<double> rates;
  for (int run = 0; run < 3; ++run) {
    fill<<<264, 256>>>(reinterpret_cast<unsigned*>(from), words, ++seed);
    CHECK(cudaMemset(to, 0, words * 4));
    const times none;
    times t;
    unsigned long long wrong = 0;
    CHECK(cudaMemcpy(m.clock, &none, sizeof none, cudaMemcpyDefault));
    CHECK(cudaMemset(m.wrong, 0, sizeof wrong));
    CHECK(cudaDeviceSynchronize());
    kernel<<<blocks, threads, shared>>>(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, places, messages,
                                        messages / 10 + 1, buffer_bytes, m.clock);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&t, m.clock, sizeof t, cudaMemcpyDefault));
    differences<<<264, 256>>>(reinterpret_cast<unsigned*>(to), words, M >= from_shared ? bytes / 4 : 0, seed, m.wrong);
    CHECK(cudaMemcpy(&wrong, m.wrong, sizeof wrong, cudaMemcpyDefault));
    if (wrong != 0) {
      std::fprintf(stderr, "%s of %llu bytes by %s: %llu words are wrong\n", Put ? "put" : "get", static_cast<unsigned long long>(bytes),
                   means_names[M], wrong);
      std::exit(1);
    }
    rates.push_back(static_cast<double>(bytes) * messages * blocks / static_cast<double>(t.end - t.start));
  }
  std::sort(rates.begin(), rates.end());
  return rates[1];
}

// Prints a row: loads and stores of 1, 2, 4, 8 and 16 warps, and the engine with one warp and three buffers.
template <bool Put> void row(const memory_of& m, uint32_t blocks, uint64_t bytes) {
  std::printf("%s %4u %9llu", Put ? "put" : "get", blocks, static_cast<unsigned long long>(bytes));
  for (uint32_t threads = 32; threads <= 512; threads *= 2) std::printf(" %6.1f", measure<Put, loads>(m, blocks, threads, bytes, 0));
  for (uint32_t buffer : {48u << 10, 64u << 10, bulk_buffer::best_bytes})
    std::printf(" %7.1f", measure<Put, engine>(m, blocks, 32, bytes, buffer));
  std::printf("\n");
}

int main() {
  int gpus = 0, reaches = 0;
  CHECK(cudaGetDeviceCount(&gpus));
  if (gpus > 1) CHECK(cudaDeviceCanAccessPeer(&reaches, 0, 1));
  if (!reaches) {
    std::fprintf(stderr, "two GPUs with peer access are needed, and there are %d GPUs: run this on a machine with NVLink\n", gpus);
    return 1;
  }
  memory_of m{};
  CHECK(cudaSetDevice(1));
  CHECK(cudaMalloc(&m.peer, area));
  CHECK(cudaSetDevice(0));
  CHECK(cudaDeviceEnablePeerAccess(1, 0));
  CHECK(cudaMalloc(&m.here, area));
  CHECK(cudaMalloc(&m.clock, sizeof *m.clock));
  CHECK(cudaMalloc(&m.wrong, sizeof *m.wrong));
  cudaDeviceProp gpu;
  CHECK(cudaGetDeviceProperties(&gpu, 0));
  std::printf("# %s and its peer; GB/s, the median of 3; each block has its own messages; all data verified\n", gpu.name);
  std::printf("#              loads and stores by warps           engine, 1 warp, buffer of\n");
  std::printf("#    SMs  size(B)      1      2      4      8     16     48k     64k    128k\n");
  for (uint64_t bytes : {4096ull, 8192ull, 16384ull, 32768ull, 65536ull, 262144ull, 1048576ull, 16777216ull}) row<true>(m, 1, bytes);
  for (uint64_t bytes : {4096ull, 8192ull, 16384ull, 32768ull, 65536ull, 262144ull, 1048576ull, 16777216ull}) row<false>(m, 1, bytes);
  for (uint32_t blocks : {2u, 4u, 6u, 7u, 8u, 9u, 12u, 16u}) row<true>(m, blocks, 1 << 20);
  for (uint32_t blocks : {2u, 4u, 6u, 7u, 8u, 9u, 12u, 16u}) row<false>(m, blocks, 1 << 20);
  std::printf(
      "# puts from shared memory by one multiprocessor: loads and stores, then the engine\n#   size(B)    1 thread         1 warp        8 "
      "warps\n");
  for (uint64_t bytes : {1024ull, 4096ull, 16384ull, 32768ull}) {
    std::printf("  %9llu", static_cast<unsigned long long>(bytes));
    for (uint32_t threads : {1u, 32u, 256u}) {
      std::printf("  %6.1f %6.1f", measure<true, from_shared>(m, 1, threads, bytes, 0),
                  measure<true, shared_by_engine>(m, 1, threads, bytes, 0));
    }
    std::printf("\n");
  }
  return 0;
}
