// Big-endian words, as mlx5 adapters read and write them, in the registers of a little-endian processor.
#pragma once

#include <warpbell/platform.h>

namespace warpbell {
namespace mlx5 {

#if !WB_GPU
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are stored as little-endian integers");
#endif

/// @brief Returns four of the eight bytes of `a` (bytes 0 to 3) and `b` (4 to 7). Nibble i of `select` names byte i of the result.
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

/// @brief Returns a value with its bytes in reverse order.
WB_FN uint32_t swap_bytes(uint32_t v) {
#if WB_GPU
  return permute(v, 0, 0x0123u);
#else
  return __builtin_bswap32(v);
#endif
}
/// @brief Returns a value with its bytes in reverse order.
WB_FN uint64_t swap_bytes(uint64_t v) {
#if WB_GPU
  return static_cast<uint64_t>(swap_bytes(static_cast<uint32_t>(v))) << 32 | swap_bytes(static_cast<uint32_t>(v >> 32));
#else
  return __builtin_bswap64(v);
#endif
}

/// @brief A word in the adapter's byte order. Keys and queue numbers are kept like this, so that building an entry swaps only the
/// words that change.
struct be32 {
  uint32_t word = 0;
};

/// @brief Returns a value in the adapter's byte order.
WB_FN be32 big(uint32_t v) { return be32{swap_bytes(v)}; }
/// @brief Returns the value of a word in the adapter's byte order.
WB_FN uint32_t value(be32 v) { return swap_bytes(v.word); }

/// @brief Returns the upper half of a 64-bit value, in the adapter's byte order.
WB_FN uint32_t big_high(uint64_t v) { return swap_bytes(static_cast<uint32_t>(v >> 32)); }
/// @brief Returns the lower half of a 64-bit value, in the adapter's byte order.
WB_FN uint32_t big_low(uint64_t v) { return swap_bytes(static_cast<uint32_t>(v)); }

}  // namespace mlx5
}  // namespace warpbell
