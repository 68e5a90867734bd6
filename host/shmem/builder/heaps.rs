//! Heaps of the PEs that are within reach of each other, mapped side by side.

use super::building::{Building, MadeHeap};
use super::reach::{self, all, host_atomics, one_gpu, peer, source};
use crate::cuda::Sharing;
use crate::shmem::ShmemError;
use crate::shmem::heap::{self, DescriptorListener, DeviceMemory, Heap, HostMemory, Links, Source};
use crate::shmem::path::Handover;
use crate::shmem::peer_info::{HeapPlan, PeerInfo};
use crate::units::Bytes;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

/// PEs within reach of each other, in ascending order; this PE is one of them.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) members: Vec<usize>,
    pes: usize,
}

impl Group {
    pub(super) fn new(members: Vec<usize>, pes: usize) -> Self {
        Self { members, pes }
    }

    /// Returns, for each PE, true if it is in the group. Returns an empty list if all PEs are.
    pub(super) fn near(&self) -> Vec<bool> {
        if self.members.len() == self.pes {
            Vec::new()
        } else {
            (0..self.pes).map(|pe| self.members.contains(&pe)).collect()
        }
    }

    /// Returns the infos of the members.
    fn peer_infos<'c>(&self, peer_infos: &'c [PeerInfo]) -> Vec<&'c PeerInfo> {
        self.members.iter().map(|pe| &peer_infos[*pe]).collect()
    }

    /// Returns the ranges of the members' heaps in the address range of all heaps.
    fn places(&self, stride: usize) -> Vec<Range<usize>> {
        self.members.iter().map(|pe| pe * stride..(pe + 1) * stride).collect()
    }
}

impl Building<'_> {
    /// Builds heaps in GPU memory, or returns the reason why that is not possible. Collective.
    pub(super) fn on_device(
        &self,
        listener: &DescriptorListener,
        peer_infos: &[PeerInfo],
        plan: &HeapPlan,
        group: &Group,
    ) -> Result<Result<MadeHeap, String>, ShmemError> {
        let me = self.ranks.me();
        let across = group.members.iter().any(|pe| peer_infos[*pe].host != peer_infos[me].host);
        let sharing = if across { Sharing::Fabric } else { Sharing::Host };
        let prepare = || -> Result<(DeviceMemory, bool), String> {
            let atomics = reach::reach(peer_infos, me, group)?;
            let context =
                self.engine.space().gpu_context().ok_or("it runs on a CPU engine, which cannot access GPU memory")?;
            let memory =
                DeviceMemory::new(context, plan.stride, sharing, &peer_infos[me].token).map_err(|e| e.to_string())?;
            Ok((memory, atomics))
        };
        let prepared = prepare();
        let mine = match &prepared {
            Ok((memory, _)) => Ok(memory.fabric().map(|h| h.to_vec())),
            Err(e) => Err(e.clone()),
        };
        let handles = match self.ranks.vote(&mine)? {
            Ok(handles) => handles,
            Err(reason) => return Ok(Err(reason)),
        };
        let mapped = prepared.and_then(|(mut memory, atomics)| {
            let from = |pe: usize| match group.members.contains(&pe) {
                true => source(peer_infos, me, pe, handles[pe].as_deref()),
                false => Ok(Source::Nowhere),
            };
            let sources: Vec<Source> = (0..peer_infos.len()).map(from).collect::<Result<_, _>>()?;
            let context = self.engine.space().gpu_context().ok_or("it runs on a CPU engine")?;
            let unit = peer_infos.iter().filter_map(|c| c.gpu.as_ref()).map(|g| g.granularity).max().unwrap_or(1);
            let align = unit.max(heap::HEAP_ALIGN);
            let range = memory.map_all(listener, me, &sources, align, self.ranks.within)?;
            let heap = Heap::in_gpu_memory(self.engine.space(), context, range, me, plan.bytes, plan.stride);
            let heap = heap.reaching(group.near());
            // New memory may hold anything.
            heap.clear(0, plan.bytes).map_err(|e| e.to_string())?;
            Ok((memory, heap, Links { one_gpu: one_gpu(&group.peer_infos(peer_infos)), atomics }))
        });
        let mine = mapped.as_ref().map(|(.., links)| *links).map_err(String::clone);
        // Each rank keeps its memory until all ranks have mapped it.
        let links = self.ranks.vote(&mine)?;
        let handover = if across { Handover::Fabric } else { Handover::VirtualMemory };
        Ok(links.and_then(|links| mapped.map(|(_, heap, _)| MadeHeap { heap, links: all(&links), handover })))
    }

    /// Builds heaps in host memory, or returns the reason why that is not possible. Collective.
    pub(super) fn in_host(
        &self,
        listener: &DescriptorListener,
        peer_infos: &[PeerInfo],
        plan: &HeapPlan,
        group: &Group,
    ) -> Result<Result<MadeHeap, String>, ShmemError> {
        let me = self.ranks.me();
        let parts = group.places(plan.stride);
        let (total, length) = (plan.stride * peer_infos.len(), plan.stride * parts.len());
        let alone = parts.len() == 1;
        // The first member creates the file that all members map.
        let first = group.members.first().copied().unwrap_or(me);
        let across = group.members.iter().any(|pe| peer_infos[*pe].host != peer_infos[me].host);
        let near = if across { reach::one_host(peer_infos) } else { Ok(()) };
        let file = near.and_then(|()| {
            let made = (me == first && !alone).then(|| heap::file(length)).transpose();
            made.map_err(|e| {
                // Memory files are files to the system.
                let limited = e.kind() == std::io::ErrorKind::FileTooLarge;
                let next = if limited { "; raise the limit of file sizes (ulimit -f)" } else { "" };
                format!("cannot allocate {} of shared memory: {e}{next}", Bytes(length as u64))
            })
        });
        let own = match self.ranks.agree(file)? {
            Ok(own) => own,
            Err(reason) => return Ok(Err(reason)),
        };
        let map = || -> Result<(Heap, Links), String> {
            let memory = match (&own, alone) {
                (_, true) => HostMemory::placed(None, total, &parts),
                (Some(file), _) => {
                    let others: Vec<usize> = group.members.iter().copied().filter(|pe| *pe != me).collect();
                    listener.exchange(me, Some(file.as_fd()), &others, &[], self.ranks.within)?;
                    HostMemory::placed(Some(file.as_fd()), total, &parts)
                }
                (None, _) => {
                    let came = listener.exchange(me, None, &[], &[peer(peer_infos, first)], self.ranks.within)?;
                    let file = came.into_iter().next().ok_or_else(|| format!("rank {first} sent no heap"))?;
                    HostMemory::placed(Some(file.as_fd()), total, &parts)
                }
            };
            let memory =
                Arc::new(memory.map_err(|e| format!("mapping {} of shared memory: {e}", Bytes(length as u64)))?);
            let heap = Heap::in_host_memory(self.engine.space(), memory, me, plan.bytes, plan.stride);
            let heap = heap.map_err(|e| e.to_string())?.reaching(group.near());
            let peer_infos = group.peer_infos(peer_infos);
            Ok((heap, Links { one_gpu: one_gpu(&peer_infos), atomics: host_atomics(&peer_infos) }))
        };
        let mapped = map();
        let mine = mapped.as_ref().map(|(_, links)| *links).map_err(String::clone);
        let links = self.ranks.vote(&mine)?;
        let handover = if alone { Handover::OneMapping } else { Handover::MemoryFile };
        Ok(links.and_then(|links| mapped.map(|(heap, _)| MadeHeap { heap, links: all(&links), handover })))
    }
}
