// Kernels of a breadth-first search, direction-optimising (Beamer, Asanovic, Patterson: Direction-Optimizing Breadth-First Search,
// SC12). Launch shape: any grid of blocks of up to 256 threads, one launch for each step.
//
// Top-down steps claim vertices in the bitmap of seen ones. A bottom-up step reads the bitmap that the step before left, and writes
// the next one.
#include <warpbell/kernel.h>

#include "search.cuh"

namespace warpbell {
namespace graph {

WB_FN void bfs_finish(const wb_bfs& p, const bfs_counts& counts) {
  wb_graph_counters* sums = p.sums;
  counts.add_to(sums);
  publish(sums, p.report);
}

// Marks all vertices as unreached except the source, which becomes the first queue.
template <class Id> WB_FN void bfs_start(const wb_bfs& p) {
  const bfs_lists<Id> g(p);
  const uint32_t* isolated = p.isolated;
  const uint64_t words = (p.vertices + 31) / 32;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    g.depth[v] = v == p.source ? 0 : unreached;
    if (g.parent) g.parent[v] = v == p.source ? static_cast<Id>(v) : static_cast<Id>(~Id{0});
  }
  const share m(words);
  for (uint64_t w = m.first; w < m.end; w += m.step) {
    g.seen[w] = isolated[w] | (w == p.source / 32 ? 1u << (p.source % 32) : 0u);
  }
  bfs_counts counts;
  if (warp::thread_index() == 0) {
    g.enqueue(static_cast<Id>(p.source), counts);
    ++counts.found;
  }
  bfs_finish(p, counts);
}

// Expands the queue: claims unseen neighbours of its vertices.
template <class Id, class Source> WB_FN void bfs_top_down(const wb_bfs& p, const Source& source) {
  const bfs_lists<Id> g(p);
  bfs_counts counts;
  expand_queue(g, static_cast<const item<Id>*>(p.queue), p.items, source, p.vertices, counts, [&](Id v, Id n) {
    if (!g.see(n)) return false;
    g.reach(n, v);
    g.enqueue(n, counts);
    ++counts.found;
    return true;
  });
  bfs_finish(p, counts);
}

// Looks for a seen neighbour of each unseen vertex.
template <class Id, class Source> WB_FN void bfs_bottom_up(const wb_bfs& p, const Source& source) {
  const bfs_lists<Id> g(p);
  const uint32_t* open = p.open;
  uint32_t* seen_next = p.seen_next;
  bfs_counts counts;
  scan_unseen(
      g, (p.vertices + 31) / 32, source, p.vertices, counts, [&](uint64_t w) { return open[w]; },
      [&](uint64_t w, uint32_t, uint32_t next) { seen_next[w] = next; });
  bfs_finish(p, counts);
}

// Executes a bottom-up step that reads no edge. The rest of the level is then read from the side that costs less.
template <class Id> WB_FN void bfs_by_hubs(const wb_bfs& p) {
  const bfs_lists<Id> g(p);
  uint32_t* seen_next = p.seen_next;
  bfs_counts counts;
  const uint64_t left = scan_hubs(
      g, (p.vertices + 31) / 32, counts, [&](uint64_t w) { return g.seen[w]; },
      [&](uint64_t w, uint32_t, uint32_t next) { seen_next[w] = next; });
  add_count(g.sums, WB_BFS_ITEMS, left);
  bfs_finish(p, counts);
}

// Builds the queue for a top-down step after bottom-up ones: the vertices that are in `seen` but not in the bitmap before it.
template <class Id> WB_FN void bfs_collect(const wb_bfs& p) {
  const bfs_lists<Id> g(p);
  const uint32_t* before = p.seen_next;
  bfs_counts counts;
  counts.found = push_words(p.vertices, g.found, &g.sums->sum[WB_BFS_ITEMS], g.offset, counts.degrees,
                            [&](uint64_t w) { return g.seen[w] & ~before[w]; });
  bfs_finish(p, counts);
}

}  // namespace graph
}  // namespace warpbell

#define WB_BFS_MEMORY(ID, SUFFIX)                                                                     \
  WB_GRAPH_KERNEL wb_bfs_start_##SUFFIX(WB_PARAM wb_bfs p) { warpbell::graph::bfs_start<ID>(p); }     \
  WB_EXPORT(wb_bfs_start_##SUFFIX)                                                                    \
  WB_GRAPH_KERNEL wb_bfs_by_hubs_##SUFFIX(WB_PARAM wb_bfs p) { warpbell::graph::bfs_by_hubs<ID>(p); } \
  WB_EXPORT(wb_bfs_by_hubs_##SUFFIX)                                                                  \
  WB_GRAPH_KERNEL wb_bfs_collect_##SUFFIX(WB_PARAM wb_bfs p) { warpbell::graph::bfs_collect<ID>(p); } \
  WB_EXPORT(wb_bfs_collect_##SUFFIX)

#define WB_BFS_EDGES(ID, SUFFIX, SOURCE)                                                                                                \
  WB_GRAPH_KERNEL wb_bfs_top_down_##SUFFIX(WB_PARAM wb_bfs p, WB_PARAM SOURCE edges) { warpbell::graph::bfs_top_down<ID>(p, edges); }   \
  WB_EXPORT(wb_bfs_top_down_##SUFFIX)                                                                                                   \
  WB_GRAPH_KERNEL wb_bfs_bottom_up_##SUFFIX(WB_PARAM wb_bfs p, WB_PARAM SOURCE edges) { warpbell::graph::bfs_bottom_up<ID>(p, edges); } \
  WB_EXPORT(wb_bfs_bottom_up_##SUFFIX)

WB_BFS_MEMORY(uint32_t, u32)
WB_BFS_MEMORY(uint64_t, u64)
WB_BFS_EDGES(uint32_t, pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_BFS_EDGES(uint64_t, pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_BFS_EDGES(uint32_t, storage_u32, warpbell::array_ref<uint32_t>)
WB_BFS_EDGES(uint64_t, storage_u64, warpbell::array_ref<uint64_t>)
WB_PACKED_KERNELS(wb_bfs_top_down, wb_bfs, warpbell::graph::bfs_top_down<uint32_t>)
WB_PACKED_KERNELS(wb_bfs_bottom_up, wb_bfs, warpbell::graph::bfs_bottom_up<uint32_t>)
