// Stress test of the kernels that compare neighbourhoods, and of peeling, with many threads at once, against serial counts.
// Compiled for several warp widths, with ThreadSanitizer where available: see tests/device/stress.rs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <vector>

#include <warpbell/cpu/launch.h>

#include "../../kernels/graph/clustering.cu"
#include "../../kernels/graph/core.cu"
#include "../../kernels/graph/near.cu"
#include "../../kernels/graph/queue.cu"
#include "../../kernels/graph/triangles.cu"
#include "check.h"
#include "model.h"
#include "packed_lists.h"

using namespace warpbell;
using graph::piece_edges;

namespace {

constexpr uint32_t warps = warp::width == 32 ? 2 : 4;
using queue_item = graph::item<uint32_t>;

template <class T> T* at(std::vector<T>& v) { return v.data(); }
template <class T> T* at(T& v) { return &v; }

// Neighbour lists of one direction.
struct lists {
  std::vector<uint64_t> offset{0};
  std::vector<uint32_t> list, tile;

  // Sorts lists by descending degree if `by_degree` is set.
  lists(const std::vector<std::set<uint32_t>>& of, bool by_degree) {
    for (const auto& near : of) {
      std::vector<uint32_t> sorted(near.begin(), near.end());
      if (by_degree) std::stable_sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) { return of[a].size() > of[b].size(); });
      list.insert(list.end(), sorted.begin(), sorted.end());
      offset.push_back(list.size());
    }
    set_tiles();
    list.push_back(0);  // a list without edges has an address, too
  }

  // Keeps the lists of the vertices from `first` to `last`, as a PE has them.
  lists part(uint64_t first, uint64_t last) const {
    lists own(*this);
    own.list.erase(own.list.begin() + static_cast<std::ptrdiff_t>(offset[last]), own.list.end() - 1);  // but for the one behind all
    own.list.erase(own.list.begin(), own.list.begin() + static_cast<std::ptrdiff_t>(offset[first]));
    for (uint64_t& o : own.offset) o = std::clamp(o, offset[first], offset[last]) - offset[first];
    own.set_tiles();
    return own;
  }

  void set_tiles() {
    tile.clear();
    for (uint64_t t = 0, v = 0; t * piece_edges < edges(); ++t) {
      while (offset[v + 1] <= t * piece_edges) ++v;
      tile.push_back(static_cast<uint32_t>(v));
    }
  }

  // Packs lists that ascend.
  packed_lists packed() const {
    std::vector<graph::weighted<uint32_t, uint32_t>> edges(offset.back());
    for (size_t i = 0; i < edges.size(); ++i) edges[i].id = list[i];
    return packed_lists(offset, edges, false);
  }

  uint64_t edges() const { return offset.back(); }
  graph::pointer_source<uint32_t> source() const { return {list.data()}; }
};

// A graph with hubs whose lists have several pieces, self-loops, and dense parts.
struct sample {
  uint64_t vertices;
  bool directed;
  std::vector<std::set<uint32_t>> out, in;
  std::vector<uint32_t> loops;
  wb_graph_counters sums{};
  wb_graph_report report{};

  sample(uint64_t leaves, bool is_directed, uint32_t seed) : vertices(leaves + 40), directed(is_directed), out(vertices), in(vertices) {
    std::mt19937 random(seed);
    auto join = [&](uint32_t a, uint32_t b) {
      out[a].insert(b), in[b].insert(a);
      if (!directed) out[b].insert(a), in[a].insert(b);
    };
    for (uint32_t v = 2; v < leaves; ++v) {
      join(0, v);
      if (v % 3) join(v, 1);
      if (v % 5 == 0) join(v, 0);
    }
    for (uint64_t e = 0; e < leaves; ++e) join(random() % leaves, random() % leaves);
    for (uint64_t e = 0; e < 500; ++e) join(random() % 40 % leaves, random() % 40 % leaves);
    loops.resize((vertices + 31) / 32);
    for (uint32_t v = 0; v < vertices; ++v) {
      if (out[v].count(v)) loops[v / 32] |= 1u << v % 32;
    }
    sums.least = ~0ull;
  }
};

std::vector<uint64_t> triangles_of(const sample& g) {
  std::vector<uint64_t> count(g.vertices);
  for (uint32_t a = 0; a < g.vertices; ++a) {
    for (auto b = g.out[a].upper_bound(a); b != g.out[a].end(); ++b) {
      for (auto c = std::next(b); c != g.out[a].end(); ++c) {
        if (g.out[*b].size() < 50 ? g.out[*b].count(*c) : g.out[*c].count(*b)) ++count[a], ++count[*b], ++count[*c];
      }
    }
  }
  return count;
}

void triangles(sample& g, const std::vector<uint64_t>& expected) {
  lists l(g.out, true);
  std::vector<uint32_t> above(g.vertices), markers(warps * 2 * WB_GRAPH_MARKER_SLOTS);
  std::vector<uint64_t> found(g.vertices);
  wb_triangles p{};
  p.offset = at(l.offset), p.tile = at(l.tile), p.above = at(above), p.found = at(found), p.markers = at(markers);
  p.sums = at(g.sums), p.report = at(g.report), p.vertices = g.vertices, p.edges = l.edges();
  model::run(warps, [&] { wb_triangles_order_pointer_u32(p, l.source()); });
  CHECK(g.report.sum[WB_TRIANGLES_SCANNED] == l.edges());
  uint64_t total = 0;
  for (p.near_last = g.vertices / 7; p.near_first < g.vertices; p.near_first = p.near_last, p.near_last = g.vertices) {
    p.first = 0;
    for (p.last = g.vertices / 3; p.first < g.vertices; p.first = p.last, p.last = g.vertices) {
      model::run(warps, [&] { wb_triangles_count_pointer_u32(p, l.source()); });
      total += g.report.sum[WB_TRIANGLES_FOUND];
    }
  }
  CHECK(found == expected);
  uint64_t sum = 0;
  for (uint64_t n : expected) sum += n;
  CHECK(total * 3 == sum);
}

// The neighbours of a vertex in either direction.
std::set<uint32_t> neighbours_of(const sample& g, uint32_t v) {
  std::set<uint32_t> near(g.out[v]);
  near.insert(g.in[v].begin(), g.in[v].end());
  near.erase(v);
  return near;
}

uint64_t arcs_between(const sample& g, const std::set<uint32_t>& near) {
  uint64_t between = 0;
  for (uint32_t a : near) {
    for (uint32_t b : g.out[a]) between += a != b && near.count(b);
  }
  return between;
}

// The numbers of neighbours, and of arcs between them: of edges in an undirected graph.
void clustering(sample& g, const std::vector<uint64_t>& triangles, uint32_t warps_of_block) {
  lists out(g.out, false), in(g.in, false);
  constexpr uint32_t blocks = 2;
  const uint32_t threads = warps_of_block * warp::width, sets = blocks * warps_of_block;
  std::vector<uint64_t> neighbours(g.vertices), arcs(g.vertices), pairs(sets * WB_GRAPH_MARKER_SLOTS), turn(blocks);
  std::vector<uint32_t> marks(blocks * ((g.vertices + 15) / 16)), keys(sets * WB_GRAPH_MARKER_SLOTS);
  std::vector<double> coefficient(g.vertices);
  wb_clustering p{};
  p.offset = at(out.offset), p.in_offset = g.directed ? at(in.offset) : nullptr, p.loops = at(g.loops), p.neighbours = at(neighbours);
  p.arcs = at(arcs), p.marks = at(marks), p.lists = at(keys), p.pairs = at(pairs), p.turn = at(turn), p.coefficient = at(coefficient);
  p.sums = at(g.sums), p.report = at(g.report), p.vertices = g.vertices, p.last = g.vertices, p.blocks = blocks;
  uint64_t found = 0;
  for (p.near_last = g.vertices / 5; p.near_first < g.vertices; p.near_first = p.near_last, p.near_last = g.vertices) {
    std::fill(neighbours.begin(), neighbours.end(), 0);
    // One block more than those that work.
    cpu::launch(blocks + 1, threads, &wb_clustering_count_pointer_u32, p, out.source(), in.source());
    found += g.report.sum[WB_CLUSTERING_FOUND];
  }
  cpu::launch(blocks, threads, &wb_clustering_divide, p);
  CHECK(std::all_of(marks.begin(), marks.end(), [](uint32_t w) { return w == 0; }));
  uint64_t sum = 0;
  for (uint32_t v = 0; v < g.vertices; ++v) {
    const std::set<uint32_t> near = neighbours_of(g, v);
    const uint64_t between = g.directed ? arcs_between(g, near) : triangles[v];
    if (g.directed) CHECK(neighbours[v] == (g.out[v].size() + g.in[v].size() >= 2 ? near.size() : 0));
    CHECK(arcs[v] == between);
    const double d = static_cast<double>(near.size());
    CHECK(coefficient[v] == (d < 2 ? 0.0 : static_cast<double>(between) * (g.directed ? 1 : 2) / (d * (d - 1))));
    sum += between;
  }
  CHECK(found == sum);
}

// Lists on several PEs, of which one has none, and the messages by which their lists come to the others.
struct distributed {
  sample& g;
  const bool packed;
  const lists out, in;
  std::vector<uint64_t> firsts;
  std::vector<uint32_t> rank, message;
  wb_near near{};

  distributed(sample& g, bool packed)
      : g(g),
        packed(packed),
        out(g.out, !packed),
        in(g.in, !packed),
        firsts{0, g.vertices / 5, g.vertices / 5, g.vertices},
        rank(g.vertices) {
    std::vector<uint32_t> order(g.vertices);
    for (uint32_t v = 0; v < g.vertices; ++v) order[v] = v;
    const auto degree = [&](uint32_t v) { return g.out[v].size() + (g.directed ? g.in[v].size() : 0); };
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return degree(a) > degree(b); });
    for (uint32_t i = 0; i < g.vertices; ++i) rank[order[i]] = i;
    near.rank = at(rank), near.offset = out.offset.data(), near.in_offset = g.directed ? in.offset.data() : nullptr;
  }

  // Copies the lists of some vertices of PE k.
  void copy(const lists& all, size_t k, uint64_t first, uint64_t last, uint32_t* to) {
    lists own = all.part(firsts[k], firsts[k + 1]);
    wb_near_copy p{};
    p.offset = at(own.offset), p.tile = at(own.tile);
    p.to = to, p.first = own.offset[first], p.last = own.offset[last];
    p.vertices = g.vertices, p.sums = at(g.sums), p.report = at(g.report);
    const packed_lists words = packed ? own.packed() : packed_lists();
    model::run(warps, [&] {
      if (packed) {
        wb_near_copy_packed_pointer_u32(p, words.source(), words.position.data());
      } else {
        wb_near_copy_pointer_u32(p, own.source());
      }
    });
    for (uint64_t i = p.first; i < p.last; ++i) CHECK(to[i - p.first] == own.list[i]);
  }

  // Calls f(first, last) after each message, of the lists of these vertices: two for each PE, the first of a few vertices.
  template <class F> void for_each_message(F f) {
    for (size_t k = 0; k + 1 < firsts.size(); ++k) {
      const uint64_t cut = firsts[k] + (firsts[k + 1] - firsts[k]) / 9;
      for (const auto& [first, last] : {std::pair{firsts[k], cut}, std::pair{cut, firsts[k + 1]}}) {
        if (first == last) continue;
        const uint64_t count = out.offset[last] - out.offset[first], in_count = in.offset[last] - in.offset[first];
        message.assign(count + in_count + 1, ~0u);
        copy(out, k, first, last, message.data());
        copy(in, k, first, last, message.data() + count);
        near.edges = message.data(), near.in_edges = message.data() + count;
        near.base = out.offset[first], near.in_base = in.offset[first];
        f(first, last);
      }
    }
  }

  // One PE after the other. The counts of all add up in the same memory.
  void triangles(const std::vector<uint64_t>& expected) {
    std::vector<uint32_t> above(g.vertices), markers(warps * 2 * WB_GRAPH_MARKER_SLOTS);
    std::vector<uint64_t> found(g.vertices);
    wb_triangles p{};
    p.above = at(above), p.found = at(found), p.markers = at(markers), p.sums = at(g.sums), p.report = at(g.report);
    p.vertices = g.vertices;
    const auto on = [&](lists& own) { p.offset = at(own.offset), p.tile = at(own.tile), p.edges = own.edges(); };
    for (size_t k = 0; k + 1 < firsts.size(); ++k) {
      lists own = out.part(firsts[k], firsts[k + 1]);
      on(own);
      model::run(warps, [&] { wb_triangles_order_part_pointer_u32(p, near, own.source()); });
      CHECK(g.report.sum[WB_TRIANGLES_SCANNED] == own.edges());
    }
    for (size_t k = 0; k + 1 < firsts.size(); ++k) {
      lists own = out.part(firsts[k], firsts[k + 1]);
      on(own);
      p.first = firsts[k], p.last = firsts[k + 1];
      for_each_message([&](uint64_t first, uint64_t last) {
        p.near_first = first, p.near_last = last;
        model::run(warps, [&] { wb_triangles_count_part_pointer_u32(p, near, own.source()); });
      });
    }
    CHECK(found == expected);
  }

  void clustering(const std::vector<uint64_t>& triangles) {
    constexpr uint32_t blocks = 2, warps_of_block = 2, sets = blocks * warps_of_block;
    std::vector<uint64_t> neighbours(g.vertices), arcs(g.vertices), pairs(sets * WB_GRAPH_MARKER_SLOTS), turn(blocks);
    std::vector<uint32_t> marks(blocks * ((g.vertices + 15) / 16)), keys(sets * WB_GRAPH_MARKER_SLOTS);
    wb_clustering p{};
    p.neighbours = at(neighbours), p.arcs = at(arcs), p.marks = at(marks), p.lists = at(keys), p.pairs = at(pairs), p.turn = at(turn);
    p.sums = at(g.sums), p.report = at(g.report), p.vertices = g.vertices, p.blocks = blocks;
    for (size_t k = 0; k + 1 < firsts.size(); ++k) {
      lists own = out.part(firsts[k], firsts[k + 1]), own_in = in.part(firsts[k], firsts[k + 1]);
      const packed_lists words = packed ? own.packed() : packed_lists(), in_words = packed ? own_in.packed() : packed_lists();
      p.offset = at(own.offset), p.in_offset = g.directed ? at(own_in.offset) : nullptr;
      p.first = firsts[k], p.last = firsts[k + 1];
      for_each_message([&](uint64_t first, uint64_t last) {
        p.near_first = first, p.near_last = last;
        std::fill(neighbours.begin(), neighbours.end(), 0);
        const uint32_t threads = warps_of_block * warp::width;
        if (packed) {
          cpu::launch(blocks, threads, &wb_clustering_count_part_packed_pointer_u32, p, near, words.source(), words.position.data(),
                      in_words.source(), in_words.position.data());
        } else {
          cpu::launch(blocks, threads, &wb_clustering_count_part_pointer_u32, p, near, own.source(), own_in.source());
        }
      });
    }
    for (uint32_t v = 0; v < g.vertices; ++v) CHECK(arcs[v] == (g.directed ? arcs_between(g, neighbours_of(g, v)) : triangles[v]));
  }
};

void cores(sample& g) {
  lists out(g.out, false), in(g.in, true);
  std::vector<uint64_t> degree(g.vertices);
  std::vector<uint32_t> remaining(g.loops.size()), peeled(g.loops.size());
  std::vector<queue_item> queue[2], in_queue[2];
  for (auto* q : {&queue[0], &queue[1], &in_queue[0], &in_queue[1]}) q->resize(g.vertices + 2 * (out.edges() / piece_edges) + 1);
  wb_core p{};
  p.offset = at(out.offset), p.in_offset = g.directed ? at(in.offset) : nullptr, p.loops = at(g.loops), p.degree = at(degree);
  p.remaining = at(remaining), p.peeled = at(peeled), p.sums = at(g.sums), p.report = at(g.report), p.vertices = g.vertices;
  model::run(warps, [&] { wb_core_start_u32(p); });
  uint64_t left = g.report.sum[WB_CORE_PEELED], scanned = 0;
  for (p.level = g.report.least; left > 0;) {
    uint32_t now = 0;
    p.queue_next = at(queue[0]), p.in_queue_next = at(in_queue[0]);
    model::run(warps, [&] { wb_core_collect_u32(p); });
    if (!g.report.sum[WB_CORE_PEELED]) {
      CHECK(g.report.least > p.level);
      p.level = g.report.least;
      continue;
    }
    left -= g.report.sum[WB_CORE_PEELED];
    uint64_t items = g.report.sum[WB_CORE_ITEMS], in_items = g.report.sum[WB_CORE_IN_ITEMS];
    while (items || in_items) {
      p.queue = at(queue[now]), p.items = items, p.read = p.offset;
      p.queue_next = at(queue[1 - now]), p.in_queue_next = at(in_queue[1 - now]);
      model::run(warps, [&] { wb_core_peel_pointer_u32(p, out.source()); });
      uint64_t next = g.report.sum[WB_CORE_ITEMS], in_next = g.report.sum[WB_CORE_IN_ITEMS];
      left -= g.report.sum[WB_CORE_PEELED], scanned += g.report.sum[WB_CORE_SCANNED];
      if (g.directed) {
        p.queue = at(in_queue[now]), p.items = in_items, p.read = p.in_offset;
        p.queue_next = queue[1 - now].data() + next, p.in_queue_next = in_queue[1 - now].data() + in_next;
        model::run(warps, [&] { wb_core_peel_pointer_u32(p, in.source()); });
        next += g.report.sum[WB_CORE_ITEMS], in_next += g.report.sum[WB_CORE_IN_ITEMS];
        left -= g.report.sum[WB_CORE_PEELED], scanned += g.report.sum[WB_CORE_SCANNED];
      }
      items = next, in_items = in_next, now = 1 - now;
    }
    ++p.level;
  }
  // Each list is read once, but for that of a vertex whose only edge leads to itself.
  uint64_t alone = 0;
  for (uint32_t v = 0; v < g.vertices; ++v) alone += g.out[v].size() == 1 && g.in[v].size() == 1 && g.out[v].count(v);
  CHECK(scanned + (1 + g.directed) * alone == out.edges() + (g.directed ? in.edges() : 0));

  // Serially, the vertex of least degree first.
  std::vector<uint64_t> expected(g.vertices);
  for (uint32_t v = 0; v < g.vertices; ++v) {
    expected[v] = g.out[v].size() - g.out[v].count(v) + (g.directed ? g.in[v].size() - g.in[v].count(v) : 0);
  }
  std::set<std::pair<uint64_t, uint32_t>> order;
  for (uint32_t v = 0; v < g.vertices; ++v) order.insert({expected[v], v});
  while (!order.empty()) {
    const auto [d, v] = *order.begin();
    order.erase(order.begin());
    auto lower = [&, least = d](const std::set<uint32_t>& near) {
      for (uint32_t n : near) {
        if (expected[n] <= least || !order.erase({expected[n], n})) continue;
        order.insert({--expected[n], n});
      }
    };
    lower(g.out[v]);
    if (g.directed) lower(g.in[v]);
  }
  CHECK(degree == expected);
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t leaves = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 3000;
  for (const bool directed : {false, true}) {
    sample g(leaves, directed, 1 + directed);
    std::vector<uint64_t> expected;
    if (!directed) expected = triangles_of(g);
    if (!directed) triangles(g, expected);
    for (uint32_t warps_of_block : {1u, 2u}) clustering(g, expected, warps_of_block);
    distributed plain(g, false);
    if (!directed) plain.triangles(expected);
    plain.clustering(expected);
    distributed(g, true).clustering(expected);
    cores(g);
  }
  std::printf("neighbourhood stress: width %u: ok\n", warp::width);
}
