// Kernels of the host's tables. Launch shape: any grid of whole warps, blocks of up to 128 threads.
#include <warpbell/kernel.h>
#include <warpbell/table.cuh>

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
