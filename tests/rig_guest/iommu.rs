//! Tests addresses that are not mapped, and memory that may not be locked.

use super::machine::{self, BOUND, MATE, PEER, bind, spec, text};
use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};
use std::ptr::NonNull;
use std::time::Instant;
use warpbell::memory::{DmaAccess, Space};
use warpbell::nvme::vfio::{self, VfioApi, VfioConfig};
use warpbell::nvme::{HostQueue, HostQueueOptions};
use warpbell::storage::Drive;
use warpbell::wire::nvme::{SqEntry, io, status};

const PAGE: usize = 4096;
/// Far from everything that is mapped, within the 39 bits that this IOMMU translates.
const NOWHERE: u64 = 0x70_0000_0000 >> 4;

#[test]
#[ignore = "needs the rig"]
fn an_address_that_is_not_mapped_harms_no_memory() {
    machine::inside();
    bind(MATE);
    let drive = Drive::open(&spec(MATE, 1)).unwrap();
    let (controller, ns) = (drive.controller().clone(), drive.namespace().clone());
    let mut queue =
        HostQueue::create(&controller, HostQueueOptions::default().depth(8).bytes_per_command(PAGE)).unwrap();
    queue.write(&ns, 0, &[0x5a; PAGE]).unwrap();
    let near = controller.dma().allocate(&Space::cpu(), 4 * PAGE).unwrap();
    near.region.fill(0, near.region.len(), 0xee).unwrap();
    // Mapped a moment ago: the address must be unmapped when the memory is given back.
    let gone = controller.dma().allocate(&Space::cpu(), PAGE).unwrap().iova;
    let mut read_to = |prp1: u64, prp2: u64, blocks: u32| {
        let cid = queue.reserve().unwrap();
        let mut entry = SqEntry { prp1, prp2, ..SqEntry::new(io::READ, cid, ns.id()) };
        entry.set_range(0, blocks);
        let done = queue.execute(cid, entry).unwrap();
        queue.release(cid);
        done.status()
    };
    for target in [NOWHERE, gone] {
        // This model completes a transfer that the IOMMU has stopped with success; drives may return Data Transfer
        // Error.
        let answered = read_to(target, 0, (PAGE / 512) as u32);
        println!("  read to {target:#x}: {answered}");
        assert!(answered.is_success() || answered.without_flags() == status::DATA_TRANSFER_ERROR, "{answered}");
    }
    // A list that cannot be fetched is an error everywhere.
    let answered = read_to(near.iova, NOWHERE, (3 * PAGE / 512) as u32);
    println!("  read with a PRP list at {NOWHERE:#x}: {answered}");
    assert_eq!(answered.without_flags(), status::DATA_TRANSFER_ERROR);
    let mut held = vec![0; near.region.len()];
    near.region.read(0, &mut held).unwrap();
    let harmed = held.iter().position(|b| *b != 0xee && *b != 0x5a);
    assert_eq!(harmed, None, "memory beside the transfer was written");
    let log = machine::kernel_log();
    let faults: Vec<&str> = log.lines().filter(|l| l.contains("DMAR:") && l.contains("fault addr")).collect();
    println!("  {}", faults.join("\n  "));
    assert!(faults.iter().any(|l| l.contains(&format!("fault addr {NOWHERE:#x}"))), "no fault in the kernel's log");
    // The device still works.
    let mut out = [0; PAGE];
    queue.read(&ns, 0, &mut out).unwrap();
    assert_eq!(out, [0x5a; PAGE]);
}

const USER: u32 = 1000;
const NAME: &str = "rig";

/// Creates an ordinary user who may open the files of a controller, and only those.
fn ordinary_user(bdf: &str) {
    let group = fs::read_link(machine::device(bdf).join("iommu_group")).unwrap();
    let mut files = vec![format!("/dev/vfio/{}", group.file_name().unwrap().to_str().unwrap())];
    if machine::vfio() == "iommufd" {
        let name = fs::read_dir(machine::device(bdf).join("vfio-dev")).unwrap().next().unwrap().unwrap().file_name();
        files.extend([format!("/dev/vfio/devices/{}", name.to_str().unwrap()), "/dev/iommu".to_owned()]);
    }
    for file in &files {
        chown(file, Some(USER), Some(USER)).unwrap();
    }
    // udev gives all users access to this file; there is no udev here.
    fs::set_permissions("/dev/vfio/vfio", PermissionsExt::from_mode(0o666)).unwrap();
    fs::set_permissions("/tmp", PermissionsExt::from_mode(0o1777)).unwrap();
    fs::write("/etc/passwd", format!("root:x:0:0::/:/bin/sh\n{NAME}:x:{USER}:{USER}::/tmp:/bin/sh\n")).unwrap();
    fs::write("/etc/group", format!("root:x:0:\n{NAME}:x:{USER}:\n")).unwrap();
}

/// Runs a command as that user, with this limit of locked memory.
fn as_user(kib: &str, command: &str) -> Output {
    let started = Instant::now();
    let limited = format!("ulimit -l {kib} && exec su -p {NAME} -c 'exec {command}'");
    let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
    assert!(started.elapsed() < BOUND);
    println!("$ ulimit -l {kib}; {command}\n{}{}", text(&output.stdout), text(&output.stderr));
    output
}

/// Tests that an ordinary user needs rights on the VFIO files only. A user with too little lockable memory gets the
/// limit in the error.
#[test]
#[ignore = "needs the rig"]
fn an_ordinary_user_may_and_too_small_a_memlock_is_named() {
    machine::inside();
    bind(MATE);
    ordinary_user(MATE);
    let device = spec(MATE, 1);
    let bench = |kib| as_user(kib, &format!("warpbell bench nvme --device {device} --runtime 200ms --engine cpu"));
    let refused = bench("64");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("locked memory") && said.contains("ulimit -l"), "{said}");
    let passed = bench("262144");
    assert!(passed.status.success());
    assert!(text(&passed.stdout).contains("read: IOPS="));
}

/// Limit of locked memory of the ordinary user, and the variable of the test that runs as that user.
const LIMIT_KIB: u64 = 8192;
const MAY_LOCK_LITTLE: &str = "WARPBELL_RIG_MAY_LOCK_LITTLE";

/// Tests that device memory does not count against the limit: it is mapped when no more memory may be locked.
#[test]
#[ignore = "needs the rig"]
fn memory_of_a_device_is_mapped_where_no_more_may_be_locked() {
    machine::inside();
    if std::env::var_os(MAY_LOCK_LITTLE).is_some() {
        return with_nothing_left_to_lock();
    }
    bind(MATE);
    ordinary_user(MATE);
    fs::write(machine::device(PEER).join("enable"), "1").unwrap();
    chown(machine::device(PEER).join("resource2"), Some(USER), Some(USER)).unwrap();
    let this = "iommu::memory_of_a_device_is_mapped_where_no_more_may_be_locked";
    let again = format!("env {MAY_LOCK_LITTLE}=1 rig_guest --exact {this} --include-ignored --nocapture");
    let output = as_user(&LIMIT_KIB.to_string(), &again);
    assert!(output.status.success() && text(&output.stdout).contains("1 passed"));
}

fn with_nothing_left_to_lock() {
    const BAR_BYTES: usize = 16 << 20;
    let limit = LIMIT_KIB << 10;
    // Only type1 maps another device's memory at the address that the processor uses.
    let config = VfioConfig::new(MATE.parse().unwrap()).api(VfioApi::Group);
    let opened = vfio::open(&config).unwrap();
    let (dma, space) = (&opened.attachment.dma, Space::cpu());
    let _held = dma.allocate(&space, limit as usize - 16 * PAGE).unwrap();
    let refused = dma.allocate(&space, 32 * PAGE).unwrap_err().to_string();
    println!("  {refused}");
    let words = format!(
        "{} bytes to pin, {} pinned already, the limit on locked memory is {limit} bytes",
        32 * PAGE,
        limit - 65536
    );
    assert!(refused.contains(&words), "{refused}");
    let file = OpenOptions::new().read(true).write(true).open(machine::device(PEER).join("resource2")).unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping of the whole BAR at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), BAR_BYTES, both, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(base, libc::MAP_FAILED);
    let base = NonNull::new(base.cast::<u8>()).unwrap();
    let iommu = dma.iommu().unwrap();
    let iova = iommu.allocate_iova(BAR_BYTES as u64, 2 << 20).unwrap();
    // SAFETY: the mapping stays until the process ends, which unmaps it for the drive first.
    unsafe { iommu.map_host(base, BAR_BYTES as u64, iova, DmaAccess::ReadWrite) }.unwrap();
    println!("  {BAR_BYTES} bytes of {PEER} mapped at {iova:#x} through {}", iommu.name());
    iommu.unmap(iova, BAR_BYTES as u64).unwrap();
}
