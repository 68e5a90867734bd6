// Atomic operations over RDMA adapters, as their masked forms have them. The adapter of the PE that owns the word does them; it is
// not atomic with loads, stores and atomics of processors, so a world with a network does all of them this way, those of a PE on
// its own memory as well.
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

// The entry, in operands of type T.
template <class T> WB_FN entry changing(change what, mlx5::remote at, T value, T expected) {
  constexpr bool wide = sizeof(T) == 8;
  const order::quad there = mlx5::remote_segment(at), none = mlx5::empty_segment();
  if (wide && what == change::add) {
    return entry{mlx5::op_fetch_add, mlx5::opmod_none, 4, sizeof(T), entry::into, false, 0, {there, mlx5::two_words(value, 0), none, none}};
  }
  if (wide && what == change::compare_swap) {
    return entry{mlx5::op_compare_swap, mlx5::opmod_none, 4, sizeof(T), entry::into, false, 0, {there, mlx5::two_words(value, expected), none, none}};
  }
  const uint32_t mod = wide ? mlx5::opmod_8_bytes : mlx5::opmod_4_bytes;
  if (what == change::fetch || what == change::add || what == change::bit_xor) {
    const mlx5::add_operands<T> o = what == change::fetch ? mlx5::as_fetch<T>() : what == change::add ? mlx5::as_add(value) : mlx5::as_xor(value);
    const order::quad operands = wide ? mlx5::two_words(o.add, o.boundary)
                                      : order::quad{mlx5::swap_bytes(static_cast<uint32_t>(o.add)),
                                                    mlx5::swap_bytes(static_cast<uint32_t>(o.boundary)), 0, 0};
    return entry{mlx5::op_masked_fetch_add, mod, 4, sizeof(T), entry::into, false, 0, {there, operands, none, none}};
  }
  const mlx5::swap_operands<T> o = what == change::swap ? mlx5::as_set(value)
                                   : what == change::bit_and ? mlx5::as_and(value)
                                   : what == change::bit_or ? mlx5::as_or(value)
                                                            : mlx5::as_compare_swap(expected, value);
  if (wide) {
    return entry{mlx5::op_masked_compare_swap, mod, 5, sizeof(T), entry::into, false, 0,
                 {there, mlx5::two_words(o.swap, o.compare), mlx5::two_words(o.swap_mask, o.compare_mask), none}};
  }
  return entry{mlx5::op_masked_compare_swap, mod, 4, sizeof(T), entry::into, false, 0,
               {there,
                order::quad{mlx5::swap_bytes(static_cast<uint32_t>(o.swap)), mlx5::swap_bytes(static_cast<uint32_t>(o.compare)),
                            mlx5::swap_bytes(static_cast<uint32_t>(o.swap_mask)), mlx5::swap_bytes(static_cast<uint32_t>(o.compare_mask))},
                none, none}};
}

// A word of 4 or 8 bytes; answers what it was if `fetches`, and then waits for it.
WB_FN_COLD uint64_t atomic(const wb_network* net, uint32_t call, change what, uint64_t at, uint64_t value, uint64_t expected,
                           uint32_t bytes, uint32_t pe, uint32_t lane, bool fetches) {
  const way w(net, call, pe, lane);
  entry e = bytes == 8 ? changing<uint64_t>(what, w.strict(at), value, expected)
                             : changing<uint32_t>(what, w.strict(at), static_cast<uint32_t>(value), static_cast<uint32_t>(expected));
  if (!fetches) {
    w.ended(so_far(post(w.queue, e)), at, bytes);
    return 0;
  }
  e.held = true;
  order::detail::pair before{0, 0};
  if (w.ended(fetch(w.queue, e, 0, &before), at, bytes) != WB_DONE) return 0;
  return bytes == 8 ? before.low : mlx5::landed(static_cast<uint32_t>(before.low));
}

}  // namespace network
}  // namespace warpbell
