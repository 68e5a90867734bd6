//! The target of the other guest, as `tests/rig/guest-fabrics.sh` creates it, and the initiator of this guest's kernel.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
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

/// Addresses of the target in the two networks.
pub const ADDRESSES: [&str; 2] = ["10.8.0.1", "10.8.1.1"];
/// Port at which the target's machine runs lines of shell, in the network that is never cut.
const SHELL: u16 = 99;
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

/// Returns the address of the target's first two ports.
pub fn address() -> &'static str {
    ADDRESSES[0]
}

/// Runs a line of shell on the target's machine, with this input. Returns its output.
#[track_caller]
fn on_target(line: &str, input: &[u8]) -> Vec<u8> {
    try_on_target(line, input).unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn try_on_target(line: &str, input: &[u8]) -> std::io::Result<Vec<u8>> {
    let address = SocketAddr::new(ADDRESSES[1].parse().map_err(std::io::Error::other)?, SHELL);
    let mut shell = TcpStream::connect_timeout(&address, LONG)?;
    shell.set_read_timeout(Some(LONG))?;
    shell.write_all(format!("{line}\n").as_bytes())?;
    shell.write_all(input)?;
    let mut reply = Vec::new();
    shell.read_to_end(&mut reply)?;
    // The status follows the output, in a line of its own.
    let end = reply.iter().rposition(|b| *b == b'\n').unwrap_or_default();
    if !reply.ends_with(b"\n0") {
        return Err(std::io::Error::other(String::from_utf8_lossy(&reply).into_owned()));
    }
    reply.truncate(end);
    Ok(reply)
}

/// A block device of the target's machine.
pub struct TargetDisk(pub &'static str);

/// Returns the block device that a namespace exports: namespace 1 with blocks of 512 bytes, 2 with 4096.
pub fn target_disk(nsid: u32) -> TargetDisk {
    TargetDisk(if nsid == 1 { "/dev/ram0" } else { "/dev/blocks-of-4096" })
}

impl TargetDisk {
    /// Reads from the device, past its cache.
    pub fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let Self(path) = self;
        let skip = at / 512;
        on_target(&format!("blockdev --flushbufs {path} && dd if={path} skip={skip} count={}", bytes / 512), &[])
    }

    /// Writes to the device.
    pub fn write(&self, at: u64, data: &[u8]) {
        let Self(path) = self;
        let (seek, count) = (at / 512, data.len() / 512);
        let line =
            format!("dd of={path} seek={seek} count={count} iflag=fullblock conv=fsync && blockdev --flushbufs {path}");
        on_target(&line, data);
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
    fn folder(self) -> String {
        format!("{TARGET}/ports/{}", self.0)
    }

    /// Takes the subsystem away from the port, which ends its connections.
    pub fn unlink(self) {
        on_target(&format!("rm {}/subsystems/{NQN}", self.folder()), &[]);
    }

    /// Gives it back.
    pub fn link_again(self) {
        on_target(&format!("ln -s {TARGET}/subsystems/{NQN} {}/subsystems/{NQN}", self.folder()), &[]);
    }

    /// Sets the access state of all namespaces at the port, in the kernel's words.
    pub fn set_access(self, state: AccessState) {
        let word = state.to_string().replace(' ', "-");
        on_target(&format!("echo -n {word} > {}/ana_groups/1/ana_state", self.folder()), &[]);
    }
}

/// A subsystem of the kernel's target that admits one host alone, with a key. Dropping it admits all hosts again.
pub struct Keyed<'a> {
    subsystem: &'a str,
    host: &'a str,
}

impl<'a> Keyed<'a> {
    /// Demands authentication of `host` at `subsystem`.
    pub fn new(subsystem: &'a str, host: &'a str) -> Self {
        // The bytes 0 to 31 and their checksum.
        let key = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
        let create = format!("cd {TARGET} && mkdir hosts/{host} && echo -n {key} > hosts/{host}/dhchap_key");
        let deny = format!("echo 0 > subsystems/{subsystem}/attr_allow_any_host");
        let admit = format!("ln -s {TARGET}/hosts/{host} subsystems/{subsystem}/allowed_hosts/{host}");
        on_target(&format!("{create} && {deny} && {admit}"), &[]);
        Self { subsystem, host }
    }
}

impl Drop for Keyed<'_> {
    fn drop(&mut self) {
        let Self { subsystem, host } = self;
        let undo = format!("cd {TARGET} && rm subsystems/{subsystem}/allowed_hosts/{host}");
        let allow = format!("echo 1 > subsystems/{subsystem}/attr_allow_any_host && rmdir hosts/{host}");
        if let Err(e) = try_on_target(&format!("{undo} && {allow}"), &[]) {
            println!("{subsystem}: {e}");
        }
    }
}

/// Runs a program of the guest.
#[track_caller]
pub fn tool(line: &str) {
    let mut words = line.split(' ');
    let done = Command::new(words.next().unwrap()).args(words).output().unwrap();
    println!("$ {line}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{line}: {}", done.status);
}

/// A block device of this guest's kernel.
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
    /// Connects the kernel to a subsystem, by the transport of these tests.
    pub fn connect(host: &str, port: u16, subsystem: &str) -> Self {
        let mut control = OpenOptions::new().read(true).write(true).open("/dev/nvme-fabrics").unwrap();
        let options = format!(
            "transport={},traddr={host},trsvcid={port},nqn={subsystem},nr_io_queues=1,keep_alive_tmo=60",
            transport()
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
    /// Connects the kernel to a subsystem, and waits for its first namespace.
    pub fn connect(host: &str, port: u16, subsystem: &str) -> Self {
        let controller = KernelController::connect(host, port, subsystem);
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
