//! Results in the engine's memory, for numpy, torch, cupy and others without a copy.

use crate::call::{self, Shared};
use crate::dtype;
use crate::error::{Failure, wrong_type};
use crate::fork;
use crate::held::Held;
use crate::host_array::Fresh;
use crate::stream;
use crate::symmetric::Part;
use dlpark::ffi::{DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::python::{DlpackExporter, ExportRequest, export_dlpack};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;
use warpbell::memory::Region;
use warpbell::storage::{DataBuffer, ElementType};

/// Memory of a result.
pub(crate) enum Memory {
    Buffer(DataBuffer),
    Region(Region),
    /// A part of the symmetric heap: of this PE, or as this PE's kernels reach it on another one.
    Symmetric(Part),
}

impl Memory {
    fn address(&self) -> u64 {
        match self {
            Self::Buffer(buffer) => buffer.address(),
            Self::Region(region) => region.address(),
            Self::Symmetric(part) => part.address,
        }
    }

    fn read(&self, at: usize, out: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Buffer(buffer) => Ok(buffer.read(at, out)?),
            Self::Region(region) => Ok(region.read(at, out)?),
            Self::Symmetric(part) => part.read(at, out),
        }
    }

    /// Copies the first bytes to memory of the host, in pieces.
    pub(crate) fn copy_to(&self, to: &Region, bytes: usize) -> Result<(), Failure> {
        pieces(bytes, |at, piece| {
            self.read(at, piece)?;
            Ok(to.write(at, piece)?)
        })
    }
}

/// Largest piece of a copy between the host and other memory.
const PIECE: usize = 8 << 20;

/// Calls `each` with an offset and a buffer for each piece of `bytes` bytes.
pub(crate) fn pieces(
    bytes: usize,
    mut each: impl FnMut(usize, &mut [u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut piece = vec![0; bytes.min(PIECE)];
    let mut at = 0;
    while at < bytes {
        let now = (bytes - at).min(PIECE);
        each(at, &mut piece[..now])?;
        at += now;
    }
    Ok(())
}

/// Rows or values in the engine's memory: of its GPU, or of the host for an engine on CPU threads.
///
/// ``numpy.asarray(tensor)`` shares memory of the host, and copies memory of a GPU. ``torch.from_dlpack(tensor)`` and
/// ``cupy.from_dlpack(tensor)`` share both, and so does ``jax.dlpack.from_dlpack(tensor)``, but for elements of 64 bits: jax makes a copy
/// of 32 bits, unless ``JAX_ENABLE_X64=1`` is set.
#[pyclass(frozen, subclass, module = "warpbell")]
pub(crate) struct Tensor {
    memory: Arc<Held<Memory>>,
    shape: Vec<u64>,
    element: ElementType,
    shared: Arc<Shared>,
}

impl Tensor {
    pub(crate) fn new(memory: Memory, shape: Vec<u64>, element: ElementType, shared: &Arc<Shared>) -> Self {
        Self { memory: Arc::new(Held::new(memory)), shape, element, shared: shared.clone() }
    }

    /// Fails in a forked child, whose memory of a GPU is the parent's.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        fork::check()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn dimensions(&self) -> &[u64] {
        &self.shape
    }

    pub(crate) fn element(&self) -> ElementType {
        self.element
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<u64>() as usize * dtype::bytes_of(self.element)
    }

    /// Describes the memory as both array interfaces do.
    fn interface<'py>(&self, py: Python<'py>, version: u32) -> PyResult<Bound<'py, PyDict>> {
        self.check()?;
        let interface = PyDict::new(py);
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", dtype::typestr_of(self.element))?;
        // Without elements the pointer has to be null on a GPU.
        let pointer = if self.bytes() == 0 && self.on_gpu() { 0 } else { self.memory.address() };
        interface.set_item("data", (pointer, false))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("version", version)?;
        Ok(interface)
    }

    fn on_gpu(&self) -> bool {
        self.shared.engine().is_gpu()
    }

    fn managed<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        let failed = |e: dlpark::metadata::Error| PyBufferError::new_err(e.to_string());
        let made = Dynamic::compact(&self.shape[..]).initialize_as::<M>(self.memory.clone());
        let mut made = made.map_err(failed)?;
        made.set_data(self.memory.address() as *mut _);
        made.set_dtype(dtype::dlpack_of(self.element));
        made.set_device(DlpackExporter::device(self));
        // SAFETY: shape and type describe memory of as many bytes, which the context keeps. Results have no pending work: they are made
        // when it is over.
        Ok(unsafe { made.finish() })
    }
}

impl DlpackExporter for Tensor {
    fn device(&self) -> DLDevice {
        match self.shared.ordinal() {
            Some(ordinal) => DLDevice { device_type: DLDeviceType::CUDA, device_id: ordinal as i32 },
            None => DLDevice::CPU,
        }
    }

    fn flags(&self) -> DlpackFlags {
        DlpackFlags::empty()
    }

    fn prepare_export(&self, _: Python<'_>, _: &ExportRequest<'_>) -> PyResult<()> {
        // The work that made the result is over, so that any stream may use it.
        Ok(self.check()?)
    }

    fn export_legacy(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        self.managed()
    }

    fn export_versioned(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.managed()
    }
}

#[pymethods]
impl Tensor {
    /// Dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Type of the elements, as numpy names it.
    #[getter]
    fn dtype(&self) -> &'static str {
        dtype::name_of(self.element)
    }

    /// Size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes()
    }

    /// ``cpu``, or ``cuda:0`` and so on.
    #[getter]
    fn device(&self) -> String {
        self.shared.device()
    }

    /// Returns the elements as a numpy array: the same memory if it is the host's, or a copy.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        this.check()?;
        let numpy = py.import(intern!(py, "numpy"))?;
        if !this.on_gpu() {
            let array = numpy.call_method1(intern!(py, "asarray"), (AsInterface::of(slf)?,))?;
            if this.element == ElementType::Bf16 {
                return array.call_method1(intern!(py, "view"), (dtype::numpy_of(py, this.element)?,));
            }
            return Ok(array);
        }
        let mut fresh = Fresh::new(py, &this.shape, this.element, 1)?;
        let (memory, shared) = (this.memory.clone(), this.shared.clone());
        // Results have no work in flight, but torch may write to symmetric memory.
        let behind = match &**memory {
            Memory::Symmetric(_) => stream::of_torch(&shared, py)?,
            _ => None,
        };
        let filled = call::call(py, &this.shared, move |_| {
            stream::finish(&shared, behind.as_ref())?;
            memory.read(0, fresh.bytes())?;
            Ok(fresh)
        })?;
        Ok(filled.into_array(py))
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        if copy == Some(false) && this.on_gpu() {
            return Err(
                Failure::invalid("the tensor is memory of a GPU, which numpy cannot share; allow a copy").into()
            );
        }
        let array = Self::numpy(slf)?;
        let array = match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,))?,
            None => array,
        };
        // A copy from a GPU is one already.
        if copy == Some(true) && !this.on_gpu() { array.call_method0("copy") } else { Ok(array) }
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.on_gpu() {
            return self.interface(py, 3);
        }
        Err(pyo3::exceptions::PyAttributeError::new_err("the tensor is memory of the host; use numpy.asarray"))
    }

    fn __dlpack_device__(&self) -> (u32, i32) {
        let device = DlpackExporter::device(self);
        (device.device_type.0, device.device_id)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        export_dlpack(self, py, ExportRequest::parse(stream.as_ref(), max_version, dl_device, copy)?)
    }

    fn __len__(&self) -> PyResult<usize> {
        self.shape.first().map(|n| *n as usize).ok_or_else(|| wrong_type("a tensor without dimensions has no length"))
    }

    fn __repr__(&self) -> String {
        format!("Tensor({}, {}, {})", dtype::shape_text(&self.shape), Self::dtype(self), Self::device(self))
    }
}

/// Object that numpy makes an array of: `asarray` takes `__array_interface__` of this object, and keeps the object.
///
/// The tensor itself has no such attribute: `hasattr` finds attributes of a class whatever the engine is, and libraries would take
/// memory of a GPU for the host's.
#[pyclass(frozen)]
struct AsInterface {
    interface: Py<PyDict>,
    #[expect(dead_code, reason = "only kept")]
    tensor: Py<Tensor>,
}

impl AsInterface {
    fn of(tensor: &Bound<'_, Tensor>) -> PyResult<Self> {
        let interface = tensor.get().interface(tensor.py(), 3)?.unbind();
        Ok(Self { interface, tensor: tensor.clone().unbind() })
    }
}

#[pymethods]
impl AsInterface {
    #[getter]
    fn __array_interface__(&self, py: Python<'_>) -> Py<PyDict> {
        self.interface.clone_ref(py)
    }
}
