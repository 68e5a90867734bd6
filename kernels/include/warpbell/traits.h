// Traits of types as `warpbell::stdlib`: those of <type_traits>, or for NVRTC, which sees no headers of the host, the few that the device
// headers use.
#pragma once

#include <warpbell/standard.h>

#if !defined(__CUDACC_RTC__)
#include <type_traits>

namespace warpbell {
namespace stdlib = ::std;
}  // namespace warpbell
#else
namespace warpbell {
namespace stdlib {

template <class T> struct remove_const {
  using type = T;
};
template <class T> struct remove_const<const T> {
  using type = T;
};
template <class T> using remove_const_t = typename remove_const<T>::type;

template <class T> struct remove_volatile {
  using type = T;
};
template <class T> struct remove_volatile<volatile T> {
  using type = T;
};
template <class T> using remove_cv_t = typename remove_volatile<remove_const_t<T> >::type;

template <bool Condition, class T, class Else> struct conditional {
  using type = T;
};
template <class T, class Else> struct conditional<false, T, Else> {
  using type = Else;
};
template <bool Condition, class T, class Else> using conditional_t = typename conditional<Condition, T, Else>::type;

template <class T, class U> constexpr bool is_same_v = false;
template <class T> constexpr bool is_same_v<T, T> = true;

template <class T, class... U> constexpr bool is_one_of_v = (is_same_v<remove_cv_t<T>, U> || ...);
template <class T> constexpr bool is_floating_point_v = is_one_of_v<T, float, double>;
template <class T> constexpr bool is_integral_v =
    is_one_of_v<T, bool, char, signed char, unsigned char, wchar_t, char16_t, char32_t, short, unsigned short, int, unsigned, long,
                unsigned long, long long, unsigned long long>;
template <class T> constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T, bool Number = is_arithmetic_v<T> > constexpr bool is_unsigned_v = false;
template <class T> constexpr bool is_unsigned_v<T, true> = static_cast<T>(-1) > static_cast<T>(0);
template <class T> constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);

}  // namespace stdlib
}  // namespace warpbell
#endif
