// Stress test of the queue core: several warps against a model controller that completes in a random order, fails some commands and
// loses others. Compiled with WB_WARP_WIDTH 1, 4 and 32, plain and under ThreadSanitizer.
#include "controller.h"
#include "lone_queue.h"

using namespace model;

namespace {

// Returns 8 bytes of a block, which identify the block, the place in the block, and the version.
uint64_t word_of(uint64_t block, uint64_t i, uint64_t version) {
  uint64_t x = (block << 20 | i) + version * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
  return x ^ x >> 29;
}
void put(char* at, uint64_t block, uint32_t n, uint32_t block_shift, uint64_t version) {
  const uint64_t words = uint64_t{1} << (block_shift - 3);
  for (uint64_t b = 0; b < n; ++b) {
    for (uint64_t i = 0; i < words; ++i, at += 8) {
      uint64_t w = word_of(block + b, i, version);
      std::memcpy(at, &w, 8);
    }
  }
}
bool holds(const char* at, uint64_t block, uint32_t n, uint32_t block_shift, uint64_t version) {
  const uint64_t words = uint64_t{1} << (block_shift - 3);
  for (uint64_t b = 0; b < n; ++b) {
    for (uint64_t i = 0; i < words; ++i, at += 8) {
      uint64_t w;
      std::memcpy(&w, at, 8);
      if (w != word_of(block + b, i, version)) return false;
    }
  }
  return true;
}

struct aligned {
  explicit aligned(size_t bytes) : p(static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) {
    std::memset(p, 0, bytes);
  }
  ~aligned() { std::free(p); }
  aligned(const aligned&) = delete;
  char* p;
};

uint32_t rounds = warp::width == 1 ? 240 : warp::width == 4 ? 6 : 2;  // times the scale
constexpr uint32_t warps = warp::width == 32 ? 2 : 4;
constexpr uint32_t lanes = warps * warp::width;
constexpr uint32_t held = 5;  // tokens that one lane holds
// A lane's buffers: those of its tokens, which forgotten commands may write at any time, and as many for everything else.
constexpr uint32_t spare = held;
constexpr uint32_t per_lane = 2 * held;

// Returns true for the bad blocks of a run: a command that starts on one fails with a media error.
bool is_bad(uint64_t block) { return block % 29 == 3; }

struct stand {
  explicit stand(const options& o) : c(o), bytes(uint64_t{o.max_blocks} << o.block_shift), buffers(lanes * per_lane * (bytes + 64)) {
    for (uint64_t b = 0; b < c.volume.blocks; ++b) put(c.at(b), b, 1, o.block_shift, 0);
    if (!o.bounce) c.window(buffers.p, lanes * per_lane * (bytes + 64));
    c.start();
  }
  ~stand() { c.finish(); }
  // Returns the calling lane's n-th buffer; odd ones are aligned to 4 bytes only.
  char* buffer(uint32_t n) const { return buffers.p + (warp::thread_index() * per_lane + n) * (bytes + 64) + (n & 1 ? 4 : 0); }
  volume_ref volume() const { return volume_ref(&c.volume); }
  // Size of the half of the volume that is only read. The other half is partitioned among the lanes for writing.
  uint64_t readable() const { return c.volume.blocks / 2; }
  uint64_t own() const { return readable() + warp::thread_index() * (readable() / lanes); }
  uint64_t own_blocks() const { return readable() / lanes; }

  // Takes completions off until nothing is in flight.
  void drain() {
    run(1, [this] {
      volume_ref v = volume();
      for (uint32_t d = 0; d < v.raw()->device_count; ++d) {
        for (uint32_t i = 0; i < v.raw()->device[d].queue_count; ++i) {
          queue_ref q = v.queue(token::of(d, i, 0));
          cpu::pauses pauses;
          while (warp::shuffle(warp::full(), order::load<order::relaxed>(&q.q->head) != order::load<order::relaxed>(&q.q->ticket), 0)) {
            q.poll(warp::full());
            cpu::pause(pauses);
          }
        }
      }
    });
  }

  mutable controller c;
  uint64_t bytes;
  aligned buffers;
};

// Returns true if one command may have the range: inside a chunk when there are several devices.
bool fits(const volume_ref& v, uint64_t block, uint32_t n) { return n <= v.locate(block).room; }

// Returns true if one of the commands that the range is split into starts on a bad block.
bool fails(const stand& st, uint64_t block, uint32_t n) {
  for (uint64_t end = block + n; block < end; block += st.volume().locate(block).room) {
    if (st.c.plan(block) == fault_kind::media) return true;
  }
  return false;
}

void expect(const stand& st, const status& s, uint64_t block, uint32_t n, const char* at, uint64_t version, const char* what) {
  if (fails(st, block, n)) {
    check(s.kind() == WB_DEVICE_ERROR && s.nvme() == media_error, std::string(what) + ": a bad block ended in " + std::to_string(s.word));
    check((s.opcode_blocks & WB_RECORD_BLOCKS_MASK) != 0, "a failed command has lost its description");
    return;
  }
  check(bool(s), std::string(what) + " of block " + std::to_string(block) + " ended in " + std::to_string(s.word));
  check(holds(at, block, n, st.volume().block_shift(), version), std::string(what) + ": wrong data at block " + std::to_string(block));
}

// Reads by all lanes with different arguments; some lanes only help.
void collective_reads(const stand& st, uint64_t seed) {
  volume_ref v = st.volume();
  rng r(seed);
  for (uint32_t i = 0; i < rounds; ++i) {
    uint32_t n = r.below(4) == 0 ? 0 : 1 + r.below(st.c.opt.max_blocks);
    uint64_t block = r.below(st.readable() - n);
    char* at = st.buffer(r.below(held));
    status s = v.read(warp::full(), block, n, at);
    if (n) expect(st, s, block, n, at, 0, "read");
  }
}

// Holds several tokens in each lane, waits for them in any order and any way, and forgets some.
void tokens(const stand& st, uint64_t seed) {
  volume_ref v = st.volume();
  rng r(seed);
  struct {
    uint64_t block;
    uint32_t n;
  } what[held] = {};
  token t[held];
  auto ended = [&](uint32_t i, const status& s) {
    expect(st, s, what[i].block, what[i].n, st.buffer(i), 0, "asynchronous read");
    t[i] = token{};
  };
  for (uint32_t i = 0; i < rounds * 2; ++i) {
    uint32_t k = r.below(held);
    switch (r.below(4)) {
      case 0:
        if (!t[k].empty()) ended(k, v.wait(t[k]));
        break;
      case 1: {
        token copy[held];
        for (uint32_t j = 0; j < held; ++j) copy[j] = t[j];
        status s;
        uint32_t j = v.wait_any(copy, held, s);
        if (j < held) ended(j, s);
        break;
      }
      case 2:
        if (!t[k].empty() && v.test(t[k])) ended(k, v.wait(t[k]));
        break;
      default:
        if (!t[k].empty()) break;
        what[k].n = 1 + r.below(st.c.opt.max_blocks);
        what[k].block = r.below(st.readable() - what[k].n);
        if (!fits(v, what[k].block, what[k].n)) what[k].n = 1;
        t[k] = v.read_async(what[k].block, what[k].n, st.buffer(k));
        // A failed command keeps its slot until a wait for it, so with few slots the wait must come soon.
        if (is_bad(what[k].block)) ended(k, v.wait(t[k]));
        break;
    }
  }
  for (uint32_t k = 0; k < held; ++k) {
    // Tokens of good blocks may be left alone for ever. A failure that no wait fetches is an error of the run.
    if (!t[k].empty() && (is_bad(what[k].block) || r.below(2))) ended(k, v.wait(t[k]));
  }
}

// Writes, then reads back. All lanes choose alike what the whole warp does together.
void writes(const stand& st, uint64_t seed) {
  volume_ref v = st.volume();
  rng r(seed);
  std::mt19937_64 alike(seed + warp::index());
  for (uint32_t i = 0; i < rounds / 2 + 1; ++i) {
    uint32_t most = st.c.opt.max_blocks < st.own_blocks() ? st.c.opt.max_blocks : static_cast<uint32_t>(st.own_blocks());
    uint32_t n = 1 + r.below(most);
    uint64_t block = st.own() + r.below(st.own_blocks() - n + 1);
    char* from = st.buffer(spare);
    put(from, block, n, v.block_shift(), i + 1);
    status s;
    if (alike() % 2) {
      s = v.write(warp::full(), block, n, from);
    } else if (!fits(v, block, n)) {
      s = v.write(block, n, from);
    } else {
      token t = v.write_async(block, n, from);
      // The data was copied already if it goes through a bounce buffer.
      if (st.c.opt.bounce) std::memset(from, 0x55, uint64_t{n} << v.block_shift());
      s = v.wait(t);
    }
    if (fails(st, block, n)) {
      check(s.kind() == WB_DEVICE_ERROR, "a write to a bad block ended in " + std::to_string(s.word));
      continue;
    }
    check(bool(s), "a write ended in " + std::to_string(s.word));
    char* to = st.buffer(spare + 1);
    expect(st, v.read(block, n, to), block, n, to, i + 1, "reading back");
  }
  check(bool(v.flush()), "a flush failed");
}

// Waits until the commands of all lanes are over.
void await(const volume_ref& v, token t) {
  for (cpu::pauses pauses; warp::any(warp::full(), !v.finish(warp::full(), t));) cpu::pause(pauses);
}

// Uses the queue like a cache: commands that complete a tag, finished by any thread. The first failure fails the run, after which
// commands may be rejected: with `with_bad` a good page's fill may fail too.
void tags(const stand& st, uint64_t seed, uint64_t* tag, bool with_bad) {
  volume_ref v = st.volume();
  rng r(seed);
  uint64_t* mine = tag + warp::thread_index() * held;
  token t[held];
  uint64_t page[held] = {};
  for (uint32_t i = 0; i < rounds; ++i) {
    uint32_t k = i % held;
    // The frame is used again once its last command is over, whichever thread finished the command.
    await(v, t[k]);
    uint64_t now = order::load<order::acquire>(mine + k);
    if (i >= held && page[k] != ~0ull) {
      bool bad = is_bad(page[k]) || (with_bad && (now & 0xff) == WB_TAG_FAILED && order::load<order::acquire>(&st.c.abort_word));
      check((now & 0xff) == (bad ? WB_TAG_FAILED : WB_TAG_VALID | WB_TAG_REFERENCED),
            "a fill left the tag in state " + std::to_string(now & 0xff));
      check(now >> WB_TAG_PAGE_SHIFT == page[k], "a fill changed its tag's page");
      if (!bad) check(holds(st.buffer(spare + k), page[k], 1, v.block_shift(), 0), "a fill brought wrong data");
    }
    bool want = r.below(5) != 0;
    page[k] = want ? r.below(st.readable()) : ~0ull;
    if (!with_bad && is_bad(page[k])) ++page[k];
    if (want) order::store<order::release>(mine + k, page[k] << WB_TAG_PAGE_SHIFT | WB_TAG_FILLING);
    t[k] = v.start(warp::full(), want ? page[k] : 0, want, nvme::op_read, st.buffer(spare + k), mine + k);
  }
  for (uint32_t k = 0; k < held; ++k) {
    await(v, t[k]);
  }
  // Write-back of one frame that is in use: only its own bit is cleared.
  uint64_t own = st.own();
  if (!with_bad && is_bad(own)) ++own;
  put(st.buffer(spare), own, 1, v.block_shift(), 77);
  order::store<order::release>(mine, own << WB_TAG_PAGE_SHIFT | WB_TAG_VALID | WB_TAG_WRITING);
  t[0] = v.start(warp::full(), own, 1, nvme::op_write, st.buffer(spare), mine);
  await(v, t[0]);
  uint64_t state = order::load<order::acquire>(mine) & 0xff;
  bool bad = is_bad(own) || (with_bad && state != WB_TAG_VALID && order::load<order::acquire>(&st.c.abort_word));
  check(state == (bad ? WB_TAG_VALID | WB_TAG_DIRTY | WB_TAG_FAILED : WB_TAG_VALID),
        "a write-back left the tag in state " + std::to_string(state));
}

void refused(const stand& st) {
  volume_ref v = st.volume();
  char* at = st.buffer(0);
  uint32_t before = order::load<order::relaxed>(&v.queue(token{}).q->ticket);
  auto bad = [](const status& s) { return s.kind() == WB_BAD_ARGUMENT; };
  check(bad(v.wait(v.read_async(0, 0, at))), "a read of nothing was taken");
  check(bad(v.wait(v.read_async(0, st.c.opt.max_blocks + 1, at))), "a command larger than the device's limit was taken");
  check(bad(v.wait(v.write_async(v.blocks(), 1, at))), "a write past the end was taken");
  check(bad(v.read(v.blocks() - 1, 2, at)), "a read past the end was taken");
  check(bad(v.read(~0ull, 1, at)), "a read far past the end was taken");
  if (v.raw()->device_count > 1) {
    check(bad(v.wait(v.read_async(st.c.opt.chunk_blocks - 1, 2, at))), "a command across stripe chunks was taken");
  }
  if (!st.c.opt.bounce) {
    char outside[512];
    check(bad(v.wait(v.read_async(0, 1, outside))) && bad(v.read(0, 1, outside)), "a buffer that the device cannot reach was taken");
    check(bad(v.read(0, 1, at + 2)), "a misaligned buffer was taken");
  }
  check(bool(v.wait(token{})), "nothing to wait for is not done");
  check(order::load<order::relaxed>(&v.queue(token{}).q->ticket) == before, "a refused command used a ticket");
}

uint64_t total(const controller& c, uint64_t wb_stats::* field) {
  uint64_t sum = 0;
  for (const wb_stats& s : c.stats) sum += s.*field;
  return sum;
}

// Tests everything at once, on one shape of queue.
void mixed(const options& o) {
  aligned tag(lanes * held * 8);
  std::printf("  devices %u queues %u depth %u %s first ticket %#x\n", o.devices, o.queues, o.depth, o.bounce ? "bounce" : "direct",
              o.first_ticket);
  stand st(o);
  st.c.plan = [](uint64_t block) { return is_bad(block) ? fault_kind::media : fault_kind::none; };
  run(1, [&] {
    if (warp::lane() == 0) refused(st);
  });
  run(warps, [&] {
    collective_reads(st, o.seed + 1);
    tokens(st, o.seed + 2);
    writes(st, o.seed + 3);
  });
  check(st.c.abort_word == 0 && st.c.log.count == 0, "an error was raised that everybody had asked for");
  st.drain();
  check(total(st.c, &wb_stats::doorbells) != 0 && total(st.c, &wb_stats::reads) != 0, "nothing was counted");
  run(warps, [&] { tags(st, o.seed + 4, reinterpret_cast<uint64_t*>(tag.p), false); });
  check(st.c.abort_word == 0 && st.c.log.count == 0, "good fills raised an error");
  run(warps, [&] { tags(st, o.seed + 5, reinterpret_cast<uint64_t*>(tag.p), true); });
  st.drain();
  st.c.check_idle("mixed");
  uint32_t tickets = 0;
  for (const wb_queue& q : st.c.queues) {
    tickets += q.ticket - o.first_ticket;
    check(q.ticket - o.first_ticket >= 0u - o.first_ticket, "the tickets of a queue have not wrapped");
  }
  check(total(st.c, &wb_stats::reads) + total(st.c, &wb_stats::writes) <= tickets, "more commands counted than sent");
  check((st.c.with_data() != 0) == (o.in_capsule != 0), "writes with their data: " + std::to_string(st.c.with_data()));
  for (uint32_t i = 0; i < st.c.log.count && i < WB_ERROR_LOG_ENTRIES; ++i) {
    const wb_error& e = st.c.log.entry[i];
    check(st.c.log.ready[i] == 1, "a log entry is not complete");
    if (e.status == status_word(WB_STOPPED)) continue;
    check(e.status == status_word(WB_DEVICE_ERROR, media_error), "a log entry has a wrong status");
    check(is_bad(st.c.block_of(e.device, e.lba)) && e.blocks == 1, "a log entry names a wrong command");
  }
}

// Tests commands that are not completed within the deadline. Their waits end, and everything goes on once the completions come.
void lost(const options& base) {
  options o = base;
  o.deadline_ns = 150 * 1000 * 1000;
  std::printf("  lost: depth %u %s\n", o.depth, o.bounce ? "bounce" : "direct");
  stand st(o);
  st.c.plan = [](uint64_t block) { return block % 41 == 7 ? fault_kind::lost : fault_kind::none; };
  std::atomic<uint32_t> timed_out{0};
  run(warps, [&] {
    volume_ref v = st.volume();
    rng r(o.seed);
    for (uint32_t i = 0; i < 3; ++i) {
      uint64_t block = i == 1 ? 7 + 41 * r.below(20) : r.below(st.readable());
      bool never = block % 41 == 7;
      char* at = st.buffer(i);
      status s = v.read(warp::full(), block, 1, at);
      if (never) timed_out += s.kind() == WB_TIMED_OUT;
      check(s.kind() == WB_TIMED_OUT || (s && !never), "a command that was lost ended in " + std::to_string(s.word));
      if (s) check(holds(at, block, 1, v.block_shift(), 0), "wrong data beside lost commands");
      // A token that a lane waits for alone.
      token t = v.read_async(block, 1, st.buffer(spare));
      s = v.wait(t);
      check(s.kind() == WB_TIMED_OUT || (s && !never), "a token of a lost command ended in " + std::to_string(s.word));
    }
  });
  check(timed_out >= lanes, "a lost command did not time out");
  order::store<order::release>(&st.c.release_lost, 1u);
  st.c.ctl.deadline_ns = base.deadline_ns;
  st.drain();
  run(warps, [&] { collective_reads(st, o.seed + 9); });
  st.drain();
  st.c.check_idle("lost");
}

// Tests a stop by the host in the middle of a run: afterwards the queues work as new.
void stopped(const options& o) {
  std::printf("  stopped: depth %u %s\n", o.depth, o.bounce ? "bounce" : "direct");
  stand st(o);
  st.c.plan = [](uint64_t block) { return block % 5 == 0 ? fault_kind::lost : fault_kind::none; };
  std::atomic<uint32_t> begun{0};
  std::thread host([&] {
    while (begun.load() < lanes) cpu::yield();
    order::store<order::release, order::system>(&st.c.stop_word, 1u);
  });
  run(warps, [&] {
    volume_ref v = st.volume();
    rng r(o.seed);
    begun += 1;
    for (;;) {
      uint64_t block = r.below(st.readable());
      status s = v.wait(v.read_async(block, 1, st.buffer(0)));
      check(s || s.kind() == WB_STOPPED, "a stopped wait ended in " + std::to_string(s.word));
      if (!s) break;
      check(block % 5 != 0, "a command that was held back is done");
    }
  });
  host.join();
  order::store<order::release>(&st.c.release_lost, 1u);
  st.c.stop_word = 0;
  st.drain();
  run(warps, [&] { collective_reads(st, o.seed + 9); });
  st.drain();
  st.c.check_idle("stopped");
}

// Tests connections that are lost again and again: each command either succeeds with its data, or fails with Host Pathing Error, and
// commands that were not sent wait for the next connection.
void reconnects(const options& base) {
  options o = base;
  o.lose_every = 23;
  std::printf("  reconnects: depth %u %s\n", o.depth, o.bounce ? "bounce" : "direct");
  stand st(o);
  std::atomic<uint32_t> good{0}, lost{0};
  run(warps, [&] {
    volume_ref v = st.volume();
    rng r(o.seed);
    for (uint32_t i = 0; i < 4 * rounds; ++i) {
      const uint64_t block = r.below(st.readable());
      const bool alone = i % 2 != 0;
      const status s = alone ? v.wait(v.read_async(block, 1, st.buffer(0))) : v.read(warp::full(), block, 1, st.buffer(0));
      check(s || (s.kind() == WB_DEVICE_ERROR && s.nvme() == capsules::host_pathing_error),
            "a command over a connection that is lost ended in " + std::to_string(s.word));
      if (s) check(holds(st.buffer(0), block, 1, v.block_shift(), 0), "wrong data after a connection was lost");
      s ? ++good : ++lost;
    }
  });
  check(good > 0, "no connection carried a command");
  st.drain();
  for (wb_queue& q : st.c.queues) check(q.head == q.ticket && q.tail == q.ticket && q.tail_lock == 0, "a command is left");
}

// Tests a failed command whose owner never waits for it: it does not block the ring for ever, but fails the run, which names it.
void orphan(const options& base) {
  options o = base;
  o.depth = 4;
  o.queues = 1;
  std::printf("  orphan: %s\n", o.bounce ? "bounce" : "direct");
  stand st(o);
  st.c.plan = [](uint64_t block) { return block == 3 ? fault_kind::media : fault_kind::none; };
  run(1, [&] {
    if (warp::lane() != 0) return;
    volume_ref v = st.volume();
    token never = v.read_async(3, 1, st.buffer(0));
    status s;
    for (uint32_t i = 0; i < 2 * o.depth && s; ++i) {
      // One read waits half a deadline for the orphan's slot. The others may take as long as they like.
      st.c.ctl.deadline_ns = i == o.depth - 1 ? 1000 * 1000 * 1000 : o.deadline_ns;
      s = v.read(10 + i, 1, st.buffer(1));
    }
    // It must not look done.
    check(v.wait(never).kind() != WB_DONE, "an orphan's failure was lost");
  });
  check(st.c.abort_word == 1 && st.c.log.count == 1 && st.c.log.ready[0] == 1, "an orphan's failure was not raised");
  check(st.c.log.entry[0].lba == 3 && st.c.log.entry[0].status == status_word(WB_DEVICE_ERROR, media_error),
        "an orphan's failure is not named");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  options o;
  o.seed = argc > 1 ? static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 0)) : 1;
  o.remote = argc > 2 && std::string(argv[2]) == "remote";
  o.assisted = argc > 2 && std::string(argv[2]) == "assisted";
  if (argc > 3) rounds *= static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 0));
  // Depths from the smallest; tickets that wrap in the middle of a run. (The first lap is even in any case, as on a fresh ring.)
  const struct {
    uint32_t devices, queues, depth, before_wrap;
    bool bounce;
  } shapes[] = {{1, 1, 2, 0, true}, {1, 1, 2, 40, false}, {1, 1, 4, 64, true},   {1, 2, 8, 64, false},
                {2, 1, 8, 0, true}, {3, 2, 4, 32, false}, {1, 1, 64, 256, true}, {2, 2, 64, 0, false}};
  for (const auto& s : shapes) {
    // Wide warps of threads are very slow on tiny rings; a few shapes are enough.
    if (warp::width == 32 && (s.depth == 4 || (s.depth != 8 && s.before_wrap == 0))) continue;
    o.devices = s.devices;
    o.queues = s.queues;
    o.depth = s.depth;
    o.first_ticket = 0u - s.before_wrap;
    o.bounce = s.bounce;
    // Room for all writes, for some, for none.
    o.in_capsule = o.remote ? (s.depth == 64 ? 1024u : s.depth == 2 ? 8192u : s.devices == 1 ? 512u : 0u) : 0u;
    mixed(o);
  }
  if (o.assisted) {
    std::printf("queue stress: width %u, seed %u, assisted: ok\n", warp::width, o.seed);
    return 0;
  }
  o.devices = 1;
  o.queues = 2;
  o.first_ticket = 0;
  for (bool bounce : {true, false}) {
    o.bounce = bounce;
    o.depth = 64;
    lost(o);
    o.depth = 4;
    stopped(o);
    orphan(o);
    if (!o.remote) continue;
    reconnects(o);
    o.depth = 64;
    reconnects(o);
  }
  if (o.remote) violations(), arbitrary(o.seed), receives_come_first();
  std::printf("queue stress: width %u, seed %u: ok\n", warp::width, o.seed);
}
