// Kernels of the host's calls on one other PE: copies, signals, waits, atomics. Launch shape: any grid of blocks of up to 512
// threads for put and get, which share the bytes; one block for all others.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

#include "part.cuh"

namespace warpbell {
namespace host_calls {

// Completes a call of the host, which is complete when its kernel has ended. Stores are complete then; network transfers need this
// wait. All threads of a block call this.
WB_FN void complete(const world_ref& world) {
  if (world.raw().network != 0) world.quiet_all(by_block);
}

}  // namespace host_calls
}  // namespace warpbell

WB_CALL_KERNEL wb_shmem_put(WB_PARAM warpbell::world_ref world, uint64_t dest, uint64_t source, uint64_t bytes, uint32_t pe) {
  const warpbell::host_calls::part<uint8_t> mine(bytes);
  world.put(warpbell::by_block, reinterpret_cast<uint8_t*>(dest) + mine.first, reinterpret_cast<const uint8_t*>(source) + mine.first,
            mine.n, pe);
  warpbell::host_calls::complete(world);
}
WB_EXPORT(wb_shmem_put)

WB_CALL_KERNEL wb_shmem_get(WB_PARAM warpbell::world_ref world, uint64_t dest, uint64_t source, uint64_t bytes, uint32_t pe) {
  const warpbell::host_calls::part<uint8_t> mine(bytes);
  world.get(warpbell::by_block, reinterpret_cast<uint8_t*>(dest) + mine.first, reinterpret_cast<const uint8_t*>(source) + mine.first,
            mine.n, pe);
}
WB_EXPORT(wb_shmem_get)

// Puts, then signals. One block only: the signal is that of the whole message.
WB_CALL_KERNEL wb_shmem_put_signal(WB_PARAM warpbell::world_ref world, uint64_t dest, uint64_t source, uint64_t bytes,
                                   WB_PARAM warpbell::sym<uint64_t> sig, uint64_t value, uint32_t how, uint32_t pe) {
  world.put_signal(warpbell::by_block, reinterpret_cast<uint8_t*>(dest), reinterpret_cast<const uint8_t*>(source), bytes, sig, value,
                   static_cast<warpbell::signal>(how), pe);
  warpbell::host_calls::complete(world);
}
WB_EXPORT(wb_shmem_put_signal)

// The three of them with memory that was registered as symmetric.
WB_CALL_KERNEL wb_shmem_window_put(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::window<uint8_t> dest, uint64_t source,
                                   uint64_t bytes, uint32_t pe) {
  const warpbell::host_calls::part<uint8_t> mine(bytes);
  world.put(warpbell::by_block, dest + mine.first, reinterpret_cast<const uint8_t*>(source) + mine.first, mine.n, pe);
  warpbell::host_calls::complete(world);
}
WB_EXPORT(wb_shmem_window_put)

WB_CALL_KERNEL wb_shmem_window_get(WB_PARAM warpbell::world_ref world, uint64_t dest, WB_PARAM warpbell::window<uint8_t> source,
                                   uint64_t bytes, uint32_t pe) {
  const warpbell::host_calls::part<uint8_t> mine(bytes);
  world.get(warpbell::by_block, reinterpret_cast<uint8_t*>(dest) + mine.first, source + mine.first, mine.n, pe);
}
WB_EXPORT(wb_shmem_window_get)

// Puts, then signals. One block only: the signal is that of the whole message.
WB_CALL_KERNEL wb_shmem_window_put_signal(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::window<uint8_t> dest, uint64_t source,
                                          uint64_t bytes, WB_PARAM warpbell::sym<uint64_t> sig, uint64_t value, uint32_t how, uint32_t pe) {
  world.put_signal(warpbell::by_block, dest, reinterpret_cast<const uint8_t*>(source), bytes, sig, value,
                   static_cast<warpbell::signal>(how), pe);
  warpbell::host_calls::complete(world);
}
WB_EXPORT(wb_shmem_window_put_signal)

// Signals after everything that the stream did before.
WB_CALL_KERNEL wb_shmem_signal(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint64_t> sig, uint64_t value, uint32_t how,
                               uint32_t pe) {
  if (threadIdx.x == 0) {
    world.fence();
    world.signal_op(sig, value, static_cast<warpbell::signal>(how), pe);
  }
  warpbell::host_calls::complete(world);
}
WB_EXPORT(wb_shmem_signal)

// Waits for a signal of `pe`, or of a PE that is not known (WB_NO_PE).
WB_CALL_KERNEL wb_shmem_signal_wait(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint64_t> sig, uint32_t how, uint64_t value,
                                    uint32_t pe) {
  if (threadIdx.x == 0) world.signal_wait_until(sig, static_cast<warpbell::cmp>(how), value, nullptr, pe);
}
WB_EXPORT(wb_shmem_signal_wait)

// Waits for `n` signals that `shadow` does not count. The host counts them.
WB_CALL_KERNEL wb_shmem_signal_wait_shadow(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint64_t> sig, uint64_t shadow,
                                           uint64_t n, uint32_t pe) {
  if (threadIdx.x == 0) world.signal_wait_shadow(sig, shadow, n, nullptr, pe);
}
WB_EXPORT(wb_shmem_signal_wait_shadow)

// Completes everything that this PE's kernels have put.
WB_CALL_KERNEL wb_shmem_quiet(WB_PARAM warpbell::world_ref world) { world.quiet_all(warpbell::by_block); }
WB_EXPORT(wb_shmem_quiet)

namespace warpbell {
namespace host_calls {

// Numbers of operations. host/shmem/calls/atomic.rs has the same numbers.
enum atomic : uint32_t {
  ATOMIC_FETCH = 0,
  ATOMIC_SET = 1,
  ATOMIC_SWAP = 2,
  ATOMIC_COMPARE_SWAP = 3,
  ATOMIC_FETCH_ADD = 4,
  ATOMIC_FETCH_AND = 5,
  ATOMIC_FETCH_OR = 6,
  ATOMIC_FETCH_XOR = 7
};

// Executes an atomic operation. Returns the value before if the operation has one.
template <class T> WB_FN T perform(const world_ref& world, uint32_t what, sym<T> at, T value, T expected, uint32_t pe) {
  switch (what) {
    case ATOMIC_FETCH: return world.atomic_fetch(at, pe);
    case ATOMIC_SET: world.atomic_set(at, value, pe); return T{};
    case ATOMIC_SWAP: return world.atomic_swap(at, value, pe);
    case ATOMIC_COMPARE_SWAP: return world.atomic_compare_swap(at, expected, value, pe);
    case ATOMIC_FETCH_ADD: return world.atomic_fetch_add(at, value, pe);
    case ATOMIC_FETCH_AND: return world.atomic_fetch_and(at, value, pe);
    case ATOMIC_FETCH_OR: return world.atomic_fetch_or(at, value, pe);
    default: return world.atomic_fetch_xor(at, value, pe);
  }
}

// Executes an atomic operation by one thread, and stores the value before to `before` if that is not null.
template <class T> WB_FN void answer(const world_ref& world, uint32_t what, sym<T> at, T value, T expected, uint32_t pe, T* before) {
  if (threadIdx.x == 0) {
    const T word = perform(world, what, at, value, expected, pe);
    if (before) *before = word;
  }
  complete(world);
}

}  // namespace host_calls
}  // namespace warpbell

// Executes an atomic operation on one word; `before` may be null.
WB_CALL_KERNEL wb_shmem_atomic_u32(WB_PARAM warpbell::world_ref world, uint32_t what, WB_PARAM warpbell::sym<uint32_t> at, uint32_t value,
                                   uint32_t expected, uint32_t pe, uint32_t* before) {
  warpbell::host_calls::answer(world, what, at, value, expected, pe, before);
}
WB_EXPORT(wb_shmem_atomic_u32)

WB_CALL_KERNEL wb_shmem_atomic_u64(WB_PARAM warpbell::world_ref world, uint32_t what, WB_PARAM warpbell::sym<uint64_t> at, uint64_t value,
                                   uint64_t expected, uint32_t pe, uint64_t* before) {
  warpbell::host_calls::answer(world, what, at, value, expected, pe, before);
}
WB_EXPORT(wb_shmem_atomic_u64)
