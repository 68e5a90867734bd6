// Copies a PE's edges, which it then sends to other PEs. Launch shape: any grid of blocks of up to 256 threads.
#include <warpbell/kernel.h>

#include "work.cuh"

namespace warpbell {
namespace graph {

template <class Source> WB_FN void near_copy(const wb_near_copy& p, const Source& source) {
  auto edges = source.open();
  uint32_t* to = p.to;
  uint64_t bad = 0;
  // Cuts are at multiples of a piece, so that warps share no page but at the ends.
  const uint64_t begin = p.first / piece_edges, end = (p.last + piece_edges - 1) / piece_edges;
  const auto piece = [&](uint64_t i, auto f) {
    const uint64_t first = i * piece_edges, last = first + piece_edges;
    if (i < end) f(first > p.first ? first : p.first, last < p.last ? last : p.last);
  };
  const auto ask = [&](uint64_t i) { piece(i, [&](uint64_t from, uint64_t last) { expect_tile(edges, from, last); }); };
  for (uint64_t n = 0; n < tiles_ahead; ++n) ask(begin + warp::index() + n * warp::total());
  for (uint64_t i = begin + warp::index(); i < end; i += warp::total()) {
    ask(i + tiles_ahead * warp::total());
    piece(i, [&](uint64_t from, uint64_t last) {
      edges.for_each_chunk_indexed(warp::full(), from, last, [&](uint64_t at, uint32_t n) {
        if (is_valid_edge(edges, n, p.vertices, bad)) to[at - p.first] = n;
      });
    });
  }
  add_count(p.sums, WB_GRAPH_BAD_EDGES, bad);
  publish(p.sums, p.report);
}

}  // namespace graph
}  // namespace warpbell

#define WB_NEAR_COPY(SUFFIX, SOURCE)                                                                                                \
  WB_GRAPH_KERNEL wb_near_copy_##SUFFIX(WB_PARAM wb_near_copy p, WB_PARAM SOURCE source) { warpbell::graph::near_copy(p, source); } \
  WB_EXPORT(wb_near_copy_##SUFFIX)

WB_NEAR_COPY(pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_NEAR_COPY(storage_u32, warpbell::array_ref<uint32_t>)
