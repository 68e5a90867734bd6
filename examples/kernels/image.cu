// The examples' kernels as one image, beside the shipped image.
#include <warpbell/kernel.h>

#include "array_sum.cu"
#include "async_read.cu"
#include "embedding.cu"
#include "first_kernel.cu"
#include "gups.cu"
#include "put_get.cu"
#include "raw_read.cu"
#include "remote_block.cu"
#include "stencil.cu"

WB_IMAGE(warpbell_examples_image)
