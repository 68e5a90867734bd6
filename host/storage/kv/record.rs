//! Record of an object on the medium: 128 bytes, with all numbers little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 0..32 | key; zeros behind a key of 16 bytes |
//! | 32..40 | sequence number, 1 and up: later stores have larger ones |
//! | 40..48 | checksum of the data (`checksum.rs`) |
//! | 48..52 | bytes of the data |
//! | 52 | bytes of the key: 16 or 32 |
//! | 53 | number of extents: 1 to 8 |
//! | 54..56 | zeros |
//! | 56..120 | extents of 8 bytes: first allocation unit in the upper 40 bits, their number in the lower 24; zeros behind the last |
//! | 120..124 | zeros |
//! | 124..128 | CRC-32C of the bytes before |
//!
//! A slot without object has 128 zeros. A record lies within one logical block, which a controller writes whole or not at
//! all, also when power fails: AWUPF and NAWUPF count from 0 and so allow no less than one block (NVM Command Set
//! Specification, 2.1.4). A file on a disk with smaller sectors may tear a block of 4096 bytes, but no sector of 512, and
//! with that no record.

use super::extent::{self, Run, Runs};
use super::key::{self, KvKey};

/// Bytes of a record.
pub(super) const RECORD: usize = 128;

const SEQUENCE: usize = 32;
const CHECKSUM: usize = 40;
const BYTES: usize = 48;
const KEY_BYTES: usize = 52;
const EXTENTS: usize = 53;
const RUNS: usize = 56;
const ZEROS: [std::ops::Range<usize>; 2] = [54..56, 120..124];
const CRC: usize = 124;

/// An object: its key, and where its data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: KvKey,
    pub(super) sequence: u64,
    pub(super) checksum: u64,
    /// Bytes of the data, at least 1.
    pub(super) bytes: u32,
    pub(super) runs: Runs,
}

/// Sizes that all records of a store agree with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) key_bytes: usize,
    /// Bytes of an allocation unit.
    pub(super) unit: u64,
    /// Number of allocation units.
    pub(super) units: u64,
}

/// Content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Empty,
    Object(Record),
    /// The record lacks its CRC, or contradicts the store or itself.
    Damaged,
}

impl Record {
    pub(super) fn to_bytes(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let key = self.key.as_bytes();
        bytes[..key.len()].copy_from_slice(key);
        bytes[SEQUENCE..CHECKSUM].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[CHECKSUM..BYTES].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[BYTES..KEY_BYTES].copy_from_slice(&self.bytes.to_le_bytes());
        let runs = self.runs.as_slice();
        (bytes[KEY_BYTES], bytes[EXTENTS]) = (key.len() as u8, runs.len() as u8);
        for (at, run) in bytes[RUNS..].chunks_exact_mut(8).zip(runs) {
            at.copy_from_slice(&run.bits().to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..CRC]);
        bytes[CRC..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn u32_at(bytes: &[u8; RECORD], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8; RECORD], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

impl Slot {
    /// Parses a slot from the medium, whose contents are untrusted.
    pub(super) fn parse(bytes: &[u8; RECORD], limits: &Limits) -> Self {
        if *bytes == [0; RECORD] {
            return Self::Empty;
        }
        if crc32c::crc32c(&bytes[..CRC]) != u32_at(bytes, CRC) {
            return Self::Damaged;
        }
        parse(bytes, limits).map_or(Self::Damaged, Self::Object)
    }
}

fn parse(bytes: &[u8; RECORD], limits: &Limits) -> Option<Record> {
    let key_bytes = usize::from(bytes[KEY_BYTES]);
    let are_zeros = |range: std::ops::Range<usize>| bytes[range].iter().all(|b| *b == 0);
    if key_bytes != limits.key_bytes || !are_zeros(key_bytes..key::MOST) || !ZEROS.into_iter().all(are_zeros) {
        return None;
    }
    let key = KvKey::new(&bytes[..key_bytes]).ok()?;
    let (sequence, size) = (u64_at(bytes, SEQUENCE), u32_at(bytes, BYTES));
    let count = usize::from(bytes[EXTENTS]);
    if sequence == 0 || size == 0 || !(1..=extent::MOST).contains(&count) {
        return None;
    }
    let mut runs = Runs::default();
    for i in 0..extent::MOST {
        let run = Run::of_bits(u64_at(bytes, RUNS + i * 8));
        match i < count {
            true if run.units() > 0 && run.end() <= limits.units => runs.push(run),
            false if run.bits() == 0 => {}
            _ => return None,
        }
    }
    let is_whole = runs.units() == u64::from(size).div_ceil(limits.unit);
    let is_apart = runs.sorted().as_slice().windows(2).all(|w| w[0].end() <= w[1].start());
    (is_whole && is_apart).then_some(Record { key, sequence, checksum: u64_at(bytes, CHECKSUM), bytes: size, runs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { key_bytes: 16, unit: 4096, units: 1000 };

    fn record() -> Record {
        let runs = [Run::new(7, 3), Run::new(100, 2)].into_iter().collect();
        Record { key: KvKey::from([9; 16]), sequence: 5, checksum: 77, bytes: 20_000, runs }
    }

    /// Returns the bytes after a change, with a CRC that is right again.
    fn changed(change: impl FnOnce(&mut [u8; RECORD])) -> [u8; RECORD] {
        let mut bytes = record().to_bytes();
        change(&mut bytes);
        let crc = crc32c::crc32c(&bytes[..CRC]);
        bytes[CRC..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn records_come_back() {
        assert_eq!(Slot::parse(&record().to_bytes(), &LIMITS), Slot::Object(record()));
        assert_eq!(Slot::parse(&[0; RECORD], &LIMITS), Slot::Empty);
        let long = Record { key: KvKey::from([3; 32]), ..record() };
        assert_eq!(Slot::parse(&long.to_bytes(), &Limits { key_bytes: 32, ..LIMITS }), Slot::Object(long.clone()));
        assert_eq!(Slot::parse(&long.to_bytes(), &LIMITS), Slot::Damaged);
    }

    #[test]
    fn each_flipped_bit_is_damage() {
        for bit in 0..RECORD * 8 {
            let mut bytes = record().to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Slot::parse(&bytes, &LIMITS), Slot::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn contradictions_are_damage_even_with_a_right_crc() {
        let put = |at: usize, value: u64| changed(|b| b[at..at + 8].copy_from_slice(&value.to_le_bytes()));
        let cases = [
            ("no sequence number", put(SEQUENCE, 0)),
            ("no bytes", changed(|b| b[BYTES..KEY_BYTES].fill(0))),
            ("more bytes than extents", changed(|b| b[BYTES + 1] += 2)),
            ("no extents", changed(|b| b[EXTENTS] = 0)),
            ("nine extents", changed(|b| b[EXTENTS] = 9)),
            ("an extent without units", put(RUNS + 8, Run::new(100, 0).bits())),
            ("an extent outside", put(RUNS + 8, Run::new(999, 2).bits())),
            ("extents that overlap", put(RUNS + 8, Run::new(9, 2).bits())),
            ("an extent behind the last", put(RUNS + 16, Run::new(200, 1).bits())),
            ("a key of another size", changed(|b| b[KEY_BYTES] = 32)),
            ("bytes behind the key", changed(|b| b[20] = 1)),
            ("a reserved byte", changed(|b| b[54] = 1)),
            ("another reserved byte", changed(|b| b[121] = 1)),
        ];
        for (what, bytes) in cases {
            assert_eq!(Slot::parse(&bytes, &LIMITS), Slot::Damaged, "{what}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_within_the_store(
            changes in prop::collection::vec((0usize..RECORD, any::<u8>()), 0..6), mends_crc: bool,
        ) {
            let apply = |b: &mut [u8; RECORD]| changes.iter().for_each(|(at, value)| b[*at] = *value);
            let mut bytes = record().to_bytes();
            apply(&mut bytes);
            let bytes = if mends_crc { changed(apply) } else { bytes };
            if let Slot::Object(record) = Slot::parse(&bytes, &LIMITS) {
                prop_assert!(record.runs.as_slice().iter().all(|r| r.end() <= LIMITS.units));
                prop_assert_eq!(record.to_bytes(), bytes);
            }
        }
    }
}
