// Benchmarks of reads and writes of a volume, as fio makes them: operations per second, and the latency of each. Launch shape:
// blocks of up to 128 threads, all resident together.
//
// A unit is the data of one command. Lanes take units at random, or side by side through the volume. Each lane keeps one command in
// flight, or several by tokens. A warp reads or writes in one turn, so that its lanes go together.
#include <warpbell/clock.cuh>
#include <warpbell/kernel.h>
#include <warpbell/volume.cuh>

#include "params.h"

// Blocks of at most four warps. The host (host/bin/workloads/nvme.rs) launches as many as are resident together: a second wave would
// begin after the time of the first one is over.
#define WB_NVME_BENCH_KERNEL WB_KERNEL void __launch_bounds__(128)
// A kernel with up to 255 registers on a GPU. Otherwise ptxas gives a thread 128 and stores the others to the stack, which costs a
// twentieth of the time of a lone read.
#define WB_NVME_BENCH_ONE_KERNEL WB_KERNEL void __launch_bounds__(128, 2)

namespace nvme_bench {

using namespace warpbell;

WB_FN uint32_t log2_of(uint64_t v) {
#if WB_GPU
  return 63u - static_cast<uint32_t>(__clzll(static_cast<long long>(v)));
#else
  return 63u - static_cast<uint32_t>(__builtin_clzll(v));
#endif
}

// Returns the histogram bucket of a latency in nanoseconds.
WB_FN uint32_t bucket(uint64_t ns) {
  constexpr uint32_t bits = WB_NVME_BENCH_BITS;
  if (ns >> bits == 0) return static_cast<uint32_t>(ns);
  const uint32_t row = log2_of(ns) - bits;
  const uint32_t b = ((row + 1) << bits) + (static_cast<uint32_t>(ns >> row) & ((1u << bits) - 1));
  return b < WB_NVME_BENCH_BUCKETS ? b : WB_NVME_BENCH_BUCKETS - 1;
}

// Returns the expected value of 8-byte word `w` of a block: no two words of a volume are equal.
WB_FN uint64_t word(uint64_t block, uint32_t w) { return (block << 9 | w) * 0x9e3779b97f4a7c15ull; }

// xorshift64 (Marsaglia, 2003).
WB_FN uint64_t next(uint64_t& x) {
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

struct job {
  volume_ref vol;
  const wb_nvme_bench& p;
  uint32_t words;  // 8-byte words in a block

  WB_FN job(volume_ref v, const wb_nvme_bench& parameters) : vol(v), p(parameters), words(v.block_bytes() / 8) {}

  // Returns this lane's number among those that take part.
  WB_FN uint64_t lane() const { return static_cast<uint64_t>(warp::index()) * p.warp_lanes + warp::lane(); }
  // Returns true if this lane takes part.
  WB_FN bool mine() const { return warp::lane() < p.warp_lanes && lane() < p.lanes; }
  // Returns true if the whole warp is beyond the last lane that takes part.
  WB_FN bool idle() const { return static_cast<uint64_t>(warp::index()) * p.warp_lanes >= p.lanes; }

  // Returns true in all lanes if the time is over or the host has set the stop flag. The stop word is across the bus, so few turns
  // read it.
  WB_FN bool over(uint64_t start, uint64_t now, uint64_t turn) const {
    bool end = now - start >= p.runtime_ns;
    if (turn % 64 == 0 && warp::lane() == 0) {
      end |= order::load<order::relaxed, order::system>(vol.control()->stop) != 0;
    }
    return warp::any(warp::full(), end);
  }

  WB_FN uint64_t* totals() const { return p.totals; }
  WB_FN uint64_t* buffer(uint64_t lane, uint32_t slot) const { return p.buffers + (lane * p.per_lane + slot) * p.blocks * words; }

  // Fills the units of the lanes with `mine`, by the whole warp.
  WB_FN void fill(uint64_t unit, uint64_t* data, bool mine) const {
    const warp::mask_t all = warp::full();
    for (warp::mask_t left = warp::ballot(all, mine); left; left &= left - 1) {
      uint64_t* to = reinterpret_cast<uint64_t*>(warp::shuffle(all, reinterpret_cast<uint64_t>(data), warp::first(left)));
      const uint64_t block = warp::shuffle(all, unit, warp::first(left)) * p.blocks;
      for (uint32_t w = warp::lane(); w < p.blocks * words; w += warp::width) {
        order::store<order::relaxed>(to + w, word(block + w / words, w % words));
      }
    }
    warp::sync(all);
  }

  // Checks the units of the lanes with `mine`, by the whole warp.
  WB_FN void check(uint64_t unit, const uint64_t* data, bool mine) const {
    const warp::mask_t all = warp::full();
    for (warp::mask_t left = warp::ballot(all, mine); left; left &= left - 1) {
      const uint64_t* from = reinterpret_cast<const uint64_t*>(warp::shuffle(all, reinterpret_cast<uint64_t>(data), warp::first(left)));
      const uint64_t u = warp::shuffle(all, unit, warp::first(left));
      bool wrong = false;
      for (uint32_t w = warp::lane(); w < p.blocks * words; w += warp::width) {
        wrong |= order::load<order::relaxed>(from + w) != word(u * p.blocks + w / words, w % words);
      }
      if (warp::any(all, wrong) && warp::lane() == 0) {
        order::add<order::relaxed>(totals() + 2, uint64_t{1});
        order::store<order::relaxed>(totals() + 3, u + 1);
      }
    }
  }

  WB_FN void count(uint64_t began, bool is_read, bool mine) const {
    if (!mine) return;
    uint64_t* h = p.histogram + (is_read ? 0 : WB_NVME_BENCH_BUCKETS);
    order::add<order::relaxed>(h + bucket(now_ns() - began), uint64_t{1});
  }

  // Returns true in all lanes if any lane's operation failed. The lanes with a failure enter it in the error log.
  WB_FN bool failed(const status& s) const {
    if (!warp::any(warp::full(), !s)) return false;
    if (!s) vol.fail(s);
    return true;
  }
};

// Chooses units: one random stream for each lane, and one for the warp, which decides between reads and writes.
struct choice {
  uint64_t mine, ours;
  WB_FN choice(uint64_t seed, uint64_t lane) {
    mine = (seed + lane + 1) * 0x9e3779b97f4a7c15ull | 1;
    ours = (seed + warp::index() + 1) * 0xd1b54a32d192ed03ull | 1;
  }
  WB_FN uint64_t unit(const wb_nvme_bench& p, uint64_t lane, uint64_t turn) {
    if (!p.random) return (lane + turn * p.lanes) % p.units;
    // The upper half of a random word, scaled: units are below 2^32 by far.
    return (next(mine) >> 32) * p.units >> 32;
  }
  WB_FN bool reads(const wb_nvme_bench& p) { return ((next(ours) >> 32) * 100 >> 32) < p.read_percent; }
};

}  // namespace nvme_bench

// Writes the units from `first` to `units` - 1 once, with the contents that `check` expects.
WB_NVME_BENCH_KERNEL wb_nvme_bench_fill(WB_PARAM warpbell::volume_ref vol, WB_PARAM wb_nvme_bench p) {
  using namespace warpbell;
  const nvme_bench::job j(vol, p);
  if (j.idle()) return;
  const uint64_t lane = j.lane();
  uint64_t* data = j.buffer(j.mine() ? lane : 0, 0);
  for (uint64_t first = p.first; first < p.units; first += p.lanes) {
    const uint64_t unit = first + lane;
    const bool mine = j.mine() && unit < p.units;
    j.fill(unit, data, mine);
    if (j.failed(vol.write(warp::full(), unit * p.blocks, mine ? p.blocks : 0, data))) return;
  }
}
WB_EXPORT(wb_nvme_bench_fill)

// Measures with one command in flight for each lane.
WB_NVME_BENCH_ONE_KERNEL wb_nvme_bench_one(WB_PARAM warpbell::volume_ref vol, WB_PARAM wb_nvme_bench p) {
  using namespace warpbell;
  const nvme_bench::job j(vol, p);
  if (j.idle()) return;
  const uint64_t lane = j.lane(), start = now_ns();
  const bool mine = j.mine();
  uint64_t* data = j.buffer(mine ? lane : 0, 0);
  nvme_bench::choice choose(p.seed, lane);
  uint64_t reads = 0, writes = 0;
  for (uint64_t turn = 0;; ++turn) {
    const uint64_t began = now_ns();
    if (j.over(start, began, turn)) break;
    const uint64_t unit = choose.unit(p, lane, turn);
    const bool is_read = choose.reads(p);
    const uint32_t n = mine ? p.blocks : 0;
    if (!is_read && p.verify) j.fill(unit, data, mine);
    const status s = is_read ? vol.read(warp::full(), unit * p.blocks, n, data) : vol.write(warp::full(), unit * p.blocks, n, data);
    if (j.failed(s)) break;
    j.count(began, is_read, mine);
    if (is_read && p.verify) j.check(unit, data, mine);
    (is_read ? reads : writes) += mine;
  }
  order::add<order::relaxed>(j.totals(), reads);
  order::add<order::relaxed>(j.totals() + 1, writes);
}
WB_EXPORT(wb_nvme_bench_one)

// Measures with `per_lane` commands in flight for each lane: waits for the oldest, then submits another.
WB_NVME_BENCH_KERNEL wb_nvme_bench_many(WB_PARAM warpbell::volume_ref vol, WB_PARAM wb_nvme_bench p) {
  using namespace warpbell;
  struct flight {
    token t;
    uint64_t began, unit;
    bool is_read;
  };
  const nvme_bench::job j(vol, p);
  if (j.idle()) return;
  const uint64_t lane = j.lane(), start = now_ns();
  const bool mine = j.mine();
  nvme_bench::choice choose(p.seed, lane);
  flight f[WB_NVME_BENCH_PER_LANE];
  uint64_t reads = 0, writes = 0, turn = 0, oldest = 0;
  bool ending = false;
  for (;;) {
    ending = ending || j.over(start, now_ns(), turn);
    if (!ending && turn - oldest < p.per_lane) {
      const uint32_t slot = static_cast<uint32_t>(turn % p.per_lane);
      uint64_t* data = j.buffer(mine ? lane : 0, slot);
      flight& a = f[slot];
      a.unit = choose.unit(p, lane, turn);
      a.is_read = choose.reads(p);
      if (!a.is_read && p.verify) j.fill(a.unit, data, mine);
      a.began = now_ns();
      const uint32_t n = mine ? p.blocks : 0;
      a.t =
          a.is_read ? vol.read_async(warp::full(), a.unit * p.blocks, n, data) : vol.write_async(warp::full(), a.unit * p.blocks, n, data);
      ++turn;
      continue;
    }
    if (oldest == turn) break;
    const uint32_t slot = static_cast<uint32_t>(oldest % p.per_lane);
    flight& a = f[slot];
    if (j.failed(vol.wait(warp::full(), a.t))) break;
    j.count(a.began, a.is_read, mine);
    if (a.is_read && p.verify) j.check(a.unit, j.buffer(mine ? lane : 0, slot), mine);
    (a.is_read ? reads : writes) += mine;
    ++oldest;
  }
  order::add<order::relaxed>(j.totals(), reads);
  order::add<order::relaxed>(j.totals() + 1, writes);
}
WB_EXPORT(wb_nvme_bench_many)
