// Stress test of searches over a partitioned graph, with many threads on every PE at once, level by level as the host launches
// them, against a serial search. Compiled for several warp widths, with ThreadSanitizer where available: see
// tests/device/stress.rs.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "../../kernels/graph/partitioned.cu"
#include "check.h"
#include "pes.h"

using namespace warpbell;
using graph::piece_edges;

namespace {

constexpr uint64_t span = 1024;
using queue_item = graph::item<uint32_t>;
using pes::line;

template <class T> T* at(std::vector<T>& v) { return v.data(); }
template <class T> T* at(T& v) { return &v; }

// The symmetric heap as the kernels use it.
struct layout : pes::places {
  uint64_t depth, parent, inbox, frontier, header, inbox_signal, frontier_signal;

  explicit layout(uint32_t pes) {
    depth = take(span * 4), parent = take(span * 4), inbox = take(pes * span * 8), frontier = take(2 * pes * span / 8);
    header = take(2 * pes * sizeof(wb_partition_header)), inbox_signal = take(pes * 8), frontier_signal = take(pes * 8);
  }
};

// One PE: vertex v is number v / pes of PE v % pes.
struct element {
  std::vector<uint64_t> offset{0}, outbox_count;
  std::vector<uint32_t> list, isolated, seen, fresh, found;
  std::vector<graph::hubs<uint32_t>> hubs;
  std::vector<queue_item> queue[2];
  std::vector<graph::claim<uint32_t>> outbox;
  wb_graph_counters sums{};
  wb_partition_counters counters{};
  wb_partition_report report{};
  wb_control control{};
  wb_error_log log{};
  uint32_t stop = 0, abort = 0;
  wb_partition p{};
  wb_world world{};

  // Points a parameter to a place in this PE's heap.
  template <class T> void place(T*& parameter, uint64_t offset) { parameter = reinterpret_cast<T*>(world.heap + offset); }
};

struct fixture {
  uint32_t pes;
  uint64_t vertices;
  std::vector<std::vector<uint32_t>> lists;
  layout heap;
  std::vector<line> memory;
  std::vector<element> pe;

  fixture(uint32_t pes, uint64_t vertices, uint32_t seed)
      : pes(pes), vertices(vertices), lists(vertices), heap(pes), memory(pes * heap.lines), pe(pes) {
    std::mt19937 random(seed);
    auto join = [&](uint32_t a, uint32_t b) {
      lists[a].push_back(b);
      lists[b].push_back(a);
    };
    // A list of several pieces if there are vertices for it, a path, and random edges.
    for (uint32_t v = 2; v < vertices * 3 / 4; ++v) join(0, v);
    for (uint32_t v = 0; v + 1 < vertices / 4; ++v) join(vertices - 2 - v, vertices - 3 - v);
    for (uint32_t e = 0; e < vertices; ++e) join(random() % vertices, random() % (vertices / 2));
    for (uint32_t k = 0; k < pes; ++k) prepare(k);
  }

  uint32_t slot(uint64_t v) const { return static_cast<uint32_t>(v % pes * span + v / pes); }

  void prepare(uint32_t k) {
    element& e = pe[k];
    uint64_t own = 0;
    for (uint64_t v = k; v < vertices; v += pes, ++own) {
      graph::hubs<uint32_t> hub{{~0u, ~0u, ~0u, ~0u}};
      for (size_t i = 0; i < lists[v].size(); ++i) {
        e.list.push_back(slot(lists[v][i]));
        if (i < WB_GRAPH_HUBS) hub.id[i] = e.list.back();
      }
      e.hubs.push_back(hub);
      e.offset.push_back(e.list.size());
    }
    e.isolated.resize((own + 31) / 32);
    for (uint64_t v = 0; v < e.isolated.size() * 32; ++v) {
      if (v >= own || e.offset[v] == e.offset[v + 1]) e.isolated[v / 32] |= 1u << v % 32;
    }
    e.seen.resize(pes * span / 32), e.fresh.resize(span / 32), e.found.resize(span / 32);
    for (auto& q : e.queue) q.resize(own + 2 * (e.list.size() / piece_edges) + 1);
    e.outbox.resize(pes * span), e.outbox_count.resize(pes);
    e.control.stop = &e.stop, e.control.abort = &e.abort, e.control.error_log = &e.log;
    e.control.deadline_ns = 60'000'000'000;
    e.world.control = &e.control, e.world.pe = k, e.world.size = pes;
    e.world.stride = e.world.heap_bytes = heap.lines * sizeof(line);
    e.world.heap = reinterpret_cast<uint64_t>(at(memory)) + k * e.world.stride;
    e.world.flags = WB_WORLD_LOAD_STORE | WB_WORLD_ATOMICS;
    wb_partition& p = e.p;
    p.offset = at(e.offset), p.hubs = at(e.hubs), p.isolated = at(e.isolated), p.seen = at(e.seen), p.fresh = at(e.fresh);
    p.outbox = at(e.outbox), p.outbox_count = at(e.outbox_count), p.list = at(e.found), p.sums = at(e.sums);
    p.counters = at(e.counters), p.report = at(e.report), e.place(p.depth, heap.depth);
    e.place(p.parent, heap.parent), e.place(p.inbox, heap.inbox), e.place(p.frontier, heap.frontier), e.place(p.header, heap.header);
    e.place(p.inbox_signal, heap.inbox_signal), e.place(p.frontier_signal, heap.frontier_signal), p.vertices = own, p.span = span,
                                                                                                  p.skip = WB_GRAPH_HUBS;
  }

  // Executes one step on all PEs.
  uint64_t run(uint32_t claims, const std::function<void(element&)>& kernel) {
    for (element& e : pe) ++e.p.turn, e.p.claim_turn += claims;
    pes::run(pes, [&](uint32_t k) { kernel(pe[k]); });
    for (const element& e : pe) {
      CHECK(e.log.count == 0 && e.report.failed == 0);
      CHECK(memcmp(e.report.sum, pe[0].report.sum, sizeof e.report.sum) == 0);
    }
    return pe[0].report.sum[WB_BFS_FOUND];
  }

  // Searches the graph. `plan` has a bit for each level: bottom-up or not. `mixed`: hubs go first, and the rest is expanded
  // top-down.
  void search(uint64_t source, uint32_t plan, bool mixed, uint64_t list_limit) {
    uint32_t turn = 0;
    bool queued = true;
    auto each = [&](const std::function<void(element&)>& f) {
      for (element& e : pe) f(e);
    };
    auto own_queue = [&] { each([](element& e) { e.p.items = e.report.own_items; }); };
    each([&](element& e) {
      e.p.source = slot(source), e.p.list_limit = list_limit, e.p.level = 0, e.p.resume = 0, e.p.queue_next = at(e.queue[0]);
    });
    CHECK(run(0, [](element& e) { wb_partition_start_u32(e.p, world_ref(e.world)); }) == 1);
    own_queue();
    const auto top_down = [](element& e) {
      wb_partition_top_down_pointer_u32(e.p, world_ref(e.world), graph::pointer_source<uint32_t>{e.list.data()});
    };
    const auto bottom_up = [](element& e) {
      wb_partition_bottom_up_pointer_u32(e.p, world_ref(e.world), graph::pointer_source<uint32_t>{e.list.data()});
    };
    auto expand = [&] {
      each([&](element& e) { e.p.queue = at(e.queue[turn]), e.p.queue_next = at(e.queue[1 - turn]); });
      turn = 1 - turn;
      const uint64_t n = run(1, top_down);
      own_queue();
      return n;
    };
    for (uint32_t level = 1;; ++level) {
      each([&](element& e) { e.p.level = level, e.p.resume = 0; });
      uint64_t found = 0;
      if (plan >> level % 32 & 1) {
        if (mixed && queued) {
          found = run(0, [](element& e) { wb_partition_by_hubs_u32(e.p, world_ref(e.world)); });
          each([&](element& e) { e.p.resume = 1; });
          found += level % 2 ? expand() : run(0, bottom_up);
        } else {
          found = run(0, bottom_up);
        }
        queued = false;
      } else {
        if (!queued) {
          each([&](element& e) { e.p.queue_next = at(e.queue[turn]); });
          run(0, [](element& e) { wb_partition_collect_u32(e.p, world_ref(e.world)); });
          own_queue();
        }
        found = expand();
        queued = true;
      }
      if (found == 0) break;
    }
    check(source);
  }

  void check(uint64_t source) {
    std::vector<uint32_t> expected(vertices, ~0u);
    std::deque<uint64_t> next{source};
    expected[source] = 0;
    for (; !next.empty(); next.pop_front()) {
      for (uint32_t n : lists[next.front()]) {
        if (expected[n] == ~0u) expected[n] = expected[next.front()] + 1, next.push_back(n);
      }
    }
    for (uint64_t v = 0; v < vertices; ++v) {
      const wb_partition& p = pe[v % pes].p;
      const uint32_t depth = p.depth[v / pes];
      const uint32_t parent = static_cast<uint32_t*>(p.parent)[v / pes];
      CHECK(depth == expected[v]);
      if (depth == ~0u) {
        CHECK(parent == ~0u);
      } else if (v == source) {
        CHECK(parent == slot(v));
      } else {
        const uint64_t u = parent % span * pes + parent / span;
        CHECK(u < vertices && expected[u] + 1 == depth);
        bool edge = false;
        for (uint32_t n : lists[u]) edge |= n == v;
        CHECK(edge);
      }
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const uint64_t vertices = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1900;
  uint32_t seed = 0;
  for (uint32_t pes : {1, 2, 3}) {
    fixture b(pes, vertices / 3 * pes, ++seed);
    // Top-down with lists and with bitmaps, bottom-up, and alternating.
    b.search(seed, 0, false, span / 32);
    b.search(0, 0, false, 0);
    b.search(b.vertices - 5, ~0u, false, 4);
    b.search(b.vertices - 5, 0b101100, true, 4);
    b.search(1, 0b010110, true, 4);
  }
  std::printf("partition stress: width %u: ok\n", warp::width);
}
