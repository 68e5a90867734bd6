// Packs neighbour lists for stress tests of the graph kernels, value by value.
#pragma once

#include <cstdint>
#include <vector>

#include "../../kernels/graph/work.cuh"

using namespace warpbell;

// Packed lists, as packed.cuh describes them.
struct packed_lists {
  std::vector<uint64_t> position{0};
  std::vector<uint32_t> words;

  // Appends values of one width, and returns the width.
  uint32_t append(const std::vector<uint32_t>& values) {
    uint32_t width = 0;
    for (const uint32_t v : values) {
      while (width < 32 && v >> width) ++width;
    }
    const size_t first = words.size();
    words.resize(first + width);
    for (size_t k = 0; k < values.size(); ++k) {
      for (uint32_t bit = 0; bit < width; ++bit) {
        const size_t at = k * width + bit;
        words[first + at / 32] |= (values[k] >> bit & 1) << at % 32;
      }
    }
    return width;
  }

  packed_lists() = default;
  packed_lists(const std::vector<uint64_t>& offset, const std::vector<graph::weighted<uint32_t, uint32_t>>& list, bool weighted) {
    std::vector<bool> starts(list.size() + 1);
    for (const uint64_t o : offset) starts[o] = true;
    for (uint64_t block = 0; block < list.size(); block += graph::piece_edges) {
      const size_t index = words.size();
      words.push_back(starts[block] ? ~0u : list[block - 1].id);
      words.resize(words.size() + (weighted ? 32 : 16));
      const size_t behind = words.size();
      for (uint32_t g = 0; g < 32; ++g) {
        std::vector<uint32_t> gaps, weights;
        for (uint64_t i = block + g * 32; i < block + (g + 1) * 32 && i < list.size(); ++i) {
          gaps.push_back(starts[i] ? list[i].id : list[i].id - list[i - 1].id - 1);
          weights.push_back(list[i].weight);
        }
        const uint32_t start = static_cast<uint32_t>(words.size() - behind), width = append(gaps);
        if (weighted) {
          words[index + 1 + g] = start | width << 12 | append(weights) << 18;
        } else {
          words[index + 1 + g / 2] |= (start | width << 10) << g % 2 * 16;
        }
      }
      position.push_back(words.size());
    }
  }

  graph::pointer_source<uint32_t> source() const { return {words.data()}; }
};
