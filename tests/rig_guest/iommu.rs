//! Addresses that are not mapped, and memory that may not be locked.

use super::machine::{self, BOUND, MATE, bind, spec, text};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use std::time::Instant;
use warpbell::memory::Space;
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
    let mut queue = HostQueue::create(&controller, HostQueueOptions { depth: 8, bytes_per_command: PAGE }).unwrap();
    queue.write(&ns, 0, &[0x5a; PAGE]).unwrap();
    let near = controller.dma().allocate(&Space::cpu(), 4 * PAGE).unwrap();
    near.region.fill(0, near.region.len(), 0xee).unwrap();
    // What was mapped a moment ago: the address has to be dead when the memory is given back.
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
        // This model calls a transfer done that the IOMMU has stopped; drives may say data transfer error.
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
    // The device goes on.
    let mut out = [0; PAGE];
    queue.read(&ns, 0, &mut out).unwrap();
    assert_eq!(out, [0x5a; PAGE]);
}

/// An ordinary user with rights on the VFIO files is enough, and with too little memory to lock is told before the kernel refuses.
#[test]
#[ignore = "needs the rig"]
fn an_ordinary_user_may_and_too_small_a_memlock_is_named() {
    machine::inside();
    const USER: u32 = 1000;
    const NAME: &str = "rig";
    bind(MATE);
    let group = std::fs::read_link(machine::device(MATE).join("iommu_group")).unwrap();
    let mut files = vec![format!("/dev/vfio/{}", group.file_name().unwrap().to_str().unwrap())];
    if machine::vfio() == "iommufd" {
        let name =
            std::fs::read_dir(machine::device(MATE).join("vfio-dev")).unwrap().next().unwrap().unwrap().file_name();
        files.extend([format!("/dev/vfio/devices/{}", name.to_str().unwrap()), "/dev/iommu".to_owned()]);
    }
    for file in &files {
        chown(file, Some(USER), Some(USER)).unwrap();
    }
    // udev gives everybody this one; here is none.
    std::fs::set_permissions("/dev/vfio/vfio", PermissionsExt::from_mode(0o666)).unwrap();
    std::fs::set_permissions("/tmp", PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::write("/etc/passwd", format!("root:x:0:0::/:/bin/sh\n{NAME}:x:{USER}:{USER}::/tmp:/bin/sh\n")).unwrap();
    std::fs::write("/etc/group", format!("root:x:0:\n{NAME}:x:{USER}:\n")).unwrap();
    let bench = |kib: &str| {
        let device = spec(MATE, 1);
        let bench = format!("exec warpbell bench nvme --device {device} --runtime 200ms --engine cpu");
        let command = format!("ulimit -l {kib} && exec su -p {NAME} -c '{bench}'");
        let started = Instant::now();
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        assert!(started.elapsed() < BOUND);
        println!("$ ulimit -l {kib}\n{}{}", text(&output.stdout), text(&output.stderr));
        output
    };
    let refused = bench("64");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("locked memory") && said.contains("ulimit -l"), "{said}");
    let passed = bench("262144");
    assert!(passed.status.success());
    assert!(text(&passed.stdout).contains("read: IOPS="));
}
