// Engines, volumes and caches of the test programs.
#pragma once

#include "check.h"

static inline wb_engine_t* cpu_engine(uint32_t threads) {
  wb_engine_t* engine = NULL;
  wb_engine_options options = {.size = sizeof(options)};
  options.kind = WB_ENGINE_CPU;
  options.threads = threads;
  OK(wb_engine_open(&options, &engine));
  return engine;
}

static inline wb_volume_t* open_volume(wb_engine_t* engine, const char* device) {
  wb_volume_t* volume = NULL;
  OK(wb_volume_open(engine, &device, 1, NULL, &volume));
  return volume;
}

static inline wb_cache_t* open_cache(wb_volume_t* volume, uint64_t bytes) {
  wb_cache_t* cache = NULL;
  wb_cache_options options = {.size = sizeof(options)};
  options.bytes = bytes;
  OK(wb_cache_open(volume, &options, &cache));
  return cache;
}

// Checks that a text which the library made has a part, and frees it.
static inline void has(char* text, const char* part) {
  if (strstr(text, part) == NULL) {
    fprintf(stderr, "no `%s` in: %s\n", part, text);
    exit(1);
  }
  wb_string_free(text);
}
