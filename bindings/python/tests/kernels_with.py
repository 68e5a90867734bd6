"""Kernels of other compilers that load elements of an array: for ``test_kernels.py``. Each class is one way, with what it needs."""

import ctypes

import numpy as np
import warpbell

THREADS = 256


def blocks(count):
    return -(-count // THREADS)


class Nvrtc:
    """C++ with warpbell's headers, compiled by NVRTC and launched by cuda.core."""

    needs = ("cuda.core",)
    SOURCE = """
#include <warpbell/array.cuh>
#include <warpbell/table.cuh>

extern "C" __global__ void load(const wb_array_view* view, const unsigned long long* indices, unsigned* out, unsigned count) {
  const warpbell::array_ref<uint32_t> numbers(*view);
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = numbers.load(indices[i]);
}

extern "C" __global__ void rows(const wb_table_view* view, const wb_table_scratch* scratch, const unsigned long long* indices, void* out,
                                unsigned count) {
  const warpbell::table_ref table(*view);
  table.gather_grid(indices, count, out, *scratch);
}
"""

    @classmethod
    def compile(cls, arch):
        """Compiles the kernels: no GPU is needed."""
        from cuda.core import Program, ProgramOptions

        options = ProgramOptions(arch=f"sm_{arch}", std="c++17", include_path=[warpbell.get_include()])
        return Program(cls.SOURCE, "c++", options).compile("cubin")

    def __init__(self, arch):
        from cuda import core

        core.Device().set_current()
        self.core, self.module = core, self.compile(arch)

    def launch(self, name, stream, count, *arguments):
        shape = self.core.LaunchConfig(grid=blocks(count), block=THREADS)
        self.core.launch(stream, shape, self.module.get_kernel(name), *arguments, ctypes.c_uint32(count))

    def load(self, stream, view, indices, out, count):
        self.launch("load", stream, count, view.address, indices.data_ptr(), out.data_ptr())


class NvJitLink(Nvrtc):
    """C++ without warpbell's headers, linked with the flat device functions."""

    SOURCE = """
extern "C" __device__ unsigned wbd_array_load_u32(unsigned long long view, unsigned long long index);
extern "C" __global__ void load(unsigned long long view, const unsigned long long* indices, unsigned* out, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = wbd_array_load_u32(view, indices[i]);
}
"""

    @classmethod
    def compile(cls, arch):
        from cuda.core import Linker, LinkerOptions, ObjectCode, Program, ProgramOptions

        kernels = Program(cls.SOURCE, "c++", ProgramOptions(arch=f"sm_{arch}", relocatable_device_code=True)).compile("cubin")
        library = ObjectCode.from_cubin(warpbell.get_device_library("cubin", arch))
        return Linker(kernels, library, options=LinkerOptions(arch=f"sm_{arch}")).link("cubin")


class Cupy:
    """C++ with warpbell's headers, compiled and launched by cupy."""

    needs = ("cupy",)

    def __init__(self, arch):
        import cupy

        options = ("-std=c++17", f"-I{warpbell.get_include()}")
        self.cupy, self.kernel = cupy, cupy.RawModule(code=Nvrtc.SOURCE, options=options).get_function("load")

    def load(self, stream, view, indices, out, count):
        with self.cupy.cuda.ExternalStream(stream.handle):
            # Plain integers are 64 bits wide: addresses.
            self.kernel((blocks(count),), (THREADS,), (view.address, indices.data_ptr(), out.data_ptr(), np.uint32(count)))


class Numba:
    needs = ("numba.cuda",)

    def __init__(self, arch):
        # Numba-CUDA still names a function that NumPy 2.5 has no more.
        if not hasattr(np, "row_stack"):
            np.row_stack = np.vstack
        from numba import cuda
        from warpbell.numba import function

        load = function("wbd_array_load_u32")

        @cuda.jit
        def kernel(view, indices, out, count):
            i = cuda.grid(1)
            if i < count:
                out[i] = load(view, indices[i])

        self.cuda, self.kernel = cuda, kernel

    def load(self, stream, view, indices, out, count):
        arrays = (self.cuda.as_cuda_array(array, sync=False) for array in (indices, out))
        self.kernel[blocks(count), THREADS, self.cuda.external_stream(stream.handle)](view.address, *arrays, count)


class Triton:
    needs = ("triton",)
    BLOCK = 1024

    def __init__(self, arch):
        import triton_load
        from warpbell.triton import libraries

        self.kernel, self.libraries = triton_load.load, libraries()

    def load(self, stream, view, indices, out, count):
        import torch

        with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
            grid = (-(-count // self.BLOCK),)
            self.kernel[grid](view.address, indices, out, count, self.BLOCK, num_warps=8, extern_libs=self.libraries)

    @classmethod
    def compile(cls, arch):
        """Compiles the kernel: no GPU is needed."""
        import triton
        import triton_load
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from warpbell.triton import libraries

        types = {"view": "u64", "indices": "*i64", "out": "*i32", "count": "i32", "BLOCK": "constexpr"}
        source = ASTSource(triton_load.load, types, constexprs={"BLOCK": cls.BLOCK})
        options = {"extern_libs": libraries(arch), "num_warps": 8}
        return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


ALL = (Nvrtc, NvJitLink, Cupy, Numba, Triton)
