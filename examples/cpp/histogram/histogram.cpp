// Stores numbers on a device, and counts them by a kernel that reads them from there.
//
//   histogram [DEVICE]    default soft:mem, a software NVMe controller in memory
#include <warpbell.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "histogram_image.h"

namespace wb = warpbell::host;

static int run(const std::string& device) {
  wb::engine_options options;
  options.images = {&histogram_image};
  const wb::engine engine = wb::engine::open(options);

  std::vector<uint32_t> numbers(1 << 20);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint32_t>(i * i / 7);
  const uint64_t bytes = wb::volume::bytes_for({numbers.size() * sizeof numbers[0]});
  const wb::volume volume = wb::volume::create(engine, {device}, bytes);
  volume.store("numbers", numbers.data(), numbers.size());

  // The cache holds a quarter of the numbers.
  const wb::cache cache = wb::cache::open(volume, 1 << 20);
  const wb::array<uint32_t> array = wb::array<uint32_t>::open(cache, "numbers");
  const wb::region counts = wb::region::allocate(engine, wb::place::device, 256 * sizeof(uint32_t));
  wb::launch(engine, "histogram", engine.grid(), array, counts).finish();

  std::vector<uint32_t> expected(256);
  for (const uint32_t n : numbers) ++expected[n % 256];
  const bool correct = counts.read<uint32_t>(256) == expected;
  std::printf("%zu numbers in 256 bins, %llu pages read: %s\n", numbers.size(), static_cast<unsigned long long>(volume.stats().fills),
              correct ? "correct" : "wrong");
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
