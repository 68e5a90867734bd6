// Queue pairs and their controllers for explorations of the device library. They define the actions that a controller may take at
// any time, and the inputs that it must not get, by the NVMe specification (Base 2.1; clauses are named).
#pragma once

#include "explore_ring.h"

#include <warpbell/nvme.cuh>

#include <deque>

namespace explore {

using namespace warpbell;

constexpr uint32_t most_depth = 4;
constexpr uint32_t block_bytes = 8, block_shift = 3;  // a word
constexpr uint32_t most_blocks = 32;
constexpr uint32_t most_blocks_at_once = 2;  // of a command
constexpr uint32_t media_error = 0x281;      // unrecovered read error (4.2.3)

// The state of an entry of the submission ring.
enum class entry_is : uint8_t { free, being_written, published };
constexpr uint32_t entry_words = nvme::sqe_bytes / 4;

// A command that the controller has fetched.
struct fetched {
  bool busy, fails;
  uint8_t op, blocks;
  uint32_t block;
  uint64_t memory;
};

// A volume takes its queues from an array, so this is as large as a number of them.
struct alignas(sizeof(wb_queue)) nvme_memory {
  wb_queue q;
  order::quad sq[most_depth * 4], cq[most_depth];
  uint32_t slot[most_depth], mark[most_depth], outcome[most_depth];
  wb_record record[most_depth];
  alignas(64) uint64_t bounce[most_depth * most_blocks_at_once];
  uint32_t sq_doorbell, cq_doorbell, stop, abort;
  uint64_t time;
  // The controller's own state, and the known state of the ring's entries.
  uint32_t announced, head, posted, consumed;  // free-running
  fetched command[most_depth];
  entry_is entry[most_depth];
  uint8_t writer[most_depth], words[most_depth];  // writer of an entry, and number of its words written
  uint32_t fetched_blocks, failed_blocks;         // of commands that each have their own block: a bit for each
  uint32_t commands;                              // fetched
  uint8_t failures_left, jumps_left, stops_left, jumps;
  bool failed_alone;  // a command of one block has failed
};

struct nvme_options {
  uint32_t depth = 2;
  uint32_t first_ticket = 0;
  bool bounce = true;
  bool distinct = true;     // no two commands have the same block
  uint8_t failures = 0;     // commands that the controller may fail
  uint8_t clock_jumps = 0;  // each is more than half a deadline, and more than a whole one if `alone`
  uint8_t stops = 0;        // requests of the host to end the run
  bool coarse = false;      // accesses of submitters to the ring are no steps
  bool alone = false;       // one thread uses a queue: only its looks for completions are steps, and commands are fetched at once
};

inline std::string slot_text(uint64_t v) {
  std::string s = "lap " + std::to_string(v >> slot::lap_shift);
  if (v & slot::completed) s += " completed";
  if (v & slot::failed) s += " failed";
  if (v & slot::claimed) s += " claimed";
  return s;
}

// A scene with queue pairs. The first one has the flags, the clock and the counts of faults for all.
class nvme_scene : public scene {
 public:
  explicit nvme_scene(const nvme_options& o, uint32_t queues = 1) : opt(o), queues_(queues) {}

  uint32_t actions() const override { return jump() + 2; }
  bool may(uint32_t a) const override {
    if (a >= jump()) return a == jump() ? may_pass_time() : nvme(0).stops_left != 0;
    const nvme_memory& n = nvme(a / of_queue());
    if (!works(a / of_queue())) return false;
    a %= of_queue();
    if (a == fetch) return n.head != n.announced;
    // The controller waits for room in the completion ring (3.3.1.2).
    if (!n.command[(a - 1) / 2].busy || n.posted - n.consumed >= opt.depth - 1) return false;
    return (a - 1) % 2 == 0 || nvme(0).failures_left != 0;
  }
  void act(uint32_t a) override {
    if (a < jump()) {
      const uint32_t queue = a / of_queue(), what = a % of_queue();
      return what == fetch ? take_one(queue) : complete(queue, (what - 1) / 2, (what - 1) % 2 != 0);
    }
    nvme_memory& n = nvme(0);
    if (a == jump()) {
      if (n.jumps_left) --n.jumps_left;
      for (uint32_t half = 0; half < (opt.alone ? 2 : 1); ++half) {
        ++n.jumps;
        pass_time(n.time);
      }
      passes_time();
    } else {
      --n.stops_left;
      n.stop = 1;
      here().tell("host        asks all waits to end");
    }
  }

  void written(const region& r, uint64_t at, uint32_t who, uint64_t before, uint64_t now) override {
    for (uint32_t i = 0; i < queues_; ++i) written_to(i, r, at, who, before, now);
  }

  // Checks that everything that was submitted has completed and was taken off, and that all locks and slots are free.
  void check_idle(uint32_t queue = 0) {
    nvme_memory& n = nvme(queue);
    check(n.q.ticket == n.q.tail, "a ticket was taken and not published");
    check(n.announced == n.q.tail && n.commands == n.q.tail - opt.first_ticket, "not every entry was fetched once");
    check(n.q.head == n.q.tail && n.posted == n.consumed, "a completion was not taken off the ring");
    check(n.q.credit + n.q.spare == n.q.frontier - n.q.ticket, "credit was lost or made up");
    check(n.q.tail_lock == 0 && n.q.head_lock == 0, "a lock is held at the end");
    for (uint32_t i = 0; i < opt.depth; ++i) check((n.slot[i] & slot::states) == 0, "a slot is not free at the end");
  }
  bool busy(uint32_t queue = 0) const {
    const nvme_memory& n = nvme(queue);
    return n.head != n.announced || std::any_of(n.command, n.command + opt.depth, [](const fetched& f) { return f.busy; });
  }

  const nvme_options opt;
  wb_control control = {};
  wb_error_log log = {};

 protected:
  virtual nvme_memory& nvme(uint32_t queue) = 0;
  const nvme_memory& nvme(uint32_t queue) const { return const_cast<nvme_scene*>(this)->nvme(queue); }
  // Returns the address at which the medium of a queue's device keeps a block.
  virtual uint64_t* medium(uint32_t queue, uint32_t block) = 0;
  // Called before the controller writes a block to memory.
  virtual void lands(uint32_t /*block*/, uint64_t* /*memory*/) {}
  // Called when a controller has fetched a command, and when it completes a command.
  virtual void takes(uint32_t /*queue*/, const fetched&) {}
  virtual void ends(uint32_t /*queue*/, const fetched&, bool /*is_error*/) {}
  // Returns true if the clock may advance now.
  virtual bool may_pass_time() const { return nvme(0).jumps_left != 0; }
  virtual void passes_time() {}
  // Returns false if the queue's device does nothing any more.
  virtual bool works(uint32_t /*queue*/) const { return true; }

  // Sets the first state of a queue, which is all zeroes.
  void begin(uint32_t queue = 0) {
    nvme_memory& n = nvme(queue);
    const uint32_t log2 = static_cast<uint32_t>(__builtin_ctz(opt.depth)), t = opt.first_ticket;
    n.q.sq = n.sq;
    n.q.cq = n.cq;
    n.q.sq_doorbell = &n.sq_doorbell;
    n.q.cq_doorbell = &n.cq_doorbell;
    n.q.slot = n.slot;
    n.q.mark = n.mark;
    n.q.outcome = n.outcome;
    n.q.record = n.record;
    if (opt.bounce) n.q.bounce = n.q.bounce_iova = reinterpret_cast<uint64_t>(n.bounce);
    n.q.bounce_bytes = most_blocks_at_once * block_bytes;
    n.q.depth = opt.depth;
    n.q.log2_depth = log2;
    n.q.ticket = n.q.frontier = n.q.tail = n.q.head = n.announced = n.head = n.posted = n.consumed = t;
    n.sq_doorbell = n.cq_doorbell = t & (opt.depth - 1);
    for (uint32_t i = 0; i < opt.depth; ++i) {
      const uint32_t lap = (t + ((i - t) & (opt.depth - 1))) >> log2;
      n.slot[i] = lap << slot::lap_shift;
      n.mark[i] = lap;
      n.cq[i].w = (lap & 1u) << nvme::cqe_phase_shift;
    }
    if (queue == 0) begin_common(n);
    if (opt.alone) describe_alone(queue, n);
    else describe(n);
  }

 private:
  // Actions of a queue: the controller fetches, and for each identifier it completes the command or fails it. The clock and the host
  // follow those of all queues.
  static constexpr uint32_t fetch = 0;
  uint32_t of_queue() const { return 1 + 2 * opt.depth; }
  uint32_t jump() const { return queues_ * of_queue(); }

  void add(const std::string& name, const auto* p, uint32_t bytes, uint32_t unit, use how, std::string (*text)(uint64_t) = nullptr) {
    names_.push_back(name);
    regions.push_back(region{names_.back().c_str(), p, bytes, unit, how, text});
  }

  void begin_common(nvme_memory& n) {
    n.failures_left = opt.failures;
    n.jumps_left = opt.clock_jumps;
    n.stops_left = opt.stops;
    n.time = 1;
    control.stop = &n.stop;
    control.abort = &n.abort;
    control.error_log = &log;
    control.deadline_ns = deadline_ns;
    time = &n.time;
    // A command that its thread alone waits for ends no run.
    const use ends = !opt.alone && (opt.failures || opt.clock_jumps || opt.stops) ? use::shared : use::silent;
    add("stop", &n.stop, 4, 0, opt.stops ? use::shared : use::silent);
    add("abort", &n.abort, 4, 0, ends);
    add("time", &n.time, 8, 0, opt.clock_jumps ? use::shared : use::silent);
    add("error log", &log, sizeof log, 0, use::silent);
  }

  void describe(nvme_memory& n) {
    const use ring = opt.coarse ? use::silent : use::shared;
    add("slot", n.slot, sizeof n.slot, 4, use::shared, slot_text);
    add("counts", &n.q.credit, 8, 0, ring, counts_text);
    add("frontier", &n.q.frontier, 4, 0, ring);
    add("spare", &n.q.spare, 4, 0, ring);
    add("tail lock", &n.q.tail_lock, 8, 0, ring, tail_text);
    add("head lock", &n.q.head_lock, 8, 0, ring, head_text);
    add("mark", n.mark, sizeof n.mark, 4, ring);
    add("sq", n.sq, sizeof n.sq, 64, use::owned);
    for (uint32_t i = 0; i < opt.depth; ++i) {
      // The word with phase and identifier is shared; the others are ignored.
      add("cq words", &n.cq[i], 12, 0, use::silent);
      add("cq status", &n.cq[i].w, 4, 0, ring);
      add("record buffer", &n.record[i].buffer, 8, 0, use::silent);
      add("record tag", &n.record[i].tag, 8, 0, ring);
      add("record lba, bytes", &n.record[i].lba, 12, 0, use::silent);
      add("record opcode", &n.record[i].opcode_blocks, 4, 0, ring);
    }
    add("bounce", n.bounce, sizeof n.bounce, block_bytes, ring);
    add("outcome", n.outcome, sizeof n.outcome, 4, opt.failures ? use::shared : use::silent);
    add("sq doorbell", &n.sq_doorbell, 4, 0, use::shared);
    add("cq doorbell", &n.cq_doorbell, 4, 0, ring == use::shared ? use::shared : use::owned);
  }

  void describe_alone(uint32_t queue, nvme_memory& n) {
    const std::string of = "queue " + std::to_string(queue) + " ";
    for (uint32_t i = 0; i < opt.depth; ++i) add(of + "cq status", &n.cq[i].w, 4, 0, use::shared);
    add(of + "sq", n.sq, sizeof n.sq, 64, use::owned);
    add(of + "sq doorbell", &n.sq_doorbell, 4, 0, use::owned);
    add(of + "cq doorbell", &n.cq_doorbell, 4, 0, use::owned);
    add(of + "words", &n, sizeof n, 0, use::silent);
  }

  // Returns the controller's name in traces.
  std::string controller(uint32_t queue) const { return queues_ == 1 ? "controller  " : "queue " + std::to_string(queue) + "     "; }

  void written_to(uint32_t queue, const region& r, uint64_t at, uint32_t who, uint64_t before, uint64_t now) {
    nvme_memory& n = nvme(queue);
    if (r.first == &n.q.credit) return forget_draw(&n.q.credit, before, now);
    if (r.first == n.sq) {
      const uint32_t i = static_cast<uint32_t>((at - reinterpret_cast<uint64_t>(n.sq)) / nvme::sqe_bytes);
      if (n.entry[i] == entry_is::free) {
        n.entry[i] = entry_is::being_written;
        n.writer[i] = static_cast<uint8_t>(who);
        n.words[i] = 1;
      } else if (n.entry[i] == entry_is::published) {
        fail("entry " + std::to_string(i) + " is written again before the controller has fetched it");
      } else if (n.writer[i] != who) {
        fail("entry " + std::to_string(i) + " has two writers");
      } else {
        ++n.words[i];
      }
    } else if (r.first == &n.sq_doorbell) {
      ring(queue, static_cast<uint32_t>(now));
    } else if (r.first == &n.cq_doorbell) {
      const uint32_t more = (static_cast<uint32_t>(now) - n.consumed) & (opt.depth - 1);
      check(now < opt.depth, "the completion doorbell's value is out of range");
      check(more <= n.posted - n.consumed, "the completion doorbell passes what was posted");
      n.consumed += more;
    }
  }

  // Writes the tail doorbell (3.3.1.2.1): hands over the entries between the old value and the new one.
  void ring(uint32_t queue, uint32_t value) {
    nvme_memory& n = nvme(queue);
    check(value < opt.depth, "the submission doorbell's value is out of range");
    const uint32_t more = (value - n.announced) & (opt.depth - 1);
    for (uint32_t k = 0; k < more; ++k) {
      const uint32_t i = (n.announced + k) & (opt.depth - 1);
      if (n.entry[i] != entry_is::being_written || n.words[i] != entry_words)
        return fail("the doorbell passes entry " + std::to_string(i) + ", which is not written");
      n.entry[i] = entry_is::published;
    }
    n.announced += more;
    while (opt.alone && n.head != n.announced) take_one(queue);
  }

  void take_one(uint32_t queue) {
    nvme_memory& n = nvme(queue);
    const uint32_t i = n.head & (opt.depth - 1);
    const order::quad* e = &n.sq[i * 4];
    const uint32_t cid = e[0].x >> nvme::cid_shift, op = e[0].x & 0xff, block = e[2].z;
    here().tell(controller(queue) + "fetches entry " + std::to_string(i) + ": block " + std::to_string(block));
    check(n.entry[i] == entry_is::published, "the controller fetches an entry that is not there");
    n.entry[i] = entry_is::free;
    ++n.head;
    ++n.commands;
    // An identifier names one outstanding command (3.3.1.1).
    if (cid >= opt.depth || n.command[cid].busy) return fail("identifier " + std::to_string(cid) + " is in use already");
    if (block >= most_blocks) return fail("an entry is not a command: block " + std::to_string(block));
    if (opt.distinct && (n.fetched_blocks >> block & 1u))
      return fail("the command of block " + std::to_string(block) + " is fetched twice");
    n.fetched_blocks |= 1u << block;
    // The number of blocks counts from 0 (NVM Command Set 1.1, 3.2.4).
    const uint32_t blocks = (e[3].x & 0xffff) + 1;
    if (blocks > most_blocks_at_once) return fail("a command has " + std::to_string(blocks) + " blocks");
    n.command[cid] = fetched{true, false, static_cast<uint8_t>(op), static_cast<uint8_t>(blocks), block, e[1].z | uint64_t{e[1].w} << 32};
    takes(queue, n.command[cid]);
  }

  void complete(uint32_t queue, uint32_t cid, bool is_error) {
    nvme_memory& n = nvme(queue);
    fetched& c = n.command[cid];
    uint64_t* memory = reinterpret_cast<uint64_t*>(c.memory);
    for (uint32_t i = 0; i < c.blocks && !is_error; ++i) {
      if (c.op == nvme::op_read) {
        lands(c.block + i, memory + i);
        memory[i] = *medium(queue, c.block + i);
      } else if (c.op == nvme::op_write) {
        *medium(queue, c.block + i) = memory[i];
      }
    }
    ends(queue, c, is_error);
    here().tell(controller(queue) + "completes command " + std::to_string(cid) + ", block " + std::to_string(c.block) +
                (c.blocks > 1 ? " and the next" : "") + (is_error ? ", with an error" : ""));
    if (is_error) {
      --nvme(0).failures_left;
      n.failed_blocks |= 1u << c.block;
      n.failed_alone |= c.blocks == 1;
    }
    const uint32_t phase = ((n.posted / opt.depth) & 1u) ^ 1u;
    n.cq[n.posted & (opt.depth - 1)].w = cid | phase << nvme::cqe_phase_shift | (is_error ? media_error : 0u) << nvme::cqe_status_shift;
    ++n.posted;
    c = fetched{};
  }

  const uint32_t queues_;
  std::deque<std::string> names_;
};

}  // namespace explore
