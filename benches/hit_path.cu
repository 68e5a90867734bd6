// Costs of the parts of a hit in the page cache: each kernel leaves parts of the path out, or replaces them. Every frame holds its
// page, nothing evicts, and all kernels read the same elements, which the sums prove.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 --expt-relaxed-constexpr -Ikernels/include benches/hit_path.cu -o hit_path && ./hit_path
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <warpbell/array.cuh>

using namespace warpbell;

// Parts of an element's hit path, each with those before it.
enum look : int { plain, arithmetic, one_look, one_acquire, two_looks };
const char* const look_names[] = {"plain loads", "address arithmetic", "tag, relaxed", "tag, acquired", "tag again afterwards"};

template <int L> WB_FN uint64_t load(const wb_cache& c, uint64_t i) {
  if (L == plain) return reinterpret_cast<const uint64_t*>(c.frames)[i];
  const uint64_t page = i >> (c.page_shift - 3);
  const uint32_t set = frames::set_of(c, page), way = frames::home_way(c, page);
  const uint64_t* from = reinterpret_cast<const uint64_t*>(frames::address(c, set, way) + (static_cast<uint32_t>(i << 3) & c.page_mask));
  if (L == arithmetic) return *from;
  const uint64_t* word = frames::tag(c, frames::entry(c, set, way));
  const uint64_t t = L == one_look ? order::load<order::relaxed>(word) : order::load<order::acquire>(word);
  if (!tags::holds(t, page)) return 0;
  const uint64_t v = order::load_checked(from);
  if (L == two_looks && !tags::same(t, order::load<order::relaxed>(word))) return 0;
  return v;
}

enum order_of : int { at_random, runs, sequential };
const char* const order_names[] = {"random 8 B", "random runs of 32", "sequential"};

template <int O, int L> __global__ void __launch_bounds__(256, 8) elements(wb_cache c, uint64_t n, uint32_t count, uint64_t* out) {
  uint64_t x = ((O == runs ? warp::index() : warp::thread_index()) + 1) * 0x9e3779b97f4a7c15ull, sum = 0;
  auto next = [&](uint64_t most) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return (x >> 32) * most >> 32;
  };
  if (O == sequential) {
    for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) sum += load<L>(c, i);
  } else {
    for (uint32_t k = 0; k < count; ++k) sum += load<L>(c, O == runs ? next(n - 31) + warp::lane() : next(n));
  }
  out[warp::thread_index()] = sum;
}

// Ways to keep a page in its frame while a warp reads it.
enum hold : int { nothing, tag_alone, pin_alone, pin_and_unpin, one_fence, pins_in_tag };
const char* const hold_names[] = {"address arithmetic",           "tag acquired once a page",     "pin, no unpin",
                                  "pin and unpin: a page handle", "the same with one fence less", "pins in the tag's word: one atomic"};

template <int H, int U, int B> __global__ void __launch_bounds__(256, B) pages(wb_cache c, uint64_t n, uint64_t* out) {
  const uint32_t each = 1u << (c.page_shift - 3);
  const uint64_t all = n / each, first = all * warp::index() / warp::total(), last = all * (warp::index() + 1) / warp::total();
  uint64_t sum = 0;
  uint32_t before = frames::none;
  for (uint64_t page = first; page < last; ++page) {
    const uint32_t set = frames::set_of(c, page), way = frames::home_way(c, page), entry = frames::entry(c, set, way);
    uint32_t ok = 1;
    if (H == tag_alone) ok = tags::holds(order::load<order::acquire>(frames::tag(c, entry)), page);
    __syncwarp();
    if (H >= pin_alone && warp::lane() == 0) {
      if (H == pin_and_unpin && before != frames::none) frames::unpin(c, before, 32);
      if (H == pin_alone || H == pin_and_unpin) ok = frames::pin_held(c, entry, page, 32);
      if (H == one_fence) {
        order::add<order::relaxed>(frames::pins(c, entry), 32u);
        order::fence<order::acq_rel>();
        if (before != frames::none) order::add<order::relaxed>(frames::pins(c, before), 0u - 32u);
        ok = tags::holds(order::fetch_or<order::acquire>(frames::tag(c, entry), uint64_t{0}), page);
      }
      if (H == pins_in_tag) {
        // The low bits of the word stand for the pins here.
        if (before != frames::none) order::add<order::release>(reinterpret_cast<uint64_t*>(c.fill) + before, ~uint64_t{31});
        uint64_t was;
        asm volatile("atom.acquire.gpu.global.add.u64 %0, [%1], 32;" : "=l"(was) : "l"(c.fill + entry) : "memory");
        ok = was < 1u << 20;
      }
      before = entry;
    }
    if (H >= pin_alone) ok = warp::shuffle(warp::full(), ok, 0);
    if (!ok) break;
    const uint64_t* data = reinterpret_cast<const uint64_t*>(frames::address(c, set, way));
#pragma unroll U
    for (uint32_t i = warp::lane(); i < each; i += 32) sum += data[i];
  }
  out[warp::thread_index()] = sum;
}

__global__ void fill(wb_cache c, uint64_t n) {
  for (uint64_t i = warp::thread_index(); i < n; i += warp::thread_total()) reinterpret_cast<uint64_t*>(c.frames)[i] = i * 7;
  for (uint64_t p = warp::thread_index(); p < n >> (c.page_shift - 3); p += warp::thread_total()) {
    const uint32_t e = frames::entry(c, frames::set_of(c, p), frames::home_way(c, p));
    c.tag[e] = p << WB_TAG_PAGE_SHIFT | WB_TAG_VALID | WB_TAG_REFERENCED;
  }
}

static void check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

template <class T> T* allocate(uint64_t count) {
  void* p = nullptr;
  check(cudaMalloc(&p, count * sizeof(T)), "cudaMalloc");
  check(cudaMemset(p, 0, count * sizeof(T)), "cudaMemset");
  return static_cast<T*>(p);
}

static uint64_t* out;
static uint32_t multiprocessors, threads_out;

static double base;        // of the group's first kernel
static uint64_t expected;  // its sum

// Prints the median of 9 runs and its share of the first of the group. Sums must be equal within a group.
template <class F> void measure(const char* name, double loads, uint32_t blocks, bool is_first, F launch) {
  cudaEvent_t a, b;
  check(cudaEventCreate(&a), "event"), check(cudaEventCreate(&b), "event");
  std::vector<float> times;
  for (int i = 0; i < 10; ++i) {
    check(cudaEventRecord(a), "record");
    launch(blocks * multiprocessors);
    check(cudaEventRecord(b), "record"), check(cudaEventSynchronize(b), name);
    float ms = 0;
    check(cudaEventElapsedTime(&ms, a, b), "time");
    if (i) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  std::vector<uint64_t> sums(blocks * multiprocessors * 256);
  check(cudaMemcpy(sums.data(), out, sums.size() * 8, cudaMemcpyDeviceToHost), "copy");
  uint64_t sum = 0;
  for (uint64_t s : sums) sum += s;
  const double rate = loads / times[times.size() / 2] / 1e6;
  if (is_first) base = rate, expected = sum;
  std::printf("  %-36s %8.1f G loads/s (%.1f to %.1f)  %5.1f %%%s\n", name, rate, loads / times.back() / 1e6, loads / times.front() / 1e6,
              100 * rate / base, sum == expected ? "" : "  WRONG SUM");
}

template <int O, int L = plain> void group(const wb_cache& c, uint64_t n) {
  const uint32_t count = O == runs ? 512 : 128;
  const double loads = O == sequential ? double(n) : double(threads_out) * count;
  measure(look_names[L], loads, 8, L == plain, [&](uint32_t blocks) { elements<O, L><<<blocks, 256>>>(c, n, count, out); });
  if constexpr (L < two_looks) group<O, L + 1>(c, n);
}

template <int U, int B, int H = nothing> void group_of_pages(const wb_cache& c, uint64_t n) {
  measure(hold_names[H], double(n), B, H == nothing, [&](uint32_t blocks) { pages<H, U, B><<<blocks, 256>>>(c, n, out); });
  if constexpr (H < pins_in_tag) group_of_pages<U, B, H + 1>(c, n);
}

int main() {
  cudaDeviceProp p;
  check(cudaGetDeviceProperties(&p, 0), "device");
  multiprocessors = static_cast<uint32_t>(p.multiProcessorCount);
  threads_out = multiprocessors * 8 * 256;
  const uint32_t shift = 12;
  const uint64_t bytes = uint64_t{8} << 30, n = bytes / 8;
  wb_cache c = {};
  c.page_shift = shift, c.page_mask = (1u << shift) - 1;
  c.ways = 16, c.way_reciprocal = static_cast<uint32_t>(((uint64_t{1} << 32) + 15) / 16);
  c.sets = static_cast<uint32_t>((bytes >> shift) / c.ways), c.set_mask = c.sets - 1;
  while ((1u << c.log2_sets) < c.sets) ++c.log2_sets;
  const uint64_t entries = uint64_t{c.sets} * c.ways;
  c.frames = reinterpret_cast<uint64_t>(allocate<char>(bytes));
  c.tag = allocate<uint64_t>(entries), c.fill = allocate<uint64_t>(entries), c.pins = allocate<uint32_t>(entries);
  out = allocate<uint64_t>(threads_out);
  fill<<<multiprocessors * 8, 256>>>(c, n);
  check(cudaDeviceSynchronize(), "fill");
  std::printf("%s, %u multiprocessors, %llu GiB in pages of 4 KiB; median of 9 runs, slowest to fastest\n", p.name, multiprocessors,
              static_cast<unsigned long long>(bytes >> 30));
  std::printf("%s\n", order_names[0]), group<at_random>(c, n);
  std::printf("%s\n", order_names[1]), group<runs>(c, n);
  std::printf("%s\n", order_names[2]), group<sequential>(c, n);
  std::printf("page by page, 8 loads in flight, 6 blocks\n"), group_of_pages<8, 6>(c, n);
  std::printf("page by page, 8 loads in flight, 8 blocks\n"), group_of_pages<8, 8>(c, n);
}
