// Checks of stress programs: a failed check prints its place and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(CONDITION)                                                             \
  do {                                                                               \
    if (!(CONDITION)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #CONDITION); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)
