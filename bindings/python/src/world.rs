//! Worlds: processing elements (PEs) that reach each other's memory.

use crate::call::{self, Shared};
use crate::dtype;
use crate::engine::{Engine, as_python};
use crate::error::{Failure, Kind, wrong_type};
use crate::external::DeviceView;
use crate::fork;
use crate::held::Held;
use crate::stream;
use crate::symmetric::{Blocks, SymmetricTensor};
use crate::team::Team;
use crate::world_build;
use crate::world_error::WorldFailure;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use serde_json::json;
use std::sync::{Arc, Weak};
use warpbell::engine::Stream;
use warpbell::shmem::ShmemError;
use warpbell::storage::ElementType;

/// One PE of a world. ``World.from_env``, ``World.from_torch_distributed`` and others join one.
///
/// All PEs make the same collective calls, in the same order and with the same arguments. Calls that take ``stream`` are complete when they
/// return, and begin behind torch's current stream. With a ``warpbell.Stream`` they run behind the work that is there, and return at once:
/// ``Stream.synchronize`` raises their errors.
#[pyclass(frozen, weakref, module = "warpbell")]
pub(crate) struct World {
    world: Mutex<Option<Arc<Held<warpbell::shmem::World>>>>,
    shared: Arc<Shared>,
    blocks: Blocks,
    pe: usize,
    pes: usize,
}

/// The worlds of this process that are not closed.
static OPEN: Mutex<Vec<Weak<Held<warpbell::shmem::World>>>> = Mutex::new(Vec::new());

/// Lets the other PEs of all open worlds notice that this process ends by an error.
pub(crate) fn abandon_all() {
    OPEN.lock().iter().filter_map(Weak::upgrade).for_each(|world| world.abandon());
}

/// Where a call runs.
#[derive(Clone)]
pub(crate) enum On {
    /// The call returns when it is complete. It begins behind the work of a stream, if there is one.
    Host(Option<Stream>),
    /// The call returns at once.
    Stream(Stream),
}

/// Finds out where a call runs that has these arrays as arguments.
pub(crate) fn on_stream(
    py: Python<'_>,
    shared: &Arc<Shared>,
    named: Option<&Bound<'_, PyAny>>,
    arrays: &[&Bound<'_, PyAny>],
) -> PyResult<On> {
    if let Some(named) = named {
        let own = named.cast::<stream::Stream>().map_err(|_| {
            wrong_type("stream: calls of worlds return before a stream has run them, so pass a warpbell.Stream, which has their errors; warpbell.Stream.adopt makes one of a stream of another library")
        })?;
        return Ok(On::Stream(own.get().get().clone()));
    }
    if shared.ordinal().is_none() {
        return Ok(On::Host(None));
    }
    // The engine's own results have no work in flight.
    let of_others = |array: &&&Bound<'_, PyAny>| !array.is_instance_of::<crate::tensor::Tensor>();
    let mut given = Vec::new();
    for array in arrays.iter().filter(of_others) {
        given.push((*array, array.hasattr("__cuda_array_interface__")? || array.hasattr("__dlpack__")?));
    }
    Ok(On::Host(match stream::behind(shared, &given)? {
        Some(found) => Some(found),
        None => stream::of_torch(shared, py)?,
    }))
}

/// Runs a call. `work` also returns the world, for its errors.
pub(crate) fn run_on<T: Send + 'static>(
    py: Python<'_>,
    shared: &Arc<Shared>,
    on: On,
    work: impl FnOnce(Option<&Stream>) -> (Result<T, ShmemError>, warpbell::shmem::World) + Send + 'static,
) -> PyResult<T> {
    let explained = |(done, world): (Result<T, WorldFailure>, _)| done.map_err(|e| e.on(&world));
    match on {
        On::Stream(stream) => call::begin(py, shared, || {
            let (done, world) = work(Some(&stream));
            explained((done.map_err(WorldFailure::from), world))
        }),
        // Not on that stream: PEs of one process have the same current stream, and would wait for calls behind their own.
        On::Host(behind) => {
            let on = shared.clone();
            call::call(py, shared, move |_| {
                stream::finish(&on, behind.as_ref())?;
                let (done, world) = work(None);
                explained((done.map_err(WorldFailure::from), world))
            })
        }
    }
}

impl World {
    pub(crate) fn new(world: warpbell::shmem::World, shared: &Arc<Shared>) -> Self {
        let (pe, pes) = (world.my_pe(), world.n_pes());
        let world = Arc::new(Held::new(world));
        let mut open = OPEN.lock();
        open.retain(|world| world.strong_count() > 0);
        open.push(Arc::downgrade(&world));
        let world = Mutex::new(Some(world));
        Self { world, shared: shared.clone(), blocks: Blocks::default(), pe, pes }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(crate) fn pes(&self) -> usize {
        self.pes
    }

    /// Returns the world, unless it is closed.
    pub(crate) fn held(&self) -> Result<Arc<Held<warpbell::shmem::World>>, Failure> {
        fork::check()?;
        self.world.lock().clone().ok_or_else(|| {
            Failure::new(Kind::World, format!("PE {} of {}: the world is closed; join a new one", self.pe, self.pes))
        })
    }

    /// Runs `work` without the interpreter.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&warpbell::shmem::World) -> Result<T, WorldFailure> + Send + 'static,
    ) -> PyResult<T> {
        let world = self.held()?;
        call::call(py, &self.shared, move |_| work(&world).map_err(|e| e.on(&world)))
    }

    /// Runs `work` that waits for the other PEs on the host. After Ctrl-C it goes on in the background, up to the world's timeout.
    pub(crate) fn meet<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&warpbell::shmem::World) -> Result<T, WorldFailure> + Send + 'static,
    ) -> PyResult<T> {
        let world = self.held()?;
        call::call_alone(py, move |_| work(&world).map_err(|e| e.on(&world)))
    }

    pub(crate) fn on(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        arrays: &[&Bound<'_, PyAny>],
    ) -> PyResult<On> {
        on_stream(py, &self.shared, stream, arrays)
    }

    pub(crate) fn run_then<T: Send + 'static>(
        &self,
        py: Python<'_>,
        on: On,
        work: impl FnOnce(&warpbell::shmem::World, Option<&Stream>) -> Result<T, ShmemError> + Send + 'static,
    ) -> PyResult<T> {
        let world = self.held()?;
        run_on(py, &self.shared, on, move |on| (work(&world, on), (**world).clone()))
    }

    pub(crate) fn run(
        &self,
        py: Python<'_>,
        on: On,
        work: impl FnOnce(&warpbell::shmem::World, Option<&Stream>) -> Result<(), ShmemError> + Send + 'static,
    ) -> PyResult<()> {
        self.run_then(py, on, work)
    }

    /// Allocates symmetric memory. All PEs compare shape and type first, of which the library sees only the bytes.
    pub(crate) fn allocate<'py>(
        &self,
        py: Python<'py>,
        shape: Vec<u64>,
        element: ElementType,
    ) -> PyResult<Bound<'py, SymmetricTensor>> {
        let bytes = shape.iter().try_fold(dtype::bytes_of(element) as u64, |all, n| all.checked_mul(*n));
        // Sizes that no heap has are an error on all PEs.
        let bytes = bytes.and_then(|b| usize::try_from(b).ok()).unwrap_or(usize::MAX);
        let asked = format!("{} of {}", dtype::shape_text(&shape), dtype::name_of(element));
        let block = self.meet(py, move |world| {
            Self::agree(world, "allocate", &asked)?;
            Ok(Arc::new(Held::new(world.malloc::<u8>(bytes)?)))
        })?;
        self.blocks.enter(&block);
        SymmetricTensor::create(py, block, shape, element, &self.shared)
    }

    /// Compares the elements that each PE names in a call. Collective.
    pub(crate) fn agree(world: &warpbell::shmem::World, call: &str, asked: &str) -> Result<(), WorldFailure> {
        let all = world.allgather(asked.as_bytes())?;
        if all.iter().all(|other| other == asked.as_bytes()) {
            return Ok(());
        }
        let text = |(pe, asked): (usize, &Vec<u8>)| format!("PE {pe}: {}", String::from_utf8_lossy(asked));
        let list: Vec<String> = all.iter().enumerate().map(text).collect();
        let text = format!("all PEs have to {call} the same elements: {}", list.join(", "));
        Err(Failure::new(Kind::World, text).into())
    }

    /// Returns the team of all PEs.
    pub(crate) fn all(slf: &Bound<'_, Self>) -> PyResult<Team> {
        Ok(Team::new(slf.get().held()?.team_world(), slf.clone().unbind()))
    }
}

/// One dimension, or several.
#[derive(FromPyObject)]
enum Shape {
    One(u64),
    Several(Vec<u64>),
}

/// Type of elements, as text or as numpy or torch has it.
struct Type(ElementType);

impl<'py> FromPyObject<'_, 'py> for Type {
    type Error = PyErr;

    fn extract(dtype: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        dtype::of_python(&dtype).map(Self)
    }
}

#[pymethods]
impl World {
    /// Joins the ranks that a launcher has started: ``warpbell run``, mpirun, srun, torchrun. Without a launcher the world has one PE.
    /// Collective.
    ///
    /// Options: ``heap_bytes`` of each PE (64 MiB), ``heap`` (``"auto"``, ``"device"``, ``"host"``), ``transport`` (``"auto"``, ``"peer"``,
    /// ``"mlx5"``, ``"verbs"``, ``"soft"``), ``timeout`` of waits for other PEs on the host in seconds (60), ``checked``,
    /// ``queues_per_peer``, ``queue_blocks``, ``staging_bytes``, ``host_id``. They have to be the same on all PEs.
    #[staticmethod]
    #[pyo3(signature = (engine, **options))]
    fn from_env(py: Python<'_>, engine: &Engine, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        world_build::from_env(py, engine, options)
    }

    /// Makes a world of this PE alone, whatever has started the process. Options are those of ``from_env``.
    #[staticmethod]
    #[pyo3(signature = (engine, **options))]
    fn single(py: Python<'_>, engine: &Engine, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        world_build::single(py, engine, options)
    }

    /// Makes a world in this process: one PE for each engine. Returns them all. Each is used by a thread of its own, because collective
    /// calls wait for the others. Options are those of ``from_env``.
    #[staticmethod]
    #[pyo3(signature = (engines, **options))]
    fn local<'py>(
        py: Python<'py>,
        engines: Vec<PyRef<'py, Engine>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        world_build::local(py, &engines, options)
    }

    /// Joins the ranks of a process group of ``torch.distributed`` with any backend, by default the group of all. Collective.
    ///
    /// The group passes an id of 128 bytes to all ranks. The ranks then meet by it without torch. Options are those of ``from_env``.
    #[staticmethod]
    #[pyo3(signature = (engine, group = None, **options))]
    fn from_torch_distributed<'py>(
        py: Python<'py>,
        engine: &Engine,
        group: Option<Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        let group = group.unwrap_or_else(|| py.None().into_bound(py));
        world_build::from_exchange(py, engine, "over_torch", &group, options)
    }

    /// Joins the ranks of a communicator of mpi4py. Collective. As ``from_torch_distributed`` otherwise.
    #[staticmethod]
    #[pyo3(signature = (engine, comm, **options))]
    fn from_mpi4py<'py>(
        py: Python<'py>,
        engine: &Engine,
        comm: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        world_build::from_exchange(py, engine, "over_mpi", comm, options)
    }

    /// Joins the ranks that have the same id: ``warpbell.unique_id`` of rank 0, which the program passes to all. Collective.
    #[staticmethod]
    #[pyo3(signature = (engine, id, rank, size, **options))]
    fn from_unique_id(
        py: Python<'_>,
        engine: &Engine,
        id: &[u8],
        rank: usize,
        size: usize,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        world_build::from_unique_id(py, engine, id, (rank, size), options)
    }

    /// Number of this PE, from 0. ``rank`` is the same.
    #[getter]
    fn my_pe(&self) -> usize {
        self.pe
    }

    /// Number of this PE, from 0. ``my_pe`` is the same.
    #[getter]
    fn rank(&self) -> usize {
        self.pe
    }

    /// Number of PEs. ``size`` is the same.
    #[getter]
    fn n_pes(&self) -> usize {
        self.pes
    }

    /// Number of PEs. ``n_pes`` is the same.
    #[getter]
    fn size(&self) -> usize {
        self.pes
    }

    /// Transport between the PEs, such as ``peer``, ``soft``, or ``peer+soft`` if pairs differ.
    #[getter]
    fn transport(&self) -> PyResult<&'static str> {
        Ok(self.held()?.path().transport)
    }

    /// The links between the PEs in one line, with the reason for them.
    #[getter]
    fn path(&self) -> PyResult<String> {
        Ok(self.held()?.path().to_string())
    }

    /// Longest time of waits for other PEs on the host, in seconds. Waits of kernels end by the engine's deadline.
    #[getter]
    fn timeout(&self) -> PyResult<f64> {
        Ok(self.held()?.timeout().as_secs_f64())
    }

    /// Free bytes of this PE's heap, which may not be contiguous.
    #[getter]
    fn heap_free(&self, py: Python<'_>) -> PyResult<usize> {
        let world = self.held()?;
        Ok(py.detach(|| world.heap_free()))
    }

    /// Number of the first PE that is known to be gone, and the reason, or ``None``.
    #[getter]
    fn lost(&self) -> PyResult<Option<(usize, String)>> {
        Ok(self.held()?.lost().map(|lost| (lost.rank, lost.reason.clone())))
    }

    /// True after ``close``.
    #[getter]
    fn closed(&self) -> bool {
        self.world.lock().is_none()
    }

    /// Returns the properties of the world as a dict.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let world = self.held()?;
        let hosts: Vec<_> = (0..self.pes).map(|pe| world.host_name(pe).unwrap_or_default()).collect();
        let heap_free = py.detach(|| world.heap_free());
        let info = json!({
            "pe": self.pe, "pes": self.pes, "path": world.path(), "summary": world.path().to_string(), "hosts": hosts,
            "heap_free": heap_free, "timeout": world.timeout().as_secs_f64(),
        });
        as_python(py, &info)
    }

    /// Allocates elements on every PE, with zeros. ``shape`` is a number or the dimensions. Collective.
    #[pyo3(signature = (shape, dtype = Type(ElementType::F32)))]
    fn zeros<'py>(&self, py: Python<'py>, shape: Shape, dtype: Type) -> PyResult<Bound<'py, SymmetricTensor>> {
        let shape = match shape {
            Shape::One(len) => vec![len],
            Shape::Several(shape) => shape,
        };
        self.allocate(py, shape, dtype.0)
    }

    /// Allocates elements on every PE. Here they are zeros, too: the library clears memory that was used. Collective.
    #[pyo3(signature = (shape, dtype = Type(ElementType::F32)))]
    fn empty<'py>(&self, py: Python<'py>, shape: Shape, dtype: Type) -> PyResult<Bound<'py, SymmetricTensor>> {
        self.zeros(py, shape, dtype)
    }

    /// The team of all PEs.
    #[getter]
    fn team(slf: &Bound<'_, Self>) -> PyResult<Team> {
        Self::all(slf)
    }

    /// Makes the team of the PEs on this PE's host, in the order of their numbers. Collective.
    fn team_node(slf: &Bound<'_, Self>) -> PyResult<Team> {
        let team = slf.get().call(slf.py(), |world| Ok(world.team_node()?))?;
        Ok(Team::new(team, slf.clone().unbind()))
    }

    /// Connects failed connections of a world with adapters again, and returns which as a dict. Collective; no kernel of the world runs on
    /// any PE.
    fn recover<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_python(py, &self.meet(py, |world| Ok(world.recover()?))?)
    }

    /// Returns the failed connections of this PE, each with its reason.
    fn network_failures(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.call(py, |world| Ok(world.network_failures()))
    }

    /// Returns the bytes of the ``wb_world`` that kernels make a ``world_ref`` of. They are valid until the world is closed.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, bytemuck::bytes_of(&self.held()?.view())))
    }

    /// Copies the view to memory that the engine's kernels see, for kernels that take its address.
    fn device_view(slf: &Bound<'_, Self>) -> PyResult<DeviceView> {
        let this = slf.get();
        DeviceView::new(&this.shared, slf.clone().into_any(), bytemuck::bytes_of(&this.held()?.view()))
    }

    /// Leaves the world in order when its tensors, teams and arrays that share their memory are gone. Other calls fail from now on. With PEs
    /// out of reach of loads and stores, the last of them waits for the other PEs, up to 30 s.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        fork::check()?;
        let world = self.world.lock().take();
        py.detach(|| drop(world));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        drop(slf.get().held()?);
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        // The others would wait for a PE that has failed.
        if exception.get_item(0).is_ok_and(|kind| !kind.is_none()) {
            self.world.lock().iter().for_each(|world| world.abandon());
        }
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let world = self.world.lock().clone();
        let path = world.map_or_else(|| "closed".to_owned(), |world| world.path().to_string());
        format!("World(PE {} of {}, {path})", self.pe, self.pes)
    }
}
