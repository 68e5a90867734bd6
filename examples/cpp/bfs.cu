// A CUDA program with a kernel, a stream and launches of its own: breadth-first search over neighbour lists that are on storage.
//
//   bfs [DEVICE]    default soft:mem, a software NVMe controller in memory
//
// nvcc compiles it for a GPU. A C++20 compiler compiles the same file for CPU threads: WB_LAUNCH is <<<>>> there.
#include <warpbell.hpp>
#include <warpbell/array.cuh>
#include <warpbell/launch.cuh>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph.h"

namespace wb = warpbell::host;

static constexpr uint32_t UNREACHED = 0xffffffffu;

// Visits the vertices at distance `level`, one warp each; their neighbours are at `level` + 1 unless they were reached before.
__global__ static void visit(WB_PARAM wb_array_view neighbours_view, const uint64_t* offset, uint64_t vertices, uint32_t level,
                             uint32_t* depth, uint32_t* changed) {
  using namespace warpbell;
  auto neighbours = array_ref<uint32_t>(neighbours_view).open();
  for (uint64_t v = warp::index(); v < vertices; v += warp::total()) {
    if (order::load<order::relaxed>(&depth[v]) != level) continue;
    neighbours.for_each_chunk(offset[v], offset[v + 1], [&](uint32_t u) {
      if (atomicCAS(&depth[u], UNREACHED, level + 1) == UNREACHED) atomicExch(changed, 1u);
    });
  }
}

static std::vector<uint32_t> expected_depths(const graph& g) {
  std::vector<uint32_t> depth(g.vertices(), UNREACHED), queue{0};
  depth[0] = 0;
  for (size_t next = 0; next < queue.size(); ++next) {
    const uint32_t v = queue[next];
    for (uint64_t e = g.offset[v]; e < g.offset[v + 1]; ++e) {
      const uint32_t u = g.neighbours[e];
      if (depth[u] != UNREACHED) continue;
      depth[u] = depth[v] + 1;
      queue.push_back(u);
    }
  }
  return depth;
}

// Returns a stream of this program: a CUDA stream that the library uses too, or one of the engine on CPU threads.
static wb::stream own_stream(const wb::engine& engine) {
#if WB_GPU
  cudaStream_t made;
  if (const cudaError_t e = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking); e != cudaSuccess) {
    throw std::runtime_error(std::string("cudaStreamCreateWithFlags: ") + cudaGetErrorString(e));
  }
  return wb::stream::adopt(engine, made, [made] { cudaStreamDestroy(made); });
#else
  return wb::stream::create(engine);
#endif
}

static int run(const std::string& device) {
  // The kernel is this program's own, so the engine needs no image of it.
  wb::engine_options options;
  options.kind = static_cast<wb::engine_kind>(WB_ENGINE_OF_COMPILER);
  const wb::engine engine = wb::engine::open(options);
  const wb::stream stream = own_stream(engine);

  const graph g = random_graph(1 << 14, 4, 2);
  const uint64_t bytes = wb::volume::bytes_for({g.neighbours.size() * sizeof g.neighbours[0]});
  const wb::volume volume = wb::volume::create(engine, {device}, bytes);
  volume.store("neighbours", g.neighbours.data(), g.neighbours.size());
  const wb::cache cache = wb::cache::open(volume, 256 << 10);
  const auto neighbours = wb::array<uint32_t>::open(cache, "neighbours");

  const wb::region offset = wb::region::allocate(engine, wb::place::device, g.offset.size() * sizeof g.offset[0]);
  offset.write(g.offset.data(), g.offset.size());
  const wb::region depth = wb::region::allocate(engine, wb::place::device, g.vertices() * sizeof(uint32_t));
  depth.fill(0, g.vertices() * sizeof(uint32_t), 0xff);
  const uint32_t zero = 0;
  depth.write(&zero, 1);
  const wb::region changed = wb::region::allocate(engine, wb::place::device, sizeof(uint32_t));

  const wb_grid grid = engine.grid(128, 2);
  uint32_t level = 0;
  for (uint32_t more = 1; more != 0; ++level) {
    changed.write(&zero, 1);
    const wb::run run = wb::run::begin(engine, "visit", stream);
    run.keep(neighbours);
    WB_LAUNCH(visit, grid, stream.raw(), neighbours.view(), offset.address<uint64_t>(), g.vertices(), level, depth.address<uint32_t>(),
              changed.address<uint32_t>());
    run.finish();
    more = changed.read<uint32_t>(1)[0];
  }

  const std::vector<uint32_t> found = depth.read<uint32_t>(g.vertices());
  const auto reached = std::count_if(found.begin(), found.end(), [](uint32_t d) { return d != UNREACHED; });
  const bool correct = found == expected_depths(g);
  std::printf("reached %lld of %llu vertices in %u levels, %llu pages read: %s\n", static_cast<long long>(reached),
              static_cast<unsigned long long>(g.vertices()), level, static_cast<unsigned long long>(volume.stats().fills),
              correct ? "correct" : "wrong");
  return correct ? 0 : 1;
}

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "soft:mem");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
