// How a kernel is made known to the host: write it as a function with plain parameters, then export it.
//
//   WB_KERNEL void scale(WB_PARAM warpbell::array_ref<float> a, WB_PARAM float by) { ... }
//   WB_EXPORT(scale)
//
// WB_IMAGE goes once into the translation unit that all kernels of an image are compiled in.
//
// Kernels must be correct for any grid: stride over the work with warp::index() and warp::total(). A CPU has few threads.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/platform.h>
#include <warpbell/warp.cuh>

#if defined(WB_CHECKED) && WB_CHECKED
#define WB_IMAGE_FLAGS WB_IMAGE_CHECKED
#else
#define WB_IMAGE_FLAGS 0u
#endif

#if WB_GPU
#define WB_KERNEL extern "C" __global__
#define WB_EXPORT(NAME)
// A kernel and not a variable: nvcc gives variables of a whole program no linkage that a host could count on.
#define WB_IMAGE(SYMBOL)                                                            \
  namespace warpbell {                                                              \
  namespace abi {                                                                   \
  constexpr uint64_t of_this_image = fingerprint();                                 \
  }                                                                                 \
  }                                                                                 \
  extern "C" __global__ void wb_abi_fingerprint(uint64_t* answer) {                 \
    answer[0] = ::warpbell::abi::of_this_image;                                     \
    answer[1] = WB_IMAGE_FLAGS;                                                     \
  }
#else
#include <cstddef>
#include <utility>

#include "../../cpu/block.h"

namespace warpbell {
namespace cpu {

// One exported kernel: `call` unpacks CUDA's array of parameter addresses.
struct kernel_entry {
  const char* name;
  void (*call)(void* const* parameters);
  uint32_t parameter_count;
  const uint32_t* parameter_bytes;
  kernel_entry* next;
};

namespace {
// Head of this image's list: one for each translation unit, filled by its static initialisers.
inline kernel_entry*& kernel_list() {
  static kernel_entry* head = nullptr;
  return head;
}
}  // namespace

template <auto F> struct caller;
template <class... P, void (*F)(P...)> struct caller<F> {
  static constexpr uint32_t count = sizeof...(P);
  static constexpr uint32_t bytes[sizeof...(P) + 1] = {sizeof(std::remove_cv_t<P>)..., 0};
  template <size_t... I> static void unpack(void* const* p, std::index_sequence<I...>) {
    F(*static_cast<std::remove_cv_t<P>*>(p[I])...);
  }
  static void call(void* const* p) { unpack(p, std::index_sequence_for<P...>{}); }
};

namespace {
struct enroll {
  explicit enroll(kernel_entry* e) {
    e->next = kernel_list();
    kernel_list() = e;
  }
};
}  // namespace

// What the host gets from an image: see host/engine/cpu.rs, which mirrors it.
struct image {
  uint64_t fingerprint;
  const kernel_entry* kernels;
  void (*run_block)(void (*call)(void* const*), void* const* parameters, uint32_t block, uint32_t blocks, uint32_t threads);
  uint32_t warp_width;
  uint32_t flags;  // WB_IMAGE_CHECKED
};

}  // namespace cpu
}  // namespace warpbell

// The table names a kernel, the linker need not: a program may hold several images with kernels of the same name.
#define WB_KERNEL static
#define WB_IMAGE(SYMBOL)                                                                                    \
  extern "C" const ::warpbell::cpu::image* SYMBOL() {                                                       \
    static const ::warpbell::cpu::image i = {::warpbell::abi::fingerprint(), ::warpbell::cpu::kernel_list(), \
                                             &::warpbell::cpu::run_block, ::warpbell::warp::width,           \
                                             WB_IMAGE_FLAGS};                                                \
    return &i;                                                                                              \
  }
#define WB_EXPORT(NAME)                                                                                              \
  static ::warpbell::cpu::kernel_entry wb_entry_##NAME = {#NAME, &::warpbell::cpu::caller<&NAME>::call,              \
                                                          ::warpbell::cpu::caller<&NAME>::count,                      \
                                                          ::warpbell::cpu::caller<&NAME>::bytes, nullptr};            \
  static ::warpbell::cpu::enroll wb_enroll_##NAME(&wb_entry_##NAME);
#endif
