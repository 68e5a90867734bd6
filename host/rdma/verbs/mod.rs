//! Verbs objects that free themselves: device, protection domain, completion queue, queue pair, memory (rdma-core's libibverbs).
//!
//! Each object holds the objects that it was created from. They are therefore freed in the right order, whatever the
//! order of their owners: queue pair, completion queue, memory, protection domain, context.

mod context;
mod memory;
mod queue_pair;

pub(super) use context::{Context, DeviceLimits, ProtectionDomain};
pub(super) use memory::{Buffer, MemoryKeys, Registrar};
pub(super) use queue_pair::{ReceiveSource, VerbsQueue};

use super::sys::ibv_ah_attr;
use super::{RdmaError, Route};
use std::io;

/// Returns the system's last error, with the attempted operation.
fn failed(what: impl Into<String>) -> RdmaError {
    RdmaError::System { what: what.into(), source: io::Error::last_os_error() }
}

/// Converts the result of a verbs call that returns an error number.
fn answer(code: i32, what: impl FnOnce() -> String) -> Result<(), RdmaError> {
    match code {
        0 => Ok(()),
        // Some providers return -1 and set errno, some return -errno.
        -1 => Err(failed(what())),
        code => Err(RdmaError::System { what: what(), source: io::Error::from_raw_os_error(code.abs()) }),
    }
}

/// Returns the address handle of a route's other end. Drivers read every field, so all are set.
pub(super) fn address_handle(route: &Route) -> ibv_ah_attr {
    // SAFETY: integers and bytes, for which zero is a value.
    let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
    attr.dlid = route.lid;
    attr.sl = route.service_level;
    attr.port_num = route.port;
    if let Some((index, gid)) = route.global {
        attr.is_global = 1;
        attr.grh.dgid.raw = gid.0;
        attr.grh.sgid_index = index;
        attr.grh.hop_limit = super::connection::HOP_LIMIT;
        attr.grh.traffic_class = route.traffic_class.0;
    }
    attr
}
