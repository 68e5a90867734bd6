//! Which host this is: its name, its addresses, its free memory, its page size, the limits of this process, and what tells whether two processes are on one.

mod interfaces;
mod memory;
mod retry;

pub(crate) use interfaces::{address_named, interface_addresses, outward_address};
pub use memory::free_host_memory;
pub(crate) use retry::take;

use std::os::unix::fs::MetadataExt;

/// Returns the bytes of a page of host memory: 4096, and 65536 on some arm64 kernels.
pub(crate) fn page_bytes() -> usize {
    #[cfg(test)]
    if let Some(bytes) = testing::PAGE_BYTES.get() {
        return bytes;
    }
    // SAFETY: asks for a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A page size for tests: what the code computes on a machine with larger pages.
#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;

    thread_local! {
        pub(super) static PAGE_BYTES: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Runs `work` with pages of `bytes` bytes, a power of two. Only this thread sees them.
    pub(crate) fn with_page_bytes<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
        /// Restores the system's page size, after a panic too.
        struct Restore;
        impl Drop for Restore {
            fn drop(&mut self) {
                PAGE_BYTES.set(None);
            }
        }
        let _restore = Restore;
        PAGE_BYTES.set(Some(bytes));
        work()
    }
}

/// Returns the number of descriptors that this process may have open (the soft limit of RLIMIT_NOFILE).
pub(crate) fn descriptor_limit() -> usize {
    /// The kernel's default.
    const USUAL: usize = 1024;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives for the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => USUAL,
    }
}

/// One boot of one machine, and one network namespace there: as far as Unix sockets reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    boot: String,
    /// Device and inode of the network namespace.
    network: Option<(u64, u64)>,
}

impl Machine {
    /// That of this process. What the system does not say is left out.
    pub(crate) fn here() -> Self {
        Self {
            boot: read("/proc/sys/kernel/random/boot_id"),
            network: std::fs::metadata("/proc/self/ns/net").ok().map(|m| (m.dev(), m.ino())),
        }
    }

    /// The machine's boot, as in `0b0d3c44-...`; containers see that of their host.
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// The network namespace as the kernel writes it, as in `net:[4026531840]`; empty if it is not known.
    pub(crate) fn network(&self) -> String {
        self.network.map(|(_, inode)| format!("net:[{inode}]")).unwrap_or_default()
    }

    /// Both as a number; 0 if neither is known.
    pub(crate) fn number(&self) -> u128 {
        let hex: String = self.boot.chars().filter(char::is_ascii_hexdigit).collect();
        let network = self.network.map_or(0, |(device, inode)| inode ^ device << 32);
        u128::from_str_radix(&hex, 16).unwrap_or_default() ^ u128::from(network)
    }
}

/// Returns the name of this host, which each container has for itself; empty if the host has no name.
pub(crate) fn name() -> String {
    read("/proc/sys/kernel/hostname")
}

/// Returns the user of this process, and the user namespace in which that number counts, as in
/// `1000 of user:[4026531837]`. Unix sockets of worlds admit the same user only.
pub(crate) fn user() -> String {
    // SAFETY: takes no pointers and always succeeds.
    let user = unsafe { libc::geteuid() };
    match std::fs::read_link("/proc/self/ns/user") {
        Ok(namespace) => format!("{user} of {}", namespace.display()),
        Err(_) => user.to_string(),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_where_it_is() {
        let here = Machine::here();
        assert_eq!(here, Machine::here());
        assert_eq!(here.boot().len(), 36, "a UUID");
        let link = std::fs::read_link("/proc/self/ns/net").unwrap();
        assert_eq!(here.network(), link.to_string_lossy());
        // SAFETY: takes no pointers and always succeeds.
        assert!(user().starts_with(&unsafe { libc::geteuid() }.to_string()));
    }

    #[test]
    fn another_boot_and_another_namespace_are_other_numbers() {
        let boot = "01234567-89ab-cdef-0123-456789abcdef".to_owned();
        let machine = Machine { boot, network: Some((4, 0xf000_0001)) };
        assert_eq!(machine.number(), 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef ^ 0x4_f000_0001);
        assert_eq!(machine.network(), "net:[4026531841]");
        for other in [
            Machine { boot: "1".to_owned(), ..machine.clone() },
            Machine { network: Some((5, 0xf000_0001)), ..machine.clone() },
            Machine { network: None, ..machine.clone() },
        ] {
            assert_ne!(other.number(), machine.number());
        }
        let unknown = Machine { boot: String::new(), network: None };
        assert_eq!((unknown.number(), unknown.network()), (0, String::new()));
    }
}
