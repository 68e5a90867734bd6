// A warp made of threads, so that device sources compile as C++20 and run on CPU threads.
//
// Each lane is one OS thread. Lanes of a warp meet at a rendezvous for votes and shuffles. Disjoint masks do not disturb each
// other. With a warp width of 1 the compiler removes all of this.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "pause.h"

#if !defined(WB_WARP_WIDTH)
#define WB_WARP_WIDTH 1
#endif

namespace warpbell {
namespace cpu {

// Meeting point of the lanes of one mask. warp_state keys it by the mask's lowest lane and its size.
struct rendezvous {
  std::atomic<uint32_t> arrived{0};
  std::atomic<uint32_t> generation{0};
};

struct warp_state {
  // The lanes of a mask may meet while lanes outside it wait in a larger mask with the same lowest lane: the sizes tell them apart.
  rendezvous barriers[WB_WARP_WIDTH][WB_WARP_WIDTH + 1];
  std::atomic<uint64_t> value[WB_WARP_WIDTH] = {};
};

// State of all threads of a block: for __syncthreads and memory shared by the block.
struct block_state {
  explicit block_state(uint32_t threads) : count(threads) {}
  uint32_t count;
  std::atomic<uint32_t> arrived{0};
  std::atomic<uint32_t> generation{0};
  std::atomic<uint32_t> vote[2] = {};  // of this generation and the next: the generation in which a thread voted yes, plus 1
  alignas(64) unsigned char shared[48 * 1024] = {};
};

struct place {
  uint32_t lane = 0;
  uint32_t block = 0;
  warp_state* warp = nullptr;
  block_state* all = nullptr;
};

inline place& here() {
  static thread_local place p;
  return p;
}

// Yields of a thread at a barrier before it sleeps until the last one arrives.
constexpr uint32_t barrier_yields = 8;
constexpr uint64_t long_yield_ns = 1'000'000;  // a yield of this length has given a time slice to another program, as the next would

#if defined(__cpp_lib_atomic_wait)
inline void sleep_while(const std::atomic<uint32_t>& word, uint32_t value) { word.wait(value, std::memory_order_acquire); }
inline void wake_all(std::atomic<uint32_t>& word) { word.notify_all(); }
#else
// C++17 has no such sleep.
inline void sleep_while(const std::atomic<uint32_t>& word, uint32_t value) {
  while (word.load(std::memory_order_acquire) == value) yield();
}
inline void wake_all(std::atomic<uint32_t>&) {}
#endif

inline void barrier(std::atomic<uint32_t>& arrived, std::atomic<uint32_t>& generation, uint32_t count) {
  uint32_t g = generation.load(std::memory_order_acquire);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    arrived.store(0, std::memory_order_relaxed);
    generation.store(g + 1, std::memory_order_release);
    wake_all(generation);
  } else {
    uint64_t before = now_ns();
    for (uint32_t i = 0; i < barrier_yields; ++i) {
      if (generation.load(std::memory_order_acquire) != g) return;
      yield();
      const uint64_t now = now_ns();
      if (now - before >= long_yield_ns) break;
      before = now;
    }
    sleep_while(generation, g);
  }
}

inline void sync(uint32_t mask) {
  if constexpr (WB_WARP_WIDTH > 1) {
    const uint32_t count = static_cast<uint32_t>(__builtin_popcount(mask));
    if (count == 1) return;
    rendezvous& m = here().warp->barriers[__builtin_ctz(mask)][count];
    barrier(m.arrived, m.generation, count);
  }
}

// Publishes a value for each lane of the mask, and calls `read` with the values of all. No lane leaves before every lane has read.
template <class F> inline auto exchange(uint32_t mask, uint64_t mine, F read) {
  warp_state* w = here().warp;
  w->value[here().lane].store(mine, std::memory_order_relaxed);
  sync(mask);
  auto result = read(w->value);
  sync(mask);
  return result;
}

inline uint32_t ballot(uint32_t mask, bool p) {
  if constexpr (WB_WARP_WIDTH == 1) {
    return p ? mask & 1u : 0u;
  } else {
    return exchange(mask, p, [mask](const std::atomic<uint64_t>* v) {
      uint32_t r = 0;
      for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = static_cast<uint32_t>(__builtin_ctz(m));
        if (v[l].load(std::memory_order_relaxed)) r |= 1u << l;
      }
      return r;
    });
  }
}

template <class T> inline T shuffle(uint32_t mask, T v, uint32_t from) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "one register pair");
  if constexpr (WB_WARP_WIDTH == 1) {
    return v;
  } else {
    uint64_t mine = 0;
    std::memcpy(&mine, &v, sizeof v);
    uint64_t theirs = exchange(
        mask, mine, [from](const std::atomic<uint64_t>* all) { return all[from % WB_WARP_WIDTH].load(std::memory_order_relaxed); });
    T out;
    std::memcpy(&out, &theirs, sizeof out);
    return out;
  }
}

template <class T> inline uint32_t match(uint32_t mask, T v) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "one register pair");
  if constexpr (WB_WARP_WIDTH == 1) {
    return mask & 1u;
  } else {
    uint64_t mine = 0;
    std::memcpy(&mine, &v, sizeof v);
    return exchange(mask, mine, [mask, mine](const std::atomic<uint64_t>* all) {
      uint32_t r = 0;
      for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = static_cast<uint32_t>(__builtin_ctz(m));
        if (all[l].load(std::memory_order_relaxed) == mine) r |= 1u << l;
      }
      return r;
    });
  }
}

}  // namespace cpu
}  // namespace warpbell
