"""The operator of torch, and the feature store of PyTorch Geometric."""

import gc

import numpy as np
import pytest
import warpbell

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
