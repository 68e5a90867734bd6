// Base of all calls of a world: the PEs and their memory, the checks before a call, the data path to a PE, and errors.
//
// There are two data paths to a PE. Loads and stores are inlined into the caller. An RDMA adapter is used by functions that are
// called (network.cuh). Where loads and stores reach every PE, one test of the world's flags is all the code that the other path
// costs.
//
// A checked build (WB_CHECKED) also checks addresses: the bytes must be in the symmetric heap and allocated, and aligned where one
// access moves them. A call that fails the check enters an error and does nothing.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/call.cuh>
#include <warpbell/clock.cuh>
#include <warpbell/error.cuh>
#include <warpbell/order.cuh>
#include <warpbell/shmem/network_atomic.cuh>
#include <warpbell/shmem/scope.cuh>
#include <warpbell/shmem/types.cuh>

#if !defined(WB_CHECKED)
#define WB_CHECKED 0
#endif

namespace warpbell {

class team_ref;

namespace detail {

// Returns true if every granule of a range of the heap is allocated.
WB_FN_COLD bool all_allocated(const uint32_t* map, uint64_t offset, uint64_t bytes) {
  const uint64_t first = offset / WB_HEAP_GRANULE, last = (offset + bytes - 1) / WB_HEAP_GRANULE;
  for (uint64_t word = first / 32; word <= last / 32; ++word) {
    const uint32_t from = word == first / 32 ? ~0u << first % 32 : ~0u;
    const uint32_t upto = word == last / 32 ? ~0u >> (31 - last % 32) : ~0u;
    const uint32_t wanted = from & upto;
    if ((order::load<order::relaxed, order::system>(map + word) & wanted) != wanted) return false;
  }
  return true;
}

// Data path of a call to a PE.
enum class reached : uint32_t { not_at_all, by_stores, by_network };

// Chooses the data path of a call that loads and stores (or atomics: `on_data` is false) of this world do not do in the common
// path. `good`: the PE and the memory exist. `able`: loads and stores would have done the call. `entered`: this thread enters the
// error; all but one thread of a scope pass false.
WB_FN_COLD reached other_path(const wb_control* control, const wb_network* net, bool good, bool able, bool on_data, bool entered,
                              uint32_t call, uint32_t pe, uint32_t me, uint64_t offset, uint64_t bytes) {
  if (good && !able && net != nullptr) {
    return on_data && network::is_near(net, pe) ? reached::by_stores : reached::by_network;
  }
  const bool nobody = able || net != nullptr;
  if (entered) raise_call_error(control, status_word(nobody ? WB_BAD_ARGUMENT : WB_UNREACHABLE), call, pe, me, offset, bytes, 0);
  return reached::not_at_all;
}

}  // namespace detail

/// @brief Base of world_ref: PEs, their memory, and errors.
class world_base {
 public:
  /// @brief Returns this PE's number in the world, from 0.
  WB_FN uint32_t my_pe() const { return w_.pe; }
  /// @brief Returns the number of PEs in the world.
  WB_FN uint32_t n_pes() const { return w_.size; }
  /// @brief Returns the description that the host wrote.
  WB_FN const wb_world& raw() const { return w_; }
  /// @brief Returns the run's control block.
  WB_FN const wb_control* control() const { return w_.control; }

  /// @brief Returns true if a call of this PE's running kernels has failed (relaxed, device). One thread calls this.
  ///
  /// Fetches return 0 from then on. So a loop whose end depends on fetched values must call this too.
  WB_FN bool has_failed() const { return order::load<order::relaxed>(control()->abort) != 0; }

  /// @brief Returns the address at which this PE's loads and stores find the same object on PE `pe`; null if they do not reach it.
  template <class T> WB_FN T* ptr(T* at, uint32_t pe) const { return pe < w_.size && stores_reach(pe) ? there(at, pe) : nullptr; }
  /// @brief Returns the address of the same object on PE `pe`, or null. As above.
  template <class T> WB_FN T* ptr(sym<T> at, uint32_t pe) const { return ptr(at.here, pe); }

  /// @brief Enters a failed call in the error log and fails the run. One thread calls this.
  ///
  /// @param word Status word (status.h).
  /// @param at Symmetric address that the call named.
  /// @param pe The other PE.
  /// @param channel Channel of a collective.
  /// @return The outcome for the caller to return.
  template <class T>
  WB_FN outcome fail(wb_shmem_call call, uint32_t word, const T* at, size_t bytes, uint32_t pe, uint32_t channel = 0) const {
    return outcome{call_cold<&detail::raise_call_error>(control(), word, static_cast<uint32_t>(call), pe, w_.pe, address(at) - w_.heap,
                                                        bytes, channel)};
  }

 protected:
  WB_FN_BOTH explicit world_base(const wb_world& world) : w_(world) {}

  template <class T> static WB_FN uint64_t address(T* p) { return reinterpret_cast<uint64_t>(p); }

  template <class T> WB_FN T* there(T* here, uint32_t pe) const {
    return reinterpret_cast<T*>(address(here) + (uint64_t{pe} - w_.pe) * w_.stride);
  }

  static constexpr uint32_t by_atomics = WB_WORLD_LOAD_STORE | WB_WORLD_ATOMICS;

  using reached = detail::reached;

  WB_FN const wb_network* net() const { return w_.network; }
  // Returns the lane of this object's calls: of the queue pair that was chosen, otherwise of the calling block.
  WB_FN uint32_t lane() const { return w_.queue != 0 ? w_.queue - 1 : blockIdx.x; }
  // Returns true if all data and atomics go by loads, stores and atomics of the processor: then fences are the only means of
  // ordering.
  WB_FN bool all_by_stores() const { return (w_.flags & by_atomics) == by_atomics || w_.network == 0; }
  // Returns true if data of a PE of the world goes by loads and stores.
  WB_FN bool stores_reach(uint32_t pe) const {
    return (w_.flags & WB_WORLD_LOAD_STORE) || (w_.network != 0 && network::is_near(net(), pe));
  }

  // Returns true if loads and stores (or atomics) of this world do a call on `bytes` of another PE, and the call's arguments are
  // good.
  template <class T> WB_FN bool stores_do(uint32_t needs, const T* at, size_t bytes, uint32_t pe, size_t alignment = 1) const {
    return (pe < w_.size) & ((w_.flags & needs) == needs) && in_heap(at, bytes, alignment);
  }
  // Returns the data path if they do not. Of the threads that make the call together, the first enters the error.
  template <class S = scope::thread, class T> WB_FN reached other_path(wb_shmem_call call, const T* at, size_t bytes, uint32_t pe,
                                                                       uint32_t needs = WB_WORLD_LOAD_STORE, size_t alignment = 1) const {
    const bool good = pe < w_.size && in_heap(at, bytes, alignment), able = (w_.flags & needs) == needs;
    return call_cold<&detail::other_path>(control(), net(), good, able || pe >= w_.size, needs == WB_WORLD_LOAD_STORE, S::rank() == 0,
                                          static_cast<uint32_t>(call), pe, w_.pe, address(at) - w_.heap, bytes);
  }
  // Combines both: the only place that decides which PEs loads and stores reach.
  template <class S = scope::thread, class T> WB_FN reached reaches(wb_shmem_call call, const T* at, size_t bytes, uint32_t pe,
                                                                    uint32_t needs = WB_WORLD_LOAD_STORE, size_t alignment = 1) const {
    if (stores_do(needs, at, bytes, pe, alignment)) return reached::by_stores;
    return other_path<S>(call, at, bytes, pe, needs, alignment);
  }
  // Returns the data path for one value, moved by one access.
  template <class T> WB_FN reached reaches_one(wb_shmem_call call, const T* at, uint32_t pe, uint32_t needs = WB_WORLD_LOAD_STORE) const {
    return reaches(call, at, sizeof(T), pe, needs, sizeof(T));
  }

  // Returns true if the bytes are this program's symmetric memory. Only a checked build checks.
  template <class T> WB_FN bool in_heap(const T* at, size_t bytes, size_t alignment) const {
    if constexpr (WB_CHECKED != 0) {
      const uint64_t offset = address(at) - w_.heap;
      if (bytes == 0) return true;
      if (offset >= w_.heap_bytes || bytes > w_.heap_bytes - offset || offset % alignment != 0) return false;
      return !w_.allocated || detail::all_allocated(w_.allocated, offset, bytes);
    } else {
      return true;
    }
  }

  // Returns the bytes of `n` elements. If the number overflows, returns one that no heap holds.
  static WB_FN size_t bytes_of(size_t n, size_t size) { return WB_CHECKED && n > ~size_t{0} / size ? ~size_t{0} : n * size; }

  wb_world w_;
};

}  // namespace warpbell
