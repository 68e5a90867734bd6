// Kernels of strongly connected components by colours (Orzan, On Distributed Verification and Verified Distribution, 2004), from a
// well-connected pivot first (Slota, Rajamanickam, Madduri: BFS and Coloring-Based Parallel Algorithms for Strongly Connected
// Components, IPDPS 2014). Launch shape: any grid of blocks of up to 256 threads, one launch for each step.
//
// In each round a colour spreads along out-edges from every vertex that has no component yet, and the least one wins. A vertex that
// keeps its own colour is a root: the vertices of its colour from which it can be reached are its component. A random order of the
// colours, another one in each round, makes the number of rounds logarithmic on long chains of components. Vertices of different
// colours are in different components, so later rounds only look at edges between vertices of one colour, their group.
#include <warpbell/kernel.h>

#include "walk.cuh"

namespace warpbell {
namespace graph {

// A bijection that scatters vertices (the finalisers of lowbias32 by Wellons and of SplitMix64 by Stafford), so that no two
// vertices have the same colour.
WB_FN uint32_t scattered(uint32_t v, uint32_t seed) {
  v += seed * 0x9e3779b9u;
  v = (v ^ v >> 16) * 0x7feb352du;
  v = (v ^ v >> 15) * 0x846ca68bu;
  return v ^ v >> 16;
}
WB_FN uint64_t scattered(uint64_t v, uint32_t seed) {
  v += seed * 0x9e3779b97f4a7c15ull;
  v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
  v = (v ^ v >> 27) * 0x94d049bb133111ebull;
  return v ^ v >> 31;
}

// A kernel's view of its parameters.
template <class Id> struct strong_view {
  WB_FN explicit strong_view(const wb_strong& p)
      : offset(p.offset),
        root(static_cast<Id*>(p.root)),
        group(static_cast<Id*>(p.group)),
        colour(static_cast<Id*>(p.colour)),
        stamp(p.stamp),
        leaves(p.leaves),
        entered(p.entered),
        found(static_cast<item<Id>*>(p.queue_next)),
        sums(p.sums),
        pivot(p.pivot),
        seed(p.seed) {}

  static constexpr Id none = static_cast<Id>(~Id{0});

  WB_FN bool is_open(uint64_t v) const { return order::load<order::relaxed>(&root[v]) == none; }

  WB_FN void enqueue(Id v) const { push(found, &sums->sum[WB_STRONG_ITEMS], v, offset[v], offset[static_cast<uint64_t>(v) + 1]); }

  WB_FN static bool has(const uint32_t* bitmap, uint64_t v) { return order::load<order::relaxed>(&bitmap[v / 32]) >> (v % 32) & 1u; }
  WB_FN static void mark(uint32_t* bitmap, uint64_t v) {
    if (!has(bitmap, v)) order::fetch_or<order::relaxed>(&bitmap[v / 32], 1u << (v % 32));
  }

  WB_FN void finish(const wb_strong& p, uint64_t found_roots, uint64_t scanned, uint64_t bad) const {
    add_count(sums, WB_STRONG_FOUND, found_roots);
    add_count(sums, WB_STRONG_SCANNED, scanned);
    add_count(sums, WB_GRAPH_BAD_EDGES, bad);
    publish(sums, p.report);
  }

  const uint64_t* offset;
  Id* root;
  Id* group;
  Id* colour;
  uint32_t* stamp;
  uint32_t* leaves;
  uint32_t* entered;
  item<Id>* found;
  wb_graph_counters* sums;
  uint64_t pivot;
  uint32_t seed;
};

// Makes every vertex without out-edges or without in-edges its own component. Finds the best connected of the others, the pivot:
// the one with the most edges in the direction in which it has fewer.
template <class Id> WB_FN void strong_start(const wb_strong& p) {
  const strong_view<Id> g(p);
  const uint64_t* in_offset = p.in_offset;
  const uint64_t most = ~uint64_t{0} >> p.vertex_bits;
  uint64_t alone = 0, best = ~uint64_t{0};
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    const uint64_t out = g.offset[v + 1] - g.offset[v], in = in_offset[v + 1] - in_offset[v];
    const uint64_t fewer = out < in ? out : in;
    g.root[v] = fewer ? g.none : static_cast<Id>(v);
    g.group[v] = 0;
    g.colour[v] = 0;
    g.stamp[v] = ~0u;
    alone += fewer == 0;
    const uint64_t word = (most - (fewer < most ? fewer : most)) << p.vertex_bits | v;
    if (fewer && word < best) best = word;
  }
  for (uint32_t d = warp::width / 2; d; d /= 2) {
    const uint64_t other = warp::shuffle(warp::full(), best, warp::lane() ^ d);
    if (other < best) best = other;
  }
  if (best != ~uint64_t{0} && warp::lane() == 0) order::fetch_min<order::relaxed>(&g.sums->least, best);
  g.finish(p, alone, 0, 0);
}

// Begins a round. The colours of the round before become groups. Every open vertex gets a colour of its own and is queued. If there
// is a pivot, only the pivot is.
template <class Id> WB_FN void strong_begin(const wb_strong& p) {
  const strong_view<Id> g(p);
  uint64_t degrees = 0;
  push_words(p.vertices, g.found, &g.sums->sum[WB_STRONG_ITEMS], g.offset, degrees, [&](uint64_t w) {
    g.leaves[w] = g.entered[w] = 0;
    uint32_t queued = 0;
    for (uint32_t bit = 0; bit < 32 && w * 32 + bit < p.vertices; ++bit) {
      const uint64_t v = w * 32 + bit;
      g.group[v] = g.colour[v];
      const bool open = g.root[v] == g.none;
      const bool starts = open && (g.pivot == p.vertices || g.pivot == v);
      // No colour is less than 0, so none spreads to vertices that have their component.
      if (g.pivot == p.vertices) g.colour[v] = open ? scattered(static_cast<Id>(v), g.seed) : Id{0};
      else g.colour[v] = open && !starts ? g.none : Id{0};
      queued |= static_cast<uint32_t>(starts) << bit;
    }
    return queued;
  });
  g.finish(p, 0, 0, 0);
}

// Spreads the colours of the queue's vertices along their out-edges. The first step of a round sees all edges, and marks the
// vertices that such an edge of their group leaves or enters.
template <class Id, class Source> WB_FN void strong_spread(const wb_strong& p, const Source& source) {
  const strong_view<Id> g(p);
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  const bool marks = p.marks != 0;
  uint64_t scanned = 0, bad = 0;
  for_each_turn(edges, static_cast<const item<Id>*>(p.queue), p.items, g.offset, [&](bool, item<Id> it, run r) {
    scanned += r.count;
    for_each_edge(edges, reader, r.first, r.count, it.vertex, [&](Id u, Id n) {
      if (n == u || !is_valid_edge(edges, n, p.vertices, bad)) return;
      const Id colour = order::load<order::relaxed>(&g.colour[u]);
      const bool lowers = colour < order::load<order::relaxed>(&g.colour[n]);
      if ((!lowers && !marks) || g.group[n] != g.group[u] || !g.is_open(n)) return;
      if (marks) {
        g.mark(g.leaves, u);
        g.mark(g.entered, n);
      }
      if (!lowers || colour >= order::fetch_min<order::relaxed>(&g.colour[n], colour)) return;
      if (order::exchange<order::relaxed>(&g.stamp[n], p.round) != p.round) g.enqueue(n);
    });
  });
  g.finish(p, 0, scanned, bad);
}

// Queues the roots. An open vertex that no edge of its group leaves, or that none enters, is its own component.
template <class Id> WB_FN void strong_roots(const wb_strong& p) {
  const strong_view<Id> g(p);
  uint64_t found = 0;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    if (g.root[v] != g.none) continue;
    const bool all = g.pivot == p.vertices;
    const bool alone = all && !(g.has(g.leaves, v) && g.has(g.entered, v));
    const bool is_root = all ? g.colour[v] == scattered(static_cast<Id>(v), g.seed) : g.pivot == v;
    if (!alone && !is_root) continue;
    g.root[v] = static_cast<Id>(v);
    ++found;
    if (!alone) g.enqueue(static_cast<Id>(v));
  }
  g.finish(p, found, 0, 0);
}

// Adds the in-neighbours of the queue's vertices that have the same colour to their components.
template <class Id, class Source> WB_FN void strong_gather(const wb_strong& p, const Source& source) {
  const strong_view<Id> g(p);
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  uint64_t found = 0, scanned = 0, bad = 0;
  for_each_turn(edges, static_cast<const item<Id>*>(p.queue), p.items, g.offset, [&](bool, item<Id> it, run r) {
    scanned += r.count;
    for_each_edge(edges, reader, r.first, r.count, it.vertex, [&](Id u, Id n) {
      if (!is_valid_edge(edges, n, p.vertices, bad) || g.colour[n] != g.colour[u] || !g.is_open(n)) return;
      const Id root = order::load<order::relaxed>(&g.root[u]);
      if (order::compare_exchange<order::relaxed>(&g.root[n], g.none, root) != g.none) return;
      ++found;
      g.enqueue(n);
    });
  });
  g.finish(p, found, scanned, bad);
}

// Clears the array for the smallest vertex of each root's component, which takes the place of the colours.
template <class Id> WB_FN void strong_clear(const wb_strong& p) {
  const strong_view<Id> g(p);
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) g.colour[v] = g.none;
}

// Finds the smallest vertex of each component.
template <class Id> WB_FN void strong_least(const wb_strong& p) {
  const strong_view<Id> g(p);
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    Id* least = &g.colour[g.root[v]];
    if (v < order::load<order::relaxed>(least)) order::fetch_min<order::relaxed>(least, static_cast<Id>(v));
  }
}

// Labels every vertex with the smallest vertex of its component, in the place of its root, and counts the components.
template <class Id> WB_FN void strong_label(const wb_strong& p) {
  const strong_view<Id> g(p);
  uint64_t components = 0;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    const Id label = g.colour[g.root[v]];
    components += label == v;
    g.root[v] = label;
  }
  g.finish(p, components, 0, 0);
}

}  // namespace graph
}  // namespace warpbell

#define WB_STRONG_MEMORY(ID, SUFFIX, WHAT)                                                                     \
  WB_GRAPH_KERNEL wb_strong_##WHAT##_##SUFFIX(WB_PARAM wb_strong p) { warpbell::graph::strong_##WHAT<ID>(p); } \
  WB_EXPORT(wb_strong_##WHAT##_##SUFFIX)

#define WB_STRONG_EDGES(ID, SUFFIX, WHAT, SOURCE)                                            \
  WB_GRAPH_KERNEL wb_strong_##WHAT##_##SUFFIX(WB_PARAM wb_strong p, WB_PARAM SOURCE edges) { \
    warpbell::graph::strong_##WHAT<ID>(p, edges);                                            \
  }                                                                                          \
  WB_EXPORT(wb_strong_##WHAT##_##SUFFIX)

#define WB_STRONG_BOTH(ID, SUFFIX, WHAT)                                           \
  WB_STRONG_EDGES(ID, pointer_##SUFFIX, WHAT, warpbell::graph::pointer_source<ID>) \
  WB_STRONG_EDGES(ID, storage_##SUFFIX, WHAT, warpbell::array_ref<ID>)

WB_STRONG_MEMORY(uint32_t, u32, start)
WB_STRONG_MEMORY(uint64_t, u64, start)
WB_STRONG_MEMORY(uint32_t, u32, begin)
WB_STRONG_MEMORY(uint64_t, u64, begin)
WB_STRONG_MEMORY(uint32_t, u32, roots)
WB_STRONG_MEMORY(uint64_t, u64, roots)
WB_STRONG_MEMORY(uint32_t, u32, clear)
WB_STRONG_MEMORY(uint64_t, u64, clear)
WB_STRONG_MEMORY(uint32_t, u32, least)
WB_STRONG_MEMORY(uint64_t, u64, least)
WB_STRONG_MEMORY(uint32_t, u32, label)
WB_STRONG_MEMORY(uint64_t, u64, label)
WB_STRONG_BOTH(uint32_t, u32, spread)
WB_STRONG_BOTH(uint64_t, u64, spread)
WB_STRONG_BOTH(uint32_t, u32, gather)
WB_STRONG_BOTH(uint64_t, u64, gather)
WB_PACKED_KERNELS(wb_strong_spread, wb_strong, warpbell::graph::strong_spread<uint32_t>)
WB_PACKED_KERNELS(wb_strong_gather, wb_strong, warpbell::graph::strong_gather<uint32_t>)
