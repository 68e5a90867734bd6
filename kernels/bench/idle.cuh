// Idle turns of an ideal device's warp: an adapter or a controller that spare warps simulate.
#pragma once

#include <warpbell/clock.cuh>

namespace warpbell {
namespace bench {

class idle_turns {
 public:
  // Ends once *stop is not 0 and nothing is left to do, or after `limit_ns` in any case.
  WB_FN idle_turns(const uint32_t* stop, uint64_t limit_ns) : stop_(stop), limit_ns_(limit_ns), started_(now_ns()) {}

  // Returns true if the turn that ends was the last; `done` is the work of the turn. All lanes of the warp call this.
  WB_FN bool over(uint32_t done) {
    if (done != 0) {
      turns_ = 0;
      return false;
    }
    if (++turns_ % look_every != 0) {
#if !WB_GPU
      order::relax(0);
#endif
      return false;
    }
    uint32_t ends = 0;
    if (warp::is_leader(warp::full())) ends = order::load<order::relaxed, order::system>(stop_) != 0 || now_ns() - started_ > limit_ns_;
    return warp::shuffle(warp::full(), ends, 0) != 0;
  }

 private:
  static constexpr uint32_t look_every = 256;  // idle turns between looks at the stop word and the clock

  const uint32_t* stop_;
  uint64_t limit_ns_, started_;
  uint32_t turns_ = 0;
};

}  // namespace bench
}  // namespace warpbell
