//! Environment variables that worlds are set up by.

use super::ShmemError;
use std::fmt;

/// Returns what a variable says, if it says anything.
pub(super) fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.trim().is_empty())
}

/// Reads what a variable says.
///
/// # Errors
/// [`ShmemError::Setting`] with the reason of `read`.
pub(super) fn value<T, E: fmt::Display>(
    name: &'static str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, ShmemError> {
    read(text).map_err(|e| ShmemError::Setting { name, reason: e.to_string() })
}

/// Returns what the program gives, else what a variable says.
///
/// # Errors
/// Those of [`value`], if the variable decides.
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
