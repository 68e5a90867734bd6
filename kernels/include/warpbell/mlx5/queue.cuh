// Send queue, as kernels use it: publishes, completes, waits for and frees blocks. post.cuh posts work requests.
//
// Tickets count blocks of 64 bytes (ring.cuh). An entry of two blocks, or several entries that belong together, take consecutive
// tickets with one reservation. Each block has its own place in the ring, so entries may cross the ring's end. All blocks of the
// ring can be in use at once, because the device sees indices of 16 bits, and a ring has at most half as many blocks.
//
// Signals. Of the entries that lanes post together only the last asks for a completion; the others have one only if they fail.
// Completions of a queue pair come in order, so the last entry's completion covers all. Lanes that post together get consecutive
// tickets or none. Hence every run of tickets ends with a signalled entry, and no thread waits for a completion that was never
// requested.
//
// Marks. The release store of its first block's mark, after all other marks, publishes everything that a lane has posted. So a
// thread that has seen the first mark may rely on the others, and on all that was written. The doorbell must not announce half an
// entry. The mark of an entry's first block says that there is a second. The tail then moves over the second block, whether its
// mark has been seen or not.
//
// Completion. A completion names the first block of its entry. One warp at a time polls, under `head_lock`. The poller stores the
// number of the block behind that one in `completed`, which is all that waiters look at. It then moves `completed` over the entry's
// second block, if the mark says that there is one. So a waiter waits for the block behind the *first* block of its last entry.
//
// Failure. A failed queue pair completes nothing any more. The first error in ring order is the cause. Flush errors follow for
// everything else that was posted, and are ignored. Requests that completed before are done, the rest has failed.
//
// Chains. The work requests of a batch are written together by one lane, with one reservation and one doorbell. Only the last one
// has a completion. An entry of a batch that is open has no ticket, so that nobody waits for it.
//
// BlueFlame. Where the register takes whole entries (`flame`), a warp that holds the lock and announces one block stores that block
// to the register. An adapter that receives it as one write need not fetch it from the ring. It fetches it as after a plain doorbell
// if the write comes in parts. Posts use the register's halves in turn, so that two posts never merge on their way.
//
// Free blocks. `granted` is the first ticket whose block is not known free. A thread that runs short walks from there to
// `completed` over blocks that are not held, and turns them into credit. A block is held while a thread still reads its staging.
#pragma once

#include <warpbell/clock.cuh>
#include <warpbell/error.cuh>
#include <warpbell/mlx5/cqe.cuh>
#include <warpbell/mlx5/send_ring.cuh>
#include <warpbell/ring.cuh>

namespace warpbell {
namespace mlx5 {

/// @brief Outcome of work requests: a status word (status.h).
struct outcome {
  uint32_t word = WB_DONE;

  /// @brief Returns true if the work requests succeeded.
  WB_FN explicit operator bool() const { return word == WB_DONE; }
  /// @brief Returns the kind of outcome.
  WB_FN wb_kind kind() const { return static_cast<wb_kind>(word >> WB_STATUS_KIND_SHIFT); }
  /// @brief Returns the syndrome of a WB_NETWORK_ERROR.
  WB_FN uint32_t syndrome() const { return word & 0xffu; }
  /// @brief Returns the vendor syndrome of a WB_NETWORK_ERROR.
  WB_FN uint32_t vendor_syndrome() const { return word >> 8 & 0xffu; }
};

/// @brief Returns the status word of a failed completion.
WB_FN uint32_t network_error(uint32_t syndrome, uint32_t vendor) {
  return static_cast<uint32_t>(WB_NETWORK_ERROR) << WB_STATUS_KIND_SHIFT | ((vendor << 8 | syndrome) & WB_STATUS_SYNDROME_MASK);
}

/// @brief Work requests that were posted, or the reason why they were not.
///
/// Plain data: any thread may wait for it, any number of times. A later request on the same queue covers it too.
struct request {
  uint32_t end = 0;         // done when this number of blocks is complete
  uint32_t block = 0;       // the first block
  uint32_t word = WB_DONE;  // WB_PENDING: posted. Otherwise the outcome without posting

  /// @brief Returns true if the request was posted and has to be waited for.
  WB_FN bool in_flight() const { return word == static_cast<uint32_t>(WB_PENDING) << WB_STATUS_KIND_SHIFT; }
  /// @brief Returns the request of posted blocks.
  WB_FN static request posted(uint32_t block, uint32_t end) {
    return request{end, block, static_cast<uint32_t>(WB_PENDING) << WB_STATUS_KIND_SHIFT};
  }
  /// @brief Returns a request that has ended with a status word.
  WB_FN static request ended(uint32_t word) { return request{0, 0, word}; }
};

// Blocks that are posted together: an entry of one or two blocks, and optionally an entry of one block behind it. With two entries
// only the second may be signalled.
struct extent {
  enum parts : uint32_t { is_long = 1, has_second = 2 };
  uint32_t of = 0;

  WB_FN uint32_t blocks() const { return 1 + (of & is_long) + of / has_second; }
  // Returns the number of blocks after which the last entry's completion is seen: the completion names that entry's first block.
  WB_FN uint32_t end() const { return (of & has_second) != 0 ? blocks() : 1; }
};

// A block's own piece of registered memory: as kernels see it, and as work requests name it.
struct staging {
  uint64_t at;
  local name;
};

/// @brief The parts of a wb_send_queue that do not wait.
class send_core : public ring_core<wb_send_queue, send_core> {
 public:
  /// @brief Refers to a send queue in memory that kernels see.
  WB_FN explicit send_core(wb_send_queue* queue) : ring_core(queue) {}

  /// @brief Returns the number of blocks of the ring.
  WB_FN uint32_t blocks() const { return 1u << q->log_blocks; }
  /// @brief Returns the place in the ring of a ticket's block.
  WB_FN uint32_t index(uint32_t ticket) const { return ticket & (blocks() - 1); }
  /// @brief Returns the queue pair's number as in control segments.
  WB_FN queue_word word() const { return queue_word{q->queue_word}; }

  // The constants of a send queue that writing entries needs, read before a ticket is taken. An acquire empties the L1, so reading
  // them afterwards would wait for the memory.
  struct writer {
    uint64_t ring;
    uint32_t log_blocks;
    queue_word word;

    WB_FN void store(uint32_t ticket, const block& b) const { send_ring(ring, log_blocks).store(ticket, b); }
  };
  WB_FN writer to_write() const { return writer{q->ring, q->log_blocks, word()}; }

  /// @brief Writes the doorbell for the entries of a grant, or leaves that to the warp that holds the lock. Collective over `mask`.
  ///
  /// @param got This lane has written entries at `ticket`.
  /// @param x The extent of each lane's entries, the same in all lanes.
  WB_FN void publish_run(warp::mask_t mask, const grant& g, bool got, uint32_t ticket, extent x) const {
    const bool is_long = (x.of & extent::is_long) != 0;
    const uint32_t first = marked(ticket, is_long ? first_of_two : only_block);
    for (uint32_t t = ticket + 1; got && t != ticket + x.blocks(); ++t) {
      order::store<order::relaxed>(mark(t), marked(t, is_long && t == ticket + 1 ? second_of_two : only_block));
    }
    announce(mask, g, got, ticket, first, g.lanes * x.blocks());
  }

  /// @brief Marks an entry behind the first of those that one lane announces together. One thread calls this.
  WB_FN void mark_behind(uint32_t ticket, extent x) const {
    const bool is_long = (x.of & extent::is_long) != 0;
    order::store<order::relaxed>(mark(ticket), marked(ticket, is_long ? first_of_two : only_block));
    if (is_long) order::store<order::relaxed>(mark(ticket + 1), marked(ticket + 1, second_of_two));
  }
  /// @brief Writes the doorbell for entries of one lane, `blocks` in all, of which those behind the first are marked. Otherwise as
  /// publish_run. One thread calls this, with its own lane as `mask`.
  ///
  /// @param x The extent of the first entry.
  WB_FN void publish_chain(warp::mask_t mask, const grant& g, uint32_t ticket, extent x, uint32_t blocks) const {
    const bool is_long = (x.of & extent::is_long) != 0;
    if (is_long) order::store<order::relaxed>(mark(ticket + 1), marked(ticket + 1, second_of_two));
    announce(mask, g, true, ticket, marked(ticket, is_long ? first_of_two : only_block), blocks);
  }

  /// @brief Takes new completions off the ring, unless another warp is polling. Collective over `mask`.
  WB_FN void poll(warp::mask_t mask) const {
    if (!warp::any(mask, warp::is_leader(mask) && is_polled())) poll(mask, order::load<order::relaxed>(&q->completed) + blocks());
  }

  /// @brief Returns true if `end` blocks are complete, or never will be; `word` is the outcome. One thread calls this; an acquire
  /// on scope device.
  WB_FN bool is_complete(uint32_t end, uint32_t& word) const { return is_over(order::load<order::acquire>(ended()), end, word); }

  // Polls without looking first whether another warp polls. A lane alone looks no further than it has to for `end`. Returns the
  // completed blocks and the failure, for `is_over`, or `not_looked`. Collective.
  WB_FN uint64_t poll(warp::mask_t mask, uint32_t end) const { return poll_on(*this, mask, end); }
  static constexpr uint64_t not_looked = ~0ull;  // a failure value that does not occur
  // Returns true if a warp is polling.
  WB_FN bool is_polled() const { return (static_cast<uint32_t>(order::load<order::relaxed>(head())) & 1u) != 0; }
  // Returns true if `end` blocks are complete, or never will be, according to `ended`; `word` is the outcome.
  WB_FN static bool is_over(uint64_t ended, uint32_t end, uint32_t& word) {
    const bool complete = static_cast<int32_t>(static_cast<uint32_t>(ended) - end) >= 0;
    word = complete ? static_cast<uint32_t>(WB_DONE) : static_cast<uint32_t>(ended >> 32);
    return complete || word != 0;
  }

  // Returns the staging of a ticket's block.
  WB_FN staging staging_of(uint32_t ticket) const {
    const uint64_t offset = uint64_t{index(ticket)} * q->staging_bytes;
    return staging{q->staging + offset, local{q->staging_address + offset, be32{q->staging_key}}};
  }
  // Keeps a block from being used again after it has completed. The thread that posts the block calls this, before it marks the
  // block.
  WB_FN void hold(uint32_t ticket) const { order::store<order::relaxed>(hold_word(ticket), 1u); }
  // Ends the hold, by the same thread or another. A block that has not completed yet may be let go too. Data that lands in its
  // staging then belongs to no thread, and the block is free once it has completed.
  WB_FN void let_go(uint32_t ticket) const { order::store<order::release>(hold_word(ticket), 0u); }

 private:
  friend class ring_core<wb_send_queue, send_core>;

  // Announces the `fresh` blocks of a grant, whose marks are set but for the first block of each lane. Collective.
  WB_FN void announce(warp::mask_t mask, const grant& g, bool got, uint32_t ticket, uint32_t first, uint32_t fresh) const {
    if (has_tail(mask, g)) {
      // The poller finds second blocks by their marks. And a mark of 2^32 blocks ago would be taken for a current one.
      if (got) order::store<order::relaxed>(mark(ticket), first);
      if (fresh == 1 && q->flame != 0) {
        flame_on(*this, mask, g.first + fresh);
        ring_for<false>(mask, g.first + fresh);
      } else {
        ring_for(mask, g.first + fresh);
      }
      return;
    }
    if (got) order::store<order::release>(mark(ticket), first);
    publish(mask);
  }

  // Low bits of a mark: the kind of block. lap + 1 is above them.
  static constexpr uint32_t only_block = 0, first_of_two = 1, second_of_two = 2, kinds = 3, kind_bits = 2;
  static constexpr uint32_t patient_looks = WB_GPU ? 4 : 1;
  // Looks for free blocks: each lane looks at `at_once` blocks together, and a lane alone at `least_looks` in all.
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
  // Moves the tail over marked blocks, never to the second half of an entry.
  WB_FN bool walk(warp::mask_t mask, uint32_t& tail) const {
    const uint32_t t = tail + warp::rank(mask), n = warp::count(mask);
    const uint32_t difference = order::load<order::acquire>(mark(t)) ^ marked(t, only_block);
    uint32_t k = warp::prefix(mask, difference <= kinds);
    if (warp::any(mask, difference == first_of_two && warp::rank(mask) + 1 == k)) ++k;
    tail += k;
    return k >= n;
  }

  // `completed`, with `failed` above it: published together, so that a thread that sees a failure sees the blocks that completed
  // before it.
  WB_FN uint64_t* ended() const { return reinterpret_cast<uint64_t*>(&q->completed); }
  WB_FN static uint64_t ended_as(uint32_t completed, uint32_t failed) { return static_cast<uint64_t>(failed) << 32 | completed; }

  // Announces the entries before `tail`.
  WB_FN void ring(uint32_t tail) const {
    uint64_t* bell = q->doorbell;
    const uint64_t doorbells = doorbell(tail, word());
    set_record(tail);
    order::mmio_store(bell, doorbells);
  }

  // As write_send_record, for this queue.
  WB_FN void set_record(uint32_t tail) const { write_send_record(q->record, q->flags, tail); }

  // Announces the block before `end`, the only new one, by storing it to the register. Four lanes that store side by side make one
  // write on the bus; one lane alone makes four. Collective.
  static WB_FN_COLD void flame_on(by_value<send_core> r, warp::mask_t mask, uint32_t end) {
    const uint64_t from = send_ring(r.q->ring, r.q->log_blocks).at(end - 1);
    const uint64_t to = reinterpret_cast<uint64_t>(r.q->doorbell) + uint64_t{(end - 1) & 1u} * r.q->flame;
    const bool near = (r.q->flags & WB_SEND_NEAR) != 0;
    const uint32_t rank = warp::rank(mask);
    warp::sync(mask);
    if (warp::is_leader(mask)) r.set_record(end);
    warp::sync(mask);
    const auto copy = [&](uint32_t i) {
      order::store_quad<order::relaxed, order::system>(
          reinterpret_cast<void*>(to + i * segment_bytes),
          order::load_quad<order::relaxed, order::system>(reinterpret_cast<const void*>(from + i * segment_bytes)));
    };
    order::mmio_flush();
    if (warp::count(mask) >= block_segments) {
      if (rank >= block_segments) return;
      // Each lane's store comes after what the leader has published.
      if (near) order::fence<order::release>();
      else order::fence<order::release, order::system>();
      copy(rank);
    } else if (warp::is_leader(mask)) {
      for (uint32_t i = 0; i < block_segments; ++i) copy(i);
    }
    order::mmio_flush();
  }

  static WB_FN_COLD bool replenish_on(by_value<send_core> r, warp::mask_t mask) {
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
    // The leader passes on what the lanes have acquired with these words.
    warp::sync(mask);
    uint32_t moved = 0;
    if (to != from && warp::is_leader(mask)) {
      moved = order::compare_exchange<order::relaxed>(&r.q->granted, from, to) == from;
      if (moved) r.give(to - from);
    }
    return warp::shuffle(mask, moved, warp::leader(mask)) != 0;
  }

  // The poller's findings so far.
  struct progress {
    uint32_t head;       // completions taken
    uint32_t completed;  // blocks
    uint32_t failed;
  };

  // The constants of a send queue that a poller needs, read before it takes the lock, as in `writer`.
  struct reader {
    uint64_t completions;
    const uint32_t* mark;
    uint32_t log_completions, log_blocks, flags;
  };

  static WB_FN_COLD uint64_t poll_on(by_value<send_core> r, warp::mask_t mask, uint32_t end) {
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
    // If nothing is new, look again at once: the lock's other users only watch `completed` meanwhile.
    if ((from.flags & WB_SEND_COLLAPSED) == 0) {
      for (uint32_t looks = patient_looks; looks && p.completed == old_completed && p.failed == 0; --looks)
        look_at_ring(from, mask, end, p);
    } else {
      for (uint32_t looks = warp::is_leader(mask) ? patient_looks : 0; looks && p.completed == old_completed && p.failed == 0; --looks) {
        look_at_latest(from, p);
      }
      p.completed = warp::shuffle(mask, p.completed, warp::leader(mask));
      p.failed = warp::shuffle(mask, p.failed, warp::leader(mask));
    }
    // The leader passes on everything that the lanes have acquired from the device.
    warp::sync(mask);
    const uint64_t found = ended_as(p.completed, p.failed);
    if (warp::is_leader(mask)) {
      uint64_t told = found;
      if (p.failed != 0 && !was_failed) order::store<order::relaxed>(&r.q->failed_at, p.completed);
      if (p.failed == 0 && found != old) {
        // Move over the last entry's second block, if there is one.
        const uint32_t last = p.completed - 1, blocks = 1u << from.log_blocks;
        const uint32_t seen = order::load<order::relaxed>(from.mark + (last & (blocks - 1)));
        if (seen == (((last >> from.log_blocks) + 1) << kind_bits | first_of_two)) told = ended_as(p.completed + 1, 0);
      }
      order::store_both<order::release>(lock, static_cast<uint64_t>(p.head) << 32, told);
    }
    return found;
  }

  WB_FN static order::quad entry_tail(const reader& from, uint32_t at) {
    return order::load_quad<order::acquire, order::system>(reinterpret_cast<const char*>(from.completions) + uint64_t{at} * cqe_bytes +
                                                           cqe_tail_at);
  }
  // Returns the ticket that 16 bits of an index stand for. No more blocks than the ring has are outstanding behind `completed`.
  WB_FN static uint32_t ticket_of(uint32_t completed, uint32_t wire) { return completed + ((wire - completed) & index_mask); }

  // Looks at one entry for each lane, as long as entries are new. All lanes get the same result.
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
        // In ring order: the lowest lane has the cause, and the entries behind it are flushed.
        const uint32_t lane = warp::first(wrong);
        fail(warp::shuffle(mask, tail.state().wqe_counter(), lane), warp::shuffle(mask, tail.syndrome(), lane),
             warp::shuffle(mask, tail.vendor_syndrome(), lane), warp::shuffle(mask, tail.state().opcode(), lane), p);
        p.head += warp::rank_of(mask, lane) + 1;
        return;
      }
      // Completions of receives, where both kinds share the queue, say nothing about sends.
      const warp::mask_t sent = warp::ballot(mask, fresh && tail.state().opcode() == cqe_requester);
      p.head += k;
      if (sent != 0) p.completed = ticket_of(p.completed, warp::shuffle(mask, tail.state().wqe_counter(), warp::last(sent))) + 1;
      if (n == 1 && static_cast<int32_t>(p.completed - end) >= 0) return;
    }
  }

  // Looks at the one entry of a collapsed queue. An entry seen before is of `completed` - 1, or of the block before that.
  WB_FN static void look_at_latest(const reader& from, progress& p) {
    const cqe_tail tail(entry_tail(from, 0));
    if (tail.state().opcode() == cqe_invalid) return;
    const uint32_t counter = tail.state().wqe_counter();
    if (tail.state().is_error()) {
      // Flush errors overwrite their cause, and say nothing about the blocks that completed before it.
      if (tail.is_flush()) fail(p.completed, tail.syndrome(), tail.vendor_syndrome(), tail.state().opcode(), p);
      else fail(counter, tail.syndrome(), tail.vendor_syndrome(), tail.state().opcode(), p);
      return;
    }
    const uint32_t ahead = (counter + 1 - p.completed) & index_mask;
    if (tail.state().opcode() == cqe_requester && ahead <= 1u << from.log_blocks) p.completed += ahead;
  }

  // Processes an error completion: all blocks before the entry that it names are done. (The error of a receive names no entry that
  // was sent.)
  WB_FN static void fail(uint32_t counter, uint32_t syndrome, uint32_t vendor, uint32_t opcode, progress& p) {
    if (opcode == cqe_requester_error) p.completed = ticket_of(p.completed, counter);
    p.failed = network_error(syndrome, vendor);
  }
};

/// @brief A send queue with waits, by value.
///
/// "Collective" functions take a mask: every lane in the mask makes the call, converged; lanes may be on different queues.
/// Functions without a mask are for the lanes that happen to be converged.
class work_queue_ref : public send_core {
 public:
  /// @brief Refers to a send queue in memory that kernels see. `control` is the run's control block.
  WB_FN work_queue_ref(wb_send_queue* queue, const wb_control* control) : send_core(queue), control_(control) {}

  // --- completion ----------------------------------------------------------------------------------------------------

  /// @brief Waits for the requests of the lanes with `mine`, for at most one deadline. Collective.
  ///
  /// @return The outcome of this lane's requests. Requests that time out stay posted.
  /// @note After success the lane has acquired data that the requests landed in local memory (scope device). With
  /// WB_SEND_CONSISTENCY that holds only after a flush behind them.
  WB_FN outcome wait(warp::mask_t mask, bool mine, request r) const {
    deadline p(control_);
    outcome o{r.word};
    bool waiting = mine && r.in_flight();
    for (;;) {
      bool busy = false;
      if (waiting) {
        // Both loads are in flight at once.
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
  /// @brief Waits for a request. For the lanes that are converged.
  WB_FN outcome wait(request r) const { return wait(warp::active(), true, r); }

  /// @brief Returns true if a wait would return at once, with its outcome in `o`. Polls once if not. Collective; lanes without
  /// `mine` keep their `o`.
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
  /// @brief Returns true if a wait would return at once. For the lanes that are converged.
  WB_FN bool test(request r, outcome& o) const { return test(warp::active(), true, r, o); }

  /// @brief Returns one request for everything posted on this queue so far, by this thread or by threads that this thread has
  /// synchronised with. One thread calls this.
  WB_FN request everything() const {
    uint32_t t;
    // While a thread corrects the credit, the ticket is too large.
    for (deadline p(control_); credit(t) < 0;) {
      const wait_status v = p.expired();
      if (v != wait_status::go_on) return request::ended(status_word(v));
    }
    return request::posted(t, t);
  }
  /// @brief Waits for everything posted on this queue. For the lanes that are converged.
  WB_FN outcome quiet() const { return wait(everything()); }
  /// @brief Waits for everything posted on the queues of the lanes with `mine`. Collective.
  WB_FN outcome quiet(warp::mask_t mask, bool mine) const { return wait(mask, mine, mine ? everything() : request{}); }

  /// @brief Returns the run's control block.
  WB_FN const wb_control* control() const { return control_; }

 protected:
  const wb_control* control_;

  // Returns true if another attempt to post makes sense. A thread that takes more credit than there is hides the credit from others
  // until it has corrected it. On a short ring, threads that try again and again would keep each other from finding enough credit
  // for a chain.
  WB_FN bool has_room(uint32_t wanted) const {
    uint32_t t;
    const int32_t had = credit(t);
    return had >= 0 && static_cast<uint32_t>(had) + order::load<order::relaxed>(&q->spare) >= wanted;
  }
  // Takes completions off one of the queues of the lanes that are left, and grants their blocks again. Collective.
  WB_FN void make_room(warp::mask_t mask, warp::mask_t left, uint32_t turn) const {
    const work_queue_ref one = shared(mask, nth_of(left, turn));
    one.poll(mask);
    one.replenish(mask);
  }

  // Returns true if the work request will never find room; `word` is the reason.
  WB_FN bool cannot_post(uint32_t wanted, uint32_t& word) const {
    word = wanted > blocks() ? status_word(WB_BAD_ARGUMENT) : order::load<order::acquire>(&q->failed);
    return word != 0;
  }

  // Returns the queue of `lane`, in all lanes.
  WB_FN work_queue_ref shared(warp::mask_t mask, uint32_t lane) const {
    return work_queue_ref(reinterpret_cast<wb_send_queue*>(warp::shuffle(mask, reinterpret_cast<uint64_t>(q), lane)), control_);
  }
  // Returns one of the mask's lanes, a different one each turn.
  WB_FN static uint32_t nth_of(warp::mask_t m, uint32_t turn) {
    const warp::mask_t later = m & ~((1u << (turn & (warp::width - 1))) - 1u);
    return warp::first(later ? later : m);
  }
};

}  // namespace mlx5
}  // namespace warpbell
