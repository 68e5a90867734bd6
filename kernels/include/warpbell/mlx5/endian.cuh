// Big-endian words, as mlx5 adapters read and write them, in the registers of a little-endian processor.
#pragma once

#include <warpbell/platform.h>

namespace warpbell {
namespace mlx5 {

#if !WB_GPU
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are stored as little-endian integers");
#endif

// Four bytes of the eight of `a` (0 to 3) and `b` (4 to 7): byte i of the result is the one that nibble i of `select` names.
WB_FN uint32_t permute(uint32_t a, uint32_t b, uint32_t select) {
#if WB_GPU
  return __byte_perm(a, b, select);  // one PRMT
#else
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t r = 0;
  for (uint32_t i = 0; i < 4; ++i) r |= static_cast<uint32_t>(bytes >> (select >> 4 * i & 7u) * 8 & 0xffu) << 8 * i;
  return r;
#endif
}

WB_FN uint32_t swap_bytes(uint32_t v) {
#if WB_GPU
  return permute(v, 0, 0x0123u);
#else
  return __builtin_bswap32(v);
#endif
}
WB_FN uint64_t swap_bytes(uint64_t v) {
#if WB_GPU
  return static_cast<uint64_t>(swap_bytes(static_cast<uint32_t>(v))) << 32 | swap_bytes(static_cast<uint32_t>(v >> 32));
#else
  return __builtin_bswap64(v);
#endif
}

// A word whose bytes stand as the adapter reads them. Keys and queue numbers are kept like this, so that an entry that is built
// swaps only what changes.
struct be32 {
  uint32_t word = 0;
};

WB_FN be32 big(uint32_t v) { return be32{swap_bytes(v)}; }
WB_FN uint32_t value(be32 v) { return swap_bytes(v.word); }

// The upper and the lower half of a 64-bit value, in the order in which they stand.
WB_FN uint32_t big_high(uint64_t v) { return swap_bytes(static_cast<uint32_t>(v >> 32)); }
WB_FN uint32_t big_low(uint64_t v) { return swap_bytes(static_cast<uint32_t>(v)); }

}  // namespace mlx5
}  // namespace warpbell
