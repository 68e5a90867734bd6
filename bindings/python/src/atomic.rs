//! Atomic operations on words of other PEs.

use crate::error::Failure;
use crate::symmetric::{Elements, pe_of};
use crate::world::{On, World};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use warpbell::engine::Stream;
use warpbell::shmem::ShmemError;
use warpbell::shmem::calls::{AtomicInteger, AtomicWord};
use warpbell::storage::ElementType;

/// An operation on a word. Those that are not `Fetch` take a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Fetch,
    Set,
    Swap,
    CompareSwap,
    Add,
    And,
    Or,
    Xor,
}

/// The operands of an operation, as Python gives them.
pub(crate) struct Operands<'a, 'py> {
    pub(crate) value: Option<&'a Bound<'py, PyAny>>,
    pub(crate) expected: Option<&'a Bound<'py, PyAny>>,
    /// True if the previous value is returned.
    pub(crate) fetch: bool,
}

/// Performs an operation on the first of some elements of a PE. Returns the previous value, or `None`.
pub(crate) fn perform(
    py: Python<'_>,
    world: &World,
    operation: Operation,
    word: &Bound<'_, PyAny>,
    operands: Operands<'_, '_>,
    pe: i64,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let elements = world.blocks().find(word, "word")?;
    let pe = pe_of(pe, world.pes())?;
    if elements.shape.contains(&0) {
        return Err(Failure::invalid("word: it has no elements, and atomic operations act on the first one").into());
    }
    let on = world.on(py, stream, &[word])?;
    let atomic = Atomic { world, operation, elements, operands, pe, on };
    match atomic.elements.element {
        ElementType::U32 => atomic.integer::<u32>(py),
        ElementType::I32 => atomic.integer::<i32>(py),
        ElementType::U64 => atomic.integer::<u64>(py),
        ElementType::I64 => atomic.integer::<i64>(py),
        ElementType::F32 => atomic.word::<f32>(py),
        ElementType::F64 => atomic.word::<f64>(py),
        _ => {
            let text = format!("word: elements of {}; atomic words have 32 or 64 bits", atomic.elements.dtype());
            Err(Failure::invalid(text).into())
        }
    }
}

struct Atomic<'a, 'py> {
    world: &'a World,
    operation: Operation,
    elements: Elements,
    operands: Operands<'a, 'py>,
    pe: usize,
    on: On,
}

/// Value of a word that Python gives and gets.
trait Value:
    AtomicWord + Send + for<'a, 'py> FromPyObject<'a, 'py, Error: Into<PyErr>> + for<'py> IntoPyObjectExt<'py>
{
}

impl<T> Value for T where
    T: AtomicWord + Send + for<'a, 'py> FromPyObject<'a, 'py, Error: Into<PyErr>> + for<'py> IntoPyObjectExt<'py>
{
}

impl Atomic<'_, '_> {
    fn value<T: Value>(given: Option<&Bound<'_, PyAny>>) -> PyResult<T> {
        let given = given.ok_or_else(|| Failure::invalid("the operation needs a value"))?;
        // Numbers of numpy are no integers of Python, but have an index.
        given.extract().map_err(Into::into)
    }

    fn run<T: Value>(
        self,
        py: Python<'_>,
        work: impl FnOnce(&warpbell::shmem::World, Option<&Stream>, &Elements, usize) -> Result<T, ShmemError>
        + Send
        + 'static,
    ) -> PyResult<Py<PyAny>> {
        let (elements, pe) = (self.elements, self.pe);
        let is_fetch = self.operands.fetch;
        let fetched = self.world.run_then(py, self.on, move |world, on| work(world, on, &elements, pe))?;
        if is_fetch { fetched.into_py_any(py) } else { Ok(py.None()) }
    }

    fn word<T: Value>(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.operation {
            Operation::Fetch => self.run(py, |world, _, e, pe| world.atomic_fetch::<T>(e.part.elements()?, pe)),
            Operation::Set => {
                let value = Self::value::<T>(self.operands.value)?;
                self.run(py, move |world, on, e, pe| {
                    match on {
                        None => world.atomic_set(e.part.elements()?, value, pe)?,
                        Some(stream) => world.atomic_set_on(stream, e.part.elements()?, value, pe)?,
                    }
                    Ok(value)
                })
            }
            Operation::Swap => {
                let value = Self::value::<T>(self.operands.value)?;
                self.run(py, move |world, _, e, pe| world.atomic_swap(e.part.elements()?, value, pe))
            }
            _ => {
                let text = format!("word: elements of {}; this operation is for integers", self.elements.dtype());
                Err(Failure::invalid(text).into())
            }
        }
    }

    fn integer<T: Value + AtomicInteger>(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if matches!(self.operation, Operation::Fetch | Operation::Set | Operation::Swap) {
            return self.word::<T>(py);
        }
        let value = Self::value::<T>(self.operands.value)?;
        if self.operation == Operation::CompareSwap {
            let expected = Self::value::<T>(self.operands.expected)?;
            return self
                .run(py, move |world, _, e, pe| world.atomic_compare_swap(e.part.elements()?, expected, value, pe));
        }
        let (operation, is_fetch) = (self.operation, self.operands.fetch);
        self.run(py, move |world, on, e, pe| {
            let word = e.part.elements::<T>()?;
            if is_fetch {
                return match operation {
                    Operation::Add => world.atomic_fetch_add(word, value, pe),
                    Operation::And => world.atomic_fetch_and(word, value, pe),
                    Operation::Or => world.atomic_fetch_or(word, value, pe),
                    _ => world.atomic_fetch_xor(word, value, pe),
                };
            }
            match (operation, on) {
                (Operation::Add, None) => world.atomic_add(word, value, pe),
                (Operation::Add, Some(stream)) => world.atomic_add_on(stream, word, value, pe),
                (Operation::And, None) => world.atomic_and(word, value, pe),
                (Operation::And, Some(stream)) => world.atomic_and_on(stream, word, value, pe),
                (Operation::Or, None) => world.atomic_or(word, value, pe),
                (Operation::Or, Some(stream)) => world.atomic_or_on(stream, word, value, pe),
                (_, None) => world.atomic_xor(word, value, pe),
                (_, Some(stream)) => world.atomic_xor_on(stream, word, value, pe),
            }?;
            Ok(value)
        })
    }
}
