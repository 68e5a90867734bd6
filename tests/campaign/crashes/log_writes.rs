//! The log of QEMU's block driver `blklogwrites`: all writes and flushes of a device, in the format of the target `log-writes` of
//! Linux's device mapper (Documentation/admin-guide/device-mapper/log-writes.rst).

use super::recorder::Event;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

const SECTOR: u64 = 512;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// A log that QEMU is writing.
pub(super) struct LogWrites {
    file: File,
    /// Byte of the next entry.
    next: u64,
    /// Byte of the data of each write.
    data: BTreeMap<u64, u64>,
}

impl LogWrites {
    pub(super) fn new(file: File) -> Self {
        Self { file, next: SECTOR, data: BTreeMap::new() }
    }

    /// Takes the entries that were added. The data of writes may still be on its way.
    pub(super) fn take(&mut self, file: usize, mut id: impl FnMut() -> u64, events: &mut Vec<Event>) {
        let mut header = [0; 32];
        // A log ends where nothing was written yet.
        while self.file.read_exact_at(&mut header, self.next).is_ok() && header != [0; 32] {
            let [sector, sectors, flags] =
                [0, 8, 16].map(|at| u64::from_le_bytes(header[at..at + 8].try_into().unwrap()));
            self.next += SECTOR;
            if flags & FLUSH != 0 {
                let id = id();
                events.extend([Event::Flush { file, id }, Event::Flushed { id }]);
            }
            if sectors > 0 && flags & DISCARD == 0 {
                let (id, bytes) = (id(), sectors * SECTOR);
                self.data.insert(id, self.next);
                let (at, data, durable) = (sector * SECTOR, vec![0; bytes as usize], flags & FUA != 0);
                events.extend([Event::Write { file, id, at, data, durable }, Event::Written { id }]);
                self.next += bytes;
            }
        }
    }

    /// Reads the data of all writes, once QEMU has ended.
    pub(super) fn fill(&self, events: &mut [Event]) -> Result<(), String> {
        for event in events {
            if let Event::Write { id, data, .. } = event
                && let Some(at) = self.data.get(id)
            {
                self.file.read_exact_at(data, *at).map_err(|e| format!("the log of QEMU: {e}"))?;
            }
        }
        Ok(())
    }
}
