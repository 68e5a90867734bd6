//! Mapping backends by name, the choice among them, and the outcome of each.

use super::reason::BackendError;
use super::syscalls::Syscalls;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A way to give a device an address for GPU memory. Ordered by preference, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MappingBackend {
    /// VFIO type1 maps a CPU mapping of GPU memory that the gdrdrv module creates.
    Gdrdrv,
    /// VFIO type1 maps a CPU mapping of the GPU driver's dma-buf.
    DmaBufMmap,
    /// iommufd maps the dma-buf itself.
    Iommufd,
    /// BaM's libnvm module returns bus addresses.
    Libnvm,
    /// uPCIe's dmabuf_import module returns bus addresses.
    DmabufImport,
    /// uPCIe's iommu_map_pa module enters bus addresses into the device's IOMMU domain.
    IommuMapPa,
    /// Pinned host memory instead of GPU memory: queues in host memory, bounce landing.
    Host,
}

impl MappingBackend {
    /// All backends, best first.
    pub const ALL: [Self; 7] =
        [Self::Gdrdrv, Self::DmaBufMmap, Self::Iommufd, Self::Libnvm, Self::DmabufImport, Self::IommuMapPa, Self::Host];

    /// Returns the name, as in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gdrdrv => "gdrdrv",
            Self::DmaBufMmap => "dma-buf-mmap",
            Self::Iommufd => "iommufd",
            Self::Libnvm => "libnvm",
            Self::DmabufImport => "dmabuf-import",
            Self::IommuMapPa => "iommu-map-pa",
            Self::Host => "host",
        }
    }

    /// Returns the steps that install what the backend needs.
    pub(crate) const fn how_to_get(self) -> &'static str {
        match self {
            Self::Gdrdrv => "install GDRCopy's kernel module and load it: modprobe gdrdrv",
            Self::DmaBufMmap => "use the open kernel modules of the GPU driver (nvidia-open)",
            Self::Iommufd => "use a kernel with CONFIG_IOMMUFD (Linux 6.6 or newer) and load it: modprobe iommufd",
            // Its device file exists only for a controller that is bound to it.
            Self::Libnvm => {
                "build BaM's libnvm module with CUDA support, load it with the IOMMU off or in pass-through, and bind another controller to it"
            }
            Self::DmabufImport => "install uPCIe's dmabuf-import-dkms and load it: modprobe dmabuf_import",
            Self::IommuMapPa => "install uPCIe's iommu-map-pa-dkms and dmabuf-import-dkms and load both",
            Self::Host => "bind a controller to vfio-pci: warpbell nvme bind ADDRESS",
        }
    }
}

impl fmt::Display for MappingBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for MappingBackend {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// Choice of a mapping backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The first backend that works.
    #[default]
    Auto,
    /// This backend; an error if it does not work.
    Only(MappingBackend),
}

/// A word that names no mapping backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no mapping `{word}`; choose one of auto, gdrdrv, dma-buf-mmap, iommufd, libnvm, dmabuf-import, iommu-map-pa and host"
)]
pub struct UnknownBackend {
    /// The unknown word.
    pub word: String,
}

impl FromStr for BackendChoice {
    type Err = UnknownBackend;

    fn from_str(word: &str) -> Result<Self, UnknownBackend> {
        if word == "auto" {
            return Ok(Self::Auto);
        }
        let backend = MappingBackend::ALL.into_iter().find(|r| r.name() == word);
        backend.map(Self::Only).ok_or_else(|| UnknownBackend { word: word.to_owned() })
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(backend) => backend.fmt(f),
        }
    }
}

/// Outcome of trying a mapping backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The backend works, passed the read-back, and is used.
    Taken,
    /// Everything that the backend needs is present. Nothing was read back, because no device was used.
    Ready,
    /// The backend does not work here.
    PassedOver,
}

/// Result of trying one mapping backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// Backend that was tried.
    pub backend: MappingBackend,
    /// Its outcome.
    pub outcome: Outcome,
    /// Cause of the outcome, or the observation.
    pub reason: String,
    /// Steps that make the backend work; empty if there are none.
    pub next: String,
}

impl Attempt {
    pub(super) fn passed(backend: MappingBackend, error: &BackendError, sys: &dyn Syscalls) -> Self {
        Self { backend, outcome: Outcome::PassedOver, reason: error.to_string(), next: error.next(backend, sys) }
    }

    pub(super) fn good(backend: MappingBackend, outcome: Outcome, reason: impl Into<String>) -> Self {
        Self { backend, outcome, reason: reason.into(), next: String::new() }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Taken => "taken",
            Outcome::Ready => "ready",
            Outcome::PassedOver => "passed over",
        };
        write!(f, "{} {outcome}: {}", self.backend, self.reason)?;
        if self.next.is_empty() { Ok(()) } else { write!(f, "; {}", self.next) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Linux;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn backends_are_named_and_parsed() {
        for backend in MappingBackend::ALL {
            assert_eq!(backend.name().parse(), Ok(BackendChoice::Only(backend)));
            assert_eq!(BackendChoice::Only(backend).to_string(), backend.name());
            assert_eq!(serde_json::to_value(backend).unwrap(), backend.name());
        }
        assert_eq!("auto".parse(), Ok(BackendChoice::Auto));
        assert!(MappingBackend::ALL.is_sorted());
    }

    #[test]
    fn an_attempt_says_what_to_do() {
        let source = std::io::Error::from_raw_os_error(libc::ENOENT);
        let error = BackendError::Open { file: "/dev/gdrdrv".into(), source };
        let text = Attempt::passed(MappingBackend::Gdrdrv, &error, &Linux).to_string();
        assert!(text.starts_with("gdrdrv passed over: /dev/gdrdrv: No such file"), "{text}");
        assert!(text.ends_with("modprobe gdrdrv"), "{text}");
    }

    proptest! {
        #[test]
        fn other_words_are_refused_by_name(word in "[a-z-]{0,12}") {
            let known = word == "auto" || MappingBackend::ALL.iter().any(|r| r.name() == word);
            match word.parse::<BackendChoice>() {
                Ok(choice) => prop_assert_eq!(choice.to_string(), word),
                Err(e) => prop_assert!(!known && e.to_string().contains(&word)),
            }
        }
    }
}
