// The parts of volume_ref that a run seldom executes: error handling of replicated volumes, and the mark that precedes the first
// change of stored arrays. volume.cuh includes this file at its end.
#pragma once

#include <warpbell/volume.cuh>

namespace warpbell {

// Writes to every copy that is in use. Returns WB_DONE if at least one copy took the write. Copies that failed are then taken out
// of use. `turn` and `ticket` name the copy that failed last. Collective.
WB_FN uint32_t volume_ref::write_copies(warp::mask_t mask, bool wants, uint64_t block, uint32_t n, uint64_t buffer, uint32_t& turn,
                                        uint32_t& ticket) const {
  uint32_t word = WB_DONE, failed = 0;
  bool taken = false;
  for (uint32_t i = 0; i < v_->device_count; ++i) {
    const place at = wants ? locate(block, i) : place{0, 0, 0, true};
    const bool goes = wants && at.room != 0;
    if (wants && !goes) order::store<order::relaxed>(&v_->device[at.device].missed, 1u);
    uint32_t one = 0;
    const uint32_t ended = move(mask, goes, nvme::op_write, block, n, buffer, i, one);
    if (!goes) continue;
    if (ended == WB_DONE) {
      taken = true;
    } else {
      word = ended;
      turn = i;
      ticket = one;
      if (is_of_device(ended)) failed |= 1u << at.device;
    }
  }
  if (!taken || word == WB_DONE || !is_of_device(word)) return word;
  for (; failed; failed &= failed - 1) {
    const uint32_t device = warp::first(failed);
    if (!drop(device)) return word;
    order::store<order::relaxed>(&v_->device[device].missed, 1u);
  }
  return WB_DONE;
}

// Repeats a read on the other copies after the copy of `turn` failed with `word`. One lane calls this alone. Returns the status
// word of the copy that `turn` and `ticket` then name.
WB_FN_COLD uint32_t volume_ref::read_elsewhere(by_value<volume_ref> v, uint64_t block, uint32_t n, uint64_t buffer, uint32_t word,
                                               uint32_t& turn, uint32_t& ticket) {
  const uint32_t devices = v.v_->device_count, first = turn;
  uint32_t damaged = 0;
  for (uint32_t i = 1; word != WB_DONE; ++i) {
    const uint32_t device = v.locate(block, turn).device;
    if (!is_of_device(word)) return word;
    if (word >> WB_STATUS_KIND_SHIFT == WB_DEVICE_ERROR) damaged |= 1u << device;
    else if (!v.leave_out(device)) return word;
    while (i < devices && v.locate(block, (first + i) % devices).room == 0) ++i;
    if (i >= devices) return word;
    turn = (first + i) % devices;
    word = v.move(self(), true, nvme::op_read, block, n, buffer, turn, ticket);
  }
  order::add<order::relaxed>(&v.stats()->redirects, uint64_t{1});
  for (; damaged; damaged &= damaged - 1) v.enter_repair(warp::first(damaged), block, n);
  return WB_DONE;
}

WB_FN_COLD void volume_ref::redirected(uint32_t device, uint64_t block, uint32_t n) const {
  order::add<order::relaxed>(&stats()->redirects, uint64_t{1});
  enter_repair(device, block, n);
}

// Adds blocks that one device failed to return, and another returned, to the list of blocks to be written back.
WB_FN_COLD void volume_ref::enter_repair(uint32_t device, uint64_t block, uint32_t n) const {
  wb_integrity* g = integrity();
  const uint32_t i = order::fetch_add<order::relaxed>(&g->repair_count, 1u);
  if (i >= WB_REPAIRS) return;
  order::store<order::relaxed>(&g->repair[i].lba, block);
  order::store<order::relaxed>(&g->repair[i].device, device);
  order::store<order::relaxed>(&g->repair[i].blocks, n);
}

// Repeats a read that was waited for and failed. One lane calls this alone.
WB_FN_COLD status volume_ref::repeat(by_value<volume_ref> v, by_value<status> s, uint64_t again) {
  if (!is_of_device(s.word) || (s.kind() == WB_TIMED_OUT && !v.leave_out(token{s.origin}.device()))) return s;
  return v.transfer(self(), true, nvme::op_read, s.lba, s.opcode_blocks & WB_RECORD_BLOCKS_MASK, again & ~uint64_t{WB_RECORD_LANDED});
}

// Writes the mark block and flushes it. One lane calls this alone; several threads may do so at the same time.
WB_FN_COLD uint32_t volume_ref::write_mark(by_value<volume_ref> v) {
  wb_integrity* g = v.integrity();
  uint32_t turn = 0, ticket = 0;
  const uint32_t word = v.v_->replicated ? v.write_copies(self(), true, g->mark_block, 1, g->mark_buffer, turn, ticket)
                                         : v.move(self(), true, nvme::op_write, g->mark_block, 1, g->mark_buffer, 0, ticket);
  if (word != WB_DONE) return word;
  const status s = v.flush(self());
  if (s) order::store<order::release>(&g->mark_pending, 0u);
  return s.word;
}

}  // namespace warpbell
