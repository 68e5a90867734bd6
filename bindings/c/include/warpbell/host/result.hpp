// Errors of the C++ interface: exceptions, or results where a program is compiled without them.
//
// Functions that may fail return `returned<T>`. With exceptions that is T, and a failed call throws `error`. With
// WARPBELL_NO_EXCEPTIONS, which -fno-exceptions implies, it is `result<T>`: a value or an error.
#pragma once

#include <warpbell.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if !defined(WARPBELL_NO_EXCEPTIONS) && !defined(__cpp_exceptions) && !defined(__EXCEPTIONS)
#define WARPBELL_NO_EXCEPTIONS 1
#endif

// Translation units of both kinds may be linked together, so the two have different names for the linker.
#if defined(WARPBELL_NO_EXCEPTIONS)
#define WARPBELL_HOST_KIND results
#else
#define WARPBELL_HOST_KIND exceptions
#endif

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief An error of the library: code, text, remedies, and the operations inside kernels that failed.
class error : public std::exception {
 public:
  /// @brief Returns the last error of this thread.
  static error last() {
    facts f;
    f.code = wb_last_error_code();
    f.text = wb_last_error();
    for (size_t i = 0; const char* remedy = wb_last_error_remedy(i); ++i) f.remedies.emplace_back(remedy);
    f.operations.resize(wb_last_error_operations(nullptr, 0));
    wb_last_error_operations(f.operations.data(), f.operations.size());
    return error(std::move(f));
  }

  /// @brief Returns the code, WB_ERR_....
  wb_code code() const noexcept { return facts_->code; }
  /// @brief Returns the name of the code, such as "WB_ERR_TIMEOUT".
  const char* name() const noexcept { return wb_code_name(code()); }
  /// @brief Returns the text: fact, cause and, where one is known, the next step.
  const char* what() const noexcept override { return facts_->text.c_str(); }
  /// @brief Returns what to do, the best first.
  const std::vector<std::string>& remedies() const noexcept { return facts_->remedies; }
  /// @brief Returns the operations inside kernels that failed: device, queue, LBA, status.
  const std::vector<wb_error>& operations() const noexcept { return facts_->operations; }

 private:
  struct facts {
    wb_code code = WB_OK;
    std::string text;
    std::vector<std::string> remedies;
    std::vector<wb_error> operations;
  };
  explicit error(facts f) : facts_(std::make_shared<const facts>(std::move(f))) {}
  // Shared, so that copying an error, as `throw` does, cannot fail.
  std::shared_ptr<const facts> facts_;
};

#if defined(WARPBELL_NO_EXCEPTIONS)

/// @brief A value, or the error of the call that should have made it.
template <class T> class [[nodiscard]] result {
 public:
  result(T value) : value_(std::move(value)) {}
  result(host::error e) : error_(std::move(e)) {}

  /// @brief Returns true if there is a value.
  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  /// @brief Returns the value. Ends the program if there is none.
  T& value() & {
    check();
    return *value_;
  }
  const T& value() const& {
    check();
    return *value_;
  }
  T&& value() && {
    check();
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  T* operator->() { return &value(); }
  /// @brief Returns the code of the error; WB_OK if there is none.
  wb_code code() const noexcept { return error_ ? error_->code() : WB_OK; }
  /// @brief Returns the text of the error; empty if there is none.
  const char* what() const noexcept { return error_ ? error_->what() : ""; }
  /// @brief Returns the error, if there is one.
  const std::optional<host::error>& failure() const noexcept { return error_; }

 private:
  void check() const {
    if (!value_) std::abort();
  }
  std::optional<T> value_;
  std::optional<host::error> error_;
};

/// @brief The outcome of a call without a value.
template <> class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(host::error e) : error_(std::move(e)) {}
  /// @brief Returns true if the call succeeded.
  bool ok() const noexcept { return !error_; }
  explicit operator bool() const noexcept { return ok(); }
  /// @brief Returns the code of the error; WB_OK if there is none.
  wb_code code() const noexcept { return error_ ? error_->code() : WB_OK; }
  /// @brief Returns the text of the error; empty if there is none.
  const char* what() const noexcept { return error_ ? error_->what() : ""; }
  /// @brief Returns the error, if there is one.
  const std::optional<host::error>& failure() const noexcept { return error_; }

 private:
  std::optional<host::error> error_;
};

/// @brief The outcome of a call without a value.
using status = result<void>;
template <class T> using returned = result<T>;

#else
template <class T> using returned = T;
#endif

namespace detail {

// Returns what `make` returns, after a call of the C interface that succeeded.
template <class Make> auto give(wb_code code, Make make) -> returned<decltype(make())> {
  if (code != WB_OK) {
#if defined(WARPBELL_NO_EXCEPTIONS)
    return error::last();
#else
    throw error::last();
#endif
  }
  return make();
}

// Reports the outcome of a call without a value.
inline returned<void> done(wb_code code) {
#if defined(WARPBELL_NO_EXCEPTIONS)
  if (code != WB_OK) return error::last();
  return {};
#else
  if (code != WB_OK) throw error::last();
#endif
}

// Takes a text that the caller has to free.
inline std::string take(char* text) {
  const std::unique_ptr<char, void (*)(char*)> owned(text, wb_string_free);
  return owned ? std::string(owned.get()) : std::string();
}

}  // namespace detail
}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
