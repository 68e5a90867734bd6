// Row caches: rows of a table in memory, in sets of WB_ROW_WAYS frames. A table may have one near the kernels, and one in host memory,
// whose tags are near the kernels, too.
//
// Tag word: row, version, state, uses (abi.h). All changes of a tag:
//
//   from          to                by                                               how
//   empty, VALID  BUSY of a row     warp that admits the row                         CAS, version + 1
//   BUSY          VALID, one use    the same warp, when the frame is filled          CAS
//   BUSY          BUSY|DEAD         warp that has written the row to the volume      OR
//   BUSY          empty             the admitting warp, if the row was written       store
//   VALID         empty             warp that has written the row to the volume      CAS
//   VALID         + one use         reader                                           CAS
//   VALID         - some uses       warp that needs a frame of the set               CAS
//
// * A hit is optimistic: tag (acquire), the row, tag again. A claim increments the version before the first new byte.
// * A row that a kernel has read from a device may have been written meanwhile. The reader takes `changed` of the row's set before it
//   reads, and looks at it again after it has claimed a frame. The writer writes the row, then increments `changed`, then looks at all
//   tags of the set. One of the two sees the other, so a frame never keeps a row that is older than the volume's.
// * A row enters a full set only if it was missed before (`seen`), and takes the place of the least used one. Rows of the set lose
//   as many uses as that one had.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/copy.cuh>
#include <warpbell/order.cuh>
#include <warpbell/table/batch.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {
namespace rows {

constexpr uint64_t one_use = uint64_t{1} << WB_ROW_USE_SHIFT;
constexpr uint64_t uses_mask = 7 * one_use;
constexpr uint64_t state_mask = WB_ROW_VALID | WB_ROW_BUSY | WB_ROW_DEAD;

/// @brief Returns true if both tags belong to the same content of a frame.
WB_FN bool same_content(uint64_t before, uint64_t now) { return ((before ^ now) & ~uses_mask) == 0; }

// Point between a look at a tag and the copy of its frame. Stress tests call the function there that the macro names.
WB_FN void cross() {
#if defined(WB_ROW_CROSSING)
  WB_ROW_CROSSING();
#endif
}

/// @brief A row cache. One thread calls each function, unless it says otherwise.
class row_cache {
 public:
  /// @brief A frame, and its tag as it was seen.
  struct frame {
    uint64_t* tag;  // null: none
    uint64_t seen;
    uint64_t address;
  };

  WB_FN row_cache(const wb_row_cache& c, uint32_t row_bytes) : c_(c), row_bytes_(row_bytes) {}

  WB_FN bool exists() const { return c_.tag != nullptr; }

  /// @brief Returns the number of writes to the row's set so far. An acquire on scope device: a read of the row that follows is not
  /// older.
  WB_FN uint32_t changed(uint64_t row) const { return order::load<order::acquire>(c_.changed + set_of(row)); }

  /// @brief Returns the frame that holds the row, if there is one. An acquire on scope device.
  WB_FN frame find(uint64_t row) const {
    constexpr uint32_t at_once = 4;  // loads in flight
    const uint64_t first = uint64_t{set_of(row)} * WB_ROW_WAYS;
    for (uint32_t w = 0; w < WB_ROW_WAYS; w += at_once) {
      uint64_t t[at_once];
#pragma unroll
      for (uint32_t j = 0; j < at_once; ++j) t[j] = order::load_before_fence(c_.tag + first + w + j);
#pragma unroll
      for (uint32_t j = 0; j < at_once; ++j) {
        if (t[j] >> WB_ROW_NUMBER_SHIFT == row && (t[j] & state_mask) == WB_ROW_VALID) {
          order::fence<order::acquire>();
          return frame{c_.tag + first + w + j, t[j], address(first + w + j)};
        }
      }
    }
    return frame{nullptr, 0, 0};
  }

  /// @brief Returns true if the frame still has the content of `f`. The caller's reads of the frame are performed before, if a fence
  /// (acquire, scope device) follows them.
  WB_FN static bool still(const frame& f) { return same_content(f.seen, order::load<order::relaxed>(f.tag)); }

  /// @brief Counts a use of a frame. Nothing is lost if the tag has changed meanwhile.
  WB_FN static void use(const frame& f) {
    if ((f.seen & uses_mask) != uses_mask) order::compare_exchange<order::relaxed>(f.tag, f.seen, f.seen + one_use);
  }

  /// @brief Claims a frame for a row that was missed, if the row is to enter the cache. Then its tag is BUSY.
  ///
  /// @param changed The set's number of writes before the row was read.
  /// @param seen The row counts as missed before.
  WB_FN frame claim(uint64_t row, uint32_t changed, bool seen) const {
    const uint32_t set = set_of(row);
    const uint64_t first = uint64_t{set} * WB_ROW_WAYS;
    uint32_t victim = WB_ROW_WAYS;
    uint64_t least = 0, before = 0;
    for (uint32_t w = 0; w < WB_ROW_WAYS; ++w) {
      const uint64_t t = order::load<order::relaxed>(c_.tag + first + w);
      const uint64_t state = t & state_mask;
      if (state != 0 && t >> WB_ROW_NUMBER_SHIFT == row) return none();
      if (state & WB_ROW_BUSY) continue;
      // An empty frame goes before all others.
      const uint64_t rank = state == 0 ? 0 : (t & uses_mask) + one_use;
      if (victim == WB_ROW_WAYS || rank < least) {
        victim = w;
        least = rank;
        before = t;
      }
    }
    if (victim == WB_ROW_WAYS || (least != 0 && !seen && !note(row))) return none();
    const uint64_t at = first + victim;
    const uint64_t busy = row << WB_ROW_NUMBER_SHIFT | (next_version(before) | WB_ROW_BUSY);
    if (order::compare_exchange<order::acq_rel>(c_.tag + at, before, busy) != before) return none();
    if (least > one_use) age(first, victim, least - one_use);
    const frame f{c_.tag + at, busy, address(at)};
    if (order::fetch_add<order::acq_rel>(c_.changed + set, 0u) == changed) return f;
    abandon(f);
    return none();
  }

  /// @brief Makes a claimed frame valid, which the warp has filled. A release on scope device.
  ///
  /// @return False if the row was written meanwhile: the frame is empty then.
  WB_FN static bool publish(const frame& f) {
    const uint64_t valid = (f.seen & ~state_mask) | WB_ROW_VALID | one_use;
    if (order::compare_exchange<order::acq_rel>(f.tag, f.seen, valid) == f.seen) return true;
    abandon(f);
    return false;
  }

  /// @brief Drops a row that was written to the volume. Every later `find` misses, and reads of the row that began before do not enter
  /// the cache. An acquire and release on scope device.
  WB_FN void drop(uint64_t row) const {
    drop_in(set_of(row), [row](uint64_t t) { return t >> WB_ROW_NUMBER_SHIFT == row; });
  }
  /// @brief Drops all rows of a set, as above.
  WB_FN void drop_set(uint32_t set) const {
    drop_in(set, [](uint64_t) { return true; });
  }
  /// @brief Returns the number of sets.
  WB_FN uint32_t sets() const { return c_.sets; }

 private:
  static constexpr uint64_t version_mask = (uint64_t{1} << WB_ROW_NUMBER_SHIFT) - (uint64_t{1} << WB_ROW_VERSION_SHIFT);

  WB_FN static frame none() { return frame{nullptr, 0, 0}; }
  WB_FN static uint64_t next_version(uint64_t t) { return (t + (uint64_t{1} << WB_ROW_VERSION_SHIFT)) & version_mask; }
  // Empties a frame that this thread has claimed.
  WB_FN static void abandon(const frame& f) { order::store<order::release>(f.tag, f.seen & version_mask); }

  WB_FN uint32_t set_of(uint64_t row) const { return static_cast<uint32_t>((hash(row) >> 32) * c_.sets >> 32); }
  WB_FN uint64_t address(uint64_t entry) const { return c_.frames + entry * row_bytes_; }

  // Drops the rows of a set whose tags `f` is true for.
  template <class F> WB_FN void drop_in(uint32_t set, F f) const {
    order::fetch_add<order::acq_rel>(c_.changed + set, 1u);
    for (uint32_t w = 0; w < WB_ROW_WAYS; ++w) {
      uint64_t* word = c_.tag + uint64_t{set} * WB_ROW_WAYS + w;
      uint64_t t = order::load<order::acquire>(word);
      while ((t & (WB_ROW_VALID | WB_ROW_BUSY)) != 0 && (t & WB_ROW_DEAD) == 0 && f(t)) {
        const uint64_t next = t & WB_ROW_BUSY ? t | WB_ROW_DEAD : t & ~(state_mask | uses_mask);
        const uint64_t was = order::compare_exchange<order::acq_rel>(word, t, next);
        if (was == t) break;
        t = was;
      }
    }
  }

  // Takes uses away from all frames of a set but one. A use that is counted meanwhile may win.
  WB_FN void age(uint64_t first, uint32_t except, uint64_t uses) const {
    for (uint32_t w = 0; w < WB_ROW_WAYS; ++w) {
      if (w == except) continue;
      uint64_t* word = c_.tag + first + w;
      const uint64_t t = order::load<order::relaxed>(word);
      if ((t & state_mask) != WB_ROW_VALID) continue;
      const uint64_t had = t & uses_mask;
      order::compare_exchange<order::relaxed>(word, t, t - (had < uses ? had : uses));
    }
  }

  // Records that a row was missed. Returns true if it was before. Now and then another word is cleared, so that about half of the bits
  // are set: one word of 32 bits for every 16 new bits.
  WB_FN bool note(uint64_t row) const {
    const uint64_t h = hash(~row);
    uint32_t* word = c_.seen + (static_cast<uint32_t>(h >> 5) & c_.seen_mask);
    const uint32_t bit = 1u << (h & 31u);
    if (order::load<order::relaxed>(word) & bit) return true;
    order::fetch_or<order::relaxed>(word, bit);
    if ((h >> 37 & 15u) == 0) order::store<order::relaxed>(c_.seen + (static_cast<uint32_t>(h >> 41) & c_.seen_mask), 0u);
    return false;
  }

  const wb_row_cache& c_;
  uint32_t row_bytes_;
};

}  // namespace rows
}  // namespace warpbell
