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

// Chooses commands: one random stream for each lane, and one for the warp, which decides between reads and writes. Without `Full`,
// commands stand alone, have one size, are nowhere drawn independently, and lanes are no more than units: what the others need costs a
// lone read some hundredths of its time.
template <bool Full> class choice {
 public:
  WB_FN choice(const wb_nvme_bench& p, uint64_t lane) : p_(p) {
    mine_ = (p.seed + lane + 1) * 0x9e3779b97f4a7c15ull | 1;
    ours_ = (p.seed + warp::index() + 1) * 0xd1b54a32d192ed03ull | 1;
    pass_ = lane / p.units;
    position_ = static_cast<uint32_t>(lane % p.units);
    step_ = static_cast<uint32_t>(p.lanes % p.units);
    step_passes_ = static_cast<uint32_t>(p.lanes / p.units);
    key_ = key_of(p.seed, pass_);
  }

  // Returns true for a read. All lanes of a warp get the same result.
  WB_FN bool reads() { return ((next(ours_) >> 32) * 100 >> 32) < p_.read_percent; }

  // Returns the lane's next command in this direction.
  WB_FN command take(bool is_read) {
    const uint64_t unit = Full && p_.run > 1 ? of_run(is_read) : single();
    command c{unit * p_.stride_blocks, is_read ? p_.read_blocks : p_.write_blocks, is_read};
    if constexpr (Full) {
      if (p_.sizes) c.blocks = size(is_read);
      // Of a command that is larger than others and would pass the end, the last place.
      if (c.block + c.blocks > p_.region_blocks) c.block = (p_.region_blocks - c.blocks) / p_.stride_blocks * p_.stride_blocks;
    }
    c.block += p_.first_block;
    return c;
  }

 private:
  // Returns the unit of a command that stands alone.
  WB_FN uint64_t single() {
    if (Full && p_.zones) {
      const wb_nvme_zone z = p_.zones[next(mine_) >> 48];
      const uint32_t unit = z.first + static_cast<uint32_t>((next(mine_) >> 32) * z.count >> 32);
      return p_.scatter ? permuted(unit, static_cast<uint32_t>(p_.units), key_) : unit;
    }
    // The upper half of a random word, scaled: units are below 2^32.
    if (Full && p_.random && !p_.map) return (next(mine_) >> 32) * p_.units >> 32;
    const uint32_t unit = p_.random ? permuted(position_, static_cast<uint32_t>(p_.units), key_) : position_;
    advance();
    return unit;
  }

  // Returns the unit of a command of a run, which begins at a random place. Reads and writes have runs of their own.
  WB_FN uint64_t of_run(bool is_read) { return is_read ? of_run(read_unit_, read_left_) : of_run(write_unit_, write_left_); }

  WB_FN uint64_t of_run(uint32_t& unit, uint32_t& left) {
    if (left == 0) {
      unit = static_cast<uint32_t>(single());
      left = p_.run;
    } else {
      unit = unit + 1 < p_.units ? unit + 1 : 0;
    }
    --left;
    return unit;
  }

  // Goes on to the lane's next position among those of all lanes. A new pass has another permutation.
  WB_FN void advance() {
    const uint64_t position = uint64_t{position_} + (Full ? step_ : p_.lanes);
    const bool wraps = position >= p_.units;
    position_ = static_cast<uint32_t>(wraps ? position - p_.units : position);
    if (wraps || (Full && step_passes_ != 0)) {
      pass_ += (Full ? step_passes_ : 0) + wraps;
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
  uint64_t mine_, ours_, pass_;
  uint32_t position_, step_, step_passes_, key_;
  uint32_t read_unit_ = 0, read_left_ = 0, write_unit_ = 0, write_left_ = 0;
};

// Times at which a warp may make its next read and its next write.
class pace {
 public:
  WB_FN pace(const wb_nvme_bench& p, uint64_t start) : p_(p), start_(start) {
    // Warps begin one after another, within the time of one block of each.
    const uint64_t warps = (p.lanes + p.warp_lanes - 1) / p.warp_lanes;
    read_due_ = p.pace[0] / warps * warp::index();
    write_due_ = p.pace[1] / warps * warp::index();
  }

  // Returns true if any direction has a limit.
  WB_FN bool limited() const { return (p_.pace[0] | p_.pace[1]) != 0; }

  // Returns true if the time of the next command has come, and changes its direction if only the other one's has. All lanes of a warp call
  // this, and get the same result.
  WB_FN bool due(bool& is_read, uint64_t now) const {
    const uint64_t time = since_start(now);
    const bool read = read_due_ <= time && p_.read_percent > 0, write = write_due_ <= time && p_.read_percent < 100;
    const uint32_t seen = warp::shuffle(warp::full(), (read ? 1u : 0u) | (write ? 2u : 0u), 0);
    if (seen == 0) return false;
    if (seen != 3) is_read = seen == 1;
    return true;
  }

  // Counts the blocks of a warp's commands. What the device was too slow for is not made up for.
  WB_FN void spend(bool is_read, uint32_t blocks, uint64_t now) {
    const uint64_t all = warp::sum(warp::full(), blocks);
    if (is_read) {
      read_due_ = later(read_due_, p_.pace[0] * all, since_start(now));
    } else {
      write_due_ = later(write_due_, p_.pace[1] * all, since_start(now));
    }
  }

 private:
  static constexpr uint32_t bits = WB_NVME_BENCH_PACE_BITS;
  // Time that a late warp may make up for: looks at the clock are not exact.
  static constexpr uint64_t slack = uint64_t{100000} << bits;

  // Returns a time as those of the next commands are: from the start on, so that its fractions fit.
  WB_FN uint64_t since_start(uint64_t now) const { return (now - start_) << bits; }

  static WB_FN uint64_t later(uint64_t due, uint64_t time, uint64_t now) {
    const uint64_t least = now > slack ? now - slack : 0;
    return (due > least ? due : least) + time;
  }

  const wb_nvme_bench& p_;
  uint64_t start_, read_due_, write_due_;
};

// Commands of one direction that a lane counts.
struct counters {
  uint64_t commands = 0, blocks = 0;
  wb_nvme_interval now = {};  // of the interval that has begun
};

// Counts of a lane. The run's memory gets those of an interval when it is over. Without `Full` there are no intervals, every command
// counts, and those of one direction have one size.
template <bool Full> class ledger {
 public:
  WB_FN ledger(const wb_nvme_bench& p, uint64_t start) : p_(p), start_(start + p.ramp_ns) {}

  // Counts a command that began and ended at these times, unless it began before the measurement.
  WB_FN void add(const command& c, uint64_t began, uint64_t ended) {
    if constexpr (Full) {
      if (began < start_) return;
      if (p_.series) turn_to((ended - start_) / p_.interval_ns);
    }
    if (c.is_read) {
      add(read_, p_.histogram, c.blocks, ended - began);
    } else {
      add(write_, p_.histogram + WB_NVME_BENCH_BUCKETS, c.blocks, ended - began);
    }
  }

  // Writes all that is counted. Called once, at the end of a run.
  WB_FN void close() {
    order::add<order::relaxed>(p_.totals, read_.commands);
    order::add<order::relaxed>(p_.totals + 1, write_.commands);
    order::add<order::relaxed>(p_.totals + 2, Full ? read_.blocks : read_.commands * p_.read_blocks);
    order::add<order::relaxed>(p_.totals + 3, Full ? write_.blocks : write_.commands * p_.write_blocks);
    if constexpr (Full) {
      if (p_.series) turn_to(~uint64_t{0});
    }
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

  WB_FN void add(counters& t, uint64_t* histogram, uint32_t blocks, uint64_t latency) {
    order::add<order::relaxed>(histogram + bucket(latency), uint64_t{1});
    ++t.commands;
    if constexpr (Full) {
      t.blocks += blocks;
      if (!p_.series) return;
      ++t.now.commands;
      t.now.blocks += blocks;
      t.now.latency_ns += latency;
    }
  }

  // Begins another interval. The host reads the series while the run goes on, and never writes to it then: additions need to be atomic
  // among the lanes only.
  WB_FN void turn_to(uint64_t slot) {
    if (slot == slot_) return;
    if (slot_ < p_.intervals) {
      flush(read_, p_.series + 2 * slot_);
      flush(write_, p_.series + 2 * slot_ + 1);
    }
    slot_ = slot;
  }

  static WB_FN void flush(counters& t, wb_nvme_interval* to) {
    if (t.now.commands != 0) {
      order::add<order::relaxed>(&to->blocks, t.now.blocks);
      order::add<order::relaxed>(&to->latency_ns, t.now.latency_ns);
      order::add<order::relaxed>(&to->commands, t.now.commands);
    }
    t.now = wb_nvme_interval{};
  }

  const wb_nvme_bench& p_;
  uint64_t start_, slot_ = 0;
  counters read_, write_;
};

}  // namespace nvme_bench
