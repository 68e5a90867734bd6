"""Devices that fail, lost commands, Ctrl-C, other processes, memory that is kept."""

import gc
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import warpbell
from conftest import MIB, open_engine

ROWS = np.arange(4096 * 128, dtype=np.float32).reshape(4096, 128)


def faulty(engine, tmp_path, fault, **options):
    """Stores rows of a block in a file, and opens it with a fault. Returns table, volume and the block of row 0."""
    path = tmp_path / "rows.img"
    volume = warpbell.Volume.create(engine, f"soft:{path}", 8 * MIB)
    warpbell.Table.from_numpy(volume, "t", ROWS)
    entry = next(e for e in volume.arrays() if e["name"] == "t:rows")
    first = entry["offset"] // volume.block_bytes
    del volume
    volume = warpbell.Volume.open(engine, f"soft:{path},{fault.format(first + 100)}", **options)
    return warpbell.Table.open(volume, "t"), volume, first


def test_a_block_that_cannot_be_read_is_named(engine, tmp_path):
    table, volume, first = faulty(engine, tmp_path, "media-error=read:{}")
    with pytest.raises(warpbell.DeviceError) as caught:
        table[90:110]
    error = caught.value
    assert error.lba == first + 100 and "rows.img" in error.device and "device error" in error.status
    assert error.operations[0].lba == first + 100 and error.operations[0].text in str(error)
    # Other rows are read, in the next call too.
    np.testing.assert_array_equal(table[[99, 101]].numpy(), ROWS[[99, 101]])
    flying = table.prefetch([100])
    with pytest.raises(warpbell.DeviceError):
        flying.take(30)


def test_a_lost_completion_raises_within_the_deadline(tmp_path):
    engine = open_engine()
    table, volume, first = faulty(engine, tmp_path, "lose-completion={}", deadline=0.5)
    begun = time.monotonic()
    with pytest.raises(warpbell.TimeoutError) as caught:
        table[100]
    assert time.monotonic() - begun < 30
    assert isinstance(caught.value, TimeoutError) and isinstance(caught.value, warpbell.DeviceError)
    assert caught.value.lba == first + 100 and caught.value.status == "timed out"
    np.testing.assert_array_equal(table[[0, 4095]].numpy(), ROWS[[0, 4095]])


def test_a_batch_that_is_late_is_stopped(tmp_path):
    table, _, _ = faulty(open_engine(), tmp_path, "lose-completion={}", deadline=60)
    flying = table.prefetch([100])
    assert not flying.is_ready()
    with pytest.raises(warpbell.TimeoutError, match="not there within 200ms, .* after its start"):
        flying.take(0.2)
    np.testing.assert_array_equal(table[3].numpy(), ROWS[3])


def test_a_call_is_cancelled_by_another_thread(tmp_path):
    engine = open_engine()
    table, _, _ = faulty(engine, tmp_path, "lose-completion={}", deadline=60)
    raised = []

    def gather():
        try:
            table[100]
        except warpbell.CancelledError as error:
            raised.append(error)

    thread = threading.Thread(target=gather)
    thread.start()
    flying = table.prefetch([100])
    time.sleep(0.3)
    engine.cancel()
    thread.join(30)
    assert len(raised) == 1
    with pytest.raises(warpbell.CancelledError):
        flying.take()
    np.testing.assert_array_equal(table[3].numpy(), ROWS[3])


def run(text, *arguments, **options):
    """Runs a program of Python in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


CALLS = {
    # A gather that waits for a completion that does not come.
    "gather": "table[100]",
    "take": "table.prefetch([100]).take()",
    # Kernel after kernel, each short.
    "algorithm": "warpbell.Graph.load(engine, 'kron:12').pagerank(tolerance=None, iterations=10**9)",
    # Work of the host.
    "generate": "warpbell.Graph.load(engine, 'kron:24', progress=lambda *told: None)",
    # A kernel that waits for another PE, and a wait on the host.
    "barrier": "(worlds := warpbell.World.local([engine, open_engine()], heap_bytes=1 << 24))[0].barrier()",
    "world": "(worlds := warpbell.World.local([engine, open_engine()], heap_bytes=1 << 24))[0].zeros(1)",
    "progress": "warpbell.Table.create(warpbell.Volume.create(engine, 'soft:mem', 1 << 30), 'z', 10**6, 128, progress=lambda *told: time.sleep(0.1))",
}


@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_ends_a_call_and_the_engine_works(tmp_path, call):
    program = """
        import pathlib, signal, sys, threading, time
        # Shells start background jobs with the signal ignored, and Python keeps it so.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        import numpy as np, warpbell
        from conftest import open_engine
        from test_faults import ROWS, faulty

        engine = open_engine(deadline=60)
        table, volume, _ = faulty(engine, pathlib.Path(sys.argv[1]), "lose-completion={}", deadline=60)
        def interrupt():
            time.sleep(1)
            interrupted.append(time.monotonic())
            import os
            os.kill(os.getpid(), signal.SIGINT)
        interrupted = []
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            CALL
            print("not interrupted")
        except KeyboardInterrupt:
            print("after", time.monotonic() - interrupted[0])
        np.testing.assert_array_equal(table[[1, 2]].numpy(), ROWS[[1, 2]])
        print("works")
        sys.stdout.flush()
        import os
        os._exit(0)
    """
    done = run(program.replace("CALL", CALLS[call]), tmp_path)
    try:
        output, _ = done.communicate(timeout=120)
    finally:
        done.kill()
    lines = output.splitlines()
    assert [line.split()[0] for line in lines] == ["after", "works"], output
    # It takes a second at most; more on machines that are busy, and a minute if the deadline had ended the call.
    assert float(lines[0].split()[1]) < 30, output


def test_a_forked_child_is_refused_with_a_sentence(table):
    own = open_engine()
    volume = warpbell.Volume.create(own, "soft:mem", MIB)
    world = warpbell.World.single(own, heap_bytes=1 << 24)
    symmetric = world.zeros(10)
    dropped = [own, volume, warpbell.Cache(volume, 1 << 16), own.stream(), table[:3], table.prefetch([1])]
    dropped += [world, symmetric, symmetric[1:], world.team]
    del own, volume
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        # A child that waits for threads of its parent is ended by this.
        signal.alarm(60)
        try:
            dropped.clear()
            gc.collect()
            uses = (lambda: table[0], lambda: open_engine(), lambda: table.view(), world.barrier, world.close, symmetric.numpy)
            for use in uses:
                try:
                    use()
                except warpbell.ForkError as error:
                    os.write(write, f"{error}\n".encode())
                    status = 0
        finally:
            os._exit(status)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read) as told:
        lines = told.read().splitlines()
    assert status == 0 and len(lines) == 6
    world.all_reduce(symmetric)
    assert all('get_context("spawn")' in line and f"forked from process {os.getpid()}" in line for line in lines)
    assert table[0].shape == (32,)


def gather_in_child(path, row):
    engine = open_engine()
    volume = warpbell.Volume.open(engine, f"soft:{path}", read_only=True)
    return os.getpid(), warpbell.Table.open(volume, "t")[row].numpy()


def test_spawned_processes_read_rows(engine, tmp_path):
    volume = warpbell.Volume.create(engine, f"soft:{tmp_path}/rows.img", 8 * MIB)
    warpbell.Table.from_numpy(volume, "t", ROWS)
    volume.flush()
    del volume
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(gather_in_child, [(tmp_path / "rows.img", row) for row in (3, 99)])
    for (pid, row), number in zip(found, (3, 99)):
        assert pid != os.getpid()
        np.testing.assert_array_equal(row, ROWS[number])


def test_threads_gather_at_the_same_time(table, vectors):
    wrong = []

    def gather(seed):
        choose = np.random.default_rng(seed)
        for _ in range(20):
            indices = choose.integers(0, 5000, 50)
            if not (table[indices].numpy() == vectors[indices]).all():
                wrong.append(seed)

    threads = [threading.Thread(target=gather, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    gather(9)
    [thread.join() for thread in threads]
    assert wrong == []


def test_other_threads_run_while_a_call_waits(tmp_path):
    table, _, _ = faulty(open_engine(), tmp_path, "lose-completion={}", deadline=1.5)
    counted, over = [0], threading.Event()

    def count():
        while not over.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    with pytest.raises(warpbell.TimeoutError):
        table[100]
    over.set()
    thread.join()
    assert counted[0] > 5


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_ten_thousand_calls_keep_no_memory(engine, table, vectors):
    # numpy takes no memory of a GPU.
    from_dlpack = np.from_dlpack if engine.kind == "cpu" else pytest.importorskip("torch").from_dlpack
    indices = np.arange(64)
    out = np.empty((64, 32), np.float32)

    def once(number):
        rows = table[indices]
        from_dlpack(rows)
        table.gather(indices, out)
        if number % 10 == 0:
            table.prefetch(indices).take().numpy()
            rows.__dlpack__()
            with pytest.raises(warpbell.RowIndexError):
                table[[1, 5000]]

    for number in range(1000):
        once(number)
    before = resident()
    for number in range(5000):
        once(number)
    # 64 rows have 8 KiB: calls that kept them would keep 40 MiB.
    assert resident() - before < 16 * MIB
