// Edge sources of graph kernels. Every graph kernel takes an edge source and opens a session on it. The session has
//
//   load(mask, wants, i)                 one edge for each lane of the mask that wants one, at its own index
//   for_each_chunk(mask, first, last, f) the mask walks a range together; f(edge) runs on the lane that holds the edge
//   for_each_chunk_indexed(...)          likewise; calls f(index, edge)
//   any_of(mask, first, last, f)         likewise, until f is true for an edge; the result is the same for the whole mask
//   prefetch(first, count)               hint: the calling lane will read the range soon
//   expect(mask, wants, i)               likewise, with an edge for each lane of the mask that wants one
//   expect_range(mask, first, last)      likewise, with a range for the mask
//   joins_pages()                        true if one command reads several pages
//
// `pointer_source` is memory that loads reach: GPU memory, pinned host memory (zero-copy), or the heap on the CPU engine.
// `array_ref` is an array on NVMe behind the page cache. `packed_source` (packed.cuh) decodes lists that either of them holds; it has no
// `load`, and its runs begin at the start of a list or of a piece, as all runs do (work.cuh).
#pragma once

#include <warpbell/array.cuh>
#include <warpbell/platform.h>
#include <warpbell/warp.cuh>

namespace warpbell {
namespace graph {

// An edge with a weight, as in memory and on the volume: one access reads both.
template <class Id, class Weight> struct alignas(sizeof(Id) + sizeof(Weight)) weighted {
  Id id;
  Weight weight;
};

// Compile-time properties of a session. `stored`: a wait for an edge is a wait for a device. `unroll`: independent loads that a
// lane keeps in flight. `divisible`: a run may begin at any edge.
template <class Session> struct session_traits {
  static constexpr bool stored = true;
  static constexpr uint32_t unroll = 1;
  static constexpr bool divisible = true;
};

// Session on edges in memory that loads reach.
template <class T> class pointer_session {
 public:
  using value_type = T;

  WB_FN explicit pointer_session(const T* base) : base_(base) {}

  WB_FN T load(warp::mask_t, bool wants, uint64_t i) const { return wants ? base_[i] : T{}; }

  template <class F> WB_FN void for_each_chunk(warp::mask_t mask, uint64_t first, uint64_t last, F f) const {
    for_each_chunk_indexed(mask, first, last, [&f](uint64_t, T v) { f(v); });
  }

  template <class F> WB_FN void for_each_chunk_indexed(warp::mask_t mask, uint64_t first, uint64_t last, F f) const {
    const uint32_t lanes = warp::count(mask);
    uint64_t at = start(mask, first);
    for (; at + (unroll - 1) * lanes < last; at += unroll * lanes) {
      T v[unroll];
#pragma unroll
      for (uint32_t u = 0; u < unroll; ++u) v[u] = base_[at + u * lanes];
#pragma unroll
      for (uint32_t u = 0; u < unroll; ++u) f(at + u * lanes, v[u]);
    }
    for (; at < last; at += lanes) f(at, base_[at]);
  }

  template <class F> WB_FN bool any_of(warp::mask_t mask, uint64_t first, uint64_t last, F f) const {
    const uint32_t lanes = warp::count(mask);
    uint64_t at = start(mask, first);
    // No lane begins before `first`, so this is as many rounds as any lane needs, and the whole mask votes in each.
    for (uint64_t round = first; round < last; round += lanes, at += lanes) {
      if (warp::any(mask, at < last && f(base_[at]))) return true;
    }
    return false;
  }

  WB_FN void prefetch(uint64_t, uint64_t) const {}
  WB_FN void expect(warp::mask_t, bool, uint64_t) const {}
  WB_FN void expect_range(warp::mask_t, uint64_t, uint64_t) const {}
  WB_FN bool joins_pages() const { return false; }

 private:
  // Returns the index at which this lane begins, so that the mask's loads fall on whole 128-byte lines: over PCIe one line is one
  // request.
  WB_FN static uint64_t start(warp::mask_t mask, uint64_t first) {
    constexpr uint64_t line = 128 / sizeof(T);
    if (warp::width == 1) return first;
    uint64_t at = (first & ~(line - 1)) + warp::rank(mask);
    while (at < first) at += warp::count(mask);
    return at;
  }

  static constexpr uint32_t unroll = 4;

  const T* base_;
};

template <class T> struct session_traits<pointer_session<T>> {
  static constexpr bool stored = false;
  static constexpr uint32_t unroll = 4;
  static constexpr bool divisible = true;
};

// Edges in memory that loads reach.
template <class T> struct pointer_source {
  const T* base;
  WB_FN pointer_session<T> open() const { return pointer_session<T>(base); }
};

}  // namespace graph
}  // namespace warpbell
