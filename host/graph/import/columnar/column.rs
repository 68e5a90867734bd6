//! Columns of one batch: identifiers of vertices, and weights.

use crate::graph::import::line_fault::LineFault;
use crate::graph::import::names::Vertices;
use crate::graph::import::text::{self, Weight};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

/// Calls a macro with the Arrow type of each width of integers.
macro_rules! integers {
    ($each:ident) => {
        $each!(Int8: Int8Type, Int16: Int16Type, Int32: Int32Type, Int64: Int64Type,
            UInt8: UInt8Type, UInt16: UInt16Type, UInt32: UInt32Type, UInt64: UInt64Type)
    };
}

/// Returns true if identifiers of this type are strings, false if they are integers, and `None` for other types.
pub(super) fn identifiers(kind: &DataType) -> Option<bool> {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(true),
        DataType::Dictionary(_, values) if !matches!(**values, DataType::Dictionary(..)) => identifiers(values),
        kind => kind.is_integer().then_some(false),
    }
}

/// Returns true if weights can have the type.
pub(super) fn is_number(kind: &DataType) -> bool {
    kind.is_integer() || matches!(kind, DataType::Float32 | DataType::Float64)
}

type At<'a, T> = Box<dyn Fn(usize) -> T + 'a>;

fn integer(array: &dyn Array) -> Option<At<'_, i128>> {
    macro_rules! each {
        ($($name:ident: $type:ty),*) => {
            match array.data_type() {
                $(DataType::$name => {
                    let values = array.as_primitive_opt::<$type>()?.values();
                    Some(Box::new(move |row| values[row].into()))
                })*
                _ => None,
            }
        };
    }
    integers!(each)
}

fn string(array: &dyn Array) -> Option<At<'_, &str>> {
    Some(match array.data_type() {
        DataType::Utf8 => {
            let strings = array.as_string_opt::<i32>()?;
            Box::new(move |row| strings.value(row))
        }
        DataType::LargeUtf8 => {
            let strings = array.as_string_opt::<i64>()?;
            Box::new(move |row| strings.value(row))
        }
        DataType::Utf8View => {
            let strings = array.as_string_view_opt()?;
            Box::new(move |row| strings.value(row))
        }
        _ => return None,
    })
}

enum Values<'a> {
    Integers(At<'a, i128>),
    Strings(At<'a, &'a str>),
}

/// Identifiers of a column, plain or with a dictionary.
pub(super) struct Identifiers<'a> {
    array: &'a dyn Array,
    values: Values<'a>,
    dictionary: Option<Dictionary>,
}

struct Dictionary {
    keys: Vec<usize>,
    /// True for values that are null themselves.
    nulls: Vec<bool>,
    /// Numbers of the values that occurred.
    known: Vec<Option<u64>>,
}

impl<'a> Identifiers<'a> {
    /// Takes a column, or returns `None` for another type than those of [`identifiers`].
    pub(super) fn of(column: &'a ArrayRef) -> Option<Self> {
        let array: &dyn Array = column.as_ref();
        let (values, dictionary): (&dyn Array, _) = match array.as_any_dictionary_opt() {
            None => (array, None),
            Some(dictionary) => {
                let values = dictionary.values().as_ref();
                // Without values every key is null.
                let keys = if values.is_empty() { Vec::new() } else { dictionary.normalized_keys() };
                let nulls = (0..values.len()).map(|i| values.is_null(i)).collect();
                (values, Some(Dictionary { keys, nulls, known: vec![None; values.len()] }))
            }
        };
        let values = match integer(values) {
            Some(integers) => Values::Integers(integers),
            None => Values::Strings(string(values)?),
        };
        Some(Self { array, values, dictionary })
    }

    /// Returns the number of the vertex in a row, or `None` for a null.
    pub(super) fn at(&mut self, row: usize, vertices: &Vertices) -> Option<Result<u64, LineFault>> {
        if self.array.is_null(row) {
            return None;
        }
        let number = |values: &Values<'_>, at: usize| match values {
            Values::Strings(strings) => vertices.of(strings(at).as_bytes()),
            Values::Integers(integers) => vertices.of_integer(integers(at)),
        };
        let Some(dictionary) = &mut self.dictionary else { return Some(number(&self.values, row)) };
        let key = *dictionary.keys.get(row)?;
        if dictionary.nulls[key] {
            return None;
        }
        if let Some(known) = dictionary.known[key] {
            return Some(Ok(known));
        }
        Some(number(&self.values, key).inspect(|number| dictionary.known[key] = Some(*number)))
    }
}

/// Weights of a column.
pub(super) struct Weights<'a> {
    array: &'a dyn Array,
    at: At<'a, Result<Weight, LineFault>>,
}

impl<'a> Weights<'a> {
    /// Takes a column, or returns `None` for another type than those of [`is_number`].
    pub(super) fn of(column: &'a ArrayRef) -> Option<Self> {
        let array: &dyn Array = column.as_ref();
        let at: At<'a, Result<Weight, LineFault>> = match array.data_type() {
            DataType::Float32 => {
                let values = array.as_primitive_opt::<Float32Type>()?.values();
                Box::new(move |row| text::real(values[row].into(), || values[row].to_string()))
            }
            DataType::Float64 => {
                let values = array.as_primitive_opt::<Float64Type>()?.values();
                Box::new(move |row| text::real(values[row], || values[row].to_string()))
            }
            _ => {
                let integers = integer(array)?;
                Box::new(move |row| {
                    let (value, found) = (integers(row), || integers(row).to_string());
                    match u32::try_from(value) {
                        Ok(weight) => Ok(Weight::Integer(weight)),
                        Err(_) if value < 0 => Err(LineFault::NegativeWeight { found: found() }),
                        Err(_) => Err(LineFault::HugeWeight { found: found() }),
                    }
                })
            }
        };
        Some(Self { array, at })
    }

    /// Returns the weight in a row, or `None` for a null.
    pub(super) fn at(&self, row: usize) -> Option<Result<Weight, LineFault>> {
        (!self.array.is_null(row)).then(|| (self.at)(row))
    }
}
