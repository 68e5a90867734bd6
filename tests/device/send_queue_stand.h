// Base of the stress test of send queues: memory of each lane on both sides, and counters of all lanes.
#pragma once

#include "adapter.h"

namespace model {

constexpr uint32_t warps = warp::width == 32 ? 2 : 4;
constexpr uint32_t lane_count = warps * warp::width;
constexpr uint32_t area = 256;  // bytes of each lane, on either side
// Deadlines of waits that succeed, even on a busy machine, and of waits that must time out.
constexpr uint64_t patient = 60ull * 1000 * 1000 * 1000, impatient = 80 * 1000 * 1000;

struct rng {
  explicit rng(uint64_t seed) : g(seed * 7919 + warp::thread_index()) {}
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(g() % n); }
  std::mt19937_64 g;
};

struct lane_memory {
  alignas(64) char near[area];
  alignas(64) char far[area];
  alignas(64) uint64_t signal;
  uint64_t word64;
  uint32_t word32;
};

struct stand {
  explicit stand(const options& o) : a(o), memory(lane_count) { a.start(); }
  ~stand() { a.finish(); }
  lane_memory& mine() { return memory[warp::thread_index()]; }

  // Ends the test: waits until everything is done, however long that takes.
  void drain(const char* where) {
    a.ctl.deadline_ns = patient;
    run(1, [this] {
      for (uint32_t i = 0; i < a.opt.queues; ++i) check(bool(a.queue(i).quiet(warp::full(), warp::lane() == 0)), "the last quiet failed");
    });
    a.finish();
    a.check_idle(where);
  }

  adapter a;
  std::vector<lane_memory> memory;
  alignas(64) uint64_t counter64 = 0;
  alignas(64) uint64_t swapped = 0;
  alignas(64) uint32_t counter32 = 0;
  std::atomic<uint64_t> added64{0}, sum64{0}, added32{0}, sum32{0}, swaps{0};
};

template <class T> remote there(T* p) { return remote{reinterpret_cast<uint64_t>(p), big(data_key)}; }
template <class T> local here(T* p) { return local{reinterpret_cast<uint64_t>(p), big(data_key)}; }

// Bytes as the adapter and lanes see them: by atomic accesses.
inline char byte_of(uint32_t round, uint32_t i) { return static_cast<char>((round * 131 + i * 7 + warp::thread_index() * 29) ^ i >> 3); }
inline void fill(char* at, uint32_t n, uint32_t round) {
  for (uint32_t i = 0; i < n; ++i) order::store<order::relaxed>(at + i, byte_of(round, i));
}
inline bool holds(const char* at, uint32_t n, uint32_t round) {
  for (uint32_t i = 0; i < n; ++i) {
    if (order::load<order::relaxed>(at + i) != byte_of(round, i)) return false;
  }
  return true;
}
inline void expect_done(outcome o, const char* what) { check(bool(o), std::string(what) + " ended in " + std::to_string(o.word)); }

}  // namespace model
