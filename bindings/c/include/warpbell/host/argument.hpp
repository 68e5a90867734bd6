// Arguments of kernels: values by themselves, and objects by what kernels take for them.
#pragma once

#include <warpbell/host/region.hpp>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {
namespace detail {

// The value of a parameter, the object that has to live until the kernel has ended, and the outcome of asking it for the value.
template <class T> struct passed {
  T value;
  const void* keep;
  wb_code code;
};

// A type of this library that is an argument has a function `as_argument`; others are passed by value.
template <class T, class = void> struct is_object : std::false_type {};
template <class T> struct is_object<T, std::void_t<decltype(std::declval<const T&>().as_argument())>> : std::true_type {};

inline passed<void*> pass(const region& memory) {
  passed<void*> p{nullptr, memory.get(), WB_OK};
  p.code = wb_region_address(memory.get(), &p.value);
  return p;
}

template <class T> auto pass(const T& value) {
  if constexpr (is_object<T>::value) {
    return value.as_argument();
  } else {
    static_assert(std::is_trivially_copyable<T>::value && !std::is_array<T>::value, "a parameter of a kernel is plain data");
    return passed<T>{value, nullptr, WB_OK};
  }
}

// Calls `call` with C's list of the arguments. Returns the first error.
template <class Call, class... T> wb_code with_arguments(Call call, const passed<T>&... p) {
  for (const wb_code code : {wb_code{WB_OK}, p.code...}) {
    if (code != WB_OK) return code;
  }
  const wb_argument list[sizeof...(T) + 1] = {{&p.value, sizeof p.value, p.keep}..., {nullptr, 0, nullptr}};
  return call(list, sizeof...(T));
}

}  // namespace detail
}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
