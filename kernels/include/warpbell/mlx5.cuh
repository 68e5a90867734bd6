// RDMA part of the device library: `#include <warpbell/mlx5.cuh>` and use warpbell::mlx5::send_queue_ref.
//
// The layouts are those of mlx5 adapters. The proxies for other adapters and the software NIC read rings of the same layout.
#pragma once

#include <warpbell/mlx5/cqe.cuh>
#include <warpbell/mlx5/endian.cuh>
#include <warpbell/mlx5/post.cuh>
#include <warpbell/mlx5/queue.cuh>
#include <warpbell/mlx5/send_ring.cuh>
#include <warpbell/mlx5/wqe.cuh>
