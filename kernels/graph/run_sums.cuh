// Sums over the runs of edges of a warp's lanes.
#pragma once

#include "work.cuh"

namespace warpbell {
namespace graph {

// Returns the sum of `value(edge)` over this lane's run of edges. All lanes of the warp call this; a lane without work has count 0.
template <class Session, class Value>
WB_FN double sum_of_run(Session& edges, [[maybe_unused]] run_reader<Session>& reader, uint64_t first, uint32_t count, Value value) {
  using T = typename Session::value_type;
  const warp::mask_t all = warp::full();
  double own = 0;
  if constexpr (warp::width == 1) {
    // Two sums in turn: an addition takes several cycles, and the next one need not wait for it.
    double last = 0;
    if (count) {
      reader.for_each(first, first + count, [&](T n) {
        const double next = last + value(n);
        last = own;
        own = next;
      });
    }
    own += last;
  } else {
    for (warp::mask_t longs = warp::ballot(all, count >= long_list); longs; longs &= longs - 1) {
      const uint32_t from = warp::first(longs);
      const uint64_t begin = warp::shuffle(all, first, from);
      const uint32_t n = warp::shuffle(all, count, from);
      double part = 0;
      edges.for_each_chunk(all, begin, begin + n, [&](T e) { part += value(e); });
      part = warp::sum(all, part);
      if (warp::lane() == from) own = part;
    }
    const bool is_short = count != 0 && count < long_list;
    const lane_runs runs(first, is_short ? count : 0);
    run_edges<Session> at(edges, first, is_short);
    constexpr uint32_t unroll = session_traits<Session>::unroll;
    for (uint32_t round = 0; round < runs.total(); round += unroll * warp::width) {
      typename run_edges<Session>::fetched v[unroll]{};
      uint32_t owner[unroll];
      fetch_rounds(runs, at, round, v, owner);
      double c[unroll];
#pragma unroll
      for (uint32_t u = 0; u < unroll; ++u) {
        const T edge = at.value(runs, round + u * warp::width, owner[u], v[u]);
        c[u] = round + u * warp::width + warp::lane() < runs.total() ? static_cast<double>(value(edge)) : 0.0;
      }
#pragma unroll
      for (uint32_t u = 0; u < unroll; ++u) {
        // A running sum that restarts with every owner. The owner takes the sum at its last position.
        for (uint32_t d = 1; d < warp::width; d *= 2) {
          const uint32_t back = (warp::lane() + warp::width - d) % warp::width;
          const double before = warp::shuffle(all, c[u], back);
          const uint32_t whose = warp::shuffle(all, owner[u], back);
          if (warp::lane() >= d && whose == owner[u]) c[u] += before;
        }
        const warp::mask_t mine = runs.mine(round + u * warp::width);
        const double part = warp::shuffle(all, c[u], mine ? warp::first(mine) + warp::count(mine) - 1 : warp::lane());
        if (mine) own += part;
      }
    }
  }
  return own;
}

}  // namespace graph
}  // namespace warpbell
