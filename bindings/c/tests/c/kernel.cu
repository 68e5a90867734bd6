// Kernels of the test program kernel.c. Launch shape: any grid.
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>
#include <warpbell/table.cuh>

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

// Gathers a batch of `each` rows in each block, with a scratch of its own.
WB_KERNEL void gather_by_blocks(WB_PARAM wb_table_view view, const uint32_t* indices, WB_PARAM uint64_t each, unsigned char* out,
                                const wb_table_scratch* scratches) {
  const warpbell::table_ref table(view);
  const uint64_t first = blockIdx.x * each;
  table.gather_block(indices + first, each, out + first * table.row_bytes(), scratches[blockIdx.x]);
}
WB_EXPORT(gather_by_blocks)

// Likewise in each warp, with indices of 64 bits.
WB_KERNEL void gather_by_warps(WB_PARAM wb_table_view view, const uint64_t* indices, WB_PARAM uint64_t each, unsigned char* out,
                               const wb_table_scratch* scratches) {
  const warpbell::table_ref table(view);
  const uint64_t first = warpbell::warp::index() * each;
  table.gather_warp(indices + first, each, out + first * table.row_bytes(), scratches[warpbell::warp::index()]);
}
WB_EXPORT(gather_by_warps)

WB_IMAGE(test_kernels)
