// What calls do with PEs that loads and stores do not reach: work requests to an RDMA adapter (mlx5.cuh).
//
// All of this is called, and not inlined (see `out_of_line`), and takes addresses and numbers instead of types and scopes: a world
// whose PEs all reach each other has none of it in its way, and a kernel's compiler makes few copies.
//
//   put      from the symmetric heap: the adapter reads it there. Up to 28 bytes of anything: inside the request. Anything else:
//            through the staging of the requests' own blocks, a piece for each thread at a time
//   get      into the symmetric heap: the adapter writes there. Anything else: through staging, and copied out
//   words    of signals and collectives: inside the request
//
// The requests of a `lane` to one PE go to one queue pair, and are done there in their order: the lane of a block's own calls is the
// block, that of a team's calls is the channel, whichever blocks take turns in it.
//
// Two keys name each heap. Writes by the data key may overtake each other on the bus of the PE that they go to; those by the strict
// key come after everything before them. So what somebody may wait for goes by the strict key, and whatever else is short.
//
// Each function answers a word of status.h, or enters what went wrong in the error log and answers zeroes.
#pragma once

#include <warpbell/error.cuh>
#include <warpbell/mlx5.cuh>
#include <warpbell/shmem/transfer.cuh>

namespace warpbell {
namespace detail {

// Scalars and not the world: an address of it that escapes would have it copied to the stack.
WB_FN_COLD void raise_call_error(const wb_control* control, uint32_t word, uint32_t call, uint32_t pe, uint32_t me,
                                 uint64_t offset, uint64_t bytes, uint32_t channel) {
  const uint32_t shown = bytes < 0xffffffffu ? static_cast<uint32_t>(bytes) : 0xffffffffu;
  raise_error(control, wb_error{word, pe, me, channel, call, shown, offset});
}

}  // namespace detail

namespace network {

constexpr uint64_t message_bytes = uint64_t{1} << 30;  // the most that one request moves (InfiniBand: 2^31)
constexpr uint64_t strict_bytes = 4096;                // the longest put by the strict key

// The lane of the calling block.
WB_FN uint32_t own_lane() { return blockIdx.x; }

WB_FN const wb_peer* peer_of(const wb_network* net, uint32_t pe) { return reinterpret_cast<const wb_peer*>(net->peers) + pe; }
// Whether data goes there by loads and stores all the same.
WB_FN bool is_near(const wb_network* net, uint32_t pe) {
  return pe == net->pe || (peer_of(net, pe)->flags & WB_PEER_LOAD_STORE) != 0;
}
WB_FN mlx5::send_queue_ref queue_at(const wb_network* net, const wb_peer* peer, uint32_t lane) {
  wb_send_queue* all = reinterpret_cast<wb_send_queue*>(peer->queues);
  return mlx5::send_queue_ref(all + (lane & (peer->queue_count - 1)), reinterpret_cast<const wb_control*>(net->control));
}
// Whether the adapter can name the bytes: memory of the heap.
WB_FN bool in_heap(const wb_network* net, uint64_t at, uint64_t bytes) {
  const uint64_t offset = at - net->local;
  return offset < net->heap_bytes && bytes <= net->heap_bytes - offset;
}

// --- requests --------------------------------------------------------------------------------------------------------

// An entry of one or two blocks but for its control segment; and for the landing place, which comes last, where it has one.
struct entry {
  uint32_t op, mod, segments;
  order::quad part[4];
};

WB_FN mlx5::block built(const entry& e, uint64_t index, mlx5::queue_word queue, uint32_t how) {
  return mlx5::block{{mlx5::control_segment(e.op, e.mod, index, queue, e.segments, how), e.part[0], e.part[1], e.part[2]}};
}
WB_FN mlx5::block2 built_of_two(const entry& e, uint64_t index, mlx5::queue_word queue, uint32_t how) {
  return mlx5::block2{built(e, index, queue, how),
                      {{e.part[3], mlx5::empty_segment(), mlx5::empty_segment(), mlx5::empty_segment()}}};
}
// With the landing place as its last segment.
WB_FN entry landing_in(entry e, mlx5::local at, uint32_t bytes) {
  const order::quad last = mlx5::data_segment(at, bytes);
  e.part[1] = e.segments == 3 ? last : e.part[1];
  e.part[2] = e.segments == 4 ? last : e.part[2];
  e.part[3] = last;
  return e;
}
WB_FN bool has_two_blocks(const entry& e) { return e.segments > mlx5::block_segments; }

// Few functions have the ring's code in them, each once.
WB_FN_COLD mlx5::request post(mlx5::send_queue_ref queue, entry e) {
  return queue.submit([&](uint64_t index, mlx5::queue_word q, uint32_t how) { return built(e, index, q, how); });
}
// What lands is nobody's; `bytes` of it.
WB_FN_COLD mlx5::request post_atomic(mlx5::send_queue_ref queue, entry e, uint32_t bytes) {
  if (has_two_blocks(e)) {
    return queue.submit([&](uint64_t index, mlx5::queue_word q, uint32_t how) {
      return built_of_two(landing_in(e, queue.staging_of(static_cast<uint32_t>(index)).name, bytes), index, q, how);
    });
  }
  return queue.submit([&](uint64_t index, mlx5::queue_word q, uint32_t how) {
    return built(landing_in(e, queue.staging_of(static_cast<uint32_t>(index)).name, bytes), index, q, how);
  });
}
// A write from the block's staging, where `bytes` of any memory are copied first.
WB_FN_COLD mlx5::request post_staged(mlx5::send_queue_ref queue, entry e, uint64_t from, uint32_t bytes) {
  return queue.submit([&](uint64_t index, mlx5::queue_word q, uint32_t how) {
    const mlx5::staging s = queue.staging_of(static_cast<uint32_t>(index));
    transfer::odd<transfer::put_words>(s.at, from, bytes, 0, 1);
    return built(landing_in(e, s.name, bytes), index, q, how);
  });
}
// What `bytes` that land in staging are copied to any memory for, or looked at: up to 16 of them.
struct landed_value {
  uint32_t word;
  order::detail::pair value;
};
WB_FN_COLD landed_value fetch(mlx5::send_queue_ref queue, entry e, uint32_t bytes) {
  landed_value v{WB_DONE, {0, 0}};
  const auto take = [&](uint64_t at) { v.value = order::load_remote(reinterpret_cast<const order::detail::pair*>(at)); };
  if (has_two_blocks(e)) {
    v.word = queue.exchange(warp::active(), true, [&](uint64_t index, mlx5::queue_word q, uint32_t how, mlx5::local at) {
      return built_of_two(landing_in(e, at, bytes), index, q, how);
    }, take).word;
  } else {
    v.word = queue.exchange(warp::active(), true, [&](uint64_t index, mlx5::queue_word q, uint32_t how, mlx5::local at) {
      return built(landing_in(e, at, bytes), index, q, how);
    }, take).word;
  }
  return v;
}
WB_FN_COLD uint32_t fetch_to(mlx5::send_queue_ref queue, entry e, uint64_t to, uint32_t bytes) {
  return queue.exchange(warp::active(), true, [&](uint64_t index, mlx5::queue_word q, uint32_t how, mlx5::local at) {
    return built(landing_in(e, at, bytes), index, q, how);
  }, [&](uint64_t at) { transfer::odd<transfer::get_words>(to, at, bytes, 0, 1); }).word;
}

WB_FN entry inline_write(mlx5::remote to, const mlx5::write_payload& p, uint32_t bytes) {
  return entry{mlx5::op_write, mlx5::opmod_none, mlx5::inline_write_segments(bytes),
               {mlx5::remote_segment(to), mlx5::inline_segment(bytes, p.w[0], p.w[1], p.w[2]),
                order::quad{p.w[3], p.w[4], p.w[5], p.w[6]}, mlx5::empty_segment()}};
}
// A write or a read, of memory that the adapter knows; or of what lands.
WB_FN entry moving(uint32_t op, mlx5::remote there) {
  return entry{op, mlx5::opmod_none, 3, {mlx5::remote_segment(there), mlx5::empty_segment(), mlx5::empty_segment(), mlx5::empty_segment()}};
}
WB_FN entry moving(uint32_t op, mlx5::remote there, mlx5::local here, uint32_t bytes) {
  return landing_in(moving(op, there), here, bytes);
}

// What became of a request so far: posted is as good as done.
WB_FN uint32_t so_far(const mlx5::request& r) { return r.in_flight() ? static_cast<uint32_t>(WB_DONE) : r.word; }

// One call on its way to one PE.
struct way {
  const wb_network* net;
  const wb_peer* peer;
  mlx5::send_queue_ref queue;
  uint32_t call, pe, lane;

  WB_FN way(const wb_network* n, uint32_t c, uint32_t p, uint32_t l)
      : net(n), peer(peer_of(n, p)), queue(queue_at(n, peer_of(n, p), l)), call(c), pe(p), lane(l) {}

  // `here` is the symmetric address.
  WB_FN mlx5::remote strict(uint64_t here) const { return mlx5::remote{here - net->local + peer->heap, mlx5::be32{peer->strict_key}}; }
  WB_FN mlx5::remote data(uint64_t here, uint64_t bytes) const {
    return mlx5::remote{here - net->local + peer->heap, mlx5::be32{bytes <= strict_bytes ? peer->strict_key : peer->key}};
  }
  WB_FN mlx5::local own(uint64_t here) const { return mlx5::local{here - net->local + net->heap, mlx5::be32{net->key}}; }

  // What has become of it; enters it if it is an error.
  WB_FN uint32_t ended(uint32_t word, uint64_t at, uint64_t bytes) const {
    if (word == WB_DONE) return word;
    const uint32_t channel = call >= WB_CALL_BARRIER ? lane : 0;
    detail::raise_call_error(reinterpret_cast<const wb_control*>(net->control), word, call, pe, net->pe, at - net->local, bytes,
                             channel);
    return word;
  }
};

// --- bytes in registers ----------------------------------------------------------------------------------------------

// Up to inline_write_max bytes of memory at any alignment.
WB_FN mlx5::write_payload gather(uint64_t from, uint32_t bytes) {
  mlx5::write_payload p{};
  const bool aligned = (from & 3u) == 0;
#pragma unroll
  for (uint32_t i = 0; i < mlx5::inline_write_max / 4; ++i) {
    const uint64_t at = from + 4 * i;
    if (4 * i + 4 <= bytes && aligned) {
      p.w[i] = *reinterpret_cast<const uint32_t*>(at);
    } else {
#pragma unroll 1
      for (uint32_t k = 0; k < 4 && 4 * i + k < bytes; ++k) p.w[i] |= uint32_t{*reinterpret_cast<const uint8_t*>(at + k)} << 8 * k;
    }
  }
  return p;
}

// --- puts ------------------------------------------------------------------------------------------------------------

// Thread `rank` of `count` that make the call together, as everywhere here. With `finish`, the source may be used again once all
// of them have returned; without, that of a heap only after a quiet.
WB_FN_COLD uint32_t put(const wb_network* net, uint32_t call, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe, uint32_t lane,
                        uint32_t rank, uint32_t count, bool finish) {
  if (bytes == 0) return WB_DONE;
  const way w(net, call, pe, lane);
  uint32_t word = WB_DONE;
  if (bytes <= mlx5::inline_write_max) {
    if (rank != 0) return WB_DONE;
    const uint32_t some = static_cast<uint32_t>(bytes);
    word = so_far(post(w.queue, inline_write(w.strict(to), gather(from, some), some)));
  } else if (in_heap(net, from, bytes)) {
    if (rank != 0) return WB_DONE;
    mlx5::request last{};
    for (uint64_t done = 0; done < bytes && word == WB_DONE; done += message_bytes) {
      const uint64_t left = bytes - done, some = left < message_bytes ? left : message_bytes;
      last = post(w.queue, moving(mlx5::op_write, w.data(to + done, bytes), w.own(from + done), static_cast<uint32_t>(some)));
      word = so_far(last);
    }
    if (finish && word == WB_DONE) word = w.queue.wait(last).word;
  } else {
    const uint64_t piece = w.queue.q->staging_bytes;
    for (uint64_t done = rank * piece; done < bytes && word == WB_DONE; done += count * piece) {
      const uint64_t left = bytes - done, some = left < piece ? left : piece;
      word = so_far(post_staged(w.queue, moving(mlx5::op_write, w.data(to + done, bytes)), from + done, static_cast<uint32_t>(some)));
    }
  }
  return w.ended(word, to, bytes);
}

// One value of up to 16 bytes.
WB_FN_COLD uint32_t put_value(const wb_network* net, uint32_t call, uint64_t to, uint64_t low, uint64_t high, uint32_t bytes,
                              uint32_t pe, uint32_t lane) {
  const way w(net, call, pe, lane);
  const mlx5::write_payload p{{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                               static_cast<uint32_t>(high >> 32), 0, 0, 0}};
  return w.ended(so_far(post(w.queue, inline_write(w.strict(to), p, bytes))), to, bytes);
}

// Elements of up to 16 bytes, `to_gap` and `from_gap` bytes apart: a request for each.
WB_FN_COLD uint32_t put_strided(const wb_network* net, uint64_t to, uint64_t from, int64_t to_gap, int64_t from_gap, uint32_t bytes,
                                uint64_t n, uint32_t pe, uint32_t rank, uint32_t count) {
  const way w(net, WB_CALL_PUT, pe, own_lane());
  uint32_t word = WB_DONE;
  for (uint64_t i = rank; i < n && word == WB_DONE; i += count) {
    const int64_t e = static_cast<int64_t>(i);
    word = so_far(post(w.queue, inline_write(w.strict(to + e * to_gap), gather(from + e * from_gap, bytes), bytes)));
  }
  return w.ended(word, to, bytes);
}

// --- gets ------------------------------------------------------------------------------------------------------------

// With `finish`, the data is there once all threads have returned and met; without, data for the heap only after a quiet.
WB_FN_COLD uint32_t get(const wb_network* net, uint32_t call, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe, uint32_t lane,
                        uint32_t rank, uint32_t count, bool finish) {
  if (bytes == 0) return WB_DONE;
  const way w(net, call, pe, lane);
  uint32_t word = WB_DONE;
  if (in_heap(net, to, bytes)) {
    if (rank != 0) return WB_DONE;
    mlx5::request last{};
    for (uint64_t done = 0; done < bytes && word == WB_DONE; done += message_bytes) {
      const uint64_t left = bytes - done, some = left < message_bytes ? left : message_bytes;
      last = post(w.queue, moving(mlx5::op_read, w.data(from + done, bytes), w.own(to + done), static_cast<uint32_t>(some)));
      word = so_far(last);
    }
    if (finish && word == WB_DONE) word = w.queue.wait(last).word;
  } else {
    const uint64_t piece = w.queue.q->staging_bytes;
    for (uint64_t done = rank * piece; done < bytes && word == WB_DONE; done += count * piece) {
      const uint64_t left = bytes - done, some = left < piece ? left : piece;
      word = fetch_to(w.queue, moving(mlx5::op_read, w.data(from + done, bytes)), to + done, static_cast<uint32_t>(some));
    }
  }
  return w.ended(word, from, bytes);
}

// One value of up to 16 bytes; what is beyond it is anything.
WB_FN_COLD order::detail::pair get_value(const wb_network* net, uint64_t from, uint32_t bytes, uint32_t pe, uint32_t lane) {
  const way w(net, WB_CALL_GET, pe, lane);
  const landed_value v = fetch(w.queue, moving(mlx5::op_read, w.strict(from)), bytes);
  w.ended(v.word, from, bytes);
  return v.value;
}

// Elements as of `put_strided`. Into the heap, all of a thread's requests are under way at once.
WB_FN_COLD uint32_t get_strided(const wb_network* net, uint64_t to, uint64_t from, int64_t to_gap, int64_t from_gap, uint32_t bytes,
                                uint64_t n, uint32_t pe, uint32_t rank, uint32_t count) {
  const way w(net, WB_CALL_GET, pe, own_lane());
  uint32_t word = WB_DONE;
  if (rank >= n) return word;
  if (in_heap(net, to, (n - 1) * static_cast<uint64_t>(to_gap) + bytes)) {
    mlx5::request last{};
    for (uint64_t i = rank; i < n && word == WB_DONE; i += count) {
      const int64_t e = static_cast<int64_t>(i);
      last = post(w.queue, moving(mlx5::op_read, w.strict(from + e * from_gap), w.own(to + e * to_gap), bytes));
      word = so_far(last);
    }
    if (word == WB_DONE) word = w.queue.wait(last).word;
  } else {
    for (uint64_t i = rank; i < n && word == WB_DONE; i += count) {
      const int64_t e = static_cast<int64_t>(i);
      word = fetch_to(w.queue, moving(mlx5::op_read, w.strict(from + e * from_gap)), to + e * to_gap, bytes);
    }
  }
  return w.ended(word, from, bytes);
}

// --- completion and order --------------------------------------------------------------------------------------------

// Waits for what has been posted to all PEs in a lane; with `lanes` as all_lanes, in every lane. The threads share the PEs.
constexpr uint32_t all_lanes = 0xffffffffu;
WB_FN_COLD uint32_t quiet(const wb_network* net, uint32_t call, uint32_t lane, uint32_t rank, uint32_t count) {
  uint32_t word = WB_DONE;
  for (uint32_t pe = rank; pe < net->size; pe += count) {
    const wb_peer* peer = peer_of(net, pe);
    const uint32_t queues = peer->queues == 0 ? 0 : lane == all_lanes ? peer->queue_count : 1;
    for (uint32_t i = 0; i < queues; ++i) {
      const way w(net, call, pe, lane == all_lanes ? i : lane);
      const uint32_t one = w.ended(w.queue.quiet().word, net->local, 0);
      if (one != WB_DONE) word = one;
    }
  }
  return word;
}

// Before this thread's next store to a PE that stores reach, what it has asked the adapter to do there is done: the two ways know
// nothing of each other. To all such PEs, or to one. Requests that follow need nothing: they are done in their order.
WB_FN_COLD uint32_t settle(const wb_network* net, uint32_t call, uint32_t lane, uint32_t only) {
  uint32_t word = WB_DONE;
  const bool all = only == WB_NO_PE;
  for (uint32_t pe = all ? 0 : only; pe < (all ? net->size : only + 1); ++pe) {
    if (!is_near(net, pe) || peer_of(net, pe)->queues == 0) continue;
    const way w(net, call, pe, lane);
    const uint32_t one = w.ended(w.queue.quiet().word, net->local, 0);
    if (one != WB_DONE) word = one;
  }
  return word;
}

}  // namespace network
}  // namespace warpbell
