//! Translates the remedies of the library's errors into options of this program.

use crate::workloads::error::MeasureError;
use std::error::Error;
use warpbell::engine::{EngineError, RunError};
use warpbell::graph::GraphError;
use warpbell::memory::MemoryError;
use warpbell::nvme::NvmeError;
use warpbell::nvme::fabrics::FabricsError;
use warpbell::nvme::vfio::VfioError;
use warpbell::pci::BindError;
use warpbell::remedy::{Remedies, Remedy};
use warpbell::shmem::ShmemError;
use warpbell::storage::{RowFileError, StorageError};

/// Returns the remedies of an error as a sentence, as in `choose another device, or give --yes-destroy edges.img`.
pub fn of(e: &(dyn Error + 'static)) -> Option<String> {
    let remedies = carried::<StorageError>(e)
        .or_else(|| carried::<RowFileError>(e))
        .or_else(|| carried::<GraphError>(e))
        .or_else(|| carried::<EngineError>(e))
        .or_else(|| carried::<RunError>(e))
        .or_else(|| carried::<MemoryError>(e))
        .or_else(|| carried::<ShmemError>(e))
        .or_else(|| carried::<NvmeError>(e))
        .or_else(|| carried::<VfioError>(e))
        .or_else(|| carried::<FabricsError>(e))
        .or_else(|| carried::<BindError>(e))
        .or_else(|| carried::<MeasureError>(e))?;
    (!remedies.is_empty()).then(|| remedies.iter().map(in_options).collect::<Vec<_>>().join(", or "))
}

fn carried<E: Remedies + 'static>(e: &(dyn Error + 'static)) -> Option<Vec<Remedy>> {
    e.downcast_ref::<E>().map(E::remedies)
}

/// Returns one remedy in the options of this program.
pub fn in_options(remedy: &Remedy) -> String {
    match remedy {
        Remedy::UseGpu => "use --engine gpu".to_owned(),
        Remedy::Overwrite(path) => format!("give --yes-destroy {}", path.display()),
        Remedy::LoadUndirected => "give --undirected (for a stored graph, to graph import)".to_owned(),
        Remedy::StoreWeights => "import it with weights (graph import --weights integers, reals or input)".to_owned(),
        Remedy::AcceptNoIommu => "accept the risk with --unsafe-no-iommu".to_owned(),
        Remedy::Bind { function, rehearse: false } => format!("warpbell nvme bind {function}"),
        Remedy::Bind { function, rehearse: true } => format!("on the host: warpbell nvme bind {function} --dry-run"),
        Remedy::OpenAs { before, device, after } => format!("{before}--device {device}{after}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::storage::{Drive, OverwritePolicy};

    #[test]
    fn options_are_named_by_the_program_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "somebody's thesis").unwrap();
        let e = Drive::create(&format!("soft:{}", file.path().display()), 4096, &OverwritePolicy::none()).unwrap_err();
        assert!(!e.to_string().contains("--"), "{e}");
        assert_eq!(of(&e).unwrap(), format!("choose another device, or give --yes-destroy {}", file.path().display()));
        assert_eq!(of(&std::io::Error::other("not ours")), None);
    }

    #[test]
    fn steps_of_the_doctor_are_commands_and_options() {
        let bind = |rehearse| in_options(&Remedy::Bind { function: "0000:65:00.0".to_owned(), rehearse });
        assert_eq!(bind(false), "warpbell nvme bind 0000:65:00.0");
        assert_eq!(bind(true), "on the host: warpbell nvme bind 0000:65:00.0 --dry-run");
        let device = "nvme:ADDRESS,unsafe-no-iommu".to_owned();
        let open = Remedy::OpenAs { before: "only without an IOMMU: ", device, after: "" };
        assert_eq!(in_options(&open), "only without an IOMMU: --device nvme:ADDRESS,unsafe-no-iommu");
        assert_eq!(open.to_string(), "only without an IOMMU: nvme:ADDRESS,unsafe-no-iommu");
    }
}
