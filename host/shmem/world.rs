//! A world, as one PE sees it.

use super::ShmemError;
use super::bootstrap::{Bootstrap, BootstrapError, LostRank};
use super::heap::{HEAP_ALIGN, Heap};
use super::network::{self, Network};
use super::path::WorldPath;
use super::peer_info::HostId;
use super::registered::Windows;
use super::symmetric_allocator::{ALIGN, SymmetricAllocator};
use super::team_slots::{Areas, Teams, own_bytes};
use crate::args;
use crate::engine::{Args, Engine, KernelArg, abi};
use crate::memory::{Place, Region};
use crate::metrics::Registration;
use bytemuck::{Pod, Zeroable};
use host_calls::one_warp;
use parking_lot::{Mutex, MutexGuard};
use recover::drained;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The longest time that a PE with a network waits at its end for the other PEs, which may still access its memory.
const LEAVE: Duration = Duration::from_secs(30);
/// The limit in place of [`LEAVE`] after a connection has failed: some PEs may then never arrive, or find nothing to
/// access.
const LEAVE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Waits for the other PEs on the host that are longer than this are reported.
const SLOW: Duration = Duration::from_secs(5);

/// One PE of a world. Cheap to clone.
///
/// Every PE makes the same collective calls, in the same order and with the same arguments.
///
/// # Examples
///
/// ```
/// use warpbell::shmem::World;
///
/// # fn on_each(worlds: Vec<World>, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
/// #     let pes: Vec<_> = worlds.into_iter().map(|world| std::thread::spawn(move || work(&world))).collect();
/// #     pes.into_iter().try_for_each(|pe| pe.join().expect("no panic"))
/// # }
/// # type Failure = Box<dyn std::error::Error + Send + Sync>;
/// // Two PEs with CPU engines; a closure runs for each PE, in a thread of its own.
/// on_each(World::local(2)?, |world| {
///     let next = (world.my_pe() + 1) % world.n_pes();
///     let inbox = world.calloc::<u64>(4)?;
///     world.put(&inbox, &[world.my_pe() as u64; 4], next)?;
///     world.barrier_all()?;
///     // Each PE has what the one before it has put.
///     assert_eq!(inbox.read(0, 4)?, [next as u64; 4]);
///     Ok(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    /// Counters for monitoring.
    _metrics: Registration,
    engine: Engine,
    bootstrap: Arc<dyn Bootstrap>,
    heap: Heap,
    timeout: Duration,
    allocator: Mutex<SymmetricAllocator>,
    windows: Mutex<Windows>,
    own: OwnMemory,
    path: WorldPath,
    hosts: Vec<HostId>,
    /// Connections to PEs that loads and stores do not reach. `None` also after `drop` has taken it.
    network: Option<Network>,
    /// The first rank that is known to have ended too early.
    lost: Arc<OnceLock<LostRank>>,
    /// True if this PE is to leave without a word.
    abandoned: AtomicBool,
}

/// The parts of a world, apart from its engine and its bootstrap.
pub(super) struct WorldParts {
    pub(super) heap: Heap,
    pub(super) own: OwnMemory,
    pub(super) path: WorldPath,
    pub(super) hosts: Vec<HostId>,
    pub(super) network: Option<Network>,
}

/// Memory of this PE that programs do not allocate.
pub(super) struct OwnMemory {
    /// Areas of the heap for teams, the team of all PEs among them.
    teams: Teams,
    /// Bytes at the beginning of the heap that programs cannot allocate: the team areas and the bounce buffer.
    room: usize,
    /// The bounce buffer: the heap range through which host calls move data over the network. It follows the team
    /// areas.
    bounce: Mutex<Range<usize>>,
    /// The allocation map that kernels with checks read, if checks are on.
    allocated: Option<Region>,
}

impl OwnMemory {
    /// Sets up this memory for PE `pe` of `pes`. Programs can allocate `heap_bytes` of `heap`; the bounce buffer has
    /// `bounce` bytes.
    pub(super) fn new(
        engine: &Engine,
        heap: &Heap,
        heap_bytes: usize,
        (pe, pes): (usize, usize),
        checked: bool,
        bounce: usize,
    ) -> Result<Self, ShmemError> {
        let begin = own_bytes(heap_bytes, pes);
        let room = begin + bounce;
        let teams = Teams::new(engine, heap.address(), 0, Areas::plan(heap_bytes, pes), (pe, pes))?;
        // One extra word, so that the map covers a heap of any length with whole words.
        let map = heap.bytes() / abi::HEAP_GRANULE / 8 + size_of::<u32>();
        let allocated = checked.then(|| engine.allocate(Place::Device, map)).transpose()?;
        Ok(Self { teams, room, bounce: Mutex::new(begin..room), allocated })
    }
}

/// The header of a rank's message at a collective call. The bytes of the call itself follow it.
#[derive(Serialize, Deserialize)]
struct Announcement {
    /// The call and its arguments, for error messages; the same on all ranks.
    call: String,
    /// Offsets of memory that the rank has dropped since the last call.
    dropped: Vec<usize>,
    /// Windows that the rank has dropped since the last call.
    windows: Vec<u64>,
}

impl World {
    pub(super) fn new(
        engine: Engine,
        parts: WorldParts,
        bootstrap: Box<dyn Bootstrap>,
        timeout: Duration,
    ) -> Result<Self, ShmemError> {
        let WorldParts { heap, own, path, hosts, network } = parts;
        let mut allocator = SymmetricAllocator::new(bootstrap.size(), heap.bytes());
        // The first allocation is at offset 0, where `OwnMemory` placed its areas.
        allocator.take(own.room, ALIGN)?;
        if let Some(map) = &own.allocated {
            map.set_slice(0, allocator.map())?;
        }
        let bootstrap: Arc<dyn Bootstrap> = bootstrap.into();
        if let Some(network) = &network {
            network.watch(&bootstrap);
        }
        let lost = Arc::new(OnceLock::new());
        bootstrap.on_loss({
            let (lost, engine) = (lost.clone(), engine.clone());
            Box::new(move |who| {
                let _ = lost.set(who.clone());
                tracing::warn!(rank = who.rank, reason = who.reason, "a rank of the world is gone: kernels of its engine are stopped");
                if let Err(error) = engine.stop_for(who.to_string()) {
                    tracing::warn!(%error, rank = who.rank, "kernels cannot be stopped: those that wait for a lost rank end at their deadline");
                }
            })
        });
        let allocator = Mutex::new(allocator);
        let abandoned = AtomicBool::new(false);
        let _metrics = network::register(bootstrap.rank(), bootstrap.size(), lost.clone(), network.as_ref());
        Ok(Self(Arc::new(Inner {
            _metrics,
            engine,
            bootstrap,
            heap,
            timeout,
            allocator,
            windows: Mutex::default(),
            own,
            path,
            hosts,
            network,
            lost,
            abandoned,
        })))
    }

    /// Returns this PE's number, from 0.
    pub fn my_pe(&self) -> usize {
        self.0.bootstrap.rank()
    }

    /// Returns the number of PEs.
    pub fn n_pes(&self) -> usize {
        self.0.bootstrap.size()
    }

    /// Returns the engine that runs this PE's kernels.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Returns the longest time that collective host calls wait for the other PEs.
    pub fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// Returns a description of the links between the PEs.
    pub fn path(&self) -> &WorldPath {
        &self.0.path
    }

    /// Returns the free bytes of this PE's heap. They may not be contiguous.
    pub fn heap_free(&self) -> usize {
        self.allocator().free_bytes()
    }

    /// Returns the name of the host that PE `pe` runs on, or `None` if there is no such PE.
    pub fn host_name(&self, pe: usize) -> Option<&str> {
        self.hosts().get(pe).map(|host| host.name.as_str())
    }

    /// Returns the host of each PE.
    pub(crate) fn hosts(&self) -> &[HostId] {
        &self.0.hosts
    }

    /// Returns the first rank that is known to have ended too early.
    pub fn lost(&self) -> Option<&LostRank> {
        self.0.lost.get()
    }

    /// Makes this PE leave without a word when the last share of the world is dropped, as after a panic: the other PEs then
    /// notice its loss. For programs that end by an error of another kind.
    pub fn abandon(&self) {
        self.0.abandoned.store(true, Ordering::Relaxed);
    }

    /// Allocates zeroed memory for `count` elements on every PE and returns its offset in the heap. Collective.
    pub(super) fn take<T: Pod>(&self, name: &str, count: usize, align: usize) -> Result<usize, ShmemError> {
        let call = format!("{name} of {count} elements of {} bytes aligned to {align}", size_of::<T>());
        self.exchange(&call, &[])?;
        // From here on all ranks compute the same, so a check that fails here fails on all ranks.
        if !align.is_power_of_two() || align > HEAP_ALIGN {
            return Err(ShmemError::Alignment { align, max: HEAP_ALIGN });
        }
        let bytes = count.saturating_mul(size_of::<T>());
        let taken = self.allocator().take(bytes, align.max(align_of::<T>()))?;
        let cleared = self.0.heap.clear(taken.dirty.start, taken.dirty.len());
        let ready = cleared.and_then(|()| self.show(taken.offset, bytes));
        if let Err(e) = self.vote(name, ready) {
            self.give_back(taken.offset)?;
            return Err(e);
        }
        Ok(taken.offset)
    }

    /// Returns the bytes of every PE, in the order of the PE numbers. Collective; each PE may give any number of bytes.
    ///
    /// # Errors
    /// - [`ShmemError::Bootstrap`] if a rank is gone, does not call within [`World::timeout`], or `bytes` is too large.
    /// - [`ShmemError::OutOfStep`] if the ranks make different calls.
    /// - [`ShmemError::Memory`] if the allocation map of kernels with checks cannot be written.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::shmem::World;
    ///
    /// # fn on_each(worlds: Vec<World>, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
    /// #     let pes: Vec<_> = worlds.into_iter().map(|world| std::thread::spawn(move || work(&world))).collect();
    /// #     pes.into_iter().try_for_each(|pe| pe.join().expect("no panic"))
    /// # }
    /// # type Failure = Box<dyn std::error::Error + Send + Sync>;
    /// // Two PEs with CPU engines; a closure runs for each PE, in a thread of its own.
    /// on_each(World::local(2)?, |world| {
    ///     let names = world.allgather(format!("PE {}", world.my_pe()).as_bytes())?;
    ///     assert_eq!(names, [b"PE 0", b"PE 1"]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ShmemError> {
        self.exchange("allgather", bytes)
    }

    /// Waits on the host until every PE has called it. Does not wait for kernels; see [`World::barrier_all`].
    ///
    /// # Errors
    /// The errors of [`World::allgather`].
    pub fn barrier_host(&self) -> Result<(), ShmemError> {
        self.exchange("barrier_host", &[]).map(drop)
    }

    /// Runs a kernel in which all PEs meet. On return all earlier puts of all PEs have arrived. Collective.
    ///
    /// # Errors
    /// - [`ShmemError::Engine`] if the kernel cannot be launched.
    /// - [`ShmemError::Run`] if the kernel fails, for example because a PE does not arrive before the engine's
    ///   deadline.
    /// - [`ShmemError::Network`] if the kernel fails and connections of this PE have failed.
    pub fn barrier_all(&self) -> Result<(), ShmemError> {
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(None, "wb_shmem_barrier", self.small_grid(), args!(self)) }
    }

    /// Exchanges bytes with all ranks in a collective call. Returns the bytes of each rank.
    ///
    /// `call` names the call and its arguments. If the names differ between ranks, all ranks fail with
    /// [`ShmemError::OutOfStep`].
    pub(super) fn exchange(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ShmemError> {
        if let Some(lost) = self.lost() {
            return Err(BootstrapError::Lost(lost.clone()).into());
        }
        let (dropped, windows) = self.take_dropped();
        let told = Announcement { call: call.to_owned(), dropped, windows };
        // Format: one line of JSON, then the bytes.
        let mut message = serde_json::to_vec(&told).unwrap_or_default();
        message.push(b'\n');
        message.extend_from_slice(bytes);
        let begun = Instant::now();
        let all = self.0.bootstrap.allgather(&message, self.0.timeout);
        if begun.elapsed() > SLOW {
            tracing::info!(pe = self.my_pe(), waited = ?begun.elapsed(), "the other PEs were late in {call}");
        }
        let all = match all {
            Ok(all) => all,
            Err(e) => {
                let mut allocator = self.allocator();
                told.dropped.into_iter().for_each(|offset| allocator.dropped_here(offset));
                self.windows().not_sent(told.windows);
                return Err(e.into());
            }
        };
        let mut calls = Vec::with_capacity(all.len());
        let mut answers = Vec::with_capacity(all.len());
        let (mut freed, mut unregistered) = (Vec::new(), Vec::new());
        {
            let (mut allocator, mut windows) = (self.allocator(), self.windows());
            for message in &all {
                let (told, bytes) = read(message);
                for offset in told.dropped {
                    let bytes = allocator.bytes_at(offset);
                    if allocator.dropped_by_one(offset) {
                        freed.extend(bytes.map(|b| (offset, b)));
                    }
                }
                let ended = told.windows.into_iter().filter_map(|id| windows.dropped_by_one(id, all.len()));
                unregistered.extend(ended);
                calls.push(told.call);
                answers.push(bytes.to_vec());
            }
        }
        drop(unregistered);
        for (offset, bytes) in freed {
            self.show(offset, bytes)?;
        }
        if calls.iter().any(|c| *c != call) {
            return Err(ShmemError::OutOfStep { calls });
        }
        Ok(answers)
    }

    /// Tells the other ranks the outcome of a collective call on this rank. An error on one rank is an error on all.
    pub(super) fn vote<T>(&self, call: &str, mine: Result<T, ShmemError>) -> Result<T, ShmemError> {
        let text = mine.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let all = self.exchange(&format!("end of {call}"), text.as_bytes())?;
        let mine = mine?;
        let failures = all.iter().enumerate().filter(|(_, text)| !text.is_empty());
        let failures: Vec<(usize, String)> =
            failures.map(|(rank, text)| (rank, String::from_utf8_lossy(text).into_owned())).collect();
        if failures.is_empty() { Ok(mine) } else { Err(ShmemError::OnRanks { what: call.to_owned(), failures }) }
    }

    /// Copies the allocator's map words for a heap range to the map that kernels read.
    fn show(&self, offset: usize, bytes: usize) -> Result<(), ShmemError> {
        let Some(map) = &self.0.own.allocated else { return Ok(()) };
        let words = SymmetricAllocator::words(offset, bytes);
        let values = self.allocator().map()[words.clone()].to_vec();
        Ok(map.set_slice(words.start * size_of::<u32>(), &values)?)
    }

    /// Frees memory on this PE; all PEs free it in the same collective call.
    pub(super) fn give_back(&self, offset: usize) -> Result<(), ShmemError> {
        let bytes = {
            let mut allocator = self.allocator();
            let bytes = allocator.bytes_at(offset).unwrap_or(0);
            allocator.give_back(offset);
            bytes
        };
        self.show(offset, bytes)
    }

    /// Returns true if both are the same PE's view of the same world.
    pub fn is_same(&self, other: &World) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the team slots of this PE.
    pub(super) fn teams(&self) -> &Teams {
        &self.0.own.teams
    }

    pub(super) fn network(&self) -> Option<&Network> {
        self.0.network.as_ref()
    }

    /// Locks the bounce buffer for one host call. Returns its range in this PE's heap.
    pub(super) fn bounce(&self) -> MutexGuard<'_, Range<usize>> {
        self.0.own.bounce.lock()
    }

    pub(super) fn heap(&self) -> &Heap {
        &self.0.heap
    }

    /// Returns the `wb_world`, the form in which this PE's kernels get the world: `world_ref` of `shmem.cuh` is made from it.
    ///
    /// The view holds addresses of memory that the world owns. It stays valid while a clone of the world lives; kernels that
    /// use it must have ended before the last clone is dropped. A run ensures that for a launch with the world among its
    /// arguments, and for [`Run::keep`](crate::engine::Run::keep). The values are for kernels of this process and of
    /// the world's engine.
    pub fn view(&self) -> abi::World {
        self.0.view(self.0.network.as_ref())
    }

    pub(super) fn dropped(&self, offset: usize) {
        self.allocator().dropped_here(offset);
    }

    /// Locks the windows of this PE.
    pub(super) fn windows(&self) -> MutexGuard<'_, Windows> {
        self.0.windows.lock()
    }

    /// Takes the offsets of the allocations and the numbers of the windows that this PE has dropped. An adapter may still
    /// read and write their memory for `_nbi` calls that kernels left unfinished; these are completed before the other
    /// PEs learn of the drop. A later call does that if kernels are in flight, which this PE does not wait for, or if
    /// connections have failed.
    fn take_dropped(&self) -> (Vec<usize>, Vec<u64>) {
        let (dropped, windows) = (self.allocator().take_dropped(), self.windows().take_dropped());
        if dropped.is_empty() && windows.is_empty() || self.completes_requests() {
            return (dropped, windows);
        }
        let mut allocator = self.allocator();
        dropped.into_iter().for_each(|offset| allocator.dropped_here(offset));
        self.windows().not_sent(windows);
        Default::default()
    }

    /// Completes the requests of kernels that have ended. Returns false if that is not possible now: while kernels are in
    /// flight, or while a connection has failed.
    pub(super) fn completes_requests(&self) -> bool {
        let is_ready = |network: &Network| !network.has_failed() && self.0.engine.is_idle();
        self.network().is_none_or(|network| is_ready(network) && self.quiet().is_ok())
    }

    fn allocator(&self) -> MutexGuard<'_, SymmetricAllocator> {
        self.0.allocator.lock()
    }
}

/// Splits a rank's message into its header and its bytes.
fn read(message: &[u8]) -> (Announcement, &[u8]) {
    let line = message.iter().position(|b| *b == b'\n').unwrap_or(message.len());
    let told = serde_json::from_slice(&message[..line]);
    let unknown = |_| Announcement { call: "an unknown call".to_owned(), dropped: Vec::new(), windows: Vec::new() };
    (told.unwrap_or_else(unknown), message.get(line + 1..).unwrap_or_default())
}

impl Inner {
    /// Waits until everything that kernels have sent has arrived; kernels may end before that. Returns true on success.
    ///
    /// The wait lasts at most the engine's deadline. If connections have failed, the wait is short and ignores those
    /// connections.
    fn drain(&self, network: &Network, has_failed: bool) -> bool {
        // Other kernels on this engine would be stopped by the time limit too.
        if has_failed && (!self.engine.is_idle() || network.set_aside().is_err()) {
            return false;
        }
        let mut args = Args::new();
        args.push_value(self.view(Some(network)));
        // SAFETY: the kernel takes a world. Its memory stays until this function has waited for the kernel, or is never
        // freed.
        let run = unsafe { self.engine.launch("wb_shmem_quiet", one_warp(&self.engine), args) };
        run.is_ok_and(|run| drained(run, has_failed))
    }

    /// Returns `wb_world`: the world as this PE's kernels see it, with `network` as its network.
    fn view(&self, network: Option<&Network>) -> abi::World {
        let team = self.own.teams.of_all();
        let atomics = if self.path.atomics { abi::WORLD_ATOMICS } else { 0 };
        let (control, network, flags) = match network {
            Some(network) => (network.control_address(), network.address(), 0),
            None => (self.engine.control_address(), 0, abi::WORLD_LOAD_STORE | atomics),
        };
        abi::World {
            control,
            heap: self.heap.address(),
            heap_bytes: self.heap.bytes() as u64,
            stride: self.heap.stride() as u64,
            allocated: self.own.allocated.as_ref().map_or(0, Region::address),
            network,
            pe: team.pe,
            size: team.size,
            flags,
            team,
            ..abi::World::zeroed()
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A PE that ends by a panic does not leave in order, so that the other PEs notice its loss.
        let in_order = !std::thread::panicking() && !*self.abandoned.get_mut();
        let windows = self.windows.get_mut().take_all();
        let is_stopped = self.engine.is_cancelled() || self.engine.stopped_for().is_some();
        match self.network.take() {
            // Memory that other processes have opened is kept while they may still use it.
            None if in_order && windows.iter().any(|memory| memory.is_exported) => {
                let within = if is_stopped { Duration::ZERO } else { self.timeout.min(LEAVE) };
                self.bootstrap.leave_after_others(&leave(), Box::new(windows), within);
            }
            // Mapped heap memory stays valid until the other PEs unmap it.
            None if in_order => self.bootstrap.leave(),
            // Connections and registered memory do not: keep them while other PEs may still read, or wait for data in
            // flight.
            Some(network) if in_order => {
                network.end_watch();
                let sent = !is_stopped && self.drain(&network, network.has_failed());
                let within = match (is_stopped, network.has_failed()) {
                    (true, _) => Duration::ZERO,
                    (false, true) => self.timeout.min(LEAVE_AFTER_FAILURE),
                    (false, false) => self.timeout.min(LEAVE),
                };
                if !sent && !is_stopped {
                    tracing::warn!(failures = ?network.failures(), "this PE ends before all data that it sent has arrived");
                }
                let heap = std::mem::replace(&mut self.heap, Heap::none(self.engine.space()));
                self.bootstrap.leave_after_others(&leave(), Box::new((windows, network, heap)), within);
            }
            network => drop((windows, network)),
        }
    }
}

/// Returns the message of a rank that has come to the end of its world.
fn leave() -> Vec<u8> {
    let told = Announcement { call: "the end of its world".to_owned(), dropped: Vec::new(), windows: Vec::new() };
    serde_json::to_vec(&told).unwrap_or_default()
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World(PE {} of {}, {})", self.my_pe(), self.n_pes(), self.0.bootstrap.via())
    }
}

/// Passes the world to a kernel as `world_ref` of `shmem.cuh`.
impl KernelArg for World {
    fn push(&self, args: &mut Args) {
        args.push_value(self.view());
        args.keep(self.0.clone());
    }
}

mod gpu_sharers;
mod host_calls;
mod recover;
#[cfg(test)]
mod tests;
#[cfg(feature = "internals")]
mod wrong_key;
