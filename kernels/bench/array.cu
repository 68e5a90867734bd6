// Benchmarks of array loads against plain loads of the same elements in the same order. Launch shape: any grid of whole warps,
// blocks of up to 256 threads. Each kernel writes a sum for each thread. By these the host verifies that both kernels read the
// same, correct elements: element i is expected to be i * `factor`.
//
//   random    each thread, `count` elements anywhere
//   runs      each warp, `count` times one run of consecutive elements, as long as the warp is wide, starting anywhere
//   stride    all warps side by side through the array, element by element
//   segments  each warp, its own part of the array from end to end: element by element, through a page handle, by chunks
#include <warpbell/array.cuh>
#include <warpbell/kernel.h>
#include <warpbell/warp.cuh>

namespace array_bench {

using namespace warpbell;

// xorshift64 (Marsaglia, 2003), seeded by multiples of the golden ratio. The host repeats the sequence to check sums.
WB_FN uint64_t seed(uint64_t i) { return (i + 1) * 0x9e3779b97f4a7c15ull; }
WB_FN uint64_t next(uint64_t& x) {
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}
// Returns 0 to n - 1 from the upper half of a random word; n is below 2^32.
WB_FN uint64_t below(uint64_t random, uint64_t n) { return (random >> 32) * n >> 32; }

// Source of plain kernels: a pointer with the interface of an array session.
template <class T> struct plain {
  const T* data;
  WB_FN T load(uint64_t i) const { return data[i]; }
};

template <class S> WB_FN uint64_t random(S& source, uint64_t n, uint32_t count) {
  uint64_t x = seed(warp::thread_index()), sum = 0;
  for (uint32_t k = 0; k < count; ++k) sum += source.load(below(next(x), n));
  return sum;
}

template <class S> WB_FN uint64_t runs(S& source, uint64_t n, uint32_t count) {
  uint64_t x = seed(warp::index()), sum = 0;
  for (uint32_t k = 0; k < count; ++k) sum += source.load(below(next(x), n - warp::width + 1) + warp::lane());
  return sum;
}

template <class S> WB_FN uint64_t stride(S& source, uint64_t n) {
  uint64_t sum = 0;
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) sum += source.load(i);
  return sum;
}

// A warp's part of n elements: whole multiples of `grain`, so that no two warps share a page of that many elements.
struct part {
  uint64_t first, last;
  WB_FN part(uint64_t n, uint32_t grain) {
    const uint64_t grains = (n + grain - 1) / grain, warps = warp::total(), w = warp::index();
    first = grains * w / warps * grain;
    last = grains * (w + 1) / warps * grain;
    if (last > n) last = n;
  }
};

template <class S> WB_FN uint64_t segment(S& source, part p) {
  uint64_t sum = 0;
  for (uint64_t i = p.first + warp::lane(); i < p.last; i += warp::width) sum += source.load(i);
  return sum;
}

template <class T> WB_FN uint64_t by_handle(array<T>& a, part p) {
  uint64_t sum = 0;
  uint64_t i = p.first + warp::lane();
  for (auto page = a.pin(i); i < p.last && page.ok();) {
    const uint64_t* data = page.data();
    uint64_t end = page.first() + page.count();
    if (end > p.last) end = p.last;
#pragma unroll 8
    for (; i < end; i += warp::width) sum += data[i - page.first()];
    if (i < p.last) page.move_to(i);
  }
  return sum;
}

template <class T> WB_FN uint64_t by_chunk(array<T>& a, part p) {
  uint64_t sum = 0;
  a.for_each_chunk(p.first, p.last, [&](T v) { sum += v; });
  return sum;
}

WB_FN void leave(uint64_t* out, uint64_t sum) { out[warp::thread_index()] = sum; }

}  // namespace array_bench

// Writes data[i] = i * factor to plain memory.
WB_KERNEL void wb_array_fill_plain(uint64_t* data, WB_PARAM uint64_t n, WB_PARAM uint64_t factor) {
  using namespace warpbell;
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) data[i] = i * factor;
}
WB_EXPORT(wb_array_fill_plain)

// Writes data[i] = i * factor to an array.
WB_KERNEL void wb_array_fill(WB_PARAM warpbell::array_ref<uint64_t> data, WB_PARAM uint64_t n, WB_PARAM uint64_t factor,
                             WB_PARAM uint32_t grain) {
  using namespace warpbell;
  auto a = data.open();
  const array_bench::part p(n, grain);
  if (p.first + warp::lane() >= p.last) return;
  auto page = a.pin(p.first + warp::lane());
  for (uint64_t i = p.first + warp::lane(); i < p.last; i += warp::width) page.store(i, i * factor);
}
WB_EXPORT(wb_array_fill)

// Plain kernels take the elements' address, array kernels the array; otherwise the kernels of a pair have the same parameters. The
// bounds limit array kernels to the registers that hits need, so that as many threads fit as with plain loads.
WB_KERNEL void wb_array_plain_random(const uint64_t* data, WB_PARAM uint64_t n, WB_PARAM uint32_t count, uint64_t* out) {
  array_bench::plain<uint64_t> s{data};
  array_bench::leave(out, array_bench::random(s, n, count));
}
WB_EXPORT(wb_array_plain_random)

WB_KERNEL void __launch_bounds__(256, 8)
    wb_array_random(WB_PARAM warpbell::array_ref<uint64_t> data, WB_PARAM uint64_t n, WB_PARAM uint32_t count, uint64_t* out) {
  auto s = data.open();
  array_bench::leave(out, array_bench::random(s, n, count));
}
WB_EXPORT(wb_array_random)

WB_KERNEL void wb_array_plain_runs(const uint64_t* data, WB_PARAM uint64_t n, WB_PARAM uint32_t count, uint64_t* out) {
  array_bench::plain<uint64_t> s{data};
  array_bench::leave(out, array_bench::runs(s, n, count));
}
WB_EXPORT(wb_array_plain_runs)

WB_KERNEL void __launch_bounds__(256, 8)
    wb_array_runs(WB_PARAM warpbell::array_ref<uint64_t> data, WB_PARAM uint64_t n, WB_PARAM uint32_t count, uint64_t* out) {
  auto s = data.open();
  array_bench::leave(out, array_bench::runs(s, n, count));
}
WB_EXPORT(wb_array_runs)

WB_KERNEL void wb_array_plain_stride(const uint64_t* data, WB_PARAM uint64_t n, uint64_t* out) {
  array_bench::plain<uint64_t> s{data};
  array_bench::leave(out, array_bench::stride(s, n));
}
WB_EXPORT(wb_array_plain_stride)

WB_KERNEL void __launch_bounds__(256, 8) wb_array_stride(WB_PARAM warpbell::array_ref<uint64_t> data, WB_PARAM uint64_t n, uint64_t* out) {
  auto s = data.open();
  array_bench::leave(out, array_bench::stride(s, n));
}
WB_EXPORT(wb_array_stride)

WB_KERNEL void wb_array_plain_segment(const uint64_t* data, WB_PARAM uint64_t n, WB_PARAM uint32_t grain, uint64_t* out) {
  array_bench::plain<uint64_t> s{data};
  array_bench::leave(out, array_bench::segment(s, array_bench::part(n, grain)));
}
WB_EXPORT(wb_array_plain_segment)

WB_KERNEL void __launch_bounds__(256, 8)
    wb_array_segment(WB_PARAM warpbell::array_ref<uint64_t> data, WB_PARAM uint64_t n, WB_PARAM uint32_t grain, uint64_t* out) {
  auto s = data.open();
  array_bench::leave(out, array_bench::segment(s, array_bench::part(n, grain)));
}
WB_EXPORT(wb_array_segment)

WB_KERNEL void __launch_bounds__(256, 8)
    wb_array_handle(WB_PARAM warpbell::array_ref<uint64_t> data, WB_PARAM uint64_t n, WB_PARAM uint32_t grain, uint64_t* out) {
  auto s = data.open();
  const array_bench::part p(n, grain);
  array_bench::leave(out, p.first + warpbell::warp::lane() < p.last ? array_bench::by_handle(s, p) : 0);
}
WB_EXPORT(wb_array_handle)

WB_KERNEL void __launch_bounds__(256, 4)
    wb_array_chunk(WB_PARAM warpbell::array_ref<uint64_t> data, WB_PARAM uint64_t n, WB_PARAM uint32_t grain, uint64_t* out) {
  auto s = data.open();
  const array_bench::part p(n, grain);
  array_bench::leave(out, array_bench::by_chunk(s, p));
}
WB_EXPORT(wb_array_chunk)
