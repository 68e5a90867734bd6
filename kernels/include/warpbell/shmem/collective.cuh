// Broadcast, fcollect (also known as all-gather) and alltoall (OpenSHMEM 1.5, 9.9.5 to 9.9.8).
//
// `dest` is symmetric, `source` any memory of this PE. `n` counts elements of 1, 2, 4 or 8 bytes; with 0 a call does nothing.
//
//   broadcast  dest[i] = source[i] of `root`, on every member, `root` among them           dest: n, source: n (on `root`)
//   fcollect   dest[m * n + i] = source[i] of member m                                     dest: size * n, source: n
//   alltoall   dest[m * n + i] = source[me * n + i] of member m                            dest: size * n, source: size * n
//
// Before: `dest` is ready on every member, that is, no thread there still reads or writes it (a sync ensures that). The source is
// written, by any thread of the scope. The two do not overlap; but a broadcast may have one array for both, and the source of an
// fcollect may be its own place in dest. On return: this PE's `dest` is complete and its source may be used again. The other
// members have called fcollect or alltoall, but may not have returned. After a broadcast `root` knows nothing of the others.
//
// Large messages are puts to each member and then one signal to each, a counter per sender in each channel. Small fcollects and
// alltoalls go through the scratch (small.cuh). In a world with a network only those of one line do. A request for the data and a
// request for the signal cost no more than two lines.
#pragma once

#include <warpbell/peer_copy.cuh>
#include <warpbell/shmem/small.cuh>

namespace warpbell {

template <class Self> template <class S, class To, class From>
WB_FN outcome team_calls<Self>::broadcast(S s, To to, From from, size_t n, uint32_t root, uint32_t channel) const {
  using T = stdlib::remove_const_t<element_t<From>>;
  T* dest = to;
  const T* source = from;
  const size_t bytes = n * sizeof(T);
  if (!begins(s, WB_CALL_BROADCAST, dest, bytes, channel, root)) return outcome{status_word(WB_BAD_ARGUMENT)};
  if (n == 0) return outcome{};
  if (all_by_stores()) return broadcast_now(s, address(dest), address(source), bytes, root, channel);
  return outcome{
      in_network<&network_team::broadcast_bytes>(over_network(), team(), s.number, address(dest), address(source), bytes, root, channel)};
}

template <class Self> template <class S>
WB_FN outcome team_calls<Self>::broadcast_now(S s, uint64_t dest, uint64_t source, size_t bytes, uint32_t root, uint32_t channel) const {
  constexpr wb_shmem_call call = WB_CALL_BROADCAST;
  const uint32_t size = team().size, me = team().pe;
  wb_team_rounds* mine = rounds(channel);
  uint64_t* word = team().signals + uint64_t{channel} * size + root;
  const uint64_t turn = order::load<order::relaxed>(&mine->data) + 1;
  s.sync();
  uint32_t ended = WB_DONE;
  if (me == root) {
    for (uint32_t k = 1; k < size; ++k) {
      if (uint32_t word = send(s, call, dest, source, bytes, after(k), channel); word != WB_DONE) ended = word;
    }
    if (dest != source) copy(s, dest, source, bytes);
    s.sync();
    if (1 + s.rank() < size) {
      order::fence<order::release, order::system>();
      for (uint32_t k = 1 + s.rank(); k < size && ended == WB_DONE; k += s.count()) ended = tell(call, word, turn, after(k), channel);
    }
    if (uint32_t left = finish(s, call, channel); left != WB_DONE) ended = left;
  } else if (s.rank() == 0) {
    ended = await(call, word, turn, root, channel);
    order::fence<order::acquire, order::system>();
  }
  if (s.rank() == 0) order::store<order::relaxed>(&mine->data, turn);
  return together(s, ended);
}

WB_FN_COLD uint32_t network_team::broadcast_bytes(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, uint64_t dest,
                                                  uint64_t source, uint64_t bytes, uint32_t root, uint32_t channel) {
  return network_team(world, team).broadcast_now(scope::numbered{scope}, dest, source, bytes, root, channel).word;
}

template <class Self> template <class S, class To, class From>
WB_FN outcome team_calls<Self>::fcollect(S s, To dest, From source, size_t n, uint32_t channel) const {
  return exchange(s, WB_CALL_FCOLLECT, dest, n, source, 0, n, channel);
}

template <class Self> template <class S, class To, class From>
WB_FN outcome team_calls<Self>::alltoall(S s, To dest, From source, size_t n, uint32_t channel) const {
  return exchange(s, WB_CALL_ALLTOALL, dest, n, source, n, n, channel);
}

// Common part of both: dest[m * dest_pitch + i] = source[me * source_pitch + i] of member m. Blocks that share a large exchange
// pass the pitches of the whole and their part of the elements, in a channel each.
template <class Self> template <class S, class To, class From>
WB_FN outcome team_calls<Self>::exchange(S s, wb_shmem_call call, To to, size_t dest_pitch, From from, size_t source_pitch, size_t n,
                                         uint32_t channel) const {
  using T = stdlib::remove_const_t<element_t<From>>;
  T* dest = to;
  const T* source = from;
  const size_t bytes = n * sizeof(T);
  const size_t reach = n == 0 ? 0 : ((team().size - 1) * dest_pitch + n) * sizeof(T);
  if (!begins(s, call, dest, reach, channel)) return outcome{status_word(WB_BAD_ARGUMENT)};
  if (n == 0) return outcome{};
  if (all_by_stores()) return exchange_now(s, call, dest, dest_pitch, source, source_pitch, n, channel);
  return outcome{in_network<&network_team::exchange_bytes>(over_network(), team(), s.number, call, address(dest), dest_pitch * sizeof(T),
                                                           address(source), source_pitch * sizeof(T), bytes, channel)};
}

template <class Self> template <class S, class T>
WB_FN outcome team_calls<Self>::exchange_now(S s, wb_shmem_call call, T* dest, size_t dest_pitch, const T* source, size_t source_pitch,
                                             size_t n, uint32_t channel) const {
  const uint32_t size = team().size, me = team().pe;
  const size_t bytes = n * sizeof(T);
  if (size > 1 && (Self::has_network ? bytes <= line::data_bytes : fits_scratch(bytes))) {
    return exchange_small(s, call, dest, dest_pitch, source, source_pitch, n, channel);
  }
  wb_team_rounds* mine = rounds(channel);
  uint64_t* words = team().signals + uint64_t{channel} * size;
  const uint64_t turn = order::load<order::relaxed>(&mine->data) + 1;
  s.sync();
  // Each member begins with the one after it, so that not all of them put to the same one.
  uint32_t ended = WB_DONE;
  for (uint32_t k = 0; k < size; ++k) {
    const uint32_t member = k == 0 ? me : after(k);
    T* d = dest + me * dest_pitch;
    const T* f = source + member * source_pitch;
    if (member == me && d == f) continue;
    if (uint32_t word = send(s, call, address(d), address(f), bytes, member, channel); word != WB_DONE) ended = word;
  }
  s.sync();
  if (1 + s.rank() < size) {
    order::fence<order::release, order::system>();
    for (uint32_t k = 1 + s.rank(); k < size && ended == WB_DONE; k += s.count()) {
      ended = tell(call, words + me, turn, after(k), channel);
    }
    for (uint32_t k = 1 + s.rank(); k < size && ended == WB_DONE; k += s.count()) {
      ended = await(call, words + before(k), turn, before(k), channel);
    }
    order::fence<order::acquire, order::system>();
  }
  if (uint32_t left = finish(s, call, channel); left != WB_DONE) ended = left;
  if (s.rank() == 0) order::store<order::relaxed>(&mine->data, turn);
  return together(s, ended);
}

WB_FN_COLD uint32_t network_team::exchange_bytes(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, wb_shmem_call call,
                                                 uint64_t dest, uint64_t dest_pitch, uint64_t source, uint64_t source_pitch, uint64_t bytes,
                                                 uint32_t channel) {
  return network_team(world, team)
      .exchange_now(scope::numbered{scope}, call, reinterpret_cast<uint8_t*>(dest), dest_pitch, reinterpret_cast<const uint8_t*>(source),
                    source_pitch, bytes, channel)
      .word;
}

}  // namespace warpbell
