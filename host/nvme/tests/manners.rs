//! Behaviour towards controllers that are unusual, half enabled or gone, and events that controllers report.

use super::fake::{CAP, Fake, Quirks};
use super::{enable, open, ready};
use crate::nvme::{Controller, HostQueue, HostQueueOptions, NvmeError, PciId, WriteCache};
use crate::wire::nvme::admin;
use crate::wire::nvme::log::{AsyncEvent, EventKind};
use std::time::{Duration, Instant};

/// A temperature event of the health log.
const TOO_WARM: u32 = 1 | 1 << 8 | 2 << 16;

#[test]
fn events_are_told_once_and_asked_for_again() {
    let (fake, controller) = ready(Quirks { identify: vec![(259, 3)], ..Quirks::default() });
    assert!(!fake.report(TOO_WARM), "nobody has asked");
    controller.watch_events().unwrap();
    assert_eq!(fake.waiting_requests(), 4);
    assert!(controller.events().unwrap().is_empty());
    assert!(fake.report(TOO_WARM) && fake.report(0));
    // A command in between receives the events and must not lose them.
    controller.namespace(1).unwrap();
    assert_eq!(controller.events().unwrap(), [AsyncEvent(TOO_WARM), AsyncEvent(0)]);
    assert_eq!(AsyncEvent(TOO_WARM).kind(), EventKind::Health);
    assert_eq!(fake.waiting_requests(), 4);
    assert!(controller.events().unwrap().is_empty());
    // A reset ends the event requests, and the driver submits them again.
    fake.report(TOO_WARM);
    controller.reset().unwrap();
    assert_eq!(fake.waiting_requests(), 4);
    fake.report(0);
    assert_eq!(controller.events().unwrap().len(), 1);
}

#[test]
fn a_controller_that_takes_fewer_requests_gets_no_more() {
    let quirks = Quirks { identify: vec![(259, 3)], event_requests: 2, ..Quirks::default() };
    let (fake, controller) = ready(quirks);
    controller.watch_events().unwrap();
    for _ in 0..5 {
        assert!(controller.events().unwrap().is_empty());
    }
    let asked = fake.admin_log().iter().filter(|o| **o == admin::ASYNC_EVENT_REQUEST).count();
    assert!((2..10).contains(&asked), "{asked}");
    assert!(fake.report(TOO_WARM));
    assert_eq!(controller.events().unwrap().len(), 1);
}

#[test]
fn a_device_that_reads_as_zeros_is_gone() {
    let (fake, controller) = ready(Quirks::default());
    let mut queue = HostQueue::create(&controller, HostQueueOptions { depth: 4, bytes_per_command: 512 }).unwrap();
    fake.with_quirks(|q| q.lose_io = true);
    fake.go_blank();
    let e = controller.check().unwrap_err();
    assert!(matches!(e, NvmeError::Gone { register: "VS", value: 0, .. }) && e.is_gone(), "{e}");
    assert!(controller.namespace(1).unwrap_err().is_gone());
    queue.set_deadline(Duration::from_millis(20));
    assert!(queue.recover().unwrap_err().is_gone());
    // On the first read, the device is not a controller.
    let (fake, attachment) = Fake::new(Quirks::default());
    fake.go_blank();
    assert!(matches!(Controller::new(attachment), Err(NvmeError::NotAController { .. })));
}

#[test]
fn entries_of_other_sizes_are_refused() {
    for (at, value, words) in [(512, 0x77, "128 bytes"), (513, 0x55, "32 bytes")] {
        let (fake, e) = enable(Quirks { identify: vec![(at, value)], ..Quirks::default() });
        let e = e.unwrap_err();
        assert!(matches!(e, NvmeError::EntrySizes { .. }) && e.to_string().contains(words), "{e}");
        assert!(!fake.is_enabled());
    }
    let apple = PciId { vendor: 0x106b, device: 0x2005 };
    let (fake, e) = open(Quirks { pci_id: Some(apple), ..Quirks::default() });
    assert!(matches!(e.unwrap_err(), NvmeError::EntrySizes { .. }));
    assert_eq!(fake.register_writes(), 0);
}

#[test]
fn controllers_without_namespaces_are_refused_by_kind() {
    for (kind, word) in [(2, "discovery"), (3, "administrative")] {
        let (_fake, e) = enable(Quirks { identify: vec![(111, kind)], ..Quirks::default() });
        let e = e.unwrap_err();
        assert!(matches!(e, NvmeError::NotIo { .. }) && e.to_string().contains(word), "{e}");
    }
}

#[test]
fn namespaces_are_tried_one_by_one_where_there_is_no_list() {
    // Identify reports four namespace identifiers; the fake has the first two.
    let quirks = || Quirks { identify: vec![(516, 4)], ..Quirks::default() };
    let (_fake, controller) = ready(Quirks { version: 0x1_0000, ..quirks() });
    assert_eq!(controller.namespaces().unwrap(), [1, 2]);
    let (_fake, controller) = ready(Quirks { pci_id: Some(PciId { vendor: 0x8086, device: 0x5845 }), ..quirks() });
    assert!(controller.quirks().no_namespace_list);
    assert_eq!(controller.namespaces().unwrap(), [1, 2]);
    // With a namespace list, the fake reports none.
    let (_fake, controller) = ready(quirks());
    assert!(controller.namespaces().unwrap().is_empty());
}

#[test]
fn a_quirk_delays_the_first_look_after_a_reset() {
    let (_fake, controller) = open(Quirks { left_enabled: true, ..Quirks::default() });
    let mut controller = controller.unwrap();
    let delay = Duration::from_millis(40);
    controller.set_quirks(crate::nvme::Quirks { delay_before_ready: delay, ..Default::default() });
    let started = Instant::now();
    let controller = controller.enable().map_err(|(_, e)| e).unwrap();
    assert!(started.elapsed() >= delay);
    assert!(controller.quirks().words()[0].contains("40ms"));
}

#[test]
fn a_predecessor_that_died_while_enabling_is_waited_for() {
    let (fake, controller) = open(Quirks { cap: CAP | 0xff << 24, ready_after: Some(20), ..Quirks::default() });
    fake.half_enabled();
    let controller = controller.unwrap();
    assert!(controller.is_enabled().unwrap());
    let controller = controller.enable().map_err(|(_, e)| e).unwrap();
    controller.check().unwrap();
    // A controller that does not become ready is stopped anyway, and the error says so.
    let (fake, controller) = open(Quirks { ready_after: None, ..Quirks::default() });
    fake.half_enabled();
    let (_, e) = controller.unwrap().enable().unwrap_err();
    assert!(e.to_string().contains("did not become ready"), "{e}");
    assert!(!fake.is_enabled());
}

#[test]
fn ready_timeouts_beyond_cap_count() {
    // CAP.TO of 0 means at least 500 ms. CRTO is 2 x 500 ms, in which the slow controller becomes ready.
    let crto = Quirks { cap: CAP | 1 << 59, crto: 2, ready_after: None, ..Quirks::default() };
    let (_fake, e) = enable(crto);
    let text = e.unwrap_err().to_string();
    assert!(text.contains("within 1s"), "{text}");
}

#[test]
fn optional_commands_are_used_only_where_they_are_offered() {
    let (fake, controller) = ready(Quirks::default());
    let ns = controller.namespace(1).unwrap();
    let mut queue = HostQueue::create(&controller, HostQueueOptions { depth: 4, bytes_per_command: 4096 }).unwrap();
    let e = queue.write_zeroes(&ns, 0..8, false).unwrap_err();
    assert!(matches!(e, NvmeError::Unsupported { bit: "ONCS bit 3 is clear", .. }), "{e}");
    let e = queue.deallocate(&ns, &[0..8, 9..10]).unwrap_err();
    assert!(e.to_string().contains("Dataset Management (ONCS bit 2 is clear)"), "{e}");
    assert_eq!(controller.write_cache().unwrap(), WriteCache::None);
    queue.flush(&ns).unwrap();
    drop(queue);
    drop(controller);
    assert!(!fake.is_enabled());
    let (_fake, controller) = ready(Quirks {
        identify: vec![(520, 0b1100)],
        pci_id: Some(PciId { vendor: 0x8086, device: 0xf1a5 }),
        ..Quirks::default()
    });
    let mut queue = HostQueue::create(&controller, HostQueueOptions { depth: 4, bytes_per_command: 4096 }).unwrap();
    let e = queue.write_zeroes(&ns, 0..8, false).unwrap_err();
    assert!(e.to_string().contains("a quirk of this controller"), "{e}");
    queue.deallocate(&ns, &[0..8, 9..10]).unwrap();
    assert!(matches!(queue.deallocate(&ns, &[0..8, 9..1001]), Err(NvmeError::Range { lba: 9, bytes: 507_904, .. })));
}
