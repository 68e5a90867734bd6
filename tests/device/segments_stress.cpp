// Stress test of transfers between objects of a volume and segments of memory (segments.cuh), with many warps: every byte, sum, flag and
// outcome against a plain model. Compiled for several warp widths, with ThreadSanitizer where available: see tests/device/stress.rs.
// Prints its steps, and exits with 1 at the first contradiction. Arguments: a seed, and a scale of the number of rounds.
#include <warpbell/segments.cuh>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "controller.h"

using namespace warpbell;

namespace {

constexpr uint32_t unit = WB_SEGMENT_UNIT;

// Volume blocks that the controller fails, and true if it does not reply.
std::atomic<uint64_t> bad_from{0}, bad_to{0};
std::atomic<bool> silent{false};

model::fault_kind plan(uint64_t block) {
  if (silent.load(std::memory_order_relaxed)) return model::fault_kind::lost;
  return block >= bad_from && block < bad_to ? model::fault_kind::media : model::fault_kind::none;
}

// One term of the checksum, as docs/kv-store.md has it.
uint64_t term(uint64_t word, uint64_t i) {
  uint64_t z = word + (i + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

struct setting {
  const char* name;
  uint32_t warps, in_flight, command_blocks, devices, pages;
  bool bounce;
  double deadline_seconds = 60;
};

model::options shape(const setting& s, uint32_t seed) {
  model::options o;
  o.queues = 2;
  o.depth = 8;
  o.devices = s.devices;
  o.chunk_blocks = 24;
  o.max_blocks = 32;
  o.device_blocks = 24 * 40;
  o.deadline_ns = static_cast<uint64_t>(s.deadline_seconds * 1e9);
  o.bounce = s.bounce;
  o.seed = seed;
  return o;
}

// A place of an object in memory, for the model: its words in their order.
struct place {
  uint64_t address;
  uint32_t bytes, group;
};

struct object {
  std::vector<place> places;
  std::vector<wb_segment_command> commands;
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // of the volume, in their order
};

// Objects of a transfer, the memory of their segments, and what a kernel needs.
struct fixture {
  setting s;
  std::mt19937 random;
  model::controller device;
  uint32_t groups = 5;
  std::vector<uint64_t> memory, before, staging, group_bytes, done, flags;
  std::vector<bool> is_listed;  // words of the memory that belong to an object
  std::vector<object> objects;
  std::vector<wb_segment> segments;
  std::vector<wb_segment_command> commands;
  std::vector<wb_segment_object> so_far, outcomes;
  wb_segment_progress progress{};
  uint64_t ended[2] = {};
  uint64_t number = 0;

  fixture(const setting& s_, uint32_t seed) : s(s_), random(seed), device(shape(s, seed)) {
    device.plan = plan;
    group_bytes.resize(groups), done.resize(groups), flags.resize(groups);
    staging.resize(uint64_t{s.warps} * s.in_flight * s.command_blocks * 512 / 8);
    memory.resize(1 << 15);
    is_listed.resize(memory.size());
    if (!s.bounce) device.window(staging.data(), staging.size() * 8);
    make();
    device.start();
  }
  ~fixture() { finish(); }

  // Ends the device once it has executed all commands, those that were given up among them.
  void finish() {
    if (is_running) device.finish();
    is_running = false;
  }
  bool is_running = true;

  uint32_t pick(uint32_t least, uint32_t most) { return least + random() % (most - least + 1); }

  // Makes objects in turn of segments of their own, and of pages that other objects have the segments of.
  void make() {
    std::vector<uint64_t> free(uint64_t{s.devices} * 40 * 3);  // volume blocks in runs of 8
    for (uint64_t i = 0; i < free.size(); ++i) free[i] = i * 8;
    std::shuffle(free.begin(), free.end(), random);
    uint64_t at = 0;  // next word of the memory
    const uint32_t page = unit * pick(1, 40), tensors = pick(1, 9), pages = s.pages;
    const uint64_t tensor = uint64_t{page} * pages / 8 + 2;  // words
    const uint32_t first_page = static_cast<uint32_t>(segments.size());
    for (uint32_t t = 0; t < tensors; ++t, at += tensor) segments.push_back({address(at), page, t % groups});
    for (uint32_t n = 0; n < pages + 12; ++n) {
      object o;
      uint32_t first = first_page;
      uint64_t shift = 0;
      if (n < pages) {
        shift = uint64_t{n} * page;
        for (uint32_t t = 0; t < tensors; ++t) o.places.push_back({segments[first + t].address + shift, page, t % groups});
      } else {
        first = static_cast<uint32_t>(segments.size());
        const uint32_t count = n % 2 ? pick(1, 4) : pick(30, 90);
        for (uint32_t i = 0; i < count; ++i) {
          const uint32_t bytes = unit * (n % 2 ? pick(1, 200) : pick(1, 3));
          at += 2 * pick(0, 2);
          segments.push_back({address(at), bytes, pick(0, groups - 1)});
          o.places.push_back({segments.back().address, bytes, segments.back().group});
          at += bytes / 8;
        }
      }
      CHECK(at <= memory.size());
      for (const place& p : o.places) {
        o.bytes += p.bytes;
        group_bytes[p.group] += p.bytes;
        for (uint32_t w = 0; w < p.bytes / 8; ++w) is_listed[(p.address - address(0)) / 8 + w] = true;
      }
      while (o.blocks.size() * 512 < o.bytes) {
        CHECK(!free.empty());
        for (uint64_t i = 0; i < 8 && o.blocks.size() * 512 < o.bytes; ++i) o.blocks.push_back(free.back() + i);
        free.pop_back();
      }
      divide(o, first, shift, n);
      objects.push_back(o);
    }
    std::shuffle(commands.begin(), commands.end(), random);
    so_far.resize(objects.size()), outcomes.resize(objects.size());
  }

  uint64_t address(uint64_t word) { return reinterpret_cast<uint64_t>(memory.data() + word); }

  // Divides an object into commands of consecutive blocks within one device's part of a stripe.
  void divide(object& o, uint32_t first, uint64_t shift, uint32_t number_of_object) {
    for (uint64_t i = 0; i < o.blocks.size();) {
      uint64_t n = 1;
      const uint64_t most = pick(1, s.command_blocks);
      while (n < most && i + n < o.blocks.size() && o.blocks[i + n] == o.blocks[i] + n && (o.blocks[i] + n) % 24 != 0) ++n;
      wb_segment_command c{};
      c.block = o.blocks[i], c.offset = i * 512, c.shift = shift, c.object = number_of_object;
      c.bytes = static_cast<uint32_t>(std::min(o.bytes - c.offset, n * 512));
      uint64_t before_it = 0;
      for (c.segment = first; before_it + segments[c.segment].bytes <= c.offset; ++c.segment) before_it += segments[c.segment].bytes;
      c.skip = static_cast<uint32_t>(c.offset - before_it);
      commands.push_back(c);
      o.commands.push_back(c);
      i += n;
    }
  }

  // Calls `each` with the number and the address of each word of an object, and with the word of its blocks.
  void words(const object& o, const std::function<void(uint64_t, uint64_t*, uint64_t*, uint32_t)>& each) {
    uint64_t i = 0;
    for (const place& p : o.places) {
      for (uint32_t w = 0; w < p.bytes / 8; ++w, ++i) {
        char* const block = device.at(o.blocks[i / 64]);
        each(i, reinterpret_cast<uint64_t*>(p.address) + w, reinterpret_cast<uint64_t*>(block) + i % 64, p.group);
      }
    }
  }

  // Fills memory and medium with different random words.
  void fill() {
    for (uint64_t& w : memory) w = random();
    for (uint64_t i = 0; i < device.data.size() / 8; ++i) reinterpret_cast<uint64_t*>(device.data.data())[i] = ~uint64_t{random()};
    before = memory;
  }

  // Runs a transfer. `watch` sees each group when its flag is set.
  template <bool Writes> void run(const std::function<void(uint32_t)>& watch) {
    ++number;
    wb_segment_job job{};
    job.volume = &device.volume;
    job.command = commands.data(), job.segment = segments.data(), job.group_bytes = group_bytes.data();
    job.progress = &progress, job.group_done = done.data(), job.object = so_far.data(), job.group_flag = flags.data();
    job.outcome = outcomes.data(), job.ended = ended, job.number = number;
    job.staging = reinterpret_cast<uint64_t>(staging.data());
    job.staging_bytes = s.command_blocks * 512, job.in_flight = s.in_flight;
    job.commands = static_cast<uint32_t>(commands.size()), job.segments = static_cast<uint32_t>(segments.size());
    job.groups = groups, job.objects = static_cast<uint32_t>(objects.size());
    std::thread watcher([&] {
      for (uint32_t g = 0; g < groups; ++g) {
        while (order::load<order::acquire, order::system>(&flags[g]) != number) std::this_thread::yield();
        watch(g);
      }
    });
    model::run(s.warps, [job] { segments::transfer<Writes>(job).run(); });
    watcher.join();
    CHECK(ended[0] == number);
    CHECK(progress.next == 0 && progress.ended == 0);
    for (uint32_t g = 0; g < groups; ++g) CHECK(done[g] == 0 && flags[g] == number);
    const wb_segment_object none{};
    for (const wb_segment_object& o : so_far) CHECK(std::memcmp(&o, &none, sizeof o) == 0);
  }

  // A transfer without faults: all bytes are where they belong, and nothing else has changed.
  template <bool Writes> void good() {
    fill();
    std::vector<char> medium = device.data;
    run<Writes>([&](uint32_t group) {
      if (Writes) return;
      for (const object& o : objects) {
        words(o, [&](uint64_t, uint64_t* in_memory, uint64_t* on_medium, uint32_t its_group) {
          if (its_group == group) CHECK(*in_memory == *on_medium);
        });
      }
    });
    for (size_t n = 0; n < objects.size(); ++n) {
      const object& o = objects[n];
      uint64_t terms = 0;
      words(o, [&](uint64_t i, uint64_t* in_memory, uint64_t* on_medium, uint32_t) {
        CHECK(*in_memory == *on_medium);
        terms += term(*in_memory, i);
      });
      CHECK(outcomes[n].bytes == o.bytes && outcomes[n].terms == terms && outcomes[n].word == WB_DONE && outcomes[n].given_up == 0);
      if (!Writes) continue;
      for (uint64_t i = o.bytes / 8; i < o.blocks.size() * 64; ++i)
        CHECK(reinterpret_cast<uint64_t*>(device.at(o.blocks[i / 64]))[i % 64] == 0);
      for (const uint64_t b : o.blocks) std::copy_n(device.at(b), 512, medium.data() + (device.at(b) - device.data.data()));
    }
    CHECK(medium == device.data);
    for (size_t w = 0; w < memory.size(); ++w) CHECK(memory[w] == before[w] || (!Writes && is_listed[w]));
    CHECK(ended[1] == 0);
    device.check_idle(s.name);
  }

  // Blocks with media errors: their commands are outcomes of their objects, and all other bytes are moved.
  template <bool Writes> void media() {
    fill();
    bad_from = random() % (device.data.size() / 512), bad_to = bad_from + 60;
    run<Writes>([](uint32_t) {});
    uint64_t failed = 0;
    for (size_t n = 0; n < objects.size(); ++n) {
      const object& o = objects[n];
      uint64_t bytes = 0;
      std::vector<bool> is_moved(o.bytes / 8);
      std::vector<uint64_t> bad_lbas;
      for (const wb_segment_command& c : o.commands) {
        // The model fails a command by its first block.
        if (plan(c.block) != model::fault_kind::none) {
          bad_lbas.push_back(s.devices == 1 ? c.block : c.block / (24 * s.devices) * 24 + c.block % 24);
          continue;
        }
        bytes += c.bytes;
        std::fill_n(is_moved.begin() + static_cast<std::ptrdiff_t>(c.offset / 8), c.bytes / 8, true);
      }
      uint64_t terms = 0;
      words(o, [&](uint64_t i, uint64_t* in_memory, uint64_t* on_medium, uint32_t) {
        CHECK((*in_memory == *on_medium) == is_moved[i]);
        if (is_moved[i]) terms += term(*in_memory, i);
      });
      const wb_segment_object& r = outcomes[n];
      CHECK(r.bytes == bytes && r.given_up == 0);
      if (bad_lbas.empty()) CHECK(r.word == WB_DONE);
      else CHECK(r.word != WB_DONE && std::count(bad_lbas.begin(), bad_lbas.end(), r.lba) == 1);
      if (!Writes || bad_lbas.empty()) CHECK(r.terms == terms);
      failed += bad_lbas.size();
    }
    bad_from = bad_to = 0;
    CHECK(ended[1] == 0);
    device.check_idle(s.name);
    failures += failed;
  }
  uint64_t failures = 0;

  // A stop at any moment: the transfer ends, and what it counts is right.
  template <bool Writes> void stopped() {
    fill();
    std::thread stops([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      order::store<order::release>(&device.stop_word, 1u);
    });
    run<Writes>([](uint32_t) {});
    stops.join();
    finish();
    for (size_t n = 0; n < objects.size(); ++n) {
      uint64_t same = 0;
      words(objects[n], [&](uint64_t, uint64_t* in_memory, uint64_t* on_medium, uint32_t) { same += *in_memory == *on_medium ? 8 : 0; });
      CHECK(outcomes[n].bytes <= objects[n].bytes && outcomes[n].bytes <= same);
      if (outcomes[n].bytes == objects[n].bytes) CHECK(outcomes[n].word == WB_DONE && outcomes[n].given_up == 0);
    }
  }

  // A device that does not reply: each command in flight is given up once, and with data that goes straight to staging memory the
  // transfers behind it do not begin.
  template <bool Writes> void lost() {
    fill();
    silent = true;
    run<Writes>([](uint32_t) {});
    uint64_t given_up = 0;
    for (const wb_segment_object& o : outcomes) {
      given_up += o.given_up;
      CHECK(o.bytes == 0 && (o.given_up == 0 || o.word != WB_DONE));
    }
    CHECK(given_up > 0 && given_up <= commands.size());
    CHECK(ended[1] == (s.bounce ? 0 : 1));
    if (!s.bounce) {
      CHECK(given_up <= uint64_t{s.warps} * s.in_flight);
      silent = false;
      before = memory;
      std::fill(outcomes.begin(), outcomes.end(), wb_segment_object{});
      run<Writes>([](uint32_t) {});
      for (const wb_segment_object& o : outcomes) CHECK(o.bytes == 0 && o.given_up == 0);
      CHECK(memory == before && ended[1] == 1);
    }
    order::store<order::release>(&device.release_lost, 1u);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const uint32_t seed = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 1;
  const uint32_t rounds = argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : 1;
  const setting settings[] = {
      {"one command a warp, one device", 3, 1, 16, 1, 9, true},
      {"all lanes, two devices, direct", 2, std::min(warp::width, 4u), 32, 2, 20, false},
      {"more warps than commands, direct", 6, 1, 32, 2, 1, false},
      {"commands of one block", 2, std::min(warp::width, 3u), 1, 1, 5, true},
  };
  uint64_t failures = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    for (const setting& s : settings) {
      {
        fixture f(s, seed + round);
        f.good<false>(), f.good<true>();
        f.media<false>(), f.media<true>();
        f.good<true>(), f.good<false>();
        failures += f.failures;
      }
      {
        fixture f(s, seed + round);
        if (round % 2) f.stopped<true>();
        else f.stopped<false>();
      }
      std::printf("segments stress: width %u: %s: ok\n", warp::width, s.name);
    }
  }
  CHECK(failures > 0);
  for (const bool bounce : {true, false}) {
    silent = false;
    const setting s{"a device that does not reply", 2, 1, 32, 1, 1, bounce, 0.02};
    {
      fixture f(s, seed);
      f.lost<false>();
    }
    silent = false;
    fixture f(s, seed);
    f.lost<true>();
  }
  std::printf("segments stress: width %u: ok\n", warp::width);
}
