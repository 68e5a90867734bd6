// Every load, store, atomic and fence with an ordering. No other file in the tree names one.
//
// Scopes: plain names are device scope (all threads of this GPU, or of this process on the CPU engine); `_sys` reaches the
// host and devices on the bus. On the CPU engine the ordering always sits on the access itself, never only on a fence,
// because ThreadSanitizer does not model fences.
#pragma once

#include <stddef.h>

#include <warpbell/platform.h>

namespace warpbell {
namespace order {

struct alignas(16) quad {
  uint32_t x, y, z, w;
};

#if WB_GPU

#define WB_ORDER_LOAD(NAME, PTX)                                                        \
  WB_FN uint32_t NAME(const uint32_t* p) {                                              \
    uint32_t v;                                                                         \
    asm volatile(PTX ".u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");                   \
    return v;                                                                           \
  }                                                                                     \
  WB_FN uint64_t NAME(const uint64_t* p) {                                              \
    uint64_t v;                                                                         \
    asm volatile(PTX ".u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");                   \
    return v;                                                                           \
  }
#define WB_ORDER_STORE(NAME, PTX)                                                       \
  WB_FN void NAME(uint32_t* p, uint32_t v) {                                            \
    asm volatile(PTX ".u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");                     \
  }                                                                                     \
  WB_FN void NAME(uint64_t* p, uint64_t v) {                                            \
    asm volatile(PTX ".u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");                     \
  }
#define WB_ORDER_RMW(NAME, PTX, B32, B64)                                               \
  WB_FN uint32_t NAME(uint32_t* p, uint32_t v) {                                        \
    uint32_t old;                                                                       \
    asm volatile(PTX "." B32 " %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory"); \
    return old;                                                                         \
  }                                                                                     \
  WB_FN uint64_t NAME(uint64_t* p, uint64_t v) {                                        \
    uint64_t old;                                                                       \
    asm volatile(PTX "." B64 " %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory"); \
    return old;                                                                         \
  }

#define WB_ORDER_CAS(NAME, PTX)                                                         \
  WB_FN uint32_t NAME(uint32_t* p, uint32_t expected, uint32_t desired) {               \
    uint32_t old;                                                                       \
    asm volatile(PTX ".b32 %0, [%1], %2, %3;"                                           \
                 : "=r"(old)                                                            \
                 : "l"(p), "r"(expected), "r"(desired)                                  \
                 : "memory");                                                           \
    return old;                                                                         \
  }                                                                                     \
  WB_FN uint64_t NAME(uint64_t* p, uint64_t expected, uint64_t desired) {               \
    uint64_t old;                                                                       \
    asm volatile(PTX ".b64 %0, [%1], %2, %3;"                                           \
                 : "=l"(old)                                                            \
                 : "l"(p), "l"(expected), "l"(desired)                                  \
                 : "memory");                                                           \
    return old;                                                                         \
  }

WB_ORDER_LOAD(load_relaxed, "ld.relaxed.gpu.global")
WB_ORDER_LOAD(load_acquire, "ld.acquire.gpu.global")
WB_ORDER_LOAD(load_relaxed_sys, "ld.relaxed.sys.global")
WB_ORDER_LOAD(load_acquire_sys, "ld.acquire.sys.global")
WB_ORDER_STORE(store_relaxed, "st.relaxed.gpu.global")
WB_ORDER_STORE(store_release, "st.release.gpu.global")
WB_ORDER_STORE(store_relaxed_sys, "st.relaxed.sys.global")
WB_ORDER_STORE(store_release_sys, "st.release.sys.global")
WB_ORDER_RMW(fetch_add_relaxed_sys, "atom.relaxed.sys.global.add", "u32", "u64")
WB_ORDER_RMW(fetch_or_relaxed_sys, "atom.relaxed.sys.global.or", "b32", "b64")
WB_ORDER_RMW(fetch_and_relaxed_sys, "atom.relaxed.sys.global.and", "b32", "b64")
WB_ORDER_RMW(fetch_xor_relaxed_sys, "atom.relaxed.sys.global.xor", "b32", "b64")
WB_ORDER_RMW(exchange_relaxed_sys, "atom.relaxed.sys.global.exch", "b32", "b64")
WB_ORDER_STORE(add_relaxed_sys, "red.relaxed.sys.global.add")
WB_ORDER_RMW(fetch_add_relaxed, "atom.relaxed.gpu.global.add", "u32", "u64")
WB_ORDER_RMW(fetch_add_before_stores, "atom.relaxed.gpu.global.add", "u32", "u64")
WB_ORDER_RMW(fetch_add_acquire, "atom.acquire.gpu.global.add", "u32", "u64")
WB_ORDER_RMW(fetch_add, "atom.acq_rel.gpu.global.add", "u32", "u64")
WB_ORDER_RMW(fetch_or_acquire, "atom.acquire.gpu.global.or", "b32", "b64")
WB_ORDER_RMW(fetch_or, "atom.acq_rel.gpu.global.or", "b32", "b64")
WB_ORDER_RMW(fetch_and, "atom.acq_rel.gpu.global.and", "b32", "b64")
WB_ORDER_RMW(exchange, "atom.acq_rel.gpu.global.exch", "b32", "b64")
WB_ORDER_RMW(exchange_release, "atom.release.gpu.global.exch", "b32", "b64")
WB_ORDER_RMW(fetch_min_relaxed, "atom.relaxed.gpu.global.min", "u32", "u64")
WB_ORDER_RMW(fetch_or_relaxed, "atom.relaxed.gpu.global.or", "b32", "b64")
WB_ORDER_RMW(fetch_and_relaxed, "atom.relaxed.gpu.global.and", "b32", "b64")
WB_ORDER_RMW(exchange_relaxed, "atom.relaxed.gpu.global.exch", "b32", "b64")

WB_ORDER_CAS(compare_exchange, "atom.acq_rel.gpu.global.cas")
WB_ORDER_CAS(compare_exchange_relaxed, "atom.relaxed.gpu.global.cas")
WB_ORDER_CAS(compare_exchange_before_stores, "atom.relaxed.gpu.global.cas")
WB_ORDER_CAS(compare_exchange_relaxed_sys, "atom.relaxed.sys.global.cas")
WB_FN void add_relaxed(uint64_t* p, uint64_t v) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

#undef WB_ORDER_LOAD
#undef WB_ORDER_STORE
#undef WB_ORDER_RMW
#undef WB_ORDER_CAS

WB_FN void add_relaxed(uint32_t* p, uint32_t v) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
WB_FN void add_release(uint32_t* p, uint32_t v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// An acquire fence waits for loads only; one that releases too also waits for stores to arrive, which takes several times as
// long. The one-sided forms are PTX ISA 8.6, of CUDA 12.7.
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 7)
#define WB_ORDER_FENCE(SIDE, SCOPE) asm volatile("fence." SIDE "." SCOPE ";" ::: "memory")
#else
#define WB_ORDER_FENCE(SIDE, SCOPE) asm volatile("fence.acq_rel." SCOPE ";" ::: "memory")
#endif
WB_FN void fence_acquire() { WB_ORDER_FENCE("acquire", "gpu"); }
WB_FN void fence_acquire_sys() { WB_ORDER_FENCE("acquire", "sys"); }
// The other half: a store after it tells of the loads and stores in front of it. Leaves the L1 alone.
WB_FN void fence_release() { WB_ORDER_FENCE("release", "gpu"); }
WB_FN void fence_release_sys() { WB_ORDER_FENCE("release", "sys"); }
#undef WB_ORDER_FENCE
// A release+acquire fence among the threads of this GPU, and for devices that read its memory; and one for the whole system.
WB_FN void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
WB_FN void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// And no load after it is served before the stores in front of it are visible to all.
WB_FN void fence_sc_sys() { asm volatile("fence.sc.sys;" ::: "memory"); }

// A store to a device register. The MMIO form is never merged, split or repeated (PTX ISA 8.2, st.mmio).
WB_FN void mmio_store(uint32_t* reg, uint32_t v) {
  asm volatile("st.mmio.relaxed.sys.global.u32 [%0], %1;" ::"l"(reg), "r"(v) : "memory");
}
WB_FN void mmio_store(uint64_t* reg, uint64_t v) {
  asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(reg), "l"(v) : "memory");
}

// Two words beside each other, aligned to 16 bytes, in one access: who sees one of them sees the other (PTX ISA 8.3, .b128).
WB_FN void store_release_both(uint64_t* p, uint64_t first, uint64_t second) {
  asm volatile("{\n.reg .b128 both;\nmov.b128 both, {%1, %2};\nst.release.gpu.global.b128 [%0], both;\n}" ::"l"(p), "l"(first), "l"(second) : "memory");
}

// 16 bytes in one access: a completion entry's phase and identifier must come from the same read.
WB_FN quad load_quad_sys(const void* p) {
  quad q;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "l"(p)
               : "memory");
  return q;
}
// The same, and what the device wrote before it is seen by what follows.
WB_FN quad load_quad_acquire_sys(const void* p) {
  quad q;
  asm volatile("ld.acquire.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "l"(p)
               : "memory");
  return q;
}
WB_FN void store_quad(void* p, quad q) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(q.x), "r"(q.y), "r"(q.z), "r"(q.w)
               : "memory");
}

// A pause inside a wait.
WB_FN void relax(uint32_t nanoseconds) { __nanosleep(nanoseconds); }

#else  // CPU engine

template <class T> WB_FN T load_relaxed(const T* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
template <class T> WB_FN T load_acquire(const T* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
template <class T> WB_FN T load_relaxed_sys(const T* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
template <class T> WB_FN T load_acquire_sys(const T* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
template <class T> WB_FN void store_relaxed(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
template <class T> WB_FN void store_release(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
template <class T> WB_FN void store_relaxed_sys(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
template <class T> WB_FN void store_release_sys(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
template <class T> WB_FN T fetch_add_relaxed(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
// An acquire for stores behind it that cannot be made without its answer. A GPU guesses no stores, so there it need not be one, which
// would empty the L1.
template <class T> WB_FN T fetch_add_before_stores(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQUIRE); }
template <class T> WB_FN T fetch_add_acquire(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQUIRE); }
template <class T> WB_FN T fetch_add(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN T fetch_or_acquire(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_ACQUIRE); }
template <class T> WB_FN T fetch_or(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN T fetch_and(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN T exchange(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN T exchange_release(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELEASE); }
template <class T> WB_FN T fetch_or_relaxed(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }
template <class T> WB_FN T fetch_and_relaxed(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }
template <class T> WB_FN T exchange_relaxed(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }
template <class T> WB_FN T compare_exchange_relaxed(T* p, T expected, T desired) {
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
// Between PEs every access on a CPU carries its order itself: what a store released, a load that sees it has acquired.
template <class T> WB_FN T fetch_add_relaxed_sys(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN T fetch_or_relaxed_sys(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN T fetch_and_relaxed_sys(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN T fetch_xor_relaxed_sys(T* p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN T exchange_relaxed_sys(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN void add_relaxed_sys(T* p, T v) { __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
template <class T> WB_FN T compare_exchange_relaxed_sys(T* p, T expected, T desired) {
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}
WB_FN void add_relaxed(uint64_t* p, uint64_t v) { __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
template <class T> WB_FN T compare_exchange(T* p, T expected, T desired) {
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}
template <class T> WB_FN T compare_exchange_before_stores(T* p, T expected, T desired) { return compare_exchange(p, expected, desired); }
template <class T> WB_FN T fetch_min_relaxed(T* p, T v) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v < old && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

WB_FN void add_relaxed(uint32_t* p, uint32_t v) { __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
WB_FN void add_release(uint32_t* p, uint32_t v) { __atomic_fetch_add(p, v, __ATOMIC_RELEASE); }

WB_FN void fence_acquire() {
#if !defined(__SANITIZE_THREAD__)
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}
WB_FN void fence_acquire_sys() { fence_acquire(); }
WB_FN void fence_release() {
#if !defined(__SANITIZE_THREAD__)
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}
WB_FN void fence_release_sys() { fence_release(); }
WB_FN void fence() {
#if !defined(__SANITIZE_THREAD__)
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
}
// Sequentially consistent so that a store before it is visible before a load after it, on every CPU.
WB_FN void fence_sys() {
#if !defined(__SANITIZE_THREAD__)
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

WB_FN void fence_sc_sys() { fence_sys(); }

// A device finds what was stored before, and a register whose page is mapped write-combining gets the store at once: threads are ordered
// by less, devices are not.
WB_FN void flush_to_devices() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#elif defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#endif
}
template <class Word> WB_FN void mmio_store_flushed(Word* reg, Word v) {
  flush_to_devices();
  __atomic_store_n(reg, v, __ATOMIC_RELEASE);
  flush_to_devices();
}
WB_FN void mmio_store(uint32_t* reg, uint32_t v) { mmio_store_flushed(reg, v); }
WB_FN void mmio_store(uint64_t* reg, uint64_t v) { mmio_store_flushed(reg, v); }

// Who sees the first word sees the second; the other way round may be a little late.
WB_FN void store_release_both(uint64_t* p, uint64_t first, uint64_t second) {
  __atomic_store_n(p + 1, second, __ATOMIC_RELEASE);
  __atomic_store_n(p, first, __ATOMIC_RELEASE);
}

// The last word carries phase and identifier; a controller writes it last, so acquiring it first is the same guarantee as
// one 16-byte access.
WB_FN quad load_quad_sys(const void* p) {
  const uint32_t* s = static_cast<const uint32_t*>(p);
  quad q;
  q.w = __atomic_load_n(s + 3, __ATOMIC_ACQUIRE);
  q.x = __atomic_load_n(s, __ATOMIC_RELAXED);
  q.y = __atomic_load_n(s + 1, __ATOMIC_RELAXED);
  q.z = __atomic_load_n(s + 2, __ATOMIC_RELAXED);
  return q;
}
WB_FN quad load_quad_acquire_sys(const void* p) { return load_quad_sys(p); }
WB_FN void store_quad(void* p, quad q) {
  uint32_t* d = static_cast<uint32_t*>(p);
  __atomic_store_n(d, q.x, __ATOMIC_RELAXED);
  __atomic_store_n(d + 1, q.y, __ATOMIC_RELAXED);
  __atomic_store_n(d + 2, q.z, __ATOMIC_RELAXED);
  __atomic_store_n(d + 3, q.w, __ATOMIC_RELEASE);
}

WB_FN void relax(uint32_t) { cpu::yield(); }

#endif

// --- data of 1, 2, 4, 8 or 16 bytes that others may be writing --------------------------------------------------------
//
// Strong accesses of plain values: never torn up to 8 bytes (a 16-byte value may be seen half old, half new on a CPU), never
// served from a stale L1 line.

// Whether a checked read (`load_checked`) is an acquire load, or a relaxed load and a fence. Both are right; which one is
// cheaper is a property of the GPU.
#if !defined(WB_CHECKED_READ_FENCES)
#define WB_CHECKED_READ_FENCES 0
#endif

namespace detail {

template <size_t N> struct word;
template <> struct word<1> { using type = uint8_t; };
template <> struct word<2> { using type = uint16_t; };
template <> struct word<4> { using type = uint32_t; };
template <> struct word<8> { using type = uint64_t; };

template <class To, class From> WB_FN To bits_of(const From& v) {
  static_assert(sizeof(To) == sizeof(From), "the same bytes");
  union {
    From from;
    To to;
  } u = {v};
  return u.to;
}

struct alignas(16) pair {
  uint64_t low, high;
};

#if WB_GPU
#define WB_DATA_LOAD(NAME, PTX)                                                                                          \
  WB_FN uint8_t NAME(const uint8_t* p) {                                                                                 \
    uint32_t v;                                                                                                          \
    asm volatile(PTX ".u8 %0, [%1];" : "=r"(v) : "l"(p) : "memory");                                                     \
    return static_cast<uint8_t>(v);                                                                                      \
  }                                                                                                                      \
  WB_FN uint16_t NAME(const uint16_t* p) {                                                                               \
    uint16_t v;                                                                                                          \
    asm volatile(PTX ".u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");                                                    \
    return v;                                                                                                            \
  }                                                                                                                      \
  WB_FN uint32_t NAME(const uint32_t* p) {                                                                               \
    uint32_t v;                                                                                                          \
    asm volatile(PTX ".u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");                                                    \
    return v;                                                                                                            \
  }                                                                                                                      \
  WB_FN uint64_t NAME(const uint64_t* p) {                                                                               \
    uint64_t v;                                                                                                          \
    asm volatile(PTX ".u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");                                                    \
    return v;                                                                                                            \
  }                                                                                                                      \
  WB_FN pair NAME(const pair* p) {                                                                                       \
    pair v;                                                                                                              \
    asm volatile(PTX ".v2.u64 {%0, %1}, [%2];" : "=l"(v.low), "=l"(v.high) : "l"(p) : "memory");                         \
    return v;                                                                                                            \
  }
WB_DATA_LOAD(relaxed, "ld.relaxed.gpu.global")
WB_DATA_LOAD(acquire, "ld.acquire.gpu.global")
WB_DATA_LOAD(remote, "ld.relaxed.sys.global")
#undef WB_DATA_LOAD
WB_FN void remote_store(uint8_t* p, uint8_t v) {
  asm volatile("st.relaxed.sys.global.u8 [%0], %1;" ::"l"(p), "r"(static_cast<uint32_t>(v)) : "memory");
}
WB_FN void remote_store(uint16_t* p, uint16_t v) {
  asm volatile("st.relaxed.sys.global.u16 [%0], %1;" ::"l"(p), "h"(v) : "memory");
}
WB_FN void remote_store(uint32_t* p, uint32_t v) { store_relaxed_sys(p, v); }
WB_FN void remote_store(uint64_t* p, uint64_t v) { store_relaxed_sys(p, v); }
WB_FN void remote_store(pair* p, pair v) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.low), "l"(v.high) : "memory");
}
WB_FN void relaxed_store(uint8_t* p, uint8_t v) {
  asm volatile("st.relaxed.gpu.global.u8 [%0], %1;" ::"l"(p), "r"(static_cast<uint32_t>(v)) : "memory");
}
WB_FN void relaxed_store(uint16_t* p, uint16_t v) {
  asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(p), "h"(v) : "memory");
}
WB_FN void relaxed_store(uint32_t* p, uint32_t v) { store_relaxed(p, v); }
WB_FN void relaxed_store(uint64_t* p, uint64_t v) { store_relaxed(p, v); }
WB_FN void relaxed_store(pair* p, pair v) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.low), "l"(v.high) : "memory");
}
#else
template <class T> WB_FN T relaxed(const T* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
template <class T> WB_FN T acquire(const T* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
template <class T> WB_FN void relaxed_store(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
WB_FN pair relaxed(const pair* p) { return pair{relaxed(&p->low), relaxed(&p->high)}; }
WB_FN pair acquire(const pair* p) { return pair{acquire(&p->low), acquire(&p->high)}; }
WB_FN void relaxed_store(pair* p, pair v) {
  relaxed_store(&p->low, v.low);
  relaxed_store(&p->high, v.high);
}
// As the atomics between PEs: each carries its order.
template <class T> WB_FN T remote(const T* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
template <class T> WB_FN void remote_store(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
WB_FN pair remote(const pair* p) { return pair{remote(&p->low), remote(&p->high)}; }
WB_FN void remote_store(pair* p, pair v) {
  remote_store(&p->low, v.low);
  remote_store(&p->high, v.high);
}
#endif

template <> struct word<16> { using type = pair; };

}  // namespace detail

// The compiler keeps accesses before and after this apart: loops that measure plain accesses are not folded.
WB_FN void keep() { asm volatile("" ::: "memory"); }

// The same bytes as another type.
template <class To, class From> WB_FN To bits(const From& v) {
  return detail::bits_of<To>(v);
}

// Loads a word that changes once in a run at most, and whose old value does no harm: on a GPU a plain load, which the first-level cache
// may answer until the next acquire.
WB_FN uint32_t load_lasting(const uint32_t* p) {
#if WB_GPU
  return *p;
#else
  return load_relaxed(p);
#endif
}

template <class T> WB_FN T load_data(const T* p) {
  using word = typename detail::word<sizeof(T)>::type;
  return detail::bits_of<T>(detail::relaxed(reinterpret_cast<const word*>(p)));
}
template <class T> WB_FN void store_data(T* p, const T& v) {
  using word = typename detail::word<sizeof(T)>::type;
  detail::relaxed_store(reinterpret_cast<word*>(p), detail::bits_of<word>(v));
}

// The same between PEs: memory of another GPU, or that another GPU reads and writes.
template <class T> WB_FN T load_remote(const T* p) {
  using word = typename detail::word<sizeof(T)>::type;
  return detail::bits_of<T>(detail::remote(reinterpret_cast<const word*>(p)));
}
template <class T> WB_FN void store_remote(T* p, const T& v) {
  using word = typename detail::word<sizeof(T)>::type;
  detail::remote_store(reinterpret_cast<word*>(p), detail::bits_of<word>(v));
}

// Adds atomically, relaxed; answers the value before. 4 or 8 byte integers, float, double.
template <class T> WB_FN T add_data(T* p, T v) {
#if WB_GPU
  if constexpr (T(0.5) != T(0)) {
    return atomicAdd(p, v);
  } else {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomic addition takes 4 or 8 bytes");
    return static_cast<T>(fetch_add_relaxed(reinterpret_cast<typename detail::word<sizeof(T)>::type*>(p),
                                            static_cast<typename detail::word<sizeof(T)>::type>(v)));
  }
#else
  return atomicAdd(p, v);
#endif
}

// A load that a `fence_acquire` makes an acquire of, later, together with others.
template <class T> WB_FN T load_before_fence(const T* p) {
#if defined(__SANITIZE_THREAD__)
  return load_acquire(p);
#else
  return load_relaxed(p);
#endif
}

// A read that is worth something only if a version word, loaded after it, is still what it was before it.
template <class T> WB_FN T load_checked(const T* p) {
#if WB_CHECKED_READ_FENCES
  T v = load_data(p);
  fence_acquire();
  return v;
#else
  using word = typename detail::word<sizeof(T)>::type;
  return detail::bits_of<T>(detail::acquire(reinterpret_cast<const word*>(p)));
#endif
}

}  // namespace order
}  // namespace warpbell
