// Transfers between objects of a volume and lists of segments of memory, without the host: pages of a KV cache, for example.
//
// The host has divided the objects into commands of consecutive blocks. Warps take one command after the other, and each keeps some in
// flight. Data passes through staging memory, so segments may be of any size, on any data path. The segments of one group (a layer of a
// model) are complete when the group's flag has the number of the transfer: other streams wait for that.
//
// A command that fails is an outcome of its object, and the others go on. Flags of all groups are set when the transfer has ended, also
// if it has failed or was stopped: nothing waits for ever.
#pragma once

#include <warpbell/volume.cuh>

namespace warpbell {
namespace segments {

// Checksum terms of an object (docs/kv-store.md): SplitMix64's output function of each 64-bit word plus its place times `step`.
constexpr uint64_t step = 0x9e3779b97f4a7c15ull;

WB_FN uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Copies `bytes`, a multiple of WB_SEGMENT_UNIT, and returns this lane's part of the sum of their terms; the first byte is that of word
// `word` of the object. Collective. Loads bypass the L1, because a device may have written the source.
WB_FN uint64_t copy(uint64_t to, uint64_t from, uint32_t bytes, uint64_t word) {
  uint64_t sum = 0;
#if WB_GPU
  constexpr uint32_t many = 8;  // loads of a lane in flight
  const uint32_t quads = bytes / sizeof(order::quad);
  for (uint32_t first = warp::lane(); first < quads; first += many * warp::width) {
    order::quad q[many];
#pragma unroll
    for (uint32_t j = 0; j < many; ++j) {
      const uint32_t at = first + j * warp::width;
      if (at < quads)
        q[j] = order::load_quad<order::relaxed, order::system>(reinterpret_cast<const void*>(from + uint64_t{at} * sizeof(order::quad)));
    }
#pragma unroll
    for (uint32_t j = 0; j < many; ++j) {
      const uint32_t at = first + j * warp::width;
      if (at < quads) {
        order::store_quad<order::relaxed, order::system>(reinterpret_cast<void*>(to + uint64_t{at} * sizeof(order::quad)), q[j]);
        const uint64_t place = (word + 2 * at + 1) * step;
        sum += mix((uint64_t{q[j].y} << 32 | q[j].x) + place) + mix((uint64_t{q[j].w} << 32 | q[j].z) + place + step);
      }
    }
  }
#else
  for (uint32_t i = warp::lane(); i < bytes / sizeof(uint64_t); i += warp::width) {
    const uint64_t v = order::load<order::relaxed>(reinterpret_cast<const uint64_t*>(from) + i);
    order::store<order::relaxed>(reinterpret_cast<uint64_t*>(to) + i, v);
    sum += mix(v + (word + i + 1) * step);
  }
#endif
  return sum;
}

/// @brief One warp's part of a transfer: of objects to segments, or with `Writes` of segments to objects. All warps of the grid do theirs.
template <bool Writes> class transfer {
 public:
  /// @brief Refers to the transfer's description, a kernel's parameter.
  WB_FN explicit transfer(const wb_segment_job& job) : job_(job), volume_(job.volume) {}

  /// @brief Takes commands until none is left, and ends the transfer if it is the last warp. Collective: a whole warp.
  WB_FN void run() {
    const uint32_t lane = warp::lane(), depth = job_.in_flight;
    const uint64_t staging = job_.staging + (uint64_t{warp::index()} * depth + lane) * job_.staging_bytes;
    // Commands of a warp are in the lanes in their order, and each is waited for in its turn.
    wb_segment_command mine{};
    token t;
    bool is_over = warp::shuffle(all_, order::load<order::relaxed>(&job_.progress->spoiled), 0) != 0;
    if (!Writes && !is_over) {
      mine = at(take(depth), lane < depth ? lane : job_.commands);
      t = volume_.read_async(all_, mine.block, blocks(mine), reinterpret_cast<void*>(staging));
    }
    uint32_t empty = 0;
    for (uint32_t turn = 0; empty < depth; turn = turn + 1 == depth ? 0 : turn + 1) {
      const bool is_turn = lane == turn;
      wb_segment_command c = shuffled(mine, turn);
      const uint64_t here = warp::shuffle(all_, staging, turn);
      if (c.bytes != 0) {
        const status s = shuffled(volume_.wait(all_, is_turn ? t : token{}), turn);
        is_over = is_over || s.kind() == WB_STOPPED || spoils(s);
        uint64_t sum = 0;
        if constexpr (Writes) sum = is_turn ? sum_ : 0;
        else if (s) sum = move(c, here);
        complete(c, s, warp::sum(all_, sum));
      }
      c = is_over ? wb_segment_command{} : at(take(1), 0);
      empty = c.bytes == 0 ? empty + 1 : 0;
      if (is_turn) mine = c;
      const uint32_t n = is_turn ? blocks(c) : 0;
      void* const buffer = reinterpret_cast<void*>(staging);
      token next;
      if constexpr (Writes) {
        const uint64_t sum = warp::sum(all_, c.bytes == 0 ? 0 : gather(c, here));
        if (is_turn) sum_ = sum;
        next = volume_.write_async_announced(all_, c.block, n, buffer, job_.self_checked != 0);
      } else {
        next = volume_.read_async(all_, c.block, n, buffer);
      }
      if (is_turn) t = next;
    }
    end();
  }

 private:
  // Returns true if the command was given up: its device may still execute it.
  WB_FN static bool is_given_up(const status& s) { return s.kind() == WB_TIMED_OUT || s.kind() == WB_STOPPED; }

  // Returns true if a device may still access the staging memory of this command.
  WB_FN bool spoils(const status& s) const { return is_given_up(s) && volume_.raw()->registered_region_count != 0; }

  // Takes the next `n` commands, and returns the number of the first one. Collective.
  WB_FN uint32_t take(uint32_t n) const {
    uint32_t first = 0;
    if (warp::is_leader(all_)) first = order::fetch_add<order::relaxed>(&job_.progress->next, n);
    return warp::shuffle(all_, first, warp::leader(all_));
  }

  // Returns the command that is `more` behind one, or one of 0 bytes if there is none.
  WB_FN wb_segment_command at(uint32_t first, uint32_t more) const {
    return first < job_.commands && more < job_.commands - first ? job_.command[first + more] : wb_segment_command{};
  }

  WB_FN wb_segment_command shuffled(const wb_segment_command& c, uint32_t from) const {
    wb_segment_command s = c;
    s.block = warp::shuffle(all_, c.block, from);
    s.offset = warp::shuffle(all_, c.offset, from);
    s.shift = warp::shuffle(all_, c.shift, from);
    s.bytes = warp::shuffle(all_, c.bytes, from);
    s.segment = warp::shuffle(all_, c.segment, from);
    s.skip = warp::shuffle(all_, c.skip, from);
    s.object = warp::shuffle(all_, c.object, from);
    return s;
  }

  WB_FN status shuffled(const status& s, uint32_t from) const {
    return status{warp::shuffle(all_, s.word, from), warp::shuffle(all_, s.opcode_blocks, from), warp::shuffle(all_, s.origin, from),
                  warp::shuffle(all_, s.lba, from)};
  }

  WB_FN uint32_t blocks(const wb_segment_command& c) const { return (c.bytes + volume_.block_bytes() - 1) >> volume_.block_shift(); }

  // Moves the bytes of a command between staging memory and segments. Returns this lane's part of the sum of their terms. Collective.
  WB_FN uint64_t move(const wb_segment_command& c, uint64_t staging) const {
    uint64_t sum = 0;
    uint32_t done = 0, skip = c.skip, group = 0, counted = 0;
    for (uint32_t first = c.segment; done < c.bytes; first += warp::width) {
      wb_segment mine{};
      if (first + warp::lane() < job_.segments) mine = job_.segment[first + warp::lane()];
      for (uint32_t i = 0; i < warp::width && done < c.bytes; ++i) {
        const uint64_t address = warp::shuffle(all_, mine.address, i) + c.shift + skip;
        const uint32_t left = warp::shuffle(all_, mine.bytes, i) - skip, its_group = warp::shuffle(all_, mine.group, i);
        const uint32_t bytes = left < c.bytes - done ? left : c.bytes - done;
        if (its_group != group) {
          count(group, counted);
          group = its_group;
          counted = 0;
        }
        const uint64_t inner = staging + done;
        sum += copy(Writes ? inner : address, Writes ? address : inner, bytes, (c.offset + done) / sizeof(uint64_t));
        done += bytes;
        counted += bytes;
        skip = 0;
      }
    }
    count(group, counted);
    return sum;
  }

  // As `move` for a write: fills the last block with zeros, and orders the lanes' stores before the command. Collective.
  WB_FN uint64_t gather(const wb_segment_command& c, uint64_t staging) const {
    const uint64_t sum = move(c, staging);
    const uint32_t whole = blocks(c) << volume_.block_shift();
    for (uint32_t at = c.bytes / sizeof(uint64_t) + warp::lane(); at < whole / sizeof(uint64_t); at += warp::width) {
      order::store<order::relaxed>(reinterpret_cast<uint64_t*>(staging) + at, uint64_t{0});
    }
    warp::sync(all_);
    return sum;
  }

  // Counts bytes that were moved for a group, and sets its flag with the last ones. Collective.
  WB_FN void count(uint32_t group, uint32_t bytes) const {
    if (bytes == 0) return;
    warp::sync(all_);
    if (!warp::is_leader(all_)) return;
    order::fence<order::release, order::system>();
    const uint64_t before = order::fetch_add<order::acq_rel>(job_.group_done + group, uint64_t{bytes});
    if (before + bytes == job_.group_bytes[group]) order::store<order::release, order::system>(job_.group_flag + group, job_.number);
  }

  // Adds the outcome of a command to its object's. Collective.
  WB_FN void complete(const wb_segment_command& c, const status& s, uint64_t sum) const {
    if (!warp::is_leader(all_)) return;
    wb_segment_object* const object = job_.object + c.object;
    if (s) {
      order::add<order::relaxed>(&object->bytes, uint64_t{c.bytes});
      order::add<order::relaxed>(&object->terms, sum);
      return;
    }
    if (is_given_up(s)) order::add<order::relaxed>(&object->given_up, 1u);
    if (spoils(s)) order::store<order::relaxed>(&job_.progress->spoiled, 1u);
    if (order::compare_exchange<order::relaxed>(&object->word, uint32_t{WB_DONE}, s.word) == WB_DONE) {
      order::store<order::relaxed>(&object->lba, s.lba);
      order::store<order::relaxed>(&object->origin, s.origin);
      order::store<order::relaxed>(&object->opcode_blocks, s.opcode_blocks);
    }
  }

  // Counts the warp as ended. The last one hands out the outcomes, sets all flags, and clears the counters. Collective.
  WB_FN void end() const {
    warp::sync(all_);
    uint32_t before = 0;
    if (warp::is_leader(all_)) before = order::fetch_add<order::acq_rel>(&job_.progress->ended, 1u);
    if (warp::shuffle(all_, before, warp::leader(all_)) + 1 != warp::total()) return;
    // The leader has acquired what all warps counted.
    warp::sync(all_);
    for (uint32_t i = warp::lane(); i < job_.objects; i += warp::width) {
      wb_segment_object* const from = job_.object + i;
      wb_segment_object* const to = job_.outcome + i;
      hand_out(&to->bytes, &from->bytes);
      hand_out(&to->terms, &from->terms);
      hand_out(&to->lba, &from->lba);
      hand_out(&to->origin, &from->origin);
      hand_out(&to->word, &from->word);
      hand_out(&to->opcode_blocks, &from->opcode_blocks);
      hand_out(&to->given_up, &from->given_up);
    }
    for (uint32_t i = warp::lane(); i < job_.groups; i += warp::width) {
      order::store<order::relaxed>(job_.group_done + i, uint64_t{0});
      order::store<order::release, order::system>(job_.group_flag + i, job_.number);
    }
    warp::sync(all_);
    if (!warp::is_leader(all_)) return;
    order::store<order::relaxed, order::system>(job_.ended + 1, uint64_t{order::load<order::relaxed>(&job_.progress->spoiled)});
    order::store<order::relaxed>(&job_.progress->next, 0u);
    order::store<order::relaxed>(&job_.progress->ended, 0u);
    order::fence<order::release, order::system>();
    order::store<order::release, order::system>(job_.ended, job_.number);
  }

  template <class T> WB_FN static void hand_out(T* to, T* from) {
    order::store<order::relaxed, order::system>(to, order::load<order::relaxed>(from));
    order::store<order::relaxed>(from, T{0});
  }

  const wb_segment_job& job_;
  const volume_ref volume_;
  const warp::mask_t all_ = warp::full();
  // Of a write in flight, in the lane that has its command.
  uint64_t sum_ = 0;
};

}  // namespace segments
}  // namespace warpbell
