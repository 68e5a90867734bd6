//! Origin of the other PEs of a world, and its options.

use crate::call;
use crate::engine::{Engine, seconds, word};
use crate::error::{Failure, wrong_type};
use crate::fork;
use crate::world::World;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use warpbell::shmem::bootstrap::{LocalBootstrap, UniqueId};
use warpbell::shmem::{HeapKind, Transport, WorldBuilder};

/// An option, to be applied when the world is built.
type Choice = Box<dyn FnOnce(WorldBuilder) -> WorldBuilder + Send>;

const OPTIONS: &str =
    "heap_bytes, heap, transport, timeout, checked, queues_per_peer, queue_blocks, staging_bytes, host_id";

fn choices(options: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Choice>> {
    let choice = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> PyResult<Choice> {
        let name: String = name.extract()?;
        Ok(match name.as_str() {
            "heap_bytes" => value.extract().map(|v| Box::new(move |b: WorldBuilder| b.heap_bytes(v)) as Choice)?,
            "heap" => word::<HeapKind>(&value, &name).map(|v| Box::new(move |b: WorldBuilder| b.heap(v)))?,
            "transport" => word::<Transport>(&value, &name).map(|v| Box::new(move |b: WorldBuilder| b.transport(v)))?,
            "timeout" => {
                let limit = seconds(value.extract()?, &name)?;
                Box::new(move |b: WorldBuilder| b.timeout(limit))
            }
            "checked" => value.extract().map(|v| Box::new(move |b: WorldBuilder| b.checked(v)))?,
            "queues_per_peer" => value.extract().map(|v| Box::new(move |b: WorldBuilder| b.queues_per_peer(v)))?,
            "queue_blocks" => value.extract().map(|v| Box::new(move |b: WorldBuilder| b.queue_blocks(v)))?,
            "staging_bytes" => value.extract().map(|v| Box::new(move |b: WorldBuilder| b.staging_bytes(v)))?,
            "host_id" => value.extract().map(|v: String| Box::new(move |b: WorldBuilder| b.host_id(v)))?,
            _ => return Err(wrong_type(format!("`{name}` is no option of a world; there are {OPTIONS}"))),
        })
    };
    options.into_iter().flat_map(|options| options.iter()).map(choice).collect()
}

/// Builds a world. `peers` sets the origin of the other PEs.
///
/// Ctrl-C leaves the build to its end, which the world's timeout brings about at the latest. The engine can be used meanwhile.
fn build(
    py: Python<'_>,
    engine: &Engine,
    options: Option<&Bound<'_, PyDict>>,
    peers: impl FnOnce(WorldBuilder) -> Result<WorldBuilder, Failure> + Send + 'static,
) -> PyResult<World> {
    fork::check()?;
    let choices = choices(options)?;
    let shared = engine.shared().clone();
    let on = shared.engine().clone();
    let world = call::call_alone(py, move |_| {
        let builder = choices.into_iter().fold(warpbell::shmem::World::builder(&on), |builder, choice| choice(builder));
        peers(builder)?.build().map_err(|e| Failure::from_world(&e))
    })?;
    Ok(World::new(world, &shared))
}

/// The launcher's variables say who the other PEs are.
pub(crate) fn from_env(py: Python<'_>, engine: &Engine, options: Option<&Bound<'_, PyDict>>) -> PyResult<World> {
    build(py, engine, options, Ok)
}

pub(crate) fn single(py: Python<'_>, engine: &Engine, options: Option<&Bound<'_, PyDict>>) -> PyResult<World> {
    build(py, engine, options, |builder| Ok(builder.bootstrap(Box::new(LocalBootstrap::alone()))))
}

pub(crate) fn from_unique_id(
    py: Python<'_>,
    engine: &Engine,
    id: &[u8],
    (rank, size): (usize, usize),
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<World> {
    let bytes: [u8; UniqueId::BYTES] = id.try_into().map_err(|_| {
        Failure::invalid(format!(
            "the unique id has {} bytes; pass all {} bytes of rank 0's id",
            id.len(),
            UniqueId::BYTES
        ))
    })?;
    let id = UniqueId::from_bytes(&bytes).map_err(Failure::from)?;
    build(py, engine, options, move |builder| Ok(builder.unique_id(&id, rank, size)))
}

/// Passes a unique id of rank 0 to all ranks by `exchange`, a function of the package's Python part, and builds the world.
pub(crate) fn from_exchange(
    py: Python<'_>,
    engine: &Engine,
    exchange: &str,
    with: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<World> {
    // Wrong options are an error before any rank waits for this one.
    drop(choices(options)?);
    let found = py.import("warpbell._exchange")?.call_method1(exchange, (with,))?;
    let (id, rank, size): (Vec<u8>, usize, usize) = found.extract()?;
    from_unique_id(py, engine, &id, (rank, size), options)
}

/// Builds the PEs of a world of this process, one for each engine.
pub(crate) fn local<'py>(
    py: Python<'py>,
    engines: &[PyRef<'py, Engine>],
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyTuple>> {
    fork::check()?;
    if engines.is_empty() {
        return Err(Failure::invalid("a world without engines; pass one for each PE").into());
    }
    let choices = engines.iter().map(|_| choices(options)).collect::<PyResult<Vec<_>>>()?;
    let on: Vec<_> = engines.iter().map(|engine| engine.shared().engine().clone()).collect();
    let worlds = call::call_alone(py, move |_| {
        let builder = |(engine, choices): (_, Vec<Choice>)| {
            choices.into_iter().fold(warpbell::shmem::World::builder(engine), |builder, choice| choice(builder))
        };
        let builders = on.iter().zip(choices).map(builder).collect();
        warpbell::shmem::World::local_from(builders).map_err(|e| Failure::from_world(&e))
    })?;
    PyTuple::new(
        py,
        worlds.into_iter().zip(engines).map(|(world, engine)| World::new(world, engine.shared())).collect::<Vec<_>>(),
    )
}

/// Creates an id by which the ranks of one world find each other, in the process of rank 0, which listens from now on. The program passes
/// its 128 bytes to all ranks, for ``World.from_unique_id``. They have the secret of the world.
///
/// ``host`` is the address, interface or name by which all ranks reach this host, by default that of the route to the outside.
#[pyfunction]
#[pyo3(signature = (host = None))]
pub(crate) fn unique_id(py: Python<'_>, host: Option<String>) -> PyResult<Bound<'_, PyBytes>> {
    let id = call::call_alone(py, move |_| Ok(UniqueId::create(host.as_deref())?.to_bytes()))?;
    Ok(PyBytes::new(py, &id))
}
