// Trees of vertices by union-find. Links go from larger to smaller identifiers only, so a tree's root is its smallest vertex.
#pragma once

#include "work.cuh"

namespace warpbell {
namespace graph {

// Returns the root above v, without changing anything.
template <class Id> WB_FN Id root_of(const Id* label, Id v) {
  for (;;) {
    const Id up = order::load<order::relaxed>(&label[v]);
    if (up == v) return v;
    v = up;
  }
}

// Joins the trees of two vertices.
template <class Id> WB_FN void link(Id* label, Id u, Id v) {
  Id a = order::load<order::relaxed>(&label[u]), b = order::load<order::relaxed>(&label[v]);
  while (a != b) {
    const Id high = a > b ? a : b, low = a > b ? b : a;
    const Id up = order::load<order::relaxed>(&label[high]);
    if (up == low) return;
    if (up == high && order::compare_exchange<order::relaxed>(&label[high], high, low) == high) return;
    a = order::load<order::relaxed>(&label[order::load<order::relaxed>(&label[high])]);
    b = order::load<order::relaxed>(&label[low]);
  }
}

}  // namespace graph
}  // namespace warpbell
