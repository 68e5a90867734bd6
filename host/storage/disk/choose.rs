//! Choice of the data path: the paths that the options ask for, those that the machine offers, and those that keep the
//! order of writes.
//!
//! A completion entry tells a kernel that its data has arrived. That holds only if both travel to the same memory: a
//! bus keeps the order of a device's writes to one memory, but not to two. Completion queues are therefore where data
//! lands: in the GPU with direct landing, in host memory with bounce landing. Submission queues may also be in the
//! controller's memory.

use super::options::DiskOptions;
use super::path::{LandingChoice, LandingPath, QueueMemory, QueueMemoryChoice, WritesOrder};
use crate::cuda::WritesOrdering;
use crate::memory::mapping::{BackendChoice, MappingBackend, MappingError};
use crate::memory::{DmaError, Place};
use crate::storage::error::StorageError;

/// The chosen data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::storage) struct DataPath {
    pub(in crate::storage) landing: LandingPath,
    pub(in crate::storage) queues: QueueMemory,
    /// Memory of the completion queues.
    pub(in crate::storage) completions: Place,
}

/// A choice that is not available, in the words of the option, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::storage) struct Unavailable {
    pub(in crate::storage) what: &'static str,
    pub(in crate::storage) reason: String,
}

const NOT_IN_ORDER: &str =
    "data and completions would travel to different memories, and a completion could arrive before its data";

/// Chooses the data path for kernels on a GPU. `direct` returns an error with the reason if devices do not reach GPU
/// memory in order.
pub(in crate::storage) fn on_gpu(
    landing: LandingChoice,
    queues: QueueMemoryChoice,
    direct: &dyn Fn() -> Result<(), String>,
    notes: &mut Vec<String>,
) -> Result<DataPath, Unavailable> {
    use LandingChoice::{Auto, Bounce, Direct};
    let refuse = |what, reason: String| Err(Unavailable { what, reason });
    let in_buffer = queues == QueueMemoryChoice::Cmb;
    let host = |queues| DataPath { landing: LandingPath::Bounce, queues, completions: Place::Host };
    let gpu = |queues| DataPath { landing: LandingPath::Direct, queues, completions: Place::Device };
    match (landing, queues) {
        (Direct, QueueMemoryChoice::Host) => {
            refuse("landing direct with queues host", format!("{NOT_IN_ORDER}: use queues gpu with it"))
        }
        (Bounce, QueueMemoryChoice::Gpu) => {
            refuse("queues gpu with landing bounce", format!("{NOT_IN_ORDER}: use landing direct with it"))
        }
        (Bounce, _) => Ok(host(if in_buffer { QueueMemory::Cmb } else { QueueMemory::Host })),
        (Auto, QueueMemoryChoice::Host) => {
            notes.push("landing bounce: host queues were requested, and data lands where completions do".to_owned());
            Ok(host(QueueMemory::Host))
        }
        (Auto | Direct, _) => match direct() {
            Ok(()) => Ok(gpu(if in_buffer { QueueMemory::Cmb } else { QueueMemory::Gpu })),
            Err(reason) if landing == Direct => refuse("landing direct", reason),
            Err(reason) if queues == QueueMemoryChoice::Gpu => refuse("queues gpu", reason),
            Err(reason) => {
                notes.push(format!("landing bounce: {reason}"));
                if in_buffer {
                    return Ok(host(QueueMemory::Cmb));
                }
                notes.push("queues host: data lands in host memory".to_owned());
                Ok(host(QueueMemory::Host))
            }
        },
    }
}

/// Chooses the data path for kernels on CPU threads, whose memory is host memory.
pub(in crate::storage) fn on_cpu(
    landing: LandingChoice,
    queues: QueueMemory,
    direct: &dyn Fn() -> Result<(), String>,
    notes: &mut Vec<String>,
) -> Result<DataPath, Unavailable> {
    let data_path = |landing| DataPath { landing, queues, completions: Place::Host };
    if landing == LandingChoice::Bounce {
        return Ok(data_path(LandingPath::Bounce));
    }
    match direct() {
        Ok(()) => Ok(data_path(LandingPath::Direct)),
        Err(reason) if landing == LandingChoice::Direct => Err(Unavailable { what: "landing direct", reason }),
        Err(reason) => {
            notes.push(format!("landing bounce: {reason}"));
            Ok(data_path(LandingPath::Bounce))
        }
    }
}

/// Returns the mechanism that keeps a device's writes in order for kernels, or `None` if there is none.
pub(in crate::storage) fn order(gpu: Option<WritesOrdering>, completions: Place) -> Option<WritesOrder> {
    match (gpu, completions) {
        (None, _) => Some(WritesOrder::Processor),
        (Some(_), Place::Host) => Some(WritesOrder::HostMemory),
        (Some(WritesOrdering::Owner), Place::Device) => Some(WritesOrder::GpuOwner),
        (Some(WritesOrdering::All), Place::Device) => Some(WritesOrder::GpuAll),
        (Some(WritesOrdering::None), Place::Device) => None,
    }
}

impl DiskOptions {
    pub(in crate::storage) fn choose_data_path(&self, notes: &mut Vec<String>) -> Result<DataPath, StorageError> {
        let gpu = self.engine.is_gpu();
        if self.mapping != BackendChoice::Auto {
            if !gpu {
                return Err(self.needs_gpu(format!("mapping {}", self.mapping), "and a mapping is for GPU memory"));
            }
            self.drives.iter().try_for_each(|d| d.controller().set_mapping(self.mapping))?;
        }
        let direct = || self.probe_direct();
        let (landing, queues) = (self.landing, self.queue_memory);
        let chosen = match (gpu, self.mapping) {
            (false, _) => {
                let queues = match queues {
                    QueueMemoryChoice::Gpu => return Err(self.needs_gpu("queues gpu", "which has no GPU memory")),
                    QueueMemoryChoice::Cmb => QueueMemory::Cmb,
                    QueueMemoryChoice::Host | QueueMemoryChoice::Auto => QueueMemory::Host,
                };
                on_cpu(landing, queues, &direct, notes)
            }
            (true, BackendChoice::Auto) => on_gpu(landing, queues, &direct, notes),
            (true, BackendChoice::Only(MappingBackend::Host)) => {
                let closed = || Err("mapping host was requested, which does not reach GPU memory".to_owned());
                on_gpu(landing, queues, &closed, notes)
            }
            // A mapping backend chosen by name works or is an error, even if another one would work.
            (true, BackendChoice::Only(backend)) => match landing {
                LandingChoice::Bounce => {
                    let reason = "bounce landing maps no GPU memory: use landing direct with it".to_owned();
                    return Err(self.no_path(format!("mapping {backend}"), reason));
                }
                _ => on_gpu(LandingChoice::Direct, queues, &direct, notes),
            },
        };
        chosen.map_err(|r| self.no_path(r.what, r.reason))
    }

    fn asks_for_nothing(&self) -> bool {
        self.landing == LandingChoice::Auto && self.queue_memory == QueueMemoryChoice::Auto
    }

    /// Checks that every device reaches the memory that this engine's kernels prefer; the error is the reason.
    fn probe_direct(&self) -> Result<(), String> {
        if let Some(gpu) = self.engine.space().gpu_context()
            && gpu.info().writes_ordering < WritesOrdering::Owner
        {
            return Err("this GPU does not promise that a device's writes are in order for its kernels \
                        (GPU_DIRECT_RDMA_WRITES_ORDERING is none)"
                .to_owned());
        }
        let page = self.engine.allocate(Place::Device, 1).map_err(|e| e.to_string())?;
        for drive in &self.drives {
            let controller = drive.controller();
            match controller.map_memory(&page) {
                Ok(_) => {}
                // A device that only allocates memory of its own is enough, if it is the only one.
                Err(DmaError::Unreachable { .. }) if self.drives.len() == 1 && !self.engine.is_gpu() => {
                    controller.dma().allocate(self.engine.space(), 1).map_err(|e| e.to_string())?;
                }
                // With default options the notes list each mapping backend on a line of its own.
                Err(DmaError::MappingBackends(MappingError::NoBackend { .. })) if self.asks_for_nothing() => {
                    return Err(format!("no mapping backend gives {} access to this GPU's memory", drive.name()));
                }
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Result<(), String> {
        Ok(())
    }

    fn closed() -> Result<(), String> {
        Err("no way".to_owned())
    }

    fn gpu(landing: LandingChoice, queues: QueueMemoryChoice, works: bool) -> Result<DataPath, Unavailable> {
        on_gpu(landing, queues, if works { &open } else { &closed }, &mut Vec::new())
    }

    #[test]
    fn completions_are_where_data_lands() {
        use LandingChoice as L;
        use QueueMemoryChoice as Q;
        for landing in [L::Auto, L::Direct, L::Bounce] {
            for queues in [Q::Auto, Q::Host, Q::Gpu, Q::Cmb] {
                for works in [true, false] {
                    if let Ok(data_path) = gpu(landing, queues, works) {
                        let direct = data_path.landing == LandingPath::Direct;
                        assert_eq!(data_path.completions == Place::Device, direct, "{landing} {queues} {works}");
                        assert!(works || !direct);
                    }
                }
            }
        }
    }

    #[test]
    fn auto_takes_the_best_and_says_why_not() {
        let mut notes = Vec::new();
        let best = on_gpu(LandingChoice::Auto, QueueMemoryChoice::Auto, &open, &mut notes).unwrap();
        assert_eq!((best.landing, best.queues), (LandingPath::Direct, QueueMemory::Gpu));
        assert!(notes.is_empty());
        let next = on_gpu(LandingChoice::Auto, QueueMemoryChoice::Auto, &closed, &mut notes).unwrap();
        assert_eq!((next.landing, next.queues), (LandingPath::Bounce, QueueMemory::Host));
        assert_eq!(notes, ["landing bounce: no way", "queues host: data lands in host memory"]);
        let cmb = gpu(LandingChoice::Auto, QueueMemoryChoice::Cmb, true).unwrap();
        assert_eq!((cmb.queues, cmb.completions), (QueueMemory::Cmb, Place::Device));
        let cmb = gpu(LandingChoice::Auto, QueueMemoryChoice::Cmb, false).unwrap();
        assert_eq!((cmb.queues, cmb.landing), (QueueMemory::Cmb, LandingPath::Bounce));
    }

    #[test]
    fn what_was_asked_for_and_cannot_be_is_refused() {
        let what = |r: Result<DataPath, Unavailable>| r.unwrap_err().what;
        assert_eq!(what(gpu(LandingChoice::Direct, QueueMemoryChoice::Auto, false)), "landing direct");
        assert_eq!(what(gpu(LandingChoice::Auto, QueueMemoryChoice::Gpu, false)), "queues gpu");
        for (landing, queues) in
            [(LandingChoice::Direct, QueueMemoryChoice::Host), (LandingChoice::Bounce, QueueMemoryChoice::Gpu)]
        {
            let unavailable = gpu(landing, queues, true).unwrap_err();
            assert!(unavailable.reason.contains("before its data"), "{unavailable:?}");
        }
    }

    #[test]
    fn every_data_path_that_is_taken_has_an_order() {
        assert_eq!(order(None, Place::Host), Some(WritesOrder::Processor));
        assert_eq!(order(Some(WritesOrdering::None), Place::Host), Some(WritesOrder::HostMemory));
        assert_eq!(order(Some(WritesOrdering::Owner), Place::Device), Some(WritesOrder::GpuOwner));
        assert_eq!(order(Some(WritesOrdering::All), Place::Device), Some(WritesOrder::GpuAll));
        assert_eq!(order(Some(WritesOrdering::None), Place::Device), None);
    }
}
