// Completion queue entries of mlx5 adapters (rdma-core mlx5dv.h, mlx5_cqe64 and mlx5_err_cqe), and the arithmetic of completion
// queues. These are rings whose entries carry an owner bit, or queues collapsed into one entry.
//
// The last 16 bytes of an entry have all that a sender needs. The last 4 of these say whether the entry is new. Read the 16 bytes
// in one access.
#pragma once

#include <warpbell/mlx5/endian.cuh>
#include <warpbell/order.cuh>

namespace warpbell {
namespace mlx5 {

constexpr uint32_t cqe_bytes = 64;
constexpr uint32_t cqe_tail_at = 48;     // the last 16 bytes
constexpr uint32_t cqe_length_at = 32;   // the 16 bytes before them, which end with the length of a received message
constexpr uint32_t cqe_data_bytes = 32;  // most data of a received message in the entry itself, from its first byte on

// Bits 7:4 of an entry's last byte.
enum cqe_opcode : uint32_t {
  cqe_requester = 0x0,  // a work request has succeeded
  cqe_write_imm = 0x1,  // a write with immediate has arrived
  cqe_send = 0x2,       // a message has arrived
  cqe_send_imm = 0x3,
  cqe_send_inval = 0x4,
  cqe_requester_error = 0xd,  // a work request has failed
  cqe_responder_error = 0xe,  // a receive has failed
  cqe_invalid = 0xf           // never written
};

// Byte 55 of a failed entry. host/wire/mlx5/syndrome.rs has the other values, and text for all of them.
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

// Initial value of an entry's last byte, before the queue is created: never written, of the lap before the first.
constexpr uint32_t cqe_never_written = 0xf1;

/// @brief The last 4 bytes of an entry: index of the work queue entry's first block, signature, kind and owner.
class cqe_state {
 public:
  /// @brief Takes the word as loaded.
  WB_FN explicit cqe_state(uint32_t word) : word_(word) {}

  /// @brief Returns the index of the work queue entry's first block, 16 bits.
  WB_FN uint32_t wqe_counter() const { return permute(word_, 0, 0x4401u); }
  /// @brief Returns the last byte: opcode and owner.
  WB_FN uint32_t op_own() const { return word_ >> 24; }
  /// @brief Returns the kind of completion (cqe_opcode).
  WB_FN uint32_t opcode() const { return word_ >> 28; }
  /// @brief Returns the owner bit.
  WB_FN uint32_t owner() const { return word_ >> 24 & 1u; }
  /// @brief Returns true if the entry has the data of the received message, up to cqe_data_bytes (MLX5_INLINE_SCATTER_32). The
  /// receive's own memory is then unchanged.
  WB_FN bool has_data() const { return (word_ >> 26 & 3u) == 1; }
  /// @brief Returns true if the sender asked for a solicited event.
  WB_FN bool is_solicited() const { return (word_ >> 25 & 1u) != 0; }
  /// @brief Returns true if the work request or receive failed.
  WB_FN bool is_error() const { return opcode() == cqe_requester_error || opcode() == cqe_responder_error; }

 private:
  uint32_t word_;
};

/// @brief The last 16 bytes of an entry, as loaded.
class cqe_tail {
 public:
  /// @brief Takes the 16 bytes as loaded.
  WB_FN explicit cqe_tail(order::quad q) : q_(q) {}

  /// @brief Returns the last 4 bytes.
  WB_FN cqe_state state() const { return cqe_state(q_.w); }
  /// @brief Returns the hardware syndrome of a failed entry.
  WB_FN uint32_t hardware_syndrome() const { return q_.y & 0xffu; }
  /// @brief Returns the type of the hardware syndrome of a failed entry.
  WB_FN uint32_t hardware_syndrome_type() const { return q_.y >> 8 & 0xffu; }
  /// @brief Returns the vendor syndrome of a failed entry.
  WB_FN uint32_t vendor_syndrome() const { return q_.y >> 16 & 0xffu; }
  /// @brief Returns the syndrome of a failed entry.
  WB_FN uint32_t syndrome() const { return q_.y >> 24; }
  /// @brief Returns true if the work request was flushed after an earlier failure of its queue pair.
  WB_FN bool is_flush() const { return syndrome() == syndrome_flushed; }
  /// @brief Returns the opcode of the work queue entry.
  WB_FN uint32_t wqe_opcode() const { return q_.z & 0xffu; }
  /// @brief Returns the number of the queue pair, 24 bits.
  WB_FN uint32_t qpn() const { return swap_bytes(q_.z) & 0xffffffu; }

 private:
  order::quad q_;
};

/// @brief Returns the bytes of a received message, from the 16 bytes at cqe_length_at.
WB_FN uint32_t received_bytes(const order::quad& q) { return swap_bytes(q.w); }

// --- a ring ----------------------------------------------------------------------------------------------------------

/// @brief A completion ring. Entry `index` is the index-th completion of the queue, a counter that never wraps.
class completion_ring {
 public:
  /// @brief Refers to a ring of 2^`log_entries` entries at address `base`.
  WB_FN completion_ring(uint64_t base, uint32_t log_entries) : base_(base), log_entries_(log_entries) {}

  /// @brief Returns the number of entries.
  WB_FN uint64_t entries() const { return uint64_t{1} << log_entries_; }
  /// @brief Returns the address of entry `index`.
  WB_FN uint64_t at(uint64_t index) const { return base_ + (index & (entries() - 1)) * cqe_bytes; }
  /// @brief Returns the owner bit that the adapter writes into entry `index`: 0 in the first lap.
  WB_FN uint32_t owner(uint64_t index) const { return static_cast<uint32_t>(index >> log_entries_) & 1u; }
  /// @brief Returns true if the entry at `index`, whose last word is `s`, is of this lap.
  WB_FN bool is_written(uint64_t index, cqe_state s) const { return s.opcode() != cqe_invalid && s.owner() == owner(index); }

 private:
  uint64_t base_;
  uint32_t log_entries_;
};

/// @brief Returns the first word of a completion queue's doorbell record after `consumed` entries. A queue that ignores overrun
/// needs none.
WB_FN uint32_t consumer_record(uint64_t consumed) { return swap_bytes(static_cast<uint32_t>(consumed) & 0xffffffu); }

// --- collapsed into one entry ----------------------------------------------------------------------------------------

/// @brief A completion queue of one entry, which shows the latest completion. Work requests of a queue pair complete in order.
///
/// Counters are of blocks of the send queue. Ask only for an `index` that was announced, and that has not been known complete for
/// 65,536 blocks already. A signalled entry of one block must be before `index`. A completion names an entry of two blocks by its
/// first block, so a wait for the second would never end.
class collapsed {
 public:
  /// @brief Creates the arithmetic for a send ring of 2^`log_ring_blocks` blocks.
  WB_FN explicit collapsed(uint32_t log_ring_blocks) : blocks_(1u << log_ring_blocks) {}

  /// @brief Returns true if everything before block `index` is complete, when the entry shows `wqe_counter`.
  WB_FN bool is_complete(uint64_t index, uint32_t wqe_counter) const {
    return ((static_cast<uint32_t>(index) - wqe_counter - 2u) & 0xffffu) >= blocks_;
  }
  /// @brief Returns the number of complete blocks, given that everything before `index` is complete.
  WB_FN static uint64_t completed(uint64_t index, uint32_t wqe_counter) {
    const uint32_t next = (wqe_counter + 1u) & 0xffffu;
    const uint64_t lap = (static_cast<uint32_t>(index) & 0xffffu) > next ? 0x10000u : 0u;
    return ((index & ~uint64_t{0xffff}) | next) + lap;
  }
  /// @brief Returns the number of complete blocks, where `reserved` is the newest counter and fewer than 65,536 blocks are
  /// outstanding.
  WB_FN static uint64_t completed_before(uint64_t reserved, uint32_t wqe_counter) {
    return reserved - ((static_cast<uint32_t>(reserved) - (wqe_counter + 1u)) & 0xffffu);
  }

 private:
  uint32_t blocks_;
};

}  // namespace mlx5
}  // namespace warpbell
