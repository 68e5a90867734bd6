// Arithmetic of an mlx5 send queue: a ring of 64-byte blocks, and the values of its doorbell record and doorbell.
//
// Counters have 64 bits, count blocks and never wrap ("next free block"). The wire has their low 16 bits, whatever the ring's size
// is. A ring has at most 32,768 blocks, so that 16-bit differences tell its laps apart.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/mlx5/wqe.cuh>

namespace warpbell {
namespace mlx5 {

constexpr uint32_t max_ring_log_blocks = 15;
constexpr uint32_t index_mask = 0xffffu;

/// @brief Returns the blocks of an entry of `segments` segments.
WB_FN constexpr uint32_t blocks_of(uint32_t segments) { return (segments + block_segments - 1) / block_segments; }

/// @brief A ring of blocks. Its owner's four counters keep completed <= announced <= ready <= reserved, and ready <= completed +
/// the ring's blocks.
class send_ring {
 public:
  /// @brief Refers to a ring of 2^`log_blocks` blocks at address `base`.
  WB_FN send_ring(uint64_t base, uint32_t log_blocks) : base_(base), mask_((1u << log_blocks) - 1u) {}

  /// @brief Returns the number of blocks.
  WB_FN uint32_t blocks() const { return mask_ + 1; }
  /// @brief Returns the address of block `index`.
  WB_FN uint64_t at(uint64_t index) const { return base_ + (static_cast<uint64_t>(static_cast<uint32_t>(index) & mask_) * block_bytes); }
  /// @brief Returns the address of byte `offset` of the entry that begins at block `index`, in whichever block it is. A segment
  /// never crosses blocks.
  WB_FN uint64_t at(uint64_t index, uint32_t offset) const { return at(index + offset / block_bytes) + offset % block_bytes; }
  /// @brief Returns true if `count` blocks behind `reserved` are free, while those from `completed` on are in use.
  WB_FN bool has_room(uint64_t reserved, uint64_t count, uint64_t completed) const {
    return reserved + count - completed <= uint64_t{mask_} + 1;
  }
  /// @brief Returns the counter before which everything must have completed, before the blocks up to `end`, exclusive, are written.
  /// 0 or less for the first lap.
  WB_FN int64_t must_complete(uint64_t end) const { return static_cast<int64_t>(end) - static_cast<int64_t>(uint64_t{mask_} + 1); }

  /// @brief Writes an entry at block `index` in 16-byte stores (relaxed, system), block by block: it may cross the ring's end. One
  /// thread calls this.
  WB_FN void store(uint64_t index, const block& b) const {
    char* to = reinterpret_cast<char*>(at(index));
#pragma unroll
    for (uint32_t i = 0; i < block_segments; ++i) order::store_quad<order::relaxed, order::system>(to + i * segment_bytes, b.segment[i]);
  }
  /// @brief Writes an entry of two blocks. As above.
  WB_FN void store(uint64_t index, const block2& b) const {
    store(index, b.first);
    store(index + 1, b.second);
  }

 private:
  uint64_t base_;
  uint32_t mask_;
};

/// @brief Returns the counter that the wire's 16 bits stand for: the first one not before `seen`.
WB_FN uint64_t advance(uint64_t seen, uint32_t wire) { return seen + ((wire - static_cast<uint32_t>(seen)) & index_mask); }

// --- doorbells -------------------------------------------------------------------------------------------------------

/// @brief A queue pair's doorbell record: two words. The send word is the second.
///
/// The adapter reads the send word again when the queue pair fails. With a wrong word there everything works until then, and no
/// error completion ever arrives.
struct qp_record {
  uint32_t receive;
  uint32_t send;
};
static_assert(sizeof(qp_record) == 8, "qp_record");

/// @brief Returns the send word of the doorbell record for the next free block.
WB_FN uint32_t send_record(uint64_t next) { return permute(static_cast<uint32_t>(next), 0, 0x0144u); }
/// @brief Returns the receive word of the doorbell record after `posted` receive entries.
WB_FN uint32_t receive_record(uint64_t posted) { return send_record(posted); }

/// @brief Makes the entries before block `next` visible to the device, and after them the send word of a queue pair that has a
/// doorbell record. One thread calls this.
///
/// The device reads the ring and, when the queue pair fails, the record. It must find the entries that either one announces. If
/// both are in the memory of this GPU (WB_SEND_NEAR), the device reads through the same L2 and finds what is visible to the GPU.
/// Stores to host memory may still be in flight on the bus. Only a fence on scope system waits for them, which takes several times
/// as long.
/// @param flags WB_SEND_*.
WB_FN void write_send_record(void* record, uint32_t flags, uint64_t next) {
  uint32_t* word = &static_cast<qp_record*>(record)->send;
  const bool has_record = (flags & WB_SEND_NO_RECORD) == 0;
  if ((flags & WB_SEND_NEAR) != 0) {
    order::fence<order::release>();
    if (!has_record) return;
    order::store<order::relaxed, order::system>(word, send_record(next));
    order::fence<order::release>();
  } else {
    order::fence<order::release, order::system>();
    if (!has_record) return;
    order::store<order::relaxed, order::system>(word, send_record(next));
    order::fence<order::release, order::system>();
  }
}

/// @brief Returns the 64-bit doorbell for the next free block, to be stored at once: word 0 is the index, word 1 the queue pair.
WB_FN uint64_t doorbell(uint64_t next, queue_word queue) {
  // Bytes: 0, index high, index low, 0.
  const uint32_t first = permute(static_cast<uint32_t>(next), 0, 0x4014u);
  return static_cast<uint64_t>(queue.word) << 32 | first;
}

// Offsets in the adapter's register page (UAR).
constexpr uint32_t uar_arm = 0x20;                   // arms a completion queue
constexpr uint32_t uar_send_without_record = 0x600;  // doorbell of a queue pair without a doorbell record
constexpr uint32_t uar_send = 0x800;                 // first doorbell

}  // namespace mlx5
}  // namespace warpbell
