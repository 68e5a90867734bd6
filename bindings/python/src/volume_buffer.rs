//! Arrays of other libraries that kernels read blocks of a volume into, and write them from.

use crate::call;
use crate::error::Failure;
use crate::fork;
use crate::held::Held;
use crate::segments;
use crate::volume::Volume;
use pyo3::prelude::*;
use std::sync::Arc;
use warpbell::storage::DataBuffer;

/// An array that own kernels name in reads and writes of a volume's blocks. ``Volume.map`` makes it.
///
/// Devices reach the memory, and kernels take ``address``, while this object lives or a run keeps it.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct VolumeBuffer {
    buffer: Arc<Held<DataBuffer>>,
    volume: Py<Volume>,
}

impl VolumeBuffer {
    pub(crate) fn new(volume: &Bound<'_, Volume>, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let this = volume.get();
        // Kernels may write to it.
        let (_, region) = segments::memory(array, this.get().engine(), true, "array")?;
        let buffer = call::begin(volume.py(), this.shared(), || {
            let mapped = this.get().map_data(&region).map_err(|e| Failure::from(e).on(this.get()))?;
            Ok(Held::new(mapped))
        })?;
        Ok(Self { buffer: Arc::new(buffer), volume: volume.clone().unbind() })
    }

    pub(crate) fn held(&self) -> Arc<Held<DataBuffer>> {
        self.buffer.clone()
    }

    pub(crate) fn volume(&self) -> &Py<Volume> {
        &self.volume
    }
}

#[pymethods]
impl VolumeBuffer {
    /// Address of the first byte, as kernels see it.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        fork::check()?;
        Ok(self.buffer.address())
    }

    /// Size of the array in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.buffer.len()
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("VolumeBuffer({} bytes at {:#x})", self.nbytes(), self.address()?))
    }
}
