// Completion queue entries of mlx5 adapters (rdma-core mlx5dv.h, mlx5_cqe64 and mlx5_err_cqe), and the arithmetic of completion
// queues: rings whose entries carry an owner bit, and queues collapsed into one entry.
//
// The last 16 bytes of an entry have all that a sender needs, and the last 4 say whether it is new: read them in one access.
#pragma once

#include <warpbell/mlx5/endian.cuh>
#include <warpbell/order.cuh>

namespace warpbell {
namespace mlx5 {

constexpr uint32_t cqe_bytes = 64;
constexpr uint32_t cqe_tail_at = 48;  // the last 16 bytes

// Bits 7:4 of an entry's last byte.
enum cqe_opcode : uint32_t {
  cqe_requester = 0x0,        // a work request has ended well
  cqe_write_imm = 0x1,        // a write with immediate has come
  cqe_send = 0x2,             // a message has come
  cqe_send_imm = 0x3,
  cqe_send_inval = 0x4,
  cqe_requester_error = 0xd,  // a work request has failed
  cqe_responder_error = 0xe,  // a receive has failed
  cqe_invalid = 0xf           // never written
};

// Byte 55 of an entry that failed. The rest is in host/wire/mlx5/syndrome.rs, which has words for them.
enum syndrome : uint32_t {
  syndrome_local_length = 0x01,
  syndrome_local_qp_operation = 0x02,
  syndrome_local_protection = 0x04,
  syndrome_flushed = 0x05,
  syndrome_remote_invalid_request = 0x12,
  syndrome_remote_access = 0x13,
  syndrome_retry_exceeded = 0x15,
  syndrome_rnr_retry_exceeded = 0x16
};

// The last byte of an entry before the queue is created: never written, of the lap before the first.
constexpr uint32_t cqe_never_written = 0xf1;

// The last 4 bytes: index of the work queue entry's first block, signature, kind and owner.
class cqe_state {
 public:
  WB_FN explicit cqe_state(uint32_t word) : word_(word) {}

  WB_FN uint32_t wqe_counter() const { return permute(word_, 0, 0x4401u); }
  WB_FN uint32_t op_own() const { return word_ >> 24; }
  WB_FN uint32_t opcode() const { return word_ >> 28; }
  WB_FN uint32_t owner() const { return word_ >> 24 & 1u; }
  WB_FN bool is_solicited() const { return (word_ >> 25 & 1u) != 0; }
  WB_FN bool is_error() const { return opcode() == cqe_requester_error || opcode() == cqe_responder_error; }

 private:
  uint32_t word_;
};

// The last 16 bytes, as loaded.
class cqe_tail {
 public:
  WB_FN explicit cqe_tail(order::quad q) : q_(q) {}

  WB_FN cqe_state state() const { return cqe_state(q_.w); }
  // Of an entry that failed.
  WB_FN uint32_t hardware_syndrome() const { return q_.y & 0xffu; }
  WB_FN uint32_t hardware_syndrome_type() const { return q_.y >> 8 & 0xffu; }
  WB_FN uint32_t vendor_syndrome() const { return q_.y >> 16 & 0xffu; }
  WB_FN uint32_t syndrome() const { return q_.y >> 24; }
  WB_FN bool is_flush() const { return syndrome() == syndrome_flushed; }
  // Opcode of the work queue entry, and its queue pair.
  WB_FN uint32_t wqe_opcode() const { return q_.z & 0xffu; }
  WB_FN uint32_t qpn() const { return swap_bytes(q_.z) & 0xffffffu; }

 private:
  order::quad q_;
};

// --- a ring ----------------------------------------------------------------------------------------------------------

// Entry `index` is the index-th completion of the queue, a counter that never wraps.
class completion_ring {
 public:
  WB_FN completion_ring(uint64_t base, uint32_t log_entries) : base_(base), log_entries_(log_entries) {}

  WB_FN uint64_t entries() const { return uint64_t{1} << log_entries_; }
  WB_FN uint64_t at(uint64_t index) const { return base_ + (index & (entries() - 1)) * cqe_bytes; }
  // The owner bit that the adapter writes into entry `index`: 0 in the first lap.
  WB_FN uint32_t owner(uint64_t index) const { return static_cast<uint32_t>(index >> log_entries_) & 1u; }
  // Whether what stands there is of this lap.
  WB_FN bool is_written(uint64_t index, cqe_state s) const { return s.opcode() != cqe_invalid && s.owner() == owner(index); }

 private:
  uint64_t base_;
  uint32_t log_entries_;
};

// The first word of a completion queue's doorbell record, after `consumed` entries. A queue that ignores overrun needs none.
WB_FN uint32_t consumer_record(uint64_t consumed) { return swap_bytes(static_cast<uint32_t>(consumed) & 0xffffffu); }

// --- collapsed into one entry ----------------------------------------------------------------------------------------

// The queue's one entry shows the latest completion, and work requests of a queue pair complete in order. Counters are of blocks
// of the send queue. Ask only for an `index` that was rung for, that is not known complete for 65,536 blocks already, and before
// which there is a signalled entry of one block: an entry of two is named by its first block, and would be waited for for ever.
class collapsed {
 public:
  WB_FN explicit collapsed(uint32_t log_ring_blocks) : blocks_(1u << log_ring_blocks) {}

  // Whether everything before block `index` is complete when the entry shows `wqe_counter`.
  WB_FN bool is_complete(uint64_t index, uint32_t wqe_counter) const {
    return ((static_cast<uint32_t>(index) - wqe_counter - 2u) & 0xffffu) >= blocks_;
  }
  // How many blocks are complete, where everything before `index` is.
  WB_FN static uint64_t completed(uint64_t index, uint32_t wqe_counter) {
    const uint32_t next = (wqe_counter + 1u) & 0xffffu;
    const uint64_t lap = (static_cast<uint32_t>(index) & 0xffffu) > next ? 0x10000u : 0u;
    return ((index & ~uint64_t{0xffff}) | next) + lap;
  }
  // How many blocks are complete, where `reserved` is the newest counter and fewer than 65,536 blocks are outstanding.
  WB_FN static uint64_t completed_before(uint64_t reserved, uint32_t wqe_counter) {
    return reserved - ((static_cast<uint32_t>(reserved) - (wqe_counter + 1u)) & 0xffffu);
  }

 private:
  uint32_t blocks_;
};

}  // namespace mlx5
}  // namespace warpbell
