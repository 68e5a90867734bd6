//! Errors of specifications.

use crate::failure::{ErrorKind, Failure};
use crate::remedy::Remedies;

/// Error of reading a specification.
///
/// The messages do not repeat the specification, because their reader knows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The specification has no colon, and therefore names no kind of device.
    #[error("it names no kind of device; there are {FORMS}")]
    NoScheme,
    /// An unknown kind of device.
    #[error("there is no kind of device `{scheme}`; there are {FORMS}{}", crate::suggest::hint(.scheme, ["soft", "qtest", "nvme", "nvmf"]))]
    UnknownScheme {
        /// The kind as written.
        scheme: String,
    },
    /// A kind of device that the reader of the specification does not open.
    #[error("it is a device of the kind `{scheme}`, and `{wanted}` was expected")]
    OtherScheme {
        /// The kind as written.
        scheme: &'static str,
        /// The kind that the reader opens.
        wanted: &'static str,
    },
    /// A kind of device whose feature is not part of this build.
    #[error("this build has no {devices}; build warpbell with feature `{feature}`")]
    NotBuilt {
        /// The kind of devices.
        devices: &'static str,
        /// The crate's feature that provides them.
        feature: &'static str,
    },
    /// Nothing follows the colon.
    #[error("it names no {wanted}")]
    NoName {
        /// Thing that the name should denote, and how to write it.
        wanted: &'static str,
    },
    /// The name of a file that does not exist and that looks like something else: an option, or `mem` misspelled.
    #[error("`{name}` {looks}; for a file of that name write soft:file:{name}{meant}")]
    NotAName {
        /// The name, with the escapes of a specification.
        name: String,
        /// Description of the name's appearance, as in `does not look like a file name`.
        looks: String,
        /// End of the message, with the word that was probably meant.
        meant: String,
    },
    /// An unknown option.
    #[error("there is no option `{key}`; there are {known}")]
    UnknownOption {
        /// The option as written.
        key: String,
        /// Known options, and the one that was probably meant.
        known: String,
    },
    /// An option that was given before, whose value is missing or invalid, or that contradicts the rest; or an invalid
    /// size of memory.
    #[error("`{option}`: {reason}")]
    BadOption {
        /// The option as written.
        option: String,
        /// Reason, or the valid values.
        reason: String,
    },
}

impl Remedies for SpecError {}

impl Failure for SpecError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotBuilt { .. } => ErrorKind::Unsupported,
            Self::NoScheme | Self::UnknownScheme { .. } | Self::OtherScheme { .. } => ErrorKind::Argument,
            Self::NoName { .. } | Self::NotAName { .. } => ErrorKind::Argument,
            Self::UnknownOption { .. } | Self::BadOption { .. } => ErrorKind::Argument,
        }
    }
}

const FORMS: &str =
    "soft:mem[:SIZE], soft:FILE, qtest:FILE, nvme:ADDRESS or nvmf:tcp://HOST/NQN, each with options after commas";
