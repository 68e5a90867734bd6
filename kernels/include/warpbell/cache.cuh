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
//   FILLING|UNCHECKED  UNCHECKED|REFERENCED  the same, of pages with checksums
//   FILLING         FAILED            the same, when the read failed        who finishes it raises the error
//   UNCHECKED       FILLING           who has a pin and then compares the page with its checksums, and ends its read    CAS
//   FAILED          FILLING           with copies or checksums: who has the set lock and a pin, and then reads the page by itself    CAS
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
#include <warpbell/checksum.cuh>
#include <warpbell/clock.cuh>
#include <warpbell/frames.cuh>
#include <warpbell/order.cuh>
#include <warpbell/status.h>
#include <warpbell/tags.cuh>
#include <warpbell/volume.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {

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
  deadline left;

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
    left = deadline(frames::control(c));
  }
};

namespace frames {

// A command to be submitted for a frame.
struct pending_io {
  uint32_t way = none;
  uint64_t tag = 0;
};

// Submits the commands of those lanes of the mask that have one (all lanes move the data) and leaves their tokens for those who
// wait. Collective.
WB_FN_COLD void submit(const wb_cache* cache, warp::mask_t mask, pending_io e, uint32_t opcode) {
  const wb_cache& c = *cache;
  const bool mine = e.way != none;
  const uint64_t page = e.tag >> WB_TAG_PAGE_SHIFT;
  const uint32_t set = set_of(c, page), way = mine ? e.way : 0;
  const uint32_t at = entry(c, set, way);
  if (opcode == nvme::op_write) {
    checksums::store(volume(c), mask, mine, page << c.page_shift, address(c, set, way), 1u << c.page_shift);
  }
  const token t = volume(c).start(mask, page * c.blocks_per_page, mine ? c.blocks_per_page : 0, opcode,
                                  reinterpret_cast<void*>(address(c, set, way)), tag(c, at));
  // One that could not be started has its tag settled already.
  if (mine && t.in_flight()) order::compare_exchange<order::acq_rel>(fill(c, at), tags::pending(e.tag), t.word | tags::token_known);
}

// Finishes what has completed of the commands that the mask's lanes name. Collective.
WB_FN_COLD void help(const wb_cache* cache, warp::mask_t mask, token t) { volume(*cache).finish(mask, t); }

// Whether the page's last read failed and nobody has tried again.
WB_FN bool failed(const wb_cache& c, uint32_t set, uint64_t page) {
  for (uint32_t w = 0; w < c.ways; ++w) {
    uint64_t t = order::load<order::relaxed>(tag(c, entry(c, set, w)));
    if ((t & (WB_TAG_FAILED | WB_TAG_VALID)) == WB_TAG_FAILED && t >> WB_TAG_PAGE_SHIFT == page) return true;
  }
  return false;
}

// Other devices hold what one fails to give.
WB_FN bool has_copies(const wb_cache& c) { return c.volume->replicated != 0; }

// Takes a frame whose page has been read, and which the caller has pinned, to compare it with its checksums: `check` names it then.
WB_FN_COLD void take_unchecked(const wb_cache& c, page_wait& w, uint32_t at, uint64_t t, pending_io& check) {
  const uint64_t filling = tags::rename(t, w.page, WB_TAG_FILLING);
  order::store<order::relaxed>(fill(c, at), tags::pending(filling));
  if (order::compare_exchange<order::acq_rel>(tag(c, at), t, filling) != t) return;
  check.way = w.way;
  check.tag = filling;
}

// Takes a frame of which the read has failed, and which the caller has pinned, to read its page once more: `again` names it then. Unless
// the page has another frame by now: then the pins are let go.
WB_FN_COLD void take_failed(const wb_cache& c, page_wait& w, uint32_t at, uint64_t t, pending_io& again) {
  const uint32_t set = set_of(c, w.page);
  if (!try_lock(c, set)) return;
  uint64_t other = 0;
  if (find(c, set, w.page, other) != none) {
    unpin(c, at, warp::count(w.group));
    w.way = none;
  } else {
    const uint64_t filling = tags::rename(t, w.page, WB_TAG_FILLING);
    order::store<order::relaxed>(fill(c, at), tags::pending(filling));
    if (order::compare_exchange<order::acq_rel>(tag(c, at), t, filling) == t) {
      again.way = w.way;
      again.tag = filling;
    }
  }
  unlock(c, set);
}

// Compares the pages of the lanes that have taken one so with their checksums, which ends their reads. Collective.
WB_FN_COLD void check_page(const wb_cache* cache, warp::mask_t mask, pending_io e) {
  const wb_cache& c = *cache;
  const bool mine = e.way != none;
  const uint64_t page = e.tag >> WB_TAG_PAGE_SHIFT;
  const uint32_t set = set_of(c, page), way = mine ? e.way : 0;
  const bool good = checksums::match(volume(c), mask, mine, page << c.page_shift, address(c, set, way), 1u << c.page_shift);
  if (mine) tags::end_read(tag(c, entry(c, set, way)), good);
}

// Reads pages for the lanes that have taken one so, a whole read with all copies, which ends the first one's. Collective.
WB_FN_COLD void read_again(const wb_cache* cache, warp::mask_t mask, pending_io e) {
  const wb_cache& c = *cache;
  const bool mine = e.way != none;
  const uint64_t page = e.tag >> WB_TAG_PAGE_SHIFT, block = page * c.blocks_per_page;
  const uint32_t set = set_of(c, page), way = mine ? e.way : 0;
  const volume_ref v = volume(c);
  const uint64_t data = address(c, set, way);
  status s = v.read(mask, block, mine ? c.blocks_per_page : 0, reinterpret_cast<void*>(data));
  const bool read = mine && static_cast<bool>(s);
  // All lanes take part in the comparison.
  const bool right = checksums::match(v, mask, read, page << c.page_shift, data, 1u << c.page_shift);
  bool bad = read && !right;
  const uint32_t copies = has_copies(c) ? v.raw()->device_count : 1;
  uint32_t first = 0;
  const volume_ref::place at = v.reading_place(mine ? block : 0, first);
  for (uint32_t i = 1; i < copies && warp::any(mask, bad); ++i) {
    const bool got = v.read_copy(mask, bad, block, c.blocks_per_page, reinterpret_cast<void*>(data), (first + i) % copies);
    const bool good = checksums::match(v, mask, got, page << c.page_shift, data, 1u << c.page_shift) && got;
    if (good) v.redirected(at.device, block, c.blocks_per_page);
    bad = bad && !good;
  }
  if (bad) {
    s = status{status_word(WB_DAMAGED), nvme::op_read << WB_RECORD_OPCODE_SHIFT | c.blocks_per_page,
               token::of(at.device, v.queue_on(at.device).q->index, 0).word, at.lba};
  }
  if (!mine) return;
  if (!s) v.fail(s);
  tags::end_read(tag(c, entry(c, set, way)), static_cast<bool>(s));
}

// The leader's part of a turn: find the page, or a frame for it, and see how far it is.
WB_FN void look(const wb_cache& c, page_wait& w, pending_io& read, pending_io& write, pending_io& check, pending_io& again) {
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
  const uint64_t t = order::load<order::acquire>(tag(c, at));
  if (t & WB_TAG_VALID) {
    if (w.writes) mark(c, at, WB_TAG_DIRTY);
    w.status = WB_DONE;
  } else if ((t & (WB_TAG_UNCHECKED | WB_TAG_FILLING)) == WB_TAG_UNCHECKED) {
    take_unchecked(c, w, at, t, check);
  } else if ((t & WB_TAG_FAILED) && (has_copies(c) || has_checksums(c)) && !aborted(c)) {
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
  const uint64_t f = order::load<order::acquire>(fill(c, entry(c, set, way)));
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
  const uint32_t copies = c.volume->device_count;
  const uint32_t most = w.way == none ? 2 * (copies - 1) : 1;
  if (!has_copies(c) || w.extended >= most) return false;
  ++w.extended;
  w.left = deadline(control(c));
  if (w.way == none) return true;
  const uint32_t at = entry(c, set_of(c, w.page), w.way);
  const uint64_t f = order::load<order::acquire>(fill(c, at));
  // Who submits it has no room yet, and waits too.
  if (!(f & tags::token_known)) return true;
  const token t{f & ~tags::token_known};
  const volume_ref v = volume(c);
  if (!v.leave_out(t.device())) return false;
  // If not, it has been finished, or given up, by somebody else.
  if (v.queue(t).abandon(t.ticket())) tags::end_read(tag(c, at), false);
  return true;
}

// The leader's look at the clock.
WB_FN void run_out_of_time(const wb_cache& c, page_wait& w) {
  const wait_status v = w.left.expired();
  if (v == wait_status::go_on || (v == wait_status::timed_out && give_up(c, w))) return;
  w.status = v == wait_status::stopped ? WB_STOPPED : w.way == none ? WB_NO_FRAME : WB_TIMED_OUT;
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
  frames::pending_io read, write, check, again;
  if (acts) frames::look(c, w, read, write, check, again);
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
    if (warp::any(mask, check.way != none)) frames::check_page(cache, mask, check);
    if (warp::any(mask, again.way != none)) frames::read_again(cache, mask, again);
    frames::help(cache, mask, waits ? frames::useful_token(c, w) : token{});
    if (waits) frames::run_out_of_time(c, w);
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
  frames::pending_io read;
  if (warp::is_leader(group)) {
    uint64_t t = 0;
    if (frames::find(c, set, page, t) == frames::none && !frames::aborted(c) && frames::try_lock(c, set)) {
      if (frames::find(c, set, page, t) == frames::none) {
        frames::pending_io unused;
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
