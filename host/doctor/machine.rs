//! Facts about the machine that the kernel reports: version, IOMMU, virtual machine or not, container, memory.

use super::gpu::is_gpu;
use super::nvidia;
use super::process::Process;
use crate::pci::{Bdf, Sysfs, Topology, type_translates};
use std::collections::BTreeMap;

/// Name of the kind of container that Kubernetes starts.
pub(super) const KUBERNETES: &str = "kubernetes";

/// State of the IOMMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IommuState {
    /// There are IOMMU groups.
    On,
    /// There is no IOMMU, or it is off.
    Off,
    /// `/sys` does not report it.
    Unknown,
}

/// A group of functions that share one address translation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Type of translation: `DMA`, `DMA-FQ`, `identity` and others (Linux,
    /// Documentation/ABI/testing/sysfs-kernel-iommu_groups).
    pub kind: Option<String>,
    /// True if VFIO's mode without an IOMMU created the group.
    pub without_iommu: bool,
    /// Functions in the group.
    pub members: Vec<Bdf>,
}

impl Group {
    /// Returns true if the IOMMU translates the kernel's own mappings of the group's functions; `None` if that is
    /// unknown.
    pub fn translates(&self) -> Option<bool> {
        type_translates(self.kind.as_deref()?)
    }
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Size of a page in bytes.
    pub bytes: u64,
    /// Number of reserved pages.
    pub total: u64,
    /// Number of free pages among them.
    pub free: u64,
}

/// Vendor of the processor, which determines how its IOMMU is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Intel: VT-d.
    Intel,
    /// AMD: AMD-Vi.
    Amd,
    /// Another vendor, or unknown.
    Other,
}

/// A machine as its files describe it. Facts that they do not contain are `None`.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Kernel release, as in `6.12.9-amd64`.
    pub kernel: Option<String>,
    /// Arguments on the kernel's command line.
    pub arguments: Option<Vec<String>>,
    /// IOMMUs, by their names in the kernel.
    pub iommus: Vec<String>,
    /// IOMMU groups by number.
    pub groups: BTreeMap<u32, Group>,
    /// State of the IOMMU.
    pub iommu: IommuState,
    /// Lockdown mode: `none`, `integrity`, `confidentiality`.
    pub lockdown: Option<String>,
    /// True in a virtual machine.
    pub is_virtual: Option<bool>,
    /// Kind of container that this process runs in.
    pub container: Option<String>,
    /// Vendor of the processor.
    pub vendor: Vendor,
    /// Size of the memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Bytes of memory that the container or service may use, if that is less than all.
    pub memory_limit: Option<u64>,
    /// Huge pages of each size.
    pub huge_pages: Vec<HugePages>,
    /// This process.
    pub process: Process,
    /// NVIDIA's kernel module.
    pub nvidia: nvidia::Module,
    /// The PCI tree.
    pub topology: Topology,
}

impl Machine {
    /// Reads all facts.
    pub fn read(sysfs: &Sysfs) -> Self {
        let groups = groups(sysfs);
        let iommus = sysfs.names("/sys/class/iommu");
        let iommu = if groups.values().any(|g| !g.without_iommu) {
            IommuState::On
        } else if sysfs.exists("/sys/kernel") || sysfs.exists("/sys/bus/pci") {
            IommuState::Off
        } else {
            IommuState::Unknown
        };
        let processor = sysfs.text("/proc/cpuinfo").ok();
        Self {
            kernel: sysfs.text("/proc/sys/kernel/osrelease").ok().filter(|t| !t.is_empty()),
            arguments: sysfs.text("/proc/cmdline").ok().map(|t| t.split_whitespace().map(str::to_owned).collect()),
            iommus,
            groups,
            iommu,
            lockdown: sysfs.text("/sys/kernel/security/lockdown").ok().and_then(|t| chosen(&t)),
            is_virtual: is_virtual(sysfs, processor.as_deref()),
            container: container(sysfs),
            vendor: vendor(processor.as_deref()),
            memory_bytes: sysfs.text("/proc/meminfo").ok().and_then(|t| kib(&t, "MemTotal")),
            memory_limit: memory_limit(sysfs),
            huge_pages: huge_pages(sysfs),
            process: Process::read(sysfs),
            nvidia: nvidia::Module::read(sysfs),
            topology: Topology::read(sysfs),
        }
    }

    /// Returns the major and minor version of the kernel.
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.kernel.as_deref()?.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// Returns the IOMMU group of a function.
    pub fn group_of(&self, bdf: Bdf) -> Option<&Group> {
        self.groups.get(&self.topology.get(bdf)?.iommu_group?)
    }

    /// Returns true if an IOMMU translates the mappings of this function's own driver, false without an IOMMU.
    pub fn translates(&self, bdf: Bdf) -> Option<bool> {
        match self.iommu {
            IommuState::Off => Some(false),
            IommuState::Unknown => None,
            IommuState::On => match self.group_of(bdf) {
                Some(group) => group.translates(),
                None => Some(false),
            },
        }
    }

    /// Returns how this container's engine passes GPUs in: device files and the driver's libraries.
    pub fn gpu_option(&self) -> &'static str {
        match self.container.as_deref() {
            Some("docker") => "start the container with --gpus all",
            Some("podman" | "libpod") => "start the container with --device nvidia.com/gpu=all",
            Some(KUBERNETES) => "give the container the resource nvidia.com/gpu",
            _ => "start the container with --gpus all (or --device nvidia.com/gpu=all)",
        }
    }

    /// Returns true if NVIDIA's kernel module is loaded: by its own files, which sandboxes hide, or because it holds a
    /// GPU.
    pub fn has_nvidia_module(&self) -> bool {
        self.nvidia.is_loaded() || self.topology.functions().any(|f| is_gpu(f) && f.driver.as_deref() == Some("nvidia"))
    }

    /// Returns the first argument of the kernel's command line that is one of `any`.
    pub fn argument(&self, any: &[&str]) -> Option<&str> {
        self.arguments.as_ref()?.iter().find(|a| any.contains(&a.as_str())).map(String::as_str)
    }
}

fn groups(sysfs: &Sysfs) -> BTreeMap<u32, Group> {
    let names = sysfs.names("/sys/kernel/iommu_groups");
    let numbers = names.iter().filter_map(|n| n.parse::<u32>().ok());
    numbers
        .map(|n| {
            let file = |name: &str| format!("/sys/kernel/iommu_groups/{n}/{name}");
            let group = Group {
                kind: sysfs.text(file("type")).ok().filter(|t| !t.is_empty()),
                // Linux, drivers/vfio/group.c, vfio_noiommu_group_alloc.
                without_iommu: sysfs.text(file("name")).is_ok_and(|t| t == "vfio-noiommu"),
                members: sysfs.names(file("devices")).iter().filter_map(|n| n.parse().ok()).collect(),
            };
            (n, group)
        })
        .collect()
}

/// Returns the word in brackets, as in `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn is_virtual(sysfs: &Sysfs, processor: Option<&str>) -> Option<bool> {
    if sysfs.exists("/sys/hypervisor/type") {
        return Some(true);
    }
    // Only x86 lists flags.
    let flags = processor?.lines().find(|l| l.starts_with("flags"))?;
    Some(flags.split_whitespace().any(|f| f == "hypervisor"))
}

fn vendor(processor: Option<&str>) -> Vendor {
    let line = processor.and_then(|t| t.lines().find(|l| l.starts_with("vendor_id"))).unwrap_or_default();
    match line.rsplit(':').next().unwrap_or_default().trim() {
        "GenuineIntel" => Vendor::Intel,
        "AuthenticAMD" => Vendor::Amd,
        _ => Vendor::Other,
    }
}

/// Files that container engines mount from folders of their own. On a host, whose mounts also name those folders, these
/// are no mounts.
const MOUNTED_FILES: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/// Returns the kind of container: by files that container engines create, by words in the names of control groups, and
/// by mounts. In a control-group namespace of its own, as with version 2, the process's group has no such name.
fn container(sysfs: &Sysfs) -> Option<String> {
    for (file, name) in [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")] {
        if sysfs.exists(file) {
            return Some(name.to_owned());
        }
    }
    if let Ok(name) = sysfs.text("/run/systemd/container")
        && !name.is_empty()
    {
        return Some(name);
    }
    let groups = sysfs.text("/proc/self/cgroup").unwrap_or_default();
    if let Some(word) = ["kubepods", "docker", "libpod", "containerd", "lxc"].iter().find(|w| groups.contains(*w)) {
        return Some(if *word == "kubepods" { KUBERNETES } else { word }.to_owned());
    }
    let mounts = sysfs.text("/proc/self/mountinfo").unwrap_or_default();
    let roots: Vec<&str> = mounts
        .lines()
        .filter_map(|line| {
            // Fields 4 and 5 of proc_pid_mountinfo(5): the mounted folder or file, and its place.
            let mut fields = line.split_whitespace().skip(3);
            let root = fields.next()?;
            MOUNTED_FILES.contains(&fields.next()?).then_some(root)
        })
        .collect();
    let words = [("/kubelet/pods/", KUBERNETES), ("/io.containerd.", "containerd"), ("/docker/containers/", "docker")];
    words.iter().find(|(word, _)| roots.iter().any(|r| r.contains(word))).map(|(_, name)| (*name).to_owned())
}

fn kib(meminfo: &str, name: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the memory limit of this process's own control group: of version 2, then of version 1, which writes "no
/// limit" as a huge number.
fn memory_limit(sysfs: &Sysfs) -> Option<u64> {
    let total = sysfs.text("/proc/meminfo").ok().and_then(|t| kib(&t, "MemTotal")).unwrap_or(u64::MAX);
    let of_process = sysfs.text("/proc/self/cgroup").ok().and_then(|t| {
        let path = t.lines().find_map(|l| l.strip_prefix("0::"))?.to_owned();
        sysfs.number(format!("/sys/fs/cgroup{path}/memory.max"))
    });
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    of_process.or_else(|| files.iter().find_map(|f| sysfs.number(f))).filter(|n| *n < total)
}

fn huge_pages(sysfs: &Sysfs) -> Vec<HugePages> {
    const FOLDER: &str = "/sys/kernel/mm/hugepages";
    let mut all: Vec<_> = sysfs
        .names(FOLDER)
        .iter()
        .filter_map(|name| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let number = |file| sysfs.number(format!("{FOLDER}/{name}/{file}"));
            let bytes = kib.checked_mul(1024)?;
            Some(HugePages { bytes, total: number("nr_hugepages")?, free: number("free_hugepages")? })
        })
        .collect();
    all.sort_by_key(|p| p.bytes);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::{Device, Fixture};

    #[test]
    fn groups_and_their_modes_are_read() {
        let tree = Fixture::new();
        let device = |group| Device { group: Some(group), ..Device::default() };
        tree.pci("pci0000:00/0000:00:01.0", &device(1)).pci("pci0000:00/0000:00:02.0", &device(2));
        tree.group_type(1, "DMA-FQ").group_type(2, "identity");
        tree.file("/proc/sys/kernel/osrelease", "6.19.0-rc1\n").file("/proc/cmdline", "quiet iommu=pt\n");
        let m = Machine::read(&Sysfs::at(tree.root()));
        let bdf = |t: &str| t.parse().unwrap();
        assert_eq!(m.iommu, IommuState::On);
        assert_eq!((m.translates(bdf("00:01.0")), m.translates(bdf("00:02.0"))), (Some(true), Some(false)));
        assert_eq!(m.kernel_version(), Some((6, 19)));
        assert_eq!((m.argument(&["iommu=pt"]), m.argument(&["intel_iommu=on"])), (Some("iommu=pt"), None));
    }

    #[test]
    fn groups_without_an_iommu_are_no_iommu() {
        let tree = Fixture::new();
        tree.pci("pci0000:00/0000:00:01.0", &Device { group: Some(0), ..Device::default() });
        tree.file("/sys/kernel/iommu_groups/0/name", "vfio-noiommu\n");
        assert_eq!(Machine::read(&Sysfs::at(tree.root())).iommu, IommuState::Off);
    }

    #[test]
    fn containers_and_limits_are_seen() {
        let tree = Fixture::new();
        tree.file("/proc/self/cgroup", "0::/kubepods.slice/pod1\n").file("/proc/meminfo", "MemTotal: 1048576 kB\n");
        tree.file("/sys/fs/cgroup/memory.max", "536870912\n");
        let m = Machine::read(&Sysfs::at(tree.root()));
        assert_eq!(m.container.as_deref(), Some("kubernetes"));
        assert_eq!((m.memory_bytes, m.memory_limit), (Some(1 << 30), Some(512 << 20)));
        tree.file("/sys/fs/cgroup/kubepods.slice/pod1/memory.max", "max\n");
        assert_eq!(Machine::read(&Sysfs::at(tree.root())).memory_limit, Some(512 << 20));
    }

    #[test]
    fn a_control_group_without_a_name_leaves_the_mounts() {
        let tree = Fixture::new();
        tree.file("/proc/self/cgroup", "0::/\n");
        let seen = |mounts: &str| {
            tree.file("/proc/self/mountinfo", mounts);
            Machine::read(&Sysfs::at(tree.root())).container
        };
        let root = "600 500 0:50 / / rw - overlay overlay rw,lowerdir=/var/lib/containerd/io.containerd.snapshotter\n";
        let name = "601 600 8:1 /var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/1/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n";
        let pod = "602 600 8:1 /var/lib/kubelet/pods/1/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n";
        let docker = "603 600 8:1 /var/lib/docker/containers/1/resolv.conf /etc/resolv.conf rw - ext4 /dev/sda1 rw\n";
        assert_eq!(seen(&format!("{root}{name}{pod}")).as_deref(), Some("kubernetes"));
        assert_eq!(seen(&format!("{root}{name}")).as_deref(), Some("containerd"));
        assert_eq!(seen(docker).as_deref(), Some("docker"));
        // A node of a cluster has the mounts of its pods.
        let node = "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            31 30 0:40 / /var/lib/kubelet/pods/1/volumes/kubernetes.io~secret/warpbell rw - tmpfs tmpfs rw\n\
            32 30 0:41 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/1/rootfs rw - overlay overlay rw\n";
        assert_eq!(seen(node), None);
        assert_eq!(seen("30 1\n\n31 30 8:1 /x\n"), None);
    }

    #[test]
    fn an_empty_tree_is_unknown() {
        let m = Machine::read(&Sysfs::at("/nowhere"));
        assert_eq!((m.iommu, m.is_virtual, m.kernel, m.container), (IommuState::Unknown, None, None, None));
        assert_eq!(chosen("none [integrity] confidentiality").as_deref(), Some("integrity"));
        assert_eq!(chosen("]["), None);
    }
}
