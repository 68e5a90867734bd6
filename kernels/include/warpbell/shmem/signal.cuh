// Signals: 64-bit words that tell a PE that data has come (OpenSHMEM 1.5, 9.8).
//
// The signal of a put_signal is seen after the data of the same call, and after what the calling threads put to that PE before if
// they have met. Why one thread's fence is enough for data that all threads of a block have stored: each store comes before the sync of the
// block in its thread, the sync before the fence in the signalling thread, and the fence with the store of the signal is a release; in
// the PTX memory model (causality order) a release is cumulative, so it covers all of them. The receiver's wait is the acquire.
#pragma once

#include <warpbell/shmem/wait.cuh>

namespace warpbell {

class world_signal : public world_wait {
 public:
  template <class S, class To, class From>
  WB_FN void put_signal_nbi(S s, To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_nbi(s, to, from, n, pe);
    S::sync();
    if (S::rank() == 0) {
      order_at(pe);
      signal_op(sig, value, how, pe);
    }
  }
  // The source may be used again when the call returns.
  template <class S, class To, class From>
  WB_FN void put_signal(S s, To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_signal_nbi(s, to, from, n, sig, value, how, pe);
    S::sync();
  }
  template <class To, class From>
  WB_FN void put_signal_nbi(To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_signal_nbi(by_thread, to, from, n, sig, value, how, pe);
  }
  template <class To, class From>
  WB_FN void put_signal(To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    put_signal(by_thread, to, from, n, sig, value, how, pe);
  }

  // A signal alone. Tells of what was put before only after a fence.
  WB_FN void signal_op(uint64_t* sig, uint64_t value, signal how, uint32_t pe) const {
    if (how == signal::set) {
      signal_set(sig, value, pe);
    } else {
      signal_add(sig, value, pe);
    }
  }
  WB_FN void signal_set(uint64_t* sig, uint64_t value, uint32_t pe) const {
    const reached how = reaches_one(WB_CALL_SIGNAL, sig, pe);
    if (how == reached::by_stores) order::store<order::relaxed, order::world>(there(sig, pe), value);
    else if (how == reached::by_network) by_network(network::change::swap, sig, value, pe);
  }
  WB_FN void signal_add(uint64_t* sig, uint64_t value, uint32_t pe) const {
    const reached how = reaches_one(WB_CALL_SIGNAL, sig, pe, by_atomics);
    if (how == reached::by_stores) order::add<order::relaxed, order::world>(there(sig, pe), value);
    else if (how == reached::by_network) by_network(network::change::add, sig, value, pe);
  }

  // The value of a signal of this PE now. Says nothing of data: `test` and the waits do.
  WB_FN uint64_t signal_fetch(const uint64_t* sig) const { return order::load<order::relaxed, order::world>(sig); }
  // `seen`, if given, gets the value that ended the wait.
  WB_FN outcome signal_wait_until(const uint64_t* sig, cmp how, uint64_t value, uint64_t* seen = nullptr) const {
    uint64_t last = 0;
    const outcome o = wait_for(sig, 1, [&] { return holds(how, last = order::load<order::relaxed, order::world>(sig), value); });
    if (seen) *seen = last;
    return o;
  }

 protected:
  using world_wait::world_wait;

 private:
  WB_FN void by_network(network::change what, uint64_t* sig, uint64_t value, uint32_t pe) const {
    call_cold<&network::atomic>(net(), WB_CALL_SIGNAL, what, address(sig), value, 0, sizeof(value), pe, network::own_lane(), false);
  }
};

}  // namespace warpbell
