// Errors of operations: status words, and the error log that the host reads.
#pragma once

#include <warpbell/clock.cuh>
#include <warpbell/order.cuh>
#include <warpbell/status.h>

namespace warpbell {

/// @brief Returns the status word (status.h) of a kind, with `nvme` as the NVMe status field. One thread calls this.
WB_FN uint32_t status_word(wb_kind kind, uint32_t nvme = 0) {
  return static_cast<uint32_t>(kind) << WB_STATUS_KIND_SHIFT | (nvme & WB_STATUS_NVME_MASK);
}
/// @brief Returns the status word of an expired or stopped wait. `v` is not `wait_status::go_on`. One thread calls this.
WB_FN uint32_t status_word(wait_status v) { return status_word(v == wait_status::timed_out ? WB_TIMED_OUT : WB_STOPPED); }

/// @brief Appends an error to the run's log, and fails the run. All waits of the run soon end with WB_STOPPED. One thread calls
/// this.
///
/// The log keeps the first WB_ERROR_LOG_ENTRIES errors and counts the rest. An entry is published to the host by a release store of
/// its `ready` word (scope system). The abort flag is a release store on scope device.
WB_FN void enter_error(const wb_control* control, const wb_error& error) {
  wb_error_log* log = control->error_log;
  uint32_t i = order::fetch_add<order::relaxed>(&log->count, 1u);
  if (i < WB_ERROR_LOG_ENTRIES) {
    wb_error* e = &log->entry[i];
    order::store<order::relaxed, order::system>(&e->status, error.status);
    order::store<order::relaxed, order::system>(&e->device, error.device);
    order::store<order::relaxed, order::system>(&e->queue, error.queue);
    order::store<order::relaxed, order::system>(&e->command, error.command);
    order::store<order::relaxed, order::system>(&e->opcode, error.opcode);
    order::store<order::relaxed, order::system>(&e->blocks, error.blocks);
    order::store<order::relaxed, order::system>(&e->lba, error.lba);
    order::store<order::release, order::system>(&log->ready[i], 1u);
  }
  order::store<order::release>(control->abort, 1u);
}
/// @brief Calls `enter_error` out of line, for callers that are short of registers. One thread calls this.
WB_FN_COLD void raise_error(const wb_control* control, by_value<wb_error> error) { enter_error(control, error); }

}  // namespace warpbell
