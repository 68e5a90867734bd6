//! Life of a connection: loss, recovery, reset, Keep Alive, order of drops.

use super::*;
use crate::engine::Engine;
use crate::storage::Volume;
use crate::wire::nvme::status;

each_transport!(
    after_a_loss_the_association_is_established_again,
    a_target_that_starts_again_is_found_again,
    a_network_that_is_cut_and_comes_back_is_survived,
    a_command_fails_when_the_target_stays_away_and_a_reset_finds_it_again,
    keep_alive_keeps_an_idle_association,
    a_host_that_is_gone_leaves_no_association,
    drops_in_any_order_end,
    queues_are_deleted_and_created_and_shut_down
);

fn after_a_loss_the_association_is_established_again(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    let r = e.connect();
    let mut q = r.queue();
    let data = pattern(64 << 10, 1);
    for round in 1..=3 {
        q.write(&r.namespace, 0, &data).unwrap();
        e.target().close_connections();
        until("the association", || r.connection.counters().reconnects >= round);
        let mut back = vec![0; data.len()];
        q.read(&r.namespace, 0, &mut back).unwrap();
        assert!(back == data);
    }
    // Event requests and features survive, too.
    assert!(r.controller.health().is_ok());
}

fn a_target_that_starts_again_is_found_again(transport: TargetTransport) {
    let mut e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    let r = e.connect();
    let mut q = r.queue();
    q.set_recovery(RecoveryPolicy::requeue());
    let data = pattern(4096, 2);
    q.write(&r.namespace, 8, &data).unwrap();
    e.restart();
    let mut back = vec![0; data.len()];
    q.read(&r.namespace, 8, &mut back).unwrap();
    assert!(back == data);
    // Queues work a moment before the association is counted.
    until("the association", || r.connection.counters().losses == r.connection.counters().reconnects);
}

fn a_network_that_is_cut_and_comes_back_is_survived(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    let r = Remote::new(&e.config().keep_alive(Duration::from_secs(1)).connect_timeout(Duration::from_secs(2)));
    let mut q = r.queue();
    q.set_recovery(RecoveryPolicy { attempts: 100, ..RecoveryPolicy::requeue() });
    let data = pattern(4096, 3);
    q.write(&r.namespace, 0, &data).unwrap();
    e.target().be_silent(Duration::from_secs(3));
    let mut back = vec![0; data.len()];
    q.read(&r.namespace, 0, &mut back).unwrap();
    assert!(back == data);
    assert!(r.connection.counters().losses > 0);
}

fn a_command_fails_when_the_target_stays_away_and_a_reset_finds_it_again(transport: TargetTransport) {
    let mut e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    let r = Remote::new(&e.config().controller_loss(Some(Duration::from_millis(200))));
    let mut q = r.queue();
    let device = e.device.controller().clone();
    let address = e.target().address();
    e.target = None;
    until("the end of all attempts", || r.controller.check().is_err());
    let told = r.controller.check().unwrap_err().to_string();
    assert!(told.contains("was lost") && told.contains("not established again"), "{told}");
    let error = q.read(&r.namespace, 0, &mut [0; 512]).unwrap_err();
    match status_of(&error) {
        Some(s) => assert_eq!(s, status::HOST_PATHING_ERROR, "{error}"),
        None => assert!(error.to_string().contains("was lost"), "{error}"),
    }
    assert!(r.controller.reset().is_err(), "nobody listens");
    e.target = Some(Target::start(&device, TargetConfig::new(NQN).transport(transport).listen(address)).unwrap());
    r.controller.reset().unwrap();
    q.read(&r.namespace, 0, &mut [0; 512]).unwrap();
}

fn keep_alive_keeps_an_idle_association(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    let r = Remote::new(&e.config().keep_alive(Duration::from_secs(2)));
    until("three Keep Alives", || r.connection.counters().keep_alives >= 3);
    assert_eq!((r.connection.counters().losses, e.target().hosts()), (0, 1));
}

fn a_host_that_is_gone_leaves_no_association(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    let r = e.connect();
    let q = r.queue();
    assert_eq!(e.target().hosts(), 1);
    drop(r);
    assert_eq!(e.target().hosts(), 1, "the queue keeps the controller");
    drop(q);
    until("no host", || e.target().hosts() == 0);
}

fn drops_in_any_order_end(transport: TargetTransport) {
    for target_first in [true, false] {
        let mut e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
        let drive = Drive::attach(connect(&e.config()).unwrap().attachment(), None).unwrap();
        let volume = Volume::on(&Engine::cpu().unwrap(), [drive]).queues(2).depth(8).build().unwrap();
        if target_first {
            e.target = None;
        }
        drop(volume);
    }
}

fn queues_are_deleted_and_created_and_shut_down(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    let r = e.connect();
    for _ in 0..3 {
        let queues: Vec<_> = (0..4).map(|_| r.queue()).collect();
        assert!(HostQueue::create(&r.controller, HostQueueOptions::default()).is_err(), "four were granted");
        drop(queues);
    }
    r.controller.reset().unwrap();
    r.queue().read(&r.namespace, 0, &mut [0; 512]).unwrap();
    let Remote { controller, .. } = r;
    let controller = Arc::into_inner(controller).unwrap();
    let disabled = controller.shutdown().unwrap();
    drop(disabled);
    until("no host", || e.target().hosts() == 0);
}
