// Kernels of a breadth-first search over a graph that is partitioned by vertex (Buluc, Madduri: Parallel Breadth-First Search on
// Distributed Memory Systems, SC11; the 1-D algorithm, made direction-optimising). Launch shape: blocks of up to 256 threads, all
// resident, on all PEs at the same time; one launch for each step. Each PE has the lists of its own vertices, on its own volume or
// in its own memory, and a bitmap of all vertices that were seen.
//
// Lists name neighbours by slot: owner * span + the vertex's number within the owner. So a part of a bitmap is one run of words,
// and the test for an own vertex is a subtraction.
//
// Top-down, a PE expands its own vertices. It takes a neighbour of its own that is not in its bitmap, or claims another PE's from
// the owner, once. Bottom-up, a PE looks for a seen neighbour of each of its own vertices, in its own bitmap alone. Either way
// owners then tell all PEs their new vertices: as a list while that is short, else as their part of the bitmap.
#include <warpbell/kernel.h>

#include "exchange.cuh"
#include "search.cuh"

namespace warpbell {
namespace graph {

// A vertex, by its number within its owner, and the slot of its parent.
template <class Id> struct alignas(2 * sizeof(Id)) claim {
  Id vertex;
  Id parent;
};

// One PE's view of a step.
template <class Id> class partition {
 public:
  WB_FN partition(const wb_partition& p, const world_ref& world)
      : lists(p), p_(p), world_(world), barrier_(&p.counters->arrived, world), base_(p.span * world.my_pe()) {}

  bfs_lists<Id> lists;
  bfs_counts counts;

  WB_FN uint64_t slots() const { return p_.span * world_.n_pes(); }
  WB_FN Id slot(uint64_t v) const { return static_cast<Id>(base_ + v); }
  // Words of the bitmap that own vertices are in.
  WB_FN uint64_t own_words() const { return (p_.vertices + 31) / 32; }
  // Words of the bitmap of one PE's part.
  WB_FN uint64_t part_words() const { return p_.span / 32; }
  WB_FN uint32_t* own_seen() const { return lists.seen + base_ / 32; }
  WB_FN uint32_t* fresh() const { return p_.fresh; }
  WB_FN void sync() { barrier_.sync(); }
  // Wakes the links. Before the first barrier of a step whose frontier then goes to the same place.
  WB_FN void wake_links() const { graph::wake_links(world_, frontier() + world_.my_pe() * part_words(), part_words()); }

  // Takes an own vertex that was found.
  WB_FN void take(Id v, Id from) {
    lists.reach(v, from);
    lists.enqueue(v, counts);
    if (p_.resume) order::fetch_or<order::relaxed>(&fresh()[v / 32], 1u << (v % 32));
    // The length of the frontier's list is this PE's sum of vertices found.
    const warp::mask_t here = warp::active();
    uint64_t at = 0;
    if (warp::is_leader(here)) {
      at = order::fetch_add<order::relaxed>(&lists.sums->sum[WB_BFS_FOUND], static_cast<uint64_t>(warp::count(here)));
    }
    at = warp::shuffle(here, at, warp::leader(here)) + warp::rank(here);
    if (at < p_.list_limit) static_cast<Id*>(p_.list)[at] = slot(v);
  }

  // Visits an edge from the own vertex v to slot n. Returns true if n was not seen before.
  WB_FN bool visit(Id v, Id n) {
    if (!lists.see(n)) return false;
    const uint64_t own = static_cast<uint64_t>(n) - base_;
    if (own < p_.span) {
      take(static_cast<Id>(own), slot(v));
      return true;
    }
    const uint32_t owner = static_cast<uint32_t>(n / static_cast<Id>(p_.span));
    // Lanes that are converged here and have the same owner take their places with one atomic.
    const warp::mask_t same = warp::match(warp::active(), owner);
    uint64_t at = 0;
    if (warp::is_leader(same)) at = order::fetch_add<order::relaxed>(outbox_count() + owner, static_cast<uint64_t>(warp::count(same)));
    at = warp::shuffle(same, at, warp::leader(same)) + warp::rank(same);
    outbox(owner)[at] = claim<Id>{static_cast<Id>(n - owner * p_.span), slot(v)};
    return true;
  }

  // Hands claims over to the owners, and takes the vertices that others claim of this PE. After a barrier.
  WB_FN void exchange_claims() {
    constexpr uint64_t words = sizeof(claim<Id>) / sizeof(uint32_t);
    uint64_t* signal = p_.inbox_signal;
    claim<Id>* inbox = static_cast<claim<Id>*>(p_.inbox);
    auto segment_for = [&](uint32_t pe) {
      return segment{reinterpret_cast<uint32_t*>(inbox + world_.my_pe() * p_.span), reinterpret_cast<const uint32_t*>(outbox(pe)),
                     order::load<order::relaxed>(outbox_count() + pe) * words};
    };
    put_segments(world_, &counters()->claims_put, segment_for, [&]() {
      uint64_t bytes = 0;
      world_.fence();
      for (uint32_t pe = 0; pe < world_.n_pes(); ++pe) {
        if (pe == world_.my_pe()) continue;
        const uint64_t n = order::load<order::relaxed>(outbox_count() + pe);
        world_.signal_op(signal + world_.my_pe(), p_.claim_turn << claim_turn_shift | n, signal::set, pe);
        bytes += n * sizeof(claim<Id>) + sizeof(uint64_t);
      }
      order::add<order::relaxed>(&counters()->put_bytes, bytes);
    });
    const uint64_t least = p_.claim_turn << claim_turn_shift;
    await_all(world_, signal, least);
    auto claimed = [&](uint32_t pe) {
      const uint64_t s = world_.signal_fetch(signal + pe);
      // Only a run that has failed already gets here without the signal.
      return s < least || s - least > p_.span ? 0 : s - least;
    };
    for_each_peer(world_, claimed, [&](uint32_t pe, uint64_t n) {
      for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) {
        const claim<Id> c = order::load<order::relaxed, order::world>(inbox + pe * p_.span + i);
        if (c.vertex < p_.vertices && lists.see(base_ + c.vertex)) take(c.vertex, c.parent);
      }
    });
  }

  // Tells all PEs the new vertices: as a list while that is short, else as the seen part of this PE's own bitmap. After a barrier,
  // with all counts added up.
  WB_FN void exchange_frontier() {
    const uint64_t found = order::load<order::relaxed>(&lists.sums->sum[WB_BFS_FOUND]);
    if (found > p_.list_limit) return exchange_bitmap(own_seen());
    broadcast(static_cast<const uint32_t*>(p_.list), found * (sizeof(Id) / sizeof(uint32_t)), found);
  }
  // Tells all PEs the new vertices as these bits of own vertices.
  WB_FN void exchange_bitmap(const uint32_t* bitmap) { broadcast(bitmap, own_words(), own_words() | WB_PARTITION_BITMAP); }
  // Tells all PEs the counts only.
  WB_FN void exchange_counts() { broadcast(nullptr, 0, 0); }

  // Puts words, and a header with `message`, to all PEs. Waits for the frontier of all PEs, and adds it to the bitmap of seen
  // vertices.
  WB_FN void broadcast(const uint32_t* from, uint64_t words, uint64_t message) {
    const uint32_t me = world_.my_pe(), size = world_.n_pes();
    uint32_t* frontier = this->frontier();
    wb_partition_header* header = p_.header + half() * size;
    uint64_t* signal = p_.frontier_signal;
    auto segment_for = [&](uint32_t) { return segment{frontier + me * part_words(), from, words}; };
    put_segments(world_, &counters()->frontier_put, segment_for, [&]() {
      wb_partition_header mine{};
      const bool failed = world_.has_failed();
      mine.message = failed ? WB_PARTITION_FAILED : message;
      for (uint32_t i = 0; i < WB_GRAPH_SUMS; ++i) mine.sum[i] = order::load<order::relaxed>(&lists.sums->sum[i]);
      mine.put_bytes =
          order::load<order::relaxed>(&counters()->put_bytes) + (size - 1) * (words * sizeof(uint32_t) + sizeof mine + sizeof(uint64_t));
      // Claims have arrived: their owners have answered.
      tell_all(world_, header, mine, signal, p_.turn);
    });
    await_all(world_, signal, p_.turn);
    auto sent = [&](uint32_t pe) {
      const uint64_t m = order::load<order::relaxed, order::world>(&header[pe].message);
      return m & WB_PARTITION_FAILED ? 0 : m;
    };
    for_each_peer(world_, sent, [&](uint32_t pe, uint64_t m) {
      const uint32_t* in = frontier + pe * part_words();
      const uint64_t n = m & WB_PARTITION_COUNT;
      if (m & WB_PARTITION_BITMAP) {
        mix(lists.seen + pe * part_words(), in, n <= part_words() ? n : 0);
      } else {
        for (uint64_t i = warp::thread_index(); i < n && i < p_.list_limit; i += warp::thread_total()) {
          const Id s = order::load<order::relaxed, order::world>(reinterpret_cast<const Id*>(in) + i);
          if (s < slots()) order::fetch_or<order::relaxed>(&lists.seen[s / 32], 1u << (s % 32));
        }
      }
    });
  }

  // Adds words of a bitmap, which no thread writes now, to another bitmap that belongs to this PE only.
  WB_FN void mix(uint32_t* to, const uint32_t* from, uint64_t words) const {
    using order::quad;
    const uint64_t quads = words / 4;
    for (uint64_t i = warp::thread_index(); i < quads; i += warp::thread_total()) {
      const quad add = order::load<order::relaxed, order::world>(reinterpret_cast<const quad*>(from) + i);
      quad* at = reinterpret_cast<quad*>(to) + i;
      const quad old = order::load<order::relaxed>(at);
      order::store<order::relaxed>(at, quad{old.x | add.x, old.y | add.y, old.z | add.z, old.w | add.w});
    }
    for (uint64_t i = quads * 4 + warp::thread_index(); i < words; i += warp::thread_total()) {
      order::store<order::relaxed>(to + i, order::load<order::relaxed>(to + i) | order::load<order::relaxed, order::world>(from + i));
    }
  }

  // Adds this thread's counts to this PE's sums. All lanes call this.
  WB_FN void count() {
    counts.add_to(lists.sums);
    counts = bfs_counts{};
  }

  // Ends a step: every thread calls this last. The last block adds up the headers of all PEs for the host, and resets the counters
  // for the next step.
  WB_FN void finish() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (order::fetch_add<order::acq_rel>(&counters()->blocks_done, 1u) + 1 != gridDim.x) return;
    const wb_partition_header* header = p_.header + half() * world_.n_pes();
    wb_partition_report sums{};
    for (uint32_t pe = 0; pe < world_.n_pes(); ++pe) {
      const wb_partition_header* h = header + pe;
      if ((order::load<order::relaxed, order::world>(&h->message) & WB_PARTITION_FAILED) && !sums.failed) sums.failed = pe + 1;
      for (uint32_t i = 0; i < WB_GRAPH_SUMS; ++i) sums.sum[i] += order::load<order::relaxed, order::world>(&h->sum[i]);
      sums.put_bytes += order::load<order::relaxed, order::world>(&h->put_bytes);
    }
    sums.own_items = order::load<order::relaxed>(&lists.sums->sum[WB_BFS_ITEMS]);
    wb_partition_report* report = p_.report;
    for (uint32_t i = 0; i < WB_GRAPH_SUMS; ++i) order::store<order::relaxed, order::system>(&report->sum[i], sums.sum[i]);
    order::store<order::relaxed, order::system>(&report->put_bytes, sums.put_bytes);
    order::store<order::relaxed, order::system>(&report->own_items, sums.own_items);
    order::store<order::relaxed, order::system>(&report->failed, sums.failed);
    for (uint32_t i = 0; i < WB_GRAPH_SUMS; ++i) order::store<order::relaxed>(&lists.sums->sum[i], uint64_t{0});
    for (uint32_t pe = 0; pe < world_.n_pes(); ++pe) order::store<order::relaxed>(outbox_count() + pe, uint64_t{0});
    order::store<order::relaxed>(&counters()->arrived, uint64_t{0});
    order::store<order::relaxed>(&counters()->put_bytes, uint64_t{0});
    order::store<order::relaxed>(&counters()->blocks_done, 0u);
  }

 private:
  // Returns the area for the frontier and headers that this step uses, of two.
  WB_FN uint32_t half() const { return p_.turn & 1; }
  WB_FN uint32_t* frontier() const { return p_.frontier + half() * world_.n_pes() * part_words(); }
  WB_FN wb_partition_counters* counters() const { return p_.counters; }
  WB_FN uint64_t* outbox_count() const { return p_.outbox_count; }
  WB_FN claim<Id>* outbox(uint32_t pe) const { return static_cast<claim<Id>*>(p_.outbox) + pe * p_.span; }

  const wb_partition& p_;
  const world_ref& world_;
  grid_barrier barrier_;
  uint64_t base_;
};

// Marks all vertices as unreached except the source, whose owner has it as its first queue.
template <class Id> WB_FN void partition_start(const wb_partition& p, const world_ref& world) {
  partition<Id> g(p, world);
  g.wake_links();
  const uint32_t* isolated = p.isolated;
  const share s(p.span);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    g.lists.depth[v] = unreached;
    if (g.lists.parent) g.lists.parent[v] = static_cast<Id>(~Id{0});
  }
  const uint64_t words = g.slots() / 32, first = g.slot(0) / 32;
  const share m(words);
  for (uint64_t w = m.first; w < m.end; w += m.step) {
    g.lists.seen[w] = w >= first && w - first < g.own_words() ? isolated[w - first] : 0;
  }
  g.sync();
  // All PEs mark the source as seen; its owner takes it.
  if (warp::thread_index() == 0) {
    const uint64_t v = p.source - g.slot(0);
    g.lists.see(p.source);
    if (p.source >= g.slot(0) && v < p.vertices) g.take(static_cast<Id>(v), static_cast<Id>(p.source));
  }
  g.count();
  g.sync();
  g.exchange_frontier();
  g.finish();
}

// Expands the queue, and exchanges claims and the frontier.
template <class Id, class Source> WB_FN void partition_top_down(const wb_partition& p, const world_ref& world, const Source& source) {
  partition<Id> g(p, world);
  if (p.resume) {
    // Vertices found by hubs are seen here already. A PE that claims one of them learns that from the owner.
    g.mix(g.own_seen(), g.fresh(), g.own_words());
    g.sync();
  }
  expand_queue(g.lists, static_cast<const item<Id>*>(p.queue), p.items, source, g.slots(), g.counts,
               [&](Id v, Id n) { return g.visit(v, n); });
  g.sync();
  g.exchange_claims();
  g.count();
  g.sync();
  if (p.resume) {
    g.exchange_bitmap(g.own_seen());
  } else {
    g.exchange_frontier();
  }
  g.finish();
}

// Looks for a seen neighbour of each own unseen vertex, and exchanges the frontier.
template <class Id, class Source> WB_FN void partition_bottom_up(const wb_partition& p, const world_ref& world, const Source& source) {
  partition<Id> g(p, world);
  const uint32_t* seen = g.own_seen();
  uint32_t* fresh = g.fresh();
  scan_unseen(
      g.lists, g.own_words(), source, g.slots(), g.counts, [&](uint64_t w) { return seen[w] | (p.resume ? fresh[w] : 0u); },
      [&](uint64_t w, uint32_t before, uint32_t after) { fresh[w] = (p.resume ? fresh[w] : 0u) | (after & ~before); });
  g.count();
  g.sync();
  g.mix(g.own_seen(), fresh, g.own_words());
  g.exchange_bitmap(fresh);
  g.finish();
}

// Executes a bottom-up step that reads no edge, and exchanges the counts only. The rest of the level is read from the side that
// costs less, and the frontier of both parts is exchanged then.
template <class Id> WB_FN void partition_by_hubs(const wb_partition& p, const world_ref& world) {
  partition<Id> g(p, world);
  const uint32_t* seen = g.own_seen();
  uint32_t* fresh = g.fresh();
  const uint64_t left = scan_hubs(
      g.lists, g.own_words(), g.counts, [&](uint64_t w) { return seen[w]; },
      [&](uint64_t w, uint32_t before, uint32_t after) { fresh[w] = after & ~before; });
  add_count(g.lists.sums, WB_BFS_ITEMS, left);
  g.count();
  g.sync();
  g.exchange_counts();
  g.finish();
}

// Builds the queue for a top-down step after bottom-up ones. The last of them left its vertices in `fresh`.
template <class Id> WB_FN void partition_collect(const wb_partition& p, const world_ref& world) {
  partition<Id> g(p, world);
  const uint32_t* fresh = g.fresh();
  g.counts.found = push_words(p.vertices, g.lists.found, &g.lists.sums->sum[WB_BFS_ITEMS], g.lists.offset, g.counts.degrees,
                              [&](uint64_t w) { return fresh[w]; });
  g.count();
  g.sync();
  g.exchange_counts();
  g.finish();
}

}  // namespace graph
}  // namespace warpbell

#define WB_PARTITION_MEMORY_KERNEL(NAME, ID, SUFFIX)                                                            \
  WB_GRAPH_KERNEL wb_partition_##NAME##_##SUFFIX(WB_PARAM wb_partition p, WB_PARAM warpbell::world_ref world) { \
    warpbell::graph::partition_##NAME<ID>(p, world);                                                            \
  }                                                                                                             \
  WB_EXPORT(wb_partition_##NAME##_##SUFFIX)

#define WB_PARTITION_EDGE_KERNEL(NAME, ID, SUFFIX, SOURCE)                                                                             \
  WB_GRAPH_KERNEL wb_partition_##NAME##_##SUFFIX(WB_PARAM wb_partition p, WB_PARAM warpbell::world_ref world, WB_PARAM SOURCE edges) { \
    warpbell::graph::partition_##NAME<ID>(p, world, edges);                                                                            \
  }                                                                                                                                    \
  WB_EXPORT(wb_partition_##NAME##_##SUFFIX)

#define WB_PARTITION_MEMORY(ID, SUFFIX)           \
  WB_PARTITION_MEMORY_KERNEL(start, ID, SUFFIX)   \
  WB_PARTITION_MEMORY_KERNEL(by_hubs, ID, SUFFIX) \
  WB_PARTITION_MEMORY_KERNEL(collect, ID, SUFFIX)

#define WB_PARTITION_EDGES(ID, SUFFIX, SOURCE)           \
  WB_PARTITION_EDGE_KERNEL(top_down, ID, SUFFIX, SOURCE) \
  WB_PARTITION_EDGE_KERNEL(bottom_up, ID, SUFFIX, SOURCE)

WB_PARTITION_MEMORY(uint32_t, u32)
WB_PARTITION_MEMORY(uint64_t, u64)
WB_PARTITION_EDGES(uint32_t, pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_PARTITION_EDGES(uint64_t, pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_PARTITION_EDGES(uint32_t, storage_u32, warpbell::array_ref<uint32_t>)
WB_PARTITION_EDGES(uint64_t, storage_u64, warpbell::array_ref<uint64_t>)
