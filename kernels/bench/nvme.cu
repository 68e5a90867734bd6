// Benchmarks of reads and writes of a volume, as fio makes them: operations per second, and the latency of each. Launch shape:
// blocks of up to 128 threads, all resident together.
//
// A unit is the place of one command. Each lane keeps one command in flight, or several by tokens. A warp reads or writes in one turn, so
// that its lanes go together.
#include <warpbell/clock.cuh>
#include <warpbell/kernel.h>
#include <warpbell/volume.cuh>

#include "nvme_job.cuh"
#include "params.h"

// Blocks of at most four warps. The host (host/bin/workloads/nvme) launches as many as are resident together: a second wave would
// begin after the time of the first one is over.
#define WB_NVME_BENCH_KERNEL WB_KERNEL void __launch_bounds__(128)
// A kernel with up to 255 registers on a GPU. Otherwise ptxas gives a thread 128 and stores the others to the stack, which costs a
// twentieth of the time of a lone read.
#define WB_NVME_BENCH_ONE_KERNEL WB_KERNEL void __launch_bounds__(128, 2)

namespace nvme_bench {

// Returns the expected value of 8-byte word `w` of a block: no two words of a volume are equal.
WB_FN uint64_t word(uint64_t block, uint32_t w) { return (block << 9 | w) * 0x9e3779b97f4a7c15ull; }

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

  // Returns the number of commands that this lane makes at most.
  WB_FN uint64_t commands() const { return p.commands / p.lanes + (lane() < p.commands % p.lanes); }

  // Returns true in all lanes if the time is over or the host has set a stop flag. These words are across the bus, so few turns read them.
  WB_FN bool over(uint64_t start, uint64_t now, uint64_t turn) const {
    bool end = now - start >= p.runtime_ns;
    if (turn % 64 == 0 && warp::lane() == 0) {
      end |= order::load<order::relaxed, order::system>(vol.control()->stop) != 0;
      end |= order::load<order::relaxed, order::system>(p.stop) != 0;
    }
    return warp::any(warp::full(), end);
  }

  // Pauses between two looks at the clock, until the time of the next command.
  static WB_FN void rest() {
#if WB_GPU
    order::relax(100);
#else
    order::relax(0);
#endif
  }

  WB_FN uint64_t* buffer(uint64_t lane, uint32_t slot) const { return p.buffers + (lane * p.per_lane + slot) * p.buffer_blocks * words; }

  // Calls `f(block, blocks, data)` for the command of each lane with `mine`, in all lanes of the warp.
  template <class F> WB_FN void each(const command& c, const uint64_t* data, bool mine, F f) const {
    const warp::mask_t all = warp::full();
    for (warp::mask_t left = warp::ballot(all, mine); left; left &= left - 1) {
      const uint32_t from = warp::first(left);
      const uint64_t address = warp::shuffle(all, reinterpret_cast<uint64_t>(data), from);
      f(warp::shuffle(all, c.block, from), warp::shuffle(all, c.blocks, from), reinterpret_cast<uint64_t*>(address));
    }
  }

  // Fills the data of the lanes with `mine`, by the whole warp.
  WB_FN void fill(const command& c, uint64_t* data, bool mine) const {
    each(c, data, mine, [this](uint64_t block, uint32_t blocks, uint64_t* to) {
      for (uint32_t w = warp::lane(); w < blocks * words; w += warp::width) {
        order::store<order::relaxed>(to + w, word(block + w / words, w % words));
      }
    });
    warp::sync(warp::full());
  }

  // Checks the data of the lanes with `mine`, by the whole warp.
  WB_FN void check(const command& c, const uint64_t* data, bool mine) const {
    each(c, data, mine, [this](uint64_t block, uint32_t blocks, const uint64_t* from) {
      bool wrong = false;
      for (uint32_t w = warp::lane(); w < blocks * words; w += warp::width) {
        wrong |= order::load<order::relaxed>(from + w) != word(block + w / words, w % words);
      }
      if (warp::any(warp::full(), wrong) && warp::lane() == 0) {
        order::add<order::relaxed>(p.totals + 4, uint64_t{1});
        order::store<order::relaxed>(p.totals + 5, block + 1);
      }
    });
  }

  // Returns true in all lanes if any lane's operation failed. The lanes with a failure enter it in the error log.
  WB_FN bool failed(const status& s) const {
    if (!warp::any(warp::full(), !s)) return false;
    if (!s) vol.fail(s);
    return true;
  }
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
    const nvme_bench::command c{p.first_block + unit * p.read_blocks, p.read_blocks, false};
    j.fill(c, data, mine);
    if (j.failed(vol.write(warp::full(), c.block, mine ? c.blocks : 0, data))) return;
  }
}
WB_EXPORT(wb_nvme_bench_fill)

namespace nvme_bench {

// Measures with one command in flight for each lane. Without `Full` a job has no rates, no limit of its commands, no ramp and no series.
template <bool Full> WB_FN void one(const volume_ref& vol, const wb_nvme_bench& p) {
  const job j(vol, p);
  if (j.idle()) return;
  const uint64_t lane = j.lane(), start = now_ns(), most = Full && j.mine() ? j.commands() : 0;
  uint64_t* data = j.buffer(j.mine() ? lane : 0, 0);
  choice<Full> choose(p, lane);
  pace pace(p, start);
  ledger<Full> counts(p, start);
  uint64_t looks = 0;
  for (uint64_t turn = 0; !Full || warp::any(warp::full(), turn < most); ++turn) {
    bool is_read = choose.reads();
    uint64_t began = now_ns();
    bool ends = j.over(start, began, looks++);
    if constexpr (Full) {
      while (!ends && pace.limited() && !pace.due(is_read, began)) {
        j.rest();
        began = now_ns();
        ends = j.over(start, began, looks++);
      }
    }
    if (ends) break;
    const command c = choose.take(is_read);
    const bool mine = Full ? turn < most : j.mine();
    const uint32_t n = mine ? c.blocks : 0;
    if constexpr (Full) {
      if (pace.limited()) pace.spend(is_read, n, began);
    }
    if (!is_read && p.verify) {
      j.fill(c, data, mine);
      began = now_ns();
    }
    const status s = is_read ? vol.read(warp::full(), c.block, n, data) : vol.write(warp::full(), c.block, n, data);
    if (j.failed(s)) break;
    if (mine) counts.add(c, began, now_ns());
    if (is_read && p.verify) j.check(c, data, mine);
  }
  counts.close();
}

}  // namespace nvme_bench

WB_NVME_BENCH_ONE_KERNEL wb_nvme_bench_one(WB_PARAM warpbell::volume_ref vol, WB_PARAM wb_nvme_bench p) { nvme_bench::one<true>(vol, p); }
WB_EXPORT(wb_nvme_bench_one)

// Measures jobs that need nothing else: NvmeBench::kernel (host/bin/workloads/nvme) chooses.
WB_NVME_BENCH_ONE_KERNEL wb_nvme_bench_plain(WB_PARAM warpbell::volume_ref vol, WB_PARAM wb_nvme_bench p) {
  nvme_bench::one<false>(vol, p);
}
WB_EXPORT(wb_nvme_bench_plain)

// Measures with `per_lane` commands in flight for each lane: waits for the oldest, then submits another.
WB_NVME_BENCH_KERNEL wb_nvme_bench_many(WB_PARAM warpbell::volume_ref vol, WB_PARAM wb_nvme_bench p) {
  using namespace warpbell;
  struct flight {
    token t;
    uint64_t began;
    nvme_bench::command c;
  };
  const nvme_bench::job j(vol, p);
  if (j.idle()) return;
  const uint64_t lane = j.lane(), start = now_ns(), most = j.mine() ? j.commands() : 0;
  nvme_bench::choice<true> choose(p, lane);
  nvme_bench::pace pace(p, start);
  nvme_bench::ledger<true> counts(p, start);
  flight f[WB_NVME_BENCH_PER_LANE];
  uint64_t turn = 0, oldest = 0, looks = 0;
  bool is_read = choose.reads();
  for (bool ending = false;;) {
    const uint64_t now = now_ns();
    ending = ending || j.over(start, now, looks++) || !warp::any(warp::full(), turn < most);
    const bool has_room = !ending && turn - oldest < p.per_lane;
    if (has_room && (!pace.limited() || pace.due(is_read, now))) {
      const uint32_t slot = static_cast<uint32_t>(turn % p.per_lane);
      uint64_t* data = j.buffer(j.mine() ? lane : 0, slot);
      flight& a = f[slot];
      a.c = choose.take(is_read);
      const bool mine = turn < most;
      const uint32_t n = mine ? a.c.blocks : 0;
      if (pace.limited()) pace.spend(is_read, n, now);
      if (!is_read && p.verify) j.fill(a.c, data, mine);
      a.began = now_ns();
      a.t = is_read ? vol.read_async(warp::full(), a.c.block, n, data) : vol.write_async(warp::full(), a.c.block, n, data);
      is_read = choose.reads();
      ++turn;
      continue;
    }
    if (oldest == turn) {
      if (ending) break;
      j.rest();
      continue;
    }
    const uint32_t slot = static_cast<uint32_t>(oldest % p.per_lane);
    flight& a = f[slot];
    const bool mine = oldest < most;
    if (j.failed(vol.wait(warp::full(), a.t))) break;
    if (mine) counts.add(a.c, a.began, now_ns());
    if (a.c.is_read && p.verify) j.check(a.c, j.buffer(j.mine() ? lane : 0, slot), mine);
    ++oldest;
  }
  counts.close();
}
WB_EXPORT(wb_nvme_bench_many)
