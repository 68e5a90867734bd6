//! C interface of warpbell. `cbindgen` makes `include/warpbell.h` from these files; their documentation is the header's.
//!
//! Rules that hold for every function, so that none repeats them:
//!
//! * Pointers to structures, handles and results are valid for the call, or null where the function says so. A null
//!   pointer elsewhere is an error and not undefined behaviour.
//! * Functions return `WB_OK` or a negative code. Results are written only on success.
//! * Nothing panics across the border: a panic is caught and becomes `WB_ERR_INTERNAL`.
//!
//! | module | contents |
//! |---|---|
//! | `error` | codes, the last error of a thread |
//! | `object` | handles: reference counts and the check of their type |
//! | `pointer` | pointers as types with safe methods, and the rule that they rely on |
//! | `options` | structures that begin with their size, durations, strings |
//! | `engine` | engines and images |
//! | `region` | memory: allocated, or the program's own |
//! | `stream` | streams, also the program's |
//! | `run` | launches, and runs around the program's own launches |
//! | `element` | types of elements |
//! | `volume`, `stored_array`, `buffer` | devices, the arrays that they hold, memory in which their data lands |
//! | `cache`, `array` | elements of a volume, for kernels and the host |
//! | `table`, `table_store` | tables of rows: opened, stored, listed, imported, removed |
//! | `table_rows`, `table_batch`, `table_scratch` | rows that are gathered and written: by calls, in flight, by kernels of the program |
//! | `segments`, `segment_transfer` | objects of a volume that kernels move between blocks and segments of memory |
//! | `kv`, `kv_objects`, `kv_pages` | KV stores: opened, listed, removed; their objects for the host, and in pages of kernels' memory |
//! | `graph_input`, `graph` | graphs of files, of volumes and of the program's memory |
//! | `graph_lists` | neighbour lists, for kernels of the program |
//! | `graph_result`, `values` | algorithms and their results |
//! | `world` | worlds of PEs |
//! | `bootstrap` | the ways by which the ranks of a world find each other |
//! | `team` | teams of PEs, collective calls |
//! | `symmetric` | memory in the symmetric heap, put and get |
//! | `window` | memory that was allocated elsewhere and registered as symmetric |
//! | `signal` | signals and atomic operations |
//! | `world_error` | errors of calls of a world |
//! | `report` | versions, what the machine can do |
#![allow(non_camel_case_types)]

pub mod array;
pub mod bootstrap;
pub mod buffer;
pub mod cache;
pub mod element;
pub mod engine;
pub mod error;
pub mod graph;
pub mod graph_input;
pub mod graph_lists;
pub mod graph_result;
pub mod kv;
pub mod kv_objects;
pub mod kv_pages;
mod object;
mod options;
mod pointer;
pub mod region;
pub mod report;
pub mod run;
pub mod segment_transfer;
pub mod segments;
pub mod signal;
pub mod stored_array;
pub mod stream;
pub mod symmetric;
pub mod table;
pub mod table_batch;
pub mod table_rows;
pub mod table_scratch;
pub mod table_store;
pub mod team;
pub mod values;
pub mod volume;
pub mod window;
pub mod world;
mod world_error;
