"""Graphs and algorithms, against plain ones."""

import collections
import heapq

import numpy as np
import pytest
import warpbell
from conftest import MIB


def lists(seed=3, vertices=300, edges=900, directed=True):
    """Returns CSR parts of a random graph."""
    choose = np.random.default_rng(seed)
    pairs = choose.integers(0, vertices, (edges, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if not directed:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = np.unique(pairs, axis=0)
    indptr = np.searchsorted(pairs[:, 0], np.arange(vertices + 1))
    return indptr, pairs[:, 1]


def depths(indptr, indices, source):
    found = {source: 0}
    queue = collections.deque([source])
    while queue:
        v = queue.popleft()
        for n in indices[indptr[v] : indptr[v + 1]]:
            if n not in found:
                found[n] = found[v] + 1
                queue.append(n)
    return np.array([found.get(v, -1) for v in range(len(indptr) - 1)])


def distances(indptr, indices, weights, source):
    found, queue = {}, [(0, source)]
    while queue:
        d, v = heapq.heappop(queue)
        if v in found:
            continue
        found[v] = d
        for i in range(indptr[v], indptr[v + 1]):
            heapq.heappush(queue, (d + weights[i], indices[i]))
    return found


def propagated(indptr, indices, directed, iterations):
    """Labels by the rule of LDBC Graphalytics."""
    label = list(range(len(indptr) - 1))
    for _ in range(iterations):
        counts = [{} for _ in label]
        for u in range(len(label)):
            for v in indices[indptr[u] : indptr[u + 1]]:
                for a, b in ((u, v), (v, u)) if directed else ((u, v),):
                    if a != b:
                        counts[a][label[b]] = counts[a].get(label[b], 0) + 1
        best = [min(c, key=lambda l: (-c[l], l), default=label[v]) for v, c in enumerate(counts)]
        label = best
    return label


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("stored", [False, True])
def test_algorithms_agree_with_plain_ones(engine, directed, stored):
    indptr, indices = lists(directed=directed)
    cache = None
    if stored:
        cache = warpbell.Cache(warpbell.Volume.create(engine, "soft:mem", 8 * MIB), MIB)
    graph = warpbell.Graph.from_csr(engine, indptr, indices, directed=directed, cache=cache)
    assert (graph.vertices, graph.arcs, graph.directed, graph.weighted) == (300, len(indices), directed, False)
    assert ("storage" in graph.info()["placement"]) == stored or stored
    result = graph.bfs(5)
    depth, parent = result.depth.numpy(), result.parent.numpy()
    np.testing.assert_array_equal(depth, depths(indptr, indices, 5))
    assert result.reached == (depth >= 0).sum() and result.levels >= depth.max()
    for v in np.flatnonzero(depth > 0):
        assert depth[parent[v]] == depth[v] - 1 and v in indices[indptr[parent[v]] : indptr[parent[v] + 1]]
    assert parent[5] == 5 and (parent[depth < 0] == -1).all()
    assert graph.bfs(5, parents=False).parent is None

    label = graph.cc().label.numpy()
    for v in range(300):
        assert (label[indices[indptr[v] : indptr[v + 1]]] == label[v]).all()
    assert graph.cc().components == len(np.unique(label))

    found = graph.cdlp(iterations=3)
    expected = propagated(indptr, indices, directed, 3)
    np.testing.assert_array_equal(found.label.numpy(), expected)
    assert found.communities == len(set(expected)) and found.iterations <= 3

    ranks = graph.pagerank(tolerance=1e-9)
    assert ranks.converged and abs(ranks.rank.numpy().sum() - 1) < 1e-6 and ranks.rank.dtype == "float64"


def test_triangles_coefficients_and_cores(engine):
    nx = pytest.importorskip("networkx")
    source = nx.karate_club_graph()
    graph = warpbell.Graph.from_networkx(engine, source)
    nodes = [graph.id(v) for v in range(34)]
    expected = nx.triangles(source)
    triangles = graph.triangles()
    assert triangles.total == 45 and triangles.triangles.numpy().tolist() == [expected[n] for n in nodes]
    expected = nx.clustering(source)
    np.testing.assert_allclose(graph.clustering().coefficient.numpy(), [expected[n] for n in nodes], atol=1e-12)
    expected = nx.core_number(source)
    cores = graph.cores()
    assert cores.largest == 4 and cores.core.numpy().tolist() == [expected[n] for n in nodes]
    assert "45 triangles" in repr(triangles) and "largest core number 4" in repr(cores)

    directed = warpbell.Graph.from_csr(engine, np.array([0, 2, 3, 3]), np.array([1, 2, 2]), directed=True)
    assert directed.clustering().coefficient.numpy().tolist() == [0.5, 0.5, 0.5]
    assert directed.cores().core.numpy().tolist() == [2, 2, 2]
    with pytest.raises(warpbell.InputError, match="defined for undirected graphs"):
        directed.triangles()


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32, np.float64])
def test_shortest_paths(engine, dtype):
    indptr, indices = lists()
    weights = np.random.default_rng(1).integers(1, 50, len(indices)).astype(dtype)
    graph = warpbell.Graph.from_csr(engine, indptr, indices, weights)
    result = graph.sssp(7)
    found, expected = result.distance.numpy(), distances(indptr, indices, weights.astype(float), 7)
    for v in range(300):
        if v in expected:
            assert found[v] == pytest.approx(expected[v])
        else:
            assert found[v] == result.unreached or (np.isnan(found[v]) and np.isnan(result.unreached))
    assert len(expected) < 300 or dtype


def test_searches_end_where_they_are_told_to(engine):
    indptr, indices = lists()
    weights = np.random.default_rng(2).integers(0, 9, len(indices)).astype(np.float64)
    graph = warpbell.Graph.from_csr(engine, indptr, indices, weights)
    all_depths, all_distances = depths(indptr, indices, 5), distances(indptr, indices, weights, 5)
    target = max(all_distances, key=all_distances.get)
    search = graph.bfs(5, max_depth=2)
    near = (all_depths >= 0) & (all_depths <= 2)
    np.testing.assert_array_equal(search.depth.numpy(), np.where(near, all_depths, -1))
    path = graph.bfs(5, target=target).path(target)
    assert path[0] == 5 and path[-1] == target and len(path) == all_depths[target] + 1
    missing = int(np.flatnonzero(all_depths < 0)[0])
    assert graph.bfs(5).path(missing) is None

    result = graph.sssp(5, parents=True, target=target)
    path, parent = result.path(target), result.parent.numpy()
    assert path[0] == 5 and all(parent[b] == a for a, b in zip(path, path[1:]))
    arcs = [indices[indptr[a] : indptr[a + 1]].tolist().index(b) + indptr[a] for a, b in zip(path, path[1:])]
    assert weights[arcs].sum() == pytest.approx(all_distances[target])
    near = graph.sssp(5, max_distance=4.5).distance.numpy()
    assert np.isfinite(near).sum() == sum(d <= 4.5 for d in all_distances.values())
    with pytest.raises(warpbell.InvalidError, match="parents=True"):
        graph.sssp(5).path(target)
    with pytest.raises(warpbell.InvalidError, match="300"):
        result.path(300)
    with pytest.raises(warpbell.InvalidError, match="300"):
        graph.bfs(5, target=300)


def test_searches_together_are_those_alone(engine):
    indptr, indices = lists()
    graph = warpbell.Graph.from_csr(engine, indptr, indices)
    result = graph.multi_bfs([5, 0, 5])
    for search, source in enumerate([5, 0, 5]):
        expected = depths(indptr, indices, source)
        np.testing.assert_array_equal(result.depth[search].numpy(), expected)
        assert result.reached[search] == (expected >= 0).sum()
        np.testing.assert_array_equal(result.reached_by.numpy() >> np.uint64(search) & np.uint64(1), expected >= 0)
    assert graph.multi_bfs([1], depths=False, max_depth=1).depth is None and "3 searches" in repr(result)
    with pytest.raises(warpbell.InvalidError, match="65 searches at once"):
        graph.multi_bfs([0] * 65)


def test_ranks_for_some_vertices(engine):
    indptr, indices = lists()
    graph = warpbell.Graph.from_csr(engine, indptr, indices)
    for named, shares in [([3, 7], {3: 0.5, 7: 0.5}), ({3: 1, 7: 3.0}, {3: 0.25, 7: 0.75})]:
        ranks = graph.pagerank(tolerance=1e-12, personalize=named).rank.numpy()
        jump = np.array([shares.get(v, 0) for v in range(300)])
        degree = np.diff(indptr)
        expected = (0.15 + 0.85 * ranks[degree == 0].sum()) * jump
        np.add.at(expected, indices, 0.85 * np.repeat(ranks / np.maximum(degree, 1), degree))
        np.testing.assert_allclose(ranks, expected, atol=1e-10)
    with pytest.raises(warpbell.InvalidError, match="personalize is empty"):
        graph.pagerank(personalize=[])
    with pytest.raises(warpbell.InvalidError, match="300"):
        graph.pagerank(personalize=[300])


def test_wrong_graphs_are_refused(engine):
    indptr, indices = lists()
    make = warpbell.Graph.from_csr
    with pytest.raises(warpbell.InvalidError):
        make(engine, indptr[::-1], indices)
    with pytest.raises(warpbell.InvalidError):
        make(engine, indptr, np.where(indices == 3, 300, indices))
    with pytest.raises(warpbell.InvalidError, match="-1 is no weight"):
        make(engine, indptr, indices, -np.ones(len(indices), int))
    with pytest.raises(warpbell.InvalidError):
        make(engine, indptr, indices, np.full(len(indices), np.nan))
    with pytest.raises(warpbell.InvalidError, match="indices: elements of type float64"):
        make(engine, indptr, indices + 0.5)
    with pytest.raises(warpbell.InvalidError, match="edges is `disk`"):
        make(engine, indptr, indices, edges="disk")
    graph = make(engine, indptr, indices)
    with pytest.raises(warpbell.InvalidError, match="300"):
        graph.bfs(300)
    with pytest.raises(warpbell.InvalidError, match="300"):
        graph.id(300)
    with pytest.raises(warpbell.Error, match="weight"):
        graph.sssp(0)


def test_a_stored_graph_is_opened_again(engine, tmp_path):
    (tmp_path / "people.csv").write_text("from,to,weight\nann,bob,2\nbob,cid,3\ncid,dan,4\neve,fay,1\n")
    spec = f"soft:{tmp_path}/graphs.img"
    cache = warpbell.Cache(warpbell.Volume.create(engine, spec, 8 * MIB), MIB)
    told = []
    graph = warpbell.Graph.import_file(
        cache, "people", tmp_path / "people.csv", orientation="undirected", progress=lambda *step: told.append(step)
    )
    assert {stage for stage, _, _ in told} >= {"read", "store"}
    assert (graph.vertices, graph.arcs, graph.weighted, graph.directed) == (6, 8, True, False)
    with pytest.raises(warpbell.ExistsError, match="people"):
        warpbell.Graph.import_file(cache, "people", tmp_path / "people.csv")
    del graph, cache
    cache = warpbell.Cache(warpbell.Volume.open(engine, spec), MIB)
    graph = warpbell.Graph.open(cache, "people")
    ann, dan = graph.vertex("ann"), graph.vertex("dan")
    assert graph.id(dan) == "dan" and graph.sssp(ann).distance.numpy()[dan] == 9
    assert graph.bfs(ann).reached == 4 and graph.cc().components == 2
    graph.warm()
    with pytest.raises(warpbell.NotFoundError, match="gus"):
        graph.vertex("gus")
    with pytest.raises(warpbell.NotFoundError, match="others"):
        warpbell.Graph.open(cache, "others")


def test_stored_lists_have_the_form_that_is_asked_for(engine, tmp_path):
    volume = warpbell.Volume.create(engine, f"soft:{tmp_path}/forms.img", 32 * MIB)
    cache = warpbell.Cache(volume, MIB)
    forms = {"packed": {}, "ordered": {"lists": "packed", "order": "input"}, "plain": {"lists": "plain"}}
    graphs = [warpbell.Graph.import_file(cache, name, "kron:9", **form) for name, form in forms.items()]
    depths = [graph.bfs(7).depth.numpy().tolist() for graph in graphs]
    assert depths[0] == depths[1] == depths[2]
    arrays = {array["name"] for array in volume.arrays()}
    assert {"packed/order", "packed/degrees", "ordered/degrees", "plain/offsets"} <= arrays
    assert not {"ordered/order", "packed/offsets", "plain/degrees"} & arrays
    with pytest.raises(warpbell.InvalidError, match="lists is `short`; use one of packed, plain"):
        warpbell.Graph.import_file(cache, "short", "kron:9", lists="short")
    with pytest.raises(TypeError, match="`lists` and `order` are options of import_file"):
        warpbell.Graph.load(engine, "kron:9", lists="plain")


def test_inputs_are_loaded_with_options(engine, tmp_path):
    graph = warpbell.Graph.load(engine, "kron:8", weights="random-integers", seed=5)
    assert graph.vertices <= 256 and graph.weighted
    (tmp_path / "numbers.txt").write_text("10 20\n20 30\n")
    graph = warpbell.Graph.load(engine, tmp_path / "numbers.txt", format="el", orientation="directed", ids="numbers", edges="host")
    assert graph.id(graph.vertex(20)) == 20 and graph.directed
    (tmp_path / "own.csv").write_text("a,b,km\n1,2,0.1\n2,3,4\n")
    columns = "src=a,dst=b,weight=km"
    graph = warpbell.Graph.load(engine, tmp_path / "own.csv", columns=columns, vertices=9, weights_type="f32")
    assert (graph.vertices, graph.weighted) == (9, True)
    assert len(graph.notices) == 1 and graph.notices[0].startswith("weights are rounded to 32 bits: 0.1 on line 2")
    exact = warpbell.Graph.load(engine, tmp_path / "own.csv", columns=columns)
    assert (exact.vertices, exact.notices) == (3, [])
    assert exact.sssp(exact.vertex(1)).distance.numpy().tolist() == [0, 0.1, 4.1]
    with pytest.raises(warpbell.InvalidError, match="weights_type is `f16`; use one of auto, f32, f64"):
        warpbell.Graph.load(engine, tmp_path / "own.csv", columns=columns, weights_type="f16")
    with pytest.raises(warpbell.InvalidError, match="columns: `a` names no columns"):
        warpbell.Graph.load(engine, tmp_path / "own.csv", columns="a")
    with pytest.raises(TypeError, match="`orient` is no option"):
        warpbell.Graph.load(engine, "kron:8", orient="directed")
    with pytest.raises(warpbell.InvalidError, match="weights is `some`; use one of"):
        warpbell.Graph.load(engine, "kron:8", weights="some")
    with pytest.raises(warpbell.NotFoundError, match="missing.el"):
        warpbell.Graph.load(engine, tmp_path / "missing.el")
    (tmp_path / "bad.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 x 3\n")
    with pytest.raises(warpbell.InputError, match="line 3"):
        warpbell.Graph.load(engine, tmp_path / "bad.mtx")


def test_scipy(engine):
    sparse = pytest.importorskip("scipy.sparse", reason="needs scipy")
    from scipy.sparse import csgraph

    matrix = sparse.random(200, 200, 0.02, random_state=3, format="csc")
    graph = warpbell.Graph.from_scipy(engine, matrix, weighted=True)
    expected = csgraph.dijkstra(matrix, indices=0)
    found = graph.sssp(0).distance.numpy()
    np.testing.assert_allclose(np.where(np.isnan(found), np.inf, found), expected)
    count, _ = csgraph.connected_components(matrix, directed=False)
    either = warpbell.Graph.from_scipy(engine, matrix, directed=False)
    assert either.cc().components == count and not either.directed
    with pytest.raises(warpbell.InvalidError, match="not symmetric"):
        warpbell.Graph.from_scipy(engine, matrix, weighted=True, directed=False)
    with pytest.raises(warpbell.InvalidError, match="3 rows and 4 columns"):
        warpbell.Graph.from_scipy(engine, sparse.csr_array((3, 4)))


def test_networkx(engine):
    nx = pytest.importorskip("networkx", reason="needs networkx")
    source = nx.karate_club_graph()
    graph = warpbell.Graph.from_networkx(engine, nx.relabel_nodes(source, lambda n: f"p{n}"), weight="weight")
    expected = nx.single_source_dijkstra_path_length(source, 0)
    found = graph.sssp(graph.vertex("p0")).distance.numpy()
    assert {int(graph.id(v)[1:]): int(d) for v, d in enumerate(found)} == expected
    ranks = graph.pagerank(tolerance=1e-10).rank.numpy()
    unweighted = nx.pagerank(source, weight=None, tol=1e-10)
    np.testing.assert_allclose(ranks, [unweighted[int(graph.id(v)[1:])] for v in range(34)], atol=1e-6)
    # networkx counts an undirected pair of ends once.
    between = nx.betweenness_centrality(source, normalized=False)
    np.testing.assert_allclose(graph.bc().score.numpy() / 2, [between[int(graph.id(v)[1:])] for v in range(34)])
    some = nx.betweenness_centrality_subset(source, [0, 33], list(source), normalized=False)
    found = graph.bc([graph.vertex("p0"), graph.vertex("p33")])
    assert found.sources == 2
    np.testing.assert_allclose(found.score.numpy() / 2, [some[int(graph.id(v)[1:])] for v in range(34)])
    one_way = nx.gnp_random_graph(60, 0.03, seed=3, directed=True)
    strong = warpbell.Graph.from_networkx(engine, one_way).cc(strong=True)
    assert strong.components == nx.number_strongly_connected_components(one_way)
    assert strong.components > warpbell.Graph.from_networkx(engine, one_way).cc().components
    with pytest.raises(KeyError):
        graph.vertex("p99")
    with pytest.raises(warpbell.InvalidError, match="no attribute 'cost'"):
        warpbell.Graph.from_networkx(engine, source, weight="cost")
    many = nx.MultiDiGraph([("a", "b", {"w": 5}), ("a", "b", {"w": 2})])
    assert warpbell.Graph.from_networkx(engine, many, weight="w").sssp(0).distance.numpy().tolist() == [0, 2]
