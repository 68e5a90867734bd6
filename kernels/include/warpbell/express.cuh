// The way of one command through a queue that no other thread uses at the moment, for threads that follow pointers from block to
// block. The lane takes both locks of the queue before it writes the doorbell, reads the completion itself, and returns the locks when
// it has the data. It writes no word that another thread would have to read first.
#pragma once

#include <warpbell/nvme.cuh>

namespace warpbell {

/// @brief One command on the express way, on a queue of a local controller. One thread calls all functions.
template <class Queue> class express {
 public:
  /// @brief State of the command after `go`.
  enum class state : uint32_t {
    none,    // not submitted: there was no room
    flying,  // submitted as all others are, since the queue is in use, or the device takes long
    done,    // over: `finish` must follow
  };

  /// @brief Submits a private command (WB_RECORD_PRIVATE), and waits for a few looks at its completion.
  ///
  /// @param ticket The command's ticket, unless the state is `none`.
  /// @param doorbells The number of doorbell writes is added to it.
  /// @param word Status word of a command that is over.
  /// @param write Called as `write(ticket)`; posts the command.
  template <class Write> WB_FN state go(const Queue& queue, uint32_t& ticket, uint32_t& doorbells, uint32_t& word, Write write) {
    const warp::mask_t self = warp::mask_t{1} << warp::lane();
    grant g;
    uint32_t t;
    if (!queue.take(self, self, t, g)) return state::none;
    ticket = t;
    wb_queue* const q = queue.q;
    head_ = reinterpret_cast<uint64_t*>(&q->head_lock);
    const uint64_t head = order::fetch_or<order::acquire>(head_, uint64_t{1});
    // Words for later are read before the fence, after which each look at the wb_queue would be a trip to the L2.
    const void* const entry = static_cast<const char*>(q->cq) + uint64_t{queue.index(t)} * nvme::cqe_bytes;
    uint32_t* const doorbell = q->cq_doorbell;
    const uint32_t phase = queue.lap(t) & 1u, identifier = queue.index(t), after = queue.index(t + 1);
    slot_ = queue.word(t);
    free_ = queue.next_word(t);
    next_ = t + 1;
    write(t);
    if (head != uint64_t{t} << 32 || !queue.has_tail(self, g)) {
      if ((head & 1) == 0) order::store<order::release>(head_, head);
      doorbells += queue.publish_run(self, g, true, t);
      return state::flying;
    }
    order::store<order::relaxed>(queue.mark(t), queue.lap(t) + 1);
    queue.ring(t + 1);
    uint32_t w = 0;
    bool over = false;
    for (uint32_t looks = most_looks; looks && !over; --looks) {
      w = order::load_quad<order::acquire, order::system>(entry).w;
      over = (w >> nvme::cqe_phase_shift & 1u) != phase;
    }
    if (!over || (w & nvme::cqe_cid_mask) != identifier) {
      order::store<order::release>(head_, head);
      doorbells += queue.template ring_for<false>(self, t + 1);
      return state::flying;
    }
    order::mmio_store(doorbell, after);
    ++doorbells;
    const uint32_t field = w >> nvme::cqe_status_shift;
    word = (field & nvme::status_code_mask) ? status_word(WB_DEVICE_ERROR, field) : uint32_t{WB_DONE};
    return state::done;
  }

  /// @brief Returns slot and locks, after the data was copied. Only after `state::done`.
  WB_FN void finish(const Queue& queue) const {
    // One fence for all words that others acquire.
    order::fence<order::release>();
    order::store<order::after_fence>(slot_, free_);
    order::store<order::after_fence>(head_, uint64_t{next_} << 32);
    queue.release_tail(next_);
  }

 private:
  static constexpr uint32_t most_looks = 16;

  uint64_t* head_;
  uint32_t* slot_;
  uint32_t free_, next_;
};

}  // namespace warpbell
