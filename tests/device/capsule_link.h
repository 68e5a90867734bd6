// The connection of a remote controller's queue, for tests: the rings of an RDMA queue pair, with adapter and target at once. It
// checks what kernels write there: order of the sends, capsules, receives.
#pragma once

#include <warpbell/volume.cuh>

#include <string>
#include <vector>

#include "model.h"

namespace model {

class capsule_link {
 public:
  // Keys of bounce buffers and of registered memory.
  static constexpr uint32_t bounce_key = 0x8000f1, memory_key = 0x12345678;

  // `posted` messages each way are over already, as those of Connect. Writes of up to `in_capsule` bytes must come with their data.
  capsule_link(const std::vector<order::quad>& capsules, uint32_t depth, uint32_t posted, bool in_entry, uint32_t in_capsule = 0)
      : depth_(depth),
        log_(static_cast<uint32_t>(__builtin_ctz(depth))),
        in_entry_(in_entry),
        sent_(posted),
        taken_(posted),
        ring_(depth * 4),
        completions_(depth * 4, order::quad{~0u, ~0u, ~0u, ~0u}),
        received_(depth * 4, order::quad{~0u, ~0u, ~0u, ~0u}),
        responses_(depth) {
    for (uint32_t i = 0; i < posted; ++i) {
      complete(completions_, i, mlx5::cqe_requester << 4, 0);
      complete(received_, i, mlx5::cqe_send << 4, 0);
    }
    record_.receive = mlx5::receive_record(depth + posted);
    doorbell_ = mlx5::doorbell(posted, mlx5::queue_of(number));
    view.ring = reinterpret_cast<uint64_t>(ring_.data());
    view.sent = reinterpret_cast<uint64_t>(completions_.data());
    view.received = reinterpret_cast<uint64_t>(received_.data());
    view.responses = reinterpret_cast<uint64_t>(responses_.data());
    view.record = &record_;
    view.doorbell = &doorbell_;
    view.capsules = reinterpret_cast<uint64_t>(capsules.data()) + shift;
    view.report = &report;
    view.capsule_key = mlx5::big(capsule_key).word;
    view.queue_word = mlx5::queue_of(number).word;
    view.log_blocks = view.log_receives = log_;
    view.posted = view.taken = posted;
    view.in_capsule_bytes = in_capsule;
  }

  // Makes this the first connection of a queue whose next ticket is `ticket`.
  void begin(uint32_t ticket) {
    view.announced = ticket;
    view.shift = view.posted - ticket;
  }

  // Fetches the next command that was announced, if there is one. Its send completes. Data that came with it is named as if by a
  // key.
  bool fetch(order::quad* e) {
    const uint64_t bell = order::load<order::acquire, order::system>(&doorbell_);
    const uint32_t end = (bell >> 8 & 0xff) << 8 | (bell >> 16 & 0xff);
    check(static_cast<uint32_t>(bell >> 32) == view.queue_word, "a doorbell names another queue pair");
    if ((sent_ & 0xffffu) == end) return false;
    const order::quad* block = &ring_[(sent_ & (depth_ - 1)) * 4];
    const order::quad control = order::load_quad<order::acquire, order::system>(block);
    const order::quad data = order::load_quad<order::acquire, order::system>(block + 1);
    check(control.x == mlx5::swap_bytes((sent_ & 0xffffu) << 8 | mlx5::op_send), "a send has a wrong index or opcode");
    const uint32_t segments = control.y >> 24;
    check(control.y == (view.queue_word | segments << 24) && (segments == 2 || segments == 3), "a send has a wrong queue pair or length");
    check(control.z >> 24 == mlx5::signalled, "a send does not complete");
    check(data.x == mlx5::swap_bytes(64u) && data.y == view.capsule_key, "a capsule has a wrong length or key");
    const uint64_t at = uint64_t{mlx5::swap_bytes(data.z)} << 32 | mlx5::swap_bytes(data.w);
    check(at >= view.capsules && at < view.capsules + depth_ * 64u && (at - view.capsules) % 64 == 0, "a send names no capsule");
    for (uint32_t i = 0; i < 4; ++i)
      e[i] = order::load_quad<order::relaxed, order::system>(reinterpret_cast<const order::quad*>(at - shift) + i);
    check((e[0].x >> 14 & 3u) == 1, "a command has no SGL");
    const bool writes = (e[0].x & 0xff) == nvme::op_write;
    if (segments == 3) {
      const order::quad more = order::load_quad<order::acquire, order::system>(block + 2);
      const uint32_t bytes = mlx5::swap_bytes(more.x), key = mlx5::swap_bytes(more.y);
      check(writes && bytes != 0 && bytes <= view.in_capsule_bytes, "data that the target does not take came with a command");
      check(e[1].z == 0 && e[1].w == 0 && e[2].x == bytes && e[2].y == 0x01u << 24, "a capsule does not name the data behind it");
      e[1].z = mlx5::swap_bytes(more.w), e[1].w = mlx5::swap_bytes(more.z);
      e[2].x = bytes | key << 24, e[2].y = key >> 8 | 0x40u << 24;
      ++with_data;
    }
    check(e[2].y >> 24 == 0x40, "a command has no keyed data block");
    check(segments == 3 || !writes || (e[2].x & 0xffffffu) > view.in_capsule_bytes, "a small write came without its data");
    check((e[0].x >> 16 & (depth_ - 1)) == (at - view.capsules) / 64, "an identifier does not belong to its capsule");
    complete(completions_, sent_++, mlx5::cqe_requester << 4, 0);
    return true;
  }

  // Sends a response of `bytes` bytes.
  void respond(order::quad x, uint32_t bytes = 16) {
    const uint32_t posted = mlx5::swap_bytes(order::load<order::acquire, order::system>(&record_.receive)) & 0xffffu;
    check(((posted - taken_) & 0xffffu) != 0 && ((posted - taken_) & 0xffffu) <= depth_, "a response finds no receive");
    if (in_entry_) order::store_quad<order::relaxed, order::system>(&received_[(taken_ & (depth_ - 1)) * 4], x);
    else order::store_quad<order::relaxed, order::system>(&responses_[taken_ & (depth_ - 1)], x);
    complete(received_, taken_++, mlx5::cqe_send << 4 | (in_entry_ ? 4u : 0u), bytes);
  }

  // Flushes the receives, as a queue pair that has failed.
  void flush() { complete(received_, taken_++, mlx5::cqe_responder_error << 4, 0, mlx5::syndrome_flushed); }

  wb_capsules view = {};
  wb_capsules_report report = {};
  uint32_t with_data = 0;  // commands whose data came with them

 private:
  static constexpr uint64_t shift = uint64_t{1} << 50;  // from kernels' addresses to those of work requests
  static constexpr uint32_t number = 0x4711, capsule_key = 0x77;

  void complete(std::vector<order::quad>& to, uint32_t index, uint32_t kind, uint32_t bytes, uint32_t syndrome = 0) {
    order::quad* entry = &to[(index & (depth_ - 1)) * 4];
    order::store_quad<order::relaxed, order::system>(entry + 2, {0, 0, 0, mlx5::swap_bytes(bytes)});
    const uint32_t state = mlx5::swap_bytes((index & 0xffffu) << 16) | (kind | (index >> log_ & 1u)) << 24;
    order::store_quad<order::relaxed, order::system>(entry + 3, {0, syndrome << 24, 0, state});
  }

  uint32_t depth_, log_;
  bool in_entry_;
  uint32_t sent_, taken_;
  std::vector<order::quad> ring_, completions_, received_, responses_;
  mlx5::qp_record record_ = {};
  alignas(64) uint64_t doorbell_ = 0;
};

}  // namespace model
