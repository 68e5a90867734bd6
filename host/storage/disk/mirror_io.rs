//! Reads and writes of mirrors. What one copy fails, another one completes.

use super::Disk;
use super::host_io::in_parallel;
use super::stripe::Piece;
use crate::nvme::NvmeError;
use crate::storage::error::StorageError;

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
    /// Reads a piece from the copy that it names, or from another copy if that read fails.
    pub(in crate::storage) fn read_copy(&self, piece: &Piece, out: &mut [u8]) -> Result<(), StorageError> {
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
                            _ => drop(self.mirrors.pending.lock().insert((bad, piece.lba, piece.blocks))),
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
    pub(in crate::storage) fn write_copies(&self, piece: &Piece, data: &[u8]) -> Result<(), StorageError> {
        let _shared = self.mirrors.writes.read();
        let written = self.written()?;
        self.set_missed(!written)?;
        let copies = self.members(written);
        self.on_copies("write", piece, copies, |device| self.with_queue(device, |q, ns| q.write(ns, piece.lba, data)))
    }

    /// Runs `work`, which changes data, on all of `copies` in parallel. Copies that fail are left out if a copy in use
    /// succeeds.
    pub(in crate::storage) fn on_copies(
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
        for (device, outcome) in in_parallel(copies, work)? {
            match outcome {
                Ok(()) => taken |= used.contains(&device),
                Err(e) if failed(&e).is_some() => errors.push((device, e)),
                Err(e) => other = Some(e),
            }
        }
        match other {
            Some(e) => Err(e),
            // Also if there was no copy to work on.
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

    /// Writes data of another copy to one copy. If the write fails, leaves the copy out and returns false.
    pub(in crate::storage) fn write_back(&self, device: usize, lba: u64, data: &[u8]) -> Result<bool, StorageError> {
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
