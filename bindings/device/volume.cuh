// Flat functions of volumes: warpbell_device.h describes them.
#pragma once

#include "flat.cuh"

namespace warpbell {
namespace flat {

WB_FN volume_ref volume(uint64_t view) { return volume_ref(at<wb_volume_view>(view)); }

// Returns the status word. A failure fails the run: a caller of another compiler has no structure to report it with.
WB_FN uint32_t entered(const volume_ref& v, const status& s) {
  if (!s) v.fail(s);
  return s.word;
}

// The blocks that a thread of a block transfers.
struct share {
  uint64_t first;
  uint32_t count;
};
// Threads take stretches of `least_bytes` or more, so that small transfers are few commands.
WB_FN share share_of(const volume_ref& v, uint32_t count) {
  constexpr uint32_t least_bytes = 4096;
  const uint32_t threads = blockDim.x, least = least_bytes >> v.block_shift();
  const uint32_t even = count / threads + (count % threads != 0), each = even > least ? even : least;
  const uint64_t first = uint64_t{each} * threadIdx.x;
  const uint64_t rest = first < count ? count - first : 0;
  return share{first, static_cast<uint32_t>(rest < each ? rest : each)};
}

}  // namespace flat
}  // namespace warpbell

WB_FLAT uint64_t wbd_volume_blocks(uint64_t view) { return warpbell::flat::volume(view).blocks(); }
WB_FLAT uint32_t wbd_volume_block_bytes(uint64_t view) { return warpbell::flat::volume(view).block_bytes(); }
WB_FLAT uint32_t wbd_volume_has_failed(uint64_t view) {
  const wb_control* control = warpbell::flat::volume(view).control();
  return warpbell::order::load<warpbell::order::relaxed>(control->abort) != 0;
}

#define WB_FLAT_TRANSFER(CALL, POINTER)                                                                                       \
  WB_FLAT uint32_t wbd_volume_##CALL(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer) {                        \
    const warpbell::volume_ref v = warpbell::flat::volume(view);                                                              \
    return warpbell::flat::entered(v, v.CALL(block, count, reinterpret_cast<POINTER>(buffer)));                               \
  }                                                                                                                           \
  WB_FLAT uint32_t wbd_volume_##CALL##_warp(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer) {                 \
    const warpbell::volume_ref v = warpbell::flat::volume(view);                                                              \
    return warpbell::flat::entered(v, v.CALL(warpbell::warp::full(), block, count, reinterpret_cast<POINTER>(buffer)));       \
  }                                                                                                                           \
  WB_FLAT uint32_t wbd_volume_##CALL##_block(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer) {                \
    const warpbell::volume_ref v = warpbell::flat::volume(view);                                                              \
    const warpbell::flat::share mine = warpbell::flat::share_of(v, count);                                                    \
    warpbell::by_block.sync();                                                                                                \
    const uint64_t at = buffer + (mine.first << v.block_shift());                                                             \
    const warpbell::status s = v.CALL(warpbell::warp::full(), block + mine.first, mine.count, reinterpret_cast<POINTER>(at)); \
    return warpbell::flat::together(warpbell::by_block, warpbell::flat::entered(v, s));                                       \
  }                                                                                                                           \
  WB_FLAT uint64_t wbd_volume_##CALL##_async(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer) {                \
    return warpbell::flat::volume(view).CALL##_async(block, count, reinterpret_cast<POINTER>(buffer)).word;                   \
  }
WB_FLAT_TRANSFER(read, void*)
WB_FLAT_TRANSFER(write, const void*)
#undef WB_FLAT_TRANSFER

WB_FLAT uint32_t wbd_volume_wait(uint64_t view, uint64_t token) {
  const warpbell::volume_ref v = warpbell::flat::volume(view);
  return warpbell::flat::entered(v, v.wait(warpbell::token{token}));
}
WB_FLAT uint32_t wbd_volume_test(uint64_t view, uint64_t token) { return warpbell::flat::volume(view).test(warpbell::token{token}); }

WB_FLAT uint32_t wbd_volume_flush(uint64_t view) {
  const warpbell::volume_ref v = warpbell::flat::volume(view);
  return warpbell::flat::entered(v, v.flush());
}
WB_FLAT uint32_t wbd_volume_flush_block(uint64_t view) {
  return warpbell::flat::by_first(warpbell::by_block, [=] { return wbd_volume_flush(view); });
}
