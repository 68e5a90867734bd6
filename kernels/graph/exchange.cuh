// Exchange between the PEs of a partitioned graph, from inside a kernel whose blocks are all resident.
//
// A step has up to two exchanges. By claims a PE hands vertices that it reached over to their owners. By the exchange of the frontier
// each owner tells all PEs which of its vertices were found. Data goes first, in chunks that all blocks put. The last block to finish then signals the
// receivers, by a signal that grows from turn to turn and is never cleared.
//
// Claims need one area for each sender. No PE sends claims before the frontier of the step before has arrived from all PEs, and that
// is sent after the claims before it were read. The frontier needs two areas in turn: a PE may send its next one while another PE still
// reads the last, but not the one after that.
#pragma once

#include <warpbell/shmem.cuh>

#include "work.cuh"

// Flags in the message of a wb_partition_header.
#define WB_PARTITION_BITMAP (1ull << 63)  // the data is words of a bitmap, not identifiers
#define WB_PARTITION_FAILED (1ull << 62)  // the sender's run has failed: its message does not count
#define WB_PARTITION_COUNT (WB_PARTITION_FAILED - 1)

namespace warpbell {
namespace graph {

// Position of the turn in a claim's signal: turn << claim_turn_shift | number of claims.
constexpr uint32_t claim_turn_shift = 40;

// 4-byte words that one block puts at a time. Four accesses of 16 bytes for each of 256 threads would be more, but then few blocks
// would share a small message.
constexpr uint64_t chunk_words = 1024;

// A barrier of all blocks of the grid, which must all be resident. A wait that fails fails the run, and all blocks go on to the end
// of the kernel.
class grid_barrier {
 public:
  WB_FN grid_barrier(uint64_t* arrived, const world_ref& world) : arrived_(arrived), world_(world) {}

  WB_FN void sync() {
    ++round_;
    __syncthreads();
    if (threadIdx.x == 0) {
      order::fetch_add<order::acq_rel>(arrived_, uint64_t{1});
      deadline p(world_.control());
      while (order::load<order::acquire>(arrived_) < round_ * gridDim.x) {
        if (wait_status v = p.expired(); v != wait_status::go_on) {
          raise_error(world_.control(), wb_error{status_word(v), world_.my_pe(), world_.my_pe(), 0, WB_CALL_BARRIER, sizeof(uint64_t), 0});
          break;
        }
      }
    }
    __syncthreads();
  }

 private:
  uint64_t* arrived_;
  const world_ref& world_;
  uint64_t round_ = 0;
};

// A range of 4-byte words for a PE. `to` is symmetric.
struct segment {
  uint32_t* to;
  const uint32_t* from;
  uint64_t words;
};

// Puts words, by all threads of the block. Functions that move data are called out of line, so that the search needs fewer
// registers.
WB_FN_COLD void put_chunk(const world_ref* world, uint32_t* to, const uint32_t* from, uint64_t words, uint32_t pe) {
  world->put_nbi(by_block, to, from, words, pe);
}
template <class Header> WB_FN_COLD void put_header(const world_ref* world, Header* to, const Header* from, uint32_t pe) {
  constexpr size_t words = sizeof(Header) / sizeof(uint64_t);
  world->put_nbi(by_thread, reinterpret_cast<uint64_t*>(to), reinterpret_cast<const uint64_t*>(from), words, pe);
}

// Puts a segment to every other PE, all blocks together. The last block to finish calls `signal` with one thread. `segment_for(pe)`
// must be the same for every thread of the grid. `put` counts blocks, and is 0 again afterwards.
template <class SegmentFor, class Signal>
WB_FN void put_segments(const world_ref& world, uint32_t* put, SegmentFor segment_for, Signal signal) {
  const uint32_t me = world.my_pe(), size = world.n_pes();
  auto chunks = [](const segment& p) { return (p.words + chunk_words - 1) / chunk_words; };
  // Each PE begins with the one after itself, so that not all send to one.
  auto peer = [&](uint32_t k) { return me + k < size ? me + k : me + k - size; };
  uint64_t total = 0;
  for (uint32_t k = 1; k < size; ++k) total += chunks(segment_for(peer(k)));
  const uint32_t helpers = total > gridDim.x ? gridDim.x : total ? static_cast<uint32_t>(total) : 1;
  if (blockIdx.x >= helpers) return;
  for (uint64_t c = blockIdx.x; c < total; c += gridDim.x) {
    uint64_t at = c;
    for (uint32_t k = 1; k < size; ++k) {
      const segment p = segment_for(peer(k));
      const uint64_t n = chunks(p);
      if (at < n) {
        const uint64_t first = at * chunk_words;
        const uint64_t count = p.words - first < chunk_words ? p.words - first : chunk_words;
        out_of_line(put_chunk)(&world, p.to + first, p.from + first, count, peer(k));
        break;
      }
      at -= n;
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  world.fence();
  if (order::fetch_add<order::acq_rel>(put, 1u) + 1 != helpers) return;
  order::store<order::relaxed>(put, 0u);
  signal();
}

// Puts a PE's message about a step to all PEs, itself among them, behind the data that it has put. Then signals the others, and waits
// until everything has been sent: the next step writes what was sent again. One thread calls this; `headers` and `signals` are by sender.
template <class Header> WB_FN void tell_all(const world_ref& world, Header* headers, const Header& mine, uint64_t* signals, uint64_t turn) {
  const uint32_t me = world.my_pe();
  for (uint32_t pe = 0; pe < world.n_pes(); ++pe) out_of_line(put_header<Header>)(&world, headers + me, &mine, pe);
  world.fence();
  for (uint32_t pe = 0; pe < world.n_pes(); ++pe) {
    if (pe != me) world.signal_op(signals + me, turn, signal::set, pe);
  }
  world.quiet();
}

// Wakes all links to other PEs. Links between GPUs sleep after some milliseconds without traffic (NVLink's low power mode:
// `nvidia-smi nvlink -gLowPwrInfo`). Each takes 0.2 ms to wake when something is sent over it. Addresses are spread over all links
// of a pair of GPUs, so short messages would wake a few more links in step after step. This function wakes all at once: it stores
// words a little apart to every PE that stores reach. `area` is symmetric, and no thread reads its contents before it is written
// again.
WB_FN void wake_links(const world_ref& world, uint32_t* area, uint64_t words) {
  constexpr uint64_t apart = 64;         // 256 bytes: finer than the spread of addresses over links
  constexpr uint64_t enough = 1u << 18;  // 1 MiB, which is spread over all links
  const uint64_t end = words < enough ? words : enough;
  for (uint32_t pe = 0; pe < world.n_pes(); ++pe) {
    uint32_t* there = pe == world.my_pe() ? nullptr : world.ptr(area, pe);
    if (!there) continue;
    for (uint64_t w = warp::thread_index() * apart; w < end; w += warp::thread_total() * apart) {
      order::store<order::relaxed, order::world>(there + w, 0u);
    }
  }
}

// Waits, by all threads of the block, until the signals of all other PEs are at least `least`.
WB_FN void await_all(const world_ref& world, uint64_t* signals, uint64_t least) {
  for (uint32_t pe = threadIdx.x; pe < world.n_pes(); pe += blockDim.x) {
    if (pe == world.my_pe()) continue;
    deadline p(world.control());
    while (!world.test(signals + pe, cmp::ge, least)) {
      if (wait_status v = p.expired(); v != wait_status::go_on) {
        world.fail(WB_CALL_WAIT, status_word(v), signals + pe, sizeof(uint64_t), pe);
        break;
      }
    }
  }
  __syncthreads();
}

// Calls f(pe, value(pe)) for every other PE. A warp's lanes fetch the values side by side. All lanes call this, and take part in f.
template <class Value, class F> WB_FN void for_each_peer(const world_ref& world, Value value, F f) {
  const uint32_t size = world.n_pes();
  for (uint32_t base = 0; base < size; base += warp::width) {
    const uint32_t own = base + warp::lane();
    const uint64_t mine = own < size && own != world.my_pe() ? value(own) : 0;
    for (uint32_t k = 0; k < warp::width && base + k < size; ++k) {
      const uint64_t v = warp::shuffle(warp::full(), mine, k);
      if (base + k != world.my_pe()) f(base + k, v);
    }
  }
}

}  // namespace graph
}  // namespace warpbell
