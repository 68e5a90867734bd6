// Tests of a remote controller's queue that has a connection and no controller behind it: what a target must not send, arbitrary
// responses, and the order of a response's effects.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <random>

#include "capsule_link.h"
#include "controller.h"

namespace model {

struct rng {
  explicit rng(uint64_t seed) : g(seed * 7919 + warp::thread_index()) {}
  uint32_t below(uint64_t n) { return static_cast<uint32_t>(g() % n); }
  std::mt19937_64 g;
};

// A queue of four entries with its connection, and no controller behind it.
struct lone_queue {
  explicit lone_queue(bool in_entry) : words(long_enough_ns), link(sq, 4, 1, in_entry) {
    link.begin(0);
    q.sq = sq.data(), q.slot = slot.data(), q.mark = mark.data(), q.outcome = outcome.data(), q.record = record.data();
    q.depth = 4, q.log2_depth = 2, q.remote = 1, q.capsules = &link.view;
  }
  std::vector<order::quad> sq = std::vector<order::quad>(4 * 4);
  std::vector<uint32_t> slot = std::vector<uint32_t>(4), mark = slot, outcome = slot;
  std::vector<wb_record> record = std::vector<wb_record>(4);
  host_words words;
  capsule_link link;
  wb_queue q = {};
};

// Sends arbitrary responses over a queue of its own. Returns true if one of them violates the protocol.
bool violated(rng& r, bool in_entry) {
  lone_queue lone(in_entry);
  capsule_link& link = lone.link;
  constexpr uint32_t commands = 3, none = ~0u;
  uint32_t n = 1 + static_cast<uint32_t>(r.below(4)), expected = 0, field[commands] = {none, none, none};
  const queue_ref queue(&lone.q, &lone.words.ctl);
  const warp::mask_t self = 1;
  uint32_t t[commands];
  order::quad e[4];
  for (uint32_t& ticket : t) {
    check(bool(queue.submit(self, nvme::flush(1), nvme::record(nvme::op_flush, 0, 0, 0, 0, 0, false), ticket)), "submit");
    check(link.fetch(e), "a command is sent");
  }
  for (uint32_t i = 0; i < n; ++i) {
    const bool sound = r.below(4) != 0;
    const uint32_t cid = static_cast<uint32_t>(sound ? r.below(commands) : r.below(65536)), bytes = sound ? 16u : 8u * uint32_t(r.below(5)),
                   head = static_cast<uint32_t>(sound ? r.below(4) : r.below(65536)),
                   top = static_cast<uint32_t>(r.below(3) * r.below(65536));
    link.respond({static_cast<uint32_t>(r.below(1u << 31)), 0, head | 0xabcd0000u, cid | top << 16}, bytes);
    if (expected) continue;
    if (bytes != 16) expected = WB_CAPSULES_LENGTH;
    else if (head >= 4 && head != 0xffff) expected = WB_CAPSULES_HEAD;
    else if (cid >= commands) expected = WB_CAPSULES_UNKNOWN;
    else if (field[cid] != none) expected = WB_CAPSULES_REPEATED;
    else field[cid] = (top & 0xffffu) >> 1;
  }
  while (expected ? link.view.down == 0 : link.view.taken != link.view.posted + n) queue.poll(self);
  order::store<order::relaxed>(&link.view.closed, WB_CAPSULES_LOST);
  for (uint32_t i = 0; i < commands; ++i) {
    const status s = queue.wait(self, t[i]);
    const uint32_t wanted = field[i] == none ? capsules::host_pathing_error : field[i];
    check((wanted & capsules::status_code) == 0 ? bool(s) : s.nvme() == wanted, "a command has another status than its response");
  }
  uint32_t found = static_cast<uint32_t>(link.report.fault >> WB_CAPSULES_FAULT_SHIFT);
  // An identifier of a ticket before the first one may count as either.
  if (expected == WB_CAPSULES_UNKNOWN && found == WB_CAPSULES_REPEATED) found = expected;
  check(found == expected, "the report names " + std::to_string(found) + ", expected " + std::to_string(expected));
  return expected != 0;
}

// Tests arbitrary responses: those before the first violation count, the report names it, and each command ends.
void arbitrary(uint32_t seed) {
  run(1, [seed] {
    if (warp::lane() != 0) return;
    rng r(seed);
    uint32_t faults = 0;
    for (uint32_t round = 0; round < 2000; ++round) faults += violated(r, round % 2 == 0);
    check(faults > 200 && faults < 1800, std::to_string(faults) + " violations: too few of them, or of the others");
  });
}

// Tests what a target must not send. The queue's commands fail, and the report names the violation.
void violations() {
  enum { length, head, unknown, repeated, kinds };
  const uint32_t expected[kinds] = {WB_CAPSULES_LENGTH, WB_CAPSULES_HEAD, WB_CAPSULES_UNKNOWN, WB_CAPSULES_REPEATED};
  for (uint32_t kind = 0; kind < kinds; ++kind) {
    lone_queue lone(kind % 2 == 0);
    capsule_link& link = lone.link;
    run(1, [&] {
      if (warp::lane() != 0) return;
      const queue_ref r(&lone.q, &lone.words.ctl);
      const warp::mask_t self = 1;
      uint32_t t[2];
      for (uint32_t& ticket : t)
        check(bool(r.submit(self, nvme::flush(1), nvme::record(nvme::op_flush, 0, 0, 0, 0, 0, false), ticket)), "submit");
      order::quad e[4];
      check(link.fetch(e) && link.fetch(e) && !link.fetch(e), "two commands are sent");
      switch (kind) {
        case length: link.respond({0, 0, 2, 0}, 15); break;
        case head: link.respond({0, 0, 4, 0}); break;
        case unknown: link.respond({0, 0, 2, 2}); break;
        default: link.respond({0, 0, 0xffff, 1}); link.respond({0, 0, 2, 1});
      }
      while (order::load<order::relaxed>(&link.view.down) == 0) r.poll(self);
      r.poll(self);
      check(!r.test(t[0]), "a command fails while the controller can reach its buffer");
      order::store<order::relaxed>(&link.view.closed, WB_CAPSULES_LOST);
      check(r.wait(self, t[0]).nvme() == capsules::host_pathing_error, "the other command does not fail");
      check(kind == repeated ? bool(r.wait(self, t[1])) : !r.wait(self, t[1]), "the first response counts");
      check(link.report.fault >> WB_CAPSULES_FAULT_SHIFT == expected[kind], "the report names another violation");
      // The host gives up: a later command fails at once.
      order::store<order::relaxed>(&link.view.closed, WB_CAPSULES_FAILED);
      check(bool(r.submit(self, nvme::flush(1), nvme::record(nvme::op_flush, 0, 0, 0, 0, 0, false), t[0])), "submit");
      check(r.wait(self, t[0]).nvme() == capsules::host_pathing_error, "a command without connection does not fail");
      check(!link.fetch(e), "a command was sent on a lost connection");
    });
  }
}

// A page with the record of a queue pair. The first store to it takes until the others have had time to go on.
class slow_record {
 public:
  // Begins to watch the words of a queue's slots.
  explicit slow_record(const std::vector<uint32_t>& slots)
      : bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), slots_(slots), before_(slots) {
    page_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(page_ != MAP_FAILED, "a page");
  }
  ~slow_record() { munmap(page_, bytes_); }
  slow_record(const slow_record&) = delete;

  void* at() const { return page_; }

  // Makes the next store to the page a slow one.
  void arm() {
    armed_ = this;
    struct sigaction action = {};
    action.sa_handler = [](int) { armed_->wait(); };
    check(sigaction(SIGSEGV, &action, &earlier_) == 0 && mprotect(page_, bytes_, PROT_READ) == 0, "a page without stores");
  }

  // Returns true if there was a store and no slot changed before it was over.
  bool was_first() {
    sigaction(SIGSEGV, &earlier_, nullptr);
    return stores_ == 1 && !late_;
  }

 private:
  void wait() {
    ++stores_;
    for (uint32_t look = 0; look < 100 && !late_; ++look) {
      const timespec pause = {0, 1000 * 1000};
      nanosleep(&pause, nullptr);
      for (size_t i = 0; i < slots_.size(); ++i) late_ |= order::load<order::acquire>(&slots_[i]) != before_[i];
    }
    mprotect(page_, bytes_, PROT_READ | PROT_WRITE);
  }

  static inline slow_record* armed_ = nullptr;
  size_t bytes_;
  void* page_;
  const std::vector<uint32_t>& slots_;
  std::vector<uint32_t> before_;
  struct sigaction earlier_ = {};
  uint32_t stores_ = 0;
  bool late_ = false;
};

// Tests that no lane completes a command while the leader still posts the receive for the command that comes after it.
void receives_come_first() {
  if (warp::width == 1) return;
  lone_queue lone(true);
  capsule_link& link = lone.link;
  const queue_ref r(&lone.q, &lone.words.ctl);
  constexpr uint32_t commands = 3;
  uint32_t t[commands];
  run(1, [&] {
    if (warp::lane() != 0) return;
    order::quad e[4];
    for (uint32_t& ticket : t) {
      check(bool(r.submit(1, nvme::flush(1), nvme::record(nvme::op_flush, 0, 0, 0, 0, 0, false), ticket)), "submit");
      check(link.fetch(e), "a command is sent");
    }
  });
  for (uint32_t i = 0; i < commands; ++i) link.respond({0, 0, 0xffff, i});
  slow_record record(lone.slot);
  std::memcpy(record.at(), link.view.record, sizeof(mlx5::qp_record));
  link.view.record = record.at();
  record.arm();
  run(1, [&] { r.poll(warp::full()); });
  check(record.was_first(), "a command completes before the receive for the next response is posted");
  run(1, [&] {
    if (warp::lane() != 0) return;
    for (uint32_t ticket : t) check(bool(r.wait(1, ticket)), "a command with a response does not complete");
  });
}

}  // namespace model
