//! Put, get and signals as steps of a stream: the GPU's copy engines and front end execute them, and no kernel of this crate takes part.

use super::LocalSlice;
use crate::cuda::MemoryOperation;
use crate::engine::{Awaited, EngineError, Kept, OperationError, Outcome, Stream, abi};
use crate::memory::{Place, Region};
use crate::shmem::{ShmemError, SymSlice, World};
use bytemuck::Pod;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Calls of a world as steps of a stream, for PEs whose heaps loads and stores reach: over NVLink or PCIe, or within a host.
///
/// The `prepare` calls collect steps, and [`trigger`](Self::trigger) adds them to the stream in their order. Kernels that are launched on
/// the stream afterwards begin when the steps are over. A put has arrived when the next step begins, so a signal behind it tells its
/// receiver that the data is there.
///
/// A wait that exceeds the engine's deadline while the host waits for the stream is given up: the stream goes on, its signal word gets the
/// value that the wait was for, and [`Stream::synchronize`] reports the wait.
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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: Vec<MemoryOperation>,
    kept: Kept,
    /// Waits among the steps: offset of the signal word in this PE's heap, and the value.
    waits: Vec<(usize, u64)>,
    triggers: Vec<Trigger>,
    last: u32,
}

/// Waits of steps that were triggered together.
struct Trigger {
    number: u32,
    waits: Vec<Wait>,
    /// Time at which the host first saw that the stream had begun.
    begun: Option<Instant>,
}

struct Wait {
    offset: usize,
    value: u64,
    ended: Option<Outcome>,
}

impl StreamCalls {
    /// Creates an empty list of steps.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if the stream belongs to another engine than the world; [`ShmemError::Memory`] without memory.
    pub fn new(stream: &Stream, world: &World) -> Result<Self, ShmemError> {
        if !stream.engine().is_same(world.engine()) {
            return Err(EngineError::ForeignStream.into());
        }
        let begun = world.engine().allocate(Place::Host, size_of::<u32>())?;
        let inner = Inner { world: world.clone(), begun, state: Mutex::default() };
        Ok(Self { stream: stream.clone(), inner: Arc::new(inner) })
    }

    /// Returns the stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Prepares a copy of all elements of `source` on this PE to `dest` on PE `pe`.
    ///
    /// # Errors
    /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::Foreign`] if `dest` belongs to another world.
    /// - [`ShmemError::OutOfBounds`] if `dest` has fewer elements than `source`.
    /// - [`ShmemError::OutOfReach`] if loads and stores do not reach the heap of `pe`.
    pub fn prepare_put<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let source = source.into();
        let (to, owner) = self.remote(dest.into(), source.len(), pe)?;
        self.copy(to, source.address(), source.len() * size_of::<T>(), [owner, source.owner()]);
        Ok(())
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
        let (from, owner) = self.remote(source.into(), dest.len(), pe)?;
        self.copy(dest.address(), from, dest.len() * size_of::<T>(), [owner, dest.owner()]);
        Ok(())
    }

    /// Prepares to set the first word of `signal` on PE `pe` to `value`.
    ///
    /// # Errors
    /// As for [`Self::prepare_put`].
    pub fn prepare_signal<'a>(
        &self,
        signal: impl Into<SymSlice<'a, u64>>,
        value: u64,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let (address, owner) = self.remote(signal.into(), 1, pe)?;
        let mut state = self.inner.state.lock();
        state.steps.push(MemoryOperation::Store64 { address, value });
        state.kept.push(owner);
        Ok(())
    }

    /// Prepares to wait until the first word of `signal` on this PE is at least `value`: until `word - value`, taken as a number with
    /// sign, is not negative.
    ///
    /// # Errors
    /// [`ShmemError::Foreign`] if `signal` belongs to another world, [`ShmemError::OutOfBounds`] if it has no elements.
    pub fn prepare_wait<'a>(&self, signal: impl Into<SymSlice<'a, u64>>, value: u64) -> Result<(), ShmemError> {
        let signal = signal.into();
        let (address, owner) = self.remote(signal, 1, self.inner.world.my_pe())?;
        let mut state = self.inner.state.lock();
        state.steps.push(MemoryOperation::AwaitAtLeast64 { address, value });
        state.waits.push((signal.offset(), value));
        state.kept.push(owner);
        Ok(())
    }

    /// Adds the prepared steps to the stream, behind its work so far. The host does not wait. Does nothing if nothing is prepared.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if the stream is being captured, or the driver refuses a step.
    pub fn trigger(&self) -> Result<(), ShmemError> {
        let inner = &self.inner;
        // SAFETY: the steps name memory of heaps and regions whose owners are returned with them, and the word of `inner`.
        Ok(unsafe { self.stream.operate("stream calls", inner.clone(), || inner.take()) }?)
    }

    /// Returns the address of the first of `n` elements on PE `pe`, and the owner of the memory.
    fn remote<'a, T: Pod>(
        &self,
        s: SymSlice<'a, T>,
        n: usize,
        pe: usize,
    ) -> Result<(u64, Arc<dyn std::any::Any + Send + Sync>), ShmemError> {
        let s = self.inner.world.remote(s, n, pe)?;
        match s.ptr(pe) {
            Some(address) => Ok((address, s.block().clone())),
            None => Err(ShmemError::OutOfReach { pe }),
        }
    }

    fn copy(&self, to: u64, from: u64, bytes: usize, owners: [Arc<dyn std::any::Any + Send + Sync>; 2]) {
        if bytes == 0 || to == from {
            return;
        }
        let mut state = self.inner.state.lock();
        state.steps.push(MemoryOperation::Copy { to, from, bytes });
        state.kept.extend(owners);
    }
}

impl Inner {
    fn take(&self) -> (Vec<MemoryOperation>, Kept) {
        let mut state = self.state.lock();
        if state.steps.is_empty() {
            return (Vec::new(), Kept::new());
        }
        state.last = state.last.wrapping_add(1);
        let number = state.last;
        let waits: Vec<_> = state.waits.drain(..).map(|(offset, value)| Wait { offset, value, ended: None }).collect();
        let mut steps = std::mem::take(&mut state.steps);
        if !waits.is_empty() {
            steps.insert(0, MemoryOperation::Store32 { address: self.begun.address(), value: number });
            state.triggers.push(Trigger { number, waits, begun: None });
        }
        (steps, std::mem::take(&mut state.kept))
    }

    /// Ends the waits of a trigger that are not over: stores the value that they wait for.
    fn end(&self, trigger: &mut Trigger, outcome: Outcome) {
        let heap = self.world.heap();
        let pe = self.world.my_pe();
        for wait in trigger.waits.iter_mut().filter(|w| w.ended.is_none()) {
            let mut word = [0; 8];
            let is_over = heap.read(pe, wait.offset, &mut word).is_ok()
                && u64::from_ne_bytes(word).wrapping_sub(wait.value) as i64 >= 0;
            if is_over {
                continue;
            }
            wait.ended = Some(outcome);
            if let Err(error) = heap.write(pe, wait.offset, &wait.value.to_ne_bytes()) {
                tracing::warn!(%error, offset = wait.offset, "a stream's wait for a signal cannot be ended");
            }
        }
    }

    fn note_begun(&self, state: &mut State) {
        let begun: u32 = self.begun.get(0).unwrap_or(0);
        for trigger in &mut state.triggers {
            if begun.wrapping_sub(trigger.number) as i32 >= 0 {
                trigger.begun.get_or_insert_with(Instant::now);
            }
        }
    }
}

impl Awaited for Inner {
    fn end_late(&self) {
        let deadline = self.world.engine().deadline();
        let mut state = self.state.lock();
        self.note_begun(&mut state);
        for trigger in &mut state.triggers {
            if trigger.begun.is_some_and(|begun| begun.elapsed() > deadline) {
                self.end(trigger, Outcome::TimedOut);
            }
        }
    }

    fn release(&self) {
        let mut state = self.state.lock();
        self.note_begun(&mut state);
        for trigger in &mut state.triggers {
            let outcome = if trigger.begun.is_some() { Outcome::TimedOut } else { Outcome::Stopped };
            self.end(trigger, outcome);
        }
    }

    fn complete(&self) -> Vec<OperationError> {
        let triggers = std::mem::take(&mut self.state.lock().triggers);
        let waits = triggers.into_iter().flat_map(|t| t.waits);
        waits
            .filter_map(|wait| {
                Some(OperationError {
                    outcome: wait.ended?,
                    device: abi::NO_PE,
                    queue: self.world.my_pe() as u32,
                    command: 0,
                    opcode: abi::CALL_WAIT,
                    lba: wait.offset as u64,
                    blocks: size_of::<u64>() as u32,
                })
            })
            .collect()
    }
}

impl fmt::Debug for StreamCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamCalls(PE {} on {:?})", self.inner.world.my_pe(), self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RunError;
    use crate::shmem::testing::on_all;
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn rounds_of_puts_gets_and_signals_around_a_ring() {
        on_all(3, |world| {
            let (me, n) = (world.my_pe(), world.n_pes());
            let (right, left) = ((me + 1) % n, (me + n - 1) % n);
            let (mine, inbox, copy) = (
                world.calloc::<u64>(4097).unwrap(),
                world.calloc::<u64>(4097).unwrap(),
                world.calloc::<u64>(4097).unwrap(),
            );
            let signals = world.calloc::<u64>(2).unwrap();
            let stream = world.engine().stream().unwrap();
            let calls = StreamCalls::new(&stream, world).unwrap();
            calls.trigger().unwrap();
            for round in 1..=20u64 {
                // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
                unsafe {
                    let args = crate::args!(mine.address(), 4097u64, 1000 * round + me as u64, 10u64);
                    stream.launch("wb_iota", world.engine().grid(64, 1), args)
                }
                .unwrap();
                calls.prepare_put(&inbox, &mine, right).unwrap();
                calls.prepare_signal(signals.slice(..1).unwrap(), round, right).unwrap();
                calls.prepare_wait(signals.slice(..1).unwrap(), round).unwrap();
                calls.trigger().unwrap();
                // The other way round: what the left PE has put into the inbox of this one.
                calls.prepare_get(&copy, &inbox, right).unwrap();
                calls.prepare_signal(signals.slice(1..).unwrap(), round, left).unwrap();
                calls.prepare_signal(signals.slice(1..).unwrap(), round, right).unwrap();
                calls.prepare_wait(signals.slice(1..).unwrap(), round).unwrap();
                calls.trigger().unwrap();
                stream.synchronize(SOON).unwrap();
                world.barrier_host().unwrap();
                let of = |pe: usize| (0..4097).map(|i| 1000 * round + pe as u64 + 10 * i).collect::<Vec<u64>>();
                assert!(inbox.read(0, 4097).unwrap() == of(left), "round {round}");
                assert!(copy.read(0, 4097).unwrap() == of(me), "round {round}");
                // The next round's put would change the inbox.
                world.barrier_host().unwrap();
            }
        });
    }

    #[test]
    fn mistakes_are_refused() {
        on_all(2, |world| {
            let (a, signal) = (world.calloc::<u32>(8).unwrap(), world.calloc::<u64>(1).unwrap());
            let stream = world.engine().stream().unwrap();
            let calls = StreamCalls::new(&stream, world).unwrap();
            assert!(matches!(calls.prepare_put(&a, &a, 2), Err(ShmemError::NoPe { pe: 2, size: 2 })));
            let few = a.slice(..3).unwrap();
            assert!(matches!(calls.prepare_put(few, &a, 1), Err(ShmemError::OutOfBounds { .. })));
            assert!(matches!(calls.prepare_get(&a, few, 1), Err(ShmemError::OutOfBounds { .. })));
            assert!(calls.prepare_wait(signal.slice(1..).unwrap(), 1).is_err());
            let other = crate::engine::Engine::cpu().unwrap();
            assert!(StreamCalls::new(&other.stream().unwrap(), world).is_err());
            assert!(world.engine().is_idle());
            world.barrier_host().unwrap();
        });
    }

    #[test]
    fn a_signal_that_does_not_come_ends_at_the_deadline() {
        on_all(2, |world| {
            let signal = world.calloc::<u64>(2).unwrap();
            let stream = world.engine().stream().unwrap();
            let calls = StreamCalls::new(&stream, world).unwrap();
            world.engine().set_deadline(Duration::from_millis(100)).unwrap();
            calls.prepare_wait(signal.slice(1..).unwrap(), 7).unwrap();
            calls.trigger().unwrap();
            let e = stream.synchronize(SOON).unwrap_err();
            let RunError::Operations { errors, count: 1, .. } = &e else { panic!("{e}") };
            assert_eq!((errors[0].outcome, errors[0].opcode), (Outcome::TimedOut, abi::CALL_WAIT), "{e}");
            assert!(world.engine().is_idle() && !world.engine().space().is_poisoned());
            // A limit of the caller ends it, too.
            world.engine().set_deadline(Duration::from_secs(3600)).unwrap();
            calls.prepare_wait(signal.slice(1..).unwrap(), 8).unwrap();
            calls.trigger().unwrap();
            assert!(stream.synchronize(Duration::from_millis(50)).is_err());
            world.barrier_host().unwrap();
            calls.prepare_signal(&signal, 1, 1 - world.my_pe()).unwrap();
            calls.prepare_wait(&signal, 1).unwrap();
            calls.trigger().unwrap();
            stream.synchronize(SOON).unwrap();
        });
    }
}
