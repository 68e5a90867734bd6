// Responses of a remote controller: the completion ring of an RDMA queue pair's receives takes the place of a completion queue.
//
// Only the holder of the head lock is here. It matches each response with a command in flight by its identifier, the low 16 bits of
// the ticket. It posts the receive again before it completes the command, so a response always finds a receive. A command completes
// when its response has arrived and its send has completed: only then may its capsule and its block of the send ring be used again.
//
// A connection goes down at the first violation of the protocol, at the first failure of its queue pair, or when the host closes it.
// The host closes it once nothing of the controller reaches this machine's memory any more. Only then do the commands that were sent
// on it fail, with Host Pathing Error: their buffers are used again. Later ones wait for the next connection, which the host names in
// `next`; a warp that has both locks switches to it and sends them. If the host has given up, they fail too.
#pragma once

#include <warpbell/command_ring.cuh>
#include <warpbell/error.cuh>
#include <warpbell/mlx5/cqe.cuh>

namespace warpbell {
namespace capsules {

constexpr uint32_t response_bytes = 16;
constexpr uint32_t host_pathing_error = 0x370;  // NVMe Base 2.1, 4.2.3.4: path related, Host Pathing Error
constexpr uint32_t no_flow_control = 0xffff;    // SQHD of a controller that reports no head
constexpr uint32_t status_code = 0x7ff;         // status code and its type: 0 is success
constexpr uint32_t patient_looks = WB_GPU ? 4 : 1;

// Returns the word of a report.
WB_FN uint64_t fault_of(uint32_t kind, uint32_t cid, uint32_t number) {
  return static_cast<uint64_t>(kind) << WB_CAPSULES_FAULT_SHIFT | uint64_t{cid} << 32 | number;
}
WB_FN uint64_t fault_of(uint32_t kind, const mlx5::cqe_tail& tail) {
  return fault_of(kind, 0, tail.vendor_syndrome() << 8 | tail.syndrome());
}

// Returns the newest ticket before `end` that has this slot.
WB_FN uint32_t ticket_of(const wb_queue* q, uint32_t end, uint32_t slot) { return end - 1 - ((end - 1 - slot) & (q->depth - 1)); }

// Returns true if the slot word `w` says that the ticket's command is in flight, given that the command was published.
WB_FN bool in_flight(const ring_ref& r, uint32_t ticket, uint32_t w) { return ((w ^ r.own_word(ticket)) & ~slot::claimed) == 0; }

// Completes a command in flight with a status field. Returns false if it is not in flight. One thread calls this.
WB_FN bool complete(const ring_ref& r, uint32_t ticket, uint32_t field) {
  uint32_t* word = r.word(ticket);
  uint32_t w = order::load<order::acquire>(word), bits = slot::completed;
  if (!in_flight(r, ticket, w)) return false;
  if (field & status_code) {
    bits |= slot::failed;
    order::store<order::relaxed>(r.outcome(ticket), status_word(WB_DEVICE_ERROR, field));
  }
  // The waiter may give the command up meanwhile.
  for (uint32_t seen; (seen = order::compare_exchange<order::acq_rel>(word, w, w | bits)) != w; w = seen) {
    if (!in_flight(r, ticket, seen)) return false;
  }
  if (w & slot::claimed) order::store<order::release>(word, r.next_word(ticket));
  return true;
}

// A response, as one lane reads it.
struct response {
  uint32_t ticket = 0;
  uint32_t field = 0;  // NVMe status field
  uint64_t fault = 0;  // the violation, or 0
};

// Reads response number `at`, whose completion entry is `entry`. One thread calls this.
WB_FN response read(const ring_ref& r, const wb_capsules* c, uint32_t at, const char* entry, const mlx5::cqe_tail& tail) {
  response x;
  if (tail.state().opcode() != mlx5::cqe_send) {
    x.fault = fault_of(WB_CAPSULES_RECEIVE, tail);
    return x;
  }
  const uint32_t bytes = mlx5::received_bytes(order::load_quad<order::relaxed, order::system>(entry + mlx5::cqe_length_at));
  if (bytes != response_bytes) {
    x.fault = fault_of(WB_CAPSULES_LENGTH, 0, bytes);
    return x;
  }
  const uint64_t slot_at = c->responses + uint64_t{at & ((1u << c->log_receives) - 1u)} * response_bytes;
  const void* from = tail.state().has_data() ? entry : reinterpret_cast<const char*>(slot_at);
  const order::quad q = order::load_quad<order::relaxed, order::system>(from);
  const uint32_t cid = q.w & 0xffffu, head = q.z & 0xffffu;
  x.field = q.w >> 17;
  const uint32_t announced = order::load<order::relaxed>(&c->announced);
  x.ticket = ticket_of(r.q, announced, cid & (r.q->depth - 1));
  if (head >= r.q->depth && head != no_flow_control) {
    x.fault = fault_of(WB_CAPSULES_HEAD, cid, head);
  } else if ((cid ^ x.ticket) & 0xffffu) {
    const bool earlier = ((cid ^ (x.ticket - r.q->depth)) & 0xffffu) == 0;
    x.fault = fault_of(earlier ? WB_CAPSULES_REPEATED : WB_CAPSULES_UNKNOWN, cid, 0);
  } else if (!in_flight(r, x.ticket, order::load<order::relaxed>(r.word(x.ticket)))) {
    x.fault = fault_of(WB_CAPSULES_REPEATED, cid, 0);
  }
  return x;
}

// Returns true if the send of a ticket's command has completed. `x` gets a fault if it has failed. One thread calls this.
WB_FN bool is_sent(const wb_capsules* c, response& x) {
  const uint32_t block = x.ticket + order::load<order::relaxed>(&c->shift);
  const mlx5::completion_ring ring(c->sent, c->log_blocks);
  const char* entry = reinterpret_cast<const char*>(ring.at(block));
  const mlx5::cqe_tail tail(order::load_quad<order::acquire, order::system>(entry + mlx5::cqe_tail_at));
  if (!ring.is_written(block, tail.state())) return false;
  if (tail.state().is_error()) x.fault = fault_of(WB_CAPSULES_SEND, tail);
  return x.fault == 0;
}

// Takes responses. Returns the number of commands completed, and in `fault` the first violation. Collective.
WB_FN uint32_t take(const ring_ref& r, wb_capsules* c, warp::mask_t mask, uint64_t& fault) {
  const uint32_t n = warp::count(mask), rank = warp::rank(mask), slots = 1u << c->log_receives;
  const mlx5::completion_ring ring(c->received, c->log_receives);
  const uint32_t first = order::load<order::relaxed>(&c->taken);
  uint32_t taken = first, completed = 0;
  fault = 0;
#pragma unroll 1
  for (uint32_t looks = patient_looks; looks && taken == first && fault == 0; --looks) {
#pragma unroll 1
    for (uint32_t k = n; k == n && fault == 0;) {
      const uint32_t at = taken + rank;
      const char* entry = reinterpret_cast<const char*>(ring.at(at));
      const mlx5::cqe_tail tail(order::load_quad<order::acquire, order::system>(entry + mlx5::cqe_tail_at));
      const bool fresh = ring.is_written(at, tail.state());
      response x;
      if (fresh) x = read(r, c, at, entry, tail);
      k = warp::prefix(mask, fresh && x.fault == 0 && is_sent(c, x));
      taken += k;
      // All lanes have read their responses.
      warp::sync(mask);
      if (k && warp::is_leader(mask)) {
        order::store<order::release, order::system>(&static_cast<mlx5::qp_record*>(c->record)->receive,
                                                    mlx5::receive_record(taken + slots));
      }
      // The receives are posted. A completed command's slot may be sent again at once, and its response needs one.
      warp::sync(mask);
      const bool mine = rank < k, done = mine && complete(r, x.ticket, x.field);
      if (mine && !done) x.fault = fault_of(WB_CAPSULES_REPEATED, x.ticket & 0xffffu, 0);
      completed += warp::popcount(warp::ballot(mask, done));
      const warp::mask_t wrong = warp::ballot(mask, rank <= k && x.fault != 0);
      if (wrong) fault = warp::shuffle(mask, x.fault, warp::first(wrong));
    }
  }
  if (taken != first && warp::is_leader(mask)) order::store<order::relaxed>(&c->taken, taken);
  return completed;
}

// Fails the commands in flight among the tickets before `end`. Returns their number, in all lanes. Collective.
WB_FN uint32_t fail_before(const ring_ref& r, warp::mask_t mask, uint32_t end) {
  uint32_t failed = 0;
#pragma unroll 1
  for (uint32_t i = warp::rank(mask); i < r.q->depth; i += warp::count(mask)) {
    failed += complete(r, end - r.q->depth + i, host_pathing_error);
  }
  return warp::sum(mask, failed);
}

// Switches to the next connection, if there is one and the tail lock is free. Returns true if this thread's warp has switched.
// Collective.
WB_FN bool adopt(const ring_ref& r, wb_capsules* c, warp::mask_t mask, uint32_t& failed) {
  uint64_t* lock = reinterpret_cast<uint64_t*>(&r.q->tail_lock);
  uint64_t next = 0, held = 0;
  if (warp::is_leader(mask)) {
    next = order::load<order::acquire>(&c->next);
    held = order::load<order::relaxed>(lock);
    if (static_cast<uint32_t>(held) != 0 || (next && order::compare_exchange<order::acq_rel>(lock, held, held | 1) != held)) next = 0;
  }
  next = warp::shuffle(mask, next, warp::leader(mask));
  if (next == 0) return false;
  // Nothing is sent any more on the old connection.
  const uint32_t announced = order::load<order::acquire>(&c->announced);
  failed += fail_before(r, mask, announced);
  if (warp::is_leader(mask)) {
    wb_capsules* n = reinterpret_cast<wb_capsules*>(next);
    const uint32_t tail = static_cast<uint32_t>(held >> 32);
    order::store<order::relaxed>(&n->announced, announced);
    order::store<order::relaxed>(&n->shift, n->posted - announced);
    const bool open = order::load<order::relaxed>(&n->closed) == WB_CAPSULES_OPEN;
    if (!open) order::store<order::relaxed>(&n->down, 1u);
    order::store<order::release>(&r.q->capsules, n);
    order::store<order::release, order::system>(&n->report->adopted, 1u);
    if (open && tail != announced) send(r.q, n, announced, tail);
    order::exchange<order::acq_rel>(lock, held);
  }
  return true;
}

// Takes responses, and returns the head lock, which held `before` when this warp took it. Collective; all lanes on this queue.
// Returns the number of commands that have ended, in all lanes.
WB_FN_COLD uint32_t poll(by_value<ring_ref> r, warp::mask_t mask, uint64_t before) {
  uint64_t* lock = reinterpret_cast<uint64_t*>(&r.q->head_lock);
  wb_capsules* c = order::load<order::acquire>(&r.q->capsules);
  uint32_t ended = 0;
  bool down = order::load<order::relaxed>(&c->down) != 0, switched = false;
  const uint32_t closed = warp::shuffle(mask, order::load<order::relaxed>(&c->closed), warp::leader(mask));
  if (!down) {
    uint64_t fault = 0;
    ended = take(r, c, mask, fault);
    down = fault != 0 || closed != WB_CAPSULES_OPEN;
    if (down && warp::is_leader(mask)) {
      order::store<order::relaxed>(&c->down, 1u);
      if (fault) order::store<order::release, order::system>(&c->report->fault, fault);
    }
  }
  if (down && closed != WB_CAPSULES_OPEN) {
    const uint64_t end = closed == WB_CAPSULES_FAILED ? order::load<order::acquire>(reinterpret_cast<uint64_t*>(&r.q->tail_lock)) >> 32
                                                      : order::load<order::acquire>(&c->announced);
    ended += fail_before(r, mask, warp::shuffle(mask, static_cast<uint32_t>(end), warp::leader(mask)));
    switched = closed != WB_CAPSULES_FAILED && adopt(r, c, mask, ended);
  }
  warp::sync(mask);
  if (warp::is_leader(mask)) order::store<order::release>(lock, ((before >> 32) + ended) << 32);
  // Warps that tried the tail lock meanwhile rely on this one.
  if (switched) r.publish(mask);
  return ended;
}

}  // namespace capsules
}  // namespace warpbell
