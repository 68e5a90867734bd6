// Kernels that make every call of a world on behalf of a test. They are an interpreter of lists of calls, and loops of messages
// that check the received data. Compiled by the tests alone, for CPU threads at several warp widths and for GPUs; see
// tests/shmem_calls.rs. Launch shape: one block or several on every PE, all resident.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

#include "../../kernels/shmem/basic.cu"
#include "../../kernels/shmem/host.cu"

namespace calls {

using namespace warpbell;

struct alignas(16) wide {
  uint64_t low, high;
};
struct odd {
  uint32_t part[3];
};

enum kind : uint32_t {
  k_put,
  k_put_nbi,
  k_get,
  k_get_nbi,
  k_iput,
  k_iget,
  k_put_signal,
  k_put_signal_nbi,
  k_p,
  k_g,
  k_signal_op,
  k_signal_set,
  k_signal_add,
  k_signal_inc,
  k_signal_fetch,
  k_signal_wait,
  k_signal_wait_shadow,
  k_signal_test_shadow,
  k_fetch,
  k_set,
  k_swap,
  k_compare_swap,
  k_add,
  k_fetch_add,
  k_inc,
  k_fetch_inc,
  k_and,
  k_or,
  k_xor,
  k_fetch_and,
  k_fetch_or,
  k_fetch_xor,
  k_wait,
  k_wait_all,
  k_wait_any,
  k_wait_some,
  k_wait_all_vector,
  k_wait_any_vector,
  k_wait_some_vector,
  k_test,
  k_test_all,
  k_test_any,
  k_test_some,
  k_test_all_vector,
  k_test_any_vector,
  k_test_some_vector,
  k_fence,
  k_quiet,
  k_flush,
  k_barrier,
  k_sync,
  k_ptr
};
enum type : uint32_t { t_i8, t_u8, t_i16, t_u16, t_i32, t_u32, t_i64, t_u64, t_f32, t_f64, t_wide, t_odd };
enum scope_of : uint32_t { s_thread, s_warp, s_block, s_none };

// One call, as in tests/shmem/op.rs. Addresses are offsets in the heap, or in the private buffer if the highest bit is set.
struct op {
  uint32_t kind, type, scope, pe;
  uint64_t to, from, n;
  int64_t to_stride, from_stride;
  uint64_t value, expected;
  uint64_t sig, status;  // offsets of a signal, and of status words (int) in the private buffer; ~0: null
  uint32_t how;          // comparison, or signal operation
  uint32_t thread;       // thread that makes a call of a thread, or in whose warp it is made
  uint64_t answer;       // index of its first answer
  uint64_t queue;        // queue pair of the call + 1, or 0: that of the block
};
static_assert(sizeof(op) == 112, "tests/shmem/op.rs");

struct machine {
  const world_ref& w;
  uint8_t* own;
  uint64_t* answer;

  WB_FN uint64_t place(uint64_t at) const {
    return at >> 63 ? reinterpret_cast<uint64_t>(own) + (at & ~(uint64_t{1} << 63)) : w.raw().heap + at;
  }
  template <class T> WB_FN T* at(uint64_t offset) const { return reinterpret_cast<T*>(place(offset)); }
  WB_FN uint64_t* sig(const op& o) const { return at<uint64_t>(o.sig); }
  WB_FN const int* status(const op& o) const { return o.status == ~uint64_t{0} ? nullptr : reinterpret_cast<const int*>(own + o.status); }

  template <class T> static WB_FN T narrow(uint64_t v) {
    if constexpr (sizeof(T) == 16) {
      return T{v, ~v};
    } else {
      return order::bits<T>(static_cast<typename order::detail::word<sizeof(T)>::type>(v));
    }
  }
  template <class T> WB_FN void keep(const op& o, T v) const {
    if constexpr (sizeof(T) == 16) {
      answer[o.answer] = v.low;
      answer[o.answer + 1] = v.high;
    } else {
      answer[o.answer] = static_cast<uint64_t>(order::bits<typename order::detail::word<sizeof(T)>::type>(v));
    }
  }

  // --- blocks of elements, at a scope --------------------------------------------------------------------------------

  template <class T, class S> WB_FN void blocks(S s, const op& o) const {
    T *to = at<T>(o.to), *from = at<T>(o.from);
    switch (o.kind) {
      case k_put: return w.put(s, sym<T>{to}, from, o.n, o.pe);
      case k_put_nbi: return w.put_nbi(s, to, sym<T>{from}, o.n, o.pe);
      case k_get: return w.get(s, to, sym<T>{from}, o.n, o.pe);
      case k_get_nbi: return w.get_nbi(s, sym<T>{to}, from, o.n, o.pe);
      case k_put_signal: return w.put_signal(s, to, from, o.n, sym<uint64_t>{sig(o)}, o.value, static_cast<signal>(o.how), o.pe);
      case k_put_signal_nbi: return w.put_signal_nbi(s, sym<T>{to}, from, o.n, sig(o), o.value, static_cast<signal>(o.how), o.pe);
      default: break;
    }
    if constexpr (sizeof(T) != 12) {
      if (o.kind == k_iput) w.iput(s, sym<T>{to}, from, o.to_stride, o.from_stride, o.n, o.pe);
      if (o.kind == k_iget) w.iget(s, to, sym<T>{from}, o.to_stride, o.from_stride, o.n, o.pe);
    }
  }
  template <class T> WB_FN void blocks(const op& o) const {
    T *to = at<T>(o.to), *from = at<T>(o.from);
    switch (o.kind) {
      case k_put: return w.put(to, from, o.n, o.pe);
      case k_put_nbi: return w.put_nbi(to, from, o.n, o.pe);
      case k_get: return w.get(to, from, o.n, o.pe);
      case k_get_nbi: return w.get_nbi(to, from, o.n, o.pe);
      case k_put_signal: return w.put_signal(to, from, o.n, sig(o), o.value, static_cast<signal>(o.how), o.pe);
      case k_put_signal_nbi: return w.put_signal_nbi(to, from, o.n, sig(o), o.value, static_cast<signal>(o.how), o.pe);
      default: break;
    }
    if constexpr (sizeof(T) != 12) {
      if (o.kind == k_iput) w.iput(to, from, o.to_stride, o.from_stride, o.n, o.pe);
      if (o.kind == k_iget) w.iget(to, from, o.to_stride, o.from_stride, o.n, o.pe);
    }
  }
  template <class T> WB_FN void blocks_at_scope(const op& o) const {
    switch (o.scope) {
      case s_thread: return blocks<T>(by_thread, o);
      case s_warp: return blocks<T>(by_warp, o);
      case s_block: return blocks<T>(by_block, o);
      default: return blocks<T>(o);
    }
  }
#if WB_GPU
  // Each pair of type and scope is a copy of all copy loops, which take nvcc minutes. Only the size of a type matters: one type has
  // every scope, another is the block's, the rest are made of bytes.
  WB_FN void blocks_of_type(const op& o) const {
    if (o.type == t_u32) return blocks_at_scope<uint32_t>(o);
    if (o.kind == k_iput || o.kind == k_iget) return;
    constexpr uint32_t size[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 16, 12};
    op bytes = o;
    bytes.n *= size[o.type];
    blocks<uint8_t>(by_block, bytes);
  }
#else
  WB_FN void blocks_of_type(const op& o) const {
    switch (o.type) {
      case t_i8: return blocks_at_scope<int8_t>(o);
      case t_u8: return blocks_at_scope<uint8_t>(o);
      case t_i16: return blocks_at_scope<int16_t>(o);
      case t_u16: return blocks_at_scope<uint16_t>(o);
      case t_i32: return blocks_at_scope<int32_t>(o);
      case t_u32: return blocks_at_scope<uint32_t>(o);
      case t_i64: return blocks_at_scope<int64_t>(o);
      case t_u64: return blocks_at_scope<uint64_t>(o);
      case t_f32: return blocks_at_scope<float>(o);
      case t_f64: return blocks_at_scope<double>(o);
      case t_wide: return blocks_at_scope<wide>(o);
      default: return blocks_at_scope<odd>(o);
    }
  }
#endif

  // --- one value -----------------------------------------------------------------------------------------------------

  template <class T> WB_FN void value(const op& o) const {
    if (o.kind == k_p) {
      w.p(sym<T>{at<T>(o.to)}, narrow<T>(o.value), o.pe);
    } else {
      keep(o, w.g(sym<T>{at<T>(o.from)}, o.pe));
    }
  }
  WB_FN void value_of_type(const op& o) const {
    switch (o.type) {
      case t_i8: return value<int8_t>(o);
      case t_u8: return value<uint8_t>(o);
      case t_i16: return value<int16_t>(o);
      case t_u16: return value<uint16_t>(o);
      case t_i32: return value<int32_t>(o);
      case t_u32: return value<uint32_t>(o);
      case t_i64: return value<int64_t>(o);
      case t_u64: return value<uint64_t>(o);
      case t_f32: return value<float>(o);
      case t_f64: return value<double>(o);
      default: return value<wide>(o);
    }
  }

  // --- atomics -------------------------------------------------------------------------------------------------------

  template <class T> WB_FN void atomic(const op& o) const {
    const sym<T> to{at<T>(o.to)};
    const T v = narrow<T>(o.value);
    switch (o.kind) {
      case k_fetch: return keep(o, w.atomic_fetch(to, o.pe));
      case k_set: return w.atomic_set(to, v, o.pe);
      case k_swap: return keep(o, w.atomic_swap(to, v, o.pe));
      default: break;
    }
    if constexpr (std::is_integral_v<T>) {
      switch (o.kind) {
        case k_compare_swap: return keep(o, w.atomic_compare_swap(to, narrow<T>(o.expected), v, o.pe));
        case k_add: return w.atomic_add(to, v, o.pe);
        case k_fetch_add: return keep(o, w.atomic_fetch_add(to, v, o.pe));
        case k_inc: return w.atomic_inc(to, o.pe);
        case k_fetch_inc: return keep(o, w.atomic_fetch_inc(to, o.pe));
        case k_and: return w.atomic_and(to, v, o.pe);
        case k_or: return w.atomic_or(to, v, o.pe);
        case k_xor: return w.atomic_xor(to, v, o.pe);
        case k_fetch_and: return keep(o, w.atomic_fetch_and(to, v, o.pe));
        case k_fetch_or: return keep(o, w.atomic_fetch_or(to, v, o.pe));
        case k_fetch_xor: return keep(o, w.atomic_fetch_xor(to, v, o.pe));
        default: break;
      }
    }
  }
  WB_FN void atomic_of_type(const op& o) const {
    switch (o.type) {
      case t_i32: return atomic<int32_t>(o);
      case t_u32: return atomic<uint32_t>(o);
      case t_i64: return atomic<int64_t>(o);
      case t_u64: return atomic<uint64_t>(o);
      case t_f32: return atomic<float>(o);
      default: return atomic<double>(o);
    }
  }

  // --- waits and tests: an answer is the outcome, then the result; indices of `some` from answer + 2 on -----------------

  template <class T> WB_FN void wait(const op& o) const {
    const sym<T> word{at<T>(o.to)};
    const T v = narrow<T>(o.value);
    const T* values = at<T>(o.from);
    const cmp how = static_cast<cmp>(o.how);
    const int* skip = status(o);
    outcome ended{};
    uint64_t says = 0;
    size_t* indices = reinterpret_cast<size_t*>(answer + o.answer + 2);
    switch (o.kind) {
      case k_wait: ended = w.wait_until(word, how, v, o.pe); break;
      case k_wait_all: ended = w.wait_until_all(word, o.n, skip, how, v, o.pe); break;
      case k_wait_any: says = w.wait_until_any(word, o.n, skip, how, v, &ended, o.pe); break;
      case k_wait_some: says = w.wait_until_some(word, o.n, indices, skip, how, v, &ended, o.pe); break;
      case k_wait_all_vector: ended = w.wait_until_all_vector(word, o.n, skip, how, values, o.pe); break;
      case k_wait_any_vector: says = w.wait_until_any_vector(word, o.n, skip, how, values, &ended, o.pe); break;
      case k_wait_some_vector: says = w.wait_until_some_vector(word, o.n, indices, skip, how, values, &ended, o.pe); break;
      case k_test: says = w.test(word, how, v); break;
      case k_test_all: says = w.test_all(word, o.n, skip, how, v); break;
      case k_test_any: says = w.test_any(word, o.n, skip, how, v); break;
      case k_test_some: says = w.test_some(word, o.n, indices, skip, how, v); break;
      case k_test_all_vector: says = w.test_all_vector(word, o.n, skip, how, values); break;
      case k_test_any_vector: says = w.test_any_vector(word, o.n, skip, how, values); break;
      default: says = w.test_some_vector(word, o.n, indices, skip, how, values); break;
    }
    answer[o.answer] = ended.word;
    answer[o.answer + 1] = says;
  }
  WB_FN void wait_of_type(const op& o) const {
    switch (o.type) {
      case t_i8: return wait<int8_t>(o);
      case t_u8: return wait<uint8_t>(o);
      case t_i16: return wait<int16_t>(o);
      case t_u16: return wait<uint16_t>(o);
      case t_i32: return wait<int32_t>(o);
      case t_u32: return wait<uint32_t>(o);
      case t_i64: return wait<int64_t>(o);
      default: return wait<uint64_t>(o);
    }
  }

  WB_FN void signals(const op& o) const {
    const sym<uint64_t> s{sig(o)};
    uint64_t seen = 0, shadow = o.expected;
    switch (o.kind) {
      case k_signal_op: return w.signal_op(s, o.value, static_cast<signal>(o.how), o.pe);
      case k_signal_set: return w.signal_set(s, o.value, o.pe);
      case k_signal_add: return w.signal_add(s, o.value, o.pe);
      case k_signal_inc: return w.signal_inc(s, o.pe);
      case k_signal_fetch: answer[o.answer] = w.signal_fetch(s); return;
      case k_signal_wait_shadow:
        answer[o.answer] = w.signal_wait_shadow(s, shadow, o.value, &seen, o.pe).word;
        answer[o.answer + 1] = shadow;
        answer[o.answer + 2] = seen;
        return;
      case k_signal_test_shadow:
        answer[o.answer] = w.signal_test_shadow(s, shadow, o.value);
        answer[o.answer + 1] = shadow;
        return;
      default: answer[o.answer] = w.signal_wait_until(s, static_cast<cmp>(o.how), o.value, &seen, o.pe).word; answer[o.answer + 1] = seen;
    }
  }

  WB_FN void run(const op& o) const {
    if (o.kind <= k_put_signal_nbi) return blocks_of_type(o);
    if (o.kind <= k_g) return value_of_type(o);
    if (o.kind <= k_signal_test_shadow) return signals(o);
    if (o.kind <= k_fetch_xor) return atomic_of_type(o);
    if (o.kind <= k_test_some_vector) return wait_of_type(o);
    if (o.kind == k_fence) return w.fence();
    if (o.kind == k_quiet) return void(w.quiet());
    if (o.kind == k_flush) return void(w.flush());
    if (o.kind == k_barrier) return void(w.barrier_all(by_block));
    if (o.kind == k_sync) return void(w.sync_all(by_block));
    const uint8_t* there = w.ptr(sym<uint8_t>{at<uint8_t>(o.to)}, o.pe);
    answer[o.answer] = there ? order::load<order::relaxed, order::world>(there) : ~uint64_t{0};
  }
};

// Returns word i of message `turn` from a PE.
WB_FN uint32_t told(uint32_t from, uint32_t turn, size_t i) {
  return (from * 0x9e3779b9u ^ turn * 0x85ebca6bu) + static_cast<uint32_t>(i) * 0xc2b2ae35u;
}

// Ways to tell the next PE of data.
enum way : uint32_t {
  w_signal_set,
  w_signal_add,
  w_nbi_add,
  w_fence_p,
  w_fence_add,
  w_quiet_set,
  w_p_signal_adjacent,
  w_p_signal_apart,
  w_through_buffer,
  w_buffer_signal,
  w_from_shared,
  w_batch,
  w_get,
  w_get_through_buffer,
  ways
};

// Shared memory of the calling scope: for a bulk buffer, and for data to send. The CPU engine has none.
struct shared_memory {
  uint8_t* data = nullptr;

  static constexpr uint32_t bytes = 8192, sent = 16384;

  WB_FN shared_memory() {
#if WB_GPU
    alignas(128) __shared__ uint8_t all[bytes + sent];
    data = all;
#endif
  }
};

// Copies by the engine whatever it can move: the library's calls take it for long messages only.
template <class S> WB_FN bool by_engine(S s, bulk_buffer& through, const uint32_t* here, const uint32_t* there, size_t n, bool put) {
  const uint64_t mine = reinterpret_cast<uint64_t>(here), other = reinterpret_cast<uint64_t>(there);
  if (there == nullptr || !through.can_copy(mine, other, n * sizeof(*here))) return false;
  through.copy(s, put ? other : mine, put ? mine : other, n * sizeof(*here));
  return true;
}

// Returns the word that a p_signal carries in a turn.
WB_FN uint64_t carried(uint32_t from, uint64_t turn) { return (uint64_t{from} << 32 | turn) * 0x9e3779b97f4a7c15ull; }

template <class S> WB_FN void tell(S s, const world_ref& w, uint32_t how, uint32_t* to, uint32_t* from, size_t n, uint64_t* flag,
                                   uint64_t turn, uint32_t pe, bulk_buffer& through, uint8_t* shared) {
  switch (how) {
    case w_signal_set: return w.put_signal(s, to, from, n, flag, turn, signal::set, pe);
    case w_signal_add: return w.put_signal(s, to, from, n, flag, 1, signal::add, pe);
    case w_nbi_add: return w.put_signal_nbi(s, to, from, n, flag, 1, signal::add, pe);
    case w_fence_p: w.put_nbi(s, to, from, n, pe); break;
    case w_fence_add: w.iput(s, to, from, 1, 1, n, pe); break;
    case w_buffer_signal: return w.put_signal(s, to, from, n, flag, turn, signal::set, pe, through);
    case w_through_buffer:
      if (!by_engine(s, through, from, w.ptr(to, pe), n, true)) w.put(s, to, from, n, pe, through);
      break;
    case w_from_shared:
      if (shared && n * sizeof(*from) <= shared_memory::sent) {
        uint32_t* copy = reinterpret_cast<uint32_t*>(shared + shared_memory::bytes);
        for (size_t i = S::rank(); i < n; i += S::count()) copy[i] = from[i];
        S::sync();
        from = copy;
      }
      w.put(s, to, from, n, pe);
      break;
    case w_p_signal_adjacent:
    case w_p_signal_apart:
    case w_quiet_set: w.put(s, to, from, n, pe); break;
    case w_batch:
      if (S::rank() == 0) {
        batch_space<3> space;
        put_batch b = w.batch(space, pe);
        for (size_t i = 0; i < n; i += 2) b.p(to + i, from[i]);
        for (size_t i = 1; i < n; i += 2) b.put_nbi(to + i, from + i, 1);
        b.signal_op(flag, 1, signal::add);
      }
      return;
    default: break;  // the receiver gets it
  }
  S::sync();
  if (S::rank() != 0) return;
  if (how == w_quiet_set) {
    w.quiet();
  } else {
    w.fence();
  }
  if (how == w_p_signal_adjacent || how == w_p_signal_apart) {
    w.p_signal(flag + (how == w_p_signal_adjacent ? 1 : 2), carried(w.my_pe(), turn), flag, turn, signal::set, pe);
  } else if (how == w_fence_p) {
    w.p(flag, turn, pe);
  } else if (how == w_fence_add) {
    w.atomic_fetch_add(flag, 1, pe);
  } else {
    w.atomic_set(flag, turn, pe);
  }
}

// Sends message after message to the next PE, each way in turn. The receiver checks every word and reports that before the next
// message comes. `box` has 2 * n words: received data, then data to send. `flags` has 32 words: word 0 tells that data has arrived,
// words 1 and 2 are what a p_signal carries, word 16 tells that the data has been read.
template <class S> WB_FN uint64_t messages(S s, const world_ref& w, uint32_t* box, uint64_t* flags, size_t n, uint32_t turns) {
  const uint32_t me = w.my_pe(), all = w.n_pes(), next = (me + 1) % all, before = (me + all - 1) % all;
  uint32_t *in = box, *out = box + n;
  const shared_memory shared;
  bulk_buffer through(s, shared.data, shared_memory::bytes);
  uint64_t wrong = 0;
  for (uint32_t turn = 1; turn <= turns; ++turn) {
    const uint32_t how = turn % ways;
    for (size_t i = S::rank(); i < n; i += S::count()) out[i] = told(me, turn, i);
    S::sync();
    tell(s, w, how, in, out, n, flags, turn, next, through, shared.data);
    if (!w.signal_wait_until(flags, cmp::ge, turn)) return ~uint64_t{0};
    S::sync();
    if (how == w_get) w.get(s, in, sym<uint32_t>{out}, n, before);
    if (how == w_get_through_buffer && !by_engine(s, through, in, w.ptr(out, before), n, false)) w.get(s, in, out, n, before, through);
    if (how == w_p_signal_adjacent || how == w_p_signal_apart) {
      const uint64_t* word = flags + (how == w_p_signal_adjacent ? 1 : 2);
      wrong += order::load<order::relaxed, order::world>(word) != carried(before, turn);
    }
    for (size_t i = S::rank(); i < n; i += S::count()) wrong += in[i] != told(before, turn, i);
    S::sync();
    if (S::rank() == 0) w.atomic_inc(flags + 16, before);
    if (!w.wait_until(flags + 16, cmp::ge, turn)) return ~uint64_t{0};
    S::sync();
  }
  through.release(s);
  return wrong;
}

// Sends messages of one word to the next PE, each with a signal that counts, and takes those of the PE before, `turns` times. A turn
// has one to three messages. `box` has `slots` words. Word 0 of `flags` counts messages that have arrived, word 16 those of this PE
// that were taken; both were `start`. Returns the number of wrong words and counts.
WB_FN uint64_t counted(const world_ref& w, uint32_t* box, uint64_t* flags, uint64_t start, uint32_t turns) {
  constexpr uint32_t slots = 8;
  const uint32_t me = w.my_pe(), all = w.n_pes(), next = (me + 1) % all, before = (me + all - 1) % all;
  uint64_t came = start, freed = start, arrived = 0, wrong = 0;
  uint32_t sent = 0, taken = 0;
  for (uint32_t turn = 0; turn < turns; ++turn) {
    const uint32_t n = 1 + turn % 3;
    for (uint32_t i = 0; i < n; ++i, ++sent) {
      if (sent >= slots && !w.signal_wait_shadow(flags + 16, freed, 1, nullptr, next)) return ~uint64_t{0};
      const uint32_t word = told(me, sent, 0);
      w.put_signal(box + sent % slots, &word, 1, flags, 1, signal::add, next);
    }
    if (!w.signal_wait_shadow(flags, came, n, &arrived, before)) return ~uint64_t{0};
    wrong += arrived < n || arrived > slots || came != start + taken + n;
    for (uint32_t i = 0; i < n; ++i, ++taken) {
      wrong += order::load<order::relaxed, order::world>(box + taken % slots) != told(before, taken, 0);
      w.signal_inc(flags + 16, before);
    }
  }
  // No more signals come. A shadow ahead of the word waits for those that it counts.
  uint64_t ahead = came + 5;
  wrong += w.signal_test_shadow(flags, came, 1) || came != start + sent || !w.signal_test_shadow(flags, came, 0);
  wrong += w.signal_test_shadow(flags, ahead, 0) || ahead != came + 5;
  return wrong;
}

}  // namespace calls

// Makes the calls of a list, one after the other, with a sync of the block in between.
WB_KERNEL void calls_run(WB_PARAM warpbell::world_ref world, const calls::op* ops, WB_PARAM uint64_t count, uint8_t* own,
                         uint64_t* answer) {
  for (uint64_t i = 0; i < count; ++i) {
    const calls::op& o = ops[i];
    const uint32_t mine = threadIdx.x, warp = mine / warpbell::warp::width;
    const bool by_all = o.kind >= calls::k_fence && o.kind <= calls::k_sync;
    const bool takes_part = by_all || (o.kind <= calls::k_put_signal_nbi && o.scope == calls::s_block) ||
                            (o.kind <= calls::k_put_signal_nbi && o.scope == calls::s_warp && warp == o.thread / warpbell::warp::width) ||
                            mine == o.thread;
    const warpbell::world_ref w = o.queue == 0 ? world : world.on_queue(static_cast<uint32_t>(o.queue - 1));
    if (takes_part) calls::machine{w, own, answer}.run(o);
    __syncthreads();
  }
}
WB_EXPORT(calls_run)

// Begins a put of the second half of an array to the first half on another PE, and ends before it is complete.
WB_KERNEL void calls_unfinished(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint8_t> halves, WB_PARAM uint64_t n,
                                WB_PARAM uint32_t pe) {
  world.put_nbi(warpbell::by_block, halves, halves + static_cast<ptrdiff_t>(n), n, pe);
}
WB_EXPORT(calls_unfinished)

// Sends messages round the ring at a scope, and counts the words that were wrong.
WB_KERNEL void calls_messages(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint32_t> box,
                              WB_PARAM warpbell::sym<uint64_t> flags, WB_PARAM uint64_t n, WB_PARAM uint32_t turns, WB_PARAM uint32_t scope,
                              uint64_t* wrong) {
  using namespace warpbell;
  uint64_t bad = 0;
  if (scope == calls::s_block) {
    bad = calls::messages(by_block, world, box, flags, n, turns);
  } else if (threadIdx.x / warp::width == 0 && (scope == calls::s_warp || threadIdx.x == 0)) {
    bad = scope == calls::s_warp ? calls::messages(by_warp, world, box, flags, n, turns)
                                 : calls::messages(by_thread, world, box, flags, n, turns);
  }
  if (bad) order::fetch_add<order::relaxed>(wrong, bad);
}
WB_EXPORT(calls_messages)

// Sends and takes messages by signals that count, in one thread of each PE.
WB_KERNEL void calls_counted(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint32_t> box,
                             WB_PARAM warpbell::sym<uint64_t> flags, WB_PARAM uint64_t start, WB_PARAM uint32_t turns, uint64_t* wrong) {
  if (threadIdx.x == 0 && blockIdx.x == 0) *wrong = calls::counted(world, box, flags, start, turns);
}
WB_EXPORT(calls_counted)

// Collects on PE 0 `n` words that the others set, in the order of their arrival, `some` or one at a time. The others set theirs
// (those whose index is their number modulo n_pes - 1) from the last to the first. Then came[k] is the index that arrived as number
// k.
WB_KERNEL void calls_collect(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint32_t> words, WB_PARAM uint64_t n,
                             WB_PARAM uint32_t some, int* status, uint64_t* indices, uint64_t* came) {
  using namespace warpbell;
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  if (world.my_pe() != 0) {
    for (uint64_t i = n; i-- > 0;) {
      if (i % (world.n_pes() - 1) == world.my_pe() - 1) world.p(words + static_cast<ptrdiff_t>(i), 7u + static_cast<uint32_t>(i), 0);
    }
    return;
  }
  uint64_t count = 0;
  while (count < n) {
    size_t* found = reinterpret_cast<size_t*>(indices);
    outcome ended{};
    size_t k = 1;
    if (some) {
      k = world.wait_until_some(words, n, found, status, cmp::ne, 0, &ended);
    } else {
      found[0] = world.wait_until_any(words, n, status, cmp::ne, 0, &ended);
    }
    if (!ended || k == 0) return;
    for (size_t j = 0; j < k; ++j) {
      status[found[j]] = 1;
      came[count++] = found[j];
    }
  }
}
WB_EXPORT(calls_collect)

// Draws numbers of a counter of PE 0 in every thread of every PE, and marks them: each number is drawn once.
WB_KERNEL void calls_draw(WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::sym<uint32_t> counter,
                          WB_PARAM warpbell::sym<uint32_t> drawn, WB_PARAM uint32_t limit) {
  using namespace warpbell;
  for (uint32_t number; (number = world.atomic_fetch_inc(counter, 0)) < limit && !world.has_failed();) {
    world.atomic_inc(drawn + static_cast<ptrdiff_t>(number), world.n_pes() - 1);
  }
}
WB_EXPORT(calls_draw)
