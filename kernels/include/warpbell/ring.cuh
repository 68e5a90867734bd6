// The ring under a queue pair, of NVMe or of an RDMA adapter: assigns entries to threads, and publishes entries in order.
//
// A ticket is a value of a free-running 32-bit counter. It stands for one entry of the ring: t mod depth, on lap t / depth. A
// thread holds a ticket only if it may write the entry at once. So a thread that gives up (deadline, stop flag) leaves no hole that
// others would have to wait behind:
//
//   * `credit` and `ticket` are one 64-bit word. The lanes of a warp take their tickets from it with one atomic addition.
//   * A thread that takes more credit than there is makes the credit negative, and then owns the word. Threads that find
//     negative credit leave. The owner adds the spare credit, keeps what it needs, and corrects the word with an exchange.
//   * A thread that runs short looks for entries that may be used again. It adds their number to `credit`, or to `spare` while
//     credit is negative. How it looks depends on the kind of ring (`replenish`).
//
// Publishing. Most warps find the tail right before their entries, and the lock free. A warp asks for both by a compare-and-swap as
// soon as it has its tickets, and writes its entries while that is in flight. If it gets both, it writes the doorbell for its
// entries, and no thread looks at marks. Otherwise it release-stores the marks of its entries and then tries the tail lock. The
// winner reads marks a warp at a time, and writes the doorbell once for the whole run. A loser leaves at once: the lock counts
// attempts, and after any the winner looks at the next mark again. Both are read-modify-writes of one word, so one of the two sees
// the other, without a fence. A warp that wrote the doorbell without looking at marks looks at the next mark too. Another warp may
// have tried before, and found the mark missing.
//
// All counters wrap. Laps are compared for equality only.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/capsules/send.cuh>
#include <warpbell/clock.cuh>
#include <warpbell/error.cuh>
#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

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

// Tickets for the first `lanes` of the lanes that wanted some, and the result of the attempt at the tail lock. All lanes have the
// same values, except for `lock`, which is the leader's.
struct grant {
  uint32_t first = 0;
  uint32_t lanes = 0;
  bool low = false;  // credit runs short or is used up: call `replenish` after publishing
  uint64_t lock = 0;
};

/// @brief Common part of all rings. `Queue` has the words credit, ticket, spare and tail_lock. `Ring` derives from this class and
/// defines:
///
/// - `is_marked(ticket)`: returns true if the entry of exactly this ticket is written (acquire on device).
/// - `seems_marked(ticket)`: as `is_marked`, without an order.
/// - `walk(mask, tail)`: moves the tail over marked entries, one for each lane. Collective. Returns true if there may be more.
/// - `ring(tail)`: announces the entries before this ticket to the device: a fence, then the doorbell.
/// - `replenish_on(ring, mask)`: looks for free entries and turns them into credit (`give`). Collective. Returns true if it found
///   any.
template <class Queue, class Ring> class ring_core {
 public:
  /// @brief Refers to a queue in memory that kernels see.
  WB_FN explicit ring_core(Queue* queue) : q(queue) {}

  Queue* q;

  /// @brief Takes tickets for as many lanes of `want` as there is room for, lowest lanes first. Never waits. Collective over
  /// `mask`.
  ///
  /// @param want The lanes that want tickets, a subset of `mask`.
  /// @param ticket The first of this lane's tickets, if it got some.
  /// @param g The grant, for `publish_run` or `ring_for`.
  /// @param unit Consecutive tickets for each lane.
  /// @return True in the lanes that got tickets. They must publish them without waiting for anything.
  WB_FN bool take(warp::mask_t mask, warp::mask_t want, uint32_t& ticket, grant& g, uint32_t unit = 1) const {
    const uint32_t wanted = warp::popcount(want);
    const uint64_t got = draw(mask, wanted, unit);
    g = grant{static_cast<uint32_t>(got), count_of(got), (got & low_bit) != 0, 0};
    if (g.lanes != 0 && warp::is_leader(mask)) {
      const uint64_t free = static_cast<uint64_t>(g.first) << 32;
      g.lock = order::compare_exchange<order::before_stores>(lock(), free, free | 1);
    }
    const uint32_t rank = warp::popcount(want & ((1u << warp::lane()) - 1u));
    ticket = g.first + rank * unit;
    return (want >> warp::lane() & 1u) != 0 && rank < g.lanes;
  }

  /// @brief Returns true in all lanes if this warp holds the tail lock, with the tail at its first ticket. Collective over `mask`.
  ///
  /// If true, write the rest of the entries and call `ring_for`. Otherwise mark the entries and call `publish`.
  WB_FN bool has_tail(warp::mask_t mask, const grant& g) const {
    // The lock's own words are compared: a saved comparison could be computed, and waited for, before the entries are written.
    return warp::shuffle(mask, g.lock, warp::leader(mask)) == static_cast<uint64_t>(g.first) << 32;
  }

  /// @brief Writes the doorbell for this warp's entries, which end before ticket `end`, and for marked entries behind them.
  ///
  /// Collective over `mask`; every lane of the mask that has written entries takes part. Requires `has_tail`.
  /// @tparam rings False if the caller has written the doorbell for its entries already.
  /// @return The number of doorbell writes.
  /// @note Entries written before are visible to the device: `ring` has a fence before the doorbell.
  template <bool rings = true> WB_FN uint32_t ring_for(warp::mask_t mask, uint32_t end) const {
    bool more = false;
    warp::sync(mask);
    if (warp::is_leader(mask)) {
      if (rings) self().ring(end);
      // After the fence, so this load is performed after the lock was taken. `publish` checks the mark properly.
      const bool behind = self().seems_marked(end);
      const uint64_t held = order::exchange<order::release>(lock(), static_cast<uint64_t>(end) << 32);
      more = static_cast<uint32_t>(held) > 1 || behind;
    }
    return warp::any(mask, more) ? 1 + publish(mask) : 1;
  }

  /// @brief Returns the tail lock, whose holder has announced the entries before ticket `end`. One thread that has the lock
  /// calls this, after a fence that releases what it wrote.
  WB_FN void release_tail(uint32_t end) const {
    // Neither waits for the other: a mark that is set after this look was followed by an attempt at the lock.
    const bool behind = self().seems_marked(end);
    const uint64_t held = order::exchange<order::after_fence>(lock(), static_cast<uint64_t>(end) << 32);
    if (static_cast<uint32_t>(held) > 1 || behind) publish(warp::mask_t{1} << warp::lane());
  }

  /// @brief Writes the doorbell for every marked entry from the tail on, unless another warp holds the lock, which then sees these
  /// marks.
  ///
  /// Collective over `mask`; every lane of the mask that has set marks takes part.
  /// @return The number of doorbell writes.
  WB_FN uint32_t publish(warp::mask_t mask) const { return publish_on(self(), mask); }

  /// @brief Looks for free entries and turns them into credit. Collective over `mask`. Returns true in all lanes if it found any.
  WB_FN bool replenish(warp::mask_t mask) const { return Ring::replenish_on(self(), mask); }

 protected:
  // Returns the number of tickets that may be taken now, and the next ticket. Negative while a thread corrects the two.
  WB_FN int32_t credit(uint32_t& ticket) const {
    const uint64_t seen = order::load<order::relaxed>(counts());
    ticket = static_cast<uint32_t>(seen >> 32);
    return static_cast<int32_t>(seen);
  }

  // Adds `n` to the tickets that may be taken.
  WB_FN void give(uint32_t n) const {
    uint64_t seen = order::load<order::relaxed>(counts());
    for (uint32_t tries = give_tries; tries && static_cast<int32_t>(seen) >= 0; --tries) {
      const uint64_t found = order::compare_exchange<order::acq_rel>(counts(), seen, seen + n);
      if (found == seen) return;
      seen = found;
    }
    order::fetch_add<order::acq_rel>(&q->spare, n);
  }

 private:
  WB_FN const Ring& self() const { return static_cast<const Ring&>(*this); }
  // The number of attempts, with the tail above it.
  WB_FN uint64_t* lock() const { return reinterpret_cast<uint64_t*>(&q->tail_lock); }
  // The credit, with the next ticket above it.
  WB_FN uint64_t* counts() const { return reinterpret_cast<uint64_t*>(&q->credit); }

  static WB_FN_COLD uint32_t publish_on(by_value<Ring> r, warp::mask_t mask) {
    uint32_t doorbells = 0;
    bool again = true;
    warp::sync(mask);
    while (again) {
      uint64_t before = 0;
      if (warp::is_leader(mask)) before = order::fetch_add<order::acq_rel>(r.lock(), uint64_t{1});
      before = warp::shuffle(mask, before, warp::leader(mask));
      if (static_cast<uint32_t>(before) != 0) break;
      const uint32_t old_tail = static_cast<uint32_t>(before >> 32);
      uint32_t tail = old_tail;
      while (r.walk(mask, tail)) {
      }
      uint32_t more = 0;
      if (warp::is_leader(mask)) {
        if (tail != old_tail) r.ring(tail);
        uint64_t held = order::exchange<order::acq_rel>(r.lock(), static_cast<uint64_t>(tail) << 32);
        more = static_cast<uint32_t>(held) > 1 && r.is_marked(tail);
      }
      doorbells += tail != old_tail;
      again = warp::shuffle(mask, more, warp::leader(mask)) != 0;
    }
    return doorbells;
  }

  static constexpr uint64_t low_bit = uint64_t{1} << 63;
  static constexpr uint32_t low_water = 2 * warp::width;
  static constexpr uint32_t give_tries = 4;
  WB_FN static uint32_t count_of(uint64_t drawn) { return static_cast<uint32_t>((drawn & ~low_bit) >> 32); }

  // Takes tickets. Returns low bit, lanes << 32 and first ticket, in all lanes.
  WB_FN uint64_t draw(warp::mask_t mask, uint32_t lanes, uint32_t unit) const {
    uint64_t got = 0;
    if (warp::is_leader(mask)) {
      const uint32_t wanted = lanes * unit;
      const uint64_t before = order::fetch_add<order::before_stores>(counts(), (static_cast<uint64_t>(wanted) << 32) - wanted);
      const uint32_t first = static_cast<uint32_t>(before >> 32);
      const int32_t had = static_cast<int32_t>(before);
      uint32_t n = lanes;
      if (had < static_cast<int32_t>(wanted)) n = had < 0 ? 0 : complete_draw(self(), first, static_cast<uint32_t>(had), wanted, unit);
      if (n) got = static_cast<uint64_t>(n) << 32 | first;
      if (had < static_cast<int32_t>(wanted + low_water)) got |= low_bit;
    }
    return warp::shuffle(mask, got, warp::leader(mask));
  }

  // Corrects the word after this thread took more than the `had` tickets that were left, from `first` on. Returns the whole units
  // that it keeps.
  static WB_FN_COLD uint32_t complete_draw(by_value<Ring> r, uint32_t first, uint32_t had, uint32_t wanted, uint32_t unit) {
    had += order::exchange<order::acq_rel>(&r.q->spare, 0u);
    uint32_t n = had < wanted ? had : wanted;
    n -= n % unit;
    order::exchange<order::acq_rel>(r.counts(), static_cast<uint64_t>(first + n) << 32 | (had - n));
    return n / unit;
  }
};

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
