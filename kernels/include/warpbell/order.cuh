// Every load, store, atomic and fence with an ordering. No other file in the tree names one.
//
//   order::load<order::acquire>(p)                          scope `device`, unless another one is named
//   order::load<order::relaxed, order::system>(p)
//   order::fetch_add<order::relaxed, order::world>(p, v)
//   order::fence<order::release, order::system>()
//
// One thread makes each call. The tables below list the combinations that exist. order/gpu.cuh turns them into PTX, order/cpu.cuh
// into the compiler's atomics. On the CPU engine the ordering is always part of the access, never of a fence alone: ThreadSanitizer
// does not model fences.
#pragma once

#include <warpbell/platform.h>
#include <warpbell/traits.h>

namespace warpbell {
namespace order {

/// @brief Memory orders of libcu++, `before_stores` and `after_fence`.
///
/// `before_stores` is an acquire for later stores that depend on the result of the access. A GPU does not speculate stores, so
/// there such an access is relaxed: an acquire would empty the L1. `after_fence` is a release behind a release fence of the same
/// thread: one fence is enough for several words, so on a GPU the access is relaxed.
enum memory_order { relaxed, before_stores, after_fence, acquire, release, acq_rel, seq_cst };

/// @brief Scopes.
///
/// `device`: all threads of this GPU, or of this process on the CPU engine. `system`: also the host, and devices on the bus.
/// `world`: also other PEs. PTX does not distinguish the last two. On the CPU engine every access with scope `world` acquires or
/// releases, or both, even if its order is `relaxed`.
enum thread_scope { device, system, world };

// Tables of the accesses that exist: X(operation, order, scope, order of the CPU engine). tests/device/order_ptx.cu has a kernel
// for each.
//
// Loads and stores of 1, 2, 4, 8 or 16 bytes that other threads may write at the same time. None reads a stale L1 line. Accesses of
// up to 8 bytes are never torn. A 16-byte access of a CPU may see half old, half new.
#define WB_ORDER_LOADS(X)           \
  X(load, relaxed, device, RELAXED) \
  X(load, acquire, device, ACQUIRE) \
  X(load, relaxed, system, RELAXED) \
  X(load, acquire, system, ACQUIRE) \
  X(load, relaxed, world, ACQUIRE)
#define WB_ORDER_STORES(X)               \
  X(store, relaxed, device, RELAXED)     \
  X(store, after_fence, device, RELEASE) \
  X(store, release, device, RELEASE)     \
  X(store, relaxed, system, RELAXED)     \
  X(store, release, system, RELEASE)     \
  X(store, relaxed, world, RELEASE)
// Read-modify-writes of 4 or 8 bytes. Each returns the value before.
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
  X(exchange, after_fence, device, RELEASE)    \
  X(exchange, release, device, RELEASE)        \
  X(exchange, acq_rel, device, ACQ_REL)        \
  X(exchange, relaxed, world, ACQ_REL)
#define WB_ORDER_COMPARES(X)                          \
  X(compare_exchange, relaxed, device, RELAXED)       \
  X(compare_exchange, before_stores, device, ACQ_REL) \
  X(compare_exchange, acq_rel, device, ACQ_REL)       \
  X(compare_exchange, relaxed, world, ACQ_REL)
// Additions that return nothing: a GPU does not wait for them, as for stores.
#define WB_ORDER_ADDS(X)           \
  X(add, relaxed, device, RELAXED) \
  X(add, release, device, RELEASE) \
  X(add, relaxed, world, ACQ_REL)
// Fences. `acquire` waits for loads only. A fence that also releases waits for stores to arrive, which takes several times as long.
// A store after a `release` fence publishes the loads and stores before the fence; the L1 is left alone. A load after `seq_cst` is
// performed only after all threads can see the stores before the fence. On the CPU engine `acq_rel` on `system` does that, too.
#define WB_ORDER_FENCES(X)           \
  X(fence, acquire, device, ACQUIRE) \
  X(fence, acquire, system, ACQUIRE) \
  X(fence, release, device, RELEASE) \
  X(fence, release, system, RELEASE) \
  X(fence, acq_rel, device, ACQ_REL) \
  X(fence, acq_rel, system, SEQ_CST) \
  X(fence, seq_cst, system, SEQ_CST)

/// @brief 16 bytes, as load_quad and store_quad move them.
struct alignas(16) quad {
  uint32_t x, y, z, w;
};

namespace detail {

struct alignas(16) pair {
  uint64_t low, high;
};

template <size_t N> struct word;
template <> struct word<1> {
  using type = uint8_t;
};
template <> struct word<2> {
  using type = uint16_t;
};
template <> struct word<4> {
  using type = uint32_t;
};
template <> struct word<8> {
  using type = uint64_t;
};
template <> struct word<16> {
  using type = pair;
};
template <class T> using word_of = typename word<sizeof(T)>::type;

template <memory_order, thread_scope> struct access {};

// Fallbacks for combinations that an engine does not define: they fail to compile.
template <class> constexpr bool exists = false;
#define WB_ORDER_MISSING(OP)                                                                                       \
  static_assert(exists<Access>, "order::" OP                                                                       \
                                " has no such order and scope: take one that order.cuh lists, or add a row there " \
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

/// @brief Returns the bytes of a value as another type of equal size.
template <class To, class From> WB_FN To bits(const From& v) {
  static_assert(sizeof(To) == sizeof(From), "the same bytes");
  union {
    From from;
    To to;
  } u = {v};
  return u.to;
}

/// @brief Loads a value of 1, 2, 4, 8 or 16 bytes, in order `O` on scope `S` (WB_ORDER_LOADS). One thread calls this.
template <memory_order O, thread_scope S = device, class T> WB_FN T load(const T* p) {
  // `bits` of a plain word is the word. Without this branch nvcc orders independent instructions as for a direct access.
  if constexpr (stdlib::is_same_v<T, detail::word_of<T>>) return detail::load(detail::access<O, S>{}, p);
  else return bits<T>(detail::load(detail::access<O, S>{}, reinterpret_cast<const detail::word_of<T>*>(p)));
}
/// @brief Stores a value of 1, 2, 4, 8 or 16 bytes, in order `O` on scope `S` (WB_ORDER_STORES). One thread calls this.
template <memory_order O, thread_scope S = device, class T> WB_FN void store(T* p, T v) {
  if constexpr (stdlib::is_same_v<T, detail::word_of<T>>) detail::store(detail::access<O, S>{}, p, v);
  else detail::store(detail::access<O, S>{}, reinterpret_cast<detail::word_of<T>*>(p), bits<detail::word_of<T>>(v));
}

// Atomic updates of integers of 4 or 8 bytes, in order `O` on scope `S` (WB_ORDER_UPDATES). Each returns the value before. One
// thread calls them.
#define WB_ORDER_UPDATE(OP, TYPES, ALLOWED)                                                                                \
  template <memory_order O, thread_scope S = device, class T> WB_FN T OP(T* p, T v) {                                      \
    static_assert(ALLOWED && (sizeof(T) == 4 || sizeof(T) == 8), "order::" #OP " takes " TYPES " of 4 or 8 bytes");        \
    return static_cast<T>(                                                                                                 \
        detail::OP(detail::access<O, S>{}, reinterpret_cast<detail::word_of<T>*>(p), static_cast<detail::word_of<T>>(v))); \
  }
WB_ORDER_UPDATE(fetch_or, "integers", stdlib::is_integral_v<T>)
WB_ORDER_UPDATE(fetch_and, "integers", stdlib::is_integral_v<T>)
WB_ORDER_UPDATE(fetch_xor, "integers", stdlib::is_integral_v<T>)
WB_ORDER_UPDATE(fetch_min, "unsigned integers", stdlib::is_unsigned_v<T>)
WB_ORDER_UPDATE(exchange, "integers", stdlib::is_integral_v<T>)
#undef WB_ORDER_UPDATE

/// @brief Adds an integer of 4 or 8 bytes atomically, or in relaxed order on this device a float or double (WB_ORDER_UPDATES).
///
/// @return The value before. One thread calls this.
template <memory_order O, thread_scope S = device, class T> WB_FN T fetch_add(T* p, T v) {
  static_assert(stdlib::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "order::fetch_add takes numbers of 4 or 8 bytes");
  if constexpr (stdlib::is_floating_point_v<T>) {
    static_assert(O == relaxed && S == device, "floats are added by order::fetch_add<order::relaxed> only");
    return atomicAdd(p, v);
  } else {
    using word = detail::word_of<T>;
    return static_cast<T>(detail::fetch_add(detail::access<O, S>{}, reinterpret_cast<word*>(p), static_cast<word>(v)));
  }
}
/// @brief Adds an integer of 4 or 8 bytes atomically, and returns nothing (WB_ORDER_ADDS). One thread calls this.
template <memory_order O, thread_scope S = device, class T> WB_FN void add(T* p, T v) {
  static_assert(stdlib::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "order::add takes integers of 4 or 8 bytes");
  detail::add(detail::access<O, S>{}, reinterpret_cast<detail::word_of<T>*>(p), static_cast<detail::word_of<T>>(v));
}
/// @brief Stores `desired` atomically if the integer of 4 or 8 bytes is `expected` (WB_ORDER_COMPARES).
///
/// @return The value before, which is `expected` on success. One thread calls this.
template <memory_order O, thread_scope S = device, class T> WB_FN T compare_exchange(T* p, T expected, T desired) {
  static_assert(stdlib::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "order::compare_exchange takes integers of 4 or 8 bytes");
  using word = detail::word_of<T>;
  return static_cast<T>(detail::compare_exchange(detail::access<O, S>{}, reinterpret_cast<word*>(p), static_cast<word>(expected),
                                                 static_cast<word>(desired)));
}
/// @brief Orders this thread's accesses before and after, in order `O` on scope `S` (WB_ORDER_FENCES). One thread calls this.
template <memory_order O, thread_scope S = device> WB_FN void fence() { detail::fence(detail::access<O, S>{}); }

/// @brief Stores two adjacent words, aligned to 16 bytes, in one access: `release` on `device`, or `relaxed` on `world`. One thread
/// calls this.
///
/// On a GPU a thread that sees one word sees the other. On the CPU engine a thread that acquires the first word sees the second.
template <memory_order O, thread_scope S = device> WB_FN void store_both(uint64_t* p, uint64_t first, uint64_t second) {
  detail::store_both(detail::access<O, S>{}, p, first, second);
}
/// @brief Loads 16 aligned bytes in one access, `relaxed` or `acquire` on `system`. One thread calls this.
///
/// The phase and the identifier of a completion entry must come from one read.
template <memory_order O, thread_scope S> WB_FN quad load_quad(const void* p) { return detail::load_quad(detail::access<O, S>{}, p); }
/// @brief Stores 16 aligned bytes in one access: `relaxed` on `system`. One thread calls this.
template <memory_order O, thread_scope S> WB_FN void store_quad(void* p, quad q) { detail::store_quad(detail::access<O, S>{}, p, q); }

/// @brief Stores to a device register of 4 or 8 bytes, in one access that is never merged, split or repeated. One thread calls
/// this.
///
/// @note On a GPU the store is relaxed: a fence before it publishes earlier stores to the device.
template <class Word> WB_FN void mmio_store(Word* reg, Word v) { detail::mmio(reg, v); }

/// @brief Begins or ends a run of `store_quad` to a register that takes whole entries: stores of the calling thread
/// before the call reach the device before those after it.
///
/// @note On a GPU this does nothing: a fence before the run publishes earlier stores, and registers are never cached.
WB_FN void mmio_flush() { detail::flush_to_devices(); }

/// @brief Pauses this thread inside a wait: about `nanoseconds` on a GPU, a yield on the CPU engine.
WB_FN void relax(uint32_t nanoseconds) { detail::pause(nanoseconds); }

/// @brief Stops the compiler from moving or merging accesses across this call: loops that measure plain accesses are not folded.
WB_FN void keep() { asm volatile("" ::: "memory"); }

/// @brief Loads a word that changes at most once in a run, and whose old value does no harm. One thread calls this.
///
/// On a GPU this is a plain load, which the L1 may serve with the old value until the next acquire.
WB_FN uint32_t load_lasting(const uint32_t* p) { return detail::load_plain(p); }

/// @brief Loads a word in relaxed order on scope `device`. A later `fence<acquire>` turns this load and others into acquires.
template <class T> WB_FN T load_before_fence(const T* p) {
#if defined(__SANITIZE_THREAD__)
  return load<acquire>(p);
#else
  return load<relaxed>(p);
#endif
}

// 1: a checked read (`load_checked`) is a relaxed load and a fence. 0: it is an acquire load. Both are correct; the cost depends on
// the GPU.
#if !defined(WB_CHECKED_READ_FENCES)
#define WB_CHECKED_READ_FENCES 0
#endif

/// @brief Loads a value that is valid only if a version word did not change meanwhile. One thread calls this.
///
/// The caller loads the version word before this call and after it. This load is performed before the second one (scope `device`).
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
