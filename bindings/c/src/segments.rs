//! Segment queues: objects of a volume that kernels load into segments of memory, and store from them.

use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::options::Options;
use crate::pointer::{In, Out, Owned};
use crate::region::wb_region_t;
use crate::segment_transfer::{Flight, Transfer, wb_segment_transfer_t};
use crate::stream::wb_stream_t;
use crate::volume::wb_volume_t;
use std::ffi::c_void;
use warpbell::engine::Engine;
use warpbell::memory::Region;
use warpbell::storage::{Extent, SegmentList, SegmentQueue, SegmentTransfer, StorageError};

/// Transfers between objects of a volume and segments of memory, one after the other on a stream. `wb_segment_queue_create` makes
/// it.
pub struct wb_segment_queue_t {
    _private: (),
}

object!(wb_segment_queue_t: SegmentQueue, "segment queue");

/// Options of `wb_segment_queue_create`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_segment_queue_options {
    /// `sizeof(wb_segment_queue_options)`.
    pub size: usize,
    /// Multiprocessors of a GPU that the kernels occupy, 8 warps on each: 1 to those of the GPU; 0 for 16.
    pub multiprocessors: u32,
    /// Commands that each warp has in flight: 1 to the lanes of a warp; 0 for 1.
    pub in_flight: u32,
    /// Bytes of the largest command, rounded down to whole blocks, and at most what the devices take; 0 for 128 KiB, or less if the
    /// devices take less.
    pub command_bytes: usize,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_segment_queue_options {
    const NAME: &str = "wb_segment_queue_options";
}

/// Memory that kernels access: a segment of an object, or a tensor of pages. One of `address` and `region` is set.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_segment_memory {
    /// First byte of memory of the program, as kernels see it, such as of `cudaMalloc`; or null.
    pub address: *mut c_void,
    /// Region, which a transfer keeps until its end; or null.
    pub region: In<wb_region_t>,
    /// Bytes of `address` or `region` before the memory. The memory begins at a multiple of 16.
    pub offset: usize,
    /// Bytes of the memory. Those of a segment are a multiple of 16, at most 2^28. 0 for all bytes of `region` from `offset` on.
    pub bytes: usize,
    /// Group of the bytes, such as the layer of a model: below 2^16. Bytes of small groups are transferred first.
    pub group: u32,
    /// Zero.
    pub reserved: u32,
}

/// An object of a transfer: consecutive blocks of a volume, and the segments of memory that have its bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_segment_blocks {
    /// First block of the volume.
    pub block: u64,
    /// Number of blocks, whose bytes are at least those of the object.
    pub blocks: u64,
    /// Bytes of the object, a multiple of 16 above 0: those of its segments. A store fills the rest of the last block with zeros.
    pub bytes: u64,
    /// Number of its segments.
    pub segments: usize,
}

/// Memory of a segment or a tensor, whose range was compared with that of its region.
pub(crate) struct Memory<'a> {
    region: Option<&'a Region>,
    offset: usize,
    /// Address of the first byte.
    address: u64,
    pub(crate) bytes: usize,
    group: u32,
    /// True once the list has the region.
    is_kept: bool,
}

impl<'a> Memory<'a> {
    /// Reads the memory that a structure names, for kernels of `engine`. `name` names the structure in messages.
    pub(crate) fn new(given: &'a wb_segment_memory, engine: &Engine, name: &str) -> Result<Self, Error> {
        let &wb_segment_memory { address, offset, bytes, group, .. } = given;
        let region = given.region.optional().map_err(|e| e.within(name))?;
        if address.is_null() == region.is_none() {
            let kinds = if address.is_null() { "no memory" } else { "two kinds of memory" };
            return Err(Error::argument(format!("{name} names {kinds}; set one of `address` and `region`")));
        }
        if region.is_some_and(|region| !region.space().same(engine.space())) {
            return Err(Error::argument(format!("{name} is memory of another engine; use the engine of the volume")));
        }
        let (start, length) = match region {
            Some(region) => (region.address(), Some(region.len())),
            None => (address as u64, None),
        };
        let bytes = match (bytes, length) {
            (0, Some(length)) => length.saturating_sub(offset),
            (bytes, _) => bytes,
        };
        let end = offset.checked_add(bytes);
        if let (Some(length), true) = (length, end.is_none_or(|end| Some(end) > length)) {
            return Err(Error::argument(format!(
                "{name} has {bytes} bytes from byte {offset} on, and its region has {length}; give less"
            )));
        }
        if bytes == 0 || end.and_then(|end| start.checked_add(end as u64)).is_none() {
            return Err(Error::argument(format!(
                "{name} has {bytes} bytes from byte {offset} of {start:#x} on; give a range of memory with at least 1 byte"
            )));
        }
        Ok(Self { region, offset, address: start + offset as u64, bytes, group, is_kept: false })
    }

    /// Fails if the memory has no segments of `bytes` bytes: for address, bytes or group.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), StorageError> {
        let mut unused = SegmentList::new();
        // Larger than any segment.
        unused.object(&[], 1 << 40)?;
        // SAFETY: no kernel gets the list.
        unsafe { unused.segment_at(self.address, bytes, self.group) }
    }

    /// Adds the next segment of an object to a list: `bytes` bytes of this memory from byte `from` on. All calls are for one list.
    ///
    /// # Safety
    ///
    /// The range is within this memory. Without a region, kernels can read and write it until the transfer of the list has ended.
    pub(crate) unsafe fn add(&mut self, list: &mut SegmentList, from: usize, bytes: usize) -> Result<(), StorageError> {
        if let (Some(region), false) = (self.region, self.is_kept) {
            list.segment(region, self.offset + from, bytes, self.group)?;
            self.is_kept = true;
            return Ok(());
        }
        // SAFETY: the caller's promise; a region is kept by the list since its first segment.
        unsafe { list.segment_at(self.address + from as u64, bytes, self.group) }
    }
}

/// Creates a queue on a volume and a stream, and allocates staging memory for the commands in flight.
///
/// @param stream A stream of the engine of the volume: transfers follow the work that is on it, and later work finds their data. Null
///   for another stream.
/// @param options Options, or null for the defaults.
/// @param queue Receives the queue, with one reference. It keeps volume and stream.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the stream belongs to another engine, or an option is out of its range, with the bounds;
///   `WB_ERR_MEMORY` without memory; `WB_ERR_UNSUPPORTED` if a device does not reach the memory, or the engine has no kernels of the
///   library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_queue_create(
    volume: In<wb_volume_t>,
    stream: In<wb_stream_t>,
    options: In<wb_segment_queue_options>,
    queue: Out<*mut wb_segment_queue_t>,
) -> wb_code {
    guard(|| {
        queue.check("queue")?;
        let (volume, stream) = (volume.get()?, stream.optional()?);
        let options = options.read()?;
        let own;
        let stream = match stream {
            Some(stream) => stream,
            None => {
                own = volume.engine().stream()?;
                &own
            }
        };
        let mut builder = SegmentQueue::on(stream, volume);
        if options.multiprocessors != 0 {
            builder = builder.multiprocessors(options.multiprocessors);
        }
        if options.in_flight != 0 {
            builder = builder.in_flight(options.in_flight);
        }
        if options.command_bytes != 0 {
            builder = builder.command_bytes(options.command_bytes);
        }
        queue.give(builder.build()?)
    })
}

/// Adds a reference to a segment queue.
///
/// @return The queue; null with an error if it is no segment queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_queue_retain(queue: Owned<wb_segment_queue_t>) -> *mut wb_segment_queue_t {
    queue.retain()
}

/// Gives a reference to a segment queue back. Transfers keep the queue.
///
/// @param queue The queue; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_queue_release(queue: Owned<wb_segment_queue_t>) {
    queue.release()
}

/// Objects and segments of a call.
type Listed = (In<wb_segment_blocks>, usize, In<wb_segment_memory>, usize);

/// Adds a transfer of objects to the stream of a queue.
///
/// # Safety
///
/// Kernels can read and write the memory of the program until the transfer has ended.
unsafe fn transfer(
    queue: In<wb_segment_queue_t>,
    (objects, count, segments, segment_count): Listed,
    made: Out<*mut wb_segment_transfer_t>,
    launch: impl FnOnce(&SegmentQueue, SegmentList) -> Result<SegmentTransfer, StorageError>,
) -> Result<(), Error> {
    made.check("transfer")?;
    let queue = queue.get()?;
    let engine = queue.volume().engine();
    let (objects, segments) = (objects.list(count, "objects")?, segments.list(segment_count, "segments")?);
    let named = objects.iter().try_fold(0usize, |sum, object| sum.checked_add(object.segments));
    if named != Some(segments.len()) {
        let named = named.map_or("more than any memory holds".to_owned(), |n| n.to_string());
        return Err(Error::argument(format!(
            "{} segment(s), and the objects have {named}; give those of all objects, in their order",
            segments.len()
        )));
    }
    let (mut list, mut rest) = (SegmentList::new(), segments.iter().enumerate());
    for object in objects {
        list.object(&[Extent::new(object.block, object.blocks)], object.bytes)?;
        for (i, segment) in rest.by_ref().take(object.segments) {
            let mut memory = Memory::new(segment, engine, &format!("segment {i}"))?;
            let bytes = memory.bytes;
            // SAFETY: all bytes of the memory; the caller's promise.
            unsafe { memory.add(&mut list, 0, bytes) }?;
        }
    }
    let started = launch(queue, list).map_err(|e| Error::from(e).on_engine(engine))?;
    let sizes = objects.iter().map(|object| object.bytes).collect();
    made.give(Transfer::new(queue, Flight::Plain(started, sizes), count, 0))
}

/// Adds to the stream of a queue a kernel that reads objects from their blocks into segments of memory, and returns at once. Kernels
/// that are launched on the stream afterwards find the data.
///
/// @param objects Objects.
/// @param count Number of objects.
/// @param segments Segments of the first object in the order of its bytes, then those of the next one.
/// @param segment_count Number of segments: those of all objects.
/// @param transfer Receives the transfer. Finish it with `wb_segment_transfer_finish`.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if blocks are not within the volume, an object has other bytes than its segments or more than its
///   blocks, memory is no range of its region or belongs to another engine, or an address or a number of bytes is no multiple of 16;
///   `WB_ERR_MEMORY` without memory; `WB_ERR_STOPPED` on a cancelled engine; `WB_ERR_UNSUPPORTED` if the stream is being captured.
/// @note Memory at an `address` is the program's: kernels of the engine read and write it until `wb_segment_transfer_finish` has
///   returned, or the last `wb_segment_transfer_release`. The library can check neither address nor length.
/// @note Page checksums of the volume are not compared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_queue_load(
    queue: In<wb_segment_queue_t>,
    objects: In<wb_segment_blocks>,
    count: usize,
    segments: In<wb_segment_memory>,
    segment_count: usize,
    transfer: Out<*mut wb_segment_transfer_t>,
) -> wb_code {
    // SAFETY: the program promises it, as the note says.
    guard(|| unsafe { self::transfer(queue, (objects, count, segments, segment_count), transfer, SegmentQueue::load) })
}

/// Adds to the stream of a queue a kernel that writes objects to their blocks from segments of memory, and returns at once. The
/// segments are read when the stream comes to the kernel.
///
/// @param objects Objects. No block belongs to two of them.
/// @param count Number of objects.
/// @param segments Segments of the first object in the order of its bytes, then those of the next one.
/// @param segment_count Number of segments: those of all objects.
/// @param transfer Receives the transfer. Finish it with `wb_segment_transfer_finish`.
/// @return As `wb_segment_queue_load`.
/// @note The objects are durable after `wb_volume_flush`. Whatever the blocks had is lost, also stored arrays and objects of KV stores.
/// @note Memory at an `address` is the program's, as for `wb_segment_queue_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_queue_store(
    queue: In<wb_segment_queue_t>,
    objects: In<wb_segment_blocks>,
    count: usize,
    segments: In<wb_segment_memory>,
    segment_count: usize,
    transfer: Out<*mut wb_segment_transfer_t>,
) -> wb_code {
    // SAFETY: the program promises it, as the note says.
    guard(|| unsafe { self::transfer(queue, (objects, count, segments, segment_count), transfer, SegmentQueue::store) })
}
