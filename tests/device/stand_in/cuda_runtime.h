// Names that CUDA's <cuda_runtime.h> gives to a host file, for machines without CUDA: the built-in vector types and the keywords of the
// CUDA C++ Programming Guide (sections "Built-in Vector Types", "Function Execution Space Specifiers", "Launch Bounds").
#pragma once

// Marks the vector types as defined, as CUDA's vector_types.h does.
#define __VECTOR_TYPES_H__

#define __global__
#define __device__
#define __host__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

struct uint3 {
  unsigned int x, y, z;
};

struct alignas(16) float4 {
  float x, y, z, w;
};

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
