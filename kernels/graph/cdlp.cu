// Kernels of community detection by synchronous label propagation, as LDBC Graphalytics defines it: in each iteration a vertex takes
// the most frequent label among its neighbours, of several the smallest. Launch shape: any grid of blocks of up to 256 threads.
//
// Labels are counted in hash tables with linear probing. A vertex has twice as many slots as neighbours, at a place that follows
// from the offsets. Tables of many vertices lie side by side in the work space, so a hub's edges are counted by all warps.
#include <warpbell/kernel.h>

#include "work.cuh"

namespace warpbell {
namespace graph {

// A label and its count less one. All bits of an empty slot are set, so the first count makes them 0.
template <class Id> struct alignas(2 * sizeof(Id)) label_slot {
  Id label;
  Id count;
};

template <class Id> class label_counts {
 public:
  WB_FN explicit label_counts(const wb_cdlp& p)
      : out_(p.out_offset),
        in_(p.in_offset),
        table_(static_cast<label_slot<Id>*>(p.table)),
        best_(p.best),
        begin_(entries_before(p.first)),
        bits_(p.label_bits) {}

  // Counts a label of a neighbour of v. A warp's only lane counts equal labels that follow each other with one atomic; lanes that
  // happen to be converged do so with a label that several of them have.
  WB_FN void count(uint64_t v, Id label) {
    if constexpr (warp::width == 1) {
      if (v != vertex_ || label != label_) {
        flush();
        vertex_ = v;
        label_ = label;
      }
      ++pending_;
    } else {
      Id* at = slot_of(v, label);
      const warp::mask_t same = warp::match(warp::active(), reinterpret_cast<uint64_t>(at));
      if (warp::is_leader(same)) add(v, label, at, static_cast<Id>(warp::count(same)));
    }
  }

  // Adds what is not in the tables yet. Every lane calls this last.
  WB_FN void flush() {
    if (pending_ != 0) add(vertex_, label_, slot_of(vertex_, label_), pending_);
    pending_ = 0;
  }

 private:
  // Adds to the count `at` of a label of v. The least word of `best` is that of the highest count, and among these of the smallest
  // label. A label's last count is its highest.
  WB_FN void add(uint64_t v, Id label, Id* at, Id more) const {
    const uint64_t count = static_cast<Id>(order::fetch_add<order::relaxed>(at, more) + more + Id{1});
    const uint64_t word = ((~uint64_t{0} >> bits_) - count) << bits_ | label;
    if (word < order::load<order::relaxed>(&best_[v])) order::fetch_min<order::relaxed>(&best_[v], word);
  }

  WB_FN uint64_t entries_before(uint64_t v) const { return out_[v] + (in_ ? in_[v] : 0); }

  // Returns the count of a label in the table of v. The table is never full.
  WB_FN Id* slot_of(uint64_t v, Id label) const {
    constexpr Id empty = static_cast<Id>(~Id{0});
    const uint64_t first = entries_before(v);
    label_slot<Id>* table = table_ + 2 * (first - begin_);
    const uint64_t size = 2 * (entries_before(v + 1) - first);
    constexpr uint64_t golden = 0x9e3779b97f4a7c15ull;  // 2^64 over the golden ratio
    const uint64_t hash = label * golden >> 32;
    for (uint64_t i = size >> 32 ? hash % size : hash * size >> 32;; i = i + 1 == size ? 0 : i + 1) {
      Id found = order::load<order::relaxed>(&table[i].label);
      if (found == empty) {
        found = order::compare_exchange<order::relaxed>(&table[i].label, empty, label);
        if (found == empty) found = label;
      }
      if (found == label) return &table[i].count;
    }
  }

  const uint64_t* out_;
  const uint64_t* in_;
  label_slot<Id>* table_;
  uint64_t* best_;
  uint64_t begin_;
  uint32_t bits_;
  // Count that is not in the table yet.
  uint64_t vertex_ = 0;
  Id label_ = 0;
  Id pending_ = 0;
};

// Labels every vertex with itself.
template <class Id> WB_FN void cdlp_start(const wb_cdlp& p) {
  Id* label = static_cast<Id*>(p.label);
  const uint32_t* outside = p.outside;
  uint64_t* best = p.best;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    label[v] = static_cast<Id>(outside ? outside[v] : v);
    best[v] = ~uint64_t{0};
  }
}

// Counts the labels of the neighbours of a batch's vertices, in the lists of one direction. A self-loop is no neighbour.
template <class Id, class Source> WB_FN void cdlp_count(const wb_cdlp& p, const Source& source) {
  const uint64_t* offset = p.offset;
  const Id* label = static_cast<const Id*>(p.label);
  wb_graph_counters* sums = p.sums;
  label_counts<Id> counts(p);
  auto edges = source.open();
  run_reader<decltype(edges)> reader(edges);
  uint64_t scanned = 0, bad = 0;
  for_each_tile<true>(edges, static_cast<const Id*>(p.tile), p.edges_from, p.edges_to - p.edges_from, p.backward != 0,
                      [&](uint64_t from, uint64_t first, uint64_t last) {
                        for_each_list_of_tile(offset, from < p.first ? p.first : from, p.last, first, last, [&](uint64_t v, run r) {
                          scanned += r.count;
                          for_each_edge(edges, reader, r.first, r.count, static_cast<Id>(v), [&](Id u, Id n) {
                            if (n != u && is_valid_edge(edges, n, p.vertices, bad)) counts.count(u, label[n]);
                          });
                        });
                      });
  counts.flush();
  add_count(sums, WB_CDLP_SCANNED, scanned);
  add_count(sums, WB_GRAPH_BAD_EDGES, bad);
  publish(sums, p.report);
}

// Gives every vertex the label that was found for it. A vertex without neighbours keeps its own.
template <class Id> WB_FN void cdlp_apply(const wb_cdlp& p) {
  Id* label = static_cast<Id*>(p.label);
  uint64_t* best = p.best;
  wb_graph_counters* sums = p.sums;
  const uint64_t mask = (uint64_t{1} << p.label_bits) - 1;
  uint64_t changed = 0;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) {
    const uint64_t word = best[v];
    if (word == ~uint64_t{0}) continue;
    best[v] = ~uint64_t{0};
    const Id found = static_cast<Id>(word & mask);
    if (found == label[v]) continue;
    label[v] = found;
    ++changed;
  }
  add_count(sums, WB_CDLP_CHANGED, changed);
  publish(sums, p.report);
}

// Marks the labels that vertices have, in `best`.
template <class Id> WB_FN void cdlp_mark(const wb_cdlp& p) {
  const Id* label = static_cast<const Id*>(p.label);
  uint64_t* best = p.best;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) order::store<order::relaxed>(&best[label[v]], uint64_t{0});
}

// Counts the marks.
WB_FN void cdlp_labels(const wb_cdlp& p) {
  const uint64_t* best = p.best;
  wb_graph_counters* sums = p.sums;
  uint64_t labels = 0;
  const share s(p.vertices);
  for (uint64_t v = s.first; v < s.end; v += s.step) labels += best[v] == 0;
  add_count(sums, WB_CDLP_LABELS, labels);
  publish(sums, p.report);
}

}  // namespace graph
}  // namespace warpbell

#define WB_CDLP_MEMORY(ID, SUFFIX, WHAT)                                                                 \
  WB_GRAPH_KERNEL wb_cdlp_##WHAT##_##SUFFIX(WB_PARAM wb_cdlp p) { warpbell::graph::cdlp_##WHAT<ID>(p); } \
  WB_EXPORT(wb_cdlp_##WHAT##_##SUFFIX)

#define WB_CDLP_EDGES(ID, SUFFIX, SOURCE)                                                                                          \
  WB_GRAPH_KERNEL wb_cdlp_count_##SUFFIX(WB_PARAM wb_cdlp p, WB_PARAM SOURCE edges) { warpbell::graph::cdlp_count<ID>(p, edges); } \
  WB_EXPORT(wb_cdlp_count_##SUFFIX)

WB_CDLP_MEMORY(uint32_t, u32, start)
WB_CDLP_MEMORY(uint64_t, u64, start)
WB_CDLP_MEMORY(uint32_t, u32, apply)
WB_CDLP_MEMORY(uint64_t, u64, apply)
WB_CDLP_MEMORY(uint32_t, u32, mark)
WB_CDLP_MEMORY(uint64_t, u64, mark)
WB_CDLP_EDGES(uint32_t, pointer_u32, warpbell::graph::pointer_source<uint32_t>)
WB_CDLP_EDGES(uint64_t, pointer_u64, warpbell::graph::pointer_source<uint64_t>)
WB_CDLP_EDGES(uint32_t, storage_u32, warpbell::array_ref<uint32_t>)
WB_CDLP_EDGES(uint64_t, storage_u64, warpbell::array_ref<uint64_t>)
WB_GRAPH_KERNEL wb_cdlp_labels(WB_PARAM wb_cdlp p) { warpbell::graph::cdlp_labels(p); }
WB_EXPORT(wb_cdlp_labels)
WB_PACKED_KERNELS(wb_cdlp_count, wb_cdlp, warpbell::graph::cdlp_count<uint32_t>)
