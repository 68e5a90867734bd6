// What every call of a world stands on: who and where the PEs are, whether a call may go ahead, and how it fails.
//
// A checked build (WB_CHECKED) also looks at the addresses: the bytes must be in the symmetric heap and allocated, and aligned
// where one access moves them. A call that is refused enters an error and does nothing.
#pragma once

#include <stddef.h>

#include <warpbell/abi.h>
#include <warpbell/clock.cuh>
#include <warpbell/error.cuh>
#include <warpbell/order.cuh>
#include <warpbell/shmem/scope.cuh>
#include <warpbell/shmem/types.cuh>

#if !defined(WB_CHECKED)
#define WB_CHECKED 0
#endif

namespace warpbell {

class team_ref;

namespace detail {

// Scalars and not the world: an address of it that escapes would have it copied to the stack.
WB_FN_COLD void raise_call_error(const wb_control* control, uint32_t word, uint32_t call, uint32_t pe, uint32_t me,
                                 uint64_t offset, uint64_t bytes, uint32_t channel) {
  const uint32_t shown = bytes < 0xffffffffu ? static_cast<uint32_t>(bytes) : 0xffffffffu;
  raise_error(control, wb_error{word, pe, me, channel, call, shown, offset});
}

// Whether every granule of a range of the heap is allocated.
WB_FN_COLD bool all_allocated(const uint32_t* map, uint64_t offset, uint64_t bytes) {
  const uint64_t first = offset / WB_HEAP_GRANULE, last = (offset + bytes - 1) / WB_HEAP_GRANULE;
  for (uint64_t word = first / 32; word <= last / 32; ++word) {
    const uint32_t from = word == first / 32 ? ~0u << first % 32 : ~0u;
    const uint32_t upto = word == last / 32 ? ~0u >> (31 - last % 32) : ~0u;
    const uint32_t wanted = from & upto;
    if ((order::load_relaxed_sys(map + word) & wanted) != wanted) return false;
  }
  return true;
}

}  // namespace detail

class world_base {
 public:
  WB_FN uint32_t my_pe() const { return w_.pe; }
  WB_FN uint32_t n_pes() const { return w_.size; }
  WB_FN const wb_world& raw() const { return w_; }
  WB_FN const wb_control* control() const { return reinterpret_cast<const wb_control*>(w_.control); }

  // Where this PE's loads and stores find the same object on another PE; null where they do not reach it.
  template <class T> WB_FN T* ptr(T* at, uint32_t pe) const {
    return pe < w_.size && (w_.flags & WB_WORLD_LOAD_STORE) ? there(at, pe) : nullptr;
  }
  template <class T> WB_FN T* ptr(sym<T> at, uint32_t pe) const { return ptr(at.here, pe); }

  // Enters a failed call in the error log and fails the run.
  template <class T>
  WB_FN outcome fail(wb_shmem_call call, uint32_t word, const T* at, size_t bytes, uint32_t pe, uint32_t channel = 0) const {
    out_of_line(&detail::raise_call_error)(control(), word, static_cast<uint32_t>(call), pe, w_.pe, address(at) - w_.heap, bytes,
                                           channel);
    return outcome{word};
  }

 protected:
  WB_FN explicit world_base(const wb_world& world) : w_(world) {}

  template <class T> static WB_FN uint64_t address(T* p) { return reinterpret_cast<uint64_t>(p); }

  template <class T> WB_FN T* there(T* here, uint32_t pe) const {
    return reinterpret_cast<T*>(address(here) + (int64_t{pe} - int64_t{w_.pe}) * static_cast<int64_t>(w_.stride));
  }

  static constexpr uint32_t by_atomics = WB_WORLD_LOAD_STORE | WB_WORLD_ATOMICS;

  // Whether a call on `bytes` of another PE may go ahead. The one place that knows which PEs loads and stores reach. Of the
  // threads that make the call together, the first enters the error.
  template <class S = scope::thread, class T>
  WB_FN bool reaches(wb_shmem_call call, const T* at, size_t bytes, uint32_t pe, uint32_t needs = WB_WORLD_LOAD_STORE,
                     size_t alignment = 1) const {
    if (pe < w_.size && (w_.flags & needs) == needs && in_heap(at, bytes, alignment)) return true;
    if (S::rank() == 0) {
      const bool bad = pe >= w_.size || (w_.flags & needs) == needs;
      fail(call, status_word(bad ? WB_BAD_ARGUMENT : WB_UNREACHABLE), at, bytes, pe);
    }
    return false;
  }
  // The same for one value, moved by one access.
  template <class T> WB_FN bool reaches_one(wb_shmem_call call, const T* at, uint32_t pe, uint32_t needs = WB_WORLD_LOAD_STORE) const {
    return reaches(call, at, sizeof(T), pe, needs, sizeof(T));
  }

  // Whether the bytes are this program's symmetric memory. Only a checked build looks.
  template <class T> WB_FN bool in_heap(const T* at, size_t bytes, size_t alignment) const {
#if WB_CHECKED
    const uint64_t offset = address(at) - w_.heap;
    if (bytes == 0) return true;
    if (offset >= w_.heap_bytes || bytes > w_.heap_bytes - offset || offset % alignment != 0) return false;
    return !w_.allocated || detail::all_allocated(reinterpret_cast<const uint32_t*>(w_.allocated), offset, bytes);
#else
    return true;
#endif
  }

  // Bytes of `n` elements; so many that no heap holds them when there are more than fit into a number.
  static WB_FN size_t bytes_of(size_t n, size_t size) { return WB_CHECKED && n > ~size_t{0} / size ? ~size_t{0} : n * size; }

  wb_world w_;
};

}  // namespace warpbell
