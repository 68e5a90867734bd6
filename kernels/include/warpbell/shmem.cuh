// A world of PEs, one for each GPU (or CPU engine): put, get, signals, atomics, collectives. docs/shmem.md has the memory model.
#pragma once

#include <warpbell/peer_copy.cuh>
#include <warpbell/shmem/collective.cuh>
#include <warpbell/shmem/reduce.cuh>
#include <warpbell/shmem/scope.cuh>
#include <warpbell/shmem/team.cuh>
#include <warpbell/shmem/world.cuh>
