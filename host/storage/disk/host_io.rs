//! Reads and writes of blocks by the host itself: for loading, for manifests, for checks.

use super::Disk;
use super::stripe::Piece;
use crate::storage::error::StorageError;

/// Bytes of one read for a range that does not cover whole blocks.
const BYTES_AT_ONCE: usize = 1 << 20;

impl Disk {
    /// Reads whole blocks from block `first` on. The length of `out` must be a multiple of the block size.
    pub(in crate::storage) fn read_blocks(&self, first: u64, out: &mut [u8]) -> Result<(), StorageError> {
        let blocks = self.check_range(first, out.len())?;
        if self.stripe.devices == 1 {
            return self.with_queue(0, |q, ns| q.read(ns, first, out));
        }
        if self.stripe.replicated {
            let mut shares = Vec::new();
            let mut rest = out;
            for piece in self.stripe.shares(first, blocks) {
                let (part, later) = rest.split_at_mut(self.span(&piece).len());
                shares.push((piece, part));
                rest = later;
            }
            return in_parallel(shares, |(piece, part)| self.read_copy(&piece, part)).map(drop);
        }
        let pieces = self.pieces(first, blocks);
        let read = |(device, pieces): (usize, &Vec<Piece>)| {
            let Some(start) = pieces.first() else { return Ok(Vec::new()) };
            let mut part = vec![0; self.bytes_of(pieces)];
            self.with_queue(device, |q, ns| q.read(ns, start.lba, &mut part)).map(|()| part)
        };
        let parts = in_parallel(pieces.iter().enumerate().collect(), read)?;
        for (part, pieces) in parts.iter().zip(&pieces) {
            let mut rest = part.as_slice();
            for p in pieces {
                let (from, left) = rest.split_at(self.span(p).len());
                out[self.span(p)].copy_from_slice(from);
                rest = left;
            }
        }
        Ok(())
    }

    /// Writes whole blocks from block `first` on, past the mark and the page checksums.
    pub(in crate::storage) fn put_blocks(&self, first: u64, data: &[u8]) -> Result<(), StorageError> {
        let blocks = self.check_range(first, data.len())?;
        if self.stripe.devices == 1 {
            return self.with_queue(0, |q, ns| q.write(ns, first, data));
        }
        if self.stripe.replicated {
            return self.write_copies(&Piece { device: 0, lba: first, at: 0, blocks }, data);
        }
        let pieces = self.pieces(first, blocks);
        let write = |(device, pieces): (usize, &Vec<Piece>)| {
            let Some(start) = pieces.first() else { return Ok(()) };
            let mut part = Vec::with_capacity(self.bytes_of(pieces));
            pieces.iter().for_each(|p| part.extend_from_slice(&data[self.span(p)]));
            self.with_queue(device, |q, ns| q.write(ns, start.lba, &part))
        };
        in_parallel(pieces.iter().enumerate().collect(), write).map(drop)
    }

    /// Reads bytes from any byte offset of the volume.
    pub(in crate::storage) fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        let block = self.block_bytes() as u64;
        let within = (offset % block) as usize;
        if within == 0 && out.len().is_multiple_of(block as usize) {
            return self.read_blocks(offset / block, out);
        }
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let skip = (at % block) as usize;
            let n = rest.len().min(BYTES_AT_ONCE - skip);
            let mut whole = vec![0; (skip + n).next_multiple_of(block as usize)];
            self.read_blocks(at / block, &mut whole)?;
            let (now, later) = std::mem::take(&mut rest).split_at_mut(n);
            now.copy_from_slice(&whole[skip..skip + n]);
            (at, rest) = (at + n as u64, later);
        }
        Ok(())
    }

    /// Returns the number of blocks, if the range consists of whole blocks of the volume.
    pub(in crate::storage) fn check_range(&self, first: u64, bytes: usize) -> Result<u64, StorageError> {
        let block = self.block_bytes();
        if !bytes.is_multiple_of(block) {
            return Err(StorageError::Option(format!("{bytes} bytes are not whole blocks of {block}")));
        }
        let count = (bytes / block) as u64;
        self.check_blocks(first, count).map(|()| count)
    }

    pub(in crate::storage) fn check_blocks(&self, first: u64, count: u64) -> Result<(), StorageError> {
        match first.checked_add(count) {
            Some(end) if end <= self.blocks() => Ok(()),
            _ => Err(StorageError::Range { device: self.name().to_owned(), first, count, blocks: self.blocks() }),
        }
    }

    /// Returns the pieces on each device of a stripe. Pieces of one device are consecutive there.
    pub(in crate::storage) fn pieces(&self, first: u64, blocks: u64) -> Vec<Vec<Piece>> {
        let mut by_device = vec![Vec::new(); self.drives.len()];
        self.stripe.pieces(first, blocks).for_each(|p| by_device[p.device].push(p));
        by_device
    }

    /// Returns the byte range of a piece within the whole range's data.
    fn span(&self, piece: &Piece) -> std::ops::Range<usize> {
        let shift = self.block_shift();
        (piece.at << shift) as usize..((piece.at + piece.blocks) << shift) as usize
    }

    fn bytes_of(&self, pieces: &[Piece]) -> usize {
        pieces.iter().map(|p| self.span(p).len()).sum()
    }
}

/// Runs `work` for each item on a thread of its own.
pub(in crate::storage) fn in_parallel<I: Send, T: Send>(
    items: Vec<I>,
    work: impl Fn(I) -> Result<T, StorageError> + Sync,
) -> Result<Vec<T>, StorageError> {
    let work = &work;
    std::thread::scope(|scope| {
        let start =
            |item| std::thread::Builder::new().name("wb-transfer".to_owned()).spawn_scoped(scope, move || work(item));
        let threads: Vec<_> = items.into_iter().map(start).collect();
        threads
            .into_iter()
            .map(|t| {
                let t =
                    t.map_err(|e| StorageError::Option(format!("a thread of the transfer cannot be started: {e}")))?;
                t.join().unwrap_or_else(|_| Err(StorageError::Option("a thread of the transfer panicked".to_owned())))
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::nvme::{NvmeError, RecoveryPolicy};
    use crate::storage::{Drive, Volume};
    use std::time::Duration;

    fn volume(specs: &[&str]) -> Volume {
        Volume::on(&Engine::cpu().unwrap(), specs.iter().map(|s| Drive::open(s).unwrap())).chunk(4096).build().unwrap()
    }

    #[test]
    fn blocks_and_bytes_come_back() {
        for specs in
            [&["soft:mem:1M"][..], &["soft:mem:512k,block=4096", "soft:mem:256k,block=4096", "soft:mem:1M,block=4096"]]
        {
            let v = volume(specs);
            assert_eq!(v.bytes(), if specs.len() == 1 { 1 << 20 } else { (3 * 256) << 10 });
            let data: Vec<u8> = (0..300_000u32).map(|i| ((i * 31) >> 4) as u8).collect();
            v.write_bytes(12_345, &data).unwrap();
            v.flush().unwrap();
            let mut back = vec![0; data.len()];
            v.read_bytes(12_345, &mut back).unwrap();
            assert!(back == data);
            let block = v.block_bytes();
            let mut whole = vec![0; 10 * block];
            v.read_blocks(2, &mut whole).unwrap();
            let mut same = vec![1; 10 * block];
            v.read_bytes(2 * block as u64, &mut same).unwrap();
            assert!(whole == same);
        }
    }

    #[test]
    fn ranges_are_checked() {
        let v = volume(&["soft:mem:64k"]);
        assert!(v.read_blocks(0, &mut [0; 100]).unwrap_err().to_string().contains("512"));
        let text = v.read_blocks(127, &mut [0; 1024]).unwrap_err().to_string();
        assert_eq!(text, "blocks 127 to 129 do not lie within soft:mem:64k, which has 128 blocks");
        assert!(v.write_blocks(u64::MAX, &[0; 1024]).is_err());
        assert!(v.write_bytes(u64::MAX - 3, &[0; 9]).is_err());
    }

    #[test]
    fn kernels_may_have_all_queue_pairs() {
        for queues in [1, 4] {
            let drive = Drive::open(&format!("soft:mem:1M,queues={queues}")).unwrap();
            let v = Volume::on(&Engine::cpu().unwrap(), [drive]).queues(queues).build().unwrap();
            assert_eq!(v.queues(), queues);
            v.write_bytes(5, b"between runs").unwrap();
            let mut back = [0; 12];
            v.read_bytes(5, &mut back).unwrap();
            assert_eq!(&back, b"between runs");
        }
    }

    #[test]
    fn the_host_waits_no_longer_than_its_engine() {
        let engine = Engine::cpu().unwrap();
        engine.set_deadline(Duration::from_millis(200)).unwrap();
        let v = Volume::on(&engine, [Drive::open("soft:mem:1M,lose-completion=0-0").unwrap()]).build().unwrap();
        let e = v.read_blocks(0, &mut [0; 512]).unwrap_err();
        let StorageError::Nvme(NvmeError::TimedOut { waited, .. }) = &e else { panic!("{e}") };
        assert!(*waited < Duration::from_secs(10), "{e}");
        assert!(e.to_string().contains("read of 1 block(s) at LBA 0"), "{e}");
        v.recover().unwrap();
        let told = |v: &Volume| v.disk().with_queue(0, |queue, _| Ok(queue.deadline())).unwrap();
        assert_eq!((told(&v), v.disk().policy().abort_grace), (Duration::from_millis(200), Duration::from_millis(200)));
        engine.set_deadline(Duration::from_secs(30)).unwrap();
        assert_eq!(
            (told(&v), v.disk().policy().abort_grace),
            (Duration::from_secs(30), RecoveryPolicy::default().abort_grace)
        );
        // CAP.TO is five seconds here: admin commands get at least that, and more where the volume was given more.
        for (given, admin) in [(1, 5), (30, 30)] {
            v.set_deadline(Duration::from_secs(given)).unwrap();
            assert_eq!(told(&v), Duration::from_secs(given));
            assert_eq!(v.disk().drives[0].lock().controller().command_deadline(), Duration::from_secs(admin));
        }
    }

    #[test]
    fn media_errors_name_the_place() {
        let v = volume(&["soft:mem:1M,media-error=100-100"]);
        let text = v.read_blocks(96, &mut [0; 8 * 512]).unwrap_err().to_string();
        assert!(text.contains("LBA 96") || text.contains("LBA 100"), "{text}");
        assert!(v.read_blocks(104, &mut [0; 8 * 512]).is_ok());
    }
}
