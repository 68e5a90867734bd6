//! Tests properties of VFIO: interfaces, interrupts, one owner.

use super::machine::{self, BOUND, TWO, bind};
use std::time::Duration;
use warpbell::memory::{IommuKind, Space};
use warpbell::nvme::vfio::{self, VfioApi, VfioConfig, VfioError};
use warpbell::nvme::{Controller, NvmeError};
use warpbell::wire::nvme::{cc, register};

fn config() -> VfioConfig {
    let api = if machine::vfio() == "group" { VfioApi::Group } else { VfioApi::Cdev };
    VfioConfig::new(TWO.parse().unwrap()).api(api)
}

#[test]
#[ignore = "needs the rig"]
fn completions_of_the_admin_queue_interrupt() {
    machine::inside();
    bind(TWO);
    let open = vfio::open(&config()).unwrap();
    let vectors = open.device.vectors().unwrap();
    let events = open.device.enable_interrupts(2).unwrap();
    // The admin completion queue belongs to vector 0.
    let controller = Controller::new(open.attachment).unwrap().enable().unwrap();
    assert!(events[0].wait(BOUND).unwrap() > 0);
    assert_eq!(events[1].wait(Duration::ZERO).unwrap(), 0);
    open.device.disable_interrupts().unwrap();
    let _ = events[0].take().unwrap();
    controller.namespaces().unwrap();
    assert_eq!(events[0].wait(Duration::from_millis(50)).unwrap(), 0);
    let text = open.device.enable_interrupts(vectors + 1).unwrap_err().to_string();
    assert!(text.contains(&format!("the device has {vectors}")), "{text}");
}

#[test]
#[ignore = "needs the rig"]
fn a_device_has_one_owner_and_what_is_asked_for_is_what_is_taken() {
    machine::inside();
    bind(TWO);
    let open = vfio::open(&config()).unwrap();
    assert_eq!(open.api, config().api);
    assert!(matches!(vfio::open(&config()), Err(VfioError::Busy { .. })));
    // From another process: the kernel refuses, and the error names the holder.
    let output = machine::warpbell(&["bench", "nvme", "--device", &machine::spec(TWO, 1), "--engine", "cpu"]);
    let said = machine::text(&output.stderr);
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    let map = open.attachment.dma.iommu().unwrap();
    assert_eq!(map.kind(), if machine::vfio() == "group" { IommuKind::Type1 } else { IommuKind::Iommufd });
    drop(open);
    // By default the driver uses the better interface that the kernel has.
    let auto = vfio::open(&config().api(VfioApi::Auto)).unwrap();
    assert_eq!(auto.api, config().api);
}

#[test]
#[ignore = "needs the rig"]
fn mappings_do_not_overlap_and_go_with_their_last_share() {
    machine::inside();
    bind(TWO);
    let open = vfio::open(&config()).unwrap();
    let (dma, space) = (&open.attachment.dma, Space::cpu());
    let mut held: Vec<_> = [1, 5000, 3 << 20, 4096].iter().map(|b| dma.allocate(&space, *b).unwrap()).collect();
    held.sort_by_key(|r| r.iova);
    assert!(held.windows(2).all(|w| w[0].iova + w[0].bytes as u64 <= w[1].iova));
    let map = dma.iommu().unwrap();
    let first = held[0].iova;
    drop(held);
    // The kernel would refuse to map an address range that is still mapped.
    let again = dma.allocate(&space, 3 << 20).unwrap();
    assert!(again.iova.is_multiple_of(map.page_bytes()) && first.is_multiple_of(map.page_bytes()));
    assert!(map.unmap(first + (1 << 30), 4096).is_err());
}

#[test]
#[ignore = "needs the rig"]
fn a_function_level_reset_disables_the_controller_and_the_next_owner_enables_it() {
    machine::inside();
    bind(TWO);
    let open = vfio::open(&config()).unwrap();
    let port = open.attachment.port.clone();
    let controller = Controller::new(open.attachment).unwrap().enable().unwrap();
    controller.check().unwrap();
    port.reset_function().unwrap();
    assert_eq!(port.read32(register::CC).unwrap() & cc::EN, 0);
    assert!(matches!(controller.check(), Err(NvmeError::NoLongerReady { .. })));
    assert_eq!(port.notice(), None);
    drop((controller, port, open.device));
    let open = vfio::open(&config()).unwrap();
    Controller::new(open.attachment).unwrap().enable().unwrap().namespaces().unwrap();
}
