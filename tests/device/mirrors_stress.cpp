// Stress test of the exchanges between the PEs of a graph whose lists are distributed, with many threads on every PE at once: values and
// sums, trees, least values, counts, and claims of shortest paths, against serial results. Compiled for several warp widths, with
// ThreadSanitizer where available: see tests/device/stress.rs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "../../kernels/graph/mirrors.cu"
#include "../../kernels/graph/sssp_claims.cu"
#include "check.h"
#include "pes.h"

using namespace warpbell;

namespace {

using pes::line;

// The symmetric heap as the kernels use it.
struct layout : pes::places {
  uint64_t area, header, signal, inbox, claim_signal;

  layout(uint32_t pes, uint64_t capacity) {
    area = take(2 * pes * capacity * 8), header = take(2 * pes * sizeof(wb_mirrors_header)), signal = take(pes * 8);
    inbox = take(pes * capacity * 16), claim_signal = take(pes * 8);
  }
};

struct element {
  std::vector<uint32_t> narrow, stamp, in_far, outbox;
  std::vector<uint64_t> wide, offset, count, packed, far;
  std::vector<graph::item<uint32_t>> near;
  wb_graph_counters sums{};
  wb_mirrors_counters counters{};
  wb_graph_report report{}, claimed{};
  wb_control control{};
  wb_error_log log{};
  uint32_t stop = 0, abort = 0;
  wb_mirrors p{};
  wb_sssp s{};
  wb_world world{};
};

struct fixture {
  uint32_t pes;
  uint64_t vertices, capacity, turn = 0, claim_turn = 0;
  std::vector<uint64_t> firsts;
  layout heap;
  std::vector<line> memory;
  std::vector<element> pe;
  std::mt19937 random;

  fixture(uint32_t pes, uint64_t vertices, uint32_t seed)
      : pes(pes),
        vertices(vertices),
        capacity((vertices + pes - 1) / pes),
        firsts(pes + 1),
        heap(pes, capacity),
        memory(pes * heap.lines),
        pe(pes),
        random(seed) {
    // Every other PE has one vertex less, as far as that adds up.
    for (uint32_t k = 0; k < pes; ++k) firsts[k + 1] = vertices * (k + 1) / pes;
    for (uint32_t k = 0; k < pes; ++k) prepare(k);
  }

  void prepare(uint32_t k) {
    element& e = pe[k];
    e.narrow.resize(vertices), e.wide.resize(vertices);
    e.control.stop = &e.stop, e.control.abort = &e.abort, e.control.error_log = &e.log;
    e.control.deadline_ns = 60'000'000'000;
    e.world.control = &e.control, e.world.pe = k, e.world.size = pes;
    e.world.stride = e.world.heap_bytes = heap.lines * sizeof(line);
    e.world.heap = reinterpret_cast<uint64_t>(memory.data()) + k * e.world.stride;
    e.world.flags = WB_WORLD_LOAD_STORE | WB_WORLD_ATOMICS;
    const uint64_t at = e.world.heap;
    wb_mirrors& p = e.p;
    p.counters = &e.counters, p.report = &e.report, p.area = reinterpret_cast<uint32_t*>(at + heap.area);
    p.header = reinterpret_cast<wb_mirrors_header*>(at + heap.header), p.signal = reinterpret_cast<uint64_t*>(at + heap.signal);
    p.area_words = 2 * pes * capacity, p.first = firsts.data();
    // For claims. Vertices have one edge each, so that all can be queued.
    e.stamp.resize(vertices), e.in_far.resize((vertices + 31) / 32), e.outbox.resize(vertices), e.count.resize(pes);
    e.packed.resize(2 * vertices), e.far.resize(vertices), e.near.resize(vertices), e.offset.resize(vertices + 1);
    std::iota(e.offset.begin(), e.offset.end(), uint64_t{0});
    wb_sssp& s = e.s;
    s.offset = e.offset.data(), s.distance = e.wide.data(), s.stamp = e.stamp.data(), s.in_far = e.in_far.data();
    s.near_next = e.near.data(), s.far = e.far.data(), s.sums = &e.sums, s.report = &e.claimed, s.vertices = vertices;
    s.first = firsts[k], s.last = firsts[k + 1];
    e.sums.least = ~uint64_t{0};
    s.claims.first = firsts.data(), s.claims.outbox = e.outbox.data(), s.claims.count = e.count.data(), s.claims.packed = e.packed.data();
    s.claims.counters = &e.counters, s.claims.inbox = reinterpret_cast<uint64_t*>(at + heap.inbox);
    s.claims.signal = reinterpret_cast<uint64_t*>(at + heap.claim_signal), s.claims.capacity = capacity;
  }

  // Executes a kernel on all PEs.
  void run(const std::function<void(element&)>& kernel) {
    pes::run(pes, [&](uint32_t k) { kernel(pe[k]); });
    for (const element& e : pe) CHECK(e.log.count == 0);
  }

  // Runs an exchange. `words` is that of a value, and `receiver` the PE so far away or all.
  void exchange(void (*kernel)(wb_mirrors, world_ref), uint64_t words, uint32_t away) {
    ++turn;
    for (uint32_t k = 0; k < pes; ++k) {
      wb_mirrors& p = pe[k].p;
      p.turn = turn, p.receiver = away ? (k + away) % pes : pes;
      p.values = words == 1 ? pe[k].narrow.data() : reinterpret_cast<uint32_t*>(pe[k].wide.data());
      p.own.first = away ? 0 : firsts[k] * words;
      p.own.words = away ? vertices * words : (firsts[k + 1] - firsts[k]) * words;
    }
    run([&](element& e) { kernel(e.p, world_ref(e.world)); });
    for (const element& e : pe) CHECK(memcmp(&e.report, &pe[0].report, sizeof e.report) == 0);
  }

  void values(uint64_t round) {
    const auto narrow = [&](uint64_t v) { return static_cast<uint32_t>(v * 2654435761u + round); };
    const auto wide = [&](uint64_t v) { return (v << 32 ^ 0x9e3779b97f4a7c15ull) + round; };
    uint64_t sum = 0, least = ~uint64_t{0};
    double real = 0;
    for (uint32_t k = 0; k < pes; ++k) {
      element& e = pe[k];
      for (uint64_t v = firsts[k]; v < firsts[k + 1]; ++v) e.narrow[v] = narrow(v), e.wide[v] = wide(v);
      const double half = (k + 1) * 0.5;
      e.p.reals = 2, e.p.own.sum[0] = k + round, memcpy(&e.p.own.sum[1], &half, sizeof half), e.p.own.least = 1000 - k;
      sum += k + round, real += half, least = 1000 - k;
    }
    exchange(wb_mirrors_values, 1, 0);
    exchange(wb_mirrors_values, 2, 0);
    for (const element& e : pe) {
      for (uint64_t v = 0; v < vertices; ++v) CHECK(e.narrow[v] == narrow(v) && e.wide[v] == wide(v));
      double got;
      memcpy(&got, &e.report.sum[1], sizeof got);
      CHECK(e.report.sum[0] == sum && got == real && e.report.least == least && e.report.failed == 0);
    }
  }

  // A PE that has failed is named, and its values are not taken.
  void failure() {
    for (uint32_t k = 0; k < pes; ++k) {
      std::fill(pe[k].narrow.begin(), pe[k].narrow.end(), k);
      pe[k].p.own.failed = k == pes - 1;
    }
    exchange(wb_mirrors_values, 1, 0);
    for (uint32_t k = 0; k < pes; ++k) {
      CHECK(pe[k].report.failed == pes);
      pe[k].p.own.failed = 0;
      if (k == pes - 1) continue;
      for (uint64_t v = firsts[pes - 1]; v < vertices; ++v) CHECK(pe[k].narrow[v] == k);
      for (uint64_t v = 0; v < firsts[1]; ++v) CHECK(pe[k].narrow[v] == 0);
    }
  }

  void trees() {
    std::vector<uint32_t> root(vertices);
    std::iota(root.begin(), root.end(), 0u);
    const auto up = [&](uint32_t v) {
      while (root[v] != v) v = root[v];
      return v;
    };
    for (element& e : pe) std::iota(e.narrow.begin(), e.narrow.end(), 0u);
    for (uint64_t i = 0; i < vertices * 3 / 4; ++i) {
      const uint32_t a = random() % vertices, b = random() % vertices;
      graph::link(pe[random() % pes].narrow.data(), a, b);
      const uint32_t x = up(a), y = up(b);
      root[x > y ? x : y] = x > y ? y : x;
    }
    for (uint32_t away = 1; away < pes; away *= 2) exchange(wb_mirrors_trees, 1, away);
    for (const element& e : pe) {
      for (uint64_t v = 0; v < vertices; ++v) CHECK(graph::root_of(e.narrow.data(), static_cast<uint32_t>(v)) == up(v));
    }
  }

  void least() {
    std::vector<uint64_t> expected(vertices, ~uint64_t{0});
    for (element& e : pe) {
      for (uint64_t v = 0; v < vertices; ++v) {
        e.wide[v] = random() % 4 ? ~uint64_t{0} : random();
        e.narrow[v] = static_cast<uint32_t>(e.wide[v]);
        if (e.wide[v] < expected[v]) expected[v] = e.wide[v];
      }
    }
    for (uint32_t away = 1; away < pes; away *= 2) {
      exchange(wb_mirrors_least_u32, 1, away);
      exchange(wb_mirrors_least_u64, 2, away);
    }
    for (const element& e : pe) {
      for (uint64_t v = 0; v < vertices; ++v) CHECK(e.wide[v] == expected[v] && e.narrow[v] == static_cast<uint32_t>(expected[v]));
    }
  }

  // Each PE has counts of vertices anywhere, which their own PEs add up.
  void sums() {
    std::vector<uint64_t> expected(vertices);
    for (element& e : pe) {
      for (uint64_t v = 0; v < vertices; ++v) e.wide[v] = random(), expected[v] += e.wide[v];
    }
    exchange(wb_mirrors_sums_u64, 2, 0);
    for (uint32_t k = 0; k < pes; ++k) {
      for (uint64_t v = firsts[k]; v < firsts[k + 1]; ++v) CHECK(pe[k].wide[v] == expected[v]);
    }
  }

  // Each PE lowers distances of vertices anywhere, and claims those of others.
  void claims(uint32_t round) {
    constexpr uint64_t threshold = 500;
    ++claim_turn;
    std::vector<uint64_t> expected(vertices, 900);
    std::vector<bool> lowered(vertices);
    for (uint32_t k = 0; k < pes; ++k) {
      element& e = pe[k];
      std::fill(e.wide.begin(), e.wide.end(), 900), std::fill(e.stamp.begin(), e.stamp.end(), ~0u);
      std::fill(e.in_far.begin(), e.in_far.end(), 0u);
      e.s.round = round, e.s.threshold = threshold, e.s.claims.turn = claim_turn;
    }
    for (uint32_t k = 0; k < pes; ++k) {
      element& e = pe[k];
      const graph::sssp_view<uint32_t, uint64_t> view(e.s);
      for (uint64_t i = 0; i < vertices / 2; ++i) {
        const uint32_t v = random() % vertices;
        const uint64_t distance = random() % 1000;
        if (view.is_own(v) || distance >= e.wide[v]) continue;
        e.wide[v] = distance, lowered[v] = true;
        view.claim(e.s, v);
        if (distance < expected[v]) expected[v] = distance;
      }
    }
    run([&](element& e) { wb_sssp_claims_u32_d64(e.s, world_ref(e.world)); });
    exchange(wb_mirrors_values, 2, 0);
    for (uint32_t k = 0; k < pes; ++k) {
      const element& e = pe[k];
      uint64_t near = 0, far = 0;
      for (uint64_t v = firsts[k]; v < firsts[k + 1]; ++v) {
        CHECK(e.wide[v] == expected[v]);
        if (!lowered[v]) continue;
        near += expected[v] < threshold, far += expected[v] >= threshold;
      }
      // A vertex is in both queues if a claim was far, and a later one near.
      CHECK(e.claimed.sum[WB_SSSP_NEAR] == near && e.claimed.sum[WB_SSSP_FAR] >= far);
      std::vector<bool> queued(vertices);
      for (uint64_t i = 0; i < near; ++i) {
        const uint32_t v = e.near[i].vertex;
        CHECK(v >= firsts[k] && v < firsts[k + 1] && !queued[v] && expected[v] < threshold);
        queued[v] = true;
      }
      for (uint32_t other = 0; other < pes; ++other) CHECK(e.count[other] == 0);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const uint64_t vertices = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 3000;
  const uint32_t rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  for (uint32_t pes : {2, 3, 5}) {
    fixture f(pes, vertices, pes);
    for (uint32_t round = 0; round < rounds; ++round) {
      f.values(round);
      f.trees();
      f.least();
      f.sums();
      f.claims(round);
      f.failure();
    }
  }
  std::printf("mirrors stress: width %u: ok\n", warp::width);
}
