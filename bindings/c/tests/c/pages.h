// Keys and pages of the test programs.
#pragma once

#include "storage.h"

enum { KEY = 16 };

// Writes the keys of `count` numbers, one behind the other.
static inline void keys_of(const uint32_t* numbers, size_t count, uint8_t* keys) {
  memset(keys, 0x5a, count * KEY);
  for (size_t i = 0; i < count; ++i) memcpy(keys + i * KEY, &numbers[i], sizeof(numbers[i]));
}

// Byte `at` of the object of a number.
static inline uint8_t byte_of(uint32_t number, size_t at) { return (uint8_t)((number * 2654435761u + at * 40503u + (at >> 8)) >> 7); }

static inline void fill_object(uint32_t number, uint8_t* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) data[i] = byte_of(number, i);
}

static inline int is_object(uint32_t number, const uint8_t* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (data[i] != byte_of(number, i)) return 0;
  }
  return 1;
}

// Changes one bit of the first place of a volume that has these bytes.
static inline void damage(wb_volume_t* volume, const uint8_t* data, size_t bytes) {
  uint64_t size = 0;
  OK(wb_volume_bytes(volume, &size));
  uint8_t* all = malloc(size);
  CHECK(all != NULL);
  OK(wb_volume_read(volume, 0, all, size));
  uint64_t at = 0;
  while (at + bytes <= size && memcmp(all + at, data, bytes) != 0) at += 512;
  CHECK(at + bytes <= size);
  all[at + bytes / 2] ^= 8;
  OK(wb_volume_write(volume, at + bytes / 2, all + at + bytes / 2, 1));
  free(all);
}

static inline wb_kv_t* create_store(wb_volume_t* volume, const char* name, uint64_t bytes, uint64_t objects) {
  wb_kv_options options = {.size = sizeof(options)};
  options.bytes = bytes;
  options.objects = objects;
  options.key_bytes = KEY;
  wb_kv_t* store = NULL;
  OK(wb_kv_create(volume, name, &options, &store));
  return store;
}

static inline wb_kv_stats stats_of(wb_kv_t* store) {
  wb_kv_stats stats = {.size = sizeof(stats)};
  OK(wb_kv_get_stats(store, &stats));
  return stats;
}

static inline wb_segment_queue_t* queue_of(wb_volume_t* volume) {
  wb_segment_queue_t* queue = NULL;
  OK(wb_segment_queue_create(volume, NULL, NULL, &queue));
  return queue;
}

static inline wb_segment_memory memory_at(void* address, size_t bytes, uint32_t group) {
  wb_segment_memory memory = {0};
  memory.address = address;
  memory.bytes = bytes;
  memory.group = group;
  return memory;
}

static inline wb_segment_memory memory_of(const wb_region_t* region, size_t offset, size_t bytes, uint32_t group) {
  wb_segment_memory memory = {0};
  memory.region = region;
  memory.offset = offset;
  memory.bytes = bytes;
  memory.group = group;
  return memory;
}

// Finishes a transfer that has `failed` objects with errors.
static inline void finish(wb_segment_transfer_t* transfer, size_t failed) {
  size_t found = SIZE_MAX;
  OK(wb_segment_transfer_finish(transfer, 60, &found));
  CHECK(found == failed);
}

static inline uint64_t outcome(wb_segment_transfer_t* transfer, size_t object) {
  uint64_t bytes = 0;
  OK(wb_segment_transfer_outcome(transfer, object, &bytes));
  return bytes;
}
