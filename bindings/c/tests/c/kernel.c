// Kernels of the program in an image of its own: one that takes a view, and one that does not stop.
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>

#include "check.h"

const void* test_kernels(void);

static wb_engine_t* engine_with_kernels(void) {
  static const wb_image image = {.size = sizeof(image), .name = "test", .cpu = test_kernels};
  const wb_image* images[] = {&image};
  wb_engine_options options = {.size = sizeof(options)};
  options.kind = WB_ENGINE_CPU;
  options.threads = 2;
  options.images = images;
  options.image_count = 1;
  wb_engine_t* engine = NULL;
  OK(wb_engine_open(&options, &engine));
  const wb_image* twice[] = {&image, &image};
  options.images = twice;
  options.image_count = 2;
  wb_engine_t* none = NULL;
  FAILS(WB_ERR_EXISTS, "is in image `test` and in image `test`", wb_engine_open(&options, &none));
  return engine;
}

static void takes_a_view(wb_engine_t* engine) {
  enum { COUNT = 5000 };
  uint32_t numbers[COUNT];
  uint64_t expected = 0, total = 0;
  for (uint32_t i = 0; i < COUNT; ++i) expected += numbers[i] = i * 2654435761u;
  const char* device = "soft:mem";
  wb_volume_t* volume = NULL;
  OK(wb_volume_create(engine, &device, 1, 1 << 20, NULL, &volume));
  OK(wb_volume_store(volume, "numbers", WB_U32, numbers, COUNT, NULL));
  wb_cache_t* cache = NULL;
  OK(wb_cache_open(volume, NULL, &cache));
  wb_array_t* array = NULL;
  OK(wb_array_open(cache, "numbers", WB_U32, &array));
  wb_array_view view;
  OK(wb_array_get_view(array, &view));
  wb_region_t* region = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, sizeof(total), &region));
  void* address = NULL;
  OK(wb_region_address(region, &address));
  wb_grid grid;
  OK(wb_engine_grid(engine, 32, 1, &grid));
  const wb_argument arguments[] = {{&view, sizeof(view), array}, {&address, sizeof(address), region}};
  wb_run_t* run = NULL;
  OK(wb_launch(engine, "sum", grid, arguments, 2, &run));
  // The run keeps what the kernel uses.
  wb_array_release(array);
  wb_cache_release(cache);
  wb_volume_release(volume);
  OK(wb_run_finish(run, 60, NULL));
  wb_run_release(run);
  OK(wb_region_read(region, 0, &total, sizeof(total)));
  CHECK(total == expected);
  wb_region_release(region);
}

enum { ROWS = 300, ROW = 100, BATCHES = 4, EACH = 40 };

// Runs a kernel whose blocks or warps gather a batch each, by numbers of `width` bytes.
static void gather_by(wb_engine_t* engine, wb_table_t* table, const uint32_t* stored, const char* kernel, uint32_t width, wb_grid grid) {
  wb_table_scratch_t* scratches[BATCHES];
  wb_table_scratch views[BATCHES];
  uint64_t numbers[BATCHES * EACH];
  wb_region_t *indices = NULL, *out = NULL, *scratch = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, sizeof(numbers), &indices));
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, BATCHES * EACH * ROW * 4, &out));
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, sizeof(views), &scratch));
  wb_table_view view;
  OK(wb_table_get_view(table, &view));
  void *indices_at = NULL, *out_at = NULL, *scratch_at = NULL;
  OK(wb_region_address(indices, &indices_at));
  OK(wb_region_address(out, &out_at));
  OK(wb_region_address(scratch, &scratch_at));
  for (int b = 0; b < BATCHES; ++b) OK(wb_table_scratch_create(table, EACH, 4, &scratches[b]));
  uint32_t(*found)[ROW] = malloc(sizeof(uint32_t[BATCHES * EACH][ROW]));
  for (uint64_t launch = 0; launch < 3; ++launch) {
    for (uint64_t i = 0; i < BATCHES * EACH; ++i) numbers[i] = (i * i + launch * 77) % (launch == 1 ? 7 : ROWS);
    for (uint64_t i = 0; i < BATCHES * EACH; ++i) {
      const uint32_t narrow = (uint32_t)numbers[i];
      OK(wb_region_write(indices, i * width, width == 4 ? (const void*)&narrow : &numbers[i], width));
    }
    for (int b = 0; b < BATCHES; ++b) {
      if (launch != 0) OK(wb_table_scratch_begin(scratches[b]));
      OK(wb_table_scratch_get_view(scratches[b], &views[b]));
    }
    OK(wb_region_write(scratch, 0, views, sizeof(views)));
    const uint64_t each = EACH;
    const wb_argument arguments[] = {{&view, sizeof(view), table},
                                     {&indices_at, sizeof(void*), indices},
                                     {&each, sizeof(each), NULL},
                                     {&out_at, sizeof(void*), out},
                                     {&scratch_at, sizeof(void*), scratch},
                                     {NULL, 0, scratches[0]},
                                     {NULL, 0, scratches[1]}};
    wb_run_t* run = NULL;
    OK(wb_launch(engine, kernel, grid, arguments, 7, &run));
    for (int b = 2; b < BATCHES; ++b) OK(wb_run_keep(run, scratches[b]));
    // The run keeps the scratches, as it keeps the other arguments.
    for (int b = 0; launch == 2 && b < BATCHES; ++b) wb_table_scratch_release(scratches[b]);
    OK(wb_run_finish(run, 60, NULL));
    wb_run_release(run);
    OK(wb_region_read(out, 0, found, sizeof(uint32_t[BATCHES * EACH][ROW])));
    for (uint64_t i = 0; i < BATCHES * EACH; ++i) CHECK(memcmp(found[i], stored + numbers[i] * ROW, ROW * 4) == 0);
  }
  // A kernel's index that is no row is an operation that failed: position and index are in the text.
  const uint64_t wrong = ROWS;
  OK(wb_region_write(indices, (size_t)5 * width, &wrong, width));
  wb_table_scratch_t* one[BATCHES];
  const uint64_t each = EACH;
  for (int b = 0; b < BATCHES; ++b) {
    OK(wb_table_scratch_create(table, EACH, 4, &one[b]));
    OK(wb_table_scratch_get_view(one[b], &views[b]));
  }
  OK(wb_region_write(scratch, 0, views, sizeof(views)));
  const wb_argument arguments[] = {{&view, sizeof(view), table},
                                   {&indices_at, sizeof(void*), indices},
                                   {&each, sizeof(each), NULL},
                                   {&out_at, sizeof(void*), out},
                                   {&scratch_at, sizeof(void*), scratch}};
  wb_run_t* run = NULL;
  OK(wb_launch(engine, kernel, grid, arguments, 5, &run));
  FAILS(WB_ERR_ARGUMENT, "index 300 at position 5 of the batch: the table has 300 rows", wb_run_finish(run, 60, NULL));
  wb_run_release(run);
  for (int b = 0; b < BATCHES; ++b) wb_table_scratch_release(one[b]);
  free(found);
  wb_region_release(indices);
  wb_region_release(out);
  wb_region_release(scratch);
}

static void gathers_rows(wb_engine_t* engine) {
  uint32_t* numbers = malloc(sizeof(uint32_t) * ROWS * ROW);
  for (uint32_t i = 0; i < ROWS * ROW; ++i) numbers[i] = i * 2654435761u;
  const char* device = "soft:mem";
  wb_volume_t* volume = NULL;
  OK(wb_volume_create(engine, &device, 1, 1 << 20, NULL, &volume));
  wb_table_layout layout = {.size = sizeof(layout)};
  layout.dtype = WB_U32;
  layout.rows = ROWS;
  layout.dimensions = 1;
  layout.shape[0] = ROW;
  wb_table_t* table = NULL;
  OK(wb_table_store(volume, "rows", &layout, numbers, WB_STORE_ADD, &table));
  const wb_grid blocks = {BATCHES, 2}, warps = {BATCHES / 2, 2};
  gather_by(engine, table, numbers, "gather_by_blocks", 4, blocks);
  gather_by(engine, table, numbers, "gather_by_warps", 8, warps);
  wb_table_release(table);
  wb_volume_release(volume);
  free(numbers);
}

static void* finish(void* run) {
  OK(wb_run_finish(run, 60, NULL));
  return NULL;
}

// A run that another thread finishes has not ended before its kernel has.
static void finished_by_another_thread(wb_engine_t* engine) {
  wb_region_t* region = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_HOST, 4, &region));
  void* address = NULL;
  OK(wb_region_address(region, &address));
  const wb_argument arguments[] = {{&address, sizeof(address), region}};
  const wb_grid grid = {1, 1};
  wb_run_t* run = NULL;
  OK(wb_launch(engine, "wait_for_host", grid, arguments, 1, &run));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, finish, run) == 0);
  // The thread has begun to wait when an object can no longer be kept.
  uint32_t ended = 1;
  while (wb_run_keep(run, region) == WB_OK) {
    const struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  FAILS(WB_ERR_STATE, "another thread finishes the run", wb_run_keep(run, region));
  FAILS(WB_ERR_STATE, "another thread finishes the run", wb_run_finish(run, 60, NULL));
  OK(wb_run_has_ended(run, &ended));
  CHECK(ended == 0);
  const uint32_t go = 1;
  OK(wb_region_write(region, 0, &go, 4));
  CHECK(pthread_join(thread, NULL) == 0);
  OK(wb_run_has_ended(run, &ended));
  CHECK(ended == 1);
  wb_run_release(run);
  wb_region_release(region);
}

static void does_not_stop(wb_engine_t* engine) {
  wb_region_t* region = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_HOST, 4, &region));
  void* address = NULL;
  OK(wb_region_address(region, &address));
  const wb_argument arguments[] = {{&address, sizeof(address), region}};
  const wb_grid grid = {1, 1};
  wb_run_t* run = NULL;
  OK(wb_launch(engine, "wait_for_host", grid, arguments, 1, &run));
  FAILS(WB_ERR_KERNEL, "its memory is kept until the process ends", wb_run_finish(run, 0.1, NULL));
  uint32_t ended = 1;
  OK(wb_run_has_ended(run, &ended));
  CHECK(ended == 0);
  wb_run_t* next = NULL;
  FAILS(WB_ERR_KERNEL, "start the program again", wb_launch(engine, "wait_for_host", grid, arguments, 1, &next));
  const uint32_t go = 1;
  OK(wb_region_write(region, 0, &go, 4));
  wb_run_release(run);
  wb_region_release(region);
}

int main(void) {
  wb_engine_t* engine = engine_with_kernels();
  takes_a_view(engine);
  gathers_rows(engine);
  finished_by_another_thread(engine);
  does_not_stop(engine);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
