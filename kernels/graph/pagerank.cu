// Kernels of PageRank by pulling: a vertex sums the contributions of its in-neighbours. Launch shape: any grid of blocks of up to
// 256 threads.
//
// Ranks and sums are doubles. The contribution of an edge, rank / out-degree, is a float unless the tolerance requires more. It is
// the only randomly read array, and half the bytes keep twice as much of it in the L2 cache. Rounding it costs a relative 6e-8 at
// most.
#include <warpbell/kernel.h>

#include "run_sums.cuh"

namespace warpbell {
namespace graph {

template <class C> struct pagerank_view {
  WB_FN explicit pagerank_view(const wb_pagerank& p)
      : out_offset(p.out_offset), rank(p.rank), sum(p.sum), contribution(static_cast<C*>(p.contribution)), sums(p.sums) {}

  // Stores a rank and its contribution. Returns the dangling part of the rank.
  WB_FN double apply(uint64_t v, double r) const {
    const uint64_t degree = out_offset[v + 1] - out_offset[v];
    rank[v] = r;
    contribution[v] = degree ? static_cast<C>(r / static_cast<double>(degree)) : C{0};
    return degree ? 0.0 : r;
  }

  WB_FN void finish(const wb_pagerank& p, double change, double dangling, double total) const {
    add_real(sums, WB_PAGERANK_CHANGE, change);
    add_real(sums, WB_PAGERANK_DANGLING, dangling);
    add_real(sums, WB_PAGERANK_TOTAL, total);
    publish(sums, p.report);
  }

  const uint64_t* out_offset;
  double* rank;
  double* sum;
  C* contribution;
  wb_graph_counters* sums;
};

// Sets the same rank for every vertex that has its lists here.
template <class C> WB_FN void pagerank_start(const wb_pagerank& p) {
  const pagerank_view<C> g(p);
  const double even = 1.0 / static_cast<double>(p.vertices);
  double dangling = 0;
  const share s(p.last - p.first);
  for (uint64_t v = p.first + s.first; v < p.first + s.end; v += s.step) {
    g.sum[v] = 0;
    dangling += g.apply(v, even);
  }
  g.finish(p, 0, dangling, 0);
}

// Computes ranks from sums, and resets the sums to 0.
template <class C> WB_FN void pagerank_apply(const wb_pagerank& p) {
  const pagerank_view<C> g(p);
  const double* teleport = p.teleport;
  double change = 0, dangling = 0, total = 0;
  const share s(p.last - p.first);
  for (uint64_t v = p.first + s.first; v < p.first + s.end; v += s.step) {
    const double r = (teleport ? p.base * teleport[v] : p.base) + p.damping * g.sum[v];
    g.sum[v] = 0;
    const double d = r - g.rank[v];
    change += d < 0 ? -d : d;
    total += r;
    dangling += g.apply(v, r);
  }
  g.finish(p, change, dangling, total);
}

// Executes one sweep over the in-edges.
template <class Id, class C, class Source> WB_FN void pagerank_pull(const wb_pagerank& p, const Source& source) {
  const uint64_t* offset = p.offset;
  const C* contribution = static_cast<const C*>(p.contribution);
  double* sum = p.sum;
  wb_graph_counters* sums = p.sums;
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  uint64_t scanned = 0, bad = 0;
  for_each_tile<true>(
      edges, static_cast<const Id*>(p.tile), 0, p.edges, p.backward != 0, [&](uint64_t from, uint64_t first, uint64_t last) {
        for_each_list_of_tile(offset, from, p.vertices, first, last, [&](uint64_t v, run r) {
          scanned += r.count;
          const double s = sum_of_run(edges, reader, r.first, r.count,
                                      [&](Id n) { return is_valid_edge(edges, n, p.vertices, bad) ? contribution[n] : C{0}; });
          if (r.count == 0) return;
          if (r.first == offset[v] && r.first + r.count == offset[v + 1]) {
            sum[v] = s;
          } else {
            atomicAdd(&sum[v], s);  // the list continues in another tile
          }
        });
      });
  add_count(sums, WB_PAGERANK_SCANNED, scanned);
  add_count(sums, WB_GRAPH_BAD_EDGES, bad);
  publish(sums, p.report);
}

}  // namespace graph
}  // namespace warpbell

#define WB_PAGERANK_MEMORY(C, SUFFIX, WHAT)                                                                         \
  WB_GRAPH_KERNEL wb_pagerank_##WHAT##_##SUFFIX(WB_PARAM wb_pagerank p) { warpbell::graph::pagerank_##WHAT<C>(p); } \
  WB_EXPORT(wb_pagerank_##WHAT##_##SUFFIX)

#define WB_PAGERANK_EDGES(ID, C, SUFFIX, SOURCE)                                             \
  WB_GRAPH_KERNEL wb_pagerank_pull_##SUFFIX(WB_PARAM wb_pagerank p, WB_PARAM SOURCE edges) { \
    warpbell::graph::pagerank_pull<ID, C>(p, edges);                                         \
  }                                                                                          \
  WB_EXPORT(wb_pagerank_pull_##SUFFIX)

WB_PAGERANK_MEMORY(float, f32, start)
WB_PAGERANK_MEMORY(double, f64, start)
WB_PAGERANK_MEMORY(float, f32, apply)
WB_PAGERANK_MEMORY(double, f64, apply)
WB_PAGERANK_EDGES(uint32_t, float, f32_pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_PAGERANK_EDGES(uint32_t, double, f64_pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_PAGERANK_EDGES(uint64_t, float, f32_pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_PAGERANK_EDGES(uint64_t, double, f64_pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_PAGERANK_EDGES(uint32_t, float, f32_storage_u32, warpbell::array_ref<uint32_t>)
WB_PAGERANK_EDGES(uint32_t, double, f64_storage_u32, warpbell::array_ref<uint32_t>)
WB_PAGERANK_EDGES(uint64_t, float, f32_storage_u64, warpbell::array_ref<uint64_t>)
WB_PAGERANK_EDGES(uint64_t, double, f64_storage_u64, warpbell::array_ref<uint64_t>)
WB_PACKED_KERNELS(wb_pagerank_pull_f32, wb_pagerank, warpbell::graph::pagerank_pull<uint32_t, float>)
WB_PACKED_KERNELS(wb_pagerank_pull_f64, wb_pagerank, warpbell::graph::pagerank_pull<uint32_t, double>)
