//! Caches, and the stored arrays that are accessed through them.

use crate::call::{self, Shared, Stop};
use crate::dtype;
use crate::engine::as_python;
use crate::error::{Failure, wrong_type};
use crate::external::DeviceView;
use crate::fork;
use crate::held::Held;
use crate::host_array::{Fresh, Source};
use crate::view;
use crate::volume::Volume;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyString};
use serde_json::json;
use std::sync::Arc;
use warpbell::storage::{ElementType, UntypedArray};

/// Pages of a volume in memory near the kernels. ``bytes`` is the memory for pages, ``page_bytes`` a power of two from 512 to 65536.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct Cache {
    cache: Held<warpbell::storage::Cache>,
    shared: Arc<Shared>,
}

impl Cache {
    pub(crate) fn get(&self) -> &warpbell::storage::Cache {
        &self.cache
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&warpbell::storage::Cache) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        let cache = self.cache.clone();
        call::call(py, &self.shared, move |_| work(&cache).map_err(|e| e.on(cache.volume())))
    }
}

#[pymethods]
impl Cache {
    #[new]
    #[pyo3(signature = (volume, bytes = 64 << 20, *, page_bytes = None))]
    fn new(py: Python<'_>, volume: &Volume, bytes: u64, page_bytes: Option<usize>) -> PyResult<Self> {
        let cache = volume.call(py, move |v, _| {
            let builder = warpbell::storage::Cache::on(v).bytes(bytes);
            Ok(page_bytes.into_iter().fold(builder, |builder, page| builder.page(page)).build()?)
        })?;
        Ok(Self { cache: Held::new(cache), shared: volume.shared().clone() })
    }

    /// Memory for pages in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// Size of a page in bytes.
    #[getter]
    fn page_bytes(&self) -> usize {
        self.cache.page_bytes()
    }

    /// Opens a stored array.
    fn open(&self, py: Python<'_>, name: String) -> PyResult<Array> {
        let array = self.call(py, move |cache| Ok(cache.open_untyped(&name)?))?;
        Ok(Array { array: Held::new(array), shared: self.shared.clone() })
    }

    /// Writes all changed pages to the devices, and makes them durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |cache| Ok(cache.flush()?))
    }

    /// Writes all changed pages to the devices, and drops all pages.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |cache| Ok(cache.reset()?))
    }

    /// Drops all pages, changed ones too.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |cache| Ok(cache.discard()?))
    }

    /// Returns the numbers of pages in each state as a dict.
    fn occupancy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let o = self.call(py, |cache| Ok(cache.occupancy()?))?;
        let counts = json!({
            "frames": o.frames, "valid": o.valid, "dirty": o.dirty, "busy": o.busy, "failed": o.failed, "pinned": o.pinned,
        });
        as_python(py, &counts)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", &*self.cache)
    }
}

/// A stored array, accessed through a cache. ``Cache.open`` makes it.
///
/// ``array[3]`` and ``array[10:20]`` read elements as numpy does, and assignments write them to the cache.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct Array {
    array: Held<UntypedArray>,
    shared: Arc<Shared>,
}

impl Array {
    pub(crate) fn get(&self) -> &UntypedArray {
        &self.array
    }

    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&UntypedArray, &Stop) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        let array = self.array.clone();
        call::call(py, &self.shared, move |stop| work(&array, stop).map_err(|e| e.on(array.cache().volume())))
    }

    /// Returns first and number of the elements that an index names, and true if it is a single one.
    fn range(&self, index: &Bound<'_, PyAny>) -> PyResult<(u64, u64, bool)> {
        let len = self.array.len();
        if let Ok(slice) = index.cast::<PySlice>() {
            let indices = slice.indices(len as isize)?;
            if indices.step != 1 {
                let text = format!(
                    "a step of {}; elements are read one behind the other, so read them all and choose then",
                    indices.step
                );
                return Err(Failure::invalid(text).into());
            }
            return Ok((indices.start as u64, indices.slicelength as u64, false));
        }
        let index: i64 = index.extract().map_err(|_| wrong_type("an index is a number or a slice such as 10:20"))?;
        let found = if index < 0 { len.checked_add_signed(index) } else { Some(index as u64) };
        match found.filter(|i| *i < len) {
            Some(found) => Ok((found, 1, true)),
            None => Err(PyIndexError::new_err(format!("index {index} is no element; the array has {len} elements"))),
        }
    }
}

#[pymethods]
impl Array {
    /// Name of the stored array.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.array.name()
    }

    /// Type of the elements, as numpy names it.
    #[getter]
    fn dtype(&self) -> String {
        match self.array.element_type() {
            ElementType::Record => format!("V{}", self.array.element_bytes()),
            other => dtype::name_of(other).to_owned(),
        }
    }

    fn __len__(&self) -> usize {
        self.array.len() as usize
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (first, count, single) = self.range(index)?;
        let mut fresh = Fresh::new(py, &[count], self.array.element_type(), self.array.element_bytes() as u64)?;
        let filled = self.call(py, move |array, _| {
            array.read(first, fresh.bytes())?;
            Ok(fresh)
        })?;
        let values = filled.into_array(py);
        if single { values.get_item(0) } else { Ok(values) }
    }

    fn __setitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let (first, count, _) = self.range(index)?;
        let numpy = py.import("numpy")?;
        let kind = match self.array.element_type() {
            ElementType::Record => PyString::new(py, &self.dtype()).into_any(),
            other => dtype::numpy_of(py, other)?,
        };
        let values = numpy.call_method1("asarray", (view::as_numpy(values)?, kind))?;
        let values = numpy.call_method1("broadcast_to", (values, (count,)))?;
        let source = Source::of(&values, None, "values")?;
        let each = self.array.element_bytes();
        self.call(py, move |array, stop| {
            source.each_piece(|at, piece| {
                stop.check()?;
                Ok(array.write(first + (at / each) as u64, piece)?)
            })
        })
    }

    /// Reads all pages of the array into the cache, as far as they fit.
    fn warm(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |array, _| Ok(array.warm()?))
    }

    /// Returns the bytes of the ``wb_array_view`` that kernels make an ``array_ref`` of. They are valid while this object lives.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        fork::check()?;
        Ok(PyBytes::new(py, bytemuck::bytes_of(&self.array.view())))
    }

    /// Copies the view to memory that the engine's kernels see, for kernels that take its address.
    fn device_view(slf: &Bound<'_, Self>) -> PyResult<DeviceView> {
        let this = slf.get();
        DeviceView::new(&this.shared, slf.clone().into_any(), bytemuck::bytes_of(&this.array.view()))
    }

    fn __repr__(&self) -> String {
        format!("Array({}, {} {})", self.name().unwrap_or("?"), self.array.len(), self.dtype())
    }
}
