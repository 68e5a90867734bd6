//! RLIMIT_MEMLOCK: what it leaves, looked at before the kernel refuses with a bare ENOMEM.

use crate::memory::{IommuError, IommuKind};
use std::io;

/// `CAP_IPC_LOCK` (linux/capability.h): whoever has it is not limited.
const CAP_IPC_LOCK: u32 = 14;

/// What counts against the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Locked {
    /// Bytes that count already.
    used: u64,
    /// The limit; `None` if there is none.
    limit: Option<u64>,
    /// Whether this process seems to be above it. In a user namespace it may seem so and not be.
    exempt: bool,
}

impl Locked {
    /// This process now.
    pub(super) fn now(kind: IommuKind) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::of(&status, soft_limit(), kind)
    }

    fn of(status: &str, limit: Option<u64>, kind: IommuKind) -> Self {
        let field = |name: &str| {
            status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(|v| v.trim().to_owned())
        };
        let kib = |name: &str| {
            field(name).and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024)
        };
        // type1 counts in the process's locked memory; iommufd by user, of which this process's pinned memory is what can be seen.
        let used = kib(match kind {
            IommuKind::Type1 => "VmLck",
            IommuKind::Iommufd => "VmPin",
        });
        let effective = field("CapEff").and_then(|v| u64::from_str_radix(&v, 16).ok()).unwrap_or(0);
        Self { used, limit, exempt: effective >> CAP_IPC_LOCK & 1 == 1 }
    }

    /// Whether `needed` more bytes fit.
    pub(super) fn check(self, device: &str, needed: u64) -> Result<(), IommuError> {
        if self.exempt { Ok(()) } else { self.compare(device, needed) }
    }

    /// What the kernel's ENOMEM meant: the limit after all, if `needed` more bytes do not fit.
    pub(super) fn explain(self, device: &str, needed: u64, refusal: &io::Error) -> Option<IommuError> {
        if refusal.raw_os_error() != Some(libc::ENOMEM) {
            return None;
        }
        self.compare(device, needed).err()
    }

    fn compare(self, device: &str, needed: u64) -> Result<(), IommuError> {
        match self.limit {
            Some(allowed) if self.used.saturating_add(needed) > allowed => {
                Err(IommuError::MemoryLock { device: device.to_owned(), needed, used: self.used, allowed })
            }
            _ => Ok(()),
        }
    }
}

/// The soft limit in bytes; `None` if it is unlimited.
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
    fn the_limit_is_told_before_it_is_hit() {
        let locked = Locked::of(STATUS, Some(8 << 20), IommuKind::Type1);
        assert_eq!(locked, Locked { used: 4 << 20, limit: Some(8 << 20), exempt: false });
        assert!(locked.check("d", 4 << 20).is_ok());
        let text = locked.check("0000:65:00.0", (4 << 20) + 4096).unwrap_err().to_string();
        assert_eq!(
            text,
            "0000:65:00.0: 4198400 bytes to pin, 4194304 pinned already, the limit on locked memory is 8388608 bytes: raise it \
             with `ulimit -l 8196` (KiB), `LimitMEMLOCK=infinity` in the systemd unit, or `memlock` in /etc/security/limits.conf"
        );
        assert_eq!(Locked::of(STATUS, Some(1), IommuKind::Iommufd).used, 8192);
    }

    #[test]
    fn no_limit_and_the_capability_let_everything_pass() {
        assert!(Locked::of(STATUS, None, IommuKind::Type1).check("d", u64::MAX).is_ok());
        let able = STATUS.replace("CapEff:\t0000000000000000", "CapEff:\t0000000000004000");
        assert!(Locked::of(&able, Some(0), IommuKind::Type1).check("d", 1 << 40).is_ok());
        // In a user namespace the kernel refuses nevertheless.
        let refusal = io::Error::from_raw_os_error(libc::ENOMEM);
        let locked = Locked::of(&able, Some(0), IommuKind::Type1);
        assert!(matches!(locked.explain("d", 1, &refusal), Some(IommuError::MemoryLock { .. })));
        assert!(locked.explain("d", 1, &io::Error::from_raw_os_error(libc::EFAULT)).is_none());
        assert!(Locked::of(&able, None, IommuKind::Type1).explain("d", 1, &refusal).is_none());
        assert!(Locked::of("", Some(0), IommuKind::Type1).check("d", 1).is_err());
    }
}
