// The rows of one batch, each once: a hash table from a row's number to the position that acts for the row.
//
// A slot has two words. Each begins with the batch's epoch, so that entries of earlier batches count as empty and nothing is cleared
// between batches:
//
//   key    epoch in bits 63:48, number of the row in 39:0
//   value  gather: epoch in bits 63:48, position in 47:0, once the row is in the output
//          scatter: complement of the same, so that a minimum finds the highest position of the newest batch
//
// Epochs are 1 to 65,534. A table for gathers starts with zeros, one for scatters with ones, and so does its first epoch again.
//
// The table has twice as many slots as the batch has rows, so a search always ends.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {
namespace rows {

/// @brief Hashes a row's number (the finaliser of MurmurHash3).
WB_FN uint64_t hash(uint64_t row) {
  row = (row ^ row >> 33) * 0xff51afd7ed558ccdull;
  row = (row ^ row >> 33) * 0xc4ceb9fe1a85ec53ull;
  return row ^ row >> 33;
}

/// @brief The hash table of a batch. One thread calls each function.
class batch {
 public:
  static constexpr uint64_t none = ~0ull;

  WB_FN explicit batch(const wb_table_scratch& s)
      : slots_(s.slots), mask_(s.slot_mask), epoch_(static_cast<uint64_t>(s.epoch) << epoch_shift) {}

  /// @brief Returns true if there is a table. Without one, duplicates are read again.
  WB_FN bool exists() const { return slots_ != nullptr; }

  /// @brief Enters a row.
  ///
  /// @param first Becomes true if no other position has entered the row before. Such a position acts for the row.
  /// @return The row's slot, or `none` if the table is full.
  WB_FN uint64_t enter(uint64_t row, bool& first) const {
    const uint64_t key = epoch_ | row;
    uint64_t at = hash(row) & mask_;
    for (uint64_t tries = 0; tries <= mask_;) {
      uint64_t* word = slots_ + 2 * at;
      const uint64_t seen = order::load<order::relaxed>(word);
      if (seen == key) {
        first = false;
        return at;
      }
      if (seen >> epoch_shift != epoch_ >> epoch_shift) {
        const uint64_t was = order::compare_exchange<order::relaxed>(word, seen, key);
        if (was == seen || was == key) {
          first = was == seen;
          return at;
        }
      }
      at = (at + 1) & mask_;
      ++tries;
    }
    first = true;
    return none;
  }

  /// @brief Returns the slot of a row that an earlier kernel entered, or `none`.
  WB_FN uint64_t find(uint64_t row) const {
    const uint64_t key = epoch_ | row;
    uint64_t at = hash(row) & mask_;
    for (uint64_t tries = 0; tries <= mask_; ++tries, at = (at + 1) & mask_) {
      const uint64_t seen = order::load<order::relaxed>(slots_ + 2 * at);
      if (seen == key) return at;
      if (seen >> epoch_shift != epoch_ >> epoch_shift) break;
    }
    return none;
  }

  /// @brief Records that the row of a slot is in the output at `position`. A release on scope device.
  WB_FN void finish(uint64_t slot, uint64_t position) const { order::store<order::release>(slots_ + 2 * slot + 1, epoch_ | position); }

  /// @brief Returns true if the row of a slot is in the output, and its position. An acquire on scope device.
  WB_FN bool is_finished(uint64_t slot, uint64_t& position) const {
    const uint64_t value = order::load<order::acquire>(slots_ + 2 * slot + 1);
    position = value & position_mask;
    return (value & ~position_mask) == epoch_;
  }

  /// @brief Makes `position` act for the row of a slot if no higher position does. Relaxed on scope device.
  WB_FN void raise(uint64_t slot, uint64_t position) const {
    order::fetch_min<order::relaxed>(slots_ + 2 * slot + 1, ~(epoch_ | position));
  }

  /// @brief Returns the position that acts for the row of a slot, after all positions were raised by an earlier kernel.
  WB_FN uint64_t highest(uint64_t slot) const { return ~order::load<order::relaxed>(slots_ + 2 * slot + 1) & position_mask; }

 private:
  static constexpr uint32_t epoch_shift = 48;
  static constexpr uint64_t position_mask = (1ull << epoch_shift) - 1;

  uint64_t* slots_;
  uint64_t mask_;
  uint64_t epoch_;
};

}  // namespace rows
}  // namespace warpbell
