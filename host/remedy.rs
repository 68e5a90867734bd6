//! The ways out that errors carry as data; stands on nothing.
//!
//! The text of an error states the fact and the cause. A program turns the remedies into its own options.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// One way to remove the cause of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// A step outside the program, in words, as in `install the NVIDIA driver`.
    Step(Cow<'static, str>),
    /// A GPU as the engine ([`Engine::gpu`](crate::engine::Engine::gpu)).
    UseGpu,
    /// This file or device may be overwritten once a [`Consent`](crate::storage::Consent) names it.
    Overwrite(PathBuf),
    /// The device may be used without an IOMMU once the risk is accepted by name (`unsafe-no-iommu` in a device specification).
    AcceptNoIommu,
}

impl Remedy {
    pub(crate) fn step(words: impl Into<Cow<'static, str>>) -> Self {
        Self::Step(words.into())
    }
}

/// In words of the library.
impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(words) => f.write_str(words),
            Self::UseGpu => f.write_str("use a GPU engine"),
            Self::Overwrite(path) => write!(f, "permit that {} is overwritten", path.display()),
            Self::AcceptNoIommu => f.write_str("accept the risk by name (unsafe-no-iommu)"),
        }
    }
}

/// An error that carries its remedies.
pub trait Remedies: Error {
    /// Returns the ways to remove the cause, the best first; none where none is known, or where the text of the error names it.
    fn remedies(&self) -> Vec<Remedy>;
}

/// Returns an error with its remedies in the library's words.
pub(crate) fn told<E: Remedies>(e: &E) -> String {
    let remedies: Vec<String> = e.remedies().iter().map(Remedy::to_string).collect();
    if remedies.is_empty() { e.to_string() } else { format!("{e}; {}", remedies.join(", or ")) }
}

/// Passes on the remedies of errors that are variants of another error: `pass_on!(Outer: Variant, Variant)`.
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
