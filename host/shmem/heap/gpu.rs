//! GPU memory for heaps: each PE shares its own memory, and maps the memory of all PEs side by side.

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
    /// Token by which PEs of the same process find the memory.
    token: String,
    descriptor: Option<OwnedFd>,
    /// Fabric handle for PEs of other hosts.
    fabric: Option<[u8; FABRIC_HANDLE_BYTES]>,
}

/// The source of one PE's memory.
#[derive(Clone, Debug)]
pub(in super::super) enum Source {
    /// This PE's own memory.
    OwnMemory,
    /// No source: the PE is out of reach.
    Nowhere,
    /// A PE of this process, found by its token.
    Here(String),
    /// A process of this host, which sends a file descriptor.
    Host(Peer),
    /// Another host of the NVLink domain, by its fabric handle.
    Fabric([u8; FABRIC_HANDLE_BYTES]),
}

/// The reach of a world's GPUs into each other's memory, as one PE sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct Links {
    /// True if all PEs are on one GPU.
    pub(in super::super) one_gpu: bool,
    /// True if atomics work between all PEs.
    pub(in super::super) atomics: bool,
}

/// Locks the memory of this process's PEs, by token. A handle is valid only in the process that created it, and PEs
/// there need no descriptor.
fn here() -> MutexGuard<'static, HashMap<String, Arc<PhysicalMemory>>> {
    static HERE: OnceLock<Mutex<HashMap<String, Arc<PhysicalMemory>>>> = OnceLock::new();
    HERE.get_or_init(Mutex::default).lock()
}

impl DeviceMemory {
    /// Allocates `bytes` bytes, a multiple of the granularity, on the GPU of `context`.
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

    /// Returns the handle that PEs of other hosts import.
    pub(in super::super) fn fabric(&self) -> Option<[u8; FABRIC_HANDLE_BYTES]> {
        self.fabric
    }

    /// Maps the memory of all PEs that are within reach, including this PE's, each at its place. `others` has one entry
    /// for each PE.
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
        let total = stride.checked_mul(others.len()).ok_or("the heaps of all PEs together exceed 64-bit addresses")?;
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
                return found.ok_or_else(|| format!("rank {pe} of this process has freed its heap"));
            }
            Source::Host(_) => {
                let fd = came.get(&pe).ok_or_else(|| format!("rank {pe} sent no file descriptor"))?;
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
