// Puts and gets (OpenSHMEM 1.5, 9.6.1 and 9.6.2), and their ordering (9.11).
//
// `n` counts elements: any number, including 0, at any alignment of either end. Source and destination must not overlap, unless
// they are equal. The threads of a warp or block share the work of a call. If other threads of the scope wrote the source, the
// caller synchronises the scope before the call. When a call returns all threads see its results, except for a `_nbi` call, which
// needs a `quiet`, or a `flush` for a put's source, and a sync first.
#pragma once

#include <warpbell/bulk.cuh>
#include <warpbell/shmem/window.cuh>

namespace warpbell {

/// @brief Puts, gets and their ordering. `to` and `from` are `sym<T>`, `T*` or `window<T>`; scope `s` is by_thread, by_warp or by_block.
class world_rma : public world_window {
 public:
  // --- blocks of elements ----------------------------------------------------------------------------------------------

  /// @brief Copies `n` elements to symmetric address `to` on PE `pe`, without waiting. All threads of the scope call this.
  ///
  /// @pre The source stays unchanged until `flush` or `quiet`.
  /// @note No order with other calls: see fence and quiet. A failure is in the run's error log.
  template <class S, class To, class From> WB_FN void put_nbi(S s, To to, From from, size_t n, uint32_t pe) const {
    put_elements(s, to, from, n, pe, false);
  }
  /// @brief Copies `n` elements to symmetric address `to` on PE `pe`. All threads of the scope call this; ends with a sync of the
  /// scope.
  ///
  /// The source may be used again after the return.
  /// @note No order with other calls: see fence and quiet. A failure is in the run's error log.
  template <class S, class To, class From> WB_FN void put(S s, To to, From from, size_t n, uint32_t pe) const {
    put_elements(s, to, from, n, pe, true);
    S::sync();
  }
  /// @brief Copies `n` elements from symmetric address `from` on PE `pe`, without waiting. All threads of the scope call this.
  ///
  /// @note The data is complete only after `quiet` and a sync of the scope.
  template <class S, class To, class From> WB_FN void get_nbi(S s, To to, From from, size_t n, uint32_t pe) const {
    get_elements(s, to, from, n, pe, false);
  }
  /// @brief Copies `n` elements from symmetric address `from` on PE `pe`. All threads of the scope call this; ends with a sync of
  /// the scope.
  ///
  /// @note On return all threads of the scope see the data, which is never from a stale cache line. No other order.
  template <class S, class To, class From> WB_FN void get(S s, To to, From from, size_t n, uint32_t pe) const {
    get_elements(s, to, from, n, pe, true);
    S::sync();
  }

  /// @brief Copies `n` elements to symmetric address `to` on PE `pe`, through the copy engine where that is faster. All threads of
  /// the scope call this; ends with a sync of the scope.
  ///
  /// @param through The scope's shared memory. See bulk_buffer.
  /// @note Otherwise as `put`.
  template <class S, class To, class From> WB_FN void put(S s, To to, From from, size_t n, uint32_t pe, bulk_buffer& through) const {
    if (!moved_in_bulk(s, direction::to_peer, to, from, n, pe, through)) put(s, to, from, n, pe);
  }
  /// @brief Copies `n` elements from symmetric address `from` on PE `pe`, through the copy engine where that is faster. All threads
  /// of the scope call this; ends with a sync of the scope.
  ///
  /// @param through The scope's shared memory. See bulk_buffer.
  /// @note Otherwise as `get`.
  template <class S, class To, class From> WB_FN void get(S s, To to, From from, size_t n, uint32_t pe, bulk_buffer& through) const {
    if (!moved_in_bulk(s, direction::from_peer, to, from, n, pe, through)) get(s, to, from, n, pe);
  }

  /// @brief Copies elements to a PE without waiting. One thread calls this. As above.
  template <class To, class From> WB_FN void put_nbi(To to, From from, size_t n, uint32_t pe) const { put_nbi(by_thread, to, from, n, pe); }
  /// @brief Copies elements to a PE. One thread calls this. As above.
  template <class To, class From> WB_FN void put(To to, From from, size_t n, uint32_t pe) const { put(by_thread, to, from, n, pe); }
  /// @brief Copies elements from a PE without waiting. One thread calls this. As above.
  template <class To, class From> WB_FN void get_nbi(To to, From from, size_t n, uint32_t pe) const { get_nbi(by_thread, to, from, n, pe); }
  /// @brief Copies elements from a PE. One thread calls this. As above.
  template <class To, class From> WB_FN void get(To to, From from, size_t n, uint32_t pe) const { get(by_thread, to, from, n, pe); }

  // --- one element of 1, 2, 4, 8 or 16 bytes ---------------------------------------------------------------------------

  /// @brief Stores one element of 1, 2, 4, 8 or 16 bytes to symmetric address `to` on PE `pe`. One thread calls this.
  ///
  /// @note Relaxed on scope world.
  template <class To> WB_FN void p(To to, element_t<To> value, uint32_t pe) const {
    movable<element_t<To>>();
    if constexpr (detail::is_window<To>) {
      p_by_window(to, value, pe);
    } else {
      element_t<To>* d = one(to);
      const reached how = reaches_one(WB_CALL_PUT, d, pe);
      if (how == reached::by_stores) {
        order::store<order::relaxed, order::world>(there(d, pe), value);
      } else if (how == reached::by_network) {
        const order::detail::pair all = widened(value);
        call_cold<&network::put_value>(net(), WB_CALL_PUT, address(d), all.low, all.high, sizeof(value), pe, lane());
      }
    }
  }
  /// @brief Returns one element of 1, 2, 4, 8 or 16 bytes at symmetric address `from` on PE `pe`. One thread calls this.
  ///
  /// @return The element; zeroes if the call fails.
  /// @note Relaxed on scope world.
  template <class From> WB_FN element_t<From> g(From from, uint32_t pe) const {
    movable<element_t<From>>();
    if constexpr (detail::is_window<From>) {
      return g_by_window(from, pe);
    } else {
      const element_t<From>* f = one(from);
      const reached how = reaches_one(WB_CALL_GET, f, pe);
      if (how == reached::by_stores) return order::load<order::relaxed, order::world>(there(f, pe));
      if (how == reached::not_at_all) return element_t<From>{};
      return narrowed<element_t<From>>(call_cold<&network::get_value>(net(), address(f), sizeof(*f), pe, lane()));
    }
  }

  // --- elements with a distance: `n` of them, `to_stride` and `from_stride` elements apart (1 or more) -------------------

  /// @brief Copies `n` elements of 1 to 16 bytes with strides to PE `pe`. All threads of the scope call this; ends with a sync of
  /// the scope.
  ///
  /// @param to_stride Distance of elements at the destination, in elements, 1 or more.
  /// @param from_stride Distance of elements at the source, in elements, 1 or more.
  template <class S, class To, class From>
  WB_FN void iput(S, To to, From from, ptrdiff_t to_stride, ptrdiff_t from_stride, size_t n, uint32_t pe) const {
    using T = element_t<To>;
    T* d = one(to);
    const T* f = from;
    const reached how = reaches_strided<S>(WB_CALL_PUT, d, to_stride, n, pe);
    if (how == reached::by_stores) {
      strided<transfer::put_words, S>(there(d, pe), f, to_stride, from_stride, n);
    } else if (how == reached::by_network) {
      call_cold<&network::put_strided>(net(), address(d), address(f), gap<T>(to_stride), gap<T>(from_stride), sizeof(T), n, pe, lane(),
                                       S::rank(), S::count());
    }
    S::sync();
  }
  /// @brief Copies `n` elements of 1 to 16 bytes with strides from PE `pe`. All threads of the scope call this; ends with a sync of
  /// the scope.
  template <class S, class To, class From>
  WB_FN void iget(S, To to, From from, ptrdiff_t to_stride, ptrdiff_t from_stride, size_t n, uint32_t pe) const {
    using T = element_t<To>;
    T* d = one(to);
    const T* f = from;
    const reached how = reaches_strided<S>(WB_CALL_GET, f, from_stride, n, pe);
    if (how == reached::by_stores) {
      strided<transfer::get_words, S>(d, there(f, pe), to_stride, from_stride, n);
    } else if (how == reached::by_network) {
      call_cold<&network::get_strided>(net(), address(d), address(f), gap<T>(to_stride), gap<T>(from_stride), sizeof(T), n, pe, lane(),
                                       S::rank(), S::count());
    }
    S::sync();
  }
  /// @brief Copies elements with strides to a PE. One thread calls this. As above.
  template <class To, class From>
  WB_FN void iput(To to, From from, ptrdiff_t to_stride, ptrdiff_t from_stride, size_t n, uint32_t pe) const {
    iput(by_thread, to, from, to_stride, from_stride, n, pe);
  }
  /// @brief Copies elements with strides from a PE. One thread calls this. As above.
  template <class To, class From>
  WB_FN void iget(To to, From from, ptrdiff_t to_stride, ptrdiff_t from_stride, size_t n, uint32_t pe) const {
    iget(by_thread, to, from, to_stride, from_stride, n, pe);
  }

  // --- ordering --------------------------------------------------------------------------------------------------------

  /// @brief Orders puts, signals and atomics: each PE sees those before the call before those after. One thread calls this.
  ///
  /// Covers this thread, and threads that it has synchronised with since their calls (a sync of the warp or the block).
  /// @note A release on scope system for this thread's stores.
  WB_FN void fence() const { order_at(WB_NO_PE); }
  /// @brief Completes puts, signals and atomics: every PE sees those before the call when it returns. One thread calls this.
  ///
  /// Covers the same threads as `fence`. Later gets and reads of this thread are no older.
  /// @return The outcome: WB_DONE, or the error of a connection.
  /// @note A sequentially consistent fence on scope system.
  WB_FN outcome quiet() const {
    outcome o{};
    if (!all_by_stores()) o.word = call_cold<&network::quiet>(net(), WB_CALL_QUIET, lane(), 0, 1, true);
    order::fence<order::seq_cst, order::system>();
    return o;
  }
  /// @brief Completes what all threads of this PE have put, including those of earlier kernels, in any block. All threads of the
  /// scope call this.
  ///
  /// The threads of the scope share the work. The call begins and ends with a sync of the scope.
  /// @return The outcome, equal in all threads in whether it is WB_DONE.
  template <class S> WB_FN outcome quiet_all(S) const {
    S::sync();
    const bool failed = !wait_in_all_lanes<S>(WB_CALL_QUIET, true);
    order::fence<order::seq_cst, order::system>();
    return outcome{S::any(failed) ? status_word(WB_STOPPED) : static_cast<uint32_t>(WB_DONE)};
  }
  /// @brief Returns when the sources of puts before the call may be written again. One thread calls this.
  ///
  /// Covers the same threads as `fence`. Says nothing of the puts' arrival, and nothing of get_nbi: see quiet.
  /// @return The outcome: WB_DONE, or the error of a connection.
  /// @note No wait where loads and stores reach every PE. A put loads its source before it returns, and a store that a thread makes
  /// later, or after it has synchronised with this thread, is not seen by an earlier load (coherence, causality order). No fence.
  WB_FN outcome flush() const {
    outcome o{};
    if (!all_by_stores()) o.word = call_cold<&network::quiet>(net(), WB_CALL_FLUSH, lane(), 0, 1, false);
    return o;
  }
  /// @brief Returns when the sources of puts of all threads of this PE may be written again, including those of earlier kernels, in
  /// any block. All threads of the scope call this.
  ///
  /// The threads of the scope share the work. The call begins and ends with a sync of the scope. Otherwise as flush.
  /// @return The outcome, equal in all threads in whether it is WB_DONE.
  template <class S> WB_FN outcome flush_all(S) const {
    S::sync();
    const bool failed = !wait_in_all_lanes<S>(WB_CALL_FLUSH, false);
    return outcome{S::any(failed) ? status_word(WB_STOPPED) : static_cast<uint32_t>(WB_DONE)};
  }

 protected:
  using world_window::world_window;

  // Orders what goes to one PE; WB_NO_PE: to all PEs.
  WB_FN void order_at(uint32_t pe) const {
    order::fence<order::release, order::system>();
    if (!all_by_stores()) call_cold<&network::complete>(net(), WB_CALL_QUIET, lane(), pe);
  }

  // Returns a pointer to an element that one access can move.
  template <class P> static WB_FN auto one(P p) {
    static_assert(!detail::is_window<P>, "iput and iget take addresses of the symmetric heap; put, get, p and g also take windows");
    movable<element_t<P>>();
    return &*p;
  }
  // Checks that one access moves an element.
  template <class T> static WB_FN void movable() {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                  "p, g, iput and iget move elements of 1, 2, 4, 8 or 16 bytes");
  }

 private:
  // Waits for the requests of all blocks as one thread of the scope. Returns true if none has failed.
  template <class S> WB_FN bool wait_in_all_lanes(wb_shmem_call call, bool landing) const {
    return all_by_stores() ||
           call_cold<&network::quiet>(net(), static_cast<uint32_t>(call), network::all_lanes, S::rank(), S::count(), landing) == WB_DONE;
  }

  // Moves elements through a buffer if it can, and is faster. Returns false if nothing was moved.
  template <class S, class To, class From>
  WB_FN bool moved_in_bulk(S s, direction way, To to, From from, size_t n, uint32_t pe, bulk_buffer& through) const {
    if constexpr (detail::is_window<To> || detail::is_window<From>) {
      return false;
    } else {
      using T = element_t<To>;
      T* d = to;
      const T* f = from;
      const bool puts = way == direction::to_peer;
      const T *here = puts ? f : d, *symmetric = puts ? d : f;
      const size_t bytes = bytes_of(n, sizeof(T));
      if (!stores_do(WB_WORLD_LOAD_STORE, symmetric, bytes, pe) || !through.takes<S>(way, address(here), address(symmetric), bytes))
        return false;
      const uint64_t far = address(there(symmetric, pe));
      through.copy(s, puts ? far : address(here), puts ? address(here) : far, bytes);
      return true;
    }
  }

  // With `finish`, the source of a put may be used again on return, or the data of a get has arrived.
  template <class S, class To, class From> WB_FN void put_elements(S s, To to, From from, size_t n, uint32_t pe, bool finish) const {
    using T = element_t<To>;
    if constexpr (detail::is_window<To> || detail::is_window<From>) {
      put_by_window(s, to, from, n, pe, finish);
    } else {
      const T* f = from;
      put_bytes(s, static_cast<T*>(to), f, n, pe, finish);
    }
  }
  template <class S, class To, class From> WB_FN void get_elements(S s, To to, From from, size_t n, uint32_t pe, bool finish) const {
    using T = element_t<To>;
    if constexpr (detail::is_window<To> || detail::is_window<From>) {
      get_by_window(s, to, from, n, pe, finish);
    } else {
      const T* f = from;
      get_bytes(s, static_cast<T*>(to), f, n, pe, finish);
    }
  }
  template <class S, class T> WB_FN void put_bytes(S s, T* d, const T* f, size_t n, uint32_t pe, bool finish) const {
    const size_t bytes = bytes_of(n, sizeof(T));
    const uint64_t ends = address(d) | address(f);
    const bool direct = stores_do(WB_WORLD_LOAD_STORE, d, bytes, pe);
    // One test decides the message rate, here and in `get_bytes`. A function for both that returns the path would cost another
    // jump.
    if (WB_LIKELY(direct & transfer::one_each<S>(bytes, ends))) {
      transfer::one<transfer::put_words, S, order::detail::pair>(address(there(d, pe)), address(f), bytes);
      return;
    }
    if (direct) {
#if WB_HAS_BULK_COPIES
      if (((ends | bytes) & (in_bulk::unit - 1)) == 0 && bytes >= in_bulk::wins_from_shared(S::count()) &&
          order::async::is_shared(address(f))) {
        order::async::proxy_fence_of_shared();
        S::sync();
        out_of_line (&in_bulk::put_shared)(address(there(d, pe)), address(f), bytes, S::rank(), S::count());
        return;
      }
#endif
      transfer::move<transfer::put_words>(s, address(there(d, pe)), address(f), bytes, ends);
      return;
    }
    const reached how = other_path<S>(WB_CALL_PUT, d, bytes, pe);
    if (how == reached::by_stores) {
      out_of_line (&transfer::odd<transfer::put_words>)(address(there(d, pe)), address(f), bytes, S::rank(), S::count());
    } else if (how == reached::by_network) {
      call_cold<&network::put>(net(), WB_CALL_PUT, address(d), address(f), bytes, pe, lane(), S::rank(), S::count(), finish);
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
      out_of_line (&transfer::odd<transfer::get_words>)(address(d), address(there(f, pe)), bytes, S::rank(), S::count());
    } else if (how == reached::by_network) {
      call_cold<&network::get>(net(), WB_CALL_GET, address(d), address(f), bytes, pe, lane(), S::rank(), S::count(), finish);
    }
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

  // Returns the bytes from one element to the next. Addresses and distances are unsigned and wrap. A compiler sees the loop over
  // the elements even of a call that fails at run time, and nothing in that loop may overflow.
  template <class T> static WB_FN uint64_t gap(ptrdiff_t stride) { return static_cast<uint64_t>(stride) * sizeof(T); }

  // Several loads of a thread are in flight before its first store, as in peer_copy.cuh.
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
