// Kernels of the host's collective calls. Launch shape: one block for small ones, several for large ones, of up to 512 threads; the
// same grid on every PE. Each block has its part of the elements and its own channel.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

#include "part.cuh"

namespace warpbell {
namespace host_calls {

// Calls `f` with words of 8 bytes if all lengths and addresses (ORed into `all`) allow that, else with bytes.
template <class F> WB_FN void in_words(uint64_t all, F f) {
  if (all % 8 == 0) {
    f(uint64_t{});
  } else {
    f(uint8_t{});
  }
}

// Numbers of operations. host/shmem/calls/reduction.rs has the same numbers.
enum reducing : uint32_t {
  REDUCE_SUM = 0,
  REDUCE_PROD = 1,
  REDUCE_MIN = 2,
  REDUCE_MAX = 3,
  REDUCE_AND = 4,
  REDUCE_OR = 5,
  REDUCE_XOR = 6,
  REDUCE_SIGNED = 8  // flag: signed integers
};

// An operation that a kernel's argument selects. There is one kernel for each size of integers and each floating type, not one for
// each operation. Computing all four results of two elements costs less than moving the elements here.
struct number_op {
  uint32_t what;

  static constexpr bool bitwise = false;
  template <class T> WB_FN T apply(T a, T b) const {
    bool less = a < b, more = b < a;
    if constexpr (std::is_integral_v<T>) {
      constexpr T sign = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
      const bool apart = (what & REDUCE_SIGNED) != 0 && ((a ^ b) & sign) != 0;
      less ^= apart;
      more ^= apart;
    }
    const uint32_t how = what & ~static_cast<uint32_t>(REDUCE_SIGNED);
    const T together = how == REDUCE_SUM ? reduction::sum_op::apply(a, b) : reduction::prod_op::apply(a, b);
    const T one = (how == REDUCE_MIN ? more : less) ? b : a;
    return how < REDUCE_MIN ? together : one;
  }
};
struct bits_op {
  uint32_t what;

  static constexpr bool bitwise = true;
  template <class T> WB_FN T apply(T a, T b) const {
    if (what == REDUCE_AND) return reduction::and_op::apply(a, b);
    return what == REDUCE_OR ? reduction::or_op::apply(a, b) : reduction::xor_op::apply(a, b);
  }
};

template <class Op, class T> WB_FN void reduce(const team_ref& team, Op op, sym<T> dest, sym<T> source, uint64_t n) {
  const part<T> mine(n);
  team.reduce(by_block, op, dest + mine.first, source + mine.first, mine.n, blockIdx.x);
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
  team.broadcast(warpbell::by_block, reinterpret_cast<uint8_t*>(dest) + mine.first, reinterpret_cast<const uint8_t*>(source) + mine.first,
                 mine.n, root, blockIdx.x);
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

// Reductions of n elements. And, or and xor take the bytes of any integers.
#define WB_REDUCE(NAME, OP, T)                                                                                           \
  WB_CALL_KERNEL wb_shmem_reduce_##NAME(WB_PARAM warpbell::team_ref team, uint32_t what, WB_PARAM warpbell::sym<T> dest, \
                                        WB_PARAM warpbell::sym<T> source, uint64_t n) {                                  \
    warpbell::host_calls::reduce(team, warpbell::host_calls::OP{what}, dest, source, n);                                 \
  }                                                                                                                      \
  WB_EXPORT(wb_shmem_reduce_##NAME)

WB_REDUCE(u8, number_op, uint8_t)
WB_REDUCE(u16, number_op, uint16_t)
WB_REDUCE(u32, number_op, uint32_t)
WB_REDUCE(u64, number_op, uint64_t)
WB_REDUCE(f32, number_op, float)
WB_REDUCE(f64, number_op, double)
WB_REDUCE(bits, bits_op, uint8_t)

#undef WB_REDUCE
