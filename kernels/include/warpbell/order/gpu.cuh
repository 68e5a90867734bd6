// Ordered accesses as PTX: an instruction for each row of the tables in order.cuh, which includes this file.
#pragma once

#define WB_PTX_relaxed "relaxed"
#define WB_PTX_before_stores "relaxed"
#define WB_PTX_after_fence "relaxed"
#define WB_PTX_acquire "acquire"
#define WB_PTX_release "release"
#define WB_PTX_acq_rel "acq_rel"
#define WB_PTX_seq_cst "sc"
#define WB_PTX_device "gpu"
#define WB_PTX_system "sys"
#define WB_PTX_world "sys"
#define WB_PTX_fetch_add "add.u"
#define WB_PTX_fetch_or "or.b"
#define WB_PTX_fetch_and "and.b"
#define WB_PTX_fetch_xor "xor.b"
#define WB_PTX_fetch_min "min.u"
#define WB_PTX_exchange "exch.b"
#define WB_PTX_compare_exchange "cas.b"
#define WB_PTX(INSTRUCTION, O, S) INSTRUCTION "." WB_PTX_##O "." WB_PTX_##S ".global."

namespace warpbell {
namespace order {
namespace detail {

// `HELD` is the type of the register, `C` its constraint: PTX has no 8-bit registers that an asm statement could name.
#define WB_PTX_LOAD(O, S, WORD, HELD, C, WIDTH)                                         \
  WB_FN WORD load(access<O, S>, const WORD* p) {                                        \
    HELD v;                                                                             \
    asm volatile(WB_PTX("ld", O, S) WIDTH " %0, [%1];" : "=" C(v) : "l"(p) : "memory"); \
    return static_cast<WORD>(v);                                                        \
  }
#define WB_PTX_LOADS(OP, O, S, CPU)                                                                            \
  WB_PTX_LOAD(O, S, uint8_t, uint32_t, "r", "u8")                                                              \
  WB_PTX_LOAD(O, S, uint16_t, uint16_t, "h", "u16")                                                            \
  WB_PTX_LOAD(O, S, uint32_t, uint32_t, "r", "u32")                                                            \
  WB_PTX_LOAD(O, S, uint64_t, uint64_t, "l", "u64")                                                            \
  WB_FN pair load(access<O, S>, const pair* p) {                                                               \
    pair v;                                                                                                    \
    asm volatile(WB_PTX("ld", O, S) "v2.u64 {%0, %1}, [%2];" : "=l"(v.low), "=l"(v.high) : "l"(p) : "memory"); \
    return v;                                                                                                  \
  }
WB_ORDER_LOADS(WB_PTX_LOADS)

#define WB_PTX_STORE(O, S, WORD, HELD, C, WIDTH)                                                      \
  WB_FN void store(access<O, S>, WORD* p, WORD v) {                                                   \
    asm volatile(WB_PTX("st", O, S) WIDTH " [%0], %1;" ::"l"(p), C(static_cast<HELD>(v)) : "memory"); \
  }
#define WB_PTX_STORES(OP, O, S, CPU)                                                                        \
  WB_PTX_STORE(O, S, uint8_t, uint32_t, "r", "u8")                                                          \
  WB_PTX_STORE(O, S, uint16_t, uint16_t, "h", "u16")                                                        \
  WB_PTX_STORE(O, S, uint32_t, uint32_t, "r", "u32")                                                        \
  WB_PTX_STORE(O, S, uint64_t, uint64_t, "l", "u64")                                                        \
  WB_FN void store(access<O, S>, pair* p, pair v) {                                                         \
    asm volatile(WB_PTX("st", O, S) "v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.low), "l"(v.high) : "memory"); \
  }
WB_ORDER_STORES(WB_PTX_STORES)

#define WB_PTX_UPDATE(OP, O, S, WORD, C, BITS)                                                                   \
  WB_FN WORD OP(access<O, S>, WORD* p, WORD v) {                                                                 \
    WORD old;                                                                                                    \
    asm volatile(WB_PTX("atom", O, S) WB_PTX_##OP BITS " %0, [%1], %2;" : "=" C(old) : "l"(p), C(v) : "memory"); \
    return old;                                                                                                  \
  }
#define WB_PTX_UPDATES(OP, O, S, CPU) WB_PTX_UPDATE(OP, O, S, uint32_t, "r", "32") WB_PTX_UPDATE(OP, O, S, uint64_t, "l", "64")
WB_ORDER_UPDATES(WB_PTX_UPDATES)

#define WB_PTX_COMPARE(OP, O, S, WORD, C, BITS)                                                                                         \
  WB_FN WORD OP(access<O, S>, WORD* p, WORD expected, WORD desired) {                                                                   \
    WORD old;                                                                                                                           \
    asm volatile(WB_PTX("atom", O, S) WB_PTX_##OP BITS " %0, [%1], %2, %3;" : "=" C(old) : "l"(p), C(expected), C(desired) : "memory"); \
    return old;                                                                                                                         \
  }
#define WB_PTX_COMPARES(OP, O, S, CPU) WB_PTX_COMPARE(OP, O, S, uint32_t, "r", "32") WB_PTX_COMPARE(OP, O, S, uint64_t, "l", "64")
WB_ORDER_COMPARES(WB_PTX_COMPARES)

#define WB_PTX_ADD(O, S, WORD, C, BITS) \
  WB_FN void add(access<O, S>, WORD* p, WORD v) { asm volatile(WB_PTX("red", O, S) "add.u" BITS " [%0], %1;" ::"l"(p), C(v) : "memory"); }
#define WB_PTX_ADDS(OP, O, S, CPU) WB_PTX_ADD(O, S, uint32_t, "r", "32") WB_PTX_ADD(O, S, uint64_t, "l", "64")
WB_ORDER_ADDS(WB_PTX_ADDS)

// The one-sided fences need PTX ISA 8.6, of CUDA 12.7.
#if __CUDACC_VER_MAJOR__ < 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 7)
#undef WB_PTX_acquire
#undef WB_PTX_release
#define WB_PTX_acquire "acq_rel"
#define WB_PTX_release "acq_rel"
#endif
#define WB_PTX_FENCES(OP, O, S, CPU) \
  WB_FN void fence(access<O, S>) { asm volatile("fence." WB_PTX_##O "." WB_PTX_##S ";" ::: "memory"); }
WB_ORDER_FENCES(WB_PTX_FENCES)

// Needs PTX ISA 8.3, for .b128.
#define WB_PTX_STORE_BOTH(O, S)                                                                                                   \
  WB_FN void store_both(access<O, S>, uint64_t* p, uint64_t first, uint64_t second) {                                             \
    asm volatile("{\n.reg .b128 both;\nmov.b128 both, {%1, %2};\n" WB_PTX("st", O, S) "b128 [%0], both;\n}" ::"l"(p), "l"(first), \
                 "l"(second)                                                                                                      \
                 : "memory");                                                                                                     \
  }
WB_PTX_STORE_BOTH(release, device)
WB_PTX_STORE_BOTH(relaxed, world)
#define WB_PTX_LOAD_QUAD(O, INSTRUCTION)                                                                                                 \
  WB_FN quad load_quad(access<O, system>, const void* p) {                                                                               \
    quad q;                                                                                                                              \
    asm volatile(INSTRUCTION ".global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w) : "l"(p) : "memory"); \
    return q;                                                                                                                            \
  }
WB_PTX_LOAD_QUAD(relaxed, "ld.volatile")
WB_PTX_LOAD_QUAD(acquire, "ld.acquire.sys")
WB_FN void store_quad(access<relaxed, system>, void* p, quad q) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(q.x), "r"(q.y), "r"(q.z), "r"(q.w) : "memory");
}
// The MMIO form is never merged, split or repeated (PTX ISA 8.2, st.mmio).
WB_FN void mmio(uint32_t* reg, uint32_t v) { asm volatile("st.mmio.relaxed.sys.global.u32 [%0], %1;" ::"l"(reg), "r"(v) : "memory"); }
WB_FN void mmio(uint64_t* reg, uint64_t v) { asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(reg), "l"(v) : "memory"); }

WB_FN uint32_t load_plain(const uint32_t* p) { return *p; }
WB_FN void flush_to_devices() {}
WB_FN void pause(uint32_t nanoseconds) { __nanosleep(nanoseconds); }

}  // namespace detail
}  // namespace order
}  // namespace warpbell
