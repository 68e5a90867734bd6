// A block of a drive on its way through two PEs. PE 0 reads the block, from a drive of another machine if the volume is one. It
// sums the block's words, and puts the sum to PE 1 in the same launch. PE 1 waits for it: its host does nothing meanwhile.
// Launch shape: one warp on each PE.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>
#include <warpbell/volume.cuh>

WB_KERNEL void remote_block_send(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::volume_ref vol, uint32_t* buffer,
                                 WB_PARAM uint64_t block, WB_PARAM warpbell::sym<uint64_t> sum, WB_PARAM warpbell::sym<uint64_t> arrived) {
  using namespace warpbell;
  // Lane 0 reads, and the warp helps. A command to a remote drive is a message that this kernel posts.
  const status s = vol.read(warp::full(), block, warp::lane() == 0 ? 1 : 0, buffer);
  if (warp::any(warp::full(), !s)) {
    if (!s) vol.fail(s);
    return;
  }
  warp::sync(warp::full());
  uint64_t own = 0;
  for (uint32_t i = warp::lane(); i < vol.block_bytes() / 4; i += warp::width) own += buffer[i];
  const uint64_t all = warp::sum(warp::full(), own);
  if (warp::lane() != 0) return;
  sum.here[0] = all;
  world.put_signal(sum, sum, 1, arrived, 1, signal::set, 1);
}
WB_EXPORT(remote_block_send)

WB_KERNEL void remote_block_receive(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint64_t> sum,
                                    WB_PARAM warpbell::sym<uint64_t> arrived, uint64_t* result) {
  using namespace warpbell;
  if (warp::thread_index() != 0) return;
  world.signal_wait_until(arrived, cmp::eq, 1);
  *result = sum.here[0];
}
WB_EXPORT(remote_block_receive)
