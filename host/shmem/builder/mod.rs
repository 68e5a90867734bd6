//! How a world comes to be: the ranks tell each other what they are, agree on a heap, and map each other's memory.
//!
//! Every step that can fail on one rank ends in a vote, so that a failure on one is an error on all, and no rank waits for one that
//! has given up.

use super::bootstrap::{self, Bootstrap, LocalBootstrap};
use super::card::{self, Card, HeapPlan};
use super::heap::{self, DeviceMemory, Door, Heap, HeapKind, HostMemory, Links, Peer, Source};
use super::path::{Handover, Link, WorldPath};
use super::world::{Own, Parts};
use super::{ShmemError, World};
use crate::cuda::{self, DeviceInfo, FABRIC_HANDLE_BYTES, Sharing};
use crate::engine::Engine;
use crate::units::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// What each heap has, if the program does not say: `64M`, `1G`.
const SIZE_VARIABLE: &str = "WARPBELL_SYMMETRIC_SIZE";
/// Where heaps live, if the program does not say: `auto`, `device`, `host`.
const KIND_VARIABLE: &str = "WARPBELL_HEAP";

/// Settings of a world before it exists.
#[derive(Debug)]
#[must_use]
pub struct WorldBuilder {
    engine: Engine,
    bootstrap: Option<Box<dyn Bootstrap>>,
    heap_bytes: Option<usize>,
    heap: Option<HeapKind>,
    timeout: Option<Duration>,
    checked: bool,
}

impl WorldBuilder {
    pub(super) fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            bootstrap: None,
            heap_bytes: None,
            heap: None,
            timeout: None,
            checked: cfg!(debug_assertions),
        }
    }

    /// Bytes of each PE's heap, the same on every rank. Without it: `WARPBELL_SYMMETRIC_SIZE` (`64M`, `1G`), else 1 GiB on GPUs, less
    /// if less is free, and 64 MiB on CPU engines.
    pub fn heap_bytes(mut self, bytes: usize) -> Self {
        self.heap_bytes = Some(bytes);
        self
    }

    /// Where heaps live. Without it: `WARPBELL_HEAP`, else [`HeapKind::Auto`].
    pub fn heap(mut self, kind: HeapKind) -> Self {
        self.heap = Some(kind);
        self
    }

    /// How long collective calls of the host wait for the others. Without it: `WARPBELL_TIMEOUT` (`90s`), else 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How ranks find each other. Without it: what the launcher's environment says, else a world of one.
    pub fn bootstrap(mut self, bootstrap: Box<dyn Bootstrap>) -> Self {
        self.bootstrap = Some(bootstrap);
        self
    }

    /// Whether kernels that were built with checks (`WB_CHECKED`) find out which bytes of the heap are allocated. Costs an eighth of a
    /// byte of the engine's memory for each 64 of the heap. Without it: in debug builds.
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// Builds the world. Collective.
    pub fn build(self) -> Result<World, ShmemError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let heap_bytes = match (self.heap_bytes, variable(SIZE_VARIABLE)) {
            (Some(bytes), _) => Some(bytes),
            (None, Some(text)) => Some(size(&text)?),
            (None, None) => None,
        };
        let kind = match (self.heap, variable(KIND_VARIABLE)) {
            (Some(kind), _) => kind,
            (None, Some(text)) => text.parse().map_err(|e| setting(KIND_VARIABLE, e))?,
            (None, None) => HeapKind::Auto,
        };
        let (bootstrap, timeout) = match (self.bootstrap, self.timeout) {
            (Some(given), Some(timeout)) => (given, timeout),
            (Some(given), None) => (given, bootstrap::timeout_from_env()?),
            (None, timeout) => {
                let (found, timeout) = bootstrap::from_env_within(timeout)?;
                (found.unwrap_or_else(|| Box::new(LocalBootstrap::alone())), timeout)
            }
        };
        let ranks = Ranks { bootstrap: &*bootstrap, within: timeout };
        let built = Building { engine: &self.engine, ranks, checked: self.checked }.run(heap_bytes, kind);
        match built {
            Ok(parts) => World::new(self.engine, parts, bootstrap, timeout),
            Err(e) => {
                // An end in order: the others have an error of their own.
                bootstrap.leave();
                Err(e)
            }
        }
    }
}

fn size(text: &str) -> Result<usize, ShmemError> {
    let bytes: Bytes = text.parse().map_err(|e| setting(SIZE_VARIABLE, e))?;
    usize::try_from(bytes.0).map_err(|e| setting(SIZE_VARIABLE, e))
}

fn setting(name: &'static str, e: impl std::fmt::Display) -> ShmemError {
    ShmemError::Setting { name, reason: e.to_string() }
}

/// The others, while there is no world yet.
#[derive(Clone, Copy)]
struct Ranks<'a> {
    bootstrap: &'a dyn Bootstrap,
    within: Duration,
}

/// What each rank answered, or the ranks that failed and why.
type Vote<T> = Result<Vec<T>, Vec<(usize, String)>>;

impl Ranks<'_> {
    fn me(&self) -> usize {
        self.bootstrap.rank()
    }

    /// Tells everybody how this rank fared, and hears it of all: an answer from each, or who failed.
    fn vote<T: Serialize + DeserializeOwned>(&self, mine: &Result<T, String>) -> Result<Vote<T>, ShmemError> {
        let bytes = serde_json::to_vec(mine).unwrap_or_default();
        let all = self.bootstrap.allgather(&bytes, self.within)?;
        let read = |bytes: &Vec<u8>| {
            let heard: Result<Result<T, String>, _> = serde_json::from_slice(bytes);
            heard.unwrap_or_else(|_| Err("it does not build a world, or is of another version".to_owned()))
        };
        let (mut answers, mut failures) = (Vec::with_capacity(all.len()), Vec::new());
        for (rank, answer) in all.iter().map(read).enumerate() {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(reason) => failures.push((rank, reason)),
            }
        }
        Ok(if failures.is_empty() { Ok(answers) } else { Err(failures) })
    }
}

/// Who failed, in one line: each reason once, with the ranks that gave it.
fn failed(failures: &[(usize, String)]) -> String {
    super::error::by_rank(failures.iter().map(|(rank, reason)| (*rank, reason.as_str())))
}

/// A heap as one rank has it, and how it was come by.
struct Made {
    heap: Heap,
    links: Links,
    handover: Handover,
}

struct Building<'a> {
    engine: &'a Engine,
    ranks: Ranks<'a>,
    checked: bool,
}

impl Building<'_> {
    fn run(&self, heap_bytes: Option<usize>, kind: HeapKind) -> Result<Parts, ShmemError> {
        let door = Door::open().map_err(|e| format!("no Unix socket: {e}"));
        let card = match &door {
            Ok(door) => Card::of(self.engine, heap_bytes, kind).map(|card| Card {
                door: door.name.clone(),
                token: door.token.clone(),
                ..card
            }),
            Err(e) => Err(e.clone()),
        };
        let cards = self.ranks.vote(&card)?.map_err(|f| self.no_heap(heap_bytes, failed(&f)))?;
        let door = door.map_err(|e| self.no_heap(heap_bytes, e))?;
        let plan = HeapPlan::of(&cards)?;
        let gpus = cards.iter().filter(|c| c.gpu.is_some()).count();
        let mut note = None;
        let made = if gpus > 0 && plan.kind != HeapKind::Host {
            match self.on_device(&door, &cards, &plan)? {
                Ok(made) => made,
                // A CPU engine reaches no GPU's memory: that is no news, and no reason for a note.
                Err(reason) if plan.kind == HeapKind::Auto => {
                    note = (gpus == cards.len()).then_some(reason);
                    self.in_host(&door, &cards, &plan)?.map_err(|second| {
                        let first = note.take().map(|n| format!("; nor in GPU memory: {n}")).unwrap_or_default();
                        self.no_heap(Some(plan.asked), second + &first)
                    })?
                }
                Err(reason) => return Err(self.no_heap(Some(plan.asked), reason)),
            }
        } else {
            self.in_host(&door, &cards, &plan)?.map_err(|reason| self.no_heap(Some(plan.asked), reason))?
        };
        let place = (self.ranks.me(), cards.len());
        let own = Own::new(self.engine, &made.heap, plan.asked, place, self.checked).map_err(|e| e.to_string());
        let all = self.ranks.vote(&own.as_ref().map(drop).map_err(String::clone))?;
        all.map_err(|f| self.no_heap(Some(plan.asked), failed(&f)))?;
        let own = own.map_err(|e| self.no_heap(Some(plan.asked), e))?;
        let path = self.path(&made, &cards, &plan, note);
        Ok(Parts { heap: made.heap, own, path, hosts: cards.into_iter().map(|c| c.host).collect() })
    }

    fn no_heap(&self, bytes: Option<usize>, reason: String) -> ShmemError {
        ShmemError::Heap { bytes: bytes.unwrap_or(0), pes: self.ranks.bootstrap.size(), reason }
    }

    fn path(&self, made: &Made, cards: &[Card], plan: &HeapPlan, note: Option<String>) -> WorldPath {
        let (links, on_device) = (made.links, made.heap.is_on_device());
        let link = match (cards.len(), on_device, cards.iter().any(|c| c.gpu.is_some())) {
            (1, ..) => Link::Alone,
            (_, true, _) if links.one_gpu => Link::OneGpu,
            (_, true, _) if links.atomics => Link::NvLink,
            (_, true, _) => Link::Pcie,
            (_, false, true) => Link::HostMemory,
            (_, false, false) => Link::SharedMemory,
        };
        WorldPath {
            transport: "peer",
            pes: cards.len(),
            hosts: card::hosts(cards).len(),
            link,
            handover: made.handover,
            heap_bytes: plan.asked,
            on_device,
            atomics: links.atomics,
            note,
            via: self.ranks.bootstrap.via(),
        }
    }

    /// Heaps in GPU memory, or why not. Collective.
    fn on_device(&self, door: &Door, cards: &[Card], plan: &HeapPlan) -> Result<Result<Made, String>, ShmemError> {
        let me = self.ranks.me();
        let across = card::hosts(cards).len() > 1;
        let sharing = if across { Sharing::Fabric } else { Sharing::Host };
        let prepare = || -> Result<(DeviceMemory, bool), String> {
            let atomics = reach(cards, me)?;
            let context =
                self.engine.space().gpu_context().ok_or("it runs on a CPU engine, which reaches no GPU's memory")?;
            let memory =
                DeviceMemory::new(context, plan.stride, sharing, &cards[me].token).map_err(|e| e.to_string())?;
            Ok((memory, atomics))
        };
        let prepared = prepare();
        let mine = match &prepared {
            Ok((memory, _)) => Ok(memory.fabric().map(|h| h.to_vec())),
            Err(e) => Err(e.clone()),
        };
        let handles = match self.ranks.vote(&mine)? {
            Ok(handles) => handles,
            Err(failures) => return Ok(Err(failed(&failures))),
        };
        let mapped = prepared.and_then(|(mut memory, atomics)| {
            let sources: Vec<Option<Source>> =
                (0..cards.len()).map(|pe| source(cards, me, pe, handles[pe].as_deref())).collect::<Result<_, _>>()?;
            let context = self.engine.space().gpu_context().ok_or("it runs on a CPU engine")?;
            let unit = cards.iter().filter_map(|c| c.gpu.as_ref()).map(|g| g.granularity).max().unwrap_or(1);
            let align = unit.max(heap::HEAP_ALIGN);
            let range = memory.map_all(door, me, &sources, align, self.ranks.within)?;
            let heap = Heap::in_gpu_memory(self.engine.space(), context, range, me, plan.bytes, plan.stride);
            // New memory may hold anything.
            heap.clear(0, plan.bytes).map_err(|e| e.to_string())?;
            Ok((memory, heap, Links { one_gpu: one_gpu(cards), atomics }))
        });
        let mine = mapped.as_ref().map(|(.., links)| *links).map_err(String::clone);
        // What was made is kept until all have mapped it.
        match (self.ranks.vote(&mine)?, mapped) {
            (Ok(links), Ok((memory, heap, _))) => {
                drop(memory);
                let handover = if across { Handover::Fabric } else { Handover::VirtualMemory };
                Ok(Ok(Made { heap, links: all(&links), handover }))
            }
            (Err(failures), _) => Ok(Err(failed(&failures))),
            (Ok(_), Err(e)) => Ok(Err(e)),
        }
    }

    /// Heaps in host memory, or why not. Collective.
    fn in_host(&self, door: &Door, cards: &[Card], plan: &HeapPlan) -> Result<Result<Made, String>, ShmemError> {
        let me = self.ranks.me();
        let total = plan.stride * cards.len();
        let alone = cards.len() == 1;
        // Rank 0 makes the file that all map.
        let file = one_host(cards).and_then(|()| {
            let made = (me == 0 && !alone).then(|| heap::file(total)).transpose();
            made.map_err(|e| format!("no shared memory of {}: {e}", Bytes(total as u64)))
        });
        if let Err(failures) = self.ranks.vote(&file.as_ref().map(drop).map_err(String::clone))? {
            return Ok(Err(failed(&failures)));
        }
        let map = || -> Result<(Heap, Links), String> {
            let others: Vec<usize> = (1..cards.len()).collect();
            let own = file?;
            let memory = match (&own, alone) {
                (_, true) => HostMemory::private(total),
                (Some(file), _) => {
                    door.exchange(me, Some(file.as_fd()), &others, &[], self.ranks.within)?;
                    HostMemory::of(file.as_fd(), total)
                }
                (None, _) => {
                    let came = door.exchange(me, None, &[], &[peer(cards, 0)], self.ranks.within)?;
                    let file = came.into_iter().next().ok_or("no heap came from rank 0")?;
                    HostMemory::of(file.as_fd(), total)
                }
            };
            let memory =
                Arc::new(memory.map_err(|e| format!("mapping {} of shared memory: {e}", Bytes(total as u64)))?);
            let heap = Heap::in_host_memory(self.engine.space(), memory, me, plan.bytes, plan.stride);
            let heap = heap.map_err(|e| e.to_string())?;
            Ok((heap, Links { one_gpu: one_gpu(cards), atomics: host_atomics(cards) }))
        };
        let mapped = map();
        let mine = mapped.as_ref().map(|(_, links)| *links).map_err(String::clone);
        match (self.ranks.vote(&mine)?, mapped) {
            (Ok(links), Ok((heap, _))) => {
                let handover = if alone { Handover::OneMapping } else { Handover::MemoryFile };
                Ok(Ok(Made { heap, links: all(&links), handover }))
            }
            (Err(failures), _) => Ok(Err(failed(&failures))),
            (Ok(_), Err(e)) => Ok(Err(e)),
        }
    }
}

/// What holds for the links of all ranks.
fn all(links: &[Links]) -> Links {
    Links { one_gpu: links.iter().all(|l| l.one_gpu), atomics: links.iter().all(|l| l.atomics) }
}

fn peer(cards: &[Card], rank: usize) -> Peer {
    Peer { rank, name: cards[rank].door.clone(), token: cards[rank].token.clone() }
}

fn one_gpu(cards: &[Card]) -> bool {
    let first = cards[0].gpu.as_ref().map(|g| g.uuid);
    first.is_some() && cards.iter().all(|c| c.gpu.as_ref().map(|g| g.uuid) == first)
}

/// Whether atomics on host memory work between all: CPU threads, or one GPU, or GPUs whose link to the host carries them (CUDA
/// promises nothing else).
fn host_atomics(cards: &[Card]) -> bool {
    one_gpu(cards) || cards.iter().filter_map(|c| c.gpu.as_ref()).all(|g| g.host_atomics)
}

/// Loads and stores reach PEs of one host only, in host memory.
fn one_host(cards: &[Card]) -> Result<(), String> {
    let hosts = card::hosts(cards);
    if hosts.len() == 1 {
        return Ok(());
    }
    let names: Vec<String> =
        hosts.iter().map(|(host, ranks)| format!("rank {} on {host}", card::ranges(ranks))).collect();
    Err(format!(
        "no transport reaches PEs on other hosts ({}): start all ranks on one host, or use GPUs of one NVLink domain",
        names.join(", ")
    ))
}

/// Where this rank gets the memory of PE `pe` from; nothing for its own.
fn source(cards: &[Card], me: usize, pe: usize, fabric: Option<&[u8]>) -> Result<Option<Source>, String> {
    let (mine, card) = (&cards[me], &cards[pe]);
    if pe == me {
        Ok(None)
    } else if card.process == mine.process {
        Ok(Some(Source::Here(card.token.clone())))
    } else if card.host == mine.host {
        Ok(Some(Source::Host(peer(cards, pe))))
    } else {
        let handle: Option<[u8; FABRIC_HANDLE_BYTES]> = fabric.and_then(|h| h.try_into().ok());
        handle.map(|h| Some(Source::Fabric(h))).ok_or_else(|| format!("rank {pe} gave no fabric handle"))
    }
}

/// Whether this rank's GPU reaches the memory of all others, and with atomics, as far as can be known before it is tried.
fn reach(cards: &[Card], me: usize) -> Result<bool, String> {
    let Some(mine) = &cards[me].gpu else {
        return Err("it runs on a CPU engine, which reaches no GPU's memory".to_owned());
    };
    if !mine.descriptors {
        return Err(format!(
            "{} has no memory that can be handed to others (cuMemCreate); use a heap in host memory",
            mine.name
        ));
    }
    let one_host = one_host(cards);
    if one_host.is_err() && !mine.fabric {
        return one_host.map(|()| false);
    }
    let visible = DeviceInfo::all().map_err(|e| e.to_string())?;
    let ordinal = |uuid| visible.iter().find(|d| d.uuid == uuid).map(|d| d.ordinal);
    let here = ordinal(mine.uuid);
    let mut atomics = true;
    for (rank, card) in cards.iter().enumerate() {
        let Some(theirs) = &card.gpu else {
            return Err(format!(
                "rank {rank} runs on a CPU engine, whose memory is not on a GPU; use a heap in host memory"
            ));
        };
        if theirs.uuid == mine.uuid {
            continue;
        }
        // A GPU that this process does not see (CUDA_VISIBLE_DEVICES, another host) cannot be asked for: mapping it shows.
        let (Some(from), Some(to)) = (here, ordinal(theirs.uuid)) else {
            atomics &= card.host != cards[me].host;
            continue;
        };
        let link = cuda::peer_link(from, to).map_err(|e| e.to_string())?;
        if !link.access {
            return Err(format!(
                "{} of rank {me} cannot reach the memory of {} of rank {rank} (cuDeviceCanAccessPeer): use GPUs that NVLink or a \
                 PCIe switch connects (nvidia-smi topo -p2p r), or a heap in host memory (WARPBELL_HEAP=host)",
                mine.name, theirs.name
            ));
        }
        atomics &= link.native_atomics;
    }
    Ok(atomics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Place;

    fn settings(world: LocalBootstrap) -> WorldBuilder {
        World::builder(&Engine::cpu().unwrap()).bootstrap(Box::new(world)).timeout(Duration::from_secs(30))
    }

    /// Builds a world of threads as processes do: each maps the others' memory for itself.
    fn each<T: Send>(n: usize, work: impl Fn(usize, WorldBuilder) -> T + Sync) -> Vec<T> {
        let work = &work;
        std::thread::scope(|s| {
            let all: Vec<_> = LocalBootstrap::all(n)
                .into_iter()
                .enumerate()
                .map(|(rank, b)| s.spawn(move || work(rank, settings(b))))
                .collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_reach_each_other_through_shared_memory() {
        each(3, |rank, builder| {
            let world = builder.heap_bytes(1 << 20).build().unwrap();
            let text = world.path().to_string();
            assert_eq!(text, "peer 3 PEs (shared memory), heap 1 MiB host, atomics native");
            let sym = world.malloc::<u32>(10).unwrap();
            sym.put(rank, &[rank as u32 + 1], (rank + 1) % 3).unwrap();
            world.barrier_all().unwrap();
            let before = (rank + 2) % 3;
            assert_eq!(sym.read(before, 1).unwrap(), [before as u32 + 1]);
            assert_eq!(sym.get(rank, 1, (rank + 1) % 3).unwrap(), [rank as u32 + 1]);
            // A kernel's stores to the others arrive too.
            let out = world.engine().allocate(Place::Device, 8).unwrap();
            out.set(0, 70 + rank as u64).unwrap();
            let (to, flag) = (world.malloc::<u64>(1).unwrap(), world.malloc::<u64>(1).unwrap());
            let grid = crate::engine::Grid { blocks: 1, threads: world.engine().info().warp_width };
            let args = crate::args!(&world, &to, &out, 1u64, &flag, 1u64);
            world.engine().launch("wb_shmem_ring", grid, args).unwrap().finish().unwrap();
            assert_eq!(to.read(0, 1).unwrap(), [70 + before as u64]);
            world.barrier_host().unwrap();
        });
    }

    #[test]
    fn different_sizes_are_an_error_on_all() {
        let errors = each(3, |rank, builder| {
            builder.heap_bytes(if rank == 1 { 2 << 20 } else { 1 << 20 }).build().unwrap_err().to_string()
        });
        for e in errors {
            assert!(e.contains("ranks 0, 2: 1 MiB") && e.contains("rank 1: 2 MiB"), "{e}");
        }
    }

    #[test]
    fn a_rank_that_does_not_come_is_named() {
        let mut all = LocalBootstrap::all(2);
        let absent = all.pop().unwrap();
        let builder = settings(all.pop().unwrap()).timeout(Duration::from_millis(20));
        let e = builder.build().unwrap_err().to_string();
        assert!(e.contains("rank 1"), "{e}");
        drop(absent);
    }

    #[test]
    fn a_world_of_one_needs_nobody() {
        let world = World::builder(&Engine::cpu().unwrap()).bootstrap(Box::new(LocalBootstrap::all(1).remove(0)));
        let world = world.heap_bytes(1 << 20).build().unwrap();
        assert_eq!((world.my_pe(), world.n_pes()), (0, 1));
        assert!(world.path().to_string().contains("1 PE (alone), heap 1 MiB"));
        world.barrier_all().unwrap();
    }

    #[test]
    fn hosts_out_of_reach_are_named() {
        let card = |host: &str| {
            let mut card = Card::of(&Engine::cpu().unwrap(), None, HeapKind::Auto).unwrap();
            card.host.name = host.to_owned();
            card
        };
        let e = one_host(&[card("a"), card("a"), card("b")]).unwrap_err();
        assert!(e.contains("rank 0-1 on a") && e.contains("rank 2 on b"), "{e}");
        assert!(one_host(&[card("a"), card("a")]).is_ok());
        assert!(reach(&[card("a"), card("a")], 0).unwrap_err().contains("CPU engine"));
        assert!(matches!(source(&[card("a"), card("a")], 0, 0, None), Ok(None)));
        assert!(matches!(source(&[card("a"), card("a")], 0, 1, None), Ok(Some(Source::Here(_)))));
        let mut cards = [card("a"), card("a"), card("b")];
        cards[1].process = "another".to_owned();
        cards[2].process = "another".to_owned();
        assert!(matches!(source(&cards, 0, 1, None), Ok(Some(Source::Host(p))) if p.rank == 1));
        assert!(source(&cards, 0, 2, None).is_err());
        assert!(matches!(source(&cards, 0, 2, Some(&[1; FABRIC_HANDLE_BYTES])), Ok(Some(Source::Fabric(_)))));
    }

    #[test]
    fn settings_of_the_environment_are_read() {
        assert_eq!(size("64M").unwrap(), 64 << 20);
        let e = size("much").unwrap_err().to_string();
        assert!(e.contains("WARPBELL_SYMMETRIC_SIZE") && e.contains("much"), "{e}");
    }
}
