//! Versions, and what this machine can do.

use crate::engine::as_json;
use crate::error::{Error, guard, wb_code};
use crate::options::owned_text;
use crate::pointer::{Out, Text};
use std::ffi::{CString, c_char};
use std::sync::LazyLock;
use warpbell::doctor::{self, GpuFacts, Require};
use warpbell::engine::abi;
use warpbell::pci::Sysfs;

/// Returns the version of the library, such as `0.1.0`.
///
/// @return A constant text.
#[unsafe(no_mangle)]
pub extern "C" fn wb_version() -> *const c_char {
    static VERSION: LazyLock<CString> = LazyLock::new(|| CString::new(env!("CARGO_PKG_VERSION")).unwrap_or_default());
    VERSION.as_ptr()
}

/// Returns the fingerprint of the structures that host and kernels share (`warpbell/abi.h`). Images of kernels carry the
/// same number, which is compared when an engine is opened.
#[unsafe(no_mangle)]
pub extern "C" fn wb_fingerprint() -> u64 {
    abi::fingerprint()
}

/// Examines this machine: GPUs, storage controllers, RDMA adapters, the ways between them, and how to open those that are
/// closed. The same as `warpbell doctor --json`.
///
/// @param require Words `gpu`, `nvme`, `p2p`, `rdma`, `mlx5` and `verbs`, separated by commas, for what has to be possible; may be null.
/// @param json Receives the report. Free it with `wb_string_free`. Unmet requirements are in it, and are no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_doctor_report(require: Text, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let words = require.optional("require")?.unwrap_or("");
        let words = words.split(',').map(str::trim).filter(|w| !w.is_empty());
        let required: Result<Vec<Require>, _> = words.map(str::parse).collect();
        let required = required.map_err(|e: doctor::UnknownRequirement| Error::argument(e.to_string()))?;
        let report = doctor::examine(&Sysfs::system(), &GpuFacts::gather(), &required);
        json.write("json", owned_text(as_json(&report)?))
    })
}
