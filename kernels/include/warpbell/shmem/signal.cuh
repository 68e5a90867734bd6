// Signals: 64-bit words that tell a PE that data has arrived (OpenSHMEM 1.5, 9.8).
//
// A PE sees the signal of a put_signal after the data of the same call. It also sees it after earlier puts to that PE of the
// calling threads, if they have synchronised. One thread's fence is enough for data that all threads of a block have stored. Each
// store comes before the sync of the block in its thread, and the sync before the fence in the signalling thread. The fence with
// the store of the signal is a release. In the PTX memory model (causality order) a release is cumulative, so it covers all of
// them. The receiver's wait is the acquire.
//
// A word to which signals are added counts them. Its receiver keeps a shadow: the sum of the signals that it has consumed. The word
// minus the shadow is the number of those that have arrived and are not consumed. Both wrap, so that the word is never reset, and
// the difference is a signed number of 64 bits.
#pragma once

#include <warpbell/shmem/wait.cuh>

namespace warpbell {

/// @brief Signals, and puts with a signal.
class world_signal : public world_wait {
 public:
  /// @brief Copies `n` elements to PE `pe`, then sets or adds to the signal word there, without waiting. All threads of the scope
  /// call this.
  ///
  /// @param sig Symmetric address of the signal word.
  /// @param how signal::set or signal::add.
  /// @pre The source stays unchanged until `flush` or `quiet`.
  /// @note A thread that waits for the signal sees the data (release here, acquire in the wait).
  template <class S, class To, class From>
  WB_FN void put_signal_nbi(S s, To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_nbi(s, to, from, n, pe);
    S::sync();
    if (S::rank() == 0) {
      order_at(pe);
      signal_op(sig, value, how, pe);
    }
  }
  /// @brief Copies `n` elements to PE `pe`, then signals. All threads of the scope call this; ends with a sync of the scope.
  ///
  /// As above, but the source may be used again after the return.
  template <class S, class To, class From>
  WB_FN void put_signal(S s, To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_signal_nbi(s, to, from, n, sig, value, how, pe);
    S::sync();
  }
  /// @brief Copies elements, then signals, without waiting. One thread calls this. As above.
  template <class To, class From>
  WB_FN void put_signal_nbi(To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_signal_nbi(by_thread, to, from, n, sig, value, how, pe);
  }
  /// @brief Copies elements, then signals. One thread calls this. As above.
  template <class To, class From>
  WB_FN void put_signal(To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_signal(by_thread, to, from, n, sig, value, how, pe);
  }

  /// @brief Copies `n` elements to PE `pe` through the copy engine where that is faster, then signals. All threads of the scope call
  /// this; ends with a sync of the scope.
  ///
  /// @param through The scope's shared memory. See bulk_buffer.
  /// @note Otherwise as `put_signal`.
  template <class S, class To, class From> WB_FN void put_signal(S s, To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how,
                                                                 uint32_t pe, bulk_buffer& through) const {
    put(s, to, from, n, pe, through);
    if (S::rank() == 0) {
      order_at(pe);
      signal_op(sig, value, how, pe);
    }
    S::sync();
  }
  /// @brief Stores one element of 1 to 16 bytes to PE `pe`, then sets or adds to the signal word there. One thread calls this.
  ///
  /// The fastest way to send a word: if the element has 8 bytes, lies behind its signal word (`to == sig + 1`, `sig` aligned to 16
  /// bytes), and the signal is set, both are one store. That takes one trip over the link where `put_signal` takes two.
  /// @note A thread that waits for the signal sees the element. Earlier puts are covered only after a `fence`.
  template <class To> WB_FN void p_signal(To to, element_t<To> value, uint64_t* sig, uint64_t word, signal how, uint32_t pe) const {
    element_t<To>* d = one(to);
    if constexpr (sizeof(*d) == sizeof(uint64_t)) {
      const bool adjacent = address(d) == address(sig) + sizeof(*sig) && address(sig) % (2 * sizeof(*sig)) == 0;
      if (how == signal::set && adjacent && stores_do(WB_WORLD_LOAD_STORE, sig, 2 * sizeof(*sig), pe)) {
        order::store_both<order::relaxed, order::world>(there(sig, pe), word, order::bits<uint64_t>(value));
        return;
      }
    }
    p(to, value, pe);
    order_at(pe);
    signal_op(sig, word, how, pe);
  }

  /// @brief Sets or adds to the signal word at symmetric address `sig` on PE `pe`. One thread calls this.
  ///
  /// @note Relaxed: the signal covers earlier puts only after a fence.
  WB_FN void signal_op(uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    if (how == signal::set) {
      signal_set(sig, value, pe);
    } else {
      signal_add(sig, value, pe);
    }
  }
  /// @brief Sets the signal word on PE `pe` to `value`. One thread calls this. Relaxed on scope world.
  WB_FN void signal_set(uint64_t* sig, uint64_t value, uint32_t pe) const {
    const reached how = reaches_one(WB_CALL_SIGNAL, sig, pe);
    if (how == reached::by_stores) order::store<order::relaxed, order::world>(there(sig, pe), value);
    else if (how == reached::by_network) by_network(network::change::swap, sig, value, pe);
  }
  /// @brief Adds `value` to the signal word on PE `pe`. One thread calls this. Relaxed on scope world.
  WB_FN void signal_add(uint64_t* sig, uint64_t value, uint32_t pe) const {
    const reached how = reaches_one(WB_CALL_SIGNAL, sig, pe, by_atomics);
    if (how == reached::by_stores) order::add<order::relaxed, order::world>(there(sig, pe), value);
    else if (how == reached::by_network) by_network(network::change::add, sig, value, pe);
  }

  /// @brief Adds 1 to the signal word on PE `pe`. One thread calls this. Relaxed on scope world.
  WB_FN void signal_inc(uint64_t* sig, uint32_t pe) const { signal_add(sig, 1, pe); }

  /// @brief Returns the current value of a signal word of this PE. One thread calls this.
  ///
  /// @note Relaxed: it orders no data. `test` and the waits do.
  WB_FN uint64_t signal_fetch(const uint64_t* sig) const { return order::load<order::relaxed, order::world>(sig); }
  /// @brief Waits until a signal word of this PE compares true with `value`, for at most one deadline. One thread calls this.
  ///
  /// @param seen Gets the value that ended the wait, if not null.
  /// @param pe The PE that should signal, for the error of a wait that fails; WB_NO_PE: not known.
  /// @return The outcome.
  /// @note After success an acquire on scope system: this thread sees data that was ordered before the signal.
  WB_FN outcome signal_wait_until(const uint64_t* sig, cmp how, uint64_t value, uint64_t* seen = nullptr, uint32_t pe = WB_NO_PE) const {
    uint64_t last = 0;
    const outcome o = wait_for(sig, 1, pe, [&] { return holds(how, last = order::load<order::relaxed, order::world>(sig), value); });
    if (seen) *seen = last;
    return o;
  }

  /// @brief Waits until at least `n` signals have arrived that `shadow` does not count, for at most one deadline, and counts `n` of
  /// them. One thread calls this.
  ///
  /// @param sig Signal word of this PE, which signals are added to.
  /// @param shadow Sum of the signals that were consumed, from the word's first value on: 0 in fresh memory. After success it is
  /// larger by `n`, otherwise unchanged.
  /// @param n Less than 2^63. An addition of k to the word is k signals.
  /// @param arrived Gets the number of signals that `shadow` did not count before the call, if not null: `n` or more after success.
  /// @param pe The PE that should signal, for the error of a wait that fails; WB_NO_PE: not known.
  /// @return The outcome.
  /// @note After success an acquire on scope system: this thread sees data that was ordered before all signals that had arrived.
  WB_FN outcome signal_wait_shadow(const uint64_t* sig, uint64_t& shadow, uint64_t n, uint64_t* arrived = nullptr,
                                   uint32_t pe = WB_NO_PE) const {
    if (n > most_signals) return refuse(sig, 1, pe);
    const uint64_t counted = shadow;
    int64_t more = 0;
    const outcome o = wait_for(sig, 1, pe, [&] { return (more = beyond(sig, counted)) >= static_cast<int64_t>(n); });
    if (o) shadow = counted + n;
    if (arrived) *arrived = more > 0 ? static_cast<uint64_t>(more) : 0;
    return o;
  }
  /// @brief Returns true if at least `n` signals have arrived that `shadow` does not count, and then counts `n` of them. One thread
  /// calls this.
  ///
  /// Parameters as of signal_wait_shadow.
  /// @note An acquire on scope system if the result is true.
  WB_FN bool signal_test_shadow(const uint64_t* sig, uint64_t& shadow, uint64_t n) const {
    if (n > most_signals) return static_cast<bool>(refuse(sig, 1, WB_NO_PE));
    if (!look(sig, 1, [&] { return beyond(sig, shadow) >= static_cast<int64_t>(n); })) return false;
    shadow += n;
    return true;
  }

 protected:
  using world_wait::world_wait;

 private:
  static constexpr uint64_t most_signals = ~uint64_t{0} >> 1;

  // Returns the number of signals that have arrived and that `shadow` does not count. Negative if the word is behind the shadow.
  static WB_FN int64_t beyond(const uint64_t* sig, uint64_t shadow) {
    return static_cast<int64_t>(order::load<order::relaxed, order::world>(sig) - shadow);
  }

  WB_FN void by_network(network::change what, uint64_t* sig, uint64_t value, uint32_t pe) const {
    call_cold<&network::atomic>(net(), WB_CALL_SIGNAL, what, address(sig), value, 0, sizeof(value), pe, lane(), false);
  }
};

}  // namespace warpbell
