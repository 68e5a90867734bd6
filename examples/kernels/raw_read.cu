// Kernel that reads blocks from a volume without a cache: every lane reads its own block, the warp waits for all of them together,
// and each lane sums its block. The result sums[b] is the sum of block b's 32-bit words. Launch shape: any grid of whole warps.
#include <warpbell/kernel.h>
#include <warpbell/volume.cuh>

WB_KERNEL void raw_read(WB_PARAM warpbell::volume_ref vol, uint32_t* buffer, uint64_t* sums, WB_PARAM uint64_t blocks) {
  using namespace warpbell;
  const uint32_t words = vol.block_bytes() / 4;
  uint32_t* mine = buffer + warp::thread_index() * words;
  const uint64_t stride = static_cast<uint64_t>(warp::total()) * warp::width;
  for (uint64_t first = static_cast<uint64_t>(warp::index()) * warp::width; first < blocks; first += stride) {
    const uint64_t block = first + warp::lane();
    // A lane past the end reads nothing, and still makes the call: the warp moves the data of all lanes together.
    const status s = vol.read(warp::full(), block, block < blocks ? 1 : 0, mine);
    if (warp::any(warp::full(), !s)) {
      if (!s) vol.fail(s);
      return;
    }
    if (block >= blocks) continue;
    uint64_t sum = 0;
    for (uint32_t w = 0; w < words; ++w) sum += mine[w];
    sums[block] = sum;
  }
}
WB_EXPORT(raw_read)
