"""KV stores on devices that fail or are slow, and calls that are interrupted."""

import os
import pathlib

import numpy as np
import pytest
import warpbell
from conftest import open_engine
from test_faults import run
from test_kv import SOON, Opened, key, keys, random_pages, stored_file


def test_damaged_data_is_a_value_and_the_others_are_there(engine, tmp_path):
    device = stored_file(engine, tmp_path)
    path = pathlib.Path(device.removeprefix("soft:"))
    whole, third = path.read_bytes(), b"".join(a[3].tobytes() for a in random_pages(1))
    assert whole.count(third) == 1
    with open(path, "r+b") as file:
        file.seek(whole.index(third) + 500)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    opened = Opened(engine, device)
    results = opened.store.load(opened.queue, keys(*range(8)), opened.other, list(range(8))).finish(SOON)
    assert results[:3] + results[4:] == [768] * 7
    assert isinstance(results[3], warpbell.DamagedError) and key(3).hex() in str(results[3])
    assert opened.store.verify() == keys(3)
    with pytest.raises(warpbell.DamagedError, match="delete the object"):
        opened.store.read(key(3))
    assert opened.store.delete(keys(3)) == 1 and opened.store.verify() == []
    np.testing.assert_array_equal(opened.found()[0][4:8], opened.arrays[0][4:8])


def test_a_block_that_cannot_be_read_is_a_value(engine, tmp_path):
    device = stored_file(engine, tmp_path)
    data = pathlib.Path(device.removeprefix("soft:")).read_bytes()
    block = data.index(b"".join(a[5].tobytes() for a in random_pages(1))) // 512
    opened = Opened(engine, f"{device},media-error=read:{block}")
    results = opened.store.load(opened.queue, keys(*range(8)), opened.other, list(range(8))).finish(SOON)
    assert results[:5] + results[6:] == [768] * 7
    error = results[5]
    assert isinstance(error, warpbell.DeviceError) and error.lba == block and "kv.img" in error.device
    assert error.operations[0].lba == block


def test_a_store_that_fails_shows_no_object(engine, tmp_path):
    device = stored_file(engine, tmp_path)
    data = pathlib.Path(device.removeprefix("soft:")).read_bytes()
    block = data.index(b"".join(a[7].tobytes() for a in random_pages(1))) // 512
    # The objects behind those that are there go to the next allocation units.
    opened = Opened(engine, f"{device},media-error=write:{block + 8}-{block + 100}")
    storing = opened.store.store(opened.queue, keys(20, 21), opened.tensors, [1, 2])
    for _ in range(2):
        with pytest.raises(warpbell.DeviceError) as caught:
            storing.finish(SOON)
        assert caught.value.lba >= block
    assert opened.store.lookup(keys(20, 21, 3)) == [None, None, 768]
    assert opened.store.stats()["pinned"] == 0


def test_a_device_is_free_after_an_error_that_was_raised(engine, tmp_path):
    device = stored_file(engine, tmp_path)

    def fail():
        opened = Opened(engine, f"{device},fail-flush=every:1")
        transfer = opened.store.store(opened.queue, keys(50), opened.tensors, [0])
        for _ in range(2):
            try:
                transfer.finish(SOON)
            except warpbell.Error as error:
                assert error.__traceback__ is not None
            else:
                raise AssertionError("nothing was raised")

    fail()
    # Frames of the exceptions have the transfer.
    Opened(engine, device)


def test_a_transfer_that_is_late_goes_on(engine, tmp_path):
    opened = Opened(engine, stored_file(engine, tmp_path) + ",latency=600ms")
    loading = opened.store.load(opened.queue, keys(*range(8)), opened.other, list(range(8)))
    assert not loading.is_ended() and "ended: false" in repr(loading)
    with pytest.raises(warpbell.TimeoutError, match="goes on"):
        loading.finish(0.05)
    assert opened.store.stats()["pinned"] == 8
    for timeout in (0, -1, float("nan")):
        with pytest.raises(warpbell.InvalidError, match="seconds above 0"):
            loading.finish(timeout)
    assert loading.finish(SOON) == [768] * 8 and loading.is_ended()
    np.testing.assert_array_equal(opened.found()[3][:8], opened.arrays[3][:8])
    assert opened.store.stats()["pinned"] == 0


def test_a_device_that_does_not_reply_is_a_value_within_the_deadline(tmp_path):
    engine = open_engine()
    device = stored_file(engine, tmp_path)
    data = pathlib.Path(device.removeprefix("soft:")).read_bytes()
    block = data.index(b"".join(a[2].tobytes() for a in random_pages(1))) // 512
    opened = Opened(engine, f"{device},lose-completion={block}", deadline=0.5)
    loading = opened.store.load(opened.queue, keys(1, 2), opened.other, [1, 2])
    with pytest.raises(warpbell.TimeoutError, match="goes on"):
        loading.finish(0.05)
    results = loading.finish(SOON)
    assert isinstance(results[1], warpbell.TimeoutError) and results[1].lba == block
    assert opened.store.read(key(1)).nbytes == 768


def test_a_transfer_is_cancelled_by_another_thread(tmp_path):
    engine = open_engine()
    opened = Opened(engine, stored_file(engine, tmp_path) + ",latency=1s", deadline=30)
    flying = [opened.store.load(opened.queue, keys(n), opened.other, [n]) for n in range(4)]
    engine.cancel()
    for transfer in flying:
        try:
            (result,) = transfer.finish(SOON)
        except warpbell.CancelledError:
            continue
        assert result == 768 or isinstance(result, warpbell.CancelledError)
    del flying, transfer
    # Nothing reads the objects of loads that did not run.
    assert opened.store.stats()["pinned"] == 0
    # The engine works again.
    assert opened.store.load(opened.queue, keys(1), opened.other, [9]).finish(SOON) == [768]
    assert opened.store.read(key(1)).nbytes == 768


def test_a_device_is_free_after_stores_that_were_stopped(tmp_path):
    engine = open_engine()
    device = stored_file(engine, tmp_path)
    opened = Opened(engine, device + ",latency=1s", deadline=30)
    flying = [opened.store.store(opened.queue, keys(40 + n), opened.tensors, [n]) for n in range(3)]
    engine.cancel()
    for transfer in flying:
        with pytest.raises(warpbell.CancelledError):
            transfer.finish(SOON)
    del flying, transfer
    volume, opened = opened.volume, None
    # A write may come late: nobody gets the space before the volume is opened again.
    with pytest.raises(warpbell.Error, match="is open already"):
        warpbell.KvStore.open(volume, "cache")
    del volume
    again = Opened(engine, device)
    assert again.store.stats()["pinned"] == 0 and again.store.lookup(keys(3, 40)) == [768, None]


def test_an_interrupt_ends_a_wait_and_the_engine_works(engine, tmp_path):
    program = """
        import os, signal, sys, threading, time
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from test_kv import Opened, keys
        from conftest import open_engine
        engine = open_engine(deadline=60)
        opened = Opened(engine, sys.argv[1] + "," + sys.argv[2], deadline=60)
        loading = opened.store.load(opened.queue, keys(2), opened.other, [0])
        def interrupt():
            time.sleep(1)
            interrupted.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        interrupted = []
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            loading.finish()
            print("not interrupted")
        except KeyboardInterrupt:
            print("after", time.monotonic() - interrupted[0])
        print(opened.store.load(opened.queue, keys(1), opened.other, [0]).finish(60))
        sys.stdout.flush()
        os._exit(0)
    """
    device = stored_file(engine, tmp_path)
    data = pathlib.Path(device.removeprefix("soft:")).read_bytes()
    block = data.index(b"".join(a[2].tobytes() for a in random_pages(1))) // 512
    done = run(program, device, f"lose-completion={block}")
    try:
        output, _ = done.communicate(timeout=120)
    finally:
        done.kill()
    lines = output.splitlines()
    assert len(lines) == 2 and lines[0].startswith("after") and lines[1] == "[768]", output
    assert float(lines[0].split()[1]) < 30, output
