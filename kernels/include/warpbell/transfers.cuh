// The parts of volume_ref that submit commands and wait for them: `begin` and `send` for those that are asynchronous, `transfer` and
// `move` for the others, and `flush`. volume.cuh includes this file at its end.
//
// The parts that a run seldom executes, and the page cache, call some of these functions and do not inline them (`called`). Each such
// function needs its own registers only, and a kernel needs the stack of the deepest chain of calls, not that of one large function.
#pragma once

#include <warpbell/volume.cuh>

namespace warpbell {

WB_FN token volume_ref::begin(warp::mask_t mask, bool wants, uint32_t op, uint64_t block, uint32_t n, uint64_t buffer, uint64_t tag,
                              announced how) const {
  io x{op, n, 0, block, buffer, tag};
  uint32_t device = 0;
  token t;
  bool waits = wants;
  if (waits && !admit(x, device)) {
    t = refuse(x, refused(op, block, n));
    waits = false;
  }
  if (op == nvme::op_write) {
    uint32_t word = waits && how != announced::nothing ? announce(block, n, how == announced::page || tag != 0) : uint32_t{WB_DONE};
    if (v_->replicated) {
      const bool goes = waits && word == WB_DONE;
      // A copy, here and elsewhere: `x` stays in registers, as no function gets its address.
      io each = x;
      const uint32_t ended = write_copies<false>(mask, goes, each);
      if (goes) word = ended;
      x.turn = each.turn;
      x.ticket = each.ticket;
    }
    waits = finish_write(waits, word, x, t);
  }
  return send<false>(mask, waits, x, device, t);
}

// Finds the place of a command. Returns false if it cannot be one command.
WB_FN bool volume_ref::admit(io& x, uint32_t& device) const {
  if (!in_range(x.block, x.blocks)) return false;
  const place at = reading_place(x.block, x.turn);
  device = at.device;
  return x.blocks <= at.room && reachable(at.device, x.buffer, x.blocks);
}

// Ends a write that all copies have, or that must not be made: `word` is WB_DONE or the reason. Returns true if the lane still has
// to send its command.
WB_FN bool volume_ref::finish_write(bool waits, uint32_t word, const io& x, token& t) const {
  if (!waits) return false;
  if (word != WB_DONE) {
    const place copy = locate(x.block, x.turn);
    t = refuse(x, status{word, x.op << WB_RECORD_OPCODE_SHIFT | x.blocks,
                         token::of(copy.device, queue_on(copy.device).q->index, x.ticket).word, copy.lba});
    return false;
  }
  if (!v_->replicated) return true;
  if (x.tag) tags::completion::complete(x.tag, false, true);
  t = token::resolved(WB_DONE);
  return false;
}

// Submits the commands of the lanes with `waits`, each to its device. The other lanes have their token in `t` already. Returns the
// tokens. `tagged`: all commands have a tag. Otherwise some may. Collective.
template <bool tagged> WB_FN token volume_ref::send(warp::mask_t mask, bool waits, const io& x, uint32_t device, token t) const {
  const queue_ref q = queue_on(device);
  while (warp::mask_t left = warp::ballot(mask, waits)) {
    // Lanes on the same queue submit together.
    const queue_ref group = q.shared(mask, warp::first(left));
    const bool member = waits && q.q == group.q;
    uint32_t ticket = 0, doorbells = 0;
    const status ended = group.submit_with(mask, member, ticket, doorbells,
                                           [&](bool got, uint32_t mine) { write<tagged>(group, x, false, mask, got, mine); });
    if (member) {
      waits = false;
      if (ended) {
        t = token::of(device, q.q->index, ticket);
      } else {
        t = tagged ? end_unsent_page(*this, &x, ended) : end_unsent<false>(x, ended);
      }
    }
    count(mask, member && ended, x.op, x.blocks, doorbells);
  }
  return t;
}

// Ends a command that could not be sent, or has failed meanwhile: `ended` is the result of `submit_with`. Returns the token.
template <bool tagged> WB_FN token volume_ref::end_unsent(const io& x, const status& ended) const {
  // A command that was submitted and has failed meanwhile has completed its tag.
  if ((tagged || x.tag) && ended.opcode_blocks != 0) return token::resolved(ended.word);
  const place at = locate(x.block, x.turn);
  if (x.op == nvme::op_read && at.copies && is_of_device(ended.word)) {
    // The queue had no room, so the command was not sent.
    const bool goes_on = ended.kind() != WB_TIMED_OUT || drop(at.device);
    if (goes_on && (tagged || x.tag)) {
      // The thread that waits for the page reads it.
      tags::completion::complete(x.tag, true, false);
      return token::resolved(ended.word);
    }
    if (!tagged && goes_on) return token::resolved(transfer(self(), true, x.op, x.block, x.blocks, x.buffer).word);
  }
  return refuse(x, status{ended.word, x.op << WB_RECORD_OPCODE_SHIFT | x.blocks, ended.origin, at.lba});
}

// Ends a command that was not sent, and completes its tag if it has one. Returns the token.
WB_FN token volume_ref::refuse(const io& x, const status& s) const {
  if (x.tag) {
    fail(s);
    tags::completion::complete(x.tag, nvme::is_read(s.opcode_blocks), false);
  }
  return token::resolved(s.word);
}

// Executes as many commands as it takes, one after another. Collective.
WB_FN status volume_ref::transfer(warp::mask_t mask, bool wants, uint32_t op, uint64_t block, uint32_t n, uint64_t buffer) const {
  uint32_t ended = wants && !in_range(block, n) ? status_word(WB_BAD_ARGUMENT) : uint32_t{WB_DONE};
  if (op == nvme::op_write && wants && ended == WB_DONE) ended = announce(block, n, false);
  uint32_t left = wants && ended == WB_DONE ? n : 0;
  io x{op, n, 0, block, buffer};
  while (warp::any(mask, left != 0)) {
    if (left) {
      const uint32_t room = reading_place(x.block, x.turn).room;
      x.blocks = left < room ? left : room;
      if (room == 0) {
        ended = no_copy();
        left = 0;
      }
    }
    uint32_t word;
    if (op == nvme::op_write && v_->replicated) {
      io each = x;
      word = write_copies<false>(mask, left != 0, each);
      x.turn = each.turn;
      x.ticket = each.ticket;
    } else {
      word = move(mask, left != 0, x);
      if (op == nvme::op_read && left != 0 && word != WB_DONE && v_->replicated) {
        uint32_t turn = x.turn, ticket = x.ticket;
        word = read_elsewhere(*this, x.block, x.blocks, x.buffer, word, turn, ticket);
        x.turn = turn;
        x.ticket = ticket;
      }
    }
    if (left) {
      ended = word;
      left = word == WB_DONE ? left - x.blocks : 0;
      if (left) {
        x.block += x.blocks;
        x.buffer += uint64_t{x.blocks} << v_->block_shift;
      }
    }
  }
  status s;
  if (ended != WB_DONE) {
    s = refused(op, x.block, x.blocks);
    s.word = ended;
    if (in_range(x.block, x.blocks)) {
      const place at = locate(x.block, x.turn);
      s.lba = at.lba;
      s.origin = token::of(at.device, queue_on(at.device).q->index, x.ticket).word;
    }
  }
  return s;
}

// Executes one command for each lane with `wants`. Returns status words.
template <bool called> WB_FN uint32_t volume_ref::move(warp::mask_t mask, bool wants, io& x) const {
  const uint32_t device = wants ? locate(x.block, x.turn).device : 0;
  const queue_ref q = queue_on(device);
  uint32_t ended = WB_DONE;
  if (wants && x.op != nvme::op_flush && !reachable(device, x.buffer, x.blocks)) {
    ended = status_word(WB_BAD_ARGUMENT);
    wants = false;
  }
  if constexpr (!called) {
    if (x.op == nvme::op_read && warp::popcount(warp::ballot(mask, wants)) == 1) return move_alone(mask, wants, x, ended);
  }
  uint32_t doorbells = 0;
  bool held;
  const uint32_t word = q.execute(
      mask, wants, x.ticket, doorbells, held, [&](queue_ref group, bool got, uint32_t t) { write<called>(group, x, true, mask, got, t); },
      [&](bool ready, uint32_t t) {
        if (x.op == nvme::op_read) {
          const bool comes_back = ready && q.q->bounce != 0;
          copy_together<copying::few>(mask, comes_back, x.buffer, q.bounce(t), x.blocks << v_->block_shift);
        }
      });
  if (x.op == nvme::op_read) {
    const bool comes_back = held && q.q->bounce != 0;
    if (warp::any(mask, comes_back)) copy_together(mask, comes_back, x.buffer, q.bounce(x.ticket), x.blocks << v_->block_shift);
  }
  if (held) q.release(x.ticket);
  count(mask, wants && x.op != nvme::op_flush, x.op, x.blocks, doorbells);
  return ended == WB_DONE ? word : ended;
}

// Executes one read, of the lane with `wants`. Returns its status word.
WB_FN uint32_t volume_ref::move_alone(warp::mask_t mask, bool wants, io& x, uint32_t ended) const {
  const queue_ref q = queue_on(wants ? locate(x.block, x.turn).device : 0);
  using way = express<queue_ref>;
  way fast;
  way::state state = way::state::none;
  uint32_t word = WB_DONE, doorbells = 0;
  uint64_t from = 0;
  if (wants && !q.q->remote) {
    state = fast.go(q, x.ticket, doorbells, word, [&](uint32_t t) {
      from = q.q->bounce != 0 ? q.bounce(t) : 0;
      writer{*this, q, x, true}(self(), true, t);
    });
  }
  const bool done = state == way::state::done;
  if (const warp::mask_t reader = warp::ballot(mask, done)) {
    const uint32_t lane = warp::first(reader);
    from = warp::shuffle(mask, word == WB_DONE ? from : 0, lane);
    if (from) copy_one(mask, warp::shuffle(mask, x.buffer, lane), from, warp::shuffle(mask, x.blocks, lane) << v_->block_shift);
    if (done) fast.finish(q);
    count(mask, done, x.op, x.blocks, doorbells);
    return done ? word : ended;
  }
  bool held;
  const bool flying = state == way::state::flying;
  word = q.execute(
      mask, wants, x.ticket, doorbells, held, [&](queue_ref group, bool got, uint32_t t) { write<false>(group, x, true, mask, got, t); },
      [](bool, uint32_t) {}, flying);
  const bool comes_back = held && q.q->bounce != 0;
  if (warp::any(mask, comes_back)) copy_together(mask, comes_back, x.buffer, q.bounce(x.ticket), x.blocks << v_->block_shift);
  if (held) q.release(x.ticket);
  count(mask, wants, x.op, x.blocks, doorbells);
  return ended == WB_DONE ? word : ended;
}

WB_FN status volume_ref::flush(warp::mask_t mask) const {
  status s;
  const bool leader = warp::is_leader(mask);
  if (leader && !is_any_used(~0u)) s.word = no_copy();
  for (uint32_t d = 0; d < v_->device_count; ++d) {
    const bool goes = leader && room_on(d) != 0;
    const queue_ref q = queue_on(d).shared(mask, warp::leader(mask));
    uint32_t ticket = 0, doorbells = 0;
    status one = q.submit_with(mask, goes, ticket, doorbells, [&](bool got, uint32_t t) {
      if (got) q.post(t, nvme::flush(v_->device[d].nsid), nvme::record(nvme::op_flush, 0, 0, 0, 0, 0, false));
    });
    status ended = q.wait(mask, goes && one, ticket);
    if (goes && one) one = ended;
    // A copy that cannot make writes durable is taken out of use.
    if (goes && !one && v_->replicated && is_of_device(one.word) && drop(d)) {
      order::store<order::relaxed>(&v_->device[d].missed, 1u);
      one = status{};
    }
    if (goes && s) s = one;
    count(mask, false, nvme::op_flush, 0, doorbells);
  }
  count_errors(mask, !s);
  s.word = warp::shuffle(mask, s.word, warp::leader(mask));
  s.opcode_blocks = warp::shuffle(mask, s.opcode_blocks, warp::leader(mask));
  s.origin = warp::shuffle(mask, s.origin, warp::leader(mask));
  return s;
}

}  // namespace warpbell
