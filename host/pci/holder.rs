//! Who has a device node open, as far as /proc shows it to this user.

use super::Sysfs;
use std::path::Path;

/// The processes that have the node `path` open, by number and name; `None` where none can be seen.
pub fn processes(sysfs: &Sysfs, path: &Path) -> Option<String> {
    let node = sysfs.path(path);
    let mut found = Vec::new();
    for pid in sysfs.names("/proc").iter().filter(|n| n.bytes().all(|b| b.is_ascii_digit())) {
        let is_it =
            |fd: &String| std::fs::read_link(sysfs.path(format!("/proc/{pid}/fd/{fd}"))).is_ok_and(|t| t == node);
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
        assert_eq!(processes(&tree.sysfs(), Path::new("/dev/vfio/12")).as_deref(), Some("process 4711 (qemu)"));
        assert_eq!(processes(&tree.sysfs(), Path::new("/dev/vfio/13")), None);
    }
}
