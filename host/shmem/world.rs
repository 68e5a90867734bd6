//! A world as one PE sees it.

use super::bootstrap::{Bootstrap, LocalBootstrap};
use super::heap::Heap;
use super::team::{Areas, Teams};
use super::{ShmemError, Sym};
use crate::args;
use crate::engine::{Args, Engine, KernelArg, abi};
use crate::memory::FirstFit;
use bytemuck::{Pod, Zeroable};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long ranks wait for each other unless told otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a CPU engine's heap unless told otherwise.
const CPU_HEAP: usize = 64 << 20;
/// What allocations are aligned to at least: a line of a GPU's L2, so that different owners do not share one.
const ALIGN: usize = 128;

/// One PE of a world. Cheap to clone. Collective calls are made by every PE, in the same order.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    engine: Engine,
    bootstrap: Box<dyn Bootstrap>,
    heap: Heap,
    timeout: Duration,
    book: Mutex<Book>,
    /// Room in the heap for teams, that of all PEs among them.
    teams: Teams,
}

/// What is allocated. The same on every PE, since every change is made by all of them together.
struct Book {
    free: FirstFit,
    /// Bytes by offset.
    live: BTreeMap<usize, usize>,
    /// What this PE has dropped since the last collective call.
    dropped: Vec<usize>,
}

/// Settings of a world before it exists.
#[derive(Debug)]
pub struct WorldBuilder {
    engine: Engine,
    bootstrap: Box<dyn Bootstrap>,
    heap_bytes: Option<usize>,
    timeout: Duration,
}

impl World {
    /// `n` PEs in this process, each on CPU threads of its own: for tests and examples. Each belongs to a thread of its own, since
    /// collective calls wait for the others.
    pub fn local(n: usize) -> Result<Vec<Self>, ShmemError> {
        let engines = (0..n).map(|_| Engine::cpu()).collect::<Result<Vec<_>, _>>()?;
        Self::local_on(engines, CPU_HEAP)
    }

    /// One PE in this process for each engine, with heaps of `heap_bytes`.
    pub fn local_on(engines: Vec<Engine>, heap_bytes: usize) -> Result<Vec<Self>, ShmemError> {
        let n = engines.len();
        let heaps = Heap::local(n, heap_bytes)?;
        let parts = engines.into_iter().zip(heaps).zip(LocalBootstrap::all(n));
        parts.map(|((engine, heap), bootstrap)| Self::new(engine, heap, Box::new(bootstrap), DEFAULT_TIMEOUT)).collect()
    }

    fn new(engine: Engine, heap: Heap, bootstrap: Box<dyn Bootstrap>, timeout: Duration) -> Result<Self, ShmemError> {
        let (pe, size) = (bootstrap.rank(), bootstrap.size());
        let mut book =
            Book { free: FirstFit::new([0..heap.bytes() as u64]), live: BTreeMap::new(), dropped: Vec::new() };
        let areas = Areas::plan(heap.bytes(), size);
        let offset = book.take(areas.bytes(), ALIGN, heap.bytes())?;
        let teams = Teams::new(&engine, heap.address(), offset, areas, (pe, size))?;
        Ok(Self(Arc::new(Inner { engine, bootstrap, heap, timeout, book: Mutex::new(book), teams })))
    }

    /// This PE's number, from 0.
    pub fn my_pe(&self) -> usize {
        self.0.bootstrap.rank()
    }

    /// How many PEs there are.
    pub fn n_pes(&self) -> usize {
        self.0.bootstrap.size()
    }

    /// Where this PE's kernels run.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// How long collective calls of the host wait for the others.
    pub fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// Zeroed memory for `count` elements on every PE. Collective; an error on one PE is an error on all.
    pub fn malloc<T: Pod>(&self, count: usize) -> Result<Sym<T>, ShmemError> {
        self.align(count, align_of::<T>())
    }

    /// The same, aligned to `align` bytes, a power of two.
    pub fn align<T: Pod>(&self, count: usize, align: usize) -> Result<Sym<T>, ShmemError> {
        let bytes = count.saturating_mul(size_of::<T>());
        let asked = self.allgather(format!("{bytes} bytes aligned to {align}").as_bytes())?;
        let asked: Vec<String> = asked.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect();
        if asked.iter().any(|a| *a != asked[0]) {
            return Err(ShmemError::Unequal { what: "malloc", asked });
        }
        let offset = self.book().take(bytes, align.max(ALIGN), self.0.heap.bytes())?;
        self.0.heap.write(self.my_pe(), offset, &vec![0; bytes]);
        self.barrier_host()?;
        Ok(Sym::new(self.clone(), offset, count))
    }

    /// Every PE's bytes, in the order of their numbers. Collective.
    pub fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ShmemError> {
        Ok(self.0.bootstrap.allgather(bytes, self.0.timeout)?)
    }

    /// Waits on the host until every PE has called it. Says nothing of kernels; see [`World::barrier_all`].
    pub fn barrier_host(&self) -> Result<(), ShmemError> {
        Ok(self.0.bootstrap.barrier(self.0.timeout)?)
    }

    /// All PEs meet in a kernel, and what was put before has arrived.
    pub fn barrier_all(&self) -> Result<(), ShmemError> {
        let threads = match self.engine().kind() {
            "gpu" => 32,
            _ => self.engine().grid(1, 1).threads,
        };
        let grid = crate::engine::Grid { blocks: 1, threads };
        self.engine().launch("wb_shmem_barrier", grid, args!(self))?.finish()?;
        Ok(())
    }

    /// `wb_world`: the world as this PE's kernels see it.
    pub(super) fn view(&self) -> abi::World {
        let inner = &self.0;
        let team = inner.teams.of_all();
        abi::World {
            control: inner.engine.control_address(),
            heap: inner.heap.address(),
            heap_bytes: inner.heap.bytes() as u64,
            stride: inner.heap.stride() as u64,
            pe: team.pe,
            size: team.size,
            flags: abi::WORLD_LOAD_STORE | abi::WORLD_ATOMICS,
            team,
            ..abi::World::zeroed()
        }
    }

    /// Room in the heap for teams.
    pub(super) fn teams(&self) -> &Teams {
        &self.0.teams
    }

    pub(super) fn heap(&self) -> &Heap {
        &self.0.heap
    }

    pub(super) fn heap_address(&self) -> u64 {
        self.0.heap.address()
    }

    pub(super) fn dropped(&self, offset: usize) {
        self.book().dropped.push(offset);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Book {
    fn take(&mut self, bytes: usize, align: usize, heap: usize) -> Result<usize, ShmemError> {
        let room = bytes.max(1).next_multiple_of(ALIGN);
        let offset = self.free.take(room as u64, align as u64);
        let offset =
            offset.ok_or(ShmemError::HeapFull { bytes, free: self.free.free_bytes() as usize, heap })? as usize;
        self.live.insert(offset, room);
        Ok(offset)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World(PE {} of {}, {})", self.my_pe(), self.n_pes(), self.0.bootstrap.via())
    }
}

/// A kernel gets `world_ref` of `shmem.cuh`.
impl<'a> KernelArg<'a> for &'a World {
    fn push(&self, args: &mut Args<'a>) {
        args.push_value(self.view());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Grid;
    use crate::memory::Place;

    #[test]
    fn values_go_round_a_ring() {
        for n in [1, 2, 3, 4] {
            let worlds = World::local(n).unwrap();
            std::thread::scope(|s| {
                for world in &worlds {
                    s.spawn(move || {
                        let to = world.malloc::<u64>(100).unwrap();
                        let flag = world.malloc::<u64>(1).unwrap();
                        let mine: Vec<u64> = (0..100).map(|i| (world.my_pe() * 1000 + i) as u64).collect();
                        let from = world.engine().allocate(Place::Device, 800).unwrap();
                        from.set_slice(0, &mine).unwrap();
                        let grid = Grid { blocks: 1, threads: 1 };
                        let args = args!(world, &to, &from, 100u64, &flag, 1u64);
                        world.engine().launch("wb_shmem_ring", grid, args).unwrap().finish().unwrap();
                        let before = (world.my_pe() + n - 1) % n;
                        let expected: Vec<u64> = (0..100).map(|i| (before * 1000 + i) as u64).collect();
                        assert_eq!(to.read(0, 100).unwrap(), expected);
                        world.barrier_all().unwrap();
                    });
                }
            });
        }
    }
}
