// The words of a world's calls: symmetric addresses, signal operations, comparisons, how a wait ended.
#pragma once

#include <type_traits>

#include <warpbell/platform.h>
#include <warpbell/status.h>

namespace warpbell {

// An address in the symmetric heap, as this PE has it.
template <class T> struct sym {
  T* here;

  WB_FN operator T*() const { return here; }
  WB_FN sym operator+(ptrdiff_t n) const { return sym{here + n}; }
  WB_FN sym operator-(ptrdiff_t n) const { return sym{here - n}; }
};

// What a `T*` or a `sym<T>` points to, without const. Calls take either, and find the type of their values by it, so that
// `w.p(counter, 1, pe)` stores a 1 of the counter's type.
namespace detail {
template <class P> struct element;
template <class T> struct element<T*> { using type = std::remove_cv_t<T>; };
template <class T> struct element<sym<T>> { using type = std::remove_cv_t<T>; };
}  // namespace detail
template <class P> using element_t = typename detail::element<P>::type;

// The signal operations of put_signal (OpenSHMEM 1.5, 9.8.2; the numbers are NVSHMEM's).
enum class signal : uint32_t { set = 9, add = 10 };

// Comparisons of a wait (OpenSHMEM 1.5, 9.10).
enum class cmp : uint32_t { eq, ne, gt, le, lt, ge };

template <class T> WB_FN bool holds(cmp how, T a, T b) {
  switch (how) {
    case cmp::eq: return a == b;
    case cmp::ne: return a != b;
    case cmp::gt: return a > b;
    case cmp::le: return a <= b;
    case cmp::lt: return a < b;
    default: return a >= b;
  }
}

// How a call that waits ended.
struct outcome {
  uint32_t word = WB_DONE;  // status.h

  WB_FN explicit operator bool() const { return word == WB_DONE; }
  WB_FN wb_kind kind() const { return static_cast<wb_kind>(word >> WB_STATUS_KIND_SHIFT); }
};

// The answer of wait_until_any and test_any where there is no index (SIZE_MAX of OpenSHMEM 1.5, 9.10).
constexpr size_t no_index = static_cast<size_t>(-1);

}  // namespace warpbell
