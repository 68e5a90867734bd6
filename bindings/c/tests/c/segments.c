// Segment queues: objects of blocks in scattered memory, limits, failures of devices, releases in any order.
#include <pthread.h>

#include "pages.h"

enum { BLOCK = 512 };

static wb_segment_blocks blocks(uint64_t block, uint64_t count, uint64_t bytes, size_t segments) {
  wb_segment_blocks object = {block, count, bytes, segments};
  return object;
}

// Loads an object into one segment.
static void load(wb_segment_queue_t* queue, wb_segment_blocks object, wb_segment_memory memory) {
  wb_segment_transfer_t* transfer = NULL;
  object.segments = 1;
  OK(wb_segment_queue_load(queue, &object, 1, &memory, 1, &transfer));
  finish(transfer, 0);
  CHECK(outcome(transfer, 0) == object.bytes);
  wb_segment_transfer_release(transfer);
}

static void scattered(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M");
  wb_stream_t* stream = NULL;
  OK(wb_stream_create(engine, &stream));
  wb_segment_queue_options options = {.size = sizeof(options)};
  options.multiprocessors = 1;
  options.in_flight = 1;
  options.command_bytes = 1024;
  wb_segment_queue_t* queue = NULL;
  OK(wb_segment_queue_create(volume, stream, &options, &queue));

  // Two objects: one of a region and memory of the program in turn, one of a whole region.
  wb_region_t *region = NULL, *whole = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, 8192, &region));
  OK(wb_region_allocate(engine, WB_PLACE_HOST, 4096, &whole));
  uint8_t *own = aligned_alloc(16, 8192), data[5200];
  CHECK(own != NULL);
  fill_object(1, data, sizeof(data));
  OK(wb_region_write(region, 4096, data, 1008));
  memcpy(own + 48, data + 1008, 4000);
  OK(wb_region_write(region, 16, data + 5008, 192));
  uint8_t all[4096];
  fill_object(2, all, sizeof(all));
  OK(wb_region_write(whole, 0, all, sizeof(all)));
  wb_segment_memory segments[] = {memory_of(region, 4096, 1008, 0), memory_at(own, 4000, 2), memory_of(region, 16, 192, 1),
                                  memory_of(whole, 0, 0, 0)};
  segments[1].offset = 48;
  const wb_segment_blocks objects[] = {blocks(100, 11, 5200, 3), blocks(40, 8, 4096, 1)};
  uint8_t before[BLOCK];
  memset(before, 0xee, sizeof(before));
  OK(wb_volume_write(volume, 110 * BLOCK, before, BLOCK));
  wb_segment_transfer_t* transfer = NULL;
  OK(wb_segment_queue_store(queue, objects, 2, segments, 4, &transfer));
  size_t count = 0;
  OK(wb_segment_transfer_objects(transfer, &count));
  CHECK(count == 2);
  OK(wb_segment_transfer_wait_group(transfer, stream, 2));
  FAILS(WB_ERR_ARGUMENT, "group 3 of a transfer that has 3", wb_segment_transfer_wait_group(transfer, stream, 3));
  uint64_t bytes = 0;
  FAILS(WB_ERR_STATE, "in flight", wb_segment_transfer_outcome(transfer, 0, &bytes));
  finish(transfer, 0);
  CHECK(outcome(transfer, 0) == 5200 && outcome(transfer, 1) == 4096);
  FAILS(WB_ERR_ARGUMENT, "`object` is 2, and the transfer has 2", wb_segment_transfer_outcome(transfer, 2, &bytes));
  FAILS(WB_ERR_STATE, "finished already", wb_segment_transfer_finish(transfer, 0, &count));
  FAILS(WB_ERR_STATE, "is finished", wb_segment_transfer_wait_group(transfer, stream, 0));
  uint32_t ended = 0;
  OK(wb_segment_transfer_has_ended(transfer, &ended));
  CHECK(ended == 1 && count == 2 && bytes == 0);
  wb_segment_transfer_release(transfer);

  // The blocks have the objects, with zeros behind the first one.
  uint8_t found[11 * BLOCK];
  OK(wb_volume_read(volume, 100 * BLOCK, found, sizeof(found)));
  CHECK(is_object(1, found, 5200));
  for (size_t i = 5200; i < sizeof(found); ++i) CHECK(found[i] == 0);
  OK(wb_volume_read(volume, 40 * BLOCK, found, 4096));
  CHECK(is_object(2, found, 4096));

  // Other segments of the same blocks, beside bytes that stay.
  memset(own, 0x77, 8192);
  wb_segment_memory memory = memory_at(own + 16, 5200, 0);
  load(queue, objects[0], memory);
  CHECK(is_object(1, own + 16, 5200) && own[15] == 0x77 && own[16 + 5200] == 0x77);
  const wb_segment_memory halves[] = {memory_at(own + 4096, 2048, 0), memory_of(region, 0, 2048, 0)};
  const wb_segment_blocks second = blocks(40, 8, 4096, 2);
  OK(wb_segment_queue_load(queue, &second, 1, halves, 2, &transfer));
  // The transfer keeps queue, stream and regions.
  wb_region_t* read = wb_region_retain(region);
  wb_segment_queue_release(queue);
  wb_stream_release(stream);
  wb_region_release(region);
  finish(transfer, 0);
  uint8_t back[4096];
  memcpy(back, own + 4096, 2048);
  OK(wb_region_read(read, 0, back + 2048, 2048));
  CHECK(is_object(2, back, 4096));
  wb_segment_transfer_release(transfer);
  wb_region_release(read);
  wb_region_release(whole);
  wb_volume_release(volume);
  free(own);
}

static void refused(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M");
  wb_engine_t* other = cpu_engine(1);
  wb_stream_t* foreign = NULL;
  OK(wb_stream_create(other, &foreign));
  wb_segment_queue_t* queue = NULL;
  FAILS(WB_ERR_ARGUMENT, "another engine", wb_segment_queue_create(volume, foreign, NULL, &queue));
  wb_segment_queue_options options = {.size = sizeof(options)};
  options.in_flight = 1000;
  FAILS(WB_ERR_ARGUMENT, "1000 commands in flight", wb_segment_queue_create(volume, NULL, &options, &queue));
  options.in_flight = 0;
  options.multiprocessors = 100000;
  FAILS(WB_ERR_ARGUMENT, "100000 multiprocessors", wb_segment_queue_create(volume, NULL, &options, &queue));
  options.multiprocessors = 0;
  options.command_bytes = BLOCK - 1;
  FAILS(WB_ERR_ARGUMENT, "give 512 to", wb_segment_queue_create(volume, NULL, &options, &queue));
  options.size = 3;
  FAILS(WB_ERR_ARGUMENT, "sizeof(wb_segment_queue_options)", wb_segment_queue_create(volume, NULL, &options, &queue));
  FAILS(WB_ERR_HANDLE, "the volume is null", wb_segment_queue_create(NULL, NULL, NULL, &queue));
  FAILS(WB_ERR_HANDLE, "the stream is of another type", wb_segment_queue_create(volume, (wb_stream_t*)volume, NULL, &queue));
  FAILS(WB_ERR_ARGUMENT, "the result `queue` is null", wb_segment_queue_create(volume, NULL, NULL, NULL));
  CHECK(queue == NULL && wb_segment_queue_retain((wb_segment_queue_t*)volume) == NULL);
  queue = queue_of(volume);
  CHECK(wb_segment_queue_retain(queue) == queue);
  wb_segment_queue_release(queue);
  wb_segment_queue_release(NULL);

  wb_region_t *region = NULL, *far = NULL;
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, 4096, &region));
  OK(wb_region_allocate(other, WB_PLACE_DEVICE, 4096, &far));
  wb_segment_transfer_t* transfer = NULL;
  wb_segment_blocks object = blocks(8, 2, 1024, 1);
  wb_segment_memory memory = memory_of(region, 0, 1024, 0);
#define REFUSED(code, part) FAILS(code, part, wb_segment_queue_store(queue, &object, 1, &memory, 1, &transfer))
  memory.address = &object;
  REFUSED(WB_ERR_ARGUMENT, "segment 0 names two kinds of memory");
  memory.address = NULL;
  memory.region = NULL;
  REFUSED(WB_ERR_ARGUMENT, "segment 0 names no memory");
  memory.region = (wb_region_t*)volume;
  REFUSED(WB_ERR_HANDLE, "segment 0: the handle of the region is of another type");
  memory.region = far;
  REFUSED(WB_ERR_ARGUMENT, "memory of another engine");
  memory.region = region;
  memory.offset = 3088;
  REFUSED(WB_ERR_ARGUMENT, "1024 bytes from byte 3088 on, and its region has 4096");
  memory.offset = SIZE_MAX - 15;
  REFUSED(WB_ERR_ARGUMENT, "its region has 4096");
  memory.bytes = 0;
  REFUSED(WB_ERR_ARGUMENT, "its region has 4096");
  memory.offset = 4096;
  REFUSED(WB_ERR_ARGUMENT, "at least 1 byte");
  memory.offset = 0;
  REFUSED(WB_ERR_ARGUMENT, "have 4096 bytes, and it has 1024");
  memory.bytes = 512;
  REFUSED(WB_ERR_ARGUMENT, "have 512 bytes, and it has 1024");
  memory.bytes = 1000;
  REFUSED(WB_ERR_ARGUMENT, "multiples of 16");
  memory.bytes = 1024;
  memory.offset = 8;
  REFUSED(WB_ERR_ARGUMENT, "multiples of 16");
  memory.offset = 0;
  memory.group = UINT32_MAX;
  REFUSED(WB_ERR_ARGUMENT, "65536 groups");
  memory.group = 0;
  object.bytes = 1025;
  REFUSED(WB_ERR_ARGUMENT, "has 1025 bytes; give a multiple of 16");
  object.bytes = 1024;
  object.blocks = 1;
  REFUSED(WB_ERR_ARGUMENT, "its blocks have 512");
  object.blocks = 0;
  REFUSED(WB_ERR_ARGUMENT, "its blocks have 0");
  object.blocks = 2;
  object.block = 2047;
  REFUSED(WB_ERR_ARGUMENT, "2047");
  object.block = UINT64_MAX;
  REFUSED(WB_ERR_ARGUMENT, "18446744073709551615");
  object.block = 8;
  object.segments = 2;
  REFUSED(WB_ERR_ARGUMENT, "1 segment(s), and the objects have 2");
  object.segments = 0;
  REFUSED(WB_ERR_ARGUMENT, "1 segment(s), and the objects have 0");
  const wb_segment_blocks many[] = {blocks(8, 2, 1024, SIZE_MAX), blocks(10, 2, 1024, 2)};
  FAILS(WB_ERR_ARGUMENT, "more than any memory holds", wb_segment_queue_store(queue, many, 2, &memory, 1, &transfer));
  object.segments = 1;
  memory.region = NULL;
  memory.address = (void*)(UINTPTR_MAX - 15);
  memory.bytes = 1024;
  REFUSED(WB_ERR_ARGUMENT, "give a range of memory");
  FAILS(WB_ERR_ARGUMENT, "`objects` is null", wb_segment_queue_load(queue, NULL, 1, &memory, 1, &transfer));
  FAILS(WB_ERR_ARGUMENT, "`segments` is null", wb_segment_queue_load(queue, &object, 1, NULL, 1, &transfer));
  FAILS(WB_ERR_ARGUMENT, "the result `transfer` is null", wb_segment_queue_load(queue, &object, 1, &memory, 1, NULL));
  FAILS(WB_ERR_HANDLE, "the segment queue is null", wb_segment_queue_load(NULL, &object, 1, &memory, 1, &transfer));
  FAILS(WB_ERR_HANDLE, "of another type", wb_segment_queue_load((wb_segment_queue_t*)volume, &object, 1, &memory, 1, &transfer));
  CHECK(transfer == NULL);

  // Nothing is transferred, and the queue works on.
  OK(wb_segment_queue_load(queue, NULL, 0, NULL, 0, &transfer));
  finish(transfer, 0);
  wb_segment_transfer_release(transfer);
  memory = memory_of(region, 0, 1024, 0);
  OK(wb_segment_queue_store(queue, &object, 1, &memory, 1, &transfer));
  size_t failed = 7;
  FAILS(WB_ERR_ARGUMENT, "`seconds` is -1", wb_segment_transfer_finish(transfer, -1, &failed));
  FAILS(WB_ERR_ARGUMENT, "the result `failed` is null", wb_segment_transfer_finish(transfer, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "another engine", wb_segment_transfer_wait_group(transfer, foreign, 0));
  FAILS(WB_ERR_HANDLE, "the stream is null", wb_segment_transfer_wait_group(transfer, NULL, 0));
  FAILS(WB_ERR_HANDLE, "the segment transfer is null", wb_segment_transfer_finish(NULL, 0, &failed));
  uint32_t ended = 7;
  FAILS(WB_ERR_HANDLE, "of another type", wb_segment_transfer_has_ended((wb_segment_transfer_t*)queue, &ended));
  FAILS(WB_ERR_ARGUMENT, "the result `bytes` is null", wb_segment_transfer_outcome(transfer, 0, NULL));
  CHECK(failed == 7 && ended == 7);
  finish(transfer, 0);
  CHECK(wb_segment_transfer_retain(transfer) == transfer && wb_segment_transfer_retain(NULL) == NULL);
  wb_segment_transfer_release(transfer);
  wb_segment_transfer_release(transfer);
  wb_segment_transfer_release(NULL);
  wb_segment_queue_release(queue);
  wb_region_release(region);
  wb_region_release(far);
  wb_stream_release(foreign);
  wb_engine_release(other);
  wb_volume_release(volume);
}

// Blocks that a device cannot read, commands without completion, and an engine that is told to stop.
static void faults(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M,media-error=read:200,lose-completion=300-301");
  wb_segment_queue_t* queue = queue_of(volume);
  static _Alignas(16) uint8_t memory[3 * BLOCK];
  const wb_segment_blocks objects[] = {blocks(198, 1, BLOCK, 1), blocks(200, 1, BLOCK, 1), blocks(202, 1, BLOCK, 1)};
  wb_segment_memory segments[3];
  for (int i = 0; i < 3; ++i) segments[i] = memory_at(memory + i * BLOCK, BLOCK, 0);
  fill_object(1, memory, sizeof(memory));
  wb_segment_transfer_t* transfer = NULL;
  OK(wb_segment_queue_store(queue, objects, 3, segments, 3, &transfer));
  finish(transfer, 0);
  wb_segment_transfer_release(transfer);
  memset(memory, 0, sizeof(memory));
  OK(wb_segment_queue_load(queue, objects, 3, segments, 3, &transfer));
  finish(transfer, 1);
  CHECK(outcome(transfer, 0) == BLOCK && outcome(transfer, 2) == BLOCK);
  uint64_t bytes = 5;
  for (int round = 0; round < 2; ++round) {
    FAILS(WB_ERR_OPERATION, "LBA 200", wb_segment_transfer_outcome(transfer, 1, &bytes));
    wb_error failed;
    CHECK(wb_last_error_operations(&failed, 1) == 1 && failed.lba == 200 && failed.opcode == 2 && (failed.status & 0x7ff) == 0x281);
  }
  CHECK(bytes == 5 && memcmp(memory, memory + 2 * BLOCK, BLOCK) != 0);
  wb_segment_transfer_release(transfer);

  OK(wb_engine_set_deadline(engine, 0.2));
  const wb_segment_blocks lost = blocks(300, 1, BLOCK, 1);
  OK(wb_segment_queue_load(queue, &lost, 1, segments, 1, &transfer));
  finish(transfer, 1);
  FAILS(WB_ERR_TIMEOUT, "LBA 300", wb_segment_transfer_outcome(transfer, 0, &bytes));
  wb_segment_transfer_release(transfer);
  OK(wb_engine_set_deadline(engine, 0));
  char* report = NULL;
  OK(wb_volume_recover(volume, &report));
  wb_string_free(report);
  load(queue, objects[2], segments[0]);
  wb_segment_queue_release(queue);
  wb_volume_release(volume);

  volume = open_volume(engine, "soft:mem:1M,latency=100ms");
  wb_segment_queue_options options = {.size = sizeof(options)};
  options.multiprocessors = 1;
  options.command_bytes = BLOCK;
  wb_stream_t* stream = NULL;
  OK(wb_stream_create(engine, &stream));
  OK(wb_segment_queue_create(volume, stream, &options, &queue));
  // More objects than there are warps: some have not begun when the kernel is told to stop.
  enum { MANY = 1024 };
  static _Alignas(16) uint8_t large[MANY * BLOCK];
  static wb_segment_blocks slow[MANY];
  static wb_segment_memory each[MANY];
  for (uint64_t i = 0; i < MANY; ++i) {
    slow[i] = blocks(i, 1, BLOCK, 1);
    each[i] = memory_at(large + i * BLOCK, BLOCK, 0);
  }
  size_t count = 0;
  OK(wb_segment_queue_load(queue, slow, MANY, each, MANY, &transfer));
  OK(wb_segment_transfer_finish(transfer, 0.05, &count));
  CHECK(count > 0);
  FAILS(WB_ERR_STOPPED, "0 of 512 bytes of an object were moved before", wb_segment_transfer_outcome(transfer, MANY - 1, &bytes));
  FAILS(WB_ERR_STATE, "finished already", wb_segment_transfer_finish(transfer, 1, &count));
  wb_segment_transfer_release(transfer);
  OK(wb_segment_queue_load(queue, slow, MANY, each, MANY, &transfer));
  OK(wb_engine_cancel(engine));
  const wb_code code = wb_segment_transfer_finish(transfer, 60, &count);
  CHECK(code == WB_ERR_STOPPED || (code == WB_OK && count > 0));
  FAILS(WB_ERR_STOPPED, "stop", wb_segment_transfer_outcome(transfer, MANY - 1, &bytes));
  wb_segment_transfer_t* next = NULL;
  FAILS(WB_ERR_STOPPED, "cancelled", wb_segment_queue_load(queue, slow, 1, each, 1, &next));
  CHECK(next == NULL);
  // The stream says that it was stopped, or that nothing is on it any more.
  wb_stream_synchronize(stream, 60);
  OK(wb_engine_resume(engine));
  wb_segment_transfer_release(transfer);
  // A release waits for the kernel, so that its memory is free afterwards.
  uint8_t* own = aligned_alloc(16, 4 * BLOCK);
  memset(own, 0x77, 4 * BLOCK);
  const wb_segment_blocks few = blocks(0, 4, 4 * BLOCK, 1);
  const wb_segment_memory at = memory_at(own, 4 * BLOCK, 0);
  OK(wb_segment_queue_load(queue, &few, 1, &at, 1, &transfer));
  wb_segment_queue_release(queue);
  wb_stream_release(stream);
  wb_segment_transfer_release(transfer);
  for (int i = 0; i < 4 * BLOCK; ++i) CHECK(own[i] == 0);
  free(own);
  wb_volume_release(volume);
}

static void count_release(void* count) { ++*(int*)count; }

// The program gives up its region while two segments of it are on their way.
static void kept(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M,latency=20ms");
  wb_stream_t* stream = NULL;
  OK(wb_stream_create(engine, &stream));
  wb_segment_queue_t* queue = NULL;
  OK(wb_segment_queue_create(volume, stream, NULL, &queue));
  uint8_t* own = aligned_alloc(16, 4 * BLOCK);
  int releases = 0;
  wb_region_t* region = NULL;
  OK(wb_region_import_device(engine, own, 4 * BLOCK, count_release, &releases, &region));
  const wb_segment_memory segments[] = {memory_of(region, 0, BLOCK, 0), memory_of(region, 2 * BLOCK, BLOCK, 1)};
  const wb_segment_blocks object = blocks(0, 2, 2 * BLOCK, 2);
  wb_segment_transfer_t* transfer = NULL;
  OK(wb_segment_queue_load(queue, &object, 1, segments, 2, &transfer));
  wb_region_release(region);
  CHECK(releases == 0);
  finish(transfer, 0);
  wb_segment_transfer_release(transfer);
  wb_segment_queue_release(queue);
  OK(wb_stream_synchronize(stream, 60));
  CHECK(releases == 1);
  wb_stream_release(stream);
  free(own);
  wb_volume_release(volume);
}

typedef struct {
  wb_volume_t* volume;
  wb_segment_queue_t* shared;
  uint64_t block;
  uint32_t number;
} work;

// Stores by a queue of the thread, and loads by one of both threads.
static void* worker(void* argument) {
  const work* mine = argument;
  wb_segment_queue_t* queue = queue_of(mine->volume);
  uint8_t* memory = aligned_alloc(16, 16 * BLOCK);
  const wb_segment_blocks object = blocks(mine->block, 16, 16 * BLOCK, 1);
  const wb_segment_memory segment = memory_at(memory, 16 * BLOCK, 0);
  for (uint32_t round = 0; round < 10; ++round) {
    fill_object(mine->number + round, memory, 16 * BLOCK);
    wb_segment_transfer_t* transfer = NULL;
    OK(wb_segment_queue_store(queue, &object, 1, &segment, 1, &transfer));
    finish(transfer, 0);
    wb_segment_transfer_release(transfer);
    memset(memory, 0, 16 * BLOCK);
    load(mine->shared, object, segment);
    CHECK(is_object(mine->number + round, memory, 16 * BLOCK));
  }
  free(memory);
  wb_segment_queue_release(queue);
  return NULL;
}

static void* finish_one(void* transfer) {
  finish(transfer, 0);
  return NULL;
}

static void threads(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M");
  wb_segment_queue_t* queue = queue_of(volume);
  pthread_t threads[2];
  work works[2] = {{volume, queue, 0, 100}, {volume, queue, 500, 200}};
  for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, worker, &works[i]) == 0);
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  wb_segment_queue_release(queue);
  wb_volume_release(volume);

  // A transfer that another thread finishes.
  volume = open_volume(engine, "soft:mem:1M,latency=20ms");
  queue = queue_of(volume);
  static _Alignas(16) uint8_t memory[BLOCK];
  const wb_segment_blocks object = blocks(0, 1, BLOCK, 1);
  const wb_segment_memory segment = memory_at(memory, BLOCK, 0);
  wb_segment_transfer_t* transfer = NULL;
  OK(wb_segment_queue_load(queue, &object, 1, &segment, 1, &transfer));
  CHECK(pthread_create(&threads[0], NULL, finish_one, transfer) == 0);
  uint64_t bytes = 0;
  const wb_code code = wb_segment_transfer_outcome(transfer, 0, &bytes);
  CHECK(code == WB_OK || code == WB_ERR_STATE);
  CHECK(pthread_join(threads[0], NULL) == 0);
  CHECK(outcome(transfer, 0) == BLOCK);
  wb_segment_transfer_release(transfer);
  wb_segment_queue_release(queue);
  wb_volume_release(volume);
}

int main(void) {
  wb_engine_t* engine = cpu_engine(2);
  scattered(engine);
  refused(engine);
  faults(engine);
  kept(engine);
  threads(engine);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
