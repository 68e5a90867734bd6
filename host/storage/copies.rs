//! Copies of a replicated volume: which are in use, reads and writes of them, and repair.
//!
//! A copy is left out once it has left the bus, did not respond within the deadline, or failed a write that another
//! copy completed. Kernels and the host record this in one place: `wb_device.max_blocks` is 0. The last copy is never
//! left out; its errors are reported.
//!
//! A copy that is left out and lacks data comes back in one way only: while it receives the data. Then the host writes
//! to it as to the others, nothing is read from it, and the content that makes it a member is published at the end.

use super::StorageError;
use super::disk::Disk;
use super::stripe::Piece;
use super::unit_checksums::UNIT;
use crate::engine::abi;
use crate::memory::{MemoryError, Region};
use crate::nvme::{Controller, NvmeError, Ready};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
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

/// Redundancy of a replicated volume: [`Volume::redundancy`](super::Volume::redundancy).
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
    /// Failed reads whose blocks are not written back yet ([`Volume::repair`](super::Volume::repair)).
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
pub(super) struct Copies {
    /// For each device, the reason why it was left out, if the host knows it.
    reasons: Mutex<Vec<Option<String>>>,
    /// Blocks to be written back, found by the host: device, first block, number of blocks.
    pub(super) pending: Mutex<BTreeSet<(usize, u64, u64)>>,
    /// Copies that receive the data which they lack, a bit for each.
    receiving: AtomicU32,
    /// Writes of the host hold it shared. A repair holds it exclusively, so that it does not overwrite new data with
    /// old.
    writes: RwLock<()>,
}

const fn device_at(device: usize) -> usize {
    offset_of!(abi::Volume, device) + device * size_of::<abi::Device>()
}

/// Thread that reads the registers of the copies while the volume exists, and tells kernels which copies have left the
/// bus.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(shared: &Region, controllers: Vec<Arc<Controller<Ready>>>) -> Result<Self, StorageError> {
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

/// Severity of a command's failure.
enum Failed {
    /// The command failed; the device continues to work.
    Command,
    /// The device did not respond.
    Device,
}

fn failed(e: &StorageError) -> Option<Failed> {
    let StorageError::Nvme(e) = e else { return None };
    match e {
        NvmeError::Command { .. } => Some(Failed::Command),
        NvmeError::Gone { .. }
        | NvmeError::Fatal { .. }
        | NvmeError::TimedOut { .. }
        | NvmeError::BudgetExhausted { .. }
        | NvmeError::NotReady { .. }
        | NvmeError::NoLongerReady { .. }
        | NvmeError::QueueStuck { .. }
        | NvmeError::QueuesLost { .. }
        | NvmeError::NotRecovered { .. } => Some(Failed::Device),
        _ => None,
    }
}

impl Disk {
    fn is_in_use(&self, device: usize) -> Result<bool, MemoryError> {
        Ok(self.shared.get::<u32>(device_at(device) + offset_of!(abi::Device, max_blocks))? != 0)
    }

    /// Returns the devices that are not left out. On a volume that is not replicated these are all devices.
    pub(super) fn in_use(&self) -> Result<Vec<usize>, MemoryError> {
        let all = 0..self.drives.len();
        if !self.stripe.replicated {
            return Ok(all.collect());
        }
        let mut used = Vec::with_capacity(all.len());
        for device in all {
            if self.is_in_use(device)? {
                used.push(device);
            }
        }
        Ok(used)
    }

    /// Returns the devices that are not left out, a bit for each.
    pub(super) fn used(&self) -> Result<u32, MemoryError> {
        Ok(self.in_use()?.iter().fold(0, |all, device| all | 1 << device))
    }

    /// Returns the devices to which the host writes, a bit for each: those in use, and those that receive data and lack
    /// none.
    pub(super) fn written(&self) -> Result<u32, MemoryError> {
        let mut written = self.used()?;
        for device in self.members(self.copies.receiving.load(Ordering::Acquire)) {
            if self.shared.get::<u32>(device_at(device) + offset_of!(abi::Device, missed))? == 0 {
                written |= 1 << device;
            }
        }
        Ok(written)
    }

    /// Returns the devices of a set with a bit for each.
    pub(super) fn members(&self, set: u32) -> Vec<usize> {
        (0..self.drives.len()).filter(|device| set >> device & 1 != 0).collect()
    }

    /// Records that these devices lack data.
    pub(super) fn set_missed(&self, set: u32) -> Result<(), MemoryError> {
        self.members(set)
            .into_iter()
            .try_for_each(|device| self.shared.set(device_at(device) + offset_of!(abi::Device, missed), 1u32))
    }

    /// Leaves a copy out for `reason`, unless it is the last one. `missed` is true if a write was made without the
    /// copy. Returns true if the copy is left out.
    pub(super) fn leave_out(&self, device: usize, reason: String, missed: bool) -> Result<bool, MemoryError> {
        self.copies.receiving.fetch_and(!(1 << device), Ordering::AcqRel);
        if missed {
            self.set_missed(1 << device)?;
        }
        if !self.in_use()?.iter().any(|d| *d != device) {
            return Ok(false);
        }
        tracing::warn!(device = self.names[device], reason, "a copy is left out");
        self.integrity.set_copy(device, false)?;
        self.shared.set(device_at(device) + offset_of!(abi::Device, max_blocks), 0u32)?;
        let mut reasons = self.copies.reasons.lock();
        reasons.resize(self.drives.len(), None);
        reasons[device] = Some(reason);
        Ok(true)
    }
}

impl Disk {
    /// Takes a copy that responds into use again, unless a write was made without it.
    pub(super) fn take_in(&self, device: usize) -> Result<(), MemoryError> {
        let at = device_at(device);
        let flag = |field: usize| self.shared.get::<u32>(at + field);
        let is_receiving = self.copies.receiving.load(Ordering::Acquire) >> device & 1 != 0;
        if is_receiving || flag(offset_of!(abi::Device, missed))? != 0 || flag(offset_of!(abi::Device, gone))? != 0 {
            return Ok(());
        }
        self.integrity.set_copy(device, true)?;
        self.shared.set(at + offset_of!(abi::Device, max_blocks), (self.max_transfer >> self.block_shift) as u32)?;
        if let Some(reason) = self.copies.reasons.lock().get_mut(device) {
            *reason = None;
        }
        Ok(())
    }
}

/// Copies that receive data while this value exists. If a kernel writes meanwhile, they lack that (`wb_device.missed`).
#[derive(Debug)]
pub(super) struct Receiving<'a> {
    disk: &'a Disk,
    copies: u32,
}

impl Receiving<'_> {
    /// Ends receiving, and takes those of `copies` into use that lack nothing. Takes none while kernels run. Returns the
    /// copies that are in use again.
    pub(super) fn take_in(mut self, copies: u32) -> Result<Vec<usize>, StorageError> {
        let disk = self.disk;
        let is_idle = disk.engine.is_idle();
        let whole = if is_idle { disk.written()? & self.copies & copies } else { 0 };
        disk.copies.receiving.fetch_and(!self.copies, Ordering::AcqRel);
        self.copies &= !whole;
        let whole = disk.members(whole);
        whole.iter().try_for_each(|device| disk.take_in(*device))?;
        Ok(whole)
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.disk.copies.receiving.fetch_and(!self.copies, Ordering::AcqRel);
        // Memory that cannot be written cannot be used by kernels either.
        let _ = self.disk.set_missed(self.copies);
    }
}

impl Disk {
    /// Returns the copies that are left out and respond.
    pub(super) fn responding(&self) -> Result<Vec<usize>, StorageError> {
        let used = self.in_use()?;
        let left_out = (0..self.drives.len()).filter(|d| !used.contains(d));
        Ok(left_out.filter(|d| self.drives[*d].lock().check().is_ok()).collect())
    }

    /// Makes copies that are left out receive what the host writes from now on. No copy does if others do already.
    pub(super) fn receive(&self, copies: &[usize]) -> Result<Receiving<'_>, StorageError> {
        let wanted = copies.iter().fold(0, |all, device| all | 1 << device);
        let receiving = &self.copies.receiving;
        let is_free = receiving.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let receiving = Receiving { disk: self, copies: if is_free { wanted } else { 0 } };
        for device in self.members(receiving.copies) {
            self.shared.set(device_at(device) + offset_of!(abi::Device, missed), 0u32)?;
        }
        Ok(receiving)
    }

    /// Reads a piece from the copy that it names, or from another copy if that read fails.
    pub(super) fn read_copy(&self, piece: &Piece, out: &mut [u8]) -> Result<(), StorageError> {
        let used = self.in_use()?;
        let start = used.iter().position(|d| *d >= piece.device).unwrap_or(0);
        let mut errors: Vec<(usize, StorageError)> = Vec::new();
        for device in (0..used.len()).map(|i| used[(start + i) % used.len()]) {
            match self.with_queue(device, |q, ns| q.read(ns, piece.lba, out)) {
                Ok(()) => {
                    if !errors.is_empty() {
                        self.counters.redirected();
                    }
                    for (bad, e) in errors {
                        match failed(&e) {
                            Some(Failed::Device) => drop(self.leave_out(bad, e.to_string(), false)?),
                            _ => drop(self.copies.pending.lock().insert((bad, piece.lba, piece.blocks))),
                        }
                    }
                    return Ok(());
                }
                Err(e) if failed(&e).is_some() => errors.push((device, e)),
                Err(e) => return Err(e),
            }
        }
        Err(self.no_copy("read", piece, errors))
    }

    /// Writes a piece to every copy in use. Copies that fail the write are left out if another copy completes it.
    pub(super) fn write_copies(&self, piece: &Piece, data: &[u8]) -> Result<(), StorageError> {
        let _shared = self.copies.writes.read();
        let written = self.written()?;
        self.set_missed(!written)?;
        let copies = self.members(written);
        self.on_copies("write", piece, copies, |device| self.with_queue(device, |q, ns| q.write(ns, piece.lba, data)))
    }

    /// Runs `work`, which changes data, on all of `copies` in parallel. Copies that fail are left out if a copy in use
    /// succeeds.
    pub(super) fn on_copies(
        &self,
        what: &'static str,
        piece: &Piece,
        copies: Vec<usize>,
        work: impl Fn(usize) -> Result<(), StorageError> + Sync,
    ) -> Result<(), StorageError> {
        let work = |device| Ok((device, work(device)));
        let mut errors = Vec::new();
        let (mut taken, mut other) = (false, None);
        let used = self.in_use()?;
        for (device, outcome) in super::host_io::in_parallel(copies, work)? {
            match outcome {
                Ok(()) => taken |= used.contains(&device),
                Err(e) if failed(&e).is_some() => errors.push((device, e)),
                Err(e) => other = Some(e),
            }
        }
        match other {
            Some(e) => Err(e),
            None if errors.is_empty() => Ok(()),
            None if !taken => Err(self.no_copy(what, piece, errors)),
            None => {
                for (device, e) in errors {
                    self.leave_out(device, format!("{what} failed: {e}"), true)?;
                }
                Ok(())
            }
        }
    }

    fn no_copy(&self, what: &'static str, piece: &Piece, errors: Vec<(usize, StorageError)>) -> StorageError {
        let errors = errors.into_iter().map(|(d, e)| format!("{}: {e}", self.names[d])).collect();
        StorageError::NoCopy { what, device: self.name().to_owned(), first: piece.lba, blocks: piece.blocks, errors }
    }

    /// Returns the redundancy of the volume: the copies that are left out, and the number of reads that another copy
    /// completed.
    pub(super) fn redundancy(&self) -> Result<Redundancy, StorageError> {
        if !self.is_replicated() {
            return Ok(Redundancy { copies: 1, ..Redundancy::default() });
        }
        let used = self.in_use()?;
        let reasons = self.copies.reasons.lock().clone();
        let mut lost = Vec::new();
        for device in (0..self.drives.len()).filter(|d| !used.contains(d)) {
            let gone = self.shared.get::<u32>(device_at(device) + offset_of!(abi::Device, gone))? != 0;
            let known = reasons.get(device).cloned().flatten();
            let reason = match known {
                Some(reason) => reason,
                None if gone => "it has left the bus".to_owned(),
                None => {
                    "it did not complete a command within the deadline, or failed a write that another copy completed"
                        .to_owned()
                }
            };
            lost.push(LostCopy { device, name: self.names[device].clone(), reason });
        }
        let stats = self.counters.read()?;
        let pending = u64::from(self.integrity.repairs()?.0) + self.copies.pending.lock().len() as u64;
        Ok(Redundancy {
            copies: self.drives.len(),
            lost,
            redirected_reads: stats.redirects,
            repaired_blocks: stats.repairs,
            pending_repairs: pending,
        })
    }

    /// Writes blocks that one copy could not read, and another copy could, back to the first copy. A copy that fails
    /// this write is left out. Does nothing while kernels run, since it could undo their writes.
    pub(super) fn repair(&self) -> Result<(), StorageError> {
        if !self.is_replicated() || !self.engine.is_idle() {
            return Ok(());
        }
        let _alone = self.without_writes();
        let (_, entered) = self.integrity.repairs()?;
        let mut pending = std::mem::take(&mut *self.copies.pending.lock());
        pending.extend(entered.iter().map(|r| (r.device as usize, r.lba, u64::from(r.blocks))));
        self.integrity.clear_repairs()?;
        let used = self.in_use()?;
        for (device, lba, blocks) in pending {
            let range = lba.checked_add(blocks).is_some_and(|end| end <= self.blocks);
            if !used.contains(&device) || !range {
                continue;
            }
            if self.repair_blocks(device, lba, blocks)? {
                self.counters.repaired(blocks);
            }
        }
        Ok(())
    }

    /// Writes blocks of another copy to one copy, unless they can be read there meanwhile, or the other copy is damaged
    /// too. Returns true if they were written.
    fn repair_blocks(&self, device: usize, lba: u64, blocks: u64) -> Result<bool, StorageError> {
        // Page checksums cover whole units.
        let unit = (UNIT as u64 >> self.block_shift).max(1);
        let (lba, end) = (lba / unit * unit, (lba + blocks).next_multiple_of(unit).min(self.blocks));
        let (offset, blocks) = (lba << self.block_shift, end - lba);
        let mut data = vec![0; (blocks << self.block_shift) as usize];
        let mut own = data.clone();
        let from = Piece { device: (device + 1) % self.drives.len(), lba, at: 0, blocks };
        self.read_copy(&from, &mut data)?;
        if !self.page_checksums.wrong_units(offset, &data)?.is_empty() {
            tracing::warn!(volume = self.name(), block = lba, blocks, "not repaired: the other copy is damaged too");
            return Ok(false);
        }
        let is_read = self.with_queue(device, |q, ns| q.read(ns, lba, &mut own)).is_ok();
        if is_read && self.page_checksums.wrong_units(offset, &own)?.is_empty() {
            if own != data {
                tracing::warn!(
                    device = self.names[device],
                    block = lba,
                    blocks,
                    "not repaired: the copies differ, and nothing tells which is right; verify the volume"
                );
            }
            return Ok(false);
        }
        self.write_back(device, lba, &data)
    }

    /// Blocks writes of the host to copies until the guard is dropped.
    pub(super) fn without_writes(&self) -> RwLockWriteGuard<'_, ()> {
        self.copies.writes.write()
    }

    /// Writes data of another copy to one copy. If the write fails, leaves the copy out and returns false.
    pub(super) fn write_back(&self, device: usize, lba: u64, data: &[u8]) -> Result<bool, StorageError> {
        match self.with_queue(device, |q, ns| q.write(ns, lba, data)) {
            Ok(()) => Ok(true),
            Err(e) if failed(&e).is_some() => {
                self.leave_out(device, format!("a repair failed: {e}"), true)?;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}
