// Kernel that builds and reads the memory of mlx5 adapters on behalf of a test, which has poisoned the memory and compares all of
// it. Each vector has its own ring, and words for its results. For CPU threads at several warp widths and for GPUs; see
// tests/device/mlx5.rs. Launch shape: any grid.
#include <warpbell/kernel.h>
#include <warpbell/mlx5/cqe.cuh>
#include <warpbell/mlx5/send_ring.cuh>

#include "long_inline.cuh"

namespace entries {

using namespace warpbell;
using namespace warpbell::mlx5;

// In the order of tests/device/mlx5/engine.rs: first entries, named for their builders, then questions.
enum kind : uint64_t {
  k_nop,
  k_write,
  k_empty_write,
  k_write_imm,
  k_empty_write_imm,
  k_read,
  k_send,
  k_send_two,
  k_send_imm,
  k_send_inval,
  k_inline_write,
  k_long_inline_write,
  k_inline_send,
  k_fetch_add,
  k_compare_swap,
  k_masked_add32,
  k_masked_add64,
  k_masked_swap32,
  k_masked_swap64,
  k_add32,
  k_add64,
  k_fetch32,
  k_fetch64,
  k_xor32,
  k_xor64,
  k_set32,
  k_set64,
  k_and32,
  k_and64,
  k_or32,
  k_or64,
  k_cswap32,
  k_cswap64,
  k_dump,
  k_wait,
  k_dc_write,
  k_dc_write_global,
  k_doorbell,
  k_qp_record,
  k_cq_record,
  k_cqe,
  k_received,
  k_ring,
  k_collapsed,
  k_permute,
  k_swap
};

constexpr uint32_t most_inlined = 256;

// One vector, as in tests/device/mlx5/engine.rs. Fields that its kind does not need are 0, and so are bytes after its inlined bytes.
struct vector {
  uint64_t kind, inlined_bytes;
  uint64_t index, qpn, flags, raddr, rkey, laddr, lkey, bytes, imm, a, b, c, d, cqn, number;
  uint64_t dc_key, dct, rlid, rate_level, path, rmac, tclass, hops, grh, rgid_high, rgid_low;
  uint64_t next, receive, send, consumed, entries, ci, op_own, counter, laddr2, lkey2, bytes2;
  uint32_t inlined[most_inlined / 4];
};
static_assert(sizeof(vector) == 8 * 39 + most_inlined, "tests/device/mlx5/engine.rs");

constexpr uint32_t ring_log_blocks = 3;
constexpr uint32_t most_answers = 12;

WB_FN uint32_t low(uint64_t v) { return static_cast<uint32_t>(v); }

template <uint32_t words> WB_FN inline_words<words> words_of(const vector& v) {
  inline_words<words> p{};
  for (uint32_t i = 0; i < words; ++i) p.w[i] = v.inlined[i];
  return p;
}

WB_FN void build(const vector& v, const send_ring& ring) {
  const uint64_t i = v.index, a = v.a, b = v.b, c = v.c, d = v.d;
  const uint32_t a4 = low(a), b4 = low(b), c4 = low(c), d4 = low(d);
  const queue_word q = queue_of(low(v.qpn));
  const uint32_t how = low(v.flags), n = low(v.bytes), inlined = low(v.inlined_bytes);
  const remote r{v.raddr, big(low(v.rkey))};
  const local l{v.laddr, big(low(v.lkey))};
  const be32 imm = big(low(v.imm));
  const half_address half{v.dc_key, low(v.dct), low(v.rate_level), low(v.path), low(v.rlid)};
  const global_address global{v.rmac, low(v.tclass), low(v.hops), low(v.grh), v.rgid_high, v.rgid_low};
  const auto put = [&](const auto& entry) { ring.store(i, placed(entry, i, q, how)); };
  switch (v.kind) {
    case k_nop: return put(nop());
    case k_write: return put(write(r, l, n));
    case k_empty_write: return put(empty_write(r));
    case k_write_imm: return put(write_imm(r, l, n, imm));
    case k_empty_write_imm: return put(empty_write_imm(r, imm));
    case k_read: return put(read(r, l, n));
    case k_send: return put(send(l, n));
    case k_send_two: return put(send(l, n, local{v.laddr2, big(low(v.lkey2))}, low(v.bytes2)));
    case k_send_imm: return put(send_imm(l, n, imm));
    case k_send_inval: return put(send_inval(l, n, imm));
    case k_inline_write: return put(inline_write(r, words_of<7>(v), inlined));
    case k_long_inline_write: return long_inline_write(ring, i, q, how, r, v.inlined, inlined);
    case k_inline_send: return put(inline_send(words_of<11>(v), inlined));
    case k_fetch_add: return put(fetch_add(r, l, a));
    case k_compare_swap: return put(compare_swap(r, l, b, a));
    case k_masked_add32: return put(masked_add(r, l, add_operands<uint32_t>{a4, b4}));
    case k_masked_add64: return put(masked_add(r, l, add_operands<uint64_t>{a, b}));
    case k_masked_swap32: return put(masked_swap(r, l, swap_operands<uint32_t>{a4, b4, c4, d4}));
    case k_masked_swap64: return put(masked_swap(r, l, swap_operands<uint64_t>{a, b, c, d}));
    case k_add32: return put(masked_add(r, l, as_add(a4)));
    case k_add64: return put(masked_add(r, l, as_add(a)));
    case k_fetch32: return put(masked_add(r, l, as_fetch<uint32_t>()));
    case k_fetch64: return put(masked_add(r, l, as_fetch<uint64_t>()));
    case k_xor32: return put(masked_add(r, l, as_xor(a4)));
    case k_xor64: return put(masked_add(r, l, as_xor(a)));
    case k_set32: return put(masked_swap(r, l, as_set(a4)));
    case k_set64: return put(masked_swap(r, l, as_set(a)));
    case k_and32: return put(masked_swap(r, l, as_and(a4)));
    case k_and64: return put(masked_swap(r, l, as_and(a)));
    case k_or32: return put(masked_swap(r, l, as_or(a4)));
    case k_or64: return put(masked_swap(r, l, as_or(a)));
    case k_cswap32: return put(masked_swap(r, l, as_compare_swap(b4, a4)));
    case k_cswap64: return put(masked_swap(r, l, as_compare_swap(b, a)));
    case k_dump: return put(dump(l, n));
    case k_wait: return put(wait(low(v.cqn), low(v.number)));
    case k_dc_write: return put(dc_write(half, r, l, n));
    case k_dc_write_global: return put(dc_write(half, global, r, l, n));
    default: return;
  }
}

// Returns the word that ends with this last byte.
WB_FN cqe_state with_last_byte(uint64_t op_own) { return cqe_state(low(op_own) << 24); }

WB_FN uint32_t log2_of(uint64_t n) {
  uint32_t log = 0;
  while (n >>= 1) ++log;
  return log;
}

WB_FN void read_completion(const vector& v, uint64_t* answer) {
  const cqe_tail t(order::quad{v.inlined[0], v.inlined[1], v.inlined[2], v.inlined[3]});
  const cqe_state s = t.state();
  const bool failed = s.is_error();
  answer[0] = s.opcode();
  answer[1] = s.owner();
  answer[2] = s.is_solicited();
  answer[3] = s.wqe_counter();
  answer[4] = t.wqe_opcode();
  answer[5] = t.qpn();
  answer[6] = failed;
  answer[7] = failed ? t.syndrome() : 0;
  answer[8] = failed ? t.vendor_syndrome() : 0;
  answer[9] = failed ? t.hardware_syndrome_type() : 0;
  answer[10] = failed ? t.hardware_syndrome() : 0;
  answer[11] = failed && t.is_flush();
}

WB_FN order::quad quad_at(const vector& v, uint32_t offset) {
  const uint32_t* w = v.inlined + offset / 4;
  return order::quad{w[0], w[1], w[2], w[3]};
}

WB_FN void read_received(const vector& v, uint64_t* answer) {
  const cqe_tail t(quad_at(v, cqe_tail_at));
  const cqe_state s = t.state();
  const bool failed = s.is_error();
  answer[0] = s.opcode();
  answer[1] = s.owner();
  answer[2] = s.wqe_counter();
  answer[3] = t.qpn();
  answer[4] = failed;
  answer[5] = failed ? t.syndrome() : 0;
  answer[6] = failed ? 0 : received_bytes(quad_at(v, cqe_length_at));
  answer[7] = s.has_data();
  answer[8] = s.has_data() ? quad_at(v, 0).w : 0;
}

WB_FN void reply(const vector& v, uint64_t* answer) {
  switch (v.kind) {
    case k_doorbell: answer[0] = doorbell(v.next, queue_of(low(v.qpn))); return;
    case k_qp_record: answer[0] = order::bits<uint64_t>(qp_record{receive_record(v.receive), send_record(v.send)}); return;
    case k_cq_record: answer[0] = consumer_record(v.consumed); return;
    case k_cqe: return read_completion(v, answer);
    case k_received: return read_received(v, answer);
    case k_ring: answer[0] = completion_ring(0, log2_of(v.entries)).is_written(v.ci, with_last_byte(v.op_own)); return;
    case k_collapsed: {
      const collapsed queue(log2_of(v.entries));
      answer[0] = queue.is_complete(v.index, low(v.counter)) ? collapsed::completed(v.index, low(v.counter)) : 0;
      return;
    }
    case k_permute: answer[0] = permute(low(v.a), low(v.b), low(v.c)); return;
    case k_swap:
      answer[0] = swap_bytes(low(v.a));
      answer[1] = swap_bytes(v.a);
      answer[2] = landed(low(v.a));
      return;
    default: return;
  }
}

}  // namespace entries

// Builds entry i in ring i, or computes the answer to question i, by thread i. Fields that a vector does not request keep their
// contents.
WB_KERNEL void wb_mlx5_entries(const entries::vector* vectors, WB_PARAM uint64_t count, uint8_t* rings, uint64_t* answers) {
  using namespace entries;
  constexpr uint64_t ring_bytes = uint64_t{block_bytes} << ring_log_blocks;
  for (uint64_t i = warp::thread_index(); i < count; i += warp::thread_total()) {
    build(vectors[i], send_ring(reinterpret_cast<uint64_t>(rings) + i * ring_bytes, ring_log_blocks));
    reply(vectors[i], answers + i * most_answers);
  }
}
WB_EXPORT(wb_mlx5_entries)

WB_IMAGE(warpbell_mlx5_entries)
