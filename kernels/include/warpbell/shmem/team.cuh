// Teams and what their members do together: synchronise, broadcast, reduce, collect, exchange.
//
// A collective is called by every member, in the same order in each channel. A block of its own may use a channel of its own, so
// that many blocks of one kernel do their parts at the same time; channel 0 is the default.
#pragma once

#include <warpbell/shmem/world.cuh>

namespace warpbell {

class team_ref {
 public:
  WB_FN team_ref(const wb_world& world, const wb_team& team) : v_{world, team} {}

  WB_FN uint32_t my_pe() const { return v_.team.pe; }
  WB_FN uint32_t n_pes() const { return v_.team.size; }
  // A member's number in the world.
  WB_FN uint32_t world_pe(uint32_t member) const { return v_.team.start + member * v_.team.stride; }
  WB_FN world_ref world() const;

  // Everybody has come here.
  template <class S> WB_FN outcome sync(S s, uint32_t channel = 0) const;
  // And what the members' calling threads put before has arrived.
  template <class S> WB_FN outcome barrier(S s, uint32_t channel = 0) const;

 private:
  wb_team_view v_;
};

WB_FN world_ref team_ref::world() const {
  return world_ref(v_.world);
}

WB_FN team_ref world_ref::world_team() const { return team_ref(w_, w_.team); }

// Each round: tell `radix - 1` members, `step` apart, and wait for as many others. With up to 32 members one round is enough.
// Arrivals are counted, so that no word has to be cleared. Every thread of the scope tells and waits for its share.
template <class S> WB_FN outcome team_ref::sync(S, uint32_t channel) const {
  const wb_team& t = v_.team;
  const world_ref w = world();
  wb_team_rounds* rounds = reinterpret_cast<wb_team_rounds*>(t.rounds) + channel;
  outcome result{};
  S::sync();
  const uint64_t turn = order::load_relaxed(&rounds->sync) + 1;
  uint64_t* words = reinterpret_cast<uint64_t*>(t.sync) + uint64_t{channel} * WB_SYNC_ROUNDS * WB_SYNC_SLOTS;
  for (uint32_t step = 1; step < t.size; step *= WB_SYNC_SLOTS, words += WB_SYNC_SLOTS) {
    for (uint32_t k = 1 + S::rank(); k < WB_SYNC_SLOTS && k * step < t.size; k += S::count()) {
      order::fence_sys();
      w.p(words + k, turn, world_pe((t.pe + k * step) % t.size));
    }
    for (uint32_t k = 1 + S::rank(); k < WB_SYNC_SLOTS && k * step < t.size; k += S::count()) {
      patience p(w.control());
      while (order::load_remote(words + k) < turn) {
        if (verdict v = p.spent(); v != verdict::go_on) {
          result = w.fail(WB_CALL_BARRIER, status_word(v), words + k, 0, world_pe((t.pe + t.size - k * step) % t.size));
          break;
        }
      }
    }
    order::fence_acquire_sys();
    S::sync();
  }
  if (S::rank() == 0) order::store_relaxed(&rounds->sync, turn);
  return result;
}

template <class S> WB_FN outcome team_ref::barrier(S s, uint32_t channel) const {
  order::fence_sys();
  return sync(s, channel);
}

template <class S> WB_FN outcome world_ref::barrier_all(S s) const { return world_team().barrier(s); }
template <class S> WB_FN outcome world_ref::sync_all(S s) const { return world_team().sync(s); }

}  // namespace warpbell
