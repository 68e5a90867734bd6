// Deadlines. Every wait in the device library carries one and looks at the stop flag.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {

// Nanoseconds since some fixed moment, the same for all threads.
WB_FN uint64_t now_ns() {
#if WB_GPU
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
#else
  return cpu::now_ns();
#endif
}

// How a wait ended before its time: see `deadline::spent`.
enum class wait_status : uint32_t { go_on = 0, timed_out = 1, stopped = 2 };

// One wait's patience: call `spent` once per turn of the loop. Reading the clock and the flags that end a wait happens every few
// turns only.
class deadline {
 public:
  WB_FN explicit deadline(const wb_control* control) : control_(control) {}

  WB_FN wait_status expired() {
    if ((++turns_ & (look_every - 1)) != 0) {
      if (turns_ > spin_turns) order::relax(pause_ns);
      return wait_status::go_on;
    }
    return judge(look(control_, start(), turns_));
  }

  // The same for lanes that wait together: one of them looks, all of them get its verdict.
  WB_FN wait_status expired(warp::mask_t mask) {
    if ((++turns_ & (look_every - 1)) != 0) {
      if (turns_ > spin_turns) order::relax(pause_ns);
      return wait_status::go_on;
    }
    start();
    uint32_t seen = 0;
    if (warp::is_leader(mask)) seen = look(control_, started_, turns_);
    return judge(warp::shuffle(mask, seen, warp::leader(mask)));
  }

  // Whether half of the time is gone.
  WB_FN bool late() const { return late_; }
  // Turns so far.
  WB_FN uint32_t turns() const { return turns_; }

 private:
  static constexpr uint32_t late_bit = 0x80000000u;
  static constexpr uint32_t look_every = 64;  // turns between two looks at the clock and the flags
  // Turns between two looks at the host's memory: a tenth of a second or so. Such a read crosses the bus, and those of all that wait
  // go one after another.
  static constexpr uint32_t look_far_every = WB_GPU ? 1u << 18 : look_every;
  static constexpr uint32_t spin_turns = WB_GPU ? 32 : 0;
  static constexpr uint32_t pause_ns = 40;

  WB_FN uint64_t start() {
    if (started_ == 0) started_ = now_ns();
    return started_;
  }

  WB_FN wait_status judge(uint32_t seen) {
    late_ = (seen & late_bit) != 0;
    return static_cast<wait_status>(seen & ~late_bit);
  }

  // A verdict, and the late bit.
  static WB_FN_COLD uint32_t look(const wb_control* control, uint64_t started, uint32_t turns) {
    const uint64_t waited = now_ns() - started, limit = control->deadline_ns;
    if (waited > limit) return static_cast<uint32_t>(wait_status::timed_out);
    const uint32_t late = waited > limit / 2 ? late_bit : 0;
    if (order::load<order::relaxed>(control->abort) || order::load<order::relaxed, order::system>(control->stop)) {
      return static_cast<uint32_t>(wait_status::stopped) | late;
    }
    if ((turns & (look_far_every - 1)) == 0 && control->host_stop && order::load<order::relaxed, order::system>(control->host_stop)) {
      // Everybody else need not look so far.
      order::store<order::relaxed, order::system>(control->stop, 1u);
      return static_cast<uint32_t>(wait_status::stopped) | late;
    }
    // Of one world: no flag that others look at is raised. Whoever sees it enters an error, and that ends the run.
    if ((turns & (look_far_every - 1)) == 0 && control->fault && order::load<order::relaxed, order::system>(control->fault)) {
      return static_cast<uint32_t>(wait_status::stopped) | late;
    }
    return late;
  }

  const wb_control* control_;
  uint64_t started_ = 0;
  uint32_t turns_ = 0;
  bool late_ = false;
};

}  // namespace warpbell
