//! Checks of free memory, so that a graph that cannot fit is refused before anything is allocated for it.

use super::error::ImportError;
use crate::memory::free_host_memory;
use std::path::Path;

/// Returns an error if `needed` bytes are more than `limit`, or without a limit more than is free. Without a limit it
/// also asks the system for as many bytes at once, since the system may have limits that it does not report.
pub(crate) fn check(
    what: &str,
    vertices: u128,
    edges: u128,
    needed: u128,
    limit: Option<u64>,
) -> Result<(), ImportError> {
    match limit.or_else(free_host_memory) {
        Some(free) if needed > u128::from(free) => {
            Err(ImportError::Memory { what: what.to_owned(), vertices, edges, needed, free: free.into() })
        }
        // This also refuses sizes that no address space holds.
        None if needed > isize::MAX as u128 => {
            Err(ImportError::Memory { what: what.to_owned(), vertices, edges, needed, free: isize::MAX as u128 })
        }
        _ if limit.is_none() && !is_given(needed) => {
            Err(ImportError::Refused { what: what.to_owned(), vertices, edges, needed })
        }
        _ => Ok(()),
    }
}

/// Returns true if the system allocates so many bytes. They are freed again untouched.
fn is_given(bytes: u128) -> bool {
    usize::try_from(bytes).is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok())
}

/// Returns an error if a text file's numbers alone, about half of its length, need more memory than is free.
pub(crate) fn check_text(path: &Path, bytes: u64, limit: Option<u64>) -> Result<(), ImportError> {
    let needed = bytes / 2;
    match limit.or_else(free_host_memory) {
        Some(free) if needed > free => Err(ImportError::LargeText { path: path.to_owned(), bytes, needed, free }),
        _ => Ok(()),
    }
}

/// Returns an error if `more` bytes beside the `bytes` that an input has so far do not fit into memory.
pub(crate) fn check_bytes(path: &Path, bytes: u64, more: u64, limit: Option<u64>) -> Result<(), ImportError> {
    let large = |free| ImportError::LargeText { path: path.to_owned(), bytes, needed: bytes + more, free };
    match (limit, free_host_memory()) {
        (Some(limit), _) if bytes + more > limit => Err(large(limit)),
        (None, Some(free)) if more > free => Err(large(free)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_limit() {
        assert!(check("g", 1, 1, 100, Some(100)).is_ok());
        let error = check("g", 2, 3, 101, Some(100)).unwrap_err().to_string();
        assert_eq!(
            error,
            "g: 2 vertices and 3 edges need about 101 bytes of memory, 100 bytes is free; free some, or take a smaller graph"
        );
        assert!(is_given(1 << 10) && !is_given(1 << 60) && !is_given(u128::MAX));
    }
}
