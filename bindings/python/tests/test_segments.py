"""Transfers between stored arrays and memory."""

import gc
import threading
import weakref

import numpy as np
import pytest
import warpbell
from conftest import MIB, Memory, open_engine

SOON = 60
BYTES = 300_000


class Stored:
    """A volume with the array `w`, and a queue."""

    def __init__(self, engine, device="soft:mem", **options):
        self.memory = Memory(engine)
        self.volume = warpbell.Volume.create(engine, device, 4 * MIB, **options)
        self.data = np.random.default_rng(3).integers(0, 256, BYTES).astype(np.uint8)
        self.volume.store("w", self.data)
        self.queue = warpbell.SegmentQueue(self.volume)


@pytest.fixture
def stored(engine):
    return Stored(engine)


def slow(engine, tmp_path, latency):
    """Stores an array in a file, and opens it with slow commands."""
    first = Stored(engine, f"soft:{tmp_path}/w.img")
    data = first.data
    del first
    gc.collect()
    volume = warpbell.Volume.open(engine, f"soft:{tmp_path}/w.img,latency={latency}")
    return volume, warpbell.SegmentQueue(volume), data


@pytest.mark.parametrize("offset, count", [(0, 16), (0, BYTES), (512, 4096), (1024, 4096 + 16), (299_520, 480), (BYTES // 512 * 512, 480)])
def test_bytes_of_an_array_are_loaded(stored, offset, count):
    into = stored.memory.of(np.full(count, 7, np.uint8))
    transfer = stored.queue.load("w", offset, into)
    assert transfer.finish(SOON) == count == transfer.finish() and transfer.is_ended()
    np.testing.assert_array_equal(stored.memory.numpy(into), stored.data[offset : offset + count])
    assert stored.volume.verify()["intact"]


@pytest.mark.parametrize("offset, count", [(0, 512), (1024, 8192), (BYTES // 512 * 512, 480), (0, BYTES)])
def test_bytes_of_an_array_are_stored(stored, offset, count):
    new = np.random.default_rng(count).integers(0, 1 << 32, count // 4).astype(np.uint32)
    assert stored.queue.store("w", offset, stored.memory.of(new)).finish(SOON) == count
    stored.volume.flush()
    expected = stored.data.copy()
    expected[offset : offset + count] = new.view(np.uint8)
    np.testing.assert_array_equal(stored.volume.load("w"), expected)
    assert stored.volume.arrays()[0]["changed"]
    stored.volume.accept_changes()
    assert stored.volume.verify()["intact"]


def test_an_array_of_odd_size_ends_with_zeros(stored):
    stored.volume.store("odd", np.arange(1, 1006, dtype=np.uint8))
    into = stored.memory.of(np.full(1008, 7, np.uint8))
    assert stored.queue.load("odd", 0, into).finish(SOON) == 1008
    np.testing.assert_array_equal(stored.memory.numpy(into)[-5:], [1004 % 256, 1005 % 256, 0, 0, 0])
    with pytest.raises(warpbell.InvalidError, match="which has 1005"):
        stored.queue.load("odd", 0, stored.memory.of(np.zeros(1024, np.uint8)))


def test_what_cannot_be_moved_is_refused(engine, stored):
    of = stored.memory.of
    create = warpbell.KvStore.create(stored.volume, "cache", bytes=MIB, objects=32)
    for name, offset, array, error, text in (
        ("other", 0, np.zeros(16, np.uint8), warpbell.NotFoundError, "no array `other`"),
        ("w", 8, np.zeros(16, np.uint8), warpbell.InvalidError, "multiple of 512"),
        ("w", 512, np.zeros(20, np.uint8), warpbell.InvalidError, "multiple of 16|whole blocks"),
        ("w", BYTES // 512 * 512, np.zeros(496, np.uint8), warpbell.InvalidError, "which has 300000"),
        ("w", 1 << 40, np.zeros(16, np.uint8), warpbell.InvalidError, "which has 300000"),
        ("w", (1 << 64) - 512, np.zeros(1024, np.uint8), warpbell.InvalidError, "which has 300000"),
        ("w", 0, np.zeros(0, np.uint8), warpbell.InvalidError, "no elements"),
    ):
        for move in (stored.queue.load, stored.queue.store):
            with pytest.raises(error, match=text):
                move(name, offset, of(array))
    with pytest.raises(OverflowError):
        stored.queue.load("w", -512, of(np.zeros(16, np.uint8)))
    with pytest.raises(warpbell.InvalidError, match="whole blocks of 512"):
        stored.queue.store("w", 0, of(np.zeros(528, np.uint8)))
    with pytest.raises(warpbell.InvalidError, match="belongs to a KV store"):
        stored.queue.store("cache:slab", 0, of(np.zeros(4096, np.uint8)))
    with pytest.raises(warpbell.InvalidError, match="C-contiguous"):
        stored.queue.load("w", 0, of(np.zeros((16, 16), np.uint8))[:, :8])
    with pytest.raises(TypeError, match="type bytes is no array"):
        stored.queue.store("w", 0, bytes(512))
    if engine.kind == "cpu":
        with pytest.raises(warpbell.InvalidError, match="into: it is read-only"):
            stored.queue.load("w", 0, np.broadcast_to(np.zeros(1, np.uint8), 1))
        with pytest.raises(warpbell.InvalidError, match="objects of Python"):
            stored.queue.load("w", 0, np.empty(16, object))
    assert create.verify() == []
    assert (stored.volume.load("w") == stored.data).all()


def late(tmp_path, deadline):
    """Stores an array in a file, and opens it so that a command of a block of the array gets no completion."""
    engine = open_engine()
    first = Stored(engine, f"soft:{tmp_path}/w.img")
    block, data = first.volume.arrays()[0]["offset"] // 512 + 3, first.data
    del first
    gc.collect()
    volume = warpbell.Volume.open(engine, f"soft:{tmp_path}/w.img,lose-completion={block}", deadline=deadline)
    return engine, volume, warpbell.SegmentQueue(volume), data


@pytest.mark.parametrize("drop", [False, True])
def test_an_array_keeps_its_place_while_a_transfer_runs(tmp_path, drop):
    engine, volume, queue, data = late(tmp_path, 2.5)
    into = Memory(engine).of(np.zeros(8192, np.uint8))
    loading = queue.load("w", 0, into)
    if drop:
        # This does not wait.
        del loading
    with pytest.raises(warpbell.UnsupportedError, match="data of array `w`.*finish the transfer first"):
        volume.remove("w")
    with pytest.raises(warpbell.UnsupportedError, match="data of array `w`"):
        volume.store("w", data[:1000], replace=True)
    # Others may come and go meanwhile.
    volume.store("other", data[:5000])
    volume.remove("other")
    if drop:
        # The end of the queue waits for its transfers.
        del queue
        gc.collect()
    else:
        assert not loading.is_ended()
        with pytest.raises(warpbell.TimeoutError):
            loading.finish(SOON)
    volume.remove("w")
    with pytest.raises(warpbell.NotFoundError, match="no array `w`"):
        warpbell.SegmentQueue(volume).load("w", 0, into)


def test_an_array_that_was_replaced_is_found_at_its_new_place(stored):
    into = stored.memory.of(np.zeros(512, np.uint8))
    for number in range(6):
        new = np.full(BYTES if number % 2 else 1000, number, np.uint8)
        stored.volume.store("w", new, replace=True)
        assert stored.queue.load("w", 512, into[:480]).finish(SOON) == 480
        assert (stored.memory.numpy(into)[:480] == number).all()
    stored.volume.remove("w")
    stored.volume.store("w", np.full(600, 9, np.uint8))
    assert stored.queue.load("w", 0, into).finish(SOON) == 512 and (stored.memory.numpy(into) == 9).all()


def test_a_queue_of_a_volume_that_holds_nothing(engine):
    volume = warpbell.Volume.create(engine, "soft:mem", MIB)
    queue, memory = warpbell.SegmentQueue(volume), Memory(engine)
    into = memory.of(np.zeros(512, np.uint8))
    with pytest.raises(warpbell.NotFoundError):
        queue.load("w", 0, into)
    volume.store("w", np.ones(512, np.uint8))
    assert queue.load("w", 0, into).finish(SOON) == 512


def test_memory_is_kept_until_the_transfer_has_ended(engine, tmp_path):
    volume, queue, data = slow(engine, tmp_path, "100ms")
    into = Memory(engine).of(np.zeros(4096, np.uint8))
    gone = weakref.ref(into)
    loading = queue.load("w", 0, into)
    del into
    gc.collect()
    assert gone() is not None
    loading.finish(SOON)
    gc.collect()
    volume.block_bytes, queue.volume
    loading.is_ended()
    assert gone() is None
    # A queue that is dropped waits for what it has begun.
    into = Memory(engine).of(np.zeros(4096, np.uint8))
    loading, other = queue.load("w", 0, into), warpbell.SegmentQueue(volume)
    del loading, queue
    gc.collect()
    np.testing.assert_array_equal(Memory(engine).numpy(into), data[:4096])
    assert other.load("w", 4096, into).finish(SOON) == 4096


def test_transfers_of_a_given_stream_follow_its_work(engine, stored):
    stream = engine.stream()
    queue = warpbell.SegmentQueue(stored.volume, stream=stream)
    into = stored.memory.of(np.zeros(BYTES, np.uint8))
    transfers = [queue.load("w", at, into[at : at + 51_200]) for at in range(0, 256_000, 51_200)]
    other = engine.stream()
    transfers[-1].wait_group(other)
    other.synchronize(SOON)
    stream.synchronize(SOON)
    assert all(transfer.is_ended() for transfer in transfers)
    assert [transfer.finish() for transfer in transfers] == [51_200] * 5
    np.testing.assert_array_equal(stored.memory.numpy(into)[:256_000], stored.data[:256_000])
    with pytest.raises(warpbell.InvalidError, match="group 1 of a transfer that has 1"):
        transfers[0].wait_group(other, 1)


def test_a_block_that_fails_is_named(engine, tmp_path):
    first = Stored(engine, f"soft:{tmp_path}/w.img")
    block = first.volume.arrays()[0]["offset"] // 512
    del first
    gc.collect()
    volume = warpbell.Volume.open(engine, f"soft:{tmp_path}/w.img,media-error={block + 3}")
    queue, memory = warpbell.SegmentQueue(volume), Memory(engine)
    for move in (queue.load, queue.store):
        transfer = move("w", 0, memory.of(np.zeros(4096, np.uint8)))
        for _ in range(2):
            with pytest.raises(warpbell.DeviceError) as caught:
                transfer.finish(SOON)
            assert block <= caught.value.lba <= block + 3 and "w.img" in caught.value.device
    assert queue.load("w", 4096, memory.of(np.zeros(4096, np.uint8))).finish(SOON) == 4096
    # An error of the device is no write that may still come.
    volume.remove("w")


def test_an_array_keeps_its_place_behind_a_device_that_did_not_reply(tmp_path):
    engine, volume, queue, data = late(tmp_path, 0.4)
    storing = queue.store("w", 0, Memory(engine).of(data[:4096].copy()))
    with pytest.raises(warpbell.TimeoutError):
        storing.finish(SOON)
    del queue, storing
    gc.collect()
    with pytest.raises(warpbell.UnsupportedError, match="a device did not reply"):
        volume.remove("w")
    del volume
    gc.collect()
    warpbell.Volume.open(engine, f"soft:{tmp_path}/w.img").remove("w")


def test_threads_move_parts_of_one_array(stored):
    into, wrong = stored.memory.of(np.zeros(BYTES, np.uint8)), []

    def work(thread):
        queue = stored.queue if thread % 2 else warpbell.SegmentQueue(stored.volume)
        for at in range(thread * 51_200, (thread + 1) * 51_200, 5120):
            if queue.load("w", at, into[at : at + 5120]).finish(SOON) != 5120:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    [thread.start() for thread in threads]
    for number in range(5):
        stored.volume.store(f"other{number}", stored.data[:1000])
    [thread.join(SOON) for thread in threads]
    assert wrong == []
    np.testing.assert_array_equal(stored.memory.numpy(into)[:256_000], stored.data[:256_000])
