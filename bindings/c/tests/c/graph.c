// Graphs of files, of volumes and of the program's memory. Results are compared with those of simple loops over the edges.
#include <math.h>

#include "storage.h"

enum { MOST = 64 };

static const char* folder;

// An undirected graph as a matrix: 0 for no edge, otherwise its weight.
typedef struct {
  uint32_t vertices;
  double weight[MOST][MOST];
} matrix;

// Reads edges from a file whose vertices count from 1.
static matrix read_karate(void) {
  static matrix m;
  memset(&m, 0, sizeof(m));
  FILE* file = fopen(EXAMPLES "/karate.txt", "r");
  CHECK(file != NULL);
  char line[256];
  while (fgets(line, sizeof(line), file) != NULL) {
    unsigned a, b;
    if (sscanf(line, "%u %u", &a, &b) != 2) continue;
    CHECK(a >= 1 && b >= 1 && a <= MOST && b <= MOST);
    m.weight[a - 1][b - 1] = m.weight[b - 1][a - 1] = 1;
    if (a > m.vertices) m.vertices = a;
    if (b > m.vertices) m.vertices = b;
  }
  fclose(file);
  CHECK(m.vertices == 34);
  return m;
}

// Shortest paths by relaxing every edge as often as there are vertices.
static void shortest(const matrix* m, uint32_t source, double* distance) {
  for (uint32_t v = 0; v < m->vertices; ++v) distance[v] = v == source ? 0 : INFINITY;
  for (uint32_t round = 0; round < m->vertices; ++round)
    for (uint32_t a = 0; a < m->vertices; ++a)
      for (uint32_t b = 0; b < m->vertices; ++b)
        if (m->weight[a][b] > 0) distance[b] = fmin(distance[b], distance[a] + m->weight[a][b]);
}

static void ranks_of(const matrix* m, double* rank) {
  const double n = m->vertices;
  for (uint32_t v = 0; v < m->vertices; ++v) rank[v] = 1 / n;
  for (int round = 0; round < 200; ++round) {
    double next[MOST];
    for (uint32_t v = 0; v < m->vertices; ++v) next[v] = 0.15 / n;
    for (uint32_t a = 0; a < m->vertices; ++a) {
      uint32_t degree = 0;
      for (uint32_t b = 0; b < m->vertices; ++b) degree += m->weight[a][b] > 0;
      for (uint32_t b = 0; b < m->vertices; ++b)
        if (m->weight[a][b] > 0) next[b] += 0.85 * rank[a] / degree;
    }
    memcpy(rank, next, sizeof(double) * m->vertices);
  }
}

static void check_search(wb_graph_t* graph, const matrix* m, uint32_t source) {
  double expected[MOST];
  matrix ones = *m;
  for (uint32_t a = 0; a < m->vertices; ++a)
    for (uint32_t b = 0; b < m->vertices; ++b) ones.weight[a][b] = m->weight[a][b] > 0;
  shortest(&ones, source, expected);
  wb_values_t *depth = NULL, *parent = NULL;
  OK(wb_bfs(graph, source, NULL, &depth, &parent));
  uint32_t dtype = 0;
  uint64_t length = 0;
  OK(wb_values_dtype(depth, &dtype));
  OK(wb_values_length(depth, &length));
  CHECK(dtype == WB_U32 && length == m->vertices);
  uint32_t depths[MOST];
  uint64_t parents[MOST], reached = 0;
  OK(wb_values_read(depth, 0, m->vertices, WB_U32, depths));
  OK(wb_values_read(parent, 0, m->vertices, WB_U64, parents));
  for (uint32_t v = 0; v < m->vertices; ++v) {
    if (isinf(expected[v])) {
      CHECK(depths[v] == WB_UNREACHED && parents[v] == WB_NONE_U64);
      continue;
    }
    ++reached;
    CHECK(depths[v] == expected[v]);
    if (v == source) CHECK(parents[v] == source);
    else CHECK(m->weight[parents[v]][v] > 0 && depths[parents[v]] + 1 == depths[v]);
  }
  wb_report report = {.size = sizeof(report)};
  OK(wb_values_report(parent, &report));
  CHECK(report.reached == reached && report.elapsed_seconds > 0);
  char* json = NULL;
  OK(wb_values_info(depth, &json));
  if (reached > 1) CHECK(report.steps >= 1 && strstr(json, "\"direction\":\"") != NULL);
  wb_string_free(json);
  wb_values_release(parent);
  // Where the engine is threads of this process, the program reads the values in place.
  void* address = NULL;
  OK(wb_values_address(depth, &address));
  CHECK(memcmp(address, depths, m->vertices * 4) == 0);
  double reals[MOST];
  OK(wb_values_read(depth, 0, m->vertices, WB_F64, reals));
  CHECK(memcmp(reals, expected, m->vertices * 8) == 0);
  FAILS(WB_ERR_ARGUMENT, "cannot be read as f32", wb_values_read(depth, 0, 1, WB_F32, reals));
  FAILS(WB_ERR_ARGUMENT, "do not lie within the", wb_values_read(depth, 1, length, WB_U32, depths));
  wb_values_release(depth);
  // Forward only, without parents.
  wb_bfs_options options = {.size = sizeof(options)};
  options.top_down = 1;
  OK(wb_bfs(graph, source, &options, &depth, NULL));
  uint32_t again[MOST];
  OK(wb_values_read(depth, 0, m->vertices, WB_U32, again));
  CHECK(memcmp(again, depths, m->vertices * 4) == 0);
  OK(wb_values_info(depth, &json));
  CHECK(strstr(json, "bottom-up") == NULL);
  wb_string_free(json);
  wb_values_release(depth);
}

static void check_components(wb_graph_t* graph, const matrix* m) {
  uint64_t expected[MOST], count = 0, labels[MOST];
  for (uint32_t v = 0; v < m->vertices; ++v) {
    double distance[MOST];
    shortest(m, v, distance);
    for (expected[v] = 0; isinf(distance[expected[v]]);) ++expected[v];
    count += expected[v] == v;
  }
  wb_values_t* label = NULL;
  OK(wb_components(graph, NULL, &label));
  OK(wb_values_read(label, 0, m->vertices, WB_U64, labels));
  CHECK(memcmp(labels, expected, m->vertices * 8) == 0);
  wb_report report = {.size = sizeof(report)};
  OK(wb_values_report(label, &report));
  CHECK(report.components == count);
  wb_values_release(label);
  wb_components_options options = {.size = sizeof(options)};
  options.giant = 2;
  FAILS(WB_ERR_ARGUMENT, "`giant` is 2", wb_components(graph, &options, &label));
}

static void check_scores(wb_graph_t* graph, const matrix* m) {
  matrix ones = *m;
  double distance[MOST][MOST], paths[MOST][MOST], expected[MOST] = {0}, scores[MOST];
  for (uint32_t a = 0; a < m->vertices; ++a)
    for (uint32_t b = 0; b < m->vertices; ++b) ones.weight[a][b] = m->weight[a][b] > 0 && a != b;
  for (uint32_t s = 0; s < m->vertices; ++s) {
    shortest(&ones, s, distance[s]);
    for (uint32_t v = 0; v < m->vertices; ++v) paths[s][v] = v == s;
    for (double d = 1; d < m->vertices; ++d)
      for (uint32_t v = 0; v < m->vertices; ++v)
        for (uint32_t u = 0; u < m->vertices; ++u)
          if (distance[s][v] == d && distance[s][u] == d - 1 && ones.weight[u][v] > 0) paths[s][v] += paths[s][u];
  }
  for (uint32_t s = 0; s < m->vertices; ++s)
    for (uint32_t t = 0; t < m->vertices; ++t)
      for (uint32_t v = 0; v < m->vertices; ++v)
        if (v != s && v != t && !isinf(distance[s][t]) && distance[s][v] + distance[v][t] == distance[s][t])
          expected[v] += paths[s][v] * paths[v][t] / paths[s][t];
  wb_values_t* score = NULL;
  OK(wb_betweenness(graph, NULL, 0, NULL, &score));
  OK(wb_values_read(score, 0, m->vertices, WB_F64, scores));
  for (uint32_t v = 0; v < m->vertices; ++v) CHECK(fabs(scores[v] - expected[v]) < 1e-9 * (1 + expected[v]));
  wb_report report = {.size = sizeof(report)};
  OK(wb_values_report(score, &report));
  CHECK(report.steps == m->vertices);
  wb_values_release(score);
  const uint64_t none[] = {0, MOST};
  FAILS(WB_ERR_ARGUMENT, "does not exist", wb_betweenness(graph, none, 2, NULL, &score));
  wb_components_options strong = {.size = sizeof(strong)};
  strong.strong = 1;
  wb_values_t *label = NULL, *other = NULL;
  uint64_t labels[MOST], others[MOST];
  OK(wb_components(graph, &strong, &label));
  OK(wb_components(graph, NULL, &other));
  OK(wb_values_read(label, 0, m->vertices, WB_U64, labels));
  OK(wb_values_read(other, 0, m->vertices, WB_U64, others));
  CHECK(memcmp(labels, others, m->vertices * 8) == 0);  // the graphs are undirected
  wb_values_release(label);
  wb_values_release(other);
}

static void check_labels(wb_graph_t* graph, const matrix* m) {
  uint64_t expected[MOST], next[MOST], found[MOST], communities = 0;
  for (uint32_t v = 0; v < m->vertices; ++v) expected[v] = v;
  for (uint32_t iteration = 0; iteration < 3; ++iteration) {
    for (uint32_t v = 0; v < m->vertices; ++v) {
      uint32_t counts[MOST] = {0};
      for (uint32_t n = 0; n < m->vertices; ++n) counts[expected[n]] += n != v && m->weight[v][n] > 0;
      next[v] = expected[v];
      for (uint32_t l = 0, most = 0; l < m->vertices; ++l) {
        if (counts[l] > most) most = counts[next[v] = l];
      }
    }
    memcpy(expected, next, sizeof(expected));
  }
  for (uint32_t l = 0; l < m->vertices; ++l) {
    uint32_t used = 0;
    for (uint32_t v = 0; v < m->vertices; ++v) used |= expected[v] == l;
    communities += used;
  }
  wb_cdlp_options options = {.size = sizeof(options)};
  options.iterations = 3;
  options.work_space = 64;
  wb_values_t* label = NULL;
  OK(wb_cdlp(graph, &options, &label));
  OK(wb_values_read(label, 0, m->vertices, WB_U64, found));
  CHECK(memcmp(found, expected, m->vertices * 8) == 0);
  wb_report report = {.size = sizeof(report)};
  OK(wb_values_report(label, &report));
  CHECK(report.components == communities && report.steps <= 3);
  wb_values_release(label);
}

static void check_ranks(wb_graph_t* graph, const matrix* m) {
  double expected[MOST], ranks[MOST];
  ranks_of(m, expected);
  wb_pagerank_options options = {.size = sizeof(options)};
  options.tolerance = 1e-11;
  wb_values_t* rank = NULL;
  OK(wb_pagerank(graph, &options, &rank));
  OK(wb_values_read(rank, 0, m->vertices, WB_F64, ranks));
  for (uint32_t v = 0; v < m->vertices; ++v) CHECK(fabs(ranks[v] - expected[v]) < 1e-9);
  wb_report report = {.size = sizeof(report)};
  OK(wb_values_report(rank, &report));
  CHECK(report.converged == 1 && report.change < 1e-11 && report.scanned >= report.steps);
  wb_values_release(rank);
  options.iterations = 3;
  OK(wb_pagerank(graph, &options, &rank));
  OK(wb_values_report(rank, &report));
  CHECK(report.converged == 0 && report.steps == 3);
  wb_values_release(rank);
  options.tolerance = -1;
  OK(wb_pagerank(graph, &options, &rank));
  OK(wb_values_report(rank, &report));
  CHECK(report.converged == 1 && report.steps == 3);
  wb_values_release(rank);
  options.damping = 1.5;
  FAILS(WB_ERR_ARGUMENT, "damping is 1.5", wb_pagerank(graph, &options, &rank));
}

// Triangles, clustering coefficients and core numbers of the karate club, whose values networkx has.
static void check_counts(wb_graph_t* graph) {
  const wb_graph_run_options options = {.size = sizeof(options), .kernel_seconds = 60};
  uint64_t count[34];
  double coefficient[34];
  wb_values_t* values = NULL;
  wb_report report = {.size = sizeof(report)};
  OK(wb_triangles(graph, &options, &values));
  OK(wb_values_read(values, 0, 34, WB_U64, count));
  OK(wb_values_report(values, &report));
  CHECK(report.triangles == 45 && count[0] == 18 && count[33] == 15 && count[11] == 0 && report.steps == 2 && report.scanned >= 156);
  wb_values_release(values);
  OK(wb_clustering(graph, NULL, &values));
  OK(wb_values_read(values, 0, 34, WB_F64, coefficient));
  double sum = 0;
  for (int v = 0; v < 34; ++v) sum += coefficient[v];
  CHECK(fabs(coefficient[0] - 0.15) < 1e-12 && fabs(sum / 34 - 0.5706384782076823) < 1e-12);
  wb_values_release(values);
  OK(wb_cores(graph, NULL, &values));
  OK(wb_values_read(values, 0, 34, WB_U64, count));
  OK(wb_values_report(values, &report));
  CHECK(report.largest_core == 4 && count[33] == 4 && count[11] == 1 && report.scanned == 156);
  wb_values_release(values);
  FAILS(WB_ERR_ARGUMENT, "core", wb_cores(graph, NULL, NULL));
}

static void check_paths(wb_graph_t* graph, const matrix* m, uint32_t source) {
  double expected[MOST], found[MOST];
  shortest(m, source, expected);
  wb_values_t* distance = NULL;
  wb_sssp_options options = {.size = sizeof(options)};
  for (int i = 0; i < 2; ++i) {
    OK(wb_sssp(graph, source, &options, &distance, NULL));
    OK(wb_values_read(distance, 0, m->vertices, WB_F64, found));
    for (uint32_t v = 0; v < m->vertices; ++v) CHECK(isinf(expected[v]) ? isinf(found[v]) : fabs(found[v] - expected[v]) < 1e-5);
    wb_report report = {.size = sizeof(report)};
    OK(wb_values_report(distance, &report));
    CHECK(report.delta > 0 && report.scanned > 0);
    wb_values_release(distance);
    options.delta = 0.5;
  }
  options.delta = -1;
  FAILS(WB_ERR_ARGUMENT, "delta is -1", wb_sssp(graph, source, &options, &distance, NULL));
}

// Searches that end at a vertex or at a distance, their parents and paths.
static void check_ends(wb_graph_t* graph, const matrix* m, uint32_t source, uint32_t target) {
  double expected[MOST], found[MOST], hops[MOST];
  matrix ones = *m;
  for (uint32_t a = 0; a < m->vertices; ++a)
    for (uint32_t b = 0; b < m->vertices; ++b) ones.weight[a][b] = m->weight[a][b] > 0;
  shortest(m, source, expected);
  shortest(&ones, source, hops);
  wb_values_t *values = NULL, *parent = NULL;
  uint64_t path[MOST];
  size_t length = 0;
  wb_sssp_options options = {.size = sizeof(options)};
  options.has_target = 1;
  options.target = target;
  OK(wb_sssp(graph, source, &options, &values, &parent));
  OK(wb_values_read(values, 0, m->vertices, WB_F64, found));
  for (uint32_t v = 0; v < m->vertices; ++v) {
    if (expected[v] <= expected[target]) CHECK(fabs(found[v] - expected[v]) < 1e-5);
    else CHECK(isinf(found[v]));
  }
  OK(wb_values_path(parent, target, path, MOST, &length));
  CHECK(length >= 2 && path[0] == source && path[length - 1] == target);
  double sum = 0;
  for (size_t i = 1; i < length; ++i) {
    CHECK(m->weight[path[i - 1]][path[i]] > 0);
    sum += m->weight[path[i - 1]][path[i]];
  }
  CHECK(fabs(sum - expected[target]) < 1e-5);
  FAILS(WB_ERR_ARGUMENT, "`capacity` is 1", wb_values_path(parent, target, path, 1, &length));
  CHECK(length >= 2);
  FAILS(WB_ERR_ARGUMENT, "`target` is 77", wb_values_path(parent, 77, path, MOST, &length));
  FAILS(WB_ERR_ARGUMENT, "`length` is null", wb_values_path(parent, target, path, MOST, NULL));
  wb_values_release(values);
  wb_values_release(parent);
  options.has_target = 0;
  FAILS(WB_ERR_ARGUMENT, "`has_target` is 0", wb_sssp(graph, source, &options, &values, NULL));
  options.target = 0;
  options.max_distance = -1;
  FAILS(WB_ERR_ARGUMENT, "largest distance is -1", wb_sssp(graph, source, &options, &values, NULL));
  wb_bfs_options search = {.size = sizeof(search)};
  search.max_depth = 1;
  OK(wb_bfs(graph, source, &search, &values, &parent));
  OK(wb_values_read(values, 0, m->vertices, WB_F64, found));
  for (uint32_t v = 0; v < m->vertices; ++v) CHECK(hops[v] <= 1 ? found[v] == hops[v] : isinf(found[v]));
  for (uint32_t v = 0; v < m->vertices; ++v) {
    OK(wb_values_path(parent, v, path, MOST, &length));
    CHECK(length == (hops[v] <= 1 ? hops[v] + 1 : 0));
  }
  wb_values_release(values);
  wb_values_release(parent);
  search.has_target = 1;
  search.target = 99;
  FAILS(WB_ERR_ARGUMENT, "vertex 99 does not exist", wb_bfs(graph, source, &search, &values, NULL));
}

// Searches from several vertices at once have the depths of searches of their own.
static void check_together(wb_graph_t* graph, const matrix* m) {
  const uint64_t sources[] = {5, 0, 5};
  wb_values_t *depth[3] = {NULL, NULL, NULL}, *reached_by = NULL, *alone = NULL;
  uint32_t together[MOST], expected[MOST];
  uint64_t masks[MOST];
  OK(wb_multi_bfs(graph, sources, 3, NULL, depth, &reached_by));
  OK(wb_values_read(reached_by, 0, m->vertices, WB_U64, masks));
  for (int i = 0; i < 3; ++i) {
    OK(wb_bfs(graph, sources[i], NULL, &alone, NULL));
    OK(wb_values_read(alone, 0, m->vertices, WB_U32, expected));
    OK(wb_values_read(depth[i], 0, m->vertices, WB_U32, together));
    CHECK(memcmp(together, expected, m->vertices * 4) == 0);
    for (uint32_t v = 0; v < m->vertices; ++v) CHECK((masks[v] >> i & 1) == (expected[v] != WB_UNREACHED));
    wb_values_release(alone);
    wb_values_release(depth[i]);
  }
  wb_report report = {.size = sizeof(report)};
  OK(wb_values_report(reached_by, &report));
  CHECK(report.reached == 3 * m->vertices && report.steps > 0);
  wb_values_release(reached_by);
  wb_multi_bfs_options options = {.size = sizeof(options)};
  options.max_depth = 1;
  OK(wb_multi_bfs(graph, sources, 1, &options, NULL, &reached_by));
  OK(wb_values_read(reached_by, 0, m->vertices, WB_U64, masks));
  for (uint32_t v = 0; v < m->vertices; ++v) CHECK(masks[v] == (v == 5 || m->weight[5][v] > 0));
  wb_values_release(reached_by);
  FAILS(WB_ERR_ARGUMENT, "0 searches at once", wb_multi_bfs(graph, NULL, 0, NULL, NULL, &reached_by));
  FAILS(WB_ERR_ARGUMENT, "`reached_by` is null", wb_multi_bfs(graph, sources, 1, NULL, NULL, NULL));
}

// Ranks for two vertices, one with three times the weight of the other.
static void check_personalized(wb_graph_t* graph, const matrix* m) {
  const uint64_t named[] = {0, 33};
  const double weights[] = {1, 3};
  wb_pagerank_options options = {.size = sizeof(options)};
  options.tolerance = 1e-11;
  options.personalize = named;
  options.personalize_count = 2;
  for (int weighted = 0; weighted < 2; ++weighted) {
    wb_values_t* rank = NULL;
    double ranks[MOST], next[MOST] = {0};
    options.personalize_weights = weighted ? weights : NULL;
    OK(wb_pagerank(graph, &options, &rank));
    OK(wb_values_read(rank, 0, m->vertices, WB_F64, ranks));
    wb_values_release(rank);
    next[0] = 0.15 * (weighted ? 0.25 : 0.5);
    next[33] = 0.15 - next[0];
    for (uint32_t a = 0; a < m->vertices; ++a) {
      uint32_t degree = 0;
      for (uint32_t b = 0; b < m->vertices; ++b) degree += m->weight[a][b] > 0;
      for (uint32_t b = 0; b < m->vertices; ++b)
        if (m->weight[a][b] > 0) next[b] += 0.85 * ranks[a] / degree;
    }
    for (uint32_t v = 0; v < m->vertices; ++v) CHECK(fabs(ranks[v] - next[v]) < 1e-10);
  }
  options.personalize = NULL;
  wb_values_t* rank = NULL;
  FAILS(WB_ERR_ARGUMENT, "`personalize` is null, with a count of 2", wb_pagerank(graph, &options, &rank));
}

static void loaded(wb_engine_t* engine, const matrix* m) {
  wb_graph_t* graph = NULL;
  wb_graph_options options = {.size = sizeof(options)};
  options.weights = WB_WEIGHTS_INPUT;
  // The placement is looked at before the input.
  FAILS(WB_ERR_ARGUMENT, "`placement` is 77", wb_graph_load(engine, "no such file", &options, 77, NULL, &graph));
  OK(wb_graph_load(engine, EXAMPLES "/karate.txt", &options, WB_EDGES_IN_DEVICE, NULL, &graph));
  uint64_t vertices = 0, arcs = 0, vertex = 0, id = 0;
  OK(wb_graph_vertices(graph, &vertices));
  OK(wb_graph_arcs(graph, &arcs));
  CHECK(vertices == 34 && arcs == 156);
  OK(wb_graph_vertex_of(graph, 34, &vertex));
  OK(wb_graph_id_of(graph, 33, &id));
  CHECK(vertex == 33 && id == 34);
  OK(wb_graph_vertex_of_name(graph, "17", &vertex));
  CHECK(vertex == 16);
  char* text = NULL;
  OK(wb_graph_name_of(graph, 16, &text));
  CHECK(strcmp(text, "17") == 0);
  wb_string_free(text);
  FAILS(WB_ERR_NOT_FOUND, "identifiers go from 1 to 34", wb_graph_vertex_of(graph, 35, &vertex));
  FAILS(WB_ERR_NOT_FOUND, "identifiers go from 1 to 34", wb_graph_vertex_of_name(graph, "mr-hi", &vertex));
  FAILS(WB_ERR_ARGUMENT, "vertex 34 does not exist", wb_graph_id_of(graph, 34, &id));
  OK(wb_graph_info(graph, &text));
  CHECK(strstr(text, "\"directed\":false") && strstr(text, "\"weighted\":true"));
  has(text, "\"ids\":[1,34]");
  for (uint32_t source = 0; source < 34; source += 11) check_search(graph, m, source);
  check_components(graph, m);
  check_scores(graph, m);
  check_labels(graph, m);
  check_ranks(graph, m);
  check_paths(graph, m, 0);
  check_ends(graph, m, 0, 26);
  check_personalized(graph, m);
  check_together(graph, m);
  // Known of this graph: three steps from the instructor reach all members; he and the president rank highest.
  wb_values_t* values = NULL;
  uint32_t far[34], deepest = 0;
  OK(wb_bfs(graph, 0, NULL, &values, NULL));
  OK(wb_values_read(values, 0, 34, WB_U32, far));
  for (int v = 0; v < 34; ++v) deepest = far[v] > deepest ? far[v] : deepest;
  CHECK(deepest == 3 && far[16] == 2 && far[33] == 2 && far[26] == 3);
  wb_values_release(values);
  double rank[34];
  OK(wb_pagerank(graph, NULL, &values));
  OK(wb_values_read(values, 0, 34, WB_F64, rank));
  CHECK(fabs(rank[33] - 0.1009) < 5e-4 && fabs(rank[0] - 0.0970) < 5e-4);
  wb_values_release(values);
  check_counts(graph);
  FAILS(WB_ERR_ARGUMENT, "vertex 34 does not exist", wb_bfs(graph, 34, NULL, &values, NULL));
  wb_graph_release(graph);
  // Inputs that are wrong.
  FAILS(WB_ERR_NOT_FOUND, "none.el", wb_graph_load(engine, "none.el", NULL, WB_EDGES_IN_DEVICE, NULL, &graph));
  FAILS(WB_ERR_ARGUMENT, "kron", wb_graph_load(engine, "kron:many", NULL, WB_EDGES_IN_DEVICE, NULL, &graph));
  FAILS(WB_ERR_ARGUMENT, "`placement` is 8", wb_graph_load(engine, "kron:5", NULL, 8, NULL, &graph));
  FAILS(WB_ERR_ARGUMENT, "`cache` is null", wb_graph_load(engine, "kron:5", NULL, WB_EDGES_IN_STORAGE, NULL, &graph));
  options.weights = 9;
  FAILS(WB_ERR_ARGUMENT, "`weights` is 9", wb_graph_load(engine, "kron:5", &options, WB_EDGES_IN_DEVICE, NULL, &graph));
  options.weights = 0;
  options.format = "graphml";
  FAILS(WB_ERR_ARGUMENT, "`graphml` is not a format", wb_graph_load(engine, "kron:5", &options, WB_EDGES_IN_DEVICE, NULL, &graph));
  options.format = "mtx";
  FAILS(WB_ERR_ARGUMENT, "leave `format` out", wb_graph_load(engine, "kron:5", &options, WB_EDGES_IN_DEVICE, NULL, &graph));
  FAILS(WB_ERR_INPUT, "karate.txt", wb_graph_load(engine, EXAMPLES "/karate.txt", &options, WB_EDGES_IN_DEVICE, NULL, &graph));
}

// Lists for kernels of the program, which on CPU threads are memory of this process.
static void check_lists(const wb_graph_t* graph, const matrix* m, uint32_t id_bytes, int stored) {
  wb_graph_lists lists = {.size = sizeof(lists)};
  OK(wb_graph_get_lists(graph, WB_LISTS_INCOMING, &lists));
  CHECK(lists.vertices == m->vertices);
  CHECK(lists.id_bytes == id_bytes);
  CHECK(lists.offset[m->vertices] == lists.arcs);
  CHECK((lists.memory == NULL) == stored && (lists.stored.array.count == lists.arcs) == stored);
  for (uint32_t v = 0; v < m->vertices; ++v) {
    uint32_t degree = 0;
    for (uint32_t n = 0; n < m->vertices; ++n) degree += m->weight[v][n] != 0;
    CHECK(lists.offset[v + 1] - lists.offset[v] == degree);
    CHECK((lists.isolated[v / 32] >> (v % 32) & 1) == (degree == 0));
    for (uint64_t i = lists.offset[v]; !stored && i < lists.offset[v + 1]; ++i) {
      const uint64_t n = id_bytes == 4 ? ((const uint32_t*)lists.memory)[i] : ((const uint64_t*)lists.memory)[i];
      CHECK(n < m->vertices && m->weight[v][n] != 0);
    }
  }
  FAILS(WB_ERR_ARGUMENT, "`direction` is 2", wb_graph_get_lists(graph, 2, &lists));
  lists.size = 0;
  FAILS(WB_ERR_ARGUMENT, "sizeof(wb_graph_lists)", wb_graph_get_lists(graph, 0, &lists));
}

// Lists of the program, with weights of each type, in two parts that no edge joins.
static void own_lists(wb_engine_t* engine, wb_cache_t* cache, const matrix* karate) {
  matrix m = *karate;
  m.vertices += 3;
  uint64_t offsets[MOST + 1] = {0}, wide[512];
  uint32_t neighbours[512], integers[512];
  float singles[512];
  double doubles[512];
  m.weight[34][35] = m.weight[35][34] = 1;
  size_t arcs = 0;
  for (uint32_t a = 0; a < m.vertices; ++a) {
    for (uint32_t b = 0; b < m.vertices; ++b) {
      if (m.weight[a][b] == 0) continue;
      m.weight[a][b] = 1 + (a * b + a + b) % 7;
      wide[arcs] = neighbours[arcs] = b;
      integers[arcs] = (uint32_t)m.weight[a][b];
      singles[arcs] = (float)m.weight[a][b] / 4;
      doubles[arcs] = m.weight[a][b] / 4;
      ++arcs;
    }
    offsets[a + 1] = arcs;
  }
  matrix quarters = m;
  for (uint32_t a = 0; a < m.vertices; ++a)
    for (uint32_t b = 0; b < m.vertices; ++b) quarters.weight[a][b] /= 4;
  wb_csr csr = {.size = sizeof(csr)};
  csr.vertices = m.vertices;
  csr.arcs = arcs;
  csr.offsets = offsets;
  csr.neighbours = neighbours;
  csr.neighbour_bytes = 4;
  csr.weights = integers;
  csr.weight_dtype = WB_U32;
  wb_graph_t* graph = NULL;
  OK(wb_graph_from_csr(engine, &csr, WB_EDGES_IN_HOST, NULL, &graph));
  check_lists(graph, &m, 4, 0);
  check_search(graph, &m, 3);
  check_search(graph, &m, 36);
  check_components(graph, &m);
  check_paths(graph, &m, 5);
  wb_graph_release(graph);
  csr.neighbours = wide;
  csr.neighbour_bytes = 8;
  csr.weights = singles;
  csr.weight_dtype = WB_F32;
  OK(wb_graph_from_csr(engine, &csr, WB_EDGES_IN_DEVICE, NULL, &graph));
  check_search(graph, &m, 3);
  check_paths(graph, &quarters, 5);
  wb_graph_release(graph);
  csr.weights = doubles;
  csr.weight_dtype = WB_F64;
  OK(wb_graph_from_csr(engine, &csr, WB_EDGES_IN_STORAGE, cache, &graph));
  check_lists(graph, &m, 8, 1);
  check_search(graph, &m, 3);
  check_components(graph, &m);
  check_paths(graph, &quarters, 5);
  OK(wb_graph_warm(graph));
  wb_graph_release(graph);
  csr.weights = NULL;
  csr.weight_dtype = 0;
  // Arrays of others on the volume stay.
  FAILS(WB_ERR_EXISTS, "nothing was written", wb_graph_from_csr(engine, &csr, WB_EDGES_IN_STORAGE, cache, &graph));
  OK(wb_graph_from_csr(engine, &csr, WB_EDGES_IN_DEVICE, NULL, &graph));
  wb_values_t* values = NULL;
  FAILS(WB_ERR_STATE, "lacks the weighted lists", wb_sssp(graph, 0, NULL, &values, NULL));
  wb_graph_release(graph);
  csr.weight_dtype = WB_I8;
  FAILS(WB_ERR_ARGUMENT, "`weight_dtype` is 5", wb_graph_from_csr(engine, &csr, WB_EDGES_IN_DEVICE, NULL, &graph));
  csr.weight_dtype = 0;
  csr.neighbour_bytes = 2;
  FAILS(WB_ERR_ARGUMENT, "`neighbour_bytes` is 2", wb_graph_from_csr(engine, &csr, WB_EDGES_IN_DEVICE, NULL, &graph));
  csr.neighbour_bytes = 8;
  ++csr.arcs;
  FAILS(WB_ERR_ARGUMENT, "offset 37 is 158", wb_graph_from_csr(engine, &csr, WB_EDGES_IN_DEVICE, NULL, &graph));
  --csr.arcs;
  csr.vertices = UINT64_MAX;
  FAILS(WB_ERR_ARGUMENT, "which no memory holds", wb_graph_from_csr(engine, &csr, WB_EDGES_IN_DEVICE, NULL, &graph));
  csr.vertices = m.vertices;
  wide[0] = 99;
  FAILS(WB_ERR_ARGUMENT, "leads to vertex 99", wb_graph_from_csr(engine, &csr, WB_EDGES_IN_DEVICE, NULL, &graph));
  wide[0] = 3;
  FAILS(WB_ERR_ARGUMENT, "declared undirected", wb_graph_from_csr(engine, &csr, WB_EDGES_IN_DEVICE, NULL, &graph));
  FAILS(WB_ERR_ARGUMENT, "`csr` is null", wb_graph_from_csr(engine, NULL, WB_EDGES_IN_DEVICE, NULL, &graph));
}

typedef struct {
  wb_engine_t* cancelled;
  uint64_t stages, stored;
} watcher;

static void watch(void* argument, uint32_t stage, uint64_t done, uint64_t total) {
  watcher* seen = argument;
  if (seen->cancelled != NULL) wb_engine_cancel(seen->cancelled);
  __atomic_fetch_or(&seen->stages, UINT64_C(1) << (stage & 63), __ATOMIC_RELAXED);
  if (stage == WB_STAGE_STORE && done <= total) __atomic_store_n(&seen->stored, done, __ATOMIC_RELAXED);
}

// Imported under a name by one engine, and opened by another.
static void stored(wb_engine_t* engine, const matrix* m) {
  char device[4096];
  snprintf(device, sizeof(device), "soft:%s/graphs.img", folder);
  const char* devices[] = {device};
  wb_volume_t* volume = NULL;
  OK(wb_volume_create(engine, devices, 1, 4 << 20, NULL, &volume));
  wb_cache_t* cache = open_cache(volume, 1 << 20);
  watcher seen = {engine, 0, 0};
  wb_graph_options options = {.size = sizeof(options)};
  options.weights = WB_WEIGHTS_INPUT;
  options.progress = watch;
  options.progress_argument = &seen;
  wb_graph_t* graph = NULL;
  // A program that gives up cancels the engine. Nothing is stored then.
  FAILS(WB_ERR_STOPPED, "resume", wb_graph_import(cache, "karate", EXAMPLES "/karate.txt", &options, &graph));
  OK(wb_engine_resume(engine));
  char* json = NULL;
  OK(wb_graph_list(volume, &json));
  CHECK(strcmp(json, "[]") == 0 && graph == NULL);
  wb_string_free(json);
  seen.cancelled = NULL;
  OK(wb_graph_import(cache, "karate", EXAMPLES "/karate.txt", &options, &graph));
  CHECK((seen.stages & (1 << WB_STAGE_BUILD)) != 0 && seen.stored > 0);
  check_search(graph, m, 0);
  wb_graph_release(graph);
  FAILS(WB_ERR_EXISTS, "is called `karate` already", wb_graph_import(cache, "karate", "kron:6", NULL, &graph));
  FAILS(WB_ERR_ARGUMENT, "`a/b` cannot be the name", wb_graph_import(cache, "a/b", "kron:6", NULL, &graph));
  OK(wb_graph_import(cache, "random", "kron:6", NULL, &graph));
  wb_graph_release(graph);
  wb_graph_options replace = {.size = sizeof(replace)};
  replace.replace = 1;
  replace.lists = 3;
  FAILS(WB_ERR_ARGUMENT, "`lists` is 3; use WB_LISTS_PACKED or WB_LISTS_PLAIN", wb_graph_import(cache, "random", "urand:5", &replace, &graph));
  replace.lists = WB_LISTS_PLAIN;
  replace.order = 2;
  FAILS(WB_ERR_ARGUMENT, "`order` is 2; use WB_ORDER_DEGREE or WB_ORDER_INPUT", wb_graph_import(cache, "random", "urand:5", &replace, &graph));
  replace.order = WB_ORDER_INPUT;
  OK(wb_graph_import(cache, "random", "urand:5", &replace, &graph));
  uint64_t vertices = 0;
  OK(wb_graph_vertices(graph, &vertices));
  CHECK(vertices == 32);
  wb_graph_release(graph);
  wb_cache_release(cache);
  wb_volume_release(volume);

  wb_engine_t* second = cpu_engine(1);
  volume = open_volume(second, device);
  cache = open_cache(volume, 1 << 20);
  OK(wb_graph_list(volume, &json));
  CHECK(strstr(json, "\"name\":\"random\"") && strstr(json, "\"vertices\":34"));
  CHECK(strstr(json, "\"lists\":\"packed\"") && strstr(json, "\"lists\":\"plain\""));
  has(json, "\"orientation\":\"as the input says\"");
  FAILS(WB_ERR_NOT_FOUND, "there are `karate`, `random`", wb_graph_open(cache, "club", &graph));
  OK(wb_graph_open(cache, "karate", &graph));
  for (uint32_t source = 0; source < 34; source += 7) check_search(graph, m, source);
  check_components(graph, m);
  check_labels(graph, m);
  check_ranks(graph, m);
  check_paths(graph, m, 33);
  check_ends(graph, m, 33, 16);
  check_together(graph, m);
  wb_graph_release(graph);
  OK(wb_graph_remove(volume, "random"));
  FAILS(WB_ERR_NOT_FOUND, "no stored graph is called `random`", wb_graph_remove(volume, "random"));
  OK(wb_volume_arrays(volume, &json));
  const char* found = strstr(json, "\"name\":\"karate/neighbours\"");
  CHECK(found != NULL && (found = strstr(found, "\"offset\":")) != NULL);
  const long lba = atol(found + strlen("\"offset\":")) / 512;
  wb_string_free(json);
  wb_cache_release(cache);
  wb_volume_release(volume);

  // An edge that cannot be read ends an algorithm with the block and the status of the device.
  char bad[8192];
  snprintf(bad, sizeof(bad), "%s,media-error=read:%ld-%ld", device, lba, lba);
  volume = open_volume(second, bad);
  cache = open_cache(volume, 1 << 20);
  OK(wb_graph_open(cache, "karate", &graph));
  wb_values_t* values = NULL;
  FAILS(WB_ERR_OPERATION, "LBA", wb_pagerank(graph, NULL, &values));
  wb_error failed;
  CHECK(wb_last_error_operations(&failed, 1) >= 1 && (failed.status & 0x7ff) == 0x281);
  CHECK(failed.lba <= (uint64_t)lba && failed.lba + failed.blocks > (uint64_t)lba && values == NULL);
  wb_graph_release(graph);
  wb_cache_release(cache);
  wb_volume_release(volume);
  wb_engine_release(second);
}

static void names(wb_engine_t* engine) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/friends.csv", folder);
  FILE* file = fopen(path, "w");
  CHECK(file != NULL && fputs("source,target\nalice,bob\n\"Doe, John\",bob\n", file) >= 0 && fclose(file) == 0);
  wb_graph_options options = {.size = sizeof(options)};
  options.orientation = WB_EDGES_DIRECTED;
  options.ids = WB_IDS_NAMES;
  wb_graph_t* graph = NULL;
  OK(wb_graph_load(engine, path, &options, WB_EDGES_IN_DEVICE, NULL, &graph));
  uint64_t vertex = 0, id = 0;
  OK(wb_graph_vertex_of_name(graph, "Doe, John", &vertex));
  char* text = NULL;
  OK(wb_graph_name_of(graph, vertex, &text));
  CHECK(vertex == 0 && strcmp(text, "Doe, John") == 0);
  wb_string_free(text);
  FAILS(WB_ERR_STATE, "wb_graph_name_of", wb_graph_id_of(graph, 0, &id));
  FAILS(WB_ERR_NOT_FOUND, "vertex carol does not exist", wb_graph_vertex_of_name(graph, "carol", &vertex));
  OK(wb_graph_info(graph, &text));
  has(text, "\"named\":true");
  wb_values_t* depth = NULL;
  uint32_t depths[3];
  OK(wb_bfs(graph, 0, NULL, &depth, NULL));
  OK(wb_values_read(depth, 0, 3, WB_U32, depths));
  CHECK(depths[0] == 0 && depths[1] == WB_UNREACHED && depths[2] == 1);
  wb_values_release(depth);
  wb_graph_release(graph);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  folder = argv[1];
  wb_engine_t* engine = cpu_engine(2);
  const matrix karate = read_karate();
  loaded(engine, &karate);
  stored(engine, &karate);
  names(engine);
  // Lists on a volume of their own.
  wb_volume_t* volume = open_volume(engine, "soft:mem:4M");
  wb_cache_t* cache = open_cache(volume, 1 << 20);
  own_lists(engine, cache, &karate);
  wb_cache_release(cache);
  wb_volume_release(volume);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
