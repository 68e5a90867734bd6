// Pauses of a CPU thread that waits inside a kernel.
//
// A waiting thread first does the work that it waits for, if it can: commands of software devices of this process. Otherwise it
// yields its processor, and later sleeps. A yield is right as long as the other threads of this processor are short of work, too.
// Beside a program that computes, each yield gives a whole time slice away, which is milliseconds. A short sleep is then over sooner.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include <sched.h>

namespace warpbell {
namespace cpu {

inline void yield() { sched_yield(); }

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}

// Executes a bounded number of commands that software devices have not executed yet. Returns their number.
using assist_function = uint32_t (*)();

// Function of the host (host/assist.rs), or null in a program without software devices. The host sets it through the image.
inline std::atomic<assist_function> assist{nullptr};
inline void set_assist(assist_function f) { assist.store(f, std::memory_order_release); }

constexpr uint64_t long_yield_ns = 1'000'000;  // a yield of this length has given a time slice to another program
// Shortest and longest time after a long yield in which this thread does not yield. Each is twice the one before it, as long as the
// first yield after it is long again.
constexpr uint64_t contended_ns[2] = {50'000'000, 1'000'000'000};

// Yields, unless this thread's yields are long at present. Returns false then. `now` is the time, and `yielded` that of the last
// yield of this wait, or 0. Reading the clock can take longer than a yield, so each yield is measured by the next pause.
inline bool try_yield(uint64_t now, uint64_t& yielded) {
  static thread_local uint64_t contended_until = 0, period = 0;
  if (yielded != 0 && now - yielded >= long_yield_ns) {
    const bool lasts = now - contended_until < contended_ns[0];
    period = !lasts ? contended_ns[0] : 2 * period < contended_ns[1] ? 2 * period : contended_ns[1];
    contended_until = now + period;
  }
  yielded = 0;
  if (now < contended_until) return false;
  yielded = now;
  yield();
  return true;
}

// State of the pauses of one wait.
struct pauses {
  uint64_t since = 0;    // time of the first pause without work, or 0
  uint64_t yielded = 0;  // time of the pause before this one, if that was a yield
  uint32_t looks = 1;    // turns that go on without a pause: work was done, and the wait may be over
};

constexpr uint64_t yields_ns = 100'000;           // time in which a wait yields before it sleeps
constexpr uint64_t nap_ns[2] = {5'000, 500'000};  // shortest and longest sleep; between them a quarter of the wait so far
constexpr uint32_t looks_after_work = 2;

// Pauses between two looks at what a thread waits for. Returns true if the thread has slept: looks at a clock cost nothing then.
inline bool pause([[maybe_unused]] pauses& p) {
#if defined(WB_PAUSE)
  WB_PAUSE();  // of state exploration (tests/device/explore_access.h)
  return false;
#else
  const assist_function f = assist.load(std::memory_order_acquire);
  if (f != nullptr && f() != 0) {
    p = pauses{0, 0, looks_after_work};
    return false;
  }
  if (p.looks != 0) {
    --p.looks;
    return false;
  }
  const uint64_t now = now_ns();
  if (p.since == 0) p.since = now;
  const uint64_t waited = now - p.since;
  if (waited < yields_ns && try_yield(now, p.yielded)) return false;
  uint64_t nap = waited / 4;
  nap = nap < nap_ns[0] ? nap_ns[0] : nap < nap_ns[1] ? nap : nap_ns[1];
  const timespec t = {0, static_cast<long>(nap)};
  nanosleep(&t, nullptr);
  return true;
#endif
}

}  // namespace cpu
}  // namespace warpbell
