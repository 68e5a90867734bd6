"""Neighbour lists of graphs in other libraries."""

from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ._errors import InvalidError


def from_scipy(matrix: Any, weighted: bool, directed: bool) -> Tuple[Any, Any, Any]:
    """Returns offsets, neighbours, and weights or ``None``, of a sparse matrix or array of scipy."""
    csr = matrix.tocsr()
    rows, columns = csr.shape
    if rows != columns:
        raise InvalidError(f"matrix: it has {rows} rows and {columns} columns; a graph has as many rows as columns")
    if csr is matrix:
        # The next call changes the matrix.
        csr = csr.copy()
    csr.sum_duplicates()
    if not directed:
        if weighted:
            if abs(csr - csr.T).max() > 0:
                raise InvalidError("matrix: it is not symmetric, and edges without direction have one weight; pass directed=True, or make it symmetric")
        else:
            # Edges in either direction, whatever their values are: an entry of 0 is an edge too.
            csr = type(csr)((np.ones(csr.nnz, dtype=np.int8), csr.indices, csr.indptr), shape=csr.shape)
            csr = (csr + csr.T).tocsr()
    return csr.indptr, csr.indices, csr.data if weighted else None


def from_networkx(graph: Any, weight: Optional[str]) -> Tuple[Any, Any, Any, bool, List[Any], Dict[Any, int]]:
    """Returns offsets, neighbours, weights or ``None``, true if edges have a direction, the nodes, and their numbers."""
    nodes = list(graph)
    numbers = {node: number for number, node in enumerate(nodes)}
    offsets = np.zeros(len(nodes) + 1, dtype=np.uint64)
    neighbours: List[int] = []
    lengths: List[Any] = []
    for number, node in enumerate(nodes):
        lists = graph.adj[node]
        for other, attributes in lists.items():
            neighbours.append(numbers[other])
            if weight is not None:
                # Of parallel edges the shortest counts.
                edges = attributes.values() if graph.is_multigraph() else (attributes,)
                lengths.append(min(_weight(edge, weight, node, other) for edge in edges))
        offsets[number + 1] = len(neighbours)
    # An empty list would be one of real numbers, which are weights all the same.
    weights = None if weight is None else np.array(lengths)
    return offsets, np.array(neighbours, dtype=np.uint64), weights, graph.is_directed(), nodes, numbers


def _weight(attributes: Any, name: str, node: Any, other: Any) -> Any:
    try:
        return attributes[name]
    except KeyError:
        raise InvalidError(f"graph: the edge from {node!r} to {other!r} has no attribute {name!r}; set one on every edge") from None
