// Worlds whose PEs are threads of a stress program: heaps, control blocks and networks, by loads and stores or over the adapter of
// nic.h.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

#include "check.h"
#include "nic.h"

namespace warpbell {

// Data path between PEs: loads and stores; adapters; or stores between pairs of neighbours and adapters between the others.
enum class by { stores, network, both };
inline by transport = by::stores;
inline uint32_t adapter_flags = 0;

// The host's data of one PE.
struct pe_state {
  wb_control control{};
  wb_error_log log{};
  uint32_t stop = 0, abort = 0;
  std::vector<wb_team_rounds> rounds = std::vector<wb_team_rounds>(WB_CHANNELS);
  std::vector<uint32_t> allocated;
};

// A world of `n` PEs of this process.
class stand {
 public:
  static constexpr uint64_t team_bytes = 8 * WB_CHANNELS * WB_SYNC_ROUNDS * WB_SYNC_SLOTS;

  stand(uint32_t n, uint64_t bytes) : bytes_((bytes + team_bytes * 2 + 4095) / 4096 * 4096), pes_(n), next_(0) {
    heap_ = static_cast<uint8_t*>(std::aligned_alloc(4096, bytes_ * n));
    std::memset(heap_, 0, bytes_ * n);
    for (pe_state& p : pes_) {
      p.control.stop = &p.stop, p.control.abort = &p.abort, p.control.error_log = &p.log;
      p.control.deadline_ns = 60ull * 1000000000;
      p.allocated.resize(bytes_ / WB_HEAP_GRANULE / 32 + 1);
    }
    sync_ = take(team_bytes);
    signals_ = take(8 * WB_CHANNELS * n);
    scratch_ = take(WB_SCRATCH_LEAST_BYTES);
    if (transport == by::stores) return;
    for (uint32_t p = 0; p < n; ++p) connected_.push_back(loads_and_stores(p, 0));
    const auto near = [](uint32_t a, uint32_t b) { return transport == by::both && a / 2 == b / 2; };
    fabric_ = std::make_unique<fabric>(nic_, connected_, 2, 128, adapter_flags, near);
    nic_.start();
  }
  ~stand() {
    nic_.stop();
    std::free(heap_);
  }
  stand(const stand&) = delete;

  // Lets a queue pair fail at its `after`-th request, from 0. Call this before the queue is used.
  void break_queue(uint32_t from, uint32_t to, uint32_t lane, uint32_t syndrome, uint32_t after = 0) {
    nic_.fail(fabric_->queue(from, to, lane), after, syndrome);
  }
  // Returns the blocks that the doorbell of a queue pair has announced.
  uint32_t announced(uint32_t from, uint32_t to, uint32_t lane) const { return nic_.announced(fabric_->queue(from, to, lane)); }

  // The adapter. It executes requests until it is stopped.
  nic& adapter() { return nic_; }

  uint32_t size() const { return static_cast<uint32_t>(pes_.size()); }
  pe_state& pe(uint32_t p) { return pes_[p]; }

  // Allocates symmetric memory. Returns its offset.
  uint64_t take(uint64_t bytes) {
    const uint64_t offset = next_, granules = (bytes + WB_HEAP_GRANULE - 1) / WB_HEAP_GRANULE;
    next_ += granules * WB_HEAP_GRANULE;
    CHECK(next_ <= bytes_);
    for (pe_state& p : pes_) {
      for (uint64_t g = offset / WB_HEAP_GRANULE; g < next_ / WB_HEAP_GRANULE; ++g) p.allocated[g / 32] |= 1u << g % 32;
    }
    return offset;
  }
  template <class T> T* here(uint32_t pe, uint64_t offset) { return reinterpret_cast<T*>(heap_ + pe * bytes_ + offset); }

  wb_world world(uint32_t p) { return connected_.empty() ? loads_and_stores(p) : connected_[p]; }
  wb_world loads_and_stores(uint32_t p, uint32_t flags = WB_WORLD_LOAD_STORE | WB_WORLD_ATOMICS) {
    wb_world w{};
    w.control = &pes_[p].control;
    w.heap = reinterpret_cast<uint64_t>(here<uint8_t>(p, 0));
    w.heap_bytes = w.stride = bytes_;
    w.allocated = pes_[p].allocated.data();
    w.pe = p, w.size = size(), w.flags = flags;
    w.team.pe = p, w.team.size = size(), w.team.start = 0, w.team.stride = 1;
    w.team.sync = here<uint64_t>(p, sync_), w.team.signals = here<uint64_t>(p, signals_), w.team.scratch = w.heap + scratch_;
    w.team.rounds = pes_[p].rounds.data();
    return w;
  }

  // Runs `f(world, pe)` in every thread of a block on every PE.
  template <class F> void run(uint32_t threads, F f) {
    std::vector<std::thread> all;
    for (uint32_t p = 0; p < size(); ++p) {
      all.emplace_back([this, threads, p, &f] {
        const world_ref w(world(p));
        auto lane = [&] { f(w, p); };
        run_block(threads, lane);
      });
    }
    for (auto& t : all) t.join();
  }
  // Runs `f` as above, and checks that no PE's run has failed.
  template <class F> void run_well(uint32_t threads, F f) {
    run(threads, f);
    for (pe_state& p : pes_) CHECK(p.log.count == 0);
  }

  template <class F> static void run_block(uint32_t threads, F& lane, uint32_t block = 0, uint32_t blocks = 1) {
    struct local {
      static void call(void* const* p) { (*static_cast<F*>(p[0]))(); }
    };
    void* parameters[] = {&lane};
    cpu::run_block(&local::call, parameters, block, blocks, threads);
  }

 private:
  uint64_t bytes_;
  std::vector<pe_state> pes_;
  uint64_t next_, sync_ = 0, signals_ = 0, scratch_ = 0;
  uint8_t* heap_;
  nic nic_;
  std::vector<wb_world> connected_;
  std::unique_ptr<fabric> fabric_;
};

}  // namespace warpbell
