// Regions, launches, streams, and runs around the program's own work.
#include "check.h"

static int released = 0;

static void release(void* argument) {
  CHECK(argument == &released);
  ++released;
}

static wb_engine_t* cpu_engine(void) {
  wb_engine_t* engine = NULL;
  wb_engine_options options = {.size = sizeof(options)};
  options.kind = WB_ENGINE_CPU;
  options.threads = 2;
  OK(wb_engine_open(&options, &engine));
  return engine;
}

static void regions(wb_engine_t* engine) {
  wb_region_t* region = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, 64, &region));
  size_t bytes = 0;
  void* address = NULL;
  OK(wb_region_bytes(region, &bytes));
  OK(wb_region_address(region, &address));
  CHECK(bytes >= 64 && address != NULL);
  OK(wb_region_reaches_devices(region));
  uint32_t words[16];
  memset(words, 255, sizeof(words));
  OK(wb_region_read(region, 0, words, sizeof(words)));
  for (int i = 0; i < 16; ++i) CHECK(words[i] == 0);
  const uint32_t seven = 7;
  OK(wb_region_write(region, 60, &seven, 4));
  OK(wb_region_fill(region, 0, 4, 0xab));
  OK(wb_region_read(region, 0, words, sizeof(words)));
  CHECK(words[0] == 0xabababab && words[15] == 7);
  FAILS(WB_ERR_ARGUMENT, "do not lie within the region", wb_region_read(region, bytes - 3, words, 4));
  FAILS(WB_ERR_ARGUMENT, "4 bytes from byte 18446744073709551615 on", wb_region_read(region, SIZE_MAX, words, 4));
  FAILS(WB_ERR_ARGUMENT, "`data` is null, with a count of 4", wb_region_read(region, 0, NULL, 4));
  OK(wb_region_read(region, 0, NULL, 0));
  FAILS(WB_ERR_HANDLE, "the engine is of another type", wb_region_allocate((wb_engine_t*)region, 0, 8, &region));
  FAILS(WB_ERR_ARGUMENT, "`place` is 5", wb_region_allocate(engine, 5, 8, &region));
  FAILS(WB_ERR_MEMORY, "", wb_region_allocate(engine, WB_PLACE_HOST, (size_t)1 << 60, &region));
  wb_region_release(region);
}

static void own_memory(wb_engine_t* engine) {
  uint64_t* numbers = calloc(512, sizeof(*numbers));
  wb_region_t* region = NULL;
  FAILS(WB_ERR_ARGUMENT, "`pointer` is null", wb_region_import_host(engine, NULL, 8, release, &released, &region));
  FAILS(WB_ERR_ARGUMENT, "`bytes` is 0", wb_region_import_host(engine, numbers, 0, release, &released, &region));
  FAILS(WB_ERR_UNSUPPORTED, "cannot be imported", wb_region_import_device(engine, numbers, 0, release, &released, &region));
  CHECK(released == 0);
  OK(wb_region_import_device(engine, numbers, 4096, release, &released, &region));
  wb_grid grid;
  OK(wb_engine_grid(engine, 32, 1, &grid));
  void* address = NULL;
  OK(wb_region_address(region, &address));
  CHECK(address == numbers);
  const uint64_t count = 512, start = 5, step = 3;
  const wb_argument arguments[] = {{&address, 8, region}, {&count, 8, NULL}, {&start, 8, NULL}, {&step, 8, NULL}};
  wb_run_t* run = NULL;
  OK(wb_launch(engine, "wb_iota", grid, arguments, 4, &run));
  // The run keeps the region, and so the program's memory.
  wb_region_release(region);
  CHECK(released == 0);
  double elapsed = -1;
  OK(wb_run_finish(run, 30, &elapsed));
  CHECK(elapsed >= 0 && numbers[0] == 5 && numbers[511] == 5 + 511 * 3);
  CHECK(released == 1);
  uint32_t ended = 0;
  OK(wb_run_has_ended(run, &ended));
  CHECK(ended == 1);
  FAILS(WB_ERR_STATE, "finished already", wb_run_finish(run, 30, NULL));
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, 8, &region));
  FAILS(WB_ERR_STATE, "finished already", wb_run_keep(run, region));
  wb_region_release(region);
  wb_run_release(run);
  OK(wb_region_import_host(engine, numbers, 4096, release, &released, &region));
  wb_region_release(region);
  CHECK(released == 2);
  free(numbers);
}

static void bad_launches(wb_engine_t* engine) {
  wb_region_t* region = NULL;
  wb_run_t* run = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, 64, &region));
  wb_grid grid;
  OK(wb_engine_grid(engine, 32, 1, &grid));
  const uint64_t one = 1;
  wb_argument arguments[] = {{&one, 8, NULL}, {&one, 4, NULL}};
  FAILS(WB_ERR_NOT_FOUND, "`no_such`", wb_launch(engine, "no_such", grid, arguments, 2, &run));
  FAILS(WB_ERR_ARGUMENT, "takes parameters of [8, 8, 8, 8] bytes", wb_launch(engine, "wb_iota", grid, arguments, 2, &run));
  FAILS(WB_ERR_ARGUMENT, "`kernel` is null", wb_launch(engine, NULL, grid, arguments, 2, &run));
  FAILS(WB_ERR_ARGUMENT, "`arguments` is null", wb_launch(engine, "wb_iota", grid, NULL, 2, &run));
  arguments[1].bytes = 0;
  FAILS(WB_ERR_ARGUMENT, "argument 1 has a value of 0 bytes", wb_launch(engine, "wb_iota", grid, arguments, 2, &run));
  arguments[0].keep = engine;
  FAILS(WB_ERR_HANDLE, "argument 0: the handle of the object to keep is of another type",
        wb_launch(engine, "wb_iota", grid, arguments, 2, &run));
  const wb_grid none = {0, 0};
  const wb_argument whole[] = {{&one, 8, NULL}, {&one, 8, NULL}, {&one, 8, NULL}, {&one, 8, NULL}};
  FAILS(WB_ERR_ARGUMENT, "cannot be launched", wb_launch(engine, "wb_iota", none, whole, 4, &run));
  CHECK(run == NULL);
  OK(wb_engine_cancel(engine));
  FAILS(WB_ERR_STOPPED, "until it is resumed", wb_launch(engine, "wb_iota", grid, whole, 4, &run));
  OK(wb_engine_resume(engine));
  wb_region_release(region);
}

static void streams(wb_engine_t* engine) {
  wb_stream_t *first = NULL, *second = NULL;
  OK(wb_stream_create(engine, &first));
  OK(wb_stream_create(engine, &second));
  void* raw = &raw;
  OK(wb_stream_raw(first, &raw));
  CHECK(raw == NULL);
  FAILS(WB_ERR_UNSUPPORTED, "has no CUDA streams", wb_stream_adopt(engine, &raw, release, &released, &second));
  wb_region_t* region = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, 8, &region));
  void* address = NULL;
  OK(wb_region_address(region, &address));
  wb_grid grid;
  OK(wb_engine_grid(engine, 32, 1, &grid));
  const uint64_t count = 1, step = 0;
  uint64_t start = 1;
  const wb_argument arguments[] = {{&address, 8, region}, {&count, 8, NULL}, {&start, 8, NULL}, {&step, 8, NULL}};
  OK(wb_stream_launch(first, "wb_iota", grid, arguments, 4));
  OK(wb_stream_wait_for(second, first));
  start = 2;
  OK(wb_stream_launch(second, "wb_iota", grid, arguments, 4));
  OK(wb_stream_synchronize(second, 30));
  OK(wb_stream_synchronize(first, 30));
  uint64_t result = 0;
  OK(wb_region_read(region, 0, &result, 8));
  CHECK(result == 2);
  wb_engine_t* other = cpu_engine();
  wb_stream_t* foreign = NULL;
  OK(wb_stream_create(other, &foreign));
  FAILS(WB_ERR_ARGUMENT, "another engine", wb_stream_wait_for(first, foreign));
  // A run around work of the program itself, and one that is dropped.
  wb_run_t* run = NULL;
  FAILS(WB_ERR_ARGUMENT, "another engine", wb_run_begin(engine, "mine", foreign, &run));
  OK(wb_run_begin(engine, "mine", first, &run));
  OK(wb_run_keep(run, region));
  FAILS(WB_ERR_HANDLE, "of another type", wb_run_keep(run, engine));
  FAILS(WB_ERR_BUSY, "still in flight", wb_engine_resume(engine));
  OK(wb_run_stop(run));
  OK(wb_run_finish(run, 30, NULL));
  wb_run_release(run);
  OK(wb_run_begin(engine, "dropped", first, &run));
  wb_run_release(run);
  wb_stream_release(foreign);
  wb_engine_release(other);
  wb_region_release(region);
  wb_stream_release(first);
  wb_stream_release(second);
}

int main(void) {
  wb_engine_t* engine = cpu_engine();
  regions(engine);
  own_memory(engine);
  bad_launches(engine);
  streams(engine);
  wb_engine_release(engine);
  char* json = NULL;
  OK(wb_doctor_report("gpu", &json));
  CHECK(strstr(json, "\"version\"") != NULL);
  wb_string_free(json);
  FAILS(WB_ERR_ARGUMENT, "`gpus` cannot be required", wb_doctor_report("nvme, gpus", &json));
  CHECK(strlen(wb_version()) >= 5 && wb_fingerprint() != 0);
  puts("ok");
  return 0;
}
