// `array_ref<T>`: a typed range of a cached volume, as kernels see it.
//
//   WB_KERNEL void total(WB_PARAM warpbell::array_ref<uint32_t> in, uint64_t* out) {
//     auto a = in.open();                                   // a session: registers, and hits counted once at its end
//     uint64_t sum = 0;
//     for (uint64_t i = warp::thread_index(); i < a.size(); i += warp::thread_total()) sum += a[i];
//     atomicAdd(out, sum);
//   }
//
// Give kernels bounds, `__launch_bounds__(256, 4)` say: what a miss needs (some 200 registers) is called out of line, and
// without bounds would decide how many threads fit. With them a hit still runs in registers; only misses spill.
//
// Elements have 1, 2, 4, 8 or 16 bytes and never straddle pages. Nothing here throws or waits for ever: an element that cannot
// be read is the poison value (all bits set), the reason is in the run's error log, and the run ends as an error. A loop whose end
// depends on what it reads asks `has_failed()`.
#pragma once

#include <warpbell/cache.cuh>

namespace warpbell {

// All bits set.
template <class T> WB_FN T poison() {
  uint64_t ones[2] = {~0ull, ~0ull};
  T v;
  memcpy(&v, ones, sizeof v);
  return v;
}

template <class T> class array;
template <class T> class page_handle;

// The kernel parameter: trivially copyable, mirrored by the host (wb_array_view).
template <class T> class array_ref {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                "elements have 1, 2, 4, 8 or 16 bytes");

 public:
  using value_type = T;

  array_ref() = default;
  // An array whose description is in memory.
  WB_FN explicit array_ref(const wb_array* a) : view_{*a, *a->cache} {}

  WB_FN uint64_t size() const { return view_.array.count; }

  // The session through which elements are reached. Open it once, outside the loop.
  WB_FN array<T> open() const { return array<T>(view_); }

  // One access, in a session of its own.
  WB_FN T load(uint64_t i) const { return open().load(i); }
  WB_FN T operator[](uint64_t i) const { return open().load(i); }
  WB_FN void store(uint64_t i, T v) const { open().store(i, v); }
  WB_FN T atomic_add(uint64_t i, T v) const { return open().atomic_add(i, v); }
  WB_FN void prefetch(uint64_t i, uint64_t n) const { open().prefetch(i, n); }
  template <class F> WB_FN void for_each_chunk(uint64_t first, uint64_t last, F f) const {
    open().for_each_chunk(first, last, f);
  }
  template <class F> WB_FN void for_each_chunk(warp::mask_t mask, uint64_t first, uint64_t last, F f) const {
    open().for_each_chunk(mask, first, last, f);
  }

 private:
  wb_array_view view_;
};

// What is not a hit in the page's home way is done here, out of the way (and out of the registers) of the code that is.

// Where the page is, if it is anywhere; `t` is its tag, acquired.
WB_FN_COLD uint32_t find_page(const wb_cache* cache, uint64_t page, uint64_t& t) {
  const wb_cache& c = *cache;
  const uint32_t set = frames::set_of(c, page);
  const uint32_t way = frames::find(c, set, page, t);
  if (way == frames::none) return way;
  t = order::load<order::acquire>(frames::tag(c, frames::entry(c, set, way)));
  return tags::holds(t, page) ? way : frames::none;
}

template <class T> struct found {
  T value;
  bool ok;
};

WB_FN_COLD void outside_of_array(const wb_cache* cache, uint64_t page) { frames::report(*cache, WB_BAD_ARGUMENT, page); }

WB_FN_COLD void note_retry(const wb_cache* cache) { frames::count(*cache, &wb_stats::retries, 1); }

// A hit in another way than the home way.
template <class T> WB_FN found<T> load_elsewhere(const wb_cache* cache, uint64_t page, uint32_t byte) {
  const wb_cache& c = *cache;
  uint64_t t = 0;
  found<T> f{poison<T>(), false};
  const uint32_t way = find_page(cache, page, t);
  if (way == frames::none) return f;
  const uint32_t set = frames::set_of(c, page);
  const uint64_t* word = frames::tag(c, frames::entry(c, set, way));
  const T v = order::load_checked(reinterpret_cast<const T*>(frames::address(c, set, way) + byte));
  if (!tags::same(t, order::load<order::relaxed>(word))) {
    note_retry(cache);
    return f;
  }
  if (!(t & WB_TAG_REFERENCED)) frames::touch(word, t);
  return found<T>{v, true};
}

// The misses of the lanes with `wants`; the mask's other lanes help to move the pages.
template <class T> WB_FN T load_missing(const wb_cache* cache, warp::mask_t mask, bool wants, uint64_t page, uint32_t byte) {
  T v = poison<T>();
  with_page(cache, mask, wants, page, false,
            [&](uint64_t base) { v = order::load<order::relaxed>(reinterpret_cast<const T*>(base + byte)); });
  return v;
}

// All that a lane by itself may need: `ok` if it was a hit after all.
template <class T> WB_FN_COLD found<T> load_slowly(const wb_cache* cache, uint64_t first_page, uint64_t count, uint64_t i) {
  const uint64_t at = i * sizeof(T);
  const uint64_t page = first_page + (at >> cache->page_shift);
  const uint32_t byte = static_cast<uint32_t>(at) & cache->page_mask;
  if (i >= count) {
    outside_of_array(cache, page);
    return found<T>{poison<T>(), false};
  }
  found<T> f = load_elsewhere<T>(cache, page, byte);
  if (!f.ok) f.value = load_missing<T>(cache, warp::active(), true, page, byte);
  return f;
}

// The same for the lanes of a mask together; those without `wants` help.
template <class T>
WB_FN_COLD found<T> load_slowly_together(const wb_cache* cache, warp::mask_t mask, bool wants, uint64_t first_page,
                                         uint64_t count, uint64_t i) {
  const uint64_t at = i * sizeof(T);
  const uint64_t page = first_page + (at >> cache->page_shift);
  const uint32_t byte = static_cast<uint32_t>(at) & cache->page_mask;
  found<T> f{poison<T>(), false};
  if (wants && i >= count) {
    outside_of_array(cache, page);
    wants = false;
  }
  if (wants) f = load_elsewhere<T>(cache, page, byte);
  const bool missing = wants && !f.ok;
  if (warp::any(mask, missing)) {
    const T v = load_missing<T>(cache, mask, missing, page, byte);
    if (missing) f.value = v;
  }
  return f;
}

// A session. One for each thread, on its stack; not to be kept or copied.
template <class T> class array {
 public:
  using value_type = T;

  WB_FN explicit array(const wb_array_view& v)
      : cache_(v.array.cache),
        c_(v.cache),
        first_page_(v.array.first_page),
        count_(v.array.count),
        page_elements_log2_(v.array.page_elements_log2) {}
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  WB_FN ~array() {
    if (hits_ == 0) return;
    // Whoever ends together adds together.
    const warp::mask_t m = warp::active();
    const uint32_t total = warp::sum(m, hits_);
    if (warp::is_leader(m)) frames::count(c_, &wb_stats::hits, total);
  }

  WB_FN uint64_t size() const { return count_; }

  // Whether the run has failed or was told to end: what loads answer from here on may be the poison value. For loops whose end depends
  // on what they read; ask once a round, not for each element, as it loads two words that all threads share.
  WB_FN bool has_failed() const { return frames::ended(*cache_); }

  // --- elements -------------------------------------------------------------------------------------------------------

  // Element i. Lanes that miss together wait together.
  WB_FN T load(uint64_t i) {
    T v;
    if (i < count_ && try_home(i, v)) return v;
    const found<T> f = out_of_line(load_slowly<T>)(cache_, first_page_, count_, i);
    hits_ += f.ok;
    return f.value;
  }
  WB_FN T operator[](uint64_t i) { return load(i); }

  // Element i of each lane of the mask: all misses of the mask are in flight at once.
  WB_FN T load(warp::mask_t mask, uint64_t i) { return load(mask, true, i); }
  // The same for the lanes with `wants`; the others get nothing of use, and help: a page that comes through a bounce buffer is
  // copied by the whole mask, and one lane alone would take a hundred times as long.
  WB_FN T load(warp::mask_t mask, bool wants, uint64_t i) {
    T v = poison<T>();
    const bool slow = wants && !(i < count_ && try_home(i, v));
    if (warp::any(mask, slow)) {
      const found<T> f = out_of_line(load_slowly_together<T>)(cache_, mask, slow, first_page_, count_, i);
      if (slow) v = f.value;
      hits_ += f.ok;
    }
    return v;
  }

  WB_FN void store(uint64_t i, T v) {
    update(i, [v](T* p) { order::store<order::relaxed>(p, v); });
  }
  WB_FN void store(warp::mask_t mask, uint64_t i, T v) {
    update(mask, i, [v](T* p) { order::store<order::relaxed>(p, v); });
  }

  // Adds atomically with respect to all threads of this engine; answers the value before.
  WB_FN T atomic_add(uint64_t i, T v) {
    T before = poison<T>();
    update(i, [&before, v](T* p) { before = order::fetch_add<order::relaxed>(p, v); });
    return before;
  }
  WB_FN T atomic_add(warp::mask_t mask, uint64_t i, T v) {
    T before = poison<T>();
    update(mask, i, [&before, v](T* p) { before = order::fetch_add<order::relaxed>(p, v); });
    return before;
  }

  // Calls f(address of element i) while its page is pinned and marked dirty: for any change that is more than a store. Other
  // threads may read and change the element meanwhile. False when the page could not be had.
  template <class F> WB_FN bool update(uint64_t i, F f) {
    if (i >= count_) {
      outside(i);
      return false;
    }
    return change(warp::active(), i, f);
  }
  template <class F> WB_FN bool update(warp::mask_t mask, uint64_t i, F f) {
    const bool inside = i < count_;
    const warp::mask_t members = warp::ballot(mask, inside);
    if (!inside) {
      outside(i);
      return false;
    }
    return change(members, i, f);
  }

  // --- ahead of use ---------------------------------------------------------------------------------------------------

  // Asks for the pages of elements i to i + n that are missing. Does not wait for them, evicts nothing that was used lately,
  // and gives up where there is no room, so it may be called freely. `prefetch_pages` pages at most for one call.
  WB_FN void prefetch(uint64_t i, uint64_t n) {
    if (i >= count_ || n == 0) return;
    const uint64_t last_element = n < count_ - i ? i + n - 1 : count_ - 1;
    uint64_t last = page_of(last_element);
    const uint64_t first = page_of(i);
    if (last - first >= prefetch_pages) last = first + prefetch_pages - 1;
    for (uint64_t p = first; p <= last; ++p) ask_for(p);
  }

  // --- a page that stays ----------------------------------------------------------------------------------------------

  // Pins the page of element i: elements of that page are then plain loads. The handle follows `load(i)` to other pages; it holds
  // one page at a time, and lets go of it at the end of its scope. A lane that holds several handles may run out of frames.
  WB_FN page_handle<T> pin(uint64_t i) { return page_handle<T>(*this, i); }

  // --- ranges ---------------------------------------------------------------------------------------------------------

  // The warp visits elements first to last, page by page, the next page already requested: f(value) for each element, in
  // exactly one lane. All lanes of the warp (or of the mask) call it with the same range. Values are checked before `f` sees
  // them. One access is counted for each page. False if a page could not be read: the walk ends there.
  template <class F> WB_FN bool for_each_chunk(uint64_t first, uint64_t last, F f) {
    return for_each_chunk(warp::full(), first, last, f);
  }
  template <class F> WB_FN bool for_each_chunk(warp::mask_t mask, uint64_t first, uint64_t last, F f) {
    return walk<false>(mask, first, last, [&f](uint64_t, T v) {
             f(v);
             return false;
           }) != walked::failed;
  }
  // f(index, value).
  template <class F> WB_FN bool for_each_chunk_indexed(uint64_t first, uint64_t last, F f) {
    return for_each_chunk_indexed(warp::full(), first, last, f);
  }
  template <class F> WB_FN bool for_each_chunk_indexed(warp::mask_t mask, uint64_t first, uint64_t last, F f) {
    return walk<false>(mask, first, last, [&f](uint64_t i, T v) {
             f(i, v);
             return false;
           }) != walked::failed;
  }
  // Whether f(value) is true for any element. The warp stops soon after the first; which elements it still sees is not
  // defined. All lanes get the same answer.
  template <class F> WB_FN bool any_of(uint64_t first, uint64_t last, F f) { return any_of(warp::full(), first, last, f); }
  template <class F> WB_FN bool any_of(warp::mask_t mask, uint64_t first, uint64_t last, F f) {
    return walk<true>(mask, first, last, [&f](uint64_t, T v) { return f(v); }) == walked::stopped;
  }

 private:
  friend class page_handle<T>;

  static constexpr uint32_t log2_bytes = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : sizeof(T) == 8 ? 3 : 4;
  static constexpr uint64_t prefetch_pages = 32;
  // Loads that a lane has in flight within a chunk.
  static constexpr uint32_t batch = sizeof(T) <= 8 ? 8 : 4;

  enum class walked : uint32_t { all, stopped, failed };

  WB_FN uint64_t page_of(uint64_t i) const { return first_page_ + (i >> page_elements_log2_); }
  WB_FN uint32_t byte_of(uint64_t i) const { return static_cast<uint32_t>(i << log2_bytes) & c_.page_mask; }

  WB_FN void outside(uint64_t i) const { out_of_line(outside_of_array)(cache_, page_of(i)); }

  // The frame that holds the page now, its tag acquired.
  WB_FN bool hit(uint64_t page, uint32_t set, uint32_t& way, const uint64_t*& word, uint64_t& t) const {
    way = frames::home_way(c_, page);
    word = frames::tag(c_, frames::entry(c_, set, way));
    t = order::load<order::acquire>(word);
    if (tags::holds(t, page)) return true;
    uint64_t elsewhere = 0;
    way = out_of_line(find_page)(cache_, page, elsewhere);
    t = elsewhere;
    word = frames::tag(c_, frames::entry(c_, set, way));
    return way != frames::none;
  }

  // The hit: the page is in its home way.
  WB_FN bool try_home(uint64_t i, T& v) {
    const uint64_t page = page_of(i);
    const uint32_t set = frames::set_of(c_, page), way = frames::home_way(c_, page);
    const uint64_t* word = frames::tag(c_, frames::entry(c_, set, way));
    const uint64_t t = order::load<order::acquire>(word);
    if (!tags::holds(t, page)) return false;
    v = order::load_checked(reinterpret_cast<const T*>(frames::address(c_, set, way) + byte_of(i)));
    if (!tags::same(t, order::load<order::relaxed>(word))) return false;
    if (!(t & WB_TAG_REFERENCED)) frames::touch(word, t);
    ++hits_;
    return true;
  }

  template <class F> WB_FN bool change(warp::mask_t mask, uint64_t i, F& f) {
    const uint32_t byte = byte_of(i);
    return with_page(cache_, mask, true, page_of(i), true, [&](uint64_t base) { f(reinterpret_cast<T*>(base + byte)); }) == WB_DONE;
  }

  // One lane asks for a page unless it is there or under way.
  WB_FN void ask_for(uint64_t page) const {
    if (!tags::names(order::load<order::relaxed>(home_tag(page)), page)) out_of_line(request_page)(cache_, 1u << warp::lane(), page);
  }
  WB_FN const uint64_t* home_tag(uint64_t page) const {
    return frames::tag(c_, frames::entry(c_, frames::set_of(c_, page), frames::home_way(c_, page)));
  }

  // Stretch by stretch, each within a page. All calls are made between stretches, so that the loads run in registers.
  template <bool Stops, class F> WB_FN walked walk(warp::mask_t mask, uint64_t first, uint64_t last, F f) {
    walked result = walked::all;
    if (last > count_) {
      if (warp::is_leader(mask)) outside(last);
      last = count_;
      result = walked::failed;
    }
    const uint32_t lanes = warp::count(mask);
    // A search that may end at any element starts small, and does not ask for more before it knows that it needs more.
    uint64_t stretch = Stops ? lanes : ~0ull;
    bool changed = false;
    // The tag of the page in question as it was read before the last fence, if there was one.
    uint64_t early = 0;
    while (first < last) {
      const uint64_t page = page_of(first);
      const uint32_t set = frames::set_of(c_, page);
      const uint64_t page_end = ((first >> page_elements_log2_) + 1) << page_elements_log2_;
      uint64_t end = page_end < last ? page_end : last;
      const bool whole = end - first <= stretch;
      if (!whole) end = first + stretch;
      stretch = ~0ull;
      const bool more = whole && end < last;
      const uint64_t ahead = more ? order::load_before_fence(home_tag(page + 1)) : 0;
      uint32_t way = 0;
      const uint64_t* word = nullptr;
      uint64_t t = 0;
      bool pinned = false;
      if (warp::all(mask, tags::holds(early, page))) {
        way = frames::home_way(c_, page);
        word = frames::tag(c_, frames::entry(c_, set, way));
        t = early;
      } else if (!warp::all(mask, !changed && hit(page, set, way, word, t))) {
        if (!hold(mask, page, way)) return walked::failed;
        pinned = true;
      }
      if (pinned) {
        // Counted by the pin.
      } else if (warp::is_leader(mask)) {
        ++hits_;
        if (!(t & WB_TAG_REFERENCED)) frames::touch(word, t);
      }
      if (more && !tags::names(ahead, page + 1) && warp::is_leader(mask)) {
        out_of_line(request_page)(cache_, 1u << warp::lane(), page + 1);
      }
      const T* base = reinterpret_cast<const T*>(frames::address(c_, set, way) + byte_of(first));
      const uint32_t count = static_cast<uint32_t>(end - first);
      bool stop = false;
      const uint32_t done = visit<Stops>(mask, base, count, first, pinned ? nullptr : word, t, f, stop);
      if (pinned) {
        warp::sync(mask);
        if (warp::is_leader(mask)) frames::unpin(c_, frames::entry(c_, set, way), lanes);
      }
      if (Stops && stop) return walked::stopped;
      // The frame was no longer the page's: the rest with a pin.
      changed = done < count;
      early = more && !changed && !pinned ? ahead : 0;
      if (changed && warp::is_leader(mask)) out_of_line(note_retry)(cache_);
      first += done;
    }
    return result;
  }

  // Loads `count` elements in batches and hands each batch to `f` once `word`, if there is one, has been seen to be still `t`.
  // Answers how many.
  template <bool Stops, class F>
  WB_FN uint32_t visit(warp::mask_t mask, const T* base, uint32_t count, uint64_t first, const uint64_t* word, uint64_t t, F& f,
                       bool& stopped) const {
    const uint32_t lanes = warp::count(mask), rank = warp::rank(mask);
    for (uint32_t at = 0; at < count; at += lanes * batch) {
      T v[batch];
#pragma unroll
      for (uint32_t j = 0; j < batch; ++j) {
        const uint32_t k = at + j * lanes + rank;
        if (k < count) v[j] = order::load<order::relaxed>(base + k);
      }
      if (word) {
        order::fence<order::acquire>();
        if (!warp::all(mask, tags::same(t, order::load<order::relaxed>(word)))) return at;
      }
      bool stop = false;
#pragma unroll
      for (uint32_t j = 0; j < batch; ++j) {
        const uint32_t k = at + j * lanes + rank;
        if (k < count && !(Stops && stop)) stop = f(first + k, v[j]);
      }
      if (Stops && warp::any(mask, stop)) {
        stopped = true;
        return at;
      }
    }
    return count;
  }

  // Pins the page that all lanes of the mask want, once for each.
  WB_FN bool hold(warp::mask_t mask, uint64_t page, uint32_t& way) const {
    uint32_t w;
    const bool done = out_of_line(pin_page)(cache_, mask, page, false, true, w) == WB_DONE;
    way = w;
    return done;
  }

  const wb_cache* cache_;
  wb_cache c_;
  uint64_t first_page_;
  uint64_t count_;
  uint32_t page_elements_log2_;
  uint32_t hits_ = 0;
};

// One pinned page of an array, of one lane. Lanes that take handles of the same page together take their pins together.
template <class T> class page_handle {
 public:
  WB_FN page_handle(array<T>& a, uint64_t i) : a_(a) { move_to(i); }
  page_handle(const page_handle&) = delete;
  page_handle& operator=(const page_handle&) = delete;
  WB_FN ~page_handle() { release(); }

  // Whether the handle holds a page; if not, loads answer the poison value.
  WB_FN bool ok() const { return span_ != 0; }
  // First element of the page, and how many of the array's elements are in it.
  WB_FN uint64_t first() const { return first_; }
  WB_FN uint32_t count() const { return span_; }
  // The page's elements. Valid until the handle moves or ends.
  WB_FN const T* data() const { return data_; }

  // Element i: a plain load while it is in the page, otherwise the handle moves there.
  WB_FN T load(uint64_t i) {
    if (i - first_ >= span_ && !move_to(i)) return poison<T>();
    return global_memory(data_)[static_cast<uint32_t>(i - first_)];
  }
  WB_FN T operator[](uint64_t i) { return load(i); }

  // Changes element i, which is in the page or makes the handle move.
  WB_FN void store(uint64_t i, T v) {
    if (i - first_ >= span_ && !move_to(i)) return;
    if (!dirty_) {
      frames::mark(a_.c_, entry_, WB_TAG_DIRTY);
      dirty_ = true;
    }
    order::store<order::relaxed>(const_cast<T*>(data_) + static_cast<uint32_t>(i - first_), v);
  }

  // Lets go early.
  WB_FN void release() {
    if (span_ == 0) return;
    span_ = 0;
    const warp::mask_t group = warp::match(warp::active(), entry_);
    warp::sync(group);
    if (warp::is_leader(group)) frames::unpin(a_.c_, entry_, warp::count(group));
  }

  // Goes to the page of element i, whether or not it is another one. False when that page could not be had.
  WB_FN bool move_to(uint64_t i) {
    release();
    if (i >= a_.count_) {
      a_.outside(i);
      return false;
    }
    const uint64_t page = a_.page_of(i);
    const uint32_t set = frames::set_of(a_.c_, page);
    uint32_t way = frames::home_way(a_.c_, page);
    if (!pin_home(page, frames::entry(a_.c_, set, way)) &&
        out_of_line(pin_page)(a_.cache_, warp::active(), page, false, false, way) != WB_DONE) {
      return false;
    }
    const uint32_t elements = 1u << a_.page_elements_log2_;
    first_ = i & ~static_cast<uint64_t>(elements - 1);
    span_ = a_.count_ - first_ < elements ? static_cast<uint32_t>(a_.count_ - first_) : elements;
    entry_ = frames::entry(a_.c_, set, way);
    data_ = reinterpret_cast<const T*>(frames::address(a_.c_, set, way));
    dirty_ = false;
    return true;
  }

 private:
  // Pins a page that is in its home way, without a call. Lanes with the same page pin it together.
  WB_FN bool pin_home(uint64_t page, uint32_t entry) {
    const warp::mask_t group = warp::match(warp::active(), entry);
    bool pinned = false;
    if (warp::is_leader(group)) {
      pinned = frames::pin_held(a_.c_, entry, page, warp::count(group));
    }
    pinned = warp::shuffle(group, static_cast<uint32_t>(pinned), warp::leader(group)) != 0;
    a_.hits_ += pinned;
    return pinned;
  }

  array<T>& a_;
  const T* data_ = nullptr;
  uint64_t first_ = 0;
  uint32_t span_ = 0;
  uint32_t entry_ = 0;
  bool dirty_ = false;
};

}  // namespace warpbell
