//! Memory of transfers: counters near the kernels, and lists in pinned host memory.

use super::super::Volume;
use super::list::SegmentList;
use crate::engine::{Args, Engine, abi};
use crate::memory::{MemoryError, Place, Region};
use crate::storage::disk::DataBuffer;
use crate::storage::error::StorageError;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();
/// Bytes in front of the lists: the number of the transfer that ended, and whether staging memory is spoiled.
const HEAD: usize = 2 * WORD;

/// Staging memory of a queue, with the progress of the transfer that uses it: both are replaced once a device may still access it.
pub(super) struct Staging {
    buffer: DataBuffer,
    progress: Region,
}

impl Staging {
    pub(super) fn new(volume: &Volume, bytes: usize) -> Result<Self, StorageError> {
        let progress = volume.engine().allocate(Place::Device, size_of::<abi::SegmentProgress>())?;
        Ok(Self { buffer: volume.allocate_data(bytes)?, progress })
    }

    pub(super) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Adds the addresses to a description.
    pub(super) fn describe(&self, job: abi::SegmentJob) -> abi::SegmentJob {
        abi::SegmentJob { staging: self.buffer.address(), progress: self.progress.address(), ..job }
    }

    /// Keeps the memory until a kernel has ended.
    pub(super) fn keep(&self, args: &mut Args) {
        self.buffer.keep(args);
        args.keep(self.progress.owner());
    }
}

/// Counters of the transfers of a queue, of which one runs at a time. All but the flags are 0 between two transfers.
#[derive(Clone)]
pub(super) struct Counters {
    region: Region,
    objects: usize,
    groups: usize,
}

impl Counters {
    pub(super) fn new(engine: &Engine, objects: usize, groups: usize) -> Result<Self, MemoryError> {
        let bytes = 2 * groups * WORD + objects * size_of::<abi::SegmentObject>();
        Ok(Self { region: engine.allocate(Place::Device, bytes)?, objects, groups })
    }

    /// Makes room for so many objects and groups. A transfer that is under way keeps what it has.
    pub(super) fn reserve(&mut self, engine: &Engine, objects: usize, groups: usize) -> Result<(), MemoryError> {
        if objects > self.objects || groups > self.groups {
            let larger = |wanted: usize, has: usize| if wanted > has { wanted.next_power_of_two() } else { has };
            *self = Self::new(engine, larger(objects, self.objects), larger(groups, self.groups))?;
        }
        Ok(())
    }

    /// Allocates others of the same size.
    pub(super) fn another(&self, engine: &Engine) -> Result<Self, MemoryError> {
        Self::new(engine, self.objects, self.groups)
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the offset of a group's flag.
    pub(super) fn flag(&self, group: usize) -> usize {
        (self.groups + group) * WORD
    }

    /// Adds the addresses of the counters to a description.
    pub(super) fn describe(&self, job: abi::SegmentJob) -> abi::SegmentJob {
        let base = self.region.address();
        abi::SegmentJob {
            group_done: base,
            group_flag: base + self.flag(0) as u64,
            object: base + self.flag(self.groups) as u64,
            ..job
        }
    }
}

/// Lists of a transfer, and its outcomes. Offsets are multiples of 8.
#[derive(Clone)]
pub(super) struct Lists {
    region: Region,
    host: NonNull<u8>,
    commands: usize,
    segments: usize,
    groups: usize,
}

// SAFETY: `host` is the address of `region`'s memory, which a transfer's owner alone writes, and reads once the kernel has ended.
unsafe impl Send for Lists {}
// SAFETY: shared access is to an atomic word, or by the region's methods.
unsafe impl Sync for Lists {}

impl Lists {
    /// Writes the lists of a transfer to memory of an earlier one, or to new memory. `reuse` returns unused memory of at least so many
    /// bytes, if there is any.
    pub(super) fn fill(
        engine: &Engine,
        reuse: impl FnOnce(usize) -> Option<Region>,
        commands: &[abi::SegmentCommand],
        list: &SegmentList,
    ) -> Result<Self, StorageError> {
        let bytes = HEAD
            + list.objects.len() * size_of::<abi::SegmentObject>()
            + size_of_val(commands)
            + size_of_val(&list.segments[..])
            + list.groups.len() * WORD;
        let region = match reuse(bytes) {
            Some(region) => region,
            None => engine.allocate(Place::Host, bytes.next_power_of_two())?,
        };
        let host = region.host().ok_or_else(|| StorageError::Option("host memory without an address".to_owned()))?;
        let lists =
            Self { region, host, commands: commands.len(), segments: list.segments.len(), groups: list.groups.len() };
        let [command, segment, group, outcome] = lists.offsets();
        lists.region.set(0, [0u64; HEAD / WORD])?;
        lists.region.set_slice(command, commands)?;
        lists.region.set_slice(segment, &list.segments)?;
        lists.region.set_slice(group, &list.groups)?;
        lists.region.fill(outcome, list.objects.len() * size_of::<abi::SegmentObject>(), 0)?;
        Ok(lists)
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the offsets of commands, segments, groups and outcomes.
    fn offsets(&self) -> [usize; 4] {
        let segment = HEAD + self.commands * size_of::<abi::SegmentCommand>();
        let group = segment + self.segments * size_of::<abi::Segment>();
        [HEAD, segment, group, group + self.groups * WORD]
    }

    /// Returns a description with the addresses of the lists.
    pub(super) fn describe(&self) -> abi::SegmentJob {
        let base = self.region.address();
        let [command, segment, group, outcome] = self.offsets().map(|offset| base + offset as u64);
        abi::SegmentJob { ended: base, command, segment, group_bytes: group, outcome, ..bytemuck::Zeroable::zeroed() }
    }

    /// Returns the number of the transfer if it has ended, or 0.
    pub(super) fn ended(&self) -> u64 {
        // SAFETY: the first word of the region, which the kernel stores to as a whole.
        unsafe { AtomicU64::from_ptr(self.host.as_ptr().cast()) }.load(Ordering::Acquire)
    }

    /// Returns true if a device may still access the staging memory of a transfer that has ended.
    pub(super) fn is_spoiled(&self) -> Result<bool, MemoryError> {
        Ok(self.region.get::<u64>(WORD)? != 0)
    }

    /// Returns the outcomes of a transfer that has ended.
    pub(super) fn outcomes(&self, objects: usize) -> Result<Vec<abi::SegmentObject>, MemoryError> {
        self.region.get_slice(self.offsets()[3], objects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;
    use crate::storage::volume::extent::Extent;

    #[test]
    fn the_end_of_a_transfer_is_seen_on_another_thread_and_its_memory_is_used_again() {
        const NUMBER: u64 = 7;
        let engine = testing::cpu();
        let mut list = SegmentList::new();
        list.object(&[Extent::new(0, 1)], 48).unwrap();
        for bytes in [16, 32] {
            // SAFETY: no kernel gets the list.
            unsafe { list.segment_at(16, bytes, 0) }.unwrap();
        }
        let commands = [bytemuck::Zeroable::zeroed()];
        let lists = Lists::fill(&engine, |_| None, &commands, &list).unwrap();
        assert_eq!(lists.ended(), 0);
        let (kernel, outcome) = (lists.region.clone(), lists.offsets()[3]);
        let ends = std::thread::spawn(move || {
            kernel.set(outcome, [u64::MAX; size_of::<abi::SegmentObject>() / WORD]).unwrap();
            kernel.set(0, NUMBER).unwrap();
        });
        while lists.ended() != NUMBER && !ends.is_finished() {
            std::thread::yield_now();
        }
        ends.join().unwrap();
        assert_eq!(lists.ended(), NUMBER);
        let was = lists.outcomes(1).unwrap();
        assert!(bytemuck::bytes_of(&was[0]).iter().all(|byte| *byte == 0xff));
        // Neither the end nor an outcome of the earlier transfer is seen.
        let again =
            Lists::fill(&engine, |bytes| Some(lists.region).filter(|region| region.len() >= bytes), &commands, &list);
        let again = again.unwrap();
        assert_eq!((again.ended(), again.is_spoiled().unwrap()), (0, false));
        let outcomes = again.outcomes(1).unwrap();
        assert!(bytemuck::bytes_of(&outcomes[0]).iter().all(|byte| *byte == 0));
    }
}
