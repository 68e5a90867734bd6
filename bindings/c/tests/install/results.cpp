// The C++ interface without exceptions: each call returns a value or an error. Prints `ok`.
#include <warpbell.hpp>

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

int main() {
  wb::engine_options options;
  options.kind = wb::engine_kind::cpu;
  options.threads = 1;
  const wb::result<wb::engine> engine = wb::engine::open(options);
  CHECK(engine && engine.ok() && engine.code() == WB_OK && engine.what()[0] == '\0' && !engine.failure());
  const wb::result<wb::region> numbers = wb::region::allocate(engine.value(), wb::place::device, 8000);
  CHECK(numbers);
  const wb::result<wb::run> missing = wb::launch(engine.value(), "no_such_kernel", wb_grid{1, 1});
  CHECK(!missing && missing.code() == WB_ERR_NOT_FOUND && std::strstr(missing.what(), "no_such_kernel"));
  CHECK(missing.failure()->name() == std::string("WB_ERR_NOT_FOUND") && missing.failure()->operations().empty());
  wb::result<wb::run> run = wb::launch(engine.value(), "wb_iota", wb_grid{1, 1}, numbers.value(), uint64_t{1000}, uint64_t{0}, uint64_t{1});
  CHECK(run && run->finish(10));
  CHECK(run->finish().code() == WB_ERR_STATE);
  wb::result<std::vector<uint64_t>> read = numbers.value().read<uint64_t>(1, 999);
  CHECK(read && (*read)[0] == 999 && std::move(read).value().size() == 1);
  const wb::status outside = numbers.value().fill(0, 1 << 20, 0);
  CHECK(!outside && outside.code() == WB_ERR_ARGUMENT);
  const wb::status closed = engine.value().set_deadline(0);
  CHECK(closed.ok());
  const wb::result<wb::volume> volume = wb::volume::create(engine.value(), {"soft:mem"}, 1 << 20);
  CHECK(volume);
  const std::vector<uint32_t> sevens(64, 7);
  const wb::result<wb::table> table = wb::table::store(volume.value(), "rows", sevens.data(), 4, 16);
  CHECK(table);
  const std::vector<uint64_t> good{3}, bad{0, 4};
  const wb::result<std::vector<uint32_t>> row = table.value().gather<uint32_t>(good);
  CHECK(row && row.value().size() == 16 && row.value()[15] == 7);
  CHECK(table.value().gather<uint32_t>(bad).code() == WB_ERR_ARGUMENT);
  const wb::result<wb::batch> batch = table.value().prefetch(bad);
  CHECK(batch);
  const wb::status failed = batch.value().finish();
  CHECK(!failed && std::strstr(failed.what(), "index 4 at position 1") && batch.value().address().code() == WB_ERR_STATE);
  wb::kv_options sizes;
  sizes.bytes = 4096;
  sizes.objects = 1;
  const wb::result<wb::kv_store> store = wb::kv_store::create(volume.value(), "cache", sizes);
  CHECK(store && store.value().prefix(wb::kv_key<16>{}).code() == WB_ERR_ARGUMENT);
  const wb::kv_key<32> key{7};
  CHECK(store.value().write<32>({{key, sevens.data(), 256}}) && store.value().prefix(key).value() == 1);
  const wb::result<wb::segment_queue> queue = wb::segment_queue::create(volume.value());
  CHECK(queue);
  const wb::result<wb::segment_transfer> load = store.value().load(queue.value(), key, {{wb::in_region(numbers.value()), 256}}, {1});
  CHECK(load && load.value().finish(10).value() == 0 && load.value().bytes(0).value() == 256 && !load.value().failure(0));
  CHECK(numbers.value().read<uint32_t>(1, 64).value()[0] == 7 && load.value().failure(1)->code() == WB_ERR_ARGUMENT);
  std::puts("ok");
  return 0;
}
