// Adds all numbers of an array on storage. Each warp takes runs of 8,192 numbers in turn; the page cache reads ahead.
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>

WB_KERNEL void sum(WB_PARAM warpbell::array_ref<uint32_t> numbers, uint64_t* result) {
  using namespace warpbell;
  constexpr uint64_t run = 8192;
  auto a = numbers.open();
  uint64_t mine = 0;
  for (uint64_t first = warp::index() * run; first < a.size(); first += warp::total() * run) {
    const uint64_t last = a.size() - first < run ? a.size() : first + run;
    a.for_each_chunk(first, last, [&](uint32_t n) { mine += n; });
  }
  order::fetch_add<order::relaxed>(result, mine);
}
WB_EXPORT(sum)
