// Neighbour lists that are packed, as an edge source (edges.cuh). Lists ascend. The arcs of all lists, one list behind the other, are cut
// into blocks of `piece_edges` arcs, and each block into groups of 32. An arc is coded as its gap: the number of identifiers between it and
// the arc before it in its list, or, of the first arc of a list, its identifier. The gaps of a group have one width. A block is a run of
// 32-bit words:
//
//   word 0      the arc in front of the block in the same list, or all ones if a list begins with the block
//   16 words    for each group, in 16 bits, its first word behind this index (10 bits), and its width (6 bits, 0 to 32)
//   the groups  `width` words each: the gap of arc k of the group begins at bit k * width
//
// With weights the index has 32 bits for each group: its first word (12 bits), the width of its gaps and that of its weights (6 bits each).
// A group's weights stand behind its gaps, in the same way. host/graph/packed writes this.
//
// An arc is the sum of the gaps in front of it, so a list is walked from where a sum is known: from its first arc, or from the first arc
// of a block. Runs begin there.
#pragma once

#include "edges.cuh"
#include "params.h"
#include "window.cuh"

namespace warpbell {
namespace graph {

constexpr uint32_t group_edges = WB_PACKED_GROUP_EDGES;
constexpr uint32_t group_count = WB_GRAPH_PIECE_EDGES / WB_PACKED_GROUP_EDGES;
// Words of a block in front of its groups.
template <bool Weighted> constexpr uint32_t head_words = 1 + (Weighted ? group_count : group_count / 2);
static_assert(head_words<true> + 2 * WB_PACKED_GROUP_EDGES <= window_words, "a group of any width fits");
// In front of the first arc of a list: the arc is this plus its gap plus one, in 32 bits.
constexpr uint32_t before_list = ~0u;

// Gap and weight of an arc, before it is known which arc it is.
template <class Value> struct packed_arc {
  uint32_t step;  // gap + 1, or 0 for none
  WB_FN Value at(uint32_t id) const { return id; }
  WB_FN void set_weight(uint32_t) {}
  static constexpr bool is_weighted = false;
};

template <class Weight> struct packed_arc<weighted<uint32_t, Weight>> {
  uint32_t step;
  uint32_t weight;
  WB_FN weighted<uint32_t, Weight> at(uint32_t id) const {
    weighted<uint32_t, Weight> arc;
    arc.id = id;
    memcpy(&arc.weight, &weight, sizeof arc.weight);
    return arc;
  }
  WB_FN void set_weight(uint32_t bits) { weight = bits; }
  static constexpr bool is_weighted = true;
};

// A group of a block, as the block's index describes it.
struct packed_group {
  uint64_t word;  // of its gaps
  uint32_t width, weight_width;

  // `entry` is the word of the index that describes group g, of the block that begins at word `block`.
  template <bool Weighted> WB_FN static packed_group of(uint64_t block, uint32_t g, uint32_t entry) {
    // Bits of storage may be anything: with these limits no shift is undefined, and an array refuses a word that it does not have.
    const auto at_most = [](uint32_t width) { return width < 32 ? width : 32; };
    const uint64_t groups = block + head_words<Weighted>;
    if constexpr (Weighted) {
      return packed_group{groups + (entry & 0xfff), at_most((entry >> 12) & 63), at_most((entry >> 18) & 63)};
    } else {
      const uint32_t half = g % 2 ? entry >> 16 : entry & 0xffff;
      return packed_group{groups + (half & 0x3ff), at_most(half >> 10), 0};
    }
  }

  // Returns the word behind the group.
  WB_FN uint64_t end() const { return word + width + weight_width; }

  // Returns the word of the index that describes group g.
  template <bool Weighted> WB_FN static uint64_t index_word(uint64_t block, uint32_t g) { return block + 1 + (Weighted ? g : g / 2); }
};

// Returns `width` bits that begin at bit `bit` behind word `from`; `word(wants, i)` loads a word for each lane that wants one.
template <class Word> WB_FN uint32_t packed_bits(Word word, bool wants, uint64_t from, uint32_t bit, uint32_t width) {
  const uint64_t at = from + bit / 32;
  const uint32_t shift = bit % 32;
  const bool straddles = shift + width > 32;
  const uint32_t low = word(wants && width != 0, at);
  const uint32_t high = word(wants && straddles, at + 1);
  uint32_t v = low >> shift;
  if (straddles) v |= high << (32 - shift);
  return width < 32 ? v & ((1u << width) - 1) : v;
}

// Words of 32 bits one behind the other, for the only lane of a warp.
template <class Loader> class word_cursor {
 public:
  WB_FN explicit word_cursor(Loader& words) : words_(words) {}
  WB_FN uint32_t operator()(bool wants, uint64_t i) { return words_.load(warp::full(), wants, i); }

 private:
  Loader& words_;
};

#if !WB_GPU
// Keeps the page that it read last.
template <> class word_cursor<array<uint32_t>> {
 public:
  explicit word_cursor(array<uint32_t>& words) : page_(words) {}
  uint32_t operator()(bool wants, uint64_t i) { return wants ? page_.load(i) : 0; }

 private:
  page_handle<uint32_t> page_;
};
#endif

// Session on packed lists, whose words are read through the session `Loader`. All lanes of a warp call its members together.
template <class Value, class Loader> class packed_session {
 public:
  using value_type = Value;
  using arc = packed_arc<Value>;

  template <class Source> WB_FN packed_session(const Source& words, const uint64_t* position) : words_(words.open()), position_(position) {}

  // Returns the arc in front of `first`, at which a run begins, in its list.
  WB_FN uint32_t before(bool wants, uint64_t first) {
    const bool inside = wants && first % WB_GRAPH_PIECE_EDGES == 0;
    if (!warp::any(warp::full(), inside)) return before_list;
    if (has_tile_) return inside ? window_[0] : before_list;
    const uint32_t known = words_.load(warp::full(), inside, inside ? position_[first / WB_GRAPH_PIECE_EDGES] : 0);
    return inside ? known : before_list;
  }

  // Returns the gap of arc i.
  WB_FN arc fetch(bool wants, uint64_t i) {
    if (has_tile_) return arc_in_window(wants, i, 0);
    const auto word = [this](bool lane_wants, uint64_t at) { return words_.load(warp::full(), lane_wants, at); };
    const uint64_t block = wants ? position_[i / WB_GRAPH_PIECE_EDGES] : 0;
    return arc_of(word, wants, entry(word, wants, block, group_of(i)), static_cast<uint32_t>(i % group_edges));
  }

  // Reads a tile at once, if it is a block, or a part of one, that the window has room for. Until the next tile, the warp asks for no arcs
  // but those of this one.
  WB_FN void take_tile(uint64_t first, uint64_t last) {
    if constexpr (warp::width == 1) return;
    const uint64_t from = position_[first / WB_GRAPH_PIECE_EDGES], to = position_[first / WB_GRAPH_PIECE_EDGES + 1];
    has_tile_ = first / WB_GRAPH_PIECE_EDGES == (last - 1) / WB_GRAPH_PIECE_EDGES && to - from <= window_words;
    if (has_tile_) window_.copy(words_, from, to, 0);
  }

  // Calls f(edge) for the edges first..last, on the lane that holds the edge.
  template <class F> WB_FN void for_each_chunk(warp::mask_t, uint64_t first, uint64_t last, F f) {
    uint32_t before = before_list;
    if constexpr (warp::width == 1) {
      auto word = cursor();
      walk_alone(word, first, last, before_alone(word, first), [&f](Value v) {
        f(v);
        return false;
      });
    } else if (has_tile_) {
      if (first % WB_GRAPH_PIECE_EDGES == 0) before = window_[0];
      visit(first, last, 0, before, f);
    } else {
      for (uint64_t end; first < last; first = end) {
        const uint64_t cut = (first / WB_GRAPH_PIECE_EDGES + 1) * WB_GRAPH_PIECE_EDGES;
        end = cut < last ? cut : last;
        visit_block(first, end, before, f);
      }
    }
  }

  // Returns true if f(edge) is true for an edge of first..last, behind the arc `before`.
  template <class F> WB_FN bool any_of(uint64_t first, uint64_t last, uint32_t before, F f) { return walk(first, last, before, f); }

  // One lane walks alone: `word` is a word_cursor.
  template <class Word, class F> WB_FN bool walk_alone(Word& word, uint64_t first, uint64_t last, uint32_t before, F f) const {
    for (uint64_t i = first; i < last;) {
      const uint64_t block = position_[i / WB_GRAPH_PIECE_EDGES], block_end = (i / WB_GRAPH_PIECE_EDGES + 1) * WB_GRAPH_PIECE_EDGES;
      const uint64_t end = block_end < last ? block_end : last;
      // The index first: it may be in another page than the groups.
      packed_group group[group_count];
      const uint32_t from = static_cast<uint32_t>(i % WB_GRAPH_PIECE_EDGES / group_edges);
      const uint32_t groups = static_cast<uint32_t>((end - 1) % WB_GRAPH_PIECE_EDGES / group_edges) - from + 1;
      for (uint32_t g = 0; g < groups; ++g) group[g] = entry(word, true, block, from + g);
      for (uint32_t g = 0; i < end; ++i) {
        const uint32_t k = static_cast<uint32_t>(i % group_edges);
        const arc a = arc_of(word, true, group[g], k);
        before += a.step;
        if (f(a.at(before))) return true;
        g += k == group_edges - 1;
      }
    }
    return false;
  }
  WB_FN word_cursor<Loader> cursor() { return word_cursor<Loader>(words_); }
  // As `before`, for one lane alone.
  template <class Word> WB_FN uint32_t before_alone(Word& word, uint64_t first) const {
    return first % WB_GRAPH_PIECE_EDGES ? before_list : word(true, position_[first / WB_GRAPH_PIECE_EDGES]);
  }

  WB_FN void prefetch(uint64_t first, uint64_t count) {
    if (count == 0) return;
    const uint64_t begin = position_[first / WB_GRAPH_PIECE_EDGES];
    words_.prefetch(begin, about(first + count - 1) - begin + 1);
  }
  WB_FN void expect(warp::mask_t mask, bool wants, uint64_t i) {
    words_.expect(mask, wants, wants ? position_[i / WB_GRAPH_PIECE_EDGES] : 0);
    words_.expect(mask, wants, wants ? about(i) : 0);
  }
  WB_FN void expect_range(warp::mask_t mask, uint64_t first, uint64_t last) {
    if (first >= last) return;
    words_.expect_range(mask, position_[first / WB_GRAPH_PIECE_EDGES], about(last - 1) + 1);
  }
  WB_FN bool joins_pages() const { return words_.joins_pages(); }

 private:
  template <class Word> WB_FN static packed_group entry(Word& word, bool wants, uint64_t block, uint32_t g) {
    return packed_group::of<arc::is_weighted>(block, g, word(wants, packed_group::index_word<arc::is_weighted>(block, g)));
  }

  template <class Word> WB_FN static arc arc_of(Word& word, bool wants, const packed_group& group, uint32_t k) {
    arc a{};
    const uint32_t gap = packed_bits([&word](bool w, uint64_t i) { return word(w, i); }, wants, group.word, k * group.width, group.width);
    if constexpr (arc::is_weighted) {
      const uint64_t weights = group.word + group.width;
      a.set_weight(
          packed_bits([&word](bool w, uint64_t i) { return word(w, i); }, wants, weights, k * group.weight_width, group.weight_width));
    }
    a.step = wants ? gap + 1 : 0;
    return a;
  }

  WB_FN static uint32_t group_of(uint64_t i) { return static_cast<uint32_t>(i % WB_GRAPH_PIECE_EDGES / group_edges); }

  // Returns the description of group g of the block whose head the window has; its words are counted from the block's first one.
  WB_FN packed_group group_in_window(uint32_t g) const {
    return packed_group::of<arc::is_weighted>(0, g, window_[static_cast<uint32_t>(packed_group::index_word<arc::is_weighted>(0, g))]);
  }

  // Returns the gap of arc i of a block whose head the window has, and the words of whose group stand `shift` places before those of the head.
  WB_FN arc arc_in_window(bool wants, uint64_t i, uint32_t shift) const {
    const auto word = [this, shift](bool lane_wants, uint64_t at) {
      // Bits of storage may be anything.
      const uint32_t place = static_cast<uint32_t>(at) - shift;
      return lane_wants ? window_[place < window_words ? place : window_words - 1] : 0;
    };
    return arc_of(word, wants, group_in_window(group_of(i)), static_cast<uint32_t>(i % group_edges));
  }

  // Calls f(edge) for the arcs first..last of a block, as `arc_in_window` finds them. `before` is the arc in front, and then the last one.
  template <class F> WB_FN void visit(uint64_t first, uint64_t last, uint32_t shift, uint32_t& before, F& f) const {
    const auto arc_at = [this, shift](bool wants, uint64_t i) { return arc_in_window(wants, i, shift); };
    rounds<false, 4>(first, last, before, arc_at, f);
  }

  // Calls f(edge) for the arcs first..last of a block: reads its head, and then as many groups at a time as the window has room for.
  template <class F> WB_FN void visit_block(uint64_t first, uint64_t last, uint32_t& before, F& f) {
    constexpr uint32_t head = head_words<arc::is_weighted>;
    const uint64_t block = position_[first / WB_GRAPH_PIECE_EDGES], base = first / WB_GRAPH_PIECE_EDGES * WB_GRAPH_PIECE_EDGES;
    window_.copy(words_, block, block + head, 0);
    if (first == base) before = window_[0];
    const uint32_t groups = group_of(last - 1) + 1;
    for (uint32_t g = group_of(first), end; g < groups; g = end) {
      end = g + fitting_groups(g, groups);
      const uint64_t from = group_in_window(g).word, to = group_in_window(end - 1).end();
      window_.copy(words_, block + from, block + to, head);
      const uint64_t begin = base + g * group_edges, until = base + end * group_edges;
      visit(begin < first ? first : begin, until < last ? until : last, static_cast<uint32_t>(from) - head, before, f);
    }
  }

  // Returns the number of groups, from g on and before `end`, that stand one behind the other and fit the window: one at least.
  WB_FN uint32_t fitting_groups(uint32_t g, uint32_t end) const {
    constexpr uint32_t room = window_words - head_words<arc::is_weighted>;
    const uint32_t own = g + warp::lane();
    bool fits = own < end;
    if (fits && own != g) {
      const packed_group group = group_in_window(own);
      fits = group.word == group_in_window(own - 1).end() && group.end() - group_in_window(g).word <= room;
    }
    return warp::prefix(warp::full(), fits);
  }

  // Returns a word near to arc i: gaps of a block have about the same widths.
  WB_FN uint64_t about(uint64_t i) const {
    const uint64_t begin = position_[i / WB_GRAPH_PIECE_EDGES], end = position_[i / WB_GRAPH_PIECE_EDGES + 1];
    return begin + (end - begin) * (i % WB_GRAPH_PIECE_EDGES) / WB_GRAPH_PIECE_EDGES;
  }

  // Walks the arcs until f is true for one. All lanes get the same result.
  template <class F> WB_FN bool walk(uint64_t first, uint64_t last, uint32_t before, F f) {
    if constexpr (warp::width == 1) {
      auto word = cursor();
      return walk_alone(word, first, last, before, f);
    } else {
      const auto arc_at = [this](bool wants, uint64_t i) { return fetch(wants, i); };
      return rounds<true, session_traits<packed_session>::unroll>(first, last, before, arc_at, f);
    }
  }

  // Walks arcs in whole rounds of as many as there are lanes, `Unroll` rounds at a time; until f is true for one, if it `Stops`.
  template <bool Stops, uint32_t Unroll, class Fetch, class F>
  WB_FN static bool rounds(uint64_t first, uint64_t last, uint32_t& before, Fetch arc_at, F& f) {
    for (uint64_t round = first & ~static_cast<uint64_t>(warp::width - 1); round < last; round += Unroll * warp::width) {
      arc a[Unroll];
#pragma unroll
      for (uint32_t u = 0; u < Unroll; ++u) {
        const uint64_t i = round + u * warp::width + warp::lane();
        a[u] = arc_at(i >= first && i < last, i);
      }
      bool stop = false;
#pragma unroll
      for (uint32_t u = 0; u < Unroll; ++u) {
        const uint64_t i = round + u * warp::width + warp::lane();
        const uint32_t id = before + prefix_sum(a[u].step, 0);
        before = warp::shuffle(warp::full(), id, warp::width - 1);
        if (i < first || i >= last) continue;
        if constexpr (Stops) {
          stop |= f(a[u].at(id));
        } else {
          f(a[u].at(id));
        }
      }
      if (Stops && warp::any(warp::full(), stop)) return true;
    }
    return false;
  }

 public:
  // Returns the sum of the values of lanes `from` to this one. All lanes call this.
  WB_FN static uint32_t prefix_sum(uint32_t value, uint32_t from) {
    for (uint32_t d = 1; d < warp::width; d *= 2) {
      const uint32_t below = warp::shuffle(warp::full(), value, (warp::lane() + warp::width - d) % warp::width);
      if (warp::lane() >= from + d) value += below;
    }
    return value;
  }

 private:
  Loader words_;
  const uint64_t* position_;
  window window_;
  bool has_tile_ = false;  // the window has the whole block that the warp reads
};

template <class Value, class Loader> struct session_traits<packed_session<Value, Loader>> {
  static constexpr bool stored = session_traits<Loader>::stored;
  static constexpr uint32_t unroll = session_traits<Loader>::unroll;
  static constexpr bool divisible = false;
};

// Packed lists as a source: `words` is an edge source of 32-bit words, and `position` has the first word of each block, and the end.
template <class Value, class Source> struct packed_source {
  Source words;
  const uint64_t* position;
  WB_FN auto open() const { return packed_session<Value, decltype(words.open())>(words, position); }
};

}  // namespace graph
}  // namespace warpbell

// Kernels over packed lists in memory and on storage: WB_PACKED_KERNELS(name, parameters, function), where the kernel is
// function(parameters, source).
#define WB_PACKED_KERNELS(NAME, PARAMETERS, ...)                                                      \
  WB_PACKED_KERNEL(NAME, pointer, warpbell::graph::pointer_source<uint32_t>, PARAMETERS, __VA_ARGS__) \
  WB_PACKED_KERNEL(NAME, storage, warpbell::array_ref<uint32_t>, PARAMETERS, __VA_ARGS__)
#define WB_PACKED_KERNEL(NAME, WHERE, SOURCE, PARAMETERS, ...)                                                          \
  WB_GRAPH_KERNEL NAME##_packed_##WHERE##_u32(WB_PARAM PARAMETERS p, WB_PARAM SOURCE words, const uint64_t* position) { \
    __VA_ARGS__(p, warpbell::graph::packed_source<uint32_t, SOURCE>{words, position});                                  \
  }                                                                                                                     \
  WB_EXPORT(NAME##_packed_##WHERE##_u32)
