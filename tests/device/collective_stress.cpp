// Stress test of teams' collectives with many threads, against a model. Compiled for several warp widths, with ThreadSanitizer
// where available: see tests/device/stress.rs. Prints its steps, and exits with 1 at the first contradiction.
#include <atomic>
#include <cstdio>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

#include "check.h"
#include "nic.h"

using namespace warpbell;

namespace {

constexpr uint32_t width = warp::width;
constexpr uint64_t patient_ns = 60'000'000'000, impatient_ns = 300'000'000;
constexpr size_t line_bytes = 128;

// Data path between PEs: loads and stores; adapters; or stores between pairs of neighbours and adapters between the others.
enum class by { stores, network, both };
by transport = by::stores;
constexpr size_t array_bytes = 32 << 10;  // of each array that cases use

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// Offsets of a team's words in the heap, equal on every PE.
struct areas {
  size_t sync, signals, scratch;
  uint32_t scratch_bytes;
};

// PEs in this process, set up as by the host.
struct fixture {
  uint32_t n;
  size_t stride = 0;
  std::vector<unsigned char> memory;
  unsigned char* base = nullptr;
  std::vector<wb_world> world;
  std::vector<wb_control> control;
  std::vector<wb_error_log> log;
  std::vector<uint32_t> stop, abort;
  std::vector<std::unique_ptr<wb_team_rounds[]>> rounds;
  areas all, other;  // of the world's team, and of one more
  nic adapter;
  std::unique_ptr<fabric> connections;

  fixture(uint32_t pes, uint32_t scratch_bytes, uint64_t deadline_ns) : n(pes) {
    all = reserve(scratch_bytes);
    other = reserve(scratch_bytes);
    arrays = used;
    stride = arrays + 4 * array_bytes;
    memory.resize(stride * n + line_bytes);
    base = memory.data() + (line_bytes - reinterpret_cast<uintptr_t>(memory.data()) % line_bytes) % line_bytes;
    world.resize(n);
    control.resize(n);
    log.resize(n);
    stop.resize(n);
    abort.resize(n);
    for (uint32_t p = 0; p < n; ++p) {
      control[p].stop = &stop[p];
      control[p].abort = &abort[p];
      control[p].error_log = &log[p];
      control[p].deadline_ns = deadline_ns;
      world[p].control = &control[p];
      world[p].heap = address(base + p * stride);
      world[p].heap_bytes = world[p].stride = stride;
      world[p].pe = p;
      world[p].size = n;
      world[p].flags = WB_WORLD_LOAD_STORE | WB_WORLD_ATOMICS;
      world[p].team = member(p, 0, 1, n, all);
    }
    if (transport == by::stores) return;
    const auto near = [](uint32_t a, uint32_t b) { return transport == by::both && a / 2 == b / 2; };
    connections = std::make_unique<fabric>(adapter, world, 2, 128, 0, near);
    adapter.start();
  }
  ~fixture() { adapter.stop(); }

  template <class T> static uint64_t address(T* p) { return reinterpret_cast<uint64_t>(p); }
  size_t size_of_scratch(uint32_t bytes) const { return size_t{WB_CHANNELS} * 2 * n * bytes; }

  // Reserves memory for one more team.
  areas reserve(uint32_t scratch_bytes) {
    areas a{};
    a.sync = take(WB_CHANNELS * WB_SYNC_ROUNDS * WB_SYNC_SLOTS * 8);
    a.signals = take(WB_CHANNELS * n * 8);
    a.scratch = take(size_of_scratch(scratch_bytes));
    a.scratch_bytes = scratch_bytes;
    return a;
  }
  size_t take(size_t bytes) {
    const size_t at = used;
    used += (bytes + line_bytes - 1) / line_bytes * line_bytes;
    return at;
  }
  // Returns PE p's structure of a team that it may or may not be in.
  wb_team member(uint32_t p, uint32_t start, uint32_t step, uint32_t size, const areas& a) {
    wb_team t{};
    const bool in = p >= start && (p - start) % step == 0 && (p - start) / step < size;
    t.pe = in ? (p - start) / step : WB_NO_PE;
    t.size = size;
    t.start = start;
    t.stride = step;
    t.sync = reinterpret_cast<uint64_t*>(world[p].heap + a.sync);
    t.signals = reinterpret_cast<uint64_t*>(world[p].heap + a.signals);
    t.scratch = world[p].heap + a.scratch;
    t.scratch_bytes = a.scratch_bytes;
    rounds.emplace_back(new wb_team_rounds[WB_CHANNELS]());
    t.rounds = rounds.back().get();
    return t;
  }
  template <class T> T* array(uint32_t p, uint32_t index, size_t shift = 0) {
    return reinterpret_cast<T*>(base + p * stride + arrays + index * array_bytes) + shift;
  }

  // Runs a block of `threads` for each PE and block number, all at once.
  void run(uint32_t blocks, uint32_t threads, const std::function<void(uint32_t pe)>& kernel) {
    std::vector<std::thread> all_blocks;
    std::vector<std::function<void()>> bodies(n);
    for (uint32_t p = 0; p < n; ++p) bodies[p] = [&kernel, p] { kernel(p); };
    const auto call = [](void* const* parameters) { (*static_cast<std::function<void()>*>(parameters[0]))(); };
    std::vector<void*> parameters(n);
    for (uint32_t p = 0; p < n; ++p) parameters[p] = &bodies[p];
    for (uint32_t p = 0; p < n; ++p) {
      for (uint32_t b = 0; b < blocks; ++b) {
        all_blocks.emplace_back([&, p, b] { cpu::run_block(call, &parameters[p], b, blocks, threads); });
      }
    }
    for (auto& t : all_blocks) t.join();
  }
  uint32_t errors() const {
    uint32_t sum = 0;
    for (const auto& l : log) sum += l.count;
    return sum;
  }

 private:
  size_t used = 0, arrays = 0;
};

// Returns a member's value at an index in a case. Values are small enough that products and sums of a few members stay meaningful
// in every type.
template <class T> T value(uint64_t seed, uint32_t member, size_t i) {
  const uint64_t h = mix(seed * 1000003 + member * 7919 + i);
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(static_cast<int64_t>(h % 2000003) - 1000001) / static_cast<T>(1 + h % 97);
  } else {
    return static_cast<T>(h);
  }
}

// Delays some PEs now and then.
void dawdle(uint64_t seed, uint32_t pe) {
  if (mix(seed * 31 + pe) % 4 == 0) std::this_thread::yield();
  if (mix(seed * 37 + pe) % 29 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

template <class T> bool same(const T& a, const T& b) { return std::memcmp(&a, &b, sizeof(T)) == 0; }

// One call of a member with each collective, by the threads of a scope, checked by the same threads. `team` is the kernel's
// parameter; `n` counts elements, `dest` and `source` are arrays of the heap.
template <class T, class S, class Team> struct attempt {
  const Team& team;
  T* dest;
  T* source;
  size_t n;
  uint64_t seed;
  uint32_t channel;

  void fill(T* to, size_t count, uint32_t part = 0) const {
    for (size_t i = S::rank(); i < count; i += S::count()) to[i] = value<T>(seed + part, team.my_pe(), i);
  }

  template <class Op> void reduce(Op op, bool in_place) const {
    T* from = in_place ? dest : source;
    fill(from, n);
    dawdle(seed, team.my_pe());
    CHECK(team.reduce(S{}, op, dest, from, n, channel));
    for (size_t i = S::rank(); i < n; i += S::count()) {
      T sum = value<T>(seed, 0, i);
      for (uint32_t m = 1; m < team.n_pes(); ++m) sum = Op::apply(sum, value<T>(seed, m, i));
      CHECK(same(dest[i], sum));
    }
  }
  void broadcast(uint32_t root) const {
    CHECK(team.sync(S{}, channel));  // dest is ready
    fill(source, n);
    CHECK(team.broadcast(S{}, dest, source, n, root, channel));
    for (size_t i = S::rank(); i < n; i += S::count()) CHECK(same(dest[i], value<T>(seed, root, i)));
  }
  void fcollect() const {
    CHECK(team.sync(S{}, channel));
    fill(source, n);
    dawdle(seed, team.my_pe());
    CHECK(team.fcollect(S{}, dest, source, n, channel));
    for (size_t i = S::rank(); i < n * team.n_pes(); i += S::count()) {
      CHECK(same(dest[i], value<T>(seed, static_cast<uint32_t>(i / n), i % n)));
    }
  }
  void alltoall() const {
    CHECK(team.sync(S{}, channel));
    fill(source, n * team.n_pes());
    dawdle(seed, team.my_pe());
    CHECK(team.alltoall(S{}, dest, source, n, channel));
    for (size_t i = S::rank(); i < n * team.n_pes(); i += S::count()) {
      CHECK(same(dest[i], value<T>(seed, static_cast<uint32_t>(i / n), team.my_pe() * n + i % n)));
    }
  }
  void all() const {
    namespace r = reduction;
    const bool in_place = seed % 2;
    reduce(r::sum, in_place);
    reduce(r::prod, !in_place);
    reduce(r::min, in_place);
    reduce(r::max, !in_place);
    if constexpr (std::is_integral_v<T>) {
      reduce(r::bit_and, in_place);
      reduce(r::bit_or, !in_place);
      reduce(r::bit_xor, in_place);
    }
    if (n * team.n_pes() * sizeof(T) + line_bytes <= array_bytes) {
      broadcast(static_cast<uint32_t>(seed % team.n_pes()));
      fcollect();
      alltoall();
    }
  }
};

// Returns counts of elements: none, one, odd ones, those around the scratch's limit, and some beyond it.
std::vector<size_t> counts(uint32_t scratch_bytes, size_t element) {
  const size_t limit = scratch_bytes / 2 / element;
  return {0, 1, 3, 7, limit - 1, limit, limit + 1, 3 * limit + 5};
}

template <class T, class S> void every_count(fixture& b, const world_ref& w, S, uint64_t seed, uint32_t pe) {
  const auto team = w.world_team();
  for (size_t n : counts(b.all.scratch_bytes, sizeof(T))) {
    // Arrays that agree modulo 16 and some that do not; elements stay aligned.
    const size_t shift = mix(seed) % 5, other = seed % 3 ? shift : shift + 1;
    attempt<T, S, world_team_ref>{team, b.array<T>(pe, 0, shift), b.array<T>(pe, 1, other), n, ++seed, 0}.all();
    S::sync();
  }
}

#ifdef __SANITIZE_THREAD__
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// Tests types. The places of elements and the threads that move them depend on the element's size and on the scope; the operation
// depends on the type alone. So every size has every scope, and every type the scope of a block. The sanitizer, which looks at
// places only, and 32 lanes, which are a thread each, use fewer. Each pair takes the compiler seconds.
template <class S> void every_type(fixture& b, const world_ref& w, S s, uint64_t seed, uint32_t pe) {
  every_count<uint8_t>(b, w, s, seed + 100, pe);
  every_count<float>(b, w, s, seed + 900, pe);
  if constexpr (width < 32) {
    every_count<uint64_t>(b, w, s, seed + 700, pe);
    if constexpr (!sanitized) every_count<int16_t>(b, w, s, seed + 400, pe);
    if constexpr (!sanitized && std::is_same_v<S, scope::block>) {
      every_count<int8_t>(b, w, s, seed + 200, pe);
      every_count<uint16_t>(b, w, s, seed + 300, pe);
      every_count<uint32_t>(b, w, s, seed + 500, pe);
      every_count<int32_t>(b, w, s, seed + 600, pe);
      every_count<int64_t>(b, w, s, seed + 800, pe);
      every_count<double>(b, w, s, seed + 1000, pe);
    }
  }
}

void model(uint32_t pes, uint32_t scale) {
  fixture b(pes, WB_SCRATCH_LEAST_BYTES * 2, patient_ns);
  for (uint32_t round = 0; round < scale; ++round) {
    const uint64_t seed = 5000 * round;
    b.run(1, width, [&](uint32_t p) { every_type(b, world_ref(b.world[p]), by_warp, seed, p); });
    b.run(1, width * 2, [&](uint32_t p) { every_type(b, world_ref(b.world[p]), by_block, seed + 1, p); });
    b.run(1, width, [&](uint32_t p) {
      if (threadIdx.x == width - 1) every_type(b, world_ref(b.world[p]), by_thread, seed + 2, p);
    });
  }
  CHECK(b.errors() == 0);
  std::printf("model: %u PEs\n", pes);
}

// Tests many small collectives back to back, in two channels at once, with nothing in between.
void back_to_back(uint32_t pes, uint32_t times) {
  fixture b(pes, WB_SCRATCH_LEAST_BYTES, patient_ns);
  b.run(2, width, [&](uint32_t p) {
    const world_ref w(b.world[p]);
    const auto team = w.world_team();
    const uint32_t c = blockIdx.x;
    uint32_t* sums = b.array<uint32_t>(p, c);
    uint32_t* mine = b.array<uint32_t>(p, 2 + c);
    for (uint32_t i = 0; i < times; ++i) {
      const size_t n = mix(i) % 16;
      attempt<uint32_t, scope::block, world_team_ref> t{team, sums, mine, n, i * 2ull + c, c};
      if (mix(i + 77) % 3) t.reduce(reduction::sum, false);
      else t.fcollect();
    }
  });
  CHECK(b.errors() == 0);
  std::printf("back to back: %u PEs\n", pes);
}

// Tests the teams of even and odd PEs at the same time as the world's team.
void side_by_side(uint32_t pes, uint32_t times) {
  fixture b(pes, WB_SCRATCH_LEAST_BYTES, patient_ns);
  std::vector<wb_team> team;
  for (uint32_t p = 0; p < pes; ++p) team.push_back(b.member(p, p % 2, 2, (pes - p % 2 + 1) / 2, b.other));
  b.run(2, width, [&](uint32_t p) {
    const world_ref w(b.world[p]);
    for (uint32_t i = 0; i < times; ++i) {
      if (blockIdx.x == 0) {
        const auto all = w.world_team();
        attempt<int64_t, scope::block, world_team_ref>{all, b.array<int64_t>(p, 0), b.array<int64_t>(p, 1), i % 40, i, 0}.all();
      } else {
        const team_ref mine(b.world[p], team[p]);
        CHECK(mine.world_pe(mine.my_pe()) == p && mine.translate_pe(mine.my_pe(), w.world_team()) == p);
        CHECK(w.world_team().translate_pe((p + 1) % pes, mine) == ((p + 1) % pes % 2 == p % 2 ? (p + 1) % pes / 2 : WB_NO_PE));
        attempt<int64_t, scope::block, team_ref>{mine, b.array<int64_t>(p, 2), b.array<int64_t>(p, 3), i % 40, i, 0}.all();
      }
      __syncthreads();
    }
  });
  CHECK(b.errors() == 0);
  std::printf("side by side: %u PEs\n", pes);
}

// Tests the wrap of the scratch's turns: long messages leave nothing that short ones, or later long ones, could take for their own.
void wraps(uint64_t first_turn) {
  fixture b(3, WB_SCRATCH_LEAST_BYTES, patient_ns);
  for (auto& w : b.world) w.team.rounds->small = first_turn;
  b.run(1, width, [&](uint32_t p) {
    const world_ref w(b.world[p]);
    const auto team = w.world_team();
    for (uint32_t i = 0; i < 8; ++i) {
      attempt<uint64_t, scope::block, world_team_ref> t{team, b.array<uint64_t>(p, 0), b.array<uint64_t>(p, 1), i % 2 ? 1u : 8u, i, 0};
      if (i % 3) t.reduce(reduction::sum, false);
      else t.fcollect();
    }
  });
  CHECK(b.errors() == 0);
}

// Tests more members than one round of a synchronisation tells: no member leaves a sync before the last has come.
void many(uint32_t pes, uint32_t times) {
  fixture b(pes, WB_SCRATCH_LEAST_BYTES, patient_ns);
  std::vector<std::atomic<uint32_t>> came(times);
  b.run(1, width, [&](uint32_t p) {
    if (threadIdx.x != 0) return;
    const world_ref w(b.world[p]);
    for (uint32_t i = 0; i < times; ++i) {
      dawdle(i, p);
      came[i].fetch_add(1, std::memory_order_relaxed);
      CHECK(w.sync_all(by_thread));
      CHECK(came[i].load(std::memory_order_relaxed) == pes);
    }
    uint32_t* at = b.array<uint32_t>(p, 0);
    at[0] = p;
    CHECK(w.world_team().reduce(by_thread, reduction::sum, at, at, 1));
    CHECK(at[0] == pes * (pes - 1) / 2);
  });
  CHECK(b.errors() == 0);
  std::printf("many: %u PEs\n", pes);
}

// Tests that data put before a barrier has arrived after it.
void puts_and_barriers(uint32_t times) {
  fixture b(3, WB_SCRATCH_LEAST_BYTES, patient_ns);
  b.run(1, width * 2, [&](uint32_t p) {
    const world_ref w(b.world[p]);
    uint64_t* to = b.array<uint64_t>(p, 0);
    for (uint32_t i = 0; i < times; ++i) {
      w.p(to + threadIdx.x, uint64_t{i} << 32 | p, (p + 1) % 3);
      CHECK(w.barrier_all(by_block));
      for (uint32_t t = 0; t < blockDim.x; ++t) CHECK(to[t] == (uint64_t{i} << 32 | (p + 2) % 3));
      CHECK(w.sync_all(by_block));
    }
  });
  CHECK(b.errors() == 0);
}

// Tests a member that does not come: the error names the member and the channel, and every thread of the other members learns of
// it.
void missing(wb_shmem_call call) {
  constexpr uint32_t absent = 2, channel = 5;
  fixture b(3, WB_SCRATCH_LEAST_BYTES, impatient_ns);
  b.run(1, width * 2, [&](uint32_t p) {
    if (p == absent) return;
    const world_ref w(b.world[p]);
    const auto team = w.world_team();
    uint64_t* dest = b.array<uint64_t>(p, 0);
    uint64_t* source = b.array<uint64_t>(p, 1);
    outcome o{};
    switch (call) {
      case WB_CALL_BARRIER: o = team.barrier(by_block, channel); break;
      case WB_CALL_BROADCAST: o = team.broadcast(by_block, dest, source, 9, absent, channel); break;
      case WB_CALL_REDUCE: o = team.reduce(by_block, reduction::sum, dest, source, 1, channel); break;
      case WB_CALL_FCOLLECT: o = team.fcollect(by_block, dest, source, 1, channel); break;
      default: o = team.alltoall(by_block, dest, source, 100, channel); break;
    }
    CHECK(!o && (o.kind() == WB_TIMED_OUT || o.kind() == WB_STOPPED));
  });
  for (uint32_t p = 0; p < 2; ++p) {
    CHECK(b.log[p].count >= 1);
    const wb_error& e = b.log[p].entry[0];
    CHECK(e.status >> WB_STATUS_KIND_SHIFT == WB_TIMED_OUT);
    CHECK(e.opcode == static_cast<uint32_t>(call) && e.device == absent && e.queue == p && e.command == channel);
  }
}

// Tests invalid arguments, which fail at once.
void refused() {
  fixture b(2, WB_SCRATCH_LEAST_BYTES, impatient_ns);
  b.run(1, width * 2, [&](uint32_t p) {
    const world_ref w(b.world[p]);
    uint32_t* a = b.array<uint32_t>(p, 0);
    CHECK(w.world_team().broadcast(by_block, a, a, 1, 2).kind() == WB_BAD_ARGUMENT);
    CHECK(w.world_team().sync(by_block, WB_CHANNELS).kind() == WB_BAD_ARGUMENT);
  });
  for (uint32_t p = 0; p < 2; ++p) {
    CHECK(b.log[p].count == 2);
    CHECK(b.log[p].entry[0].opcode == WB_CALL_BROADCAST && b.log[p].entry[0].device == 2);
    CHECK(b.log[p].entry[1].opcode == WB_CALL_BARRIER && b.log[p].entry[1].command == WB_CHANNELS);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "stores";
  transport = how == "stores" ? by::stores : how == "both" ? by::both : by::network;
  const uint32_t scale = argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : 1;
  if (width < 32) {
    for (uint32_t pes : {1u, 2u, 4u, 8u}) model(pes, 1);
    side_by_side(5, 8 * scale);
  }
  model(3, 1);
  for (uint32_t pes : {2u, 4u}) back_to_back(pes, (width < 32 ? 60 : 15) * scale);
  side_by_side(4, (width < 32 ? 8 : 2) * scale);
  wraps(detail::scratch_wrap - 4);
  wraps(2 * detail::scratch_wrap - 4);
  many(width == 1 ? 40 : 33, width == 1 ? 10 * scale : 1);
  puts_and_barriers(20 * scale);
  for (wb_shmem_call c : {WB_CALL_BARRIER, WB_CALL_BROADCAST, WB_CALL_REDUCE, WB_CALL_FCOLLECT, WB_CALL_ALLTOALL}) missing(c);
  refused();
  std::printf("collectives at width %u, by %s: ok\n", width, how.c_str());
  return 0;
}
