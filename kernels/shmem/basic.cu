// Kernels of a world's barrier and of its ring test. Launch shape: one block, on every PE.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

// Completes earlier puts, and waits for all PEs.
WB_KERNEL void wb_shmem_barrier(WB_PARAM warpbell::world_ref world) { world.barrier_all(warpbell::by_block); }
WB_EXPORT(wb_shmem_barrier)

// Puts value[i] of this PE to `to` of PE (me + 1) mod n, then signals. Waits for the signal of the PE before.
WB_KERNEL void wb_shmem_ring(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint64_t> to, const uint64_t* value,
                             WB_PARAM uint64_t count, WB_PARAM warpbell::sym<uint64_t> flag, WB_PARAM uint64_t turn) {
  const uint32_t next = (world.my_pe() + 1) % world.n_pes();
  world.put_signal_nbi(warpbell::by_block, to, value, count, flag, turn, warpbell::signal::set, next);
  world.signal_wait_until(flag, warpbell::cmp::ge, turn);
}
WB_EXPORT(wb_shmem_ring)
