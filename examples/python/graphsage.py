#!/usr/bin/env python3
"""Trains GraphSAGE with features on storage, in memory, and in a memory-mapped file, and compares losses and speed.

The graph is generated: nodes of communities, most of whose edges stay within their community. A node's features are those of its community
with much noise, so that a model has to look at neighbours. All three trainings have the same seeds. Their losses are the same: bit by bit
on CPU threads, within 0.01 % on a GPU.

    pip install torch torch_geometric, then  examples/python/graphsage.py              6,000 nodes, some seconds
    examples/python/graphsage.py --nodes 2000000 --dims 256 --batch 4096 --engine gpu   2 GB of features
    examples/python/graphsage.py --device nvme:0000:65:00.0                             on a drive that is empty or warpbell's own
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

# cuBLAS gives the same bits in each run only with this.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import torch
import torch.nn.functional as F
import warpbell
from torch_geometric.data import FeatureStore, TensorAttr
from torch_geometric.data.graph_store import EdgeAttr
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import BaseSampler, SamplerOutput
from warpbell import pyg

#: Greatest relative difference of losses.
TOLERANCE = {"cpu": 0.0, "gpu": 1e-4}
#: Nodes whose features are generated at once.
PIECE = 1 << 16


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=6000)
    parser.add_argument("--degree", type=int, default=12, help="edges of a node")
    parser.add_argument("--dims", type=int, default=64, help="features of a node, at least 16")
    parser.add_argument("--communities", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--fanout", type=lambda text: [int(n) for n in text.split(",")], default=[8, 5], help="neighbours for each layer")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--engine", default="auto", help="auto, cpu or gpu")
    parser.add_argument("--device", help="device for the features (a file in a temporary folder)")
    parser.add_argument("--cache-bytes", type=int, default=0, help="memory for rows near the kernels")
    # More threads would wait for each other, and for processors that the threads of a software device have.
    parser.add_argument("--torch-threads", type=int, default=4, help="threads of torch on the host, which draws neighbours in short steps (4)")
    return parser.parse_args()


def planted(given):
    """Returns communities of nodes, and the edges by destination: source nodes and pointers. Four of five edges stay within a community."""
    generator = np.random.default_rng(given.seed)
    labels = generator.integers(0, given.communities, given.nodes)
    members = np.argsort(labels, kind="stable")
    begin = np.searchsorted(labels[members], np.arange(given.communities + 1))
    first, count = begin[labels][:, None], np.diff(begin)[labels][:, None]
    shape = (given.nodes, given.degree)
    inside = members[first + (generator.random(shape) * count).astype(np.int64)]
    sources = np.where(generator.random(shape) < 0.8, inside, generator.integers(0, given.nodes, shape))
    return torch.from_numpy(labels), torch.from_numpy(sources.reshape(-1)), torch.arange(given.nodes + 1) * given.degree


def write_features(given, labels, path):
    """Writes the features to a memory-mapped file, and returns it."""
    generator = np.random.default_rng(given.seed + 1)
    centres = generator.standard_normal((given.communities, given.dims), dtype=np.float32)
    features = np.lib.format.open_memmap(path, "w+", np.float32, (given.nodes, given.dims))
    for at in range(0, given.nodes, PIECE):
        noise = generator.standard_normal((min(PIECE, given.nodes - at), given.dims), dtype=np.float32)
        features[at : at + PIECE] = 0.3 * centres[labels[at : at + PIECE].numpy()] + 2 * noise
    features.flush()
    return features


class ArrayStore(FeatureStore):
    """Features in arrays of numpy, in memory or mapped."""

    def __init__(self, **arrays):
        super().__init__()
        self.__dict__["_arrays"] = arrays

    def _put_tensor(self, tensor, attr):
        self._arrays[attr.attr_name] = tensor.numpy()
        return True

    def _get_tensor(self, attr):
        return torch.from_numpy(np.asarray(self._arrays[attr.attr_name][attr.index.numpy()]))

    def _remove_tensor(self, attr):
        return self._arrays.pop(attr.attr_name, None) is not None

    def _get_tensor_size(self, attr):
        return self._arrays[attr.attr_name].shape

    def get_all_tensor_attrs(self):
        return [TensorAttr(None, name, None) for name in self._arrays]


class Sampler(BaseSampler):
    """Neighbours of nodes, drawn with replacement. ``NeighborLoader`` has a sampler of its own if pyg-lib is installed."""

    def __init__(self, graph, nodes, fanout, seed):
        self.row, self.pointers, _ = graph.csc()
        self.fanout, self.random = fanout, torch.Generator().manual_seed(seed)
        # Numbers of nodes within a batch, or -1.
        self.number = torch.full((nodes,), -1)

    def sample_from_nodes(self, inputs, **_):
        nodes = frontier = inputs.node
        self.number[nodes] = torch.arange(len(nodes))
        rows, cols = [], []
        for fan in self.fanout:
            begin, degree = self.pointers[frontier], self.pointers[frontier + 1] - self.pointers[frontier]
            frontier, begin, degree = frontier[degree > 0], begin[degree > 0], degree[degree > 0]
            drawn = (torch.rand(len(frontier), fan, generator=self.random, dtype=torch.float64) * degree[:, None]).long()
            source = self.row[begin[:, None] + drawn].view(-1)
            cols.append(self.number[frontier].repeat_interleave(fan))
            frontier = source[self.number[source] < 0].unique()
            self.number[frontier] = torch.arange(len(nodes), len(nodes) + len(frontier))
            nodes = torch.cat([nodes, frontier])
            rows.append(self.number[source])
        self.number[nodes] = -1
        return SamplerOutput(nodes, torch.cat(rows), torch.cat(cols), edge=None, metadata=(inputs.input_id, inputs.time))

    def sample_from_edges(self, inputs, neg_sampling=None):
        raise NotImplementedError("this example predicts nodes")


class Sage(torch.nn.Module):
    def __init__(self, dims, hidden, classes, layers):
        super().__init__()
        sizes = [dims, *[hidden] * (layers - 1), classes]
        self.layers = torch.nn.ModuleList(SAGEConv(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x, edges):
        for number, layer in enumerate(self.layers):
            x = layer(x if number == 0 else F.relu(x), edges)
        return x


def train(given, stores, device):
    """Returns the loss of each epoch, and epochs per second without the first one."""
    torch.manual_seed(given.seed)
    model = Sage(given.dims, given.hidden, given.communities, len(given.fanout)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = Sampler(stores[1], given.nodes, given.fanout, given.seed)
    order = torch.Generator().manual_seed(given.seed)
    loader = NodeLoader(stores, sampler, input_nodes=torch.arange(given.nodes), batch_size=given.batch, shuffle=True, generator=order)
    losses, begun = [], 0.0
    for epoch in range(given.epochs):
        if epoch == min(1, given.epochs - 1):
            begun = time.perf_counter()
        total = torch.zeros((), dtype=torch.float64, device=device)
        for batch in loader:
            batch = batch.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            total += loss.detach() * batch.batch_size
        losses.append(total.item() / given.nodes)
    return losses, max(1, given.epochs - 1) / (time.perf_counter() - begun)


def main():
    given = options()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(given.torch_threads)
    engine = warpbell.Engine(given.engine)
    labels, sources, pointers = planted(given)
    edges = EdgeAttr(None, "csc", size=(given.nodes, given.nodes))
    with tempfile.TemporaryDirectory() as folder:
        mapped = write_features(given, labels, pathlib.Path(folder, "features.npy"))
        needed = mapped.nbytes + sources.nbytes + pointers.nbytes + (64 << 20)
        volume = warpbell.Volume.create(engine, given.device or f"soft:{folder}/features.img", needed)
        graph = pyg.GraphStore(volume)
        graph[edges] = (sources, pointers)
        stored = pyg.FeatureStore(volume, cache_bytes=given.cache_bytes)
        # A memory-mapped file is stored in pieces.
        stored[None, "x", None] = torch.from_numpy(mapped)
        stored[None, "y", None] = labels
        device = torch.device("cuda:0" if engine.kind == "gpu" else "cpu")
        kinds = {
            "memory": ArrayStore(x=np.array(mapped), y=labels.numpy()),
            "memory-mapped file": ArrayStore(x=mapped, y=labels.numpy()),
            "storage": stored,
        }
        print(f"engine: {engine}")
        print(f"{given.nodes:,} nodes, {len(sources):,} edges, {mapped.nbytes / 1e6:,.1f} MB of features; losses of {given.epochs} epochs:")
        results = {}
        for name, features in kinds.items():
            results[name], speed = train(given, (features, graph), device)
            print(f"{name:20} {' '.join(f'{loss:.6f}' for loss in results[name])}  {speed:8.3f} epochs/s", flush=True)
    expected = results["memory"]
    apart = max(abs(a - b) / b for losses in results.values() for a, b in zip(losses, expected))
    if apart > TOLERANCE[engine.kind]:
        sys.exit(f"losses differ by {apart:.2e} of their value, more than {TOLERANCE[engine.kind]:.0e}")
    if given.epochs > 1 and expected[-1] >= expected[0]:
        sys.exit(f"the loss did not fall: {expected[0]:.6f} to {expected[-1]:.6f}; train for more epochs")
    print(f"correct: the losses are the same ({'bit by bit' if apart == 0 else f'within {apart:.1e} of their value'})")


if __name__ == "__main__":
    main()
