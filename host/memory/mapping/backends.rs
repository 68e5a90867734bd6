//! Choice of the mapping backend for a device, by trying each with its memory, and of the mappings that it makes.

use super::backend::{Attempt, BackendChoice, MappingBackend, Outcome};
use super::reason::{BackendError, ProbeError};
use super::site::{DmaBufExport, DriverDmaBuf, Mapped, MappingDevice, Site};
use super::syscalls::{self, Linux, Syscalls};
use super::{dmabuf, dmabuf_import, gdrdrv, iommu_map_pa, libnvm};
use crate::cuda::GPU_PAGE;
use crate::memory::{DmaRegion, MemoryError, Region};
use parking_lot::{Mutex, MutexGuard};
use std::path::Path;
use std::sync::Arc;

/// Size in bytes of the scratch memory for trying backends. It has pages before, between and after the
/// pages that a device writes.
pub const SCRATCH_BYTES: usize = 2 * GPU_PAGE;
/// Bytes that a device writes for one read-back.
const PROBE_BYTES: usize = 4096;

/// Uses a device as the DMA engine that verifies a mapping. The module that drives the device implements it.
pub trait Probe {
    /// Lets the device write 4096 bytes at `offset` of the mapping, and checks that kernels see them. The bytes
    /// around them must be unchanged.
    ///
    /// # Errors
    /// [`ProbeError`] if the bytes differ, or the device failed or did not complete the write.
    fn device_writes(&self, mapping: &DmaRegion, offset: usize) -> Result<(), ProbeError>;

    /// Lets the device read the page at `offset` of the mapping, and checks that it read the
    /// bytes that kernels wrote there.
    ///
    /// # Errors
    /// [`ProbeError`] if the bytes differ, or the device failed or did not complete the read.
    fn device_reads(&self, mapping: &DmaRegion, offset: usize) -> Result<(), ProbeError>;
}

/// Error of mapping GPU memory for a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// The chosen backend does not work.
    #[error("{device}: mapping {backend} does not work: {reason}; {next}")]
    MappingBackend {
        /// Name of the device.
        device: String,
        /// Backend that failed.
        backend: MappingBackend,
        /// Cause, as text.
        reason: String,
        /// Next step for the user.
        next: String,
    },
    /// No backend that reaches GPU memory works.
    #[error("{device}: no mapping backend for GPU memory works here ({}); use host queues and bounce landing", listed(.attempts))]
    NoBackend {
        /// Name of the device.
        device: String,
        /// Result of each backend that was tried.
        attempts: Vec<Attempt>,
    },
}

fn listed(attempts: &[Attempt]) -> String {
    let texts: Vec<String> = attempts.iter().map(|a| format!("{}: {}", a.backend, a.reason)).collect();
    texts.join("; ")
}

#[derive(Debug, Default)]
struct State {
    attempts: Vec<Attempt>,
    trusted: Option<MappingBackend>,
    decided: bool,
}

/// Finds the mapping backend that works for a device, and maps GPU memory with it.
#[derive(Debug)]
pub struct MappingBackends {
    sys: Arc<dyn Syscalls>,
    export: Arc<dyn DmaBufExport>,
    device: MappingDevice,
    choice: BackendChoice,
    state: Mutex<State>,
}

impl MappingBackends {
    /// Creates the backends for a device, with real system calls and the GPU driver's dma-bufs.
    pub fn new(device: MappingDevice, choice: BackendChoice) -> Self {
        Self::with(Arc::new(Linux), Arc::new(DriverDmaBuf), device, choice)
    }

    /// Creates the backends with other system calls: for tests, and for layers between this process and the system.
    pub fn with(
        sys: Arc<dyn Syscalls>,
        export: Arc<dyn DmaBufExport>,
        device: MappingDevice,
        choice: BackendChoice,
    ) -> Self {
        Self { sys, export, device, choice, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the choice of backend.
    pub fn choice(&self) -> BackendChoice {
        self.choice
    }

    /// Returns the result of each backend that was tried so far, best first.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.state().attempts.clone()
    }

    /// Returns the backend that works, if one was found.
    pub fn trusted(&self) -> Option<MappingBackend> {
        self.state().trusted
    }

    /// Finds the backend that works: tries each on `scratch`, and reads back the bytes that the device
    /// wrote. `scratch` is GPU memory of [`SCRATCH_BYTES`] that has no other user. The first call decides,
    /// and later calls return its result.
    ///
    /// # Errors
    /// - [`MappingError::MappingBackend`] if a backend was chosen by name and it does not work.
    /// - [`MappingError::NoBackend`] if the choice is `auto` and no backend works.
    pub fn choose(&self, scratch: &Region, probe: &dyn Probe) -> Result<MappingBackend, MappingError> {
        let mut state = self.state();
        if !state.decided {
            state.decided = true;
            for backend in MappingBackend::ALL.into_iter().filter(|r| *r != MappingBackend::Host) {
                if matches!(self.choice, BackendChoice::Only(only) if only != backend) {
                    continue;
                }
                match self.try_backend(backend, scratch, probe) {
                    Ok(reason) => {
                        state.attempts.push(Attempt::good(backend, Outcome::Taken, reason));
                        state.trusted = Some(backend);
                        break;
                    }
                    Err(error) => {
                        tracing::debug!(device = self.device.name, %backend, %error, "mapping backend passed over");
                        state.attempts.push(Attempt::passed(backend, &error, self.sys.as_ref()));
                    }
                }
            }
        }
        match (state.trusted, self.choice, state.attempts.first()) {
            (Some(backend), ..) => Ok(backend),
            (None, BackendChoice::Only(backend), Some(a)) => Err(MappingError::MappingBackend {
                device: self.device.name.clone(),
                backend,
                reason: a.reason.clone(),
                next: a.next.clone(),
            }),
            (None, BackendChoice::Only(backend), None) => Err(MappingError::MappingBackend {
                device: self.device.name.clone(),
                backend,
                reason: "it maps host memory, not GPU memory".to_owned(),
                next: "use host queues and bounce landing with it".to_owned(),
            }),
            (None, BackendChoice::Auto, _) => {
                Err(MappingError::NoBackend { device: self.device.name.clone(), attempts: state.attempts.clone() })
            }
        }
    }

    fn try_backend(
        &self,
        backend: MappingBackend,
        scratch: &Region,
        probe: &dyn Probe,
    ) -> Result<String, BackendError> {
        let mapping = self.map_through(backend, scratch)?;
        // First page, last page and both sides of the seam between two GPU pages; then the other direction.
        let offsets = [0, GPU_PAGE - PROBE_BYTES, GPU_PAGE, scratch.len() - PROBE_BYTES];
        let seen = offsets
            .iter()
            .filter(|&&at| at + PROBE_BYTES <= scratch.len())
            .try_for_each(|&at| probe.device_writes(&mapping, at))
            .and_then(|()| probe.device_reads(&mapping, 0));
        if let Err(error) = seen {
            return Err(Self::distrust(mapping, error));
        }
        Ok(format!("{} bytes at device address {:#x}, read back", mapping.bytes, mapping.iova))
    }

    fn distrust(mapping: DmaRegion, error: ProbeError) -> BackendError {
        let error = BackendError::from(error);
        if error.still_in_use() {
            // The device may write to the memory at any time, so neither the mapping nor the memory may be freed.
            std::mem::forget(mapping);
        }
        error
    }

    /// Maps GPU memory for the device with the backend that [`Self::choose`] found.
    ///
    /// As a check, the device writes to the first and the last page once, and their content is restored. Nothing else
    /// may use the memory meanwhile.
    ///
    /// # Errors
    /// - [`MappingError::NoBackend`] if [`Self::choose`] has found no backend.
    /// - [`MappingError::MappingBackend`] if the backend fails to map the region, or the read-back fails.
    pub fn map(&self, region: &Region, probe: &dyn Probe) -> Result<DmaRegion, MappingError> {
        let failed = |backend: MappingBackend, error: BackendError| MappingError::MappingBackend {
            device: self.device.name.clone(),
            backend,
            reason: error.to_string(),
            next: error.next(backend, self.sys.as_ref()),
        };
        let Some(backend) = self.trusted() else {
            return Err(MappingError::NoBackend { device: self.device.name.clone(), attempts: self.attempts() });
        };
        let mapping = self.map_through(backend, region).map_err(|e| failed(backend, e))?;
        let last = region.len() - PROBE_BYTES;
        for at in [0, last] {
            if let Err(error) = keeping(&mapping, at, probe) {
                return Err(failed(backend, Self::distrust(mapping, error)));
            }
        }
        Ok(mapping)
    }

    fn map_through(&self, backend: MappingBackend, region: &Region) -> Result<DmaRegion, BackendError> {
        region.reaches_devices()?;
        let site = Site { sys: &self.sys, export: self.export.as_ref(), region, device: Some(&self.device) };
        match step(backend, &site)? {
            Some(Mapped { iova, guard }) => {
                Ok(DmaRegion { region: region.clone(), offset: 0, bytes: region.len(), iova, remote: None, guard })
            }
            None => Err(BackendError::Requires {
                what: "the controller is not behind an IOMMU that this process can map through".to_owned(),
                next: "bind the controller to vfio-pci with the IOMMU on: warpbell nvme bind ADDRESS".to_owned(),
            }),
        }
    }
}

/// Reads back one page that the device writes, and restores the content of the page and its neighbours.
fn keeping(mapping: &DmaRegion, at: usize, probe: &dyn Probe) -> Result<(), ProbeError> {
    let (from, to) = (at.saturating_sub(PROBE_BYTES), (at + 2 * PROBE_BYTES).min(mapping.bytes));
    let lost = |e: MemoryError| ProbeError::differs(e.to_string());
    let mut before = vec![0; to - from];
    mapping.region.read(mapping.offset + from, &mut before).map_err(lost)?;
    let seen = probe.device_writes(mapping, at);
    if !matches!(&seen, Err(e) if e.still_in_use) {
        mapping.region.write(mapping.offset + from, &before).map_err(lost)?;
    }
    seen
}

/// Maps with one backend. Returns `None` if everything is present except the device.
fn step(backend: MappingBackend, site: &Site<'_>) -> Result<Option<Mapped>, BackendError> {
    site.whole_pages()?;
    match backend {
        MappingBackend::Gdrdrv => gdrdrv::map(site),
        MappingBackend::DmaBufMmap => dmabuf::map_cpu(site),
        MappingBackend::Iommufd => dmabuf::map_file(site),
        MappingBackend::Libnvm => libnvm::map(site),
        MappingBackend::DmabufImport => dmabuf_import::map(site),
        MappingBackend::IommuMapPa => iommu_map_pa::map(site),
        MappingBackend::Host => Err(BackendError::Requires {
            what: "it maps host memory, not GPU memory".to_owned(),
            next: "use host queues and bounce landing".to_owned(),
        }),
    }
}

/// Tries every backend on this machine as far as is possible without a device.
///
/// Opens the modules; pins and exports GPU memory and maps it into the CPU; then releases everything. Without `scratch`
/// (no GPU) it only opens device files.
pub fn survey(sys: &Arc<dyn Syscalls>, export: &dyn DmaBufExport, scratch: Option<&Region>) -> Vec<Attempt> {
    let seen = |backend: MappingBackend, found: Result<String, BackendError>| match found {
        Ok(reason) => Attempt::good(backend, Outcome::Ready, reason),
        Err(error) => Attempt::passed(backend, &error, sys.as_ref()),
    };
    let opened = |file: &str| match syscalls::File::open(sys, Path::new(file)) {
        Ok(_) => Ok(format!("{file} opens")),
        Err(source) => Err(BackendError::Open { file: file.to_owned(), source }),
    };
    let no_gpu = || BackendError::Requires { what: "there is no GPU".to_owned(), next: String::new() };
    MappingBackend::ALL
        .into_iter()
        .map(|backend| match (backend, scratch) {
            (MappingBackend::Host, _) => {
                // Any VFIO interface is enough, so iommufd without a container is ready too.
                let group = opened("/dev/vfio/vfio");
                seen(backend, group.or_else(|error| opened("/dev/iommu").map_err(|_| error)))
            }
            (_, Some(region)) => {
                let site = Site { sys, export, region, device: None };
                let found = step(backend, &site)
                    .map(|_| "its requirements are met; only a test with a controller shows that it works".to_owned());
                seen(backend, found)
            }
            (_, None) => {
                let file = match backend {
                    MappingBackend::Gdrdrv => gdrdrv::FILE,
                    MappingBackend::Iommufd => dmabuf::IOMMU_FILE,
                    MappingBackend::Libnvm => libnvm::FIRST_FILE,
                    MappingBackend::DmabufImport => dmabuf_import::FILE,
                    MappingBackend::IommuMapPa => iommu_map_pa::FILE,
                    _ => return seen(backend, Err(no_gpu())),
                };
                seen(backend, opened(file).and_then(|_| Err(no_gpu())))
            }
        })
        .collect()
}
