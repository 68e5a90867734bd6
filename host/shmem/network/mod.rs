//! The path to PEs that loads and stores do not reach: a PE's RDMA adapter, the queue pairs to every PE, and the tables
//! by which kernels find them.
//!
//! The heap is registered twice. The registration for data has relaxed ordering if the adapter supports it. The strict
//! registration is for signals and atomic operations.
//!
//! All atomic operations of such a world go through the adapter, even on memory that loads and stores reach. The reason
//! is that an adapter's atomics are not atomic with respect to a processor's. So every PE has queue pairs to every PE,
//! including itself.

mod counters;
mod exchange;
#[cfg(feature = "internals")]
mod facts;
mod faults;
mod interface;
mod open;
mod recover;
mod registrations;
mod settings;
mod stream_queues;
mod tables;
mod watch;

pub(super) use counters::register;
pub(super) use exchange::ConnectionInfo;
#[cfg(feature = "internals")]
pub use facts::{TransportFacts, transports};
pub(super) use interface::{address_of_setting, reached_at};
pub(super) use open::{Available, Opening, candidates, choose, open};
pub use recover::{Recovered, Recovery};
pub(super) use recover::{Report, Reset, anew};
pub(super) use registrations::Registrations;
pub use settings::{NetworkPlan, NetworkSettings};
pub(super) use stream_queues::{Local, PrepareError, StreamQueues};

use crate::engine::{Engine, abi};
#[cfg(feature = "internals")]
use crate::memory::MemoryError;
use crate::memory::{Region, Space};
use crate::rdma::{
    Adapter, AdapterPath, MemoryRange, QueueAddress, QueuePair, QueuePlan, RdmaError, Registration, Rights,
};
use crate::shmem::bootstrap::Bootstrap;
use crate::wire::mlx5::Failure;
use faults::{Alert, Faults, failure_of};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use tables::Tables;

/// Bytes of each heap through which host calls move data to and from PEs out of reach (the bounce buffer).
pub(super) const BOUNCE_BYTES: usize = 256 << 10;

/// The network of one PE before its queue pairs are connected.
#[derive(Debug)]
pub(super) struct Prepared {
    plan: NetworkPlan,
    space: Space,
    control: Region,
    faults: Arc<Faults>,
    // The fields from here on drop in this order.
    queues: Vec<Vec<Box<dyn QueuePair>>>,
    registered: Registered,
    staging: Region,
    adapter: Box<dyn Adapter>,
}

/// The adapter's registrations of this PE's memory.
#[derive(Debug)]
struct Registered {
    data: Box<dyn Registration>,
    strict: Box<dyn Registration>,
    staging: Box<dyn Registration>,
}

/// The network of one PE.
pub(super) struct Network {
    shared: Arc<Shared>,
    /// `wb_control` for kernels that wait for memory in this world.
    control: Region,
    /// Address of `wb_network`.
    address: u64,
    stop: watch::Stop,
    space: Space,
    path: AdapterPath,
    plan: NetworkPlan,
}

/// The state that the watch thread shares with the network.
struct Shared {
    /// `None` once the network is dropped.
    parts: Mutex<Option<WorldParts>>,
    faults: Arc<Faults>,
}

/// A queue pair: the PE at its other end, and its number among the queue pairs to that PE.
pub(super) type Which = (usize, usize);

struct WorldParts {
    plan: NetworkPlan,
    // The fields from here on drop in this order: connections, kernel tables, registrations, memory, adapter.
    queues: Vec<Vec<Box<dyn QueuePair>>>,
    /// Queue pairs of streams that are gone.
    unused: Vec<StreamQueues>,
    tables: Tables,
    registered: Registered,
    staging: Region,
    adapter: Box<dyn Adapter>,
    /// Number of the last set of queue pairs for a stream.
    next_set: u64,
    /// Queue pairs that a recovery has reset and that are not connected again.
    down: BTreeSet<Which>,
    /// PEs that were alerted to the failure of a queue pair to them.
    alerted: BTreeSet<usize>,
    /// Index of the queue pair at which the next look begins.
    next: usize,
}

impl Prepared {
    /// Registers the heap and creates queue pairs to each of `pes` PEs. Staging memory has the same place as the heap.
    ///
    /// # Safety
    /// The heap must stay valid until this value, and the network made from it, are dropped.
    pub(super) unsafe fn new(
        adapter: Box<dyn Adapter>,
        heap: MemoryRange,
        engine: &Engine,
        plan: NetworkPlan,
        pes: usize,
    ) -> Result<Self, RdmaError> {
        // SAFETY: the caller's promise.
        let register = |rights| unsafe { adapter.register(heap, rights) };
        let Registrations { data, strict } = Registrations::new((heap.address, heap.bytes), register)?;
        let space = engine.space();
        let faults = Arc::new(Faults::new(space)?);
        let control = engine.control_with_fault(faults.address())?;
        let memory = space.allocate(heap.place, pes * plan.queues_per_peer * plan.staging_of_queue())?;
        let staging = adapter.register_region(&memory, Rights::LOCAL_WRITE)?;
        let log_blocks = plan.queue_blocks.ilog2();
        let one = |_| {
            adapter.create(QueuePlan {
                space: space.clone(),
                log_blocks,
                collapsed: false,
                data: heap.place,
                receives: None,
            })
        };
        let to_pe = |_| (0..plan.queues_per_peer).map(one).collect::<Result<Vec<_>, _>>();
        let queues = (0..pes).map(to_pe).collect::<Result<Vec<_>, _>>()?;
        let registered = Registered { data, strict, staging };
        Ok(Self { plan, space: space.clone(), control, faults, queues, registered, staging: memory, adapter })
    }

    /// Returns the data that other PEs need to connect.
    pub(super) fn connection_info(&self) -> ConnectionInfo {
        let addresses = |queues: &Vec<Box<dyn QueuePair>>| queues.iter().map(|q| q.address()).collect();
        ConnectionInfo {
            heap: self.registered.data.address(),
            key: self.registered.data.remote_key(),
            strict_key: self.registered.strict.remote_key(),
            queues: self.queues.iter().map(addresses).collect(),
        }
    }

    /// Connects the queue pairs of PE `me` with those that each PE has for it, and builds the tables for kernels.
    ///
    /// `near` tells for each PE if loads and stores also reach its heap. `own` is `wb_network` without the fields that
    /// are known only here.
    ///
    /// Keeps all queue pairs when it fails, since other PEs may be connecting to them.
    pub(super) fn connect(
        &mut self,
        me: usize,
        connection_infos: &[ConnectionInfo],
        near: &[bool],
        own: abi::Network,
    ) -> Result<Tables, String> {
        for (pe, queues) in self.queues.iter_mut().enumerate() {
            let theirs: &[QueueAddress] = connection_infos[pe].queues.get(me).map_or(&[], Vec::as_slice);
            if theirs.len() != queues.len() {
                return Err(format!(
                    "PE {pe} has {} queue pairs to PE {me}, which has {} to PE {pe}",
                    theirs.len(),
                    queues.len()
                ));
            }
            for (index, (mine, peer)) in queues.iter_mut().zip(theirs).enumerate() {
                mine.connect(peer).map_err(|e| format!("queue pair {index} to PE {pe}: {e}"))?;
            }
        }
        let Self { plan, space, queues, registered, staging, .. } = self;
        Tables::new(space, *plan, queues, registered, staging, connection_infos, near, own).map_err(|e| e.to_string())
    }

    /// Returns the network, once every PE is connected.
    pub(super) fn connected(self, tables: Tables) -> Network {
        let Self { plan, space, control, faults, queues, registered, staging, adapter } = self;
        let (path, address) = (adapter.path(), tables.address());
        let parts = WorldParts {
            plan,
            queues,
            unused: Vec::new(),
            tables,
            registered,
            staging,
            adapter,
            next_set: 0,
            down: BTreeSet::new(),
            alerted: BTreeSet::new(),
            next: 0,
        };
        let shared = Arc::new(Shared { parts: Mutex::new(Some(parts)), faults });
        Network { shared, control, address, stop: watch::Stop::default(), space, path, plan }
    }
}

impl WorldParts {
    /// Returns all queue pairs.
    fn all(&self) -> Vec<Which> {
        let to_pe = |(pe, to): (usize, &Vec<Box<dyn QueuePair>>)| {
            (0..to.len()).map(move |index| (pe, index)).collect::<Vec<_>>()
        };
        self.queues.iter().enumerate().flat_map(to_pe).collect()
    }

    /// Returns the failure of a queue pair, if it has failed.
    fn fault(&self, which: Which) -> Option<Failure> {
        let fault = self.queues[which.0][which.1].fault()?;
        // Kernels may have seen the cause where the adapter only reports the state.
        let seen = || failure_of(self.tables.queue(self.plan, which).ok()?.failed);
        Some(if fault.syndrome.is_flush() { seen().unwrap_or(fault) } else { fault })
    }

    fn why(&self, which: Which) -> String {
        let (pe, index) = which;
        let why = self.queues[pe][index].failure();
        let down = || self.down.contains(&which).then(|| "it was reset and could not be connected again".to_owned());
        let why = why.or_else(down).unwrap_or_else(|| "its pending work requests did not complete".to_owned());
        format!("queue pair {index} to PE {pe}: {why}")
    }
}

impl Shared {
    fn parts(&self) -> MutexGuard<'_, Option<WorldParts>> {
        self.parts.lock()
    }

    /// Looks for failed queue pairs, within a time limit. Shows the first failure to kernels. Returns the alerts to
    /// send, each with its PE.
    fn look(&self) -> Vec<(usize, Alert)> {
        let started = Instant::now();
        let mut alerts = Vec::new();
        let mut parts = self.parts();
        let Some(parts) = parts.as_mut() else { return alerts };
        let epoch = self.faults.epoch();
        let (pes, per_peer) = (parts.queues.len(), parts.plan.queues_per_peer);
        for _ in 0..pes * per_peer {
            let (pe, index) = (parts.next / per_peer, parts.next % per_peer);
            parts.next = (parts.next + 1) % (pes * per_peer);
            if !parts.alerted.contains(&pe)
                && let Some(failure) = parts.fault((pe, index))
            {
                parts.alerted.insert(pe);
                self.faults.raise(epoch, pe, failure);
                alerts.push((pe, Alert::new(epoch, failure, &parts.why((pe, index)))));
            }
            if started.elapsed() > watch::LOOK {
                break;
            }
        }
        alerts
    }
}

impl Network {
    /// Starts the watch over the queue pairs. Kernels of this PE learn of failures, and so do the PEs at the other
    /// ends, through `bootstrap`.
    pub(super) fn watch(&self, bootstrap: &Arc<dyn Bootstrap>) {
        let faults = Arc::downgrade(&self.shared.faults);
        bootstrap.on_alert(Box::new(move |from, bytes| {
            if let Some(faults) = faults.upgrade() {
                faults.on_alert(from, bytes);
            }
        }));
        let started = watch::start(Arc::downgrade(&self.shared), Arc::downgrade(bootstrap), self.stop.clone());
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the thread that watches connections: kernels that wait for a failed connection end at their deadline");
        }
    }

    /// Ends the watch.
    pub(super) fn end_watch(&self) {
        self.stop.now();
    }

    /// Returns the address of `wb_network`, as kernels see it.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the address of `wb_control` for kernels that wait for memory in this world.
    pub(super) fn control_address(&self) -> u64 {
        self.control.address()
    }

    /// Returns the path of work requests through the adapter.
    pub(super) fn path(&self) -> &AdapterPath {
        &self.path
    }

    /// Returns the number and size of queue pairs.
    pub(super) fn plan(&self) -> NetworkPlan {
        self.plan
    }

    /// Changes the keys by which kernels name the heap of a PE; the second call undoes the first. No kernel may be using
    /// them.
    #[cfg(feature = "internals")]
    pub(super) fn flip_keys(&self, pe: usize) -> Result<(), MemoryError> {
        self.shared.parts().as_ref().map_or(Ok(()), |parts| parts.tables.flip_keys(pe))
    }

    /// Returns true if a connection is known to have failed.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.faults.any() || !self.failures().is_empty()
    }

    /// Returns each failed queue pair with the reason, and the failures that other PEs have reported.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(parts) = self.shared.parts().as_ref() {
            let has_failed = |w: &Which| parts.down.contains(w) || parts.queues[w.0][w.1].failure().is_some();
            all.extend(parts.all().into_iter().filter(has_failed).map(|which| parts.why(which)));
        }
        all.extend(self.shared.faults.told().into_iter().map(|(pe, text)| format!("PE {pe} says: {text}")));
        all
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.end_watch();
        let parts = self.shared.parts().take();
        // A kernel that did not end may still write to rings and doorbells, and read the words that its waits look at.
        // Leaks them all.
        if self.space.is_poisoned() {
            std::mem::forget((parts, self.control.clone(), self.shared.faults.clone()));
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Network({})", self.path)
    }
}

#[cfg(all(test, feature = "soft"))]
mod crowd_tests;
#[cfg(all(test, feature = "soft"))]
mod failure_tests;
#[cfg(all(test, feature = "soft"))]
mod stream_tests;
#[cfg(all(test, feature = "soft"))]
mod tests;
