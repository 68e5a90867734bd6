"""Worlds: PEs as processes of launchers, as threads, and alone. The programs of the processes are in ``pe.py``."""

import ctypes
import gc
import importlib.util
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import warpbell
from conftest import open_engine
from test_package import program

PE = [sys.executable, str(pathlib.Path(__file__).parent / "pe.py")]
HEAP = 1 << 24


def environment(**more):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **{name: str(value) for name, value in more.items()}}


def ranks(count, name, *arguments, how=None):
    """Runs a program as this many ranks, which find each other by a socket. Returns exit codes and outputs."""
    with socket.create_server(("127.0.0.1", 0)) as store:
        common = dict(WARPBELL_SIZE=count, WARPBELL_STORE="127.0.0.1:%d" % store.getsockname()[1], WARPBELL_SECRET=secrets.token_hex(16))
        started = []
        for rank in range(count):
            # Only rank 0 gets the socket.
            own = dict(WARPBELL_RANK=rank, **({"WARPBELL_STORE_FD": store.fileno()} if rank == 0 else {}))
            command = [*PE, name, how(rank) if how else "env", *arguments]
            fds = (store.fileno(),) if rank == 0 else ()
            env = environment() if how else environment(**common, **own)
            started.append(
                subprocess.Popen(command, env=env, pass_fds=fds, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
        try:
            outputs = [one.communicate(timeout=240)[0] for one in started]
        finally:
            [one.kill() for one in started]
    return [one.returncode for one in started], outputs


def all_done(found, count):
    codes, outputs = found
    assert codes == [0] * count, "\n".join(outputs)
    for rank, output in enumerate(outputs):
        assert f"PE {rank} of {count} is done" in output, output


@pytest.mark.parametrize("transport", ["auto", "soft"])
def test_every_call_between_processes(transport):
    found = ranks(3, "calls", f"transport={transport}")
    all_done(found, 3)
    assert (": peer 3 PEs" if transport == "auto" else ": soft 3 PEs") in found[1][0]


def test_the_program_starts_ranks():
    done = subprocess.run(
        [*program(), "run", "-n", "2", "--", *PE, "few_calls", "env"], env=environment(), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[0] PE 0 of 2 is done" in done.stdout and "[1] PE 1 of 2 is done" in done.stdout


def test_ranks_of_a_communicator(tmp_path):
    all_done(ranks(2, "few_calls", how=lambda rank: f"comm:{tmp_path}:{rank}:2"), 2)


def test_ranks_of_torch_distributed(tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    all_done(ranks(2, "few_calls", how=lambda rank: f"torch:{tmp_path}:{rank}:2"), 2)


def test_ranks_of_mpi():
    # The package `mpich` of PyPI has its program beside the interpreter.
    mpirun = shutil.which("mpirun", path=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")]))
    found = subprocess.run([sys.executable, "-c", "from mpi4py import MPI"], env=environment(), capture_output=True, timeout=60)
    if mpirun is None or found.returncode != 0:
        pytest.skip("needs mpi4py and an MPI that it finds")
    # Open MPI starts ranks of root only if it is told to.
    allowed = environment(OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    done = subprocess.run([mpirun, "-n", "2", *PE, "few_calls", "mpi"], env=allowed, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "PE 0 of 2 is done" in done.stdout and "PE 1 of 2 is done" in done.stdout, done.stdout + done.stderr


def test_a_lost_pe_is_named():
    codes, outputs = ranks(3, "lost")
    assert codes == [0, 9, 0] and all("found out" in outputs[rank] for rank in (0, 2)), "\n".join(outputs)
    # Python prints warnings of loggers that nobody has set up.
    assert "a rank of the world is gone" in outputs[0]


@pytest.mark.parametrize("place", ["inside", "outside"])
def test_a_pe_that_fails_is_named(place):
    codes, outputs = ranks(2, "failed", place)
    assert codes == [0, 1] and "found out" in outputs[0] and "of the program" in outputs[1], "\n".join(outputs)


def test_a_pe_that_does_not_come_is_named():
    # PE 1 makes no call, so that each wait of PE 0 ends by its limit.
    engine = open_engine(deadline=0.2)
    world, other = warpbell.World.local([engine, open_engine()], heap_bytes=HEAP, timeout=100)
    with pytest.raises(warpbell.WorldTimeoutError, match="timed out") as caught:
        world.barrier()
    error = caught.value
    assert isinstance(error, TimeoutError) and isinstance(error, warpbell.TimeoutError) and isinstance(error, warpbell.WorldError)
    assert (error.pe, error.fault, error.device) == (1, "timed out", None) and "deadline" in error.remedy
    assert error.operations[0].device == "PE 1"
    # Waits of the host end by the world's timeout.
    world, other = warpbell.World.local([engine, open_engine()], heap_bytes=HEAP, timeout=0.2)
    for wait in (lambda: world.zeros(1), world.barrier_host):
        with pytest.raises(warpbell.WorldTimeoutError, match="waited 200ms for rank 1") as caught:
            wait()
        assert caught.value.pe == 1 and "200ms" in caught.value.fault and "timeout" in caught.value.remedy
    with warpbell.World.single(engine, heap_bytes=HEAP) as alone:
        signal, stream = alone.zeros(1, "uint64"), engine.stream()
        with pytest.raises(warpbell.WorldTimeoutError, match="wait_until"):
            alone.signal_wait(signal, 1)
        for wait in (lambda: alone.signal_wait(signal, 1, pe=0), lambda: alone.signal_wait_shadow(signal, 0, pe=0)):
            with pytest.raises(warpbell.WorldTimeoutError, match="wait_until on PE 0, waiting for PE 0 "):
                wait()
        alone.signal_wait(signal, 1, stream=stream)
        with pytest.raises(warpbell.WorldTimeoutError, match="wait_until"):
            stream.synchronize(30)
        alone.signal_op(signal, 1, 0)
        alone.signal_wait(signal, 1)
    del other


def test_rank_0_without_an_id_is_an_error_everywhere(tmp_path, monkeypatch):
    from pe import FileComm

    (tmp_path / "x").mkdir()
    monkeypatch.setenv("WARPBELL_INTERFACE", "no-such-interface")
    raised = {}

    def join(rank):
        try:
            warpbell.World.from_mpi4py(open_engine(), FileComm(tmp_path / "x", rank, 2), timeout=100.0)
        except warpbell.Error as error:
            raised[rank] = str(error)

    run_threads([lambda: join(0), lambda: join(1)])
    assert "no-such-interface" in raised[0] and "no-such-interface" in raised[1]


def run_threads(works):
    """Runs functions at the same time. Raises the first error."""
    raised = []

    def run(work):
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for error in raised:
        raise error


def test_pes_of_one_process():
    worlds = warpbell.World.local([open_engine(deadline=100) for _ in range(2)], heap_bytes=HEAP, timeout=100)

    def work(world):
        x = world.zeros(100, "int64")
        x[:] = world.my_pe + 1
        world.all_reduce(x)
        assert (x.numpy() == 3).all()

    run_threads([lambda world=world: work(world) for world in worlds])


def test_pes_with_one_id():
    id = warpbell.unique_id("127.0.0.1")
    assert len(id) == 128
    sizes = {}

    def join(rank):
        with warpbell.World.from_unique_id(open_engine(), id, rank, 2, heap_bytes=HEAP, timeout=100) as world:
            sizes[world.rank] = world.size
            world.barrier_host()

    run_threads([lambda: join(0), lambda: join(1)])
    assert sizes == {0: 2, 1: 2}
    with pytest.raises(warpbell.InvalidError, match="128 bytes"):
        warpbell.World.from_unique_id(open_engine(), id[:5], 0, 2)
    with pytest.raises(warpbell.InvalidError, match="rank 2 of a world of 2"):
        warpbell.World.from_unique_id(open_engine(), id, 2, 2)
    with pytest.raises(warpbell.InvalidError, match="serves one world"):
        warpbell.World.from_unique_id(open_engine(), id, 0, 2)


@pytest.fixture
def world(engine):
    with warpbell.World.single(engine, heap_bytes=HEAP) as world:
        yield world


def test_a_world_of_one_describes_itself(engine, world):
    assert (world.my_pe, world.rank, world.n_pes, world.size) == (0, 0, 1, 1)
    assert world.transport == "peer" and world.lost is None and not world.closed and world.timeout > 0
    info = world.info()
    assert info["pes"] == 1 and len(info["hosts"]) == 1 and info["summary"] == world.path and world.path in repr(world)
    assert repr(world.team) == "Team(PE 0 of 1, PEs (0,) of the world)" and world.team.world is world
    assert world.network_failures() == [] and world.recover() == {"pes": []}
    assert len(world.view()) > 64 and len(world.team.view()) > 64
    # Without a launcher.
    with warpbell.World.from_env(engine, heap_bytes=HEAP, heap="auto", transport="auto", checked=True, timeout=5) as other:
        assert other.size == 1 and other.timeout == 5
    with pytest.raises(TypeError, match="`heap_size` is no option of a world"):
        warpbell.World.from_env(engine, heap_size=1)
    with pytest.raises(warpbell.InvalidError, match="`rocket` is no transport"):
        warpbell.World.from_env(engine, transport="rocket")
    with pytest.raises(warpbell.InvalidError, match="without engines"):
        warpbell.World.local([])


def test_runs_keep_worlds_teams_and_symmetric_memory(engine):
    world = warpbell.World.single(engine, heap_bytes=HEAP)
    team, tensor = world.team, world.zeros(1000, np.dtype("int32"))
    for thing in (world, team):
        view = thing.device_view()
        assert view.nbytes == len(thing.view()) and view.owner is thing
        if engine.kind == "cpu":
            assert ctypes.string_at(view.address, view.nbytes) == thing.view()
    with engine.external("nothing", keep=[team.device_view(), world, tensor]) as run:
        run.keep(world.device_view(), team)
        # The run is the last owner of the memory.
        del tensor, team, view, thing
        gc.collect()
        world.close()
    with pytest.raises(warpbell.WorldError, match="the world is closed"):
        world.device_view()
    with pytest.raises(TypeError, match="worlds, teams, symmetric tensors"):
        engine.external("nothing", keep=[engine])


def test_symmetric_tensors_are_tensors(engine, world):
    x = world.zeros((3, 4), np.dtype("int32"))
    assert isinstance(x, warpbell.Tensor) and x.shape == (3, 4) and x.dtype == "int32" and x.nbytes == 48 and len(x) == 3
    assert repr(x) == f"SymmetricTensor((3, 4), int32, {x.device})"
    x[:] = np.arange(12).reshape(3, 4)
    x[1] = 7
    x[-1, 1:3] = [8, 9]
    np.testing.assert_array_equal(x.numpy(), [[0, 1, 2, 3], [7, 7, 7, 7], [8, 8, 9, 11]])
    assert x[1:].shape == (2, 4) and x[2, 3].shape == () and x[2, 3].numpy() == 11 and x[5:2].shape == (0, 4)
    assert x[1].offset == x.offset + 16 and x[1].address == x.address + 16 and (x.peer(0).numpy() == x.numpy()).all()
    assert x.reshape(12).numpy().tolist()[4:8] == [7] * 4 and x.reshape((2, -1)).shape == (2, 6) and x.reshape(2, 6).shape == (2, 6)
    for shape in ((5,), (-1, -1), (-2, -6), (0, -1)):
        with pytest.raises(warpbell.InvalidError, match="do not have the shape"):
            x.reshape(shape)
    with pytest.raises(TypeError, match="only the last index"):
        x[1:2, 0]
    with pytest.raises(warpbell.InvalidError, match="a step of 2"):
        x[::2]
    with pytest.raises(TypeError, match="number or a slice"):
        x["a"]
    with pytest.raises(warpbell.InvalidError, match="complex64"):
        world.zeros(3, np.complex64)
    with pytest.raises(warpbell.InvalidError, match="PE 1"):
        x.peer(1)
    empty = world.zeros((0, 4))
    world.put(empty, empty, 0)
    assert world.get(empty, 0).shape == (0, 4) and empty.numpy().shape == (0, 4)
    if engine.kind == "cpu":
        shared = np.from_dlpack(x)
        shared[0, 0] = 50
        assert x.numpy()[0, 0] == 50


def test_arrays_that_share_symmetric_memory_name_it(engine, world):
    if engine.kind == "gpu":
        pytest.skip("numpy copies memory of a GPU")
    x = world.zeros((4, 4))
    array = x.numpy()
    world.put(array[1], np.ones(4, np.float32), 0)
    world.put(array[2:], x[:2], 0)
    assert array.sum(axis=1).tolist() == [0, 4, 0, 4]
    world.all_reduce(array)
    with pytest.raises(warpbell.InvalidError, match="C-contiguous"):
        world.put(array[:, 0], np.ones(4, np.float32), 0)
    with pytest.raises(TypeError, match="no symmetric memory"):
        world.put(array.copy(), array, 0)


def test_rows_are_gathered_into_symmetric_memory(world, table, vectors):
    x = world.zeros((3, 32))
    assert table.gather([7, 8], x[1:]) is not None
    np.testing.assert_array_equal(x.numpy()[1:], vectors[[7, 8]])
    table[[1]] = x[2:]
    np.testing.assert_array_equal(table[1].numpy(), vectors[8])


def on_each(worlds, work):
    """Runs ``work`` for each PE in a thread of its own, and returns what they return."""
    found = [None] * len(worlds)

    def run(pe):
        try:
            found[pe] = work(worlds[pe])
        except Exception as error:
            found[pe] = error

    threads = [threading.Thread(target=run, args=(pe,)) for pe in range(len(worlds))]
    [thread.start() for thread in threads]
    [thread.join(120) for thread in threads]
    errors = [one for one in found if isinstance(one, AssertionError)]
    if errors:
        raise errors[0]
    return found


@pytest.mark.parametrize("transport", ["auto", "soft"])
def test_arrays_are_registered_as_symmetric(transport):
    engines = [warpbell.Engine("cpu", threads=2) for _ in range(2)]
    worlds = warpbell.World.local(engines, heap_bytes=HEAP, transport=transport, timeout=60)
    arrays = [np.zeros((4, 8), np.float32) for _ in worlds]

    def work(world):
        me, other = world.my_pe, 1 - world.my_pe
        window = world.symmetric_from(arrays[me])
        assert (window.shape, window.dtype, window.nbytes, len(window)) == ((4, 8), "float32", 128, 4)
        assert repr(window) == "Window((4, 8), float32, cpu)" and window[1:3].shape == (2, 8) and window[-1][2].shape == ()
        flag, mine = world.zeros(1, "uint64"), world.zeros((2, 8))
        mine[:] = me + 1
        # From the host, from symmetric memory with a signal, and from a tensor of the engine.
        world.put(window[0], np.arange(8) + 100 * me, other)
        world.put_signal(window[1:3], mine, flag, 1, other)
        world.signal_wait(flag, 1)
        world.put(window[3], world.get(window[2], other), other)
        world.barrier()
        expected = [np.arange(8) + 100 * other, *[np.full(8, other + 1)] * 3]
        np.testing.assert_array_equal(arrays[me], expected)
        out = np.zeros((4, 8), np.float32)
        world.get(window, other, out)
        np.testing.assert_array_equal(out, [np.arange(8) + 100 * me, *[np.full(8, me + 1)] * 3])
        stream = engines[me].stream()
        world.barrier()
        world.put(window[3], out[0], other, stream=stream)
        stream.synchronize(30)
        world.barrier()
        assert (arrays[me][3] == np.arange(8) + 100 * other).all()
        assert len(window.view()) == 32 and window[1].view() != window.view() and window.device_view().nbytes == 32
        for call in (world.barrier, world.team.barrier):
            call()
        with pytest.raises(TypeError, match="no symmetric memory"):
            world.all_reduce(window)
        with pytest.raises(warpbell.InvalidError, match=r"source: it has \(2,\) of float32, and the symmetric elements \(8,\) of float32"):
            world.put(window[0], mine[0, :2], other)
        with pytest.raises(IndexError, match="index 4 is not in a tensor of length 4"):
            window[4]
        return window

    windows = on_each(worlds, work)
    assert all(isinstance(window, warpbell.Window) for window in windows), windows
    # Windows keep the arrays, until every PE has dropped its own.
    kept = [weakref.ref(array) for array in arrays]
    del arrays[:]
    del windows[0]
    on_each(worlds, lambda world: world.barrier_host())
    gc.collect()
    assert all(one() is not None for one in kept)
    worlds[1].put(windows[0], 3, 0)
    assert (worlds[1].get(windows[0], 0).numpy() == 3).all()
    del windows[:]
    gc.collect()
    on_each(worlds, lambda world: world.barrier_host())
    gc.collect()
    assert all(one() is None for one in kept)


def test_arrays_of_processes_are_registered_with_adapters():
    found = ranks(2, "windows", "transport=soft")
    all_done(found, 2)


def test_arrays_that_cannot_be_registered_are_an_error_on_all_pes():
    worlds = warpbell.World.local([warpbell.Engine("cpu", threads=2) for _ in range(2)], heap_bytes=HEAP, timeout=60)
    good = np.zeros(8)
    for bad, own, others in (
        (np.zeros(4), "PE 0: (8,) of float64, PE 1: (4,) of float64", "PE 1: (4,) of float64"),
        (np.zeros(8, np.int64), "PE 1: (8,) of int64", "PE 1: (8,) of int64"),
        (np.zeros((8, 2))[:, 0], "C-contiguous", "PE 1: nothing"),
        (np.zeros(0), "at least one", "PE 1: nothing"),
        ([1, 2], "list is no array", "PE 1: nothing"),
        (np.frombuffer(bytes(64)), "read-only", "PE 1: nothing"),
    ):
        found = on_each(worlds, lambda world: world.symmetric_from(bad if world.my_pe else good))
        assert isinstance(found[0], warpbell.WorldError) and "register the same elements" in str(found[0]) and others in str(found[0])
        assert own in str(found[1]) or "register the same elements" in str(found[1]), found[1]
    tensors = on_each(worlds, lambda world: world.zeros(8))
    found = on_each(worlds, lambda world: world.symmetric_from(tensors[world.my_pe]))
    assert all(isinstance(one, warpbell.InvalidError) and "use it itself in calls of its world" in str(one) for one in found), found
    found = on_each(worlds, lambda world: world.symmetric_from(tensors[1] if world.my_pe else good))
    assert all(isinstance(one, warpbell.WorldError) and "PE 1: nothing (InvalidError: array: it is in a symmetric heap" in str(one) for one in found), found
    windows = on_each(worlds, lambda world: world.symmetric_from(np.zeros(8)))
    assert all(isinstance(one, warpbell.Window) for one in windows)
    for wrong in (lambda: worlds[0].put(windows[0], windows[0], 1), lambda: worlds[0].get(windows[0], 1, windows[0])):
        with pytest.raises(TypeError, match="it is a Window, which names memory of other PEs; pass the array that this PE registered"):
            wrong()


def test_memory_outlives_its_world_and_engine():
    engine = open_engine()
    world = warpbell.World.single(engine, heap_bytes=HEAP)
    x = world.zeros(1000)
    x[:] = 3
    kept, stream = x[10:], engine.stream()
    team, got = world.team, world.get(x, 0)
    world.put(x[:10], kept[:10], 0, stream=stream)
    world.close()
    world.close()
    assert world.closed and repr(world) == "World(PE 0 of 1, closed)"
    del x, engine, world
    gc.collect()
    stream.synchronize(30)
    assert kept.numpy().sum() == 2970 and got.numpy().sum() == 3000
    with pytest.raises(warpbell.WorldError, match="closed"):
        team.barrier()


def test_streams_need_memory_that_the_engine_reaches(engine, world):
    x, stream = world.zeros(4), engine.stream()
    with pytest.raises(warpbell.InvalidError, match="pass out="):
        world.get(x, 0, stream=stream)
    with pytest.raises(warpbell.InvalidError, match="scratch="):
        world.reduce_scatter(x, x, stream=stream)
    with pytest.raises(warpbell.InvalidError, match="ones are|equal"):
        world.put(x, np.ones(3, np.float32), 0, stream=stream)
    stream.synchronize(30)
    if engine.kind == "cpu":
        source = np.ones(4, np.float32)
        world.put(x, source, 0, stream=stream)
        del source
        gc.collect()
        stream.synchronize(30)
        assert x.numpy().sum() == 4
