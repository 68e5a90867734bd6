// Several PEs in one program, for stress tests of kernels that exchange data: their symmetric heaps, and their blocks as threads.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace pes {

constexpr uint32_t blocks = warpbell::warp::width == 32 ? 1 : 2;
constexpr uint32_t threads = warpbell::warp::width == 1 ? 1 : 2 * warpbell::warp::width;

struct alignas(128) line {
  unsigned char bytes[128];
};

// Places in the symmetric heap, in whole lines so that everything in it is aligned.
struct places {
  uint64_t lines = 0;

  // Returns the offset of a place.
  uint64_t take(uint64_t bytes) {
    const uint64_t here = lines;
    lines += (bytes + sizeof(line) - 1) / sizeof(line);
    return here * sizeof(line);
  }
};

// Calls kernel(pe) as each PE's kernel, all at once; each block is a set of threads.
inline void run(uint32_t count, const std::function<void(uint32_t)>& kernel) {
  std::vector<std::thread> all;
  std::vector<std::function<void()>> bodies(count);
  std::vector<void*> parameters(count);
  const auto call = [](void* const* given) { (*static_cast<std::function<void()>*>(given[0]))(); };
  for (uint32_t k = 0; k < count; ++k) {
    bodies[k] = [&kernel, k] { kernel(k); };
    parameters[k] = &bodies[k];
  }
  for (uint32_t k = 0; k < count; ++k) {
    for (uint32_t b = 0; b < blocks; ++b) {
      all.emplace_back([&, k, b] { warpbell::cpu::run_block(call, &parameters[k], b, blocks, threads); });
    }
  }
  for (auto& t : all) t.join();
}

}  // namespace pes
