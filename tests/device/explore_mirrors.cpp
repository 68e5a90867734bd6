// Explores every schedule of a few threads that write and read one block of a replicated volume, while its copies fail: volume.cuh,
// transfers.cuh and mirrors.cuh. See explore.h, and tests/device/model.rs.
//
// Each thread has a queue of its own on each copy, so the only words that threads share are those of the volume: which copies are in
// use, and the mark. A command may fail on any copy, at any time, or wait until its deadline is over and be carried out later. A copy may leave
// the bus: then it completes nothing any more, and a thread of the host tells the kernels, as `host/storage/disk/mirrors.rs` does.
//
// The properties are those of a regular register. A write that failed counts as one that is still under way. A read returns no write that
// another one had replaced before the read began: one that began after the first was acknowledged, and was acknowledged itself.
// A copy in use holds no such data either, once a write is acknowledged. A copy that does is recorded as one that missed a write.
// Not modelled: several lanes, the page cache, copies that come back, and a failed write that changes the medium.
#include "explore_nvme.h"

#include "explore_main.h"

#include <warpbell/volume.cuh>

using namespace explore;

namespace {

constexpr uint32_t most_copies = 3, most_users = 3;
constexpr uint32_t data_block = 0, mark_block = 1, blocks = 2;
constexpr uint64_t mark_value = 0x77;
constexpr uint32_t most_repairs = 4;
static_assert(sizeof(nvme_memory) % sizeof(wb_queue) == 0, "queues are elements of an array");
// Queues from one of an array to the next that exists.
constexpr uint32_t queue_stride = sizeof(nvme_memory) / sizeof(wb_queue);

struct memory {
  nvme_memory nvme[most_copies * most_users];
  wb_volume volume;
  uint64_t medium[most_copies][blocks], durable[most_copies][blocks];
  uint64_t source[most_users], target[most_users], mark;
  uint32_t start;  // read by operations as they begin
  // Sets of writes, by number. Write 0 made the first state.
  uint16_t begun, acknowledged;
  uint16_t acknowledged_before[16];
  // Sets of copies: with a command that failed; whose last read by a thread failed; that must be repaired, because of such a read that
  // another copy returned.
  uint8_t faulty, failed_by[most_users], damaged;
  bool has_read[most_users];  // the thread's last read has succeeded
  uint32_t is_gone[most_copies];
  // Threads that have looked at the clock since it advanced, and since their last command.
  bool has_looked[most_users];
  wb_integrity integrity;  // the last: the end of its list is no part of a state
};

// A script has a letter for each action of a thread. W writes and A submits a write; R reads, and T submits a read and waits for it; F flushes.
struct options : nvme_options {
  uint32_t copies = 2;
  bool leaves_bus = false;  // copy 0 does, at any time
  bool has_left = false;    // copy 0 left the bus before the run
  bool marks = false;       // the first write has to be preceded by the mark
  std::vector<const char*> scripts;
};

class mirror_scene;
mirror_scene* now = nullptr;

class mirror_scene : public nvme_scene {
 public:
  explicit mirror_scene(const options& o) : nvme_scene(o, o.copies * static_cast<uint32_t>(o.scripts.size())), o_(o) {
    std::memset(static_cast<void*>(&m), 0, sizeof m);
    now = this;
    memory = &m;
    bytes = offsetof(struct memory, integrity) + offsetof(wb_integrity, repair) + most_repairs * sizeof(wb_repair);
    static const char* const names[] = {"thread 1", "thread 2", "thread 3"};
    for (uint32_t i = 0; i < users(); ++i) threads.push_back(actor{names[i], [] { now->runs(now->o_.scripts[here().current()]); }});
    if (o.leaves_bus) threads.push_back(actor{"host", [] { now->copy_leaves(); }});
    threads.push_back(actor{"afterwards", [] { now->last_one(); }, true});
    m.begun = m.acknowledged = 1;
    describe_volume();
    for (uint32_t q = 0; q < o.copies * users(); ++q) {
      begin(q);
      m.nvme[q].q.index = q % users() * queue_stride;
    }
    // Behind the words that are steps.
    regions.push_back(region{"volume", &m.volume, sizeof m.volume, 0, use::silent});
    regions.push_back(region{"integrity", &m.integrity, sizeof m.integrity, 0, use::silent});
  }

  // Each thread is a warp of its own, as the library counts them.
  void resumes(uint32_t who) override {
    blockDim.x = 1;
    blockIdx.x = who % users() * queue_stride;
  }

  void ended() override {
    for (uint32_t q = 0; q < o_.copies * users(); ++q)
      if (works(q)) check_idle(q);
    judge_copies(m.acknowledged);
    for (uint32_t c = 0; c < o_.copies; ++c) {
      if (!is_used(c) && is_older(m.medium[c][data_block], m.acknowledged))
        check(m.volume.device[c].missed != 0, "a copy that is out of use lacks a write, and is not recorded as such");
      if (is_used(c) && (m.damaged >> c & 1)) check(is_entered(c), "a block that a copy could not read is not entered for repair");
    }
    check(count_used() != 0 || o_.leaves_bus, "the last copy was taken out of use");
  }

 private:
  uint32_t users() const { return static_cast<uint32_t>(o_.scripts.size()); }
  uint32_t copy_of(uint32_t queue) const { return queue / users(); }
  bool is_used(uint32_t copy) const { return m.volume.device[copy].max_blocks != 0; }
  uint32_t count_used() const {
    uint32_t used = 0;
    for (uint32_t c = 0; c < o_.copies; ++c) used += is_used(c);
    return used;
  }

  nvme_memory& nvme(uint32_t queue) override { return m.nvme[queue]; }
  uint64_t* medium(uint32_t queue, uint32_t block) override {
    check(block < blocks, "a command goes beyond the volume");
    return &m.medium[copy_of(queue)][block < blocks ? block : 0];
  }
  bool works(uint32_t queue) const override { return m.is_gone[copy_of(queue)] == 0; }
  void ends(uint32_t queue, const fetched& c, bool is_error) override {
    const uint8_t copy = static_cast<uint8_t>(1u << copy_of(queue));
    uint8_t& failed = m.failed_by[queue % users()];
    if (is_error) m.faulty |= copy;
    else if (c.op == nvme::op_flush) std::memcpy(m.durable[copy_of(queue)], m.medium[copy_of(queue)], sizeof m.medium[0]);
    if (c.op == nvme::op_read) failed = static_cast<uint8_t>(is_error ? failed | copy : failed & ~copy);
  }
  void lands(uint32_t, uint64_t* to) override {
    for (uint32_t u = 0; u < users(); ++u)
      if (to == &m.target[u] && m.has_read[u]) fail("a copy writes to the buffer of a read that has ended");
  }
  // The clock also advances for a thread that waits for a copy which has left the bus, or for the news that a copy has. Such waits end
  // with it alone. It does so once for each look, so that its values stay few.
  bool may_pass_time() const override {
    if (nvme_scene::may_pass_time()) return true;
    for (uint32_t q = 0; q < o_.copies * users(); ++q) {
      const bool awaits_absence = !opt.bounce && !is_used(copy_of(q)) && m.volume.device[copy_of(q)].gone == 0;
      if (m.has_looked[q % users()] && (awaits_absence || (!works(q) && is_waited_for(m.nvme[q])))) return true;
    }
    return false;
  }
  bool is_waited_for(const nvme_memory& n) const {
    for (uint32_t i = 0; i < opt.depth; ++i)
      if (n.command[i].busy && !(n.slot[i] & slot::claimed)) return true;
    return false;
  }
  void looked_at_clock(uint32_t who) override {
    if (who < users()) m.has_looked[who] = o_.leaves_bus || !opt.bounce;
  }
  // No thread has looked since.
  void passes_time() override { std::memset(m.has_looked, 0, sizeof m.has_looked); }
  void takes(uint32_t queue, const fetched& c) override {
    m.has_looked[queue % users()] = false;
    if (o_.marks && c.op == nvme::op_write && c.block == data_block)
      check(m.durable[copy_of(queue)][mark_block] == mark_value, "data is written to a copy before the mark is durable there");
  }

  void describe_volume() {
    wb_volume& v = m.volume;
    v.control = &control;
    v.stats = stats_;
    v.blocks = blocks;
    v.block_shift = block_shift;
    v.device_count = o_.copies;
    v.chunk_blocks = 1;
    v.memory_page_shift = 12;
    v.replicated = 1;
    v.integrity = &m.integrity;
    if (o_.has_left) {
      m.is_gone[0] = 1;
      m.faulty = 1;
    }
    wb_integrity& g = m.integrity;
    g.copies = (1u << o_.copies) - 1;
    g.mark_pending = o_.marks;
    g.mark_block = mark_block;
    g.mark_buffer = reinterpret_cast<uint64_t>(&m.mark);
    m.mark = mark_value;
    const auto add = [this](const char* name, const auto* p, uint32_t n, use how) { regions.push_back(region{name, p, n, 0, how}); };
    static const char* const rooms[] = {"copy 0's room", "copy 1's room", "copy 2's room"};
    static const char* const gone[] = {"copy 0's absence", "copy 1's absence", "copy 2's absence"};
    for (uint32_t c = 0; c < o_.copies; ++c) {
      wb_device& d = v.device[c];
      d.queues = &m.nvme[c * users()].q;
      d.blocks = blocks;
      d.queue_count = users() * queue_stride;
      d.nsid = 1;
      d.max_blocks = m.is_gone[c] ? 0 : most_blocks_at_once;
      d.gone = m.is_gone[c];
      add(rooms[c], &d.max_blocks, 4, use::shared);
      add(gone[c], &d.gone, 4, o_.leaves_bus ? use::shared : use::silent);
    }
    if (o_.leaves_bus) add("time", &m.nvme[0].time, 8, use::shared);
    add("copies", &g.copies, 4, use::shared);
    add("mark pending", &g.mark_pending, 4, o_.marks ? use::shared : use::silent);
    add("bus", m.is_gone, sizeof m.is_gone, use::shared);
    add("stats", stats_, sizeof stats_, use::silent);
    add("source", m.source, sizeof m.source, use::silent);
    add("target", m.target, sizeof m.target, use::silent);
    add("mark", &m.mark, 8, use::silent);
    add("start", &m.start, 4, use::shared);
    if (!opt.bounce) {
      v.registered_region_count = 1;
      v.window[0].base = reinterpret_cast<uint64_t>(m.source);
      for (uint32_t c = 0; c < o_.copies; ++c) v.window[0].iova[c] = v.window[0].base;
      v.window[0].bytes = sizeof m.source + sizeof m.target + sizeof m.mark;
    }
  }

  // --- threads -------------------------------------------------------------------------------------------------------

  void runs(const char* script) {
    for (uint32_t k = 0; script[k]; ++k) {
      switch (script[k]) {
        case 'W':
        case 'A': writes(1 + here().current() * 4 + k, script[k] == 'A'); break;
        case 'R':
        case 'T': reads(script[k] == 'T'); break;
        case 'F': flushes_all(); break;
      }
    }
  }

  // An operation may begin at any time after the one before it.
  void begins(const char* what, uint32_t number) {
    note(what, number);
    order::load<order::relaxed>(&m.start);
  }

  void writes(uint32_t number, bool by_token) {
    const volume_ref volume(&m.volume);
    uint64_t* const from = &m.source[here().current()];
    begins("writes value", number);
    m.acknowledged_before[number] = m.acknowledged;
    m.begun |= static_cast<uint16_t>(1u << number);
    *from = number;
    const status s = by_token ? volume.wait(1, volume.write_async(1, data_block, 1, from)) : volume.write(1, data_block, 1, from);
    if (!s) return judge(s.word);
    m.acknowledged |= static_cast<uint16_t>(1u << number);
    check(is_on_any(m.medium, m.acknowledged), "a write is acknowledged that no copy has");
    judge_copies(m.acknowledged);
  }

  void reads(bool by_token) {
    const volume_ref volume(&m.volume);
    uint64_t* const to = &m.target[here().current() % users()];
    begins("reads", 0);
    *to = ~0ull;
    const uint16_t before = m.acknowledged;
    const uint32_t me = here().current() % users();
    m.failed_by[me] = 0;
    m.has_read[me] = false;
    const status s = by_token ? volume.wait(1, volume.read_async(1, data_block, 1, to)) : volume.read(1, data_block, 1, to);
    if (!s) return judge(s.word);
    m.damaged |= m.failed_by[me];
    m.has_read[me] = true;
    check(*to < 16 && (m.begun >> *to & 1), "a read returns what was never written");
    check(!is_older(*to, before), "a read returns data that a write had replaced before the read began");
  }

  void flushes_all() {
    begins("flushes", 0);
    const uint16_t before = m.acknowledged;
    const status s = volume_ref(&m.volume).flush(1);
    if (!s) return judge(s.word);
    check(is_on_any(m.durable, before), "a write that was flushed is durable on no copy");
    for (uint32_t c = 0; c < o_.copies; ++c)
      if (is_used(c)) check(!is_older(m.durable[c][data_block], before), "a write that was flushed is not durable on a copy in use");
  }

  // Copy 0 leaves the bus. Then the host finds that out, as `left_the_bus` of host/storage/disk/mirrors.rs.
  void copy_leaves() {
    note("loses copy", 0);
    order::store<order::relaxed>(&m.is_gone[0], 1u);
    m.faulty |= 1;
    bool in_use = false;
    for (uint32_t c = 1; c < o_.copies; ++c) in_use |= order::load<order::relaxed>(&m.volume.device[c].max_blocks) != 0;
    if (in_use) order::store<order::relaxed>(&m.volume.device[0].max_blocks, 0u);
    order::store<order::relaxed>(&m.volume.device[0].gone, 1u);
  }

  // A new run: what the copies were given is carried out, and the block can be read.
  void last_one() {
    nvme_memory& n = m.nvme[0];
    n.jumps_left = n.stops_left = n.failures_left = n.jumps = 0;
    passes_time();
    order::store<order::relaxed>(&n.stop, 0u);
    order::store<order::relaxed>(&n.abort, 0u);
    bool all_work = true;
    for (uint32_t q = 0; q < o_.copies * users(); ++q) {
      if (is_used(copy_of(q))) all_work = all_work && works(q);
      const queue_ref ring(&m.nvme[q].q, &control);
      while (works(q) && (busy(q) || m.nvme[q].q.head != m.nvme[q].q.tail)) ring.poll(1);
    }
    if (all_work && count_used() != 0) reads(false);
  }

  // --- properties ----------------------------------------------------------------------------------------------------

  // Returns true if one of these writes had replaced the value before it began.
  bool is_older(uint64_t value, uint32_t writes) const {
    for (uint32_t w = 1; w < 16; ++w)
      if ((writes >> w & 1) && w != value && (m.acknowledged_before[w] >> value & 1)) return true;
    return false;
  }

  // Returns true if a copy holds the last of these writes.
  bool is_on_any(const uint64_t (&held)[most_copies][blocks], uint32_t writes) const {
    for (uint32_t c = 0; c < o_.copies; ++c)
      if (!is_older(held[c][data_block], writes)) return true;
    return false;
  }

  void judge_copies(uint32_t writes) {
    for (uint32_t c = 0; c < o_.copies; ++c)
      if (is_used(c)) check(!is_older(m.medium[c][data_block], writes), "a copy in use lacks a write that was acknowledged");
  }

  bool is_entered(uint32_t copy) const {
    for (uint32_t i = 0; i < m.integrity.repair_count && i < most_repairs; ++i)
      if (m.integrity.repair[i].device == copy && m.integrity.repair[i].lba == data_block && m.integrity.repair[i].blocks == 1) return true;
    return false;
  }

  // Fails if an operation must not end with this status word.
  void judge(uint32_t word) {
    const nvme_memory& n = m.nvme[0];
    const bool is_told = n.stop != 0 || n.abort != 0;
    switch (word >> WB_STATUS_KIND_SHIFT) {
      case WB_DEVICE_ERROR: check(m.faulty != 0, "an operation has an error that no copy returned"); break;
      case WB_TIMED_OUT: check(n.jumps >= 2 || count_used() == 0, "an operation ended before its deadline"); break;
      case WB_STOPPED: return check(is_told, "an operation ended as if it had been told to");
      default: fail("an operation ended with the word " + std::to_string(word));
    }
    const uint32_t all = (1u << o_.copies) - 1;
    check(m.faulty == all || n.jumps >= 2 || is_told, "an operation failed although a copy did nothing wrong");
  }

  const options o_;
  struct memory m;
  wb_stats stats_[WB_STATS_STRIPES] = {};
};

std::unique_ptr<scene> make(options o, std::vector<const char*> scripts) {
  o.distinct = false;
  o.alone = true;
  o.scripts = std::move(scripts);
  return std::make_unique<mirror_scene>(o);
}

options with(uint32_t copies, const nvme_options& n) {
  options o;
  static_cast<nvme_options&>(o) = n;
  o.copies = copies;
  return o;
}

options marked(options o) {
  o.marks = true;
  return o;
}
options left(options o) {
  o.has_left = true;
  return o;
}
options on_bus(options o) {
  o.leaves_bus = true;
  o.depth = 4;  // so that a thread has room for another command beside those that never complete
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  const auto at_most = [](uint32_t preemptions) { return limits{.preemptions = preemptions, .states = 40'000'000}; };
  const limits every = at_most(~0u);
  return explore_main(
      argc, argv,
      {
          {"two copies, a failure", [] { return make(with(2, {.failures = 1}), {"WR", "WR"}); }, every, every},
          {"two copies, failures", [] { return make(with(2, {.failures = 2}), {"W", "WR"}); }, every, every},
          {"two copies, three threads", [] { return make(with(2, {.failures = 2}), {"W", "W", "R"}); }, every, every},
          {"two copies, tokens", [] { return make(with(2, {.failures = 2}), {"AT", "AT"}); }, every, every},
          {"two copies, flushed", [] { return make(with(2, {.failures = 2}), {"WF", "WF"}); }, every, every},
          {"two copies, the mark", [] { return make(marked(with(2, {.failures = 1})), {"W", "W"}); }, every, every},
          {"two copies, the clock", [] { return make(with(2, {.clock_jumps = 1}), {"W", "WR"}); }, every, every},
          {"two copies, the clock, tokens", [] { return make(with(2, {.clock_jumps = 1}), {"A", "AT"}); }, at_most(0), every},
          {"two copies, the clock, a failure", [] { return make(with(2, {.failures = 1, .clock_jumps = 1}), {"W", "WR"}); }, at_most(0),
           every},
          {"two copies, direct, the clock", [] { return make(with(2, {.bounce = false, .clock_jumps = 1}), {"W", "R"}); }, every, every},
          {"two copies, one has left", [] { return make(left(with(2, {.failures = 1, .clock_jumps = 1})), {"WF", "R"}); }, every, every},
          {"two copies, the bus", [] { return make(on_bus(with(2, {})), {"WR", "R"}); }, at_most(0), every},
          {"two copies, the bus, the clock", [] { return make(on_bus(with(2, {.clock_jumps = 1})), {"W", "R"}); }, at_most(0), every},
          {"two copies, the bus, a failure", [] { return make(on_bus(with(2, {.failures = 1, .clock_jumps = 1})), {"WR"}); }, every, every},
          {"two copies, the bus, writers, a failure", [] { return make(on_bus(with(2, {.failures = 1})), {"W", "W"}); }, at_most(0), every},
          {"two copies, the bus, the clock, flushed", [] { return make(on_bus(with(2, {.clock_jumps = 1})), {"WF", "R"}); }, at_most(0),
           at_most(2)},
          {"two copies, the bus, direct", [] { return make(on_bus(with(2, {.bounce = false})), {"WR", "R"}); }, at_most(0), every},
          {"three copies, failures", [] { return make(with(3, {.failures = 2}), {"W", "WR"}); }, every, every},
          {"three copies, more failures", [] { return make(with(3, {.failures = 3}), {"WR", "W"}); }, every, every},
          {"three copies, three threads", [] { return make(with(3, {.failures = 2}), {"W", "W", "R"}); }, at_most(0), every},
          {"three copies, flushed, the mark", [] { return make(marked(with(3, {.failures = 1})), {"WF", "W"}); }, at_most(0), every},
          {"three copies, the bus, a failure", [] { return make(on_bus(with(3, {.failures = 1})), {"WR", "R"}); }, at_most(0), every},
          {"three copies, a stop", [] { return make(with(3, {.failures = 1, .stops = 1}), {"WR"}); }, every, every},
      });
}
