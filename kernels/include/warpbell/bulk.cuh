// Copies by the copy engine of a multiprocessor (`cp.async.bulk`, from compute capability 9.0 on), through shared memory.
//
// One thread keeps the engine busy: a warp moves as much as a multiprocessor can, where its own loads and stores would move a
// fraction. With many warps loads and stores are as fast. `in_bulk` has the sizes from which the engine wins.
#pragma once

#include <warpbell/order.cuh>
#include <warpbell/platform.h>

#if WB_GPU && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define WB_HAS_BULK_COPIES 1
#include <warpbell/order/bulk.cuh>
#else
#define WB_HAS_BULK_COPIES 0
#endif

namespace warpbell {

/// @brief Direction of a copy between this PE's memory and that of another one.
enum class direction : uint32_t { to_peer, from_peer };

namespace in_bulk {

constexpr uint64_t unit = 16;  // bytes that a bulk copy moves whole, and the alignment of both ends
constexpr uint64_t never = ~uint64_t{0};

// A row for scopes of up to so many threads: the least length in bytes that the engine moves faster than their loads and stores.
struct row {
  uint32_t threads;
  uint64_t put, get;              // through any buffer
  uint64_t put_large, get_large;  // through one of at least large_bytes
};
constexpr uint32_t large_bytes = 96 << 10;

// Returns the least length for a scope, by the direction and the bytes of the buffer. Measured between H200s over NVLink;
// docs/measurements.md has the figures.
WB_FN uint64_t wins_from(direction way, uint32_t threads, uint32_t buffer_bytes) {
  constexpr row rows[] = {
      {1, 1024, 1024, 1024, 1024},       {32, 8192, 8192, 8192, 8192},       {64, 16384, 16384, 16384, 16384},
      {128, 65536, 32768, 65536, 32768}, {256, never, 262144, never, 65536}, {512, never, never, never, 262144},
  };
#pragma unroll
  for (const row& r : rows) {
    if (threads > r.threads) continue;
    if (buffer_bytes < large_bytes) return way == direction::to_peer ? r.put : r.get;
    return way == direction::to_peer ? r.put_large : r.get_large;
  }
  return never;
}
// Returns the least length of a put whose source is in shared memory already.
WB_FN uint64_t wins_from_shared(uint32_t threads) { return threads == 1 ? 1024 : threads <= 32 ? 8192 : never; }

#if WB_HAS_BULK_COPIES
// Stores bytes of shared memory, as thread 0 of the scope. All threads of the scope have made a proxy fence and then a sync.
WB_FN_COLD void put_shared(uint64_t to, uint64_t from, size_t bytes, uint32_t rank, uint32_t) {
  constexpr size_t at_once = 65536;
  if (rank != 0) return;
  order::async::proxy_fence_of_shared();
  for (size_t done = 0; done < bytes; done += at_once) {
    const size_t left = bytes - done;
    order::async::store(to + done, order::async::window_offset(from + done), static_cast<uint32_t>(left < at_once ? left : at_once));
  }
  order::async::stores_complete();
}
#endif

}  // namespace in_bulk

/// @brief Shared memory through which the copy engine moves puts and gets of one scope: of a thread, of a warp, or of a block.
///
///     __shared__ alignas(128) uint8_t memory[32768];
///     bulk_buffer through(by_warp, memory, sizeof memory);
///     w.put(by_warp, to, from, n, pe, through);
///     through.release(by_warp);
///
/// Each thread of the scope has the object. On GPUs before compute capability 9.0, on the CPU engine and with less than
/// `least_bytes` of memory, the calls that take it move their data by loads and stores.
class bulk_buffer {
 public:
  /// Least number of bytes.
  static constexpr uint32_t least_bytes = 128 + 6 * 1024;
  /// Number of bytes from which one warp fills a multiprocessor's share of NVLink. More makes no difference.
  static constexpr uint32_t best_bytes = 128 + 8 * 16384;

  /// @brief Takes `bytes` of shared memory at `memory`, aligned to 128 bytes. All threads of the scope call this; ends with a sync
  /// of the scope.
  ///
  /// @pre Nothing else uses the memory until `release`.
  template <class S> WB_FN bulk_buffer(S, [[maybe_unused]] void* memory, [[maybe_unused]] uint32_t bytes) {
#if WB_HAS_BULK_COPIES
    const uint32_t at = order::async::window_offset(reinterpret_cast<uint64_t>(memory));
    if (bytes >= least_bytes && at % barrier_bytes == 0) {
      const uint32_t data = bytes - barrier_bytes, each = data / stages_least / 128 * 128;
      piece_ = each < piece_most ? each : piece_most;
      stages_ = data / piece_ < stages_most ? data / piece_ : stages_most;
      barriers_ = at;
      if (S::rank() == 0) {
        for (uint32_t i = 0; i < stages_; ++i) order::async::init(barrier(i));
        order::async::proxy_fence_of_shared();
      }
    }
#endif
    S::sync();
  }
  bulk_buffer(const bulk_buffer&) = delete;
  bulk_buffer& operator=(const bulk_buffer&) = delete;

  /// @brief Gives the memory back. All threads of the scope call this; begins with a sync of the scope.
  template <class S> WB_FN void release(S) {
    S::sync();
#if WB_HAS_BULK_COPIES
    if (S::rank() == 0) {
      for (uint32_t i = 0; i < stages_; ++i) order::async::invalidate(barrier(i));
    }
    stages_ = 0;
#endif
  }

  /// @brief Returns true if this buffer can move `bytes` between address `here` of this PE and an address `there` of another.
  WB_FN bool can_copy([[maybe_unused]] uint64_t here, [[maybe_unused]] uint64_t there, [[maybe_unused]] uint64_t bytes) const {
#if WB_HAS_BULK_COPIES
    return stages_ != 0 && ((here | there | bytes) & (in_bulk::unit - 1)) == 0 && order::async::is_global(here);
#else
    return false;
#endif
  }
  /// @brief Returns true if this buffer can move the bytes, and does it faster than loads and stores of the scope's threads.
  template <class S> WB_FN bool takes([[maybe_unused]] direction way, [[maybe_unused]] uint64_t here, [[maybe_unused]] uint64_t there,
                                      [[maybe_unused]] uint64_t bytes) const {
#if WB_HAS_BULK_COPIES
    return can_copy(here, there, bytes) && bytes >= in_bulk::wins_from(way, S::count(), stages_ * piece_);
#else
    return false;
#endif
  }

  /// @brief Copies between global addresses. All threads of the scope call this; begins and ends with a sync of the scope.
  ///
  /// On return the source may be used again, and thread 0 of the scope has seen all stores: its fences and its `quiet` cover them,
  /// and so do those of threads that synchronise with it.
  /// @pre `can_copy` is true.
  template <class S> WB_FN void copy(S, [[maybe_unused]] uint64_t to, [[maybe_unused]] uint64_t from, [[maybe_unused]] uint64_t bytes) {
    S::sync();
#if WB_HAS_BULK_COPIES
    if (S::rank() == 0) move(to, from, bytes);
#endif
    S::sync();
  }

#if WB_HAS_BULK_COPIES
 private:
  static constexpr uint32_t barrier_bytes = 128;
  // The engine takes 0.2 us for a piece whatever its length, so pieces are long. A get over NVLink takes 1.1 us, so several are in
  // flight.
  static constexpr uint32_t stages_least = 6, stages_most = 8, piece_most = 16384;
  static constexpr uint32_t unread = 1;  // stores whose source the engine may still read when the next piece is asked for

  WB_FN uint32_t barrier(uint32_t stage) const { return barriers_ + stage * static_cast<uint32_t>(sizeof(uint64_t)); }
  WB_FN uint32_t data(uint32_t stage) const { return barriers_ + barrier_bytes + stage * piece_; }

  // Moves bytes, as one thread. A stage is loaded again when the store `unread` pieces ago has read it, so loads run ahead of the
  // stores by the other stages.
  WB_FN void move(uint64_t to, uint64_t from, uint64_t bytes) {
    // Orders what this thread and others wrote before it with the reads of the engine.
    order::async::proxy_fence();
    uint64_t asked = 0;
    uint32_t into = 0;
    const auto ask = [&] {
      const uint64_t left = bytes - asked;
      const uint32_t some = left < piece_ ? static_cast<uint32_t>(left) : piece_;
      order::async::expect(barrier(into), some);
      order::async::load(data(into), from + asked, some, barrier(into));
      asked += some;
      into = into + 1 == stages_ ? 0 : into + 1;
    };
    for (uint32_t i = 0; i + unread < stages_ && asked < bytes; ++i) ask();
    uint32_t stage = 0;
#pragma unroll 1
    for (uint64_t done = 0; done < bytes; done += piece_) {
      const uint64_t left = bytes - done;
      // Ends when the memory has replied, as a load does.
      while (!order::async::is_over(barrier(stage), phases_ >> stage & 1)) {
      }
      phases_ ^= 1u << stage;
      order::async::store(to + done, data(stage), left < piece_ ? static_cast<uint32_t>(left) : piece_);
      stage = stage + 1 == stages_ ? 0 : stage + 1;
      if (asked < bytes) {
        order::async::sources_read<unread>();
        ask();
      }
    }
    order::async::stores_complete();
  }

  uint32_t barriers_ = 0, piece_ = 0, stages_ = 0, phases_ = 0;
#endif
};

}  // namespace warpbell
