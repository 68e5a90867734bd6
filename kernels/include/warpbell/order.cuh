// Every load, store, atomic and fence with an ordering. No other file in the tree names one.
//
//   order::load<order::acquire>(p)                          scope `device`, unless another one is named
//   order::load<order::relaxed, order::system>(p)
//   order::fetch_add<order::relaxed, order::world>(p, v)
//   order::fence<order::release, order::system>()
//
// One thread makes each call. The tables below list what exists; order/gpu.cuh makes PTX of them, order/cpu.cuh atomics of the compiler.
// On the CPU engine the ordering always sits on the access itself, never only on a fence: ThreadSanitizer does not model fences.
#pragma once

#include <stddef.h>

#include <type_traits>

#include <warpbell/platform.h>

namespace warpbell {
namespace order {

// Memory orders of libcu++, and `before_stores`: an acquire for later stores that cannot be made without the access's result. A GPU
// guesses no stores, so there such an access is relaxed: an acquire would empty the L1.
enum memory_order { relaxed, before_stores, acquire, release, acq_rel, seq_cst };

// Scopes. `device`: all threads of this GPU, or of this process on the CPU engine. `system`: also the host, and devices on the bus.
// `world`: also other PEs. PTX is the same for the last two. On the CPU engine every access with scope `world` acquires or releases, or
// both, even if its order is `relaxed`.
enum thread_scope { device, system, world };

// Tables of the accesses that exist: X(operation, order, scope, order of the CPU engine). tests/device/order_ptx.cu has a kernel for each.
//
// Loads and stores of 1, 2, 4, 8 or 16 bytes, which others may be writing. None is served from a stale L1 line. Up to 8 bytes are never
// torn; of 16, a CPU may see half old, half new.
#define WB_ORDER_LOADS(X)           \
  X(load, relaxed, device, RELAXED) \
  X(load, acquire, device, ACQUIRE) \
  X(load, relaxed, system, RELAXED) \
  X(load, acquire, system, ACQUIRE) \
  X(load, relaxed, world, ACQUIRE)
#define WB_ORDER_STORES(X)           \
  X(store, relaxed, device, RELAXED) \
  X(store, release, device, RELEASE) \
  X(store, relaxed, system, RELAXED) \
  X(store, release, system, RELEASE) \
  X(store, relaxed, world, RELEASE)
// Read-modify-writes of 4 or 8 bytes; each returns the value before.
#define WB_ORDER_UPDATES(X)                    \
  X(fetch_add, relaxed, device, RELAXED)       \
  X(fetch_add, before_stores, device, ACQUIRE) \
  X(fetch_add, acq_rel, device, ACQ_REL)       \
  X(fetch_add, relaxed, world, ACQ_REL)        \
  X(fetch_or, relaxed, device, RELAXED)        \
  X(fetch_or, acquire, device, ACQUIRE)        \
  X(fetch_or, acq_rel, device, ACQ_REL)        \
  X(fetch_or, relaxed, world, ACQ_REL)         \
  X(fetch_and, relaxed, device, RELAXED)       \
  X(fetch_and, acq_rel, device, ACQ_REL)       \
  X(fetch_and, relaxed, world, ACQ_REL)        \
  X(fetch_xor, relaxed, world, ACQ_REL)        \
  X(fetch_min, relaxed, device, RELAXED)       \
  X(exchange, relaxed, device, RELAXED)        \
  X(exchange, release, device, RELEASE)        \
  X(exchange, acq_rel, device, ACQ_REL)        \
  X(exchange, relaxed, world, ACQ_REL)
#define WB_ORDER_COMPARES(X)                          \
  X(compare_exchange, relaxed, device, RELAXED)       \
  X(compare_exchange, before_stores, device, ACQ_REL) \
  X(compare_exchange, acq_rel, device, ACQ_REL)       \
  X(compare_exchange, relaxed, world, ACQ_REL)
// Additions that return nothing: a GPU sends them off like stores.
#define WB_ORDER_ADDS(X)           \
  X(add, relaxed, device, RELAXED) \
  X(add, release, device, RELEASE) \
  X(add, relaxed, world, ACQ_REL)
// Fences. `acquire` waits for loads only; one that releases too waits for stores to arrive, which takes several times as long. A store after
// `release` tells of the loads and stores in front of the fence; the L1 is left alone. No load after `seq_cst` is served before all see the
// stores in front of it; on the CPU engine `acq_rel` on `system` does that, too.
#define WB_ORDER_FENCES(X)           \
  X(fence, acquire, device, ACQUIRE) \
  X(fence, acquire, system, ACQUIRE) \
  X(fence, release, device, RELEASE) \
  X(fence, release, system, RELEASE) \
  X(fence, acq_rel, device, ACQ_REL) \
  X(fence, acq_rel, system, SEQ_CST) \
  X(fence, seq_cst, system, SEQ_CST)

struct alignas(16) quad {
  uint32_t x, y, z, w;
};

namespace detail {

struct alignas(16) pair {
  uint64_t low, high;
};

template <size_t N> struct word;
template <> struct word<1> { using type = uint8_t; };
template <> struct word<2> { using type = uint16_t; };
template <> struct word<4> { using type = uint32_t; };
template <> struct word<8> { using type = uint64_t; };
template <> struct word<16> { using type = pair; };
template <class T> using word_of = typename word<sizeof(T)>::type;

template <memory_order, thread_scope> struct access {};

// Fallbacks, which are taken where an engine has nothing better.
template <class> constexpr bool exists = false;
#define WB_ORDER_MISSING(OP)                                                                                                    \
  static_assert(exists<Access>, "order::" OP " has no such order and scope: take one that order.cuh lists, or add a row there " \
                                "and run .ci/ptx_snapshot.py NVCC --write")
#define WB_ORDER_FALLBACK(OP)                                                                        \
  template <class Access, class Word, class... Operands> WB_FN Word OP(Access, Word*, Operands...) { \
    WB_ORDER_MISSING(#OP);                                                                           \
    for (;;) {                                                                                       \
    }                                                                                                \
  }
WB_ORDER_FALLBACK(load)
WB_ORDER_FALLBACK(store)
WB_ORDER_FALLBACK(fetch_add)
WB_ORDER_FALLBACK(fetch_or)
WB_ORDER_FALLBACK(fetch_and)
WB_ORDER_FALLBACK(fetch_xor)
WB_ORDER_FALLBACK(fetch_min)
WB_ORDER_FALLBACK(exchange)
WB_ORDER_FALLBACK(compare_exchange)
WB_ORDER_FALLBACK(add)
template <class Access> WB_FN void fence(Access) { WB_ORDER_MISSING("fence"); }
WB_ORDER_FALLBACK(load_quad)
WB_ORDER_FALLBACK(store_quad)
WB_ORDER_FALLBACK(store_both)
#undef WB_ORDER_FALLBACK
#undef WB_ORDER_MISSING

}  // namespace detail
}  // namespace order
}  // namespace warpbell

#if WB_GPU
#include <warpbell/order/gpu.cuh>
#else
#include <warpbell/order/cpu.cuh>
#endif

namespace warpbell {
namespace order {

// Returns the bytes of a value as another type.
template <class To, class From> WB_FN To bits(const From& v) {
  static_assert(sizeof(To) == sizeof(From), "the same bytes");
  union {
    From from;
    To to;
  } u = {v};
  return u.to;
}

// Loads a value of 1, 2, 4, 8 or 16 bytes.
template <memory_order O, thread_scope S = device, class T> WB_FN T load(const T* p) {
  // `bits` of a plain word is the word; without it nvcc orders independent instructions as for a direct access.
  if constexpr (std::is_same_v<T, detail::word_of<T>>) return detail::load(detail::access<O, S>{}, p);
  else return bits<T>(detail::load(detail::access<O, S>{}, reinterpret_cast<const detail::word_of<T>*>(p)));
}
template <memory_order O, thread_scope S = device, class T> WB_FN void store(T* p, T v) {
  if constexpr (std::is_same_v<T, detail::word_of<T>>) detail::store(detail::access<O, S>{}, p, v);
  else detail::store(detail::access<O, S>{}, reinterpret_cast<detail::word_of<T>*>(p), bits<detail::word_of<T>>(v));
}

// Updates of integers. Each returns the value before.
#define WB_ORDER_UPDATE(OP, TYPES, ALLOWED)                                                                                                  \
  template <memory_order O, thread_scope S = device, class T> WB_FN T OP(T* p, T v) {                                                        \
    static_assert(ALLOWED && (sizeof(T) == 4 || sizeof(T) == 8), "order::" #OP " takes " TYPES " of 4 or 8 bytes");                          \
    return static_cast<T>(detail::OP(detail::access<O, S>{}, reinterpret_cast<detail::word_of<T>*>(p), static_cast<detail::word_of<T>>(v))); \
  }
WB_ORDER_UPDATE(fetch_or, "integers", std::is_integral_v<T>)
WB_ORDER_UPDATE(fetch_and, "integers", std::is_integral_v<T>)
WB_ORDER_UPDATE(fetch_xor, "integers", std::is_integral_v<T>)
WB_ORDER_UPDATE(fetch_min, "unsigned integers", std::is_unsigned_v<T>)
WB_ORDER_UPDATE(exchange, "integers", std::is_integral_v<T>)
#undef WB_ORDER_UPDATE

// Adds an integer of 4 or 8 bytes, or in relaxed order on this device a float or double. Returns the value before.
template <memory_order O, thread_scope S = device, class T> WB_FN T fetch_add(T* p, T v) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "order::fetch_add takes numbers of 4 or 8 bytes");
  if constexpr (std::is_floating_point_v<T>) {
    static_assert(O == relaxed && S == device, "floats are added by order::fetch_add<order::relaxed> only");
    return atomicAdd(p, v);
  } else {
    using word = detail::word_of<T>;
    return static_cast<T>(detail::fetch_add(detail::access<O, S>{}, reinterpret_cast<word*>(p), static_cast<word>(v)));
  }
}
// Adds an integer of 4 or 8 bytes, and returns nothing.
template <memory_order O, thread_scope S = device, class T> WB_FN void add(T* p, T v) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "order::add takes integers of 4 or 8 bytes");
  detail::add(detail::access<O, S>{}, reinterpret_cast<detail::word_of<T>*>(p), static_cast<detail::word_of<T>>(v));
}
// Stores `desired` if the integer of 4 or 8 bytes is `expected`. Returns the value before.
template <memory_order O, thread_scope S = device, class T> WB_FN T compare_exchange(T* p, T expected, T desired) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "order::compare_exchange takes integers of 4 or 8 bytes");
  using word = detail::word_of<T>;
  return static_cast<T>(detail::compare_exchange(detail::access<O, S>{}, reinterpret_cast<word*>(p), static_cast<word>(expected),
                                                 static_cast<word>(desired)));
}
template <memory_order O, thread_scope S = device> WB_FN void fence() { detail::fence(detail::access<O, S>{}); }

// Stores two words beside each other, aligned to 16 bytes, in one access: who sees one sees the other. `release` on `device`.
template <memory_order O, thread_scope S = device> WB_FN void store_both(uint64_t* p, uint64_t first, uint64_t second) {
  detail::store_both(detail::access<O, S>{}, p, first, second);
}
// Loads 16 bytes in one access, `relaxed` or `acquire` on `system`: a completion entry's phase and identifier must come from one read.
template <memory_order O, thread_scope S> WB_FN quad load_quad(const void* p) { return detail::load_quad(detail::access<O, S>{}, p); }
// Stores 16 bytes in one access: `relaxed` on `system`.
template <memory_order O, thread_scope S> WB_FN void store_quad(void* p, quad q) { detail::store_quad(detail::access<O, S>{}, p, q); }

// Stores to a device register.
template <class Word> WB_FN void mmio_store(Word* reg, Word v) { detail::mmio(reg, v); }

// A pause inside a wait.
WB_FN void relax(uint32_t nanoseconds) { detail::pause(nanoseconds); }

// The compiler keeps accesses before and after this apart: loops that measure plain accesses are not folded.
WB_FN void keep() { asm volatile("" ::: "memory"); }

// Loads a word that changes once in a run at most, and whose old value does no harm: on a GPU a plain load, which the first-level cache
// may answer until the next acquire.
WB_FN uint32_t load_lasting(const uint32_t* p) { return detail::load_plain(p); }

// Loads a word in relaxed order. A later `fence<acquire>` makes an acquire of this load and others.
template <class T> WB_FN T load_before_fence(const T* p) {
#if defined(__SANITIZE_THREAD__)
  return load<acquire>(p);
#else
  return load<relaxed>(p);
#endif
}

// 1: a checked read (`load_checked`) is a relaxed load and a fence; 0: an acquire load. Both are right; which one is cheaper is a
// property of the GPU.
#if !defined(WB_CHECKED_READ_FENCES)
#define WB_CHECKED_READ_FENCES 0
#endif

// Loads a value that counts only if a version word, loaded after it, is still what it was before it.
template <class T> WB_FN T load_checked(const T* p) {
#if WB_CHECKED_READ_FENCES
  T v = load<relaxed>(p);
  fence<acquire>();
  return v;
#else
  return load<acquire>(p);
#endif
}

}  // namespace order
}  // namespace warpbell
