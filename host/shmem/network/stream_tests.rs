//! Tests of streams that put, get and signal over adapters.

use super::tests::each;
use crate::engine::{Engine, Outcome, RunError, abi};
use crate::memory::Place;
use crate::rdma::{Adapter, DeviceChoice, RecordChoice, stand_in};
use crate::shmem::calls::stream_calls::tests::rounds;
use crate::shmem::calls::{LocalSlice, StreamCalls};
use crate::shmem::{ShmemError, World, WorldBuilder};
use crate::soft::nic::{SoftNic, SoftNicConfig};
use crate::wire::mlx5::Syndrome;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn nic(options: &str) -> Box<dyn Adapter> {
    Box::new(SoftNic::start(SoftNicConfig::new([9; 32]).options(options).unwrap()).unwrap())
}

/// Builds a world whose stream's queue pair to PE `n` has number `PES + n` for fault plans, in a world of `PES` PEs.
fn build(builder: WorldBuilder, options: &str) -> World {
    builder.adapter(nic(options)).queues_per_peer(1).build().unwrap()
}

#[test]
fn rounds_over_adapters_go_many_times_through_the_rings() {
    // A round makes up to four requests to one PE: several laps.
    let blocks = |builder: WorldBuilder| builder.queue_blocks(16).heap_bytes(4 << 20);
    for options in ["", "sockets", "sockets,resend=20ms,fault=drop@every:7,fault=drop-answer@every:11"] {
        each(3, |_, builder| rounds(&blocks(builder).adapter(nic(options)).build().unwrap(), 16));
    }
    each(1, |_, builder| rounds(&blocks(builder).adapter(nic("")).build().unwrap(), 3));
}

#[test]
fn rounds_over_strict_firmware_with_and_without_doorbell_records() {
    for record in [RecordChoice::On, RecordChoice::Off] {
        let choice = DeviceChoice { record, ..DeviceChoice::default() };
        each(2, |_, builder| {
            let world = builder.adapter(stand_in::adapter(&choice, "")).queue_blocks(16).heap_bytes(4 << 20);
            let world = world.build().unwrap();
            rounds(&world, 20);
            assert_eq!(world.network_failures(), Vec::<String>::new());
        });
    }
}

#[test]
fn pes_in_reach_and_out_of_reach_take_part_in_one_stream() {
    each(4, |rank, builder| {
        let builder = builder.host_id(if rank % 2 == 0 { "even" } else { "odd" }).heap_bytes(4 << 20);
        rounds(&builder.build().unwrap(), 10);
    });
}

#[test]
fn memory_outside_the_heap_is_registered() {
    each(2, |rank, builder| {
        let world = build(builder, "");
        let other = 1 - rank;
        let inbox = world.calloc::<u64>(100).unwrap();
        let signal = world.calloc::<u64>(1).unwrap();
        let stream = world.engine().stream().unwrap();
        let calls = StreamCalls::new(&stream, &world).unwrap();
        for place in [Place::Host, Place::Device] {
            let [from, to] = [(); 2].map(|()| world.engine().allocate(place, 4096).unwrap());
            from.set_slice(8, &[rank as u64 + 70; 99]).unwrap();
            let from = LocalSlice::<u64>::in_region(&world, &from, 8, 99).unwrap();
            calls.prepare_put(inbox.slice(1..).unwrap(), from, other).unwrap();
            let back = LocalSlice::<u64>::in_region(&world, &to, 16, 100).unwrap();
            calls.prepare_get(back, &inbox, other).unwrap();
            calls.prepare_signal(&signal, 1, other).unwrap();
            calls.prepare_wait(&signal, 1).unwrap();
            calls.trigger().unwrap();
            stream.synchronize(SOON).unwrap();
            let own: Vec<u64> = std::iter::once(0).chain([rank as u64 + 70; 99]).collect();
            assert_eq!(to.get_slice::<u64>(16, 100).unwrap(), own);
            assert_eq!(inbox.read(1, 99).unwrap(), [other as u64 + 70; 99]);
            world.barrier_host().unwrap();
        }
    });
}

#[test]
fn a_full_queue_pair_says_so_and_has_room_after_the_stream() {
    each(2, |rank, builder| {
        let world = builder.adapter(nic("")).queue_blocks(16).build().unwrap();
        let signal = world.calloc::<u64>(1).unwrap();
        let stream = world.engine().stream().unwrap();
        let calls = StreamCalls::new(&stream, &world).unwrap();
        assert_eq!(calls.capacity(), Some(16));
        for round in 0..5 {
            for i in 1..=16 {
                calls.prepare_signal(&signal, 100 * round + i, 1 - rank).unwrap();
                if i == 7 {
                    calls.trigger().unwrap();
                }
            }
            let e = calls.prepare_signal(&signal, 5, 1 - rank).unwrap_err();
            assert!(matches!(e, ShmemError::StreamFull { room: 0, capacity: 16, requests: 1, .. }), "{e}");
            calls.prepare_wait(&signal, 100 * round + 16).unwrap();
            calls.trigger().unwrap();
            stream.synchronize(SOON).unwrap();
            assert_eq!(signal.read(0, 1).unwrap(), [100 * round + 16]);
            world.barrier_host().unwrap();
        }
    });
}

/// Returns opcode, PE and outcome of each failed operation.
fn failed(e: &RunError) -> Vec<(u32, u32, Outcome)> {
    let RunError::Operations { errors, .. } = e else { panic!("{e}") };
    errors.iter().map(|e| (e.opcode, e.device, e.outcome)).collect()
}

#[test]
fn a_request_that_fails_ends_the_connection_until_all_create_it_again() {
    each(2, |rank, builder| {
        // The third request of PE 0's stream to PE 1.
        let world = build(builder, if rank == 0 { "fault=syndrome:0x14/0x77@nth:3+queue:3" } else { "" });
        let (array, signal) = (world.calloc::<u32>(64).unwrap(), world.calloc::<u64>(1).unwrap());
        let stream = world.engine().stream().unwrap();
        let calls = StreamCalls::new(&stream, &world).unwrap();
        if rank == 0 {
            calls.prepare_put(&array, &array, 1).unwrap();
            calls.prepare_signal(&signal, 1, 1).unwrap();
            calls.prepare_get(&array, &array, 1).unwrap();
            calls.prepare_signal(&signal, 2, 1).unwrap();
            calls.trigger().unwrap();
            let e = stream.synchronize(SOON).unwrap_err();
            let all = failed(&e);
            assert_eq!(all.len(), 2, "{e}");
            let Outcome::NetworkError { syndrome, vendor } = all[0].2 else { panic!("{e}") };
            assert_eq!((all[0].0, all[0].1, syndrome.0, vendor.0), (abi::CALL_GET, 1, 0x14, 0x77), "{e}");
            let Outcome::NetworkError { syndrome, .. } = all[1].2 else { panic!("{e}") };
            assert_eq!((all[1].0, syndrome), (abi::CALL_SIGNAL, Syndrome::FLUSHED), "{e}");
            assert!(e.to_string().contains("get"), "{e}");
            for _ in 0..2 {
                let e = calls.prepare_signal(&signal, 3, 1).unwrap_err();
                assert!(
                    matches!(&e, ShmemError::StreamConnection { pe: 1, reason } if reason.contains("fault plan")),
                    "{e}"
                );
            }
            // The queue pairs to other PEs, here to this PE itself, still work.
            stream.synchronize(SOON).unwrap();
            assert!(world.engine().is_idle() && !world.engine().space().is_poisoned());
        }
        world.barrier_host().unwrap();
        assert_eq!(signal.read(0, 1).unwrap(), [u64::from(rank == 1)]);
        world.barrier_host().unwrap();
        drop(calls);
        rounds(&world, 3);
        world.barrier_all().unwrap();
    });
}

#[test]
fn prepared_requests_of_a_failed_connection_are_discarded() {
    each(2, |rank, builder| {
        let world = build(builder, if rank == 0 { "fault=syndrome:0x14@nth:1+queue:3" } else { "" });
        let signal = world.calloc::<u64>(1).unwrap();
        let stream = world.engine().stream().unwrap();
        let calls = StreamCalls::new(&stream, &world).unwrap();
        if rank == 0 {
            calls.prepare_signal(&signal, 1, 1).unwrap();
            calls.trigger().unwrap();
            calls.prepare_signal(&signal, 2, 1).unwrap();
            assert_eq!(failed(&stream.synchronize(SOON).unwrap_err()).len(), 1);
            let e = calls.trigger().unwrap_err();
            assert!(matches!(e, ShmemError::StreamConnection { pe: 1, .. }), "{e}");
            calls.trigger().unwrap();
            stream.synchronize(SOON).unwrap();
        }
        world.barrier_host().unwrap();
        assert_eq!(signal.read(0, 1).unwrap(), [0]);
        world.barrier_host().unwrap();
    });
}

#[test]
fn a_lost_completion_ends_at_the_deadline() {
    for how in ["lose@nth:2+queue:3", "die@nth:2+queue:3"] {
        each(2, |rank, builder| {
            let world = build(builder, &if rank == 0 { format!("fault={how}") } else { String::new() });
            let signal = world.calloc::<u64>(1).unwrap();
            let stream = world.engine().stream().unwrap();
            let calls = StreamCalls::new(&stream, &world).unwrap();
            if rank == 0 {
                calls.prepare_signal(&signal, 1, 1).unwrap();
                calls.trigger().unwrap();
                stream.synchronize(SOON).unwrap();
                world.engine().set_deadline(Duration::from_millis(200)).unwrap();
                calls.prepare_signal(&signal, 2, 1).unwrap();
                calls.trigger().unwrap();
                let e = stream.synchronize(SOON).unwrap_err();
                assert_eq!(failed(&e), [(abi::CALL_SIGNAL, 1, Outcome::TimedOut)], "{e}");
                let e = calls.prepare_signal(&signal, 3, 1).unwrap_err();
                assert!(
                    e.to_string().contains("within the deadline") && e.to_string().contains("again on all PEs"),
                    "{e}"
                );
                assert!(!world.engine().space().is_poisoned());
            }
            world.barrier_host().unwrap();
            if how.starts_with("lose") {
                drop(calls);
                world.engine().set_deadline(Duration::from_secs(60)).unwrap();
                rounds(&world, 3);
            }
        });
    }
}

#[test]
fn a_pe_that_drops_its_calls_can_still_be_reached_and_sets_are_used_again() {
    each(2, |rank, builder| {
        let world = build(builder, "");
        let signal = world.calloc::<u64>(1).unwrap();
        let stream = world.engine().stream().unwrap();
        let network = world.network().unwrap();
        for round in 1..=4u64 {
            let calls = StreamCalls::new(&stream, &world).unwrap();
            if rank == 1 {
                drop(calls);
                assert_eq!(network.unused_stream_queues().len(), 1);
                world.barrier_host().unwrap();
            } else {
                world.barrier_host().unwrap();
                calls.prepare_signal(&signal, round, 1).unwrap();
                calls.trigger().unwrap();
                drop(calls);
                // The stream keeps what its steps use.
                assert_eq!(network.unused_stream_queues().len(), 0);
                stream.synchronize(SOON).unwrap();
            }
            world.barrier_host().unwrap();
            assert_eq!(network.unused_stream_queues(), [1], "round {round}");
            assert_eq!(signal.read(0, 1).unwrap(), [if rank == 1 { round } else { 0 }]);
            world.barrier_host().unwrap();
        }
        // Two at the same time are two sets.
        let two = [(); 2].map(|()| StreamCalls::new(&stream, &world).unwrap());
        drop(two);
        assert_eq!(network.unused_stream_queues().len(), 2);
        world.barrier_host().unwrap();
    });
}

#[test]
fn a_stream_of_another_engine_fails_on_all_pes() {
    each(2, |rank, builder| {
        let world = build(builder, "");
        let other = Engine::cpu().unwrap();
        let stream = if rank == 1 { other.stream() } else { world.engine().stream() }.unwrap();
        let e = StreamCalls::new(&stream, &world).unwrap_err().to_string();
        assert!(e.contains("engine"), "{e}");
        rounds(&world, 1);
    });
}
