//! Finds the processes that have a device file open, as far as /proc shows them to this user.

use super::{Bdf, Sysfs};
use std::path::Path;

/// Returns the processes that have a function open through VFIO, by group or by device file, without process `except`;
/// `None` if none is visible.
pub fn vfio_holder(sysfs: &Sysfs, bdf: Bdf, except: Option<u32>) -> Option<String> {
    let folder = format!("/sys/bus/pci/devices/{bdf}");
    let group = sysfs.link_name(format!("{folder}/iommu_group"));
    let by_group = group.into_iter().flat_map(|g| [format!("/dev/vfio/{g}"), format!("/dev/vfio/noiommu-{g}")]);
    let by_file = sysfs.names(format!("{folder}/vfio-dev")).into_iter().map(|n| format!("/dev/vfio/devices/{n}"));
    by_group.chain(by_file).find_map(|node| processes(sysfs, node.as_ref(), except, |_, _| true))
}

/// Returns the processes that have a file open and hold a lock on it (flock); `None` if none is visible.
pub(crate) fn lock_holder(sysfs: &Sysfs, path: &Path) -> Option<String> {
    let locked = |pid: &str, fd: &str| {
        let info = sysfs.text(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
        info.lines().any(|l| l.starts_with("lock:") && l.contains("FLOCK"))
    };
    processes(sysfs, &path.canonicalize().ok()?, None, locked)
}

/// Returns the processes, by number and name, that have `path` open by a descriptor for which `counts` is true; `None`
/// if none is visible.
fn processes(sysfs: &Sysfs, path: &Path, except: Option<u32>, counts: impl Fn(&str, &str) -> bool) -> Option<String> {
    let node = sysfs.path(path);
    let except = except.map(|pid| pid.to_string());
    let mut found = Vec::new();
    for pid in
        sysfs.names("/proc").iter().filter(|n| n.bytes().all(|b| b.is_ascii_digit()) && except.as_ref() != Some(n))
    {
        let is_it = |fd: &String| {
            std::fs::read_link(sysfs.path(format!("/proc/{pid}/fd/{fd}"))).is_ok_and(|t| t == node) && counts(pid, fd)
        };
        if sysfs.names(format!("/proc/{pid}/fd")).iter().any(is_it) {
            let program = sysfs.text(format!("/proc/{pid}/comm")).unwrap_or_default();
            found.push(format!("process {pid} ({program})"));
        }
    }
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn processes_are_named() {
        let tree = Tree::new();
        tree.write("proc/4711/comm", "qemu\n");
        tree.link("proc/4711/fd/9", "/dev/vfio/12");
        tree.write("proc/self/fd/9", "");
        let of = |node: &str, except| processes(&tree.sysfs(), Path::new(node), except, |_, _| true);
        assert_eq!(of("/dev/vfio/12", None).as_deref(), Some("process 4711 (qemu)"));
        assert_eq!((of("/dev/vfio/12", Some(4711)), of("/dev/vfio/13", None)), (None, None));
    }

    #[test]
    fn who_only_has_a_file_open_does_not_hold_its_lock() {
        let tree = Tree::new();
        tree.write("disk.img", "");
        let file = tree.sysfs().path("disk.img").canonicalize().unwrap();
        for (pid, name, info) in
            [(7, "editor", ""), (8, "warpbell", "lock:\t1: FLOCK  ADVISORY  WRITE 8 00:2a:9 0 EOF\n")]
        {
            tree.write(&format!("proc/{pid}/comm"), name);
            tree.write(&format!("proc/{pid}/fdinfo/3"), format!("pos:\t0\n{info}"));
            tree.link(&format!("proc/{pid}/fd/3"), file.to_str().unwrap());
        }
        assert_eq!(lock_holder(&tree.sysfs(), &file).as_deref(), Some("process 8 (warpbell)"));
    }

    #[test]
    fn every_path_to_a_device_counts() {
        let tree = Tree::new();
        tree.function("0000:65:00.0", 0x01_08_02, Some("vfio-pci"), Some(12));
        tree.write("sys/bus/pci/devices/0000:65:00.0/vfio-dev/vfio3/dev", "");
        tree.write("proc/9/comm", "spdk_tgt\n");
        let bdf = "0000:65:00.0".parse().unwrap();
        for node in ["/dev/vfio/12", "/dev/vfio/noiommu-12", "/dev/vfio/devices/vfio3"] {
            tree.link("proc/9/fd/4", node);
            assert_eq!(vfio_holder(&tree.sysfs(), bdf, None).as_deref(), Some("process 9 (spdk_tgt)"), "{node}");
        }
        tree.link("proc/9/fd/4", "/dev/vfio/13");
        assert_eq!(vfio_holder(&tree.sysfs(), bdf, None), None);
    }
}
