// Writing of rows by number, as kernels that run one after the other:
//
//   claim     the highest position of each row acts for the row
//   add       sums of rows: every position adds its row to that of the position that acts, in memory
//   write     positions that act write their rows: whole blocks by commands, others through a page cache that is flushed afterwards
//   complete  hot rows are updated, and cached copies of the rows are dropped
//
// A gather beside a write gets the old row, the new one, or a mix of both. After `complete` no cache has an old row.
#pragma once

#include <warpbell/cache.cuh>
#include <warpbell/table.cuh>

namespace warpbell {
namespace rows {

/// @brief Rows to be written, and the positions that act for them. For grids of whole warps; each kernel makes one call.
class scatter {
 public:
  /// @param wide Indices have 64 bits, otherwise 32.
  WB_FN scatter(const wb_table_view& t, const void* indices, bool wide, uint64_t n, const wb_table_scratch& s)
      : t_(t), indices_(indices), wide_(wide), n_(n), s_(s), b_(s), w_(s, n, warp::index(), warp::total()) {}

  /// @brief First kernel.
  WB_FN void claim() const {
    for (uint64_t i = warp::thread_index(); i < n_; i += warp::thread_total()) {
      const uint64_t row = index(i);
      if (row >= t_.rows) {
        raise_index(t_, i, row);
        return;
      }
      bool first;
      const uint64_t slot = b_.enter(row, first);
      if (slot != batch::none) b_.raise(slot, i);
    }
  }

  /// @brief Adds each row of `from` to the row of `sums` that acts for it, element by element.
  ///
  /// @tparam T float, double, uint32_t or uint64_t.
  template <class T> WB_FN void add(const T* from, T* sums) const {
    const uint32_t elements = t_.row_bytes / static_cast<uint32_t>(sizeof(T));
    for (uint64_t i = warp::index(); i < n_; i += warp::total()) {
      const uint64_t acts = acting(index(i));
      // A row that `claim` has refused.
      if (acts >= n_) continue;
      const uint64_t to = acts * elements;
      for (uint32_t e = warp::lane(); e < elements; e += warp::width) {
        order::fetch_add<order::relaxed>(sums + to + e, order::load<order::relaxed>(from + i * elements + e));
      }
    }
  }

  /// @brief Writes the rows of the positions that act, which are whole blocks.
  WB_FN void write(const void* rows) const {
    if (!w_.takes_part()) return;
    const uint64_t base = reinterpret_cast<uint64_t>(rows);
    const bool direct = volume_ref(t_.volume).reaches(base, n_ * t_.row_bytes);
    each_tile([&](uint64_t row, uint64_t position, warp::mask_t act) {
      return move<true>(t_, s_, w_, act, row, base + position * t_.row_bytes, direct);
    });
  }

  /// @brief Writes the rows of the positions that act to pages of a cache of the volume.
  WB_FN void write(const wb_cache* cache, const void* rows) const {
    if (!w_.takes_part()) return;
    const uint64_t base = reinterpret_cast<uint64_t>(rows);
    each_tile([&](uint64_t row, uint64_t position, warp::mask_t act) {
      const bool mine = (act >> warp::lane() & 1u) != 0;
      const uint64_t begin = t_.first + row * t_.row_bytes, end = begin + t_.row_bytes;
      const uint64_t from = base + position * t_.row_bytes;
      uint64_t page = begin >> cache->page_shift;
      bool good = true;
      for (; warp::any(warp::full(), mine && good && page <= (end - 1) >> cache->page_shift); ++page) {
        const bool wants = mine && good && page <= (end - 1) >> cache->page_shift;
        const uint64_t first = page << cache->page_shift, last = first + (uint64_t{1} << cache->page_shift);
        const uint64_t low = begin > first ? begin : first, high = end < last ? end : last;
        const uint32_t ended = with_page(cache, warp::full(), wants, page, true, [&](uint64_t at) {
          copy_words(at + (low - first), from + (low - begin), static_cast<uint32_t>(high - low));
        });
        // The cache reports all other failures.
        if (wants && ended == WB_STOPPED) raise_stopped(row);
        good = good && ended == WB_DONE;
      }
      return !warp::any(warp::full(), !good);
    });
  }

  /// @brief Last kernel.
  WB_FN void complete(const void* rows) const {
    if (!w_.takes_part()) return;
    const uint64_t base = reinterpret_cast<uint64_t>(rows);
    uint32_t written = 0;
    each_tile([&](uint64_t row, uint64_t position, warp::mask_t act) {
      const bool mine = (act >> warp::lane() & 1u) != 0;
      const uint64_t hot = mine && t_.hot_row != nullptr ? hot_address(t_, row) : 0;
      copy_together(warp::full(), hot != 0, hot, base + position * t_.row_bytes, t_.row_bytes);
      // A row of host memory may be copied near the kernels, so it is dropped there first.
      for (uint32_t tier = WB_ROW_TIERS; tier-- > 0;) {
        const row_cache cache(t_.cache[tier], t_.row_bytes);
        if (mine && cache.exists()) cache.drop(row);
      }
      written += warp::count(act);
      return true;
    });
    if (warp::is_leader(warp::full()) && written) {
      order::add<order::relaxed>(&(t_.stats + (warp::processor() & (WB_STATS_STRIPES - 1)))->written, uint64_t{written});
    }
  }

 private:
  WB_FN uint64_t index(uint64_t i) const {
    return wide_ ? order::load<order::relaxed>(static_cast<const uint64_t*>(indices_) + i)
                 : order::load<order::relaxed>(static_cast<const uint32_t*>(indices_) + i);
  }

  // Enters a write that was told to stop in the error log: the run has not succeeded.
  WB_FN void raise_stopped(uint64_t row) const {
    const volume_ref v(t_.volume);
    const volume_ref::place at = v.locate((t_.first + row * t_.row_bytes) >> t_.volume->block_shift);
    v.raise(status_word(WB_STOPPED), nvme::op_write, at.lba, t_.part_blocks, at.device);
  }

  // Returns the position that acts for a row, or batch::none if `claim` has not entered it.
  WB_FN uint64_t acting(uint64_t row) const {
    const uint64_t slot = b_.find(row);
    return slot == batch::none ? slot : b_.highest(slot);
  }

  // Calls `f(row, position, lanes that act)` for this warp's tiles, until it returns false.
  template <class F> WB_FN void each_tile(F f) const {
    for (uint64_t first = w_.first; first < w_.last; first += w_.tile) {
      const uint64_t position = first + warp::lane();
      const bool mine = warp::lane() < w_.tile && position < w_.last;
      const uint64_t row = mine ? index(position) : 0;
      // The program may have changed the index since `claim` looked at it.
      const warp::mask_t act = warp::ballot(warp::full(), mine && row < t_.rows && acting(row) == position);
      if (act && !f(row, position, act)) return;
    }
  }

  // Copies bytes of a row by this lane alone; other threads may access the page at the same time.
  WB_FN static void copy_words(uint64_t to, uint64_t from, uint32_t bytes) {
    if (((to | from | bytes) & 7u) == 0) return copy_each<uint64_t>(to, from, bytes);
    copy_each<uint32_t>(to, from, bytes);
  }
  template <class Word> WB_FN static void copy_each(uint64_t to, uint64_t from, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes / sizeof(Word); ++i) {
      order::store<order::relaxed>(reinterpret_cast<Word*>(to) + i, order::load<order::relaxed>(reinterpret_cast<const Word*>(from) + i));
    }
  }

  const wb_table_view& t_;
  const void* indices_;
  bool wide_;
  uint64_t n_;
  const wb_table_scratch& s_;
  batch b_;
  shape w_;
};

}  // namespace rows
}  // namespace warpbell
