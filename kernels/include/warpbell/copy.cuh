// Copies by all lanes of a mask together: each lane may bring one copy, and all lanes share all copies.
#pragma once

#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {

#if WB_GPU

namespace copying {

constexpr uint32_t unit = sizeof(order::quad);
constexpr uint32_t many = 8;  // 16-byte loads of a lane in flight: enough to hide a bus round trip
constexpr uint32_t few = 2;   // for callers that are short of registers

// Copies ranges that are not 16-byte aligned, or whose length is no multiple of 16. Collective over `mask`.
WB_FN_COLD void odd(warp::mask_t mask, uint64_t to, uint64_t from, uint32_t bytes) {
  const uint32_t n = warp::count(mask), rank = warp::rank(mask);
  if (((to | from | bytes) & 3u) == 0) {
    for (uint32_t i = rank; i < bytes / 4; i += n) {
      order::store<order::relaxed, order::system>(reinterpret_cast<uint32_t*>(to) + i,
                                                  order::load<order::relaxed, order::system>(reinterpret_cast<const uint32_t*>(from) + i));
    }
    return;
  }
  for (uint32_t i = rank; i < bytes; i += n) {
    reinterpret_cast<volatile unsigned char*>(to)[i] = reinterpret_cast<const volatile unsigned char*>(from)[i];
  }
}

}  // namespace copying

/// @brief Copies `bytes` from address `from` to address `to` for every lane with `mine`. Collective over `mask`, converged.
///
/// @tparam in_flight 16-byte loads that a lane has in flight.
/// @note Reads bypass the L1, because a device may have written the source. Accesses are relaxed, on scope system. The final
/// warp::sync orders the lanes' stores before what the lanes of the mask do next.
template <uint32_t in_flight = copying::many>
WB_FN_COLD void copy_together(warp::mask_t mask, bool mine, uint64_t to, uint64_t from, uint32_t bytes) {
  using namespace copying;
  const uint32_t n = warp::count(mask), rank = warp::rank(mask);
  warp::mask_t left = warp::ballot(mask, mine && bytes != 0);
  const warp::mask_t odds = warp::ballot(mask, ((to | from | bytes) & (unit - 1)) != 0) & left;
  for (warp::mask_t m = odds; m; m &= m - 1) {
    uint32_t who = warp::first(m);
    odd(mask, warp::shuffle(mask, to, who), warp::shuffle(mask, from, who), warp::shuffle(mask, bytes, who));
  }
  left &= ~odds;
  // A position is (member, quad). All lanes step through the members together, n quads a step, several steps in flight.
  uint32_t at = rank;
  while (left) {
    order::quad q[in_flight];
    warp::mask_t m = left;
    uint32_t i = at;
#pragma unroll
    for (uint32_t j = 0; j < in_flight; ++j) {
      if (m) {
        uint32_t who = warp::first(m);
        uint64_t source = warp::shuffle(mask, from, who);
        uint32_t quads = warp::shuffle(mask, bytes, who) / unit;
        if (i < quads) q[j] = order::load_quad<order::relaxed, order::system>(reinterpret_cast<const void*>(source + uint64_t{i} * unit));
        i += n;
        if (i - rank >= quads) {
          m &= m - 1;
          i = rank;
        }
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < in_flight; ++j) {
      if (left) {
        uint32_t who = warp::first(left);
        uint64_t target = warp::shuffle(mask, to, who);
        uint32_t quads = warp::shuffle(mask, bytes, who) / unit;
        if (at < quads) order::store_quad<order::relaxed, order::system>(reinterpret_cast<void*>(target + uint64_t{at} * unit), q[j]);
        at += n;
        if (at - rank >= quads) {
          left &= left - 1;
          at = rank;
        }
      }
    }
  }
  warp::sync(mask);
}

/// @brief Copies `bytes` from address `from` to address `to`, the same in all lanes. Collective over `mask`, converged.
///
/// @note As copy_together, without its shuffles: for a copy that a thread waits for.
WB_FN void copy_one(warp::mask_t mask, uint64_t to, uint64_t from, uint32_t bytes) {
  using namespace copying;
  if (((to | from | bytes) & (unit - 1)) != 0) {
    odd(mask, to, from, bytes);
  } else {
    const uint32_t n = warp::count(mask), quads = bytes / unit;
    for (uint32_t at = warp::rank(mask); at < quads; at += many * n) {
      order::quad q[many];
#pragma unroll
      for (uint32_t j = 0; j < many; ++j) {
        if (at + j * n < quads)
          q[j] = order::load_quad<order::relaxed, order::system>(reinterpret_cast<const void*>(from + uint64_t{at + j * n} * unit));
      }
#pragma unroll
      for (uint32_t j = 0; j < many; ++j) {
        if (at + j * n < quads)
          order::store_quad<order::relaxed, order::system>(reinterpret_cast<void*>(to + uint64_t{at + j * n} * unit), q[j]);
      }
    }
  }
  warp::sync(mask);
}

#else

namespace copying {
constexpr uint32_t many = 1, few = 1;
}

/// @brief Copies `bytes` from address `from` to address `to` for every lane with `mine`. Collective over `mask`.
///
/// @note Words are moved one by one and relaxed. A cache's readers may look at a frame that is being filled, and then find by its
/// tag that they must look again. The final warp::sync orders the lanes' stores before what the lanes of the mask do next.
template <uint32_t = copying::many> WB_FN void copy_together(warp::mask_t mask, bool mine, uint64_t to, uint64_t from, uint32_t bytes) {
  constexpr uint32_t word = sizeof(uint64_t);
  const uint32_t n = warp::count(mask), rank = warp::rank(mask);
  for (warp::mask_t m = warp::ballot(mask, mine && bytes != 0); m; m &= m - 1) {
    uint32_t who = warp::first(m);
    uint64_t target = warp::shuffle(mask, to, who), source = warp::shuffle(mask, from, who);
    uint32_t length = warp::shuffle(mask, bytes, who);
    const bool whole = ((target | source | length) & (word - 1)) == 0;
    if (whole) {
      for (uint32_t i = rank; i < length / word; i += n) {
        order::store<order::relaxed>(reinterpret_cast<uint64_t*>(target) + i,
                                     order::load<order::relaxed>(reinterpret_cast<const uint64_t*>(source) + i));
      }
    } else {
      for (uint32_t i = rank; i < length; i += n) {
        order::store<order::relaxed>(reinterpret_cast<uint8_t*>(target) + i,
                                     order::load<order::relaxed>(reinterpret_cast<const uint8_t*>(source) + i));
      }
    }
  }
  warp::sync(mask);
}

/// @brief Copies `bytes` from address `from` to address `to`, the same in all lanes. Collective over `mask`. As copy_together.
WB_FN void copy_one(warp::mask_t mask, uint64_t to, uint64_t from, uint32_t bytes) {
  copy_together(mask, warp::is_leader(mask), to, from, bytes);
}

#endif

}  // namespace warpbell
