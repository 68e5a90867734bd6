// Status words: the outcome of an operation in one 32-bit word, which the host decodes.
//
//   bits 31:28  kind      (wb_kind)
//   bits 14:0   NVMe status field without the phase bit, for WB_DEVICE_ERROR:
//               bits 7:0 status code, 10:8 status code type, 12:11 CRD, 13 more, 14 do not retry
//               (NVMe Base Specification 2.1, 4.2.3, completion dword 3 bits 31:17)
//   bits 15:0   vendor syndrome (15:8) and syndrome (7:0) of the completion, for WB_NETWORK_ERROR (mlx5/cqe.cuh)
#pragma once

#include "standard.h"

enum wb_kind {
  WB_DONE = 0,           // success
  WB_PENDING = 1,        // in flight; only `test` returns this
  WB_DEVICE_ERROR = 2,   // the device rejected or failed the command; the status field has the reason
  WB_TIMED_OUT = 3,      // no completion within the deadline
  WB_STOPPED = 4,        // the host set the stop flag, or another thread raised the run's error
  WB_NO_FRAME = 5,       // every frame of the page's set stayed pinned for the whole deadline
  WB_BAD_ARGUMENT = 6,   // outside the volume or array, misaligned, or larger than one command may transfer
  WB_POISONED = 7,       // an earlier read of the page failed; the error log has the first failure
  WB_UNREACHABLE = 8,    // no transport supports this operation with that PE
  WB_NETWORK_ERROR = 9,  // the RDMA adapter failed the work request; the syndrome has the reason
  WB_DAMAGED = 10        // a page does not match its stored checksum, on repeated reads too
};

// Calls of shmem.cuh, as the `opcode` of a wb_error names them. All values are at least WB_SHMEM_OPCODE (abi.h).
enum wb_shmem_call {
  WB_CALL_PUT = 0x100,
  WB_CALL_GET = 0x101,
  WB_CALL_SIGNAL = 0x102,  // signal_op, and the signal of put_signal
  WB_CALL_ATOMIC = 0x103,
  WB_CALL_WAIT = 0x104,  // wait_until in all its forms, and signal_wait_until
  WB_CALL_QUIET = 0x105,
  WB_CALL_BARRIER = 0x106,  // barrier and sync
  WB_CALL_BROADCAST = 0x107,
  WB_CALL_REDUCE = 0x108,
  WB_CALL_FCOLLECT = 0x109,
  WB_CALL_ALLTOALL = 0x10a,
  WB_CALL_FLUSH = 0x10b,
  WB_CALL_WINDOW_PUT = 0x10c,  // put and p to a registered window; the offset is one in the window
  WB_CALL_WINDOW_GET = 0x10d
};

#define WB_STATUS_KIND_SHIFT 28
#define WB_STATUS_NVME_MASK 0x7fffu
#define WB_STATUS_SYNDROME_MASK 0xffffu
