// Messages: bandwidth, latency, ping-pong.
#pragma once

#include "how.cuh"

namespace shmem_bench {

using namespace warpbell;

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

// One thread's, warp's or block's part of a message: whole multiples of 16 bytes, except for the last.
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

template <bool Put, class How, class S> WB_FN void move(How& how, S s, const world_ref& w, const test& t, part p) {
  uint8_t* to = static_cast<uint8_t*>(t.target) + p.first;
  const uint8_t* from = static_cast<const uint8_t*>(t.source) + p.first;
  if constexpr (Put) {
    how.put(s, w, to, from, p.bytes, t.peer);
  } else {
    how.get(s, w, to, from, p.bytes, t.peer);
  }
}

// Sends message after message, in parts, and completes them at the end. Each goes to the next place of the window, if there is one.
template <bool Put, class How, class S> WB_FN void bandwidth_of(How& how, S s, const world_ref& w, const test& t) {
  const part p = part::of(s, t.bytes);
  const uint64_t round = t.bytes * (t.elements == 0 ? 1 : t.elements);
  // The inner loop has only messages, and is compiled once for warm-up and timing.
#pragma unroll 1
  for (uint32_t timed = 0; timed < 2; ++timed) {
    if (timed) {
      w.quiet();
      begin(w, t);
    }
    const uint32_t messages = p.bytes == 0 ? 0 : timed ? t.iterations : t.warmup;
    uint64_t place = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < messages; ++i) {
      move<Put>(how, s, w, t, part{p.first + place, p.bytes});
      place += t.bytes;
      if (place == round) place = 0;
    }
  }
  end(w, t);
}
template <bool Put, class How, class S> WB_FN void bandwidth(S s, const world_ref& w, const test& t) {
  How how;
  bandwidth_of<Put>(how, s, w, t);
}

// The calling scope's share of its block's shared memory. The CPU engine has none.
template <class S> struct shared_part {
  uint8_t* memory = nullptr;
  uint32_t bytes = 0;

  WB_FN shared_part() {
#if WB_GPU
    alignas(128) __shared__ uint8_t all[WB_SHMEM_SHARED_BYTES];
    bytes = WB_SHMEM_SHARED_BYTES / (blockDim.x / S::count()) / 128 * 128;
    memory = all + threadIdx.x / S::count() * bytes;
#endif
  }
};

// Moves messages through a bulk buffer of each scope.
template <bool Put, class How, class S> WB_FN void bandwidth_through_shared(S s, const world_ref& w, const test& t) {
  const shared_part<S> mine;
  bulk_buffer through(s, mine.memory, mine.bytes);
  How how{through};
  bandwidth_of<Put>(how, s, w, t);
  through.release(s);
}

// Puts from shared memory: every message has the data of the first.
template <class S> WB_FN void bandwidth_from_shared(S s, const world_ref& w, const test& t) {
  const part p = part::of(s, t.bytes);
  const uint8_t* source = static_cast<const uint8_t*>(t.source) + p.first;
  const shared_part<S> mine;
  if (mine.memory) {
    for (uint64_t i = S::rank(); i < p.bytes; i += S::count()) mine.memory[i] = source[i];
    source = mine.memory;
    S::sync();
  }
  from_shared how{source};
  bandwidth_of<true>(how, s, w, t);
}

// Sends messages one by one: each is complete before the next.
template <bool Put, class How, class S> WB_FN void latency(S s, const world_ref& w, const test& t) {
  How how;
  in_turn(s, w, t, [&](uint32_t) {
    move<Put>(how, s, w, t, part{0, t.bytes});
    if constexpr (Put) w.quiet();
    S::sync();
  });
}

// --- ping-pong --------------------------------------------------------------------------------------------------------------

template <class How> WB_FN void p_ping_pong(const world_ref& w, const test& t) {
  uint64_t* flag = t.flag;
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

// The word lies behind its signal. Each receiver compares it, and counts those that are wrong.
template <class How> WB_FN void p_signal_ping_pong(const world_ref& w, const test& t) {
  uint64_t *flag = t.flag, *data = flag + 1;
  uint64_t wrong = 0;
  const auto send = [&](uint64_t v) { How::p_signal(w, data, word(t.before, v), flag, v, t.peer); };
  const auto receive = [&](uint64_t v) {
    How::wait(w, flag, v);
    wrong += order::load<order::relaxed, order::world>(data) != word(t.before, v);
  };
  in_turn(by_thread, w, t, [&](uint32_t i) {
    const uint64_t v = t.turn + i + 1;
    if (t.member == 0) {
      send(v);
      receive(v);
    } else if (t.member == 1) {
      receive(v);
      send(v);
    }
  });
  if (threadIdx.x == 0) *t.sums = wrong;
}

template <class How, class S> WB_FN void put_signal_ping_pong(S s, const world_ref& w, const test& t) {
  uint8_t* to = static_cast<uint8_t*>(t.target);
  const uint8_t* from = static_cast<const uint8_t*>(t.source);
  uint64_t* flag = t.flag;
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

}  // namespace shmem_bench
