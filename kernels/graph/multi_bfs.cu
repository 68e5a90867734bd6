// Kernels of several breadth-first searches that share their scans of the edges (Then, Kaufmann, Chirigati, Hoang-Vu, Pham, Kemper,
// Neumann, Vo: The More the Merrier: Efficient Multi-Source Graph Traversal, VLDB 2014). A vertex has masks with a bit for each
// search. In each level, the list of a vertex is read once for all searches: from the vertices that searches reached in the level before, or
// back from those that a search has not reached, until all such searches have. Launch shape: any grid of blocks of up to 256 threads, one
// launch for each step.
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

// Returns a mask of all searches.
WB_FN uint64_t all_of(uint64_t searches) { return searches < 64 ? (uint64_t{1} << searches) - 1 : ~uint64_t{0}; }

// Makes what the level has reached the next frontier, and marks its vertices in the bitmap for the queue.
WB_FN void multi_bfs_advance(const wb_multi_bfs& p) {
  uint64_t *seen = p.seen, *frontier = p.frontier, *next = p.next;
  const uint64_t *depth = p.depth, *offset = p.step.offset, *pull_offset = p.pull_offset;
  uint32_t* fresh = p.fresh;
  const uint64_t all = all_of(p.searches);
  bfs_counts counts;
  const uint64_t words = (p.step.vertices + 31) / 32;
  for (uint64_t w = warp::index(); w < words; w += warp::total()) {
    uint32_t reached = 0;
    for (uint32_t shift = 0; shift < 32; shift += warp::width) {
      const uint64_t v = w * 32 + shift + warp::lane();
      const uint64_t found = v < p.step.vertices ? next[v] : 0;
      if (v < p.step.vertices) {
        frontier[v] = found;
        const uint64_t now = seen[v] | found;
        if (pull_offset && now != all) counts.scanned += pull_offset[v + 1] - pull_offset[v];
      }
      if (found) {
        next[v] = 0;
        seen[v] |= found;
        counts.degrees += offset[v + 1] - offset[v];
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

// Looks for neighbours that hand on the searches which have not reached a vertex: first among its hubs, which cost no edge, then in its
// list.
template <class Id, class Source> WB_FN void multi_bfs_pull(const wb_multi_bfs& p, const Source& source) {
  const bfs_lists<Id> g(p.step);
  const uint64_t *seen = p.seen, *frontier = p.frontier;
  uint64_t* next = p.next;
  const uint64_t all = all_of(p.searches), vertices = p.step.vertices;
  auto edges = source.open();
  bfs_counts counts;
  const uint64_t groups = (vertices + warp::width - 1) / warp::width;
  for (uint64_t i = warp::index(); i < groups; i += warp::total()) {
    // As in a search from one source, every other level goes backwards.
    const uint64_t base = (p.step.level % 2 ? groups - 1 - i : i) * warp::width, v = base + warp::lane();
    const uint64_t missing = v < vertices ? all & ~seen[v] : 0;
    uint64_t found = 0;
    if (missing) {
      const hubs<Id> mine = g.hub[v];
#pragma unroll
      for (uint32_t h = 0; h < WB_GRAPH_HUBS; ++h) {
        if (mine.id[h] != static_cast<Id>(~Id{0})) found |= frontier[mine.id[h]] & missing;
      }
      if (found) order::store<order::relaxed>(&next[v], found);
      counts.hub_hits += found == missing;
    }
    uint64_t first = 0, last = 0;
    const bool scan = found != missing && g.rest_of(v, first, last);
    if (!warp::any(warp::full(), scan)) continue;
    warp::sync(warp::full());  // other lanes see what the hubs have brought
    Id which;
    any_edge(edges, first, last - first, which, counts.scanned, [&](uint32_t owner, uint64_t n) {
      if (!is_valid_edge(edges, n, vertices, counts.bad)) return false;
      uint64_t* to = &next[base + owner];
      const uint64_t wanted = all & ~seen[base + owner];
      uint64_t has = order::load<order::relaxed>(to);
      const uint64_t brings = frontier[n] & wanted & ~has;
      if (brings) has = order::fetch_or<order::relaxed>(to, brings) | brings;
      return has == wanted;
    });
  }
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
  WB_EXPORT(wb_multi_bfs_expand_##SUFFIX)                                                        \
  WB_GRAPH_KERNEL wb_multi_bfs_pull_##SUFFIX(WB_PARAM wb_multi_bfs p, WB_PARAM SOURCE edges) {   \
    warpbell::graph::multi_bfs_pull<ID>(p, edges);                                               \
  }                                                                                              \
  WB_EXPORT(wb_multi_bfs_pull_##SUFFIX)

WB_MULTI_BFS_MEMORY(start)
WB_MULTI_BFS_MEMORY(seed)
WB_MULTI_BFS_MEMORY(advance)
WB_MULTI_BFS_EDGES(uint32_t, pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_MULTI_BFS_EDGES(uint64_t, pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_MULTI_BFS_EDGES(uint32_t, storage_u32, warpbell::array_ref<uint32_t>)
WB_MULTI_BFS_EDGES(uint64_t, storage_u64, warpbell::array_ref<uint64_t>)
WB_PACKED_KERNELS(wb_multi_bfs_expand, wb_multi_bfs, warpbell::graph::multi_bfs_expand<uint32_t>)
WB_PACKED_KERNELS(wb_multi_bfs_pull, wb_multi_bfs, warpbell::graph::multi_bfs_pull<uint32_t>)
