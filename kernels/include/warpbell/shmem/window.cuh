// Windows: memory of each PE that was allocated elsewhere and registered as symmetric (`World::symmetric_from` of the host).
//
// A call names memory of another PE by the PE's number and a place in the window. The base addresses of the PEs need not have
// anything in common, so a call reads the PE's base address from the window's table. Calls on the symmetric heap compute it, and are
// not changed by windows: a call with a window at one of its ends is other code, chosen by the type.
//
// A checked build (WB_CHECKED) checks that the bytes are in the window.
#pragma once

#include <warpbell/peer_copy.cuh>
#include <warpbell/shmem/network_window.cuh>
#include <warpbell/shmem/reach.cuh>

namespace warpbell {

/// @brief A place in memory that all PEs have registered as symmetric: a kernel's parameter, `&Window` of the host.
///
/// put, put_nbi, put_signal, put_signal_nbi, get and get_nbi take it at either end; p, g and ptr take it, too.
template <class T> class window {
 public:
  /// @brief Refers to a window by its view. For the host and for one thread. The structure is copied.
  WB_FN_BOTH explicit window(const wb_window& raw) : w_(raw) {}

  /// @brief Returns the place `n` elements further.
  WB_FN window operator+(ptrdiff_t n) const { return moved(static_cast<uint64_t>(n) * sizeof(T)); }
  /// @brief Returns the place `n` elements before.
  WB_FN window operator-(ptrdiff_t n) const { return moved(0 - static_cast<uint64_t>(n) * sizeof(T)); }
  /// @brief Returns the address of the place in this PE's own memory.
  WB_FN T* local() const { return reinterpret_cast<T*>(w_.at); }
  /// @brief Returns the description that the host wrote.
  WB_FN const wb_window& raw() const { return w_; }

 private:
  WB_FN window moved(uint64_t bytes) const {
    window w = *this;
    w.w_.at += bytes;
    return w;
  }

  wb_window w_;
};

static_assert(sizeof(window<uint8_t>) == sizeof(wb_window) && stdlib::is_trivially_copyable_v<window<uint8_t>>, "a kernel's parameter");

namespace detail {

template <class T> struct element<window<T>> {
  using type = stdlib::remove_cv_t<T>;
};
template <class P> constexpr bool is_window = false;
template <class T> constexpr bool is_window<window<T>> = true;

// Returns the address of an end of a call on this PE.
template <class P> WB_FN auto own_end(P p) {
  if constexpr (is_window<P>) return p.local();
  else return static_cast<const element_t<P>*>(p);
}
// Returns the window of an end of a call; one without a table if the end is none.
template <class P> WB_FN wb_window window_of(P p) {
  if constexpr (is_window<P>) return p.raw();
  else return wb_window{};
}

}  // namespace detail

/// @brief Calls of world_rma with a window at one end or both.
class world_window : public world_base {
 public:
  using world_base::ptr;

  /// @brief Returns the address at which this PE's loads and stores find the same place on PE `pe`; null if they do not reach it.
  template <class T> WB_FN T* ptr(window<T> at, uint32_t pe) const { return reinterpret_cast<T*>(pe < w_.size ? there(at.raw(), pe) : 0); }

 protected:
  using world_base::there;
  using world_base::world_base;

  // Puts and gets between `to` and `from`. With `finish`, the source of a put may be used again on return, or the data of a get has
  // arrived.
  template <class S, class To, class From> WB_FN void put_by_window(S s, To to, From from, size_t n, uint32_t pe, bool finish) const {
    same_elements<To, From>();
    const uint64_t d = address(detail::own_end(to)), f = address(detail::own_end(from));
    const size_t bytes = bytes_of(n, sizeof(element_t<To>));
    uint64_t far = 0;
    const reached how = reaches_end<S>(call_of<To>(WB_CALL_PUT), to, from, bytes, pe, far);
    if (how == reached::by_stores) {
      transfer::move<transfer::put_words>(s, far, f, bytes, far | f);
    } else if (how == reached::by_network) {
      call_cold<&network::put_window>(net(), call_of<To>(WB_CALL_PUT), detail::window_of(to), detail::window_of(from), d, f, bytes, pe,
                                      lane(), S::rank(), S::count(), finish);
    }
  }
  template <class S, class To, class From> WB_FN void get_by_window(S s, To to, From from, size_t n, uint32_t pe, bool finish) const {
    same_elements<To, From>();
    const uint64_t d = address(detail::own_end(to)), f = address(detail::own_end(from));
    const size_t bytes = bytes_of(n, sizeof(element_t<To>));
    uint64_t far = 0;
    const reached how = reaches_end<S>(call_of<From>(WB_CALL_GET), from, to, bytes, pe, far);
    if (how == reached::by_stores) {
      transfer::move<transfer::get_words>(s, d, far, bytes, d | far);
    } else if (how == reached::by_network) {
      call_cold<&network::get_window>(net(), call_of<From>(WB_CALL_GET), detail::window_of(from), detail::window_of(to), d, f, bytes, pe,
                                      lane(), S::rank(), S::count(), finish);
    }
  }

  // Stores and loads one element of 1, 2, 4, 8 or 16 bytes. The element must be aligned on PE `pe`.
  template <class T> WB_FN void p_by_window(window<T> to, T value, uint32_t pe) const {
    uint64_t far = 0;
    const reached how = reaches_window<scope::thread>(WB_CALL_WINDOW_PUT, to.raw(), true, sizeof(T), pe, far, sizeof(T));
    if (how == reached::by_stores) {
      order::store<order::relaxed, order::world>(reinterpret_cast<T*>(far), value);
    } else if (how == reached::by_network) {
      const order::detail::pair all = widened(value);
      call_cold<&network::put_window_value>(net(), to.raw(), all.low, all.high, sizeof(T), pe, lane());
    }
  }
  template <class T> WB_FN T g_by_window(window<T> from, uint32_t pe) const {
    uint64_t far = 0;
    const reached how = reaches_window<scope::thread>(WB_CALL_WINDOW_GET, from.raw(), true, sizeof(T), pe, far, sizeof(T));
    if (how == reached::by_stores) return order::load<order::relaxed, order::world>(reinterpret_cast<const T*>(far));
    if (how == reached::not_at_all) return T{};
    return narrowed<T>(call_cold<&network::get_window_value>(net(), from.raw(), sizeof(T), pe, lane()));
  }

  // Converts a value of up to 16 bytes to a pair that is zero beyond it, and back.
  template <class T> static WB_FN order::detail::pair widened(const T& value) {
    if constexpr (sizeof(T) == 16) return order::bits<order::detail::pair>(value);
    else return order::detail::pair{order::bits<typename order::detail::word<sizeof(T)>::type>(value), 0};
  }
  template <class T> static WB_FN T narrowed(const order::detail::pair& all) {
    if constexpr (sizeof(T) == 16) return order::bits<T>(all);
    else return order::bits<T>(static_cast<typename order::detail::word<sizeof(T)>::type>(all.low));
  }

 private:
  // Returns the number by which the error log names a call: those on windows have offsets in the window.
  template <class P> static WB_FN wb_shmem_call call_of(wb_shmem_call on_heap) {
    if (!detail::is_window<P>) return on_heap;
    return on_heap == WB_CALL_PUT ? WB_CALL_WINDOW_PUT : WB_CALL_WINDOW_GET;
  }

  // Returns the address of a place on a PE of the world; 0 if loads and stores do not reach it.
  static WB_FN uint64_t there(const wb_window& at, uint32_t pe) {
    const uint64_t here = at.peers[pe].here;
    return here ? at.at - at.base + here : 0;
  }

  // Returns true if the bytes are in the window. Only a checked build checks.
  static WB_FN bool in_window(const wb_window& at, size_t bytes) {
    if constexpr (WB_CHECKED != 0) {
      const uint64_t offset = at.at - at.base;
      return bytes == 0 || (offset < at.bytes && bytes <= at.bytes - offset);
    } else {
      return true;
    }
  }

  // Returns the data path to `bytes` of a window on a PE, and their address there if loads and stores reach it. `good` is false if
  // the call has another bad argument.
  template <class S> WB_FN reached reaches_window(wb_shmem_call call, const wb_window& at, bool good, size_t bytes, uint32_t pe,
                                                  uint64_t& far, size_t alignment = 1) const {
    good = good && pe < w_.size && in_window(at, bytes);
    if (good) {
      far = there(at, pe);
      if (far == 0 && net() != nullptr) return reached::by_network;
      if (far != 0 && (!WB_CHECKED || far % alignment == 0)) return reached::by_stores;
      good = far == 0;
    }
    if (S::rank() == 0) {
      call_cold<&detail::raise_call_error>(control(), status_word(good ? WB_UNREACHABLE : WB_BAD_ARGUMENT), static_cast<uint32_t>(call), pe,
                                           w_.pe, at.at - at.base, bytes, 0u);
    }
    return reached::not_at_all;
  }

  // Checks that both ends have elements of one type.
  template <class To, class From> static WB_FN void same_elements() {
    static_assert(stdlib::is_same_v<element_t<To>, element_t<From>>, "both ends of a put or get have elements of one type");
  }

  // Returns the data path of a call between `symmetric` memory on a PE and `other` memory on this one; one of them is a window.
  template <class S, class Symmetric, class Other>
  WB_FN reached reaches_end(wb_shmem_call call, Symmetric symmetric, Other other, size_t bytes, uint32_t pe, uint64_t& far) const {
    bool good = true;
    if constexpr (detail::is_window<Other>) good = in_window(other.raw(), bytes);
    if constexpr (detail::is_window<Symmetric>) {
      return reaches_window<S>(call, symmetric.raw(), good, bytes, pe, far);
    } else {
      const element_t<Symmetric>* at = symmetric;
      far = address(there(at, pe));
      // A PE that is not in the world is a bad argument, like a place that is not in the other window.
      return reaches<S>(call, at, bytes, good ? pe : WB_NO_PE);
    }
  }
};

}  // namespace warpbell
