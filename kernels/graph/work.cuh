// Distribution of work in graph kernels: many short lists to one warp, long lists in pieces; and the report of a launch.
#pragma once

#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

#include "packed.cuh"
#include "params.h"

#define WB_GRAPH_KERNEL WB_KERNEL void __launch_bounds__(WB_GRAPH_BLOCK_THREADS, WB_GRAPH_BLOCKS_PER_PROCESSOR)

namespace warpbell {
namespace graph {

// --- items of a launch ------------------------------------------------------------------------------------------------

// The items that this thread takes of `count`: for (uint64_t i = s.first; i < s.end; i += s.step). Lanes of a GPU take neighbours, so
// that a warp's accesses share lines. Threads of the CPU take a range each: two that write to one line wait for each other.
struct share {
  WB_FN explicit share(uint64_t count) : first(warp::thread_index()), end(count), step(warp::thread_total()) {
    if constexpr (warp::width == 1) {
      constexpr uint64_t line = 64;  // items of a byte and more
      const uint64_t each = ((count + step - 1) / step + line - 1) / line * line;
      first *= each;
      end = first + each < count ? first + each : count;
      step = 1;
    }
  }

  uint64_t first, end, step;
};

// --- report of a launch ----------------------------------------------------------------------------------------------

// Adds a count of every lane of the warp to one of the launch's sums. All lanes call this.
WB_FN void add_count(wb_graph_counters* sums, uint32_t which, uint64_t value) {
  value = warp::sum(warp::full(), value);
  if (value != 0 && warp::lane() == 0) order::fetch_add<order::relaxed>(&sums->sum[which], value);
}

// Adds a real number of every lane to one of the launch's sums, whose bits are a double. All lanes call this.
WB_FN void add_real(wb_graph_counters* sums, uint32_t which, double value) {
  value = warp::sum(warp::full(), value);
  if (value != 0.0 && warp::lane() == 0) atomicAdd(reinterpret_cast<double*>(&sums->sum[which]), value);
}

// Lowers the launch's least value to that of every lane. All lanes call this.
WB_FN void lower_least(wb_graph_counters* sums, uint64_t value) {
  for (uint32_t d = warp::width / 2; d; d /= 2) {
    const uint64_t other = warp::shuffle(warp::full(), value, warp::lane() ^ d);
    if (other < value) value = other;
  }
  if (value != ~uint64_t{0} && warp::lane() == 0) order::fetch_min<order::relaxed>(&sums->least, value);
}

// Ends a kernel: every thread calls this last. The last block copies the sums to the host and clears them for the next launch, so
// that the host needs no copy of its own.
WB_FN void publish(wb_graph_counters* sums, wb_graph_report* report) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (order::fetch_add<order::acq_rel>(&sums->blocks_done, 1u) + 1 != gridDim.x) return;
  for (uint32_t i = 0; i < WB_GRAPH_SUMS; ++i) {
    order::store<order::relaxed, order::system>(&report->sum[i], order::load<order::relaxed>(&sums->sum[i]));
    order::store<order::relaxed>(&sums->sum[i], uint64_t{0});
  }
  order::store<order::relaxed, order::system>(&report->least, order::load<order::relaxed>(&sums->least));
  order::store<order::relaxed>(&sums->least, ~uint64_t{0});
  order::store<order::relaxed>(&sums->blocks_done, 0u);
}

// Returns true if an edge leads to a vertex. Data from storage may be anything: the poison value of a page that could not be read,
// or data that was overwritten. Edges in memory were checked when they were written there.
template <class Session> WB_FN bool is_valid_edge(const Session&, uint64_t vertex, uint64_t vertices, uint64_t& bad) {
  if constexpr (session_traits<Session>::stored) {
    if (vertex >= vertices) {
      ++bad;
      return false;
    }
  }
  return true;
}

// --- hubs: neighbours that stay in fast memory ------------------------------------------------------------------------

// The hubs of a vertex, filled up with the largest identifier. A list of at most that many edges is here as a whole.
template <class Id> struct alignas(16) hubs {
  Id id[WB_GRAPH_HUBS];
};

// --- queues ----------------------------------------------------------------------------------------------------------

constexpr uint64_t piece_edges = WB_GRAPH_PIECE_EDGES;

// A vertex, or a piece of its list, that is to be expanded.
template <class Id> struct alignas(2 * sizeof(Id)) item {
  Id vertex;
  Id piece;
};

// A run of edges that one warp reads, at most `piece_edges`.
struct run {
  uint64_t first;
  uint32_t count;
};

// Returns the run from `begin` to `end`, or to the next multiple of `piece_edges` before `end`: a part of a list that has begun.
WB_FN run run_to_cut(uint64_t begin, uint64_t end) {
  const uint64_t cut = (begin / piece_edges + 1) * piece_edges;
  return run{begin, begin < end ? static_cast<uint32_t>((end < cut ? end : cut) - begin) : 0};
}

// Returns the number of items that a list of edges first..last needs; 0 if the list is empty.
WB_FN uint64_t piece_count(uint64_t first, uint64_t last) {
  if (last - first <= piece_edges) return last > first;
  return (last - 1) / piece_edges - first / piece_edges + 1;
}

// Returns the edges of an item.
template <class Id> WB_FN run run_of(item<Id> it, const uint64_t* offset) {
  uint64_t first = offset[it.vertex], last = offset[static_cast<uint64_t>(it.vertex) + 1];
  if (last - first > piece_edges) {
    const uint64_t begin = (first / piece_edges + it.piece) * piece_edges;
    if (begin > first) first = begin;
    if (begin + piece_edges < last) last = begin + piece_edges;
  }
  return run{first, static_cast<uint32_t>(last - first)};
}

// Appends the pieces of a long list, except for the first.
template <class Id> WB_FN void push_pieces(item<Id>* queue, uint64_t* length, Id vertex, uint64_t pieces) {
  if (pieces <= 1) return;
  const uint64_t at = order::fetch_add<order::relaxed>(length, pieces - 1);
  for (uint64_t p = 1; p < pieces; ++p) queue[at + p - 1] = item<Id>{vertex, static_cast<Id>(p)};
}

// Appends a vertex with edges first..last. Lanes that happen to be converged take their places with one atomic.
template <class Id> WB_FN void push(item<Id>* queue, uint64_t* length, Id vertex, uint64_t first, uint64_t last) {
  const uint64_t pieces = piece_count(first, last);
  if (pieces == 0) return;
  const warp::mask_t here = warp::active();
  uint64_t at = 0;
  if (warp::is_leader(here)) at = order::fetch_add<order::relaxed>(length, static_cast<uint64_t>(warp::count(here)));
  at = warp::shuffle(here, at, warp::leader(here)) + warp::rank(here);
  queue[at] = item<Id>{vertex, 0};
  push_pieces(queue, length, vertex, pieces);
}

// Appends the vertices whose bits are set in `bits(word)`, in ascending order within each warp's words, so that lists which share a
// page stay together. Returns the number of this lane's vertices; `degrees` grows by their edges. All lanes call this.
template <class Id, class Bits>
WB_FN uint64_t push_words(uint64_t vertices, item<Id>* queue, uint64_t* length, const uint64_t* offset, uint64_t& degrees, Bits bits) {
  const warp::mask_t all = warp::full();
  const uint64_t words = (vertices + 31) / 32;
  uint64_t pushed = 0;
  for (uint64_t base = static_cast<uint64_t>(warp::index()) * warp::width; base < words;
       base += static_cast<uint64_t>(warp::total()) * warp::width) {
    const uint64_t w = base + warp::lane();
    uint32_t word = w < words ? bits(w) : 0;
    const uint32_t own = warp::popcount(word);
    if (!warp::any(all, own != 0)) continue;
    uint32_t end = own;
    for (uint32_t d = 1; d < warp::width; d *= 2) {
      const uint32_t before = warp::shuffle(all, end, (warp::lane() + warp::width - d) % warp::width);
      if (warp::lane() >= d) end += before;
    }
    uint64_t at = 0;
    if (warp::lane() == warp::width - 1) at = order::fetch_add<order::relaxed>(length, static_cast<uint64_t>(end));
    at = warp::shuffle(all, at, warp::width - 1) + end - own;
    for (; word; word &= word - 1) {
      const uint64_t v = w * 32 + warp::first(word);
      const uint64_t first = offset[v], last = offset[v + 1];
      queue[at++] = item<Id>{static_cast<Id>(v), 0};
      push_pieces(queue, length, static_cast<Id>(v), piece_count(first, last));
      degrees += last - first;
    }
    pushed += own;
  }
  return pushed;
}

// Returns the number of items that a warp takes at a time: few if there are few, so that every warp gets some.
WB_FN uint32_t items_per_turn(uint64_t items) {
  constexpr uint64_t turns = 4;  // at least this many turns for each warp before a turn grows
  const uint64_t share = items / (static_cast<uint64_t>(warp::total()) * turns);
  if (share >= warp::width) return warp::width;
  return share > 1 ? static_cast<uint32_t>(share) : 1;
}

// Returns the number of warps that share an item. It is more than one if there are more warps than items, so that the longest item
// does not keep one warp busy while the others are idle. Each gets at least two rounds of a full piece.
WB_FN uint32_t warps_per_item(uint64_t items) {
  constexpr uint64_t most = piece_edges / (2 * warp::width);
  const uint64_t spare = items ? warp::total() / items : 1;
  return static_cast<uint32_t>(spare < 1 ? 1 : spare < most ? spare : most);
}

// Returns the part of a run that sharer `share` reads: whole lines.
WB_FN run share_of(run r, uint32_t share, uint32_t sharers) {
  if (sharers == 1) return r;
  const uint32_t part = ((r.count + sharers - 1) / sharers + warp::width - 1) / warp::width * warp::width;
  const uint32_t skipped = share * part < r.count ? share * part : r.count;
  const uint32_t left = r.count - skipped;
  return run{r.first + skipped, left < part ? left : part};
}

// --- many lists, one warp --------------------------------------------------------------------------------------------

// The runs of a warp's lanes laid end to end, so that lanes read neighbouring edges whatever the lengths.
class lane_runs {
 public:
  WB_FN lane_runs(uint64_t first, uint32_t count) : count_(count), end_(count) {
    for (uint32_t d = 1; d < warp::width; d *= 2) {
      const uint32_t before = warp::shuffle(warp::full(), end_, (warp::lane() + warp::width - d) % warp::width);
      if (warp::lane() >= d) end_ += before;
    }
    start_ = first - (end_ - count);
    total_ = warp::shuffle(warp::full(), end_, warp::width - 1);
  }

  WB_FN uint32_t total() const { return total_; }

  // Returns the lane whose run holds position k, k < total().
  WB_FN uint32_t owner(uint32_t k) const {
    uint32_t at = 0;
    for (uint32_t d = warp::width / 2; d; d /= 2) {
      if (warp::shuffle(warp::full(), end_, at + d - 1) <= k) at += d;
    }
    return at;
  }

  // Returns the edge at position k of the run of `owner`.
  WB_FN uint64_t index(uint32_t k, uint32_t owner) const { return warp::shuffle(warp::full(), start_, owner) + k; }

  // Returns the first lane of a round that holds a position of the run of `owner`, if one does.
  WB_FN uint32_t start_lane(uint32_t round, uint32_t owner) const {
    const uint32_t begin = warp::shuffle(warp::full(), end_ - count_, owner);
    return begin > round ? begin - round : 0;
  }

  // Returns the lanes that hold positions of this lane's run in the round of positions round..round+width.
  WB_FN warp::mask_t mine(uint32_t round) const {
    const uint32_t begin = end_ - count_;
    const uint32_t low = begin > round ? begin - round : 0;
    const uint32_t high = end_ > round ? (end_ - round < warp::width ? end_ - round : warp::width) : 0;
    return high > low ? static_cast<warp::mask_t>(((uint64_t{1} << (high - low)) - 1) << low) : 0;
  }

 private:
  uint64_t start_;  // index of the run's first edge minus the number of positions before it
  uint32_t count_;
  uint32_t end_;  // positions up to the run's end
  uint32_t total_;
};

// The edges at the positions of a round. `fetch` loads what storage or memory has of them, so that many rounds are on their way together;
// `value` then makes edges of it, of one round after the other.
template <class Session> class run_edges {
 public:
  using fetched = typename Session::value_type;

  // The run of this lane begins at `first`.
  WB_FN run_edges(Session& edges, uint64_t, bool) : edges_(edges) {}
  WB_FN fetched fetch(bool wants, uint64_t i) { return edges_.load(warp::full(), wants, i); }
  WB_FN typename Session::value_type value(const lane_runs&, uint32_t, uint32_t, fetched v) { return v; }

  // Returns true if f(edge) is true for an edge from `first` on, where the rounds of the run of lane `owner` have ended.
  template <class F> WB_FN bool any_of_rest(uint32_t, uint64_t first, uint64_t last, F f) {
    return edges_.any_of(warp::full(), first, last, f);
  }

 private:
  Session& edges_;
};

// Adds up gaps. `before_` is the edge of this lane's run in front of the next round.
template <class Value, class Loader> class run_edges<packed_session<Value, Loader>> {
  using session = packed_session<Value, Loader>;

 public:
  using fetched = typename session::arc;

  WB_FN run_edges(session& edges, uint64_t first, bool has) : edges_(edges), before_(edges.before(has, first)) {}
  WB_FN fetched fetch(bool wants, uint64_t i) { return edges_.fetch(wants, i); }
  WB_FN Value value(const lane_runs& runs, uint32_t round, uint32_t owner, fetched arc) {
    const uint32_t id = warp::shuffle(warp::full(), before_, owner) + session::prefix_sum(arc.step, runs.start_lane(round, owner));
    const warp::mask_t mine = runs.mine(round);
    const uint32_t last = warp::shuffle(warp::full(), id, mine ? warp::first(mine) + warp::count(mine) - 1 : warp::lane());
    if (mine) before_ = last;
    return arc.at(id);
  }
  template <class F> WB_FN bool any_of_rest(uint32_t owner, uint64_t first, uint64_t last, F f) {
    return edges_.any_of(first, last, warp::shuffle(warp::full(), before_, owner), f);
  }

 private:
  session& edges_;
  uint32_t before_;
};

// Fetches the edges of `Rounds` rounds of positions from `round` on, so that their loads are on their way together, and finds the lanes whose
// runs they belong to. All lanes call this.
template <class Session, uint32_t Rounds> WB_FN void fetch_rounds(const lane_runs& runs, run_edges<Session>& at, uint32_t round,
                                                                  typename run_edges<Session>::fetched (&v)[Rounds],
                                                                  uint32_t (&owner)[Rounds]) {
#pragma unroll
  for (uint32_t u = 0; u < Rounds; ++u) {
    const uint32_t k = round + u * warp::width + warp::lane();
    owner[u] = runs.owner(k < runs.total() ? k : runs.total() - 1);
    const uint64_t i = runs.index(k, owner[u]);
    v[u] = at.fetch(k < runs.total(), i);
  }
}

// Length from which on the whole warp walks a list on its own, in whole lines.
constexpr uint32_t long_list = 4 * warp::width;

// Requests the pages in which the lists of all lanes begin, and those in which short lists end, so that all are on their way before
// the warp waits for the first. Of large pages the walk itself has enough on their way. All lanes call this.
template <class Session> WB_FN void expect_lists(Session& edges, uint64_t first, uint64_t count) {
  if (!edges.joins_pages()) return;
  edges.expect(warp::full(), count != 0, first);
  edges.expect(warp::full(), count > 1 && count < long_list, first + count - 1);
}

// Reads runs of edges on the only lane of a warp.
template <class Session> class run_reader {
 public:
  WB_FN explicit run_reader(Session& edges) : edges_(edges) {}

  // Calls f(edge) for each edge.
  template <class F> WB_FN void for_each(uint64_t first, uint64_t last, F f) { edges_.for_each_chunk(warp::full(), first, last, f); }

 private:
  Session& edges_;
};

#if !WB_GPU
// Keeps the page that it read last, so that edges are plain loads. Most runs are short, and the next one is in the same page.
template <class T> class run_reader<array<T>> {
 public:
  WB_FN explicit run_reader(array<T>& edges) : page_(edges) {}

  template <class F> WB_FN void for_each(uint64_t first, uint64_t last, F f) {
    page_.visit(first, last, [&f](const T* edge, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i) f(edge[i]);
    });
  }

 private:
  page_handle<T> page_;
};
#endif

// Keeps the page that it read last, too.
template <class Value, class Loader> class run_reader<packed_session<Value, Loader>> {
 public:
  WB_FN explicit run_reader(packed_session<Value, Loader>& edges) : edges_(edges), word_(edges.cursor()) {}

  template <class F> WB_FN void for_each(uint64_t first, uint64_t last, F f) {
    edges_.walk_alone(word_, first, last, edges_.before_alone(word_, first), [&f](Value v) {
      f(v);
      return false;
    });
  }

 private:
  packed_session<Value, Loader>& edges_;
  word_cursor<Loader> word_;
};

// Calls f(tag, edge) for every edge of every lane's run, on the lane that holds the edge; `tag` is that of the run. All lanes of
// the warp call this; a lane without work has count 0. A run begins at the start of a list or of a piece.
//
// `reader` is of the same session, and lives as long as the walk over many runs.
template <class Session, class Tag, class F>
WB_FN void for_each_edge(Session& edges, [[maybe_unused]] run_reader<Session>& reader, uint64_t first, uint32_t count, Tag tag, F f) {
  using T = typename Session::value_type;
  const warp::mask_t all = warp::full();
  if constexpr (warp::width == 1) {
    if (count) reader.for_each(first, first + count, [&](T v) { f(tag, v); });
  } else {
    expect_lists(edges, first, count);
    for (warp::mask_t longs = warp::ballot(all, count >= long_list); longs; longs &= longs - 1) {
      const uint32_t from = warp::first(longs);
      const uint64_t begin = warp::shuffle(all, first, from);
      const uint32_t n = warp::shuffle(all, count, from);
      const Tag t = warp::shuffle(all, tag, from);
      edges.for_each_chunk(all, begin, begin + n, [&](T v) { f(t, v); });
    }
    const bool is_short = count != 0 && count < long_list;
    const lane_runs runs(first, is_short ? count : 0);
    run_edges<Session> at(edges, first, is_short);
    constexpr uint32_t unroll = session_traits<Session>::unroll;
    for (uint32_t round = 0; round < runs.total(); round += unroll * warp::width) {
      typename run_edges<Session>::fetched v[unroll]{};
      uint32_t owner[unroll];
      fetch_rounds(runs, at, round, v, owner);
#pragma unroll
      for (uint32_t u = 0; u < unroll; ++u) {
        const T edge = at.value(runs, round + u * warp::width, owner[u], v[u]);
        const Tag t = warp::shuffle(all, tag, owner[u]);
        if (round + u * warp::width + warp::lane() < runs.total()) f(t, edge);
      }
    }
  }
}

// Returns true if an edge of this lane's list passes the test; `which` is the first one found. Reads in rounds, and ignores a list
// once it has a result. test(owner, edge) runs on the lane that holds the edge, of the list of lane `owner`. `scanned` counts the edges
// that this lane tested. All lanes call this.
template <class Session, class Test>
WB_FN bool any_edge(Session& edges, uint64_t first, uint64_t count, typename Session::value_type& which, uint64_t& scanned, Test test) {
  using T = typename Session::value_type;
  const warp::mask_t all = warp::full();
  if constexpr (warp::width == 1) {
    if (count == 0) return false;
    run_edges<Session> at(edges, first, true);
    return at.any_of_rest(0, first, first + count, [&](T n) {
      ++scanned;
      if (!test(0, n)) return false;
      which = n;
      return true;
    });
  } else {
    // Heads of all lists together; tails, which are few, one list at a time.
    constexpr uint64_t head_edges = 2 * warp::width;
    const uint32_t head = static_cast<uint32_t>(count < head_edges ? count : head_edges);
    if (edges.joins_pages()) edges.expect(all, count != 0, first);
    const lane_runs runs(first, head);
    run_edges<Session> at(edges, first, head != 0);
    bool found = false;
    warp::mask_t answered = 0;
    for (uint32_t round = 0; round < runs.total(); round += warp::width) {
      const uint32_t k = round + warp::lane();
      const uint32_t owner = runs.owner(k < runs.total() ? k : runs.total() - 1);
      const uint64_t i = runs.index(k, owner);
      const bool wanted = k < runs.total() && !((answered >> owner) & 1);
      if (!warp::any(all, wanted)) continue;
      const T n = at.value(runs, round, owner, at.fetch(wanted, i));
      bool hit = false;
      if (wanted) {
        ++scanned;
        hit = test(owner, n);
      }
      const warp::mask_t hits = warp::ballot(all, hit) & runs.mine(round);
      const T winner = warp::shuffle(all, n, hits ? warp::first(hits) : warp::lane());
      if (hits && !found) {
        found = true;
        which = winner;
      }
      answered = warp::ballot(all, found);
    }
    for (warp::mask_t tails = warp::ballot(all, !found && count > head); tails; tails &= tails - 1) {
      const uint32_t from = warp::first(tails);
      const uint64_t begin = warp::shuffle(all, first, from) + head_edges;
      const uint64_t end = begin - head_edges + warp::shuffle(all, count, from);
      T n{};
      bool hit = false;
      const bool any = at.any_of_rest(from, begin, end, [&](T x) {
        ++scanned;
        if (!test(from, x)) return false;
        n = x;
        hit = true;
        return true;
      });
      if (!any) continue;
      n = warp::shuffle(all, n, warp::first(warp::ballot(all, hit)));
      if (warp::lane() == from) {
        found = true;
        which = n;
      }
    }
    return found;
  }
}

// --- the whole edge list in even shares ------------------------------------------------------------------------------

// Number of turns between the request for a tile and its use. With one lane to a warp no other lane keeps reads in flight.
constexpr uint64_t tiles_ahead = warp::width < 32 ? 4 : 1;

// Calls f(vertex, run) for the part of each list that lies in the tile of edges first..last, from the vertex `from` on and before `end`; one
// lane for each vertex. All lanes call f together; a lane without a part has a run without edges.
template <class F>
WB_FN void for_each_list_of_tile(const uint64_t* offset, uint64_t from, uint64_t end, uint64_t first, uint64_t last, F f) {
  for (uint64_t base = from; base < end; base += warp::width) {
    const uint64_t v = base + warp::lane();
    const uint64_t list = v < end ? offset[v] : last;
    const bool inside = list < last;
    run r{last, 0};
    if (inside) {
      r.first = list < first ? first : list;
      const uint64_t list_end = offset[v + 1] < last ? offset[v + 1] : last;
      if (list_end > r.first) r.count = static_cast<uint32_t>(list_end - r.first);
    }
    f(v, r);
    if (!warp::all(warp::full(), inside)) break;
  }
}

// Requests the edges of a tile that the warp reads soon. With one lane to a warp no other lane keeps reads in flight. Otherwise tiles of
// one page gain nothing, unlike those of a part of a page: the warps wait for few pages then.
template <class Session> WB_FN void expect_tile(Session& edges, uint64_t from, uint64_t to) {
  if (warp::width < 32 || edges.joins_pages()) edges.expect_range(warp::full(), from, to);
}
template <class Value, class Loader> WB_FN void expect_tile(packed_session<Value, Loader>& edges, uint64_t from, uint64_t to) {
  edges.expect_range(warp::full(), from, to);
}

// Reads the edges of a tile together, if the session can. Until the next tile, the warp reads no edges but those of this one.
template <class Session> WB_FN void take_tile(Session&, uint64_t, uint64_t) {}
template <class Value, class Loader> WB_FN void take_tile(packed_session<Value, Loader>& edges, uint64_t from, uint64_t to) {
  edges.take_tile(from, to);
}

// Calls f(vertices_from, edges_from, edges_to) for this warp's tiles of `piece_edges` edges, of `count` edges from `begin` on, a multiple of
// that. `tile[t]` is the vertex that holds the first edge of tile t. Neighbouring warps take neighbouring tiles, so the grid sweeps the list
// once, in either direction. `Whole`: all edges of each tile are read.
template <bool Whole, class Session, class Id, class F>
WB_FN void for_each_tile(Session& edges, const Id* tile, uint64_t begin, uint64_t count, bool backward, F f) {
  const uint64_t tiles = (count + piece_edges - 1) / piece_edges;
  const auto tile_of = [&](uint64_t i) { return backward ? tiles - 1 - i : i; };
  const auto first_of = [&](uint64_t t) { return begin + t * piece_edges; };
  const auto end_of = [&](uint64_t t) { return begin + ((t + 1) * piece_edges < count ? (t + 1) * piece_edges : count); };
  const auto ask = [&](uint64_t i) {
    if (Whole && i < tiles) expect_tile(edges, first_of(tile_of(i)), end_of(tile_of(i)));
  };
  for (uint64_t n = 0; n < tiles_ahead; ++n) ask(warp::index() + n * warp::total());
  for (uint64_t i = warp::index(); i < tiles; i += warp::total()) {
    ask(i + tiles_ahead * warp::total());
    const uint64_t t = tile_of(i);
    if (Whole) take_tile(edges, first_of(t), end_of(t));
    f(static_cast<uint64_t>(tile[t]), first_of(t), end_of(t));
  }
}

}  // namespace graph
}  // namespace warpbell
