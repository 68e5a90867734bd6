"""Results for other libraries."""

import gc
import weakref

import numpy as np
import pytest
import warpbell


def test_numpy_shares_memory_of_the_host(engine, table, vectors):
    rows = table[:100]
    assert len(rows) == 100 and repr(rows) == f"Tensor((100, 32), float32, {rows.device})"
    if engine.kind == "gpu":
        pytest.skip("memory of a GPU is copied")
    for one in (rows.numpy(), np.asarray(rows), np.from_dlpack(rows)):
        np.testing.assert_array_equal(one, vectors[:100])
        assert one.__array_interface__["data"][0] == rows.numpy().__array_interface__["data"][0]
    copy = np.array(rows)
    assert copy.__array_interface__["data"][0] != rows.numpy().__array_interface__["data"][0]
    assert np.asarray(rows, dtype=np.float64).dtype == np.float64
    assert rows.__dlpack_device__() == (1, 0) and not hasattr(rows, "__cuda_array_interface__")


def test_arrays_outlive_their_tensor(engine, table, vectors):
    shared = [table[:1000].numpy() for _ in range(3)]
    if engine.kind == "cpu":  # numpy takes no memory of a GPU
        shared += [np.from_dlpack(table[:1000]) for _ in range(3)]
    gc.collect()
    others = [table[2000:3000] for _ in range(6)]
    for one in shared:
        np.testing.assert_array_equal(one, vectors[:1000])
    del others


def test_an_unused_capsule_frees_its_tensor(table):
    capsule = table[:10].__dlpack__()
    versioned = table[:10].__dlpack__(max_version=(1, 0))
    assert "dltensor" in repr(capsule) and "dltensor_versioned" in repr(versioned)
    del capsule, versioned
    with pytest.raises((BufferError, ValueError)):
        table[:10].__dlpack__(dl_device=(2, 9))


def test_rows_of_another_table_are_written(table, volume, vectors):
    other = warpbell.Table.create(volume, "other", 50, 32)
    other[:] = table[:50]
    np.testing.assert_array_equal(other[:].numpy(), vectors[:50])
    out = table[:2]
    table.gather([7, 8], out)
    np.testing.assert_array_equal(out.numpy(), vectors[7:9])


class OnlyDlpack:
    """An array that has DLPack and no other protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_arrays_of_dlpack_alone_are_taken(engine, table, vectors):
    indices = OnlyDlpack(np.array([3, 1, 4]))
    np.testing.assert_array_equal(table[indices].numpy(), vectors[[3, 1, 4]])
    table[OnlyDlpack(np.array([7]))] = OnlyDlpack(np.full((1, 32), 5, np.float32))
    assert (table[7].numpy() == 5).all()
    mask = np.zeros(5000, bool)
    mask[9] = True
    np.testing.assert_array_equal(table[OnlyDlpack(mask)].numpy(), vectors[[9]])
    kept = np.zeros((2, 32), np.float32)
    out = OnlyDlpack(kept)
    assert table.gather([1, 2], out) is out
    np.testing.assert_array_equal(kept, vectors[[1, 2]])
    with pytest.raises(warpbell.InvalidError, match="C-contiguous"):
        table.gather([1, 2], OnlyDlpack(np.zeros((2, 64), np.float32)[:, ::2]))
    read_only = np.zeros((2, 32), np.float32)
    read_only.flags.writeable = False
    with pytest.raises((warpbell.InvalidError, BufferError)):
        table.gather([1, 2], OnlyDlpack(read_only))
    with pytest.raises(warpbell.InvalidError, match="plain numbers"):
        table.gather([1, 2], OnlyDlpack(np.zeros((2, 32), np.complex64)))


def test_torch_shares_memory(table, vectors):
    torch = pytest.importorskip("torch", reason="needs torch")
    rows = torch.from_dlpack(table[[3, 1]])
    np.testing.assert_array_equal(rows.cpu().numpy(), vectors[[3, 1]])
    out = torch.empty(2, 32, device=rows.device)
    assert table.gather(torch.tensor([5, 6]), out) is out
    np.testing.assert_array_equal(out.cpu().numpy(), vectors[[5, 6]])
    table[torch.tensor([5])] = torch.ones(1, 32)
    assert torch.from_dlpack(table[[5]]).sum() == 32


def test_a_tensor_keeps_what_its_memory_belongs_to(engine):
    volume = warpbell.Volume.create(engine, "soft:mem", 8 << 20)
    table = warpbell.Table.from_numpy(volume, "t", np.ones((10, 16), np.float32))
    rows, flying = table[:], table.prefetch([1])
    class Alive:
        pass
    alive = Alive()
    gone = weakref.ref(alive)
    del volume, table, alive
    gc.collect()
    assert gone() is None
    assert rows.numpy().sum() == 160 and flying.take().numpy().sum() == 16
