//! Superblocks: the first bytes of every drive of a volume. They hold the volume's identity, the layout of its data on
//! the drives, and the manifest.
//!
//! Two slots are written in turn, so that one of them is intact at any time. The mark, which is written before the
//! first change of stored arrays, lies beside them. So does the commit, which is written once a generation is on the
//! medium of all drives: if no slot holds that generation any more, the older slot is not the content. All numbers are
//! little-endian.
//!
//! | byte of the drive | |
//! |---|---|
//! | 0 | slot 0 |
//! | 28 Ki | mark: `wbchange`, UUID, generation u64, XXH64 of these, u64 |
//! | 32 Ki | slot 1 |
//! | 60 Ki | commit: `wbcommit`, UUID, generation u64, XXH64 of these, u64 |
//! | 64 Ki | data, unless the stripe unit is larger |
//!
//! A slot is a header of 128 bytes, the entries of the manifest, and extensions:
//!
//! | header | | extension | |
//! |---|---|---|---|
//! | 0 | `warpbell` | 0 | kind, u32 |
//! | 8 | version, u32 | 4 | bytes of data, u32 |
//! | 12 | entries, u32 | 8 | data, filled up with zeros to a multiple of 8 |
//! | 16 | generation, u64: one more with each write | | |
//! | 24 | bytes of the volume that are in use, u64 | | |
//! | 32 | UUID of the volume | | |
//! | 48 | drives, u32 | | |
//! | 52 | index of this drive, u32 | | |
//! | 56 | stripe unit in bytes, u64; 0 on one drive, and on copies | | |
//! | 64 | 1: every drive holds everything, u32 | | |
//! | 68 | copies that hold this content, a bit for each, u32 | | |
//! | 72 | bytes of extensions, u32 | | |
//! | 76 | zeros | | |
//! | 120 | XXH64 of the header so far, all entries and extensions, u64 | | |
//!
//! Extension 1 is the table of page checksums (`page_checksums.rs`).
//!
//! Readers may ignore extensions whose kind has the bit [`OPTIONAL`], and keep them when they write the slot again. A
//! reader refuses a manifest with any other kind that it does not know.

use super::checksum_table::{Extension, KIND, TablePlace};
use super::manifest::{Manifest, RawEntry};
use crate::file_identity::VOLUME_SLOTS;
use crate::storage::checksum::Checksum;
use crate::storage::error::ManifestError;
use crate::storage::format::{
    ARRAY_ALIGN, HEADER_BYTES, MAGIC, MANIFEST_BYTES, MAX_ARRAYS, SLOT_BYTES, SLOTS, VERSION,
};
use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::mem::offset_of;

const MARK_MAGIC: [u8; 8] = *b"wbchange";
const COMMIT_MAGIC: [u8; 8] = *b"wbcommit";
/// First byte of the mark, which has a block of its own for any block size.
pub(in crate::storage) const MARK_AT: usize = SLOT_BYTES;
/// First byte of the commit, which has a block of its own for any block size.
pub(in crate::storage) const COMMIT_AT: usize = SLOTS[1] + SLOT_BYTES;
/// Bit of an extension's kind: a reader that does not know the kind may ignore the extension.
pub(in crate::storage) const OPTIONAL: u32 = 1 << 31;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RawHeader {
    magic: [u8; 8],
    version: u32,
    entries: u32,
    generation: u64,
    used_bytes: u64,
    uuid: [u8; 16],
    drives: u32,
    index: u32,
    chunk_bytes: u64,
    replicated: u32,
    members: u32,
    extension_bytes: u32,
    reserved: [u32; 11],
    checksum: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RawRecord {
    magic: [u8; 8],
    uuid: [u8; 16],
    generation: u64,
    checksum: u64,
}

const _: () = {
    assert!(size_of::<RawHeader>() == HEADER_BYTES);
    assert!(COMMIT_AT + 4096 <= MANIFEST_BYTES && MARK_AT + 4096 <= SLOTS[1]);
    assert!(SLOTS[0] as u64 == VOLUME_SLOTS[0] && SLOTS[1] as u64 == VOLUME_SLOTS[1]);
    assert!(cfg!(target_endian = "little"), "superblocks are read and written as they lie in memory");
};

/// Kinds of extensions that this version knows.
const KNOWN: [u32; 1] = [KIND];

/// Layout of the data of a volume on its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::storage) struct Layout {
    pub(in crate::storage) drives: u32,
    /// Stripe unit in bytes; 0 on one drive and on copies, where it has no effect.
    pub(in crate::storage) chunk_bytes: u64,
    pub(in crate::storage) replicated: bool,
}

impl Layout {
    /// Returns the first byte of the volume that data may use: behind the superblocks of all drives.
    pub(in crate::storage) fn data_start(&self) -> u64 {
        let reserved = MANIFEST_BYTES as u64;
        if self.chunk_bytes == 0 {
            return reserved;
        }
        let row = self.chunk_bytes.saturating_mul(self.drives.into());
        reserved.div_ceil(self.chunk_bytes).saturating_mul(row).next_multiple_of(ARRAY_ALIGN)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { drives: 1, .. } => f.write_str("on one drive"),
            Self { drives, replicated: true, .. } => write!(f, "as {drives} copies"),
            Self { drives, chunk_bytes, .. } => write!(f, "over {drives} drives in chunks of {chunk_bytes} bytes"),
        }
    }
}

/// Contents of one slot of one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::storage) struct Superblock {
    pub(in crate::storage) uuid: [u8; 16],
    pub(in crate::storage) generation: u64,
    pub(in crate::storage) layout: Layout,
    /// Index of the drive.
    pub(in crate::storage) index: u32,
    /// Copies that hold this content, a bit for each.
    pub(in crate::storage) members: u32,
    pub(in crate::storage) manifest: Manifest,
}

impl Superblock {
    /// Returns the bytes of a whole slot, as they are stored.
    pub(in crate::storage) fn to_bytes(&self) -> Vec<u8> {
        let manifest = &self.manifest;
        let mut body = Vec::with_capacity(SLOT_BYTES);
        manifest.entries().iter().for_each(|e| body.extend_from_slice(bytemuck::bytes_of(&RawEntry::of(e))));
        let extensions = body.len();
        for x in manifest.extensions() {
            body.extend_from_slice(&x.kind.to_le_bytes());
            body.extend_from_slice(&(x.bytes.len() as u32).to_le_bytes());
            body.extend_from_slice(&x.bytes);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        let mut header = RawHeader {
            magic: MAGIC,
            version: VERSION,
            entries: manifest.entries().len() as u32,
            generation: self.generation,
            used_bytes: manifest.end(),
            uuid: self.uuid,
            drives: self.layout.drives,
            index: self.index,
            chunk_bytes: self.layout.chunk_bytes,
            replicated: self.layout.replicated.into(),
            members: self.members,
            extension_bytes: (body.len() - extensions) as u32,
            reserved: [0; 11],
            checksum: 0,
        };
        header.checksum = checksum(bytemuck::bytes_of(&header), &body);
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        bytes.append(&mut body);
        bytes.resize(SLOT_BYTES, 0);
        bytes
    }

    /// Parses a slot from the medium, whose contents are untrusted.
    pub(in crate::storage) fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let truncated = |needed| ManifestError::Truncated { bytes: bytes.len(), needed };
        if bytes.len() < MAGIC.len() || bytes[..MAGIC.len()] != MAGIC {
            return Err(ManifestError::Absent);
        }
        let head = bytes.get(..HEADER_BYTES).ok_or_else(|| truncated(HEADER_BYTES))?;
        let header: RawHeader = bytemuck::pod_read_unaligned(head);
        if header.version != VERSION {
            return Err(ManifestError::Version(header.version));
        }
        let count = header.entries as usize;
        if count > MAX_ARRAYS {
            return Err(ManifestError::TooMany(count));
        }
        let entries_end = HEADER_BYTES + count * size_of::<RawEntry>();
        let needed = entries_end.saturating_add(header.extension_bytes as usize);
        let body = bytes.get(HEADER_BYTES..needed).ok_or_else(|| truncated(needed))?;
        let computed = checksum(head, body);
        if computed != header.checksum {
            return Err(ManifestError::Checksum { found: header.checksum, computed });
        }
        let (entries, extensions) = body.split_at(entries_end - HEADER_BYTES);
        let entries =
            entries.chunks_exact(size_of::<RawEntry>()).map(|b| RawEntry::parse(bytemuck::pod_read_unaligned(b)));
        let manifest =
            Manifest::new(entries.collect::<Result<_, _>>()?)?.with_extensions(parse_extensions(extensions)?);
        for x in manifest.extensions().iter().filter(|x| x.kind == KIND) {
            TablePlace::parse(x, manifest.arrays_end())?;
        }
        let (drives, chunk_bytes) = (header.drives, header.chunk_bytes);
        Ok(Self {
            uuid: header.uuid,
            generation: header.generation,
            layout: Layout { drives, chunk_bytes, replicated: header.replicated != 0 },
            index: header.index,
            members: header.members,
            manifest,
        })
    }
}

fn checksum(head: &[u8], body: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.update(&head[..offset_of!(RawHeader, checksum)]);
    sum.update(body);
    sum.finish()
}

fn parse_extensions(mut bytes: &[u8]) -> Result<Vec<Extension>, ManifestError> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(8) {
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, len) = (word(0), word(4) as usize);
        let Some(data) = rest.get(..len) else { return Err(ManifestError::Extension { kind, bytes: len }) };
        if kind & OPTIONAL == 0 && !KNOWN.contains(&kind) {
            return Err(ManifestError::Extension { kind, bytes: len });
        }
        all.push(Extension { kind, bytes: data.to_vec() });
        bytes = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
    Ok(all)
}

/// Returns the mark's block: it records that arrays of this generation's content are being changed.
pub(in crate::storage) fn mark(uuid: [u8; 16], generation: u64, block: usize) -> Vec<u8> {
    record(MARK_MAGIC, uuid, generation, block)
}

/// Returns the commit's block: it records that this generation is on the medium of all drives that hold it.
pub(in crate::storage) fn commit(uuid: [u8; 16], generation: u64, block: usize) -> Vec<u8> {
    record(COMMIT_MAGIC, uuid, generation, block)
}

fn record(magic: [u8; 8], uuid: [u8; 16], generation: u64, block: usize) -> Vec<u8> {
    let mut record = RawRecord { magic, uuid, generation, checksum: 0 };
    record.checksum = record_checksum(&record);
    let mut bytes = bytemuck::bytes_of(&record).to_vec();
    bytes.resize(block, 0);
    bytes
}

fn record_checksum(record: &RawRecord) -> u64 {
    Checksum::of(&bytemuck::bytes_of(record)[..offset_of!(RawRecord, checksum)])
}

/// Returns UUID and generation of the record at a byte of the head, if there is a valid one.
fn parse_record(head: &[u8], at: usize, magic: [u8; 8]) -> Option<([u8; 16], u64)> {
    let bytes = head.get(at..at + size_of::<RawRecord>())?;
    let record: RawRecord = bytemuck::pod_read_unaligned(bytes);
    (record.magic == magic && record.checksum == record_checksum(&record)).then_some((record.uuid, record.generation))
}

/// Parsed first bytes of a drive.
#[derive(Debug)]
pub(in crate::storage) struct Head {
    slots: [Result<Superblock, ManifestError>; 2],
    /// UUID and generation of the mark, if there is a valid one.
    mark: Option<([u8; 16], u64)>,
    /// UUID and generation of the commit, if there is a valid one.
    commit: Option<([u8; 16], u64)>,
    /// True if all bytes are zeros.
    is_zero: bool,
    /// True if a slot begins with other bytes than zeros.
    has_slots: bool,
}

/// Returns true if all bytes are zeros. Compares the bytes with themselves, one further, by memcmp: each opening has megabytes.
pub(super) fn are_zeros(bytes: &[u8]) -> bool {
    bytes.split_first().is_none_or(|(first, rest)| *first == 0 && *rest == bytes[..rest.len()])
}

impl Head {
    pub(in crate::storage) fn parse(bytes: &[u8]) -> Self {
        let part = |at: usize| bytes.get(at..).map_or(&[][..], |b| &b[..b.len().min(SLOT_BYTES)]);
        Self {
            slots: SLOTS.map(|at| Superblock::parse(part(at))),
            mark: parse_record(bytes, MARK_AT, MARK_MAGIC),
            commit: parse_record(bytes, COMMIT_AT, COMMIT_MAGIC),
            is_zero: are_zeros(bytes),
            has_slots: SLOTS.iter().any(|at| part(*at).iter().take(MAGIC.len()).any(|b| *b != 0)),
        }
    }

    /// Returns true if all bytes are zeros, as on a device to which nothing was written.
    pub(in crate::storage) fn is_zero(&self) -> bool {
        self.is_zero
    }

    /// Returns true if nothing is damaged: each slot is intact or was never written, and the committed one is there.
    pub(in crate::storage) fn is_clean(&self) -> bool {
        self.slots.iter().all(|s| matches!(s, Ok(_) | Err(ManifestError::Absent)))
            && !matches!(self.newest(), Err(ManifestError::Lost { .. }))
    }

    /// Returns the latest generation of this volume that the drive is known to have held.
    pub(in crate::storage) fn latest(&self, uuid: [u8; 16]) -> Option<u64> {
        let held = self.whole().first().filter(|(_, s)| s.uuid == uuid).map(|(_, s)| s.generation);
        held.max(self.committed(uuid))
    }

    /// Returns the generation of this volume that the commit records.
    pub(in crate::storage) fn committed(&self, uuid: [u8; 16]) -> Option<u64> {
        self.commit.filter(|(of, _)| *of == uuid).map(|(_, generation)| generation)
    }

    /// Returns true if the commit records this generation or a later one.
    pub(in crate::storage) fn is_committed(&self, block: &Superblock) -> bool {
        self.committed(block.uuid).is_some_and(|generation| generation >= block.generation)
    }

    /// Returns the intact slots with their numbers, the later generation first.
    pub(in crate::storage) fn whole(&self) -> Vec<(usize, &Superblock)> {
        let mut whole: Vec<_> =
            self.slots.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref().ok()?))).collect();
        whole.sort_by_key(|(_, s)| std::cmp::Reverse(s.generation));
        whole
    }

    /// Returns the later intact slot, or the error of a slot if none is intact. Fails with [`ManifestError::Lost`] if
    /// a later generation was committed.
    pub(in crate::storage) fn newest(&self) -> Result<&Superblock, ManifestError> {
        if let Some((_, newest)) = self.whole().first() {
            return match self.commit {
                Some((uuid, generation)) if uuid == newest.uuid && generation > newest.generation => {
                    Err(ManifestError::Lost { generation, found: newest.generation })
                }
                _ => Ok(newest),
            };
        }
        let [first, second] = &self.slots;
        let absent = matches!(first, Err(ManifestError::Absent));
        let error = if absent { second.as_ref().err() } else { first.as_ref().err() };
        let error = error.cloned().unwrap_or(ManifestError::Absent);
        match (error, self.commit) {
            (error @ (ManifestError::Version(_) | ManifestError::Extension { .. }), _) => Err(error),
            // An erased drive has zeros in both slots, and may still have a commit if the erasure was cut off.
            (_, Some((_, generation))) if self.has_slots => Err(ManifestError::Lost { generation, found: 0 }),
            (error, _) => Err(error),
        }
    }

    /// Returns true if the mark records that arrays of this content were being changed.
    pub(in crate::storage) fn is_marked(&self, content: &Superblock) -> bool {
        self.mark.is_some_and(|(uuid, generation)| uuid == content.uuid && generation >= content.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::Entry;
    use super::*;
    use crate::storage::element::ElementType;
    use proptest::prelude::*;

    fn sample(extensions: Vec<Extension>) -> Superblock {
        let entry = |name: &str, offset, count| Entry {
            name: name.into(),
            element_type: ElementType::U32,
            element_bytes: 4,
            count,
            offset,
            checksum: 7,
            changed: name == "edges",
            self_checked: name == "edges",
        };
        let entries = vec![entry("offsets", 1 << 16, 3), entry("edges", 2 << 16, 20_000)];
        let manifest = Manifest::new(entries).unwrap().with_extensions(extensions);
        let layout = Layout { drives: 3, chunk_bytes: 8192, replicated: false };
        Superblock { uuid: [9; 16], generation: 5, layout, index: 2, members: 7, manifest }
    }

    fn extension(kind: u32, bytes: &[u8]) -> Extension {
        Extension { kind, bytes: bytes.to_vec() }
    }

    #[test]
    fn what_is_written_is_read() {
        let s = sample(vec![extension(OPTIONAL | 3, b"five!"), extension(OPTIONAL, b"")]);
        assert_eq!(Superblock::parse(&s.to_bytes()), Ok(s.clone()));
        assert_eq!(s.to_bytes().len(), SLOT_BYTES);
    }

    #[test]
    fn unknown_extensions_are_kept_or_refused_by_name() {
        let text = Superblock::parse(&sample(vec![extension(3, b"five!")]).to_bytes()).unwrap_err().to_string();
        assert!(text.contains("extension of kind 0x3") && text.contains("newer"), "{text}");
        let mut cut = sample(vec![extension(OPTIONAL, b"12345678")]).to_bytes();
        cut[HEADER_BYTES + 2 * size_of::<RawEntry>() + 4] = 200;
        assert!(Superblock::parse(&cut).is_err());
    }

    #[test]
    fn damage_is_named() {
        let good = sample(Vec::new()).to_bytes();
        assert_eq!(Superblock::parse(&[0; 4096]), Err(ManifestError::Absent));
        assert!(matches!(Superblock::parse(&good[..300]), Err(ManifestError::Truncated { .. })));
        assert!(matches!(Superblock::parse(&good[..20]), Err(ManifestError::Truncated { .. })));
        let version = |v: u8| {
            let mut other = good.clone();
            other[8] = v;
            Superblock::parse(&other).unwrap_err().to_string()
        };
        assert!(version(9).contains("version 9") && version(9).contains("newer warpbell"));
        assert!(version(1).contains("version 1") && version(1).contains("store the data again"), "{}", version(1));
    }

    #[test]
    fn data_begins_behind_the_superblocks_of_all_drives() {
        let start = |drives, chunk_bytes| Layout { drives, chunk_bytes, replicated: false }.data_start();
        assert_eq!([start(1, 0), start(2, 65_536), start(2, 131_072)], [65_536, 131_072, 262_144]);
        assert_eq!([start(3, 8192), start(3, 12_288), start(3, 512)], [196_608, 262_144, 196_608]);
    }

    #[test]
    fn the_later_whole_slot_counts() {
        let (old, new) = (sample(Vec::new()), Superblock { generation: 6, ..sample(Vec::new()) });
        let mut head = vec![0; MANIFEST_BYTES];
        assert_eq!(Head::parse(&head).newest(), Err(ManifestError::Absent));
        head[..SLOT_BYTES].copy_from_slice(&old.to_bytes());
        head[SLOTS[1]..][..SLOT_BYTES].copy_from_slice(&new.to_bytes());
        assert_eq!(Head::parse(&head).newest(), Ok(&new));
        head[MARK_AT..][..512].copy_from_slice(&mark(old.uuid, 5, 512));
        assert!(Head::parse(&head).is_marked(&old) && !Head::parse(&head).is_marked(&new));
        head[SLOTS[1] + 100] ^= 1;
        assert_eq!(Head::parse(&head).newest(), Ok(&old));
        head[20] ^= 1;
        assert!(matches!(Head::parse(&head).newest(), Err(ManifestError::Checksum { .. })));
    }

    #[test]
    fn a_committed_generation_without_its_slot_is_lost() {
        let (old, new) = (sample(Vec::new()), Superblock { generation: 6, ..sample(Vec::new()) });
        let mut head = vec![0; MANIFEST_BYTES];
        head[..SLOT_BYTES].copy_from_slice(&old.to_bytes());
        head[SLOTS[1]..][..SLOT_BYTES].copy_from_slice(&new.to_bytes());
        head[COMMIT_AT..][..512].copy_from_slice(&commit(old.uuid, 5, 512));
        // A slot that was cut off while it was written leaves the one before.
        head[SLOTS[1] + 100] ^= 1;
        assert_eq!(Head::parse(&head).newest(), Ok(&old));
        head[COMMIT_AT..][..512].copy_from_slice(&commit(old.uuid, 6, 512));
        let lost = Head::parse(&head);
        assert_eq!(lost.newest(), Err(ManifestError::Lost { generation: 6, found: 5 }));
        assert!(lost.latest(old.uuid) == Some(6) && lost.latest([1; 16]).is_none() && !lost.is_clean());
        head[SLOTS[1] + 100] ^= 1;
        let whole = Head::parse(&head);
        assert!(whole.newest() == Ok(&new) && whole.is_clean() && whole.is_committed(&new));
        // A changed first byte does not make the drive empty; zeros do.
        head[0] ^= 1;
        head[SLOTS[1]] ^= 1;
        assert!(matches!(Head::parse(&head).newest(), Err(ManifestError::Lost { .. })));
        head[..COMMIT_AT].fill(0);
        assert_eq!(Head::parse(&head).newest(), Err(ManifestError::Absent));
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_noticed(at in 0usize..128 + 256, bit in 0u8..8) {
            let mut bytes = sample(Vec::new()).to_bytes();
            bytes[at] ^= 1 << bit;
            prop_assert!(Superblock::parse(&bytes).is_err());
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..900), entries in 0u32..5, extra in 0u32..100, magic: bool) {
            if magic && bytes.len() >= HEADER_BYTES {
                let mut header: RawHeader = bytemuck::pod_read_unaligned(&bytes[..HEADER_BYTES]);
                (header.magic, header.version, header.entries, header.extension_bytes) = (MAGIC, VERSION, entries, extra);
                let end = (HEADER_BYTES + entries as usize * 128 + extra as usize).min(bytes.len());
                header.checksum = checksum(bytemuck::bytes_of(&header), &bytes[HEADER_BYTES..end]);
                bytes[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&header));
            }
            if let Ok(s) = Superblock::parse(&bytes) {
                prop_assert_eq!(Superblock::parse(&s.to_bytes()), Ok(s));
            }
            let _ = Head::parse(&bytes).newest();
        }
    }
}
