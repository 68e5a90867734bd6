"""The plug-in for vLLM, driven as its scheduler and its workers drive it."""

import random

import pytest
import warpbell
from conftest import MIB
from vllm_server import (
    LAYERS,
    PAGE,
    PAGES,
    LookupResult,
    ReqContext,
    Server,
    WarpbellSpec,
    blocks_of_slab,
    bytes_of,
    config_of,
    keys_of,
    make_offload_key,
    start_load,
)
from warpbell.vllm import _keys


@pytest.mark.parametrize("ranks", [1, 2])
def test_blocks_come_back_into_other_pages_also_after_a_restart(engine, tmp_path, ranks):
    keys = keys_of(10)
    server = Server(engine, tmp_path, ranks=ranks)
    assert server.lookup(keys) == [LookupResult.MISS] * 10
    server.fill(range(10), 1)
    stored = server.content(range(10))
    job = server.begin_store(keys, range(10))
    assert server.lookup(keys) == [LookupResult.HIT_PENDING] * 10
    assert server.begin_store(keys, range(10)) is None
    server.end(job)
    server.manager.complete_store(set(keys), server.context)
    assert all(server.hits(keys)) and not any(server.hits(keys_of(3, seed=1)))
    pages = random.Random(5).sample(range(10, PAGES), 10)
    assert server.load(keys, pages) == set() and server.content(pages) == stored
    server.close()
    server = Server(engine, tmp_path, ranks=ranks, run="another")
    assert all(server.hits(keys))
    assert server.load(keys[3:7], pages[:4]) == set()
    assert server.content(pages[:4]) == [stored[rank * 10 + i] for rank in range(ranks) for i in range(3, 7)]
    server.close()
    # Of another model nothing is found.
    server = Server(engine, tmp_path, ranks=ranks, model="other")
    assert not any(server.hits(keys))
    server.close()


def test_nothing_is_found_or_stored_before_all_workers_have_opened_their_stores(engine, tmp_path):
    server = Server(engine, tmp_path, ranks=2, run="one")
    server.store(keys_of(2), [0, 1])
    server.close()
    # The log of a worker that has not begun is one of the last engine.
    device = f"soft:{tmp_path}/kv-{{rank}}.img"
    extra = {"bytes_per_worker": MIB, "index": str(tmp_path / "index")}
    manager = WarpbellSpec(config_of(device, ranks=2, engine="two", **extra)).get_manager()
    context = ReqContext("request")
    manager.on_new_request(context)
    assert manager.lookup(keys_of(1)[0], context) is LookupResult.MISS and manager.prepare_store(keys_of(1), context) is None
    assert manager.get_stats() is None
    manager.shutdown()


def test_those_that_were_not_used_for_longest_are_evicted(engine, tmp_path):
    server = Server(engine, tmp_path, chunks=4, events=True)
    keys = keys_of(9)
    server.store(keys[:4], range(4))
    assert [(removed, set(told)) for removed, told in server.events()] == [(False, set(keys[:4]))]
    # The end of a sequence goes first.
    server.store(keys[4:5], [4])
    assert server.hits(keys[:5]) == [True, True, True, False, True]
    assert server.events() == [(True, [keys[3]]), (False, [keys[4]])]
    server.manager.touch([keys[1], keys[2]], server.context)
    # What is loaded meanwhile stays.
    server.manager.prepare_load([keys[0]], server.context)
    assert server.begin_store(keys[5:9], range(4)) is None
    output = server.manager.prepare_store([keys[5], keys[1]], server.context)
    assert output.keys_to_store == [keys[5]] and output.evicted_keys == [keys[4]]
    # What is evicted in a step is not stored in it: the deletion may come later.
    assert server.manager.prepare_store([keys[4]], server.context).keys_to_store == []
    server.workers[0].submit_store(100, server.spec_of([5]), output.store_spec)
    server.end(100)
    server.manager.complete_store({keys[5]}, server.context)
    server.manager.complete_load([keys[0]], server.context)
    server.step()
    assert server.hits(keys[:6]) == [True, True, True, False, False, True]
    server.store([keys[4]], [4])
    # Four chunks are four objects, whatever was evicted.
    assert len(server.workers[0]._store) == 4 and server.workers[0]._store.stats()["evictions"] == 0
    stats = server.manager.get_stats().reduce()
    assert stats["vllm:kv_offload_warpbell_usage_perc"] == 1.0 and stats["vllm:kv_offload_warpbell_chunks_lost"] == 0
    server.close()


def test_a_random_server_finds_what_it_has_stored(engine, tmp_path):
    rng = random.Random(11)
    keys, seeds, server = keys_of(30), {}, Server(engine, tmp_path, chunks=8, ranks=2)
    for step in range(60):
        some = rng.sample(range(30), rng.randint(1, 5))
        pages = rng.sample(range(PAGES), len(some))
        if rng.random() < 0.5:
            new = [i for i in some if not server.hits([keys[i]])[0]]
            if new:
                server.fill(pages[: len(new)], step * 1000)
                server.store([keys[i] for i in new], pages[: len(new)])
                seeds.update({i: step * 1000 + n for n, i in enumerate(new)})
        elif found := [i for i in some if server.hits([keys[i]])[0]]:
            pages = pages[: len(found)]
            assert server.load([keys[i] for i in found], pages) == set()
            loaded = server.content(pages)
            for n, i in enumerate(found):
                server.fill([pages[n]], seeds[i])
            assert server.content(pages) == loaded
        server.step()
        if rng.random() < 0.1:
            there = server.hits(keys)
            server.close()
            server = Server(engine, tmp_path, chunks=8, ranks=2, run=str(step))
            assert server.hits(keys) == there
    server.close()


def test_chunks_of_several_blocks_are_loaded_in_part(engine, tmp_path):
    server = Server(engine, tmp_path, groups=2, blocks_per_chunk=4)
    first, second = keys_of(3, group=0), keys_of(2, seed=1, group=1)
    pages = list(range(3 * 4 + 2 * 4))
    server.fill(pages, 3)
    stored = server.content(pages)
    server.store([*first, *second], pages, group_sizes=[12, 8])
    assert all(server.hits([*first, *second]))
    # Blocks 6 to 10 of the first group, and 3 to 4 of the second one.
    target = random.Random(1).sample(range(20, PAGES), 7)
    assert server.load([*first[1:], *second], target, group_sizes=[5, 2], first=[6, 3]) == set()
    assert server.content(target) == [stored[i] for i in (6, 7, 8, 9, 10, 15, 16)]
    # A chunk whose first blocks the server has given up already.
    tail = keys_of(1, seed=2, group=1)
    server.store(tail, [1, 2], group_sizes=[0, 2], first=[0, 6])
    target = [40, 41]
    assert server.load(tail, target, group_sizes=[0, 2], first=[0, 6]) == set()
    assert server.content(target) == server.content([1, 2])
    for worker in server.workers:
        with pytest.raises(warpbell.InvalidError, match="one key a chunk"):
            worker.submit_load(999, server.manager.prepare_load(first, server.context), server.spec_of([1, 2], [2, 0]))
    server.close()


def test_what_a_rank_has_lost_is_computed_again(engine, tmp_path):
    server = Server(engine, tmp_path, ranks=2, events=True)
    keys = keys_of(4)
    server.fill(range(4), 7)
    stored = server.content(range(4))
    server.store(keys, range(4))
    worker = server.workers[1]
    worker._store.delete([worker._keys.of(keys[2], 0)])
    server.events()
    assert server.load(keys, [10, 11, 12, 13]) == {12}
    assert server.content([10, 11, 13]) == [stored[i] for i in (0, 1, 3, 4, 5, 7)]
    assert server.hits(keys) == [True, True, False, True]
    assert server.events() == [(True, [keys[2]])]
    server.store([keys[2]], [2])
    assert server.load(keys, [20, 21, 22, 23]) == set() and server.content([20, 21, 22, 23]) == stored
    # Lost between two runs.
    worker._store.delete([worker._keys.of(keys[0], 0)])
    server.close()
    server = Server(engine, tmp_path, ranks=2, run="two", events=True)
    assert server.hits(keys) == [False, True, True, True]
    assert [(removed, set(told)) for removed, told in server.events()] == [(False, set(keys[1:]))]
    # The other rank deletes it with the next job.
    there = server.workers[0]
    server.store(keys_of(1, seed=9), [5])
    assert there._store.lookup([there._keys.of(keys[0], 0)]) == [None]
    server.close()


def test_a_log_that_is_gone_costs_hits_and_nothing_else(engine, tmp_path):
    server = Server(engine, tmp_path, ranks=2, chunks=4)
    keys = keys_of(4)
    server.store(keys, range(4))
    server.close()
    next((tmp_path / "index").iterdir()).unlink()
    server = Server(engine, tmp_path, ranks=2, chunks=4, run="two")
    assert not any(server.hits(keys))
    for n in range(3):
        server.store(keys_of(4, seed=n), range(4))
        server.step()
    assert all(server.hits(keys_of(4, seed=2)))
    assert server.load(keys_of(4, seed=2), range(8, 12)) == set()
    server.close()


def damage(path, data):
    """Changes a byte of stored data."""
    content = path.read_bytes()
    at = content.find(data)
    assert at >= 0
    with open(path, "r+b") as file:
        file.seek(at + 100)
        file.write(bytes([content[at + 100] ^ 1]))


def test_damaged_objects_are_deleted_and_told(engine, tmp_path):
    server = Server(engine, tmp_path, connector=True)
    keys = keys_of(3)
    server.fill(range(3), 4)
    server.store(keys, range(3))
    data = bytes_of(server.caches[0][1][1])
    server.close()
    damage(tmp_path / "kv-0.img", data)
    server = Server(engine, tmp_path, connector=True, run="two")
    connector, (worker,) = server.connectors[0], server.workers
    assert all(server.hits(keys))
    source = server.manager.prepare_load(keys, server.context)
    start_load(connector, 7, source, server.spec_of([30, 31, 32]))
    worker.wait({7})
    results = connector.get_transfer_results(set())
    assert results.finished_recving == {"request"} and results.failed_recving == set()
    assert connector.get_block_ids_with_load_errors() == {31} and connector.get_block_ids_with_load_errors() == set()
    server.manager.complete_load(keys, server.context)
    assert server.hits(keys) == [True, False, True]
    server.store([keys[1]], [1])
    assert server.load(keys, [20, 21, 22]) == set()
    connector = worker = None
    server.close()


def test_models_with_several_groups_fail_requests_and_the_plain_connector_stops(engine, tmp_path):
    server = Server(engine, tmp_path, groups=2, connector=True)
    keys = keys_of(2, group=1)
    server.store(keys, [3, 4], group_sizes=[0, 2])
    connector, (worker,) = server.connectors[0], server.workers
    worker._store.delete([worker._keys.of(keys[0], 0)])
    source = server.manager.prepare_load(keys, server.context)
    start_load(connector, 7, source, server.spec_of([30, 31], [0, 2]))
    worker.wait({7})
    results = connector.get_transfer_results(set())
    assert results.finished_recving == results.failed_recving == {"request"}
    assert connector.get_block_ids_with_load_errors() == set()
    # Without the connector nobody would compute the block again.
    worker._reports_failures = False
    worker.submit_load(8, source, server.spec_of([30, 31], [0, 2]))
    worker.wait({8})
    with pytest.raises(warpbell.UnsupportedError, match="use WarpbellConnector"):
        worker.get_finished()
    connector = worker = None
    server.close()


def test_chunks_that_a_device_does_not_take_are_not_found(engine, tmp_path):
    Server(engine, tmp_path).close()
    bad = blocks_of_slab(engine, tmp_path / "kv-0.img", PAGE)
    server = Server(engine, tmp_path, options=f",media-error={bad}", run="two", events=True)
    keys = keys_of(3)
    server.fill(range(3), 2)
    stored = server.content(range(3))
    job = server.begin_store(keys[:1], [0])
    server.workers[0].wait({job})
    server.end(job)
    server.manager.complete_store(keys[:1], server.context)
    assert server.hits(keys) == [False, False, False]
    assert server.events() == [] and server.released == set(keys[:1])
    assert server.manager.get_stats().reduce()["vllm:kv_offload_warpbell_chunks_lost"] == 1
    server.close()
    server = Server(engine, tmp_path, run="three")
    server.fill(range(3), 2)
    server.store(keys, range(3))
    server.close()
    server = Server(engine, tmp_path, options=f",media-error=read:{bad}", run="four")
    assert all(server.hits(keys))
    failed = server.load(keys, [10, 11, 12])
    assert len(failed) == 1
    good = [i for i in range(3) if 10 + i not in failed]
    assert server.content([10 + i for i in good]) == [stored[i] for i in good]
    assert server.hits(keys) == [i in good for i in range(3)]
    server.close()


def test_a_kernel_that_does_not_end_stops_the_server(engine, tmp_path):
    server = Server(engine, tmp_path)
    worker, keys = server.workers[0], keys_of(1)
    server.store(keys, [0])

    class Late:
        def is_ended(self):
            return False

        def finish(self, timeout):
            raise warpbell.TimeoutError(f"not within {timeout}")

    source = server.manager.prepare_load(keys, server.context)
    assert worker.submit_load(9, source, server.spec_of([1]))
    worker.wait({9})
    load = worker._loads[9]
    kept, load.transfers = load.transfers, [(load.transfers[0][0], Late())]
    assert worker.get_finished() == []
    worker.wait({9})
    load.started -= 2 * worker._limit
    # Its pages may still be written to, so nobody else may have them.
    with pytest.raises(warpbell.TimeoutError):
        worker.get_finished()
    assert all(server.hits(keys)) and kept
    server.close()


def test_a_flush_that_fails_stores_nothing(engine, tmp_path):
    Server(engine, tmp_path).close()
    server = Server(engine, tmp_path, options=",fail-flush=every:1", run="two")
    keys = keys_of(2)
    job = server.begin_store(keys, range(2))
    server.end(job)
    server.manager.complete_store(keys, server.context)
    assert not any(server.hits(keys))
    server.close()


def test_a_reset_forgets_and_deletes_all(engine, tmp_path):
    server = Server(engine, tmp_path, events=True)
    keys = keys_of(5)
    server.store(keys[:3], range(3))
    job = server.begin_store(keys[3:4], [3])
    server.manager.reset_cache()
    server.events()
    server.end(job)
    assert not any(server.hits(keys))
    server.store(keys[4:], [4])
    assert server.hits(keys) == [False] * 4 + [True]
    assert len(server.workers[0]._store) == 1
    server.close()


def test_jobs_in_flight_end_with_a_shutdown(engine, tmp_path):
    server = Server(engine, tmp_path)
    keys = keys_of(8)
    for n, key in enumerate(keys):
        assert server.begin_store([key], [n])
    server.close()
    server = Server(engine, tmp_path, run="two")
    assert all(server.hits(keys))
    server.close()


def test_settings_that_cannot_be_are_refused(engine, tmp_path):
    with pytest.raises(warpbell.InvalidError, match="bytes_per_worker"):
        Server(engine, tmp_path, chunks=1, blocks_per_chunk=2, bytes_per_worker=LAYERS * PAGE)
    good = {"bytes_per_worker": MIB}

    def devices(device, ranks=2, **more):
        return WarpbellSpec(config_of(device, ranks=ranks, **good, **more))._settings.devices

    assert devices("soft:/kv/{rank}.img") == ["soft:/kv/0.img", "soft:/kv/1.img"]
    assert devices("nvme:0000:65:00.0", ranks=1) == ["nvme:0000:65:00.0"]
    assert devices("soft:/kv/{dp}-{rank}.img", dp=(1, 2)) == ["soft:/kv/1-0.img", "soft:/kv/1-1.img"]
    assert devices([f"nvme:{n}" for n in "abcd"], dp=(1, 2)) == ["nvme:c", "nvme:d"]
    for device, more in (
        ("soft:/kv/all.img", {}),
        ("soft:/kv/{rank}.img", {"dp": (0, 2)}),
        (["nvme:a"], {}),
        (["nvme:a", "nvme:a"], {}),
        (None, {}),
        ([1, 2], {}),
    ):
        with pytest.raises(warpbell.InvalidError):
            devices(device, **more)
    logs = [
        WarpbellSpec(config_of(device, index="/i", **good))._settings.log_path(0)
        for device in ("soft:a", "soft:a,threads=2", "soft:a\\,b", "nvme:x", "nvme:x,nsid=2", "nvme:x,api=cdev,nsid=2")
    ]
    assert logs[0] == logs[1] and logs[4] == logs[5] and len(set(logs)) == 4
    for wrong in ({"bytes_per_worker": 0}, {"bytes_per_worker": "1G"}, {}, {**good, "store": "a/b"}, {**good, "blocks_per_chunk": 65}):
        with pytest.raises(warpbell.InvalidError):
            WarpbellSpec(config_of("soft:mem", **wrong))


def test_a_follower_sees_what_the_log_of_a_worker_says(tmp_path, monkeypatch):
    monkeypatch.setattr(_keys, "_SMALL", 8192)
    path, rng, seen, replaced = str(tmp_path / "log"), random.Random(2), {}, 0
    follower = _keys.Follower(path, "engine")
    assert follower.poll() is None
    start = {bytes([n]) * 36: n + 1 for n in range(5)}
    log = _keys.KeyLog(path, {"engine": "engine"}, dict(start))
    for _ in range(400):
        log.put([(bytes([rng.randrange(40)]) * 36, rng.choice([0, 1, 15]))])
        if rng.random() < 0.3:
            if changes := follower.poll():
                replaced += changes.is_new
                seen = {} if changes.is_new else seen
                for key, blocks in changes.chunks:
                    seen.pop(key, None)
                    if blocks:
                        seen[key] = blocks
            assert list(seen.items()) == list(log.chunks.items())
    follower.poll()
    assert replaced > 2 and follower.poll() is None
    assert _keys.read(path)[1] == log.chunks and list(_keys.read(path)[1]) == list(log.chunks)
    # A record that is damaged, and what is behind it, is not believed.
    log.put([(b"a" * 36, 1), (b"b" * 36, 1)])
    with open(path, "r+b") as file:
        file.seek(-90, 2)
        file.write(b"?")
    assert [key for key, _ in follower.poll().chunks] == []
    log.put([(b"c" * 36, 1)])
    assert follower.poll() is None
    assert not {b"a" * 36, b"b" * 36} & set(_keys.read(path)[1])
    log.close()
    log.close()
    follower.close()
    for text in (b"", b"warpbell key log\n{", b"x" * 5000):
        (tmp_path / "other").write_bytes(text)
        assert _keys.read(str(tmp_path / "other"))[0] is None
        assert _keys.Follower(str(tmp_path / "other"), "engine").poll() is None


def test_the_chunk_follows_from_the_key_of_an_object():
    keys = _keys.ObjectKeys(b"layout", [0, 3], 4)
    chunks = [make_offload_key(bytes(32), 0), *keys_of(5, group=3), make_offload_key(b"x" * 16, 3)]
    for chunk in chunks:
        for block in range(4):
            assert keys.chunk_of(keys.of(chunk, block), chunks) == chunk
        assert keys.all_of(chunk, 0b1010) == [keys.of(chunk, 1), keys.of(chunk, 3)]
    assert keys.chunk_of(bytes(32), chunks) is None
    assert _keys.ObjectKeys(b"other", [0], 1).of(chunks[0], 0) != keys.of(chunks[0], 0)
    for wrong in (b"", b"1234", bytes(37)):
        with pytest.raises(warpbell.InvalidError):
            keys.of(wrong, 0)
