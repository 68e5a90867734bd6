// Common parts of breadth-first searches of one PE and of several: expanding a queue, and looking for a seen neighbour of unseen
// vertices. The caller claims vertices and stores results.
//
// One bitmap of seen vertices serves both directions. A neighbour that was seen before the last level would already have brought
// the vertex in. So "seen" and "in the frontier" are equivalent for an unseen vertex, and no frontier bitmap is needed.
#pragma once

#include "work.cuh"

namespace warpbell {
namespace graph {

constexpr uint32_t unreached = 0xffffffffu;

// Counts of one thread.
struct bfs_counts {
  uint64_t found = 0, degrees = 0, scanned = 0, hub_hits = 0, bad = 0;

  WB_FN void add_to(wb_graph_counters* sums) const {
    add_count(sums, WB_BFS_FOUND, found);
    add_count(sums, WB_BFS_DEGREES, degrees);
    add_count(sums, WB_BFS_SCANNED, scanned);
    add_count(sums, WB_BFS_HUB_HITS, hub_hits);
    add_count(sums, WB_GRAPH_BAD_EDGES, bad);
  }
};

// Vertices and their lists. `v` numbers vertices that have lists here; `n` is a neighbour as lists name it.
template <class Id> struct bfs_lists {
  // Takes the fields of these names from a parameter block.
  template <class P> WB_FN explicit bfs_lists(const P& p)
      : offset(p.offset),
        hub(static_cast<const hubs<Id>*>(p.hubs)),
        seen(p.seen),
        depth(p.depth),
        parent(static_cast<Id*>(p.parent)),
        found(static_cast<item<Id>*>(p.queue_next)),
        sums(p.sums),
        level(p.level),
        skip(p.skip) {}

  WB_FN void reach(uint64_t v, Id from) const {
    depth[v] = level;
    if (parent) parent[v] = from;
  }

  WB_FN bool is_seen(uint64_t n) const { return (seen[n / 32] >> (n % 32)) & 1u; }

  // Marks a vertex as seen. Returns true if it was not seen before.
  WB_FN bool see(uint64_t n) const {
    uint32_t* word = &seen[n / 32];
    const uint32_t bit = 1u << (n % 32);
    return !(order::load<order::relaxed>(word) & bit) && !(order::fetch_or<order::relaxed>(word, bit) & bit);
  }

  // Returns true if one of the vertex's hubs was seen; `from` is that hub.
  WB_FN bool asks(uint64_t v, Id& from) const {
    const hubs<Id> mine = hub[v];
#pragma unroll
    for (uint32_t i = 0; i < WB_GRAPH_HUBS; ++i) {
      from = mine.id[i];
      if (from == static_cast<Id>(~Id{0})) return false;
      if (is_seen(from)) return true;
    }
    return false;
  }

  // Returns true if a vertex has no neighbours but its hubs.
  WB_FN bool all_hubs(uint64_t v) const { return offset[v + 1] - offset[v] <= WB_GRAPH_HUBS; }

  // Returns true if the list has edges worth reading when no hub was seen; `first` and `last` are their range.
  WB_FN bool rest_of(uint64_t v, uint64_t& first, uint64_t& last) const {
    first = offset[v] + skip;
    last = offset[v + 1];
    if (all_hubs(v)) last = first;
    return first < last;
  }

  // Appends a vertex that was found to the next queue.
  WB_FN void enqueue(Id v, bfs_counts& counts) const {
    const uint64_t first = offset[v], last = offset[static_cast<uint64_t>(v) + 1];
    counts.degrees += last - first;
    push(found, &sums->sum[WB_BFS_ITEMS], v, first, last);
  }

  const uint64_t* offset;
  const hubs<Id>* hub;
  uint32_t* seen;
  uint32_t* depth;
  Id* parent;
  item<Id>* found;
  wb_graph_counters* sums;
  uint32_t level;
  uint32_t skip;  // edges at the front of every list that are its hubs: a scan may start after them
};

// Calls visit(v, n) for every edge of the queue's items; `visit` returns true if it found n. Each warp takes some items, and its
// lanes share the edges of all of them. Lists that consist of hubs only are read from memory. Neighbours are numbered below
// `limit`.
template <class Id, class Source, class Visit> WB_FN void expand_queue(const bfs_lists<Id>& g, const item<Id>* queue, uint64_t items,
                                                                       const Source& source, uint64_t limit, bfs_counts& counts,
                                                                       Visit visit) {
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  const uint32_t turn = items_per_turn(items);
  const uint64_t stride = static_cast<uint64_t>(warp::total()) * turn;
  // With one lane to a warp no other lane keeps reads in flight: request lists this many turns ahead.
  constexpr uint64_t ahead = session_traits<decltype(edges)>::stored && warp::width < 32 ? 16 : 0;
  auto prefetch = [&](uint64_t at) {
    const uint64_t k = at + warp::lane();
    if (warp::lane() >= turn || k >= items) return;
    const run r = run_of(queue[k], g.offset);
    if (!g.all_hubs(queue[k].vertex)) edges.prefetch(r.first, r.count);
  };
  // Few items, long ones among them, as at the beginning of most searches: several warps share each.
  using traits = session_traits<decltype(edges)>;
  const uint32_t sharers = traits::stored || !traits::divisible || warp::width == 1 ? 1 : warps_per_item(items);
  const uint64_t begin = static_cast<uint64_t>(warp::index()) * turn, end = items * sharers;
  if constexpr (ahead > 0) {
    for (uint64_t i = 0; i < ahead; ++i) prefetch(begin + i * stride);
  }
  for (uint64_t at = begin; at < end; at += stride) {
    if constexpr (ahead > 0) prefetch(at + ahead * stride);
    const uint64_t k = (at + warp::lane()) / sharers;
    const uint32_t share = static_cast<uint32_t>((at + warp::lane()) % sharers);
    run r{0, 0};
    Id from = 0;
    if (warp::lane() < turn && k < items) {
      const item<Id> it = queue[k];
      r = run_of(it, g.offset);
      from = it.vertex;
      // A piece of a long list may be as short, but does not consist of hubs.
      if (g.all_hubs(from)) {
        const hubs<Id> hub = g.hub[from];
#pragma unroll
        for (uint32_t i = 0; i < WB_GRAPH_HUBS; ++i) {
          if (share == 0 && i < r.count && visit(from, hub.id[i])) ++counts.hub_hits;
        }
        r.count = 0;
      }
      r = share_of(r, share, sharers);
    }
    counts.scanned += r.count;
    for_each_edge(edges, reader, r.first, r.count, from, [&](Id v, Id n) {
      if (is_valid_edge(edges, n, limit, counts.bad)) visit(v, n);
    });
  }
}

// Looks for a seen neighbour of every vertex that is not in open(word). It looks first among the vertex's hubs, which cost no edge,
// then in the rest of its list until one is found. Each warp takes words of 32 vertices and calls close(word, before, after) for
// each; `after` includes the vertices found.
template <class Id, class Source, class Open, class Close> WB_FN void scan_unseen(const bfs_lists<Id>& g, uint64_t words,
                                                                                  const Source& source, uint64_t limit, bfs_counts& counts,
                                                                                  Open open_word, Close close_word) {
  auto edges = source.open();
  const warp::mask_t all = warp::full();
  auto hub_is_seen = [&](uint32_t, uint64_t n) { return is_valid_edge(edges, n, limit, counts.bad) && g.is_seen(n); };
  const uint32_t turn = items_per_turn(words);
  const uint64_t turns = (words + turn - 1) / turn;
  for (uint64_t i = warp::index(); i < turns; i += warp::total()) {
    // Every other level goes backwards, so that it begins with the pages that are still in the cache.
    const uint64_t at = (g.level % 2 ? turns - 1 - i : i) * turn;
    const uint64_t own = at + warp::lane();
    uint32_t now = ~0u;
    if (warp::lane() < turn && own < words) now = open_word(own);
    uint32_t next = now;
    for (warp::mask_t open = warp::ballot(all, now != ~0u); open; open &= open - 1) {
      const uint32_t holder = warp::first(open);
      const uint32_t word = warp::shuffle(all, now, holder);
      const uint64_t base = (at + holder) * 32;
      if constexpr (session_traits<decltype(edges)>::stored && warp::width < 32) {
        // One lane to a warp: request all pages of the word's lists before waiting for the first.
        for (uint32_t rest = ~word; rest; rest &= rest - 1) {
          const uint64_t v = base + warp::first(rest);
          Id from;
          uint64_t first, last;
          if (g.rest_of(v, first, last) && !g.asks(v, from)) edges.prefetch(first, 1);
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
        counts.hub_hits += hit;
        const bool scan = candidate && !hit && g.rest_of(v, first, last);
        if (warp::any(all, scan)) hit |= any_edge(edges, first, last - first, from, counts.scanned, hub_is_seen);
        if (hit) {
          g.reach(v, from);
          ++counts.found;
        }
        reached |= warp::ballot(all, hit) << shift;
      }
      if (warp::lane() == holder) next |= reached;
    }
    if (warp::lane() < turn && own < words) close_word(own, now, next);
  }
}

// Executes scan_unseen without reading an edge, by hubs alone. Returns the number of this lane's remaining vertices that reading
// edges might find. Their lists are near to each other where neighbouring vertices have short ones: `degrees` counts the edges of the
// stretches of 32 lists that they lie in, at most a piece for each of them.
template <class Id, class Open, class Close>
WB_FN uint64_t scan_hubs(const bfs_lists<Id>& g, uint64_t words, bfs_counts& counts, Open open_word, Close close_word) {
  const warp::mask_t all = warp::full();
  uint64_t left = 0;
  for (uint64_t w = warp::index(); w < words; w += warp::total()) {
    const uint32_t word = open_word(w);
    uint32_t next = word;
    uint64_t begin = 0, end = 0, most = 0;
    for (uint32_t shift = 0; shift < 32 && word != ~0u; shift += warp::width) {
      const uint64_t v = w * 32 + shift + warp::lane();
      Id from = 0;
      const bool candidate = !((word >> (shift + warp::lane())) & 1u);
      const bool hit = candidate && g.asks(v, from);
      if (hit) {
        g.reach(v, from);
        ++counts.found;
        ++counts.hub_hits;
      }
      uint64_t first = 0, last = 0;
      const bool is_left = candidate && !hit && g.rest_of(v, first, last);
      left += is_left;
      if (const warp::mask_t lefts = warp::ballot(all, is_left)) {
        if (most == 0) begin = warp::shuffle(all, first, warp::first(lefts));
        end = warp::shuffle(all, last, warp::last(lefts));
        most += warp::count(lefts) * piece_edges;
      }
      next |= warp::ballot(all, hit) << shift;
    }
    if (warp::lane() == 0) {
      counts.degrees += end - begin < most ? end - begin : most;
      close_word(w, word, next);
    }
  }
  return left;
}

}  // namespace graph
}  // namespace warpbell
