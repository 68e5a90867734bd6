// The image that ships with warpbell: one translation unit, compiled by nvcc to a fat binary and by the C++ compiler for the
// CPU engine. Each part is a file of kernels.
#include <warpbell/kernel.h>

#include "basic.cu"
#include "bench/array.cu"
#include "bench/nvme.cu"
#include "bench/queue.cu"
#include "bench/shmem.cu"
#include "cache.cu"
#include "graph/bfs.cu"
#include "graph/components.cu"
#include "graph/pagerank.cu"
#include "graph/partitioned.cu"
#include "graph/queue.cu"
#include "graph/sssp.cu"
#include "shmem/basic.cu"
#include "shmem/collective.cu"
#include "shmem/host.cu"

WB_IMAGE(warpbell_image)
