// Host side that both programs share: options, one process for each PE, and rows. The first process only starts the PEs and waits
// for them, within a time limit. It does not use CUDA, which no process may have used before a fork.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <csignal>
#include <ctime>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace beside {

constexpr int most_pes = 8;
// Time limit in seconds of a wait for the other PEs.
constexpr double barrier_limit = 60;

inline double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

// Prints a message and ends this process. The first process then ends the others.
[[noreturn]] inline void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] inline void fail(const char* format, ...) {
  va_list values;
  va_start(values, format);
  vfprintf(stderr, format, values);
  va_end(values);
  fputc('\n', stderr);
  _exit(1);
}

struct options {
  int pes = 2;
  // Time limit of the whole run in seconds.
  int limit = 120;
  bool tma = false;
  // Names of the rows to measure; all if empty.
  std::vector<std::string> rows;

  options(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string flag = argv[i];
      if (flag == "--tma") {
        tma = true;
        continue;
      }
      if (i + 1 == argc) fail("%s needs a value, or is no option: there are --pes, --limit, --row and --tma", argv[i]);
      const char* value = argv[++i];
      if (flag == "--row") {
        rows.push_back(value);
      } else if (flag == "--pes") {
        pes = atoi(value);
      } else if (flag == "--limit") {
        limit = atoi(value);
      } else {
        fail("%s is no option: there are --pes, --limit, --row and --tma", flag.c_str());
      }
    }
    if (pes < 2 || pes > most_pes) fail("--pes %d: choose 2 to %d", pes, most_pes);
    if (limit < 1) fail("--limit %d: give at least one second", limit);
  }

  bool wants(const std::string& row) const { return rows.empty() || std::find(rows.begin(), rows.end(), row) != rows.end(); }
};

// The PEs of a run, as one of them sees them.
class group {
 public:
  static constexpr size_t id_bytes = 256;

  static group* create(int pes) {
    void* at = mmap(nullptr, sizeof(group), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) fail("mmap of %zu bytes failed", sizeof(group));
    return new (at) group(pes);
  }

  int size() const { return pes_; }

  // Waits for all PEs.
  void barrier() {
    const int generation = generation_.load();
    if (arrived_.fetch_add(1) + 1 == pes_) {
      arrived_ = 0;
      ++generation_;
      return;
    }
    const double started = seconds();
    while (generation_.load() == generation) {
      usleep(20);
      if (seconds() - started > barrier_limit) fail("the other PEs did not arrive at a barrier within %.0f s", barrier_limit);
    }
  }

  // Gives the bytes of PE 0 to all.
  void broadcast(int me, void* bytes, size_t size) {
    if (size > id_bytes) fail("a unique id has %zu bytes, and %zu fit", size, id_bytes);
    if (me == 0) memcpy(id_, bytes, size);
    barrier();
    memcpy(bytes, id_, size);
    barrier();
  }

  // Prints a row on PE 0: the time of the slowest PE, and the wrong values of all.
  void row(int me, const std::string& name, const char* way, double ns, unsigned long long wrong) {
    ns_[me] = ns;
    wrong_[me] = wrong;
    barrier();
    if (me == 0) {
      unsigned long long all = 0;
      for (int pe = 0; pe < pes_; ++pe) all += wrong_[pe];
      printf("{\"row\": \"%s\", \"way\": \"%s\", \"ns\": %.6f, \"wrong\": %llu}\n", name.c_str(), way, *std::max_element(ns_, ns_ + pes_),
             all);
      fflush(stdout);
    }
    barrier();
  }

 private:
  explicit group(int pes) : pes_(pes) {}

  int pes_;
  std::atomic<int> arrived_{0}, generation_{0};
  double ns_[most_pes] = {};
  unsigned long long wrong_[most_pes] = {};
  unsigned char id_[id_bytes] = {};
};

// Runs `pe` in a process for each PE. Returns 0 if all of them end well within the time limit.
template <class Run> int run_processes(const options& o, Run pe) {
  group* all = group::create(o.pes);
  const pid_t first = getpid();
  pid_t children[most_pes];
  for (int me = 0; me < o.pes; ++me) {
    children[me] = fork();
    if (children[me] < 0) fail("fork of PE %d failed", me);
    if (children[me] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != first) _exit(1);
      pe(*all, me);
      fflush(stdout);
      _exit(0);
    }
  }
  const double started = seconds();
  const char* wrong = nullptr;
  for (int left = o.pes; left > 0 && !wrong;) {
    int status;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended > 0) {
      for (pid_t& child : children) child = child == ended ? 0 : child;
      --left;
      if (status != 0) wrong = "a PE failed";
    } else if (seconds() - started > o.limit) {
      wrong = "the time limit is over (--limit)";
    } else {
      usleep(1000);
    }
  }
  if (!wrong) return 0;
  for (int me = 0; me < o.pes; ++me) {
    if (children[me] > 0) kill(children[me], SIGKILL);
  }
  while (wait(nullptr) > 0) {
  }
  fprintf(stderr, "%s; all PEs were ended\n", wrong);
  return 1;
}

// Returns a number of bytes as names of rows have it.
inline std::string size_name(size_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + "M";
  return bytes >= 1 << 10 ? std::to_string(bytes >> 10) + "K" : std::to_string(bytes);
}

}  // namespace beside
