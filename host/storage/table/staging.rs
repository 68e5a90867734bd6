//! Staging memory of a table's batches, cut from few large buffers: a volume registers a small number of buffers with its devices.

use crate::storage::{DataBuffer, StorageError, Volume};
use parking_lot::Mutex;
use std::sync::Arc;

/// Units of a buffer: a bit of `Chunk::free` for each.
const UNITS: u32 = u32::BITS;
/// Most units of a batch.
const MOST: u32 = UNITS / 2;

/// The buffers of a table.
#[derive(Default)]
pub(super) struct Staging(Arc<Mutex<Vec<Chunk>>>);

struct Chunk {
    buffer: Arc<DataBuffer>,
    /// A bit for each unit that no batch has.
    free: u32,
    /// Bytes of a unit.
    unit: usize,
}

/// Units of one batch. Dropping it gives them back: no kernel uses them any more, or the engine starts none.
pub(super) struct Slice {
    home: Arc<Mutex<Vec<Chunk>>>,
    pub(super) buffer: Arc<DataBuffer>,
    first: u32,
    units: u32,
    /// Reads that the slice has memory for.
    pub(super) reads: u32,
    unit: usize,
}

impl Slice {
    pub(super) fn address(&self) -> u64 {
        self.buffer.address() + u64::from(self.first) * self.unit as u64
    }

    /// Lets no other batch have memory of this buffer: commands that were given up may still write to it. It is freed when the
    /// batches that have it are over, and devices then no longer reach it.
    pub(super) fn spoil(&self) {
        self.home.lock().retain(|chunk| !Arc::ptr_eq(&chunk.buffer, &self.buffer));
    }

    fn bits(&self) -> u32 {
        (((1u64 << self.units) - 1) << self.first) as u32
    }
}

impl Staging {
    /// Takes memory for `reads` reads of `bytes` bytes each. The first batches get as much; later ones get half of what is
    /// left of a buffer, so that many batches may be in flight.
    pub(super) fn take(&self, volume: &Volume, reads: u32, bytes: u32) -> Result<Slice, StorageError> {
        let mut chunks = self.0.lock();
        let each = reads.div_ceil(MOST);
        let unit = each as usize * bytes as usize;
        let found = chunks.iter().position(|c| c.free != 0 && c.unit >= unit);
        let at = match found {
            Some(at) => at,
            None => {
                let buffer = Arc::new(volume.allocate_data(UNITS as usize * unit)?);
                chunks.push(Chunk { buffer, free: u32::MAX, unit });
                chunks.len() - 1
            }
        };
        let chunk = &mut chunks[at];
        let wanted = (chunk.free.count_ones() / 2).clamp(1, MOST);
        let (first, units) = longest(chunk.free, wanted);
        let reads = (units as usize * chunk.unit / bytes as usize) as u32;
        let home = self.0.clone();
        let slice = Slice { home, buffer: chunk.buffer.clone(), first, units, reads, unit: chunk.unit };
        chunk.free &= !slice.bits();
        Ok(slice)
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        let mut chunks = self.home.lock();
        if let Some(chunk) = chunks.iter_mut().find(|c| Arc::ptr_eq(&c.buffer, &self.buffer)) {
            chunk.free |= self.bits();
        }
    }
}

/// Returns position and length of the first run of ones with `wanted` bits, or of the longest one. `free` is not 0.
fn longest(free: u32, wanted: u32) -> (u32, u32) {
    let mut best = (0, 0);
    let mut at = 0;
    while at < UNITS {
        let run = (!(free >> at)).trailing_zeros().min(UNITS - at);
        if run > best.1 {
            best = (at, run.min(wanted));
        }
        if best.1 == wanted {
            break;
        }
        at += run + 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;
    use crate::storage::{Drive, LandingChoice};

    #[test]
    fn runs_of_units_are_found() {
        assert_eq!(longest(u32::MAX, 16), (0, 16));
        assert_eq!(longest(u32::MAX, 32), (0, 32));
        assert_eq!(longest(0b1011_0111_0001, 4), (4, 3));
        assert_eq!(longest(0b1011_0111_0001, 1), (0, 1));
        assert_eq!(longest(1 << 31, 5), (31, 1));
    }

    #[test]
    fn many_batches_share_few_buffers() {
        let drive = Drive::open("soft:mem:1M").unwrap();
        let v = Volume::on(&testing::cpu(), [drive]).landing(LandingChoice::Direct).build().unwrap();
        let staging = Staging::default();
        let slices: Vec<Slice> = (0..40).map(|_| staging.take(&v, 100, 512).unwrap()).collect();
        assert_eq!(slices[0].reads, 16 * 7);
        assert!(slices.iter().all(|s| s.reads >= 7));
        let chunks = staging.0.lock().len();
        assert!(chunks <= 8, "{chunks}");
        let mut places: Vec<(u64, u64)> = slices.iter().map(|s| (s.address(), u64::from(s.reads) * 512)).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|p| p[0].0 + p[0].1 <= p[1].0), "no two batches have the same memory");
        drop(slices);
        assert!(staging.0.lock().iter().all(|c| c.free == u32::MAX));
        // A buffer to which devices may still write is for nobody.
        let spoiled = staging.take(&v, 100, 512).unwrap();
        spoiled.spoil();
        let next = staging.take(&v, 100, 512).unwrap();
        assert!(!Arc::ptr_eq(&spoiled.buffer, &next.buffer));
        drop((spoiled, next));
        // Larger parts need another buffer.
        assert_eq!(staging.take(&v, 100, 4096).unwrap().reads, 16 * 7);
        assert_eq!(staging.0.lock().len(), chunks);
    }
}
