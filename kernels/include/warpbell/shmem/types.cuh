// Types of a world's calls: symmetric addresses, signal operations, comparisons, outcomes of waits.
#pragma once

#include <warpbell/platform.h>
#include <warpbell/status.h>
#include <warpbell/traits.h>

namespace warpbell {

/// @brief An address in the symmetric heap, as this PE has it.
template <class T> struct sym {
  T* here;

  /// @brief Returns the address in this PE's heap.
  WB_FN operator T*() const { return here; }
  /// @brief Returns the symmetric address `n` elements further.
  WB_FN sym operator+(ptrdiff_t n) const { return sym{here + n}; }
  /// @brief Returns the symmetric address `n` elements before.
  WB_FN sym operator-(ptrdiff_t n) const { return sym{here - n}; }
};

// Element type of a `T*` or `sym<T>`, without const. Calls take either, and determine the type of their values by it, so that
// `w.p(counter, 1, pe)` stores a 1 of the counter's type.
namespace detail {
template <class P> struct element;
template <class T> struct element<T*> {
  using type = stdlib::remove_cv_t<T>;
};
template <class T> struct element<sym<T>> {
  using type = stdlib::remove_cv_t<T>;
};
}  // namespace detail
/// @brief Element type of a `T*` or `sym<T>`, without const.
template <class P> using element_t = typename detail::element<P>::type;

/// @brief Signal operations of put_signal (OpenSHMEM 1.5, 9.8.2; the numbers are NVSHMEM's).
enum class signal : uint32_t { set = 9, add = 10 };

/// @brief Comparisons of a wait (OpenSHMEM 1.5, 9.10).
enum class cmp : uint32_t { eq, ne, gt, le, lt, ge };

/// @brief Returns the result of comparing `a` with `b`.
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

/// @brief Outcome of a call that waits.
struct outcome {
  uint32_t word = WB_DONE;  // status word (status.h)

  /// @brief Returns true if the call succeeded.
  WB_FN explicit operator bool() const { return word == WB_DONE; }
  /// @brief Returns the kind of outcome.
  WB_FN wb_kind kind() const { return static_cast<wb_kind>(word >> WB_STATUS_KIND_SHIFT); }
};

/// @brief Result of wait_until_any and test_any if there is no index (SIZE_MAX of OpenSHMEM 1.5, 9.10).
constexpr size_t no_index = static_cast<size_t>(-1);

}  // namespace warpbell
