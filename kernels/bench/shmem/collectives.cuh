// Broadcast, reduction, fcollect and alltoall, shared by the blocks of a grid.
#pragma once

#include "run.cuh"

namespace shmem_bench {

using namespace warpbell;

// A block's part of `n` elements. The block's channel is its number.
struct share {
  uint64_t first, count;

  WB_FN explicit share(uint64_t n) {
    constexpr uint64_t grain = 16;  // elements: parts begin at whole lines of 16 bytes or more
    const uint64_t each = (n + gridDim.x * grain - 1) / (gridDim.x * grain) * grain;
    first = blockIdx.x * each < n ? blockIdx.x * each : n;
    count = n - first < each ? n - first : each;
  }
};

struct broadcast {
  template <class S, class T> static WB_FN void call(S s, const world_team_ref& team, T* to, const T* from, uint64_t n) {
    const share part(n);
    team.broadcast(s, to + part.first, from + part.first, part.count, 0, blockIdx.x);
  }
};
struct fcollect {
  template <class S, class T> static WB_FN void call(S s, const world_team_ref& team, T* to, const T* from, uint64_t n) {
    const share part(n);
    team.exchange(s, WB_CALL_FCOLLECT, to + part.first, n, from + part.first, 0, part.count, blockIdx.x);
  }
};
struct alltoall {
  template <class S, class T> static WB_FN void call(S s, const world_team_ref& team, T* to, const T* from, uint64_t n) {
    const share part(n);
    team.exchange(s, WB_CALL_ALLTOALL, to + part.first, n, from + part.first, n, part.count, blockIdx.x);
  }
};
struct reduce_sum {
  template <class S, class T> static WB_FN void call(S s, const world_team_ref& team, T* to, const T* from, uint64_t n) {
    const share part(n);
    team.reduce(s, reduction::sum, to + part.first, from + part.first, part.count, blockIdx.x);
  }
};
template <class What, class T, class S> WB_FN void collective(S s, const world_ref& w, const test& t) {
  const world_team_ref team = w.world_team();
  in_turn(s, w, t, [&](uint32_t) { What::call(s, team, static_cast<T*>(t.target), static_cast<const T*>(t.source), t.bytes / sizeof(T)); });
}

// Returns a summand of a reduction: whole numbers so small that every type holds the sum over all PEs exactly.
template <class T> WB_FN T summand(uint64_t seed, uint64_t pe, uint64_t i) { return static_cast<T>(mix(seed + (pe << 48) + i) & 0xff); }

}  // namespace shmem_bench
