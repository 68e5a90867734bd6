// What the kernels of one side of `warpbell bench rdma` are told, and what they leave.
#pragma once

#include <warpbell/mlx5.cuh>

namespace rdma_bench {

using namespace warpbell;

enum verb : uint32_t { verb_write = 0, verb_read = 1, verb_fetch_add = 2, verb_compare_swap = 3 };

// host/bench/rdma/kernel.rs mirrors it. Buffers have a part of `span` bytes for each queue pair, and in it `slots` messages, `stride`
// bytes apart.
struct side {
  uint64_t queues;           // wb_send_queue[queue_count]
  uint64_t control;          // wb_control
  uint64_t outbox;           // what is sent, as kernels see it; what reads and atomics bring lands there
  uint64_t outbox_address;   // and as work requests name it
  uint64_t inbox;            // where the other side writes, as kernels see it
  uint64_t target_address;   // the other side's memory, as work requests name it
  uint64_t posted;           // u64[queue_count * iterations]: when each message was posted; or 0
  uint64_t completed;        // u64[queue_count * iterations]: when it was found complete; or 0
  uint64_t results;          // result[queue_count]
  uint64_t bytes;            // of a message
  uint64_t stride;
  uint64_t span;
  uint64_t iterations;       // messages on each queue pair, where there is no duration
  uint64_t duration_ns;      // or 0
  uint32_t queue_count;
  uint32_t local_key;        // big-endian
  uint32_t remote_key;       // big-endian
  uint32_t slots;
  uint32_t tx_depth;         // messages in flight on each queue pair
  uint32_t post_list;        // messages of one doorbell, at most a warp's lanes
  uint32_t inline_bytes;     // writes of up to so many bytes carry their data
  uint32_t verb;
  uint32_t begins;           // of a ping-pong: this side sends first
  uint32_t reserved;
};

struct result {
  uint64_t done;             // messages that are complete
  uint64_t started_ns;
  uint64_t ended_ns;
  uint32_t word;             // status.h
  uint32_t reserved;
};

static_assert(sizeof(side) == 152 && sizeof(result) == 32, "the host reads and writes these");

// One queue pair of a side.
struct lane_of {
  const side& s;
  uint32_t pair;

  WB_FN mlx5::send_queue_ref queue() const {
    return mlx5::send_queue_ref(reinterpret_cast<wb_send_queue*>(s.queues) + pair, reinterpret_cast<const wb_control*>(s.control));
  }
  WB_FN uint64_t offset(uint64_t i) const { return pair * s.span + i % s.slots * s.stride; }
  WB_FN uint64_t outbox(uint64_t i) const { return s.outbox + offset(i); }
  WB_FN mlx5::local local(uint64_t i) const { return mlx5::local{s.outbox_address + offset(i), mlx5::be32{s.local_key}}; }
  WB_FN mlx5::remote remote(uint64_t i) const { return mlx5::remote{s.target_address + offset(i), mlx5::be32{s.remote_key}}; }
  // The word that all atomics of the queue pair go to.
  WB_FN mlx5::remote word() const { return remote(0); }
  WB_FN result* leave() const { return reinterpret_cast<result*>(s.results) + pair; }
  WB_FN uint64_t* posted(uint64_t i) const { return reinterpret_cast<uint64_t*>(s.posted) + pair * s.iterations + i; }
  WB_FN uint64_t* completed(uint64_t i) const { return reinterpret_cast<uint64_t*>(s.completed) + pair * s.iterations + i; }
};

// The data of message i, which is in the work request. Messages begin at multiples of 64 bytes, so there is always so much to read.
WB_FN mlx5::write_payload payload(const lane_of& l, uint64_t i) {
  const uint32_t* from = reinterpret_cast<const uint32_t*>(l.outbox(i));
  mlx5::write_payload p;
#pragma unroll
  for (uint32_t k = 0; k < mlx5::inline_write_max / sizeof(uint32_t); ++k) p.w[k] = from[k];
  return p;
}

// Message i of each lane with `mine`; collective.
WB_FN mlx5::request post(const lane_of& l, const mlx5::send_queue_ref& q, uint64_t i, warp::mask_t mask, bool mine) {
  const side& s = l.s;
  const mlx5::local here = l.local(i);
  const mlx5::remote there = l.remote(i), word = l.word();
  const uint32_t bytes = static_cast<uint32_t>(s.bytes);
  switch (s.verb) {
    case verb_read:
      return q.submit(mask, mine, [=](uint64_t at, mlx5::queue_word w, uint32_t how) { return mlx5::read(at, w, how, there, here, bytes); });
    case verb_fetch_add:
      return q.submit(mask, mine, [=](uint64_t at, mlx5::queue_word w, uint32_t how) { return mlx5::fetch_add(at, w, how, word, here, 1); });
    case verb_compare_swap:
      // What the message before has left is what this one compares with.
      return q.submit(mask, mine, [=](uint64_t at, mlx5::queue_word w, uint32_t how) {
        return mlx5::compare_swap(at, w, how, word, here, i, i + 1);
      });
    default: break;
  }
  if (bytes <= s.inline_bytes) {
    const mlx5::write_payload data = payload(l, i);
    return q.submit(mask, mine, [=](uint64_t at, mlx5::queue_word w, uint32_t how) {
      return mlx5::inline_write(at, w, how, there, data, bytes);
    });
  }
  return q.submit(mask, mine, [=](uint64_t at, mlx5::queue_word w, uint32_t how) { return mlx5::write(at, w, how, there, here, bytes); });
}

}  // namespace rdma_bench
