//! Compares the committed declarations of rdma-core's libraries with two others: rdma-sys, and the C compiler's own
//! view of the headers.
//!
//! `build.rs` writes the questions from the committed file itself, so that no declaration is left out.
#![cfg(test)]

#[path = "../../../host/rdma/sys/bindings.rs"]
#[allow(non_camel_case_types, non_snake_case, dead_code)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
mod ours;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::mem::{offset_of, transmute_copy};

/// A name, and offset, size and alignment.
type Layout = (&'static str, [usize; 3]);

/// Implemented for types whose names rdma-sys does not have.
trait Absent {}
fn is_absent<T: Absent>() {}

fn number<T>(value: T) -> u32 {
    assert_eq!(size_of::<T>(), size_of::<u32>());
    // SAFETY: an integer, or a structure or enumeration that is one, of this size.
    unsafe { transmute_copy(&value) }
}

/// Returns size and alignment of the type that the second pointer points to.
fn shape<T, F>(_: fn(*const T) -> *const F) -> [usize; 2] {
    [size_of::<F>(), align_of::<F>()]
}

macro_rules! whole {
    ($name:literal, $of:ty) => {
        ($name, [0, size_of::<$of>(), align_of::<$of>()])
    };
}

macro_rules! field {
    ($name:literal, $of:ty, $($path:ident).+) => {{
        // SAFETY: never called; only its type is used.
        let [size, align] = shape(|p: *const $of| unsafe { &raw const (*p).$($path).+ });
        ($name, [offset_of!($of, $($path).+), size, align])
    }};
}

#[allow(non_camel_case_types)]
mod generated {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/generated.rs"));
}

#[repr(C)]
struct CLayout {
    name: *const c_char,
    layout: [usize; 3],
}

#[repr(C)]
struct CNumber {
    name: *const c_char,
    value: u32,
}

unsafe extern "C" {
    static c_layouts: CLayout;
    static c_numbers: CNumber;
}

/// Returns the rows of a table that ends with a row without a name.
///
/// # Safety
/// `first` begins such a table, which nothing changes.
unsafe fn rows<T, V>(first: *const T, row: fn(&T) -> (*const c_char, V)) -> BTreeMap<String, V> {
    let mut all = BTreeMap::new();
    for i in 0.. {
        // SAFETY: before the end of the table.
        let (name, value) = row(unsafe { &*first.add(i) });
        if name.is_null() {
            break;
        }
        // SAFETY: a C string of that table.
        let name = unsafe { CStr::from_ptr(name) }.to_str().expect("ASCII").to_owned();
        assert!(all.insert(name.clone(), value).is_none(), "{name} twice");
    }
    all
}

/// Fails with all differences.
#[track_caller]
fn same<V: PartialEq + std::fmt::Debug>(of: &str, theirs: &BTreeMap<String, V>, ours: &[(&'static str, V)]) {
    let ours: BTreeMap<&str, &V> = ours.iter().map(|(name, value)| (*name, value)).collect();
    let wrong: Vec<String> = theirs
        .iter()
        .filter(|(name, value)| ours.get(name.as_str()) != Some(value))
        .map(|(name, value)| format!("{name}: {of} has {value:?}, these declarations {:?}", ours.get(name.as_str())))
        .collect();
    assert!(wrong.is_empty(), "(offset, size, alignment, or a constant)\n{}", wrong.join("\n"));
}

fn owned<V: Copy>(rows: &[(&'static str, V)]) -> BTreeMap<String, V> {
    rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

#[test]
fn everything_is_as_the_c_compiler_sees_the_headers() {
    // SAFETY: tables of `headers.c`.
    let layouts = unsafe { rows(&raw const c_layouts, |r| (r.name, r.layout)) };
    // SAFETY: as above.
    let numbers = unsafe { rows(&raw const c_numbers, |r| (r.name, r.value)) };
    let (ours, our_numbers) = (generated::ours(), generated::our_numbers());
    assert_eq!((layouts.len(), numbers.len()), (ours.len(), our_numbers.len()));
    same("the header", &layouts, &ours);
    same("the header", &numbers, &our_numbers);
    println!(
        "{} types and fields, {} constants, {} functions as in the headers",
        layouts.len(),
        numbers.len(),
        generated::FUNCTIONS.len()
    );
}

#[test]
fn what_rdma_sys_has_is_the_same() {
    let (layouts, numbers) = (owned(&generated::theirs()), owned(&generated::their_numbers()));
    same("rdma-sys", &layouts, &generated::ours());
    same("rdma-sys", &numbers, &generated::our_numbers());
    generated::lacking_is_lacking();
    println!("{} types and fields, {} constants as in rdma-sys", layouts.len(), numbers.len());
    println!("rdma-sys lacks, compared with the headers alone: {}", generated::LACKING.join(" "));
}
