// Who makes a call together: one thread, the threads of a warp, or those of a block.
//
// A call with `by_warp` or `by_block` is collective: all threads of it make it, with the same arguments, and share the work.
// Blocks have one dimension. `any` is a sync, too: it says to all threads of the scope whether one of them said yes.
#pragma once

#include <warpbell/warp.cuh>

namespace warpbell {
namespace scope {

struct thread {
  static WB_FN uint32_t rank() { return 0; }
  static WB_FN uint32_t count() { return 1; }
  static WB_FN void sync() {}
  static WB_FN bool any(bool p) { return p; }
};

struct warp {
  static WB_FN uint32_t rank() { return warpbell::warp::lane(); }
  static WB_FN uint32_t count() { return warpbell::warp::width; }
  static WB_FN void sync() { warpbell::warp::sync(warpbell::warp::full()); }
  static WB_FN bool any(bool p) {
    const bool answer = warpbell::warp::any(warpbell::warp::full(), p);
    sync();
    return answer;
  }
};

struct block {
  static WB_FN uint32_t rank() { return threadIdx.x; }
  static WB_FN uint32_t count() { return blockDim.x; }
  static WB_FN void sync() { __syncthreads(); }
  static WB_FN bool any(bool p) { return __syncthreads_or(p) != 0; }
};

}  // namespace scope

WB_CONST scope::thread by_thread{};
WB_CONST scope::warp by_warp{};
WB_CONST scope::block by_block{};

}  // namespace warpbell
