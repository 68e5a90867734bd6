// Breadth-first search, direction-optimising (Beamer, Asanovic, Patterson: Direction-Optimizing Breadth-First Search, SC12).
//
// One bitmap of seen vertices serves both directions. Top-down steps claim vertices in it. A bottom-up step reads the bitmap
// as the step before left it and writes the next one: a neighbour that was seen earlier than the last level would have
// brought the vertex in already, so "seen" and "in the frontier" are the same question, and no frontier bitmap is needed.
#include <warpbell/kernel.h>

#include "work.cuh"

// Mirrored by host/graph/bfs.rs.
typedef struct wb_bfs {
  uint64_t offset;      // u64[vertices + 1], of the direction that the kernel reads
  uint64_t leads;       // for each vertex the neighbours to ask first (leads in work.cuh)
  uint64_t isolated;    // bitmap of vertices without any edge, and of those past the last: never looked at
  uint64_t seen;        // bitmap
  uint64_t seen_next;   // bitmap that a bottom-up step writes; the older one when the queue is collected
  uint64_t open;        // bitmap of what a bottom-up step need not look at: `seen`, or `seen_next` after a step by leads
  uint64_t depth;       // u32[vertices]
  uint64_t parent;      // an identifier for each vertex, or 0
  uint64_t queue;       // items to expand
  uint64_t queue_next;  // items found
  uint64_t items;       // in `queue`
  uint64_t tally;
  uint64_t report;
  uint64_t vertices;
  uint64_t source;
  uint32_t level;       // that found vertices get
  uint32_t skip;        // edges at the front of every list that are its leads: a scan may start after them
} wb_bfs;

static_assert(sizeof(wb_bfs) == 128, "wb_bfs");

namespace warpbell {
namespace graph {

constexpr uint32_t unreached = 0xffffffffu;

// Sums that a step reports.
enum bfs_sum : uint32_t {
  bfs_items = 0,    // length of the next queue; of a step by leads, the lists that might still have a seen neighbour
  bfs_found = 1,    // vertices found
  bfs_degrees = 2,  // their edges (not counted by bottom-up steps)
  bfs_scanned = 3,  // edges looked at
  bfs_lead_hits = 4, // vertices found without reading an edge
};

// A kernel's view of its parameters.
template <class Id> struct bfs_view {
  WB_FN explicit bfs_view(const wb_bfs& p)
      : offset(reinterpret_cast<const uint64_t*>(p.offset)),
        lead(reinterpret_cast<const leads<Id>*>(p.leads)),
        seen(reinterpret_cast<uint32_t*>(p.seen)),
        depth(reinterpret_cast<uint32_t*>(p.depth)),
        parent(reinterpret_cast<Id*>(p.parent)),
        found(reinterpret_cast<item<Id>*>(p.queue_next)),
        tally(reinterpret_cast<wb_graph_tally*>(p.tally)),
        level(p.level) {}

  WB_FN void reach(uint64_t v, Id from) const {
    depth[v] = level;
    if (parent) parent[v] = from;
  }

  WB_FN bool is_seen(uint64_t n) const { return (seen[n / 32] >> (n % 32)) & 1u; }

  // A lead that was seen.
  WB_FN bool asks(uint64_t v, Id& from) const {
    const leads<Id> mine = lead[v];
#pragma unroll
    for (uint32_t i = 0; i < lead_count; ++i) {
      from = mine.id[i];
      if (from == static_cast<Id>(~Id{0})) return false;
      if (is_seen(from)) return true;
    }
    return false;
  }

  // Whether a vertex has no neighbours but its leads.
  WB_FN bool all_leads(uint64_t v) const { return offset[v + 1] - offset[v] <= lead_count; }

  // What of a list is worth reading when no lead was seen; whether there is any.
  WB_FN bool rest_of(const wb_bfs& p, uint64_t v, uint64_t& first, uint64_t& last) const {
    first = offset[v] + p.skip;
    last = offset[v + 1];
    if (all_leads(v)) last = first;
    return first < last;
  }

  WB_FN void finish(const wb_bfs& p, uint64_t vertices, uint64_t degrees, uint64_t scanned, uint64_t lead_hits,
                    uint64_t bad) const {
    add_count(tally, bfs_found, vertices);
    add_count(tally, bfs_degrees, degrees);
    add_count(tally, bfs_scanned, scanned);
    add_count(tally, bfs_lead_hits, lead_hits);
    add_count(tally, WB_GRAPH_BAD_EDGES, bad);
    publish(tally, reinterpret_cast<wb_graph_report*>(p.report));
  }

  const uint64_t* offset;
  const leads<Id>* lead;
  uint32_t* seen;
  uint32_t* depth;
  Id* parent;
  item<Id>* found;
  wb_graph_tally* tally;
  uint32_t level;
};

// Everything unreached but the source, which is the first queue.
template <class Id> WB_FN void bfs_start(const wb_bfs& p) {
  const bfs_view<Id> g(p);
  const uint32_t* isolated = reinterpret_cast<const uint32_t*>(p.isolated);
  const uint64_t words = (p.vertices + 31) / 32;
  for (uint64_t v = warp::thread_index(); v < p.vertices; v += warp::thread_total()) {
    g.depth[v] = v == p.source ? 0 : unreached;
    if (g.parent) g.parent[v] = v == p.source ? static_cast<Id>(v) : static_cast<Id>(~Id{0});
  }
  for (uint64_t w = warp::thread_index(); w < words; w += warp::thread_total()) {
    g.seen[w] = isolated[w] | (w == p.source / 32 ? 1u << (p.source % 32) : 0u);
  }
  uint64_t degree = 0;
  if (warp::thread_index() == 0) {
    const uint64_t first = g.offset[p.source], last = g.offset[p.source + 1];
    degree = last - first;
    push(g.found, &g.tally->sum[bfs_items], static_cast<Id>(p.source), first, last);
  }
  g.finish(p, warp::thread_index() == 0, degree, 0, 0, 0);
}

// Each warp takes some items of the queue, and its lanes share the edges of all of them. Short lists are at hand.
template <class Id, class Source> WB_FN void bfs_top_down(const wb_bfs& p, const Source& source) {
  const bfs_view<Id> g(p);
  const item<Id>* queue = reinterpret_cast<const item<Id>*>(p.queue);
  auto edges = source.open();
  uint64_t found = 0, degrees = 0, scanned = 0, lead_hits = 0, bad = 0;
  const uint32_t turn = items_per_turn(p.items);
  const uint64_t stride = static_cast<uint64_t>(warp::total()) * turn;
  // With one lane to a warp nobody else keeps reads in flight: ask for lists this many turns ahead.
  constexpr uint64_t ahead = session_traits<decltype(edges)>::stored && warp::width < 32 ? 16 : 0;
  auto prefetch = [&](uint64_t at) {
    const uint64_t k = at + warp::lane();
    if (warp::lane() >= turn || k >= p.items) return;
    const run r = run_of(queue[k], g.offset);
    if (!g.all_leads(queue[k].vertex)) edges.prefetch(r.first, r.count);
  };
  auto visit = [&](Id v, Id n) {
    uint32_t* word = &g.seen[n / 32];
    const uint32_t bit = 1u << (n % 32);
    if (order::load_relaxed(word) & bit) return false;
    if (order::fetch_or_relaxed(word, bit) & bit) return false;
    g.reach(n, v);
    const uint64_t first = g.offset[n], last = g.offset[static_cast<uint64_t>(n) + 1];
    ++found;
    degrees += last - first;
    push(g.found, &g.tally->sum[bfs_items], n, first, last);
    return true;
  };
  const uint64_t begin = static_cast<uint64_t>(warp::index()) * turn;
  if constexpr (ahead > 0) {
    for (uint64_t i = 0; i < ahead; ++i) prefetch(begin + i * stride);
  }
  for (uint64_t at = begin; at < p.items; at += stride) {
    if constexpr (ahead > 0) prefetch(at + ahead * stride);
    const uint64_t k = at + warp::lane();
    run r{0, 0};
    Id from = 0;
    if (warp::lane() < turn && k < p.items) {
      const item<Id> it = queue[k];
      r = run_of(it, g.offset);
      from = it.vertex;
      // A piece of a long list may be as short, but is not what the leads are.
      if (g.all_leads(from)) {
        const leads<Id> lead = g.lead[from];
#pragma unroll
        for (uint32_t i = 0; i < lead_count; ++i) {
          if (i < r.count && visit(from, lead.id[i])) ++lead_hits;
        }
        r.count = 0;
      }
    }
    scanned += r.count;
    for_each_edge(edges, r.first, r.count, from, [&](Id v, Id n) {
      if (leads_somewhere(edges, n, p.vertices, bad)) visit(v, n);
    });
  }
  g.finish(p, found, degrees, scanned, lead_hits, bad);
}

// Each warp takes words of the bitmap and looks for a seen neighbour of every vertex that is not seen: its leads first, which
// cost no edge, then the rest of its list until one is found.
template <class Id, class Source> WB_FN void bfs_bottom_up(const wb_bfs& p, const Source& source) {
  const bfs_view<Id> g(p);
  const uint32_t* open_words = reinterpret_cast<const uint32_t*>(p.open);
  uint32_t* seen_next = reinterpret_cast<uint32_t*>(p.seen_next);
  auto edges = source.open();
  const warp::mask_t all = warp::full();
  uint64_t found = 0, scanned = 0, lead_hits = 0, bad = 0;
  auto leads_to_seen = [&](uint64_t n) { return leads_somewhere(edges, n, p.vertices, bad) && g.is_seen(n); };
  const uint64_t words = (p.vertices + 31) / 32;
  const uint32_t turn = items_per_turn(words);
  const uint64_t turns = (words + turn - 1) / turn;
  for (uint64_t i = warp::index(); i < turns; i += warp::total()) {
    // Every other level goes backwards, so that it begins with the pages that the cache still holds.
    const uint64_t at = (p.level % 2 ? turns - 1 - i : i) * turn;
    const uint64_t own = at + warp::lane();
    uint32_t now = ~0u;
    if (warp::lane() < turn && own < words) now = open_words[own];
    uint32_t next = now;
    for (warp::mask_t open = warp::ballot(all, now != ~0u); open; open &= open - 1) {
      const uint32_t holder = warp::first(open);
      const uint32_t word = warp::shuffle(all, now, holder);
      const uint64_t base = (at + holder) * 32;
      if constexpr (session_traits<decltype(edges)>::stored && warp::width < 32) {
        // One lane to a warp: ask for all pages of the word's lists before waiting for the first.
        for (uint32_t rest = ~word; rest; rest &= rest - 1) {
          const uint64_t v = base + warp::first(rest);
          Id from;
          uint64_t first, last;
          if (g.rest_of(p, v, first, last) && !g.asks(v, from)) edges.prefetch(first, 1);
        }
      }
      uint32_t reached = 0;
      // Groups of as many vertices as there are lanes: the whole word on a GPU.
      for (uint32_t rest = ~word; rest;) {
        const uint32_t shift = warp::first(rest) / warp::width * warp::width;
        rest &= ~(all << shift);
        const uint64_t v = base + shift + warp::lane();
        const bool candidate = !((word >> (shift + warp::lane())) & 1u);
        Id from = 0;
        uint64_t first = 0, last = 0;
        bool hit = candidate && g.asks(v, from);
        lead_hits += hit;
        const bool scan = candidate && !hit && g.rest_of(p, v, first, last);
        if (warp::any(all, scan)) hit |= any_edge(edges, first, last - first, from, scanned, leads_to_seen);
        if (hit) {
          g.reach(v, from);
          ++found;
        }
        reached |= warp::ballot(all, hit) << shift;
      }
      if (warp::lane() == holder) next |= reached;
    }
    if (warp::lane() < turn && own < words) seen_next[own] = next;
  }
  g.finish(p, found, 0, scanned, lead_hits, bad);
}

// A bottom-up step that reads no edge: what leads bring in. The rest of the level is then read from the side that costs less.
template <class Id> WB_FN void bfs_by_leads(const wb_bfs& p) {
  const bfs_view<Id> g(p);
  uint32_t* seen_next = reinterpret_cast<uint32_t*>(p.seen_next);
  const warp::mask_t all = warp::full();
  const uint64_t words = (p.vertices + 31) / 32;
  uint64_t found = 0, left = 0;
  for (uint64_t w = warp::index(); w < words; w += warp::total()) {
    const uint32_t word = g.seen[w];
    uint32_t next = word;
    for (uint32_t shift = 0; shift < 32 && word != ~0u; shift += warp::width) {
      const uint64_t v = w * 32 + shift + warp::lane();
      Id from = 0;
      const bool candidate = !((word >> (shift + warp::lane())) & 1u);
      const bool hit = candidate && g.asks(v, from);
      if (hit) {
        g.reach(v, from);
        ++found;
      }
      uint64_t first, last;
      left += candidate && !hit && g.rest_of(p, v, first, last);
      next |= warp::ballot(all, hit) << shift;
    }
    if (warp::lane() == 0) seen_next[w] = next;
  }
  add_count(g.tally, bfs_items, left);
  g.finish(p, found, 0, 0, found, 0);
}

// The queue for a top-down step after bottom-up ones: vertices that `seen` has and the bitmap before it has not.
template <class Id> WB_FN void bfs_collect(const wb_bfs& p) {
  const bfs_view<Id> g(p);
  const uint32_t* before = reinterpret_cast<const uint32_t*>(p.seen_next);
  uint64_t degrees = 0;
  const uint64_t found = push_words(p.vertices, g.found, &g.tally->sum[bfs_items], g.offset, degrees,
                                    [&](uint64_t w) { return g.seen[w] & ~before[w]; });
  g.finish(p, found, degrees, 0, 0, 0);
}

}  // namespace graph
}  // namespace warpbell

#define WB_BFS_MEMORY(ID, SUFFIX) \
  WB_GRAPH_KERNEL wb_bfs_start_##SUFFIX(WB_PARAM wb_bfs p) { warpbell::graph::bfs_start<ID>(p); } \
  WB_EXPORT(wb_bfs_start_##SUFFIX) \
  WB_GRAPH_KERNEL wb_bfs_by_leads_##SUFFIX(WB_PARAM wb_bfs p) { warpbell::graph::bfs_by_leads<ID>(p); } \
  WB_EXPORT(wb_bfs_by_leads_##SUFFIX) \
  WB_GRAPH_KERNEL wb_bfs_collect_##SUFFIX(WB_PARAM wb_bfs p) { warpbell::graph::bfs_collect<ID>(p); } \
  WB_EXPORT(wb_bfs_collect_##SUFFIX)

#define WB_BFS_EDGES(ID, SUFFIX, SOURCE) \
  WB_GRAPH_KERNEL wb_bfs_top_down_##SUFFIX(WB_PARAM wb_bfs p, WB_PARAM SOURCE edges) { \
    warpbell::graph::bfs_top_down<ID>(p, edges); \
  } \
  WB_EXPORT(wb_bfs_top_down_##SUFFIX) \
  WB_GRAPH_KERNEL wb_bfs_bottom_up_##SUFFIX(WB_PARAM wb_bfs p, WB_PARAM SOURCE edges) { \
    warpbell::graph::bfs_bottom_up<ID>(p, edges); \
  } \
  WB_EXPORT(wb_bfs_bottom_up_##SUFFIX)

WB_BFS_MEMORY(uint32_t, u32)
WB_BFS_MEMORY(uint64_t, u64)
WB_BFS_EDGES(uint32_t, pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_BFS_EDGES(uint64_t, pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_BFS_EDGES(uint32_t, storage_u32, warpbell::array_ref<uint32_t>)
WB_BFS_EDGES(uint64_t, storage_u64, warpbell::array_ref<uint64_t>)
