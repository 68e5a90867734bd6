// Puts, gets, atomics, signals and collectives of NVSHMEM in the shapes of `warpbell bench shmem`. Compiled and started by compare.py:
//
//   nvshmem-3.8.0 [--pes N] [--limit SECONDS] [--row NAME]... [--tma]
//
// Prints one line of JSON for each row: nanoseconds of one operation, and the number of wrong values. All data is checked. NVLink
// multicast and NCCL are off.
#include "nvshmem_kernels.cuh"

namespace beside {
namespace {

constexpr size_t window = 256 << 20;
constexpr uint32_t source_seed = 100;

class bench {
 public:
  bench(const options& o, group& all, int me) : o_(o), all_(all), me_(me) {
    source_ = static_cast<char*>(nvshmem_malloc(window));
    target_ = static_cast<char*>(nvshmem_malloc(window + guard));
    flag_ = static_cast<uint64_t*>(nvshmem_calloc(places, place_bytes));
    if (!source_ || !target_ || !flag_) fail("NVSHMEM's heap has no %zu bytes: raise NVSHMEM_SYMMETRIC_SIZE", 2 * window);
  }
  bench(const bench&) = delete;
  ~bench() {
    nvshmem_free(flag_);
    nvshmem_free(target_);
    nvshmem_free(source_);
    all_.barrier();
    nvshmem_finalize();
  }

  void run() {
    bandwidths<true>();
    bandwidths<false>();
    put_signals();
    collectives<reduce>("reduce", {8, 64 << 10, 16 << 20});
    collectives<alltoall>("alltoall", {64 << 10, 16 << 20});
    collectives<fcollect>("fcollect", {64 << 10, 16 << 20});
    collectives<broadcast>("broadcast", {64 << 10, 16 << 20});
    if (o_.tma) return;  // no copies in the others
    ping_pong();
    barriers();
    rates();
    atomics<uint32_t>();
    atomics<uint64_t>();
  }

 private:
  // Makes a world of the PEs. Returns the number of multiprocessors.
  int join() {
    int gpus = 0;
    BESIDE_CUDA(cudaGetDeviceCount(&gpus));
    sharing_ = (all_.size() + gpus - 1) / gpus;
    BESIDE_CUDA(cudaSetDevice(me_ % gpus));
    BESIDE_CUDA(cudaFree(nullptr));
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    if (me_ == 0 && nvshmemx_get_uniqueid(&id) != 0) fail("nvshmemx_get_uniqueid failed");
    all_.broadcast(me_, &id, sizeof id);
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    nvshmemx_set_attr_uniqueid_args(me_, all_.size(), &id, &attributes);
    const int status = nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes);
    if (status != 0) fail("nvshmemx_init_attr returned %d: NVSHMEM_DEBUG=WARN tells more", status);
    if (nvshmem_n_pes() != all_.size()) fail("NVSHMEM has %d PEs, not %d", nvshmem_n_pes(), all_.size());
    int major, minor, patch;
    nvshmemx_vendor_get_version_info(&major, &minor, &patch);
    cudaDeviceProp gpu;
    BESIDE_CUDA(cudaGetDeviceProperties(&gpu, me_ % gpus));
    if (me_ == 0) {
      printf("{\"library\": \"NVSHMEM\", \"version\": \"%d.%d.%d\", \"gpu\": \"%s\", \"pes\": %d, \"gpus\": %d}\n", major, minor, patch,
             gpu.name, all_.size(), std::min(gpus, all_.size()));
      fflush(stdout);
    }
#if BESIDE_HAS_TMA
    if (o_.tma) tma_bytes_ = nvshmemx_ask_smem(NVSHMEMX_SMEM_RECOMMENDED);
#endif
    return gpu.multiProcessorCount;
  }

  // Measures a row: `launch` runs on active PEs and returns the nanoseconds of `operations`; `check` counts on each PE.
  template <class Launch, class Check>
  void row(const std::string& name, const char* way, bool active, double operations, Launch launch, Check check) {
    clock_.reset();
    BESIDE_CUDA(cudaDeviceSynchronize());
    all_.barrier();
    const double ns = active ? launch() / operations : 0;
    all_.barrier();
    check();
    all_.row(me_, name, way, ns, data_.take());
  }

  template <class Kernel, class Job> double timed(Kernel kernel, int blocks, int threads, const Job& job, int shared = 0) {
    if (shared) BESIDE_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    kernel<<<blocks, threads, shared>>>(job);
    return clock_.ns();
  }

  // Blocks of 256 threads that run at the same time.
  template <class Kernel> int blocks_of(Kernel kernel) const {
    int resident = 0;
    BESIDE_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 256, 0));
    return std::max(1, resident * processors_ / sharing_);
  }

  messages job(size_t bytes, int warmup, int iterations) {
    return {target_, source_, flag_, bytes, 1, me_, 1 - me_, warmup, iterations, tma_bytes_, clock_.words()};
  }
  void clear_flags() { BESIDE_CUDA(cudaMemset(flag_, 0, places * place_bytes)); }

  // Flags and messages of a ping-pong have as many places as in `bench shmem --runs 16`: the time of one word differs between addresses.
  static constexpr int places = 16;
  static constexpr size_t place_bytes = 4096 + 128;

  // Returns the median of a ping-pong at all places. The kernels of two PEs wait for each other.
  template <class Kernel> double timed_at_places(Kernel kernel, int threads, messages m, int shared) {
    std::vector<double> all;
    for (int place = 0; place < places; ++place) {
      all.push_back(timed(kernel, 1, threads, m, shared));
      m.flag += place_bytes / sizeof *m.flag;
      m.target += place_bytes;
      clock_.reset();
    }
    std::nth_element(all.begin(), all.begin() + places / 2, all.end());
    return all[places / 2];
  }
  uint32_t seed_of(int pe) const { return source_seed + pe; }

  struct grid {
    const char* name;
    int blocks, threads;
    // Bytes that one measurement moves.
    size_t budget;
    int least;
  };

  template <bool Put> void bandwidths() {
    static constexpr grid grids[] = {
        {"warp", 1, 32, 64 << 20, 2}, {"block", 1, 512, 512 << 20, 4}, {"64 blocks", 64, 512, size_t{4} << 30, 10}};
    data_.fill(source_, window, seed_of(me_));
    for (const grid& g : grids) {
      for (size_t bytes = 4 << 10; bytes <= window; bytes *= 16) {
        // Gets from one place would come from a cache.
        for (int many = Put ? 0 : 1; many < 2; ++many) bandwidth_of<Put>(g, bytes, many != 0);
      }
    }
  }

  template <bool Put> void bandwidth_of(const grid& g, size_t bytes, bool many) {
    const std::string name = (Put ? "put " : "get ") + size_name(bytes) + " " + g.name + (many ? " window" : "");
    if (!o_.wants(name)) return;
    const int iterations = static_cast<int>(std::min<size_t>(std::max<size_t>(g.budget / bytes, g.least), 10000));
    messages m = job(bytes, std::max(iterations / 10, 1), iterations);
    m.places = many ? window / bytes : 1;
    const size_t received = bytes * std::min<size_t>(m.places, iterations);
    data_.clear(target_, received);
    const auto launch = [&] {
      return timed(g.threads > 32 ? bandwidth<Put, true> : bandwidth<Put, false>, g.blocks, g.threads, m, tma_bytes_);
    };
    row(name, "", me_ == 0, iterations, launch, [&] {
      if (me_ != (Put ? 1 : 0)) return;
      data_.holds(target_, received, seed_of(1 - me_));
      data_.ends(target_, received);
    });
  }

  void ping_pong() {
    if (!o_.wants("p_ping_pong 8")) return;
    clear_flags();
    const messages m = job(8, 200, 2000);
    const auto launch = [&] { return timed_at_places(p_ping_pong, 1, m, 0); };
    row("p_ping_pong 8", "", me_ < 2, 2.0 * m.iterations, launch, [&] { check_flags(m); });
  }

  void check_flags(const messages& m) {
    if (me_ > 1) return;
    unsigned long long wrong = 0;
    for (int place = 0; place < places; ++place) {
      uint64_t last;
      const uint64_t* flag = flag_ + place * place_bytes / sizeof *flag_;
      BESIDE_CUDA(cudaMemcpy(&last, flag, sizeof last, cudaMemcpyDeviceToHost));
      wrong += last != static_cast<uint64_t>(m.warmup + m.iterations);
    }
    if (wrong) BESIDE_CUDA(cudaMemcpy(data_.wrong(), &wrong, sizeof wrong, cudaMemcpyHostToDevice));
  }

  void put_signals() {
    data_.fill(source_, 64 << 10, seed_of(me_));
    put_signal_of("put_signal 8 thread", 8, 1);
    put_signal_of("put_signal 8 32 threads", 8, 32);
    put_signal_of("put_signal 8 512 threads", 8, 512);
    put_signal_of("put_signal 4K 512 threads", 4 << 10, 512);
    put_signal_of("put_signal 64K 512 threads", 64 << 10, 512);
  }

  void put_signal_of(const char* name, size_t bytes, int threads) {
    if (!o_.wants(name)) return;
    clear_flags();
    data_.clear(target_, (places - 1) * place_bytes + bytes);
    messages m = job(bytes, 200, 2000);
    if (threads == 1) m.tma_bytes = 0;  // shared memory is given by whole warps
    const auto launch = [&] {
      return timed_at_places(threads > 1 ? put_signal_ping_pong<true> : put_signal_ping_pong<false>, threads, m, m.tma_bytes);
    };
    row(name, "", me_ < 2, 2.0 * m.iterations, launch, [&] {
      check_flags(m);
      if (me_ > 1) return;
      // The next place overwrites what is behind its begin.
      for (int place = 0; place < places; ++place) {
        const size_t kept = place + 1 < places ? std::min(bytes, place_bytes) : bytes;
        data_.holds(target_ + place * place_bytes, kept, seed_of(1 - me_));
      }
      data_.ends(target_, (places - 1) * place_bytes + bytes);
    });
  }

  void barriers() {
    for (int threads : {32, 256}) {
      const std::string name = "barrier " + std::to_string(threads) + " threads";
      if (!o_.wants(name)) continue;
      clear_flags();
      const messages m = job(0, 200, 5000);
      messages rounds = m;
      rounds.iterations = 200;
      row(
          name, "", true, m.iterations, [&] { return timed(barrier, 1, threads, m); },
          [&] { barrier_holds<<<1, threads>>>(rounds, (me_ + 1) % all_.size(), data_.wrong()); });
    }
  }

  template <class What> void collectives(const char* name, std::initializer_list<size_t> sizes) {
    for (size_t bytes : sizes) {
      const std::string row_name = std::string(name) + " " + size_name(bytes);
      if (!o_.wants(row_name)) continue;
      const bool is_sum = std::is_same<What, reduce>::value;
      const size_t sent = std::is_same<What, alltoall>::value ? bytes * all_.size() : bytes;
      const size_t received = is_sum || std::is_same<What, broadcast>::value ? bytes : bytes * all_.size();
      const auto prepare = [&] {
        if (is_sum) data_.fill_for_sum(source_, sent, me_);
        if (!is_sum) data_.fill(source_, sent, seed_of(me_));
        data_.clear(target_, received);
      };
      const auto check = [&] { check_collective<What>(bytes, received); };
      for (int threads : {256, 512}) {
        const int iterations = bytes > 1 << 20 ? 3 : bytes > 8 ? 300 : 2000;
        const messages m = job(bytes, iterations / 10 + 1, iterations);
        prepare();
        row(
            row_name, threads == 256 ? "block of 256" : "block of 512", true, iterations,
            [&] { return timed(collective<What>, 1, threads, m, tma_bytes_); }, check);
      }
      if (o_.tma) continue;  // the host's calls get no shared memory
      prepare();
      const int iterations = bytes > 1 << 20 ? 50 : 300;
      row(row_name, "stream", true, iterations, [&] { return enqueued<What>(bytes, iterations); }, check);
    }
  }

  template <class What> double enqueued(size_t bytes, int iterations) {
    const auto enqueue = [&](int times) {
      for (int i = 0; i < times; ++i) {
        const int status =
            What::enqueue(reinterpret_cast<float*>(target_), reinterpret_cast<float*>(source_), bytes / sizeof(float), on_stream_.stream());
        if (status != 0) fail("a collective on a stream returned %d", status);
      }
    };
    enqueue(iterations / 10 + 1);
    on_stream_.start();
    enqueue(iterations);
    return on_stream_.ns();
  }

  template <class What> void check_collective(size_t bytes, size_t received) {
    const bool is_from_all = std::is_same<What, fcollect>::value || std::is_same<What, alltoall>::value;
    const size_t first = std::is_same<What, alltoall>::value ? bytes / 4 * me_ : 0;
    if (std::is_same<What, reduce>::value) data_.holds_sum(target_, bytes, all_.size());
    if (std::is_same<What, broadcast>::value) data_.holds(target_, bytes, seed_of(0));
    for (int pe = 0; is_from_all && pe < all_.size(); ++pe) data_.holds(target_ + bytes * pe, bytes, seed_of(pe), first);
    data_.ends(target_, received);
  }

  static constexpr int rate_iterations = 1024, rate_warmup = 96;

  elements job(size_t element_bytes) {
    return {target_, source_, window / element_bytes, 1, rate_warmup, rate_iterations, 7, nullptr, clock_.words()};
  }

  void rates() {
    if (o_.wants("p_rate 4")) {
      const int blocks = blocks_of(p_rate);
      const size_t threads = size_t{256} * blocks;
      elements e = job(4);
      e.count = e.count / threads * threads;
      const size_t received = std::min<size_t>(threads * rate_iterations, e.count) * 4;
      data_.clear(target_, received);
      row(
          "p_rate 4", "", me_ == 0, double(threads) * rate_iterations, [&] { return timed(p_rate, blocks, 256, e); },
          [&] {
            if (me_ != 1) return;
            data_.holds(target_, received, e.seed);
            data_.ends(target_, received);
          });
    }
    if (o_.wants("g_rate 4")) {
      const int blocks = blocks_of(g_rate);
      elements e = job(4);
      BESIDE_CUDA(cudaMalloc(&e.sums, size_t{256} * blocks * sizeof *e.sums));
      data_.fill(source_, window, seed_of(me_));
      row(
          "g_rate 4", "", me_ == 0, 256.0 * blocks * rate_iterations, [&] { return timed(g_rate, blocks, 256, e); },
          [&] {
            if (me_ == 0) sums_hold<<<blocks, 256>>>(e, seed_of(1), data_.wrong());
          });
      BESIDE_CUDA(cudaFree(e.sums));
    }
  }

  template <class T> void atomics() {
    const std::string name = "atomic_inc " + size_name(sizeof(T));
    if (!o_.wants(name)) return;
    const int blocks = blocks_of(atomic_rate<T>);
    elements e = job(sizeof(T));
    data_.clear(target_, window);
    BESIDE_CUDA(cudaMemset(source_, untouched & 0xff, window));
    row(
        name, "", me_ == 0, 256.0 * blocks * rate_iterations, [&] { return timed(atomic_rate<T>, blocks, 256, e); },
        [&] {
          if (me_ != 1) return;
          e.target = source_;
          replay<T><<<blocks, 256>>>(e);
          data_.same(source_, target_, window);
          data_.ends(target_, window);
        });
  }

  const options& o_;
  group& all_;
  const int me_;
  int sharing_ = 1, tma_bytes_ = 0;
  // Chooses this PE's GPU, before members with memory on it.
  const int processors_ = join();
  char *source_ = nullptr, *target_ = nullptr;
  uint64_t* flag_ = nullptr;
  kernel_clock clock_;
  stream_clock on_stream_;
  verifier data_;
};

}  // namespace
}  // namespace beside

int main(int argc, char** argv) {
  const beside::options o(argc, argv);
  if (o.tma && !BESIDE_HAS_TMA) {
    beside::fail("--tma: NVSHMEM %d.%d has no copies by TMA; use 3.7 or newer", NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION);
  }
  setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
  setenv("NVSHMEM_DISABLE_NCCL", "1", 1);
  setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
  setenv("NVSHMEM_SYMMETRIC_SIZE", "1G", 0);
  if (o.tma) setenv("NVSHMEM_TMA_POLICY", "ENABLE", 1);
  return beside::run_processes(o, [&](beside::group& all, int me) { beside::bench(o, all, me).run(); });
}
