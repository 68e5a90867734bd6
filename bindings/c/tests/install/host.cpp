// The C++ interface with exceptions: values that share and release objects, arguments, errors. Prints `ok`.
#include <warpbell.hpp>
#ifdef WITH_DEVICE
#include <warpbell/array.cuh>
#include <warpbell/shmem.cuh>
#include <warpbell/table.cuh>
using namespace warpbell;
#endif

#include <cstdio>
#include <cstring>

namespace wb = warpbell::host;

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                            \
    }                                                                      \
  } while (0)

// Calls a function, and returns the code that it throws; WB_OK if it throws nothing.
template <class F> static wb_code thrown(F call, const char* part = "") {
  try {
    call();
  } catch (const wb::error& e) {
    return std::strstr(e.what(), part) ? e.code() : WB_ERR_INTERNAL;
  }
  return WB_OK;
}

static int objects(const wb::engine& engine) {
  CHECK(engine.kind() == wb::engine_kind::cpu);
  CHECK(engine.info().find("\"cpu\"") != std::string::npos);
  CHECK(engine.grid(64).blocks >= 1);
  wb::region memory = wb::region::allocate(engine, wb::place::device, 4096);
  const wb::region copy = memory;
  CHECK(copy.get() == memory.get());
  const uint32_t numbers[] = {7, 8, 9};
  memory.write(numbers, 3, 1);
  wb::region moved = std::move(memory);
  CHECK(!memory && moved);
  CHECK(thrown([&] { static_cast<void>(memory.bytes()); }, "the region is null") == WB_ERR_HANDLE);
  CHECK((moved.read<uint32_t>(4) == std::vector<uint32_t>{0, 7, 8, 9}));
  moved.reset();
  CHECK(copy.bytes() >= 4096 && copy.address<uint32_t>()[2] == 8);

  // The program's own memory goes back to it once, after the last copy. A call that fails does not call back.
  int releases = 0;
  std::vector<char> own(8192);
  {
    const wb::region imported = wb::region::import_device(engine, own.data(), own.size(), [&] { ++releases; });
    const wb::region another = imported;
    imported.fill(0, own.size(), 3);
    CHECK(releases == 0 && own[5] == 3);
  }
  CHECK(releases == 1);
  CHECK(thrown([&] { static_cast<void>(wb::region::import_host(engine, nullptr, 1, [&] { ++releases; })); }) == WB_ERR_ARGUMENT);
  CHECK(releases == 1);
  return 0;
}

static int kernels(const wb::engine& engine) {
  const wb::region numbers = wb::region::allocate(engine, wb::place::device, 8000);
  CHECK(thrown([&] { static_cast<void>(wb::launch(engine, "no_such_kernel", wb_grid{1, 1}, numbers)); }, "no_such_kernel") ==
        WB_ERR_NOT_FOUND);
  // An argument without an object is an error before anything is launched.
  CHECK(
      thrown([&] { static_cast<void>(wb::launch(engine, "wb_iota", wb_grid{1, 1}, wb::region(), uint64_t{1}, uint64_t{0}, uint64_t{1})); },
             "null") == WB_ERR_HANDLE);
  wb::run run = wb::launch(engine, "wb_iota", engine.grid(), numbers, uint64_t{1000}, uint64_t{0}, uint64_t{1});
  CHECK(run.finish(10) >= 0 && run.has_ended());
  CHECK(numbers.read<uint64_t>(1, 999)[0] == 999);
  CHECK(thrown([&] { static_cast<void>(run.finish()); }) == WB_ERR_STATE);

  const wb::stream stream = wb::stream::create(engine), other = wb::stream::create(engine);
  numbers.fill(0, 8000, 0);
  stream.launch("wb_iota", engine.grid(), numbers, uint64_t{10}, uint64_t{0}, uint64_t{1});
  other.wait_for(stream);
  other.synchronize(10);
  stream.synchronize(10);
  CHECK(stream.raw() == nullptr && numbers.read<uint64_t>(1, 9)[0] == 9);
  run = wb::run::begin(engine, "mine", stream);
  run.keep(numbers);
  run.stop();
  return 0;
}

static int storage(const wb::engine& engine) {
  const std::vector<double> numbers{1, 2, 3, 4};
  struct record {
    uint32_t key, value;
  };
  const record records[] = {{1, 2}, {3, 4}};
  const wb::volume volume = wb::volume::create(engine, {"soft:mem"}, wb::volume::bytes_for({32, 16}) + (1 << 20));
  volume.store("numbers", numbers.data(), numbers.size());
  volume.store("records", records, 2);
  CHECK(volume.load<double>("numbers", 4) == numbers && volume.arrays().find("records") != std::string::npos && volume.verify());
  CHECK(thrown([&] { volume.store("numbers", numbers.data(), 4); }, "numbers") == WB_ERR_EXISTS);
  const wb::cache cache = wb::cache::open(volume, 1 << 20);
  const auto array = wb::array<double>::open(cache, "numbers");
  CHECK(array.size() == 4 && array.read(1, 2) == std::vector<double>({2, 3}));
  CHECK(wb::array<record>::open(cache, "records").read(1, 1)[0].value == 4);
  CHECK(thrown([&] { wb::array<uint32_t>::open(cache, "numbers"); }) == WB_ERR_ARGUMENT);
  const double nine = 9;
  array.write(3, &nine, 1);
  CHECK(cache.occupancy().dirty == 1);
  cache.flush();
  CHECK(cache.occupancy().dirty == 0 && array.view().array.count == 4 && volume.stats().writes > 0);
  const wb::buffer buffer = wb::buffer::allocate(volume, 4096);
  buffer.write(&nine, 1);
  CHECK(buffer.address() != nullptr && buffer.bytes() >= 4096 && volume.view().volume != nullptr);
  return 0;
}

static int tables(const wb::engine& engine) {
  const wb::volume volume = wb::volume::create(engine, {"soft:mem"}, 1 << 20);
  std::vector<float> rows(100 * 16);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  CHECK(wb::table::store(volume, "rows", rows.data(), 100, 16).layout().row_bytes == 64);
  wb::table_options options;
  options.cache_bytes = 64 * 64;
  options.hot_rows = {99};
  const wb::table table = wb::table::open(volume, "rows", options);
  CHECK(table.verify() && table.info().find("\"rows\":100") != std::string::npos && table.view().rows == 100);
  const std::vector<uint32_t> narrow{3, 99};
  const std::vector<uint64_t> wide{3, 99};
  const std::vector<float> found = table.gather<float>(narrow);
  CHECK(found.size() == 32 && found[0] == 48 && found[31] == 1599 && table.gather<float>(wide) == found);
  CHECK(table.gather<float>({narrow.data(), 1}).size() == 16 && table.gather<float>(std::vector<uint64_t>()).empty());
  CHECK(thrown([&] { table.gather<int32_t>(wide); }, "holds f32, not i32") == WB_ERR_ARGUMENT);
  CHECK(thrown([&] { table.gather<float>(std::vector<uint64_t>{1, 100}); }, "index 100 at position 1") == WB_ERR_ARGUMENT);
  CHECK(thrown([&] { static_cast<void>(wb::table().gather<float>(wide)); }, "the table is null") == WB_ERR_HANDLE);

  // To a region, to a buffer, and by numbers in both.
  const wb::region region = wb::region::allocate(engine, wb::place::device, 4096);
  const wb::buffer buffer = wb::buffer::allocate(volume, 4096);
  table.gather(wide, region);
  CHECK(region.read<float>(32) == found);
  region.write(wide.data(), 2);
  table.gather(wb::row_indices::in<uint64_t>(region, 2), buffer);
  std::vector<float> back(32);
  buffer.read(back.data(), 32);
  CHECK(back == found);
  buffer.write(narrow.data(), 2);
  const wb::batch started = table.start(wb::row_indices::in<uint32_t>(buffer, 2), region);
  started.finish(10);
  CHECK(region.read<float>(32) == found && thrown([&] { started.address(); }) == WB_ERR_STATE);
  const wb::stream stream = wb::stream::create(engine);
  table.start(stream, wide, buffer).finish(10);
  const wb::batch batch = table.prefetch(wide);
  CHECK(batch.rows() == 2 && thrown([&] { batch.read<float>(32); }) == WB_ERR_STATE);
  batch.finish();
  CHECK(batch.has_ended() && batch.read<float>(32) == found && batch.read<float>(1, 31)[0] == 1599 && batch.address<float>() != nullptr);

  // A batch, a table and a scratch are arguments of kernels.
  wb::launch(engine, "wb_iota", engine.grid(), batch, uint64_t{2}, uint64_t{5}, uint64_t{1}).finish(10);
  const wb::table_scratch scratch = table.scratch(8, 4);
  scratch.begin();
  CHECK(scratch.view().in_flight == 4);
  wb::launch(engine, "wb_table_gather_u64", engine.grid(64), table, batch, uint64_t{2}, region, scratch).finish(10);
  CHECK(region.read<float>(1, 16)[0] == 6 * 16);

  table.scatter(wide, std::vector<float>(32, 0.5f), wb::combine::add);
  CHECK(table.gather<float>(narrow)[31] == 1599.5f && table.stats().written == 2);
  table.scatter(wide, region);
  table.flush();
  table.drop_caches();
  CHECK(!table.verify() && table.gather<float>(wide)[0] == 5 * 16);
  table.reset_stats();
  CHECK(table.stats().rows == 0);
  CHECK(wb::table::create(volume, "zeros", wb::layout_of<double>({4, 4}, 10)).layout().shape[1] == 4);
  CHECK(thrown([&] { wb::table::create(volume, "zeros", wb::layout_of<double>({8}, 10)); }) == WB_ERR_EXISTS);
  CHECK(thrown([&] { wb::table::create(volume, "x", wb::layout_of<double>(std::vector<uint64_t>(9, 2), 10)); }) == WB_ERR_ARGUMENT);
  CHECK(thrown([&] { wb::table::import_file(volume, "x", "none.npy"); }, "none.npy") == WB_ERR_NOT_FOUND);
  wb::table::remove(volume, "rows");
  CHECK(wb::table::list(volume).find("rows\":") != std::string::npos &&
        thrown([&] { wb::table::open(volume, "rows"); }) == WB_ERR_NOT_FOUND);
  return 0;
}

static int kv_stores(const wb::engine& engine) {
  const wb::volume volume = wb::volume::create(engine, {"soft:mem"}, 1 << 20);
  using key = wb::kv_key<16>;
  const std::vector<key> keys{{1}, {2}, {3}};
  wb::kv_options options;
  options.bytes = 40 << 10;
  options.objects = 32;
  CHECK(thrown([&] { wb::kv_store::open(volume, "cache"); }, "no KV store is called") == WB_ERR_NOT_FOUND);
  options.key_bytes = 16;
  wb::kv_store store = wb::kv_store::create(volume, "cache", options);
  CHECK(thrown([&] { wb::kv_store::open(volume, "cache"); }, "is open already") == WB_ERR_BUSY);
  CHECK(store.options().bytes == 40 << 10 && store.options().key_bytes == 16);
  const std::vector<uint8_t> data(6144, 5);
  store.write<16>({{keys[0], data.data(), 100}, {keys[1], data.data(), data.size()}});
  CHECK((store.lookup(keys) == std::vector<uint64_t>{100, 6144, 0}) && store.prefix(keys) == 2 && store.prefix(keys[2]) == 0);
  store.touch(keys[0]);
  std::vector<uint8_t> back(6144);
  CHECK(store.read(keys[1], back.data(), back.size()) == 6144 && back == data);
  CHECK(thrown([&] { store.read(keys[1], back.data(), 10); }) == WB_ERR_ARGUMENT);
  CHECK(thrown([&] { store.prefix(wb::kv_key<32>{}); }, "keys of 16 bytes, not 32") == WB_ERR_ARGUMENT);
  CHECK(thrown([&] { store.verify(); }) == WB_ERR_ARGUMENT && store.verify<16>().empty());
  CHECK(store.erase({keys.data(), 1, 16}) == 1 && store.erase(keys) == 1 && store.stats().objects == 0);
  CHECK(thrown([] { static_cast<void>(wb::kv_store().stats()); }, "the KV store is null") == WB_ERR_HANDLE);

  // Pages of two tensors, one of the program: stored, and loaded into others behind a stream.
  const wb::region region = wb::region::allocate(engine, wb::place::device, 8 * 1024);
  const auto own = std::make_unique<std::array<uint64_t, 8 * 64>>();
  const std::vector<wb::kv_tensor> tensors{{wb::in_region(region), 1024}, {wb::at_address(own->data(), sizeof *own, 1), 512}};
  std::vector<uint64_t> numbers(1024);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  region.write(numbers.data(), numbers.size());
  for (size_t i = 0; i < own->size(); ++i) (*own)[i] = 5000 + i;
  const wb::stream stream = wb::stream::create(engine), compute = wb::stream::create(engine);
  wb::segment_queue_options few;
  few.multiprocessors = 1;
  const wb::segment_queue queue = wb::segment_queue::create(volume, stream, few);
  const std::vector<key> first{keys[0], keys[1]};
  CHECK(store.store(queue, first, tensors, {0, 1, 2, 3}).finish(10) == 0);
  const wb::segment_transfer load = store.load(queue, keys, tensors, {4, 5, 6, 7, 2, 3});
  load.wait_group(compute, 1);
  CHECK(thrown([&] { load.bytes(0); }, "in flight") == WB_ERR_STATE);
  CHECK(load.objects() == 3 && load.finish() == 1 && load.has_ended() && load.bytes(0) == 3072 && !load.failure(1));
  CHECK(load.failure(2)->code() == WB_ERR_NOT_FOUND && thrown([&] { load.bytes(2); }, "holds no object") == WB_ERR_NOT_FOUND);
  CHECK(thrown([&] { static_cast<void>(load.finish()); }) == WB_ERR_STATE);
  CHECK((region.read<uint64_t>(512, 512) == std::vector<uint64_t>(numbers.begin(), numbers.begin() + 512)) && (*own)[256] == 5000);
  CHECK(thrown([&] { store.load(queue, first, tensors, {0, 1, 2}); }, "`page_count` is 3 for 2 keys") == WB_ERR_ARGUMENT);
  CHECK(thrown([&] { store.store(queue, first, {}, {0, 1}); }, "`tensor_count` is 0") == WB_ERR_ARGUMENT);
  CHECK(thrown([&] { store.load(queue, first, {{wb::in_region(wb::region()), 16}}, {0, 1}); }, "names no memory") == WB_ERR_ARGUMENT);

  // Objects of a transfer that is not finished do not appear. Evicted keys are taken once.
  static_cast<void>(store.store(queue, keys[2], tensors, {0, 1}));
  CHECK(store.prefix(keys[2]) == 0);
  for (uint8_t n = 10; n < 15; ++n) store.write<16>({{key{n}, data.data(), data.size()}});
  CHECK(store.take_evictions<16>(1).size() == 1 && store.take_evictions<16>().size() == 1 && store.take_evictions<16>().empty());
  wb::kv_store same = store;
  store.reset();
  CHECK(thrown([&] { wb::kv_store::remove(volume, "cache"); }) == WB_ERR_BUSY);
  same.reset();
  CHECK(wb::kv_store::open(volume, "cache").stats().objects == 5 && wb::kv_store::list(volume).find("\"cache\"") != std::string::npos);
  wb::kv_store::remove(volume, "cache");
  CHECK(wb::kv_store::list(volume) == "[]");

  // Blocks of the volume, by themselves.
  const std::vector<wb_segment_blocks> blocks{{8, 2, 1024, 2}};
  CHECK(queue.store(blocks, {wb::in_region(region, 512, 512), wb::in_region(region, 0, 512)}).finish(10) == 0);
  CHECK(queue.load(blocks, {wb::in_region(region, 4096, 16), wb::in_region(region, 1024, 1008)}).finish(10) == 0);
  CHECK(region.read<uint64_t>(1, 512)[0] == 64 && region.read<uint64_t>(1, 128 + 62)[0] == 0);
  CHECK(thrown([&] { queue.load(blocks, {wb::in_region(region)}); }, "1 segment(s)") == WB_ERR_ARGUMENT);
  return 0;
}

static int graphs(const wb::engine& engine) {
  const uint64_t offsets[] = {0, 1, 3, 4, 4};
  const uint32_t neighbours[] = {1, 0, 2, 1};
  wb::defaults<wb_csr> lists;
  lists.vertices = 4;
  lists.offsets = offsets;
  lists.arcs = 4;
  lists.neighbours = neighbours;
  lists.neighbour_bytes = 4;
  const wb::graph graph = wb::graph::from_csr(engine, lists);
  CHECK(graph.vertices() == 4 && graph.arcs() == 4 && graph.name_of(2) == "2" && graph.vertex_of("2") == 2);
  const wb::bfs_result found = graph.bfs(0, true);
  CHECK((found.depth.read<uint32_t>() == std::vector<uint32_t>{0, 1, 2, WB_UNREACHED}) && found.parent.size() == 4);
  CHECK(!graph.bfs(0).parent && found.depth.report().reached == 3 && found.depth.info().front() == '{');
  CHECK((graph.components().read<uint64_t>() == std::vector<uint64_t>{0, 0, 0, 3}));
  CHECK((graph.betweenness().read<double>() == std::vector<double>{0, 2, 0, 0}));
  CHECK((graph.betweenness({0, 3}).read<double>() == std::vector<double>{0, 1, 0, 0}));
  CHECK((graph.betweenness(std::vector<uint64_t>{}).read<double>() == std::vector<double>(4)));
  CHECK((graph.cdlp().read<uint64_t>() == std::vector<uint64_t>{0, 1, 0, 3}));
  CHECK(graph.pagerank().dtype() == WB_F64);
  CHECK(graph.triangles().dtype() == WB_U64 && graph.clustering().dtype() == WB_F64 && graph.cores().dtype() == WB_U64);
  CHECK((found.parent.path_to(2) == std::vector<uint64_t>{0, 1, 2}) && found.parent.path_to(3).empty());
  const wb::multi_bfs_result both = graph.multi_bfs({0, 3});
  CHECK(both.depth.size() == 2 && (both.depth[1].read<uint32_t>() == std::vector<uint32_t>{WB_UNREACHED, WB_UNREACHED, WB_UNREACHED, 0}));
  CHECK((both.reached_by.read<uint64_t>() == std::vector<uint64_t>{1, 1, 1, 2}) && graph.multi_bfs({0}, false).depth.empty());
  wb::bfs_options near;
  near.max_depth = 1;
  CHECK((graph.bfs(0, false, near).depth.read<uint32_t>() == std::vector<uint32_t>{0, 1, WB_UNREACHED, WB_UNREACHED}));
  CHECK(thrown([&] { graph.sssp(0); }) == WB_ERR_STATE);
  CHECK(thrown([&] { graph.bfs(4); }) == WB_ERR_ARGUMENT);
  return 0;
}

static int worlds(const wb::engine& engine) {
  wb::world_options options;
  options.heap_bytes = 4 << 20;
  const wb::world world = wb::world::create_local({engine}, options)[0];
  CHECK(world.my_pe() == 0 && world.n_pes() == 1 && world.allgather(7) == std::vector<int>{7} && world.view().size == 1);
  const auto memory = wb::symmetric<uint32_t>::allocate(world, 8), result = wb::symmetric<uint32_t>::allocate(world, 8);
  const uint32_t numbers[] = {4, 5};
  memory.put_to(0, 1, numbers, 2);
  CHECK(memory.get_from(0, 2, 1)[0] == 5 && memory.read(1, 1)[0] == 4 && memory.size() == 8 && memory.address() != nullptr);
  const wb::team team = wb::team::all(world);
  team.reduce(wb::reduction::sum, result, memory, 8);
  CHECK(result.read(2, 1)[0] == 5 && team.n_pes() == 1 && team.split_strided(0, 1, 1).my_pe() == 0);
  world.barrier_all();
  memory.free();
  return 0;
}

int main() {
  wb::engine_options options;
  options.kind = wb::engine_kind::cpu;
  options.threads = 2;
  const wb::engine engine = wb::engine::open(options);
  if (objects(engine) != 0 || kernels(engine) != 0 || storage(engine) != 0 || tables(engine) != 0 || kv_stores(engine) != 0 ||
      graphs(engine) != 0 || worlds(engine) != 0)
    return 1;
  options.images = {nullptr};
  try {
    static_cast<void>(wb::engine::open(options));
    return 1;
  } catch (const std::exception& e) {
    CHECK(std::strstr(e.what(), "images"));
  }
  CHECK(std::strcmp(wb::version(), "") != 0 && wb::doctor_report().front() == '{');
  engine.cancel();
  CHECK(thrown([&] {
          static_cast<void>(wb::launch(engine, "wb_iota", wb_grid{1, 1}, wb::region::allocate(engine, wb::place::device, 4), uint64_t{1},
                                       uint64_t{0}, uint64_t{1}));
        }) == WB_ERR_STOPPED);
  engine.resume();
  std::puts("ok");
  return 0;
}
