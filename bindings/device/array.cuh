// Flat functions of stored arrays: warpbell_device.h describes them.
#pragma once

#include <warpbell/array.cuh>

#include "flat.cuh"

namespace warpbell {
namespace flat {

/// @brief Returns true if the elements of the array have the bytes of a `T`. If not, enters a bad argument in the run's error log.
template <class T> WB_FN bool has_elements(const wb_array_view& v) {
  if (WB_LIKELY(v.array.element_bytes == sizeof(T))) return true;
  out_of_line(outside_of_array)(v.array.cache, v.array.first_page);
  return false;
}

template <class T> WB_FN T load(uint64_t view, uint64_t index) {
  const wb_array_view& v = at<wb_array_view>(view);
  return has_elements<T>(v) ? array<T>(v).load(index) : poison<T>();
}
template <class T> WB_FN T load_together(uint64_t view, uint64_t index, bool wanted) {
  const wb_array_view& v = at<wb_array_view>(view);
  if (!has_elements<T>(v)) return poison<T>();
  const T value = array<T>(v).load(warp::full(), wanted, index);
  return wanted ? value : T{};
}

// Calls `change` with the address of an element. Returns false if the element is not available.
template <class T, class F> WB_FN bool update(uint64_t view, uint64_t index, F change) {
  const wb_array_view& v = at<wb_array_view>(view);
  return has_elements<T>(v) && array<T>(v).update(index, change);
}
// `update` for the lanes with `wanted`. The whole warp calls this.
template <class T, class F> WB_FN bool update_together(uint64_t view, uint64_t index, bool wanted, F change) {
  const wb_array_view& v = at<wb_array_view>(view);
  if (!has_elements<T>(v)) return false;
  const warp::mask_t members = warp::ballot(warp::full(), wanted);
  const bool ok = !wanted || array<T>(v).update(members, index, change);
  warp::sync(warp::full());
  return ok;
}

template <class T> struct storing {
  T value;
  WB_FN void operator()(T* p) const { order::store<order::relaxed>(p, value); }
};
template <class T> struct adding {
  T value;
  T* before;
  WB_FN void operator()(T* p) const { *before = order::fetch_add<order::relaxed>(p, value); }
};

// Copies a range of elements to memory that kernels see. The whole warp calls this.
template <class T> WB_FN uint32_t read_elements(uint64_t view, uint64_t first, uint64_t count, uint64_t destination) {
  const wb_array_view& v = at<wb_array_view>(view);
  if (!has_elements<T>(v)) return word_of(false);
  T* to = reinterpret_cast<T*>(destination);
  // A range without an end is one beyond the end of the array.
  const uint64_t last = count > ~first ? ~uint64_t{0} : first + count;
  const bool ok = array<T>(v).for_each_chunk_indexed(first, last, [=](uint64_t i, T value) { to[i - first] = value; });
  return together(by_warp, word_of(ok));
}
// `read_elements` for a block, whose warps share the range.
template <class T> WB_FN uint32_t read_elements_by_block(uint64_t view, uint64_t first, uint64_t count, uint64_t destination) {
  const uint64_t warps = warp::warps_per_block(), mine = threadIdx.x / warp::width;
  const uint64_t share = count / warps, begin = share * mine;
  const uint64_t n = mine + 1 == warps ? count - begin : share;
  return together(by_block, read_elements<T>(view, first + begin, n, destination + begin * sizeof(T)));
}

}  // namespace flat
}  // namespace warpbell

WB_FLAT uint64_t wbd_array_size(uint64_t view) { return warpbell::flat::at<wb_array_view>(view).array.count; }
WB_FLAT uint32_t wbd_array_has_failed(uint64_t view) {
  return warpbell::frames::ended(*warpbell::flat::at<wb_array_view>(view).array.cache);
}
// Pages are counted in elements of any size.
WB_FLAT uint32_t wbd_array_prefetch(uint64_t view, uint64_t index, uint64_t count) {
  warpbell::array<uint8_t>(warpbell::flat::at<wb_array_view>(view)).prefetch(index, count);
  return WB_DONE;
}

// `PASSED` is the type of arguments and results: compilers disagree about integers of less than 32 bits.
#define WB_FLAT_ELEMENTS(NAME, T, PASSED)                                                                                      \
  WB_FLAT PASSED wbd_array_load_##NAME(uint64_t view, uint64_t index) { return warpbell::flat::load<T>(view, index); }         \
  WB_FLAT PASSED wbd_array_load_##NAME##_warp(uint64_t view, uint64_t index, uint32_t wanted) {                                \
    return warpbell::flat::load_together<T>(view, index, wanted != 0);                                                         \
  }                                                                                                                            \
  WB_FLAT uint32_t wbd_array_store_##NAME(uint64_t view, uint64_t index, PASSED value) {                                       \
    return warpbell::flat::word_of(warpbell::flat::update<T>(view, index, warpbell::flat::storing<T>{static_cast<T>(value)})); \
  }                                                                                                                            \
  WB_FLAT uint32_t wbd_array_store_##NAME##_warp(uint64_t view, uint64_t index, PASSED value, uint32_t wanted) {               \
    const warpbell::flat::storing<T> change{static_cast<T>(value)};                                                            \
    return warpbell::flat::word_of(warpbell::flat::update_together<T>(view, index, wanted != 0, change));                      \
  }
WB_FLAT_ELEMENTS(u8, uint8_t, uint32_t)
WB_FLAT_ELEMENTS(u16, uint16_t, uint32_t)
WB_FLAT_ELEMENTS(u32, uint32_t, uint32_t)
WB_FLAT_ELEMENTS(u64, uint64_t, uint64_t)
WB_FLAT_ELEMENTS(f32, float, float)
WB_FLAT_ELEMENTS(f64, double, double)

#define WB_FLAT_ADD(NAME, T)                                                                                 \
  WB_FLAT T wbd_array_atomic_add_##NAME(uint64_t view, uint64_t index, T value) {                            \
    T before = warpbell::poison<T>();                                                                        \
    warpbell::flat::update<T>(view, index, warpbell::flat::adding<T>{value, &before});                       \
    return before;                                                                                           \
  }                                                                                                          \
  WB_FLAT T wbd_array_atomic_add_##NAME##_warp(uint64_t view, uint64_t index, T value, uint32_t wanted) {    \
    T before = wanted != 0 ? warpbell::poison<T>() : T{0};                                                   \
    warpbell::flat::update_together<T>(view, index, wanted != 0, warpbell::flat::adding<T>{value, &before}); \
    return before;                                                                                           \
  }
WB_FLAT_ADD(u32, uint32_t)
WB_FLAT_ADD(u64, uint64_t)

#define WB_FLAT_READ(NAME, T)                                                                                           \
  WB_FLAT uint32_t wbd_array_read_##NAME##_warp(uint64_t view, uint64_t first, uint64_t count, uint64_t destination) {  \
    return warpbell::flat::read_elements<T>(view, first, count, destination);                                           \
  }                                                                                                                     \
  WB_FLAT uint32_t wbd_array_read_##NAME##_block(uint64_t view, uint64_t first, uint64_t count, uint64_t destination) { \
    return warpbell::flat::read_elements_by_block<T>(view, first, count, destination);                                  \
  }
WB_FLAT_READ(u8, uint8_t)
WB_FLAT_READ(u16, uint16_t)
WB_FLAT_READ(u32, uint32_t)
WB_FLAT_READ(u64, uint64_t)

#undef WB_FLAT_ELEMENTS
#undef WB_FLAT_ADD
#undef WB_FLAT_READ
