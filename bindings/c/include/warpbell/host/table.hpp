// Tables: rows of equal size on a volume, gathered and written by number.
#pragma once

#include <warpbell/host/run.hpp>
#include <warpbell/host/storage.hpp>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief Options of table::open. By default no rows stay in memory.
struct table_options {
  /// Bytes of rows in a cache near the kernels, at least 16 rows; 0 for none.
  uint64_t cache_bytes = 0;
  /// Bytes of rows in a cache in pinned host memory, likewise.
  uint64_t host_cache_bytes = 0;
  /// Reads that a batch has in flight; 0 for the default.
  uint32_t in_flight = 0;
  /// Warps of a batch's kernel; 0 for the default. Fewer leave more room for other kernels.
  uint32_t warps = 0;
  /// Rows that stay in memory near the kernels.
  std::vector<uint64_t> hot_rows = {};
};

/// @brief Options of table::import_file: see wb_table_import_options.
struct table_import_options {
  /// Columns of a Parquet or Arrow file that make a row, in this order; none for all columns.
  std::vector<std::string> columns = {};
  /// Elements of a row, which an .npy file of one dimension does not say; otherwise 0.
  uint64_t row_elements = 0;
  /// Type of elements that the file cannot name, such as WB_BF16; 0 for the type of the file.
  uint32_t dtype = 0;
  /// WB_STORE_ADD or WB_STORE_REPLACE.
  uint32_t mode = WB_STORE_ADD;
};

/// @brief Treatment of a number that occurs several times in a batch that is written.
enum class combine : uint32_t {
  last = WB_SCATTER_LAST,  ///< The row at the highest position is stored.
  sum = WB_SCATTER_SUM,    ///< The sum of the rows is stored.
  add = WB_SCATTER_ADD,    ///< The sum of the rows is added to the row that is stored.
};

/// @brief Returns the layout of `rows` rows of elements of type T in this shape, such as {128}.
///
/// @param shape One to eight dimensions. The layout of more has none, which every function refuses.
template <class T> wb_table_layout layout_of(const std::vector<uint64_t>& shape, uint64_t rows) {
  defaults<wb_table_layout> layout;
  layout.dtype = detail::dtype_of<T>();
  layout.rows = rows;
  if (shape.size() > WB_ROW_DIMENSIONS) return layout;
  layout.dimensions = static_cast<uint32_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) layout.shape[i] = shape[i];
  return layout;
}

/// @brief Numbers of rows: a list of the program, which must outlive the call, or memory that kernels read, which a batch keeps.
class row_indices {
 public:
  row_indices(const std::vector<uint32_t>& list) : row_indices(list.data(), list.size()) {}
  row_indices(const std::vector<uint64_t>& list) : row_indices(list.data(), list.size()) {}
  row_indices(const uint32_t* list, uint64_t count) : row_indices(count, sizeof *list) { value_.list = list; }
  row_indices(const uint64_t* list, uint64_t count) : row_indices(count, sizeof *list) { value_.list = list; }

  /// @brief Takes `count` numbers of type Index, uint32_t or uint64_t, from the first byte of a region on.
  template <class Index> static row_indices in(const region& memory, uint64_t count) {
    row_indices made(count, width_of<Index>());
    made.value_.region = memory.get();
    return made;
  }
  /// @brief Takes `count` numbers of type Index, uint32_t or uint64_t, from the first byte of a buffer on.
  template <class Index> static row_indices in(const buffer& memory, uint64_t count) {
    row_indices made(count, width_of<Index>());
    made.value_.buffer = memory.get();
    return made;
  }

  /// @brief Returns the number of indices.
  uint64_t size() const noexcept { return value_.count; }
  /// @brief Returns the form that the functions of C take.
  const wb_row_indices* get() const noexcept { return &value_; }

 private:
  row_indices(uint64_t count, uint32_t width) {
    value_.count = count;
    value_.width = width;
  }
  template <class Index> static constexpr uint32_t width_of() {
    static_assert(std::is_same<Index, uint32_t>::value || std::is_same<Index, uint64_t>::value, "an index is uint32_t or uint64_t");
    return sizeof(Index);
  }
  defaults<wb_row_indices> value_;
};

/// @brief Memory of rows that kernels access: a region or a buffer, which must outlive the call. A batch in flight keeps it.
class row_memory {
 public:
  row_memory(const region& memory) { value_.region = memory.get(); }
  row_memory(const buffer& memory) { value_.buffer = memory.get(); }
  /// @brief Returns the form that the functions of C take.
  const wb_row_memory* get() const noexcept { return &value_; }

 private:
  defaults<wb_row_memory> value_;
};

/// @brief Rows on their way to memory. Copies share the batch; the last one waits for it.
class batch : public detail::handle<wb_batch_t, wb_batch_retain, wb_batch_release> {
 public:
  using handle::handle;

  /// @brief Waits for the rows. A batch is finished once.
  ///
  /// @param seconds Limit of the wait; 0 for none. After the limit the reads are told to stop.
  returned<void> finish(double seconds = 0) const { return detail::done(wb_batch_finish(get(), seconds)); }
  /// @brief Returns true if the reads have ended. Their errors are known after `finish`.
  returned<bool> has_ended() const {
    uint32_t ended = 0;
    const wb_code code = wb_batch_has_ended(get(), &ended);
    return detail::give(code, [ended] { return ended != 0; });
  }
  /// @brief Returns the number of rows.
  returned<uint64_t> rows() const {
    uint64_t found = 0;
    const wb_code code = wb_batch_rows(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Returns the address of the first row of a finished batch of table::prefetch, as kernels see it; null without rows.
  template <class T = void> returned<T*> address() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return static_cast<T*>(p.value); });
  }
  /// @brief Copies `count` elements of a finished batch of table::prefetch to the host, from element `first` of its rows on.
  template <class T> returned<std::vector<T>> read(size_t count, size_t first = 0) const {
    static_assert(std::is_trivially_copyable<T>::value, "rows hold plain data");
    std::vector<T> data(count);
    const wb_code code = wb_batch_read(get(), detail::bytes_of<T>(first), data.data(), detail::bytes_of<T>(count));
    return detail::give(code, [&data] { return std::move(data); });
  }
  // As an argument of a launch, for a parameter that is a pointer.
  detail::passed<void*> as_argument() const {
    detail::passed<void*> p{nullptr, get(), WB_OK};
    p.code = wb_batch_address(get(), &p.value);
    return p;
  }
};

/// @brief Memory of one batch at a time, for kernels of the program that gather rows. Copies share it.
class table_scratch : public detail::handle<wb_table_scratch_t, wb_table_scratch_retain, wb_table_scratch_release> {
 public:
  using handle::handle;

  /// @brief Begins another batch: between two launches that use the scratch, when the kernels of the first have ended.
  returned<void> begin() const { return detail::done(wb_table_scratch_begin(get())); }
  /// @brief Returns the form in which kernels get the scratch for the batch that was begun.
  returned<wb_table_scratch> view() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return p.value; });
  }
  // As an argument of a launch, for a parameter of type `wb_table_scratch`.
  detail::passed<wb_table_scratch> as_argument() const {
    detail::passed<wb_table_scratch> p{{}, get(), WB_OK};
    p.code = wb_table_scratch_get_view(get(), &p.value);
    return p;
  }
};

/// @brief Rows of equal size on a volume, which kernels gather by number as `table_ref`. Copies share the table.
class table : public detail::handle<wb_table_t, wb_table_retain, wb_table_release> {
 public:
  using handle::handle;

  /// @brief Opens the table of a name.
  static returned<table> open(const volume& on, const std::string& name, const table_options& options = {}) {
    defaults<wb_table_options> o;
    o.cache_bytes = options.cache_bytes;
    o.host_cache_bytes = options.host_cache_bytes;
    o.in_flight = options.in_flight;
    o.warps = options.warps;
    o.hot_rows = options.hot_rows.data();
    o.hot_count = options.hot_rows.size();
    return detail::make<table, wb_table_t>([&](wb_table_t** made) { return wb_table_open(on.get(), name.c_str(), &o, made); });
  }
  /// @brief Stores a table of zeros under a name. It is durable when the call returns.
  ///
  /// @param layout Number, type and shape of the rows: `layout_of<float>({128}, 1000)`.
  /// @param mode WB_STORE_ADD or WB_STORE_REPLACE.
  static returned<table> create(const volume& on, const std::string& name, const wb_table_layout& layout, uint32_t mode = WB_STORE_ADD) {
    return detail::make<table, wb_table_t>([&](wb_table_t** made) { return wb_table_create(on.get(), name.c_str(), &layout, mode, made); });
  }
  /// @brief Stores a table of `rows` rows from memory of the host, each of `row_elements` elements, one behind the other.
  ///
  /// @param mode WB_STORE_ADD or WB_STORE_REPLACE.
  template <class T> static returned<table> store(const volume& on, const std::string& name, const T* data, uint64_t rows,
                                                  uint64_t row_elements, uint32_t mode = WB_STORE_ADD) {
    const wb_table_layout layout = layout_of<T>({row_elements}, rows);
    return detail::make<table, wb_table_t>(
        [&](wb_table_t** made) { return wb_table_store(on.get(), name.c_str(), &layout, data, mode, made); });
  }
  /// @brief Stores the rows of a file: .npy, and in a library with feature `parquet` .parquet, .arrow and .feather.
  static returned<table> import_file(const volume& on, const std::string& name, const std::string& path,
                                     const table_import_options& options = {}) {
    const std::vector<const char*> columns = detail::pointers(options.columns);
    defaults<wb_table_import_options> o;
    o.columns = columns.data();
    o.column_count = columns.size();
    o.row_elements = options.row_elements;
    o.dtype = options.dtype;
    o.mode = options.mode;
    return detail::make<table, wb_table_t>(
        [&](wb_table_t** made) { return wb_table_import(on.get(), name.c_str(), path.c_str(), &o, made); });
  }
  /// @brief Lists the tables of a volume as JSON.
  static returned<std::string> list(const volume& on) {
    char* json = nullptr;
    const wb_code code = wb_table_list(on.get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  /// @brief Removes a stored table, which frees its space.
  static returned<void> remove(const volume& on, const std::string& name) { return detail::done(wb_table_remove(on.get(), name.c_str())); }

  /// @brief Gathers rows to memory of the host, one behind the other. T is the type of the table's elements.
  template <class T> returned<std::vector<T>> gather(const row_indices& indices) const {
    defaults<wb_table_layout> layout;
    wb_code code = wb_table_get_layout(get(), &layout);
    // A product that wraps around gives too little memory, which the call refuses.
    std::vector<T> data(code == WB_OK ? static_cast<size_t>(indices.size() * layout.row_bytes / sizeof(T)) : 0);
    const defaults<wb_row_memory> rows = host_memory(data.data(), data.size());
    if (code == WB_OK) code = wb_table_gather(get(), indices.get(), &rows);
    return detail::give(code, [&data] { return std::move(data); });
  }
  /// @brief Gathers rows to a region or buffer: row `indices[i]` comes to byte `i * row_bytes`. Waits for all of them.
  returned<void> gather(const row_indices& indices, const row_memory& rows) const {
    return detail::done(wb_table_gather(get(), indices.get(), rows.get()));
  }
  /// @brief Starts to gather rows into memory of the table, and returns at once. The batch is an argument of kernels once it is finished.
  returned<batch> prefetch(const row_indices& indices) const {
    return detail::make<batch, wb_batch_t>([&](wb_batch_t** made) { return wb_table_prefetch(get(), indices.get(), made); });
  }
  /// @brief Starts to gather rows into a region or buffer, and returns at once.
  returned<batch> start(const row_indices& indices, const row_memory& rows) const { return start(stream(), indices, rows); }
  /// @brief Starts to gather rows behind all work on a stream, and returns at once. Later work on the stream finds the rows.
  /// An empty stream is one of the table.
  returned<batch> start(const stream& on, const row_indices& indices, const row_memory& rows) const {
    return detail::make<batch, wb_batch_t>(
        [&](wb_batch_t** made) { return wb_table_start(get(), indices.get(), rows.get(), on.get(), made); });
  }
  /// @brief Writes rows from memory of the host: as many as there are indices, of elements that have the type of the table.
  ///
  /// They are on the devices when the call returns, and durable after `flush`.
  template <class T> returned<void> scatter(const row_indices& indices, const std::vector<T>& rows, combine how = combine::last) const {
    // The call only reads the rows.
    const defaults<wb_row_memory> memory = host_memory(const_cast<T*>(rows.data()), rows.size());
    return detail::done(wb_table_scatter(get(), indices.get(), &memory, static_cast<uint32_t>(how)));
  }
  /// @brief Writes rows from a region or buffer. As above.
  returned<void> scatter(const row_indices& indices, const row_memory& rows, combine how = combine::last) const {
    return detail::done(wb_table_scatter(get(), indices.get(), rows.get(), static_cast<uint32_t>(how)));
  }
  /// @brief Makes rows that were written durable.
  returned<void> flush() const { return detail::done(wb_table_flush(get())); }
  /// @brief Drops all rows from the caches. For changes around the table.
  returned<void> drop_caches() const { return detail::done(wb_table_drop_caches(get())); }
  /// @brief Allocates memory for batches of at most `rows` rows that kernels of the program gather, with `in_flight` reads at once.
  returned<table_scratch> scratch(uint64_t rows, uint32_t in_flight) const {
    return detail::make<table_scratch, wb_table_scratch_t>(
        [&](wb_table_scratch_t** made) { return wb_table_scratch_create(get(), rows, in_flight, made); });
  }

  /// @brief Returns number, type, shape and bytes of the rows.
  returned<wb_table_layout> layout() const {
    defaults<wb_table_layout> found;
    const wb_code code = wb_table_get_layout(get(), &found);
    return detail::give(code, [&found]() -> wb_table_layout { return found; });
  }
  /// @brief Describes the table as JSON.
  returned<std::string> info() const {
    char* json = nullptr;
    const wb_code code = wb_table_info(get(), &json);
    return detail::give(code, [json] { return detail::take(json); });
  }
  /// @brief Reads all rows, past the caches, and compares them with their checksum. Returns false if rows were written since the table was
  /// stored, so that there is nothing to compare. Damaged rows are an error, WB_ERR_DAMAGED.
  returned<bool> verify() const {
    uint32_t compared = 0;
    const wb_code code = wb_table_verify(get(), &compared);
    return detail::give(code, [compared] { return compared != 0; });
  }
  /// @brief Returns the counters: rows, and where they came from.
  returned<wb_table_stats> stats() const {
    wb_table_stats found{};
    const wb_code code = wb_table_get_stats(get(), &found);
    return detail::give(code, [found] { return found; });
  }
  /// @brief Sets all counters to zero.
  returned<void> reset_stats() const { return detail::done(wb_table_reset_stats(get())); }

  /// @brief Returns the form in which kernels get the table: `table_ref` is made from it. Valid while a run or this object holds it.
  returned<wb_table_view> view() const {
    const auto p = as_argument();
    return detail::give(p.code, [&p] { return p.value; });
  }
  // As an argument of a launch, for a parameter of type `wb_table_view`.
  detail::passed<wb_table_view> as_argument() const {
    detail::passed<wb_table_view> p{{}, get(), WB_OK};
    p.code = wb_table_get_view(get(), &p.value);
    return p;
  }

 private:
  template <class T> static defaults<wb_row_memory> host_memory(T* data, size_t count) {
    defaults<wb_row_memory> memory;
    memory.data = data;
    memory.bytes = detail::bytes_of<T>(count);
    memory.dtype = detail::dtype_of<T>();
    return memory;
  }
};

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
