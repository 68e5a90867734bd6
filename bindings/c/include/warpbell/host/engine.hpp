// Engines: a GPU or CPU threads that run kernels.
#pragma once

#include <warpbell/host/handle.hpp>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief Kind of an engine.
enum class engine_kind : uint32_t {
  automatic = WB_ENGINE_AUTO,  ///< A GPU if there is one with kernels for it, otherwise CPU threads.
  cpu = WB_ENGINE_CPU,         ///< CPU threads.
  gpu = WB_ENGINE_GPU,         ///< A GPU.
};

/// @brief Options of engine::open.
struct engine_options {
  /// Kind of the engine.
  engine_kind kind = engine_kind::automatic;
  /// Ordinal of the GPU, as of the CUDA driver.
  uint32_t gpu = 0;
  /// CPU threads of an engine on CPU threads; 0 for as many as the machine has processors.
  uint32_t threads = 0;
  /// Leaves out the kernels that ship with the library: graph algorithms, host calls of worlds and of arrays.
  bool without_shipped = false;
  /// Images of the program.
  std::vector<const wb_image*> images = {};
};

/// @brief An engine. Copies share it. Any thread may call any function.
class engine : public detail::handle<wb_engine_t, wb_engine_retain, wb_engine_release> {
 public:
  using handle::handle;

  /// @brief Opens an engine. Fails with WB_ERR_UNSUPPORTED if there is no such GPU, or an image has no kernels for it.
  static returned<engine> open(const engine_options& options = {}) {
    defaults<wb_engine_options> o;
    o.kind = static_cast<uint32_t>(options.kind);
    o.gpu = options.gpu;
    o.threads = options.threads;
    o.without_shipped = options.without_shipped;
    o.images = options.images.data();
    o.image_count = options.images.size();
    return detail::make<engine, wb_engine_t>([&o](wb_engine_t** made) { return wb_engine_open(&o, made); });
  }

  /// @brief Returns the kind: cpu or gpu.
  returned<engine_kind> kind() const {
    uint32_t found = 0;
    const wb_code code = wb_engine_kind(get(), &found);
    return detail::give(code, [found] { return static_cast<engine_kind>(found); });
  }

  /// @brief Describes the engine as JSON.
  returned<std::string> info() const {
    char* json = nullptr;
    const wb_code code = wb_engine_info(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }

  /// @brief Returns a grid that fills the engine.
  ///
  /// @param threads_per_block Threads in each block.
  /// @param blocks_per_processor Blocks for each processor of the GPU, or each CPU thread.
  returned<wb_grid> grid(uint32_t threads_per_block = 256, uint32_t blocks_per_processor = 1) const {
    wb_grid found{};
    const wb_code code = wb_engine_grid(get(), threads_per_block, blocks_per_processor, &found);
    return detail::give(code, [found] { return found; });
  }

  /// @brief Sets the longest time of one wait inside kernels in seconds; 0 for the default of 10 s.
  returned<void> set_deadline(double seconds) const { return detail::done(wb_engine_set_deadline(get(), seconds)); }
  /// @brief Stops all kernels, and refuses later ones until `resume`. For Ctrl-C; other threads may wait in calls.
  returned<void> cancel() const { return detail::done(wb_engine_cancel(get())); }
  /// @brief Makes a cancelled engine usable again. Fails with WB_ERR_BUSY while runs are in flight.
  returned<void> resume() const { return detail::done(wb_engine_resume(get())); }
};

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
