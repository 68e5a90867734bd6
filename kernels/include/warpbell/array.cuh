// `array_ref<T>`: a typed range of a cached volume, as kernels see it.
//
//   WB_KERNEL void total(WB_PARAM warpbell::array_ref<uint32_t> in, uint64_t* out) {
//     auto a = in.open();                                   // a session: registers, and hits counted once at its end
//     uint64_t sum = 0;
//     for (uint64_t i = warp::thread_index(); i < a.size(); i += warp::thread_total()) sum += a[i];
//     atomicAdd(out, sum);
//   }
//
// Give kernels bounds, for example `__launch_bounds__(256, 4)`: a miss needs some 200 registers and is called out of line. Without
// bounds it would decide how many threads fit. With bounds a hit still runs in registers, and only misses spill.
//
// Elements have 1, 2, 4, 8 or 16 bytes and never straddle pages. No call throws or waits for ever. An element that cannot be read
// is the poison value (all bits set), the reason is in the run's error log, and the run fails. A loop whose end depends on the
// elements that it reads calls `has_failed()`.
//
// Element accesses are relaxed on scope device: they order no other memory accesses between threads. The host and other programs
// see changes after the host has flushed the cache.
#pragma once

#include <warpbell/cache.cuh>

namespace warpbell {

/// @brief Returns the poison value: all bits set.
template <class T> WB_FN T poison() {
  uint64_t ones[2] = {~0ull, ~0ull};
  T v;
  memcpy(&v, ones, sizeof v);
  return v;
}

template <class T> class array;
template <class T> class page_handle;

/// @brief An array as a kernel's parameter: trivially copyable; the host has the matching structure (wb_array_view).
template <class T> class array_ref {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                "elements have 1, 2, 4, 8 or 16 bytes");

 public:
  using value_type = T;

  array_ref() = default;
  /// @brief Refers to an array by its view: `Array::view` of the host. For the host and for one thread.
  ///
  /// @pre `view.array.element_bytes` is sizeof(T). The array, or a run that keeps it, outlives the kernels that use this.
  WB_FN_BOTH explicit array_ref(const wb_array_view& view) : view_(view) {}
  /// @brief Refers to an array whose description is in memory.
  WB_FN explicit array_ref(const wb_array* a) : view_{*a, *a->cache} {}

  /// @brief Returns the number of elements.
  WB_FN uint64_t size() const { return view_.array.count; }

  /// @brief Opens the session through which a thread accesses elements. Each thread calls this once, outside its loop.
  WB_FN array<T> open() const { return array<T>(view_); }

  /// @brief Loads element i, in a session of its own. See array::load.
  WB_FN T load(uint64_t i) const { return open().load(i); }
  /// @brief Loads element i, in a session of its own. See array::load.
  WB_FN T operator[](uint64_t i) const { return open().load(i); }
  /// @brief Stores element i, in a session of its own. See array::store.
  WB_FN void store(uint64_t i, T v) const { open().store(i, v); }
  /// @brief Adds to element i, in a session of its own. See array::atomic_add.
  WB_FN T atomic_add(uint64_t i, T v) const { return open().atomic_add(i, v); }
  /// @brief Requests pages ahead of use, in a session of its own. See array::prefetch.
  WB_FN void prefetch(uint64_t i, uint64_t n) const { open().prefetch(i, n); }
  /// @brief Visits a range of elements, in a session of its own. See array::for_each_chunk.
  template <class F> WB_FN void for_each_chunk(uint64_t first, uint64_t last, F f) const { open().for_each_chunk(first, last, f); }
  /// @brief Visits a range of elements by the lanes of a mask, in a session of its own. See array::for_each_chunk.
  template <class F> WB_FN void for_each_chunk(warp::mask_t mask, uint64_t first, uint64_t last, F f) const {
    open().for_each_chunk(mask, first, last, f);
  }

 private:
  wb_array_view view_;
};

// Cold path: everything but a hit in the page's home way is called out of line, so that a hit needs few registers.

// Returns the way that holds the page, or frames::none. `t` is its tag, acquired.
WB_FN_COLD uint32_t find_page(const wb_cache* cache, uint64_t page, uint64_t& t) {
  const wb_cache& c = *cache;
  const uint32_t set = frames::set_of(c, page);
  const uint32_t way = frames::find(c, set, page, t);
  if (way == frames::none) return way;
  t = order::load<order::acquire>(frames::tag(c, frames::entry(c, set, way)));
  return tags::holds(t, page) ? way : frames::none;
}

// An element, and true if it was a hit.
template <class T> struct found {
  T value;
  bool ok;
};

WB_FN_COLD void outside_of_array(const wb_cache* cache, uint64_t page) { frames::report(*cache, WB_BAD_ARGUMENT, page); }

WB_FN_COLD void note_retry(const wb_cache* cache) { frames::count(*cache, &wb_stats::retries, 1); }

// Loads an element whose page is in another way than the home way.
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

// Loads the missing elements of the lanes with `wants`. The mask's other lanes help to move the pages.
template <class T> WB_FN T load_missing(const wb_cache* cache, warp::mask_t mask, bool wants, uint64_t page, uint32_t byte) {
  T v = poison<T>();
  with_page(cache, mask, wants, page, false,
            [&](uint64_t base) { v = order::load<order::relaxed>(reinterpret_cast<const T*>(base + byte)); });
  return v;
}

// Loads an element for a lane by itself, hit or miss; `ok` if it was a hit after all.
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

// Loads elements for the lanes of a mask together; lanes without `wants` help.
template <class T> WB_FN_COLD found<T> load_slowly_together(const wb_cache* cache, warp::mask_t mask, bool wants, uint64_t first_page,
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

/// @brief A session: one thread's access to an array. On the thread's stack; not to be kept or copied.
template <class T> class array {
 public:
  using value_type = T;

  /// @brief Opens a session. See array_ref::open.
  WB_FN explicit array(const wb_array_view& v)
      : cache_(v.array.cache),
        c_(v.cache),
        first_page_(v.array.first_page),
        count_(v.array.count),
        page_elements_log2_(v.array.page_elements_log2) {}
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  /// @brief Adds the session's hits to the statistics.
  WB_FN ~array() {
    if (hits_ == 0) return;
    // Threads that end their sessions together add their hits together.
    const warp::mask_t m = warp::active();
    const uint32_t total = warp::sum(m, hits_);
    if (warp::is_leader(m)) frames::count(c_, &wb_stats::hits, total);
  }

  /// @brief Returns the number of elements.
  WB_FN uint64_t size() const { return count_; }

  /// @brief Returns true if the run has failed or the host set the stop flag: loads may return the poison value from now on. One
  /// thread calls this.
  ///
  /// For loops whose end depends on the elements that they read. Call this once a round, not for each element: it loads two words
  /// that all threads share.
  WB_FN bool has_failed() const { return frames::ended(*cache_); }

  // --- elements -------------------------------------------------------------------------------------------------------

  /// @brief Loads element i, 0 <= i < size(). For the lanes that are converged, which wait for misses together.
  ///
  /// @return The element, or the poison value after a failure, which is in the run's error log.
  /// @note Relaxed on scope device.
  WB_FN T load(uint64_t i) {
    T v;
    if (i < count_ && try_home(i, v)) return v;
    const found<T> f = out_of_line(load_slowly<T>)(cache_, first_page_, count_, i);
    hits_ += f.ok;
    return f.value;
  }
  /// @brief Loads element i. See load.
  WB_FN T operator[](uint64_t i) { return load(i); }

  /// @brief Loads element i of each lane of the mask. Collective, converged: all misses of the mask are in flight at once.
  WB_FN T load(warp::mask_t mask, uint64_t i) { return load(mask, true, i); }
  /// @brief Loads element i of each lane with `wants`. Collective, converged; the other lanes get an unspecified value, and help.
  ///
  /// The whole mask copies a page that comes through a bounce buffer. One lane alone would take a hundred times as long.
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

  /// @brief Stores `v` to element i, 0 <= i < size(). For the lanes that are converged. Waits for the page if it is missing.
  ///
  /// @note Relaxed on scope device. The page is marked dirty before.
  WB_FN void store(uint64_t i, T v) {
    update(i, [v](T* p) { order::store<order::relaxed>(p, v); });
  }
  /// @brief Stores to element i of each lane of the mask. Collective, converged.
  WB_FN void store(warp::mask_t mask, uint64_t i, T v) {
    update(mask, i, [v](T* p) { order::store<order::relaxed>(p, v); });
  }

  /// @brief Adds `v` to element i atomically with respect to all threads of this engine. For the lanes that are converged.
  ///
  /// @return The value before, or the poison value after a failure.
  /// @note Relaxed on scope device.
  WB_FN T atomic_add(uint64_t i, T v) {
    T before = poison<T>();
    update(i, [&before, v](T* p) { before = order::fetch_add<order::relaxed>(p, v); });
    return before;
  }
  /// @brief Adds to element i of each lane of the mask atomically. Collective, converged. Returns the value before.
  WB_FN T atomic_add(warp::mask_t mask, uint64_t i, T v) {
    T before = poison<T>();
    update(mask, i, [&before, v](T* p) { before = order::fetch_add<order::relaxed>(p, v); });
    return before;
  }

  /// @brief Calls `f(address of element i)` while its page is pinned and marked dirty. For the lanes that are converged.
  ///
  /// For any change that is more than a store. Other threads may read and change the element at the same time.
  /// @return False if the page is not available; then `f` was not called.
  template <class F> WB_FN bool update(uint64_t i, F f) {
    if (i >= count_) {
      outside(i);
      return false;
    }
    return change(warp::active(), i, f);
  }
  /// @brief Calls `f(address of element i)` for each lane of the mask. Collective, converged. As above.
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

  /// @brief Requests the missing pages of elements i to i + n - 1, `prefetch_pages` (32) pages at most. One thread calls this.
  ///
  /// Does not wait for the pages, evicts no page that was used lately, and gives up where there is no room. So it may be called
  /// freely.
  WB_FN void prefetch(uint64_t i, uint64_t n) {
    if (i >= count_ || n == 0) return;
    const uint64_t last_element = n < count_ - i ? i + n - 1 : count_ - 1;
    uint64_t last = page_of(last_element);
    const uint64_t first = page_of(i);
    if (last - first >= prefetch_pages) last = first + prefetch_pages - 1;
    for (uint64_t p = first; p <= last; ++p) ask_for(p);
  }

  /// @brief Requests the missing pages of the elements that the lanes with `wants` will load soon. Collective over `mask`,
  /// converged; each lane has its own element.
  ///
  /// As `prefetch`, but the pages may take the place of pages that were used lately: call this for elements that will be loaded.
  /// Elements in ascending order are best: small adjacent pages are then read by one command.
  WB_FN void expect(warp::mask_t mask, bool wants, uint64_t i) const {
    const uint64_t page = page_of(i);
    const bool asks = wants && i < count_ && is_missing(page);
    if (warp::any(mask, asks)) out_of_line(request_pages)(cache_, mask, asks, page, true);
  }
  /// @brief Requests the missing pages of elements `first` to `last` - 1, which the mask will load soon. Collective over `mask`,
  /// converged, with the same range. As `expect`.
  WB_FN void expect_range(warp::mask_t mask, uint64_t first, uint64_t last) const {
    if (last > count_) last = count_;
    if (first >= last) return;
    const uint64_t end = page_of(last - 1) + 1;
    for (uint64_t page = page_of(first); page < end; page += warp::count(mask)) out_of_line(request_range)(cache_, mask, page, end, true);
  }

  /// @brief Returns true if pages are small enough that one command reads several (WB_CACHE_COMMAND_BYTES).
  WB_FN bool joins_pages() const { return 1u << c_.page_shift < WB_CACHE_COMMAND_BYTES; }

  // --- a page that stays ----------------------------------------------------------------------------------------------

  /// @brief Pins the page of element i, whose elements are plain loads then. For the lanes that are converged.
  ///
  /// The handle follows `load(i)` to other pages. It holds one page at a time, and removes its pin at the end of its scope. A lane
  /// that holds several handles may run out of frames.
  WB_FN page_handle<T> pin(uint64_t i) { return page_handle<T>(*this, i); }

  // --- ranges ---------------------------------------------------------------------------------------------------------

  /// @brief Visits elements `first` to `last` - 1 page by page, while the next page is requested already. The whole converged warp
  /// calls this with the same range.
  ///
  /// Calls `f(value)` for each element, in exactly one lane. Values are checked before `f` sees them. Each page is counted as one
  /// access.
  /// @return False if a page could not be read: the walk ends there.
  /// @note Relaxed on scope device.
  template <class F> WB_FN bool for_each_chunk(uint64_t first, uint64_t last, F f) { return for_each_chunk(warp::full(), first, last, f); }
  /// @brief Visits elements as above. Collective over `mask`, converged, with the same range.
  template <class F> WB_FN bool for_each_chunk(warp::mask_t mask, uint64_t first, uint64_t last, F f) {
    return walk<false>(mask, first, last, [&f](uint64_t, T v) {
             f(v);
             return false;
           }) != walked::failed;
  }
  /// @brief Visits elements with their indices: calls `f(index, value)`. The whole converged warp calls this. Otherwise as
  /// for_each_chunk.
  template <class F> WB_FN bool for_each_chunk_indexed(uint64_t first, uint64_t last, F f) {
    return for_each_chunk_indexed(warp::full(), first, last, f);
  }
  /// @brief Visits elements with their indices. Collective over `mask`, converged, with the same range.
  template <class F> WB_FN bool for_each_chunk_indexed(warp::mask_t mask, uint64_t first, uint64_t last, F f) {
    return walk<false>(mask, first, last, [&f](uint64_t i, T v) {
             f(i, v);
             return false;
           }) != walked::failed;
  }
  /// @brief Returns true if `f(value)` is true for any element from `first` to `last` - 1, in all lanes. The whole converged warp
  /// calls this with the same range.
  ///
  /// The warp stops soon after the first such element. Which further elements `f` sees is unspecified.
  template <class F> WB_FN bool any_of(uint64_t first, uint64_t last, F f) { return any_of(warp::full(), first, last, f); }
  /// @brief Returns true if `f(value)` is true for any element, in all lanes. Collective over `mask`, converged, with the same
  /// range.
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

  // Finds the frame that holds the page now, and acquires its tag. Returns true if there is one.
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

  // The hit path: loads element i if its page is in its home way.
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

  // Returns true if the page's home way is another page's.
  WB_FN bool is_missing(uint64_t page) const { return !tags::names(order::load<order::relaxed>(home_tag(page)), page); }
  // Requests a page by one lane, unless the page is there or in flight.
  WB_FN void ask_for(uint64_t page) const {
    if (is_missing(page)) out_of_line(request_pages)(cache_, 1u << warp::lane(), true, page, false);
  }
  // Requests those pages of an array up to element `last` - 1 that a walk reads together with `page`, if they are small. Collective.
  WB_FN void request_with(warp::mask_t mask, uint64_t page, uint64_t last, bool certain) const {
    const uint64_t pages = WB_CACHE_COMMAND_BYTES >> c_.page_shift, end = page_of(last - 1) + 1, stretch = (page & ~(pages - 1)) + pages;
    out_of_line(request_range)(cache_, mask, page, stretch < end ? stretch : end, certain);
  }
  WB_FN const uint64_t* home_tag(uint64_t page) const {
    return frames::tag(c_, frames::entry(c_, frames::set_of(c_, page), frames::home_way(c_, page)));
  }

  // Walks the range stretch by stretch, each within a page. All calls are made between stretches, so that the loads run in
  // registers.
  template <bool Stops, class F> WB_FN walked walk(warp::mask_t mask, uint64_t first, uint64_t last, F f) {
    walked result = walked::all;
    if (last > count_) {
      if (warp::is_leader(mask)) outside(last);
      last = count_;
      result = walked::failed;
    }
    const uint32_t lanes = warp::count(mask);
    // A search that may end at any element starts small, and requests no more before it knows that it needs more.
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
      bool pinned = false, asked = false;
      if (warp::all(mask, tags::holds(early, page))) {
        way = frames::home_way(c_, page);
        word = frames::tag(c_, frames::entry(c_, set, way));
        t = early;
      } else if (!warp::all(mask, !changed && hit(page, set, way, word, t))) {
        if (more && joins_pages()) {
          request_with(mask, page, last, !Stops);
          asked = true;
        }
        if (!hold(mask, page, way)) return walked::failed;
        pinned = true;
      }
      if (pinned) {
        // The pin has counted the access.
      } else if (warp::is_leader(mask)) {
        ++hits_;
        if (!(t & WB_TAG_REFERENCED)) frames::touch(word, t);
      }
      if (joins_pages()) {
        if (more && !asked && warp::any(mask, !tags::names(ahead, page + 1))) request_with(mask, page + 1, last, false);
      } else if (more && !tags::names(ahead, page + 1) && warp::is_leader(mask)) {
        out_of_line(request_pages)(cache_, 1u << warp::lane(), true, page + 1, false);
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
      // The frame was no longer the page's: visit the rest with a pin.
      changed = done < count;
      early = more && !changed && !pinned ? ahead : 0;
      if (changed && warp::is_leader(mask)) out_of_line(note_retry)(cache_);
      first += done;
    }
    return result;
  }

  // Loads `count` elements in batches, and calls `f` for each batch once `word`, if not null, was seen to be still `t`. Returns the
  // number of elements visited.
  template <bool Stops, class F> WB_FN uint32_t visit(warp::mask_t mask, const T* base, uint32_t count, uint64_t first,
                                                      const uint64_t* word, uint64_t t, F& f, bool& stopped) const {
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

  // Pins the page that all lanes of the mask want, once for each lane.
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

}  // namespace warpbell

#include <warpbell/page_handle.cuh>
