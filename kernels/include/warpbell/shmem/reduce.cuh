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
// that a link carries what it must, and no more, in both directions. Over a network they do so in pieces: what members have of a
// piece is read into the scratch, and the result goes from this PE's dest to everybody else's. Blocks that share a large one pass their part of the elements,
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
  if (fits_scratch(bytes)) return reduce_small<S, Op>(dest, source, n, channel);
  return all_by_stores() ? reduce_large<S, Op>(dest, source, n, channel) : reduce_far<S, Op>(dest, source, n, channel);
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
    if (all_by_stores()) {
      for (uint32_t k = 1; k < size; ++k) order::store_remote(at(to, after(k)) + l, out);
      continue;
    }
    order::store_remote(to + l, out);
    for (uint32_t k = 1; k < size; ++k) {
      if (by_stores(after(k))) order::store_remote(at(to, after(k)) + l, out);
    }
  }
  uint32_t ended = WB_DONE;
  if (!all_by_stores()) {
    // This PE's own place in its scratch, which nobody reads, has all lines now: a request takes them to each of the others. They
    // have been taken when everybody has answered, long before the turn after the next writes them again.
    S::sync();
    for (uint32_t k = 1 + S::rank(); k < size; k += S::count()) {
      const uint32_t m = after(k);
      if (by_stores(m)) continue;
      const uint32_t word = out_of_line(&network::put)(world().net(), call, address(to), address(to), lines * sizeof(line::words),
                                                       world_pe(m), channel, 0, 1, false);
      if (word != WB_DONE) ended = word;
    }
  }
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
  // What is moved in wide words, and in elements: before them, and after them or in their place.
  const uint64_t to = address(dest);
  const bool agree = ((to ^ address(source)) & (sizeof(wide) - 1)) == 0;
  const size_t short_of = (sizeof(wide) - (to & (sizeof(wide) - 1))) % sizeof(wide) / sizeof(T);
  const size_t head = !agree ? 0 : short_of < n ? short_of : n;
  const size_t words = agree ? (n - head) / in_wide : 0, body = head + words * in_wide;
  outcome met{};
  // One copy of the code for both synchronisations, and one for both pieces.
#pragma unroll 1
  for (uint32_t times = 0; times < 2 && met; ++times) {
    met = meet<S>(WB_CALL_REDUCE, channel);
    if (times == 1 || !met) break;
    reduce_words<S, Op, T, wide>(dest + head, source + head, words * me / size, words * (me + 1) / size);
#pragma unroll 1
    for (uint32_t piece = 0; piece < 2; ++piece) {
      const size_t begin = piece == 0 ? 0 : body, all = piece == 0 ? head : n - body;
      reduce_words<S, Op, T, narrow>(dest + begin, source + begin, all * me / size, all * (me + 1) / size);
    }
  }
  return met;
}

// The same where not all members are within reach of stores. Bytes of the user lie in the scratch meanwhile, which small messages
// must not take for theirs: it is cleared before the second synchronisation, after which the next ones may come.
template <class Self>
template <class S, class Op, class T>
WB_FN_COLD outcome team_calls<Self>::reduce_far(T* dest, const T* source, size_t n, uint32_t channel) const {
  constexpr wb_shmem_call call = WB_CALL_REDUCE;
  using word_t = typename order::detail::word<sizeof(T)>::type;
  const uint64_t size = team().size, me = team().pe;
  const size_t first = n * me / size, last = n * (me + 1) / size;
  // Both buffers of the channel, shared out anew.
  const uint64_t room = address(scratch(channel, 0, 0));
  const size_t slot = size_t{2} * team().scratch_bytes, most = slot / sizeof(T);
  uint32_t ended = WB_DONE;
  outcome met{};
#pragma unroll 1
  for (uint32_t times = 0; times < 2 && met; ++times) {
    met = meet<S>(call, channel);
    if (times == 1 || !met) break;
#pragma unroll 1
    for (size_t begin = first; begin < last; begin += most) {
      const size_t count = last - begin < most ? last - begin : most;
      for (uint32_t k = 1; k < size; ++k) {
        const uint32_t m = after(k);
        const uint64_t to = room + m * slot, from = address(source + begin);
        if (by_stores(m)) {
          transfer::move<transfer::get_words>(S{}, to, address(at(source + begin, m)), count * sizeof(T));
        } else if (k % S::count() == S::rank()) {
          const uint32_t word = out_of_line(&network::get)(world().net(), call, to, from, count * sizeof(T), world_pe(m), channel, 0, 1, false);
          if (word != WB_DONE) ended = word;
        }
      }
      S::sync();
      if (uint32_t word = finish<S>(call, channel); word != WB_DONE) ended = word;
      if (outcome o = together<S>(ended); !o) return o;
      for (size_t i = S::rank(); i < count; i += S::count()) {
        word_t sum{};
        for (uint32_t m = 0; m < size; ++m) {
          const uint64_t from = m == me ? address(source + begin) : room + m * slot;
          const word_t value = order::load_remote(reinterpret_cast<const word_t*>(from) + i);
          sum = m == 0 ? value : reduction::combine<Op, T>(sum, value);
        }
        order::store_remote(reinterpret_cast<word_t*>(dest + begin) + i, sum);
      }
      S::sync();
      for (uint32_t k = 1; k < size; ++k) {
        const uint32_t m = after(k);
        const uint64_t there = address(dest + begin);
        if (by_stores(m)) {
          send(S{}, call, there, there, count * sizeof(T), m, channel);
        } else if (k % S::count() == S::rank()) {
          const uint32_t word = send(by_thread, call, there, there, count * sizeof(T), m, channel);
          if (word != WB_DONE) ended = word;
        }
      }
    }
    order::detail::pair* all = scratch(channel, 0, 0);
    const size_t lines = size * slot / sizeof(*all);
    S::sync();
    for (size_t i = S::rank(); i < lines; i += S::count()) order::store_remote(all + i, order::detail::pair{0, 0});
    // The results are there before any member, which may hear of it from another, goes on.
    if (uint32_t word = finish<S>(call, channel); word != WB_DONE) ended = word;
  }
  return together<S>(met ? ended : met.word);
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
    // Each begins with the member after it, so that not all of them write to the same one.
    for (uint32_t k = 1; k <= size; ++k) {
      const uint32_t m = k < size ? after(k) : team().pe;
#pragma unroll
      for (uint32_t r = 0; r < row; ++r) {
        if (i + r * step < last) order::store_remote(reinterpret_cast<Word*>(to + m * apart) + i + r * step, sum[r]);
      }
    }
  }
}

}  // namespace warpbell
