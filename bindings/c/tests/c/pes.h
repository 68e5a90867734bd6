// Several PEs in one process, each in a thread of its own.
#pragma once

#include <pthread.h>

#include "check.h"

#define MOST_PES 8

typedef struct pe {
  wb_engine_t* engine;
  wb_world_t* world;
  void (*work)(struct pe* pe);
  uint32_t me, pes;
} pe;

static inline wb_engine_t* cpu_engine(void) {
  wb_engine_t* engine = NULL;
  const wb_engine_options options = {.size = sizeof(options), .kind = WB_ENGINE_CPU, .threads = 2};
  OK(wb_engine_open(&options, &engine));
  // Far longer than any test takes, so that a slow machine fails no test.
  OK(wb_engine_set_deadline(engine, 100));
  return engine;
}

static inline void* run_pe(void* argument) {
  pe* one = argument;
  one->work(one);
  return NULL;
}

// Runs `work` on each of `pes` PEs. The worlds are released by the threads that use them.
static inline void on_all(uint32_t pes, const wb_world_options* options, void (*work)(pe*)) {
  pe all[MOST_PES];
  wb_engine_t* engines[MOST_PES];
  wb_world_t* worlds[MOST_PES];
  pthread_t threads[MOST_PES];
  for (uint32_t i = 0; i < pes; ++i) engines[i] = cpu_engine();
  OK(wb_world_create_local(engines, pes, options, worlds));
  for (uint32_t i = 0; i < pes; ++i) {
    all[i] = (pe){engines[i], worlds[i], work, i, pes};
    CHECK(pthread_create(&threads[i], NULL, run_pe, &all[i]) == 0);
  }
  for (uint32_t i = 0; i < pes; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    wb_engine_release(engines[i]);
  }
}
