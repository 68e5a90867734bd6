//! How much memory is free, so that a graph that cannot fit is refused before anything is allocated for it.

use super::error::ImportError;
use std::fs;
use std::path::Path;

/// Refuses what needs more than is free (or more than `limit`). Systems that do not tell are trusted.
pub(crate) fn check(
    what: &str,
    vertices: u128,
    edges: u128,
    needed: u128,
    limit: Option<u64>,
) -> Result<(), ImportError> {
    match limit.or_else(free) {
        Some(free) if needed > u128::from(free) => {
            Err(ImportError::Memory { what: what.to_owned(), vertices, edges, needed, free: free.into() })
        }
        // Also what no address space holds.
        None if needed > isize::MAX as u128 => {
            Err(ImportError::Memory { what: what.to_owned(), vertices, edges, needed, free: isize::MAX as u128 })
        }
        _ => Ok(()),
    }
}

/// Refuses a text file whose numbers alone, about half of its length, need more than is free.
pub(crate) fn check_text(path: &Path, bytes: u64, limit: Option<u64>) -> Result<(), ImportError> {
    let needed = bytes / 2;
    match limit.or_else(free) {
        Some(free) if needed > free => Err(ImportError::LargeText { path: path.to_owned(), bytes, needed, free }),
        _ => Ok(()),
    }
}

/// Bytes that this process can still get: the least of what the machine and its control group have free.
fn free() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(most, used)| most.saturating_sub(used.saturating_sub(reclaimable())));
    match (machine, group) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// `MemAvailable` of proc(5)'s meminfo, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// File pages that count as used in the control group but are given up when memory is short.
fn reclaimable() -> u64 {
    let Ok(text) = fs::read_to_string("/sys/fs/cgroup/memory.stat") else { return 0 };
    text.lines()
        .filter_map(|l| l.strip_prefix("inactive_file ").or_else(|| l.strip_prefix("active_file ")))
        .filter_map(|n| n.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_meminfo_is_read_in_kibibytes() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12 * 1024));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn a_limit_is_a_limit() {
        assert!(check("g", 1, 1, 100, Some(100)).is_ok());
        let error = check("g", 2, 3, 101, Some(100)).unwrap_err().to_string();
        assert_eq!(
            error,
            "g: 2 vertices and 3 edges need about 101 bytes of memory, 100 bytes is free; free some, or take a smaller graph"
        );
    }
}
