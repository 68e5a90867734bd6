// Time slices of a CPU thread inside a kernel.
#pragma once

#include <cstdint>

#include <sys/syscall.h>
#include <unistd.h>

namespace warpbell {
namespace cpu {

// Lets the calling thread go on at once when it has slept, beside a program that computes: the system prefers a thread that asked for
// a shorter slice, if it has had less than its share (Linux 6.12 and later, sched(7); earlier systems ignore the request). Alone it
// would only be interrupted more often. The destructor restores what the thread had.
class short_slices {
 public:
  ~short_slices() { end(); }

  void begin() {
    if (is_short_) return;
    old_ = attributes{};
    if (syscall(SYS_sched_getattr, 0, &old_, sizeof(old_), 0) != 0 || old_.policy != 0 || old_.runtime <= shortest_ns) return;
    attributes wanted = old_;
    wanted.runtime = shortest_ns;
    is_short_ = syscall(SYS_sched_setattr, 0, &wanted, 0) == 0;
  }

  void end() {
    if (is_short_) syscall(SYS_sched_setattr, 0, &old_, 0);
    is_short_ = false;
  }

 private:
  static constexpr uint64_t shortest_ns = 100'000;  // the system gives no shorter one

  // `struct sched_attr`, version 0, of sched_setattr(2).
  struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  };
  static_assert(sizeof(attributes) == 48, "the size that the first version has");

  attributes old_{};
  bool is_short_ = false;
};

}  // namespace cpu
}  // namespace warpbell
