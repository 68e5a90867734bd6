// Cold functions, called through their addresses.
//
// With a plain call the GPU compiler knows which registers the callee spoils; when registers are limited (__launch_bounds__) that is
// all of them, and the caller's values go to memory even where the call is not made. Without a limit the callee takes as many as it
// likes, for every thread of the kernel. Through an address it keeps to the calling convention: it saves what it uses.
//
// ptxas (13.0 to 13.5, for sm_90 and sm_100) compiles all functions of a module whose address is taken into every kernel that calls
// through an address. One among them that no such call of the kernel can reach, because none has its parameters, may spoil the others:
// of `x = a; if (p) x = b;` the first half is lost. So the functions of a world, of which one kernel of a file uses these and the next one
// those, are all called through functions of one type (`call_cold`): who reaches one reaches all. `.ci/whole_and_alone.py` looks for
// what is spoilt. Calls of one type must not be nested: the compiler takes that for a recursion, and cannot tell how much stack it needs.
// A checked build for CPU threads ends when they are.
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

// `out_of_line(f)(arguments)`: one type for each list of parameters. For functions that may be nested.
template <class F> WB_FN F* out_of_line(F* f) {
#if WB_GPU
  F* volatile address = f;
  return address;
#else
  return f;
#endif
}

namespace detail {

template <class... A> struct arguments;
template <> struct arguments<> {
  WB_FN static arguments of() { return {}; }
  template <auto f, class... Before> WB_FN auto apply(Before... before) const { return f(before...); }
};
template <class First, class... Rest> struct arguments<First, Rest...> {
  First first;
  arguments<Rest...> rest;
  WB_FN static arguments of(First f, Rest... r) { return {f, arguments<Rest...>::of(r...)}; }
  template <auto f, class... Before> WB_FN auto apply(Before... before) const {
    return rest.template apply<f>(before..., first);
  }
};

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

// `call_cold<f>(arguments)`: one type for all. For functions that answer something.
#if WB_GPU
template <auto f, class... A> WB_FN auto call_cold(A... a) { return detail::cold_call<f>::call(a...); }
#elif WB_CHECKS_NESTING
namespace detail {

// This thread is in a function that was called so.
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

template <auto f, class... A> WB_FN auto call_cold(A... a) {
  const detail::in_cold_call once;
  return f(a...);
}
#else
template <auto f, class... A> WB_FN auto call_cold(A... a) { return f(a...); }
#endif

}  // namespace warpbell
