// Walks over the items of a queue, whose lists the warps of a grid share.
#pragma once

#include "work.cuh"

namespace warpbell {
namespace graph {

// Calls f(has, item, run) for this warp's items of a queue, in turns that all lanes take together; `has` is false in a lane without
// an item, whose run is empty. `offset` is that of the lists which `edges` has.
template <class Id, class Session, class F>
WB_FN void for_each_turn(Session& edges, const item<Id>* queue, uint64_t items, const uint64_t* offset, F f) {
  const uint32_t turn = items_per_turn(items);
  const uint64_t stride = static_cast<uint64_t>(warp::total()) * turn;
  // With one lane to a warp no other lane keeps reads in flight: request lists this many turns ahead.
  constexpr uint64_t ahead = session_traits<Session>::stored && warp::width < 32 ? 16 : 0;
  auto prefetch = [&](uint64_t at) {
    const uint64_t k = at + warp::lane();
    if (warp::lane() >= turn || k >= items) return;
    const run r = run_of(queue[k], offset);
    edges.prefetch(r.first, r.count);
  };
  const uint64_t begin = static_cast<uint64_t>(warp::index()) * turn;
  if constexpr (ahead > 0) {
    for (uint64_t i = 0; i < ahead; ++i) prefetch(begin + i * stride);
  }
  for (uint64_t at = begin; at < items; at += stride) {
    if constexpr (ahead > 0) prefetch(at + ahead * stride);
    const uint64_t k = at + warp::lane();
    const bool has = warp::lane() < turn && k < items;
    f(has, has ? queue[k] : item<Id>{0, 0}, has ? run_of(queue[k], offset) : run{0, 0});
  }
}

}  // namespace graph
}  // namespace warpbell
