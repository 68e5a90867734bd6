// Common parts of explorations of rings of any kind (ring.cuh): the text of their words in traces, and the clock.
#pragma once

#include "explore_access.h"

namespace explore {

constexpr uint64_t deadline_ns = 1000;

inline void pass_time(uint64_t& time) {
  time += deadline_ns / 10 * 6;
  here().tell("clock       more than half of a deadline passes");
}

inline std::string halves(uint64_t v, const char* low, const char* high) {
  return std::string(low) + " " + std::to_string(static_cast<int32_t>(v)) + ", " + high + " " +
         std::to_string(static_cast<uint32_t>(v >> 32));
}
inline std::string counts_text(uint64_t v) { return halves(v, "credit", "ticket"); }
inline std::string tail_text(uint64_t v) { return halves(v, "tried", "tail"); }
inline std::string head_text(uint64_t v) { return halves(v, "held", "head"); }

// Forgets a draw from a word that another thread corrects. Until that thread overwrites the word only its sign is looked at. With
// the draws in it, each draw of a waiting thread would make a new state.
inline void forget_draw(void* counts, uint64_t before, uint64_t now) {
  const int32_t had = static_cast<int32_t>(before);
  if (had < 0 && static_cast<int32_t>(now) < had) std::memcpy(counts, &before, sizeof before);
}

}  // namespace explore
