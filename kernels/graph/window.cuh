// Memory in which the lanes of a warp keep words that they have copied together, so that each of them reaches any word at once. Words of
// storage or of pinned memory come as whole lines then, many at a time.
#pragma once

#include <warpbell/warp.cuh>

#include "params.h"

namespace warpbell {
namespace graph {

// Words of a window. 1,056 have room for any block of packed lists without weights; the windows of four blocks of threads take 132 KiB of a
// multiprocessor's memory then. Those of generations that have less are smaller, and hold most blocks. So are those of four lanes: tests
// with them go through blocks part by part.
#if WB_GPU && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr uint32_t window_words = 448;
#elif WB_GPU && defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
constexpr uint32_t window_words = 736;
#else
constexpr uint32_t window_words = warp::width == 4 ? 128 : 1056;
#endif

// The window of the calling warp. On a GPU all windows of a warp are the same memory: a walk that uses one ends before another begins.
class window {
 public:
  // All lanes of the warp call this.
  WB_FN window() {
#if WB_GPU
    __shared__ uint32_t of_warps[WB_GRAPH_BLOCK_THREADS / warp::width][window_words];
    words_ = of_warps[threadIdx.x / warp::width];
#else
    if constexpr (warp::width > 1) words_ = warp::shuffle(warp::full(), own_, 0);
#endif
  }
  window(const window&) = delete;
  window& operator=(const window&) = delete;

  WB_FN uint32_t operator[](uint32_t i) const { return words_[i]; }

  // Copies words from..to of the session `source` to place `at` and the places behind it, which the window has. All lanes call this.
  // Words that cannot be read leave their places as they were: the run has failed then.
  template <class Session> WB_FN void copy(Session& source, uint64_t from, uint64_t to, uint32_t at) {
    uint32_t* place = words_ + at;
    warp::sync(warp::full());  // nobody reads what was there
    source.for_each_chunk_indexed(warp::full(), from, to, [=](uint64_t i, uint32_t word) { place[i - from] = word; });
    warp::sync(warp::full());
  }

 private:
  uint32_t* words_;
#if !WB_GPU
  uint32_t own_[warp::width > 1 ? window_words : 1];  // the first lane's is the warp's
#endif
};

}  // namespace graph
}  // namespace warpbell
