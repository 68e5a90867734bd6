"""Computes the values of tests/cli/networkx.json: what networkx says of the Enron graph, and of random graphs.

    pip install networkx numpy scipy
    python3 tests/cli/networkx_values.py >tests/cli/networkx.json

The random graphs are part of the file: lines of source, target and weight, with identifiers that leave gaps, or with
names that have blanks, commas, double quotes and letters of several scripts. `suites` has smaller ones, also with
self-loops, duplicate edges and isolated vertices, some with one vertex or no edges, and values of all their vertices.
"""

import json
import pathlib
import random

import networkx as nx

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOP = 10


def histogram(distances):
    levels = [0] * (max(distances.values()) + 1)
    for distance in distances.values():
        levels[distance] += 1
    return levels


def farthest(distances):
    """The smallest of the vertices at the largest distance."""
    largest = max(distances.values())
    return min(v for v, d in distances.items() if d == largest)


def labels(graph, iterations):
    """Synchronous label propagation by the rule of LDBC Graphalytics, which networkx does not have."""
    label = {v: v for v in graph}
    for _ in range(iterations):
        after = {}
        for v in graph:
            counts = {}
            # A vertex that is both an in- and an out-neighbour counts twice.
            for n in list(graph[v]) + (list(graph.pred[v]) if graph.is_directed() else []):
                counts[label[n]] = counts.get(label[n], 0) + 1
            after[v] = min(counts, key=lambda l: (-counts[l], l), default=label[v])
        label = after
    return label


def dependencies(graph, sources):
    """Betweenness centrality of a subset of sources. networkx counts an undirected pair of ends once."""
    scores = nx.betweenness_centrality_subset(graph, sources, list(graph), normalized=False)
    return {v: s if graph.is_directed() else 2 * s for v, s in scores.items()}


def largest(sets):
    """The largest sets, by their smallest member."""
    sizes = sorted((-len(s), name) for name, s in sets)
    return {"count": len(sizes), "largest": [[name, -size] for size, name in sizes[:TOP]]}


def values(graph, source):
    depths = nx.single_source_shortest_path_length(graph, source)
    components = nx.weakly_connected_components(graph) if graph.is_directed() else nx.connected_components(graph)
    sizes = sorted(((-len(c), min(c)) for c in components))
    ranks = nx.pagerank(graph, alpha=0.85, tol=1e-14 / len(graph), max_iter=1000, weight=None)
    highest = sorted(ranks.items(), key=lambda item: (-item[1], item[0]))
    strong = nx.strongly_connected_components(graph) if graph.is_directed() else nx.connected_components(graph)
    communities = {}
    for v, label in labels(graph, 10).items():
        communities.setdefault(label, []).append(v)
    vertices = sorted(graph)
    sources = [source, vertices[0], vertices[-1]]
    scores = sorted(dependencies(graph, sources).items(), key=lambda item: (-item[1], item[0]))
    # For the source and the vertex with the second smallest identifier.
    named = sorted({source, sorted(graph)[1]})
    personal = nx.pagerank(
        graph,
        alpha=0.85,
        tol=1e-14 / len(graph),
        max_iter=1000,
        weight=None,
        personalization={v: 1 for v in named},
    )
    personal = sorted(personal.items(), key=lambda item: (-item[1], item[0]))
    return {
        "source": source,
        "strong": largest((min(c), c) for c in strong),
        "cdlp": largest(communities.items()),
        "bc": {"sources": sources, "highest": scores[:TOP]},
        "bfs": {"levels": histogram(depths), "farthest": farthest(depths)},
        "cc": {"components": len(sizes), "largest": [[label, -size] for size, label in sizes[:TOP]]},
        "pagerank": highest[:TOP],
        "personalized": {"vertices": named, "highest": personal[:TOP]},
    }


def enron():
    with open(ROOT / "examples/data/email-enron.txt", encoding="ascii") as file:
        edges = [tuple(map(int, line.split())) for line in file if not line.startswith("#")]
    return values(nx.Graph(edges), 1)


def name(draw):
    parts = ["Ann", "ann", "Zoë", "Łukasz", "Юрий", "李", "7", "42", "O'Neil", 'J. "Jo" Doe', "Doe, Jane", "x", "𝔸"]
    return draw.choice([" ", "-", ", ", ""]).join(draw.choices(parts, k=draw.randint(1, 3)))


def drawn(seed, directed, named=False):
    draw = random.Random(seed)
    if named:
        found = set()
        while len(found) < 200:
            found.add(name(draw))
        # Code points ascend as bytes of UTF-8 do.
        names = sorted(found)
    else:
        names = sorted(draw.sample(range(10**9), 200))
    pairs = {}
    while len(pairs) < 500:
        a, b = draw.choice(names), draw.choice(names)
        if a != b and (directed or (b, a) not in pairs):
            pairs[a, b] = draw.randint(1, 255)
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_weighted_edges_from((a, b, w) for (a, b), w in pairs.items())
    source = max(graph, key=lambda v: (graph.out_degree(v) if directed else graph.degree(v), -names.index(v)))
    found = values(graph, source)
    lengths = nx.single_source_dijkstra_path_length(graph, source)
    found["sssp"] = {"eccentricity": max(lengths.values()), "farthest": farthest(lengths), "reached": len(lengths)}
    return {"directed": directed, "edges": [[a, b, w] for (a, b), w in pairs.items()], **found}


def small(seed):
    draw = random.Random(seed)
    directed = seed % 2 == 1
    count = [1, 2, 5, 12, 25, 40][seed % 6]
    vertices = sorted(draw.sample(range(10**9), count))
    # Few edges leave vertices isolated, many have duplicates and self-loops.
    edges = [(draw.choice(vertices), draw.choice(vertices)) for _ in range([0, 1, 1, 2, 4][seed // 2 % 5] * count)]
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(vertices)
    graph.add_edges_from((a, b) for a, b in edges if a != b)
    components = nx.strongly_connected_components(graph) if directed else nx.connected_components(graph)
    strong = {v: min(c) for c in components for v in c}
    some, iterations = vertices[:: max(1, count // 4)], 1 + seed % 7
    found = {"strong": strong, "labels": labels(graph, iterations), "some": dependencies(graph, some)}
    found["all"] = dependencies(graph, vertices)
    found = {name: [of[v] for v in vertices] for name, of in found.items()}
    return {"directed": directed, "vertices": vertices, "edges": edges, "iterations": iterations, "sources": some, **found}


graphs = [drawn(s, s % 2 == 1) for s in range(4)]
named = [drawn(s, s % 2 == 1, named=True) for s in range(4, 6)]
suites = [small(s) for s in range(40)]
found = {"networkx": nx.__version__, "enron": enron(), "drawn": graphs, "named": named, "suites": suites}
print(json.dumps(found, ensure_ascii=False))
