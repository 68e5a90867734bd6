//! Number of processors that the program uses; uses `failure` and `remedy`.
//!
//! The CPU engine's threads, the service threads of software devices and the spinning of idle threads depend on this
//! number. The variable [`VARIABLE`] replaces the system's number, so that a program or a test suite runs as on another
//! machine.

use crate::failure::{ErrorKind, Failure};
use crate::remedy::Remedies;
use std::ffi::OsStr;
use std::sync::OnceLock;

/// The environment variable that replaces the number of processors: a whole number, 1 to [`MOST`].
pub const VARIABLE: &str = "WARPBELL_PROCESSORS";

/// Largest number that [`VARIABLE`] takes.
pub const MOST: usize = 1024;

/// Error of reading [`VARIABLE`]: its value is no number of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE} is `{value}`, which is no number of processors; write a whole number from 1 to {MOST}, or unset it"
)]
pub struct BadProcessors {
    /// The variable's value.
    pub value: String,
}

impl Remedies for BadProcessors {}

impl Failure for BadProcessors {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Argument
    }
}

/// Returns the number of processors that the program uses: [`VARIABLE`] if it is set, otherwise [`of_system`].
///
/// Reads the environment once per process.
///
/// # Errors
/// [`BadProcessors`] if the variable is set to anything but a whole number from 1 to [`MOST`].
pub fn checked() -> Result<usize, BadProcessors> {
    Ok(replaced()?.unwrap_or_else(of_system))
}

/// Returns the number of [`checked`] for callers that cannot return an error: a bad value counts as not set.
pub fn count() -> usize {
    checked().unwrap_or_else(|_| of_system())
}

/// Returns the number of processors that threads may keep busy by spinning: [`count`], but at most [`of_system`].
pub(crate) fn to_spin_on() -> usize {
    count().min(of_system())
}

/// Returns the value of [`VARIABLE`], or `None` if it is not set.
///
/// # Errors
/// As [`checked`].
pub fn replaced() -> Result<Option<usize>, BadProcessors> {
    static VALUE: OnceLock<Result<Option<usize>, BadProcessors>> = OnceLock::new();
    VALUE.get_or_init(|| std::env::var_os(VARIABLE).as_deref().map(parse).transpose()).clone()
}

/// Returns the number of processors that the system lets this process use, or 1 if the system does not report it.
pub fn of_system() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

fn parse(value: &OsStr) -> Result<usize, BadProcessors> {
    let number = value.to_str().and_then(|v| v.parse().ok()).filter(|n| (1..=MOST).contains(n));
    number.ok_or_else(|| BadProcessors { value: value.to_string_lossy().into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_within_the_range_are_read_and_others_refused() {
        for (value, number) in [("1", 1), ("16", 16), ("1024", 1024)] {
            assert_eq!(parse(OsStr::new(value)), Ok(number));
        }
        for value in ["", "0", "1025", "-1", "two", " 4", "4.0"] {
            let e = parse(OsStr::new(value)).unwrap_err().to_string();
            assert!(e.contains(&format!("WARPBELL_PROCESSORS is `{value}`")) && e.contains("1 to 1024"), "{e}");
        }
    }
}
