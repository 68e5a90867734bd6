// Kernels that go on reading after a page could not be read. Launch shape: any grid.
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>

// Reads until the run has failed or the host has set the stop flag; without either, for ever.
WB_KERNEL void read_until_failed(WB_PARAM warpbell::array_ref<uint64_t> numbers, uint64_t* rounds) {
  auto a = numbers.open();
  uint64_t n = 0, seen = 0;
  do {
    seen ^= a[n++ % a.size()];
  } while (!a.has_failed());
  if (warpbell::warp::thread_index() == 0) *rounds = n + (seen == 1);
}
WB_EXPORT(read_until_failed)

WB_IMAGE(warpbell_failing)
