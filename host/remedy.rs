//! Remedies that errors carry as data; uses no other module.
//!
//! The text of an error states the fact and the cause. A program translates the remedies into its own options.

use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// One way to remove the cause of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// A step outside the program, as text, such as `install the NVIDIA driver`.
    Step(Cow<'static, str>),
    /// Use a GPU as the engine ([`Engine::gpu`](crate::engine::Engine::gpu)).
    UseGpu,
    /// Permit that this file or device is overwritten, by an [`OverwritePolicy`](crate::storage::OverwritePolicy) that
    /// names it.
    Overwrite(PathBuf),
    /// Load the graph as undirected ([`Orientation`](crate::graph::Orientation)).
    LoadUndirected,
    /// Import the graph again, with weights ([`WeightMode`](crate::graph::WeightMode)).
    StoreWeights,
    /// Accept the risk of using the device without an IOMMU, by name (`unsafe-no-iommu` in a device specification).
    AcceptNoIommu,
    /// Bind a PCI function to vfio-pci.
    Bind {
        /// The address, as in `0000:65:00.0`.
        function: String,
        /// True if only the host can tell whether the function is unused. The remedy is then a rehearsal of the
        /// binding.
        rehearse: bool,
    },
    /// Open a device by this specification.
    OpenAs {
        /// Text before the specification.
        before: &'static str,
        /// The specification, as in `nvme:0000:65:00.0,api=cdev`.
        device: String,
        /// Text after the specification.
        after: &'static str,
    },
}

impl Remedy {
    pub(crate) fn step(words: impl Into<Cow<'static, str>>) -> Self {
        Self::Step(words.into())
    }
}

/// Prints the remedy in the library's words. A program may use its own.
impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(words) => f.write_str(words),
            Self::UseGpu => f.write_str("use a GPU engine"),
            Self::Overwrite(path) => write!(f, "permit overwriting {}", path.display()),
            Self::LoadUndirected => f.write_str("load it as undirected"),
            Self::StoreWeights => f.write_str("import it with weights"),
            Self::AcceptNoIommu => f.write_str("accept the risk with the device option unsafe-no-iommu"),
            Self::Bind { function, rehearse: false } => write!(f, "bind {function} to vfio-pci"),
            Self::Bind { function, rehearse: true } => {
                write!(f, "on the host: find out whether {function} can be bound to vfio-pci")
            }
            Self::OpenAs { before, device, after } => write!(f, "{before}{device}{after}"),
        }
    }
}

/// Serialises as the text of `Display`.
impl Serialize for Remedy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An error that carries its remedies.
pub trait Remedies: Error {
    /// Returns the remedies, the best first. Returns none if none is known, or if the error's text already names it.
    fn remedies(&self) -> Vec<Remedy> {
        Vec::new()
    }
}

/// Returns an error's text with its remedies in the library's words.
pub(crate) fn told<E: Remedies>(e: &E) -> String {
    let remedies: Vec<String> = e.remedies().iter().map(Remedy::to_string).collect();
    if remedies.is_empty() { e.to_string() } else { format!("{e}; {}", remedies.join(", or ")) }
}

/// Implements [`Remedies`] for an error by passing on the remedies of its variants: `pass_on!(Outer: Variant,
/// Variant)`.
macro_rules! pass_on {
    ($error:ty: $($variant:ident),+) => {
        impl $crate::remedy::Remedies for $error {
            fn remedies(&self) -> Vec<$crate::remedy::Remedy> {
                match self {
                    $(Self::$variant(e) => e.remedies(),)+
                    _ => Vec::new(),
                }
            }
        }
    };
}
pub(crate) use pass_on;
