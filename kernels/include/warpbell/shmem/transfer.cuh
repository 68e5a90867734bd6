// Copies between this PE's memory and a heap that loads and stores reach: any length, any alignment.
//
// The access is as wide as the two ends allow: ends that agree modulo 16 move in 16-byte words after a head of bytes, ends
// that agree modulo 8, 4 or 2 in words of that size. Several loads of a thread are in flight before the first store.
#pragma once

#include <warpbell/order.cuh>
#include <warpbell/shmem/scope.cuh>

namespace warpbell {
namespace transfer {

constexpr uint32_t in_flight = WB_GPU ? 4 : 1;

// Which end is the remote one.
struct put_words {
  template <class T> static WB_FN T load(const T* p) { return *p; }
  template <class T> static WB_FN void store(T* p, const T& v) { order::store_remote(p, v); }
};
struct get_words {
  template <class T> static WB_FN T load(const T* p) { return order::load_remote(p); }
  template <class T> static WB_FN void store(T* p, const T& v) { *p = v; }
};

template <class How, class Word, class Scope> WB_FN void words(uint64_t to, uint64_t from, size_t n) {
  Word* d = reinterpret_cast<Word*>(to);
  const Word* s = reinterpret_cast<const Word*>(from);
  const size_t step = Scope::count();
  size_t i = Scope::rank();
  for (; i + (in_flight - 1) * step < n; i += in_flight * step) {
    Word w[in_flight];
#pragma unroll
    for (uint32_t k = 0; k < in_flight; ++k) w[k] = How::load(s + i + k * step);
#pragma unroll
    for (uint32_t k = 0; k < in_flight; ++k) How::store(d + i + k * step, w[k]);
  }
  for (; i < n; i += step) How::store(d + i, How::load(s + i));
}

template <class How, class Word, class Scope> WB_FN void aligned(uint64_t to, uint64_t from, size_t bytes) {
  constexpr size_t unit = sizeof(Word);
  const size_t short_of = (unit - (to & (unit - 1))) & (unit - 1), head = short_of < bytes ? short_of : bytes;
  const size_t n = (bytes - head) / unit, body = head + n * unit;
  words<How, uint8_t, Scope>(to, from, head);
  words<How, Word, Scope>(to + head, from + head, n);
  words<How, uint8_t, Scope>(to + body, from + body, bytes - body);
}

// Moves `bytes`; all threads of the scope share them. Ends without a sync.
template <class How, class Scope> WB_FN void move(Scope, uint64_t to, uint64_t from, size_t bytes) {
  const uint64_t apart = to ^ from;
  if ((apart & 15) == 0) {
    aligned<How, order::detail::pair, Scope>(to, from, bytes);
  } else if ((apart & 7) == 0) {
    aligned<How, uint64_t, Scope>(to, from, bytes);
  } else if ((apart & 3) == 0) {
    aligned<How, uint32_t, Scope>(to, from, bytes);
  } else if ((apart & 1) == 0) {
    aligned<How, uint16_t, Scope>(to, from, bytes);
  } else {
    words<How, uint8_t, Scope>(to, from, bytes);
  }
}

}  // namespace transfer
}  // namespace warpbell
