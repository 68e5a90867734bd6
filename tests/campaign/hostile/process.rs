//! Memory, threads and descriptors of a process, as the system knows them.

use std::fs;

/// Numbers of descriptors and threads, and bytes of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub descriptors: usize,
    pub threads: usize,
    pub resident: u64,
}

impl Usage {
    /// Returns `None` if the process has ended.
    pub fn of(process: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count();
        Some(Self { descriptors, threads: number("Threads:")? as usize, resident: number("VmRSS:")? << 10 })
    }

    pub fn max(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            resident: self.resident.max(other.resident),
        }
    }
}

/// Returns the TCP ports at which a process listens.
pub fn ports(process: u32) -> Vec<u16> {
    let links = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let sockets: Vec<String> = links
        .filter_map(|l| {
            fs::read_link(l.path()).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
        })
        .collect();
    let table = |name: &str| fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default();
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_own = *words.get(3)? == "0A" && sockets.iter().any(|s| Some(&s.as_str()) == words.get(9));
        is_own.then(|| u16::from_str_radix(words[1].rsplit(':').next()?, 16).ok()).flatten()
    };
    [table("tcp"), table("tcp6")].iter().flat_map(|t| t.lines().filter_map(port).collect::<Vec<_>>()).collect()
}

/// Returns a variable in the environment with which a process was started.
pub fn variable(process: u32, name: &str) -> Option<String> {
    let all = fs::read(format!("/proc/{process}/environ")).ok()?;
    let words = all.split(|b| *b == 0).filter_map(|w| std::str::from_utf8(w).ok());
    words.filter_map(|w| w.split_once('=')).find(|(n, _)| *n == name).map(|(_, value)| value.to_owned())
}
