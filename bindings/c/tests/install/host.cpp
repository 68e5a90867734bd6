// The C++ interface with exceptions: values that share and release objects, arguments, errors. Prints `ok`.
#include <warpbell.hpp>
#ifdef WITH_DEVICE
#include <warpbell/array.cuh>
#include <warpbell/shmem.cuh>
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
  CHECK(graph.pagerank().dtype() == WB_F64);
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
  if (objects(engine) != 0 || kernels(engine) != 0 || storage(engine) != 0 || graphs(engine) != 0 || worlds(engine) != 0) return 1;
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
