// A set-associative page cache over a volume, shared by all threads.
//
// Tag word: page, version, state (abi.h). All changes of a tag, and the threads that make them:
//
//   from            to                by                                    how
//   any idle        claimed           holder of the set lock, pins == 0     CAS, version + 1, state 0
//   claimed         FILLING           holder of the set lock                store, `fill` and the pin stored before
//   claimed         its former tag    holder of the set lock, if pins > 0   CAS, keeping that DIRTY
//                                     or DIRTY was set meanwhile
//   FILLING         VALID|REFERENCED  thread that finishes the read         exchange, in the volume
//   FILLING|UNCHECKED  UNCHECKED|REFERENCED  as above, for pages with checksums
//   FILLING         FAILED            as above, if the read failed          that thread raises the error, unless the page came
//                                     with others, or another device has it
//   UNCHECKED       FILLING           thread with a pin, which then compares the page with its checksums and ends its read    CAS
//   FAILED          FILLING           if that has not failed the run: holder of the set lock and a pin, which then reads the page itself    CAS
//   VALID|DIRTY     VALID|WRITING     holder of the set lock, pins == 0     CAS, version + 1; DIRTY again if pins > 0
//   VALID|WRITING   VALID (|DIRTY|FAILED)  thread that finishes the write   AND or CAS, in the volume
//   VALID           + REFERENCED      reader                                CAS from exactly the tag that was read
//   any             + DIRTY           holder of a pin, before it writes     CAS from exactly the tag that was read
//
// * A hit is optimistic and has no atomics: tag (acquire), data, tag again. A claim increments the version before the first new
//   byte is written. So data of another page, or of half a page, is never taken for the page's.
// * A pin is one atomic add, then one CAS that looks at the tag. An eviction is one CAS of the tag, then one atomic look at the
//   pins. One of the two sees the other. A pin can be taken on a FILLING frame: a thread that waits for a page keeps the page. A
//   thread that pinned the frame before the eviction's CAS may have changed the page and removed its pin before the look at the
//   pins. The tag is DIRTY then, so the eviction looks at the tag once more.
// * A thread sets DIRTY while it holds a pin and before it changes the data. A write-back clears DIRTY first and gives way to any
//   pin. So either the write includes the change, or the tag is DIRTY again.
// * The set lock is a try-lock. A thread holds it for the choice of a frame only, never while it waits for a command or a lock. Every change to FILLING or WRITING happens under it, so a page is never in two frames.
// * `fill` names the command in flight, so that any waiter can help to finish it. It holds the tag's page and version until the
//   token is known, and the token replaces exactly that value: a late submitter cannot overwrite a newer command's token.
// * Lanes of a warp that miss execute one loop together (`page_turn`). They submit all reads at once. Every lane uses its page and
//   removes its pin as soon as the page has arrived, whatever the other lanes still wait for. No thread holds a frame while waiting
//   for another one, except through page handles.
// * A FAILED page returns the poison value as long as the run that it failed is failed (the abort word is set). A new run reads the
//   page again.
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

/// @brief One lane's wait for a page. Lanes of a mask that want the same page form a group, and the group's first lane acts for it.
struct page_wait {
  uint64_t page;
  warp::mask_t group;
  uint32_t way;     // pinned once for each lane of the group, or frames::none
  uint32_t status;  // WB_PENDING, then the outcome (wb_kind)
  bool writes;      // the frame is to be dirty when the wait ends
  bool missed;      // the page was not in the cache at the first look
  bool looked;
  uint32_t extended;  // number of times that the wait was extended, since another copy may have the page
  uint32_t turns;     // turns without a frame
  deadline left;

  /// @brief Begins a wait. Collective over `mask`. A lane without `wants` is a group by itself that waits for nothing.
  ///
  /// @param writes The page is to be marked dirty before the caller changes it.
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

  // Records the frame of the page, which is pinned. The wait for the frame's content begins.
  WB_FN void hold(const wb_cache& c, uint32_t way_) {
    way = way_;
    extended = 0;
    left = deadline(frames::control(c));
  }
};

namespace frames {

// Records that the pages of those lanes of the mask that have a write-back will be written, and stores their checksums. Returns WB_DONE,
// or the reason why the page must not be written. Collective.
WB_FN_COLD uint32_t announce(const wb_cache* cache, warp::mask_t mask, by_value<pending_io> e) {
  const wb_cache& c = *cache;
  const bool mine = e.way != none;
  const uint64_t page = e.tag >> WB_TAG_PAGE_SHIFT;
  const uint32_t set = set_of(c, page), way = mine ? e.way : 0;
  checksums::store(volume(c), mask, mine, page << c.page_shift, address(c, set, way), 1u << c.page_shift);
  return mine ? volume(c).announce_page(page * c.blocks_per_page, c.blocks_per_page) : uint32_t{WB_DONE};
}

// Writes the pages of a replicated volume back, after `announce` with the result `word`. Lanes that have nothing left to submit have
// no command afterwards. Collective.
WB_FN_COLD void write_copies(const wb_cache* cache, warp::mask_t mask, pending_io* e, uint32_t word) {
  const wb_cache& c = *cache;
  const bool mine = e->way != none;
  const uint64_t page = e->tag >> WB_TAG_PAGE_SHIFT;
  const uint32_t set = set_of(c, page), way = mine ? e->way : 0;
  const bool waits = volume(c).prepare_page(mask, mine, word, page * c.blocks_per_page, c.blocks_per_page, address(c, set, way),
                                            tag(c, entry(c, set, way)));
  if (!waits) e->way = none;
}

// Returns the most adjacent pages of one command, a power of two. The frames of pages in one way of adjacent sets are adjacent, and
// a run never goes beyond the last set. More bytes would keep a reader waiting for pages that it needs later.
WB_FN uint32_t most_pages(const wb_cache& c) {
  uint32_t most = WB_CACHE_COMMAND_BYTES >> c.page_shift;
  if (most > c.sets) most = c.sets;
  if (most <= 1 || !tags::fits(c.tag + uint64_t{c.sets} * c.ways, c.ways)) return 1;
  const uint32_t blocks = volume(c).most_blocks();
  while (most > 1 && most * c.blocks_per_page > blocks) most /= 2;
  return most;
}

// A lane's part of the commands of a mask.
struct command_part {
  uint32_t head;   // lane that sends the command which reads this lane's page
  uint32_t pages;  // of the command that this lane sends, or 0
};

// Distributes the pages of the lanes with `mine` to commands: adjacent pages in adjacent frames go with one command. Collective.
WB_FN command_part join(const wb_cache& c, warp::mask_t mask, bool mine, uint64_t page, uint32_t way) {
  command_part part{warp::lane(), mine};
  const uint32_t most = most_pages(c);
  if (most <= 1) return part;
  const warp::mask_t readers = warp::ballot(mask, mine), below = readers & ((1u << warp::lane()) - 1u);
  const uint32_t previous = below ? warp::last(below) : warp::lane();
  const uint64_t page_before = warp::shuffle(mask, page, previous);
  const uint32_t way_before = warp::shuffle(mask, way, previous);
  const bool joins = mine && below && page_before + 1 == page && way_before == way && (page & (most - 1)) != 0 &&
                     volume(c).continues(page * c.blocks_per_page);
  const warp::mask_t heads = warp::ballot(mask, mine && !joins);
  if (!mine) return part;
  const warp::mask_t up_to_here = (2u << warp::lane()) - 1u, later = heads & ~up_to_here;
  part.head = warp::last(heads & up_to_here);
  part.pages = joins ? 0 : warp::count(readers & ~below & (later ? (1u << warp::first(later)) - 1u : ~0u));
  return part;
}

// Submits the commands of those lanes of the mask that have one, and stores their tokens for the threads that wait. All lanes move
// the data. Write-backs follow `announce` and `write_copies`. Collective.
WB_FN_COLD void submit(const wb_cache* cache, warp::mask_t mask, by_value<pending_io> e, uint32_t opcode) {
  const wb_cache& c = *cache;
  const bool mine = e.way != none;
  const uint64_t page = e.tag >> WB_TAG_PAGE_SHIFT;
  const uint32_t set = set_of(c, page), way = mine ? e.way : 0;
  const uint32_t at = entry(c, set, way);
  const command_part part = opcode == nvme::op_read ? join(c, mask, mine, page, way) : command_part{warp::lane(), mine};
  token t = volume(c).start_prepared(mask, page * c.blocks_per_page, part.pages * c.blocks_per_page, opcode,
                                     reinterpret_cast<void*>(address(c, set, way)), tags::context(tag(c, at), c.ways, part.pages));
  t.word = warp::shuffle(mask, t.word, part.head);
  // A command that could not be started has completed its tag already.
  if (mine && t.in_flight()) order::compare_exchange<order::acq_rel>(fill(c, at), tags::pending(e.tag), t.word | tags::token_known);
}

// Finishes those of the commands named by the mask's lanes that have completed. Collective.
WB_FN_COLD void help(const wb_cache* cache, warp::mask_t mask, by_value<token> t) { volume(*cache).finish(mask, t); }

// Returns true if the page's last read failed and no thread has tried again.
WB_FN bool failed(const wb_cache& c, uint32_t set, uint64_t page) {
  for (uint32_t w = 0; w < c.ways; ++w) {
    uint64_t t = order::load<order::relaxed>(tag(c, entry(c, set, w)));
    if ((t & (WB_TAG_FAILED | WB_TAG_VALID)) == WB_TAG_FAILED && t >> WB_TAG_PAGE_SHIFT == page) return true;
  }
  return false;
}

// Returns true if other devices hold the blocks that one device fails to return.
WB_FN bool has_copies(const wb_cache& c) { return c.volume->replicated != 0; }

// Takes a frame whose page has been read, and which the caller has pinned, to compare the page with its checksums: `check` then
// names it.
WB_FN_COLD void take_unchecked(const wb_cache& c, page_wait& w, uint32_t at, uint64_t t, pending_io& check) {
  const uint64_t filling = tags::rename(t, w.page, WB_TAG_FILLING);
  order::store<order::relaxed>(fill(c, at), tags::pending(filling));
  if (order::compare_exchange<order::acq_rel>(tag(c, at), t, filling) != t) return;
  check.way = w.way;
  check.tag = filling;
}

// Takes a frame whose read has failed, and which the caller has pinned, to read its page once more: `again` then names it. If the
// page has another frame by now, removes the pins instead.
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

// Compares the pages of frames from `take_unchecked` with their checksums, which ends their reads. Collective.
WB_FN_COLD void check_page(const wb_cache* cache, warp::mask_t mask, by_value<pending_io> e) {
  const wb_cache& c = *cache;
  const bool mine = e.way != none;
  const uint64_t page = e.tag >> WB_TAG_PAGE_SHIFT;
  const uint32_t set = set_of(c, page), way = mine ? e.way : 0;
  const bool good = checksums::match(volume(c), mask, mine, page << c.page_shift, address(c, set, way), 1u << c.page_shift);
  if (mine) tags::end_read(tag(c, entry(c, set, way)), good);
}

// Reads the pages of frames from `take_failed`, from one copy after the other until one returns the right data. That ends the first
// read of each page. Collective.
WB_FN_COLD void read_again(const wb_cache* cache, warp::mask_t mask, by_value<pending_io> e) {
  const wb_cache& c = *cache;
  const volume_ref v = volume(c);
  const bool mine = e.way != none;
  const uint64_t page = e.tag >> WB_TAG_PAGE_SHIFT, block = page * c.blocks_per_page;
  const uint32_t at = entry(c, set_of(c, page), mine ? e.way : 0);
  const uint64_t data = address(c, set_of(c, page), mine ? e.way : 0);
  const uint32_t copies = has_copies(c) ? v.raw()->device_count : 1;
  bool waits = mine, read = false, is_redirected = false;
  // Of the copy that the error log names, if none returns the page.
  uint32_t word = status_word(WB_TIMED_OUT), turn = 0, ticket = 0;
  uint32_t damaged = 0;  // devices that returned errors or wrong data
  for (uint32_t i = 0; i < copies && warp::any(mask, waits); ++i) {
    const bool goes = waits && v.locate(block, i).room != 0;
    uint32_t last = 0;
    uint32_t one = v.read_copy(mask, goes, block, c.blocks_per_page, reinterpret_cast<void*>(data), i, last);
    // All lanes take part in the comparison.
    const bool right = checksums::match(v, mask, goes && one == WB_DONE, page << c.page_shift, data, 1u << c.page_shift);
    if (!goes) continue;
    if (one == WB_DONE && right) {
      read = true;
      waits = false;
      continue;
    }
    if (one == WB_DONE) one = status_word(WB_DAMAGED);
    is_redirected = true;
    word = one;
    turn = i;
    ticket = last;
    const uint32_t device = v.locate(block, i).device, kind = one >> WB_STATUS_KIND_SHIFT;
    if (kind == WB_DAMAGED || kind == WB_DEVICE_ERROR) damaged |= 1u << device;
    else waits = copies > 1 && volume_ref::is_of_device(one) && v.leave_out(device);
  }
  v.count_errors(mask, mine && !read && word >> WB_STATUS_KIND_SHIFT != WB_DAMAGED);
  if (!mine) return;
  if (!read) {
    const volume_ref::place from = v.locate(block, turn);
    v.fail(status{word, nvme::op_read << WB_RECORD_OPCODE_SHIFT | c.blocks_per_page,
                  token::of(from.device, v.queue_on(from.device).q->index, ticket).word, from.lba});
  } else if (is_redirected) {
    v.redirected(damaged, block, c.blocks_per_page);
  }
  tags::end_read(tag(c, at), read);
}

// Work that the leaders of a turn have found.
struct page_work {
  pending_io read, write, check, again;
};

// The leader's part of a turn: finds the page, or a frame for it, and looks at its state.
WB_FN_COLD void look(const wb_cache* cache, page_wait& w, page_work* found) {
  const wb_cache& c = *cache;
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
      // Another thread may have brought the page in before this thread had the lock.
      if (find(c, set, w.page, t) == none) {
        way = choose(c, set, w.page, false, t, &found->write);
        if (way != none) {
          found->read.way = way;
          found->read.tag = install(c, entry(c, set, way), t, w.page, lanes);
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
    take_unchecked(c, w, at, t, found->check);
  } else if ((t & WB_TAG_FAILED) && !aborted(c)) {
    take_failed(c, w, at, t, found->again);
  } else if (t & WB_TAG_FAILED) {
    unpin(c, at, lanes);
    w.way = none;
    w.status = WB_POISONED;
  }
  // Otherwise the page is being filled, or a thread has claimed the frame and is about to see the pin and give the frame back.
}

// Returns the command that a waiting leader can help to finish: its own page's, or, without a frame, one of the set's.
WB_FN token useful_token(const wb_cache& c, page_wait& w) {
  const uint32_t set = set_of(c, w.page);
  const uint32_t way = w.way != none ? w.way : w.turns++ % c.ways;
  const uint64_t f = order::load<order::acquire>(fill(c, entry(c, set, way)));
  return f & tags::token_known ? token{f & ~tags::token_known} : token{};
}

// Enters an error that is not a command's own in the run's log, and fails the run.
WB_FN void report(const wb_cache& c, wb_kind kind, uint64_t page) {
  const volume_ref v = volume(c);
  const volume_ref::place at = v.locate(page * c.blocks_per_page);
  v.raise(static_cast<uint32_t>(kind) << WB_STATUS_KIND_SHIFT, nvme::op_read, at.lba, c.blocks_per_page, at.device);
}

// Gives up the read that a page waits for, if another copy has the page: the frame then counts as one whose read has failed.
// Returns true if there is something to wait for again. A leader without a frame waits while others do so for their pages. For each
// copy that may be lost it waits one deadline for the reply, and one for the host's look at the device.
WB_FN_COLD bool give_up(const wb_cache& c, page_wait& w) {
  const uint32_t copies = c.volume->device_count;
  const uint32_t most = w.way == none ? 2 * (copies - 1) : 1;
  if (!has_copies(c) || w.extended >= most) return false;
  ++w.extended;
  w.left = deadline(control(c));
  if (w.way == none) return true;
  const uint32_t at = entry(c, set_of(c, w.page), w.way);
  const uint64_t f = order::load<order::acquire>(fill(c, at));
  // The thread that submits the read has no room yet, and waits too.
  if (!(f & tags::token_known)) return true;
  const token t{f & ~tags::token_known};
  const volume_ref v = volume(c);
  if (!v.leave_out(t.device())) return false;
  // If `abandon` fails, another thread has finished the read or given it up.
  const queue_ref q = v.queue(t);
  // Other pages may have come with the same command. Its record stays as it is until the command is over.
  const uint64_t context = order::load<order::relaxed>(&q.record(t.ticket())->tag);
  if (q.abandon(t.ticket())) tags::end_reads(context, false);
  return true;
}

// The leader's look at the clock.
WB_FN_COLD void run_out_of_time(const wb_cache* cache, page_wait& w) {
  const wb_cache& c = *cache;
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

/// @brief Executes one turn of a wait for pages. Collective: all lanes of the mask, converged.
///
/// Waiting lanes look for their pages, submit all misses at once, and help to finish commands in flight. Lanes that are done take
/// part and do nothing.
/// @return In `w.status`: WB_PENDING, or WB_DONE with the frame pinned once for this lane, or the kind of failure.
/// @note After WB_DONE all lanes have acquired the page's content on scope device.
WB_FN_COLD void page_turn(const wb_cache* cache, warp::mask_t mask, page_wait& w) {
  using frames::none;
  const wb_cache& c = *cache;
  const bool acts = warp::is_leader(w.group) && w.status == WB_PENDING;
  frames::page_work work;
  if (acts) frames::look(cache, w, &work);
  const warp::mask_t writers = warp::ballot(mask, work.write.way != none);
  if (writers) {
    frames::write_copies(cache, mask, &work.write, frames::announce(cache, mask, work.write));
    frames::submit(cache, mask, work.write, nvme::op_write);
    if (warp::is_leader(mask)) frames::count(c, &wb_stats::write_backs, warp::count(writers));
  }
  const warp::mask_t readers = warp::ballot(mask, work.read.way != none);
  if (readers) {
    frames::submit(cache, mask, work.read, nvme::op_read);
    if (warp::is_leader(mask)) frames::count(c, &wb_stats::fills, warp::count(readers));
  }
  const bool waits = acts && w.status == WB_PENDING;
  if (warp::any(mask, waits)) {
    if (warp::any(mask, work.check.way != none)) frames::check_page(cache, mask, work.check);
    if (warp::any(mask, work.again.way != none)) frames::read_again(cache, mask, work.again);
    frames::help(cache, mask, waits ? frames::useful_token(c, w) : token{});
    if (waits) frames::run_out_of_time(cache, w);
  }
  const uint32_t leader = warp::leader(w.group);
  w.status = warp::shuffle(mask, w.status, leader);
  w.way = warp::shuffle(mask, w.way, leader);
  w.missed = warp::shuffle(mask, static_cast<uint32_t>(w.missed), leader) != 0;
  // The leader has acquired the tag; the sync passes that on to all lanes.
  warp::sync(mask);
}

namespace frames {

// Counts one group's accesses.
WB_FN void count_accesses(const wb_cache& c, const page_wait& w, uint32_t accesses) {
  count(c, w.missed ? &wb_stats::misses : &wb_stats::hits, accesses);
}

}  // namespace frames

/// @brief Calls `use(address)` in every lane of the mask with `wants`, each with its own page, while that page is pinned.
/// Collective: all lanes of the mask, converged; lanes without `wants` help.
///
/// A lane's call happens as soon as its page has arrived.
/// @param page Page number in the volume.
/// @param writes `use` changes the page, which is marked dirty before.
/// @param use Gets the address of the page's first byte. Other threads may access the page at the same time.
/// @return WB_DONE, or the kind of failure (wb_kind), in which case `use` was not called.
/// @note Before `use` the lane acquires the page's content on scope device. The end of the pin releases the accesses of `use`.
template <class F> WB_FN uint32_t with_page(const wb_cache* cache, warp::mask_t mask, bool wants, uint64_t page, bool writes, F use) {
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
      frames::count_accesses(*cache, w, warp::count(w.group));
    }
    waiting = waiting && !ended;
  } while (warp::any(mask, waiting));
  return w.status;
}

/// @brief Pins the page of each lane of the mask. Collective: all lanes of the mask, converged.
///
/// @param together Count lanes with the same page as one access.
/// @param way The way of the page's frame in its set. The caller calls frames::unpin once for each lane, after its last access.
/// @return WB_DONE, or the kind of failure (wb_kind), in which case no pin remains.
/// @note After WB_DONE the lane has acquired the page's content on scope device.
WB_FN_COLD uint32_t pin_page(const wb_cache* cache, warp::mask_t mask, uint64_t page, bool writes, bool together, uint32_t& way) {
  page_wait w(*cache, mask, true, page, writes);
  do {
    page_turn(cache, mask, w);
  } while (warp::any(mask, w.status == WB_PENDING));
  if (warp::is_leader(w.group)) frames::count_accesses(*cache, w, together ? 1 : warp::count(w.group));
  way = w.way;
  return w.status;
}

/// @brief Requests the pages of the lanes with `wants` ahead of their use. Collective: all lanes of the mask, converged. Does not
/// wait for them.
///
/// Requests a page only if it is missing, and a frame is available. Adjacent pages of lanes in ascending order are read by one
/// command.
/// @param certain The pages will be read: they may take the place of pages that were used lately. Pages that may not be needed take
/// frames that no thread used lately.
WB_FN_COLD void request_pages(const wb_cache* cache, warp::mask_t mask, bool wants, uint64_t page, bool certain) {
  const wb_cache& c = *cache;
  const uint64_t unlike = ~uint64_t{warp::lane()};
  const warp::mask_t group = warp::match(mask, wants ? page : unlike);
  const uint32_t set = frames::set_of(c, page), most = frames::most_pages(c);
  uint64_t t = 0;
  const auto is_missing = [&] { return frames::find(c, set, page, t) == frames::none; };
  bool chooses = wants && warp::is_leader(group) && is_missing() && !frames::aborted(c) && frames::try_lock(c, set);
  if (chooses && !is_missing()) {
    frames::unlock(c, set);
    chooses = false;
  }
  // The pages of a command are to be in one way. So the first lane of each run chooses the way, and the others follow. Pages that
  // came together were mostly used together, and leave together.
  const warp::mask_t run = most > 1 ? warp::match(mask, chooses ? page & ~uint64_t{most - 1} : unlike) : 1u << warp::lane();
  uint32_t way = frames::none;
  if (chooses && warp::is_leader(run)) way = frames::choose(c, set, page, !certain, t, nullptr);
  if (most > 1) {
    const uint32_t same = warp::shuffle(mask, way, warp::leader(run));
    if (chooses && !warp::is_leader(run) && same != frames::none) {
      way = frames::claim_way(c, set, same, !certain, t) ? same : frames::choose(c, set, page, !certain, t, nullptr);
    }
  }
  frames::pending_io read;
  if (chooses) {
    if (way != frames::none) read = frames::pending_io{way, frames::install(c, frames::entry(c, set, way), t, page, 0)};
    frames::unlock(c, set);
  }
  const warp::mask_t readers = warp::ballot(mask, read.way != frames::none);
  if (readers == 0) return;
  frames::submit(cache, mask, read, nvme::op_read);
  if (warp::is_leader(mask)) {
    frames::count(c, &wb_stats::fills, warp::count(readers));
    frames::count(c, &wb_stats::prefetches, warp::count(readers));
  }
}

/// @brief Requests the missing ones of pages `first` to `end` - 1, one by each lane of the mask at most. Collective, converged. As
/// request_pages.
WB_FN_COLD void request_range(const wb_cache* cache, warp::mask_t mask, uint64_t first, uint64_t end, bool certain) {
  const wb_cache& c = *cache;
  const uint64_t page = first + warp::rank(mask);
  const uint32_t set = frames::set_of(c, page);
  const bool asks =
      page < end && !tags::names(order::load<order::relaxed>(frames::tag(c, frames::entry(c, set, frames::home_way(c, page)))), page);
  if (warp::any(mask, asks)) request_pages(cache, mask, asks, page, certain);
}

}  // namespace warpbell
