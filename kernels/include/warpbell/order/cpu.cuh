// Ordered accesses of the CPU engine: the compiler's atomics, in the order of the last column of the tables in order.cuh, which
// includes this file. State exploration replaces the compiler's atomics by its own (tests/device/explore_access.h).
#pragma once

namespace warpbell {
namespace order {
namespace detail {

#define WB_CPU_LOADS(OP, O, S, CPU)                                                                                 \
  template <class Word> WB_FN Word load(access<O, S>, const Word* p) { return __atomic_load_n(p, __ATOMIC_##CPU); } \
  WB_FN pair load(access<O, S> how, const pair* p) { return pair{load(how, &p->low), load(how, &p->high)}; }
WB_ORDER_LOADS(WB_CPU_LOADS)

#define WB_CPU_STORES(OP, O, S, CPU)                                                                                \
  template <class Word> WB_FN void store(access<O, S>, Word* p, Word v) { __atomic_store_n(p, v, __ATOMIC_##CPU); } \
  WB_FN void store(access<O, S> how, pair* p, pair v) {                                                             \
    store(how, &p->low, v.low);                                                                                     \
    store(how, &p->high, v.high);                                                                                   \
  }
WB_ORDER_STORES(WB_CPU_STORES)

// Stores the minimum of `*p` and `v`, and returns the value before.
template <class Word> WB_FN Word lower(Word* p, Word v, int order) {
  Word old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v < old && !__atomic_compare_exchange_n(p, &old, v, true, order, __ATOMIC_RELAXED)) {
  }
  return old;
}
#define WB_CPU_fetch_add __atomic_fetch_add
#define WB_CPU_fetch_or __atomic_fetch_or
#define WB_CPU_fetch_and __atomic_fetch_and
#define WB_CPU_fetch_xor __atomic_fetch_xor
#define WB_CPU_fetch_min lower
#define WB_CPU_exchange __atomic_exchange_n
#define WB_CPU_UPDATES(OP, O, S, CPU) \
  template <class Word> WB_FN Word OP(access<O, S>, Word* p, Word v) { return WB_CPU_##OP(p, v, __ATOMIC_##CPU); }
WB_ORDER_UPDATES(WB_CPU_UPDATES)

#define WB_CPU_COMPARES(OP, O, S, CPU)                                                                     \
  template <class Word> WB_FN Word OP(access<O, S>, Word* p, Word expected, Word desired) {                \
    __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_##CPU,                              \
                                __ATOMIC_##CPU == __ATOMIC_RELAXED ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE); \
    return expected;                                                                                       \
  }
WB_ORDER_COMPARES(WB_CPU_COMPARES)

#define WB_CPU_ADDS(OP, O, S, CPU) \
  template <class Word> WB_FN void add(access<O, S>, Word* p, Word v) { __atomic_fetch_add(p, v, __ATOMIC_##CPU); }
WB_ORDER_ADDS(WB_CPU_ADDS)

#if defined(__SANITIZE_THREAD__)
#define WB_CPU_FENCES(OP, O, S, CPU) \
  WB_FN void fence(access<O, S>) {}
#else
#define WB_CPU_FENCES(OP, O, S, CPU) \
  WB_FN void fence(access<O, S>) { __atomic_thread_fence(__ATOMIC_##CPU); }
#endif
WB_ORDER_FENCES(WB_CPU_FENCES)

// A thread that acquires the first word sees the second. A thread that sees the second word may see the first one late.
template <class Access> WB_FN void store_both(Access how, uint64_t* p, uint64_t first, uint64_t second) {
  store(how, p + 1, second);
  store(how, p, first);
}

// The last word carries phase and identifier, and a controller writes it last. So acquiring it first gives the same guarantee as
// one 16-byte access.
template <memory_order O> WB_FN quad load_quad(access<O, system>, const void* p) {
  const uint32_t* s = static_cast<const uint32_t*>(p);
  quad q;
  q.w = __atomic_load_n(s + 3, __ATOMIC_ACQUIRE);
  q.x = __atomic_load_n(s, __ATOMIC_RELAXED);
  q.y = __atomic_load_n(s + 1, __ATOMIC_RELAXED);
  q.z = __atomic_load_n(s + 2, __ATOMIC_RELAXED);
  return q;
}
WB_FN void store_quad(access<relaxed, system>, void* p, quad q) {
  uint32_t* d = static_cast<uint32_t*>(p);
  __atomic_store_n(d, q.x, __ATOMIC_RELAXED);
  __atomic_store_n(d + 1, q.y, __ATOMIC_RELAXED);
  __atomic_store_n(d + 2, q.z, __ATOMIC_RELAXED);
  __atomic_store_n(d + 3, q.w, __ATOMIC_RELEASE);
}

// Makes earlier stores visible to devices, and a store to a write-combining page leave at once. Threads need less for their order
// than devices.
WB_FN void flush_to_devices() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#elif defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#endif
}
template <class Word> WB_FN void mmio(Word* reg, Word v) {
  cpu::last_doorbell() = reg;
  flush_to_devices();
  __atomic_store_n(reg, v, __ATOMIC_RELEASE);
  flush_to_devices();
}

WB_FN uint32_t load_plain(const uint32_t* p) { return load(access<relaxed, device>{}, p); }
WB_FN void pause(uint32_t) { cpu::yield(); }

}  // namespace detail
}  // namespace order
}  // namespace warpbell
