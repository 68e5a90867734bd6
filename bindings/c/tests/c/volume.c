// Volumes: devices, data paths, stored arrays, memory of the program, failures of devices.
#include "storage.h"

static const char* folder;

static char* path_of(const char* name, const char* prefix) {
  static char text[2][4096];
  static int turn = 0;
  turn = 1 - turn;
  snprintf(text[turn], sizeof(text[turn]), "%s%s/%s", prefix, folder, name);
  return text[turn];
}

static void options_and_facts(wb_engine_t* engine) {
  wb_volume_t* volume = NULL;
  const char* devices[] = {"soft:mem:1M", "soft:mem:1M"};
  wb_volume_options options = {.size = sizeof(options)};
  options.landing = "bounce";
  options.queues = 2;
  options.depth = 16;
  options.replicated = 1;
  options.transfer_bytes = 8192;
  options.deadline_seconds = 5;
  OK(wb_volume_open(engine, devices, 2, &options, &volume));
  char* json = NULL;
  OK(wb_volume_info(volume, &json));
  CHECK(strstr(json, "\"landing\":\"bounce\"") && strstr(json, "\"replicated\":true") && strstr(json, "\"depth\":16"));
  has(json, "\"copies\":2");
  uint64_t bytes = 0;
  uint32_t block = 0;
  OK(wb_volume_bytes(volume, &bytes));
  OK(wb_volume_block_bytes(volume, &block));
  CHECK(bytes == 1 << 20 && block == 512);
  OK(wb_volume_set_deadline(volume, 0));
  OK(wb_volume_check(volume));
  wb_volume_release(volume);
  volume = NULL;
  options.landing = "fast";
  FAILS(WB_ERR_ARGUMENT, "`landing`: `fast` is none of", wb_volume_open(engine, devices, 2, &options, &volume));
  options.landing = NULL;
  options.queue_memory = "gpu";
  FAILS(WB_ERR_UNSUPPORTED, "queues gpu is not available", wb_volume_open(engine, devices, 2, &options, &volume));
  options.queue_memory = NULL;
  options.mapping = "no-such";
  FAILS(WB_ERR_ARGUMENT, "there is no mapping `no-such`", wb_volume_open(engine, devices, 2, &options, &volume));
  options.mapping = NULL;
  options.depth = 17;
  FAILS(WB_ERR_ARGUMENT, "17", wb_volume_open(engine, devices, 2, &options, &volume));
  options.depth = 0;
  options.page_checksums = 3;
  FAILS(WB_ERR_ARGUMENT, "WB_ON", wb_volume_open(engine, devices, 2, &options, &volume));
  FAILS(WB_ERR_ARGUMENT, "at least one", wb_volume_open(engine, devices, 0, NULL, &volume));
  devices[1] = "soft:mem:1M,blok=4096";
  FAILS(WB_ERR_ARGUMENT, "block", wb_volume_open(engine, devices, 2, NULL, &volume));
  devices[1] = NULL;
  FAILS(WB_ERR_ARGUMENT, "`an entry of devices` is null", wb_volume_open(engine, devices, 2, NULL, &volume));
  devices[0] = path_of("none.img", "soft:");
  FAILS(WB_ERR_NOT_FOUND, "none.img", wb_volume_open(engine, devices, 1, NULL, &volume));
  devices[0] = "soft:mem";
  FAILS(WB_ERR_ARGUMENT, "size of the memory is missing", wb_volume_open(engine, devices, 1, NULL, &volume));
  CHECK(volume == NULL);
  FAILS(WB_ERR_HANDLE, "the volume is null", wb_volume_flush(NULL));
  FAILS(WB_ERR_HANDLE, "of another type", wb_volume_flush((wb_volume_t*)engine));
}

static void bytes_come_back(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M");
  char text[23] = "any offset, any length";
  OK(wb_volume_write(volume, 70000, text, sizeof(text)));
  memset(text, 0, sizeof(text));
  OK(wb_volume_read(volume, 70000, text, sizeof(text)));
  CHECK(strcmp(text, "any offset, any length") == 0);
  FAILS(WB_ERR_ARGUMENT, "do not lie within", wb_volume_read(volume, (1 << 20) - 3, text, 4));
  FAILS(WB_ERR_ARGUMENT, "`data` is null", wb_volume_read(volume, 0, NULL, 4));
  OK(wb_volume_flush(volume));
  char* json = NULL;
  OK(wb_volume_recover(volume, &json));
  has(json, "\"stopped_runs\":false");
  OK(wb_volume_recover(volume, NULL));
  wb_volume_release(volume);
}

static void stored(wb_engine_t* engine) {
  const char* device = path_of("arrays.img", "soft:");
  const uint64_t sizes[] = {4000, 36};
  uint64_t needed = 0;
  OK(wb_volume_bytes_for(sizes, 2, 1, NULL, &needed));
  CHECK(needed >= 4036 && needed <= 1 << 20);
  wb_volume_t* volume = NULL;
  wb_volume_options read_only = {.size = sizeof(read_only)};
  read_only.read_only = 1;
  FAILS(WB_ERR_ARGUMENT, "wb_volume_open", wb_volume_create(engine, &device, 1, needed, &read_only, &volume));
  OK(wb_volume_create(engine, &device, 1, needed + (128 << 10), NULL, &volume));
  char* json = NULL;
  OK(wb_volume_arrays(volume, &json));
  CHECK(strcmp(json, "[]") == 0);
  wb_string_free(json);
  static unsigned char large[1 << 20];
  float values[1000];
  for (int i = 0; i < 1000; ++i) values[i] = (float)i / 4;
  OK(wb_volume_store(volume, "quarters", WB_F32, values, 1000, NULL));
  struct {
    uint32_t a, b, c;
  } records[3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  wb_store_options options = {.size = sizeof(options)};
  FAILS(WB_ERR_ARGUMENT, "records need their size", wb_volume_store(volume, "records", WB_RECORD, records, 3, NULL));
  options.page_checksums = 7;
  FAILS(WB_ERR_ARGUMENT, "`page_checksums` is 7", wb_volume_store(volume, "checked", WB_F32, values, 10, &options));
  options.page_checksums = 0;
  options.element_bytes = 12;
  FAILS(WB_ERR_ARGUMENT, "have 4", wb_volume_store(volume, "records", WB_I32, records, 3, &options));
  OK(wb_volume_store(volume, "records", WB_RECORD, records, 3, &options));
  FAILS(WB_ERR_EXISTS, "two arrays are called `quarters`", wb_volume_store(volume, "quarters", WB_F32, values, 10, NULL));
  FAILS(WB_ERR_ARGUMENT, "`dtype` is 99", wb_volume_store(volume, "x", 99, values, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "cannot be an array's name", wb_volume_store(volume, "", WB_F32, values, 1, NULL));
  FAILS(WB_ERR_SPACE, "beside the stored arrays needs", wb_volume_store(volume, "x", WB_U8, large, sizeof(large), NULL));
  FAILS(WB_ERR_ARGUMENT, "which no memory holds", wb_volume_store(volume, "x", WB_U64, values, UINT64_MAX / 4, NULL));
  options.mode = 7;
  FAILS(WB_ERR_ARGUMENT, "`mode` is 7", wb_volume_store(volume, "x", WB_RECORD, records, 1, &options));
  wb_volume_release(volume);

  // As another program finds it.
  OK(wb_volume_open(engine, &device, 1, &read_only, &volume));
  OK(wb_volume_arrays(volume, &json));
  CHECK(strstr(json, "\"name\":\"records\"") && strstr(json, "\"element_bytes\":12"));
  has(json, "\"element_type\":\"f32\"");
  memset(values, 0, sizeof(values));
  OK(wb_volume_load(volume, "quarters", WB_F32, values, sizeof(values)));
  CHECK(values[999] == 999.0f / 4);
  memset(records, 0, sizeof(records));
  OK(wb_volume_load(volume, "records", WB_RECORD, records, sizeof(records)));
  CHECK(records[2].c == 9);
  FAILS(WB_ERR_ARGUMENT, "has 4000 bytes, and 3996", wb_volume_load(volume, "quarters", WB_F32, values, 3996));
  FAILS(WB_ERR_ARGUMENT, "holds f32, not f64", wb_volume_load(volume, "quarters", WB_F64, values, 4000));
  FAILS(WB_ERR_NOT_FOUND, "no array `quarter`; there are `quarters`, `records`", wb_volume_load(volume, "quarter", WB_F32, values, 4000));
  uint32_t intact = 0;
  OK(wb_volume_verify(volume, 0, &intact, &json));
  CHECK(intact == 1);
  has(json, "\"state\":\"intact\"");
  wb_volume_release(volume);

  // Replaced, removed, and replaced as a whole.
  volume = open_volume(engine, device);
  options.mode = WB_STORE_REPLACE;
  options.element_bytes = 0;
  const int16_t few[3] = {-1, -2, -3};
  OK(wb_volume_store(volume, "quarters", WB_I16, few, 3, &options));
  const char* names[] = {"records", "none"};
  FAILS(WB_ERR_NOT_FOUND, "no array `none`", wb_volume_remove(volume, names, 2));
  OK(wb_volume_remove(volume, names, 1));
  int16_t back[3] = {0, 0, 0};
  OK(wb_volume_load(volume, "quarters", WB_I16, back, sizeof(back)));
  CHECK(memcmp(back, few, sizeof(few)) == 0);
  options.mode = WB_STORE_ALONE;
  OK(wb_volume_store(volume, "alone", WB_I16, few, 3, &options));
  FAILS(WB_ERR_NOT_FOUND, "there is `alone`", wb_volume_load(volume, "quarters", WB_I16, back, sizeof(back)));
  // Damage behind the library's back is found by the checksum.
  OK(wb_volume_arrays(volume, &json));
  const char* offset = strstr(json, "\"offset\":");
  CHECK(offset != NULL);
  const long at = atol(offset + strlen("\"offset\":"));
  wb_string_free(json);
  wb_volume_release(volume);
  FILE* file = fopen(path_of("arrays.img", ""), "r+b");
  CHECK(file != NULL && fseek(file, at, SEEK_SET) == 0 && fputc(0x55, file) == 0x55 && fclose(file) == 0);
  volume = open_volume(engine, device);
  FAILS(WB_ERR_DAMAGED, "array `alone` is damaged", wb_volume_load(volume, "alone", WB_I16, back, sizeof(back)));
  OK(wb_volume_verify(volume, 0, &intact, NULL));
  CHECK(intact == 0);
  wb_volume_release(volume);
}

// Files of others are not overwritten, unless they are named.
static void overwriting(wb_engine_t* engine) {
  const char* file = path_of("notes.txt", "");
  FILE* notes = fopen(file, "wb");
  CHECK(notes != NULL);
  for (int i = 0; i < 1 << 15; ++i) CHECK(fputs("notes,, ", notes) >= 0);
  CHECK(fclose(notes) == 0);
  const char* device = path_of("notes.txt", "soft:");
  wb_volume_t* volume = NULL;
  FAILS(WB_ERR_EXISTS, "nothing was written", wb_volume_create(engine, &device, 1, 1 << 18, NULL, &volume));
  CHECK(volume == NULL && wb_last_error_remedy(0) != NULL);
  wb_volume_options options = {.size = sizeof(options)};
  options.overwrite = &file;
  options.overwrite_count = 1;
  OK(wb_volume_create(engine, &device, 1, 1 << 18, &options, &volume));
  wb_volume_release(volume);
  const char* twice[] = {device, device};
  FAILS(WB_ERR_ARGUMENT, "name each device once", wb_volume_open(engine, twice, 2, NULL, &volume));
  // A new file without content has no name, unless it is kept.
  const char* kept = path_of("kept.img", "soft:");
  OK(wb_volume_create(engine, &kept, 1, 1 << 18, NULL, &volume));
  wb_volume_release(volume);
  FAILS(WB_ERR_NOT_FOUND, "kept.img", wb_volume_open(engine, &kept, 1, NULL, &volume));
  OK(wb_volume_create(engine, &kept, 1, 1 << 18, NULL, &volume));
  OK(wb_volume_write(volume, 5, "own", 3));
  OK(wb_volume_keep(volume));
  wb_volume_release(volume);
  volume = open_volume(engine, kept);
  char own[3];
  OK(wb_volume_read(volume, 5, own, 3));
  CHECK(memcmp(own, "own", 3) == 0);
  wb_volume_release(volume);
}

// A kernel reads blocks into memory of the program, and into memory that the volume allocates.
static void kernel_reads(wb_engine_t* engine, wb_volume_t* volume, wb_buffer_t* buffer, uint64_t first, wb_code expected) {
  wb_volume_view view;
  OK(wb_volume_get_view(volume, &view));
  void* address = NULL;
  OK(wb_buffer_address(buffer, &address));
  wb_grid grid;
  OK(wb_engine_grid(engine, 32, 1, &grid));
  const uint64_t count = 8;
  const uint32_t each = 1;
  const wb_argument arguments[] = {
      {&view, sizeof(view), volume}, {&first, 8, NULL}, {&count, 8, NULL}, {&each, 4, NULL}, {&address, 8, buffer}};
  wb_run_t* run = NULL;
  OK(wb_launch(engine, "wb_read_blocks", grid, arguments, 5, &run));
  CHECK(wb_run_finish(run, 60, NULL) == expected);
  wb_run_release(run);
}

static void landing(wb_engine_t* engine, const char* choice) {
  const char* device = "soft:mem:1M";
  wb_volume_options options = {.size = sizeof(options)};
  options.landing = choice;
  wb_volume_t* volume = NULL;
  OK(wb_volume_open(engine, &device, 1, &options, &volume));
  unsigned char pattern[4096];
  for (size_t i = 0; i < sizeof(pattern); ++i) pattern[i] = (unsigned char)(i * 7 >> 3);
  OK(wb_volume_write(volume, 100 * 512, pattern, sizeof(pattern)));
  unsigned char* own = aligned_alloc(4096, 4096);
  memset(own, 0, 4096);
  wb_region_t* region = NULL;
  OK(wb_region_import_device(engine, own, 4096, NULL, NULL, &region));
  wb_buffer_t* buffer = NULL;
  OK(wb_volume_map(volume, region, &buffer));
  wb_region_release(region);
  kernel_reads(engine, volume, buffer, 100, WB_OK);
  CHECK(memcmp(own, pattern, 4096) == 0);
  wb_buffer_release(buffer);
  OK(wb_volume_allocate(volume, 4096, &buffer));
  kernel_reads(engine, volume, buffer, 100, WB_OK);
  unsigned char back[4096];
  OK(wb_buffer_read(buffer, 0, back, sizeof(back)));
  CHECK(memcmp(back, pattern, 4096) == 0);
  size_t length = 0;
  OK(wb_buffer_bytes(buffer, &length));
  CHECK(length == 4096);
  OK(wb_buffer_write(buffer, 4095, pattern, 1));
  FAILS(WB_ERR_ARGUMENT, "do not lie within", wb_buffer_write(buffer, 4095, pattern, 2));
  wb_stats stats;
  OK(wb_volume_stats(volume, &stats));
  CHECK(stats.reads >= 16 && stats.read_bytes == 8192 && stats.errors == 0);
  OK(wb_volume_reset_stats(volume));
  OK(wb_volume_stats(volume, &stats));
  CHECK(stats.reads == 0);
  wb_engine_t* other = cpu_engine(1);
  OK(wb_region_allocate(other, WB_PLACE_DEVICE, 4096, &region));
  wb_buffer_t* foreign = NULL;
  FAILS(WB_ERR_ARGUMENT, "another engine", wb_volume_map(volume, region, &foreign));
  wb_region_release(region);
  wb_engine_release(other);
  wb_buffer_release(buffer);
  wb_volume_release(volume);
  free(own);
}

// Blocks that the device cannot read: the host gets the device's status, a kernel's run the operation.
static void media_error(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M,media-error=read:331-331");
  char byte;
  FAILS(WB_ERR_IO, "331", wb_volume_read(volume, 331 * 512, &byte, 1));
  CHECK(wb_last_error_operations(NULL, 0) == 0);
  wb_buffer_t* buffer = NULL;
  OK(wb_volume_allocate(volume, 4096, &buffer));
  kernel_reads(engine, volume, buffer, 330, WB_ERR_OPERATION);
  CHECK(wb_last_error_code() == WB_ERR_OPERATION);
  wb_error failed[4];
  const size_t count = wb_last_error_operations(failed, 4);
  CHECK(count >= 1 && failed[0].lba == 331 && failed[0].blocks == 1 && failed[0].opcode == 2 && failed[0].device == 0);
  CHECK((failed[0].status & 0x7ff) == 0x281);
  kernel_reads(engine, volume, buffer, 340, WB_OK);
  wb_buffer_release(buffer);
  wb_volume_release(volume);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  folder = argv[1];
  wb_engine_t* engine = cpu_engine(2);
  options_and_facts(engine);
  bytes_come_back(engine);
  stored(engine);
  overwriting(engine);
  landing(engine, "direct");
  landing(engine, "bounce");
  media_error(engine);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
