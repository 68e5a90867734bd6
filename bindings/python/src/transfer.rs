//! Put, get and signals.

use crate::error::Failure;
use crate::stream;
use crate::symmetric::{Elements, pe_of, source_of};
use crate::tensor::{Memory, Tensor, pieces};
use crate::view;
use crate::window::{self, Window, WindowElements};
use crate::world::World;
use crate::world_error::WorldFailure;
use pyo3::prelude::*;
use warpbell::engine::Stream;
use warpbell::memory::{Place, Region};
use warpbell::shmem::ShmemError;
use warpbell::shmem::calls::{Cmp, LocalSlice, RemoteSlice, SignalOp};
use warpbell::storage::ElementType;

/// The other end of a put or get: memory of this PE that its kernels access.
enum Local {
    Symmetric(Elements),
    Region(Region),
    /// No elements.
    Nothing,
}

impl Local {
    fn slice(&self, world: &warpbell::shmem::World) -> Result<LocalSlice<'_, u8>, ShmemError> {
        match self {
            // Kernels reach the heap of their own PE only, also that of another world on their engine.
            Self::Symmetric(e) => {
                let elements = e.part.elements::<u8>()?;
                if !elements.world().engine().is_same(world.engine()) {
                    return Err(ShmemError::Foreign);
                }
                Ok(elements.into())
            }
            Self::Region(region) => LocalSlice::in_region(world, region, 0, region.len()),
            Self::Nothing => Err(ShmemError::OutOfBounds { first: 0, count: 0, len: 0 }),
        }
    }
}

/// The end of a put or get that each PE has.
#[derive(Clone)]
enum Remote {
    Symmetric(Elements),
    Window(WindowElements),
}

impl Remote {
    fn of(world: &World, object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        match object.cast::<Window>() {
            Ok(window) => Ok(Self::Window(window.get().elements().clone())),
            Err(_) => Ok(Self::Symmetric(world.blocks().find(object, what)?)),
        }
    }

    fn shape(&self) -> &[u64] {
        match self {
            Self::Symmetric(e) => &e.shape,
            Self::Window(w) => &w.shape,
        }
    }

    fn element(&self) -> ElementType {
        match self {
            Self::Symmetric(e) => e.element,
            Self::Window(w) => w.element,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Symmetric(e) => e.part.bytes(),
            Self::Window(w) => w.bytes(),
        }
    }

    fn slice(&self) -> Result<RemoteSlice<'_, u8>, ShmemError> {
        match self {
            Self::Symmetric(e) => Ok(e.part.elements::<u8>()?.into()),
            Self::Window(w) => Ok(w.slice()?.into()),
        }
    }

    /// Copies bytes of the host to byte `at` on a PE.
    fn put(&self, world: &warpbell::shmem::World, at: usize, piece: &[u8], pe: usize) -> Result<(), ShmemError> {
        match self {
            Self::Symmetric(e) => world.put(e.part.elements::<u8>()?.slice(at..)?, piece, pe),
            Self::Window(w) => world.put(w.slice()?.slice(at..)?, piece, pe),
        }
    }

    /// Copies bytes from byte `at` of a PE on to the host.
    fn get(&self, world: &warpbell::shmem::World, at: usize, piece: &mut [u8], pe: usize) -> Result<(), ShmemError> {
        match self {
            Self::Symmetric(e) if !e.part.is_of(world) => Err(ShmemError::Foreign),
            Self::Symmetric(e) => e.part.elements::<u8>()?.get_to(at, piece, pe),
            Self::Window(w) => {
                piece.copy_from_slice(&world.get(w.slice()?.slice(at..at + piece.len())?, pe)?);
                Ok(())
            }
        }
    }
}

/// A signal of a put, and its update.
pub(crate) struct Signal {
    word: Elements,
    update: (u64, SignalOp),
}

impl Signal {
    pub(crate) fn of(world: &World, word: &Bound<'_, PyAny>, value: u64, op: &str) -> PyResult<Self> {
        let how = match op {
            "set" => SignalOp::Set,
            "add" => SignalOp::Add,
            other => return Err(Failure::invalid(format!("op is `{other}`; use set or add")).into()),
        };
        Ok(Self { word: signal_word(world, word)?, update: (value, how) })
    }
}

/// Finds a signal: the first of elements of type `uint64`.
fn signal_word(world: &World, word: &Bound<'_, PyAny>) -> PyResult<Elements> {
    let found = world.blocks().find(word, "signal")?;
    if found.element != ElementType::U64 || found.shape.contains(&0) {
        return Err(Failure::invalid(format!("signal: {}; signals are words of uint64", found.text())).into());
    }
    Ok(found)
}

fn check_same(
    what: &str,
    shape: &[u64],
    element: Option<ElementType>,
    typestr: &str,
    other: &Remote,
) -> Result<(), Failure> {
    if element == Some(other.element()) && shape == other.shape() {
        return Ok(());
    }
    let found = element.map_or_else(|| typestr.to_owned(), |e| crate::dtype::name_of(e).to_owned());
    Err(Failure::invalid(format!(
        "{what}: it has {} of {found}, and the symmetric elements {} of {}; both have to be equal",
        crate::dtype::shape_text(shape),
        crate::dtype::shape_text(other.shape()),
        crate::dtype::name_of(other.element())
    )))
}

/// Copies `source` to `dest` on a PE, and then updates a signal there.
pub(crate) fn put(
    py: Python<'_>,
    world: &World,
    dest: &Bound<'_, PyAny>,
    source: &Bound<'_, PyAny>,
    pe: i64,
    signal: Option<Signal>,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let to = Remote::of(world, dest, "dest")?;
    window::check_is_none(source, "source")?;
    let pe = pe_of(pe, world.pes())?;
    let from = match world.blocks().find_if_symmetric(source)? {
        Some(found) => {
            check_same("source", &found.shape, Some(found.element), "", &to)?;
            Local::Symmetric(found)
        }
        None => {
            let on_gpu = source.hasattr("__cuda_array_interface__")?;
            let given = if on_gpu || stream.is_some() { Some(view::of(source)?) } else { None };
            match given.filter(|given| given.on_gpu || stream.is_some()) {
                Some(given) => {
                    check_same("source", &given.shape, given.element(), &given.typestr, &to)?;
                    match given.bytes() {
                        0 => Local::Nothing,
                        _ => Local::Region(given.on_engine(world.shared().engine(), "source")?),
                    }
                }
                None => return put_of_host(py, world, to, source, pe, signal),
            }
        }
    };
    let on = world.on(py, stream, &[dest, source])?;
    world.run(py, on, move |world, on| {
        let dest = to.slice()?;
        let Some(signal) = &signal else {
            if let Local::Nothing = from {
                return Ok(());
            }
            return match on {
                None => world.put_from(dest, from.slice(world)?, pe),
                Some(stream) => world.put_from_on(stream, dest, from.slice(world)?, pe),
            };
        };
        let word = signal.word.part.elements::<u64>()?;
        match (on, &from) {
            (None, Local::Nothing) => world.signal_op(word, signal.update.0, signal.update.1, pe),
            (Some(stream), Local::Nothing) => world.signal_op_on(stream, word, signal.update.0, signal.update.1, pe),
            (None, from) => world.put_signal(dest, from.slice(world)?, word, signal.update, pe),
            (Some(stream), from) => world.put_signal_on(stream, dest, from.slice(world)?, word, signal.update, pe),
        }
    })
}

/// Copies values of the host. They become elements of the type of `to`, as in an assignment of numpy.
fn put_of_host(
    py: Python<'_>,
    world: &World,
    to: Remote,
    values: &Bound<'_, PyAny>,
    pe: usize,
    signal: Option<Signal>,
) -> PyResult<()> {
    let source = source_of(to.shape(), to.element(), values, "source")?;
    let (shared, behind) = (world.shared().clone(), stream::of_torch(world.shared(), py)?);
    world.call(py, move |world| {
        stream::finish(&shared, behind.as_ref())?;
        in_pieces(|failed| source.each_piece(|at, piece| failed.keep(to.put(world, at, piece, pe))))?;
        if let Some(signal) = &signal {
            world.signal_op(signal.word.part.elements::<u64>()?, signal.update.0, signal.update.1, pe)?;
        }
        Ok(())
    })
}

/// Copies `source` on a PE to memory of this one. Returns it: `out`, or a new tensor.
pub(crate) fn get<'py>(
    py: Python<'py>,
    world: &World,
    source: &Bound<'py, PyAny>,
    pe: i64,
    out: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let from = Remote::of(world, source, "source")?;
    let pe = pe_of(pe, world.pes())?;
    let bytes = from.bytes();
    let engine = world.shared().engine().clone();
    let Some(out) = out else {
        if stream.is_some() {
            let text = "a get on a stream returns before the elements are there; pass out= for them";
            return Err(Failure::invalid(text).into());
        }
        let on = world.on(py, None, &[source])?;
        let (shape, element) = (from.shape().to_vec(), from.element());
        let region = world.run_then(py, on, move |world, on| {
            let region = engine.allocate(Place::Device, bytes.max(1))?;
            if bytes > 0 {
                copy_from(world, on, LocalSlice::in_region(world, &region, 0, bytes)?, &from, pe)?;
            }
            Ok(region)
        })?;
        let tensor = Tensor::new(Memory::Region(region), shape, element, world.shared());
        return Ok(Bound::new(py, tensor)?.into_any());
    };
    window::check_is_none(out, "out")?;
    let to = match world.blocks().find_if_symmetric(out)? {
        Some(found) => {
            check_same("out", &found.shape, Some(found.element), "", &from)?;
            Local::Symmetric(found)
        }
        None => {
            let given = view::of(out)?;
            check_same("out", &given.shape, given.element(), &given.typestr, &from)?;
            given.check_writable("out")?;
            match given.bytes() {
                0 => Local::Nothing,
                _ if given.on_gpu || stream.is_some() => Local::Region(given.on_engine(&engine, "out")?),
                _ => {
                    let region = given.on_host("out")?;
                    get_to_host(py, world, from, region, pe)?;
                    return Ok(out.clone());
                }
            }
        }
    };
    let on = world.on(py, stream, &[source, out])?;
    world.run(py, on, move |world, on| match &to {
        Local::Nothing => Ok(()),
        to => copy_from(world, on, to.slice(world)?, &from, pe),
    })?;
    Ok(out.clone())
}

fn copy_from(
    world: &warpbell::shmem::World,
    on: Option<&Stream>,
    to: LocalSlice<'_, u8>,
    from: &Remote,
    pe: usize,
) -> Result<(), ShmemError> {
    let from = from.slice()?;
    match on {
        None => world.get_into(to, from, pe),
        Some(stream) => world.get_into_on(stream, to, from, pe),
    }
}

fn get_to_host(py: Python<'_>, world: &World, from: Remote, to: Region, pe: usize) -> PyResult<()> {
    let (shared, behind) = (world.shared().clone(), stream::of_torch(world.shared(), py)?);
    world.call(py, move |world| {
        stream::finish(&shared, behind.as_ref())?;
        in_pieces(|failed| {
            pieces(from.bytes(), |at, piece| {
                failed.keep(from.get(world, at, piece, pe))?;
                Ok(to.write(at, piece)?)
            })
        })
    })
}

/// The error of a world in the middle of a copy in pieces.
#[derive(Default)]
struct Failed(Option<ShmemError>);

impl Failed {
    fn keep(&mut self, done: Result<(), ShmemError>) -> Result<(), Failure> {
        done.map_err(|e| {
            self.0 = Some(e);
            Failure::invalid("")
        })
    }
}

/// Runs a copy in pieces.
fn in_pieces(copy: impl FnOnce(&mut Failed) -> Result<(), Failure>) -> Result<(), WorldFailure> {
    let mut failed = Failed::default();
    let done = copy(&mut failed);
    match failed.0 {
        Some(e) => Err(e.into()),
        None => Ok(done?),
    }
}

/// Updates a signal on a PE.
pub(crate) fn signal_op(
    py: Python<'_>,
    world: &World,
    signal: Signal,
    pe: i64,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let pe = pe_of(pe, world.pes())?;
    let on = world.on(py, stream, &[])?;
    world.run(py, on, move |world, on| {
        let (word, (value, how)) = (signal.word.part.elements::<u64>()?, signal.update);
        match on {
            None => world.signal_op(word, value, how, pe),
            Some(stream) => world.signal_op_on(stream, word, value, how, pe),
        }
    })
}

/// Waits until a comparison of a signal of this PE holds.
pub(crate) fn signal_wait(
    py: Python<'_>,
    world: &World,
    signal: &Bound<'_, PyAny>,
    (cmp, value): (&str, u64),
    pe: Option<i64>,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let how = match cmp {
        "eq" | "==" => Cmp::Eq,
        "ne" | "!=" => Cmp::Ne,
        "gt" | ">" => Cmp::Gt,
        "le" | "<=" => Cmp::Le,
        "lt" | "<" => Cmp::Lt,
        "ge" | ">=" => Cmp::Ge,
        other => return Err(Failure::invalid(format!("cmp is `{other}`; use eq, ne, gt, le, lt or ge")).into()),
    };
    let (word, from) = (signal_word(world, signal)?, awaited(world, pe)?);
    let on = world.on(py, stream, &[])?;
    world.run(py, on, move |world, on| {
        let word = word.part.elements::<u64>()?;
        match (on, from) {
            (None, None) => world.signal_wait_until(word, how, value),
            (None, Some(pe)) => world.signal_wait_until_from(word, how, value, pe),
            (Some(stream), None) => world.signal_wait_until_on(stream, word, how, value),
            (Some(stream), Some(pe)) => world.signal_wait_until_from_on(stream, word, how, value, pe),
        }
    })
}

/// Waits for `n` signals that a shadow does not count. Returns the shadow that counts them.
pub(crate) fn signal_wait_shadow(
    py: Python<'_>,
    world: &World,
    signal: &Bound<'_, PyAny>,
    (shadow, n): (u64, u64),
    pe: Option<i64>,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<u64> {
    let (word, from) = (signal_word(world, signal)?, awaited(world, pe)?);
    let on = world.on(py, stream, &[])?;
    world.run(py, on, move |world, on| {
        let (word, mut shadow) = (word.part.elements::<u64>()?, shadow);
        match on {
            None => world.signal_wait_shadow(word, &mut shadow, n, from),
            Some(stream) => world.signal_wait_shadow_on(stream, word, &mut shadow, n, from),
        }
    })?;
    Ok(shadow.wrapping_add(n))
}

/// Returns the PE that the error of a wait names.
fn awaited(world: &World, pe: Option<i64>) -> Result<Option<usize>, Failure> {
    pe.map(|pe| pe_of(pe, world.pes())).transpose()
}
