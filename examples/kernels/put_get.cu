// Puts and gets between neighbours on a ring. Each PE puts its numbers into the inbox of the next PE, waits for the signal behind the
// numbers of the PE before it, and gets the same numbers once more from their source. `wrong` counts elements that differ.
// Launch shape: one block.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

WB_KERNEL void put_get(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint64_t> numbers, WB_PARAM warpbell::sym<uint64_t> inbox,
                       WB_PARAM warpbell::sym<uint64_t> arrived, uint64_t* fetched, uint64_t* wrong, WB_PARAM uint64_t count) {
  using namespace warpbell;
  const uint32_t me = world.my_pe(), pes = world.n_pes();
  world.put_signal(by_block, inbox, numbers, count, arrived, 1, signal::set, (me + 1) % pes);
  world.signal_wait_until(arrived, cmp::eq, 1);
  world.get(by_block, fetched, numbers, count, (me + pes - 1) % pes);
  for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
    if (fetched[i] != inbox.here[i]) order::fetch_add<order::relaxed>(wrong, uint64_t{1});
  }
}
WB_EXPORT(put_get)
