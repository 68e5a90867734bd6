"""Engines, volumes, stored arrays, caches, streams."""

import os

import numpy as np
import pytest
import warpbell
from conftest import MIB, open_engine


def test_an_engine_says_what_it_is(engine):
    info = engine.info()
    assert info["kind"] == engine.kind and engine.kind in ("cpu", "gpu")
    assert "wb_table_gather_u64" in info["kernels"]
    assert repr(engine).startswith("Engine(")
    auto = warpbell.Engine()
    assert auto.kind == "gpu" or auto.note
    for kind in ("gpu:x", "gpu:", "gpux", "gpu1", "tpu", ""):
        with pytest.raises(warpbell.InvalidError, match="no kind of engine"):
            warpbell.Engine(kind)
    if auto.kind == "cpu":
        with pytest.raises(warpbell.UnsupportedError) as caught:
            warpbell.Engine("gpu")
        assert str(caught.value) and caught.value.device is None


def test_deadlines_are_seconds():
    engine = open_engine(deadline=1.5)
    assert engine.deadline == 1.5
    engine.deadline = 2
    assert engine.deadline == 2
    for wrong in (0, -1, float("nan"), 1e300):
        with pytest.raises(warpbell.InvalidError, match="seconds above 0"):
            engine.deadline = wrong


def test_arrays_come_back_with_their_types(volume):
    arrays = {
        "a": np.arange(1000, dtype=np.int16),
        "b": np.linspace(0, 1, 77),
        "empty": np.zeros(0, np.uint64),
        "records": np.array([(1, 2.5), (3, 4.5)], dtype=[("id", "<u4"), ("x", "<f8")]),
        "matrix": np.arange(12, dtype=np.uint8).reshape(3, 4)[:, ::2],
    }
    for name, array in arrays.items():
        volume.store(name, array)
    assert {entry["name"] for entry in volume.arrays()} == set(arrays)
    for name, array in arrays.items():
        found = volume.load(name)
        if name == "records":
            found = found.view(array.dtype)
        np.testing.assert_array_equal(found, array.reshape(-1))
    with pytest.raises(warpbell.ExistsError):
        volume.store("a", [1, 2, 3])
    volume.store("a", [1, 2, 3], replace=True)
    np.testing.assert_array_equal(volume.load("a"), [1, 2, 3])
    volume.remove("b", "matrix")
    with pytest.raises(warpbell.NotFoundError, match="b"):
        volume.load("b")
    assert volume.verify()["intact"]
    with pytest.raises(warpbell.InvalidError, match="complex128"):
        volume.store("c", np.zeros(3, complex))


def test_a_file_is_opened_again(engine, tmp_path):
    path = tmp_path / "data.img"
    spec = f"soft:{path}"
    with pytest.raises(warpbell.NotFoundError, match="data.img"):
        warpbell.Volume.open(engine, spec)
    volume = warpbell.Volume.create(engine, [spec], 8 * MIB)
    assert not path.exists()
    volume.store("ids", np.arange(100))
    assert path.exists() and volume.bytes == 8 * MIB and volume.name
    del volume
    again = warpbell.Volume.open(engine, spec, read_only=True, queues=2, depth=64, landing="bounce")
    np.testing.assert_array_equal(again.load("ids"), np.arange(100))
    assert again.info()["depth"] == 64 and "bounce" in str(again.info()["path"])
    with pytest.raises(warpbell.Error):
        again.store("more", [1])
    del again
    (tmp_path / "text").write_text("precious" * 65536)
    with pytest.raises(warpbell.ExistsError, match="text") as caught:
        warpbell.Volume.create(engine, f"soft:{tmp_path / 'text'}", MIB)
    assert caught.value.remedy
    kept = warpbell.Volume.create(engine, f"soft:{tmp_path / 'text'}", MIB, overwrite=[tmp_path / "text"])
    kept.store("a", [1])
    assert os.path.getsize(tmp_path / "text") >= MIB // 2


def test_wrong_options_are_named(engine):
    create = warpbell.Volume.create
    with pytest.raises(TypeError, match="`depht` is no option.*depth"):
        create(engine, "soft:mem", MIB, depht=3)
    with pytest.raises(warpbell.InvalidError, match="landing: .*direct"):
        create(engine, "soft:mem", MIB, landing="directly")
    with pytest.raises(warpbell.InvalidError, match="sofd"):
        create(engine, "sofd:mem", MIB)
    with pytest.raises(warpbell.InvalidError, match="deadline"):
        create(engine, "soft:mem", MIB, deadline=-1)
    with pytest.raises(TypeError):
        create(engine, 7, MIB)


def test_several_devices_are_a_volume(engine):
    volume = warpbell.Volume.create(engine, ["soft:mem", "soft:mem"], 4 * MIB, chunk_bytes=65536)
    values = np.arange(300_000)
    volume.store("v", values)
    np.testing.assert_array_equal(volume.load("v"), values)
    assert len(volume.devices) == 2
    stats = volume.stats()
    assert set(stats) >= {"reads", "writes", "errors"}
    volume.reset_stats()
    volume.flush()
    volume.check()
    assert volume.recover()["stopped_runs"] is not None


def test_stored_arrays_are_accessed_through_a_cache(volume):
    values = np.arange(100_000, dtype=np.uint32)
    volume.store("v", values)
    cache = warpbell.Cache(volume, 4 * MIB, page_bytes=4096)
    array = cache.open("v")
    assert (len(array), array.dtype, array.name, cache.page_bytes) == (100_000, "uint32", "v", 4096)
    assert array[3] == 3 and array[-1] == 99_999
    for part in (slice(10, 20), slice(-5, None), slice(5, 5), slice(None)):
        np.testing.assert_array_equal(array[part], values[part])
    array[7] = 70
    array[10:20] = np.arange(10)
    array[20:30] = 5
    assert array[7] == 70 and cache.occupancy()["dirty"] > 0
    np.testing.assert_array_equal(array[10:30], [*range(10), *[5] * 10])
    cache.flush()
    cache.discard()
    assert array[7] == 70 and cache.occupancy()["dirty"] == 0
    array.warm()
    cache.reset()
    for index in (100_000, -100_001):
        with pytest.raises(IndexError, match="100000 elements"):
            array[index]
    with pytest.raises(warpbell.InvalidError, match="step of 2"):
        array[::2]
    with pytest.raises(TypeError):
        array["x"]
    with pytest.raises(warpbell.NotFoundError):
        cache.open("w")
    assert len(array.view()) == 160


def test_streams(engine, table):
    first, second = engine.stream(), engine.stream()
    second.wait_for(first)
    rows = table.prefetch([1, 2], stream=first)
    first.synchronize(30)
    assert rows.take().shape == (2, 32)
    if engine.kind == "cpu":
        assert first.handle is None
        with pytest.raises(warpbell.InvalidError, match="CPU threads"):
            first.__cuda_stream__()
        with pytest.raises(warpbell.UnsupportedError):
            warpbell.Stream.adopt(engine, 1)
    else:
        assert first.__cuda_stream__() == (0, first.handle)
    with pytest.raises(TypeError, match="__cuda_stream__"):
        second.wait_for("x")
    other = open_engine()
    with pytest.raises(warpbell.InvalidError, match="another engine"):
        second.wait_for(other.stream())
