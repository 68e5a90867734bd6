// Kernel that makes calls on a window on behalf of a test: an interpreter of a list of calls, with a quiet after each. Included by
// shmem_image.cu; see tests/shmem/window.rs. Launch shape: one block.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

namespace window_calls {

using namespace warpbell;

struct alignas(16) wide {
  uint64_t low, high;
};
struct odd {
  uint32_t part[3];
};

enum kind : uint32_t { k_put, k_put_nbi, k_get, k_get_nbi, k_put_signal, k_p, k_g, k_ptr };
enum type : uint32_t { t_u8, t_u32, t_wide, t_odd };
enum scope_of : uint32_t { s_thread, s_warp, s_block, s_none };
enum memory : uint32_t { m_window, m_heap, m_own };

// One call, as in tests/shmem/window.rs.
struct op {
  uint32_t kind, type, scope, pe;
  uint64_t far, near, n;             // bytes from the beginning of each memory; number of elements
  uint32_t far_memory, near_memory;  // memory on PE `pe`, and memory on this PE
  uint64_t value;
  uint64_t answer;  // index of its first answer
  uint32_t thread, signal;
};
static_assert(sizeof(op) == 72, "tests/shmem/window.rs");

struct machine {
  const world_ref& w;
  wb_window window_view;
  uint8_t* heap;
  uint64_t* signals;
  uint8_t* own;
  uint64_t* answer;

  template <class T> WB_FN window<T> in_window(uint64_t at) const {
    const window<uint8_t> place = window<uint8_t>(window_view) + static_cast<ptrdiff_t>(at);
    return window<T>(place.raw());
  }
  template <class T> WB_FN sym<T> in_heap(uint64_t at) const { return sym<T>{reinterpret_cast<T*>(heap + at)}; }

  template <class S, class Far, class Near> WB_FN void block(S s, const op& o, Far far, Near near) const {
    switch (o.kind) {
      case k_put: return w.put(s, far, near, o.n, o.pe);
      case k_put_nbi: return w.put_nbi(s, far, near, o.n, o.pe);
      case k_get: return w.get(s, near, far, o.n, o.pe);
      case k_get_nbi: return w.get_nbi(s, near, far, o.n, o.pe);
      default: return w.put_signal(s, far, near, o.n, signals + o.signal, o.value, signal::set, o.pe);
    }
  }
  template <class Far, class Near> WB_FN void block(const op& o, Far far, Near near) const {
    switch (o.kind) {
      case k_put: return w.put(far, near, o.n, o.pe);
      case k_put_nbi: return w.put_nbi(far, near, o.n, o.pe);
      case k_get: return w.get(near, far, o.n, o.pe);
      case k_get_nbi: return w.get_nbi(near, far, o.n, o.pe);
      default: return w.put_signal(far, near, o.n, signals + o.signal, o.value, signal::set, o.pe);
    }
  }
  // Only the size of a type matters: one has every scope, the others are the block's.
  template <class T, class Far, class Near> WB_FN void at_scope(const op& o, Far far, Near near) const {
    if constexpr (sizeof(T) == 1) {
      switch (o.scope) {
        case s_thread: return block(by_thread, o, far, near);
        case s_warp: return block(by_warp, o, far, near);
        case s_none: return block(o, far, near);
        default: break;
      }
    }
    block(by_block, o, far, near);
  }
  template <class T> WB_FN void blocks(const op& o) const {
    if (o.far_memory == m_heap) return at_scope<T>(o, in_heap<T>(o.far), in_window<T>(o.near));
    const window<T> far = in_window<T>(o.far);
    switch (o.near_memory) {
      case m_window: return at_scope<T>(o, far, in_window<T>(o.near));
      case m_heap: return at_scope<T>(o, far, in_heap<T>(o.near));
      default: return at_scope<T>(o, far, reinterpret_cast<T*>(own + o.near));
    }
  }

  template <class T> WB_FN void value(const op& o) const {
    const window<T> far = in_window<T>(o.far);
    if constexpr (sizeof(T) == 16) {
      if (o.kind == k_p) return w.p(far, T{o.value, ~o.value}, o.pe);
      const T v = w.g(far, o.pe);
      answer[o.answer] = v.low;
      answer[o.answer + 1] = v.high;
    } else {
      if (o.kind == k_p) return w.p(far, static_cast<T>(o.value), o.pe);
      answer[o.answer] = w.g(far, o.pe);
    }
  }

  WB_FN void run(const op& o) const {
    if (o.kind == k_ptr) {
      const uint8_t* there = w.ptr(in_window<uint8_t>(o.far), o.pe);
      answer[o.answer] = there ? order::load<order::relaxed, order::world>(there) : ~uint64_t{0};
    } else if (o.kind >= k_p) {
      if (o.type == t_u8) value<uint8_t>(o);
      else if (o.type == t_wide) value<wide>(o);
      else value<uint32_t>(o);
    } else {
      switch (o.type) {
        case t_u8: return blocks<uint8_t>(o);
        case t_u32: return blocks<uint32_t>(o);
        case t_wide: return blocks<wide>(o);
        default: return blocks<odd>(o);
      }
    }
  }
};

}  // namespace window_calls

WB_KERNEL void window_calls_run(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::window<uint8_t> window,
                                WB_PARAM warpbell::sym<uint8_t> heap, WB_PARAM warpbell::sym<uint64_t> signals, const window_calls::op* ops,
                                WB_PARAM uint64_t count, uint8_t* own, uint64_t* answer) {
  using namespace window_calls;
  const machine m{world, window.raw(), heap, signals, own, answer};
  for (uint64_t i = 0; i < count; ++i) {
    const op& o = ops[i];
    const bool is_block = o.kind <= k_put_signal;
    const uint32_t width = warpbell::warp::width;
    const bool by_block = is_block && (o.type != t_u8 || o.scope == s_block);
    const bool by_warp = is_block && o.type == t_u8 && o.scope == s_warp && threadIdx.x / width == o.thread / width;
    if (by_block || by_warp || threadIdx.x == o.thread) {
      m.run(o);
      world.quiet();
    }
    __syncthreads();
  }
}
WB_EXPORT(window_calls_run)

// Begins a put from a window to the same one on another PE, and ends before it is complete.
WB_KERNEL void window_calls_unfinished(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::window<uint8_t> all, WB_PARAM uint64_t n,
                                       WB_PARAM uint32_t pe) {
  world.put_nbi(warpbell::by_block, all, all, n, pe);
}
WB_EXPORT(window_calls_unfinished)
