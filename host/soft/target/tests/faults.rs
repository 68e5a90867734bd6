//! Each fault ends in the right data, or in an error that names it, within its deadline.

use super::*;
use crate::remedy::Remedies;
use crate::wire::nvme::tcp::Digests;
use crate::wire::nvme::{fabrics as wire, status};

each_transport!(
    violations_of_the_protocol_end_the_connection_with_their_cause,
    a_target_that_completes_nothing_runs_into_the_deadline,
    controller_fatal_status_is_reported_and_a_reset_ends_it,
    keep_alive_without_response_ends_the_association,
    io_queues_that_are_refused_are_errors,
    refusals_name_their_cause_and_a_remedy
);

fn refused(config: &FabricsConfig) -> FabricsError {
    check(config).unwrap_err()
}

fn refusals_name_their_cause_and_a_remedy(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c.hosts(Some(vec!["nqn.a".into()])).digests(false));
    let told = |e: &FabricsError, word: &str| {
        let remedies: Vec<String> = e.remedies().iter().map(ToString::to_string).collect();
        let text = format!("{e}; {}", remedies.join(", "));
        assert!(text.contains(word), "{text}");
        assert!(!remedies.is_empty() || matches!(e, FabricsError::Unsupported { .. }), "{text}");
    };
    told(&refused(&e.config().host_nqn(Some("nqn.b".into()))), "connect invalid host");
    let mut other = e.config();
    other.subsystem = "nqn.other".into();
    told(&refused(&other), "(name of the subsystem)");
    let known = e.config().host_nqn(Some("nqn.a".into()));
    if transport == TargetTransport::Tcp {
        told(&refused(&known.clone().digests(Digests { header: true, data: false })), "header digest");
    }
    check(&known).unwrap();
    let auth = Exported::faulty(transport, TargetFaults { demand_authentication: true, ..TargetFaults::default() });
    told(&refused(&auth.config()), "DH-HMAC-CHAP");
    let auth = wire::status::AUTHENTICATION_REQUIRED;
    let auth = Exported::faulty(transport, TargetFaults { refuse: Some(auth), ..TargetFaults::default() });
    told(&refused(&auth.config()), "dhchap_key");
    let mut nowhere = e.config();
    drop(e);
    told(&refused(&nowhere), "4420");
    nowhere.host = "no.such.host.invalid".into();
    assert!(matches!(refused(&nowhere), FabricsError::Resolve { .. } | FabricsError::Unreachable { .. }));
}

/// Runs reads until one fails. The connection is not established again.
fn first_error(transport: TargetTransport, faults: TargetFaults, digests: u8) -> (Remote, NvmeError) {
    let e = Exported::faulty(transport, faults);
    let r = Remote::new(&e.config().digests(Digests::from_bits(digests)).controller_loss(Some(Duration::ZERO)));
    let mut q = r.queue();
    for _ in 0..20 {
        let mut back = vec![0xee; 4096];
        match q.read(&r.namespace, 0, &mut back) {
            Ok(()) => assert!(back.iter().all(|b| *b == 0), "wrong data"),
            Err(error) => {
                drop(q);
                return (r, error);
            }
        }
    }
    panic!("no error");
}

fn violations_of_the_protocol_end_the_connection_with_their_cause(transport: TargetTransport) {
    let faults = TargetFaults::default();
    for (faults, digests, word) in [
        (TargetFaults { unknown_cid: Some(3), ..faults.clone() }, 0, "command identifier"),
        (TargetFaults { repeat_response: Some(3), ..faults.clone() }, 0, "completed before"),
        (TargetFaults { wrong_head: Some(3), ..faults.clone() }, 0, "SQHD"),
        (TargetFaults { short_response: Some(3), ..faults.clone() }, 0, "of 8 bytes"),
        (TargetFaults { wrong_header_digest: Some(3), ..faults.clone() }, 1, "header digest"),
        (TargetFaults { close_at: Some(3), ..faults }, 0, "lost"),
    ] {
        if (digests != 0 && transport != TargetTransport::Tcp)
            || (faults.short_response.is_some() && transport == TargetTransport::Tcp)
        {
            continue;
        }
        let (r, error) = first_error(transport, faults.clone(), digests);
        match status_of(&error) {
            Some(s) => assert_eq!(s, status::HOST_PATHING_ERROR, "{faults:?}: {error}"),
            // The read completed before the loss was noticed, and the next one saw the failed controller.
            None => assert!(error.to_string().contains(word), "{faults:?}: {error}"),
        }
        until("the cause is told", || r.controller.check().is_err());
        let told = r.controller.check().unwrap_err().to_string();
        assert!(told.contains(word), "{faults:?}: {told}");
    }
}

#[test]
fn damaged_and_short_data_fails_its_command_alone() {
    let faults = TargetFaults::default();
    for (faults, digests, expected) in [
        (TargetFaults { short_data: Some(3), ..faults.clone() }, 0, status::DATA_TRANSFER_ERROR),
        (TargetFaults { wrong_data_digest: Some(3), ..faults }, 2, status::TRANSIENT_TRANSPORT_ERROR),
    ] {
        let e = Exported::faulty(TargetTransport::Tcp, faults);
        let r = Remote::new(&e.config().digests(Digests::from_bits(digests)));
        let mut q = r.queue();
        for i in 1..=9 {
            let done = q.read(&r.namespace, 0, &mut [0; 4096]);
            match i % 3 {
                0 => assert_eq!(status_of(&done.unwrap_err()), Some(expected)),
                _ => done.unwrap(),
            }
        }
        assert_eq!(r.connection.counters().losses, 0);
    }
}

fn a_target_that_completes_nothing_runs_into_the_deadline(transport: TargetTransport) {
    let e = Exported::faulty(transport, TargetFaults { ignore_io: true, ..TargetFaults::default() });
    let r = e.connect();
    let mut q = r.queue();
    q.set_deadline(SHORT);
    q.set_recovery(RecoveryPolicy { abort_grace: Duration::from_millis(20), ..RecoveryPolicy::default() });
    let error = q.read(&r.namespace, 0, &mut [0; 512]).unwrap_err();
    assert!(matches!(error, NvmeError::TimedOut { .. }), "{error}");
    let report = q.recover().unwrap();
    assert!(report.last_action().is_some(), "{report}");
    r.controller.check().unwrap();
}

fn controller_fatal_status_is_reported_and_a_reset_ends_it(transport: TargetTransport) {
    let e = Exported::faulty(transport, TargetFaults { fatal_at: Some(2), ..TargetFaults::default() });
    let r = Remote::new(&e.config().keep_alive(Duration::from_secs(4)));
    let mut q = r.queue();
    q.read(&r.namespace, 0, &mut [0; 512]).unwrap();
    let error = q.read(&r.namespace, 0, &mut [0; 512]).unwrap_err();
    match &error {
        NvmeError::Fatal { .. } => {}
        other => assert_eq!(status_of(other), Some(status::HOST_PATHING_ERROR), "{other}"),
    }
    until("the fatal status", || matches!(r.controller.check(), Err(NvmeError::Fatal { .. })));
    r.controller.reset().unwrap();
    r.controller.check().unwrap();
}

fn keep_alive_without_response_ends_the_association(transport: TargetTransport) {
    let e = Exported::faulty(transport, TargetFaults { ignore_keep_alive: true, ..TargetFaults::default() });
    let r = Remote::new(&e.config().keep_alive(SHORT).controller_loss(Some(Duration::ZERO)));
    until("the loss", || r.controller.check().is_err());
    let told = r.controller.check().unwrap_err().to_string();
    assert!(told.contains("no reply to Keep Alive"), "{told}");
    assert!(e.target().keep_alives() > 0);
}

fn io_queues_that_are_refused_are_errors(transport: TargetTransport) {
    let e = Exported::faulty(transport, TargetFaults { close_io_connect: true, ..TargetFaults::default() });
    let r = Remote::new(&e.config().controller_loss(Some(Duration::ZERO)));
    let error = HostQueue::create(&r.controller, HostQueueOptions::default()).unwrap_err();
    assert!(status_of(&error) == Some(status::HOST_PATHING_ERROR), "{error}");
    let e = Exported::new(transport, "soft:mem:1M,queues=1,threads=1", |c| c);
    let r = Remote::new(&e.config());
    assert_eq!(r.controller.granted_queues(), 1);
}
