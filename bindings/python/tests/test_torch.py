"""The operator of torch, and the feature store of PyTorch Geometric."""

import gc
import os
import signal

import numpy as np
import pytest
import warpbell
from conftest import open_engine
from test_faults import run

torch = pytest.importorskip("torch", reason="needs torch")


def test_rows_are_a_module(table, vectors):
    from warpbell.torch import Rows

    rows = Rows(table)
    for indices in (torch.tensor([3, 1, 3]), torch.tensor([[5], [6]], dtype=torch.int32), torch.zeros(0, dtype=torch.int64)):
        indices = indices.to(table.device)
        found = rows(indices)
        assert found.device == torch.device(table.device) and found.dtype == torch.float32
        np.testing.assert_array_equal(found.cpu().numpy(), vectors[indices.cpu().numpy()])
    assert "vectors" in repr(rows)
    with pytest.raises(warpbell.RowIndexError):
        rows(torch.tensor([5000], device=table.device))


def test_the_operator_is_well_formed(table):
    from warpbell.torch import Rows

    rows = Rows(table)
    indices = torch.tensor([[3, 1]], device=table.device)
    torch.library.opcheck(torch.ops.warpbell.gather, (rows._number, indices))


def test_a_compiled_model_reads_rows(table, vectors):
    from warpbell.torch import Rows

    rows = Rows(table)

    def model(indices):
        return (rows(indices + 1) * 2).sum(dim=-1)

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for count in (3, 3, 70):
        indices = torch.arange(count, device=table.device)
        np.testing.assert_allclose(compiled(indices).cpu(), (vectors[1 : count + 1] * 2).sum(axis=-1), rtol=1e-5)


def test_a_table_that_is_gone_is_an_error(engine):
    from warpbell.torch import Rows

    volume = warpbell.Volume.create(engine, "soft:mem", 4 << 20)
    rows = Rows(warpbell.Table.create(volume, "t", 10, 16))
    number = rows._number
    del rows
    gc.collect()
    with pytest.raises(warpbell.InvalidError, match="compile it again"):
        torch.ops.warpbell.gather(number, torch.tensor([1]))


class RowsOfFile(torch.utils.data.Dataset):
    """Rows that each worker gathers by an engine of its own. One worker is killed on its way."""

    def __init__(self, path, count, killed):
        self.path, self.count, self.killed, self.table = path, count, killed, None

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        if self.table is None:
            volume = warpbell.Volume.open(open_engine(), f"soft:{self.path}", read_only=True)
            self.table = warpbell.Table.open(volume, "t")
        flying = self.table.prefetch([number])
        if number == self.killed:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.from_dlpack(flying.take()).cpu().clone()


def test_a_killed_worker_of_a_loader_leaves_the_parents_engine_alone(engine, tmp_path, vectors):
    path = tmp_path / "rows.img"
    volume = warpbell.Volume.create(engine, f"soft:{path}", 8 << 20)
    warpbell.Table.from_numpy(volume, "t", vectors)
    volume.flush()
    del volume
    # In a process of its own: torch's handler of signals raises the error wherever Python is, and maybe more than once.
    program = """
        import signal, sys, torch, warpbell
        from conftest import open_engine
        from test_torch import RowsOfFile

        if __name__ == "__main__":
            volume = warpbell.Volume.open(open_engine(), f"soft:{sys.argv[1]}", read_only=True)
            table = warpbell.Table.open(volume, "t")
            expected = torch.from_dlpack(table[:]).cpu()
            raised = []
            try:
                try:
                    loader = torch.utils.data.DataLoader(
                        RowsOfFile(sys.argv[1], 64, 40), batch_size=4, num_workers=2, multiprocessing_context="spawn"
                    )
                    for number, batch in enumerate(loader):
                        rows = expected[4 * number : 4 * number + 4]
                        assert torch.equal(batch.reshape(4, 32), rows)
                        # The parent gathers meanwhile.
                        assert torch.equal(torch.from_dlpack(table[4 * number : 4 * number + 4]).cpu(), rows)
                except RuntimeError as error:
                    raised.append(str(error))
                del loader
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            except RuntimeError as error:
                raised.append(str(error))
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            assert raised and all("DataLoader worker" in text for text in raised), raised
            assert torch.equal(torch.from_dlpack(table[:]).cpu(), expected)
            print("works")
    """
    done = run(program, path)
    try:
        output, _ = done.communicate(timeout=240)
    finally:
        done.kill()
    assert done.returncode == 0 and output.splitlines()[-1] == "works", output


def test_a_feature_store_keeps_features_on_storage(volume, vectors):
    pytest.importorskip("torch_geometric", reason="needs torch_geometric")
    from torch_geometric.data import TensorAttr
    from warpbell.pyg import FeatureStore

    store = FeatureStore(volume, cache_bytes=1 << 20)
    labels = torch.arange(5000)
    store["paper", "x", None] = torch.from_numpy(vectors)
    store["paper", "y", None] = labels
    store["author", "x", None] = torch.ones(10, 16)
    assert volume.tables() == ["author.x", "paper.x"] and len(store) == 3
    assert {(a.group_name, a.attr_name) for a in store.get_all_tensor_attrs()} == {("paper", "x"), ("paper", "y"), ("author", "x")}
    chosen = torch.tensor([7, 4999, 7])
    for index in (chosen, slice(3, 9), None):
        found = store["paper", "x", index]
        np.testing.assert_array_equal(found.cpu().numpy(), vectors if index is None else vectors[index])
        assert store.get_tensor_size(TensorAttr("paper", "x", index)) == tuple(found.shape)
    assert store["paper", "y", chosen].tolist() == [7, 4999, 7]
    both = store.multi_get_tensor([TensorAttr("paper", "x", chosen), TensorAttr("paper", "y", chosen)])
    assert both[0].shape == (3, 32) and both[1].tolist() == [7, 4999, 7]
    store.update_tensor(torch.zeros(2, 32), TensorAttr("paper", "x", torch.tensor([0, 1])))
    assert store["paper", "x", slice(0, 2)].abs().sum() == 0
    assert store.remove_tensor("author", "x", None) and volume.tables() == ["paper.x"]
    assert store["author", "x", None] is None
    # Another store finds the tables of the volume.
    again = FeatureStore(volume)
    np.testing.assert_array_equal(again["paper", "x", chosen].cpu().numpy(), vectors[chosen.numpy()])


def test_loaders_of_geometric_fetch_features(volume, vectors):
    pytest.importorskip("torch_geometric", reason="needs torch_geometric")
    from torch_geometric.loader.utils import filter_custom_hetero_store
    from warpbell.pyg import FeatureStore

    store = FeatureStore(volume)
    store["paper", "x", None] = torch.from_numpy(vectors)
    store["paper", "y", None] = torch.arange(5000)
    nodes, edges = torch.tensor([9, 4, 7]), {("paper", "cites", "paper"): torch.tensor([0, 1])}
    class NoEdges:
        def get_all_edge_attrs(self):
            return []

    # Loaders call this with what they have sampled.
    data = filter_custom_hetero_store(store, NoEdges(), {"paper": nodes}, edges, edges, {("paper", "cites", "paper"): None})
    np.testing.assert_array_equal(data["paper"].x.cpu().numpy(), vectors[nodes.numpy()])
    assert data["paper"].y.tolist() == [9, 4, 7]
