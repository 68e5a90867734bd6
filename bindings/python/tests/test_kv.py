"""KV stores: objects of the host, pages of tensors, and what is refused or fails."""

import gc
import itertools
import os
import pathlib
import random
import re
import signal
import threading
import time
import weakref

import numpy as np
import pytest
import warpbell
from conftest import MIB, Memory, open_engine
from test_faults import resident, run

PAGES = 24
SOON = 60


def key(number, size=32):
    return number.to_bytes(size, "little")


def keys(*numbers):
    return [key(number) for number in numbers]


def create(volume, **options):
    return warpbell.KvStore.create(volume, "cache", **{"bytes": 4 * MIB, "objects": 256, **options})


def random_pages(seed, tensors=4, shape=(PAGES, 3, 32), dtype=np.uint16):
    """Returns arrays of pages, of 192 bytes each."""
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 1 << 16, shape).astype(dtype) for _ in range(tensors)]


class Opened:
    """A store with a queue, and tensors in memory of the engine."""

    def __init__(self, engine, device, *, create_bytes=None, seed=1, **options):
        self.memory = Memory(engine)
        if create_bytes:
            self.volume = warpbell.Volume.create(engine, device, create_bytes, **options)
            self.store = create(self.volume)
        else:
            self.volume = warpbell.Volume.open(engine, device, **options)
            self.store = warpbell.KvStore.open(self.volume, "cache")
        self.queue = warpbell.SegmentQueue(self.volume)
        self.arrays = random_pages(seed)
        self.tensors = [self.memory.of(array.copy()) for array in self.arrays]
        self.other = [self.memory.of(np.zeros_like(array)) for array in self.arrays]

    def found(self):
        return [self.memory.numpy(tensor) for tensor in self.other]


@pytest.fixture
def opened(engine):
    return Opened(engine, "soft:mem", create_bytes=16 * MIB)


def stored_file(engine, tmp_path, objects=8):
    """Stores objects 0, 1 and so on, of the pages of these numbers, in a file."""
    device = f"soft:{tmp_path}/kv.img"
    opened = Opened(engine, device, create_bytes=16 * MIB)
    numbers = range(objects)
    stored = opened.store.store(opened.queue, keys(*numbers), opened.tensors, list(numbers))
    assert stored.finish(SOON) == [4 * 192] * objects
    return device


@pytest.mark.parametrize("device", ["soft:mem", "soft:{}/kv.img"])
def test_a_store_is_as_a_dict(engine, tmp_path, device):
    device, choose = device.format(tmp_path), random.Random(5)
    opened, expected = Opened(engine, device, create_bytes=16 * MIB), {}
    for step in range(120):
        some = [key(n) for n in choose.sample(range(40), choose.randint(1, 8))]
        action = choose.choice(["write", "store", "delete", "load", "read", "reopen"])
        if action == "write":
            data = [np.random.default_rng(step).bytes(choose.choice([1, 100, 5000, 20_000])) for _ in some]
            opened.store.write(zip(some, data))
            expected.update(zip(some, data))
        elif action == "store":
            pages = choose.sample(range(PAGES), len(some))
            assert opened.store.store(opened.queue, some, opened.tensors, pages).finish(SOON) == [768] * len(some)
            expected.update((k, b"".join(a[p].tobytes() for a in opened.arrays)) for k, p in zip(some, pages))
        elif action == "delete":
            assert opened.store.delete(some) == sum(k in expected for k in some)
            [expected.pop(k, None) for k in some]
        elif action == "load":
            some = [k for k in some if len(expected.get(k, b"." * 768)) == 768]
            pages = choose.sample(range(PAGES), len(some))
            results = opened.store.load(opened.queue, some, opened.other, pages).finish(SOON)
            found = opened.found()
            for k, page, result in zip(some, pages, results):
                if k not in expected:
                    assert isinstance(result, warpbell.NotFoundError) and k.hex() in str(result)
                else:
                    assert result == 768 and b"".join(a[page].tobytes() for a in found) == expected[k]
        elif action == "reopen" and device != "soft:mem":
            del opened
            gc.collect()
            opened = Opened(engine, device)
        everything = [key(n) for n in range(40)]
        assert opened.store.lookup(everything) == [len(expected[k]) if k in expected else None for k in everything]
        assert opened.store.prefix(everything) == next((n for n in range(40) if key(n) not in expected), 40)
        assert len(opened.store) == len(expected)
        for k in some:
            if k in expected:
                data = opened.store.read(k)
                assert data.dtype == np.uint8 and data.tobytes() == expected[k]
    assert opened.store.verify() == [] and opened.volume.verify()["intact"]
    assert opened.store.take_evictions() == []


def test_properties_and_lists_of_stores(volume):
    store = create(volume, bytes=10_000, objects=33, key_bytes=16)
    assert (store.name, store.volume, store.bytes, store.objects, store.key_bytes) == ("cache", volume, 12_288, 64, 16)
    assert repr(store) == "KvStore(cache, 0 objects)"
    (listed,) = volume.kv_stores()
    assert listed["name"] == "cache" and listed["error"] is None
    assert (listed["bytes"], listed["objects"], listed["key_bytes"]) == (12_288, 64, 16)
    with pytest.raises(warpbell.ExistsError, match="nothing was written"):
        create(volume)
    with pytest.raises(warpbell.Error, match="open already"):
        warpbell.KvStore.open(volume, "cache")
    with pytest.raises(warpbell.Error, match="open already"):
        volume.remove_kv_store("cache")
    with pytest.raises(warpbell.NotFoundError, match="there is `cache`"):
        warpbell.KvStore.open(volume, "other")
    with pytest.raises(warpbell.InvalidError, match="16 or 32"):
        warpbell.KvStore.create(volume, "other", bytes=MIB, objects=10, key_bytes=20)
    del store
    volume.remove_kv_store("cache")
    assert volume.kv_stores() == [] and volume.arrays() == []


def test_objects_that_were_not_used_for_longest_are_evicted(volume):
    store = create(volume, bytes=16 * 4096, objects=32)
    for number in range(16):
        store.write([(key(number), b"x" * 4096)])
    store.touch(keys(0, 1))
    store.write([(key(100), bytes(4096 * 2))])
    assert store.take_evictions() == keys(2, 3) and store.take_evictions() == []
    stats = store.stats()
    assert (stats["evictions"], stats["objects"], stats["free_bytes"]) == (2, 15, 0)
    store.read(key(0))
    assert store.lookup(keys(1, 2)) == [4096, None]
    # A read counts once.
    assert (store.stats()["hits"], store.stats()["misses"]) == (2, 1)
    with pytest.raises(warpbell.SpaceError, match="no space|1 to 65536"):
        store.write([(key(n), bytes(4096)) for n in range(200, 217)])


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("groups", [None, [2, 0, 1, 0]])
def test_objects_have_the_pages_of_each_tensor_in_turn(engine, volume, memory, each, alike, groups):
    arrays = random_pages(3)
    if not alike:
        arrays[1], arrays[3] = arrays[1].reshape(PAGES // 2, 6, 32), arrays[3].astype(np.float64)
    count, choose = min(map(len, arrays)), np.random.default_rng(each)
    wanted = [tuple(int(n) for n in choose.permutation(count)[:each]) for _ in range(4)]
    # Pages one behind the other become one segment.
    wanted[1] = tuple(range(4, 4 + each))
    names, queue = keys(*range(4)), warpbell.SegmentQueue(volume, multiprocessors=1, in_flight=1, command_bytes=4096)
    store = create(volume)
    pages = np.array(wanted, np.int32) if each > 1 else [n for (n,) in wanted]
    tensors = [memory.of(array) for array in arrays]
    stored = store.store(queue, names, tensors, pages, groups=groups)
    bytes_of = each * sum(a[0].nbytes for a in arrays)
    assert stored.finish(SOON) == [bytes_of] * 4
    for name, numbers in zip(names, wanted):
        assert store.read(name).tobytes() == b"".join(a[n].tobytes() for a in arrays for n in numbers)
    # Into other pages, behind a wait of another stream for each group.
    places = choose.permutation(count)[: 4 * each].reshape(4, each)[:, ::-1]
    if 4 * each > count:
        return
    other = [memory.of(np.zeros_like(a)) for a in arrays]
    loaded = store.load(queue, names, other, places if each > 1 else places[:, 0], groups=groups)
    stream = engine.stream()
    last = 3 if groups is None else 2
    for group in range(last + 1):
        loaded.wait_group(stream, group)
    with pytest.raises(warpbell.InvalidError, match=f"group {last + 1} of a transfer that has {last + 1}"):
        loaded.wait_group(stream, last + 1)
    stream.synchronize(SOON)
    assert loaded.finish(SOON) == [bytes_of] * 4 and loaded.is_ended()
    loaded.wait_group(stream, 0)
    untouched = np.ones(count, bool)
    for name, numbers, place in zip(names, wanted, places):
        untouched[place] = False
        for array, tensor in zip(arrays, other):
            np.testing.assert_array_equal(memory.numpy(tensor)[place], array[list(numbers)])
    assert all((memory.numpy(tensor)[:count][untouched] == 0).all() for tensor in other)


def test_transfers_follow_each_other_and_results_stay(opened):
    flying, memory = [], [weakref.ref(tensor) for tensor in opened.tensors]
    for round_ in range(10):
        flying.append(opened.store.store(opened.queue, keys(*range(8)), opened.tensors, [(n + round_) % PAGES for n in range(8)]))
        flying.append(opened.store.load(opened.queue, keys(99), opened.other, [round_]))
    for transfer in flying:
        first, second = transfer.finish(SOON), transfer.finish()
        assert first == second and first is not second and first[-1] is second[-1]
    # The engine is idle, and keeps nothing.
    assert opened.volume.verify()["intact"]
    opened.tensors = None
    gc.collect()
    opened.store.lookup(keys(1))
    assert [reference() for reference in memory] == [None] * 4
    loaded = opened.store.load(opened.queue, keys(*range(8)), opened.other, list(range(8)))
    assert loaded.finish(SOON) == [768] * 8
    np.testing.assert_array_equal(opened.found()[0][:8], opened.arrays[0][9:17])


def test_a_call_without_keys_moves_nothing(engine, opened):
    assert opened.store.load(opened.queue, [], opened.other, []).finish(SOON) == []
    assert opened.store.store(opened.queue, [], opened.tensors, np.zeros(0, np.int64)).finish(SOON) == []
    loading = opened.store.load(opened.queue, keys(1, 2), opened.other, [0, 1])
    # What is not there is no reason to wait, and the model's stream finds the groups that it asks for.
    for group in range(4):
        loading.wait_group(engine.stream(), group)
    with pytest.raises(warpbell.InvalidError, match="group 4 of a transfer that has 4"):
        loading.wait_group(engine.stream(), 4)
    absent = loading.finish(SOON)
    assert [type(result) for result in absent] == [warpbell.NotFoundError] * 2
    assert opened.store.lookup([]) == [] and opened.store.prefix([]) == 0 and opened.store.delete(iter([])) == 0


REFUSED = {
    "a key of another size": (lambda o: dict(keys=[key(1, 16)]), warpbell.InvalidError, "keys of 32 bytes, not 16"),
    "a key of no size": (lambda o: dict(keys=[b"short"]), warpbell.InvalidError, "5 bytes are no key"),
    "a text": (lambda o: dict(keys=["a" * 32]), TypeError, "bytes, not str"),
    "a single key": (lambda o: dict(keys=key(1)), TypeError, "a list of keys"),
    "no iterable": (lambda o: dict(keys=5), TypeError, "iterable"),
    "a negative page": (lambda o: dict(pages=[-1]), warpbell.InvalidError, "page -1 of key 0, and the tensors have 24 pages"),
    "a page beyond": (lambda o: dict(keys=keys(0, 1), pages=[[0], [24]]), warpbell.InvalidError, "page 24 of key 1"),
    "too few pages": (lambda o: dict(keys=keys(0, 1), pages=[1]), warpbell.InvalidError, "there are 2 keys"),
    "no pages": (lambda o: dict(pages=np.zeros((1, 0), np.int64)), warpbell.InvalidError, "there are 1 keys"),
    "pages that are no integers": (lambda o: dict(pages=[0.5]), warpbell.InvalidError, "give integers"),
    "no tensors": (lambda o: dict(tensors=[]), warpbell.InvalidError, "no tensors"),
    "rows apart": (lambda o: dict(tensors=[o.other[0][:, :2]]), warpbell.InvalidError, r"tensors\[0\]: .*C-contiguous"),
    "an empty tensor": (lambda o: dict(tensors=[o.other[0][:0]]), warpbell.InvalidError, "no elements"),
    "a number": (lambda o: dict(tensors=[o.memory.of(np.ones((), np.complex128))]), warpbell.InvalidError, "single number"),
    "small pages": (lambda o: dict(tensors=[o.other[0].reshape(-1, 4)]), warpbell.InvalidError, "pages of 8 bytes"),
    "a list": (lambda o: dict(tensors=[[[0] * 32] * 24]), TypeError, "type list is no array"),
    "too few groups": (lambda o: dict(groups=[0]), warpbell.InvalidError, "1 groups for 4 tensors"),
    "too large a group": (lambda o: dict(groups=[0, 0, 0, 1 << 16]), warpbell.InvalidError, "65536 groups"),
    "a negative group": (lambda o: dict(groups=[0, 0, 0, -1]), OverflowError, "groups"),
    "objects of another size": (lambda o: dict(tensors=o.other[:3]), warpbell.InvalidError, "key 0, .* has 768 bytes, and its memory 576"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_loaded_is_refused(opened, what):
    opened.store.store(opened.queue, keys(0, 1), opened.tensors, [0, 1]).finish(SOON)
    change, error, text = REFUSED[what]
    arguments = {"keys": keys(0), "tensors": opened.other, "pages": [0], **change(opened)}
    with pytest.raises(error, match=text):
        opened.store.load(opened.queue, **arguments)
    assert opened.store.load(opened.queue, keys(0), opened.other, [5]).finish(SOON) == [768]
    assert opened.store.stats()["pinned"] == 0


def test_what_cannot_be_stored_is_refused(opened):
    store = opened.store
    for change, error, text in (
        (dict(keys=keys(1, 1), pages=[0, 1]), warpbell.InvalidError, "given twice"),
        (dict(keys=[key(1, 16)]), warpbell.InvalidError, "keys of 32 bytes, not 16"),
        (dict(pages=[24]), warpbell.InvalidError, "give 0 to 23"),
    ):
        with pytest.raises(error, match=text):
            store.store(opened.queue, **{"keys": keys(1), "tensors": opened.tensors, "pages": [0], **change})
    for objects, error, text in (
        ([(key(1), b"")], warpbell.InvalidError, "object of 0 bytes"),
        ([(key(1), b"x"), (key(1), b"y")], warpbell.InvalidError, "given twice"),
        ([(key(1), np.array([object()]))], TypeError, "not numbers"),
        ([(key(1), np.zeros(3, [("a", "O")]))], warpbell.InvalidError, "cannot be stored"),
        ([key(1)], TypeError, "tuple"),
    ):
        with pytest.raises(error, match=text):
            store.write(objects)
    assert len(store) == 0 and store.stats()["pinned"] == 0


def test_memory_that_must_not_be_written_to_is_refused(engine, opened):
    if engine.kind == "gpu":
        with pytest.raises(warpbell.InvalidError, match="memory of the host, and kernels run on a GPU"):
            opened.store.load(opened.queue, keys(0), opened.arrays, [0])
        return
    fixed = [np.zeros_like(array) for array in opened.arrays]
    fixed[2].setflags(write=False)
    with pytest.raises(warpbell.InvalidError, match=r"tensors\[2\]: it is read-only"):
        opened.store.load(opened.queue, keys(0), fixed, [0])
    assert opened.store.store(opened.queue, keys(0), fixed, [0]).finish(SOON) == [768]
    objects = np.empty((4, 2), object)
    nested = np.zeros((4, 2), [("a", "O"), ("b", "i8")])
    for of_python in (objects, nested):
        with pytest.raises(warpbell.InvalidError, match="objects of Python"):
            opened.store.load(opened.queue, keys(0), [of_python], [0])
    raw = np.zeros(4 * 32 + 8, np.uint8)
    offset = next(n for n in range(1, 17) if (raw.ctypes.data + n) % 16 == 4)
    with pytest.raises(warpbell.InvalidError, match="multiples of 16"):
        opened.store.load(opened.queue, keys(0), [raw[offset : offset + 64].reshape(4, 16)], [0])


def test_a_queue_of_another_volume_is_refused(engine, opened):
    other = Opened(engine, "soft:mem", create_bytes=16 * MIB)
    with pytest.raises(warpbell.InvalidError, match="make a queue for the store's volume"):
        opened.store.load(other.queue, keys(0), opened.other, [0])
    with pytest.raises(warpbell.InvalidError, match="make a queue for the store's volume"):
        opened.store.store(other.queue, keys(0), opened.tensors, [0])
    assert opened.store.stats()["pinned"] == 0
    with pytest.raises(warpbell.InvalidError, match="another engine"):
        warpbell.SegmentQueue(opened.volume, stream=open_engine().stream())
    for options in (dict(in_flight=0), dict(in_flight=1000), dict(command_bytes=0), dict(multiprocessors=0)):
        with pytest.raises(warpbell.InvalidError):
            warpbell.SegmentQueue(opened.volume, **options)
    assert opened.queue.volume is opened.volume


@pytest.mark.parametrize("order", list(itertools.permutations(["transfer", "queue", "store", "volume"])))
def test_objects_are_dropped_in_any_order_while_a_transfer_runs(engine, tmp_path, order):
    opened = Opened(engine, stored_file(engine, tmp_path) + ",latency=30ms")
    # A transfer of another queue goes on beside it.
    bystander = Opened(engine, "soft:mem", create_bytes=16 * MIB)
    bystander.store.write([(key(1), bytes(768))])
    held = {
        "queue": opened.queue,
        "volume": opened.volume,
        "store": opened.store,
        "transfer": opened.store.load(opened.queue, keys(*range(4)), opened.other, list(range(4))),
    }
    if order[0] == "queue":
        held["transfer"] = [held["transfer"], opened.store.store(opened.queue, keys(30), opened.tensors, [0])]
    opened.queue = opened.volume = opened.store = opened.tensors = opened.other = None
    beside = bystander.store.load(bystander.queue, keys(1), bystander.other, [0])
    for name in order:
        del held[name]
        gc.collect()
    assert beside.finish(SOON) == [768]
    # The file is free again once all of them are gone.
    assert len(Opened(engine, f"soft:{tmp_path}/kv.img").store) == 8


def test_threads_store_and_load_at_the_same_time(engine, opened):
    wrong = []

    def work(thread):
        queue = warpbell.SegmentQueue(opened.volume) if thread % 2 else opened.queue
        tensors = [opened.memory.of(array) for array in random_pages(100 + thread)]
        for round_ in range(8):
            names, pages = keys(*range(thread * 10, thread * 10 + 5)), [(n + round_) % PAGES for n in range(5)]
            stored = opened.store.store(queue, names, tensors, pages).finish(SOON)
            other = [opened.memory.of(np.zeros_like(array)) for array in opened.arrays]
            loading = opened.store.load(queue, names, other, list(range(5)))
            loaded = loading.finish(SOON)
            same = all((opened.memory.numpy(b)[:5] == opened.memory.numpy(a)[pages]).all() for a, b in zip(tensors, other))
            if not (same and stored == loaded == [768] * 5):
                wrong.append((thread, round_, stored, loaded))

    def checked(thread):
        try:
            work(thread)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=checked, args=(n,)) for n in range(4)]
    [thread.start() for thread in threads]
    checked(9)
    [thread.join(120) for thread in threads]
    assert wrong == [] and len(opened.store) == 25


def test_threads_finish_one_transfer(engine, tmp_path):
    opened = Opened(engine, stored_file(engine, tmp_path) + ",latency=50ms")
    storing = opened.store.store(opened.queue, keys(40, 41), opened.tensors, [0, 1])
    results = []
    threads = [threading.Thread(target=lambda: results.append(storing.finish(SOON))) for _ in range(6)]
    [thread.start() for thread in threads]
    results.append(storing.finish(SOON))
    [thread.join(60) for thread in threads]
    assert results == [[768, 768]] * 7 and len(opened.store) == 10


def test_threads_that_look_see_no_early_end(engine, tmp_path):
    opened = Opened(engine, stored_file(engine, tmp_path) + ",latency=500ms")
    begun, seen = time.monotonic(), []
    loading = opened.store.load(opened.queue, keys(3), opened.other, [0])

    def look():
        while not loading.is_ended():
            pass
        seen.append(time.monotonic() - begun)

    threads = [threading.Thread(target=look) for _ in range(4)]
    [thread.start() for thread in threads]
    # Shorter waits give up, and the transfer goes on.
    for _ in range(3):
        with pytest.raises(warpbell.TimeoutError, match="goes on"):
            loading.finish(0.05)
    [thread.join(60) for thread in threads]
    assert len(seen) == 4 and min(seen) >= 0.5, seen
    assert loading.finish(SOON) == [768]


def test_a_stream_that_waits_may_be_dropped(engine, tmp_path):
    opened = Opened(engine, stored_file(engine, tmp_path) + ",latency=100ms")
    storing = opened.store.store(opened.queue, keys(40), opened.tensors, [0])
    loading = opened.queue.load("cache:slab", 0, opened.other[0])
    storing.wait_group(engine.stream(), 0)
    loading.wait_group(engine.stream())
    gc.collect()
    assert storing.finish(SOON) == [768] and loading.finish(SOON) == opened.other[0].nbytes
    assert opened.store.lookup(keys(40)) == [768]
    del storing, loading, opened
    gc.collect()
    # The engine is idle: it can be stopped, and works again.
    engine.cancel()
    assert Opened(engine, f"soft:{tmp_path}/kv.img").store.lookup(keys(40)) == [768]


@pytest.mark.parametrize("stores", [False, True])
def test_a_store_keeps_its_place_while_a_transfer_runs(engine, tmp_path, stores):
    opened = Opened(engine, stored_file(engine, tmp_path) + ",latency=100ms")
    volume = opened.volume
    # They follow each other, and take longer than the volume, which reads its manifest.
    if stores:
        moving = [opened.store.store(opened.queue, keys(40 + n), opened.tensors, [0]) for n in range(20)]
    else:
        moving = [opened.store.load(opened.queue, keys(3), opened.other, [0]) for _ in range(20)]
    with pytest.raises(warpbell.UnsupportedError, match="data of array `cache:slab`"):
        volume.remove("cache:slab")
    assert [transfer.finish(SOON) for transfer in moving] == [[768]] * 20
    volume.remove("cache:slab")
    for start in (opened.store.load, opened.store.store):
        with pytest.raises(warpbell.InvalidError, match="was removed from its volume"):
            start(opened.queue, keys(3), opened.tensors, [0])
    assert opened.store.stats()["pinned"] == 0


def test_a_forked_child_is_refused_and_ends(engine, tmp_path):
    opened = Opened(engine, stored_file(engine, tmp_path) + ",latency=50ms")
    flying = opened.store.load(opened.queue, keys(1), opened.other, [0])
    uses = {
        "lookup": lambda: opened.store.lookup(keys(1)),
        "read": lambda: opened.store.read(key(1)),
        "load": lambda: opened.store.load(opened.queue, keys(1), opened.other, [0]),
        "store": lambda: opened.store.store(opened.queue, keys(1), opened.tensors, [0]),
        "finish": flying.finish,
        "ended": flying.is_ended,
        "array": lambda: opened.queue.load("cache:slab", 0, opened.other[0]),
    }
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            for name, use in uses.items():
                try:
                    use()
                except warpbell.ForkError:
                    os.write(write, f"{name}\n".encode())
            uses.clear()
            del flying, opened, use
            gc.collect()
            os.write(write, b"dropped\n")
        finally:
            os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read) as told:
        assert status == 0 and told.read().split() == [*uses, "dropped"]
    assert flying.finish(SOON) == [768]


def test_a_program_ends_while_transfers_run(engine, tmp_path):
    program = """
        import sys
        from test_kv import Opened, keys
        from conftest import open_engine
        opened = Opened(open_engine(), sys.argv[1] + ",latency=100ms")
        flying = [opened.store.load(opened.queue, keys(n), opened.other, [n]) for n in range(5)]
        storing = opened.store.store(opened.queue, keys(50), opened.tensors, [0])
        print("end", flush=True)
    """
    device = stored_file(engine, tmp_path)
    done = run(program, device)
    try:
        output, _ = done.communicate(timeout=120)
    finally:
        done.kill()
    assert done.returncode == 0 and output == "end\n", output
    # What was not finished is not there.
    assert Opened(engine, device).store.lookup(keys(1, 50)) == [768, None]


def test_a_large_request_is_listed_quickly(engine, volume, memory):
    store = create(volume, bytes=8 * MIB, objects=2048)
    queue, arrays = warpbell.SegmentQueue(volume), [memory.of(np.zeros((2048, 16), np.uint8)) for _ in range(64)]
    names = keys(*range(1024))
    assert store.store(queue, names, arrays, list(range(1024))).finish(SOON) == [1024] * 1024
    begun = time.monotonic()
    loading = store.load(queue, names, arrays, np.arange(1024))
    listed = time.monotonic() - begun
    assert loading.finish(SOON) == [1024] * 1024
    # It takes two milliseconds, and fifty on machines that are busy; pages as objects of Python would take a second.
    assert listed < 0.5, listed


def test_thousands_of_calls_keep_no_memory(opened):
    names, pages = keys(*range(8)), list(range(8))
    before = transfer = None
    for number in range(1500):
        if number == 300:
            before = resident()
        # The next one is on its way before this one is finished: the stream is never idle.
        last, transfer = transfer, opened.store.store(opened.queue, names, [t[:] for t in opened.tensors], pages)
        if last is not None:
            assert last.finish(SOON) == [768] * 8
        if number % 2:
            last, transfer = transfer, opened.store.load(opened.queue, names, [t[:] for t in opened.other], pages)
            assert last.finish(SOON) == [768] * 8
        if number % 50 == 0:
            with pytest.raises(warpbell.InvalidError):
                opened.store.load(opened.queue, names, opened.other, [99] * 8)
    transfer.finish(SOON)
    # Each call has arrays, lists and outcomes of about 10 KiB: calls that kept them would keep 12 MiB.
    assert resident() - before < 6 * MIB


def test_the_manual_shows_what_works(engine, memory):
    manual = pathlib.Path(__file__).resolve().parents[3] / "docs" / "kv-store.md"
    (block,) = re.findall(r"```python\n(.*?)```\n", manual.read_text(), re.S)
    arrays = random_pages(4)
    names = {
        "warpbell": warpbell,
        "engine": engine,
        "device": "soft:mem",
        "keys": keys(*range(5)),
        "layers": [memory.of(array.copy()) for array in arrays],
        "pages": [3, 1, 4, 0, 5],
        "places": [9, 10, 11, 12, 13],
        "compute": engine.stream(),
    }
    exec(compile(block, str(manual), "exec"), names)
    names["compute"].synchronize(SOON)
    assert names["known"] == 5 and names["results"] == [768] * 5
    for array, tensor in zip(arrays, names["layers"]):
        np.testing.assert_array_equal(memory.numpy(tensor)[9:14], array[[3, 1, 4, 0, 5]])
