// Lines: small messages without a fence, whose data carries its own turn.
//
// A line of 16 bytes holds two words of 8 bytes. Each word has 4 bytes of data and the turn that they belong to. The memory system
// never tears a word of 8 bytes. So a thread that finds the turn in both words has the line's 8 bytes of data, and needs no other
// signal that they have arrived.
#pragma once

#include <warpbell/order.cuh>

namespace warpbell {
namespace line {

using words = order::detail::pair;
constexpr uint32_t data_bytes = 8;

// Returns the line of 8 bytes of data and a turn.
WB_FN words make(uint64_t data, uint32_t turn) {
  const uint64_t mark = uint64_t{turn} << 32;
  return words{mark | (data & 0xffffffffu), mark | data >> 32};
}
// Returns true if both words are of the turn.
WB_FN bool is_of(const words& l, uint32_t turn) {
  return static_cast<uint32_t>(l.low >> 32) == turn && static_cast<uint32_t>(l.high >> 32) == turn;
}
// Returns the data of a line.
WB_FN uint64_t data(const words& l) { return (l.low & 0xffffffffu) | l.high << 32; }

// Returns up to 8 bytes of elements, from element `first` on, of an array of n.
template <class T> WB_FN uint64_t gather(const T* from, size_t first, size_t n) {
  constexpr uint32_t count = data_bytes / sizeof(T);
  if constexpr (count == 1) {
    return order::bits<uint64_t>(from[first]);
  } else {
    using part = typename order::detail::word<sizeof(T)>::type;
    uint64_t all = 0;
#pragma unroll
    for (uint32_t i = 0; i < count; ++i) {
      if (first + i < n) all |= uint64_t{order::bits<part>(from[first + i])} << (8 * sizeof(T) * i);
    }
    return all;
  }
}
// Stores the elements of `word` from element `first` on, to an array of n.
template <class T> WB_FN void scatter(T* to, size_t first, size_t n, uint64_t word) {
  constexpr uint32_t count = data_bytes / sizeof(T);
  if constexpr (count == 1) {
    to[first] = order::bits<T>(word);
  } else {
    using part = typename order::detail::word<sizeof(T)>::type;
#pragma unroll
    for (uint32_t i = 0; i < count; ++i) {
      if (first + i < n) to[first + i] = order::bits<T>(static_cast<part>(word >> (8 * sizeof(T) * i)));
    }
  }
}
// Returns the number of lines that n elements fill.
template <class T> WB_FN size_t count(size_t n) {
  constexpr size_t in_line = data_bytes / sizeof(T);
  static_assert(sizeof(T) <= data_bytes && data_bytes % sizeof(T) == 0, "elements of 1, 2, 4 or 8 bytes");
  return (n + in_line - 1) / in_line;
}

}  // namespace line
}  // namespace warpbell
