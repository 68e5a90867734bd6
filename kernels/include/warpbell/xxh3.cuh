// XXH3 with 64 bits, seed 0 and the default secret (xxHash specification, "XXH3 Algorithm"), of exactly 4096 bytes: the unit of a
// page checksum. Equal to `XXH3_64bits` of xxhash.h.
//
// The input is 4 blocks of 16 stripes of 8 words. A word adds to the accumulator of its place in the stripe, and to that of the
// neighbouring place. Within a block these are sums, so lanes can share the work in any order.
#pragma once

#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {
namespace xxh3 {

constexpr uint32_t bytes = 4096;
constexpr uint32_t lanes = 8;     // accumulators, and words of a stripe
constexpr uint32_t stripes = 16;  // of a block
constexpr uint32_t blocks = bytes / (stripes * lanes * 8);

constexpr uint64_t prime32_1 = 0x9e3779b1u, prime32_2 = 0x85ebca77u, prime32_3 = 0xc2b2ae3du;
constexpr uint64_t prime64_1 = 0x9e3779b185ebca87u, prime64_2 = 0xc2b2ae3d27d4eb4fu, prime64_3 = 0x165667b19e3779f9u,
                   prime64_4 = 0x85ebca77c2b2ae63u, prime64_5 = 0x27d4eb2f165667c5u;

// The default secret's 192 bytes, as little-endian words. In memory of the device: a function's own table would be copied to the
// stack of each thread that reads it by a variable index.
WB_CONST uint64_t secret_words[24] = {
    0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u, 0x78e5c0cc4ee679cbu, 0x2172ffcc7dd05a82u,
    0x8e2443f7744608b8u, 0x4c263a81e69035e0u, 0xcb00c391bb52283cu, 0xa32e531b8b65d088u, 0x4ef90da297486471u, 0xd8acdea946ef1938u,
    0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au, 0x647378d9c97e9fc8u, 0xc3ebd33483acc5eau, 0xeb6313faffa081c5u,
    0x49daf0b751dd0d17u, 0x9e68d429265516d3u, 0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu};
// The accumulators' first values.
WB_CONST uint64_t first_values[lanes] = {prime32_3, prime64_1, prime64_2, prime64_3, prime64_4, prime32_2, prime64_5, prime32_1};

// Returns eight bytes of the secret, from any byte on.
WB_FN uint64_t secret(uint32_t byte) {
  const uint32_t shift = byte % 8 * 8, i = byte / 8;
  return shift == 0 ? secret_words[i] : secret_words[i] >> shift | secret_words[i + 1] << (64 - shift);
}

// Returns the offset in the secret for a stripe of a block. The last stripe of all has its own offset.
WB_FN uint32_t secret_of(uint32_t block, uint32_t stripe) {
  return block == blocks - 1 && stripe == stripes - 1 ? 192 - 64 - 7 : stripe * 8;
}

WB_FN uint64_t keyed(uint64_t word, uint64_t key) {
  key ^= word;
  return (key & 0xffffffffu) * (key >> 32);
}

// Returns the sum that a block adds to the accumulator of `lane`.
WB_FN uint64_t block_sum(uint64_t data, uint32_t block, uint32_t lane) {
  const uint64_t* word = reinterpret_cast<const uint64_t*>(data) + block * stripes * lanes;
  uint64_t sum = 0;
#pragma unroll 4
  for (uint32_t s = 0; s < stripes; ++s, word += lanes) {
    const uint64_t own = order::load<order::relaxed>(word + lane), beside = order::load<order::relaxed>(word + (lane ^ 1u));
    sum += keyed(own, secret(secret_of(block, s) + lane * 8)) + beside;
  }
  return sum;
}

WB_FN uint64_t scramble(uint64_t accumulator, uint32_t lane) {
  return (accumulator ^ accumulator >> 47 ^ secret(192 - 64 + lane * 8)) * prime32_1;
}

WB_FN uint64_t fold(uint64_t a, uint64_t b) {
#if WB_GPU
  return (a * b) ^ __umul64hi(a, b);
#else
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
#endif
}

WB_FN uint64_t avalanche(uint64_t h) {
  h = (h ^ h >> 37) * 0x165667919e3779f9u;
  return h ^ h >> 32;
}

/// @brief Returns the hash of 4096 bytes at address `data`, aligned to 8. One lane calls this alone.
WB_FN_COLD uint64_t hash(uint64_t data) {
  uint64_t result = bytes * prime64_1;
  for (uint32_t lane = 0; lane < lanes; lane += 2) {
    uint64_t a[2];
    for (uint32_t i = 0; i < 2; ++i) {
      uint64_t sum = first_values[lane + i] + block_sum(data, 0, lane + i);
      for (uint32_t b = 1; b < blocks; ++b) sum = scramble(sum, lane + i) + block_sum(data, b, lane + i);
      a[i] = sum ^ secret(11 + (lane + i) * 8);
    }
    result += fold(a[0], a[1]);
  }
  return avalanche(result);
}

/// @brief Returns the hash of 4096 bytes at address `data`, aligned to 8, in all lanes. A whole converged warp of 32 lanes calls
/// this.
///
/// Every eight lanes take one block.
WB_FN_COLD uint64_t hash_together(uint64_t data) {
  const warp::mask_t all = warp::full();
  const uint32_t lane = warp::lane() % lanes;
  const uint64_t mine = block_sum(data, warp::lane() / lanes, lane);
  uint64_t sum = first_values[lane] + warp::shuffle(all, mine, lane);
  for (uint32_t b = 1; b < blocks; ++b) sum = scramble(sum, lane) + warp::shuffle(all, mine, b * lanes + lane);
  sum ^= secret(11 + lane * 8);
  uint64_t part = fold(sum, warp::shuffle(all, sum, warp::lane() ^ 1u));
  part += warp::shuffle(all, part, warp::lane() ^ 2u);
  part += warp::shuffle(all, part, warp::lane() ^ 4u);
  return avalanche(bytes * prime64_1 + part);
}

}  // namespace xxh3
}  // namespace warpbell
