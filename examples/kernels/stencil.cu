// Kernel for heat on a plate: each point becomes the mean of its four neighbours, step after step, all steps in one launch. The
// plate's rows are partitioned over the PEs. The owners of neighbouring rows put these rows to the PEs that need them, from inside
// the kernel.
//
// A PE keeps two planes of rows + 2 rows of `cols` points: one is read while the other is written, in turn. Row 0 and row rows + 1
// are the neighbours' (or the plate's edge). A neighbour's row may be overwritten one step after it was read: its owner puts it
// only after the signal that the reader sent after reading.
//
// Launch shape: all blocks resident, since they wait for each other between steps. The host launches no more than the machine
// holds.
#include <warpbell/kernel.h>
#include <warpbell/shmem.cuh>

namespace stencil_example {

using namespace warpbell;

// Waits until all blocks have arrived `turn` times. Their stores before are visible afterwards.
WB_FN void blocks_meet(const world_ref& w, uint32_t* arrived, uint32_t turn) {
  __syncthreads();
  if (threadIdx.x == 0) {
    order::fetch_add<order::acq_rel>(arrived, 1u);
    deadline p(w.control());
    while (order::load<order::acquire>(arrived) < turn * gridDim.x) {
      if (wait_status v = p.expired(); v != wait_status::go_on) {
        w.fail(WB_CALL_WAIT, status_word(v), arrived, sizeof *arrived, w.my_pe());
        break;
      }
    }
  }
  __syncthreads();
}

// Updates one row, by the threads of the block; always with the same additions in the same order.
WB_FN void update(double* to, const double* from, uint32_t row, uint32_t cols) {
  const double *here = from + uint64_t{row} * cols, *above = here - cols, *below = here + cols;
  for (uint32_t c = 1 + threadIdx.x; c + 1 < cols; c += blockDim.x) {
    to[uint64_t{row} * cols + c] = ((above[c] + below[c]) + (here[c - 1] + here[c + 1])) * 0.25;
  }
}

}  // namespace stencil_example

// `came[0]` counts the rows that came from the PE above, `came[1]` those from below.
WB_KERNEL void stencil(WB_PARAM warpbell::world_ref w, WB_PARAM warpbell::sym<double> planes, WB_PARAM warpbell::sym<uint64_t> came,
                       uint32_t* arrived, WB_PARAM uint32_t rows, WB_PARAM uint32_t rows_above, WB_PARAM uint32_t plane_rows,
                       WB_PARAM uint32_t cols, WB_PARAM uint32_t steps) {
  using namespace stencil_example;
  const uint32_t me = w.my_pe();
  const bool above = me > 0, below = me + 1 < w.n_pes();
  const uint32_t first = 1 + static_cast<uint32_t>(uint64_t{rows} * blockIdx.x / gridDim.x);
  const uint32_t last = 1 + static_cast<uint32_t>(uint64_t{rows} * (blockIdx.x + 1) / gridDim.x);
  const bool top = first == 1 && first < last, bottom = last == rows + 1 && first < last;
  const uint64_t plane = uint64_t{plane_rows} * cols;

  for (uint32_t s = 0; s < steps; ++s) {
    double* from = planes.here + s % 2 * plane;
    double* to = planes.here + (s + 1) % 2 * plane;
    if (threadIdx.x == 0) {
      // If a wait fails, the run has failed: its results are discarded, and every later wait ends at once.
      if (top && above) w.signal_wait_until(came.here, cmp::ge, uint64_t{s});
      if (bottom && below) w.signal_wait_until(came.here + 1, cmp::ge, uint64_t{s});
    }
    __syncthreads();
    // The rows that other PEs wait for come first.
    if (top) {
      update(to, from, 1, cols);
      __syncthreads();
      if (above) w.put_signal(by_block, to + (rows_above + 1) * uint64_t{cols}, to + cols, cols, came.here + 1, s + 1, signal::set, me - 1);
    }
    if (bottom) {
      if (!top || rows > 1) update(to, from, rows, cols);
      __syncthreads();
      if (below) w.put_signal(by_block, to, to + rows * uint64_t{cols}, cols, came.here, s + 1, signal::set, me + 1);
    }
    for (uint32_t r = top ? 2 : first; r < (bottom ? rows : last); ++r) update(to, from, r, cols);
    blocks_meet(w, arrived, s + 1);
  }
}
WB_EXPORT(stencil)
