//! Errors of specifications.

/// Error of reading a specification.
///
/// The messages do not repeat the specification: whoever reads one knows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Nothing before a colon.
    #[error("it names no kind of device; there are {FORMS}")]
    NoScheme,
    /// A kind of device that does not exist.
    #[error("there is no kind of device `{scheme}`; there are {FORMS}{}", crate::suggest::hint(.scheme, ["soft", "qtest", "nvme"]))]
    UnknownScheme {
        /// As it was written.
        scheme: String,
    },
    /// A kind of device that the reader of the specification does not make.
    #[error("it is a device of the kind `{scheme}`, and `{wanted}` was expected")]
    OtherScheme {
        /// The kind that was written.
        scheme: &'static str,
        /// The kind that the reader makes.
        wanted: &'static str,
    },
    /// A kind of device whose feature the build has not.
    #[error("this build has no {devices}; build warpbell with feature `{feature}`")]
    NotBuilt {
        /// The devices.
        devices: &'static str,
        /// The feature of the crate.
        feature: &'static str,
    },
    /// Nothing after the colon.
    #[error("it names no {wanted}")]
    NoName {
        /// The thing that the name stands for, and the form to write it in.
        wanted: &'static str,
    },
    /// A file that does not exist, and whose name looks like something else: an option, or `mem` misspelled.
    #[error("`{name}` {looks}; a file of that name is soft:file:{name}{meant}")]
    NotAName {
        /// As it is written in a specification.
        name: String,
        /// A description of its look, as in `names no file`.
        looks: String,
        /// The end of the message, with the word that may have been meant.
        meant: String,
    },
    /// An option that does not exist.
    #[error("there is no option `{key}`; there are {known}")]
    UnknownOption {
        /// As it was written.
        key: String,
        /// The options that there are, and the one that may have been meant.
        known: String,
    },
    /// An option that was given before, whose value is missing or does not fit, or that has no meaning together with the rest; or the
    /// size of memory.
    #[error("`{option}`: {reason}")]
    BadOption {
        /// As it is written in a specification.
        option: String,
        /// Why, or the values that would fit.
        reason: String,
    },
}

const FORMS: &str = "soft:mem[:SIZE], soft:FILE, qtest:FILE or nvme:ADDRESS, each with options after commas";
