// Set of identifiers that one warp fills and asks: the neighbours whose lists are intersected.
#pragma once

#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

#include "params.h"

namespace warpbell {
namespace graph {

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
  WB_FN uint32_t home(Key key) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15ull >> (64 - bits_));
  }

  Key* slots_;
  uint32_t bits_;
};

}  // namespace graph
}  // namespace warpbell
