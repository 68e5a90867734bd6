// Copies a PE's edges, which it then sends to other PEs. Launch shape: any grid of blocks of up to 256 threads.
#include <warpbell/kernel.h>

#include "work.cuh"

namespace warpbell {
namespace graph {

// Copies plain lists, in pieces.
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

// Copies packed lists, one after the other.
template <class Source> WB_FN void near_copy_packed(const wb_near_copy& p, const Source& source) {
  auto edges = source.open();
  uint32_t* to = p.to;
  uint64_t bad = 0;
  const auto copy_list = [&](uint64_t first, uint64_t last) {
    // Each lane gets the edges whose numbers differ from its own by multiples of the width, in ascending order.
    uint64_t at = first + (warp::lane() + warp::width - first % warp::width) % warp::width;
    edges.for_each_chunk(warp::full(), first, last, [&](uint32_t n) {
      if (is_valid_edge(edges, n, p.vertices, bad)) to[at - p.first] = n;
      at += warp::width;
    });
  };
  const uint64_t begin = p.first / piece_edges * piece_edges;
  for_each_tile<true>(edges, p.tile + begin / piece_edges, begin, p.last - begin, false, [&](uint64_t from, uint64_t first, uint64_t last) {
    for_each_list_of_tile(p.offset, from, p.vertices, first, last, [&](uint64_t, run r) {
      // The first tile may begin with lists in front of those.
      for (warp::mask_t lists = warp::ballot(warp::full(), r.count != 0 && r.first >= p.first); lists; lists &= lists - 1) {
        const uint64_t start = warp::shuffle(warp::full(), r.first, warp::first(lists));
        copy_list(start, start + warp::shuffle(warp::full(), r.count, warp::first(lists)));
      }
    });
  });
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
WB_PACKED_KERNELS(wb_near_copy, wb_near_copy, warpbell::graph::near_copy_packed)
