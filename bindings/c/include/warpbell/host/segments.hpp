// Segment queues: objects of a volume that kernels load into segments of memory, and store from them.
#pragma once

#include <warpbell/host/run.hpp>
#include <warpbell/host/storage.hpp>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief Names memory of a region, which must outlive the call: a segment of an object, or a tensor of pages. A transfer keeps the region.
///
/// @param offset First byte in the region, a multiple of 16.
/// @param bytes Bytes of the memory, a multiple of 16; 0 for all from `offset` on.
/// @param group Group of the bytes, such as the layer of a model.
inline wb_segment_memory in_region(const region& memory, size_t offset = 0, size_t bytes = 0, uint32_t group = 0) noexcept {
  wb_segment_memory named{};
  named.region = memory.get();
  named.offset = offset;
  named.bytes = bytes;
  named.group = group;
  return named;
}
/// @brief Names memory of the program, such as that of cudaMalloc: a segment of an object, or a tensor of pages.
///
/// @param address First byte, as kernels see it, a multiple of 16.
/// @param bytes Bytes of the memory, a multiple of 16.
/// @param group Group of the bytes, such as the layer of a model.
/// @pre Kernels read and write the memory until the transfer is finished, or its last copy is gone. It stays valid until then.
inline wb_segment_memory at_address(void* address, size_t bytes, uint32_t group = 0) noexcept {
  wb_segment_memory named{};
  named.address = address;
  named.bytes = bytes;
  named.group = group;
  return named;
}

/// @brief Objects on their way between a volume and memory. Copies share the transfer; the last one waits for its kernel.
class segment_transfer : public detail::handle<wb_segment_transfer_t, wb_segment_transfer_retain, wb_segment_transfer_release> {
 public:
  using handle::handle;

  /// @brief Makes later work on a stream wait until a group, such as a layer, is complete. The host does not wait. `finish` says whether
  /// the bytes are what was stored.
  returned<void> wait_group(const stream& waiting, uint32_t group = 0) const {
    return detail::done(wb_segment_transfer_wait_group(get(), waiting.get(), group));
  }
  /// @brief Returns true if the transfer has ended. Its outcomes are known after `finish`.
  returned<bool> has_ended() const {
    uint32_t ended = 0;
    const wb_code code = wb_segment_transfer_has_ended(get(), &ended);
    return detail::give(code, [ended] { return ended != 0; });
  }
  /// @brief Waits for the transfer. Objects that were loaded from a KV store are compared with their checksums; those that were stored
  /// in one are durable and visible, or none of them is. A transfer is finished once.
  ///
  /// @param seconds Limit of the wait; 0 for none. After the limit the kernel is told to stop.
  /// @return Number of objects with an error, absent ones among them. `failure` has the errors.
  returned<size_t> finish(double seconds = 0) const {
    size_t failed = 0;
    const wb_code code = wb_segment_transfer_finish(get(), seconds, &failed);
    return detail::give(code, [failed] { return failed; });
  }
  /// @brief Returns the number of objects; for a KV store that of the keys.
  returned<size_t> objects() const {
    size_t found = 0;
    const wb_code code = wb_segment_transfer_objects(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the bytes of an object of a finished transfer, or fails with the error of the object.
  returned<uint64_t> bytes(size_t object) const {
    uint64_t found = 0;
    const wb_code code = wb_segment_transfer_outcome(get(), object, &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the error with which `bytes` fails for an object, such as WB_ERR_NOT_FOUND or WB_ERR_DAMAGED; none if it does not.
  std::optional<error> failure(size_t object) const {
    uint64_t found = 0;
    if (wb_segment_transfer_outcome(get(), object, &found) == WB_OK) return std::nullopt;
    return error::last();
  }
};

/// @brief Options of segment_queue::create.
struct segment_queue_options {
  /// Multiprocessors of a GPU that the kernels occupy; 0 for 16.
  uint32_t multiprocessors = 0;
  /// Commands that each warp has in flight; 0 for 1.
  uint32_t in_flight = 0;
  /// Bytes of the largest command; 0 for 128 KiB, or what the devices take.
  size_t command_bytes = 0;
};

/// @brief Transfers between objects of a volume and segments of memory, one after the other on a stream. Copies share the queue.
class segment_queue : public detail::handle<wb_segment_queue_t, wb_segment_queue_retain, wb_segment_queue_release> {
 public:
  using handle::handle;

  /// @brief Creates a queue on a volume and a stream of its engine. An empty stream stands for another one.
  static returned<segment_queue> create(const volume& on, const stream& behind = stream(), const segment_queue_options& options = {}) {
    defaults<wb_segment_queue_options> o;
    o.multiprocessors = options.multiprocessors;
    o.in_flight = options.in_flight;
    o.command_bytes = options.command_bytes;
    return detail::make<segment_queue, wb_segment_queue_t>(
        [&](wb_segment_queue_t** made) { return wb_segment_queue_create(on.get(), behind.get(), &o, made); });
  }

  /// @brief Starts to read objects from their blocks into segments, and returns at once. Later work on the stream finds the data.
  ///
  /// @param objects First block, blocks, bytes and number of segments of each object.
  /// @param segments Segments of the first object in the order of its bytes, then those of the next one.
  returned<segment_transfer> load(const std::vector<wb_segment_blocks>& objects, const std::vector<wb_segment_memory>& segments) const {
    return detail::make<segment_transfer, wb_segment_transfer_t>([&](wb_segment_transfer_t** made) {
      return wb_segment_queue_load(get(), objects.data(), objects.size(), segments.data(), segments.size(), made);
    });
  }
  /// @brief Starts to write objects to their blocks from segments, and returns at once. They are durable after volume::flush. Whatever
  /// the blocks had is lost. Arguments as of `load`.
  returned<segment_transfer> store(const std::vector<wb_segment_blocks>& objects, const std::vector<wb_segment_memory>& segments) const {
    return detail::make<segment_transfer, wb_segment_transfer_t>([&](wb_segment_transfer_t** made) {
      return wb_segment_queue_store(get(), objects.data(), objects.size(), segments.data(), segments.size(), made);
    });
  }
};

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
