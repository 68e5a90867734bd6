//! The token that protects the metrics.

use crate::output::Failure;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of the longest token.
const LONGEST: usize = 256;
/// Bytes of the shortest token.
const SHORTEST: usize = 16;

/// Reads a token from the first line of a file that only its owner can access.
///
/// # Errors
/// [`Failure::Error`] if the file cannot be read, others can access it, or it has no token of 16 to 256 letters, digits
/// and other visible characters.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let about = |e: &dyn std::fmt::Display| Failure::about(path.display(), e);
    // A FIFO would wait for a writer.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(|e| about(&e))?;
    let facts = file.metadata().map_err(|e| about(&e))?;
    if !facts.is_file() {
        return Err(about(&"not a regular file; name a file with the token"));
    }
    // SAFETY: a system call without arguments, which does not fail.
    let own = unsafe { libc::geteuid() };
    if facts.mode() & 0o077 != 0 || ![own, 0].contains(&facts.uid()) {
        return Err(about(&format!(
            "mode {:03o}, owner {}: others can read or change the token; use chmod 600 and your own file",
            facts.mode() & 0o777,
            facts.uid()
        )));
    }
    let mut text = Vec::new();
    file.take(LONGEST as u64 + 2).read_to_end(&mut text).map_err(|e| about(&e))?;
    let token = text.split(|b| *b == b'\n').next().unwrap_or_default();
    let token = token.strip_suffix(b"\r").unwrap_or(token);
    if !(SHORTEST..=LONGEST).contains(&token.len()) || !token.iter().all(u8::is_ascii_graphic) {
        return Err(about(&format!(
            "the first line is no token: write {SHORTEST} to {LONGEST} visible ASCII characters, as from openssl rand -hex 32"
        )));
    }
    Ok(token.to_vec())
}

/// Returns true if the two are equal. The time depends on the length of `given` only.
pub fn is_equal(expected: &[u8], given: &[u8]) -> bool {
    let mut difference = u8::from(expected.len() != given.len());
    for (i, byte) in given.iter().enumerate() {
        difference |= byte ^ expected[i % expected.len().max(1)];
        // The compiler must not end the loop at the first difference.
        difference = std::hint::black_box(difference);
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_a_line_of_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let with = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read(&path).map_err(|e| format!("{e:?}"))
        };
        assert_eq!(with("0123456789abcdef\nmore", 0o600).unwrap(), b"0123456789abcdef");
        assert_eq!(with("0123456789abcdef\r\n", 0o400).unwrap(), b"0123456789abcdef");
        for (text, mode, words) in [
            ("0123456789abcdef", 0o640, "mode 640"),
            ("short\n", 0o600, "no token"),
            ("0123456789 abcdef", 0o600, "no token"),
            (&"x".repeat(257), 0o600, "no token"),
        ] {
            assert!(with(text, mode).unwrap_err().contains(words), "{text}");
        }
        assert!(read(folder.path()).is_err());
    }

    #[test]
    fn only_the_whole_token_is_equal() {
        assert!(is_equal(b"abc", b"abc"));
        assert!(["", "ab", "abcd", "abx", "abcabc"].iter().all(|t| !is_equal(b"abc", t.as_bytes())));
    }
}
