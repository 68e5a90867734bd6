// Copies between this PE's memory and a heap that loads and stores reach: any length, any alignment.
//
// The access is as wide as the two ends allow. Ends that agree modulo 16 move in 16-byte words after a head of bytes; ends that
// agree modulo 8, 4 or 2 in words of that size. Several loads of a thread are in flight before the first store.
#pragma once

#include <warpbell/call.cuh>
#include <warpbell/order.cuh>

namespace warpbell {
namespace transfer {

constexpr uint32_t in_flight = WB_GPU ? 8 : 1;     // loads of a thread in flight: enough to hide a trip over NVLink
constexpr uint32_t inline_words = WB_GPU ? 4 : 1;  // the same, for copies that are not worth a call

// Access policies, which say which end is the remote one.
struct put_words {
  // Up to this many times `inline_words` are not worth a call: the registers that a call saves wait behind the stores.
  static constexpr uint32_t inline_turns = 8;
  template <class T> static WB_FN T load(const T* p) { return *p; }
  template <class T> static WB_FN void store(T* p, const T& v) { order::store<order::relaxed, order::world>(p, v); }
};
struct get_words {
  static constexpr uint32_t inline_turns = 1;
  template <class T> static WB_FN T load(const T* p) { return order::load<order::relaxed, order::world>(p); }
  template <class T> static WB_FN void store(T* p, const T& v) { *p = v; }
};

// Moves up to `turn` words of each thread, `left` of them from here on, all loads before the first store.
template <class How, uint32_t turn, class Word> WB_FN void few(Word* d, const Word* s, ptrdiff_t left, uint32_t step) {
  Word w[turn];
#pragma unroll
  for (uint32_t k = 0; k < turn; ++k) {
    if (left > static_cast<ptrdiff_t>(k * step)) w[k] = How::load(s + k * step);
  }
#pragma unroll
  for (uint32_t k = 0; k < turn; ++k) {
    if (left > static_cast<ptrdiff_t>(k * step)) How::store(d + k * step, w[k]);
  }
}

// Functions that are called, and not inlined, take the thread's place in its scope as numbers. The compiler copies each of them for
// every kernel, so there should be few of them.

// Moves any number of words. The last turn has all its loads in flight too: over a link, one load costs as much as eight.
template <class How, class Word> WB_FN_COLD void words(uint64_t to, uint64_t from, size_t n, uint32_t rank, uint32_t step) {
  Word* d = reinterpret_cast<Word*>(to) + rank;
  const Word* s = reinterpret_cast<const Word*>(from) + rank;
  // As a signed count, so that the test for a whole turn cannot wrap.
  ptrdiff_t left = static_cast<ptrdiff_t>(n) - rank;
  for (; left > static_cast<ptrdiff_t>((in_flight - 1) * step); left -= in_flight * step) {
    Word w[in_flight];
#pragma unroll
    for (uint32_t k = 0; k < in_flight; ++k) w[k] = How::load(s + k * step);
#pragma unroll
    for (uint32_t k = 0; k < in_flight; ++k) How::store(d + k * step, w[k]);
    s += in_flight * step;
    d += in_flight * step;
  }
  few<How, in_flight>(d, s, left, step);
}

// Moves a few words, or words so small that time does not matter.
template <class How, class Word> WB_FN void one_by_one(uint64_t to, uint64_t from, size_t n, uint32_t rank, uint32_t step) {
#pragma unroll 1
  for (size_t i = rank; i < n; i += step) {
    How::store(reinterpret_cast<Word*>(to) + i, How::load(reinterpret_cast<const Word*>(from) + i));
  }
}

// Moves bytes whose ends or length are no multiples of 16: in the widest words that both ends have after a head of bytes.
template <class How> WB_FN_COLD void odd(uint64_t to, uint64_t from, size_t bytes, uint32_t rank, uint32_t step) {
  const uint32_t apart = static_cast<uint32_t>(to ^ from) & 15;
  const uint32_t unit = apart == 0 ? 16 : apart & (0u - apart);  // the lowest bit in which they differ
  const size_t short_of = (unit - (to & (unit - 1))) & (unit - 1), head = short_of < bytes ? short_of : bytes;
  const size_t n = (bytes - head) / unit, body = head + n * unit;
  one_by_one<How, uint8_t>(to, from, head, rank, step);
  switch (unit) {
    case 16: words<How, order::detail::pair>(to + head, from + head, n, rank, step); break;
    case 8: words<How, uint64_t>(to + head, from + head, n, rank, step); break;
    case 4: words<How, uint32_t>(to + head, from + head, n, rank, step); break;
    case 2: one_by_one<How, uint16_t>(to + head, from + head, n, rank, step); break;
    default: one_by_one<How, uint8_t>(to + head, from + head, n, rank, step);
  }
  one_by_one<How, uint8_t>(to + body, from + body, bytes - body, rank, step);
}

// Returns true if a copy is at most one 16-byte word for each thread of the scope. `ends` has the low bits of both ends: a caller
// in a loop knows them without computing the address in another PE's heap.
template <class Scope> WB_FN bool one_each(size_t bytes, uint64_t ends) {
  return (((ends | bytes) & 15) == 0) & (bytes <= size_t{Scope::count()} * 16);
}
template <class How, class Scope, class Word> WB_FN void one(uint64_t to, uint64_t from, size_t bytes) {
  const uint32_t i = Scope::rank();
  if (i < bytes / sizeof(Word)) {
    How::store(reinterpret_cast<Word*>(to) + i, How::load(reinterpret_cast<const Word*>(from) + i));
  }
}

// Moves `bytes`; all threads of the scope share them. Ends without a sync. Short copies, which decide the message rate, are inlined
// here. Long or unaligned ones are moved by a function of their own.
template <class How, class Scope> WB_FN void move(Scope, uint64_t to, uint64_t from, size_t bytes, uint64_t ends) {
  using word = order::detail::pair;
  const size_t threads = Scope::count();
  ends |= bytes;
  if (one_each<Scope>(bytes, ends)) {
    one<How, Scope, word>(to, from, bytes);
  } else if ((ends & 15) == 0) {
    if (bytes <= threads * sizeof(word) * inline_words * How::inline_turns) {
      const uint32_t step = Scope::count();
      word* d = reinterpret_cast<word*>(to) + Scope::rank();
      const word* s = reinterpret_cast<const word*>(from) + Scope::rank();
      ptrdiff_t left = static_cast<ptrdiff_t>(bytes / sizeof(word)) - Scope::rank();
#pragma unroll 1
      do {
        few<How, inline_words>(d, s, left, step);
        d += inline_words * step;
        s += inline_words * step;
        left -= inline_words * step;
      } while (How::inline_turns > 1 && left > 0);
    } else {
      out_of_line (&words<How, word>)(to, from, bytes / sizeof(word), Scope::rank(), Scope::count());
    }
  } else if ((ends & 7) == 0 && bytes <= threads * sizeof(uint64_t)) {
    one<How, Scope, uint64_t>(to, from, bytes);
  } else if ((ends & 3) == 0 && bytes <= threads * sizeof(uint32_t)) {
    one<How, Scope, uint32_t>(to, from, bytes);
  } else {
    out_of_line (&odd<How>)(to, from, bytes, Scope::rank(), Scope::count());
  }
}

}  // namespace transfer
}  // namespace warpbell
