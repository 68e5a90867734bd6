// Kernels that count triangles by the forward algorithm: each vertex has rank by degree, and the lists of its neighbours of higher
// rank are intersected with its own (Schank, Wagner: Finding, Counting and Listing All Triangles in Large Graphs, WEA 2005). A list
// has at most sqrt(2 m) neighbours of higher rank in a graph of m edges, so O(m^1.5) edges are read. Launch shape: any grid of blocks
// of up to 256 threads.
//
// Lists are sorted by descending degree, so the neighbours of higher rank are the first of each list.
#include <warpbell/kernel.h>

#include "near.cuh"

namespace warpbell {
namespace graph {

// Counts the neighbours of higher rank of every vertex. `above` is 0 before. Reads all edges once.
template <class Id, class Ranks, class Source> WB_FN void triangles_order(const wb_triangles& p, const Ranks& ranks, const Source& source) {
  const uint64_t* offset = p.offset;
  uint32_t* above = p.above;
  wb_graph_counters* sums = p.sums;
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  uint64_t scanned = 0, bad = 0;
  for_each_tile<true>(edges, static_cast<const Id*>(p.tile), 0, p.edges, false, [&](uint64_t from, uint64_t first, uint64_t last) {
    for_each_list_of_tile(offset, from, p.vertices, first, last, [&](uint64_t v, run r) {
      uint32_t own = 0;
      scanned += r.count;
      for_each_edge(edges, reader, r.first, r.count, static_cast<Id>(v), [&](Id u, Id n) {
        if (!is_valid_edge(edges, n, p.vertices, bad) || !ranks.above(n, u)) return;
        if constexpr (warp::width == 1) {
          ++own;  // the only lane reads a list of its own
        } else {
          order::fetch_add<order::relaxed>(&above[u], 1u);
        }
      });
      if (own) order::fetch_add<order::relaxed>(&above[v], own);
    });
  });
  add_count(sums, WB_TRIANGLES_SCANNED, scanned);
  add_count(sums, WB_GRAPH_BAD_EDGES, bad);
  publish(sums, p.report);
}

// Counts the neighbours of higher rank in a graph on one PE.
template <class Id, class Source> WB_FN void triangles_order_here(const wb_triangles& p, const Source& source) {
  triangles_order<Id>(p, ranks_by_degree{p.offset, nullptr}, source);
}

// One warp that counts triangles.
template <class Id, class Session, class Near> class triangle_counter {
 public:
  WB_FN triangle_counter(const wb_triangles& p, list_set<Session> own, list_set<Near> near)
      : above_(p.above), found_(p.found), vertices_(p.vertices), range_{p.near_first, p.near_last - p.near_first}, own_(own), near_(near) {}

  // Counts the triangles whose vertex of lowest rank is u. `marks` and `lists` are this warp's. All lanes call this.
  WB_FN void count(uint64_t u, marker<Id>& marks, marker<Id>& lists) {
    const uint64_t first = own_.first(u), last = first + above_[u];
    if (last - first < 2) return;
    const uint64_t before = found;
    // A list that exceeds a marker is marked part by part. A vertex that closes a triangle ranks higher than the one whose list has
    // it, so it is in the same part or in one before.
    for (uint64_t part = first; part < last; part = part_end(part, last)) {
      mark(marks, part, part_end(part, last));
      walk(marks, marks);
      for (uint64_t later = part_end(part, last); later < last; later = part_end(later, last)) {
        mark(lists, later, part_end(later, last));
        walk(lists, marks);
      }
    }
    const uint64_t own = warp::sum(warp::full(), found - before);
    if (own && warp::lane() == 0) order::fetch_add<order::relaxed>(&found_[u], own);
  }

  uint64_t found = 0, scanned = 0, bad = 0;  // of this lane

 private:
  // Fills a set with a part of a list.
  WB_FN void mark(marker<Id>& set, uint64_t begin, uint64_t end) {
    set.reset(static_cast<uint32_t>(end - begin));
    while (begin < end) {
      const run r = run_to_cut(begin, end);
      // The lanes share the run.
      const uint32_t count = warp::lane() == 0 ? r.count : 0;
      scanned += count;
      for_each_edge(own_.edges, own_.reader, r.first, count, Id{0}, [&](Id, Id n) {
        if (is_valid_edge(own_.edges, n, vertices_, bad)) set.insert(n);
      });
      begin += r.count;
    }
    warp::sync(warp::full());
  }

  // Reads the neighbours of higher rank of each vertex in `lists` whose list is read in this step, and counts those in `marks`.
  WB_FN void walk(const marker<Id>& lists, const marker<Id>& marks) {
    auto soon = [&](Id y) {
      if (range_.has(y) && above_[y]) near_.edges.prefetch(near_.first(y), above_[y]);
    };
    for_each_key<Near>(lists, soon, [&](bool taken, Id y) {
      const bool has = taken && range_.has(y);
      uint64_t begin = has ? near_.first(y) : 0;
      const uint64_t end = has ? begin + above_[y] : 0;
      while (warp::any(warp::full(), begin < end)) {
        const run r = run_to_cut(begin, end);
        scanned += r.count;
        for_each_edge(near_.edges, near_.reader, r.first, r.count, y, [&](Id v, Id n) {
          if (!is_valid_edge(near_.edges, n, vertices_, bad) || !marks.contains(n)) return;
          ++found;
          order::fetch_add<order::relaxed>(&found_[v], uint64_t{1});
          order::fetch_add<order::relaxed>(&found_[n], uint64_t{1});
        });
        begin += r.count;
      }
    });
  }

  const uint32_t* above_;
  uint64_t* found_;
  uint64_t vertices_;
  vertex_range range_;
  list_set<Session> own_;
  list_set<Near> near_;
};

// Counts the triangles whose vertex of lowest rank is from p.first to p.last, and whose middle one is from p.near_first to p.near_last.
// Warps take vertices as they finish others, because some take much longer.
template <class Id, class Counter> WB_FN void triangles_count_by(const wb_triangles& p, Counter& counter) {
  wb_graph_counters* sums = p.sums;
  Id* slots = static_cast<Id*>(p.markers) + static_cast<uint64_t>(warp::index()) * 2 * marker_slots;
  marker<Id> marks(slots), lists(slots + marker_slots);
  constexpr uint64_t most = 32, turns = 16;  // vertices of a turn, and turns of each warp before a turn grows
  const uint64_t share = (p.last - p.first) / (warp::total() * turns);
  const uint64_t turn = share < 1 ? 1 : share < most ? share : most;
  for (;;) {
    uint64_t at = 0;
    if (warp::lane() == 0) at = order::fetch_add<order::relaxed>(&sums->sum[WB_TRIANGLES_TAKEN], turn);
    at = p.first + warp::shuffle(warp::full(), at, 0);
    if (at >= p.last) break;
    for (uint64_t u = at; u < at + turn && u < p.last; ++u) counter.count(u, marks, lists);
  }
  add_count(sums, WB_TRIANGLES_FOUND, counter.found);
  add_count(sums, WB_TRIANGLES_SCANNED, counter.scanned);
  add_count(sums, WB_GRAPH_BAD_EDGES, counter.bad);
  publish(sums, p.report);
}

// Counts triangles of a graph on one PE.
template <class Id, class Source> WB_FN void triangles_count(const wb_triangles& p, const Source& source) {
  auto edges = source.open();
  using session = decltype(edges);
  run_reader<session> reader(edges);
  const list_set<session> lists{p.offset, 0, edges, reader};
  triangle_counter<Id, session, session> counter(p, lists, lists);
  triangles_count_by<Id>(p, counter);
}

// Counts triangles of a graph that is distributed over PEs, by the neighbours whose lists were received.
template <class Source> WB_FN void triangles_count_part(const wb_triangles& p, const wb_near& n, const Source& source) {
  auto edges = source.open();
  using session = decltype(edges);
  using near_session = pointer_session<uint32_t>;
  near_session near(n.edges);
  run_reader<session> reader(edges);
  run_reader<near_session> near_reader(near);
  triangle_counter<uint32_t, session, near_session> counter(p, list_set<session>{p.offset, 0, edges, reader},
                                                            list_set<near_session>{n.offset, n.base, near, near_reader});
  triangles_count_by<uint32_t>(p, counter);
}

}  // namespace graph
}  // namespace warpbell

#define WB_TRIANGLES_EDGES(ID, SUFFIX, SOURCE)                                                  \
  WB_GRAPH_KERNEL wb_triangles_order_##SUFFIX(WB_PARAM wb_triangles p, WB_PARAM SOURCE edges) { \
    warpbell::graph::triangles_order_here<ID>(p, edges);                                        \
  }                                                                                             \
  WB_EXPORT(wb_triangles_order_##SUFFIX)                                                        \
  WB_GRAPH_KERNEL wb_triangles_count_##SUFFIX(WB_PARAM wb_triangles p, WB_PARAM SOURCE edges) { \
    warpbell::graph::triangles_count<ID>(p, edges);                                             \
  }                                                                                             \
  WB_EXPORT(wb_triangles_count_##SUFFIX)

WB_TRIANGLES_EDGES(uint32_t, pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_TRIANGLES_EDGES(uint64_t, pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_TRIANGLES_EDGES(uint32_t, storage_u32, warpbell::array_ref<uint32_t>)
WB_TRIANGLES_EDGES(uint64_t, storage_u64, warpbell::array_ref<uint64_t>)
WB_PACKED_KERNELS(wb_triangles_order, wb_triangles, warpbell::graph::triangles_order_here<uint32_t>)
WB_PACKED_KERNELS(wb_triangles_count, wb_triangles, warpbell::graph::triangles_count<uint32_t>)

#define WB_TRIANGLES_PART(SUFFIX, SOURCE)                                                                                \
  WB_GRAPH_KERNEL wb_triangles_order_part_##SUFFIX(WB_PARAM wb_triangles p, WB_PARAM wb_near n, WB_PARAM SOURCE edges) { \
    warpbell::graph::triangles_order<uint32_t>(p, warpbell::graph::ranks_by_number{n.rank}, edges);                      \
  }                                                                                                                      \
  WB_EXPORT(wb_triangles_order_part_##SUFFIX)                                                                            \
  WB_GRAPH_KERNEL wb_triangles_count_part_##SUFFIX(WB_PARAM wb_triangles p, WB_PARAM wb_near n, WB_PARAM SOURCE edges) { \
    warpbell::graph::triangles_count_part(p, n, edges);                                                                  \
  }                                                                                                                      \
  WB_EXPORT(wb_triangles_count_part_##SUFFIX)

WB_TRIANGLES_PART(pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_TRIANGLES_PART(storage_u32, warpbell::array_ref<uint32_t>)
