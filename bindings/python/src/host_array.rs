//! Arrays of numpy that the library fills, and arrays that it reads while the interpreter runs.

use crate::dtype;
use crate::error::Failure;
use crate::tensor::pieces;
use crate::view;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use warpbell::memory::Region;
use warpbell::storage::ElementType;

/// A new array of numpy that nothing else knows yet.
pub(crate) struct Fresh {
    array: Py<PyAny>,
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: the memory of the array is no thread's own, and `Fresh` is the only way to it.
unsafe impl Send for Fresh {}

impl Fresh {
    /// Makes an array. `record_bytes` is the size of an element of records.
    pub(crate) fn new(py: Python<'_>, shape: &[u64], element: ElementType, record_bytes: u64) -> PyResult<Self> {
        let kind = match element {
            ElementType::Record => PyString::new(py, &format!("V{record_bytes}")).into_any(),
            other => dtype::numpy_of(py, other)?,
        };
        let shape = PyTuple::new(py, shape)?;
        let array = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "empty"), (shape, kind))?;
        let interface = array.getattr(intern!(py, "__array_interface__"))?;
        let (pointer, _): (usize, bool) = interface.get_item(intern!(py, "data"))?.extract()?;
        let bytes = array.getattr(intern!(py, "nbytes"))?.extract()?;
        Ok(Self { array: array.unbind(), pointer: pointer as *mut u8, bytes })
    }

    /// Returns the memory of the array.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: numpy has made memory of as many bytes, which live as long as the array. Nobody else has the array.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }

    pub(crate) fn into_array(self, py: Python<'_>) -> Bound<'_, PyAny> {
        self.array.into_bound(py)
    }
}

/// An array of numpy whose elements lie one behind the other, for the library to read. Other threads of Python may change it meanwhile;
/// what is read then is one or the other.
pub(crate) struct Source {
    pub(crate) shape: Vec<u64>,
    pub(crate) typestr: String,
    /// Type of the elements as numpy names it.
    name: String,
    bytes: usize,
    region: Option<Region>,
}

impl Source {
    /// Takes an array, list, or tensor of the host: its elements as they are, or integers in this type.
    pub(crate) fn of(object: &Bound<'_, PyAny>, dtype: Option<&str>, what: &str) -> PyResult<Self> {
        let py = object.py();
        if object.getattr_opt(intern!(py, "__cuda_array_interface__"))?.is_some() {
            return Err(Failure::invalid(format!("{what}: memory of a GPU; copy it to the host first")).into());
        }
        let numpy = py.import(intern!(py, "numpy"))?;
        if let Some(bits) = view::bits_of_bfloat16(object)?.filter(|_| dtype.is_none()) {
            let bits = Self::of(&bits, None, what)?;
            let name = dtype::name_of(ElementType::Bf16).to_owned();
            return Ok(Self { typestr: dtype::typestr_of(ElementType::Bf16), name, ..bits });
        }
        let array = view::as_numpy(object)?;
        if let Some(dtype) = dtype {
            // numpy would cut off what is behind the point.
            let found = array.getattr(intern!(py, "dtype"))?;
            let kind: String = found.getattr(intern!(py, "kind"))?.extract()?;
            if !matches!(kind.as_str(), "i" | "u" | "b") && array.getattr(intern!(py, "size"))?.extract::<usize>()? > 0
            {
                return Err(Failure::invalid(format!(
                    "{what}: elements of type {found}; give integers, which become {dtype}"
                ))
                .into());
            }
        }
        // `ascontiguousarray` makes an array of one dimension of a number.
        let array = match array.getattr("ndim")?.extract::<usize>()? {
            0 => return Err(Failure::invalid(format!("{what}: a single number; give an array")).into()),
            _ => numpy.call_method1(intern!(py, "ascontiguousarray"), (array, dtype))?,
        };
        let name = array.getattr(intern!(py, "dtype"))?.str()?.extract()?;
        let view = view::of_numpy(&array)?;
        let bytes = view.bytes() as usize;
        let region = if bytes == 0 { None } else { Some(view.on_host(what)?) };
        Ok(Self { shape: view.shape, typestr: view.typestr, name, bytes, region })
    }

    /// Returns the type of the elements.
    pub(crate) fn element(&self) -> Result<ElementType, Failure> {
        dtype::from_typestr(&self.typestr).map_or_else(|| dtype::from_name(&self.name), Ok)
    }

    /// Returns the size of all elements.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Calls `each` with one piece of the bytes after the other, and its offset.
    pub(crate) fn each_piece(&self, mut each: impl FnMut(usize, &[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        let Some(region) = &self.region else { return Ok(()) };
        pieces(self.bytes, |at, piece| {
            region.read(at, piece)?;
            each(at, piece)
        })
    }

    /// Copies the elements, which have the size of `T`.
    pub(crate) fn to_vec<T: bytemuck::Pod>(&self) -> Result<Vec<T>, Failure> {
        match &self.region {
            Some(region) => Ok(region.get_slice(0, self.bytes / size_of::<T>())?),
            None => Ok(Vec::new()),
        }
    }
}
