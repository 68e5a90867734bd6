// Kernels of betweenness centrality by Brandes' algorithm (A Faster Algorithm for Betweenness Centrality, J. Mathematical Sociology
// 25, 2001): a breadth-first search from each source counts shortest paths, and a walk back over its levels sums dependencies.
// Launch shape: any grid of blocks of up to 256 threads, one launch for each level of each walk.
//
// Both walks read the out-lists of a level's vertices. Numbers of paths are doubles, as in GAP.
#include <warpbell/kernel.h>

#include "run_sums.cuh"
#include "walk.cuh"

namespace warpbell {
namespace graph {

// The largest double. A number of paths beyond it is infinite.
constexpr double most_paths = 1.7976931348623157e308;

// Marks all vertices as unreached except the source, which becomes the first level.
template <class Id> WB_FN void betweenness_start(const wb_betweenness& p) {
  const uint64_t* offset = p.offset;
  uint32_t* depth = p.depth;
  double* paths = p.paths;
  double* dependency = p.dependency;
  wb_graph_counters* sums = p.sums;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    depth[v] = v == p.source ? 0 : ~0u;
    paths[v] = v == p.source ? 1 : 0;
    dependency[v] = 0;
  }
  if (warp::thread_index() == 0) {
    push(static_cast<item<Id>*>(p.queue_next), &sums->sum[WB_BETWEENNESS_ITEMS], static_cast<Id>(p.source), offset[p.source],
         offset[p.source + 1]);
  }
  publish(sums, p.report);
}

// Finds the vertices of the next level, and counts the paths that lead to them over the vertices of this one.
template <class Id, class Source> WB_FN void betweenness_forward(const wb_betweenness& p, const Source& source) {
  const uint64_t* offset = p.offset;
  uint32_t* depth = p.depth;
  double* paths = p.paths;
  item<Id>* next = static_cast<item<Id>*>(p.queue_next);
  wb_graph_counters* sums = p.sums;
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  uint64_t found = 0, scanned = 0, bad = 0;
  for_each_turn(edges, static_cast<const item<Id>*>(p.queue), p.items, offset, [&](bool has, item<Id> it, run r) {
    scanned += r.count;
    const double through = has ? order::load<order::relaxed>(&paths[it.vertex]) : 0.0;
    for_each_edge(edges, reader, r.first, r.count, through, [&](double more, Id n) {
      if (!is_valid_edge(edges, n, p.vertices, bad)) return;
      uint32_t at = order::load<order::relaxed>(&depth[n]);
      if (at == ~0u) {
        at = order::compare_exchange<order::relaxed>(&depth[n], ~0u, p.level);
        if (at == ~0u) {
          at = p.level;
          ++found;
          push(next, &sums->sum[WB_BETWEENNESS_ITEMS], n, offset[n], offset[static_cast<uint64_t>(n) + 1]);
        }
      }
      if (at == p.level) order::fetch_add<order::relaxed>(&paths[n], more);
    });
  });
  add_count(sums, WB_BETWEENNESS_FOUND, found);
  add_count(sums, WB_BETWEENNESS_SCANNED, scanned);
  add_count(sums, WB_GRAPH_BAD_EDGES, bad);
  publish(sums, p.report);
}

// Sums the dependencies of a level's vertices over their neighbours in the next level, whose own are complete.
template <class Id, class Source> WB_FN void betweenness_back(const wb_betweenness& p, const Source& source) {
  const uint64_t* offset = p.offset;
  const uint32_t* depth = p.depth;
  const double* paths = p.paths;
  double* dependency = p.dependency;
  double* score = p.score;
  wb_graph_counters* sums = p.sums;
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  uint64_t scanned = 0, overflow = 0, bad = 0;
  for_each_turn(edges, static_cast<const item<Id>*>(p.queue), p.items, offset, [&](bool has, item<Id> it, run r) {
    scanned += r.count;
    const double part = sum_of_run(edges, reader, r.first, r.count, [&](Id n) {
      if (!is_valid_edge(edges, n, p.vertices, bad) || depth[n] != p.level) return 0.0;
      overflow += paths[n] > most_paths;
      return (1.0 + order::load<order::relaxed>(&dependency[n])) / paths[n];
    });
    if (!has || part == 0.0) return;
    const double sum = part * paths[it.vertex];
    // The other pieces of a long list add theirs.
    order::fetch_add<order::relaxed>(&dependency[it.vertex], sum);
    if (it.vertex != p.source) order::fetch_add<order::relaxed>(&score[it.vertex], sum);
  });
  add_count(sums, WB_BETWEENNESS_SCANNED, scanned);
  add_count(sums, WB_BETWEENNESS_OVERFLOW, overflow);
  add_count(sums, WB_GRAPH_BAD_EDGES, bad);
  publish(sums, p.report);
}

}  // namespace graph
}  // namespace warpbell

#define WB_BETWEENNESS_MEMORY(ID, SUFFIX)                                                                                 \
  WB_GRAPH_KERNEL wb_betweenness_start_##SUFFIX(WB_PARAM wb_betweenness p) { warpbell::graph::betweenness_start<ID>(p); } \
  WB_EXPORT(wb_betweenness_start_##SUFFIX)

#define WB_BETWEENNESS_EDGES(ID, SUFFIX, WHAT, SOURCE)                                                 \
  WB_GRAPH_KERNEL wb_betweenness_##WHAT##_##SUFFIX(WB_PARAM wb_betweenness p, WB_PARAM SOURCE edges) { \
    warpbell::graph::betweenness_##WHAT<ID>(p, edges);                                                 \
  }                                                                                                    \
  WB_EXPORT(wb_betweenness_##WHAT##_##SUFFIX)

#define WB_BETWEENNESS_BOTH(ID, SUFFIX, WHAT)                                           \
  WB_BETWEENNESS_EDGES(ID, pointer_##SUFFIX, WHAT, warpbell::graph::pointer_source<ID>) \
  WB_BETWEENNESS_EDGES(ID, storage_##SUFFIX, WHAT, warpbell::array_ref<ID>)

WB_BETWEENNESS_MEMORY(uint32_t, u32)
WB_BETWEENNESS_MEMORY(uint64_t, u64)
WB_BETWEENNESS_BOTH(uint32_t, u32, forward)
WB_BETWEENNESS_BOTH(uint64_t, u64, forward)
WB_BETWEENNESS_BOTH(uint32_t, u32, back)
WB_BETWEENNESS_BOTH(uint64_t, u64, back)
WB_PACKED_KERNELS(wb_betweenness_forward, wb_betweenness, warpbell::graph::betweenness_forward<uint32_t>)
WB_PACKED_KERNELS(wb_betweenness_back, wb_betweenness, warpbell::graph::betweenness_back<uint32_t>)
