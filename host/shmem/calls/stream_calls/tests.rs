//! Tests of steps of streams.

use super::*;
use crate::engine::{Outcome, RunError};
use crate::shmem::testing::on_all;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Makes rounds of puts, gets and signals around a ring of all PEs.
pub(in crate::shmem) fn rounds(world: &World, count: u64) {
    const LEN: usize = 4097;
    let (me, n) = (world.my_pe(), world.n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let [mine, inbox, copy] = [(); 3].map(|()| world.calloc::<u64>(LEN).unwrap());
    let signals = world.calloc::<u64>(2).unwrap();
    let stream = world.engine().stream().unwrap();
    let calls = StreamCalls::new(&stream, world).unwrap();
    calls.trigger().unwrap();
    for round in 1..=count {
        // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
        unsafe {
            let args = crate::args!(mine.address(), LEN as u64, 1000 * round + me as u64, 10u64);
            stream.launch("wb_iota", world.engine().grid(64, 1), args)
        }
        .unwrap();
        calls.prepare_put(&inbox, &mine, right).unwrap();
        calls.prepare_signal(signals.slice(..1).unwrap(), round, right).unwrap();
        calls.prepare_wait(signals.slice(..1).unwrap(), round).unwrap();
        calls.trigger().unwrap();
        // The other way round: what the left PE has put into the inbox of this one.
        calls.prepare_get(&copy, &inbox, right).unwrap();
        calls.prepare_signal(signals.slice(1..).unwrap(), round, left).unwrap();
        calls.prepare_signal(signals.slice(1..).unwrap(), round, right).unwrap();
        calls.prepare_wait(signals.slice(1..).unwrap(), round).unwrap();
        calls.trigger().unwrap();
        stream.synchronize(SOON).unwrap();
        world.barrier_host().unwrap();
        let of = |pe: usize| (0..LEN as u64).map(|i| 1000 * round + pe as u64 + 10 * i).collect::<Vec<u64>>();
        assert!(inbox.read(0, LEN).unwrap() == of(left), "round {round}");
        assert!(copy.read(0, LEN).unwrap() == of(me), "round {round}");
        // The next round's put would change the inbox.
        world.barrier_host().unwrap();
    }
}

#[test]
fn rounds_of_puts_gets_and_signals_around_a_ring() {
    on_all(3, |world| rounds(world, 20));
}

#[test]
fn mistakes_are_refused() {
    on_all(2, |world| {
        let (a, signal) = (world.calloc::<u32>(8).unwrap(), world.calloc::<u64>(1).unwrap());
        let stream = world.engine().stream().unwrap();
        let calls = StreamCalls::new(&stream, world).unwrap();
        assert!(matches!(calls.prepare_put(&a, &a, 2), Err(ShmemError::NoPe { pe: 2, size: 2 })));
        let few = a.slice(..3).unwrap();
        assert!(matches!(calls.prepare_put(few, &a, 1), Err(ShmemError::OutOfBounds { .. })));
        assert!(matches!(calls.prepare_get(&a, few, 1), Err(ShmemError::OutOfBounds { .. })));
        assert!(calls.prepare_wait(signal.slice(1..).unwrap(), 1).is_err());
        let other = crate::engine::Engine::cpu().unwrap();
        assert!(StreamCalls::new(&other.stream().unwrap(), world).is_err());
        assert!(world.engine().is_idle());
        world.barrier_host().unwrap();
    });
}

#[test]
fn a_signal_that_does_not_come_ends_at_the_deadline() {
    on_all(2, |world| {
        let signal = world.calloc::<u64>(2).unwrap();
        let stream = world.engine().stream().unwrap();
        let calls = StreamCalls::new(&stream, world).unwrap();
        world.engine().set_deadline(Duration::from_millis(100)).unwrap();
        calls.prepare_wait(signal.slice(1..).unwrap(), 7).unwrap();
        calls.trigger().unwrap();
        let e = stream.synchronize(SOON).unwrap_err();
        let RunError::Operations { errors, count: 1, .. } = &e else { panic!("{e}") };
        assert_eq!((errors[0].outcome, errors[0].opcode), (Outcome::TimedOut, abi::CALL_WAIT), "{e}");
        assert!(world.engine().is_idle() && !world.engine().space().is_poisoned());
        // A limit of the caller ends it, too.
        world.engine().set_deadline(Duration::from_secs(3600)).unwrap();
        calls.prepare_wait(signal.slice(1..).unwrap(), 8).unwrap();
        calls.trigger().unwrap();
        assert!(stream.synchronize(Duration::from_millis(50)).is_err());
        world.barrier_host().unwrap();
        calls.prepare_signal(&signal, 1, 1 - world.my_pe()).unwrap();
        calls.prepare_wait(&signal, 1).unwrap();
        calls.trigger().unwrap();
        stream.synchronize(SOON).unwrap();
    });
}
