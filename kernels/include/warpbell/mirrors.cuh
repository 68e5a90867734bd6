// The parts of volume_ref that a run seldom executes: error handling of replicated volumes, and the mark that precedes the first
// change of stored arrays. volume.cuh includes this file at its end.
#pragma once

#include <warpbell/volume.cuh>

namespace warpbell {

// Executes one command for each lane with `wants`, as `move`. The parts that a run seldom executes call this, and so need few
// registers themselves. Collective.
WB_FN_COLD uint32_t volume_ref::move_called(by_value<volume_ref> v, warp::mask_t mask, bool wants, io* x) {
  return v.move<true>(mask, wants, *x);
}

WB_FN_COLD void volume_ref::write_called(by_value<volume_ref> v, wb_queue* queue, const io* x, bool is_private, warp::mask_t mask, bool got,
                                         uint32_t ticket) {
  writer{v, queue_ref(queue, v.control()), *x, is_private}(mask, got, ticket);
}

// Writes to every copy that is in use. Returns WB_DONE if at least one copy took the write, and all others failed it. These are then
// taken out of use. `turn` and `ticket` name the copy that failed last, or whose command ended otherwise. Collective.
template <bool called> WB_FN uint32_t volume_ref::write_copies(warp::mask_t mask, bool wants, io& x) const {
  uint32_t word = WB_DONE, failed = 0;
  uint32_t turn = x.turn, ticket = x.ticket;
  bool taken = false;
  for (uint32_t i = 0; i < v_->device_count; ++i) {
    const place at = wants ? locate(x.block, i) : place{0, 0, 0, true};
    const bool goes = wants && at.room != 0;
    if (wants && !goes) order::store<order::relaxed>(&v_->device[at.device].missed, 1u);
    x.turn = i;
    const uint32_t ended = called ? move_called(*this, mask, goes, &x) : move(mask, goes, x);
    if (!goes) continue;
    if (ended == WB_DONE) {
      taken = true;
    } else {
      if (is_of_device(ended)) failed |= 1u << at.device;
      // A copy whose command was not made, or not waited for, stays in use. So the write must not end as done.
      if (word != WB_DONE && !is_of_device(word)) continue;
      word = ended;
      turn = i;
      ticket = x.ticket;
    }
  }
  if (wants && !taken && word == WB_DONE) return no_copy();
  x.turn = turn;
  x.ticket = ticket;
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
  io x{nvme::op_read, n, turn, block, buffer};
  uint32_t damaged = 0;
  for (uint32_t i = 1; word != WB_DONE; ++i) {
    const uint32_t device = v.locate(block, turn).device;
    if (!is_of_device(word)) return word;
    if (word >> WB_STATUS_KIND_SHIFT == WB_DEVICE_ERROR) damaged |= 1u << device;
    else if (!v.leave_out(device)) return word;
    while (i < devices && v.locate(block, (first + i) % devices).room == 0) ++i;
    if (i >= devices) return word;
    turn = x.turn = (first + i) % devices;
    word = v.move(self(), true, x);
    ticket = x.ticket;
  }
  v.redirected(damaged, block, n);
  return WB_DONE;
}

WB_FN_COLD void volume_ref::redirected(uint32_t damaged, uint64_t block, uint32_t n) const {
  order::add<order::relaxed>(&stats()->redirects, uint64_t{1});
  for (; damaged; damaged &= damaged - 1) enter_repair(warp::first(damaged), block, n);
}

// Adds blocks that one device failed to return, and another returned, to the list of blocks to be written back.
WB_FN void volume_ref::enter_repair(uint32_t device, uint64_t block, uint32_t n) const {
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

WB_FN_COLD token volume_ref::end_unsent_page(by_value<volume_ref> v, const io* x, by_value<status> ended) {
  return v.end_unsent<true>(*x, ended);
}

WB_FN bool volume_ref::prepare_page(warp::mask_t mask, bool wants, uint32_t word, uint64_t block, uint32_t n, uint64_t buffer,
                                    uint64_t* tag) const {
  io x{nvme::op_write, n, 0, block, buffer, reinterpret_cast<uint64_t>(tag)};
  if (v_->replicated) {
    const bool goes = wants && word == WB_DONE;
    const uint32_t ended = write_copies<true>(mask, goes, x);
    if (goes) word = ended;
  }
  token t;
  return finish_write(wants, word, x, t);
}

// Writes the mark block and flushes it. One lane calls this alone; several threads may do so at the same time.
WB_FN_COLD uint32_t volume_ref::write_mark(by_value<volume_ref> v) {
  wb_integrity* g = v.integrity();
  io x{nvme::op_write, 1, 0, g->mark_block, g->mark_buffer};
  const uint32_t word = v.v_->replicated ? v.write_copies<true>(self(), true, x) : move_called(v, self(), true, &x);
  if (word != WB_DONE) return word;
  uint32_t ended = WB_DONE;
  for (uint32_t d = 0; d < v.v_->device_count; ++d) {
    if (v.room_on(d) == 0) continue;
    x = io{nvme::op_flush, 0, d, 0, 0};
    const uint32_t one = move_called(v, self(), true, &x);
    if (one == WB_DONE) continue;
    // As in `flush`.
    if (v.v_->replicated && is_of_device(one) && v.drop(d)) order::store<order::relaxed>(&v.v_->device[d].missed, 1u);
    else ended = one;
  }
  if (ended == WB_DONE) order::store<order::release>(&g->mark_pending, 0u);
  else v.count_errors(self(), true);
  return ended;
}

}  // namespace warpbell
