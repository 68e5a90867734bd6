// NVMe on a queue pair: build a command, submit it, poll, wait. The layer for a scheduler of your own; the volume (volume.cuh) is
// built on it.
//
// Completion. A waiter watches its own slot word, and now and then tries the queue's head lock. The winner's whole mask reads
// completion entries, one for each lane, and takes those whose phase is new. It ORs the outcome into their commands' slot words and
// writes the head doorbell once. Only the threads that wait on a queue poll it.
//
// Finishing. Any thread may finish a completed command, not only its owner: `record` has the destination of its data and its
// context. A claim in the slot word lets exactly one thread do it. So a thread may keep tokens of completed commands for ever
// without blocking the ring: a thread that needs the slot finishes the command. A token whose slot word has moved on was finished
// by another thread.
//
// A failed command of a plain token must reach its owner, so other threads leave it alone for half a deadline. Only then do they
// enter it in the error log, fail the run and free the slot. Any thread finishes a command with a context, whatever its status: the
// completion policy gets the outcome.
#pragma once

#include <warpbell/capsules/poll.cuh>
#include <warpbell/command_ring.cuh>
#include <warpbell/copy.cuh>
#include <warpbell/tags.cuh>

namespace warpbell {

namespace nvme {

// NVM Command Set 1.1, figure "Opcodes for NVM Commands".
enum opcode : uint32_t { op_flush = 0x00, op_write = 0x01, op_read = 0x02, op_write_zeroes = 0x08 };

/// @brief A submission queue entry without its command identifier (NVMe Base 2.1, 4.1.1). `post` adds the slot, or for a remote
/// controller the low 16 bits of the ticket.
struct command {
  order::quad q[4];
};

/// @brief Data pointer of a transfer (NVMe Base 2.1, 4.1.1, "Data Pointer"): two PRP entries, or a keyed data block for a remote
/// controller.
struct prp {
  uint64_t first = 0;
  uint64_t second = 0;
};

/// @brief Returns bits 31:0.
WB_FN uint32_t low(uint64_t v) { return static_cast<uint32_t>(v); }
/// @brief Returns bits 63:32.
WB_FN uint32_t high(uint64_t v) { return static_cast<uint32_t>(v >> 32); }

/// @brief Returns a command with opcode `op` for `blocks` logical blocks, 1 to 65,536, from `lba` on.
WB_FN command transfer(uint32_t op, uint32_t nsid, uint64_t lba, uint32_t blocks, prp data) {
  return command{{{op, nsid, 0, 0},
                  {0, 0, low(data.first), high(data.first)},
                  {low(data.second), high(data.second), low(lba), high(lba)},
                  {blocks - 1, 0, 0, 0}}};
}
/// @brief Returns a read command. Arguments as for `transfer`.
WB_FN command read(uint32_t nsid, uint64_t lba, uint32_t blocks, prp data) { return transfer(op_read, nsid, lba, blocks, data); }
/// @brief Returns a write command. Arguments as for `transfer`.
WB_FN command write(uint32_t nsid, uint64_t lba, uint32_t blocks, prp data) { return transfer(op_write, nsid, lba, blocks, data); }
/// @brief Returns a write zeroes command, which has no data pointer. Arguments as for `transfer`.
WB_FN command write_zeroes(uint32_t nsid, uint64_t lba, uint32_t blocks) { return transfer(op_write_zeroes, nsid, lba, blocks, prp{}); }
/// @brief Returns a flush command.
WB_FN command flush(uint32_t nsid) { return command{{{op_flush, nsid, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}}; }

/// @brief Returns the record from which any thread can finish the command; see wb_record.
///
/// @param blocks Logical blocks; 0 for a flush.
/// @param buffer Destination of a read's data, or 0; see wb_record::buffer.
/// @param bytes Bytes to transfer.
/// @param context Context for the completion policy, or 0.
/// @param is_private Only the submitting thread finishes the command.
/// @param has_copies Another device holds the same blocks.
WB_FN wb_record record(uint32_t op, uint64_t lba, uint32_t blocks, uint64_t buffer, uint32_t bytes, uint64_t context, bool is_private,
                       bool has_copies = false) {
  return wb_record{buffer, context, lba, bytes,
                   op << WB_RECORD_OPCODE_SHIFT | (is_private ? WB_RECORD_PRIVATE : 0u) | (has_copies ? WB_RECORD_COPIES : 0u) | blocks};
}

/// @brief Returns true if the record's command is a read.
WB_FN bool is_read(uint32_t opcode_blocks) { return opcode_blocks >> WB_RECORD_OPCODE_SHIFT == op_read; }

/// @brief Returns the PRP entries for `bytes` of device-contiguous memory at `iova` (a multiple of 4). One thread calls this.
///
/// Beyond two pages the second entry is the address of a PRP list, `list_iova`. If `list` is not 0 this writes the list there
/// (relaxed, system); otherwise the list is there already. The list must hold an entry for each page after the first and not cross
/// its own page: 512 entries in 4 KiB.
/// @param page_shift log2 of the controller's memory page (CC.MPS).
WB_FN prp data_pointer(uint64_t iova, uint32_t bytes, uint32_t page_shift, uint64_t* list, uint64_t list_iova) {
  const uint64_t page = uint64_t{1} << page_shift;
  const uint32_t in_first = static_cast<uint32_t>(page - (iova & (page - 1)));
  const uint64_t next = (iova & ~(page - 1)) + page;
  if (bytes <= in_first) return prp{iova, 0};
  if (bytes - in_first <= page) return prp{iova, next};
  if (list) {
    uint32_t entries = static_cast<uint32_t>((bytes - in_first + page - 1) >> page_shift);
    for (uint32_t i = 0; i < entries; ++i) order::store<order::relaxed, order::system>(list + i, next + (uint64_t{i} << page_shift));
  }
  return prp{iova, list_iova};
}

/// @brief Returns the data pointer for `bytes` bytes at `address` in registered memory with this key: a keyed data block, for a
/// remote controller. One thread calls this.
WB_FN prp keyed(uint64_t address, uint32_t bytes, uint32_t key) { return prp{address, capsules::keyed(bytes, key)}; }

// Completion queue entry, dword 3: command identifier, phase, status (NVMe Base 2.1, 4.2.1).
constexpr uint32_t cqe_cid_mask = 0xffffu;
constexpr uint32_t cqe_phase_shift = 16;
constexpr uint32_t cqe_status_shift = 17;
constexpr uint32_t status_code_mask = 0x7ffu;  // status code and its type: 0 is success
constexpr uint32_t sqe_bytes = 64;
constexpr uint32_t cqe_bytes = 16;
constexpr uint32_t cid_shift = 16;

}  // namespace nvme

/// @brief A queue pair, by value. "Collective" functions take a mask: every lane in the mask makes the call, converged.
///
/// @tparam Completion Policy for commands with a context, a number other than 0 in their record (`wb_record::tag`). The thread that
/// finishes such a command calls `Completion::complete(context, is_read, good)` once, after the data has arrived, and before the
/// slot is free. `Completion::is_repeated(context)` is true if its failure is not an error yet.
template <class Completion> class basic_queue_ref : public ring_ref {
 public:
  /// @brief Refers to a queue pair in memory that kernels see.
  ///
  /// @param control The run's control block: deadline, stop flag, error log.
  /// @param device Index of the queue's device in its volume, 0 without a volume. Tokens and the error log name it.
  WB_FN explicit basic_queue_ref(wb_queue* queue, const wb_control* control, uint32_t device = 0)
      : ring_ref(queue), control_(control), device_(device) {}

  // --- submission ----------------------------------------------------------------------------------------------------

  /// @brief Submits for as many lanes of `want` as there is room for now, lowest lanes first. Never waits. Collective; all lanes on
  /// this queue.
  ///
  /// @param write Called by all lanes of the mask as `write(got, ticket)`. Lanes with `got` must `post` once in it, without waiting
  /// for anything. The other lanes help with collective work, such as copies.
  /// @param ticket The lane's ticket, if the lane submitted.
  /// @param doorbells The number of doorbell writes is added to it.
  /// @return True in the lanes whose command is submitted.
  /// @note A fence on scope system precedes the doorbell: the device sees the entries, and the data that the lanes stored before.
  template <class Write>
  WB_FN bool try_submit(warp::mask_t mask, warp::mask_t want, uint32_t& ticket, uint32_t& doorbells, Write write) const {
    uint32_t t;
    grant g;
    bool got = take(mask, want, t, g);
    if (g.lanes == 0 && replenish(mask)) got = take(mask, want, t, g);
    if (!warp::any(mask, got)) return false;
    if (got) ticket = t;
    write(got, t);
    doorbells += publish_run(mask, g, got, t);
    // Meanwhile the device works on these commands.
    if (g.low) replenish(mask);
    return got;
  }

  /// @brief Writes the entry and the record of a ticket. Only for tickets from `take`; `publish_run` must follow. One thread calls
  /// this.
  WB_FN void post(uint32_t ticket, const nvme::command& c, const wb_record& r) const {
    char* entry = static_cast<char*>(q->sq) + uint64_t{index(ticket)} * nvme::sqe_bytes;
    order::quad first = c.q[0], third = c.q[2];
    if (q->remote) {
      first.x |= ticket << nvme::cid_shift | capsules::uses_sgl;
      if (third.y == 0) third.y = capsules::keyed_type;  // no data
    } else {
      first.x |= index(ticket) << nvme::cid_shift;
    }
    order::store_quad<order::relaxed, order::system>(entry, first);
    order::store_quad<order::relaxed, order::system>(entry + 1 * sizeof(order::quad), c.q[1]);
    order::store_quad<order::relaxed, order::system>(entry + 2 * sizeof(order::quad), third);
    order::store_quad<order::relaxed, order::system>(entry + 3 * sizeof(order::quad), c.q[3]);
    wb_record* to = record(ticket);
    order::store<order::relaxed>(&to->opcode_blocks, r.opcode_blocks);
    if (!(r.opcode_blocks & WB_RECORD_PRIVATE)) {
      // No other thread reads the other fields of a private command.
      order::store<order::relaxed>(&to->buffer, r.buffer);
      order::store<order::relaxed>(&to->tag, r.tag);
      order::store<order::relaxed>(&to->lba, r.lba);
      order::store<order::relaxed>(&to->bytes, r.bytes);
    }
    order::store<order::relaxed>(word(ticket), own_word(ticket));
  }

  /// @brief Submits a command for each lane with `wants`, and waits for room if necessary. Collective; all lanes on this queue.
  ///
  /// Waits at most one deadline, polls meanwhile, and finishes commands that others left. `write`, `ticket` and `doorbells` as for
  /// `try_submit`.
  /// @return WB_DONE: the command is in flight. Otherwise it is not: there was no room (timed out, stopped), or the command has
  /// failed meanwhile.
  template <class Write> WB_FN status submit_with(warp::mask_t mask, bool wants, uint32_t& ticket, uint32_t& doorbells, Write write) const {
    deadline p(control_);
    status s;
    bool flying = false;
    while (warp::mask_t want = warp::ballot(mask, wants)) {
      if (try_submit(mask, want, ticket, doorbells, write)) {
        wants = false;
        flying = true;
      }
      if (!warp::any(mask, wants)) break;
      if (poll(mask) == 0) reclaim(mask, p.late());
      // A command of this call that has failed would keep its slot while its owner is still here.
      uint32_t w = flying ? order::load<order::acquire>(word(ticket)) : 0;
      bool lost = flying && (w ^ own_word(ticket)) == (slot::completed | slot::failed) && claim(ticket, w);
      if (lost) {
        s = end_failed(*this, ticket, w);
        flying = false;
      }
      wait_status v = p.expired(mask);
      if (v == wait_status::go_on) continue;
      if (wants) s = status{status_word(v), 0, blocker().word, 0};
      break;
    }
    return s;
  }

  /// @brief Submits one command for each lane of the mask, to be waited for with `wait`. Collective; all lanes on this queue.
  ///
  /// @pre The records have no WB_RECORD_PRIVATE: only the submitter can finish such a command, so lanes would wait for each other's
  /// slots.
  /// @return As for `submit_with`.
  WB_FN status submit(warp::mask_t mask, const nvme::command& c, const wb_record& r, uint32_t& ticket) const {
    uint32_t doorbells = 0;
    status s = submit_with(mask, true, ticket, doorbells, [&](bool got, uint32_t t) {
      if (got) post(t, c, r);
    });
    if (!s && s.opcode_blocks == 0) {
      s.opcode_blocks = r.opcode_blocks;
      s.lba = r.lba;
    }
    return s;
  }

  /// @brief Submits one command for each lane with `wants`, and waits for it. Collective; lanes may be on different queues.
  ///
  /// The fastest way: the commands are private, so no lane has to claim them. Afterwards lanes with `held` copy their data, if
  /// there is any to copy, and `release` the ticket. If slots are so short that lanes of the mask wait for each other's, that
  /// happens within the call through `land`.
  /// @param write Called as `write(group, got, ticket)`, as for `try_submit`. `group` is the queue of the lanes with `got`. It
  /// posts records with WB_RECORD_PRIVATE.
  /// @param land Called by all lanes as `land(ready, ticket)`. After it returns, the slots of the lanes with `ready` are free.
  /// @param ticket The lane's command, or the command that the lane had to wait for.
  /// @param held True if the lane still has to `release` its ticket.
  /// @param flying The lane's command is submitted already, with this ticket.
  /// @return The command's status word (status.h). After WB_DONE the lane has acquired the completion on scope device.
  template <class Write, class Land> WB_FN uint32_t execute(warp::mask_t mask, bool wants, uint32_t& ticket, uint32_t& doorbells,
                                                            bool& held, Write write, Land land, bool flying = false) const {
    deadline p(control_);
    uint32_t ended = WB_DONE;
    wants = wants && !flying;
    held = false;
    for (;;) {
      for (warp::mask_t untried = warp::ballot(mask, wants); untried;) {
        const basic_queue_ref group = shared(mask, warp::first(untried));
        const warp::mask_t members = warp::ballot(mask, wants && q == group.q);
        const bool got = group.try_submit(mask, members, ticket, doorbells, [&](bool mine, uint32_t t) { write(group, mine, t); });
        flying = flying || got;
        wants = wants && !got;
        untried &= ~members;
      }
      const uint32_t w = flying ? order::load<order::acquire>(word(ticket)) : 0;
      const bool ready = flying && (w & slot::completed) != 0;
      const warp::mask_t in_flight = warp::ballot(mask, flying && !ready), blocked = warp::ballot(mask, wants);
      if (ready && (w & slot::failed)) {
        ended = order::load<order::relaxed>(outcome(ticket));
        release(ticket);
        flying = false;
      }
      if ((in_flight | blocked) == 0) {
        held = flying;
        return ended;
      }
      const bool landing = flying && ready;
      if (blocked && warp::any(mask, landing)) {
        land(landing, ticket);
        if (landing) {
          release(ticket);
          flying = false;
        }
        continue;
      }
      const uint32_t found = shared(mask, nth_of(in_flight ? in_flight : blocked, p.turns())).poll(mask);
      if (blocked && found == 0) shared(mask, warp::first(blocked)).reclaim(mask, p.late());
      const wait_status v = p.expired(mask);
      if (v == wait_status::go_on) continue;
      // The next turn finishes commands that have completed meanwhile.
      if (wants) ticket = blocker().ticket();
      if (wants || (flying && !ready && abandon(ticket))) {
        ended = status_word(v);
        wants = flying = false;
      }
    }
  }

  /// @brief Frees the slot of a private command that has completed. One thread calls this; a release on scope device.
  WB_FN void release(uint32_t ticket) const { order::store<order::release>(word(ticket), next_word(ticket)); }

  // --- completion ----------------------------------------------------------------------------------------------------

  /// @brief Takes new entries off the completion ring, unless another warp is polling. Collective; all lanes on this queue.
  ///
  /// @return The number of entries taken, in all lanes.
  WB_FN uint32_t poll(warp::mask_t mask) const { return poll_on(ring_ref(q), mask); }

  /// @brief Returns true if the ticket's command has completed, or was finished already. Does not poll. One thread calls this.
  ///
  /// @note An acquire on scope device.
  WB_FN bool test(uint32_t ticket) const {
    uint32_t state = order::load<order::acquire>(word(ticket)) ^ own_word(ticket);
    return state != 0 && state != slot::claimed;
  }

  /// @brief Waits for the tickets of the lanes with `mine`, and finishes their commands. Collective; lanes may be on different
  /// queues.
  ///
  /// To finish a command means: its data is in the buffer, the policy was called, the slot is free.
  /// @return The outcome of this lane's command. After success the lane has acquired the data on scope device.
  /// @note A command that timed out keeps its slot until its completion arrives. A device that transfers data directly may write
  /// the buffer until then.
  WB_FN status wait(warp::mask_t mask, bool mine, uint32_t ticket) const {
    uint64_t again = 0;
    return wait(mask, mine, ticket, again);
  }
  /// @brief Waits as above. If a read failed that another device can repeat (WB_RECORD_COPIES), `again` becomes the record's
  /// `buffer`.
  WB_FN status wait(warp::mask_t mask, bool mine, uint32_t ticket, uint64_t& again) const {
    deadline p(control_);
    bool waiting = mine, claimed = false;
    uint32_t w = 0;
    status s;
    for (uint32_t turn = 0;; ++turn) {
      if (waiting) {
        w = order::load<order::acquire>(word(ticket));
        uint32_t state = w ^ own_word(ticket);
        if ((state & ~slot::failed) == slot::completed) claimed = claim(ticket, w);
        // Another lap: another thread finished the command, so the command did not fail, unless the run did.
        bool over = state > slot::states;
        if (over && aborted()) s = describe(ticket, status_word(WB_STOPPED), false);
        waiting = !claimed && !over;
      }
      warp::mask_t left = warp::ballot(mask, waiting);
      if (left == 0) break;
      shared(mask, nth_of(left, turn)).poll(mask);
      wait_status v = p.expired(mask);
      if (v == wait_status::go_on) continue;
      if (waiting) claimed = last_look(ticket, v, w, s, again);
      break;
    }
    status ended = finish_claimed(mask, claimed, ticket, w, again);
    return claimed ? ended : s;
  }
  /// @brief Waits for the ticket of every lane of the mask. Collective.
  WB_FN status wait(warp::mask_t mask, uint32_t ticket) const { return wait(mask, true, ticket); }

  // --- finishing -----------------------------------------------------------------------------------------------------

  /// @brief Finishes the commands of the lanes with `mine` that have completed, whichever thread submitted them. Never waits.
  ///
  /// Polls one of their queues once if some have not completed. Collective; lanes may be on different queues.
  /// @return True if this lane's slot has moved on.
  WB_FN bool finish(warp::mask_t mask, bool mine, uint32_t ticket) const {
    uint32_t w = mine ? order::load<order::acquire>(word(ticket)) : 0;
    warp::mask_t left = warp::ballot(mask, mine && w == own_word(ticket));
    if (left) {
      shared(mask, warp::first(left)).poll(mask);
      if (mine) w = order::load<order::acquire>(word(ticket));
    }
    const bool complete = mine && ((w ^ own_word(ticket)) & ~slot::failed) == slot::completed;
    const bool claimed = complete && may_finish(ticket, w, false) && claim(ticket, w);
    bool over = mine && (w ^ own_word(ticket)) > slot::states;
    if (warp::any(mask, claimed)) {
      land_claimed<copying::many>(mask, claimed, ticket, w);
      if (claimed) free_claimed(ticket, w, false);
    }
    return over || claimed;
  }

  /// @brief Finishes completed commands in the slots that the next tickets need. Collective; all lanes on this queue.
  ///
  /// @param orphans Also finish failed commands whose token no thread waits for. They fail the run.
  /// @return The number of commands finished, in all lanes.
  WB_FN uint32_t reclaim(warp::mask_t mask, bool orphans) const { return reclaim_on(*this, mask, orphans); }

  // Turns a completed slot word (not claimed by any thread) into a claim. A thread whose claim succeeds must finish the command
  // soon.
  WB_FN bool claim(uint32_t ticket, uint32_t w) const {
    return order::compare_exchange<order::acq_rel>(word(ticket), w, w | slot::claimed) == w;
  }

  // First half of finishing claimed commands: copies the bounce buffers of successful reads to their destinations. `w` is the slot
  // word before the claim. Collective; lanes may be on different queues.
  template <uint32_t in_flight> WB_FN void land_claimed(warp::mask_t mask, bool mine, uint32_t ticket, uint32_t w) const {
    uint64_t to = 0, from = 0;
    uint32_t bytes = 0;
    if (mine && !(w & slot::failed)) {
      to = order::load<order::relaxed>(&record(ticket)->buffer);
      if (to & WB_RECORD_LANDED) to = 0;
      if (to) {
        from = bounce(ticket);
        bytes = order::load<order::relaxed>(&record(ticket)->bytes);
      }
    }
    if (warp::any(mask, to != 0)) copy_together<in_flight>(mask, to != 0, to, from, bytes);
  }

  // Second half, by the lane that has the claim: calls the policy and frees the slot. A failed command with a context fails the
  // run, unless the thread that waits for the data reads it again: from another device, or in parts. A failed command without an
  // owner fails the run too.
  WB_FN void free_claimed(uint32_t ticket, uint32_t w, bool orphan) const {
    const uint64_t context = order::load<order::relaxed>(&record(ticket)->tag);
    const bool failed = (w & slot::failed) != 0;
    if (failed && (context != 0 ? !has_copies(ticket) && !Completion::is_repeated(context) : orphan)) raise_command(*this, ticket);
    if (context) Completion::complete(context, nvme::is_read(order::load<order::relaxed>(&record(ticket)->opcode_blocks)), !failed);
    order::store<order::release>(word(ticket), next_word(ticket));
  }

  // Both halves, for a command that the caller has waited for. Returns its outcome.
  WB_FN status finish_claimed(warp::mask_t mask, bool mine, uint32_t ticket, uint32_t w, uint64_t& again) const {
    land_claimed<copying::many>(mask, mine, ticket, w);
    status s;
    if (mine) {
      if (w & slot::failed) {
        s = describe(ticket, order::load<order::relaxed>(outcome(ticket)), true);
        again = to_repeat(ticket);
      }
      free_claimed(ticket, w, false);
    }
    return s;
  }

  // As `finish_claimed`, for a command that has failed. One lane calls this.
  static WB_FN_COLD status end_failed(by_value<basic_queue_ref> r, uint32_t ticket, uint32_t w) {
    const status s = r.describe(ticket, order::load<order::relaxed>(r.outcome(ticket)), true);
    r.free_claimed(ticket, w, false);
    return s;
  }

  // Last look at the end of a wait that timed out. If the command has completed after all, claims it and returns true; `w` is its
  // slot word. Otherwise gives the command up: its completion, should it arrive, then frees the slot. A command with a context is
  // not given up but left to other threads.
  WB_FN_COLD bool last_look(uint32_t ticket, wait_status v, uint32_t& w, status& s, uint64_t& again) const {
    const uint32_t in_flight = own_word(ticket);
    for (;;) {
      w = order::load<order::acquire>(word(ticket));
      uint32_t state = w ^ in_flight;
      if (state > slot::states) {
        if (aborted()) s = describe(ticket, status_word(WB_STOPPED), false);
        return false;
      }
      if ((state & ~slot::failed) == slot::completed) {
        if (claim(ticket, w)) return true;
        continue;
      }
      bool others = (state & slot::claimed) != 0;
      s = describe(ticket, status_word(v), !others);
      if (others || order::load<order::relaxed>(&record(ticket)->tag) != 0) return false;
      again = to_repeat(ticket);
      if (order::compare_exchange<order::acq_rel>(word(ticket), w, w | slot::claimed) == w) return false;
      again = 0;
      s = status{};
    }
  }

  // Gives up a command in flight that no other thread may finish: its completion, should it arrive, frees the slot. Returns false
  // if the command has completed.
  WB_FN bool abandon(uint32_t ticket) const {
    const uint32_t w = own_word(ticket);
    return order::compare_exchange<order::acq_rel>(word(ticket), w, w | slot::claimed) == w;
  }

  // Returns a status for a ticket; with `recorded`, it includes opcode, blocks and LBA of the ticket's record.
  WB_FN status describe(uint32_t ticket, uint32_t word, bool with_record) const {
    status s{word, 0, token::of(device_, q->index, ticket).word, 0};
    if (with_record) {
      s.opcode_blocks = order::load<order::relaxed>(&record(ticket)->opcode_blocks);
      s.lba = order::load<order::relaxed>(&record(ticket)->lba);
    }
    return s;
  }

  /// @brief Returns the address of the ticket's bounce buffer, as kernels see it.
  WB_FN uint64_t bounce(uint32_t ticket) const { return q->bounce + uint64_t{index(ticket)} * q->bounce_bytes; }
  /// @brief Returns true if the run has failed (relaxed, device).
  WB_FN bool aborted() const { return order::load<order::relaxed>(control_->abort) != 0; }

  /// @brief Returns the index of the queue's device in its volume.
  WB_FN uint32_t device() const { return device_; }
  /// @brief Returns the run's control block.
  WB_FN const wb_control* control() const { return control_; }
  /// @brief Returns the queue of `lane`, in all lanes. Collective.
  WB_FN basic_queue_ref shared(warp::mask_t mask, uint32_t lane) const {
    return basic_queue_ref(reinterpret_cast<wb_queue*>(warp::shuffle(mask, reinterpret_cast<uint64_t>(q), lane)), control_,
                           warp::shuffle(mask, device_, lane));
  }
  /// @brief Polls the queue of one of the lanes with `mine`. Collective.
  WB_FN void poll_one(warp::mask_t mask, bool mine) const {
    warp::mask_t m = warp::ballot(mask, mine);
    if (m) shared(mask, warp::first(m)).poll(mask);
  }
  // Returns one of the mask's lanes, a different one each turn.
  WB_FN static uint32_t nth_of(warp::mask_t m, uint32_t turn) {
    warp::mask_t later = m & ~((1u << (turn & (warp::width - 1))) - 1u);
    return warp::first(later ? later : m);
  }
  // Returns the command that the next ticket has to wait for.
  WB_FN token blocker() const { return token::of(device_, q->index, order::load<order::relaxed>(&q->frontier) - q->depth); }

 private:
  const wb_control* control_;
  uint32_t device_;

  static constexpr uint32_t patient_looks = WB_GPU ? 4 : 1;

  // Returns true if another device holds the blocks of the command, which has failed or is given up.
  WB_FN bool has_copies(uint32_t ticket) const {
    return (order::load<order::relaxed>(&record(ticket)->opcode_blocks) & WB_RECORD_COPIES) != 0;
  }
  WB_FN uint64_t to_repeat(uint32_t ticket) const { return has_copies(ticket) ? order::load<order::relaxed>(&record(ticket)->buffer) : 0; }

  // Returns true if a thread that does not own the completed command may finish it. The record may be of a later command by now.
  // Then the slot word has changed, and the claim that follows fails.
  WB_FN bool may_finish(uint32_t ticket, uint32_t w, bool orphans) const {
    wb_record* r = record(ticket);
    if (order::load<order::relaxed>(&r->opcode_blocks) & WB_RECORD_PRIVATE) return false;
    return (w & slot::failed) == 0 || orphans || order::load<order::relaxed>(&r->tag) != 0;
  }

  static WB_FN_COLD uint32_t poll_on(by_value<ring_ref> r, warp::mask_t mask) {
    uint64_t* lock = reinterpret_cast<uint64_t*>(&r.q->head_lock);
    // Constants are read before the lock is taken: after its acquire each look at the wb_queue would be a trip to the L2.
    const char* const entries = static_cast<const char*>(r.q->cq);
    uint32_t* const doorbell = r.q->cq_doorbell;
    const uint32_t slots = r.q->depth, log2_slots = r.q->log2_depth;
    uint64_t before = 1;
    if (warp::is_leader(mask) && (static_cast<uint32_t>(order::load<order::relaxed>(lock)) & 1u) == 0) {
      before = order::fetch_or<order::acq_rel>(lock, uint64_t{1});
    }
    before = warp::shuffle(mask, before, warp::leader(mask));
    if (static_cast<uint32_t>(before) != 0) return 0;
    if (entries == nullptr) return capsules::poll(r, mask, before);
    const uint32_t old_head = static_cast<uint32_t>(before >> 32);
    uint32_t head = old_head;
    const uint32_t n = warp::count(mask), rank = warp::rank(mask);
    // If the ring is empty, look again at once: the lock's other users only watch their slot words meanwhile.
    for (uint32_t looks = patient_looks; looks && head == old_head; --looks) {
      for (uint32_t k = n; k == n; head += k) {
        uint32_t at = head + rank;
        const char* entry = entries + uint64_t{at & (slots - 1)} * nvme::cqe_bytes;
        uint32_t w = order::load_quad<order::acquire, order::system>(entry).w;
        // A ring starts zeroed, so the phase is 1 on even laps (NVMe Base 2.1, 4.2.4).
        k = warp::prefix(mask, (w >> nvme::cqe_phase_shift & 1u) != (at >> log2_slots & 1u));
        if (rank < k) complete(r, w);
      }
    }
    warp::sync(mask);
    if (warp::is_leader(mask)) {
      if (head != old_head) order::mmio_store(doorbell, head & (slots - 1));
      order::store<order::release>(lock, static_cast<uint64_t>(head) << 32);
    }
    return head - old_head;
  }

  static WB_FN_COLD uint32_t reclaim_on(by_value<basic_queue_ref> r, warp::mask_t mask, bool orphans) {
    const uint32_t rank = warp::rank(mask);
    uint32_t ticket = warp::shuffle(mask, order::load<order::relaxed>(&r.q->frontier), warp::leader(mask)) + rank - r.q->depth;
    bool claimed = false;
    uint32_t w = 0;
    if (rank < r.q->depth) {
      w = order::load<order::acquire>(r.word(ticket));
      const bool complete = ((w ^ r.own_word(ticket)) & ~slot::failed) == slot::completed;
      claimed = complete && r.may_finish(ticket, w, orphans) && r.claim(ticket, w);
    }
    warp::mask_t found = warp::ballot(mask, claimed);
    if (found) {
      r.land_claimed<copying::few>(mask, claimed, ticket, w);
      if (claimed) r.free_claimed(ticket, w, orphans);
    }
    return warp::popcount(found);
  }

  // Enters a failed command that this thread has claimed in the error log, and fails the run.
  static WB_FN_COLD void raise_command(by_value<basic_queue_ref> r, uint32_t ticket) {
    const wb_record* from = r.record(ticket);
    const uint32_t what = order::load<order::relaxed>(&from->opcode_blocks);
    raise_error(r.control_,
                wb_error{order::load<order::relaxed>(r.outcome(ticket)), r.device_, r.q->index, r.index(ticket),
                         what >> WB_RECORD_OPCODE_SHIFT, what & WB_RECORD_BLOCKS_MASK, order::load<order::relaxed>(&from->lba)});
  }

  // Processes one completion entry, given by its dword 3.
  static WB_FN void complete(ring_ref r, uint32_t dword3) {
    uint32_t i = dword3 & nvme::cqe_cid_mask & (r.q->depth - 1), field = dword3 >> nvme::cqe_status_shift;
    uint32_t* w = r.q->slot + i;
    uint32_t bits = slot::completed;
    if (field & nvme::status_code_mask) {
      bits |= slot::failed;
      order::store<order::relaxed>(r.q->outcome + i, status_word(WB_DEVICE_ERROR, field));
    }
    uint32_t before = order::fetch_or<order::acq_rel>(w, bits);
    if ((before & slot::states) == slot::claimed) {
      // No thread waits for the command any more.
      uint32_t lap = (before >> slot::lap_shift) + 1;
      order::store<order::release>(w, (lap & 0xffffffffu >> r.q->log2_depth) << slot::lap_shift);
    }
  }
};

/// @brief The queue pair of volumes: a context names the tags of the frames that the command fills or writes back (tags::context).
using queue_ref = basic_queue_ref<tags::completion>;

}  // namespace warpbell
