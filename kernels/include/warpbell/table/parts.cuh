// Parts of rows: the blocks of a row that one lane moves at once. A row of few blocks is one part.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/copy.cuh>
#include <warpbell/volume.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {
namespace rows {

/// @brief A part of a row: blocks of the volume, and the row's bytes among theirs.
struct part {
  uint64_t block;
  uint32_t blocks;  // 0: the row has no such part
  uint32_t skip;    // bytes of the blocks before those of the row
  uint32_t at;      // first byte within the row
  uint32_t bytes;   // bytes of the row
};

/// @brief Returns the part with this number of a row. One thread calls this.
WB_FN part part_of(const wb_table_view& t, uint32_t block_shift, uint64_t row, uint32_t number) {
  const uint64_t begin = t.first + row * t.row_bytes, end = begin + t.row_bytes;
  const uint64_t first = (begin >> block_shift) + uint64_t{number} * t.part_blocks;
  uint64_t last = ((end - 1) >> block_shift) + 1;
  if (first >= last) return part{0, 0, 0, 0, 0};
  if (last - first > t.part_blocks) last = first + t.part_blocks;
  const uint64_t from = first << block_shift, to = last << block_shift;
  const uint64_t low = begin > from ? begin : from, high = end < to ? end : to;
  return part{first, static_cast<uint32_t>(last - first), static_cast<uint32_t>(low - from), static_cast<uint32_t>(low - begin),
              static_cast<uint32_t>(high - low)};
}

/// @brief The warps that take part in a batch, and the reads that each has in flight.
struct shape {
  uint32_t warp, warps;  // this warp's number, and how many take part
  uint32_t at_once;      // parts that a warp moves together
  uint32_t tile;         // rows that a warp looks at together: a multiple of `at_once`, so that no turn has fewer reads
  uint64_t first, last;  // this warp's rows

  /// @brief Spreads a batch of `n` rows over `total` warps, of which this is number `number`. One thread calls this.
  WB_FN shape(const wb_table_scratch& s, uint64_t n, uint32_t number, uint32_t total) : warp(number), warps(total) {
    if (warps > s.in_flight) warps = s.in_flight;
    if (warps > n) warps = static_cast<uint32_t>(n);
    if (warps == 0) warps = 1;
    const uint32_t most = s.in_flight / warps;
    at_once = most == 0 ? 1 : most < warp::width ? most : warp::width;
    // All warps get as many rows, so that they end together.
    const uint64_t each = (n + warps - 1) / warps;
    const uint32_t whole = warp::width / at_once * at_once;
    tile = each < whole ? static_cast<uint32_t>(each) : whole;
    first = warp * each < n ? warp * each : n;
    last = n - first < each ? n : first + each;
  }
  /// @brief Returns true if this warp takes part.
  WB_FN bool takes_part() const { return warp < warps; }
  /// @brief Returns the address of this lane's staging buffer.
  WB_FN uint64_t staging(const wb_table_scratch& s) const {
    const uint32_t lane = warp::lane() < at_once ? warp::lane() : 0;
    return s.staging + (uint64_t{warp} * at_once + lane) * s.staging_bytes;
  }
};

/// @brief Reads or writes rows of the lanes in `lanes`, part by part. The whole converged warp calls this.
///
/// @param row The lane's row.
/// @param memory Address of the lane's row in memory, a multiple of 4.
/// @param direct The volume may transfer from and to that memory.
/// @return False in all lanes if an operation failed: it is in the error log.
/// @note After a read all lanes of the warp see the rows.
/// @pre To write, rows are whole blocks.
template <bool Writes> WB_FN bool move(const wb_table_view& t, const wb_table_scratch& s, const shape& w, warp::mask_t lanes, uint64_t row,
                                       uint64_t memory, bool direct) {
  const warp::mask_t all = warp::full();
  const volume_ref volume(t.volume);
  const uint32_t shift = volume.block_shift(), count = warp::count(lanes) * t.parts;
  const uint64_t staging = w.staging(s);
  bool failed = false;
  for (uint32_t first = 0; first < count; first += w.at_once) {
    const uint32_t item = first + warp::lane();
    const bool mine = warp::lane() < w.at_once && item < count;
    const uint32_t nth = mine ? item / t.parts : 0;
    const uint32_t who = warp::nth(lanes, nth);
    const uint64_t its_row = warp::shuffle(all, row, who), its_memory = warp::shuffle(all, memory, who);
    part p{0, 0, 0, 0, 0};
    if (mine) p = part_of(t, shift, its_row, item - nth * t.parts);
    const bool goes_direct = direct && p.bytes == p.blocks << shift;
    const uint64_t here = its_memory + p.at;
    const bool stages = p.blocks != 0 && !goes_direct;
    void* buffer = reinterpret_cast<void*>(goes_direct ? here : staging);
    status ended;
    if (Writes) {
      if (warp::any(all, stages)) copy_together(all, stages, staging, here, p.bytes);
      ended = volume.write(all, p.block, p.blocks, buffer);
    } else {
      ended = volume.read(all, p.block, p.blocks, buffer);
      if (!warp::any(all, !ended) && warp::any(all, stages)) copy_together(all, stages, here, staging + p.skip, p.bytes);
    }
    if (!ended) volume.fail(ended);
    failed = warp::any(all, !ended);
    if (failed) break;
  }
  warp::sync(all);
  return !failed;
}

}  // namespace rows
}  // namespace warpbell
