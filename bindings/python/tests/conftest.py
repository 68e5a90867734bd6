"""Fixtures: an engine, and volumes on it.

``WARPBELL_TEST_ENGINE=gpu`` runs all tests on the first GPU.
"""

import os

import pytest
import warpbell

MIB = 1 << 20


def open_engine(**options):
    """Opens the engine that tests run on: two CPU threads, or a GPU."""
    if os.environ.get("WARPBELL_TEST_ENGINE") == "gpu":
        return warpbell.Engine("gpu", **options)
    return warpbell.Engine("cpu", threads=2, **options)


@pytest.fixture(scope="session")
def engine():
    return open_engine()


@pytest.fixture
def volume(engine):
    return warpbell.Volume.create(engine, "soft:mem", 32 * MIB)


@pytest.fixture
def vectors():
    import numpy as np

    return np.random.default_rng(7).random((5000, 32), dtype=np.float32)


@pytest.fixture
def table(volume, vectors):
    return warpbell.Table.from_numpy(volume, "vectors", vectors)


class Memory:
    """Arrays in memory that the engine's kernels reach: of numpy, or of torch on a GPU."""

    def __init__(self, engine):
        self.torch = pytest.importorskip("torch", reason="needs torch") if engine.kind == "gpu" else None

    def of(self, array):
        return array if self.torch is None else self.torch.from_numpy(array).cuda()

    def numpy(self, array):
        return array if self.torch is None else array.cpu().numpy()


@pytest.fixture
def memory(engine):
    return Memory(engine)
