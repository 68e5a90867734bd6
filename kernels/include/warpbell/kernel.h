// Macros that declare kernels and export them to the host: a kernel is a function with plain parameters.
//
//   WB_KERNEL void scale(WB_PARAM warpbell::array_ref<float> a, WB_PARAM float by) { ... }
//   WB_EXPORT(scale)
//
// WB_IMAGE goes once into the translation unit that includes all kernels of an image.
//
// Kernels must be correct for any grid: stride over the work with warp::index() and warp::total(). A CPU has few threads.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/platform.h>
#include <warpbell/warp.cuh>

// Flags of this image, as the host reads them (WB_IMAGE_CHECKED).
#if defined(WB_CHECKED) && WB_CHECKED
#define WB_IMAGE_FLAGS WB_IMAGE_CHECKED
#else
#define WB_IMAGE_FLAGS 0u
#endif

#if WB_GPU
/// @brief Declares a kernel. Use: `WB_KERNEL void name(parameters) { ... }`.
#define WB_KERNEL extern "C" __global__
/// @brief Exports the kernel `NAME` to the host. On a GPU the linkage of WB_KERNEL does that already.
#define WB_EXPORT(NAME)
/// @brief Defines the kernel `wb_abi_fingerprint`, from which the host reads fingerprint and flags of the image. Launch shape: one
/// thread.
///
/// @note This is a kernel, not a variable: in whole-program mode nvcc gives variables no linkage that a host could rely on.
#define WB_IMAGE(SYMBOL)                                            \
  namespace warpbell {                                              \
  namespace abi {                                                   \
  constexpr uint64_t of_this_image = fingerprint();                 \
  }                                                                 \
  }                                                                 \
  extern "C" __global__ void wb_abi_fingerprint(uint64_t* answer) { \
    answer[0] = ::warpbell::abi::of_this_image;                     \
    answer[1] = WB_IMAGE_FLAGS;                                     \
  }
#else
#include <cstddef>
#include <utility>

#include "cpu/block.h"
#include "cpu/cuda.h"

namespace warpbell {
namespace cpu {

// An exported kernel: `call` unpacks CUDA's array of parameter addresses.
struct kernel_entry {
  const char* name;
  void (*call)(void* const* parameters);
  uint32_t parameter_count;
  const uint32_t* parameter_bytes;
  kernel_entry* next;
};

namespace {
// Returns the head of this image's list. Each translation unit has one list, and its static initialisers fill the list.
inline kernel_entry*& kernel_list() {
  static kernel_entry* head = nullptr;
  return head;
}
}  // namespace

// Calls the kernel `F` with parameters from CUDA's array of their addresses. `bytes` has the size of each parameter.
template <auto F> struct caller;
template <class... P, void (*F)(P...)> struct caller<F> {
  static constexpr uint32_t count = sizeof...(P);
  static constexpr uint32_t bytes[sizeof...(P) + 1] = {sizeof(std::remove_cv_t<P>)..., 0};
  template <size_t... I> static void unpack(void* const* p, std::index_sequence<I...>) { F(*static_cast<std::remove_cv_t<P>*>(p[I])...); }
  static void call(void* const* p) { unpack(p, std::index_sequence_for<P...>{}); }
};

namespace {
// Adds an entry to the list of this image. WB_EXPORT makes a static object of this type for each kernel.
struct enroll {
  explicit enroll(kernel_entry* e) {
    e->next = kernel_list();
    kernel_list() = e;
  }
};
}  // namespace

// The description of an image that the host reads. host/engine/cpu.rs has the matching Rust structure.
struct image {
  uint64_t fingerprint;
  const kernel_entry* kernels;
  void (*run_block)(void (*call)(void* const*), void* const* parameters, uint32_t block, uint32_t blocks, uint32_t threads);
  uint32_t warp_width;
  uint32_t flags;  // WB_IMAGE_CHECKED
  void (*set_assist)(assist_function);
};

}  // namespace cpu
}  // namespace warpbell

/// @brief Declares a kernel. Use: `WB_KERNEL void name(parameters) { ... }`.
///
/// Kernels have internal linkage, because the table names them. A program may hold several images with kernels of equal names.
#define WB_KERNEL static
/// @brief Defines the function `SYMBOL`, which returns the description of this image to the host.
#define WB_IMAGE(SYMBOL)                                                     \
  extern "C" const ::warpbell::cpu::image* SYMBOL() {                        \
    static const ::warpbell::cpu::image i = {::warpbell::abi::fingerprint(), \
                                             ::warpbell::cpu::kernel_list(), \
                                             &::warpbell::cpu::run_block,    \
                                             ::warpbell::warp::width,        \
                                             WB_IMAGE_FLAGS,                 \
                                             &::warpbell::cpu::set_assist};  \
    return &i;                                                               \
  }
/// @brief Enters the kernel `NAME` in the table of this image.
#define WB_EXPORT(NAME)                                                                                                                 \
  static ::warpbell::cpu::kernel_entry wb_entry_##NAME = {#NAME, &::warpbell::cpu::caller<&NAME>::call,                                 \
                                                          ::warpbell::cpu::caller<&NAME>::count, ::warpbell::cpu::caller<&NAME>::bytes, \
                                                          nullptr};                                                                     \
  static ::warpbell::cpu::enroll wb_enroll_##NAME(&wb_entry_##NAME);
#endif
