//! Transfers of a stream: the host writes commands ahead, the stream rings the doorbell and waits for the completion. No kernel of
//! this crate and no host thread takes part in between (NVIDIA's GPUDirect Async).

use super::Volume;
use crate::cuda::{MemoryOperation, STREAMS_FLUSH};
use crate::engine::{Args, Awaited, Kept, OperationError, Outcome, Stream};
use crate::memory::{Place, Region};
use crate::nvme::{Data, Landing, Namespace, QueueOptions, StreamRing};
use crate::storage::disk::{DataBuffer, LandingPath, WritesOrder};
use crate::storage::error::StorageError;
use crate::wire::nvme::io;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Entries of the queue on each device, if its controller has as many and the program does not say otherwise.
const DEPTH: u32 = 64;
/// Most entries that a controller can have (NVMe Base 2.1, 3.1.4.1, CAP.MQES).
const MAX_DEPTH: u32 = 1 << 16;
/// Largest buffer of one command, where data does not land in the caller's memory.
const BOUNCE_BYTES: usize = 128 << 10;
/// Largest number of blocks of one command (NVM Command Set 1.1, 3.3.4, NLB).
const MAX_COMMAND_BLOCKS: usize = 1 << 16;

/// Reads and writes of a volume as steps of a stream.
///
/// [`prepare_read`](Self::prepare_read) and [`prepare_write`](Self::prepare_write) write commands into a queue pair of their own on each device.
/// [`trigger`](Self::trigger) adds the steps to the stream: store the doorbell, wait for the completions. Kernels that are launched on the
/// stream afterwards find the data; a write takes the data that earlier kernels of the stream have stored.
///
/// [`Stream::synchronize`] reports commands that failed, as it reports failed operations of kernels. A kernel behind a failed read runs
/// nevertheless, on data that is incomplete. A command without completion is given up after the engine's deadline while the host waits
/// for the stream. Its queue is then created again.
///
/// Reads are not compared with page checksums. Dropping the queue discards commands that were not triggered.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use warpbell::args;
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Drive, OverwritePolicy, StreamQueue, Volume};
///
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
/// let (stream, data) = (engine.stream()?, volume.allocate_data(4096)?);
/// let queue = StreamQueue::new(&stream, &volume)?;
///
/// // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
/// unsafe { stream.launch("wb_iota", engine.grid(32, 1), args!(&data, 512u64, 7u64, 1u64)) }?;
/// queue.prepare_write(0, 8, &data, 0)?;
/// queue.trigger()?;
/// stream.synchronize(Duration::from_secs(10))?;
///
/// let mut stored = [0; 8];
/// volume.read_bytes(8, &mut stored)?;
/// assert_eq!(u64::from_le_bytes(stored), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StreamQueue {
    stream: Stream,
    inner: Arc<Inner>,
}

/// The rings of all devices, and what their commands move.
struct Inner {
    volume: Volume,
    /// Number of the last trigger whose doorbells the stream has stored.
    begun: Region,
    begun_word: NonNull<u8>,
    flush: bool,
    state: Mutex<State>,
}

// SAFETY: `begun_word` is the address of `begun`; all access is by an atomic word.
unsafe impl Send for Inner {}
// SAFETY: `begun_word` is read and written as an atomic word.
unsafe impl Sync for Inner {}

struct State {
    rings: Vec<StreamRing>,
    /// Copies between the caller's memory and the commands' buffers: before the doorbells, and behind the completions.
    before: Vec<MemoryOperation>,
    after: Vec<MemoryOperation>,
    /// Owners of the memory that prepared commands use.
    kept: Kept,
    /// Block ranges that prepared commands write.
    writes: Vec<(u64, u64)>,
    triggers: VecDeque<Trigger>,
    last: u32,
}

/// Commands that were announced together.
struct Trigger {
    number: u32,
    /// Ticket behind the last command, for each ring.
    ends: Vec<u32>,
    /// Time at which the host first saw that the stream had stored the doorbells.
    begun: Option<Instant>,
    kept: Kept,
}

impl StreamQueue {
    /// Creates a queue pair of 64 entries for the stream on each device of the volume, or of as many as its controller takes: it holds 63
    /// commands until the stream is waited for.
    ///
    /// # Errors
    /// * [`StorageError::Option`] if the volume belongs to another engine or has copies (a stream cannot read another copy), or if its
    ///   data lands in GPU memory and the GPU's streams cannot flush writes of devices.
    /// * [`StorageError::Nvme`] if a controller has no spare queue pair; [`StorageError::Memory`] without memory.
    pub fn new(stream: &Stream, volume: &Volume) -> Result<Self, StorageError> {
        Self::create(stream, volume, None)
    }

    /// Creates a queue pair of `depth` entries, a power of two from 2 to 65,536, for the stream on each device: it holds `depth - 1` commands
    /// until the stream is waited for. With bounce landing each entry takes up to 128 KiB of host memory.
    ///
    /// # Errors
    /// As for [`Self::new`], and [`StorageError::Option`] if `depth` is none of these numbers, or a controller takes less.
    pub fn with_depth(stream: &Stream, volume: &Volume, depth: u32) -> Result<Self, StorageError> {
        Self::create(stream, volume, Some(depth))
    }

    fn create(stream: &Stream, volume: &Volume, depth: Option<u32>) -> Result<Self, StorageError> {
        let failed = |reason: &str| StorageError::Option(format!("{}: {reason}", volume.name()));
        let refuse = |reason: &str| Err(failed(reason));
        let engine = volume.engine();
        if !engine.is_same(stream.engine()) {
            return refuse("the stream belongs to another engine; use a stream of the volume's engine");
        }
        if volume.disk().stripe.replicated {
            return refuse(
                "transfers of a stream cannot read another copy when one fails; read this volume from kernels",
            );
        }
        let path = volume.path();
        let flush = matches!(path.order, WritesOrder::GpuOwner | WritesOrder::GpuAll);
        let gpu = engine.space().gpu_context();
        if flush && gpu.is_none_or(|c| c.info().flush_options & STREAMS_FLUSH == 0) {
            return refuse(
                "its data lands in GPU memory, and streams of this GPU cannot wait for writes of devices; build the volume with bounce landing",
            );
        }
        let rings = volume.disk().drives.iter().map(|drive| {
            let drive = drive.lock();
            let controller = drive.controller();
            let block = drive.namespace().block_bytes();
            let most = controller.max_data_transfer().map_or(usize::MAX, |m| usize::try_from(m).unwrap_or(usize::MAX));
            let landing = match path.landing {
                LandingPath::Direct => Landing::Direct,
                LandingPath::Bounce => Landing::Bounce { bytes_per_slot: BOUNCE_BYTES.min(most).max(block) },
            };
            let deepest = 1 << controller.cap().max_queue_entries().max(2).ilog2();
            let depth = depth.unwrap_or(DEPTH.min(deepest));
            if !depth.is_power_of_two() || !(2..=MAX_DEPTH.min(deepest)).contains(&depth) {
                let most = MAX_DEPTH.min(deepest);
                return Err(failed(&format!("a queue of {depth} entries; give a power of two from 2 to {most}")));
            }
            let options = QueueOptions { depth, landing, ..QueueOptions::default() };
            Ok(StreamRing::create(controller, engine.space(), options)?)
        });
        let rings = rings.collect::<Result<Vec<_>, StorageError>>()?;
        let begun = engine.allocate(Place::Host, size_of::<u32>())?;
        let begun_word =
            begun.host().ok_or_else(|| StorageError::Option("host memory without an address".to_owned()))?;
        let state = State {
            rings,
            before: Vec::new(),
            after: Vec::new(),
            kept: Vec::new(),
            writes: Vec::new(),
            triggers: VecDeque::new(),
            last: 0,
        };
        let inner = Inner { volume: volume.clone(), begun, begun_word, flush, state: Mutex::new(state) };
        Ok(Self { stream: stream.clone(), inner: Arc::new(inner) })
    }

    /// Returns the stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the number of commands that the queue of each device can hold until the stream is waited for.
    pub fn capacity(&self) -> usize {
        self.inner.state.lock().rings.iter().map(StreamRing::capacity).min().unwrap_or(0)
    }

    /// Prepares a read of `count` blocks from block `first` on into `buffer`, from its byte `offset` on.
    ///
    /// # Errors
    /// * [`StorageError::Range`] if the blocks are not within the volume.
    /// * [`StorageError::Option`] if the buffer is too small, is of another engine, is not mapped for a volume with direct landing, or
    ///   begins at an offset that is not a multiple of 4; or if the queue has no room for the commands.
    /// * [`StorageError::Nvme`] if a controller is gone or failed.
    pub fn prepare_read(&self, first: u64, count: u64, buffer: &DataBuffer, offset: usize) -> Result<(), StorageError> {
        self.prepare(io::READ, first, count, buffer, offset)
    }

    /// Prepares a write of `count` blocks from block `first` on, with the data that `buffer` has from its byte `offset` on when the
    /// stream executes the command. The blocks are durable after [`Volume::flush`].
    ///
    /// # Errors
    /// As for [`Self::prepare_read`].
    pub fn prepare_write(
        &self,
        first: u64,
        count: u64,
        buffer: &DataBuffer,
        offset: usize,
    ) -> Result<(), StorageError> {
        self.prepare(io::WRITE, first, count, buffer, offset)
    }

    /// Adds all prepared commands to the stream, behind its work so far. Work that is added to the stream later begins when the
    /// commands have completed. The host does not wait. Does nothing if nothing is prepared.
    ///
    /// # Errors
    /// * [`StorageError::Engine`] if the stream is being captured, or the driver refuses a step.
    /// * For writes, those of [`Volume::write_blocks`] if the volume's marks cannot be written.
    pub fn trigger(&self) -> Result<(), StorageError> {
        let inner = &self.inner;
        let writes = std::mem::take(&mut inner.state.lock().writes);
        for (first, count) in writes {
            inner.volume.contents().announce(first, count)?;
        }
        // SAFETY: the steps name the rings and words of `inner`, and memory of the buffers whose owners are returned with them.
        Ok(unsafe { self.stream.operate("stream transfers", inner.clone(), || inner.announce()) }?)
    }

    fn prepare(
        &self,
        opcode: u8,
        first: u64,
        count: u64,
        buffer: &DataBuffer,
        offset: usize,
    ) -> Result<(), StorageError> {
        let volume = &self.inner.volume;
        volume.disk().check_blocks(first, count)?;
        let shift = volume.block_shift();
        let bytes = usize::try_from(count << shift).unwrap_or(usize::MAX);
        let refuse = |reason: String| Err(StorageError::Option(format!("{}: {reason}", volume.name())));
        if offset.checked_add(bytes).is_none_or(|end| end > buffer.len()) {
            let has = buffer.len();
            return refuse(format!("{bytes} bytes from byte {offset} on exceed the buffer of {has} bytes"));
        }
        if !buffer.space().same(volume.engine().space()) {
            return refuse("the buffer belongs to another engine; use Volume::allocate_data of this volume".to_owned());
        }
        // Memory pointers of NVMe are multiples of 4 (NVMe Base 2.0, 4.1.1).
        if !(buffer.address() + offset as u64).is_multiple_of(4) {
            return refuse(format!("data at byte {offset} of the buffer does not begin at a multiple of 4 bytes"));
        }
        let is_direct = volume.path().landing == LandingPath::Direct;
        if is_direct && !buffer.is_mapped_for(volume.disk()) {
            return refuse(
                "its devices do not reach the buffer; use Volume::allocate_data or Volume::map_data".to_owned(),
            );
        }
        let mut state = self.inner.state.lock();
        let state = &mut *state;
        let mut commands = vec![0; state.rings.len()];
        let namespaces: Vec<Namespace> = volume.disk().drives.iter().map(|d| d.lock().namespace().clone()).collect();
        let most = |ring: &StreamRing| ((ring.max_transfer_bytes() >> shift).min(MAX_COMMAND_BLOCKS) as u64).max(1);
        let pieces: Vec<_> = volume.disk().stripe.pieces(first, count).collect();
        for piece in &pieces {
            commands[piece.device] += piece.blocks.div_ceil(most(&state.rings[piece.device])) as usize;
        }
        for (device, (ring, needed)) in state.rings.iter_mut().zip(&commands).enumerate() {
            ring.check()?;
            if *needed > ring.room() {
                return refuse(format!(
                    "{count} blocks take {needed} commands on device {device}, and its queue has room for {} of {}; trigger and \
                     synchronize first, or move fewer blocks at once",
                    ring.room(),
                    ring.capacity()
                ));
            }
        }
        for piece in pieces {
            let ring = &mut state.rings[piece.device];
            let most = most(ring);
            let mut done = 0;
            while done < piece.blocks {
                let blocks = most.min(piece.blocks - done);
                let at = offset + ((piece.at + done) << shift) as usize;
                let here = buffer.address() + at as u64;
                let data = match is_direct {
                    true => Data::Direct(volume.disk().device_address(buffer, piece.device, here)?),
                    false => Data::Bounce,
                };
                let lba = piece.lba + done;
                let own = ring.prepare(opcode, &namespaces[piece.device], lba, blocks as u32, data)?;
                let bytes = (blocks << shift) as usize;
                match own {
                    Some(own) if opcode == io::READ => add_copy(&mut state.after, here, own, bytes),
                    Some(own) => add_copy(&mut state.before, own, here, bytes),
                    None => {}
                }
                done += blocks;
            }
        }
        let mut args = Args::new();
        buffer.keep(&mut args);
        state.kept.append(&mut args.take_kept());
        if opcode == io::WRITE {
            state.writes.push((first, count));
        }
        Ok(())
    }
}

/// Adds a copy, as part of the one before where both continue it.
fn add_copy(copies: &mut Vec<MemoryOperation>, to: u64, from: u64, bytes: usize) {
    if let Some(MemoryOperation::Copy { to: last_to, from: last_from, bytes: last }) = copies.last_mut()
        && *last_to + *last as u64 == to
        && *last_from + *last as u64 == from
    {
        *last += bytes;
        return;
    }
    copies.push(MemoryOperation::Copy { to, from, bytes });
}

impl Inner {
    /// Returns the steps of all prepared commands, and the owners of the memory that they use.
    fn announce(&self) -> (Vec<MemoryOperation>, Kept) {
        let mut state = self.state.lock();
        let (doorbells, waits): (Vec<_>, Vec<_>) =
            state.rings.iter_mut().filter_map(|ring| ring.announce(self.flush)).unzip();
        if doorbells.is_empty() {
            return (Vec::new(), Kept::new());
        }
        state.last = state.last.wrapping_add(1);
        let number = state.last;
        let mut steps = std::mem::take(&mut state.before);
        steps.extend(doorbells);
        steps.push(MemoryOperation::Store32 { address: self.begun.address(), value: number });
        steps.extend(waits);
        steps.append(&mut state.after);
        let ends = state.rings.iter().map(StreamRing::announced).collect();
        let kept = std::mem::take(&mut state.kept);
        state.triggers.push_back(Trigger { number, ends, begun: None, kept: kept.clone() });
        (steps, kept)
    }

    /// Returns the number of the last trigger whose doorbells the stream has stored.
    fn begun(&self) -> u32 {
        // SAFETY: the word of `begun`, which the stream stores to.
        unsafe { AtomicU32::from_ptr(self.begun_word.as_ptr().cast()) }.load(Ordering::Acquire)
    }
}

impl Trigger {
    fn has_begun(&self, begun: u32) -> bool {
        begun.wrapping_sub(self.number) as i32 >= 0
    }
}

impl Awaited for Inner {
    fn end_late(&self) {
        let begun = self.begun();
        let deadline = self.volume.engine().deadline();
        let mut state = self.state.lock();
        let state = &mut *state;
        for trigger in &mut state.triggers {
            if trigger.has_begun(begun) {
                trigger.begun.get_or_insert_with(Instant::now);
            }
        }
        let is_late = |t: &Trigger| {
            t.begun.is_some_and(|begun| begun.elapsed() > deadline)
                && !state.rings.iter().zip(&t.ends).all(|(ring, end)| ring.has_reached(*end))
        };
        if state.triggers.iter().any(is_late) {
            state.rings.iter_mut().for_each(StreamRing::release);
        }
    }

    fn release(&self) {
        self.state.lock().rings.iter_mut().for_each(StreamRing::release);
    }

    fn complete(&self) -> Vec<OperationError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let triggers = std::mem::take(&mut state.triggers);
        let begun = self.begun();
        // True for a command that was announced and that the stream did not get to.
        let is_ahead = |device: usize, ticket: u32| {
            let of = triggers.iter().find(|t| (ticket.wrapping_sub(t.ends[device]) as i32) < 0);
            of.is_some_and(|t| !t.has_begun(begun))
        };
        let mut failed = Vec::new();
        let mut is_clean = true;
        for (device, ring) in state.rings.iter_mut().enumerate() {
            let (ended, outcome) = ring.complete();
            if let Err(error) = outcome {
                is_clean = false;
                tracing::warn!(device = self.volume.device_name(device), %error, "the queue of a stream was not created again");
            }
            for command in ended {
                let outcome = match command.status {
                    Some(status) if status.is_success() => continue,
                    Some(status) => Outcome::DeviceError(status),
                    None if is_ahead(device, command.ticket) => Outcome::Stopped,
                    None => Outcome::TimedOut,
                };
                failed.push(OperationError {
                    outcome,
                    device: device as u32,
                    // Behind those of the kernels.
                    queue: self.volume.queues(),
                    command: command.entry.cid().into(),
                    opcode: command.entry.opcode().into(),
                    lba: command.entry.slba(),
                    blocks: command.entry.blocks(),
                });
            }
        }
        if !is_clean {
            // The device may still write to the memory of commands that it did not complete.
            triggers.into_iter().for_each(|trigger| std::mem::forget(trigger.kept));
        }
        failed
    }
}

impl fmt::Debug for StreamQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamQueue({} on {:?})", self.inner.volume.name(), self.stream)
    }
}

#[cfg(test)]
#[path = "stream_queue_tests.rs"]
mod tests;
