// Teams: some of a world's PEs, numbered anew, and what they do together (OpenSHMEM 1.5, 9.4 and 9.11).
//
//   WB_KERNEL void step(WB_PARAM warpbell::team_ref team, sym<double> sum, sym<double> mine)
//   { team.reduce(warpbell::by_block, warpbell::reduction::sum, sum, mine, 1); }
//
// A collective is called by every member, with the same arguments, in the same order in each channel. What is under way in one
// channel does not disturb another: blocks of a kernel that each use a channel of their own do their collectives at the same time.
// They must run at the same time on every PE, too: a block that waits needs its fellows on the other PEs to come. Channel 0 is the
// default.
//
// On return the calling threads see what the call brought. A member that does not come within the deadline is named in the run's
// error log, and the run fails; then the outcome is false for every thread of the scope.
//
// This file has who and where, sync and barrier; collective.cuh broadcast, fcollect and alltoall, reduce.cuh reduce. Each call asks once
// whether stores reach every member. If so, it is written out where it is made; if not, functions that are called do what it has to do
// with others (network_team).
#pragma once

#include <warpbell/shmem/transfer.cuh>
#include <warpbell/shmem/world.cuh>

namespace warpbell {

// What collectives need of a world that has a network. Its waits are for memory, and end with the world's connections: `control` is that
// of the world, and not that of the adapter's requests.
class network_world {
 public:
  WB_FN network_world(const wb_network* net, const wb_control* control) : net_(net), control_(control) {}
  WB_FN const wb_network* net() const { return net_; }
  WB_FN const wb_control* control() const { return control_; }
  WB_FN bool is_near(uint32_t pe) const { return network::is_near(net_, pe); }
  template <class T> WB_FN T* there(T* here, uint32_t pe) const {
    return reinterpret_cast<T*>(reinterpret_cast<uint64_t>(here) +
                                (uint64_t{pe} - net_->pe) * net_->stride);
  }
  template <class T>
  WB_FN outcome fail(wb_shmem_call call, uint32_t word, const T* at, size_t bytes, uint32_t pe, uint32_t channel) const {
    return outcome{detail::raise_call_error(control(), word, static_cast<uint32_t>(call), pe, net_->pe,
                                            reinterpret_cast<uint64_t>(at) - net_->local, bytes, channel)};
  }

 private:
  const wb_network* net_;
  const wb_control* control_;
};

// The calls of a team. `Self` says which team: it has `world()` and `team()`, which answer references, so that the structures stay
// where they are (a kernel's parameters) and are not copied.
template <class Self> class team_calls {
 public:
  // --- who and where -------------------------------------------------------------------------------------------------

  WB_FN uint32_t my_pe() const { return team().pe; }
  WB_FN uint32_t n_pes() const { return team().size; }
  // A member's number in the world.
  WB_FN uint32_t world_pe(uint32_t member) const { return team().start + member * team().stride; }
  // A member's number in another team of the world; WB_NO_PE if it is not in it.
  template <class Other> WB_FN uint32_t translate_pe(uint32_t member, const Other& other) const {
    if (member >= n_pes()) return WB_NO_PE;
    const wb_team& t = other.raw();
    const uint32_t from = world_pe(member) - t.start;  // far beyond every team when it is before the first member
    return from % t.stride == 0 && from / t.stride < t.size ? from / t.stride : WB_NO_PE;
  }
  WB_FN const wb_team& raw() const { return team(); }

  // --- meeting -------------------------------------------------------------------------------------------------------

  // Returns when every member has called it. What members wrote to their own memory before is then there for the others to get.
  template <class S> WB_FN outcome sync(S s, uint32_t channel = 0) const;
  // And all that the members' calling threads put before has arrived.
  template <class S> WB_FN outcome barrier(S s, uint32_t channel = 0) const;

  // --- data: see collective.cuh and reduce.cuh -----------------------------------------------------------------------

  template <class S, class To, class From>
  WB_FN outcome broadcast(S s, To dest, From source, size_t n, uint32_t root, uint32_t channel = 0) const;
  template <class S, class To, class From>
  WB_FN outcome fcollect(S s, To dest, From source, size_t n, uint32_t channel = 0) const;
  template <class S, class To, class From>
  WB_FN outcome alltoall(S s, To dest, From source, size_t n, uint32_t channel = 0) const;
  template <class S, class To, class From>
  WB_FN outcome exchange(S s, wb_shmem_call call, To dest, size_t dest_pitch, From source, size_t source_pitch, size_t n,
                         uint32_t channel = 0) const;
  template <class S, class Op, class To, class From>
  WB_FN outcome reduce(S s, Op op, To dest, From source, size_t n, uint32_t channel = 0) const;

 protected:
  WB_FN const auto& world() const { return static_cast<const Self*>(this)->world(); }
  WB_FN const wb_team& team() const { return static_cast<const Self*>(this)->team(); }

  WB_FN wb_team_rounds* rounds(uint32_t channel) const {
    return team().rounds + channel;
  }
  // The member `k` places after this one, and before it; 0 < k < size.
  WB_FN uint32_t after(uint32_t k) const {
    const uint32_t m = team().pe + k;
    return m < team().size ? m : m - team().size;
  }
  WB_FN uint32_t before(uint32_t k) const { return after(team().size - k); }
  template <class T> static WB_FN uint64_t address(T* p) { return reinterpret_cast<uint64_t>(p); }
  // The same object in the heap of a member.
  template <class T> WB_FN T* at(T* here, uint32_t member) const { return world().there(here, world_pe(member)); }

  WB_FN network_world over_network() const { return network_world(world().net(), world().control()); }
  // Whether stores reach every member.
  WB_FN bool all_by_stores() const {
    if constexpr (Self::has_network) return false;
    else return (world().raw().flags & WB_WORLD_LOAD_STORE) != 0;
  }

  // Calls a function of network teams: through its address, and plainly where one of them calls another (call.cuh).
  template <auto f, class... A> WB_FN static uint32_t in_network(A... a) {
    if constexpr (Self::has_network) return f(a...);
    else return call_cold<f>(a...);
  }

  // Whether a call may begin. Of the threads that make it, the first enters the error.
  template <class S, class T>
  WB_FN bool begins(S s, wb_shmem_call call, const T* address, size_t bytes, uint32_t channel, uint32_t other = 0) const {
    const bool listed = channel < WB_CHANNELS && other < team().size, connected = all_by_stores() || world().raw().network != 0;
    if (listed && connected && world().in_heap(address, bytes, 1)) return true;
    const uint32_t word = status_word(connected ? WB_BAD_ARGUMENT : WB_UNREACHABLE);
    if (s.rank() == 0) world().fail(call, word, address, bytes, listed ? world().my_pe() : other, channel);
    return false;
  }

  // Counts up a word in a member's heap. What this thread put there before in the channel comes before it, by either way, if a fence
  // did.
  WB_FN uint32_t tell(wb_shmem_call call, uint64_t* word, uint64_t turn, uint32_t member, uint32_t channel) const {
    if constexpr (Self::has_network) {
      if (!world().is_near(world_pe(member))) {
        return network::put_value(world().net(), call, address(word), turn, 0, sizeof(turn), world_pe(member), channel);
      }
    }
    order::store<order::relaxed, order::world>(at(word, member), turn);
    return WB_DONE;
  }
  // A line of the scratch (line.cuh).
  WB_FN uint32_t send_line(wb_shmem_call call, order::detail::pair* to, const order::detail::pair& l, uint32_t member,
                           uint32_t channel) const {
    if constexpr (Self::has_network) {
      if (!world().is_near(world_pe(member))) {
        return network::put_value(world().net(), call, address(to), l.low, l.high, sizeof(l), world_pe(member), channel);
      }
    }
    order::store<order::relaxed, order::world>(at(to, member), l);
    return WB_DONE;
  }
  // Bytes to a member's heap. The threads of the scope share them.
  template <class S>
  WB_FN uint32_t send(S s, wb_shmem_call call, uint64_t to, uint64_t from, size_t bytes, uint32_t member, uint32_t channel) const {
    if constexpr (Self::has_network) {
      if (!world().is_near(world_pe(member))) {
        return network::put(world().net(), call, to, from, bytes, world_pe(member), channel, s.rank(), s.count(), false);
      }
    }
    copy(s, address(at(reinterpret_cast<uint8_t*>(to), member)), from, bytes);
    return WB_DONE;
  }
  // Bytes to where stores reach.
  template <class S> static WB_FN void copy(S s, uint64_t to, uint64_t from, size_t bytes) {
    if constexpr (Self::has_network) {
      transfer::odd<transfer::put_words>(to, from, bytes, s.rank(), s.count());
    } else {
      transfer::move<transfer::put_words>(s, to, from, bytes, to | from);
    }
  }
  // What was sent in the channel need not stay any longer, and what was asked for is there, once all threads of the scope have
  // returned and met.
  template <class S> WB_FN uint32_t finish(S s, wb_shmem_call call, uint32_t channel) const {
    if constexpr (Self::has_network) return network::quiet(world().net(), call, channel, s.rank(), s.count());
    return WB_DONE;
  }

  // Waits for a word of this PE's heap that a member counts up.
  WB_FN uint32_t await(wb_shmem_call call, const uint64_t* word, uint64_t turn, uint32_t member, uint32_t channel) const {
    deadline p(world().control());
    while (order::load<order::relaxed, order::world>(word) < turn) {
      if (wait_status v = p.expired(); v != wait_status::go_on) {
        return world().fail(call, status_word(v), word, 0, world_pe(member), channel).word;
      }
    }
    return WB_DONE;
  }

  // How the call ended, the same for all threads of the scope in that it ended well or not. A sync.
  template <class S> static WB_FN outcome together(S s, uint32_t word) {
    const bool failed = s.any(word != WB_DONE);
    return outcome{failed && word == WB_DONE ? status_word(WB_STOPPED) : word};
  }

  template <class S> WB_FN outcome meet(S s, wb_shmem_call call, uint32_t channel) const;

  // The calls once it is known by which ways members are reached.
  template <class S> WB_FN outcome meet_now(S s, wb_shmem_call call, uint32_t channel) const;
  template <class S>
  WB_FN outcome broadcast_now(S s, uint64_t dest, uint64_t source, size_t bytes, uint32_t root, uint32_t channel) const;
  template <class S, class T>
  WB_FN outcome exchange_now(S s, wb_shmem_call call, T* dest, size_t dest_pitch, const T* source, size_t source_pitch, size_t n,
                             uint32_t channel) const;
  template <class S, class T>
  WB_FN outcome exchange_small(S s, wb_shmem_call call, T* dest, size_t dest_pitch, const T* source, size_t source_pitch, size_t n,
                               uint32_t channel) const;
  template <class S, class Op, class T>
  WB_FN outcome reduce_small(S s, Op op, T* dest, const T* source, size_t n, uint32_t channel) const;
  template <class S, class Op, class T>
  WB_FN outcome reduce_large(S s, Op op, T* dest, const T* source, size_t n, uint32_t channel) const;
  template <class S, class Op, class T>
  WB_FN outcome reduce_by_network(S s, Op op, T* dest, const T* source, size_t n, uint32_t channel) const;
  template <class Word, class S, class Op, class T>
  WB_FN void reduce_words(S s, Op op, T* dest, const T* source, size_t first, size_t last) const;
  template <class S> WB_FN outcome clear_scratch(S s, wb_shmem_call call, uint32_t channel) const;
  WB_FN order::detail::pair* scratch(uint32_t channel, uint64_t turn, uint32_t sender) const;
  WB_FN bool fits_scratch(size_t bytes) const { return bytes <= team().scratch_bytes / 2; }
};

// A team not all of whose members are within reach of stores, and the functions that its calls are. They are called, and not inlined,
// and take addresses and numbers instead of types and scopes: there is one of each in a program's way, whatever its kernels do. All
// threads of the scope call them; `scope` is its number. They answer a word of status.h.
class network_team : public team_calls<network_team> {
 public:
  static constexpr bool has_network = true;

  WB_FN network_team(const network_world& world, const wb_team& team) : w_(world), t_(team) {}
  WB_FN const network_world& world() const { return w_; }
  WB_FN const wb_team& team() const { return t_; }

  static WB_FN_COLD uint32_t meet_all(network_world world, wb_team team, uint32_t scope, wb_shmem_call call, uint32_t channel);
  static WB_FN_COLD uint32_t broadcast_bytes(network_world world, wb_team team, uint32_t scope, uint64_t dest, uint64_t source,
                                             uint64_t bytes, uint32_t root, uint32_t channel);
  // Pitches in bytes.
  static WB_FN_COLD uint32_t exchange_bytes(network_world world, wb_team team, uint32_t scope, wb_shmem_call call, uint64_t dest,
                                            uint64_t dest_pitch, uint64_t source, uint64_t source_pitch, uint64_t bytes,
                                            uint32_t channel);

  // The steps of a reduction (reduce.cuh).
  static WB_FN_COLD uint32_t collect(network_world world, wb_team team, uint32_t scope, uint64_t source, uint64_t bytes,
                                     uint32_t channel);
  static WB_FN_COLD uint32_t distribute(network_world world, wb_team team, uint32_t scope, uint64_t from, uint64_t bytes,
                                        uint32_t channel);
  static WB_FN_COLD uint32_t leave(network_world world, wb_team team, uint32_t scope, uint32_t channel);

 private:
  network_world w_;
  wb_team t_;
};

// A team as a kernel's parameter: `&Team` of the host.
class team_ref : public team_calls<team_ref> {
 public:
  static constexpr bool has_network = false;

  WB_FN team_ref(const wb_world& world, const wb_team& team) : w_(world), t_(team) {}
  WB_FN const world_ref& world() const { return w_; }
  WB_FN const wb_team& team() const { return t_; }

 private:
  world_ref w_;
  wb_team t_;
};
static_assert(sizeof(team_ref) == sizeof(wb_team_view) && std::is_trivially_copyable_v<team_ref>, "a kernel's parameter");

// The team of all PEs of a world, which must outlive it.
class world_team_ref : public team_calls<world_team_ref> {
 public:
  static constexpr bool has_network = false;

  WB_FN explicit world_team_ref(const world_ref& world) : w_(&world) {}
  WB_FN const world_ref& world() const { return *w_; }
  WB_FN const wb_team& team() const { return w_->raw().team; }

 private:
  const world_ref* w_;
};

WB_FN world_team_ref world_ref::world_team() const { return world_team_ref(*this); }
template <class S> WB_FN outcome world_ref::barrier_all(S s) const { return world_team().barrier(s); }
template <class S> WB_FN outcome world_ref::sync_all(S s) const { return world_team().sync(s); }

// In each round a member tells up to 31 others, 1, 2, ... or 32, 64, ... places after it, and waits for as many before it; after
// the rounds it has heard of all, directly or not. With up to 32 members one round is enough. The words count, so that none has to
// be cleared. Each thread of the scope tells and waits for its share, after one fence, which also covers what the other threads
// did before the scope's sync.
template <class Self> template <class S> WB_FN outcome team_calls<Self>::meet_now(S s, wb_shmem_call call, uint32_t channel) const {
  const uint32_t size = team().size;
  wb_team_rounds* mine = rounds(channel);
  uint64_t* words = team().sync + uint64_t{channel} * WB_SYNC_ROUNDS * WB_SYNC_SLOTS;
  const uint64_t turn = order::load<order::relaxed>(&mine->sync) + 1;
  s.sync();  // everybody's work is done, and everybody knows the turn
  uint32_t word = WB_DONE;
  for (uint32_t step = 1; step < size; step *= WB_SYNC_SLOTS, words += WB_SYNC_SLOTS) {
    if (step > 1) s.sync();
    const uint32_t all = (size + step - 1) / step, end = all < WB_SYNC_SLOTS ? all : WB_SYNC_SLOTS;
    if (1 + s.rank() >= end) continue;
    order::fence<order::release, order::system>();
    for (uint32_t k = 1 + s.rank(); k < end && word == WB_DONE; k += s.count()) {
      word = tell(call, words + k, turn, after(k * step), channel);
    }
    for (uint32_t k = 1 + s.rank(); k < end && word == WB_DONE; k += s.count()) {
      word = await(call, words + k, turn, before(k * step), channel);
    }
    order::fence<order::acquire, order::system>();
  }
  if (s.rank() == 0) order::store<order::relaxed>(&mine->sync, turn);
  return together(s, word);
}

WB_FN_COLD uint32_t network_team::meet_all(network_world world, wb_team team, uint32_t scope, wb_shmem_call call, uint32_t channel) {
  return network_team(world, team).meet_now(scope::numbered{scope}, call, channel).word;
}

template <class Self> template <class S> WB_FN outcome team_calls<Self>::meet(S s, wb_shmem_call call, uint32_t channel) const {
  if (all_by_stores()) return meet_now(s, call, channel);
  return outcome{in_network<&network_team::meet_all>(over_network(), team(), s.number, call, channel)};
}

template <class Self> template <class S> WB_FN outcome team_calls<Self>::sync(S s, uint32_t channel) const {
  const uint64_t* words = team().sync;
  if (!begins(s, WB_CALL_BARRIER, words, 0, channel)) return outcome{status_word(WB_BAD_ARGUMENT)};
  return meet(s, WB_CALL_BARRIER, channel);
}

// Where stores reach every PE, the fence of the synchronisation completes the puts of all threads of the scope; elsewhere they are
// waited for.
template <class Self> template <class S> WB_FN outcome team_calls<Self>::barrier(S s, uint32_t channel) const {
  const outcome completed = all_by_stores() ? outcome{} : world().quiet_all(s);
  const outcome met = sync(s, channel);
  return met ? completed : met;
}

}  // namespace warpbell
