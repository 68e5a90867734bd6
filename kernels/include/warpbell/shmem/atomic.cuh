// Atomic operations on one word of any PE (OpenSHMEM 1.5, 9.9): integers of 32 and 64 bits; fetch, set and swap also of float
// and double.
//
// They are atomic with each other and with the atomics that the word's own PE makes through these calls, and order nothing else:
// a fence before one makes it tell of what was put before.
#pragma once

#include <warpbell/shmem/rma.cuh>

namespace warpbell {

class world_atomic : public world_rma {
 public:
  // --- any word --------------------------------------------------------------------------------------------------------

  template <class From> WB_FN element_t<From> atomic_fetch(From from, uint32_t pe) const {
    auto f = extended(from);
    return reaches_word(f, pe) ? order::bits<element_t<From>>(order::load_remote(there(f, pe))) : element_t<From>{};
  }
  template <class To> WB_FN void atomic_set(To to, element_t<To> value, uint32_t pe) const {
    auto d = extended(to);
    if (reaches_word(d, pe)) order::store_remote(there(d, pe), bits(value));
  }
  // The value before, as from all calls that fetch; zero when the call is refused.
  template <class To> WB_FN element_t<To> atomic_swap(To to, element_t<To> value, uint32_t pe) const {
    return fetching(extended(to), value, pe, [](auto* d, auto v) { return order::exchange_relaxed_sys(d, v); });
  }

  // --- integers --------------------------------------------------------------------------------------------------------

  // Sets the word to `value` if it is `expected`.
  template <class To>
  WB_FN element_t<To> atomic_compare_swap(To to, element_t<To> expected, element_t<To> value, uint32_t pe) const {
    return fetching(standard(to), value, pe, [e = bits(expected)](auto* d, auto v) {
      return order::compare_exchange_relaxed_sys(d, e, v);
    });
  }
  template <class To> WB_FN element_t<To> atomic_fetch_add(To to, element_t<To> value, uint32_t pe) const {
    return fetching(standard(to), value, pe, [](auto* d, auto v) { return order::fetch_add_relaxed_sys(d, v); });
  }
  template <class To> WB_FN element_t<To> atomic_fetch_inc(To to, uint32_t pe) const { return atomic_fetch_add(to, 1, pe); }
  template <class To> WB_FN element_t<To> atomic_fetch_and(To to, element_t<To> value, uint32_t pe) const {
    return fetching(standard(to), value, pe, [](auto* d, auto v) { return order::fetch_and_relaxed_sys(d, v); });
  }
  template <class To> WB_FN element_t<To> atomic_fetch_or(To to, element_t<To> value, uint32_t pe) const {
    return fetching(standard(to), value, pe, [](auto* d, auto v) { return order::fetch_or_relaxed_sys(d, v); });
  }
  template <class To> WB_FN element_t<To> atomic_fetch_xor(To to, element_t<To> value, uint32_t pe) const {
    return fetching(standard(to), value, pe, [](auto* d, auto v) { return order::fetch_xor_relaxed_sys(d, v); });
  }

  // Without an answer nobody waits for the word to come back: a GPU sends them off like stores.
  template <class To> WB_FN void atomic_add(To to, element_t<To> value, uint32_t pe) const {
    auto d = standard(to);
    if (reaches_word(d, pe)) order::add_relaxed_sys(there(d, pe), bits(value));
  }
  template <class To> WB_FN void atomic_inc(To to, uint32_t pe) const { atomic_add(to, 1, pe); }
  template <class To> WB_FN void atomic_and(To to, element_t<To> value, uint32_t pe) const { (void)atomic_fetch_and(to, value, pe); }
  template <class To> WB_FN void atomic_or(To to, element_t<To> value, uint32_t pe) const { (void)atomic_fetch_or(to, value, pe); }
  template <class To> WB_FN void atomic_xor(To to, element_t<To> value, uint32_t pe) const { (void)atomic_fetch_xor(to, value, pe); }

 protected:
  using world_rma::world_rma;

 private:
  template <class T> using word_of = typename order::detail::word<sizeof(T)>::type;
  template <class T> static WB_FN word_of<T> bits(T v) { return order::bits<word_of<T>>(v); }

  template <class T> static WB_FN word_of<T>* as_word(T* p) { return reinterpret_cast<word_of<T>*>(p); }
  template <class T> static WB_FN const word_of<T>* as_word(const T* p) { return reinterpret_cast<const word_of<T>*>(p); }

  // OpenSHMEM's "standard AMO types", and the "extended" ones with float and double.
  template <class P> static WB_FN auto standard(P p) {
    using T = element_t<P>;
    static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                  "compare_swap, add, inc, and, or and xor take integers of 32 or 64 bits");
    return as_word(&*p);
  }
  template <class P> static WB_FN auto extended(P p) {
    using T = element_t<P>;
    static_assert((std::is_integral_v<T> || std::is_floating_point_v<T>) && (sizeof(T) == 4 || sizeof(T) == 8),
                  "fetch, set and swap take integers of 32 or 64 bits, float or double");
    return as_word(&*p);
  }

  template <class Word> WB_FN bool reaches_word(const Word* at, uint32_t pe) const {
    return reaches_one(WB_CALL_ATOMIC, at, pe, by_atomics);
  }

  template <class Word, class T, class Do> WB_FN T fetching(Word* to, T value, uint32_t pe, Do change) const {
    return reaches_word(to, pe) ? order::bits<T>(change(there(to, pe), bits(value))) : T{};
  }
};

}  // namespace warpbell
