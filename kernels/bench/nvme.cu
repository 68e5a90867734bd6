// Block reads and writes, as fio does them: sequential or random offsets in a range of a volume, a number of commands in flight
// for the whole job, data that says where it belongs, latency histograms.
#include <warpbell/kernel.h>
#include <warpbell/volume.cuh>

namespace warpbell {
namespace bench {

enum rw_mode : uint32_t { rw_read = 0, rw_write = 1, rw_randread = 2, rw_randwrite = 3, rw_randrw = 4 };

// What to do. Passed by value; the host mirrors it.
struct nvme_job {
  uint64_t first;         // first block of the range
  uint64_t range;         // blocks in it, at least `blocks`
  uint64_t requests;      // how many in all; 0: until the time is up
  uint64_t runtime_ns;    // stop after this time; 0: no limit (then `requests` is not 0)
  uint64_t seed;          // of offsets, and of the data
  uint32_t blocks;        // blocks in one request
  uint32_t mode;          // rw_mode
  uint32_t read_percent;  // rw_randrw: reads among the requests, 0 to 100
  uint32_t depth;         // requests in flight, over the whole job
  uint32_t verify;        // not 0: reads check their data (which a job with the same seed has written), writes write it
  uint32_t reserved;
};

// What one warp did.
struct nvme_result {
  uint64_t reads;
  uint64_t writes;
  uint64_t bytes;
  uint64_t wrong;   // 512-byte sectors that did not hold what they should
  uint64_t failed;  // requests
  uint64_t first_wrong;  // volume block of one wrong sector; all ones without any
  uint64_t started_ns;   // the warp's first and last moment, on the clock of all
  uint64_t ended_ns;
};

// One request in flight: the host gives memory for `depth` of them.
struct nvme_slot {
  uint64_t token;
  uint64_t block;    // first block
  uint64_t begun_ns;
  uint64_t kind;     // 0 nothing, 1 read, 2 write
};

static_assert(sizeof(nvme_job) == 64 && sizeof(nvme_result) == 64 && sizeof(nvme_slot) == 32, "the host mirrors these");

// Latencies go into buckets of a sixteenth of a power of two: value v (ns) below 16 into bucket v, others into
// (e - 3) * 16 + the four bits after the leading one, e being the leading one's place.
constexpr uint32_t histogram_sub_bits = 4;
constexpr uint32_t histogram_buckets = (64 - histogram_sub_bits + 1) << histogram_sub_bits;

WB_FN uint32_t bucket_of(uint64_t v) {
  if (v < (1u << histogram_sub_bits)) return static_cast<uint32_t>(v);
#if WB_GPU
  const uint32_t e = 63u - static_cast<uint32_t>(__clzll(static_cast<long long>(v)));
#else
  const uint32_t e = 63u - static_cast<uint32_t>(__builtin_clzll(v));
#endif
  const uint32_t sub = static_cast<uint32_t>(v >> (e - histogram_sub_bits)) & ((1u << histogram_sub_bits) - 1);
  return ((e - histogram_sub_bits + 1) << histogram_sub_bits) + sub;
}

// The n-th number of a seeded sequence, from n alone (splitmix64's output function).
WB_FN uint64_t random_at(uint64_t seed, uint64_t n) {
  uint64_t x = seed + (n + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// Data: every 512 bytes (a sector, whatever the block size) are 32 quads, each with the sector's number in the volume, the
// quad's place, and a check word over these and the seed.
constexpr uint32_t sector_shift = 9;
constexpr uint32_t quads_per_sector = (1u << sector_shift) / sizeof(order::quad);

WB_FN order::quad quad_of(uint64_t seed, uint64_t sector, uint32_t place) {
  const uint64_t check = random_at(seed ^ sector, place);
  return {nvme::low(sector), nvme::high(sector) ^ place << 24, nvme::low(check), nvme::high(check)};
}

// Fills the buffers of the lanes with `mine`; all lanes together.
WB_FN void fill(warp::mask_t mask, bool mine, uint64_t seed, uint64_t buffer, uint64_t block, uint32_t bytes, uint32_t block_shift) {
  const uint32_t n = warp::count(mask), rank = warp::rank(mask);
  for (warp::mask_t m = warp::ballot(mask, mine); m; m &= m - 1) {
    const uint32_t who = warp::first(m);
    const uint64_t to = warp::shuffle(mask, buffer, who), sector = warp::shuffle(mask, block, who) << (block_shift - sector_shift);
    for (uint32_t i = rank; i < bytes / sizeof(order::quad); i += n) {
      order::store_quad(reinterpret_cast<void*>(to + uint64_t{i} * sizeof(order::quad)),
                        quad_of(seed, sector + i / quads_per_sector, i % quads_per_sector));
    }
  }
  warp::sync(mask);
}

// Counts the wrong sectors in the buffers of the lanes with `mine`, for each lane those that it found; all lanes together.
WB_FN uint32_t verify(warp::mask_t mask, bool mine, uint64_t seed, uint64_t buffer, uint64_t block, uint32_t bytes, uint32_t block_shift,
                      uint64_t& first_wrong) {
  const uint32_t n = warp::count(mask), rank = warp::rank(mask);
  uint32_t wrong = 0;
  for (warp::mask_t m = warp::ballot(mask, mine); m; m &= m - 1) {
    const uint32_t who = warp::first(m);
    const uint64_t from = warp::shuffle(mask, buffer, who), start = warp::shuffle(mask, block, who);
    const uint64_t sector = start << (block_shift - sector_shift);
    // A lane remembers the last sector that it found wrong, so that it counts each once; several lanes may count the same.
    uint32_t last = ~0u;
    for (uint32_t i = rank; i < bytes / sizeof(order::quad); i += n) {
      const order::quad got = order::load_quad_sys(reinterpret_cast<const void*>(from + uint64_t{i} * sizeof(order::quad)));
      const uint32_t s = i / quads_per_sector;
      const order::quad want = quad_of(seed, sector + s, i % quads_per_sector);
      const bool same = got.x == want.x && got.y == want.y && got.z == want.z && got.w == want.w;
      if (!same && s != last) {
        last = s;
        ++wrong;
        if (first_wrong == ~0ull) first_wrong = start + (s >> (block_shift - sector_shift));
      }
    }
  }
  warp::sync(mask);
  return wrong;
}

// One lane's share of a job while it runs.
class nvme_worker {
 public:
  WB_FN nvme_worker(volume_ref v, const nvme_job& job, uint64_t buffers, uint64_t* histogram)
      : v_(v), job_(job), buffers_(buffers), histogram_(histogram), bytes_(job.blocks << v.block_shift()),
        places_(job.range / job.blocks) {}

  uint64_t reads = 0, writes = 0, wrong = 0, first_wrong = ~0ull;
  uint32_t failed = 0;

  // Request r of the job.
  WB_FN bool is_read(uint64_t r) const {
    if (job_.mode == rw_randrw) return random_at(~job_.seed, r) % 100 < job_.read_percent;
    return job_.mode == rw_read || job_.mode == rw_randread;
  }
  WB_FN uint64_t block(uint64_t r) const {
    const bool sequential = job_.mode == rw_read || job_.mode == rw_write;
    return job_.first + (sequential ? r : random_at(job_.seed, r)) % places_ * job_.blocks;
  }
  WB_FN uint64_t buffer(uint64_t place) const { return buffers_ + place * bytes_; }

  WB_FN void before_write(bool mine, uint64_t to, uint64_t block) const {
    if (job_.verify && warp::any(warp::full(), mine)) fill(warp::full(), mine, job_.seed, to, block, bytes_, v_.block_shift());
  }

  // Accounts for a request that has ended; all lanes.
  WB_FN void after(bool mine, bool was_read, const status& s, uint64_t at, uint64_t block, uint64_t begun_ns) {
    if (mine && s) {
      const uint64_t took = now_ns() - begun_ns;
      order::add_relaxed(histogram_ + (was_read ? 0 : histogram_buckets) + bucket_of(took), uint64_t{1});
      ++(was_read ? reads : writes);
    }
    const bool check = mine && s && was_read;
    if (job_.verify && warp::any(warp::full(), check)) {
      wrong += verify(warp::full(), check, job_.seed, at, block, bytes_, v_.block_shift(), first_wrong);
    }
    if (mine && !s) {
      ++failed;
      v_.fail(s);
    }
  }

  // One request for each lane with `mine`, submitted and waited for.
  WB_FN void round(bool mine, uint64_t r, uint64_t place) {
    const warp::mask_t all = warp::full();
    const bool reading = mine && is_read(r), writing = mine && !reading;
    const uint64_t b = mine ? block(r) : 0, at = buffer(place);
    before_write(writing, at, b);
    const uint64_t begun = now_ns();
    if (warp::any(all, reading)) {
      const status s = v_.read(all, b, reading ? job_.blocks : 0, reinterpret_cast<void*>(at));
      after(reading, true, s, at, b, begun);
    }
    if (warp::any(all, writing)) {
      const status s = v_.write(all, b, writing ? job_.blocks : 0, reinterpret_cast<const void*>(at));
      after(writing, false, s, at, b, begun);
    }
  }

  // The same in two halves, with the request in `slot` between them.
  WB_FN void begin(bool mine, uint64_t r, uint64_t place, nvme_slot* slot) {
    const warp::mask_t all = warp::full();
    const bool reading = mine && is_read(r), writing = mine && !reading;
    const uint64_t b = mine ? block(r) : 0, at = buffer(place);
    before_write(writing, at, b);
    const uint64_t begun = now_ns();
    token t;
    if (warp::any(all, reading)) t = v_.read_async(all, b, reading ? job_.blocks : 0, reinterpret_cast<void*>(at));
    if (warp::any(all, writing)) {
      const token w = v_.write_async(all, b, writing ? job_.blocks : 0, reinterpret_cast<const void*>(at));
      if (writing) t = w;
    }
    if (mine) *slot = nvme_slot{t.word, b, begun, reading ? 1u : 2u};
  }
  WB_FN void end(uint64_t place, nvme_slot* slot) {
    const nvme_slot was = slot ? *slot : nvme_slot{token::none, 0, 0, 0};
    const bool mine = was.kind != 0;
    if (!warp::any(warp::full(), mine)) return;
    const status s = v_.wait(warp::full(), mine ? token{was.token} : token{});
    after(mine, was.kind == 1, s, buffer(place), was.block, was.begun_ns);
    if (mine) slot->kind = 0;
  }

 private:
  const volume_ref v_;
  const nvme_job& job_;
  const uint64_t buffers_;
  uint64_t* const histogram_;
  const uint32_t bytes_;
  const uint64_t places_;
};

}  // namespace bench
}  // namespace warpbell

// Runs a job. `buffers`: depth * blocks * block size bytes, 16-byte aligned (and within a window, where data lands directly).
// `slots`: warpbell::bench::nvme_slot[depth], zeroed. `results`: warpbell::bench::nvme_result, one for each warp. `histogram`:
// u64[2][histogram_buckets], zeroed: latencies of reads, then of writes, in nanoseconds from before the submission until the
// warp has the data (lanes of a warp are waited for together).
//
// With at least `depth` threads every lane has one request at a time (the others of its warp help); with fewer, each lane keeps
// several in flight as tokens. Requests that one command can not move are always done one at a time.
WB_KERNEL void wb_bench_nvme(const wb_volume* volume, WB_PARAM warpbell::bench::nvme_job job, uint64_t* buffers,
                             warpbell::bench::nvme_slot* slots, warpbell::bench::nvme_result* results, uint64_t* histogram) {
#if WB_DEVICE_PASS
  using namespace warpbell;
  const volume_ref v(volume);
  const warp::mask_t all = warp::full();
  const uint64_t lanes = uint64_t{warp::total()} * warp::width, me = uint64_t{warp::index()} * warp::width + warp::lane();
  bench::nvme_worker work(v, job, reinterpret_cast<uint64_t>(buffers), histogram);
  const uint64_t started = now_ns();
  // Whether the warp goes on with its next batch: requests left, time left, and no failure.
  auto goes_on = [&](uint64_t r) {
    const bool left = job.requests == 0 || r < job.requests;
    uint32_t in_time = 1;
    if (warp::is_leader(all)) {
      in_time = (job.runtime_ns == 0 || now_ns() - started < job.runtime_ns) &&
                order::load_relaxed(reinterpret_cast<const uint32_t*>(v.control()->abort)) == 0 &&
                order::load_relaxed_sys(reinterpret_cast<const uint32_t*>(v.control()->stop)) == 0;
    }
    return warp::shuffle(all, in_time, 0) != 0 && warp::any(all, left && me < job.depth) && !warp::any(all, work.failed != 0);
  };
  auto wanted = [&](uint64_t r, uint64_t place) { return place < job.depth && (job.requests == 0 || r < job.requests); };
  const uint32_t batches = static_cast<uint32_t>((job.depth + lanes - 1) / lanes);
  const bool single = job.blocks <= v.locate(0).room && (v.raw()->device_count == 1 || v.raw()->chunk_blocks % job.blocks == 0) &&
                      (v.raw()->device_count == 1 || job.first % job.blocks == 0);
  if ((batches == 1 && job.mode != bench::rw_randrw) || !single) {
    const uint64_t stride = job.depth < lanes ? job.depth : lanes;
    for (uint64_t r = me; goes_on(r); r += stride) work.round(wanted(r, me), r, me < job.depth ? me : 0);
  } else {
    // Batch b of a lane is request b, b + batches, ... of its own, in place b * lanes + me.
    uint64_t base = 0;
    for (bool more = true; more;) {
      for (uint32_t b = 0; b < batches; ++b) {
        const uint64_t place = b * lanes + me, r = base + place;
        bench::nvme_slot* slot = place < job.depth ? &slots[place] : nullptr;
        work.end(slot ? place : 0, slot);
        more = more && goes_on(r - me + warp::index() * uint64_t{warp::width});
        if (more) work.begin(wanted(r, place), r, slot ? place : 0, slot);
      }
      base += job.depth;
    }
    for (uint32_t b = 0; b < batches; ++b) {
      const uint64_t place = b * lanes + me;
      work.end(place < job.depth ? place : 0, place < job.depth ? &slots[place] : nullptr);
    }
  }
  bench::nvme_result sum;
  sum.reads = warp::sum(all, work.reads);
  sum.writes = warp::sum(all, work.writes);
  sum.bytes = (sum.reads + sum.writes) * job.blocks << v.block_shift();
  sum.wrong = warp::sum(all, work.wrong);
  sum.failed = warp::sum(all, uint64_t{work.failed});
  const warp::mask_t found = warp::ballot(all, work.first_wrong != ~0ull);
  sum.first_wrong = found ? warp::shuffle(all, work.first_wrong, warp::first(found)) : ~0ull;
  sum.started_ns = started;
  sum.ended_ns = now_ns();
  if (warp::is_leader(all)) results[warp::index()] = sum;
#endif
}
WB_EXPORT(wb_bench_nvme)
