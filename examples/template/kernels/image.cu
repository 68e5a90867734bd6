// All kernels of this program: one image for CPU threads, and one for GPUs.
#include <warpbell/cache_kernels.cuh>
#include <warpbell/kernel.h>

#include "ring.cu"
#include "sum.cu"

WB_IMAGE(my_image)
