// `table_ref`: rows of equal size in a volume, gathered by number into a dense output.
//
//   WB_KERNEL void batch(WB_PARAM wb_table_view view, const uint64_t* indices, uint64_t n, float* out, WB_PARAM wb_table_scratch scratch) {
//     const warpbell::table_ref table(view);
//     table.gather_grid(indices, n, out, scratch);          // all threads of the launch, no host in the loop
//   }
//
// A row has 64 to 65,536 bytes, a multiple of 4. Rows may straddle blocks and stripe units. Row `indices[i]` comes to byte
// `i * row_bytes()` of the output, which is device-wide memory at a multiple of 4 bytes, better of 16. Rows that are whole blocks are
// read straight into an output that the volume reaches (`volume_ref::reaches`); others go through staging memory of the scratch.
//
// Where a row comes from, in this order: the hot rows; the row cache near the kernels; the row cache in host memory; a row of the batch
// with the same number; the devices. The host decides which of the caches exist.
//
// Within a batch each row is read once, by the position that enters it first into the hash table of the scratch (table/batch.cuh). Other
// positions with the same number wait for that row and copy it. No waiting warp has reads of its own to do, so any grid will do.
//
// Units of work: a warp looks at up to `warp::width` rows together and reads those that are missing, some at a time, so that all warps
// together have as many reads in flight as the scratch says.
//
// An index that is no row fails the run, as does a read that fails: the error log has the reason (WB_TABLE_OPCODE for the index).
#pragma once

#include <warpbell/abi.h>
#include <warpbell/call.cuh>
#include <warpbell/clock.cuh>
#include <warpbell/copy.cuh>
#include <warpbell/error.cuh>
#include <warpbell/order.cuh>
#include <warpbell/table/batch.cuh>
#include <warpbell/table/cache.cuh>
#include <warpbell/table/parts.cuh>
#include <warpbell/volume.cuh>
#include <warpbell/warp.cuh>

namespace warpbell {
namespace rows {

// Fails the run for a position whose index is no row.
WB_FN_COLD void raise_index(const wb_table_view& t, uint64_t position, uint64_t index) {
  const auto upper = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  const auto lower = [](uint64_t v) { return static_cast<uint32_t>(v); };
  raise_error(t.volume->control,
              wb_error{status_word(WB_BAD_ARGUMENT), upper(t.rows), upper(index), lower(index), WB_TABLE_OPCODE, lower(t.rows), position});
}

// Returns true in all lanes if all lanes with `mine` have an index of a row. Otherwise fails the run.
WB_FN bool check_indices(const wb_table_view& t, bool mine, uint64_t position, uint64_t index) {
  const bool outside = mine && index >= t.rows;
  if (WB_LIKELY(!warp::any(warp::full(), outside))) return true;
  if (outside) raise_index(t, position, index);
  return false;
}

// Returns the address of a hot row, or 0. The hash table of hot rows has empty slots.
WB_FN uint64_t hot_address(const wb_table_view& t, uint64_t row) {
  for (uint64_t at = hash(row);; ++at) {
    const uint32_t slot = static_cast<uint32_t>(at) & t.hot_mask;
    const uint64_t found = t.hot_row[slot];
    if (found == row + 1) return t.hot_frames + uint64_t{t.hot_frame[slot]} * t.row_bytes;
    if (found == 0) return 0;
  }
}

}  // namespace rows

/// @brief A table as kernels see it: refers to the view, which is a kernel's parameter or in memory.
class table_ref {
 public:
  /// @brief Refers to a table by its view: `Table::view` of the host. For one thread.
  ///
  /// @pre The view outlives this. The table, or a run that keeps it, outlives the kernels that use this.
  WB_FN explicit table_ref(const wb_table_view& view) : t_(view) {}
  table_ref(const table_ref&) = delete;
  table_ref& operator=(const table_ref&) = delete;

  /// @brief Returns the number of rows.
  WB_FN uint64_t rows() const { return t_.rows; }
  /// @brief Returns the bytes of a row.
  WB_FN uint32_t row_bytes() const { return t_.row_bytes; }

  /// @brief Gathers a batch by all threads of the launch. All of them call this with the same arguments.
  ///
  /// @tparam Index uint32_t or uint64_t.
  /// @param indices Numbers of rows, `n` of them.
  /// @param out Output, `n` * row_bytes() bytes.
  /// @param scratch Memory of this batch alone, for `n` rows at least (`Table::scratch` of the host).
  /// @return In all lanes of the warp: false if this warp failed the run, or saw that it has failed.
  /// @note This warp's rows are there for this warp. Those of other warps are there after the kernel.
  template <class Index> WB_FN bool gather_grid(const Index* indices, uint64_t n, void* out, const wb_table_scratch& scratch) const {
    return gather(indices, n, out, scratch, warp::index(), warp::total());
  }
  /// @brief Gathers a batch by all threads of a block. All of them call this with the same arguments. As above.
  ///
  /// @param scratch Memory of this batch alone: blocks that gather at the same time have one each.
  /// @note After a barrier of the block all rows are there for all of its threads.
  template <class Index> WB_FN bool gather_block(const Index* indices, uint64_t n, void* out, const wb_table_scratch& scratch) const {
    return gather(indices, n, out, scratch, threadIdx.x / warp::width, warp::warps_per_block());
  }
  /// @brief Gathers a batch by one warp. The whole converged warp calls this with the same arguments. As above.
  ///
  /// @param scratch Memory of this batch alone: warps that gather at the same time have one each.
  /// @note All rows are there for all lanes.
  template <class Index> WB_FN bool gather_warp(const Index* indices, uint64_t n, void* out, const wb_table_scratch& scratch) const {
    return gather(indices, n, out, scratch, 0, 1);
  }

 private:
  using frame = rows::row_cache::frame;

  // Counters of a warp's part of a batch, equal in all lanes.
  struct counts {
    uint32_t rows = 0, duplicates = 0, hot_hits = 0, cache_hits = 0, host_hits = 0, device_reads = 0, admissions = 0, host_admissions = 0,
             retries = 0;
  };
  // Where the lane's row was found in memory.
  enum class tier : uint32_t { none, hot, near, far };
  // A lane's row: its position in the batch, its number, and the address that it is gathered to.
  struct request {
    uint64_t position, row, to;
    uint32_t near_changed, far_changed;  // see row_cache::changed; taken before the row is looked for
  };

  template <class Index>
  WB_FN bool gather(const Index* indices, uint64_t n, void* out, const wb_table_scratch& scratch, uint32_t warp, uint32_t warps) const {
    const rows::shape w(scratch, n, warp, warps);
    if (!w.takes_part()) return true;
    const uint64_t base = reinterpret_cast<uint64_t>(out);
    const bool direct = volume_ref(t_.volume).reaches(base, n * t_.row_bytes);
    const bool in_memory = t_.hot_row != nullptr || near().exists() || far().exists();
    counts c;
    bool good = true;
    for (uint64_t first = w.first; good && first < w.last; first += w.tile) {
      request r{first + warp::lane(), 0, 0, 0, 0};
      bool wanted = warp::lane() < w.tile && r.position < w.last;
      if (wanted) {
        r.row = order::load<order::relaxed>(indices + r.position);
        r.to = base + r.position * t_.row_bytes;
      }
      good = rows::check_indices(t_, wanted, r.position, r.row);
      if (!good) break;
      c.rows += warp::count(warp::ballot(warp::full(), wanted));
      if (in_memory) wanted = !take(r, wanted, c) && wanted;
      good = read(r, wanted, base, scratch, w, direct, c);
    }
    add(c);
    return good;
  }

  // Copies the rows of the lanes with `wanted` that are in memory. Returns true in the lanes that have their row.
  WB_FN bool take(request& r, bool wanted, counts& c) const {
    const warp::mask_t all = warp::full();
    frame f{nullptr, 0, 0};
    tier where = tier::none;
    if (wanted) where = find(r, f);
    if (!warp::any(all, where != tier::none)) return false;
    rows::cross();
    copy_together(all, where != tier::none, r.to, f.address, t_.row_bytes);
    // All lanes have read the frames of all lanes.
    order::fence<order::acquire>();
    warp::sync(all);
    bool has = where != tier::none;
    if (f.tag != nullptr) {
      has = rows::row_cache::still(f);
      if (has) rows::row_cache::use(f);
    }
    c.retries += warp::count(warp::ballot(all, where != tier::none && !has));
    c.hot_hits += warp::count(warp::ballot(all, has && where == tier::hot));
    c.cache_hits += warp::count(warp::ballot(all, has && where == tier::near));
    const bool from_far = has && where == tier::far;
    const warp::mask_t far_ones = warp::ballot(all, from_far);
    c.host_hits += warp::count(far_ones);
    // A row that is used often moves from host memory to the kernels.
    if (far_ones && near().exists()) {
      const bool often = from_far && (f.seen & rows::uses_mask) >= often_uses;
      c.admissions += admit(near(), often, r, r.near_changed, true);
    }
    return has;
  }

  // Looks for the lane's row in memory.
  WB_FN tier find(request& r, frame& f) const {
    if (t_.hot_row != nullptr) {
      f.address = hot_address(r.row);
      if (f.address != 0) return tier::hot;
    }
    if (near().exists()) {
      r.near_changed = near().changed(r.row);
      f = near().find(r.row);
      if (f.tag != nullptr) return tier::near;
    }
    if (far().exists()) {
      r.far_changed = far().changed(r.row);
      f = far().find(r.row);
      if (f.tag != nullptr) return tier::far;
    }
    return tier::none;
  }

  // Reads the rows of the lanes with `wanted`, each once, or copies them from other positions of the batch.
  WB_FN bool read(const request& r, bool wanted, uint64_t base, const wb_table_scratch& scratch, const rows::shape& w, bool direct,
                  counts& c) const {
    const warp::mask_t all = warp::full();
    if (!warp::any(all, wanted)) return true;
    const rows::batch b(scratch);
    uint64_t slot = rows::batch::none;
    bool reads = wanted;
    if (b.exists() && wanted) slot = b.enter(r.row, reads);
    const warp::mask_t readers = warp::ballot(all, reads);
    if (readers) {
      if (!rows::move<false>(t_, scratch, w, readers, r.row, r.to, direct)) return false;
      if (reads && slot != rows::batch::none) b.finish(slot, r.position);
      c.device_reads += warp::count(readers);
      if (near().exists()) c.admissions += admit(near(), reads, r, r.near_changed, false);
      if (far().exists()) c.host_admissions += admit(far(), reads, r, r.far_changed, false);
    }
    const bool follows = wanted && !reads;
    const warp::mask_t followers = warp::ballot(all, follows);
    c.duplicates += warp::count(followers);
    return followers == 0 || follow(b, r, follows, slot, base);
  }

  // Waits for rows that other positions read, and copies them. A reader finishes its whole tile first, with a deadline for each part
  // on each copy, and it ends or fails the run. So a deadline that passes here is renewed as often.
  WB_FN bool follow(const rows::batch& b, const request& r, bool waits, uint64_t slot, uint64_t base) const {
    const warp::mask_t all = warp::full();
    deadline left(t_.volume->control);
    uint32_t renewals = 2 * warp::width * t_.parts * t_.volume->device_count;
    for (;;) {
      uint64_t from = 0;
      const bool ready = waits && b.is_finished(slot, from);
      if (warp::any(all, ready)) {
        // The lane has acquired the row; the sync passes that on to all lanes.
        warp::sync(all);
        copy_together(all, ready, r.to, base + from * t_.row_bytes, t_.row_bytes);
        waits = waits && !ready;
      }
      if (!warp::any(all, waits)) return true;
      const wait_status v = left.expired(all);
      if (v == wait_status::go_on) continue;
      if (v == wait_status::timed_out && renewals != 0) {
        --renewals;
        left = deadline(t_.volume->control);
        continue;
      }
      if (waits) {
        const volume_ref::place at = volume_ref(t_.volume).locate(rows::part_of(t_, t_.volume->block_shift, r.row, 0).block);
        volume_ref(t_.volume).raise(status_word(v), nvme::op_read, at.lba, t_.part_blocks, at.device);
      }
      return false;
    }
  }

  // Copies rows of the lanes with `wants`, which are in the output, into frames of a cache. Returns their number in all lanes.
  WB_FN uint32_t admit(const rows::row_cache& cache, bool wants, const request& r, uint32_t changed, bool seen) const {
    const warp::mask_t all = warp::full();
    frame f{nullptr, 0, 0};
    if (wants) f = cache.claim(r.row, changed, seen);
    if (!warp::any(all, f.tag != nullptr)) return 0;
    // Whoever sees a byte of a row in its new frame sees that the frame was claimed.
    warp::sync(all);
    order::fence<order::release>();
    rows::cross();
    copy_together(all, f.tag != nullptr, f.address, r.to, t_.row_bytes);
    const bool entered = f.tag != nullptr && rows::row_cache::publish(f);
    return warp::count(warp::ballot(all, entered));
  }

  // Returns the address of a hot row, or 0.
  WB_FN uint64_t hot_address(uint64_t row) const { return rows::hot_address(t_, row); }
  WB_FN rows::row_cache near() const { return rows::row_cache(t_.cache[0], t_.row_bytes); }
  WB_FN rows::row_cache far() const { return rows::row_cache(t_.cache[1], t_.row_bytes); }

  // Adds the counters of a warp to those of the table.
  WB_FN void add(const counts& c) const {
    if (!warp::is_leader(warp::full())) return;
    wb_table_stats* s = t_.stats + (warp::processor() & (WB_STATS_STRIPES - 1));
    const auto count = [](uint64_t* to, uint32_t n) {
      if (n) order::add<order::relaxed>(to, uint64_t{n});
    };
    count(&s->rows, c.rows);
    count(&s->duplicates, c.duplicates);
    count(&s->hot_hits, c.hot_hits);
    count(&s->cache_hits, c.cache_hits);
    count(&s->host_hits, c.host_hits);
    count(&s->device_reads, c.device_reads);
    count(&s->admissions, c.admissions);
    count(&s->host_admissions, c.host_admissions);
    count(&s->retries, c.retries);
  }

  static constexpr uint64_t often_uses = 3 * rows::one_use;

  const wb_table_view& t_;
};

}  // namespace warpbell
