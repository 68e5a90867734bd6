// Put, get and friends between the PEs of a world, with OpenSHMEM's names and meaning (OpenSHMEM 1.5, chapter 9).
//
//   WB_KERNEL void send(WB_PARAM warpbell::world_ref w, sym<float> to, const float* from, size_t n, sym<uint64_t> flag, int pe)
//   { w.put_signal_nbi(warpbell::by_block, to, from, n, flag, 1, warpbell::signal::add, pe); }
//
// Memory of another PE is named by its number and a symmetric address: an address in this PE's own heap, as `Sym` of the host
// gives it to a kernel. `n` counts elements. A call that names a PE outside the world, or times out, enters that in the run's
// error log and fails the run, whose waits then all end; calls that wait also answer how they ended.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/clock.cuh>
#include <warpbell/error.cuh>
#include <warpbell/order.cuh>
#include <warpbell/shmem/transfer.cuh>

namespace warpbell {

// An address in the symmetric heap, as this PE has it.
template <class T> struct sym {
  T* here;

  WB_FN operator T*() const { return here; }
  WB_FN sym operator+(ptrdiff_t n) const { return sym{here + n}; }
};

// The signal operations of put_signal (OpenSHMEM 1.5, 9.8.2; the numbers are NVSHMEM's).
enum class signal : uint32_t { set = 9, add = 10 };

// Comparisons of a wait (OpenSHMEM 1.5, 9.10).
enum class cmp : uint32_t { eq, ne, gt, le, lt, ge };

template <class T> WB_FN bool holds(cmp how, T a, T b) {
  switch (how) {
    case cmp::eq: return a == b;
    case cmp::ne: return a != b;
    case cmp::gt: return a > b;
    case cmp::le: return a <= b;
    case cmp::lt: return a < b;
    default: return a >= b;
  }
}

// How a call that waits ended.
struct outcome {
  uint32_t word = WB_DONE;  // status.h

  WB_FN explicit operator bool() const { return word == WB_DONE; }
  WB_FN wb_kind kind() const { return static_cast<wb_kind>(word >> WB_STATUS_KIND_SHIFT); }
};

class team_ref;

class world_ref {
 public:
  WB_FN explicit world_ref(const wb_world& world) : w_(world) {}

  // --- who and where -------------------------------------------------------------------------------------------------

  WB_FN uint32_t my_pe() const { return w_.pe; }
  WB_FN uint32_t n_pes() const { return w_.size; }
  WB_FN const wb_world& raw() const { return w_; }
  WB_FN const wb_control* control() const { return reinterpret_cast<const wb_control*>(w_.control); }
  WB_FN team_ref world_team() const;

  // Where this PE's loads and stores find the same object on another PE; null where they do not reach it.
  template <class T> WB_FN T* ptr(T* address, uint32_t pe) const {
    return pe < w_.size && (w_.flags & WB_WORLD_LOAD_STORE) ? there(address, pe) : nullptr;
  }

  // --- puts and gets -------------------------------------------------------------------------------------------------

  template <class S, class To, class From> WB_FN void put_nbi(S s, To to, const From* from, size_t n, uint32_t pe) const {
    From* d = to;
    if (!reaches(WB_CALL_PUT, d, n * sizeof(From), pe)) return;
    transfer::move<transfer::put_words>(s, address(there(d, pe)), address(from), n * sizeof(From));
  }
  // The source may be used again when the call returns.
  template <class S, class To, class From> WB_FN void put(S s, To to, const From* from, size_t n, uint32_t pe) const {
    put_nbi(s, to, from, n, pe);
    S::sync();
  }
  template <class S, class From, class To> WB_FN void get_nbi(S s, To* to, From from, size_t n, uint32_t pe) const {
    const To* f = from;
    if (!reaches(WB_CALL_GET, f, n * sizeof(To), pe)) return;
    transfer::move<transfer::get_words>(s, address(to), address(there(f, pe)), n * sizeof(To));
  }
  template <class S, class From, class To> WB_FN void get(S s, To* to, From from, size_t n, uint32_t pe) const {
    get_nbi(s, to, from, n, pe);
    S::sync();
  }
  // One element.
  template <class T> WB_FN void p(T* to, T value, uint32_t pe) const {
    if (reaches(WB_CALL_PUT, to, sizeof(T), pe)) order::store_remote(there(to, pe), value);
  }
  template <class T> WB_FN T g(const T* from, uint32_t pe) const {
    return reaches(WB_CALL_GET, from, sizeof(T), pe) ? order::load_remote(there(from, pe)) : T{};
  }

  // --- signals -------------------------------------------------------------------------------------------------------

  // The signal is set when the data has arrived, not before.
  template <class S, class To, class From>
  WB_FN void put_signal_nbi(S s, To to, const From* from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_nbi(s, to, from, n, pe);
    S::sync();
    if (S::rank() == 0) {
      fence();
      signal_op(sig, value, how, pe);
    }
  }
  template <class S, class To, class From>
  WB_FN void put_signal(S s, To to, const From* from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_signal_nbi(s, to, from, n, sig, value, how, pe);
    S::sync();
  }
  WB_FN void signal_op(uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    if (!reaches(WB_CALL_SIGNAL, sig, sizeof(uint64_t), pe)) return;
    if (how == signal::set) {
      order::store_remote(there(sig, pe), value);
    } else {
      order::add_relaxed_sys(there(sig, pe), value);
    }
  }
  WB_FN uint64_t signal_fetch(const uint64_t* sig) const { return order::load_remote(sig); }
  WB_FN outcome signal_wait_until(uint64_t* sig, cmp how, uint64_t value) const { return wait_until(sig, how, value); }

  // --- waiting -------------------------------------------------------------------------------------------------------

  // Waits until a word of this PE's heap, written by any PE, compares so. What was put before the write is there afterwards.
  template <class T> WB_FN outcome wait_until(T* address, cmp how, T value) const {
    if (!test(address, how, value)) {
      patience p(control());
      while (!holds(how, order::load_remote(address), value)) {
        if (verdict v = p.spent(); v != verdict::go_on) {
          return fail(WB_CALL_WAIT, status_word(v), address, sizeof(T), WB_NO_PE);
        }
      }
      order::fence_acquire_sys();
    }
    return outcome{};
  }
  template <class T> WB_FN bool test(T* address, cmp how, T value) const {
    if (!holds(how, order::load_remote(address), value)) return false;
    order::fence_acquire_sys();
    return true;
  }

  // --- atomics: 32 and 64 bit ----------------------------------------------------------------------------------------

  template <class T> WB_FN void atomic_add(T* to, T value, uint32_t pe) const {
    if (reaches(WB_CALL_ATOMIC, to, sizeof(T), pe)) order::add_relaxed_sys(as_word(there(to, pe)), bits(value));
  }
  template <class T> WB_FN void atomic_inc(T* to, uint32_t pe) const { atomic_add(to, T(1), pe); }
  template <class T> WB_FN T atomic_fetch_add(T* to, T value, uint32_t pe) const {
    if (!reaches(WB_CALL_ATOMIC, to, sizeof(T), pe)) return T{};
    return order::bits<T>(order::fetch_add_relaxed_sys(as_word(there(to, pe)), bits(value)));
  }

  // --- ordering ------------------------------------------------------------------------------------------------------

  // What this thread put before is there, at each PE, before what it puts after.
  WB_FN void fence() const { order::fence_sys(); }
  // What this thread put, got or changed before is done and can be seen by all.
  WB_FN outcome quiet() const {
    order::fence_sys();
    return outcome{};
  }

  // --- all PEs -------------------------------------------------------------------------------------------------------

  template <class S> WB_FN outcome barrier_all(S s) const;
  template <class S> WB_FN outcome sync_all(S s) const;

  // Enters a failed call in the error log and fails the run.
  template <class T> WB_FN outcome fail(wb_shmem_call call, uint32_t word, const T* at, size_t bytes, uint32_t pe) const {
    raise_error(control(), wb_error{word, pe, w_.pe, 0, static_cast<uint32_t>(call), static_cast<uint32_t>(bytes),
                                    address(at) - w_.heap});
    return outcome{word};
  }

 private:
  friend class team_ref;

  template <class T> static WB_FN uint64_t address(T* p) { return reinterpret_cast<uint64_t>(p); }
  template <class T> using word_of = typename order::detail::word<sizeof(T)>::type;
  template <class T> static WB_FN word_of<T>* as_word(T* p) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics take 4 or 8 bytes");
    return reinterpret_cast<word_of<T>*>(p);
  }
  template <class T> static WB_FN word_of<T> bits(T v) { return order::bits<word_of<T>>(v); }

  template <class T> WB_FN T* there(T* here, uint32_t pe) const {
    return reinterpret_cast<T*>(address(here) + (int64_t{pe} - int64_t{w_.pe}) * static_cast<int64_t>(w_.stride));
  }

  template <class T> WB_FN bool reaches(wb_shmem_call call, const T* at, size_t bytes, uint32_t pe) const {
    if (pe < w_.size) return true;
    fail(call, status_word(WB_BAD_ARGUMENT), at, bytes, pe);
    return false;
  }

  wb_world w_;
};

}  // namespace warpbell
