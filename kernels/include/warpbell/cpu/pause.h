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

// Executes a bounded number of commands that software devices have not executed yet. Takes the length of the thread's last yield in
// nanoseconds, or 0, and the doorbell that it wrote last, or null. Returns the number of commands, or `contended` if there are none,
// and other programs compute on the processors.
using assist_function = uint32_t (*)(uint64_t yielded_ns, const void* doorbell);
constexpr uint32_t contended = UINT32_MAX;

// The doorbell that this thread wrote last: what it waits for is most likely there.
inline const void*& last_doorbell() {
  static thread_local const void* p = nullptr;
  return p;
}

// Function of the host (host/assist.rs), or null in a program without software devices. The host sets it through the image.
inline std::atomic<assist_function> assist{nullptr};
inline void set_assist(assist_function f) { assist.store(f, std::memory_order_release); }

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
  // Reading the clock can take longer than a yield, so each yield is measured by the next pause.
  uint64_t now = p.yielded == 0 ? 0 : now_ns();
  const uint64_t yielded = now == 0 ? 0 : now - p.yielded;
  p.yielded = 0;
  const assist_function f = assist.load(std::memory_order_acquire);
  const uint32_t done = f == nullptr ? 0 : f(yielded, last_doorbell());
  if (done != 0 && done != contended) {
    p = pauses{0, 0, looks_after_work};
    return false;
  }
  if (p.looks != 0) {
    --p.looks;
    return false;
  }
  if (now == 0) now = now_ns();
  if (p.since == 0) p.since = now;
  const uint64_t waited = now - p.since;
  if (waited < yields_ns && done != contended) {
    p.yielded = now;
    yield();
    return false;
  }
  uint64_t nap = waited / 4;
  nap = nap < nap_ns[0] ? nap_ns[0] : nap < nap_ns[1] ? nap : nap_ns[1];
  const timespec t = {0, static_cast<long>(nap)};
  nanosleep(&t, nullptr);
  return true;
#endif
}

}  // namespace cpu
}  // namespace warpbell
