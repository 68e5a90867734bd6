// Explores every schedule of a few threads on one NVMe queue pair: ring.cuh, nvme.cuh and express.cuh. See explore.h, and tests/device/model.rs.
#include "explore_nvme.h"

#include <warpbell/express.cuh>

#include "explore_main.h"

using namespace explore;

namespace {

struct memory {
  nvme_memory nvme;
  uint64_t landed[most_blocks];
};

enum class way { executes, holds_tokens, express };

struct options : nvme_options {
  const char* commands = "";  // a digit for each submitter
  way how = way::executes;
};

// Returns the word of a block on the medium.
uint64_t content(uint32_t block) { return 0x100 + block; }

class queue_scene;
queue_scene* now = nullptr;

class queue_scene : public nvme_scene {
 public:
  explicit queue_scene(const options& o) : nvme_scene(o), o_(o) {
    std::memset(&m, 0, sizeof m);
    now = this;
    memory = &m;
    bytes = sizeof m;
    begin();
    regions.push_back(region{"landed", m.landed, sizeof m.landed, block_bytes, use::owned});
    static const char* const names[] = {"submitter 1", "submitter 2", "submitter 3"};
    for (uint32_t i = 0; o.commands[i]; ++i) threads.push_back(actor{names[i], [] { now->submitter(); }});
    if (o.clock_jumps || o.stops) threads.push_back(actor{"afterwards", [] { now->last_one(); }, true});
    for (uint32_t b = 0; b < most_blocks; ++b) medium_[b] = content(b);
  }

  void ended() override {
    check_idle();
    uint32_t sent = 0;
    for (const char* n = o_.commands; *n; ++n) sent += static_cast<uint32_t>(*n - '0');
    check(m.nvme.commands >= sent || opt.clock_jumps || opt.stops, "a command was never sent");
  }

 private:
  nvme_memory& nvme(uint32_t) override { return m.nvme; }
  uint64_t* medium(uint32_t, uint32_t block) override { return &medium_[block]; }

  void submitter() {
    const uint32_t me = here().current(), count = static_cast<uint32_t>(o_.commands[me] - '0');
    for (uint32_t k = 0; k < count; ++k) {
      const uint32_t block = me * 8 + k;
      if (o_.how != way::holds_tokens) execute(block);
      else if (k % 2 == 0) two_tokens(block, k + 1 < count);
    }
  }

  // Runs until the controller has completed everything that others gave up, and all slots are free again.
  void last_one() {
    nvme_memory& n = m.nvme;
    order::store<order::relaxed>(&n.stop, 0u);
    order::store<order::relaxed>(&n.abort, 0u);
    n.jumps_left = n.stops_left = 0;
    n.jumps = 0;
    n.failures_left = 0;
    for (uint32_t i = 0; i < opt.depth; ++i) execute(24 + i);
    queue_ref q(&n.q, &control);
    while (busy() || n.q.head != n.q.tail) q.poll(1);
  }

  void execute(uint32_t block) {
    note("executes block", block);
    const queue_ref q(&m.nvme.q, &control);
    uint32_t ticket = 0, doorbells = 0;
    bool held = false;
    const auto right = [&](uint32_t t) {
      check(order::load<order::relaxed>(reinterpret_cast<const uint64_t*>(q.bounce(t))) == content(block),
            "a command brought another one's data");
    };
    const auto send = [&](queue_ref group, bool got, uint32_t t) {
      if (got) post(group, t, block, nvme::record(nvme::op_read, block, 1, 0, block_bytes, 0, true));
    };
    uint32_t word = WB_DONE;
    bool flies = false;
    if (o_.how == way::express) {
      using fast = express<queue_ref>;
      fast lane;
      const fast::state state = lane.go(q, ticket, doorbells, word, [&](uint32_t t) { send(q, true, t); });
      if (state == fast::state::done) {
        if (word == WB_DONE) right(ticket);
        lane.finish(q);
        return judge(block, word);
      }
      flies = state == fast::state::flying;
    }
    word = q.execute(
        1, true, ticket, doorbells, held, send,
        [&](bool ready, uint32_t t) {
          if (ready) right(t);
        },
        flies);
    if (held) {
      right(ticket);
      q.release(ticket);
    }
    judge(block, word);
    check(held == (word == WB_DONE), "a command that has failed holds its slot");
  }

  void two_tokens(uint32_t block, bool both) {
    note("submits block", block);
    const queue_ref q(&m.nvme.q, &control);
    uint32_t ticket[2] = {}, doorbells = 0;
    status s[2];
    for (uint32_t i = 0; i < 1u + both; ++i) {
      const uint64_t to = reinterpret_cast<uint64_t>(&m.landed[block + i]);
      s[i] = q.submit_with(1, true, ticket[i], doorbells, [&](bool got, uint32_t t) {
        if (got) post(q, t, block + i, nvme::record(nvme::op_read, block + i, 1, to, block_bytes, 0, false));
      });
    }
    // The later one first.
    for (uint32_t i = 1u + both; i-- > 0;) {
      note("waits for block", block + i);
      if (s[i]) s[i] = q.wait(1, ticket[i]);
      judge(block + i, s[i].word);
      check(!s[i] || m.landed[block + i] == content(block + i), "a token's data is not there");
    }
  }

  void post(const queue_ref& q, uint32_t ticket, uint32_t block, const wb_record& r) {
    q.post(ticket, nvme::read(1, block, 1, nvme::prp{q.bounce(ticket), 0}), r);
  }

  // Fails if a command must not end with this status word.
  void judge(uint32_t block, uint32_t word) {
    const nvme_memory& n = m.nvme;
    const bool failed = (n.failed_blocks >> block & 1u) != 0;
    switch (word >> WB_STATUS_KIND_SHIFT) {
      case WB_DONE: return check(!failed && (n.fetched_blocks >> block & 1u), "a command is done that the controller has not carried out");
      case WB_DEVICE_ERROR:
        return check(failed && (word & WB_STATUS_NVME_MASK) == media_error, "a command has an error that is not its own");
      case WB_TIMED_OUT: return check(n.jumps >= 2, "a wait ended before its deadline");
      case WB_STOPPED: return check(n.stop != 0 || n.abort != 0, "a wait ended as if it had been told to");
      default: fail("a command ended with the word " + std::to_string(word));
    }
  }

  const options o_;
  struct memory m;
  uint64_t medium_[most_blocks];
};

std::unique_ptr<scene> make(const nvme_options& n, const char* commands, way how = way::executes) {
  options o;
  static_cast<nvme_options&>(o) = n;
  o.commands = commands;
  o.how = how;
  return std::make_unique<queue_scene>(o);
}

limits at_most(uint32_t preemptions, uint32_t delays = 0) {
  return limits{.preemptions = preemptions, .delays = delays, .states = 40'000'000};
}

}  // namespace

int main(int argc, char** argv) {
  constexpr uint32_t wraps = 0u - 2;
  const limits every{.states = 40'000'000};
  return explore_main(
      argc, argv,
      {
          {"depth 2, two submitters of two", [] { return make({.first_ticket = wraps}, "22"); }, every, every},
          {"depth 2, two submitters of three", [] { return make({}, "33"); }, at_most(0), every},
          {"depth 2, three submitters", [] { return make({}, "111"); }, at_most(0), at_most(2)},
          {"depth 2, tokens", [] { return make({}, "22", way::holds_tokens); }, at_most(1), every},
          {"depth 2, a failure", [] { return make({.failures = 1}, "11"); }, every, every},
          {"depth 2, a token fails", [] { return make({.failures = 1}, "11", way::holds_tokens); }, at_most(1), every},
          {"depth 2, the clock", [] { return make({.clock_jumps = 2}, "11"); }, at_most(1), every},
          {"depth 2, a stop", [] { return make({.stops = 1}, "11"); }, at_most(1), every},
          {"depth 2, two in a hurry", [] { return make({.first_ticket = wraps}, "22", way::express); }, at_most(1), at_most(3)},
          {"depth 2, one in a hurry fails", [] { return make({.failures = 1}, "11", way::express); }, at_most(1), at_most(3)},
          {"depth 4, two in a hurry", [] { return make({.depth = 4}, "22", way::express); }, at_most(1), at_most(2)},
          {"depth 4, in a hurry, the clock", [] { return make({.depth = 4, .clock_jumps = 2}, "11", way::express); }, at_most(0),
           at_most(3)},
          {"depth 4, two submitters of two", [] { return make({.depth = 4}, "22"); }, at_most(1), every},
          {"depth 4, tokens", [] { return make({.depth = 4}, "12", way::holds_tokens); }, at_most(1), at_most(3)},
          {"depth 4, late stores", [] { return make({.depth = 4}, "11"); }, at_most(1, 1), at_most(~0u, 1)},
          {"depth 4, two laps", [] { return make({.depth = 4, .first_ticket = wraps}, "44"); }, at_most(0), at_most(1)},
          {"depth 4, three submitters", [] { return make({.depth = 4}, "111"); }, at_most(0), at_most(2)},
      });
}
