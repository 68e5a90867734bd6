// Waits for words of this PE's heap that other PEs write (OpenSHMEM 1.5, 9.10): wait_until and test, for one word, or for all, any
// or some of several.
//
// After a wait this thread sees puts that were ordered, by a fence or a signal, before the write that ended the wait. A wait ends
// with done, timed out (the run's deadline, for the call as a whole) or stopped. In a world over adapters it may also end with the
// network error of a failed connection.
//
// `status` excludes words: those whose entry is not zero. It may be null. With no words left a wait ends at once.
//
// The last argument of a wait is the PE that should write the words, for the error of a wait that fails. Without it, or with
// WB_NO_PE, the error names no PE. Any PE may write the words all the same.
#pragma once

#include <warpbell/shmem/atomic.cuh>

namespace warpbell {

/// @brief Waits for words of this PE's heap. The words are integers of up to 64 bits.
///
/// One thread makes each call. A successful wait, and a `test` that returns true or finds a word, is an acquire on scope system. A
/// wait that fails enters the error in the run's error log.
class world_wait : public world_atomic {
 public:
  // --- one word --------------------------------------------------------------------------------------------------------

  /// @brief Waits until the word at `at` compares true with `value`, for at most one deadline.
  template <class At> WB_FN outcome wait_until(At at, cmp how, element_t<At> value, uint32_t pe = WB_NO_PE) const {
    const element_t<At>* word = waitable(at);
    return wait_for(word, 1, pe, [=] { return holds(how, order::load<order::relaxed, order::world>(word), value); });
  }
  /// @brief Returns true if the word at `at` compares true with `value` now.
  template <class At> WB_FN bool test(At at, cmp how, element_t<At> value) const {
    const element_t<At>* word = waitable(at);
    return look(word, 1, [=] { return holds(how, order::load<order::relaxed, order::world>(word), value); });
  }

  // --- several words, compared with one value --------------------------------------------------------------------------

  /// @brief Waits until all of `n` words compare true with `value`, for at most one deadline.
  template <class At>
  WB_FN outcome wait_until_all(At at, size_t n, const int* status, cmp how, element_t<At> value, uint32_t pe = WB_NO_PE) const {
    return wait_all(waitable(at), n, status, how, same(value), pe);
  }
  /// @brief Waits until any of `n` words compares true with `value`, for at most one deadline.
  ///
  /// @param ended Gets the outcome, if not null.
  /// @return The index of such a word; `no_index` if there are no words to look at, or the wait failed.
  template <class At> WB_FN size_t wait_until_any(At at, size_t n, const int* status, cmp how, element_t<At> value,
                                                  outcome* ended = nullptr, uint32_t pe = WB_NO_PE) const {
    return wait_any(waitable(at), n, status, how, same(value), ended, pe);
  }
  /// @brief Waits until some of `n` words compare true with `value`, for at most one deadline.
  ///
  /// @param indices Gets the indices of all such words, at least one; room for `n`.
  /// @param ended Gets the outcome, if not null.
  /// @return The number of indices; 0 if there are no words to look at, or the wait failed.
  template <class At> WB_FN size_t wait_until_some(At at, size_t n, size_t* indices, const int* status, cmp how, element_t<At> value,
                                                   outcome* ended = nullptr, uint32_t pe = WB_NO_PE) const {
    return wait_some(waitable(at), n, indices, status, how, same(value), ended, pe);
  }
  /// @brief Returns true if all of `n` words compare true with `value` now.
  template <class At> WB_FN bool test_all(At at, size_t n, const int* status, cmp how, element_t<At> value) const {
    return look_all(waitable(at), n, status, how, same(value));
  }
  /// @brief Returns the index of one of `n` words that compares true with `value` now, or `no_index`.
  template <class At> WB_FN size_t test_any(At at, size_t n, const int* status, cmp how, element_t<At> value) const {
    return look_any(waitable(at), n, status, how, same(value));
  }
  /// @brief Writes the indices of all of `n` words that compare true with `value` now, and returns their number.
  template <class At> WB_FN size_t test_some(At at, size_t n, size_t* indices, const int* status, cmp how, element_t<At> value) const {
    return look_some(waitable(at), n, indices, status, how, same(value));
  }

  // --- several words, each compared with its own value -----------------------------------------------------------------

  /// @brief Waits until each of `n` words compares true with its own value. Otherwise as wait_until_all.
  template <class At> WB_FN outcome wait_until_all_vector(At at, size_t n, const int* status, cmp how, const element_t<At>* values,
                                                          uint32_t pe = WB_NO_PE) const {
    return wait_all(waitable(at), n, status, how, each(values), pe);
  }
  /// @brief Waits until any of `n` words compares true with its own value. Otherwise as wait_until_any.
  template <class At> WB_FN size_t wait_until_any_vector(At at, size_t n, const int* status, cmp how, const element_t<At>* values,
                                                         outcome* ended = nullptr, uint32_t pe = WB_NO_PE) const {
    return wait_any(waitable(at), n, status, how, each(values), ended, pe);
  }
  /// @brief Waits until some of `n` words compare true with their own values. Otherwise as wait_until_some.
  template <class At> WB_FN size_t wait_until_some_vector(At at, size_t n, size_t* indices, const int* status, cmp how,
                                                          const element_t<At>* values, outcome* ended = nullptr,
                                                          uint32_t pe = WB_NO_PE) const {
    return wait_some(waitable(at), n, indices, status, how, each(values), ended, pe);
  }
  /// @brief Returns true if each of `n` words compares true with its own value now.
  template <class At> WB_FN bool test_all_vector(At at, size_t n, const int* status, cmp how, const element_t<At>* values) const {
    return look_all(waitable(at), n, status, how, each(values));
  }
  /// @brief Returns the index of one of `n` words that compares true with its own value now, or `no_index`.
  template <class At> WB_FN size_t test_any_vector(At at, size_t n, const int* status, cmp how, const element_t<At>* values) const {
    return look_any(waitable(at), n, status, how, each(values));
  }
  /// @brief Writes the indices of all of `n` words that compare true with their own values now, and returns their number.
  template <class At>
  WB_FN size_t test_some_vector(At at, size_t n, size_t* indices, const int* status, cmp how, const element_t<At>* values) const {
    return look_some(waitable(at), n, indices, status, how, each(values));
  }

 protected:
  using world_atomic::world_atomic;

  // Executes the loop of every wait on memory of this PE. `ready` loads in scope `world`, and the fence at the end turns its loads
  // into acquires. `pe` should write the words.
  template <class T, class Ready> WB_FN outcome wait_for(const T* at, size_t n, uint32_t pe, Ready ready) const {
    if ((pe != WB_NO_PE && pe >= n_pes()) || !in_heap(at, bytes_of(n, sizeof(T)), sizeof(T))) return refuse(at, n, pe);
    deadline p(control());
    while (!ready()) {
      if (wait_status v = p.expired(); v != wait_status::go_on) return fail(WB_CALL_WAIT, status_word(v), at, n * sizeof(T), pe);
    }
    order::fence<order::acquire, order::system>();
    return outcome{};
  }
  // Looks once. An acquire if the result is true.
  template <class T, class Ready> WB_FN bool look(const T* at, size_t n, Ready ready) const {
    if (!in_heap(at, bytes_of(n, sizeof(T)), sizeof(T))) {
      refuse(at, n, WB_NO_PE);
      return false;
    }
    if (!ready()) return false;
    order::fence<order::acquire, order::system>();
    return true;
  }
  template <class T> WB_FN outcome refuse(const T* at, size_t n, uint32_t pe) const {
    return fail(WB_CALL_WAIT, status_word(WB_BAD_ARGUMENT), at, bytes_of(n, sizeof(T)), pe);
  }

 private:
  template <class P> static WB_FN auto waitable(P p) {
    using T = element_t<P>;
    static_assert(stdlib::is_integral_v<T> && sizeof(T) <= 8, "waits and tests look at integers of up to 64 bits");
    return static_cast<const T*>(p);
  }

  template <class T> struct one_value {
    T value;
    WB_FN T operator[](size_t) const { return value; }
  };
  template <class T> static WB_FN one_value<T> same(T value) { return {value}; }
  template <class T> static WB_FN const T* each(const T* values) { return values; }

  static WB_FN bool excluded(const int* status, size_t i) { return status && status[i]; }

  // Returns true if every word from `i` on that is not excluded compares true; `i` stays at the first that does not.
  template <class T, class V> static WB_FN bool all_from(size_t& i, const T* at, size_t n, const int* status, cmp how, V value) {
    for (; i < n; ++i) {
      if (!excluded(status, i) && !holds(how, order::load<order::relaxed, order::world>(at + i), T(value[i]))) return false;
    }
    return true;
  }
  // Returns the index of a word that compares true; `waiting` becomes true if there was a word to look at.
  template <class T, class V> static WB_FN size_t find(const T* at, size_t n, const int* status, cmp how, V value, bool& waiting) {
    waiting = false;
    for (size_t i = 0; i < n; ++i) {
      if (excluded(status, i)) continue;
      waiting = true;
      if (holds(how, order::load<order::relaxed, order::world>(at + i), T(value[i]))) return i;
    }
    return no_index;
  }
  template <class T, class V>
  static WB_FN size_t collect(const T* at, size_t n, size_t* indices, const int* status, cmp how, V value, bool& waiting) {
    waiting = false;
    size_t found = 0;
    for (size_t i = 0; i < n; ++i) {
      if (excluded(status, i)) continue;
      waiting = true;
      if (holds(how, order::load<order::relaxed, order::world>(at + i), T(value[i]))) indices[found++] = i;
    }
    return found;
  }

  template <class T, class V> WB_FN outcome wait_all(const T* at, size_t n, const int* status, cmp how, V value, uint32_t pe) const {
    size_t i = 0;
    return wait_for(at, n, pe, [&] { return all_from(i, at, n, status, how, value); });
  }
  template <class T, class V>
  WB_FN size_t wait_any(const T* at, size_t n, const int* status, cmp how, V value, outcome* ended, uint32_t pe) const {
    size_t found = no_index;
    bool waiting = true;
    const outcome o = wait_for(at, n, pe, [&] {
      found = find(at, n, status, how, value, waiting);
      return found != no_index || !waiting;
    });
    if (ended) *ended = o;
    return found;
  }
  template <class T, class V>
  WB_FN size_t wait_some(const T* at, size_t n, size_t* indices, const int* status, cmp how, V value, outcome* ended, uint32_t pe) const {
    size_t found = 0;
    bool waiting = true;
    const outcome o = wait_for(at, n, pe, [&] {
      found = collect(at, n, indices, status, how, value, waiting);
      return found != 0 || !waiting;
    });
    if (ended) *ended = o;
    return found;
  }

  template <class T, class V> WB_FN bool look_all(const T* at, size_t n, const int* status, cmp how, V value) const {
    size_t i = 0;
    return look(at, n, [&] { return all_from(i, at, n, status, how, value); });
  }
  template <class T, class V> WB_FN size_t look_any(const T* at, size_t n, const int* status, cmp how, V value) const {
    size_t found = no_index;
    bool waiting = true;
    look(at, n, [&] { return (found = find(at, n, status, how, value, waiting)) != no_index; });
    return found;
  }
  template <class T, class V> WB_FN size_t look_some(const T* at, size_t n, size_t* indices, const int* status, cmp how, V value) const {
    size_t found = 0;
    bool waiting = true;
    look(at, n, [&] { return (found = collect(at, n, indices, status, how, value, waiting)) != 0; });
    return found;
  }
};

}  // namespace warpbell
