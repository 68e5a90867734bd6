// Kernels for random remote updates (HPC Challenge RandomAccess): table[x mod n] ^= x for a sequence of pseudo-random x. The table
// is distributed over all PEs. Launch shape: any grid.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

namespace gups_example {

// Returns the next value of the sequence: multiplication by x modulo x^63 + x^2 + x + 1 over GF(2).
WB_FN uint64_t next(uint64_t x) { return (x << 1) ^ (static_cast<int64_t>(x) < 0 ? 7 : 0); }

// Returns the n-th value, n below the period, from the values x^(2j), j < 64 (repeated squaring).
WB_FN uint64_t nth(uint64_t n, const uint64_t* squares) {
  if (n == 0) return 1;
  int bit = 62;
  while (!(n >> bit & 1)) --bit;
  uint64_t value = 2;
  while (bit > 0) {
    uint64_t squared = 0;
    for (uint32_t j = 0; j < 64; ++j) {
      if (value >> j & 1) squared ^= squares[j];
    }
    value = n >> --bit & 1 ? next(squared) : squared;
  }
  return value;
}

}  // namespace gups_example

// Writes table[i] = its index in the whole table.
WB_KERNEL void gups_fill(uint64_t* table, WB_PARAM uint64_t entries, WB_PARAM uint64_t first) {
  using namespace warpbell;
  for (uint64_t i = warp::thread_index(); i < entries; i += warp::thread_total()) table[i] = first + i;
}
WB_EXPORT(gups_fill)

// Executes updates `first` to `first + updates` - 1 of the sequence. Each PE has 2^log2_entries entries of the table.
WB_KERNEL void gups(WB_PARAM warpbell::world_ref w, WB_PARAM warpbell::sym<uint64_t> table, const uint64_t* squares,
                    WB_PARAM uint32_t log2_entries, WB_PARAM uint64_t first, WB_PARAM uint64_t updates) {
  using namespace warpbell;
  const uint64_t threads = warp::thread_total(), each = (updates + threads - 1) / threads;
  const uint64_t from = warp::thread_index() * each;
  const uint64_t entries = uint64_t{w.n_pes()} << log2_entries, part = (uint64_t{1} << log2_entries) - 1;
  const bool power_of_two = (entries & (entries - 1)) == 0;
  if (from < updates) {
    const uint64_t count = updates - from < each ? updates - from : each;
    uint64_t x = gups_example::nth(first + from, squares);
    for (uint64_t k = 0; k < count; ++k) {
      x = gups_example::next(x);
      const uint64_t i = power_of_two ? x & (entries - 1) : x % entries;
      w.atomic_xor(table + static_cast<ptrdiff_t>(i & part), x, static_cast<uint32_t>(i >> log2_entries));
    }
  }
  w.quiet();
}
WB_EXPORT(gups)
