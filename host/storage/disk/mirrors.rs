//! State of the mirrors of a replicated volume, each of which has a copy of all data, and the thread that watches them.
//!
//! A copy is left out once it has left the bus, did not respond within the deadline, or failed a write that another
//! copy completed. Kernels and the host record this in one place: `wb_device.max_blocks` is 0. The last copy is never
//! left out; its errors are reported.
//!
//! A copy that is left out and lacks data comes back in one way only: while it receives the data. Then the host writes
//! to it as to the others, nothing is read from it, and the content that makes it a member is published at the end.

use crate::engine::abi;
use crate::memory::{MemoryError, Region};
use crate::nvme::{Controller, Ready};
use crate::storage::error::StorageError;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which the host reads the registers of the copies. A kernel whose read got no completion waits for the
/// next check.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A copy that the volume has left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostCopy {
    /// Index of the device in the volume.
    pub device: usize,
    /// The device as it was named.
    pub name: String,
    /// Reason for leaving the copy out.
    pub reason: String,
}

/// Redundancy of a replicated volume: [`Volume::redundancy`](crate::storage::Volume::redundancy).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Redundancy {
    /// Copies that the volume was made of.
    pub copies: usize,
    /// Copies that are left out.
    pub lost: Vec<LostCopy>,
    /// Reads that one copy failed and another one completed.
    pub redirected_reads: u64,
    /// Blocks that were written back to a copy that could not read them.
    pub repaired_blocks: u64,
    /// Failed reads whose blocks are not written back yet ([`Volume::repair`](crate::storage::Volume::repair)).
    pub pending_repairs: u64,
}

impl Redundancy {
    /// Returns true if no copy is left out and no read was redirected.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.redirected_reads == 0 && self.pending_repairs == 0
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copies, lost, redirected_reads, repaired_blocks, pending_repairs } = self;
        write!(
            f,
            "copies {} of {copies}  redirected reads {redirected_reads}  repaired blocks {repaired_blocks}",
            copies - lost.len()
        )?;
        if *pending_repairs > 0 {
            write!(f, "  reads still to be repaired {pending_repairs}")?;
        }
        lost.iter().try_for_each(|l| write!(f, "\ndegraded: {} is left out: {}", l.name, l.reason))
    }
}

/// State of the copies that is not part of `wb_volume`.
#[derive(Debug, Default)]
pub(in crate::storage) struct Mirrors {
    /// For each device, the reason why it was left out, if the host knows it.
    pub(in crate::storage) reasons: Mutex<Vec<Option<String>>>,
    /// Blocks to be written back, found by the host: device, first block, number of blocks.
    pub(in crate::storage) pending: Mutex<BTreeSet<(usize, u64, u64)>>,
    /// Copies that receive the data which they lack, a bit for each.
    pub(in crate::storage) receiving: AtomicU32,
    /// Writes of the host hold it shared. A repair holds it exclusively, so that it does not overwrite new data with
    /// old.
    pub(in crate::storage) writes: RwLock<()>,
}

pub(in crate::storage) const fn device_at(device: usize) -> usize {
    offset_of!(abi::Volume, device) + device * size_of::<abi::Device>()
}

/// Thread that reads the registers of the copies while the volume exists, and tells kernels which copies have left the
/// bus.
#[derive(Debug)]
pub(in crate::storage) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(in crate::storage) fn start(
        shared: &Region,
        controllers: Vec<Arc<Controller<Ready>>>,
    ) -> Result<Self, StorageError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, shared) = (stop.clone(), shared.clone());
        let thread = std::thread::Builder::new()
            .name("warpbell copies".to_owned())
            .spawn(move || watch(&ended, &shared, &controllers))
            .map_err(|e| StorageError::Option(format!("a thread that watches the copies was not started: {e}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The panic hook has reported a panic of the thread already.
            let _ = thread.join();
        }
    }
}

fn watch(stop: &AtomicBool, shared: &Region, controllers: &[Arc<Controller<Ready>>]) {
    let mut gone = vec![false; controllers.len()];
    while !stop.load(Ordering::Acquire) {
        for (device, controller) in controllers.iter().enumerate() {
            if gone[device] || !controller.check().is_err_and(|e| e.is_gone()) {
                continue;
            }
            tracing::warn!(device = controller.name(), "a copy has left the bus; the volume continues without it");
            gone[device] = true;
            // If the kernels' memory cannot be written, no kernel can be told.
            let _ = left_the_bus(shared, device, controllers.len());
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

fn left_the_bus(shared: &Region, device: usize, devices: usize) -> Result<(), MemoryError> {
    let at = device_at(device);
    let others = (0..devices).filter(|&d| d != device);
    let mut in_use = false;
    for d in others {
        in_use |= shared.get::<u32>(device_at(d) + offset_of!(abi::Device, max_blocks))? != 0;
    }
    if in_use {
        shared.set(at + offset_of!(abi::Device, max_blocks), 0u32)?;
    }
    shared.set(at + offset_of!(abi::Device, gone), 1u32)
}
