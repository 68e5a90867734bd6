// Work requests of any kind with little code: what a call means to post is an `entry` in its own memory, and the functions that know
// the ring (mlx5/queue.cuh) are called with its address. Their registers count for every kernel that might call them, whichever way
// its world goes; so each does one thing.
#pragma once

#include <warpbell/mlx5.cuh>
#include <warpbell/shmem/transfer.cuh>

namespace warpbell {
namespace network {

// What is to be posted. `part` has the segments behind the control segment. Where something of the block's staging comes last, it is
// put there when the block is known.
struct entry {
  enum staged : uint32_t { nothing, from, into };  // whether the last segment is the block's staging: what is sent, or where it lands

  uint32_t op, mod, segments;
  uint32_t bytes;      // of the last segment
  staged with;
  bool held;           // what lands is taken from there, by who posts it
  uint64_t source;     // what is copied to the staging first
  order::quad part[4];

  WB_FN bool is_long() const { return segments > mlx5::block_segments; }
};

WB_FN mlx5::block built(const entry& e, uint64_t index, mlx5::queue_word queue, uint32_t how, const mlx5::staging& s) {
  if (e.op == mlx5::op_dump) how |= mlx5::fenced;
  if (e.with == entry::from) transfer::odd<transfer::put_words>(s.at, e.source, e.bytes, 0, 1);
  const order::quad last = mlx5::data_segment(s.name, e.bytes);
  const bool second = e.with != entry::nothing && e.segments == 3, third = e.with != entry::nothing && e.segments == 4;
  return mlx5::block{{mlx5::control_segment(e.op, e.mod, index, queue, e.segments, how), e.part[0], second ? last : e.part[1],
                      third ? last : e.part[2]}};
}

// Three blocks: an entry of two with one behind it, as masked swaps of 64 bits are, which a completion that names the first block is
// no end of; and an entry of one with a flush behind it, for what must have landed before it is looked at.
using behind = mlx5::chain<mlx5::block2, mlx5::block>;
WB_FN behind built_behind(const entry& e, uint64_t index, mlx5::queue_word queue, uint32_t how, const mlx5::staging& s, bool flush) {
  behind all;
  all.first.first = built(e, index, queue, mlx5::unsignalled, s);
  all.first.second = e.is_long() ? mlx5::block{{mlx5::data_segment(s.name, e.bytes), mlx5::empty_segment(), mlx5::empty_segment(),
                                                mlx5::empty_segment()}}
                                 : mlx5::nop(index + 1, queue, mlx5::unsignalled);
  all.second = flush ? mlx5::dump(index + 2, queue, how | mlx5::fenced, s.name, 1) : mlx5::nop(index + 2, queue, how);
  return all;
}

// A send queue whose steps are taken one by one.
class stepwise : public mlx5::work_queue_ref {
 public:
  using mlx5::work_queue_ref::work_queue_ref;

  // Posts once for as many lanes of the mask as there is room for.
  template <class Build> WB_FN mlx5::request post(warp::mask_t mask, bool wants, const entry* e, Build build) const {
    mlx5::request r;
    const auto with_hold = [&](uint64_t index, mlx5::queue_word word, uint32_t how) {
      const uint32_t ticket = static_cast<uint32_t>(index);
      if (e->held) hold(ticket);
      return build(index, word, how, staging_of(ticket));
    };
    submit_now<mlx5::extent<decltype(build(uint64_t{}, mlx5::queue_word{}, uint32_t{}, mlx5::staging{}))>>(mask, wants, r, with_hold);
    return r;
  }
  WB_FN bool cannot_post_any(uint32_t& word) const { return cannot_post<mlx5::extent<behind>>(word); }
  WB_FN void poll_one_of(warp::mask_t left, warp::mask_t mask, uint32_t turn) const { shared(mask, nth_of(left, turn)).poll(mask); }
};

WB_FN_COLD mlx5::request post_short(wb_send_queue* q, warp::mask_t mask, bool wants, const entry* e) {
  return stepwise(q, nullptr).post(mask, wants, e,
                                   [&](uint64_t index, mlx5::queue_word word, uint32_t how, const mlx5::staging& s) {
                                     return built(*e, index, word, how, s);
                                   });
}
WB_FN_COLD mlx5::request post_long(wb_send_queue* q, warp::mask_t mask, bool wants, const entry* e) {
  return stepwise(q, nullptr).post(mask, wants, e,
                                   [&](uint64_t index, mlx5::queue_word word, uint32_t how, const mlx5::staging& s) {
                                     return built_behind(*e, index, word, how, s, e->held && (q->flags & WB_SEND_CONSISTENCY) != 0);
                                   });
}
WB_FN_COLD uint32_t wait_for(wb_send_queue* q, const wb_control* control, warp::mask_t mask, bool mine, mlx5::request r) {
  return mlx5::work_queue_ref(q, control).wait(mask, mine, r).word;
}
WB_FN uint32_t completed(const mlx5::work_queue_ref& queue, const mlx5::request& r) {
  return wait_for(queue.q, queue.control(), warp::active(), true, r);
}

// Copies what has landed to `to`: any memory, or 0: up to 16 bytes to `value`.
WB_FN void take(uint64_t at, const entry* e, uint64_t to, order::detail::pair* value) {
  if (to) transfer::odd<transfer::get_words>(to, at, e->bytes, 0, 1);
  else *value = order::load<order::relaxed, order::world>(reinterpret_cast<const order::detail::pair*>(at));
}

// Posts, and waits for room as long as one wait may last. What is held is waited for, taken, and let go: where the ring has no room for
// all lanes they go in turns, so that none waits for room while it holds what others wait for. The request says how it ended.
WB_FN_COLD mlx5::request post_entry(wb_send_queue* q, const wb_control* control, const entry* e, uint64_t to, order::detail::pair* value) {
  const stepwise queue(q, control);
  const warp::mask_t mask = warp::active();
  const bool by_long = e->is_long() || (e->held && (q->flags & WB_SEND_CONSISTENCY) != 0);
  patience p(control);
  mlx5::request r;
  for (bool wants = true; warp::any(mask, wants);) {
    mlx5::request now;
    if (warp::any(mask, wants && !by_long)) now = post_short(q, mask, wants && !by_long, e);
    if (warp::any(mask, wants && by_long)) {
      const mlx5::request other = post_long(q, mask, wants && by_long, e);
      if (by_long) now = other;
    }
    const bool posted = wants && now.in_flight();
    if (posted) {
      r = now;
      wants = false;
    }
    const bool holds = posted && e->held;
    if (warp::any(mask, holds)) {
      const uint32_t word = wait_for(q, control, mask, holds, now);
      if (holds) {
        if (word == WB_DONE) take(queue.staging_of(now.block).at, e, to, value);
        queue.let_go(now.block);
        r = mlx5::request::ended(word);
      }
    }
    const warp::mask_t left = warp::ballot(mask, wants);
    if (left == 0) break;
    uint32_t word = 0;
    if (wants && queue.cannot_post_any(word)) {
      r = mlx5::request::ended(word);
      wants = false;
    }
    queue.poll_one_of(left, mask, p.turns());
    const verdict v = p.spent(mask);
    if (v == verdict::go_on) continue;
    if (wants) r = mlx5::request::ended(status_word(v));
    break;
  }
  return r;
}
WB_FN mlx5::request post(const mlx5::work_queue_ref& queue, const entry& e) {
  return post_entry(queue.q, queue.control(), &e, 0, nullptr);
}
WB_FN uint32_t fetch(const mlx5::work_queue_ref& queue, const entry& e, uint64_t to, order::detail::pair* value) {
  return post_entry(queue.q, queue.control(), &e, to, value).word;
}

WB_FN entry inline_write(mlx5::remote to, const mlx5::write_payload& p, uint32_t bytes) {
  return entry{mlx5::op_write, mlx5::opmod_none, mlx5::inline_write_segments(bytes), bytes, entry::nothing, false, 0,
               {mlx5::remote_segment(to), mlx5::inline_segment(bytes, p.w[0], p.w[1], p.w[2]),
                order::quad{p.w[3], p.w[4], p.w[5], p.w[6]}, mlx5::empty_segment()}};
}
// A write or a read, of memory that the adapter knows.
WB_FN entry moving(uint32_t op, mlx5::remote there, mlx5::local here, uint32_t bytes) {
  return entry{op, mlx5::opmod_none, 3, bytes, entry::nothing, false, 0,
               {mlx5::remote_segment(there), mlx5::data_segment(here, bytes), mlx5::empty_segment(), mlx5::empty_segment()}};
}
// Of any memory: a write that takes a copy of it along; and a read to be copied from.
WB_FN entry copying(mlx5::remote there, uint64_t source, uint32_t bytes) {
  return entry{mlx5::op_write, mlx5::opmod_none, 3, bytes, entry::from, false, source,
               {mlx5::remote_segment(there), mlx5::empty_segment(), mlx5::empty_segment(), mlx5::empty_segment()}};
}
WB_FN entry reading(mlx5::remote there, uint32_t bytes) {
  return entry{mlx5::op_read, mlx5::opmod_none, 3, bytes, entry::into, true, 0,
               {mlx5::remote_segment(there), mlx5::empty_segment(), mlx5::empty_segment(), mlx5::empty_segment()}};
}
// What has landed before, in the heap, is there behind this, where it takes that.
WB_FN entry flushing(mlx5::local at) {
  return entry{mlx5::op_dump, mlx5::opmod_none, 2, 1, entry::nothing, false, 0,
               {mlx5::data_segment(at, 1), mlx5::empty_segment(), mlx5::empty_segment(), mlx5::empty_segment()}};
}

// What became of a request so far: posted is as good as done.
WB_FN uint32_t so_far(const mlx5::request& r) { return r.in_flight() ? static_cast<uint32_t>(WB_DONE) : r.word; }

}  // namespace network
}  // namespace warpbell
