//! Memory of batches that kernels of other libraries gather.

use crate::error::Failure;
use crate::external::DeviceView;
use crate::fork;
use crate::held::Held;
use crate::table::Table;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Memory of one batch at a time, for own kernels that gather rows of a table (``table_ref`` of ``table.cuh``). ``Table.scratch`` makes it.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct TableScratch {
    scratch: Mutex<Held<warpbell::storage::TableScratch>>,
    table: Py<Table>,
}

impl TableScratch {
    pub(crate) fn new(table: &Bound<'_, Table>, rows: u64, in_flight: u32) -> PyResult<Self> {
        let made = table.get().call(table.py(), move |table, _| Ok(Held::new(table.scratch(rows, in_flight)?)))?;
        Ok(Self { scratch: Mutex::new(made), table: table.clone().unbind() })
    }

    /// Keeps the memory until a run is finished.
    pub(crate) fn keep_in(&self, run: &mut warpbell::engine::Run) {
        run.keep(&**self.scratch.lock());
    }

    pub(crate) fn table(&self) -> &Table {
        self.table.get()
    }
}

#[pymethods]
impl TableScratch {
    /// Begins another batch: before each launch that uses the scratch, when kernels of the batch before have ended. Views from before are
    /// no longer valid. After a run that failed, make another scratch.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        fork::check()?;
        Ok(py.detach(|| self.scratch.lock().begin().map_err(Failure::from))?)
    }

    /// Returns the bytes of the ``wb_table_scratch`` of this batch.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        fork::check()?;
        Ok(PyBytes::new(py, bytemuck::bytes_of(&self.scratch.lock().view())))
    }

    /// Copies the view to memory that the engine's kernels see, for kernels that take its address.
    fn device_view(slf: &Bound<'_, Self>) -> PyResult<DeviceView> {
        let view = slf.get().scratch.lock().view();
        DeviceView::new(slf.get().table().shared(), slf.clone().into_any(), bytemuck::bytes_of(&view))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", **self.scratch.lock())
    }
}
