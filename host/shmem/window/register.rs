//! Registration of memory as symmetric: all PEs describe theirs, get to each other's, and agree.

use super::reach::{Exported, Keys, MemoryInfo, Reach};
use super::{Shared, Window};
use crate::engine::{EngineKind, abi};
use crate::memory::{Place, Region};
use crate::rdma;
use crate::shmem::network::Registrations;
use crate::shmem::registered::RegisteredMemory;
use crate::shmem::vote::{ballot, by_rank, count};
use crate::shmem::{ShmemError, World};
use bytemuck::Zeroable;
use std::sync::Arc;

/// This PE's memory, registered and described to the others.
struct Prepared {
    region: Region,
    registrations: Option<Registrations>,
    exported: Exported,
}

impl World {
    /// Registers `len` elements of `T`, which are all of `region`; or tells the other PEs why this one has none. Collective.
    pub(in crate::shmem) fn register<T>(
        &self,
        region: Result<Region, String>,
        len: usize,
    ) -> Result<Window<T>, ShmemError> {
        const CALL: &str = "symmetric_from";
        let prepared = region.and_then(|region| self.prepare(region));
        let last = self.windows().last();
        let info = prepared.as_ref().map(|p| p.exported.info(last, p.registrations.as_ref().map(keys)));
        let call = format!("{CALL} with elements of {} bytes", size_of::<T>());
        let all = self.exchange(&call, &ballot(&info.map_err(String::clone)))?;
        Ok(Window::new(self.make(CALL, &all, prepared)?, len))
    }

    /// Registers this PE's memory with the adapter and describes it; or says why that is not possible.
    fn prepare(&self, region: Region) -> Result<Prepared, String> {
        let registrations = match self.network() {
            Some(network) => {
                let is_soft = network.path().transport == rdma::Transport::Soft;
                if !is_soft && self.engine().kind() == EngineKind::Gpu && region.place() != self.heap().place() {
                    return Err(elsewhere(region.place()).to_owned());
                }
                Some(network.register_symmetric(&region).map_err(|e| e.to_string())?)
            }
            None => None,
        };
        let exported = Exported::new(&region)?;
        Ok(Prepared { region, registrations, exported })
    }

    /// Gets to the memory of all PEs, once all have described theirs.
    fn make(&self, call: &str, all: &[Vec<u8>], prepared: Result<Prepared, String>) -> Result<Arc<Shared>, ShmemError> {
        let infos: Vec<MemoryInfo> = count(all, |e| format!("it sent no description of its memory: {e}"))
            .map_err(|failures| ShmemError::OnRanks { what: call.to_owned(), failures })?;
        let bytes: Vec<String> = infos.iter().map(|info| info.bytes.to_string()).collect();
        if bytes.iter().any(|b| *b != bytes[0]) {
            return Err(ShmemError::Unequal {
                what: "bytes of the memory that symmetric_from registers",
                asked: bytes,
            });
        }
        // No rank failed, this one included.
        let own = prepared
            .map_err(|reason| ShmemError::OnRanks { what: call.to_owned(), failures: vec![(self.my_pe(), reason)] })?;
        let id = self.windows().begin(infos.iter().map(|info| info.last));
        // Each PE keeps the registry's entry and the descriptors of its memory until all have voted.
        let (shared, _exported) = self.share(&infos, own, id);
        self.vote(call, shared).inspect_err(|_| {
            let memory = self.windows().cancel(id);
            drop(memory);
        })
    }

    fn share(&self, infos: &[MemoryInfo], own: Prepared, id: u64) -> (Result<Arc<Shared>, ShmemError>, Exported) {
        let Prepared { region, registrations, exported } = own;
        let own = RegisteredMemory { registrations, region, is_exported: exported.is_exported() };
        (self.reach(infos, &exported, own, id), exported)
    }

    fn reach(
        &self,
        infos: &[MemoryInfo],
        exported: &Exported,
        own: RegisteredMemory,
        id: u64,
    ) -> Result<Arc<Shared>, ShmemError> {
        let me = self.my_pe();
        let near: Vec<bool> = (0..infos.len()).map(|pe| self.heap().reaches(pe)).collect();
        let together: Vec<bool> = (0..infos.len()).map(|pe| self.hosts().get(pe) == self.hosts().get(me)).collect();
        let failed =
            |reason: String| ShmemError::OnRanks { what: "symmetric_from".to_owned(), failures: vec![(me, reason)] };
        let all = exported.reach(me, &own.region, infos, (&near, &together), self.timeout()).map_err(failed)?;
        let (mut here, mut reaches, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (pe, one) in all.into_iter().enumerate() {
            let (address, reach) = match one {
                Ok(reached) => reached,
                Err(reason) => {
                    tracing::debug!(pe, reason, "loads and stores do not reach the registered memory of a PE");
                    refused.push((pe, reason));
                    (0, Reach::Network)
                }
            };
            here.push(address);
            reaches.push(reach);
        }
        if !refused.is_empty() && own.registrations.is_none() {
            let why = by_rank(refused.iter().map(|(pe, reason)| (*pe, reason)));
            return Err(failed(format!("it does not get to the memory of {why}")));
        }
        let table = self.table(infos, &here, own.registrations.as_ref())?;
        let (base, bytes) = (own.region.address(), own.region.len());
        Ok(Arc::new(Shared { world: self.clone(), id, table, here, reaches, base, bytes, own: Some(own) }))
    }

    /// Returns `wb_window_peer` of each PE in memory near the kernels.
    fn table(
        &self,
        infos: &[MemoryInfo],
        here: &[u64],
        registrations: Option<&Registrations>,
    ) -> Result<Region, ShmemError> {
        let peer = |(pe, info): (usize, &MemoryInfo)| {
            let keys = info.keys.unwrap_or(Keys { address: 0, data: 0, strict: 0 });
            let own = registrations.filter(|_| pe == self.my_pe());
            abi::WindowPeer {
                here: here[pe],
                address: keys.address,
                key: keys.data.to_be(),
                strict_key: keys.strict.to_be(),
                local_key: own.map_or(0, |own| own.data.local_key()).to_be(),
                ..abi::WindowPeer::zeroed()
            }
        };
        let peers: Vec<abi::WindowPeer> = infos.iter().enumerate().map(peer).collect();
        let table = self.engine().allocate(Place::Device, size_of_val(&peers[..]))?;
        table.set_slice(0, &peers)?;
        Ok(table)
    }
}

fn keys(registrations: &Registrations) -> Keys {
    let Registrations { data, strict } = registrations;
    Keys { address: data.address(), data: data.remote_key(), strict: strict.remote_key() }
}

/// Returns why an adapter does not serve memory in a place where the heap is not: its writes to GPU memory and to host
/// memory are not ordered, so a signal could be seen before the data.
fn elsewhere(place: Place) -> &'static str {
    match place {
        Place::Host => {
            "it is host memory, and the heap is in GPU memory: an adapter's writes to the two have no order; pass GPU \
                        memory, or build the world with a heap in host memory (WARPBELL_HEAP=host)"
        }
        Place::Device => {
            "it is GPU memory, and the heap is in host memory: an adapter's writes to the two have no order; build the \
                          world with a heap in GPU memory (WARPBELL_HEAP=device)"
        }
    }
}
