// Kernels that call each flat device function of bindings/device, and check results. Launch shape: one block of two warps or more.
#include <warpbell/kernel.h>

#include "../../bindings/device/device.cu"

#if !WB_GPU
// Caches and volumes of the host run these. The shipped image for CPU threads has them for warps of one lane.
#include "../../kernels/storage/blocks.cu"
#include "../../kernels/storage/cache.cu"
#endif

namespace {

// Counts a check, and keeps the line of one that failed: report[0] checks, [1] failures, [2] a line.
WB_FN void check(uint64_t* report, bool ok, uint64_t line) {
  using namespace warpbell::order;
  fetch_add<relaxed>(report, uint64_t{1});
  if (ok) return;
  fetch_add<relaxed>(report + 1, uint64_t{1});
  store<relaxed>(report + 2, line);
}
#define CHECK(...) check(report, (__VA_ARGS__), __LINE__)

WB_FN uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }
WB_FN bool is_first() { return threadIdx.x == 0; }
WB_FN bool is_first_warp() { return threadIdx.x < warpbell::warp::width; }
// Syncs the block, and passes stores of its threads on.
WB_FN void meet() { warpbell::scope::block::sync(); }

// Element `i` of an array: no poison, and one more still fits 8 bits.
template <class T> WB_FN T element(uint64_t i) { return static_cast<T>(i * 3 % 199 + 1); }
// As above, after the kernel has stored to the first half of each group of four.
template <class T> WB_FN T changed(uint64_t i) { return static_cast<T>(element<T>(i) + (i % 4 < 2 ? 1 : 0)); }
template <class T> WB_FN bool are_changed(const T* found, uint64_t first, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    if (found[i] != changed<T>(first + i)) return false;
  }
  return true;
}

// Byte `i` of what PE `pe` puts in step `step`.
WB_FN uint8_t pattern(uint32_t pe, uint32_t step, uint64_t i) { return static_cast<uint8_t>(i * 7 + pe * 31 + step * 13 + 1); }

// Words and buffers of a PE in the symmetric heap. Each call has its own slots, which are zero before.
constexpr uint32_t steps = 32;
constexpr uint64_t buffer_bytes = 192;
struct symmetric {
  uint64_t value[steps];
  uint64_t word[steps];
  uint64_t sig[steps];
  uint8_t got[steps][buffer_bytes];
  uint8_t source[steps][buffer_bytes];
  uint64_t shadow;
};

}  // namespace

#define ARRAY_KERNEL(NAME, T)                                                                          \
  WB_KERNEL void flat_array_##NAME(uint64_t view, uint64_t n, uint64_t* report) {                      \
    if (is_first()) {                                                                                  \
      CHECK(wbd_array_size(view) == n);                                                                \
      CHECK(wbd_array_has_failed(view) == 0);                                                          \
      CHECK(wbd_array_prefetch(view, 1, n) == 0);                                                      \
    }                                                                                                  \
    const uint64_t threads = blockDim.x, me = threadIdx.x;                                             \
    for (uint64_t i = me; i < n; i += threads) CHECK(wbd_array_load_##NAME(view, i) == element<T>(i)); \
    meet();                                                                                            \
    for (uint64_t round = 0; round < n; round += threads) {                                            \
      const uint64_t i = round + me;                                                                   \
      const bool wanted = i < n && i % 2 == 1;                                                         \
      CHECK(wbd_array_load_##NAME##_warp(view, i, wanted) == (wanted ? element<T>(i) : T{0}));         \
    }                                                                                                  \
    meet();                                                                                            \
    for (uint64_t i = me; i < n; i += threads) {                                                       \
      if (i % 4 == 0) CHECK(wbd_array_store_##NAME(view, i, changed<T>(i)) == 0);                      \
    }                                                                                                  \
    for (uint64_t round = 0; round < n; round += threads) {                                            \
      const uint64_t i = round + me;                                                                   \
      CHECK(wbd_array_store_##NAME##_warp(view, i, changed<T>(i), i < n && i % 4 == 1) == 0);          \
    }                                                                                                  \
    meet();                                                                                            \
    for (uint64_t i = me; i < n; i += threads) CHECK(wbd_array_load_##NAME(view, i) == changed<T>(i)); \
  }                                                                                                    \
  WB_EXPORT(flat_array_##NAME)
ARRAY_KERNEL(u8, uint8_t)
ARRAY_KERNEL(u16, uint16_t)
ARRAY_KERNEL(u32, uint32_t)
ARRAY_KERNEL(u64, uint64_t)
ARRAY_KERNEL(f32, float)
ARRAY_KERNEL(f64, double)

// After the kernel above: copies to `buffer`, of `n` elements.
#define READ_KERNEL(NAME, T)                                                                \
  WB_KERNEL void flat_read_##NAME(uint64_t view, uint64_t n, T* buffer, uint64_t* report) { \
    if (is_first_warp()) {                                                                  \
      CHECK(wbd_array_read_##NAME##_warp(view, 0, n, address(buffer)) == 0);                \
      CHECK(are_changed(buffer, 0, n));                                                     \
    }                                                                                       \
    meet();                                                                                 \
    CHECK(wbd_array_read_##NAME##_block(view, 3, n - 5, address(buffer)) == 0);             \
    CHECK(are_changed(buffer, 3, n - 5));                                                   \
  }                                                                                         \
  WB_EXPORT(flat_read_##NAME)
READ_KERNEL(u8, uint8_t)
READ_KERNEL(u16, uint16_t)
READ_KERNEL(u32, uint32_t)
READ_KERNEL(u64, uint64_t)

// Each thread adds 1 to element 0; those of an even number add 2 to element 1.
#define ADD_KERNEL(NAME, T)                                                                   \
  WB_KERNEL void flat_add_##NAME(uint64_t view, uint64_t* report) {                           \
    CHECK(wbd_array_atomic_add_##NAME(view, 0, 1) < changed<T>(0) + blockDim.x);              \
    const uint32_t wanted = threadIdx.x % 2 == 0;                                             \
    const T before = wbd_array_atomic_add_##NAME##_warp(view, 1, 2, wanted);                  \
    CHECK(wanted ? before >= changed<T>(1) && before % 2 == changed<T>(1) % 2 : before == 0); \
  }                                                                                           \
  WB_EXPORT(flat_add_##NAME)
ADD_KERNEL(u32, uint32_t)
ADD_KERNEL(u64, uint64_t)

// Writes blocks with each function, and reads them again with each. `buffer` has room for eight blocks for each thread.
WB_KERNEL void flat_volume(uint64_t view, uint64_t blocks, uint32_t block_bytes, uint8_t* buffer, uint64_t* report) {
  const uint32_t threads = blockDim.x, me = threadIdx.x;
  if (is_first()) {
    CHECK(wbd_volume_blocks(view) == blocks);
    CHECK(wbd_volume_block_bytes(view) == block_bytes);
    CHECK(wbd_volume_has_failed(view) == 0);
  }
  uint8_t* mine = buffer + uint64_t{me} * block_bytes;
  for (uint32_t step = 0; step < 4; ++step) {
    const uint64_t first = uint64_t{step} * threads, block = first + me;
    for (uint32_t i = 0; i < block_bytes; ++i) mine[i] = pattern(me, step, i);
    meet();
    if (step == 0) CHECK(wbd_volume_write(view, block, 1, address(mine)) == 0);
    if (step == 1) CHECK(wbd_volume_write_warp(view, block, 1, address(mine)) == 0);
    if (step == 2) CHECK(wbd_volume_write_block(view, first, threads, address(buffer)) == 0);
    if (step == 3) CHECK(wbd_volume_wait(view, wbd_volume_write_async(view, block, 1, address(mine))) == 0);
    CHECK(wbd_volume_flush(view) == 0);
    CHECK(wbd_volume_flush_block(view) == 0);
    for (uint32_t how = 0; how < 4; ++how) {
      for (uint32_t i = 0; i < block_bytes; ++i) mine[i] = 0;
      meet();
      if (how == 0) CHECK(wbd_volume_read(view, block, 1, address(mine)) == 0);
      if (how == 1) CHECK(wbd_volume_read_warp(view, block, 1, address(mine)) == 0);
      if (how == 2) CHECK(wbd_volume_read_block(view, first, threads, address(buffer)) == 0);
      if (how == 3) {
        const uint64_t token = wbd_volume_read_async(view, block, 1, address(mine));
        while (wbd_volume_test(view, token) == 0 && wbd_volume_has_failed(view) == 0) {
        }
        CHECK(wbd_volume_wait(view, token) == 0);
      }
      bool same = true;
      for (uint32_t i = 0; i < block_bytes; ++i) same = same && mine[i] == pattern(me, step, i);
      CHECK(same);
      meet();
    }
  }
  // Lanes that only help, and a block without work.
  CHECK(wbd_volume_read_warp(view, 0, me % 2, address(mine)) == 0);
  CHECK(wbd_volume_write_warp(view, 0, 0, address(mine)) == 0);
  CHECK(wbd_volume_read_block(view, 0, 0, address(buffer)) == 0);
  // Reads of eight blocks for each thread, and of a number that the threads do not share evenly.
  CHECK(wbd_volume_read_block(view, 0, 4 * threads - 1, address(buffer)) == 0);
  bool same = true;
  for (uint32_t k = me; k < 4 * threads - 1; k += threads) {
    const uint8_t* at = buffer + uint64_t{k} * block_bytes;
    for (uint32_t i = 0; i < block_bytes; ++i) same = same && at[i] == pattern(k % threads, k / threads, i);
  }
  CHECK(same);
}
WB_EXPORT(flat_volume)

// Values: each PE stores to the next, then compares what the PE before has stored.
WB_KERNEL void flat_values(uint64_t world, symmetric* heap, uint64_t* report) {
  const uint32_t me = wbd_my_pe(world), n = wbd_n_pes(world), next = (me + 1) % n, before = (me + n - 1) % n;
  CHECK(n == 2 && me < n);
  CHECK(wbd_world_has_failed(world) == 0);
  CHECK(wbd_ptr(world, address(heap), me) == address(heap));
  uint64_t* to = heap->value;
#define PUT_VALUE(STEP, NAME) CHECK(wbd_p_##NAME(world, address(to + STEP), 100 + STEP + me, next) == 0);
#define GET_VALUE(STEP, NAME) CHECK(wbd_g_##NAME(world, address(to + STEP), next) == 100 + STEP + me);
#define HAS_VALUE(STEP, T) CHECK(*reinterpret_cast<T*>(to + STEP) == 100 + STEP + before);
  if (is_first()) {
    PUT_VALUE(0, u8) PUT_VALUE(1, u16) PUT_VALUE(2, u32) PUT_VALUE(3, u64) PUT_VALUE(4, f32) PUT_VALUE(5, f64) CHECK(wbd_quiet(world) == 0);
    GET_VALUE(0, u8) GET_VALUE(1, u16) GET_VALUE(2, u32) GET_VALUE(3, u64) GET_VALUE(4, f32) GET_VALUE(5, f64)
  }
  CHECK(wbd_barrier_all_block(world) == 0);
  HAS_VALUE(0, uint8_t) HAS_VALUE(1, uint16_t) HAS_VALUE(2, uint32_t) HAS_VALUE(3, uint64_t) HAS_VALUE(4, float) HAS_VALUE(5, double)
}
WB_EXPORT(flat_values)

// Buffers: as above, with a step for each function.
WB_KERNEL void flat_memory(uint64_t world, symmetric* heap, uint64_t* report) {
  const uint32_t me = wbd_my_pe(world), n = wbd_n_pes(world), next = (me + 1) % n, before = (me + n - 1) % n;
  if (is_first()) {
    for (uint32_t step = 0; step < steps; ++step) {
      for (uint64_t i = 0; i < buffer_bytes; ++i) heap->source[step][i] = pattern(me, step, i);
    }
  }
  CHECK(wbd_barrier_all_block(world) == 0);
  // A length that no word divides.
  const uint64_t bytes = buffer_bytes - 3;
#define MOVE(STEP, CALL) CHECK(CALL(world, address(heap->got[STEP]), address(heap->source[STEP]), bytes, next) == 0)
  if (is_first()) {
    MOVE(0, wbd_putmem);
    MOVE(1, wbd_putmem_nbi);
    MOVE(2, wbd_getmem);
    MOVE(3, wbd_getmem_nbi);
    CHECK(wbd_flush(world) == 0);
    CHECK(wbd_fence(world) == 0);
    CHECK(wbd_quiet(world) == 0);
  }
  if (is_first_warp()) {
    MOVE(4, wbd_putmem_warp);
    MOVE(5, wbd_putmem_nbi_warp);
    MOVE(6, wbd_getmem_warp);
    MOVE(7, wbd_getmem_nbi_warp);
  }
  MOVE(8, wbd_putmem_block);
  MOVE(9, wbd_putmem_nbi_block);
  MOVE(10, wbd_getmem_block);
  MOVE(11, wbd_getmem_nbi_block);
  CHECK(wbd_flush_block(world) == 0 && wbd_flush_all_block(world) == 0);
  CHECK(wbd_fence_block(world) == 0);
  CHECK(wbd_quiet_block(world) == 0);
#define SIGNAL(STEP, CALL, OPERATION) \
  CHECK(CALL(world, address(heap->got[STEP]), address(heap->source[STEP]), bytes, address(heap->sig + STEP), 5, OPERATION, next) == 0)
  if (is_first()) {
    SIGNAL(12, wbd_putmem_signal, WBD_SIGNAL_SET);
    SIGNAL(13, wbd_putmem_signal_nbi, WBD_SIGNAL_ADD);
  }
  if (is_first_warp()) {
    SIGNAL(14, wbd_putmem_signal_warp, WBD_SIGNAL_ADD);
    SIGNAL(15, wbd_putmem_signal_nbi_warp, WBD_SIGNAL_SET);
  }
  SIGNAL(16, wbd_putmem_signal_block, WBD_SIGNAL_SET);
  SIGNAL(17, wbd_putmem_signal_nbi_block, WBD_SIGNAL_ADD);
  if (is_first()) CHECK(wbd_signal_op(world, address(heap->sig + 18), 7, WBD_SIGNAL_ADD, next) == 0);
  CHECK(wbd_signal_op_block(world, address(heap->sig + 19), 8, WBD_SIGNAL_SET, next) == 0);
  for (uint32_t step = 12; step < 18; ++step) {
    CHECK(wbd_signal_wait_until(world, address(heap->sig + step), WBD_CMP_EQ, 5) == 0);
  }
  CHECK(wbd_signal_wait_until_block(world, address(heap->sig + 18), WBD_CMP_GE, 7) == 0);
  CHECK(wbd_signal_wait_until_block(world, address(heap->sig + 19), WBD_CMP_NE, 0) == 0);
  if (is_first()) {
    uint64_t shadow = 0;
    CHECK(wbd_signal_wait_shadow(world, address(heap->sig + 18), address(&shadow), 4, before) == 0 && shadow == 4);
    CHECK(wbd_signal_test_shadow(world, address(heap->sig + 18), address(&shadow), 4) == 0 && shadow == 4);
    CHECK(wbd_signal_test_shadow(world, address(heap->sig + 18), address(&shadow), 3) == 1 && shadow == 7);
  }
  CHECK(wbd_signal_wait_shadow_block(world, address(heap->sig + 19), address(&heap->shadow), 8, WB_NO_PE) == 0 && heap->shadow == 8);
  CHECK(wbd_signal_fetch(world, address(heap->sig + 18)) == 7 && wbd_signal_fetch(world, address(heap->sig + 19)) == 8);
  CHECK(wbd_quiet_all_block(world) == 0);
  CHECK(wbd_barrier_all_block(world) == 0);
  for (uint32_t step = 0; step < 18; ++step) {
    const bool is_get = step < 12 && step % 4 >= 2;
    bool same = true;
    for (uint64_t i = 0; i < buffer_bytes; ++i) {
      same = same && heap->got[step][i] == (i < bytes ? pattern(is_get ? next : before, step, i) : 0);
    }
    CHECK(same);
  }
}
WB_EXPORT(flat_memory)

// Words of the next PE: one thread of each PE changes them, so that each result is known.
#define WORD_KERNEL(NAME, T)                                                                   \
  WB_KERNEL void flat_words_##NAME(uint64_t world, symmetric* heap, uint64_t* report) {        \
    const uint32_t next = (wbd_my_pe(world) + 1) % wbd_n_pes(world);                           \
    T* words = reinterpret_cast<T*>(heap->word);                                               \
    const uint64_t at = address(words), waits = address(words + 1), last = address(words + 2); \
    if (is_first()) {                                                                          \
      CHECK(wbd_atomic_set_##NAME(world, at, 12, next) == 0);                                  \
      CHECK(wbd_quiet(world) == 0);                                                            \
      CHECK(wbd_atomic_fetch_##NAME(world, at, next) == 12);                                   \
      CHECK(wbd_atomic_swap_##NAME(world, at, 10, next) == 12);                                \
      CHECK(wbd_atomic_compare_swap_##NAME(world, at, 9, 1, next) == 10);                      \
      CHECK(wbd_atomic_compare_swap_##NAME(world, at, 10, 6, next) == 10);                     \
      CHECK(wbd_atomic_fetch_add_##NAME(world, at, 7, next) == 6);                             \
      CHECK(wbd_atomic_fetch_and_##NAME(world, at, 9, next) == 13);                            \
      CHECK(wbd_atomic_fetch_or_##NAME(world, at, 6, next) == 9);                              \
      CHECK(wbd_atomic_fetch_xor_##NAME(world, at, 5, next) == 15);                            \
      CHECK(wbd_atomic_add_##NAME(world, at, 5, next) == 0);                                   \
      CHECK(wbd_quiet(world) == 0);                                                            \
      CHECK(wbd_atomic_or_##NAME(world, at, 16, next) == 0);                                   \
      CHECK(wbd_quiet(world) == 0);                                                            \
      CHECK(wbd_atomic_and_##NAME(world, at, 30, next) == 0);                                  \
      CHECK(wbd_quiet(world) == 0);                                                            \
      CHECK(wbd_atomic_xor_##NAME(world, at, 3, next) == 0);                                   \
      CHECK(wbd_quiet(world) == 0);                                                            \
      CHECK(wbd_atomic_fetch_##NAME(world, at, next) == 29);                                   \
      CHECK(wbd_atomic_add_##NAME(world, waits, 3, next) == 0);                                \
      CHECK(wbd_wait_until_##NAME(world, waits, WBD_CMP_EQ, 3) == 0);                          \
      CHECK(wbd_test_##NAME(world, waits, WBD_CMP_LT, 4) == 1);                                \
      CHECK(wbd_test_##NAME(world, waits, WBD_CMP_GT, 3) == 0);                                \
      CHECK(wbd_atomic_add_##NAME(world, last, 4, next) == 0);                                 \
    }                                                                                          \
    CHECK(wbd_wait_until_##NAME##_block(world, last, WBD_CMP_GE, 4) == 0);                     \
    CHECK(wbd_test_##NAME(world, last, WBD_CMP_LE, 4) == 1);                                   \
    CHECK(wbd_barrier_all_block(world) == 0);                                                  \
  }                                                                                            \
  WB_EXPORT(flat_words_##NAME)
WORD_KERNEL(u32, uint32_t)
WORD_KERNEL(u64, uint64_t)

// Meets the other PEs with each function: a word of the PE before has the number of the meeting, once all have met.
WB_KERNEL void flat_meet(uint64_t world, uint64_t team, symmetric* heap, uint64_t* report) {
  const uint32_t me = wbd_my_pe(world), n = wbd_n_pes(world), next = (me + 1) % n;
  CHECK(wbd_team_my_pe(team) == me && wbd_team_n_pes(team) == n && wbd_team_world_pe(team, next) == next);
  uint64_t* turn = heap->word;
#define MEET(STEP, TAKES_PART, CALL)                                                  \
  if (is_first()) CHECK(wbd_p_u64(world, address(turn + STEP), STEP + 1, next) == 0); \
  if (is_first()) CHECK(wbd_quiet(world) == 0);                                       \
  meet();                                                                             \
  if (TAKES_PART) {                                                                   \
    CHECK((CALL) == 0);                                                               \
    CHECK(turn[STEP] == STEP + 1);                                                    \
  }                                                                                   \
  meet();
  MEET(0, is_first(), wbd_barrier_all(world))
  MEET(1, is_first_warp(), wbd_barrier_all_warp(world))
  MEET(2, true, wbd_barrier_all_block(world))
  MEET(3, is_first(), wbd_sync_all(world))
  MEET(4, is_first_warp(), wbd_sync_all_warp(world))
  MEET(5, true, wbd_sync_all_block(world))
  MEET(6, is_first(), wbd_team_barrier(team, 1))
  MEET(7, is_first_warp(), wbd_team_barrier_warp(team, 2))
  MEET(8, true, wbd_team_barrier_block(team, 3))
  MEET(9, is_first(), wbd_team_sync(team, 4))
  MEET(10, is_first_warp(), wbd_team_sync_warp(team, 5))
  MEET(11, true, wbd_team_sync_block(team, 63))
}
WB_EXPORT(flat_meet)

// A call with a mistake, by its number. The result goes to report[0].
WB_KERNEL void flat_mistake(uint32_t which, uint64_t view, uint64_t* report) {
  uint64_t found = 0;
  switch (which) {
    case 0: found = wbd_array_load_u32(view, wbd_array_size(view)); break;
    case 1: found = wbd_array_load_u16(view, 0); break;
    case 2: found = wbd_array_load_f64_warp(view, 0, 1) != 0.0; break;
    case 3: found = wbd_array_store_u64(view, 0, 1); break;
    case 4: found = wbd_array_store_u32_warp(view, ~uint64_t{0}, 1, 1); break;
    case 5: found = wbd_array_read_u8_block(view, 0, 1, 0); break;
    case 6: found = wbd_volume_read(view, wbd_volume_blocks(view), 1, address(report)); break;
    case 7: found = wbd_volume_write_block(view, wbd_volume_blocks(view) - 1, 2, address(report)); break;
    case 8: found = wbd_signal_op_block(view, 0, 1, 3, 0); break;
    case 9: found = wbd_putmem_signal_block(view, 0, 0, 0, 0, 1, 11, 0); break;
    case 10: found = wbd_wait_until_u64_block(view, 0, 6, 0); break;
    case 11: found = wbd_test_u32(view, 0, 99, 0); break;
    case 12: found = wbd_g_u32(view, 0, 2); break;
    case 13: found = wbd_atomic_fetch_add_u64(view, 0, 1, 7); break;
  }
  if (is_first()) report[0] = found;
}
WB_EXPORT(flat_mistake)

WB_IMAGE(warpbell_device_functions)
