//! Finds out how the system uses a controller's namespaces and what they contain: reasons not to take the controller.

use super::{Bdf, SIGNED_BYTES, Signature, Sysfs};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Maximum depth to which holders of holders are followed: md below LVM below encryption is three.
const DEEPEST: usize = 8;
/// Unit of `/sys/class/block/*/size` in bytes.
const SECTOR: u64 = 512;
/// Bytes per read, which is what one bad sector makes unreadable.
const PIECE: usize = 4096;

/// A reason not to take a controller from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum InUse {
    /// A file system on it is mounted.
    Mounted {
        /// Mount point.
        at: String,
        /// The block device that is mounted.
        block: String,
    },
    /// The system swaps to it.
    Swap {
        /// The block device.
        block: String,
    },
    /// Another block device consists of it.
    Held {
        /// The namespace or partition.
        block: String,
        /// The other block device, as in `md127` or `dm-0`.
        by: String,
    },
    /// A program or the kernel has opened it exclusively.
    Exclusive {
        /// The namespace or partition.
        block: String,
    },
    /// It has partitions.
    Partitioned {
        /// The namespace.
        block: String,
        /// Its partitions.
        partitions: Vec<String>,
    },
    /// It holds a file system, a volume or a partition table.
    Signed {
        /// The namespace.
        block: String,
        /// Kind of content.
        signature: String,
    },
    /// Its content cannot be read.
    Unreadable {
        /// The namespace.
        block: String,
        /// Error of the read.
        reason: String,
    },
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { at, .. } if at == "/" => f.write_str("is the controller of /"),
            Self::Mounted { at, block } => write!(f, "holds {at} ({block} is mounted there)"),
            Self::Swap { block } => write!(f, "holds swap space in use ({block})"),
            Self::Held { block, by } => write!(f, "holds a part of {by} ({block})"),
            Self::Exclusive { block } => write!(f, "is in use: the system or a program has {block} open exclusively"),
            Self::Partitioned { block, partitions } => write!(f, "has partitions ({block}: {})", partitions.join(", ")),
            Self::Signed { block, signature } => write!(f, "holds {signature} ({block})"),
            Self::Unreadable { block, reason } => {
                write!(f, "cannot be read (/dev/{block}: {reason})")
            }
        }
    }
}

impl InUse {
    /// Returns the command that removes this reason, if there is one.
    #[cfg(feature = "internals")]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Partitioned { block, .. } | Self::Signed { block, .. } => Some(format!("wipefs --all /dev/{block}")),
            Self::Mounted { at, .. } if at != "/" => Some(format!("umount {at}")),
            Self::Swap { block } => Some(format!("swapoff /dev/{block}")),
            _ => None,
        }
    }
}

/// Returns the reasons not to take a controller from the kernel, the most severe first. Empty for a controller that is
/// free, or that the kernel's NVMe driver does not have.
pub fn in_use(sysfs: &Sysfs, bdf: Bdf) -> Vec<InUse> {
    let mounts = Mounts::read(sysfs);
    let swaps = swaps(sysfs);
    let mut reasons = BTreeSet::new();
    for namespace in namespaces(sysfs, bdf) {
        let partitions = partitions(sysfs, &namespace);
        let mut now = BTreeSet::new();
        for block in std::iter::once(&namespace).chain(&partitions) {
            let mut family = BTreeSet::from([block.clone()]);
            holders(sysfs, block, 0, &mut family);
            for member in &family {
                let number = sysfs.text(format!("/sys/class/block/{member}/dev")).unwrap_or_default();
                now.extend(
                    mounts.of(member, &number).into_iter().map(|at| InUse::Mounted { at, block: member.clone() }),
                );
                if swaps.contains(member) {
                    now.insert(InUse::Swap { block: member.clone() });
                }
                if member != block {
                    now.insert(InUse::Held { block: block.clone(), by: member.clone() });
                }
            }
            // A mount, a swap or a holder also opens the block device exclusively, and is the more precise reason.
            if now.is_empty() && is_exclusive(sysfs, block) {
                now.insert(InUse::Exclusive { block: block.clone() });
            }
        }
        // A namespace in use must not be erased, so its content is not reported.
        if now.is_empty() {
            reasons.extend(held(sysfs, namespace, partitions));
        }
        reasons.extend(now);
    }
    // Mount points are sorted by name, so `/` is the first.
    reasons.into_iter().collect()
}

/// Returns the content of a namespace that is not in use.
fn held(sysfs: &Sysfs, block: String, partitions: Vec<String>) -> Option<InUse> {
    if !partitions.is_empty() {
        return Some(InUse::Partitioned { block, partitions });
    }
    match signature(sysfs, &block) {
        Ok(found) => found.map(|s| InUse::Signed { block, signature: s.to_string() }),
        Err(e) => {
            let hint = if e.kind() == io::ErrorKind::PermissionDenied { "; run as root" } else { "" };
            Some(InUse::Unreadable { block, reason: format!("{e}{hint}") })
        }
    }
}

/// Returns the block devices of a controller's namespaces. With multipath the visible block devices belong to the
/// subsystem, and the controller has hidden ones with a `c` in their names.
fn namespaces(sysfs: &Sysfs, bdf: Bdf) -> BTreeSet<String> {
    let folder = format!("/sys/bus/pci/devices/{bdf}/nvme");
    let mut all = BTreeSet::new();
    for controller in sysfs.names(&folder) {
        for name in sysfs.names(format!("{folder}/{controller}")) {
            let Some(block) = visible(&name) else { continue };
            if sysfs.exists(format!("/sys/class/block/{block}")) {
                all.insert(block);
            }
        }
    }
    all
}

/// Returns `nvme0n1` for `nvme0n1` and for `nvme0c1n1`; `None` if `name` is no namespace.
fn visible(name: &str) -> Option<String> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (head, namespace) = name.strip_prefix("nvme")?.rsplit_once('n')?;
    let instance = head.split_once('c').map_or(Some(head), |(i, c)| number(c).then_some(i))?;
    (number(namespace) && number(instance)).then(|| format!("nvme{instance}n{namespace}"))
}

fn partitions(sysfs: &Sysfs, block: &str) -> Vec<String> {
    let folder = format!("/sys/class/block/{block}");
    sysfs.names(&folder).into_iter().filter(|n| sysfs.exists(format!("{folder}/{n}/partition"))).collect()
}

fn holders(sysfs: &Sysfs, block: &str, depth: usize, all: &mut BTreeSet<String>) {
    if depth == DEEPEST {
        return;
    }
    for holder in sysfs.names(format!("/sys/class/block/{block}/holders")) {
        if all.insert(holder.clone()) {
            holders(sysfs, &holder, depth + 1, all);
        }
    }
}

/// Mounted file systems, as this process and process 1 see them: in a container both matter.
struct Mounts(Vec<Mount>);

struct Mount {
    /// Major and minor number, as in `259:3`.
    number: String,
    at: String,
    /// Name of the device in the kernel. It is needed because some file systems have device numbers of their own.
    source: String,
}

impl Mounts {
    fn read(sysfs: &Sysfs) -> Self {
        let texts = ["/proc/self/mountinfo", "/proc/1/mountinfo"].map(|f| sysfs.text(f).unwrap_or_default());
        Self(texts.iter().flat_map(|t| t.lines()).filter_map(|l| Self::line(sysfs, l)).collect())
    }

    /// Parses a line such as `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw` (proc_pid_mountinfo(5)).
    fn line(sysfs: &Sysfs, line: &str) -> Option<Mount> {
        let mut fields = line.split(' ');
        let (number, at) = (fields.nth(2)?, fields.nth(1)?);
        let source = fields.skip_while(|f| *f != "-").nth(2).unwrap_or_default();
        Some(Mount { number: number.to_owned(), at: unescape(at), source: block_name(sysfs, &unescape(source)) })
    }

    fn of(&self, block: &str, number: &str) -> BTreeSet<String> {
        let is_it = |m: &&Mount| (!number.is_empty() && m.number == number) || m.source == block;
        self.0.iter().filter(is_it).map(|m| m.at.clone()).collect()
    }
}

/// Replaces octal escapes such as `\040`, by which the kernel writes spaces and other characters.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|d| first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match octal {
            Some(d) => {
                out.push(d.iter().fold(0u8, |v, b| v.wrapping_mul(8).wrapping_add(b - b'0')));
                rest = &after[3..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the kernel's name of a block device from its path, as in `dm-0` for `/dev/mapper/swap`.
fn block_name(sysfs: &Sysfs, path: &str) -> String {
    let real = sysfs.real(path).ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    real.unwrap_or_else(|| path.strip_prefix("/dev/").unwrap_or_default().to_owned())
}

fn swaps(sysfs: &Sysfs) -> BTreeSet<String> {
    let text = sysfs.text("/proc/swaps").unwrap_or_default();
    text.lines().skip(1).filter_map(|l| l.split_whitespace().next()).map(|p| block_name(sysfs, &unescape(p))).collect()
}

/// Returns true if the kernel refuses an exclusive open, because the block device is mounted, held, or opened
/// exclusively.
fn is_exclusive(sysfs: &Sysfs, block: &str) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(sysfs.path(format!("/dev/{block}")));
    opened.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
}

fn signature(sysfs: &Sysfs, block: &str) -> io::Result<Option<Signature>> {
    let sectors = sysfs.number(format!("/sys/class/block/{block}/size")).unwrap_or(0);
    let bytes = sectors.saturating_mul(SECTOR);
    let file = std::fs::File::open(sysfs.path(format!("/dev/{block}")))?;
    let end = |from: u64| {
        let mut part = vec![0; usize::try_from(bytes - from).unwrap_or(SIGNED_BYTES).min(SIGNED_BYTES)];
        for (i, piece) in part.chunks_mut(PIECE).enumerate() {
            match file.read_exact_at(piece, from + (i * PIECE) as u64) {
                // A bad sector contains no signature.
                Err(e) if e.raw_os_error() == Some(libc::EIO) => piece.fill(0),
                other => other?,
            }
        }
        Ok::<_, io::Error>(part)
    };
    let (head, tail) = (end(0)?, end(bytes.saturating_sub(SIGNED_BYTES as u64))?);
    Ok(Signature::find(&head, &tail, bytes))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use proptest::prelude::*;

    const BDF: &str = "0000:65:00.0";

    /// Returns a machine with one drive that has one namespace.
    fn machine() -> Tree {
        let tree = Tree::new();
        tree.function(BDF, 0x01_08_02, Some("nvme"), Some(1));
        tree.write(&format!("sys/bus/pci/devices/{BDF}/nvme/nvme0/nvme0n1/uevent"), "");
        tree.block("nvme0n1", "259:0");
        tree.write("dev/nvme0n1", vec![0; 8 << 20]);
        tree.write("proc/self/mountinfo", "21 1 0:20 / / rw - tmpfs tmpfs rw\n");
        tree.write("proc/swaps", "Filename Type Size Used Priority\n");
        tree
    }

    fn reasons(tree: &Tree) -> Vec<String> {
        in_use(&tree.sysfs(), BDF.parse().unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_free_drive_has_no_reasons() {
        assert!(reasons(&machine()).is_empty());
        assert!(reasons(&Tree::new()).is_empty());
    }

    #[test]
    fn the_boot_drive_is_named_first() {
        let tree = machine();
        tree.partition("nvme0n1", "nvme0n1p1", "259:1");
        tree.partition("nvme0n1", "nvme0n1p2", "259:2");
        tree.write(
            "proc/self/mountinfo",
            "30 1 259:1 / /boot/efi rw - vfat /dev/nvme0n1p1 rw\n29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw\n",
        );
        let all = reasons(&tree);
        assert_eq!(all[0], "is the controller of /");
        assert_eq!(all[1], "holds /boot/efi (nvme0n1p1 is mounted there)");
        assert_eq!(all.len(), 2);
        tree.write("proc/self/mountinfo", "");
        assert_eq!(reasons(&tree), ["has partitions (nvme0n1: nvme0n1p1, nvme0n1p2)"]);
    }

    #[test]
    fn what_lies_above_a_drive_counts() {
        let tree = machine();
        // An md array on the namespace, LVM on the array, and / on LVM.
        tree.holder("nvme0n1", "md127", "9:127");
        tree.holder("md127", "dm-0", "254:0");
        tree.write("proc/self/mountinfo", "29 1 254:0 / / rw - ext4 /dev/mapper/vg-root rw\n");
        let all = reasons(&tree);
        assert_eq!(
            all,
            ["is the controller of /", "holds a part of dm-0 (nvme0n1)", "holds a part of md127 (nvme0n1)"]
        );
    }

    #[test]
    fn file_systems_with_numbers_of_their_own_and_odd_mount_points() {
        let tree = machine();
        tree.write("proc/1/mountinfo", "29 1 0:44 /@home /srv/my\\040data rw - btrfs /dev/nvme0n1 rw\n");
        assert_eq!(reasons(&tree), ["holds /srv/my data (nvme0n1 is mounted there)"]);
    }

    #[test]
    fn swap_counts_by_whatever_name() {
        let tree = machine();
        tree.holder("nvme0n1", "dm-3", "254:3");
        tree.write("dev/dm-3", "");
        tree.link("dev/mapper/swap", "/dev/dm-3");
        tree.write("proc/swaps", "Filename Type Size\n/dev/mapper/swap partition 8388604 0 -2\n");
        assert!(reasons(&tree).contains(&"holds swap space in use (dm-3)".to_owned()));
    }

    #[test]
    fn a_signature_is_a_reason_and_an_unreadable_drive_too() {
        let tree = machine();
        let mut disk = vec![0; 8 << 20];
        disk[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        tree.write("dev/nvme0n1", disk);
        let all = reasons(&tree);
        assert_eq!(all, ["holds an ext2, ext3 or ext4 file system (nvme0n1)"]);
        let tree = machine();
        tree.remove("dev/nvme0n1");
        assert!(reasons(&tree)[0].starts_with("cannot be read (/dev/nvme0n1: "));
    }

    #[test]
    fn hidden_paths_of_a_multipath_drive_lead_to_the_visible_one() {
        for (name, block) in [("nvme0n1", "nvme0n1"), ("nvme3c12n4", "nvme3n4")] {
            assert_eq!(visible(name).as_deref(), Some(block));
        }
        for name in ["nvme0", "hwmon1", "ng0n1", "nvme0n", "nvmen1", "nvme0c1", "nvme0n1p1", "nvme0cn1"] {
            assert_eq!(visible(name), None, "{name}");
        }
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(unescape(r"/a\040b\011c\134x"), "/a b\tc\\x");
        assert_eq!(unescape(r"\04"), r"\04");
    }

    #[test]
    fn no_mount_table_panics() {
        let tree = machine();
        proptest!(|(text in "[ -~\n]{0,300}")| {
            tree.write("proc/self/mountinfo", &text);
            tree.write("proc/swaps", &text);
            let _ = reasons(&tree);
            let _ = unescape(&text);
        });
    }
}
