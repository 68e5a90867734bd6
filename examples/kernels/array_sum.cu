// Kernel that sums an array on NVMe. Warps take runs of elements. A run is visited page by page, while the next page is requested
// already. Launch shape: any grid of whole warps.
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>

WB_KERNEL void array_sum(WB_PARAM warpbell::array_ref<uint32_t> numbers, uint64_t* sum) {
  constexpr uint64_t run = 8192;
  auto a = numbers.open();
  uint64_t mine = 0;
  for (uint64_t first = warpbell::warp::index() * run; first < a.size(); first += warpbell::warp::total() * run) {
    const uint64_t last = a.size() - first < run ? a.size() : first + run;
    a.for_each_chunk(first, last, [&](uint32_t n) { mine += n; });
  }
  warpbell::order::fetch_add<warpbell::order::relaxed>(sum, mine);
}
WB_EXPORT(array_sum)
