//! Symmetric memory as tensors: as many elements on every PE, at one offset of its heap.

use crate::call;
use crate::call::Shared;
use crate::dtype;
use crate::error::{Failure, wrong_type};
use crate::fork;
use crate::held::Held;
use crate::host_array::Source;
use crate::stream;
use crate::tensor::{Memory, Tensor};
use crate::view;
use crate::world_error::WorldFailure;
use bytemuck::Pod;
use parking_lot::Mutex;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyEllipsis, PySlice, PyTuple};
use std::sync::{Arc, Weak};
use warpbell::shmem::{ShmemError, Sym, SymSlice, World};
use warpbell::storage::ElementType;

/// An allocation of the symmetric heap. All tensors, slices and views of it share this.
pub(crate) type Block = Held<Sym<u8>>;

/// Bytes of an allocation, as kernels of this PE reach them: of this PE, or of another one.
#[derive(Clone)]
pub(crate) struct Part {
    block: Arc<Block>,
    first: usize,
    bytes: usize,
    /// The PE whose memory this is.
    pe: usize,
    pub(crate) address: u64,
}

impl Part {
    fn new(block: Arc<Block>, first: usize, bytes: usize, pe: usize) -> Result<Self, ShmemError> {
        let address = block.ptr(pe).ok_or(ShmemError::OutOfReach { pe })? + first as u64;
        Ok(Self { block, first, bytes, pe, address })
    }

    /// Returns a range of these bytes.
    pub(crate) fn part(&self, first: usize, bytes: usize) -> Self {
        Self { first: self.first + first, bytes, address: self.address + first as u64, ..self.clone() }
    }

    fn world(&self) -> &World {
        self.block.world()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_of(&self, world: &World) -> bool {
        self.world().is_same(world)
    }

    fn is_own(&self) -> bool {
        self.pe == self.world().my_pe()
    }

    /// Returns the bytes as elements.
    pub(crate) fn elements<T: Pod>(&self) -> Result<SymSlice<'_, T>, ShmemError> {
        self.block.slice(self.first..self.first + self.bytes)?.cast()
    }

    pub(crate) fn read(&self, at: usize, out: &mut [u8]) -> Result<(), Failure> {
        let done = self.elements::<u8>().and_then(|all| all.slice(at..)?.get_to(0, out, self.pe));
        done.map_err(|e| WorldFailure::from(e).on(self.world()))
    }
}

/// Symmetric elements that an argument names.
#[derive(Clone)]
pub(crate) struct Elements {
    pub(crate) part: Part,
    pub(crate) shape: Vec<u64>,
    pub(crate) element: ElementType,
}

impl Elements {
    fn of_tensor(tensor: &Tensor) -> Option<Self> {
        let Memory::Symmetric(part) = tensor.memory() else { return None };
        let (shape, element) = (tensor.dimensions().to_vec(), tensor.element());
        part.is_own().then(|| Self { part: part.clone(), shape, element })
    }

    pub(crate) fn dtype(&self) -> &'static str {
        dtype::name_of(self.element)
    }

    pub(crate) fn text(&self) -> String {
        format!("{} of {}", dtype::shape_text(&self.shape), self.dtype())
    }

    /// Returns values of the host as such elements.
    pub(crate) fn source(&self, values: &Bound<'_, PyAny>, what: &str) -> PyResult<Source> {
        source_of(&self.shape, self.element, values, what)
    }

    pub(crate) fn put(&self, source: &Source, pe: usize) -> Result<(), WorldFailure> {
        let all = self.part.elements::<u8>()?;
        let mut failed = None;
        let done = source.each_piece(|at, piece| {
            all.put(at, piece, pe).map_err(|e| {
                failed = Some(e);
                Failure::invalid("")
            })
        });
        match failed {
            Some(e) => Err(e.into()),
            None => Ok(done?),
        }
    }
}

/// Returns values of the host as elements of this shape and type. They are cast and repeated as numpy does in an assignment.
pub(crate) fn source_of(
    shape: &[u64],
    element: ElementType,
    values: &Bound<'_, PyAny>,
    what: &str,
) -> PyResult<Source> {
    let py = values.py();
    let options = PyDict::new(py);
    options.set_item("casting", "same_kind")?;
    options.set_item("copy", false)?;
    let array = view::as_numpy(values)?.call_method("astype", (dtype::numpy_of(py, element)?,), Some(&options))?;
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("broadcast_to", (array, PyTuple::new(py, shape)?))?;
    // A single number has no dimensions.
    Source::of(&numpy.call_method1("atleast_1d", (array,))?, None, what)
}

/// The live allocations of a world, to find them by address.
#[derive(Default)]
pub(crate) struct Blocks(Mutex<Vec<Weak<Block>>>);

impl Blocks {
    pub(crate) fn enter(&self, block: &Arc<Block>) {
        let mut all = self.0.lock();
        all.retain(|b| b.strong_count() > 0);
        all.push(Arc::downgrade(block));
    }

    /// Returns the elements that an argument names: a symmetric tensor, or an array of another library that shares its memory.
    pub(crate) fn find(&self, object: &Bound<'_, PyAny>, what: &str) -> PyResult<Elements> {
        self.find_if_symmetric(object)?.ok_or_else(|| {
            wrong_type(format!(
                "{what}: it is no symmetric memory of this PE in this world; pass a warpbell.SymmetricTensor, a slice of it, or an array that shares its memory"
            ))
        })
    }

    pub(crate) fn find_if_symmetric(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<Elements>> {
        if let Ok(tensor) = object.cast::<Tensor>() {
            return Ok(Elements::of_tensor(tensor.get()));
        }
        let is_array = object.hasattr("__cuda_array_interface__")? || object.hasattr("__array_interface__")?;
        if !is_array && !object.hasattr("__dlpack__")? {
            return Ok(None);
        }
        let found = view::of(object)?;
        let Some(element) = found.element() else { return Ok(None) };
        let (at, bytes) = (found.address(), found.bytes());
        let blocks: Vec<Arc<Block>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let holds = |b: &Arc<Block>| b.address() <= at && at + bytes <= b.address() + b.len() as u64;
        let block = blocks.iter().find(|b| holds(b) && bytes > 0);
        let Some(block) = block else { return Ok(None) };
        found.check_contiguous("the array")?;
        let me = block.world().my_pe();
        let part = Part::new(block.clone(), (at - block.address()) as usize, bytes as usize, me);
        let part = part.map_err(|e| Failure::from_world(&e))?;
        Ok(Some(Elements { part, shape: found.shape.clone(), element }))
    }
}

/// Elements in the symmetric heap: as many on every PE. ``World.zeros`` makes them.
///
/// It is a ``Tensor``: other libraries share this PE's part. ``tensor[3]`` and ``tensor[10:20]`` are parts of it, which name the same
/// elements on every PE, and ``tensor[10:20] = values`` writes this PE's part. The memory is free again when every PE has dropped its
/// tensors and all arrays that share them; a later collective call of the host finds that out.
#[pyclass(frozen, extends = Tensor, module = "warpbell")]
pub(crate) struct SymmetricTensor {
    elements: Elements,
}

impl SymmetricTensor {
    pub(crate) fn create<'py>(
        py: Python<'py>,
        block: Arc<Block>,
        shape: Vec<u64>,
        element: ElementType,
        shared: &Arc<Shared>,
    ) -> PyResult<Bound<'py, Self>> {
        let (bytes, me) = (block.len(), block.world().my_pe());
        let part = Part::new(block, 0, bytes, me).map_err(|e| Failure::from_world(&e))?;
        Self::of(py, Elements { part, shape, element }, shared)
    }

    fn of<'py>(py: Python<'py>, elements: Elements, shared: &Arc<Shared>) -> PyResult<Bound<'py, Self>> {
        let memory = Memory::Symmetric(elements.part.clone());
        let tensor = Tensor::new(memory, elements.shape.clone(), elements.element, shared);
        Bound::new(py, PyClassInitializer::from(tensor).add_subclass(Self { elements }))
    }

    /// Returns the allocation.
    pub(crate) fn block(&self) -> Arc<Block> {
        self.elements.part.block.clone()
    }

    fn shared<'a>(slf: &'a Bound<'_, Self>) -> &'a Arc<Shared> {
        slf.as_super().get().shared()
    }

    /// Returns the part that an index names.
    fn at(&self, index: &Bound<'_, PyAny>) -> PyResult<Elements> {
        let Ok(indices) = index.cast::<PyTuple>() else { return self.elements.at(index) };
        let mut found = self.elements.clone();
        for (place, index) in indices.iter().enumerate() {
            let is_last = place + 1 == indices.len();
            if !is_last && !index.is_exact_instance_of::<pyo3::types::PyInt>() {
                return Err(wrong_type(
                    "only the last index may be a slice: parts of a symmetric tensor lie one behind the other in memory",
                ));
            }
            found = found.at(&index)?;
        }
        Ok(found)
    }
}

impl Elements {
    /// Returns the part that an index of the first dimension names.
    fn at(&self, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Bytes { first, bytes, shape } = place_of(&self.shape, self.element, index)?;
        Ok(Self { part: self.part.part(first, bytes), shape, element: self.element })
    }
}

/// A part of consecutive elements.
pub(crate) struct Bytes {
    pub(crate) first: usize,
    bytes: usize,
    pub(crate) shape: Vec<u64>,
}

/// Returns the part of elements of this shape and type that an index of the first dimension names.
pub(crate) fn place_of(shape: &[u64], element: ElementType, index: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let size = dtype::bytes_of(element);
    if index.is_instance_of::<PyEllipsis>() {
        let bytes = shape.iter().product::<u64>() as usize * size;
        return Ok(Bytes { first: 0, bytes, shape: shape.to_vec() });
    }
    let [len, row @ ..] = shape else {
        return Err(PyIndexError::new_err("the tensor has no dimensions, and so no index"));
    };
    let each = row.iter().product::<u64>() as usize * size;
    if let Ok(slice) = index.cast::<PySlice>() {
        let found = slice.indices(*len as isize)?;
        if found.step != 1 {
            let text =
                format!("a step of {}; parts of a symmetric tensor lie one behind the other in memory", found.step);
            return Err(Failure::invalid(text).into());
        }
        let (start, count) = (found.start as usize, found.slicelength);
        return Ok(Bytes { first: start * each, bytes: count * each, shape: [&[count as u64], row].concat() });
    }
    let index: i64 = index.extract().map_err(|_| wrong_type("an index is a number or a slice such as 10:20"))?;
    let found = if index < 0 { len.checked_add_signed(index) } else { Some(index as u64) };
    let Some(found) = found.filter(|i| i < len) else {
        return Err(PyIndexError::new_err(format!("index {index} is not in a tensor of length {len}")));
    };
    Ok(Bytes { first: found as usize * each, bytes: each, shape: row.to_vec() })
}

#[pymethods]
impl SymmetricTensor {
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let part = slf.get().at(index)?;
        Self::of(slf.py(), part, Self::shared(slf))
    }

    fn __setitem__(slf: &Bound<'_, Self>, index: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let part = slf.get().at(index)?;
        let source = part.source(values, "values")?;
        let shared = Self::shared(slf).clone();
        let behind = stream::of_torch(&shared, slf.py())?;
        call::call(slf.py(), Self::shared(slf), move |_| {
            stream::finish(&shared, behind.as_ref())?;
            let world = part.part.world();
            part.put(&source, world.my_pe()).map_err(|e| e.on(world))
        })
    }

    /// Returns the same elements with other dimensions. One of them may be -1.
    #[pyo3(signature = (*shape))]
    fn reshape<'py>(slf: &Bound<'py, Self>, shape: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, Self>> {
        let given: Vec<i64> = match shape.len() {
            1 => shape.get_item(0)?.extract().or_else(|_| shape.extract())?,
            _ => shape.extract()?,
        };
        let elements = &slf.get().elements;
        let all: u64 = elements.shape.iter().product();
        let known: u64 = given.iter().filter(|n| **n != -1).map(|n| n.unsigned_abs()).product();
        let open = given.iter().filter(|n| **n == -1).count();
        let fits = match open {
            0 => known == all,
            1 => known != 0 && all.is_multiple_of(known),
            _ => false,
        };
        if !fits || given.iter().any(|n| *n < -1) {
            let text =
                format!("{all} elements do not have the shape {given:?}; give dimensions whose product is {all}");
            return Err(Failure::invalid(text).into());
        }
        let shape = given.iter().map(|n| if *n == -1 { all / known } else { *n as u64 }).collect();
        Self::of(slf.py(), Elements { shape, ..elements.clone() }, Self::shared(slf))
    }

    /// Returns the elements of another PE as a tensor that shares its memory, if loads and stores reach that PE.
    fn peer(slf: &Bound<'_, Self>, pe: i64) -> PyResult<Tensor> {
        fork::check()?;
        let Elements { part, shape, element } = &slf.get().elements;
        let pe = pe_of(pe, part.world().n_pes())?;
        let there = Part::new(part.block.clone(), part.first, part.bytes, pe).map_err(|e| Failure::from_world(&e))?;
        Ok(Tensor::new(Memory::Symmetric(there), shape.clone(), *element, Self::shared(slf)))
    }

    /// Offset of the first element in the heap of every PE, in bytes.
    #[getter]
    fn offset(&self) -> usize {
        self.elements.part.block.offset() + self.elements.part.first
    }

    /// Address of this PE's first element, as its kernels see it: for kernels that take a ``sym<T>``.
    #[getter]
    fn address(&self) -> u64 {
        self.elements.part.address
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let elements = &slf.get().elements;
        format!(
            "SymmetricTensor({}, {}, {})",
            dtype::shape_text(&elements.shape),
            elements.dtype(),
            Self::shared(slf).device()
        )
    }
}

/// Returns the number of a PE or member that Python gives.
pub(crate) fn pe_of(pe: i64, size: usize) -> Result<usize, Failure> {
    usize::try_from(pe)
        .ok()
        .filter(|pe| *pe < size)
        .ok_or_else(|| Failure::invalid(format!("PE {pe}: there are {size} PEs, 0 to {}", size - 1)))
}
