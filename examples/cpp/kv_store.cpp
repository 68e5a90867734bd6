// Stores the pages of a request's KV cache under keys, and loads them into other pages, as after a restart. A stream waits for the first
// layer alone, while the others are on their way.
//
//   kv_store [DEVICE]    default soft:mem, a software NVMe controller in memory
#include <warpbell.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace wb = warpbell::host;

// A page has the keys and values of 16 tokens in one layer.
constexpr size_t layers = 8, pages = 64, page_bytes = 16 * 512, page_words = page_bytes / sizeof(uint64_t);
constexpr uint64_t blocks = 24;  // pages of the request: objects

using key = wb::kv_key<32>;

// Returns the key of the n-th object. A server hashes the tokens up to its end.
static key key_of(uint64_t n) {
  key made{};
  for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<uint8_t>((n + 1) * 2654435761u >> i % 4 * 8);
  return made;
}

static uint64_t word_of(size_t layer, uint64_t block, size_t i) { return (layer * blocks + block) * page_words + i; }

// Opens the store on a device, or creates it there.
static wb::kv_store open_store(const wb::volume& volume, uint64_t bytes) {
  if (wb::kv_store::list(volume).find("\"name\":\"cache\"") != std::string::npos) return wb::kv_store::open(volume, "cache");
  wb::kv_options options;
  options.bytes = bytes;
  options.objects = blocks;
  return wb::kv_store::create(volume, "cache", options);
}

static int run(const std::string& device) {
  const wb::engine engine = wb::engine::open();
  // A store is its configuration, a record of 128 bytes for each object, of a multiple of 32 objects, and its data.
  const uint64_t bytes = blocks * layers * page_bytes;
  wb::volume_options for_segments;
  for_segments.for_segments = 1;
  const wb::volume volume = wb::volume::create(engine, {device}, wb::volume::bytes_for({128, 32 * 128, bytes}), for_segments);
  wb::kv_store store = open_store(volume, bytes);

  std::vector<wb::region> memory;
  std::vector<wb::kv_tensor> tensors;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    memory.push_back(wb::region::allocate(engine, wb::place::device, pages * page_bytes));
    // Each layer is a group.
    tensors.push_back({wb::in_region(memory.back(), 0, 0, layer), page_bytes});
  }
  std::vector<key> keys;
  std::vector<uint64_t> from, to;
  for (uint64_t block = 0; block < blocks; ++block) {
    keys.push_back(key_of(block));
    from.push_back(block * 7 % pages);
    to.push_back(pages - 1 - block);
  }
  std::vector<uint64_t> page(page_words);
  for (size_t layer = 0; layer < layers; ++layer) {
    for (uint64_t block = 0; block < blocks; ++block) {
      for (size_t i = 0; i < page_words; ++i) page[i] = word_of(layer, block, i);
      memory[layer].write(page.data(), page_words, from[block] * page_words);
    }
  }

  // Transfers follow each other on the stream of the queue.
  const wb::stream transfers = wb::stream::create(engine), compute = wb::stream::create(engine);
  const wb::segment_queue queue = wb::segment_queue::create(volume, transfers);
  store.store(queue, keys, tensors, from).finish(30);
  store.reset();
  store = wb::kv_store::open(volume, "cache");

  for (const wb::region& layer : memory) layer.fill(0, pages * page_bytes, 0);
  const size_t there = store.prefix(keys);
  const wb::segment_transfer load = store.load(queue, keys, tensors, to);
  load.wait_group(compute, 0);  // kernels on `compute` begin when layer 0 is there
  compute.synchronize(30);
  bool correct = there == blocks;
  for (size_t layer = 0; layer < layers; ++layer) {
    // Each object is compared with its checksum.
    if (layer == 1) correct = correct && load.finish(30) == 0;
    for (uint64_t block = 0; block < blocks; ++block) {
      page = memory[layer].read<uint64_t>(page_words, to[block] * page_words);
      for (size_t i = 0; i < page_words; ++i) correct = correct && page[i] == word_of(layer, block, i);
    }
  }
  const wb_kv_stats stats = store.stats();
  std::printf("%zu objects of %zu pages loaded, %llu bytes in the store: %s\n", there, layers, static_cast<unsigned long long>(stats.bytes),
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
