// Flat device functions: warpbell's device library for kernels of other compilers (Triton, Numba, CuTe DSL, LLVM).
//
// Names begin with `wbd_`, and not with the `wb_` of the host's C functions: one source may include both.
//
// Every function has C linkage, and numbers for arguments. `view`, `world` and `team` are addresses of a structure in memory that the
// kernel sees: a copy of what `Array::view`, `Volume::view`, `World::view` and `Team::view` return on the host. Other addresses
// are numbers too. Buffers are in the GPU's memory or in pinned host memory, as volume.cuh and shmem/rma.cuh have them.
//
// The end of a name says which threads call a function:
//   `..._warp`   All lanes of a warp, converged, with the same view, world or team. The warp works together.
//   `..._block`  All threads of a block, with the same arguments. Blocks have one dimension and whole warps. The call begins and ends
//                with a sync of the block, unless its description says otherwise. Its outcome is WB_DONE in all threads or in none.
//   otherwise    One thread calls the function. So may any number of threads, each with its own arguments.
//
// Results. A status word is 0 (WB_DONE) after success; bits 31:28 have the kind of failure (status.h). A failure is entered in the run's
// error log, which the host reports, and ends all waits of the run. Functions without an outcome return 0: some compilers need a
// result. Integers of 8 and 16 bits are passed and returned in 32 bits. An element that cannot be read is the poison value, all bits
// set (in 8 or 16 bits for such elements). A loop whose end depends on fetched values calls `..._has_failed`.
//
// `make` reads this file: one function in each line that begins with WB_FLAT.
#pragma once

#include <stdint.h>

#include <warpbell/platform.h>

#if WB_GPU
#define WB_FLAT extern "C" __device__
#else
#define WB_FLAT extern "C"
#endif

/// @brief Comparisons of waits and tests.
enum wbd_comparison { WBD_CMP_EQ = 0, WBD_CMP_NE = 1, WBD_CMP_GT = 2, WBD_CMP_LE = 3, WBD_CMP_LT = 4, WBD_CMP_GE = 5 };
/// @brief Signal operations.
enum wbd_signal_operation { WBD_SIGNAL_SET = 9, WBD_SIGNAL_ADD = 10 };

// --- stored arrays: `view` is the address of a wb_array_view ------------------------------------------------------------

/// @brief Returns the number of elements.
WB_FLAT uint64_t wbd_array_size(uint64_t view);
/// @brief Returns 1 if the run has failed or is being stopped, otherwise 0. Relaxed on scope device.
WB_FLAT uint32_t wbd_array_has_failed(uint64_t view);
/// @brief Requests the missing pages of `count` elements from `index` on, 32 pages at most. Does not wait for them. Returns 0.
WB_FLAT uint32_t wbd_array_prefetch(uint64_t view, uint64_t index, uint64_t count);

/// @brief Returns an element. Waits for its page if that is missing. Relaxed on scope device.
///
/// @param index Index of the element, less than `wbd_array_size`. Its type must have the bytes of the array's elements.
/// @return The element, or the poison value after a failure.
WB_FLAT uint32_t wbd_array_load_u8(uint64_t view, uint64_t index);
WB_FLAT uint32_t wbd_array_load_u16(uint64_t view, uint64_t index);
WB_FLAT uint32_t wbd_array_load_u32(uint64_t view, uint64_t index);
WB_FLAT uint64_t wbd_array_load_u64(uint64_t view, uint64_t index);
WB_FLAT float wbd_array_load_f32(uint64_t view, uint64_t index);
WB_FLAT double wbd_array_load_f64(uint64_t view, uint64_t index);

/// @brief Returns an element to each lane with `wanted`. The missing pages of all lanes are in flight together, and all lanes copy.
///
/// @param index Index of this lane's element.
/// @param wanted 0 if the lane only helps; it gets 0.
/// @return The element, or the poison value after a failure.
WB_FLAT uint32_t wbd_array_load_u8_warp(uint64_t view, uint64_t index, uint32_t wanted);
WB_FLAT uint32_t wbd_array_load_u16_warp(uint64_t view, uint64_t index, uint32_t wanted);
WB_FLAT uint32_t wbd_array_load_u32_warp(uint64_t view, uint64_t index, uint32_t wanted);
WB_FLAT uint64_t wbd_array_load_u64_warp(uint64_t view, uint64_t index, uint32_t wanted);
WB_FLAT float wbd_array_load_f32_warp(uint64_t view, uint64_t index, uint32_t wanted);
WB_FLAT double wbd_array_load_f64_warp(uint64_t view, uint64_t index, uint32_t wanted);

/// @brief Stores to an element. Waits for its page if that is missing. Relaxed on scope device.
///
/// @return Status word.
WB_FLAT uint32_t wbd_array_store_u8(uint64_t view, uint64_t index, uint32_t value);
WB_FLAT uint32_t wbd_array_store_u16(uint64_t view, uint64_t index, uint32_t value);
WB_FLAT uint32_t wbd_array_store_u32(uint64_t view, uint64_t index, uint32_t value);
WB_FLAT uint32_t wbd_array_store_u64(uint64_t view, uint64_t index, uint64_t value);
WB_FLAT uint32_t wbd_array_store_f32(uint64_t view, uint64_t index, float value);
WB_FLAT uint32_t wbd_array_store_f64(uint64_t view, uint64_t index, double value);

/// @brief Stores to an element for each lane with `wanted`.
///
/// @return Status word of this lane; 0 without `wanted`.
WB_FLAT uint32_t wbd_array_store_u8_warp(uint64_t view, uint64_t index, uint32_t value, uint32_t wanted);
WB_FLAT uint32_t wbd_array_store_u16_warp(uint64_t view, uint64_t index, uint32_t value, uint32_t wanted);
WB_FLAT uint32_t wbd_array_store_u32_warp(uint64_t view, uint64_t index, uint32_t value, uint32_t wanted);
WB_FLAT uint32_t wbd_array_store_u64_warp(uint64_t view, uint64_t index, uint64_t value, uint32_t wanted);
WB_FLAT uint32_t wbd_array_store_f32_warp(uint64_t view, uint64_t index, float value, uint32_t wanted);
WB_FLAT uint32_t wbd_array_store_f64_warp(uint64_t view, uint64_t index, double value, uint32_t wanted);

/// @brief Adds to an element atomically, for all threads of the engine. Relaxed on scope device.
///
/// @return The value before, or the poison value after a failure.
WB_FLAT uint32_t wbd_array_atomic_add_u32(uint64_t view, uint64_t index, uint32_t value);
WB_FLAT uint64_t wbd_array_atomic_add_u64(uint64_t view, uint64_t index, uint64_t value);
/// @brief Adds to an element for each lane with `wanted`. Other lanes get 0. As above.
WB_FLAT uint32_t wbd_array_atomic_add_u32_warp(uint64_t view, uint64_t index, uint32_t value, uint32_t wanted);
WB_FLAT uint64_t wbd_array_atomic_add_u64_warp(uint64_t view, uint64_t index, uint64_t value, uint32_t wanted);

/// @brief Copies `count` elements from `first` on to a buffer, page by page. All lanes pass the same arguments.
///
/// Elements of other types with as many bytes are copied likewise. The next page is requested while one is copied.
/// @param destination Address of the buffer, aligned to an element.
/// @return Status word. After success all calling threads see the elements. An array that ends earlier is copied to its end.
WB_FLAT uint32_t wbd_array_read_u8_warp(uint64_t view, uint64_t first, uint64_t count, uint64_t destination);
WB_FLAT uint32_t wbd_array_read_u16_warp(uint64_t view, uint64_t first, uint64_t count, uint64_t destination);
WB_FLAT uint32_t wbd_array_read_u32_warp(uint64_t view, uint64_t first, uint64_t count, uint64_t destination);
WB_FLAT uint32_t wbd_array_read_u64_warp(uint64_t view, uint64_t first, uint64_t count, uint64_t destination);
/// @brief Copies elements to a buffer; each warp of the block copies a part. As above.
WB_FLAT uint32_t wbd_array_read_u8_block(uint64_t view, uint64_t first, uint64_t count, uint64_t destination);
WB_FLAT uint32_t wbd_array_read_u16_block(uint64_t view, uint64_t first, uint64_t count, uint64_t destination);
WB_FLAT uint32_t wbd_array_read_u32_block(uint64_t view, uint64_t first, uint64_t count, uint64_t destination);
WB_FLAT uint32_t wbd_array_read_u64_block(uint64_t view, uint64_t first, uint64_t count, uint64_t destination);

// --- volumes: `view` is the address of a wb_volume_view -----------------------------------------------------------------

/// @brief Returns the number of logical blocks.
WB_FLAT uint64_t wbd_volume_blocks(uint64_t view);
/// @brief Returns the bytes of a logical block.
WB_FLAT uint32_t wbd_volume_block_bytes(uint64_t view);
/// @brief Returns 1 if a call of the run has failed, otherwise 0. Relaxed on scope device.
WB_FLAT uint32_t wbd_volume_has_failed(uint64_t view);

/// @brief Reads `count` blocks from `block` on, and waits.
///
/// @param count Number of blocks, 1 or more.
/// @param buffer Address of the buffer, aligned to 4 bytes; faster with 16. Not in local or shared memory. With direct landing in
/// memory that the host has mapped for the volume (`Volume::map`).
/// @return Status word. After success this thread sees the data.
WB_FLAT uint32_t wbd_volume_read(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer);
/// @brief Reads blocks for each lane, each with its own arguments. All lanes copy. A lane with a `count` of 0 only helps.
WB_FLAT uint32_t wbd_volume_read_warp(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer);
/// @brief Reads blocks; each thread reads a part of 4 KiB or more. After success all threads of the block see the data.
WB_FLAT uint32_t wbd_volume_read_block(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer);
/// @brief Submits a read of one command, and returns its token for `wbd_volume_wait`.
WB_FLAT uint64_t wbd_volume_read_async(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer);

/// @brief Writes `count` blocks from `block` on, and waits. Durable after a flush. Otherwise as wbd_volume_read.
WB_FLAT uint32_t wbd_volume_write(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer);
/// @brief Writes blocks for each lane. As wbd_volume_read_warp.
WB_FLAT uint32_t wbd_volume_write_warp(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer);
/// @brief Writes blocks that the threads of the block have filled. As wbd_volume_read_block.
WB_FLAT uint32_t wbd_volume_write_block(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer);
/// @brief Submits a write of one command, and returns its token for `wbd_volume_wait`. The buffer stays unchanged until then.
WB_FLAT uint64_t wbd_volume_write_async(uint64_t view, uint64_t block, uint32_t count, uint64_t buffer);

/// @brief Waits for a token, once. Returns the status word of its command.
WB_FLAT uint32_t wbd_volume_wait(uint64_t view, uint64_t token);
/// @brief Returns 1 if `wbd_volume_wait` would return at once, otherwise 0.
WB_FLAT uint32_t wbd_volume_test(uint64_t view, uint64_t token);
/// @brief Makes all writes that are done durable. Returns a status word.
WB_FLAT uint32_t wbd_volume_flush(uint64_t view);
/// @brief Makes all writes of the block durable, with one flush. Returns a status word.
WB_FLAT uint32_t wbd_volume_flush_block(uint64_t view);

// --- worlds: `world` is the address of a wb_world -----------------------------------------------------------------------
//
// `to`, `from`, `at` and `sig` are symmetric addresses, in this PE's heap, unless they are the local end of a transfer. OpenSHMEM 1.5 has
// the semantics (docs/shmem.md).

/// @brief Returns this PE's number.
WB_FLAT uint32_t wbd_my_pe(uint64_t world);
/// @brief Returns the number of PEs.
WB_FLAT uint32_t wbd_n_pes(uint64_t world);
/// @brief Returns 1 if a call of the run has failed, otherwise 0. Relaxed on scope device.
WB_FLAT uint32_t wbd_world_has_failed(uint64_t world);
/// @brief Returns the address at which loads and stores find symmetric address `at` of a PE; 0 if they do not reach it.
WB_FLAT uint64_t wbd_ptr(uint64_t world, uint64_t at, uint32_t pe);

/// @brief Stores one element to a PE. Relaxed on scope world. Returns 0.
WB_FLAT uint32_t wbd_p_u8(uint64_t world, uint64_t to, uint32_t value, uint32_t pe);
WB_FLAT uint32_t wbd_p_u16(uint64_t world, uint64_t to, uint32_t value, uint32_t pe);
WB_FLAT uint32_t wbd_p_u32(uint64_t world, uint64_t to, uint32_t value, uint32_t pe);
WB_FLAT uint32_t wbd_p_u64(uint64_t world, uint64_t to, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_p_f32(uint64_t world, uint64_t to, float value, uint32_t pe);
WB_FLAT uint32_t wbd_p_f64(uint64_t world, uint64_t to, double value, uint32_t pe);
/// @brief Returns one element of a PE; 0 after a failure. Relaxed on scope world.
WB_FLAT uint32_t wbd_g_u8(uint64_t world, uint64_t from, uint32_t pe);
WB_FLAT uint32_t wbd_g_u16(uint64_t world, uint64_t from, uint32_t pe);
WB_FLAT uint32_t wbd_g_u32(uint64_t world, uint64_t from, uint32_t pe);
WB_FLAT uint64_t wbd_g_u64(uint64_t world, uint64_t from, uint32_t pe);
WB_FLAT float wbd_g_f32(uint64_t world, uint64_t from, uint32_t pe);
WB_FLAT double wbd_g_f64(uint64_t world, uint64_t from, uint32_t pe);

/// @brief Copies bytes to a PE. The source may change after the return. Returns 0.
///
/// The warp or block shares the work, and ends with its sync; it does not begin with one.
WB_FLAT uint32_t wbd_putmem(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
WB_FLAT uint32_t wbd_putmem_warp(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
WB_FLAT uint32_t wbd_putmem_block(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
/// @brief Copies bytes to a PE without waiting or a sync. The source stays unchanged until a flush or quiet. Returns 0.
WB_FLAT uint32_t wbd_putmem_nbi(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
WB_FLAT uint32_t wbd_putmem_nbi_warp(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
WB_FLAT uint32_t wbd_putmem_nbi_block(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
/// @brief Copies bytes from a PE. On return all calling threads see them. Returns 0. Otherwise as wbd_putmem.
WB_FLAT uint32_t wbd_getmem(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
WB_FLAT uint32_t wbd_getmem_warp(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
WB_FLAT uint32_t wbd_getmem_block(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
/// @brief Copies bytes from a PE without waiting or a sync. They have arrived after a quiet and a sync. Returns 0.
WB_FLAT uint32_t wbd_getmem_nbi(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
WB_FLAT uint32_t wbd_getmem_nbi_warp(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);
WB_FLAT uint32_t wbd_getmem_nbi_block(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe);

// clang-format off: one function in a line
/// @brief Copies bytes to a PE, then sets or adds to the signal word `sig` there. Who waits for the signal sees the bytes.
///
/// @param operation WBD_SIGNAL_SET or WBD_SIGNAL_ADD.
/// @return Status word. Otherwise as wbd_putmem.
WB_FLAT uint32_t wbd_putmem_signal(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe);
WB_FLAT uint32_t wbd_putmem_signal_warp(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe);
WB_FLAT uint32_t wbd_putmem_signal_block(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe);
/// @brief Copies bytes, then signals, without waiting. The source stays unchanged until a flush or quiet. As above.
WB_FLAT uint32_t wbd_putmem_signal_nbi(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe);
WB_FLAT uint32_t wbd_putmem_signal_nbi_warp(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe);
WB_FLAT uint32_t wbd_putmem_signal_nbi_block(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe);
// clang-format on

/// @brief Sets or adds to the signal word of a PE. Relaxed: a fence orders earlier puts before it. Returns a status word.
WB_FLAT uint32_t wbd_signal_op(uint64_t world, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe);
/// @brief Signals once for the block, after a fence: the signal covers earlier puts and stores of all threads of the block.
WB_FLAT uint32_t wbd_signal_op_block(uint64_t world, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe);
/// @brief Returns a signal word of this PE. Relaxed on scope world.
WB_FLAT uint64_t wbd_signal_fetch(uint64_t world, uint64_t sig);
/// @brief Waits until a signal word of this PE compares true with `value`, for one deadline at most. Then an acquire.
///
/// @param comparison WBD_CMP_EQ to WBD_CMP_GE.
/// @return Status word.
WB_FLAT uint32_t wbd_signal_wait_until(uint64_t world, uint64_t sig, uint32_t comparison, uint64_t value);
/// @brief Waits for a signal in one thread of the block, then an acquire for all of them. As above.
WB_FLAT uint32_t wbd_signal_wait_until_block(uint64_t world, uint64_t sig, uint32_t comparison, uint64_t value);
/// @brief Waits until at least `n` signals have arrived that the shadow does not count, for one deadline at most, and counts `n` of them.
///
/// @param shadow Address of 8 bytes: the signals that were consumed, 0 at first. After success larger by `n`.
/// @param n Less than 2^63.
/// @param pe The PE that should signal, for the error of a wait that fails; 0xffffffff: not known.
/// @return Status word. After success an acquire.
WB_FLAT uint32_t wbd_signal_wait_shadow(uint64_t world, uint64_t sig, uint64_t shadow, uint64_t n, uint32_t pe);
/// @brief Waits for signals in one thread of the block, which alone accesses the shadow, then an acquire for all of them. As above.
WB_FLAT uint32_t wbd_signal_wait_shadow_block(uint64_t world, uint64_t sig, uint64_t shadow, uint64_t n, uint32_t pe);
/// @brief Returns 1 if wbd_signal_wait_shadow would return at once, and then counts `n` signals. Otherwise 0.
WB_FLAT uint32_t wbd_signal_test_shadow(uint64_t world, uint64_t sig, uint64_t shadow, uint64_t n);

/// @brief Waits until a word of this PE compares true with `value`. As wbd_signal_wait_until.
WB_FLAT uint32_t wbd_wait_until_u32(uint64_t world, uint64_t at, uint32_t comparison, uint32_t value);
WB_FLAT uint32_t wbd_wait_until_u64(uint64_t world, uint64_t at, uint32_t comparison, uint64_t value);
/// @brief Waits for a word in one thread of the block. As wbd_signal_wait_until_block.
WB_FLAT uint32_t wbd_wait_until_u32_block(uint64_t world, uint64_t at, uint32_t comparison, uint32_t value);
WB_FLAT uint32_t wbd_wait_until_u64_block(uint64_t world, uint64_t at, uint32_t comparison, uint64_t value);
/// @brief Returns 1 if a word of this PE compares true with `value` now, then with an acquire; otherwise 0.
WB_FLAT uint32_t wbd_test_u32(uint64_t world, uint64_t at, uint32_t comparison, uint32_t value);
WB_FLAT uint32_t wbd_test_u64(uint64_t world, uint64_t at, uint32_t comparison, uint64_t value);

/// @brief Returns a word of a PE; 0 after a failure. Atomics are relaxed on scope world.
WB_FLAT uint32_t wbd_atomic_fetch_u32(uint64_t world, uint64_t at, uint32_t pe);
WB_FLAT uint64_t wbd_atomic_fetch_u64(uint64_t world, uint64_t at, uint32_t pe);
/// @brief Changes a word of a PE, and returns the value before; 0 after a failure.
WB_FLAT uint32_t wbd_atomic_swap_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint64_t wbd_atomic_swap_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_compare_swap_u32(uint64_t world, uint64_t at, uint32_t expected, uint32_t value, uint32_t pe);
WB_FLAT uint64_t wbd_atomic_compare_swap_u64(uint64_t world, uint64_t at, uint64_t expected, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_fetch_add_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint64_t wbd_atomic_fetch_add_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_fetch_and_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint64_t wbd_atomic_fetch_and_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_fetch_or_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint64_t wbd_atomic_fetch_or_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_fetch_xor_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint64_t wbd_atomic_fetch_xor_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);
/// @brief Changes a word of a PE. Does not wait for the value before. Returns 0.
WB_FLAT uint32_t wbd_atomic_set_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_set_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_add_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_add_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_and_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_and_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_or_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_or_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_xor_u32(uint64_t world, uint64_t at, uint32_t value, uint32_t pe);
WB_FLAT uint32_t wbd_atomic_xor_u64(uint64_t world, uint64_t at, uint64_t value, uint32_t pe);

/// @brief Orders puts, signals and atomics of this thread, and of threads that it has synchronised with. Returns 0.
WB_FLAT uint32_t wbd_fence(uint64_t world);
/// @brief Orders puts, signals and atomics of all threads of the block. Returns a status word.
WB_FLAT uint32_t wbd_fence_block(uint64_t world);
/// @brief Completes puts, signals and atomics of this thread, and of threads that it has synchronised with. Returns a status word.
WB_FLAT uint32_t wbd_quiet(uint64_t world);
/// @brief Completes puts, signals and atomics of all threads of the block. Returns a status word.
WB_FLAT uint32_t wbd_quiet_block(uint64_t world);
/// @brief Completes what all threads of this PE have put, in any block. Returns a status word.
WB_FLAT uint32_t wbd_quiet_all_block(uint64_t world);
/// @brief Waits until the sources of this thread's earlier puts may be written again, and of threads that it has synchronised with.
///
/// Says nothing of the puts' arrival. Returns a status word.
WB_FLAT uint32_t wbd_flush(uint64_t world);
/// @brief Waits until the sources of earlier puts of all threads of the block may be written again. Returns a status word.
WB_FLAT uint32_t wbd_flush_block(uint64_t world);
/// @brief Waits until the sources of what all threads of this PE have put may be written again, in any block. Returns a status word.
WB_FLAT uint32_t wbd_flush_all_block(uint64_t world);

/// @brief Completes the puts of the calling threads, and waits for all PEs: one thread, warp or block of each. Returns a status word.
WB_FLAT uint32_t wbd_barrier_all(uint64_t world);
WB_FLAT uint32_t wbd_barrier_all_warp(uint64_t world);
WB_FLAT uint32_t wbd_barrier_all_block(uint64_t world);
/// @brief Waits for all PEs, as above. Returns a status word.
WB_FLAT uint32_t wbd_sync_all(uint64_t world);
WB_FLAT uint32_t wbd_sync_all_warp(uint64_t world);
WB_FLAT uint32_t wbd_sync_all_block(uint64_t world);

// --- teams: `team` is the address of a wb_team_view ---------------------------------------------------------------------

/// @brief Returns this PE's number in the team.
WB_FLAT uint32_t wbd_team_my_pe(uint64_t team);
/// @brief Returns the number of members.
WB_FLAT uint32_t wbd_team_n_pes(uint64_t team);
/// @brief Returns a member's number in the world.
WB_FLAT uint32_t wbd_team_world_pe(uint64_t team, uint32_t member);

/// @brief Completes the puts of the calling threads, and waits for all members. Blocks that do so at once use channels of their own.
///
/// @param channel Channel, 0 to WB_CHANNELS - 1 (63).
/// @return Status word.
WB_FLAT uint32_t wbd_team_barrier(uint64_t team, uint32_t channel);
WB_FLAT uint32_t wbd_team_barrier_warp(uint64_t team, uint32_t channel);
WB_FLAT uint32_t wbd_team_barrier_block(uint64_t team, uint32_t channel);
/// @brief Waits for all members, as above. Returns a status word.
WB_FLAT uint32_t wbd_team_sync(uint64_t team, uint32_t channel);
WB_FLAT uint32_t wbd_team_sync_warp(uint64_t team, uint32_t channel);
WB_FLAT uint32_t wbd_team_sync_block(uint64_t team, uint32_t channel);
