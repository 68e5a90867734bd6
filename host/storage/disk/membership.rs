//! Copies that are in use, that are left out, and that receive the data which they lack.

use super::Disk;
use super::mirrors::device_at;
use crate::engine::abi;
use crate::memory::MemoryError;
use crate::storage::error::StorageError;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

impl Disk {
    fn is_in_use(&self, device: usize) -> Result<bool, MemoryError> {
        Ok(self.shared.get::<u32>(device_at(device) + offset_of!(abi::Device, max_blocks))? != 0)
    }

    /// Returns the devices that are not left out. On a volume that is not replicated these are all devices.
    pub(in crate::storage) fn in_use(&self) -> Result<Vec<usize>, MemoryError> {
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
    pub(in crate::storage) fn used(&self) -> Result<u32, MemoryError> {
        Ok(self.in_use()?.iter().fold(0, |all, device| all | 1 << device))
    }

    /// Returns the devices to which the host writes, a bit for each: those in use, and those that receive data and lack
    /// none.
    pub(in crate::storage) fn written(&self) -> Result<u32, MemoryError> {
        let mut written = self.used()?;
        for device in self.members(self.mirrors.receiving.load(Ordering::Acquire)) {
            if self.shared.get::<u32>(device_at(device) + offset_of!(abi::Device, missed))? == 0 {
                written |= 1 << device;
            }
        }
        Ok(written)
    }

    /// Returns the devices of a set with a bit for each.
    pub(in crate::storage) fn members(&self, set: u32) -> Vec<usize> {
        (0..self.drives.len()).filter(|device| set >> device & 1 != 0).collect()
    }

    /// Records that these devices lack data.
    pub(in crate::storage) fn set_missed(&self, set: u32) -> Result<(), MemoryError> {
        self.members(set)
            .into_iter()
            .try_for_each(|device| self.shared.set(device_at(device) + offset_of!(abi::Device, missed), 1u32))
    }

    /// Leaves a copy out for `reason`, unless it is the last one. `missed` is true if a write was made without the
    /// copy. Returns true if the copy is left out.
    pub(in crate::storage) fn leave_out(
        &self,
        device: usize,
        reason: String,
        missed: bool,
    ) -> Result<bool, MemoryError> {
        self.mirrors.receiving.fetch_and(!(1 << device), Ordering::AcqRel);
        if missed {
            self.set_missed(1 << device)?;
        }
        if !self.in_use()?.iter().any(|d| *d != device) {
            return Ok(false);
        }
        tracing::warn!(device = self.names[device], reason, "a copy is left out");
        self.integrity.set_copy(device, false)?;
        self.shared.set(device_at(device) + offset_of!(abi::Device, max_blocks), 0u32)?;
        let mut reasons = self.mirrors.reasons.lock();
        reasons.resize(self.drives.len(), None);
        reasons[device] = Some(reason);
        Ok(true)
    }

    /// Takes a copy that responds into use again, unless a write was made without it.
    pub(in crate::storage) fn take_in(&self, device: usize) -> Result<(), MemoryError> {
        let at = device_at(device);
        let flag = |field: usize| self.shared.get::<u32>(at + field);
        let is_receiving = self.mirrors.receiving.load(Ordering::Acquire) >> device & 1 != 0;
        if is_receiving || flag(offset_of!(abi::Device, missed))? != 0 || flag(offset_of!(abi::Device, gone))? != 0 {
            return Ok(());
        }
        self.integrity.set_copy(device, true)?;
        self.shared.set(at + offset_of!(abi::Device, max_blocks), (self.max_transfer >> self.block_shift) as u32)?;
        if let Some(reason) = self.mirrors.reasons.lock().get_mut(device) {
            *reason = None;
        }
        Ok(())
    }
}

/// Copies that receive data while this value exists. If a kernel writes meanwhile, they lack that (`wb_device.missed`).
#[derive(Debug)]
pub(in crate::storage) struct Receiving<'a> {
    disk: &'a Disk,
    copies: u32,
}

impl Receiving<'_> {
    /// Ends receiving, and takes those of `copies` into use that lack nothing. Takes none while kernels run. Returns the
    /// copies that are in use again.
    pub(in crate::storage) fn take_in(mut self, copies: u32) -> Result<Vec<usize>, StorageError> {
        let disk = self.disk;
        let is_idle = disk.engine.is_idle();
        let whole = if is_idle { disk.written()? & self.copies & copies } else { 0 };
        disk.mirrors.receiving.fetch_and(!self.copies, Ordering::AcqRel);
        self.copies &= !whole;
        let whole = disk.members(whole);
        whole.iter().try_for_each(|device| disk.take_in(*device))?;
        Ok(whole)
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.disk.mirrors.receiving.fetch_and(!self.copies, Ordering::AcqRel);
        // Memory that cannot be written cannot be used by kernels either.
        let _ = self.disk.set_missed(self.copies);
    }
}

impl Disk {
    /// Returns the copies that are left out and respond.
    pub(in crate::storage) fn responding(&self) -> Result<Vec<usize>, StorageError> {
        let used = self.in_use()?;
        let left_out = (0..self.drives.len()).filter(|d| !used.contains(d));
        Ok(left_out.filter(|d| self.drives[*d].lock().check().is_ok()).collect())
    }

    /// Makes copies that are left out receive what the host writes from now on. No copy does if others do already.
    pub(in crate::storage) fn receive(&self, copies: &[usize]) -> Result<Receiving<'_>, StorageError> {
        let wanted = copies.iter().fold(0, |all, device| all | 1 << device);
        let receiving = &self.mirrors.receiving;
        let is_free = receiving.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let receiving = Receiving { disk: self, copies: if is_free { wanted } else { 0 } };
        for device in self.members(receiving.copies) {
            self.shared.set(device_at(device) + offset_of!(abi::Device, missed), 0u32)?;
        }
        Ok(receiving)
    }
}
