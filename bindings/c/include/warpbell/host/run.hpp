// Streams and runs: kernels of the engine's images, and kernels that the program launches itself.
#pragma once

#include <warpbell/host/argument.hpp>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief A stream: kernels that run one after another.
class stream : public detail::handle<wb_stream_t, wb_stream_retain, wb_stream_release> {
 public:
  using handle::handle;

  /// @brief Creates an empty stream.
  static returned<stream> create(const engine& on) {
    return detail::make<stream, wb_stream_t>([&](wb_stream_t** made) { return wb_stream_create(on.get(), made); });
  }
  /// @brief Uses a CUDA stream of the program, a cudaStream_t or CUstream. `released` is called, on any thread, when the library no
  /// longer uses it; until then the CUDA stream stays valid.
  static returned<stream> adopt(const engine& on, void* raw, std::function<void()> released = {}) {
    return detail::make<stream, wb_stream_t>([&](wb_stream_t** made) {
      return detail::with_release(std::move(released), [&](wb_release_function release, void* argument) {
        return wb_stream_adopt(on.get(), raw, release, argument, made);
      });
    });
  }

  /// @brief Returns the cudaStream_t, for the program's own launches, copies and events; null on CPU threads.
  returned<void*> raw() const {
    void* found = nullptr;
    const wb_code code = wb_stream_raw(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Launches a kernel of the engine's images behind the work that is on the stream. Arguments as of host::launch.
  template <class... A> returned<void> launch(const char* kernel, wb_grid grid, const A&... arguments) const {
    return detail::done(
        detail::with_arguments([&](const wb_argument* list, size_t count) { return wb_stream_launch(get(), kernel, grid, list, count); },
                               detail::pass(arguments)...));
  }
  /// @brief Makes later work wait for all work that is on another stream now. The host does not wait.
  returned<void> wait_for(const stream& other) const { return detail::done(wb_stream_wait_for(get(), other.get())); }
  /// @brief Waits for the kernels of the stream, and reports the errors of their operations.
  ///
  /// @param seconds Limit of the wait; 0 for none. After the limit the kernels are told to stop.
  returned<void> synchronize(double seconds = 0) const { return detail::done(wb_stream_synchronize(get(), seconds)); }
};

/// @brief Kernels in flight. The last copy of an unfinished run stops its kernels.
class run : public detail::handle<wb_run_t, wb_run_retain, wb_run_release> {
 public:
  using handle::handle;

  /// @brief Begins a run for kernels that the program launches itself on a stream. `finish` reports their failed operations.
  ///
  /// @param name Name for messages.
  static returned<run> begin(const engine& on, const char* name, const stream& on_stream) {
    return detail::make<run, wb_run_t>([&](wb_run_t** made) { return wb_run_begin(on.get(), name, on_stream.get(), made); });
  }

  /// @brief Keeps an object of this library until the run has ended, whose view is among the arguments of the program's kernels.
  template <class Object> returned<void> keep(const Object& object) const { return detail::done(wb_run_keep(get(), object.get())); }
  /// @brief Waits for the kernels, and reports the errors of their operations. A run is finished once.
  ///
  /// @param seconds Limit of the wait; 0 for none. After the limit the kernels are told to stop.
  /// @return The time from the launch to the end of the last thread in seconds, the GPU's own.
  returned<double> finish(double seconds = 0) const {
    double elapsed = 0;
    const wb_code code = wb_run_finish(get(), seconds, &elapsed);
    return detail::give(code, [elapsed] { return elapsed; });
  }
  /// @brief Returns true if the kernels have ended. Their errors are known after `finish`.
  returned<bool> has_ended() const {
    uint32_t ended = 0;
    const wb_code code = wb_run_has_ended(get(), &ended);
    return detail::give(code, [ended] { return ended != 0; });
  }
  /// @brief Tells every wait inside the engine's running kernels to end. For another thread than the one that waits in `finish`.
  returned<void> stop() const { return detail::done(wb_run_stop(get())); }
};

/// @brief Launches a kernel of the engine's images. The caller goes on while it runs.
///
/// @param kernel Name of the kernel, exported by WB_EXPORT in its source.
/// @param arguments The kernel's parameters in their order: numbers, pointers and structures with exactly the parameter's type;
/// regions and batches, which kernels take as pointers; arrays, tables, volumes, worlds and teams, which kernels take as their views. The run
/// keeps the objects.
/// @pre The arguments have the types of the kernel's parameters. Sizes are checked.
template <class... A> returned<run> launch(const engine& on, const char* kernel, wb_grid grid, const A&... arguments) {
  return detail::make<run, wb_run_t>([&](wb_run_t** made) {
    return detail::with_arguments(
        [&](const wb_argument* list, size_t count) { return wb_launch(on.get(), kernel, grid, list, count, made); },
        detail::pass(arguments)...);
  });
}

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
