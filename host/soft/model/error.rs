//! Errors of reading a model.

use std::io;

/// Error of a model's file. Each names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file cannot be read.
    #[error("model {file}: cannot read it: {source}")]
    Read {
        /// Name of the file.
        file: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The text is not TOML.
    #[error("model {file}, line {line}: {reason}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// Number of the line, from 1.
        line: usize,
        /// Message of the parser, on one line.
        reason: String,
    },
    /// A key does not exist.
    #[error("model {file}: there is no parameter `{key}`{hint}")]
    Unknown {
        /// Name of the file.
        file: String,
        /// The key with the tables that it is in.
        key: String,
        /// Question with the closest key, or an empty text.
        hint: String,
    },
    /// A key is missing.
    #[error("model {file}: `{key}` is missing; give {expected}")]
    Missing {
        /// Name of the file.
        file: String,
        /// The key with the tables that it is in.
        key: String,
        /// Description of valid values.
        expected: String,
    },
    /// A value has another type, or is out of range.
    #[error("model {file}: `{key}` is {value}; give {expected}")]
    Value {
        /// Name of the file.
        file: String,
        /// The key with the tables that it is in.
        key: String,
        /// The value.
        value: String,
        /// Description of valid values.
        expected: String,
    },
    /// Values that are valid by themselves contradict each other.
    #[error("model {file}: {reason}")]
    Contradiction {
        /// Name of the file.
        file: String,
        /// The parameters, their values, and the rule.
        reason: String,
    },
}
