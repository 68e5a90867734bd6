// Caches, and arrays of every type of elements.
#include "storage.h"

enum { COUNT = 5000 };

// Stores elements of a type, and reads and writes them through a small cache.
static void round_trip(wb_volume_t* volume, const char* name, uint32_t dtype, uint32_t bytes) {
  unsigned char *values = malloc((size_t)COUNT * bytes), *back = malloc((size_t)COUNT * bytes);
  for (size_t i = 0; i < (size_t)COUNT * bytes; ++i) values[i] = (unsigned char)(i * 31 >> 2);
  wb_store_options options = {.size = sizeof(options)};
  options.element_bytes = dtype == WB_RECORD ? bytes : 0;
  OK(wb_volume_store(volume, name, dtype, values, COUNT, &options));
  wb_cache_t* cache = open_cache(volume, 32 << 10);
  wb_array_t* array = NULL;
  OK(wb_array_open(cache, name, dtype, &array));
  uint64_t length = 0;
  uint32_t type = 0, size = 0;
  OK(wb_array_length(array, &length));
  OK(wb_array_dtype(array, &type, &size));
  CHECK(length == COUNT && type == dtype && size == bytes);
  OK(wb_array_read(array, 0, COUNT, back));
  CHECK(memcmp(values, back, (size_t)COUNT * bytes) == 0);
  memset(values + (size_t)7 * bytes, 0xee, bytes);
  OK(wb_array_write(array, 7, 1, values + (size_t)7 * bytes));
  OK(wb_array_read(array, 6, 3, back));
  CHECK(memcmp(values + (size_t)6 * bytes, back, (size_t)3 * bytes) == 0);
  OK(wb_array_read(array, COUNT, 0, back));
  FAILS(WB_ERR_ARGUMENT, "do not lie within array", wb_array_read(array, COUNT - 1, 2, back));
  FAILS(WB_ERR_ARGUMENT, "`data` is null", wb_array_write(array, 0, 1, NULL));
  wb_array_view view;
  OK(wb_array_get_view(array, &view));
  CHECK(view.array.count == COUNT && view.array.element_bytes == bytes);
  // The changed element is on the device after the flush, where another cache finds it.
  OK(wb_cache_flush(cache));
  wb_array_release(array);
  wb_cache_release(cache);
  cache = open_cache(volume, 1 << 20);
  OK(wb_array_open(cache, name, 0, &array));
  wb_cache_release(cache);
  OK(wb_array_read(array, 7, 1, back));
  CHECK(memcmp(values + (size_t)7 * bytes, back, bytes) == 0);
  wb_array_release(array);
  free(values);
  free(back);
}

static void every_type(wb_volume_t* volume) {
  round_trip(volume, "u8", WB_U8, 1);
  round_trip(volume, "u16", WB_U16, 2);
  round_trip(volume, "u32", WB_U32, 4);
  round_trip(volume, "u64", WB_U64, 8);
  round_trip(volume, "i8", WB_I8, 1);
  round_trip(volume, "i16", WB_I16, 2);
  round_trip(volume, "i32", WB_I32, 4);
  round_trip(volume, "i64", WB_I64, 8);
  round_trip(volume, "f32", WB_F32, 4);
  round_trip(volume, "f64", WB_F64, 8);
  round_trip(volume, "record16", WB_RECORD, 16);
  round_trip(volume, "record2", WB_RECORD, 2);
}

static void wrong_arrays(wb_volume_t* volume) {
  wb_cache_t* cache = open_cache(volume, 64 << 10);
  wb_array_t* array = NULL;
  FAILS(WB_ERR_ARGUMENT, "array `u32` holds u32, not f32", wb_array_open(cache, "u32", WB_F32, &array));
  FAILS(WB_ERR_NOT_FOUND, "no array `u23`; there are `u8`, `u16`", wb_array_open(cache, "u23", WB_U32, &array));
  FAILS(WB_ERR_ARGUMENT, "`dtype` is 77", wb_array_open(cache, "u32", 77, &array));
  FAILS(WB_ERR_ARGUMENT, "`name` is null", wb_array_open(cache, NULL, WB_U32, &array));
  FAILS(WB_ERR_ARGUMENT, "`array` is null", wb_array_open(cache, "u32", WB_U32, NULL));
  FAILS(WB_ERR_SPACE, "an array needs", wb_array_at(cache, 0, 1 << 30, WB_U64, 0, &array));
  FAILS(WB_ERR_ARGUMENT, "1, 2, 4, 8 or 16 bytes", wb_array_at(cache, 0, 10, WB_RECORD, 12, &array));
  uint32_t odd[3] = {1, 2, 3};
  wb_store_options options = {.size = sizeof(options)};
  options.element_bytes = 12;
  OK(wb_volume_store(volume, "odd", WB_RECORD, odd, 1, &options));
  FAILS(WB_ERR_ARGUMENT, "array `odd` of elements of 12 bytes", wb_array_open(cache, "odd", WB_RECORD, &array));
  CHECK(array == NULL);
  wb_cache_t* wrong = NULL;
  wb_cache_options page = {.size = sizeof(page)};
  page.page_bytes = 5000;
  FAILS(WB_ERR_ARGUMENT, "power of two", wb_cache_open(volume, &page, &wrong));
  wb_cache_release(cache);
}

// A kernel of the shipped image reads pages through the cache. Its run keeps the objects that the program has released.
static void kernel(wb_engine_t* engine, wb_volume_t* volume) {
  wb_cache_t* cache = open_cache(volume, 64 << 10);
  wb_array_t* array = NULL;
  OK(wb_array_at(cache, 16, 4096, WB_U32, 0, &array));
  wb_array_view view;
  OK(wb_array_get_view(array, &view));
  void* address = NULL;
  OK(wb_cache_address(cache, &address));
  CHECK(address == (const void*)view.array.cache && view.array.first_page == 16);
  wb_grid grid;
  OK(wb_engine_grid(engine, 64, 1, &grid));
  const uint64_t first = 16, last = 20;
  const wb_argument arguments[] = {{&address, 8, cache}, {&first, 8, array}, {&last, 8, NULL}};
  wb_stats before, after;
  OK(wb_volume_stats(volume, &before));
  wb_run_t* run = NULL;
  OK(wb_launch(engine, "wb_cache_touch", grid, arguments, 3, &run));
  OK(wb_run_keep(run, volume));
  wb_cache_release(cache);
  OK(wb_run_finish(run, 60, NULL));
  wb_run_release(run);
  OK(wb_volume_stats(volume, &after));
  CHECK(after.fills - before.fills == 4);
  uint32_t values[4096];
  OK(wb_array_read(array, 0, 4096, values));
  before = after;
  OK(wb_volume_stats(volume, &after));
  CHECK(after.fills == before.fills && after.hits > before.hits);
  wb_array_release(array);
}

static void states_of_pages(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M,media-error=331-331");
  wb_cache_t* cache = open_cache(volume, 64 << 10);
  wb_array_t* array = NULL;
  OK(wb_array_at(cache, 0, 1 << 17, WB_U64, 0, &array));
  uint64_t* values = calloc(1 << 17, 8);
  OK(wb_array_read(array, 0, 1000, values));
  FAILS(WB_ERR_OPERATION, "LBA 328 on device 0", wb_array_read(array, 0, 1 << 17, values));
  wb_error failed;
  CHECK(wb_last_error_operations(&failed, 1) >= 1 && failed.lba <= 331 && failed.lba + failed.blocks > 331);
  CHECK((failed.status & 0x7ff) == 0x281);
  FAILS(WB_ERR_OPERATION, "", wb_array_warm(array));
  OK(wb_cache_reset(cache));
  values[0] = 9;
  OK(wb_array_write(array, 100000, 1, values));
  wb_occupancy occupancy;
  OK(wb_cache_occupancy(cache, &occupancy));
  CHECK(occupancy.frames == 16 && occupancy.valid == 1 && occupancy.dirty == 1 && occupancy.pinned == 0);
  OK(wb_cache_discard(cache));
  OK(wb_array_read(array, 100000, 1, values));
  CHECK(values[0] == 0);
  char* json = NULL;
  OK(wb_cache_info(cache, &json));
  has(json, "\"page_bytes\":4096");
  void* address = NULL;
  OK(wb_cache_address(cache, &address));
  wb_array_view view;
  OK(wb_array_get_view(array, &view));
  CHECK(address != NULL && address == (void*)view.array.cache);
  wb_stats stats;
  OK(wb_volume_stats(volume, &stats));
  CHECK(stats.misses > 0 && stats.reads > 0);
  free(values);
  wb_array_release(array);
  wb_cache_release(cache);
  wb_volume_release(volume);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  wb_engine_t* engine = cpu_engine(2);
  char file[4096];
  snprintf(file, sizeof(file), "soft:%s/types.img", argv[1]);
  const char* devices[] = {"soft:mem", file};
  for (int i = 0; i < 2; ++i) {
    wb_volume_t* volume = NULL;
    OK(wb_volume_create(engine, &devices[i], 1, 4 << 20, NULL, &volume));
    every_type(volume);
    wrong_arrays(volume);
    kernel(engine, volume);
    wb_volume_release(volume);
  }
  states_of_pages(engine);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
