"""Computes the values of tests/cli/suites.json: what networkx and the rules of LDBC Graphalytics say of 40 random graphs.

    pip install networkx
    python3 tests/cli/suite_values.py >tests/cli/suites.json

The graphs are directed and undirected in turn. They have identifiers that leave gaps, self-loops, duplicate edges and isolated
vertices; some have one vertex or no edges.
"""

import json
import random

import networkx as nx


def labels(graph, iterations):
    """Synchronous label propagation. In a directed graph an edge counts at both ends, and a vertex that is both an in- and an
    out-neighbour counts twice."""
    label = {v: v for v in graph}
    for _ in range(iterations):
        after = {}
        for v in graph:
            around = list(graph[v]) + (list(graph.pred[v]) if graph.is_directed() else [])
            counts = {}
            for n in around:
                if n != v:
                    counts[label[n]] = counts.get(label[n], 0) + 1
            after[v] = min(counts, key=lambda l: (-counts[l], l), default=label[v])
        label = after
    return label


def dependencies(graph, sources):
    """networkx counts an undirected pair of ends once, and divides by two."""
    scores = nx.betweenness_centrality_subset(graph, sources, list(graph), normalized=False)
    return {v: s if graph.is_directed() else 2 * s for v, s in scores.items()}


def drawn(seed):
    draw = random.Random(seed)
    directed = seed % 2 == 1
    count = [1, 2, 5, 12, 25, 40][seed % 6]
    vertices = sorted(draw.sample(range(10**9), count))
    # Few edges leave vertices isolated, many have duplicates and self-loops.
    edges = [(draw.choice(vertices), draw.choice(vertices)) for _ in range([0, 1, 1, 2, 4][seed // 2 % 5] * count)]
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(vertices)
    graph.add_edges_from(edges)
    simple = graph.copy()
    simple.remove_edges_from(nx.selfloop_edges(graph))
    iterations = 1 + seed % 7
    components = nx.strongly_connected_components(graph) if directed else nx.connected_components(graph)
    strong = {v: min(c) for c in components for v in c}
    some = vertices[:: max(1, count // 4)]
    return {
        "directed": directed,
        "vertices": vertices,
        "edges": edges,
        "iterations": iterations,
        "labels": [labels(simple, iterations)[v] for v in vertices],
        "strong": [strong[v] for v in vertices],
        "sources": some,
        "some": [dependencies(simple, some)[v] for v in vertices],
        "all": [dependencies(simple, vertices)[v] for v in vertices],
    }


graphs = ",\n".join(json.dumps(drawn(seed), separators=(",", ":")) for seed in range(40))
print(f'{{"networkx":"{nx.__version__}","graphs":[\n{graphs}\n]}}')
