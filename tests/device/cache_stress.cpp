// Stress test of the page cache and the array with many threads, against a model of their content. Compiled for several warp
// widths, with ThreadSanitizer where available: see tests/device/stress.rs. Prints its steps, and exits with 1 at the first
// contradiction.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

// See frames.cuh.
#define WB_CLAIM_BLINDLY cross_claim
namespace {
void cross_claim();
}
#include <warpbell/array.cuh>

#include "../../kernels/storage/cache.cu"
#include "check.h"
#include "controller.h"

using namespace warpbell;

namespace {

constexpr uint32_t width = warp::width;
// Pages of one block, or pages that have checksums; every test runs with both.
uint32_t page_bytes = 512;
uint32_t per_page = page_bytes / 8;
uint32_t page_blocks = 1;
bool has_checksums = false;
constexpr uint32_t value_shift = 24;  // an element is its index, with a changing part below

// Action of this thread between the CAS of a tag and the look at the pins. If there is none, other threads may run.
thread_local std::function<void()> crossing;
void cross_claim() {
  if (!crossing) return cpu::yield();
  std::exchange(crossing, nullptr)();
}

// Volume blocks that the controller fails (all commands that touch them), and true if it swallows all commands.
std::atomic<uint64_t> bad_from{0}, bad_to{0};
std::atomic<bool> silent{false};

model::fault_kind plan(uint64_t block) {
  if (silent.load(std::memory_order_relaxed)) return model::fault_kind::lost;
  return block >= bad_from && block < bad_to ? model::fault_kind::media : model::fault_kind::none;
}

model::options shape(uint64_t pages, double deadline_seconds, bool bounce, uint32_t copies) {
  model::options o;
  o.devices = copies;
  o.queues = 2;
  o.depth = 16;
  o.device_blocks = pages * page_blocks;
  o.deadline_ns = static_cast<uint64_t>(deadline_seconds * 1e9);
  o.bounce = bounce;
  return o;
}

// A cache over a model controller, with the host's part.
struct fixture {
  model::controller device;
  wb_cache cache{};
  wb_array_view view{};
  std::vector<uint64_t> frames, tags, fill;
  std::vector<uint32_t> pins, locks, hands, sums;
  wb_integrity integrity{};

  fixture(uint32_t sets, uint32_t ways, uint64_t pages, double deadline_seconds, bool bounce = true, uint32_t copies = 1)
      : device(shape(pages, deadline_seconds, bounce, copies)) {
    const uint32_t entries = sets * ways;
    frames.resize(uint64_t{entries} * per_page);
    tags.resize(entries);
    fill.resize(entries);
    pins.resize(entries);
    locks.resize(sets);
    hands.resize(sets);
    cache.volume = &device.volume;
    cache.frames = reinterpret_cast<uint64_t>(frames.data());
    cache.tag = tags.data();
    cache.pins = pins.data();
    cache.fill = fill.data();
    cache.set_lock = locks.data();
    cache.hand = hands.data();
    cache.pages = pages;
    cache.sets = sets;
    cache.ways = ways;
    cache.log2_sets = static_cast<uint32_t>(__builtin_ctz(sets));
    cache.page_shift = static_cast<uint32_t>(__builtin_ctz(page_bytes));
    cache.blocks_per_page = page_blocks;
    cache.set_mask = sets - 1;
    cache.page_mask = page_bytes - 1;
    cache.way_reciprocal = static_cast<uint32_t>(((uint64_t{1} << 32) + ways - 1) / ways);
    view.array = wb_array{&cache, 0, pages * per_page, 8, cache.page_shift - 3};
    view.cache = cache;
    for (uint64_t i = 0; i < pages * per_page; ++i) {
      const uint64_t v = i << value_shift;
      std::memcpy(page(i / per_page) + i % per_page * 8, &v, 8);
    }
    if (copies > 1) {
      const uint64_t bytes = device.data.size() / copies;
      for (uint32_t d = 0; d < copies; ++d) {
        for (uint64_t i = 0; i < pages * per_page; ++i) {
          const uint64_t v = i << value_shift;
          std::memcpy(device.data.data() + d * bytes + i * 8, &v, 8);
        }
      }
      integrity.copies = (1u << copies) - 1;
      device.volume.blocks = pages * page_blocks;
      device.volume.replicated = 1;
      device.volume.integrity = &integrity;
    }
    if (has_checksums) {
      for (uint64_t p = 0; p < pages; ++p) sums.push_back(sum(p));
      integrity.checksum = reinterpret_cast<uint64_t>(sums.data());
      integrity.checksum_count = pages;
      // One unit for the whole volume.
      integrity.unit_shift = 63;
      device.volume.integrity = &integrity;
    }
    bad_from = bad_to = 0;
    silent = false;
    device.plan = plan;
    if (!bounce) device.window(frames.data(), frames.size() * 8);
    device.start();
  }
  ~fixture() { device.finish(); }

  array_ref<uint64_t> array() const {
    static_assert(sizeof(array_ref<uint64_t>) == sizeof(wb_array_view), "the host's mirror");
    array_ref<uint64_t> a;
    std::memcpy(static_cast<void*>(&a), &view, sizeof a);
    return a;
  }

  // Resets the words that the host resets when a run starts.
  void new_run() {
    device.stop_word = device.abort_word = 0;
    device.log = wb_error_log{};
  }
  void flush(uint32_t warps) {
    model::run(warps, [this] { wb_cache_flush(&cache); });
  }

  // Returns the address of a page on the device.
  char* page(uint64_t p) { return device.at(p * page_blocks); }
  // Returns the checksum of a page on the device.
  uint32_t sum(uint64_t p) { return checksums::of(xxh3::hash(reinterpret_cast<uint64_t>(page(p)))); }

  // Returns an element on the device; up to date once the cache was flushed.
  uint64_t stored(uint64_t i) {
    uint64_t v;
    std::memcpy(&v, page(i / per_page) + i % per_page * 8, 8);
    return v;
  }
  uint64_t total(uint64_t wb_stats::* what) const {
    uint64_t sum = 0;
    for (auto& s : device.stats) sum += s.*what;
    return sum;
  }
  void no_pins() const {
    for (uint32_t p : pins) CHECK(p == 0);
    for (uint32_t l : locks) CHECK(l == 0);
  }
  uint32_t errors() const { return device.log.count; }
  uint32_t first_error() const { return device.log.entry[0].status >> WB_STATUS_KIND_SHIFT; }
};

bool right(uint64_t i, uint64_t v) { return v >> value_shift == i; }

// Tests everything at once: loads, stores, atomic adds, prefetch, ranges, handles, and flushes in between. Elements of even pages
// are only added to, those of odd pages only stored to.
void hammer(uint32_t sets, uint32_t ways, uint64_t pages, bool bounce, uint32_t warps, uint32_t steps) {
  fixture b(sets, ways, pages, 60, bounce);
  const uint64_t n = pages * per_page;
  std::vector<std::atomic<uint32_t>> added(n);
  model::run(warps, [&] {
    const uint32_t me = warp::lane(), w = warp::index();
    std::mt19937_64 ours(w * 7919 + 1), mine(w * 7919 + me + 100003);
    auto a = b.array().open();
    const warp::mask_t full = warp::full();
    for (uint32_t s = 0; s < steps; ++s) {
      const uint32_t what = static_cast<uint32_t>(ours() % 14);
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
          // Other threads may write the page, so the loads are not plain here.
          for (uint32_t k = 0; k < 4; ++k) {
            const uint32_t at = static_cast<uint32_t>(mine() % page.count());
            CHECK(right(page.first() + at, order::load<order::relaxed>(page.data() + at)));
          }
          if (page.first() / per_page % 2) page.store(i, i << value_shift | 7);
          break;
        }
        case 11:
          if (s % 64 == 0) wb_cache_flush(&b.cache);
          break;
        case 12:
          // Adjacent pages of the lanes, and now and then one that is not.
          a.expect(full, mine() % 8 != 0, mine() % 8 != 0 ? first + warp::lane() * per_page : i);
          break;
        case 13: a.expect_range(full, first, first + 20 * per_page); break;
      }
    }
  });
  CHECK(b.errors() == 0);
  b.no_pins();
  b.flush(warps);
  CHECK(b.errors() == 0);
  const uint64_t fills = b.total(&wb_stats::fills), backs = b.total(&wb_stats::write_backs);
  for (uint64_t t : b.tags) CHECK(!(t & (WB_TAG_DIRTY | WB_TAG_WRITING)));
  for (uint64_t p = 0; p < b.sums.size(); ++p) CHECK(b.sums[p] == b.sum(p));
  for (uint64_t i = 0; i < n; ++i) {
    CHECK(right(i, b.stored(i)));
    if (i / per_page % 2 == 0) CHECK((b.stored(i) & ((1u << value_shift) - 1)) == added[i]);
  }
  std::printf(
      "hammer: width %u, %u sets of %u, %llu pages, %s, %u warps: %llu hits, %llu misses, %llu fills, %llu write-backs, %llu retries\n",
      width, sets, ways, (unsigned long long)pages, bounce ? "bounce" : "direct", warps, (unsigned long long)b.total(&wb_stats::hits),
      (unsigned long long)b.total(&wb_stats::misses), (unsigned long long)fills, (unsigned long long)backs,
      (unsigned long long)b.total(&wb_stats::retries));
}

// Tests a thread that changes a pinned page and unpins it while the frame is being taken away: the frame stays the page's, dirty.
void changed_while_claimed() {
  fixture b(1, 8, 40, 60);
  const wb_cache& c = b.cache;
  model::run(1, [&] {
    if (warp::lane() != 0) return;
    uint32_t way = 0;
    CHECK(pin_page(&c, 1, 3, false, false, way) == WB_DONE);
    const uint32_t entry = frames::entry(c, 0, way);
    uint64_t tag = order::load<order::acquire>(frames::tag(c, entry));
    const uint64_t before = tag;
    const auto change = [&] {
      frames::mark(c, entry, WB_TAG_DIRTY);
      frames::unpin(c, entry, 1);
    };
    CHECK(frames::try_lock(c, 0));
    crossing = change;
    CHECK(!frames::claim(c, entry, tag));
    frames::unlock(c, 0);
    CHECK(order::load<order::acquire>(frames::tag(c, entry)) == (before | WB_TAG_DIRTY));
    // A write-back of the page begins all the same, and is not the last one.
    CHECK(pin_page(&c, 1, 3, true, false, way) == WB_DONE);
    CHECK(frames::try_lock(c, 0));
    tag = order::load<order::acquire>(frames::tag(c, entry));
    crossing = change;
    CHECK(frames::begin_write(c, entry, tag));
    frames::unlock(c, 0);
    CHECK((order::load<order::acquire>(frames::tag(c, entry)) & (WB_TAG_WRITING | WB_TAG_DIRTY)) == (WB_TAG_WRITING | WB_TAG_DIRTY));
  });
  b.no_pins();
  std::printf("changed while claimed: ok\n");
}

// Tests a page that cannot be read: it fails the run with its block, is poison, and is read again by the next run.
void bad_page() {
  fixture b(1, 8, 40, 60);
  bad_from = 17 * page_blocks;
  bad_to = 18 * page_blocks;
  model::run(2, [&] {
    auto a = b.array().open();
    CHECK(a.load(17 * per_page + warp::lane()) == ~0ull);
    CHECK(a.load(warp::full(), 17 * per_page) == ~0ull);
    CHECK(!a.for_each_chunk(16 * per_page, 19 * per_page, [](uint64_t) {}));
    auto page = a.pin(17 * per_page);
    CHECK(!page.ok() && page.load(17 * per_page) == ~0ull);
    CHECK(!a.update(17 * per_page, [](uint64_t*) { CHECK(false); }));
  });
  CHECK(b.errors() >= 1 && b.first_error() == WB_DEVICE_ERROR && b.device.log.entry[0].lba == 17 * page_blocks);
  b.no_pins();
  bad_to = 0;
  b.new_run();
  model::run(2, [&] {
    auto a = b.array().open();
    CHECK(a.load(17 * per_page + 3) == (uint64_t{17 * per_page + 3} << value_shift));
  });
  CHECK(b.errors() == 0);
  b.no_pins();
  std::printf("bad page: ok\n");
}

// Tests a page that cannot be written: it stays dirty, and the next flush writes it.
void bad_write() {
  fixture b(2, 9, 40, 60);
  model::run(1, [&] {
    auto a = b.array().open();
    for (uint64_t p = 0; p < 10; ++p) a.store(p * per_page, p * per_page << value_shift | 9);
  });
  CHECK(b.errors() == 0);
  // A run of pages is one command, which fails as a whole if it starts there.
  bad_from = 0;
  bad_to = 6 * page_blocks;
  b.flush(1);
  CHECK(b.errors() >= 1 && b.first_error() == WB_DEVICE_ERROR);
  bad_to = 0;
  b.new_run();
  model::run(1, [&] { CHECK(b.array().open().load(5 * per_page) == (uint64_t{5 * per_page} << value_shift | 9)); });
  b.flush(1);
  CHECK(b.errors() == 0);
  for (uint64_t p = 0; p < 10; ++p) CHECK(b.stored(p * per_page) == (p * per_page << value_shift | 9));
  std::printf("bad write: ok\n");
}

// Tests a set with every frame pinned: the next page finds no frame within the deadline.
void all_pinned() {
  fixture b(1, 8, 40, 0.2);
  model::run(1, [&] {
    // One lane holds all frames.
    if (warp::lane() != 0) return;
    auto a = b.array().open();
    auto p0 = a.pin(0 * per_page), p1 = a.pin(1 * per_page), p2 = a.pin(2 * per_page), p3 = a.pin(3 * per_page), p4 = a.pin(4 * per_page),
         p5 = a.pin(5 * per_page), p6 = a.pin(6 * per_page), p7 = a.pin(7 * per_page);
    CHECK(p0.ok() && p7.ok());
    a.prefetch(20 * per_page, 1);
    CHECK(a.load(8 * per_page) == ~0ull);
    CHECK(p3.load(3 * per_page + 1) == (uint64_t{3 * per_page + 1} << value_shift));
  });
  CHECK(b.errors() == 1 && b.first_error() == WB_NO_FRAME);
  b.no_pins();
  std::printf("all pinned: ok\n");
}

// Tests a device that does not reply: the wait ends by its deadline, or by the stop flag. Later the same page is available.
void silent_device() {
  fixture b(1, 8, 40, 0.2);
  silent = true;
  model::run(2, [&] {
    auto a = b.array().open();
    CHECK(a.load(warp::full(), warp::lane() % 4 * per_page) == ~0ull);
  });
  CHECK(b.errors() >= 1 && b.first_error() == WB_TIMED_OUT);
  b.no_pins();
  b.new_run();
  b.device.ctl.deadline_ns = 60'000'000'000ull;
  std::thread stopper([&b] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    order::store<order::relaxed>(&b.device.stop_word, 1u);
  });
  model::run(2, [&] {
    auto a = b.array().open();
    CHECK(a.load(30 * per_page) == ~0ull);
    CHECK(!a.for_each_chunk(20 * per_page, 23 * per_page, [](uint64_t) {}));
  });
  stopper.join();
  CHECK(b.errors() == 0);
  b.no_pins();
  b.new_run();
  silent = false;
  order::store<order::release>(&b.device.release_lost, 1u);
  model::run(2, [&] {
    auto a = b.array().open();
    for (uint64_t p = 0; p < 40; ++p) CHECK(right(p * per_page + warp::lane(), a.load(p * per_page + warp::lane())));
  });
  CHECK(b.errors() == 0);
  std::printf("silent device: ok\n");
}

// Tests a command that fails for several pages: each is read by itself, and only the page that cannot be read fails the run.
void failed_run(fixture& b) {
  // The controller fails a command by its first block: that of the run, then that of the page.
  bad_from = 100 * page_blocks;
  bad_to = 102 * page_blocks;
  model::run(1, [&] {
    auto a = b.array().open();
    a.expect_range(warp::full(), 100 * per_page, 104 * per_page);
    for (uint64_t p = 102; p < 104; ++p) CHECK(right(p * per_page, a.load(warp::full(), p * per_page)));
  });
  CHECK(b.errors() == 0);
  model::run(1, [&] { CHECK(b.array().open().load(warp::full(), 101 * per_page) == ~0ull); });
  CHECK(b.errors() == 1 && b.first_error() == WB_DEVICE_ERROR && b.device.log.entry[0].lba == 101 * page_blocks);
  b.no_pins();
}

// Tests adjacent pages, which one command reads.
void adjacent_pages(bool bounce) {
  fixture b(64, 8, 256, 60, bounce);
  const auto reads = [&](uint64_t first, uint64_t last) {
    const uint64_t commands = b.total(&wb_stats::reads), fills = b.total(&wb_stats::fills);
    model::run(1, [&] { b.array().open().expect_range(warp::full(), first * per_page, last * per_page); });
    CHECK(b.total(&wb_stats::fills) == fills + last - first);
    return b.total(&wb_stats::reads) - commands;
  };
  constexpr uint32_t together = width < 8 ? width : 8;  // lanes whose pages are 4096 bytes
  const bool joins = page_bytes == 512 && width > 1;
  CHECK(reads(0, 32) == (joins ? 32 / together : 32));
  // From the last set on a page's frame is another way's: the run ends there.
  const uint64_t commands = reads(60, 68);
  CHECK(commands == (joins ? 8 / (together == 8 ? 4 : together) : 8));
  model::run(2, [&] {
    auto a = b.array().open();
    for (uint64_t i = warp::lane(); i < 68 * per_page; i += width) {
      if (i < 32 * per_page || i >= 60 * per_page) CHECK(right(i, a.load(i)));
    }
  });
  CHECK(b.errors() == 0 && b.total(&wb_stats::fills) == 40);
  b.no_pins();
  if (joins) failed_run(b);
  std::printf("adjacent pages: ok, %s, pages 60 to 67 by %llu commands\n", bounce ? "bounce" : "direct", (unsigned long long)commands);
}

// Tests a copy that does not reply to the read of several pages: each page is read from the other copy.
void silent_copy() {
  fixture b(64, 8, 64, 3, true, 2);
  silent = true;
  b.device.plan = [](uint64_t block) {
    return silent && block / model::options{}.chunk_blocks % 2 == 0 ? model::fault_kind::lost : model::fault_kind::none;
  };
  model::run(1, [&] {
    auto a = b.array().open();
    a.expect_range(warp::full(), 0, 16 * per_page);
    for (uint64_t p = 0; p < 16; ++p) CHECK(right(p * per_page, a.load(warp::full(), p * per_page)));
  });
  CHECK(b.errors() == 0 && b.integrity.copies == 2);
  b.no_pins();
  silent = false;
  order::store<order::release>(&b.device.release_lost, 1u);
  std::printf("silent copy: ok\n");
}

void outside() {
  fixture b(1, 8, 10, 60);
  model::run(1, [&] {
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

// Tests the host's kernels: a flush writes neighbouring pages together, bytes copied through the cache equal the array's, and
// dropped pages are read again.
void host_kernels() {
  fixture b(64, 8, 128, 60);
  const uint64_t n = 128 * per_page;
  std::vector<uint64_t> bytes(n + 1), back(n);
  for (uint64_t i = 0; i < n; ++i) bytes[i] = i << value_shift | 5;
  // Not aligned on either side.
  model::run(3, [&] { wb_cache_write(&b.cache, 8, n * 8 - 16 - 3, reinterpret_cast<uint8_t*>(bytes.data()) + 8); });
  model::run(2, [&] { wb_cache_read(&b.cache, 0, n * 8, reinterpret_cast<uint8_t*>(back.data())); });
  for (uint64_t i = 1; i < n - 2; ++i) CHECK(back[i] == bytes[i]);
  CHECK(back[0] == 0 && back[n - 1] == (n - 1) << value_shift);
  const uint64_t before = b.total(&wb_stats::writes);
  b.flush(2);
  const uint64_t commands = b.total(&wb_stats::writes) - before;
  CHECK(b.errors() == 0);
  for (uint64_t i = 1; i < n - 2; ++i) CHECK(b.stored(i) == bytes[i]);
  if (width == 32) CHECK(commands < 128 / 4 || page_blocks > 1);
  model::run(2, [&] { wb_cache_drop(&b.cache, 0, 64, 0); });
  for (uint64_t t : b.tags) CHECK(!(t & WB_TAG_VALID) || t >> WB_TAG_PAGE_SHIFT >= 64);
  const uint64_t fills = b.total(&wb_stats::fills);
  model::run(2, [&] { wb_cache_touch(&b.cache, 0, 64); });
  CHECK(b.total(&wb_stats::fills) == fills + 64);
  CHECK(b.errors() == 0);
  b.no_pins();
  std::printf("host kernels: ok, 128 pages in %llu writes\n", (unsigned long long)commands);
}

// Tests data that differs from the stored data: once, which another read corrects, and permanently, which fails the run. Pages
// without a known checksum are accepted.
void changed_data() {
  fixture b(1, 8, 40, 60);
  b.page(7)[100] ^= 4;
  model::run(2, [&] {
    auto a = b.array().open();
    CHECK(right(3 * per_page, a.load(3 * per_page)));
    a.prefetch(7 * per_page, per_page);
    CHECK(a.load(warp::full(), 7 * per_page) == ~0ull);
    CHECK(a.load(7 * per_page + warp::lane() % 4) == ~0ull);
  });
  CHECK(b.errors() >= 1 && b.first_error() == WB_DAMAGED && b.device.log.entry[0].lba == 7 * page_blocks);
  b.no_pins();
  b.page(7)[100] ^= 4;
  b.new_run();
  model::run(2, [&] { CHECK(right(7 * per_page, b.array().open().load(warp::full(), 7 * per_page))); });
  CHECK(b.errors() == 0);
  // The data was changed in transit, not on the medium.
  model::run(1, [&] {
    if (warp::lane() != 0) return;
    const wb_cache& c = b.cache;
    request_pages(&c, 1, true, 9, false);
    uint64_t t = 0;
    const uint32_t way = frames::find(c, 0, 9, t);
    CHECK(way != frames::none);
    const auto state = [&] { return order::load<order::acquire>(frames::tag(c, way)) & tags::state_mask; };
    while (state() & WB_TAG_FILLING) {
      const uint64_t f = order::load<order::acquire>(frames::fill(c, way));
      frames::help(&c, 1, f & tags::token_known ? token{f & ~tags::token_known} : token{});
    }
    CHECK(state() == (WB_TAG_UNCHECKED | WB_TAG_REFERENCED));
    b.frames[uint64_t{way} * per_page] ^= 1;
  });
  model::run(2, [&] { CHECK(right(9 * per_page, b.array().open().load(warp::full(), 9 * per_page))); });
  CHECK(b.errors() == 0);
  b.sums[11] = 0;
  b.page(11)[8] ^= 1;
  model::run(1, [&] { CHECK(right(11 * per_page, b.array().open().load(11 * per_page))); });
  // Pages that kernels write without the cache have no checksum from then on.
  std::vector<char> block(512, 1);
  model::run(1, [&] {
    volume_ref v(&b.device.volume);
    const status s = v.write(warp::full(), 20 * page_blocks + 3, warp::lane() == 0 ? 1 : 0, block.data());
    CHECK(s);
  });
  CHECK(b.sums[20] == 0 && b.sums[19] != 0 && b.sums[21] != 0);
  CHECK(b.errors() == 0);
  b.no_pins();
  std::printf("changed data: ok\n");
}

// Tests values of the reference implementation (`xxhsum -H3`): 4096 bytes of 0, of 255, and of a generator.
void published_hashes() {
  std::vector<uint64_t> zeros(512), ones(512, ~0ull), random(512);
  uint64_t x = 0x12345678;
  for (uint64_t& w : random) w = x = x * 6364136223846793005u + 1442695040888963407u;
  const auto check = [](const std::vector<uint64_t>& words, uint64_t sum) {
    const uint64_t at = reinterpret_cast<uint64_t>(words.data());
    model::run(1, [&] {
      CHECK(xxh3::hash(at) == sum);
      if (width == 32) CHECK(xxh3::hash_together(at) == sum);
    });
  };
  check(zeros, 0x93d76fe148c689ba);
  check(ones, 0x074cfac273851dd6);
  check(random, 0xd2a0915885271518);
  std::printf("published hashes: ok\n");
}

void all(uint32_t scale) {
  outside();
  changed_while_claimed();
  bad_page();
  bad_write();
  all_pinned();
  silent_device();
  adjacent_pages(true);
  adjacent_pages(false);
  if (!has_checksums) silent_copy();
  host_kernels();
  const uint32_t warps = width == 1 ? 4 : 2;
  const uint32_t steps = scale * (width == 1 ? 400 : width == 4 ? 60 : 6) / (page_blocks > 1 ? 3 : 1);
  hammer(1, 8, 40, true, warps, steps);
  hammer(2, 9, 30, false, warps, steps);
  hammer(4, 15, 80, true, warps, steps);
  hammer(16, 8, 400, true, warps, steps);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const uint32_t scale = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 10;
  published_hashes();
  all(scale);
  page_bytes = 4096;
  per_page = page_bytes / 8;
  page_blocks = 8;
  has_checksums = true;
  changed_data();
  all(scale);
  std::printf("cache stress: width %u: ok\n", width);
  return 0;
}
