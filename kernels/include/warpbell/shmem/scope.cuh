// Scopes of a call: one thread, the threads of a warp, or those of a block make the call together.
//
// A call with `by_warp` or `by_block` is collective: all threads of the scope make it, with the same arguments, and share the work.
// Blocks have one dimension. `any` also synchronises the threads of the scope: it returns true in all of them if `p` is true in
// one.
#pragma once

#include <warpbell/warp.cuh>

namespace warpbell {
namespace scope {

/// @brief Scope of a call that one thread makes.
struct thread {
  static constexpr uint32_t number = 0;
  static WB_FN uint32_t rank() { return 0; }
  static WB_FN uint32_t count() { return 1; }
  static WB_FN void sync() {}
  static WB_FN bool any(bool p) { return p; }
};

/// @brief Scope of a call that all lanes of a converged warp make.
struct warp {
  static constexpr uint32_t number = 1;
  static WB_FN uint32_t rank() { return warpbell::warp::lane(); }
  static WB_FN uint32_t count() { return warpbell::warp::width; }
  static WB_FN void sync() { warpbell::warp::sync(warpbell::warp::full()); }
  static WB_FN bool any(bool p) {
    const bool answer = warpbell::warp::any(warpbell::warp::full(), p);
    sync();
    return answer;
  }
};

/// @brief Scope of a call that all threads of a block make.
struct block {
  static constexpr uint32_t number = 2;
  static WB_FN uint32_t rank() { return threadIdx.x; }
  static WB_FN uint32_t count() { return blockDim.x; }
  static WB_FN void sync() { __syncthreads(); }
  static WB_FN bool any(bool p) { return __syncthreads_or(p) != 0; }
};

// A scope given by its number, for functions that are called: there is one copy of such a function for all scopes.
struct numbered {
  uint32_t number;

  WB_FN uint32_t rank() const { return number == block::number ? block::rank() : number == warp::number ? warp::rank() : 0; }
  WB_FN uint32_t count() const { return number == block::number ? block::count() : number == warp::number ? warp::count() : 1; }
  WB_FN void sync() const {
    if (number == block::number) block::sync();
    else if (number == warp::number) warp::sync();
  }
  WB_FN bool any(bool p) const { return number == block::number ? block::any(p) : number == warp::number ? warp::any(p) : p; }
};

}  // namespace scope

/// @brief One thread makes the call.
WB_CONST scope::thread by_thread{};
/// @brief All lanes of a converged warp make the call together.
WB_CONST scope::warp by_warp{};
/// @brief All threads of a block make the call together.
WB_CONST scope::block by_block{};

}  // namespace warpbell
