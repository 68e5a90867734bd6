// KV stores: objects of a volume under keys, in a space of fixed size, for the host and for pages of kernels' memory.
#pragma once

#include <warpbell/host/segments.hpp>

#include <array>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief Key of an object: 16 or 32 bytes, as many as those of all keys of its store.
template <size_t N> using kv_key = std::array<uint8_t, N>;

/// @brief Sizes of a store: see wb_kv_options.
using kv_options = defaults<wb_kv_options>;

/// @brief Keys of a call: a list of the program, which must outlive the call.
class kv_keys {
 public:
  template <size_t N> kv_keys(const std::vector<kv_key<N>>& list) : kv_keys(list.data(), list.size(), N) {}
  template <size_t N> kv_keys(const kv_key<N>& key) : kv_keys(&key, 1, N) {}
  /// @brief Takes `count` keys of `key_bytes` bytes each, one behind the other.
  kv_keys(const void* first, size_t count, uint32_t key_bytes) noexcept : first_(first), count_(count), key_bytes_(key_bytes) {}

  const void* data() const noexcept { return first_; }
  size_t size() const noexcept { return count_; }
  uint32_t key_bytes() const noexcept { return key_bytes_; }

 private:
  const void* first_;
  size_t count_;
  uint32_t key_bytes_;
};

/// @brief An object of the host's memory, which must outlive the call, and its key.
template <size_t N> struct kv_object {
  kv_key<N> key;
  const void* data;
  size_t bytes;
};

/// @brief A tensor of pages of equal size, one behind the other.
struct kv_tensor {
  /// Memory of the tensor, with its group: in_region or at_address.
  wb_segment_memory memory;
  /// Bytes of each page, a multiple of 16.
  size_t page_bytes;
};

/// @brief Objects of a volume under keys, such as parts of a KV cache. Copies share the store; it is open once at a time.
class kv_store : public detail::handle<wb_kv_t, wb_kv_retain, wb_kv_release> {
 public:
  using handle::handle;

  /// @brief Creates an empty store beside everything that the volume holds. `options.bytes` and `options.objects` are its sizes.
  static returned<kv_store> create(const volume& on, const std::string& name, const kv_options& options) {
    return detail::make<kv_store, wb_kv_t>([&](wb_kv_t** made) { return wb_kv_create(on.get(), name.c_str(), &options, made); });
  }
  /// @brief Opens the store of a name. Fails with WB_ERR_BUSY while it is open.
  static returned<kv_store> open(const volume& on, const std::string& name) {
    return detail::make<kv_store, wb_kv_t>([&](wb_kv_t** made) { return wb_kv_open(on.get(), name.c_str(), made); });
  }
  /// @brief Lists the stores of a volume as JSON.
  static returned<std::string> list(const volume& on) {
    char* json = nullptr;
    const wb_code code = wb_kv_list(on.get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  /// @brief Removes a store with all its objects, which frees its space.
  static returned<void> remove(const volume& on, const std::string& name) { return detail::done(wb_kv_remove(on.get(), name.c_str())); }

  /// @brief Returns the bytes of the object of each key, or 0 where there is none. Counts as a use: the objects are evicted later.
  returned<std::vector<uint64_t>> lookup(const kv_keys& keys) const {
    std::vector<uint64_t> found(keys.size());
    const wb_code code = wb_kv_lookup(get(), keys.data(), keys.key_bytes(), keys.size(), found.data());
    return detail::give(code, [&found] { return std::move(found); });
  }
  /// @brief Returns the number of keys before the first one without an object: how much of a sequence is there. Counts as no use.
  returned<size_t> prefix(const kv_keys& keys) const {
    size_t found = 0;
    const wb_code code = wb_kv_prefix(get(), keys.data(), keys.key_bytes(), keys.size(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Counts a use of each object that is there.
  returned<void> touch(const kv_keys& keys) const { return detail::done(wb_kv_touch(get(), keys.data(), keys.key_bytes(), keys.size())); }
  /// @brief Deletes objects, and returns how many there were.
  returned<uint64_t> erase(const kv_keys& keys) const {
    uint64_t deleted = 0;
    const wb_code code = wb_kv_delete(get(), keys.data(), keys.key_bytes(), keys.size(), &deleted);
    return detail::give(code, [deleted] { return deleted; });
  }
  /// @brief Reads an object into memory of the host, compares it with its checksum, and returns its bytes. Counts as a use.
  ///
  /// @param capacity Bytes of the memory: at least those of the object, which `lookup` returns.
  template <size_t N> returned<size_t> read(const kv_key<N>& key, void* data, size_t capacity) const {
    size_t bytes = 0;
    const wb_code code = wb_kv_read(get(), key.data(), N, data, capacity, &bytes);
    return detail::give(code, [bytes] { return bytes; });
  }
  /// @brief Stores objects from memory of the host, each key once. They are durable when the call returns, and replace those of the same
  /// keys. Others are evicted as far as the new ones need their space.
  template <size_t N> returned<void> write(const std::vector<kv_object<N>>& objects) const {
    std::vector<kv_key<N>> keys;
    std::vector<wb_kv_data> data;
    for (const kv_object<N>& object : objects) {
      keys.push_back(object.key);
      data.push_back(wb_kv_data{object.data, object.bytes});
    }
    return detail::done(wb_kv_write(get(), keys.data(), N, keys.size(), data.data()));
  }
  /// @brief Reads all objects, and returns the keys of damaged ones. Others may use the store; what they store meanwhile may be left out.
  template <size_t N = 32> returned<std::vector<kv_key<N>>> verify() const {
    defaults<wb_kv_stats> now;
    size_t damaged = 0;
    std::vector<kv_key<N>> keys;
    wb_code code = wb_kv_get_stats(get(), &now);
    if (code == WB_OK) {
      keys.resize(static_cast<size_t>(now.objects));
      code = wb_kv_verify(get(), keys.data(), N, keys.size(), &damaged);
    }
    return detail::give(code, [&keys, damaged] {
      if (damaged < keys.size()) keys.resize(damaged);
      return std::move(keys);
    });
  }
  /// @brief Takes the keys of evicted objects, in the order of their eviction, each once. Fewer than `most` are all that there were.
  template <size_t N = 32> returned<std::vector<kv_key<N>>> take_evictions(size_t most = 4096) const {
    std::vector<kv_key<N>> keys(most);
    size_t taken = 0;
    const wb_code code = wb_kv_take_evictions(get(), keys.data(), N, keys.size(), &taken);
    return detail::give(code, [&keys, taken] {
      keys.resize(taken);
      return std::move(keys);
    });
  }

  /// @brief Starts to load objects into pages of tensors, and returns at once. Later work on the stream of the queue finds the data;
  /// that of other streams does after segment_transfer::wait_group.
  ///
  /// @param tensors Tensors. An object has its pages of the first tensor, then those of the next one.
  /// @param pages Numbers of pages: those of the first key, then those of the next one, equally many for each.
  /// @return The transfer. Keys without an object are errors of its objects.
  returned<segment_transfer> load(const segment_queue& queue, const kv_keys& keys, const std::vector<kv_tensor>& tensors,
                                  const std::vector<uint64_t>& pages) const {
    return transfer(wb_kv_load, queue, keys, tensors, pages);
  }
  /// @brief Starts to store objects from pages of tensors, and returns at once. They are durable and visible after
  /// segment_transfer::finish. Arguments as of `load`, with each key once.
  returned<segment_transfer> store(const segment_queue& queue, const kv_keys& keys, const std::vector<kv_tensor>& tensors,
                                   const std::vector<uint64_t>& pages) const {
    return transfer(wb_kv_store, queue, keys, tensors, pages);
  }

  /// @brief Returns the sizes of the store.
  returned<kv_options> options() const {
    kv_options found;
    const wb_code code = wb_kv_get_options(get(), &found);
    return detail::give(code, [&found] { return found; });
  }
  /// @brief Returns sizes and counters.
  returned<wb_kv_stats> stats() const {
    defaults<wb_kv_stats> found;
    const wb_code code = wb_kv_get_stats(get(), &found);
    return detail::give(code, [&found]() -> wb_kv_stats { return found; });
  }

 private:
  template <class Call> returned<segment_transfer> transfer(Call call, const segment_queue& queue, const kv_keys& keys,
                                                            const std::vector<kv_tensor>& tensors,
                                                            const std::vector<uint64_t>& pages) const {
    std::vector<wb_segment_memory> memory;
    std::vector<size_t> page_bytes;
    for (const kv_tensor& tensor : tensors) {
      memory.push_back(tensor.memory);
      page_bytes.push_back(tensor.page_bytes);
    }
    defaults<wb_kv_pages> named;
    named.tensors = memory.data();
    named.tensor_count = memory.size();
    named.page_bytes_each = page_bytes.data();
    named.pages = pages.data();
    named.page_count = pages.size();
    return detail::make<segment_transfer, wb_segment_transfer_t>(
        [&](wb_segment_transfer_t** made) { return call(get(), queue.get(), keys.data(), keys.key_bytes(), keys.size(), &named, made); });
  }
};

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
