//! The ways in which the PEs get to each other's registered memory.
//!
//! | the other PE | its memory | way |
//! |---|---|---|
//! | in this process, CPU threads | host memory | its address |
//! | in this process, on the same GPU | any | its address |
//! | in this process, on another GPU | of cuMemAlloc | its address, with peer access |
//! | | mapped physical memory | mapped once more |
//! | in another process of the host | of cuMemAlloc | opened by its handle |
//! | | mapped physical memory | file descriptors, mapped |
//! | out of reach of loads and stores | any that the adapter registers | the adapter |

use crate::cuda::{self, AddressRange, Backing, IPC_HANDLE_BYTES, IpcMemory, PhysicalMemory};
use crate::memory::{Region, Space};
use crate::shmem::heap::{DescriptorListener, HEAP_ALIGN, Peer, secret};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The memory of one PE, as it describes it to the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MemoryInfo {
    pub(super) bytes: usize,
    /// Number of the last window that the PE knows.
    pub(super) last: u64,
    /// Token by which PEs of the same process find the memory.
    token: String,
    /// True if the PE's kernels run on a GPU.
    gpu: bool,
    /// The way for other processes of the host; or why there is none, and the next step.
    sharing: Result<Sharing, String>,
    /// Address and remote keys for adapters.
    pub(super) keys: Option<Keys>,
}

/// Address and remote keys of memory that is registered with an adapter.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Keys {
    pub(super) address: u64,
    pub(super) data: u32,
    pub(super) strict: u32,
}

/// The way in which other processes of the host get to GPU memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Sharing {
    /// The handle of an allocation, and the offset of the memory in it.
    Allocation { handle: Vec<u8>, offset: u64 },
    /// File descriptors of mapped physical memory of these lengths, and the offset of the memory in it.
    Descriptors { listener: String, token: String, bytes: Vec<usize>, offset: u64 },
}

/// The memory of another PE, as this PE reaches it. It is reachable while the value lives.
#[derive(Debug)]
pub(super) enum Reach {
    /// By the adapter alone.
    Network,
    /// By its address: a share of the PE's region, which is in this process.
    Here(Region),
    /// An allocation of another process.
    Opened { _memory: IpcMemory },
    /// Mapped physical memory. `_region` is that of a PE in this process.
    Mapped { _range: AddressRange, _region: Option<Region> },
}

/// Address of a PE's memory for loads and stores, or 0, and what keeps it; or why there is none, and the next step.
type Reached = Result<(u64, Reach), String>;

/// Locks the memory of this process's PEs, by token.
fn here() -> MutexGuard<'static, HashMap<String, Region>> {
    static HERE: OnceLock<Mutex<HashMap<String, Region>>> = OnceLock::new();
    HERE.get_or_init(Mutex::default).lock()
}

/// This PE's memory while the PEs reach for each other's.
pub(super) struct Exported {
    token: String,
    sharing: Result<Sharing, String>,
    gpu: bool,
    bytes: usize,
    descriptors: Vec<OwnedFd>,
    listener: Option<DescriptorListener>,
}

impl Exported {
    pub(super) fn new(region: &Region) -> Result<Self, String> {
        let gpu = region.space().gpu_context().is_some();
        let socket = |e| format!("cannot open a Unix socket: {e}");
        let listener = gpu.then(DescriptorListener::open).transpose().map_err(socket)?;
        let token = secret().map_err(|e| format!("cannot read random bytes: {e}"))?;
        let (mut descriptors, bytes) = (Vec::new(), region.len());
        let sharing = sharing(region, listener.as_ref(), &mut descriptors);
        here().insert(token.clone(), region.clone());
        Ok(Self { token, sharing, gpu, bytes, descriptors, listener })
    }

    pub(super) fn info(&self, last: u64, keys: Option<Keys>) -> MemoryInfo {
        let Self { token, sharing, gpu, bytes, .. } = self;
        MemoryInfo { bytes: *bytes, last, token: token.clone(), gpu: *gpu, sharing: sharing.clone(), keys }
    }

    /// Returns true if other processes may open the memory in a way that does not keep it.
    pub(super) fn is_exported(&self) -> bool {
        matches!(self.sharing, Ok(Sharing::Allocation { .. }))
    }

    /// Gets to the memory of the other PEs; `near` tells which of them loads and stores reach, and `together` which are on
    /// this host. Returns the address of each PE's memory, or why there is none. All PEs call it at the same time.
    pub(super) fn reach(
        &self,
        me: usize,
        region: &Region,
        infos: &[MemoryInfo],
        (near, together): (&[bool], &[bool]),
        within: Duration,
    ) -> Result<Vec<Reached>, String> {
        let found: Vec<Option<Region>> = infos.iter().map(|info| here().get(&info.token).cloned()).collect();
        let is_partner = |pe: usize| near[pe] && together[pe] && found[pe].is_none() && infos[pe].gpu;
        let partners: Vec<usize> = (0..infos.len()).filter(|pe| *pe != me && self.gpu && is_partner(*pe)).collect();
        let mut came = self.descriptors_of(me, infos, &partners, within)?;
        let one = |pe: usize| match &found[pe] {
            _ if pe == me => Ok((region.address(), Reach::Here(region.clone()))),
            _ if !near[pe] => Ok((0, Reach::Network)),
            Some(theirs) => in_process(region.space(), theirs),
            None if !together[pe] => {
                Err("it is on another host; use memory of World::malloc, or a transport with an adapter \
                                          (WARPBELL_TRANSPORT=mlx5, verbs or soft)"
                    .to_owned())
            }
            None => in_another(region.space(), &infos[pe], came.remove(&pe).unwrap_or_default()),
        };
        Ok((0..infos.len()).map(one).collect())
    }

    /// Passes file descriptors between processes: one for each mapping of each PE's memory.
    fn descriptors_of(
        &self,
        me: usize,
        infos: &[MemoryInfo],
        partners: &[usize],
        within: Duration,
    ) -> Result<HashMap<usize, Vec<OwnedFd>>, String> {
        let mut came: HashMap<usize, Vec<OwnedFd>> = HashMap::new();
        let Some(own) = &self.listener else { return Ok(came) };
        let peer = |rank: &usize| match &infos[*rank].sharing {
            Ok(Sharing::Descriptors { listener, token, bytes, .. }) => {
                Some((Peer { rank: *rank, name: listener.clone(), token: token.clone() }, bytes.len()))
            }
            _ => None,
        };
        let givers: Vec<(Peer, usize)> = partners.iter().filter_map(peer).collect();
        let rounds = givers.iter().map(|(_, n)| *n).chain([self.descriptors.len()]).max().unwrap_or(0);
        for round in 0..rounds {
            let from: Vec<Peer> = givers.iter().filter(|(_, n)| *n > round).map(|(peer, _)| peer.clone()).collect();
            let mine = self.descriptors.get(round).filter(|_| !partners.is_empty());
            let fds = own.exchange(me, mine.map(AsFd::as_fd), partners, &from, within)?;
            for (peer, fd) in from.iter().zip(fds) {
                came.entry(peer.rank).or_default().push(fd);
            }
        }
        Ok(came)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        here().remove(&self.token);
    }
}

/// Returns the way in which other processes of the host get to a region, or why there is none.
fn sharing(
    region: &Region,
    listener: Option<&DescriptorListener>,
    descriptors: &mut Vec<OwnedFd>,
) -> Result<Sharing, String> {
    let (Some(context), Some(listener), None) = (region.space().gpu_context(), listener, region.host()) else {
        return Err(
            "host memory that one process allocated is not shared with others; use memory of World::malloc, or a \
                    transport with an adapter (WARPBELL_TRANSPORT=soft)"
                .to_owned(),
        );
    };
    let text = |e: cuda::CudaError| e.to_string();
    let backing = context.backing(region.address(), region.len()).map_err(text)?;
    match backing.map_err(str::to_owned)? {
        Backing::Allocation { start } => {
            let handle = context.export_ipc(start).map_err(text)?.to_vec();
            Ok(Sharing::Allocation { handle, offset: region.address() - start })
        }
        Backing::Mapped { start, memory } => {
            for one in &memory {
                if !one.has_descriptor().map_err(text)? {
                    return Err("it is mapped physical memory that was created without a file descriptor; create it with \
                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, turn expandable segments off (PYTORCH_CUDA_ALLOC_CONF), or \
                                use memory of cuMemAlloc (cudaMalloc)"
                        .to_owned());
                }
                descriptors.push(one.export_descriptor().map_err(text)?);
            }
            let bytes = memory.iter().map(|m| m.len()).collect();
            let (listener, token) = (listener.name.clone(), listener.token.clone());
            Ok(Sharing::Descriptors { listener, token, bytes, offset: region.address() - start })
        }
    }
}

/// Gets to the memory `theirs` of a PE in this process.
fn in_process(space: &Space, theirs: &Region) -> Reached {
    let by_address = |address: u64| Ok((address, Reach::Here(theirs.clone())));
    match (space.gpu_context(), theirs.space().gpu_context(), theirs.host()) {
        (None, _, Some(host)) => by_address(host.as_ptr() as u64),
        (None, _, None) => {
            Err("it is GPU memory, and this PE's kernels run on CPU threads; use host memory".to_owned())
        }
        (Some(mine), Some(owner), None) if mine.raw() == owner.raw() => by_address(theirs.address()),
        (Some(mine), Some(owner), None) => {
            let text = |e: cuda::CudaError| e.to_string();
            match owner.backing(theirs.address(), theirs.len()).map_err(text)?.map_err(str::to_owned)? {
                Backing::Allocation { .. } => {
                    mine.access_peer(owner).map_err(text)?;
                    by_address(theirs.address())
                }
                Backing::Mapped { start, memory } => {
                    let range = mapped(mine, &memory)?;
                    let address = range.address() + (theirs.address() - start);
                    Ok((address, Reach::Mapped { _range: range, _region: Some(theirs.clone()) }))
                }
            }
        }
        // Pinned memory is mapped into all contexts, in general at its host address.
        (Some(_), Some(_), Some(host)) if host.as_ptr() as u64 == theirs.address() => by_address(theirs.address()),
        (Some(_), ..) => {
            Err("it is host memory that this PE's GPU does not have mapped; use GPU memory, or memory of World::malloc"
                .to_owned())
        }
    }
}

/// Gets to the memory of a PE in another process of this host.
fn in_another(space: &Space, info: &MemoryInfo, descriptors: Vec<OwnedFd>) -> Reached {
    let text = |e: cuda::CudaError| e.to_string();
    let sharing = info.sharing.as_ref().map_err(String::clone)?;
    let Some(context) = space.gpu_context() else {
        return Err(
            "it is GPU memory, and this PE's kernels run on CPU threads; use memory of World::malloc".to_owned()
        );
    };
    match sharing {
        Sharing::Allocation { handle, offset } => {
            let handle: [u8; IPC_HANDLE_BYTES] =
                handle.as_slice().try_into().map_err(|_| format!("its handle has {} bytes", handle.len()))?;
            let memory = IpcMemory::open(context, handle).map_err(text)?;
            Ok((memory.address() + offset, Reach::Opened { _memory: memory }))
        }
        Sharing::Descriptors { bytes, offset, .. } => {
            if descriptors.len() != bytes.len() {
                return Err(format!("it sent {} of {} file descriptors", descriptors.len(), bytes.len()));
            }
            let import = |(fd, bytes): (&OwnedFd, &usize)| {
                PhysicalMemory::import_descriptor(context, fd.as_fd(), *bytes).map(Arc::new).map_err(text)
            };
            let memory = descriptors.iter().zip(bytes).map(import).collect::<Result<Vec<_>, _>>()?;
            let range = mapped(context, &memory)?;
            Ok((range.address() + offset, Reach::Mapped { _range: range, _region: None }))
        }
    }
}

/// Maps physical memory side by side into the GPU of a context.
fn mapped(context: &Arc<cuda::Context>, memory: &[Arc<PhysicalMemory>]) -> Result<AddressRange, String> {
    let text = |e: cuda::CudaError| e.to_string();
    let mut range = AddressRange::reserve(context, memory.iter().map(|m| m.len()).sum(), HEAP_ALIGN).map_err(text)?;
    let mut offset = 0;
    for one in memory {
        range.map(offset, one).map_err(text)?;
        offset += one.len();
    }
    Ok(range)
}
