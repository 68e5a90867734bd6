//! GPU memory for heaps: each PE's own, handed to the others and mapped side by side.

use super::descriptors::{DescriptorListener, Peer};
use crate::cuda::{self, AddressRange, FABRIC_HANDLE_BYTES, PhysicalMemory, Sharing};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Memory of one PE, before it is mapped.
#[derive(Debug)]
pub(in super::super) struct DeviceMemory {
    context: Arc<cuda::Context>,
    memory: Arc<PhysicalMemory>,
    /// Under which PEs of the same process find it.
    token: String,
    descriptor: Option<OwnedFd>,
    /// For PEs of other hosts.
    fabric: Option<[u8; FABRIC_HANDLE_BYTES]>,
}

/// Where the memory of each PE comes from.
#[derive(Clone, Debug)]
pub(in super::super) enum Source {
    /// This PE's own.
    OwnMemory,
    /// Nowhere: it is out of reach.
    Nowhere,
    /// A PE of this process, by its token.
    Here(String),
    /// A process of this host.
    Host(Peer),
    /// Another host of the NVLink domain.
    Fabric([u8; FABRIC_HANDLE_BYTES]),
}

/// What the GPUs of a world can do with each other's memory, as one PE sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct Links {
    /// All PEs are on one GPU.
    pub(in super::super) one_gpu: bool,
    /// Atomics work between all.
    pub(in super::super) atomics: bool,
}

/// Memory of the PEs of this process: a handle is only good in the process that made it, and there it needs no descriptor.
fn here() -> MutexGuard<'static, HashMap<String, Arc<PhysicalMemory>>> {
    static HERE: OnceLock<Mutex<HashMap<String, Arc<PhysicalMemory>>>> = OnceLock::new();
    HERE.get_or_init(Mutex::default).lock()
}

impl DeviceMemory {
    /// `bytes` bytes, a multiple of the granularity, on the GPU of `context`.
    pub(in super::super) fn new(
        context: &Arc<cuda::Context>,
        bytes: usize,
        sharing: Sharing,
        token: &str,
    ) -> Result<Self, cuda::CudaError> {
        let memory = Arc::new(PhysicalMemory::create(context, bytes, sharing)?);
        let descriptor = Some(memory.export_descriptor()?);
        let fabric = match sharing {
            Sharing::Fabric => Some(memory.export_fabric()?),
            Sharing::Host => None,
        };
        here().insert(token.to_owned(), memory.clone());
        Ok(Self { context: context.clone(), memory, token: token.to_owned(), descriptor, fabric })
    }

    /// What PEs of other hosts import.
    pub(in super::super) fn fabric(&self) -> Option<[u8; FABRIC_HANDLE_BYTES]> {
        self.fabric
    }

    /// Maps the memory of all PEs that are within reach, and this one's at its place among them. `others` has one entry for each PE.
    pub(in super::super) fn map_all(
        &mut self,
        listener: &DescriptorListener,
        me: usize,
        others: &[Source],
        align: usize,
        within: Duration,
    ) -> Result<AddressRange, String> {
        let stride = self.memory.len();
        let peers: Vec<Peer> = others
            .iter()
            .filter_map(|o| match o {
                Source::Host(peer) => Some(peer.clone()),
                _ => None,
            })
            .collect();
        let callers: Vec<usize> = peers.iter().map(|p| p.rank).collect();
        let mine = self.descriptor.take();
        let came = listener.exchange(me, mine.as_ref().map(AsFd::as_fd), &callers, &peers, within)?;
        drop(mine);
        let came: HashMap<usize, OwnedFd> = callers.into_iter().zip(came).collect();
        let total = stride.checked_mul(others.len()).ok_or("the heaps of all PEs are more than 64 bits can address")?;
        let mut range = AddressRange::reserve(&self.context, total, align).map_err(|e| e.to_string())?;
        for (pe, from) in others.iter().enumerate() {
            let memory = match from {
                Source::OwnMemory => self.memory.clone(),
                Source::Nowhere => continue,
                from => self.import(pe, from, &came, stride)?,
            };
            range.map(pe * stride, &memory).map_err(|e| format!("the heap of rank {pe}: {e}"))?;
        }
        Ok(range)
    }

    fn import(
        &self,
        pe: usize,
        from: &Source,
        came: &HashMap<usize, OwnedFd>,
        bytes: usize,
    ) -> Result<Arc<PhysicalMemory>, String> {
        let imported = match from {
            Source::OwnMemory | Source::Nowhere => return Ok(self.memory.clone()),
            Source::Here(token) => {
                let found = here().get(token).cloned();
                return found.ok_or_else(|| format!("rank {pe} of this process has given its heap up"));
            }
            Source::Host(_) => {
                let fd = came.get(&pe).ok_or_else(|| format!("no descriptor came from rank {pe}"))?;
                PhysicalMemory::import_descriptor(&self.context, fd.as_fd(), bytes)
            }
            Source::Fabric(handle) => PhysicalMemory::import_fabric(&self.context, handle, bytes),
        };
        imported.map(Arc::new).map_err(|e| format!("the heap of rank {pe}: {e}"))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        here().remove(&self.token);
    }
}
