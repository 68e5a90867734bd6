// Broadcast, fcollect (also known as all-gather) and alltoall (OpenSHMEM 1.5, 9.11.5 to 9.11.7).
//
// `dest` is symmetric, `source` any memory of this PE. `n` counts elements of 1, 2, 4 or 8 bytes; with 0 a call does nothing.
//
//   broadcast  dest[i] = source[i] of `root`, on every member, `root` among them           dest: n, source: n (on `root`)
//   fcollect   dest[m * n + i] = source[i] of member m                                     dest: size * n, source: n
//   alltoall   dest[m * n + i] = source[me * n + i] of member m                            dest: size * n, source: size * n
//
// Before: `dest` is ready on every member, that is, nobody there still reads or writes it (a sync sees to that), and the source is
// written, by whichever thread of the scope. The two do not overlap; but a broadcast may have one array for both, and the source of
// an fcollect may be its own place in dest.
// On return: this PE's `dest` is complete and its source may be used again. Of other members it says that they have called it
// (fcollect, alltoall), not that they have returned; after a broadcast, `root` knows nothing of the others.
//
// Large ones are puts to each member and then one signal to each, a counter per sender in each channel. Small fcollects and
// alltoalls go through the scratch (small.cuh); in a world with a network only those of one line, as a request that takes the data to
// its place and one that tells of it cost no more than two lines.
#pragma once

#include <warpbell/shmem/small.cuh>
#include <warpbell/shmem/transfer.cuh>

namespace warpbell {

template <class Self>
template <class S, class To, class From>
WB_FN outcome team_calls<Self>::broadcast(S s, To to, From from, size_t n, uint32_t root, uint32_t channel) const {
  using T = std::remove_const_t<element_t<From>>;
  T* dest = to;
  const T* source = from;
  constexpr wb_shmem_call call = WB_CALL_BROADCAST;
  const size_t bytes = n * sizeof(T);
  if (!begins<S>(call, dest, bytes, channel, root)) return outcome{status_word(WB_BAD_ARGUMENT)};
  if (n == 0) return outcome{};
  const uint32_t size = team().size, me = team().pe;
  wb_team_rounds* mine = rounds(channel);
  uint64_t* word = reinterpret_cast<uint64_t*>(team().signals) + uint64_t{channel} * size + root;
  const uint64_t turn = order::load_relaxed(&mine->data) + 1;
  S::sync();
  uint32_t ended = WB_DONE;
  if (me == root) {
    for (uint32_t k = 1; k < size; ++k) {
      if (uint32_t word = send(s, call, address(dest), address(source), bytes, after(k), channel); word != WB_DONE) ended = word;
    }
    if (dest != source) transfer::move<transfer::put_words>(s, address(dest), address(source), bytes);
    S::sync();
    if (1 + S::rank() < size) {
      order::fence_release_sys();
      for (uint32_t k = 1 + S::rank(); k < size && ended == WB_DONE; k += S::count()) ended = tell(call, word, turn, after(k), channel);
    }
    if (uint32_t left = finish<S>(call, channel); left != WB_DONE) ended = left;
  } else if (S::rank() == 0) {
    ended = await(call, word, turn, root, channel);
    order::fence_acquire_sys();
  }
  if (S::rank() == 0) order::store_relaxed(&mine->data, turn);
  return together<S>(ended);
}

template <class Self>
template <class S, class To, class From>
WB_FN outcome team_calls<Self>::fcollect(S s, To dest, From source, size_t n, uint32_t channel) const {
  return exchange(s, WB_CALL_FCOLLECT, dest, n, source, 0, n, channel);
}

template <class Self>
template <class S, class To, class From>
WB_FN outcome team_calls<Self>::alltoall(S s, To dest, From source, size_t n, uint32_t channel) const {
  return exchange(s, WB_CALL_ALLTOALL, dest, n, source, n, n, channel);
}

// What both are: dest[m * dest_pitch + i] = source[me * source_pitch + i] of member m. Blocks that share a large one pass the
// pitches of the whole and their part of the elements, in a channel each.
template <class Self>
template <class S, class To, class From>
WB_FN outcome team_calls<Self>::exchange(S s, wb_shmem_call call, To to, size_t dest_pitch, From from, size_t source_pitch,
                                         size_t n, uint32_t channel) const {
  using T = std::remove_const_t<element_t<From>>;
  T* dest = to;
  const T* source = from;
  const uint32_t size = team().size, me = team().pe;
  const size_t bytes = n * sizeof(T);
  const size_t reach = n == 0 ? 0 : ((size - 1) * dest_pitch + n) * sizeof(T);
  if (!begins<S>(call, dest, reach, channel)) return outcome{status_word(WB_BAD_ARGUMENT)};
  if (n == 0) return outcome{};
  if (size > 1 && (all_by_stores() ? fits_scratch(bytes) : bytes <= line::data_bytes)) {
    return exchange_small<S>(call, dest, dest_pitch, source, source_pitch, n, channel);
  }
  wb_team_rounds* mine = rounds(channel);
  uint64_t* words = reinterpret_cast<uint64_t*>(team().signals) + uint64_t{channel} * size;
  const uint64_t turn = order::load_relaxed(&mine->data) + 1;
  S::sync();
  // Each begins with the member after it, so that not all of them put to the same one.
  uint32_t ended = WB_DONE;
  for (uint32_t k = 0; k < size; ++k) {
    const uint32_t member = k == 0 ? me : after(k);
    T* d = dest + me * dest_pitch;
    const T* f = source + member * source_pitch;
    if (member == me && d == f) continue;
    if (uint32_t word = send(s, call, address(d), address(f), bytes, member, channel); word != WB_DONE) ended = word;
  }
  S::sync();
  if (1 + S::rank() < size) {
    order::fence_release_sys();
    for (uint32_t k = 1 + S::rank(); k < size && ended == WB_DONE; k += S::count()) {
      ended = tell(call, words + me, turn, after(k), channel);
    }
    for (uint32_t k = 1 + S::rank(); k < size && ended == WB_DONE; k += S::count()) {
      ended = await(call, words + before(k), turn, before(k), channel);
    }
    order::fence_acquire_sys();
  }
  if (uint32_t left = finish<S>(call, channel); left != WB_DONE) ended = left;
  if (S::rank() == 0) order::store_relaxed(&mine->data, turn);
  return together<S>(ended);
}

}  // namespace warpbell
