//! Windows: arrays of other libraries that all PEs have registered as symmetric.

use crate::call::Shared;
use crate::dtype;
use crate::error::{Failure, wrong_type};
use crate::external::DeviceView;
use crate::fork;
use crate::held::Held;
use crate::stream;
use crate::symmetric::{Bytes, place_of};
use crate::view;
use crate::world::{On, World};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::sync::Arc;
use warpbell::engine::Engine;
use warpbell::memory::Region;
use warpbell::shmem::calls::LocalSlice;
use warpbell::shmem::{ShmemError, WindowSlice};
use warpbell::storage::ElementType;

/// Registered memory. All parts of a window share this.
pub(crate) type Registered = Held<warpbell::shmem::Window<u8>>;

/// Elements of a window that an argument names.
#[derive(Clone)]
pub(crate) struct WindowElements {
    registered: Arc<Registered>,
    first: usize,
    pub(crate) shape: Vec<u64>,
    pub(crate) element: ElementType,
}

impl WindowElements {
    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<u64>() as usize * dtype::bytes_of(self.element)
    }

    pub(crate) fn slice(&self) -> Result<WindowSlice<'_, u8>, ShmemError> {
        self.registered.slice(self.first..self.first + self.bytes())
    }
}

/// Elements of an array of each PE, which all PEs have registered together. ``World.symmetric_from`` makes it.
///
/// ``World.put``, ``get`` and ``put_signal`` take it as the elements of another PE, as they take a ``SymmetricTensor``. ``window[3]`` and
/// ``window[10:20]`` are parts of it. It keeps the array. The memory stays registered until every PE has dropped its windows; a later
/// collective call of the host finds that out.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct Window {
    elements: WindowElements,
    shared: Arc<Shared>,
}

impl Window {
    pub(crate) fn elements(&self) -> &WindowElements {
        &self.elements
    }

    /// Returns the memory, for runs that keep it.
    pub(crate) fn registered(&self) -> Arc<Registered> {
        self.elements.registered.clone()
    }
}

/// Refuses a window as memory of this PE. `what` names it in the error.
pub(crate) fn check_is_none(object: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    match object.cast::<Window>() {
        Err(_) => Ok(()),
        Ok(_) => Err(wrong_type(format!(
            "{what}: it is a Window, which names memory of other PEs; pass the array that this PE registered"
        ))),
    }
}

/// Makes an array a region of the engine, which keeps the array. Also returns shape and type.
fn region_of(engine: &Engine, array: &Bound<'_, PyAny>) -> PyResult<(Region, Vec<u64>, ElementType)> {
    let has = |name: &str| array.hasattr(name);
    if !has("__cuda_array_interface__")? && !has("__array_interface__")? && !has("__dlpack__")? {
        let found = array.get_type().name()?.to_string();
        return Err(wrong_type(format!(
            "array: {found} is no array; pass an array of numpy, or a tensor of another library on the engine's device"
        )));
    }
    let given = view::of(array)?;
    let element = given.element();
    let element =
        element.ok_or_else(|| wrong_type(format!("array: elements of type {} are not numbers", given.typestr)))?;
    given.check_writable("array")?;
    if given.bytes() == 0 {
        return Err(Failure::invalid("array: it has no elements; pass an array with at least one").into());
    }
    Ok((given.on_engine(engine, "array")?, given.shape.clone(), element))
}

impl World {
    fn check_elsewhere(&self, array: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.blocks().find_if_symmetric(array)? {
            None => Ok(()),
            Some(_) => {
                let text = "array: it is in a symmetric heap; use it itself in calls of its world";
                Err(Failure::invalid(text).into())
            }
        }
    }
}

#[pymethods]
impl World {
    /// Registers an array of each PE as symmetric, so that the PEs put to it and get from it: numpy arrays for engines on CPU threads, tensors
    /// of other libraries on the engine's GPU. All PEs pass the same shape and type. The ``Window`` keeps the array, whose memory must not be
    /// freed or moved by other means. Collective; an error on one PE is an error on all.
    fn symmetric_from(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Window> {
        let found = self.check_elsewhere(array).and_then(|()| region_of(self.shared().engine(), array));
        let asked = match &found {
            Ok((_, shape, element)) => format!("{} of {}", dtype::shape_text(shape), dtype::name_of(*element)),
            Err(e) => format!("nothing ({e})"),
        };
        // The others learn of an error of this PE, too.
        self.meet(py, move |world| World::agree(world, "register", &asked))?;
        let (region, shape, element) = found?;
        // The others may write to the array at once, and its library must have done so before.
        let behind = match self.on(py, None, &[array])? {
            On::Host(behind) => behind,
            On::Stream(_) => None,
        };
        let shared = self.shared().clone();
        let registered = self.meet(py, move |world| {
            stream::finish(&shared, behind.as_ref())?;
            let memory = LocalSlice::in_region(world, &region, 0, region.len())?;
            Ok(Arc::new(Held::new(world.symmetric_from::<u8>(memory)?)))
        })?;
        let elements = WindowElements { registered, first: 0, shape, element };
        Ok(Window { elements, shared: self.shared().clone() })
    }
}

#[pymethods]
impl Window {
    /// Dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.elements.shape)
    }

    /// Type of the elements, as numpy names it.
    #[getter]
    fn dtype(&self) -> &'static str {
        dtype::name_of(self.elements.element)
    }

    /// Size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.elements.bytes()
    }

    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        let WindowElements { registered, first, shape, element } = &self.elements;
        let Bytes { first: more, shape, .. } = place_of(shape, *element, index)?;
        let elements = WindowElements { registered: registered.clone(), first: first + more, shape, element: *element };
        Ok(Self { elements, shared: self.shared.clone() })
    }

    fn __len__(&self) -> PyResult<usize> {
        let len = self.elements.shape.first().map(|n| *n as usize);
        len.ok_or_else(|| wrong_type("a window without dimensions has no length"))
    }

    /// Returns the bytes of the ``wb_window`` that kernels make a ``window<T>`` of. They are valid while the window lives.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        fork::check()?;
        let mut view = self.elements.registered.view();
        view.at += self.elements.first as u64;
        Ok(PyBytes::new(py, bytemuck::bytes_of(&view)))
    }

    /// Copies the view to memory that the engine's kernels see, for kernels that take its address.
    fn device_view(slf: &Bound<'_, Self>) -> PyResult<DeviceView> {
        let view = slf.get().view(slf.py())?;
        DeviceView::new(&slf.get().shared, slf.clone().into_any(), view.as_bytes())
    }

    fn __repr__(&self) -> String {
        let WindowElements { shape, element, .. } = &self.elements;
        format!("Window({}, {}, {})", dtype::shape_text(shape), dtype::name_of(*element), self.shared.device())
    }
}
