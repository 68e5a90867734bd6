// KV stores: objects of the host and of pages of tensors, evictions, damaged data, failures of devices, two threads with one store.
#include <pthread.h>

#include "pages.h"

enum { UNIT = 4096, PAGES = 64, TENSORS = 3, WIDE = 1536, NARROW = 512 };

static const char* folder;

// A store of `units` allocation units, 64 objects and keys of 16 bytes.
static wb_kv_t* store_of(wb_volume_t* volume, uint64_t units) { return create_store(volume, "cache", units * UNIT, 64); }

static void write_one(wb_kv_t* store, uint32_t number, size_t bytes) {
  uint8_t key[KEY], *data = malloc(bytes);
  keys_of(&number, 1, key);
  fill_object(number, data, bytes);
  const wb_kv_data object = {data, bytes};
  OK(wb_kv_write(store, key, KEY, 1, &object));
  free(data);
}

// Returns true if the store has the right object of a number.
static int has_object(wb_kv_t* store, uint32_t number, size_t bytes) {
  uint8_t key[KEY], *data = malloc(bytes);
  keys_of(&number, 1, key);
  size_t read = 0;
  const wb_code code = wb_kv_read(store, key, KEY, data, bytes, &read);
  CHECK(code == WB_OK || code == WB_ERR_NOT_FOUND);
  CHECK(code != WB_OK || (read == bytes && is_object(number, data, bytes)));
  free(data);
  return code == WB_OK;
}

static void stores(wb_engine_t* engine) {
  char device[4096];
  snprintf(device, sizeof(device), "soft:%s/kv.img", folder);
  const char* devices[] = {device};
  const uint64_t arrays[] = {128, 64 * 128, 100 * UNIT};
  uint64_t bytes = 0;
  OK(wb_volume_bytes_for(arrays, 3, 1, NULL, &bytes));
  wb_volume_t* volume = NULL;
  OK(wb_volume_create(engine, devices, 1, bytes, NULL, &volume));
  char* json = NULL;
  OK(wb_kv_list(volume, &json));
  CHECK(strcmp(json, "[]") == 0);
  wb_string_free(json);

  // Sizes that no store has.
  wb_kv_t* store = NULL;
  wb_kv_options options = {.size = sizeof(options)};
  FAILS(WB_ERR_ARGUMENT, "0 objects: a KV store has 1 to", wb_kv_create(volume, "cache", &options, &store));
  options.objects = 33;
  FAILS(WB_ERR_ARGUMENT, "0 bytes: a KV store has", wb_kv_create(volume, "cache", &options, &store));
  options.bytes = 100 * UNIT - 1;
  options.key_bytes = 20;
  FAILS(WB_ERR_ARGUMENT, "keys of 20 bytes", wb_kv_create(volume, "cache", &options, &store));
  options.key_bytes = 0;
  FAILS(WB_ERR_ARGUMENT, "cannot be the name", wb_kv_create(volume, "no name", &options, &store));
  FAILS(WB_ERR_ARGUMENT, "`name` is null", wb_kv_create(volume, NULL, &options, &store));
  FAILS(WB_ERR_ARGUMENT, "`options` is null", wb_kv_create(volume, "cache", NULL, &store));
  FAILS(WB_ERR_ARGUMENT, "the result `store` is null", wb_kv_create(volume, "cache", &options, NULL));
  FAILS(WB_ERR_HANDLE, "the volume is null", wb_kv_create(NULL, "cache", &options, &store));
  options.bytes = 1000 * UNIT;
  FAILS(WB_ERR_SPACE, "", wb_kv_create(volume, "cache", &options, &store));
  options.bytes = 100 * UNIT - 1;
  options.size = 3;
  FAILS(WB_ERR_ARGUMENT, "sizeof(wb_kv_options)", wb_kv_create(volume, "cache", &options, &store));
  options.size = sizeof(options);
  CHECK(store == NULL);

  OK(wb_kv_create(volume, "cache", &options, &store));
  memset(&options, 0xff, sizeof(options));
  options.size = offsetof(wb_kv_options, key_bytes);
  OK(wb_kv_get_options(store, &options));
  CHECK(options.bytes == 100 * UNIT && options.objects == 64 && options.key_bytes == UINT32_MAX);
  options.size = sizeof(options);
  OK(wb_kv_get_options(store, &options));
  CHECK(options.key_bytes == 32 && options.reserved == 0);
  FAILS(WB_ERR_ARGUMENT, "the result `options` is null", wb_kv_get_options(store, NULL));
  uint8_t key[32] = {1, 2, 3};
  const wb_kv_data object = {"warpbell kv", 11};
  OK(wb_kv_write(store, key, 32, 1, &object));
  wb_kv_t* second = NULL;
  FAILS(WB_ERR_BUSY, "is open already", wb_kv_open(volume, "cache", &second));
  FAILS(WB_ERR_BUSY, "is open already", wb_kv_remove(volume, "cache"));
  FAILS(WB_ERR_EXISTS, "is called `cache` already", wb_kv_create(volume, "cache", &options, &second));
  FAILS(WB_ERR_NOT_FOUND, "no KV store is called `other`; there is `cache`", wb_kv_open(volume, "other", &second));
  CHECK(second == NULL && wb_kv_retain((wb_kv_t*)volume) == NULL && wb_kv_retain(store) == store);
  OK(wb_kv_list(volume, &json));
  CHECK(strstr(json, "\"name\":\"cache\"") && strstr(json, "\"objects\":64") && strstr(json, "\"key_bytes\":32"));
  has(json, "\"bytes\":409600");
  FAILS(WB_ERR_ARGUMENT, "the result `json` is null", wb_kv_list(volume, NULL));
  // The store keeps the volume, and its last reference closes it.
  wb_volume_release(volume);
  wb_kv_release(store);
  size_t found = 0;
  OK(wb_kv_prefix(store, key, 32, 1, &found));
  CHECK(found == 1);
  wb_kv_release(store);
  wb_kv_release(NULL);

  // All of it is there for the next program, without counters.
  volume = open_volume(engine, device);
  OK(wb_kv_open(volume, "cache", &store));
  char text[16] = {0};
  size_t read = 0;
  OK(wb_kv_read(store, key, 32, text, sizeof(text), &read));
  CHECK(read == 11 && strcmp(text, "warpbell kv") == 0);
  wb_kv_stats stats = stats_of(store);
  CHECK(stats.objects == 1 && stats.bytes == 11 && stats.free_bytes == 99 * UNIT && stats.pinned == 0 && stats.hits == 1);
  CHECK(stats.misses == 0 && stats.evictions == 0 && stats.lost_evictions == 0 && stats.damaged_records == 0 && stats.index_bytes > 0);
  stats.size = 2 * sizeof(size_t);
  stats.bytes = 77;
  OK(wb_kv_get_stats(store, &stats));
  CHECK(stats.objects == 1 && stats.bytes == 77);
  FAILS(WB_ERR_HANDLE, "the KV store is null", wb_kv_get_stats(NULL, &stats));
  FAILS(WB_ERR_HANDLE, "the KV store is of another type", wb_kv_get_stats((wb_kv_t*)volume, &stats));
  wb_kv_release(store);
  OK(wb_kv_remove(volume, "cache"));
  FAILS(WB_ERR_NOT_FOUND, "no KV store is called `cache`", wb_kv_remove(volume, "cache"));
  wb_volume_release(volume);
}

static void objects(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M");
  wb_kv_t* store = store_of(volume, 10);
  const uint32_t numbers[] = {1, 2, 3, 9};
  uint8_t keys[4 * KEY], data[3][5000];
  keys_of(numbers, 4, keys);
  wb_kv_data all[3];
  for (uint32_t i = 0; i < 3; ++i) {
    fill_object(numbers[i], data[i], 5000 - i);
    all[i].data = data[i];
    all[i].bytes = 5000 - i;
  }
  OK(wb_kv_write(store, keys, KEY, 3, all));
  uint64_t bytes[4] = {7, 7, 7, 7};
  OK(wb_kv_lookup(store, keys, KEY, 4, bytes));
  CHECK(bytes[0] == 5000 && bytes[1] == 4999 && bytes[2] == 4998 && bytes[3] == 0);
  size_t found = 0, read = 0;
  OK(wb_kv_prefix(store, keys, KEY, 4, &found));
  CHECK(found == 3);
  OK(wb_kv_prefix(store, keys + 3 * KEY, KEY, 1, &found));
  CHECK(found == 0 && has_object(store, 2, 4999) && !has_object(store, 9, 1));
  wb_kv_stats stats = stats_of(store);
  CHECK(stats.hits == 4 && stats.misses == 2 && stats.free_bytes == 4 * UNIT);

  // Keys and memory of a wrong size, texts and places that are missing.
  uint8_t back[5000];
  FAILS(WB_ERR_ARGUMENT, "has keys of 16 bytes, not 32", wb_kv_lookup(store, keys, 32, 2, bytes));
  FAILS(WB_ERR_ARGUMENT, "has keys of 16 bytes, not 0", wb_kv_prefix(store, keys, 0, 4, &found));
  FAILS(WB_ERR_ARGUMENT, "not 17", wb_kv_touch(store, keys, 17, 1));
  FAILS(WB_ERR_ARGUMENT, "not 15", wb_kv_delete(store, keys, 15, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "not 32", wb_kv_read(store, keys, 32, back, sizeof(back), &read));
  FAILS(WB_ERR_ARGUMENT, "not 32", wb_kv_write(store, keys, 32, 1, all));
  FAILS(WB_ERR_ARGUMENT, "not 32", wb_kv_verify(store, back, 32, 1, &found));
  FAILS(WB_ERR_ARGUMENT, "not 32", wb_kv_take_evictions(store, back, 32, 1, &found));
  FAILS(WB_ERR_ARGUMENT, "which no memory holds", wb_kv_lookup(store, keys, KEY, SIZE_MAX, bytes));
  FAILS(WB_ERR_ARGUMENT, "`keys` is null", wb_kv_lookup(store, NULL, KEY, 1, bytes));
  FAILS(WB_ERR_ARGUMENT, "the result `bytes` is null", wb_kv_lookup(store, keys, KEY, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "the result `found` is null", wb_kv_prefix(store, keys, KEY, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "has 5000 bytes, and there is memory for 4999", wb_kv_read(store, keys, KEY, back, 4999, &read));
  FAILS(WB_ERR_ARGUMENT, "`data` is null", wb_kv_read(store, keys, KEY, NULL, 1, &read));
  FAILS(WB_ERR_ARGUMENT, "the result `bytes` is null", wb_kv_read(store, keys, KEY, back, 5000, NULL));
  FAILS(WB_ERR_NOT_FOUND, "holds no object with key 09000000", wb_kv_read(store, keys + 3 * KEY, KEY, back, 5000, &read));
  FAILS(WB_ERR_ARGUMENT, "`objects` is null", wb_kv_write(store, keys, KEY, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "the result `damaged` is null", wb_kv_verify(store, NULL, KEY, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "`keys` is null", wb_kv_take_evictions(store, NULL, KEY, 1, &found));
  FAILS(WB_ERR_HANDLE, "of another type", wb_kv_lookup((wb_kv_t*)volume, keys, KEY, 1, bytes));
  CHECK(read == 0 && found == 0 && bytes[0] == 5000);
  OK(wb_kv_lookup(store, NULL, KEY, 0, NULL));
  OK(wb_kv_write(store, NULL, KEY, 0, NULL));

  // Objects that cannot be: nothing of the call is stored.
  uint8_t twice[2 * KEY];
  const uint32_t same[] = {9, 9};
  keys_of(same, 2, twice);
  FAILS(WB_ERR_ARGUMENT, "is given twice", wb_kv_write(store, twice, KEY, 2, all));
  const wb_kv_data empty[] = {{data[0], 16}, {data[0], 0}}, none = {NULL, 16}, large = {data[0], 11 * UNIT};
  FAILS(WB_ERR_ARGUMENT, "an object of 0 bytes", wb_kv_write(store, keys + 2 * KEY, KEY, 2, empty));
  FAILS(WB_ERR_ARGUMENT, "`objects[0].data` is null", wb_kv_write(store, keys, KEY, 1, &none));
  FAILS(WB_ERR_ARGUMENT, "an object of 45056 bytes", wb_kv_write(store, keys, KEY, 1, &large));
  uint8_t* much = calloc(6, UNIT);
  const wb_kv_data half[] = {{much, 6 * UNIT}, {much, 6 * UNIT}};
  FAILS(WB_ERR_SPACE, "has no space for 2 object(s)", wb_kv_write(store, keys, KEY, 2, half));
  free(much);
  CHECK(has_object(store, 1, 5000) && has_object(store, 3, 4998) && !has_object(store, 9, 16));

  // The least recently used objects go first, and their keys are taken in portions.
  OK(wb_kv_touch(store, keys, KEY, 1));
  for (uint32_t n = 20; n < 24; ++n) write_one(store, n, 2 * UNIT);
  const uint32_t gone[] = {2, 3};
  uint8_t expected[2 * KEY], taken[5 * KEY];
  CHECK(has_object(store, 1, 5000) && !has_object(store, 2, 4999) && stats_of(store).evictions == 2);
  OK(wb_kv_take_evictions(store, NULL, KEY, 0, &found));
  CHECK(found == 0);
  OK(wb_kv_take_evictions(store, taken, KEY, 1, &found));
  CHECK(found == 1);
  write_one(store, 24, 2 * UNIT);
  OK(wb_kv_take_evictions(store, taken + KEY, KEY, 4, &found));
  CHECK(found == 2);
  keys_of(gone, 2, expected);
  const int order = memcmp(taken, expected, 2 * KEY) == 0;
  const uint32_t reversed[] = {3, 2}, next = 20;
  keys_of(reversed, 2, expected);
  CHECK(order || memcmp(taken, expected, 2 * KEY) == 0);
  keys_of(&next, 1, expected);
  CHECK(memcmp(taken + 2 * KEY, expected, KEY) == 0);
  OK(wb_kv_take_evictions(store, taken, KEY, 5, &found));
  CHECK(found == 0);

  // Damaged objects: as many as there are, and as many keys as fit.
  uint8_t object[2 * UNIT];
  for (uint32_t n = 22; n < 24; ++n) {
    fill_object(n, object, sizeof(object));
    damage(volume, object, sizeof(object));
  }
  const uint32_t bad = 22;
  keys_of(&bad, 1, expected);
  FAILS(WB_ERR_DAMAGED, "are damaged: checksum", wb_kv_read(store, expected, KEY, object, sizeof(object), &read));
  memset(taken, 0, sizeof(taken));
  OK(wb_kv_verify(store, taken, KEY, 1, &found));
  CHECK(found == 2 && (taken[0] == 22 || taken[0] == 23) && taken[KEY] == 0);
  OK(wb_kv_verify(store, taken, KEY, 5, &found));
  CHECK(found == 2 && taken[0] + taken[KEY] == 45 && taken[2 * KEY] == 0);
  OK(wb_kv_verify(store, NULL, KEY, 0, &found));
  CHECK(found == 2);
  uint64_t deleted = 0;
  OK(wb_kv_delete(store, taken, KEY, 2, &deleted));
  CHECK(deleted == 2);
  OK(wb_kv_delete(store, taken, KEY, 2, NULL));
  OK(wb_kv_verify(store, NULL, KEY, 0, &found));
  CHECK(found == 0 && stats_of(store).objects == 3);

  OK(wb_engine_cancel(engine));
  FAILS(WB_ERR_STOPPED, "cancel", wb_kv_verify(store, NULL, KEY, 0, &found));
  OK(wb_engine_resume(engine));
  // A store that somebody removed around it.
  const char* arrays[] = {"cache:kv", "cache:objects", "cache:slab"};
  OK(wb_volume_remove(volume, arrays, 3));
  FAILS(WB_ERR_ARGUMENT, "was removed from its volume", wb_kv_write(store, keys, KEY, 3, all));
  wb_kv_release(store);
  wb_volume_release(volume);
}

// Tensors of two sizes of pages: one of the program, two in one region.
typedef struct {
  uint8_t* own;
  wb_region_t* region;
  wb_segment_memory tensors[TENSORS];
  size_t page_bytes[TENSORS];
  size_t each;
  wb_kv_pages pages;
} paged;

// Objects have `each` pages of each tensor.
static paged pages_of(wb_engine_t* engine, size_t each) {
  paged p = {0};
  p.own = aligned_alloc(16, PAGES * WIDE);
  CHECK(p.own != NULL);
  OK(wb_region_allocate(engine, WB_PLACE_DEVICE, PAGES * (WIDE + NARROW), &p.region));
  p.tensors[0] = memory_at(p.own, PAGES * WIDE, 0);
  p.tensors[1] = memory_of(p.region, 0, PAGES * NARROW, 1);
  p.tensors[2] = memory_of(p.region, PAGES * NARROW, 0, 2);
  for (int i = 0; i < TENSORS; ++i) p.page_bytes[i] = i == 1 ? NARROW : WIDE;
  p.pages.size = sizeof(p.pages);
  p.pages.tensor_count = TENSORS;
  p.each = each;
  return p;
}

// Names tensors, which are in the structure itself, and the pages of `keys` keys.
static const wb_kv_pages* named(paged* p, const uint64_t* pages, size_t keys) {
  p->pages.tensors = p->tensors;
  p->pages.page_bytes_each = p->page_bytes;
  p->pages.pages = pages;
  p->pages.page_count = keys * p->each;
  return &p->pages;
}

static void free_pages(paged* p) {
  wb_region_release(p->region);
  free(p->own);
}

static size_t object_bytes(const paged* p) { return p->each * (2 * WIDE + NARROW); }

static uint8_t* place(paged* p, int tensor, uint64_t page) {
  if (tensor == 0) return p->own + page * WIDE;
  void* address = NULL;
  OK(wb_region_address(p->region, &address));
  return (uint8_t*)address + (tensor == 1 ? page * NARROW : PAGES * NARROW + page * WIDE);
}

// Copies the object of a number to its pages, or checks that they have it.
static void put(paged* p, uint32_t number, const uint64_t* pages) {
  size_t at = 0;
  for (int t = 0; t < TENSORS; ++t) {
    for (size_t k = 0; k < p->each; ++k) {
      for (size_t i = 0; i < p->page_bytes[t]; ++i) place(p, t, pages[k])[i] = byte_of(number, at++);
    }
  }
}

static int has_pages(paged* p, uint32_t number, const uint64_t* pages) {
  size_t at = 0;
  for (int t = 0; t < TENSORS; ++t) {
    for (size_t k = 0; k < p->each; ++k) {
      for (size_t i = 0; i < p->page_bytes[t]; ++i) {
        if (place(p, t, pages[k])[i] != byte_of(number, at++)) return 0;
      }
    }
  }
  return 1;
}

static void transferred(wb_engine_t* engine, size_t each) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M");
  wb_kv_t* store = store_of(volume, 64);
  wb_segment_queue_t* queue = queue_of(volume);
  paged p = pages_of(engine, each);
  const size_t bytes = object_bytes(&p);
  const uint32_t numbers[] = {1, 2, 3, 4};
  uint8_t keys[4 * KEY];
  keys_of(numbers, 4, keys);
  uint64_t pages[12], other[12];
  for (uint64_t i = 0; i < 12; ++i) {
    pages[i] = i * 5 % 16;
    other[i] = PAGES - 1 - i;
  }
  for (int i = 0; i < 3; ++i) put(&p, numbers[i], pages + i * each);
  wb_segment_transfer_t* transfer = NULL;
  OK(wb_kv_store(store, queue, keys, KEY, 3, named(&p, pages, 3), &transfer));
  // Nobody finds the objects before their end.
  size_t found = 7;
  OK(wb_kv_prefix(store, keys, KEY, 3, &found));
  CHECK(found == 0 && stats_of(store).pinned == 3);
  finish(transfer, 0);
  for (size_t i = 0; i < 3; ++i) CHECK(outcome(transfer, i) == bytes);
  wb_segment_transfer_release(transfer);
  CHECK(stats_of(store).pinned == 0);
  // The host has the same objects, tensor by tensor.
  for (uint32_t n = 1; n < 4; ++n) CHECK(has_object(store, n, bytes));
  write_one(store, 4, bytes);

  // Into other pages, with keys that the store does not have.
  const uint32_t wanted[] = {4, 9, 1, 3};
  keys_of(wanted, 4, keys);
  memset(p.own, 0, PAGES * WIDE);
  OK(wb_kv_load(store, queue, keys, KEY, 4, named(&p, other, 4), &transfer));
  CHECK(stats_of(store).pinned == 3);
  size_t count = 0;
  OK(wb_segment_transfer_objects(transfer, &count));
  CHECK(count == 4);
  finish(transfer, 1);
  uint64_t absent = 5;
  FAILS(WB_ERR_NOT_FOUND, "holds no object with key 09000000", wb_segment_transfer_outcome(transfer, 1, &absent));
  CHECK(absent == 5 && stats_of(store).pinned == 0);
  for (size_t i = 0; i < 4; ++i) {
    if (i == 1) continue;
    CHECK(outcome(transfer, i) == bytes && has_pages(&p, wanted[i], other + i * each));
  }
  for (size_t i = 0; i < WIDE; ++i) CHECK(place(&p, 0, other[each])[i] == 0);
  wb_segment_transfer_release(transfer);

  // A damaged object is an error of its key alone.
  uint8_t* data = malloc(bytes);
  fill_object(1, data, bytes);
  damage(volume, data, bytes);
  free(data);
  OK(wb_kv_load(store, queue, keys, KEY, 4, named(&p, other, 4), &transfer));
  finish(transfer, 2);
  FAILS(WB_ERR_DAMAGED, "with key 01000000", wb_segment_transfer_outcome(transfer, 2, &absent));
  CHECK(outcome(transfer, 0) == bytes && outcome(transfer, 3) == bytes && has_pages(&p, 3, other + 3 * each));
  wb_segment_transfer_release(transfer);

  // Objects of another size than the pages, and those that are replaced while they are loaded.
  const uint32_t odd = 8;
  uint8_t key[KEY];
  keys_of(&odd, 1, key);
  write_one(store, odd, bytes - 16);
  FAILS(WB_ERR_ARGUMENT, "bytes, and its memory", wb_kv_load(store, queue, key, KEY, 1, named(&p, other, 1), &transfer));
  CHECK(stats_of(store).pinned == 0);
  write_one(store, odd, bytes);
  OK(wb_kv_load(store, queue, key, KEY, 1, named(&p, other, 1), &transfer));
  OK(wb_kv_delete(store, key, KEY, 1, NULL));
  finish(transfer, 0);
  CHECK(has_pages(&p, odd, other));
  wb_segment_transfer_release(transfer);

  // Handles in any order, and what is dropped: neither load nor store leaves anything behind.
  OK(wb_kv_store(store, queue, key, KEY, 1, named(&p, pages, 1), &transfer));
  wb_segment_transfer_release(transfer);
  CHECK(stats_of(store).pinned == 0);
  OK(wb_kv_prefix(store, key, KEY, 1, &found));
  CHECK(found == 0);
  OK(wb_kv_load(store, queue, keys, KEY, 1, named(&p, pages, 1), &transfer));
  wb_kv_release(store);
  wb_segment_queue_release(queue);
  wb_volume_release(volume);
  finish(transfer, 0);
  CHECK(has_pages(&p, 4, pages));
  wb_segment_transfer_release(transfer);
  free_pages(&p);
}

static void count_release(void* count) { ++*(int*)count; }

// The program gives up its tensors while their pages are on their way.
static void kept(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M,latency=20ms");
  wb_kv_t* store = store_of(volume, 64);
  wb_stream_t* stream = NULL;
  OK(wb_stream_create(engine, &stream));
  wb_segment_queue_t* queue = NULL;
  OK(wb_segment_queue_create(volume, stream, NULL, &queue));
  uint8_t* own = aligned_alloc(16, 8 * NARROW);
  int releases = 0;
  wb_region_t* region = NULL;
  OK(wb_region_import_device(engine, own, 8 * NARROW, count_release, &releases, &region));
  const wb_segment_memory tensor = memory_of(region, 0, 0, 0);
  const uint32_t numbers[] = {9, 1, 2};
  uint8_t keys[3 * KEY];
  keys_of(numbers, 3, keys);
  write_one(store, 1, 2 * NARROW);
  write_one(store, 2, 2 * NARROW);
  const uint64_t numbered[] = {0, 1, 2, 3, 4, 5};
  wb_kv_pages pages = {.size = sizeof(pages)};
  pages.tensors = &tensor;
  pages.tensor_count = 1;
  pages.page_bytes = NARROW;
  pages.pages = numbered;
  pages.page_count = 6;
  wb_segment_transfer_t* transfer = NULL;
  OK(wb_kv_load(store, queue, keys, KEY, 3, &pages, &transfer));
  wb_region_release(region);
  CHECK(releases == 0);
  finish(transfer, 1);
  CHECK(is_object(1, own + 2 * NARROW, 2 * NARROW) && is_object(2, own + 4 * NARROW, 2 * NARROW));
  wb_segment_transfer_release(transfer);
  wb_segment_queue_release(queue);
  OK(wb_stream_synchronize(stream, 60));
  CHECK(releases == 1);
  wb_stream_release(stream);
  free(own);
  wb_kv_release(store);
  wb_volume_release(volume);
}

// Streams that wait for layers, while the rest is on its way.
static void layers(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M,latency=20ms");
  wb_kv_t* store = store_of(volume, 64);
  wb_segment_queue_t* queue = queue_of(volume);
  wb_stream_t* compute = NULL;
  OK(wb_stream_create(engine, &compute));
  paged p = pages_of(engine, 1);
  const uint32_t number = 6, none = 7;
  const uint64_t page = 3;
  uint8_t key[KEY], missing[KEY];
  keys_of(&number, 1, key);
  keys_of(&none, 1, missing);
  write_one(store, number, object_bytes(&p));
  wb_segment_transfer_t* transfer = NULL;
  OK(wb_kv_load(store, queue, key, KEY, 1, named(&p, &page, 1), &transfer));
  OK(wb_segment_transfer_wait_group(transfer, compute, 1));
  FAILS(WB_ERR_ARGUMENT, "group 3 of a transfer that has 3", wb_segment_transfer_wait_group(transfer, compute, 3));
  // The kernel changes the page of tensor 1 after the load.
  void* address = place(&p, 1, page);
  const uint64_t count = NARROW / 8, first = 1000, step = 1;
  const wb_argument arguments[] = {{&address, 8, p.region}, {&count, 8, NULL}, {&first, 8, NULL}, {&step, 8, NULL}};
  const wb_grid grid = {1, 64};
  OK(wb_stream_launch(compute, "wb_iota", grid, arguments, 4));
  finish(transfer, 0);
  OK(wb_stream_synchronize(compute, 60));
  uint64_t values[NARROW / 8];
  memcpy(values, address, sizeof(values));
  for (uint64_t i = 0; i < count; ++i) CHECK(values[i] == first + i);
  FAILS(WB_ERR_STATE, "is finished", wb_segment_transfer_wait_group(transfer, compute, 0));
  wb_segment_transfer_release(transfer);

  // Without objects the layers are there.
  for (size_t keys = 0; keys < 2; ++keys) {
    OK(wb_kv_load(store, queue, missing, KEY, keys, named(&p, &page, keys), &transfer));
    OK(wb_segment_transfer_wait_group(transfer, compute, 2));
    FAILS(WB_ERR_ARGUMENT, "group 3 of", wb_segment_transfer_wait_group(transfer, compute, 3));
    finish(transfer, keys);
    wb_segment_transfer_release(transfer);
    OK(wb_kv_store(store, queue, missing, KEY, 0, named(&p, &page, 0), &transfer));
    OK(wb_segment_transfer_wait_group(transfer, compute, 2));
    finish(transfer, 0);
    wb_segment_transfer_release(transfer);
  }
  OK(wb_stream_synchronize(compute, 60));
  wb_stream_release(compute);
  wb_segment_queue_release(queue);
  wb_kv_release(store);
  wb_volume_release(volume);
  free_pages(&p);
}

static void refused(wb_engine_t* engine) {
  wb_volume_t *volume = open_volume(engine, "soft:mem:1M"), *second = open_volume(engine, "soft:mem:1M");
  wb_kv_t* store = store_of(volume, 8);
  wb_stream_t* stream = NULL;
  OK(wb_stream_create(engine, &stream));
  wb_segment_queue_t *queue = NULL, *far = queue_of(second);
  OK(wb_segment_queue_create(volume, stream, NULL, &queue));
  paged p = pages_of(engine, 2);
  const uint32_t numbers[] = {1, 2, 3};
  uint8_t keys[3 * KEY];
  keys_of(numbers, 3, keys);
  uint64_t pages[] = {1, 2, 3, 4, 5, 6};
  wb_segment_transfer_t* transfer = NULL;
#define REFUSED(code, part) FAILS(code, part, wb_kv_store(store, queue, keys, KEY, 2, &p.pages, &transfer))
  FAILS(WB_ERR_ARGUMENT, "make a queue for the store's volume", wb_kv_store(store, far, keys, KEY, 2, named(&p, pages, 2), &transfer));
  FAILS(WB_ERR_ARGUMENT, "make a queue for the store's volume", wb_kv_load(store, far, keys, KEY, 2, named(&p, pages, 2), &transfer));
  FAILS(WB_ERR_ARGUMENT, "not 32", wb_kv_load(store, queue, keys, 32, 1, &p.pages, &transfer));
  FAILS(WB_ERR_ARGUMENT, "`pages` is null", wb_kv_load(store, queue, keys, KEY, 2, NULL, &transfer));
  FAILS(WB_ERR_ARGUMENT, "`keys` is null", wb_kv_store(store, queue, NULL, KEY, 2, &p.pages, &transfer));
  FAILS(WB_ERR_ARGUMENT, "the result `transfer` is null", wb_kv_store(store, queue, keys, KEY, 2, &p.pages, NULL));
  FAILS(WB_ERR_HANDLE, "the segment queue is null", wb_kv_store(store, NULL, keys, KEY, 2, &p.pages, &transfer));
  FAILS(WB_ERR_HANDLE, "the KV store is of another type", wb_kv_load((wb_kv_t*)queue, queue, keys, KEY, 2, &p.pages, &transfer));
  p.pages.page_bytes = NARROW;
  REFUSED(WB_ERR_ARGUMENT, "set one of `page_bytes` and `page_bytes_each`");
  p.pages.page_bytes = 0;
  p.pages.page_bytes_each = NULL;
  REFUSED(WB_ERR_ARGUMENT, "set one of `page_bytes` and `page_bytes_each`");
  named(&p, NULL, 2);
  REFUSED(WB_ERR_ARGUMENT, "`pages` is null, with a count of 4");
  named(&p, pages, 2);
  pages[3] = PAGES;
  REFUSED(WB_ERR_ARGUMENT, "`pages[3]` is 64, and the tensor with the fewest pages has 64");
  pages[3] = UINT64_MAX;
  REFUSED(WB_ERR_ARGUMENT, "`pages[3]` is 18446744073709551615");
  pages[3] = 4;
  p.pages.tensors = NULL;
  REFUSED(WB_ERR_ARGUMENT, "`tensors` is null");
  named(&p, pages, 2);
  p.pages.tensor_count = 0;
  REFUSED(WB_ERR_ARGUMENT, "`tensor_count` is 0");
  p.pages.tensor_count = TENSORS;
  p.page_bytes[2] = 0;
  REFUSED(WB_ERR_ARGUMENT, "no page of 0 bytes");
  p.page_bytes[2] = PAGES * WIDE + 16;
  REFUSED(WB_ERR_ARGUMENT, "tensor 2 has 98304 bytes, and no page of 98320 bytes");
  p.page_bytes[2] = WIDE + 8;
  REFUSED(WB_ERR_ARGUMENT, "tensor 2: a segment of 1544 bytes at");
  p.page_bytes[2] = WIDE;
  p.tensors[2].offset += 8;
  REFUSED(WB_ERR_ARGUMENT, "tensor 2: a segment of 1536 bytes at");
  p.tensors[2].offset -= 8;
  p.tensors[1].address = p.own;
  REFUSED(WB_ERR_ARGUMENT, "tensor 1 names two kinds of memory");
  p.tensors[1].address = NULL;
  p.tensors[1].offset = PAGES * (NARROW + WIDE) - 16;
  REFUSED(WB_ERR_ARGUMENT, "and its region has");
  p.tensors[1].offset = 0;
  p.tensors[0].group = 1 << 16;
  REFUSED(WB_ERR_ARGUMENT, "65536 groups");
  p.tensors[0].group = 0;
  p.pages.page_count = SIZE_MAX;
  REFUSED(WB_ERR_ARGUMENT, "which no memory holds");
  p.pages.page_count = 5;
  REFUSED(WB_ERR_ARGUMENT, "`page_count` is 5 for 2 keys");
  p.pages.page_count = 0;
  REFUSED(WB_ERR_ARGUMENT, "`page_count` is 0 for 2 keys");
  FAILS(WB_ERR_ARGUMENT, "`page_count` is 2 for 0 keys", wb_kv_load(store, queue, NULL, KEY, 0, named(&p, pages, 1), &transfer));
  named(&p, pages, 2);
  p.pages.size = 3;
  REFUSED(WB_ERR_ARGUMENT, "sizeof(wb_kv_pages)");
  p.pages.size = sizeof(p.pages);
  wb_kv_t* small = create_store(second, "small", UNIT, 1);
  FAILS(WB_ERR_ARGUMENT, "an object of 7168 bytes", wb_kv_store(small, far, keys, KEY, 1, named(&p, pages, 1), &transfer));
  wb_kv_release(small);
  named(&p, pages, 2);
  keys_of((const uint32_t[]){2, 2}, 2, keys);
  REFUSED(WB_ERR_ARGUMENT, "is given twice");
  keys_of(numbers, 3, keys);
  CHECK(transfer == NULL && stats_of(store).pinned == 0 && stats_of(store).objects == 0);

  // Stores in flight have the space that another one needs.
  wb_segment_transfer_t* flying[4];
  for (int i = 0; i < 4; ++i) {
    const uint32_t number = 100 + (uint32_t)i;
    uint8_t key[KEY];
    keys_of(&number, 1, key);
    OK(wb_kv_store(store, queue, key, KEY, 1, named(&p, pages, 1), &flying[i]));
  }
  named(&p, pages, 2);
  REFUSED(WB_ERR_SPACE, "of which pins and reservations keep");
  for (int i = 3; i >= 0; --i) {
    if (i % 2 == 0) finish(flying[i], 0);
    wb_segment_transfer_release(flying[i]);
  }
  OK(wb_kv_store(store, queue, keys, KEY, 2, &p.pages, &transfer));
  finish(transfer, 0);
  wb_segment_transfer_release(transfer);
  CHECK(stats_of(store).objects == 4 && stats_of(store).free_bytes == 0);
  transfer = NULL;
  OK(wb_stream_synchronize(stream, 60));
  OK(wb_engine_cancel(engine));
  FAILS(WB_ERR_STOPPED, "cancel", wb_kv_load(store, queue, keys, KEY, 1, named(&p, pages, 1), &transfer));
  OK(wb_engine_resume(engine));
  CHECK(transfer == NULL && stats_of(store).pinned == 0);
  wb_stream_release(stream);
  wb_segment_queue_release(queue);
  wb_segment_queue_release(far);
  wb_kv_release(store);
  wb_volume_release(volume);
  wb_volume_release(second);
  free_pages(&p);
#undef REFUSED
}

// Blocks that a device cannot write, or cannot read.
static void faults(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M,media-error=read:600-663,media-error=write:1000-1063");
  wb_kv_t* store = store_of(volume, 180);
  wb_segment_queue_t* queue = queue_of(volume);
  paged p = pages_of(engine, 4);
  const uint64_t pages[] = {1, 2, 3, 4};
  uint8_t key[KEY];
  int unwritten = 0, unread = 0;
  for (uint32_t n = 0; n < 40; ++n) {
    keys_of(&n, 1, key);
    put(&p, n, pages);
    wb_segment_transfer_t* transfer = NULL;
    OK(wb_kv_store(store, queue, key, KEY, 1, named(&p, pages, 1), &transfer));
    size_t count = 0, found = 0;
    wb_error failed;
    uint64_t bytes = 0;
    if (wb_segment_transfer_finish(transfer, 60, &count) != WB_OK) {
      CHECK(wb_last_error_code() == WB_ERR_OPERATION && wb_last_error_operations(&failed, 1) == 1);
      CHECK(failed.lba >= 992 && failed.lba < 1064 && failed.opcode == 1);
      FAILS(WB_ERR_OPERATION, "LBA", wb_segment_transfer_outcome(transfer, 0, &bytes));
      OK(wb_kv_prefix(store, key, KEY, 1, &found));
      CHECK(found == 0);
      unwritten += 1;
    }
    wb_segment_transfer_release(transfer);
    CHECK(stats_of(store).pinned == 0);
    OK(wb_kv_prefix(store, key, KEY, 1, &found));
    if (found == 0) continue;
    OK(wb_kv_load(store, queue, key, KEY, 1, &p.pages, &transfer));
    OK(wb_segment_transfer_finish(transfer, 60, &count));
    if (count == 1) {
      FAILS(WB_ERR_OPERATION, "LBA", wb_segment_transfer_outcome(transfer, 0, &bytes));
      CHECK(wb_last_error_operations(&failed, 1) == 1 && failed.opcode == 2);
      unread += 1;
    } else {
      CHECK(has_pages(&p, n, pages));
    }
    wb_segment_transfer_release(transfer);
  }
  CHECK(unwritten > 0 && unread > 0);
  wb_segment_queue_release(queue);
  wb_kv_release(store);
  wb_volume_release(volume);
  free_pages(&p);
}

typedef struct {
  wb_engine_t* engine;
  wb_volume_t* volume;
  wb_kv_t* store;
  uint32_t first;
} work;

// Each thread has a queue and pages of its own, and the store is common to both.
static void* worker(void* argument) {
  const work* mine = argument;
  wb_segment_queue_t* queue = queue_of(mine->volume);
  paged p = pages_of(mine->engine, 1);
  const uint64_t pages[] = {5, 6, 50, 51};
  for (uint32_t round = 0; round < 10; ++round) {
    const uint32_t numbers[] = {mine->first + 2 * round, mine->first + 2 * round + 1};
    uint8_t keys[2 * KEY];
    keys_of(numbers, 2, keys);
    put(&p, numbers[0], pages);
    put(&p, numbers[1], pages + 1);
    wb_segment_transfer_t *storing = NULL, *load = NULL;
    OK(wb_kv_store(mine->store, queue, keys, KEY, 2, named(&p, pages, 2), &storing));
    finish(storing, 0);
    wb_segment_transfer_release(storing);
    OK(wb_kv_load(mine->store, queue, keys, KEY, 2, named(&p, pages + 2, 2), &load));
    size_t taken = 0;
    uint8_t evicted[8 * KEY];
    OK(wb_kv_take_evictions(mine->store, evicted, KEY, 8, &taken));
    CHECK(taken == 0);
    finish(load, 0);
    CHECK(has_pages(&p, numbers[0], pages + 2) && has_pages(&p, numbers[1], pages + 3));
    wb_segment_transfer_release(load);
    OK(wb_kv_delete(mine->store, keys, KEY, 1, NULL));
    CHECK(!has_object(mine->store, numbers[0], object_bytes(&p)) && has_object(mine->store, numbers[1], object_bytes(&p)));
    // Errors are those of the thread.
    wb_kv_t* none = NULL;
    FAILS(WB_ERR_BUSY, "is open already", wb_kv_open(mine->volume, "cache", &none));
  }
  wb_segment_queue_release(queue);
  free_pages(&p);
  return NULL;
}

static void threads(wb_engine_t* engine) {
  wb_volume_t* volume = open_volume(engine, "soft:mem:1M");
  wb_kv_t* store = store_of(volume, 60);
  pthread_t threads[2];
  work works[2] = {{engine, volume, store, 1000}, {engine, volume, store, 2000}};
  for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, worker, &works[i]) == 0);
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(stats_of(store).objects == 20 && stats_of(store).pinned == 0);
  wb_kv_release(store);
  wb_volume_release(volume);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  folder = argv[1];
  wb_engine_t* engine = cpu_engine(2);
  stores(engine);
  objects(engine);
  transferred(engine, 1);
  transferred(engine, 3);
  kept(engine);
  layers(engine);
  refused(engine);
  faults(engine);
  threads(engine);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
