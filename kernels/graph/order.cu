// Kernels that bring values of vertices into the order that programs see, after an algorithm over lists in another order. Launch shape: any
// grid of blocks of up to 256 threads.
#include <warpbell/kernel.h>

#include "work.cuh"

namespace warpbell {
namespace graph {

// Moves the value of each vertex to the number that the vertex has outside. `name` makes the value that is stored of it.
template <class T, class Name> WB_FN void order_each(const wb_order& p, Name name) {
  const T* from = static_cast<const T*>(p.from);
  T* to = static_cast<T*>(p.to);
  const uint32_t* outside = p.outside;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) to[outside[v]] = name(from[v]);
}

// Values that do not name vertices.
template <class T> WB_FN void order_values(const wb_order& p) {
  order_each<T>(p, [](T value) { return value; });
}

// Values that name vertices, or none by the largest identifier.
template <class Id> WB_FN void order_ids(const wb_order& p) {
  const uint32_t* outside = p.outside;
  order_each<Id>(p, [outside](Id id) { return id == static_cast<Id>(~Id{0}) ? id : static_cast<Id>(outside[id]); });
}

// Finds the least number outside among the vertices of each label. `least` begins with the largest identifiers.
WB_FN void order_least(const wb_order& p) {
  const uint32_t* label = static_cast<const uint32_t*>(p.from);
  const uint32_t* outside = p.outside;
  uint32_t* least = p.least;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) order::fetch_min<order::relaxed>(&least[label[v]], outside[v]);
}

// Labels that are one of the label's vertices become the least of them outside.
WB_FN void order_labels(const wb_order& p) {
  const uint32_t* least = p.least;
  order_each<uint32_t>(p, [least](uint32_t label) { return least[label]; });
}

}  // namespace graph
}  // namespace warpbell

#define WB_ORDER(NAME, ...)                                                                         \
  WB_GRAPH_KERNEL wb_order_##NAME(WB_PARAM wb_order p) { warpbell::graph::order_##__VA_ARGS__(p); } \
  WB_EXPORT(wb_order_##NAME)

WB_ORDER(values_u32, values<uint32_t>)
WB_ORDER(values_u64, values<uint64_t>)
WB_ORDER(ids_u32, ids<uint32_t>)
WB_ORDER(ids_u64, ids<uint64_t>)
WB_ORDER(least, least)
WB_ORDER(labels, labels)
