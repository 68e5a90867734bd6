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


def test_floats_of_16_bits_are_those_of_torch(engine):
    from warpbell.torch import Rows

    volume = warpbell.Volume.create(engine, "soft:mem", 4 << 20)
    for dtype, name in ((torch.float16, "float16"), (torch.bfloat16, "bfloat16")):
        values = (torch.arange(64 * 32) % 251).reshape(64, 32).to(dtype)
        table = warpbell.Table.from_numpy(volume, name, values)
        assert table.dtype == name
        rows = torch.from_dlpack(table[[5, 63]])
        assert rows.dtype == dtype and torch.equal(rows.cpu(), values[[5, 63]])
        out = torch.zeros(2, 32, dtype=dtype, device=table.device)
        table.gather([0, 7], out)
        assert torch.equal(out.cpu(), values[[0, 7]])
        table[[1, 2]] = out
        found = Rows(table)(torch.tensor([1, 2], device=table.device))
        assert found.dtype == dtype and torch.equal(found.cpu(), values[[0, 7]])


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


# --- edges ---


def geometric():
    pytest.importorskip("torch_geometric", reason="needs torch_geometric")
    from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
    from warpbell.pyg import GraphStore

    return GraphStore, EdgeAttr, EdgeLayout


ROW = torch.tensor([0, 0, 1, 3, 3])
COL = torch.tensor([1, 2, 2, 0, 4])
CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")


def test_a_graph_store_keeps_edges_on_storage(volume):
    GraphStore, EdgeAttr, EdgeLayout = geometric()
    store = GraphStore(volume)
    assert store.get_all_edge_attrs() == [] and len(store) == 0
    pointers = torch.tensor([0, 2, 3, 3, 5])
    store[EdgeAttr(CITES, "csr", size=(4, 5))] = (pointers, COL)
    store.put_edge_index((ROW, COL), edge_type=CITES, layout="coo", size=(5, 5))
    store[EdgeAttr(WRITES, EdgeLayout.CSC)] = (torch.tensor([4, 6], dtype=torch.int32), torch.tensor([0, 1, 2], dtype=torch.int32))
    store[EdgeAttr(None, "coo", is_sorted=True)] = (ROW, COL)
    assert len(store) == 4
    for again in (store, GraphStore(volume)):
        found = {(a.edge_type, a.layout.value): (a.is_sorted, a.size) for a in again.get_all_edge_attrs()}
        assert found == {
            (CITES, "csr"): (False, (4, 5)),
            (CITES, "coo"): (False, (5, 5)),
            (WRITES, "csc"): (True, (7, 2)),
            (None, "coo"): (True, (5, 5)),
        }
        row, col = again[EdgeAttr(CITES, "csr")]
        assert torch.equal(row, pointers) and torch.equal(col, COL) and row.dtype == torch.int64
        row, col = again.get_edge_index(WRITES, "csc")
        assert row.tolist() == [4, 6] and col.tolist() == [0, 1, 2] and row.dtype == torch.int32
        with pytest.raises(KeyError):
            again.get_edge_index(WRITES, "coo")
        assert again.get_edge_index(WRITES, EdgeLayout.CSC)[0].numpy().flags.writeable
    # Kernels read the arrays.
    name, other = store.array_names(CITES, "csr")
    assert warpbell.Cache(volume, bytes=1 << 16).open(other)[1:4].tolist() == COL[1:4].tolist()
    assert volume.load(name).tolist() == pointers.tolist()


def test_edges_are_replaced_and_removed(volume):
    GraphStore, EdgeAttr, _ = geometric()
    store, other = GraphStore(volume), GraphStore(volume, "other")
    attr = EdgeAttr(CITES, "coo")
    other[attr] = (COL, ROW)
    for count in (3, 5, 0, 4):
        store[attr] = (ROW[:count], COL[:count])
        for again in (store, GraphStore(volume)):
            assert torch.equal(again[attr][1], COL[:count]) and again[attr][1].dtype == torch.int64
        # Nothing is left of the one before.
        names = [a["name"] for a in volume.arrays() if a["name"].startswith("edges.")]
        assert len(names) == (3 if count else 1), names
    assert store.remove_edge_index(attr) and not store.remove_edge_index(attr)
    assert len(GraphStore(volume)) == 0 and torch.equal(GraphStore(volume, "other")[attr][0], COL)
    assert [a["name"] for a in volume.arrays()] == ["other.0.row", "other.0.col", "other.0.attr"]
    with pytest.raises(KeyError):
        store.get_edge_index(CITES, "coo")


def test_a_program_that_ended_too_early_leaves_the_old_edges(volume):
    GraphStore, EdgeAttr, _ = geometric()
    attr = EdgeAttr(CITES, "coo")
    GraphStore(volume)[attr] = (ROW, COL)
    # As a put leaves them that was interrupted before it was done.
    volume.store("edges.1.row", np.arange(9))
    volume.store("edges.notes", np.arange(3))
    store = GraphStore(volume)
    assert torch.equal(store[attr][0], ROW)
    store[attr] = (ROW[:2], COL[:2])
    assert {a["name"] for a in volume.arrays()} == {"edges.2.row", "edges.2.col", "edges.2.attr", "edges.notes"}
    # As one that was interrupted before it had removed the old edges.
    for part in ("row", "col", "attr"):
        volume.store(f"edges.7.{part}", volume.load(f"edges.2.{part}"))
    store = GraphStore(volume)
    assert len(store) == 1 and store.array_names(CITES, "coo")[0] == "edges.7.row"
    store[attr] = (ROW, COL)
    assert len(volume.arrays()) == 4
    volume.store("edges.9.attr", np.frombuffer(b"{}", np.uint8))
    with pytest.raises(warpbell.DamagedError, match="edges.9.attr"):
        GraphStore(volume)


@pytest.mark.parametrize(
    "attr, edges, text",
    [
        ((CITES, "coo"), (ROW, COL[:4]), "5 sources and 4 destinations"),
        ((CITES, "csr"), (torch.tensor([0, 2, 4]), COL), "from 0 to 4 for 5 edges"),
        ((CITES, "csc"), (ROW, torch.tensor([0, 3, 2, 5])), "rise"),
        ((CITES, "csc"), (ROW, torch.tensor([], dtype=torch.int64)), "without elements"),
        ((CITES, "coo"), (ROW.float(), COL), "float32"),
        ((CITES, "coo"), (ROW.view(1, 5), COL), "2 dimensions"),
        ((CITES, "coo"), (ROW - 1, COL), "negative"),
        ((CITES, "coo", False, (3, 5)), (ROW, COL), "4 sources and 5 destinations"),
        ((CITES, "csr", False, (9, 5)), (torch.tensor([0, 5]), COL), "its size is"),
        (("cites", "coo"), (ROW, COL), "three texts"),
    ],
)
def test_bad_edges_are_refused(volume, attr, edges, text):
    GraphStore, EdgeAttr, _ = geometric()
    store = GraphStore(volume)
    with pytest.raises(warpbell.InvalidError, match=text):
        store[EdgeAttr(*attr)] = edges
    assert volume.arrays() == [] and len(store) == 0


class WholeNeighbourhoods:
    """A sampler of PyTorch Geometric's interface that takes all neighbours of the seeds."""

    def __init__(self, graph_store):
        self.row, self.pointers, _ = graph_store.csc()

    def sample_from_nodes(self, index, **kwargs):
        from torch_geometric.sampler import SamplerOutput

        seeds = index.node
        picked = [torch.arange(self.pointers[n], self.pointers[n + 1]) for n in seeds]
        edge = torch.cat(picked)
        nodes = torch.unique(torch.cat([seeds, self.row[edge]]), sorted=True)
        nodes = torch.cat([seeds, nodes[~torch.isin(nodes, seeds)]])
        number = torch.empty(int(nodes.max()) + 1, dtype=torch.int64)
        number[nodes] = torch.arange(len(nodes))
        col = torch.cat([torch.full((len(p),), i) for i, p in enumerate(picked)])
        return SamplerOutput(node=nodes, row=number[self.row[edge]], col=col, edge=edge, metadata=(index.input_id, index.time))


def test_node_loaders_take_both_stores(volume, vectors):
    GraphStore, EdgeAttr, _ = geometric()
    from torch_geometric.loader import NodeLoader
    from torch_geometric.sampler import BaseSampler
    from warpbell.pyg import FeatureStore

    generator = np.random.default_rng(5)
    edges = torch.from_numpy(generator.integers(0, 5000, (2, 20_000)))
    features = FeatureStore(volume)
    features[None, "x", None] = torch.from_numpy(vectors)
    features[None, "y", None] = torch.arange(5000)
    GraphStore(volume)[EdgeAttr(None, "coo", size=(5000, 5000))] = (edges[0], edges[1])
    graph = GraphStore(volume)

    class Sampler(WholeNeighbourhoods, BaseSampler):
        def sample_from_edges(self, index, neg_sampling=None):
            raise NotImplementedError

    seeds, seen = torch.arange(0, 5000, 50), 0
    for batch in NodeLoader((features, graph), Sampler(graph), input_nodes=seeds, batch_size=16):
        nodes = batch.y
        np.testing.assert_array_equal(batch.x.cpu().numpy(), vectors[nodes.numpy()])
        assert torch.equal(nodes[: batch.batch_size], seeds[seen : seen + batch.batch_size])
        sampled = nodes[batch.edge_index].T.tolist()
        wanted = edges.T[torch.isin(edges[1], nodes[: batch.batch_size])].tolist()
        assert sorted(sampled) == sorted(wanted)
        seen += batch.batch_size
    assert seen == len(seeds)


def test_neighbor_loaders_take_both_stores(volume, vectors):
    GraphStore, EdgeAttr, _ = geometric()
    import torch_geometric.typing
    from torch_geometric.loader import NeighborLoader
    from warpbell.pyg import FeatureStore

    if not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE):
        pytest.skip("needs pyg-lib or torch-sparse, which sample for NeighborLoader")
    edges = torch.from_numpy(np.random.default_rng(5).integers(0, 5000, (2, 20_000)))
    edges[1, :5000] = torch.arange(5000)
    features = FeatureStore(volume)
    features["paper", "x", None] = torch.from_numpy(vectors)
    features["paper", "y", None] = torch.arange(5000)
    GraphStore(volume)[EdgeAttr(CITES, "coo", size=(5000, 5000))] = (edges[0], edges[1])
    stored = set(map(tuple, edges.T.tolist()))
    loader = NeighborLoader((features, GraphStore(volume)), [4, 3], input_nodes=("paper", torch.arange(100)), batch_size=25)
    batches = 0
    for batch in loader:
        nodes = batch["paper"].y
        np.testing.assert_array_equal(batch["paper"].x.cpu().numpy(), vectors[nodes.numpy()])
        sampled = batch[CITES].edge_index
        assert sampled.shape[1] > 0
        assert {(int(nodes[s]), int(nodes[d])) for s, d in sampled.T.tolist()} <= stored
        batches += 1
    assert batches == 4


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int8", "bool"])
def test_pages_of_any_type_are_stored_and_loaded(engine, volume, name):
    store = warpbell.KvStore.create(volume, "cache", bytes=1 << 20, objects=32)
    queue, device = warpbell.SegmentQueue(volume), "cuda" if engine.kind == "gpu" else "cpu"
    layers = [torch.randn(8, 2, 32, device=device).to(getattr(torch, name)) for _ in range(3)]
    other = [torch.zeros_like(layer) for layer in layers]
    keys = [bytes([number] * 32) for number in range(4)]
    each = 3 * layers[0][0].nbytes
    assert store.store(queue, keys, layers, torch.tensor([1, 0, 3, 5])).finish(60) == [each] * 4
    assert store.load(queue, keys, other, torch.tensor([[4], [5], [6], [0]], dtype=torch.int32)).finish(60) == [each] * 4
    for layer, found in zip(layers, other):
        assert torch.equal(found.view(torch.uint8)[[4, 5, 6, 0]], layer.view(torch.uint8)[[1, 0, 3, 5]])
    with pytest.raises(warpbell.InvalidError, match="C-contiguous"):
        store.load(queue, keys[:1], [layer.transpose(0, 1) for layer in layers], [0])
