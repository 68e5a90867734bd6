//! Tests drives that are pulled, removed on request, and plugged in.

use super::host;
use super::machine::{
    self, BOUND, PORT_ORDERLY, PORT_SPARE, PORT_SURPRISE, bind, config_read, config_write, express_capability, spec,
};
use serde_json::json;
use std::time::{Duration, Instant};
use warpbell::nvme::{HostQueue, HostQueueOptions, Notice, NvmeError};
use warpbell::storage::Drive;

/// Slot Control within the PCI Express capability (PCI Express Base 6.0, 7.5.3.10).
const SLOT_CONTROL: u64 = 0x18;
/// Power Controller Control: off; both indicators off; the bits below are interrupt enables, kept as they are.
const SLOT_POWER_OFF: u16 = 1 << 10 | 0b11 << 8 | 0b11 << 6;
const SLOT_INTERRUPTS: u16 = 0x003f;
/// Deadline of a wait for one command.
const DEADLINE: Duration = Duration::from_secs(2);

fn read_on(queue: &mut HostQueue<'_>, ns: &warpbell::nvme::Namespace) -> Result<(), NvmeError> {
    let mut out = vec![0; 64 << 10];
    queue.read(ns, 0, &mut out)
}

/// Tests a removal request while commands are in flight: the drive is given back in order, and then it leaves.
#[test]
#[ignore = "needs the rig"]
fn an_orderly_removal_is_noticed_and_followed() {
    machine::inside();
    let bdf = machine::behind(PORT_ORDERLY).unwrap();
    bind(&bdf);
    let drive = Drive::open(&spec(&bdf, 1)).unwrap();
    let (controller, ns) = (drive.controller().clone(), drive.namespace().clone());
    let mut queue = HostQueue::create(&controller, HostQueueOptions::default()).unwrap();
    read_on(&mut queue, &ns).unwrap();
    assert_eq!(controller.port().notice(), None);
    let asked = Instant::now();
    host::qmp("device_del", json!({ "id": "orderly" }));
    let notice = machine::until("a notice of the removal", BOUND, || {
        read_on(&mut queue, &ns).unwrap();
        controller.port().notice()
    });
    println!("  {notice} after {:?}", asked.elapsed());
    assert_eq!(notice, Notice::ReleaseRequested);
    drop((queue, controller, drive));
    host::event("DEVICE_DELETED", "orderly", BOUND).unwrap();
    machine::until("the function to leave", BOUND, || (!machine::device(&bdf).exists()).then_some(()));
    let e = Drive::open(&spec(&bdf, 1)).unwrap_err();
    println!("  {e}");
    assert!(e.to_string().contains(&bdf), "{e}");
}

#[test]
#[ignore = "needs the rig"]
fn a_drive_that_is_plugged_in_works() {
    machine::inside();
    assert_eq!(machine::behind(PORT_SPARE), None);
    host::qmp(
        "device_add",
        json!({
            "driver": "nvme", "id": "spare", "serial": "RIG-SPARE", "drive": "spare", "bus": "port-spare"
        }),
    );
    let bdf = machine::until("the new function", BOUND, || machine::behind(PORT_SPARE));
    // The kernel may not have bound its driver yet.
    machine::until("the kernel's driver", BOUND, || machine::driver(&bdf));
    bind(&bdf);
    let drive = Drive::open(&spec(&bdf, 1)).unwrap();
    assert_eq!(drive.controller().identify().serial(), "RIG-SPARE");
    let ns = drive.namespace().clone();
    let mut queue = HostQueue::create(drive.controller(), HostQueueOptions::default()).unwrap();
    queue.write(&ns, 8, b"plugged in a moment ago".repeat(512).get(..8192).unwrap()).unwrap();
    queue.flush(&ns).unwrap();
    // On the medium, as the host sees it.
    assert_eq!(host::image("spare", 4096, 23), b"plugged in a moment ago");
}

/// Tests a drive that vanishes while commands are in flight: an outcome within the deadline, and no wait for the kernel
/// to give up.
#[test]
#[ignore = "needs the rig"]
fn a_surprise_removal_is_an_outcome_and_closing_does_not_block() {
    machine::inside();
    let bdf = machine::behind(PORT_SURPRISE).unwrap();
    bind(&bdf);
    let drive = Drive::open(&spec(&bdf, 1)).unwrap();
    let (controller, ns) = (drive.controller().clone(), drive.namespace().clone());
    let mut queue = HostQueue::create(&controller, HostQueueOptions::default()).unwrap();
    queue.set_deadline(DEADLINE);
    read_on(&mut queue, &ns).unwrap();
    assert!(host::has_device("surprise"));
    let slot = express_capability(PORT_SURPRISE) + SLOT_CONTROL;
    let kept = u16::from_le_bytes(config_read(PORT_SURPRISE, slot, 2).try_into().unwrap()) & SLOT_INTERRUPTS;
    let puller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        config_write(PORT_SURPRISE, slot, &(kept | SLOT_POWER_OFF).to_le_bytes());
        Instant::now()
    });
    let e = machine::until("an outcome", BOUND, || read_on(&mut queue, &ns).err());
    let pulled = puller.join().unwrap();
    let took = pulled.elapsed();
    println!("  {e} after {took:?}");
    assert!(matches!(e, NvmeError::Gone { .. } | NvmeError::TimedOut { .. }), "{e}");
    assert!(took < DEADLINE + Duration::from_secs(8), "{took:?}");
    let check = controller.check().unwrap_err();
    println!("  {check}");
    assert!(matches!(check, NvmeError::Gone { .. }), "{check}");
    // Do not wait for the event at the end of an orderly removal. QEMU sends it once nothing refers to its model of the
    // drive any more. QEMU 7.2 sometimes keeps a reference of a transfer that was in flight.
    machine::until("the drive to be out of its slot", BOUND, || (!host::has_device("surprise")).then_some(()));
    let started = Instant::now();
    drop((queue, controller, drive));
    let closing = started.elapsed();
    println!("  closed in {closing:?}");
    assert!(closing < Duration::from_secs(20), "closing took {closing:?}");
}
