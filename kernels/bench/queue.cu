// Benchmark of the queue core against an ideal controller: spare warps that complete every command at once, with no medium behind
// them. Measures the cost of submission and completion only. Launch shape: one warp for each queue in the controller; any grid of
// whole warps of submitters, resident together with the controller.
#include <warpbell/express.cuh>
#include <warpbell/kernel.h>
#include <warpbell/nvme.cuh>

#include "capsule.cuh"
#include "idle.cuh"
#include "params.h"

namespace warpbell {
namespace bench {

// Completes new commands of a queue. All lanes of the warp call this. `at` counts the queue's commands, from the head that the
// consumer had at the start. Returns the number of commands completed.
WB_FN uint32_t serve(const wb_queue* q, uint32_t at, wb_queue_serviced& to) {
  const warp::mask_t all = warp::full();
  const uint32_t last = q->depth - 1;
  uint32_t tail = 0, head = 0;
  if (warp::is_leader(all)) {
    tail = order::load<order::acquire, order::system>(q->sq_doorbell);
    head = order::load<order::acquire, order::system>(q->cq_doorbell);
  }
  tail = warp::shuffle(all, tail, 0);
  head = warp::shuffle(all, head, 0);
  // Number of entries to take, and number of free entries of the completion ring (one always stays free).
  const uint32_t there = (tail - at) & last, room = last - ((at - head) & last);
  uint32_t n = there < room ? there : room;
  n = n < warp::width ? n : warp::width;
  if (n == 0) return 0;
  if (warp::lane() < n) {
    const uint32_t position = at + warp::lane(), slot = position & last;
    const char* entry = static_cast<const char*>(q->sq) + uint64_t{slot} * nvme::sqe_bytes;
    const order::quad first = order::load_quad<order::relaxed, order::system>(entry);
    const order::quad third = order::load_quad<order::relaxed, order::system>(entry + 2 * sizeof(order::quad));
    to.sum += third.z | uint64_t{third.w} << 32;
    to.wrong += first.x != (nvme::op_read | slot << nvme::cid_shift);
    const uint32_t phase = (position >> q->log2_depth & 1u) ^ 1u;
    order::store_quad<order::relaxed, order::system>(static_cast<char*>(q->cq) + uint64_t{slot} * nvme::cqe_bytes,
                                                     {0, 0, (at + n) & last, slot | phase << nvme::cqe_phase_shift});
    ++to.commands;
  }
  if (warp::is_leader(all)) ++to.doorbells;
  return n;
}

}  // namespace bench
}  // namespace warpbell

// The ideal controller of `count` queue pairs, a warp for each (with fewer warps, each takes several in turn). Ends once *stop is
// not 0 and nothing is left, or after `limit_ns` in any case. `results` is wb_queue_serviced[count], zeroed; `progress` is a
// u32[count] for the kernel's use. The queues must be idle when the kernel starts.
WB_KERNEL void wb_bench_ideal_controller(const wb_queue* queues, WB_PARAM uint32_t count, const uint32_t* stop, WB_PARAM uint64_t limit_ns,
                                         wb_queue_serviced* results, uint32_t* progress) {
#if WB_DEVICE_PASS
  using namespace warpbell;
  const warp::mask_t all = warp::full();
  const uint32_t first = warp::index(), step = warp::total();
  if (first >= count) return;
  wb_queue_serviced mine = {0, 0, 0, 0};
  uint32_t at = queues[first].head;
  for (uint32_t i = first + step; i < count; i += step) {
    if (warp::is_leader(all)) progress[i] = queues[i].head;
  }
  warp::sync(all);
  uint32_t n;
  bench::idle_turns idle(stop, limit_ns);
  do {
    n = bench::serve(&queues[first], at, mine);
    at += n;
    // Further queues keep their counts in memory.
    for (uint32_t i = first + step; i < count; i += step) {
      wb_queue_serviced other = {0, 0, 0, 0};
      const uint32_t k = bench::serve(&queues[i], order::load<order::relaxed>(&progress[i]), other);
      if (k == 0) continue;
      n += k;
      warp::sync(all);
      if (warp::is_leader(all)) order::fetch_add<order::relaxed>(&progress[i], k);
      order::add<order::relaxed>(&results[i].commands, other.commands);
      order::add<order::relaxed>(&results[i].sum, other.sum);
      order::add<order::relaxed>(&results[i].wrong, other.wrong);
      order::add<order::relaxed>(&results[i].doorbells, other.doorbells);
      warp::sync(all);
    }
  } while (!idle.over(n));
  order::add<order::relaxed>(&results[first].commands, mine.commands);
  order::add<order::relaxed>(&results[first].sum, mine.sum);
  order::add<order::relaxed>(&results[first].wrong, mine.wrong);
  order::add<order::relaxed>(&results[first].doorbells, mine.doorbells);
#endif
}
WB_EXPORT(wb_bench_ideal_controller)

// Submits `requests` reads from every thread, one after the other, to its warp's queue (warps take the `count` queues in turn), and
// waits for each. Command r of thread t has the starting LBA t * requests + r. So the sums on both sides prove that each command
// was completed exactly once: t * requests over all threads is n (n - 1) / 2. `results` is wb_queue_submitted, one for each warp.
// Queues of remote controllers carry the reads as capsules (capsules.cu).
WB_KERNEL void wb_bench_queue(wb_queue* queues, WB_PARAM uint32_t count, const wb_control* control, WB_PARAM uint32_t requests,
                              wb_queue_submitted* results) {
#if WB_DEVICE_PASS
  using namespace warpbell;
  const warp::mask_t all = warp::full();
  const queue_ref q(queues + warp::index() % count, control);
  uint64_t lba = warp::thread_index() * requests, sum = 0;
  uint32_t done = 0, failed = 0, doorbells = 0;
  for (uint32_t r = 0; r < requests; ++r, ++lba) {
    uint32_t ticket = 0;
    bool held;
    const uint32_t word = q.execute(
        all, true, ticket, doorbells, held,
        [&](queue_ref, bool got, uint32_t t) {
          const nvme::prp data = q.q->remote ? bench::capsule_data(lba) : nvme::prp{};
          if (got) q.post(t, nvme::read(1, lba, 1, data), nvme::record(nvme::op_read, lba, 1, 0, 0, 0, true));
        },
        [](bool, uint32_t) {});
    if (held) q.release(ticket);
    if (word == WB_DONE) {
      ++done;
      sum += lba;
    } else {
      ++failed;
    }
    // After a failure the measurement is void: all lanes end together.
    if (warp::any(all, failed != 0)) break;
  }
  const uint64_t total_done = warp::sum(all, uint64_t{done}), total_failed = warp::sum(all, uint64_t{failed}), total = warp::sum(all, sum);
  if (warp::is_leader(all)) results[warp::index()] = wb_queue_submitted{total_done, total_failed, total, doorbells};
#endif
}
WB_EXPORT(wb_bench_queue)

// Rate of one thread, the first of a warp, on the first queue, which is a local controller's. The commands take the express way, as
// a single read of a volume does.
WB_KERNEL void wb_bench_queue_alone(wb_queue* queues, const wb_control* control, WB_PARAM uint32_t requests, wb_queue_submitted* results) {
#if WB_DEVICE_PASS
  using namespace warpbell;
  using way = express<queue_ref>;
  const warp::mask_t all = warp::full();
  if (warp::index() != 0) return;
  const bool submits = warp::lane() == 0;
  const queue_ref q(queues, control);
  wb_queue_submitted mine = {0, 0, 0, 0};
  for (uint32_t lba = 0; lba < requests; ++lba) {
    uint32_t ticket = 0, doorbells = 0, word = WB_DONE;
    const auto post = [&](const queue_ref& group, uint32_t t) {
      group.post(t, nvme::read(1, lba, 1, nvme::prp{}), nvme::record(nvme::op_read, lba, 1, 0, 0, 0, true));
    };
    way fast;
    way::state state = way::state::none;
    if (submits) state = fast.go(q, ticket, doorbells, word, [&](uint32_t t) { post(q, t); });
    if (warp::any(all, state == way::state::done)) {
      if (submits) fast.finish(q);
    } else {
      bool held;
      word = q.execute(
          all, submits, ticket, doorbells, held,
          [&](queue_ref group, bool got, uint32_t t) {
            if (got) post(group, t);
          },
          [](bool, uint32_t) {}, state == way::state::flying);
      if (held) q.release(ticket);
    }
    mine.doorbells += doorbells;
    mine.done += submits && word == WB_DONE;
    mine.failed += submits && word != WB_DONE;
    mine.sum += submits && word == WB_DONE ? lba : 0;
    if (warp::any(all, mine.failed != 0)) break;
  }
  if (submits) results[0] = mine;
#endif
}
WB_EXPORT(wb_bench_queue_alone)
