// Bulk copies of the asynchronous proxy as PTX (PTX ISA 8.0, 9.7.9.25.4), for bulk.cuh, which includes this file.
//
// Addresses of shared memory are offsets in the block's window. A bulk copy moves whole multiples of 16 bytes between aligned
// addresses.
#pragma once

namespace warpbell {
namespace order {
namespace async {

// --- addresses ---------------------------------------------------------------------------------------------------------

// Returns true if a generic address is in the shared memory of the block, or in global memory.
WB_FN bool is_shared(uint64_t address) {
  uint32_t is;
  asm("{\n.reg .pred p;\nisspacep.shared p, %1;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(is) : "l"(address));
  return is != 0;
}
WB_FN bool is_global(uint64_t address) {
  uint32_t is;
  asm("{\n.reg .pred p;\nisspacep.global p, %1;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(is) : "l"(address));
  return is != 0;
}
// Returns the offset of a generic address of shared memory in the block's window.
WB_FN uint32_t window_offset(uint64_t shared) {
  uint64_t offset;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(offset) : "l"(shared));
  return static_cast<uint32_t>(offset);
}

// --- fences ------------------------------------------------------------------------------------------------------------

// Orders accesses that come before, of this thread and of those that it has synchronised with, before later ones of the copy engine.
// The other way needs no fence: the end of a wait for the engine is one.
WB_FN void proxy_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }
// Orders accesses of shared memory alone: much cheaper after stores to another GPU.
WB_FN void proxy_fence_of_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- barriers that count the bytes of loads ----------------------------------------------------------------------------

// A barrier for one arriving thread.
WB_FN void init(uint32_t barrier) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory"); }
// After this the memory of the barrier may be used for something else.
WB_FN void invalidate(uint32_t barrier) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory"); }
// Arrives, and announces the bytes of a load.
WB_FN void expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(barrier), "r"(bytes) : "memory");
}
// Returns true if the phase with this parity is over: then the thread sees the bytes that arrived in it.
WB_FN bool is_over(uint32_t barrier, uint32_t parity) {
  uint32_t over;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(over)
               : "r"(barrier), "r"(parity)
               : "memory");
  return over != 0;
}

// --- copies --------------------------------------------------------------------------------------------------------------

// Loads from global memory. The barrier counts the bytes that have arrived.
WB_FN void load(uint32_t to, uint64_t from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
               "r"(barrier)
               : "memory");
}
// Stores to global memory, as a group of its own.
WB_FN void store(uint64_t to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but the last `Pending` stores of this thread have read their source.
template <uint32_t Pending> WB_FN void sources_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory"); }
// Waits until this thread's stores are complete: later accesses of this thread come after them.
WB_FN void stores_complete() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

}  // namespace async
}  // namespace order
}  // namespace warpbell
