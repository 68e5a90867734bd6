// Stores vectors as a table, and gathers batches of them by number. Each batch is read while the program works on the one before.
//
//   gather [DEVICE]    default soft:mem, a software NVMe controller in memory
#include <warpbell.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace wb = warpbell::host;

constexpr uint64_t rows = 4096, elements = 128, batches = 16, batch_rows = 256;

// Returns the numbers of a batch. Low numbers occur more often.
static std::vector<uint64_t> batch(uint64_t number) {
  std::vector<uint64_t> list(batch_rows);
  for (uint64_t i = 0; i < batch_rows; ++i) {
    const uint64_t draw = (number * batch_rows + i) * 2654435761u % rows;
    list[i] = draw * draw / rows;
  }
  return list;
}

static int run(const std::string& device) {
  const wb::engine engine = wb::engine::open();
  std::vector<float> vectors(rows * elements);
  for (size_t i = 0; i < vectors.size(); ++i) vectors[i] = static_cast<float>(i);
  // A table is a header of 128 bytes and its rows. It is stored beside the one that it replaces, so there is space for two.
  const uint64_t bytes = vectors.size() * sizeof vectors[0];
  const wb::volume volume = wb::volume::create(engine, {device}, wb::volume::bytes_for({128, bytes, 128, bytes}));
  wb::table::store(volume, "vectors", vectors.data(), rows, elements, WB_STORE_REPLACE);

  // A quarter of the rows fits into the cache.
  wb::table_options options;
  options.cache_bytes = bytes / 4;
  const wb::table table = wb::table::open(volume, "vectors", options);
  bool correct = true;
  wb::batch next = table.prefetch(batch(0));
  for (uint64_t number = 0; number < batches; ++number) {
    const wb::batch now = next;
    now.finish(30);
    if (number + 1 < batches) next = table.prefetch(batch(number + 1));
    // A kernel gets the rows as a pointer: wb::launch(engine, "name", grid, now, ...).
    const std::vector<float> found = now.read<float>(batch_rows * elements);
    const std::vector<uint64_t> numbers = batch(number);
    for (size_t i = 0; i < found.size(); ++i) {
      correct = correct && found[i] == vectors[numbers[i / elements] * elements + i % elements];
    }
  }
  const wb_table_stats stats = table.stats();
  std::printf("%llu rows gathered, %llu read from the device: %s\n", static_cast<unsigned long long>(stats.rows),
              static_cast<unsigned long long>(stats.device_reads), correct ? "correct" : "wrong");
  return correct ? 0 : 1;
}

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "soft:mem");
  } catch (const wb::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
