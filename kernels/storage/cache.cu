// Kernels of the host's cache calls, as part of the shipped image.
#include <warpbell/cache_kernels.cuh>
