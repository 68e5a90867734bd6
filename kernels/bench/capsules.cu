// Benchmark of posting command capsules (NVMe over Fabrics by RDMA) against an ideal adapter and target: spare warps, one for each
// queue, with no wire and no medium behind them. They read the doorbell, the sends and the capsules, and complete each command at
// once with its response. Measures the cost of posting and completion only. The rate is measured by wb_bench_queue (queue.cu), whose
// queues are remote ones here.
// Launch shape: one warp for each queue in the target; any grid of whole warps that post, or one warp for latency, resident together
// with the target.
#include <warpbell/kernel.h>

#include "capsule.cuh"
#include "idle.cuh"
#include "params.h"
#include "ticks.cuh"

namespace warpbell {
namespace bench {

// Format of a completion entry whose first 32 bytes are the message, in its last byte.
constexpr uint32_t in_entry = 1u << 2;

// The target's position on a queue: blocks of the send ring that were taken, which is the number of responses.
struct target_at {
  uint32_t taken;
  uint32_t end;   // blocks before it are announced
  uint64_t bell;  // as last seen
};

// Returns true if a send has the form that NVMe over RDMA and the ring demand: entry `index` with the capsule of its slot.
WB_FN bool is_send(const wb_capsules* c, const order::quad& control, const order::quad& data, uint32_t index, uint64_t capsule) {
  return control.x == mlx5::swap_bytes((index & mlx5::index_mask) << 8 | mlx5::op_send) && control.y == (c->queue_word | 2u << 24) &&
         control.z == static_cast<uint32_t>(mlx5::signalled) << 24 && control.w == 0 &&
         data.x == mlx5::swap_bytes(capsules::command_bytes) && data.y == c->capsule_key &&
         mlx5::swap_bytes(data.z) == static_cast<uint32_t>(capsule >> 32) && mlx5::swap_bytes(data.w) == static_cast<uint32_t>(capsule);
}

// Returns true if a capsule is the read of a block that a thread posts, with the identifier of this ticket.
WB_FN bool is_capsule(const order::quad* e, uint32_t ticket, uint64_t lba) {
  const nvme::prp data = capsule_data(lba);
  return e[0].x == (nvme::op_read | capsules::uses_sgl | ticket << nvme::cid_shift) && e[0].y == capsule_namespace &&
         (e[1].z | uint64_t{e[1].w} << 32) == data.first && (e[2].x | uint64_t{e[2].y} << 32) == data.second && (e[3].x & 0xffffu) == 0;
}

// Takes new sends, one for each lane, and responds. All lanes of the warp call this. Returns the number of commands.
WB_FN uint32_t respond(const wb_queue* q, const wb_capsules* c, target_at& at, wb_adapter_saw& saw) {
  const warp::mask_t all = warp::full();
  const uint32_t slots = 1u << c->log_receives;
  uint32_t receives = 0;
  if (warp::is_leader(all)) {
    const uint64_t bell = order::load<order::acquire, order::system>(c->doorbell);
    if (bell != at.bell) {
      at.bell = bell;
      at.end = mlx5::swap_bytes(static_cast<uint32_t>(bell)) >> 8 & mlx5::index_mask;
      ++saw.doorbells;
    }
    receives = order::load<order::acquire, order::system>(&static_cast<const mlx5::qp_record*>(c->record)->receive);
    receives = (mlx5::swap_bytes(receives) - at.taken) & mlx5::index_mask;
  }
  const uint32_t there = (warp::shuffle(all, at.end, 0) - at.taken) & mlx5::index_mask;
  const uint32_t n = there < warp::width ? there : warp::width;
  if (n == 0) return 0;
  receives = warp::shuffle(all, receives, 0);
  const uint32_t index = at.taken + warp::lane(), slot = index & (q->depth - 1);
  const bool mine = warp::lane() < n;
  order::quad e[4] = {};
  if (mine) {
    const mlx5::send_ring ring(c->ring, c->log_blocks);
    const char* entry = reinterpret_cast<const char*>(ring.at(index));
    const order::quad control = order::load_quad<order::relaxed, order::system>(entry);
    const order::quad data = order::load_quad<order::relaxed, order::system>(entry + mlx5::segment_bytes);
    const char* capsule = static_cast<const char*>(q->sq) + uint64_t{slot} * capsules::command_bytes;
    for (uint32_t i = 0; i < 4; ++i) e[i] = order::load_quad<order::relaxed, order::system>(capsule + i * sizeof(order::quad));
    const uint64_t lba = e[2].z | uint64_t{e[2].w} << 32;
    const bool good = is_send(c, control, data, index, c->capsules + uint64_t{slot} * capsules::command_bytes) &&
                      is_capsule(e, index & mlx5::index_mask, lba);
    // Each response needs a receive, and there are never more receives than slots.
    saw.wrong += !good || warp::lane() >= receives || receives > slots;
    saw.sum += lba;
    ++saw.entries;
    // The response stands in the completion entry: result, SQHD, identifier, status.
    char* to = reinterpret_cast<char*>(mlx5::completion_ring(c->received, c->log_receives).at(index));
    order::store_quad<order::relaxed, order::system>(to, order::quad{0, 0, (at.taken + n) & (q->depth - 1), e[0].x >> nvme::cid_shift});
    order::store_quad<order::relaxed, order::system>(to + mlx5::cqe_length_at,
                                                     order::quad{0, 0, 0, mlx5::swap_bytes(capsules::response_bytes)});
  }
  order::fence<order::acq_rel, order::system>();
  if (mine) {
    const uint32_t counter = mlx5::swap_bytes((index & mlx5::index_mask) << 16);
    const uint32_t sent = mlx5::cqe_requester << 4 | (index >> c->log_blocks & 1u);
    const uint32_t received = mlx5::cqe_send << 4 | in_entry | (index >> c->log_receives & 1u);
    order::store_quad<order::relaxed, order::system>(
        reinterpret_cast<char*>(mlx5::completion_ring(c->sent, c->log_blocks).at(index)) + mlx5::cqe_tail_at,
        order::quad{0, 0, c->queue_word << 8 | mlx5::op_send, counter | sent << 24});
    order::store_quad<order::relaxed, order::system>(
        reinterpret_cast<char*>(mlx5::completion_ring(c->received, c->log_receives).at(index)) + mlx5::cqe_tail_at,
        order::quad{0, 0, c->queue_word << 8, counter | received << 24});
  }
  at.taken += n;
  return n;
}

}  // namespace bench
}  // namespace warpbell

// The ideal adapter and target of `count` queues without commands, a warp for each. Ends once *stop is not 0 and nothing is left, or
// after `limit_ns` in any case. `results` is wb_adapter_saw[count], zeroed; its sums are those of the starting LBAs.
WB_KERNEL void wb_bench_ideal_target(const wb_queue* queues, WB_PARAM uint32_t count, const uint32_t* stop, WB_PARAM uint64_t limit_ns,
                                     wb_adapter_saw* results) {
#if WB_DEVICE_PASS
  using namespace warpbell;
  const uint32_t mine = warp::index();
  if (mine >= count) return;
  wb_adapter_saw saw = {0, 0, 0, 0, 0};
  bench::target_at at = {0, 0, 0};
  const wb_queue* q = &queues[mine];
  for (bench::idle_turns idle(stop, limit_ns); !idle.over(bench::respond(q, q->capsules, at, saw));) {
  }
  order::add<order::relaxed>(&results[mine].entries, saw.entries);
  order::add<order::relaxed>(&results[mine].sum, saw.sum);
  order::add<order::relaxed>(&results[mine].wrong, saw.wrong);
  order::add<order::relaxed>(&results[mine].doorbells, saw.doorbells);
#endif
}
WB_EXPORT(wb_bench_ideal_target)

// Posts a capsule from one thread (`lanes` 1) or from each lane of one warp, and waits for its response, again and again, alone on its
// queue. `samples` is u32[2][iterations]: ticks in the call that posts, and ticks until the response was taken. The starting LBA is
// i * lanes + lane in turn i, warm-up included.
WB_KERNEL void wb_bench_capsules_latency(wb_queue* queue, const wb_control* control, WB_PARAM uint32_t lanes, WB_PARAM uint32_t warmup,
                                         WB_PARAM uint32_t iterations, uint32_t* samples, wb_post_clock* clock) {
#if WB_DEVICE_PASS
  using namespace warpbell;
  if (warp::index() != 0 || warp::lane() >= lanes) return;
  const warp::mask_t mask = lanes == warp::width ? warp::full() : (1u << lanes) - 1u;
  const queue_ref q(queue, control);
  const bool speaks = warp::is_leader(mask);
  uint32_t failed = 0;
  for (uint32_t i = 0; i < warmup + iterations; ++i) {
    if (i == warmup && speaks) {
      clock->start_ns = now_ns();
      clock->start_ticks = bench::post_ticks();
    }
    const uint64_t lba = uint64_t{i} * lanes + warp::lane(), before = bench::post_ticks();
    uint32_t ticket = 0;
    const status posted = q.submit(mask, nvme::read(bench::capsule_namespace, lba, 1, bench::capsule_data(lba)),
                                   nvme::record(nvme::op_read, lba, 1, 0, 0, 0, false), ticket);
    const uint64_t sent = bench::post_ticks();
    if (!q.wait(mask, bool(posted), ticket) || !posted) ++failed;
    const uint64_t complete = bench::post_ticks();
    if (i >= warmup && speaks) {
      samples[i - warmup] = static_cast<uint32_t>(sent - before);
      samples[iterations + i - warmup] = static_cast<uint32_t>(complete - before);
    }
    if (warp::any(mask, failed != 0)) break;
  }
  if (speaks) {
    clock->end_ticks = bench::post_ticks();
    clock->end_ns = now_ns();
    clock->failed = failed;
  }
#endif
}
WB_EXPORT(wb_bench_capsules_latency)
