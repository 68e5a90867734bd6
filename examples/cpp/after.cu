// One round of connected components: each vertex takes the lowest label of its neighbours. Neighbour lists are on storage.
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>

WB_KERNEL void after(WB_PARAM warpbell::array_ref<uint32_t> stored, const uint64_t* offset, const uint32_t* label, uint32_t* next,
                     WB_PARAM uint64_t vertices, uint32_t* changed) {
  auto neighbours = stored.open();
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t v = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; v < vertices; v += threads) {
    uint32_t lowest = label[v];
    for (uint64_t e = offset[v]; e < offset[v + 1]; ++e) {
      const uint32_t other = label[neighbours[e]];
      if (other < lowest) lowest = other;
    }
    if (lowest < label[v]) atomicExch(changed, 1u);
    next[v] = lowest;
  }
}
WB_EXPORT(after)
