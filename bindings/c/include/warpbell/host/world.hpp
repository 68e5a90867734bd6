// Worlds: PEs that put to and get from each other's symmetric memory, teams of them, and collective calls.
#pragma once

#include <warpbell/host/run.hpp>
#include <warpbell/host/storage.hpp>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief Options of a world: see wb_world_options.
using world_options = defaults<wb_world_options>;

/// @brief Makes an id by which the ranks of a world find each other. Rank 0 makes it, in its own process, and passes its bytes to
/// the others.
///
/// @param host_name Address of this host that the others reach; empty for the one that is found.
inline returned<wb_unique_id> unique_id(const std::string& host_name = {}) {
  wb_unique_id id{};
  const wb_code code = wb_unique_id_create(host_name.empty() ? nullptr : host_name.c_str(), &id);
  return detail::give(code, [&id] { return id; });
}

/// @brief A world as one PE sees it. Copies share it. Collective calls are made by all PEs in the same order.
class world : public detail::handle<wb_world_t, wb_world_retain, wb_world_release> {
 public:
  using handle::handle;

  /// @brief Joins a world: this process is one PE. All ranks call this.
  static returned<world> create(const engine& on, const world_options& options = {}) {
    return detail::make<world, wb_world_t>([&](wb_world_t** made) { return wb_world_create(on.get(), &options, made); });
  }
  /// @brief Makes a world of PEs of this process, one for each engine. Each is used by a thread of its own.
  static returned<std::vector<world>> create_local(const std::vector<engine>& engines, const world_options& options = {}) {
    std::vector<wb_engine_t*> on;
    for (const engine& e : engines) on.push_back(e.get());
    std::vector<wb_world_t*> made(engines.size(), nullptr);
    const wb_code code = wb_world_create_local(on.data(), on.size(), &options, made.data());
    return detail::give(code, [&made] { return std::vector<world>(made.begin(), made.end()); });
  }

  /// @brief Returns the number of this PE.
  returned<uint32_t> my_pe() const {
    uint32_t found = 0;
    const wb_code code = wb_world_my_pe(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the number of PEs.
  returned<uint32_t> n_pes() const {
    uint32_t found = 0;
    const wb_code code = wb_world_n_pes(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Describes the world as JSON: PEs, heap, data paths with their reasons.
  returned<std::string> info() const {
    char* json = nullptr;
    const wb_code code = wb_world_info(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  /// @brief Returns the free bytes of the symmetric heap.
  returned<size_t> heap_free() const {
    size_t found = 0;
    const wb_code code = wb_world_heap_free(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Completes this PE's puts and waits for all PEs, by a kernel. Collective. On a stream the host does not wait.
  returned<void> barrier_all(const stream& on = {}) const { return detail::done(wb_world_barrier_all(get(), on.get())); }
  /// @brief Completes this PE's puts, by a kernel.
  returned<void> quiet(const stream& on = {}) const { return detail::done(wb_world_quiet(get(), on.get())); }
  /// @brief Waits for all PEs on the host, without a kernel. Collective.
  returned<void> barrier_host() const { return detail::done(wb_world_barrier_host(get())); }
  /// @brief Returns the values of all PEs in their order. Collective.
  template <class T> returned<std::vector<T>> allgather(const T& mine) const {
    static_assert(std::is_trivially_copyable<T>::value, "plain data");
    uint32_t pes = 0;
    wb_code code = wb_world_n_pes(get(), &pes);
    std::vector<T> all(pes);
    if (code == WB_OK) code = wb_world_allgather(get(), &mine, sizeof mine, all.data());
    return detail::give(code, [&all] { return std::move(all); });
  }
  /// @brief Makes failed connections of adapters anew. Collective; no kernel of the world runs on any PE. Returns a report as JSON.
  returned<std::string> recover() const {
    char* json = nullptr;
    const wb_code code = wb_world_recover(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }

  /// @brief Returns the form in which kernels get the world: `world_ref` is made from it. Valid while a run or this object holds it.
  returned<wb_world> view() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return p.value; });
  }
  // As an argument of a launch, for a parameter of type `world_ref` or `wb_world`.
  detail::passed<wb_world> as_argument() const {
    detail::passed<wb_world> p{{}, get(), WB_OK};
    p.code = wb_world_get_view(get(), &p.value);
    return p;
  }
};

/// @brief Elements of type T in the symmetric heap: as many on every PE, at one offset of its heap. Copies share them.
template <class T> class symmetric : public detail::handle<wb_symmetric_t, wb_symmetric_retain, wb_symmetric_release> {
 public:
  using detail::handle<wb_symmetric_t, wb_symmetric_retain, wb_symmetric_release>::handle;

  /// @brief Allocates `count` elements on every PE. Collective.
  static returned<symmetric> allocate(const world& of, size_t count) {
    static_assert(std::is_trivially_copyable<T>::value, "symmetric memory holds plain data");
    return detail::make<symmetric, wb_symmetric_t>(
        [&](wb_symmetric_t** made) { return wb_symmetric_allocate(of.get(), detail::bytes_of<T>(count), alignof(T), made); });
  }
  /// @brief Frees the memory on every PE. Collective. No kernel uses it any more.
  returned<void> free() const { return detail::done(wb_symmetric_free(this->get())); }

  /// @brief Returns the address of the first element of this PE, as kernels see it.
  returned<T*> address() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return static_cast<T*>(p.value); });
  }
  /// @brief Returns the number of elements.
  returned<size_t> size() const {
    size_t found = 0;
    const wb_code code = wb_symmetric_bytes(this->get(), &found);
    return detail::give(code, [found] { return found / sizeof(T); });
  }
  /// @brief Returns `count` elements of this PE, from element `first` on. Waits for no kernel.
  returned<std::vector<T>> read(size_t first, size_t count) const {
    std::vector<T> data(count);
    const wb_code code = wb_symmetric_read(this->get(), detail::bytes_of<T>(first), data.data(), detail::bytes_of<T>(count));
    return detail::give(code, [&data] { return std::move(data); });
  }
  /// @brief Writes elements of this PE, to element `first` and those behind it.
  returned<void> write(size_t first, const T* data, size_t count) const {
    return detail::done(wb_symmetric_write(this->get(), detail::bytes_of<T>(first), data, detail::bytes_of<T>(count)));
  }
  /// @brief Returns elements of another PE.
  returned<std::vector<T>> get_from(uint32_t pe, size_t first, size_t count) const {
    std::vector<T> data(count);
    const wb_code code = wb_symmetric_get(this->get(), detail::bytes_of<T>(first), data.data(), detail::bytes_of<T>(count), pe);
    return detail::give(code, [&data] { return std::move(data); });
  }
  /// @brief Writes elements of another PE. They are there when the call returns.
  returned<void> put_to(uint32_t pe, size_t first, const T* data, size_t count) const {
    return detail::done(wb_symmetric_put(this->get(), detail::bytes_of<T>(first), data, detail::bytes_of<T>(count), pe));
  }
  // As an argument of a launch, for a parameter of type `sym<T>`, or a pointer.
  detail::passed<void*> as_argument() const {
    detail::passed<void*> p{nullptr, this->get(), WB_OK};
    p.code = wb_symmetric_address(this->get(), &p.value);
    return p;
  }
};

/// @brief Elements of type T of each PE, in memory that all PEs have registered as symmetric. Copies share it.
template <class T> class window : public detail::handle<wb_window_t, wb_window_retain, wb_window_release> {
 public:
  using detail::handle<wb_window_t, wb_window_retain, wb_window_release>::handle;

  /// @brief Registers `count` elements of a region of the world's engine, from byte `offset` on. Collective.
  static returned<window> symmetric_from(const world& of, const region& memory, size_t offset, size_t count) {
    static_assert(std::is_trivially_copyable<T>::value, "registered memory holds plain data");
    return detail::make<window, wb_window_t>(
        [&](wb_window_t** made) { return wb_window_register(of.get(), memory.get(), offset, detail::bytes_of<T>(count), made); });
  }
  // As an argument of a launch, for a parameter of type `window<T>`.
  detail::passed<wb_window> as_argument() const {
    detail::passed<wb_window> p{{}, this->get(), WB_OK};
    p.code = wb_window_get_view(this->get(), &p.value);
    return p;
  }
};

/// @brief Operation of team::reduce.
enum class reduction : uint32_t {
  sum = WB_REDUCE_SUM,
  prod = WB_REDUCE_PROD,
  min = WB_REDUCE_MIN,
  max = WB_REDUCE_MAX,
  bit_and = WB_REDUCE_AND,
  bit_or = WB_REDUCE_OR,
  bit_xor = WB_REDUCE_XOR,
};

/// @brief A team: some PEs of a world, numbered from 0. Empty on PEs that are not in it. Copies share it.
class team : public detail::handle<wb_team_t, wb_team_retain, wb_team_release> {
 public:
  using handle::handle;

  /// @brief Returns the team of all PEs.
  static returned<team> all(const world& of) {
    return detail::make<team, wb_team_t>([&](wb_team_t** made) { return wb_team_world(of.get(), made); });
  }
  /// @brief Makes the team of the PEs of this host. Collective: all PEs of the world.
  static returned<team> node(const world& of) {
    return detail::make<team, wb_team_t>([&](wb_team_t** made) { return wb_team_node(of.get(), made); });
  }
  /// @brief Makes a team of `size` members of this one: start, start + stride, and so on. Collective over this team.
  returned<team> split_strided(uint32_t start, uint32_t stride, uint32_t size) const {
    return detail::make<team, wb_team_t>([&](wb_team_t** made) { return wb_team_split_strided(get(), start, stride, size, made); });
  }
  /// @brief Makes the teams of this PE's row and column, where rows have `width` members. Collective over this team.
  returned<std::pair<team, team>> split_2d(uint32_t width) const {
    wb_team_t *row = nullptr, *column = nullptr;
    const wb_code code = wb_team_split_2d(get(), width, &row, &column);
    return detail::give(code, [row, column] { return std::make_pair(team(row), team(column)); });
  }

  /// @brief Returns this PE's number in the team.
  returned<uint32_t> my_pe() const {
    uint32_t found = 0;
    const wb_code code = wb_team_my_pe(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the number of members.
  returned<uint32_t> n_pes() const {
    uint32_t found = 0;
    const wb_code code = wb_team_n_pes(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Completes puts, and waits for all members. Collective, as all calls below. On a stream the host does not wait.
  returned<void> barrier(const stream& on = {}) const { return detail::done(wb_team_barrier(get(), on.get())); }
  /// @brief Waits for all members.
  returned<void> sync(const stream& on = {}) const { return detail::done(wb_team_sync(get(), on.get())); }
  /// @brief Copies `count` elements of member `root` to `dest` of all members.
  template <class T>
  returned<void> broadcast(const symmetric<T>& dest, const symmetric<T>& source, size_t count, uint32_t root, const stream& on = {}) const {
    return detail::done(wb_team_broadcast(get(), dest.get(), 0, source.get(), 0, detail::bytes_of<T>(count), root, on.get()));
  }
  /// @brief Collects `count` elements of each member in `dest` of all members.
  template <class T>
  returned<void> fcollect(const symmetric<T>& dest, const symmetric<T>& source, size_t count, const stream& on = {}) const {
    return detail::done(wb_team_fcollect(get(), dest.get(), 0, source.get(), 0, detail::bytes_of<T>(count), on.get()));
  }
  /// @brief Sends `count` elements to each member, and receives as many of each.
  template <class T>
  returned<void> alltoall(const symmetric<T>& dest, const symmetric<T>& source, size_t count, const stream& on = {}) const {
    return detail::done(wb_team_alltoall(get(), dest.get(), 0, source.get(), 0, detail::bytes_of<T>(count), on.get()));
  }
  /// @brief Combines `count` elements of all members, element by element, in `dest` of all members.
  template <class T>
  returned<void> reduce(reduction op, const symmetric<T>& dest, const symmetric<T>& source, size_t count, const stream& on = {}) const {
    return detail::done(
        wb_team_reduce(get(), static_cast<uint32_t>(op), detail::dtype_of<T>(), dest.get(), 0, source.get(), 0, count, on.get()));
  }

  /// @brief Returns the form in which kernels get the team: `team_ref` is made from it. Valid while a run or this object holds it.
  returned<wb_team_view> view() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return p.value; });
  }
  // As an argument of a launch, for a parameter of type `team_ref` or `wb_team_view`.
  detail::passed<wb_team_view> as_argument() const {
    detail::passed<wb_team_view> p{{}, get(), WB_OK};
    p.code = wb_team_get_view(get(), &p.value);
    return p;
  }
};

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
