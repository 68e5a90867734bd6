// Calls of cold functions through their addresses.
//
// With a plain call the GPU compiler knows which registers the callee clobbers. When registers are limited (__launch_bounds__) the
// callee clobbers all of them, and the caller spills its values even where it does not make the call. Without a limit the callee
// takes as many registers as it likes, for every thread of the kernel. A function that is called through its address keeps to the
// calling convention: it saves the registers that it uses.
//
// ptxas (13.0 to 13.5, for sm_90 and sm_100) compiles all functions of a module whose address is taken into every kernel that calls
// through an address. A function that no such call of the kernel can reach, because none has its parameters, may spoil the others.
// Of `x = a; if (p) x = b;` the first half is lost. Kernels of one file use different functions of a world. So all functions of a
// world are called through functions of one type (`call_cold`): a kernel that reaches one reaches all. `.ci/whole_and_alone.py`
// looks for spoilt code. Calls of one type must not be nested: the compiler takes that for a recursion, and cannot tell how much
// stack the kernel needs. A checked build for CPU threads aborts on a nested call.
#pragma once

#include <warpbell/platform.h>

#if !WB_GPU && defined(WB_CHECKED) && WB_CHECKED
#include <stdio.h>
#include <stdlib.h>
#define WB_CHECKS_NESTING 1
#else
#define WB_CHECKS_NESTING 0
#endif

namespace warpbell {

/// @brief Returns the address of `f`, so that `out_of_line(f)(arguments)` calls through it: one call type for each list of
/// parameters.
///
/// For functions that may be nested. One thread calls this.
template <class F> WB_FN F* out_of_line(F* f) {
#if WB_GPU
  F* volatile address = f;
  return address;
#else
  return f;
#endif
}

namespace detail {

// The arguments of a cold call, as plain data.
template <class... A> struct arguments;
template <> struct arguments<> {
  WB_FN static arguments of() { return {}; }
  template <auto f, class... Before> WB_FN auto apply(Before... before) const { return f(before...); }
};
template <class First, class... Rest> struct arguments<First, Rest...> {
  First first;
  arguments<Rest...> rest;
  WB_FN static arguments of(First f, Rest... r) { return {f, arguments<Rest...>::of(r...)}; }
  template <auto f, class... Before> WB_FN auto apply(Before... before) const { return rest.template apply<f>(before..., first); }
};

// Calls `f` through a function whose only parameter is the address of `frame`.
template <auto f> struct cold_call;
template <class R, class... A, R (*f)(A...)> struct cold_call<f> {
  struct frame {
    arguments<A...> given;
    R result;
  };
  WB_FN_COLD static void enter(void* at) {
    frame* x = static_cast<frame*>(at);
    x->result = x->given.template apply<f>();
  }
  WB_FN static R call(A... a) {
    frame x{arguments<A...>::of(a...), R{}};
    void (*volatile address)(void*) = &enter;
    address(&x);
    return x.result;
  }
};

}  // namespace detail

/// @brief Calls `f` through the one call type of all cold functions, and returns its result. `f` must return a value.
///
/// @pre No other `call_cold` is in progress in this thread. Each calling thread makes the call; what `f` asks of a warp holds for
/// the call.
#if WB_GPU
template <auto f, class... A> WB_FN auto call_cold(A... a) { return detail::cold_call<f>::call(a...); }
#elif WB_CHECKS_NESTING
namespace detail {

// Marks this thread as being inside a `call_cold`, and aborts if it is already.
class in_cold_call {
 public:
  in_cold_call() {
    if (inside()) {
      fputs("warpbell: call_cold within call_cold: on a GPU the kernel would have too little stack\n", stderr);
      abort();
    }
    inside() = true;
  }
  ~in_cold_call() { inside() = false; }

 private:
  static bool& inside() {
    static thread_local bool is_inside = false;
    return is_inside;
  }
};

}  // namespace detail

// As above. Aborts the program if calls are nested.
template <auto f, class... A> WB_FN auto call_cold(A... a) {
  const detail::in_cold_call once;
  return f(a...);
}
#else
template <auto f, class... A> WB_FN auto call_cold(A... a) { return f(a...); }
#endif

}  // namespace warpbell
