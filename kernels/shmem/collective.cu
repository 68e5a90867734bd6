// What the host's collective calls launch: one block for small ones, several for large ones, each with its part of the elements and
// a channel of its own. The grid is the same on every PE.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

#include "part.cuh"

namespace warpbell {
namespace host_calls {

// In words of 8 bytes where all lengths and addresses allow it.
template <class F> WB_FN void in_words(uint64_t all, F f) {
  if (all % 8 == 0) {
    f(uint64_t{});
  } else {
    f(uint8_t{});
  }
}

template <class Op, class T> WB_FN void reduce(const team_ref& team, sym<T> dest, sym<T> source, uint64_t n) {
  const part<T> mine(n);
  team.reduce(by_block, Op{}, dest + mine.first, source + mine.first, mine.n, blockIdx.x);
}

}  // namespace host_calls
}  // namespace warpbell

WB_CALL_KERNEL wb_shmem_sync(WB_PARAM warpbell::world_ref world) { world.sync_all(warpbell::by_block); }
WB_EXPORT(wb_shmem_sync)

WB_CALL_KERNEL wb_shmem_team_barrier(WB_PARAM warpbell::team_ref team) { team.barrier(warpbell::by_block, blockIdx.x); }
WB_EXPORT(wb_shmem_team_barrier)

WB_CALL_KERNEL wb_shmem_team_sync(WB_PARAM warpbell::team_ref team) { team.sync(warpbell::by_block, blockIdx.x); }
WB_EXPORT(wb_shmem_team_sync)

WB_CALL_KERNEL wb_shmem_broadcast(WB_PARAM warpbell::team_ref team, uint64_t dest, uint64_t source, uint64_t bytes, uint32_t root) {
  const warpbell::host_calls::part<uint8_t> mine(bytes);
  team.broadcast(warpbell::by_block, reinterpret_cast<uint8_t*>(dest) + mine.first,
                 reinterpret_cast<const uint8_t*>(source) + mine.first, mine.n, root, blockIdx.x);
}
WB_EXPORT(wb_shmem_broadcast)

// fcollect and alltoall: `call` is a wb_shmem_call, pitches and lengths are bytes.
WB_CALL_KERNEL wb_shmem_exchange(WB_PARAM warpbell::team_ref team, uint32_t call, uint64_t dest, uint64_t dest_pitch, uint64_t source,
                                 uint64_t source_pitch, uint64_t bytes) {
  warpbell::host_calls::in_words(dest | dest_pitch | source | source_pitch | bytes, [&](auto word) {
    using T = decltype(word);
    constexpr uint64_t unit = sizeof(T);
    const warpbell::host_calls::part<T> mine(bytes / unit);
    team.exchange(warpbell::by_block, static_cast<wb_shmem_call>(call), reinterpret_cast<T*>(dest) + mine.first, dest_pitch / unit,
                  reinterpret_cast<const T*>(source) + mine.first, source_pitch / unit, mine.n, blockIdx.x);
  });
}
WB_EXPORT(wb_shmem_exchange)

// Reductions of n elements: wb_shmem_reduce_OP_TYPE. Where signs make no difference there are unsigned types only; and, or, xor
// take the bytes of any integers.
#define WB_REDUCE(OP, NAME, T)                                                                                                    \
  WB_CALL_KERNEL wb_shmem_reduce_##OP##_##NAME(WB_PARAM warpbell::team_ref team, WB_PARAM warpbell::sym<T> dest,                  \
                                               WB_PARAM warpbell::sym<T> source, uint64_t n) {                                    \
    warpbell::host_calls::reduce<warpbell::reduction::OP##_op>(team, dest, source, n);                                            \
  }                                                                                                                               \
  WB_EXPORT(wb_shmem_reduce_##OP##_##NAME)
#define WB_REDUCE_UNSIGNED(OP)    \
  WB_REDUCE(OP, u8, uint8_t)      \
  WB_REDUCE(OP, u16, uint16_t)    \
  WB_REDUCE(OP, u32, uint32_t)    \
  WB_REDUCE(OP, u64, uint64_t)
#define WB_REDUCE_SIGNED(OP)      \
  WB_REDUCE(OP, i8, int8_t)       \
  WB_REDUCE(OP, i16, int16_t)     \
  WB_REDUCE(OP, i32, int32_t)     \
  WB_REDUCE(OP, i64, int64_t)
#define WB_REDUCE_FLOATING(OP)    \
  WB_REDUCE(OP, f32, float)       \
  WB_REDUCE(OP, f64, double)

WB_REDUCE_UNSIGNED(sum)
WB_REDUCE_FLOATING(sum)
WB_REDUCE_UNSIGNED(prod)
WB_REDUCE_FLOATING(prod)
WB_REDUCE_UNSIGNED(min)
WB_REDUCE_SIGNED(min)
WB_REDUCE_FLOATING(min)
WB_REDUCE_UNSIGNED(max)
WB_REDUCE_SIGNED(max)
WB_REDUCE_FLOATING(max)
WB_REDUCE(and, u8, uint8_t)
WB_REDUCE(or, u8, uint8_t)
WB_REDUCE(xor, u8, uint8_t)

#undef WB_REDUCE
#undef WB_REDUCE_UNSIGNED
#undef WB_REDUCE_SIGNED
#undef WB_REDUCE_FLOATING
