// Reductions (OpenSHMEM 1.5, 9.9.9): dest[i] = source[i] of all members, combined, on every member.
//
// `dest` and `source` are symmetric: the same array, or without overlap. Types: integers of 1 to 8 bytes, float, double, and any
// type of such a size with the operators (a GPU's half and bfloat16). The operations and, or and xor take integers. Values are
// combined in the order of the members, so that every PE gets the same bits.
//
// Before: this PE's source is written, by any thread of the scope. The other members need no preparation: their arrays are not
// touched before their PEs have called. On return: this PE's `dest` is complete, no thread reads its source any more, and both may
// be used again.
//
// A message that fits the scratch is sent to all members, and each combines it (small.cuh). A larger one is cut into as many parts
// as there are members. Between two synchronisations each member reads its part of every source and writes the result to every
// dest. So a link carries no more than necessary, in both directions. Blocks that share a large reduction pass their part of the
// elements, in a channel each.
//
// Over a network a large message goes in pieces. Each PE reads the other members' parts of a piece into the scratch and combines
// them. The result goes from this PE's dest to all others. The code for the network moves bytes, and is called; only combining
// depends on the type.
#pragma once

#include <warpbell/shmem/reduction.cuh>
#include <warpbell/shmem/small.cuh>

namespace warpbell {

namespace detail {
// Loads that a thread has in flight: words in a row of one member, and members.
constexpr uint32_t reduce_words = WB_GPU ? 2 : 1;
constexpr uint32_t reduce_members = WB_GPU ? 4 : 1;
}  // namespace detail

template <class Self> template <class S, class Op, class To, class From>
WB_FN outcome team_calls<Self>::reduce(S s, Op op, To to, From from, size_t n, uint32_t channel) const {
  using T = stdlib::remove_const_t<element_t<From>>;
  T* dest = to;
  const T* source = from;
  const size_t bytes = n * sizeof(T);
  if (!begins(s, WB_CALL_REDUCE, dest, bytes, channel) || !begins(s, WB_CALL_REDUCE, source, bytes, channel)) {
    return outcome{status_word(WB_BAD_ARGUMENT)};
  }
  if (n == 0) return outcome{};
  if (team().size == 1) {
    s.sync();
    for (size_t i = s.rank(); dest != source && i < n; i += s.count()) dest[i] = source[i];
    s.sync();
    return outcome{};
  }
  if (fits_scratch(bytes)) return reduce_small(s, op, dest, source, n, channel);
  return all_by_stores() ? reduce_large(s, op, dest, source, n, channel) : reduce_by_network(s, op, dest, source, n, channel);
}

template <class Self> template <class S, class Op, class T>
WB_FN outcome team_calls<Self>::reduce_small(S s, Op op, T* dest, const T* source, size_t n, uint32_t channel) const {
  constexpr wb_shmem_call call = WB_CALL_REDUCE;
  constexpr uint32_t group = detail::lines_at_once;
  constexpr size_t in_line = line::data_bytes / sizeof(T);
  const uint32_t size = team().size, me = team().pe;
  const size_t lines = line::count<T>(n);
  wb_team_rounds* mine = rounds(channel);
  const uint64_t turn = order::load<order::relaxed>(&mine->small) + 1;
  const uint32_t mark = detail::scratch_mark(turn);
  if ((turn & (detail::scratch_wrap - 1)) == 0) {
    if (outcome o = clear_scratch(s, call, channel); !o) return o;
  }
  s.sync();
  // Store to all others. Over a network, store to this PE's own place, which no member reads, for requests to take the lines from
  // there. The requests have taken them when all members have replied, long before the turn after the next overwrites them.
  const bool here = !all_by_stores();
  line::words* to = scratch(channel, turn, me);
  for (size_t l = s.rank(); l < lines; l += s.count()) {
    const line::words out = line::make(line::gather(source, l * in_line, n), mark);
    for (uint32_t k = here ? 0 : 1; k < (here ? 1 : size); ++k) order::store<order::relaxed, order::world>(at(to, after(k)) + l, out);
  }
  uint32_t ended = WB_DONE;
  if (here) {
    ended = in_network<&network_team::distribute>(over_network(), team(), s.number, address(to), lines * sizeof(line::words), channel);
  }
  const size_t pitch = team().scratch_bytes / sizeof(line::words);
  for (size_t l = s.rank(); l < lines && ended == WB_DONE; l += s.count()) {
    const uint64_t own = line::gather(source, l * in_line, n);
    const line::words* from = scratch(channel, turn, 0) + l;
    uint64_t sum = 0;
    for (uint32_t first = 0; first < size && ended == WB_DONE; first += group) {
      line::words got[group];
      deadline p(world().control());
      for (;;) {
        uint32_t absent = size;
#pragma unroll
        for (uint32_t g = 0; g < group; ++g) {
          const uint32_t m = first + g;
          got[g] = m < size && m != me ? order::load<order::relaxed, order::world>(from + m * pitch) : line::make(own, mark);
        }
#pragma unroll
        for (uint32_t g = 0; g < group; ++g) {
          if (!line::is_of(got[g], mark)) absent = first + g;
        }
        if (absent == size) break;
        if (wait_status v = p.expired(); v != wait_status::go_on) {
          ended = world().fail(call, status_word(v), source, n * sizeof(T), world_pe(absent), channel).word;
          break;
        }
      }
#pragma unroll
      for (uint32_t g = 0; g < group; ++g) {
        const uint64_t value = line::data(got[g]);
        if (first + g < size) sum = first + g == 0 ? value : reduction::combine<T>(op, sum, value);
      }
    }
    if (ended == WB_DONE) line::scatter(dest, l * in_line, n, sum);
  }
  if (s.rank() == 0) order::store<order::relaxed>(&mine->small, turn);
  return together(s, ended);
}

template <class Self> template <class S, class Op, class T>
WB_FN outcome team_calls<Self>::reduce_large(S s, Op op, T* dest, const T* source, size_t n, uint32_t channel) const {
  using wide = order::detail::pair;
  using narrow = typename order::detail::word<sizeof(T)>::type;
  constexpr size_t in_wide = sizeof(wide) / sizeof(T);
  const uint64_t size = team().size, me = team().pe;
  // Parts that are moved in wide words, and parts moved in elements: before the wide words, and after them or instead of them.
  const uint64_t to = address(dest);
  const bool agree = ((to ^ address(source)) & (sizeof(wide) - 1)) == 0;
  const size_t short_of = (sizeof(wide) - (to & (sizeof(wide) - 1))) % sizeof(wide) / sizeof(T);
  const size_t head = !agree ? 0 : short_of < n ? short_of : n;
  const size_t words = agree ? (n - head) / in_wide : 0, body = head + words * in_wide;
  outcome arrived{};
  // One copy of the code for both synchronisations, and one for both pieces.
#pragma unroll 1
  for (uint32_t times = 0; times < 2 && arrived; ++times) {
    arrived = barrier_wait_now(s, WB_CALL_REDUCE, channel);
    if (times == 1 || !arrived) break;
    reduce_words<wide>(s, op, dest + head, source + head, words * me / size, words * (me + 1) / size);
#pragma unroll 1
    for (uint32_t piece = 0; piece < 2; ++piece) {
      const size_t begin = piece == 0 ? 0 : body, all = piece == 0 ? head : n - body;
      reduce_words<narrow>(s, op, dest + begin, source + begin, all * me / size, all * (me + 1) / size);
    }
  }
  return arrived;
}

// Combines words `first` to `last` of all sources, and stores them to all dests. The threads of the scope share them.
template <class Self> template <class Word, class S, class Op, class T>
WB_FN void team_calls<Self>::reduce_words(S s, Op op, T* dest, const T* source, size_t first, size_t last) const {
  constexpr uint32_t row = detail::reduce_words, group = detail::reduce_members;
  const uint32_t size = team().size;
  const uint64_t apart = world().raw().stride * team().stride;  // bytes from one member's heap to the next
  const uint64_t from = address(at(source, 0)), to = address(at(dest, 0));
  const size_t step = s.count();
  for (size_t i = first + s.rank(); i < last; i += row * step) {
    Word sum[row] = {};
    for (uint32_t m = 0; m < size; m += group) {
      Word got[group][row] = {};
#pragma unroll
      for (uint32_t g = 0; g < group; ++g) {
#pragma unroll
        for (uint32_t r = 0; r < row; ++r) {
          if (m + g < size && i + r * step < last) {
            got[g][r] = order::load<order::relaxed, order::world>(reinterpret_cast<const Word*>(from + (m + g) * apart) + i + r * step);
          }
        }
      }
#pragma unroll
      for (uint32_t g = 0; g < group; ++g) {
        if (m + g >= size) break;
#pragma unroll
        for (uint32_t r = 0; r < row; ++r) {
          sum[r] = m + g == 0 ? got[g][r] : reduction::combine<T>(op, sum[r], got[g][r]);
        }
      }
    }
    // Each member begins with the one after it, so that not all of them write to the same one.
    for (uint32_t k = 1; k <= size; ++k) {
      const uint32_t m = k < size ? after(k) : team().pe;
#pragma unroll
      for (uint32_t r = 0; r < row; ++r) {
        if (i + r * step < last) order::store<order::relaxed, order::world>(reinterpret_cast<Word*>(to + m * apart) + i + r * step, sum[r]);
      }
    }
  }
}

// --- over a network ----------------------------------------------------------------------------------------------------

// The user's bytes are in the scratch meanwhile, which small messages must not take for their lines. So the scratch is cleared
// before the second synchronisation, after which the next messages may arrive.
template <class Self> template <class S, class Op, class T>
WB_FN outcome team_calls<Self>::reduce_by_network(S s, Op op, T* dest, const T* source, size_t n, uint32_t channel) const {
  using word = typename order::detail::word<sizeof(T)>::type;
  const uint32_t size = team().size, me = team().pe;
  const size_t first = n * me / size, last = n * (me + uint64_t{1}) / size;
  // Both buffers of the channel, partitioned differently.
  const uint64_t room = address(scratch(channel, 0, 0));
  const size_t slot = size_t{2} * team().scratch_bytes, most = slot / sizeof(T);
  uint32_t ended = in_network<&network_team::barrier_by_network>(over_network(), team(), s.number, WB_CALL_REDUCE, channel);
#pragma unroll 1
  for (size_t begin = first; begin < last && ended == WB_DONE; begin += most) {
    const size_t count = last - begin < most ? last - begin : most;
    const uint64_t from = address(source + begin), to = address(dest + begin);
    ended = in_network<&network_team::collect>(over_network(), team(), s.number, from, count * sizeof(T), channel);
    if (ended != WB_DONE) break;
    for (size_t i = s.rank(); i < count; i += s.count()) {
      word sum{};
#pragma unroll 1
      for (uint32_t m = 0; m < size; ++m) {
        const word value = order::load<order::relaxed, order::world>(reinterpret_cast<const word*>(m == me ? from : room + m * slot) + i);
        sum = m == 0 ? value : reduction::combine<T>(op, sum, value);
      }
      order::store<order::relaxed, order::world>(reinterpret_cast<word*>(to) + i, sum);
    }
    ended = in_network<&network_team::distribute>(over_network(), team(), s.number, to, count * sizeof(T), channel);
  }
  if (ended == WB_DONE) ended = in_network<&network_team::leave>(over_network(), team(), s.number, channel);
  return outcome{ended};
}

// Gets all other members' parts of a piece into their places in the scratch.
WB_FN_COLD uint32_t network_team::collect(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, uint64_t source,
                                          uint64_t bytes, uint32_t channel) {
  const network_team t(world, team);
  const scope::numbered s{scope};
  const uint64_t room = address(t.scratch(channel, 0, 0)), slot = uint64_t{2} * team.scratch_bytes;
  uint32_t ended = WB_DONE;
  for (uint32_t k = 1; k < team.size; ++k) {
    const uint32_t m = t.after(k), pe = t.world_pe(m);
    const uint64_t to = room + m * slot;
    if (t.world().is_near(pe)) {
      const uint64_t there = address(t.at(reinterpret_cast<const uint8_t*>(source), m));
      transfer::odd<transfer::get_words>(to, there, bytes, s.rank(), s.count());
    } else if (k % s.count() == s.rank()) {
      const uint32_t word = network::get(world.net(), WB_CALL_REDUCE, to, source, bytes, pe, channel, 0, 1, false);
      if (word != WB_DONE) ended = word;
    }
  }
  s.sync();
  if (uint32_t word = t.finish(s, WB_CALL_REDUCE, channel); word != WB_DONE) ended = word;
  return together(s, ended).word;
}

// Puts this PE's part of the heap to all other members. For the adapter threads share the members, and for stores the bytes.
WB_FN_COLD uint32_t network_team::distribute(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, uint64_t from,
                                             uint64_t bytes, uint32_t channel) {
  const network_team t(world, team);
  const scope::numbered s{scope};
  uint32_t ended = WB_DONE;
  s.sync();
  for (uint32_t k = 1; k < team.size; ++k) {
    const uint32_t m = t.after(k), pe = t.world_pe(m);
    if (t.world().is_near(pe)) {
      copy(s, address(t.at(reinterpret_cast<uint8_t*>(from), m)), from, bytes);
    } else if (k % s.count() == s.rank()) {
      const uint32_t word = network::put(world.net(), WB_CALL_REDUCE, from, from, bytes, pe, channel, 0, 1, false);
      if (word != WB_DONE) ended = word;
    }
  }
  return together(s, ended).word;
}

// Ends the reduction: the scratch is empty, and the results have arrived, before any member goes on.
WB_FN_COLD uint32_t network_team::leave(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, uint32_t channel) {
  const network_team t(world, team);
  const scope::numbered s{scope};
  line::words* all = t.scratch(channel, 0, 0);
  const size_t lines = size_t{2} * team.size * (team.scratch_bytes / sizeof(line::words));
  for (size_t i = s.rank(); i < lines; i += s.count()) order::store<order::relaxed, order::world>(all + i, line::words{0, 0});
  const uint32_t ended = t.finish(s, WB_CALL_REDUCE, channel);
  const outcome arrived = t.barrier_wait(s, WB_CALL_REDUCE, channel);
  return together(s, arrived ? ended : arrived.word).word;
}

}  // namespace warpbell
