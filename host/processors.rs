//! Number of processors that the program counts on; stands on nothing.
//!
//! Threads of the CPU engine, service threads of software devices and the spinning of idle threads follow this number. The variable
//! [`VARIABLE`] replaces what the system says, so that a program or a test suite runs as on another machine.

use std::ffi::OsStr;
use std::sync::OnceLock;

/// The environment variable that replaces the number of processors: a whole number, 1 to [`MOST`].
pub const VARIABLE: &str = "WARPBELL_PROCESSORS";

/// Largest number that [`VARIABLE`] takes.
pub const MOST: usize = 1024;

/// A value of [`VARIABLE`] that is no number of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE} is `{value}`, which is no number of processors; write a whole number from 1 to {MOST}, or unset it"
)]
pub struct BadProcessors {
    /// The variable's value.
    pub value: String,
}

/// Returns the number of processors that the program counts on: [`VARIABLE`] where it is set, [`of_system`] elsewhere.
///
/// The environment is read once.
///
/// # Errors
/// [`BadProcessors`] where the variable is set to something else than a whole number from 1 to [`MOST`].
pub fn checked() -> Result<usize, BadProcessors> {
    Ok(replaced()?.unwrap_or_else(of_system))
}

/// Returns the same number as [`checked`] where no error can be returned: a bad value counts as not set.
pub fn count() -> usize {
    checked().unwrap_or_else(|_| of_system())
}

/// Returns the number of processors that threads may keep busy by spinning: as [`count`], and no more than there are.
pub(crate) fn to_spin_on() -> usize {
    count().min(of_system())
}

/// Returns the number that [`VARIABLE`] gives; `None` where it is not set.
///
/// # Errors
/// As for [`checked`].
pub fn replaced() -> Result<Option<usize>, BadProcessors> {
    static VALUE: OnceLock<Result<Option<usize>, BadProcessors>> = OnceLock::new();
    VALUE.get_or_init(|| std::env::var_os(VARIABLE).as_deref().map(parse).transpose()).clone()
}

/// Returns the number of processors that the system lets this process use, 1 where it does not say.
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
