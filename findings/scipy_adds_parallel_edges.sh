#!/usr/bin/env bash
# Seen with scipy 1.17.1 and networkx 3.6.1, for a Matrix Market file that has an edge twice, with weights 3 and 5:
#  * scipy's csgraph takes the sum: the distance over the edge is 8, for the matrix as scipy.io.mmread returns it, and as CSR.
#  * networkx.from_scipy_sparse_array keeps the weight of the later line: 5, or 3 if the lines are exchanged.
#  * As parallel edges of a networkx.MultiDiGraph they give 3, the smallest weight.
# None of them warns.
# Needs python3 with venv, and pip's index.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 scipy==1.17.1 networkx==3.6.1
"$folder/venv/bin/python" -W error - <<'PY'
import io
import sys

import networkx
import scipy
from scipy.io import mmread
from scipy.sparse.csgraph import dijkstra

print("scipy", scipy.__version__, "networkx", networkx.__version__)
shortest = networkx.single_source_dijkstra_path_length
seen = {}
for weights in ((3, 5), (5, 3)):
    lines = [f"1 2 {weight}" for weight in weights]
    text = "\n".join(["%%MatrixMarket matrix coordinate integer general", "3 3 3", *lines, "2 3 1", ""])
    matrix = mmread(io.StringIO(text))
    simple = networkx.from_scipy_sparse_array(matrix, create_using=networkx.DiGraph)
    parallel = networkx.MultiDiGraph()
    parallel.add_weighted_edges_from([*((0, 1, weight) for weight in weights), (1, 2, 1)])
    seen[weights] = {
        "csgraph": int(dijkstra(matrix, indices=0)[1]),
        "csgraph, CSR": int(dijkstra(matrix.tocsr(), indices=0)[1]),
        "networkx, from scipy": int(shortest(simple, 0)[1]),
        "networkx, parallel edges": int(shortest(parallel, 0)[1]),
    }
    print("weights", weights, seen[weights])
expected = {
    (3, 5): {"csgraph": 8, "csgraph, CSR": 8, "networkx, from scipy": 5, "networkx, parallel edges": 3},
    (5, 3): {"csgraph": 8, "csgraph, CSR": 8, "networkx, from scipy": 3, "networkx, parallel edges": 3},
}
sys.exit(0 if seen == expected else f"changed: {seen}")
PY
