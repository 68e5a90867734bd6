// Kernels of single-source shortest paths with a near queue and a far one (Davidson, Baxter, Garland, Owens: Work-Efficient
// Parallel GPU Methods for Single-Source Shortest Paths, IPDPS 2014), which is delta-stepping (Meyer, Sanders, 2003) with two
// buckets. Launch shape: any grid of blocks of up to 256 threads, one launch for each step.
#include <warpbell/kernel.h>

#include "sssp.cuh"
#include "walk.cuh"

namespace warpbell {
namespace graph {

// Sets all distances to infinity except the source's, which is 0 and becomes the near queue.
template <class Id, class Word> WB_FN void sssp_start(const wb_sssp& p) {
  const sssp_view<Id, Word> g(p);
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    g.distance[v] = v == p.source ? 0 : static_cast<Word>(~Word{0});
    g.stamp[v] = ~0u;
    if (v % 32 == 0) g.in_far[v / 32] = 0;
  }
  const uint64_t items = g.relaxed ? p.vertices + g.offset[p.vertices] / piece_edges + 1 : 0;
  const share r(items);
  for (uint64_t i = r.first; i < r.end; i += r.step) g.relaxed[i] = static_cast<Word>(~Word{0});
  if (warp::thread_index() == 0 && g.is_own(p.source)) g.push_near(static_cast<Id>(p.source));
  g.finish(p, 0, 0, ~uint64_t{0}, 0);
}

// Calls visit(tag, edge) for every edge of the near queue's items. `tag_of(item, wanted)` returns what belongs to an item, and clears
// `wanted` if the item's edges are not to be read. Returns the number of edges that this lane's items have.
template <class Id, class Source, class TagOf, class Visit>
WB_FN uint64_t walk_near(const wb_sssp& p, const uint64_t* offset, const Source& source, uint64_t& bad, TagOf tag_of, Visit visit) {
  const item<Id>* queue = static_cast<const item<Id>*>(p.near);
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  uint64_t scanned = 0;
  for_each_turn(edges, queue, p.near_items, offset, [&](bool has, item<Id> it, run r) {
    decltype(tag_of(it, has)) tag{};
    if (has) tag = tag_of(it, has);
    if (!has) r.count = 0;
    scanned += r.count;
    for_each_edge(edges, reader, r.first, r.count, tag, [&](auto t, typename decltype(edges)::value_type e) {
      if (is_valid_edge(edges, e.id, p.vertices, bad)) visit(t, e);
    });
  });
  return scanned;
}

// Relaxes all edges of the near queue once.
template <class Id, class Weight, class Word, class Source> WB_FN void sssp_relax(const wb_sssp& p, const Source& source) {
  const sssp_view<Id, Word> g(p);
  Id* far = static_cast<Id*>(p.far);
  uint64_t lowered = 0, least = ~uint64_t{0}, bad = 0;
  const auto distance_of = [&](item<Id> it, bool& wanted) {
    const Word d = order::load<order::relaxed>(&g.distance[it.vertex]);
    wanted = g.is_current(it, d);
    return d;
  };
  const uint64_t scanned = walk_near<Id>(p, g.offset, source, bad, distance_of, [&](Word d, weighted<Id, Weight> e) {
    const Word through = lengthen(d, e.weight);
    if (through >= order::load<order::relaxed>(&g.distance[e.id])) return;
    if (through >= order::fetch_min<order::relaxed>(&g.distance[e.id], through)) return;
    if (!g.is_own(e.id)) return g.claim(p, e.id);
    ++lowered;
    g.queue(p, far, e.id, through, least);
  });
  g.finish(p, scanned, lowered, least, bad);
}

// Splits the far queue by a new threshold: vertices settled meanwhile are dropped, vertices that are near now move, the rest stays.
template <class Id, class Word> WB_FN void sssp_split(const wb_sssp& p) {
  const sssp_view<Id, Word> g(p);
  const Id* far = static_cast<const Id*>(p.far);
  Id* far_next = static_cast<Id*>(p.far_next);
  uint64_t least = ~uint64_t{0};
  for (uint64_t i = warp::thread_index(); i < p.far_items; i += warp::thread_total()) {
    const Id v = far[i];
    const Word d = g.distance[v];
    if (d >= p.threshold) {
      if (d < least) least = d;
      g.push_far(far_next, 0, v);
      continue;
    }
    order::fetch_and<order::relaxed>(&g.in_far[v / 32], ~(1u << (v % 32)));
    if (d >= p.settled) g.push_near(v);
  }
  g.finish(p, 0, 0, least, 0);
}

// Makes vertices beyond the largest distance unreached.
template <class Id, class Word> WB_FN void sssp_cut(const wb_sssp& p) {
  const sssp_view<Id, Word> g(p);
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    if (g.distance[v] > p.threshold) g.distance[v] = static_cast<Word>(~Word{0});
  }
  g.finish(p, 0, 0, ~uint64_t{0}, 0);
}

// --- parents ---------------------------------------------------------------------------------------------------------
//
// An edge is tight if it gives its end the distance that the end has. In round 0, all tight edges that lead away from the source
// propose their start as the parent of their end, and the smallest proposal wins. These parents are nearer than their vertices, so
// they form no circle. Vertices that remain are behind edges of length 0 (or so short that the sum is rounded to the same distance).
// They are searched from vertices that have a parent, and each takes the vertex that finds it first.

// Queues the own vertices whose edges the next step reads: in round 0 all that were reached, afterwards those that have a parent and were
// not queued yet.
template <class Id, class Word> WB_FN void sssp_spread(const wb_sssp& p) {
  const sssp_view<Id, Word> g(p);
  constexpr Id none = static_cast<Id>(~Id{0});
  uint64_t open = 0;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    if (p.round == 0) {
      g.parent[v] = v == p.source ? static_cast<Id>(v) : none;
      if (v % 32 == 0) g.in_far[v / 32] = 0;
    }
    if (!g.is_own(v) || g.distance[v] == static_cast<Word>(~Word{0})) continue;
    if (p.round == 0) {
      g.push_near(static_cast<Id>(v));
    } else if (g.parent[v] == none) {
      ++open;
    } else if (!(order::fetch_or<order::relaxed>(&g.in_far[v / 32], 1u << (v % 32)) >> (v % 32) & 1)) {
      g.push_near(static_cast<Id>(v));
    }
  }
  add_count(g.sums, WB_SSSP_OPEN, open);
  g.finish(p, 0, 0, ~uint64_t{0}, 0);
}

// Reads all edges of the near queue, and takes their starts as parents.
template <class Id, class Weight, class Word, class Source> WB_FN void sssp_parents(const wb_sssp& p, const Source& source) {
  const sssp_view<Id, Word> g(p);
  uint64_t bad = 0;
  const auto vertex_of = [&](item<Id> it, bool&) { return it.vertex; };
  const uint64_t scanned = walk_near<Id>(p, g.offset, source, bad, vertex_of, [&](Id u, weighted<Id, Weight> e) {
    const Word from = g.distance[u], to = g.distance[e.id];
    if (lengthen(from, e.weight) != to) return;
    Id* parent = &g.parent[e.id];
    if (p.round == 0) {
      if (from < to && u < order::load<order::relaxed>(parent)) order::fetch_min<order::relaxed>(parent, u);
    } else if (from == to) {
      // The start has its parent, and no vertex that has one gets another, so that parents lead back to the source.
      const Id none = static_cast<Id>(~Id{0});
      // Where other PEs have found parents too, all agree on one before the vertex is queued.
      if (order::load<order::relaxed>(parent) == none && order::compare_exchange<order::relaxed>(parent, none, u) == none && g.has_all)
        g.push_near(e.id);
    }
  });
  g.finish(p, scanned, 0, ~uint64_t{0}, bad);
}

}  // namespace graph
}  // namespace warpbell

#define WB_SSSP_MEMORY(ID, WORD, SUFFIX)                                                                     \
  WB_GRAPH_KERNEL wb_sssp_start_##SUFFIX(WB_PARAM wb_sssp p) { warpbell::graph::sssp_start<ID, WORD>(p); }   \
  WB_EXPORT(wb_sssp_start_##SUFFIX)                                                                          \
  WB_GRAPH_KERNEL wb_sssp_split_##SUFFIX(WB_PARAM wb_sssp p) { warpbell::graph::sssp_split<ID, WORD>(p); }   \
  WB_EXPORT(wb_sssp_split_##SUFFIX)                                                                          \
  WB_GRAPH_KERNEL wb_sssp_cut_##SUFFIX(WB_PARAM wb_sssp p) { warpbell::graph::sssp_cut<ID, WORD>(p); }       \
  WB_EXPORT(wb_sssp_cut_##SUFFIX)                                                                            \
  WB_GRAPH_KERNEL wb_sssp_spread_##SUFFIX(WB_PARAM wb_sssp p) { warpbell::graph::sssp_spread<ID, WORD>(p); } \
  WB_EXPORT(wb_sssp_spread_##SUFFIX)

#define WB_SSSP_EDGES(WHAT, ID, WEIGHT, WORD, SUFFIX, WHERE, SOURCE)                                                                      \
  WB_GRAPH_KERNEL wb_sssp_##WHAT##_##WHERE##_##SUFFIX(WB_PARAM wb_sssp p, WB_PARAM SOURCE<warpbell::graph::weighted<ID, WEIGHT>> edges) { \
    warpbell::graph::sssp_##WHAT<ID, WEIGHT, WORD>(p, edges);                                                                             \
  }                                                                                                                                       \
  WB_EXPORT(wb_sssp_##WHAT##_##WHERE##_##SUFFIX)

#define WB_SSSP_BOTH(ID, WEIGHT, WORD, SUFFIX)                                               \
  WB_SSSP_EDGES(relax, ID, WEIGHT, WORD, SUFFIX, pointer, warpbell::graph::pointer_source)   \
  WB_SSSP_EDGES(relax, ID, WEIGHT, WORD, SUFFIX, storage, warpbell::array_ref)               \
  WB_SSSP_EDGES(parents, ID, WEIGHT, WORD, SUFFIX, pointer, warpbell::graph::pointer_source) \
  WB_SSSP_EDGES(parents, ID, WEIGHT, WORD, SUFFIX, storage, warpbell::array_ref)

#define WB_SSSP_PACKED(WHAT, WEIGHT, WORD, SUFFIX, WHERE, SOURCE)                                                                   \
  WB_GRAPH_KERNEL wb_sssp_##WHAT##_packed_##WHERE##_##SUFFIX(WB_PARAM wb_sssp p, WB_PARAM SOURCE words, const uint64_t* position) { \
    using edge = warpbell::graph::weighted<uint32_t, WEIGHT>;                                                                       \
    warpbell::graph::sssp_##WHAT<uint32_t, WEIGHT, WORD>(p, warpbell::graph::packed_source<edge, SOURCE>{words, position});         \
  }                                                                                                                                 \
  WB_EXPORT(wb_sssp_##WHAT##_packed_##WHERE##_##SUFFIX)

#define WB_SSSP_BOTH_PACKED(WEIGHT, WORD, SUFFIX)                                                   \
  WB_SSSP_PACKED(relax, WEIGHT, WORD, SUFFIX, pointer, warpbell::graph::pointer_source<uint32_t>)   \
  WB_SSSP_PACKED(relax, WEIGHT, WORD, SUFFIX, storage, warpbell::array_ref<uint32_t>)               \
  WB_SSSP_PACKED(parents, WEIGHT, WORD, SUFFIX, pointer, warpbell::graph::pointer_source<uint32_t>) \
  WB_SSSP_PACKED(parents, WEIGHT, WORD, SUFFIX, storage, warpbell::array_ref<uint32_t>)

// Arguments: identifier, distance word; and identifier, weight, distance word.
WB_SSSP_MEMORY(uint32_t, uint32_t, u32_d32)
WB_SSSP_MEMORY(uint32_t, uint64_t, u32_d64)
WB_SSSP_MEMORY(uint64_t, uint64_t, u64_d64)
WB_SSSP_BOTH(uint32_t, uint32_t, uint32_t, u32_w32_d32)
WB_SSSP_BOTH(uint32_t, uint32_t, uint64_t, u32_w32_d64)
WB_SSSP_BOTH(uint32_t, float, uint64_t, u32_f32_d64)
WB_SSSP_BOTH(uint64_t, uint64_t, uint64_t, u64_w64_d64)
WB_SSSP_BOTH(uint64_t, double, uint64_t, u64_f64_d64)
WB_SSSP_BOTH_PACKED(uint32_t, uint32_t, u32_w32_d32)
WB_SSSP_BOTH_PACKED(uint32_t, uint64_t, u32_w32_d64)
WB_SSSP_BOTH_PACKED(float, uint64_t, u32_f32_d64)
