// Counts the numbers of a stored array by their last byte. Launch shape: any grid of whole warps.
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>

WB_KERNEL void histogram(WB_PARAM warpbell::array_ref<uint32_t> numbers, uint32_t* counts) {
  using namespace warpbell;
  constexpr uint64_t run = 8192;  // numbers that a warp takes at once
  auto a = numbers.open();
  for (uint64_t first = warp::index() * run; first < a.size(); first += warp::total() * run) {
    const uint64_t last = a.size() - first < run ? a.size() : first + run;
    a.for_each_chunk(first, last, [&](uint32_t n) { atomicAdd(&counts[n % 256], 1u); });
  }
}
WB_EXPORT(histogram)
