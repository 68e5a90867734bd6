//! Two ports of one subsystem: loss of a port, access states (ANA), and the choice between the ports.

use super::*;
use crate::memory::{Place, Space};
use crate::remedy::Remedies;
use crate::wire::nvme::ana::AccessState;
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

each_transport!(
    transfers_go_on_by_the_other_port_when_one_is_lost,
    a_port_that_returns_is_used_after_the_loss_of_the_other,
    a_port_whose_network_is_cut_is_left_after_keep_alive,
    a_port_that_loses_the_namespace_is_left_at_once,
    the_status_of_a_command_ends_the_use_of_its_port,
    an_optimized_port_is_preferred_and_a_slower_one_is_not_left,
    commands_wait_while_no_port_is_accessible,
    commands_fail_when_both_ports_stay_away,
    memory_is_unmapped_while_a_port_does_not_answer,
    a_namespace_that_every_port_has_lost_for_good_fails_at_once,
    states_and_closed_ports_are_named_when_a_device_is_opened,
    two_subsystems_of_one_name_are_not_mixed,
    ports_without_states_are_changed_at_a_loss,
    states_that_cannot_be_read_do_not_count,
    a_check_tells_the_state_of_each_port,
    the_driver_sees_changes_too
);

const MEMORY: &str = "soft:mem:1M,threads=1";

fn exported(transport: TargetTransport) -> Exported {
    Exported::with_two_ports(transport, MEMORY, TargetFaults::default())
}

impl Remote {
    /// Returns a queue that repeats commands which a change of the port has ended.
    fn patient_queue(&self) -> HostQueue<'static> {
        let mut q = self.queue();
        q.set_recovery(RecoveryPolicy { attempts: 100, ..RecoveryPolicy::requeue() });
        q
    }

    fn uses(&self, port: &str) {
        until(&format!("the association by {port}"), || {
            self.connection.port() == port && self.connection.counters().losses == self.connection.counters().reconnects
        });
    }

    fn reads(&self, q: &mut HostQueue<'static>, expected: &[u8]) {
        let mut back = vec![0; expected.len()];
        q.read(&self.namespace, 0, &mut back).unwrap();
        assert!(back == expected, "other data by {}", self.connection.port());
    }
}

fn transfers_go_on_by_the_other_port_when_one_is_lost(transport: TargetTransport) {
    let e = exported(transport);
    let r = e.connect();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut q = r.patient_queue();
            while !stop.load(Ordering::Relaxed) {
                let data = pattern(64 << 10, rounds.fetch_add(1, Ordering::Relaxed) as usize);
                q.write(&r.namespace, 0, &data).unwrap();
                r.reads(&mut q, &data);
            }
        });
        for change in 0..4 {
            let lost = change % 2;
            let before = rounds.load(Ordering::Relaxed);
            until("transfers", || rounds.load(Ordering::Relaxed) > before + 2);
            e.target().close_port(lost);
            r.uses(&e.port(1 - lost));
            e.target().open_port(lost);
        }
        let before = rounds.load(Ordering::Relaxed);
        until("transfers", || rounds.load(Ordering::Relaxed) > before + 2);
        stop.store(true, Ordering::Relaxed);
    });
    let c = r.connection.counters();
    assert!(c.port_changes >= 4 && c.losses == c.reconnects, "{c:?}");
}

fn a_port_that_returns_is_used_after_the_loss_of_the_other(transport: TargetTransport) {
    let e = exported(transport);
    let r = e.connect();
    let mut q = r.patient_queue();
    let data = pattern(4096, 1);
    q.write(&r.namespace, 0, &data).unwrap();
    e.target().close_port(0);
    r.uses(&e.port(1));
    // The first port is away, so the second one is the only one, and is taken again.
    e.target().close_connections();
    until("the association", || r.connection.counters().reconnects == 2);
    assert_eq!(r.connection.port(), e.port(1));
    r.reads(&mut q, &data);
    e.target().open_port(0);
    e.target().close_port(1);
    r.uses(&e.port(0));
    r.reads(&mut q, &data);
}

fn a_port_whose_network_is_cut_is_left_after_keep_alive(transport: TargetTransport) {
    let e = exported(transport);
    let r = Remote::new(&e.config().keep_alive(Duration::from_secs(1)).connect_timeout(Duration::from_secs(2)));
    let mut q = r.patient_queue();
    let data = pattern(4096, 7);
    q.write(&r.namespace, 0, &data).unwrap();
    e.target().cut_port(0, GENEROUS);
    r.reads(&mut q, &data);
    r.uses(&e.port(1));
    assert!(r.connection.counters().port_changes > 0);
    let told = r.connection.last_loss().unwrap();
    assert!(told.contains("no reply to Keep Alive"), "{told}");
}

fn a_port_that_loses_the_namespace_is_left_at_once(transport: TargetTransport) {
    for state in [AccessState::Inaccessible, AccessState::PersistentLoss, AccessState::Change] {
        let e = exported(transport);
        let r = e.connect();
        let mut q = r.patient_queue();
        let data = pattern(4096, 2);
        q.write(&r.namespace, 0, &data).unwrap();
        // No command is in flight: the host learns of the change by an event alone.
        e.target().set_access(0, state);
        r.uses(&e.port(1));
        let told = r.connection.last_loss().unwrap();
        assert!(told.contains(&e.port(0)) && told.contains(&format!("ANA group 1 is {state}")), "{told}");
        r.reads(&mut q, &data);
        // Two changes of which the host may see the second alone.
        e.target().set_access(0, AccessState::Optimized);
        e.target().set_access(1, state);
        r.uses(&e.port(0));
        r.reads(&mut q, &data);
    }
}

fn the_status_of_a_command_ends_the_use_of_its_port(transport: TargetTransport) {
    let faults = TargetFaults { ignore_access_changes: true, ..TargetFaults::default() };
    for state in [AccessState::Inaccessible, AccessState::PersistentLoss, AccessState::Change] {
        let e = Exported::with_two_ports(transport, MEMORY, faults.clone());
        let r = e.connect();
        let mut q = r.queue();
        e.target().set_access(0, state);
        // Without repetition, the command fails as the target says.
        let error = q.read(&r.namespace, 0, &mut [0; 512]).unwrap_err();
        assert_eq!(status_of(&error), state.status(), "{error}");
        r.uses(&e.port(1));
        let told = r.connection.last_loss().unwrap();
        assert!(told.contains("asymmetric access"), "{told}");
        e.target().set_access(0, AccessState::Optimized);
        e.target().set_access(1, state);
        r.reads(&mut r.patient_queue(), &[0; 4096]);
        r.uses(&e.port(0));
    }
}

fn an_optimized_port_is_preferred_and_a_slower_one_is_not_left(transport: TargetTransport) {
    let e = exported(transport);
    e.target().set_access(0, AccessState::NonOptimized);
    let r = e.connect();
    assert_eq!(r.connection.port(), e.port(1), "the second port is optimized");
    // It becomes as slow as the other. A command shows that the event was processed before.
    e.target().set_access(1, AccessState::NonOptimized);
    let mut q = r.patient_queue();
    r.reads(&mut q, &[0; 4096]);
    e.target().set_access(1, AccessState::Inaccessible);
    r.uses(&e.port(0));
    r.reads(&mut q, &[0; 4096]);
    // Both are slow: the first one is taken.
    e.target().set_access(1, AccessState::NonOptimized);
    let other = e.connect();
    assert_eq!(other.connection.port(), e.port(0));
    assert_eq!(r.connection.counters().losses, 1);
}

fn commands_wait_while_no_port_is_accessible(transport: TargetTransport) {
    let e = exported(transport);
    let r = e.connect();
    let mut q = r.patient_queue();
    q.write(&r.namespace, 0, &pattern(4096, 3)).unwrap();
    for (first, second) in
        [(AccessState::Inaccessible, AccessState::PersistentLoss), (AccessState::Change, AccessState::Inaccessible)]
    {
        e.target().set_access(0, first);
        e.target().set_access(1, second);
        let losses = r.connection.counters().losses;
        std::thread::scope(|s| {
            let read = s.spawn(|| r.reads(&mut q, &pattern(4096, 3)));
            until("the loss", || r.connection.counters().losses > r.connection.counters().reconnects);
            std::thread::sleep(Duration::from_millis(100));
            assert!(!read.is_finished(), "no port is accessible");
            e.target().set_access(1, AccessState::Optimized);
            read.join().unwrap();
        });
        assert!(r.connection.counters().losses > losses);
        e.target().set_access(0, AccessState::Optimized);
    }
    r.controller.check().unwrap();
}

fn commands_fail_when_both_ports_stay_away(transport: TargetTransport) {
    let e = exported(transport);
    let r = Remote::new(&e.config().controller_loss(Some(Duration::from_millis(200))));
    let mut q = r.queue();
    e.target().close_port(1);
    e.target().close_port(0);
    until("the end of all attempts", || r.controller.check().is_err());
    let told = r.controller.check().unwrap_err().to_string();
    assert!(told.contains("no port of") && told.contains(&e.port(0)) && told.contains(&e.port(1)), "{told}");
    assert!(q.read(&r.namespace, 0, &mut [0; 512]).is_err());
    assert!(r.controller.reset().is_err(), "nobody listens");
    e.target().open_port(1);
    until("a reset that finds the second port", || r.controller.reset().is_ok());
    assert_eq!(r.connection.port(), e.port(1));
    r.reads(&mut q, &[0; 512]);
}

fn a_namespace_that_every_port_has_lost_for_good_fails_at_once(transport: TargetTransport) {
    let e = exported(transport);
    let r = Remote::new(&e.config().controller_loss(None));
    e.target().set_access(1, AccessState::PersistentLoss);
    e.target().set_access(0, AccessState::PersistentLoss);
    until("the failure", || r.controller.check().is_err());
    let told = r.controller.check().unwrap_err().to_string();
    assert!(told.contains("every port has lost the namespace"), "{told}");
}

fn states_and_closed_ports_are_named_when_a_device_is_opened(transport: TargetTransport) {
    let e = exported(transport);
    let alone = FabricsConfig { more_ports: Vec::new(), ..e.config() };
    for state in [AccessState::Inaccessible, AccessState::PersistentLoss, AccessState::Change] {
        e.target().set_access(0, state);
        let error = connect(&alone).unwrap_err();
        match &error {
            FabricsError::Inaccessible { namespace: 1, group: 1, state: told, .. } => assert_eq!(*told, state),
            other => panic!("{other}"),
        }
        assert!(error.to_string().contains(&e.port(0)) && !error.remedies().is_empty(), "{error}");
        assert_eq!(connect(&e.config()).unwrap().port(), e.port(1));
    }
    e.target().close_port(1);
    until("the second port is closed", || connect(&e.config()).is_err());
    let error = connect(&e.config()).unwrap_err();
    match &error {
        FabricsError::NoPort { causes, .. } => {
            assert!(matches!(causes[0], FabricsError::Inaccessible { .. }), "{error}");
            assert!(matches!(causes[1], FabricsError::Unreachable { .. }), "{error}");
        }
        other => panic!("{other}"),
    }
    assert_eq!(error.remedies().len(), 2);
    let r = connect(&alone).map(|c| c.port());
    assert!(r.is_err(), "{r:?}");
    // A namespace that the log page does not list leaves the choice to the order of the ports.
    let other = e.config().namespace(Some(9));
    assert_eq!(connect(&other).unwrap().port(), e.port(0));
}

fn memory_is_unmapped_while_a_port_does_not_answer(transport: TargetTransport) {
    let e = Exported::new(transport, MEMORY, |c| c);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let more = vec![PortAddress { host: "127.0.0.1".to_owned(), port: silent.local_addr().unwrap().port() }];
    // Less than the time after which an unmapping gives up.
    let r = Remote::new(&e.config().more_ports(more).connect_timeout(Duration::from_millis(4500)));
    let region = Space::cpu().allocate(Place::Host, 4096).unwrap();
    let mapped = r.connection.attachment().dma.map(&region).unwrap();
    e.target().close_port(0);
    let mut attempt = silent.accept().unwrap().0;
    drop(mapped);
    attempt.set_nonblocking(true).unwrap();
    let mut request = [0; 4096];
    let waits = loop {
        match attempt.read(&mut request) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(e) => break e.kind() == ErrorKind::WouldBlock,
        }
    };
    assert!(waits, "the unmapping took as long as the attempt to connect");
}

fn two_subsystems_of_one_name_are_not_mixed(transport: TargetTransport) {
    let exported = |device| Exported::new(transport, device, |c| c);
    // The serial number of memory follows from its size.
    let (e, other) = (exported(MEMORY), exported("soft:mem:2M,threads=1"));
    let address = other.target().address();
    let more = vec![PortAddress { host: address.ip().to_string(), port: address.port() }];
    let r = Remote::new(&e.config().more_ports(more).controller_loss(Some(Duration::from_millis(200))));
    e.target().close_port(0);
    until("the end of all attempts", || r.controller.check().is_err());
    let told = r.controller.check().unwrap_err().to_string();
    assert!(told.contains("two subsystems of one name"), "{told}");
    assert_eq!(other.target().commands(), 0);
}

fn ports_without_states_are_changed_at_a_loss(transport: TargetTransport) {
    let e = Exported::new(transport, MEMORY, |c| c);
    // Another target exports the same device: the same model and serial number.
    let other = Target::start(e.device.controller(), TargetConfig::new(NQN).transport(transport)).unwrap();
    let address = other.address();
    let more = vec![PortAddress { host: address.ip().to_string(), port: address.port() }];
    let r = Remote::new(&e.config().more_ports(more));
    let mut q = r.patient_queue();
    let data = pattern(4096, 8);
    q.write(&r.namespace, 0, &data).unwrap();
    e.target().close_port(0);
    r.uses(&address.to_string());
    r.reads(&mut q, &data);
    e.target().open_port(0);
    other.close_port(0);
    r.uses(&e.port(0));
    r.reads(&mut q, &data);
}

fn states_that_cannot_be_read_do_not_count(transport: TargetTransport) {
    let faults = TargetFaults { wrong_access_log: true, ..TargetFaults::default() };
    let e = Exported::with_two_ports(transport, MEMORY, faults);
    e.target().set_access(1, AccessState::Inaccessible);
    let r = e.connect();
    assert_eq!(r.connection.port(), e.port(0));
    let mut q = r.patient_queue();
    r.reads(&mut q, &[0; 4096]);
    e.target().close_port(0);
    // The second port seems usable, and its commands fail with its state.
    r.uses(&e.port(1));
    let error = r.queue().read(&r.namespace, 0, &mut [0; 512]).unwrap_err();
    assert_eq!(status_of(&error), AccessState::Inaccessible.status(), "{error}");
}

fn a_check_tells_the_state_of_each_port(transport: TargetTransport) {
    let e = exported(transport);
    e.target().set_access(0, AccessState::Change);
    let report = check(&e.config()).unwrap();
    let told: Vec<_> = report.ports.iter().map(|p| (p.address.clone(), p.access, p.failure.is_some())).collect();
    let states = [Some(AccessState::Change), Some(AccessState::Optimized)];
    assert_eq!(told, [(e.port(0), states[0], true), (e.port(1), states[1], false)]);
    assert_eq!(report.namespaces, [1]);
    e.target().close_port(1);
    until("the second port is closed", || check(&e.config()).is_err());
    e.target().set_access(0, AccessState::NonOptimized);
    let report = check(&e.config()).unwrap();
    assert_eq!(report.ports[0].access, Some(AccessState::NonOptimized));
    assert!(report.ports[1].failure.as_ref().unwrap().contains(&e.port(1)), "{report:?}");
    // One port: no states.
    let single = Exported::new(transport, MEMORY, |c| c);
    let report = check(&single.config()).unwrap();
    assert_eq!((report.ports.len(), report.ports[0].access), (1, None));
}

fn the_driver_sees_changes_too(transport: TargetTransport) {
    let e = exported(transport);
    let r = e.connect();
    r.controller.watch_events().unwrap();
    for round in 1..=3 {
        e.target().set_access(0, AccessState::NonOptimized);
        let mut seen = Vec::new();
        until("the event", || {
            seen.extend(r.controller.events().unwrap());
            !seen.is_empty()
        });
        assert_eq!(seen[0].name(), "asymmetric namespace access changed", "round {round}");
    }
    // The requests survive the change of the port.
    e.target().set_access(0, AccessState::Inaccessible);
    r.uses(&e.port(1));
    let _ = r.controller.events().unwrap();
    e.target().set_access(1, AccessState::NonOptimized);
    until("an event by the other port", || !r.controller.events().unwrap().is_empty());
    assert_eq!(r.connection.counters().losses, 1);
}

#[test]
fn both_ports_are_discovered() {
    let e = exported(TargetTransport::Tcp);
    let found = |e: &Exported| fabrics::discover(&e.port(0), |c| c).unwrap();
    let records = found(&e);
    let ports: Vec<_> = records.iter().map(|r| (r.port, format!("{}:{}", r.address, r.service))).collect();
    assert_eq!(ports, [(1, e.port(0)), (2, e.port(1))]);
    e.target().close_port(1);
    assert_eq!(found(&e).len(), 1);
}
