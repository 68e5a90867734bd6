// Distances and queues of shortest paths (sssp.cu).
//
// Distances are compared and lowered as unsigned words: integers as they are, real distances by the bits of a non-negative double,
// which order as the numbers do.
#pragma once

#include <string.h>

#include "work.cuh"

namespace warpbell {
namespace graph {

// Returns distance + weight, on words.
WB_FN uint32_t lengthen(uint32_t distance, uint32_t weight) { return distance + weight; }
WB_FN uint64_t lengthen(uint64_t distance, uint32_t weight) { return distance + weight; }
WB_FN uint64_t lengthen(uint64_t distance, uint64_t weight) { return distance + weight; }
WB_FN uint64_t lengthen(uint64_t distance, double weight) {
  double d;
  memcpy(&d, &distance, sizeof d);
  d += weight;
  memcpy(&distance, &d, sizeof d);
  return distance;
}
WB_FN uint64_t lengthen(uint64_t distance, float weight) { return lengthen(distance, static_cast<double>(weight)); }

// A kernel's view of its parameters. `Word` holds a distance.
template <class Id, class Word> struct sssp_view {
  WB_FN explicit sssp_view(const wb_sssp& p)
      : offset(p.offset),
        distance(static_cast<Word*>(p.distance)),
        relaxed(static_cast<Word*>(p.relaxed)),
        stamp(p.stamp),
        in_far(p.in_far),
        near_next(static_cast<item<Id>*>(p.near_next) + p.near_held),
        parent(static_cast<Id*>(p.parent)),
        sums(p.sums),
        first(p.first),
        own(p.last - p.first),
        has_all(p.claims.capacity == 0) {}

  // Returns true if the vertex has its list here.
  WB_FN bool is_own(uint64_t v) const { return v - first < own; }

  WB_FN void push_near(Id v) const { push(near_next, &sums->sum[WB_SSSP_NEAR], v, offset[v], offset[static_cast<uint64_t>(v) + 1]); }

  // Queues an own vertex whose distance was lowered.
  WB_FN void queue(const wb_sssp& p, Id* far, Id v, Word distance, uint64_t& least) const {
    if (distance < p.threshold) {
      if (order::exchange<order::relaxed>(&stamp[v], p.round) != p.round) push_near(v);
      return;
    }
    if (distance < least) least = distance;
    const uint32_t bit = 1u << (v % 32);
    if (!(order::fetch_or<order::relaxed>(&in_far[v / 32], bit) & bit)) push_far(far, p.far_items, v);
  }

  // Notes a vertex for the PE that has its list, once in a round.
  WB_FN void claim(const wb_sssp& p, Id v) const {
    if (order::exchange<order::relaxed>(&stamp[v], p.round) == p.round) return;
    const uint64_t* firsts = p.claims.first;
    // PEs have the same number of vertices, or one less or more.
    uint32_t pe = static_cast<uint32_t>(static_cast<uint64_t>(v) / p.claims.capacity);
    while (v >= firsts[pe + 1]) ++pe;
    uint64_t* count = p.claims.count;
    const uint64_t at = order::fetch_add<order::relaxed>(&count[pe], uint64_t{1});
    static_cast<Id*>(p.claims.outbox)[firsts[pe] + at] = v;
  }

  // Returns true if the item was not relaxed yet with its vertex's distance, and records that it is now. A vertex that is lowered
  // before its turn in a round is queued once more for the next one, where it has nothing new. Without memory for that, all items are
  // relaxed. One lane has the item.
  WB_FN bool is_current(item<Id> it, Word d) const {
    if (!relaxed) return true;
    // The pieces of a list begin in tiles of their own, except the first.
    Word* at = &relaxed[it.vertex + offset[it.vertex] / piece_edges + it.piece];
    if (*at == d) return false;
    *at = d;
    return true;
  }

  // Appends a vertex to a far queue that already holds `held` entries.
  WB_FN void push_far(Id* queue, uint64_t held, Id v) const {
    const warp::mask_t here = warp::active();
    uint64_t at = 0;
    if (warp::is_leader(here)) at = order::fetch_add<order::relaxed>(&sums->sum[WB_SSSP_FAR], static_cast<uint64_t>(warp::count(here)));
    queue[held + warp::shuffle(here, at, warp::leader(here)) + warp::rank(here)] = v;
  }

  WB_FN void finish(const wb_sssp& p, uint64_t scanned, uint64_t lowered, uint64_t least, uint64_t bad) const {
    add_count(sums, WB_SSSP_SCANNED, scanned);
    add_count(sums, WB_SSSP_LOWERED, lowered);
    add_count(sums, WB_GRAPH_BAD_EDGES, bad);
    lower_least(sums, least);
    publish(sums, p.report);
  }

  const uint64_t* offset;
  Word* distance;
  Word* relaxed;
  uint32_t* stamp;
  uint32_t* in_far;
  item<Id>* near_next;
  Id* parent;
  wb_graph_counters* sums;
  uint64_t first, own;
  bool has_all;
};

}  // namespace graph
}  // namespace warpbell
