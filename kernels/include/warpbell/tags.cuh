// Tag words of a page cache's frames: their meaning, and the changes at the end of a frame's command. cache.cuh lists all changes
// of a tag. Changes that also need pins or the set's lock are in frames.cuh.
#pragma once

#include <warpbell/abi.h>
#include <warpbell/order.cuh>

namespace warpbell {

namespace tags {

constexpr uint64_t state_mask = (1ull << WB_TAG_VERSION_SHIFT) - 1;
constexpr uint64_t version_mask = (1ull << WB_TAG_PAGE_SHIFT) - 1 - state_mask;
// Bits that stay while a frame keeps its page: REFERENCED, DIRTY, WRITING and FAILED come and go.
constexpr uint64_t identity = ~state_mask | WB_TAG_VALID;

/// @brief Returns true if the frame holds the page's bytes.
WB_FN bool holds(uint64_t t, uint64_t page) { return (t & WB_TAG_VALID) != 0 && t >> WB_TAG_PAGE_SHIFT == page; }
/// @brief Returns true if the frame belongs to the page: it holds the page's bytes, or will hold them.
WB_FN bool names(uint64_t t, uint64_t page) {
  return (t & (WB_TAG_VALID | WB_TAG_FILLING | WB_TAG_UNCHECKED)) != 0 && t >> WB_TAG_PAGE_SHIFT == page;
}
/// @brief Returns true if the frame's content is the same as when `before` was read.
WB_FN bool same(uint64_t before, uint64_t now) { return ((before ^ now) & identity) == 0; }
/// @brief Returns the tag with the next version and another state.
WB_FN uint64_t advance(uint64_t t, uint64_t state) {
  uint64_t version = (t + (1ull << WB_TAG_VERSION_SHIFT)) & version_mask;
  return (t & ~(version_mask | state_mask)) | version | state;
}
/// @brief Returns the tag for another page, with the same version.
WB_FN uint64_t rename(uint64_t t, uint64_t page, uint64_t state) { return page << WB_TAG_PAGE_SHIFT | (t & version_mask) | state; }
/// @brief Returns the value of `fill` until the command's token is known. `token_known` is set once the token is known.
WB_FN uint64_t pending(uint64_t t) { return t >> WB_TAG_VERSION_SHIFT; }
constexpr uint64_t token_known = 1ull << 63;

// Ends a read into the frame, which belongs to its command alone until then. The thread that finishes the command calls this.
WB_FN void end_read(uint64_t* tag, bool good) {
  const uint64_t was = order::load<order::relaxed>(tag), page = was & ~state_mask;
  const uint64_t read = (was & WB_TAG_UNCHECKED ? WB_TAG_UNCHECKED : WB_TAG_VALID) | WB_TAG_REFERENCED;
  // A read-modify-write, because a thread that pins the frame meanwhile looks at the tag with a read-modify-write.
  order::exchange<order::acq_rel>(tag, page | (good ? read : uint64_t{WB_TAG_FAILED}));
}

// Ends a write-back of the frame, which was in use meanwhile. The thread that finishes the command calls this.
WB_FN void end_write(uint64_t* tag, bool good) {
  if (good) {
    order::fetch_and<order::acq_rel>(tag, ~uint64_t{WB_TAG_WRITING});
    return;
  }
  uint64_t seen = order::load<order::relaxed>(tag), now;
  do {
    now = seen;
    seen = order::compare_exchange<order::acq_rel>(tag, now, (now | WB_TAG_DIRTY | WB_TAG_FAILED) & ~uint64_t{WB_TAG_WRITING});
  } while (seen != now);
}

// Context of a command of several frames: bits 0 to 47 the address of the first frame's tag, 48 to 55 the distance of their tags in
// words, 56 to 63 the number of frames after the first. The context of one frame is the address of its tag: addresses of programs
// have at most 56 bits.
constexpr uint32_t stride_at = 48, frames_at = 56;
constexpr uint32_t most_stride = 255, most_frames = 256;

/// @brief Returns true if a context has room for the address of a tag and the distance of tags in words.
WB_FN bool fits(const uint64_t* tag, uint32_t stride) { return reinterpret_cast<uint64_t>(tag) >> stride_at == 0 && stride <= most_stride; }
/// @brief Returns the context of a command that reads into `frames` frames, or writes one back.
///
/// @param tag Tag of the first frame.
/// @param stride Distance of the frames' tags in words. If there are several, they fit (`fits`).
/// @param frames Up to most_frames; without any, the context is that of one.
WB_FN uint64_t context(const uint64_t* tag, uint32_t stride, uint32_t frames) {
  const uint64_t at = reinterpret_cast<uint64_t>(tag);
  return frames <= 1 ? at : at | uint64_t{stride} << stride_at | uint64_t{frames - 1} << frames_at;
}

// Ends the read of a command into all its frames.
WB_FN void end_reads(uint64_t context, bool good) {
  const uint32_t after = static_cast<uint32_t>(context >> frames_at);
  if (after == 0) return end_read(reinterpret_cast<uint64_t*>(context), good);
  const uint32_t stride = static_cast<uint32_t>(context >> stride_at) & most_stride;
  uint64_t* tag = reinterpret_cast<uint64_t*>(context & ((uint64_t{1} << stride_at) - 1));
  for (uint32_t i = 0; i <= after; ++i) end_read(tag + uint64_t{i} * stride, good);
}

/// @brief Completion policy of a queue (nvme.cuh) with the contexts of a page cache. The thread that finishes a command calls it.
struct completion {
  // Returns true if threads that wait for parts of a failed read repeat them: pages that came together are then read one by one, so
  // that the error is that of the page which cannot be read.
  WB_FN static bool is_repeated(uint64_t context) { return context >> frames_at != 0; }
  WB_FN static void complete(uint64_t context, bool is_read, bool good) {
    if (is_read) end_reads(context, good);
    else end_write(reinterpret_cast<uint64_t*>(context), good);
  }
};

}  // namespace tags

}  // namespace warpbell
