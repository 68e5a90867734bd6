// Batches of rows in flight, writes, failures of devices, scratches, and two threads with one table.
#include <pthread.h>

#include "rows.h"

enum { ROWS = 1000, EACH = 64, ROW = EACH * 4, BATCH = 50 };

static const char* folder;

static wb_volume_t* memory_volume(wb_engine_t* engine, const char* device, const char* landing) {
  wb_volume_options options = {.size = sizeof(options)};
  options.landing = landing;
  wb_volume_t* volume = NULL;
  OK(wb_volume_open(engine, &device, 1, &options, &volume));
  return volume;
}

static void numbers_of(uint64_t batch, uint64_t* numbers) {
  for (uint64_t i = 0; i < BATCH; ++i) numbers[i] = (batch * 37 + i * 7) % ROWS;
}

static void prefetched(wb_engine_t* engine, const char* landing) {
  enum { FLYING = 20 };
  wb_volume_t* volume = memory_volume(engine, "soft:mem:1M", landing);
  wb_table_t* table = store_words(volume, "words", ROWS, EACH);
  // More batches than the volume can register memory for.
  wb_batch_t* flying[FLYING];
  uint64_t numbers[BATCH];
  for (uint64_t b = 0; b < FLYING; ++b) {
    numbers_of(b, numbers);
    const wb_row_indices indices = list_of(numbers, BATCH);
    OK(wb_table_prefetch(table, &indices, &flying[b]));
    // The call has copied the list.
    memset(numbers, 0xff, sizeof(numbers));
  }
  // Batches keep the table, which keeps the volume.
  wb_table_release(table);
  static uint32_t found[BATCH * EACH];
  for (uint64_t b = 0; b < FLYING; ++b) {
    uint64_t rows = 0;
    OK(wb_batch_rows(flying[b], &rows));
    CHECK(rows == BATCH);
    if (b % 5 != 4) {
      void* address = NULL;
      FAILS(WB_ERR_STATE, "the batch is in flight", wb_batch_address(flying[b], &address));
      FAILS(WB_ERR_STATE, "the batch is in flight", wb_batch_read(flying[b], 0, found, 4));
      OK(wb_batch_finish(flying[b], 60));
      uint32_t ended = 0;
      OK(wb_batch_has_ended(flying[b], &ended));
      CHECK(ended == 1);
      FAILS(WB_ERR_STATE, "finished already", wb_batch_finish(flying[b], 60));
      OK(wb_batch_address(flying[b], &address));
      CHECK(address != NULL);
      OK(wb_batch_read(flying[b], 0, found, sizeof(found)));
      numbers_of(b, numbers);
      are_rows(found, numbers, BATCH, EACH);
      OK(wb_batch_read(flying[b], (BATCH - 1) * ROW, found, ROW));
      are_rows(found, numbers + BATCH - 1, 1, EACH);
      FAILS(WB_ERR_ARGUMENT, "do not lie within", wb_batch_read(flying[b], BATCH * ROW - 3, found, 4));
      FAILS(WB_ERR_ARGUMENT, "do not lie within", wb_batch_read(flying[b], SIZE_MAX, found, 4));
      FAILS(WB_ERR_ARGUMENT, "`data` is null", wb_batch_read(flying[b], 0, NULL, 4));
      FAILS(WB_ERR_ARGUMENT, "`seconds` is -1", wb_batch_finish(flying[b], -1));
    }
    wb_batch_release(flying[b]);
  }
  OK(wb_table_open(volume, "words", NULL, &table));
  const wb_row_indices none = list_of(NULL, 0);
  wb_batch_t* batch = NULL;
  OK(wb_table_prefetch(table, &none, &batch));
  OK(wb_batch_finish(batch, 0));
  void* address = numbers;
  OK(wb_batch_address(batch, &address));
  CHECK(address == NULL);
  OK(wb_batch_read(batch, 0, found, 0));
  wb_batch_release(batch);
  // An index that is no row is an error of the end.
  const uint64_t wrong[] = {1, 2, ROWS};
  wb_row_indices indices = list_of(wrong, 3);
  OK(wb_table_prefetch(table, &indices, &batch));
  FAILS(WB_ERR_ARGUMENT, "index 1000 at position 2", wb_batch_finish(batch, 60));
  FAILS(WB_ERR_STATE, "the batch has failed", wb_batch_address(batch, &address));
  uint32_t ended = 0;
  OK(wb_batch_has_ended(batch, &ended));
  CHECK(ended == 1);
  CHECK(wb_batch_retain((wb_batch_t*)table) == NULL && wb_batch_retain(batch) == batch);
  wb_batch_release(batch);
  wb_batch_release(batch);
  wb_batch_release(NULL);
  batch = NULL;
  FAILS(WB_ERR_ARGUMENT, "the result `batch` is null", wb_table_prefetch(table, &indices, NULL));
  FAILS(WB_ERR_HANDLE, "the batch is null", wb_batch_finish(NULL, 0));
  FAILS(WB_ERR_HANDLE, "of another type", wb_batch_finish((wb_batch_t*)table, 0));
  FAILS(WB_ERR_HANDLE, "of another type", wb_table_prefetch((wb_table_t*)volume, &indices, &batch));
  CHECK(batch == NULL);
  wb_table_release(table);
  wb_volume_release(volume);
}

// Rows come to memory of the program, behind a kernel that makes their numbers, and a kernel reads a batch.
static void on_streams(wb_engine_t* engine, const char* landing) {
  wb_volume_t* volume = memory_volume(engine, "soft:mem:1M", landing);
  wb_table_t* table = store_words(volume, "words", ROWS, EACH);
  wb_stream_t* stream = NULL;
  OK(wb_stream_create(engine, &stream));
  wb_region_t* numbers = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, BATCH * 8, &numbers));
  void* address = NULL;
  OK(wb_region_address(numbers, &address));
  const uint64_t count = BATCH, first = 100, step = 3;
  const wb_argument arguments[] = {{&address, 8, numbers}, {&count, 8, NULL}, {&first, 8, NULL}, {&step, 8, NULL}};
  wb_grid grid;
  OK(wb_engine_grid(engine, 64, 1, &grid));
  OK(wb_stream_launch(stream, "wb_iota", grid, arguments, 4));
  wb_row_indices indices = list_of(NULL, BATCH);
  indices.region = numbers;
  wb_buffer_t* buffer = NULL;
  OK(wb_volume_allocate(volume, BATCH * ROW, &buffer));
  wb_row_memory memory = buffer_rows(buffer);
  wb_batch_t* batch = NULL;
  OK(wb_table_start(table, &indices, &memory, stream, &batch));
  OK(wb_batch_finish(batch, 60));
  FAILS(WB_ERR_STATE, "in memory of the program", wb_batch_address(batch, &address));
  wb_batch_release(batch);
  uint64_t expected[BATCH];
  for (uint64_t i = 0; i < BATCH; ++i) expected[i] = first + step * i;
  static uint32_t found[BATCH * EACH];
  OK(wb_buffer_read(buffer, 0, found, sizeof(found)));
  are_rows(found, expected, BATCH, EACH);

  // On a stream of the table, to a region whose handle the program gives up.
  wb_region_t* region = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, BATCH * ROW, &region));
  memory = region_rows(region);
  numbers_of(3, expected);
  indices = list_of(expected, BATCH);
  OK(wb_table_start(table, &indices, &memory, NULL, &batch));
  OK(wb_batch_finish(batch, 0));
  OK(wb_region_read(region, 0, found, sizeof(found)));
  are_rows(found, expected, BATCH, EACH);
  wb_batch_release(batch);
  OK(wb_table_start(table, &indices, &memory, NULL, &batch));
  wb_region_release(region);
  wb_batch_release(batch);

  // A kernel writes numbers to the memory of a batch, and another one gathers the rows of these numbers. The run keeps all objects.
  OK(wb_table_prefetch(table, &indices, &batch));
  OK(wb_batch_finish(batch, 60));
  wb_table_view view;
  OK(wb_table_get_view(table, &view));
  wb_table_scratch_t* scratch = NULL;
  OK(wb_table_scratch_create(table, 8, 4, &scratch));
  wb_table_scratch memory_of_kernel;
  OK(wb_table_scratch_get_view(scratch, &memory_of_kernel));
  OK(wb_table_scratch_begin(scratch));
  wb_table_scratch next;
  OK(wb_table_scratch_get_view(scratch, &next));
  CHECK(next.epoch != memory_of_kernel.epoch && next.staging == memory_of_kernel.staging && next.in_flight == 4);
  void *batch_at = NULL, *out = NULL;
  OK(wb_batch_address(batch, &batch_at));
  OK(wb_buffer_address(buffer, &out));
  const uint64_t rows = 8;
  const wb_argument iota[] = {{&batch_at, 8, batch}, {&rows, 8, NULL}, {&first, 8, NULL}, {&step, 8, NULL}};
  wb_run_t* run = NULL;
  OK(wb_launch(engine, "wb_iota", grid, iota, 4, &run));
  OK(wb_run_finish(run, 60, NULL));
  wb_run_release(run);
  const wb_argument gather[] = {{&view, sizeof(view), table}, {&batch_at, 8, batch},         {&rows, 8, NULL},
                                {&out, 8, buffer},            {&next, sizeof(next), scratch}};
  OK(wb_launch(engine, "wb_table_gather_u64", grid, gather, 5, &run));
  wb_batch_release(batch);
  wb_table_scratch_release(scratch);
  wb_table_release(table);
  OK(wb_run_finish(run, 60, NULL));
  wb_run_release(run);
  for (uint64_t i = 0; i < rows; ++i) expected[i] = first + step * i;
  OK(wb_buffer_read(buffer, 0, found, rows * ROW));
  are_rows(found, expected, rows, EACH);

  // Arguments that cannot be.
  OK(wb_table_open(volume, "words", NULL, &table));
  wb_engine_t* other = cpu_engine(1);
  wb_stream_t* foreign = NULL;
  OK(wb_stream_create(other, &foreign));
  memory = buffer_rows(buffer);
  batch = NULL;
  FAILS(WB_ERR_ARGUMENT, "another engine", wb_table_start(table, &indices, &memory, foreign, &batch));
  FAILS(WB_ERR_HANDLE, "the stream is of another type", wb_table_start(table, &indices, &memory, (wb_stream_t*)table, &batch));
  memory = host_rows(found, sizeof(found));
  FAILS(WB_ERR_ARGUMENT, "use wb_table_prefetch", wb_table_start(table, &indices, &memory, stream, &batch));
  wb_buffer_release(buffer);
  OK(wb_volume_allocate(volume, BATCH * ROW - 1, &buffer));
  memory = buffer_rows(buffer);
  FAILS(WB_ERR_ARGUMENT, "50 indices need 12800 bytes of rows, and 12799 were given",
        wb_table_start(table, &indices, &memory, stream, &batch));
  FAILS(WB_ERR_ARGUMENT, "`rows` is 0", wb_table_scratch_create(table, 0, 4, &scratch));
  FAILS(WB_ERR_ARGUMENT, "`in_flight` is 0", wb_table_scratch_create(table, 4, 0, &scratch));
  FAILS(WB_ERR_HANDLE, "the table is null", wb_table_scratch_create(NULL, 4, 4, &scratch));
  FAILS(WB_ERR_HANDLE, "the scratch is of another type", wb_table_scratch_begin((wb_table_scratch_t*)table));
  CHECK(batch == NULL && wb_table_scratch_retain(NULL) == NULL);
  wb_stream_release(foreign);
  wb_engine_release(other);
  wb_buffer_release(buffer);
  wb_region_release(numbers);
  wb_stream_release(stream);
  wb_table_release(table);
  wb_volume_release(volume);
}

// The rows of a table after writes: `model[row]` words, all of a row equal.
static void are_values(wb_table_t* table, const float* model, uint64_t rows) {
  uint64_t* numbers = malloc(rows * sizeof(uint64_t));
  float* found = malloc(rows * ROW);
  for (uint64_t i = 0; i < rows; ++i) numbers[i] = i;
  const wb_row_indices indices = list_of(numbers, rows);
  const wb_row_memory memory = host_rows(found, rows * ROW);
  OK(wb_table_gather(table, &indices, &memory));
  for (uint64_t i = 0; i < rows * EACH; ++i) CHECK(found[i] == model[i / EACH]);
  free(numbers);
  free(found);
}

static void written(wb_engine_t* engine) {
  char device[4096];
  snprintf(device, sizeof(device), "soft:%s/written.img", folder);
  const char* devices[] = {device};
  wb_volume_t* volume = NULL;
  OK(wb_volume_create(engine, devices, 1, 1 << 20, NULL, &volume));
  const wb_table_layout layout = layout_of(WB_F32, EACH, 100);
  OK(wb_table_create(volume, "sums", &layout, WB_STORE_ADD, NULL));
  wb_table_t* table = NULL;
  wb_table_options options = {.size = sizeof(options)};
  options.cache_bytes = 32 * ROW;
  OK(wb_table_open(volume, "sums", &options, &table));
  float model[100] = {0};
  are_values(table, model, 100);
  const uint64_t numbers[] = {7, 99, 7};
  float rows[3 * EACH];
  for (int i = 0; i < 3 * EACH; ++i) rows[i] = (float)(1 << i / EACH);
  wb_row_indices indices = list_of(numbers, 3);
  wb_row_memory memory = host_rows(rows, sizeof(rows));
  OK(wb_table_scatter(table, &indices, &memory, WB_SCATTER_LAST));
  model[7] = 4;
  model[99] = 2;
  are_values(table, model, 100);
  OK(wb_table_scatter(table, &indices, &memory, WB_SCATTER_SUM));
  model[7] = 5;
  are_values(table, model, 100);
  OK(wb_table_scatter(table, &indices, &memory, WB_SCATTER_ADD));
  model[7] = 10;
  model[99] = 4;
  are_values(table, model, 100);
  // From a region and from a buffer, which may be longer than the rows.
  wb_region_t* region = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, 4096, &region));
  OK(wb_region_write(region, 0, rows, sizeof(rows)));
  wb_row_memory of_region = region_rows(region);
  OK(wb_table_scatter(table, &indices, &of_region, WB_SCATTER_ADD));
  wb_buffer_t* buffer = NULL;
  OK(wb_volume_allocate(volume, 4096, &buffer));
  OK(wb_buffer_write(buffer, 0, rows, sizeof(rows)));
  wb_row_memory of_buffer = buffer_rows(buffer);
  OK(wb_table_scatter(table, &indices, &of_buffer, WB_SCATTER_ADD));
  model[7] = 20;
  model[99] = 8;
  are_values(table, model, 100);
  wb_table_stats stats;
  OK(wb_table_get_stats(table, &stats));
  CHECK(stats.written == 10);

  // Nothing is written by calls that fail.
  FAILS(WB_ERR_ARGUMENT, "`combine` is 3", wb_table_scatter(table, &indices, &memory, 3));
  memory.bytes -= 4;
  FAILS(WB_ERR_ARGUMENT, "3 indices need 768 bytes of rows, and 764", wb_table_scatter(table, &indices, &memory, WB_SCATTER_LAST));
  memory.bytes += ROW + 4;
  FAILS(WB_ERR_ARGUMENT, "3 indices need 768 bytes of rows, and 1024", wb_table_scatter(table, &indices, &memory, WB_SCATTER_LAST));
  memory.bytes = sizeof(rows);
  memory.dtype = WB_U32;
  FAILS(WB_ERR_ARGUMENT, "holds f32, not u32", wb_table_scatter(table, &indices, &memory, WB_SCATTER_LAST));
  memory.dtype = WB_F32;
  const uint64_t wrong[] = {7, 8, 100};
  indices = list_of(wrong, 3);
  FAILS(WB_ERR_ARGUMENT, "index 100 at position 2", wb_table_scatter(table, &indices, &memory, WB_SCATTER_LAST));
  indices.count = 17;
  of_region.dtype = WB_F32;
  indices.list = NULL;
  indices.region = region;
  FAILS(WB_ERR_ARGUMENT, "17 indices need 4352 bytes of rows, and 4096", wb_table_scatter(table, &indices, &of_region, WB_SCATTER_LAST));
  FAILS(WB_ERR_ARGUMENT, "`rows` is null", wb_table_scatter(table, &indices, NULL, WB_SCATTER_LAST));
  const wb_table_layout bytes = layout_of(WB_U8, 64, 4);
  wb_table_t* of_bytes = NULL;
  OK(wb_table_create(volume, "bytes", &bytes, WB_STORE_ADD, &of_bytes));
  const uint64_t one = 1;
  indices = list_of(&one, 1);
  wb_row_memory few = host_rows(rows, 64);
  FAILS(WB_ERR_ARGUMENT, "have no sum", wb_table_scatter(of_bytes, &indices, &few, WB_SCATTER_SUM));
  OK(wb_table_scatter(of_bytes, &indices, &few, WB_SCATTER_LAST));
  wb_table_release(of_bytes);
  are_values(table, model, 100);

  // Another table of the name has cached the old rows, until they are dropped.
  wb_table_t* other = NULL;
  options.cache_bytes = 0;
  options.hot_rows = &numbers[1];
  options.hot_count = 1;
  OK(wb_table_open(volume, "sums", &options, &other));
  memory = host_rows(rows, ROW);
  indices = list_of(numbers + 1, 1);
  OK(wb_table_scatter(table, &indices, &memory, WB_SCATTER_LAST));
  are_values(other, model, 100);
  model[99] = 1;
  OK(wb_table_drop_caches(other));
  are_values(other, model, 100);
  wb_table_release(other);

  // The rows are there for the next program, and its verification knows that they were written.
  OK(wb_table_flush(table));
  wb_table_release(table);
  wb_region_release(region);
  wb_buffer_release(buffer);
  wb_volume_release(volume);
  volume = open_volume(engine, device);
  char* json = NULL;
  OK(wb_table_list(volume, &json));
  has(json, "\"changed\":true");
  OK(wb_table_open(volume, "sums", NULL, &table));
  are_values(table, model, 100);
  uint32_t compared = 1;
  OK(wb_table_verify(table, &compared));
  CHECK(compared == 0);
  wb_table_release(table);
  wb_volume_release(volume);
}

// A block that a device cannot read in the middle of a gather, or cannot write.
static void faults(wb_engine_t* engine, const char* landing) {
  enum { WHOLE = 512 / 4, COUNT = 3000, BAD = 700 };
  const char* devices[] = {"soft:mem:1M", "soft:mem:1M,media-error=read:700"};
  wb_volume_options options = {.size = sizeof(options)};
  options.landing = landing;
  wb_volume_t* volume = NULL;
  OK(wb_volume_open(engine, devices, 2, &options, &volume));
  wb_table_t* table = store_words(volume, "words", COUNT, WHOLE);
  wb_table_view view;
  OK(wb_table_get_view(table, &view));
  // Stripes of 128 KiB, every other one on the second device.
  const uint64_t stripe = (128 << 10) / 512, at = (BAD / stripe * 2 + 1) * stripe + BAD % stripe, bad = at - view.first / 512;
  CHECK(view.first % 512 == 0 && bad > 100 && bad < COUNT - 100);
  uint64_t numbers[200];
  for (uint64_t i = 0; i < 200; ++i) numbers[i] = bad - 100 + i;
  static uint32_t found[200 * WHOLE];
  const wb_row_indices indices = list_of(numbers, 200), before = list_of(numbers, 100);
  const wb_row_memory memory = host_rows(found, sizeof(found));
  for (int round = 0; round < 2; ++round) {
    FAILS(WB_ERR_OPERATION, "LBA 700 on device 1", wb_table_gather(table, &indices, &memory));
    wb_error failed[4];
    CHECK(wb_last_error_operations(failed, 4) >= 1);
    CHECK(failed[0].device == 1 && failed[0].lba == BAD && failed[0].blocks == 1 && failed[0].opcode == 2);
    CHECK((failed[0].status & 0x7ff) == 0x281);
    OK(wb_table_gather(table, &before, &memory));
    are_rows(found, numbers, 100, WHOLE);
    wb_batch_t* batch = NULL;
    OK(wb_table_prefetch(table, &indices, &batch));
    FAILS(WB_ERR_OPERATION, "LBA 700 on device 1", wb_batch_finish(batch, 60));
    CHECK(wb_last_error_operations(failed, 4) >= 1 && failed[0].lba == BAD);
    FAILS(WB_ERR_STATE, "the batch has failed", wb_batch_read(batch, 0, found, 4));
    wb_batch_release(batch);
  }
  wb_table_options hot = {.size = sizeof(hot)};
  hot.hot_rows = &bad;
  hot.hot_count = 1;
  wb_table_t* none = NULL;
  FAILS(WB_ERR_OPERATION, "LBA 700", wb_table_open(volume, "words", &hot, &none));
  CHECK(none == NULL);
  wb_table_release(table);
  wb_volume_release(volume);

  volume = memory_volume(engine, "soft:mem:1M,media-error=write:300", landing);
  wb_table_layout layout = layout_of(WB_U32, WHOLE, 44);
  OK(wb_table_create(volume, "words", &layout, WB_STORE_ADD, &table));
  OK(wb_table_get_view(table, &view));
  CHECK(view.first == 256 * 512);
  wb_table_release(table);
  OK(wb_table_remove(volume, "words"));
  // The table ends before the block, so that it can be stored; the next one holds the block.
  layout.rows = 100;
  FAILS(WB_ERR_IO, "write of 100 block(s) at LBA 256", wb_table_create(volume, "words", &layout, WB_STORE_ADD, &table));
  char* json = NULL;
  OK(wb_table_list(volume, &json));
  CHECK(strcmp(json, "[]") == 0);
  wb_string_free(json);
  wb_volume_release(volume);
}

// Reads that take longer than the program waits, and an engine that is told to stop.
static void limits(wb_engine_t* engine) {
  wb_volume_t* volume = memory_volume(engine, "soft:mem:1M,latency=20ms", "bounce");
  wb_table_t* table = store_words(volume, "words", ROWS, EACH);
  static uint64_t numbers[ROWS];
  for (uint64_t i = 0; i < ROWS; ++i) numbers[i] = i;
  wb_row_indices indices = list_of(numbers, ROWS);
  wb_table_options options = {.size = sizeof(options)};
  options.in_flight = 2;
  wb_table_t* slow = NULL;
  OK(wb_table_open(volume, "words", &options, &slow));
  wb_batch_t *batch = NULL, *next = NULL;
  OK(wb_table_prefetch(slow, &indices, &batch));
  FAILS(WB_ERR_TIMEOUT, "did not end within", wb_batch_finish(batch, 0.05));
  FAILS(WB_ERR_STATE, "finished already", wb_batch_finish(batch, 0.05));
  wb_batch_release(batch);
  OK(wb_table_prefetch(slow, &indices, &batch));
  OK(wb_engine_cancel(engine));
  FAILS(WB_ERR_STOPPED, "stopped", wb_batch_finish(batch, 60));
  FAILS(WB_ERR_STOPPED, "cancelled", wb_table_prefetch(table, &indices, &next));
  uint32_t compared = 0;
  FAILS(WB_ERR_STOPPED, "cancelled", wb_table_verify(table, &compared));
  OK(wb_engine_resume(engine));
  wb_batch_release(batch);
  static uint32_t found[BATCH * EACH];
  const wb_row_memory memory = host_rows(found, sizeof(found));
  indices = list_of(numbers, BATCH);
  OK(wb_table_gather(table, &indices, &memory));
  are_rows(found, numbers, BATCH, EACH);
  wb_table_release(slow);
  wb_table_release(table);
  wb_volume_release(volume);
}

static void* worker(void* argument) {
  wb_table_t* table = argument;
  uint64_t numbers[BATCH];
  uint32_t* found = malloc(BATCH * ROW);
  for (uint64_t round = 0; round < 10; ++round) {
    numbers_of(round, numbers);
    wb_row_indices indices = list_of(numbers, BATCH);
    wb_batch_t* batch = NULL;
    OK(wb_table_prefetch(table, &indices, &batch));
    const wb_row_memory memory = host_rows(found, BATCH * ROW);
    OK(wb_table_gather(table, &indices, &memory));
    are_rows(found, numbers, BATCH, EACH);
    OK(wb_batch_finish(batch, 60));
    OK(wb_batch_read(batch, 0, found, BATCH * ROW));
    are_rows(found, numbers, BATCH, EACH);
    wb_batch_release(batch);
    // Rows of the same content, while the other thread reads them.
    OK(wb_table_scatter(table, &indices, &memory, WB_SCATTER_LAST));
    // Errors are those of the thread.
    wb_table_t* none = NULL;
    FAILS(WB_ERR_HANDLE, "the volume is null", wb_table_open(NULL, "x", NULL, &none));
  }
  free(found);
  return NULL;
}

static void* finish(void* batch) {
  OK(wb_batch_finish(batch, 60));
  return NULL;
}

static void two_threads(wb_engine_t* engine) {
  wb_volume_t* volume = memory_volume(engine, "soft:mem:1M", "direct");
  wb_table_t* words = store_words(volume, "words", ROWS, EACH);
  wb_table_release(words);
  wb_table_options options = {.size = sizeof(options)};
  options.cache_bytes = 200 * ROW;
  wb_table_t* table = NULL;
  OK(wb_table_open(volume, "words", &options, &table));
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, worker, table) == 0);
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  wb_table_release(table);
  wb_volume_release(volume);

  // A batch that another thread finishes has not ended before its reads have.
  volume = memory_volume(engine, "soft:mem:1M,latency=20ms", "direct");
  table = store_words(volume, "words", ROWS, EACH);
  uint64_t numbers[BATCH];
  numbers_of(0, numbers);
  const wb_row_indices indices = list_of(numbers, BATCH);
  wb_batch_t* batch = NULL;
  OK(wb_table_prefetch(table, &indices, &batch));
  CHECK(pthread_create(&threads[0], NULL, finish, batch) == 0);
  uint32_t ended = 0;
  OK(wb_batch_has_ended(batch, &ended));
  void* address = NULL;
  const wb_code code = wb_batch_address(batch, &address);
  CHECK(code == WB_OK || code == WB_ERR_STATE);
  CHECK(pthread_join(threads[0], NULL) == 0);
  OK(wb_batch_has_ended(batch, &ended));
  OK(wb_batch_address(batch, &address));
  CHECK(ended == 1 && address != NULL);
  wb_batch_release(batch);
  wb_table_release(table);
  wb_volume_release(volume);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  folder = argv[1];
  wb_engine_t* engine = cpu_engine(2);
  prefetched(engine, "direct");
  prefetched(engine, "bounce");
  on_streams(engine, "direct");
  on_streams(engine, "bounce");
  written(engine);
  faults(engine, "direct");
  faults(engine, "bounce");
  limits(engine);
  two_threads(engine);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
