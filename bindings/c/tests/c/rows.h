// Tables of the test programs, and the arguments of their calls.
#pragma once

#include "storage.h"

static inline wb_table_layout layout_of(uint32_t dtype, uint64_t elements, uint64_t rows) {
  wb_table_layout layout = {.size = sizeof(layout)};
  layout.dtype = dtype;
  layout.dimensions = 1;
  layout.shape[0] = elements;
  layout.rows = rows;
  return layout;
}

// Indices of 64 bits in memory of the program.
static inline wb_row_indices list_of(const uint64_t* list, uint64_t count) {
  wb_row_indices indices = {.size = sizeof(indices)};
  indices.list = list;
  indices.count = count;
  indices.width = 8;
  return indices;
}

static inline wb_row_memory host_rows(void* data, size_t bytes) {
  wb_row_memory rows = {.size = sizeof(rows)};
  rows.data = data;
  rows.bytes = bytes;
  return rows;
}

static inline wb_row_memory region_rows(const wb_region_t* region) {
  wb_row_memory rows = {.size = sizeof(rows)};
  rows.region = region;
  return rows;
}

static inline wb_row_memory buffer_rows(const wb_buffer_t* buffer) {
  wb_row_memory rows = {.size = sizeof(rows)};
  rows.buffer = buffer;
  return rows;
}

// Word `word` of row `row` of a stored table of words.
static inline uint32_t word_of(uint64_t row, uint64_t word) { return (uint32_t)(row * 2654435761u + word * 40503u); }

// Stores a table of `rows` rows of `each` words, and opens it.
static inline wb_table_t* store_words(wb_volume_t* volume, const char* name, uint64_t rows, uint64_t each) {
  uint32_t* words = malloc(rows * each * 4);
  CHECK(words != NULL);
  for (uint64_t i = 0; i < rows * each; ++i) words[i] = word_of(i / each, i % each);
  const wb_table_layout layout = layout_of(WB_U32, each, rows);
  wb_table_t* table = NULL;
  OK(wb_table_store(volume, name, &layout, words, WB_STORE_ADD, &table));
  free(words);
  return table;
}

// Checks that memory has the rows of these numbers.
static inline void are_rows(const uint32_t* found, const uint64_t* numbers, uint64_t count, uint64_t each) {
  for (uint64_t i = 0; i < count * each; ++i) CHECK(found[i] == word_of(numbers[i / each], i % each));
}
