// Flat functions of worlds and teams: warpbell_device.h describes them.
#pragma once

#include "flat.cuh"

namespace warpbell {
namespace flat {

WB_FN world_ref world(uint64_t view) { return world_ref(at<wb_world>(view)); }
WB_FN team_ref team(uint64_t view) { return team_ref(at<wb_team_view>(view)); }

template <class T> WB_FN T* pointer(uint64_t address) { return reinterpret_cast<T*>(address); }

static_assert(static_cast<uint32_t>(cmp::eq) == WBD_CMP_EQ && static_cast<uint32_t>(cmp::ne) == WBD_CMP_NE &&
                  static_cast<uint32_t>(cmp::gt) == WBD_CMP_GT && static_cast<uint32_t>(cmp::le) == WBD_CMP_LE &&
                  static_cast<uint32_t>(cmp::lt) == WBD_CMP_LT && static_cast<uint32_t>(cmp::ge) == WBD_CMP_GE,
              "the numbers of warpbell_device.h");
static_assert(static_cast<uint32_t>(signal::set) == WBD_SIGNAL_SET && static_cast<uint32_t>(signal::add) == WBD_SIGNAL_ADD,
              "the numbers of warpbell_device.h");

// Returns true for a signal operation. The number comes from another compiler: if there is no such operation, thread `rank` 0 enters a
// bad argument in the run's error log.
WB_FN bool is_signal(const world_ref& w, uint64_t sig, uint32_t operation, uint32_t pe, uint32_t rank) {
  if (WB_LIKELY(operation == WBD_SIGNAL_SET || operation == WBD_SIGNAL_ADD)) return true;
  if (rank == 0) w.fail(WB_CALL_SIGNAL, status_word(WB_BAD_ARGUMENT), pointer<uint64_t>(sig), sizeof(uint64_t), pe);
  return false;
}
// Returns true for a comparison, likewise.
WB_FN bool is_comparison(const world_ref& w, uint64_t at, uint32_t comparison) {
  if (WB_LIKELY(comparison <= WBD_CMP_GE)) return true;
  w.fail(WB_CALL_WAIT, status_word(WB_BAD_ARGUMENT), pointer<uint8_t>(at), 0, WB_NO_PE);
  return false;
}

template <class S> WB_FN uint32_t put(S s, uint64_t view, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe) {
  world(view).put(s, pointer<uint8_t>(to), pointer<const uint8_t>(from), bytes, pe);
  return WB_DONE;
}
template <class S> WB_FN uint32_t put_nbi(S s, uint64_t view, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe) {
  world(view).put_nbi(s, pointer<uint8_t>(to), pointer<const uint8_t>(from), bytes, pe);
  return WB_DONE;
}
template <class S> WB_FN uint32_t get(S s, uint64_t view, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe) {
  world(view).get(s, pointer<uint8_t>(to), pointer<const uint8_t>(from), bytes, pe);
  return WB_DONE;
}
template <class S> WB_FN uint32_t get_nbi(S s, uint64_t view, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe) {
  world(view).get_nbi(s, pointer<uint8_t>(to), pointer<const uint8_t>(from), bytes, pe);
  return WB_DONE;
}
template <class S> WB_FN uint32_t put_signal(S s, uint64_t view, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig, uint64_t value,
                                             uint32_t operation, uint32_t pe) {
  const world_ref w = world(view);
  if (!is_signal(w, sig, operation, pe, s.rank())) return status_word(WB_BAD_ARGUMENT);
  w.put_signal(s, pointer<uint8_t>(to), pointer<const uint8_t>(from), bytes, pointer<uint64_t>(sig), value, static_cast<signal>(operation),
               pe);
  return WB_DONE;
}
template <class S> WB_FN uint32_t put_signal_nbi(S s, uint64_t view, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig,
                                                 uint64_t value, uint32_t operation, uint32_t pe) {
  const world_ref w = world(view);
  if (!is_signal(w, sig, operation, pe, s.rank())) return status_word(WB_BAD_ARGUMENT);
  w.put_signal_nbi(s, pointer<uint8_t>(to), pointer<const uint8_t>(from), bytes, pointer<uint64_t>(sig), value,
                   static_cast<signal>(operation), pe);
  return WB_DONE;
}

}  // namespace flat
}  // namespace warpbell

WB_FLAT uint32_t wbd_my_pe(uint64_t world) { return warpbell::flat::at<wb_world>(world).pe; }
WB_FLAT uint32_t wbd_n_pes(uint64_t world) { return warpbell::flat::at<wb_world>(world).size; }
WB_FLAT uint32_t wbd_world_has_failed(uint64_t world) { return warpbell::flat::world(world).has_failed(); }
WB_FLAT uint64_t wbd_ptr(uint64_t world, uint64_t at, uint32_t pe) {
  return reinterpret_cast<uint64_t>(warpbell::flat::world(world).ptr(warpbell::flat::pointer<uint8_t>(at), pe));
}

#define WB_FLAT_VALUE(NAME, T, PASSED)                                                         \
  WB_FLAT uint32_t wbd_p_##NAME(uint64_t world, uint64_t to, PASSED value, uint32_t pe) {      \
    warpbell::flat::world(world).p(warpbell::flat::pointer<T>(to), static_cast<T>(value), pe); \
    return WB_DONE;                                                                            \
  }                                                                                            \
  WB_FLAT PASSED wbd_g_##NAME(uint64_t world, uint64_t from, uint32_t pe) {                    \
    return warpbell::flat::world(world).g(warpbell::flat::pointer<T>(from), pe);               \
  }
WB_FLAT_VALUE(u8, uint8_t, uint32_t)
WB_FLAT_VALUE(u16, uint16_t, uint32_t)
WB_FLAT_VALUE(u32, uint32_t, uint32_t)
WB_FLAT_VALUE(u64, uint64_t, uint64_t)
WB_FLAT_VALUE(f32, float, float)
WB_FLAT_VALUE(f64, double, double)

#define WB_FLAT_MEMORY(SUFFIX, SCOPE)                                                                                                      \
  WB_FLAT uint32_t wbd_putmem##SUFFIX(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe) {                           \
    return warpbell::flat::put(SCOPE, world, to, from, bytes, pe);                                                                         \
  }                                                                                                                                        \
  WB_FLAT uint32_t wbd_putmem_nbi##SUFFIX(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe) {                       \
    return warpbell::flat::put_nbi(SCOPE, world, to, from, bytes, pe);                                                                     \
  }                                                                                                                                        \
  WB_FLAT uint32_t wbd_getmem##SUFFIX(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe) {                           \
    return warpbell::flat::get(SCOPE, world, to, from, bytes, pe);                                                                         \
  }                                                                                                                                        \
  WB_FLAT uint32_t wbd_getmem_nbi##SUFFIX(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint32_t pe) {                       \
    return warpbell::flat::get_nbi(SCOPE, world, to, from, bytes, pe);                                                                     \
  }                                                                                                                                        \
  WB_FLAT uint32_t wbd_putmem_signal##SUFFIX(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig, uint64_t value,     \
                                             uint32_t operation, uint32_t pe) {                                                            \
    return warpbell::flat::put_signal(SCOPE, world, to, from, bytes, sig, value, operation, pe);                                           \
  }                                                                                                                                        \
  WB_FLAT uint32_t wbd_putmem_signal_nbi##SUFFIX(uint64_t world, uint64_t to, uint64_t from, uint64_t bytes, uint64_t sig, uint64_t value, \
                                                 uint32_t operation, uint32_t pe) {                                                        \
    return warpbell::flat::put_signal_nbi(SCOPE, world, to, from, bytes, sig, value, operation, pe);                                       \
  }                                                                                                                                        \
  WB_FLAT uint32_t wbd_barrier_all##SUFFIX(uint64_t world) { return warpbell::flat::world(world).barrier_all(SCOPE).word; }                \
  WB_FLAT uint32_t wbd_sync_all##SUFFIX(uint64_t world) { return warpbell::flat::world(world).sync_all(SCOPE).word; }                      \
  WB_FLAT uint32_t wbd_team_barrier##SUFFIX(uint64_t team, uint32_t channel) {                                                             \
    return warpbell::flat::team(team).barrier(SCOPE, channel).word;                                                                        \
  }                                                                                                                                        \
  WB_FLAT uint32_t wbd_team_sync##SUFFIX(uint64_t team, uint32_t channel) { return warpbell::flat::team(team).sync(SCOPE, channel).word; }
WB_FLAT_MEMORY(, warpbell::by_thread)
WB_FLAT_MEMORY(_warp, warpbell::by_warp)
WB_FLAT_MEMORY(_block, warpbell::by_block)

WB_FLAT uint32_t wbd_signal_op(uint64_t world, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe) {
  using namespace warpbell;
  const world_ref w = flat::world(world);
  if (!flat::is_signal(w, sig, operation, pe, 0)) return status_word(WB_BAD_ARGUMENT);
  w.signal_op(flat::pointer<uint64_t>(sig), value, static_cast<signal>(operation), pe);
  return WB_DONE;
}
WB_FLAT uint32_t wbd_signal_op_block(uint64_t world, uint64_t sig, uint64_t value, uint32_t operation, uint32_t pe) {
  return warpbell::flat::by_first(warpbell::by_block, [=] {
    warpbell::flat::world(world).fence();
    return wbd_signal_op(world, sig, value, operation, pe);
  });
}
WB_FLAT uint32_t wbd_signal_wait_shadow(uint64_t world, uint64_t sig, uint64_t shadow, uint64_t n, uint32_t pe) {
  using namespace warpbell;
  return flat::world(world).signal_wait_shadow(flat::pointer<uint64_t>(sig), *flat::pointer<uint64_t>(shadow), n, nullptr, pe).word;
}
WB_FLAT uint32_t wbd_signal_wait_shadow_block(uint64_t world, uint64_t sig, uint64_t shadow, uint64_t n, uint32_t pe) {
  return warpbell::flat::by_first(warpbell::by_block, [=] { return wbd_signal_wait_shadow(world, sig, shadow, n, pe); });
}
WB_FLAT uint32_t wbd_signal_test_shadow(uint64_t world, uint64_t sig, uint64_t shadow, uint64_t n) {
  using namespace warpbell;
  return flat::world(world).signal_test_shadow(flat::pointer<uint64_t>(sig), *flat::pointer<uint64_t>(shadow), n);
}
WB_FLAT uint64_t wbd_signal_fetch(uint64_t world, uint64_t sig) {
  return warpbell::flat::world(world).signal_fetch(warpbell::flat::pointer<uint64_t>(sig));
}
WB_FLAT uint32_t wbd_signal_wait_until(uint64_t world, uint64_t sig, uint32_t comparison, uint64_t value) {
  using namespace warpbell;
  const world_ref w = flat::world(world);
  if (!flat::is_comparison(w, sig, comparison)) return status_word(WB_BAD_ARGUMENT);
  return w.signal_wait_until(flat::pointer<uint64_t>(sig), static_cast<cmp>(comparison), value).word;
}
WB_FLAT uint32_t wbd_signal_wait_until_block(uint64_t world, uint64_t sig, uint32_t comparison, uint64_t value) {
  return warpbell::flat::by_first(warpbell::by_block, [=] { return wbd_signal_wait_until(world, sig, comparison, value); });
}

#define WB_FLAT_CHANGE(NAME, T, CALL)                                                              \
  WB_FLAT uint32_t wbd_atomic_##CALL##_##NAME(uint64_t world, uint64_t at, T value, uint32_t pe) { \
    warpbell::flat::world(world).atomic_##CALL(warpbell::flat::pointer<T>(at), value, pe);         \
    return WB_DONE;                                                                                \
  }
#define WB_FLAT_FETCH(NAME, T, CALL)                                                              \
  WB_FLAT T wbd_atomic_##CALL##_##NAME(uint64_t world, uint64_t at, T value, uint32_t pe) {       \
    return warpbell::flat::world(world).atomic_##CALL(warpbell::flat::pointer<T>(at), value, pe); \
  }
#define WB_FLAT_WORD(NAME, T)                                                                                                 \
  WB_FLAT T wbd_atomic_fetch_##NAME(uint64_t world, uint64_t at, uint32_t pe) {                                               \
    return warpbell::flat::world(world).atomic_fetch(warpbell::flat::pointer<T>(at), pe);                                     \
  }                                                                                                                           \
  WB_FLAT T wbd_atomic_compare_swap_##NAME(uint64_t world, uint64_t at, T expected, T value, uint32_t pe) {                   \
    return warpbell::flat::world(world).atomic_compare_swap(warpbell::flat::pointer<T>(at), expected, value, pe);             \
  }                                                                                                                           \
  WB_FLAT_FETCH(NAME, T, swap)                                                                                                \
  WB_FLAT_FETCH(NAME, T, fetch_add)                                                                                           \
  WB_FLAT_FETCH(NAME, T, fetch_and)                                                                                           \
  WB_FLAT_FETCH(NAME, T, fetch_or)                                                                                            \
  WB_FLAT_FETCH(NAME, T, fetch_xor)                                                                                           \
  WB_FLAT_CHANGE(NAME, T, set)                                                                                                \
  WB_FLAT_CHANGE(NAME, T, add)                                                                                                \
  WB_FLAT_CHANGE(NAME, T, and)                                                                                                \
  WB_FLAT_CHANGE(NAME, T, or)                                                                                                 \
  WB_FLAT_CHANGE(NAME, T, xor)                                                                                                \
  WB_FLAT uint32_t wbd_wait_until_##NAME(uint64_t world, uint64_t at, uint32_t comparison, T value) {                         \
    const warpbell::world_ref w = warpbell::flat::world(world);                                                               \
    if (!warpbell::flat::is_comparison(w, at, comparison)) return warpbell::status_word(WB_BAD_ARGUMENT);                     \
    return w.wait_until(warpbell::flat::pointer<T>(at), static_cast<warpbell::cmp>(comparison), value).word;                  \
  }                                                                                                                           \
  WB_FLAT uint32_t wbd_wait_until_##NAME##_block(uint64_t world, uint64_t at, uint32_t comparison, T value) {                 \
    return warpbell::flat::by_first(warpbell::by_block, [=] { return wbd_wait_until_##NAME(world, at, comparison, value); }); \
  }                                                                                                                           \
  WB_FLAT uint32_t wbd_test_##NAME(uint64_t world, uint64_t at, uint32_t comparison, T value) {                               \
    const warpbell::world_ref w = warpbell::flat::world(world);                                                               \
    return warpbell::flat::is_comparison(w, at, comparison) &&                                                                \
           w.test(warpbell::flat::pointer<T>(at), static_cast<warpbell::cmp>(comparison), value);                             \
  }
WB_FLAT_WORD(u32, uint32_t)
WB_FLAT_WORD(u64, uint64_t)

WB_FLAT uint32_t wbd_fence(uint64_t world) {
  warpbell::flat::world(world).fence();
  return WB_DONE;
}
WB_FLAT uint32_t wbd_fence_block(uint64_t world) {
  return warpbell::flat::by_first(warpbell::by_block, [=] { return wbd_fence(world); });
}
WB_FLAT uint32_t wbd_quiet(uint64_t world) { return warpbell::flat::world(world).quiet().word; }
WB_FLAT uint32_t wbd_quiet_block(uint64_t world) {
  return warpbell::flat::by_first(warpbell::by_block, [=] { return wbd_quiet(world); });
}
WB_FLAT uint32_t wbd_quiet_all_block(uint64_t world) { return warpbell::flat::world(world).quiet_all(warpbell::by_block).word; }

WB_FLAT uint32_t wbd_flush(uint64_t world) { return warpbell::flat::world(world).flush().word; }
WB_FLAT uint32_t wbd_flush_block(uint64_t world) {
  return warpbell::flat::by_first(warpbell::by_block, [=] { return wbd_flush(world); });
}
WB_FLAT uint32_t wbd_flush_all_block(uint64_t world) { return warpbell::flat::world(world).flush_all(warpbell::by_block).word; }

WB_FLAT uint32_t wbd_team_my_pe(uint64_t team) { return warpbell::flat::at<wb_team_view>(team).team.pe; }
WB_FLAT uint32_t wbd_team_n_pes(uint64_t team) { return warpbell::flat::at<wb_team_view>(team).team.size; }
WB_FLAT uint32_t wbd_team_world_pe(uint64_t team, uint32_t member) { return warpbell::flat::team(team).world_pe(member); }

#undef WB_FLAT_VALUE
#undef WB_FLAT_MEMORY
#undef WB_FLAT_CHANGE
#undef WB_FLAT_FETCH
#undef WB_FLAT_WORD
