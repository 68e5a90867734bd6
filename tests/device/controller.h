// A model of an NVMe controller for tests of the device headers: one thread, or the threads that wait for it; memory as the medium,
// kernels' addresses. It checks its input (order of tickets, identifiers in use, ranges) and completes commands in a random order.
#pragma once

#include <warpbell/volume.cuh>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "capsule_link.h"
#include "model.h"

namespace model {

constexpr uint32_t page_shift = 12;
constexpr uint32_t media_error = 0x281;  // unrecovered read error: type 2, code 81h (NVMe Base 2.1, 4.2.3)

struct options {
  uint32_t devices = 1;
  uint32_t queues = 1;
  uint32_t depth = 8;
  uint32_t block_shift = 9;
  uint32_t max_blocks = 16;
  uint32_t chunk_blocks = 24;
  uint64_t device_blocks = 4096;
  uint32_t first_ticket = 0;
  bool bounce = true;
  bool remote = false;      // commands are carried by capsules
  uint32_t in_capsule = 0;  // bytes of data that they may have
  uint64_t deadline_ns = long_enough_ns;
  uint32_t lose_every = 0;  // not 0: each connection is lost after so many responses
  bool assisted = false;    // no thread of its own: threads that wait for commands execute them
  uint32_t seed = 1;
};

// The fault of a command, chosen by the command's first volume block.
enum class fault_kind { none, media, lost };

class controller : public host_words {
 public:
  explicit controller(const options& o) : host_words(o.deadline_ns), opt(o), random(o.seed) {
    data.resize((opt.devices * opt.device_blocks) << opt.block_shift);
    for (uint32_t d = 0; d < opt.devices; ++d) {
      for (uint32_t i = 0; i < opt.queues; ++i) sides.emplace_back(new side(*this, d, i));
    }
    volume = wb_volume{};
    volume.control = &ctl;
    volume.stats = stats;
    volume.block_shift = opt.block_shift;
    volume.device_count = opt.devices;
    volume.chunk_blocks = opt.chunk_blocks;
    volume.memory_page_shift = page_shift;
    volume.blocks = opt.devices == 1 ? opt.device_blocks : opt.device_blocks / opt.chunk_blocks * opt.chunk_blocks * opt.devices;
    queues.resize(opt.devices * opt.queues);
    for (uint32_t d = 0; d < opt.devices; ++d) {
      for (uint32_t i = 0; i < opt.queues; ++i) queues[d * opt.queues + i] = sides[d * opt.queues + i]->make();
      volume.device[d].queues = &queues[d * opt.queues];
      volume.device[d].blocks = opt.device_blocks;
      volume.device[d].queue_count = opt.queues;
      volume.device[d].nsid = d + 1;
      volume.device[d].max_blocks = opt.max_blocks;
    }
  }

  // Registers memory that the devices may use directly.
  void window(void* base, uint64_t bytes) {
    wb_registered_region& w = volume.window[volume.registered_region_count++];
    w.base = reinterpret_cast<uint64_t>(base);
    w.bytes = bytes;
    for (uint32_t d = 0; d < opt.devices; ++d) {
      w.iova[d] = w.base + shift(d);
      w.key[d] = capsule_link::memory_key + d;
    }
  }

  void start() {
    if (!opt.assisted) {
      service = std::thread([this] { serve(); });
      return;
    }
    assisted_one() = this;
    cpu::set_assist([](uint64_t, const void*) { return assisted_one()->assist(); });
  }
  // Requires that no kernel runs.
  void finish() {
    if (opt.assisted) {
      cpu::set_assist(nullptr);
      while (!turn().idle) {
      }
      return;
    }
    order::store<order::release>(&ended, 1u);
    service.join();
  }

  // Returns the address at which a volume block is kept.
  char* at(uint64_t block) {
    uint64_t stripe = block / opt.chunk_blocks, within = block % opt.chunk_blocks;
    uint64_t device = opt.devices == 1 ? 0 : stripe % opt.devices;
    uint64_t lba = opt.devices == 1 ? block : stripe / opt.devices * opt.chunk_blocks + within;
    return data.data() + ((device * opt.device_blocks + lba) << opt.block_shift);
  }
  uint64_t block_of(uint32_t device, uint64_t lba) const {
    if (opt.devices == 1) return lba;
    return (lba / opt.chunk_blocks * opt.devices + device) * opt.chunk_blocks + lba % opt.chunk_blocks;
  }

  // Returns the number of commands whose data came in their capsules.
  uint32_t with_data() const {
    uint32_t n = 0;
    for (const auto& s : sides)
      for (const auto& link : s->links) n += link->with_data;
    return n;
  }

  // Checks that all published commands have been completed and taken off the ring, and that no ticket is missing.
  void check_idle(const char* where) {
    uint64_t carried_out = 0, tickets = 0;
    for (size_t i = 0; i < queues.size(); ++i) {
      const wb_queue& q = queues[i];
      std::string name = std::string(where) + ", queue " + std::to_string(i) + ": ";
      check(q.ticket == q.tail, name + "tickets " + std::to_string(q.ticket) + ", published " + std::to_string(q.tail));
      check(q.head == q.tail, name + "published " + std::to_string(q.tail) + ", completed " + std::to_string(q.head));
      check(q.credit + q.spare == q.frontier - q.ticket, name + "credit " + std::to_string(q.credit));
      check(q.tail_lock == 0 && q.head_lock == 0, name + "a lock is held");
      carried_out += sides[i]->carried_out + sides[i]->lost_commands;
      tickets += q.ticket - opt.first_ticket;
      for (uint32_t s = 0; s < q.depth; ++s) {
        uint32_t w = sides[i]->slot[s] & slot::states;
        check(w == 0 || (w & ~slot::failed) == slot::completed, name + "slot " + std::to_string(s) + " is in state " + std::to_string(w));
      }
    }
    check(carried_out == tickets,
          std::string(where) + ": " + std::to_string(tickets) + " tickets, " + std::to_string(carried_out) + " completions");
  }

  options opt;
  wb_volume volume;
  std::vector<wb_queue> queues;
  std::vector<char> data;
  wb_stats stats[WB_STATS_STRIPES] = {};
  alignas(64) uint32_t release_lost = 0;  // not 0: held-back commands are completed now
  uint32_t slow = 2;                      // one in `slow` looks at a command completes it
  fault_kind (*plan)(uint64_t block) = [](uint64_t) { return fault_kind::none; };

 private:
  struct pending {
    uint32_t cid;
    uint32_t status = 0;
    bool lost = false, to_host = false;
    uint64_t prp1 = 0, prp2 = 0, bytes = 0;  // bytes: still to be transferred
    char* medium = nullptr;
  };

  // Returns the difference between bus addresses and kernels' addresses, so that a mix-up of the two is detected.
  static uint64_t shift(uint32_t device) { return uint64_t{device + 1} << 52; }

  // One queue pair's memory, and the controller's side of the queue pair.
  struct side {
    side(controller& c, uint32_t d, uint32_t i)
        : owner(c),
          device(d),
          index(i),
          depth(c.opt.depth),
          log2(static_cast<uint32_t>(__builtin_ctz(depth))),
          bounce_bytes(c.opt.max_blocks << c.opt.block_shift),
          sq(depth * 4),
          cq(depth),
          slot(depth),
          mark(depth),
          outcome(depth),
          records(depth),
          busy(depth),
          head(c.opt.first_ticket),
          tail(c.opt.first_ticket) {
      if (bounce_bytes < 1u << page_shift) bounce_bytes = 1u << page_shift;
      bounce.reset(static_cast<char*>(std::aligned_alloc(4096, uint64_t{depth} * bounce_bytes)));
      lists.reset(static_cast<char*>(std::aligned_alloc(4096, uint64_t{depth} << page_shift)));
      std::memset(bounce.get(), 0xee, uint64_t{depth} * bounce_bytes);
      std::memset(lists.get(), 0xee, uint64_t{depth} << page_shift);
      for (uint32_t s = 0; s < depth; ++s) {
        uint32_t t = head + ((s - head) & (depth - 1));  // the next ticket that falls on slot s
        slot[s] = (t >> log2) << slot::lap_shift;
        // The phase of the lap before.
        cq[s].w = ((t >> log2) & 1u) << nvme::cqe_phase_shift;
      }
      sq_doorbell = cq_doorbell = head & (depth - 1);
    }

    wb_queue make() {
      wb_queue q = {};
      q.sq = sq.data();
      q.cq = cq.data();
      q.sq_doorbell = &sq_doorbell;
      q.cq_doorbell = &cq_doorbell;
      q.slot = slot.data();
      q.mark = mark.data();
      q.outcome = outcome.data();
      q.record = records.data();
      if (owner.opt.bounce) {
        q.bounce = reinterpret_cast<uint64_t>(bounce.get());
        q.bounce_iova = q.bounce + shift(device);
        for (uint32_t s = 0; s < depth; ++s) {
          auto* list = reinterpret_cast<uint64_t*>(lists.get() + (uint64_t{s} << page_shift));
          for (uint32_t i = 1; i < bounce_bytes >> page_shift; ++i) {
            list[i - 1] = q.bounce_iova + uint64_t{s} * bounce_bytes + (uint64_t{i} << page_shift);
          }
        }
      }
      q.prp_list = reinterpret_cast<uint64_t>(lists.get());
      q.prp_list_iova = q.prp_list + shift(device);
      q.depth = depth;
      q.log2_depth = log2;
      q.bounce_bytes = bounce_bytes;
      if (owner.opt.remote) {
        connect();
        links.back()->begin(owner.opt.first_ticket);
        q.remote = 1;
        q.cq = nullptr;
        q.bounce_key = capsule_link::bounce_key;
        q.capsules = &links.back()->view;
        q.sq_doorbell = q.cq_doorbell = nullptr;
        q.cq = nullptr;
        q.prp_list = q.prp_list_iova = 0;
      }
      q.index = index;
      q.ticket = q.frontier = q.tail = q.head = owner.opt.first_ticket;
      return q;
    }

    // Makes a connection. Some have messages behind them, and responses in completion entries.
    void connect() {
      const size_t n = links.size();
      links.emplace_back(new capsule_link(sq, depth, depth > 2 ? n % 3 : 0, n % 2 == 0, owner.opt.in_capsule));
    }

    // Loses the connection: commands without response get none. The next one is there at once.
    void lose() {
      capsule_link& old = *links.back();
      if (links.size() % 2) old.flush();
      order::store<order::relaxed>(&old.view.closed, WB_CAPSULES_LOST);
      for (const pending& p : waiting) busy[p.cid] = false;
      lost_commands += waiting.size();
      waiting.clear();
      connect();
      order::store<order::release>(&old.view.next, reinterpret_cast<uint64_t>(&links.back()->view));
    }

    char* memory(uint64_t iova) const {
      check(iova >> 52 == device + 1, "the device was given an address that is not its own");
      return reinterpret_cast<char*>(iova - shift(device));
    }

    // Copies by words, as a bus does: kernels may look at memory that is being written.
    static void copy(char* to, const char* from, uint64_t bytes) {
      const bool whole = ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | bytes) & 7u) == 0;
      for (uint64_t i = 0; i < (whole ? bytes / 8 : bytes); ++i) {
        if (whole)
          order::store<order::relaxed>(reinterpret_cast<uint64_t*>(to) + i,
                                       order::load<order::relaxed>(reinterpret_cast<const uint64_t*>(from) + i));
        else order::store<order::relaxed>(to + i, order::load<order::relaxed>(from + i));
      }
    }

    // Transfers data by PRPs (NVMe Base 2.1, 4.1.1).
    void move(pending& p) const {
      if (owner.opt.remote) {
        if (p.bytes) copy(p.to_host ? memory(p.prp1) : p.medium, p.to_host ? p.medium : memory(p.prp1), p.bytes);
        p.bytes = 0;
        return;
      }
      const uint64_t page = uint64_t{1} << page_shift, first = page - (p.prp1 & (page - 1));
      const bool listed = p.bytes > first + page;
      uint64_t at = p.prp1, part = first;
      for (uint64_t i = 0; p.bytes; ++i) {
        if (part > p.bytes) part = p.bytes;
        char* host = memory(at);
        copy(p.to_host ? host : p.medium, p.to_host ? p.medium : host, part);
        p.medium += part;
        p.bytes -= part;
        if (!p.bytes) break;
        at = listed ? order::load<order::relaxed, order::system>(reinterpret_cast<const uint64_t*>(memory(p.prp2)) + i) : p.prp2;
        check((at & (page - 1)) == 0, "a PRP entry after the first is not a page's address");
        part = page;
      }
    }

    // Fetches the next command.
    bool fetch(order::quad* e) {
      if (owner.opt.remote) {
        if (!links.back()->fetch(e)) return false;
        check(e[0].x >> 16 == (head & 0xffffu) || links.size() > 1, "the command identifier is not the ticket");
        head = e[0].x >> 16;
        return true;
      }
      uint32_t doorbell = order::load<order::acquire, order::system>(&sq_doorbell);
      check(doorbell < depth, "doorbell value out of range");
      if ((head & (depth - 1)) == doorbell) return false;
      for (int i = 0; i < 4; ++i) e[i] = order::load_quad<order::relaxed, order::system>(&sq[(head & (depth - 1)) * 4 + i]);
      check(e[0].x >> 16 == (head & (depth - 1)), "the command identifier is not the slot");
      return true;
    }

    void fetch() {
      const options& o = owner.opt;
      for (order::quad e[4]; fetch(e);) {
        uint32_t op = e[0].x & 0xff, cid = e[0].x >> 16 & (depth - 1);
        check(!busy[cid], "a command identifier is used twice");
        check(e[0].y == device + 1, "wrong namespace");
        busy[cid] = true;
        pending p{cid};
        if (op != nvme::op_flush) {
          uint64_t lba = e[2].z | uint64_t{e[2].w} << 32;
          uint32_t n = (e[3].x & 0xffff) + 1;
          check(op == nvme::op_read || op == nvme::op_write, "unknown opcode");
          check(n <= o.max_blocks && lba + n <= o.device_blocks, "a range that the volume should have refused");
          fault_kind f = owner.plan(owner.block_of(device, lba));
          char* medium = owner.data.data() + ((device * o.device_blocks + lba) << o.block_shift);
          if (f == fault_kind::media) {
            p.status = media_error;
          } else {
            p.lost = f == fault_kind::lost;
            p.prp1 = e[1].z | uint64_t{e[1].w} << 32;
            p.prp2 = e[2].x | uint64_t{e[2].y} << 32;
            p.medium = medium;
            p.bytes = uint64_t{n} << o.block_shift;
            p.to_host = op == nvme::op_read;
            if (o.remote) {
              const uint32_t key = e[2].x >> 24 | e[2].y << 8,
                             expected = o.bounce ? capsule_link::bounce_key : capsule_link::memory_key + device;
              check((e[2].x & 0xffffffu) == p.bytes && key == expected, "a keyed data block has a wrong length or key");
            }
            // A device may transfer data at any time until it completes the command.
            if (!p.lost && owner.random() % 2) move(p);
          }
        }
        waiting.push_back(p);
        ++head;
      }
    }

    bool complete_one() {
      if (waiting.empty()) return false;
      // A full ring: the consumer has not caught up. (That never happens here, as there are fewer commands than entries.)
      if (!owner.opt.remote && ((tail + 1) & (depth - 1)) == order::load<order::acquire, order::system>(&cq_doorbell)) return false;
      size_t i = owner.random() % waiting.size();
      if (waiting[i].lost && !order::load<order::acquire>(&owner.release_lost)) return false;
      pending p = waiting[i];
      move(p);
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
      busy[p.cid] = false;
      ++carried_out;
      if (owner.opt.remote) {
        // Identifiers are tickets: the one of this slot among the last `depth`.
        const uint32_t cid = (head - 1 - ((head - 1 - p.cid) & (depth - 1))) & 0xffffu;
        links.back()->respond({0, 0, head & (depth - 1), cid | p.status << nvme::cqe_status_shift});
        if (owner.opt.lose_every && carried_out % owner.opt.lose_every == 0) lose();
        return true;
      }
      uint32_t phase = ((tail >> log2) & 1u) ^ 1u;
      order::store_quad<order::relaxed, order::system>(
          &cq[tail & (depth - 1)], {0, 0, head & (depth - 1), p.cid | phase << nvme::cqe_phase_shift | p.status << nvme::cqe_status_shift});
      ++tail;
      return true;
    }

    struct freed {
      void operator()(char* p) const { std::free(p); }
    };

    controller& owner;
    uint32_t device, index, depth, log2, bounce_bytes;
    std::vector<order::quad> sq, cq;
    std::vector<uint32_t> slot, mark, outcome;
    std::vector<wb_record> records;
    std::vector<bool> busy;
    std::vector<pending> waiting;
    std::unique_ptr<char, freed> bounce, lists;
    uint32_t head, tail;
    uint64_t carried_out = 0, lost_commands = 0;
    std::vector<std::unique_ptr<capsule_link>> links;
    alignas(64) uint32_t sq_doorbell = 0;
    alignas(64) uint32_t cq_doorbell = 0;
  };

  struct turned {
    uint32_t completed = 0;
    bool idle = true;  // no command is in flight
  };

  turned turn() {
    turned t;
    for (auto& s : sides) {
      s->fetch();
      // Later commands may overtake commands that are completed late.
      for (int i = 0; i < 8 && random() % slow == 0; ++i) t.completed += s->complete_one();
      t.idle = t.idle && s->waiting.empty();
    }
    return t;
  }

  void serve() {
    // Ends when `ended` is set, after everything that was submitted has been completed.
    for (;;) {
      const bool last = order::load<order::acquire>(&ended) != 0;
      if (turn().idle && last) return;
      cpu::yield();
    }
  }

  // Executes commands on a thread that waits, as host/soft/nvme/service.rs does.
  uint32_t assist() {
    std::unique_lock<std::mutex> lock(turns, std::try_to_lock);
    return lock ? turn().completed : 0;
  }
  static controller*& assisted_one() {
    static controller* c = nullptr;
    return c;
  }

  std::vector<std::unique_ptr<side>> sides;
  std::mt19937 random;
  std::thread service;
  std::mutex turns;
  alignas(64) uint32_t ended = 0;
};

}  // namespace model
