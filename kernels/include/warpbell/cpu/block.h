// Runs one block of a kernel on CPU threads: one thread for each lane, all of them at once.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "functions.h"

namespace warpbell {
namespace cpu {

// Runs block `block` of `blocks`, with `threads` lanes; on the calling thread if the block has one lane. The host calls this once
// for each block of a grid, from as many threads as there are blocks. So blocks run concurrently, and kernels whose blocks wait for
// each other make progress.
inline void run_block(void (*call)(void* const*), void* const* parameters, uint32_t block, uint32_t blocks, uint32_t threads) {
  block_state state(threads);
  uint32_t warps = (threads + WB_WARP_WIDTH - 1) / WB_WARP_WIDTH;
  std::unique_ptr<warp_state[]> warp(new warp_state[warps]);
  auto lane = [&](uint32_t t) {
    threadIdx.x = t;
    blockIdx.x = block;
    blockDim.x = threads;
    gridDim.x = blocks;
    here() = place{t % WB_WARP_WIDTH, block, &warp[t / WB_WARP_WIDTH], &state};
    call(parameters);
  };
  if (threads == 1) {
    lane(0);
    return;
  }
  std::vector<std::thread> others;
  others.reserve(threads);
  for (uint32_t t = 0; t < threads; ++t) others.emplace_back(lane, t);
  for (auto& t : others) t.join();
}

}  // namespace cpu
}  // namespace warpbell
