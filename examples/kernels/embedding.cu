// Kernels between a graph search and a world: they take the views of an array and of a world, and results of the search.
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

// Sums the weights, which are on storage, of the vertices that a search reached. Launch shape: any grid of whole warps.
WB_KERNEL void weigh_reached(WB_PARAM wb_array_view weights_view, const uint32_t* depth, uint64_t* sum) {
  using namespace warpbell;
  const array_ref<uint32_t> weights(weights_view);
  auto weight = weights.open();
  uint64_t mine = 0;
  for (uint64_t v = warp::thread_index(); v < weight.size(); v += warp::thread_total()) {
    if (depth[v] != 0xffffffffu) mine += weight[v];
  }
  order::fetch_add<order::relaxed>(sum, mine);
}
WB_EXPORT(weigh_reached)

// Adds this PE's sum to the total on every PE, and waits until all PEs have done so. Launch shape: one block.
WB_KERNEL void add_everywhere(WB_PARAM wb_world world_view, const uint64_t* sum, uint64_t* total) {
  using namespace warpbell;
  const world_ref world(world_view);
  if (warp::thread_index() == 0) {
    for (uint32_t pe = 0; pe < world.n_pes(); ++pe) world.atomic_add(total, *sum, pe);
  }
  world.barrier_all(by_block);
}
WB_EXPORT(add_everywhere)
