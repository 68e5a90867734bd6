// The image that ships with warpbell, as one translation unit for the CPU engine. Each part is a file of kernels, which nvcc compiles
// by itself: side by side, and in less time than all of them together.

#include "basic.cu"
#include "bench/array.cu"
#include "bench/nvme.cu"
#include "bench/post.cu"
#include "bench/queue.cu"
#include "bench/rdma.cu"
#include "bench/shmem.cu"
#include "bench/shmem_collective.cu"
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

#include "image.cu"
