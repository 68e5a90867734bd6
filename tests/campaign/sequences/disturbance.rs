//! Faults of the devices of a sequence while they are used, damage and exchange while they are not.

use super::{BLOCKS, BYTES, HEAD, Layout, Sequence};
use std::fs;
use std::os::unix::fs::FileExt;
use warpbell::engine::Engine;
use warpbell::storage::{ManifestError, StorageError};

/// A fault of one device, or of all at once.
#[derive(Debug)]
pub(super) struct Fault {
    /// Options of the device's specification.
    pub(super) options: String,
    pub(super) device: Option<usize>,
    /// True if the device may hold wrong data afterwards without having said so.
    pub(super) is_silent: bool,
}

impl Sequence {
    /// Returns a block: as often one of the superblocks as one of the data.
    fn block(&mut self) -> u64 {
        if self.random.once_in(2) { self.random.below(HEAD) } else { HEAD + self.random.below(BLOCKS - HEAD) }
    }

    /// Returns the faults of a step: one, sometimes none, or two of different devices.
    pub(super) fn faults(&mut self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self.fault().into_iter().collect();
        if let [Fault { device: Some(first), .. }] = faults[..]
            && self.random.once_in(4)
        {
            faults.extend(self.fault().filter(|second| second.device.is_some_and(|d| d != first)));
        }
        faults
    }

    fn fault(&mut self) -> Option<Fault> {
        let device = self.random.below(self.paths.len() as u64) as usize;
        let (block, n) = (self.block(), self.random.below(60));
        let options = match self.random.below(18) {
            0 | 1 => format!(",media-error=read:{block}"),
            2 | 3 => format!(",media-error=write:{block}"),
            4 => format!(",media-error={block}"),
            5 | 6 => format!(",disappear=after:{n}"),
            7 => return Some(Fault { options: format!(",disappear=after:{n}"), device: None, is_silent: false }),
            8 | 9 => format!(",corrupt=read:{block}"),
            10 => format!(",corrupt=write:{block}"),
            11 => format!(",torn-write=silent:{block}"),
            12 => format!(",torn-write={block}"),
            13 => format!(",fail-flush=every:{}", 1 + n % 4),
            14 => format!(",repeat-completion=every:{}", 1 + n % 8),
            15 => format!(",shrink={}:after:{n}", BLOCKS - 1 - n * 8),
            _ => return None,
        };
        let is_silent = options.contains("corrupt=write") || options.contains("silent");
        Some(Fault { options, device: Some(device), is_silent })
    }

    /// Damages or exchanges a device that nobody has open, sometimes. Returns true if it did.
    pub(super) fn disturb(&mut self, engine: &Engine) -> bool {
        let device = self.random.below(self.paths.len() as u64) as usize;
        let others_whole = (0..self.devices.len()).any(|d| d != device && self.devices[d].is_whole());
        let can_lose = matches!(self.layout, Layout::Copies(_)) && others_whole && self.allowed.len() == 1;
        match self.random.below(24) {
            0..=3 => self.rot(device),
            4 if can_lose => self.exchange(device, None),
            5 | 6 if can_lose && self.old[device].is_some() => {
                let old = self.old[device].take();
                self.exchange(device, old);
            }
            7..=10 => {
                self.old[device] = Some((fs::read(&self.paths[device]).unwrap(), self.stores));
                return false;
            }
            11 | 12 if self.paths.len() > 1 => {
                self.detach(engine, device);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// Flips a bit.
    fn rot(&mut self, device: usize) {
        let at = (self.block() << 9) + self.random.below(512);
        let bit = self.random.below(8);
        let file = fs::File::options().read(true).write(true).open(&self.paths[device]).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
        self.damage(device, at >> 9 < HEAD);
        self.steps.push(format!("rot of byte {at} of {device}"));
    }

    /// Puts an empty device in the place of one, or what it held some steps ago.
    fn exchange(&mut self, device: usize, old: Option<(Vec<u8>, u32)>) {
        let what = if old.is_some() { "old" } else { "empty" };
        let (bytes, stores) = old.unwrap_or_else(|| (vec![0; BYTES as usize], self.stores));
        fs::write(&self.paths[device], bytes).unwrap();
        self.damage(device, false);
        self.devices[device].is_foreign = stores != self.stores;
        self.devices[device].went_back = what == "old";
        self.steps.push(format!("an {what} device in place of {device}"));
    }

    /// Opens the volume without a device, which must be refused, or give what may be there.
    fn detach(&mut self, engine: &Engine, device: usize) {
        let others: Vec<usize> = (0..self.paths.len()).filter(|d| *d != device).collect();
        self.steps.push(format!("without {device}"));
        let Ok(v) = self.open(engine, &others, &[]) else { return };
        let is_blank = matches!(v.manifest(), Err(StorageError::Manifest { source: ManifestError::Absent, .. }));
        if is_blank && !others.iter().any(|d| self.devices[*d].is_whole()) {
            // Copies that were left out from their first day.
            return;
        }
        // Not all has to be readable: `compare` fails if something is read that may not be there.
        let _ = self.compare(&v, true);
    }

    pub(super) fn damage(&mut self, device: usize, is_head: bool) {
        self.devices[device].is_damaged = true;
        self.devices[device].damaged_heads += u32::from(is_head);
    }
}
