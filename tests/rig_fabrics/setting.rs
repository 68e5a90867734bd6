//! The guest's target, as `tests/rig/guest-fabrics.sh` creates it, and the kernel's initiator.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use warpbell::nvme::fabrics::FabricsTransport;
use warpbell::wire::nvme::ana::AccessState;

/// The subsystem of the kernel's target, and its port.
pub const NQN: &str = "nqn.2026-01.org.example:rig";
pub const PORT: u16 = 4420;

/// A second subsystem at the same port, with namespace 1 alone.
pub const SECOND: &str = "nqn.2026-01.org.example:second";

/// Configuration of the kernel's target.
const TARGET: &str = "/sys/kernel/config/nvmet";
/// Far longer than anything takes on emulated processors.
const LONG: Duration = Duration::from_secs(100);
/// Empties the cache of a block device (`BLKFLSBUF`).
const FLUSH_BUFFERS: libc::c_ulong = 0x1261;

/// Returns the transport of this machine's tests.
pub fn transport() -> FabricsTransport {
    match std::env::var("WARPBELL_RIG_FABRICS").as_deref() {
        Ok("rdma") => FabricsTransport::Rdma,
        _ => FabricsTransport::Tcp,
    }
}

/// Returns the address of the target's port.
pub fn address() -> &'static str {
    match transport() {
        FabricsTransport::Rdma => "10.9.0.1",
        _ => "127.0.0.1",
    }
}

/// Returns the block device that a namespace exports: namespace 1 with blocks of 512 bytes, 2 with 4096.
pub fn block_device(nsid: u32) -> String {
    match nsid {
        1 => "/dev/ram0".to_owned(),
        _ => std::env::var("WARPBELL_RIG_BLOCKS_4096").expect("the name of a block device"),
    }
}

/// Runs the program, and returns its standard output.
#[track_caller]
pub fn warpbell(arguments: &[&str]) -> String {
    println!("$ warpbell {}", arguments.join(" "));
    let done = Command::new("/rig/warpbell").args(arguments).stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    println!("{out}{err}");
    assert!(done.status.success(), "{arguments:?}: {}", done.status);
    out.into_owned()
}

/// Searches Enron's graph from vertex 1, on a device or the default one. Returns the depths.
#[track_caller]
pub fn search(device: Option<&str>) -> Vec<u8> {
    let out = std::env::temp_dir().join("depths").to_string_lossy().into_owned();
    let mut arguments = vec!["graph", "bfs", "/rig/enron.txt", "--source", "1", "--engine", "cpu", "--out", &out];
    if let Some(device) = device {
        arguments.extend(["--device", device, "--yes-destroy", device, "--deadline", "100s"]);
    }
    warpbell(&arguments);
    fs::read(&out).unwrap()
}

/// A record of the discovery log: transport, address, port, subsystem, identifier of the port.
pub type Record = (String, String, String, String, u64);

fn records(json: &str) -> Vec<Record> {
    let all: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"));
    let text = |r: &serde_json::Value, key: &str| r[key].as_str().unwrap_or_default().to_owned();
    let record = |r: &serde_json::Value| {
        let id = &r["portid"];
        let id = id.as_u64().or_else(|| id.as_str()?.parse().ok()).expect("a port identifier");
        (text(r, "trtype"), text(r, "traddr"), text(r, "trsvcid"), text(r, "subnqn"), id)
    };
    let mut found: Vec<_> = all["records"].as_array().expect("records").iter().map(record).collect();
    found.sort();
    found
}

/// Returns the records that nvme-cli finds at the target, sorted.
#[track_caller]
pub fn discovered_by_nvme_cli() -> Vec<Record> {
    let uuid = "11111111-2222-3333-4444-555555555555";
    let (host, port) = (format!("--hostnqn=nqn.2014-08.org.nvmexpress:uuid:{uuid}"), PORT.to_string());
    let mut command = Command::new("/usr/bin/nvme");
    command.args(["discover", "-t", &transport().to_string(), "-a", address(), "-s", &port, "-o", "json", &host]);
    let done = command.arg(format!("--hostid={uuid}")).stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}{out}{err}", done.status);
    records(&out)
}

/// Returns the records that our program finds there, sorted.
#[track_caller]
pub fn discovered_by_warpbell() -> Vec<Record> {
    let report = std::env::temp_dir().join("discovered.json");
    let (at, transport) = (format!("{}:{PORT}", address()), transport().to_string());
    warpbell(&["nvme", "discover", &at, "--transport", &transport, "--json", &report.to_string_lossy()]);
    records(&fs::read_to_string(report).unwrap())
}

/// Fails the test unless this is the guest of the rig with a target.
#[track_caller]
pub fn inside() {
    let inside = std::env::var_os("WARPBELL_RIG_FABRICS").is_some();
    assert!(inside, "this machine is no guest of the rig with a target; tests/rig/run --fabrics starts one");
}

/// Returns bytes that depend on their place.
pub fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251 + seed * 13) as u8).collect()
}

/// Waits until a condition holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LONG, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A port of the kernel's target, by its number in `guest-fabrics.sh`.
#[derive(Clone, Copy)]
pub struct TargetPort(pub u32);

impl TargetPort {
    fn folder(self) -> PathBuf {
        Path::new(TARGET).join(format!("ports/{}", self.0))
    }

    fn link(self) -> PathBuf {
        self.folder().join("subsystems").join(NQN)
    }

    /// Takes the subsystem away from the port, which ends its connections.
    pub fn unlink(self) {
        fs::remove_file(self.link()).unwrap();
    }

    /// Gives it back.
    pub fn link_again(self) {
        std::os::unix::fs::symlink(Path::new(TARGET).join("subsystems").join(NQN), self.link()).unwrap();
    }

    /// Sets the access state of all namespaces at the port, in the kernel's words.
    pub fn set_access(self, state: AccessState) {
        let word = state.to_string().replace(' ', "-");
        fs::write(self.folder().join("ana_groups/1/ana_state"), &word).unwrap_or_else(|e| panic!("{word}: {e}"));
    }
}

/// A subsystem of the kernel's target that admits one host alone, with a key. Dropping it admits all hosts again.
pub struct Keyed {
    subsystem: PathBuf,
    host: PathBuf,
    link: PathBuf,
}

impl Keyed {
    /// Demands authentication of `host` at `subsystem`.
    pub fn new(subsystem: &str, host: &str) -> Self {
        let folder = Path::new(TARGET).join("subsystems").join(subsystem);
        let entry = Path::new(TARGET).join("hosts").join(host);
        fs::create_dir(&entry).unwrap();
        // The bytes 0 to 31 and their checksum.
        fs::write(entry.join("dhchap_key"), "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:").unwrap();
        fs::write(folder.join("attr_allow_any_host"), "0").unwrap();
        let link = folder.join("allowed_hosts").join(host);
        std::os::unix::fs::symlink(&entry, &link).unwrap();
        Self { subsystem: folder, host: entry, link }
    }
}

impl Drop for Keyed {
    fn drop(&mut self) {
        let undone = fs::remove_file(&self.link)
            .and_then(|()| fs::write(self.subsystem.join("attr_allow_any_host"), "1"))
            .and_then(|()| fs::remove_dir(&self.host));
        if let Err(e) = undone {
            println!("{}: {e}", self.subsystem.display());
        }
    }
}

/// Runs a closure, and all threads that it starts, as the host with two networks to the target.
pub fn far<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        let far = s.spawn(|| {
            let namespace = File::open("/run/netns/far").unwrap();
            // SAFETY: a descriptor of a network namespace, which this thread alone enters.
            let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
            run()
        });
        far.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a program of the guest in the network namespace of this thread.
#[track_caller]
pub fn tool(line: &str) {
    let mut words = line.split(' ');
    let done = Command::new(words.next().unwrap()).args(words).output().unwrap();
    println!("$ {line}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{line}: {}", done.status);
}

/// A block device of the kernel.
pub struct Disk(File);

/// Opens a block device.
pub fn disk(path: impl AsRef<Path>) -> Disk {
    let path = path.as_ref();
    let file = OpenOptions::new().read(true).write(true).open(path);
    Disk(file.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

impl Disk {
    fn empty_cache(&self) {
        self.0.sync_all().unwrap();
        // SAFETY: the call takes no pointer.
        let emptied = unsafe { libc::ioctl(self.0.as_raw_fd(), FLUSH_BUFFERS as _, 0) };
        assert_eq!(emptied, 0, "{}", std::io::Error::last_os_error());
    }

    /// Reads from the device, past its cache.
    pub fn read(mut self, at: u64, bytes: usize) -> Vec<u8> {
        self.empty_cache();
        let mut data = vec![0; bytes];
        self.0.seek(SeekFrom::Start(at)).unwrap();
        self.0.read_exact(&mut data).unwrap();
        data
    }

    /// Writes to the device.
    pub fn write(mut self, at: u64, data: &[u8]) {
        self.0.seek(SeekFrom::Start(at)).unwrap();
        self.0.write_all(data).unwrap();
        self.empty_cache();
    }
}

/// A controller that the kernel's initiator has connected. Dropping it disconnects it.
pub struct KernelController {
    number: String,
    folder: PathBuf,
}

impl KernelController {
    /// Connects the kernel to a subsystem at a port of this machine, by the transport of its tests.
    pub fn connect(port: u16, subsystem: &str) -> Self {
        let mut control = OpenOptions::new().read(true).write(true).open("/dev/nvme-fabrics").unwrap();
        let options = format!(
            "transport={},traddr={},trsvcid={port},nqn={subsystem},nr_io_queues=1,keep_alive_tmo=60",
            transport(),
            address()
        );
        control.write_all(options.as_bytes()).unwrap_or_else(|e| panic!("{options}: {e}"));
        // "instance=0,cntlid=1"
        let mut said = String::new();
        control.read_to_string(&mut said).unwrap();
        println!("the kernel connected: {}", said.trim());
        let number = said.trim().split(',').find_map(|w| w.strip_prefix("instance=")).expect("a number").to_owned();
        let folder = PathBuf::from(format!("/sys/class/nvme/nvme{number}"));
        Self { number, folder }
    }

    /// Returns the access state of the first namespace by this controller, in the kernel's words.
    pub fn access(&self) -> Option<String> {
        let entries = fs::read_dir(&self.folder).ok()?.flatten();
        let state = entries.filter_map(|e| fs::read_to_string(e.path().join("ana_state")).ok()).next()?;
        Some(state.trim().to_owned())
    }
}

impl Drop for KernelController {
    fn drop(&mut self) {
        if let Err(e) = fs::write(self.folder.join("delete_controller"), "1") {
            println!("{}: {e}", self.folder.display());
        }
    }
}

/// A subsystem that the kernel's initiator has connected.
pub struct Kernel {
    disk: PathBuf,
    controller: KernelController,
}

impl Kernel {
    /// Connects the kernel to a subsystem at a port of this machine, and waits for its first namespace.
    pub fn connect(port: u16, subsystem: &str) -> Self {
        let controller = KernelController::connect(port, subsystem);
        let number = &controller.number;
        let mut disk = None;
        until("a disk", || {
            // The number in a disk's name is not that of its namespace: several are found at the same time.
            disk = fs::read_dir("/sys/block").unwrap().flatten().find_map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                let nsid = fs::read_to_string(entry.path().join("nsid")).ok()?;
                let node = Path::new("/dev").join(&name);
                let ours = name.starts_with(&format!("nvme{number}n")) && nsid.trim() == "1";
                (ours && node.exists()).then_some(node)
            });
            disk.is_some()
        });
        let disk = disk.expect("found");
        println!("namespace 1 is {}", disk.display());
        Self { disk, controller }
    }

    /// Returns the disk of the first namespace.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// Returns the controller.
    pub fn controller(&self) -> &KernelController {
        &self.controller
    }
}
