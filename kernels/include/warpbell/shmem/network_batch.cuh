// Batches over RDMA adapters: work requests of one thread to one PE, which are posted with one doorbell.
//
// A batch keeps its work requests in memory of the thread. It takes no blocks of the ring before they are posted, so that other threads
// that wait for the queue pair, or for room, never wait for a batch that is open.
#pragma once

#include <warpbell/shmem/network_atomic.cuh>

namespace warpbell {
namespace network {

// Work requests that were not posted.
struct pending {
  mlx5::work_request* entry;  // [room]
  uint32_t room;
  uint32_t count;
};

// Posts what is pending. The batch is empty afterwards, also after an error.
WB_FN uint32_t post(const peer_path& w, pending* b) {
  if (b->count == 0) return WB_DONE;
  const order::quad there = b->entry[0].segment[1];
  const uint64_t first = uint64_t{mlx5::swap_bytes(there.x)} << 32 | mlx5::swap_bytes(there.y);
  const uint32_t word = so_far(send_queue::post_chain(w.queue.q, w.queue.control(), b->entry, b->count));
  b->count = 0;
  return w.ended(word, first - w.peer->heap + w.net->local, 0);
}

// Adds a work request, after posting the others if there is no room. No batch has more than half of the ring's blocks, of which an
// entry has two at most.
WB_FN uint32_t add(const peer_path& w, pending* b, const mlx5::work_request& e) {
  const uint32_t most = w.queue.blocks() / 4;
  uint32_t word = WB_DONE;
  if (b->count >= (b->room < most ? b->room : most)) word = post(w, b);
  if (word == WB_DONE) b->entry[b->count++] = e;
  return word;
}

WB_FN_COLD uint32_t batch_post(const wb_network* net, pending* b, uint32_t pe, uint32_t lane) {
  return post(peer_path(net, WB_CALL_PUT, pe, lane), b);
}

// Adds puts of bytes. A source in the heap, or of any other memory, stays as it is until the batch was posted and flushed.
WB_FN_COLD uint32_t batch_put(const wb_network* net, pending* b, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe, uint32_t lane) {
  const peer_path w(net, WB_CALL_PUT, pe, lane);
  if (bytes == 0) return WB_DONE;
  if (bytes <= mlx5::inline_write_max) {
    const uint32_t some = static_cast<uint32_t>(bytes);
    return add(w, b, mlx5::work_request(mlx5::inline_write(w.strict(to), gather(from, some), some)));
  }
  const bool direct = in_heap(net, from, bytes);
  const uint64_t piece = direct ? mlx5::max_message_bytes : w.queue.q->staging_bytes;
  uint32_t word = WB_DONE;
  for (uint64_t done = 0; done < bytes && word == WB_DONE; done += piece) {
    const uint64_t left = bytes - done;
    const uint32_t some = static_cast<uint32_t>(left < piece ? left : piece);
    const mlx5::remote there = w.data(to + done, bytes);
    word = direct ? add(w, b, mlx5::work_request(mlx5::write(there, w.own(from + done), some)))
                  : add(w, b, mlx5::work_request(mlx5::write(there, mlx5::local{}, some), mlx5::work_request::sent, some, from + done));
  }
  return word;
}

// Adds a put of one value of up to 16 bytes.
WB_FN_COLD uint32_t batch_value(const wb_network* net, pending* b, uint64_t to, uint64_t low, uint64_t high, uint32_t bytes, uint32_t pe,
                                uint32_t lane) {
  const peer_path w(net, WB_CALL_PUT, pe, lane);
  return add(w, b, mlx5::work_request(mlx5::inline_write(w.strict(to), in_words(low, high), bytes)));
}

// Adds an update of a signal.
WB_FN_COLD uint32_t batch_signal(const wb_network* net, pending* b, change what, uint64_t at, uint64_t value, uint32_t pe, uint32_t lane) {
  const peer_path w(net, WB_CALL_SIGNAL, pe, lane);
  return add(w, b, changing<uint64_t>(what, w.strict(at), value, 0, mlx5::work_request::dropped));
}

}  // namespace network
}  // namespace warpbell
