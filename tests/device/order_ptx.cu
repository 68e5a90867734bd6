// A kernel for each access of order.cuh, generated from its tables. Compiled and never run: .ci/ptx_snapshot.py compares the
// instruction of each with order_ptx.txt.
#include <warpbell/kernel.h>
#include <warpbell/bulk.cuh>
#include <warpbell/order.cuh>

using namespace warpbell;
using pair = order::detail::pair;

#define LOAD(NAME, O, S, WORD)                                               \
  WB_KERNEL void NAME(const WORD* p) { order::load<order::O, order::S>(p); } \
  WB_EXPORT(NAME)
#define LOADS(OP, O, S, CPU)                 \
  LOAD(OP##_##O##_##S##_u8, O, S, uint8_t)   \
  LOAD(OP##_##O##_##S##_u16, O, S, uint16_t) \
  LOAD(OP##_##O##_##S##_u32, O, S, uint32_t) \
  LOAD(OP##_##O##_##S##_u64, O, S, uint64_t) \
  LOAD(OP##_##O##_##S##_u128, O, S, pair)
WB_ORDER_LOADS(LOADS)

// Operations with one operand.
#define WRITE(OP, NAME, O, S, WORD)                                             \
  WB_KERNEL void NAME(WORD* p, WORD v) { order::OP<order::O, order::S>(p, v); } \
  WB_EXPORT(NAME)
#define WORDS(OP, O, S, CPU)                      \
  WRITE(OP, OP##_##O##_##S##_u32, O, S, uint32_t) \
  WRITE(OP, OP##_##O##_##S##_u64, O, S, uint64_t)
#define STORES(OP, O, S, CPU)                     \
  WRITE(OP, OP##_##O##_##S##_u8, O, S, uint8_t)   \
  WRITE(OP, OP##_##O##_##S##_u16, O, S, uint16_t) \
  WORDS(OP, O, S, CPU)                            \
  WRITE(OP, OP##_##O##_##S##_u128, O, S, pair)
WB_ORDER_STORES(STORES)
WB_ORDER_UPDATES(WORDS)
WB_ORDER_ADDS(WORDS)
WRITE(fetch_add, fetch_add_relaxed_device_f32, relaxed, device, float)
WRITE(fetch_add, fetch_add_relaxed_device_f64, relaxed, device, double)

#define COMPARE(OP, NAME, O, S, WORD)                                                                    \
  WB_KERNEL void NAME(WORD* p, WORD expected, WORD v) { order::OP<order::O, order::S>(p, expected, v); } \
  WB_EXPORT(NAME)
#define COMPARES(OP, O, S, CPU)                     \
  COMPARE(OP, OP##_##O##_##S##_u32, O, S, uint32_t) \
  COMPARE(OP, OP##_##O##_##S##_u64, O, S, uint64_t)
WB_ORDER_COMPARES(COMPARES)

#define FENCES(OP, O, S, CPU)                                                  \
  WB_KERNEL void OP##_##O##_##S(uint32_t) { order::OP<order::O, order::S>(); } \
  WB_EXPORT(OP##_##O##_##S)
WB_ORDER_FENCES(FENCES)

WB_KERNEL void load_quad_relaxed_system(const void* p) { order::load_quad<order::relaxed, order::system>(p); }
WB_KERNEL void load_quad_acquire_system(const void* p) { order::load_quad<order::acquire, order::system>(p); }
WB_KERNEL void store_quad_relaxed_system(void* p, order::quad q) { order::store_quad<order::relaxed, order::system>(p, q); }
WB_KERNEL void store_both_release_device(uint64_t* p, uint64_t first, uint64_t second) {
  order::store_both<order::release>(p, first, second);
}
WB_KERNEL void store_both_relaxed_world(uint64_t* p, uint64_t first, uint64_t second) {
  order::store_both<order::relaxed, order::world>(p, first, second);
}
#if WB_HAS_BULK_COPIES
WB_KERNEL void async_proxy_fence(uint32_t) { order::async::proxy_fence(); }
WB_KERNEL void async_proxy_fence_of_shared(uint32_t) { order::async::proxy_fence_of_shared(); }
WB_KERNEL void async_init(uint32_t barrier) { order::async::init(barrier); }
WB_KERNEL void async_invalidate(uint32_t barrier) { order::async::invalidate(barrier); }
WB_KERNEL void async_expect(uint32_t barrier) { order::async::expect(barrier, 64); }
WB_KERNEL void async_is_over(uint32_t barrier) { order::async::is_over(barrier, 1); }
WB_KERNEL void async_load(uint32_t to, uint64_t from, uint32_t barrier) { order::async::load(to, from, 64, barrier); }
WB_KERNEL void async_store(uint64_t to, uint32_t from) { order::async::store(to, from, 64); }
WB_KERNEL void async_sources_read(uint32_t) { order::async::sources_read<1>(); }
WB_KERNEL void async_stores_complete(uint32_t) { order::async::stores_complete(); }
#endif
WB_KERNEL void mmio_store_u32(uint32_t* reg, uint32_t v) { order::mmio_store(reg, v); }
WB_KERNEL void mmio_store_u64(uint64_t* reg, uint64_t v) { order::mmio_store(reg, v); }
WB_EXPORT(load_quad_relaxed_system)
WB_EXPORT(load_quad_acquire_system)
WB_EXPORT(store_quad_relaxed_system)
WB_EXPORT(store_both_release_device)
WB_EXPORT(store_both_relaxed_world)
WB_EXPORT(mmio_store_u32)
WB_EXPORT(mmio_store_u64)
