// Frames of a page cache: their pins and locks, and the choice of one for a page. cache.cuh lists the changes of a tag.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/order.cuh>
#include <warpbell/tags.cuh>
#include <warpbell/volume.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {

// Functions on frames. They take the cache's constants by reference: from a kernel parameter, a copy in registers, or memory.
namespace frames {

constexpr uint32_t none = ~0u;

// A command to submit for a frame.
struct pending_io {
  uint32_t way = none;
  uint64_t tag = 0;
};

/// @brief Returns the set of a page.
WB_FN uint32_t set_of(const wb_cache& c, uint64_t page) { return static_cast<uint32_t>(page) & c.set_mask; }

/// @brief Returns the home way of a page, (page / sets) mod ways, by multiplication; exact for the 28 bits that are used.
WB_FN uint32_t home_way(const wb_cache& c, uint64_t page) {
  constexpr uint32_t exact = (1u << 28) - 1;
  uint32_t n = static_cast<uint32_t>(page >> c.log2_sets) & exact;
  uint32_t q = static_cast<uint32_t>((static_cast<uint64_t>(n) * c.way_reciprocal) >> 32);
  return n - q * c.ways;
}
/// @brief Returns the index of a way of a set in the cache's tables.
WB_FN uint32_t entry(const wb_cache& c, uint32_t set, uint32_t way) { return set * c.ways + way; }
/// @brief Returns the address of a frame's tag word.
WB_FN uint64_t* tag(const wb_cache& c, uint32_t entry) { return c.tag + entry; }
/// @brief Returns the address of a frame's number of pins.
WB_FN uint32_t* pins(const wb_cache& c, uint32_t entry) { return c.pins + entry; }
/// @brief Returns the address of a frame's `fill` word.
WB_FN uint64_t* fill(const wb_cache& c, uint32_t entry) { return c.fill + entry; }
/// @brief Returns the address of a frame's data.
WB_FN uint64_t address(const wb_cache& c, uint32_t set, uint32_t way) {
  return c.frames + (static_cast<uint64_t>((way << c.log2_sets) + set) << c.page_shift);
}

/// @brief Returns the way that holds or will hold a page, or `none`. `found` is its tag (relaxed, device). One thread calls this.
WB_FN uint32_t find(const wb_cache& c, uint32_t set, uint64_t page, uint64_t& found) {
  constexpr uint32_t at_once = 4;  // loads in flight
  const uint64_t* row = tag(c, entry(c, set, 0));
  for (uint32_t w = 0; w < c.ways; w += at_once) {
    uint64_t t[at_once];
#pragma unroll
    for (uint32_t j = 0; j < at_once; ++j) t[j] = w + j < c.ways ? order::load<order::relaxed>(row + w + j) : 0;
#pragma unroll
    for (uint32_t j = 0; j < at_once; ++j) {
      if (tags::names(t[j], page)) {
        found = t[j];
        return w + j;
      }
    }
  }
  return none;
}

// Tells CLOCK about a read. Nothing is lost if the tag has changed meanwhile.
WB_FN void touch(const uint64_t* tag, uint64_t seen) {
  order::compare_exchange<order::relaxed>(const_cast<uint64_t*>(tag), seen, seen | WB_TAG_REFERENCED);
}

/// @brief Removes `count` pins. One thread calls this; a release on scope device.
///
/// @note Reads under the pin are performed before; the eviction's look at the pins acquires.
WB_FN void unpin(const wb_cache& c, uint32_t entry, uint32_t count) { order::add<order::release>(pins(c, entry), 0u - count); }

/// @brief Adds `count` pins if the frame belongs to the page. One thread calls this; an acquire and release on scope device.
///
/// @param state Bits to set in the tag if the frame holds the page.
/// @return False if the frame belongs to another page; then no pin remains.
WB_FN bool pin(const wb_cache& c, uint32_t entry, uint64_t page, uint32_t count, uint64_t state) {
  order::fetch_add<order::acq_rel>(pins(c, entry), count);
  uint64_t* word = tag(c, entry);
  uint64_t t = order::load<order::acquire>(word);
  while (tags::names(t, page)) {
    uint64_t next = t & WB_TAG_VALID ? t | state : t;
    uint64_t was = order::compare_exchange<order::acq_rel>(word, t, next);
    if (was == t) return true;
    t = was;
  }
  unpin(c, entry, count);
  return false;
}

/// @brief Adds `count` pins to a frame that should hold the page already. One thread calls this; an acquire and release on scope
/// device.
///
/// @return False if the frame does not hold the page; then no pin remains. Does not loop.
WB_FN bool pin_held(const wb_cache& c, uint32_t entry, uint64_t page, uint32_t count) {
  // The tag's read-modify-write releases the pin: an eviction that comes after it in the tag's modification order sees the pin.
  order::add<order::relaxed>(pins(c, entry), count);
  const uint64_t t = order::fetch_or<order::acq_rel>(tag(c, entry), uint64_t{0});
  if (tags::holds(t, page)) {
    if (!(t & WB_TAG_REFERENCED)) touch(tag(c, entry), t);
    return true;
  }
  unpin(c, entry, count);
  return false;
}

/// @brief Sets state bits of a frame that the caller has pinned. One thread calls this.
///
/// Another thread may have claimed the frame and not yet seen the pin: DIRTY survives that.
WB_FN void mark(const wb_cache& c, uint32_t entry, uint64_t state) {
  uint64_t* word = tag(c, entry);
  uint64_t t = order::load<order::relaxed>(word);
  while (true) {
    uint64_t was = order::compare_exchange<order::acq_rel>(word, t, t | state);
    if (was == t) return;
    t = was;
  }
}

// Takes a set's lock if it is free. Never waits.
WB_FN bool try_lock(const wb_cache& c, uint32_t set) {
  uint32_t* lock = c.set_lock + set;
  return order::load<order::relaxed>(lock) == 0 && order::compare_exchange<order::acq_rel>(lock, 0u, 1u) == 0;
}
WB_FN void unlock(const wb_cache& c, uint32_t set) { order::store<order::release>(c.set_lock + set, 0u); }

/// @brief Returns the cache's volume.
WB_FN volume_ref volume(const wb_cache& c) { return volume_ref(c.volume); }
/// @brief Returns the run's control block.
WB_FN const wb_control* control(const wb_cache& c) { return c.volume->control; }
/// @brief Returns true if pages are compared with checksums after a read. Pages smaller than the unit of a checksum are not.
WB_FN bool has_checksums(const wb_cache& c) { return c.page_shift >= WB_CHECKSUM_SHIFT && volume(c).checksums().count != 0; }
/// @brief Returns true if the run has failed (relaxed, device).
WB_FN bool aborted(const wb_cache& c) { return order::load<order::relaxed>(control(c)->abort) != 0; }
/// @brief Returns true if a thread raised an error, or the host set the stop flag (relaxed).
WB_FN bool ended(const wb_cache& c) { return aborted(c) || order::load<order::relaxed, order::system>(control(c)->stop) != 0; }

/// @brief Adds `n` to a counter of the volume's statistics (relaxed, device). One thread calls this.
WB_FN void count(const wb_cache& c, uint64_t wb_stats::* what, uint64_t n) {
  wb_stats* stripes = c.volume->stats;
  order::fetch_add<order::relaxed>(&(stripes[warp::processor() % WB_STATS_STRIPES].*what), n);
}

// Returns true if an attempt to claim a frame may succeed. Only a hint: the claim itself decides. Stress tests skip the hint, so
// that claims and pins cross often and not once in a million.
WB_FN bool looks_idle([[maybe_unused]] const wb_cache& c, [[maybe_unused]] uint32_t entry) {
#if defined(WB_CLAIM_BLINDLY)
  return true;
#else
  return order::load<order::relaxed>(pins(c, entry)) == 0;
#endif
}

// Point between the CAS of the tag and the look at the pins. Stress tests call the function there that the macro names.
WB_FN void cross() {
#if defined(WB_CLAIM_BLINDLY)
  WB_CLAIM_BLINDLY();
#endif
}

// The caller of the functions below holds the set's lock.

// Takes an idle frame away from its page, so that no thread finds or pins it. `t` becomes the claimed tag.
WB_FN bool claim(const wb_cache& c, uint32_t entry, uint64_t& t) {
  if (!looks_idle(c, entry)) return false;
  uint64_t claimed = tags::advance(t, 0);
  if (order::compare_exchange<order::acq_rel>(tag(c, entry), t, claimed) != t) return false;
  cross();
  const bool pinned = order::fetch_add<order::acq_rel>(pins(c, entry), 0u) != 0;
  // No thread can pin the frame now, so without pins the tag stays as it is.
  uint64_t now = order::load<order::acquire>(tag(c, entry));
  if (pinned || now != claimed) {
    while (true) {
      const uint64_t was = order::compare_exchange<order::acq_rel>(tag(c, entry), now, t | (now & WB_TAG_DIRTY));
      if (was == now) return false;
      now = was;
    }
  }
  if (t & (WB_TAG_VALID | WB_TAG_UNCHECKED)) count(c, &wb_stats::evictions, 1);
  t = claimed;
  return true;
}

// Turns a dirty frame into one whose write-back is in flight. The caller submits the write. Readers continue to read the frame.
WB_FN bool begin_write(const wb_cache& c, uint32_t entry, uint64_t& t) {
  if (!looks_idle(c, entry)) return false;
  constexpr uint64_t clear = WB_TAG_DIRTY | WB_TAG_FAILED;
  uint64_t writing = tags::advance(t, (t & tags::state_mask & ~clear) | WB_TAG_WRITING);
  order::store<order::relaxed>(fill(c, entry), tags::pending(writing));
  if (order::compare_exchange<order::acq_rel>(tag(c, entry), t, writing) != t) return false;
  cross();
  if (order::fetch_add<order::acq_rel>(pins(c, entry), 0u) != 0) {
    uint64_t now = writing;
    while (true) {
      uint64_t was = order::compare_exchange<order::acq_rel>(tag(c, entry), now, (now & ~uint64_t{WB_TAG_WRITING}) | WB_TAG_DIRTY);
      if (was == now) return false;
      now = was;
    }
  }
  t = writing;
  return true;
}

// Takes the frame of a certain way away from its page, if it is idle and clean. A gentle claim leaves a frame that was used since
// the hand passed. `t` becomes the claimed tag.
WB_FN bool claim_way(const wb_cache& c, uint32_t set, uint32_t way, bool gentle, uint64_t& t) {
  const uint64_t kept = WB_TAG_FILLING | WB_TAG_WRITING | WB_TAG_DIRTY | (gentle ? WB_TAG_REFERENCED : 0);
  t = order::load<order::relaxed>(tag(c, entry(c, set, way)));
  return (t & kept) == 0 && claim(c, entry(c, set, way), t);
}

// Gives a claimed frame to the page, to be filled, with `pinned` pins. Returns the new tag.
WB_FN uint64_t install(const wb_cache& c, uint32_t entry, uint64_t claimed, uint64_t page, uint32_t pinned) {
  uint64_t t = tags::rename(claimed, page, WB_TAG_FILLING | (has_checksums(c) ? WB_TAG_UNCHECKED : 0));
  if (pinned) order::fetch_add<order::acq_rel>(pins(c, entry), pinned);
  order::store<order::relaxed>(fill(c, entry), tags::pending(t));
  order::store<order::release>(tag(c, entry), t);
  return t;
}

// Chooses a frame by CLOCK and claims it. Returns its way, with the claimed tag in `t`, or `none`. The home way is preferred if it
// is empty or unused. With `dirty` the search turns at most one dirty frame into one that is being written, and names it there.
//
// A gentle search never takes a frame that was used since the hand passed.
WB_FN uint32_t choose(const wb_cache& c, uint32_t set, uint64_t page, bool gentle, uint64_t& t, pending_io* dirty) {
  constexpr uint64_t busy = WB_TAG_FILLING | WB_TAG_WRITING;
  constexpr uint64_t used = WB_TAG_REFERENCED | WB_TAG_DIRTY;
  constexpr uint64_t read = WB_TAG_VALID | WB_TAG_UNCHECKED;
  const uint32_t first = entry(c, set, 0);
  const uint32_t home = home_way(c, page);
  for (uint32_t n = 0; n < c.ways; ++n) {
    uint32_t w = home + n < c.ways ? home + n : home + n - c.ways;
    t = order::load<order::relaxed>(tag(c, first + w));
    if (!(t & (busy | read)) && claim(c, first + w, t)) return w;
  }
  t = order::load<order::relaxed>(tag(c, first + home));
  if ((t & read) && !(t & (busy | used)) && claim(c, first + home, t)) return home;

  uint32_t* hand = c.hand + set;
  uint32_t w = order::load<order::relaxed>(hand);
  const uint32_t steps = gentle ? c.ways : 2 * c.ways;
  for (uint32_t n = 0; n < steps; ++n, w = w + 1 < c.ways ? w + 1 : 0) {
    t = order::load<order::relaxed>(tag(c, first + w));
    if (t & busy) continue;
    if (t & WB_TAG_REFERENCED) {
      if (!gentle) order::compare_exchange<order::acq_rel>(tag(c, first + w), t, t & ~uint64_t{WB_TAG_REFERENCED});
      continue;
    }
    if (t & WB_TAG_DIRTY) {
      if (dirty != nullptr && dirty->way == none && begin_write(c, first + w, t)) *dirty = pending_io{w, t};
      continue;
    }
    if (!claim(c, first + w, t)) continue;
    order::store<order::relaxed>(hand, w + 1 < c.ways ? w + 1 : 0);
    return w;
  }
  return none;
}

}  // namespace frames

}  // namespace warpbell
