// A world over MPI: each rank passes bytes to the next, and all give up together on a rank that does not come.
#include <mpi.h>
#include <warpbell/mpi.h>

#include "check.h"

// Ranks that do not take part in an exchange are given up after the time of the wb_mpi, in a communicator of its own.
static void absent(int rank) {
  MPI_Comm own;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  wb_mpi mpi = {own, 0.2};
  char one = 1, all[64];
  if (rank != 0) CHECK(wb_mpi_allgather(&mpi, &one, 1, all) == WB_MPI_TIMED_OUT);
  MPI_Barrier(MPI_COMM_WORLD);
  // Rank 0 comes late: the exchange that was given up completes, as MPI demands before it ends.
  if (rank == 0) {
    mpi.seconds = 60;
    CHECK(wb_mpi_allgather(&mpi, &one, 1, all) == 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm own;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  wb_mpi mpi = {own, 60};
  wb_world_options options = {.size = sizeof(options), .heap_bytes = 1 << 20, .timeout = 60};
  CHECK(wb_mpi_options(&mpi, &options) == 0);
  CHECK(options.rank == (uint32_t)rank && options.ranks == (uint32_t)ranks);

  const wb_engine_options on_cpu = {.size = sizeof(on_cpu), .kind = WB_ENGINE_CPU, .threads = 1};
  wb_engine_t* engine = NULL;
  wb_world_t* world = NULL;
  OK(wb_engine_open(&on_cpu, &engine));
  OK(wb_engine_set_deadline(engine, 60));
  const uint32_t transports[] = {WB_TRANSPORT_PEER, WB_TRANSPORT_SOFT};
  for (int i = 0; i < 2; ++i) {
    // Software NICs authenticate each other with a secret that the exchange has passed on.
    options.transport = transports[i];
    OK(wb_world_create(engine, &options, &world));
    char* info = NULL;
    OK(wb_world_info(world, &info));
    CHECK(strstr(info, "the program's allgather") != NULL);
    wb_string_free(info);
    wb_symmetric_t* inbox = NULL;
    OK(wb_symmetric_allocate(world, 8, 0, &inbox));
    const uint64_t value = 100 + (uint64_t)rank;
    OK(wb_symmetric_put(inbox, 0, &value, 8, (uint32_t)((rank + 1) % ranks)));
    OK(wb_world_barrier_all(world, NULL));
    uint64_t found = 0;
    OK(wb_symmetric_read(inbox, 0, &found, 8));
    CHECK(found == 100 + (uint64_t)((rank + ranks - 1) % ranks));
    wb_symmetric_release(inbox);
    wb_world_release(world);
  }
  wb_engine_release(engine);
  MPI_Comm_free(&own);
  if (ranks > 1) absent(rank);
  MPI_Finalize();
  if (rank == 0) puts("ok");
  return 0;
}
