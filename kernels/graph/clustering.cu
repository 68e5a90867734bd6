// Kernels of local clustering coefficients by LDBC Graphalytics' rule: the arcs between the neighbours of a vertex in either
// direction, divided by the number of ordered pairs of neighbours (Iosup et al.: LDBC Graphalytics, PVLDB 9, 2016). Launch shape: any
// grid of blocks of up to 256 threads.
//
// A block marks the neighbours of a vertex c. It reads the lists of those that rank below c: each marked vertex in the list of y has
// the edge c - y between two of its neighbours. So the shorter list of each edge's two ends is read, O(m^1.5) edges of a graph of m
// edges (Chiba, Nishizeki: Arboricity and subgraph listing algorithms, SIAM J. Comput. 14, 1985), whatever the order of the lists.
#include <warpbell/kernel.h>

#include "near.cuh"

namespace warpbell {
namespace graph {

// The marks of a block: two bits for each vertex.
class neighbour_marks {
 public:
  static constexpr uint32_t outward = 1, inward = 2;  // the arc c -> v is there, the arc v -> c

  WB_FN explicit neighbour_marks(uint32_t* words) : words_(words) {}

  // Returns the marks of a vertex.
  WB_FN uint32_t of(uint64_t v) const { return (words_[v / 16] >> shift(v)) & 3u; }

  // Adds a mark. Returns the marks before.
  WB_FN uint32_t add(uint64_t v, uint32_t mark) const {
    return (order::fetch_or<order::relaxed>(&words_[v / 16], mark << shift(v)) >> shift(v)) & 3u;
  }

  // Removes the marks of a vertex, and of those that share its word.
  WB_FN void clear(uint64_t v) const { order::store<order::relaxed>(&words_[v / 16], 0u); }

 private:
  WB_FN static uint32_t shift(uint64_t v) { return static_cast<uint32_t>(v % 16 * 2); }

  uint32_t* words_;
};

// One warp of a block that counts arcs between neighbours.
template <class Id, class Session, class Near, class Ranks> class neighbour_counter {
 public:
  WB_FN neighbour_counter(const wb_clustering& p, neighbour_marks marks, both_directions<Session> own, both_directions<Near> near,
                          Ranks ranks)
      : arcs_(p.arcs),
        vertices_(p.vertices),
        range_{p.near_first, p.near_last - p.near_first},
        marks_(marks),
        own_(own),
        near_(near),
        ranks_(ranks) {}

  // Marks the neighbours of c. Returns the number of those that this lane marked first. The warps of a block share the lists.
  WB_FN uint64_t mark(uint64_t c) {
    uint64_t distinct = 0;
    for_each_neighbour(c, [&](Id n, uint32_t side) { distinct += marks_.add(n, side) == 0; });
    return distinct;
  }

  WB_FN void clear(uint64_t c) {
    for_each_neighbour(c, [&](Id n, uint32_t) { marks_.clear(n); });
  }

  // Reads the lists of the neighbours of c that rank below c, in parts that fit `lists`. The warps of a block share these neighbours.
  WB_FN void count(uint64_t c, marker<Id>& lists, marker<uint64_t>& pairs) {
    walk_neighbours(c, degree(c), neighbour_marks::outward, lists, pairs);
    if (own_.in) walk_neighbours(c, degree(c), neighbour_marks::inward, lists, pairs);
  }

  // Returns the length of both lists of a vertex of this PE.
  WB_FN uint64_t degree(uint64_t v) const { return own_.out.degree(v) + (own_.in ? own_.in.degree(v) : 0); }

  uint64_t found = 0, scanned = 0, bad = 0;  // of this lane

 private:
  // A list that a lane reads: of neighbour y of c, with the number of arcs between the two. One word, so that a shuffle passes it on.
  WB_FN static uint64_t tag_of(uint64_t y, uint32_t arcs) { return y << 7 | warp::lane() << 2 | arcs; }
  WB_FN static uint64_t vertex_of(uint64_t tag) { return tag >> 7; }
  WB_FN static uint64_t arcs_of(uint64_t tag) { return tag & 3; }
  // Returns the key of a vertex in a lane's list.
  WB_FN static uint64_t pair_of(uint64_t tag, uint64_t z) { return z << 5 | ((tag >> 2) & 31); }

  // Calls f(tag, edge) for each valid edge of the lanes' runs in one direction. All lanes call this.
  template <class S, class Tag, class F> WB_FN void for_each(const both_directions<S>& lists, uint32_t side, run r, Tag tag, F f) {
    scanned += r.count;
    auto valid = [&](Tag t, Id n) {
      if (is_valid_edge(lists.out.edges, n, vertices_, bad)) f(t, n);
    };
    if (side == neighbour_marks::outward) {
      for_each_edge(lists.out.edges, lists.out.reader, r.first, r.count, tag, valid);
    } else {
      for_each_edge(lists.in.edges, lists.in.reader, r.first, r.count, tag, valid);
    }
  }

  WB_FN const uint64_t* offset_of(uint32_t side) const { return side == neighbour_marks::outward ? own_.out.offset : own_.in.offset; }

  // Calls f(side, n) for each valid edge of a part of a list, which the lanes share. All lanes call this.
  template <class F> WB_FN void for_each_in(uint32_t side, uint64_t begin, uint64_t end, F f) {
    for (run r = run_to_cut(begin, end); r.count; r = run_to_cut(r.first + r.count, end)) {
      for_each(own_, side, warp::lane() == 0 ? r : run{0, 0}, side, f);
    }
  }

  // Calls f(n, side) for each neighbour of c but itself. The warps of a block share the pieces.
  template <class F> WB_FN void for_each_neighbour(uint64_t c, F f) {
    const uint32_t warps = warp::warps_per_block(), own = threadIdx.x / warp::width;
    for (uint32_t side = neighbour_marks::outward; side <= neighbour_marks::inward && offset_of(side); ++side) {
      const uint64_t last = offset_of(side)[c + 1];
      uint32_t turn = 0;
      for (uint64_t part = offset_of(side)[c], end; part < last; part = end) {
        end = part_end(part, last);
        if (turn++ % warps != own) continue;
        for_each_in(side, part, end, [&](uint32_t of, Id n) {
          if (n != c) f(n, of);
        });
      }
    }
  }

  WB_FN void walk_neighbours(uint64_t c, uint64_t degree_c, uint32_t side, marker<Id>& lists, marker<uint64_t>& pairs) {
    const uint64_t last = offset_of(side)[c + 1];
    for (uint64_t part = offset_of(side)[c], end; part < last; part = end) {
      end = part_end(part, last);
      lists.reset(static_cast<uint32_t>(end - part));
      for_each_in(side, part, end, [&](uint32_t of, Id y) {
        // A neighbour with arcs in both directions is in both lists; its turn comes in the first.
        if (y == c || (of == neighbour_marks::inward && (marks_.of(y) & neighbour_marks::outward))) return;
        // Neighbours are dealt to the block's warps by their hash.
        const uint32_t hash = static_cast<uint32_t>(static_cast<uint64_t>(y) * 0x9e3779b97f4a7c15ull >> 32);
        if (hash % warp::warps_per_block() != threadIdx.x / warp::width) return;
        if (range_.has(y) && ranks_.above(c, degree_c, y)) lists.insert(y);
      });
      warp::sync(warp::full());
      auto soon = [&](Id y) {
        if (near_.out.degree(y)) near_.out.edges.prefetch(near_.out.first(y), near_.out.degree(y));
        if (near_.in && near_.in.degree(y)) near_.in.edges.prefetch(near_.in.first(y), near_.in.degree(y));
      };
      for_each_key<Near>(lists, soon, [&](bool has, Id y) {
        const uint64_t tag = has ? tag_of(y, warp::popcount(marks_.of(y))) : 0;
        if (near_.in) {
          walk_both(has, tag, pairs);
        } else {
          walk_out(has, tag);
        }
      });
    }
  }

  // Counts a marked vertex in the list of a neighbour of c.
  WB_FN void count_arcs(uint64_t tag, Id z, uint64_t sign) {
    found += sign * arcs_of(tag);
    order::fetch_add<order::relaxed>(&arcs_[z], sign * arcs_of(tag));
  }

  WB_FN bool is_hit(uint64_t tag, Id z) const { return marks_.of(z) && z != vertex_of(tag); }

  // Reads the lists of an undirected graph.
  WB_FN void walk_out(bool has, uint64_t tag) {
    uint64_t at = has ? near_.out.first(vertex_of(tag)) : 0;
    const uint64_t end = has ? near_.out.last(vertex_of(tag)) : 0;
    while (warp::any(warp::full(), at < end)) {
      const run r = run_to_cut(at, end);
      for_each(near_, neighbour_marks::outward, r, tag, [&](uint64_t of, Id z) {
        if (is_hit(of, z)) count_arcs(of, z, 1);
      });
      at += r.count;
    }
  }

  // Reads the lists of a directed graph in both directions. A vertex that is in both lists of y counts once: those of a part of the
  // out-list are kept in `pairs` while the in-list is read. Later parts take back what counted twice.
  WB_FN void walk_both(bool has, uint64_t tag, marker<uint64_t>& pairs) {
    const warp::mask_t all = warp::full();
    const uint64_t y = vertex_of(tag);
    uint64_t at = has ? near_.out.first(y) : 0;
    const uint64_t end = has ? near_.out.last(y) : 0;
    bool first = true;
    while (warp::any(all, has)) {
      // As many lanes as together fill half of the set; one at least, since a run has no more edges.
      run r = has ? run_to_cut(at, end) : run{0, 0};
      uint32_t sum = r.count;
      for (uint32_t d = 1; d < warp::width; d *= 2) {
        const uint32_t before = warp::shuffle(all, sum, (warp::lane() + warp::width - d) % warp::width);
        if (warp::lane() >= d) sum += before;
      }
      const bool takes = has && sum <= piece_edges;
      if (!takes) r.count = 0;
      pairs.reset(warp::sum(all, r.count));
      for_each(near_, neighbour_marks::outward, r, tag, [&](uint64_t of, Id z) {
        if (!is_hit(of, z)) return;
        count_arcs(of, z, 1);
        pairs.insert(pair_of(of, z));
      });
      warp::sync(all);
      uint64_t in_at = takes ? near_.in.first(y) : 0;
      const uint64_t in_end = takes ? near_.in.last(y) : 0;
      const warp::mask_t firsts = warp::ballot(all, first);
      while (warp::any(all, in_at < in_end)) {
        const run in = run_to_cut(in_at, in_end);
        for_each(near_, neighbour_marks::inward, in, tag, [&](uint64_t of, Id z) {
          if (!is_hit(of, z)) return;
          const bool again = pairs.contains(pair_of(of, z));
          if ((firsts >> ((of >> 2) & 31)) & 1u) {
            if (!again) count_arcs(of, z, 1);
          } else if (again) {
            count_arcs(of, z, ~uint64_t{0});
          }
        });
        in_at += in.count;
      }
      if (takes) {
        at += r.count;
        first = false;
        has = at < end;
      }
    }
  }

  uint64_t* arcs_;
  uint64_t vertices_;
  vertex_range range_;
  neighbour_marks marks_;
  both_directions<Session> own_;
  both_directions<Near> near_;
  Ranks ranks_;
};

// Counts the arcs between the neighbours of each vertex, by the edges whose end of higher rank is from p.first to p.last, and the other one
// from p.near_first to p.near_last. `neighbours` is 0 before. `in` is not read in an undirected graph. Blocks take vertices as they finish others, because some take much longer. `make(marks, out, in)` makes the
// counter of a warp.
template <class Id, class Source, class Make>
WB_FN void clustering_count_by(const wb_clustering& p, const Source& out_source, const Source& in_source, Make make) {
  wb_graph_counters* sums = p.sums;
  uint64_t found = 0, scanned = 0, bad = 0;
  if (blockIdx.x < p.blocks) {
    auto out = out_source.open();
    auto in = in_source.open();
    using session = decltype(out);
    run_reader<session> out_reader(out), in_reader(in);
    const uint64_t words = (p.vertices + 15) / 16;
    const neighbour_marks marks(p.marks + blockIdx.x * words);
    auto counter = make(marks, both_directions<session>{{p.offset, 0, out, out_reader}, {p.in_offset, 0, in, in_reader}});
    const uint64_t set = static_cast<uint64_t>(warp::index()) * marker_slots;
    marker<Id> lists(static_cast<Id*>(p.lists) + set);
    marker<uint64_t> pairs(p.pairs ? p.pairs + set : nullptr);
    uint64_t* turn = &p.turn[blockIdx.x];
    for (;;) {
      if (threadIdx.x == 0) {
        order::store<order::relaxed>(turn, order::fetch_add<order::relaxed>(&sums->sum[WB_CLUSTERING_TAKEN], uint64_t{1}));
      }
      __syncthreads();
      const uint64_t c = p.first + order::load<order::relaxed>(turn);
      if (c >= p.last) break;
      // The degree is the same for the whole block. A vertex with fewer edges has no two neighbours.
      if (counter.degree(c) >= 2) {
        const uint64_t distinct = warp::sum(warp::full(), counter.mark(c));
        if (p.in_offset && distinct && warp::lane() == 0) order::fetch_add<order::relaxed>(&p.neighbours[c], distinct);
        __syncthreads();
        counter.count(c, lists, pairs);
        __syncthreads();
        counter.clear(c);
      }
      __syncthreads();
    }
    found = counter.found, scanned = counter.scanned, bad = counter.bad;
  }
  add_count(sums, WB_CLUSTERING_FOUND, found);
  add_count(sums, WB_CLUSTERING_SCANNED, scanned);
  add_count(sums, WB_GRAPH_BAD_EDGES, bad);
  publish(sums, p.report);
}

// Counts arcs of a graph on one PE.
template <class Id, class Source> WB_FN void clustering_count(const wb_clustering& p, const Source& out_source, const Source& in_source) {
  clustering_count_by<Id>(p, out_source, in_source, [&](neighbour_marks marks, auto own) {
    using session = typename decltype(own)::session;
    return neighbour_counter<Id, session, session, ranks_by_degree>(p, marks, own, own, {p.offset, p.in_offset});
  });
}

// Counts arcs of a graph that is distributed over PEs, by the neighbours whose lists were received.
template <class Source>
WB_FN void clustering_count_part(const wb_clustering& p, const wb_near& n, const Source& out_source, const Source& in_source) {
  using near_session = pointer_session<uint32_t>;
  near_session near_out(n.edges), near_in(n.in_edges);
  run_reader<near_session> out_reader(near_out), in_reader(near_in);
  const both_directions<near_session> near{{n.offset, n.base, near_out, out_reader}, {n.in_offset, n.in_base, near_in, in_reader}};
  clustering_count_by<uint32_t>(p, out_source, in_source, [&](neighbour_marks marks, auto own) {
    using session = typename decltype(own)::session;
    return neighbour_counter<uint32_t, session, near_session, ranks_by_number>(p, marks, own, near, {n.rank});
  });
}

// Divides the arcs between the neighbours of each vertex by the number of pairs. An edge of an undirected graph is two arcs.
WB_FN void clustering_divide(const wb_clustering& p) {
  const uint64_t* offset = p.offset;
  const uint32_t* loops = p.loops;
  const uint64_t* neighbours = p.neighbours;
  const uint64_t* arcs = p.arcs;
  double* coefficient = p.coefficient;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    const uint64_t n = p.in_offset ? neighbours[v] : degree_in(offset, v) - (loops && (loops[v / 32] >> (v % 32) & 1u));
    const double d = static_cast<double>(n), between = static_cast<double>(arcs[v]) * (p.in_offset ? 1 : 2);
    coefficient[v] = n < 2 ? 0 : between / (d * (d - 1));
  }
  publish(p.sums, p.report);
}

}  // namespace graph
}  // namespace warpbell

WB_GRAPH_KERNEL wb_clustering_divide(WB_PARAM wb_clustering p) { warpbell::graph::clustering_divide(p); }
WB_EXPORT(wb_clustering_divide)

#define WB_CLUSTERING_EDGES(ID, SUFFIX, SOURCE)                                                                                 \
  WB_GRAPH_KERNEL wb_clustering_count_##SUFFIX(WB_PARAM wb_clustering p, WB_PARAM SOURCE out_edges, WB_PARAM SOURCE in_edges) { \
    warpbell::graph::clustering_count<ID>(p, out_edges, in_edges);                                                              \
  }                                                                                                                             \
  WB_EXPORT(wb_clustering_count_##SUFFIX)

WB_CLUSTERING_EDGES(uint32_t, pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_CLUSTERING_EDGES(uint64_t, pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_CLUSTERING_EDGES(uint32_t, storage_u32, warpbell::array_ref<uint32_t>)
WB_CLUSTERING_EDGES(uint64_t, storage_u64, warpbell::array_ref<uint64_t>)

#define WB_CLUSTERING_PACKED(WHERE, SOURCE)                                                                         \
  WB_GRAPH_KERNEL wb_clustering_count_packed_##WHERE##_u32(WB_PARAM wb_clustering p, WB_PARAM SOURCE out_words,     \
                                                           const uint64_t* out_position, WB_PARAM SOURCE in_words,  \
                                                           const uint64_t* in_position) {                           \
    using source = warpbell::graph::packed_source<uint32_t, SOURCE>;                                                \
    warpbell::graph::clustering_count<uint32_t>(p, source{out_words, out_position}, source{in_words, in_position}); \
  }                                                                                                                 \
  WB_EXPORT(wb_clustering_count_packed_##WHERE##_u32)

WB_CLUSTERING_PACKED(pointer, warpbell::graph::pointer_source<uint32_t>)
WB_CLUSTERING_PACKED(storage, warpbell::array_ref<uint32_t>)

#define WB_CLUSTERING_PART(SUFFIX, SOURCE)                                                                                   \
  WB_GRAPH_KERNEL wb_clustering_count_part_##SUFFIX(WB_PARAM wb_clustering p, WB_PARAM wb_near n, WB_PARAM SOURCE out_edges, \
                                                    WB_PARAM SOURCE in_edges) {                                              \
    warpbell::graph::clustering_count_part(p, n, out_edges, in_edges);                                                       \
  }                                                                                                                          \
  WB_EXPORT(wb_clustering_count_part_##SUFFIX)

WB_CLUSTERING_PART(pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_CLUSTERING_PART(storage_u32, warpbell::array_ref<uint32_t>)

#define WB_CLUSTERING_PART_PACKED(WHERE, SOURCE)                                                                                         \
  WB_GRAPH_KERNEL wb_clustering_count_part_packed_##WHERE##_u32(WB_PARAM wb_clustering p, WB_PARAM wb_near n, WB_PARAM SOURCE out_words, \
                                                                const uint64_t* out_position, WB_PARAM SOURCE in_words,                  \
                                                                const uint64_t* in_position) {                                           \
    using source = warpbell::graph::packed_source<uint32_t, SOURCE>;                                                                     \
    warpbell::graph::clustering_count_part(p, n, source{out_words, out_position}, source{in_words, in_position});                        \
  }                                                                                                                                      \
  WB_EXPORT(wb_clustering_count_part_packed_##WHERE##_u32)

WB_CLUSTERING_PART_PACKED(pointer, warpbell::graph::pointer_source<uint32_t>)
WB_CLUSTERING_PART_PACKED(storage, warpbell::array_ref<uint32_t>)
