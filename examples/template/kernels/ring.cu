// Each PE puts 1,000 numbers into the inbox of the next PE, with a signal behind them, and waits for those of the PE before it.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

WB_KERNEL void ring(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint64_t> inbox, const uint64_t* numbers,
                    WB_PARAM warpbell::sym<uint64_t> arrived) {
  using namespace warpbell;
  const uint32_t next = (world.my_pe() + 1) % world.n_pes();
  world.put_signal(by_block, inbox, numbers, 1000, arrived, 1, signal::set, next);
  world.signal_wait_until(arrived, cmp::eq, 1);
}
WB_EXPORT(ring)
