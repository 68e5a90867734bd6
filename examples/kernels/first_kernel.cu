// First kernel: y = a * x + y, element by element. Launch shape: any grid.
#include <warpbell/kernel.h>

WB_KERNEL void saxpy(WB_PARAM float a, const float* x, float* y, WB_PARAM uint64_t n) {
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) y[i] = a * x[i] + y[i];
}
WB_EXPORT(saxpy)
