//! Random bytes from the system, for secrets and for numbers that must not repeat.

use std::io;

/// Returns `N` random bytes, or the system's error.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Returns random bytes as hexadecimal digits, two for each byte.
pub(crate) fn hex<const N: usize>() -> io::Result<String> {
    Ok(bytes::<N>()?.iter().map(|b| format!("{b:02x}")).collect())
}
