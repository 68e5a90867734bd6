// How the PEs of a partitioned graph tell each other what they found, from inside a kernel whose blocks are all resident.
//
// A step has up to two exchanges: claims, by which a PE hands vertices that its lists lead to over to their owners, and news, by
// which each owner tells everybody which of its vertices were found. Data goes first, in chunks that all blocks put; whichever
// block is done last tells the receivers, by a signal that grows from turn to turn and is never cleared.
//
// Claims need one area for each sender: nobody sends claims before everybody's news of the step before have come, and those are
// sent after the claims before them were read. News need two in turn: a PE may have sent its next news while another still
// reads the last, but not those after them.
#pragma once

#include <warpbell/shmem.cuh>

#include "work.cuh"

// In the message of a wb_partition_header.
#define WB_PARTITION_BITMAP (1ull << 63)  // what follows is words of a bitmap, not identifiers
#define WB_PARTITION_FAILED (1ull << 62)  // the sender's run has failed: nothing that it says counts
#define WB_PARTITION_COUNT (WB_PARTITION_FAILED - 1)

namespace warpbell {
namespace graph {

// A claim's signal is turn << claim_turn_shift | number of claims.
constexpr uint32_t claim_turn_shift = 40;

// 4-byte words that one block puts at a time: four accesses of 16 bytes for each of 256 threads would be more, but then few blocks
// would share a small message.
constexpr uint64_t chunk_words = 1024;

// All blocks of the grid wait for each other. They must all be resident. A wait that fails has failed the run, and everybody
// goes on to its end.
class meetings {
 public:
  WB_FN meetings(uint64_t* arrived, const world_ref& world) : arrived_(arrived), world_(world) {}

  WB_FN void meet() {
    ++round_;
    __syncthreads();
    if (threadIdx.x == 0) {
      order::fetch_add<order::acq_rel>(arrived_, uint64_t{1});
      deadline p(world_.control());
      while (order::load<order::acquire>(arrived_) < round_ * gridDim.x) {
        if (wait_status v = p.expired(); v != wait_status::go_on) {
          raise_error(world_.control(),
                      wb_error{status_word(v), world_.my_pe(), world_.my_pe(), 0, WB_CALL_BARRIER, sizeof(uint64_t), 0});
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

// Some 4-byte words for a PE. `to` is symmetric.
struct parcel {
  uint32_t* to;
  const uint32_t* from;
  uint64_t words;
};

// What moves data is kept out of the way, and out of the registers, of what searches.
WB_FN_COLD void put_chunk(const world_ref* world, uint32_t* to, const uint32_t* from, uint64_t words, uint32_t pe) {
  world->put_nbi(by_block, to, from, words, pe);
}
WB_FN_COLD void put_header(const world_ref* world, wb_partition_header* to, const wb_partition_header* from, uint32_t pe) {
  constexpr size_t words = sizeof(wb_partition_header) / sizeof(uint64_t);
  world->put_nbi(by_thread, reinterpret_cast<uint64_t*>(to), reinterpret_cast<const uint64_t*>(from), words, pe);
}

// Puts a parcel to every other PE, all blocks together; the last one calls `tell` with one thread. `parcel_for(pe)` must be
// the same for every thread of the grid. `put` counts blocks, and is 0 again afterwards.
template <class ParcelFor, class Tell>
WB_FN void put_parcels(const world_ref& world, uint32_t* put, ParcelFor parcel_for, Tell tell) {
  const uint32_t me = world.my_pe(), size = world.n_pes();
  auto chunks = [](const parcel& p) { return (p.words + chunk_words - 1) / chunk_words; };
  // Everybody begins with the PE after itself, so that not all send to one.
  auto peer = [&](uint32_t k) { return me + k < size ? me + k : me + k - size; };
  uint64_t total = 0;
  for (uint32_t k = 1; k < size; ++k) total += chunks(parcel_for(peer(k)));
  const uint32_t helpers = total > gridDim.x ? gridDim.x : total ? static_cast<uint32_t>(total) : 1;
  if (blockIdx.x >= helpers) return;
  for (uint64_t c = blockIdx.x; c < total; c += gridDim.x) {
    uint64_t at = c;
    for (uint32_t k = 1; k < size; ++k) {
      const parcel p = parcel_for(peer(k));
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
  tell();
}

// Links between GPUs sleep after some milliseconds without traffic (NVLink's low power mode: `nvidia-smi nvlink -gLowPwrInfo`), and each takes
// 0.2 ms to wake once something is sent over it. Addresses are spread over all links of a pair of GPUs, so short messages would wake
// another few of them in step after step. This wakes all at once: words a little apart, to every PE that stores reach. `area` is symmetric, and
// nobody reads what it has there before it is written again.
WB_FN void wake_links(const world_ref& world, uint32_t* area, uint64_t words) {
  constexpr uint64_t apart = 64;         // 256 bytes: finer than addresses change links
  constexpr uint64_t enough = 1u << 18;  // 1 MiB, whose bulk all links share
  const uint64_t end = words < enough ? words : enough;
  for (uint32_t pe = 0; pe < world.n_pes(); ++pe) {
    uint32_t* there = pe == world.my_pe() ? nullptr : world.ptr(area, pe);
    if (!there) continue;
    for (uint64_t w = warp::thread_index() * apart; w < end; w += warp::thread_total() * apart) {
      order::store<order::relaxed, order::world>(there + w, 0u);
    }
  }
}

// The block waits until the signals of all other PEs have come to `least`.
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

// Calls f(pe, value(pe)) for every other PE; a warp's lanes fetch the values side by side. All lanes call, and take part in f.
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
