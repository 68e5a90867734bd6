// A stand-in for the volume under the cache's tests: commands complete in random order, when the test lets them, and fail where
// the test says. It keeps the real one's rules: a command is finished (data copied, tag settled) by whoever gets to it first, and
// a table of commands that is full is emptied by those who need room.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/clock.cuh>
#include <warpbell/order.cuh>
#include <warpbell/status.h>
#include <warpbell/warp.cuh>

#include <atomic>
#include <random>
#include <vector>

namespace warpbell {

namespace nvme {
enum opcode : uint32_t { op_write = 0x01, op_read = 0x02 };
}

struct status {
  uint32_t word = WB_DONE;
  explicit operator bool() const { return word == WB_DONE; }
};

struct token {
  uint64_t word = none;
  static constexpr uint64_t none = ~0ull;
  bool empty() const { return word == none; }
  bool in_flight() const { return !empty(); }
};

inline void raise_error(const wb_control* control, const wb_error& e) {
  auto* log = reinterpret_cast<wb_error_log*>(control->error_log);
  uint32_t i = order::fetch_add_relaxed(&log->count, 1u);
  if (i < WB_ERROR_LOG_ENTRIES) {
    order::store_relaxed(&log->entry[i].status, e.status);
    order::store_relaxed(&log->entry[i].lba, e.lba);
    order::store_release(&log->ready[i], 1u);
  }
  order::store_release(reinterpret_cast<uint32_t*>(control->abort), 1u);
}

// The device: a table of commands, and memory behind it.
struct model {
  static constexpr uint32_t slots = 24;
  static constexpr uint32_t most_bytes = 8 * 512;
  enum state : uint32_t { idle, taken, in_flight, completed, finishing };

  struct command {
    // laps << 3 | state
    std::atomic<uint32_t> word{0};
    std::atomic<uint64_t> block{0}, buffer{0}, tag{0};
    std::atomic<uint32_t> blocks{0}, opcode{0}, failed{0};
    std::vector<unsigned char> bounce = std::vector<unsigned char>(most_bytes);
  };

  uint32_t block_bytes = 512;
  std::vector<unsigned char> store;  // the device thread's alone while it runs
  command table[slots];
  std::atomic<uint32_t> next{0};
  std::atomic<bool> stuck{false}, leaving{false};
  std::atomic<uint64_t> bad_reads_from{~0ull}, bad_reads_to{0}, bad_writes_from{~0ull}, bad_writes_to{0};
  std::atomic<uint64_t> reads{0}, writes{0};

  static model& here() {
    static model m;
    return m;
  }

  // What the device does, on a thread of its own: any command in flight, in random order.
  void serve(uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!leaving.load(std::memory_order_acquire)) {
      command& c = table[random() % slots];
      uint32_t w = c.word.load(std::memory_order_acquire);
      if ((w & 7) != in_flight || stuck.load(std::memory_order_relaxed)) {
        if (random() % 8 == 0) cpu::yield();
        continue;
      }
      const uint64_t at = c.block * block_bytes, bytes = uint64_t{c.blocks} * block_bytes;
      const uint64_t first = c.block, last = c.block + c.blocks;
      bool bad = false;
      if (c.opcode == nvme::op_read) {
        bad = first < bad_reads_to && last > bad_reads_from;
        if (!bad) std::memcpy(c.bounce.data(), store.data() + at, bytes);
        ++reads;
      } else {
        bad = first < bad_writes_to && last > bad_writes_from;
        if (!bad) std::memcpy(store.data() + at, c.bounce.data(), bytes);
        ++writes;
      }
      c.failed.store(bad, std::memory_order_relaxed);
      c.word.store((w & ~7u) | completed, std::memory_order_release);
    }
  }
};

class volume_ref {
 public:
  struct place {
    uint32_t device;
    uint64_t lba;
    uint32_t room;
  };

  explicit volume_ref(const wb_volume* v) : v_(v) {}

  place locate(uint64_t block) const { return place{0, block, v_->device[0].max_blocks}; }

  token start(warp::mask_t, uint64_t block, uint32_t blocks, uint32_t opcode, void* buffer, uint64_t* tag) const {
    if (blocks == 0) return token{};
    return begin(block, blocks, opcode, reinterpret_cast<uint64_t>(buffer), reinterpret_cast<uint64_t>(tag));
  }
  token write_async(warp::mask_t, uint64_t block, uint32_t blocks, const void* buffer) const {
    if (blocks == 0) return token{};
    return begin(block, blocks, nvme::op_write, reinterpret_cast<uint64_t>(buffer), 0);
  }
  bool finish(warp::mask_t, token t) const {
    if (t.empty()) return false;
    const uint32_t i = t.word & 0xff, lap = static_cast<uint32_t>(t.word >> 8);
    return finish_one(i, lap);
  }

  status wait(warp::mask_t, token t) const {
    if (t.empty()) return status{};
    const uint32_t i = t.word & 0xff, lap = static_cast<uint32_t>(t.word >> 8);
    auto& c = model::here().table[i];
    patience p(control());
    while (true) {
      uint32_t w = c.word.load(std::memory_order_acquire);
      if ((w & ~7u) != lap) return status{};
      if ((w & 7) == model::completed) {
        status s{c.failed ? uint32_t{WB_DEVICE_ERROR} << WB_STATUS_KIND_SHIFT : uint32_t{WB_DONE}};
        finish_one(i, lap);
        return s;
      }
      verdict v = p.spent();
      if (v != verdict::go_on) return status{uint32_t{WB_TIMED_OUT} << WB_STATUS_KIND_SHIFT};
    }
  }

  void fail(const status& s) const { raise_error(control(), wb_error{s.word, 0, 0, 0, 0, 0, 0}); }
  void raise(uint32_t word, uint32_t opcode, uint64_t lba, uint32_t blocks, uint32_t device) const {
    raise_error(control(), wb_error{word, device, 0, 0, opcode, blocks, lba});
  }

 private:
  const wb_volume* v_;

  const wb_control* control() const { return reinterpret_cast<const wb_control*>(v_->control); }

  static void settle(uint64_t* tag, uint32_t opcode, bool good) {
    uint64_t t = order::load_relaxed(tag);
    if (opcode == nvme::op_read) {
      order::store_release(tag, (t & ~uint64_t{0xff}) | (good ? WB_TAG_VALID | WB_TAG_REFERENCED : WB_TAG_FAILED));
    } else if (good) {
      order::fetch_and(tag, ~uint64_t{WB_TAG_WRITING});
    } else {
      while (true) {
        uint64_t was = order::compare_exchange(tag, t, (t & ~uint64_t{WB_TAG_WRITING}) | WB_TAG_DIRTY | WB_TAG_FAILED);
        if (was == t) break;
        t = was;
      }
    }
  }

  // Frames are read and written by others meanwhile, so their side of a copy is atomic.
  static void copy(void* to, const void* from, uint32_t bytes, bool to_frame) {
    for (uint32_t i = 0; i < bytes / 8; ++i) {
      auto* d = static_cast<uint64_t*>(to) + i;
      auto* s = static_cast<const uint64_t*>(from) + i;
      if (to_frame) order::store_relaxed(d, *s);
      else *d = order::load_relaxed(s);
    }
  }

  token begin(uint64_t block, uint32_t blocks, uint32_t opcode, uint64_t buffer, uint64_t tag) const {
    model& m = model::here();
    patience p(control());
    while (true) {
      uint32_t i = m.next.fetch_add(1, std::memory_order_relaxed) % model::slots;
      auto& c = m.table[i];
      uint32_t w = c.word.load(std::memory_order_relaxed);
      if ((w & 7) == model::idle && c.word.compare_exchange_strong(w, w | model::taken, std::memory_order_acq_rel)) {
        c.block = block;
        c.blocks = blocks;
        c.opcode = opcode;
        c.buffer = buffer;
        c.tag = tag;
        if (opcode == nvme::op_write) copy(c.bounce.data(), reinterpret_cast<void*>(buffer), blocks * m.block_bytes, false);
        c.word.store((w & ~7u) | model::in_flight, std::memory_order_release);
        return token{uint64_t{w & ~7u} << 8 | i};
      }
      // A command without a tag is its owner's.
      if ((w & 7) == model::completed && c.tag.load(std::memory_order_relaxed) != 0) finish_one(i, w & ~7u);
      if (p.spent() != verdict::go_on) {
        if (tag) settle(reinterpret_cast<uint64_t*>(tag), opcode, false);
        return token{};
      }
    }
  }

  bool finish_one(uint32_t i, uint32_t lap) const {
    auto& c = model::here().table[i];
    uint32_t w = lap | model::completed;
    if (!c.word.compare_exchange_strong(w, lap | model::finishing, std::memory_order_acq_rel)) return (w & ~7u) != lap;
    const bool good = !c.failed;
    if (good && c.opcode == nvme::op_read) {
      copy(reinterpret_cast<void*>(c.buffer.load()), c.bounce.data(), c.blocks * model::here().block_bytes, true);
    }
    uint64_t* tag = reinterpret_cast<uint64_t*>(c.tag.load());
    if (tag) {
      if (!good) raise_error(control(), wb_error{uint32_t{WB_DEVICE_ERROR} << WB_STATUS_KIND_SHIFT, 0, 0, i, c.opcode, c.blocks, c.block});
      settle(tag, c.opcode, good);
    }
    c.word.store(lap + 8, std::memory_order_release);
    return true;
  }
};

}  // namespace warpbell
