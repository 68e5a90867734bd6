//! Block sizes of namespaces, which the lengths of commands depend on.

use crate::nvme::fabrics::Direction;
use crate::wire::nvme::identify::IdentifyNamespace;
use crate::wire::nvme::{SqEntry, Status, io, status};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of a Dataset Management range in bytes (NVM Command Set 1.1, 3.3.3).
const RANGE_BYTES: u32 = 16;

/// log2 of the block size of each known namespace.
#[derive(Debug, Default)]
pub(super) struct Formats {
    current: Mutex<Arc<BTreeMap<u32, u8>>>,
    generation: AtomicU64,
}

impl Formats {
    /// Stores what Identify Namespace reports. A namespace with metadata is not stored: its commands fail.
    pub(super) fn learn(&self, nsid: u32, identify: &IdentifyNamespace) {
        let format = identify.format();
        let mut current = self.current.lock();
        let mut next = BTreeMap::clone(&current);
        match identify.blocks() > 0 && format.metadata_bytes == 0 && (9..=16).contains(&format.data_shift) {
            true => next.insert(nsid, format.data_shift),
            false => next.remove(&nsid),
        };
        *current = Arc::new(next);
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// The formats as one thread knows them.
#[derive(Debug, Default)]
pub(super) struct KnownFormats {
    known: Arc<BTreeMap<u32, u8>>,
    generation: u64,
}

impl KnownFormats {
    fn shift(&mut self, nsid: u32, formats: &Formats) -> Option<u8> {
        let generation = formats.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.known = formats.current.lock().clone();
            self.generation = generation;
        }
        self.known.get(&nsid).copied()
    }

    /// Returns direction and length in bytes of an I/O command's data, or the status with which the command fails.
    pub(super) fn transfer(&mut self, e: &SqEntry, formats: &Formats) -> Result<(Direction, u32), Status> {
        // Neither SGLs nor fused commands are reported to the driver.
        if e.psdt() != 0 || e.fuse() != 0 {
            return Err(status::INVALID_FIELD.dnr());
        }
        let direction = match e.opcode() {
            io::READ => Direction::In,
            io::WRITE | io::COMPARE => Direction::Out,
            io::DATASET_MANAGEMENT => return Ok((Direction::Out, ((e.cdw10 & 0xff) + 1) * RANGE_BYTES)),
            io::FLUSH | io::WRITE_ZEROES | io::WRITE_UNCORRECTABLE => return Ok((Direction::None, 0)),
            _ => return Err(status::INVALID_OPCODE.dnr()),
        };
        let shift = self.shift(e.nsid, formats).ok_or(status::INVALID_NAMESPACE.dnr())?;
        let bytes = e.blocks().checked_shl(shift.into()).filter(|b| b >> shift == e.blocks());
        Ok((direction, bytes.ok_or(status::INVALID_FIELD.dnr())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::IDENTIFY_BYTES;

    #[test]
    fn lengths_follow_from_the_namespace() {
        let formats = Formats::default();
        let mut known = KnownFormats::default();
        let mut e = SqEntry::new(io::READ, 0, 2);
        e.set_range(5, 8);
        assert_eq!(known.transfer(&e, &formats), Err(status::INVALID_NAMESPACE.dnr()));
        let mut b = vec![0u8; IDENTIFY_BYTES];
        (b[0], b[130]) = (100, 12);
        formats.learn(2, &IdentifyNamespace::new(&b));
        assert_eq!(known.transfer(&e, &formats), Ok((Direction::In, 32 << 10)));
        e.set_range(5, 65_536);
        assert_eq!(known.transfer(&e, &formats), Ok((Direction::In, 256 << 20)));
        e.cdw0 |= 1 << 14;
        assert_eq!(known.transfer(&e, &formats), Err(status::INVALID_FIELD.dnr()));
        let dsm = SqEntry { cdw10: 3, ..SqEntry::new(io::DATASET_MANAGEMENT, 0, 9) };
        assert_eq!(known.transfer(&dsm, &formats), Ok((Direction::Out, 64)));
        assert_eq!(known.transfer(&SqEntry::new(io::FLUSH, 0, 9), &formats), Ok((Direction::None, 0)));
        assert_eq!(known.transfer(&SqEntry::new(0x7f, 0, 2), &formats), Err(status::INVALID_OPCODE.dnr()));
        b[128] = 8;
        formats.learn(2, &IdentifyNamespace::new(&b));
        e.cdw0 &= !(3 << 14);
        assert_eq!(known.transfer(&e, &formats), Err(status::INVALID_NAMESPACE.dnr()), "blocks with metadata");
    }
}
