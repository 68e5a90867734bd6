//! Who has a device node open, as far as /proc shows it to this user.

use std::path::Path;

/// The processes that have `path` open, by number and name; `another process` where none can be seen.
pub(super) fn of(path: &Path) -> String {
    among(Path::new("/proc"), path)
}

fn among(proc: &Path, path: &Path) -> String {
    let Ok(processes) = std::fs::read_dir(proc) else { return unseen() };
    let mut found = Vec::new();
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|n| n.bytes().all(|b| b.is_ascii_digit())) else { continue };
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else { continue };
        if files.flatten().any(|f| std::fs::read_link(f.path()).is_ok_and(|t| t == path)) {
            let program = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("process {pid} ({})", program.trim()));
        }
    }
    found.sort();
    if found.is_empty() { unseen() } else { found.join(", ") }
}

fn unseen() -> String {
    "another process, or in the kernel's hands (as root, `fuser -v` shows which)".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn processes_are_named() {
        let proc = tempfile::tempdir().unwrap();
        let files = proc.path().join("4711/fd");
        fs::create_dir_all(&files).unwrap();
        fs::write(proc.path().join("4711/comm"), "qemu\n").unwrap();
        std::os::unix::fs::symlink("/dev/vfio/12", files.join("9")).unwrap();
        assert_eq!(among(proc.path(), Path::new("/dev/vfio/12")), "process 4711 (qemu)");
        assert!(among(proc.path(), Path::new("/dev/vfio/13")).starts_with("another process"));
    }
}
