// Reductions (OpenSHMEM 1.5, 9.11.8): dest[i] = source[i] of all members, combined, on every member.
//
// `dest` and `source` are symmetric; the same array, or without overlap. Integers of 1 to 8 bytes, float, double, and any type of
// such a size with the operators (a GPU's half and bfloat16); and, or, xor take integers. Values are combined in the order of the
// members, so that every PE gets the same bits.
//
// Before: this PE's source is written, by whichever thread of the scope. Nothing need be known of the others' arrays: they are not
// touched before their PEs have called. On return: this PE's `dest` is complete, nobody reads its source any more, and both may be
// used again.
//
// A message that fits the scratch is sent to everybody, and combined by each (small.cuh). A larger one is cut into as many parts
// as there are members: between two synchronisations each reads its part of every source and writes the result to every dest, so
// that a link carries what it must, and no more, in both directions. Blocks that share a large one pass their part of the elements,
// in a channel each.
#pragma once

#include <warpbell/shmem/reduction.cuh>
#include <warpbell/shmem/small.cuh>

namespace warpbell {

namespace detail {
// Loads that a thread has in flight: words in a row of one member, and members.
constexpr uint32_t reduce_words = WB_GPU ? 2 : 1;
constexpr uint32_t reduce_members = WB_GPU ? 4 : 1;
}  // namespace detail

template <class Self>
template <class S, class Op, class To, class From>
WB_FN outcome team_calls<Self>::reduce(S, Op, To to, From from, size_t n, uint32_t channel) const {
  using T = std::remove_const_t<element_t<From>>;
  T* dest = to;
  const T* source = from;
  const size_t bytes = n * sizeof(T);
  if (!begins<S>(WB_CALL_REDUCE, dest, bytes, channel) || !begins<S>(WB_CALL_REDUCE, source, bytes, channel)) {
    return outcome{status_word(WB_BAD_ARGUMENT)};
  }
  if (n == 0) return outcome{};
  if (team().size == 1) {
    S::sync();
    for (size_t i = S::rank(); dest != source && i < n; i += S::count()) dest[i] = source[i];
    S::sync();
    return outcome{};
  }
  return fits_scratch(bytes) ? reduce_small<S, Op>(dest, source, n, channel) : reduce_large<S, Op>(dest, source, n, channel);
}

template <class Self>
template <class S, class Op, class T>
WB_FN outcome team_calls<Self>::reduce_small(T* dest, const T* source, size_t n, uint32_t channel) const {
  constexpr wb_shmem_call call = WB_CALL_REDUCE;
  constexpr uint32_t group = detail::lines_at_once;
  constexpr size_t in_line = line::data_bytes / sizeof(T);
  const uint32_t size = team().size, me = team().pe;
  const size_t lines = line::count<T>(n);
  wb_team_rounds* mine = rounds(channel);
  const uint64_t turn = order::load_relaxed(&mine->small) + 1;
  const uint32_t mark = detail::scratch_mark(turn);
  if ((turn & (detail::scratch_wrap - 1)) == 0) {
    if (outcome o = clear_scratch<S>(call, channel); !o) return o;
  }
  S::sync();
  line::words* to = scratch(channel, turn, me);
  for (size_t l = S::rank(); l < lines; l += S::count()) {
    const line::words out = line::make(line::gather(source, l * in_line, n), mark);
    for (uint32_t k = 1; k < size; ++k) order::store_remote(at(to, after(k)) + l, out);
  }
  uint32_t ended = WB_DONE;
  const size_t pitch = team().scratch_bytes / sizeof(line::words);
  for (size_t l = S::rank(); l < lines && ended == WB_DONE; l += S::count()) {
    const uint64_t own = line::gather(source, l * in_line, n);
    const line::words* from = scratch(channel, turn, 0) + l;
    uint64_t sum = 0;
    for (uint32_t first = 0; first < size && ended == WB_DONE; first += group) {
      line::words got[group];
      patience p(world().control());
      for (;;) {
        uint32_t absent = size;
#pragma unroll
        for (uint32_t g = 0; g < group; ++g) {
          const uint32_t m = first + g;
          got[g] = m < size && m != me ? order::load_remote(from + m * pitch) : line::make(own, mark);
        }
#pragma unroll
        for (uint32_t g = 0; g < group; ++g) {
          if (!line::is_of(got[g], mark)) absent = first + g;
        }
        if (absent == size) break;
        if (verdict v = p.spent(); v != verdict::go_on) {
          ended = world().fail(call, status_word(v), source, n * sizeof(T), world_pe(absent), channel).word;
          break;
        }
      }
#pragma unroll
      for (uint32_t g = 0; g < group; ++g) {
        const uint64_t value = line::data(got[g]);
        if (first + g < size) sum = first + g == 0 ? value : reduction::combine<Op, T>(sum, value);
      }
    }
    if (ended == WB_DONE) line::scatter(dest, l * in_line, n, sum);
  }
  if (S::rank() == 0) order::store_relaxed(&mine->small, turn);
  return together<S>(ended);
}

template <class Self>
template <class S, class Op, class T>
WB_FN outcome team_calls<Self>::reduce_large(T* dest, const T* source, size_t n, uint32_t channel) const {
  using wide = order::detail::pair;
  using narrow = typename order::detail::word<sizeof(T)>::type;
  constexpr size_t in_wide = sizeof(wide) / sizeof(T);
  const uint64_t size = team().size, me = team().pe;
  if (outcome o = meet<S>(WB_CALL_REDUCE, channel); !o) return o;
  const uint64_t at = address(dest);
  if (((at ^ address(source)) & (sizeof(wide) - 1)) == 0) {
    const size_t short_of = (sizeof(wide) - (at & (sizeof(wide) - 1))) % sizeof(wide) / sizeof(T);
    const size_t head = short_of < n ? short_of : n, words = (n - head) / in_wide, body = head + words * in_wide;
    reduce_words<S, Op, T, wide>(dest + head, source + head, words * me / size, words * (me + 1) / size);
    if (me == 0) reduce_words<S, Op, T, narrow>(dest, source, 0, head);
    if (me == size - 1) reduce_words<S, Op, T, narrow>(dest + body, source + body, 0, n - body);
  } else {
    reduce_words<S, Op, T, narrow>(dest, source, n * me / size, n * (me + 1) / size);
  }
  return meet<S>(WB_CALL_REDUCE, channel);
}

// Words `first` to `last` of all sources, combined, to all dests. The threads of the scope share them.
template <class Self>
template <class S, class Op, class T, class Word>
WB_FN void team_calls<Self>::reduce_words(T* dest, const T* source, size_t first, size_t last) const {
  constexpr uint32_t row = detail::reduce_words, group = detail::reduce_members;
  const uint32_t size = team().size;
  const int64_t apart = static_cast<int64_t>(world().raw().stride) * team().stride;  // bytes from one member's heap to the next
  const uint64_t from = address(at(source, 0)), to = address(at(dest, 0));
  const size_t step = S::count();
  for (size_t i = first + S::rank(); i < last; i += row * step) {
    Word sum[row] = {};
    for (uint32_t m = 0; m < size; m += group) {
      Word got[group][row] = {};
#pragma unroll
      for (uint32_t g = 0; g < group; ++g) {
#pragma unroll
        for (uint32_t r = 0; r < row; ++r) {
          if (m + g < size && i + r * step < last) {
            got[g][r] = order::load_remote(reinterpret_cast<const Word*>(from + (m + g) * apart) + i + r * step);
          }
        }
      }
#pragma unroll
      for (uint32_t g = 0; g < group; ++g) {
        if (m + g >= size) break;
#pragma unroll
        for (uint32_t r = 0; r < row; ++r) {
          sum[r] = m + g == 0 ? got[g][r] : reduction::combine<Op, T>(sum[r], got[g][r]);
        }
      }
    }
    for (uint32_t m = 0; m < size; ++m) {
#pragma unroll
      for (uint32_t r = 0; r < row; ++r) {
        if (i + r * step < last) order::store_remote(reinterpret_cast<Word*>(to + m * apart) + i + r * step, sum[r]);
      }
    }
  }
}

}  // namespace warpbell
