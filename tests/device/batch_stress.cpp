// Stress test of batches: doorbells, batches longer than the ring, refusals and failures, and messages whose signal ends a batch, from
// many threads on one queue pair. Compiled with WB_WARP_WIDTH 1, 4 and 32, plain and under ThreadSanitizer: see tests/device/stress.rs.
#define WB_CHECKED 1

#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "shmem_stand.h"

using namespace warpbell;

namespace {

constexpr uint32_t width = warp::width;
constexpr uint32_t effort = width == 1 ? 40 : width == 4 ? 6 : 1;

template <class F> void in_one_thread(F f) { stand::run_block(1, f); }

// Tests that the adapter gets a batch with one doorbell, and each call of the world with its own.
void doorbells() {
  constexpr uint32_t n = 4;  // a ring of 32 blocks takes eight entries of a batch at a time
  stand s(2, 1 << 16);
  const uint64_t at = s.take(256);
  const world_ref w(s.world(0));
  const sym<uint64_t> word{s.here<uint64_t>(0, at)};
  s.adapter().stop();
  uint32_t seen = 0, doorbells = 0;
  const auto look = [&] {
    const uint32_t now = s.announced(0, 1, 0);
    doorbells += now != seen;
    seen = now;
  };
  auto posts = [&] {
    for (uint32_t i = 0; i < n; ++i, look()) w.p(word + i, 70 + i, 1);
    CHECK(doorbells == n && seen == n);
    batch_space<16> space;
    {
      put_batch b = w.batch(space, 1);
      uint64_t own[8] = {81, 82, 83, 84, 85, 86, 87, 88};
      for (uint32_t i = 0; i < n; ++i, look()) b.p(word + 8 + i, 90 + i);
      b.put_nbi(word + 16, own, 8), look();
      b.put_nbi(word + 24, word + 16, 2), look();
      CHECK(doorbells == n);
      // A signal that is set is an entry of two blocks.
      b.put_signal_nbi(word + 26, own, 1, word + 30, 5, signal::set), look();
      CHECK(doorbells == n);
      b.end(), look();
      CHECK(doorbells == n + 1 && seen == 2 * n + 5);
      b.end(), look();
      b.signal_op(word + 31, 3, signal::add), look();
      CHECK(doorbells == n + 1);
    }
    // The end of the object posted the signal. Batches without calls post nothing.
    look();
    CHECK(doorbells == n + 2 && seen == 2 * n + 6);
    {
      put_batch empty = w.batch(space, 1);
      empty.put_nbi(word, word, 0);
    }
    look();
    CHECK(doorbells == n + 2);
    s.adapter().start();
    CHECK(w.quiet());
  };
  in_one_thread(posts);
  const uint64_t* there = s.here<uint64_t>(1, at);
  for (uint32_t i = 0; i < n; ++i) CHECK(there[i] == 70 + i && there[8 + i] == 90 + i);
  for (uint32_t i = 0; i < 8; ++i) CHECK(there[16 + i] == 81 + i);
  CHECK(there[24] == 0 && there[26] == 81 && there[30] == 5 && there[31] == 3);
  CHECK(s.pe(0).log.count == 0);
}

// Tests batches that are longer than their space and the ring, over its end, and one that finds no room in time.
void longer() {
  constexpr uint64_t n = 300;
  stand s(2, 1 << 16);
  constexpr uint64_t bytes = 128 * 40 + 5;
  const uint64_t at = s.take(8 * n), copied = s.take(bytes);
  const world_ref w(s.world(0));
  const sym<uint64_t> word{s.here<uint64_t>(0, at)};
  pe_state& p = s.pe(0);
  batch_space<3> few;
  batch_space<64> many;
  std::vector<uint8_t> far(bytes);
  for (uint64_t i = 0; i < bytes; ++i) far[i] = static_cast<uint8_t>(i * 7 + i / 128);
  auto posts = [&] {
    put_batch small = w.batch(few, 1);
    put_batch large = w.batch(many, 1);
    for (ptrdiff_t i = 0; i < ptrdiff_t{n} / 2; ++i) small.p(word + i, 2), large.p(word + n / 2 + i, 3);
    // In more pieces than the ring has blocks.
    large.put_nbi(sym<uint8_t>{s.here<uint8_t>(0, copied)}, far.data(), bytes);
    small.end(), large.end();
    CHECK(w.quiet());
  };
  in_one_thread(posts);
  for (uint64_t i = 0; i < n; ++i) CHECK(s.here<uint64_t>(1, at)[i] == (i < n / 2 ? 2 : 3));
  for (uint64_t i = 0; i < bytes; ++i) CHECK(s.here<uint8_t>(1, copied)[i] == far[i]);
  CHECK(p.log.count == 0);
  // With an adapter that does nothing the ring of 32 blocks takes four pieces of eight. The fifth begins with word 32.
  s.adapter().stop();
  p.control.deadline_ns = 20000000;
  const uint32_t before = s.announced(0, 1, 0);
  auto stuck = [&] {
    put_batch b = w.batch(many, 1);
    for (ptrdiff_t i = 0; i < 40; ++i) b.p(word + i, 4);
    // Those that are not posted are dropped, and the end of the object does not post them.
    b.end();
  };
  in_one_thread(stuck);
  CHECK(((s.announced(0, 1, 0) - before) & 0xffff) == 32);
  const wb_error& e = p.log.entry[0];
  CHECK(p.log.count == 1 && e.status >> WB_STATUS_KIND_SHIFT == WB_TIMED_OUT && e.opcode == WB_CALL_PUT);
  CHECK(e.device == 1 && e.queue == 0 && e.lba == at + 8 * 32);
}

// Tests requests of a batch that the adapter fails, and a batch on a queue pair that has failed.
void failing() {
  for (uint32_t after : {0u, 3u, 5u}) {
    stand s(2, 1 << 16);
    const uint64_t at = s.take(256);
    s.break_queue(0, 1, 0, mlx5::syndrome_remote_access, after);
    const world_ref w(s.world(0));
    const sym<uint64_t> word{s.here<uint64_t>(0, at)};
    pe_state& p = s.pe(0);
    batch_space<> space;
    auto posts = [&] {
      put_batch b = w.batch(space, 1);
      for (uint32_t i = 0; i < 6; ++i) b.p(word + i, 1);
      b.end();
      CHECK(!w.quiet());
      // Until the ring is full of requests that never complete.
      for (uint32_t i = 0; i < 60; ++i) b.p(word + 20, 1);
    };
    in_one_thread(posts);
    for (uint32_t i = 0; i < 6; ++i) CHECK(s.here<uint64_t>(1, at)[i] == (i < after));
    CHECK(s.here<uint64_t>(1, at)[20] == 0 && p.log.count >= 2);
    for (uint32_t i = 0; i < p.log.count; ++i) {
      const wb_error& e = p.log.entry[i];
      CHECK(e.status >> WB_STATUS_KIND_SHIFT == WB_NETWORK_ERROR && (e.status & 0xff) == mlx5::syndrome_remote_access && e.device == 1);
      CHECK(i == 0 ? e.opcode == WB_CALL_QUIET : e.opcode == WB_CALL_PUT && e.lba == at + 160);
    }
  }
}

// Tests what a batch refuses, and that its other calls are made all the same.
void refused() {
  stand s(2, 1 << 16);
  const uint64_t at = s.take(256);
  const world_ref w(s.world(0));
  uint64_t* word = s.here<uint64_t>(0, at);
  pe_state& p = s.pe(0);
  batch_space<> space;
  uint64_t own = 9;
  auto posts = [&] {
    put_batch b = w.batch(space, 1);
    b.p(word, 1);
    b.p(word + 100, 1);
    b.put_nbi(word + 31, &own, 2);
    b.signal_op(&own, 1, signal::add);
    b.p(word + 1, 2);
    b.end();
    put_batch nobody = w.batch(space, 2);
    nobody.p(word, 5);
    nobody.put_signal_nbi(word, &own, 1, word, 1, signal::set);
  };
  in_one_thread(posts);
  const uint32_t calls[] = {WB_CALL_PUT, WB_CALL_PUT, WB_CALL_SIGNAL, WB_CALL_PUT, WB_CALL_PUT, WB_CALL_SIGNAL};
  CHECK(p.log.count == 6);
  for (uint32_t i = 0; i < 6; ++i) {
    const wb_error& e = p.log.entry[i];
    CHECK(e.status >> WB_STATUS_KIND_SHIFT == WB_BAD_ARGUMENT && e.opcode == calls[i] && e.device == (i < 3 ? 1 : 2));
  }
  p.log = wb_error_log{}, p.abort = 0;
  auto ends = [&] { CHECK(w.quiet()); };
  in_one_thread(ends);
  CHECK(s.here<uint64_t>(1, at)[0] == 1 && s.here<uint64_t>(1, at)[1] == 2 && own == 9);
}

// Tests that calls of the world in an open batch wait for nothing of it, and come before it.
void within() {
  stand s(2, 1 << 16);
  const uint64_t at = s.take(256);
  const world_ref w(s.world(0));
  const sym<uint64_t> word{s.here<uint64_t>(0, at)};
  batch_space<> space;
  auto posts = [&] {
    put_batch b = w.batch(space, 1);
    b.p(word, 1);
    CHECK(w.quiet() && w.flush() && w.quiet_all(by_thread));
    const uint64_t found = w.g(word, 1);
    CHECK(found == (transport == by::network ? 0 : 1));
    w.p(word, 2, 1);
    b.signal_op(word + 1, 1, signal::add);
    b.end();
    CHECK(w.quiet());
  };
  in_one_thread(posts);
  CHECK(s.here<uint64_t>(1, at)[0] == (transport == by::network ? 1 : 2) && s.here<uint64_t>(1, at)[1] == 1);
  CHECK(s.pe(0).log.count == 0);
}

// Each thread of two blocks of each PE sends messages to the same thread of the next PE, by a batch or, in every third thread, by calls
// of the world. All blocks use one queue pair. A message has words of three kinds of source, and its signal comes last.
void messages(uint32_t n, uint32_t threads, uint32_t turns) {
  constexpr uint32_t blocks = 2, values = 3, heap_words = 16, own_words = 9, words = values + heap_words + own_words;
  stand s(n, 1 << 20);
  const uint32_t all_threads = blocks * threads;
  const uint64_t box = s.take(8 * words * all_threads), source = s.take(8 * heap_words * all_threads), flags = s.take(16 * all_threads);
  std::vector<std::thread> all;
  for (uint32_t pe = 0; pe < n; ++pe) {
    for (uint32_t block = 0; block < blocks; ++block) {
      all.emplace_back([&, pe, block] {
        const world_ref w = world_ref(s.world(pe)).on_queue(1);
        auto lane = [&] {
          const uint32_t t = block * threads + threadIdx.x, next = (pe + 1) % n, before = (pe + n - 1) % n;
          uint64_t *to = s.here<uint64_t>(pe, box) + words * t, *from = s.here<uint64_t>(pe, source) + heap_words * t;
          uint64_t *arrived = s.here<uint64_t>(pe, flags) + 2 * t, *taken = arrived + 1;
          const auto told = [](uint32_t of, uint32_t turn, uint32_t i) { return uint64_t{of} << 40 | uint64_t{turn} << 8 | i; };
          uint64_t came = 0, freed = 0, own[own_words];
          for (uint32_t turn = 1; turn <= turns; ++turn) {
            for (uint32_t i = 0; i < heap_words; ++i) from[i] = told(pe, turn, values + i);
            for (uint32_t i = 0; i < own_words; ++i) own[i] = told(pe, turn, values + heap_words + i);
            if (t % 3 == 2) {
              for (uint32_t i = 0; i < values; ++i) w.p(to + i, told(pe, turn, i), next);
              w.put_nbi(to + values, from, heap_words, next);
              w.put_signal_nbi(to + values + heap_words, own, own_words, arrived, 1, signal::add, next);
            } else {
              batch_space<4> space;
              put_batch b = w.batch(space, next);
              for (uint32_t i = 0; i < values; ++i) b.p(to + i, told(pe, turn, i));
              b.put_nbi(to + values, from, heap_words);
              b.put_signal_nbi(to + values + heap_words, own, own_words, arrived, 1, signal::add);
            }
            CHECK(w.signal_wait_shadow(arrived, came, 1, nullptr, before));
            for (uint32_t i = 0; i < words; ++i) CHECK(to[i] == told(before, turn, i));
            w.fence();
            w.signal_inc(taken, before);
            CHECK(w.signal_wait_shadow(taken, freed, 1, nullptr, next));
            CHECK(w.flush());
          }
        };
        stand::run_block(threads, lane, block, blocks);
      });
    }
  }
  for (auto& t : all) t.join();
  for (uint32_t p = 0; p < n; ++p) CHECK(s.pe(p).log.count == 0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "stores";
  transport = how == "stores" ? by::stores : how == "both" ? by::both : by::network;
  if (how == "flushed") adapter_flags = WB_SEND_CONSISTENCY;
  if (how == "collapsed") adapter_flags = WB_SEND_COLLAPSED;
  if (transport == by::network) {
    doorbells();
    longer();
    if (adapter_flags != WB_SEND_COLLAPSED) failing();
  }
  refused();
  within();
  messages(2, width == 1 ? 4 : width, 10 * effort);
  messages(3, width == 1 ? 2 : width, 5 * effort);
  std::printf("batch_stress, warps of %u, by %s: ok\n", width, how.c_str());
  return 0;
}
