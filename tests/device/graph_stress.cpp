// Stress test of the graph kernels with many threads at once, level by level as the host launches them, against serial searches.
// Compiled for several warp widths, with ThreadSanitizer where available: see tests/device/stress.rs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <queue>
#include <random>
#include <vector>

#include "../../kernels/graph/betweenness.cu"
#include "../../kernels/graph/bfs.cu"
#include "../../kernels/graph/cdlp.cu"
#include "../../kernels/graph/components.cu"
#include "../../kernels/graph/multi_bfs.cu"
#include "../../kernels/graph/pagerank.cu"
#include "../../kernels/graph/queue.cu"
#include "../../kernels/graph/sssp.cu"
#include "../../kernels/graph/strong.cu"
#include "check.h"
#include "controller.h"
#include "packed_lists.h"

using namespace warpbell;
using graph::piece_edges;

namespace {

constexpr uint32_t warps = warp::width == 32 ? 2 : 4;
constexpr uint32_t graphs = warp::width == 32 ? 1 : 2;
using edge = graph::weighted<uint32_t, uint32_t>;
using queue_item = graph::item<uint32_t>;

template <class T> T* at(std::vector<T>& v) { return v.data(); }
template <class T> T* at(T& v) { return &v; }

// An undirected graph with a vertex whose list has several pieces, and the kernels' data of the graph.
struct sample {
  uint64_t vertices;
  bool packed = false;
  packed_lists lists, weighted_lists;
  std::vector<uint64_t> offset;
  std::vector<uint32_t> list, tile;
  std::vector<graph::hubs<uint32_t>> hubs;
  std::vector<edge> weighted;
  std::vector<uint32_t> isolated;
  wb_graph_counters sums{};
  wb_graph_report report{};

  sample(uint64_t leaves, uint64_t edges, uint32_t seed) : vertices(leaves + 40), offset(vertices + 1) {
    std::mt19937 random(seed);
    std::vector<std::vector<edge>> lists(vertices);
    auto join = [&](uint32_t a, uint32_t b) {
      // Some edges have length 0, so that parents need an order among vertices of the same distance.
      const uint32_t weight = random() % 4 ? 1 + random() % 100 : 0;
      lists[a].push_back({b, weight});
      lists[b].push_back({a, weight});
    };
    for (uint32_t v = 1; v < leaves; v += 2) join(0, v);
    for (uint64_t e = 0; e < edges; ++e) join(random() % leaves, random() % leaves);
    for (uint64_t v = 0; v < vertices; ++v) {
      // Ascending, without duplicates: of two edges the lighter one.
      const auto before = [](const edge& a, const edge& b) { return a.id != b.id ? a.id < b.id : a.weight < b.weight; };
      std::sort(lists[v].begin(), lists[v].end(), before);
      const auto same = [](const edge& a, const edge& b) { return a.id == b.id; };
      lists[v].erase(std::unique(lists[v].begin(), lists[v].end(), same), lists[v].end());
    }
    for (uint64_t v = 0; v < vertices; ++v) {
      offset[v + 1] = offset[v] + lists[v].size();
      for (const edge& e : lists[v]) {
        list.push_back(e.id);
        weighted.push_back(e);
      }
      std::vector<edge> best = lists[v];
      std::stable_sort(best.begin(), best.end(), [&](const edge& a, const edge& b) { return lists[a.id].size() > lists[b.id].size(); });
      graph::hubs<uint32_t> hub{{~0u, ~0u, ~0u, ~0u}};
      for (size_t i = 0; i < best.size() && i < WB_GRAPH_HUBS; ++i) hub.id[i] = best[i].id;
      hubs.push_back(hub);
    }
    for (uint64_t t = 0, v = 0; t * piece_edges < list.size(); ++t) {
      while (offset[v + 1] <= t * piece_edges) ++v;
      tile.push_back(static_cast<uint32_t>(v));
    }
    isolated.resize((vertices + 31) / 32);
    for (uint64_t v = 0; v < isolated.size() * 32; ++v) {
      if (v >= vertices || lists[v].empty()) isolated[v / 32] |= 1u << v % 32;
    }
    sums.least = ~0ull;
    this->lists = packed_lists(offset, weighted, false);
    weighted_lists = packed_lists(offset, weighted, true);
  }

  graph::pointer_source<uint32_t> edges() const { return {list.data()}; }

  // Calls a kernel with the lists as they are, or with packed ones.
  template <class Plain, class Packed> void over(Plain plain, Packed with_packed) const {
    if (packed) {
      with_packed(lists.source(), lists.position.data());
    } else {
      plain(edges());
    }
  }
  uint64_t queue_items() const { return vertices + 2 * (list.size() / piece_edges) + 1; }
};

template <class Weight> std::vector<uint64_t> dijkstra(const sample& g, uint64_t source, Weight weight) {
  std::vector<uint64_t> distance(g.vertices, ~0ull);
  using entry = std::pair<uint64_t, uint64_t>;
  std::priority_queue<entry, std::vector<entry>, std::greater<entry>> heap;
  heap.push({distance[source] = 0, source});
  while (!heap.empty()) {
    const auto [d, v] = heap.top();
    heap.pop();
    if (d > distance[v]) continue;
    for (uint64_t i = g.offset[v]; i < g.offset[v + 1]; ++i) {
      const edge e = g.weighted[i];
      if (d + weight(e) < distance[e.id]) heap.push({distance[e.id] = d + weight(e), e.id});
    }
  }
  return distance;
}

// The sums of a step by hubs: the lists that it leaves, and the edges of the stretches of 32 lists that these lie in.
struct left_by_hubs {
  uint64_t lists = 0, edges = 0;

  left_by_hubs(const sample& g, const std::vector<uint32_t>& seen) {
    const auto is_seen = [&](uint64_t v) { return seen[v / 32] >> v % 32 & 1; };
    for (uint64_t base = 0; base < g.vertices; base += 32) {
      uint64_t here = 0, first = 0, last = 0;
      for (uint64_t v = base; v < base + 32 && v < g.vertices; ++v) {
        const uint64_t degree = g.offset[v + 1] - g.offset[v];
        bool found = is_seen(v) || degree <= WB_GRAPH_HUBS;
        for (uint32_t hub : g.hubs[v].id) found |= hub != ~0u && is_seen(hub);
        if (found) continue;
        if (!here++) first = g.offset[v];
        last = g.offset[v + 1];
      }
      lists += here;
      edges += std::min(last - first, here * piece_edges);
    }
  }
};

// Searches the graph. `plan` has a bit for each level: bottom-up or not.
void search(sample& g, uint64_t source, uint32_t plan) {
  std::vector<uint32_t> seen[2], depth(g.vertices), parent(g.vertices), bitmap(g.isolated.size());
  std::vector<queue_item> queue[2];
  for (auto& s : seen) s.resize(g.isolated.size());
  for (auto& q : queue) q.resize(g.queue_items());
  wb_bfs p{};
  p.offset = at(g.offset), p.hubs = at(g.hubs), p.isolated = at(g.isolated), p.depth = at(depth), p.parent = at(parent);
  p.sums = at(g.sums), p.report = at(g.report), p.vertices = g.vertices, p.source = source;
  uint32_t now = 0, turn = 0;
  bool queued = true;
  p.seen = at(seen[0]), p.queue_next = at(queue[0]);
  model::run(warps, [&] { wb_bfs_start_u32(p); });
  p.items = g.report.sum[WB_BFS_ITEMS];
  for (p.level = 1;; ++p.level) {
    if (plan >> p.level % 32 & 1) {
      p.seen = at(seen[now]), p.seen_next = at(seen[1 - now]), p.open = p.seen;
      uint64_t by_hubs = 0;
      if (p.level % 2) {
        // Hubs first, the rest from the lists.
        const left_by_hubs expected(g, seen[now]);
        model::run(warps, [&] { wb_bfs_by_hubs_u32(p); });
        CHECK(g.report.sum[WB_BFS_ITEMS] == expected.lists && g.report.sum[WB_BFS_DEGREES] == expected.edges);
        by_hubs = g.report.sum[WB_BFS_FOUND];
        p.open = p.seen_next;
      }
      model::run(warps, [&] {
        g.over([&](auto edges) { wb_bfs_bottom_up_pointer_u32(p, edges); },
               [&](auto words, auto position) { wb_bfs_bottom_up_packed_pointer_u32(p, words, position); });
      });
      g.report.sum[WB_BFS_FOUND] += by_hubs;
      now = 1 - now;
      queued = false;
    } else {
      if (!queued) {
        p.seen = at(seen[now]), p.seen_next = at(seen[1 - now]), p.queue_next = at(queue[turn]);
        model::run(warps, [&] { wb_bfs_collect_u32(p); });
        p.items = g.report.sum[WB_BFS_ITEMS];
      }
      wb_queue_order o{};
      o.offset = at(g.offset), o.queue = at(queue[turn]), o.queue_next = at(queue[1 - turn]), o.bitmap = at(bitmap);
      o.items = p.items, o.vertices = g.vertices, o.sums = at(g.sums), o.report = at(g.report);
      model::run(warps, [&] { wb_queue_mark_u32(o); });
      model::run(warps, [&] { wb_queue_collect_u32(o); });
      CHECK(g.report.sum[WB_BFS_ITEMS] == p.items);
      turn = 1 - turn;
      p.seen = at(seen[now]), p.queue = at(queue[turn]), p.queue_next = at(queue[1 - turn]);
      model::run(warps, [&] {
        g.over([&](auto edges) { wb_bfs_top_down_pointer_u32(p, edges); },
               [&](auto words, auto position) { wb_bfs_top_down_packed_pointer_u32(p, words, position); });
      });
      turn = 1 - turn;
      p.items = g.report.sum[WB_BFS_ITEMS];
      queued = true;
    }
    if (g.report.sum[WB_BFS_FOUND] == 0) break;
  }
  const auto expected = dijkstra(g, source, [](edge) { return 1; });
  for (uint64_t v = 0; v < g.vertices; ++v) {
    CHECK(depth[v] == static_cast<uint32_t>(expected[v]));
    if (v != source) CHECK(depth[v] == ~0u ? parent[v] == ~0u : depth[parent[v]] + 1 == depth[v]);
  }
}

// Searches from as many vertices as a mask has bits, two of them from one vertex.
void search_together(sample& g) {
  constexpr uint64_t searches = WB_MULTI_BFS_SEARCHES;
  std::vector<uint64_t> seen(g.vertices), frontier(g.vertices), next(g.vertices), source(searches), address(searches);
  std::vector<uint32_t> fresh(g.isolated.size());
  std::vector<std::vector<uint32_t>> depth(searches, std::vector<uint32_t>(g.vertices));
  std::vector<queue_item> queue(g.queue_items());
  for (uint64_t i = 0; i < searches; ++i) {
    source[i] = i == 1 ? 0 : i * 37 % g.vertices;
    address[i] = reinterpret_cast<uint64_t>(at(depth[i]));
  }
  wb_multi_bfs p{};
  p.step.offset = at(g.offset), p.step.hubs = at(g.hubs), p.step.queue = at(queue), p.step.sums = at(g.sums);
  p.step.report = at(g.report), p.step.vertices = g.vertices, p.seen = at(seen), p.frontier = at(frontier), p.next = at(next);
  p.fresh = at(fresh), p.source = at(source), p.depth = at(address), p.searches = searches;
  wb_queue_order o{};
  o.offset = at(g.offset), o.queue_next = at(queue), o.bitmap = at(fresh), o.vertices = g.vertices, o.sums = at(g.sums);
  o.report = at(g.report);
  model::run(warps, [&] { wb_multi_bfs_start(p); });
  model::run(warps, [&] { wb_multi_bfs_seed(p); });
  model::run(warps, [&] { wb_multi_bfs_advance(p); });
  while (g.report.sum[WB_BFS_FOUND] != 0) {
    ++p.step.level;
    model::run(warps, [&] { wb_queue_collect_u32(o); });
    p.step.items = g.report.sum[WB_BFS_ITEMS];
    model::run(warps, [&] {
      g.over([&](auto edges) { wb_multi_bfs_expand_pointer_u32(p, edges); },
             [&](auto words, auto position) { wb_multi_bfs_expand_packed_pointer_u32(p, words, position); });
    });
    model::run(warps, [&] { wb_multi_bfs_advance(p); });
  }
  for (uint64_t i = 0; i < searches; i += i < 2 ? 1 : 31) {
    const auto expected = dijkstra(g, source[i], [](edge) { return 1; });
    for (uint64_t v = 0; v < g.vertices; ++v) {
      CHECK(depth[i][v] == static_cast<uint32_t>(expected[v]));
      CHECK((seen[v] >> i & 1) == (expected[v] != ~0ull));
    }
  }
}

void components(sample& g) {
  std::vector<uint32_t> label(g.vertices);
  wb_components p{};
  p.offset = at(g.offset), p.hubs = at(g.hubs), p.label = at(label), p.tile = at(g.tile), p.sums = at(g.sums);
  p.report = at(g.report), p.vertices = g.vertices, p.edges = g.list.size(), p.giant = ~0u;
  model::run(warps, [&] { wb_components_start_u32(p); });
  model::run(warps, [&] { wb_components_hubs_u32(p); });
  p.hub = 1;
  model::run(warps, [&] { wb_components_hubs_u32(p); });
  model::run(warps, [&] { wb_components_compress_u32(p); });
  model::run(warps, [&] {
    g.over([&](auto edges) { wb_components_rest_pointer_u32(p, edges); },
           [&](auto words, auto position) { wb_components_rest_packed_pointer_u32(p, words, position); });
  });
  model::run(warps, [&] { wb_components_compress_u32(p); });
  std::vector<uint32_t> expected(g.vertices, ~0u);
  for (uint64_t v = 0; v < g.vertices; ++v) {
    if (expected[v] != ~0u) continue;
    const auto reached = dijkstra(g, v, [](edge) { return 1; });
    for (uint64_t u = 0; u < g.vertices; ++u) {
      if (reached[u] != ~0ull) expected[u] = static_cast<uint32_t>(v);
    }
  }
  CHECK(label == expected);
}

// Propagates labels, in two batches of vertices.
void labels(sample& g) {
  std::vector<uint32_t> label(g.vertices), expected(g.vertices);
  std::vector<uint64_t> best(g.vertices);
  std::vector<graph::label_slot<uint32_t>> table(2 * g.list.size());
  wb_cdlp p{};
  p.offset = p.out_offset = at(g.offset), p.label = at(label), p.best = at(best), p.table = at(table), p.sums = at(g.sums);
  p.report = at(g.report), p.vertices = g.vertices, p.label_bits = 32;
  model::run(warps, [&] { wb_cdlp_start_u32(p); });
  for (uint32_t v = 0; v < g.vertices; ++v) expected[v] = v;
  for (uint32_t iteration = 0; iteration < 3; ++iteration) {
    p.backward = iteration % 2;
    for (const uint64_t end : {g.vertices / 3, g.vertices}) {
      p.first = end == g.vertices ? g.vertices / 3 : 0, p.last = end;
      const uint64_t tile = g.offset[p.first] / piece_edges;
      p.tile = at(g.tile) + tile, p.edges_from = tile * piece_edges, p.edges_to = g.offset[end];
      std::fill(table.begin(), table.end(), graph::label_slot<uint32_t>{~0u, ~0u});
      model::run(warps, [&] { wb_cdlp_count_pointer_u32(p, g.edges()); });
    }
    model::run(warps, [&] { wb_cdlp_apply_u32(p); });
    std::vector<uint32_t> next = expected;
    for (uint32_t v = 0; v < g.vertices; ++v) {
      std::vector<uint32_t> around;
      for (uint64_t i = g.offset[v]; i < g.offset[v + 1]; ++i) {
        if (g.list[i] != v) around.push_back(expected[g.list[i]]);
      }
      std::sort(around.begin(), around.end());
      for (size_t i = 0, most = 0, count = 0; i < around.size(); ++i) {
        count = i && around[i] == around[i - 1] ? count + 1 : 1;
        if (count > most) most = count, next[v] = around[i];
      }
    }
    expected = next;
    CHECK(label == expected);
  }
  model::run(warps, [&] { wb_cdlp_mark_u32(p); });
  model::run(warps, [&] { wb_cdlp_labels(p); });
  std::sort(expected.begin(), expected.end());
  CHECK(g.report.sum[WB_CDLP_LABELS] == static_cast<uint64_t>(std::unique(expected.begin(), expected.end()) - expected.begin()));
}

// Finds strongly connected components of the edges that lead upwards, and of every seventh vertex's others.
void strong(sample& g) {
  std::vector<uint64_t> out_offset(g.vertices + 1), in_offset(g.vertices + 1);
  std::vector<std::vector<uint32_t>> out(g.vertices), in(g.vertices);
  for (uint32_t v = 0; v < g.vertices; ++v) {
    for (uint64_t i = g.offset[v]; i < g.offset[v + 1]; ++i) {
      const uint32_t n = g.list[i];
      if (n > v || v % 7 == 0) out[v].push_back(n), in[n].push_back(v);
    }
  }
  const auto flat = [&](const std::vector<std::vector<uint32_t>>& lists, std::vector<uint64_t>& offset) {
    std::vector<uint32_t> list;
    for (uint64_t v = 0; v < g.vertices; ++v) {
      list.insert(list.end(), lists[v].begin(), lists[v].end());
      offset[v + 1] = list.size();
    }
    return list;
  };
  const std::vector<uint32_t> out_list = flat(out, out_offset), in_list = flat(in, in_offset);
  std::vector<uint32_t> root(g.vertices), group(g.vertices), colour(g.vertices), stamp(g.vertices), leaves(g.isolated.size());
  std::vector<uint32_t> entered(g.isolated.size());
  std::vector<queue_item> queue[2];
  for (auto& q : queue) q.resize(g.queue_items());
  wb_strong p{};
  p.offset = at(out_offset), p.in_offset = at(in_offset), p.root = at(root), p.group = at(group), p.colour = at(colour);
  p.stamp = at(stamp), p.leaves = at(leaves), p.entered = at(entered), p.sums = at(g.sums), p.report = at(g.report);
  p.vertices = g.vertices, p.vertex_bits = 32;
  uint64_t open = g.vertices;
  model::run(warps, [&] { wb_strong_start_u32(p); });
  open -= g.report.sum[WB_STRONG_FOUND];
  p.pivot = g.report.least == ~0ull ? g.vertices : g.report.least & 0xffffffffu;
  while (open) {
    uint32_t now = 0;
    p.offset = at(out_offset), p.queue_next = at(queue[0]), p.marks = p.pivot == g.vertices;
    model::run(warps, [&] { wb_strong_begin_u32(p); });
    for (; (p.items = g.report.sum[WB_STRONG_ITEMS]); p.marks = 0) {
      p.queue = at(queue[now]), p.queue_next = at(queue[1 - now]);
      model::run(warps, [&] { wb_strong_spread_pointer_u32(p, {out_list.data()}); });
      now = 1 - now, ++p.round;
    }
    p.offset = at(in_offset), p.queue_next = at(queue[now]);
    model::run(warps, [&] { wb_strong_roots_u32(p); });
    for (open -= g.report.sum[WB_STRONG_FOUND]; (p.items = g.report.sum[WB_STRONG_ITEMS]); open -= g.report.sum[WB_STRONG_FOUND]) {
      p.queue = at(queue[now]), p.queue_next = at(queue[1 - now]);
      model::run(warps, [&] { wb_strong_gather_pointer_u32(p, {in_list.data()}); });
      now = 1 - now;
    }
    p.pivot = g.vertices, ++p.seed;
  }
  model::run(warps, [&] { wb_strong_clear_u32(p); });
  model::run(warps, [&] { wb_strong_least_u32(p); });
  model::run(warps, [&] { wb_strong_label_u32(p); });
  // A vertex and its label reach each other, and no smaller vertex does.
  const auto reached_from = [&](uint32_t v, const std::vector<std::vector<uint32_t>>& lists) {
    std::vector<bool> seen(g.vertices);
    std::vector<uint32_t> todo{v};
    for (seen[v] = true; !todo.empty();) {
      const uint32_t u = todo.back();
      todo.pop_back();
      for (const uint32_t n : lists[u]) {
        if (!seen[n]) seen[n] = true, todo.push_back(n);
      }
    }
    return seen;
  };
  std::vector<uint32_t> expected(g.vertices, ~0u);
  for (uint32_t v = 0; v < g.vertices; ++v) {
    if (expected[v] != ~0u) continue;
    const auto ahead = reached_from(v, out), behind = reached_from(v, in);
    for (uint32_t u = v; u < g.vertices; ++u) {
      if (ahead[u] && behind[u]) expected[u] = v;
    }
  }
  CHECK(root == expected);
}

// Sums the dependencies of a source.
void dependencies(sample& g, uint64_t source) {
  std::vector<uint32_t> depth(g.vertices);
  std::vector<double> paths(g.vertices), dependency(g.vertices), score(g.vertices);
  std::vector<queue_item> queue(g.queue_items());
  std::vector<std::pair<uint64_t, uint64_t>> levels;
  wb_betweenness p{};
  p.offset = at(g.offset), p.depth = at(depth), p.paths = at(paths), p.dependency = at(dependency), p.score = at(score);
  p.sums = at(g.sums), p.report = at(g.report), p.vertices = g.vertices, p.source = source, p.queue_next = at(queue);
  model::run(warps, [&] { wb_betweenness_start_u32(p); });
  uint64_t end = 0;
  while ((p.items = g.report.sum[WB_BETWEENNESS_ITEMS])) {
    levels.push_back({end, p.items});
    p.queue = at(queue) + end, p.queue_next = at(queue) + end + p.items, p.level = static_cast<uint32_t>(levels.size());
    model::run(warps, [&] { wb_betweenness_forward_pointer_u32(p, g.edges()); });
    end += p.items;
  }
  for (p.level = static_cast<uint32_t>(levels.size()); p.level; --p.level) {
    p.queue = at(queue) + levels[p.level - 1].first, p.items = levels[p.level - 1].second;
    model::run(warps, [&] { wb_betweenness_back_pointer_u32(p, g.edges()); });
  }
  // Pairs of vertices that are equally far lie on no path together, so any order of depths serves.
  std::vector<uint32_t> order;
  std::vector<double> ways(g.vertices), sums(g.vertices);
  for (uint32_t v = 0; v < g.vertices; ++v) {
    if (depth[v] != ~0u) order.push_back(v);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return depth[a] < depth[b]; });
  ways[source] = 1;
  const auto each = [&](uint32_t v, auto f) {
    for (uint64_t i = g.offset[v]; i < g.offset[v + 1]; ++i) {
      if (depth[g.list[i]] == depth[v] + 1) f(g.list[i]);
    }
  };
  for (const uint32_t v : order) each(v, [&](uint32_t n) { ways[n] += ways[v]; });
  for (size_t i = order.size(); i--;) {
    const uint32_t v = order[i];
    each(v, [&](uint32_t n) { sums[v] += ways[v] / ways[n] * (1 + sums[n]); });
    const double apart = v == source ? score[v] : score[v] - sums[v];
    CHECK(apart < 1e-6 * (1 + sums[v]) && -apart < 1e-6 * (1 + sums[v]));
  }
  const auto expected = dijkstra(g, source, [](edge) { return 1; });
  for (uint64_t v = 0; v < g.vertices; ++v) CHECK(depth[v] == static_cast<uint32_t>(expected[v]));
}

void ranks(sample& g) {
  std::vector<double> rank(g.vertices), sum(g.vertices), contribution(g.vertices);
  wb_pagerank p{};
  p.offset = p.out_offset = at(g.offset), p.tile = at(g.tile), p.rank = at(rank), p.sum = at(sum);
  p.contribution = at(contribution), p.sums = at(g.sums), p.report = at(g.report), p.vertices = g.vertices;
  p.edges = g.list.size(), p.damping = 0.85, p.last = g.vertices;
  model::run(warps, [&] { wb_pagerank_start_f64(p); });
  for (uint32_t iteration = 0; iteration < 3; ++iteration) {
    double dangling;
    memcpy(&dangling, &g.report.sum[WB_PAGERANK_DANGLING], sizeof dangling);
    p.base = (0.15 + 0.85 * dangling) / static_cast<double>(g.vertices), p.backward = iteration % 2;
    model::run(warps, [&] {
      g.over([&](auto edges) { wb_pagerank_pull_f64_pointer_u32(p, edges); },
             [&](auto words, auto position) { wb_pagerank_pull_f64_packed_pointer_u32(p, words, position); });
    });
    model::run(warps, [&] { wb_pagerank_apply_f64(p); });
  }
  double total = 0;
  for (double r : rank) total += r;
  CHECK(total > 1 - 1e-9 && total < 1 + 1e-9);
}

void distances(sample& g, uint64_t source, uint64_t delta) {
  std::vector<uint32_t> distance(g.vertices), stamp(g.vertices), in_far(g.isolated.size()), far[2];
  std::vector<queue_item> near[2];
  for (auto& q : near) q.resize(g.queue_items());
  for (auto& q : far) q.resize(g.vertices);
  wb_sssp p{};
  p.offset = at(g.offset), p.distance = at(distance), p.stamp = at(stamp), p.in_far = at(in_far), p.sums = at(g.sums);
  p.report = at(g.report), p.vertices = g.vertices, p.source = source, p.threshold = delta, p.near_next = at(near[0]), p.last = g.vertices;
  uint32_t now = 0, far_now = 0;
  uint64_t least = ~0ull;
  const packed_lists& lists = g.weighted_lists;
  model::run(warps, [&] { wb_sssp_start_u32_d32(p); });
  p.near_items = g.report.sum[WB_SSSP_NEAR];
  while (p.near_items || p.far_items) {
    while (p.near_items) {
      p.near = at(near[now]), p.near_next = at(near[1 - now]), p.far = at(far[far_now]);
      model::run(warps, [&] {
        g.over([&](auto) { wb_sssp_relax_pointer_u32_w32_d32(p, {g.weighted.data()}); },
               [&](auto, auto) { wb_sssp_relax_packed_pointer_u32_w32_d32(p, lists.source(), lists.position.data()); });
      });
      now = 1 - now, ++p.round;
      p.near_items = g.report.sum[WB_SSSP_NEAR], p.far_items += g.report.sum[WB_SSSP_FAR];
      if (g.report.least < least) least = g.report.least;
    }
    if (!p.far_items) break;
    p.settled = p.threshold, p.threshold = (least > p.settled ? least : p.settled) + delta;
    p.far = at(far[far_now]), p.far_next = at(far[1 - far_now]), p.near_next = at(near[now]);
    model::run(warps, [&] { wb_sssp_split_u32_d32(p); });
    far_now = 1 - far_now;
    p.near_items = g.report.sum[WB_SSSP_NEAR], p.far_items = g.report.sum[WB_SSSP_FAR], least = g.report.least;
  }
  const auto expected = dijkstra(g, source, [](edge e) { return e.weight; });
  for (uint64_t v = 0; v < g.vertices; ++v) CHECK(distance[v] == static_cast<uint32_t>(expected[v]));

  std::vector<uint32_t> parent(g.vertices);
  p.parent = at(parent);
  for (p.round = 0; p.round < 2; ++p.round) {
    p.near_next = at(near[now]);
    model::run(warps, [&] { wb_sssp_spread_u32_d32(p); });
    p.near_items = g.report.sum[WB_SSSP_NEAR];
    while (p.near_items) {
      p.near = at(near[now]), p.near_next = at(near[1 - now]), now = 1 - now;
      model::run(warps, [&] {
        g.over([&](auto) { wb_sssp_parents_pointer_u32_w32_d32(p, {g.weighted.data()}); },
               [&](auto, auto) { wb_sssp_parents_packed_pointer_u32_w32_d32(p, lists.source(), lists.position.data()); });
      });
      p.near_items = g.report.sum[WB_SSSP_NEAR];
    }
  }
  for (uint64_t v = 0; v < g.vertices; ++v) {
    if (expected[v] == ~0ull) {
      CHECK(parent[v] == ~0u);
      continue;
    }
    // The parents lead to the source, and no path has more vertices than there are.
    uint64_t u = v, steps = 0;
    for (; u != source; u = parent[u]) {
      bool tight = false;
      for (uint64_t i = g.offset[parent[u]]; i < g.offset[parent[u] + 1]; ++i) {
        tight |= g.weighted[i].id == u && distance[parent[u]] + g.weighted[i].weight == distance[u];
      }
      CHECK(tight && ++steps < g.vertices);
    }
  }

  // Half of the largest distance is the limit.
  p.threshold = 0;
  for (uint32_t d : distance) p.threshold = d != ~0u && d / 2 > p.threshold ? d / 2 : p.threshold;
  model::run(warps, [&] { wb_sssp_cut_u32_d32(p); });
  for (uint64_t v = 0; v < g.vertices; ++v) {
    CHECK(distance[v] == (expected[v] > p.threshold ? ~0u : static_cast<uint32_t>(expected[v])));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t leaves = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 3000;
  for (uint32_t seed = 1; seed <= graphs; ++seed) {
    sample g(leaves, leaves / 2, seed);
    for (const bool packed : {false, true}) {
      g.packed = packed;
      for (uint32_t plan : {0u, ~0u, 0b1100u}) search(g, seed * 7, plan);
      search_together(g);
      components(g);
      ranks(g);
      for (uint64_t delta : {20, 100000}) distances(g, seed * 5, delta);
    }
    strong(g);
    labels(g);
    dependencies(g, seed * 7);
  }
  std::printf("graph stress: width %u: ok\n", warp::width);
}
