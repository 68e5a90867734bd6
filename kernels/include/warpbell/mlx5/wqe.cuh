// Work queue entries of mlx5 adapters, built in registers: segments of 16 bytes, blocks of 64. Layouts as in rdma-core's mlx5dv.h.
// host/wire/mlx5 has the same entries as types, and tests compare the two byte for byte.
//
// Builders know neither an entry's place in the ring nor whether it asks for a completion. The function that posts the entry adds
// both: `placed`.
//
// An entry of one block is a `block`. An entry of two is a `block2`, whose second block may be at the ring's start (send_ring.cuh).
// A data segment of no bytes must not be posted; for a message of no bytes use the forms without a data segment.
#pragma once

#include <warpbell/mlx5/endian.cuh>
#include <warpbell/order.cuh>

namespace warpbell {
namespace mlx5 {

constexpr uint32_t block_bytes = 64;
constexpr uint32_t segment_bytes = 16;
constexpr uint32_t block_segments = block_bytes / segment_bytes;

// Low byte of the control segment's first word (MLX5_OPCODE_*).
enum opcode : uint32_t {
  op_nop = 0x00,
  op_send_inval = 0x01,
  op_write = 0x08,
  op_write_imm = 0x09,
  op_send = 0x0a,
  op_send_imm = 0x0b,
  op_wait = 0x0f,
  op_read = 0x10,
  op_compare_swap = 0x11,
  op_fetch_add = 0x12,
  op_masked_compare_swap = 0x14,
  op_masked_fetch_add = 0x15,
  op_dump = 0x23
};

// High byte of the same word, for the masked atomics: the size of the operand.
enum opmod : uint32_t { opmod_none = 0x00, opmod_4_bytes = 0x08, opmod_8_bytes = 0x09 };

// Byte 11 of the control segment: fence in bits 7:5, completion in 3:2, solicited event in 1.
enum flags : uint32_t {
  unsignalled = 0x00,  // a completion only on failure
  signalled = 0x08,    // a completion in any case
  solicited = 0x02,    // an event at the receiver
  small_fence = 0x20,  // after earlier local invalidates
  fenced = 0x40,       // after earlier reads and atomics
  strong_order = 0x60  // after everything before
};

/// @brief An entry of one block.
struct block {
  order::quad segment[block_segments];
};
/// @brief An entry of two blocks.
struct block2 {
  block first;
  block second;
};

/// @brief A queue pair's number as in control segments: shifted by 8, with room for the number of segments.
struct queue_word {
  uint32_t word = 0;
};
/// @brief Returns the word of a queue pair's number.
WB_FN queue_word queue_of(uint32_t qpn) { return queue_word{swap_bytes(qpn << 8)}; }

/// @brief Memory of the other side: address and key as work requests name them.
struct remote {
  uint64_t address;
  be32 key;
};
/// @brief A piece of local registered memory: address and key as work requests name them.
struct local {
  uint64_t address;
  be32 key;
};

constexpr uint32_t max_piece_bytes = 0x7fffffffu;  // bit 31 marks inline data
constexpr uint32_t inline_mark = 0x80000000u;

// --- segments --------------------------------------------------------------------------------------------------------

WB_FN order::quad empty_segment() { return order::quad{0, 0, 0, 0}; }

// Returns a control segment: the operation, and the number of segments, this one included. `placed` adds the rest.
WB_FN order::quad control_segment(uint32_t op, uint32_t mod, uint32_t segments, be32 immediate = be32{}, uint32_t how = unsignalled) {
  return order::quad{mod | op << 24, segments << 24, how << 24, immediate.word};
}

/// @brief Returns the control segment of an entry whose first block has the number `index` in its queue.
///
/// Only the low 16 bits of the index go in, whatever the ring's size is. `how` adds flags to the entry's own.
WB_FN order::quad placed(const order::quad& control, uint64_t index, queue_word queue, uint32_t how) {
  // Bytes: modifier, index high, index low, opcode; then the queue's three and the segments; then four of which the last is `how`.
  const uint32_t first = permute(static_cast<uint32_t>(index), control.x, 0x7014u);
  return order::quad{first, queue.word | control.y, how << 24 | control.z, control.w};
}
/// @brief Returns an entry with its place and flags. As above.
WB_FN block placed(block b, uint64_t index, queue_word queue, uint32_t how) {
  b.segment[0] = placed(b.segment[0], index, queue, how);
  return b;
}
/// @brief Returns an entry of two blocks with its place and flags. As above.
WB_FN block2 placed(block2 b, uint64_t index, queue_word queue, uint32_t how) {
  b.first = placed(b.first, index, queue, how);
  return b;
}

WB_FN order::quad remote_segment(remote r) { return order::quad{big_high(r.address), big_low(r.address), r.key.word, 0}; }

// Returns a data segment of `bytes`, from 1 to max_piece_bytes.
WB_FN order::quad data_segment(local l, uint32_t bytes) {
  return order::quad{swap_bytes(bytes), l.key.word, big_high(l.address), big_low(l.address)};
}

WB_FN order::quad two_words(uint64_t a, uint64_t b) { return order::quad{big_high(a), big_low(a), big_high(b), big_low(b)}; }

WB_FN order::quad wait_segment(uint32_t cqn, uint32_t number) { return order::quad{0, 0, swap_bytes(number), swap_bytes(cqn)}; }

// --- nothing, flush, wait --------------------------------------------------------------------------------------------

/// @brief Returns an entry that does nothing.
WB_FN block nop() { return block{{control_segment(op_nop, opmod_none, 1), empty_segment(), empty_segment(), empty_segment()}}; }

/// @brief Returns an entry that reads local memory behind the adapter's earlier writes; with `fenced`, behind earlier reads and
/// atomics of the queue pair.
WB_FN block dump(local l, uint32_t bytes, uint32_t how = unsignalled) {
  return block{{control_segment(op_dump, opmod_none, 2, be32{}, how), data_segment(l, bytes), empty_segment(), empty_segment()}};
}

/// @brief Returns an entry that stops the queue until completion `number` of another queue arrives. The queue pair must be a
/// core-direct master.
WB_FN block wait(uint32_t cqn, uint32_t number) {
  return block{{control_segment(op_wait, opmod_none, 2), wait_segment(cqn, number), empty_segment(), empty_segment()}};
}

// --- writes, reads, sends --------------------------------------------------------------------------------------------

/// @brief Returns a write or read of `bytes` (1 to max_piece_bytes), with opcode `op`.
WB_FN block transfer(uint32_t op, remote to, local from, uint32_t bytes, be32 immediate = be32{}) {
  return block{{control_segment(op, opmod_none, 3, immediate), remote_segment(to), data_segment(from, bytes), empty_segment()}};
}
/// @brief Returns a write of `bytes` (1 to max_piece_bytes).
WB_FN block write(remote to, local from, uint32_t bytes) { return transfer(op_write, to, from, bytes); }
/// @brief Returns a write of `bytes` (1 to max_piece_bytes) with an immediate, which completes a receive of the peer.
WB_FN block write_imm(remote to, local from, uint32_t bytes, be32 immediate) { return transfer(op_write_imm, to, from, bytes, immediate); }
/// @brief Returns a read of `bytes` (1 to max_piece_bytes) into local memory.
WB_FN block read(remote from, local to, uint32_t bytes) { return transfer(op_read, from, to, bytes); }

/// @brief Returns a write of no bytes, which has no data segment.
WB_FN block empty_write(remote to) {
  return block{{control_segment(op_write, opmod_none, 2), remote_segment(to), empty_segment(), empty_segment()}};
}
/// @brief Returns a write of no bytes with an immediate, which still completes a receive of the peer.
WB_FN block empty_write_imm(remote to, be32 immediate) {
  return block{{control_segment(op_write_imm, opmod_none, 2, immediate), remote_segment(to), empty_segment(), empty_segment()}};
}

/// @brief Returns a message of `bytes` (1 to max_piece_bytes), with opcode `op`.
WB_FN block message(uint32_t op, local from, uint32_t bytes, be32 with = be32{}) {
  return block{{control_segment(op, opmod_none, 2, with), data_segment(from, bytes), empty_segment(), empty_segment()}};
}
/// @brief Returns a send of `bytes`.
WB_FN block send(local from, uint32_t bytes) { return message(op_send, from, bytes); }
/// @brief Returns a send of two pieces, of `bytes` and `more_bytes` (1 to max_piece_bytes each), as one message.
WB_FN block send(local from, uint32_t bytes, local more, uint32_t more_bytes) {
  return block{{control_segment(op_send, opmod_none, 3), data_segment(from, bytes), data_segment(more, more_bytes), empty_segment()}};
}
/// @brief Returns a send of `bytes` with an immediate.
WB_FN block send_imm(local from, uint32_t bytes, be32 immediate) { return message(op_send_imm, from, bytes, immediate); }
/// @brief Returns a send of `bytes` that invalidates a key of the peer.
WB_FN block send_inval(local from, uint32_t bytes, be32 key) { return message(op_send_inval, from, bytes, key); }

// --- data in the entry itself ----------------------------------------------------------------------------------------

// Payload bytes in memory order, as 32-bit words; unused words are 0.
template <uint32_t words> struct inline_words {
  uint32_t w[words];
};
constexpr uint32_t inline_write_max = 28;  // bytes in a write of one block
constexpr uint32_t inline_send_max = 44;   // bytes in a send of one block
using write_payload = inline_words<inline_write_max / 4>;
using send_payload = inline_words<inline_send_max / 4>;

/// @brief Returns the payload of one value of 1 to 8 bytes.
WB_FN write_payload payload_of(uint64_t v) {
  return write_payload{{static_cast<uint32_t>(v), static_cast<uint32_t>(v >> 32), 0, 0, 0, 0, 0}};
}

// Segments of a write with `bytes` of inline data. The data is one run from byte 36 of the entry on (byte 20 of a send), over any
// number of blocks.
constexpr uint32_t inline_write_at = 2 * segment_bytes + 4;
constexpr uint32_t inline_send_at = segment_bytes + 4;
WB_FN constexpr uint32_t inline_write_segments(uint32_t bytes) { return (inline_write_at + bytes + segment_bytes - 1) / segment_bytes; }
WB_FN constexpr uint32_t inline_send_segments(uint32_t bytes) { return (inline_send_at + bytes + segment_bytes - 1) / segment_bytes; }

// Returns the third segment of a write with inline data: the header and the first 12 bytes.
WB_FN order::quad inline_segment(uint32_t bytes, uint32_t a, uint32_t b, uint32_t c) {
  return order::quad{swap_bytes(bytes | inline_mark), a, b, c};
}

/// @brief Returns a write of `bytes` inline data, at most inline_write_max.
WB_FN block inline_write(remote to, const write_payload& p, uint32_t bytes) {
  return block{{control_segment(op_write, opmod_none, inline_write_segments(bytes)), remote_segment(to),
                inline_segment(bytes, p.w[0], p.w[1], p.w[2]), order::quad{p.w[3], p.w[4], p.w[5], p.w[6]}}};
}
/// @brief Returns a send of `bytes` inline data, at most inline_send_max.
WB_FN block inline_send(const send_payload& p, uint32_t bytes) {
  return block{{control_segment(op_send, opmod_none, inline_send_segments(bytes)), inline_segment(bytes, p.w[0], p.w[1], p.w[2]),
                order::quad{p.w[3], p.w[4], p.w[5], p.w[6]}, order::quad{p.w[7], p.w[8], p.w[9], p.w[10]}}};
}

/// @brief Front of a longer write with inline data: control and remote segment, and the header as the first word of the third
/// segment. The data's words follow from inline_write_at on.
struct inline_front {
  order::quad control;
  order::quad remote;
  uint32_t header;
};
/// @brief Returns the front of a write with `bytes` of inline data.
WB_FN inline_front inline_write_front(remote to, uint32_t bytes) {
  return inline_front{control_segment(op_write, opmod_none, inline_write_segments(bytes)), remote_segment(to),
                      swap_bytes(bytes | inline_mark)};
}

// --- atomics ---------------------------------------------------------------------------------------------------------

/// @brief Returns a fetch-and-add of 8 bytes. The old value lands in `landing`, 8 bytes in host order.
WB_FN block fetch_add(remote at, local landing, uint64_t add) {
  return block{{control_segment(op_fetch_add, opmod_none, 4), remote_segment(at), two_words(add, 0), data_segment(landing, 8)}};
}
/// @brief Returns a compare-and-swap of 8 bytes. The old value lands in `landing`, 8 bytes in host order.
WB_FN block compare_swap(remote at, local landing, uint64_t compare, uint64_t swap) {
  return block{{control_segment(op_compare_swap, opmod_none, 4), remote_segment(at), two_words(swap, compare), data_segment(landing, 8)}};
}

/// @brief Operands of a masked add, which does not carry out of the bits of `boundary`.
template <class T> struct add_operands {
  T add;
  T boundary;
};
/// @brief Operands of a masked swap, which changes the bits of `swap_mask` if the bits of `compare_mask` are equal.
template <class T> struct swap_operands {
  T swap;
  T compare;
  T swap_mask;
  T compare_mask;
};

// Operands of OpenSHMEM's atomic operations.
template <class T> WB_FN add_operands<T> as_add(T v) { return add_operands<T>{v, 0}; }
template <class T> WB_FN add_operands<T> as_fetch() { return add_operands<T>{0, 0}; }
template <class T> WB_FN add_operands<T> as_xor(T v) { return add_operands<T>{v, static_cast<T>(~T{0})}; }
template <class T> WB_FN swap_operands<T> as_set(T v) { return swap_operands<T>{v, 0, static_cast<T>(~T{0}), 0}; }
template <class T> WB_FN swap_operands<T> as_and(T v) { return swap_operands<T>{v, 0, static_cast<T>(~v), 0}; }
template <class T> WB_FN swap_operands<T> as_or(T v) { return swap_operands<T>{v, 0, v, 0}; }
template <class T> WB_FN swap_operands<T> as_compare_swap(T compare, T swap) {
  return swap_operands<T>{swap, compare, static_cast<T>(~T{0}), static_cast<T>(~T{0})};
}

/// @brief Returns a masked add of 4 bytes. The old value lands as 4 bytes, big-endian; see `landed`.
WB_FN block masked_add(remote at, local landing, add_operands<uint32_t> o) {
  return block{{control_segment(op_masked_fetch_add, opmod_4_bytes, 4), remote_segment(at),
                order::quad{swap_bytes(o.add), swap_bytes(o.boundary), 0, 0}, data_segment(landing, 4)}};
}
/// @brief Returns a masked add of 8 bytes. The old value lands as 8 bytes in host order.
WB_FN block masked_add(remote at, local landing, add_operands<uint64_t> o) {
  return block{
      {control_segment(op_masked_fetch_add, opmod_8_bytes, 4), remote_segment(at), two_words(o.add, o.boundary), data_segment(landing, 8)}};
}
/// @brief Returns a masked swap of 4 bytes. The old value lands as 4 bytes, big-endian; see `landed`.
WB_FN block masked_swap(remote at, local landing, swap_operands<uint32_t> o) {
  return block{{control_segment(op_masked_compare_swap, opmod_4_bytes, 4), remote_segment(at),
                order::quad{swap_bytes(o.swap), swap_bytes(o.compare), swap_bytes(o.swap_mask), swap_bytes(o.compare_mask)},
                data_segment(landing, 4)}};
}
/// @brief Returns a masked swap of 8 bytes, an entry of two blocks. The old value lands as 8 bytes in host order.
///
/// @note The completion names the first block. Where a queue's progress is read from a collapsed completion queue, a signalled
/// entry of one block must follow.
WB_FN block2 masked_swap(remote at, local landing, swap_operands<uint64_t> o) {
  return block2{{{control_segment(op_masked_compare_swap, opmod_8_bytes, 5), remote_segment(at), two_words(o.swap, o.compare),
                  two_words(o.swap_mask, o.compare_mask)}},
                {{data_segment(landing, 8), empty_segment(), empty_segment(), empty_segment()}}};
}

/// @brief Returns the old value in host order, from the landing place of an operation on 4 bytes.
WB_FN uint32_t landed(uint32_t word) { return swap_bytes(word); }

// --- dynamically connected initiators --------------------------------------------------------------------------------

/// @brief Destination of an entry, within one InfiniBand subnet.
struct half_address {
  uint64_t dc_key;
  uint32_t target;      // 24 bits
  uint32_t rate_level;  // static rate and service level
  uint32_t path;        // force loopback and source path bits
  uint32_t lid;
};
/// @brief Further part of a destination with a global address.
struct global_address {
  uint64_t mac;  // 48 bits
  uint32_t traffic_class;
  uint32_t hop_limit;
  uint32_t route_flow;  // global route present in 30, source GID index in 27:20, flow label in 19:0
  uint64_t gid_high;
  uint64_t gid_low;
};
constexpr uint32_t full_address = 0x80000000u;  // in the target's word: a global address follows

WB_FN order::quad address_segment(const half_address& a, uint32_t full) {
  return order::quad{big_high(a.dc_key), big_low(a.dc_key), swap_bytes(a.target | full),
                     swap_bytes(a.rate_level << 24 | (a.path & 0xffu) << 16 | (a.lid & 0xffffu))};
}

/// @brief Returns a write of `bytes` (1 to max_piece_bytes) by a dynamically connected initiator, within one subnet.
WB_FN block dc_write(const half_address& a, remote to, local from, uint32_t bytes) {
  return block{{control_segment(op_write, opmod_none, 4), address_segment(a, 0), remote_segment(to), data_segment(from, bytes)}};
}
/// @brief Returns a write of `bytes` (1 to max_piece_bytes) by a dynamically connected initiator, to a global address.
WB_FN block2 dc_write(const half_address& a, const global_address& g, remote to, local from, uint32_t bytes) {
  const uint64_t mac_class_hops = g.mac << 16 | (g.traffic_class & 0xffu) << 8 | (g.hop_limit & 0xffu);
  const order::quad way = {0, big_high(mac_class_hops), big_low(mac_class_hops), swap_bytes(g.route_flow)};
  return block2{{{control_segment(op_write, opmod_none, 6), address_segment(a, full_address), way, two_words(g.gid_high, g.gid_low)}},
                {{remote_segment(to), data_segment(from, bytes), empty_segment(), empty_segment()}}};
}

}  // namespace mlx5
}  // namespace warpbell
