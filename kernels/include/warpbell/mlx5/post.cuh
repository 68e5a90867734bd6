// Work requests and the functions that post them: for kernels that drive a send queue themselves, and for a world's calls.
//
// A `work_request` is in memory of its caller. If functions that are called, and not inlined, get its address, their registers
// count for every kernel that might call them. So each of these functions does one thing. If they are inlined, no part of the work
// request is in memory.
//
// An operation without a result returns the request to wait for. A queue executes all operations in the order in which they were
// posted. An operation with a result (`fetch`) waits for it. The result lands in the block's staging, so the caller needs no
// registered memory.
//
// A message of no bytes has no data segment. A plain write or read of no bytes is no work request at all. Adapters take a length of
// 0 for 2 GiB. Long messages are cut into pieces of 1 GiB, the most that a queue pair takes (log_msg_max of 30).
//
// Reads and fetches end with a flush where the GPU does not order an adapter's writes to its memory for running kernels
// (WB_SEND_CONSISTENCY). The flush is a read of the landing place by the adapter, fenced behind the reads and atomics before it.
#pragma once

#include <warpbell/call.cuh>
#include <warpbell/mlx5/queue.cuh>
#include <warpbell/peer_copy.cuh>

namespace warpbell {
namespace mlx5 {

constexpr uint64_t max_message_bytes = uint64_t{1} << 30;

/// @brief Lanes that make a call together: every lane of `mask` makes it, and the lanes with `wants` post. Lanes may be on
/// different queues.
struct lanes {
  warp::mask_t mask;
  bool wants;
  /// @brief Returns the lanes that are converged here, all of which post.
  WB_FN static lanes here() { return lanes{warp::active(), true}; }
};

/// @brief Operations on a 64-bit signal word.
enum class signal_op : uint32_t { set, add };

/// @brief End of a read: with the flush, or without; then the caller flushes later (`flush`).
enum class landing : uint32_t { flushed, later };

/// @brief An entry of one or two blocks before it has a place in a ring.
///
/// If the last segment is the staging of the entry's block, the entry is built with `local{}`, and the function that posts it fills
/// that segment in.
struct work_request {
  enum use : uint32_t {
    none,     // the entry is complete
    sent,     // a copy in the staging is sent
    dropped,  // data that lands in the staging is ignored
    taken     // data that lands in the staging is waited for, and copied out
  };

  order::quad segment[block_segments + 1];  // the fifth is the first one of a second block, which has no others
  use staging;
  uint32_t bytes;  // in the staging
  uint64_t more;   // `sent`: the address of the data to copy. `none`: bytes of the message after this piece

  /// @brief Creates a work request without contents: space for one.
  work_request() = default;
  /// @brief Creates a work request of one block.
  ///
  /// @param with Use of the block's staging.
  /// @param n Bytes in the staging.
  /// @param of See `more`.
  WB_FN work_request(const block& b, use with = none, uint32_t n = 0, uint64_t of = 0)
      : segment{b.segment[0], b.segment[1], b.segment[2], b.segment[3], empty_segment()}, staging(with), bytes(n), more(of) {}
  /// @brief Creates a work request of two blocks. Parameters as above.
  WB_FN work_request(const block2& b, use with = none, uint32_t n = 0)
      : segment{b.first.segment[0], b.first.segment[1], b.first.segment[2], b.first.segment[3], b.second.segment[0]},
        staging(with),
        bytes(n),
        more(0) {}
  /// @brief Returns a write or a read of any length, as its first piece.
  WB_FN static work_request in_pieces(uint32_t op, remote there, local here, uint64_t n) {
    const uint64_t first = n < max_message_bytes ? n : max_message_bytes;
    return work_request(transfer(op, there, here, static_cast<uint32_t>(first)), none, 0, n - first);
  }

  /// @brief Returns the number of segments.
  WB_FN uint32_t segments() const { return segment[0].y >> 24; }

  /// @brief Turns a piece of a message into the next piece.
  WB_FN void go_on() {
    const uint64_t n = more < max_message_bytes ? more : max_message_bytes;
    advance(segment[1].x, segment[1].y);
    advance(segment[2].z, segment[2].w);
    segment[2].x = swap_bytes(static_cast<uint32_t>(n));
    more -= n;
  }

 private:
  WB_FN static void advance(uint32_t& high, uint32_t& low) {
    const uint64_t next = (uint64_t{swap_bytes(high)} << 32 | swap_bytes(low)) + max_message_bytes;
    high = big_high(next);
    low = big_low(next);
  }
};

// Extents of work requests that are not `taken`, as far as the type of the entry determines them.
constexpr uint32_t unknown = ~0u;
template <class Entry> struct known {
  static constexpr uint32_t of = unknown;
};
template <> struct known<block> {
  static constexpr uint32_t of = 0;
};
template <> struct known<block2> {
  static constexpr uint32_t of = extent::is_long;
};

/// @brief The functions that post work requests.
class send_queue_base : public work_queue_ref {
 public:
  using work_queue_ref::work_queue_ref;

  // Posts a work request for each lane with `wants`, and waits for room for at most one deadline. Results (`taken`) are waited for,
  // copied, and their blocks released. If the ring has no room for all lanes, they go in turns. So no lane waits for room while it
  // holds blocks that others wait for. The request has the outcome. With `called` the two steps are called, and not inlined. `of`
  // is the extent of all lanes' work requests, or `unknown`.
  template <bool called, uint32_t of> WB_FN static request post_all(wb_send_queue* queue, const wb_control* control, lanes l,
                                                                    work_request* e, uint64_t to, order::detail::pair* value) {
    const send_queue_base own(queue, control);
    const warp::mask_t mask = l.mask;
    deadline p(control);
    request r;
    while (warp::any(mask, l.wants)) {
      const bool tries = l.wants && (p.turns() == 0 || own.has_room(own.extent_of<of>(*e).blocks()));
      const request now = called ? call_post_now(queue, mask, tries, e) : post_now<of>(queue, mask, tries, e);
      const bool posted = now.in_flight(), holds = posted && e->staging == work_request::taken;
      if (posted) {
        r = now;
        l.wants = e->staging == work_request::none && e->more != 0;
        if (l.wants) e->go_on();
      }
      if (of == unknown && warp::any(mask, holds)) {
        const uint32_t word = called ? wait_for(queue, control, mask, holds, now) : own.wait(mask, holds, now).word;
        if (holds) {
          if (word == WB_DONE) take_from(own.staging_of(now.block).at, e, to, value);
          own.let_go(now.block);
          r = request::ended(word);
        }
      }
      const warp::mask_t left = warp::ballot(mask, l.wants);
      if (left == 0) break;
      if (warp::any(mask, posted)) {
        p = deadline(control);
        continue;
      }
      uint32_t word = 0;
      if (l.wants && own.cannot_post(own.extent_of<of>(*e).blocks(), word)) {
        r = request::ended(word);
        l.wants = false;
      }
      own.make_room(mask, left, p.turns());
      const wait_status v = p.expired(mask);
      if (v == wait_status::go_on) continue;
      if (l.wants) r = request::ended(status_word(v));
      break;
    }
    return r;
  }

  static WB_FN_COLD request post_on(wb_send_queue* queue, const wb_control* control, by_value<lanes> l, work_request* e, uint64_t to,
                                    order::detail::pair* value) {
    return post_all<true, unknown>(queue, control, l, e, to, value);
  }
  // Posts `n` work requests of the calling thread, 1 or more, with one doorbell, and waits for room for at most one deadline. None is
  // `taken`, and none has more pieces. All or none are posted: together they have no more blocks than the ring.
  static WB_FN_COLD request post_chain(wb_send_queue* queue, const wb_control* control, const work_request* e, uint32_t n) {
    const send_queue_base own(queue, control);
    const warp::mask_t self = warp::mask_t{1} << warp::lane();
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < n; ++i) wanted += own.extent_of<unknown>(e[i]).blocks();
    for (deadline p(control);;) {
      if (p.turns() == 0 || own.has_room(wanted)) {
        const writer to = own.to_write();
        uint32_t first;
        grant g;
        const bool got = own.take(self, self, first, g, wanted);
        uint32_t t = first;
        for (uint32_t i = 0; got && i < n; ++i) {
          const extent x = own.extent_of<unknown>(e[i]);
          own.build(to, t, e[i], x, i + 1 == n ? signalled : unsignalled);
          if (i != 0) own.mark_behind(t, x);
          if (i + 1 != n) t += x.blocks();
        }
        if (got) own.publish_chain(self, g, first, own.extent_of<unknown>(e[0]), wanted);
        if (g.low) own.replenish(self);
        if (got) return request::posted(t, t + 1);
      }
      uint32_t word = 0;
      if (own.cannot_post(wanted, word)) return request::ended(word);
      own.make_room(self, self, p.turns());
      const wait_status v = p.expired();
      if (v != wait_status::go_on) return request::ended(status_word(v));
    }
  }
  static WB_FN_COLD uint32_t wait_for(wb_send_queue* queue, const wb_control* control, warp::mask_t mask, bool mine, by_value<request> r) {
    return work_queue_ref(queue, control).wait(mask, mine, r).word;
  }

 protected:
  WB_FN bool needs_flush() const { return (q->flags & WB_SEND_CONSISTENCY) != 0; }

 private:
  template <uint32_t of> WB_FN extent extent_of(const work_request& e) const {
    if (of != unknown) return extent{of};
    return extent{(e.segments() > block_segments ? extent::is_long : 0u) |
                  (e.staging == work_request::taken && needs_flush() ? extent::has_second : 0u)};
  }

  // Writes a work request and its flush at a ticket.
  WB_FN void build(const writer& to, uint32_t ticket, const work_request& e, extent x, uint32_t how) const {
    staging s{};
    if (e.staging != work_request::none) {
      s = staging_of(ticket);
      if (e.staging == work_request::taken) hold(ticket);
      if (e.staging == work_request::sent) transfer::odd<transfer::put_words>(s.at, e.more, e.bytes, 0, 1);
    }
    const uint32_t last = e.staging == work_request::none ? 0 : e.segments() - 1;
    const auto segment = [&](uint32_t i) {
      return i == last ? order::quad{e.segment[i].x, s.name.key.word, big_high(s.name.address), big_low(s.name.address)} : e.segment[i];
    };
    const bool flushes = (x.of & extent::has_second) != 0;
    to.store(ticket, placed(block{{e.segment[0], e.segment[1], segment(2), segment(3)}}, ticket, to.word, flushes ? unsignalled : how));
    if ((x.of & extent::is_long) != 0) to.store(ticket + 1, block{{segment(4), empty_segment(), empty_segment(), empty_segment()}});
    const uint32_t behind = ticket + x.blocks() - 1;
    if (flushes) to.store(behind, placed(dump(s.name, 1, fenced), behind, to.word, how));
  }

  // Posts once, for as many lanes as there is room for. Collective. A lane that posted has its request in flight.
  template <uint32_t of> WB_FN static request post_now(wb_send_queue* queue, warp::mask_t mask, bool wants, const work_request* e) {
    const send_queue_base own(queue, nullptr);
    const extent mine = own.extent_of<of>(*e);
    request r;
    for (warp::mask_t untried = warp::ballot(mask, wants); untried;) {
      const uint32_t lane = warp::first(untried);
      const work_queue_ref group = own.shared(mask, lane);
      const extent x{of != unknown ? of : warp::shuffle(mask, mine.of, lane)};
      const bool member = wants && queue == group.q && mine.of == x.of;
      const warp::mask_t members = warp::ballot(mask, member);
      // Here, so that these loads are in flight together with the access that `take` waits for.
      const writer to = member ? own.to_write() : writer{};
      uint32_t t;
      grant g;
      const bool got = group.take(mask, members, t, g, x.blocks());
      if (g.lanes != 0) {
        if (got) {
          // The last entry of a run of tickets has a completion.
          own.build(to, t, *e, x, t + x.blocks() == g.first + g.lanes * x.blocks() ? signalled : unsignalled);
          r = request::posted(t, t + x.end());
        }
        group.publish_run(mask, g, got, t, x);
      }
      // Meanwhile the device works on these entries.
      if (g.low) group.replenish(mask);
      untried &= ~members;
    }
    return r;
  }

  static WB_FN_COLD request call_post_now(wb_send_queue* queue, warp::mask_t mask, bool wants, const work_request* e) {
    return post_now<unknown>(queue, mask, wants, e);
  }

  // Copies landed data to `to`, any memory; if `to` is 0, up to 16 bytes to `value`.
  WB_FN static void take_from(uint64_t at, const work_request* e, uint64_t to, order::detail::pair* value) {
    if (to) transfer::odd<transfer::get_words>(to, at, e->bytes, 0, 1);
    else *value = order::load<order::relaxed, order::world>(reinterpret_cast<const order::detail::pair*>(at));
  }
};

// Three ways to reach these functions. `inlined`: into a kernel. `from_kernel`: called by a kernel through an address (call.cuh),
// as for a put. `from_function`: called by a function that was itself called through an address.
struct inlined {
  template <uint32_t of, class... A> WB_FN static request post(A... a) { return send_queue_base::post_all<false, of>(a...); }
};
struct from_kernel {
  template <uint32_t, class... A> WB_FN static request post(A... a) { return call_cold<&send_queue_base::post_on>(a...); }
};
struct from_function {
  template <uint32_t, class... A> WB_FN static request post(A... a) { return send_queue_base::post_on(a...); }
};

/// @brief Operations of a send queue.
///
/// Each takes the lanes that make the call together, by default those that are converged. Lanes on the same queue share one
/// reservation and one doorbell. A fence precedes the doorbell: the adapter sees data that the lanes stored before the call. If a
/// request cannot be posted, it has ended at once; see `post`.
/// @tparam How How the functions are reached: inlined or called.
template <class How> class send_queue : public send_queue_base {
 public:
  using send_queue_base::send_queue_base;

  /// @brief Posts an entry (`block`, `block2`) or a `work_request` for each lane with `wants`, and waits for room for at most one
  /// deadline. Collective.
  ///
  /// @return The request. It has ended at once in three cases: there was no room in time (WB_TIMED_OUT, WB_STOPPED), the queue pair
  /// has failed, or the ring is smaller than the work request (WB_BAD_ARGUMENT).
  template <class Entry> WB_FN request post(const Entry& e, lanes l = lanes::here()) const {
    return posted<known<Entry>::of>(work_request(e), 0, nullptr, l);
  }

  /// @brief Posts a work request whose result is `taken`, waits for it, and copies the result to address `to`, any memory.
  /// Collective.
  WB_FN outcome fetch(const work_request& e, uint64_t to, lanes l = lanes::here()) const {
    return outcome{posted<unknown>(e, to, nullptr, l).word};
  }
  /// @brief Posts a work request whose result is `taken`, waits for it, and copies up to 16 bytes of the result to `value`.
  /// Collective.
  WB_FN outcome fetch(const work_request& e, order::detail::pair& value, lanes l = lanes::here()) const {
    return outcome{posted<unknown>(e, 0, &value, l).word};
  }

  // --- to the other side ---------------------------------------------------------------------------------------------

  /// @brief Writes `bytes` of registered memory, any number. Collective. The memory must not change until the request has
  /// completed.
  WB_FN request write(remote to, local from, uint64_t bytes, lanes l = lanes::here()) const {
    l.wants = l.wants && bytes != 0;
    return posted<0>(work_request::in_pieces(op_write, to, from, bytes), 0, nullptr, l);
  }

  /// @brief Writes `bytes`, at most inline_write_max, from registers. Collective. The data is in the entry.
  WB_FN request write_inline(remote to, const write_payload& data, uint32_t bytes, lanes l = lanes::here()) const {
    l.wants = l.wants && bytes != 0;
    return post(inline_write(to, data, bytes), l);
  }

  /// @brief Writes `bytes`, at most staging_bytes, of any memory through the block's staging. Collective. The memory may change
  /// after the return.
  WB_FN request write_copied(remote to, uint64_t from, uint32_t bytes, lanes l = lanes::here()) const {
    l.wants = l.wants && bytes != 0;
    return posted<0>(work_request(mlx5::write(to, local{}, bytes), work_request::sent, bytes, from), 0, nullptr, l);
  }

  /// @brief Writes `bytes` of registered memory, then completes a receive of the peer with the immediate. Collective.
  ///
  /// @pre The receiver has posted a receive. The completion tells the receiver that the data has arrived.
  WB_FN request write_imm(remote to, local from, uint64_t bytes, be32 immediate, lanes l = lanes::here()) const {
    const uint64_t before = bytes == 0 ? 0 : (bytes - 1) & ~(max_message_bytes - 1);
    const request r = write(to, from, before, lanes{l.mask, l.wants && before != 0});
    if (before != 0 && !r.in_flight()) l.wants = false;
    const remote rest{to.address + before, to.key};
    const uint32_t n = static_cast<uint32_t>(bytes - before);
    const request last =
        post(n == 0 ? empty_write_imm(rest, immediate) : mlx5::write_imm(rest, local{from.address + before, from.key}, n, immediate), l);
    return l.wants ? last : r;
  }

  // --- from the other side -------------------------------------------------------------------------------------------

  /// @brief Reads `bytes` into registered memory, any number. Collective.
  ///
  /// @param how_landed `flushed`: the data is visible once the request has completed. `later`: only after `flush`.
  WB_FN request read(remote from, local to, uint64_t bytes, landing how_landed = landing::flushed, lanes l = lanes::here()) const {
    l.wants = l.wants && bytes != 0;
    const request r = posted<0>(work_request::in_pieces(op_read, from, to, bytes), 0, nullptr, l);
    const bool flushes = how_landed == landing::flushed && r.in_flight() && needs_flush();
    if (!warp::any(l.mask, flushes)) return r;
    const request behind = flush(to, lanes{l.mask, flushes});
    return flushes ? behind : r;
  }

  /// @brief Reads `bytes`, at most staging_bytes, to address `to`, any memory, and waits for the data. Collective.
  WB_FN outcome fetch(remote from, uint32_t bytes, uint64_t to, lanes l = lanes::here()) const {
    l.wants = l.wants && bytes != 0;
    return fetch(work_request(mlx5::read(from, local{}, bytes), work_request::taken, bytes), to, l);
  }
  /// @brief Reads `bytes`, at most 16, to `value`, and waits for the data. Collective. The rest of `value` is unspecified.
  WB_FN outcome fetch(remote from, uint32_t bytes, order::detail::pair& value, lanes l = lanes::here()) const {
    return fetch(work_request(mlx5::read(from, local{}, bytes), work_request::taken, bytes), value, l);
  }

  // --- atomics -------------------------------------------------------------------------------------------------------
  //
  // An adapter executes these one after the other, whichever PE posts them, on aligned words. They are not atomic with accesses of
  // processors.

  /// @brief Adds `v` to a 64-bit word. Collective. No old value.
  WB_FN request add(remote at, uint64_t v, lanes l = lanes::here()) const { return drop(mlx5::fetch_add(at, local{}, v), l); }
  /// @brief Executes a masked add. T: uint32_t or uint64_t. Collective. No old value.
  template <class T> WB_FN request masked_add(remote at, add_operands<T> o, lanes l = lanes::here()) const {
    return drop(mlx5::masked_add(at, local{}, o), l);
  }
  /// @brief Executes a masked swap. T: uint32_t or uint64_t. Collective. No old value.
  template <class T> WB_FN request masked_swap(remote at, swap_operands<T> o, lanes l = lanes::here()) const {
    return drop(mlx5::masked_swap(at, local{}, o), l);
  }

  /// @brief Adds `v` to a 64-bit word, and waits for the old value. Collective.
  WB_FN outcome fetch_add(remote at, uint64_t v, uint64_t& old, lanes l = lanes::here()) const {
    return bring(mlx5::fetch_add(at, local{}, v), old, l);
  }
  /// @brief Stores `swap` to a 64-bit word if it equals `compare`, and waits for the old value. Collective.
  WB_FN outcome fetch_compare_swap(remote at, uint64_t compare, uint64_t swap, uint64_t& old, lanes l = lanes::here()) const {
    return bring(compare_swap(at, local{}, compare, swap), old, l);
  }
  /// @brief Executes a masked add, and waits for the old value. Collective.
  template <class T> WB_FN outcome fetch_masked_add(remote at, add_operands<T> o, T& old, lanes l = lanes::here()) const {
    return bring(mlx5::masked_add(at, local{}, o), old, l);
  }
  /// @brief Executes a masked swap, and waits for the old value. Collective.
  template <class T> WB_FN outcome fetch_masked_swap(remote at, swap_operands<T> o, T& old, lanes l = lanes::here()) const {
    return bring(mlx5::masked_swap(at, local{}, o), old, l);
  }

  // --- signals -------------------------------------------------------------------------------------------------------

  /// @brief Sets a 64-bit signal word, or adds to it. Collective.
  WB_FN request signal(remote at, signal_op op, uint64_t v, lanes l = lanes::here()) const {
    return post(op == signal_op::add ? work_request(mlx5::fetch_add(at, local{}, v), work_request::dropped)
                                     : work_request(mlx5::masked_swap(at, local{}, as_set<uint64_t>(v)), work_request::dropped),
                l);
  }

  /// @brief Posts a write, and a signal behind it. Collective. A thread that acquires the signal sees the data.
  WB_FN request put_signal(remote to, local from, uint64_t bytes, remote at, signal_op op, uint64_t v, lanes l = lanes::here()) const {
    return signal_behind(write(to, from, bytes, l), bytes, at, op, v, l);
  }
  /// @brief Posts a write of at most inline_write_max bytes from registers, and a signal behind it. Collective.
  WB_FN request put_signal_inline(remote to, const write_payload& data, uint32_t bytes, remote at, signal_op op, uint64_t v,
                                  lanes l = lanes::here()) const {
    return signal_behind(write_inline(to, data, bytes, l), bytes, at, op, v, l);
  }

  // --- nothing -------------------------------------------------------------------------------------------------------

  /// @brief Posts an entry that does nothing. Collective.
  WB_FN request nop(lanes l = lanes::here()) const { return post(mlx5::nop(), l); }
  /// @brief Reads local memory behind everything that has landed before. Collective. Completes at once where data needs no flush.
  WB_FN request flush(local at, lanes l = lanes::here()) const {
    l.wants = l.wants && needs_flush();
    return post(dump(at, 1, fenced), l);
  }

 private:
  template <uint32_t of> WB_FN request posted(work_request e, uint64_t to, order::detail::pair* value, lanes l) const {
    return How::template post<of>(q, control_, l, &e, to, value);
  }

  // Posts an atomic without a result. The old value lands in the block's staging all the same.
  template <class Entry> WB_FN request drop(const Entry& e, lanes l) const {
    return posted<known<Entry>::of>(work_request(e, work_request::dropped), 0, nullptr, l);
  }

  template <class Entry, class T> WB_FN outcome bring(const Entry& e, T& old, lanes l) const {
    order::detail::pair value{0, 0};
    const outcome o = fetch(work_request(e, work_request::taken, sizeof(T)), value, l);
    if (l.wants && o) old = sizeof(T) == 8 ? static_cast<T>(value.low) : static_cast<T>(landed(static_cast<uint32_t>(value.low)));
    return o;
  }

  WB_FN request signal_behind(request r, uint64_t bytes, remote at, signal_op op, uint64_t v, lanes l) const {
    if (bytes != 0 && !r.in_flight()) l.wants = false;
    const request s = signal(at, op, v, l);
    return l.wants ? s : r;
  }
};

/// @brief A send queue of a kernel that drives it itself.
using send_queue_ref = send_queue<inlined>;

}  // namespace mlx5
}  // namespace warpbell
