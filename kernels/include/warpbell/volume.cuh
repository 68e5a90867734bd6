// One block address space over one or more namespaces.
//
//   warpbell::volume_ref vol(view);                         // wb_volume_view: a kernel's parameter, `Volume::view` of the host
//   auto t = vol.read_async(block, 1, tile);                // submits, writes the doorbell, returns
//   ...
//   if (auto s = vol.wait(t); !s) return vol.fail(s);       // done, device error, timed out or stopped
//
// Units: a block is the volume's logical block, `block_bytes()` bytes. Buffers are device-wide memory: global or pinned host
// memory, never a thread's own or a block's shared memory, since any thread may finish a command. Buffers are at least 4-byte
// aligned; 16-byte alignment is faster.
//
// Data. With bounce buffers a write's data is copied when the command is submitted. A read's data is copied to `dst` when a thread
// waits for the command, or earlier by another thread. Without bounce buffers the device transfers data directly. The buffer then
// belongs to the device until the command is done; after a wait that timed out or was stopped, until the queue is gone. A direct
// read is complete for this GPU when its completion is, if the device's writes are ordered for the GPU that owns the memory
// (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING >= 100). The host refuses direct transfers otherwise.
//
// Each function has two forms. Without a mask: for the lanes that happen to be converged. With a mask: collective. Every lane in
// the mask makes the call with its own arguments, and all lanes move all lanes' data. A lane that passes n == 0 only helps, and
// gets WB_DONE. Prefer these: one lane alone copies a bounce buffer at a fraction of a warp's speed.
//
// Several devices are striped or replicated. In a replicated volume every device holds every block, reads are spread over the
// devices chunk by chunk, and a write goes to all of them. Such a write has ended when its token is returned. As with any mirror,
// two concurrent writes to one block may leave copies that differ.
//
// A read that one copy fails is repeated on the others. The blocks go to a list, from which the host writes them back
// (wb_integrity). A copy that does not reply within the deadline, or fails a write that another copy takes, is taken out of use:
// its max_blocks becomes 0. The last copy is never taken out of use. With direct transfers a read that timed out is repeated only
// after the host has seen that the device has left the bus. Until then the device could write to the buffer. If a kernel takes one of
// two copies out of use while the other one leaves the bus, no copy may remain: then all operations end as timed out.
#pragma once

#include <warpbell/express.cuh>
#include <warpbell/nvme.cuh>
#include <warpbell/tags.cuh>

namespace warpbell {

/// @brief A volume, as kernels use it. By value; the wb_volume is in memory that kernels see.
class volume_ref {
 public:
  /// @brief Refers to a volume by its view: `Volume::view` of the host. For the host and for one thread.
  ///
  /// @pre The volume, or a run that keeps it, outlives the kernels that use this.
  WB_FN_BOTH explicit volume_ref(const wb_volume_view& view) : volume_ref(view.volume) {}
  /// @brief Refers to a volume by the address of its description, in memory that kernels see. As above.
  WB_FN_BOTH explicit volume_ref(const wb_volume* volume) : v_(const_cast<wb_volume*>(volume)) {}

  /// @brief Returns the number of logical blocks in the volume.
  WB_FN uint64_t blocks() const { return v_->blocks; }
  /// @brief Returns the bytes of a logical block.
  WB_FN uint32_t block_bytes() const { return 1u << v_->block_shift; }
  /// @brief Returns log2 of the bytes of a logical block.
  WB_FN uint32_t block_shift() const { return v_->block_shift; }
  /// @brief Returns the run's control block.
  WB_FN const wb_control* control() const { return v_->control; }
  /// @brief Returns the description that the host wrote.
  WB_FN const wb_volume* raw() const { return v_; }

  // --- asynchronous --------------------------------------------------------------------------------------------------

  /// @brief Submits a read of `n` blocks from `block` on, as one command. For the lanes that are converged.
  ///
  /// Waits only for room in the queue, and finishes others' commands meanwhile. So a thread may hold any number of tokens while it
  /// takes more.
  /// @param dst Destination, `n` * block_bytes() bytes of device-wide memory, at least 4-byte aligned.
  /// @return The token to wait for. It resolves to WB_BAD_ARGUMENT, without a command, if the range leaves the volume, or a direct
  /// buffer is not 4-byte aligned inside one registered region. So does a range beyond the limit of one command: the device's
  /// limit, or a stripe chunk with several devices.
  /// @note Wait for every token, also after another one has failed: a command that nobody waits for may still write to `dst` when
  /// the kernel has ended.
  WB_FN token read_async(uint64_t block, uint32_t n, void* dst) const { return read_async(warp::active(), block, n, dst, false); }
  /// @brief Submits a write of `n` blocks from `block` on, as one command. For the lanes that are converged. As read_async.
  ///
  /// @note The device sees the data that this thread stored before the call (a fence on scope system precedes the doorbell). The
  /// write is durable only after `flush`.
  WB_FN token write_async(uint64_t block, uint32_t n, const void* src) const { return write_async(warp::active(), block, n, src, false); }
  /// @brief Submits a read for each lane of the mask. Collective. As above.
  ///
  /// @param zero_helps A lane with n == 0 only helps; otherwise its call is a bad argument.
  WB_FN token read_async(warp::mask_t mask, uint64_t block, uint32_t n, void* dst, bool zero_helps = true) const {
    return begin(mask, n != 0 || !zero_helps, nvme::op_read, block, n, reinterpret_cast<uint64_t>(dst), 0);
  }
  /// @brief Submits a write for each lane of the mask. Collective. As above.
  WB_FN token write_async(warp::mask_t mask, uint64_t block, uint32_t n, const void* src, bool zero_helps = true) const {
    return begin(mask, n != 0 || !zero_helps, nvme::op_write, block, n, reinterpret_cast<uint64_t>(src), 0);
  }

  /// @brief Waits for a command and finishes it. For the lanes that are converged.
  ///
  /// Waits at most one deadline, longer only if a failed read is repeated on another copy.
  ///
  /// @return The outcome. An empty token is WB_DONE. Otherwise a device error, timed out, stopped or a bad argument.
  /// @note After a read succeeded this thread sees the data: an acquire on scope device of the completion.
  WB_FN status wait(token t) const { return wait(warp::active(), t); }
  /// @brief Waits for the token of each lane of the mask. Collective; lanes without a command pass an empty token.
  WB_FN status wait(warp::mask_t mask, token t) const {
    uint64_t again = 0;
    status s = queue(t).wait(mask, t.in_flight(), t.ticket(), again);
    if (t.is_resolved()) s = status{t.ticket(), 0, token::none, 0};
    if (again) s = repeat(*this, s, again);
    count_errors(mask, !s);
    return s;
  }

  /// @brief Returns true if `wait` would return at once. Polls the queue if not. For the lanes that are converged.
  WB_FN bool test(token t) const { return test(warp::active(), t); }
  /// @brief Returns true if `wait` would return at once. Collective over `mask`.
  WB_FN bool test(warp::mask_t mask, token t) const {
    queue_ref q = queue(t);
    bool pending = t.in_flight() && !q.test(t.ticket());
    if (!warp::any(mask, pending)) return true;
    q.poll_one(mask, pending);
    return !pending || q.test(t.ticket());
  }

  /// @brief Waits for any of `n` tokens, and empties that token. One thread calls this.
  ///
  /// @param s The outcome of that command.
  /// @return The token's index, or n if all tokens were empty.
  WB_FN uint32_t wait_any(token* t, uint32_t n, status& s) const {
    deadline p(control());
    for (;;) {
      uint32_t oldest = n;
      for (uint32_t i = 0; i < n; ++i) {
        if (t[i].empty()) continue;
        if (oldest == n) oldest = i;
        if (!t[i].in_flight() || queue(t[i]).test(t[i].ticket())) return complete_one(t, i, s);
      }
      if (oldest == n) return n;
      warp::mask_t self = 1u << warp::lane();
      queue(t[oldest]).poll(self);
      // Timed out: the wait on the first token gives its command up and returns the reason.
      if (p.expired() != wait_status::go_on) return complete_one(t, oldest, s);
    }
  }

  // --- synchronous ---------------------------------------------------------------------------------------------------

  /// @brief Reads any number of blocks, and waits. Uses several commands if one may not transfer them all. For the lanes that are
  /// converged.
  ///
  /// @param dst As for read_async.
  /// @return The outcome, as for `wait`; the first failure ends the transfer.
  /// @note After success this thread sees the data, as with `wait`.
  WB_FN status read(uint64_t block, uint32_t n, void* dst) const { return read(warp::active(), block, n, dst, false); }
  /// @brief Writes any number of blocks, and waits. For the lanes that are converged. As `read`.
  ///
  /// @note The device sees the data that this thread stored before the call. The write is durable only after `flush`.
  WB_FN status write(uint64_t block, uint32_t n, const void* src) const { return write(warp::active(), block, n, src, false); }
  /// @brief Reads any number of blocks for each lane of the mask, and waits. Collective.
  WB_FN status read(warp::mask_t mask, uint64_t block, uint32_t n, void* dst, bool zero_helps = true) const {
    return counted(mask, transfer(mask, n != 0 || !zero_helps, nvme::op_read, block, n, reinterpret_cast<uint64_t>(dst)));
  }
  /// @brief Writes any number of blocks for each lane of the mask, and waits. Collective.
  WB_FN status write(warp::mask_t mask, uint64_t block, uint32_t n, const void* src, bool zero_helps = true) const {
    return counted(mask, transfer(mask, n != 0 || !zero_helps, nvme::op_write, block, n, reinterpret_cast<uint64_t>(src)));
  }

  /// @brief Makes all writes that are done durable, on every device. For the lanes that are converged, which flush once together.
  WB_FN status flush() const { return flush(warp::active()); }
  /// @brief Makes all writes that are done durable, on every device. Collective: all lanes get the outcome of one flush.
  WB_FN status flush(warp::mask_t mask) const;

  // --- errors --------------------------------------------------------------------------------------------------------

  /// @brief Enters the operation in the error log and fails the run, which ends all its waits. For a thread that will not go on.
  WB_FN void fail(const status& s) const {
    token t{s.origin};
    bool known = t.in_flight();
    uint32_t command = known ? queue(t).index(t.ticket()) : 0;
    raise_error(control(), wb_error{s.word, known ? t.device() : 0, known ? t.queue() : 0, command,
                                    s.opcode_blocks >> WB_RECORD_OPCODE_SHIFT, s.opcode_blocks & WB_RECORD_BLOCKS_MASK, s.lba});
  }
  /// @brief Fails the run for an error that no command of the volume made. One thread calls this.
  ///
  /// @param word Status word (status.h).
  /// @param lba Block for the error log.
  /// @param blocks Number of blocks for the error log.
  WB_FN void raise(uint32_t word, uint32_t opcode = 0, uint64_t lba = 0, uint32_t blocks = 0, uint32_t device = 0) const {
    raise_error(control(), wb_error{word, device, 0, 0, opcode, blocks, lba});
  }

  // --- for the cache -------------------------------------------------------------------------------------------------

  /// @brief Starts a command that no thread needs to wait for, and that completes a cache tag. Collective.
  ///
  /// Any thread finishes it (`finish`, or a thread that needs its slot) and then changes the cache tag at address `tag`:
  /// - read done: VALID | REFERENCED, the other state bits cleared.
  /// - read failed: FAILED alone, and an error raised. Not on a replicated volume, whose pages can be read again: `read`, from
  ///   whichever copy has them.
  /// - write done: WRITING cleared.
  /// - write failed: WRITING cleared, DIRTY | FAILED set, and an error raised.
  ///
  /// A page that has checksums is UNCHECKED instead of VALID after the read. The checksums of a page that is written are stored
  /// already. A command that cannot be started changes its tag in the same way, and its token is resolved.
  /// @param opcode nvme::op_read or op_write, the same in all lanes.
  /// @param n Blocks; lanes with 0 help and get an empty token.
  WB_FN token start(warp::mask_t mask, uint64_t block, uint32_t n, uint32_t opcode, void* buffer, uint64_t* tag) const {
    return begin(mask, n != 0, opcode, block, n, reinterpret_cast<uint64_t>(buffer), reinterpret_cast<uint64_t>(tag));
  }

  /// @brief Records that a page will be written. One thread calls this, before `prepare_page`.
  ///
  /// @return WB_DONE, or the reason why the page must not be written.
  WB_FN uint32_t announce_page(uint64_t block, uint32_t n) const {
    return in_range(block, n) ? announce(block, n, true) : uint32_t{WB_DONE};
  }
  /// @brief Does what else precedes `start_prepared` for the write of a page: on a replicated volume the write itself. Collective;
  /// lanes without `wants` help.
  ///
  /// @param word Result of `announce_page`.
  /// @param tag As for `start`. If nothing is left to submit, the tag has been completed.
  /// @return True in the lanes whose write is still to be submitted.
  WB_FN bool prepare_page(warp::mask_t mask, bool wants, uint32_t word, uint64_t block, uint32_t n, uint64_t buffer, uint64_t* tag) const;
  /// @brief Starts a read, or a write after `prepare_page`. Otherwise as `start`. Collective.
  ///
  /// @param context Context of the command (tags::context): a read may fill several frames.
  WB_FN token start_prepared(warp::mask_t mask, uint64_t block, uint32_t n, uint32_t opcode, void* buffer, uint64_t context) const {
    io x{opcode, n, 0, block, reinterpret_cast<uint64_t>(buffer), context};
    uint32_t device = 0;
    token t;
    bool waits = n != 0;
    if (waits && !admit(x, device)) {
      t = refuse(x, refused(x.op, x.block, x.blocks));
      waits = false;
    }
    return send<true>(mask, waits, x, device, t);
  }

  /// @brief Finishes the token's command if it has completed, after polling once if it has not. Never waits. For the lanes that are
  /// converged.
  ///
  /// @return True if the command is over, or the token empty or resolved.
  WB_FN bool finish(token t) const { return finish(warp::active(), t); }
  /// @brief Finishes commands as above. Collective; lanes without a token pass an empty one.
  WB_FN bool finish(warp::mask_t mask, token t) const {
    bool mine = t.in_flight();
    return queue(t).finish(mask, mine, t.ticket()) || !mine;
  }

  /// @brief Submits a write of pages whose checksums are stored already (checksum.cuh). Otherwise as write_async. Collective.
  WB_FN token write_pages_async(warp::mask_t mask, uint64_t block, uint32_t n, const void* src) const {
    return begin(mask, n != 0, nvme::op_write, block, n, reinterpret_cast<uint64_t>(src), 0, announced::page);
  }

  /// @brief As `write_async`, but with `self_checked` no mark precedes the write and the volume does not record it: its blocks belong to an
  /// array with checksums of its own. Collective; `self_checked` is the same in all lanes.
  WB_FN token write_async_announced(warp::mask_t mask, uint64_t block, uint32_t n, const void* src, bool self_checked) const {
    const announced how = self_checked ? announced::nothing : announced::blocks;
    return begin(mask, n != 0, nvme::op_write, block, n, reinterpret_cast<uint64_t>(src), 0, how);
  }

  /// @brief The table of page checksums (wb_integrity), with a count of 0 if there are none.
  struct checksum_table {
    uint32_t* sum;
    uint64_t count;
  };
  /// @brief Returns the table of page checksums. One thread calls this; an acquire on scope device of the count.
  WB_FN checksum_table checksums() const {
    const wb_integrity* g = integrity();
    if (g == nullptr) return checksum_table{nullptr, 0};
    const uint64_t count = order::load<order::acquire>(&g->checksum_count);
    return checksum_table{reinterpret_cast<uint32_t*>(order::load<order::relaxed>(&g->checksum)), count};
  }
  /// @brief Marks the checksums of these blocks as not known. One thread calls this; relaxed on scope device.
  WB_FN void forget_checksums(uint64_t block, uint32_t n) const {
    const checksum_table table = checksums();
    if (table.count == 0) return;
    const uint64_t last = (((block + n) << v_->block_shift) - 1) / WB_CHECKSUM_BYTES;
    for (uint64_t u = (block << v_->block_shift) / WB_CHECKSUM_BYTES; u <= last && u < table.count; ++u) {
      order::store<order::relaxed>(table.sum + u, 0u);
    }
  }

  /// @brief Reads from the copy that is `turn` places after the one that is read first. Collective. The command is executed by a
  /// function that is called, and not inlined.
  ///
  /// @param ticket The command's ticket, for the error log.
  /// @return The status word.
  WB_FN uint32_t read_copy(warp::mask_t mask, bool wants, uint64_t block, uint32_t n, void* dst, uint32_t turn, uint32_t& ticket) const {
    io x{nvme::op_read, n, turn, block, reinterpret_cast<uint64_t>(dst)};
    const uint32_t word = move_called(*this, mask, wants, &x);
    ticket = x.ticket;
    return word;
  }
  /// @brief Counts a read that one copy returned after others did not. One lane calls this.
  ///
  /// @param damaged Bit set of the devices that returned an error or wrong data. The host writes the blocks back to them.
  WB_FN_COLD void redirected(uint32_t damaged, uint64_t block, uint32_t n) const;
  /// @brief Returns true if the device failed the command or did not reply: another copy may succeed.
  WB_FN static bool is_of_device(uint32_t word) {
    return word >> WB_STATUS_KIND_SHIFT == WB_DEVICE_ERROR || word >> WB_STATUS_KIND_SHIFT == WB_TIMED_OUT;
  }
  /// @brief Adds the failed commands of the lanes with `mine` to the counters. Collective.
  WB_FN void count_errors(warp::mask_t mask, bool mine) const {
    uint32_t n = warp::popcount(warp::ballot(mask, mine));
    if (n && warp::is_leader(mask)) order::add<order::relaxed>(&stats()->errors, uint64_t{n});
  }

  // --- parts ---------------------------------------------------------------------------------------------------------

  /// @brief A block's place on a device.
  struct place {
    uint32_t device;
    uint64_t lba;
    uint32_t room;  // blocks from there that one command may transfer; 0 on a copy that is out of use
    bool copies;    // other devices hold the block too
  };

  /// @brief Returns the place of a block of the volume. Replicated: of the copy `turn` places after the one that is read first.
  WB_FN place locate(uint64_t block, uint32_t turn = 0) const {
    const uint32_t devices = v_->device_count, chunk = v_->chunk_blocks;
    if (devices == 1) return place{0, block, v_->device[0].max_blocks, false};
    uint64_t stripe;
    uint32_t within;
    if (block >> 32 == 0) {
      stripe = static_cast<uint32_t>(block) / chunk;
      within = static_cast<uint32_t>(block) % chunk;
    } else {
      stripe = block / chunk;
      within = static_cast<uint32_t>(block % chunk);
    }
    const uint32_t device = static_cast<uint32_t>((stripe + turn) % devices), most = room_on(device);
    const bool copies = v_->replicated != 0;
    const uint64_t lba = copies ? block : stripe / devices * chunk + within;
    return place{device, lba, chunk - within < most ? chunk - within : most, copies};
  }

  /// @brief Returns the most blocks that one command may transfer on every device in use.
  WB_FN uint32_t most_blocks() const {
    uint32_t most = ~0u;
    for (uint32_t d = 0; d < v_->device_count; ++d) {
      const uint32_t one = room_on(d);
      if (one != 0 && one < most) most = one;
    }
    return most;
  }
  /// @brief Returns true if a block is on the same device as the block before it, and follows it there.
  WB_FN bool continues(uint64_t block) const { return v_->device_count == 1 || block % v_->chunk_blocks != 0; }

  /// @brief Returns the place from which a block is read. `turn` becomes that of the first copy in use.
  WB_FN place reading_place(uint64_t block, uint32_t& turn) const {
    turn = 0;
    place at = locate(block);
    while (at.room == 0 && ++turn < v_->device_count) at = locate(block, turn);
    return at;
  }

  // Takes a copy that did not reply out of use. Returns false if it is the last one, or may still write to a buffer that it was
  // given: then the operation has failed. Waits at most one deadline for the host to see that a device has left the bus.
  WB_FN_COLD bool leave_out(uint32_t device) const {
    if (!drop(device)) return false;
    if (queue_on(device).q->bounce != 0) return true;
    deadline p(control());
    while (order::load<order::acquire>(&v_->device[device].gone) == 0) {
      if (p.expired() != wait_status::go_on) return false;
    }
    return true;
  }

  /// @brief Returns true if reads and writes may name this memory: with bounce buffers any, otherwise registered memory. One thread
  /// calls this.
  ///
  /// @param address First byte, a multiple of 4.
  WB_FN bool reaches(uint64_t address, uint64_t bytes) const {
    if (address & 3u) return false;
    if (queue_on(0).q->bounce != 0) return true;
    for (uint32_t i = 0; i < v_->registered_region_count; ++i) {
      const uint64_t at = address - v_->window[i].base, length = v_->window[i].bytes;
      if (at < length && bytes <= length - at) return true;
    }
    return false;
  }

  /// @brief Returns the queue that this warp uses on a device. Warps take queues in turn, which needs no shared counter.
  WB_FN queue_ref queue_on(uint32_t device) const {
    const wb_device* d = &v_->device[device];
    return queue_ref(d->queues + warp::index() % d->queue_count, control(), device);
  }

  /// @brief Returns the queue of a token in flight, and an arbitrary queue for other tokens.
  WB_FN queue_ref queue(token t) const {
    uint32_t device = t.in_flight() ? t.device() : 0, index = t.in_flight() ? t.queue() : 0;
    return queue_ref(v_->device[device].queues + index, control(), device);
  }

  /// @brief Returns the stripe of counters of this multiprocessor.
  WB_FN wb_stats* stats() const { return v_->stats + (warp::processor() & (WB_STATS_STRIPES - 1)); }

 private:
  wb_volume* v_;

  static constexpr uint64_t no_address = ~0ull;

  WB_FN status refused(uint32_t op, uint64_t block, uint32_t n) const {
    const uint32_t word = in_range(block, n) && !is_any_used(~0u) ? no_copy() : status_word(WB_BAD_ARGUMENT);
    return status{word, op << WB_RECORD_OPCODE_SHIFT | (n & WB_RECORD_BLOCKS_MASK), token::none, block};
  }
  // Returns the status word of an operation on a volume of which no copy is in use.
  WB_FN static uint32_t no_copy() { return status_word(WB_TIMED_OUT); }

  WB_FN bool in_range(uint64_t block, uint32_t n) const { return n != 0 && block < v_->blocks && n <= v_->blocks - block; }

  // Returns the iova of a buffer that the device may use directly, or no_address.
  WB_FN uint64_t iova(uint32_t device, uint64_t address, uint32_t bytes) const {
    if (address & 3u) return no_address;
    for (uint32_t i = 0; i < v_->registered_region_count; ++i) {
      const wb_registered_region* w = &v_->window[i];
      uint64_t at = address - w->base;
      if (at < w->bytes && bytes <= w->bytes - at) return w->iova[device] + at;
    }
    return no_address;
  }

  // Returns the key with which a remote controller reaches a buffer that has an iova.
  WB_FN_COLD static uint32_t key_of(by_value<volume_ref> v, uint32_t device, uint64_t address) {
    for (uint32_t i = 0; i < v.v_->registered_region_count; ++i) {
      const wb_registered_region* w = &v.v_->window[i];
      if (address - w->base < w->bytes) return w->key[device];
    }
    return 0;
  }

  // Returns true if the device can transfer `n` blocks to or from the buffer.
  WB_FN bool reachable(uint32_t device, uint64_t buffer, uint32_t n) const {
    return queue_on(device).q->bounce != 0 || iova(device, buffer, n << v_->block_shift) != no_address;
  }

  // A command to submit. A function that is called gets its address: what is in memory needs no register while a lane waits.
  struct io {
    uint32_t op, blocks, turn;  // turn: of the copy
    uint64_t block, buffer;
    uint64_t tag = 0;
    uint32_t ticket = 0;  // of the command, once it has one
  };

  // Writes the commands of the lanes with `got`, as the callback of `try_submit`. It computes place and address again, so that they
  // need no registers while a lane waits.
  struct writer {
    const volume_ref& volume;
    const queue_ref q;
    const io& x;
    bool is_private;

    WB_FN void operator()(warp::mask_t mask, bool got, uint32_t ticket) const {
      const wb_volume* v = volume.v_;
      const uint32_t op = x.op, blocks = x.blocks;
      const uint64_t buffer = x.buffer;
      const uint32_t bytes = blocks << v->block_shift, i = q.index(ticket);
      const bool bounces = q.q->bounce != 0;
      if (bounces && op == nvme::op_write) {
        if (is_private) {
          copy_together(mask, got, q.bounce(ticket), buffer, bytes);
        } else {
          copy_together<copying::few>(mask, got, q.bounce(ticket), buffer, bytes);
        }
      }
      if (!got) return;
      const place at = volume.locate(x.block, x.turn);
      if (op == nvme::op_flush) {
        q.post(ticket, nvme::flush(v->device[at.device].nsid), nvme::record(op, 0, 0, 0, 0, 0, is_private));
        return;
      }
      const uint64_t data = bounces ? q.q->bounce_iova + uint64_t{i} * q.q->bounce_bytes : volume.iova(at.device, buffer, bytes);
      const uint64_t list = uint64_t{i} << v->memory_page_shift;
      const nvme::prp p = q.q->remote ? nvme::keyed(data, bytes, bounces ? q.q->bounce_key : key_of(volume, at.device, buffer))
                                      : nvme::data_pointer(data, bytes, v->memory_page_shift,
                                                           bounces ? nullptr : reinterpret_cast<uint64_t*>(q.q->prp_list + list),
                                                           q.q->prp_list_iova + list);
      const uint64_t to = op == nvme::op_read ? (bounces ? buffer : buffer | WB_RECORD_LANDED) : 0;
      q.post(ticket, nvme::transfer(op, v->device[at.device].nsid, at.lba, blocks, p),
             nvme::record(op, at.lba, blocks, to, bytes, x.tag, is_private, at.copies && op == nvme::op_read));
    }
  };

  // Writes commands; with `called` by a function that is called, and not inlined.
  template <bool called>
  WB_FN void write(const queue_ref& q, const io& x, bool is_private, warp::mask_t mask, bool got, uint32_t ticket) const {
    if (called) write_called(*this, q.q, &x, is_private, mask, got, ticket);
    else writer{*this, q, x, is_private}(mask, got, ticket);
  }

  // Effects of a write on the volume's records (`announce`).
  enum class announced : uint32_t { blocks, page, nothing };
  WB_FN token begin(warp::mask_t mask, bool wants, uint32_t op, uint64_t block, uint32_t n, uint64_t buffer, uint64_t tag,
                    announced how = announced::blocks) const;
  WB_FN bool admit(io& x, uint32_t& device) const;
  WB_FN bool finish_write(bool waits, uint32_t word, const io& x, token& t) const;
  template <bool tagged> WB_FN token send(warp::mask_t mask, bool waits, const io& x, uint32_t device, token t) const;
  template <bool tagged> WB_FN token end_unsent(const io& x, const status& ended) const;
  WB_FN_COLD static token end_unsent_page(by_value<volume_ref> v, const io* x, by_value<status> ended);
  WB_FN token refuse(const io& x, const status& s) const;
  WB_FN status transfer(warp::mask_t mask, bool wants, uint32_t op, uint64_t block, uint32_t n, uint64_t buffer) const;
  template <bool called = false> WB_FN uint32_t move(warp::mask_t mask, bool wants, io& x) const;
  WB_FN uint32_t move_alone(warp::mask_t mask, bool wants, io& x, uint32_t ended) const;
  WB_FN_COLD static uint32_t move_called(by_value<volume_ref> v, warp::mask_t mask, bool wants, io* x);
  WB_FN_COLD static void write_called(by_value<volume_ref> v, wb_queue* queue, const io* x, bool is_private, warp::mask_t mask, bool got,
                                      uint32_t ticket);

  template <bool called> WB_FN uint32_t write_copies(warp::mask_t mask, bool wants, io& x) const;
  WB_FN_COLD static uint32_t read_elsewhere(by_value<volume_ref> v, uint64_t block, uint32_t n, uint64_t buffer, uint32_t word,
                                            uint32_t& turn, uint32_t& ticket);
  WB_FN void enter_repair(uint32_t device, uint64_t block, uint32_t n) const;
  WB_FN_COLD static status repeat(by_value<volume_ref> v, by_value<status> s, uint64_t again);
  WB_FN_COLD static uint32_t write_mark(by_value<volume_ref> v);

  WB_FN static warp::mask_t self() { return warp::mask_t{1} << warp::lane(); }
  WB_FN wb_integrity* integrity() const { return v_->integrity; }
  WB_FN uint32_t room_on(uint32_t device) const { return order::load_lasting(&v_->device[device].max_blocks); }

  // Returns true if a device of this set is in use.
  WB_FN_COLD bool is_any_used(uint32_t set) const {
    for (uint32_t d = 0; d < v_->device_count; ++d) {
      if ((set >> d & 1u) && order::load<order::relaxed>(&v_->device[d].max_blocks) != 0) return true;
    }
    return false;
  }

  // Takes a copy out of use, unless it is the last one. Returns true if it is out of use. `copies` has the copies that no kernel took
  // out of use; one of them that has left the bus is out of use, too.
  WB_FN_COLD bool drop(uint32_t device) const {
    uint32_t* copies = &integrity()->copies;
    uint32_t seen = order::load<order::relaxed>(copies);
    while (seen >> device & 1u) {
      const uint32_t left = seen & ~(1u << device);
      if (!is_any_used(left)) return false;
      const uint32_t was = order::compare_exchange<order::acq_rel>(copies, seen, left);
      seen = was == seen ? left : was;
    }
    // Also if another thread has changed `copies`: that thread may be about to store this. The caller acknowledges writes that the
    // copy lacks, so no later read may go there.
    order::store<order::release>(&v_->device[device].max_blocks, 0u);
    return true;
  }

  // Records that blocks will be written to, before they are. With stored arrays a mark on the medium precedes the first write of
  // all. `is_page`: their checksums are right already. Returns WB_DONE, or the reason why the write must not be made.
  WB_FN uint32_t announce(uint64_t block, uint32_t n, bool is_page) const {
    wb_integrity* g = integrity();
    if (g == nullptr) return WB_DONE;
    if (!is_page) forget_checksums(block, n);
    const uint64_t last = (block + n - 1) >> g->unit_shift;
    for (uint64_t u = block >> g->unit_shift; u <= last; ++u) {
      uint64_t* word = &g->changed[u / 64];
      const uint64_t bit = uint64_t{1} << (u % 64);
      if (!(order::load<order::relaxed>(word) & bit)) order::fetch_or<order::relaxed>(word, bit);
    }
    return order::load<order::acquire>(&g->mark_pending) ? write_mark(*this) : uint32_t{WB_DONE};
  }

  // Adds a group's transfers to the counters: one atomic for each counter, not one for each lane.
  WB_FN void count(warp::mask_t mask, bool mine, uint32_t op, uint32_t blocks, uint32_t doorbells) const {
    uint32_t commands = warp::popcount(warp::ballot(mask, mine));
    if ((commands | doorbells) == 0) return;
    uint64_t bytes = static_cast<uint64_t>(warp::sum(mask, mine ? blocks : 0u)) << v_->block_shift;
    if (!warp::is_leader(mask)) return;
    wb_stats* s = stats();
    if (commands) {
      bool is_read = op == nvme::op_read;
      order::add<order::relaxed>(is_read ? &s->reads : &s->writes, uint64_t{commands});
      order::add<order::relaxed>(is_read ? &s->read_bytes : &s->write_bytes, bytes);
    }
    if (doorbells) order::add<order::relaxed>(&s->doorbells, uint64_t{doorbells});
  }

  WB_FN status counted(warp::mask_t mask, status s) const {
    count_errors(mask, !s);
    return s;
  }

  WB_FN uint32_t complete_one(token* t, uint32_t i, status& s) const {
    token one = t[i];
    t[i] = token{};
    s = wait(warp::mask_t{1} << warp::lane(), one);
    return i;
  }
};

}  // namespace warpbell

// The remaining members of the class.
#include <warpbell/transfers.cuh>
// After them, which it calls.
#include <warpbell/mirrors.cuh>
