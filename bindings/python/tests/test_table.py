"""Rows by number, against numpy."""

import numpy as np
import pytest
import warpbell
from conftest import MIB

INDICES = [
    7,
    -1,
    np.int64(3),
    slice(10, 20),
    slice(None, None, -7),
    slice(4990, 9999),
    slice(3, 3),
    [],
    [3, 3, 0, 4999, -5000],
    np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint8),
    np.arange(4000, dtype=np.uint64)[::-3],
    np.array([], dtype=np.int32),
]


@pytest.mark.parametrize("indices", INDICES, ids=repr)
def test_rows_are_those_of_numpy(table, vectors, indices):
    rows = table[indices]
    expected = vectors[indices] if not isinstance(indices, list) else vectors[np.array(indices, dtype=np.int64)]
    assert rows.shape == expected.shape and rows.dtype == "float32" and rows.nbytes == expected.nbytes
    np.testing.assert_array_equal(rows.numpy(), expected)
    out = np.full_like(expected, -1)
    assert table.gather(indices, out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(table.prefetch(indices).take(30).numpy(), expected)


def test_a_mask_chooses_rows(table, vectors):
    mask = vectors[:, 0] > 0.9
    assert 0 < mask.sum() < len(vectors)
    np.testing.assert_array_equal(table[mask].numpy(), vectors[mask])
    with pytest.raises(warpbell.InvalidError, match=r"mask of shape \[3\].*5000 rows"):
        table[[True, False, True]]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"])
def test_rows_of_all_types_and_shapes(volume, dtype):
    values = (np.arange(50 * 8 * 16) % 251).astype(dtype).reshape(50, 8, 16)
    table = warpbell.Table.from_numpy(volume, "t", values)
    assert (table.shape, table.dtype, len(table), table.row_bytes) == (values.shape, dtype, 50, values[0].nbytes)
    np.testing.assert_array_equal(table[[49, 0, 7]].numpy(), values[[49, 0, 7]])
    assert volume.tables() == ["t"] and table.verify()


def test_arrays_of_any_layout_are_stored(volume):
    values = np.arange(2 * 64 * 32, dtype=np.float32).reshape(2 * 64, 32)
    table = warpbell.Table.from_numpy(volume, "t", values[::2])
    np.testing.assert_array_equal(table[:].numpy(), values[::2])
    columns = np.asfortranarray(values)
    np.testing.assert_array_equal(warpbell.Table.from_numpy(volume, "f", columns)[:].numpy(), values)
    swapped = values.astype(">f4")
    with pytest.raises(warpbell.InvalidError, match=">f4"):
        warpbell.Table.from_numpy(volume, "swapped", swapped)


def test_what_no_table_can_hold_is_refused_with_the_reason(volume, table):
    create = warpbell.Table.from_numpy
    with pytest.raises(warpbell.InvalidError, match="rows of 4 bytes.*64 to 65536 bytes"):
        create(volume, "t", np.zeros((3, 1), np.float32))
    with pytest.raises(warpbell.InvalidError, match="complex64.*unsigned integers"):
        create(volume, "t", np.zeros((3, 64), np.complex64))
    with pytest.raises(warpbell.InvalidError, match=r"V2.*array\.view\(ml_dtypes\.bfloat16\)"):
        create(volume, "t", np.zeros((3, 64), "V2"))
    with pytest.raises(warpbell.InvalidError, match="a single number"):
        create(volume, "t", 3)
    with pytest.raises(warpbell.ExistsError, match="called `vectors` already"):
        create(volume, "vectors", np.zeros((3, 64), np.float32))
    with pytest.raises(warpbell.NotFoundError, match="no table is called `vector`.*vectors") as caught:
        warpbell.Table.open(volume, "vector")
    assert isinstance(caught.value, LookupError)
    with pytest.raises(TypeError, match="<f8"):
        table[[0.5, 1.5]]
    with pytest.raises(TypeError, match="a tuple; rows have one index"):
        table[1, 2]
    with pytest.raises(warpbell.InvalidError, match="hot_rows: elements of type float64; give integers"):
        warpbell.Table.open(volume, "vectors", hot_rows=[0.5])
    with pytest.raises(warpbell.SpaceError, match="needs"):
        warpbell.Table.create(volume, "large", 1 << 20, 64)


def test_an_index_of_no_row_is_named(table):
    for indices, position, index in [([1, 5000, 2], 1, 5000), ([0, 0, -5001], 2, -5001), (10**12, 0, 10**12)]:
        with pytest.raises(warpbell.RowIndexError, match=f"index {index} at position {position} ") as caught:
            table[indices]
        assert isinstance(caught.value, IndexError) and isinstance(caught.value, warpbell.Error)
    assert table[1].shape == (32,)


def test_an_output_that_does_not_fit_is_refused(engine, table):
    wrong = [
        (np.zeros((2, 32), np.float64), "<f8.*holds float32"),
        (np.zeros((3, 32), np.float32), r"its shape is \[3, 32\], and the rows have \[2, 32\]"),
        (np.zeros((2, 64), np.float32)[:, ::2], "C-contiguous"),
        (np.broadcast_to(np.float32(0), (2, 32)), "read-only"),
    ]
    if engine.kind == "cpu":  # rows come from a GPU by a copy, which takes any address
        wrong.append((np.zeros(2 * 32 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(2, 32), "multiple of 4"))
    for out, part in wrong:
        with pytest.raises(warpbell.InvalidError, match=part):
            table.gather([0, 1], out)


def test_rows_are_written(table, vectors):
    expected = vectors.copy()
    for indices in [5, slice(10, 14), [7, 4999, 8]]:
        table[indices] = expected[indices] = np.full_like(expected[indices], len(str(indices)))
    table[[1, 2]] = expected[[1, 2]] = 0.25
    table[[]] = np.zeros((0, 32), np.float32)
    np.testing.assert_array_equal(table[:].numpy(), expected)
    table.scatter([3, 3, 9], np.ones((3, 32)), "add")
    np.add.at(expected, [3, 3, 9], 1)
    table.scatter([20, 20], np.ones((2, 32), np.float32), "sum")
    expected[20] = 2
    table.flush()
    np.testing.assert_array_equal(table[:].numpy(), expected)
    assert table.stats()["written"] > 0
    with pytest.raises(warpbell.RowIndexError):
        table[[0, 5000]] = 1
    with pytest.raises(TypeError):
        table[0] = np.zeros(32, np.complex64)
    with pytest.raises(ValueError, match="broadcast"):
        table[[0, 1]] = np.zeros((3, 32), np.float32)
    with pytest.raises(warpbell.InvalidError, match="`mean`; use last, sum or add"):
        table.scatter([0], np.zeros((1, 32), np.float32), "mean")


def test_caches_keep_rows(volume, vectors):
    warpbell.Table.from_numpy(volume, "vectors", vectors)
    table = warpbell.Table.open(volume, "vectors", cache_bytes=MIB, host_cache_bytes=MIB, hot_rows=[0, 1], in_flight=16)
    indices = np.arange(100)
    for _ in range(4):
        np.testing.assert_array_equal(table[indices].numpy(), vectors[indices])
    stats = table.stats()
    assert stats["rows"] == 400 and stats["hot_hits"] == 8 and stats["cache_hits"] > 0
    table.drop_caches()
    table.reset_stats()
    assert table[indices].shape == (100, 32) and table.stats()["device_reads"] == 98


def test_batches_are_in_flight_together(table, vectors):
    batches = [np.random.default_rng(i).integers(0, 5000, 200) for i in range(6)]
    flying = [table.prefetch(batch) for batch in batches]
    for batch, one in reversed(list(zip(batches, flying))):
        np.testing.assert_array_equal(one.take().numpy(), vectors[batch])
        assert one.is_ready()
        with pytest.raises(warpbell.InvalidError, match="taken already"):
            one.take()
    # Dropping batches waits for them.
    del one, flying
    assert table[0].shape == (32,)


def test_files_of_rows_are_imported(volume, vectors, tmp_path):
    np.save(tmp_path / "rows.npy", vectors)
    done = []
    table = warpbell.Table.import_file(volume, "npy", tmp_path / "rows.npy", progress=lambda *told: done.append(told))
    np.testing.assert_array_equal(table[[4, 4999]].numpy(), vectors[[4, 4999]])
    assert done[-1] == ("store", vectors.nbytes, vectors.nbytes)
    np.save(tmp_path / "flat.npy", vectors.reshape(-1))
    with pytest.raises(warpbell.InvalidError, match="flat.npy.*one dimension"):
        warpbell.Table.import_file(volume, "flat", tmp_path / "flat.npy")
    flat = warpbell.Table.import_file(volume, "flat", tmp_path / "flat.npy", row_elements=32)
    assert flat.shape == vectors.shape
    with pytest.raises(warpbell.NotFoundError, match="missing.npy"):
        warpbell.Table.import_file(volume, "missing", tmp_path / "missing.npy")


def test_elements_that_numpy_has_no_name_for_are_imported_by_one(volume, tmp_path):
    # The first bits of float32: as ml_dtypes makes bfloat16 of these numbers, which numpy saves as raw bytes.
    values = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) % 256
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    np.save(tmp_path / "raw.npy", bits.view("V2"))
    with pytest.raises(warpbell.InputError, match=r"array\.view\(ml_dtypes\.bfloat16\)"):
        warpbell.Table.import_file(volume, "raw", tmp_path / "raw.npy")
    table = warpbell.Table.import_file(volume, "raw", tmp_path / "raw.npy", dtype="bfloat16")
    assert (table.dtype, table.row_bytes) == ("bfloat16", 64) and table.verify()
    with pytest.raises(warpbell.InvalidError, match="bfloat17 is no type"):
        warpbell.Table.import_file(volume, "other", tmp_path / "raw.npy", dtype="bfloat17")


def test_bfloat16_is_a_type_of_ml_dtypes(volume):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs ml_dtypes, which has the type")
    values = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) % 256
    narrow = values.astype(ml_dtypes.bfloat16)
    table = warpbell.Table.from_numpy(volume, "b", narrow)
    rows = table[[5, 63]]
    assert (table.dtype, rows.dtype, rows.nbytes) == ("bfloat16", "bfloat16", 128)
    assert rows.numpy().dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(np.asarray(rows).astype(np.float32), values[[5, 63]])
    out = np.zeros((2, 32), ml_dtypes.bfloat16)
    table.gather([0, 7], out)
    np.testing.assert_array_equal(out, narrow[[0, 7]])
    table[[1, 2]] = narrow[[7, 8]]
    table[3] = values[9]
    np.testing.assert_array_equal(table[1:4].numpy(), narrow[7:10])
    with pytest.raises(warpbell.InvalidError, match="holds bfloat16"):
        table.gather([0, 7], np.zeros((2, 32), np.float16))
    volume.store("array", narrow[0])
    np.testing.assert_array_equal(volume.load("array"), narrow[0])


def test_a_parquet_file_is_imported(volume, vectors, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow, which writes the file")
    import pyarrow.parquet

    columns = {name: pyarrow.FixedSizeListArray.from_arrays(vectors[:, i * 16 : i * 16 + 16].reshape(-1), 16) for i, name in enumerate("ab")}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    table = warpbell.Table.from_parquet(volume, "p", tmp_path / "rows.parquet")
    np.testing.assert_array_equal(table[:].numpy(), vectors)
    half = warpbell.Table.from_parquet(volume, "half", tmp_path / "rows.parquet", columns=["b"])
    np.testing.assert_array_equal(half[:].numpy(), vectors[:, 16:])


def test_an_exception_of_a_progress_function_ends_the_call(volume, vectors):
    def fail(*_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        warpbell.Table.from_numpy(volume, "t", vectors, progress=fail)
    assert volume.tables() == []
    warpbell.Table.from_numpy(volume, "t", vectors)
    np.testing.assert_array_equal(warpbell.Table.create(volume, "zeros", 10, (4, 8), "float64")[:].numpy(), np.zeros((10, 4, 8)))


def test_a_replaced_table_has_the_new_rows(volume, vectors):
    warpbell.Table.from_numpy(volume, "t", vectors)
    table = warpbell.Table.from_numpy(volume, "t", -vectors[:10], replace=True)
    np.testing.assert_array_equal(table[:].numpy(), -vectors[:10])
    volume.remove_table("t")
    assert volume.tables() == []


def test_views_are_those_of_kernels(table, volume):
    assert len(table.view()) == 152 and len(volume.view()) == 8
