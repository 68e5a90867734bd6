// Stress test of tables with many threads, against a model of their rows. Compiled for several warp widths, with ThreadSanitizer where
// available: see tests/device/stress.rs. Prints its steps, and exits with 1 at the first contradiction. Argument: a scale of the
// number of rounds.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>
#include <vector>

// See table/cache.cuh.
#define WB_ROW_CROSSING cross_copy
namespace {
void cross_copy();
}
#include <warpbell/table/scatter.cuh>

#include "../../kernels/storage/cache.cu"
#include "check.h"
#include "controller.h"

using namespace warpbell;

namespace {

constexpr uint32_t width = warp::width;
uint32_t scale = 1;

// Lets other threads run between the look at a frame's tag and the copy of the frame, so that frames are given away there.
void cross_copy() { cpu::yield(); }

// Volume blocks that the controller fails, and true if it swallows all commands.
std::atomic<uint64_t> bad_from{0}, bad_to{0};
std::atomic<bool> silent{false};

model::fault_kind plan(uint64_t block) {
  if (silent.load(std::memory_order_relaxed)) return model::fault_kind::lost;
  return block >= bad_from && block < bad_to ? model::fault_kind::media : model::fault_kind::none;
}

struct setting {
  uint32_t row_bytes = 512;
  uint64_t rows = 64;
  uint32_t devices = 1;
  bool bounce = true;
  uint32_t near_sets = 0, far_sets = 0;
  uint32_t hot = 0;  // rows 0, 3, 6, ...
  double deadline_seconds = 60;
};

model::options shape(const setting& s) {
  model::options o;
  o.queues = 2;
  o.depth = 16;
  o.devices = s.devices;
  o.chunk_blocks = 8;
  o.max_blocks = 8;
  o.device_blocks = (s.rows * s.row_bytes / 512 / s.devices / 8 + 3) * 8;
  o.deadline_ns = static_cast<uint64_t>(s.deadline_seconds * 1e9);
  o.bounce = s.bounce;
  return o;
}

// Word `w` of a version of a row. The version can be read from any word.
uint32_t word(uint64_t row, uint32_t w, uint32_t version) { return static_cast<uint32_t>(row * 131 + w * 7) << 12 | (version & 0xfff); }

// A table over a model controller, with the host's part.
struct fixture {
  setting s;
  model::controller device;
  wb_table_view view{};
  wb_table_stats stats[WB_STATS_STRIPES] = {};
  uint32_t words;
  struct tier {
    std::vector<uint64_t> tags, frames;
    std::vector<uint32_t> changed, seen;
  } tiers[WB_ROW_TIERS];
  std::vector<uint64_t> hot_rows, hot_frames;
  std::vector<uint32_t> hot_index;
  // Memory that devices reach: staging and output of every warp.
  std::vector<uint64_t> memory;

  explicit fixture(const setting& setting_, uint32_t outputs = 1) : s(setting_), device(shape(s)), words(s.row_bytes / 4) {
    device.plan = plan;
    view.volume = &device.volume;
    view.stats = stats;
    view.first = 512;
    view.rows = s.rows;
    view.row_bytes = s.row_bytes;
    const uint32_t most = s.row_bytes % 512 == 0 ? s.row_bytes / 512 : (s.row_bytes + 510) / 512 + 1;
    view.part_blocks = std::min(most, 8u);
    view.parts = (most + view.part_blocks - 1) / view.part_blocks;
    const uint32_t sets[] = {s.near_sets, s.far_sets};
    for (uint32_t i = 0; i < WB_ROW_TIERS; ++i) {
      if (sets[i] == 0) continue;
      tiers[i].tags.resize(sets[i] * WB_ROW_WAYS);
      tiers[i].frames.resize(uint64_t{sets[i]} * WB_ROW_WAYS * s.row_bytes / 8 + 1);
      tiers[i].changed.resize(sets[i]);
      tiers[i].seen.resize(16);
      view.cache[i] = wb_row_cache{tiers[i].tags.data(), tiers[i].changed.data(),
                                   tiers[i].seen.data(), reinterpret_cast<uint64_t>(tiers[i].frames.data()),
                                   sets[i] - 1,          15};
    }
    for (uint64_t r = 0; r < s.rows; ++r) put(r, 0);
    fill_hot();
    memory.resize((outputs * (out_bytes() + scratch_bytes())) / 8);
    device.window(memory.data(), memory.size() * 8);
    device.start();
  }
  ~fixture() { device.finish(); }

  static constexpr uint64_t most = 96;  // rows of a batch
  static constexpr uint32_t in_flight = 8;
  uint64_t out_bytes() const { return (most * s.row_bytes + 63) / 64 * 64; }
  uint64_t scratch_bytes() const { return uint64_t{in_flight} * 8 * 512; }
  char* out(uint32_t i) { return reinterpret_cast<char*>(memory.data()) + i * (out_bytes() + scratch_bytes()); }

  // Writes a row behind the kernels' back.
  void put(uint64_t row, uint32_t version) {
    for (uint32_t w = 0; w < words; ++w) {
      const uint64_t byte = view.first + row * s.row_bytes + w * 4;
      const uint32_t v = word(row, w, version);
      std::memcpy(device.at(byte / 512) + byte % 512, &v, 4);
    }
  }
  void fill_hot() {
    if (s.hot == 0) return;
    uint32_t slots = 1;
    while (slots < 2 * s.hot) slots *= 2;
    hot_rows.resize(slots);
    hot_index.resize(slots);
    hot_frames.resize(uint64_t{s.hot} * s.row_bytes / 8 + 1);
    for (uint32_t i = 0; i < s.hot; ++i) {
      const uint64_t row = uint64_t{i} * 3;
      uint64_t at = rows::hash(row) & (slots - 1);
      while (hot_rows[at]) at = (at + 1) & (slots - 1);
      hot_rows[at] = row + 1;
      hot_index[at] = i;
      for (uint32_t w = 0; w < words; ++w) reinterpret_cast<uint32_t*>(hot_frames.data())[i * words + w] = word(row, w, 0);
    }
    view.hot_row = hot_rows.data();
    view.hot_frame = hot_index.data();
    view.hot_frames = reinterpret_cast<uint64_t>(hot_frames.data());
    view.hot_mask = slots - 1;
  }
  uint64_t sum(uint64_t wb_table_stats::* what) const {
    uint64_t n = 0;
    for (const auto& x : stats) n += x.*what;
    return n;
  }
  uint64_t reads() const {
    uint64_t n = 0;
    for (const auto& x : device.stats) n += x.reads;
    return n;
  }
  // Begins another run after one that failed.
  void reset() {
    device.abort_word = 0;
    std::memset(static_cast<void*>(&device.log), 0, sizeof device.log);
  }
};

// The scratch of one batch at a time.
struct scratch {
  std::vector<uint64_t> slots;
  wb_table_scratch view{};

  scratch(fixture& b, uint32_t number, uint8_t fill = 0) : slots(512, fill ? ~uint64_t{0} : 0) {
    view.slots = slots.data();
    view.slot_mask = slots.size() / 2 - 1;
    view.staging = reinterpret_cast<uint64_t>(b.out(number)) + b.out_bytes();
    view.staging_bytes = 8 * 512;
    view.in_flight = fixture::in_flight;
  }
};

using indices = std::vector<uint64_t>;

// Returns indices among the rows, with many duplicates if `few` is small.
indices draw(std::mt19937_64& g, uint64_t n, uint64_t rows, uint64_t few) {
  indices list(n);
  const uint64_t base = g() % rows;
  for (auto& i : list) i = g() % 3 == 0 ? g() % rows : (base + g() % few) % rows;
  return list;
}

// Returns true if the row in memory has one version from `low` to `high` in every block.
bool holds(const fixture& b, const char* at, uint64_t row, uint32_t low, uint32_t high) {
  for (uint32_t w = 0; w < b.words; ++w) {
    const uint32_t v = order::load<order::relaxed>(reinterpret_cast<const uint32_t*>(at) + w);
    const uint32_t version = v & 0xfff;
    if (v != word(row, w, version) || version < low || version > high) return false;
  }
  return true;
}
void check_batch(const fixture& b, const char* out, const indices& list, uint32_t low, uint32_t high) {
  for (size_t i = 0; i < list.size(); ++i) CHECK(holds(b, out + i * b.s.row_bytes, list[i], low, high));
}

// Batches by whole grids. The reads of the devices are counted: every row of a batch is read once.
void grids(const setting& s, uint32_t warps, uint32_t rounds) {
  fixture b(s);
  scratch sc(b, 0);
  std::mt19937_64 g(s.row_bytes * 31 + warps);
  for (uint32_t round = 1; round <= rounds * scale; ++round) {
    const indices list = draw(g, round % 4 == 0 ? round % 3 : 1 + g() % fixture::most, s.rows, 1 + g() % 12);
    sc.view.epoch = round;
    const uint64_t before = b.reads(), rows_before = b.sum(&wb_table_stats::device_reads);
    std::memset(b.out(0), 0xee, b.out_bytes());
    model::run(warps, [&] { CHECK(table_ref(b.view).gather_grid(list.data(), list.size(), b.out(0), sc.view)); });
    check_batch(b, b.out(0), list, 0, 0);
    const std::set<uint64_t> different(list.begin(), list.end());
    if (s.near_sets + s.far_sets + s.hot == 0) {
      CHECK(b.sum(&wb_table_stats::device_reads) - rows_before == different.size());
      uint64_t expected = 0;
      for (const uint64_t row : different) {
        // A read ends with a part, with a stripe unit, and with the most that a command moves.
        const uint64_t first = (b.view.first + row * s.row_bytes) / 512, last = (b.view.first + (row + 1) * s.row_bytes - 1) / 512;
        for (uint64_t at = first; at <= last; ++expected) {
          const uint64_t part_end = first + ((at - first) / b.view.part_blocks + 1) * b.view.part_blocks;
          const uint64_t unit_end = s.devices > 1 ? (at / 8 + 1) * 8 : ~0ull;
          at = std::min(std::min(at + 8, unit_end), std::min(part_end, last + 1));
        }
      }
      CHECK(b.reads() - before == expected);
    }
  }
  CHECK(b.device.log.count == 0);
  CHECK(b.sum(&wb_table_stats::rows) == b.sum(&wb_table_stats::device_reads) + b.sum(&wb_table_stats::duplicates) +
                                            b.sum(&wb_table_stats::hot_hits) + b.sum(&wb_table_stats::cache_hits) +
                                            b.sum(&wb_table_stats::host_hits));
  std::printf("grids: %u bytes, %u warps, %u devices, %s: %lu rows, %lu read, %lu duplicates, %lu + %lu + %lu hits, %lu + %lu admitted\n",
              s.row_bytes, warps, s.devices, s.bounce ? "bounce" : "direct", b.sum(&wb_table_stats::rows),
              b.sum(&wb_table_stats::device_reads), b.sum(&wb_table_stats::duplicates), b.sum(&wb_table_stats::hot_hits),
              b.sum(&wb_table_stats::cache_hits), b.sum(&wb_table_stats::host_hits), b.sum(&wb_table_stats::admissions),
              b.sum(&wb_table_stats::host_admissions));
}

// Each block gathers batches of its own, by two warps.
void blocks(const setting& s, uint32_t count, uint32_t rounds) {
  fixture b(s, count);
  std::vector<scratch> sc;
  for (uint32_t i = 0; i < count; ++i) sc.emplace_back(b, i);
  std::mt19937_64 g(3);
  for (uint32_t round = 1; round <= rounds * scale; ++round) {
    std::vector<indices> lists;
    for (uint32_t i = 0; i < count; ++i) lists.push_back(draw(g, 1 + g() % fixture::most, s.rows, 9));
    const auto kernel = [&] {
      const uint32_t me = blockIdx.x;
      wb_table_scratch mine = sc[me].view;
      mine.epoch = round;
      CHECK(table_ref(b.view).gather_block(lists[me].data(), lists[me].size(), b.out(me), mine));
    };
    auto call = [](void* const* p) { (*static_cast<decltype(kernel)*>(p[0]))(); };
    void* parameters[] = {const_cast<void*>(static_cast<const void*>(&kernel))};
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < count; ++i) threads.emplace_back([&, i] { cpu::run_block(call, parameters, i, count, 2 * width); });
    for (auto& t : threads) t.join();
    for (uint32_t i = 0; i < count; ++i) check_batch(b, b.out(i), lists[i], 0, 0);
  }
  CHECK(b.device.log.count == 0 && b.sum(&wb_table_stats::duplicates) > 0);
  std::printf("blocks: %lu rows, %lu read\n", b.sum(&wb_table_stats::rows), b.sum(&wb_table_stats::device_reads));
}

// Each warp gathers batches of its own, while a cache that is too small for all of them gives frames away.
void warps_of_their_own(const setting& s, uint32_t warps, uint32_t rounds) {
  fixture b(s, warps);
  std::vector<scratch> sc;
  for (uint32_t i = 0; i < warps; ++i) sc.emplace_back(b, i);
  // The lanes of a warp share their batch.
  std::vector<std::vector<indices>> lists(warps);
  for (uint32_t i = 0; i < warps; ++i) {
    std::mt19937_64 g(i + 77);
    for (uint32_t round = 0; round < rounds * scale; ++round) lists[i].push_back(draw(g, 1 + g() % 40, s.rows, 24));
  }
  model::run(warps, [&] {
    const uint32_t me = warp::index();
    for (uint32_t round = 0; round < lists[me].size(); ++round) {
      const indices& list = lists[me][round];
      wb_table_scratch mine = sc[me].view;
      mine.epoch = round + 1;
      CHECK(table_ref(b.view).gather_warp(list.data(), list.size(), b.out(me), mine));
      if (warp::is_leader(warp::full())) check_batch(b, b.out(me), list, 0, 0);
      warp::sync(warp::full());
    }
  });
  CHECK(b.device.log.count == 0);
  CHECK(b.sum(&wb_table_stats::admissions) > 0 && b.sum(&wb_table_stats::cache_hits) > 0);
  CHECK(width == 32 || b.sum(&wb_table_stats::retries) > 0);
  for (const uint64_t t : b.tiers[0].tags) CHECK((t & (WB_ROW_BUSY | WB_ROW_DEAD)) == 0);
  std::printf("warps of their own: %lu hits, %lu admitted, %lu frames lost during a hit\n", b.sum(&wb_table_stats::cache_hits),
              b.sum(&wb_table_stats::admissions), b.sum(&wb_table_stats::retries));
}

// Every order of a row's admission and its write: no frame keeps the row that was read before the write.
void admissions_and_writes() {
  setting s;
  s.near_sets = 1;
  fixture b(s);
  model::run(1, [&] {
    if (!warp::is_leader(warp::full())) return;
    const rows::row_cache cache(b.view.cache[0], s.row_bytes);
    const auto enter = [&](uint64_t row) {
      const auto f = cache.claim(row, cache.changed(row), true);
      CHECK(f.tag != nullptr && cache.find(row).tag == nullptr);
      return f;
    };
    // The write comes last, in the middle, and between the read and the claim.
    CHECK(rows::row_cache::publish(enter(1)) && cache.find(1).tag != nullptr);
    const auto seen = cache.find(1);
    cache.drop(1);
    CHECK(cache.find(1).tag == nullptr && !rows::row_cache::still(seen));
    const auto claimed = enter(2);
    cache.drop(2);
    CHECK(!rows::row_cache::publish(claimed) && cache.find(2).tag == nullptr);
    const uint32_t before = cache.changed(3);
    cache.drop(3);
    CHECK(cache.claim(3, before, true).tag == nullptr && cache.find(3).tag == nullptr);
    // A row has one frame, and a frame that is filled is not taken.
    const auto first = enter(4);
    CHECK(cache.claim(4, cache.changed(4), true).tag == nullptr);
    for (uint64_t row = 5; row < 5 + WB_ROW_WAYS - 1; ++row) CHECK(rows::row_cache::publish(enter(row)));
    // The set is full: a row enters when it is missed the second time, in place of one that was used least.
    for (uint64_t row = 6; row < 5 + WB_ROW_WAYS - 1; ++row) rows::row_cache::use(cache.find(row));
    CHECK(cache.claim(40, cache.changed(40), false).tag == nullptr);
    const auto second = cache.claim(40, cache.changed(40), false);
    CHECK(second.tag != nullptr && cache.find(5).tag == nullptr && cache.find(6).tag != nullptr);
    CHECK(rows::row_cache::publish(first) && rows::row_cache::publish(second));
    cache.drop_set(0);
    for (uint64_t row = 0; row < s.rows; ++row) CHECK(cache.find(row).tag == nullptr);
  });
  std::printf("admissions and writes in every order\n");
}

// Writes version after version while other warps gather. No gather that begins after a write has ended sees an older version.
void writes_beside_reads(const setting& s, uint32_t warps, uint32_t versions) {
  fixture b(s, warps + 1);
  std::vector<scratch> sc;
  for (uint32_t i = 0; i < warps; ++i) sc.emplace_back(b, i);
  scratch writing(b, warps, 0xff);
  std::atomic<uint32_t> begun{0}, ended{0};
  std::atomic<bool> over{false};
  std::thread writer([&] {
    std::mt19937_64 g(5);
    for (uint32_t version = 1; version <= versions * scale; ++version) {
      // Every row, in a random order, with duplicates whose later position counts.
      indices list;
      for (uint64_t r = 0; r < s.rows; ++r) list.push_back(r);
      std::shuffle(list.begin(), list.end(), g);
      list.insert(list.begin(), list.begin(), list.begin() + 16);
      for (size_t i = 0; i < list.size(); ++i) {
        for (uint32_t w = 0; w < b.words; ++w) {
          // The first ones are overtaken by duplicates.
          const uint32_t v = i < 16 ? 0xffffffff : word(list[i], w, version);
          std::memcpy(b.out(warps) + i * s.row_bytes + w * 4, &v, 4);
        }
      }
      writing.view.epoch = version;
      begun.store(version, std::memory_order_release);
      const auto kernel = [&](auto part) {
        model::run(1, [&] { part(rows::scatter(b.view, list.data(), true, list.size(), writing.view)); });
      };
      kernel([&](const auto& k) { k.claim(); });
      kernel([&](const auto& k) { k.write(b.out(warps)); });
      kernel([&](const auto& k) { k.complete(b.out(warps)); });
      ended.store(version, std::memory_order_release);
    }
    over.store(true, std::memory_order_release);
  });
  struct per_warp {
    indices list;
    uint32_t low = 0, rounds = 0;
    bool stop = false;
  };
  std::vector<per_warp> state(warps);
  model::run(warps, [&] {
    const uint32_t me = warp::index();
    std::mt19937_64 g(me + 9);
    per_warp& p = state[me];
    for (;;) {
      if (warp::is_leader(warp::full())) {
        // One more round after the writer's end.
        p.stop = p.stop || (p.rounds > 0 && over.load(std::memory_order_acquire) && p.low == versions * scale);
        p.list = draw(g, 1 + g() % 24, s.rows, 12);
        p.low = ended.load(std::memory_order_acquire);
        ++p.rounds;
      }
      warp::sync(warp::full());
      if (p.stop) break;
      wb_table_scratch mine = sc[me].view;
      mine.epoch = p.rounds;
      CHECK(table_ref(b.view).gather_warp(p.list.data(), p.list.size(), b.out(me), mine));
      if (warp::is_leader(warp::full())) check_batch(b, b.out(me), p.list, p.low, begun.load(std::memory_order_acquire));
      warp::sync(warp::full());
    }
  });
  writer.join();
  CHECK(b.device.log.count == 0);
  CHECK(b.sum(&wb_table_stats::written) == s.rows * versions * scale);
  std::printf("writes beside reads: %u versions, %lu rows gathered, %lu + %lu + %lu hits, %lu + %lu admitted, %lu lost\n", versions * scale,
              b.sum(&wb_table_stats::rows), b.sum(&wb_table_stats::hot_hits), b.sum(&wb_table_stats::cache_hits),
              b.sum(&wb_table_stats::host_hits), b.sum(&wb_table_stats::admissions), b.sum(&wb_table_stats::host_admissions),
              b.sum(&wb_table_stats::retries));
}

// Reads that fail or never end, and indices of no row: the batch fails with the reason, also those that wait for another's row.
void failures() {
  setting s;
  s.deadline_seconds = 0.5;
  fixture b(s);
  scratch sc(b, 0);
  indices list(40);
  for (size_t i = 0; i < list.size(); ++i) list[i] = i % 8;
  const auto gather = [&] {
    ++sc.view.epoch;
    std::atomic<uint32_t> good{0};
    model::run(3, [&] { good += table_ref(b.view).gather_grid(list.data(), list.size(), b.out(0), sc.view); });
    return good.load();
  };
  for (uint64_t bad = 0; bad < 8; ++bad) {
    bad_from = bad + 1;  // row 0 is in block 1
    bad_to = bad + 2;
    CHECK(gather() < 3 * width);
    CHECK(b.device.log.count != 0);
    bool named = false;
    for (uint32_t i = 0; i < std::min(b.device.log.count, WB_ERROR_LOG_ENTRIES); ++i) {
      const wb_error& e = b.device.log.entry[i];
      named |= e.status == status_word(WB_DEVICE_ERROR, model::media_error) && e.lba == bad + 1 && e.blocks == 1;
    }
    CHECK(named);
    bad_from = bad_to = 0;
    b.reset();
    CHECK(gather() == 3 * width);
    check_batch(b, b.out(0), list, 0, 0);
  }
  for (const size_t position : {size_t{0}, size_t{17}, list.size() - 1}) {
    list[position] = (uint64_t{5} << 32) + 9;
    CHECK(gather() < 3 * width);
    const wb_error& e = b.device.log.entry[0];
    CHECK(e.opcode == WB_TABLE_OPCODE && e.lba == position && e.queue == 5 && e.command == 9 && e.device == 0 && e.blocks == s.rows);
    list[position] = position % 8;
    b.reset();
    CHECK(gather() == 3 * width);
  }
  silent = true;
  CHECK(gather() < 3 * width);
  CHECK(b.device.log.count != 0);
  silent = false;
  order::store<order::release>(&b.device.release_lost, 1u);
  b.reset();
  // Commands that were given up may still write to the output, so the next batch has another one in practice; here they are over
  // once the controller has nothing left.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(gather() == 3 * width);
  check_batch(b, b.out(0), list, 0, 0);
  std::printf("failures are told, and the next batch works\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) scale = static_cast<uint32_t>(std::atoi(argv[1]));
  const uint32_t warps = width == 32 ? 2 : 4;
  const uint32_t rounds = width == 1 ? 60 : width == 4 ? 4 : 2;
  // Enough that a hit loses its frame in each run.
  const uint32_t many = width == 1 ? 240 : width == 4 ? 40 : 8;
  for (const bool bounce : {true, false}) {
    for (const uint32_t devices : {1u, 2u}) {
      for (const uint32_t bytes : {512u, 64u, 400u, 1536u, 5120u, 6004u}) {
        setting s;
        s.bounce = bounce;
        s.devices = devices;
        s.row_bytes = bytes;
        grids(s, warps, rounds);
      }
    }
  }
  admissions_and_writes();
  blocks(setting{}, 2, rounds);
  setting cached;
  cached.rows = 200;
  cached.near_sets = 1;
  warps_of_their_own(cached, warps, many);
  cached.row_bytes = 100;
  warps_of_their_own(cached, warps, many);
  cached.far_sets = 4;
  cached.hot = 7;
  grids(cached, warps, rounds * 4);
  setting written;
  written.rows = 40;
  written.near_sets = 1;
  written.far_sets = 2;
  written.hot = 5;
  for (const bool bounce : {true, false}) {
    written.bounce = bounce;
    writes_beside_reads(written, width == 32 ? 1 : 3, rounds);
  }
  failures();
  std::printf("table: ok\n");
}
