// Benchmark of posting work requests against an ideal adapter: spare warps, one for each queue pair, with no wire behind them. They
// read the doorbell and the work requests, and complete the signalled ones. Measures the cost of posting and completion only.
// Launch shape: one warp for each queue pair in the adapter; any grid of whole warps that post, or one warp for latency, resident
// together with the adapter.
#include <warpbell/kernel.h>
#include <warpbell/mlx5.cuh>

#include "idle.cuh"
#include "params.h"
#include "ticks.cuh"

namespace warpbell {
namespace bench {

// The adapter's position on a queue pair.
struct adapter_at {
  uint32_t next;       // block
  uint32_t completed;  // completion entries written
  uint32_t end;        // blocks before it are announced
  uint32_t entry;      // the latest doorbell is a whole entry: 1 + its half of the register; or 0
  uint64_t bell[2];    // the halves' first words as last seen
};

// Returns the block behind those that a doorbell announces, and, in `is_entry`, if it is the front of an entry.
WB_FN uint32_t announced_by(uint64_t bell, bool& is_entry) {
  // The last byte is the number of segments.
  is_entry = bell >> 56 != 0;
  return (mlx5::swap_bytes(static_cast<uint32_t>(bell)) >> 8 & mlx5::index_mask) + (is_entry ? 1 : 0);
}

// Looks at the doorbell, or at both halves of a BlueFlame register. One lane calls this. The half that changed first may announce
// fewer blocks than the other half did at the last look.
WB_FN void look_at_doorbell(const wb_send_queue* q, adapter_at& at, wb_adapter_saw& saw) {
  for (uint32_t half = 0; half < (q->flame != 0 ? 2u : 1u); ++half) {
    const uint64_t bell = order::load<order::acquire, order::system>(q->doorbell + half * (q->flame / sizeof(uint64_t)));
    if (bell == at.bell[half]) continue;
    at.bell[half] = bell;
    ++saw.doorbells;
    bool is_entry = false;
    const uint32_t end = announced_by(bell, is_entry), more = (end - at.end) & mlx5::index_mask;
    if (more == 0 || more > 1u << mlx5::max_ring_log_blocks) continue;
    at.end = end;
    at.entry = is_entry ? half + 1 : 0;
  }
}

WB_FN bool same(const order::quad& a, const order::quad& b) { return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w; }

// Takes up to `each` new entries for each lane, all of one block. All lanes of the warp call this. Returns the number of entries
// taken.
WB_FN uint32_t take_entries(const wb_send_queue* q, adapter_at& at, wb_adapter_saw& saw) {
  constexpr uint32_t each = 4;
  const warp::mask_t all = warp::full();
  if (warp::is_leader(all)) look_at_doorbell(q, at, saw);
  at.end = warp::shuffle(all, at.end, 0);
  at.entry = warp::shuffle(all, at.entry, 0);
  const uint32_t there = (at.end - at.next) & mlx5::index_mask;
  const uint32_t n = there < each * warp::width ? there : each * warp::width;
  if (n == 0) return 0;
  const uint32_t mask = (1u << q->log_blocks) - 1, entries = (1u << q->log_completions) - 1;
  order::quad control[each], target[each];
#pragma unroll
  for (uint32_t j = 0; j < each; ++j) {
    const uint32_t i = j * warp::width + warp::lane();
    control[j] = target[j] = order::quad{0, 0, 0, 0};
    if (i >= n) continue;
    const char* block = reinterpret_cast<const char*>(q->ring) + uint64_t{(at.next + i) & mask} * mlx5::block_bytes;
    control[j] = order::load_quad<order::relaxed, order::system>(block);
    target[j] = order::load_quad<order::relaxed, order::system>(block + mlx5::segment_bytes);
  }
  // One block that the register has, too. An adapter takes it from there only if it has come as a whole.
  if (n == 1 && at.entry != 0) {
    const char* flame = reinterpret_cast<const char*>(q->doorbell) + (at.entry - 1) * q->flame;
    bool whole = false;
    if (warp::is_leader(all)) {
      const order::quad c = order::load_quad<order::relaxed, order::system>(flame);
      const order::quad t = order::load_quad<order::relaxed, order::system>(flame + mlx5::segment_bytes);
      whole = same(c, control[0]) && same(t, target[0]);
      saw.flames += whole;
    }
    if (!warp::any(all, whole)) return 0;
  }
#pragma unroll
  for (uint32_t j = 0; j < each; ++j) {
    const uint32_t i = j * warp::width + warp::lane();
    const bool here = i < n;
    const uint32_t first = mlx5::swap_bytes(control[j].x), index = (at.next + i) & mlx5::index_mask;
    if (here) {
      saw.sum += static_cast<uint64_t>(mlx5::swap_bytes(target[j].x)) << 32 | mlx5::swap_bytes(target[j].y);
      saw.wrong += first != (index << 8 | mlx5::op_write) || (control[j].y & 0xffffffu) != (q->queue_word & 0xffffffu);
      ++saw.entries;
    }
    const bool asks = here && (control[j].z >> 24 & mlx5::signalled) != 0;
    const warp::mask_t asking = warp::ballot(all, asks);
    if (asks) {
      const uint32_t entry = at.completed + warp::rank_of(asking, warp::lane());
      const bool collapsed = (q->flags & WB_SEND_COLLAPSED) != 0;
      const uint32_t owner = collapsed ? 0 : entry >> q->log_completions & 1u;
      // Of a collapsed queue only the last of these completions is wanted.
      if (!collapsed || warp::lane() == warp::last(asking)) {
        order::store_quad<order::relaxed, order::system>(
            reinterpret_cast<char*>(q->completions) + uint64_t{entry & entries} * mlx5::cqe_bytes + mlx5::cqe_tail_at,
            order::quad{0, 0, q->queue_word << 8 | mlx5::op_write, mlx5::swap_bytes(index << 16) | owner << 24});
      }
    }
    at.completed += warp::popcount(asking);
  }
  at.next += n;
  return n;
}

// Posts one write of 8 bytes for each lane, from registered memory or with the data in the entry.
template <class Queue> WB_FN mlx5::request post_one(const Queue& q, uint64_t id, bool in_entry, mlx5::lanes l) {
  constexpr uint32_t key = 0x00101200, bytes = 8;
  const mlx5::remote to{id, mlx5::be32{key}};
  if (in_entry) return q.write_inline(to, mlx5::payload_of(id), bytes, l);
  return q.write(to, mlx5::local{id, mlx5::be32{key}}, bytes, l);
}

// Posts `posts` writes from every thread; a warp's lanes post together. Blocks take the `count` queue pairs in turn, and a block's
// warps one each where there are more queue pairs than blocks. Waits only for room in the ring, and at the end for everything. Post
// r of thread t has the remote address t * posts + r, so the sums on both sides prove that each was seen exactly once. `results` is
// wb_warp_posted, one for each warp.
template <class Queue> WB_FN void post_many(wb_send_queue* queues, uint32_t count, const wb_control* control, uint32_t posts,
                                            uint32_t in_entry, wb_warp_posted* results) {
  const mlx5::lanes l{warp::full(), true};
  const uint32_t turn = blockIdx.x + gridDim.x * (threadIdx.x / warp::width);
  const Queue q(queues + turn % count, control);
  uint64_t id = warp::thread_index() * posts, sum = 0;
  uint32_t posted = 0, failed = 0;
  mlx5::request last;
  for (uint32_t r = 0; r < posts; ++r, ++id) {
    last = post_one(q, id, in_entry != 0, l);
    if (last.in_flight()) {
      ++posted;
      sum += id;
    } else {
      ++failed;
    }
    // After a failure the measurement is void: all lanes end together.
    if (warp::any(l.mask, failed != 0)) break;
  }
  if (!q.wait(l.mask, true, last)) ++failed;
  const uint64_t all_posted = warp::sum(l.mask, uint64_t{posted}), all_failed = warp::sum(l.mask, uint64_t{failed}),
                 total = warp::sum(l.mask, sum);
  if (warp::is_leader(l.mask)) results[warp::index()] = wb_warp_posted{all_posted, all_failed, total};
}

// Posts a write from one thread (`lanes` 1) or from each lane of one warp, and waits for it, again and again, alone on its queue
// pair. `samples` is u32[2][iterations]: ticks in the post call, and ticks until it was known complete. The address is i * lanes +
// lane in turn i, warm-up included.
template <class Queue> WB_FN void post_alone(wb_send_queue* queue, const wb_control* control, uint32_t lanes, uint32_t warmup,
                                             uint32_t iterations, uint32_t in_entry, uint32_t* samples, wb_post_clock* clock) {
  if (warp::index() != 0 || warp::lane() >= lanes) return;
  const mlx5::lanes l{lanes == warp::width ? warp::full() : (1u << lanes) - 1u, true};
  const Queue q(queue, control);
  const bool speaks = warp::is_leader(l.mask);
  uint32_t failed = 0;
  for (uint32_t i = 0; i < warmup + iterations; ++i) {
    if (i == warmup && speaks) {
      clock->start_ns = now_ns();
      clock->start_ticks = post_ticks();
    }
    const uint64_t before = post_ticks();
    const mlx5::request r = post_one(q, uint64_t{i} * lanes + warp::lane(), in_entry != 0, l);
    const uint64_t posted = post_ticks();
    const mlx5::outcome o = q.wait(l.mask, true, r);
    const uint64_t complete = post_ticks();
    if (!o) ++failed;
    if (i >= warmup && speaks) {
      samples[i - warmup] = static_cast<uint32_t>(posted - before);
      samples[iterations + i - warmup] = static_cast<uint32_t>(complete - before);
    }
    if (warp::any(l.mask, failed != 0)) break;
  }
  if (speaks) {
    clock->end_ticks = post_ticks();
    clock->end_ns = now_ns();
    clock->failed = failed;
  }
}

}  // namespace bench
}  // namespace warpbell

// The ideal adapter of `count` fresh queue pairs, a warp for each. Ends once *stop is not 0 and nothing is left, or after
// `limit_ns` in any case. `results` is wb_adapter_saw[count], zeroed.
WB_KERNEL void wb_bench_ideal_adapter(const wb_send_queue* queues, WB_PARAM uint32_t count, const uint32_t* stop,
                                      WB_PARAM uint64_t limit_ns, wb_adapter_saw* results) {
#if WB_DEVICE_PASS
  using namespace warpbell;
  const uint32_t mine = warp::index();
  if (mine >= count) return;
  wb_adapter_saw saw = {0, 0, 0, 0, 0};
  bench::adapter_at at = {0, 0, 0, 0, {0, 0}};
  for (bench::idle_turns idle(stop, limit_ns); !idle.over(bench::take_entries(&queues[mine], at, saw));) {
  }
  order::add<order::relaxed>(&results[mine].entries, saw.entries);
  order::add<order::relaxed>(&results[mine].sum, saw.sum);
  order::add<order::relaxed>(&results[mine].wrong, saw.wrong);
  order::add<order::relaxed>(&results[mine].doorbells, saw.doorbells);
  order::add<order::relaxed>(&results[mine].flames, saw.flames);
#endif
}
WB_EXPORT(wb_bench_ideal_adapter)

// Kernels that post by functions called through an address, as a put does, and by the same functions inlined.
#define WB_BENCH_POST(SUFFIX, QUEUE)                                                                                                       \
  WB_KERNEL void wb_bench_post##SUFFIX(wb_send_queue* queues, WB_PARAM uint32_t count, const wb_control* control, WB_PARAM uint32_t posts, \
                                       WB_PARAM uint32_t in_entry, wb_warp_posted* results) {                                              \
    warpbell::bench::post_many<QUEUE>(queues, count, control, posts, in_entry, results);                                                   \
  }                                                                                                                                        \
  WB_EXPORT(wb_bench_post##SUFFIX)                                                                                                         \
  WB_KERNEL void wb_bench_post_latency##SUFFIX(wb_send_queue* queue, const wb_control* control, WB_PARAM uint32_t lanes,                   \
                                               WB_PARAM uint32_t warmup, WB_PARAM uint32_t iterations, WB_PARAM uint32_t in_entry,         \
                                               uint32_t* samples, wb_post_clock* clock) {                                                  \
    warpbell::bench::post_alone<QUEUE>(queue, control, lanes, warmup, iterations, in_entry, samples, clock);                               \
  }                                                                                                                                        \
  WB_EXPORT(wb_bench_post_latency##SUFFIX)

WB_BENCH_POST(, warpbell::mlx5::send_queue<warpbell::mlx5::from_kernel>)
WB_BENCH_POST(_inlined, warpbell::mlx5::send_queue_ref)

#undef WB_BENCH_POST
