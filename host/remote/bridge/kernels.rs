//! Queues that kernels drive: the manager connects them, and kernels post the capsules. No host thread touches such a
//! connection after its Connect command, except to see if it has failed.
//!
//! A connection that is lost is closed first, so that the target reaches no memory by it. Then kernels learn that it is
//! closed, and fail the commands in flight. The next connection is named in the words of the one before, and kernels
//! switch to it when they poll. Memory of a connection is freed once kernels use a later one.

use crate::engine::abi;
use crate::memory::{MemoryError, Place, Region};
use crate::nvme::fabrics::{FabricsError, Keys, Link, Registrar};
use crate::nvme::{CapsulePlan, CapsuleQueue};
use crate::wire::mlx5::{Failure, Syndrome, VendorSyndrome};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::mem::offset_of;
use std::sync::Arc;

/// A connection as kernels see it.
#[derive(Debug)]
struct KernelConnection {
    /// `wb_capsules`, in memory near the kernels.
    capsules: Region,
    /// `wb_capsules_report`, in host memory.
    report: Region,
    /// Memory of the rings of a connection that is closed.
    _rings: Vec<Region>,
}

impl KernelConnection {
    fn is_adopted(&self) -> bool {
        self.report.get::<u32>(offset_of!(abi::CapsulesReport, adopted)).is_ok_and(|a| a != 0)
    }

    fn close(&self, how: u32) {
        if let Err(error) = self.capsules.set(offset_of!(abi::Capsules, closed), how) {
            tracing::error!(%error, "kernels were not told that a connection is closed");
        }
    }
}

/// The open connection of a queue.
struct Open {
    link: Box<dyn Link>,
    /// Work requests that the host had posted when kernels got the connection.
    posts: u64,
}

#[derive(Default)]
struct State {
    /// Connections, in their order; kernels use the first or a later one.
    words: VecDeque<KernelConnection>,
    open: Option<Open>,
    /// True once the queue was deleted or its controller has failed.
    is_closed: bool,
    counters: KernelCounters,
}

/// Work of kernels on a queue, and of host threads on the connections of kernels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelCounters {
    /// Responses that kernels have taken.
    pub(super) commands: u64,
    /// Work requests that host threads have posted after kernels got the connection.
    pub(super) host_posts: u64,
}

/// A queue that kernels drive.
pub(super) struct KernelQueue {
    pub(super) plan: CapsulePlan,
    registrar: Option<Arc<dyn Registrar>>,
    /// Registration of the capsules. The target has no rights to them.
    capsules: Mutex<Option<Box<dyn Keys>>>,
    state: Mutex<State>,
}

impl std::fmt::Debug for KernelQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KernelQueue({} entries)", self.plan.entries)
    }
}

impl CapsuleQueue for KernelQueue {
    fn address(&self) -> Option<u64> {
        self.state.lock().words.front().map(|w| w.capsules.address())
    }
}

impl KernelQueue {
    pub(super) fn new(plan: CapsulePlan, registrar: Option<Arc<dyn Registrar>>) -> Self {
        Self { plan, registrar, capsules: Mutex::new(None), state: Mutex::default() }
    }

    /// Returns true if a new connection can be given to kernels: they use the newest one, and it is closed.
    pub(super) fn wants_connection(&self) -> bool {
        let state = self.state.lock();
        !state.is_closed && state.open.is_none() && state.words.back().is_some_and(KernelConnection::is_adopted)
    }

    /// Gives a connection to kernels. Its Connect command has completed.
    ///
    /// # Errors
    /// [`FabricsError::Adapter`] if the capsules cannot be registered or the words not be written.
    pub(super) fn attach(&self, link: Box<dyn Link>) -> Result<(), FabricsError> {
        let peer = link.peer().to_owned();
        let wrong = |reason: String| FabricsError::Adapter { peer: peer.clone(), reason };
        let memory = |e: MemoryError| wrong(e.to_string());
        let no_rings = || wrong("its connections have no rings for kernels".to_owned());
        let (mut capsules, registrar) = link.rings().zip(self.registrar.as_ref()).ok_or_else(no_rings)?;
        let mut registered = self.capsules.lock();
        let keys = match &mut *registered {
            Some(keys) => keys,
            none => none.insert(registrar.register(&self.plan.ring.region, false).map_err(wrong)?),
        };
        capsules.capsules = keys.address() + (self.plan.ring.offset + self.plan.offset) as u64;
        capsules.capsule_key = keys.local_key().to_be();
        let mut state = self.state.lock();
        let is_first = state.words.is_empty();
        if is_first {
            capsules.announced = self.plan.ticket;
            capsules.shift = capsules.posted.wrapping_sub(self.plan.ticket);
        }
        let report = self.plan.space.allocate(Place::Host, size_of::<abi::CapsulesReport>()).map_err(memory)?;
        let adopted = u32::from(is_first);
        report.set(0, abi::CapsulesReport { fault: 0, adopted, reserved: 0 }).map_err(memory)?;
        capsules.report = report.address();
        let words = self.plan.space.allocate(Place::Device, size_of::<abi::Capsules>()).map_err(memory)?;
        words.set(0, capsules).map_err(memory)?;
        if let Some(before) = state.words.back() {
            before.capsules.set(offset_of!(abi::Capsules, next), words.address()).map_err(memory)?;
        }
        state.words.push_back(KernelConnection { capsules: words, report, _rings: Vec::new() });
        state.open = Some(Open { posts: link.posts(), link });
        Ok(())
    }

    /// Returns the reason for which the connection carries nothing any more. Frees the memory of connections that
    /// kernels have left.
    pub(super) fn poll(&self) -> Option<FabricsError> {
        let mut state = self.state.lock();
        while state.words.get(1).is_some_and(KernelConnection::is_adopted) {
            state.words.pop_front();
        }
        let open = state.open.as_ref()?;
        let peer = || open.link.peer().to_owned();
        let fault = state.words.back()?.report.get::<u64>(offset_of!(abi::CapsulesReport, fault));
        let fault = fault.unwrap_or_default();
        if let Some(reason) = violation(fault) {
            return Some(FabricsError::Protocol { peer: peer(), reason });
        }
        let reason = open.link.failure().or_else(|| failure(fault))?;
        Some(FabricsError::Lost { peer: peer(), reason })
    }

    /// Ends the connection, and lets the commands in flight fail. Later commands wait for the next connection, or fail
    /// too if there will be none (`is_last`).
    pub(super) fn close(&self, is_last: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(Open { link, posts }) = state.open.take() {
            state.counters.host_posts += link.posts() - posts;
            let rings = link.retire();
            if let Some(w) = state.words.back_mut() {
                state.counters.commands += responses(&w.capsules);
                w._rings = rings;
            }
        }
        state.is_closed |= is_last;
        let how = if is_last { abi::CAPSULES_FAILED } else { abi::CAPSULES_LOST };
        state.words.iter().for_each(|w| w.close(how));
    }

    pub(super) fn counters(&self) -> KernelCounters {
        let state = self.state.lock();
        let mut c = state.counters;
        if let (Some(open), Some(w)) = (&state.open, state.words.back()) {
            c.host_posts += open.link.posts() - open.posts;
            c.commands += responses(&w.capsules);
        }
        c
    }
}

/// Returns the responses that kernels have taken on a connection.
fn responses(words: &Region) -> u64 {
    let c: abi::Capsules = words.get(0).unwrap_or_else(|_| bytemuck::Zeroable::zeroed());
    // One for each send of the host was taken before.
    c.taken.wrapping_sub(c.posted).into()
}

/// Returns the violation of the protocol that kernels have reported.
fn violation(fault: u64) -> Option<String> {
    let (cid, number) = ((fault >> 32) as u16, fault as u32);
    Some(match (fault >> abi::CAPSULES_FAULT_SHIFT) as u32 {
        abi::CAPSULES_LENGTH => format!("a response capsule of {number} bytes"),
        abi::CAPSULES_HEAD => {
            format!("the response to command {cid:#06x} has SQHD {number}, which is outside of the queue")
        }
        abi::CAPSULES_UNKNOWN => format!("command identifier {cid:#06x} is not outstanding"),
        abi::CAPSULES_REPEATED => format!("command identifier {cid:#06x} was completed before"),
        _ => return None,
    })
}

/// Returns the failure of a queue pair that kernels have reported.
fn failure(fault: u64) -> Option<String> {
    let what = match (fault >> abi::CAPSULES_FAULT_SHIFT) as u32 {
        abi::CAPSULES_RECEIVE => "a receive failed",
        abi::CAPSULES_SEND => "a send failed",
        _ => return None,
    };
    let failure = Failure::new(Syndrome(fault as u8), VendorSyndrome((fault >> 8) as u8));
    Some(format!("{what}: {failure}"))
}

/// The queues that kernels drive, by their identifiers.
pub(super) type KernelQueues = Mutex<BTreeMap<u16, Arc<KernelQueue>>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_kernels_are_decoded() {
        let fault = |kind: u32, cid: u64, n: u64| u64::from(kind) << 48 | cid << 32 | n;
        assert_eq!(violation(0), None);
        assert_eq!(failure(0), None);
        let says = |f, text: &str| assert!(violation(f).unwrap().contains(text), "{:?}", violation(f));
        says(fault(abi::CAPSULES_LENGTH, 0, 15), "of 15 bytes");
        says(fault(abi::CAPSULES_HEAD, 7, 300), "0x0007 has SQHD 300");
        says(fault(abi::CAPSULES_UNKNOWN, 0xabc, 0), "0x0abc is not outstanding");
        says(fault(abi::CAPSULES_REPEATED, 1, 0), "0x0001 was completed before");
        let flushed = fault(abi::CAPSULES_RECEIVE, 0, 0x05);
        assert!(violation(flushed).is_none() && failure(flushed).unwrap().contains("receive failed"));
    }
}
