// The operations of a send queue: write, read, atomics, put with signal.
//
// What goes out is posted and answered with a request to wait for; on one queue everything is carried out in the order in which
// it was posted. What brings a value back (`fetch_*`) waits for it; the value lands in the block's staging, so the caller needs no
// registered memory.
//
// A message of no bytes has no data segment, and a plain write or read of none is no work request at all: adapters take a length
// of 0 for 2 GiB. Long messages are cut into pieces of 1 GiB, the most that a queue pair takes (log_msg_max of 30).
//
// Reads and fetches end with a flush where the GPU does not order an adapter's writes to its memory for running kernels
// (WB_SEND_CONSISTENCY): a read of the landing place by the adapter, fenced behind the reads and atomics before it.
#pragma once

#include <warpbell/mlx5/queue.cuh>

namespace warpbell {
namespace mlx5 {

constexpr uint64_t max_message_bytes = uint64_t{1} << 30;

// Who makes a call together: every lane of `mask` does, those with `wants` mean it. Lanes may be on different queues.
struct lanes {
  warp::mask_t mask;
  bool wants;
  WB_FN static lanes here() { return lanes{warp::active(), true}; }
};

// What becomes of a 64-bit signal word.
enum class signal_op : uint32_t { set, add };

// Whether a read ends with the flush, or the caller sees to that later (`flush`).
enum class landing : uint32_t { flushed, later };

class send_queue_ref : public work_queue_ref {
 public:
  WB_FN send_queue_ref(wb_send_queue* queue, const wb_control* control) : work_queue_ref(queue, control) {}

  // --- to the other side ---------------------------------------------------------------------------------------------

  WB_FN request write(remote to, local from, uint64_t bytes, lanes l = lanes::here()) const {
    return in_pieces(l, to, from, bytes, [this](warp::mask_t mask, bool wants, remote r, local f, uint32_t n) {
      return submit(mask, wants, [=](uint64_t i, queue_word w, uint32_t how) { return mlx5::write(i, w, how, r, f, n); });
    });
  }

  // The data is in the entry: up to inline_write_max bytes, of any memory. It may change as soon as this returns.
  WB_FN request write_inline(remote to, const write_payload& data, uint32_t bytes, lanes l = lanes::here()) const {
    return submit(l.mask, l.wants && bytes != 0, [&](uint64_t i, queue_word w, uint32_t how) {
      return inline_write(i, w, how, to, data, bytes);
    });
  }

  // The data goes through the block's staging: up to staging_bytes, written there by `fill(at)`. For data in memory that is not
  // registered; it may change as soon as this returns.
  template <class Fill> WB_FN request write_filled(remote to, uint32_t bytes, Fill fill, lanes l = lanes::here()) const {
    return submit(l.mask, l.wants && bytes != 0, [&](uint64_t i, queue_word w, uint32_t how) {
      const staging s = staging_of(static_cast<uint32_t>(i));
      fill(s.at);
      return mlx5::write(i, w, how, to, s.name, bytes);
    });
  }

  // The receiver is told, by a completion with the immediate, when the data is there. It must have posted a receive.
  WB_FN request write_imm(remote to, local from, uint64_t bytes, be32 immediate, lanes l = lanes::here()) const {
    const uint64_t before = last_piece_at(bytes);
    const request r = write(to, from, before, lanes{l.mask, l.wants && before != 0});
    const bool wants = l.wants && (before == 0 || r.in_flight());
    const remote rest{to.address + before, to.key};
    const uint32_t n = static_cast<uint32_t>(bytes - before);
    const request with = submit(l.mask, wants && n != 0, [=](uint64_t i, queue_word w, uint32_t how) {
      return mlx5::write_imm(i, w, how, rest, local{from.address + before, from.key}, n, immediate);
    });
    const request without = submit(l.mask, wants && n == 0, [=](uint64_t i, queue_word w, uint32_t how) {
      return empty_write_imm(i, w, how, rest, immediate);
    });
    return !wants ? r : n != 0 ? with : without;
  }

  // --- from the other side -------------------------------------------------------------------------------------------

  WB_FN request read(remote from, local to, uint64_t bytes, landing how_landed = landing::flushed,
                     lanes l = lanes::here()) const {
    const bool flushed = how_landed == landing::flushed && needs_flush(l);
    return in_pieces(l, from, to, bytes, [this, flushed](warp::mask_t mask, bool wants, remote r, local t, uint32_t n) {
      if (!flushed) return submit(mask, wants, [=](uint64_t i, queue_word w, uint32_t how) { return mlx5::read(i, w, how, r, t, n); });
      return submit(mask, wants, [=](uint64_t i, queue_word w, uint32_t how) {
        return with_flush(mlx5::read(i, w, unsignalled, r, t, n), i, w, how, t);
      });
    });
  }

  // Reads up to staging_bytes into the block's staging, from where `take(at)` gets them, and waits for that.
  template <class Take> WB_FN outcome fetch(remote from, uint32_t bytes, Take take, lanes l = lanes::here()) const {
    return bring(lanes{l.mask, l.wants && bytes != 0}, take, [=](uint64_t i, queue_word w, uint32_t how, local to) {
      return mlx5::read(i, w, how, from, to, bytes);
    });
  }

  // --- atomics -------------------------------------------------------------------------------------------------------
  //
  // Adapters carry these out one after the other, whoever asks, on aligned words. They are not atomic with what processors do.

  WB_FN request add(remote at, uint64_t v, lanes l = lanes::here()) const {
    return drop(l, [=](uint64_t i, queue_word w, uint32_t how, local to) { return mlx5::fetch_add(i, w, how, at, to, v); });
  }
  // T: uint32_t or uint64_t.
  template <class T> WB_FN request masked_add(remote at, add_operands<T> o, lanes l = lanes::here()) const {
    return drop(l, [=](uint64_t i, queue_word w, uint32_t how, local to) { return mlx5::masked_add(i, w, how, at, to, o); });
  }
  template <class T> WB_FN request masked_swap(remote at, swap_operands<T> o, lanes l = lanes::here()) const {
    return drop(l, [=](uint64_t i, queue_word w, uint32_t how, local to) { return mlx5::masked_swap(i, w, how, at, to, o); });
  }

  // The same, and wait for the value before.
  WB_FN outcome fetch_add(remote at, uint64_t v, uint64_t& old, lanes l = lanes::here()) const {
    return bring(l, value_into(old),
                 [=](uint64_t i, queue_word w, uint32_t how, local to) { return mlx5::fetch_add(i, w, how, at, to, v); });
  }
  WB_FN outcome fetch_compare_swap(remote at, uint64_t compare, uint64_t swap, uint64_t& old, lanes l = lanes::here()) const {
    return bring(l, value_into(old), [=](uint64_t i, queue_word w, uint32_t how, local to) {
      return mlx5::compare_swap(i, w, how, at, to, compare, swap);
    });
  }
  template <class T> WB_FN outcome fetch_masked_add(remote at, add_operands<T> o, T& old, lanes l = lanes::here()) const {
    return bring(l, value_into(old),
                 [=](uint64_t i, queue_word w, uint32_t how, local to) { return mlx5::masked_add(i, w, how, at, to, o); });
  }
  template <class T> WB_FN outcome fetch_masked_swap(remote at, swap_operands<T> o, T& old, lanes l = lanes::here()) const {
    return bring(l, value_into(old),
                 [=](uint64_t i, queue_word w, uint32_t how, local to) { return mlx5::masked_swap(i, w, how, at, to, o); });
  }

  // --- signals -------------------------------------------------------------------------------------------------------

  WB_FN request signal(remote at, signal_op op, uint64_t v, lanes l = lanes::here()) const {
    const bool adds = op == signal_op::add;
    const request a = add(at, v, lanes{l.mask, l.wants && adds});
    const request s = masked_swap(at, as_set<uint64_t>(v), lanes{l.mask, l.wants && !adds});
    return adds ? a : s;
  }

  // A write, and the signal behind it, in one reservation: who sees the signal sees the data.
  WB_FN request put_signal(remote to, local from, uint64_t bytes, remote at, signal_op op, uint64_t v,
                           lanes l = lanes::here()) const {
    const uint64_t before = last_piece_at(bytes);
    const request r = write(to, from, before, lanes{l.mask, l.wants && before != 0});
    if (l.wants && before != 0 && !r.in_flight()) l.wants = false;
    const remote rest{to.address + before, to.key};
    const local source{from.address + before, from.key};
    const uint32_t n = static_cast<uint32_t>(bytes - before);
    const request s = behind(l, n, at, op, v, [=](uint64_t i, queue_word w) { return mlx5::write(i, w, unsignalled, rest, source, n); });
    return l.wants ? s : r;
  }
  // The same with up to inline_write_max bytes in the entry.
  WB_FN request put_signal_inline(remote to, const write_payload& data, uint32_t bytes, remote at, signal_op op, uint64_t v,
                                  lanes l = lanes::here()) const {
    return behind(l, bytes, at, op, v, [&](uint64_t i, queue_word w) { return inline_write(i, w, unsignalled, to, data, bytes); });
  }

  // --- nothing -------------------------------------------------------------------------------------------------------

  WB_FN request nop(lanes l = lanes::here()) const {
    return submit(l.mask, l.wants, [](uint64_t i, queue_word w, uint32_t how) { return mlx5::nop(i, w, how); });
  }
  // Reads local memory behind everything that has landed before; done at once where that needs no flush.
  WB_FN request flush(local at, lanes l = lanes::here()) const {
    return submit(l.mask, l.wants && (q->flags & WB_SEND_CONSISTENCY) != 0, [=](uint64_t i, queue_word w, uint32_t how) {
      return mlx5::dump(i, w, how | fenced, at, 1);
    });
  }

 private:
  WB_FN bool needs_flush(lanes l) const { return warp::any(l.mask, l.wants && (q->flags & WB_SEND_CONSISTENCY) != 0); }

  template <class Entry> WB_FN static chain<Entry, block> with_flush(const Entry& e, uint64_t i, queue_word w, uint32_t how, local at) {
    return chain<Entry, block>{e, mlx5::dump(i + extent<Entry>::blocks, w, how | fenced, at, 1)};
  }

  // Where the last piece of a message begins.
  WB_FN static uint64_t last_piece_at(uint64_t bytes) { return bytes == 0 ? 0 : (bytes - 1) & ~(max_message_bytes - 1); }

  // Posts a message piece by piece; `post` is collective. The last piece's request speaks for all.
  template <class Post> WB_FN static request in_pieces(lanes l, remote there, local here, uint64_t bytes, Post post) {
    request r;
    bool wants = l.wants && bytes != 0;
    while (warp::any(l.mask, wants)) {
      const uint32_t n = static_cast<uint32_t>(bytes < max_message_bytes ? bytes : max_message_bytes);
      const request piece = post(l.mask, wants, there, here, n);
      if (!wants) continue;
      r = piece;
      there.address += n;
      here.address += n;
      bytes -= n;
      wants = bytes != 0 && r.in_flight();
    }
    return r;
  }

  // An atomic whose old value nobody wants: it lands in the block's staging all the same.
  template <class Make> WB_FN request drop(lanes l, Make make) const {
    return submit(l.mask, l.wants, [&](uint64_t i, queue_word w, uint32_t how) {
      return make(i, w, how, staging_of(static_cast<uint32_t>(i)).name);
    });
  }

  // Something that lands in the block's staging and is taken from there.
  template <class Take, class Make> WB_FN outcome bring(lanes l, Take take, Make make) const {
    if (!needs_flush(l)) return exchange(l.mask, l.wants, make, take);
    return exchange(
        l.mask, l.wants,
        [&](uint64_t i, queue_word w, uint32_t how, local to) { return with_flush(make(i, w, unsignalled, to), i, w, how, to); }, take);
  }

  struct take_64 {
    uint64_t& old;
    WB_FN void operator()(uint64_t at) const { old = order::load<order::relaxed>(reinterpret_cast<const uint64_t*>(at)); }
  };
  struct take_32 {
    uint32_t& old;
    WB_FN void operator()(uint64_t at) const { old = landed(order::load<order::relaxed>(reinterpret_cast<const uint32_t*>(at))); }
  };
  WB_FN static take_64 value_into(uint64_t& old) { return take_64{old}; }
  WB_FN static take_32 value_into(uint32_t& old) { return take_32{old}; }

  // A signal behind the entry of `bytes` bytes that `make(index, queue)` builds, or alone if there are none. Lanes may differ in all of
  // that, and go in turns then.
  template <class Make>
  WB_FN request behind(lanes l, uint32_t bytes, remote at, signal_op op, uint64_t v, Make make) const {
    const bool adds = op == signal_op::add, data = bytes != 0;
    using entry = decltype(make(uint64_t{}, queue_word{}));
    constexpr uint32_t after = extent<entry>::blocks;
    const request alone = signal(at, op, v, lanes{l.mask, l.wants && !data});
    const request added = submit(l.mask, l.wants && data && adds, [&](uint64_t i, queue_word w, uint32_t how) {
      return chain<entry, block>{make(i, w), mlx5::fetch_add(i + after, w, how, at, old_value(i + after), v)};
    });
    const request set = submit(l.mask, l.wants && data && !adds, [&](uint64_t i, queue_word w, uint32_t how) {
      return chain<entry, block2>{make(i, w), mlx5::masked_swap(i + after, w, how, at, old_value(i + after), as_set<uint64_t>(v))};
    });
    return !data ? alone : adds ? added : set;
  }
  WB_FN local old_value(uint64_t index) const { return staging_of(static_cast<uint32_t>(index)).name; }
};

}  // namespace mlx5
}  // namespace warpbell
