// Tables: stored, imported, listed, verified; gathers of rows of every type; wrong arguments.
#include "rows.h"

static const char* folder;

static char* path_of(const char* name, const char* prefix) {
  static char text[2][4096];
  static int turn = 0;
  turn = 1 - turn;
  snprintf(text[turn], sizeof(text[turn]), "%s%s/%s", prefix, folder, name);
  return text[turn];
}

static wb_volume_t* create(wb_engine_t* engine, const char* device) {
  wb_volume_t* volume = NULL;
  OK(wb_volume_create(engine, &device, 1, 1 << 20, NULL, &volume));
  return volume;
}

enum { ROWS = 200, BATCH = 60 };

// Stores rows of a type, and gathers some of them from and to every kind of memory.
static void round_trip(wb_engine_t* engine, wb_volume_t* volume, const char* name, uint32_t dtype, uint64_t elements, uint64_t bytes) {
  unsigned char *rows = malloc(ROWS * bytes), *expected = malloc(BATCH * bytes), *found = malloc(BATCH * bytes);
  for (uint64_t i = 0; i < ROWS * bytes; ++i) rows[i] = (unsigned char)(i * 31 >> 3);
  wb_table_layout layout = layout_of(dtype, elements / 2, ROWS);
  layout.dimensions = 2;
  layout.shape[1] = 2;
  wb_table_t* table = NULL;
  OK(wb_table_store(volume, name, &layout, rows, WB_STORE_ADD, &table));
  wb_table_layout stored = {.size = sizeof(stored)};
  OK(wb_table_get_layout(table, &stored));
  CHECK(stored.dtype == dtype && stored.rows == ROWS && stored.row_bytes == bytes && stored.dimensions == 2);
  CHECK(stored.shape[0] == elements / 2 && stored.shape[1] == 2 && stored.shape[2] == 0);
  uint64_t numbers[BATCH];
  uint32_t narrow[BATCH];
  for (uint64_t i = 0; i < BATCH; ++i) {
    narrow[i] = (uint32_t)(numbers[i] = i * 7919 % ROWS % (i % 3 ? ROWS : 5));
    memcpy(expected + i * bytes, rows + numbers[i] * bytes, bytes);
  }

  // Numbers in lists, a region and a buffer.
  wb_row_indices indices[4] = {list_of(numbers, BATCH), list_of(numbers, BATCH), list_of(NULL, BATCH), list_of(NULL, BATCH)};
  indices[1].list = narrow;
  indices[1].width = 4;
  wb_region_t* index_region = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, sizeof(numbers), &index_region));
  OK(wb_region_write(index_region, 0, numbers, sizeof(numbers)));
  indices[2].region = index_region;
  wb_buffer_t* index_buffer = NULL;
  OK(wb_volume_allocate(volume, sizeof(narrow), &index_buffer));
  OK(wb_buffer_write(index_buffer, 0, narrow, sizeof(narrow)));
  indices[3].buffer = index_buffer;
  indices[3].width = 4;
  // Rows in memory of the host, a region and a buffer.
  wb_region_t* region = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, BATCH * bytes, &region));
  wb_buffer_t* buffer = NULL;
  OK(wb_volume_allocate(volume, BATCH * bytes, &buffer));
  wb_row_memory memory[3] = {host_rows(found, BATCH * bytes), region_rows(region), buffer_rows(buffer)};
  for (int i = 0; i < 4; ++i) {
    for (int m = 0; m < 3; ++m) {
      memset(found, 0, BATCH * bytes);
      memory[m].dtype = i % 2 ? dtype : 0;
      OK(wb_table_gather(table, &indices[i], &memory[m]));
      if (m == 1) OK(wb_region_read(region, 0, found, BATCH * bytes));
      if (m == 2) OK(wb_buffer_read(buffer, 0, found, BATCH * bytes));
      CHECK(memcmp(found, expected, BATCH * bytes) == 0);
    }
  }
  memory[0].dtype = dtype == WB_U8 ? WB_I8 : WB_U8;
  FAILS(WB_ERR_ARGUMENT, "use that type", wb_table_gather(table, &indices[0], &memory[0]));
  memory[0].dtype = 99;
  FAILS(WB_ERR_ARGUMENT, "`dtype` is 99", wb_table_gather(table, &indices[0], &memory[0]));
  uint32_t compared = 0;
  OK(wb_table_verify(table, &compared));
  CHECK(compared == 1);
  wb_region_release(index_region);
  wb_buffer_release(index_buffer);
  wb_region_release(region);
  wb_buffer_release(buffer);
  wb_table_release(table);
  OK(wb_table_remove(volume, name));
  free(rows);
  free(expected);
  free(found);
}

static void every_type(wb_engine_t* engine, const char* landing) {
  const char* device = "soft:mem:4M";
  wb_volume_options options = {.size = sizeof(options)};
  options.landing = landing;
  wb_volume_t* volume = NULL;
  OK(wb_volume_open(engine, &device, 1, &options, &volume));
  round_trip(engine, volume, "u8", WB_U8, 64, 64);
  round_trip(engine, volume, "u16", WB_U16, 50, 100);
  round_trip(engine, volume, "u32", WB_U32, 128, 512);
  round_trip(engine, volume, "u64", WB_U64, 150, 1200);
  round_trip(engine, volume, "i8", WB_I8, 516, 516);
  round_trip(engine, volume, "i16", WB_I16, 256, 512);
  round_trip(engine, volume, "i32", WB_I32, 16, 64);
  round_trip(engine, volume, "i64", WB_I64, 64, 512);
  round_trip(engine, volume, "f32", WB_F32, 1024, 4096);
  round_trip(engine, volume, "f64", WB_F64, 130, 1040);
  wb_volume_release(volume);
}

static void stored(wb_engine_t* engine) {
  const char* device = path_of("tables.img", "soft:");
  wb_volume_t* volume = create(engine, device);
  char* json = NULL;
  OK(wb_table_list(volume, &json));
  CHECK(strcmp(json, "[]") == 0);
  wb_string_free(json);
  wb_table_t* table = NULL;
  FAILS(WB_ERR_NOT_FOUND, "no table is called `zeros`; none is stored there", wb_table_open(volume, "zeros", NULL, &table));
  wb_table_layout layout = layout_of(WB_F32, 32, 100);
  layout.row_bytes = 128;
  OK(wb_table_create(volume, "zeros", &layout, WB_STORE_ADD, NULL));
  OK(wb_table_create(volume, "zeros", &layout, WB_STORE_REPLACE, &table));
  const uint64_t last = 99;
  const wb_row_indices indices = list_of(&last, 1);
  float row[32], nothing[32] = {0};
  memset(row, 1, sizeof(row));
  const wb_row_memory memory = host_rows(row, sizeof(row));
  OK(wb_table_gather(table, &indices, &memory));
  CHECK(memcmp(row, nothing, sizeof(row)) == 0);
  OK(wb_table_info(table, &json));
  CHECK(strstr(json, "\"name\":\"zeros\"") && strstr(json, "\"row_shape\":[32]") && strstr(json, "\"element\":\"f32\""));
  CHECK(strstr(json, "tables.img"));
  has(json, "\"row_bytes\":128");
  wb_table_release(table);
  FAILS(WB_ERR_EXISTS, "a table is called `zeros` already", wb_table_create(volume, "zeros", &layout, WB_STORE_ADD, NULL));
  CHECK(wb_last_error_remedy(0) != NULL);
  table = store_words(volume, "words", 300, 25);
  OK(wb_table_list(volume, &json));
  CHECK(strstr(json, "\"name\":\"words\"") && strstr(json, "\"rows\":300") && strstr(json, "\"changed\":false"));
  has(json, "\"stored_bytes\":30128");
  wb_table_release(table);
  OK(wb_table_remove(volume, "zeros"));
  FAILS(WB_ERR_NOT_FOUND, "no table is called `zeros`; there is `words`", wb_table_remove(volume, "zeros"));
  // A description that contradicts the rows.
  OK(wb_volume_store(volume, "bad:table", WB_U8, row, sizeof(row), NULL));
  FAILS(WB_ERR_ARGUMENT, "holds u8, not record", wb_table_open(volume, "bad", NULL, &table));
  wb_store_options records = {.size = sizeof(records)};
  records.mode = WB_STORE_REPLACE;
  records.element_bytes = 128;
  OK(wb_volume_store(volume, "bad:table", WB_RECORD, row, 1, &records));
  FAILS(WB_ERR_DAMAGED, "table `bad` is damaged", wb_table_open(volume, "bad", NULL, &table));
  OK(wb_table_list(volume, &json));
  has(json, "table `bad` is damaged");
  // Damage behind the back of the library.
  OK(wb_volume_arrays(volume, &json));
  const char* entry = strstr(json, "\"name\":\"words:rows\"");
  CHECK(entry != NULL);
  const char* offset = strstr(entry, "\"offset\":");
  CHECK(offset != NULL);
  const long at = atol(offset + strlen("\"offset\":"));
  wb_string_free(json);
  wb_volume_release(volume);
  FILE* file = fopen(path_of("tables.img", ""), "r+b");
  CHECK(file != NULL && fseek(file, at + 1234, SEEK_SET) == 0 && fputc(0x55, file) == 0x55 && fclose(file) == 0);
  volume = open_volume(engine, device);
  OK(wb_table_open(volume, "words", NULL, &table));
  uint32_t compared = 9;
  FAILS(WB_ERR_DAMAGED, "words:rows", wb_table_verify(table, &compared));
  CHECK(compared == 9);
  wb_table_release(table);
  wb_volume_release(volume);
}

static void write_npy(const char* path, const char* shape, const uint32_t* words, size_t count) {
  char header[119];
  snprintf(header, sizeof(header), "{'descr': '<u4', 'fortran_order': False, 'shape': %s, }", shape);
  FILE* file = fopen(path, "wb");
  CHECK(file != NULL && fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file) == 10);
  CHECK(fprintf(file, "%-117s\n", header) == 118 && fwrite(words, 4, count, file) == count && fclose(file) == 0);
}

// Elements of 16 bits, which C has no type for: their bits are WB_U16.
static void narrow_floats(wb_volume_t* volume) {
  uint32_t words[2 * 32];
  for (uint32_t i = 0; i < 2 * 32; ++i) words[i] = 0x3f803f80u + i;
  FILE* file = fopen(path_of("raw.npy", ""), "wb");
  CHECK(file != NULL && fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file) == 10);
  CHECK(fprintf(file, "%-117s\n", "{'descr': '<V2', 'fortran_order': False, 'shape': (2, 64), }") == 118);
  CHECK(fwrite(words, sizeof(words), 1, file) == 1 && fclose(file) == 0);
  wb_table_t* table = NULL;
  FAILS(WB_ERR_INPUT, "name their type", wb_table_import(volume, "raw", path_of("raw.npy", ""), NULL, &table));
  wb_table_import_options options = {.size = sizeof(options)};
  options.dtype = WB_F64;
  FAILS(WB_ERR_INPUT, "not f64", wb_table_import(volume, "raw", path_of("raw.npy", ""), &options, &table));
  options.dtype = 99;
  FAILS(WB_ERR_ARGUMENT, "`dtype` is 99", wb_table_import(volume, "raw", path_of("raw.npy", ""), &options, &table));
  options.dtype = WB_BF16;
  OK(wb_table_import(volume, "raw", path_of("raw.npy", ""), &options, &table));
  wb_table_layout layout = {.size = sizeof(layout)};
  OK(wb_table_get_layout(table, &layout));
  CHECK(layout.dtype == WB_BF16 && layout.row_bytes == 128);
  const uint64_t last = 1;
  const wb_row_indices indices = list_of(&last, 1);
  uint32_t found[32];
  wb_row_memory memory = host_rows(found, sizeof(found));
  for (uint32_t dtype = WB_U16; dtype != 0; dtype = dtype == WB_U16 ? WB_BF16 : 0) {
    memory.dtype = dtype;
    OK(wb_table_gather(table, &indices, &memory));
    CHECK(memcmp(found, words + 32, sizeof(found)) == 0);
  }
  memory.dtype = WB_F16;
  FAILS(WB_ERR_ARGUMENT, "holds bf16, not f16", wb_table_gather(table, &indices, &memory));
  wb_table_release(table);
}

static void imported(wb_engine_t* engine) {
  uint32_t words[50 * 16];
  for (uint32_t i = 0; i < 50 * 16; ++i) words[i] = i;
  write_npy(path_of("matrix.npy", ""), "(50, 16)", words, 50 * 16);
  write_npy(path_of("flat.npy", ""), "(800,)", words, 50 * 16);
  write_npy(path_of("short.npy", ""), "(50, 16)", words, 7);
  write_npy(path_of("text.txt", ""), "(50, 16)", words, 50 * 16);
  wb_volume_t* volume = create(engine, "soft:mem");
  wb_table_t* table = NULL;
  OK(wb_table_import(volume, "matrix", path_of("matrix.npy", ""), NULL, &table));
  const uint64_t numbers[] = {49, 0};
  const wb_row_indices indices = list_of(numbers, 2);
  uint32_t found[32];
  const wb_row_memory memory = host_rows(found, sizeof(found));
  OK(wb_table_gather(table, &indices, &memory));
  CHECK(found[0] == 49 * 16 && found[31] == 15);
  wb_table_release(table);
  FAILS(WB_ERR_EXISTS, "`matrix`", wb_table_import(volume, "matrix", path_of("matrix.npy", ""), NULL, NULL));
  FAILS(WB_ERR_ARGUMENT, "one dimension of 800 elements", wb_table_import(volume, "flat", path_of("flat.npy", ""), NULL, NULL));
  wb_table_import_options options = {.size = sizeof(options)};
  options.row_elements = 33;
  FAILS(WB_ERR_ARGUMENT, "no whole rows of 33", wb_table_import(volume, "flat", path_of("flat.npy", ""), &options, NULL));
  options.row_elements = 80;
  options.mode = WB_STORE_REPLACE;
  OK(wb_table_import(volume, "matrix", path_of("flat.npy", ""), &options, &table));
  wb_table_layout layout = {.size = sizeof(layout)};
  OK(wb_table_get_layout(table, &layout));
  CHECK(layout.rows == 10 && layout.shape[0] == 80);
  wb_table_release(table);
  options.row_elements = 0;
  options.mode = WB_STORE_ALONE;
  FAILS(WB_ERR_ARGUMENT, "`mode` is 2", wb_table_import(volume, "x", path_of("matrix.npy", ""), &options, NULL));
  options.mode = WB_STORE_ADD;
  const char* columns[] = {"a", NULL};
  options.columns = columns;
  options.column_count = 1;
  FAILS(WB_ERR_ARGUMENT, "columns are chosen", wb_table_import(volume, "x", path_of("matrix.npy", ""), &options, NULL));
  options.column_count = 2;
  FAILS(WB_ERR_ARGUMENT, "`an entry of columns`", wb_table_import(volume, "x", path_of("matrix.npy", ""), &options, NULL));
  FAILS(WB_ERR_INPUT, "cut short", wb_table_import(volume, "x", path_of("short.npy", ""), NULL, NULL));
  FAILS(WB_ERR_ARGUMENT, "names no format", wb_table_import(volume, "x", path_of("text.txt", ""), NULL, NULL));
  FAILS(WB_ERR_NOT_FOUND, "none.npy", wb_table_import(volume, "x", path_of("none.npy", ""), NULL, NULL));
  FAILS(WB_ERR_ARGUMENT, "`path` is null", wb_table_import(volume, "x", NULL, NULL, NULL));
  narrow_floats(volume);
  wb_volume_release(volume);
}

// Rows that stay in memory: hot ones, and two caches.
static void tiers(wb_engine_t* engine) {
  wb_volume_t* volume = create(engine, "soft:mem");
  wb_table_release(store_words(volume, "words", 500, 16));
  wb_table_t* table = NULL;
  const uint64_t hot[] = {3, 4, 3};
  wb_table_options options = {.size = sizeof(options)};
  options.hot_rows = hot;
  options.hot_count = 3;
  options.cache_bytes = 500 * 64;
  options.host_cache_bytes = 500 * 64;
  options.in_flight = 16;
  OK(wb_table_open(volume, "words", &options, &table));
  uint64_t numbers[100];
  for (uint64_t i = 0; i < 100; ++i) numbers[i] = i / 2;
  const wb_row_indices indices = list_of(numbers, 100);
  static uint32_t found[100 * 16];
  const wb_row_memory memory = host_rows(found, sizeof(found));
  wb_table_stats stats;
  for (int round = 0; round < 4; ++round) {
    OK(wb_table_reset_stats(table));
    OK(wb_table_gather(table, &indices, &memory));
    are_rows(found, numbers, 100, 16);
    OK(wb_table_get_stats(table, &stats));
    CHECK(stats.rows == 100 && stats.hot_hits == 4 && stats.written == 0);
    CHECK(stats.hot_hits + stats.duplicates + stats.cache_hits + stats.host_hits + stats.device_reads == 100);
  }
  CHECK(stats.device_reads == 0 && stats.cache_hits == 96);
  OK(wb_table_drop_caches(table));
  OK(wb_table_reset_stats(table));
  OK(wb_table_gather(table, &indices, &memory));
  OK(wb_table_get_stats(table, &stats));
  CHECK(stats.device_reads == 48 && stats.duplicates + stats.cache_hits == 48 && stats.hot_hits == 4);
  wb_table_release(table);
  options.cache_bytes = 15 * 64;
  FAILS(WB_ERR_ARGUMENT, "words", wb_table_open(volume, "words", &options, &table));
  options.cache_bytes = 0;
  const uint64_t wrong[] = {3, 4, 500};
  options.hot_rows = wrong;
  FAILS(WB_ERR_ARGUMENT, "index 500 at position 2", wb_table_open(volume, "words", &options, &table));
  options.hot_rows = NULL;
  FAILS(WB_ERR_ARGUMENT, "`hot_rows` is null", wb_table_open(volume, "words", &options, &table));
  options.size = 3;
  FAILS(WB_ERR_ARGUMENT, "sizeof(wb_table_options)", wb_table_open(volume, "words", &options, &table));
  wb_volume_release(volume);
}

static void wrong_layouts(wb_engine_t* engine) {
  wb_volume_t* volume = create(engine, "soft:mem");
  const wb_table_layout good = layout_of(WB_U32, 32, 10);
  uint32_t words[320] = {0};
  wb_table_t* table = NULL;
  FAILS(WB_ERR_ARGUMENT, "`layout` is null", wb_table_create(volume, "x", NULL, WB_STORE_ADD, &table));
  FAILS(WB_ERR_ARGUMENT, "cannot be the name of a table", wb_table_create(volume, "a/b", &good, WB_STORE_ADD, &table));
  FAILS(WB_ERR_ARGUMENT, "`name` is null", wb_table_create(volume, NULL, &good, WB_STORE_ADD, &table));
  FAILS(WB_ERR_ARGUMENT, "`mode` is 7", wb_table_create(volume, "x", &good, 7, &table));
  FAILS(WB_ERR_ARGUMENT, "`data` is null", wb_table_store(volume, "x", &good, NULL, WB_STORE_ADD, &table));
  FAILS(WB_ERR_HANDLE, "the volume is of another type", wb_table_create((wb_volume_t*)engine, "x", &good, WB_STORE_ADD, &table));
  char* json = NULL;
  FAILS(WB_ERR_HANDLE, "the volume is null", wb_table_list(NULL, &json));
  FAILS(WB_ERR_ARGUMENT, "the result `json` is null", wb_table_list(volume, NULL));
  wb_table_layout layout = good;
  layout.dtype = 0;
  FAILS(WB_ERR_ARGUMENT, "`dtype` is 0", wb_table_store(volume, "x", &layout, words, WB_STORE_ADD, &table));
  layout.dtype = WB_RECORD;
  FAILS(WB_ERR_ARGUMENT, "rows of records", wb_table_store(volume, "x", &layout, words, WB_STORE_ADD, &table));
  layout = good;
  layout.dimensions = 0;
  FAILS(WB_ERR_ARGUMENT, "`dimensions` is 0", wb_table_store(volume, "x", &layout, words, WB_STORE_ADD, &table));
  layout.dimensions = 9;
  FAILS(WB_ERR_ARGUMENT, "`dimensions` is 9", wb_table_store(volume, "x", &layout, words, WB_STORE_ADD, &table));
  layout.dimensions = 1;
  layout.shape[2] = 5;
  FAILS(WB_ERR_ARGUMENT, "`shape[2]` is 5", wb_table_store(volume, "x", &layout, words, WB_STORE_ADD, &table));
  layout = good;
  layout.row_bytes = 64;
  FAILS(WB_ERR_ARGUMENT, "`row_bytes` is 64", wb_table_store(volume, "x", &layout, words, WB_STORE_ADD, &table));
  layout = good;
  layout.shape[0] = 15;
  FAILS(WB_ERR_ARGUMENT, "rows of 60 bytes", wb_table_store(volume, "x", &layout, words, WB_STORE_ADD, &table));
  layout = good;
  layout.rows = (uint64_t)1 << 40;
  FAILS(WB_ERR_ARGUMENT, "fewer than 2^40", wb_table_create(volume, "x", &layout, WB_STORE_ADD, &table));
  layout.rows = 1 << 20;
  FAILS(WB_ERR_SPACE, "", wb_table_create(volume, "x", &layout, WB_STORE_ADD, &table));
  layout.rows = (uint64_t)1 << 39;
  FAILS(WB_ERR_SPACE, "", wb_table_create(volume, "x", &layout, WB_STORE_ADD, &table));
  layout = good;
  layout.size = 0;
  FAILS(WB_ERR_ARGUMENT, "sizeof(wb_table_layout)", wb_table_create(volume, "x", &layout, WB_STORE_ADD, &table));
  CHECK(table == NULL);
  // A table without rows is one.
  layout = good;
  layout.rows = 0;
  OK(wb_table_create(volume, "none", &layout, WB_STORE_ADD, &table));
  const uint64_t first = 0;
  const wb_row_indices indices = list_of(&first, 1);
  const wb_row_memory memory = host_rows(words, sizeof(words));
  FAILS(WB_ERR_ARGUMENT, "the table has no rows", wb_table_gather(table, &indices, &memory));
  wb_table_release(table);
  wb_volume_release(volume);
}

static void wrong_arguments(wb_engine_t* engine) {
  wb_volume_t* volume = create(engine, "soft:mem");
  wb_table_t* table = store_words(volume, "words", 100, 32);
  const uint64_t numbers[] = {5, 6, 100};
  wb_row_indices indices = list_of(numbers, 2);
  uint32_t found[3 * 32];
  wb_row_memory memory = host_rows(found, sizeof(found));
  FAILS(WB_ERR_HANDLE, "the table is null", wb_table_gather(NULL, &indices, &memory));
  FAILS(WB_ERR_HANDLE, "the table is of another type", wb_table_gather((wb_table_t*)volume, &indices, &memory));
  FAILS(WB_ERR_ARGUMENT, "`indices` is null", wb_table_gather(table, NULL, &memory));
  FAILS(WB_ERR_ARGUMENT, "`rows` is null", wb_table_gather(table, &indices, NULL));
  OK(wb_table_gather(table, &indices, &memory));
  are_rows(found, numbers, 2, 32);
  // Positions of wrong indices.
  indices.count = 3;
  FAILS(WB_ERR_ARGUMENT, "index 100 at position 2 of the batch is no row; rows are numbered 0 to 99",
        wb_table_gather(table, &indices, &memory));
  indices.count = 2;
  memory.bytes = 255;
  FAILS(WB_ERR_ARGUMENT, "2 indices need 256 bytes of rows, and 255 were given", wb_table_gather(table, &indices, &memory));
  memory.bytes = 256;
  OK(wb_table_gather(table, &indices, &memory));
  indices.width = 2;
  FAILS(WB_ERR_ARGUMENT, "`indices.width` is 2", wb_table_gather(table, &indices, &memory));
  indices.width = 8;
  indices.list = (const char*)numbers + 4;
  FAILS(WB_ERR_ARGUMENT, "`indices.list` is not aligned", wb_table_gather(table, &indices, &memory));
  indices.list = NULL;
  FAILS(WB_ERR_ARGUMENT, "`indices.list` is null", wb_table_gather(table, &indices, &memory));
  indices.count = 0;
  OK(wb_table_gather(table, &indices, &memory));
  indices.count = UINT64_MAX;
  indices.list = numbers;
  FAILS(WB_ERR_ARGUMENT, "which no memory holds", wb_table_gather(table, &indices, &memory));
  // Both kinds of memory, none, and memory of others.
  wb_engine_t* other = cpu_engine(1);
  wb_region_t *own = NULL, *foreign = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, 4096, &own));
  OK(wb_region_allocate(other, WB_PLACE_DEVICE, 4096, &foreign));
  indices = list_of(numbers, 2);
  indices.region = own;
  FAILS(WB_ERR_ARGUMENT, "`indices` names 2 kinds of memory; set one of `list`", wb_table_gather(table, &indices, &memory));
  indices.list = NULL;
  indices.region = foreign;
  FAILS(WB_ERR_ARGUMENT, "the indices are memory of another engine", wb_table_gather(table, &indices, &memory));
  indices.region = (wb_region_t*)table;
  FAILS(WB_ERR_HANDLE, "indices: the handle of the region is of another type", wb_table_gather(table, &indices, &memory));
  indices.region = own;
  indices.count = 513;
  memory.bytes = SIZE_MAX / 4;
  FAILS(WB_ERR_ARGUMENT, "", wb_table_gather(table, &indices, &memory));
  memory = region_rows(own);
  FAILS(WB_ERR_ARGUMENT, "513 indices have 4104 bytes and their memory has 4096", wb_table_gather(table, &indices, &memory));
  indices = list_of(numbers, 2);
  memory.bytes = 256;
  FAILS(WB_ERR_ARGUMENT, "`rows.bytes` is 256, and `rows.data` is null", wb_table_gather(table, &indices, &memory));
  memory.data = found;
  FAILS(WB_ERR_ARGUMENT, "`rows` names 2 kinds of memory; set one of `data`", wb_table_gather(table, &indices, &memory));
  memory = region_rows(foreign);
  FAILS(WB_ERR_ARGUMENT, "the rows are memory of another engine", wb_table_gather(table, &indices, &memory));
  memory = host_rows(NULL, 256);
  FAILS(WB_ERR_ARGUMENT, "`rows.data` is null", wb_table_gather(table, &indices, &memory));
  memory = host_rows(NULL, 0);
  FAILS(WB_ERR_ARGUMENT, "2 indices need 256 bytes of rows, and 0 were given", wb_table_gather(table, &indices, &memory));
  memory.size = 4;
  FAILS(WB_ERR_ARGUMENT, "sizeof(wb_row_memory)", wb_table_gather(table, &indices, &memory));
  wb_table_view view;
  FAILS(WB_ERR_HANDLE, "the table is null", wb_table_get_view(NULL, &view));
  FAILS(WB_ERR_ARGUMENT, "`view` is null", wb_table_get_view(table, NULL));
  FAILS(WB_ERR_ARGUMENT, "`stats` is null", wb_table_get_stats(table, NULL));
  FAILS(WB_ERR_ARGUMENT, "`compared` is null", wb_table_verify(table, NULL));
  FAILS(WB_ERR_ARGUMENT, "`layout` is null", wb_table_get_layout(table, NULL));
  FAILS(WB_ERR_HANDLE, "of another type", wb_table_flush((wb_table_t*)engine));
  CHECK(wb_table_retain((wb_table_t*)engine) == NULL && wb_table_retain(table) == table);
  wb_table_release(table);
  wb_table_release(NULL);
  wb_region_release(own);
  wb_region_release(foreign);
  wb_engine_release(other);
  wb_table_release(table);
  wb_volume_release(volume);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  folder = argv[1];
  wb_engine_t* engine = cpu_engine(2);
  every_type(engine, "direct");
  every_type(engine, "bounce");
  stored(engine);
  imported(engine);
  tiers(engine);
  wrong_layouts(engine);
  wrong_arguments(engine);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
