// Puts and gets over an adapter whose symmetric memory is a registered window, or whose other memory is one (window.cuh).
//
// The adapter reads a source in a window, and writes a destination in one, by the window's own key: nothing is staged.
#pragma once

#include <warpbell/shmem/network.cuh>

namespace warpbell {
namespace network {

// Returns true if an end of a call is a window. An end that is none has no table.
WB_FN bool is_window(const wb_window& end) { return end.peers != 0; }

// A call on its path to one PE. `far` is the window that the call names on that PE, or none: the heap. `near` is the window that has
// the call's memory on this PE, or none.
struct window_path : peer_path {
  wb_window far, near;

  WB_FN window_path(const wb_network* n, uint32_t c, uint32_t p, uint32_t l, const wb_window& f, const wb_window& m)
      : peer_path(n, c, p, l), far(f), near(m) {}

  WB_FN const wb_window_peer* theirs() const { return far.peers + pe; }
  WB_FN const wb_window_peer* ours() const { return near.peers + net->pe; }

  WB_FN mlx5::remote strict(uint64_t here) const {
    if (!is_window(far)) return peer_path::strict(here);
    return mlx5::remote{here - far.base + theirs()->address, mlx5::be32{theirs()->strict_key}};
  }
  WB_FN mlx5::remote data(uint64_t here, uint64_t bytes) const {
    if (!is_window(far)) return peer_path::data(here, bytes);
    if (bytes <= strict_bytes) return strict(here);
    return mlx5::remote{here - far.base + theirs()->address, mlx5::be32{theirs()->key}};
  }
  WB_FN bool is_registered(uint64_t here, uint64_t bytes) const {
    if (!is_window(near)) return peer_path::is_registered(here, bytes);
    const uint64_t offset = here - near.base;
    return offset < near.bytes && bytes <= near.bytes - offset;
  }
  WB_FN mlx5::local own(uint64_t here) const {
    if (!is_window(near)) return peer_path::own(here);
    return mlx5::local{here - near.base + ours()->address, mlx5::be32{ours()->local_key}};
  }
  WB_FN uint32_t ended(uint32_t word, uint64_t at, uint64_t bytes) const {
    if (!is_window(far)) return peer_path::ended(word, at, bytes);
    if (word != WB_DONE) detail::raise_call_error(net->control, word, call, pe, net->pe, at - far.base, bytes, 0);
    return word;
  }
};

WB_FN_COLD uint32_t put_window(const wb_network* net, uint32_t call, by_value<wb_window> far, by_value<wb_window> near, uint64_t to,
                               uint64_t from, uint64_t bytes, uint32_t pe, uint32_t lane, uint32_t rank, uint32_t count, bool finish) {
  if (bytes == 0) return WB_DONE;
  return put_along(window_path(net, call, pe, lane, far, near), to, from, bytes, rank, count, finish);
}

WB_FN_COLD uint32_t get_window(const wb_network* net, uint32_t call, by_value<wb_window> far, by_value<wb_window> near, uint64_t to,
                               uint64_t from, uint64_t bytes, uint32_t pe, uint32_t lane, uint32_t rank, uint32_t count, bool finish) {
  if (bytes == 0) return WB_DONE;
  return get_along(window_path(net, call, pe, lane, far, near), to, from, bytes, rank, count, finish);
}

// Puts one value of up to 16 bytes to a place in a window.
WB_FN_COLD uint32_t put_window_value(const wb_network* net, by_value<wb_window> far, uint64_t low, uint64_t high, uint32_t bytes,
                                     uint32_t pe, uint32_t lane) {
  return put_value_along(window_path(net, WB_CALL_WINDOW_PUT, pe, lane, far, wb_window{}), far.at, low, high, bytes);
}

// Gets one value of up to 16 bytes at a place in a window; the bytes beyond it are unspecified.
WB_FN_COLD order::detail::pair get_window_value(const wb_network* net, by_value<wb_window> far, uint32_t bytes, uint32_t pe,
                                                uint32_t lane) {
  return get_value_along(window_path(net, WB_CALL_WINDOW_GET, pe, lane, far, wb_window{}), far.at, bytes);
}

}  // namespace network
}  // namespace warpbell
