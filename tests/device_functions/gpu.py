#!/usr/bin/env python3
"""Runs kernels of other compilers that use the flat device functions, on a GPU, against arrays on a software device.

    tests/device_functions/gpu.py LIBRARY FOLDER [triton] [numba] [nvjitlink]

LIBRARY is the C library (libwarpbell.so), FOLDER what `bindings/device/make` has written for this machine's GPU. Needs Python 3.10, torch,
and Triton 3.3, numba-cuda 0.30, or cuda.core 1.0 with NVRTC and nvJitLink. Without the last arguments all are run. The last line says how
many tests passed and failed.
"""

import ctypes
import pathlib
import sys
import traceback

import torch

ELEMENTS = 1 << 18
# Far less than the array: pages are read, evicted and read again.
CACHE_BYTES = 128 << 10
DRAWS = 4096
DEADLINE_S = 60.0


class WarpbellError(Exception):
    """A call of the C library that failed, with its text."""


class Library:
    """All that the tests need of the C library: an engine, arrays on software devices, and runs of foreign kernels."""

    U32 = 3  # WB_U32

    class EngineOptions(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_uint32), ("gpu", ctypes.c_uint32), ("threads", ctypes.c_uint32),
                    ("without_shipped", ctypes.c_uint32), ("images", ctypes.c_void_p), ("image_count", ctypes.c_size_t)]

    class CacheOptions(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("bytes", ctypes.c_uint64), ("page_bytes", ctypes.c_size_t)]

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.wb_last_error.restype = ctypes.c_char_p
        options = self.EngineOptions(size=ctypes.sizeof(self.EngineOptions), kind=2)  # WB_ENGINE_GPU
        self.engine = self.made("wb_engine_open", ctypes.byref(options))

    def call(self, function, *arguments):
        code = getattr(self.library, function)(*arguments)
        if code != 0:
            raise WarpbellError(f"{function}: {code}: {self.library.wb_last_error().decode()}")

    def made(self, function, *arguments):
        """Calls a function whose last argument receives a handle, and returns the handle."""
        handle = ctypes.c_void_p()
        self.call(function, *arguments, ctypes.byref(handle))
        return handle

    def store(self, name, values):
        """Stores a tensor of 32-bit integers on a volume of its own, and returns a handle of the array behind a small cache."""
        names = (ctypes.c_char_p * 1)(b"soft:mem")
        volume = self.made("wb_volume_create", self.engine, names, ctypes.c_size_t(1), ctypes.c_uint64(16 << 20), None)
        values = values.to("cpu", torch.int32).contiguous()
        data = ctypes.c_void_p(values.data_ptr())
        self.call("wb_volume_store", volume, name.encode(), ctypes.c_uint32(self.U32), data, ctypes.c_uint64(values.numel()), None)
        options = self.CacheOptions(size=ctypes.sizeof(self.CacheOptions), bytes=CACHE_BYTES, page_bytes=4096)
        cache = self.made("wb_cache_open", volume, ctypes.byref(options))
        return self.made("wb_array_open", cache, name.encode(), ctypes.c_uint32(self.U32))

    def view(self, array):
        """Returns the array's view, in a tensor of the GPU."""
        view = (ctypes.c_uint8 * 160)()  # wb_array_view
        self.call("wb_array_get_view", array, ctypes.byref(view))
        return torch.frombuffer(view, dtype=torch.uint8).cuda()

    def read(self, array, count):
        """Returns the first elements of the array, as the host reads them."""
        values = torch.empty(count, dtype=torch.int32)
        self.call("wb_array_read", array, ctypes.c_uint64(0), ctypes.c_size_t(count), ctypes.c_void_p(values.data_ptr()))
        return values

    def run(self, name, keep, launch):
        """Calls `launch`, which starts kernels on torch's current stream, and waits for them. Fails with their errors."""
        raw = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        stream = self.made("wb_stream_adopt", self.engine, raw, None, None)
        run = self.made("wb_run_begin", self.engine, name.encode(), stream)
        try:
            self.call("wb_run_keep", run, keep)
            launch()
            self.call("wb_run_finish", run, ctypes.c_double(DEADLINE_S), None)
        finally:
            self.library.wb_run_release(run)
            self.library.wb_stream_release(stream)


def numbers():
    return torch.arange(ELEMENTS, dtype=torch.int32) * 7 + 3


class WithTriton:
    """The kernels in Triton: programs of 256 threads."""

    name = "Triton"
    BLOCK = 1024
    # A kernel whose calls change something has one element in each thread: docs/device-functions.md has the reason.
    DRAW_BLOCK = 256

    def __init__(self, folder, arch):
        import triton_kernels

        self.kernels = triton_kernels
        self.libraries = {"warpbell": str(folder / f"libwarpbell_device_sm_{arch}.bc")}

    def load(self, view, out, count):
        grid = (-(-count // self.BLOCK),)
        self.kernels.load[grid](view.data_ptr(), out, count, self.BLOCK, num_warps=8, extern_libs=self.libraries)

    def draw(self, view, out, count):
        grid = (-(-count // self.DRAW_BLOCK),)
        self.kernels.draw[grid](view.data_ptr(), out, count, self.DRAW_BLOCK, num_warps=8, extern_libs=self.libraries)


class WithNumba:
    """The kernels in Numba."""

    name = "Numba"

    def __init__(self, folder, arch):
        import numpy

        # Numba-CUDA still names a function that NumPy 2.5 has no more.
        if not hasattr(numpy, "row_stack"):
            numpy.row_stack = numpy.vstack
        from numba import cuda

        link = str(folder / f"libwarpbell_device_sm_{arch}.cubin")
        load = cuda.declare_device("wbd_array_load_u32_warp", "uint32(uint64, uint64, uint32)", link=link, abi="c")
        draw = cuda.declare_device("wbd_array_atomic_add_u32_warp", "uint32(uint64, uint64, uint32, uint32)", link=link, abi="c")

        # Every lane makes the call: those behind the end only help.
        @cuda.jit
        def load_kernel(view, out, count):
            i = cuda.grid(1)
            value = load(view, i, i < count)
            if i < count:
                out[i] = value

        @cuda.jit
        def draw_kernel(view, out, count):
            i = cuda.grid(1)
            value = draw(view, 0, 1, i < count)
            if i < count:
                out[i] = value

        self.cuda, self.load_kernel, self.draw_kernel = cuda, load_kernel, draw_kernel

    def launch(self, kernel, view, out, count):
        stream = self.cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        kernel[-(-count // 256), 256, stream](view.data_ptr(), self.cuda.as_cuda_array(out), count)

    def load(self, view, out, count):
        self.launch(self.load_kernel, view, out, count)

    def draw(self, view, out, count):
        self.launch(self.draw_kernel, view, out, count)


class WithNvJitLink:
    """The kernels in C++ for NVRTC, which sees none of warpbell's headers."""

    name = "nvJitLink"
    SOURCE = """
extern "C" __device__ unsigned wbd_array_load_u32_warp(unsigned long long view, unsigned long long index, unsigned wanted);
extern "C" __device__ unsigned wbd_array_atomic_add_u32_warp(unsigned long long view, unsigned long long index, unsigned value, unsigned wanted);
extern "C" __global__ void load(unsigned long long view, unsigned* out, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, value = wbd_array_load_u32_warp(view, i, i < count);
  if (i < count) out[i] = value;
}
extern "C" __global__ void draw(unsigned long long view, unsigned* out, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, value = wbd_array_atomic_add_u32_warp(view, 0, 1, i < count);
  if (i < count) out[i] = value;
}
"""

    class Stream:
        """Torch's current stream, for cuda.core."""

        def __cuda_stream__(self):
            return 0, torch.cuda.current_stream().cuda_stream

    def __init__(self, folder, arch):
        from cuda import core

        core.Device().set_current()
        options = core.ProgramOptions(arch=f"sm_{arch}", relocatable_device_code=True)
        kernels = core.Program(self.SOURCE, "c++", options).compile("ptx")
        library = core.ObjectCode.from_cubin(str(folder / f"libwarpbell_device_sm_{arch}.cubin"))
        self.linked = core.Linker(kernels, library, options=core.LinkerOptions(arch=f"sm_{arch}")).link("cubin")
        self.core = core

    def launch(self, kernel, view, out, count):
        shape = self.core.LaunchConfig(grid=-(-count // 256), block=256)
        self.core.launch(self.Stream(), shape, self.linked.get_kernel(kernel), view.data_ptr(), out.data_ptr(), ctypes.c_uint32(count))

    def load(self, view, out, count):
        self.launch("load", view, out, count)

    def draw(self, view, out, count):
        self.launch("draw", view, out, count)


def loads_every_element(library, kernels):
    array = library.store("numbers", numbers())
    view, out = library.view(array), torch.zeros(ELEMENTS, dtype=torch.int32, device="cuda")
    # A number that no block divides: the last lanes only help.
    count = ELEMENTS - 77
    library.run("loads", array, lambda: kernels.load(view, out, count))
    assert torch.equal(out[:count].cpu(), numbers()[:count]), "an element is not what was stored"
    assert not out[count:].any(), "an element beyond the count was written"


def draws_each_number_once(library, kernels):
    array = library.store("counters", torch.zeros(64, dtype=torch.int32))
    view, out = library.view(array), torch.zeros(DRAWS, dtype=torch.int32, device="cuda")
    library.run("draws", array, lambda: kernels.draw(view, out, DRAWS))
    assert torch.equal(out.sort().values.cpu(), torch.arange(DRAWS, dtype=torch.int32)), "not each number was drawn once"
    left = library.read(array, 2).tolist()
    assert left == [DRAWS, 0], f"the counters are {left} after {DRAWS} draws of the first"


def reports_an_index_beyond_the_end(library, kernels):
    array = library.store("few", torch.zeros(256, dtype=torch.int32))
    view, out = library.view(array), torch.zeros(512, dtype=torch.int32, device="cuda")
    try:
        library.run("beyond", array, lambda: kernels.load(view, out, 512))
    except WarpbellError as e:
        print(f"  {e}")
        assert "bad argument" in str(e), "the error does not name its cause"
    else:
        raise AssertionError("the run did not fail")
    # Elements before the end are poison, too, where a thread still waited for them.
    assert (out[256:] == -1).all(), "elements beyond the end are not poison"
    # The next run is not affected.
    library.run("within", array, lambda: kernels.load(view, out, 256))


TESTS = (loads_every_element, draws_each_number_once, reports_an_index_beyond_the_end)


def main(library, folder, *names):
    folder = pathlib.Path(folder).resolve()
    library = Library(library)
    major, minor = torch.cuda.get_device_capability()
    passed = failed = 0
    for kind in (WithTriton, WithNumba, WithNvJitLink):
        if names and kind.name.lower() not in names:
            continue
        for test in TESTS:
            print(f"{kind.name}: {test.__name__}", flush=True)
            try:
                test(library, kind(folder, 10 * major + minor))
                passed += 1
            except Exception:  # noqa: BLE001: the next test runs whatever this one has met
                traceback.print_exc()
                failed += 1
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
