// Common parts of the models of devices: checks, the words that a host keeps for its kernels, and kernels on threads.
#pragma once

#include <warpbell/kernel.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace model {

using namespace warpbell;

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);
}
inline void check(bool ok, const std::string& what) {
  if (!ok) fail(what);
}

// A time limit that nothing that works exceeds, even on a loaded machine under ThreadSanitizer.
constexpr uint64_t long_enough_ns = 60ull * 1000 * 1000 * 1000;

// The words that an engine's host keeps for its kernels.
struct host_words {
  explicit host_words(uint64_t deadline_ns) {
    ctl.stop = &stop_word;
    ctl.abort = &abort_word;
    ctl.error_log = &log;
    ctl.deadline_ns = deadline_ns;
  }
  host_words(const host_words&) = delete;

  wb_control ctl = {};
  wb_error_log log = {};
  alignas(64) uint32_t stop_word = 0;
  alignas(64) uint32_t abort_word = 0;
};

// Runs a kernel on `blocks` blocks of one warp, all at once.
template <class F> void run(uint32_t blocks, F lane) {
  struct local {
    static void call(void* const* p) { (*static_cast<F*>(p[0]))(); }
  };
  void* parameters[] = {&lane};
  std::vector<std::thread> warps;
  for (uint32_t b = 0; b < blocks; ++b) {
    warps.emplace_back([&, b] { cpu::run_block(&local::call, parameters, b, blocks, warp::width); });
  }
  for (auto& w : warps) w.join();
}

}  // namespace model
