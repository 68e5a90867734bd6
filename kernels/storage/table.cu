// Kernels of the host's tables. Launch shape: any grid of whole warps, blocks of up to 128 threads.
#include <warpbell/kernel.h>
#include <warpbell/table.cuh>
#include <warpbell/table/scatter.cuh>

#define WB_TABLE_KERNEL WB_KERNEL void __launch_bounds__(128)

// Gathers a batch of rows whose numbers have 32 bits.
WB_TABLE_KERNEL wb_table_gather_u32(WB_PARAM wb_table_view table, const uint32_t* indices, WB_PARAM uint64_t n, void* out,
                                    WB_PARAM wb_table_scratch scratch) {
  warpbell::table_ref(table).gather_grid(indices, n, out, scratch);
}
WB_EXPORT(wb_table_gather_u32)

// Gathers a batch of rows whose numbers have 64 bits.
WB_TABLE_KERNEL wb_table_gather_u64(WB_PARAM wb_table_view table, const uint64_t* indices, WB_PARAM uint64_t n, void* out,
                                    WB_PARAM wb_table_scratch scratch) {
  warpbell::table_ref(table).gather_grid(indices, n, out, scratch);
}
WB_EXPORT(wb_table_gather_u64)

// Kernels of a write, which run one after the other (table/scatter.cuh). `wide` is not 0 if indices have 64 bits.

WB_TABLE_KERNEL wb_table_scatter_claim(WB_PARAM wb_table_view table, const void* indices, WB_PARAM uint32_t wide, WB_PARAM uint64_t n,
                                       WB_PARAM wb_table_scratch scratch) {
  warpbell::rows::scatter(table, indices, wide != 0, n, scratch).claim();
}
WB_EXPORT(wb_table_scatter_claim)

// Adds rows to sums, whose elements are floating-point or integer numbers of 4 or 8 bytes.
WB_TABLE_KERNEL wb_table_scatter_add(WB_PARAM wb_table_view table, const void* indices, WB_PARAM uint32_t wide, WB_PARAM uint64_t n,
                                     WB_PARAM wb_table_scratch scratch, const void* from, void* sums, WB_PARAM uint32_t bytes,
                                     WB_PARAM uint32_t real) {
  const warpbell::rows::scatter s(table, indices, wide != 0, n, scratch);
  if (bytes == 4 && real) s.add(static_cast<const float*>(from), static_cast<float*>(sums));
  if (bytes == 8 && real) s.add(static_cast<const double*>(from), static_cast<double*>(sums));
  if (bytes == 4 && !real) s.add(static_cast<const uint32_t*>(from), static_cast<uint32_t*>(sums));
  if (bytes == 8 && !real) s.add(static_cast<const uint64_t*>(from), static_cast<uint64_t*>(sums));
}
WB_EXPORT(wb_table_scatter_add)

WB_TABLE_KERNEL wb_table_scatter_write(WB_PARAM wb_table_view table, const void* indices, WB_PARAM uint32_t wide, WB_PARAM uint64_t n,
                                       WB_PARAM wb_table_scratch scratch, const void* rows) {
  warpbell::rows::scatter(table, indices, wide != 0, n, scratch).write(rows);
}
WB_EXPORT(wb_table_scatter_write)

// Writes rows that are not whole blocks to pages of a cache.
WB_TABLE_KERNEL wb_table_scatter_write_pages(WB_PARAM wb_table_view table, const void* indices, WB_PARAM uint32_t wide, WB_PARAM uint64_t n,
                                             WB_PARAM wb_table_scratch scratch, const void* rows, const wb_cache* cache) {
  warpbell::rows::scatter(table, indices, wide != 0, n, scratch).write(cache, rows);
}
WB_EXPORT(wb_table_scatter_write_pages)

WB_TABLE_KERNEL wb_table_scatter_complete(WB_PARAM wb_table_view table, const void* indices, WB_PARAM uint32_t wide, WB_PARAM uint64_t n,
                                          WB_PARAM wb_table_scratch scratch, const void* rows) {
  warpbell::rows::scatter(table, indices, wide != 0, n, scratch).complete(rows);
}
WB_EXPORT(wb_table_scatter_complete)

// Drops all rows of a row cache. Its own launch for each, the cache in host memory first: rows move from there to the other one.
WB_TABLE_KERNEL wb_table_drop(WB_PARAM wb_table_view table, WB_PARAM uint32_t tier) {
  using namespace warpbell;
  const rows::row_cache cache(table.cache[tier], table.row_bytes);
  if (!cache.exists()) return;
  for (uint64_t set = warp::thread_index(); set < cache.sets(); set += warp::thread_total()) cache.drop_set(static_cast<uint32_t>(set));
}
WB_EXPORT(wb_table_drop)
