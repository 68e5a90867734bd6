//! The memory that is free, so that work that cannot fit is refused before anything is allocated for it.

use std::fs;

/// Bytes that this process can still get: the least of what the machine and its control group have free. `None` where the system
/// does not tell.
pub(crate) fn free_memory() -> Option<u64> {
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
}
