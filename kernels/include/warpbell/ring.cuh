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

#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {

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

}  // namespace warpbell
