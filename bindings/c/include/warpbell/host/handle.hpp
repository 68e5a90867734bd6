// Handles of the C interface as values: a copy shares the object, and the last one releases it.
#pragma once

#include <warpbell/host/result.hpp>

#include <functional>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief Options of C, all of which have their defaults, and whose size is set.
template <class C> struct defaults : C {
  defaults() : C{} { this->size = sizeof(C); }
};

namespace detail {

/// @brief Returns the bytes of elements, or the largest number, which every function refuses, where they are more.
template <class T> size_t bytes_of(size_t count) noexcept {
  constexpr size_t most = static_cast<size_t>(-1);
  return count > most / sizeof(T) ? most : count * sizeof(T);
}

/// @brief A handle with one reference, or none. Calls of an empty one fail with WB_ERR_HANDLE.
template <class Handle, Handle* (*retain)(Handle*), void (*give_back)(Handle*)> class handle {
 public:
  handle() noexcept = default;
  /// @brief Takes over a reference.
  explicit handle(Handle* owned) noexcept : handle_(owned) {}
  handle(const handle& other) noexcept : handle_(other.handle_ ? retain(other.handle_) : nullptr) {}
  handle(handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  handle& operator=(handle other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~handle() { reset(); }

  /// @brief Returns the handle for calls of warpbell.h; null if there is none. It stays this object's.
  Handle* get() const noexcept { return handle_; }
  /// @brief Returns the handle with its reference, which is the caller's then.
  [[nodiscard]] Handle* release() noexcept { return std::exchange(handle_, nullptr); }
  /// @brief Releases the reference now.
  void reset() noexcept {
    if (Handle* owned = std::exchange(handle_, nullptr)) give_back(owned);
  }
  /// @brief Returns true if there is a handle.
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  Handle* handle_ = nullptr;
};

// Makes an object by a call that writes a handle.
template <class Object, class Handle, class Call> returned<Object> make(Call call) {
  Handle* made = nullptr;
  const wb_code code = call(&made);
  return give(code, [made] { return Object(made); });
}

// Passes a function object as C's pair of a function and an argument. The library calls it once, or the call fails.
template <class Call> wb_code with_release(std::function<void()> released, Call call) {
  if (!released) return call(wb_release_function{}, nullptr);
  auto owned = std::make_unique<std::function<void()>>(std::move(released));
  const auto run = [](void* argument) {
    const std::unique_ptr<std::function<void()>> last(static_cast<std::function<void()>*>(argument));
    (*last)();
  };
  const wb_code code = call(wb_release_function{run}, owned.get());
  if (code == WB_OK) static_cast<void>(owned.release());
  return code;
}

}  // namespace detail
}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
