//! Arrays of other libraries: numpy's by `__array_interface__`, those on a GPU by `__cuda_array_interface__`. The two protocols describe
//! memory alike, so that one parser serves both. Objects that have neither are taken by DLPack.

use crate::dtype;
use crate::error::{Failure, wrong_type};
use crate::tensor::Tensor;
use dlpark::ffi::{DLDevice, DLDeviceType};
use dlpark::python::consumer::{DlpackStream, ImportRequest, StreamArg};
use dlpark::{AllocationDeleter, DlpackFlags};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use warpbell::engine::Engine;
use warpbell::memory::{Region, Space};
use warpbell::storage::ElementType;

/// Memory of an array, and the object that owns it.
pub(crate) struct View {
    pub(crate) on_gpu: bool,
    pointer: u64,
    pub(crate) readonly: bool,
    pub(crate) shape: Vec<u64>,
    /// Type of the elements as the protocol writes it.
    pub(crate) typestr: String,
    item_bytes: u64,
    pub(crate) contiguous: bool,
    owner: Arc<Owner>,
}

/// The object, or its share of the memory. Regions keep it.
enum Owner {
    Object(#[expect(dead_code, reason = "only kept")] Py<PyAny>),
    Share(#[expect(dead_code, reason = "only kept")] AllocationDeleter),
}

impl View {
    pub(crate) fn address(&self) -> u64 {
        self.pointer
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Returns the bytes of all elements.
    pub(crate) fn bytes(&self) -> u64 {
        self.len() * self.item_bytes
    }

    /// Returns the type of the elements.
    pub(crate) fn element(&self) -> Option<ElementType> {
        dtype::from_typestr(&self.typestr)
    }

    fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        self.owner.clone()
    }

    /// Makes the memory a region of the engine: of its GPU, or of the host for CPU threads. `what` names the array in errors. The view has
    /// at least one byte.
    pub(crate) fn on_engine(&self, engine: &Engine, what: &str) -> Result<Region, Failure> {
        if self.on_gpu != engine.is_gpu() {
            let (has, runs) = if self.on_gpu { ("a GPU", "CPU threads") } else { ("the host", "a GPU") };
            return Err(Failure::invalid(format!(
                "{what}: memory of {has}, and kernels run on {runs}; copy it there first"
            )));
        }
        self.check_contiguous(what)?;
        if !self.pointer.is_multiple_of(4) {
            return Err(Failure::invalid(format!(
                "{what}: it begins at address {:#x}, which kernels do not reach; it has to be a multiple of 4",
                self.pointer
            )));
        }
        // SAFETY: the protocol says that the memory is valid while its object lives, which the region keeps.
        Ok(unsafe { engine.space().import_device(self.pointer, self.bytes() as usize, self.keep()) }?)
    }

    /// Makes memory of the host a region, which the host copies from and to whatever Python does to the array meanwhile. The view has at
    /// least one byte.
    pub(crate) fn on_host(&self, what: &str) -> Result<Region, Failure> {
        self.check_contiguous(what)?;
        let base = NonNull::new(self.pointer as *mut u8).filter(|_| !self.on_gpu);
        let base = base.ok_or_else(|| Failure::invalid(format!("{what}: it is no memory of the host")))?;
        // SAFETY: the protocol says that the memory is valid while its object lives, which the region keeps.
        Ok(unsafe { Space::cpu().import_host(base, self.bytes() as usize, false, self.keep()) }?)
    }

    pub(crate) fn check_contiguous(&self, what: &str) -> Result<(), Failure> {
        if self.contiguous {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "{what}: its rows are not one behind the other in memory; make it C-contiguous first"
        )))
    }

    pub(crate) fn check_writable(&self, what: &str) -> Result<(), Failure> {
        if !self.readonly {
            return Ok(());
        }
        Err(Failure::invalid(format!("{what}: it is read-only; pass an array that may be written to")))
    }
}

/// Describes an array of the host or of a GPU. Other objects become a numpy array: lists, and arrays of the host in other libraries.
pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<View> {
    let py = object.py();
    if let Ok(tensor) = object.cast::<Tensor>() {
        tensor.get().check()?;
    }
    if let Some(interface) = object.getattr_opt(intern!(py, "__cuda_array_interface__"))? {
        return parse(object, &interface, true);
    }
    if has_only_dlpack(object)? {
        return of_dlpack(object);
    }
    if let Some(bits) = bits_of_bfloat16(object)? {
        return Ok(View { typestr: dtype::typestr_of(ElementType::Bf16), ..of_numpy(&bits)? });
    }
    of_numpy(&py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "asarray"), (object,))?)
}

/// Makes an array of numpy of lists, and of arrays of the host in other libraries.
pub(crate) fn as_numpy<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if let Some(bits) = bits_of_bfloat16(object)? {
        return bits.call_method1(intern!(py, "view"), (dtype::numpy_of(py, ElementType::Bf16)?,));
    }
    let function = if has_only_dlpack(object)? { intern!(py, "from_dlpack") } else { intern!(py, "asarray") };
    py.import(intern!(py, "numpy"))?.call_method1(function, (object,))
}

/// Returns the bits of a tensor of torch in memory of the host whose type numpy lacks; they share its memory.
pub(crate) fn bits_of_bfloat16<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let Some(dtype) = object.getattr_opt(intern!(py, "dtype"))? else { return Ok(None) };
    if dtype.str()?.to_str()? != "torch.bfloat16" {
        return Ok(None);
    }
    let bits = py.import(intern!(py, "torch"))?.getattr(intern!(py, "int16"))?;
    let bits = object.call_method1(intern!(py, "view"), (bits,))?;
    py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "asarray"), (bits,)).map(Some)
}

/// Returns true for objects that numpy would not take for arrays otherwise.
fn has_only_dlpack(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let has = |name| object.hasattr(name);
    Ok(has(intern!(py, "__dlpack__"))? && !has(intern!(py, "__array_interface__"))? && !has(intern!(py, "__array__"))?)
}

/// The legacy default stream of CUDA, on which memory of a GPU is to be complete.
struct DefaultStream;

// SAFETY: every context has this stream, which lives as long as it does.
unsafe impl DlpackStream for DefaultStream {
    fn as_python_arg(&self, _: Python<'_>, _: DLDevice) -> PyResult<StreamArg> {
        Ok(dlpark::python::consumer::stream::cuda(ptr::null_mut()))
    }
}

fn of_dlpack(object: &Bound<'_, PyAny>) -> PyResult<View> {
    let request = ImportRequest::new(object.as_borrowed())?;
    let on_gpu = match request.device()?.device_type {
        DLDeviceType::CUDA => true,
        DLDeviceType::CPU | DLDeviceType::CUDAHOST => false,
        other => {
            return Err(wrong_type(format!(
                "memory of a device of DLPack's type {}; use the host or a CUDA GPU",
                other.0
            )));
        }
    };
    let imported = request.import(if on_gpu { Some(&DefaultStream) } else { None }, None)?;
    let wrong = |e: dlpark::tensor::Error| wrong_type(e.to_string());
    let tensor = imported.validate().map_err(wrong)?;
    let typestr = dtype::typestr_of_dlpack(tensor.dtype())?;
    let shape = tensor.shape().iter().map(|n| n.unsigned_abs()).collect();
    let pointer = tensor.data_ptr() as u64 + tensor.byte_offset();
    let item_bytes = u64::from(tensor.dtype().bits / 8);
    let contiguous = tensor.is_compact().map_err(wrong)?;
    // Rows that are written to a copy would be lost.
    let readonly = imported.flags().intersects(DlpackFlags::READ_ONLY | DlpackFlags::IS_COPIED);
    let owner = Arc::new(Owner::Share(imported.into_deleter()));
    Ok(View { on_gpu, pointer, readonly, shape, typestr, item_bytes, contiguous, owner })
}

/// Describes an array of numpy.
pub(crate) fn of_numpy(array: &Bound<'_, PyAny>) -> PyResult<View> {
    parse(array, &array.getattr(intern!(array.py(), "__array_interface__"))?, false)
}

fn parse(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyAny>, on_gpu: bool) -> PyResult<View> {
    let py = object.py();
    let interface =
        interface.cast::<PyDict>().map_err(|_| wrong_type("the array interface of the argument is no dict"))?;
    let get = |name: &str| -> PyResult<Bound<'_, PyAny>> {
        let missing = || wrong_type(format!("the array interface of the argument has no `{name}`"));
        interface.get_item(name)?.ok_or_else(missing)
    };
    let (pointer, readonly): (u64, bool) = get("data")?.extract()?;
    let shape: Vec<u64> = get("shape")?.extract()?;
    let typestr: String = get("typestr")?.extract()?;
    let item_bytes = typestr.get(2..).and_then(|n| n.parse().ok());
    let item_bytes: u64 =
        item_bytes.ok_or_else(|| wrong_type(format!("elements of type {typestr} are not numbers")))?;
    let bytes = shape.iter().try_fold(item_bytes, |all, n| all.checked_mul(*n)).filter(|b| *b <= isize::MAX as u64);
    if bytes.is_none() {
        return Err(wrong_type(format!("an array of shape {shape:?} does not fit in memory")));
    }
    let strides: Option<Vec<i64>> = match interface.get_item(intern!(py, "strides"))? {
        Some(strides) => strides.extract()?,
        None => None,
    };
    let contiguous = strides.is_none_or(|strides| {
        let mut expected = item_bytes;
        let same = |(n, stride): (&u64, &i64)| {
            let fits = *n <= 1 || i64::try_from(expected) == Ok(*stride);
            expected *= n;
            fits
        };
        shape.contains(&0) || (strides.len() == shape.len() && shape.iter().zip(&strides).rev().all(same))
    });
    let owner = Arc::new(Owner::Object(object.clone().unbind()));
    Ok(View { on_gpu, pointer, readonly, shape, typestr, item_bytes, contiguous, owner })
}
