// Definitions of images (wb_image of warpbell.h), for the kernels of a program. warpbell_add_image of the CMake package writes them; a
// program that is built otherwise has one of these lines in one source file, in C or C++:
//
//   WB_DEFINE_IMAGE(my_image, my_kernels)                              kernels for CPU threads
//   WB_DEFINE_IMAGE_WITH_FILE(my_image, my_kernels, "my.fatbin")       and for GPUs
//   WB_DEFINE_IMAGE_WITH_FILE(my_image, WB_NO_CPU_IMAGE, "my.fatbin")  for GPUs alone
//
// `my_kernels` is the name that WB_IMAGE has in the kernels' source, which the C++ compiler compiled for CPU threads. The file is what nvcc
// made of the same source by --fatbin or --cubin. It becomes part of the program; the assembler looks for it in the folders of -I.
#pragma once

#include <warpbell.h>

#ifdef __cplusplus
#define WB_IMAGE_C extern "C"
#else
#define WB_IMAGE_C extern
#endif

/// @brief Declares the image `NAME`, which another file defines.
#define WB_DECLARE_IMAGE(NAME) WB_IMAGE_C const wb_image NAME;

/// @brief Stands for kernels for CPU threads that an image does not have. No `WB_IMAGE` defines it.
#define WB_NO_CPU_IMAGE wb_no_cpu_image

#ifdef __cplusplus
#define WB_IMAGE_DEFINITION(NAME) \
  extern "C" {                    \
  extern const wb_image NAME;     \
  }                               \
  const wb_image NAME
#else
#define WB_IMAGE_DEFINITION(NAME) \
  extern const wb_image NAME;     \
  const wb_image NAME
#endif

// A function that nothing defines and that is weak has the address null.
WB_IMAGE_C __attribute__((weak)) const void* wb_no_cpu_image(void);

/// @brief Defines the image `NAME` with the kernels for CPU threads of `WB_IMAGE(CPU)`.
#define WB_DEFINE_IMAGE(NAME, CPU)  \
  WB_IMAGE_C const void* CPU(void); \
  WB_IMAGE_DEFINITION(NAME) = {sizeof(wb_image), #NAME, CPU, 0, 0, 0};

/// @brief Defines the image `NAME` with the kernels for CPU threads of `WB_IMAGE(CPU)`, and for GPUs of a file.
#define WB_DEFINE_IMAGE_WITH_FILE(NAME, CPU, FILE)                                  \
  __asm__(                                                                          \
      ".pushsection .rodata\n"                                                      \
      ".balign 64\n"                                                                \
      ".globl " #NAME "_gpu_begin\n.hidden " #NAME "_gpu_begin\n" #NAME             \
      "_gpu_begin:\n"                                                               \
      ".incbin \"" FILE                                                             \
      "\"\n"                                                                        \
      ".globl " #NAME "_gpu_end\n.hidden " #NAME "_gpu_end\n" #NAME                 \
      "_gpu_end:\n"                                                                 \
      ".balign 8\n"                                                                 \
      ".globl " #NAME "_gpu_bytes\n.hidden " #NAME "_gpu_bytes\n" #NAME             \
      "_gpu_bytes:\n"                                                               \
      ".quad " #NAME "_gpu_end - " #NAME                                            \
      "_gpu_begin\n"                                                                \
      ".popsection\n");                                                             \
  WB_IMAGE_C __attribute__((visibility("hidden"))) const char NAME##_gpu_begin[];   \
  WB_IMAGE_C __attribute__((visibility("hidden"))) const size_t NAME##_gpu_bytes[]; \
  static const void* const NAME##_gpu_parts[] = {NAME##_gpu_begin};                 \
  WB_IMAGE_C const void* CPU(void);                                                 \
  WB_IMAGE_DEFINITION(NAME) = {sizeof(wb_image), #NAME, CPU, NAME##_gpu_parts, NAME##_gpu_bytes, 1};
