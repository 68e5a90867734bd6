// Main function of a program of explorations: runs its scenes one after the other, or one scene with a mistake of the library.
#pragma once

#include "explore_access.h"

namespace explore {

struct scenario {
  const char* name;
  std::unique_ptr<scene> (*make)();
  limits daily, at_length;
};

inline void print(const scenario& s, const limits& within, const outcome& o) {
  std::printf("%s: ", s.name);
  if (within.preemptions == ~0u) std::printf("every schedule");
  else std::printf("schedules with %u preemptions or fewer", within.preemptions);
  if (within.delays) std::printf(", %u late stores", within.delays);
  std::printf(": %llu states, %llu steps, %llu deep\n", static_cast<unsigned long long>(o.states), static_cast<unsigned long long>(o.steps),
              static_cast<unsigned long long>(o.depth));
}

inline void print_trace(const outcome& o) {
  size_t n = 0;
  for (const std::string& line : o.trace) std::printf("  %3zu %s\n", ++n, line.c_str());
  std::printf("wrong: %s\n", o.wrong.c_str());
}

inline outcome explored(const scenario& s, const limits& within) {
  const std::unique_ptr<scene> what = s.make();
  return explorer(*what, within).run();
}

// Usage:
// PROGRAM                    all scenes, within the everyday limits
// PROGRAM long [SCENE]       all or one of them, within wider limits
// PROGRAM mutated NAME SCENE one of them, with the mistake NAME in a copy of the headers: it must be found
inline int explore_main(int argc, char** argv, const std::vector<scenario>& scenarios) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string how = argc > 1 ? argv[1] : "";
  const std::string wanted = how == "long" && argc > 2 ? argv[2] : how == "mutated" && argc > 3 ? argv[3] : "";
  bool any = false;
  for (const scenario& s : scenarios) {
    if (!wanted.empty() && wanted != s.name) continue;
    any = true;
    if (how != "mutated") {
      const limits& within = how == "long" ? s.at_length : s.daily;
      const outcome o = explored(s, within);
      print(s, within, o);
      if (o.wrong.empty() && o.complete) continue;
      if (o.wrong.empty()) std::printf("there are more states than the limit of %u, or runs are too long\n", within.states);
      else print_trace(o);
      return 1;
    }
    mutation = id_of(argv[2]);
    // The fewest preemptions make the shortest trace.
    limits within = s.at_length;
    for (within.preemptions = 0;; ++within.preemptions) {
      if (within.preemptions > 3) within.preemptions = s.at_length.preemptions;
      const outcome o = explored(s, within);
      print(s, within, o);
      if (!o.wrong.empty()) {
        print_trace(o);
        std::printf("%s: caught: ok\n", argv[2]);
        return 0;
      }
      if (within.preemptions >= s.at_length.preemptions) break;
    }
    std::printf("%s was not found\n", argv[2]);
    return 1;
  }
  if (!any) {
    std::printf("no scene is called %s\n", wanted.c_str());
    return 1;
  }
  std::printf("explored: ok\n");
  return 0;
}

}  // namespace explore
