//! Tables: rows on storage by number.

use crate::call::{self, Shared, Stop};
use crate::dtype;
use crate::engine::as_python;
use crate::error::{Failure, Kind};
use crate::external::DeviceView;
use crate::fork;
use crate::held::Held;
use crate::host_array::Source;
use crate::indices::Named;
use crate::prefetch::{Flight, Landing, Prefetch};
use crate::progress::Progress;
use crate::scratch::TableScratch;
use crate::stream;
use crate::tensor::{Memory, Tensor};
use crate::view::{self, View};
use crate::volume::Volume;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use warpbell::engine::{NO_LIMIT, Stream};
use warpbell::memory::Region;
use warpbell::storage::{Combine, ElementType, RowFile, RowFileOptions, RowInput, RowOutput, TableLayout, TableWriter};

/// Rows of equal size on a volume, which kernels gather by number.
///
/// ``table[indices]`` gathers rows, ``table[indices] = rows`` writes them. Indices are a number, a slice, a list, an array of integers of
/// any shape, or a mask.
#[pyclass(frozen, weakref, module = "warpbell")]
pub(crate) struct Table {
    table: Held<warpbell::storage::Table>,
    volume: Py<Volume>,
}

/// Where gathered rows go.
enum Output {
    /// New memory of the engine.
    New,
    /// Memory of the caller that kernels reach.
    Engine(Region),
    /// Memory of the host, for an engine on a GPU.
    Host(Region),
}

impl Table {
    fn made(volume: &Bound<'_, Volume>, table: warpbell::storage::Table) -> Self {
        Self { table: Held::new(table), volume: volume.clone().unbind() }
    }

    pub(crate) fn get(&self) -> &warpbell::storage::Table {
        &self.table
    }

    fn layout(&self) -> &TableLayout {
        self.table.layout()
    }

    /// Returns the dimensions of rows for indices of a shape.
    fn shape_of(&self, indices: &[u64]) -> Vec<u64> {
        [indices, self.layout().row_shape()].concat()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.volume.get().shared()
    }

    pub(crate) fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&warpbell::storage::Table, &Stop) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        let table = self.table.clone();
        self.volume.get().call(py, move |_, stop| work(&table, stop))
    }

    /// Returns the stream behind which arrays of a GPU are complete, or that the caller names.
    fn stream(
        &self,
        named: Option<&Bound<'_, PyAny>>,
        arrays: &[(&Bound<'_, PyAny>, bool)],
    ) -> PyResult<Option<Stream>> {
        let shared = self.volume.get().shared();
        if let Some(named) = named {
            return stream::given(shared, named).map(Some);
        }
        stream::behind(shared, arrays)
    }

    /// Checks memory for rows of this shape.
    fn check_rows(&self, rows: &View, shape: &[u64], what: &str) -> Result<(), Failure> {
        let element = self.layout().element();
        if rows.element() != Some(element) {
            return Err(Failure::invalid(format!(
                "{what}: elements of type {}, and table `{}` holds {}; use that type",
                rows.typestr,
                self.table.name(),
                dtype::name_of(element)
            )));
        }
        if rows.shape != shape {
            return Err(Failure::invalid(format!(
                "{what}: its shape is {:?}, and the rows have {shape:?}",
                rows.shape
            )));
        }
        Ok(())
    }

    fn gather_to<'py>(
        &self,
        py: Python<'py>,
        named: &Named<'py>,
        out: Option<&Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shape = self.shape_of(&named.shape);
        let mut arrays = vec![(&named.object, named.on_gpu)];
        let output = match out {
            None => Output::New,
            Some(out) => {
                let rows = view::of(out)?;
                self.check_rows(&rows, &shape, "out")?;
                rows.check_writable("out")?;
                arrays.push((out, rows.on_gpu));
                let engine = self.table.volume().engine();
                match rows.bytes() {
                    0 => Output::New,
                    _ if engine.is_gpu() && !rows.on_gpu => Output::Host(rows.on_host("out")?),
                    _ => Output::Engine(rows.on_engine(engine, "out")?),
                }
            }
        };
        let flight = self.start(py, named, output, self.stream(stream, &arrays)?)?;
        let memory = flight.land(py, self.volume.get().shared(), NO_LIMIT)?;
        match (out, memory) {
            (Some(out), _) => Ok(out.clone()),
            (None, Some(memory)) => {
                let tensor = Tensor::new(memory, shape, self.layout().element(), self.volume.get().shared());
                Ok(Bound::new(py, tensor)?.into_any())
            }
            (None, None) => Err(Failure::new(Kind::Internal, "a gather without result").into()),
        }
    }

    /// Starts to gather rows, behind all work of the stream if there is one.
    fn start(
        &self,
        py: Python<'_>,
        named: &Named<'_>,
        output: Output,
        stream: Option<Stream>,
    ) -> PyResult<Arc<Held<Flight>>> {
        let (table, indices) = (&*self.table, &named.indices);
        let flight = call::begin(py, self.volume.get().shared(), || {
            let start = |out: RowOutput<'_>| {
                indices.use_in(|indices| match &stream {
                    Some(stream) => table.start_on(stream, indices, out),
                    None => table.start(indices, out),
                })
            };
            let (started, landing) = match output {
                Output::Engine(region) => (start((&region).into())?, Landing::Caller),
                Output::New => {
                    let rows = table.allocate_rows(indices.len())?;
                    (start((&rows).into())?, Landing::New(Memory::Buffer(rows)))
                }
                Output::Host(region) => {
                    let rows = table.allocate_rows(indices.len())?;
                    (start((&rows).into())?, Landing::Host(Memory::Buffer(rows), region))
                }
            };
            Ok(Flight::new(table, started, landing))
        })?;
        Ok(Arc::new(Held::new(flight)))
    }

    fn put<'py>(
        &self,
        py: Python<'py>,
        named: &Named<'py>,
        rows: &Bound<'py, PyAny>,
        combine: Combine,
    ) -> PyResult<()> {
        let shape = self.shape_of(&named.shape);
        let given = view::of(rows)?;
        let mut arrays = vec![(&named.object, named.on_gpu)];
        let (host, region) = if given.on_gpu {
            self.check_rows(&given, &shape, "rows")?;
            arrays.push((rows, true));
            match given.bytes() {
                0 => (None, None),
                _ => (None, Some(given.on_engine(self.table.volume().engine(), "rows")?)),
            }
        } else if given.element() == Some(self.layout().element()) && given.shape == shape {
            (Some(Source::of(rows, None, "rows")?), None)
        } else {
            let numpy = py.import("numpy")?;
            let array = view::as_numpy(rows)?;
            let options = pyo3::types::PyDict::new(py);
            options.set_item("casting", "same_kind")?;
            options.set_item("copy", false)?;
            let array =
                array.call_method("astype", (dtype::numpy_of(py, self.layout().element())?,), Some(&options))?;
            let array = numpy.call_method1("broadcast_to", (array, PyTuple::new(py, &shape)?))?;
            (Some(Source::of(&array, None, "rows")?), None)
        };
        let stream = self.stream(None, &arrays)?;
        let indices = named.indices.clone();
        let shared = self.volume.get().shared().clone();
        self.call(py, move |table, stop| {
            stream::finish(&shared, stream.as_ref())?;
            if let Some(region) = &region {
                return Ok(indices.use_in(|indices| table.scatter(indices, RowInput::from(region), combine))?);
            }
            let rows = table.allocate_rows(indices.len())?;
            if let Some(host) = &host {
                host.each_piece(|at, piece| {
                    stop.check()?;
                    Ok(rows.write(at, piece)?)
                })?;
            }
            Ok(indices.use_in(|indices| table.scatter(indices, RowInput::from(&rows), combine))?)
        })
    }
}

/// The number of elements of a row, or its dimensions.
#[derive(FromPyObject)]
enum RowShape {
    Elements(u64),
    Dimensions(Vec<u64>),
}

/// Bytes of zeros that are written at once.
const ZEROS: u64 = 4 << 20;

#[pymethods]
impl Table {
    /// Opens a table. ``cache_bytes`` is memory for rows near the kernels, ``host_cache_bytes`` memory of the host for more, ``hot_rows``
    /// are rows that stay in memory, ``in_flight`` is the number of reads that a batch has in flight, ``warps`` that of its kernel's warps.
    #[staticmethod]
    #[pyo3(signature = (volume, name, *, cache_bytes = 0, host_cache_bytes = 0, hot_rows = None, in_flight = None, warps = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn open(
        py: Python<'_>,
        volume: &Bound<'_, Volume>,
        name: String,
        cache_bytes: u64,
        host_cache_bytes: u64,
        hot_rows: Option<&Bound<'_, PyAny>>,
        in_flight: Option<u32>,
        warps: Option<u32>,
    ) -> PyResult<Self> {
        let hot_rows =
            hot_rows.map(|rows| Source::of(rows, Some("uint64"), "hot_rows")?.to_vec::<u64>().map_err(PyErr::from));
        let hot_rows = hot_rows.transpose()?;
        let table = volume.get().call(py, move |v, _| {
            let mut builder = warpbell::storage::Table::open(v, &name);
            if cache_bytes > 0 {
                builder = builder.cache_bytes(cache_bytes);
            }
            if host_cache_bytes > 0 {
                builder = builder.host_cache_bytes(host_cache_bytes);
            }
            if let Some(rows) = &hot_rows {
                builder = builder.hot_rows(rows);
            }
            if let Some(reads) = in_flight {
                builder = builder.in_flight(reads);
            }
            if let Some(warps) = warps {
                builder = builder.warps(warps);
            }
            Ok(builder.build()?)
        })?;
        Ok(Self::made(volume, table))
    }

    /// Stores a table of zeros. ``row`` is the number of elements of a row, or its dimensions.
    #[staticmethod]
    #[pyo3(signature = (volume, name, rows, row, dtype = "float32", *, replace = false, progress = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn create(
        py: Python<'_>,
        volume: &Bound<'_, Volume>,
        name: String,
        rows: u64,
        row: RowShape,
        dtype: &str,
        replace: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let shape = match row {
            RowShape::Elements(elements) => vec![elements],
            RowShape::Dimensions(shape) => shape,
        };
        let layout = TableLayout::new(dtype::from_name(dtype)?, &shape, rows).map_err(Failure::from)?;
        let progress = Progress::new(progress);
        let table = volume.get().call(py, move |v, stop| {
            let mut writer = TableWriter::new(v, &name, &layout, replace)?;
            let zeros = vec![0; layout.bytes().min(ZEROS) as usize];
            let mut done = 0;
            while done < layout.bytes() {
                stop.check()?;
                let now = (layout.bytes() - done).min(ZEROS);
                writer.append_bytes(&zeros[..now as usize])?;
                done += now;
                progress.report("store", done, layout.bytes())?;
            }
            Ok(writer.finish()?)
        })?;
        Ok(Self::made(volume, table))
    }

    /// Stores the rows of an array: its first dimension counts them. An array of ``numpy.memmap`` is read in pieces.
    #[staticmethod]
    #[pyo3(signature = (volume, name, array, *, replace = false, progress = None))]
    fn from_numpy(
        py: Python<'_>,
        volume: &Bound<'_, Volume>,
        name: String,
        array: &Bound<'_, PyAny>,
        replace: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let source = Source::of(array, None, "array")?;
        let [rows, shape @ ..] = &source.shape[..] else {
            return Err(Failure::invalid("array: it has no dimensions; give an array of rows").into());
        };
        let layout = TableLayout::new(source.element()?, shape, *rows).map_err(Failure::from)?;
        let progress = Progress::new(progress);
        let table = volume.get().call(py, move |v, stop| {
            let mut writer = TableWriter::new(v, &name, &layout, replace)?;
            source.each_piece(|at, piece| {
                stop.check()?;
                writer.append_bytes(piece)?;
                progress.report("store", (at + piece.len()) as u64, layout.bytes())
            })?;
            Ok(writer.finish()?)
        })?;
        Ok(Self::made(volume, table))
    }

    /// Stores the rows of a file: ``.npy``, ``.parquet``, ``.arrow`` or ``.feather``. ``columns`` chooses columns and their order;
    /// ``row_elements`` is the number of elements of a row of an ``.npy`` file of one dimension. ``dtype`` is the type of elements that a
    /// file cannot name: raw bytes, as numpy saves bfloat16 and floats of 8 bits, and ``uint16`` as ``bfloat16``.
    #[staticmethod]
    #[pyo3(signature = (volume, name, path, *, columns = None, row_elements = None, dtype = None, replace = false, progress = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn import_file(
        py: Python<'_>,
        volume: &Bound<'_, Volume>,
        name: String,
        path: PathBuf,
        columns: Option<Vec<String>>,
        row_elements: Option<u64>,
        dtype: Option<&str>,
        replace: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let progress = Progress::new(progress);
        let unknown = |name: &str| {
            Failure::invalid(format!("dtype: {name} is no type of elements; give bfloat16 or another one"))
        };
        let element = dtype.map(|name| ElementType::from_name(name).ok_or_else(|| unknown(name))).transpose()?;
        let table = volume.get().call(py, move |v, _| {
            let options = RowFileOptions::default().columns(columns.unwrap_or_default());
            let options = options.row_elements(row_elements).element(element);
            let file = RowFile::open(path, &options)?;
            let total = file.layout().bytes();
            let table = file.store(v, &name, replace, &mut |done| progress.note("store", done, total))?;
            progress.end().map(|()| table)
        })?;
        Ok(Self::made(volume, table))
    }

    /// Stores the rows of a Parquet file: ``import_file`` with another name.
    #[staticmethod]
    #[pyo3(signature = (volume, name, path, *, columns = None, replace = false, progress = None))]
    fn from_parquet(
        py: Python<'_>,
        volume: &Bound<'_, Volume>,
        name: String,
        path: PathBuf,
        columns: Option<Vec<String>>,
        replace: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        Self::import_file(py, volume, name, path, columns, None, None, replace, progress)
    }

    /// Name of the table.
    #[getter]
    fn name(&self) -> &str {
        self.table.name()
    }

    /// The volume that holds the table.
    #[getter]
    fn volume(&self, py: Python<'_>) -> Py<Volume> {
        self.volume.clone_ref(py)
    }

    /// Number of rows, and the dimensions of a row.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape_of(&[self.layout().rows()]))
    }

    /// Type of the elements, as numpy names it.
    #[getter]
    fn dtype(&self) -> &'static str {
        dtype::name_of(self.layout().element())
    }

    /// Where gathered rows are: ``cpu``, or ``cuda:0`` and so on.
    #[getter]
    fn device(&self) -> String {
        self.volume.get().shared().device()
    }

    /// Bytes of a row.
    #[getter]
    fn row_bytes(&self) -> u64 {
        self.layout().row_bytes()
    }

    fn __len__(&self) -> usize {
        self.layout().rows() as usize
    }

    fn __getitem__<'py>(&self, py: Python<'py>, indices: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.gather_to(py, &Named::of(indices, &self.table)?, None, None)
    }

    fn __setitem__(&self, py: Python<'_>, indices: &Bound<'_, PyAny>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(py, &Named::of(indices, &self.table)?, rows, Combine::Last)
    }

    /// Gathers rows. Returns a tensor in the engine's memory, or ``out`` with the rows: an array of numpy, or a tensor of another library on
    /// the engine's GPU. The rows are complete when the call returns.
    ///
    /// With a ``stream`` the gather begins behind all work of it. For arrays of a GPU that is torch's or cupy's current stream.
    #[pyo3(signature = (indices, out = None, *, stream = None))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.gather_to(py, &Named::of(indices, &self.table)?, out, stream)
    }

    /// Begins to gather rows, and returns at once. ``take`` of the result returns them. Several batches may be in flight.
    #[pyo3(signature = (indices, *, stream = None))]
    fn prefetch<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Prefetch> {
        let named = Named::of(indices, &self.table)?;
        let stream = self.stream(stream, &[(&named.object, named.on_gpu)])?;
        let flight = self.start(py, &named, Output::New, stream)?;
        let weak: Weak<Held<Flight>> = Arc::downgrade(&flight);
        self.volume.get().shared().enter_in_flight(weak);
        Ok(Prefetch { flight, shape: self.shape_of(&named.shape), volume: self.volume.clone_ref(py) })
    }

    /// Writes rows: ``rows[i]`` to row ``indices[i]``. They are on the devices when the call returns, and durable after ``flush``.
    ///
    /// ``combine`` says what is stored for a row that several indices name: ``"last"`` the last one, ``"sum"`` the sum of them, ``"add"``
    /// the row that was stored plus the sum.
    #[pyo3(signature = (indices, rows, combine = "last"))]
    fn scatter<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
        rows: &Bound<'py, PyAny>,
        combine: &str,
    ) -> PyResult<()> {
        let combine = match combine {
            "last" => Combine::Last,
            "sum" => Combine::Sum,
            "add" => Combine::Add,
            other => return Err(Failure::invalid(format!("combine is `{other}`; use last, sum or add")).into()),
        };
        self.put(py, &Named::of(indices, &self.table)?, rows, combine)
    }

    /// Makes rows that were written durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |table, _| Ok(table.flush()?))
    }

    /// Drops all rows from the caches, for writes around this object.
    fn drop_caches(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |table, _| Ok(table.drop_caches()?))
    }

    /// Reads all rows, and compares them with their checksum. Returns true if they match.
    fn verify(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |table, _| Ok(table.verify()?))
    }

    /// Returns the numbers of rows from each source as a dict.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_python(py, &self.call(py, |table, _| Ok(table.stats()?))?)
    }

    /// Sets the counters to 0.
    fn reset_stats(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |table, _| Ok(table.reset_stats()?))
    }

    /// Returns the bytes of the ``wb_table_view`` that kernels make a ``table_ref`` of. They are valid while this object lives.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        fork::check()?;
        Ok(PyBytes::new(py, bytemuck::bytes_of(&self.table.view())))
    }

    /// Allocates memory for batches of at most ``rows`` rows that own kernels gather, one after the other, with ``in_flight`` reads in
    /// flight.
    #[pyo3(signature = (rows, in_flight = 4096))]
    fn scratch(slf: &Bound<'_, Self>, rows: u64, in_flight: u32) -> PyResult<TableScratch> {
        TableScratch::new(slf, rows, in_flight)
    }

    /// Copies the view to memory that the engine's kernels see, for kernels that take its address.
    fn device_view(slf: &Bound<'_, Self>) -> PyResult<DeviceView> {
        let this = slf.get();
        DeviceView::new(this.shared(), slf.clone().into_any(), bytemuck::bytes_of(&this.table.view()))
    }

    fn __repr__(&self) -> String {
        let shape = self.shape_of(&[self.layout().rows()]);
        let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
        format!("Table({}, ({}), {})", self.name(), shape.join(", "), Self::dtype(self))
    }
}
