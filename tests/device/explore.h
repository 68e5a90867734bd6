// Explores the schedules of a few threads that run the device library: every order of their accesses to shared memory, or those
// with a bounded number of preemptions. The library's own sources run as coroutines on one thread (explore_access.h).
//
// A state is the scene's memory and the stacks of its threads. From every state that the search has not seen yet, it continues with
// each thread that may run. It also continues with each action of a device, the clock or the host. A thread stops before each
// access to memory that the scene calls shared. So one step is one such access and the thread's private work behind it.
//
// The search finds three kinds of errors. The first is a property that a scene reports as wrong (`fail`). The second is a state in
// which nothing can happen although threads are not over. The third is a state from which no path leads to the end of all threads,
// however long the others act. It shows an error as the steps that lead there.
//
// Memory is sequentially consistent. With `delays` a thread may hold one relaxed store back until its next release. So an order
// that is too weak is found too, as far as one store is concerned. Loads are never early, and scopes are ignored.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <sched.h>

#include "coroutine.h"

namespace explore {

enum class use : uint8_t {
  shared,  // every access is a step
  owned,   // accesses are no steps, and the scene checks the writer: threads must not meet there
  silent,  // accesses are no steps: no other thread ever writes there in this scene
};

// Memory that the library accesses by its atomics, with its name in traces.
struct region {
  const char* name;
  const void* first;
  uint32_t bytes;
  uint32_t unit;  // bytes of one element, 0 if it is no array
  use how;
  std::string (*text)(uint64_t) = nullptr;
};

struct actor {
  const char* name;
  void (*body)();
  bool afterwards = false;  // begins when all the others are over
};

// A few threads, memory and devices to explore. All state that changes is in `memory`, which is plain bytes.
class scene {
 public:
  virtual ~scene() = default;
  virtual uint32_t actions() const { return 0; }
  virtual bool may(uint32_t) const { return false; }
  virtual void act(uint32_t) {}
  // Called after a write by thread `who` to memory that is shared or owned.
  virtual void written(const region&, uint64_t /*at*/, uint32_t /*who*/, uint64_t /*before*/, uint64_t /*now*/) {}
  // Called before thread `who` runs on: sets what the library knows of the thread that calls it.
  virtual void resumes(uint32_t /*who*/) {}
  // Called when thread `who` has read the clock.
  virtual void looked_at_clock(uint32_t /*who*/) {}
  // Called when all threads are over.
  virtual void ended() {}

  std::vector<region> regions;
  std::vector<actor> threads;
  void* memory = nullptr;
  size_t bytes = 0;
  const uint64_t* time = nullptr;  // nanoseconds
};

struct limits {
  uint32_t preemptions = ~0u;  // ~0: any number
  uint32_t delays = 0;         // relaxed stores that are held back in one run of the scene
  uint32_t states = 12'000'000;
};

struct outcome {
  std::string wrong;  // empty: no error
  std::vector<std::string> trace;
  uint64_t states = 0, steps = 0, depth = 0;
  bool complete = true;  // not ended by the limit of states
};

constexpr uint32_t most_threads = 4;
// Maximum number of steps from the first state. A scene that gets there counts something without end.
constexpr size_t most_steps = 50'000;

// Returns true if an access with this order publishes the stores before it.
inline bool releases(int order) { return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST; }

class explorer {
 public:
  explorer(scene& what, const limits& l) : scene_(what), limits_(l) {}

  outcome run() {
    std::memset(threads_, 0, sizeof threads_);
    delays_ = preemptions_ = 0;
    last_ = most_threads;
    for (uint32_t i = 0; i < scene_.threads.size(); ++i) {
      threads_[i].stack = prepare(stacks_[i], sizeof stacks_[i], &enter);
      if (!scene_.threads[i].afterwards) resume(i);
    }
    save(first_);
    search();
    if (out_.wrong.empty() && out_.complete) look_for_traps();
    out_.states = parents_.size();
    return std::move(out_);
  }

  // --- for the threads and the scene ---------------------------------------------------------------------------------

  void fail(const std::string& what) {
    if (out_.wrong.empty()) out_.wrong = what;
    if (current_ != most_threads) leave();
  }
  uint32_t current() const { return current_; }
  const scene& what() const { return scene_; }
  void yielded() { threads_[current_].yields = true; }
  void looked_at_clock() { scene_.looked_at_clock(current_); }
  bool has_delayed() const {
    return std::any_of(threads_, threads_ + most_threads, [](const thread& t) { return t.delayed.bytes != 0; });
  }

  // Ends a step before an access. Returns the region that the access goes to.
  const region& arrive(const void* p, bool stores_relaxed) {
    const region& r = region_of(p);
    if (current_ == most_threads) return r;
    const bool stops = r.how == use::shared || (r.how == use::owned && stores_relaxed && limits_.delays != 0);
    if (stops) {
      threads_[current_].may_delay = stores_relaxed && r.how != use::silent;
      leave();
      threads_[current_].may_delay = false;
    }
    return r;
  }
  // The store that this thread holds back, or nullptr.
  struct held {
    uint64_t at, value;
    uint32_t bytes;
    uint32_t unused;
  };
  held* delayed() { return current_ == most_threads || threads_[current_].delayed.bytes == 0 ? nullptr : &threads_[current_].delayed; }
  bool delays_this() {
    const bool yes = delaying_;
    delaying_ = false;
    return yes;
  }
  void hold_back(const void* p, uint64_t value, uint32_t bytes) {
    threads_[current_].delayed = held{reinterpret_cast<uint64_t>(p), value, bytes, 0};
  }
  void catch_up(uint32_t who) {
    held h = threads_[who].delayed;
    if (h.bytes == 0) return;
    threads_[who].delayed = held{};
    const void* p = reinterpret_cast<const void*>(h.at);
    uint64_t before = 0;
    std::memcpy(&before, p, h.bytes);
    std::memcpy(const_cast<void*>(p), &h.value, h.bytes);
    const region& r = region_of(p);
    tell(who, "its store arrives", r, p, before, h.value);
    scene_.written(r, h.at, who, before, h.value);
  }
  void happened(const region& r, const void* p, const char* how, uint64_t before, uint64_t now, bool writes) {
    if (current_ == most_threads || r.how == use::silent) return;
    if (telling_ && r.how == use::shared) tell(current_, how, r, p, before, now);
    if (writes) scene_.written(r, reinterpret_cast<uint64_t>(p), current_, before, now);
  }
  // Adds a line to the trace.
  void tell(const std::string& line) {
    if (telling_) out_.trace.push_back(line);
  }
  // Sets the thread's activity for traces.
  void note(const char* doing, uint32_t number) {
    threads_[current_].doing = doing;
    threads_[current_].number = number;
  }

 private:
  struct thread {
    void* stack;
    const char* doing;
    uint32_t number;
    bool over, yields, may_delay, unused;
    held delayed;
  };
  struct choice {
    enum kind : uint8_t { go, go_delaying, arrive_late, act } what;
    uint8_t who;
  };
  struct frame {
    uint32_t state;
    size_t saved_at;
    std::vector<choice> choices;
    size_t next;
  };
  struct parent {
    uint32_t state;
    choice by;
  };

  static constexpr size_t stack_bytes = 32768, cleared_bytes = 2048;

  static void enter() {
    explorer& e = *the();
    e.scene_.threads[e.current_].body();
    e.catch_up(e.current_);
    e.threads_[e.current_].over = true;
    e.leave();
  }
  // The explorer whose threads run.
  static explorer*& the() {
    static explorer* e = nullptr;
    return e;
  }
  friend explorer& here();

  void leave() { switch_stack(&threads_[current_].stack, own_stack_); }
  void resume(uint32_t i) {
    the() = this;
    // Remains of earlier calls below the stack are no part of a state, and must not become one.
    char* below = static_cast<char*>(threads_[i].stack);
    const size_t room = static_cast<size_t>(below - stacks_[i]);
    std::memset(below - std::min(room, cleared_bytes), 0, std::min(room, cleared_bytes));
    current_ = i;
    scene_.resumes(i);
    threads_[i].yields = false;
    switch_stack(&own_stack_, threads_[i].stack);
    current_ = most_threads;
  }

  const region& region_of(const void* p) {
    for (const region& r : scene_.regions) {
      const uint64_t at = reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(r.first);
      if (at < r.bytes) return r;
    }
    std::fprintf(stderr, "an access to memory that the scene does not know: %p\n", p);
    std::abort();
  }

  bool all_over(bool but_afterwards) const {
    for (uint32_t i = 0; i < scene_.threads.size(); ++i) {
      if (!threads_[i].over && !(but_afterwards && scene_.threads[i].afterwards)) return false;
    }
    return true;
  }

  std::vector<choice> choices() const {
    std::vector<choice> c;
    const uint32_t n = static_cast<uint32_t>(scene_.threads.size());
    const bool first_over = all_over(true);
    // The thread that ran last goes on first, so that runs stay short.
    for (uint32_t k = 0; k < n; ++k) {
      const uint32_t i = last_ < n ? (last_ + k) % n : k;
      if (threads_[i].over || (scene_.threads[i].afterwards && !first_over)) continue;
      const bool preempts = i != last_ && last_ < n && !threads_[last_].over && !threads_[last_].yields;
      if (preempts && preemptions_ >= limits_.preemptions) continue;
      c.push_back(choice{choice::go, static_cast<uint8_t>(i)});
      if (threads_[i].may_delay && threads_[i].delayed.bytes == 0 && delays_ < limits_.delays) {
        c.push_back(choice{choice::go_delaying, static_cast<uint8_t>(i)});
      }
    }
    for (uint32_t i = 0; i < n; ++i) {
      if (threads_[i].delayed.bytes != 0) c.push_back(choice{choice::arrive_late, static_cast<uint8_t>(i)});
    }
    for (uint32_t a = 0; a < scene_.actions(); ++a) {
      if (scene_.may(a)) c.push_back(choice{choice::act, static_cast<uint8_t>(a)});
    }
    return c;
  }

  void perform(choice c) {
    switch (c.what) {
      case choice::act: scene_.act(c.who); break;
      case choice::arrive_late: catch_up(c.who); break;
      case choice::go_delaying:
        ++delays_;
        delaying_ = true;
        [[fallthrough]];
      case choice::go:
        if (limits_.preemptions != ~0u) {
          const bool preempts = last_ < scene_.threads.size() && last_ != c.who && !threads_[last_].over && !threads_[last_].yields;
          preemptions_ += preempts;
          last_ = c.who;
        }
        resume(c.who);
    }
  }

  // --- states --------------------------------------------------------------------------------------------------------

  struct counters {
    uint32_t last, preemptions, delays, unused;
  };

  void save(std::vector<unsigned char>& to) const {
    const counters n{last_, preemptions_, delays_, 0};
    append(to, &n, sizeof n);
    append(to, scene_.memory, scene_.bytes);
    append(to, threads_, sizeof threads_);
    for (uint32_t i = 0; i < scene_.threads.size(); ++i) {
      if (!threads_[i].over) append(to, threads_[i].stack, live(i));
    }
  }
  size_t live(uint32_t i) const { return static_cast<size_t>(stacks_[i] + stack_bytes - static_cast<char*>(threads_[i].stack)); }
  static void append(std::vector<unsigned char>& to, const void* from, size_t n) {
    const unsigned char* p = static_cast<const unsigned char*>(from);
    to.insert(to.end(), p, p + n);
  }
  void restore(const unsigned char* from) {
    const auto take = [&from](void* to, size_t n) {
      std::memcpy(to, from, n);
      from += n;
    };
    counters n;
    take(&n, sizeof n);
    last_ = n.last;
    preemptions_ = n.preemptions;
    delays_ = n.delays;
    take(scene_.memory, scene_.bytes);
    take(threads_, sizeof threads_);
    for (uint32_t i = 0; i < scene_.threads.size(); ++i) {
      if (!threads_[i].over) take(threads_[i].stack, live(i));
    }
  }
  // Returns 64 bits that identify a state. A collision would hide a state: with ten million states, 3 in a million searches have
  // one. Half of a search's time is spent here. Products of 128 bits keep compilers from vector instructions, which have no
  // multiplication of 64 bits and take several times as long.
  static uint64_t hash(const unsigned char* p, size_t n) {
    constexpr uint64_t k = 0x9fb21c651e98df25ull;
    const auto word = [](const unsigned char* at) {
      uint64_t w;
      std::memcpy(&w, at, sizeof w);
      return w;
    };
    uint64_t a = n, b = k, c = ~k, d = ~n;
    for (; n >= 32; p += 32, n -= 32) {
      a = folded(a ^ word(p), k);
      b = folded(b ^ word(p + 8), k);
      c = folded(c ^ word(p + 16), k);
      d = folded(d ^ word(p + 24), k);
    }
    unsigned char rest[32] = {};
    std::memcpy(rest, p, n);
    uint64_t all = 0;
    for (uint64_t one : {a ^ word(rest), b ^ word(rest + 8), c ^ word(rest + 16), d ^ word(rest + 24)})
      all = folded(all ^ folded(one, k), k);
    return all ? all : 1;
  }
  // Returns the halves of a product of 128 bits, combined.
  static uint64_t folded(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  // Returns the number of a state; `is_new` is true if the state was not seen before.
  uint32_t number_of(uint64_t h, bool& is_new) {
    if (parents_.size() * 2 >= keys_.size()) grow();
    const size_t mask = keys_.size() - 1;
    size_t i = h & mask;
    for (; keys_[i] != 0; i = (i + 1) & mask) {
      if (keys_[i] == h) {
        is_new = false;
        return numbers_[i];
      }
    }
    is_new = true;
    keys_[i] = h;
    numbers_[i] = static_cast<uint32_t>(parents_.size());
    return numbers_[i];
  }
  void grow() {
    std::vector<uint64_t> keys(keys_.empty() ? 1024 : keys_.size() * 2);
    std::vector<uint32_t> numbers(keys.size());
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == 0) continue;
      size_t to = keys_[i] & (keys.size() - 1);
      while (keys[to] != 0) to = (to + 1) & (keys.size() - 1);
      keys[to] = keys_[i];
      numbers[to] = numbers_[i];
    }
    keys_.swap(keys);
    numbers_.swap(numbers);
  }

  void search() {
    std::vector<unsigned char> saved;
    std::vector<frame> path;
    if (!out_.wrong.empty()) return;
    bool is_new;
    number_of(hash(first_.data(), first_.size()), is_new);
    parents_.push_back(parent{0, {}});
    saved = first_;
    path.push_back(frame{0, 0, choices(), 0});
    uint32_t stands_at = 0;
    while (!path.empty()) {
      frame& f = path.back();
      if (f.next == f.choices.size()) {
        saved.resize(f.saved_at);
        path.pop_back();
        continue;
      }
      if (stands_at != f.state) restore(saved.data() + f.saved_at);
      const choice c = f.choices[f.next++];
      perform(c);
      ++out_.steps;
      if (!out_.wrong.empty()) return show(f.state, &c);
      const size_t at = saved.size();
      save(saved);
      const uint32_t s = number_of(hash(saved.data() + at, saved.size() - at), is_new);
      edges_.push_back({f.state, s});
      stands_at = s;
      if (!is_new) {
        saved.resize(at);
        continue;
      }
      parents_.push_back(parent{f.state, c});
      if (all_over(false)) {
        ends_.push_back(s);
        scene_.ended();
        if (!out_.wrong.empty()) return show(f.state, &c);
        saved.resize(at);
        continue;
      }
      std::vector<choice> next = choices();
      if (next.empty()) {
        out_.wrong = "nothing can happen any more, and not all threads are over";
        return show(f.state, &c);
      }
      path.push_back(frame{s, at, std::move(next), 0});
      out_.depth = std::max(out_.depth, uint64_t{path.size()});
      if (parents_.size() > limits_.states || path.size() > most_steps) {
        out_.complete = false;
        return;
      }
    }
  }

  // Checks that the end of all threads is reachable from every state.
  void look_for_traps() {
    std::vector<uint32_t> first(parents_.size() + 1), from(edges_.size());
    for (const edge& e : edges_) ++first[e.to + 1];
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<uint32_t> at = first;
    for (const edge& e : edges_) from[at[e.to]++] = e.from;
    std::vector<bool> good(parents_.size());
    std::vector<uint32_t> todo = ends_;
    for (uint32_t s : todo) good[s] = true;
    while (!todo.empty()) {
      const uint32_t s = todo.back();
      todo.pop_back();
      for (uint32_t i = first[s]; i < first[s + 1]; ++i) {
        if (good[from[i]]) continue;
        good[from[i]] = true;
        todo.push_back(from[i]);
      }
    }
    for (uint32_t s = 0; s < good.size(); ++s) {
      if (good[s]) continue;
      out_.wrong = "from here on, the threads can never be over, whatever the others do";
      return show(s, nullptr);
    }
  }

  // --- traces --------------------------------------------------------------------------------------------------------

  // Replays the path from the first state to another, and one more choice, and adds each step to the trace.
  void show(uint32_t to, const choice* then) {
    std::vector<choice> way;
    if (then) way.push_back(*then);
    for (uint32_t s = to; s != 0; s = parents_[s].state) way.push_back(parents_[s].by);
    std::reverse(way.begin(), way.end());
    const std::string wrong = out_.wrong;
    out_.wrong.clear();
    restore(first_.data());
    telling_ = true;
    for (choice c : way) {
      const size_t before = out_.trace.size();
      perform(c);
      if (out_.trace.size() == before && c.what <= choice::go_delaying) tell(c.who, threads_[c.who].over ? "is over" : "goes on");
    }
    telling_ = false;
    for (uint32_t i = 0; i < scene_.threads.size(); ++i) {
      if (!threads_[i].over) out_.trace.push_back("then: " + line(i, threads_[i].yields ? "waits" : "is here"));
    }
    out_.wrong = wrong;
  }
  std::string line(uint32_t who, const std::string& what) const {
    char head[96];
    const thread& t = threads_[who];
    std::snprintf(head, sizeof head, "%-11s %-22s ", scene_.threads[who].name,
                  t.doing ? (std::string(t.doing) + " " + std::to_string(t.number)).c_str() : "");
    return head + what;
  }
  void tell(uint32_t who, const std::string& what) {
    if (telling_) out_.trace.push_back(line(who, what));
  }
  void tell(uint32_t who, const char* how, const region& r, const void* p, uint64_t before, uint64_t now) {
    if (!telling_) return;
    const auto text = [&r](uint64_t v) {
      char hex[32];
      std::snprintf(hex, sizeof hex, v < 10 ? "%llu" : "%#llx", static_cast<unsigned long long>(v));
      return r.text ? r.text(v) : hex;
    };
    std::string what = std::string(how) + " " + r.name;
    const uint64_t at = reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(r.first);
    if (r.unit) what += "[" + std::to_string(at / r.unit) + "]";
    if (r.unit ? at % r.unit : at) what += "+" + std::to_string(r.unit ? at % r.unit : at);
    what += ": " + text(before);
    if (before != now) what += " -> " + text(now);
    tell(who, what);
  }

  struct edge {
    uint32_t from, to;
  };

  scene& scene_;
  limits limits_;
  outcome out_;
  std::vector<unsigned char> first_;
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> numbers_;
  std::vector<parent> parents_;
  std::vector<edge> edges_;
  std::vector<uint32_t> ends_;
  void* own_stack_ = nullptr;
  uint32_t current_ = most_threads;
  uint32_t last_ = most_threads, preemptions_ = 0, delays_ = 0;
  bool telling_ = false, delaying_ = false;
  thread threads_[most_threads];
  // At the same addresses for every explorer: stacks point into themselves.
  alignas(64) static inline char stacks_[most_threads][stack_bytes];
};

inline explorer& here() { return *explorer::the(); }
inline void fail(const std::string& what) { here().fail(what); }
inline void check(bool ok, const char* what) {
  if (!ok) fail(what);
}
inline void note(const char* doing, uint32_t number) { here().note(doing, number); }

}  // namespace explore
