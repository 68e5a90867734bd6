// Kernels of a program that takes the handles of volumes, arrays and worlds as plain structures and launches its kernels itself.
// Launch shape: any grid of whole warps, and one block for embedding_pass.
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>
#include <warpbell/volume.cuh>

// Reads blocks `first` to `first + n` to memory of the program, a block for each thread at a time.
WB_KERNEL void embedding_read(WB_PARAM wb_volume_view view, uint64_t first, uint64_t n, uint8_t* to) {
  using namespace warpbell;
  const volume_ref volume(view);
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) {
    const status s = volume.wait(volume.read_async(first + i, 1, to + (i << volume.block_shift())));
    if (!s) return volume.fail(s);
  }
}
WB_EXPORT(embedding_read)

WB_KERNEL void embedding_sum(WB_PARAM wb_array_view view, uint64_t* sum) {
  using namespace warpbell;
  const array_ref<uint32_t> numbers(view);
  auto a = numbers.open();
  uint64_t mine = 0;
  for (uint64_t i = warp::thread_index(); i < a.size(); i += warp::thread_total()) mine += a[i];
  order::fetch_add<order::relaxed>(sum, mine);
}
WB_EXPORT(embedding_sum)

// Puts `value` to the next PE of the world, and waits until the PE before has put its own.
WB_KERNEL void embedding_pass(WB_PARAM wb_world world_view, WB_PARAM wb_team_view team_view, uint64_t* inbox, uint64_t value) {
  using namespace warpbell;
  const world_ref world(world_view);
  const team_ref team(team_view);
  if (warp::thread_index() == 0) world.p(inbox, value, (world.my_pe() + 1) % world.n_pes());
  team.barrier(by_block);
}
WB_EXPORT(embedding_pass)

WB_IMAGE(warpbell_embedding)

#if WB_GPU
// The host part of the program. References that the host makes are parameters too.
__global__ void embedding_all(WB_PARAM warpbell::volume_ref volume, WB_PARAM warpbell::array_ref<uint32_t> numbers,
                              WB_PARAM warpbell::world_ref world, WB_PARAM warpbell::team_ref team, uint64_t* out) {
  out[0] = volume.blocks() + numbers.size() + world.n_pes() + team.n_pes();
}

extern "C" void embedding_launch(cudaStream_t stream, wb_volume_view volume, wb_array_view numbers, wb_world world, wb_team_view team,
                                 uint64_t* out) {
  embedding_sum<<<1, 32, 0, stream>>>(numbers, out);
  embedding_all<<<1, 32, 0, stream>>>(warpbell::volume_ref(volume), warpbell::array_ref<uint32_t>(numbers), warpbell::world_ref(world),
                                      warpbell::team_ref(team), out);
}
#else
// Calls embedding_read on the calling thread.
extern "C" void embedding_read_here(wb_volume_view view, uint64_t first, uint64_t n, uint8_t* to) {
  void* parameters[] = {&view, &first, &n, &to};
  warpbell::cpu::run_block(&warpbell::cpu::caller<&embedding_read>::call, parameters, 0, 1, warpbell::warp::width);
}
#endif
