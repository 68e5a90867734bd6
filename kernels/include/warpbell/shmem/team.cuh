// Teams: some of a world's PEs, numbered from 0, and their collectives (OpenSHMEM 1.5, 9.4 and 9.9).
//
//   WB_KERNEL void step(WB_PARAM warpbell::team_ref team, sym<double> sum, sym<double> mine)
//   { team.reduce(warpbell::by_block, warpbell::reduction::sum, sum, mine, 1); }
//
// Every member calls a collective, with the same arguments, in the same order in each channel. Channels are independent: blocks of
// a kernel that each use a channel of their own do their collectives at the same time. These blocks must run at the same time on
// every PE, too: a block that waits needs the corresponding blocks on the other PEs. Channel 0 is the default.
//
// On return the calling threads see the results of the call. The run's error log names a member that does not come within the
// deadline, and the run fails. Then the outcome is false for every thread of the scope.
//
// This file has members, sync and barrier; collective.cuh has broadcast, fcollect and alltoall, reduce.cuh has reduce. Each call
// tests once whether stores reach every member. If so, the call is inlined. If not, functions that are called do its communication
// (network_team).
#pragma once

#include <warpbell/peer_copy.cuh>
#include <warpbell/shmem/world.cuh>

namespace warpbell {

// The parts of a world with a network that collectives need. Its waits are for memory, and end with the world's connections:
// `control` is that of the world, and not that of the adapter's requests.
class network_world {
 public:
  WB_FN network_world(const wb_network* net, const wb_control* control) : net_(net), control_(control) {}
  WB_FN const wb_network* net() const { return net_; }
  WB_FN const wb_control* control() const { return control_; }
  WB_FN bool is_near(uint32_t pe) const { return network::is_near(net_, pe); }
  template <class T> WB_FN T* there(T* here, uint32_t pe) const {
    return reinterpret_cast<T*>(reinterpret_cast<uint64_t>(here) + (uint64_t{pe} - net_->pe) * net_->stride);
  }
  template <class T> WB_FN outcome fail(wb_shmem_call call, uint32_t word, const T* at, size_t bytes, uint32_t pe, uint32_t channel) const {
    return outcome{detail::raise_call_error(control(), word, static_cast<uint32_t>(call), pe, net_->pe,
                                            reinterpret_cast<uint64_t>(at) - net_->local, bytes, channel)};
  }

 private:
  const wb_network* net_;
  const wb_control* control_;
};

/// @brief Calls of a team.
///
/// `to`, `dest` and `source` are `sym<T>` or `T*`. Scope `s` is by_thread, by_warp or by_block.
/// @tparam Self The team. It has `world()` and `team()`, which return references, so that the structures stay where they are (a
/// kernel's parameters) and are not copied.
template <class Self> class team_calls {
 public:
  // --- who and where -------------------------------------------------------------------------------------------------

  /// @brief Returns this PE's number in the team, from 0.
  WB_FN uint32_t my_pe() const { return team().pe; }
  /// @brief Returns the number of members.
  WB_FN uint32_t n_pes() const { return team().size; }
  /// @brief Returns a member's number in the world.
  WB_FN uint32_t world_pe(uint32_t member) const { return team().start + member * team().stride; }
  /// @brief Returns a member's number in another team of the world, or WB_NO_PE if it is not a member there.
  template <class Other> WB_FN uint32_t translate_pe(uint32_t member, const Other& other) const {
    if (member >= n_pes()) return WB_NO_PE;
    const wb_team& t = other.raw();
    const uint32_t from = world_pe(member) - t.start;  // far beyond every team if it is before the first member
    return from % t.stride == 0 && from / t.stride < t.size ? from / t.stride : WB_NO_PE;
  }
  /// @brief Returns the description that the host wrote.
  WB_FN const wb_team& raw() const { return team(); }

  // --- barriers ------------------------------------------------------------------------------------------------------

  /// @brief Waits until every member has called this. All threads of scope `s` on every member call this.
  ///
  /// Members' earlier stores to their own memory are then visible to gets of the others.
  /// @param channel Channel, 0 to WB_CHANNELS - 1.
  /// @return The outcome, equal in all threads of the scope in whether it is WB_DONE.
  /// @note A release before and an acquire after, on scope system, for all threads of the scope.
  template <class S> WB_FN outcome sync(S s, uint32_t channel = 0) const;
  /// @brief Completes the puts of the members' calling threads, and waits until every member has called this. Otherwise as sync.
  template <class S> WB_FN outcome barrier(S s, uint32_t channel = 0) const;

  // --- data: see collective.cuh and reduce.cuh -----------------------------------------------------------------------

  /// @brief Copies `n` elements of member `root` to all members. All threads of scope `s` on every member call this. See
  /// collective.cuh.
  ///
  /// @return The outcome, equal in all threads of the scope in whether it is WB_DONE.
  template <class S, class To, class From>
  WB_FN outcome broadcast(S s, To dest, From source, size_t n, uint32_t root, uint32_t channel = 0) const;
  /// @brief Gathers `n` elements of every member on all members. All threads of scope `s` on every member call this. See
  /// collective.cuh.
  template <class S, class To, class From> WB_FN outcome fcollect(S s, To dest, From source, size_t n, uint32_t channel = 0) const;
  /// @brief Exchanges `n` elements between each pair of members. All threads of scope `s` on every member call this. See
  /// collective.cuh.
  template <class S, class To, class From> WB_FN outcome alltoall(S s, To dest, From source, size_t n, uint32_t channel = 0) const;
  /// @brief Executes an fcollect or alltoall with pitches, so that blocks can share a large one. All threads of scope `s` on every
  /// member call this.
  ///
  /// dest[m * dest_pitch + i] = source[me * source_pitch + i] of member m, pitches in elements.
  template <class S, class To, class From> WB_FN outcome exchange(S s, wb_shmem_call call, To dest, size_t dest_pitch, From source,
                                                                  size_t source_pitch, size_t n, uint32_t channel = 0) const;
  /// @brief Combines `n` elements of all members on every member. All threads of scope `s` on every member call this. See
  /// reduce.cuh.
  ///
  /// @param op An operation of namespace reduction.
  template <class S, class Op, class To, class From>
  WB_FN outcome reduce(S s, Op op, To dest, From source, size_t n, uint32_t channel = 0) const;

 protected:
  WB_FN const auto& world() const { return static_cast<const Self*>(this)->world(); }
  WB_FN const wb_team& team() const { return static_cast<const Self*>(this)->team(); }

  WB_FN wb_team_rounds* rounds(uint32_t channel) const { return team().rounds + channel; }
  // Returns the member `k` places after this one, or before it; 0 < k < size.
  WB_FN uint32_t after(uint32_t k) const {
    const uint32_t m = team().pe + k;
    return m < team().size ? m : m - team().size;
  }
  WB_FN uint32_t before(uint32_t k) const { return after(team().size - k); }
  template <class T> static WB_FN uint64_t address(T* p) { return reinterpret_cast<uint64_t>(p); }
  // Returns the address of the same object in the heap of a member.
  template <class T> WB_FN T* at(T* here, uint32_t member) const { return world().there(here, world_pe(member)); }

  WB_FN network_world over_network() const { return network_world(world().net(), world().control()); }
  // Returns true if stores reach every member.
  WB_FN bool all_by_stores() const {
    if constexpr (Self::has_network) return false;
    else return (world().raw().flags & WB_WORLD_LOAD_STORE) != 0;
  }

  // Calls a function of network teams: through its address, and plainly where one of them calls another (call.cuh).
  template <auto f, class... A> WB_FN static uint32_t in_network(A... a) {
    if constexpr (Self::has_network) return f(a...);
    else return call_cold<f>(a...);
  }

  // Returns true if a call may begin. Otherwise the first of the threads that make the call enters the error.
  template <class S, class T>
  WB_FN bool begins(S s, wb_shmem_call call, const T* address, size_t bytes, uint32_t channel, uint32_t other = 0) const {
    const bool listed = channel < WB_CHANNELS && other < team().size, connected = all_by_stores() || world().raw().network != 0;
    if (listed && connected && world().in_heap(address, bytes, 1)) return true;
    const uint32_t word = status_word(connected ? WB_BAD_ARGUMENT : WB_UNREACHABLE);
    if (s.rank() == 0) world().fail(call, word, address, bytes, listed ? world().my_pe() : other, channel);
    return false;
  }

  // Stores a turn to a word in a member's heap. If a fence came before, this thread's earlier puts in the channel are ordered
  // before the store, on either data path.
  WB_FN uint32_t tell(wb_shmem_call call, uint64_t* word, uint64_t turn, uint32_t member, uint32_t channel) const {
    if constexpr (Self::has_network) {
      if (!world().is_near(world_pe(member))) {
        return network::put_value(world().net(), call, address(word), turn, 0, sizeof(turn), world_pe(member), channel);
      }
    }
    order::store<order::relaxed, order::world>(at(word, member), turn);
    return WB_DONE;
  }
  // Stores a line to the scratch of a member (line.cuh).
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
  // Puts bytes to a member's heap. The threads of the scope share them.
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
  // Copies bytes to memory that stores reach.
  template <class S> static WB_FN void copy(S s, uint64_t to, uint64_t from, size_t bytes) {
    if constexpr (Self::has_network) {
      transfer::odd<transfer::put_words>(to, from, bytes, s.rank(), s.count());
    } else {
      transfer::move<transfer::put_words>(s, to, from, bytes, to | from);
    }
  }
  // Completes the channel's transfers: once all threads of the scope have returned and synchronised, sources may change and
  // requested data has arrived.
  template <class S> WB_FN uint32_t finish(S s, wb_shmem_call call, uint32_t channel) const {
    if constexpr (Self::has_network) return network::quiet(world().net(), call, channel, s.rank(), s.count(), true);
    return WB_DONE;
  }

  // Waits until a member has counted a word of this PE's heap up to `turn`.
  WB_FN uint32_t await(wb_shmem_call call, const uint64_t* word, uint64_t turn, uint32_t member, uint32_t channel) const {
    deadline p(world().control());
    while (order::load<order::relaxed, order::world>(word) < turn) {
      if (wait_status v = p.expired(); v != wait_status::go_on) {
        return world().fail(call, status_word(v), word, 0, world_pe(member), channel).word;
      }
    }
    return WB_DONE;
  }

  // Returns the outcome of the call; all threads of the scope agree in whether it is WB_DONE. A sync of the scope.
  template <class S> static WB_FN outcome together(S s, uint32_t word) {
    const bool failed = s.any(word != WB_DONE);
    return outcome{failed && word == WB_DONE ? status_word(WB_STOPPED) : word};
  }

  template <class S> WB_FN outcome barrier_wait(S s, wb_shmem_call call, uint32_t channel) const;

  // The calls, after the data paths to the members have been determined.
  template <class S> WB_FN outcome barrier_wait_now(S s, wb_shmem_call call, uint32_t channel) const;
  template <class S> WB_FN outcome broadcast_now(S s, uint64_t dest, uint64_t source, size_t bytes, uint32_t root, uint32_t channel) const;
  template <class S, class T> WB_FN outcome exchange_now(S s, wb_shmem_call call, T* dest, size_t dest_pitch, const T* source,
                                                         size_t source_pitch, size_t n, uint32_t channel) const;
  template <class S, class T> WB_FN outcome exchange_small(S s, wb_shmem_call call, T* dest, size_t dest_pitch, const T* source,
                                                           size_t source_pitch, size_t n, uint32_t channel) const;
  template <class S, class Op, class T> WB_FN outcome reduce_small(S s, Op op, T* dest, const T* source, size_t n, uint32_t channel) const;
  template <class S, class Op, class T> WB_FN outcome reduce_large(S s, Op op, T* dest, const T* source, size_t n, uint32_t channel) const;
  template <class S, class Op, class T>
  WB_FN outcome reduce_by_network(S s, Op op, T* dest, const T* source, size_t n, uint32_t channel) const;
  template <class Word, class S, class Op, class T>
  WB_FN void reduce_words(S s, Op op, T* dest, const T* source, size_t first, size_t last) const;
  template <class S> WB_FN outcome clear_scratch(S s, wb_shmem_call call, uint32_t channel) const;
  WB_FN order::detail::pair* scratch(uint32_t channel, uint64_t turn, uint32_t sender) const;
  WB_FN bool fits_scratch(size_t bytes) const { return bytes <= team().scratch_bytes / 2; }
};

// A team with members that stores do not reach, and the functions for its calls. They are called, and not inlined, and take
// addresses and numbers instead of types and scopes: a program has one copy of each, whatever its kernels do. All threads of the
// scope call them; `scope` is its number. They return a status word (status.h).
class network_team : public team_calls<network_team> {
 public:
  static constexpr bool has_network = true;

  WB_FN network_team(const network_world& world, const wb_team& team) : w_(world), t_(team) {}
  WB_FN const network_world& world() const { return w_; }
  WB_FN const wb_team& team() const { return t_; }

  static WB_FN_COLD uint32_t barrier_by_network(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, wb_shmem_call call,
                                                uint32_t channel);
  static WB_FN_COLD uint32_t broadcast_bytes(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, uint64_t dest,
                                             uint64_t source, uint64_t bytes, uint32_t root, uint32_t channel);
  // Pitches are in bytes.
  static WB_FN_COLD uint32_t exchange_bytes(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, wb_shmem_call call,
                                            uint64_t dest, uint64_t dest_pitch, uint64_t source, uint64_t source_pitch, uint64_t bytes,
                                            uint32_t channel);

  // Steps of a reduction (reduce.cuh).
  static WB_FN_COLD uint32_t collect(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, uint64_t source, uint64_t bytes,
                                     uint32_t channel);
  static WB_FN_COLD uint32_t distribute(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, uint64_t from,
                                        uint64_t bytes, uint32_t channel);
  static WB_FN_COLD uint32_t leave(by_value<network_world> world, by_value<wb_team> team, uint32_t scope, uint32_t channel);

 private:
  network_world w_;
  wb_team t_;
};

/// @brief A team as a kernel's parameter: `&Team` of the host.
class team_ref : public team_calls<team_ref> {
 public:
  static constexpr bool has_network = false;

  /// @brief Refers to a team by its view: `Team::view` of the host. For the host and for one thread. The structures are copied.
  ///
  /// @pre The team, or a run that keeps it, outlives the kernels that use this.
  WB_FN_BOTH explicit team_ref(const wb_team_view& view) : team_ref(view.world, view.team) {}
  /// @brief Refers to a team of a world. As above.
  WB_FN_BOTH team_ref(const wb_world& world, const wb_team& team) : w_(world), t_(team) {}
  /// @brief Returns the team's world.
  WB_FN const world_ref& world() const { return w_; }
  /// @brief Returns the description that the host wrote.
  WB_FN const wb_team& team() const { return t_; }

 private:
  world_ref w_;
  wb_team t_;
};
static_assert(sizeof(team_ref) == sizeof(wb_team_view) && stdlib::is_trivially_copyable_v<team_ref>, "a kernel's parameter");

/// @brief The team of all PEs of a world, which must outlive it.
class world_team_ref : public team_calls<world_team_ref> {
 public:
  static constexpr bool has_network = false;

  /// @brief Refers to the team of a world.
  WB_FN explicit world_team_ref(const world_ref& world) : w_(&world) {}
  /// @brief Returns the team's world.
  WB_FN const world_ref& world() const { return *w_; }
  /// @brief Returns the description that the host wrote.
  WB_FN const wb_team& team() const { return w_->raw().team; }

 private:
  const world_ref* w_;
};

WB_FN world_team_ref world_ref::world_team() const { return world_team_ref(*this); }
template <class S> WB_FN outcome world_ref::barrier_all(S s) const { return world_team().barrier(s); }
template <class S> WB_FN outcome world_ref::sync_all(S s) const { return world_team().sync(s); }

// In each round a member tells up to 31 others, 1, 2, ... or 32, 64, ... places after it, and waits for as many before it. After
// the rounds it has heard of all members, directly or not. With up to 32 members one round is enough. The words count, so that none
// has to be cleared. Each thread of the scope tells and waits for its share, after one fence, which also covers the other threads'
// accesses before the scope's sync.
template <class Self> template <class S> WB_FN outcome team_calls<Self>::barrier_wait_now(S s, wb_shmem_call call, uint32_t channel) const {
  const uint32_t size = team().size;
  wb_team_rounds* mine = rounds(channel);
  uint64_t* words = team().sync + uint64_t{channel} * WB_SYNC_ROUNDS * WB_SYNC_SLOTS;
  const uint64_t turn = order::load<order::relaxed>(&mine->sync) + 1;
  s.sync();  // all threads have finished their work and know the turn
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

WB_FN_COLD uint32_t network_team::barrier_by_network(by_value<network_world> world, by_value<wb_team> team, uint32_t scope,
                                                     wb_shmem_call call, uint32_t channel) {
  return network_team(world, team).barrier_wait_now(scope::numbered{scope}, call, channel).word;
}

template <class Self> template <class S> WB_FN outcome team_calls<Self>::barrier_wait(S s, wb_shmem_call call, uint32_t channel) const {
  if (all_by_stores()) return barrier_wait_now(s, call, channel);
  return outcome{in_network<&network_team::barrier_by_network>(over_network(), team(), s.number, call, channel)};
}

template <class Self> template <class S> WB_FN outcome team_calls<Self>::sync(S s, uint32_t channel) const {
  const uint64_t* words = team().sync;
  if (!begins(s, WB_CALL_BARRIER, words, 0, channel)) return outcome{status_word(WB_BAD_ARGUMENT)};
  return barrier_wait(s, WB_CALL_BARRIER, channel);
}

// Where stores reach every PE, the fence of the synchronisation completes the puts of all threads of the scope. Otherwise this
// waits for the puts.
template <class Self> template <class S> WB_FN outcome team_calls<Self>::barrier(S s, uint32_t channel) const {
  const outcome completed = all_by_stores() ? outcome{} : world().quiet_all(s);
  const outcome arrived = sync(s, channel);
  return arrived ? completed : arrived;
}

}  // namespace warpbell
