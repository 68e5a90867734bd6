//! Objects of a volume and the segments of memory that their bytes come from or go to.

use super::super::extent::Extent;
use crate::engine::abi;
use crate::memory::{Region, Space};
use crate::storage::error::StorageError;
use bytemuck::Zeroable;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of which segments are multiples.
const UNIT: u64 = abi::SEGMENT_UNIT as u64;
/// Most segments, commands or objects of a transfer, and the bytes of a segment.
const MOST: usize = 1 << 28;
/// Most groups of a transfer.
const MOST_GROUPS: usize = 1 << 16;

/// Objects of a volume with the segments of memory that have their bytes: what [`SegmentQueue`](super::SegmentQueue) transfers at once.
///
/// An object is consecutive bytes of a volume in one or more ranges of blocks. Its segments follow each other in the object, and may be
/// anywhere in the memory of the engine: pages of a KV cache, for example. Each belongs to a group, such as a layer of a model. Groups
/// are numbered from 0 on, and those with small numbers are transferred first.
pub struct SegmentList {
    /// Another number for each list of the process.
    number: u64,
    pub(super) objects: Vec<Object>,
    pub(super) segments: Vec<abi::Segment>,
    /// Bytes of each group.
    pub(super) groups: Vec<u64>,
    /// Owners of the memory.
    pub(super) kept: Vec<Arc<dyn Any + Send + Sync>>,
    /// Address spaces of the regions, each once.
    pub(super) spaces: Vec<Space>,
}

/// Tensors of pages, one behind the other in each object: what [`SegmentList::tensors`] returns.
#[derive(Clone, Copy, Debug)]
pub struct PagedTensors {
    /// Number of the list.
    list: u64,
    /// Segments of page 0 of all tensors.
    first_segment: usize,
    count: usize,
    page_bytes: u64,
    /// Pages of each tensor.
    pages: u64,
}

/// An object of a list.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) extents: Vec<Extent>,
    pub(super) bytes: u64,
    /// Bytes of its segments so far.
    pub(super) listed: u64,
    pub(super) first_segment: usize,
    /// Bytes that are added to the addresses of its segments.
    pub(super) shift: u64,
}

impl SegmentList {
    /// Makes an empty list.
    pub fn new() -> Self {
        static LISTS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: LISTS.fetch_add(1, Ordering::Relaxed),
            objects: Vec::new(),
            segments: Vec::new(),
            groups: Vec::new(),
            kept: Vec::new(),
            spaces: Vec::new(),
        }
    }

    /// Begins an object of `bytes` bytes, a multiple of 16, in these ranges of blocks. The
    /// segments that are added next are its own.
    ///
    /// # Errors
    /// [`StorageError::Option`] if `bytes` is 0 or no multiple of 16, or the object before has not all its segments yet.
    pub fn object(&mut self, extents: &[Extent], bytes: u64) -> Result<(), StorageError> {
        self.complete()?;
        if bytes == 0 || !bytes.is_multiple_of(UNIT) {
            return refuse(format!(
                "object {} of a transfer has {bytes} bytes; give a multiple of {UNIT} above 0",
                self.objects.len()
            ));
        }
        if self.objects.len() == MOST {
            return refuse(format!("a transfer of more than {MOST} objects; transfer them in several"));
        }
        let first_segment = self.segments.len();
        self.objects.push(Object { extents: extents.to_vec(), bytes, listed: 0, first_segment, shift: 0 });
        Ok(())
    }

    /// Adds the next segment of the object: `bytes` bytes of `region` from `offset` on, both multiples of 16. The list keeps the region.
    ///
    /// # Errors
    /// [`StorageError::Option`] if the range is not within the region, or as for [`Self::segment_at`].
    pub fn segment(&mut self, region: &Region, offset: usize, bytes: usize, group: u32) -> Result<(), StorageError> {
        if offset.checked_add(bytes).is_none_or(|end| end > region.len()) {
            return refuse(format!(
                "a segment of {bytes} bytes from byte {offset} on exceeds its memory of {} bytes; give less",
                region.len()
            ));
        }
        // SAFETY: the range is within the region, whose owner the list keeps.
        unsafe { self.segment_at(region.address() + offset as u64, bytes, group) }?;
        self.keep(region);
        Ok(())
    }

    /// Adds the next segment of the object: `bytes` bytes of the program's memory at `address`, both multiples of 16.
    ///
    /// # Errors
    /// [`StorageError::Option`] if no object was begun, the segment exceeds it, address or bytes are no multiples of 16, or the group
    /// is 2^16 or above.
    ///
    /// # Safety
    /// The kernels of the engine that transfers the list can read and write the range, which stays valid until the transfer has ended.
    pub unsafe fn segment_at(&mut self, address: u64, bytes: usize, group: u32) -> Result<(), StorageError> {
        let (number, segments) = (self.objects.len().wrapping_sub(1), self.segments.len());
        let Some(object) = self.objects.last_mut() else {
            return refuse("a segment belongs to an object; begin one before".to_owned());
        };
        if bytes == 0 || !(address | bytes as u64).is_multiple_of(UNIT) || bytes > MOST {
            return refuse(format!(
                "a segment of {bytes} bytes at {address:#x}: give address and bytes as multiples of {UNIT}, and at most {MOST} bytes"
            ));
        }
        let listed = object.listed + bytes as u64;
        if listed > object.bytes {
            return refuse(format!(
                "the segments of object {number} have {listed} bytes, and it has {}; begin another object",
                object.bytes
            ));
        }
        if segments == MOST || group as usize >= MOST_GROUPS {
            return refuse(format!(
                "a transfer has at most {MOST} segments in {MOST_GROUPS} groups; transfer them in several"
            ));
        }
        object.listed = listed;
        self.segments.push(abi::Segment { address, bytes: bytes as u32, group });
        if self.groups.len() <= group as usize {
            self.groups.resize(group as usize + 1, 0);
        }
        self.groups[group as usize] += bytes as u64;
        Ok(())
    }

    /// Describes tensors of which objects have a page each: regions of pages of `page_bytes` bytes, a multiple of 16, with the group of
    /// each. Such objects take little memory and time to list, however many tensors there are. The list keeps the regions.
    ///
    /// # Errors
    /// [`StorageError::Option`] if there is no tensor, one has no page, `page_bytes` is 0 or no multiple of 16, or a group is 2^16 or above.
    pub fn tensors(&mut self, tensors: &[(&Region, u32)], page_bytes: usize) -> Result<PagedTensors, StorageError> {
        self.complete()?;
        let bytes = page_bytes as u64;
        if bytes == 0 || !bytes.is_multiple_of(UNIT) || page_bytes > MOST {
            return refuse(format!("pages of {page_bytes} bytes; give a multiple of {UNIT} up to {MOST}"));
        }
        let pages = tensors.iter().map(|(region, _)| region.len() as u64 / bytes).min().unwrap_or(0);
        if pages == 0 {
            return refuse(format!(
                "{} tensors, of which one has no page of {page_bytes} bytes; give larger ones",
                tensors.len()
            ));
        }
        let first_segment = self.segments.len();
        for (region, group) in tensors {
            if self.segments.len() == MOST || *group as usize >= MOST_GROUPS {
                return refuse(format!(
                    "a transfer has at most {MOST} segments in {MOST_GROUPS} groups; transfer them in several"
                ));
            }
            let address = region.address();
            if !address.is_multiple_of(UNIT) {
                return refuse(format!("a tensor at {address:#x}; give memory at a multiple of {UNIT}"));
            }
            self.segments.push(abi::Segment { address, bytes: page_bytes as u32, group: *group });
            self.groups.resize(self.groups.len().max(*group as usize + 1), 0);
            self.keep(region);
        }
        Ok(PagedTensors { list: self.number, first_segment, count: tensors.len(), page_bytes: bytes, pages })
    }

    /// Adds an object that has page `page` of each tensor, in their order: its blocks as for [`Self::object`].
    ///
    /// # Errors
    /// [`StorageError::Option`] if the tensors are of another list, or have no such page.
    pub fn page(&mut self, extents: &[Extent], tensors: PagedTensors, page: u64) -> Result<(), StorageError> {
        if tensors.list != self.number {
            return refuse("the tensors are of another list; describe them to this one".to_owned());
        }
        if page >= tensors.pages {
            return refuse(format!("page {page} of tensors that have {}; give less", tensors.pages));
        }
        let bytes = tensors.page_bytes * tensors.count as u64;
        self.object(extents, bytes)?;
        for segment in &self.segments[tensors.first_segment..tensors.first_segment + tensors.count] {
            self.groups[segment.group as usize] += tensors.page_bytes;
        }
        if let Some(object) = self.objects.last_mut() {
            (object.listed, object.first_segment) = (bytes, tensors.first_segment);
            object.shift = page * tensors.page_bytes;
        }
        Ok(())
    }

    /// Keeps a region that has segments.
    fn keep(&mut self, region: &Region) {
        if !self.spaces.iter().any(|space| space.same(region.space())) {
            self.spaces.push(region.space().clone());
        }
        // Segments of one region follow each other by the thousand.
        let owner = region.owner();
        if self.kept.last().is_none_or(|last| !Arc::ptr_eq(last, &owner)) {
            self.kept.push(owner);
        }
    }

    /// Returns the bytes of the last object.
    pub(in crate::storage) fn last_bytes(&self) -> Option<u64> {
        self.objects.last().map(|object| object.bytes)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns true if there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Checks that the last object has all its segments.
    pub(super) fn complete(&self) -> Result<(), StorageError> {
        match self.objects.last() {
            Some(object) if object.listed < object.bytes => refuse(format!(
                "the segments of object {} have {} bytes, and it has {}; add the others",
                self.objects.len() - 1,
                object.listed,
                object.bytes
            )),
            _ => Ok(()),
        }
    }
}

pub(super) fn refuse<T>(reason: String) -> Result<T, StorageError> {
    Err(StorageError::Option(reason))
}

impl Default for SegmentList {
    fn default() -> Self {
        Self::new()
    }
}

/// Limits of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) block_shift: u32,
    /// Most bytes of a command: whole blocks.
    pub(super) bytes: u64,
    /// Blocks of a stripe's unit, which no command crosses.
    pub(super) chunk_blocks: u64,
}

/// Divides the objects of a list into commands as large as the limits allow, in the order of the groups.
pub(super) fn commands(list: &SegmentList, limits: Limits) -> Result<Vec<abi::SegmentCommand>, StorageError> {
    let least: u64 = list.objects.iter().map(|object| object.bytes / limits.bytes.max(1) + 2).sum();
    let mut all: Vec<abi::SegmentCommand> = Vec::with_capacity(least.min(MOST as u64) as usize);
    // The last object that was divided, and its commands: pages of the same tensors are alike.
    let mut last: Option<(&Object, Range<usize>)> = None;
    for (number, object) in list.objects.iter().enumerate() {
        let first = all.len();
        match &last {
            Some((alike, commands)) if object.is_divided_as(alike, limits) => {
                let (from, to) = (alike.extents[0].block, object.extents[0].block);
                all.extend_from_within(commands.clone());
                for command in &mut all[first..] {
                    command.block = command.block - from + to;
                    (command.shift, command.object) = (object.shift, number as u32);
                }
            }
            _ => divide(list, limits, number, &mut all)?,
        }
        last = Some((object, first..all.len()));
    }
    if all.len() > MOST {
        return refuse(format!("a transfer of {} commands, of at most {MOST}; transfer it in several", all.len()));
    }
    Ok(by_group(list, &all))
}

impl Object {
    /// Returns true if the commands of another object are those of this one, but for its place on the volume and in memory.
    fn is_divided_as(&self, other: &Self, limits: Limits) -> bool {
        let is_same = self.first_segment == other.first_segment && self.bytes == other.bytes;
        match (&self.extents[..], &other.extents[..]) {
            ([own], [its]) => {
                is_same
                    && own.blocks == its.blocks
                    && own.block % limits.chunk_blocks == its.block % limits.chunk_blocks
            }
            _ => false,
        }
    }
}

/// Adds the commands of an object.
fn divide(
    list: &SegmentList,
    limits: Limits,
    number: usize,
    all: &mut Vec<abi::SegmentCommand>,
) -> Result<(), StorageError> {
    let object = &list.objects[number];
    let room: u64 = object.extents.iter().map(|e| e.blocks << limits.block_shift).sum();
    if room < object.bytes {
        return refuse(format!(
            "object {number} has {} bytes, and its blocks have {room}; give more blocks",
            object.bytes
        ));
    }
    let (mut place, mut offset) = ((object.first_segment, 0), 0);
    for extent in &object.extents {
        let (mut block, end) = (extent.block, extent.block + extent.blocks);
        while block < end && offset < object.bytes {
            let unit_end = (block / limits.chunk_blocks + 1).saturating_mul(limits.chunk_blocks);
            let most = ((end.min(unit_end) - block) << limits.block_shift).min(limits.bytes).min(object.bytes - offset);
            let bytes = first_group(list, place, limits).filter(|bytes| *bytes < most).unwrap_or(most);
            all.push(abi::SegmentCommand {
                block,
                offset,
                shift: object.shift,
                bytes: bytes as u32,
                segment: place.0 as u32,
                skip: place.1 as u32,
                object: number as u32,
            });
            offset += bytes;
            block += bytes.div_ceil(1 << limits.block_shift);
            place = advanced(&list.segments, place, bytes);
        }
    }
    Ok(())
}

/// Returns the bytes from a place on that belong to group 0, if a command is to end with them: a model begins with this group, and does
/// not wait for more. `None` for small ones, whose command would cost more than it saves.
fn first_group(list: &SegmentList, place: (usize, u64), limits: Limits) -> Option<u64> {
    let segments = list.segments[place.0..].iter().take_while(|segment| segment.group == 0);
    let mut bytes = 0;
    for segment in segments {
        bytes += u64::from(segment.bytes);
        if bytes - place.1 >= limits.bytes {
            return None;
        }
    }
    let bytes = bytes.checked_sub(place.1)?;
    (bytes >= limits.bytes / 4 && bytes.is_multiple_of(1 << limits.block_shift)).then_some(bytes)
}

/// Returns the commands in the order of the groups of their first bytes. Those of a group stay in their order.
fn by_group(list: &SegmentList, commands: &[abi::SegmentCommand]) -> Vec<abi::SegmentCommand> {
    let group = |command: &abi::SegmentCommand| list.segments[command.segment as usize].group as usize;
    // First place of each group.
    let mut places = vec![0; list.groups.len() + 1];
    for command in commands {
        places[group(command) + 1] += 1;
    }
    for i in 1..places.len() {
        places[i] += places[i - 1];
    }
    let mut ordered = vec![abi::SegmentCommand::zeroed(); commands.len()];
    for command in commands {
        let place = &mut places[group(command)];
        ordered[*place] = *command;
        *place += 1;
    }
    ordered
}

/// Returns the segment and the byte in it that are `bytes` bytes behind a place.
fn advanced(segments: &[abi::Segment], (mut segment, mut skip): (usize, u64), mut bytes: u64) -> (usize, u64) {
    while let Some(s) = segments.get(segment) {
        let left = u64::from(s.bytes) - skip;
        if bytes < left {
            return (segment, skip + bytes);
        }
        bytes -= left;
        (segment, skip) = (segment + 1, 0);
    }
    (segment, skip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents(all: &[(u64, u64)]) -> Vec<Extent> {
        all.iter().map(|(block, blocks)| Extent::new(*block, *blocks)).collect()
    }

    /// First block and number of blocks of each extent, and bytes and group of each segment.
    type Listed<'p> = (&'p [(u64, u64)], &'p [(u64, u32)]);

    fn list(objects: &[Listed<'_>]) -> SegmentList {
        let mut list = SegmentList::new();
        for (ranges, segments) in objects {
            list.object(&extents(ranges), segments.iter().map(|(bytes, _)| bytes).sum()).unwrap();
            for (bytes, group) in *segments {
                // SAFETY: no kernel gets the list.
                unsafe { list.segment_at(16, *bytes as usize, *group) }.unwrap();
            }
        }
        list
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let mut l = SegmentList::new();
        // SAFETY: no kernel gets the list.
        let add = |l: &mut SegmentList, address, bytes| unsafe { l.segment_at(address, bytes, 0) };
        assert!(add(&mut l, 16, 16).unwrap_err().to_string().contains("begin one before"));
        assert!(l.object(&[Extent::new(0, 1)], 24).unwrap_err().to_string().contains("has 24 bytes"));
        assert!(l.object(&[Extent::new(0, 1)], 0).is_err());
        l.object(&[Extent::new(0, 1)], 48).unwrap();
        assert!(add(&mut l, 8, 16).unwrap_err().to_string().contains("at 0x8"));
        add(&mut l, 16, 32).unwrap();
        assert!(l.object(&[Extent::new(1, 1)], 16).unwrap_err().to_string().contains("have 32 bytes, and it has 48"));
        assert!(add(&mut l, 16, 32).unwrap_err().to_string().contains("have 64 bytes, and it has 48"));
        add(&mut l, 16, 16).unwrap();
        l.complete().unwrap();
        let small = Limits { block_shift: 5, bytes: 32, chunk_blocks: 100 };
        assert!(commands(&l, small).unwrap_err().to_string().contains("has 48 bytes, and its blocks have 32"));
    }

    #[test]
    fn commands_are_as_large_as_the_limits_and_small_groups_come_first() {
        let l = list(&[(&[(8, 4), (100, 4)], &[(1024, 0), (2048, 1)]), (&[(20, 2)], &[(1024, 0)])]);
        let limits = Limits { block_shift: 9, bytes: 1024, chunk_blocks: 10 };
        let found: Vec<_> = commands(&l, limits)
            .unwrap()
            .iter()
            .map(|c| (c.block, c.offset, c.bytes, c.segment, c.skip, c.object))
            .collect();
        assert_eq!(
            found,
            [(8, 0, 1024, 0, 0, 0), (20, 0, 1024, 2, 0, 1), (10, 1024, 1024, 1, 0, 0), (100, 2048, 1024, 1, 1024, 0),]
        );
    }

    #[test]
    fn a_command_ends_with_the_first_group_if_that_has_a_quarter_of_it() {
        let limits = Limits { block_shift: 9, bytes: 4096, chunk_blocks: 1 << 20 };
        let sizes = |segments: &[(u64, u32)]| {
            let mut found = commands(&list(&[(&[(8, 40)], segments)]), limits).unwrap();
            found.sort_by_key(|command| command.offset);
            found.iter().map(|command| (command.offset, command.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[(1024, 0), (512, 0), (8192, 1)]), [(0, 1536), (1536, 4096), (5632, 4096)]);
        assert_eq!(sizes(&[(512, 0), (8192, 1)]), [(0, 4096), (4096, 4096), (8192, 512)]);
        assert_eq!(sizes(&[(1040, 0), (8176, 1)]), [(0, 4096), (4096, 4096), (8192, 1024)]);
        assert_eq!(
            sizes(&[(4096, 0), (4096, 0), (2048, 0), (2048, 1)]),
            [(0, 4096), (4096, 4096), (8192, 2048), (10240, 2048)]
        );
        assert_eq!(sizes(&[(4096, 1), (2048, 0), (2048, 2)]), [(0, 4096), (4096, 2048), (6144, 2048)]);
    }

    #[test]
    fn pages_of_the_same_tensors_have_commands_of_their_own_blocks() {
        let engine = crate::engine::Engine::cpu().unwrap();
        let tensor = engine.allocate(crate::memory::Place::Device, 64 << 10).unwrap();
        let limits = Limits { block_shift: 9, bytes: 1024, chunk_blocks: 8 };
        // Of the second and the fourth page the blocks are elsewhere in their stripe unit, or not consecutive.
        let places: [&[(u64, u64)]; 5] = [&[(8, 8)], &[(20, 8)], &[(32, 8)], &[(64, 4), (80, 4)], &[(0, 8)]];
        let mut l = SegmentList::new();
        let tensors = l.tensors(&[(&tensor, 0), (&tensor, 1)], 2048).unwrap();
        for (page, ranges) in places.iter().enumerate() {
            l.page(&extents(ranges), tensors, page as u64).unwrap();
        }
        let all = commands(&l, limits).unwrap();
        for (number, ranges) in places.iter().enumerate() {
            let mut own: Vec<_> = all.iter().filter(|command| command.object == number as u32).collect();
            own.sort_by_key(|command| command.offset);
            let blocks = own.iter().flat_map(|c| c.block..c.block + u64::from(c.bytes).div_ceil(512));
            assert!(blocks.eq(ranges.iter().flat_map(|(first, n)| *first..first + n)), "object {number}");
            assert!(own.iter().all(|c| c.shift == number as u64 * 2048 && c.block / 8 == (c.block + 1) / 8));
            assert_eq!(own.iter().map(|c| c.bytes).sum::<u32>(), 4096);
        }
    }

    proptest! {
        /// Commands cover each object once, and cross neither extents nor units of a stripe.
        #[test]
        fn commands_cover_the_objects(
            ranges in prop::collection::vec((0u64..1000, 1u64..20), 1..6),
            cut in 0u64..31,
            most in 1u64..9,
            chunk in 1u64..40,
            parts in prop::collection::vec(1u64..40, 1..20),
        ) {
            let limits = Limits { block_shift: 9, bytes: most << 9, chunk_blocks: chunk };
            let room: u64 = ranges.iter().map(|(_, n)| n << 9).sum();
            let bytes = room - cut * 16;
            let mut l = SegmentList::new();
            l.object(&extents(&ranges), bytes).unwrap();
            let mut left = bytes;
            for (i, part) in parts.iter().cycle().enumerate() {
                let n = left.min(part * 16);
                // SAFETY: no kernel gets the list.
                unsafe { l.segment_at(16, n as usize, (i as u32 % 7) / 3) }.unwrap();
                left -= n;
                if left == 0 {
                    break;
                }
            }
            let mut all = commands(&l, limits).unwrap();
            all.sort_by_key(|command| command.offset);
            let mut offset = 0;
            let mut blocks = ranges.iter().flat_map(|(first, n)| *first..first + n);
            for c in &all {
                prop_assert_eq!(c.offset, offset);
                let n = u64::from(c.bytes).div_ceil(512);
                prop_assert!(n <= most && c.block / chunk == (c.block + n - 1) / chunk);
                prop_assert!((c.block..c.block + n).all(|b| blocks.next() == Some(b)));
                let before: u64 = l.segments[..c.segment as usize].iter().map(|s| u64::from(s.bytes)).sum();
                prop_assert_eq!(before + u64::from(c.skip), offset);
                prop_assert!(c.skip < l.segments[c.segment as usize].bytes);
                offset += u64::from(c.bytes);
            }
            prop_assert_eq!(offset, bytes);
        }
    }
}
