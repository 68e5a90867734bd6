// Two implementations of each call, over which tests are templates: `library`, the calls of shmem.cuh, and `by_hand`, accesses to
// the address that `ptr` returns.
#pragma once

#include "run.cuh"

namespace shmem_bench {

using namespace warpbell;

// Atomic operations; host/bin/workloads/shmem/test.rs has the same order.
enum atomic : uint32_t { inc, add, fetch_inc, fetch_add, set, swap, compare_swap, and_, or_, xor_, fetch_and, fetch_or, fetch_xor, fetch };

struct library {
  template <class S> static WB_FN void put(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    w.put_nbi(s, to, from, n, pe);
  }
  template <class S> static WB_FN void get(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    w.get_nbi(s, to, from, n, pe);
  }
  template <class S> static WB_FN void put_signal(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint64_t* sig,
                                                  uint64_t v, uint32_t pe) {
    w.put_signal(s, to, from, n, sig, v, signal::set, pe);
  }
  static WB_FN void p_signal(const world_ref& w, uint64_t* to, uint64_t v, uint64_t* sig, uint64_t turn, uint32_t pe) {
    w.p_signal(to, v, sig, turn, signal::set, pe);
  }
  template <class T> static WB_FN void p(const world_ref& w, T* to, T v, uint32_t pe) { w.p(to, v, pe); }
  template <class T> static WB_FN T g(const world_ref& w, const T* from, uint32_t pe) { return w.g(from, pe); }
  static WB_FN void wait(const world_ref& w, uint64_t* word, uint64_t v) { w.wait_until(word, cmp::ge, v); }
  // Executes an operation. Operations without a fetch return 0.
  template <uint32_t Op, class T> static WB_FN T update(const world_ref& w, T* at, T v, T expected, uint32_t pe) {
    if constexpr (Op == inc) w.atomic_inc(at, pe);
    if constexpr (Op == add) w.atomic_add(at, v, pe);
    if constexpr (Op == set) w.atomic_set(at, v, pe);
    if constexpr (Op == and_) w.atomic_and(at, v, pe);
    if constexpr (Op == or_) w.atomic_or(at, v, pe);
    if constexpr (Op == xor_) w.atomic_xor(at, v, pe);
    if constexpr (Op == fetch_inc) return w.atomic_fetch_inc(at, pe);
    if constexpr (Op == fetch_add) return w.atomic_fetch_add(at, v, pe);
    if constexpr (Op == swap) return w.atomic_swap(at, v, pe);
    if constexpr (Op == compare_swap) return w.atomic_compare_swap(at, expected, v, pe);
    if constexpr (Op == fetch_and) return w.atomic_fetch_and(at, v, pe);
    if constexpr (Op == fetch_or) return w.atomic_fetch_or(at, v, pe);
    if constexpr (Op == fetch_xor) return w.atomic_fetch_xor(at, v, pe);
    if constexpr (Op == fetch) return w.atomic_fetch(at, pe);
    return T{};
  }
};

// Calls with a bulk buffer, which choose how to move the data.
struct by_buffer {
  bulk_buffer& through;

  template <class S> WB_FN void put(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    w.put(s, to, from, n, pe, through);
  }
  template <class S> WB_FN void get(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    w.get(s, to, from, n, pe, through);
  }
};

// The copy engine for every message that it can move.
struct by_engine {
  bulk_buffer& through;

  template <class S> WB_FN void put(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    uint8_t* there = w.ptr(to, pe);
    if (there != nullptr && through.can_copy(address(from), address(there), n)) return through.copy(s, address(there), address(from), n);
    w.put(s, to, from, n, pe);
  }
  template <class S> WB_FN void get(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    const uint8_t* there = w.ptr(from, pe);
    if (there != nullptr && through.can_copy(address(to), address(there), n)) return through.copy(s, address(to), address(there), n);
    w.get(s, to, from, n, pe);
  }

 private:
  static WB_FN uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }
};

// Puts whose source is in shared memory.
struct from_shared {
  const uint8_t* source;

  template <class S> WB_FN void put(S s, const world_ref& w, uint8_t* to, const uint8_t*, uint64_t n, uint32_t pe) {
    w.put(s, to, source, n, pe);
  }
};

struct by_hand {
  using quad = order::detail::pair;

  // Copies bytes. Both ends and the length are multiples of 16, except at the end of a message.
  template <class S, class Load> static WB_FN void copy(S, uint8_t* to, const uint8_t* from, uint64_t n, Load load) {
    constexpr uint32_t ahead = WB_GPU ? 4 : 1;
    const uint64_t quads = n / sizeof(quad), step = S::count();
    quad* d = reinterpret_cast<quad*>(to);
    const quad* s = reinterpret_cast<const quad*>(from);
    uint64_t i = S::rank();
    for (; i + (ahead - 1) * step < quads; i += ahead * step) {
      quad v[ahead];
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) v[k] = load(s + i + k * step);
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) d[i + k * step] = v[k];
    }
    for (; i < quads; i += step) d[i] = load(s + i);
    if (n % sizeof(quad) != 0) {
      for (uint64_t j = quads * sizeof(quad) + S::rank(); j < n; j += step) to[j] = from[j];
    }
    order::keep();
  }
  template <class S> static WB_FN void put(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    copy(s, w.ptr(to, pe), from, n, [](const quad* p) { return *p; });
  }
  // The loads bypass the L1, which would have the data of the iteration before.
  template <class S> static WB_FN void get(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    copy(s, to, w.ptr(from, pe), n, [](const quad* p) { return order::load<order::relaxed, order::world>(p); });
  }
  template <class S> static WB_FN void put_signal(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint64_t* sig,
                                                  uint64_t v, uint32_t pe) {
    put(s, w, to, from, n, pe);
    S::sync();
    if (S::rank() == 0) {
      order::fence<order::acq_rel, order::system>();
      order::store<order::relaxed, order::world>(w.ptr(sig, pe), v);
    }
    S::sync();
  }
  static WB_FN void p_signal(const world_ref& w, uint64_t*, uint64_t v, uint64_t* sig, uint64_t turn, uint32_t pe) {
    order::store_both<order::relaxed, order::world>(w.ptr(sig, pe), turn, v);
  }
  template <class T> static WB_FN void p(const world_ref& w, T* to, T v, uint32_t pe) {
    order::store<order::relaxed, order::world>(w.ptr(to, pe), v);
  }
  template <class T> static WB_FN T g(const world_ref& w, const T* from, uint32_t pe) {
    return order::load<order::relaxed, order::world>(w.ptr(from, pe));
  }
  static WB_FN void wait(const world_ref& w, uint64_t* word, uint64_t v) {
    constexpr uint32_t turns = 1 << 12;  // between two looks at the clock
    for (deadline p(w.control());;) {
      for (uint32_t i = 0; i < (WB_GPU ? turns : 1); ++i) {
        if (order::load<order::relaxed, order::world>(word) >= v) return order::fence<order::acquire, order::system>();
      }
      if (wait_status expired = p.expired(); expired != wait_status::go_on) {
        w.fail(WB_CALL_WAIT, status_word(expired), word, sizeof *word, WB_NO_PE);
        return;
      }
    }
  }
  template <uint32_t Op, class T> static WB_FN T update(const world_ref& w, T* at, T v, T, uint32_t pe) {
    T* there = w.ptr(at, pe);
    if constexpr (Op == inc) order::add<order::relaxed, order::world>(there, T(1));
    if constexpr (Op == add) order::add<order::relaxed, order::world>(there, v);
    if constexpr (Op == fetch_inc) return order::fetch_add<order::relaxed, order::world>(there, T(1));
    if constexpr (Op == fetch_add) return order::fetch_add<order::relaxed, order::world>(there, v);
    return T{};
  }
};

}  // namespace shmem_bench
