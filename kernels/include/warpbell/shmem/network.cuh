// Calls to PEs that loads and stores do not reach: work requests to an RDMA adapter (mlx5.cuh).
//
// All functions here are called, and not inlined (see call.cuh), and take addresses and numbers instead of types and scopes. So a
// world whose PEs all reach each other has none of this code in its path, and the compiler makes few copies for each kernel.
//
//   put      from the symmetric heap: the adapter reads the heap. Up to 28 bytes of any memory: inside the request. Other memory:
//            through the staging of the requests' own blocks, a piece for each thread at a time
//   get      into the symmetric heap: the adapter writes the heap. Other memory: through staging, and copied out
//   words    of signals and collectives: inside the request
//
// The requests of a `lane` to one PE go to one queue pair, which executes them in order. The lane of a block's own calls is the
// block, unless they choose a queue pair. The lane of a team's calls is the channel, whichever blocks take turns in it.
//
// Two keys name each heap. Writes by the data key may overtake each other on the bus of the destination. Writes by the strict key
// come after everything before them. So data that a thread may wait for goes by the strict key, and so does all other short data.
//
// Each function returns a status word (status.h), or enters an error in the error log and returns zeroes.
#pragma once

#include <warpbell/error.cuh>
#include <warpbell/mlx5.cuh>

namespace warpbell {
namespace detail {

// Takes scalars and not the world: an address of the world that escapes would cause a copy on the stack. Returns the word that was
// entered. A wait that ended because a connection of its world has failed ends with the error of that connection.
WB_FN_COLD uint32_t raise_call_error(const wb_control* control, uint32_t word, uint32_t call, uint32_t pe, uint32_t me, uint64_t offset,
                                     uint64_t bytes, uint32_t channel) {
  if (word == status_word(WB_STOPPED) && control->fault && !order::load<order::relaxed>(control->abort) &&
      !order::load<order::relaxed, order::system>(control->stop)) {
    const uint64_t fault = order::load<order::relaxed, order::system>(control->fault);
    if (fault) {
      word = static_cast<uint32_t>(fault);
      pe = static_cast<uint32_t>(fault >> WB_FAULT_PE_SHIFT);
    }
  }
  const uint32_t shown = bytes < 0xffffffffu ? static_cast<uint32_t>(bytes) : 0xffffffffu;
  enter_error(control, wb_error{word, pe, me, channel, call, shown, offset});
  return word;
}

}  // namespace detail

namespace network {

constexpr uint64_t strict_bytes = 4096;  // longest put by the strict key

// A send queue of functions that are called, and not inlined.
using send_queue = mlx5::send_queue<mlx5::from_function>;

// Returns the state of a request so far: posted counts as done.
WB_FN uint32_t so_far(const mlx5::request& r) { return r.in_flight() ? static_cast<uint32_t>(WB_DONE) : r.word; }
WB_FN uint32_t completed(const send_queue& queue, const mlx5::request& r) {
  return send_queue::wait_for(queue.q, queue.control(), warp::active(), true, r);
}

WB_FN const wb_peer* peer_of(const wb_network* net, uint32_t pe) { return net->peers + pe; }
// Returns true if data goes to the PE by loads and stores.
WB_FN bool is_near(const wb_network* net, uint32_t pe) { return pe == net->pe || (peer_of(net, pe)->flags & WB_PEER_LOAD_STORE) != 0; }
WB_FN send_queue queue_at(const wb_network* net, const wb_peer* peer, uint32_t lane) {
  wb_send_queue* all = peer->queues;
  return send_queue(all + (lane & (peer->queue_count - 1)), net->control);
}
// Returns true if the adapter can name the bytes: memory of the heap.
WB_FN bool in_heap(const wb_network* net, uint64_t at, uint64_t bytes) {
  const uint64_t offset = at - net->local;
  return offset < net->heap_bytes && bytes <= net->heap_bytes - offset;
}

// A call on its path to one PE.
struct peer_path {
  const wb_network* net;
  const wb_peer* peer;
  send_queue queue;
  uint32_t call, pe, lane;

  WB_FN peer_path(const wb_network* n, uint32_t c, uint32_t p, uint32_t l)
      : net(n), peer(peer_of(n, p)), queue(queue_at(n, peer_of(n, p), l)), call(c), pe(p), lane(l) {}

  // `here` is the symmetric address.
  WB_FN mlx5::remote strict(uint64_t here) const { return mlx5::remote{here - net->local + peer->heap, mlx5::be32{peer->strict_key}}; }
  WB_FN mlx5::remote data(uint64_t here, uint64_t bytes) const {
    return mlx5::remote{here - net->local + peer->heap, mlx5::be32{bytes <= strict_bytes ? peer->strict_key : peer->key}};
  }
  WB_FN mlx5::local own(uint64_t here) const { return mlx5::local{here - net->local + net->heap, mlx5::be32{net->key}}; }

  // Returns true if the adapter can read and write memory of this PE by itself, at `own`.
  WB_FN bool is_registered(uint64_t here, uint64_t bytes) const { return in_heap(net, here, bytes); }

  // Returns true if nothing is in flight.
  WB_FN bool is_idle() const {
    return order::load<order::acquire>(&queue.q->completed) == order::load<order::relaxed>(&queue.q->ticket) &&
           order::load<order::relaxed>(&queue.q->failed) == 0;
  }
  // Waits for data that was read into the heap, and for everything else of the queue pair before it.
  WB_FN uint32_t landed(mlx5::request last) const {
    if (queue.q->flags & WB_SEND_CONSISTENCY) last = queue.flush(own(net->local));
    return completed(queue, last);
  }

  // Returns the outcome of a request, after entering it in the error log if it is an error.
  WB_FN uint32_t ended(uint32_t word, uint64_t at, uint64_t bytes) const {
    if (word == WB_DONE) return word;
    const uint32_t channel = call >= WB_CALL_BARRIER && call <= WB_CALL_ALLTOALL ? lane : 0;
    detail::raise_call_error(net->control, word, call, pe, net->pe, at - net->local, bytes, channel);
    return word;
  }
};

// --- bytes in registers ----------------------------------------------------------------------------------------------

WB_FN mlx5::write_payload in_words(uint64_t low, uint64_t high) {
  return mlx5::write_payload{{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                              static_cast<uint32_t>(high >> 32), 0, 0, 0}};
}

// Gathers up to inline_write_max bytes of memory at any alignment.
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

// Functions `..._along` take the path, which knows the symmetric memory: the heaps (peer_path), or windows
// (shmem/network_window.cuh).

// Puts bytes as thread `rank` of the `count` threads that make the call together. With `finish`, the source may be used again once
// all of them have returned. Without it, a source in a heap may be used again only after a quiet.
template <class Path>
WB_FN uint32_t put_along(const Path& w, uint64_t to, uint64_t from, uint64_t bytes, uint32_t rank, uint32_t count, bool finish) {
  uint32_t word = WB_DONE;
  if (bytes <= mlx5::inline_write_max) {
    if (rank != 0) return WB_DONE;
    const uint32_t some = static_cast<uint32_t>(bytes);
    word = so_far(w.queue.write_inline(w.strict(to), gather(from, some), some));
  } else if (w.is_registered(from, bytes)) {
    if (rank != 0) return WB_DONE;
    const mlx5::request last = w.queue.write(w.data(to, bytes), w.own(from), bytes);
    word = so_far(last);
    if (finish && word == WB_DONE) word = completed(w.queue, last);
  } else {
    const uint64_t piece = w.queue.q->staging_bytes;
    for (uint64_t done = rank * piece; done < bytes && word == WB_DONE; done += count * piece) {
      const uint64_t left = bytes - done, some = left < piece ? left : piece;
      word = so_far(w.queue.write_copied(w.data(to + done, bytes), from + done, static_cast<uint32_t>(some)));
    }
  }
  return w.ended(word, to, bytes);
}
WB_FN_COLD uint32_t put(const wb_network* net, uint32_t call, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe, uint32_t lane,
                        uint32_t rank, uint32_t count, bool finish) {
  if (bytes == 0) return WB_DONE;
  return put_along(peer_path(net, call, pe, lane), to, from, bytes, rank, count, finish);
}

// Puts one value of up to 16 bytes.
template <class Path> WB_FN uint32_t put_value_along(const Path& w, uint64_t to, uint64_t low, uint64_t high, uint32_t bytes) {
  return w.ended(so_far(w.queue.write_inline(w.strict(to), in_words(low, high), bytes)), to, bytes);
}
WB_FN_COLD uint32_t put_value(const wb_network* net, uint32_t call, uint64_t to, uint64_t low, uint64_t high, uint32_t bytes, uint32_t pe,
                              uint32_t lane) {
  return put_value_along(peer_path(net, call, pe, lane), to, low, high, bytes);
}

// Puts elements of up to 16 bytes, `to_gap` and `from_gap` bytes apart, which wrap as addresses do: one request for each.
WB_FN_COLD uint32_t put_strided(const wb_network* net, uint64_t to, uint64_t from, uint64_t to_gap, uint64_t from_gap, uint32_t bytes,
                                uint64_t n, uint32_t pe, uint32_t lane, uint32_t rank, uint32_t count) {
  const peer_path w(net, WB_CALL_PUT, pe, lane);
  uint32_t word = WB_DONE;
  for (uint64_t i = rank; i < n && word == WB_DONE; i += count) {
    word = so_far(w.queue.write_inline(w.strict(to + i * to_gap), gather(from + i * from_gap, bytes), bytes));
  }
  return w.ended(word, to, bytes);
}

// --- gets ------------------------------------------------------------------------------------------------------------

// Gets bytes. With `finish`, the data has arrived once all threads have returned and synchronised. Without it, data for the heap
// has arrived only after a quiet.
template <class Path>
WB_FN uint32_t get_along(const Path& w, uint64_t to, uint64_t from, uint64_t bytes, uint32_t rank, uint32_t count, bool finish) {
  uint32_t word = WB_DONE;
  if (w.is_registered(to, bytes)) {
    if (rank != 0) return WB_DONE;
    const mlx5::request last = w.queue.read(w.data(from, bytes), w.own(to), bytes, mlx5::landing::later);
    word = so_far(last);
    if (finish && word == WB_DONE) word = w.landed(last);
  } else {
    const uint64_t piece = w.queue.q->staging_bytes;
    for (uint64_t done = rank * piece; done < bytes && word == WB_DONE; done += count * piece) {
      const uint64_t left = bytes - done, some = left < piece ? left : piece;
      word = w.queue.fetch(w.data(from + done, bytes), static_cast<uint32_t>(some), to + done).word;
    }
  }
  return w.ended(word, from, bytes);
}
WB_FN_COLD uint32_t get(const wb_network* net, uint32_t call, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe, uint32_t lane,
                        uint32_t rank, uint32_t count, bool finish) {
  if (bytes == 0) return WB_DONE;
  return get_along(peer_path(net, call, pe, lane), to, from, bytes, rank, count, finish);
}

// Gets one value of up to 16 bytes; the bytes beyond it are unspecified.
template <class Path> WB_FN order::detail::pair get_value_along(const Path& w, uint64_t from, uint32_t bytes) {
  order::detail::pair value{0, 0};
  w.ended(w.queue.fetch(w.strict(from), bytes, value).word, from, bytes);
  return value;
}
WB_FN_COLD order::detail::pair get_value(const wb_network* net, uint64_t from, uint32_t bytes, uint32_t pe, uint32_t lane) {
  return get_value_along(peer_path(net, WB_CALL_GET, pe, lane), from, bytes);
}

// Gets elements as put_strided puts them. Into the heap, all of a thread's requests are in flight at once.
WB_FN_COLD uint32_t get_strided(const wb_network* net, uint64_t to, uint64_t from, uint64_t to_gap, uint64_t from_gap, uint32_t bytes,
                                uint64_t n, uint32_t pe, uint32_t lane, uint32_t rank, uint32_t count) {
  const peer_path w(net, WB_CALL_GET, pe, lane);
  uint32_t word = WB_DONE;
  if (rank >= n) return word;
  if (in_heap(net, to, (n - 1) * to_gap + bytes)) {
    mlx5::request last{};
    for (uint64_t i = rank; i < n && word == WB_DONE; i += count) {
      last = w.queue.read(w.strict(from + i * from_gap), w.own(to + i * to_gap), bytes, mlx5::landing::later);
      word = so_far(last);
    }
    if (word == WB_DONE) word = w.landed(last);
  } else {
    for (uint64_t i = rank; i < n && word == WB_DONE; i += count) {
      word = w.queue.fetch(w.strict(from + i * from_gap), bytes, to + i * to_gap).word;
    }
  }
  return w.ended(word, from, bytes);
}

// --- completion and order --------------------------------------------------------------------------------------------

// Waits for everything posted to all PEs in a lane, or for all_lanes in every lane. The threads share the PEs. With `landing`, data
// that was read into the heap is visible, too. Without it, the adapter has read all sources.
constexpr uint32_t all_lanes = 0xffffffffu;
WB_FN_COLD uint32_t quiet(const wb_network* net, uint32_t call, uint32_t lane, uint32_t rank, uint32_t count, bool landing) {
  uint32_t word = WB_DONE;
  for (uint32_t pe = rank; pe < net->size; pe += count) {
    const wb_peer* peer = peer_of(net, pe);
    const uint32_t queues = peer->queues == 0 ? 0 : lane == all_lanes ? peer->queue_count : 1;
    for (uint32_t i = 0; i < queues; ++i) {
      const peer_path w(net, call, pe, lane == all_lanes ? i : lane);
      const uint32_t one = w.is_idle() ? static_cast<uint32_t>(WB_DONE)
                           : landing   ? w.landed(w.queue.everything())
                                       : completed(w.queue, w.queue.everything());
      if (w.ended(one, net->local, 0) != WB_DONE) word = one;
    }
  }
  return word;
}

// Waits until the adapter has executed this thread's requests. Called before this thread's next store to a PE that stores reach,
// because the two data paths are not ordered with each other. For all such PEs, or for one. Later requests need no wait: they are
// executed in order.
WB_FN_COLD uint32_t complete(const wb_network* net, uint32_t call, uint32_t lane, uint32_t only) {
  uint32_t word = WB_DONE;
  const bool all = only == WB_NO_PE;
  // The call behind this one refuses a PE that is not there.
  if (!all && only >= net->size) return word;
  for (uint32_t pe = all ? 0 : only; pe < (all ? net->size : only + 1); ++pe) {
    if (!is_near(net, pe) || peer_of(net, pe)->queues == 0) continue;
    const peer_path w(net, call, pe, lane);
    const uint32_t one = w.ended(w.is_idle() ? static_cast<uint32_t>(WB_DONE) : completed(w.queue, w.queue.everything()), net->local, 0);
    if (one != WB_DONE) word = one;
  }
  return word;
}

}  // namespace network
}  // namespace warpbell
