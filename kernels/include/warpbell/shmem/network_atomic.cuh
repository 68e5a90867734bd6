// Atomic operations over RDMA adapters, by the adapter's masked forms. The adapter of the PE that owns the word executes them. They
// are not atomic with loads, stores and atomics of processors. So a world with a network does all atomic operations this way,
// including those of a PE on its own memory.
//
//   add, fetch                 an addition with carries everywhere (of 0 to fetch)
//   xor                        an addition with carries nowhere: each bit is a number of its own
//   set, swap                  a swap of all bits, whatever was there
//   and, or                    a swap of the bits that are to be 0, or 1
//   compare_swap               a swap of all bits, if all of them are as expected
#pragma once

#include <warpbell/shmem/network.cuh>

namespace warpbell {
namespace network {

enum class change : uint32_t { fetch, add, bit_xor, swap, bit_and, bit_or, compare_swap };

// Returns the work request, in operands of type T.
template <class T> WB_FN mlx5::work_request changing(change what, mlx5::remote at, T value, T expected, mlx5::work_request::use with) {
  using mlx5::local;
  using mlx5::work_request;
  if constexpr (sizeof(T) == 8) {
    if (what == change::add) return work_request(mlx5::fetch_add(at, local{}, value), with);
    if (what == change::compare_swap) return work_request(mlx5::compare_swap(at, local{}, expected, value), with);
  }
  if (what == change::fetch || what == change::add || what == change::bit_xor) {
    const mlx5::add_operands<T> o = what == change::fetch ? mlx5::as_fetch<T>()
                                    : what == change::add ? mlx5::as_add(value)
                                                          : mlx5::as_xor(value);
    return work_request(mlx5::masked_add(at, local{}, o), with);
  }
  const mlx5::swap_operands<T> o = what == change::swap      ? mlx5::as_set(value)
                                   : what == change::bit_and ? mlx5::as_and(value)
                                   : what == change::bit_or  ? mlx5::as_or(value)
                                                             : mlx5::as_compare_swap(expected, value);
  return work_request(mlx5::masked_swap(at, local{}, o), with);
}

// Executes the operation on a word of 4 or 8 bytes. If `fetches`, waits for the value before and returns it.
WB_FN_COLD uint64_t atomic(const wb_network* net, uint32_t call, change what, uint64_t at, uint64_t value, uint64_t expected,
                           uint32_t bytes, uint32_t pe, uint32_t lane, bool fetches) {
  const peer_path w(net, call, pe, lane);
  const mlx5::work_request::use with = fetches ? mlx5::work_request::taken : mlx5::work_request::dropped;
  const mlx5::work_request e =
      bytes == 8 ? changing<uint64_t>(what, w.strict(at), value, expected, with)
                 : changing<uint32_t>(what, w.strict(at), static_cast<uint32_t>(value), static_cast<uint32_t>(expected), with);
  if (!fetches) {
    w.ended(so_far(w.queue.post(e)), at, bytes);
    return 0;
  }
  order::detail::pair before{0, 0};
  if (w.ended(w.queue.fetch(e, before).word, at, bytes) != WB_DONE) return 0;
  return bytes == 8 ? before.low : mlx5::landed(static_cast<uint32_t>(before.low));
}

}  // namespace network
}  // namespace warpbell
