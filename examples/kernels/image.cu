// The examples' kernels as one image, which replaces the shipped image in a program with its own kernels.
#include <warpbell/cache_kernels.cuh>
#include <warpbell/kernel.h>

#include "array_sum.cu"
#include "async_read.cu"
#include "first_kernel.cu"
#include "gups.cu"
#include "put_get.cu"
#include "raw_read.cu"
#include "stencil.cu"

WB_IMAGE(warpbell_examples_image)
