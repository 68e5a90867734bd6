// Worlds whose PEs are threads of one process: memory, put and get, signals, atomic operations, and their errors.
#define _POSIX_C_SOURCE 200809L
#include "pes.h"

// 100 for each PE, and the PE itself.
static uint64_t mark(uint32_t pe) { return 100 + pe; }

static void facts(pe* p) {
  uint32_t me = 9, pes = 9;
  OK(wb_world_my_pe(p->world, &me));
  OK(wb_world_n_pes(p->world, &pes));
  CHECK(me == p->me && pes == p->pes);
  wb_world view;
  OK(wb_world_get_view(p->world, &view));
  CHECK(view.pe == me && view.size == pes && view.heap_bytes >= 1 << 20);
  char* json = NULL;
  OK(wb_world_info(p->world, &json));
  CHECK(strstr(json, "\"link\":\"threads\"") != NULL && strstr(json, "\"pes\":3") != NULL && strstr(json, "\"hosts\":[\"") != NULL);
  wb_string_free(json);
  double seconds = 0;
  OK(wb_world_timeout(p->world, &seconds));
  CHECK(seconds == 100);
  uint32_t rank = 0;
  char* reason = (char*)&rank;
  OK(wb_world_lost(p->world, &rank, &reason));
  CHECK(rank == WB_NO_MEMBER && reason == NULL);
  OK(wb_world_network_failures(p->world, &json));
  CHECK(strcmp(json, "[]") == 0);
  wb_string_free(json);
  OK(wb_world_recover(p->world, &json));
  CHECK(strcmp(json, "{\"pes\":[]}") == 0);
  wb_string_free(json);
  OK(wb_world_recover(p->world, NULL));
  OK(wb_world_barrier_host(p->world));
  OK(wb_world_quiet(p->world, NULL));
  char all[3 * 4];
  const char mine[4] = {'P', 'E', ' ', (char)('0' + me)};
  OK(wb_world_allgather(p->world, mine, 4, all));
  CHECK(memcmp(all, "PE 0PE 1PE 2", 12) == 0);
  OK(wb_world_allgather(p->world, NULL, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "different numbers of bytes: 1 on PE 0, 2 on PE 1", wb_world_allgather(p->world, mine, 1 + (me == 1), all));
}

static void put_and_get(pe* p) {
  const uint32_t next = (p->me + 1) % p->pes, before = (p->me + p->pes - 1) % p->pes;
  wb_symmetric_t* memory = NULL;
  OK(wb_symmetric_allocate(p->world, 64, 0, &memory));
  size_t bytes = 0, offset = 1, free_before = 0, free_after = 0;
  OK(wb_symmetric_bytes(memory, &bytes));
  OK(wb_symmetric_offset(memory, &offset));
  CHECK(bytes == 64 && offset % 128 == 0);
  void *address = NULL, *pointer = NULL;
  OK(wb_symmetric_address(memory, &address));
  OK(wb_symmetric_pointer(memory, p->me, &pointer));
  CHECK(address != NULL && address == pointer);
  OK(wb_symmetric_pointer(memory, next, &pointer));
  CHECK(pointer != NULL && pointer != address);
  uint64_t value = mark(p->me), found = 1;
  OK(wb_symmetric_read(memory, 56, &found, 8));
  CHECK(found == 0);
  OK(wb_symmetric_write(memory, 0, &value, 8));
  OK(wb_symmetric_put(memory, 8, &value, 8, next));
  OK(wb_world_barrier_all(p->world, NULL));
  OK(wb_symmetric_read(memory, 8, &found, 8));
  CHECK(found == mark(before));
  OK(wb_symmetric_get(memory, 0, &found, 8, next));
  CHECK(found == mark(next));

  // By kernels: from a region, from symmetric memory, on a stream, with a signal.
  wb_region_t* region = NULL;
  wb_stream_t* stream = NULL;
  OK(wb_region_allocate(p->engine, WB_PLACE_DEVICE, 16, &region));
  OK(wb_stream_create(p->engine, &stream));
  OK(wb_region_write(region, 8, &value, 8));
  OK(wb_symmetric_put_from(memory, 16, region, 8, 8, next, NULL));
  OK(wb_symmetric_put_from(memory, 24, memory, 0, 8, next, stream));
  OK(wb_world_quiet(p->world, stream));
  OK(wb_symmetric_put_signal(memory, 32, memory, 0, 8, memory, 40, 5, WB_SIGNAL_SET, next, stream));
  OK(wb_symmetric_wait(memory, 40, WB_CMP_EQ, 5, stream));
  OK(wb_symmetric_get_into(region, 0, memory, 0, 8, before, stream));
  OK(wb_world_barrier_all(p->world, stream));
  OK(wb_stream_synchronize(stream, 100));
  for (size_t at = 16; at <= 32; at += 8) {
    OK(wb_symmetric_read(memory, at, &found, 8));
    CHECK(found == mark(before));
  }
  OK(wb_region_read(region, 0, &found, 8));
  CHECK(found == mark(before));
  OK(wb_symmetric_signal(memory, 48, 2, WB_SIGNAL_ADD, next, NULL));
  OK(wb_symmetric_signal(memory, 48, 3, WB_SIGNAL_ADD, next, stream));
  OK(wb_symmetric_wait(memory, 48, WB_CMP_GE, 5, NULL));
  OK(wb_symmetric_wait_from(memory, 48, WB_CMP_EQ, 5, before, NULL));
  OK(wb_symmetric_wait_from(memory, 48, WB_CMP_EQ, 5, WB_ANY_PE, stream));
  uint64_t consumed = 0;
  OK(wb_symmetric_wait_shadow(memory, 48, consumed, 2, before, &consumed, NULL));
  OK(wb_symmetric_wait_shadow(memory, 48, consumed, 3, WB_ANY_PE, &consumed, stream));
  CHECK(consumed == 5);
  OK(wb_symmetric_get_into(memory, 56, memory, 0, 8, before, NULL));
  OK(wb_symmetric_read(memory, 56, &found, 8));
  CHECK(found == mark(before));
  OK(wb_stream_synchronize(stream, 100));
  wb_stream_release(stream);
  wb_region_release(region);

  // A release is not collective: the memory is free when all have released it and met.
  OK(wb_world_barrier_host(p->world));
  OK(wb_world_heap_free(p->world, &free_before));
  CHECK(wb_symmetric_retain(memory) == memory);
  wb_symmetric_release(memory);
  wb_symmetric_release(memory);
  OK(wb_world_barrier_host(p->world));
  OK(wb_world_heap_free(p->world, &free_after));
  CHECK(free_after == free_before + 128);
}

static void windows(pe* p) {
  const uint32_t next = (p->me + 1) % p->pes, before = (p->me + p->pes - 1) % p->pes;
  wb_region_t *region = NULL, *own = NULL;
  wb_window_t* window = NULL;
  wb_symmetric_t* signal = NULL;
  OK(wb_region_allocate(p->engine, WB_PLACE_DEVICE, 4096, &region));
  OK(wb_region_allocate(p->engine, WB_PLACE_DEVICE, 16, &own));
  OK(wb_symmetric_allocate(p->world, 8, 0, &signal));
  FAILS(WB_ERR_ARGUMENT, "not inside a region of 4096 bytes", wb_window_register(p->world, region, 4090, 8, &window));
  // The others learn of it, too.
  if (p->me == 1) {
    FAILS(WB_ERR_ARGUMENT, "not inside a region of 4096 bytes", wb_window_register(p->world, region, 4090, 8, &window));
  } else {
    FAILS(WB_ERR_WORLD, "rank 1: there is no memory to register", wb_window_register(p->world, region, 0, 8, &window));
  }
  FAILS(WB_ERR_WORLD, "must be the same on all ranks", wb_window_register(p->world, region, 0, 8 + 8 * (p->me == 1), &window));
  // Another place in the region of each PE.
  const size_t at = 16 * p->me;
  OK(wb_window_register(p->world, region, at, 64, &window));
  uint64_t value = mark(p->me), found = 0;
  OK(wb_region_write(own, 0, &value, 8));
  OK(wb_symmetric_put_from(window, 8, own, 0, 8, next, NULL));
  OK(wb_symmetric_put_signal(window, 56, own, 0, 8, signal, 0, 7, WB_SIGNAL_SET, next, NULL));
  OK(wb_symmetric_wait(signal, 0, WB_CMP_EQ, 7, NULL));
  OK(wb_world_barrier_all(p->world, NULL));
  for (size_t offset = 8; offset <= 56; offset += 48) {
    OK(wb_region_read(region, at + offset, &found, 8));
    CHECK(found == mark(before));
  }
  OK(wb_symmetric_get_into(own, 8, window, 56, 8, next, NULL));
  OK(wb_region_read(own, 8, &found, 8));
  CHECK(found == mark(p->me));
  FAILS(WB_ERR_ARGUMENT, "elements 60..68 are outside", wb_symmetric_put_from(window, 60, own, 0, 8, next, NULL));
  FAILS(WB_ERR_HANDLE, "of another type", wb_symmetric_put_from(region, 0, own, 0, 8, next, NULL));
  wb_window view;
  OK(wb_window_get_view(window, &view));
  CHECK(view.bytes == 64 && view.at == view.base);
  // PE 0 ends its use first. The window keeps the region.
  wb_region_release(region);
  CHECK(wb_window_retain(window) == window);
  wb_window_release(window);
  if (p->me == 0) wb_window_release(window);
  OK(wb_world_barrier_host(p->world));
  if (p->me != 0) {
    OK(wb_symmetric_get_into(own, 8, window, 56, 8, 0, NULL));
    OK(wb_region_read(own, 8, &found, 8));
    CHECK(found == mark(p->pes - 1));
    wb_window_release(window);
  }
  OK(wb_world_barrier_host(p->world));
  wb_symmetric_release(signal);
  wb_region_release(own);
}

static void atomics(pe* p) {
  wb_symmetric_t* memory = NULL;
  OK(wb_symmetric_allocate(p->world, 64, 64, &memory));
  const uint64_t one = 1, bit = 1ull << p->me, all_bits = ~0ull, seven = 7, none = 0;
  uint64_t found = 99;
  OK(wb_symmetric_atomic(memory, 0, WB_U64, WB_ATOMIC_ADD, &one, NULL, NULL, 0, NULL));
  OK(wb_symmetric_atomic(memory, 0, WB_U64, WB_ATOMIC_ADD, &one, NULL, &found, 0, NULL));
  CHECK(found < 2ull * p->pes);
  OK(wb_symmetric_atomic(memory, 8, WB_U64, WB_ATOMIC_OR, &bit, NULL, NULL, 0, NULL));
  OK(wb_symmetric_atomic(memory, 16, WB_I64, WB_ATOMIC_XOR, &bit, NULL, NULL, 0, NULL));
  OK(wb_symmetric_atomic(memory, 8, WB_U64, WB_ATOMIC_AND, &all_bits, NULL, NULL, 0, NULL));
  OK(wb_world_barrier_all(p->world, NULL));
  OK(wb_symmetric_atomic(memory, 0, WB_U64, WB_ATOMIC_FETCH, NULL, NULL, &found, 0, NULL));
  CHECK(found == 2ull * p->pes);
  for (size_t at = 8; at <= 16; at += 8) {
    OK(wb_symmetric_get(memory, at, &found, 8, 0));
    CHECK(found == (1ull << p->pes) - 1);
  }
  // On the own PE: set, swap, compare and swap, floating point.
  OK(wb_symmetric_atomic(memory, 24, WB_U64, WB_ATOMIC_SET, &seven, NULL, NULL, p->me, NULL));
  OK(wb_symmetric_atomic(memory, 24, WB_U64, WB_ATOMIC_COMPARE_SWAP, &one, &none, &found, p->me, NULL));
  CHECK(found == 7);
  OK(wb_symmetric_atomic(memory, 24, WB_U64, WB_ATOMIC_COMPARE_SWAP, &one, &seven, &found, p->me, NULL));
  OK(wb_symmetric_atomic(memory, 24, WB_U64, WB_ATOMIC_SWAP, &seven, NULL, &found, p->me, NULL));
  CHECK(found == 1);
  const float half = 0.5f;
  float was = 1;
  OK(wb_symmetric_atomic(memory, 32, WB_F32, WB_ATOMIC_SET, &half, NULL, NULL, p->me, NULL));
  OK(wb_symmetric_atomic(memory, 32, WB_F32, WB_ATOMIC_FETCH, NULL, NULL, &was, p->me, NULL));
  CHECK(was == 0.5f);
  FAILS(WB_ERR_ARGUMENT, "for integers", wb_symmetric_atomic(memory, 32, WB_F32, WB_ATOMIC_ADD, &half, NULL, NULL, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "`op` is 8", wb_symmetric_atomic(memory, 0, WB_U64, 8, &one, NULL, NULL, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "`dtype` is 1", wb_symmetric_atomic(memory, 0, WB_U8, WB_ATOMIC_ADD, &one, NULL, NULL, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "`value` is null", wb_symmetric_atomic(memory, 0, WB_U64, WB_ATOMIC_ADD, NULL, NULL, NULL, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "`fetched` is null", wb_symmetric_atomic(memory, 0, WB_U64, WB_ATOMIC_FETCH, NULL, NULL, NULL, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "not elements of 8 bytes", wb_symmetric_atomic(memory, 4, WB_U64, WB_ATOMIC_ADD, &one, NULL, NULL, 0, NULL));
  wb_stream_t* stream = NULL;
  OK(wb_stream_create(p->engine, &stream));
  FAILS(WB_ERR_ARGUMENT, "pass null for `stream`", wb_symmetric_atomic(memory, 0, WB_U64, WB_ATOMIC_FETCH, NULL, NULL, &found, 0, stream));
  wb_stream_release(stream);
  OK(wb_world_barrier_all(p->world, NULL));
  wb_symmetric_release(memory);
}

static void bad_arguments(pe* p) {
  wb_symmetric_t *memory = NULL, *none = NULL;
  FAILS(WB_ERR_SPACE, "do not fit into the symmetric heap", wb_symmetric_allocate(p->world, 1 << 30, 0, &none));
  FAILS(WB_ERR_ARGUMENT, "an alignment of 3", wb_symmetric_allocate(p->world, 8, 3, &none));
  FAILS(WB_ERR_ARGUMENT, "`memory` is null", wb_symmetric_allocate(p->world, 8, 0, NULL));
  FAILS(WB_ERR_HANDLE, "the world is null", wb_symmetric_allocate(NULL, 8, 0, &none));
  FAILS(WB_ERR_HANDLE, "the world is of another type", wb_world_barrier_all((wb_world_t*)p->engine, NULL));
  CHECK(none == NULL);
  OK(wb_symmetric_allocate(p->world, 8, 0, &memory));
  uint64_t value = 0;
  void* pointer = NULL;
  FAILS(WB_ERR_ARGUMENT, "PE 3: this world has 3 PEs", wb_symmetric_put(memory, 0, &value, 8, 3));
  FAILS(WB_ERR_ARGUMENT, "PE 7: this world has 3 PEs", wb_symmetric_pointer(memory, 7, &pointer));
  FAILS(WB_ERR_ARGUMENT, "elements 4..12 are outside a symmetric array of 8", wb_symmetric_get(memory, 4, &value, 8, 0));
  FAILS(WB_ERR_ARGUMENT, "outside", wb_symmetric_write(memory, SIZE_MAX, &value, 8));
  FAILS(WB_ERR_ARGUMENT, "`data` is null", wb_symmetric_read(memory, 0, NULL, 8));
  FAILS(WB_ERR_ARGUMENT, "`op` is 1", wb_symmetric_signal(memory, 0, 1, 1, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "`cmp` is 6", wb_symmetric_wait(memory, 0, 6, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "PE 3: this world has 3 PEs", wb_symmetric_wait_from(memory, 0, WB_CMP_EQ, 0, 3, NULL));
  FAILS(WB_ERR_ARGUMENT, "PE 3: this world has 3 PEs", wb_symmetric_wait_shadow(memory, 0, 0, 0, 3, &value, NULL));
  FAILS(WB_ERR_ARGUMENT, "`consumed` is null", wb_symmetric_wait_shadow(memory, 0, 0, 0, 0, NULL, NULL));
  FAILS(WB_ERR_ARGUMENT, "9223372036854775808 signals", wb_symmetric_wait_shadow(memory, 0, 0, UINT64_C(1) << 63, 0, &value, NULL));
  CHECK(value == 0);
  FAILS(WB_ERR_HANDLE, "of another type", wb_symmetric_put_from(memory, 0, p->engine, 0, 8, 0, NULL));
  // Memory of another engine, and a stream of another engine.
  wb_engine_t* other = cpu_engine();
  wb_region_t* foreign = NULL;
  wb_stream_t* stream = NULL;
  OK(wb_region_allocate(other, WB_PLACE_DEVICE, 8, &foreign));
  OK(wb_stream_create(other, &stream));
  FAILS(WB_ERR_ARGUMENT, "another engine", wb_world_barrier_all(p->world, stream));
  wb_world_t* alone = NULL;
  const wb_world_options small = {.size = sizeof(small), .heap_bytes = 1 << 20};
  OK(wb_world_create_local(&other, 1, &small, &alone));
  wb_symmetric_t* elsewhere = NULL;
  OK(wb_symmetric_allocate(alone, 8, 0, &elsewhere));
  FAILS(WB_ERR_ARGUMENT, "belongs to another world", wb_symmetric_put_from(memory, 0, elsewhere, 0, 8, 0, NULL));
  FAILS(WB_ERR_ARGUMENT, "belongs to another world",
        wb_symmetric_put_signal(memory, 0, memory, 0, 8, elsewhere, 0, 1, WB_SIGNAL_SET, 0, NULL));
  wb_symmetric_release(elsewhere);
  wb_world_release(alone);
  wb_stream_release(stream);
  wb_region_release(foreign);
  wb_engine_release(other);
  OK(wb_world_barrier_host(p->world));
  OK(wb_symmetric_free(memory));
  FAILS(WB_ERR_STATE, "given this memory up already", wb_symmetric_free(memory));
  FAILS(WB_ERR_STATE, "given this memory up already", wb_symmetric_read(memory, 0, &value, 8));
  wb_symmetric_release(memory);
}

// A kernel in flight keeps the memory that its run was told to keep, and freeing it is an error on all PEs.
static void kernels_keep_memory(pe* p) {
  wb_symmetric_t* memory = NULL;
  wb_stream_t* stream = NULL;
  wb_run_t* run = NULL;
  OK(wb_symmetric_allocate(p->world, 8, 0, &memory));
  OK(wb_stream_create(p->engine, &stream));
  OK(wb_run_begin(p->engine, "own", stream, &run));
  if (p->me == 1) OK(wb_run_keep(run, memory));
  OK(wb_run_keep(run, p->world));
  FAILS(WB_ERR_BUSY, "on PE(s) [1]", wb_symmetric_free(memory));
  OK(wb_run_finish(run, 100, NULL));
  wb_run_release(run);
  wb_stream_release(stream);
  wb_symmetric_release(memory);
}

static void steps(pe* p) {
  facts(p);
  put_and_get(p);
  windows(p);
  atomics(p);
  bad_arguments(p);
  kernels_keep_memory(p);
  wb_world_release(p->world);
}

// PEs that make different calls.
static void out_of_step(pe* p) {
  wb_symmetric_t* memory = NULL;
  FAILS(WB_ERR_WORLD, "must make the same collective calls", wb_symmetric_allocate(p->world, p->me == 0 ? 8 : 16, 0, &memory));
  wb_world_release(p->world);
}

static pthread_barrier_t both;

// A PE that makes no call.
static void absent(pe* p) {
  if (p->me != 0) FAILS(WB_ERR_TIMEOUT, "for rank 0", wb_world_barrier_host(p->world));
  pthread_barrier_wait(&both);
  wb_world_release(p->world);
}

// The end of a world that a PE still uses is a loss or a leave that the others name.
static void leaves(pe* p) {
  if (p->me == 1) {
    wb_world_release(p->world);
    return;
  }
  FAILS(WB_ERR_WORLD, "rank 1 is gone: it left the world", wb_world_barrier_host(p->world));
  wb_world_release(p->world);
}

// The same over the software NIC: PEs are out of reach of loads and stores.
static void over_the_network(pe* p) {
  const uint32_t next = (p->me + 1) % p->pes, before = (p->me + p->pes - 1) % p->pes;
  wb_symmetric_t* memory = NULL;
  OK(wb_symmetric_allocate(p->world, 16, 0, &memory));
  void* pointer = &pointer;
  OK(wb_symmetric_pointer(memory, next, &pointer));
  CHECK(pointer == NULL);
  const uint64_t value = mark(p->me);
  uint64_t found = 0;
  OK(wb_symmetric_put(memory, 0, &value, 8, next));
  OK(wb_world_barrier_all(p->world, NULL));
  OK(wb_symmetric_get(memory, 0, &found, 8, next));
  CHECK(found == value);
  OK(wb_symmetric_read(memory, 0, &found, 8));
  CHECK(found == mark(before));
  char* json = NULL;
  OK(wb_world_info(p->world, &json));
  CHECK(strstr(json, "\"transport\":\"soft\"") != NULL && strstr(json, "\"queues_per_peer\":2") != NULL);
  wb_string_free(json);
  wb_symmetric_release(memory);
  wb_world_release(p->world);
}

static void bad_options(void) {
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  wb_world_options options = {.size = sizeof(options), .heap_bytes = 1 << 20, .timeout = 0.2};
  const wb_unique_id nothing = {{0}};
  options.heap = 4;
  FAILS(WB_ERR_ARGUMENT, "`heap` is 4", wb_world_create(engine, &options, &world));
  options.heap = 0;
  options.transport = 6;
  FAILS(WB_ERR_ARGUMENT, "`transport` is 6", wb_world_create(engine, &options, &world));
  options.transport = 0;
  options.checked = 3;
  FAILS(WB_ERR_ARGUMENT, "`checked` is 3", wb_world_create(engine, &options, &world));
  options.checked = 0;
  options.queues_per_peer = 3;
  FAILS(WB_ERR_ARGUMENT, "3 is not a power of two", wb_world_create(engine, &options, &world));
  options.queues_per_peer = 0;
  options.ranks = 2;
  FAILS(WB_ERR_ARGUMENT, "`rank` is 0 and `ranks` 2", wb_world_create(engine, &options, &world));
  FAILS(WB_ERR_ARGUMENT, "leave them zero", wb_world_create_local(&engine, 1, &options, &world));
  options.id = &nothing;
  FAILS(WB_ERR_ARGUMENT, "not those of an id", wb_world_create(engine, &options, &world));
  options.id = NULL;
  options.ranks = 0;
  FAILS(WB_ERR_ARGUMENT, "`count` is 0", wb_world_create_local(&engine, 0, &options, &world));
  FAILS(WB_ERR_ARGUMENT, "`world` is null", wb_world_create(engine, &options, NULL));
  options.heap_bytes = (size_t)1 << 60;
  FAILS(WB_ERR_SPACE, "no symmetric heap", wb_world_create(engine, &options, &world));
  CHECK(world == NULL);
  // One PE without a launcher.
  OK(wb_world_create(engine, NULL, &world));
  CHECK(wb_world_retain(world) == world);
  wb_world_release(world);
  OK(wb_world_barrier_all(world, NULL));
  wb_world_release(world);
  wb_engine_release(engine);
}

int main(void) {
  bad_options();
  wb_world_options options = {.size = sizeof(options), .heap_bytes = 1 << 20, .timeout = 100};
  on_all(3, &options, steps);
  on_all(2, &options, leaves);
  on_all(2, &options, out_of_step);
  options.timeout = 0.3;
  CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
  on_all(2, &options, absent);
  options.timeout = 100;
  options.transport = WB_TRANSPORT_SOFT;
  options.queues_per_peer = 2;
  on_all(2, &options, over_the_network);
  puts("ok");
  return 0;
}
