// Kernels of several breadth-first searches that share their scans of the edges (Then, Kaufmann, Chirigati, Hoang-Vu, Pham, Kemper,
// Neumann, Vo: The More the Merrier: Efficient Multi-Source Graph Traversal, VLDB 2014). A vertex has masks with a bit for each
// search. In each level, the list of a vertex is read once for all searches that reached the vertex in the level before. Launch shape:
// any grid of blocks of up to 256 threads, one launch for each step.
#include <warpbell/kernel.h>

#include "search.cuh"

namespace warpbell {
namespace graph {

// Clears the masks, and marks all vertices as unreached.
WB_FN void multi_bfs_start(const wb_multi_bfs& p) {
  const share s(p.step.vertices);
  uint64_t *seen = p.seen, *frontier = p.frontier, *next = p.next;
  for (uint64_t v = s.first; v < s.end; v += s.step) seen[v] = frontier[v] = next[v] = 0;
  const uint64_t* depth = p.depth;
  for (uint64_t i = 0; depth && i < p.searches; ++i) {
    uint32_t* own = reinterpret_cast<uint32_t*>(depth[i]);
    for (uint64_t v = s.first; v < s.end; v += s.step) own[v] = unreached;
  }
}

// Lets each search reach its source.
WB_FN void multi_bfs_seed(const wb_multi_bfs& p) {
  const uint64_t* source = p.source;
  uint64_t* next = p.next;
  for (uint64_t i = warp::thread_index(); i < p.searches; i += warp::thread_total()) {
    order::fetch_or<order::relaxed>(&next[source[i]], uint64_t{1} << i);
  }
}

// Makes what the level has reached the next frontier, and marks its vertices in the bitmap for the queue.
WB_FN void multi_bfs_advance(const wb_multi_bfs& p) {
  uint64_t *seen = p.seen, *frontier = p.frontier, *next = p.next;
  const uint64_t* depth = p.depth;
  uint32_t* fresh = p.fresh;
  bfs_counts counts;
  const uint64_t words = (p.step.vertices + 31) / 32;
  for (uint64_t w = warp::index(); w < words; w += warp::total()) {
    uint32_t reached = 0;
    for (uint32_t shift = 0; shift < 32; shift += warp::width) {
      const uint64_t v = w * 32 + shift + warp::lane();
      const uint64_t found = v < p.step.vertices ? next[v] : 0;
      if (v < p.step.vertices) frontier[v] = found;
      if (found) {
        next[v] = 0;
        seen[v] |= found;
        for (uint32_t half = 0; half < 64; half += 32) {
          uint32_t rest = static_cast<uint32_t>(found >> half);
          counts.found += warp::popcount(rest);
          for (; depth && rest; rest &= rest - 1) reinterpret_cast<uint32_t*>(depth[half + warp::first(rest)])[v] = p.step.level;
        }
      }
      reached |= warp::ballot(warp::full(), found != 0) << shift;
    }
    if (warp::lane() == 0) fresh[w] = reached;
  }
  counts.add_to(p.step.sums);
  publish(p.step.sums, p.step.report);
}

// Expands the queue: hands the searches that reached a vertex on to its neighbours that they have not reached.
template <class Id, class Source> WB_FN void multi_bfs_expand(const wb_multi_bfs& p, const Source& source) {
  const bfs_lists<Id> g(p.step);
  const uint64_t *seen = p.seen, *frontier = p.frontier;
  uint64_t* next = p.next;
  bfs_counts counts;
  expand_queue(g, static_cast<const item<Id>*>(p.step.queue), p.step.items, source, p.step.vertices, counts, [&](Id v, Id n) {
    const uint64_t found = frontier[v] & ~seen[n];
    // Most edges bring nothing new. A load is cheaper than an atomic.
    if (found & ~order::load<order::relaxed>(&next[n])) order::fetch_or<order::relaxed>(&next[n], found);
    return false;
  });
  counts.add_to(p.step.sums);
  publish(p.step.sums, p.step.report);
}

}  // namespace graph
}  // namespace warpbell

#define WB_MULTI_BFS_MEMORY(WHAT)                                                                        \
  WB_GRAPH_KERNEL wb_multi_bfs_##WHAT(WB_PARAM wb_multi_bfs p) { warpbell::graph::multi_bfs_##WHAT(p); } \
  WB_EXPORT(wb_multi_bfs_##WHAT)

#define WB_MULTI_BFS_EDGES(ID, SUFFIX, SOURCE)                                                   \
  WB_GRAPH_KERNEL wb_multi_bfs_expand_##SUFFIX(WB_PARAM wb_multi_bfs p, WB_PARAM SOURCE edges) { \
    warpbell::graph::multi_bfs_expand<ID>(p, edges);                                             \
  }                                                                                              \
  WB_EXPORT(wb_multi_bfs_expand_##SUFFIX)

WB_MULTI_BFS_MEMORY(start)
WB_MULTI_BFS_MEMORY(seed)
WB_MULTI_BFS_MEMORY(advance)
WB_MULTI_BFS_EDGES(uint32_t, pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_MULTI_BFS_EDGES(uint64_t, pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_MULTI_BFS_EDGES(uint32_t, storage_u32, warpbell::array_ref<uint32_t>)
WB_MULTI_BFS_EDGES(uint64_t, storage_u64, warpbell::array_ref<uint64_t>)
WB_PACKED_KERNELS(wb_multi_bfs_expand, wb_multi_bfs, warpbell::graph::multi_bfs_expand<uint32_t>)
