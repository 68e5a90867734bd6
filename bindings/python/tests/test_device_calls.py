"""Calls of worlds and volumes inside kernels of Triton and Numba, beside torch. ``calls_with.py`` has the kernels.

PEs are engines of this process. Their kernels wait for each other, so that all are compiled and loaded before: ``kernels`` runs each on a
world of one PE. Every wait ends by the engine's deadline, every run after ``SOON`` seconds, and every test after ``LIMIT``.
"""

import faulthandler
import pathlib
import re
import signal
import sys

import calls_with
import numpy as np
import pytest
import warpbell
from calls_with import PART, THREADS
from conftest import MIB
from test_kernels import ARCH, need, need_library
from test_world import run_threads

ROUNDS = 8
#: Deadline of an engine, limit of a run, and limit of a test in seconds.
DEADLINE, SOON, LIMIT = 5, 30, 90


@pytest.fixture(autouse=True)
def _limit():
    """Ends a test that takes too long, and prints where its threads are."""

    def late(*_):
        faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
        raise AssertionError(f"the test did not end within {LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


# --- without a GPU ---


def test_constants_are_those_of_the_header():
    from warpbell import _device

    path = pathlib.Path(warpbell.__file__).parent / "device" / "warpbell_device.h"
    if not path.is_file():
        pytest.skip("an editable installation")
    found = {name: int(value) for name, value in re.findall(r"\bWBD_(\w+) = (\d+)", path.read_text())}
    assert len(found) == 8 and found == {name: getattr(_device, name) for name in found}


@pytest.mark.parametrize("name", calls_with.Triton.TYPES)
def test_calls_compile_with_triton(name):
    need("triton")
    need_library("bitcode", ARCH)
    assert len(calls_with.Triton.compile(name, ARCH)) > 10_000


@pytest.mark.parametrize("name", calls_with.Numba.TYPES)
def test_calls_compile_with_numba(name):
    need("numba.cuda", "cuda.bindings.nvvm")
    need_library("cubin", ARCH)
    try:
        ptx = calls_with.Numba.compile(name, ARCH)
    except RuntimeError as error:
        if "libnvvm" in str(error) or "libcudart" in str(error):
            pytest.skip(f"needs libNVVM and the CUDA runtime: {str(error).splitlines()[0]}")
        raise
    called = set(re.findall(r"\.extern \.func .*\b(wbd_\w+)", ptx))
    assert called and called <= set(warpbell.device_functions())


# --- PEs on a GPU ---


@pytest.fixture(scope="module")
def torch(engine):
    if engine.kind != "gpu":
        pytest.skip("needs a GPU")
    return pytest.importorskip("torch", reason="needs torch")


class Pe:
    """A PE with its memory. ``join`` calls the constructor in a thread of each PE."""

    def __init__(self, torch, engine, world, gpu):
        self.torch, self.engine, self.world, self.gpu = torch, engine, world, gpu
        self.arrived, self.words = world.zeros(1, "uint64"), world.zeros(2, "uint64")
        self.landing = torch.from_dlpack(world.zeros(ROUNDS * PART, "int32"))
        self.slots = torch.from_dlpack(world.zeros(THREADS, "int32"))
        self.view, self.team = world.device_view(), world.team.device_view()
        numbers = torch.arange(ROUNDS * PART, dtype=torch.int32) * 3 + 1_000_000 * (1 + world.my_pe)
        self.source, self.out = numbers.to(f"cuda:{gpu}"), self.zeros(ROUNDS * PART)
        self.drawn, self.states = self.zeros(THREADS, torch.int64), self.zeros(2 * ROUNDS)
        torch.cuda.synchronize(gpu)

    def zeros(self, count, dtype=None):
        return self.torch.zeros(count, dtype=dtype or self.torch.int32, device=f"cuda:{self.gpu}")

    def clear(self):
        self.arrived[:] = np.uint64(0)
        self.words[:] = np.uint64(0)
        for tensor in (self.landing, self.slots, self.out, self.drawn, self.states):
            tensor.fill_(-1)
        self.torch.cuda.synchronize(self.gpu)

    def ring(self, to=None, rounds=ROUNDS):
        to = (self.world.my_pe + 1) % self.world.n_pes if to is None else to
        return self.view.address, self.source, self.landing, self.out, self.arrived.address, to, rounds, self.states

    def elements(self):
        counter, total = self.words[0].address, self.words[1].address
        return self.view.address, self.team.address, self.slots, counter, total, self.drawn, self.out, self.states


def alone(torch, engine, gpu=0):
    with torch.cuda.device(gpu):
        return Pe(torch, engine, warpbell.World.single(engine, heap_bytes=4 * MIB), gpu)


def pes_on(torch, gpus, transport, deadline=DEADLINE):
    engines = [warpbell.Engine(f"gpu:{gpu}", deadline=deadline) for gpu in gpus]
    worlds = warpbell.World.local(engines, heap_bytes=4 * MIB, timeout=SOON, transport=transport)
    made = [None] * len(gpus)

    def build(number):
        with torch.cuda.device(gpus[number]):
            made[number] = Pe(torch, engines[number], worlds[number], gpus[number])

    run_threads([lambda number=number: build(number) for number in range(len(gpus))])
    return made


def run_on(pes, kernels, name, *arguments, **options):
    """Launches a kernel on each of these PEs, and returns the error of each run, or ``None``."""
    pes[0].torch.cuda.synchronize()
    text = f"{type(kernels).__name__}.{name}"
    # All runs begin before the first kernel does: a call of the driver might wait for it.
    runs = [pe.engine.external(text, keep=[pe.view, pe.team], timeout=SOON) for pe in pes]
    errors = [None] * len(pes)
    for pe, run in zip(pes, runs):
        with pe.torch.cuda.device(pe.gpu):
            stream = pe.torch.cuda.ExternalStream(run.stream.handle, device=f"cuda:{pe.gpu}")
            getattr(kernels, name)(stream, *getattr(pe, name)(*arguments, **options))
    for number, run in enumerate(runs):
        try:
            run.finish()
        except warpbell.Error as error:
            errors[number] = error
    return errors


@pytest.fixture(scope="module")
def made():
    """What several tests use. The fixtures that make it are within the limit of a test, which a fixture of the module is not."""
    return {}


@pytest.fixture(params=calls_with.ALL, ids=lambda kind: kind.__name__)
def kernels(request, torch, made):
    """The kernels of each compiler that is there, compiled and loaded."""
    need(*request.param.needs)
    major, minor = torch.cuda.get_device_capability()
    need_library(request.param.form, 10 * major + minor)
    if request.param not in made:
        kernels = request.param(torch)
        for gpu in range(min(2, torch.cuda.device_count())):
            pe = alone(torch, warpbell.Engine(f"gpu:{gpu}", deadline=DEADLINE), gpu)
            assert run_on([pe], kernels, "ring", rounds=0) == [None] and run_on([pe], kernels, "elements") == [None]
        made[request.param] = kernels
    return made[request.param]


@pytest.fixture(params=["peer", "soft", "two GPUs"])
def pes(request, torch, made):
    """Two PEs: on one GPU, by loads and stores or by software NICs, and on two."""
    two_gpus = request.param == "two GPUs"
    if two_gpus and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    if request.param not in made:
        made[request.param] = pes_on(torch, [0, 1], "auto") if two_gpus else pes_on(torch, [0, 0], request.param)
    return made[request.param]


def equal(found, expected):
    np.testing.assert_array_equal(found.cpu().numpy() if hasattr(found, "cpu") else found, expected)


def test_puts_arrive_before_their_signals(pes, kernels):
    for _ in range(3):
        [pe.clear() for pe in pes]
        assert run_on(pes, kernels, "ring") == [None, None]
        for pe, other in zip(pes, reversed(pes)):
            equal(pe.states, 0)
            # As the kernel saw them behind each signal, and as the host sees them.
            equal(pe.out, other.source.cpu())
            equal(pe.landing, other.source.cpu())
            assert pe.arrived.numpy().tolist() == [ROUNDS]


def test_elements_atomics_and_barriers(pes, kernels):
    for _ in range(3):
        [pe.clear() for pe in pes]
        assert run_on(pes, kernels, "elements") == [None, None]
        i = np.arange(THREADS)
        for me, pe in enumerate(pes):
            equal(pe.states[:4], [0, 0, 0, 2])
            # Elements that the other PE has put here, those that this one has put there, and the same by a get.
            equal(pe.out[: 3 * THREADS], np.concatenate([1000 * (1 - me) + i, 1000 * me + i, 1000 * me + i]))
            equal(pe.slots, 1000 * (1 - me) + i)
        equal(np.sort(np.concatenate([pe.drawn.cpu().numpy() for pe in pes])), np.arange(2 * THREADS))
        assert pes[0].words.numpy().tolist() == [2 * THREADS, 2 * i.sum()] and pes[1].words.numpy().tolist() == [0, 0]


@pytest.mark.parametrize("transport", ["peer", "soft"])
def test_calls_that_fail_name_the_pe(torch, kernels, transport):
    pes = pes_on(torch, [0, 0], transport, deadline=1)
    [pe.clear() for pe in pes]
    (error,) = run_on(pes[:1], kernels, "ring", to=2)
    assert isinstance(error, warpbell.InvalidError), error
    assert "from PE 0 to PE 2" in str(error) and "no such PE" in str(error) and type(kernels).__name__ in str(error)
    assert error.operations[0].device == "PE 2" and error.device is None
    # Nobody puts to PE 0.
    [pe.clear() for pe in pes]
    (error,) = run_on(pes[:1], kernels, "ring", rounds=1)
    assert isinstance(error, warpbell.WorldTimeoutError), error
    assert "wait_until on PE 0" in str(error) and error.fault == "timed out" and "deadline" in error.remedy
    # Later runs are not affected.
    [pe.clear() for pe in pes]
    assert run_on(pes, kernels, "ring") == [None, None]
    equal(pes[0].out, pes[1].source.cpu())
    # PE 1 does not come to the barrier.
    (error,) = run_on(pes[:1], kernels, "elements")
    assert isinstance(error, warpbell.WorldTimeoutError), error
    assert error.pe == 1 and "PE 1 did not arrive" in str(error)


# --- volumes on a GPU ---

NUMBERS = np.arange(1 << 16, dtype=np.int32) * 7 + 3


class Stored:
    """A volume with two arrays of the same size, and the places of their blocks."""

    def __init__(self, torch, engine, device="soft:mem"):
        self.engine, self.volume = engine, warpbell.Volume.create(engine, device, 8 * MIB, deadline=DEADLINE)
        self.volume.store("numbers", NUMBERS)
        self.volume.store("results", np.zeros_like(NUMBERS))
        offsets = {entry["name"]: entry["offset"] for entry in self.volume.arrays()}
        block = self.volume.block_bytes
        self.source, self.target = offsets["numbers"] // block, offsets["results"] // block
        self.blocks, self.words = NUMBERS.nbytes // block, block // 4
        self.view = self.volume.device_view()
        self.memory = torch.zeros(len(NUMBERS), dtype=torch.int32, device="cuda")
        self.buffer = self.volume.map(self.memory)
        self.states = torch.full((self.blocks,), -1, dtype=torch.int32, device="cuda")
        assert (self.buffer.address, self.buffer.nbytes) == (self.memory.data_ptr(), NUMBERS.nbytes)
        self.torch = torch

    def run(self, kernels, name, *arguments):
        self.torch.cuda.synchronize()
        with self.engine.external(f"{type(kernels).__name__}.{name}", keep=[self.view, self.buffer], timeout=SOON) as run:
            getattr(kernels, name)(self.torch.cuda.ExternalStream(run.stream.handle), *arguments)

    def add(self, kernels, source):
        programs = 8
        each = self.blocks // programs
        self.run(kernels, "add_to_blocks", programs, self.view.address, source, self.target, each, self.memory, self.states)
        return self.states[:programs]


def test_blocks_are_read_and_written(torch, engine, kernels):
    stored = Stored(torch, engine)
    equal(stored.add(kernels, stored.source), 0)
    equal(stored.memory, NUMBERS + 1)
    equal(stored.volume.load("results"), NUMBERS + 1)
    equal(stored.volume.load("numbers"), NUMBERS)


def test_lanes_read_and_write_blocks_of_their_own(torch, engine, kernels):
    stored = Stored(torch, engine)
    # The last warps have lanes that only help.
    count = stored.blocks - 7
    order = np.random.default_rng(5).permutation(stored.blocks)[:count].astype(np.int32)
    places = stored.view.address, stored.source, stored.target
    stored.run(kernels, "permute_blocks", count, *places, torch.from_numpy(order).cuda(), count, stored.memory, stored.states)
    expected = np.zeros((stored.blocks, stored.words), np.int32)
    expected[:count] = NUMBERS.reshape(stored.blocks, stored.words)[order]
    equal(stored.states[:count], 0)
    equal(stored.memory.view(stored.blocks, stored.words), expected)
    stored.volume.flush()
    equal(stored.volume.load("results").reshape(stored.blocks, stored.words), expected)


def test_blocks_that_fail_raise(torch, engine, kernels):
    stored = Stored(torch, engine)
    with pytest.raises(warpbell.InvalidError, match="outside the volume") as caught:
        stored.add(kernels, stored.volume.bytes // stored.volume.block_bytes)
    assert type(kernels).__name__ in str(caught.value) and caught.value.device.startswith("soft:mem")
    equal(stored.volume.load("numbers"), NUMBERS)
    # A block in the middle of the numbers.
    bad = stored.source + stored.blocks // 2
    failing = Stored(torch, engine, f"soft:mem,media-error=read:{bad}")
    assert failing.source == stored.source
    with pytest.raises(warpbell.DeviceError, match="read") as caught:
        failing.add(kernels, failing.source)
    assert caught.value.lba <= bad and "device error" in caught.value.status and caught.value.device.startswith("soft:mem")


# --- beside torch ---


def test_kernels_of_triton_on_torchs_stream_beside_calls_of_the_host(torch, engine):
    need("triton")
    major, minor = torch.cuda.get_device_capability()
    need_library("bitcode", 10 * major + minor)
    kernels = calls_with.Triton(torch)
    pe, stored = alone(torch, engine), Stored(torch, engine)
    target, taken, loaded = torch.from_dlpack(pe.world.zeros(PART, "int32")), pe.zeros(PART), pe.zeros(len(NUMBERS))
    with torch.cuda.stream(torch.cuda.Stream()):
        current = torch.cuda.current_stream()
        queue, on = warpbell.SegmentQueue(stored.volume, stream=current), warpbell.Stream.adopt(engine, current)
        for number in range(1, 6):
            pe.arrived[:] = np.uint64(0)
            with engine.external("beside torch", current, keep=[pe.view, stored.view, stored.buffer], timeout=SOON):
                torch.cuda._sleep(20_000_000)
                # Behind the pause: what did not wait would see the numbers before.
                pe.source.fill_(number)
                kernels.ring(current, *pe.ring(rounds=1))
                # Tensors of torch are source and destination: own memory, and symmetric memory.
                pe.world.put(target, pe.out[:PART], 0, stream=on)
                pe.world.get(target, 0, taken, stream=on)
                stored.memory.copy_(taken.repeat(len(NUMBERS) // PART) * 2)
                storing = queue.store("results", 0, stored.memory)
                loading = queue.load("results", 0, loaded)
                loading.wait_group(current)
                tripled = loaded * 3
            assert storing.finish(SOON) == loading.finish(SOON) == NUMBERS.nbytes
            for tensor, expected in ((pe.landing[:PART], number), (target, number), (taken, number), (tripled, 6 * number)):
                equal(tensor, expected)
        equal(stored.volume.load("results"), 10)
