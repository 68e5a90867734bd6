//! States of files after a loss of power: all that a flush covers, and any part of what came after it.

use super::recorder::Event;
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a medium writes whole or not at all.
const SECTOR: usize = 512;
/// Last events that the text of an image has.
const LINES: usize = 60;

/// Number of steps that were acknowledged, and that had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) done: usize,
    pub(super) begun: usize,
}

/// Files after a loss of power.
pub(super) struct Image {
    pub(super) files: Vec<Vec<u8>>,
    pub(super) progress: Progress,
    /// Place of the loss among the events, and the last of them with what became of each write.
    pub(super) text: String,
}

/// Part of the writes without flush that reached the medium.
#[derive(Clone, Copy)]
enum Kept {
    None,
    All,
    Some,
    Torn,
}

impl Image {
    /// Cuts the power behind a random event.
    pub(super) fn new(base: &[Vec<u8>], events: &[Event], random: &mut Random) -> Self {
        let end = place(events, random);
        let kept = random.of(&[Kept::None, Kept::All, Kept::Some, Kept::Some, Kept::Torn, Kept::Torn]);
        let events = &events[..end];
        let durable = durable(events);
        let count = |kind: fn(&Event) -> bool| events.iter().filter(|e| kind(e)).count();
        let progress =
            Progress { done: count(|e| matches!(e, Event::Done)), begun: count(|e| matches!(e, Event::Begun)) };
        let (mut files, mut told) = (base.to_vec(), Vec::new());
        for event in events {
            let Event::Write { file, id, at, data, .. } = event else {
                told.extend(event.text());
                continue;
            };
            let is_durable = durable.contains(id);
            let is_kept = is_durable
                || match kept {
                    Kept::None => false,
                    Kept::All => true,
                    Kept::Some => random.once_in(2),
                    Kept::Torn => !random.once_in(3),
                };
            let is_torn = !is_durable && is_kept && matches!(kept, Kept::Torn) && random.once_in(2);
            let sectors = random.next();
            let what = match (is_durable, is_torn, is_kept) {
                (true, ..) => "flushed",
                (_, true, _) => "torn",
                (.., true) => "whole",
                _ => "lost",
            };
            told.push(format!("{what}: {} bytes at {at} of device {file}", data.len()));
            let to = &mut files[*file][*at as usize..][..data.len()];
            if is_torn {
                tear(to, data, &mut Random::new(sectors));
            } else if is_kept {
                to.copy_from_slice(data);
            }
        }
        let last = told.len().saturating_sub(LINES);
        let text = format!("power lost behind event {end}, {progress:?}\n    {}", told[last..].join("\n    "));
        Self { files, progress, text }
    }
}

/// Returns the number of events before the loss of power. Half of the losses are at the end of a flush, whose writes are at stake.
fn place(events: &[Event], random: &mut Random) -> usize {
    let flushes: Vec<usize> = (0..events.len()).filter(|i| matches!(events[*i], Event::Flushed { .. })).collect();
    match random.below(12) {
        0 => events.len(),
        1..=6 if !flushes.is_empty() => random.of(&flushes),
        _ => random.below(events.len() as u64 + 1) as usize,
    }
}

/// Writes some sectors of `data`: the first ones, or any.
fn tear(to: &mut [u8], data: &[u8], random: &mut Random) {
    let (by_prefix, sectors) = (random.once_in(2), (data.len() / SECTOR) as u64);
    // Superblocks have what matters at their beginning.
    let most = if random.once_in(2) { sectors.min(8) } else { sectors };
    let first = random.below(most + 1) as usize;
    for (i, (to, from)) in to.chunks_mut(SECTOR).zip(data.chunks(SECTOR)).enumerate() {
        if if by_prefix { i < first } else { random.once_in(2) } {
            to.copy_from_slice(from);
        }
    }
}

/// Returns the writes that are on the medium whatever happens.
fn durable(events: &[Event]) -> BTreeSet<u64> {
    let (mut durable, mut ended) = (BTreeSet::new(), Vec::new());
    let (mut writes, mut flushes) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        match event {
            Event::Write { id, file, durable, .. } => drop(writes.insert(*id, (*file, *durable))),
            Event::Written { id } => match writes.get(id) {
                Some((_, true)) => drop(durable.insert(*id)),
                Some((file, false)) => ended.push((*file, *id)),
                None => {}
            },
            Event::Flush { id, file } => {
                let covered: Vec<u64> = ended.iter().filter(|(f, _)| f == file).map(|(_, id)| *id).collect();
                flushes.insert(*id, covered);
            }
            Event::Flushed { id } => durable.extend(flushes.remove(id).into_iter().flatten()),
            Event::Begun | Event::Done => {}
        }
    }
    durable
}
