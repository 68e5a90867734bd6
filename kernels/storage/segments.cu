// Kernels of transfers between objects of a volume and segments of memory. Launch shape: any grid of whole warps, blocks of up to 128
// threads.
#include <warpbell/kernel.h>
#include <warpbell/segments.cuh>

// Reads objects into segments.
WB_KERNEL void __launch_bounds__(128) wb_segments_load(WB_PARAM wb_segment_job job) { warpbell::segments::transfer<false>(job).run(); }
WB_EXPORT(wb_segments_load)

// Writes objects from segments.
WB_KERNEL void __launch_bounds__(128) wb_segments_store(WB_PARAM wb_segment_job job) { warpbell::segments::transfer<true>(job).run(); }
WB_EXPORT(wb_segments_store)
