//! RLIMIT_MEMLOCK: finds out whether the kernel's ENOMEM means that the limit was reached.
//!
//! This process refuses nothing beforehand. Only the kernel knows what counts: device memory is mapped in the same way
//! as host memory, but does not count.

use crate::memory::{IommuError, IommuKind};
use std::io;

/// Returns the error to report if a refusal is due to the limit: it is ENOMEM, and `needed`
/// more bytes exceed the limit.
pub(super) fn explain(kind: IommuKind, device: &str, needed: u64, failure: &io::Error) -> Option<IommuError> {
    let status = || std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    match failure.raw_os_error() {
        Some(libc::ENOMEM) => compare(device, needed, counted(&status(), kind), soft_limit()?),
        _ => None,
    }
}

/// Returns the bytes that already count against the limit.
fn counted(status: &str, kind: IommuKind) -> u64 {
    // type1 counts the process's locked memory. iommufd counts by user; only this process's
    // pinned memory is visible here.
    let name = match kind {
        IommuKind::Type1 => "VmLck:",
        IommuKind::Iommufd => "VmPin:",
    };
    let kib = status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

fn compare(device: &str, needed: u64, used: u64, allowed: u64) -> Option<IommuError> {
    let over = used.saturating_add(needed) > allowed;
    over.then(|| IommuError::MemoryLock { device: device.to_owned(), needed, used, allowed })
}

/// Returns the soft limit in bytes; `None` if it is unlimited.
fn soft_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives for the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0 {
        return None;
    }
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\twarpbell\nVmLck:\t    4096 kB\nVmPin:\t       8 kB\nCapEff:\t0000000000000000\n";

    #[test]
    fn the_limit_is_told_with_what_counts_against_it() {
        let used = counted(STATUS, IommuKind::Type1);
        assert_eq!((used, counted(STATUS, IommuKind::Iommufd), counted("", IommuKind::Type1)), (4 << 20, 8192, 0));
        assert!(compare("d", 4 << 20, used, 8 << 20).is_none());
        let text = compare("0000:65:00.0", (4 << 20) + 4096, used, 8 << 20).unwrap().to_string();
        assert_eq!(
            text,
            "0000:65:00.0: 4198400 bytes to pin, 4194304 pinned already, the limit on locked memory is 8388608 bytes: raise it \
             with `ulimit -l 8196` (KiB), `LimitMEMLOCK=infinity` in the systemd unit, or `memlock` in /etc/security/limits.conf"
        );
    }

    #[test]
    fn only_a_lack_of_memory_can_be_the_limit() {
        let failure = io::Error::from_raw_os_error;
        assert!(explain(IommuKind::Type1, "d", u64::MAX, &failure(libc::EFAULT)).is_none());
        assert!(explain(IommuKind::Type1, "d", 0, &failure(libc::ENOMEM)).is_none());
    }
}
