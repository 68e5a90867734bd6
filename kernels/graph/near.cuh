// Lists that a count reads: those of its own vertices, and those of their neighbours. On one PE both are the same lists. If the lists of a
// graph are distributed over PEs, those of the neighbours come from the PEs that have them, some vertices at a time.
#pragma once

#include <warpbell/warp.cuh>

#include "marker.cuh"
#include "work.cuh"

namespace warpbell {
namespace graph {

// Lists in one direction, in a session that begins with edge `base` of them.
template <class Session> struct list_set {
  const uint64_t* offset;  // [vertices + 1], or null: there are no lists
  uint64_t base;
  Session& edges;
  run_reader<Session>& reader;

  WB_FN explicit operator bool() const { return offset != nullptr; }
  WB_FN uint64_t first(uint64_t v) const { return offset[v] - base; }
  WB_FN uint64_t last(uint64_t v) const { return offset[v + 1] - base; }
  WB_FN uint64_t degree(uint64_t v) const { return degree_in(offset, v); }
};

// Lists in both directions; `in` of an undirected graph has none.
template <class Session> struct both_directions {
  using session = Session;
  list_set<Session> out;
  list_set<Session> in;
};

// Order of vertices by the lengths of their lists: those on one PE.
struct ranks_by_degree {
  const uint64_t* offset;
  const uint64_t* in_offset;  // of a directed graph, or null

  WB_FN uint64_t degree(uint64_t v) const { return degree_in(offset, v) + (in_offset ? degree_in(in_offset, v) : 0); }
  // Returns true if vertex a ranks above b. `degree_a` is that of a.
  WB_FN bool above(uint64_t a, uint64_t degree_a, uint64_t b) const { return ranks_above(a, degree_a, b, degree(b)); }
  WB_FN bool above(uint64_t a, uint64_t b) const { return above(a, degree(a), b); }
};

// Order of vertices by numbers, which are those of the same order on all PEs.
struct ranks_by_number {
  const uint32_t* rank;

  WB_FN bool above(uint64_t a, uint64_t, uint64_t b) const { return above(a, b); }
  WB_FN bool above(uint64_t a, uint64_t b) const { return rank[a] < rank[b]; }
};

// Vertices whose lists a step reads.
struct vertex_range {
  uint64_t first;
  uint64_t count;

  WB_FN bool has(uint64_t v) const { return v - first < count; }
};

}  // namespace graph
}  // namespace warpbell
