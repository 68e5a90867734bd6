// A graph kernel with its neighbour lists in memory (before.cu), and the same kernel with the lists on storage (after.cu).
//
//   before_after [DEVICE [LOG2]]    default soft:mem, a software NVMe controller in memory, and a graph of 2^14 vertices
//
// `diff before.cu after.cu` shows what a kernel's author changes, and `main` below what the host's does.
#include <warpbell.hpp>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "before_after_image.h"
#include "graph.h"

namespace wb = warpbell::host;

// Finds connected components by rounds of a kernel. `neighbours` is a region or an array.
template <class Neighbours>
static std::vector<uint32_t> components(const wb::engine& engine, const char* kernel, const graph& g, const Neighbours& neighbours) {
  const auto memory = [&](size_t bytes) -> wb::region { return wb::region::allocate(engine, wb::place::device, bytes); };
  const size_t vertices = static_cast<size_t>(g.vertices());
  std::vector<uint32_t> label(vertices);
  for (size_t v = 0; v < vertices; ++v) label[v] = static_cast<uint32_t>(v);
  const wb::region offset = memory(g.offset.size() * sizeof g.offset[0]), changed = memory(sizeof(uint32_t));
  offset.write(g.offset.data(), g.offset.size());
  wb::region now = memory(vertices * sizeof label[0]), next = memory(vertices * sizeof label[0]);
  now.write(label.data(), vertices);

  double seconds = 0;
  uint32_t rounds = 0;
  for (uint32_t more = 1; more != 0; ++rounds) {
    changed.fill(0, sizeof(uint32_t), 0);
    seconds += wb::launch(engine, kernel, engine.grid(), neighbours, offset, now, next, g.vertices(), changed).finish();
    std::swap(now, next);
    more = changed.read<uint32_t>(1)[0];
  }
  label = now.read<uint32_t>(vertices);
  const size_t found = std::set<uint32_t>(label.begin(), label.end()).size();
  std::printf("%-7s %zu components in %u rounds, %.3f s\n", kernel, found, rounds, seconds);
  return label;
}

static int run(const std::string& device, unsigned log2) {
  wb::engine_options options;
  options.images = {&before_after_image};
  const wb::engine engine = wb::engine::open(options);
  const graph g = random_graph(1u << log2, 4, 8);
  const size_t bytes = g.neighbours.size() * sizeof g.neighbours[0];

  // Before: the lists fill memory of the GPU.
  const wb::region in_memory = wb::region::allocate(engine, wb::place::device, bytes);
  in_memory.write(g.neighbours.data(), g.neighbours.size());
  const std::vector<uint32_t> before = components(engine, "before", g, in_memory);

  // After: they are stored, and a cache of half their size is in memory.
  const wb::volume volume = wb::volume::create(engine, {device}, wb::volume::bytes_for({bytes}));
  volume.store("neighbours", g.neighbours.data(), g.neighbours.size());
  const wb::cache cache = wb::cache::open(volume, bytes / 2);
  const auto on_storage = wb::array<uint32_t>::open(cache, "neighbours");
  const std::vector<uint32_t> after = components(engine, "after", g, on_storage);

  const bool correct = before == after && std::set<uint32_t>(before.begin(), before.end()).size() >= 8;
  std::printf("the labels of %zu vertices are equal: %s\n", before.size(), correct ? "correct" : "wrong");
  return correct ? 0 : 1;
}

int main(int argc, char** argv) {
  try {
    const unsigned long log2 = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 14;
    if (log2 < 8 || log2 > 26) {
      std::fprintf(stderr, "error: LOG2 is %s; it must be a number from 8 to 26\n", argv[2]);
      return 2;
    }
    return run(argc > 1 ? argv[1] : "soft:mem", static_cast<unsigned>(log2));
  } catch (const wb::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
