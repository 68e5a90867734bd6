// Kernels of one image of which one uses atomics only, beside others that put and fence. The compiled code of a function must not
// depend on its neighbours (kernels/include/warpbell/call.cuh). Compiled by .ci/whole_and_alone.py, never run. Without its loop the
// kernel was not affected.
#include "../../kernels/shmem/basic.cu"

WB_KERNEL void neighbour(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint32_t> counter,
                         WB_PARAM warpbell::sym<uint32_t> drawn, WB_PARAM uint32_t limit) {
  using namespace warpbell;
  for (uint32_t number; (number = world.atomic_fetch_inc(counter, 0)) < limit && !world.has_failed();) {
    world.atomic_inc(drawn + static_cast<ptrdiff_t>(number), world.n_pes() - 1);
  }
}
WB_EXPORT(neighbour)
