"""One PE of a world: the programs of ``test_world.py`` and ``test_gpu.py``.

    pe.py PROGRAM HOW [ARGUMENT...]

HOW says how the PEs find each other: ``env``, ``mpi``, ``comm:FOLDER:RANK:SIZE`` (a communicator over files), ``torch:FOLDER:RANK:SIZE`` (gloo), ``nccl:...``.
"""

import os
import pathlib
import pickle
import sys
import time

import numpy as np
import warpbell
from conftest import open_engine


class FileComm:
    """A communicator over files, with the calls of mpi4py that ``World.from_mpi4py`` makes."""

    def __init__(self, folder, rank, size):
        self.folder, self.rank, self.size, self.round = pathlib.Path(folder), rank, size, 0

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def allgather(self, value):
        self.round += 1
        name = f"{self.round}-{self.rank}"
        (self.folder / f"{name}.new").write_bytes(pickle.dumps(value))
        (self.folder / f"{name}.new").rename(self.folder / name)
        found, until = [], time.monotonic() + 100
        for rank in range(self.size):
            there = self.folder / f"{self.round}-{rank}"
            while not there.exists():
                assert time.monotonic() < until, f"rank {rank} does not come"
                time.sleep(0.002)
            found.append(pickle.loads(there.read_bytes()))
        return found


def join(how, engine, **options):
    kind, _, place = how.partition(":")
    if kind == "env":
        return warpbell.World.from_env(engine, **options)
    if kind == "mpi":
        from mpi4py import MPI

        return warpbell.World.from_mpi4py(engine, MPI.COMM_WORLD, **options)
    folder, rank, size = place.rsplit(":", 2)
    if kind == "comm":
        return warpbell.World.from_mpi4py(engine, FileComm(folder, int(rank), int(size)), **options)
    import torch.distributed as dist

    dist.init_process_group("gloo" if kind == "torch" else "nccl", init_method=f"file://{folder}/store", rank=int(rank), world_size=int(size))
    return warpbell.World.from_torch_distributed(engine, **options)


def fails(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error), error
        return error
    raise AssertionError(f"{call} did not fail")


def equal(tensor, expected):
    np.testing.assert_array_equal(tensor.numpy(), expected)


def transfers(world):
    me, n = world.my_pe, world.n_pes
    next_, before = (me + 1) % n, (me - 1) % n
    x = world.zeros((4, 8))
    world.put(x, me + 1, next_)
    world.barrier()
    equal(x, np.full((4, 8), before + 1))
    world.barrier()
    # Parts of symmetric tensors, from the host, from symmetric memory, and from a tensor of the engine.
    world.put(x[1:3], np.arange(16).reshape(2, 8), next_)
    world.put(x[3, 4:8], x[0, 4:8], next_)
    world.put(x[0], world.get(x[0], me), me)
    world.barrier()
    expected = np.full((4, 8), before + 1, np.float32)
    expected[1:3] = np.arange(16).reshape(2, 8)
    expected[3, 4:8] = (before - 1) % n + 1
    equal(x, expected)
    equal(world.get(x[1:3], next_), expected[1:3])
    out = np.zeros(8, np.float32)
    assert world.get(x[2], next_, out) is out and (out == expected[2]).all()
    y = world.empty((4, 8), np.float32)
    assert world.get(x[1], next_, y[3]) is not None
    equal(y[3], expected[1])
    if world.transport == "peer":
        equal(x.peer(next_), world.get(x, next_).numpy())
    world.barrier()
    # Signals: whoever sees one sees the elements.
    arrived = world.zeros(2, "uint64")
    for number in range(1, 4):
        world.put_signal(y[0], np.full(8, number), arrived[0], 1, next_, "add")
        world.signal_wait(arrived[0], number)
        assert (y[0].numpy() == number).all()
        world.put_signal(y[1], x[1], arrived[1], number, next_)
        world.wait_until(arrived[1], ">=", number)
        world.barrier()
    world.signal_op(arrived[1], 40, next_)
    world.wait_until(arrived[1], "eq", 40, pe=before)
    world.barrier()
    stream = ENGINE.stream()
    # Signals that count: three by the host in two steps, then one in a stream.
    shadow = 40
    for _ in range(4):
        world.signal_op(arrived[1], 1, next_, "add")
    shadow = world.signal_wait_shadow(arrived[1], shadow)
    shadow = world.signal_wait_shadow(arrived[1], shadow, 2, pe=before)
    assert world.signal_wait_shadow(arrived[1], shadow, 1, pe=before, stream=stream) == 44
    world.signal_wait(arrived[1], 44, "eq", pe=before, stream=stream)
    world.put(y[2], x[1], next_, stream=stream)
    world.barrier(stream=stream)
    world.get(y[2], next_, y[3], stream=stream)
    world.quiet(stream=stream)
    stream.synchronize(30)
    equal(y[3], expected[1])
    world.barrier()


def atomics(world):
    me, n = world.my_pe, world.n_pes
    for dtype in ("int32", "uint64"):
        word = world.zeros(4, dtype)
        drawn = [world.atomic_fetch_inc(word[1], 0) for _ in range(3)]
        assert drawn == sorted(drawn)
        world.barrier()
        assert world.atomic_fetch(word[1], 0) == 3 * n
        world.atomic_add(word[2], me + 1, 0)
        world.atomic_or(word[3], 1 << me, 0)
        world.barrier()
        assert world.get(word, 0).numpy().tolist() == [0, 3 * n, n * (n + 1) // 2, (1 << n) - 1]
        world.barrier()
        mine = world.atomic_compare_swap(word[0], 0, me + 10, 0)
        world.barrier()
        winner = world.atomic_fetch(word[0], 0)
        assert (mine == 0) == (winner == me + 10)
        world.barrier()
        assert world.atomic_swap(word[0], 5, me) == (winner if me == 0 else 0)
        assert world.atomic_fetch_xor(word[0], 7, me) == 5 and word.numpy()[0] == 2
        fails(OverflowError, "", world.atomic_add, word, 1 << 70, 0)
    real = world.zeros(1, "float64")
    world.atomic_set(real, 2.5, me)
    assert world.atomic_fetch(real, me) == 2.5
    fails(warpbell.InvalidError, "for integers", world.atomic_add, real, 1, 0)


def collectives(world):
    me, n = world.my_pe, world.n_pes
    x, y = world.zeros((n, 5), "int32"), world.zeros((n, 5), "int32")
    x[...] = np.arange(5 * n).reshape(n, 5) + 100 * me
    world.all_reduce(y, x)
    equal(y, np.arange(5 * n).reshape(n, 5) * n + 100 * sum(range(n)))
    world.all_reduce(y, x, "max")
    equal(y, np.arange(5 * n).reshape(n, 5) + 100 * (n - 1))
    world.team.reduce(y, x, "xor")
    parts = np.stack([np.arange(5 * n).reshape(n, 5) + 100 * pe for pe in range(n)])
    equal(y, np.bitwise_xor.reduce(parts, axis=0))
    world.barrier()
    world.alltoall(y, x)
    equal(y, parts[:, me])
    world.barrier()
    world.all_gather(y, x[0])
    equal(y, parts[:, 0])
    world.barrier()
    world.broadcast(y, x, root=n - 1)
    equal(y, parts[n - 1])
    part = world.zeros(5, "int32")
    world.reduce_scatter(part, x)
    equal(part, parts.sum(axis=0)[me])
    equal(x, parts[me])
    world.team.reduce_scatter(part, x, "min", scratch=y)
    equal(part, parts.min(axis=0)[me])
    world.all_reduce(x)
    equal(x, parts.sum(axis=0))
    real = world.zeros(3)
    real[:] = me + 0.5
    world.all_reduce(real, op="prod")
    assert (real.numpy() == np.prod([pe + 0.5 for pe in range(n)], dtype=np.float32)).all()
    # Teams: all PEs but the first.
    team = world.team.split_strided(1, 1, n - 1)
    assert (team is None) == (me == 0)
    if team is not None:
        assert (team.my_pe, team.n_pes, team.world_pe(0)) == (me - 1, n - 1, 1)
        assert team.translate_pe(0, world.team) == 1 and world.team.translate_pe(0, team) is None
        real[:] = me
        team.all_reduce(real)
        equal(real, np.full(3, sum(range(n))))
        fails(warpbell.InvalidError, "scratch=", team.reduce_scatter, real[:1], real[: n - 1])
        team.barrier()
    row, column = world.team.split_2d(2)
    assert row.n_pes == min(2, n - me // 2 * 2) and column.my_pe == me // 2
    assert world.team_node().n_pes == n
    # Several on a stream, behind each other.
    stream = ENGINE.stream()
    real[:] = 1
    world.all_reduce(real, stream=stream)
    world.all_reduce(real, stream=stream)
    stream.synchronize(30)
    equal(real, np.full(3, n * n))


def mistakes(world):
    me, n = world.my_pe, world.n_pes
    x, word = world.zeros((2, 3)), world.zeros(2, "uint64")
    fails(warpbell.InvalidError, f"PE {n}: there are {n} PEs", world.put, x, x, n)
    fails(warpbell.InvalidError, "PE -1", world.get, x, -1)
    fails(warpbell.InvalidError, "PE 7", world.broadcast, x, root=7)
    fails(ValueError, "(3,) of float32", world.put, x, x[0], me)
    fails(ValueError, "broadcast", world.put, x, np.zeros((3, 3)), me)
    fails(warpbell.InvalidError, "of uint64", world.get, word, me, np.zeros(2, np.float32))
    fails(TypeError, "uint64", world.put, word, 1.5, me)
    fails(warpbell.InvalidError, "same type", world.all_reduce, x, word)
    fails(warpbell.InvalidError, "times the elements", world.all_gather, x, x)
    fails(warpbell.InvalidError, "words of uint64", world.signal_wait, x, 1)
    fails(warpbell.InvalidError, f"PE {n}: there are {n} PEs", world.signal_wait, word, 0, pe=n)
    fails(warpbell.InvalidError, "PE -1", world.wait_until, word, "eq", 0, pe=-1)
    fails(warpbell.InvalidError, f"PE {n}", world.signal_wait_shadow, word, 0, 0, pe=n)
    fails(warpbell.InvalidError, "9223372036854775808 signals", world.signal_wait_shadow, word, 0, 2**63)
    fails(warpbell.InvalidError, "bitwise", world.all_reduce, x, op="xor")
    fails(warpbell.InvalidError, "op is `mean`", world.all_reduce, x, op="mean")
    fails(TypeError, "no symmetric memory", world.put, np.zeros((2, 3), np.float32), x, me)
    fails(TypeError, "warpbell.Stream", world.put, x, x, me, stream=0)
    fails(IndexError, "length 2", lambda: x[2])
    fails(warpbell.OutOfMemoryError, "symmetric heap", world.zeros, 1 << 40)
    # All PEs notice that they differ, and go on.
    error = fails(warpbell.WorldError, "PE 0: (1, 2) of float32", world.zeros, (1 + me, 2))
    assert f"PE {n - 1}: ({n}, 2)" in str(error)
    fails(warpbell.WorldError, "of int64", world.zeros, 4, "float64" if me else "int64")
    error = fails(warpbell.WorldError, "barrier_host", world.barrier_host if me else lambda: world.allgather(b""))
    assert world.allgather(bytes([me]) * me) == [bytes([pe]) * pe for pe in range(n)]
    # Memory of another world.
    with warpbell.World.single(ENGINE, heap_bytes=1 << 20) as other:
        foreign = other.zeros((2, 3))
        for call in (world.put, other.put):
            fails(warpbell.InvalidError, "another world", call, foreign if call == world.put else x, np.ones(3), 0)
        fails(warpbell.InvalidError, "another world", world.all_reduce, foreign)
    world.barrier()


def memory(world):
    """Memory is free again when all PEs have dropped it, and arrays keep it."""
    world.barrier_host()
    free = world.heap_free
    x = world.zeros(1000)
    kept = x[10:20].numpy() if ENGINE.kind == "cpu" and world.my_pe == 0 else None
    del x
    world.barrier_host()
    if ENGINE.kind == "cpu":
        assert world.heap_free < free
    del kept
    world.barrier_host()
    assert world.heap_free == free, (world.heap_free, free)


def calls(how, *options):
    global ENGINE
    ENGINE = open_engine(deadline=100)
    with join(how, ENGINE, heap_bytes=1 << 24, timeout=100.0, **dict(o.split("=") for o in options)) as world:
        assert (world.rank, world.size) == (world.my_pe, world.n_pes)
        for part in (transfers, atomics, collectives, mistakes, memory):
            part(world)
        world.barrier()
        path = world.path
    fails(warpbell.WorldError, "closed", world.barrier)
    print(f"PE {world.rank} of {world.size} is done: {path}")


def windows(how, *options):
    """Each PE registers an array of another library: of numpy, or of torch on its GPU. The PEs take GPUs in turn."""
    if os.environ.get("WARPBELL_TEST_ENGINE") == "gpu":
        import torch

        device = int(os.environ["WARPBELL_RANK"]) % torch.cuda.device_count()
        torch.cuda.set_device(device)
        engine = warpbell.Engine(f"gpu:{device}", deadline=100)
        # Not at the beginning of an allocation.
        before, array = torch.ones(100, device="cuda"), torch.zeros((4, 1000), device="cuda")
        values, host = lambda: array.cpu().numpy(), lambda data: torch.from_numpy(data).cuda()
    else:
        engine, array = open_engine(deadline=100), np.zeros((4, 1000), np.float32)
        before, values, host = np.ones(100), lambda: array, lambda data: data
    with join(how, engine, heap_bytes=1 << 24, timeout=100.0, **dict(o.split("=") for o in options)) as world:
        me, n = world.my_pe, world.n_pes
        next_, last = (me + 1) % n, (me - 1) % n
        window, flag, stream = world.symmetric_from(array), world.zeros(1, "uint64"), engine.stream()
        data = np.arange(1000, dtype=np.float32)
        for turn in range(1, 21):
            world.put(window[0], data + turn + me, next_)
            world.put_signal(window[1], host(data * turn + me), flag, turn, next_)
            world.signal_wait(flag, turn)
            np.testing.assert_array_equal(values()[1], data * turn + last)
            world.put(window[2], host(data - turn - me), next_, stream=stream)
            stream.synchronize(60)
            world.barrier()
            np.testing.assert_array_equal(values()[[0, 2]], [data + turn + last, data - turn - last])
            equal(world.get(window[1], next_), data * turn + me)
            world.barrier()
        assert (before == 1).all() and not values()[3].any()
        # PE 0 ends its use first, and the others still get from it.
        if me == 0:
            del window
            world.barrier_host()
        else:
            world.barrier_host()
            equal(world.get(window[1], 0), data * 20 + (n - 1))
        path = world.path
    print(f"PE {me} of {n} is done: {path}")


def few_calls(how):
    """Enough to see that the PEs have found each other."""
    global ENGINE
    ENGINE = open_engine(deadline=100)
    with join(how, ENGINE, heap_bytes=1 << 24, timeout=100.0) as world:
        x = world.zeros(2)
        x[:] = world.rank
        world.all_reduce(x)
        equal(x, np.full(2, sum(range(world.size))))
        print(f"PE {world.rank} of {world.size} is done: {world.path}")


def lost(how):
    """PE 1 ends without a word. The others find out in kernels and on the host, and open a new world."""
    engine = open_engine(deadline=100)
    world = join(how, engine, heap_bytes=1 << 24, timeout=100.0)
    world.barrier()
    if world.rank == 1:
        os._exit(9)
    for wait in (world.barrier, world.barrier_host, lambda: world.zeros(1), world.barrier):
        error = fails(warpbell.LostPeError, "rank 1 is gone", wait)
        assert error.pe == 1 and "connection" in error.fault and "new engine" in error.remedy
        assert isinstance(error, ConnectionError) and isinstance(error, warpbell.WorldError)
    assert world.lost[0] == 1
    with warpbell.World.single(open_engine(), heap_bytes=1 << 24) as alone:
        alone.all_reduce(alone.zeros(1))
    print("found out")


def failed(how, place):
    """PE 1 ends by an exception."""
    engine = open_engine(deadline=100)
    world = join(how, engine, heap_bytes=1 << 24, timeout=100.0)
    if world.rank == 1:
        world.barrier()
        if place == "inside":
            with world:
                raise RuntimeError("of the program")
        raise RuntimeError("of the program")
    # PE 1 may be gone before this one sees that the first barrier has ended.
    error = fails(warpbell.LostPeError, "rank 1 is gone", lambda: [world.barrier(), world.barrier()])
    assert error.pe == 1
    print("found out")


def beside_nccl(how):
    """Each PE has a GPU. Calls of NCCL are in flight on it beside those of the world, on streams of their own."""
    import torch
    import torch.distributed as dist

    rank, size = map(int, how.split(":")[-2:])
    torch.cuda.set_device(rank)
    with join(how, warpbell.Engine(f"gpu:{rank}", deadline=100), heap_bytes=1 << 26, timeout=100.0) as world:
        assert (world.rank, world.size) == (rank, size)
        x, arrived = world.zeros((2, 1 << 20)), world.zeros(1, "uint64")
        shared, other = torch.from_dlpack(x), torch.ones(1 << 20, device="cuda")
        assert shared.device == torch.device("cuda", rank)
        for number in range(1, 21):
            # Of NCCL: runs while torch's stream pauses, and while the world's kernels wait for each other.
            other.fill_(number)
            waiting = dist.all_reduce(other, async_op=True)
            torch.cuda._sleep(20_000_000)
            shared[0].fill_(number + rank)
            world.all_reduce(shared[0])
            assert (shared[0] == size * number + sum(range(size))).all()
            waiting.wait()
            assert (other == size * number).all()
            # And one behind the other on torch's stream: put, then NCCL on what has come.
            sent = torch.full((1 << 20,), float(number + rank), device="cuda")
            world.put_signal(shared[1], sent, arrived, number, (rank + 1) % size)
            world.signal_wait(arrived, number)
            assert (shared[1] == number + (rank - 1) % size).all()
            dist.all_reduce(shared[1])
            assert (shared[1] == size * number + sum(range(size))).all()
            world.barrier()
        path = world.path
    dist.destroy_process_group()
    print(f"PE {rank} of {size} is done: {path}")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
