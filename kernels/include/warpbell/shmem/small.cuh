// Small messages among the members of a team, through the team's scratch. Each member puts lines (line.cuh) into its place in the
// scratch of all others, which read them from there. No fence, no signal and no readiness is needed: one trip over the link.
//
// Two buffers for each channel, used in turn, are enough. A member writes the lines of turn t + 2 once it has the lines of turn t +
// 1 of all members. No member sends those before it is done with turn t, whose buffer they fall on. Its threads pass the sync at
// the end of a call before one of them begins the next. That requires calls in which every member hears from every member.
//
// A line has 31 bits of its turn, and one bit that an empty line does not have. When the turns wrap, remains of an old, long
// message must not be taken for a new one. So every 2^31 turns the scratch is cleared, between two synchronisations.
#pragma once

#include <warpbell/shmem/line.cuh>
#include <warpbell/shmem/team.cuh>

namespace warpbell {

namespace detail {
constexpr uint64_t scratch_wrap = uint64_t{1} << 31;
WB_FN uint32_t scratch_mark(uint64_t turn) { return static_cast<uint32_t>(turn | scratch_wrap); }
// Number of lines of different members that a thread looks at together.
constexpr uint32_t lines_at_once = 4;
}  // namespace detail

template <class Self> WB_FN order::detail::pair* team_calls<Self>::scratch(uint32_t channel, uint64_t turn, uint32_t sender) const {
  const wb_team& t = team();
  const uint64_t place = (uint64_t{channel} * 2 + (turn & 1)) * t.size + sender;
  return reinterpret_cast<line::words*>(t.scratch + place * t.scratch_bytes);
}

// Clears both buffers of a channel.
template <class Self> template <class S> WB_FN outcome team_calls<Self>::clear_scratch(S s, wb_shmem_call call, uint32_t channel) const {
  line::words* all = scratch(channel, 0, 0);
  const size_t n = size_t{2} * team().size * (team().scratch_bytes / sizeof(line::words));
  outcome arrived{};
#pragma unroll 1
  for (uint32_t times = 0; times < 2 && arrived; ++times) {
    for (size_t i = s.rank(); times == 1 && i < n; i += s.count()) order::store<order::relaxed, order::world>(all + i, line::words{0, 0});
    arrived = barrier_wait(s, call, channel);
  }
  return arrived;
}

template <class Self> template <class S, class T>
WB_FN outcome team_calls<Self>::exchange_small(S s, wb_shmem_call call, T* dest, size_t dest_pitch, const T* source, size_t source_pitch,
                                               size_t n, uint32_t channel) const {
  const uint32_t size = team().size, me = team().pe;
  const uint32_t lines = Self::has_network ? 1 : static_cast<uint32_t>(line::count<T>(n));
  constexpr size_t in_line = line::data_bytes / sizeof(T);
  wb_team_rounds* mine = rounds(channel);
  const uint64_t turn = order::load<order::relaxed>(&mine->small) + 1;
  const uint32_t mark = detail::scratch_mark(turn);
  if ((turn & (detail::scratch_wrap - 1)) == 0) {
    if (outcome o = clear_scratch(s, call, channel); !o) return o;
  }
  s.sync();
  uint32_t ended = WB_DONE;
  // Threads share the lines of all members: line l of the member k places on has the number (k - 1) * lines + l.
  const uint32_t all = (size - 1) * lines;
  for (uint32_t i = s.rank(); i < all; i += s.count()) {
    const uint32_t member = after(i / lines + 1), l = i % lines;
    line::words* to = scratch(channel, turn, me) + l;
    const line::words out = line::make(line::gather(source + member * source_pitch, l * in_line, n), mark);
    if (uint32_t word = send_line(call, to, out, member, channel); word != WB_DONE) ended = word;
  }
  const T* own = source + me * source_pitch;
  for (size_t i = s.rank(); dest + me * dest_pitch != own && i < n; i += s.count()) dest[me * dest_pitch + i] = own[i];
  for (uint32_t i = s.rank(); i < all && ended == WB_DONE; i += s.count()) {
    const uint32_t member = before(i / lines + 1), l = i % lines;
    const line::words* from = scratch(channel, turn, member) + l;
    deadline p(world().control());
    line::words got = order::load<order::relaxed, order::world>(from);
    while (!line::is_of(got, mark)) {
      if (wait_status v = p.expired(); v != wait_status::go_on) {
        ended = world().fail(call, status_word(v), from, n * sizeof(T), world_pe(member), channel).word;
        break;
      }
      got = order::load<order::relaxed, order::world>(from);
    }
    if (ended == WB_DONE) line::scatter(dest + member * dest_pitch, l * in_line, n, line::data(got));
  }
  if (s.rank() == 0) order::store<order::relaxed>(&mine->small, turn);
  return together(s, ended);
}

}  // namespace warpbell
