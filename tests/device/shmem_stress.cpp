// Stress test of a world's calls with PEs as threads. It tests messages at each scope, atomics from everywhere, waits for words in
// any order, random puts and gets between barriers, and invalid arguments. Compiled with WB_WARP_WIDTH 1, 4 and 32, plain and under
// ThreadSanitizer. The invalid arguments alone (a second argument `refused`) are compiled with -fsanitize=undefined: see
// tests/device/stress.rs.
#define WB_CHECKED 1

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shmem_calls.cu"
#include "check.h"
#include "shmem_stand.h"

using namespace warpbell;

namespace {

constexpr uint32_t width = warp::width;
// Fewer rounds where a warp is many threads: they all share a few cores.
constexpr uint32_t effort = width == 1 ? 40 : width == 4 ? 6 : 1;

// --- message passing: data, then its signal, then a look at the data --------------------------------------------------

void messages(uint32_t n, uint32_t threads, size_t words, uint32_t turns) {
  stand s(n, 1 << 20);
  for (uint32_t scope = calls::s_thread; scope <= calls::s_block; ++scope) {
    const uint64_t box = s.take(8 * words), flags = s.take(32 * 8);
    std::vector<uint64_t> wrong(n);
    s.run_well(threads, [&](const world_ref& w, uint32_t p) {
      calls_messages(w, sym<uint32_t>{s.here<uint32_t>(p, box)}, sym<uint64_t>{s.here<uint64_t>(p, flags)}, words, turns, scope, &wrong[p]);
    });
    for (uint64_t bad : wrong) CHECK(bad == 0);
  }
}

// --- atomics of all PEs on a few words -------------------------------------------------------------------------------

void atomics(uint32_t n, uint32_t threads, uint32_t turns) {
  stand s(n, 1 << 16);
  const uint64_t sum = s.take(64), bits = s.take(64), cas = s.take(64), swap = s.take(64);
  const uint64_t times = uint64_t{n} * threads * turns;
  s.run_well(threads, [&](const world_ref& w, uint32_t p) {
    const uint32_t to = (p + 1) % w.n_pes();
    const sym<uint64_t> total{s.here<uint64_t>(p, sum)};
    const sym<int32_t> small{s.here<int32_t>(p, sum + 16)};
    const sym<uint32_t> flips{s.here<uint32_t>(p, bits)};
    const sym<uint32_t> counted{s.here<uint32_t>(p, cas)};
    const sym<double> hand{s.here<double>(p, swap)};
    for (uint32_t i = 0; i < turns; ++i) {
      w.atomic_add(total, 3, 0);
      w.atomic_fetch_add(small, -1, to);
      w.atomic_xor(flips, 1u << i % 32, 0);
      w.atomic_fetch_or(flips + 4, 1u << i % 32, 0);
      uint32_t seen = w.atomic_fetch(counted, 0);
      for (uint32_t was; (was = w.atomic_compare_swap(counted, seen, seen + 1, 0)) != seen;) seen = was;
      w.atomic_swap(hand, double(i), to);
    }
    w.quiet();
  });
  CHECK(*s.here<uint64_t>(0, sum) == 3 * times);
  CHECK(*s.here<uint32_t>(0, cas) == times);
  for (uint32_t p = 0; p < n; ++p) CHECK(*s.here<int32_t>(p, sum + 16) == -int32_t(uint64_t{threads} * turns));
  uint32_t flipped = 0, set = 0;
  for (uint32_t i = 0; i < turns; ++i) {
    if ((uint64_t{n} * threads) % 2) flipped ^= 1u << i % 32;
    set |= 1u << i % 32;
  }
  CHECK(*s.here<uint32_t>(0, bits) == flipped && *s.here<uint32_t>(0, bits + 16) == set);
}

// --- a lock made of atomics: data written under it is visible to its next holder ---------------------------------------

void locked(uint32_t n, uint32_t threads, uint32_t turns) {
  stand s(n, 1 << 16);
  const uint64_t lock = s.take(64), data = s.take(256);
  s.run_well(threads, [&](const world_ref& w, uint32_t p) {
    const sym<uint32_t> word{s.here<uint32_t>(p, lock)};
    const sym<uint64_t> values{s.here<uint64_t>(p, data)};
    for (uint32_t i = 0; i < turns; ++i) {
      // A lane that waits for a lane of its own warp would wait for ever on a GPU; here each lane is a thread.
      while (w.atomic_compare_swap(word, 0, 1, 0) != 0) cpu::yield();
      uint64_t got[8];
      w.get(got, values, 8, 0);
      for (uint64_t& v : got) v += 1;
      w.put(values, got, 8, 0);
      w.fence();
      w.atomic_set(word, 0, 0);
    }
    w.quiet();
  });
  for (uint32_t k = 0; k < 8; ++k) CHECK(s.here<uint64_t>(0, data)[k] == uint64_t{n} * threads * turns);
}

// --- waits for several words -------------------------------------------------------------------------------------------

void collected(uint32_t n, uint64_t words, uint32_t some) {
  stand s(n, 1 << 16);
  const uint64_t at = s.take(4 * words);
  std::vector<int> status(words);
  std::vector<uint64_t> indices(words), came(words, ~uint64_t{0});
  s.run_well(width, [&](const world_ref& w, uint32_t p) {
    calls_collect(w, sym<uint32_t>{s.here<uint32_t>(p, at)}, words, some, status.data(), indices.data(), came.data());
  });
  std::vector<int> seen(words);
  for (uint64_t i : came) {
    CHECK(i < words);
    ++seen[i];
  }
  for (int times : seen) CHECK(times == 1);
}

// --- signals that count -------------------------------------------------------------------------------------------------

void counted(uint32_t n, uint64_t start, uint32_t turns) {
  stand s(n, 1 << 16);
  const uint64_t box = s.take(32), flags = s.take(32 * 8);
  for (uint32_t p = 0; p < n; ++p) std::fill_n(s.here<uint64_t>(p, flags), 32, start);
  std::vector<uint64_t> wrong(n, 1);
  s.run_well(width, [&](const world_ref& w, uint32_t p) {
    calls_counted(w, sym<uint32_t>{s.here<uint32_t>(p, box)}, sym<uint64_t>{s.here<uint64_t>(p, flags)}, start, turns, &wrong[p]);
  });
  for (uint64_t bad : wrong) CHECK(bad == 0);
}

// --- rounds of puts and gets of any length between barriers ------------------------------------------------------------

void rounds(uint32_t n, uint32_t threads, uint32_t turns) {
  constexpr uint64_t room = 4096;
  stand s(n, 1 << 20);
  const uint64_t data = s.take(room * n), own = s.take(room);
  std::vector<uint64_t> wrong(n * threads);
  s.run_well(threads, [&](const world_ref& w, uint32_t p) {
    uint8_t *in = s.here<uint8_t>(p, data), *mine = s.here<uint8_t>(p, own);
    std::mt19937 random(7);  // the same numbers on all PEs
    for (uint32_t turn = 0; turn < turns; ++turn) {
      const uint32_t away = 1 + random() % n, from = random() % 64, to = random() % 64, bytes = random() % (room - 64);
      const bool puts = random() % 2;
      for (uint64_t i = threadIdx.x; i < bytes; i += blockDim.x) mine[from + i] = static_cast<uint8_t>(p * 31 + turn * 7 + i);
      if (puts) __syncthreads();
      const uint32_t next = (p + away) % n, before = (p + n - away % n) % n;
      if (puts) {
        w.put_nbi(by_block, in + p * room + to, mine + from, bytes, next);
      } else {
        w.barrier_all(by_block);
        w.get(by_block, in + before * room + to, sym<uint8_t>{mine + from}, bytes, before);
      }
      w.barrier_all(by_block);
      for (uint64_t i = threadIdx.x; i < bytes; i += blockDim.x) {
        wrong[p * threads + threadIdx.x] += in[before * room + to + i] != static_cast<uint8_t>(before * 31 + turn * 7 + i);
      }
      w.barrier_all(by_block);
    }
  });
  for (uint64_t bad : wrong) CHECK(bad == 0);
}

// --- invalid arguments -------------------------------------------------------------------------------------------------

void refused() {
  stand s(2, 1 << 16);
  const uint64_t good = s.take(256), not_taken = good + 4096;
  uint64_t before = 7;
  auto error_of = [&](uint32_t flags, auto call) {
    pe_state& p = s.pe(0);
    p.log = wb_error_log{};
    p.abort = 0;
    const world_ref w(s.loads_and_stores(0, flags));
    auto lane = [&] { call(w); };
    stand::run_block(1, lane);
    CHECK(p.log.count == 1 && p.abort == 1);
    return p.log.entry[0];
  };
  constexpr uint32_t all = WB_WORLD_LOAD_STORE | WB_WORLD_ATOMICS;
  uint64_t* word = s.here<uint64_t>(0, good);
  uint64_t* freed = s.here<uint64_t>(0, not_taken);
  auto kind = [](const wb_error& e) { return e.status >> WB_STATUS_KIND_SHIFT; };

  wb_error e = error_of(all, [&](const world_ref& w) { w.put(word, &before, 1, 2); });
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_PUT && e.device == 2 && e.queue == 0 && e.blocks == 8 && e.lba == good);
  e = error_of(all, [&](const world_ref& w) { w.p(freed, 1, 1); });
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_PUT && e.device == 1 && e.lba == not_taken);
  CHECK(*s.here<uint64_t>(1, not_taken) == 0);
  e = error_of(all, [&](const world_ref& w) { w.get(by_block, &before, sym<uint64_t>{word + 31}, 2, 1); });  // the last is not allocated
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_GET && e.blocks == 16 && before == 7);
  e = error_of(all, [&](const world_ref& w) { w.atomic_inc(&before, 1); });  // not in the heap
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_ATOMIC && before == 7);
  e = error_of(all, [&](const world_ref& w) { w.atomic_inc(reinterpret_cast<uint64_t*>(s.here<uint8_t>(0, good + 4)), 1); });
  CHECK(kind(e) == WB_BAD_ARGUMENT);
  e = error_of(all, [&](const world_ref& w) { w.wait_until(freed, cmp::eq, 0); });
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_WAIT && e.device == WB_NO_PE);
  e = error_of(all, [&](const world_ref& w) { w.wait_until(word, cmp::eq, 0, 2); });
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_WAIT && e.device == 2 && e.lba == good);
  uint64_t shadow = 0;
  e = error_of(all, [&](const world_ref& w) { w.signal_wait_shadow(word, shadow, uint64_t{1} << 63, nullptr, 1); });
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_WAIT && e.device == 1 && shadow == 0);
  e = error_of(all, [&](const world_ref& w) { CHECK(!w.signal_test_shadow(word, shadow, ~uint64_t{0})); });
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_WAIT && e.device == WB_NO_PE && shadow == 0);
  e = error_of(all, [&](const world_ref& w) { CHECK(!w.signal_test_shadow(freed, shadow, 0)); });
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_WAIT && e.lba == not_taken);
  e = error_of(all, [&](const world_ref& w) { w.signal_inc(word, 2); });
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_SIGNAL && e.device == 2);
  e = error_of(all, [&](const world_ref& w) { w.iput(word, &before, ptrdiff_t{1} << 50, 1, 1 << 20, 1); });
  CHECK(kind(e) == WB_BAD_ARGUMENT && e.opcode == WB_CALL_PUT && e.blocks == 0xffffffffu);
  // Without atomics, stores still work.
  e = error_of(WB_WORLD_LOAD_STORE, [&](const world_ref& w) {
    w.put_signal(word, &before, 1, word + 1, 5, signal::set, 1);
    w.atomic_inc(word, 1);
  });
  CHECK(kind(e) == WB_UNREACHABLE && e.opcode == WB_CALL_ATOMIC);
  CHECK(s.here<uint64_t>(1, good)[0] == 7 && s.here<uint64_t>(1, good)[1] == 5);
  e = error_of(WB_WORLD_LOAD_STORE, [&](const world_ref& w) { w.signal_op(word, 1, signal::add, 1); });
  CHECK(kind(e) == WB_UNREACHABLE && e.opcode == WB_CALL_SIGNAL);
  // Without any access.
  e = error_of(0, [&](const world_ref& w) {
    CHECK(w.ptr(word, 1) == nullptr);
    CHECK(w.g(word, 1) == 0);
  });
  CHECK(kind(e) == WB_UNREACHABLE && e.opcode == WB_CALL_GET);
  // Calls of no elements succeed, whatever the address.
  const world_ref w(s.world(0));
  s.pe(0).log = wb_error_log{};
  auto lane = [&] {
    w.put(static_cast<uint64_t*>(nullptr), static_cast<uint64_t*>(nullptr), 0, 1);
    CHECK(w.wait_until_any(static_cast<uint64_t*>(nullptr), 0, nullptr, cmp::eq, 0) == no_index);
    CHECK(w.test_all(static_cast<uint64_t*>(nullptr), 0, nullptr, cmp::eq, 0));
    CHECK(w.ptr(word, 1) == s.here<uint64_t>(1, good) && w.ptr(word, 2) == nullptr);
  };
  stand::run_block(1, lane);
  CHECK(s.pe(0).log.count == 0);
}

// --- strides of any size -------------------------------------------------------------------------------------------------

// Tests that nothing overflows, whatever the strides and the counts. With two elements or more the call is rejected. One element or
// none has no distance to another. -fsanitize=undefined checks this.
void far_apart() {
  constexpr ptrdiff_t least = PTRDIFF_MIN, most = PTRDIFF_MAX;
  stand s(2, 1 << 16);
  const uint64_t good = s.take(256);
  for (const ptrdiff_t stride : {least, least + 1, -most / 8, ptrdiff_t{-1}, most / 8 + 1, most}) {
    for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{1} << 20, ~size_t{0}}) {
      uint64_t far = 11, near = 0;
      *s.here<uint64_t>(1, good) = 5;
      pe_state& p = s.pe(0);
      p.log = wb_error_log{};
      p.abort = 0;
      const world_ref w(s.world(0));
      auto lane = [&] {
        const sym<uint64_t> word{s.here<uint64_t>(0, good)};
        w.iget(&near, word, stride, stride, n, 1);
        w.iput(word, &far, stride, stride, n, 1);
        w.quiet();
      };
      stand::run_block(1, lane);
      const uint32_t refused = n < 2 ? 0 : 2;
      CHECK(p.log.count == refused && (p.abort != 0) == (refused != 0));
      for (uint32_t i = 0; i < refused; ++i) {
        const wb_error& e = p.log.entry[i];
        CHECK(e.status >> WB_STATUS_KIND_SHIFT == WB_BAD_ARGUMENT && e.opcode == (i == 0 ? WB_CALL_GET : WB_CALL_PUT));
      }
      CHECK(near == (n == 1 ? 5u : 0u) && *s.here<uint64_t>(1, good) == (n == 1 ? 11u : 5u));
    }
  }
}

// --- sources that are written again --------------------------------------------------------------------------------------

// Puts from one source again and again, and writes it after each flush: what was put is what the source had.
void reused(uint32_t n, uint32_t threads, uint32_t turns) {
  constexpr uint64_t words = 700;
  stand s(n, 1 << 20);
  const uint64_t box = s.take(4 * words * turns), source = s.take(4 * words);
  s.run_well(threads, [&](const world_ref& w, uint32_t p) {
    uint32_t *to = s.here<uint32_t>(p, box), *from = s.here<uint32_t>(p, source);
    for (uint32_t turn = 0; turn < turns; ++turn) {
      for (uint64_t i = threadIdx.x; i < words; i += blockDim.x) from[i] = calls::told(p, turn, i);
      __syncthreads();
      w.put_nbi(by_block, to + words * turn, sym<uint32_t>{from}, words, (p + 1) % n);
      if (turn % 2 == 0) {
        CHECK(w.flush_all(by_block));
      } else {
        __syncthreads();
        CHECK(w.flush());
        __syncthreads();
      }
    }
    w.barrier_all(by_block);
  });
  for (uint32_t p = 0; p < n; ++p) {
    for (uint64_t i = 0; i < words * turns; ++i) {
      CHECK(s.here<uint32_t>(p, box)[i] == calls::told((p + n - 1) % n, static_cast<uint32_t>(i / words), i % words));
    }
  }
}

// Tests that over an adapter a flush waits for the completion of a put and for no landing, and that a quiet waits for both.
void flushed() {
  stand s(2, 1 << 16);
  const uint64_t at = s.take(256);
  pe_state& p = s.pe(0);
  const world_ref w(s.world(0));
  const auto in_one_thread = [&](auto f) { stand::run_block(1, f); };
  const sym<uint64_t> word{s.here<uint64_t>(0, at)};
  s.adapter().stop();
  p.control.deadline_ns = 20000000;
  auto late = [&] {
    w.put_nbi(word, word + 16, 16, 1);
    const outcome o = w.flush();
    CHECK(o.kind() == WB_TIMED_OUT);
  };
  in_one_thread(late);
  const wb_error& e = p.log.entry[0];
  CHECK(p.log.count == 1 && e.opcode == WB_CALL_FLUSH && e.queue == 0 && e.device == 1 && e.command == 0);
  p.log = wb_error_log{}, p.abort = 0;
  p.control.deadline_ns = 60ull * 1000000000;
  s.adapter().start();
  auto done = [&] {
    CHECK(w.flush());
    w.put_nbi(word, word + 16, 16, 1);
    CHECK(w.flush_all(by_thread));
    CHECK(s.adapter().requests(mlx5::op_dump) == 0);
    w.get_nbi(word + 8, word, 8, 1);
    CHECK(w.quiet());
    CHECK(s.adapter().requests(mlx5::op_dump) == (adapter_flags == WB_SEND_CONSISTENCY ? 1u : 0u));
  };
  in_one_thread(done);
  CHECK(p.log.count == 0);
}

// --- queue pairs that calls choose ----------------------------------------------------------------------------------------

// Two blocks of each PE put rounds of data to the next PE, by the queue pairs that `choose` gives for a block and a round. Each quiet
// covers them, and each flush lets the source be written again.
template <class Choose> void chosen(uint32_t n, uint32_t turns, Choose choose) {
  constexpr uint32_t blocks = 2;
  constexpr uint64_t words = 150;
  stand s(n, 1 << 18);
  const uint64_t box = s.take(4 * words * turns * blocks), source = s.take(4 * words * blocks), flag = s.take(8 * blocks);
  std::vector<std::thread> all;
  for (uint32_t p = 0; p < n; ++p) {
    for (uint32_t b = 0; b < blocks; ++b) {
      all.emplace_back([&, p, b] {
        const world_ref w(s.world(p));
        auto lane = [&] {
          uint32_t *to = s.here<uint32_t>(p, box) + words * turns * b, *from = s.here<uint32_t>(p, source) + words * b;
          uint64_t* done = s.here<uint64_t>(p, flag) + b;
          const uint32_t next = (p + 1) % n;
          for (uint32_t turn = 0; turn < turns; ++turn) {
            const world_ref on = w.on_queue(choose(b, turn));
            for (uint64_t i = threadIdx.x; i < words; i += blockDim.x) from[i] = calls::told(p, turn + b, i);
            __syncthreads();
            on.put_nbi(by_block, to + words * turn, sym<uint32_t>{from}, words, next);
            __syncthreads();
            if (threadIdx.x == 0) {
              if (turn % 2 == 0) CHECK(on.flush());
              else CHECK(on.quiet());
              on.fence();
              on.signal_inc(done, next);
            }
            CHECK(w.signal_wait_until(done, cmp::ge, turn + 1, nullptr, (p + n - 1) % n));
            __syncthreads();
            for (uint64_t i = threadIdx.x; i < words; i += blockDim.x) {
              CHECK(to[words * turn + i] == calls::told((p + n - 1) % n, turn + b, i));
            }
            __syncthreads();
          }
          CHECK(w.quiet_all(by_block));
        };
        stand::run_block(width == 1 ? 2 : width, lane, b, blocks);
      });
    }
  }
  for (auto& t : all) t.join();
  for (uint32_t p = 0; p < n; ++p) CHECK(s.pe(p).log.count == 0);
}

// Tests that each call uses the queue pair that it chooses, and no other: one of the two of each PE has failed.
void chosen_alone() {
  constexpr uint32_t calls_there = 12;
  for (uint32_t which = 0; which < 2 * calls_there; ++which) {
    stand s(2, 1 << 16);
    const uint64_t at = s.take(1024);
    s.break_queue(0, 1, 1, mlx5::syndrome_remote_access);
    const world_ref all(s.world(0));
    // Queue pair 3 is queue pair 1 of two. Block 0 has queue pair 0.
    const bool well = which >= calls_there;
    const world_ref w = !well ? all.on_queue(3) : which % 2 ? all : all.on_queue(2);
    auto lane = [&] {
      uint64_t far[32] = {};
      const sym<uint64_t> word{s.here<uint64_t>(0, at)};
      switch (which % calls_there) {
        case 0: w.put(word, far, 32, 1); break;
        case 1: w.put_nbi(word, word + 32, 16, 1); break;
        case 2: w.get(far, word, 32, 1); break;
        case 3: w.get_nbi(word, word + 32, 16, 1); break;
        case 4: w.p(word, 1, 1); break;
        case 5: w.g(word, 1); break;
        case 6: w.iput(word, far, 2, 1, 3, 1); break;
        case 7: w.iget(far, word, 1, 2, 3, 1); break;
        case 8: w.signal_set(word, 1, 1); break;
        case 9: w.signal_add(word, 1, 1); break;
        case 10: w.atomic_add(word, 1, 1); break;
        default: w.atomic_fetch_add(word, 1, 1); break;
      }
      CHECK(static_cast<bool>(which % 2 ? w.quiet() : w.flush()) == well);
      if (!well) CHECK(all.quiet());
      CHECK(static_cast<bool>(all.quiet_all(by_thread)) == well && static_cast<bool>(all.flush_all(by_thread)) == well);
    };
    stand::run_block(1, lane);
    CHECK((s.pe(0).log.count == 0) == well);
  }
}

// --- waits without a matching write --------------------------------------------------------------------------------------

void ended() {
  stand s(2, 1 << 16);
  const uint64_t at = s.take(64);
  s.pe(0).control.deadline_ns = 20000000;
  uint32_t how[2] = {};
  s.run(1, [&](const world_ref& w, uint32_t p) {
    // PE 0 times out, PE 1 is stopped by its host.
    if (p == 1) order::store<order::release>(&s.pe(1).stop, 1u);
    how[p] = w.wait_until(sym<uint64_t>{s.here<uint64_t>(p, at)}, cmp::ne, 0).kind();
  });
  CHECK(how[0] == WB_TIMED_OUT && how[1] == WB_STOPPED);
  const wb_error& e = s.pe(0).log.entry[0];
  CHECK(e.opcode == WB_CALL_WAIT && e.queue == 0 && e.device == WB_NO_PE && e.lba == at && e.blocks == 8);
  // A wait for signals keeps its shadow, says how many have come, and names the PE. A shadow ahead of the word waits, too.
  pe_state& p = s.pe(0);
  *s.here<uint64_t>(0, at) = 8;
  const world_ref w(s.world(0));
  for (const uint64_t counted : {6, 8, 20}) {
    p.log = wb_error_log{}, p.abort = 0;
    uint64_t shadow = counted, arrived = 9;
    auto lane = [&] { CHECK(w.signal_wait_shadow(s.here<uint64_t>(0, at), shadow, 3, &arrived, 1).kind() == WB_TIMED_OUT); };
    stand::run_block(1, lane);
    CHECK(shadow == counted && arrived == (counted < 8 ? 8 - counted : 0));
    CHECK(p.log.count == 1 && p.log.entry[0].device == 1 && p.log.entry[0].lba == at);
  }
}

// --- an adapter that fails ---------------------------------------------------------------------------------------------

// Tests that each call over a failed queue pair fails, names the PE, and ends the run, and that none returns success.
void broken() {
  constexpr uint32_t all = 6;
  for (uint32_t which = 0; which < all; ++which) {
    stand s(2, 1 << 16);
    const uint64_t at = s.take(256);
    s.break_queue(0, 1, 0, mlx5::syndrome_remote_access);
    bool well = true;
    uint64_t before = 7, far[32] = {};
    const world_ref w(s.world(0));
    auto lane = [&] {
      const sym<uint64_t> word{s.here<uint64_t>(0, at)};
      switch (which) {
        case 0: before = w.g(word, 1); break;
        case 1: before = w.atomic_fetch_add(word, 3, 1); break;
        case 2:
          w.p(word, 1, 1);
          well = static_cast<bool>(w.quiet());
          break;
        case 3: w.get(far, word, 32, 1); break;
        case 4:
          w.put_nbi(word, word + 8, 16, 1);
          well = static_cast<bool>(w.flush());
          break;
        default:
          w.put(word, far, 32, 1);
          well = static_cast<bool>(w.quiet_all(by_thread));
          break;
      }
    };
    stand::run_block(1, lane);
    const pe_state& p = s.pe(0);
    CHECK(p.abort == 1 && p.log.count >= 1);
    const wb_error& e = p.log.entry[0];
    CHECK(e.status >> WB_STATUS_KIND_SHIFT == WB_NETWORK_ERROR && (e.status & 0xff) == mlx5::syndrome_remote_access);
    CHECK(e.device == 1 && e.queue == 0);
    CHECK(which >= 2 || before == 0);
    CHECK(which == 2 || which >= 4 ? !well : well);
    CHECK(*s.here<uint64_t>(1, at) == 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "stores";
  transport = how == "stores" ? by::stores : how == "both" ? by::both : by::network;
  if (how == "flushed") adapter_flags = WB_SEND_CONSISTENCY;
  if (how == "collapsed") adapter_flags = WB_SEND_COLLAPSED;
  if (transport == by::stores) refused();
  far_apart();
  if (argc > 2) {
    std::printf("shmem_stress, what calls refuse, by %s: ok\n", how.c_str());
    return 0;
  }
  if (transport == by::network && adapter_flags != WB_SEND_COLLAPSED) broken();
  ended();
  if (transport == by::network) flushed();
  if (transport == by::network && adapter_flags != WB_SEND_COLLAPSED) chosen_alone();
  // Own queue pairs, one for both blocks, and several in turn.
  chosen(2, 4 * effort, [](uint32_t block, uint32_t) { return block; });
  chosen(3, 2 * effort, [](uint32_t, uint32_t) { return 1u; });
  chosen(2, 4 * effort, [](uint32_t block, uint32_t turn) { return block + turn; });
  reused(3, 2 * width, 2 * effort);
  messages(2, width, 1, 30 * effort);
  messages(3, width == 1 ? 2 : width, 37, 10 * effort);
  if (width < 32) messages(4, 2 * width, 5, 5 * effort);
  atomics(3, width == 32 ? 32 : 2 * width, 5 * effort);
  locked(2, width == 32 ? 4 : 2 * width, 2 * effort);
  for (uint32_t some : {0u, 1u}) collected(3, 24, some);
  for (uint64_t start : {uint64_t{0}, ~uint64_t{0} - 7}) counted(3, start, 20 * effort);
  rounds(width == 32 ? 2 : 4, width == 1 ? 2 : width, 4 * effort);
  std::printf("shmem_stress, warps of %u, by %s: ok\n", width, how.c_str());
  return 0;
}
