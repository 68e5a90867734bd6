// Exchange of shortest paths over a graph whose lists are distributed (mirrors.cu). A PE lowers its copies of the distances of all
// vertices, and claims those of other PEs once a round. The PE that has a vertex's list takes the distance if it is less than its own,
// and queues the vertex. Launch shape: as in mirrors.cu.
//
// One inbox is enough: the sums of a round are exchanged after it, so no PE claims again before all have read their claims.
#include <warpbell/kernel.h>

#include "exchange.cuh"
#include "sssp.cuh"

namespace warpbell {
namespace graph {

// Words of a claim: the vertex, and its distance.
constexpr uint64_t claim_words = 2;

template <class Id, class Word> WB_FN void sssp_claims(const wb_sssp& p, const world_ref& world) {
  const sssp_view<Id, Word> g(p);
  const wb_claims& c = p.claims;
  const uint32_t me = world.my_pe(), size = world.n_pes();
  const uint64_t* firsts = c.first;
  const Id* outbox = static_cast<const Id*>(c.outbox);
  uint64_t* count = c.count;
  uint64_t* packed = c.packed;
  uint64_t* signal = c.signal;
  uint64_t* inbox = c.inbox;
  wb_mirrors_counters* counters = c.counters;
  grid_barrier barrier(&counters->arrived, world);
  for (uint32_t pe = 0; pe < size; ++pe) {
    for (uint64_t i = warp::thread_index(); i < count[pe]; i += warp::thread_total()) {
      const uint64_t at = firsts[pe] + i;
      packed[at * claim_words] = outbox[at];
      packed[at * claim_words + 1] = g.distance[outbox[at]];
    }
  }
  barrier.sync();
  constexpr uint64_t words = claim_words * sizeof(uint64_t) / sizeof(uint32_t);
  auto segment_for = [&](uint32_t pe) {
    return segment{reinterpret_cast<uint32_t*>(inbox + me * c.capacity * claim_words),
                   reinterpret_cast<const uint32_t*>(packed + firsts[pe] * claim_words), count[pe] * words};
  };
  put_segments(world, &counters->put, segment_for, [&]() {
    world.fence();
    for (uint32_t pe = 0; pe < size; ++pe) {
      if (pe != me) world.signal_op(signal + me, c.turn << claim_turn_shift | count[pe], signal::set, pe);
    }
    // The next round packs again.
    world.quiet();
  });
  const uint64_t turn = c.turn << claim_turn_shift;
  await_all(world, signal, turn);
  auto claimed = [&](uint32_t pe) {
    const uint64_t s = world.signal_fetch(signal + pe);
    // Only a run that has failed already gets here without the signal.
    return s < turn || s - turn > c.capacity ? 0 : s - turn;
  };
  uint64_t lowered = 0, least = ~uint64_t{0};
  for_each_peer(world, claimed, [&](uint32_t pe, uint64_t n) {
    const uint64_t* from = inbox + pe * c.capacity * claim_words;
    for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) {
      const uint64_t v = order::load<order::relaxed, order::world>(from + i * claim_words);
      const Word distance = static_cast<Word>(order::load<order::relaxed, order::world>(from + i * claim_words + 1));
      if (!g.is_own(v) || distance >= order::load<order::relaxed>(&g.distance[v])) continue;
      if (distance >= order::fetch_min<order::relaxed>(&g.distance[v], distance)) continue;
      ++lowered;
      g.queue(p, static_cast<Id*>(p.far), static_cast<Id>(v), distance, least);
    }
  });
  barrier.sync();
  // The barriers are reset by the exchange of the sums.
  if (warp::thread_index() == 0) {
    for (uint32_t pe = 0; pe < size; ++pe) count[pe] = 0;
  }
  g.finish(p, 0, lowered, least, 0);
}

}  // namespace graph
}  // namespace warpbell

#define WB_SSSP_CLAIMS(ID, WORD, SUFFIX)                                                            \
  WB_GRAPH_KERNEL wb_sssp_claims_##SUFFIX(WB_PARAM wb_sssp p, WB_PARAM warpbell::world_ref world) { \
    warpbell::graph::sssp_claims<ID, WORD>(p, world);                                               \
  }                                                                                                 \
  WB_EXPORT(wb_sssp_claims_##SUFFIX)

WB_SSSP_CLAIMS(uint32_t, uint32_t, u32_d32)
WB_SSSP_CLAIMS(uint32_t, uint64_t, u32_d64)
WB_SSSP_CLAIMS(uint64_t, uint64_t, u64_d64)
