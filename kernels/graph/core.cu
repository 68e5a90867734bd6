// Kernels of k-core decomposition by peeling (Matula, Beck: Smallest-last ordering and clustering and graph coloring algorithms,
// J. ACM 30, 1983), level by level on all threads (Dasari, Desh, Zubair: ParK: An efficient algorithm for k-core decomposition on
// multicore processors, IEEE Big Data 2014). Launch shape: any grid of blocks of up to 256 threads.
//
// The degree of a vertex that remains never falls below the level. A vertex that reaches it is peeled in this level, and its degree
// is its core number from then on. Its list is read once, when it is peeled.
#include <warpbell/kernel.h>

#include "walk.cuh"

namespace warpbell {
namespace graph {

// Counts the edges of every vertex, except for those to itself. Vertices without any are never peeled: their core number is 0.
template <class Id> WB_FN void core_start(const wb_core& p) {
  const uint64_t* offset = p.offset;
  const uint64_t* in_offset = p.in_offset;
  const uint32_t* loops = p.loops;
  uint64_t* degree = p.degree;
  uint32_t* remaining = p.remaining;
  wb_graph_counters* sums = p.sums;
  uint64_t connected = 0, least = ~uint64_t{0};
  const share s((p.vertices + 31) / 32);
  for (uint64_t w = s.first; w < s.end; w += s.step) {
    const uint32_t loop = loops ? loops[w] : 0;
    uint32_t word = 0;
    for (uint32_t bit = 0; bit < 32 && w * 32 + bit < p.vertices; ++bit) {
      const uint64_t v = w * 32 + bit;
      uint64_t d = offset[v + 1] - offset[v];
      if (in_offset) d += in_offset[v + 1] - in_offset[v];
      if ((loop >> bit) & 1u) d -= in_offset ? 2 : 1;
      degree[v] = d;
      if (!d) continue;
      word |= 1u << bit;
      ++connected;
      if (d < least) least = d;
    }
    remaining[w] = word;
  }
  add_count(sums, WB_CORE_PEELED, connected);
  lower_least(sums, least);
  publish(sums, p.report);
}

// Begins a level: queues the vertices whose degree is the level, and drops those that were peeled before.
template <class Id> WB_FN void core_collect(const wb_core& p) {
  const uint64_t* degree = p.degree;
  uint32_t* remaining = p.remaining;
  uint32_t* peeled = p.peeled;
  wb_graph_counters* sums = p.sums;
  uint64_t degrees = 0, least = ~uint64_t{0};
  const uint64_t own =
      push_words(p.vertices, static_cast<item<Id>*>(p.queue_next), &sums->sum[WB_CORE_ITEMS], p.offset, degrees, [&](uint64_t w) {
        uint32_t now = 0, later = 0;
        for (uint32_t word = remaining[w]; word; word &= word - 1) {
          const uint64_t d = degree[w * 32 + warp::first(word)];
          const uint32_t bit = word & (~word + 1);
          if (d == p.level) now |= bit;
          if (d <= p.level) continue;
          later |= bit;
          if (d < least) least = d;
        }
        if (remaining[w] != later) remaining[w] = later;
        if (p.in_offset) peeled[w] = now;
        return now;
      });
  if (p.in_offset) {
    // A lane takes those words whose `peeled` it has just written.
    push_words(p.vertices, static_cast<item<Id>*>(p.in_queue_next), &sums->sum[WB_CORE_IN_ITEMS], p.in_offset, degrees,
               [&](uint64_t w) { return peeled[w]; });
  }
  add_count(sums, WB_CORE_PEELED, own);
  lower_least(sums, least);
  publish(sums, p.report);
}

// Peels the queue's vertices: lowers the degrees of their neighbours, and queues those that reach the level.
template <class Id, class Source> WB_FN void core_peel(const wb_core& p, const Source& source) {
  const uint64_t* offset = p.offset;
  const uint64_t* in_offset = p.in_offset;
  uint64_t* degree = p.degree;
  wb_graph_counters* sums = p.sums;
  item<Id>* next = static_cast<item<Id>*>(p.queue_next);
  item<Id>* in_next = static_cast<item<Id>*>(p.in_queue_next);
  auto edges = source.open();
  uint64_t scanned = 0, peeled = 0, bad = 0;
  run_reader<decltype(edges)> reader(edges);
  for_each_turn(edges, static_cast<const item<Id>*>(p.queue), p.items, static_cast<const uint64_t*>(p.read), [&](bool, item<Id> it, run r) {
    scanned += r.count;
    for_each_edge(edges, reader, r.first, r.count, it.vertex, [&](Id, Id n) {
      if (!is_valid_edge(edges, n, p.vertices, bad)) return;
      // The vertex itself, and all others that were peeled, are at the level or below.
      if (order::load<order::relaxed>(&degree[n]) <= p.level) return;
      const uint64_t before = order::fetch_add<order::relaxed>(&degree[n], ~uint64_t{0});
      if (before <= p.level) {
        // Another thread was faster with the last edge above the level.
        order::fetch_add<order::relaxed>(&degree[n], uint64_t{1});
      } else if (before == p.level + 1) {
        ++peeled;
        const uint64_t v = n;
        push(next, &sums->sum[WB_CORE_ITEMS], n, offset[v], offset[v + 1]);
        if (in_offset) push(in_next, &sums->sum[WB_CORE_IN_ITEMS], n, in_offset[v], in_offset[v + 1]);
      }
    });
  });
  add_count(sums, WB_CORE_PEELED, peeled);
  add_count(sums, WB_CORE_SCANNED, scanned);
  add_count(sums, WB_GRAPH_BAD_EDGES, bad);
  publish(sums, p.report);
}

}  // namespace graph
}  // namespace warpbell

#define WB_CORE_MEMORY(ID, SUFFIX)                                                                       \
  WB_GRAPH_KERNEL wb_core_start_##SUFFIX(WB_PARAM wb_core p) { warpbell::graph::core_start<ID>(p); }     \
  WB_EXPORT(wb_core_start_##SUFFIX)                                                                      \
  WB_GRAPH_KERNEL wb_core_collect_##SUFFIX(WB_PARAM wb_core p) { warpbell::graph::core_collect<ID>(p); } \
  WB_EXPORT(wb_core_collect_##SUFFIX)

#define WB_CORE_EDGES(ID, SUFFIX, SOURCE)                                                                                        \
  WB_GRAPH_KERNEL wb_core_peel_##SUFFIX(WB_PARAM wb_core p, WB_PARAM SOURCE edges) { warpbell::graph::core_peel<ID>(p, edges); } \
  WB_EXPORT(wb_core_peel_##SUFFIX)

WB_CORE_MEMORY(uint32_t, u32)
WB_CORE_MEMORY(uint64_t, u64)
WB_CORE_EDGES(uint32_t, pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_CORE_EDGES(uint64_t, pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_CORE_EDGES(uint32_t, storage_u32, warpbell::array_ref<uint32_t>)
WB_CORE_EDGES(uint64_t, storage_u64, warpbell::array_ref<uint64_t>)
WB_PACKED_KERNELS(wb_core_peel, wb_core, warpbell::graph::core_peel<uint32_t>)
