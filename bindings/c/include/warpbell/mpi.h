// Worlds of the ranks of an MPI program: an exchange over a communicator for wb_world_options. C11 and C++17, header only.
// Include it after mpi.h.
//
//   MPI_Comm own;
//   MPI_Comm_dup(MPI_COMM_WORLD, &own);  // so that the library's messages do not mix with the program's
//   wb_mpi mpi = {own, 60};
//   wb_world_options options = {.size = sizeof(options)};
//   wb_mpi_options(&mpi, &options);
//   wb_world_create(engine, &options, &world);
//
// Both `mpi` and the communicator stay until the world is released, and MPI_Finalize comes after that. The library calls MPI on the
// threads that make collective calls of the world: with several threads, MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE is needed.
#pragma once

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <warpbell.h>

#if !defined(MPI_VERSION) || MPI_VERSION < 3
#error "include mpi.h of MPI 3 or newer before warpbell/mpi.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Returned by wb_mpi_allgather if a rank does not take part in time.
#define WB_MPI_TIMED_OUT (-1)
// Returned by wb_mpi_allgather without memory for a copy of the data.
#define WB_MPI_NO_MEMORY (-2)

// A communicator, and the longest time of one exchange in seconds; 0 for none.
typedef struct wb_mpi {
  MPI_Comm communicator;
  double seconds;
} wb_mpi;

// Exchange over a communicator: a wb_allgather_function whose argument is a wb_mpi. Returns 0, an error code of MPI, or one of the
// codes above. MPI's own errors are returned if the communicator has the handler MPI_ERRORS_RETURN; others end the program.
static inline int wb_mpi_allgather(void* argument, const void* bytes, size_t count, void* all) {
  const wb_mpi* mpi = (const wb_mpi*)argument;
  int ranks = 0, code = MPI_Comm_size(mpi->communicator, &ranks);
  if (code != MPI_SUCCESS) return code;
  if (count > INT_MAX) return MPI_ERR_COUNT;
  // An exchange that is given up goes on: its copies have to stay, and are not freed then.
  const size_t total = count * (size_t)ranks;
  char* copy = (char*)malloc(count + total + 1);
  if (copy == NULL) return WB_MPI_NO_MEMORY;
  if (count != 0) memcpy(copy, bytes, count);
  MPI_Request request;
  code = MPI_Iallgather(copy, (int)count, MPI_BYTE, copy + count, (int)count, MPI_BYTE, mpi->communicator, &request);
  const double start = MPI_Wtime();
  int done = 0;
  while (code == MPI_SUCCESS) {
    code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done || code != MPI_SUCCESS) break;
    if (mpi->seconds > 0 && MPI_Wtime() - start > mpi->seconds) return WB_MPI_TIMED_OUT;
  }
  if (code == MPI_SUCCESS && total != 0) memcpy(all, copy + count, total);
  free(copy);
  return code;
}

// Sets the ranks of a communicator and its exchange in the options of a world. Returns 0, or an error code of MPI.
static inline int wb_mpi_options(wb_mpi* mpi, wb_world_options* options) {
  int rank = 0, ranks = 0;
  int code = MPI_Comm_rank(mpi->communicator, &rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(mpi->communicator, &ranks);
  options->rank = (uint32_t)rank;
  options->ranks = (uint32_t)ranks;
  options->allgather = wb_mpi_allgather;
  options->allgather_argument = mpi;
  return code;
}

#ifdef __cplusplus
}
#endif
