// Batches of puts: an RDMA adapter gets several puts of one thread with one doorbell.
#pragma once

#include <warpbell/shmem/network_batch.cuh>
#include <warpbell/shmem/signal.cuh>

namespace warpbell {

/// @brief Memory of one thread for the work requests of a batch: 96 bytes for each. A local variable of a kernel, or shared memory.
///
/// @tparam n Work requests that a batch collects before it posts them.
template <uint32_t n = 8> struct batch_space {
  static_assert(n != 0, "a batch has room for one work request or more");

  mlx5::work_request entry[n];
  network::pending pending;
};

/// @brief Puts and signals of one thread to one PE, as `world_ref::batch` returns it. One thread makes all calls.
///
/// Over an RDMA adapter the calls collect work requests in a batch_space, and `end` or the end of the object's life posts them with one
/// doorbell. If the space is full, or has a quarter as many as the ring has blocks, those are posted before the next is added. They are
/// executed in the order of the calls. Requests of other calls that the thread makes meanwhile come before those that are collected, and `quiet`,
/// `flush` and `fence` do not cover these. To a PE that loads and stores reach, each call is that of the world, at once.
/// @note Failures are in the run's error log. Work requests that could not be posted are dropped.
class put_batch : private world_signal {
 public:
  /// @brief Begins a batch in a space that no other batch uses. One thread calls this.
  ///
  /// @pre The space, the world and the sources outlive the batch.
  template <uint32_t n> WB_FN put_batch(const world_signal& world, batch_space<n>& space, uint32_t pe)
      : world_signal(world), pending_(&space.pending), pe_(pe), collects_(!all_by_stores() && pe < n_pes() && !stores_reach(pe)) {
    if (collects_) space.pending = network::pending{space.entry, n, 0};
  }
  /// @brief Posts what was collected. One thread calls this.
  WB_FN ~put_batch() { end(); }
  put_batch(const put_batch&) = delete;
  put_batch& operator=(const put_batch&) = delete;

  /// @brief Copies `n` elements to symmetric address `to`, without waiting. One thread calls this.
  ///
  /// @pre The source stays unchanged until `end`, and a `flush` or `quiet` behind it.
  template <class To, class From> WB_FN void put_nbi(To to, From from, size_t n) {
    if (!collects_) return world_signal::put_nbi(to, from, n, pe_);
    using T = element_t<To>;
    T* d = to;
    const T* f = from;
    const size_t bytes = bytes_of(n, sizeof(T));
    if (!is_good(WB_CALL_PUT, d, bytes, 1)) return;
    call_cold<&network::batch_put>(net(), pending_, address(d), address(f), bytes, pe_, lane());
  }
  /// @brief Stores one element of 1, 2, 4, 8 or 16 bytes to symmetric address `to`. One thread calls this.
  template <class To> WB_FN void p(To to, element_t<To> value) {
    if (!collects_) return world_signal::p(to, value, pe_);
    element_t<To>* d = one(to);
    if (!is_good(WB_CALL_PUT, d, sizeof(value), sizeof(value))) return;
    const order::detail::pair all = widened(value);
    call_cold<&network::batch_value>(net(), pending_, address(d), all.low, all.high, sizeof(value), pe_, lane());
  }
  /// @brief Copies `n` elements, then sets or adds to the signal word there. One thread calls this.
  ///
  /// A thread that waits for the signal sees the data, and that of all earlier calls of the batch.
  template <class To, class From> WB_FN void put_signal_nbi(To to, From from, size_t n, uint64_t* sig, uint64_t value, signal how) {
    put_nbi(to, from, n);
    signal_op(sig, value, how);
  }
  /// @brief Sets or adds to a signal word, after the puts before. One thread calls this. A thread that waits for the signal sees them.
  WB_FN void signal_op(uint64_t* sig, uint64_t value, signal how) {
    if (!collects_) {
      order_at(pe_);
      return world_signal::signal_op(sig, value, how, pe_);
    }
    if (!is_good(WB_CALL_SIGNAL, sig, sizeof(*sig), sizeof(*sig))) return;
    const network::change what = how == signal::set ? network::change::swap : network::change::add;
    call_cold<&network::batch_signal>(net(), pending_, what, address(sig), value, pe_, lane());
  }

  /// @brief Posts what was collected. One thread calls this. More calls may follow.
  WB_FN void end() {
    if (collects_ && pending_->count != 0) call_cold<&network::batch_post>(net(), pending_, pe_, lane());
  }

 private:
  // Returns true if the memory is symmetric. Otherwise enters the error.
  template <class T> WB_FN bool is_good(wb_shmem_call call, const T* at, size_t bytes, size_t alignment) const {
    if (in_heap(at, bytes, alignment)) return true;
    fail(call, status_word(WB_BAD_ARGUMENT), at, bytes, pe_);
    return false;
  }

  network::pending* pending_;
  uint32_t pe_;
  bool collects_;
};

}  // namespace warpbell
