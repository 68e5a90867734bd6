// Kernels of the host's cache calls: write dirty pages back, drop pages, bring pages in, and copy bytes through the cache. Launch
// shape: any grid of whole warps. The shipped image has them. An image of your own includes this file once if its host calls `Cache`
// or `Array` methods that read, write, flush or reset.
#pragma once

#include <warpbell/cache.cuh>
#include <warpbell/kernel.h>
#include <warpbell/warp.cuh>

namespace cache_kernels {

using namespace warpbell;

// Limits of a write's length in pages: the limit of a command, and the end of the stripe unit.
struct run_limit {
  uint64_t unit, command;
  WB_FN explicit run_limit(const wb_cache& c) {
    const wb_volume* v = c.volume;
    uint32_t blocks = ~0u;
    for (uint32_t d = 0; d < v->device_count; ++d) {
      const uint32_t most = order::load_lasting(&v->device[d].max_blocks);
      // A copy that is out of use has 0.
      if (most != 0 && most < blocks) blocks = most;
    }
    unit = v->device_count > 1 ? v->chunk_blocks / c.blocks_per_page : ~0ull;
    command = blocks / c.blocks_per_page;
    if (unit == 0) unit = 1;
    if (command == 0) command = 1;
  }
  WB_FN bool cuts_before(uint64_t page) const { return page % unit % command == 0; }
};

// Flushes one way of as many neighbouring sets as the warp has lanes, a frame for each lane: runs of pages are runs of frames
// there.
class flusher {
 public:
  WB_FN flusher(const wb_cache& c, const run_limit& limit, uint32_t way, uint32_t first_set)
      : c_(c), limit_(limit), way_(way), set_(first_set + warp::lane()), done_(set_ >= c.sets) {}

  WB_FN void run() {
    deadline left(frames::control(c_));
    while (true) {
      uint64_t t = 0;
      token other;
      const bool mine = begin(t, other);
      write(t, mine);
      if (warp::all(warp::full(), done_)) return;
      frames::help(&c_, warp::full(), other);
      const wait_status v = left.expired();
      if (!done_ && v != wait_status::go_on) {
        if (v == wait_status::timed_out) frames::report(c_, t & WB_TAG_WRITING ? WB_TIMED_OUT : WB_NO_FRAME, t >> WB_TAG_PAGE_SHIFT);
        done_ = true;
      }
    }
  }

 private:
  // Turns the lane's frame from dirty to being written, if the frame is dirty and not pinned. `other` names a write by another
  // thread.
  WB_FN bool begin(uint64_t& t, token& other) {
    if (done_) return false;
    const uint32_t at = frames::entry(c_, set_, way_);
    t = order::load<order::acquire>(frames::tag(c_, at));
    if (t & WB_TAG_WRITING) {
      const uint64_t f = order::load<order::acquire>(frames::fill(c_, at));
      if (f & tags::token_known) other = token{f & ~tags::token_known};
      return false;
    }
    if (!(t & WB_TAG_DIRTY)) {
      done_ = true;
      return false;
    }
    if (!frames::try_lock(c_, set_)) return false;
    t = order::load<order::acquire>(frames::tag(c_, at));
    const bool mine = (t & (WB_TAG_DIRTY | WB_TAG_WRITING)) == WB_TAG_DIRTY && frames::begin_write(c_, at, t);
    frames::unlock(c_, set_);
    return mine;
  }

  // Writes the frames of the lanes with `mine`, and waits for the writes. Neighbouring pages go with one command.
  WB_FN void write(uint64_t t, bool mine) {
    const warp::mask_t all = warp::full();
    const warp::mask_t writing = warp::ballot(all, mine);
    if (writing == 0) return;
    const uint64_t page = t >> WB_TAG_PAGE_SHIFT;
    const uint32_t lane = warp::lane();
    const uint64_t before = warp::shuffle(all, page, lane == 0 ? 0 : lane - 1);
    const bool joins = lane > 0 && (writing >> (lane - 1) & 1u) && before + 1 == page && !limit_.cuts_before(page);
    const warp::mask_t heads = warp::ballot(all, mine && !joins);
    const bool heading = mine && !joins;
    // Up to the next head or the next lane that does not write.
    const warp::mask_t stops = (heads | ~writing) & ~((2u << lane) - 1u);
    const uint32_t end = stops ? warp::first(stops) : warp::width;
    const uint32_t pages = heading ? (end < warp::width ? end : warp::width) - lane : 0;
    const volume_ref v = frames::volume(c_);
    const uint64_t frame = frames::address(c_, set_, way_);
    checksums::store(v, all, mine, page << c_.page_shift, frame, 1u << c_.page_shift);
    const token run = v.write_pages_async(all, page * c_.blocks_per_page, pages * c_.blocks_per_page, reinterpret_cast<const void*>(frame));
    const status s = v.wait(all, run);
    if (heading && !s) v.fail(s);
    uint32_t word = s.word;
    const warp::mask_t at_or_before = heads & ((2u << lane) - 1u);
    word = warp::shuffle(all, word, at_or_before ? last(at_or_before) : lane);
    if (warp::is_leader(all)) frames::count(c_, &wb_stats::write_backs, warp::count(writing));
    if (!mine) return;
    const uint32_t at = frames::entry(c_, set_, way_);
    if (word == WB_DONE) {
      tags::end_write(frames::tag(c_, at), true);
    } else {
      frames::mark(c_, at, WB_TAG_DIRTY | WB_TAG_FAILED);
      tags::end_write(frames::tag(c_, at), true);
      done_ = true;
    }
  }

  WB_FN static uint32_t last(warp::mask_t m) {
    uint32_t l = 0;
    while (m >>= 1) ++l;
    return l;
  }

  const wb_cache& c_;
  const run_limit& limit_;
  uint32_t way_, set_;
  bool done_;
};

// Empties the lane's frame if it holds a page from `first` to `last` (exclusive) that is clean, or any such page with `dirty_too`.
WB_FN void drop(const wb_cache& c, bool inside, uint32_t entry, uint64_t first, uint64_t last, bool dirty_too) {
  deadline left(frames::control(c));
  bool done = !inside;
  while (true) {
    token other;
    uint64_t t = 0;
    if (!done) {
      t = order::load<order::acquire>(frames::tag(c, entry));
      const uint64_t page = t >> WB_TAG_PAGE_SHIFT;
      const uint32_t set = entry / c.ways;
      if (!(t & (WB_TAG_VALID | WB_TAG_FILLING | WB_TAG_UNCHECKED | WB_TAG_FAILED)) || page < first || page >= last ||
          ((t & WB_TAG_DIRTY) && !dirty_too)) {
        done = true;
      } else if (t & (WB_TAG_FILLING | WB_TAG_WRITING)) {
        const uint64_t f = order::load<order::acquire>(frames::fill(c, entry));
        if (f & tags::token_known) other = token{f & ~tags::token_known};
      } else if (frames::try_lock(c, set)) {
        done = frames::claim(c, entry, t);
        frames::unlock(c, set);
      }
    }
    if (warp::all(warp::full(), done)) return;
    frames::help(&c, warp::full(), other);
    const wait_status v = left.expired();
    if (!done && v != wait_status::go_on) {
      if (v == wait_status::timed_out) {
        frames::report(c, t & (WB_TAG_FILLING | WB_TAG_WRITING) ? WB_TIMED_OUT : WB_NO_FRAME, t >> WB_TAG_PAGE_SHIFT);
      }
      done = true;
    }
  }
}

// Copies between a page and plain memory, by all lanes of the warp.
template <bool IntoPage> WB_FN void move(uint64_t page, uint64_t plain, uint32_t bytes) {
  constexpr uint32_t unit = sizeof(uint64_t);
  if (((page | plain | bytes) & (unit - 1)) == 0) {
    for (uint32_t k = warp::lane(); k < bytes / unit; k += warp::width) {
      uint64_t* in_page = reinterpret_cast<uint64_t*>(page) + k;
      uint64_t* in_plain = reinterpret_cast<uint64_t*>(plain) + k;
      if (IntoPage) order::store<order::relaxed>(in_page, *in_plain);
      else *in_plain = order::load<order::relaxed>(in_page);
    }
    return;
  }
  for (uint32_t k = warp::lane(); k < bytes; k += warp::width) {
    uint8_t* in_page = reinterpret_cast<uint8_t*>(page) + k;
    uint8_t* in_plain = reinterpret_cast<uint8_t*>(plain) + k;
    if (IntoPage) order::store<order::relaxed>(in_page, *in_plain);
    else *in_plain = order::load<order::relaxed>(in_page);
  }
}

// Copies bytes `first` to `first + bytes` of the volume through the cache, a page at a time for each warp.
template <bool IntoPage> WB_FN void copy(const wb_cache* cache, uint64_t first, uint64_t bytes, uint64_t plain) {
  if (bytes == 0) return;
  const wb_cache& c = *cache;
  const uint64_t first_page = first >> c.page_shift, last_page = ((first + bytes - 1) >> c.page_shift) + 1;
  const uint64_t each = (last_page - first_page + warp::total() - 1) / warp::total();
  const uint64_t from = first_page + each * warp::index();
  const uint64_t to = from + each < last_page ? from + each : last_page;
  for (uint64_t page = from; page < to; ++page) {
    if ((page - from) % warp::width == 0 && to - page > 1) {
      request_pages(cache, warp::full(), page + warp::lane() < to, page + warp::lane(), false);
    }
    const uint64_t page_start = page << c.page_shift, page_end = page_start + (1ull << c.page_shift);
    const uint64_t start = first > page_start ? first : page_start;
    const uint64_t end = first + bytes < page_end ? first + bytes : page_end;
    with_page(cache, warp::full(), true, page, IntoPage, [&](uint64_t base) {
      move<IntoPage>(base + (start - page_start), plain + (start - first), static_cast<uint32_t>(end - start));
    });
  }
}

}  // namespace cache_kernels

// Writes every dirty page back and waits for the writes. Data is then in the devices' own write caches. The host makes it durable
// by a Flush command to each device.
WB_KERNEL void wb_cache_flush(const wb_cache* cache) {
  using namespace warpbell;
  const wb_cache& c = *cache;
  const cache_kernels::run_limit limit(c);
  const uint32_t groups = (c.sets + warp::width - 1) / warp::width;
  for (uint64_t g = warp::index(); g < uint64_t{groups} * c.ways; g += warp::total()) {
    cache_kernels::flusher(c, limit, static_cast<uint32_t>(g / groups), static_cast<uint32_t>(g % groups) * warp::width).run();
  }
}
WB_EXPORT(wb_cache_flush)

// Drops pages `first` to `last` (exclusive): the next access reads them again. Dirty pages stay unless `dirty_too`, which loses
// their changes.
WB_KERNEL void wb_cache_drop(const wb_cache* cache, WB_PARAM uint64_t first, WB_PARAM uint64_t last, WB_PARAM uint32_t dirty_too) {
  using namespace warpbell;
  const wb_cache& c = *cache;
  const uint64_t entries = uint64_t{c.sets} * c.ways;
  for (uint64_t e = uint64_t{warp::index()} * warp::width; e < entries; e += uint64_t{warp::total()} * warp::width) {
    const uint64_t mine = e + warp::lane();
    cache_kernels::drop(c, mine < entries, static_cast<uint32_t>(mine), first, last, dirty_too != 0);
  }
}
WB_EXPORT(wb_cache_drop)

// Brings pages `first` to `last` (exclusive) in, all lanes at once.
WB_KERNEL void wb_cache_touch(const wb_cache* cache, WB_PARAM uint64_t first, WB_PARAM uint64_t last) {
  using namespace warpbell;
  for (uint64_t p = first + uint64_t{warp::index()} * warp::width; p < last; p += uint64_t{warp::total()} * warp::width) {
    with_page(cache, warp::full(), p + warp::lane() < last, p + warp::lane(), false, [](uint64_t) {});
  }
}
WB_EXPORT(wb_cache_touch)

// Copies bytes of the volume to plain memory, through the cache.
WB_KERNEL void wb_cache_read(const wb_cache* cache, WB_PARAM uint64_t first, WB_PARAM uint64_t bytes, uint8_t* out) {
  cache_kernels::copy<false>(cache, first, bytes, reinterpret_cast<uint64_t>(out));
}
WB_EXPORT(wb_cache_read)

// Copies plain memory to bytes of the volume, through the cache.
WB_KERNEL void wb_cache_write(const wb_cache* cache, WB_PARAM uint64_t first, WB_PARAM uint64_t bytes, const uint8_t* in) {
  cache_kernels::copy<true>(cache, first, bytes, reinterpret_cast<uint64_t>(in));
}
WB_EXPORT(wb_cache_write)
