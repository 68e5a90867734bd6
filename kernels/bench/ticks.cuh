// The clock by which single posts are timed: that of the multiprocessor, or nanoseconds on CPU threads.
#pragma once

#include <warpbell/clock.cuh>

namespace warpbell {
namespace bench {

WB_FN uint64_t post_ticks() {
#if WB_GPU
  return static_cast<uint64_t>(clock64());
#else
  return now_ns();
#endif
}

}  // namespace bench
}  // namespace warpbell
