// Explores every schedule of a few threads on the send queue of an RDMA adapter: ring.cuh with mlx5/post.cuh, mlx5/queue.cuh and
// mlx5/send_ring.cuh, as a put runs them. See explore.h, and tests/device/model.rs. The adapter's memory layouts are as in
// rdma-core's mlx5dv.h.
#include "explore_ring.h"

#include "explore_main.h"

#include <warpbell/mlx5.cuh>

using namespace explore;
using namespace warpbell;

namespace {

constexpr uint32_t most_ring = 4, block_words = 16, staging_bytes = 64;

struct memory {
  wb_send_queue q;
  alignas(64) uint8_t ring[most_ring][64], completions[most_ring][64];
  uint64_t staging[most_ring][staging_bytes / 8];
  uint32_t record[2], mark[most_ring], hold[most_ring];
  uint64_t doorbell, time;
  uint32_t stop, abort;
  // The adapter's own state, and the known state of the ring's blocks: 0, the number of words written, or `published`.
  uint32_t announced, head, done, posted;  // free-running; `done`: blocks that have been executed successfully
  uint8_t words[most_ring], writer[most_ring];
  uint8_t has_failed, failures_left, jumps_left, stops_left, jumps;
};
constexpr uint8_t published = 0xff;

struct options {
  // A letter for each action of a thread: n posts one block, s an entry of two blocks, b a batch of both, each to be waited for; f
  // fetches.
  std::vector<const char*> scripts;
  uint32_t log_blocks = 2;
  uint32_t first_ticket = 0;
  uint8_t failures = 0, clock_jumps = 0, stops = 0;
  bool flushes = false;  // a fetch has a flush behind it, in the same reservation
};

class send_scene;
send_scene* now = nullptr;

class send_scene : public scene {
 public:
  explicit send_scene(const options& o) : o_(o), size_(1u << o.log_blocks) {
    std::memset(&m, 0, sizeof m);
    now = this;
    memory = &m;
    bytes = sizeof m;
    time = &m.time;
    describe();
    static const char* const names[] = {"submitter 1", "submitter 2", "submitter 3"};
    for (uint32_t i = 0; i < o.scripts.size(); ++i)
      threads.push_back(actor{names[i], [] { now->runs(now->o_.scripts[here().current()]); }});
  }

  uint32_t actions() const override { return 4; }
  bool may(uint32_t a) const override {
    switch (a) {
      case 0: return m.head != m.announced;
      case 1: return m.head != m.announced && m.failures_left != 0;
      case 2: return m.jumps_left != 0;
      default: return m.stops_left != 0;
    }
  }
  void act(uint32_t a) override {
    if (a < 2) return carry_out(a == 1);
    if (a == 2) {
      --m.jumps_left;
      ++m.jumps;
      return pass_time(m.time);
    }
    --m.stops_left;
    m.stop = 1;
    here().tell("host        asks all waits to end");
  }

  void written(const region& r, uint64_t at, uint32_t who, uint64_t before, uint64_t value) override {
    if (r.first == &m.q.credit) return forget_draw(&m.q.credit, before, value);
    if (r.first == &m.doorbell) return ring(value);
    if (r.first != m.ring) return;
    const uint32_t i = static_cast<uint32_t>((at - reinterpret_cast<uint64_t>(m.ring)) / 64);
    if (m.words[i] == published) return fail("block " + std::to_string(i) + " is written again before it has completed");
    if (m.words[i] == 0) m.writer[i] = static_cast<uint8_t>(who);
    if (m.writer[i] != who) return fail("block " + std::to_string(i) + " has two writers");
    ++m.words[i];
  }

  void ended() override {
    check(m.q.tail_lock == 0 && m.q.head_lock == 0, "a lock is held at the end");
    check(m.q.ticket == m.q.tail && m.announced == m.q.tail, "a ticket was taken and not announced");
    check(m.q.credit + m.q.spare == m.q.granted + size_ - m.q.ticket, "credit was lost or made up");
    for (uint32_t h : m.hold) check(h == 0, "a block is held at the end");
  }

 private:
  void describe() {
    wb_send_queue& q = m.q;
    q.ring = reinterpret_cast<uint64_t>(m.ring);
    q.completions = reinterpret_cast<uint64_t>(m.completions);
    q.record = m.record;
    q.doorbell = &m.doorbell;
    q.mark = m.mark;
    q.hold = m.hold;
    q.staging = q.staging_address = reinterpret_cast<uint64_t>(m.staging);
    q.staging_bytes = staging_bytes;
    q.queue_word = mlx5::queue_of(7).word;
    q.log_blocks = q.log_completions = o_.log_blocks;
    q.flags = o_.flushes ? WB_SEND_CONSISTENCY : 0u;
    q.credit = size_;
    q.ticket = q.granted = q.tail = q.head = q.completed = m.announced = m.head = m.done = m.posted = o_.first_ticket;
    for (uint32_t i = 0; i < size_; ++i) {
      // Of the lap before the first ticket's: the owner bit of the other laps, and marks of that one.
      m.completions[i][63] = o_.first_ticket == 0 ? 0xf1 : ((o_.first_ticket >> o_.log_blocks) & 1u) ^ 1u;
      m.mark[i] = (o_.first_ticket >> o_.log_blocks) << 2;
    }
    m.failures_left = o_.failures;
    m.jumps_left = o_.clock_jumps;
    m.stops_left = o_.stops;
    m.time = 1;
    control_.stop = &m.stop;
    control_.abort = &m.abort;
    control_.deadline_ns = deadline_ns;
    const auto add = [this](const char* name, const auto* p, uint32_t n, uint32_t unit, use how, std::string (*text)(uint64_t) = nullptr) {
      regions.push_back(region{name, p, n, unit, how, text});
    };
    add("counts", &q.credit, 8, 0, use::shared, counts_text);
    add("tail lock", &q.tail_lock, 8, 0, use::shared, tail_text);
    add("head lock", &q.head_lock, 8, 0, use::shared, head_text);
    add("completed", &q.completed, 8, 0, use::shared);
    add("granted", &q.granted, 4, 0, use::shared);
    add("spare", &q.spare, 4, 0, use::shared);
    add("failed at", &q.failed_at, 4, 0, use::silent);
    add("mark", m.mark, sizeof m.mark, 4, use::shared);
    add("hold", m.hold, sizeof m.hold, 4, use::shared);
    add("block", m.ring, sizeof m.ring, 64, use::owned);
    for (auto& entry : m.completions) {
      add("completion", entry, 60, 0, use::silent);
      add("completion state", entry + 60, 4, 0, use::shared);
    }
    add("staging", m.staging, sizeof m.staging, staging_bytes, use::shared);
    add("record", m.record, sizeof m.record, 4, use::shared);
    add("doorbell", &m.doorbell, 8, 0, use::shared);
    add("stop", &m.stop, 4, 0, o_.stops ? use::shared : use::silent);
    add("abort", &m.abort, 4, 0, use::silent);
    add("time", &m.time, 8, 0, o_.clock_jumps ? use::shared : use::silent);
  }

  // --- the adapter ---------------------------------------------------------------------------------------------------

  void ring(uint64_t value) {
    // Bytes 1 and 2 of the first word are the index, big-endian, and so are the last two of the record's send word.
    const uint32_t tail = (value >> 8 & 0xff) << 8 | (value >> 16 & 0xff), more = (tail - m.announced) & 0xffff;
    const uint32_t from_record = (m.record[1] >> 16 & 0xff) << 8 | m.record[1] >> 24;
    check(from_record == tail, "the doorbell and its record differ");
    if (more > size_) return fail("the doorbell goes beyond the ring");
    for (uint32_t k = 0; k < more; ++k) {
      uint8_t& words = m.words[(m.announced + k) % size_];
      if (words != block_words)
        return fail("the doorbell passes block " + std::to_string((m.announced + k) % size_) + ", which is not written");
      words = published;
    }
    m.announced += more;
  }

  void carry_out(bool fails) {
    const uint8_t* e = m.ring[m.head % size_];
    const uint32_t index = static_cast<uint32_t>(e[1]) << 8 | e[2], segments = e[7] & 0x3f, blocks = (segments + 3) / 4;
    here().tell("adapter     carries out the entry at block " + std::to_string(m.head % size_) + (fails ? ", which fails" : ""));
    if (index != (m.head & 0xffff)) return fail("an entry is of another lap: index " + std::to_string(index));
    if (blocks == 0 || blocks > 2 || m.announced - m.head < blocks) return fail("an entry was announced by halves");
    const bool flushed = m.has_failed != 0;
    if (fails) {
      --m.failures_left;
      m.has_failed = 1;
    }
    const bool good = !m.has_failed;
    if (good && e[3] == mlx5_fetch_add) land(e);
    const uint32_t first = m.head;
    m.head += blocks;
    if (good) m.done = m.head;
    if (good && (e[11] & 0x0c) != 0x08) return;  // no completion requested
    // The queue's owner reads completions in order, and reports its position nowhere.
    check(m.has_failed || m.posted - m.q.head < size_, "a completion is overwritten before it was read");
    uint8_t* c = m.completions[m.posted % size_];
    c[55] = good ? 0 : flushed ? 0x05 : 0x13;
    c[60] = static_cast<uint8_t>(first >> 8);
    c[61] = static_cast<uint8_t>(first);
    c[63] = static_cast<uint8_t>((good ? 0x0u : 0xdu) << 4 | ((m.posted >> o_.log_blocks) & 1u));
    ++m.posted;
    for (uint32_t i = m.head - size_; i != m.head; ++i) {
      const uint32_t at = i % size_;
      // Frees all blocks that were executed so far. Blocks behind them are published, or being written.
      if (m.words[at] == published && !is_outstanding(at)) m.words[at] = 0;
    }
  }
  bool is_outstanding(uint32_t at) const {
    for (uint32_t i = m.head; i != m.announced; ++i) {
      if (i % size_ == at) return true;
    }
    return false;
  }
  // Lands the result of a fetch: a value made of the address that the fetch names.
  void land(const uint8_t* e) {
    uint64_t remote = 0, local = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      remote = remote << 8 | e[16 + i];
      local = local << 8 | e[56 + i];
    }
    *reinterpret_cast<uint64_t*>(local) = answer(remote);
  }
  static uint64_t answer(uint64_t remote) { return remote + 1000; }
  static constexpr uint8_t mlx5_fetch_add = 0x12;

  // --- the threads that post -------------------------------------------------------------------------------------------

  void runs(const char* script) {
    const mlx5::send_queue_ref q(&m.q, &control_);
    const uint32_t me = here().current();
    for (uint32_t k = 0; script[k]; ++k) {
      switch (script[k]) {
        case 'n':
          note("posts a block", k);
          waits(q, q.nop());
          break;
        case 's':
          note("posts two blocks", k);
          waits(q, q.masked_swap(mlx5::remote{}, mlx5::as_set<uint64_t>(1)));
          break;
        case 'b': {
          note("posts a batch", k);
          using mlx5::work_request;
          const work_request both[] = {
              work_request(mlx5::nop()),
              work_request(mlx5::masked_swap(mlx5::remote{}, mlx5::local{}, mlx5::as_set<uint64_t>(1)), work_request::dropped)};
          waits(q, mlx5::send_queue_base::post_chain(&m.q, &control_, both, 2));
          break;
        }
        case 'f': fetches(q, me * 16 + k); break;
      }
    }
  }

  void waits(const mlx5::send_queue_ref& q, mlx5::request r) {
    const mlx5::outcome o = r.in_flight() ? q.wait(1, true, r) : mlx5::outcome{r.word};
    if (o) check(static_cast<int32_t>(m.done - r.end) >= 0, "a request is done that was not carried out");
    judge(o);
  }

  void fetches(const mlx5::send_queue_ref& q, uint32_t number) {
    note("fetches", number);
    uint64_t old = 0;
    const mlx5::outcome o = q.fetch_add(mlx5::remote{number, {}}, 1, old);
    check(!o || old == answer(number), "a fetch takes what is not its own");
    check(o || old == 0, "a fetch that is not done was taken");
    judge(o);
  }

  void judge(const mlx5::outcome& o) {
    switch (o.kind()) {
      case WB_DONE: return;
      case WB_NETWORK_ERROR: return check(m.has_failed && o.syndrome() == 0x13, "a request failed for another reason than the first");
      case WB_TIMED_OUT: return check(m.jumps >= 2, "a wait ended before its deadline");
      case WB_STOPPED: return check(m.stop != 0, "a wait ended as if it had been told to");
      default: fail("a request ended with the word " + std::to_string(o.word));
    }
  }

  const options o_;
  const uint32_t size_;
  struct memory m;
  wb_control control_ = {};
};

std::unique_ptr<scene> make(const options& o) { return std::make_unique<send_scene>(o); }

}  // namespace

int main(int argc, char** argv) {
  constexpr uint32_t wraps = 0u - 4;
  const auto at_most = [](uint32_t preemptions, uint32_t delays = 0) {
    return limits{.preemptions = preemptions, .delays = delays, .states = 40'000'000};
  };
  const limits every = at_most(~0u);
  return explore_main(
      argc, argv,
      {
          {"single blocks", [] { return make({.scripts = {"nn", "nn"}}); }, at_most(1), every},
          {"entries of two blocks", [] { return make({.scripts = {"ss", "fn"}, .flushes = true}); }, at_most(1), every},
          {"a ring of two blocks", [] { return make({.scripts = {"ss", "n"}, .log_blocks = 1}); }, every, every},
          {"chains", [] { return make({.scripts = {"ff", "fn"}, .first_ticket = wraps, .flushes = true}); }, at_most(1), every},
          {"batches", [] { return make({.scripts = {"b", "nb"}, .first_ticket = wraps}); }, at_most(1), every},
          {"a batch that fails", [] { return make({.scripts = {"b", "s"}, .failures = 1}); }, at_most(1), every},
          {"fetches", [] { return make({.scripts = {"f", "nnnf"}}); }, at_most(1), every},
          {"late stores", [] { return make({.scripts = {"s", "s"}}); }, at_most(1, 1), at_most(~0u, 1)},
          {"two laps", [] { return make({.scripts = {"nsn", "sns"}, .first_ticket = wraps}); }, at_most(0), at_most(2)},
          {"a failure", [] { return make({.scripts = {"ns", "fn"}, .failures = 1}); }, at_most(1), every},
          {"the clock", [] { return make({.scripts = {"n", "s"}, .clock_jumps = 2}); }, at_most(1), every},
          {"a stop", [] { return make({.scripts = {"n", "s"}, .stops = 1}); }, at_most(1), every},
          {"three submitters", [] { return make({.scripts = {"n", "s", "f"}, .flushes = true}); }, at_most(0), at_most(2)},
      });
}
