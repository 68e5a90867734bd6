//! Tests `warpbell nvme` as people and scripts use it, on the software controller and on QEMU's.

use crate::program::one_line;
use crate::tree;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

fn warpbell(args: &[&str]) -> Output {
    let mut command = Command::new(tree::program());
    command.arg("nvme").args(args).env_remove("RUST_LOG");
    command.output().unwrap()
}

fn text(args: &[&str]) -> String {
    let out = warpbell(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    let all: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&text(&all)).unwrap()
}

fn error(args: &[&str]) -> (Option<i32>, String) {
    let out = warpbell(args);
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

/// Returns a specification of QEMU with a namespace of 512-byte blocks, one with metadata and one of 4096-byte blocks;
/// `None` without QEMU.
fn qemu(folder: &TempDir) -> Option<String> {
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
        path.display().to_string()
    };
    let (a, b, c) = (file("a.img"), file("b.img"), file("c.img"));
    let spec = format!("qtest:{a},file={b},metadata=8,file={c},block=4096,ram=64M,serial=S-1");
    let (_, stderr) = error(&["id", &spec]);
    if stderr.contains("no QEMU") {
        assert!(std::env::var_os("WARPBELL_REQUIRE_QEMU").is_none(), "{stderr}");
        println!("SKIP: {stderr}");
        return None;
    }
    Some(spec)
}

#[test]
fn a_controller_says_what_it_is() {
    let out = text(&["id", "soft:mem:1M,namespaces=2,queues=5"]);
    for line in ["mn        : warpbell software controller", "nn        : 2 ", "queues    : 5 ", "cache     : none"] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(
        out.contains("NVMe Identify Namespace 2:") && out.contains("lbaf  0   : ms:0   lbads:9  rp:0x0 best (in use)")
    );
    // Prints one namespace if the specification chooses one.
    assert!(!text(&["id-ctrl", "soft:mem:1M,namespaces=2,nsid=1"]).contains("Namespace 2:"));
    let v = json(&["id", "soft:mem:1M,block=4096"]);
    assert_eq!((v["command"].as_str(), v["device"].as_str()), (Some("nvme id"), Some("soft:mem:1M,block=4096")));
    assert_eq!(v["controller"]["mdts"], 9);
    assert_eq!(v["driver"]["max_transfer_bytes"], 2 << 20);
    assert_eq!((&v["namespaces"][0]["nsze"], &v["namespaces"][0]["lbafs"][0]["ds"]), (&256.into(), &12.into()));
}

#[test]
fn a_serial_number_does_not_depend_on_how_the_file_is_spelled() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().canonicalize().unwrap();
    for name in ["x.img", "y.img"] {
        std::fs::File::create(folder.join(name)).unwrap().set_len(1 << 20).unwrap();
    }
    std::os::unix::fs::symlink("x.img", folder.join("link.img")).unwrap();
    let serial = |device: &str| {
        let out =
            Command::new(tree::program()).args(["nvme", "id", device, "--json"]).current_dir(&folder).output().unwrap();
        let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{device}: {e}: {out:?}"));
        report["controller"]["sn"].as_str().unwrap().to_owned()
    };
    let first = serial("soft:x.img");
    let absolute = format!("soft:{}/x.img", folder.display());
    for spelled in ["soft:./x.img", "soft:link.img", "soft:file:x.img", "soft:x.img,io=mmap", &absolute] {
        assert_eq!(serial(spelled), first, "{spelled}");
    }
    assert_ne!(serial("soft:y.img"), first);
    assert_ne!(serial("soft:x.img,file=y.img"), first);
}

#[test]
fn health_and_errors_are_told_by_nvme_clis_names() {
    let v = json(&["smart", "soft:mem:1M"]);
    assert_eq!((&v["critical_warning"], &v["temperature"], &v["avail_spare"]), (&0.into(), &300.into(), &100.into()));
    let out = text(&["smart-log", "soft:mem:1M"]);
    assert!(out.starts_with("Smart Log for NVMe device soft:mem:1M:"), "{out}");
    assert!(out.contains("temperature                         : 27 C (300 K)"), "{out}");
    assert!(out.contains("firmware slot 1                     : 0.1.0 (active)"), "{out}");
    let out = text(&["error-log", "soft:mem:1M"]);
    assert_eq!(out, "Error Log Entries for device soft:mem:1M: 0 of at most 64\n");
    assert_eq!(json(&["error-log", "soft:mem:1M"])["errors"], Value::Array(Vec::new()));
}

#[test]
fn lists_have_what_was_named() {
    let v = json(&["list", "--device", "soft:mem:2M,block=4096", "--device", "soft:mem:1M"]);
    assert_eq!(v["command"], "nvme list");
    assert_eq!(v["devices"][0]["namespaces"][0]["size_bytes"], 2 << 20);
    assert_eq!(v["devices"][1]["model"], "warpbell software controller");
    assert!(v["controllers"].is_array());
    let out = text(&["list", "--device", "soft:mem:1M"]);
    assert!(out.lines().any(|l| l.starts_with("soft:mem:1M") && l.contains("  open  ")), "{out}");
    // The list goes to a file, too.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("list.json");
    text(&["list", "--json", &file.display().to_string()]);
    let written: Value = serde_json::from_str(&std::fs::read_to_string(Path::new(&file)).unwrap()).unwrap();
    assert_eq!(written["devices"], Value::Array(Vec::new()));
}

#[test]
fn formats_are_checked_on_a_controller_that_has_several() {
    let dir = tempfile::tempdir().unwrap();
    let Some(spec) = qemu(&dir) else { return };
    let out = text(&["format-check", &spec]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("namespace 1  4 MiB  blocks of 512 + 0 bytes  usable"), "{out}");
    assert!(
        lines[1].contains("blocks of 512 + 8 bytes  cannot be used: its blocks carry 8 bytes of metadata"),
        "{out}"
    );
    assert!(lines[2].starts_with("  nvme format /dev/nvmeXn2 --lbaf=4 "), "{out}");
    assert!(lines[3].contains("blocks of 4096 + 0 bytes  usable"), "{out}");
    let v = json(&["format-check", &spec]);
    let usable: Vec<bool> = v["namespaces"].as_array().unwrap().iter().map(|n| n["usable"] == true).collect();
    assert_eq!(usable, [true, false, true]);
    assert_eq!(
        (&v["namespaces"][1]["format"]["lbaf"], &v["namespaces"][1]["format"]["block_bytes"]),
        (&4.into(), &4096.into())
    );
    let (code, stderr) = error(&["format-check", &format!("{spec},nsid=2")]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no namespace can be used"), "{stderr}");
    let v = json(&["id", &spec]);
    assert_eq!((&v["controller"]["sn"], &v["driver"]["pci_id"]), (&"S-1".into(), &"1b36:0010".into()));
    assert!(text(&["smart", &spec]).contains("50 C (323 K)"));
}

#[test]
fn bench_is_bench_nvme() {
    let out = text(&["bench", "soft:mem", "--runtime", "50ms", "--engine", "cpu", "--bs", "512"]);
    assert!(out.contains("device soft:mem") && out.contains("bs 512") && out.contains("IOPS="), "{out}");
}

#[test]
fn what_cannot_be_opened_is_one_line() {
    for (args, code, words) in [
        (&["serve", "soft:mem"][..], 1, "soft:mem:1G"),
        (&["id", "soft:mem:1M,nsid=7"], 1, "no active namespace 7; active are [1]"),
        (&["format-check", "soft:mem:1M,nsid=7"], 1, "no active namespace 7"),
        (&["smart", "edges.img"], 1, "names no kind of device"),
        (&["smart"], 2, "<DEVICE>"),
        (&["smart", "soft:mem:1M,never-ready,ready-timeout=500ms"], 1, "did not become ready within 500ms"),
    ] {
        let (got, stderr) = error(args);
        assert_eq!(got, Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
        assert!(code == 2 || stderr.lines().count() == 1, "{args:?}: {stderr}");
    }
}

/// A target that a process of this program exports, until it is dropped.
struct Exported {
    child: std::process::Child,
    /// Address of the last port.
    address: String,
    /// Specification of the device, as the program printed it.
    device: String,
    /// Kept open: a program whose standard output is closed ends at its next line.
    _out: std::io::BufReader<std::process::ChildStdout>,
}

impl Exported {
    fn new(device: &str, transport: &str) -> Self {
        Self::with_ports(device, transport, 1)
    }

    fn with_ports(device: &str, transport: &str, ports: usize) -> Self {
        let mut command = Command::new(tree::program());
        command.args(["nvme", "serve", device, "--nqn", "nqn.a:b,c", "--transport", transport]);
        command.args(["--listen", "127.0.0.1:0"].repeat(ports));
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let (mut first, mut second) = (String::new(), String::new());
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut first).unwrap();
        std::io::BufRead::read_line(&mut out, &mut second).unwrap();
        let address = first.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(first.starts_with(&format!("{device} is served at 127.0.0.1:")), "{first}");
        let device = second.trim().strip_prefix("--device ").expect("the device").to_owned();
        Self { child, address, device, _out: out }
    }

    fn device(&self) -> String {
        format!("{},keep-alive=60,threads=1", self.device)
    }

    /// Searches a graph that is stored on the device.
    fn search(&self) {
        let mut search = Command::new(tree::program());
        search.args(["graph", "bfs", "kron:10", "--verify", "--engine", "cpu", "--device", &self.device()]);
        let out = search.output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && said.contains("verified"), "{said}{}", String::from_utf8_lossy(&out.stderr));
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_exported_device_is_found_checked_and_used() {
    let exported = Exported::new("soft:mem:64M,block=4096,threads=1", "tcp");
    let found = json(&["discover", &exported.address]);
    let record = &found["records"][0];
    assert_eq!((record["subnqn"].as_str(), record["trtype"].as_str()), (Some("nqn.a:b,c"), Some("tcp")));
    let device = record["device"].as_str().unwrap();
    assert_eq!(device, format!(r"nvmf:tcp://{}/nqn.a:b\,c", exported.address));
    for address in [exported.address.clone(), format!("tcp://{}", exported.address)] {
        assert!(text(&["discover", &address]).contains(device));
        assert!(text(&["discover", &address, "--transport", "tcp"]).contains(device));
    }
    let doctor = Command::new(tree::program()).args(["doctor", "--device", device]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout);
    let remote = said.lines().skip_while(|l| !l.starts_with("remote nvmf:tcp://")).skip(1);
    let remote = one_line(&remote.take_while(|l| l.starts_with(' ')).collect::<Vec<_>>().join("\n"));
    let checks: Vec<&str> = remote.split("ok ").skip(1).collect();
    for (check, words) in checks.iter().zip(["127.0.0.1 from 127.0.0.1", "queue connected", ", 1 namespace"]) {
        assert!(check.contains(words), "{said}");
    }
    assert_eq!(checks.len(), 3, "{said}");
    let checked = json(&["connect-check", device]);
    assert_eq!((checked["namespaces"][0].as_u64(), checked["in_capsule_bytes"].as_u64()), (Some(1), Some(4096)));
    assert!(text(&["connect-check", device]).contains("transfer   : 128 KiB"));
    assert!(text(&["id", &exported.device()]).contains("mn        : warpbell software controller"));
    exported.search();
}

#[test]
fn the_registers_shown_are_those_of_the_target() {
    let exported = Exported::new("soft:mem:64M,block=4096,threads=1", "tcp");
    let shown = json(&["id", &exported.device()]);
    // The target's own limit (`capabilities` of host/soft/target/identify.rs), without the time of new connections.
    assert_eq!(shown["driver"]["ready_timeout_ms"], 5000, "{shown}");
    let cap = shown["driver"]["cap"].as_u64().unwrap();
    assert_eq!((cap >> 24 & 0xff, cap >> 32 & 0xf), (10, 0), "CAP.TO and CAP.DSTRD: {cap:#x}");
    assert!(text(&["id", &exported.device()]).contains("ready     : 5000 "));
}

#[test]
fn an_export_ends_with_its_time_and_by_a_signal_after_a_stop() {
    let serve = |more: &[&str]| {
        let mut command = Command::new(tree::program());
        command.args(["nvme", "serve", "soft:mem:1M", "--listen", "127.0.0.1:0"]).args(more);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let ended = |child: std::process::Child| {
        let out = child.wait_with_output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let timed = ended(serve(&["--timeout", "300ms"]));
    let told = "error: not done after 300ms (--timeout), while serving the device; allow more time\n";
    assert_eq!(timed, (Some(124), told.to_owned()), "not by force");
    let mut stopped = serve(&[]);
    // It serves once it has printed its address.
    let mut first = String::new();
    let mut out = std::io::BufReader::new(stopped.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut first).unwrap();
    for signal in [libc::SIGSTOP, libc::SIGTERM, libc::SIGCONT] {
        // SAFETY: a system call with values; the process is one that this test started.
        assert_eq!(unsafe { libc::kill(stopped.id() as i32, signal) }, 0);
    }
    assert_eq!(ended(stopped), (Some(143), "interrupted by SIGTERM\n".to_owned()));
}

#[test]
fn memory_needs_no_size_to_be_looked_at() {
    assert!(text(&["id", "soft:mem,block=4096"]).contains("lbads:12"));
    assert!(text(&["list", "--device", "soft:mem"]).contains("soft:mem:64M"));
    assert!(text(&["smart", "soft:mem"]).contains("soft:mem"));
}

#[test]
fn a_device_is_exported_by_two_ports() {
    let exported = Exported::with_ports("soft:mem:64M,block=4096,threads=1", "tcp", 2);
    let checked = json(&["connect-check", &exported.device]);
    let ports = checked["ports"].as_array().unwrap();
    assert!(
        ports.len() == 2 && ports.iter().all(|p| p["access"] == "optimized" && p["failure"].is_null()),
        "{checked}"
    );
    let found = json(&["discover", &exported.address]);
    let found = found["records"].as_array().unwrap();
    assert_eq!((found.len(), found[1]["portid"].as_u64()), (2, Some(2)));
    let said = text(&["connect-check", &exported.device]);
    assert_eq!(said.lines().filter(|l| l.starts_with("port       : 127.0.0.1:")).count(), 2, "{said}");
    exported.search();
}

#[test]
fn a_device_is_exported_over_software_nics_of_two_processes() {
    let exported = Exported::new("soft:mem:64M,block=4096,threads=1", "soft");
    let device = format!(r"nvmf:soft://{}/nqn.a:b\,c", exported.address);
    let checked = json(&["connect-check", &device]);
    assert_eq!((checked["namespaces"][0].as_u64(), checked["in_capsule_bytes"].as_u64()), (Some(1), Some(4096)));
    assert!(text(&["id", &exported.device()]).contains("mn        : warpbell software controller"));
    exported.search();
    let (code, said) = error(&["connect-check", &format!("{device},hdr_digest")]);
    assert!(code == Some(1) && said.contains("digests are of nvmf:tcp alone"), "{said}");
    let (code, said) = error(&["connect-check", &format!("nvmf:soft://{}/nqn.other", exported.address)]);
    assert!(code == Some(1) && said.contains("name of the subsystem"), "{said}");
}

/// Searches Enron on a device from vertex 1. Returns the distances, as they were written, and the report.
fn search_enron(device: &str, folder: &TempDir) -> (String, Value) {
    let (out, report) = (folder.path().join("out.txt"), folder.path().join("out.json"));
    let mut search = Command::new(tree::program());
    search.args([
        "graph",
        "bfs",
        "examples/data/email-enron.txt",
        "--source",
        "1",
        "--engine",
        "cpu",
        "--cache",
        "25%",
    ]);
    search.args(["--device", device]).arg("--out").arg(&out).arg("--json").arg(&report).current_dir(tree::root());
    let done = search.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("verified"), "{said}");
    let report = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    (std::fs::read_to_string(out).unwrap(), report)
}

#[test]
fn a_search_whose_kernels_post_the_commands_to_another_process_equals_the_local_one() {
    let folder = tempfile::tempdir().unwrap();
    let (local, _) = search_enron("soft:mem:64M,threads=1", &folder);
    let exported = Exported::new("soft:mem:64M,threads=1", "soft");
    let (remote, report) = search_enron(&exported.device(), &folder);
    assert!(local == remote && local.lines().count() > 30_000, "the distances differ");
    // Without forwarded doorbells no host thread takes part.
    assert_eq!(report["path"]["doorbell"], "cpu-engine", "{report}");
    let io = &report["results"]["runs"][0]["io"];
    // Of 1.4 MiB of edges the cache holds a quarter. How often pages are read again depends on the threads.
    assert!(io["read_bytes"].as_u64().unwrap() > 1 << 19, "{io}");
}

#[test]
fn targets_that_cannot_be_used_are_errors_with_a_remedy() {
    let exported = Exported::new("soft:mem:1M,threads=1", "tcp");
    let (code, said) = error(&["connect-check", &format!("nvmf:tcp://{}/nqn.other", exported.address)]);
    assert!(code == Some(1) && said.contains("name of the subsystem"), "{said}");
    let address = exported.address.clone();
    drop(exported);
    let (code, said) = error(&["connect-check", &format!("nvmf:tcp://{address}/nqn.other")]);
    assert!(code == Some(1) && said.contains("start the target"), "{said}");
    if !Path::new("/sys/class/infiniband").exists() {
        for args in [
            &["connect-check", "nvmf:rdma://127.0.0.1/nqn.other"][..],
            &["discover", "rdma://127.0.0.1"],
            &["discover", "127.0.0.1", "--transport", "rdma"],
        ] {
            let (code, said) = error(args);
            assert!(code == Some(1) && said.contains("rdma"), "{args:?}: {said}");
        }
    }
    let (code, said) = error(&["discover", "::1"]);
    assert!(code == Some(1) && said.contains("brackets"), "{said}");
    let (code, said) = error(&["connect-check", "soft:mem:1M"]);
    assert!(code == Some(1) && said.contains("`nvmf` was expected"), "{said}");
    let (code, said) = error(&["serve", "soft:mem:1M", "--nqn", ""]);
    assert!(code == Some(1) && said.contains("NQN"), "{said}");
}
