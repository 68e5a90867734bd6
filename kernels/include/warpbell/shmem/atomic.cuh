// Atomic operations on one word of any PE (OpenSHMEM 1.5, 9.7): integers of 32 and 64 bits; fetch, set and swap also on float and
// double.
//
// They are atomic with each other and with the atomics that the word's own PE makes through these calls. They order nothing else: a
// fence before one orders earlier puts before it.
#pragma once

#include <warpbell/shmem/rma.cuh>

namespace warpbell {

/// @brief Atomic operations on the word at a symmetric address on PE `pe`.
///
/// One thread makes each call. All are relaxed on scope world. Calls that fetch return the value before, or zero if the call fails;
/// the error is in the run's error log.
class world_atomic : public world_rma {
 public:
  // --- any word --------------------------------------------------------------------------------------------------------

  /// @brief Returns the word. Integers of 32 or 64 bits, float or double.
  template <class From> WB_FN element_t<From> atomic_fetch(From from, uint32_t pe) const {
    using T = element_t<From>;
    auto f = extended(from);
    const reached how = reaches_word(f, pe);
    if (how == reached::by_stores) return order::bits<T>(order::load<order::relaxed, order::world>(there(f, pe)));
    return how == reached::by_network ? by_network(change::fetch, f, T{}, T{}, pe, true) : T{};
  }
  /// @brief Stores `value`. Integers of 32 or 64 bits, float or double.
  template <class To> WB_FN void atomic_set(To to, element_t<To> value, uint32_t pe) const {
    auto d = extended(to);
    const reached how = reaches_word(d, pe);
    if (how == reached::by_stores) order::store<order::relaxed, order::world>(there(d, pe), bits(value));
    else if (how == reached::by_network) by_network(change::swap, d, value, value, pe, false);
  }
  /// @brief Stores `value`, and returns the value before. Integers of 32 or 64 bits, float or double.
  template <class To> WB_FN element_t<To> atomic_swap(To to, element_t<To> value, uint32_t pe) const {
    return fetching(change::swap, extended(to), value, pe,
                    [](auto* d, auto v) { return order::exchange<order::relaxed, order::world>(d, v); });
  }

  // --- integers --------------------------------------------------------------------------------------------------------

  /// @brief Stores `value` if the word is `expected`, and returns the value before.
  template <class To> WB_FN element_t<To> atomic_compare_swap(To to, element_t<To> expected, element_t<To> value, uint32_t pe) const {
    return fetching(
        change::compare_swap, standard(to), value, pe,
        [e = bits(expected)](auto* d, auto v) { return order::compare_exchange<order::relaxed, order::world>(d, e, v); }, expected);
  }
  /// @brief Adds `value`, and returns the value before.
  template <class To> WB_FN element_t<To> atomic_fetch_add(To to, element_t<To> value, uint32_t pe) const {
    return fetching(change::add, standard(to), value, pe,
                    [](auto* d, auto v) { return order::fetch_add<order::relaxed, order::world>(d, v); });
  }
  /// @brief Adds 1, and returns the value before.
  template <class To> WB_FN element_t<To> atomic_fetch_inc(To to, uint32_t pe) const { return atomic_fetch_add(to, 1, pe); }
  /// @brief Replaces the word by its bitwise and with `value`, and returns the value before.
  template <class To> WB_FN element_t<To> atomic_fetch_and(To to, element_t<To> value, uint32_t pe) const {
    return fetching(change::bit_and, standard(to), value, pe,
                    [](auto* d, auto v) { return order::fetch_and<order::relaxed, order::world>(d, v); });
  }
  /// @brief Replaces the word by its bitwise or with `value`, and returns the value before.
  template <class To> WB_FN element_t<To> atomic_fetch_or(To to, element_t<To> value, uint32_t pe) const {
    return fetching(change::bit_or, standard(to), value, pe,
                    [](auto* d, auto v) { return order::fetch_or<order::relaxed, order::world>(d, v); });
  }
  /// @brief Replaces the word by its bitwise exclusive or with `value`, and returns the value before.
  template <class To> WB_FN element_t<To> atomic_fetch_xor(To to, element_t<To> value, uint32_t pe) const {
    return fetching(change::bit_xor, standard(to), value, pe,
                    [](auto* d, auto v) { return order::fetch_xor<order::relaxed, order::world>(d, v); });
  }

  /// @brief Adds `value`. This and the calls below do not wait for the old value: a GPU sends them off like stores.
  template <class To> WB_FN void atomic_add(To to, element_t<To> value, uint32_t pe) const {
    changing(change::add, standard(to), value, pe, [](auto* d, auto v) { order::add<order::relaxed, order::world>(d, v); });
  }
  /// @brief Adds 1.
  template <class To> WB_FN void atomic_inc(To to, uint32_t pe) const { atomic_add(to, 1, pe); }
  /// @brief Replaces the word by its bitwise and with `value`.
  template <class To> WB_FN void atomic_and(To to, element_t<To> value, uint32_t pe) const {
    changing(change::bit_and, standard(to), value, pe, [](auto* d, auto v) { order::fetch_and<order::relaxed, order::world>(d, v); });
  }
  /// @brief Replaces the word by its bitwise or with `value`.
  template <class To> WB_FN void atomic_or(To to, element_t<To> value, uint32_t pe) const {
    changing(change::bit_or, standard(to), value, pe, [](auto* d, auto v) { order::fetch_or<order::relaxed, order::world>(d, v); });
  }
  /// @brief Replaces the word by its bitwise exclusive or with `value`.
  template <class To> WB_FN void atomic_xor(To to, element_t<To> value, uint32_t pe) const {
    changing(change::bit_xor, standard(to), value, pe, [](auto* d, auto v) { order::fetch_xor<order::relaxed, order::world>(d, v); });
  }

 protected:
  using world_rma::world_rma;

 private:
  using change = network::change;

  template <class T> using word_of = typename order::detail::word<sizeof(T)>::type;
  template <class T> static WB_FN word_of<T> bits(T v) { return order::bits<word_of<T>>(v); }

  template <class T> static WB_FN word_of<T>* as_word(T* p) { return reinterpret_cast<word_of<T>*>(p); }
  template <class T> static WB_FN const word_of<T>* as_word(const T* p) { return reinterpret_cast<const word_of<T>*>(p); }

  // Check for OpenSHMEM's "standard AMO types", and for the "extended" ones with float and double.
  template <class P> static WB_FN auto standard(P p) {
    using T = element_t<P>;
    static_assert(stdlib::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                  "compare_swap, add, inc, and, or and xor take integers of 32 or 64 bits");
    return as_word(&*p);
  }
  template <class P> static WB_FN auto extended(P p) {
    using T = element_t<P>;
    static_assert((stdlib::is_integral_v<T> || stdlib::is_floating_point_v<T>) && (sizeof(T) == 4 || sizeof(T) == 8),
                  "fetch, set and swap take integers of 32 or 64 bits, float or double");
    return as_word(&*p);
  }

  template <class Word> WB_FN reached reaches_word(const Word* at, uint32_t pe) const {
    return reaches_one(WB_CALL_ATOMIC, at, pe, by_atomics);
  }

  // Executes the operation through the adapter. Returns the value before if `fetches`.
  template <class Word, class T> WB_FN T by_network(change what, const Word* at, T value, T expected, uint32_t pe, bool fetches) const {
    return order::bits<T>(static_cast<word_of<T>>(call_cold<&network::atomic>(net(), WB_CALL_ATOMIC, what, address(at), bits(value),
                                                                              bits(expected), sizeof(T), pe, lane(), fetches)));
  }

  template <class Word, class T, class Do> WB_FN void changing(change what, Word* to, T value, uint32_t pe, Do apply) const {
    const reached how = reaches_word(to, pe);
    if (how == reached::by_stores) apply(there(to, pe), bits(value));
    else if (how == reached::by_network) by_network(what, to, value, value, pe, false);
  }
  template <class Word, class T, class Do> WB_FN T fetching(change what, Word* to, T value, uint32_t pe, Do apply, T expected = T{}) const {
    const reached how = reaches_word(to, pe);
    if (how == reached::by_stores) return order::bits<T>(apply(there(to, pe), bits(value)));
    return how == reached::by_network ? by_network(what, to, value, expected, pe, true) : T{};
  }
};

}  // namespace warpbell
