//! GPU memory for a controller: chooses a mapping backend, with the controller itself as the DMA engine of its probes.

use super::NvmeError;
use super::admin::{Wait, load_completion};
use super::controller::{Controller, PAGE_BYTES, Ready};
use crate::memory::mapping::{
    Attempt, BackendChoice, MappingBackend, MappingBackends, MappingDevice, Probe, ProbeError, SCRATCH_BYTES,
};
use crate::memory::{DmaError, DmaRegion, MemoryError, Place, Region, Space};
use crate::wire::nvme::{SqEntry, admin, cns, io, register};
use std::time::{Duration, Instant};

/// Content of memory before the controller writes to it. An Identify data structure does not
/// consist of this byte alone.
const PATTERN: u8 = 0xa5;
/// Longest wait for data after its completion. A completion in host memory may overtake data on its way to the GPU.
const OVERTAKE_LIMIT: Duration = Duration::from_millis(200);
/// Longest time for the one command of a read probe.
const FETCH_WITHIN: Duration = Duration::from_secs(5);
/// Identifier of that command. It differs from zeros, which a lost read may return.
const PROBE_CID: u16 = 0x5742;
/// Entries of the queue for that command: the fewest that a queue can have.
const PROBE_DEPTH: u32 = 2;

/// Mapping backend of a controller for GPU memory, and the result of each backend that was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct MappingReport {
    /// Backend in use; `None` if no search was made, or no backend works.
    pub backend: Option<MappingBackend>,
    /// Result of each backend that was tried, best first.
    pub attempts: Vec<Attempt>,
}

/// Probes mappings with a controller: it writes Identify data to the memory, and fetches a command from it.
#[derive(Debug)]
pub struct ReadBack<'a>(&'a Controller<Ready>);

impl Controller<Ready> {
    /// Chooses the mapping backend for GPU memory. Must be called before GPU memory is mapped.
    ///
    /// # Errors
    /// [`NvmeError::Options`] if another choice is already in effect.
    pub fn set_mapping(&self, choice: BackendChoice) -> Result<(), NvmeError> {
        let now = self.state.mapping.get_or_init(|| MappingBackends::new(self.mapping_device(), choice)).choice();
        if now == choice || choice == BackendChoice::Auto {
            return Ok(());
        }
        let reason = format!("its mapping backend is already {now}; open it again to use {choice}");
        Err(NvmeError::Options { device: self.name().to_owned(), reason })
    }

    fn mapping_device(&self) -> MappingDevice {
        MappingDevice { name: self.name().to_owned(), bdf: self.core.port.bdf(), iommu: self.core.dma.iommu() }
    }

    /// Returns the probe that verifies mappings with this controller.
    pub fn read_back(&self) -> ReadBack<'_> {
        ReadBack(self)
    }

    /// Returns the mapping backends that were tried so far.
    pub fn mapping(&self) -> MappingReport {
        match self.state.mapping.get() {
            Some(l) => MappingReport { backend: l.trusted(), attempts: l.attempts() },
            None => MappingReport::default(),
        }
    }

    /// Gives the controller access to existing memory: host memory through its address space, GPU memory through the
    /// first mapping backend that works. GPU memory must have no other user meanwhile, because the controller writes to
    /// it and the host reads it back.
    ///
    /// # Errors
    /// - [`DmaError::Unreachable`] if the controller cannot address the memory.
    /// - [`DmaError::MappingBackends`] if no mapping backend works, or the chosen one does not.
    /// - [`DmaError::Memory`] if there is no scratch memory on the GPU.
    /// - Otherwise as [`DmaSpace::map`](super::DmaSpace::map).
    pub fn map_memory(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        let refused = match self.core.dma.map(region) {
            Err(e @ DmaError::Unreachable { .. }) => e,
            other => return other,
        };
        // Only a device on a bus of this machine can reach a GPU.
        if region.host().is_some() || self.core.port.bdf().is_none() {
            return Err(refused);
        }
        let mapping =
            self.state.mapping.get_or_init(|| MappingBackends::new(self.mapping_device(), BackendChoice::Auto));
        let probe = ReadBack(self);
        if mapping.trusted().is_none() {
            let scratch = region.space().allocate(Place::Device, SCRATCH_BYTES)?;
            mapping.choose(&scratch, &probe)?;
        }
        Ok(mapping.map(region, &probe)?)
    }
}

fn gone(error: MemoryError) -> ProbeError {
    ProbeError::differs(error.to_string())
}

/// Creates a probe error. After a command that the controller completed, it does not use the memory any more. After any
/// other error it may still use it.
fn failed(what: &str, error: &NvmeError) -> ProbeError {
    ProbeError { reason: format!("{what}: {error}"), still_in_use: !matches!(error, NvmeError::Command { .. }) }
}

impl ReadBack<'_> {
    fn identify(&self) -> SqEntry {
        SqEntry { cdw10: u32::from(cns::CONTROLLER), ..SqEntry::new(admin::IDENTIFY, 0, 0) }
    }

    /// Waits for one completion on a queue of the host, and returns its command identifier.
    fn completion(&self, ring: &DmaRegion) -> Result<u16, ProbeError> {
        let host = ring.host().ok_or_else(|| ProbeError::differs("the completion ring is not in host memory"))?;
        let (started, mut wait) = (Instant::now(), Wait::new());
        loop {
            let waited = started.elapsed();
            // SAFETY: the ring's first entry, which is page aligned.
            let entry = unsafe { load_completion(host) };
            if entry.phase() {
                return Ok(entry.cid());
            }
            if waited > FETCH_WITHIN.min(self.0.command_deadline()) {
                let reason = format!("no completion of a command from this memory within {waited:?}");
                return Err(ProbeError { reason, still_in_use: true });
            }
            wait.pause();
        }
    }

    fn fetch_from(&self, id: u16, mapping: &DmaRegion, offset: usize) -> Result<(), ProbeError> {
        let c = self.0;
        let no = |what: &'static str| move |e: NvmeError| failed(what, &e);
        // After these errors the controller does not know the memory's address.
        let before = |e: NvmeError| ProbeError::differs(e.to_string());
        let nsid = c.namespaces().map_err(before)?.first().copied().unwrap_or(u32::MAX);
        let ring = c.dma().allocate(&Space::cpu(), PAGE_BYTES).map_err(|e| ProbeError::differs(e.to_string()))?;
        c.create_cq(id, PROBE_DEPTH, &ring, 0).map_err(before)?;
        let seen = (|| {
            // Flush changes nothing that a reader could see, and transfers no data.
            let entry = SqEntry::new(io::FLUSH, PROBE_CID, nsid);
            mapping.region.set(mapping.offset + offset, entry).map_err(gone)?;
            c.create_sq(id, PROBE_DEPTH, mapping, offset).map_err(no("creating a submission queue in this memory"))?;
            let stride = c.cap().doorbell_stride();
            let seen = c
                .port()
                .write32(register::sq_tail(id, stride), 1)
                .map_err(|e| failed("writing the doorbell", &e.into()));
            let seen = seen.and_then(|()| self.completion(&ring));
            match (c.delete_sq(id), seen) {
                (Ok(()), Ok(PROBE_CID)) => Ok(()),
                (Ok(()), Ok(other)) => {
                    let wanted = PROBE_CID;
                    Err(ProbeError::differs(format!(
                        "the controller fetched command {other:#06x}, not {wanted:#06x} as written"
                    )))
                }
                // The queue is deleted, so the controller does not use its memory any more.
                (Ok(()), Err(e)) => Err(ProbeError::differs(e.reason)),
                (Err(e), _) => Err(failed("deleting the submission queue in this memory", &e)),
            }
        })();
        match c.delete_cq(id) {
            Ok(()) => seen,
            Err(e) => {
                // The controller may still write to the ring.
                std::mem::forget(ring);
                seen.and(Err(ProbeError { reason: format!("deleting the completion queue: {e}"), still_in_use: true }))
            }
        }
    }
}

impl Probe for ReadBack<'_> {
    fn device_writes(&self, mapping: &DmaRegion, offset: usize) -> Result<(), ProbeError> {
        let mut expected = vec![0; PAGE_BYTES];
        let before = |e: NvmeError| ProbeError::differs(format!("identify into host memory: {e}"));
        self.0.admin_read(self.identify(), &mut expected, "controller").map_err(before)?;
        let from = offset.saturating_sub(PAGE_BYTES);
        let to = (offset + 2 * PAGE_BYTES).min(mapping.bytes);
        mapping.region.fill(mapping.offset + from, to - from, PATTERN).map_err(gone)?;
        let mut entry = self.identify();
        entry.prp1 = mapping.iova + offset as u64;
        self.0.admin_plain(entry, "controller, read back").map_err(|e| failed("identify into this memory", &e))?;
        let at = offset - from;
        let mut seen = vec![0; to - from];
        let started = Instant::now();
        loop {
            let waited = started.elapsed();
            mapping.region.read(mapping.offset + from, &mut seen).map_err(gone)?;
            let page = &seen[at..at + PAGE_BYTES];
            if page == expected {
                break;
            }
            if waited > OVERTAKE_LIMIT {
                let what = if page.iter().all(|b| *b == PATTERN) { "no data arrived" } else { "other data arrived" };
                let address = mapping.iova + offset as u64;
                return Err(ProbeError::differs(format!("{what} after the controller wrote to {address:#x}")));
            }
            std::thread::yield_now();
        }
        let around = seen[..at].iter().chain(&seen[at + PAGE_BYTES..]);
        if around.copied().any(|b| b != PATTERN) {
            return Err(ProbeError::differs("the controller's write changed bytes before or after its page"));
        }
        Ok(())
    }

    fn device_reads(&self, mapping: &DmaRegion, offset: usize) -> Result<(), ProbeError> {
        let queues = &self.0.state.queues;
        let Some(id) = queues.take(1).and_then(|ids| ids.first().copied()) else {
            return Err(ProbeError::differs(
                "no queue is free to test whether the controller can read it; use fewer queues",
            ));
        };
        let seen = self.fetch_from(id, mapping, offset);
        match &seen {
            Err(e) if e.still_in_use => queues.lose(id),
            _ => queues.give_back(id),
        }
        seen
    }
}
