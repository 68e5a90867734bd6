// One queue pair of a side of `warpbell bench rdma`: addresses of its messages, and posting them.
#pragma once

#include <warpbell/mlx5.cuh>

#include "../params.h"

namespace rdma_bench {

using namespace warpbell;

using side = wb_rdma_side;
using result = wb_rdma_result;

// One queue pair of a side.
struct lane_of {
  const side& s;
  uint32_t pair;

  WB_FN mlx5::send_queue_ref queue() const { return mlx5::send_queue_ref(s.queues + pair, s.control); }
  WB_FN uint64_t offset(uint64_t i) const { return pair * s.span + i % s.slots * s.stride; }
  WB_FN uint64_t outbox(uint64_t i) const { return s.outbox + offset(i); }
  WB_FN mlx5::local local(uint64_t i) const { return mlx5::local{s.outbox_address + offset(i), mlx5::be32{s.local_key}}; }
  WB_FN mlx5::remote remote(uint64_t i) const { return mlx5::remote{s.target_address + offset(i), mlx5::be32{s.remote_key}}; }
  // Returns the word on which all atomics of the queue pair operate.
  WB_FN mlx5::remote word() const { return remote(0); }
  WB_FN result* leave() const { return s.results + pair; }
  WB_FN uint64_t* posted(uint64_t i) const { return s.posted + pair * s.iterations + i; }
  WB_FN uint64_t* completed(uint64_t i) const { return s.completed + pair * s.iterations + i; }
};

// Returns the data of message i for the work request. Messages begin at multiples of 64 bytes, so that many bytes are always
// readable.
WB_FN mlx5::write_payload payload(const lane_of& l, uint64_t i) {
  const uint32_t* from = reinterpret_cast<const uint32_t*>(l.outbox(i));
  mlx5::write_payload p;
#pragma unroll
  for (uint32_t k = 0; k < mlx5::inline_write_max / sizeof(uint32_t); ++k) p.w[k] = from[k];
  return p;
}

// Posts message i of each lane with `mine`. Collective.
WB_FN mlx5::request post(const lane_of& l, const mlx5::send_queue_ref& q, uint64_t i, warp::mask_t mask, bool mine) {
  const side& s = l.s;
  const mlx5::local here = l.local(i);
  const mlx5::remote there = l.remote(i), word = l.word();
  const uint32_t bytes = static_cast<uint32_t>(s.bytes);
  const mlx5::lanes lanes{mask, mine};
  switch (s.verb) {
    case WB_RDMA_READ: return q.post(mlx5::read(there, here, bytes), lanes);
    case WB_RDMA_FETCH_ADD: return q.post(mlx5::fetch_add(word, here, 1), lanes);
    // The expected value is the one that the message before has left.
    case WB_RDMA_COMPARE_SWAP: return q.post(mlx5::compare_swap(word, here, i, i + 1), lanes);
    default: break;
  }
  if (bytes <= s.inline_bytes) return q.post(mlx5::inline_write(there, payload(l, i), bytes), lanes);
  return q.post(mlx5::write(there, here, bytes), lanes);
}

}  // namespace rdma_bench
