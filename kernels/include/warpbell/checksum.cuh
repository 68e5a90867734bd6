// Checksums of pages: a word for each WB_CHECKSUM_BYTES of a volume's stored arrays, the low half of their XXH3. Kernels compare
// pages with their checksums after a read, and update the checksums before they write pages back (wb_integrity).
#pragma once

#include <warpbell/volume.cuh>
#include <warpbell/xxh3.cuh>

namespace warpbell {
namespace checksums {

static_assert(xxh3::bytes == WB_CHECKSUM_BYTES, "what a checksum covers");

// Returns the checksum of a hash. 0 is reserved for `not known`.
WB_FN uint32_t of(uint64_t hash) {
  const uint32_t low = static_cast<uint32_t>(hash);
  return low ? low : 1;
}

// Processes the units of the pages of the lanes with `mine`: `bytes` bytes at address `data`, whose place is byte `at` of the
// volume. Stores their checksums, or returns true if they match all checksums that are known. Collective: a whole warp takes one
// page after the other, and the lanes of a smaller mask take their own page each.
template <bool Stores>
WB_FN_COLD bool each_unit(by_value<volume_ref> v, warp::mask_t mask, bool mine, uint64_t at, uint64_t data, uint32_t bytes) {
  const bool together = warp::width == 32 && mask == warp::full();
  const volume_ref::checksum_table table = v.checksums();
  bool good = true;
  warp::mask_t left = together ? warp::ballot(mask, mine) : mine ? warp::mask_t{1} << warp::lane() : 0;
  for (; left; left &= left - 1) {
    const uint32_t owner = warp::first(left);
    const uint64_t first = (together ? warp::shuffle(mask, at, owner) : at) / WB_CHECKSUM_BYTES;
    const uint64_t from = together ? warp::shuffle(mask, data, owner) : data;
    const uint64_t count = together ? warp::shuffle(mask, table.count, owner) : table.count;
    for (uint32_t i = 0; i < bytes / WB_CHECKSUM_BYTES && first + i < count; ++i) {
      uint32_t* sum = table.sum + first + i;
      uint32_t known = Stores ? 1u : order::load<order::relaxed>(sum);
      if (together) known = warp::shuffle(mask, known, owner);
      if (known == 0) continue;
      const uint64_t unit = from + i * WB_CHECKSUM_BYTES;
      const uint32_t found = of(together ? xxh3::hash_together(unit) : xxh3::hash(unit));
      if (warp::lane() != owner) continue;
      if (Stores) order::store<order::relaxed>(sum, found);
      else if (found != known) good = false;
    }
  }
  return good;
}

/// @brief Returns true if the page of this lane matches its known checksums. Collective over `mask`.
///
/// @param at The page's first byte in the volume.
/// @param data Address of the page's bytes, which the lane must have acquired.
/// @param bytes Size of the page.
WB_FN bool match(volume_ref v, warp::mask_t mask, bool mine, uint64_t at, uint64_t data, uint32_t bytes) {
  return each_unit<false>(v, mask, mine, at, data, bytes);
}

/// @brief Stores the checksums of pages that are about to be written. Collective over `mask`; parameters as for `match`.
///
/// Pages that are smaller than WB_CHECKSUM_BYTES lose their checksum: it is not known from then on.
WB_FN void store(volume_ref v, warp::mask_t mask, bool mine, uint64_t at, uint64_t data, uint32_t bytes) {
  if (bytes >= WB_CHECKSUM_BYTES) each_unit<true>(v, mask, mine, at, data, bytes);
  else if (mine) v.forget_checksums(at >> v.block_shift(), bytes >> v.block_shift());
}

}  // namespace checksums
}  // namespace warpbell
