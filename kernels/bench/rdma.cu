// Kernels of `warpbell bench rdma`, which measure like perftest's programs on a CPU: writes, reads and atomics, many in flight or
// one after the other. Launch shape: a warp for each queue pair for bandwidth, one thread for latency.
#include <warpbell/kernel.h>

#include "rdma/side.cuh"

namespace rdma_bench {

WB_FN bool is_over(const side& s, uint64_t started) { return s.duration_ns != 0 && now_ns() - started >= s.duration_ns; }

// Sends a warp's messages on its queue pair, with up to `tx_depth` in flight. All lanes call this.
WB_FN void bandwidth(const side& s, uint32_t pair) {
  const warp::mask_t all = warp::full();
  const lane_of l{s, pair};
  const mlx5::send_queue_ref q = l.queue();
  // Nothing is in flight: blocks are counted from here.
  const uint32_t base = order::load<order::acquire>(&q.q->completed);
  const uint64_t started = now_ns();
  uint64_t posted = 0, done = 0, ended = started;
  uint64_t goal = s.duration_ns != 0 ? ~uint64_t{0} : s.iterations;
  uint32_t word = WB_DONE;
  deadline p(q.control());
  while (done < goal) {
    const uint64_t left = goal - posted, room = s.tx_depth - (posted - done);
    const uint64_t list = left < s.post_list ? left : s.post_list;
    if (list != 0 && list <= room) {
      const bool mine = warp::lane() < list;
      const uint64_t i = posted + warp::lane();
      if (mine && s.posted) *l.posted(i) = now_ns();
      const mlx5::request r = post(l, q, i, all, mine);
      const warp::mask_t refused = warp::ballot(all, mine && !r.in_flight());
      if (refused != 0) {
        word = warp::shuffle(all, r.word, warp::first(refused));
        break;
      }
      posted += list;
      // Look for completions when the next list would soon find no room.
      if (posted - done + list <= s.tx_depth / 2) continue;
    }
    q.poll(all);
    uint32_t complete = 0, over = 0;
    if (warp::is_leader(all)) {
      complete = order::load<order::acquire>(&q.q->completed);
      over = is_over(s, started);
    }
    complete = warp::shuffle(all, complete, 0) - base;
    const uint64_t now = now_ns(), fresh = complete - static_cast<uint32_t>(done);
    if (s.completed) {
      for (uint64_t i = done + warp::lane(); i < done + fresh; i += warp::width) *l.completed(i) = now;
    }
    done += fresh;
    if (warp::shuffle(all, over, 0) != 0) goal = posted;
    if (fresh != 0) {
      ended = now;
      p = deadline(q.control());
      continue;
    }
    uint32_t failed = 0;
    if (warp::is_leader(all)) failed = order::load<order::acquire>(&q.q->failed);
    word = warp::shuffle(all, failed, 0);
    if (word != WB_DONE) break;
    if (const wait_status v = p.expired(all); v != wait_status::go_on) {
      word = status_word(v);
      break;
    }
  }
  if (word == WB_DONE && s.verb == WB_RDMA_READ) {
    // Flush, so that landed data is visible to kernels that follow this one.
    word = q.wait(all, true, q.flush(l.local(0), mlx5::lanes{all, warp::is_leader(all)})).word;
    word = warp::shuffle(all, word, 0);
    ended = now_ns();
  }
  if (warp::is_leader(all)) *l.leave() = result{done, started, ended, word, 0};
}

// Sends messages one after the other, by one thread.
WB_FN void one_by_one(const side& s) {
  const lane_of l{s, 0};
  const mlx5::send_queue_ref q = l.queue();
  const uint64_t started = now_ns();
  uint64_t done = 0;
  uint32_t word = WB_DONE;
  while (s.duration_ns != 0 ? !is_over(s, started) : done < s.iterations) {
    if (s.posted) *l.posted(done) = now_ns();
    const mlx5::lanes me = mlx5::lanes::here();
    const mlx5::request r = s.verb == WB_RDMA_READ ? q.read(l.remote(done), l.local(done), s.bytes, mlx5::landing::flushed, me)
                                                   : post(l, q, done, me.mask, true);
    word = q.wait(r).word;
    if (word != WB_DONE) break;
    ++done;
  }
  *l.leave() = result{done, started, now_ns(), word, 0};
}

// Returns the last byte of message i: never equal to that of the message before, and never 0, the inbox's initial value.
constexpr uint8_t last_call = 255;
WB_FN uint8_t sign_of(uint64_t i) { return static_cast<uint8_t>(i % (last_call - 1) + 1); }

// Sends a message and receives one back, again and again, by one thread on each side. The side that begins counts. With a duration,
// that side also announces the last message, by the sign `last_call`.
WB_FN void there_and_back(const side& s) {
  const lane_of l{s, 0};
  const mlx5::send_queue_ref q = l.queue();
  uint8_t* sends = reinterpret_cast<uint8_t*>(l.outbox(0)) + s.bytes - 1;
  const uint8_t* comes = reinterpret_cast<const uint8_t*>(s.inbox) + s.bytes - 1;
  const uint64_t started = now_ns();
  uint64_t done = 0;
  uint32_t word = WB_DONE;
  bool last = false;
  auto receive = [&](uint64_t i) {
    deadline p(q.control());
    for (;;) {
      const uint8_t sign = order::load<order::relaxed, order::world>(comes);
      if (sign == sign_of(i)) return;
      if (s.duration_ns != 0 && sign == last_call) {
        last = true;
        return;
      }
      if (const wait_status v = p.expired(); v != wait_status::go_on) {
        word = status_word(v);
        return;
      }
    }
  };
  auto send = [&](uint64_t i) {
    order::store<order::relaxed, order::world>(sends, last ? last_call : sign_of(i));
    if (s.posted) *l.posted(i) = now_ns();
    const mlx5::request r = post(l, q, 0, warp::active(), true);
    word = q.wait(r).word;
  };
  while (s.duration_ns != 0 ? !last : done < s.iterations) {
    if (s.begins) {
      last = is_over(s, started);
      send(done);
      if (word == WB_DONE) receive(done);
    } else {
      receive(done);
      if (word == WB_DONE) send(done);
    }
    if (word != WB_DONE) break;
    ++done;
  }
  *l.leave() = result{done, started, now_ns(), word, 0};
}

}  // namespace rdma_bench

// Measures bandwidth. A warp for each queue pair.
WB_KERNEL void wb_rdma_bandwidth(WB_PARAM rdma_bench::side s) {
#if WB_DEVICE_PASS
  using namespace warpbell;
  for (uint32_t pair = warp::index(); pair < s.queue_count; pair += warp::total()) rdma_bench::bandwidth(s, pair);
#endif
}
WB_EXPORT(wb_rdma_bandwidth)

// Measures latency of single operations. One thread.
WB_KERNEL void wb_rdma_one_by_one(WB_PARAM rdma_bench::side s) {
#if WB_DEVICE_PASS
  if (warpbell::warp::thread_index() == 0) rdma_bench::one_by_one(s);
#endif
}
WB_EXPORT(wb_rdma_one_by_one)

// Measures latency of a ping-pong. One thread on each side.
WB_KERNEL void wb_rdma_there_and_back(WB_PARAM rdma_bench::side s) {
#if WB_DEVICE_PASS
  if (warpbell::warp::thread_index() == 0) rdma_bench::there_and_back(s);
#endif
}
WB_EXPORT(wb_rdma_there_and_back)
