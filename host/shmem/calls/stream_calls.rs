//! Put, get and signals as steps of a stream: the GPU's copy engines and front end execute them, and no kernel of this crate takes part.

mod pending;

use super::LocalSlice;
use crate::cuda::{MemoryOperation, STREAMS_FLUSH};
use crate::engine::{Awaited, EngineError, OperationError, Stream, abi};
use crate::memory::{Place, Region};
use crate::rdma;
use crate::shmem::network::{Local, StreamQueues};
use crate::shmem::{ShmemError, SymSlice, World};
use bytemuck::Pod;
use parking_lot::Mutex;
use pending::Pending;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The collective call that creates the queue pairs, for messages.
const CALL: &str = "StreamCalls::new";

/// Calls of a world as steps of a stream. To PEs whose heaps loads and stores reach, the GPU's copy engines move the data. To other PEs the
/// adapter does: the host writes its requests ahead, and the stream rings the doorbell and waits for the completions.
///
/// The `prepare` calls collect steps, and [`trigger`](Self::trigger) adds them to the stream in their order. Kernels that are launched on
/// the stream afterwards begin when the steps are over. A put has arrived when the next step begins, so a signal behind it tells its
/// receiver that the data is there.
///
/// A wait that exceeds the engine's deadline while the host waits for the stream is given up: the stream goes on, its signal word gets the
/// value that the wait was for, and [`Stream::synchronize`] reports the wait. Requests to an adapter are given up likewise. The connection
/// has failed then, and all PEs create their `StreamCalls` again.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use warpbell::shmem::World;
/// use warpbell::shmem::calls::StreamCalls;
///
/// # fn on_each(worlds: Vec<World>, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
/// #     let pes: Vec<_> = worlds.into_iter().map(|world| std::thread::spawn(move || work(&world))).collect();
/// #     pes.into_iter().try_for_each(|pe| pe.join().expect("no panic"))
/// # }
/// # type Failure = Box<dyn std::error::Error + Send + Sync>;
/// // Two PEs with CPU engines; a closure runs for each PE, in a thread of its own.
/// on_each(World::local(2)?, |world| {
///     let (mine, theirs) = (world.malloc::<u32>(1000)?, world.calloc::<u32>(1000)?);
///     let arrived = world.calloc::<u64>(1)?;
///     mine.write(0, &vec![world.my_pe() as u32 + 5; 1000])?;
///     let stream = world.engine().stream()?;
///     let calls = StreamCalls::new(&stream, world)?;
///     let other = 1 - world.my_pe();
///     calls.prepare_put(&theirs, &mine, other)?;
///     calls.prepare_signal(&arrived, 1, other)?;
///     calls.prepare_wait(&arrived, 1)?;
///     calls.trigger()?;
///     stream.synchronize(Duration::from_secs(30))?;
///     assert_eq!(theirs.read(999, 1)?, [other as u32 + 5]);
///     Ok(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct StreamCalls {
    stream: Stream,
    inner: Arc<Inner>,
}

struct Inner {
    world: World,
    /// Number of the last trigger that the stream has begun.
    begun: Region,
    state: Mutex<Pending>,
}

impl StreamCalls {
    /// Creates an empty list of steps. Collective if the world uses adapters: each PE gets a queue pair to each PE for its stream.
    ///
    /// # Errors
    /// - [`ShmemError::Engine`] if the stream belongs to another engine than the world; [`ShmemError::Memory`] without memory.
    /// - [`ShmemError::OnRanks`], on all PEs, with the reason of each PE that has no queue pairs or cannot connect them, or whose GPU's
    ///   streams cannot wait for writes of devices to GPU memory.
    /// - [`ShmemError::Bootstrap`] if a rank is gone or does not call within [`World::timeout`], [`ShmemError::OutOfStep`] if the ranks
    ///   make different calls.
    pub fn new(stream: &Stream, world: &World) -> Result<Self, ShmemError> {
        let begun = world.engine().allocate(Place::Host, size_of::<u32>()).map_err(ShmemError::from);
        let begun = match stream.engine().is_same(world.engine()) {
            true => begun,
            false => Err(EngineError::ForeignStream.into()),
        };
        let (begun, queues, flush) = match world.network() {
            None => (begun?, None, false),
            Some(_) => open(world, begun)?,
        };
        let inner = Inner { world: world.clone(), begun, state: Mutex::new(Pending::new(queues, flush)) };
        Ok(Self { stream: stream.clone(), inner: Arc::new(inner) })
    }

    /// Returns the stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the number of steps to each PE out of reach that can be prepared until the host waits for the stream; `None` if loads and
    /// stores reach all PEs, which sets no limit. A step of more than 1 GiB counts once for each GiB.
    pub fn capacity(&self) -> Option<usize> {
        self.inner.state.lock().queues().map(StreamQueues::capacity)
    }

    /// Prepares a copy of all elements of `source` on this PE to `dest` on PE `pe`. If `pe` is out of reach and `source` outside the
    /// symmetric heap, its memory is registered for this one step, which takes longer.
    ///
    /// # Errors
    /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::Foreign`] if `dest` belongs to another world.
    /// - [`ShmemError::OutOfBounds`] if `dest` has fewer elements than `source`.
    /// - [`ShmemError::StreamFull`] if the queue pair to `pe` has no room, [`ShmemError::StreamConnection`] if it has failed.
    /// - [`ShmemError::Registration`] if the adapter does not reach `source`.
    pub fn prepare_put<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let source = source.into();
        self.copy(abi::CALL_PUT, dest.into(), source, pe)
    }

    /// Prepares a copy of elements of `source` on PE `pe` to all elements of `dest` on this PE.
    ///
    /// # Errors
    /// As for [`Self::prepare_put`].
    pub fn prepare_get<'a, T: Pod>(
        &self,
        dest: impl Into<LocalSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let dest = dest.into();
        self.copy(abi::CALL_GET, source.into(), dest, pe)
    }

    /// Prepares to set the first word of `signal` on PE `pe` to `value`. No other call may change the word at the same time.
    ///
    /// # Errors
    /// As for [`Self::prepare_put`].
    pub fn prepare_signal<'a>(
        &self,
        signal: impl Into<SymSlice<'a, u64>>,
        value: u64,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let signal = self.inner.world.remote(signal.into(), 1, pe)?;
        let mut state = self.inner.state.lock();
        match signal.ptr(pe) {
            Some(address) => state.add(MemoryOperation::Store64 { address, value }),
            None => state.request(abi::CALL_SIGNAL, pe, |queues| queues.signal(pe, signal.offset(), value))?,
        }
        state.keep(signal.block().clone());
        Ok(())
    }

    /// Prepares to wait until the first word of `signal` on this PE is at least `value`: until `word - value`, taken as a number with
    /// sign, is not negative.
    ///
    /// # Errors
    /// [`ShmemError::Foreign`] if `signal` belongs to another world, [`ShmemError::OutOfBounds`] if it has no elements.
    pub fn prepare_wait<'a>(&self, signal: impl Into<SymSlice<'a, u64>>, value: u64) -> Result<(), ShmemError> {
        let signal = self.inner.world.remote(signal.into(), 1, self.inner.world.my_pe())?;
        let mut state = self.inner.state.lock();
        state.wait(signal.address(), signal.offset(), value);
        state.keep(signal.block().clone());
        Ok(())
    }

    /// Adds the prepared steps to the stream, behind its work so far. The host does not wait. Does nothing if nothing is prepared.
    ///
    /// # Errors
    /// - [`ShmemError::Engine`] if the stream is being captured, or the driver refuses a step.
    /// - [`ShmemError::StreamConnection`] if a queue pair has failed. The prepared steps are discarded.
    pub fn trigger(&self) -> Result<(), ShmemError> {
        let inner = &self.inner;
        let mut refused = Ok(());
        let steps = || {
            let taken = inner.state.lock().take(inner.begun.address());
            taken.unwrap_or_else(|e| {
                refused = Err(e);
                Default::default()
            })
        };
        // SAFETY: the steps name memory of heaps and regions whose owners are returned with them, and words and queues of `inner`.
        unsafe { self.stream.operate("stream calls", inner.clone(), steps) }?;
        refused
    }

    /// Prepares a copy between elements of `remote` on PE `pe` and all elements of `local` on this PE.
    fn copy<'a, T: Pod>(
        &self,
        opcode: u32,
        remote: SymSlice<'a, T>,
        local: LocalSlice<'a, T>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let world = &self.inner.world;
        let remote = world.remote(remote, local.len(), pe)?;
        let bytes = local.len() * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        let Some(there) = remote.ptr(pe) else { return self.copy_far(opcode, remote, local, pe, bytes) };
        let (to, from) = if opcode == abi::CALL_GET { (local.address(), there) } else { (there, local.address()) };
        if to != from {
            let mut state = self.inner.state.lock();
            state.add(MemoryOperation::Copy { to, from, bytes });
            state.keep(remote.block().clone());
            state.keep(local.owner());
        }
        Ok(())
    }

    fn copy_far<'a, T: Pod>(
        &self,
        opcode: u32,
        remote: SymSlice<'a, T>,
        local: LocalSlice<'a, T>,
        pe: usize,
        bytes: usize,
    ) -> Result<(), ShmemError> {
        let world = &self.inner.world;
        let registered = match (local.region(), world.network()) {
            (Some(region), Some(network)) => {
                let registration = network.register(region).map_err(ShmemError::Registration)?;
                let at = Local::of(&*registration, region, local.address());
                Some((Registered { _inner: registration, _world: world.clone() }, at))
            }
            _ => None,
        };
        let mut state = self.inner.state.lock();
        state.request(opcode, pe, |queues| {
            let in_heap = || queues.in_heap((local.address() - world.heap().address()) as usize);
            let at = registered.as_ref().map_or_else(in_heap, |(_, at)| *at);
            queues.copy(opcode, pe, remote.offset(), at, bytes)
        })?;
        state.keep(remote.block().clone());
        state.keep(local.owner());
        if let Some((registered, _)) = registered {
            state.keep(Arc::new(registered));
        }
        Ok(())
    }
}

/// A registration, which ends before its adapter.
struct Registered {
    _inner: Box<dyn rdma::Registration>,
    _world: World,
}

/// Opens the queue pairs of a stream to all PEs. Collective. Also returns true if waits have to flush writes of devices.
fn open(world: &World, begun: Result<Region, ShmemError>) -> Result<(Region, Option<StreamQueues>, bool), ShmemError> {
    let Some(network) = world.network() else { return Ok((begun?, None, false)) };
    let flush = flushes(world);
    let unused = match (&begun, &flush) {
        (Ok(_), Ok(_)) => Ok(network.unused_stream_queues()),
        (Err(e), _) => Err(e.to_string()),
        (_, Err(e)) => Err(e.clone()),
    };
    let unused = world.agree::<Vec<u64>>(CALL, "the beginning of", &unused);
    let (begun, unused) = (begun?, unused?);
    // All PEs find the same set.
    let all: Vec<BTreeSet<u64>> = unused.into_iter().map(BTreeSet::from_iter).collect();
    let reused = all[0].iter().find(|id| all.iter().all(|of| of.contains(id))).copied();
    let (mut queues, addresses) = match network.open_stream_queues(reused) {
        Ok((queues, addresses)) => (Some(queues), Ok(addresses)),
        Err(e) => (None, Err(e)),
    };
    let addresses: Vec<Vec<rdma::QueueAddress>> = world.agree(CALL, "creating queue pairs in", &addresses)?;
    let connected = queues.as_mut().map_or(Ok(()), |queues| queues.connect(world.my_pe(), &addresses));
    world.agree::<()>(CALL, "connecting queue pairs in", &connected)?;
    Ok((begun, queues, flush.unwrap_or_default()))
}

/// Returns true if an adapter of its own hardware writes to the heap in GPU memory, which waits have to flush. Fails if the GPU's streams
/// cannot.
fn flushes(world: &World) -> Result<bool, String> {
    let is_nic = world.path().network.as_ref().is_some_and(|path| path.adapter.transport != rdma::Transport::Soft);
    let Some(gpu) = world.engine().space().gpu_context().filter(|_| is_nic && world.heap().place() == Place::Device)
    else {
        return Ok(false);
    };
    match gpu.info().flush_options & STREAMS_FLUSH {
        0 => Err("the heap is in GPU memory, and streams of this GPU cannot wait for writes of devices; set WARPBELL_HEAP=host".to_owned()),
        _ => Ok(true),
    }
}

impl Awaited for Inner {
    fn end_late(&self) {
        let deadline = self.world.engine().deadline();
        self.state.lock().end_late(&self.world, &self.begun, deadline);
    }

    fn release(&self) {
        self.state.lock().release(&self.world, &self.begun);
    }

    fn complete(&self) -> Vec<OperationError> {
        self.state.lock().complete(self.world.my_pe() as u32)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (Some(queues), Some(network)) = (self.state.get_mut().take_queues(), self.world.network()) {
            network.keep_stream_queues(queues);
        }
    }
}

impl fmt::Debug for StreamCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamCalls(PE {} on {:?})", self.inner.world.my_pe(), self.stream)
    }
}

#[cfg(test)]
pub(in crate::shmem) mod tests;
