//! Decision which content of a replicated volume is the newest, from what its copies' superblocks prove.
//!
//! A superblock names its members: the copies that held all data of its generation when it was written. A later
//! generation without some of them is written to the others alone. So a generation is known to be the newest if the
//! superblock of each of its members was read, and none of them tells of a later one. A member that cannot be read may
//! have gone on without the rest.

use super::superblock::{Head, Superblock};
use crate::storage::error::ManifestError;

/// UUID and generation of content.
pub(in crate::storage) type Identity = ([u8; 16], u64);

/// First bytes of one copy, or the reason why they were not read.
pub(in crate::storage) type ReadHead = Result<Head, String>;

/// The newest content, and the copies that do not hold it.
#[derive(Debug)]
pub(in crate::storage) struct Newest<'a> {
    /// Slot of the superblock on each copy that has it.
    pub(in crate::storage) slot: usize,
    pub(in crate::storage) block: &'a Superblock,
    /// Copies that do not hold the content, with the reasons.
    pub(in crate::storage) outdated: Vec<(usize, String)>,
    /// True if a copy that holds the content lacks its superblock or its commit.
    pub(in crate::storage) is_behind: bool,
}

/// Reason why no content is known to be the newest.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::storage) enum Doubt {
    /// The superblocks contradict each other, or there are none.
    Manifest(ManifestError),
    /// Copies that cannot be read may hold newer content than the newest that can be read, if there is any: its copy and
    /// generation.
    Unread { copies: Vec<(usize, String)>, newest: Option<(usize, u64)> },
}

/// Finds the newest content of copies with these first bytes. `known` is the content that this process has found or
/// stored last; no other process writes to the copies meanwhile.
pub(in crate::storage) fn newest<'a>(
    heads: &'a [ReadHead],
    names: &[String],
    known: Option<Identity>,
) -> Result<Newest<'a>, Doubt> {
    let whole: Vec<(usize, usize, &Superblock)> = read(heads)
        .filter_map(|(device, head)| head.whole().first().map(|(slot, block)| (device, *slot, *block)))
        .collect();
    let Some((device, slot, block)) = whole.iter().rev().max_by_key(|(.., b)| b.generation).copied() else {
        return Err(nothing(heads));
    };
    if let Some((other, ..)) = whole.iter().find(|(.., b)| b.uuid != whole[0].2.uuid) {
        return Err(Doubt::Manifest(ManifestError::Member { drive: names[*other].clone() }));
    }
    let known = known.filter(|(uuid, _)| *uuid == block.uuid).map(|(_, generation)| generation);
    let latest = read(heads).filter_map(|(_, head)| head.latest(block.uuid)).chain(known).max();
    if let Some(generation) = latest.filter(|g| *g > block.generation) {
        return Err(Doubt::Manifest(ManifestError::Lost { generation, found: block.generation }));
    }
    for (other, _, b) in &whole {
        let differs = b.generation == block.generation && Superblock { index: block.index, ..(*b).clone() } != *block;
        let is_stranger = !is_member(block, *other) && b.members & block.members == 0;
        if differs || is_stranger {
            let [first, second] = [device, *other].map(|d| names[d].clone());
            return Err(Doubt::Manifest(ManifestError::Diverged { first, second }));
        }
    }
    let members = heads.iter().enumerate().filter(|(d, _)| is_member(block, *d));
    let doubtful: Vec<_> = members.filter_map(|(d, head)| Some((d, doubt(head, block)?))).collect();
    if !doubtful.is_empty() && known != Some(block.generation) {
        return Err(Doubt::Unread { copies: doubtful, newest: Some((device, block.generation)) });
    }
    // A generation is committed once every member has its superblock. A member that has an older one alone is not what it was: someone
    // has put back what it held before. Without a commit the writes of superblocks were cut off, behind those of the data.
    let is_committed = read(heads).any(|(_, head)| head.is_committed(block));
    let has_latest = |d: usize| {
        !is_committed || read(heads).any(|(o, head)| o == d && head.latest(block.uuid) >= Some(block.generation))
    };
    let holds = |d: usize| is_member(block, d) && whole.iter().any(|(other, ..)| *other == d) && has_latest(d);
    let outdated = heads.iter().enumerate().filter(|(d, _)| !holds(*d)).map(|(d, head)| (d, reason(head, block)));
    let is_behind = read(heads).any(|(d, head)| {
        holds(d)
            && !(head.is_committed(block) && whole.iter().any(|(o, _, b)| *o == d && b.generation == block.generation))
    });
    Ok(Newest { slot, block, outdated: outdated.collect(), is_behind })
}

fn read(heads: &[ReadHead]) -> impl Iterator<Item = (usize, &Head)> {
    heads.iter().enumerate().filter_map(|(device, head)| Some((device, head.as_ref().ok()?)))
}

fn is_member(block: &Superblock, device: usize) -> bool {
    block.members >> device & 1 != 0
}

/// Returns the reason why no copy has content.
fn nothing(heads: &[ReadHead]) -> Doubt {
    let unread: Vec<_> = heads.iter().enumerate().filter_map(|(d, h)| Some((d, h.as_ref().err()?.clone()))).collect();
    if !unread.is_empty() {
        return Doubt::Unread { copies: unread, newest: None };
    }
    let errors = || read(heads).filter_map(|(_, head)| head.newest().err());
    let damage = errors().find(|e| *e != ManifestError::Absent);
    Doubt::Manifest(damage.unwrap_or(ManifestError::Absent))
}

/// Returns the reason why a member of this content may hold later content, if it may. An empty device in a member's
/// place holds none: the user has replaced the member.
fn doubt(head: &ReadHead, block: &Superblock) -> Option<String> {
    match head {
        Err(error) => Some(error.clone()),
        Ok(head) if head.latest(block.uuid).is_some() => None,
        Ok(head) => head.newest().err().filter(|e| *e != ManifestError::Absent).map(|e| e.to_string()),
    }
}

fn reason(head: &ReadHead, block: &Superblock) -> String {
    match head {
        Err(error) => format!("its superblock cannot be read: {error}"),
        Ok(_) => format!("it lacks generation {} of the data", block.generation),
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::Manifest;
    use super::super::superblock::{COMMIT_AT, Layout, commit};
    use super::*;
    use crate::storage::format::{MANIFEST_BYTES, SLOT_BYTES, SLOTS};

    const UUID: [u8; 16] = [7; 16];

    fn block(generation: u64, members: u32, index: u32) -> Superblock {
        let layout = Layout { drives: 3, chunk_bytes: 0, replicated: true };
        let manifest = Manifest::new(Vec::new()).unwrap();
        Superblock { uuid: UUID, generation, layout, index, members, manifest }
    }

    /// Returns the bytes of a copy with these generations in its slots.
    fn bytes(slots: [Option<Superblock>; 2], committed: u64) -> Vec<u8> {
        let mut bytes = vec![0; MANIFEST_BYTES];
        for (at, slot) in SLOTS.into_iter().zip(slots) {
            slot.iter().for_each(|s| bytes[at..][..SLOT_BYTES].copy_from_slice(&s.to_bytes()));
        }
        bytes[COMMIT_AT..][..512].copy_from_slice(&commit(UUID, committed, 512));
        bytes
    }

    fn head(generation: u64, members: u32, index: u32) -> ReadHead {
        let slots = [Some(block(generation, members, index)), None];
        Ok(Head::parse(&bytes(slots, generation)))
    }

    fn unread() -> ReadHead {
        Err("unrecovered read error".to_owned())
    }

    fn empty() -> ReadHead {
        Ok(Head::parse(&vec![0; MANIFEST_BYTES]))
    }

    fn names() -> Vec<String> {
        ["a", "b", "c"].map(str::to_owned).to_vec()
    }

    fn found(heads: &[ReadHead]) -> Result<(u64, Vec<usize>, bool), Doubt> {
        let n = newest(heads, &names(), None)?;
        Ok((n.block.generation, n.outdated.iter().map(|(d, _)| *d).collect(), n.is_behind))
    }

    #[test]
    fn an_unread_copy_that_is_no_member_is_outdated_and_named() {
        let heads = [unread(), head(6, 0b010, 1)];
        let n = newest(&heads, &names(), None).unwrap();
        assert_eq!((n.block.generation, n.outdated[0].0), (6, 0));
        assert!(n.outdated[0].1.contains("cannot be read: unrecovered"), "{n:?}");
    }

    #[test]
    fn an_unread_member_may_hold_newer_content() {
        for heads in [vec![head(5, 0b011, 0), unread()], vec![head(5, 0b111, 0), head(5, 0b111, 1), unread()]] {
            let last = heads.len() - 1;
            let copies = vec![(last, "unrecovered read error".to_owned())];
            assert_eq!(found(&heads), Err(Doubt::Unread { copies, newest: Some((0, 5)) }));
            // The process that has stored this content knows that there is none.
            assert_eq!(newest(&heads, &names(), Some((UUID, 5))).unwrap().outdated[0].0, last);
            assert!(newest(&heads, &names(), Some((UUID, 4))).is_err());
            let lost = newest(&heads, &names(), Some((UUID, 6))).unwrap_err();
            assert_eq!(lost, Doubt::Manifest(ManifestError::Lost { generation: 6, found: 5 }));
        }
        assert_eq!(found(&[head(5, 0b011, 0), empty()]), Ok((5, vec![1], false)), "the user has replaced the member");
    }

    #[test]
    fn nothing_is_known_of_copies_that_cannot_be_read() {
        assert!(matches!(found(&[unread(), unread()]), Err(Doubt::Unread { newest: None, .. })));
        assert!(matches!(found(&[unread(), empty()]), Err(Doubt::Unread { newest: None, .. })));
        assert_eq!(found(&[empty(), empty()]), Err(Doubt::Manifest(ManifestError::Absent)));
    }

    #[test]
    fn a_member_that_went_back_is_outdated() {
        let of = |generation, committed| -> ReadHead {
            Ok(Head::parse(&bytes([Some(block(generation, 0b11, 0)), None], committed)))
        };
        // Superblocks are cut off before the commit. The data is there by then.
        assert_eq!(found(&[of(6, 5), of(5, 5)]), Ok((6, vec![], true)));
        assert_eq!(found(&[of(6, 6), of(5, 5)]), Ok((6, vec![1], false)));
        assert_eq!(found(&[of(6, 5), of(4, 6)]), Ok((6, vec![], true)), "its superblock of generation 6 is damaged");
    }

    #[test]
    fn a_damaged_superblock_hides_no_later_content() {
        let damaged = |slots: [Option<Superblock>; 2], committed, at: usize| {
            let mut bytes = bytes(slots, committed);
            bytes[at] ^= 1;
            Ok(Head::parse(&bytes))
        };
        // Copy b went on alone, and the superblock that says so is damaged.
        let slots = || [Some(block(6, 0b10, 1)), Some(block(5, 0b11, 1))];
        let lost = Err(Doubt::Manifest(ManifestError::Lost { generation: 6, found: 5 }));
        assert_eq!(found(&[head(5, 0b11, 0), damaged(slots(), 6, 100)]), lost);
        // A generation that is not committed was never acknowledged.
        assert_eq!(found(&[head(5, 0b11, 0), damaged(slots(), 5, 100)]), Ok((5, vec![], false)));
        // Both have the generation, and one of its superblocks is damaged.
        let slots = || [Some(block(6, 0b11, 1)), Some(block(5, 0b11, 1))];
        assert_eq!(found(&[head(6, 0b11, 0), damaged(slots(), 6, 100)]), Ok((6, vec![], true)));
        // Nothing tells of which volume the only slot was.
        let mut bytes = bytes([Some(block(6, 0b11, 1)), None], 6);
        bytes[100] ^= 1;
        bytes[COMMIT_AT] ^= 1;
        let both = [head(6, 0b11, 0), Ok(Head::parse(&bytes))];
        assert!(matches!(found(&both), Err(Doubt::Unread { newest: Some((0, 6)), .. })));
    }

    #[test]
    fn copies_that_went_on_without_each_other_are_refused() {
        for heads in [[head(6, 0b01, 0), head(6, 0b10, 1)], [head(7, 0b01, 0), head(6, 0b10, 1)]] {
            let (first, second) = ("a".to_owned(), "b".to_owned());
            assert_eq!(found(&heads), Err(Doubt::Manifest(ManifestError::Diverged { first, second })));
        }
        assert_eq!(found(&[head(7, 0b01, 0), head(6, 0b11, 1)]), Ok((7, vec![1], false)));
    }
}
