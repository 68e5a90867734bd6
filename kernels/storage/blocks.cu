// Kernels that copy blocks of a volume to or from memory, for programs without a kernel of their own for that. Launch shape: any
// grid.
#include <warpbell/kernel.h>
#include <warpbell/volume.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {
namespace blocks {

// Copies `count` blocks from `first` on to (from) consecutive memory, `each` blocks with one call.
template <bool Writes> WB_FN void move_blocks(const volume_ref& volume, uint64_t first, uint64_t count, uint32_t each, uint8_t* memory) {
  const uint64_t pieces = (count + each - 1) / each, stride = uint64_t{warp::total()} * warp::width;
  for (uint64_t base = uint64_t{warp::index()} * warp::width; base < pieces; base += stride) {
    const uint64_t at = (base + warp::lane()) * each;
    const uint64_t left = at < count ? count - at : 0;
    const uint32_t n = static_cast<uint32_t>(left < each ? left : each);
    uint8_t* here = memory + (at << volume.block_shift());
    status s;
    if (Writes) {
      s = volume.write(warp::full(), first + at, n, here);
    } else {
      s = volume.read(warp::full(), first + at, n, here);
    }
    if (!s) volume.fail(s);
    if (warp::any(warp::full(), !s)) return;
  }
}

}  // namespace blocks
}  // namespace warpbell

// Reads `count` blocks from block `first` on to `to`.
WB_KERNEL void wb_read_blocks(WB_PARAM warpbell::volume_ref volume, WB_PARAM uint64_t first, WB_PARAM uint64_t count,
                              WB_PARAM uint32_t each, uint8_t* to) {
  warpbell::blocks::move_blocks<false>(volume, first, count, each, to);
}
WB_EXPORT(wb_read_blocks)

// Writes `count` blocks from block `first` on from `from`.
WB_KERNEL void wb_write_blocks(WB_PARAM warpbell::volume_ref volume, WB_PARAM uint64_t first, WB_PARAM uint64_t count,
                               WB_PARAM uint32_t each, uint8_t* from) {
  warpbell::blocks::move_blocks<true>(volume, first, count, each, from);
}
WB_EXPORT(wb_write_blocks)
