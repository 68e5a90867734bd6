//! Reading of records when a store is opened, from all copies of a replicated volume.

use super::medium::Medium;
use super::record::{RECORD, Slot};
use crate::storage::error::StorageError;

/// Reads the records of consecutive slots from slot `first` on, whole blocks of them. Bytes that no device can read become
/// those of a damaged record. Returns the slots about which the copies disagree.
///
/// Copies disagree after a power failure between a write and its flush. Each state is one that may be found then: the
/// latest record is chosen, and counts as one that has to be written again before its space is used.
pub(super) fn read_records(medium: &Medium, first: u32, out: &mut [u8]) -> Result<Vec<u32>, StorageError> {
    let copies = medium.volume.contents().copies_in_use()?;
    let [main, others @ ..] = &copies[..] else { return Ok(Vec::new()) };
    read_copy(medium, *main, first, out)?;
    let mut versions = Vec::with_capacity(others.len());
    for copy in others {
        let mut version = vec![0; out.len()];
        read_copy(medium, *copy, first, &mut version)?;
        if version != out {
            versions.push(version);
        }
    }
    let mut differing = Vec::new();
    if !versions.is_empty() {
        for (i, record) in out.as_chunks_mut::<RECORD>().0.iter_mut().enumerate() {
            let all: Vec<[u8; RECORD]> =
                versions.iter().map(|v| v.as_chunks::<RECORD>().0[i]).chain([*record]).collect();
            if all.iter().any(|other| other != record) {
                let rank = |bytes: &&[u8; RECORD]| match Slot::parse(bytes, &medium.shape.limits) {
                    Slot::Object(record) => (2, record.sequence),
                    Slot::Empty => (1, 0),
                    Slot::Damaged => (0, 0),
                };
                *record = all.iter().max_by_key(rank).copied().unwrap_or(*record);
                differing.push(first + i as u32);
            }
        }
    }
    Ok(differing)
}

/// Reads records from one copy, or from the volume.
fn read_copy(medium: &Medium, copy: Option<usize>, first: u32, out: &mut [u8]) -> Result<(), StorageError> {
    let (contents, at) = (medium.volume.contents(), medium.record_at(first.into()));
    match contents.read_from(copy, at, out) {
        Err(StorageError::Nvme(e)) if !e.is_without_completion() => {}
        other => return other,
    }
    let block = medium.volume.block_bytes();
    for (bytes, at) in out.chunks_mut(block).zip((at..).step_by(block)) {
        match contents.read_from(copy, at, bytes) {
            // No record has these bytes.
            Err(StorageError::Nvme(e)) if !e.is_without_completion() => bytes.fill(u8::MAX),
            other => other?,
        }
    }
    Ok(())
}
