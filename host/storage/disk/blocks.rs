//! Operations of the host on blocks that transfer no data: flush, write zeroes, deallocate.

use super::Disk;
use super::stripe::Piece;
use crate::nvme::NvmeError;
#[cfg(feature = "internals")]
use crate::nvme::WriteCache;
use crate::storage::error::StorageError;
use std::ops::Range;

/// Bytes of zeros in one write, for a controller without Write Zeroes.
const ZEROS: usize = 1 << 20;

impl Disk {
    /// Sends a Flush to every device whose volatile write cache is enabled.
    pub(in crate::storage) fn flush_devices(&self) -> Result<(), StorageError> {
        self.on_each("flush", 0, |device| self.with_queue(device, |q, ns| q.flush(ns)))
    }

    /// Runs `work` for every drive. On a replicated volume, these are the copies that are written to, and those that
    /// fail are left out.
    pub(in crate::storage) fn on_each(
        &self,
        what: &'static str,
        lba: u64,
        work: impl Fn(usize) -> Result<(), StorageError> + Sync,
    ) -> Result<(), StorageError> {
        self.on_each_of(self.members(self.written()?), what, lba, work)
    }

    /// Runs `work` for each of these drives.
    pub(in crate::storage) fn on_each_of(
        &self,
        devices: Vec<usize>,
        what: &'static str,
        lba: u64,
        work: impl Fn(usize) -> Result<(), StorageError> + Sync,
    ) -> Result<(), StorageError> {
        if self.is_replicated() {
            return self.on_copies(what, &Piece { device: 0, lba, at: 0, blocks: 1 }, devices, work);
        }
        devices.into_iter().try_for_each(work)
    }

    /// Makes `blocks` read as zeros. Sends Write Zeroes where the device supports that command, and writes zeros
    /// elsewhere. With `deallocate` a device may free the blocks, if it reads freed blocks as zeros. The zeros are on
    /// the medium after a flush.
    pub(in crate::storage) fn write_zeroes(&self, blocks: Range<u64>, deallocate: bool) -> Result<(), StorageError> {
        self.for_each_device(blocks, |device, mine| {
            let done = self.with_queue(device, |q, ns| q.write_zeroes(ns, mine.clone(), deallocate));
            match done {
                Err(StorageError::Nvme(NvmeError::Unsupported { .. })) => self.write_zeros(device, mine),
                other => other,
            }
        })
    }

    fn write_zeros(&self, device: usize, blocks: Range<u64>) -> Result<(), StorageError> {
        let at_once = (ZEROS >> self.block_shift()).max(1) as u64;
        let zeros = vec![0; (at_once.min(blocks.end - blocks.start) << self.block_shift()) as usize];
        let mut at = blocks.start;
        while at < blocks.end {
            let count = at_once.min(blocks.end - at);
            let bytes = (count << self.block_shift()) as usize;
            self.with_queue(device, |q, ns| q.write(ns, at, &zeros[..bytes]))?;
            at += count;
        }
        Ok(())
    }

    /// Tells the devices that the contents of `blocks` are no longer needed (`nvme dsm --ad`, TRIM). The device decides
    /// what the blocks read as afterwards.
    pub(in crate::storage) fn deallocate(&self, blocks: Range<u64>) -> Result<(), StorageError> {
        self.for_each_device(blocks, |device, mine| {
            self.with_queue(device, |q, ns| q.deallocate(ns, std::slice::from_ref(&mine)))
        })
    }

    /// Returns the number of blocks, if they are within the disk.
    pub(in crate::storage) fn count_of(&self, blocks: &Range<u64>) -> Result<u64, StorageError> {
        blocks.end.checked_sub(blocks.start).filter(|_| blocks.end <= self.blocks()).ok_or_else(|| {
            let (first, count) = (blocks.start, blocks.end.saturating_sub(blocks.start));
            StorageError::Range { device: self.name().to_owned(), first, count, blocks: self.blocks() }
        })
    }

    /// Runs `work` on the part of a range that each device holds, as one range of the device. Consecutive blocks of a
    /// striped volume are consecutive on each device, too.
    fn for_each_device(
        &self,
        blocks: Range<u64>,
        work: impl Fn(usize, Range<u64>) -> Result<(), StorageError> + Sync,
    ) -> Result<(), StorageError> {
        let count = self.count_of(&blocks)?;
        if self.is_replicated() {
            let piece = Piece { device: 0, lba: blocks.start, at: 0, blocks: count };
            let work = |device| if count == 0 { Ok(()) } else { work(device, blocks.clone()) };
            return self.on_copies("change", &piece, self.members(self.written()?), work);
        }
        for (device, pieces) in self.pieces(blocks.start, count).iter().enumerate() {
            if let (Some(first), Some(last)) = (pieces.first(), pieces.last()) {
                work(device, first.lba..last.lba + last.blocks)?;
            }
        }
        Ok(())
    }

    /// Returns the state of each device's volatile write cache, in the volume's order.
    #[cfg(feature = "internals")]
    pub(in crate::storage) fn write_caches(&self) -> Result<Vec<WriteCache>, StorageError> {
        self.drives.iter().map(|d| Ok(d.lock().controller().write_cache()?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::storage::{Drive, Volume};

    fn volume(specs: &[&str]) -> Volume {
        Volume::on(&Engine::cpu().unwrap(), specs.iter().map(|s| Drive::open(s).unwrap())).chunk(4096).build().unwrap()
    }

    #[test]
    fn zeroed_blocks_read_as_zeros_and_no_others() {
        let three = &["soft:mem:512k", "soft:mem:512k", "soft:mem:512k"][..];
        for (specs, replicated) in [(&["soft:mem:1M"][..], false), (three, false), (three, true)] {
            let drives = specs.iter().map(|s| Drive::open(s).unwrap());
            let builder = Volume::on(&Engine::cpu().unwrap(), drives).chunk(4096);
            let v = builder.replicated(replicated).build().unwrap();
            for (deallocate, range) in [(false, 3..700u64), (true, 100..101), (true, 5..5)] {
                let data = vec![7u8; v.bytes() as usize];
                v.write_blocks(0, &data).unwrap();
                v.write_zeroes(range.clone(), deallocate).unwrap();
                let mut back = vec![1; data.len()];
                v.read_blocks(0, &mut back).unwrap();
                for (block, bytes) in back.chunks(512).enumerate() {
                    let expected = if range.contains(&(block as u64)) { 0 } else { 7 };
                    assert!(bytes.iter().all(|b| *b == expected), "block {block} of {range:?} on {v}");
                }
            }
            // The soft controller reports that deallocated blocks read as zeros.
            v.deallocate(8..16).unwrap();
            let mut back = vec![1; 8 * 512];
            v.read_blocks(8, &mut back).unwrap();
            assert!(back.iter().all(|b| *b == 0));
            assert!(v.write_zeroes(0..v.blocks() + 1, false).is_err());
            assert!(v.deallocate(Range { start: 9, end: 8 }).is_err());
        }
    }

    #[test]
    fn zeros_are_written_where_there_is_no_command_for_it() {
        let v = volume(&["soft:mem:4M"]);
        v.write_blocks(0, &vec![7; 4 << 20]).unwrap();
        v.disk().write_zeros(0, 1..4097).unwrap();
        let mut back = vec![1; 4 << 20];
        v.read_blocks(0, &mut back).unwrap();
        assert!(back[..512].iter().all(|b| *b == 7) && back[512..4097 * 512].iter().all(|b| *b == 0));
        assert!(back[4097 * 512..].iter().all(|b| *b == 7));
    }

    #[test]
    fn a_flush_is_sent_only_where_there_is_something_to_flush() {
        let v = volume(&["soft:mem:64k"]);
        assert_eq!(v.write_caches().unwrap(), [WriteCache::None]);
        v.flush().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.img");
        std::fs::write(&path, vec![0; 65536]).unwrap();
        let v = volume(&[&format!("soft:{}", path.display()), "soft:mem:64k"]);
        assert_eq!(v.write_caches().unwrap(), [WriteCache::On, WriteCache::None]);
        let controller = v.disk().drives[0].lock().controller().clone();
        controller.set_write_cache(false).unwrap();
        assert_eq!(v.write_caches().unwrap()[0], WriteCache::Off);
        v.write_blocks(0, &[9; 512]).unwrap();
        v.flush().unwrap();
        assert_eq!(&std::fs::read(&path).unwrap()[..512], [9; 512]);
        let none = v.disk().drives[1].lock().controller().set_write_cache(true).unwrap_err();
        assert!(none.to_string().contains("no volatile write cache"), "{none}");
    }
}
