// Checks of the rows that `warpbell bench gather` has gathered. Launch shape: any grid of whole warps, blocks of up to 256 threads.
#include <warpbell/kernel.h>
#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

#include "compute.cuh"

namespace table_bench {

using namespace warpbell;

// Returns the expected 4-byte word `w` of the rows of a table, one behind the other. The host fills tables with the same.
WB_FN uint32_t word(uint64_t w) { return static_cast<uint32_t>(w * 0x9e3779b97f4a7c15ull >> 32); }

// Compares `n` rows of `words` words each with the rows that `indices` names: a warp for each row. Spoils every word, so that the next
// batch finds no row of this one. Counts wrong rows in totals[0], and leaves the position of one of them + 1 in totals[1].
template <class I> WB_FN void check(const I* indices, uint64_t n, uint32_t words, uint32_t* rows, uint64_t* totals) {
  for (uint64_t i = warp::index(); i < n; i += warp::total()) {
    const uint64_t first = static_cast<uint64_t>(indices[i]) * words;
    uint32_t* row = rows + i * words;
    bool wrong = false;
    for (uint32_t w = warp::lane(); w < words; w += warp::width) {
      wrong |= row[w] != word(first + w);
      row[w] = ~row[w];
    }
    if (warp::any(warp::full(), wrong) && warp::lane() == 0) {
      order::add<order::relaxed>(totals, uint64_t{1});
      order::store<order::relaxed>(totals + 1, i + 1);
    }
  }
}

}  // namespace table_bench

// Checks a batch whose indices have 32 bits.
WB_KERNEL void wb_table_bench_check_u32(const uint32_t* indices, WB_PARAM uint64_t n, WB_PARAM uint32_t words, uint32_t* rows,
                                        uint64_t* totals) {
  table_bench::check(indices, n, words, rows, totals);
}
WB_EXPORT(wb_table_bench_check_u32)

// Checks a batch whose indices have 64 bits.
WB_KERNEL void wb_table_bench_check_u64(const uint64_t* indices, WB_PARAM uint64_t n, WB_PARAM uint32_t words, uint32_t* rows,
                                        uint64_t* totals) {
  table_bench::check(indices, n, words, rows, totals);
}
WB_EXPORT(wb_table_bench_check_u64)

// Stands for the kernel of a model beside which a batch is gathered.
WB_KERNEL void wb_table_bench_compute(WB_PARAM uint64_t rounds, float* sum) {
  const float s = warpbell::bench::compute(rounds);
  // Never the case.
  if (s < 0.0f) *sum = s;
}
WB_EXPORT(wb_table_bench_compute)
