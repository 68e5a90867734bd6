// Collectives of NCCL, many in a CUDA graph, so that launches are in no figure. Compiled and started by compare.py:
//
//   nccl-2.32.3 [--pes N] [--limit SECONDS] [--row NAME]...
//
// Prints one line of JSON for each row and way: nanoseconds of one operation, and the number of wrong values. All data is checked. NVLink
// multicast is off. Symmetric windows, which NCCL has since 2.27, are a way of their own.
#include <nccl.h>

#include "verify.cuh"

#define BESIDE_NCCL(CALL) beside::nccl_succeeds((CALL), #CALL, __LINE__)
#define BESIDE_HAS_WINDOWS (NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0))
#define BESIDE_HAS_ALLTOALL (NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0))

namespace beside {
namespace {

constexpr uint32_t source_seed = 100;
constexpr size_t largest = 16 << 20;

inline void nccl_succeeds(ncclResult_t result, const char* call, int line) {
  if (result != ncclSuccess) fail("nccl.cu:%d: %s: %s; NCCL_DEBUG=WARN tells more", line, call, ncclGetErrorString(result));
}

enum class what { reduce, alltoall, fcollect, broadcast };

struct measured {
  what operation;
  const char* name;
  size_t bytes;
};
constexpr measured rows[] = {
    {what::reduce, "reduce", 8},
    {what::reduce, "reduce", 64 << 10},
    {what::reduce, "reduce", largest},
    {what::alltoall, "alltoall", 64 << 10},
    {what::alltoall, "alltoall", largest},
    {what::fcollect, "fcollect", 64 << 10},
    {what::fcollect, "fcollect", largest},
    {what::broadcast, "broadcast", 64 << 10},
    {what::broadcast, "broadcast", largest},
};

class bench {
 public:
  bench(const options& o, group& all, int me) : o_(o), all_(all), me_(me) {
    BESIDE_NCCL(ncclMemAlloc(&source_, span()));
    BESIDE_NCCL(ncclMemAlloc(&target_, span() + guard));
  }
  bench(const bench&) = delete;
  ~bench() {
    BESIDE_NCCL(ncclCommDestroy(comm_));
    BESIDE_NCCL(ncclMemFree(target_));
    BESIDE_NCCL(ncclMemFree(source_));
  }

  void run() {
    for (const measured& m : rows) row(m, "graph");
#if BESIDE_HAS_WINDOWS
    ncclWindow_t windows[2];
    BESIDE_NCCL(ncclCommWindowRegister(comm_, source_, span(), &windows[0], NCCL_WIN_COLL_SYMMETRIC));
    BESIDE_NCCL(ncclCommWindowRegister(comm_, target_, span() + guard, &windows[1], NCCL_WIN_COLL_SYMMETRIC));
    for (const measured& m : rows) row(m, "graph, windows");
    for (ncclWindow_t window : windows) BESIDE_NCCL(ncclCommWindowDeregister(comm_, window));
#endif
  }

 private:
  // Chooses this PE's GPU, and makes a communicator of all.
  ncclComm_t join() {
    int gpus = 0;
    BESIDE_CUDA(cudaGetDeviceCount(&gpus));
    if (gpus < all_.size()) fail("NCCL needs a GPU for each rank: there are %d GPUs for %d; give fewer --pes", gpus, all_.size());
    BESIDE_CUDA(cudaSetDevice(me_));
    ncclUniqueId id;
    if (me_ == 0) BESIDE_NCCL(ncclGetUniqueId(&id));
    all_.broadcast(me_, &id, sizeof id);
    ncclComm_t comm;
    BESIDE_NCCL(ncclCommInitRank(&comm, all_.size(), id, me_));
    int version;
    BESIDE_NCCL(ncclGetVersion(&version));
    if (me_ == 0) {
      printf("{\"library\": \"NCCL\", \"version\": \"%d.%d.%d\", \"pes\": %d, \"gpus\": %d}\n", version / 10000, version / 100 % 100,
             version % 100, all_.size(), all_.size());
      fflush(stdout);
    }
    return comm;
  }

  size_t span() const { return largest * all_.size(); }
  uint32_t seed_of(int pe) const { return source_seed + pe; }

  void row(const measured& m, const char* way) {
    const std::string name = std::string(m.name) + " " + size_name(m.bytes);
    if (!o_.wants(name)) return;
    if (m.operation == what::reduce) data_.fill_for_sum(source_, m.bytes, me_);
    if (m.operation != what::reduce) data_.fill(source_, m.operation == what::alltoall ? m.bytes * all_.size() : m.bytes, seed_of(me_));
    const bool is_from_all = m.operation == what::alltoall || m.operation == what::fcollect;
    const size_t received = is_from_all ? m.bytes * all_.size() : m.bytes;
    data_.clear(target_, received);
    BESIDE_CUDA(cudaDeviceSynchronize());
    all_.barrier();
    const double ns = timed(m);
    const size_t first = m.operation == what::alltoall ? m.bytes / 4 * me_ : 0;
    if (m.operation == what::reduce) data_.holds_sum(target_, m.bytes, all_.size());
    if (m.operation == what::broadcast) data_.holds(target_, m.bytes, seed_of(0));
    for (int pe = 0; is_from_all && pe < all_.size(); ++pe) {
      data_.holds(static_cast<char*>(target_) + m.bytes * pe, m.bytes, seed_of(pe), first);
    }
    data_.ends(target_, received);
    all_.row(me_, name, way, ns, data_.take());
  }

  // Returns the nanoseconds of one operation, of many in a graph that is launched twice.
  double timed(const measured& m) {
    const int operations = m.bytes > 1 << 20 ? 50 : 200;
    cudaStream_t stream = clock_.stream();
    enqueue(m, stream);
    BESIDE_CUDA(cudaStreamSynchronize(stream));
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    BESIDE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < operations; ++i) enqueue(m, stream);
    BESIDE_CUDA(cudaStreamEndCapture(stream, &graph));
    BESIDE_CUDA(cudaGraphInstantiate(&ready, graph, 0));
    // The first launch aligns the ranks: none waits for another one inside the timed launch.
    BESIDE_CUDA(cudaGraphLaunch(ready, stream));
    clock_.start();
    BESIDE_CUDA(cudaGraphLaunch(ready, stream));
    const double ns = clock_.ns();
    all_.barrier();
    BESIDE_CUDA(cudaGraphExecDestroy(ready));
    BESIDE_CUDA(cudaGraphDestroy(graph));
    return ns / operations;
  }

  void enqueue(const measured& m, cudaStream_t stream) {
    const size_t n = m.bytes / sizeof(float);
    switch (m.operation) {
      case what::reduce: return BESIDE_NCCL(ncclAllReduce(source_, target_, n, ncclFloat, ncclSum, comm_, stream));
      case what::fcollect: return BESIDE_NCCL(ncclAllGather(source_, target_, n, ncclFloat, comm_, stream));
      case what::broadcast: return BESIDE_NCCL(ncclBroadcast(source_, target_, n, ncclFloat, 0, comm_, stream));
      case what::alltoall: return exchange(n, stream);
    }
  }

  void exchange(size_t n, cudaStream_t stream) {
#if BESIDE_HAS_ALLTOALL
    BESIDE_NCCL(ncclAlltoAll(source_, target_, n, ncclFloat, comm_, stream));
#else
    BESIDE_NCCL(ncclGroupStart());
    for (int pe = 0; pe < all_.size(); ++pe) {
      BESIDE_NCCL(ncclSend(static_cast<float*>(source_) + n * pe, n, ncclFloat, pe, comm_, stream));
      BESIDE_NCCL(ncclRecv(static_cast<float*>(target_) + n * pe, n, ncclFloat, pe, comm_, stream));
    }
    BESIDE_NCCL(ncclGroupEnd());
#endif
  }

  const options& o_;
  group& all_;
  const int me_;
  // Before members with memory on the GPU.
  const ncclComm_t comm_ = join();
  void *source_ = nullptr, *target_ = nullptr;
  stream_clock clock_;
  verifier data_;
};

}  // namespace
}  // namespace beside

int main(int argc, char** argv) {
  const beside::options o(argc, argv);
  if (o.tma) beside::fail("--tma is an option of the programs with NVSHMEM");
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  return beside::run_processes(o, [&](beside::group& all, int me) { beside::bench(o, all, me).run(); });
}
