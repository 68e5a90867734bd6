#!/usr/bin/env bash
# Seen with networkx 3.6.1 and igraph 1.0.0: PageRank of one undirected graph with a self-loop differs. networkx follows the loop by one
# arc. igraph follows it by two, since both ends of the loop are at the vertex. Vertex 2 of the path 0 - 1 - 2 with a loop at 2 has rank 0.382
# by networkx and 0.456 by igraph. Without the loop both agree.
# Needs python3 with venv, and pip's index.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 scipy==1.17.1 networkx==3.6.1 igraph==1.0.0
"$folder/venv/bin/python" -W error - <<'PY'
import sys

import igraph
import networkx

print("networkx", networkx.__version__, "igraph", igraph.__version__)
path, loop = [(0, 1), (1, 2)], [(2, 2)]


def by_networkx(edges):
    return list(networkx.pagerank(networkx.Graph(edges), alpha=0.85, tol=1e-13, max_iter=1000).values())


def by_igraph(edges):
    return igraph.Graph(edges).pagerank(damping=0.85)


def by_arcs(loops):
    """The rank over arcs, of which the loop has so many."""
    arcs = networkx.DiGraph([*path, *((b, a) for a, b in path)])
    arcs.add_edge(2, 2, weight=loops)
    return list(networkx.pagerank(arcs, alpha=0.85, tol=1e-13, max_iter=1000).values())


def agree(a, b):
    return all(abs(x - y) < 1e-9 for x, y in zip(a, b, strict=True))


for name, ranks in (("networkx", by_networkx(path + loop)), ("igraph", by_igraph(path + loop))):
    print(f"{name}:", [round(rank, 4) for rank in ranks])
seen = {
    "without the loop both agree": agree(by_networkx(path), by_igraph(path)),
    "networkx: one arc": agree(by_networkx(path + loop), by_arcs(1)),
    "igraph: two arcs": agree(by_igraph(path + loop), by_arcs(2)),
    "they differ": not agree(by_networkx(path + loop), by_igraph(path + loop)),
}
print(seen)
sys.exit(0 if all(seen.values()) else f"changed: {seen}")
PY
