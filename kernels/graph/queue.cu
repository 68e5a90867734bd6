// Kernels that sort a queue by vertex, through a bitmap. Launch shape: any grid of blocks of up to 256 threads. Lists of
// neighbouring vertices share pages. A page is read once if the threads that need it come at the same time.
#include <warpbell/kernel.h>

#include "work.cuh"

namespace warpbell {
namespace graph {

// Sets the bits of the queue's vertices.
template <class Id> WB_FN void queue_mark(const wb_queue_order& p) {
  const item<Id>* queue = static_cast<const item<Id>*>(p.queue);
  uint32_t* bitmap = p.bitmap;
  for (uint64_t i = warp::thread_index(); i < p.items; i += warp::thread_total()) {
    const item<Id> it = queue[i];
    if (it.piece == 0) order::fetch_or<order::relaxed>(&bitmap[it.vertex / 32], 1u << (it.vertex % 32));
  }
}

// Appends the marked vertices to the next queue, and clears the bitmap.
template <class Id> WB_FN void queue_collect(const wb_queue_order& p) {
  uint32_t* bitmap = p.bitmap;
  wb_graph_counters* sums = p.sums;
  uint64_t degrees = 0;
  push_words(p.vertices, static_cast<item<Id>*>(p.queue_next), &sums->sum[WB_BFS_ITEMS], p.offset, degrees, [&](uint64_t w) {
    const uint32_t word = bitmap[w];
    if (word) bitmap[w] = 0;
    return word;
  });
  publish(sums, p.report);
}

}  // namespace graph
}  // namespace warpbell

#define WB_QUEUE_ORDER(ID, SUFFIX)                                                                                \
  WB_GRAPH_KERNEL wb_queue_mark_##SUFFIX(WB_PARAM wb_queue_order p) { warpbell::graph::queue_mark<ID>(p); }       \
  WB_EXPORT(wb_queue_mark_##SUFFIX)                                                                               \
  WB_GRAPH_KERNEL wb_queue_collect_##SUFFIX(WB_PARAM wb_queue_order p) { warpbell::graph::queue_collect<ID>(p); } \
  WB_EXPORT(wb_queue_collect_##SUFFIX)

WB_QUEUE_ORDER(uint32_t, u32)
WB_QUEUE_ORDER(uint64_t, u64)
