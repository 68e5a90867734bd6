//! Results of graph algorithms: one value for each vertex, in the engine's memory.

use crate::element::{self, WB_F64, WB_U32, WB_U64};
use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::options::{Options, owned_text};
use crate::pointer::{In, Out, Owned};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use warpbell::graph::VertexValues;
use warpbell::memory::{MemoryError, Region};
use warpbell::storage::ElementType;

/// Values of all vertices, as an algorithm left them in the engine's memory. No later run changes them.
pub struct wb_values_t {
    _private: (),
}

object!(wb_values_t: Values, "values");

/// Depth of a vertex that a search did not reach.
pub const WB_UNREACHED: u32 = 0xffff_ffff;
/// Parent or distance that stands for none, where values have 32 bits.
pub const WB_NONE_U32: u32 = 0xffff_ffff;
/// Parent or distance that stands for none, where values have 64 bits.
pub const WB_NONE_U64: u64 = 0xffff_ffff_ffff_ffff;

/// Numbers of a run. Fields that an algorithm does not have are zero.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wb_report {
    /// `sizeof(wb_report)`, set by the program before the call.
    pub size: usize,
    /// Wall-clock time in seconds.
    pub elapsed_seconds: f64,
    /// Levels of a search, iterations of PageRank and label propagation, phases of components, ranges of distances of shortest paths,
    /// sources of betweenness centrality, levels of a k-core decomposition, steps of a count of triangles or of arcs between neighbours.
    pub steps: u64,
    /// Edges inspected.
    pub scanned: u64,
    /// Vertices that a breadth-first search reached, including the source.
    pub reached: u64,
    /// Connected components, or communities of label propagation.
    pub components: u64,
    /// 1 if PageRank reached the tolerance, or had none.
    pub converged: u64,
    /// Sum of the changes of all ranks in the last iteration of PageRank.
    pub change: f64,
    /// Width of a range of distances of shortest paths.
    pub delta: f64,
    /// Bytes read from storage.
    pub read_bytes: u64,
    /// Triangles of the graph.
    pub triangles: u64,
    /// Largest core number.
    pub largest_core: u64,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_report {
    const NAME: &str = "wb_report";
}

impl Default for wb_report {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            elapsed_seconds: 0.0,
            steps: 0,
            scanned: 0,
            reached: 0,
            components: 0,
            converged: 0,
            change: 0.0,
            delta: 0.0,
            read_bytes: 0,
            triangles: 0,
            largest_core: 0,
        }
    }
}

/// A run's numbers, and their details as JSON.
pub(crate) struct Facts {
    pub report: wb_report,
    pub json: String,
}

pub(crate) struct Values {
    pub values: VertexValues,
    pub facts: Arc<Facts>,
}

/// Adds a reference to values.
///
/// @return The values; null with an error if they are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_values_retain(values: Owned<wb_values_t>) -> *mut wb_values_t {
    values.retain()
}

/// Gives a reference to values back. Runs keep the values among their arguments.
///
/// @param values The values; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_values_release(values: Owned<wb_values_t>) {
    values.release()
}

/// Returns the number of values, which is the number of vertices.
///
/// @param length Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_values_length(values: In<wb_values_t>, length: Out<u64>) -> wb_code {
    guard(|| {
        let found = values.get()?.values.len() as u64;
        length.write("length", found)
    })
}

/// Returns the type of a value in the engine's memory.
///
/// @param dtype Receives `WB_U32`, `WB_U64` or `WB_F64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_values_dtype(values: In<wb_values_t>, dtype: Out<u32>) -> wb_code {
    guard(|| {
        let found = element::dtype_of(values.get()?.values.element_type());
        dtype.write("dtype", found)
    })
}

/// Returns the address of the first value, for kernels and for copies by the program.
///
/// @param address Receives the address. It is valid while the program or a run holds the values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_values_address(values: In<wb_values_t>, address: Out<*mut c_void>) -> wb_code {
    guard(|| {
        let found = values.get()?.values.region().address();
        address.write("address", found as *mut c_void)
    })
}

/// Copies values to the host.
///
/// @param first First vertex.
/// @param count Number of values.
/// @param dtype Type of the copy: that of `wb_values_dtype`; `WB_U64` also for values of 32 bits, whose none becomes
///   `WB_NONE_U64`; `WB_F64` for all, whose none becomes infinity.
/// @param data Destination.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the vertices do not exist, or values have another type; `WB_ERR_MEMORY` if the copy
///   fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_values_read(
    values: In<wb_values_t>,
    first: u64,
    count: usize,
    dtype: u32,
    mut data: Out<c_void>,
) -> wb_code {
    guard(|| {
        let values = &values.get()?.values;
        let vertices = values.len();
        let first = usize::try_from(first).ok().filter(|f| f.checked_add(count).is_some_and(|end| end <= vertices));
        let Some(first) = first else {
            return Err(Error::argument(format!("`first` and `count` do not lie within the {vertices} values")));
        };
        let region = values.region();
        // In each case the rules of the header hold: nothing else uses the destination during the call.
        match (values.element_type(), dtype) {
            (ElementType::U32, WB_U32) => {
                let out: &mut [u32] = data.of(count, "data")?;
                Ok(region.read(first * 4, bytemuck::cast_slice_mut(out))?)
            }
            (ElementType::U64, WB_U64) => {
                let out: &mut [u64] = data.of(count, "data")?;
                Ok(region.read(first * 8, bytemuck::cast_slice_mut(out))?)
            }
            (ElementType::U32, WB_U64) => {
                let out = data.of(count, "data")?;
                Ok(convert(region, first, out, |v: u32| if v == WB_NONE_U32 { WB_NONE_U64 } else { v.into() })?)
            }
            (ElementType::U32, WB_F64) => {
                let out = data.of(count, "data")?;
                Ok(convert(region, first, out, |v: u32| if v == WB_NONE_U32 { f64::INFINITY } else { v.into() })?)
            }
            (ElementType::U64, WB_F64) => {
                let out = data.of(count, "data")?;
                Ok(convert(region, first, out, |v: u64| if v == WB_NONE_U64 { f64::INFINITY } else { v as f64 })?)
            }
            (ElementType::F64, WB_F64) => {
                let out = data.of(count, "data")?;
                let real = |v: f64| if v.to_bits() == WB_NONE_U64 { f64::INFINITY } else { v };
                Ok(convert(region, first, out, real)?)
            }
            (found, _) => {
                let asked = element::element_type(dtype)?;
                Err(Error::argument(format!("the values have type {found} and cannot be read as {asked}")))
            }
        }
    })
}

/// Follows the parents of a search from a vertex back to the source.
///
/// @param parent Parents, as `wb_bfs` or `wb_sssp` returned them.
/// @param target Last vertex of the path.
/// @param path Receives the vertices of a shortest path from the source to the target, both included.
/// @param capacity Number of vertices for which `path` has space. A path has at most as many vertices as the graph.
/// @param length Receives the number of vertices of the path; 0 if the search did not reach the target.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the target is not a vertex, the values are not parents, or the path is longer than
///   `capacity`: `length` is then set, and no vertex is written; `WB_ERR_MEMORY` if values cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_values_path(
    parent: In<wb_values_t>,
    target: u64,
    path: Out<u64>,
    capacity: usize,
    length: Out<usize>,
) -> wb_code {
    guard(|| {
        length.check("length")?;
        let values = &parent.get()?.values;
        if target >= values.len() as u64 {
            let vertices = values.len();
            return Err(Error::argument(format!(
                "`target` is {target}, and the graph has {vertices} vertices, numbered from 0"
            )));
        }
        if values.element_type() == ElementType::F64 {
            return Err(Error::argument("the values are real numbers, not parents; pass the parents of a search"));
        }
        let found = values.path_to(target)?.unwrap_or_default();
        length.write("length", found.len())?;
        if found.len() > capacity {
            let (needed, vertex) = (found.len(), target);
            return Err(Error::argument(format!(
                "the path to vertex {vertex} has {needed} vertices, and `capacity` is {capacity}"
            )));
        }
        found.iter().enumerate().try_for_each(|(i, v)| path.at(i).write("path", *v))
    })
}

/// Copies values of another type, a part at a time.
fn convert<T: bytemuck::Pod, U>(
    region: &Region,
    first: usize,
    out: &mut [U],
    each: impl Fn(T) -> U,
) -> Result<(), MemoryError> {
    const AT_ONCE: usize = 1 << 18;
    for (i, part) in out.chunks_mut(AT_ONCE).enumerate() {
        let values = region.get_slice::<T>((first + i * AT_ONCE) * size_of::<T>(), part.len())?;
        part.iter_mut().zip(values).for_each(|(to, value)| *to = each(value));
    }
    Ok(())
}

/// Returns the numbers of the run that made values.
///
/// @param report Receives the numbers; its `size` is set before the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_values_report(values: In<wb_values_t>, report: Out<wb_report>) -> wb_code {
    guard(|| {
        let found = values.get()?.facts.report;
        report.fill("report", found)
    })
}

/// Describes the run that made values as JSON: the numbers of `wb_values_report`, and each level, iteration, phase or range.
///
/// @param json Receives the text. Free it with `wb_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_values_info(values: In<wb_values_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let text = values.get()?.facts.json.clone();
        json.write("json", owned_text(text))
    })
}
