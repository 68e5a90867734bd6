// The device library's accesses to memory, its clock and its yield, as steps of an exploration. The macros at the end of this file
// replace the compiler's atomic builtins, so include the library's headers after this file.
#pragma once

#include "explore.h"

namespace explore {

template <class T> uint64_t bits(T v) {
  uint64_t b = 0;
  std::memcpy(&b, &v, sizeof v);
  return b;
}

template <class T> T load(const T* p, int) {
  explorer& e = here();
  const region& r = e.arrive(p, false);
  T v = *p;
  const explorer::held* h = e.delayed();
  if (h && h->at == reinterpret_cast<uint64_t>(p)) std::memcpy(&v, &h->value, sizeof v);
  e.happened(r, p, "reads", bits(v), bits(v), false);
  return v;
}

template <class T, class V> void store(T* p, V value, int order) {
  explorer& e = here();
  const T v = static_cast<T>(value);
  const region& r = e.arrive(p, order == __ATOMIC_RELAXED);
  const explorer::held* h = e.delayed();
  if (h && (releases(order) || h->at == reinterpret_cast<uint64_t>(p))) e.catch_up(e.current());
  const T before = *p;
  if (e.delays_this()) {
    e.hold_back(p, bits(v), sizeof v);
    e.happened(r, p, "holds its store back to", bits(before), bits(v), false);
    return;
  }
  *p = v;
  e.happened(r, p, "stores to", bits(before), bits(v), true);
}

template <class T, class F> T modify(T* p, const char* how, int order, F next) {
  explorer& e = here();
  const region& r = e.arrive(p, false);
  const explorer::held* h = e.delayed();
  if (h && (releases(order) || h->at == reinterpret_cast<uint64_t>(p))) e.catch_up(e.current());
  const T before = *p, now = static_cast<T>(next(before));
  *p = now;
  e.happened(r, p, how, bits(before), bits(now), true);
  return before;
}

template <class T> bool compare_exchange(T* p, T* expected, T desired, int order) {
  const T wanted = *expected;
  const T before = modify(p, "compares and swaps", order, [&](T old) { return old == wanted ? desired : old; });
  *expected = before;
  return before == wanted;
}

inline void fence(int order) {
  explorer& e = here();
  if (releases(order) && e.delayed()) e.catch_up(e.current());
}

// Reads the clock. A thread that looks at the clock waits for others. They may run then, which is no preemption.
inline int read_clock(timespec* t) {
  explorer& e = here();
  const uint64_t ns = load(e.what().time, __ATOMIC_RELAXED);
  e.looked_at_clock();
  e.yielded();
  t->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  t->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return 0;
}

// A counter of turns of a wait. Only the first turn is told from the others, so that longer waits lead to no new states.
struct turns {
  uint32_t count = 0;
  operator uint32_t() const { return count; }
  uint32_t operator++() { return count = 1; }
};

// A counter of turns of a wait that looks at two frames by turns.
struct cycle {
  uint32_t count = 0;
  cycle(uint32_t first) : count(first) {}
  uint32_t operator++(int) {
    const uint32_t before = count;
    count ^= 1;
    return before;
  }
};

// --- mutations -------------------------------------------------------------------------------------------------------

constexpr uint32_t id_of(const char* name) {
  uint32_t h = 2166136261u;
  for (; *name; ++name) h = (h ^ static_cast<unsigned char>(*name)) * 16777619u;
  return h;
}
// Id of the mistake that a copy of the headers makes in this run; 0: none.
inline uint32_t mutation = 0;
#define MUTATED(NAME) (::explore::mutation == ::explore::id_of(NAME))

}  // namespace explore

#define __atomic_load_n(P, ORDER) ::explore::load(P, ORDER)
#define __atomic_store_n(P, V, ORDER) ::explore::store(P, V, ORDER)
#define __atomic_fetch_add(P, V, ORDER) ::explore::modify(P, "adds to", ORDER, [&](auto old) { return old + (V); })
#define __atomic_fetch_or(P, V, ORDER) ::explore::modify(P, "sets bits of", ORDER, [&](auto old) { return old | (V); })
#define __atomic_fetch_and(P, V, ORDER) ::explore::modify(P, "clears bits of", ORDER, [&](auto old) { return old & (V); })
#define __atomic_fetch_xor(P, V, ORDER) ::explore::modify(P, "flips bits of", ORDER, [&](auto old) { return old ^ (V); })
#define __atomic_exchange_n(P, V, ORDER) ::explore::modify(P, "exchanges", ORDER, [&](auto) { return V; })
#define __atomic_compare_exchange_n(P, EXPECTED, DESIRED, WEAK, ORDER, FAILED) ::explore::compare_exchange(P, EXPECTED, DESIRED, ORDER)
#define __atomic_thread_fence(ORDER) ::explore::fence(ORDER)
#define clock_gettime(CLOCK, T) ::explore::read_clock(T)
#define sched_yield() ::explore::here().yielded()
#define WB_PAUSE() ::explore::here().yielded()
