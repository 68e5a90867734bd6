// Checks of the test programs: a failed one prints its place, the last error, and ends the program.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <warpbell.h>

#define CHECK(condition)                                                                                 \
  do {                                                                                                   \
    if (!(condition)) {                                                                                  \
      fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, wb_last_error()); \
      exit(1);                                                                                           \
    }                                                                                                    \
  } while (0)

// The call succeeds.
#define OK(call) CHECK((call) == WB_OK)

// The call fails with the code, and the last error's text contains `part`.
#define FAILS(code, part, call)                     \
  do {                                              \
    CHECK((call) == (code));                        \
    CHECK(wb_last_error_code() == (code));          \
    CHECK(strstr(wb_last_error(), (part)) != NULL); \
  } while (0)
