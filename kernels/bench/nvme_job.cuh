// Choices of a benchmark of a volume: which blocks a command accesses, in which direction, how many of them, and when.
#pragma once

#include <warpbell/clock.cuh>
#include <warpbell/volume.cuh>

#include "params.h"

namespace nvme_bench {

using namespace warpbell;

// xorshift64 (Marsaglia, 2003).
WB_FN uint64_t next(uint64_t& x) {
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

// Returns the position of the highest bit that is set in `v`, which is not 0.
WB_FN uint32_t log2_of(uint64_t v) {
#if WB_GPU
  return 63u - static_cast<uint32_t>(__clzll(static_cast<long long>(v)));
#else
  return 63u - static_cast<uint32_t>(__builtin_clzll(v));
#endif
}

// Maps the numbers below `count` to one another, by a key. Multiplications by odd numbers and shifted exclusive-ors permute the numbers of
// as many bits; results that are too large go through again (cycle walking; Black and Rogaway, 2002).
WB_FN uint32_t permuted(uint32_t n, uint32_t count, uint32_t key) {
  const uint32_t bits = count > 1 ? log2_of(count - 1) + 1 : 0;
  const uint32_t mask = static_cast<uint32_t>((uint64_t{1} << bits) - 1), half = (bits + 1) / 2;
  do {
    n = ((n + key) * 0x7feb352du) & mask;
    n ^= n >> half;
    n = ((n ^ key >> 16) * 0x846ca68bu) & mask;
    n ^= n >> half;
    n = (n * 0x9e3779b1u) & mask;
    n ^= n >> half;
  } while (n >= count);
  return n;
}

// Returns a key of the permutation of one pass over the units.
WB_FN uint32_t key_of(uint64_t seed, uint64_t pass) {
  uint64_t x = (seed + pass * 0xd1b54a32d192ed03ull) | 1;
  next(x);
  return static_cast<uint32_t>(next(x) * 0x9e3779b97f4a7c15ull >> 32);
}

// A command that a lane makes.
struct command {
  uint64_t block;
  uint32_t blocks;
  bool is_read;
};

// Chooses commands: one random stream for each lane, and one for the warp, which decides between reads and writes.
class choice {
 public:
  WB_FN choice(const wb_nvme_bench& p, uint64_t lane) : p_(p) {
    mine_ = (p.seed + lane + 1) * 0x9e3779b97f4a7c15ull | 1;
    ours_ = (p.seed + warp::index() + 1) * 0xd1b54a32d192ed03ull | 1;
    pass_ = static_cast<uint32_t>(lane / p.units);
    position_ = static_cast<uint32_t>(lane % p.units);
    key_ = key_of(p.seed, pass_);
    for (uint32_t d = 0; d < 2; ++d) {
      unit_[d] = 0;
      left_[d] = 0;
    }
  }

  // Returns true for a read. All lanes of a warp get the same result.
  WB_FN bool reads() { return ((next(ours_) >> 32) * 100 >> 32) < p_.read_percent; }

  // Returns the lane's next command in this direction.
  WB_FN command take(bool is_read) {
    const uint64_t unit = p_.run > 1 ? of_run(is_read) : single();
    command c{unit * p_.stride_blocks, is_read ? p_.read_blocks : p_.write_blocks, is_read};
    if (p_.sizes) c.blocks = size(is_read);
    // Of a command that is larger than others and would pass the end, the last place.
    if (c.block + c.blocks > p_.region_blocks) c.block = (p_.region_blocks - c.blocks) / p_.stride_blocks * p_.stride_blocks;
    c.block += p_.first_block;
    return c;
  }

 private:
  // Returns the unit of a command that stands alone.
  WB_FN uint64_t single() {
    if (p_.zones) {
      const wb_nvme_zone z = p_.zones[next(mine_) >> 48];
      const uint32_t unit = z.first + static_cast<uint32_t>((next(mine_) >> 32) * z.count >> 32);
      return p_.scatter ? permuted(unit, static_cast<uint32_t>(p_.units), key_) : unit;
    }
    // The upper half of a random word, scaled: units are below 2^32.
    if (p_.random && !p_.map) return (next(mine_) >> 32) * p_.units >> 32;
    const uint32_t unit = p_.random ? permuted(position_, static_cast<uint32_t>(p_.units), key_) : position_;
    advance();
    return unit;
  }

  // Returns the unit of a command of a run, which begins at a random place. Reads and writes have runs of their own.
  WB_FN uint64_t of_run(bool is_read) {
    const uint32_t d = is_read ? 0 : 1;
    if (left_[d] == 0) {
      unit_[d] = static_cast<uint32_t>(single());
      left_[d] = p_.run;
    } else {
      unit_[d] = unit_[d] + 1 < p_.units ? unit_[d] + 1 : 0;
    }
    left_[d] = left_[d] - 1;
    return unit_[d];
  }

  // Goes on to the lane's next position among those of all lanes. A new pass has another permutation.
  WB_FN void advance() {
    const uint64_t position = uint64_t{position_} + p_.step;
    const bool wraps = position >= p_.units;
    position_ = static_cast<uint32_t>(wraps ? position - p_.units : position);
    if (wraps || p_.step_passes != 0) {
      pass_ += p_.step_passes + wraps;
      key_ = key_of(p_.seed, pass_);
    }
  }

  WB_FN uint32_t size(bool is_read) {
    const wb_nvme_size* sizes = p_.sizes + (is_read ? 0 : WB_NVME_BENCH_SIZES);
    const uint32_t random = static_cast<uint32_t>(next(mine_) >> 32);
    uint32_t i = 0;
    while (i + 1 < WB_NVME_BENCH_SIZES && random >= sizes[i].up_to) ++i;
    return sizes[i].blocks;
  }

  const wb_nvme_bench& p_;
  uint64_t mine_, ours_;
  uint32_t pass_, position_, key_;
  // Of runs, reads first. Volatile: few jobs need them, and a lone read is slower by a tenth if they take registers.
  volatile uint32_t unit_[2], left_[2];
};

// Times at which a warp may make its next read and its next write.
class pace {
 public:
  WB_FN pace(const wb_nvme_bench& p, uint64_t start) : p_(p) {
    // Warps begin one after another, within the time of one block of each.
    const uint64_t warps = (p.lanes + p.warp_lanes - 1) / p.warp_lanes;
    for (uint32_t d = 0; d < 2; ++d) due_[d] = (start << bits) + p.pace[d] / warps * warp::index();
  }

  // Returns true if any direction has a limit.
  WB_FN bool limited() const { return (p_.pace[0] | p_.pace[1]) != 0; }

  // Returns true if the time of the next command has come, and changes its direction if only the other one's has. All lanes of a warp call
  // this, and get the same result.
  WB_FN bool due(bool& is_read, uint64_t now) const {
    const bool read = due_[0] <= now << bits && p_.read_percent > 0, write = due_[1] <= now << bits && p_.read_percent < 100;
    const uint32_t seen = warp::shuffle(warp::full(), (read ? 1u : 0u) | (write ? 2u : 0u), 0);
    if (seen == 0) return false;
    if (seen != 3) is_read = seen == 1;
    return true;
  }

  // Counts the blocks of a warp's commands. What the device was too slow for is not made up for.
  WB_FN void spend(bool is_read, uint32_t blocks, uint64_t now) {
    const uint64_t all = warp::sum(warp::full(), blocks);
    const uint32_t d = is_read ? 0 : 1;
    due_[d] = later(due_[d], p_.pace[d] * all, now);
  }

 private:
  static constexpr uint32_t bits = WB_NVME_BENCH_PACE_BITS;
  // Time that a late warp may make up for: looks at the clock are not exact.
  static constexpr uint64_t slack = uint64_t{100000} << bits;

  static WB_FN uint64_t later(uint64_t due, uint64_t time, uint64_t now) {
    const uint64_t least = (now << bits) > slack ? (now << bits) - slack : 0;
    return (due > least ? due : least) + time;
  }

  const wb_nvme_bench& p_;
  volatile uint64_t due_[2];  // reads, writes; volatile as the runs of a choice
};

// Counts of the commands of a run. No count is kept by a lane: its registers are needed for the commands.
class ledger {
 public:
  WB_FN ledger(const wb_nvme_bench& p, uint64_t start) : p_(p), start_(start + p.ramp_ns) {}

  // Counts a command that began and ended at these times, unless it began before the measurement.
  WB_FN void add(const command& c, uint64_t began, uint64_t ended) const {
    if (began < start_) return;
    const uint32_t d = c.is_read ? 0 : 1;
    order::add<order::relaxed>(p_.histogram + d * WB_NVME_BENCH_BUCKETS + bucket(ended - began), uint64_t{1});
    if (p_.sizes) order::add<order::relaxed>(p_.totals + d, uint64_t{c.blocks});
    if (p_.series) note(p_.series + d, c.blocks, ended - began, (ended - start_) / p_.interval_ns);
  }

 private:
  // Returns the histogram bucket of a latency in nanoseconds.
  static WB_FN uint32_t bucket(uint64_t ns) {
    constexpr uint32_t bits = WB_NVME_BENCH_BITS;
    if (ns >> bits == 0) return static_cast<uint32_t>(ns);
    const uint32_t row = log2_of(ns) - bits;
    const uint32_t b = ((row + 1) << bits) + (static_cast<uint32_t>(ns >> row) & ((1u << bits) - 1));
    return b < WB_NVME_BENCH_BUCKETS ? b : WB_NVME_BENCH_BUCKETS - 1;
  }

  // Counts a command in its interval. The host reads the series while the run goes on, and never writes to it then: additions need to be
  // atomic among the lanes only.
  WB_FN void note(wb_nvme_interval* series, uint32_t blocks, uint64_t latency, uint64_t slot) const {
    if (slot >= p_.intervals) return;
    wb_nvme_interval* to = series + 2 * slot;
    order::add<order::relaxed>(&to->blocks, uint64_t{blocks});
    order::add<order::relaxed>(&to->latency_ns, latency);
    order::add<order::relaxed>(&to->commands, uint64_t{1});
  }

  const wb_nvme_bench& p_;
  uint64_t start_;
};

}  // namespace nvme_bench
