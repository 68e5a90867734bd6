// The ring of an NVMe queue: its tickets, the states of their slots, and the commands that they stand for.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/capsules/send.cuh>
#include <warpbell/error.cuh>
#include <warpbell/ring.cuh>

namespace warpbell {

/// @brief Outcome of an operation, with what the error log needs to name the operation.
struct status {
  uint32_t word = WB_DONE;     // status word (status.h)
  uint32_t opcode_blocks = 0;  // as in wb_record
  uint64_t origin = 0;         // the token's word
  uint64_t lba = 0;            // on the device

  /// @brief Returns true if the operation succeeded.
  WB_FN explicit operator bool() const { return word == WB_DONE; }
  /// @brief Returns the kind of outcome.
  WB_FN wb_kind kind() const { return static_cast<wb_kind>(word >> WB_STATUS_KIND_SHIFT); }
  /// @brief Returns the NVMe status field (no phase bit) of a WB_DEVICE_ERROR.
  WB_FN uint32_t nvme() const { return word & WB_STATUS_NVME_MASK; }
};

/// @brief A command in flight (device, queue and ticket), or nothing, or the status of a command that was not submitted.
///
/// Plain data: a kernel may keep a token in memory, and another thread than the submitter may wait for it. Wait for a token once: a
/// wait that runs out of time gives the command up. A failed command whose token no thread waits for keeps its slot for half a
/// deadline.
struct token {
  uint64_t word = none;

  static constexpr uint64_t none = ~0ull;
  static constexpr uint32_t resolved_device = 0xfffeu;

  /// @brief Returns the token of a ticket of a queue of a device of the volume.
  WB_FN static token of(uint32_t device, uint32_t queue, uint32_t ticket) {
    return token{static_cast<uint64_t>(device) << 48 | static_cast<uint64_t>(queue) << 32 | ticket};
  }
  /// @brief Returns the token of a command that ended without being submitted. `status` is its status word.
  WB_FN static token resolved(uint32_t status) { return of(resolved_device, 0, status); }
  /// @brief Returns true if the token names nothing.
  WB_FN bool empty() const { return word == none; }
  /// @brief Returns true if the token has a status word instead of a command.
  WB_FN bool is_resolved() const { return device() == resolved_device; }
  /// @brief Returns true if the token names a command.
  WB_FN bool in_flight() const { return device() < resolved_device; }
  /// @brief Returns the index of the device in its volume.
  WB_FN uint32_t device() const { return static_cast<uint32_t>(word >> 48); }
  /// @brief Returns the index of the queue in its device.
  WB_FN uint32_t queue() const { return static_cast<uint32_t>(word >> 32) & 0xffffu; }
  /// @brief Returns the ticket, or the status word of a resolved token.
  WB_FN uint32_t ticket() const { return static_cast<uint32_t>(word); }
};

// States in the low bits of a slot word, with the lap above them. With no bit set the slot is free for that lap, or its command is
// in flight; only the holder of the ticket knows which. A completion only ORs bits in, so a device that completes a command twice
// does no harm.
namespace slot {
constexpr uint32_t completed = 1;  // the poller has seen the completion
constexpr uint32_t failed = 2;     // the completion has an error; `outcome` has the status word
constexpr uint32_t claimed = 4;    // after completed: a thread is finishing the command. Alone: the waiter gave up, the poller frees it
constexpr uint32_t states = 7;
constexpr uint32_t lap_shift = 3;
}  // namespace slot

/// @brief The ring of a wb_queue, as far as it does not depend on the meaning of its entries.
///
/// A ticket's entry is its slot, and the command identifier is the slot. `frontier` is the first ticket whose slot has not been
/// found free. A thread that runs short of credit looks at the slots from there, and moves `frontier` over the free ones with one
/// compare-and-swap. A ring of depth D holds D - 1 entries, because the device could not tell a full ring from an empty one. So
/// ticket t also needs ticket t + 1 - D to have completed. A device fetches in order, hence one completed command means that all
/// before it were fetched.
class ring_ref : public ring_core<wb_queue, ring_ref> {
 public:
  /// @brief Refers to a queue in memory that kernels see.
  WB_FN explicit ring_ref(wb_queue* queue) : ring_core(queue) {}

  /// @brief Returns the slot of a ticket, which is also its command identifier on a local controller.
  WB_FN uint32_t index(uint32_t ticket) const { return ticket & (q->depth - 1); }
  /// @brief Returns the lap of a ticket.
  WB_FN uint32_t lap(uint32_t ticket) const { return ticket >> q->log2_depth; }
  /// @brief Returns the slot word while the ticket's command is in flight, or its slot is free for the command.
  WB_FN uint32_t own_word(uint32_t ticket) const { return lap(ticket) << slot::lap_shift; }
  /// @brief Returns the slot word once the ticket's command has been finished.
  WB_FN uint32_t next_word(uint32_t ticket) const { return lap(ticket + q->depth) << slot::lap_shift; }
  /// @brief Returns the address of the ticket's slot word.
  WB_FN uint32_t* word(uint32_t ticket) const { return q->slot + index(ticket); }
  /// @brief Returns the address of the ticket's mark.
  WB_FN uint32_t* mark(uint32_t ticket) const { return q->mark + index(ticket); }
  /// @brief Returns the address of the status word of the ticket's command, which is valid if the command failed.
  WB_FN uint32_t* outcome(uint32_t ticket) const { return q->outcome + index(ticket); }
  /// @brief Returns the address of the ticket's record.
  WB_FN wb_record* record(uint32_t ticket) const { return q->record + index(ticket); }

  /// @brief Writes the doorbell for the entries of a grant, or leaves that to the warp that holds the lock. Collective over `mask`.
  ///
  /// @param got This lane has written an entry at `ticket`.
  /// @return The number of doorbell writes.
  /// @note Entries written before are visible to the device when it reads the doorbell.
  WB_FN uint32_t publish_run(warp::mask_t mask, const grant& g, bool got, uint32_t ticket) const {
    // No thread looks at marks before the tail. The host does, to learn which commands were ever submitted.
    if (has_tail(mask, g)) {
      if (got) order::store<order::relaxed>(mark(ticket), lap(ticket) + 1);
      return ring_for(mask, g.first + g.lanes);
    }
    if (got) order::store<order::release>(mark(ticket), lap(ticket) + 1);
    return publish(mask);
  }

  /// @brief Announces the entries before ticket `tail` to the device. One thread that holds the tail lock calls this.
  WB_FN void ring(uint32_t tail) const {
    // A remote controller has no doorbell of NVMe.
    uint32_t* const doorbell = q->sq_doorbell;
    const uint32_t value = index(tail);
    if (doorbell == nullptr) return capsules::ring(q, tail);
    order::fence<order::acq_rel, order::system>();
    order::mmio_store(doorbell, value);
  }

 private:
  friend class ring_core<wb_queue, ring_ref>;

  static constexpr uint32_t groups = 4;  // slots that one lane looks at, so a warp grants up to 128 tickets at once

  // Returns true if a slot word says that the ticket's command has completed, was finished, or never existed. If a warp has more
  // lanes than the ring has slots, lanes read the same word at different times. So the word may also be of the lap before.
  WB_FN bool has_completed(uint32_t w, uint32_t ticket) const {
    uint32_t state = w ^ own_word(ticket);
    return (state <= slot::states && (state & slot::completed) != 0) || (w ^ next_word(ticket)) <= slot::states;
  }

  WB_FN bool is_marked(uint32_t ticket) const { return order::load<order::acquire>(mark(ticket)) == lap(ticket) + 1; }
  WB_FN bool seems_marked(uint32_t ticket) const { return order::load<order::relaxed>(mark(ticket)) == lap(ticket) + 1; }

  WB_FN bool walk(warp::mask_t mask, uint32_t& tail) const {
    const uint32_t k = warp::prefix(mask, is_marked(tail + warp::rank(mask)));
    tail += k;
    return k == warp::count(mask);
  }

  static WB_FN_COLD bool replenish_on(by_value<ring_ref> r, warp::mask_t mask) {
    uint32_t from = 0;
    if (warp::is_leader(mask)) from = order::load<order::relaxed>(&r.q->frontier);
    from = warp::shuffle(mask, from, warp::leader(mask));
    const uint32_t n = warp::count(mask), rank = warp::rank(mask);
    uint32_t to = from;
    for (uint32_t turn = 0; turn < groups; ++turn) {
      uint32_t t = to + rank;
      uint32_t w = order::load<order::acquire>(r.word(t));
      // A completed command in a free slot is the device's mistake, or the frontier has moved and this result does not count. The
      // thread that takes the ticket clears the word.
      uint32_t k = warp::prefix(mask, ((w ^ r.own_word(t)) & ~(slot::completed | slot::failed)) == 0);
      to += k;
      if (k == n) continue;
      // The first slot that is not free: the former command of that slot decides whether the slot before it may be used.
      bool over = rank == k && r.has_completed(w, t - r.q->depth);
      if (warp::any(mask, over)) ++to;
      break;
    }
    // The last free slot is only known to be free: whether the ring may be that full is not known.
    if (to == from) return false;
    --to;
    uint32_t moved = 0;
    if (to != from && warp::is_leader(mask)) {
      moved = order::compare_exchange<order::acq_rel>(&r.q->frontier, from, to) == from;
      if (moved) r.give(to - from);
    }
    return warp::shuffle(mask, moved, warp::leader(mask)) != 0;
  }
};

}  // namespace warpbell
