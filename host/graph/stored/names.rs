//! Names of a stored graph's vertices: one array of bytes, and one of offsets.

use super::GraphName;
use super::open::damaged;
use crate::graph::edges::GraphError;
use crate::graph::names::Names;
use crate::storage::{Element, ElementType, Plan, Volume};

pub(super) const NAMES: &str = "names";
const OFFSETS: &str = "name-offsets";

/// Adds the arrays of a dictionary to a plan.
pub(super) fn planned(plan: Plan, names: &Names) -> Plan {
    plan.array::<u8>(NAMES, names.text().len() as u64).array::<u64>(OFFSETS, names.offsets().len() as u64)
}

/// Passes the arrays of a dictionary to `put`.
pub(super) fn each_array(
    names: &Names,
    put: &mut impl FnMut(&str, ElementType, &[u8]) -> Result<(), GraphError>,
) -> Result<(), GraphError> {
    put(NAMES, u8::TYPE, names.text().as_bytes())?;
    put(OFFSETS, u64::TYPE, bytemuck::cast_slice(names.offsets()))
}

/// Returns the bytes that a dictionary takes in memory.
pub(super) fn bytes(volume: &Volume, name: &GraphName) -> Result<u64, GraphError> {
    let own = [NAMES, OFFSETS].map(|part| name.array(part));
    Ok(volume.manifest()?.entries().iter().filter(|e| own.contains(&e.name)).map(|e| e.bytes()).sum())
}

/// Reads a dictionary, whose contents are untrusted.
pub(super) fn read(volume: &Volume, name: &GraphName, vertices: u64) -> Result<Names, GraphError> {
    let text = String::from_utf8(volume.read_array::<u8>(&name.array(NAMES))?)
        .map_err(|e| damaged(name, format!("`{NAMES}` is not UTF-8: {}", e.utf8_error())))?;
    let offsets: Vec<u64> = volume.read_array(&name.array(OFFSETS))?;
    if Some(offsets.len() as u64) != vertices.checked_add(1) {
        let found = offsets.len();
        return Err(damaged(name, format!("`{OFFSETS}` has {found} elements, one more than {vertices} are expected")));
    }
    Names::new(text, offsets).map_err(|e| damaged(name, e.to_string()))
}
