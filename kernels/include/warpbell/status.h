// How an operation ended, in one 32-bit word that the host decodes.
//
//   bits 31:28  kind      (wb_kind)
//   bits 14:0   NVMe status field without the phase bit, for WB_DEVICE_ERROR:
//               bits 7:0 status code, 10:8 status code type, 12:11 CRD, 13 more, 14 do not retry
//               (NVMe Base Specification 2.1, 4.2.3, completion dword 3 bits 31:17)
#pragma once

#include <stdint.h>

enum wb_kind {
  WB_DONE = 0,          // success
  WB_PENDING = 1,       // not finished; only `test` answers this
  WB_DEVICE_ERROR = 2,  // the device refused or failed the command; the status field says why
  WB_TIMED_OUT = 3,     // no completion within the deadline
  WB_STOPPED = 4,       // the host asked all waits to end, or another thread raised the run's error
  WB_NO_FRAME = 5,      // every frame of the page's set stayed pinned for the whole deadline
  WB_BAD_ARGUMENT = 6,  // outside the volume or array, misaligned, or larger than one command may move
  WB_POISONED = 7       // the page could not be read earlier; the first failure is in the error log
};

#define WB_STATUS_KIND_SHIFT 28
#define WB_STATUS_NVME_MASK 0x7fffu
