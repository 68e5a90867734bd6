//! The guest's devices, as `tests/rig/machine.py` places them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Drive with namespaces of 512 and of 4096 bytes per block.
pub const TWO: &str = "0000:00:04.0";
/// Drive with one namespace of 512 bytes per block, as large as the first of [`TWO`].
pub const MATE: &str = "0000:00:05.0";
/// Drive whose LBA 700 of namespace 1 (512 bytes) and LBA 90 of namespace 2 (4096 bytes) cannot be read.
pub const FAULTY: &str = "0000:00:06.0";
/// A device with nothing but memory in its BAR 2.
pub const PEER: &str = "0000:00:08.0";
/// Root ports with a drive each.
pub const PORT_ORDERLY: &str = "0000:00:10.0";
pub const PORT_SURPRISE: &str = "0000:00:11.0";
pub const PORT_RESET: &str = "0000:00:12.0";
/// Root port without a drive.
pub const PORT_SPARE: &str = "0000:00:13.0";

/// Name of the VFIO interface in the machine without an IOMMU.
const NO_IOMMU: &str = "none";

/// Longer than any single step takes, however busy the machine.
pub const BOUND: Duration = Duration::from_secs(60);

/// Fails the test unless this is a guest of the rig with an IOMMU.
#[track_caller]
pub fn inside() {
    let inside = std::env::var("WARPBELL_RIG_VFIO").is_ok_and(|form| form != NO_IOMMU);
    assert!(inside, "this machine is no guest of the rig with an IOMMU; tests/rig/run --vfio group starts one");
}

/// Fails the test unless this is the guest of the rig without an IOMMU.
#[track_caller]
pub fn unguarded() {
    let unguarded = std::env::var("WARPBELL_RIG_VFIO").is_ok_and(|form| form == NO_IOMMU);
    assert!(unguarded, "this machine is no guest of the rig without an IOMMU; tests/rig/run --vfio none starts one");
}

/// Returns the VFIO interface that this machine tests: `group`, `iommufd`, or [`NO_IOMMU`].
pub fn vfio() -> String {
    std::env::var("WARPBELL_RIG_VFIO").unwrap()
}

pub fn device(bdf: &str) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(bdf)
}

/// Returns the driver of a function, if it has one.
pub fn driver(bdf: &str) -> Option<String> {
    let link = fs::read_link(device(bdf).join("driver")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// Returns the function behind a root port, if there is one.
pub fn behind(port: &str) -> Option<String> {
    let names = fs::read_dir(device(port)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.into_iter().find(|n| n.len() == PORT_SPARE.len() && n.as_bytes()[4] == b':' && n.starts_with("0000:"))
}

/// Waits until `look` returns a value.
pub fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs the command, and prints its output.
pub fn warpbell(arguments: &[&str]) -> Output {
    let output = Command::new("warpbell").args(arguments).output().unwrap();
    println!("$ warpbell {}\n{}{}", arguments.join(" "), text(&output.stdout), text(&output.stderr));
    output
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Binds a function to vfio-pci, if it is not bound already.
pub fn bind(bdf: &str) {
    if driver(bdf).as_deref() != Some("vfio-pci") {
        let risk = (vfio() == NO_IOMMU).then_some("--unsafe-no-iommu");
        let arguments: Vec<&str> = ["nvme", "bind", bdf].into_iter().chain(risk).collect();
        assert!(warpbell(&arguments).status.success());
        assert_eq!(driver(bdf).as_deref(), Some("vfio-pci"));
    }
}

/// Returns the specification of a namespace, with the VFIO interface that this machine tests.
pub fn spec(bdf: &str, nsid: u32) -> String {
    let option = match vfio().as_str() {
        "group" => "api=group",
        NO_IOMMU => "unsafe-no-iommu",
        _ => "api=cdev",
    };
    format!("nvme:{bdf},nsid={nsid},{option}")
}

/// Reads a register of configuration space.
pub fn config_read(bdf: &str, offset: u64, bytes: usize) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut out = vec![0; bytes];
    fs::File::open(device(bdf).join("config")).unwrap().read_exact_at(&mut out, offset).unwrap();
    out
}

/// Writes a register of configuration space.
pub fn config_write(bdf: &str, offset: u64, data: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(device(bdf).join("config")).unwrap();
    file.write_all_at(data, offset).unwrap();
}

/// Returns the offset of the PCI Express capability of a function (PCI Express Base 6.0, 7.5.3: capability identifier
/// 10h).
pub fn express_capability(bdf: &str) -> u64 {
    let mut at = config_read(bdf, 0x34, 1)[0];
    while at != 0 {
        let head = config_read(bdf, at.into(), 2);
        if head[0] == 0x10 {
            return at.into();
        }
        at = head[1];
    }
    panic!("{bdf} has no PCI Express capability");
}

/// Returns the kernel's log so far.
pub fn kernel_log() -> String {
    text(&Command::new("dmesg").output().unwrap().stdout)
}
