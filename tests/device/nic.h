// An RDMA adapter simulated by one thread, for worlds whose PEs are threads of this program. It executes the requests of the send
// queues that kernels write, and moves data between heaps. It checks its input strictly: a request that names unregistered memory
// ends the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <warpbell/mlx5.cuh>

#include "check.h"

namespace warpbell {

class nic {
 public:
  static constexpr uint32_t log_blocks = 5;  // small rings, so that they are full and wrap

  ~nic() { stop(); }

  // Registers memory: its address, its length, and the start address that work requests use. Returns its key.
  uint32_t add_memory(uint8_t* at, uint64_t bytes, uint64_t name) {
    memories_.push_back(memory{at, bytes, name});
    return mlx5::big(static_cast<uint32_t>(memories_.size())).word;
  }

  // Fills in a fresh send queue.
  void add_queue(wb_send_queue& q, uint32_t staging_bytes, uint32_t flags) {
    auto own = std::make_unique<queue>();
    const uint32_t blocks = 1u << log_blocks, number = static_cast<uint32_t>(queues_.size()) + first_number;
    own->q = &q, own->number = number;
    own->collapsed = (flags & WB_SEND_COLLAPSED) != 0;
    own->ring.resize(blocks * 8), own->completions.assign(blocks * 8, ~uint64_t{0});
    own->mark.resize(blocks), own->hold.resize(blocks), own->staging.resize(blocks * staging_bytes / 8 + 2);
    q = wb_send_queue{};
    q.ring = aligned(own->ring), q.completions = aligned(own->completions);
    q.record = own->record, q.doorbell = &own->doorbell;
    q.mark = own->mark.data(), q.hold = own->hold.data();
    q.staging = (reinterpret_cast<uint64_t>(own->staging.data()) + 15) / 16 * 16;
    q.staging_address = 0x7000000000ull + number * 0x1000000ull;
    q.staging_key = add_memory(reinterpret_cast<uint8_t*>(q.staging), blocks * staging_bytes, q.staging_address);
    q.staging_bytes = staging_bytes;
    q.queue_word = mlx5::queue_of(number).word;
    q.log_blocks = log_blocks, q.log_completions = own->collapsed ? 0 : log_blocks;
    q.flags = flags, q.credit = blocks;
    queues_.push_back(std::move(own));
  }

  // Lets requests of this queue fail with this syndrome from the `after`-th on.
  void fail(uint32_t queue, uint32_t after, uint32_t syndrome) { queues_[queue]->fails_after = after, queues_[queue]->syndrome = syndrome; }

  void start() {
    ending_.store(false, std::memory_order_relaxed);
    thread_ = std::thread([this] { serve(); });
  }
  void stop() {
    if (!thread_.joinable()) return;
    ending_.store(true, std::memory_order_release);
    thread_.join();
  }
  // Returns the index in the doorbell of a queue: the low 16 bits of the next free block.
  uint32_t announced(uint32_t queue) const {
    const uint32_t word = static_cast<uint32_t>(__atomic_load_n(&queues_[queue]->doorbell, __ATOMIC_ACQUIRE));
    return (word >> 8 & 0xff) << 8 | (word >> 16 & 0xff);
  }
  uint64_t requests(uint32_t opcode) const { return carried_out_[opcode]; }

 private:
  struct memory {
    uint8_t* at;
    uint64_t bytes, name;
  };
  struct queue {
    wb_send_queue* q;
    uint32_t number;
    bool collapsed = false;
    std::vector<uint64_t> ring, completions, staging;
    std::vector<uint32_t> mark, hold;
    alignas(8) uint32_t record[2] = {};
    uint64_t doorbell = 0;
    uint32_t next = 0, completion = 0, executed = 0, fails_after = ~0u, syndrome = 0;
    bool failed = false;
  };

  static constexpr uint32_t first_number = 0x101;

  static uint64_t aligned(std::vector<uint64_t>& v) { return reinterpret_cast<uint64_t>(v.data()); }

  void serve() {
    while (!ending_.load(std::memory_order_acquire)) {
      bool idle = true;
      for (auto& q : queues_) {
        const uint32_t index = announced(q->number - first_number);
        // A few at a time, so that queues take turns.
        for (uint32_t n = 0; n < 7 && (q->next & 0xffff) != index; ++n, idle = false) one(*q);
      }
      if (idle) std::this_thread::yield();
    }
  }

  static uint32_t big32(const uint32_t* p) { return __builtin_bswap32(__atomic_load_n(p, __ATOMIC_RELAXED)); }
  static uint64_t big64(const uint32_t* p) { return uint64_t{big32(p)} << 32 | big32(p + 1); }

  uint8_t* find(uint32_t key, uint64_t name, uint64_t bytes) {
    CHECK(key >= 1 && key <= memories_.size());
    const memory& m = memories_[key - 1];
    CHECK(name >= m.name && bytes <= m.bytes && name - m.name <= m.bytes - bytes);
    return m.at + (name - m.name);
  }

  // Copies as a device does: other threads may look at the memory meanwhile.
  static void copy(uint8_t* to, const uint8_t* from, uint64_t bytes) {
    const auto ends = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from);
    uint64_t i = 0;
    auto run = [&](auto word) {
      using T = decltype(word);
      if (ends % sizeof(T)) return;
      for (; i + sizeof(T) <= bytes; i += sizeof(T)) {
        const T v = __atomic_load_n(reinterpret_cast<const T*>(from + i), __ATOMIC_ACQUIRE);
        __atomic_store_n(reinterpret_cast<T*>(to + i), v, __ATOMIC_RELEASE);
      }
    };
    run(uint64_t{}), run(uint32_t{}), run(uint16_t{}), run(uint8_t{});
  }

  template <class T> static T change(uint32_t op, T old, T a, T b, T c, T d) {
    switch (op) {
      case mlx5::op_fetch_add: return old + a;
      case mlx5::op_compare_swap: return old == b ? a : old;
      case mlx5::op_masked_fetch_add: {
        // Fields end at the bits of the boundary.
        T sum = 0, carry = 0;
        for (uint32_t i = 0; i < 8 * sizeof(T); ++i) {
          const T bit = T(old >> i & 1) + T(a >> i & 1) + carry;
          sum |= T(bit & 1) << i;
          carry = (b >> i & 1) ? T{0} : T(bit >> 1);
        }
        return sum;
      }
      default: return ((b ^ old) & d) == 0 ? T((old & ~c) | (a & c)) : old;
    }
  }

  void one(queue& q) {
    const uint32_t blocks = 1u << log_blocks, first = q.next;
    auto word = [&](uint32_t i) {
      return reinterpret_cast<uint32_t*>(q.q->ring + ((first + i / 16) & (blocks - 1)) * mlx5::block_bytes) + i % 16;
    };
    const uint32_t control = __atomic_load_n(word(0), __ATOMIC_ACQUIRE), second = __atomic_load_n(word(1), __ATOMIC_ACQUIRE);
    const uint32_t op = control >> 24, mod = control & 0xff, segments = second >> 24 & 0x3f;
    const uint32_t how = __atomic_load_n(word(2), __ATOMIC_ACQUIRE) >> 24;
    CHECK((control >> 8 & 0xff) == (first >> 8 & 0xff) && (control >> 16 & 0xff) == (first & 0xff));
    CHECK((second & 0xffffff) == (q.q->queue_word & 0xffffff) && segments > 0);
    q.next += (segments + 3) / 4;
    if (q.executed++ >= q.fails_after) q.failed = true;
    if (!q.failed) {
      ++carried_out_[op];
      carry_out(op, mod, segments, word);
    }
    if (q.failed || (how & mlx5::signalled)) complete(q, first);
  }

  template <class Word> void carry_out(uint32_t op, uint32_t mod, uint32_t segments, Word word) {
    if (op == mlx5::op_nop) return;
    if (op == mlx5::op_dump) {
      CHECK(segments == 2);
      find(big32(word(5)), big64(word(6)), big32(word(4)));
      return;
    }
    const uint64_t there = big64(word(4));
    const uint32_t key = big32(word(6));
    const uint32_t header = big32(word(8));
    switch (op) {
      case mlx5::op_write:
        if (header & mlx5::inline_mark) {
          const uint32_t bytes = header & ~mlx5::inline_mark;
          CHECK(bytes <= mlx5::inline_write_max && segments == mlx5::inline_write_segments(bytes));
          copy(find(key, there, bytes), reinterpret_cast<const uint8_t*>(word(9)), bytes);
          return;
        }
        CHECK(segments == 3);
        return copy(find(key, there, header), find(big32(word(9)), big64(word(10)), header), header);
      case mlx5::op_read:
        CHECK(segments == 3);
        return copy(find(big32(word(9)), big64(word(10)), header), find(key, there, header), header);
      case mlx5::op_fetch_add:
      case mlx5::op_compare_swap:
        CHECK(segments == 4 && big32(word(12)) == 8);
        return atomic<uint64_t>(op, key, there, big64(word(8)), big64(word(10)), 0, 0, word, 12);
      case mlx5::op_masked_fetch_add:
        CHECK(segments == 4);
        if (mod == mlx5::opmod_8_bytes) return atomic<uint64_t>(op, key, there, big64(word(8)), big64(word(10)), 0, 0, word, 12);
        CHECK(mod == mlx5::opmod_4_bytes);
        return atomic<uint32_t>(op, key, there, big32(word(8)), big32(word(9)), 0, 0, word, 12);
      case mlx5::op_masked_compare_swap:
        if (mod == mlx5::opmod_8_bytes) {
          CHECK(segments == 5);
          return atomic<uint64_t>(op, key, there, big64(word(8)), big64(word(10)), big64(word(12)), big64(word(14)), word, 16);
        }
        CHECK(mod == mlx5::opmod_4_bytes && segments == 4);
        return atomic<uint32_t>(op, key, there, big32(word(8)), big32(word(9)), big32(word(10)), big32(word(11)), word, 12);
      default: CHECK(!"an operation");
    }
  }

  // Executes an atomic operation. The segment of the landing place is at word `last`.
  template <class T, class Word> void atomic(uint32_t op, uint32_t key, uint64_t there, T a, T b, T c, T d, Word word, uint32_t last) {
    CHECK(big32(word(last)) == sizeof(T) && there % sizeof(T) == 0);
    T* at = reinterpret_cast<T*>(find(key, there, sizeof(T)));
    T* landing = reinterpret_cast<T*>(find(big32(word(last + 1)), big64(word(last + 2)), sizeof(T)));
    const T old = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    __atomic_store_n(at, change(op, old, a, b, c, d), __ATOMIC_RELEASE);
    T shown = old;
    if constexpr (sizeof(T) == 4) shown = __builtin_bswap32(old);
    __atomic_store_n(landing, shown, __ATOMIC_RELEASE);
  }

  void complete(queue& q, uint32_t block) {
    const uint32_t entries = 1u << log_blocks, at = q.collapsed ? 0 : q.completion & (entries - 1);
    uint32_t* entry = reinterpret_cast<uint32_t*>(q.q->completions) + at * 16;
    const uint32_t owner = q.collapsed ? 0 : q.completion >> log_blocks & 1;
    const uint32_t opcode = q.failed ? mlx5::cqe_requester_error : mlx5::cqe_requester;
    // The first failed request has the cause, those behind it are flushed.
    const uint32_t syndrome = q.executed - 1 == q.fails_after ? q.syndrome : uint32_t{mlx5::syndrome_flushed};
    ++q.completion;
    __atomic_store_n(entry + 13, q.failed ? syndrome << 24 | 0x320000u : 0u, __ATOMIC_RELAXED);
    __atomic_store_n(entry + 15, (block >> 8 & 0xff) | (block & 0xff) << 8 | (opcode << 4 | owner) << 24, __ATOMIC_RELEASE);
  }

  std::vector<memory> memories_;
  std::vector<std::unique_ptr<queue>> queues_;
  std::thread thread_;
  std::atomic<bool> ending_{false};
  uint64_t carried_out_[256] = {};
};

// The networks of a world's PEs: connections among all of them, and of each to itself.
class fabric {
 public:
  // Heaps are `stride` apart from `heap` on. `near(a, b)` returns true if loads and stores of a reach b.
  template <class Near> fabric(nic& n, std::vector<wb_world>& worlds, uint32_t lanes, uint32_t staging_bytes, uint32_t flags, Near near)
      : lanes_(lanes), networks_(worlds.size()), peers_(worlds.size() * worlds.size()), queues_(worlds.size() * worlds.size() * lanes) {
    const uint32_t size = static_cast<uint32_t>(worlds.size());
    std::vector<uint32_t> data(size), strict(size);
    auto name = [](uint32_t pe) { return 0x100000000000ull * (pe + 1) + 0x40; };
    for (uint32_t p = 0; p < size; ++p) {
      uint8_t* heap = reinterpret_cast<uint8_t*>(worlds[p].heap);
      data[p] = n.add_memory(heap, worlds[p].heap_bytes, name(p));
      strict[p] = n.add_memory(heap, worlds[p].heap_bytes, name(p));
    }
    for (uint32_t p = 0; p < size; ++p) {
      wb_world& w = worlds[p];
      wb_network& net = networks_[p];
      net.peers = &peers_[p * size];
      net.heap = name(p), net.key = data[p];
      net.control = w.control, net.local = w.heap, net.heap_bytes = w.heap_bytes, net.stride = w.stride, net.pe = p, net.size = size;
      for (uint32_t to = 0; to < size; ++to) {
        wb_peer& peer = peers_[p * size + to];
        wb_send_queue* queues = &queues_[(uint64_t{p} * size + to) * lanes];
        peer.queues = queues;
        peer.heap = name(to), peer.key = data[to], peer.strict_key = strict[to], peer.queue_count = lanes;
        peer.flags = near(p, to) ? WB_PEER_LOAD_STORE : 0;
        for (uint32_t l = 0; l < lanes; ++l) {
          n.add_queue(queues[l], staging_bytes, flags);
          queues[l].pe = to, queues[l].index = l;
        }
      }
      w.network = &net;
      w.flags = 0;
    }
  }
  // Returns the number of a queue pair, for nic::fail.
  uint32_t queue(uint32_t from, uint32_t to, uint32_t lane) const {
    return (from * static_cast<uint32_t>(networks_.size()) + to) * lanes_ + lane;
  }

 private:
  uint32_t lanes_;
  std::vector<wb_network> networks_;
  std::vector<wb_peer> peers_;
  std::vector<wb_send_queue> queues_;
};

}  // namespace warpbell
