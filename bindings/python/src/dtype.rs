//! Types of elements: the library's, numpy's and DLPack's.

use crate::error::{Failure, Kind};
use dlpark::ffi::{DLDataType, DLDataTypeCode};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use warpbell::storage::ElementType;

/// Type, numpy's name of it, the letter of `__array_interface__`, and DLPack's code.
const TYPES: [(ElementType, &str, char, DLDataTypeCode); 12] = [
    (ElementType::U8, "uint8", 'u', DLDataTypeCode::UINT),
    (ElementType::U16, "uint16", 'u', DLDataTypeCode::UINT),
    (ElementType::U32, "uint32", 'u', DLDataTypeCode::UINT),
    (ElementType::U64, "uint64", 'u', DLDataTypeCode::UINT),
    (ElementType::I8, "int8", 'i', DLDataTypeCode::INT),
    (ElementType::I16, "int16", 'i', DLDataTypeCode::INT),
    (ElementType::I32, "int32", 'i', DLDataTypeCode::INT),
    (ElementType::I64, "int64", 'i', DLDataTypeCode::INT),
    (ElementType::F16, "float16", 'f', DLDataTypeCode::FLOAT),
    // The array interfaces have no letter for it: ml_dtypes and torch write `<V2`, and records are `|V2`.
    (ElementType::Bf16, "bfloat16", 'V', DLDataTypeCode::BFLOAT),
    (ElementType::F32, "float32", 'f', DLDataTypeCode::FLOAT),
    (ElementType::F64, "float64", 'f', DLDataTypeCode::FLOAT),
];

/// Returns the bytes of an element. Records are plain bytes to Python.
pub(crate) fn bytes_of(element: ElementType) -> usize {
    element.bytes().unwrap_or(1) as usize
}

fn entry(element: ElementType) -> &'static (ElementType, &'static str, char, DLDataTypeCode) {
    TYPES.iter().find(|(e, ..)| *e == element).unwrap_or(&TYPES[0])
}

/// Returns dimensions as Python prints them.
pub(crate) fn shape_text(shape: &[u64]) -> String {
    let numbers: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("({}{})", numbers.join(", "), if numbers.len() == 1 { "," } else { "" })
}

/// Returns numpy's name of a type.
pub(crate) fn name_of(element: ElementType) -> &'static str {
    entry(element).1
}

/// Returns the type as numpy has it. That of bfloat16 is in another package.
pub(crate) fn numpy_of<'py>(py: Python<'py>, element: ElementType) -> PyResult<Bound<'py, PyAny>> {
    let dtype = |of: Bound<'py, PyAny>| py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "dtype"), (of,));
    if element != ElementType::Bf16 {
        return dtype(PyString::new(py, name_of(element)).into_any());
    }
    let package = py.import(intern!(py, "ml_dtypes")).map_err(|_| {
        Failure::new(
            Kind::Unsupported,
            "numpy has no type bfloat16: install the package ml_dtypes, or use torch.from_dlpack, which needs none",
        )
    })?;
    dtype(package.getattr(intern!(py, "bfloat16"))?)
}

/// Returns the type as `__array_interface__` writes it, such as `<f4`.
pub(crate) fn typestr_of(element: ElementType) -> String {
    let bytes = bytes_of(element);
    format!("{}{}{bytes}", if bytes == 1 { '|' } else { '<' }, entry(element).2)
}

pub(crate) fn dlpack_of(element: ElementType) -> DLDataType {
    DLDataType { code: entry(element).3, bits: (bytes_of(element) * 8) as u8, lanes: 1 }
}

/// Returns the type as `__array_interface__` writes it.
pub(crate) fn typestr_of_dlpack(dtype: DLDataType) -> Result<String, Failure> {
    let letter = match dtype.code {
        DLDataTypeCode::BOOL => Some('b'),
        code => TYPES.iter().find(|(.., c)| *c == code).map(|(_, _, letter, _)| *letter),
    };
    let bytes = dtype.bits / 8;
    match letter.filter(|_| dtype.lanes == 1 && dtype.bits.is_multiple_of(8)) {
        Some(letter) => Ok(format!("{}{letter}{bytes}", if bytes == 1 { '|' } else { '<' })),
        None => {
            let (code, bits, lanes) = (dtype.code.0, dtype.bits, dtype.lanes);
            Err(Failure::invalid(format!(
                "elements of DLPack's type {code} of {bits} bits in {lanes} lanes are not plain numbers; view them as unsigned integers"
            )))
        }
    }
}

/// Returns the type that numpy calls by this name, in the byte order of the machine.
pub(crate) fn from_name(name: &str) -> Result<ElementType, Failure> {
    let found = TYPES.iter().find(|(_, n, ..)| *n == name).map(|(e, ..)| *e);
    found.ok_or_else(|| {
        // `astype` would parse raw bytes as digits.
        if name.trim_start_matches(['|', '<']).starts_with('V') {
            return Failure::invalid(format!(
                "elements of type {name} are raw bytes, as numpy.load returns bfloat16 and floats of 8 bits; view them as what they are, such as array.view(ml_dtypes.bfloat16), array.view(\"uint16\") or array.view(\"uint8\")"
            ));
        }
        let names: Vec<&str> = TYPES.iter().map(|(_, n, ..)| *n).collect();
        Failure::invalid(format!(
            "elements of type {name} cannot be stored; convert them to one of {}, or view them as unsigned integers of as many bits",
            names.join(", ")
        ))
    })
}

/// Returns the type that an argument of Python names: text, or a type of numpy or torch.
pub(crate) fn of_python(dtype: &Bound<'_, PyAny>) -> PyResult<ElementType> {
    let text = dtype.str()?.extract::<String>()?;
    if dtype.is_instance_of::<PyString>() {
        return Ok(from_name(&text)?);
    }
    if let Some(name) = text.strip_prefix("torch.") {
        return Ok(from_name(name)?);
    }
    let found =
        dtype.py().import(intern!(dtype.py(), "numpy"))?.call_method1(intern!(dtype.py(), "dtype"), (dtype,))?;
    Ok(from_name(&found.str()?.extract::<String>()?)?)
}

/// Returns the type that `__array_interface__` writes so.
pub(crate) fn from_typestr(text: &str) -> Option<ElementType> {
    TYPES.iter().map(|(e, ..)| *e).find(|e| typestr_of(*e) == text)
}
