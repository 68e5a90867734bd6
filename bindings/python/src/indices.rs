//! Numbers of rows as Python names them.

use crate::error::{Failure, Kind, wrong_type};
use crate::host_array::Source;
use crate::view;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PySlice, PyTuple};
use std::sync::Arc;
use warpbell::memory::Region;
use warpbell::storage::{RowIndices, Table};

/// Numbers of rows: of the host, or in memory of the GPU.
#[derive(Clone)]
pub(crate) enum Indices {
    Host(Arc<Vec<u64>>),
    Engine { region: Region, count: u64, wide: bool },
}

impl Indices {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Host(list) => list.len() as u64,
            Self::Engine { count, .. } => *count,
        }
    }

    /// Passes the numbers on in the form that tables take.
    pub(crate) fn use_in<T>(&self, then: impl FnOnce(RowIndices<'_>) -> T) -> T {
        match self {
            Self::Host(list) => then(RowIndices::from(list.as_ref())),
            Self::Engine { region, count, wide: true } => then(RowIndices::u64(region, *count)),
            Self::Engine { region, count, wide: false } => then(RowIndices::u32(region, *count)),
        }
    }
}

/// Numbers of rows, the dimensions that they have, and the object that they were.
pub(crate) struct Named<'py> {
    pub(crate) indices: Indices,
    pub(crate) shape: Vec<u64>,
    pub(crate) object: Bound<'py, PyAny>,
    pub(crate) on_gpu: bool,
}

impl<'py> Named<'py> {
    /// Reads a number, a slice, a list, a mask, or an array of integers. Negative numbers of the host count from the end.
    pub(crate) fn of(object: &Bound<'py, PyAny>, table: &Table) -> PyResult<Self> {
        let rows = table.layout().rows();
        let host = |list: Vec<u64>, shape: Vec<u64>| Self {
            indices: Indices::Host(Arc::new(list)),
            shape,
            object: object.clone(),
            on_gpu: false,
        };
        if object.is_instance_of::<PyTuple>() {
            return Err(wrong_type(
                "indices are a tuple; rows have one index: pass a list, and choose elements of the result",
            ));
        }
        if let Ok(slice) = object.cast::<PySlice>() {
            let found = slice.indices(rows as isize)?;
            let list = (0..found.slicelength as i64).map(|i| (found.start as i64 + i * found.step as i64) as u64);
            return Ok(host(list.collect(), vec![found.slicelength as u64]));
        }
        if object.is_exact_instance_of::<PyInt>() {
            let found = resolved(&[object.extract()?], table)?;
            return Ok(host(found, Vec::new()));
        }
        let given = view::of(object)?;
        let integers = match given.typestr.as_bytes() {
            [_, b'b', b'1'] => return Self::of_mask(object, rows, table),
            [_, b'i' | b'u', ..] => true,
            // An empty list is an array of real numbers to numpy.
            _ => given.len() == 0,
        };
        if !integers {
            return Err(not_integers(&given.typestr));
        }
        if given.on_gpu && given.len() > 0 {
            let wide = match &given.typestr[1..] {
                "i4" | "u4" => false,
                "i8" | "u8" => true,
                other => return Err(not_integers(&format!("{other} on the GPU; convert them to 32 or 64 bits"))),
            };
            let region = given.on_engine(table.volume().engine(), "indices")?;
            let (count, shape) = (given.len(), given.shape);
            return Ok(Self {
                indices: Indices::Engine { region, count, wide },
                shape,
                object: object.clone(),
                on_gpu: true,
            });
        }
        if given.len() == 0 {
            return Ok(host(Vec::new(), given.shape));
        }
        let array = view::as_numpy(object)?;
        let list = if given.typestr.as_bytes()[1] == b'u' {
            reshaped(&array, "uint64")?.to_vec::<u64>()?
        } else {
            resolved(&reshaped(&array, "int64")?.to_vec()?, table)?
        };
        Ok(host(list, given.shape))
    }

    fn of_mask(object: &Bound<'py, PyAny>, rows: u64, table: &Table) -> PyResult<Self> {
        let given = view::of(object)?;
        if given.on_gpu || given.shape != [rows] {
            let text = if given.on_gpu {
                "a mask on the GPU; pass the numbers of its rows, as torch.nonzero returns them".to_owned()
            } else {
                format!(
                    "a mask of shape {:?} for table `{}` of {rows} rows; it has one value for each row",
                    given.shape,
                    table.name()
                )
            };
            return Err(Failure::invalid(text).into());
        }
        let numpy = object.py().import(intern!(object.py(), "numpy"))?;
        let list =
            Source::of(&numpy.call_method1("flatnonzero", (view::as_numpy(object)?,))?, Some("uint64"), "indices")?
                .to_vec::<u64>()?;
        let count = list.len() as u64;
        Ok(Self { indices: Indices::Host(Arc::new(list)), shape: vec![count], object: object.clone(), on_gpu: false })
    }
}

fn reshaped(array: &Bound<'_, PyAny>, dtype: &str) -> PyResult<Source> {
    Source::of(&array.call_method1(intern!(array.py(), "reshape"), (-1,))?, Some(dtype), "indices")
}

/// Makes numbers that count from the end numbers of rows. Others that are no rows are found by the gather.
fn resolved(list: &[i64], table: &Table) -> Result<Vec<u64>, Failure> {
    let rows = table.layout().rows();
    let one = |(position, index): (usize, &i64)| {
        let found = if *index < 0 { rows.checked_add_signed(*index) } else { Some(*index as u64) };
        found.ok_or_else(|| {
            let text = format!(
                "table `{}`: index {index} at position {position} of the batch is no row; the table has {rows} rows",
                table.name()
            );
            Failure::new(Kind::RowIndex, text)
        })
    };
    list.iter().enumerate().map(one).collect()
}

/// Returns a `TypeError` for indices that are no integers.
fn not_integers(found: &str) -> PyErr {
    wrong_type(format!("indices are of type {found}; rows are named by integers, a slice, or a mask"))
}
