// A send queue as kernels use it: how its blocks are published, completed, waited for and freed. post.cuh posts work requests.
//
// Tickets count blocks of 64 bytes (ring.cuh). An entry of two blocks, or several entries that belong together, take consecutive
// tickets in one go; each block has its place in the ring by itself, so they may go across the ring's end. All blocks of the
// ring can be in use at once: what the device sees are indices of 16 bits, and a ring has at most half as many blocks.
//
// Signals. Of the entries that lanes post together, the last one asks for a completion, the others only have one if they fail:
// completions of a queue pair come in order, so the last one's speaks for all. Lanes that post together get consecutive tickets or
// none, hence every run of tickets ends with a signalled entry, and nobody waits for a completion that was never asked for.
//
// Marks. One release store tells of everything that a lane has posted: that of its first block's mark, after all others. So
// whoever has seen the first mark may go by the others, and by all that was written. An entry must not be rung for by halves: the
// mark of its first block says that it has a second, over which the tail then moves, whether that one's mark has been seen or not.
//
// Completion. A completion names the first block of its entry. The poller, one warp at a time under `head_lock`, stores the
// number of the block behind that one in `completed`, which is all that waiters look at; and then moves it over the entry's
// second block, if its mark says that it has one. A waiter therefore waits for the block behind the *first* of its last entry.
//
// Failure. A queue pair that fails completes nothing any more. The first error in ring order is its cause; behind it come flush
// errors for everything that was posted, which are not looked at. What had completed before is done, the rest has failed.
//
// Free blocks. `granted` is the first ticket whose block is not known free. Whoever runs short walks from there to `completed` over
// blocks that are not held, and turns them into credit. A held block is one whose staging somebody still reads.
#pragma once

#include <warpbell/mlx5/cqe.cuh>
#include <warpbell/mlx5/send_ring.cuh>
#include <warpbell/ring.cuh>

namespace warpbell {
namespace mlx5 {

// How work requests ended: status.h.
struct outcome {
  uint32_t word = WB_DONE;

  WB_FN explicit operator bool() const { return word == WB_DONE; }
  WB_FN wb_kind kind() const { return static_cast<wb_kind>(word >> WB_STATUS_KIND_SHIFT); }
  // Of a WB_NETWORK_ERROR.
  WB_FN uint32_t syndrome() const { return word & 0xffu; }
  WB_FN uint32_t vendor_syndrome() const { return word >> 8 & 0xffu; }
};

WB_FN uint32_t network_error(uint32_t syndrome, uint32_t vendor) {
  return static_cast<uint32_t>(WB_NETWORK_ERROR) << WB_STATUS_KIND_SHIFT | ((vendor << 8 | syndrome) & WB_STATUS_SYNDROME_MASK);
}

// Work requests that were posted; or why they were not. Plain data: any thread may wait for it, any number of times. One that is
// posted later on the same queue speaks for it too.
struct request {
  uint32_t end = 0;          // done when so many blocks are complete
  uint32_t block = 0;        // the first block
  uint32_t word = WB_DONE;   // WB_PENDING: posted. Anything else: how it ended without

  WB_FN bool in_flight() const { return word == static_cast<uint32_t>(WB_PENDING) << WB_STATUS_KIND_SHIFT; }
  WB_FN static request posted(uint32_t block, uint32_t end) {
    return request{end, block, static_cast<uint32_t>(WB_PENDING) << WB_STATUS_KIND_SHIFT};
  }
  WB_FN static request ended(uint32_t word) { return request{0, 0, word}; }
};

// The blocks that are posted together: an entry of one or two, and perhaps an entry of one block behind it, which alone may be
// signalled then.
struct extent {
  enum parts : uint32_t { is_long = 1, has_second = 2 };
  uint32_t of = 0;

  WB_FN uint32_t blocks() const { return 1 + (of & is_long) + of / has_second; }
  // Blocks behind which a completion of the last entry is waited for: it names that entry's first block.
  WB_FN uint32_t end() const { return (of & has_second) != 0 ? blocks() : 1; }
};

// A block's own piece of registered memory: as kernels see it, and as work requests name it.
struct staging {
  uint64_t at;
  local name;
};

// The parts of a wb_send_queue that do not wait.
class send_core : public ring_core<wb_send_queue, send_core> {
 public:
  WB_FN explicit send_core(wb_send_queue* queue) : ring_core(queue) {}

  WB_FN uint32_t blocks() const { return 1u << q->log_blocks; }
  WB_FN uint32_t index(uint32_t ticket) const { return ticket & (blocks() - 1); }
  WB_FN queue_word word() const { return queue_word{q->queue_word}; }

  // The part of a send queue that entries are written with, read before a ticket is asked for: what an acquire leaves of the L1 is
  // nothing, so that it would have to be waited for afterwards.
  struct writer {
    uint64_t ring;
    uint32_t log_blocks;
    queue_word word;

    WB_FN void store(uint32_t ticket, const block& b) const { send_ring(ring, log_blocks).store(ticket, b); }
  };
  WB_FN writer to_write() const { return writer{q->ring, q->log_blocks, word()}; }

  // Rings for the entries of a grant, which the lanes with `got` have written at their `ticket`s; or leaves that to who is at it.
  // `x` is the extent of each. Collective.
  WB_FN void publish_run(warp::mask_t mask, const grant& g, bool got, uint32_t ticket, extent x) const {
    const bool is_long = (x.of & extent::is_long) != 0;
    const uint32_t first = marked(ticket, is_long ? first_of_two : only_block);
    for (uint32_t t = ticket + 1; got && t != ticket + x.blocks(); ++t) {
      order::store<order::relaxed>(mark(t), marked(t, is_long && t == ticket + 1 ? second_of_two : only_block));
    }
    if (has_tail(mask, g)) {
      // The poller has to know of second blocks, from marks. And a mark of 2^32 blocks ago would be taken for one of now.
      if (got) order::store<order::relaxed>(mark(ticket), first);
      ring_for(mask, g.first + g.lanes * x.blocks());
      return;
    }
    if (got) order::store<order::release>(mark(ticket), first);
    publish(mask);
  }

  // Takes what completions have come off the ring, unless somebody else is at it. Collective.
  WB_FN void poll(warp::mask_t mask) const {
    if (!warp::any(mask, warp::is_leader(mask) && is_polled())) poll(mask, order::load<order::relaxed>(&q->completed) + blocks());
  }

  // Whether `end` blocks are complete, or will never be: `word` says how it ended.
  WB_FN bool is_complete(uint32_t end, uint32_t& word) const { return is_over(order::load<order::acquire>(ended()), end, word); }

  // The same without looking first. One lane alone looks no further than it has to for `end`. Answers what has ended, for `settles`,
  // or `not_looked`.
  WB_FN uint64_t poll(warp::mask_t mask, uint32_t end) const { return poll_on(*this, mask, end); }
  static constexpr uint64_t not_looked = ~0ull;  // a failure that there is not
  // Whether somebody polls.
  WB_FN bool is_polled() const { return (static_cast<uint32_t>(order::load<order::relaxed>(head())) & 1u) != 0; }
  WB_FN static bool is_over(uint64_t ended, uint32_t end, uint32_t& word) {
    const bool complete = static_cast<int32_t>(static_cast<uint32_t>(ended) - end) >= 0;
    word = complete ? static_cast<uint32_t>(WB_DONE) : static_cast<uint32_t>(ended >> 32);
    return complete || word != 0;
  }

  WB_FN staging staging_of(uint32_t ticket) const {
    const uint64_t offset = uint64_t{index(ticket)} * q->staging_bytes;
    return staging{q->staging + offset, local{q->staging_address + offset, be32{q->staging_key}}};
  }
  // Keeps a block from being used again after it has completed. By who posts it, before it is marked.
  WB_FN void hold(uint32_t ticket) const { order::store<order::relaxed>(hold_word(ticket), 1u); }
  // Ends that, by the same thread or another. A block that has not completed yet may be let go too: what lands in it then is
  // nobody's, and it is free once it has.
  WB_FN void let_go(uint32_t ticket) const { order::store<order::release>(hold_word(ticket), 0u); }

 private:
  friend class ring_core<wb_send_queue, send_core>;

  // Low bits of a mark; lap + 1 above them.
  static constexpr uint32_t only_block = 0, first_of_two = 1, second_of_two = 2, kinds = 3, kind_bits = 2;
  static constexpr uint32_t patient_looks = WB_GPU ? 4 : 1;
  // Looking for free blocks: as many by each lane together, and in all by a lane alone.
  static constexpr uint32_t at_once = 4, least_looks = 8;

  WB_FN uint64_t* head() const { return reinterpret_cast<uint64_t*>(&q->head_lock); }
  WB_FN uint32_t* mark(uint32_t ticket) const { return q->mark + index(ticket); }
  WB_FN uint32_t* hold_word(uint32_t ticket) const { return q->hold + index(ticket); }
  WB_FN uint32_t marked(uint32_t ticket, uint32_t kind) const { return ((ticket >> q->log_blocks) + 1) << kind_bits | kind; }
  WB_FN bool is_marked(uint32_t ticket) const {
    return ((order::load<order::acquire>(mark(ticket)) ^ marked(ticket, only_block)) & ~kinds) == 0;
  }
  WB_FN bool seems_marked(uint32_t ticket) const {
    return ((order::load<order::relaxed>(mark(ticket)) ^ marked(ticket, only_block)) & ~kinds) == 0;
  }
  // Moves the tail over what is marked, never to the second half of an entry.
  WB_FN bool walk(warp::mask_t mask, uint32_t& tail) const {
    const uint32_t t = tail + warp::rank(mask), n = warp::count(mask);
    const uint32_t difference = order::load<order::acquire>(mark(t)) ^ marked(t, only_block);
    uint32_t k = warp::prefix(mask, difference <= kinds);
    if (warp::any(mask, difference == first_of_two && warp::rank(mask) + 1 == k)) ++k;
    tail += k;
    return k >= n;
  }

  // `completed`, and `failed` above it: told together, so that who sees a failure sees what had completed before it.
  WB_FN uint64_t* ended() const { return reinterpret_cast<uint64_t*>(&q->completed); }
  WB_FN static uint64_t ended_as(uint32_t completed, uint32_t failed) { return static_cast<uint64_t>(failed) << 32 | completed; }

  // The device reads the ring and, when the queue pair fails, the record; it must find the entries there that either tells of.
  // Both in the memory of this GPU: what is visible to the GPU is what the device finds, as it reads through the same L2.
  // In host memory stores may still be on their way over the bus, which only a fence of the whole system waits for; it takes
  // several times as long.
  WB_FN void ring(uint32_t tail) const {
    uint32_t* record = &static_cast<qp_record*>(q->record)->send;
    uint64_t* bell = q->doorbell;
    const uint64_t doorbells = doorbell(tail, word());
    if ((q->flags & WB_SEND_NEAR) != 0) {
      order::fence<order::release>();
      order::store<order::relaxed, order::system>(record, send_record(tail));
      order::fence<order::release>();
    } else {
      order::fence<order::release, order::system>();
      order::store<order::relaxed, order::system>(record, send_record(tail));
      order::fence<order::release, order::system>();
    }
    order::mmio_store(bell, doorbells);
  }

  static WB_FN_COLD bool replenish_on(send_core r, warp::mask_t mask) {
    uint32_t from = 0, end = 0;
    if (warp::is_leader(mask)) {
      from = order::load<order::relaxed>(&r.q->granted);
      end = order::load<order::acquire>(&r.q->completed);
    }
    from = warp::shuffle(mask, from, warp::leader(mask));
    end = warp::shuffle(mask, end, warp::leader(mask));
    const uint32_t n = warp::count(mask), rank = warp::rank(mask);
    uint32_t to = from;
    const uint32_t most = n * at_once > least_looks ? n * at_once : least_looks;
    for (bool all = true; all && to - from < most;) {
      uint32_t held[at_once];
#pragma unroll
      for (uint32_t j = 0; j < at_once; ++j) held[j] = order::load_before_fence(r.hold_word(to + j * n + rank));
      order::fence<order::acquire>();
#pragma unroll
      for (uint32_t j = 0; j < at_once; ++j) {
        const uint32_t k = warp::prefix(mask, all && static_cast<int32_t>(end - (to + rank)) > 0 && held[j] == 0);
        to += k;
        all = k == n;
      }
    }
    // What lanes have acquired with these words, the leader passes on.
    warp::sync(mask);
    uint32_t moved = 0;
    if (to != from && warp::is_leader(mask)) {
      moved = order::compare_exchange<order::relaxed>(&r.q->granted, from, to) == from;
      if (moved) r.give(to - from);
    }
    return warp::shuffle(mask, moved, warp::leader(mask)) != 0;
  }

  // What the poller has found so far.
  struct progress {
    uint32_t head;       // completions taken
    uint32_t completed;  // blocks
    uint32_t failed;
  };

  // What of a send queue a poller needs that does not change, read before it takes the lock, as in `writer`.
  struct reader {
    uint64_t completions;
    const uint32_t* mark;
    uint32_t log_completions, log_blocks, flags;
  };

  static WB_FN_COLD uint64_t poll_on(send_core r, warp::mask_t mask, uint32_t end) {
    uint64_t* lock = r.head();
    uint64_t before = 0;
    const reader from = {r.q->completions, r.mark(0), r.q->log_completions, r.q->log_blocks, r.q->flags};
    if (warp::is_leader(mask)) before = order::fetch_or<order::acquire>(lock, uint64_t{1});
    before = warp::shuffle(mask, before, warp::leader(mask));
    if (static_cast<uint32_t>(before) != 0) return not_looked;
    const uint64_t old = order::load<order::relaxed>(r.ended());
    progress p = {static_cast<uint32_t>(before >> 32), static_cast<uint32_t>(old), static_cast<uint32_t>(old >> 32)};
    const uint32_t old_completed = p.completed;
    const bool was_failed = p.failed != 0;
    // Empty-handed, look again at once: the lock's other users only watch `completed` meanwhile.
    if ((from.flags & WB_SEND_COLLAPSED) == 0) {
      for (uint32_t looks = patient_looks; looks && p.completed == old_completed && p.failed == 0; --looks) look_at_ring(from, mask, end, p);
    } else {
      for (uint32_t looks = warp::is_leader(mask) ? patient_looks : 0; looks && p.completed == old_completed && p.failed == 0; --looks) {
        look_at_latest(from, p);
      }
      p.completed = warp::shuffle(mask, p.completed, warp::leader(mask));
      p.failed = warp::shuffle(mask, p.failed, warp::leader(mask));
    }
    // Everything that lanes have acquired from the device, the leader passes on.
    warp::sync(mask);
    const uint64_t found = ended_as(p.completed, p.failed);
    if (warp::is_leader(mask)) {
      uint64_t told = found;
      if (p.failed != 0 && !was_failed) order::store<order::relaxed>(&r.q->failed_at, p.completed);
      if (p.failed == 0 && found != old) {
        // Over the last entry's second block, if it has one.
        const uint32_t last = p.completed - 1, blocks = 1u << from.log_blocks;
        const uint32_t seen = order::load<order::relaxed>(from.mark + (last & (blocks - 1)));
        if (seen == (((last >> from.log_blocks) + 1) << kind_bits | first_of_two)) told = ended_as(p.completed + 1, 0);
      }
      order::store_both<order::release>(lock, static_cast<uint64_t>(p.head) << 32, told);
    }
    return found;
  }

  WB_FN static order::quad entry_tail(const reader& from, uint32_t at) {
    return order::load_quad<order::acquire, order::system>(reinterpret_cast<const char*>(from.completions) + uint64_t{at} * cqe_bytes + cqe_tail_at);
  }
  // The ticket that 16 bits of an index stand for. No more blocks than the ring has are outstanding behind `completed`.
  WB_FN static uint32_t ticket_of(uint32_t completed, uint32_t wire) {
    return completed + ((wire - completed) & index_mask);
  }

  // One entry a lane, as many as are new; all lanes end up with the same.
  WB_FN static void look_at_ring(const reader& from, warp::mask_t mask, uint32_t end, progress& p) {
    const uint32_t n = warp::count(mask), rank = warp::rank(mask);
    const completion_ring ring(from.completions, from.log_completions);
    for (uint32_t k = n; k == n && p.failed == 0;) {
      const uint32_t at = p.head + rank;
      const cqe_tail tail(entry_tail(from, at & ((1u << from.log_completions) - 1u)));
      k = warp::prefix(mask, ring.is_written(at, tail.state()));
      const bool fresh = rank < k;
      const warp::mask_t wrong = warp::ballot(mask, fresh && tail.state().is_error());
      if (wrong != 0) {
        // In ring order: the lowest lane has the cause, and what comes behind it is flushed.
        const uint32_t lane = warp::first(wrong);
        fail(warp::shuffle(mask, tail.state().wqe_counter(), lane), warp::shuffle(mask, tail.syndrome(), lane),
             warp::shuffle(mask, tail.vendor_syndrome(), lane), warp::shuffle(mask, tail.state().opcode(), lane), p);
        p.head += warp::rank_of(mask, lane) + 1;
        return;
      }
      // Completions of receives, where both kinds share the queue, say nothing about what was sent.
      const warp::mask_t sent = warp::ballot(mask, fresh && tail.state().opcode() == cqe_requester);
      p.head += k;
      if (sent != 0) p.completed = ticket_of(p.completed, warp::shuffle(mask, tail.state().wqe_counter(), warp::last(sent))) + 1;
      if (n == 1 && static_cast<int32_t>(p.completed - end) >= 0) return;
    }
  }

  // The one entry of a collapsed queue. An entry seen before is of `completed` - 1, or of the block before that.
  WB_FN static void look_at_latest(const reader& from, progress& p) {
    const cqe_tail tail(entry_tail(from, 0));
    if (tail.state().opcode() == cqe_invalid) return;
    const uint32_t counter = tail.state().wqe_counter();
    if (tail.state().is_error()) {
      // Flush errors overwrite their cause, and tell nothing about what had completed before it.
      if (tail.is_flush()) fail(p.completed, tail.syndrome(), tail.vendor_syndrome(), tail.state().opcode(), p);
      else fail(counter, tail.syndrome(), tail.vendor_syndrome(), tail.state().opcode(), p);
      return;
    }
    const uint32_t ahead = (counter + 1 - p.completed) & index_mask;
    if (tail.state().opcode() == cqe_requester && ahead <= 1u << from.log_blocks) p.completed += ahead;
  }

  // An error completion: all before the entry that it names are done. (That of a receive names none that was sent.)
  WB_FN static void fail(uint32_t counter, uint32_t syndrome, uint32_t vendor, uint32_t opcode, progress& p) {
    if (opcode == cqe_requester_error) p.completed = ticket_of(p.completed, counter);
    p.failed = network_error(syndrome, vendor);
  }
};

// A send queue, by value. "Collective" functions take a mask, and every lane in it makes the call; lanes may be on different
// queues. Those without a mask are for the lanes that happen to be together.
class work_queue_ref : public send_core {
 public:
  WB_FN work_queue_ref(wb_send_queue* queue, const wb_control* control) : send_core(queue), control_(control) {}

  // --- completion ----------------------------------------------------------------------------------------------------

  // Waits for the requests of the lanes with `mine`, as long as one wait may last. A request that takes longer stays posted.
  // Collective.
  WB_FN outcome wait(warp::mask_t mask, bool mine, request r) const {
    deadline p(control_);
    outcome o{r.word};
    bool waiting = mine && r.in_flight();
    for (;;) {
      bool busy = false;
      if (waiting) {
        // Both loads are under way at once.
        busy = is_polled();
        waiting = !is_complete(r.end, o.word);
      }
      const warp::mask_t left = warp::ballot(mask, waiting);
      if (left == 0) return o;
      const wait_status v = p.expired(mask);
      if (v != wait_status::go_on) {
        if (waiting && !is_complete(r.end, o.word)) o.word = status_word(v);
        return o;
      }
      const uint32_t lane = nth_of(left, p.turns());
      const work_queue_ref one = shared(mask, lane);
      if (warp::shuffle(mask, busy, lane)) continue;
      const uint64_t found = one.poll(mask, r.end);
      if (waiting && q == one.q && found != not_looked) waiting = !is_over(found, r.end, o.word);
    }
  }
  WB_FN outcome wait(request r) const { return wait(warp::active(), true, r); }

  // Whether a wait would answer at once: then with `o`. Polls once if not. Collective; lanes without `mine` keep their `o`.
  WB_FN bool test(warp::mask_t mask, bool mine, request r, outcome& o) const {
    if (mine) o.word = r.word;
    bool waiting = mine && r.in_flight() && !is_complete(r.end, o.word);
    const warp::mask_t left = warp::ballot(mask, waiting);
    if (left != 0) {
      shared(mask, warp::first(left)).poll(mask);
      if (waiting && is_complete(r.end, o.word)) waiting = false;
    }
    return !waiting;
  }
  WB_FN bool test(request r, outcome& o) const { return test(warp::active(), true, r, o); }

  // Everything that anybody has posted on this queue so far, as one request: what this thread has posted, or has been told of.
  WB_FN request everything() const {
    uint32_t t;
    // While somebody puts the credit right, the ticket says too much.
    for (deadline p(control_); credit(t) < 0;) {
      const wait_status v = p.expired();
      if (v != wait_status::go_on) return request::ended(status_word(v));
    }
    return request::posted(t, t);
  }
  // Waits for it.
  WB_FN outcome quiet() const { return wait(everything()); }
  WB_FN outcome quiet(warp::mask_t mask, bool mine) const { return wait(mask, mine, mine ? everything() : request{}); }

  WB_FN const wb_control* control() const { return control_; }

 protected:
  const wb_control* control_;

  // Whether to try again. Who draws more credit than there is hides it from others until it has put it right: on a short ring
  // those who try again and again would keep each other from finding enough for a chain.
  WB_FN bool has_room(extent x) const {
    uint32_t t;
    const int32_t had = credit(t);
    return had >= 0 && static_cast<uint32_t>(had) + order::load<order::relaxed>(&q->spare) >= x.blocks();
  }
  // Takes completions off one of the queues of the lanes that are left, and grants their blocks again. Collective.
  WB_FN void make_room(warp::mask_t mask, warp::mask_t left, uint32_t turn) const {
    const work_queue_ref one = shared(mask, nth_of(left, turn));
    one.poll(mask);
    one.replenish(mask);
  }

  // Whether what is to be posted will never find room; why.
  WB_FN bool cannot_post(extent x, uint32_t& word) const {
    word = x.blocks() > blocks() ? status_word(WB_BAD_ARGUMENT) : order::load<order::acquire>(&q->failed);
    return word != 0;
  }

  // Another lane's queue, the same in all lanes.
  WB_FN work_queue_ref shared(warp::mask_t mask, uint32_t lane) const {
    return work_queue_ref(reinterpret_cast<wb_send_queue*>(warp::shuffle(mask, reinterpret_cast<uint64_t>(q), lane)), control_);
  }
  // One of the mask's lanes, a different one each turn.
  WB_FN static uint32_t nth_of(warp::mask_t m, uint32_t turn) {
    const warp::mask_t later = m & ~((1u << (turn & (warp::width - 1))) - 1u);
    return warp::first(later ? later : m);
  }
};

}  // namespace mlx5
}  // namespace warpbell
