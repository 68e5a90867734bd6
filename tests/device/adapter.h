// A model of an RDMA adapter for tests of the device headers. One thread reads the send rings of queue pairs connected to
// themselves, and executes their work requests on this process's memory. It checks its input strictly, and overwrites every block
// that it has fetched. So it detects a block that is announced before it is completely written.
#pragma once

#include <warpbell/mlx5.cuh>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "model.h"

namespace model {

using namespace warpbell::mlx5;

constexpr uint32_t first_number = 0xabcd00;
constexpr uint32_t data_key = 0x00204500, staging_key = 0x00101200;
constexpr uint32_t staging_bytes = 64;
constexpr uint32_t poison = 0xee5a11edu;
constexpr uint32_t flush_vendor = 0xf9;

struct options {
  uint32_t queues = 1;
  uint32_t log_blocks = 7;
  bool collapsed = false;
  bool consistency = false;  // data that reads and fetches land is held back until a flush
  bool near = false;
  uint32_t first_ticket = 0;
  uint64_t deadline_ns = long_enough_ns;
  uint32_t seed = 1;
};

// Fault of a queue pair: the `at`-th entry (from 1) fails with these syndromes, or it and all later ones are held back.
struct fault {
  uint64_t at = 0;
  uint32_t syndrome = 0;  // 0: held back until `release`
  uint32_t vendor = 0;
};

class adapter : public host_words {
 public:
  explicit adapter(const options& o) : host_words(o.deadline_ns), opt(o), random(o.seed), faults(o.queues) {
    queues.resize(opt.queues);
    for (uint32_t i = 0; i < opt.queues; ++i) {
      sides.emplace_back(new side(*this, i));
      queues[i] = sides[i]->make();
    }
  }

  void start() {
    service = std::thread([this] { serve(); });
  }
  // Ends the adapter after it has executed everything that was announced.
  void finish() {
    if (!service.joinable()) return;
    order::store<order::release>(&ended, 1u);
    service.join();
  }
  send_queue_ref queue(uint32_t i) { return send_queue_ref(&queues[i], &ctl); }

  // Checks after `finish` that everything has completed, and that no block is missing or held. (Fetch the last completions first:
  // `quiet`.)
  void check_idle(const std::string& where) {
    for (uint32_t i = 0; i < opt.queues; ++i) {
      const wb_send_queue& q = queues[i];
      const std::string name = where + ", queue " + std::to_string(i) + ": ";
      check(q.tail == q.ticket, name + "tickets " + std::to_string(q.ticket) + ", announced " + std::to_string(q.tail));
      check(q.completed == q.tail, name + "announced " + std::to_string(q.tail) + ", completed " + std::to_string(q.completed));
      check(q.credit + q.spare == q.granted + (1u << q.log_blocks) - q.ticket, name + "credit " + std::to_string(q.credit));
      check(q.tail_lock == 0 && q.head_lock == 0 && q.failed == 0, name + "a lock is held, or it has failed");
      check(sides[i]->next == q.tail, name + "not everything was executed");
      for (uint32_t h : sides[i]->hold) check(h == 0, name + "a block is still held");
    }
  }

  options opt;
  std::vector<wb_send_queue> queues;
  alignas(64) uint32_t paused = 0;   // not 0: nothing is fetched
  alignas(64) uint32_t release = 0;  // not 0: held-back entries complete
  std::mt19937 random;
  std::vector<fault> faults;

  uint64_t entries(uint32_t i) const { return sides[i]->entries; }
  uint64_t across_end(uint32_t i) const { return sides[i]->across_end; }
  uint64_t doorbells(uint32_t i) const { return sides[i]->doorbells; }
  order::quad* completions(uint32_t i) { return sides[i]->completions.data(); }
  uint32_t* marks(uint32_t i) { return sides[i]->mark.data(); }

 private:
  // One queue pair's memory, and the adapter's side of the queue pair.
  struct side {
    side(adapter& a, uint32_t i)
        : owner(a),
          index(i),
          blocks(1u << a.opt.log_blocks),
          ring(blocks * block_segments),
          completions((a.opt.collapsed ? 1 : blocks) * 4),
          mark(blocks),
          hold(blocks),
          landing(blocks * staging_bytes / 8),
          next(a.opt.first_ticket),
          number(first_number + i) {
      std::memset(completions.data(), 0xff, completions.size() * sizeof(order::quad));
      for (auto& q : ring) q = order::quad{poison, poison, poison, poison};
      for (uint32_t b = 0; b < blocks; ++b) {
        const uint32_t t = next + ((b - next) & (blocks - 1));  // the next ticket that falls on it
        mark[b] = (t >> a.opt.log_blocks) << 2;
      }
    }

    wb_send_queue make() {
      wb_send_queue q = {};
      q.ring = reinterpret_cast<uint64_t>(ring.data());
      q.completions = reinterpret_cast<uint64_t>(completions.data());
      q.record = &record;
      q.doorbell = &mailbox;
      q.mark = mark.data();
      q.hold = hold.data();
      q.staging = reinterpret_cast<uint64_t>(landing.data());
      // Work requests name the staging by other addresses than kernels, so that a mix-up of the two is detected.
      q.staging_address = q.staging + staging_shift;
      q.staging_key = big(staging_key).word;
      q.staging_bytes = staging_bytes;
      q.queue_word = queue_of(number).word;
      q.log_blocks = owner.opt.log_blocks;
      q.log_completions = owner.opt.collapsed ? 0 : owner.opt.log_blocks;
      q.flags = (owner.opt.collapsed ? WB_SEND_COLLAPSED : 0u) | (owner.opt.consistency ? WB_SEND_CONSISTENCY : 0u) |
                (owner.opt.near ? WB_SEND_NEAR : 0u);
      q.index = index;
      q.credit = blocks;
      q.ticket = q.granted = q.tail = q.completed = owner.opt.first_ticket;
      return q;
    }

    // --- fetching ----------------------------------------------------------------------------------------------------

    // Executes up to `most` entries that were announced. Returns true if there were any.
    bool serve(uint32_t most) {
      const uint64_t announced = order::load<order::acquire, order::system>(&mailbox);
      if (announced == last_doorbell && end == next) return false;
      if (announced != last_doorbell) {
        check(static_cast<uint32_t>(announced >> 32) == swap_bytes(number << 8), "the doorbell names another queue pair");
        const uint32_t word = swap_bytes(static_cast<uint32_t>(announced));
        check(word >> 24 == 0 && (word & 0xff) == 0, "a doorbell has more in it than an index");
        const uint32_t ahead = ((word >> 8) - end) & 0xffffu;
        check(ahead <= blocks, "a doorbell went backwards, or further than the ring is long");
        const uint32_t from_record = swap_bytes(order::load<order::relaxed, order::system>(&record.send));
        check(((from_record - (word >> 8)) & 0xffffu) <= blocks, "the doorbell record is behind the doorbell");
        check(order::load<order::relaxed, order::system>(&record.receive) == 0, "the receive word of the doorbell record was written");
        end += ahead;
        check(end - next <= blocks, "more blocks were announced than the ring has");
        last_doorbell = announced;
        ++doorbells;
      }
      for (; most != 0 && next != end; --most) {
        if (!execute()) break;
      }
      return true;
    }

    uint32_t* words(uint32_t ticket) { return reinterpret_cast<uint32_t*>(&ring[(ticket & (blocks - 1)) * block_segments]); }

    order::quad fetch(uint32_t segment) {
      const uint32_t t = next + segment / block_segments;
      check(end - t - 1 < blocks && t != end, "an entry was announced by half");
      return order::load_quad<order::relaxed, order::system>(words(t) + segment % block_segments * 4);
    }

    // Executes one entry. Returns false if the entry is held back.
    bool execute() {
      const fault& f = owner.faults[index];
      const bool faulty = f.at != 0 && entries + 1 >= f.at;
      if (faulty && f.syndrome == 0 && order::load<order::acquire>(&owner.release) == 0) return false;
      const order::quad c = fetch(0);
      check(c.x != poison && c.y != poison && c.z != poison, "an entry was announced before it was written");
      const uint32_t first = swap_bytes(c.x), second = swap_bytes(c.y), how = c.z >> 24, op = first & 0xff, mod = first >> 24;
      check((first >> 8 & 0xffff) == (next & 0xffff),
            "an entry has index " + std::to_string(first >> 8 & 0xffff) + " at " + std::to_string(next));
      check(second >> 8 == number && (c.z & 0xffffffu) == 0, "an entry is of another queue pair");
      const uint32_t segments = second & 0xff, taken = blocks_of(segments);
      check(taken == 1 || taken == 2, "an entry of " + std::to_string(segments) + " segments");
      if (taken == 2 && (next & (blocks - 1)) == blocks - 1) ++across_end;
      std::vector<order::quad> s;
      for (uint32_t i = 0; i < taken * block_segments; ++i) {
        s.push_back(fetch(i));
        for (uint32_t w : {s[i].x, s[i].y, s[i].z, s[i].w}) check(w != poison, "an entry was announced before it was written");
      }
      if (failed) complete(syndrome_flushed, flush_vendor, op);
      else if (faulty && f.syndrome != 0) {
        complete(f.syndrome, f.vendor, op);
        failed = true;
      } else {
        carry_out(op, mod, segments, how, s);
      }
      for (uint32_t b = 0; b < taken; ++b) {
        for (uint32_t i = 0; i < block_segments; ++i) {
          order::store_quad<order::relaxed, order::system>(words(next + b) + 4 * i, order::quad{poison, poison, poison, poison});
        }
      }
      ++entries;
      // The blocks may be written again only now.
      if (pending) publish();
      next += taken;
      return true;
    }

    // --- executing ---------------------------------------------------------------------------------------------------

    static uint64_t two(uint32_t high, uint32_t low) { return static_cast<uint64_t>(swap_bytes(high)) << 32 | swap_bytes(low); }

    struct piece {
      char* at;
      uint32_t bytes;
    };
    piece local_piece(const order::quad& s, bool flush = false) {
      const uint32_t bytes = swap_bytes(s.x), key = swap_bytes(s.y);
      check(bytes != 0 && (bytes & inline_mark) == 0, "a data segment of " + std::to_string(bytes) + " bytes");
      const uint64_t address = two(s.z, s.w), base = reinterpret_cast<uint64_t>(landing.data()) + staging_shift;
      if (key == staging_key) {
        check(address >= base && address + bytes <= base + landing.size() * 8, "staging of another queue pair");
        const uint64_t block = (address - base) / staging_bytes;
        check((address - base) % staging_bytes + bytes <= staging_bytes, "more than a block's staging");
        // The staging of the entry's own block, or for a flush that of the entry before it.
        check(((next - block) & (blocks - 1)) <= (flush ? 2u : 0u), "staging of another block");
        return piece{reinterpret_cast<char*>(address - staging_shift), bytes};
      }
      check(key == data_key, "a local key that was never given out");
      return piece{reinterpret_cast<char*>(address), bytes};
    }
    static char* remote_piece(const order::quad& s) {
      check(swap_bytes(s.z) == data_key && s.w == 0, "a remote key that was never given out");
      return reinterpret_cast<char*>(two(s.x, s.y));
    }

    static void copy(char* to, const char* from, uint32_t bytes) {
      const bool whole = ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | bytes) & 7u) == 0;
      if (whole) {
        for (uint32_t i = 0; i < bytes / 8; ++i) {
          order::store<order::release, order::system>(
              reinterpret_cast<uint64_t*>(to) + i, order::load<order::acquire, order::system>(reinterpret_cast<const uint64_t*>(from) + i));
        }
      } else {
        for (uint32_t i = 0; i < bytes; ++i) order::store<order::relaxed>(to + i, order::load<order::relaxed>(from + i));
      }
    }
    // Lands data from the other side, at once or only after a flush. (Unwanted old values land at once.)
    void land(const piece& p, const void* from) {
      const uint64_t at = reinterpret_cast<uint64_t>(p.at) - reinterpret_cast<uint64_t>(landing.data());
      const bool wanted = at >= landing.size() * 8 || order::load<order::acquire>(&hold[at / staging_bytes]) != 0;
      if (!owner.opt.consistency || !wanted) return copy(p.at, static_cast<const char*>(from), p.bytes);
      held.push_back({p.at, std::vector<char>(static_cast<const char*>(from), static_cast<const char*>(from) + p.bytes)});
    }

    void carry_out(uint32_t op, uint32_t mod, uint32_t segments, uint32_t how, const std::vector<order::quad>& s) {
      check((how & ~(signalled | fenced)) == 0, "flags that nobody sets");
      check((op == op_masked_compare_swap || op == op_masked_fetch_add) == (mod != opmod_none), "an operand size");
      switch (op) {
        case op_nop: check(segments == 1, "segments of a nop"); break;
        case op_write:
        case op_write_imm: {
          char* to = remote_piece(s[1]);
          if (segments == 2) {
            check(op == op_write_imm, "a write of nothing");
            break;
          }
          if (swap_bytes(s[2].x) & inline_mark) {
            const uint32_t bytes = swap_bytes(s[2].x) & ~inline_mark;
            check(bytes >= 1 && bytes <= inline_write_max && segments == inline_write_segments(bytes), "an inline length");
            alignas(8) char data[32];
            std::memcpy(data, &s[2].y, 12);
            std::memcpy(data + 12, &s[3], 16);
            copy(to, data, bytes);
            break;
          }
          check(segments == 3, "segments of a write");
          const piece from = local_piece(s[2]);
          copy(to, from.at, from.bytes);
          break;
        }
        case op_read: {
          check(segments == 3, "segments of a read");
          const piece to = local_piece(s[2]);
          std::vector<uint64_t> data((to.bytes + 7) / 8);
          copy(reinterpret_cast<char*>(data.data()), remote_piece(s[1]), to.bytes);
          land(to, data.data());
          break;
        }
        case op_dump:
          check(segments == 2 && (how & fenced) != 0, "a flush that is not behind what it flushes");
          check(local_piece(s[1], true).bytes == 1, "a flush of more than it takes");
          for (auto& h : held) copy(h.to, h.data.data(), static_cast<uint32_t>(h.data.size()));
          held.clear();
          break;
        default: atomic(op, mod, segments, s);
      }
      if (how & signalled) complete(0, 0, op);
    }

    template <class T> void swap_masked(char* at, const piece& to, T swap, T compare, T swap_mask, T compare_mask) {
      T* word = reinterpret_cast<T*>(at);
      T old = order::load<order::relaxed>(word);
      for (;;) {
        if (((compare ^ old) & compare_mask) != 0) break;
        const T seen = order::compare_exchange<order::acq_rel>(word, old, static_cast<T>((old & ~swap_mask) | (swap & swap_mask)));
        if (seen == old) break;
        old = seen;
      }
      answer(to, old);
    }
    // Adds with carries that stop at every bit of the boundary. OpenSHMEM's operations need two boundaries only.
    template <class T> void add_masked(char* at, const piece& to, T add, T boundary) {
      const T every = static_cast<T>(~T{0});
      check(boundary == 0 || boundary == every, "a boundary that nobody sets");
      T* word = reinterpret_cast<T*>(at);
      T old = order::load<order::relaxed>(word);
      for (;;) {
        const T seen = order::compare_exchange<order::acq_rel>(word, old, static_cast<T>(boundary == every ? old ^ add : old + add));
        if (seen == old) break;
        old = seen;
      }
      answer(to, old);
    }
    void answer(const piece& to, uint64_t old) {
      check(to.bytes == 8, "the landing of an old value of 8 bytes");
      land(to, &old);
    }
    void answer(const piece& to, uint32_t old) {
      check(to.bytes == 4, "the landing of an old value of 4 bytes");
      old = swap_bytes(old);
      land(to, &old);
    }

    void atomic(uint32_t op, uint32_t mod, uint32_t segments, const std::vector<order::quad>& s) {
      char* at = remote_piece(s[1]);
      const bool eight = mod != opmod_4_bytes;
      check(reinterpret_cast<uint64_t>(at) % (eight ? 8 : 4) == 0, "an atomic on a misaligned word");
      const bool wide = op == op_masked_compare_swap && eight;
      check(segments == (wide ? 5u : 4u), "segments of an atomic");
      const piece to = local_piece(s[wide ? 4 : 3]);
      const uint64_t a = two(s[2].x, s[2].y), b = two(s[2].z, s[2].w);
      if (op == op_fetch_add) return add_masked<uint64_t>(at, to, a, 0);
      if (op == op_compare_swap) return swap_masked<uint64_t>(at, to, a, b, ~0ull, ~0ull);
      if (op == op_masked_fetch_add && eight) return add_masked<uint64_t>(at, to, a, b);
      if (op == op_masked_fetch_add) return add_masked<uint32_t>(at, to, swap_bytes(s[2].x), swap_bytes(s[2].y));
      check(op == op_masked_compare_swap, "opcode " + std::to_string(op));
      if (eight) return swap_masked<uint64_t>(at, to, a, b, two(s[3].x, s[3].y), two(s[3].z, s[3].w));
      swap_masked<uint32_t>(at, to, swap_bytes(s[2].x), swap_bytes(s[2].y), swap_bytes(s[2].z), swap_bytes(s[2].w));
    }

    // --- completing --------------------------------------------------------------------------------------------------

    // Ends the entry that is being executed. Its completion is written once the entry has been overwritten.
    void complete(uint32_t syndrome, uint32_t vendor, uint32_t op) {
      const uint32_t owner_bit = owner.opt.collapsed ? 0 : completed >> owner.opt.log_blocks & 1;
      const uint32_t kind = syndrome ? cqe_requester_error : cqe_requester;
      completion = order::quad{0, syndrome << 24 | vendor << 16, swap_bytes(op << 24 | number),
                               (next >> 8 & 0xff) | (next & 0xff) << 8 | (kind << 4 | owner_bit) << 24};
      pending = true;
    }
    void publish() {
      const uint32_t at = owner.opt.collapsed ? 0 : completed & (blocks - 1);
      order::store_quad<order::relaxed, order::system>(&completions[at * 4 + 3], completion);
      ++completed;
      pending = false;
    }

    static constexpr uint64_t staging_shift = uint64_t{1} << 52;

    struct landed_later {
      char* to;
      std::vector<char> data;
    };

    adapter& owner;
    uint32_t index, blocks;
    std::vector<order::quad> ring, completions;
    std::vector<uint32_t> mark, hold;
    std::vector<uint64_t> landing;
    std::vector<landed_later> held;
    uint32_t next, number;
    uint32_t end = next;
    uint32_t completed = 0;
    uint64_t last_doorbell = 0, entries = 0, across_end = 0, doorbells = 0;
    order::quad completion = {};
    bool pending = false, failed = false;
    alignas(64) qp_record record = {};
    alignas(64) uint64_t mailbox = 0;
  };

  void serve() {
    for (;;) {
      const bool last = order::load<order::acquire>(&ended) != 0;
      bool idle = true;
      if (order::load<order::acquire>(&paused) == 0) {
        for (auto& s : sides) idle = !s->serve(1 + random() % 40) && idle;
      }
      if (last && idle) return;
      if (last && order::load<order::acquire>(&release) == 0) order::store<order::release>(&release, 1u);
      cpu::yield();
    }
  }

  std::vector<std::unique_ptr<side>> sides;
  std::thread service;
  alignas(64) uint32_t ended = 0;
};

}  // namespace model
