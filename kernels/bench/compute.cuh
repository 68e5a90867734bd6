// Work of a kernel that computes and touches no memory, to see what is left of the machine beside one that transfers.
#pragma once

#include <warpbell/warp.cuh>

namespace warpbell {
namespace bench {

// Computes for a time that is proportional to `rounds`. The result is positive; the compiler does not know that.
WB_FN float compute(uint64_t rounds) {
  float a = static_cast<float>(warp::thread_index()), b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
  for (uint64_t i = 0; i < rounds; ++i) {
    a = a * 0.5f + 1.0f;
    b = b * 0.5f + 2.0f;
    c = c * 0.5f + 3.0f;
    d = d * 0.5f + 4.0f;
  }
  return a + b + c + d;
}

}  // namespace bench
}  // namespace warpbell
