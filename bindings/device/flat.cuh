// Helpers of the flat functions: views by their address, outcomes as one word, and the calls of a whole block.
#pragma once

#include <warpbell/shmem.cuh>
#include <warpbell/volume.cuh>

#include "warpbell_device.h"

namespace warpbell {
namespace flat {

/// @brief Returns the view at an address of memory that kernels see.
template <class View> WB_FN const View& at(uint64_t address) { return *global_memory(reinterpret_cast<const View*>(address)); }

/// @brief Returns the status word of a call whose failure is in the run's error log already.
WB_FN uint32_t word_of(bool ok) { return ok ? static_cast<uint32_t>(WB_DONE) : status_word(WB_STOPPED); }

/// @brief Returns a status word that is WB_DONE in all threads of the scope or in none. All threads of the scope call this, which
/// ends with a sync of the scope.
template <class S> WB_FN uint32_t together(S s, uint32_t word) { return s.any(word != WB_DONE) && word == WB_DONE ? word_of(false) : word; }

/// @brief Calls `call` in one thread, between two syncs of the scope, and returns its status word as `together` does. All threads of
/// the scope call this.
template <class S, class F> WB_FN uint32_t by_first(S s, F call) {
  s.sync();
  return together(s, s.rank() == 0 ? call() : static_cast<uint32_t>(WB_DONE));
}

}  // namespace flat
}  // namespace warpbell
