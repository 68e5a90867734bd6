//! Compares the committed declarations of rdma-core's libraries with two others: rdma-sys, and the C compiler's own
//! view of the headers.
//!
//! `build.rs` writes the questions from the committed file itself, so that no declaration is left out.
#![cfg(test)]

#[path = "../../../host/rdma/sys/bindings.rs"]
#[allow(non_camel_case_types, non_snake_case, dead_code)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
mod ours;

// The names by which the file below finds the declarations.
use ours as bindings;

#[path = "../../../host/rdma/sys/cm.rs"]
#[allow(non_camel_case_types, dead_code)]
mod cm;

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
    // SAFETY: tables of `headers.c`.
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

#[test]
fn the_types_of_the_connection_manager_are_those_of_rdma_sys() {
    macro_rules! same_offset {
        ($($of:ident: $ours:ident $(. $our_rest:ident)* = $theirs:ident $(. $their_rest:ident)*;)*) => {
            $(assert_eq!(
                offset_of!(cm::$of, $ours $(.$our_rest)*),
                offset_of!(rdma_sys::$of, $theirs $(.$their_rest)*),
                "{}.{}", stringify!($of), stringify!($ours)
            );)*
        };
    }
    same_offset! {
        rdma_event_channel: fd = fd;
        rdma_cm_id: verbs = verbs;
        rdma_cm_id: channel = channel;
        rdma_cm_id: context = context;
        rdma_cm_id: qp = qp;
        rdma_cm_id: route = route;
        rdma_cm_id: ps = ps;
        rdma_cm_id: port_num = port_num;
        rdma_route: path_rec = path_rec;
        rdma_route: num_paths = num_paths;
        rdma_route: sgid = addr.addr;
        rdma_conn_param: private_data = private_data;
        rdma_conn_param: private_data_len = private_data_len;
        rdma_conn_param: responder_resources = responder_resources;
        rdma_conn_param: initiator_depth = initiator_depth;
        rdma_conn_param: flow_control = flow_control;
        rdma_conn_param: retry_count = retry_count;
        rdma_conn_param: rnr_retry_count = rnr_retry_count;
        rdma_conn_param: srq = srq;
        rdma_conn_param: qp_num = qp_num;
        rdma_cm_event: id = id;
        rdma_cm_event: listen_id = listen_id;
        rdma_cm_event: event = event;
        rdma_cm_event: status = status;
        rdma_cm_event: conn = param;
    }
    assert_eq!(size_of::<cm::rdma_route>(), size_of::<rdma_sys::rdma_route>());
    assert_eq!(size_of::<cm::rdma_conn_param>(), size_of::<rdma_sys::rdma_conn_param>());
    assert_eq!(size_of::<cm::rdma_cm_event>(), size_of::<rdma_sys::rdma_cm_event>());
}
