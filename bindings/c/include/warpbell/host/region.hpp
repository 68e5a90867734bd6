// Regions: memory that host, kernels and devices access.
#pragma once

#include <warpbell/host/engine.hpp>

#include <type_traits>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief Place of a region.
enum class place : uint32_t {
  device = WB_PLACE_DEVICE,  ///< Memory of the engine: of the GPU, or of this process for CPU threads.
  host = WB_PLACE_HOST,      ///< Memory of the host that kernels access, too.
};

/// @brief A region. Copies share it. Runs keep the regions among their arguments.
class region : public detail::handle<wb_region_t, wb_region_retain, wb_region_release> {
 public:
  using handle::handle;

  /// @brief Allocates memory, filled with zeroes.
  static returned<region> allocate(const engine& on, place where, size_t bytes) {
    return detail::make<region, wb_region_t>(
        [&](wb_region_t** made) { return wb_region_allocate(on.get(), static_cast<uint32_t>(where), bytes, made); });
  }
  /// @brief Makes device memory of the program a region, such as that of cudaMalloc. `released` is called, on any thread, when the
  /// library no longer uses it; until then the memory stays valid.
  static returned<region> import_device(const engine& on, void* pointer, size_t bytes, std::function<void()> released = {}) {
    return detail::make<region, wb_region_t>([&](wb_region_t** made) {
      return detail::with_release(std::move(released), [&](wb_release_function release, void* argument) {
        return wb_region_import_device(on.get(), pointer, bytes, release, argument, made);
      });
    });
  }
  /// @brief Makes host memory of the program a region that kernels access, too. `released` as above.
  static returned<region> import_host(const engine& on, void* pointer, size_t bytes, std::function<void()> released = {}) {
    return detail::make<region, wb_region_t>([&](wb_region_t** made) {
      return detail::with_release(std::move(released), [&](wb_release_function release, void* argument) {
        return wb_region_import_host(on.get(), pointer, bytes, release, argument, made);
      });
    });
  }

  /// @brief Returns the address of the first byte, as kernels see it.
  template <class T = void> returned<T*> address() const {
    void* found = nullptr;
    const wb_code code = wb_region_address(get(), &found);
    return detail::give(code, [found] { return static_cast<T*>(found); });
  }
  /// @brief Returns the length in bytes.
  returned<size_t> bytes() const {
    size_t found = 0;
    const wb_code code = wb_region_bytes(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Succeeds if storage controllers and RDMA adapters can reach the memory, and says why otherwise.
  returned<void> reaches_devices() const { return detail::done(wb_region_reaches_devices(get())); }

  /// @brief Copies `count` elements to the host, from element `first` of the region on. Waits for no kernel.
  template <class T> returned<void> read(T* data, size_t count, size_t first = 0) const {
    static_assert(std::is_trivially_copyable<T>::value, "regions hold plain data");
    return detail::done(wb_region_read(get(), detail::bytes_of<T>(first), data, detail::bytes_of<T>(count)));
  }
  /// @brief Returns `count` elements, from element `first` of the region on. Waits for no kernel.
  template <class T> returned<std::vector<T>> read(size_t count, size_t first = 0) const {
    static_assert(std::is_trivially_copyable<T>::value, "regions hold plain data");
    std::vector<T> data(count);
    const wb_code code = wb_region_read(get(), detail::bytes_of<T>(first), data.data(), detail::bytes_of<T>(count));
    return detail::give(code, [&data] { return std::move(data); });
  }
  /// @brief Copies `count` elements of the host into the region, to element `first` and those behind it.
  template <class T> returned<void> write(const T* data, size_t count, size_t first = 0) const {
    static_assert(std::is_trivially_copyable<T>::value, "regions hold plain data");
    return detail::done(wb_region_write(get(), detail::bytes_of<T>(first), data, detail::bytes_of<T>(count)));
  }
  /// @brief Sets bytes to a value.
  returned<void> fill(size_t offset, size_t bytes, uint8_t value) const {
    return detail::done(wb_region_fill(get(), offset, bytes, value));
  }
};

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
