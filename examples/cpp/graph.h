// A graph for the examples: neighbour lists one behind the other, of a fixed random sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

struct graph {
  std::vector<uint64_t> offset;      // vertices + 1: where the list of each vertex begins
  std::vector<uint32_t> neighbours;  // both directions of each edge

  uint64_t vertices() const { return offset.size() - 1; }
};

// Returns a graph of random edges, `edges_each` for each vertex, among vertices of the same remainder modulo `parts`.
inline graph random_graph(uint32_t vertices, uint32_t edges_each, uint32_t parts) {
  uint64_t state = 1;
  std::vector<std::pair<uint32_t, uint32_t>> arcs;
  for (uint32_t v = 0; v < vertices; ++v) {
    for (uint32_t e = 0; e < edges_each; ++e) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const uint32_t u = static_cast<uint32_t>((state >> 33) % (vertices / parts)) * parts + v % parts;
      arcs.emplace_back(v, u);
      arcs.emplace_back(u, v);
    }
  }
  std::sort(arcs.begin(), arcs.end());
  graph g;
  g.offset.assign(vertices + 1, 0);
  for (const auto& arc : arcs) {
    ++g.offset[arc.first + 1];
    g.neighbours.push_back(arc.second);
  }
  for (uint32_t v = 0; v < vertices; ++v) g.offset[v + 1] += g.offset[v];
  return g;
}
