"""Computes the values of tests/cli/networkx_counts.json: what networkx says of triangles, clustering coefficients and core
numbers of the Enron graph, and of random graphs with self-loops, repeated edges, isolated vertices and sparse identifiers.

    pip install networkx numpy scipy
    python3 tests/cli/networkx_counts.py >tests/cli/networkx_counts.json

networkx has other coefficients for directed graphs. Those here are of LDBC Graphalytics' rule, from its definition.
"""

import json
import pathlib
import random

import networkx as nx

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOP = 10


def coefficient(graph, vertex):
    near = set(graph.successors(vertex)) | set(graph.predecessors(vertex))
    between = sum(graph.has_edge(a, b) for a in near for b in near)
    return between / (len(near) * (len(near) - 1)) if len(near) > 1 else 0.0


def values(graph):
    """The values of all vertices in ascending order. `graph` is simple."""
    order = sorted(graph)
    cores = nx.core_number(graph)
    found = {"cores": [cores[v] for v in order]}
    if graph.is_directed():
        found["coefficients"] = [coefficient(graph, v) for v in order]
    else:
        triangles, coefficients = nx.triangles(graph), nx.clustering(graph)
        found["triangles"] = [triangles[v] for v in order]
        found["coefficients"] = [coefficients[v] for v in order]
    return found


def enron():
    with open(ROOT / "examples/data/email-enron.txt", encoding="ascii") as file:
        graph = nx.Graph(tuple(map(int, line.split())) for line in file if not line.startswith("#"))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    found = values(graph)
    most = sorted(zip(sorted(graph), found["triangles"]), key=lambda item: (-item[1], item[0]))
    sizes = {core: found["cores"].count(core) for core in set(found["cores"])}
    return {
        "triangles": sum(found["triangles"]) // 3,
        "most": most[:TOP],
        "mean": sum(found["coefficients"]) / len(graph),
        "cores": sorted(sizes.items(), reverse=True)[:TOP],
    }


def drawn(seed):
    draw = random.Random(seed)
    directed = seed % 2 == 1
    count = [1, 5, 2, 3, 8, 20, 40, 60][seed // 2 % 8]
    names = sorted(draw.sample(range(10**9), count))
    # The last vertices are isolated in some graphs; some graphs have no edges.
    ends = names[: max(1, count - draw.choice([0, 0, 3]))]
    edges = [[draw.choice(ends), draw.choice(ends)] for _ in range(0 if seed < 4 else draw.randint(count, 5 * count))]
    edges += draw.choices(edges, k=3) if edges else []
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from((a, b) for a, b in edges if a != b)
    return {"directed": directed, "vertices": names, "edges": edges, **values(graph)}


graphs = [drawn(seed) for seed in range(40)]
print(json.dumps({"networkx": nx.__version__, "enron": enron(), "drawn": graphs}))
