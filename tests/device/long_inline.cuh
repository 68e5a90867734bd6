// A write with inline data of any length: the part that the library's builders leave to their caller.
#pragma once

#include <warpbell/mlx5/send_ring.cuh>

namespace warpbell {
namespace mlx5 {

// Writes the entry word by word behind the front, as the lanes of a warp would. Bytes after the last byte in its word are 0.
WB_FN void long_inline_write(const send_ring& ring, uint64_t index, queue_word queue, uint32_t how, remote to, const uint32_t* words,
                             uint32_t bytes) {
  const inline_front front = inline_write_front(to, bytes);
  for (uint32_t i = 0; i < blocks_of(inline_write_segments(bytes)); ++i) {
    ring.store(index + i, block{{empty_segment(), empty_segment(), empty_segment(), empty_segment()}});
  }
  const auto word = [&](uint32_t offset) { return reinterpret_cast<uint32_t*>(ring.at(index, offset)); };
  order::store_quad<order::relaxed, order::system>(word(0), placed(front.control, index, queue, how));
  order::store_quad<order::relaxed, order::system>(word(segment_bytes), front.remote);
  order::store<order::relaxed>(word(2 * segment_bytes), front.header);
  for (uint32_t i = 0; i * 4 < bytes; ++i) order::store<order::relaxed>(word(inline_write_at + i * 4), words[i]);
}

}  // namespace mlx5
}  // namespace warpbell
