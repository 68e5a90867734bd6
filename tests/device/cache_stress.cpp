// The page cache and the array under many threads, against a model of their content. Compiled for several warp widths, with
// ThreadSanitizer where it is to be had: see tests/device_cache.rs. Prints what it did; exits with 1 at the first contradiction.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <warpbell/array.cuh>
#include <warpbell/kernel.h>

#include "../../kernels/cache.cu"

using namespace warpbell;

#define CHECK(CONDITION)                                                            \
  do {                                                                              \
    if (!(CONDITION)) {                                                             \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #CONDITION); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

namespace {

constexpr uint32_t width = warp::width;
constexpr uint32_t page_bytes = 512;
constexpr uint32_t per_page = page_bytes / 8;
constexpr uint32_t value_shift = 24;  // an element is its index above, and a changing part below

// A cache over the model device, and its host's view.
struct bed {
  wb_control control{};
  wb_volume volume{};
  wb_cache cache{};
  wb_array_view view{};
  alignas(64) uint32_t stop = 0;
  alignas(64) uint32_t abort = 0;
  std::vector<wb_stats> stats = std::vector<wb_stats>(WB_STATS_STRIPES);
  wb_error_log log{};
  std::vector<uint64_t> frames, tags, fill;
  std::vector<uint32_t> pins, locks, hands;
  uint64_t pages;
  std::thread device;

  bed(uint32_t sets, uint32_t ways, uint64_t pages_, double deadline_seconds) : pages(pages_) {
    control.stop = reinterpret_cast<uint64_t>(&stop);
    control.abort = reinterpret_cast<uint64_t>(&abort);
    control.error_log = reinterpret_cast<uint64_t>(&log);
    control.deadline_ns = static_cast<uint64_t>(deadline_seconds * 1e9);
    volume.control = reinterpret_cast<uint64_t>(&control);
    volume.stats = reinterpret_cast<uint64_t>(stats.data());
    volume.blocks = pages;
    volume.block_shift = 9;
    volume.device_count = 1;
    volume.device[0].max_blocks = model::most_bytes / page_bytes;
    const uint32_t entries = sets * ways;
    frames.resize(uint64_t{entries} * per_page);
    tags.resize(entries);
    fill.resize(entries);
    pins.resize(entries);
    locks.resize(sets);
    hands.resize(sets);
    cache.volume = reinterpret_cast<uint64_t>(&volume);
    cache.frames = reinterpret_cast<uint64_t>(frames.data());
    cache.tag = reinterpret_cast<uint64_t>(tags.data());
    cache.pins = reinterpret_cast<uint64_t>(pins.data());
    cache.fill = reinterpret_cast<uint64_t>(fill.data());
    cache.set_lock = reinterpret_cast<uint64_t>(locks.data());
    cache.hand = reinterpret_cast<uint64_t>(hands.data());
    cache.pages = pages;
    cache.sets = sets;
    cache.ways = ways;
    cache.log2_sets = static_cast<uint32_t>(__builtin_ctz(sets));
    cache.page_shift = 9;
    cache.blocks_per_page = 1;
    cache.way_reciprocal = static_cast<uint32_t>(((uint64_t{1} << 32) + ways - 1) / ways);
    view.array = wb_array{reinterpret_cast<uint64_t>(&cache), 0, pages * per_page, 8, 0};
    view.cache = cache;
    model& m = model::here();
    m.store.resize(pages * page_bytes);
    for (uint64_t i = 0; i < pages * per_page; ++i) {
      uint64_t v = i << value_shift;
      std::memcpy(m.store.data() + i * 8, &v, 8);
    }
    m.leaving = false;
    m.stuck = false;
    m.bad_reads_from = m.bad_writes_from = ~0ull;
    m.bad_reads_to = m.bad_writes_to = 0;
    device = std::thread([&m] { m.serve(4711); });
  }
  ~bed() {
    model::here().leaving = true;
    device.join();
    // What was still in flight ends with the device.
    for (auto& c : model::here().table) c.word = (c.word.load() & ~7u) + 8;
  }

  array_ref<uint64_t> array() const {
    static_assert(sizeof(array_ref<uint64_t>) == sizeof(wb_array_view), "the host's mirror");
    array_ref<uint64_t> a;
    std::memcpy(static_cast<void*>(&a), &view, sizeof a);
    return a;
  }

  // What the host does when a run starts.
  void new_run() {
    stop = abort = 0;
    log = wb_error_log{};
  }

  // Runs f in each lane of `warps` warps.
  void run(uint32_t warps, const std::function<void()>& f) {
    static const std::function<void()>* now;
    now = &f;
    auto call = [](void* const*) { (*now)(); };
    std::vector<std::thread> blocks;
    for (uint32_t b = 0; b < warps; ++b) blocks.emplace_back([=] { cpu::run_block(call, nullptr, b, warps, width); });
    for (auto& t : blocks) t.join();
  }
  void flush(uint32_t warps) {
    run(warps, [this] { wb_cache_flush(&cache); });
  }

  // After the last run: on the device, if the cache was flushed.
  uint64_t stored(uint64_t i) const {
    uint64_t v;
    std::memcpy(&v, model::here().store.data() + i * 8, 8);
    return v;
  }
  uint64_t total(uint64_t wb_stats::*what) const {
    uint64_t sum = 0;
    for (auto& s : stats) sum += s.*what;
    return sum;
  }
  void no_pins() const {
    for (uint32_t p : pins) CHECK(p == 0);
    for (uint32_t l : locks) CHECK(l == 0);
  }
  uint32_t first_error() const { return log.entry[0].status >> WB_STATUS_KIND_SHIFT; }
};

bool right(uint64_t i, uint64_t v) { return v >> value_shift == i; }

// Everything at once: loads, stores, atomic adds, prefetch, ranges, handles, and flushes in between. Elements of even pages are
// only added to, those of odd pages only stored to.
void hammer(uint32_t sets, uint32_t ways, uint64_t pages, uint32_t warps, uint32_t steps) {
  bed b(sets, ways, pages, 60);
  const uint64_t n = pages * per_page;
  std::vector<std::atomic<uint32_t>> added(n);
  b.run(warps, [&] {
    const uint32_t me = warp::lane(), w = warp::index();
    std::mt19937_64 ours(w * 7919 + 1), mine(w * 7919 + me + 100003);
    auto a = b.array().open();
    const warp::mask_t full = warp::full();
    for (uint32_t s = 0; s < steps; ++s) {
      const uint32_t what = static_cast<uint32_t>(ours() % 12);
      const uint64_t i = mine() % n;
      const uint64_t even = i / per_page % 2 ? i - per_page : i, odd = even + per_page;
      const uint64_t first = ours() % n, length = ours() % (3 * per_page), last = first + length < n ? first + length : n;
      switch (what) {
        case 0: CHECK(right(i, a.load(i))); break;
        case 1: CHECK(right(i, a.load(full, i))); break;
        case 2: CHECK(right(first, a.load(full, first))); break;
        case 3: a.store(odd, odd << value_shift | (mine() & 0xffff)); break;
        case 4: a.store(full, odd, odd << value_shift | (mine() & 0xffff)); break;
        case 5:
          CHECK(right(even, a.atomic_add(even, 1)));
          added[even].fetch_add(1, std::memory_order_relaxed);
          break;
        case 6: {
          // Many lanes on few elements.
          const uint64_t close = first / per_page / 2 * 2 * per_page + mine() % 4;
          CHECK(right(close, a.atomic_add(full, close, 2)));
          added[close].fetch_add(2, std::memory_order_relaxed);
          break;
        }
        case 7: a.prefetch(i, mine() % (2 * per_page)); break;
        case 8: {
          uint64_t seen = 0;
          CHECK(a.for_each_chunk_indexed(first, last, [&](uint64_t k, uint64_t v) {
            CHECK(k >= first && k < last && right(k, v));
            ++seen;
          }));
          CHECK(warp::sum(full, seen) == last - first);
          break;
        }
        case 9: {
          const uint64_t sought = first + length / 2;
          const bool found = a.any_of(first, last, [&](uint64_t v) { return v >> value_shift == sought; });
          CHECK(found == (sought < last));
          break;
        }
        case 10: {
          auto page = a.pin(i);
          CHECK(page.ok() && page.first() <= i && i < page.first() + page.count());
          // Others may write to it, so the loads are not plain here.
          for (uint32_t k = 0; k < 4; ++k) {
            const uint32_t at = static_cast<uint32_t>(mine() % page.count());
            CHECK(right(page.first() + at, order::load_data(page.data() + at)));
          }
          if (page.first() / per_page % 2) page.store(i, i << value_shift | 7);
          break;
        }
        case 11:
          if (s % 64 == 0) wb_cache_flush(&b.cache);
          break;
      }
    }
  });
  CHECK(b.log.count == 0);
  b.no_pins();
  b.flush(warps);
  CHECK(b.log.count == 0);
  const uint64_t fills = b.total(&wb_stats::fills), backs = b.total(&wb_stats::write_backs);
  for (uint64_t t : b.tags) CHECK(!(t & (WB_TAG_DIRTY | WB_TAG_WRITING)));
  for (uint64_t i = 0; i < n; ++i) {
    CHECK(right(i, b.stored(i)));
    if (i / per_page % 2 == 0) CHECK((b.stored(i) & ((1u << value_shift) - 1)) == added[i]);
  }
  std::printf("hammer: width %u, %u sets of %u, %llu pages, %u warps: %llu hits, %llu misses, %llu fills, %llu write-backs, %llu retries\n",
              width, sets, ways, (unsigned long long)pages, warps, (unsigned long long)b.total(&wb_stats::hits),
              (unsigned long long)b.total(&wb_stats::misses), (unsigned long long)fills, (unsigned long long)backs,
              (unsigned long long)b.total(&wb_stats::retries));
}

// A page that cannot be read fails the run with its block, is poison, and is read again by the next run.
void bad_page() {
  bed b(1, 8, 40, 60);
  model& m = model::here();
  m.bad_reads_from = 17;
  m.bad_reads_to = 18;
  b.run(2, [&] {
    auto a = b.array().open();
    CHECK(a.load(17 * per_page + warp::lane()) == ~0ull);
    CHECK(a.load(warp::full(), 17 * per_page) == ~0ull);
    CHECK(!a.for_each_chunk(16 * per_page, 19 * per_page, [](uint64_t) {}));
    auto page = a.pin(17 * per_page);
    CHECK(!page.ok() && page.load(17 * per_page) == ~0ull);
    CHECK(!a.update(17 * per_page, [](uint64_t*) { CHECK(false); }));
  });
  CHECK(b.log.count >= 1 && b.first_error() == WB_DEVICE_ERROR && b.log.entry[0].lba == 17);
  b.no_pins();
  m.bad_reads_to = 0;
  m.bad_reads_from = ~0ull;
  b.new_run();
  b.run(2, [&] {
    auto a = b.array().open();
    CHECK(a.load(17 * per_page + 3) == (uint64_t{17 * per_page + 3} << value_shift));
  });
  CHECK(b.log.count == 0);
  b.no_pins();
  std::printf("bad page: ok\n");
}

// A page that cannot be written stays, dirty; the next flush writes it.
void bad_write() {
  bed b(2, 9, 40, 60);
  model& m = model::here();
  m.bad_writes_from = 5;
  m.bad_writes_to = 6;
  b.run(1, [&] {
    auto a = b.array().open();
    for (uint64_t p = 0; p < 10; ++p) a.store(p * per_page, p * per_page << value_shift | 9);
  });
  CHECK(b.log.count == 0);
  b.flush(1);
  CHECK(b.log.count >= 1 && b.first_error() == WB_DEVICE_ERROR);
  m.bad_writes_to = 0;
  m.bad_writes_from = ~0ull;
  b.new_run();
  b.run(1, [&] { CHECK(b.array().open().load(5 * per_page) == (uint64_t{5 * per_page} << value_shift | 9)); });
  b.flush(1);
  CHECK(b.log.count == 0);
  for (uint64_t p = 0; p < 10; ++p) CHECK(b.stored(p * per_page) == (p * per_page << value_shift | 9));
  std::printf("bad write: ok\n");
}

// Every frame pinned: the next page finds none within the deadline.
void all_pinned() {
  bed b(1, 8, 40, 0.2);
  b.run(1, [&] {
    // One lane holds all frames.
    if (warp::lane() != 0) return;
    auto a = b.array().open();
    auto p0 = a.pin(0 * per_page), p1 = a.pin(1 * per_page), p2 = a.pin(2 * per_page), p3 = a.pin(3 * per_page),
         p4 = a.pin(4 * per_page), p5 = a.pin(5 * per_page), p6 = a.pin(6 * per_page), p7 = a.pin(7 * per_page);
    CHECK(p0.ok() && p7.ok());
    a.prefetch(20 * per_page, 1);
    CHECK(a.load(8 * per_page) == ~0ull);
    CHECK(p3.load(3 * per_page + 1) == (uint64_t{3 * per_page + 1} << value_shift));
  });
  CHECK(b.log.count == 1 && b.first_error() == WB_NO_FRAME);
  b.no_pins();
  std::printf("all pinned: ok\n");
}

// A device that does not answer: the wait ends by its deadline, or by the stop flag; later the same page can be had.
void silent_device() {
  bed b(1, 8, 40, 0.2);
  model& m = model::here();
  m.stuck = true;
  b.run(2, [&] {
    auto a = b.array().open();
    CHECK(a.load(warp::full(), warp::lane() % 4 * per_page) == ~0ull);
  });
  CHECK(b.log.count >= 1 && b.first_error() == WB_TIMED_OUT);
  b.no_pins();
  b.new_run();
  b.control.deadline_ns = 60'000'000'000ull;
  std::thread stopper([&b] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    order::store_relaxed(&b.stop, 1u);
  });
  b.run(2, [&] {
    auto a = b.array().open();
    CHECK(a.load(30 * per_page) == ~0ull);
    CHECK(!a.for_each_chunk(20 * per_page, 23 * per_page, [](uint64_t) {}));
  });
  stopper.join();
  CHECK(b.log.count == 0);
  b.no_pins();
  b.new_run();
  m.stuck = false;
  b.run(2, [&] {
    auto a = b.array().open();
    for (uint64_t p = 0; p < 40; ++p) CHECK(right(p * per_page + warp::lane(), a.load(p * per_page + warp::lane())));
  });
  CHECK(b.log.count == 0);
  std::printf("silent device: ok\n");
}

void outside() {
  bed b(1, 8, 10, 60);
  b.run(1, [&] {
    auto a = b.array().open();
    CHECK(a.load(a.size()) == ~0ull);
    CHECK(a.load(warp::full(), a.size() + warp::lane()) == ~0ull);
    a.store(a.size() + 1, 1);
    a.prefetch(a.size(), 5);
  });
  CHECK(b.first_error() == WB_BAD_ARGUMENT);
  b.no_pins();
  std::printf("outside: ok\n");
}

// A flush writes neighbouring pages together; bytes copied through the cache are the array's; dropped pages are read again.
void host_kernels() {
  bed b(64, 8, 128, 60);
  const uint64_t n = 128 * per_page;
  std::vector<uint64_t> bytes(n + 1), back(n);
  for (uint64_t i = 0; i < n; ++i) bytes[i] = i << value_shift | 5;
  // Not aligned on either side.
  b.run(3, [&] { wb_cache_write(&b.cache, 8, n * 8 - 16 - 3, reinterpret_cast<uint8_t*>(bytes.data()) + 8); });
  b.run(2, [&] { wb_cache_read(&b.cache, 0, n * 8, reinterpret_cast<uint8_t*>(back.data())); });
  for (uint64_t i = 1; i < n - 2; ++i) CHECK(back[i] == bytes[i]);
  CHECK(back[0] == 0 && back[n - 1] == (n - 1) << value_shift);
  model& m = model::here();
  const uint64_t before = m.writes;
  b.flush(2);
  const uint64_t commands = m.writes - before;
  CHECK(b.log.count == 0);
  for (uint64_t i = 1; i < n - 2; ++i) CHECK(b.stored(i) == bytes[i]);
  if (width == 32) CHECK(commands <= 128 / (model::most_bytes / page_bytes) + 8);
  b.run(2, [&] { wb_cache_drop(&b.cache, 0, 64, 0); });
  for (uint64_t t : b.tags) CHECK(!(t & WB_TAG_VALID) || t >> WB_TAG_PAGE_SHIFT >= 64);
  const uint64_t fills = b.total(&wb_stats::fills);
  b.run(2, [&] { wb_cache_touch(&b.cache, 0, 64); });
  CHECK(b.total(&wb_stats::fills) == fills + 64);
  CHECK(b.log.count == 0);
  b.no_pins();
  std::printf("host kernels: ok, 128 pages in %llu writes\n", (unsigned long long)commands);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const uint32_t scale = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 10;
  outside();
  bad_page();
  bad_write();
  all_pinned();
  silent_device();
  host_kernels();
  const uint32_t warps = width == 1 ? 4 : 2;
  const uint32_t steps = scale * (width == 1 ? 400 : width == 4 ? 60 : 6);
  hammer(1, 8, 40, warps, steps);
  hammer(2, 9, 30, warps, steps);
  hammer(4, 15, 80, warps, steps);
  std::printf("done\n");
  return 0;
}
