// Kernels of connected components, by union-find with sampling first (Sutton, Ben-Nun, Barak: Optimizing Parallel Graph
// Connectivity Computation via Subgraph Sampling, IPDPS 2018). Launch shape: any grid of blocks of up to 256 threads.
//
// A component is a tree (forest.cuh). The tree's root, its smallest vertex, becomes the label.
#include <warpbell/kernel.h>

#include "forest.cuh"

namespace warpbell {
namespace graph {

// Labels every vertex with itself, or with its best-connected neighbour if that is smaller.
template <class Id> WB_FN void components_start(const wb_components& p) {
  Id* label = static_cast<Id*>(p.label);
  const hubs<Id>* hub = static_cast<const hubs<Id>*>(p.hubs);
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    const Id h = hub[v].id[0];
    label[v] = h < v ? h : static_cast<Id>(v);
  }
}

// Links every vertex with one of its hubs. Reads no edge.
template <class Id> WB_FN void components_hubs(const wb_components& p) {
  Id* label = static_cast<Id*>(p.label);
  const hubs<Id>* hub = static_cast<const hubs<Id>*>(p.hubs);
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    const Id h = hub[v].id[p.hub];
    // The start has linked the first one where it is smaller.
    if (h != static_cast<Id>(~Id{0}) && (p.hub || h > v)) link(label, static_cast<Id>(v), h);
  }
}

// Points every vertex at its root, and counts the roots.
template <class Id> WB_FN void components_compress(const wb_components& p) {
  Id* label = static_cast<Id*>(p.label);
  wb_graph_counters* sums = p.sums;
  uint64_t roots = 0;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    const Id root = root_of(label, static_cast<Id>(v));
    roots += root == static_cast<Id>(v);
    order::store<order::relaxed>(&label[v], root);
  }
  add_count(sums, WB_COMPONENTS_ROOTS, roots);
  publish(sums, p.report);
}

// Copies labels of vertices that are spread evenly but not regularly (a multiplicative hash). The host finds the most common label.
template <class Id> WB_FN void components_sample(const wb_components& p) {
  const Id* label = static_cast<const Id*>(p.label);
  Id* sample = static_cast<Id*>(p.sample);
  for (uint64_t i = warp::thread_index(); i < p.samples; i += warp::thread_total()) {
    constexpr uint64_t golden = 0x9e3779b97f4a7c15ull;  // 2^64 over the golden ratio
    sample[i] = label[((i + 1) * golden >> 20) % p.vertices];
  }
}

// Links all edges of all vertices that do not belong to the giant component yet. A vertex that joins the component meanwhile is
// skipped too.
template <class Id, class Source> WB_FN void components_rest(const wb_components& p, const Source& source) {
  const uint64_t* offset = p.offset;
  Id* label = static_cast<Id*>(p.label);
  wb_graph_counters* sums = p.sums;
  const Id giant = static_cast<Id>(p.giant);
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  uint64_t scanned = 0, bad = 0;
  // Most lists are skipped.
  for_each_tile<false>(edges, static_cast<const Id*>(p.tile), 0, p.edges, false, [&](uint64_t from, uint64_t first, uint64_t last) {
    for_each_list_of_tile(offset, from, p.vertices, first, last, [&](uint64_t v, run r) {
      if (r.count && root_of(label, static_cast<Id>(v)) == giant) r.count = 0;
      scanned += r.count;
      for_each_edge(edges, reader, r.first, r.count, static_cast<Id>(v), [&](Id u, Id n) {
        if (is_valid_edge(edges, n, p.vertices, bad)) link(label, u, n);
      });
    });
  });
  add_count(sums, WB_COMPONENTS_SCANNED, scanned);
  add_count(sums, WB_GRAPH_BAD_EDGES, bad);
  publish(sums, p.report);
}

}  // namespace graph
}  // namespace warpbell

#define WB_COMPONENTS_MEMORY(ID, SUFFIX, WHAT)                                                                             \
  WB_GRAPH_KERNEL wb_components_##WHAT##_##SUFFIX(WB_PARAM wb_components p) { warpbell::graph::components_##WHAT<ID>(p); } \
  WB_EXPORT(wb_components_##WHAT##_##SUFFIX)

#define WB_COMPONENTS_EDGES(ID, SUFFIX, WHAT, SOURCE)                                                \
  WB_GRAPH_KERNEL wb_components_##WHAT##_##SUFFIX(WB_PARAM wb_components p, WB_PARAM SOURCE edges) { \
    warpbell::graph::components_##WHAT<ID>(p, edges);                                                \
  }                                                                                                  \
  WB_EXPORT(wb_components_##WHAT##_##SUFFIX)

WB_COMPONENTS_MEMORY(uint32_t, u32, start)
WB_COMPONENTS_MEMORY(uint64_t, u64, start)
WB_COMPONENTS_MEMORY(uint32_t, u32, hubs)
WB_COMPONENTS_MEMORY(uint64_t, u64, hubs)
WB_COMPONENTS_MEMORY(uint32_t, u32, compress)
WB_COMPONENTS_MEMORY(uint64_t, u64, compress)
WB_COMPONENTS_MEMORY(uint32_t, u32, sample)
WB_COMPONENTS_MEMORY(uint64_t, u64, sample)
WB_COMPONENTS_EDGES(uint32_t, pointer_u32, rest, warpbell::graph::pointer_source<uint32_t>)
WB_COMPONENTS_EDGES(uint64_t, pointer_u64, rest, warpbell::graph::pointer_source<uint64_t>)
WB_COMPONENTS_EDGES(uint32_t, storage_u32, rest, warpbell::array_ref<uint32_t>)
WB_COMPONENTS_EDGES(uint64_t, storage_u64, rest, warpbell::array_ref<uint64_t>)
WB_PACKED_KERNELS(wb_components_rest, wb_components, warpbell::graph::components_rest<uint32_t>)
