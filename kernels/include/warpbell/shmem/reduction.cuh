// Operations of reductions on two values: sum, prod, min, max, and, or, xor (OpenSHMEM 1.5, 9.9.9).
//
// Every PE combines values in the order of the members, so that all PEs get the same bits from floating-point sums. An operation is
// a value with `apply` and the constant `bitwise`.
#pragma once

#include <warpbell/platform.h>
#include <warpbell/traits.h>

namespace warpbell {
namespace reduction {

// Integer sums and products wrap. They use 64 unsigned bits, which avoids promotion and overflow of signed numbers.
struct sum_op {
  static constexpr bool bitwise = false;
  template <class T> static WB_FN T apply(T a, T b) {
    if constexpr (stdlib::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
};
struct prod_op {
  static constexpr bool bitwise = false;
  template <class T> static WB_FN T apply(T a, T b) {
    if constexpr (stdlib::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
struct min_op {
  static constexpr bool bitwise = false;
  template <class T> static WB_FN T apply(T a, T b) { return b < a ? b : a; }
};
struct max_op {
  static constexpr bool bitwise = false;
  template <class T> static WB_FN T apply(T a, T b) { return a < b ? b : a; }
};
struct and_op {
  static constexpr bool bitwise = true;
  template <class T> static WB_FN T apply(T a, T b) {
    static_assert(stdlib::is_integral_v<T>, "and, or and xor take integers");
    return static_cast<T>(a & b);
  }
};
struct or_op {
  static constexpr bool bitwise = true;
  template <class T> static WB_FN T apply(T a, T b) {
    static_assert(stdlib::is_integral_v<T>, "and, or and xor take integers");
    return static_cast<T>(a | b);
  }
};
struct xor_op {
  static constexpr bool bitwise = true;
  template <class T> static WB_FN T apply(T a, T b) {
    static_assert(stdlib::is_integral_v<T>, "and, or and xor take integers");
    return static_cast<T>(a ^ b);
  }
};

/// @brief Adds. Integers wrap.
WB_CONST sum_op sum{};
/// @brief Multiplies. Integers wrap.
WB_CONST prod_op prod{};
/// @brief Takes the smaller value.
WB_CONST min_op min{};
/// @brief Takes the larger value.
WB_CONST max_op max{};
/// @brief Bitwise and of integers.
WB_CONST and_op bit_and{};
/// @brief Bitwise or of integers.
WB_CONST or_op bit_or{};
/// @brief Bitwise exclusive or of integers.
WB_CONST xor_op bit_xor{};

// The elements of type T in a word of 1 to 16 bytes.
template <class T, class Word> struct elements {
  static constexpr uint32_t count = sizeof(Word) / sizeof(T);
  T e[count];
};

// Combines the words' elements, each with its counterpart. For bitwise operations the element boundaries do not matter.
template <class T, class Op, class Word> WB_FN Word combine(Op op, const Word& a, const Word& b) {
  using all = elements<stdlib::conditional_t<Op::bitwise && sizeof(Word) >= sizeof(uint64_t), uint64_t, T>, Word>;
  static_assert(sizeof(all) == sizeof(Word), "a word is full of elements");
  union whole {
    Word word;
    all part;
    WB_FN whole(const Word& w) : word(w) {}
  };
  whole x(a), y(b);
#pragma unroll
  for (uint32_t i = 0; i < all::count; ++i) x.part.e[i] = op.apply(x.part.e[i], y.part.e[i]);
  return x.word;
}

}  // namespace reduction
}  // namespace warpbell
