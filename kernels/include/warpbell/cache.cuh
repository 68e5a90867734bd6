// A set-associative page cache over a volume, shared by all threads.
//
// Tag word: page, version, state (abi.h). What may happen to it, and who may do it:
//
//   from            to                who                                   how
//   any idle        claimed           the set lock's holder, pins == 0      CAS, version + 1, state 0
//   claimed         FILLING           the same                              store, `fill` and the pin stored before
//   claimed         what it was       the same, when pins turned out > 0,   CAS, keeping that DIRTY
//                                     or DIRTY came meanwhile
//   FILLING         VALID|REFERENCED  whoever finishes the read             exchange, in the volume
//   FILLING         FAILED            the same, when the read failed        the error is raised by the settling
//   FAILED          FILLING           with copies: who has the set lock and a pin, and then reads the page by itself    CAS
//   VALID|DIRTY     VALID|WRITING     the set lock's holder, pins == 0      CAS, version + 1; DIRTY again when pins > 0
//   VALID|WRITING   VALID (|DIRTY|FAILED)  whoever finishes the write       AND or CAS, in the volume
//   VALID           + REFERENCED      who reads                             CAS from exactly the tag that was read
//   any             + DIRTY           who holds a pin, before it writes     CAS from exactly the tag that was read
//
// * A hit is optimistic and has no atomics: tag (acquire), data, tag again. Claiming bumps the version before the first new
//   byte is written, so data of another page, or of half a page, is never taken for the page's.
// * A pin is one atomic add, then one CAS that looks at the tag; eviction is one CAS of the tag, then one atomic look at the
//   pins. One of the two sees the other. A pin can be taken on a FILLING frame: who waits for a page keeps it. Who has pinned the
//   frame before the eviction's CAS may have changed it and let go before the look at the pins: the tag is DIRTY then, so that is
//   looked at once more.
// * DIRTY is set while pinned and before the data changes; a write-back clears it first and gives way to any pin. So either
//   the write carries the change, or the tag is DIRTY again.
// * The set lock is a try-lock, held for the choice of a frame only, never while waiting, and never across lanes that wait
//   for each other. Every change to FILLING or WRITING happens under it, so a page is never in two frames.
// * `fill` names the command in flight so that any waiter can help to finish it. It holds the tag's page and version until
//   the token is known, and the token replaces exactly that: a late submitter cannot overwrite a newer command's token.
// * Lanes of a warp that miss go round one loop together (`page_turn`): all reads are submitted at once, every lane uses its page and
//   lets go of it as soon as it is there, whatever the other lanes still wait for. Nobody holds a frame while waiting for
//   another one, except through page handles.
// * A FAILED page answers with the poison value for as long as the run that it failed is failed (the abort word is set). A new
//   run reads the page again.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/call.cuh>
#include <warpbell/clock.cuh>
#include <warpbell/order.cuh>
#include <warpbell/status.h>
#include <warpbell/volume.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {

namespace tags {

constexpr uint64_t state_mask = (1ull << WB_TAG_VERSION_SHIFT) - 1;
constexpr uint64_t version_mask = (1ull << WB_TAG_PAGE_SHIFT) - 1 - state_mask;
// What stays while a frame keeps its page: REFERENCED, DIRTY, WRITING and FAILED come and go.
constexpr uint64_t identity = ~state_mask | WB_TAG_VALID;

// The frame holds the page's bytes.
WB_FN bool holds(uint64_t t, uint64_t page) { return (t & WB_TAG_VALID) != 0 && t >> WB_TAG_PAGE_SHIFT == page; }
// The frame is the page's: it holds it, or will.
WB_FN bool names(uint64_t t, uint64_t page) {
  return (t & (WB_TAG_VALID | WB_TAG_FILLING)) != 0 && t >> WB_TAG_PAGE_SHIFT == page;
}
// Still the same content as when `before` was read.
WB_FN bool same(uint64_t before, uint64_t now) { return ((before ^ now) & identity) == 0; }
// The tag with the next version and another state.
WB_FN uint64_t advance(uint64_t t, uint64_t state) {
  uint64_t version = (t + (1ull << WB_TAG_VERSION_SHIFT)) & version_mask;
  return (t & ~(version_mask | state_mask)) | version | state;
}
// The tag for another page, of the same version.
WB_FN uint64_t rename(uint64_t t, uint64_t page, uint64_t state) {
  return page << WB_TAG_PAGE_SHIFT | (t & version_mask) | state;
}
// What `fill` holds until the command's token is known, and the bit that says that it is.
WB_FN uint64_t pending(uint64_t t) { return t >> WB_TAG_VERSION_SHIFT; }
constexpr uint64_t token_known = 1ull << 63;

}  // namespace tags

// Where things are. These take the cache's constants by reference: a kernel parameter, a copy in registers, or memory.
namespace frames {

constexpr uint32_t none = ~0u;

WB_FN uint32_t set_of(const wb_cache& c, uint64_t page) { return static_cast<uint32_t>(page) & c.set_mask; }

// (page / sets) mod ways by multiplication; exact for the 28 bits that are used.
WB_FN uint32_t home_way(const wb_cache& c, uint64_t page) {
  constexpr uint32_t exact = (1u << 28) - 1;
  uint32_t n = static_cast<uint32_t>(page >> c.log2_sets) & exact;
  uint32_t q = static_cast<uint32_t>((static_cast<uint64_t>(n) * c.way_reciprocal) >> 32);
  return n - q * c.ways;
}
WB_FN uint32_t entry(const wb_cache& c, uint32_t set, uint32_t way) { return set * c.ways + way; }
WB_FN uint64_t* tag(const wb_cache& c, uint32_t entry) { return reinterpret_cast<uint64_t*>(c.tag) + entry; }
WB_FN uint32_t* pins(const wb_cache& c, uint32_t entry) { return reinterpret_cast<uint32_t*>(c.pins) + entry; }
WB_FN uint64_t* fill(const wb_cache& c, uint32_t entry) { return reinterpret_cast<uint64_t*>(c.fill) + entry; }
WB_FN uint64_t address(const wb_cache& c, uint32_t set, uint32_t way) {
  return c.frames + (static_cast<uint64_t>((way << c.log2_sets) + set) << c.page_shift);
}

// The way that holds or will hold a page, and its tag; `none` if there is none.
WB_FN uint32_t find(const wb_cache& c, uint32_t set, uint64_t page, uint64_t& found) {
  constexpr uint32_t at_once = 4;  // loads in flight
  const uint64_t* row = tag(c, entry(c, set, 0));
  for (uint32_t w = 0; w < c.ways; w += at_once) {
    uint64_t t[at_once];
#pragma unroll
    for (uint32_t j = 0; j < at_once; ++j) t[j] = w + j < c.ways ? order::load_relaxed(row + w + j) : 0;
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

// One read was seen: tell CLOCK. Nothing is lost if the tag has changed meanwhile.
WB_FN void touch(const uint64_t* tag, uint64_t seen) {
  order::compare_exchange_relaxed(const_cast<uint64_t*>(tag), seen, seen | WB_TAG_REFERENCED);
}

// What was read under the pin was read before; the eviction's look at the pins acquires.
WB_FN void unpin(const wb_cache& c, uint32_t entry, uint32_t count) { order::add_release(pins(c, entry), 0u - count); }

// Takes `count` pins if the frame is the page's. `state` is added to the tag of a frame that holds it.
WB_FN bool pin(const wb_cache& c, uint32_t entry, uint64_t page, uint32_t count, uint64_t state) {
  order::fetch_add(pins(c, entry), count);
  uint64_t* word = tag(c, entry);
  uint64_t t = order::load_acquire(word);
  while (tags::names(t, page)) {
    uint64_t next = t & WB_TAG_VALID ? t | state : t;
    uint64_t was = order::compare_exchange(word, t, next);
    if (was == t) return true;
    t = was;
  }
  unpin(c, entry, count);
  return false;
}

// The same for a frame that is expected to hold the page already: no loop, and false when anything is in the way.
WB_FN bool pin_held(const wb_cache& c, uint32_t entry, uint64_t page, uint32_t count) {
  // The tag's read-modify-write releases the pin: an eviction that comes after it in the tag sees the pin.
  order::add_relaxed(pins(c, entry), count);
  const uint64_t t = order::fetch_or(tag(c, entry), uint64_t{0});
  if (tags::holds(t, page)) {
    if (!(t & WB_TAG_REFERENCED)) touch(tag(c, entry), t);
    return true;
  }
  unpin(c, entry, count);
  return false;
}

// Sets state bits of a frame that the caller has pinned. Somebody may have claimed it and not yet seen the pin: DIRTY survives that.
WB_FN void mark(const wb_cache& c, uint32_t entry, uint64_t state) {
  uint64_t* word = tag(c, entry);
  uint64_t t = order::load_relaxed(word);
  while (true) {
    uint64_t was = order::compare_exchange(word, t, t | state);
    if (was == t) return;
    t = was;
  }
}

WB_FN bool try_lock(const wb_cache& c, uint32_t set) {
  uint32_t* lock = reinterpret_cast<uint32_t*>(c.set_lock) + set;
  return order::load_relaxed(lock) == 0 && order::compare_exchange(lock, 0u, 1u) == 0;
}
WB_FN void unlock(const wb_cache& c, uint32_t set) {
  order::store_release(reinterpret_cast<uint32_t*>(c.set_lock) + set, 0u);
}

WB_FN volume_ref volume(const wb_cache& c) { return volume_ref(reinterpret_cast<const wb_volume*>(c.volume)); }
WB_FN const wb_control* control(const wb_cache& c) {
  return reinterpret_cast<const wb_control*>(reinterpret_cast<const wb_volume*>(c.volume)->control);
}
WB_FN bool aborted(const wb_cache& c) {
  return order::load_relaxed(reinterpret_cast<const uint32_t*>(control(c)->abort)) != 0;
}
// Whether a thread raised an error, or the host asked all waits to end.
WB_FN bool ended(const wb_cache& c) {
  return aborted(c) || order::load_relaxed_sys(reinterpret_cast<const uint32_t*>(control(c)->stop)) != 0;
}

WB_FN void count(const wb_cache& c, uint64_t wb_stats::*what, uint64_t n) {
  wb_stats* stripes = reinterpret_cast<wb_stats*>(reinterpret_cast<const wb_volume*>(c.volume)->stats);
  order::fetch_add_relaxed(&(stripes[warp::processor() % WB_STATS_STRIPES].*what), n);
}

// Whether it is worth trying to claim a frame. Only a hint: the claim itself finds out. Stress tests do without it, so that claims
// and pins cross each other often and not once in a million.
WB_FN bool looks_idle([[maybe_unused]] const wb_cache& c, [[maybe_unused]] uint32_t entry) {
#if defined(WB_CLAIM_BLINDLY)
  return true;
#else
  return order::load_relaxed(pins(c, entry)) == 0;
#endif
}

// Between the CAS of the tag and the look at the pins. Stress tests call there what they name the macro.
WB_FN void cross() {
#if defined(WB_CLAIM_BLINDLY)
  WB_CLAIM_BLINDLY();
#endif
}

// The four functions below need the set's lock.

// Takes an idle frame away from whatever it held: nobody finds it, nobody can pin it. `t` becomes the claimed tag.
WB_FN bool claim(const wb_cache& c, uint32_t entry, uint64_t& t) {
  if (!looks_idle(c, entry)) return false;
  uint64_t claimed = tags::advance(t, 0);
  if (order::compare_exchange(tag(c, entry), t, claimed) != t) return false;
  cross();
  const bool pinned = order::fetch_add(pins(c, entry), 0u) != 0;
  // Nobody can pin it now, so without pins the tag stays as it is.
  uint64_t now = order::load_acquire(tag(c, entry));
  if (pinned || now != claimed) {
    while (true) {
      const uint64_t was = order::compare_exchange(tag(c, entry), now, t | (now & WB_TAG_DIRTY));
      if (was == now) return false;
      now = was;
    }
  }
  if (t & WB_TAG_VALID) count(c, &wb_stats::evictions, 1);
  t = claimed;
  return true;
}

// Makes a dirty frame one whose write-back is in flight; the caller submits it. Readers go on reading it.
WB_FN bool begin_write(const wb_cache& c, uint32_t entry, uint64_t& t) {
  if (!looks_idle(c, entry)) return false;
  constexpr uint64_t clear = WB_TAG_DIRTY | WB_TAG_FAILED;
  uint64_t writing = tags::advance(t, (t & tags::state_mask & ~clear) | WB_TAG_WRITING);
  order::store_relaxed(fill(c, entry), tags::pending(writing));
  if (order::compare_exchange(tag(c, entry), t, writing) != t) return false;
  cross();
  if (order::fetch_add(pins(c, entry), 0u) != 0) {
    uint64_t now = writing;
    while (true) {
      uint64_t was = order::compare_exchange(tag(c, entry), now, (now & ~uint64_t{WB_TAG_WRITING}) | WB_TAG_DIRTY);
      if (was == now) return false;
      now = was;
    }
  }
  t = writing;
  return true;
}

// A claimed frame becomes the page's, to be filled; with `pinned` pins.
WB_FN uint64_t install(const wb_cache& c, uint32_t entry, uint64_t claimed, uint64_t page, uint32_t pinned) {
  uint64_t t = tags::rename(claimed, page, WB_TAG_FILLING);
  if (pinned) order::fetch_add(pins(c, entry), pinned);
  order::store_relaxed(fill(c, entry), tags::pending(t));
  order::store_release(tag(c, entry), t);
  return t;
}

// Chooses a frame by CLOCK and claims it; `t` is then the claimed tag. Home is preferred when it is empty or unused. A dirty frame
// on the way is turned into one that is being written, `dirty` then names it and `dirty_tag` is its tag.
//
// A gentle search never takes a frame that was used since the hand went by, and writes nothing back.
WB_FN uint32_t choose(const wb_cache& c, uint32_t set, uint64_t page, bool gentle, uint64_t& t, uint32_t& dirty,
                      uint64_t& dirty_tag) {
  constexpr uint64_t busy = WB_TAG_FILLING | WB_TAG_WRITING;
  constexpr uint64_t used = WB_TAG_REFERENCED | WB_TAG_DIRTY;
  const uint32_t first = entry(c, set, 0);
  const uint32_t home = home_way(c, page);
  for (uint32_t n = 0; n < c.ways; ++n) {
    uint32_t w = home + n < c.ways ? home + n : home + n - c.ways;
    t = order::load_relaxed(tag(c, first + w));
    if (!(t & (busy | WB_TAG_VALID)) && claim(c, first + w, t)) return w;
  }
  t = order::load_relaxed(tag(c, first + home));
  if ((t & (busy | used | WB_TAG_VALID)) == WB_TAG_VALID && claim(c, first + home, t)) return home;

  uint32_t* hand = reinterpret_cast<uint32_t*>(c.hand) + set;
  uint32_t w = order::load_relaxed(hand);
  const uint32_t steps = gentle ? c.ways : 2 * c.ways;
  for (uint32_t n = 0; n < steps; ++n, w = w + 1 < c.ways ? w + 1 : 0) {
    t = order::load_relaxed(tag(c, first + w));
    if (t & busy) continue;
    if (t & WB_TAG_REFERENCED) {
      if (!gentle) order::compare_exchange(tag(c, first + w), t, t & ~uint64_t{WB_TAG_REFERENCED});
      continue;
    }
    if (t & WB_TAG_DIRTY) {
      if (!gentle && dirty == none && begin_write(c, first + w, t)) {
        dirty = w;
        dirty_tag = t;
      }
      continue;
    }
    if (!claim(c, first + w, t)) continue;
    order::store_relaxed(hand, w + 1 < c.ways ? w + 1 : 0);
    return w;
  }
  return none;
}

}  // namespace frames

// One lane's wait for a page. Lanes of a mask that want the same page form a group; its first lane acts for it.
struct page_wait {
  uint64_t page;
  warp::mask_t group;
  uint32_t way;     // pinned once for each lane of the group, or frames::none
  uint32_t status;  // WB_PENDING, then how it ended (wb_kind)
  bool writes;      // the frame is to be dirty when it is handed over
  bool missed;      // it was not in the cache at first
  bool looked;
  uint32_t extended;  // times that the wait was made longer, since another copy may have the page
  uint32_t turns;     // without a frame
  patience left;

  // A lane that does not want a page is a group by itself that has nothing to wait for.
  WB_FN page_wait(const wb_cache& c, warp::mask_t mask, bool wants, uint64_t page_, bool writes_)
      : page(page_),
        group(warp::match(mask, wants ? page_ : ~uint64_t{warp::lane()})),
        way(frames::none),
        status(wants ? WB_PENDING : WB_DONE),
        writes(writes_),
        missed(false),
        looked(false),
        extended(0),
        turns(0),
        left(frames::control(c)) {}

  // The frame is there; the wait for its content begins.
  WB_FN void hold(const wb_cache& c, uint32_t way_) {
    way = way_;
    extended = 0;
    left = patience(frames::control(c));
  }
};

namespace frames {

// A command to be submitted for a frame.
struct errand {
  uint32_t way = none;
  uint64_t tag = 0;
};

// Submits the commands of those lanes of the mask that have one (all lanes move the data) and leaves their tokens for those who
// wait. Collective.
WB_FN_COLD void submit(const wb_cache* cache, warp::mask_t mask, errand e, uint32_t opcode) {
  const wb_cache& c = *cache;
  const bool mine = e.way != none;
  const uint64_t page = e.tag >> WB_TAG_PAGE_SHIFT;
  const uint32_t set = set_of(c, page), way = mine ? e.way : 0;
  const uint32_t at = entry(c, set, way);
  const token t = volume(c).start(mask, page * c.blocks_per_page, mine ? c.blocks_per_page : 0, opcode,
                                  reinterpret_cast<void*>(address(c, set, way)), tag(c, at));
  // One that could not be started has its tag settled already.
  if (mine && t.in_flight()) order::compare_exchange(fill(c, at), tags::pending(e.tag), t.word | tags::token_known);
}

// Finishes what has completed of the commands that the mask's lanes name. Collective.
WB_FN_COLD void help(const wb_cache* cache, warp::mask_t mask, token t) { volume(*cache).finish(mask, t); }

// Whether the page's last read failed and nobody has tried again.
WB_FN bool failed(const wb_cache& c, uint32_t set, uint64_t page) {
  for (uint32_t w = 0; w < c.ways; ++w) {
    uint64_t t = order::load_relaxed(tag(c, entry(c, set, w)));
    if ((t & (WB_TAG_FAILED | WB_TAG_VALID)) == WB_TAG_FAILED && t >> WB_TAG_PAGE_SHIFT == page) return true;
  }
  return false;
}

// Other devices hold what one fails to give.
WB_FN bool has_copies(const wb_cache& c) { return reinterpret_cast<const wb_volume*>(c.volume)->replicated != 0; }

// Takes a frame of which the read has failed, and which the caller has pinned, to read its page once more: `again` names it then. Unless
// the page has another frame by now: then the pins are let go.
WB_FN_COLD void take_failed(const wb_cache& c, page_wait& w, uint32_t at, uint64_t t, errand& again) {
  const uint32_t set = set_of(c, w.page);
  if (!try_lock(c, set)) return;
  uint64_t other = 0;
  if (find(c, set, w.page, other) != none) {
    unpin(c, at, warp::count(w.group));
    w.way = none;
  } else {
    const uint64_t filling = tags::rename(t, w.page, WB_TAG_FILLING);
    order::store_relaxed(fill(c, at), tags::pending(filling));
    if (order::compare_exchange(tag(c, at), t, filling) == t) {
      again.way = w.way;
      again.tag = filling;
    }
  }
  unlock(c, set);
}

// Reads pages for the lanes that have taken one so, a whole read with all copies, and settles their tags. Collective.
WB_FN_COLD void read_again(const wb_cache* cache, warp::mask_t mask, errand e) {
  const wb_cache& c = *cache;
  const bool mine = e.way != none;
  const uint64_t page = e.tag >> WB_TAG_PAGE_SHIFT;
  const uint32_t set = set_of(c, page), way = mine ? e.way : 0;
  const volume_ref v = volume(c);
  const status s = v.read(mask, page * c.blocks_per_page, mine ? c.blocks_per_page : 0, reinterpret_cast<void*>(address(c, set, way)));
  if (!mine) return;
  if (!s) v.fail(s);
  queue_ref::settle(tag(c, entry(c, set, way)), nvme::op_read << WB_RECORD_OPCODE_SHIFT, static_cast<bool>(s));
}

// The leader's part of a turn: find the page, or a frame for it, and see how far it is.
WB_FN void look(const wb_cache& c, page_wait& w, errand& read, errand& write, errand& again) {
  const uint32_t set = set_of(c, w.page);
  const uint32_t lanes = warp::count(w.group);
  if (w.way == none) {
    uint64_t t = 0;
    uint32_t way = find(c, set, w.page, t);
    if (!w.looked) {
      w.looked = true;
      w.missed = way == none || !(t & WB_TAG_VALID);
    }
    if (way != none) {
      if (!pin(c, entry(c, set, way), w.page, lanes, WB_TAG_REFERENCED)) return;
      w.hold(c, way);
    } else {
      if (aborted(c)) {
        w.status = failed(c, set, w.page) ? WB_POISONED : WB_STOPPED;
        return;
      }
      if (!try_lock(c, set)) return;
      // It may have been brought in before the lock was ours.
      if (find(c, set, w.page, t) == none) {
        way = choose(c, set, w.page, false, t, write.way, write.tag);
        if (way != none) {
          read.way = way;
          read.tag = install(c, entry(c, set, way), t, w.page, lanes);
          w.hold(c, way);
        }
      }
      unlock(c, set);
      return;
    }
  }
  const uint32_t at = entry(c, set, w.way);
  const uint64_t t = order::load_acquire(tag(c, at));
  if (t & WB_TAG_VALID) {
    if (w.writes) mark(c, at, WB_TAG_DIRTY);
    w.status = WB_DONE;
  } else if ((t & WB_TAG_FAILED) && has_copies(c) && !aborted(c)) {
    take_failed(c, w, at, t, again);
  } else if (t & WB_TAG_FAILED) {
    unpin(c, at, lanes);
    w.way = none;
    w.status = WB_POISONED;
  }
  // Otherwise it is being filled, or somebody has claimed it and is about to see the pin and give it back.
}

// The command that a waiting leader can help to finish: its own page's, or, when there is no frame, one of the set's.
WB_FN token useful_token(const wb_cache& c, page_wait& w) {
  const uint32_t set = set_of(c, w.page);
  const uint32_t way = w.way != none ? w.way : w.turns++ % c.ways;
  const uint64_t f = order::load_acquire(fill(c, entry(c, set, way)));
  return f & tags::token_known ? token{f & ~tags::token_known} : token{};
}

// Enters what is not a command's own error in the run's log, and fails the run.
WB_FN void report(const wb_cache& c, wb_kind kind, uint64_t page) {
  const volume_ref v = volume(c);
  const volume_ref::place at = v.locate(page * c.blocks_per_page);
  v.raise(static_cast<uint32_t>(kind) << WB_STATUS_KIND_SHIFT, nvme::op_read, at.lba, c.blocks_per_page, at.device);
}

// Gives up the read that a page waits for, if another copy has the page: the frame is one of which the read has failed. True if there is
// something to wait for again. Who has no frame waits while others do so for theirs: for each copy that may be lost, one deadline for its
// answer and one for the host's look at it.
WB_FN_COLD bool give_up(const wb_cache& c, page_wait& w) {
  const uint32_t copies = reinterpret_cast<const wb_volume*>(c.volume)->device_count;
  const uint32_t most = w.way == none ? 2 * (copies - 1) : 1;
  if (!has_copies(c) || w.extended >= most) return false;
  ++w.extended;
  w.left = patience(control(c));
  if (w.way == none) return true;
  const uint32_t at = entry(c, set_of(c, w.page), w.way);
  const uint64_t f = order::load_acquire(fill(c, at));
  // Who submits it has no room yet, and waits too.
  if (!(f & tags::token_known)) return true;
  const token t{f & ~tags::token_known};
  const volume_ref v = volume(c);
  if (!v.leave_out(t.device())) return false;
  // If not, it has been finished, or given up, by somebody else.
  if (v.queue(t).abandon(t.ticket())) queue_ref::settle(tag(c, at), nvme::op_read << WB_RECORD_OPCODE_SHIFT, false);
  return true;
}

// The leader's look at the clock.
WB_FN void lose_patience(const wb_cache& c, page_wait& w) {
  const verdict v = w.left.spent();
  if (v == verdict::go_on || (v == verdict::timed_out && give_up(c, w))) return;
  w.status = v == verdict::stopped ? WB_STOPPED : w.way == none ? WB_NO_FRAME : WB_TIMED_OUT;
  if (w.status != WB_STOPPED) {
    report(c, static_cast<wb_kind>(w.status), w.page);
  }
  if (w.way != none) unpin(c, entry(c, set_of(c, w.page), w.way), warp::count(w.group));
  w.way = none;
}

}  // namespace frames

// One turn of the mask's lanes, all of them together: whoever is still waiting looks for its page, misses are submitted
// at once, commands in flight are helped along. Afterwards a lane's `status` is WB_PENDING, or WB_DONE with the frame pinned
// once for this lane, or how it failed. Lanes that are done take part and do nothing.
WB_FN_COLD void page_turn(const wb_cache* cache, warp::mask_t mask, page_wait& w) {
  using frames::none;
  const wb_cache& c = *cache;
  const bool acts = warp::is_leader(w.group) && w.status == WB_PENDING;
  frames::errand read, write, again;
  if (acts) frames::look(c, w, read, write, again);
  const warp::mask_t writers = warp::ballot(mask, write.way != none);
  if (writers) {
    frames::submit(cache, mask, write, nvme::op_write);
    if (warp::is_leader(mask)) frames::count(c, &wb_stats::write_backs, warp::count(writers));
  }
  const warp::mask_t readers = warp::ballot(mask, read.way != none);
  if (readers) {
    frames::submit(cache, mask, read, nvme::op_read);
    if (warp::is_leader(mask)) frames::count(c, &wb_stats::fills, warp::count(readers));
  }
  const bool waits = acts && w.status == WB_PENDING;
  if (warp::any(mask, waits)) {
    if (warp::any(mask, again.way != none)) frames::read_again(cache, mask, again);
    frames::help(cache, mask, waits ? frames::useful_token(c, w) : token{});
    if (waits) frames::lose_patience(c, w);
  }
  const uint32_t leader = warp::leader(w.group);
  w.status = warp::shuffle(mask, w.status, leader);
  w.way = warp::shuffle(mask, w.way, leader);
  w.missed = warp::shuffle(mask, static_cast<uint32_t>(w.missed), leader) != 0;
  // The leader has acquired the tag; now all lanes have.
  warp::sync(mask);
}

namespace frames {

// One group's access, for the counters.
WB_FN void tally(const wb_cache& c, const page_wait& w, uint32_t accesses) {
  count(c, w.missed ? &wb_stats::misses : &wb_stats::hits, accesses);
}

}  // namespace frames

// Calls use(address of the page's first byte) in every lane of the mask with `wants`, each with its own page, while that page is
// pinned; the others help. A lane is served as soon as its page is there. Answers WB_DONE, or the kind of failure, in which case
// `use` was not called.
template <class F>
WB_FN uint32_t with_page(const wb_cache* cache, warp::mask_t mask, bool wants, uint64_t page, bool writes, F use) {
  page_wait w(*cache, mask, wants, page, writes);
  const uint32_t set = frames::set_of(*cache, page);
  bool waiting = wants;
  do {
    out_of_line(page_turn)(cache, mask, w);
    const bool ended = waiting && w.status != WB_PENDING;
    if (ended && w.status == WB_DONE) use(frames::address(*cache, set, w.way));
    warp::sync(mask);
    if (ended && warp::is_leader(w.group)) {
      if (w.status == WB_DONE) frames::unpin(*cache, frames::entry(*cache, set, w.way), warp::count(w.group));
      frames::tally(*cache, w, warp::count(w.group));
    }
    waiting = waiting && !ended;
  } while (warp::any(mask, waiting));
  return w.status;
}

// Pins the page of each lane of the mask; `way` says in which frame of its set. The caller unpins once for each lane. `together`
// counts lanes with the same page as one access.
WB_FN_COLD uint32_t pin_page(const wb_cache* cache, warp::mask_t mask, uint64_t page, bool writes, bool together,
                             uint32_t& way) {
  page_wait w(*cache, mask, true, page, writes);
  do {
    page_turn(cache, mask, w);
  } while (warp::any(mask, w.status == WB_PENDING));
  if (warp::is_leader(w.group)) frames::tally(*cache, w, together ? 1 : warp::count(w.group));
  way = w.way;
  return w.status;
}

// Asks for the pages of the mask's lanes ahead of their use, where they are missing and a frame is to be had that nobody used
// lately. Does not wait for them.
WB_FN_COLD void request_page(const wb_cache* cache, warp::mask_t mask, uint64_t page) {
  const wb_cache& c = *cache;
  const warp::mask_t group = warp::match(mask, page);
  const uint32_t set = frames::set_of(c, page);
  frames::errand read;
  if (warp::is_leader(group)) {
    uint64_t t = 0;
    if (frames::find(c, set, page, t) == frames::none && !frames::aborted(c) && frames::try_lock(c, set)) {
      if (frames::find(c, set, page, t) == frames::none) {
        frames::errand unused;
        const uint32_t way = frames::choose(c, set, page, true, t, unused.way, unused.tag);
        if (way != frames::none) {
          read.way = way;
          read.tag = frames::install(c, frames::entry(c, set, way), t, page, 0);
        }
      }
      frames::unlock(c, set);
    }
  }
  const warp::mask_t readers = warp::ballot(mask, read.way != frames::none);
  if (readers == 0) return;
  frames::submit(cache, mask, read, nvme::op_read);
  if (warp::is_leader(mask)) {
    frames::count(c, &wb_stats::fills, warp::count(readers));
    frames::count(c, &wb_stats::prefetches, warp::count(readers));
  }
}

}  // namespace warpbell
