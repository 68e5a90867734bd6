//! Native part of the Python package `warpbell`. The package in `python/warpbell` re-exports it.
//!
//! | module | contents |
//! |---|---|
//! | `call` | calls without the interpreter, Ctrl-C |
//! | `held` | objects of the library that Python owns |
//! | `fork` | refusal of forked children |
//! | `error` | exceptions |
//! | `dtype`, `view`, `host_array`, `tensor` | arrays of other libraries, and results for them |
//! | `engine`, `stream` | engines and streams |
//! | `external`, `scratch` | kernels of other libraries |
//! | `volume`, `cache` | devices, stored arrays |
//! | `indices`, `table`, `prefetch` | rows by number |
//! | `kv`, `kv_pages` | objects under keys, and pages of tensors that have their bytes |
//! | `segments`, `moving` | transfers that kernels make on streams |
//! | `graph`, `graph_results` | graphs and algorithms |
//! | `world_build`, `world`, `world_calls`, `world_error` | worlds of PEs, their calls and errors |
//! | `symmetric`, `window`, `transfer`, `atomic`, `team` | symmetric memory, put and get, atomic operations, collectives |
//! | `logging` | messages of the library for Python's `logging` |
//! | `progress` | functions of Python that are told the progress |

mod atomic;
mod cache;
mod call;
mod dtype;
mod engine;
mod error;
mod external;
mod fork;
mod graph;
mod graph_results;
mod held;
mod host_array;
mod indices;
mod kv;
mod kv_pages;
mod logging;
mod moving;
mod prefetch;
mod progress;
mod scratch;
mod segments;
mod stream;
mod symmetric;
mod table;
mod team;
mod tensor;
mod transfer;
mod view;
mod volume;
mod volume_buffer;
mod window;
mod world;
mod world_build;
mod world_calls;
mod world_error;

use pyo3::prelude::*;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

/// Runs the program `warpbell` with the words of a command line, and returns its exit status.
#[pyfunction]
fn run_program(words: Vec<OsString>, include: PathBuf) -> u8 {
    let status = warpbell_program::main_with(words, Some(include));
    // The end of a process of Python does not flush Rust's buffers.
    let _ = io::stdout().flush();
    status
}

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<engine::Engine>()?;
    m.add_class::<stream::Stream>()?;
    m.add_class::<external::ExternalRun>()?;
    m.add_class::<external::DeviceView>()?;
    m.add_class::<tensor::Tensor>()?;
    m.add_class::<volume::Volume>()?;
    m.add_class::<volume_buffer::VolumeBuffer>()?;
    m.add_class::<cache::Cache>()?;
    m.add_class::<cache::Array>()?;
    m.add_class::<table::Table>()?;
    m.add_class::<scratch::TableScratch>()?;
    m.add_class::<prefetch::Prefetch>()?;
    m.add_class::<segments::SegmentQueue>()?;
    m.add_class::<segments::SegmentTransfer>()?;
    m.add_class::<kv::KvStore>()?;
    m.add_class::<kv::KvTransfer>()?;
    m.add_class::<graph::Graph>()?;
    m.add_class::<graph_results::BetweennessResult>()?;
    m.add_class::<graph_results::BfsResult>()?;
    m.add_class::<graph_results::MultiBfsResult>()?;
    m.add_class::<graph_results::CdlpResult>()?;
    m.add_class::<graph_results::ComponentsResult>()?;
    m.add_class::<graph_results::ClusteringResult>()?;
    m.add_class::<graph_results::CoresResult>()?;
    m.add_class::<graph_results::PageRankResult>()?;
    m.add_class::<graph_results::TrianglesResult>()?;
    m.add_class::<graph_results::SsspResult>()?;
    m.add_class::<world::World>()?;
    m.add_class::<team::Team>()?;
    m.add_class::<symmetric::SymmetricTensor>()?;
    m.add_class::<window::Window>()?;
    m.add_function(wrap_pyfunction!(world_build::unique_id, m)?)?;
    m.add_function(wrap_pyfunction!(run_program, m)?)?;
    m.add_function(wrap_pyfunction!(error::error_classes, m)?)?;
    logging::install(m)
}
