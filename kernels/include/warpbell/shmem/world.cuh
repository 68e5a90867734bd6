// Calls between the PEs of a world, with OpenSHMEM's names and semantics (OpenSHMEM 1.5, chapter 9).
//
//   WB_KERNEL void send(WB_PARAM warpbell::world_ref w, sym<float> to, const float* from, size_t n, sym<uint64_t> flag, int pe)
//   { w.put_signal_nbi(warpbell::by_block, to, from, n, flag, 1, warpbell::signal::add, pe); }
//
// A call names memory of another PE by the PE's number and a symmetric address. That is an address in this PE's own heap, as `Sym`
// of the host gives it to a kernel (`sym<T>`, or a plain pointer). A call that names a PE outside the world, or times out, enters
// that in the run's error log and fails the run. That ends all waits of the run. Calls that wait also return their outcome.
//
// The calls are in layers, one file each: reach.cuh (PEs and data paths), rma.cuh (put, get, p, g, iput, iget, fence, quiet, flush),
// atomic.cuh, wait.cuh, signal.cuh, batch.cuh.
#pragma once

#include <warpbell/shmem/batch.cuh>

namespace warpbell {

class world_team_ref;
template <class Self> class team_calls;

/// @brief A world as one PE sees it: a kernel's parameter, `&World` of the host.
class world_ref : public world_signal {
 public:
  /// @brief Refers to a world by its view: `World::view` of the host. For the host and for one thread. The structure is copied.
  ///
  /// @pre The world, or a run that keeps it, outlives the kernels that use this.
  WB_FN_BOTH explicit world_ref(const wb_world& world) : world_signal(world) {}

  /// @brief Returns the same world, whose calls over an RDMA adapter use queue pair `n` to each PE, modulo their number, instead of
  /// that of the calling block. Any number of threads calls this.
  ///
  /// For put, get, p, g, iput, iget, signals, atomics, fence, quiet and flush. Several blocks may use one queue pair, and one block
  /// several. Requests of different queue pairs have no order, and a fence, quiet or flush of the result covers this queue pair
  /// alone, of all blocks that use it. Calls of teams, quiet_all and flush_all do as before. Where loads and stores reach every PE
  /// nothing changes.
  WB_FN world_ref on_queue(uint32_t n) const {
    world_ref chosen(*this);
    chosen.w_.queue = n % WB_MAX_QUEUES + 1;
    return chosen;
  }

  /// @brief Begins a batch of puts and signals to PE `pe`, which an RDMA adapter gets with one doorbell. One thread calls this.
  ///
  /// @param space Memory for the work requests; see put_batch.
  /// @return The batch. It posts what it has collected when it ends.
  template <uint32_t n> WB_FN put_batch batch(batch_space<n>& space, uint32_t pe) const { return put_batch(*this, space, pe); }

  /// @brief Returns the team of all PEs. This object must outlive it.
  WB_FN world_team_ref world_team() const;

  /// @brief Completes the puts of the calling threads, and waits for all PEs. All threads of scope `s` on every PE call this.
  ///
  /// @return The outcome. See team_calls::barrier.
  template <class S> WB_FN outcome barrier_all(S s) const;
  /// @brief Waits for all PEs. All threads of scope `s` on every PE call this. See team_calls::sync.
  template <class S> WB_FN outcome sync_all(S s) const;

 private:
  template <class> friend class team_calls;
};

static_assert(sizeof(world_ref) == sizeof(wb_world) && stdlib::is_trivially_copyable_v<world_ref>, "a kernel's parameter");

}  // namespace warpbell
