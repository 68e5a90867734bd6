// Commands for a remote controller (NVMe over Fabrics by RDMA): the submission ring of the queue is a ring of command capsules, and
// the holder of the tail lock sends them by the rings of an RDMA queue pair.
//
// A send is written when its ticket is published, not with its command. So a queue whose connection was lost goes on with another
// one: commands that were published meanwhile are sent there (capsules/poll.cuh).
#pragma once

#include <warpbell/abi.h>
#include <warpbell/mlx5/send_ring.cuh>

namespace warpbell {
namespace capsules {

constexpr uint32_t command_bytes = 64;
constexpr uint32_t write_opcode = 0x01;
constexpr uint32_t uses_sgl = 1u << 14;            // dword 0 of a command, PSDT: the data pointer is an SGL
constexpr uint32_t keyed_type = 0x40u << 24;       // last dword of a keyed data block: address, not invalidated by the controller
constexpr uint32_t in_capsule_type = 0x01u << 24;  // last dword of a data block: offset in the capsule
constexpr uint32_t max_keyed_bytes = (1u << 24) - 1;

/// @brief Returns the second half of a keyed data block (NVMe Base 2.1, 4.3.2): 24 bits of length, the key, and the type. The first
/// half is the address.
WB_FN uint64_t keyed(uint32_t bytes, uint32_t key) {
  return static_cast<uint64_t>(key >> 8 | keyed_type) << 32 | (key << 24 | (bytes & max_keyed_bytes));
}

// Lets the data of a small write go with its capsule: the capsule then names the bytes behind the command (NVMe over Fabrics 1.1,
// 2.3.1), and the send has them as its second piece. Returns their number and in `data` their place; 0 for other commands. The
// holder of the tail lock calls this, once for each command.
WB_FN uint32_t take_along(const wb_queue* q, const wb_capsules* c, uint32_t slot, mlx5::local& data) {
  // The record is nearer than the capsule, which may be in host memory.
  if (c->in_capsule_bytes == 0) return 0;
  if (order::load<order::relaxed>(&q->record[slot].opcode_blocks) >> WB_RECORD_OPCODE_SHIFT != write_opcode) return 0;
  order::quad* capsule = reinterpret_cast<order::quad*>(static_cast<char*>(q->sq) + uint64_t{slot} * command_bytes);
  const order::quad front = order::load_quad<order::relaxed, order::system>(capsule + 1),
                    back = order::load_quad<order::relaxed, order::system>(capsule + 2);
  const uint32_t bytes = back.x & max_keyed_bytes;
  if (bytes == 0 || bytes > c->in_capsule_bytes) return 0;
  data = mlx5::local{front.z | uint64_t{front.w} << 32, mlx5::big(back.x >> 24 | back.y << 8)};
  order::store_quad<order::relaxed, order::system>(capsule + 1, order::quad{front.x, front.y, 0, 0});
  order::store_quad<order::relaxed, order::system>(capsule + 2, order::quad{bytes, in_capsule_type, back.z, back.w});
  return bytes;
}

// Sends the commands of the tickets from `from` to `tail`, exclusive. One thread calls this, which holds the tail lock.
WB_FN void send(wb_queue* q, wb_capsules* c, uint32_t from, uint32_t tail) {
  const mlx5::send_ring ring(c->ring, c->log_blocks);
  const mlx5::queue_word queue{c->queue_word};
  const uint32_t shift = order::load<order::relaxed>(&c->shift);
#pragma unroll 1
  for (uint32_t t = from; t != tail; ++t) {
    const uint32_t slot = t & (q->depth - 1);
    const mlx5::local capsule{c->capsules + uint64_t{slot} * command_bytes, mlx5::be32{c->capsule_key}};
    mlx5::local data{};
    const uint32_t bytes = take_along(q, c, slot, data);
    const mlx5::block alone = mlx5::send(capsule, command_bytes), both = mlx5::send(capsule, command_bytes, data, bytes);
    const mlx5::block entry = mlx5::placed(bytes ? both : alone, t + shift, queue, mlx5::signalled);
    // The entry has two or three segments; nothing reads the rest of its block.
    char* to = reinterpret_cast<char*>(ring.at(t + shift));
    order::store_quad<order::relaxed, order::system>(to, entry.segment[0]);
    order::store_quad<order::relaxed, order::system>(to + mlx5::segment_bytes, entry.segment[1]);
    if (bytes) order::store_quad<order::relaxed, order::system>(to + 2 * mlx5::segment_bytes, entry.segment[2]);
  }
  order::store<order::relaxed>(&c->announced, tail);
  mlx5::write_send_record(c->record, c->flags, tail + shift);
  order::mmio_store(c->doorbell, mlx5::doorbell(tail + shift, queue));
}

// Sends the commands of the tickets before `tail`, unless the connection is lost. One thread calls this, which holds the tail lock.
WB_FN_COLD void ring(wb_queue* q, uint32_t tail) {
  // The lock was acquired for stores only (order::before_stores).
  order::fence<order::acq_rel, order::system>();
  wb_capsules* c = order::load<order::acquire>(&q->capsules);
  const uint32_t announced = order::load<order::relaxed>(&c->announced);
  // A connection that was lost while nothing was in flight is noticed here: the commands are sent on the next one.
  const bool open = order::load<order::relaxed>(&c->down) == 0 && order::load<order::relaxed>(&c->closed) == WB_CAPSULES_OPEN;
  if (open) send(q, c, announced, tail);
}

}  // namespace capsules
}  // namespace warpbell
