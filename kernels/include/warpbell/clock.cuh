// Deadlines. Every wait in the device library has a deadline and checks the stop flag.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/order.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {

/// @brief Returns the time in nanoseconds since a fixed moment, which is equal for all threads. One thread calls this.
WB_FN uint64_t now_ns() {
#if WB_GPU
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
#else
  return cpu::now_ns();
#endif
}

/// @brief Outcome of one turn of a wait. See `deadline::expired`.
enum class wait_status : uint32_t { go_on = 0, timed_out = 1, stopped = 2 };

/// @brief The deadline of one wait: call `expired` once in each turn of the wait's loop.
///
/// The limit is `wb_control.deadline_ns`. The time starts at the first look at the clock. `expired` looks at the clock and at the
/// flags that end a wait once in `look_every` turns only.
class deadline {
 public:
  /// @brief Creates the deadline of a wait in the run of `control`.
  WB_FN explicit deadline(const wb_control* control) : control_(control) {}

  /// @brief Counts a turn, and returns whether to go on. One thread calls this.
  ///
  /// @return `go_on`, `timed_out` after the deadline, or `stopped` after a stop, an abort or a fault of the run. The flags are read
  /// in relaxed order: a wait that ends this way has acquired nothing.
  WB_FN wait_status expired() {
    if ((++turns_ & (look_every - 1)) != 0 && !pause(true)) return wait_status::go_on;
    return judge(look(control_, start(), turns_));
  }

  /// @brief Counts a turn for lanes that wait together. The leader looks, and all lanes get the leader's result. Collective over
  /// `mask`, converged.
  WB_FN wait_status expired(warp::mask_t mask) {
    if ((++turns_ & (look_every - 1)) != 0 && !pause(warp::width == 1)) return wait_status::go_on;
    start();
    uint32_t seen = 0;
    if (warp::is_leader(mask)) seen = look(control_, started_, turns_);
    return judge(warp::shuffle(mask, seen, warp::leader(mask)));
  }

  /// @brief Returns true if more than half of the time had passed at the last look.
  WB_FN bool late() const { return late_; }
  /// @brief Returns the number of turns so far.
  WB_FN uint32_t turns() const { return turns_; }

 private:
  static constexpr uint32_t late_bit = 0x80000000u;
  static constexpr uint32_t look_every = 64;  // turns between two looks at the clock and the flags in device memory
  // Turns between two looks at flags in host memory: about a tenth of a second. Such a read crosses the bus, and the reads of all
  // waiting threads are serialised.
  static constexpr uint32_t look_far_every = WB_GPU ? 1u << 18 : look_every;
#if WB_GPU
  static constexpr uint32_t spin_turns = 32;
  static constexpr uint32_t pause_ns = 40;
#endif

  // Pauses between two looks at the clock. Returns true if a look costs nothing now: after a sleep of a CPU thread that waits
  // `alone`. Other lanes may not have slept.
  WB_FN bool pause([[maybe_unused]] bool alone) {
#if WB_GPU
    if (turns_ > spin_turns) order::relax(pause_ns);
    return false;
#else
    return cpu::pause(pauses_) && alone;
#endif
  }

  // Returns the time at which the wait began, in nanoseconds, and records it at the first call.
  WB_FN uint64_t start() {
    if (started_ == 0) started_ = now_ns();
    return started_;
  }

  // Splits the result of `look` into the wait status and the late bit.
  WB_FN wait_status judge(uint32_t seen) {
    late_ = (seen & late_bit) != 0;
    return static_cast<wait_status>(seen & ~late_bit);
  }

  // Looks at the clock and the flags. Returns a wait status, with the late bit if more than half of the time has passed.
  static WB_FN_COLD uint32_t look(const wb_control* control, uint64_t started, uint32_t turns) {
    const uint64_t waited = now_ns() - started, limit = control->deadline_ns;
    if (waited > limit) return static_cast<uint32_t>(wait_status::timed_out);
    const uint32_t late = waited > limit / 2 ? late_bit : 0;
    if (order::load<order::relaxed>(control->abort) || order::load<order::relaxed, order::system>(control->stop)) {
      return static_cast<uint32_t>(wait_status::stopped) | late;
    }
    if ((turns & (look_far_every - 1)) == 0 && control->host_stop && order::load<order::relaxed, order::system>(control->host_stop)) {
      // Copies the host's flag to device memory, so that other threads see it there.
      order::store<order::relaxed, order::system>(control->stop, 1u);
      return static_cast<uint32_t>(wait_status::stopped) | late;
    }
    // A fault of a connection of this world. No flag in device memory is set. The thread that sees the fault enters an error, and
    // that ends the run.
    if ((turns & (look_far_every - 1)) == 0 && control->fault && order::load<order::relaxed, order::system>(control->fault)) {
      return static_cast<uint32_t>(wait_status::stopped) | late;
    }
    return late;
  }

  const wb_control* control_;
  uint64_t started_ = 0;
  uint32_t turns_ = 0;
  bool late_ = false;
#if !WB_GPU
  cpu::pauses pauses_;
#endif
};

}  // namespace warpbell
