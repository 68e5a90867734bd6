// The parts of the standard library that device headers use: integers of fixed width and `offsetof`, also in C. `traits.h` has traits of types.
//
// NVRTC sees no headers of the host, so that the names are defined here. The types are those of CCCL's <cuda/std/cstdint>: a kernel may
// include both.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <stddef.h>
#include <stdint.h>
// WB_CONSTANT_FN: a function that the compiler evaluates, of C++ alone. NVRTC takes no functions of the host.
#define WB_CONSTANT_FN constexpr
#else
#define WB_CONSTANT_FN __device__ constexpr
typedef signed char int8_t;
typedef signed short int16_t;
typedef signed int int32_t;
typedef signed long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;
#ifndef offsetof
// A constant expression of NVRTC's front end: NVRTC 13.0 has no `__builtin_offsetof`.
#define offsetof(TYPE, MEMBER) static_cast<size_t>(__INTADDR__(&((TYPE*)0)->MEMBER))
#endif
#endif
