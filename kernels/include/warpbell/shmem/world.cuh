// Put, get and friends between the PEs of a world, with OpenSHMEM's names and meaning (OpenSHMEM 1.5, chapter 9).
//
//   WB_KERNEL void send(WB_PARAM warpbell::world_ref w, sym<float> to, const float* from, size_t n, sym<uint64_t> flag, int pe)
//   { w.put_signal_nbi(warpbell::by_block, to, from, n, flag, 1, warpbell::signal::add, pe); }
//
// Memory of another PE is named by its number and a symmetric address: an address in this PE's own heap, as `Sym` of the host
// gives it to a kernel (`sym<T>`, or a plain pointer). A call that names a PE outside the world, or times out, enters that in the
// run's error log and fails the run, whose waits then all end; calls that wait also answer how they ended.
//
// The calls are in layers, a file for each: reach.cuh (who and where), rma.cuh (put, get, p, g, iput, iget, fence, quiet),
// atomic.cuh, wait.cuh, signal.cuh.
#pragma once

#include <warpbell/shmem/signal.cuh>

namespace warpbell {

class world_team_ref;
template <class Self> class team_calls;

class world_ref : public world_signal {
 public:
  WB_FN explicit world_ref(const wb_world& world) : world_signal(world) {}

  // The team of all PEs.
  WB_FN world_team_ref world_team() const;

  // All PEs meet; a barrier also completes what the calling threads put before.
  template <class S> WB_FN outcome barrier_all(S s) const;
  template <class S> WB_FN outcome sync_all(S s) const;

 private:
  template <class> friend class team_calls;
};

static_assert(sizeof(world_ref) == sizeof(wb_world) && std::is_trivially_copyable_v<world_ref>, "a kernel's parameter");

}  // namespace warpbell
