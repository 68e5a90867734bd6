//! Probes with the controller as the DMA engine, and the errors for controllers without a path to a GPU.

use super::fake::{CAP, Quirks};
use super::{options, ready};
use crate::memory::mapping::{BackendChoice, MappingBackend, Probe};
use crate::memory::{DmaRegion, Place, Region, Space};
use crate::nvme::{DoorbellChoice, NvmeError, QueueOptions};
use crate::wire::nvme::admin;

const PAGE: usize = 4096;

fn region(pages: usize) -> Region {
    Space::cpu().allocate(Place::Host, pages * PAGE).unwrap()
}

/// Creates a mapping with the fake's device addresses, which are process addresses. `astray` shifts it to wrong memory.
fn mapping(region: &Region, astray: i64) -> DmaRegion {
    let iova = region.address().wrapping_add_signed(astray);
    DmaRegion {
        region: region.clone(),
        offset: 0,
        bytes: region.len() - 4 * PAGE,
        iova,
        remote: None,
        guard: region.owner(),
    }
}

#[test]
fn what_the_controller_writes_is_read_back() {
    let (_fake, controller) = ready(Quirks::default());
    let region = region(12);
    let probe = controller.read_back();
    for offset in [0, 3 * PAGE, 7 * PAGE] {
        probe.device_writes(&mapping(&region, 0), offset).unwrap();
        assert_eq!(region.get_slice::<u8>(offset + 4, 4).unwrap(), *b"FAKE");
    }
}

#[test]
fn addresses_that_lead_elsewhere_are_seen() {
    let (_fake, controller) = ready(Quirks::default());
    let region = region(12);
    let probe = controller.read_back();
    for (astray, words) in
        [(PAGE as i64, "no data arrived"), (-(PAGE as i64), "no data arrived"), (64, "other data arrived")]
    {
        let e = probe.device_writes(&mapping(&region, astray), 4 * PAGE).unwrap_err();
        assert!(e.reason.contains(words) && !e.still_in_use, "{}", e.reason);
    }
}

#[test]
fn a_command_is_fetched_from_the_memory() {
    let (fake, controller) = ready(Quirks::default());
    let region = region(12);
    let probe = controller.read_back();
    probe.device_reads(&mapping(&region, 0), PAGE).unwrap();
    let e = probe.device_reads(&mapping(&region, PAGE as i64), 2 * PAGE).unwrap_err();
    assert!(e.reason.contains("not 0x5742") && !e.still_in_use, "{}", e.reason);
    assert_eq!((fake.io_queues(), controller.free_queues()), ((0, 0), 4));
}

#[test]
fn a_controller_that_does_not_answer_may_still_write() {
    let (fake, controller) = ready(Quirks::default());
    let region = region(12);
    let probe = controller.read_back();
    // Its queue can be deleted. After that the controller does not use the memory any more.
    fake.with_quirks(|q| q.lose_io = true);
    let e = probe.device_reads(&mapping(&region, 0), 0).unwrap_err();
    assert!(e.reason.contains("no completion") && !e.still_in_use, "{}", e.reason);
    fake.with_quirks(|q| q.lose = vec![admin::DELETE_SQ]);
    let e = probe.device_reads(&mapping(&region, 0), 0).unwrap_err();
    assert!(e.still_in_use, "{}", e.reason);
    assert_eq!(controller.free_queues(), 3);
}

#[test]
fn host_memory_needs_no_mapping() {
    let (_fake, controller) = ready(Quirks::default());
    let region = region(1);
    assert_eq!(controller.map_memory(&region).unwrap().iova, region.address());
    assert!(controller.mapping().attempts.is_empty());
}

#[test]
fn one_mapping_for_one_controller() {
    let (_fake, controller) = ready(Quirks::default());
    controller.set_mapping(BackendChoice::Only(MappingBackend::Gdrdrv)).unwrap();
    controller.set_mapping(BackendChoice::Only(MappingBackend::Gdrdrv)).unwrap();
    controller.set_mapping(BackendChoice::Auto).unwrap();
    let text = controller.set_mapping(BackendChoice::Only(MappingBackend::Libnvm)).unwrap_err().to_string();
    assert!(text.contains("already gdrdrv") && text.contains("libnvm"), "{text}");
}

#[test]
fn kernels_ring_where_they_were_asked_to_or_it_is_an_error() {
    let (fake, controller) = ready(Quirks::default());
    let asked = QueueOptions { doorbell: DoorbellChoice::Gpu, ..options(1, 8) };
    let e = controller.create_queues(&Space::cpu(), asked).unwrap_err();
    assert!(matches!(&e, NvmeError::NoKernelDoorbell { reason, .. } if reason.contains("no doorbells")), "{e}");
    assert_eq!(fake.io_queues(), (0, 0));
    let asked = QueueOptions { doorbell: DoorbellChoice::Cpu, ..options(1, 8) };
    let set = controller.create_queues(&Space::cpu(), asked).unwrap();
    assert_eq!((set.doorbell(), set.doorbell_note()), (crate::nvme::Doorbell::Cpu, None));
}

#[test]
fn a_window_holds_the_doorbells_of_all_queues_and_no_more_pages() {
    for (stride, bytes) in [(0, PAGE), (4, PAGE), (10, 10 * PAGE)] {
        let (_fake, controller) = ready(Quirks { cap: CAP | stride << 32, queues: 4, ..Quirks::default() });
        assert_eq!(controller.doorbell_bytes(), bytes, "stride {stride}");
    }
}
