//! An mlx5 NIC whose queues kernels drive.
