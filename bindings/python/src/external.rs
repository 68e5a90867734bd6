//! Kernels of other libraries: runs around their launches, and views of stored data in the engine's memory.

use crate::cache::{Array, Cache};
use crate::call::{self, Shared};
use crate::engine::{Engine, seconds};
use crate::error::{Failure, Kind, wrong_type};
use crate::fork;
use crate::held::Held;
use crate::scratch::TableScratch;
use crate::stream::{self, Stream};
use crate::symmetric::SymmetricTensor;
use crate::table::Table;
use crate::team::Team;
use crate::volume::Volume;
use crate::volume_buffer::VolumeBuffer;
use crate::window::Window;
use crate::world::World;
use crate::world_error;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use std::time::Duration;
use warpbell::engine::{KernelArg, NO_LIMIT, Run};
use warpbell::memory::{Place, Region};

type Keep = Box<dyn FnOnce(&mut Run) + Send>;

/// Object of the library whose devices or PEs the errors of a run name.
enum Named {
    Volume(warpbell::storage::Volume),
    World(warpbell::shmem::World),
}

/// An object that kernels of other libraries use: keeps it in a run, and has what errors name.
struct Used {
    keep: Keep,
    named: Option<Named>,
}

impl Used {
    fn new(owner: impl KernelArg + Send + 'static, volume: &warpbell::storage::Volume) -> Vec<Self> {
        vec![Self { keep: Box::new(move |run| run.keep(&owner)), named: Some(Named::Volume(volume.clone())) }]
    }

    /// Finds out what a Python object is.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        if let Ok(array) = object.cast::<Array>() {
            let array = array.get().get();
            return Ok(Self::new(array.clone(), array.cache().volume()));
        }
        if let Ok(table) = object.cast::<Table>() {
            let table = table.get().get();
            return Ok(Self::new(table.clone(), table.volume()));
        }
        if let Ok(volume) = object.cast::<Volume>() {
            let volume = volume.get().get();
            return Ok(Self::new(volume.clone(), volume));
        }
        if let Ok(cache) = object.cast::<Cache>() {
            let cache = cache.get().get();
            return Ok(Self::new(cache.clone(), cache.volume()));
        }
        if let Ok(scratch) = object.cast::<TableScratch>() {
            let named = Some(Named::Volume(scratch.get().table().get().volume().clone()));
            let scratch = scratch.clone().unbind();
            return Ok(vec![Self { keep: Box::new(move |run| scratch.get().keep_in(run)), named }]);
        }
        if let Ok(world) = object.cast::<World>() {
            let world = world.get().held()?;
            let named = Some(Named::World((**world).clone()));
            return Ok(vec![Self { keep: Box::new(move |run| run.keep(&**world)), named }]);
        }
        if let Ok(team) = object.cast::<Team>() {
            let team = team.get().held();
            let named = Some(Named::World(team.world().clone()));
            return Ok(vec![Self { keep: Box::new(move |run| run.keep(&**team)), named }]);
        }
        if let Ok(tensor) = object.cast::<SymmetricTensor>() {
            let block = tensor.get().block();
            return Ok(vec![Self { keep: Box::new(move |run| run.keep(&**block)), named: None }]);
        }
        if let Ok(buffer) = object.cast::<VolumeBuffer>() {
            let (buffer, volume) = (buffer.get().held(), buffer.get().volume());
            let named = Some(Named::Volume(volume.get().get().clone()));
            return Ok(vec![Self { keep: Box::new(move |run| run.keep(&**buffer)), named }]);
        }
        if let Ok(window) = object.cast::<Window>() {
            let registered = window.get().registered();
            return Ok(vec![Self { keep: Box::new(move |run| run.keep(&**registered)), named: None }]);
        }
        let Ok(view) = object.cast::<DeviceView>() else {
            let found = object.get_type().name()?;
            return Err(wrong_type(format!(
                "a run keeps arrays, tables, scratch, volumes, their buffers, caches, worlds, teams, symmetric tensors, windows and views of them, not {found}"
            )));
        };
        let mut used = Self::of(view.get().owner.bind(object.py()))?;
        let region = (*view.get().region).clone();
        used.push(Self { keep: Box::new(move |run| run.keep(&region)), named: None });
        Ok(used)
    }
}

/// A run that is in flight.
struct InFlight {
    run: Run,
    /// Objects that are kept, and that errors name.
    volumes: Vec<warpbell::storage::Volume>,
    worlds: Vec<warpbell::shmem::World>,
}

impl InFlight {
    fn keep(&mut self, used: Vec<Used>) {
        for Used { keep, named } in used {
            keep(&mut self.run);
            match named {
                Some(Named::Volume(volume)) => self.volumes.push(volume),
                Some(Named::World(world)) => self.worlds.push(world),
                None => {}
            }
        }
    }

    fn finish(self, within: Duration) -> Result<Duration, Failure> {
        // Errors have numbers of devices, which name a device only if there is one volume.
        let only = self.volumes.split_first().filter(|(first, rest)| rest.iter().all(|v| v.name() == first.name()));
        let done = self.run.finish_within(within);
        done.map(|report| report.elapsed).map_err(|e| {
            let lost = self.worlds.iter().find_map(|world| world_error::of_lost(&e, world));
            match (lost, only) {
                (Some(lost), _) => lost,
                (None, Some((volume, _))) => Failure::from(e).on(volume),
                (None, None) => Failure::from(e),
            }
        })
    }
}

/// A run around kernels that another library launches. ``Engine.external`` makes it.
///
/// As a context manager it waits for the kernels, and raises the errors of their operations. After an exception in the block it stops
/// the kernels instead.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct ExternalRun {
    run: Mutex<Option<Held<InFlight>>>,
    elapsed: Mutex<Option<f64>>,
    stream: Py<PyAny>,
    timeout: Duration,
    shared: Arc<Shared>,
}

impl ExternalRun {
    pub(crate) fn begin(
        py: Python<'_>,
        engine: &Engine,
        name: String,
        stream: Option<&Bound<'_, PyAny>>,
        keep: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let timeout = timeout.map(|t| seconds(t, "timeout")).transpose()?.unwrap_or(NO_LIMIT);
        let mut used = Vec::new();
        for object in keep.try_iter()? {
            used.extend(Used::of(&object?)?);
        }
        let shared = engine.shared();
        let stream = match stream {
            Some(stream) => stream.clone(),
            None => Bound::new(py, Stream::create(py, shared)?)?.into_any(),
        };
        let on = stream::given(shared, &stream)?;
        let run = call::begin(py, shared, || {
            let run = shared.engine().external(&name, &on)?;
            let mut run = InFlight { run, volumes: Vec::new(), worlds: Vec::new() };
            run.keep(used);
            Ok(Held::new(run))
        })?;
        let (run, elapsed) = (Mutex::new(Some(run)), Mutex::new(None));
        Ok(Self { run, elapsed, stream: stream.unbind(), timeout, shared: shared.clone() })
    }
}

fn finished() -> Failure {
    Failure::new(Kind::Invalid, "the run is finished; begin another one for more kernels")
}

#[pymethods]
impl ExternalRun {
    /// Stream on which the kernels are launched: the one that was given, or the engine's own.
    #[getter]
    fn stream(&self, py: Python<'_>) -> Py<PyAny> {
        self.stream.clone_ref(py)
    }

    /// Time from the beginning of the run to the end of its kernels in seconds, or ``None`` until it is finished.
    #[getter]
    fn elapsed(&self) -> Option<f64> {
        *self.elapsed.lock()
    }

    /// Keeps arrays, tables, scratch, volumes, their buffers, caches, worlds, teams, symmetric tensors, windows or views until the run is
    /// finished, also if the program drops them before.
    #[pyo3(signature = (*objects))]
    fn keep(&self, objects: &Bound<'_, PyTuple>) -> PyResult<()> {
        fork::check()?;
        for object in objects {
            let used = Used::of(&object)?;
            self.run.lock().as_mut().ok_or_else(finished)?.keep(used);
        }
        Ok(())
    }

    /// Waits for the kernels, at most ``timeout`` seconds, and raises the errors of their operations. Kernels that take longer are
    /// stopped. Returns the time that they took in seconds.
    #[pyo3(signature = (timeout = None))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<f64> {
        let within = timeout.map(|t| seconds(t, "timeout")).transpose()?.unwrap_or(self.timeout);
        fork::check()?;
        let run = self.run.lock().take().ok_or_else(finished)?;
        let elapsed = call::finish(py, &self.shared, move |_| run.into_inner().finish(within))?.as_secs_f64();
        *self.elapsed.lock() = Some(elapsed);
        Ok(elapsed)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind, value, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (value, traceback);
        if !kind.is_none() {
            let stopped = self.run.lock().take();
            drop(stopped);
        } else if self.run.lock().is_some() {
            self.finish(py, None)?;
        }
        Ok(false)
    }

    fn __repr__(&self) -> &'static str {
        if self.run.lock().is_some() { "ExternalRun(in flight)" } else { "ExternalRun(finished)" }
    }
}

/// A view in memory that the engine's kernels see. ``device_view`` of arrays, tables, scratch, volumes, worlds, teams and
/// windows makes it.
///
/// Kernels take ``address`` as a pointer or a 64-bit number. It is valid while this object lives.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct DeviceView {
    region: Held<Region>,
    /// The region has whole pages.
    bytes: usize,
    owner: Py<PyAny>,
}

impl DeviceView {
    /// Copies the bytes of a view to memory near the kernels.
    pub(crate) fn new(shared: &Arc<Shared>, owner: Bound<'_, PyAny>, view: &[u8]) -> PyResult<Self> {
        let region = call::begin(owner.py(), shared, || {
            let region = shared.engine().allocate(Place::Device, view.len())?;
            region.write(0, view)?;
            Ok(Held::new(region))
        })?;
        Ok(Self { region, bytes: view.len(), owner: owner.unbind() })
    }
}

#[pymethods]
impl DeviceView {
    /// Address of the structure in memory that kernels see.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        fork::check()?;
        Ok(self.region.address())
    }

    /// Size of the structure in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes
    }

    /// The object that the view is of.
    #[getter]
    fn owner(&self, py: Python<'_>) -> Py<PyAny> {
        self.owner.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("DeviceView({}, {:#x})", self.owner.bind(py).repr()?, self.region.address()))
    }
}
