// Storage: volumes of devices, page caches over them, and arrays that kernels read and write.
#pragma once

#include <warpbell/host/argument.hpp>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {
namespace detail {

// Type of an element for the C interface. Other plain types of 1, 2, 4, 8 and 16 bytes are records.
template <class T> constexpr uint32_t dtype_of() {
  static_assert(std::is_trivially_copyable<T>::value, "elements are plain data");
  if constexpr (std::is_same<T, float>::value) {
    return WB_F32;
  } else if constexpr (std::is_same<T, double>::value) {
    return WB_F64;
  } else if constexpr (std::is_integral<T>::value && !std::is_same<T, bool>::value) {
    constexpr uint32_t of_size[] = {0, WB_U8, WB_U16, 0, WB_U32, 0, 0, 0, WB_U64};
    static_assert(sizeof(T) <= 8, "integers of at most 64 bits");
    return of_size[sizeof(T)] + (std::is_signed<T>::value ? WB_I8 - WB_U8 : 0);
  } else {
    return WB_RECORD;
  }
}

inline std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> list;
  for (const std::string& text : texts) list.push_back(text.c_str());
  return list;
}

}  // namespace detail

/// @brief Options of a volume: see wb_volume_options.
using volume_options = defaults<wb_volume_options>;

/// @brief Devices whose blocks kernels and the host read and write. Copies share the volume.
class volume : public detail::handle<wb_volume_t, wb_volume_retain, wb_volume_release> {
 public:
  using handle::handle;

  /// @brief Opens existing devices, such as "soft:graph.img" or "nvme:0000:65:00.0". Creates no file.
  static returned<volume> open(const engine& on, const std::vector<std::string>& devices, const volume_options& options = {}) {
    const std::vector<const char*> list = detail::pointers(devices);
    return detail::make<volume, wb_volume_t>(
        [&](wb_volume_t** made) { return wb_volume_open(on.get(), list.data(), list.size(), &options, made); });
  }
  /// @brief Opens devices to store data on them, and creates files that do not exist.
  ///
  /// @param bytes_each Size of each new file or memory device; `bytes_for` returns that for arrays.
  static returned<volume> create(const engine& on, const std::vector<std::string>& devices, uint64_t bytes_each,
                                 const volume_options& options = {}) {
    const std::vector<const char*> list = detail::pointers(devices);
    return detail::make<volume, wb_volume_t>(
        [&](wb_volume_t** made) { return wb_volume_create(on.get(), list.data(), list.size(), bytes_each, &options, made); });
  }
  /// @brief Returns the bytes that each of `devices` devices needs to hold arrays of these sizes in bytes.
  static returned<uint64_t> bytes_for(const std::vector<uint64_t>& array_bytes, size_t devices = 1, const volume_options& options = {}) {
    uint64_t found = 0;
    const wb_code code = wb_volume_bytes_for(array_bytes.data(), array_bytes.size(), devices, &options, &found);
    return detail::give(code, [found] { return found; });
  }

  /// @brief Keeps the files that this volume created also if nothing was stored on them.
  returned<void> keep() const { return detail::done(wb_volume_keep(get())); }
  /// @brief Stores an array under a name. It is durable when the call returns.
  ///
  /// @param mode WB_STORE_ADD, WB_STORE_REPLACE or WB_STORE_ALONE.
  template <class T> returned<void> store(const std::string& name, const T* data, uint64_t count, uint32_t mode = WB_STORE_ADD) const {
    defaults<wb_store_options> o;
    o.mode = mode;
    o.element_bytes = detail::dtype_of<T>() == WB_RECORD ? sizeof(T) : 0;
    return detail::done(wb_volume_store(get(), name.c_str(), detail::dtype_of<T>(), data, count, &o));
  }
  /// @brief Reads a whole stored array of `count` elements, and compares it with its checksum.
  template <class T> returned<std::vector<T>> load(const std::string& name, uint64_t count) const {
    std::vector<T> data(static_cast<size_t>(count));
    const wb_code code = wb_volume_load(get(), name.c_str(), detail::dtype_of<T>(), data.data(), data.size() * sizeof(T));
    return detail::give(code, [&data] { return std::move(data); });
  }
  /// @brief Removes arrays, which frees their space.
  returned<void> remove(const std::vector<std::string>& names) const {
    const std::vector<const char*> list = detail::pointers(names);
    return detail::done(wb_volume_remove(get(), list.data(), list.size()));
  }
  /// @brief Lists the stored arrays as JSON.
  returned<std::string> arrays() const {
    char* json = nullptr;
    const wb_code code = wb_volume_arrays(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  /// @brief Describes the volume as JSON: data path with the reasons for it, devices, sizes, queues.
  returned<std::string> info() const {
    char* json = nullptr;
    const wb_code code = wb_volume_info(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  /// @brief Compares all stored arrays with their checksums. Returns true if no array is damaged.
  ///
  /// @param repair Writes damaged data of one copy again from another copy.
  /// @param report Receives the state of each array as JSON; may be null.
  returned<bool> verify(bool repair = false, std::string* report = nullptr) const {
    uint32_t intact = 0;
    char* json = nullptr;
    const wb_code code = wb_volume_verify(get(), repair, &intact, report ? &json : nullptr);
    if (report && code == WB_OK) *report = detail::take(json);
    return detail::give(code, [intact] { return intact != 0; });
  }

  /// @brief Returns the size in bytes.
  returned<uint64_t> bytes() const {
    uint64_t found = 0;
    const wb_code code = wb_volume_bytes(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the size of a logical block in bytes.
  returned<uint32_t> block_bytes() const {
    uint32_t found = 0;
    const wb_code code = wb_volume_block_bytes(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Reads bytes of the volume into memory of the host.
  returned<void> read(uint64_t offset, void* data, size_t bytes) const { return detail::done(wb_volume_read(get(), offset, data, bytes)); }
  /// @brief Writes bytes of the host to the volume. They are durable after `flush`.
  returned<void> write(uint64_t offset, const void* data, size_t bytes) const {
    return detail::done(wb_volume_write(get(), offset, data, bytes));
  }
  /// @brief Waits until the devices have made all written data durable.
  returned<void> flush() const { return detail::done(wb_volume_flush(get())); }
  /// @brief Succeeds if all devices work.
  returned<void> check() const { return detail::done(wb_volume_check(get())); }
  /// @brief Makes the volume usable again after time-outs. Returns a report as JSON.
  returned<std::string> recover() const {
    char* json = nullptr;
    const wb_code code = wb_volume_recover(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  /// @brief Returns the counters of the volume and its caches.
  returned<wb_stats> stats() const {
    wb_stats found{};
    const wb_code code = wb_volume_stats(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Sets all counters to zero.
  returned<void> reset_stats() const { return detail::done(wb_volume_reset_stats(get())); }

  /// @brief Returns the form in which kernels get the volume: `volume_ref` is made from it. Valid while a run or this object holds it.
  returned<wb_volume_view> view() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return p.value; });
  }
  // As an argument of a launch, for a parameter of type `volume_ref` or `wb_volume_view`.
  detail::passed<wb_volume_view> as_argument() const {
    detail::passed<wb_volume_view> p{{}, get(), WB_OK};
    p.code = wb_volume_get_view(get(), &p.value);
    return p;
  }
};

/// @brief Memory in which reads of a volume land. Copies share it.
class buffer : public detail::handle<wb_buffer_t, wb_buffer_retain, wb_buffer_release> {
 public:
  using handle::handle;

  /// @brief Maps a region of the program for the devices of a volume.
  static returned<buffer> map(const volume& of, const region& memory) {
    return detail::make<buffer, wb_buffer_t>([&](wb_buffer_t** made) { return wb_volume_map(of.get(), memory.get(), made); });
  }
  /// @brief Allocates zeroed memory that the devices of a volume reach, on every data path.
  static returned<buffer> allocate(const volume& of, size_t bytes) {
    return detail::make<buffer, wb_buffer_t>([&](wb_buffer_t** made) { return wb_volume_allocate(of.get(), bytes, made); });
  }

  /// @brief Returns the address of the first byte, as kernels see it.
  template <class T = void> returned<T*> address() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return static_cast<T*>(p.value); });
  }
  /// @brief Returns the length in bytes.
  returned<size_t> bytes() const {
    size_t found = 0;
    const wb_code code = wb_buffer_bytes(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Copies `count` elements to the host, from element `first` of the buffer on. Waits for no kernel.
  template <class T> returned<void> read(T* data, size_t count, size_t first = 0) const {
    static_assert(std::is_trivially_copyable<T>::value, "buffers hold plain data");
    return detail::done(wb_buffer_read(get(), detail::bytes_of<T>(first), data, detail::bytes_of<T>(count)));
  }
  /// @brief Copies `count` elements of the host into the buffer, to element `first` and those behind it.
  template <class T> returned<void> write(const T* data, size_t count, size_t first = 0) const {
    static_assert(std::is_trivially_copyable<T>::value, "buffers hold plain data");
    return detail::done(wb_buffer_write(get(), detail::bytes_of<T>(first), data, detail::bytes_of<T>(count)));
  }
  // As an argument of a launch, for a parameter that is a pointer.
  detail::passed<void*> as_argument() const {
    detail::passed<void*> p{nullptr, get(), WB_OK};
    p.code = wb_buffer_address(get(), &p.value);
    return p;
  }
};

/// @brief Pages of a volume in memory near the kernels. Copies share the cache.
///
/// Changes by kernels and by array::write stay in the cache until `flush`; the last copy loses them.
class cache : public detail::handle<wb_cache_t, wb_cache_retain, wb_cache_release> {
 public:
  using handle::handle;

  /// @brief Allocates an empty cache of a volume.
  ///
  /// @param bytes Memory of its pages; 0 for the default.
  /// @param page_bytes Size of a page; 0 for the default.
  static returned<cache> open(const volume& of, uint64_t bytes = 0, size_t page_bytes = 0) {
    defaults<wb_cache_options> o;
    o.bytes = bytes;
    o.page_bytes = page_bytes;
    return detail::make<cache, wb_cache_t>([&](wb_cache_t** made) { return wb_cache_open(of.get(), &o, made); });
  }

  /// @brief Writes every changed page, and waits until the devices have made them durable.
  returned<void> flush() const { return detail::done(wb_cache_flush(get())); }
  /// @brief Drops all unchanged pages, so that the next access reads them from the device.
  returned<void> reset() const { return detail::done(wb_cache_reset(get())); }
  /// @brief Drops all pages. Changes that were not flushed are lost.
  returned<void> discard() const { return detail::done(wb_cache_discard(get())); }
  /// @brief Counts the pages by state. Meaningful only while no kernel runs.
  returned<wb_occupancy> occupancy() const {
    wb_occupancy found{};
    const wb_code code = wb_cache_occupancy(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Describes the cache as JSON.
  returned<std::string> info() const {
    char* json = nullptr;
    const wb_code code = wb_cache_info(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
};

/// @brief Elements of a volume, which kernels access as `array_ref<T>`. Copies share the array.
template <class T> class array : public detail::handle<wb_array_t, wb_array_retain, wb_array_release> {
 public:
  using detail::handle<wb_array_t, wb_array_retain, wb_array_release>::handle;

  /// @brief Opens the array of a name, whose elements have type T.
  static returned<array> open(const cache& through, const std::string& name) {
    return detail::make<array, wb_array_t>(
        [&](wb_array_t** made) { return wb_array_open(through.get(), name.c_str(), detail::dtype_of<T>(), made); });
  }
  /// @brief Makes an array of elements at a place of the volume, counted in pages of the cache.
  static returned<array> at(const cache& through, uint64_t first_page, uint64_t count) {
    const uint32_t dtype = detail::dtype_of<T>();
    return detail::make<array, wb_array_t>(
        [&](wb_array_t** made) { return wb_array_at(through.get(), first_page, count, dtype, dtype == WB_RECORD ? sizeof(T) : 0, made); });
  }

  /// @brief Returns the number of elements.
  returned<uint64_t> size() const {
    uint64_t found = 0;
    const wb_code code = wb_array_length(this->get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Reads elements through the cache, from element `first` on.
  returned<std::vector<T>> read(uint64_t first, size_t count) const {
    std::vector<T> data(count);
    const wb_code code = wb_array_read(this->get(), first, count, data.data());
    return detail::give(code, [&data] { return std::move(data); });
  }
  /// @brief Writes elements through the cache, to element `first` and those behind it. They are durable after cache::flush.
  returned<void> write(uint64_t first, const T* data, size_t count) const {
    return detail::done(wb_array_write(this->get(), first, count, data));
  }
  /// @brief Reads all pages of the array into the cache, as far as they fit.
  returned<void> warm() const { return detail::done(wb_array_warm(this->get())); }

  /// @brief Returns the form in which kernels get the array: `array_ref<T>` is made from it. Valid while a run or this object holds it.
  returned<wb_array_view> view() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return p.value; });
  }
  // As an argument of a launch, for a parameter of type `array_ref<T>` or `wb_array_view`.
  detail::passed<wb_array_view> as_argument() const {
    detail::passed<wb_array_view> p{{}, this->get(), WB_OK};
    p.code = wb_array_get_view(this->get(), &p.value);
    return p;
  }
};

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
