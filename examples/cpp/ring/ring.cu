// A token goes around a ring of MPI ranks, each of which is a PE with a GPU or with CPU threads. Kernels pass it on by themselves:
// each puts it into the memory of the next PE, behind it a signal, and waits for the signal of the PE before.
//
// With CPU threads, and with GPUs (SDK is where warpbell is installed; all ranks print `correct`):
//
//   mpicxx -x c++ -std=c++20 -O2 -pthread -I $SDK/include -o ring ring.cu -x none -L $SDK/lib -lwarpbell -Wl,-rpath,$SDK/lib
//   nvcc -ccbin mpicxx -std=c++17 -O2 -arch=native -I $SDK/include -o ring ring.cu -L $SDK/lib -lwarpbell -Xlinker -rpath=$SDK/lib
//   mpirun -n 4 ./ring
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <warpbell.h>
#include <warpbell/kernel.h>
#include <warpbell/mpi.h>
#include <warpbell/shmem.cuh>

// Passes the token on `rounds` times. Every PE adds 1 to it, so PE 0 knows what comes back. `wrong` counts other values.
// Launch shape: one warp.
WB_KERNEL void ring_pass(WB_PARAM wb_world view, WB_PARAM warpbell::sym<uint64_t> token, WB_PARAM warpbell::sym<uint64_t> arrived,
                         uint64_t* wrong, WB_PARAM uint64_t rounds) {
  using namespace warpbell;
  const world_ref world(view);
  if (warp::thread_index() != 0) return;
  const uint32_t me = world.my_pe(), pes = world.n_pes(), next = (me + 1) % pes;
  uint64_t value = 0;
  for (uint64_t round = 1; round <= rounds; ++round) {
    if (me == 0) {
      ++value;
      world.put_signal(token, &value, 1, arrived, round, signal::set, next);
    }
    if (!world.signal_wait_until(arrived, cmp::ge, round)) return;
    const uint64_t expected = (round - 1) * pes + (me == 0 ? pes : me);
    if (*token.here != expected) ++*wrong;
    value = *token.here;
    if (me != 0) {
      ++value;
      world.put_signal(token, &value, 1, arrived, round, signal::set, next);
    }
  }
}
WB_EXPORT(ring_pass)

#if !WB_GPU
// The engine on CPU threads finds the kernel in this image. On a GPU the program launches the kernel itself.
WB_IMAGE(ring_image)
#endif

namespace {

void check(wb_code code, const char* call) {
  if (code != WB_OK) throw std::runtime_error(std::string(call) + ": " + wb_code_name(code) + ": " + wb_last_error());
}
#define CHECK(call) check(call, #call)

// Opens this rank's GPU, or CPU threads with the kernel above.
wb_engine_t* open_engine(int rank_on_host) {
  wb_engine_options options = {};
  options.size = sizeof(options);
#if WB_GPU
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) throw std::runtime_error("no GPU: compile for CPU threads");
  options.kind = WB_ENGINE_GPU;
  options.gpu = static_cast<uint32_t>(rank_on_host % gpus);
  if (cudaSetDevice(static_cast<int>(options.gpu)) != cudaSuccess) throw std::runtime_error("cudaSetDevice failed");
#else
  static_cast<void>(rank_on_host);
  wb_image image = {};
  image.size = sizeof(image);
  image.name = "ring";
  image.cpu = []() -> const void* { return ring_image(); };
  const wb_image* images[] = {&image};
  options.kind = WB_ENGINE_CPU;
  options.threads = 1;
  options.images = images;
  options.image_count = 1;
#endif
  wb_engine_t* engine = nullptr;
  CHECK(wb_engine_open(&options, &engine));
  return engine;
}

// Passes the token around, and returns the number of wrong values that this rank has seen.
uint64_t pass_around(wb_engine_t* engine, wb_world_t* world, uint64_t rounds) {
  wb_world view;
  CHECK(wb_world_get_view(world, &view));
  wb_symmetric_t *token = nullptr, *arrived = nullptr;
  CHECK(wb_symmetric_allocate(world, sizeof(uint64_t), 0, &token));
  CHECK(wb_symmetric_allocate(world, sizeof(uint64_t), 0, &arrived));
  wb_region_t* wrong = nullptr;
  CHECK(wb_region_allocate(engine, WB_PLACE_DEVICE, sizeof(uint64_t), &wrong));
  void *token_at = nullptr, *arrived_at = nullptr, *wrong_at = nullptr;
  CHECK(wb_symmetric_address(token, &token_at));
  CHECK(wb_symmetric_address(arrived, &arrived_at));
  CHECK(wb_region_address(wrong, &wrong_at));

  wb_run_t* run = nullptr;
#if WB_GPU
  // The program's own launch on its own stream. The run reports errors of the kernel's operations.
  cudaStream_t own = nullptr;
  if (cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) != cudaSuccess) throw std::runtime_error("no CUDA stream");
  wb_stream_t* stream = nullptr;
  CHECK(wb_stream_adopt(engine, own, nullptr, nullptr, &stream));
  CHECK(wb_run_begin(engine, "ring_pass", stream, &run));
  const void* const used[] = {world, token, arrived, wrong};
  for (const void* handle : used) CHECK(wb_run_keep(run, handle));
  ring_pass<<<1, 32, 0, own>>>(view, {static_cast<uint64_t*>(token_at)}, {static_cast<uint64_t*>(arrived_at)},
                               static_cast<uint64_t*>(wrong_at), rounds);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("the kernel cannot be launched");
#else
  const wb_argument arguments[] = {{&view, sizeof(view), world},
                                   {&token_at, sizeof(token_at), token},
                                   {&arrived_at, sizeof(arrived_at), arrived},
                                   {&wrong_at, sizeof(wrong_at), wrong},
                                   {&rounds, sizeof(rounds), nullptr}};
  wb_grid grid;
  CHECK(wb_engine_grid(engine, 1, 1, &grid));
  grid.blocks = 1;
  CHECK(wb_launch(engine, "ring_pass", grid, arguments, 5, &run));
#endif
  CHECK(wb_run_finish(run, 0, nullptr));
  wb_run_release(run);
#if WB_GPU
  wb_stream_release(stream);
  cudaStreamDestroy(own);
#endif
  uint64_t found = 0, last = 0;
  CHECK(wb_region_read(wrong, 0, &found, sizeof(found)));
  CHECK(wb_symmetric_read(arrived, 0, &last, sizeof(last)));
  wb_region_release(wrong);
  wb_symmetric_release(token);
  wb_symmetric_release(arrived);
  return last == rounds ? found : found + 1;
}

void work(int rank, int rank_on_host, const wb_world_options& options, uint64_t rounds) {
  wb_engine_t* engine = open_engine(rank_on_host);
  wb_world_t* world = nullptr;
  CHECK(wb_world_create(engine, &options, &world));
  const uint64_t wrong = pass_around(engine, world, rounds);
  wb_world_release(world);
  wb_engine_release(engine);
  if (wrong != 0) throw std::runtime_error(std::to_string(wrong) + " wrong tokens");
  std::printf("rank %d of %u: %llu rounds, correct\n", rank, options.ranks, static_cast<unsigned long long>(rounds));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, rank_on_host = 0, failed = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm host, own;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &rank_on_host);
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  wb_mpi mpi = {own, 60};
  wb_world_options options = {};
  options.size = sizeof(options);
  try {
    if (wb_mpi_options(&mpi, &options) != 0) throw std::runtime_error("MPI cannot tell the ranks");
    work(rank, rank_on_host, options, argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    failed = 1;
  }
  // The others would wait for a rank that has failed.
  if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Comm_free(&own);
  MPI_Comm_free(&host);
  MPI_Finalize();
  return 0;
}
