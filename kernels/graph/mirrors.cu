// Exchanges between the PEs of a graph whose lists are distributed. Each PE has the lists of its own vertices, and a copy of the values of
// all vertices: those of other PEs' vertices are mirrors. A step of an algorithm computes values of own vertices, or trees over own lists.
// An exchange follows, which sends them to the other PEs and adds up the sums of the step. Launch shape: blocks of up to 256 threads, all
// resident, on all PEs at the same time.
//
// A PE sends to two areas in turn. It may send again while another PE still reads what it sent last, but not a third time: it has the
// second message of all PEs then.
#include <warpbell/kernel.h>

#include <string.h>

#include "exchange.cuh"
#include "forest.cuh"

namespace warpbell {
namespace graph {

// Adds the bits of doubles.
WB_FN uint64_t real_sum(uint64_t a, uint64_t b) {
  double x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  x += y;
  memcpy(&a, &x, sizeof a);
  return a;
}

class mirrors {
 public:
  WB_FN mirrors(const wb_mirrors& p, const world_ref& world)
      : p_(p),
        world_(world),
        area_(static_cast<uint32_t*>(p.area) + (p.turn & 1) * p.area_words),
        header_(static_cast<wb_mirrors_header*>(p.header) + (p.turn & 1) * world.n_pes()) {}

  WB_FN const uint32_t* area() const { return area_; }

  // Sends own values to their receivers, and this PE's message to all PEs. Waits for the messages of all.
  WB_FN void send() const {
    const uint32_t size = world_.n_pes();
    const uint32_t* values = p_.values;
    send_segments([&](uint32_t pe) {
      const bool receives = p_.receiver >= size || p_.receiver == pe;
      return segment{area_ + p_.own.first, values + p_.own.first, receives ? p_.own.words : 0};
    });
  }

  // Sends to each PE the values of that PE's vertices, which take `words` words each.
  WB_FN void send_to_owners(uint32_t words) const {
    const uint32_t* values = p_.values;
    const uint64_t* first = p_.first;
    send_segments([&](uint32_t pe) {
      const uint64_t count = (first[pe + 1] - first[pe]) * words;
      return segment{area_ + world_.my_pe() * count, values + first[pe] * words, count};
    });
  }

  template <class SegmentFor> WB_FN void send_segments(SegmentFor segment_for) const {
    wb_mirrors_counters* counters = p_.counters;
    uint64_t* signal = p_.signal;
    put_segments(world_, &counters->put, segment_for, [&]() {
      wb_mirrors_header mine = p_.own;
      if (world_.has_failed()) mine.failed = 1;
      if (mine.failed) mine.words = 0;
      tell_all(world_, header_, mine, signal, p_.turn);
    });
    await_all(world_, signal, p_.turn);
  }

  // Sends all values, and waits until all blocks have sent theirs: they change next.
  WB_FN void send_all() const {
    send();
    wb_mirrors_counters* counters = p_.counters;
    grid_barrier(&counters->arrived, world_).sync();
  }

  // Adds what other PEs have sent of the values of own vertices.
  template <class T> WB_FN void add_received() const {
    // A message that did not arrive may be one of two exchanges ago.
    if (world_.has_failed()) return;
    T* own = reinterpret_cast<T*>(static_cast<uint32_t*>(p_.values) + p_.own.first);
    const uint64_t count = p_.own.words * sizeof(uint32_t) / sizeof(T);
    for (uint64_t v = warp::thread_index(); v < count; v += warp::thread_total()) {
      T sum = own[v];
      for (uint32_t pe = 0; pe < world_.n_pes(); ++pe) {
        if (pe != world_.my_pe()) sum += order::load<order::relaxed, order::world>(reinterpret_cast<const T*>(area_) + pe * count + v);
      }
      own[v] = sum;
    }
  }

  // Copies the values of other PEs' vertices. A PE whose step has failed takes none.
  WB_FN void receive() const {
    uint32_t* values = p_.values;
    if (!values) return;
    // A message that did not arrive may be one of two exchanges ago, of values that took more words than these have.
    if (world_.has_failed()) return;
    for (uint32_t pe = 0; pe < world_.n_pes(); ++pe) {
      if (pe == world_.my_pe()) continue;
      const uint64_t first = order::load<order::relaxed, order::world>(&header_[pe].first);
      const uint64_t words = order::load<order::relaxed, order::world>(&header_[pe].words);
      // No PE sends such numbers.
      if (first > p_.area_words || words > p_.area_words - first) continue;
      for (uint64_t i = warp::thread_index(); i < words; i += warp::thread_total()) {
        values[first + i] = order::load<order::relaxed, order::world>(area_ + first + i);
      }
    }
  }

  // Ends an exchange: every thread calls this last. The last block adds up the messages of all PEs for the host, in the same order on
  // all PEs, and resets the counters.
  WB_FN void finish() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    wb_mirrors_counters* counters = p_.counters;
    if (order::fetch_add<order::acq_rel>(&counters->blocks_done, 1u) + 1 != gridDim.x) return;
    wb_graph_report all{};
    all.least = ~uint64_t{0};
    for (uint32_t pe = 0; pe < world_.n_pes(); ++pe) {
      const wb_mirrors_header* h = header_ + pe;
      if (order::load<order::relaxed, order::world>(&h->failed) && !all.failed) all.failed = pe + 1;
      const uint64_t least = order::load<order::relaxed, order::world>(&h->least);
      if (least < all.least) all.least = least;
      for (uint32_t i = 0; i < WB_GRAPH_SUMS; ++i) {
        const uint64_t sum = order::load<order::relaxed, order::world>(&h->sum[i]);
        all.sum[i] = p_.reals >> i & 1 ? real_sum(all.sum[i], sum) : all.sum[i] + sum;
      }
    }
    wb_graph_report* report = p_.report;
    for (uint32_t i = 0; i < WB_GRAPH_SUMS; ++i) order::store<order::relaxed, order::system>(&report->sum[i], all.sum[i]);
    order::store<order::relaxed, order::system>(&report->least, all.least);
    order::store<order::relaxed, order::system>(&report->failed, all.failed);
    order::store<order::relaxed>(&counters->arrived, uint64_t{0});
    order::store<order::relaxed>(&counters->blocks_done, 0u);
  }

 private:
  const wb_mirrors& p_;
  const world_ref& world_;
  uint32_t* area_;
  wb_mirrors_header* header_;
};

// Exchanges the values of own vertices.
WB_FN void mirrors_values(const wb_mirrors& p, const world_ref& world) {
  const mirrors m(p, world);
  m.send();
  m.receive();
  m.finish();
}

// Adds up what all PEs have of the values of each vertex, on the vertex's PE.
template <class T> WB_FN void mirrors_sums(const wb_mirrors& p, const world_ref& world) {
  const mirrors m(p, world);
  m.send_to_owners(sizeof(T) / sizeof(uint32_t));
  m.add_received<T>();
  m.finish();
}

// Passes all trees to one PE, and links the trees that another PE passed with those of this PE.
WB_FN void mirrors_trees(const wb_mirrors& p, const world_ref& world) {
  const mirrors m(p, world);
  m.send_all();
  uint32_t* label = p.values;
  const uint64_t vertices = p.own.words;
  for (uint64_t v = warp::thread_index(); v < vertices; v += warp::thread_total()) {
    const uint32_t up = order::load<order::relaxed, order::world>(m.area() + v);
    if (up < vertices) link(label, static_cast<uint32_t>(v), up);
  }
  m.finish();
}

// Passes all values to one PE, and keeps the least of those that another PE passed and of this PE's own.
template <class T> WB_FN void mirrors_least(const wb_mirrors& p, const world_ref& world) {
  const mirrors m(p, world);
  m.send_all();
  T* value = reinterpret_cast<T*>(static_cast<uint32_t*>(p.values));
  const T* other = reinterpret_cast<const T*>(m.area());
  const uint64_t vertices = p.own.words * sizeof(uint32_t) / sizeof(T);
  for (uint64_t v = warp::thread_index(); v < vertices; v += warp::thread_total()) {
    const T found = order::load<order::relaxed, order::world>(other + v);
    if (found < order::load<order::relaxed>(value + v)) order::store<order::relaxed>(value + v, found);
  }
  m.finish();
}

}  // namespace graph
}  // namespace warpbell

#define WB_MIRRORS(NAME, ...)                                                                    \
  WB_GRAPH_KERNEL wb_mirrors_##NAME(WB_PARAM wb_mirrors p, WB_PARAM warpbell::world_ref world) { \
    warpbell::graph::mirrors_##__VA_ARGS__(p, world);                                            \
  }                                                                                              \
  WB_EXPORT(wb_mirrors_##NAME)

WB_MIRRORS(values, values)
WB_MIRRORS(trees, trees)
WB_MIRRORS(least_u32, least<uint32_t>)
WB_MIRRORS(least_u64, least<uint64_t>)
WB_MIRRORS(sums_u64, sums<uint64_t>)
