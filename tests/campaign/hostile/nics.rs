//! Two software NICs of this process that reach each other over TCP, through a man in the middle.

use crate::middle::{Middle, Plan};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use warpbell::engine::Engine;
use warpbell::rdma::{
    Adapter, AdapterPath, MemoryRange, QueueAddress, QueuePair, QueuePlan, QueueRings, RdmaError, Registration, Rights,
};
use warpbell::shmem::World;
use warpbell::shmem::bootstrap::UniqueId;
use warpbell::soft::nic::{SoftNic, SoftNicConfig};
use warpbell::wire::mlx5::Failure;

const KEY: [u8; 32] = *b"a key of two halves, not alike..";
/// Time in which a busy machine makes a world.
const BUSY: Duration = Duration::from_secs(20);

/// A software NIC that tells others the address of the man in the middle in place of its own.
#[derive(Debug)]
struct Detoured {
    nic: SoftNic,
    own: SocketAddr,
    told: SocketAddr,
}

#[derive(Debug)]
struct DetouredPair {
    pair: Box<dyn QueuePair>,
    own: SocketAddr,
    told: SocketAddr,
}

impl Adapter for Detoured {
    fn path(&self) -> AdapterPath {
        self.nic.path()
    }

    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        // SAFETY: the caller's promise is the one that the NIC needs.
        unsafe { self.nic.register(memory, rights) }
    }

    fn create(&self, plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError> {
        let (own, told) = (self.own, self.told);
        Ok(Box::new(DetouredPair { pair: self.nic.create(plan)?, own, told }))
    }
}

impl QueuePair for DetouredPair {
    fn number(&self) -> u32 {
        self.pair.number()
    }

    fn address(&self) -> QueueAddress {
        let text =
            String::from_utf8_lossy(&self.pair.address().0).replace(&self.own.to_string(), &self.told.to_string());
        QueueAddress(text.into_bytes())
    }

    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        self.pair.connect(peer)
    }

    fn memory(&self) -> &QueueRings {
        self.pair.memory()
    }

    fn flags(&self) -> u32 {
        self.pair.flags()
    }

    fn failure(&self) -> Option<String> {
        self.pair.failure()
    }

    fn fault(&self) -> Option<Failure> {
        self.pair.fault()
    }

    fn reset(&mut self) -> Result<(), RdmaError> {
        self.pair.reset()
    }
}

/// End of a world of two PEs, all of whose data was right.
pub struct Ended {
    /// Number of segments that the man in the middle spoiled.
    pub spoiled: u32,
    /// Error of a PE.
    pub error: Option<String>,
    /// Messages of the initiators of connections.
    heard: Vec<Vec<u8>>,
}

/// Runs a world of two PEs, each of which puts to the other and gets from it.
///
/// # Errors
/// What is wrong: data, a panic, or a world that cannot be set up.
pub fn world(seed: u64, plan: Option<Plan>, keys: [[u8; 32]; 2], turns: u64) -> Result<Ended, String> {
    let id = UniqueId::create(Some("127.0.0.1")).map_err(|e| e.to_string())?;
    let middles: Vec<Middle> = (0..2).map(|i| Middle::new(seed ^ i, plan)).collect();
    let mut adapters = Vec::new();
    for (key, middle) in keys.iter().zip(&middles) {
        let options = "sockets,tcp,connect=8s,retry=8s,resend=200ms,silence=2s,heartbeat=200ms";
        let mut config = SoftNicConfig::new(*key).options(options).map_err(|e| e.to_string())?;
        config.listen = Some(Ipv4Addr::LOCALHOST.into());
        let nic = SoftNic::start(config).map_err(|e| e.to_string())?;
        let link = nic.path().link;
        let own =
            link.rsplit("tcp ").next().and_then(|at| at.parse().ok()).ok_or_else(|| format!("no port in `{link}`"))?;
        middle.lead_to(own);
        adapters.push(Detoured { nic, own, told: middle.at });
    }
    let id = Arc::new(id);
    let ended: Vec<Result<Result<(), String>, _>> = std::thread::scope(|s| {
        let ranks: Vec<_> = adapters
            .into_iter()
            .enumerate()
            .map(|(rank, adapter)| (rank, adapter, id.clone()))
            .map(|(rank, adapter, id)| s.spawn(move || work(rank, adapter, &id, turns)))
            .collect();
        ranks.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let spoiled = middles.iter().map(Middle::spoiled).sum();
    let heard = middles.iter().flat_map(Middle::heard).collect();
    let mut error = None;
    for end in ended {
        match end {
            Ok(Ok(())) => {}
            Ok(Err(e)) if e.starts_with("WRONG DATA") => return Err(e),
            Ok(Err(e)) => error = error.or(Some(e)),
            Err(_) => return Err("a PE panicked".to_owned()),
        }
    }
    Ok(Ended { spoiled, error, heard })
}

/// Runs a PE.
fn work(rank: usize, adapter: Detoured, id: &UniqueId, turns: u64) -> Result<(), String> {
    let engine = Engine::builder().threads(1).cpu().map_err(|e| e.to_string())?;
    let told = |e: warpbell::shmem::ShmemError| e.to_string();
    engine.set_deadline(BUSY).map_err(|e| e.to_string())?;
    let builder = World::builder(&engine).unique_id(id, rank, 2).heap_bytes(4 << 20).timeout(BUSY);
    let world = builder.adapter(Box::new(adapter)).build().map_err(told)?;
    const COUNT: usize = 20_000;
    let (to, mine) = (world.malloc::<u64>(COUNT).map_err(told)?, world.malloc::<u64>(COUNT).map_err(told)?);
    for turn in 0..turns {
        let values = |pe: usize| (0..COUNT as u64).map(|i| i * 7919 + turn * 31 + pe as u64).collect::<Vec<_>>();
        mine.write(0, &values(rank)).map_err(told)?;
        to.put(0, &values(rank), 1 - rank).map_err(told)?;
        world.barrier_all().map_err(told)?;
        let [put, got] = [to.read(0, COUNT).map_err(told)?, mine.get(0, COUNT, 1 - rank).map_err(told)?];
        for (what, data) in [("put", put), ("got", got)] {
            if data != values(1 - rank) {
                let at = data.iter().zip(values(1 - rank)).position(|(a, b)| *a != b);
                return Err(format!("WRONG DATA: {what} in turn {turn} on PE {rank}, first at {at:?}"));
            }
        }
        world.barrier_all().map_err(told)?;
    }
    Ok(())
}

/// Returns two keys, the second of which begins like the first.
pub fn keys(is_other: bool) -> [[u8; 32]; 2] {
    let mut other = KEY;
    if is_other {
        other[16..].reverse();
    }
    [KEY, other]
}

/// Returns what initiators of a connection between software NICs say.
///
/// # Errors
/// Those of [`world`].
pub fn heard() -> Result<Vec<Vec<u8>>, String> {
    static HEARD: OnceLock<Result<Vec<Vec<u8>>, String>> = OnceLock::new();
    HEARD.get_or_init(|| world(0, None, keys(false), 1).map(|ended| ended.heard)).clone()
}
