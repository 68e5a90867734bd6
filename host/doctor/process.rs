//! Rights of this process: user, capabilities, limits, access to device files.

use crate::pci::Sysfs;
use std::os::unix::fs::MetadataExt;

/// Numbers of capabilities (linux/capability.h).
pub mod capability {
    /// Ignores the modes of files.
    pub const DAC_OVERRIDE: u32 = 1;
    /// Locks memory without limit.
    pub const IPC_LOCK: u32 = 14;
    /// Allows raw I/O: `/dev/mem`, ports, BARs.
    pub const SYS_RAWIO: u32 = 17;
    /// Makes the user an administrator for the NVIDIA driver.
    pub const SYS_ADMIN: u32 = 21;
}

/// Mode bits for reading and writing by others.
const MODE_OTHERS: u32 = 0o006;
/// Mode bits for reading and writing by the group.
const MODE_GROUP: u32 = 0o060;
/// Mode bits for reading and writing by the owner.
const MODE_OWNER: u32 = 0o600;

/// A resource limit of the process, in bytes or files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No limit.
    Unlimited,
    /// A limited number.
    Number(u64),
}

/// Access to a device file for reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The file does not exist.
    Missing,
    /// The file exists, but this user may not open it.
    Denied,
    /// The file can be opened, as far as its mode shows.
    Allowed,
}

/// Facts about this process that the kernel reports; `None` for those that it does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Effective user ID.
    pub uid: Option<u32>,
    /// Effective group ID.
    pub gid: Option<u32>,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Effective capabilities, one bit each.
    pub capabilities: Option<u64>,
    /// True in a user namespace with mapped users, as in rootless containers: capabilities then do not apply to the
    /// host's devices.
    pub user_namespace: Option<bool>,
    /// Soft and hard limit of locked memory in bytes.
    pub memlock: Option<(Limit, Limit)>,
    /// Soft and hard limit of open files.
    pub files: Option<(Limit, Limit)>,
}

impl Process {
    /// Reads `/proc/self`.
    pub fn read(sysfs: &Sysfs) -> Self {
        let status = sysfs.text("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        // Real, effective, saved and file-system identifiers, in this order.
        let effective = |name| field(name).and_then(|v| v.split_whitespace().nth(1)?.parse().ok());
        let limits = sysfs.text("/proc/self/limits").unwrap_or_default();
        Self {
            uid: effective("Uid"),
            gid: effective("Gid"),
            groups: field("Groups").map(|v| v.split_whitespace().flat_map(str::parse).collect()).unwrap_or_default(),
            capabilities: field("CapEff").and_then(|v| u64::from_str_radix(v, 16).ok()),
            user_namespace: sysfs.text("/proc/self/uid_map").ok().filter(|t| !t.is_empty()).map(|t| {
                // The initial namespace has one line, which maps every user to itself.
                t.split_whitespace().ne(["0", "0", "4294967295"])
            }),
            memlock: limit(&limits, "Max locked memory"),
            files: limit(&limits, "Max open files"),
        }
    }

    /// Returns true if the process has a capability that the host's kernel honours; `None` if that is unknown.
    pub fn may(&self, capability: u32) -> Option<bool> {
        let has = self.capabilities? >> capability & 1 == 1;
        Some(has && self.user_namespace != Some(true))
    }

    /// Returns the access of this process to a device file for reading and writing.
    ///
    /// On this machine the kernel decides, which knows access control lists and the device rules of a container. In a
    /// fixture the file's mode decides.
    pub fn access(&self, sysfs: &Sysfs, name: &str) -> Access {
        let path = sysfs.path(name);
        let Ok(metadata) = std::fs::metadata(&path) else { return Access::Missing };
        if sysfs.is_system() {
            return if kernel_allows(&path) { Access::Allowed } else { Access::Denied };
        }
        let wanted = match self.uid {
            Some(uid) if uid == metadata.uid() => MODE_OWNER,
            _ if self.gid.iter().chain(&self.groups).any(|g| *g == metadata.gid()) => MODE_GROUP,
            _ => MODE_OTHERS,
        };
        let allowed = metadata.mode() & wanted == wanted || self.may(capability::DAC_OVERRIDE) == Some(true);
        if allowed { Access::Allowed } else { Access::Denied }
    }
}

fn kernel_allows(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: reads a string that ends with a zero byte and lives until the call returns.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::R_OK | libc::W_OK, libc::AT_EACCESS) == 0 }
}

/// Returns the soft and the hard limit `name` from the text of `/proc/self/limits`.
fn limit(text: &str, name: &str) -> Option<(Limit, Limit)> {
    let rest = text.lines().find_map(|l| l.strip_prefix(name))?;
    let mut words = rest.split_whitespace().map(|w| match w {
        "unlimited" => Some(Limit::Unlimited),
        number => number.parse().ok().map(Limit::Number),
    });
    Some((words.next()??, words.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::Fixture;
    use proptest::prelude::*;

    fn process(tree: &Fixture, uid: u32, capabilities: &str) -> Process {
        tree.file(
            "/proc/self/status",
            format!(
                "Name:\twarpbell\nUid:\t1\t{uid}\t1\t1\nGid:\t{uid}\t{uid}\t1\t1\nGroups:\t4 24 \nCapEff:\t{capabilities}\n"
            ),
        );
        Process::read(&Sysfs::at(tree.root()))
    }

    #[test]
    fn identity_and_limits_are_read() {
        let tree = Fixture::new();
        tree.file(
            "/proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  8388608  unlimited  bytes\nMax open files  1024  524288  files\n",
        );
        tree.file("/proc/self/uid_map", "         0          0 4294967295\n");
        let p = process(&tree, 1000, "0000000000204000");
        assert_eq!((p.uid, p.gid, &p.groups[..]), (Some(1000), Some(1000), &[4, 24][..]));
        assert_eq!(p.memlock, Some((Limit::Number(8 << 20), Limit::Unlimited)));
        assert_eq!(p.files, Some((Limit::Number(1024), Limit::Number(524_288))));
        assert_eq!(p.may(capability::IPC_LOCK), Some(true));
        assert_eq!(p.may(capability::SYS_ADMIN), Some(true));
        assert_eq!(p.may(capability::SYS_RAWIO), Some(false));
    }

    #[test]
    fn capabilities_of_a_user_namespace_do_not_count() {
        let tree = Fixture::new();
        tree.file("/proc/self/uid_map", "0 100000 65536\n");
        let p = process(&tree, 0, "000001ffffffffff");
        assert_eq!(p.user_namespace, Some(true));
        assert_eq!(p.may(capability::SYS_ADMIN), Some(false));
    }

    #[test]
    fn modes_decide_in_a_fixture() {
        let tree = Fixture::new();
        tree.node("/dev/vfio/12", 0o600).node("/dev/vfio/vfio", 0o666);
        let sysfs = Sysfs::at(tree.root());
        let p = process(&tree, tree.stranger(), "0");
        assert_eq!(p.access(&sysfs, "/dev/vfio/12"), Access::Denied);
        assert_eq!(p.access(&sysfs, "/dev/vfio/vfio"), Access::Allowed);
        assert_eq!(p.access(&sysfs, "/dev/vfio/13"), Access::Missing);
        let owner = process(&tree, tree.stranger() - 1, "0");
        assert_eq!(owner.access(&sysfs, "/dev/vfio/12"), Access::Allowed);
        let root = process(&tree, tree.stranger(), "1ffffffffff");
        assert_eq!(root.access(&sysfs, "/dev/vfio/12"), Access::Allowed);
    }

    #[test]
    fn the_machine_itself_is_asked() {
        let p = Process::default();
        assert_eq!(p.access(&Sysfs::system(), "/dev/null"), Access::Allowed);
        assert_eq!(p.access(&Sysfs::system(), "/dev/there-is-no-such-node"), Access::Missing);
    }

    #[test]
    fn an_empty_tree_is_unknown() {
        assert_eq!(Process::read(&Sysfs::at("/nowhere")), Process::default());
        assert_eq!(Process::default().may(capability::IPC_LOCK), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Max locked memory[ a-z0-9]{0,30}\n|.*)") {
            let _ = limit(&text, "Max locked memory");
        }
    }
}
