// The ring under a queue pair, NVMe's or an RDMA adapter's: who may write which entry, and publishing entries in order.
//
// A ticket is a number of a free-running 32-bit counter, and stands for one entry of the ring: t mod depth, on lap t / depth.
// Nobody holds a ticket without the right to write its entry at once, so a thread that gives up (deadline, stop flag) leaves no
// hole that others would have to wait behind:
//
//   * `credit` and `ticket` are one 64-bit word, from which the lanes of a warp take theirs with one atomic addition.
//   * Who finds less credit than it has taken, while there was none missing before, has the word to itself: everybody else finds
//     credit below nothing, and leaves. It adds what is spare, keeps what it needs, and puts the word right with an exchange.
//   * Who runs short looks for entries that may be used again, and adds their number to `credit`, or to `spare` while credit is
//     below nothing. What that takes is the ring's own business (`replenish`).
//
// Publishing. Most find the tail right before their entries and nobody at the lock. They ask for both by a compare-and-swap as soon as
// they have their tickets, write their entries while it is under way, and ring for them without anybody looking at marks. Everybody
// else release-stores the entries' marks; then the warp tries the tail lock. The winner reads marks a warp at a time, and rings
// the doorbell once for the whole run. A loser leaves at once: the lock counts who tried, and the winner looks at the next mark
// again if anybody did. Both are read-modify-writes of one word, so one of the two sees the other; no fence is needed for that.
// Who has rung without looking at marks looks at the next one too: somebody may have tried before it, and found it missing.
//
// All counters wrap; laps are compared for equality only.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/clock.cuh>
#include <warpbell/error.cuh>
#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {

// How an operation ended, and what it was, for the error log.
struct status {
  uint32_t word = WB_DONE;      // status.h
  uint32_t opcode_blocks = 0;   // as in wb_record
  uint64_t origin = 0;          // the token's word
  uint64_t lba = 0;             // on the device

  WB_FN explicit operator bool() const { return word == WB_DONE; }
  WB_FN wb_kind kind() const { return static_cast<wb_kind>(word >> WB_STATUS_KIND_SHIFT); }
  // The NVMe status field (no phase bit) of a WB_DEVICE_ERROR.
  WB_FN uint32_t nvme() const { return word & WB_STATUS_NVME_MASK; }
};

// A command in flight: device, queue and ticket; or nothing; or the status of a command that ended before it began. Plain
// data: may be kept in memory, and waited for by another thread than the one that submitted. Wait for it once: a wait that runs
// out of time gives the command up. A failed command that nobody asks for keeps its slot for half a deadline.
struct token {
  uint64_t word = none;

  static constexpr uint64_t none = ~0ull;
  static constexpr uint32_t resolved_device = 0xfffeu;

  WB_FN static token of(uint32_t device, uint32_t queue, uint32_t ticket) {
    return token{static_cast<uint64_t>(device) << 48 | static_cast<uint64_t>(queue) << 32 | ticket};
  }
  WB_FN static token resolved(uint32_t status) { return of(resolved_device, 0, status); }
  WB_FN bool empty() const { return word == none; }
  WB_FN bool is_resolved() const { return device() == resolved_device; }
  WB_FN bool in_flight() const { return device() < resolved_device; }
  WB_FN uint32_t device() const { return static_cast<uint32_t>(word >> 48); }
  WB_FN uint32_t queue() const { return static_cast<uint32_t>(word >> 32) & 0xffffu; }
  WB_FN uint32_t ticket() const { return static_cast<uint32_t>(word); }
};

// States in the low bits of a slot word, the lap above them. Neither bit set: free for that lap, or in flight (only who holds
// the ticket knows which). A completion only ever ORs bits in, so a device that completes a command twice does no harm.
namespace slot {
constexpr uint32_t completed = 1;  // the poller has seen the completion
constexpr uint32_t failed = 2;     // with an error; `outcome` has the status word
constexpr uint32_t claimed = 4;    // after completed: somebody is finishing it. Alone: its waiter gave up, the poller frees it
constexpr uint32_t states = 7;
constexpr uint32_t lap_shift = 3;
}  // namespace slot

// Tickets for the first so many of the lanes that wanted some, and the answer of the tail lock to who asked for it. The same in
// all lanes, but for `lock`, which is the leader's.
struct grant {
  uint32_t first = 0;
  uint32_t lanes = 0;
  bool low = false;  // credit runs short, or none is left: time to `replenish`, after publishing
  uint64_t lock = 0;
};

// What rings of any kind share. `Queue` has the words credit, ticket, spare and tail_lock; `Ring`, which derives from this, says
//
//   is_marked(ticket)        whether what stands at exactly this ticket has been written
//   seems_marked(ticket)     the same without an order
//   walk(mask, tail)         moves the tail over what is marked, a lane each; collective; whether there may be more
//   ring(tail)               tells the device that the entries before this ticket are there: a fence, and what a doorbell is
//   replenish_on(ring, mask) looks for free entries and turns them into credit (`give`); collective; whether there was any
template <class Queue, class Ring> class ring_core {
 public:
  WB_FN explicit ring_core(Queue* queue) : q(queue) {}

  Queue* q;

  // Takes tickets for as many lanes of `want` as there is room for, lowest lanes first; never waits. `unit` consecutive tickets
  // for each; `ticket` is a lane's first. Collective over `mask`, of which `want` is a part. True in the lanes that got theirs;
  // they must publish them without waiting for anything.
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

  // Whether the lock is ours, with the tail at our first ticket. Then write what is left to write, and `ring_for` it; otherwise
  // mark it, and `publish`. Collective.
  WB_FN bool has_tail(warp::mask_t mask, const grant& g) const {
    // The lock's own words: a comparison could be made, and waited for, before the entries are written.
    return warp::shuffle(mask, g.lock, warp::leader(mask)) == static_cast<uint64_t>(g.first) << 32;
  }

  // Rings the doorbell for our entries, which end before this ticket, and for what is marked behind them. Collective; every lane
  // of the mask that has written entries takes part. Answers the number of doorbells rung.
  WB_FN uint32_t ring_for(warp::mask_t mask, uint32_t end) const {
    bool more = false;
    warp::sync(mask);
    if (warp::is_leader(mask)) {
      self().ring(end);
      // Behind the fence, so of after the lock was taken; what it tells of is looked at properly by `publish`.
      const bool behind = self().seems_marked(end);
      const uint64_t held = order::exchange<order::release>(lock(), static_cast<uint64_t>(end) << 32);
      more = static_cast<uint32_t>(held) > 1 || behind;
    }
    return warp::any(mask, more) ? 1 + publish(mask) : 1;
  }

  // Rings the doorbell for every marked entry from the tail on, unless somebody else is at it, who will then see ours too.
  // Collective; every lane of the mask that has set marks takes part. Answers the number of doorbells rung.
  WB_FN uint32_t publish(warp::mask_t mask) const { return publish_on(self(), mask); }

  // Looks for free entries and turns them into credit. Collective; whether there was any.
  WB_FN bool replenish(warp::mask_t mask) const { return Ring::replenish_on(self(), mask); }

 protected:
  // The number of tickets that may be taken now and the next ticket, or less than 0 while somebody puts the two right.
  WB_FN int32_t credit(uint32_t& ticket) const {
    const uint64_t seen = order::load<order::relaxed>(counts());
    ticket = static_cast<uint32_t>(seen >> 32);
    return static_cast<int32_t>(seen);
  }

  // More tickets that may be taken.
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
  // The count of who tried, and the tail above it; the credit, and the next ticket above it.
  WB_FN uint64_t* lock() const { return reinterpret_cast<uint64_t*>(&q->tail_lock); }
  WB_FN uint64_t* counts() const { return reinterpret_cast<uint64_t*>(&q->credit); }

  static WB_FN_COLD uint32_t publish_on(Ring r, warp::mask_t mask) {
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

  // Low bit, lanes << 32, first ticket; the same in all lanes.
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

  // By who has taken more than the `had` tickets that there were, from `first` on: how many whole units it gets.
  static WB_FN_COLD uint32_t complete_draw(Ring r, uint32_t first, uint32_t had, uint32_t wanted, uint32_t unit) {
    had += order::exchange<order::acq_rel>(&r.q->spare, 0u);
    uint32_t n = had < wanted ? had : wanted;
    n -= n % unit;
    order::exchange<order::acq_rel>(r.counts(), static_cast<uint64_t>(first + n) << 32 | (had - n));
    return n / unit;
  }
};

// The ring of a wb_queue, as far as it does not depend on what its entries mean. A ticket's entry is its slot, and the command
// identifier is the slot. `frontier` is the first ticket whose slot has not been found free; who runs short of credit looks at
// the slots from there and moves it over the free ones with one compare-and-swap. A ring of depth D holds D - 1 entries (a full
// ring and an empty one would look the same to the device), so ticket t also needs ticket t + 1 - D to have completed. A device
// fetches in order, hence one completed means all before it were fetched.
class ring_ref : public ring_core<wb_queue, ring_ref> {
 public:
  WB_FN explicit ring_ref(wb_queue* queue) : ring_core(queue) {}

  WB_FN uint32_t index(uint32_t ticket) const { return ticket & (q->depth - 1); }
  WB_FN uint32_t lap(uint32_t ticket) const { return ticket >> q->log2_depth; }
  // The slot word while the ticket's command is in flight (or its slot free for it), and once it has been finished.
  WB_FN uint32_t own_word(uint32_t ticket) const { return lap(ticket) << slot::lap_shift; }
  WB_FN uint32_t next_word(uint32_t ticket) const { return lap(ticket + q->depth) << slot::lap_shift; }
  WB_FN uint32_t* word(uint32_t ticket) const { return q->slot + index(ticket); }
  WB_FN uint32_t* mark(uint32_t ticket) const { return q->mark + index(ticket); }
  WB_FN uint32_t* outcome(uint32_t ticket) const { return q->outcome + index(ticket); }
  WB_FN wb_record* record(uint32_t ticket) const { return q->record + index(ticket); }

  // Rings for the entries of a grant, which the lanes with `got` have written at their tickets; or leaves that to who is at it.
  // Collective. The number of doorbells rung.
  WB_FN uint32_t publish_run(warp::mask_t mask, const grant& g, bool got, uint32_t ticket) const {
    // Nobody looks at marks before the tail but the host, which asks them what was ever submitted.
    if (has_tail(mask, g)) {
      if (got) order::store<order::relaxed>(mark(ticket), lap(ticket) + 1);
      return ring_for(mask, g.first + g.lanes);
    }
    if (got) order::store<order::release>(mark(ticket), lap(ticket) + 1);
    return publish(mask);
  }

 private:
  friend class ring_core<wb_queue, ring_ref>;

  static constexpr uint32_t groups = 4;  // slots looked at by one lane, so a warp grants up to 128 tickets at once

  // Whether a slot word says that the ticket's command has completed, or been finished, or never was. (Where a warp has more
  // lanes than the ring has slots, lanes read the same word at different times, so it may also be of the lap before.)
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

  WB_FN void ring(uint32_t tail) const {
    order::fence<order::acq_rel, order::system>();
    order::mmio_store(q->sq_doorbell, index(tail));
  }

  static WB_FN_COLD bool replenish_on(ring_ref r, warp::mask_t mask) {
    uint32_t from = 0;
    if (warp::is_leader(mask)) from = order::load<order::relaxed>(&r.q->frontier);
    from = warp::shuffle(mask, from, warp::leader(mask));
    const uint32_t n = warp::count(mask), rank = warp::rank(mask);
    uint32_t to = from;
    for (uint32_t turn = 0; turn < groups; ++turn) {
      uint32_t t = to + rank;
      uint32_t w = order::load<order::acquire>(r.word(t));
      // A completed command in a slot that is free is the device's mistake (or the frontier has moved, and what is found here
      // does not count); who takes the ticket clears it.
      uint32_t k = warp::prefix(mask, ((w ^ r.own_word(t)) & ~(slot::completed | slot::failed)) == 0);
      to += k;
      if (k == n) continue;
      // The first slot that is not free: its former command decides whether the one before may be used.
      bool over = rank == k && r.has_completed(w, t - r.q->depth);
      if (warp::any(mask, over)) ++to;
      break;
    }
    // Of the last free slot it is known only that it is free.
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
