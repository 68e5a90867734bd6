// What `warpbell bench shmem` runs: puts, gets, single elements, atomics, signals and barriers, timed on the device.
//
// A test that is measured side by side with plain loads and stores is a template over `How`: `library` makes the calls of
// shmem.cuh, `by_hand` does the same on the address that `ptr` answers.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

namespace shmem_bench {

using namespace warpbell;

// What a test is told. host/bench/shmem/kernel.rs mirrors it.
struct test {
  uint64_t source;      // symmetric: what is put, and got
  uint64_t target;      // symmetric: where it goes
  uint64_t flag;        // u64 in the symmetric heap
  uint64_t clock;       // block_clock[blocks]
  uint64_t samples;     // u32[iterations]: ticks of each operation; or 0
  uint64_t gate;        // gate_words
  uint64_t sums;        // u64[threads]: what each thread got; or 0
  uint64_t bytes;       // of a message
  uint64_t elements;    // of a window; for p a multiple of the number of threads
  uint64_t turn;        // counters that live longer than a run begin here
  uint64_t seed;
  uint64_t before;      // the pattern that the target held
  uint32_t iterations;
  uint32_t warmup;
  uint32_t peer;
  uint32_t everybody;   // all PEs run this kernel: they begin together
  uint32_t op;          // `atomic`
  uint32_t member;      // 0 and 1: the two of a ping-pong
};

// When a block was in its timed part. Ticks are what samples are counted in.
struct block_clock {
  uint64_t start_ns, end_ns, start_ticks, end_ticks;
};

struct gate_words {
  uint32_t arrived, open;
};

WB_FN uint64_t ticks() {
#if WB_GPU
  return static_cast<uint64_t>(clock64());
#else
  return now_ns();
#endif
}

// --- what messages hold ------------------------------------------------------------------------------------------------

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
WB_FN uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// 8 bytes of the pattern; and 4 or 8 as an element of an array.
WB_FN uint64_t word(uint64_t seed, uint64_t i) { return mix(seed + (i + 1) * 0x9e3779b97f4a7c15ull); }
template <class T> WB_FN T element(uint64_t seed, uint64_t i) {
  if constexpr (sizeof(T) == 8) {
    return word(seed, i);
  } else {
    return static_cast<T>(word(seed, i / 2) >> (i % 2 * 32));
  }
}

// --- the timed part ----------------------------------------------------------------------------------------------------

WB_FN block_clock& my_clock(const test& t) { return reinterpret_cast<block_clock*>(t.clock)[blockIdx.x]; }

WB_FN void wait_for(const world_ref& w, const uint32_t* word, uint32_t at_least) {
  patience p(w.control());
  while (order::load_acquire(word) < at_least) {
    if (verdict v = p.spent(); v != verdict::go_on) {
      w.fail(WB_CALL_WAIT, status_word(v), word, sizeof *word, w.my_pe());
      return;
    }
  }
}

// All blocks have come here, and those of the other PEs; they go on together. All blocks of the grid run at once.
WB_FN void begin(const world_ref& w, const test& t) {
  gate_words* gate = reinterpret_cast<gate_words*>(t.gate);
  __syncthreads();
  if (threadIdx.x == 0) {
    order::fetch_add(&gate->arrived, 1u);
    if (blockIdx.x == 0) {
      wait_for(w, &gate->arrived, gridDim.x);
      if (t.everybody) w.sync_all(by_thread);
      order::store_release(&gate->open, 1u);
    } else {
      wait_for(w, &gate->open, 1);
    }
    my_clock(t).start_ns = now_ns();
    my_clock(t).start_ticks = ticks();
  }
  __syncthreads();
}

// What the threads of this block did is complete.
WB_FN void end(const world_ref& w, const test& t) {
  w.quiet();
  __syncthreads();
  if (threadIdx.x == 0) {
    my_clock(t).end_ticks = ticks();
    my_clock(t).end_ns = now_ns();
  }
}

// Operations one after the other, by the first `S` of each block; `once` gets their number. Samples are of the first block.
template <class S, class F> WB_FN void in_turn(S, const world_ref& w, const test& t, F once) {
  const bool works = threadIdx.x < S::count();
  if (works) {
    for (uint32_t i = 0; i < t.warmup; ++i) once(i);
  }
  begin(w, t);
  if (works && (t.samples == 0 || blockIdx.x != 0)) {
    for (uint32_t i = 0; i < t.iterations; ++i) once(t.warmup + i);
  } else if (works) {
    uint32_t* samples = reinterpret_cast<uint32_t*>(t.samples);
    for (uint32_t i = 0; i < t.iterations; ++i) {
      const uint64_t from = ticks();
      once(t.warmup + i);
      if (threadIdx.x == 0) samples[i] = static_cast<uint32_t>(ticks() - from);
    }
  }
  end(w, t);
}

// --- with the library, and by hand ---------------------------------------------------------------------------------------

// Atomic operations; host/bench/shmem/test.rs has the same order.
enum atomic : uint32_t {
  inc, add, fetch_inc, fetch_add, set, swap, compare_swap, and_, or_, xor_, fetch_and, fetch_or, fetch_xor, fetch
};

struct library {
  template <class S> static WB_FN void put(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    w.put_nbi(s, to, from, n, pe);
  }
  template <class S> static WB_FN void get(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    w.get_nbi(s, to, from, n, pe);
  }
  template <class S>
  static WB_FN void put_signal(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint64_t* sig, uint64_t v,
                               uint32_t pe) {
    w.put_signal(s, to, from, n, sig, v, signal::set, pe);
  }
  template <class T> static WB_FN void p(const world_ref& w, T* to, T v, uint32_t pe) { w.p(to, v, pe); }
  template <class T> static WB_FN T g(const world_ref& w, const T* from, uint32_t pe) { return w.g(from, pe); }
  static WB_FN void wait(const world_ref& w, uint64_t* word, uint64_t v) { w.wait_until(word, cmp::ge, v); }
  // Those without a fetch answer 0.
  template <uint32_t Op, class T> static WB_FN T update(const world_ref& w, T* at, T v, T expected, uint32_t pe) {
    if constexpr (Op == inc) w.atomic_inc(at, pe);
    if constexpr (Op == add) w.atomic_add(at, v, pe);
    if constexpr (Op == set) w.atomic_set(at, v, pe);
    if constexpr (Op == and_) w.atomic_and(at, v, pe);
    if constexpr (Op == or_) w.atomic_or(at, v, pe);
    if constexpr (Op == xor_) w.atomic_xor(at, v, pe);
    if constexpr (Op == fetch_inc) return w.atomic_fetch_inc(at, pe);
    if constexpr (Op == fetch_add) return w.atomic_fetch_add(at, v, pe);
    if constexpr (Op == swap) return w.atomic_swap(at, v, pe);
    if constexpr (Op == compare_swap) return w.atomic_compare_swap(at, expected, v, pe);
    if constexpr (Op == fetch_and) return w.atomic_fetch_and(at, v, pe);
    if constexpr (Op == fetch_or) return w.atomic_fetch_or(at, v, pe);
    if constexpr (Op == fetch_xor) return w.atomic_fetch_xor(at, v, pe);
    if constexpr (Op == fetch) return w.atomic_fetch(at, pe);
    return T{};
  }
};

struct by_hand {
  using quad = order::detail::pair;

  // Both ends and the length are multiples of 16, except at the end of a message.
  template <class S, class Load> static WB_FN void copy(S, uint8_t* to, const uint8_t* from, uint64_t n, Load load) {
    constexpr uint32_t ahead = WB_GPU ? 4 : 1;
    const uint64_t quads = n / sizeof(quad), step = S::count();
    quad* d = reinterpret_cast<quad*>(to);
    const quad* s = reinterpret_cast<const quad*>(from);
    uint64_t i = S::rank();
    for (; i + (ahead - 1) * step < quads; i += ahead * step) {
      quad v[ahead];
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) v[k] = load(s + i + k * step);
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) d[i + k * step] = v[k];
    }
    for (; i < quads; i += step) d[i] = load(s + i);
    for (uint64_t j = quads * sizeof(quad) + S::rank(); j < n; j += step) to[j] = from[j];
    order::keep();
  }
  template <class S> static WB_FN void put(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    copy(s, w.ptr(to, pe), from, n, [](const quad* p) { return *p; });
  }
  // Not from the first-level cache, which would have the data of the iteration before.
  template <class S> static WB_FN void get(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint32_t pe) {
    copy(s, to, w.ptr(from, pe), n, [](const quad* p) { return order::load_remote(p); });
  }
  template <class S>
  static WB_FN void put_signal(S s, const world_ref& w, uint8_t* to, const uint8_t* from, uint64_t n, uint64_t* sig, uint64_t v,
                               uint32_t pe) {
    put(s, w, to, from, n, pe);
    S::sync();
    if (S::rank() == 0) {
      order::fence_sys();
      order::store_remote(w.ptr(sig, pe), v);
    }
    S::sync();
  }
  template <class T> static WB_FN void p(const world_ref& w, T* to, T v, uint32_t pe) {
    order::store_remote(w.ptr(to, pe), v);
  }
  template <class T> static WB_FN T g(const world_ref& w, const T* from, uint32_t pe) {
    return order::load_remote(w.ptr(from, pe));
  }
  static WB_FN void wait(const world_ref& w, uint64_t* word, uint64_t v) {
    constexpr uint32_t turns = 1 << 12;  // between two looks at the clock
    for (patience p(w.control());;) {
      for (uint32_t i = 0; i < (WB_GPU ? turns : 1); ++i) {
        if (order::load_remote(word) >= v) return order::fence_acquire_sys();
      }
      if (verdict spent = p.spent(); spent != verdict::go_on) {
        w.fail(WB_CALL_WAIT, status_word(spent), word, sizeof *word, WB_NO_PE);
        return;
      }
    }
  }
  template <uint32_t Op, class T> static WB_FN T update(const world_ref& w, T* at, T v, T expected, uint32_t pe) {
    T* there = w.ptr(at, pe);
    if constexpr (Op == inc) order::add_relaxed_sys(there, T(1));
    if constexpr (Op == add) order::add_relaxed_sys(there, v);
    if constexpr (Op == set) order::store_remote(there, v);
    if constexpr (Op == and_) order::fetch_and_relaxed_sys(there, v);
    if constexpr (Op == or_) order::fetch_or_relaxed_sys(there, v);
    if constexpr (Op == xor_) order::fetch_xor_relaxed_sys(there, v);
    if constexpr (Op == fetch_inc) return order::fetch_add_relaxed_sys(there, T(1));
    if constexpr (Op == fetch_add) return order::fetch_add_relaxed_sys(there, v);
    if constexpr (Op == swap) return order::exchange_relaxed_sys(there, v);
    if constexpr (Op == compare_swap) return order::compare_exchange_relaxed_sys(there, expected, v);
    if constexpr (Op == fetch_and) return order::fetch_and_relaxed_sys(there, v);
    if constexpr (Op == fetch_or) return order::fetch_or_relaxed_sys(there, v);
    if constexpr (Op == fetch_xor) return order::fetch_xor_relaxed_sys(there, v);
    if constexpr (Op == fetch) return order::load_remote(there);
    return T{};
  }
};

// --- messages ------------------------------------------------------------------------------------------------------------

template <class S> struct units;
template <> struct units<scope::thread> {
  static WB_FN uint64_t index() { return warp::thread_index(); }
  static WB_FN uint64_t total() { return warp::thread_total(); }
};
template <> struct units<scope::warp> {
  static WB_FN uint64_t index() { return warp::index(); }
  static WB_FN uint64_t total() { return warp::total(); }
};
template <> struct units<scope::block> {
  static WB_FN uint64_t index() { return blockIdx.x; }
  static WB_FN uint64_t total() { return gridDim.x; }
};

// One thread's, warp's or block's part of a message: whole multiples of 16 bytes, but for the last.
struct part {
  uint64_t first, bytes;

  template <class S> static WB_FN part of(S, uint64_t bytes) {
    constexpr uint64_t grain = 16;
    const uint64_t each = (bytes + units<S>::total() * grain - 1) / (units<S>::total() * grain) * grain;
    const uint64_t first = units<S>::index() * each;
    if (first >= bytes) return part{0, 0};
    return part{first, bytes - first < each ? bytes - first : each};
  }
};

template <bool Put, class How, class S> WB_FN void move(S s, const world_ref& w, const test& t, part p) {
  uint8_t* to = reinterpret_cast<uint8_t*>(t.target) + p.first;
  const uint8_t* from = reinterpret_cast<const uint8_t*>(t.source) + p.first;
  if constexpr (Put) {
    How::put(s, w, to, from, p.bytes, t.peer);
  } else {
    How::get(s, w, to, from, p.bytes, t.peer);
  }
}

// Message after message, in parts; complete at the end.
template <bool Put, class How, class S> WB_FN void bandwidth(S s, const world_ref& w, const test& t) {
  const part p = part::of(s, t.bytes);
  const bool works = p.bytes != 0;
  if (works) {
    for (uint32_t i = 0; i < t.warmup; ++i) move<Put, How>(s, w, t, p);
  }
  w.quiet();
  begin(w, t);
  if (works) {
    for (uint32_t i = 0; i < t.iterations; ++i) move<Put, How>(s, w, t, p);
  }
  end(w, t);
}

// Each message is complete before the next.
template <bool Put, class How, class S> WB_FN void latency(S s, const world_ref& w, const test& t) {
  in_turn(s, w, t, [&](uint32_t) {
    move<Put, How>(s, w, t, part{0, t.bytes});
    if constexpr (Put) w.quiet();
    S::sync();
  });
}

// --- there and back --------------------------------------------------------------------------------------------------------

template <class How> WB_FN void p_ping_pong(const world_ref& w, const test& t) {
  uint64_t* flag = reinterpret_cast<uint64_t*>(t.flag);
  in_turn(by_thread, w, t, [&](uint32_t i) {
    const uint64_t v = t.turn + i + 1;
    if (t.member == 0) {
      How::p(w, flag, v, t.peer);
      How::wait(w, flag, v);
    } else if (t.member == 1) {
      How::wait(w, flag, v);
      How::p(w, flag, v, t.peer);
    }
  });
}

template <class How, class S> WB_FN void put_signal_ping_pong(S s, const world_ref& w, const test& t) {
  uint8_t* to = reinterpret_cast<uint8_t*>(t.target);
  const uint8_t* from = reinterpret_cast<const uint8_t*>(t.source);
  uint64_t* flag = reinterpret_cast<uint64_t*>(t.flag);
  auto wait = [&](uint64_t v) {
    if (S::rank() == 0) How::wait(w, flag, v);
    S::sync();
  };
  in_turn(s, w, t, [&](uint32_t i) {
    const uint64_t v = t.turn + i + 1;
    if (t.member == 0) {
      How::put_signal(s, w, to, from, t.bytes, flag, v, t.peer);
      wait(v);
    } else if (t.member == 1) {
      wait(v);
      How::put_signal(s, w, to, from, t.bytes, flag, v, t.peer);
    }
  });
}

// --- single elements -------------------------------------------------------------------------------------------------------

// Random words: the multiplier and the increment of Knuth's MMIX; the upper half is the random one.
struct stream {
  uint64_t state;

  WB_FN stream(uint64_t seed, uint64_t thread) : state(word(seed, thread)) {}
  WB_FN uint64_t next() { return state = state * 6364136223846793005ull + 1442695040888963407ull; }
  // Below n, which is below 2^32.
  WB_FN uint64_t below(uint64_t n) { return (next() >> 32) * n >> 32; }
  // What goes with the element just drawn.
  template <class T> WB_FN T value() const { return static_cast<T>(state >> 16); }
};

// Side by side, each thread one element in each iteration.
template <class T, class How> WB_FN void p_rate(const world_ref& w, const test& t) {
  T* to = reinterpret_cast<T*>(t.target);
  const uint64_t step = warp::thread_total();
  uint64_t at = warp::thread_index();
  auto once = [&] {
    How::p(w, to + at, element<T>(t.seed, at), t.peer);
    at += step;
    if (at >= t.elements) at = warp::thread_index();
  };
  for (uint32_t i = 0; i < t.warmup; ++i) once();
  w.quiet();
  begin(w, t);
  at = warp::thread_index();
  for (uint32_t i = 0; i < t.iterations; ++i) once();
  end(w, t);
}

// Random elements, several of each thread under way; what came is summed up.
template <class T, class How> WB_FN void g_rate(const world_ref& w, const test& t) {
  constexpr uint32_t ahead = WB_GPU ? 8 : 1;
  const T* from = reinterpret_cast<const T*>(t.source);
  uint64_t sum = 0;
  auto some = [&](stream& random, uint32_t count) {
    uint32_t i = 0;
    for (; i + ahead <= count; i += ahead) {
      T v[ahead];
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) v[k] = How::g(w, from + random.below(t.elements), t.peer);
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) sum += v[k];
    }
    for (; i < count; ++i) sum += How::g(w, from + random.below(t.elements), t.peer);
  };
  stream before(t.seed + 1, warp::thread_index()), random(t.seed, warp::thread_index());
  some(before, t.warmup);
  begin(w, t);
  sum = 0;
  some(random, t.iterations);
  end(w, t);
  reinterpret_cast<uint64_t*>(t.sums)[warp::thread_index()] = sum;
}

// What an operation writes. Where the order of operations would show in the result, all those on an element write the same.
template <uint32_t Op, class T> WB_FN T operand(const test& t, const stream& random, uint64_t at) {
  return Op == set || Op == swap || Op == compare_swap ? element<T>(t.seed, at) : random.value<T>();
}
template <uint32_t Op, class T> WB_FN T expectation(const test& t, uint64_t at) {
  return Op == compare_swap ? element<T>(t.before, at) : T{};
}

template <class T, class How, uint32_t Op> WB_FN void update_many(const world_ref& w, const test& t) {
  constexpr uint32_t ahead = WB_GPU ? 4 : 1;
  T* window = reinterpret_cast<T*>(t.target);
  stream random(t.seed, warp::thread_index());
  T old{};
  auto one = [&] {
    const uint64_t at = random.below(t.elements);
    const T v = operand<Op, T>(t, random, at), expected = expectation<Op, T>(t, at);
    return How::template update<Op>(w, window + at, v, expected, t.peer);
  };
  // Warm-up is part of what is checked, so it goes on in the same sequence.
  for (uint32_t i = 0; i < t.warmup; ++i) old ^= one();
  w.quiet();
  begin(w, t);
  uint32_t i = 0;
  for (; i + ahead <= t.iterations; i += ahead) {
    T v[ahead];
#pragma unroll
    for (uint32_t k = 0; k < ahead; ++k) v[k] = one();
#pragma unroll
    for (uint32_t k = 0; k < ahead; ++k) old ^= v[k];
  }
  for (; i < t.iterations; ++i) old ^= one();
  end(w, t);
  reinterpret_cast<uint64_t*>(t.sums)[warp::thread_index()] = old;
}

// What the window holds after the same operations, done here by one thread in place of each.
template <class T, uint32_t Op> WB_FN void replay_one(const test& t, uint64_t threads) {
  T* window = reinterpret_cast<T*>(t.target);
  for (uint64_t thread = warp::thread_index(); thread < threads; thread += warp::thread_total()) {
    stream random(t.seed, thread);
    for (uint32_t i = 0; i < t.warmup + t.iterations; ++i) {
      const uint64_t at = random.below(t.elements);
      T* here = window + at;
      const T v = operand<Op, T>(t, random, at);
      if constexpr (Op == inc || Op == fetch_inc) order::add_relaxed_sys(here, T(1));
      if constexpr (Op == add || Op == fetch_add) order::add_relaxed_sys(here, v);
      if constexpr (Op == set || Op == swap || Op == compare_swap) order::store_remote(here, v);
      if constexpr (Op == and_ || Op == fetch_and) order::fetch_and_relaxed_sys(here, v);
      if constexpr (Op == or_ || Op == fetch_or) order::fetch_or_relaxed_sys(here, v);
      if constexpr (Op == xor_ || Op == fetch_xor) order::fetch_xor_relaxed_sys(here, v);
    }
  }
}

template <class T, class How> struct updates {
  const world_ref& w;
  const test& t;
  template <uint32_t Op> WB_FN void run() const { update_many<T, How, Op>(w, t); }
};
template <class T> struct replays {
  const test& t;
  uint64_t threads;
  template <uint32_t Op> WB_FN void run() const { replay_one<T, Op>(t, threads); }
};

template <class Do> WB_FN void by_operation(uint32_t op, Do what) {
  switch (op) {
    case inc: return what.template run<inc>();
    case add: return what.template run<add>();
    case fetch_inc: return what.template run<fetch_inc>();
    case fetch_add: return what.template run<fetch_add>();
    case set: return what.template run<set>();
    case swap: return what.template run<swap>();
    case compare_swap: return what.template run<compare_swap>();
    case and_: return what.template run<and_>();
    case or_: return what.template run<or_>();
    case xor_: return what.template run<xor_>();
    case fetch_and: return what.template run<fetch_and>();
    case fetch_or: return what.template run<fetch_or>();
    case fetch_xor: return what.template run<fetch_xor>();
    default: return what.template run<fetch>();
  }
}

template <class T, class How> WB_FN void atomic_rate(const world_ref& w, const test& t) {
  by_operation(t.op, updates<T, How>{w, t});
}
template <class T> WB_FN void replay(const test& t, uint64_t threads) { by_operation(t.op, replays<T>{t, threads}); }

// --- collectives -----------------------------------------------------------------------------------------------------------

// A block's part of `n` elements, and the channel that it is done in.
struct share {
  uint64_t first, count;

  WB_FN explicit share(uint64_t n) {
    constexpr uint64_t grain = 16;  // elements: parts begin at whole lines of 16 bytes or more
    const uint64_t each = (n + gridDim.x * grain - 1) / (gridDim.x * grain) * grain;
    first = blockIdx.x * each < n ? blockIdx.x * each : n;
    count = n - first < each ? n - first : each;
  }
};

struct broadcast {
  template <class S, class T> static WB_FN void call(S s, const world_team_ref& team, T* to, const T* from, uint64_t n) {
    const share part(n);
    team.broadcast(s, to + part.first, from + part.first, part.count, 0, blockIdx.x);
  }
};
struct fcollect {
  template <class S, class T> static WB_FN void call(S s, const world_team_ref& team, T* to, const T* from, uint64_t n) {
    const share part(n);
    team.exchange(s, WB_CALL_FCOLLECT, to + part.first, n, from + part.first, 0, part.count, blockIdx.x);
  }
};
struct alltoall {
  template <class S, class T> static WB_FN void call(S s, const world_team_ref& team, T* to, const T* from, uint64_t n) {
    const share part(n);
    team.exchange(s, WB_CALL_ALLTOALL, to + part.first, n, from + part.first, n, part.count, blockIdx.x);
  }
};
struct reduce_sum {
  template <class S, class T> static WB_FN void call(S s, const world_team_ref& team, T* to, const T* from, uint64_t n) {
    const share part(n);
    team.reduce(s, reduction::sum, to + part.first, from + part.first, part.count, blockIdx.x);
  }
};
template <class What, class T, class S> WB_FN void collective(S s, const world_ref& w, const test& t) {
  const world_team_ref team = w.world_team();
  in_turn(s, w, t, [&](uint32_t) {
    What::call(s, team, reinterpret_cast<T*>(t.target), reinterpret_cast<const T*>(t.source), t.bytes / sizeof(T));
  });
}

// What is reduced: whole numbers so small that every type holds the sum over all PEs exactly.
template <class T> WB_FN T summand(uint64_t seed, uint64_t pe, uint64_t i) {
  return static_cast<T>(mix(seed + (pe << 48) + i) & 0xff);
}

// --- checks ----------------------------------------------------------------------------------------------------------------

WB_FN void count_wrong(uint64_t* wrong, uint64_t n) {
  if (n) order::fetch_add_relaxed(wrong, n);
}

// The barrier lets nobody by before everybody's puts have arrived.
template <class S> WB_FN void barrier_holds(S s, const world_ref& w, const test& t, uint64_t* wrong) {
  uint64_t* flag = reinterpret_cast<uint64_t*>(t.flag);
  uint64_t bad = 0;
  if (threadIdx.x >= S::count()) return;
  for (uint32_t i = 0; i < t.iterations; ++i) {
    const uint64_t v = t.turn + i + 1;
    if (S::rank() == 0) w.p(flag, v, (w.my_pe() + 1) % w.n_pes());
    w.barrier_all(s);
    if (S::rank() == 0 && order::load_remote(flag) != v) ++bad;
    w.barrier_all(s);
  }
  count_wrong(wrong, bad);
}

}  // namespace shmem_bench

// The same pattern anywhere: byte j of the memory is byte j % 8 of word j / 8.
WB_KERNEL void wb_shmem_bench_fill(uint8_t* at, WB_PARAM uint64_t bytes, WB_PARAM uint64_t seed) {
  using namespace warpbell;
  uint64_t* words = reinterpret_cast<uint64_t*>(at);
  const uint64_t n = bytes / 8;
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) words[i] = shmem_bench::word(seed, i);
  for (uint64_t j = n * 8 + warp::thread_index(); j < bytes; j += warp::thread_total()) {
    at[j] = static_cast<uint8_t>(shmem_bench::word(seed, j / 8) >> (j % 8 * 8));
  }
}
WB_EXPORT(wb_shmem_bench_fill)

// Counts bytes from `first` to `last` that are not the pattern's. `at` need not be aligned.
WB_KERNEL void wb_shmem_bench_check(const uint8_t* at, WB_PARAM uint64_t first, WB_PARAM uint64_t last, WB_PARAM uint64_t seed,
                                    uint64_t* wrong) {
  using namespace warpbell;
  const bool aligned = reinterpret_cast<uint64_t>(at) % 8 == 0;
  uint64_t bad = 0;
  for (uint64_t i = first / 8 + warp::thread_index(); i * 8 < last; i += warp::thread_total()) {
    const uint64_t expected = shmem_bench::word(seed, i);
    if (aligned && i * 8 >= first && i * 8 + 8 <= last) {
      uint64_t apart = reinterpret_cast<const uint64_t*>(at)[i] ^ expected;
      for (; apart; apart >>= 8) bad += (apart & 0xff) != 0;
      continue;
    }
    for (uint64_t j = i * 8 < first ? first : i * 8; j < i * 8 + 8 && j < last; ++j) {
      bad += at[j] != static_cast<uint8_t>(expected >> (j % 8 * 8));
    }
  }
  shmem_bench::count_wrong(wrong, bad);
}
WB_EXPORT(wb_shmem_bench_check)

// Counts 8-byte words of two arrays that differ.
WB_KERNEL void wb_shmem_bench_compare(const uint64_t* a, const uint64_t* b, WB_PARAM uint64_t n, uint64_t* wrong) {
  using namespace warpbell;
  uint64_t bad = 0;
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) bad += a[i] != b[i];
  shmem_bench::count_wrong(wrong, bad);
}
WB_EXPORT(wb_shmem_bench_compare)

// Counts threads whose sum of random elements is not the pattern's.
template <class T> WB_FN void wb_check_sums(const shmem_bench::test& t, uint64_t threads, uint64_t pattern, uint64_t* wrong) {
  using namespace warpbell;
  uint64_t bad = 0;
  for (uint64_t thread = warp::thread_index(); thread < threads; thread += warp::thread_total()) {
    shmem_bench::stream random(t.seed, thread);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t.iterations; ++i) sum += shmem_bench::element<T>(pattern, random.below(t.elements));
    bad += reinterpret_cast<const uint64_t*>(t.sums)[thread] != sum;
  }
  shmem_bench::count_wrong(wrong, bad);
}

// Counts elements that are not the sum of all PEs' summands.
template <class T> WB_FN void wb_check_reduced(const T* at, uint64_t n, uint64_t seed, uint32_t pes, uint64_t* wrong) {
  using namespace warpbell;
  uint64_t bad = 0;
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) {
    T expected{};
    for (uint32_t pe = 0; pe < pes; ++pe) expected += shmem_bench::summand<T>(seed, pe, i);
    bad += at[i] != expected;
  }
  shmem_bench::count_wrong(wrong, bad);
}

// Kernels of one test: for each scope, with the library and by hand.
#define WB_BENCH_KERNEL(NAME, ...)                                                                                    \
  WB_KERNEL void wb_shmem_##NAME(WB_PARAM warpbell::world_ref w, WB_PARAM shmem_bench::test t) {                      \
    __VA_ARGS__;                                                                                                      \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_##NAME)
#define WB_BENCH_SCOPES(NAME, ...)                                                                                    \
  WB_BENCH_KERNEL(NAME##_thread, shmem_bench::__VA_ARGS__(warpbell::by_thread, w, t))                                 \
  WB_BENCH_KERNEL(NAME##_warp, shmem_bench::__VA_ARGS__(warpbell::by_warp, w, t))                                     \
  WB_BENCH_KERNEL(NAME##_block, shmem_bench::__VA_ARGS__(warpbell::by_block, w, t))

WB_BENCH_SCOPES(put_bw, bandwidth<true, shmem_bench::library>)
WB_BENCH_SCOPES(put_bw_raw, bandwidth<true, shmem_bench::by_hand>)
WB_BENCH_SCOPES(get_bw, bandwidth<false, shmem_bench::library>)
WB_BENCH_SCOPES(get_bw_raw, bandwidth<false, shmem_bench::by_hand>)
WB_BENCH_SCOPES(put_latency, latency<true, shmem_bench::library>)
WB_BENCH_SCOPES(put_latency_raw, latency<true, shmem_bench::by_hand>)
WB_BENCH_SCOPES(get_latency, latency<false, shmem_bench::library>)
WB_BENCH_SCOPES(get_latency_raw, latency<false, shmem_bench::by_hand>)
WB_BENCH_SCOPES(put_signal_ping_pong, put_signal_ping_pong<shmem_bench::library>)
WB_BENCH_SCOPES(put_signal_ping_pong_raw, put_signal_ping_pong<shmem_bench::by_hand>)
WB_BENCH_KERNEL(p_ping_pong, shmem_bench::p_ping_pong<shmem_bench::library>(w, t))
WB_BENCH_KERNEL(p_ping_pong_raw, shmem_bench::p_ping_pong<shmem_bench::by_hand>(w, t))

#define WB_BENCH_ELEMENTS(NAME)                                                                                       \
  WB_BENCH_KERNEL(NAME##_4, shmem_bench::NAME<uint32_t, shmem_bench::library>(w, t))                                  \
  WB_BENCH_KERNEL(NAME##_8, shmem_bench::NAME<uint64_t, shmem_bench::library>(w, t))                                  \
  WB_BENCH_KERNEL(NAME##_raw_4, shmem_bench::NAME<uint32_t, shmem_bench::by_hand>(w, t))                              \
  WB_BENCH_KERNEL(NAME##_raw_8, shmem_bench::NAME<uint64_t, shmem_bench::by_hand>(w, t))

WB_BENCH_ELEMENTS(p_rate)
WB_BENCH_ELEMENTS(g_rate)
WB_BENCH_ELEMENTS(atomic_rate)

#define WB_BENCH_CHECKS(BYTES, T)                                                                                     \
  WB_KERNEL void wb_shmem_bench_sums_##BYTES(WB_PARAM shmem_bench::test t, WB_PARAM uint64_t threads,                 \
                                             WB_PARAM uint64_t pattern, uint64_t* wrong) {                            \
    wb_check_sums<T>(t, threads, pattern, wrong);                                                                     \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_sums_##BYTES)                                                                              \
  WB_KERNEL void wb_shmem_bench_replay_##BYTES(WB_PARAM shmem_bench::test t, WB_PARAM uint64_t threads) {             \
    shmem_bench::replay<T>(t, threads);                                                                               \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_replay_##BYTES)

WB_BENCH_CHECKS(4, uint32_t)
WB_BENCH_CHECKS(8, uint64_t)

#define WB_BENCH_MEETING(NAME, CALL)                                                                                  \
  WB_BENCH_KERNEL(NAME##_thread, shmem_bench::in_turn(warpbell::by_thread, w, t, [&](uint32_t) { w.CALL(warpbell::by_thread); }))  \
  WB_BENCH_KERNEL(NAME##_warp, shmem_bench::in_turn(warpbell::by_warp, w, t, [&](uint32_t) { w.CALL(warpbell::by_warp); }))        \
  WB_BENCH_KERNEL(NAME##_block, shmem_bench::in_turn(warpbell::by_block, w, t, [&](uint32_t) { w.CALL(warpbell::by_block); }))
WB_BENCH_MEETING(bench_barrier, barrier_all)
WB_BENCH_MEETING(bench_sync, sync_all)

WB_BENCH_SCOPES(broadcast, collective<shmem_bench::broadcast, uint32_t>)
WB_BENCH_SCOPES(fcollect, collective<shmem_bench::fcollect, uint32_t>)
WB_BENCH_SCOPES(alltoall, collective<shmem_bench::alltoall, uint32_t>)
#define WB_BENCH_REDUCTION(NAME, T)                                                                                   \
  WB_BENCH_SCOPES(reduce_##NAME, collective<shmem_bench::reduce_sum, T>)                                          \
  WB_KERNEL void wb_shmem_bench_summands_##NAME(T* at, WB_PARAM uint64_t n, WB_PARAM uint64_t seed,                   \
                                                WB_PARAM uint64_t pe) {                                               \
    using namespace warpbell;                                                                                         \
    for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) {                                       \
      at[i] = shmem_bench::summand<T>(seed, pe, i);                                                                   \
    }                                                                                                                 \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_summands_##NAME)                                                                           \
  WB_KERNEL void wb_shmem_bench_reduced_##NAME(const T* at, WB_PARAM uint64_t n, WB_PARAM uint64_t seed,              \
                                               WB_PARAM uint32_t pes, uint64_t* wrong) {                              \
    wb_check_reduced<T>(at, n, seed, pes, wrong);                                                                     \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_reduced_##NAME)
WB_BENCH_REDUCTION(uint64, uint64_t)
WB_BENCH_REDUCTION(float, float)

#define WB_BENCH_BARRIER_CHECK(SCOPE)                                                                                 \
  WB_KERNEL void wb_shmem_bench_barrier_check_##SCOPE(WB_PARAM warpbell::world_ref w, WB_PARAM shmem_bench::test t,   \
                                                      uint64_t* wrong) {                                              \
    shmem_bench::barrier_holds(warpbell::by_##SCOPE, w, t, wrong);                                                    \
  }                                                                                                                   \
  WB_EXPORT(wb_shmem_bench_barrier_check_##SCOPE)
WB_BENCH_BARRIER_CHECK(thread)
WB_BENCH_BARRIER_CHECK(warp)
WB_BENCH_BARRIER_CHECK(block)

#undef WB_BENCH_KERNEL
#undef WB_BENCH_SCOPES
#undef WB_BENCH_ELEMENTS
#undef WB_BENCH_CHECKS
#undef WB_BENCH_MEETING
#undef WB_BENCH_BARRIER_CHECK
#undef WB_BENCH_REDUCTION
