// The image of shmem_calls.cu and window_calls.cu.
#include "shmem_calls.cu"
#include "window_calls.cu"

WB_IMAGE(warpbell_shmem_calls)
