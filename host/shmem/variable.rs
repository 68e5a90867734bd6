//! Environment variables that configure worlds.

use super::ShmemError;
use std::fmt;

/// Returns the value of an environment variable, or `None` if it is unset or blank.
pub(super) fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.trim().is_empty())
}

/// Parses the value of an environment variable.
///
/// # Errors
/// [`ShmemError::Setting`] with the error of `read`.
pub(super) fn value<T, E: fmt::Display>(
    name: &'static str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, ShmemError> {
    read(text).map_err(|e| ShmemError::Setting { name, reason: e.to_string() })
}

/// Returns the value that the program gave, otherwise the parsed value of the environment variable.
///
/// # Errors
/// [`ShmemError::Setting`] if the variable is used and `read` rejects its value.
pub(super) fn or_read<T, E: fmt::Display>(
    given: Option<T>,
    name: &'static str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, ShmemError> {
    match given {
        Some(given) => Ok(Some(given)),
        None => text(name).map(|text| value(name, &text, read)).transpose(),
    }
}
