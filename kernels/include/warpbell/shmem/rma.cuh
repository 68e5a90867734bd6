// Puts and gets (OpenSHMEM 1.5, 9.6 and 9.7), and what orders them (9.11).
//
// `n` counts elements; any number, also none, at any alignment of either end. Source and destination must not overlap, unless
// they are the same. A call by a warp or a block shares the work: the threads' own writes to the source come before it by a sync
// of the caller's, and what it wrote is seen by all of them when it returns, but after a `_nbi` call only after a `quiet` and a sync.
#pragma once

#include <warpbell/shmem/reach.cuh>
#include <warpbell/shmem/transfer.cuh>

namespace warpbell {

class world_rma : public world_base {
 public:
  // --- blocks of elements ----------------------------------------------------------------------------------------------

  template <class S, class To, class From> WB_FN void put_nbi(S s, To to, From from, size_t n, uint32_t pe) const {
    using T = element_t<To>;
    const T* f = from;
    put_bytes(s, static_cast<T*>(to), f, n, pe, false);
  }
  // The source may be used again when the call returns.
  template <class S, class To, class From> WB_FN void put(S s, To to, From from, size_t n, uint32_t pe) const {
    using T = element_t<To>;
    const T* f = from;
    put_bytes(s, static_cast<T*>(to), f, n, pe, true);
    S::sync();
  }
  template <class S, class To, class From> WB_FN void get_nbi(S s, To to, From from, size_t n, uint32_t pe) const {
    using T = element_t<To>;
    const T* f = from;
    get_bytes(s, static_cast<T*>(to), f, n, pe, false);
  }
  // The data is there when the call returns.
  template <class S, class To, class From> WB_FN void get(S s, To to, From from, size_t n, uint32_t pe) const {
    using T = element_t<To>;
    const T* f = from;
    get_bytes(s, static_cast<T*>(to), f, n, pe, true);
    S::sync();
  }

  template <class To, class From> WB_FN void put_nbi(To to, From from, size_t n, uint32_t pe) const {
    put_nbi(by_thread, to, from, n, pe);
  }
  template <class To, class From> WB_FN void put(To to, From from, size_t n, uint32_t pe) const { put(by_thread, to, from, n, pe); }
  template <class To, class From> WB_FN void get_nbi(To to, From from, size_t n, uint32_t pe) const {
    get_nbi(by_thread, to, from, n, pe);
  }
  template <class To, class From> WB_FN void get(To to, From from, size_t n, uint32_t pe) const { get(by_thread, to, from, n, pe); }

  // --- one element of 1, 2, 4, 8 or 16 bytes ---------------------------------------------------------------------------

  template <class To> WB_FN void p(To to, element_t<To> value, uint32_t pe) const {
    element_t<To>* d = one(to);
    const reached how = reaches_one(WB_CALL_PUT, d, pe);
    if (how == reached::by_stores) {
      order::store<order::relaxed, order::world>(there(d, pe), value);
    } else if (how == reached::by_network) {
      const order::detail::pair all = widened(value);
      call_cold<&network::put_value>(net(), WB_CALL_PUT, address(d), all.low, all.high, sizeof(value), pe, network::own_lane());
    }
  }
  // Zeroes when the call is refused.
  template <class From> WB_FN element_t<From> g(From from, uint32_t pe) const {
    const element_t<From>* f = one(from);
    const reached how = reaches_one(WB_CALL_GET, f, pe);
    if (how == reached::by_stores) return order::load<order::relaxed, order::world>(there(f, pe));
    if (how == reached::not_at_all) return element_t<From>{};
    return narrowed<element_t<From>>(call_cold<&network::get_value>(net(), address(f), sizeof(*f), pe, network::own_lane()));
  }

  // --- elements with a distance: `n` of them, `to_stride` and `from_stride` elements apart (1 or more) -------------------

  template <class S, class To, class From>
  WB_FN void iput(S, To to, From from, ptrdiff_t to_stride, ptrdiff_t from_stride, size_t n, uint32_t pe) const {
    using T = element_t<To>;
    T* d = one(to);
    const T* f = from;
    const reached how = reaches_strided<S>(WB_CALL_PUT, d, to_stride, n, pe);
    if (how == reached::by_stores) {
      strided<transfer::put_words, S>(there(d, pe), f, to_stride, from_stride, n);
    } else if (how == reached::by_network) {
      call_cold<&network::put_strided>(net(), address(d), address(f), gap<T>(to_stride), gap<T>(from_stride), sizeof(T), n, pe,
                                       S::rank(), S::count());
    }
    S::sync();
  }
  template <class S, class To, class From>
  WB_FN void iget(S, To to, From from, ptrdiff_t to_stride, ptrdiff_t from_stride, size_t n, uint32_t pe) const {
    using T = element_t<To>;
    T* d = one(to);
    const T* f = from;
    const reached how = reaches_strided<S>(WB_CALL_GET, f, from_stride, n, pe);
    if (how == reached::by_stores) {
      strided<transfer::get_words, S>(d, there(f, pe), to_stride, from_stride, n);
    } else if (how == reached::by_network) {
      call_cold<&network::get_strided>(net(), address(d), address(f), gap<T>(to_stride), gap<T>(from_stride), sizeof(T), n, pe,
                                       S::rank(), S::count());
    }
    S::sync();
  }
  template <class To, class From>
  WB_FN void iput(To to, From from, ptrdiff_t to_stride, ptrdiff_t from_stride, size_t n, uint32_t pe) const {
    iput(by_thread, to, from, to_stride, from_stride, n, pe);
  }
  template <class To, class From>
  WB_FN void iget(To to, From from, ptrdiff_t to_stride, ptrdiff_t from_stride, size_t n, uint32_t pe) const {
    iget(by_thread, to, from, to_stride, from_stride, n, pe);
  }

  // --- ordering --------------------------------------------------------------------------------------------------------

  // What this thread put or changed before is there, at each PE, before what it puts or changes after. So is what other threads
  // put, if this thread has met them (a sync of the warp or the block) since.
  WB_FN void fence() const { order_at(WB_NO_PE); }
  // And is there now: every PE sees it, and what this thread reads after is no older.
  WB_FN outcome quiet() const {
    outcome o{};
    if (!all_by_stores()) o.word = call_cold<&network::quiet>(net(), WB_CALL_QUIET, network::own_lane(), 0, 1);
    order::fence<order::seq_cst, order::system>();
    return o;
  }
  // The same for what all threads of this PE have put, also those of kernels before, in whichever block. The threads of the scope
  // share the work; it begins and ends with a sync of theirs.
  template <class S> WB_FN outcome quiet_all(S) const {
    bool failed = false;
    S::sync();
    if (!all_by_stores()) {
      failed = call_cold<&network::quiet>(net(), WB_CALL_QUIET, network::all_lanes, S::rank(), S::count()) != WB_DONE;
    }
    order::fence<order::seq_cst, order::system>();
    return outcome{S::any(failed) ? status_word(WB_STOPPED) : static_cast<uint32_t>(WB_DONE)};
  }

 protected:
  using world_base::world_base;

  // A fence for what goes to one PE; WB_NO_PE: to all.
  WB_FN void order_at(uint32_t pe) const {
    order::fence<order::release, order::system>();
    if (!all_by_stores()) call_cold<&network::complete>(net(), WB_CALL_QUIET, network::own_lane(), pe);
  }

  // A pointer to something that one access can move.
  template <class P> static WB_FN auto one(P p) {
    using T = element_t<P>;
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                  "p, g, iput and iget move elements of 1, 2, 4, 8 or 16 bytes");
    return &*p;
  }

 private:
  // With `finish`, the source may be used again; or the data is there.
  template <class S, class T> WB_FN void put_bytes(S s, T* d, const T* f, size_t n, uint32_t pe, bool finish) const {
    const size_t bytes = bytes_of(n, sizeof(T));
    const uint64_t ends = address(d) | address(f);
    const bool direct = stores_do(WB_WORLD_LOAD_STORE, d, bytes, pe);
    // One test for what decides the message rate, here and in `get_bytes`: a function for both that answers the way costs another jump.
    if (WB_LIKELY(direct & transfer::one_each<S>(bytes, ends))) {
      transfer::one<transfer::put_words, S, order::detail::pair>(address(there(d, pe)), address(f), bytes);
      return;
    }
    if (direct) {
      transfer::move<transfer::put_words>(s, address(there(d, pe)), address(f), bytes, ends);
      return;
    }
    const reached how = other_path<S>(WB_CALL_PUT, d, bytes, pe);
    if (how == reached::by_stores) {
      out_of_line(&transfer::odd<transfer::put_words>)(address(there(d, pe)), address(f), bytes, S::rank(), S::count());
    } else if (how == reached::by_network) {
      call_cold<&network::put>(net(), WB_CALL_PUT, address(d), address(f), bytes, pe, network::own_lane(), S::rank(), S::count(),
                               finish);
    }
  }
  template <class S, class T> WB_FN void get_bytes(S s, T* d, const T* f, size_t n, uint32_t pe, bool finish) const {
    const size_t bytes = bytes_of(n, sizeof(T));
    const uint64_t ends = address(d) | address(f);
    const bool direct = stores_do(WB_WORLD_LOAD_STORE, f, bytes, pe);
    if (WB_LIKELY(direct & transfer::one_each<S>(bytes, ends))) {
      transfer::one<transfer::get_words, S, order::detail::pair>(address(d), address(there(f, pe)), bytes);
      return;
    }
    if (direct) {
      transfer::move<transfer::get_words>(s, address(d), address(there(f, pe)), bytes, ends);
      return;
    }
    const reached how = other_path<S>(WB_CALL_GET, f, bytes, pe);
    if (how == reached::by_stores) {
      out_of_line(&transfer::odd<transfer::get_words>)(address(d), address(there(f, pe)), bytes, S::rank(), S::count());
    } else if (how == reached::by_network) {
      call_cold<&network::get>(net(), WB_CALL_GET, address(d), address(f), bytes, pe, network::own_lane(), S::rank(), S::count(),
                               finish);
    }
  }

  // A value of up to 16 bytes among zeroes, and back.
  template <class T> static WB_FN order::detail::pair widened(const T& value) {
    if constexpr (sizeof(T) == 16) return order::bits<order::detail::pair>(value);
    else return order::detail::pair{order::bits<typename order::detail::word<sizeof(T)>::type>(value), 0};
  }
  template <class T> static WB_FN T narrowed(const order::detail::pair& all) {
    if constexpr (sizeof(T) == 16) return order::bits<T>(all);
    else return order::bits<T>(static_cast<typename order::detail::word<sizeof(T)>::type>(all.low));
  }

  template <class S, class T>
  WB_FN reached reaches_strided(wb_shmem_call call, const T* at, ptrdiff_t stride, size_t n, uint32_t pe) const {
    size_t span = n;
    if (WB_CHECKED && n > 1) {
      const size_t most = ~size_t{0} / sizeof(T), gap = static_cast<size_t>(stride);
      span = stride < 1 || n - 1 > (most - 1) / gap ? most : (n - 1) * gap + 1;
    }
    return reaches<S>(call, at, bytes_of(span, sizeof(T)), pe, WB_WORLD_LOAD_STORE, sizeof(T));
  }

  // Bytes from one element to the next. Addresses and distances are unsigned and wrap: a compiler sees the loop over the elements of a
  // call that is refused when it runs, and nothing in that loop may overflow.
  template <class T> static WB_FN uint64_t gap(ptrdiff_t stride) { return static_cast<uint64_t>(stride) * sizeof(T); }

  // Several loads of a thread are in flight before its first store, as in transfer.cuh.
  template <class How, class S, class T>
  static WB_FN void strided(T* to, const T* from, ptrdiff_t to_stride, ptrdiff_t from_stride, size_t n) {
    constexpr uint32_t in_flight = WB_GPU ? 4 : 1;
    const uint64_t to_gap = gap<T>(to_stride), from_gap = gap<T>(from_stride);
    const size_t step = S::count();
    for (size_t i = S::rank(); i < n; i += in_flight * step) {
      T value[in_flight];
#pragma unroll
      for (uint32_t k = 0; k < in_flight; ++k) {
        const size_t e = i + k * step;
        if (e < n) value[k] = How::load(reinterpret_cast<const T*>(address(from) + e * from_gap));
      }
#pragma unroll
      for (uint32_t k = 0; k < in_flight; ++k) {
        const size_t e = i + k * step;
        if (e < n) How::store(reinterpret_cast<T*>(address(to) + e * to_gap), value[k]);
      }
    }
  }
};

}  // namespace warpbell
