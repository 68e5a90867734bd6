// Graphs, algorithms, and their results in the engine's memory.
#pragma once

#include <warpbell/host/storage.hpp>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief Options of imports: see wb_graph_options.
using graph_options = defaults<wb_graph_options>;
/// @brief Options of a search: see wb_bfs_options.
using bfs_options = defaults<wb_bfs_options>;
/// @brief Options of betweenness centrality: see wb_betweenness_options.
using betweenness_options = defaults<wb_betweenness_options>;
/// @brief Options of several searches at once: see wb_multi_bfs_options.
using multi_bfs_options = defaults<wb_multi_bfs_options>;
/// @brief Options of components: see wb_components_options.
using components_options = defaults<wb_components_options>;
/// @brief Options of triangles, clustering and cores: see wb_graph_run_options.
using graph_run_options = defaults<wb_graph_run_options>;
/// @brief Options of label propagation: see wb_cdlp_options.
using cdlp_options = defaults<wb_cdlp_options>;
/// @brief Options of PageRank: see wb_pagerank_options.
using pagerank_options = defaults<wb_pagerank_options>;
/// @brief Options of shortest paths: see wb_sssp_options.
using sssp_options = defaults<wb_sssp_options>;

/// @brief Place of a graph's edges.
enum class edges : uint32_t {
  device = WB_EDGES_IN_DEVICE,    ///< Memory of the engine: of the GPU, or of this process for CPU threads.
  host = WB_EDGES_IN_HOST,        ///< Pinned memory of the host, which kernels read over the bus.
  storage = WB_EDGES_IN_STORAGE,  ///< A volume, read through a cache.
};

/// @brief Values of all vertices, as an algorithm left them in the engine's memory. Copies share them.
class values : public detail::handle<wb_values_t, wb_values_retain, wb_values_release> {
 public:
  using handle::handle;

  /// @brief Returns the number of values, which is the number of vertices.
  returned<uint64_t> size() const {
    uint64_t found = 0;
    const wb_code code = wb_values_length(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the type of a value in the engine's memory: WB_U32, WB_U64 or WB_F64.
  returned<uint32_t> dtype() const {
    uint32_t found = 0;
    const wb_code code = wb_values_dtype(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the address of the first value, for kernels of the type that `dtype` names.
  template <class T = void> returned<T*> address() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return static_cast<T*>(p.value); });
  }
  /// @brief Copies `count` values to the host, from vertex `first` on. T is the values' type; or uint64_t or double, to which they convert.
  template <class T> returned<std::vector<T>> read(uint64_t first, size_t count) const {
    std::vector<T> data(count);
    const wb_code code = wb_values_read(get(), first, count, detail::dtype_of<T>(), data.data());
    return detail::give(code, [&data] { return std::move(data); });
  }
  /// @brief Copies all values to the host. As above.
  template <class T> returned<std::vector<T>> read() const {
    uint64_t count = 0;
    wb_code code = wb_values_length(get(), &count);
    std::vector<T> data(static_cast<size_t>(count));
    if (code == WB_OK) code = wb_values_read(get(), 0, data.size(), detail::dtype_of<T>(), data.data());
    return detail::give(code, [&data] { return std::move(data); });
  }
  /// @brief Follows the parents of a search. Returns the vertices of a shortest path from the source to `target`; none if it was not reached.
  returned<std::vector<uint64_t>> path_to(uint64_t target) const {
    size_t length = 0;
    std::vector<uint64_t> path(64);
    wb_code code = wb_values_path(get(), target, path.data(), path.size(), &length);
    if (code == WB_ERR_ARGUMENT && length > path.size()) {
      path.resize(length);
      code = wb_values_path(get(), target, path.data(), path.size(), &length);
    }
    path.resize(length < path.size() ? length : path.size());
    return detail::give(code, [&path] { return std::move(path); });
  }
  /// @brief Returns the numbers of the run that made the values.
  returned<wb_report> report() const {
    defaults<wb_report> found;
    const wb_code code = wb_values_report(get(), &found);
    return detail::give(code, [&found]() -> wb_report { return found; });
  }
  /// @brief Describes the run as JSON: its numbers, and each level, iteration, phase or range.
  returned<std::string> info() const {
    char* json = nullptr;
    const wb_code code = wb_values_info(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  // As an argument of a launch, for a parameter that is a pointer.
  detail::passed<void*> as_argument() const {
    detail::passed<void*> p{nullptr, get(), WB_OK};
    p.code = wb_values_address(get(), &p.value);
    return p;
  }
};

/// @brief Depths and predecessors of a search.
struct bfs_result {
  /// Number of edges from the source to each vertex, uint32_t, or WB_UNREACHED.
  values depth;
  /// Predecessor of each vertex; empty for a search without parents.
  values parent;
};

/// @brief Depths of several searches, and the searches that reach each vertex.
struct multi_bfs_result {
  /// For each source the number of edges to each vertex, uint32_t, or WB_UNREACHED; empty for searches without depths.
  std::vector<values> depth;
  /// For each vertex a uint64_t: bit i is set if the search from source i reached the vertex.
  values reached_by;
};

/// @brief Distances and predecessors of shortest paths.
struct sssp_result {
  /// Distance of each vertex: uint32_t, uint64_t or double.
  values distance;
  /// Predecessor of each vertex; empty for a search without parents.
  values parent;
};

/// @brief A graph that kernels can read, and the identifiers of its vertices. Copies share the graph.
class graph : public detail::handle<wb_graph_t, wb_graph_retain, wb_graph_release> {
 public:
  using handle::handle;

  /// @brief Reads or generates a graph, and stores it under a name on the volume below a cache.
  ///
  /// @param input Path of a file, or a generator such as "kron:20".
  static returned<graph> import(const cache& through, const std::string& name, const std::string& input,
                                const graph_options& options = {}) {
    return detail::make<graph, wb_graph_t>(
        [&](wb_graph_t** made) { return wb_graph_import(through.get(), name.c_str(), input.c_str(), &options, made); });
  }
  /// @brief Opens a stored graph. Kernels read its edges through the cache.
  static returned<graph> open(const cache& through, const std::string& name) {
    return detail::make<graph, wb_graph_t>([&](wb_graph_t** made) { return wb_graph_open(through.get(), name.c_str(), made); });
  }
  /// @brief Reads or generates a graph without a name, with its edges in memory.
  static returned<graph> load(const engine& on, const std::string& input, edges where = edges::device, const graph_options& options = {}) {
    return detail::make<graph, wb_graph_t>(
        [&](wb_graph_t** made) { return wb_graph_load(on.get(), input.c_str(), &options, static_cast<uint32_t>(where), nullptr, made); });
  }
  /// @brief Reads or generates a graph without a name. Its edges take the place of all that the cache's volume holds.
  static returned<graph> load(const engine& on, const std::string& input, const cache& through, const graph_options& options = {}) {
    return detail::make<graph, wb_graph_t>(
        [&](wb_graph_t** made) { return wb_graph_load(on.get(), input.c_str(), &options, WB_EDGES_IN_STORAGE, through.get(), made); });
  }
  /// @brief Makes a graph of lists in the program's memory, which are copied, with its edges in memory.
  static returned<graph> from_csr(const engine& on, const wb_csr& lists, edges where = edges::device) {
    return detail::make<graph, wb_graph_t>(
        [&](wb_graph_t** made) { return wb_graph_from_csr(on.get(), &lists, static_cast<uint32_t>(where), nullptr, made); });
  }
  /// @brief Makes a graph of lists in the program's memory. Its edges take the place of all that the cache's volume holds.
  static returned<graph> from_csr(const engine& on, const wb_csr& lists, const cache& through) {
    return detail::make<graph, wb_graph_t>(
        [&](wb_graph_t** made) { return wb_graph_from_csr(on.get(), &lists, WB_EDGES_IN_STORAGE, through.get(), made); });
  }
  /// @brief Lists the graphs of a volume as JSON.
  static returned<std::string> list(const volume& of) {
    char* json = nullptr;
    const wb_code code = wb_graph_list(of.get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  /// @brief Removes a stored graph, which frees its space.
  static returned<void> remove(const volume& of, const std::string& name) { return detail::done(wb_graph_remove(of.get(), name.c_str())); }

  /// @brief Returns the number of vertices.
  returned<uint64_t> vertices() const {
    uint64_t found = 0;
    const wb_code code = wb_graph_vertices(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the number of stored neighbours: the edges of a directed graph, twice the edges of an undirected one.
  returned<uint64_t> arcs() const {
    uint64_t found = 0;
    const wb_code code = wb_graph_arcs(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Describes the graph as JSON.
  returned<std::string> info() const {
    char* json = nullptr;
    const wb_code code = wb_graph_info(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  /// @brief Reads the edges into the cache, as far as they fit.
  returned<void> warm() const { return detail::done(wb_graph_warm(get())); }

  /// @brief Returns the vertex of an identifier that is a number.
  returned<uint64_t> vertex_of(uint64_t id) const {
    uint64_t found = 0;
    const wb_code code = wb_graph_vertex_of(get(), id, &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the vertex of a name.
  returned<uint64_t> vertex_of(const std::string& name) const {
    uint64_t found = 0;
    const wb_code code = wb_graph_vertex_of_name(get(), name.c_str(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the identifier of a vertex, which is a number.
  returned<uint64_t> id_of(uint64_t vertex) const {
    uint64_t found = 0;
    const wb_code code = wb_graph_id_of(get(), vertex, &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the identifier of a vertex as text: its name, or its number in digits.
  returned<std::string> name_of(uint64_t vertex) const {
    char* name = nullptr;
    const wb_code code = wb_graph_name_of(get(), vertex, &name);
    return detail::give(code, [name] { return detail::take(name); });
  }

  /// @brief Searches breadth first from a vertex.
  ///
  /// @param parents Also finds the predecessor of each vertex.
  returned<bfs_result> bfs(uint64_t source, bool parents = false, const bfs_options& options = {}) const {
    wb_values_t *depth = nullptr, *parent = nullptr;
    const wb_code code = wb_bfs(get(), source, &options, &depth, parents ? &parent : nullptr);
    return detail::give(code, [depth, parent] { return bfs_result{values(depth), values(parent)}; });
  }
  /// @brief Searches breadth first from 1 to 64 vertices at once, which share their scans of the edges.
  ///
  /// @param depths Also finds the depth of each vertex in each search.
  returned<multi_bfs_result> multi_bfs(const std::vector<uint64_t>& sources, bool depths = true,
                                       const multi_bfs_options& options = {}) const {
    std::vector<wb_values_t*> depth(depths ? sources.size() : 0);
    wb_values_t* reached_by = nullptr;
    const wb_code code = wb_multi_bfs(get(), sources.data(), sources.size(), &options, depths ? depth.data() : nullptr, &reached_by);
    return detail::give(code, [&depth, reached_by] {
      multi_bfs_result found;
      for (wb_values_t* each : depth) found.depth.push_back(values(each));
      found.reached_by = values(reached_by);
      return found;
    });
  }
  /// @brief Labels every vertex with the smallest vertex of its component.
  returned<values> components(const components_options& options = {}) const {
    return detail::make<values, wb_values_t>([&](wb_values_t** made) { return wb_components(get(), &options, made); });
  }
  /// @brief Sums the dependencies of sources on every vertex, by Brandes' algorithm. The scores have type double.
  returned<values> betweenness(const std::vector<uint64_t>& sources, const betweenness_options& options = {}) const {
    const uint64_t none = 0;  // the address of no source is not null, which stands for all vertices
    return detail::make<values, wb_values_t>([&](wb_values_t** made) {
      return wb_betweenness(get(), sources.empty() ? &none : sources.data(), sources.size(), &options, made);
    });
  }
  /// @brief Sums the dependencies of all vertices on every vertex. As above.
  returned<values> betweenness(const betweenness_options& options = {}) const {
    return detail::make<values, wb_values_t>([&](wb_values_t** made) { return wb_betweenness(get(), nullptr, 0, &options, made); });
  }
  /// @brief Detects communities by synchronous label propagation (CDLP of LDBC Graphalytics).
  returned<values> cdlp(const cdlp_options& options = {}) const {
    return detail::make<values, wb_values_t>([&](wb_values_t** made) { return wb_cdlp(get(), &options, made); });
  }
  /// @brief Ranks every vertex by PageRank. The ranks, of type double, sum to 1.
  returned<values> pagerank(const pagerank_options& options = {}) const {
    return detail::make<values, wb_values_t>([&](wb_values_t** made) { return wb_pagerank(get(), &options, made); });
  }
  /// @brief Counts the triangles of an undirected graph: those of each vertex, of type uint64_t, and all of them in the report.
  returned<values> triangles(const graph_run_options& options = {}) const {
    return detail::make<values, wb_values_t>([&](wb_values_t** made) { return wb_triangles(get(), &options, made); });
  }
  /// @brief Computes the local clustering coefficient of each vertex, of type double.
  returned<values> clustering(const graph_run_options& options = {}) const {
    return detail::make<values, wb_values_t>([&](wb_values_t** made) { return wb_clustering(get(), &options, made); });
  }
  /// @brief Computes the core number of each vertex, of type uint64_t.
  returned<values> cores(const graph_run_options& options = {}) const {
    return detail::make<values, wb_values_t>([&](wb_values_t** made) { return wb_cores(get(), &options, made); });
  }
  /// @brief Finds the shortest paths from a vertex, by the weights of the edges.
  ///
  /// @param parents Also finds the predecessor of each vertex.
  returned<sssp_result> sssp(uint64_t source, bool parents = false, const sssp_options& options = {}) const {
    wb_values_t *distance = nullptr, *parent = nullptr;
    const wb_code code = wb_sssp(get(), source, &options, &distance, parents ? &parent : nullptr);
    return detail::give(code, [distance, parent] { return sssp_result{values(distance), values(parent)}; });
  }
};

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
