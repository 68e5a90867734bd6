// Kernel that reads with tokens: every lane keeps `ahead` reads in flight, and processes the oldest while the others are in flight.
// Launch shape: any grid of whole warps.
#include <warpbell/kernel.h>
#include <warpbell/volume.cuh>

WB_KERNEL void async_read(WB_PARAM warpbell::volume_ref vol, uint32_t* tiles, uint64_t* sum, WB_PARAM uint64_t blocks) {
  using namespace warpbell;
  constexpr uint32_t ahead = 4;  // tiles of each lane; the host allocates as many
  const uint32_t words = vol.block_bytes() / 4;
  const uint64_t stride = warp::thread_total(), turns = (blocks + stride - 1) / stride;
  uint32_t* mine = tiles + warp::thread_index() * ahead * words;
  token t[ahead];

  auto block = [&](uint64_t turn) { return warp::thread_index() + turn * stride; };
  auto ask = [&](uint64_t turn) {
    const uint32_t n = turn < turns && block(turn) < blocks ? 1 : 0;
    t[turn % ahead] = vol.read_async(warp::full(), block(turn), n, mine + turn % ahead * words);
  };

  for (uint64_t turn = 0; turn < ahead; ++turn) ask(turn);
  uint64_t total = 0;
  for (uint64_t turn = 0; turn < turns; ++turn) {
    const status s = vol.wait(warp::full(), t[turn % ahead]);  // done, device error, timed out or stopped
    if (warp::any(warp::full(), !s)) {
      if (!s) vol.fail(s);
      return;
    }
    if (block(turn) < blocks) {
      const uint32_t* tile = mine + turn % ahead * words;
      for (uint32_t w = 0; w < words; ++w) total += tile[w];
    }
    ask(turn + ahead);
  }
  order::fetch_add<order::relaxed>(sum, total);
}
WB_EXPORT(async_read)
