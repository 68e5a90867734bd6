//! Parquet files and Arrow IPC files as bytes for their decoders. Edge tables and rows of tables are made from them.

mod footer;
mod source;

pub(crate) use footer::check;
pub(crate) use source::Source;

use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe};

/// Runs a decoder, which panics on some damaged files. A panic is an error of the file here: nothing that the decoder had
/// changed may be used afterwards.
///
/// # Errors
/// The error of `decode`, or the reason for a panic.
pub(crate) fn guarded<T, E>(wrong: impl FnOnce(String) -> E, decode: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    panic::catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(wrong("cannot be decoded (the decoder failed); the file is damaged".to_owned())))
}

/// Returns an error of a decoder, whose text may have several lines, as the reason why a file cannot be read.
pub(crate) fn damaged(error: &dyn Display) -> String {
    let text = error.to_string();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("cannot be decoded ({text}); the file is cut short or damaged, or has a codec that is not supported")
}
