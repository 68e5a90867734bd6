//! The memory that is free, so that work that cannot fit is refused before anything is allocated for it.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the bytes that this process can still get: the least of what the machine, each level of its control groups and its
/// resource limits have free. `None` where the system does not tell.
pub fn free_host_memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    [machine, in_groups(Path::new("/")), in_limits()].into_iter().flatten().min()
}

/// `MemAvailable` of proc(5)'s meminfo, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A version of control groups, as cgroups(7) has them.
#[derive(Clone, Copy)]
struct Groups {
    folder: &'static str,
    limit: &'static str,
    used: &'static str,
    /// File pages, which are given up when memory is short, in `memory.stat`.
    files: [&'static str; 2],
}

const SECOND: Groups = Groups {
    folder: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    files: ["inactive_file ", "active_file "],
};
const FIRST: Groups = Groups {
    folder: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    files: ["total_inactive_file ", "total_active_file "],
};

/// The least that is free in the control groups of this process, from its own up to the root.
fn in_groups(root: &Path) -> Option<u64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let free = own.lines().flat_map(|line| {
        // Hierarchy, controllers, path; the second version has no controllers here.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let groups = match controllers {
            "" => Some(SECOND),
            named => named.split(',').any(|c| c == "memory").then_some(FIRST),
        };
        let levels = levels(path);
        groups
            .into_iter()
            .flat_map(move |g| levels.clone().into_iter().filter_map(move |l| g.free(&root.join(g.folder).join(l))))
    });
    free.min()
}

/// A path below the root of the groups, and everything above it.
fn levels(path: &str) -> Vec<PathBuf> {
    Path::new(path.trim_start_matches('/')).ancestors().map(Path::to_owned).collect()
}

impl Groups {
    /// Bytes that a group has free; `None` without a limit.
    fn free(&self, group: &Path) -> Option<u64> {
        let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let count = |line: &str| self.files.iter().find_map(|f| line.strip_prefix(f))?.trim().parse::<u64>().ok();
        let files: u64 = stat.lines().filter_map(count).sum();
        Some(limit.saturating_sub(used.saturating_sub(files)))
    }
}

/// Address space that a thread takes beside what it allocates: an arena of glibc (HEAP_MAX_SIZE) and a stack.
const THREAD_BYTES: u64 = (64 << 20) + (8 << 20);

/// The least that is free below RLIMIT_AS and RLIMIT_DATA (getrlimit(2)), less what the threads that are still to be started take;
/// `None` where neither is set.
fn in_limits() -> Option<u64> {
    // Pages: the whole of the process first, its data and stack in the sixth place (proc(5), statm).
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let page = super::page_bytes() as u64;
    let used = |place: usize| Some(pages.split_whitespace().nth(place)?.parse::<u64>().ok()?.saturating_mul(page));
    let free = |resource, place| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structure lives for the call.
        let told = unsafe { libc::getrlimit(resource, &mut limit) } == 0 && limit.rlim_cur != libc::RLIM_INFINITY;
        let threads = crate::processors::count() as u64 * THREAD_BYTES;
        told.then(|| Some(limit.rlim_cur.saturating_sub(used(place)?).saturating_sub(threads))).flatten()
    };
    [free(libc::RLIMIT_AS, 0), free(libc::RLIMIT_DATA, 5)].into_iter().flatten().min()
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
    fn the_tightest_of_all_levels_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let level = |group: &str, limit: &str, used: &str| {
            write(&format!("sys/fs/cgroup{group}/memory.max"), limit);
            write(&format!("sys/fs/cgroup{group}/memory.current"), used);
        };
        assert_eq!(in_groups(folder.path()), None);
        write("proc/self/cgroup", "0::/slice/job\n");
        level("/slice/job", "max\n", "300\n");
        assert_eq!(in_groups(folder.path()), None, "no limit anywhere");
        level("/slice", "1000\n", "700\n");
        level("", "5000\n", "800\n");
        assert_eq!(in_groups(folder.path()), Some(300), "the level above is the tightest");
        write("sys/fs/cgroup/slice/memory.stat", "anon 400\ninactive_file 200\nactive_file 50\n");
        assert_eq!(in_groups(folder.path()), Some(550), "pages of files are given up");
        // The first version, beside groups of the second without limits.
        write("proc/self/cgroup", "4:memory:/job/a\n3:cpu:/\n0::/none\n");
        write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "100\n");
        write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "90\n");
        assert_eq!(in_groups(folder.path()), Some(10));
    }
}
