// Launches a kernel on CPU threads from a program that has the kernel as a function: the counterpart of <<<>>>.
//
// Engines launch kernels of images by themselves. This is for programs that launch their own (bindings/c/include/warpbell/launch.cuh).
#pragma once

#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "block.h"

namespace warpbell {
namespace cpu {

/// @brief Runs a kernel with `blocks` blocks of `threads` threads each, and waits for its end. Blocks run concurrently.
///
/// @param blocks Number of blocks, at least 1: as many CPU threads, and more with more than one thread a block.
/// @param threads Threads in each block, a multiple of WB_WARP_WIDTH.
/// @param kernel The kernel.
/// @param arguments Its parameters, which are converted to their types.
template <class... P, class... A> void launch(uint32_t blocks, uint32_t threads, void (*kernel)(P...), A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
  std::tuple<std::remove_cv_t<P>...> values(std::forward<A>(arguments)...);
  auto body = [kernel, &values] { std::apply(kernel, values); };
  void* const parameters[] = {&body};
  void (*const call)(void* const*) = [](void* const* p) { (*static_cast<decltype(body)*>(p[0]))(); };
  std::vector<std::thread> running;
  running.reserve(blocks);
  for (uint32_t b = 0; b < blocks; ++b) running.emplace_back([&, b] { run_block(call, parameters, b, blocks, threads); });
  for (std::thread& t : running) t.join();
}

}  // namespace cpu
}  // namespace warpbell
