// Single elements: p, g and atomics of every thread.
#pragma once

#include <type_traits>

#include "how.cuh"

namespace shmem_bench {

using namespace warpbell;

// A random stream: the multiplier and the increment of Knuth's MMIX; the upper half is the random one.
struct stream {
  uint64_t state;

  WB_FN stream(uint64_t seed, uint64_t thread) : state(word(seed, thread)) {}
  WB_FN uint64_t next() { return state = state * 6364136223846793005ull + 1442695040888963407ull; }
  // Returns a number below n, which is below 2^32.
  WB_FN uint64_t below(uint64_t n) { return (next() >> 32) * n >> 32; }
  // Returns the value for the element just drawn.
  template <class T> WB_FN T value() const { return static_cast<T>(state >> 16); }
};

// Stores side by side, one element of each thread in each iteration.
template <class T, class How> WB_FN void p_rate(const world_ref& w, const test& t) {
  T* to = static_cast<T*>(t.target);
  const uint64_t step = warp::thread_total();
  uint64_t at = warp::thread_index();
  auto once = [&] {
    How::p(w, to + at, element<T>(t.seed, at), t.peer);
    at += step;
    if (at >= t.elements) at = warp::thread_index();
  };
  for (uint32_t i = 0; i < t.warmup; ++i) once();
  w.quiet();
  begin(w, t);
  at = warp::thread_index();
  for (uint32_t i = 0; i < t.iterations; ++i) once();
  end(w, t);
}

// Gets random elements, several of each thread in flight, and sums them up.
template <class T, class How> WB_FN void g_rate(const world_ref& w, const test& t) {
  constexpr uint32_t ahead = WB_GPU ? 8 : 1;
  const T* from = static_cast<const T*>(t.source);
  uint64_t sum = 0;
  auto some = [&](stream& random, uint32_t count) {
    uint32_t i = 0;
    for (; i + ahead <= count; i += ahead) {
      T v[ahead];
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) v[k] = How::g(w, from + random.below(t.elements), t.peer);
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) sum += v[k];
    }
    for (; i < count; ++i) sum += How::g(w, from + random.below(t.elements), t.peer);
  };
  stream before(t.seed + 1, warp::thread_index()), random(t.seed, warp::thread_index());
  some(before, t.warmup);
  begin(w, t);
  sum = 0;
  some(random, t.iterations);
  end(w, t);
  t.sums[warp::thread_index()] = sum;
}

// Returns the operand of an operation. Where the order of operations would show in the result, all operations on an element have
// the same operand.
template <uint32_t Op, class T> WB_FN T operand(const test& t, const stream& random, uint64_t at) {
  return Op == set || Op == swap || Op == compare_swap ? element<T>(t.seed, at) : random.value<T>();
}
// Returns the value that a compare-and-swap expects.
template <uint32_t Op, class T> WB_FN T expectation(const test& t, uint64_t at) {
  return Op == compare_swap ? element<T>(t.before, at) : T{};
}

// Executes updates. A function of its own for each operation: one function for all takes the compiler too long.
template <class T, class How, uint32_t Op> WB_FN_COLD void update_many(const world_ref& w, const test& t) {
  constexpr uint32_t ahead = WB_GPU ? 4 : 1;
  T* window = static_cast<T*>(t.target);
  stream random(t.seed, warp::thread_index());
  T old{};
  auto one = [&] {
    const uint64_t at = random.below(t.elements);
    const T v = operand<Op, T>(t, random, at), expected = expectation<Op, T>(t, at);
    return How::template update<Op>(w, window + at, v, expected, t.peer);
  };
  // Warm-up is part of the checked result, so it uses the same sequence.
  bool warm = false;
  for (uint32_t from = 0, to = t.warmup;; from = t.warmup, to = t.warmup + t.iterations) {
    if (warm) begin(w, t);
    // Fetching operations are sent off before the first result is used.
    for (uint32_t i = from; i < to; i += ahead) {
      T v[ahead];
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) v[k] = i + k < to ? one() : T{};
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) old ^= v[k];
    }
    if (warm) break;
    w.quiet();
    warm = true;
  }
  end(w, t);
  t.sums[warp::thread_index()] = old;
}

// Computes the window's contents after the same operations, by one thread in place of each.
template <class T, uint32_t Op> WB_FN void replay_one(const test& t, uint64_t threads) {
  T* window = static_cast<T*>(t.target);
  for (uint64_t thread = warp::thread_index(); thread < threads; thread += warp::thread_total()) {
    stream random(t.seed, thread);
    for (uint32_t i = 0; i < t.warmup + t.iterations; ++i) {
      const uint64_t at = random.below(t.elements);
      T* here = window + at;
      const T v = operand<Op, T>(t, random, at);
      if constexpr (Op == inc || Op == fetch_inc) order::add<order::relaxed, order::world>(here, T(1));
      if constexpr (Op == add || Op == fetch_add) order::add<order::relaxed, order::world>(here, v);
      if constexpr (Op == set || Op == swap || Op == compare_swap) order::store<order::relaxed, order::world>(here, v);
      if constexpr (Op == and_ || Op == fetch_and) order::fetch_and<order::relaxed, order::world>(here, v);
      if constexpr (Op == or_ || Op == fetch_or) order::fetch_or<order::relaxed, order::world>(here, v);
      if constexpr (Op == xor_ || Op == fetch_xor) order::fetch_xor<order::relaxed, order::world>(here, v);
    }
  }
}

template <class T> struct updates {
  const world_ref& w;
  const test& t;
  template <uint32_t Op> WB_FN void run() const { update_many<T, library, Op>(w, t); }
};
template <class T> struct replays {
  const test& t;
  uint64_t threads;
  template <uint32_t Op> WB_FN void run() const { replay_one<T, Op>(t, threads); }
};

template <class Do> WB_FN void by_operation(uint32_t op, Do what) {
  switch (op) {
    case inc: return what.template run<inc>();
    case add: return what.template run<add>();
    case fetch_inc: return what.template run<fetch_inc>();
    case fetch_add: return what.template run<fetch_add>();
    case set: return what.template run<set>();
    case swap: return what.template run<swap>();
    case compare_swap: return what.template run<compare_swap>();
    case and_: return what.template run<and_>();
    case or_: return what.template run<or_>();
    case xor_: return what.template run<xor_>();
    case fetch_and: return what.template run<fetch_and>();
    case fetch_or: return what.template run<fetch_or>();
    case fetch_xor: return what.template run<fetch_xor>();
    default: return what.template run<fetch>();
  }
}

template <class T, class How> WB_FN void atomic_rate(const world_ref& w, const test& t) {
  if constexpr (std::is_same<How, library>::value) {
    by_operation(t.op, updates<T>{w, t});
  } else {
    switch (t.op) {
      case inc: return update_many<T, How, inc>(w, t);
      case add: return update_many<T, How, add>(w, t);
      case fetch_inc: return update_many<T, How, fetch_inc>(w, t);
      default: return update_many<T, How, fetch_add>(w, t);
    }
  }
}
template <class T> WB_FN void replay(const test& t, uint64_t threads) { by_operation(t.op, replays<T>{t, threads}); }

}  // namespace shmem_bench
