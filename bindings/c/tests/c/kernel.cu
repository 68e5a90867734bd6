// Kernels of the test program kernel.c. Launch shape: any grid.
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>

// Adds the elements of a stored array.
WB_KERNEL void sum(WB_PARAM wb_array_view view, uint64_t* total) {
  auto numbers = warpbell::array_ref<uint32_t>(view).open();
  uint64_t own = 0;
  for (uint64_t i = warpbell::warp::thread_index(); i < numbers.size(); i += warpbell::warp::thread_total()) own += numbers[i];
  warpbell::order::add<warpbell::order::relaxed>(total, own);
}
WB_EXPORT(sum)

// Ends when the host writes the word, and not when the engine is told to stop.
WB_KERNEL void wait_for_host(uint32_t* go) {
  using namespace warpbell;
  while (order::load<order::relaxed, order::system>(go) == 0) {
  }
}
WB_EXPORT(wait_for_host)

WB_IMAGE(test_kernels)
