// Ranks of vertices, and the set of neighbours that one warp fills and asks: parts of the intersection of lists.
#pragma once

#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

#include "work.cuh"

namespace warpbell {
namespace graph {

// Returns the length of a vertex's list.
WB_FN uint64_t degree_in(const uint64_t* offset, uint64_t v) { return offset[v + 1] - offset[v]; }

// Returns true if vertex `a` ranks above `b`, as it does in lists sorted by degree: by descending degree, and by number for equal
// degrees.
WB_FN bool ranks_above(uint64_t a, uint64_t degree_a, uint64_t b, uint64_t degree_b) {
  return degree_a > degree_b || (degree_a == degree_b && a < b);
}

// Returns the end of the part of a list that a set holds, which begins at `begin`: the end of the list, or a cut before it.
WB_FN uint64_t part_end(uint64_t begin, uint64_t end) { return end - begin <= piece_edges ? end : (begin / piece_edges + 1) * piece_edges; }

constexpr uint32_t marker_slots = WB_GRAPH_MARKER_SLOTS;
static_assert(marker_slots >= 2 * WB_GRAPH_PIECE_EDGES, "a piece fills half of a marker");

// Hash table with linear probing in memory of WB_GRAPH_MARKER_SLOTS keys. At most half of it is in use, so that a probe ends soon.
template <class Key> class marker {
 public:
  static constexpr Key empty = static_cast<Key>(~Key{0});

  WB_FN explicit marker(Key* slots) : slots_(slots), bits_(0) {}

  // Empties the set for at most `count` keys, at most WB_GRAPH_PIECE_EDGES. A set of few keys takes few slots, which are cleared soon.
  // All lanes of the warp call this.
  WB_FN void reset(uint32_t count) {
    warp::sync(warp::full());
    for (bits_ = 1; (1u << bits_) < 2 * count;) ++bits_;
    for (uint32_t i = warp::lane(); i < size(); i += warp::width) order::store<order::relaxed>(&slots_[i], empty);
    warp::sync(warp::full());
  }

  // Adds a key, which is not `empty`. Any lane calls this. Other lanes see the key after the warp's next sync.
  WB_FN void insert(Key key) {
    for (uint32_t at = home(key);; at = (at + 1) & (size() - 1)) {
      const Key before = order::compare_exchange<order::relaxed>(&slots_[at], empty, key);
      if (before == empty || before == key) return;
    }
  }

  // Returns true if the set has the key. Any lane calls this.
  WB_FN bool contains(Key key) const {
    for (uint32_t at = home(key);; at = (at + 1) & (size() - 1)) {
      const Key found = slots_[at];
      if (found == key) return true;
      if (found == empty) return false;
    }
  }

  // Returns the number of slots.
  WB_FN uint32_t size() const { return 1u << bits_; }

  // Returns the key of a slot, or `empty`; also for a slot beyond the last.
  WB_FN Key at(uint32_t slot) const { return slot < size() ? slots_[slot] : empty; }

 private:
  // Returns the slot where the search for a key begins (multiplicative hashing by 2^64 over the golden ratio).
  WB_FN uint32_t home(Key key) const { return static_cast<uint32_t>(static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15ull >> (64 - bits_)); }

  Key* slots_;
  uint32_t bits_;
};

// Calls f(has, key) with the keys of a set, one for each lane; `has` is false for a lane without one. Calls soon(key) for each key
// some turns before: with one lane to a warp no other lane keeps reads in flight. All lanes call this.
template <class Session, class Key, class Soon, class F> WB_FN void for_each_key(const marker<Key>& set, Soon soon, F f) {
  constexpr uint32_t ahead = session_traits<Session>::stored && warp::width < 32 ? 32 : 0;
  for (uint32_t slot = 0; slot < set.size() + ahead; slot += warp::width) {
    if constexpr (ahead > 0) {
      const Key next = set.at(slot + warp::lane());
      if (next != set.empty) soon(next);
      if (slot < ahead) continue;
    }
    const Key key = set.at(slot - ahead + warp::lane());
    f(key != set.empty, key);
  }
}

}  // namespace graph
}  // namespace warpbell
