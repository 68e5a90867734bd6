// `page_handle<T>`: a page of an array that stays in its frame while a thread uses it. array.cuh includes this file at its end.
#pragma once

#include <warpbell/array.cuh>

namespace warpbell {

/// @brief One pinned page of an array, of one lane. Lanes that take handles of the same page together take their pins together.
template <class T> class page_handle {
 public:
  /// @brief Pins the page of element i. See array::pin.
  WB_FN page_handle(array<T>& a, uint64_t i) : a_(a) { move_to(i); }
  /// @brief Creates a handle without a page. The array outlives the handle.
  WB_FN explicit page_handle(array<T>& a) : a_(a) {}
  page_handle(const page_handle&) = delete;
  page_handle& operator=(const page_handle&) = delete;
  /// @brief Removes the pin.
  WB_FN ~page_handle() { release(); }

  /// @brief Returns true if the handle holds a page. If not, loads return the poison value.
  WB_FN bool ok() const { return span_ != 0; }
  /// @brief Returns the first element of the page.
  WB_FN uint64_t first() const { return first_; }
  /// @brief Returns the number of the array's elements in the page, 0 without a page.
  WB_FN uint32_t count() const { return span_; }
  /// @brief Returns the address of the page's elements. Valid until the handle moves or ends.
  WB_FN const T* data() const { return data_; }

  /// @brief Loads element i: a plain load while it is in the page, otherwise the handle moves there first. For the lanes that are
  /// converged.
  ///
  /// @return The element, or the poison value after a failure.
  /// @pre No other thread stores the element at the same time.
  WB_FN T load(uint64_t i) {
    if (i - first_ >= span_ && !move_to(i)) return poison<T>();
    return global_memory(data_)[static_cast<uint32_t>(i - first_)];
  }
  /// @brief Loads element i. See load.
  WB_FN T operator[](uint64_t i) { return load(i); }

  /// @brief Stores to element i, and moves the handle first if the element is in another page. For the lanes that are converged.
  ///
  /// @note Relaxed on scope device. The page is marked dirty before.
  WB_FN void store(uint64_t i, T v) {
    if (i - first_ >= span_ && !move_to(i)) return;
    if (!dirty_) {
      frames::mark(a_.c_, entry_, WB_TAG_DIRTY);
      dirty_ = true;
    }
    order::store<order::relaxed>(const_cast<T*>(data_) + static_cast<uint32_t>(i - first_), v);
  }

  /// @brief Calls `f(elements, count)` for elements `first` to `last` - 1, page by page; the handle ends at the last page. For the lanes
  /// that are converged.
  ///
  /// Requests the next page before `f` sees a page. Counts each page as one access. `f` waits for no other page.
  /// @return False if a page could not be read: the walk ends there.
  /// @pre No other thread stores these elements at the same time.
  template <class F> WB_FN bool visit(uint64_t first, uint64_t last, F f) {
    while (first < last) {
      if (first - first_ < span_) {
        ++a_.hits_;
      } else if (!move_to(first)) {
        return false;
      }
      uint64_t end = last;
      if (first_ + span_ < last) {
        end = first_ + span_;
        a_.ask_for(a_.page_of(end));
      }
      f(global_memory(data_) + (first - first_), static_cast<uint32_t>(end - first));
      first = end;
    }
    return true;
  }

  /// @brief Removes the pin early. For the lanes that are converged.
  WB_FN void release() {
    if (span_ == 0) return;
    span_ = 0;
    const warp::mask_t group = warp::match(warp::active(), entry_);
    warp::sync(group);
    if (warp::is_leader(group)) frames::unpin(a_.c_, entry_, warp::count(group));
  }

  /// @brief Moves to the page of element i, even if it is the same page. For the lanes that are converged.
  ///
  /// @return False if that page is not available.
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
