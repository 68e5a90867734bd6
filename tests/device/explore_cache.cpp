// Explores every schedule of a few threads on one or two sets of a page cache: cache.cuh, frames.cuh, array.cuh, and what nvme.cuh does to
// a frame when a command ends. See explore.h, and tests/device/model.rs.
#include "explore_nvme.h"

#include "explore_main.h"

#include <warpbell/array.cuh>

#include "../../kernels/storage/cache.cu"

using namespace explore;

namespace {

constexpr uint32_t most_frames = 2, most_pages = 3;

struct memory {
  nvme_memory nvme;
  uint64_t tag[most_frames], fill[most_frames], frame[most_frames];
  uint32_t pins[most_frames], set_lock[most_frames], hand[most_frames];
  uint64_t medium[most_pages];
  // State of the threads: the last value stored to each page, and the page that each thread has pinned and uses, plus 1, and its
  // frame.
  uint64_t latest[most_pages];
  uint8_t used_page[most_threads], used_frame[most_threads];
};

// A script has a letter and a page for each action of a thread. R reads and W changes a page, which is pinned meanwhile; H and S do
// so by a page handle. L loads without a pin if possible; P requests a page ahead; J requests a page and the next, by one command if
// both are missing; D drops a clean page; F writes dirty pages back. There are as many frames as ways, or sets if they are more than one.
struct options : nvme_options {
  uint32_t ways = 1, sets = 1;
  std::vector<const char*> scripts;
};

std::string tag_text(uint64_t t) {
  static const char* const states[] = {"VALID", "FILLING", "DIRTY", "WRITING", "REFERENCED", "FAILED", "UNCHECKED"};
  std::string s = "page " + std::to_string(t >> WB_TAG_PAGE_SHIFT) + " version " + std::to_string(t >> WB_TAG_VERSION_SHIFT & 0xffff);
  for (uint32_t i = 0; i < 7; ++i) {
    if (t >> i & 1) s += std::string(" ") + states[i];
  }
  return s;
}

// Returns the value of a page after a number of changes.
uint64_t content(uint32_t page, uint64_t changes) { return uint64_t{page + 1} << 32 | changes; }
bool is_of(uint32_t page, uint64_t value) { return value >> 32 == page + 1; }

class cache_scene;
cache_scene* now = nullptr;

class cache_scene : public nvme_scene {
 public:
  explicit cache_scene(const options& o) : nvme_scene(o), o_(o) {
    std::memset(&m, 0, sizeof m);
    now = this;
    memory = &m;
    bytes = sizeof m;
    begin();
    static const char* const names[] = {"thread 1", "thread 2", "thread 3"};
    for (uint32_t i = 0; i < o.scripts.size(); ++i)
      threads.push_back(actor{names[i], [] { now->runs(now->o_.scripts[here().current()]); }});
    threads.push_back(actor{"afterwards", [] { now->last_one(); }, true});
    for (uint32_t p = 0; p < most_pages; ++p) m.medium[p] = m.latest[p] = content(p, 0);
    describe();
    const auto add = [this](const char* name, const auto* p, uint32_t n, uint32_t unit, use how, std::string (*text)(uint64_t) = nullptr) {
      regions.push_back(region{name, p, n, unit, how, text});
    };
    add("tag", m.tag, sizeof m.tag, 8, use::shared, tag_text);
    add("pins", m.pins, sizeof m.pins, 4, use::shared);
    add("fill", m.fill, sizeof m.fill, 8, use::shared);
    add("set lock", m.set_lock, sizeof m.set_lock, 4, use::shared);
    // Accessed under the set's lock only.
    add("hand", m.hand, sizeof m.hand, 0, use::silent);
    add("frame", m.frame, sizeof m.frame, 8, use::shared);
    add("stats", stats_, sizeof stats_, 0, use::silent);
    add("volume", &volume_, sizeof volume_, 0, use::silent);
  }

  void written(const region& r, uint64_t at, uint32_t who, uint64_t before, uint64_t value) override {
    nvme_scene::written(r, at, who, before, value);
    if (r.first != m.frame) return;
    const uint32_t frame = static_cast<uint32_t>((at - reinterpret_cast<uint64_t>(m.frame)) / 8);
    if (m.used_page[who] != 0 && m.used_frame[who] == frame) m.latest[m.used_page[who] - 1] = value;
    else must_be_unused(frame);
  }

  void ended() override {
    check_idle();
    for (uint32_t f = 0; f < o_.ways * o_.sets; ++f) {
      check(m.set_lock[f] == 0, "a set's lock is held at the end");
      check(m.pins[f] == 0, "a frame is pinned at the end");
      check((m.tag[f] & (WB_TAG_FILLING | WB_TAG_WRITING | WB_TAG_DIRTY)) == 0, "a frame is not at rest at the end");
    }
    for (uint32_t p = 0; p < most_pages; ++p) check(m.medium[p] == m.latest[p], "a change was not written back");
  }

 private:
  nvme_memory& nvme(uint32_t) override { return m.nvme; }
  uint64_t* medium(uint32_t, uint32_t block) override {
    check(block < most_pages, "a command goes beyond the volume");
    return &m.medium[block < most_pages ? block : 0];
  }
  void lands(uint32_t, uint64_t* to) override {
    if (to >= m.frame && to < m.frame + most_frames) must_be_unused(static_cast<uint32_t>(to - m.frame));
  }
  void must_be_unused(uint32_t frame) {
    for (uint32_t i = 0; i < most_threads; ++i) {
      if (m.used_page[i] != 0 && m.used_frame[i] == frame)
        fail(std::string("a frame is filled while ") + threads[i].name + " has its page pinned");
    }
  }

  void describe() {
    volume_.control = &control;
    volume_.stats = stats_;
    volume_.blocks = most_pages;
    volume_.block_shift = block_shift;
    volume_.device_count = 1;
    volume_.chunk_blocks = 1;
    volume_.memory_page_shift = 12;
    volume_.device[0].queues = &m.nvme.q;
    volume_.device[0].blocks = most_pages;
    volume_.device[0].queue_count = 1;
    volume_.device[0].nsid = 1;
    volume_.device[0].max_blocks = most_blocks_at_once;
    if (!opt.bounce) {
      volume_.registered_region_count = 1;
      volume_.window[0].base = volume_.window[0].iova[0] = reinterpret_cast<uint64_t>(m.frame);
      volume_.window[0].bytes = sizeof m.frame;
    }
    wb_cache& c = view_.cache;
    c.volume = &volume_;
    c.frames = reinterpret_cast<uint64_t>(m.frame);
    c.tag = m.tag;
    c.pins = m.pins;
    c.fill = m.fill;
    c.set_lock = m.set_lock;
    c.hand = m.hand;
    c.pages = most_pages;
    c.sets = o_.sets;
    c.set_mask = o_.sets - 1;
    c.log2_sets = o_.sets - 1;
    c.ways = o_.ways;
    c.page_shift = block_shift;
    c.blocks_per_page = 1;
    c.page_mask = block_bytes - 1;
    c.way_reciprocal = static_cast<uint32_t>(((uint64_t{1} << 32) + o_.ways - 1) / o_.ways);
    view_.array = wb_array{&c, 0, most_pages, 8, 0};
  }

  void runs(const char* script) {
    for (; *script; script += 2) {
      const uint32_t page = static_cast<uint32_t>(script[1] - '0');
      switch (script[0]) {
        case 'R': uses(page, false); break;
        case 'W': uses(page, true); break;
        case 'H': holds(page, false); break;
        case 'S': holds(page, true); break;
        case 'L': loads(page); break;
        case 'P':
          note("asks for page", page);
          request_pages(&view_.cache, 1, true, page, false);
          break;
        case 'J':
          note("asks for two pages from", page);
          asks_for_two(page);
          break;
        case 'D':
          note("drops page", page);
          wb_cache_drop(&view_.cache, page, page + 1, 0);
          break;
        case 'F':
          note("flushes", 0);
          wb_cache_flush(&view_.cache);
          break;
      }
    }
  }

  // A new run: every page is available again, and nothing was lost.
  void last_one() {
    nvme_memory& n = m.nvme;
    n.jumps_left = n.stops_left = n.failures_left = n.jumps = 0;
    order::store<order::relaxed>(&n.stop, 0u);
    order::store<order::relaxed>(&n.abort, 0u);
    for (uint32_t p = 0; p < most_pages; ++p) uses(p, false);
    note("flushes", 0);
    wb_cache_flush(&view_.cache);
    check(n.abort == 0, "a run without failures has failed");
    const queue_ref q(&n.q, &control);
    while (busy() || n.q.head != n.q.tail) q.poll(1);
  }

  // Executes the steps of two lanes of request_pages, one lane after the other, up to their command.
  void asks_for_two(uint32_t first) {
    const wb_cache& c = view_.cache;
    frames::pending_io read[2];
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t page = first + i, set = frames::set_of(c, page);
      uint64_t t = 0;
      if (frames::find(c, set, page, t) != frames::none || frames::aborted(c) || !frames::try_lock(c, set)) continue;
      if (frames::find(c, set, page, t) == frames::none && frames::claim_way(c, set, 0, false, t))
        read[i] = frames::pending_io{0, frames::install(c, frames::entry(c, set, 0), t, page, 0)};
      frames::unlock(c, set);
    }
    if (read[0].way == frames::none || read[1].way == frames::none) {
      for (const frames::pending_io& one : read)
        if (one.way != frames::none) frames::submit(&c, 1, one, nvme::op_read);
      return;
    }
    check(frames::most_pages(c) == 2, "a command has room for two pages");
    const uint64_t context = tags::context(frames::tag(c, frames::entry(c, 0, 0)), c.ways, 2);
    void* const data = reinterpret_cast<void*>(frames::address(c, 0, 0));
    const token t = frames::volume(c).start_prepared(1, first, 2, nvme::op_read, data, context);
    for (uint32_t i = 0; i < 2 && t.in_flight(); ++i)
      order::compare_exchange<order::acq_rel>(frames::fill(c, i), tags::pending(read[i].tag), t.word | tags::token_known);
  }

  void uses(uint32_t page, bool changes) {
    note(changes ? "changes page" : "reads page", page);
    const uint32_t kind = with_page(&view_.cache, 1, true, page, changes, [&](uint64_t base) {
      uint64_t* word = reinterpret_cast<uint64_t*>(base);
      begins_use(page, word);
      const uint64_t v = order::load<order::relaxed>(word);
      judge_pinned(page, v);
      if (changes) order::store<order::relaxed>(word, v + 1);
      ends_use();
    });
    judge(kind);
  }

  void holds(uint32_t page, bool changes) {
    note(changes ? "changes, by handle," : "reads, by handle,", page);
    array<uint64_t> a(view_);
    auto handle = a.pin(page);
    if (!handle.ok()) return judge_poison();
    begins_use(page, handle.data());
    const uint64_t v = order::load<order::relaxed>(handle.data());
    judge_pinned(page, v);
    if (changes) handle.store(page, v + 1);
    ends_use();
  }

  // From here on the page is pinned, and no other page may get into its frame.
  void begins_use(uint32_t page, const uint64_t* word) {
    m.used_frame[here().current()] = static_cast<uint8_t>(word - m.frame);
    m.used_page[here().current()] = static_cast<uint8_t>(page + 1);
  }
  void ends_use() { m.used_page[here().current()] = 0; }
  void judge_pinned(uint32_t page, uint64_t v) {
    check(is_of(page, v), "a pinned page has the bytes of another one");
    check(v == m.latest[page], "a pinned page is not what was stored last");
  }
  void judge_poison() { check(m.nvme.abort != 0 || m.nvme.stop != 0, "a page cannot be had, and the run has not failed"); }

  void loads(uint32_t page) {
    note("loads page", page);
    const uint64_t before = m.latest[page];
    const uint64_t v = array<uint64_t>(view_).load(page);
    if (v == ~0ull) return judge_poison();
    check(is_of(page, v), "a load brings the bytes of another page");
    check(v >= before && v <= m.latest[page], "a load brings what the page was before, or never was");
  }

  // Fails if a wait for a page must not end with this kind.
  void judge(uint32_t kind) {
    const nvme_memory& n = m.nvme;
    switch (kind) {
      case WB_DONE: return;
      case WB_POISONED:
        return check((n.failed_alone || n.jumps >= 2) && n.abort != 0, "a page is poison, and no read of it alone has failed");
      case WB_STOPPED: return check(n.stop != 0 || n.abort != 0, "a wait ended as if it had been told to");
      case WB_TIMED_OUT:
      case WB_NO_FRAME: return check(n.jumps >= 2 && n.abort != 0, "a wait ended before its deadline");
      default: fail("a wait ended with the kind " + std::to_string(kind));
    }
  }

  const options o_;
  struct memory m;
  wb_array_view view_ = {};
  wb_volume volume_ = {};
  wb_stats stats_[WB_STATS_STRIPES] = {};
};

std::unique_ptr<scene> make(const nvme_options& n, uint32_t ways, std::vector<const char*> scripts, uint32_t sets = 1) {
  options o;
  static_cast<nvme_options&>(o) = n;
  o.distinct = false;
  o.depth = 4;
  o.coarse = true;
  o.ways = ways;
  o.sets = sets;
  o.scripts = std::move(scripts);
  return std::make_unique<cache_scene>(o);
}

}  // namespace

int main(int argc, char** argv) {
  const auto at_most = [](uint32_t preemptions) { return limits{.preemptions = preemptions, .states = 40'000'000}; };
  const limits every = at_most(~0u);
  return explore_main(
      argc, argv,
      {
          {"one frame, two readers", [] { return make({}, 1, {"R0", "R1"}); }, every, every},
          {"one frame, two readers of one page", [] { return make({}, 1, {"R0R1", "R0"}); }, every, every},
          {"one frame, readers and writers", [] { return make({}, 1, {"W0R1", "R1W0"}); }, at_most(1), every},
          {"one frame, loads", [] { return make({}, 1, {"L0L0", "R1R0"}); }, every, every},
          {"one frame, handles", [] { return make({}, 1, {"R0S0", "R1H0"}); }, at_most(1), every},
          {"one frame, dropped", [] { return make({}, 1, {"R0S0R0", "D0"}); }, every, every},
          {"one frame, flushed", [] { return make({}, 1, {"W0W0", "F0"}); }, every, every},
          {"one frame, direct", [] { return make({.bounce = false}, 1, {"W0L0", "W1R0"}); }, at_most(1), every},
          {"one frame, a failure", [] { return make({.failures = 1}, 1, {"R0W1", "R0W1"}); }, at_most(1), every},
          {"one frame, the clock", [] { return make({.clock_jumps = 2}, 1, {"W0", "R1"}); }, every, every},
          {"one frame, a stop", [] { return make({.stops = 1}, 1, {"W0R1", "R1"}); }, at_most(1), every},
          {"one frame, three threads", [] { return make({}, 1, {"W0", "R1", "R0"}); }, at_most(0), at_most(3)},
          {"two frames, one page", [] { return make({}, 2, {"W1", "W1"}); }, every, every},
          {"two frames", [] { return make({}, 2, {"W0R1", "R1W2"}); }, at_most(0), every},
          {"two frames, asked for ahead", [] { return make({}, 2, {"P1R0R1", "W1R2"}); }, at_most(0), at_most(3)},
          {"two frames, flushed", [] { return make({}, 2, {"W0W1F0", "W0R2"}); }, at_most(0), at_most(3)},
          {"two frames, three threads", [] { return make({}, 2, {"W0", "R1", "W2"}); }, at_most(0), at_most(1)},
          {"two pages at once", [] { return make({}, 1, {"J0R0R1", "R1"}, 2); }, at_most(1), every},
          {"two pages at once, changed", [] { return make({}, 1, {"J0W1", "W0R2"}, 2); }, at_most(0), at_most(3)},
          {"two pages at once, direct", [] { return make({.bounce = false}, 1, {"J0R0", "W1"}, 2); }, at_most(1), every},
          {"two pages at once, a failure", [] { return make({.failures = 1}, 1, {"J0R0", "R1"}, 2); }, at_most(1), every},
          {"two pages at once, the clock", [] { return make({.clock_jumps = 2}, 1, {"J0R0", "R1"}, 2); }, at_most(0), every},
      });
}
