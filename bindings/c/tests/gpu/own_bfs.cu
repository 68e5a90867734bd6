// Measures what a CUDA program pays that launches kernels itself: own stream, own <<<>>>, own memory of cudaMalloc. The kernels are
// those of the library's search, compiled into this program, so that everything else is compared. Searches alternate with wb_bfs on
// the same graph; each begins with an empty cache, and all depths have to be equal.
//
//     nvcc -std=c++17 -O3 -arch=native -I PREFIX/include -I kernels/include -o own_bfs bindings/c/tests/gpu/own_bfs.cu -lwarpbell
//     own_bfs kron:22 7
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <warpbell.h>

// The parameters of the kernels have the names of functions of warpbell.h.
#define wb_bfs wb_bfs_step
#define wb_sssp wb_sssp_step
#define wb_components wb_components_step
#define wb_pagerank wb_pagerank_step
#include "../../../../kernels/graph/bfs.cu"
#include "../../../../kernels/graph/queue.cu"
#undef wb_bfs
#undef wb_sssp
#undef wb_components
#undef wb_pagerank

#define WB(call)                                                                      \
  do {                                                                                \
    if ((call) != WB_OK) {                                                            \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, wb_last_error()); \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)
#define CUDA(call)                                                                          \
  do {                                                                                      \
    const cudaError_t e = (call);                                                           \
    if (e != cudaSuccess) {                                                                 \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)); \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

// As of the library's search (host/graph/bfs.rs): Beamer's alpha and beta, and when a sorted queue saves reads.
constexpr uint64_t alpha = 40, beta = 18, pages_per_item = 8;

template <class T> static T* device(size_t count) {
  void* p = nullptr;
  CUDA(cudaMalloc(&p, count * sizeof(T)));
  CUDA(cudaMemset(p, 0, count * sizeof(T)));
  return static_cast<T*>(p);
}

struct search {
  using id = uint32_t;
  wb_engine_t* engine;
  wb_stream_t* stream;
  wb_graph_t* graph;
  wb_graph_lists lists;
  cudaStream_t raw;
  wb_grid grid;
  uint32_t *seen[2], *depth, *parent, *marks;
  warpbell::graph::item<id>* queue[2];
  wb_graph_counters* sums;
  wb_graph_report* report;
  uint64_t connected;  // vertices with edges

  search(wb_engine_t* engine, wb_graph_t* graph, const wb_graph_lists& lists) : engine(engine), graph(graph), lists(lists) {
    CUDA(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking));
    WB(wb_stream_adopt(engine, raw, nullptr, nullptr, &stream));
    WB(wb_engine_grid(engine, WB_GRAPH_BLOCK_THREADS, WB_GRAPH_BLOCKS_PER_PROCESSOR, &grid));
    const size_t words = (lists.vertices + 31) / 32, items = lists.vertices + 2 * (lists.arcs / WB_GRAPH_PIECE_EDGES) + 1;
    for (int i = 0; i < 2; ++i) {
      seen[i] = device<uint32_t>(words);
      queue[i] = device<warpbell::graph::item<id>>(items);
    }
    depth = device<uint32_t>(lists.vertices);
    parent = device<id>(lists.vertices);
    marks = device<uint32_t>(words);
    sums = device<wb_graph_counters>(1);
    const wb_graph_counters zero = {{}, ~0ull, 0, 0};
    CUDA(cudaMemcpy(sums, &zero, sizeof(zero), cudaMemcpyHostToDevice));
    void* p = nullptr;
    CUDA(cudaHostAlloc(&p, sizeof(*report), cudaHostAllocMapped));
    report = static_cast<wb_graph_report*>(p);
    std::vector<uint32_t> isolated(words);
    CUDA(cudaMemcpy(isolated.data(), lists.isolated, words * 4, cudaMemcpyDeviceToHost));
    connected = words * 32;
    for (uint32_t word : isolated) connected -= static_cast<uint64_t>(__builtin_popcount(word));
  }

  wb_graph_report step() {
    CUDA(cudaGetLastError());
    CUDA(cudaStreamSynchronize(raw));
    const wb_graph_report now = *report;
    if (now.sum[WB_GRAPH_BAD_EDGES]) {
      fprintf(stderr, "%llu bad edges\n", static_cast<unsigned long long>(now.sum[WB_GRAPH_BAD_EDGES]));
      exit(1);
    }
    return now;
  }

  // Sorts a queue by vertex where that saves reads. Returns true if it did.
  bool sort(uint32_t turn, uint64_t items) {
    if (items <= lists.arcs / WB_GRAPH_PIECE_EDGES / pages_per_item) return false;
    const wb_queue_order p = {lists.offset, queue[turn], queue[1 - turn], marks, items, lists.vertices, sums, report};
    wb_queue_mark_u32<<<grid.blocks, grid.threads, 0, raw>>>(p);
    wb_queue_collect_u32<<<grid.blocks, grid.threads, 0, raw>>>(p);
    step();
    return true;
  }

  // Searches from a source. Returns the number of vertices reached.
  uint64_t run(uint64_t source) {
    using warpbell::array_ref;
    const array_ref<id> edges(lists.stored);
    wb_run_t* run = nullptr;
    WB(wb_run_begin(engine, "the program's search", stream, &run));
    WB(wb_run_keep(run, graph));
    wb_bfs_step base = {};
    base.offset = lists.offset;
    base.hubs = lists.hubs;
    base.isolated = lists.isolated;
    base.depth = depth;
    base.parent = parent;
    base.sums = sums;
    base.report = report;
    base.vertices = lists.vertices;
    base.source = source;
    base.skip = lists.hubs_first;
    uint32_t now = 0, turn = 0;
    wb_bfs_step p = base;
    p.seen = seen[0];
    p.queue_next = queue[0];
    wb_bfs_start_u32<<<grid.blocks, grid.threads, 0, raw>>>(p);
    wb_graph_report r = step();
    uint64_t items = r.sum[WB_BFS_ITEMS], degrees = r.sum[WB_BFS_DEGREES], frontier = 1, unexplored = lists.arcs, reached = 1;
    bool bottom_up = false;
    for (uint32_t level = 1;; ++level) {
      const bool queued = !bottom_up;
      if (!bottom_up) {
        if (items == 0) break;
        bottom_up = degrees > unexplored / alpha;
        unexplored -= std::min(unexplored, degrees);
      }
      if (bottom_up) {
        p = base;
        p.seen = seen[now];
        p.open = seen[now];
        p.seen_next = seen[1 - now];
        p.level = level;
        now = 1 - now;
        if (queued) {
          wb_bfs_by_hubs_u32<<<grid.blocks, grid.threads, 0, raw>>>(p);
          const wb_graph_report hubs = step();
          const uint64_t left = hubs.sum[WB_BFS_ITEMS];
          r = hubs;
          if (left != 0) {
            if (left <= items + degrees / WB_GRAPH_PIECE_EDGES) {
              p.open = p.seen_next;
              wb_bfs_bottom_up_storage_u32<<<grid.blocks, grid.threads, 0, raw>>>(p, edges);
            } else {
              wb_bfs_step q = base;
              q.seen = seen[now];
              q.queue = queue[turn];
              q.queue_next = queue[1 - turn];
              q.items = items;
              q.level = level;
              wb_bfs_top_down_storage_u32<<<grid.blocks, grid.threads, 0, raw>>>(q, edges);
            }
            r = step();
            r.sum[WB_BFS_FOUND] += hubs.sum[WB_BFS_FOUND];
          }
        } else {
          wb_bfs_bottom_up_storage_u32<<<grid.blocks, grid.threads, 0, raw>>>(p, edges);
          r = step();
        }
      } else {
        if (sort(turn, items)) turn = 1 - turn;
        p = base;
        p.seen = seen[now];
        p.queue = queue[turn];
        p.queue_next = queue[1 - turn];
        p.items = items;
        p.level = level;
        turn = 1 - turn;
        wb_bfs_top_down_storage_u32<<<grid.blocks, grid.threads, 0, raw>>>(p, edges);
        r = step();
        items = r.sum[WB_BFS_ITEMS];
        degrees = r.sum[WB_BFS_DEGREES];
      }
      const uint64_t found = r.sum[WB_BFS_FOUND];
      reached += found;
      if (bottom_up && found != 0 && found < frontier && found <= lists.vertices / beta &&
          found < connected - std::min(connected, reached)) {
        p = base;
        p.seen = seen[now];
        p.seen_next = seen[1 - now];
        p.queue_next = queue[turn];
        wb_bfs_collect_u32<<<grid.blocks, grid.threads, 0, raw>>>(p);
        r = step();
        items = r.sum[WB_BFS_ITEMS];
        degrees = r.sum[WB_BFS_DEGREES];
        bottom_up = false;
      }
      frontier = found;
      if (found == 0) break;
    }
    WB(wb_run_finish(run, 60, nullptr));
    wb_run_release(run);
    return reached;
  }
};

static double ms_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - then).count();
}

static void print(const char* name, std::vector<double> ms) {
  printf("%-28s ms:", name);
  for (double m : ms) printf(" %.3f", m);
  std::sort(ms.begin(), ms.end());
  printf("  median %.3f\n", ms[ms.size() / 2]);
}

int main(int argc, char** argv) {
  const char* input = argc > 1 ? argv[1] : "kron:18";
  const int runs = argc > 2 ? atoi(argv[2]) : 3;
  wb_engine_options options = {};
  options.size = sizeof(options);
  options.kind = WB_ENGINE_GPU;
  wb_engine_t* engine = nullptr;
  WB(wb_engine_open(&options, &engine));
  const char* device_spec = "soft:mem";
  wb_volume_t* volume = nullptr;
  WB(wb_volume_create(engine, &device_spec, 1, 2ull << 30, nullptr, &volume));
  wb_cache_options cache_options = {};
  cache_options.size = sizeof(cache_options);
  cache_options.bytes = argc > 3 ? strtoull(argv[3], nullptr, 0) : 64ull << 20;
  wb_cache_t* cache = nullptr;
  WB(wb_cache_open(volume, &cache_options, &cache));
  wb_graph_t* graph = nullptr;
  WB(wb_graph_import(cache, "graph", input, nullptr, &graph));
  wb_graph_lists lists = {};
  lists.size = sizeof(lists);
  WB(wb_graph_get_lists(graph, WB_LISTS_OUTGOING, &lists));
  printf("%s: %llu vertices, %llu arcs; cache %llu MiB; cold cache before each search\n", input,
         static_cast<unsigned long long>(lists.vertices), static_cast<unsigned long long>(lists.arcs),
         static_cast<unsigned long long>(cache_options.bytes >> 20));
  uint64_t source = 0;
  for (std::vector<uint64_t> offset(2);; ++source) {
    CUDA(cudaMemcpy(offset.data(), lists.offset + source, 16, cudaMemcpyDeviceToHost));
    if (offset[1] > offset[0]) break;
  }
  search own(engine, graph, lists);
  std::vector<uint32_t> mine(lists.vertices), theirs(lists.vertices);
  std::vector<double> own_ms, library_ms;
  for (int i = 0; i < runs + 1; ++i) {
    WB(wb_cache_reset(cache));
    auto then = std::chrono::steady_clock::now();
    const uint64_t reached = own.run(source);
    const double own_took = ms_since(then);
    CUDA(cudaMemcpy(mine.data(), own.depth, mine.size() * 4, cudaMemcpyDeviceToHost));
    WB(wb_cache_reset(cache));
    wb_values_t* depth = nullptr;
    wb_values_t* parent = nullptr;
    wb_report report = {};
    report.size = sizeof(report);
    WB(wb_bfs(graph, source, nullptr, &depth, &parent));
    WB(wb_values_report(depth, &report));
    WB(wb_values_read(depth, 0, theirs.size(), WB_U32, theirs.data()));
    wb_values_release(parent);
    wb_values_release(depth);
    if (mine != theirs || reached != report.reached) {
      fprintf(stderr, "the searches differ: reached %llu and %llu\n", static_cast<unsigned long long>(reached),
              static_cast<unsigned long long>(report.reached));
      return 1;
    }
    if (i == 0) continue;  // warms up
    own_ms.push_back(own_took);
    library_ms.push_back(report.elapsed_seconds * 1e3);
  }
  print("own <<<>>>, own memory", own_ms);
  print("wb_bfs", library_ms);
  printf("depths equal: correct\n");
  return 0;
}
