"""Kernels of other libraries: runs around them, views, and device functions for their compilers."""

import gc
import importlib
import pathlib
import threading

import kernels_with
import numpy as np
import pytest
import warpbell
from conftest import MIB, open_engine

COUNT = 1 << 16
NUMBERS = np.arange(COUNT, dtype=np.uint32) * 7 + 3
#: Generation of GPUs for tests that only compile.
ARCH = 90


def array_of(engine, name="numbers", device="soft:mem", **options):
    """Stores numbers, and opens them behind a cache that holds an eighth of them."""
    volume = warpbell.Volume.create(engine, device, 8 * MIB, **options)
    volume.store(name, NUMBERS)
    return warpbell.Cache(volume, 32 << 10, page_bytes=4096).open(name)


@pytest.fixture
def numbers(engine):
    return array_of(engine)


def need(*modules):
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            pytest.skip(f"needs {module}: {error}")


def need_library(form, arch):
    try:
        return warpbell.get_device_library(form, arch)
    except warpbell.UnsupportedError as error:
        pytest.skip(str(error))


# --- runs, on any engine ---


def test_a_run_has_a_stream_and_a_time(engine, numbers, table):
    with engine.external("nothing", keep=[numbers, table, table.volume]) as run:
        assert run.elapsed is None and repr(run) == "ExternalRun(in flight)"
        assert isinstance(run.stream, warpbell.Stream)
        run.keep(numbers.device_view(), table.device_view())
    assert run.elapsed >= 0 and repr(run) == "ExternalRun(finished)"
    with pytest.raises(warpbell.InvalidError, match="begin another one"):
        run.finish()
    with pytest.raises(warpbell.InvalidError, match="begin another one"):
        run.keep(numbers)
    stream = engine.stream()
    assert engine.external("nothing", stream, timeout=30).finish() >= 0


def test_a_run_keeps_objects_of_warpbell_only(engine, numbers):
    with pytest.raises(TypeError, match="not int"):
        engine.external("nothing", keep=[numbers, 7])
    with pytest.raises(warpbell.InvalidError, match="timeout is 0"):
        engine.external("nothing", timeout=0)
    run = engine.external("nothing")
    with pytest.raises(TypeError, match="not str"):
        run.keep("numbers")
    run.finish()


def test_an_exception_in_the_block_ends_the_run(engine, numbers):
    with pytest.raises(RuntimeError, match="of the program"):
        with engine.external("nothing", keep=[numbers]) as run:
            raise RuntimeError("of the program")
    assert repr(run) == "ExternalRun(finished)" and run.elapsed is None
    assert numbers[5] == NUMBERS[5]


def test_other_calls_work_within_a_run(engine, numbers, table, vectors):
    with engine.external("calls", keep=[numbers]) as run:
        assert numbers[9] == NUMBERS[9]
        np.testing.assert_array_equal(table.gather([3, 1], stream=run.stream).numpy(), vectors[[3, 1]])
    del run
    # A run that is dropped without an end.
    engine.external("dropped", keep=[numbers])
    gc.collect()
    assert numbers[9] == NUMBERS[9]


def test_a_run_on_an_engine_that_was_stopped_ends():
    engine = open_engine()
    numbers = array_of(engine)
    run = engine.external("nothing", keep=[numbers])
    thread = threading.Thread(target=engine.cancel)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    try:
        run.finish(30)
    except warpbell.CancelledError:
        pass
    # The engine works again.
    assert numbers[5] == NUMBERS[5]


def test_a_stream_of_another_engine_is_refused(engine):
    with pytest.raises(warpbell.Error, match="engine"):
        engine.external("nothing", open_engine().stream())


def test_views_have_the_bytes_of_their_structures(engine, numbers, table):
    scratch = table.scratch(100, in_flight=16)
    for thing, size in ((numbers, 160), (table, 152), (table.volume, 8), (scratch, 40)):
        view = thing.device_view()
        assert view.nbytes == size == len(thing.view()) and view.address % 8 == 0 and view.owner is thing
        assert hex(view.address) in repr(view)
        if engine.kind == "cpu":
            import ctypes

            assert ctypes.string_at(view.address, size) == thing.view()
    scratch.begin()
    with engine.external("nothing", keep=[scratch]):
        pass


def test_arrays_become_memory_for_blocks(engine, volume, memory):
    array = memory.of(np.zeros(1024, np.int32))
    address = array.ctypes.data if engine.kind == "cpu" else array.data_ptr()
    buffer = volume.map(array)
    assert (buffer.address, buffer.nbytes) == (address, 4096) and hex(address) in repr(buffer)
    # The run is the last owner of the buffer, and that of the array.
    with engine.external("nothing", keep=[buffer]):
        del buffer, array
        gc.collect()
    for bad, text in ((memory.of(np.zeros((4, 4)))[:, 0], "C-contiguous"), (memory.of(np.zeros(0)), "no elements")):
        with pytest.raises(warpbell.InvalidError, match=text):
            volume.map(bad)
    with pytest.raises(TypeError, match="list is no array"):
        volume.map([1, 2])
    if engine.kind == "cpu":
        with pytest.raises(warpbell.InvalidError, match="read-only"):
            volume.map(np.frombuffer(bytes(4096)))
    # Each volume has 16, and a buffer that is gone makes room. Where data lands in memory of the volume none are taken.
    buffers = []
    try:
        for _ in range(17):
            buffers.append(volume.map(memory.of(np.zeros(1024, np.int32))))
    except warpbell.InvalidError as error:
        assert len(buffers) <= 16 and "16" in str(error), error
        del buffers[0]
        buffers.append(volume.map(memory.of(np.zeros(1024, np.int32))))


def test_calls_of_worlds_in_a_run_have_the_errors_of_worlds():
    engine = open_engine(deadline=0.2)
    with warpbell.World.single(engine, heap_bytes=MIB) as world:
        arrived, stream = world.zeros(1, "uint64"), engine.stream()
        run = engine.external("own", stream, keep=[world.team])
        world.signal_wait(arrived, 1, stream=stream)
        with pytest.raises(warpbell.WorldTimeoutError, match="wait_until on PE 0") as caught:
            run.finish(30)
        error = caught.value
        assert (error.fault, error.device, error.operations[0].device) == ("timed out", None, "PE 0") and "deadline" in error.remedy
        world.signal_wait(arrived, 1, stream=stream)
        with pytest.raises(warpbell.WorldTimeoutError, match="wait_until on PE 0"):
            stream.synchronize(30)


# --- what the package has for compilers ---


def test_device_functions_are_found_by_generation(engine):
    with pytest.raises(warpbell.InvalidError, match="cubin or bitcode"):
        warpbell.get_device_library("ptx", 90)
    for bad in ("hopper", 9.0, None, (9,)):
        with pytest.raises(warpbell.InvalidError, match="generation"):
            warpbell.get_device_library("cubin", bad)
    if engine.kind == "cpu":
        with pytest.raises(warpbell.UnsupportedError, match="CPU threads"):
            warpbell.get_device_library("cubin", engine)
    with pytest.raises(warpbell.UnsupportedError):
        warpbell.get_device_library("cubin", 70)
    path = pathlib.Path(need_library("cubin", "sm_90"))
    assert path.is_file() and path == pathlib.Path(warpbell.get_device_library("cubin", (9, 0)))
    assert "wbd_array_load_u32" in warpbell.device_functions()
    from warpbell import _device

    with pytest.raises(warpbell.NotFoundError, match="wbd_nothing"):
        _device.signature("wbd_nothing", 0)
    assert _device.signature("wbd_array_load_f64", 1) == ("float64", ["uint64", "uint64"])


def test_the_description_of_device_functions_is_in_the_package():
    folder = pathlib.Path(warpbell.__file__).parent / "device"
    if not folder.is_dir():
        pytest.skip("an editable installation")
    assert "wbd_array_load_u32" in (folder / "warpbell_device.h").read_text()


def test_headers_compile_under_nvrtc():
    need("cuda.core")
    from cuda.core import Program, ProgramOptions

    assert len(kernels_with.Nvrtc.compile(ARCH).code) > 10_000
    include = pathlib.Path(warpbell.get_include())
    parts = {"warpbell/abi_fields.h", "warpbell/order/bulk.cuh", "warpbell/order/cpu.cuh", "warpbell/order/gpu.cuh"}
    files = [p for p in sorted(include.rglob("*")) if p.is_file() and p.parent.name != "cpu"]
    headers = [p.relative_to(include) for p in files if p.relative_to(include).as_posix() not in parts]
    assert len(headers) > 40
    for header in headers:
        options = ProgramOptions(arch=f"sm_{ARCH}", std="c++17", include_path=[str(include)])
        Program(f"#include <{header}>\n", "c++", options).compile("cubin")


def test_flat_functions_are_linked_with_kernels_of_nvrtc():
    need("cuda.core")
    need_library("cubin", ARCH)
    assert len(kernels_with.NvJitLink.compile(ARCH).code) > 10_000


def test_flat_functions_compile_with_triton():
    need("triton")
    need_library("bitcode", ARCH)
    made = kernels_with.Triton.compile(ARCH)
    assert len(made.asm["cubin"]) > 10_000


# --- kernels on a GPU ---


@pytest.fixture
def torch(engine):
    if engine.kind != "gpu":
        pytest.skip("needs a GPU")
    return pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(params=kernels_with.ALL, ids=lambda kind: kind.__name__)
def kernels(request, torch):
    """The kernels of each compiler that is there."""
    need(*request.param.needs)
    major, minor = torch.cuda.get_device_capability()
    arch = 10 * major + minor
    if request.param in (kernels_with.NvJitLink, kernels_with.Numba):
        need_library("cubin", arch)
    if request.param is kernels_with.Triton:
        need_library("bitcode", arch)
    return request.param(arch)


def load(torch, engine, kernels, array, indices, timeout=120.0):
    """Loads elements by a kernel, and returns them."""
    view = array.device_view()
    indices = torch.from_numpy(np.asarray(indices, dtype=np.int64)).cuda()
    out = torch.zeros(len(indices), dtype=torch.int32, device="cuda")
    with engine.external(type(kernels).__name__, keep=[view], timeout=timeout) as run:
        run.stream.wait_for(torch.cuda.current_stream())
        kernels.load(run.stream, view, indices, out, len(indices))
    return out.cpu().numpy().view(np.uint32)


def test_kernels_read_elements_through_a_cache(torch, engine, kernels, numbers):
    chosen = np.random.default_rng(3).integers(0, COUNT, 20_011)
    np.testing.assert_array_equal(load(torch, engine, kernels, numbers, chosen), NUMBERS[chosen])
    np.testing.assert_array_equal(load(torch, engine, kernels, numbers, np.arange(COUNT)), NUMBERS)


def test_an_index_beyond_the_end_raises(torch, engine, kernels, numbers):
    with pytest.raises(warpbell.InvalidError) as caught:
        load(torch, engine, kernels, numbers, [1, COUNT, 2])
    assert "bad argument" in str(caught.value) or "outside" in str(caught.value)
    assert type(kernels).__name__ in str(caught.value) and caught.value.operations
    # The next run is not affected.
    np.testing.assert_array_equal(load(torch, engine, kernels, numbers, [1, 2]), NUMBERS[[1, 2]])


def test_a_lost_completion_raises_within_the_deadline(torch, kernels, tmp_path):
    engine = open_engine()
    path = tmp_path / "numbers.img"
    array_of(engine, device=f"soft:{path}")
    gc.collect()
    volume = warpbell.Volume.open(engine, f"soft:{path}")
    entry = next(e for e in volume.arrays() if e["name"] == "numbers")
    block = entry["offset"] // volume.block_bytes
    del volume
    gc.collect()
    volume = warpbell.Volume.open(engine, f"soft:{path},lose-completion={block}", deadline=0.5)
    numbers = warpbell.Cache(volume, 32 << 10, page_bytes=4096).open("numbers")
    with pytest.raises(warpbell.TimeoutError) as caught:
        load(torch, engine, kernels, numbers, [0])
    assert "numbers.img" in caught.value.device and caught.value.lba == block and caught.value.status == "timed out"
    np.testing.assert_array_equal(load(torch, engine, kernels, numbers, [COUNT - 1]), NUMBERS[[-1]])


def test_what_a_run_keeps_may_be_dropped_before_its_end(torch, engine):
    need("cuda.core")
    major, minor = torch.cuda.get_device_capability()
    kernels = kernels_with.Nvrtc(10 * major + minor)
    numbers = array_of(engine)
    view = numbers.device_view()
    indices = torch.arange(COUNT, device="cuda")
    out = torch.zeros(COUNT, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    with engine.external("kept", keep=[view], timeout=120) as run:
        with torch.cuda.stream(torch.cuda.ExternalStream(run.stream.handle)):
            torch.cuda._sleep(200_000_000)
        kernels.load(run.stream, view, indices, out, COUNT)
        del numbers, view
        gc.collect()
    np.testing.assert_array_equal(out.cpu().numpy().view(np.uint32), NUMBERS)


def test_an_exception_in_the_block_stops_kernels(torch, engine, numbers):
    with pytest.raises(RuntimeError, match="of the program"):
        with engine.external("stopped", torch.cuda.current_stream(), keep=[numbers]):
            torch.cuda._sleep(50_000_000)
            raise RuntimeError("of the program")
    np.testing.assert_array_equal(numbers[:10], NUMBERS[:10])


def test_own_kernels_gather_rows_of_a_table(torch, engine, table, vectors):
    need("cuda.core")
    major, minor = torch.cuda.get_device_capability()
    kernels = kernels_with.Nvrtc(10 * major + minor)
    view, scratch = table.device_view(), table.scratch(3000)
    for seed in range(3):
        chosen = np.random.default_rng(seed).integers(0, len(table), 3000)
        indices, out = torch.from_numpy(chosen).cuda(), torch.zeros(3000, 32, device="cuda")
        torch.cuda.synchronize()
        scratch.begin()
        memory = scratch.device_view()
        with engine.external("rows", keep=[view, memory], timeout=120) as run:
            kernels.launch("rows", run.stream, 3000, view.address, memory.address, indices.data_ptr(), out.data_ptr())
        np.testing.assert_array_equal(out.cpu().numpy(), vectors[chosen])
