//! Probes of a world over an adapter.

use super::WorldProbeArgs;
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text};
use crate::workloads::report::nanoseconds;
use crate::world::Plan;
use serde_json::{Value, json};
use std::time::Instant;
use warpbell::shmem::calls::{Cmp, SignalOp};
use warpbell::shmem::{Sym, World};

/// Bytes of each heap: more than the probes use.
const HEAP: usize = 4 << 20;
/// Elements that are put.
const COUNT: usize = 1000;
/// The PE whose key is wrong, and the one that uses it.
const FAR: usize = 1;
const NEAR: usize = 0;

/// Memory of a probe.
struct Memory {
    data: Sym<u64>,
    signal: Sym<u64>,
    counter: Sym<u64>,
}

impl Memory {
    fn new(world: &World) -> Result<Self, Failure> {
        Ok(Self { data: world.calloc(COUNT)?, signal: world.calloc(1)?, counter: world.calloc(1)? })
    }

    /// Puts, signals and adds to the next PE, and compares what the PE before has put.
    fn works(&self, world: &World, round: u64) -> Result<(), Failure> {
        let (me, n) = (world.my_pe(), world.n_pes());
        let pattern = |pe: usize| (0..COUNT as u64).map(|i| i * 31 + pe as u64 + round * 1009).collect::<Vec<_>>();
        let next = (me + 1) % n;
        world.put(&self.data, &pattern(me)[..], next)?;
        world.signal_op(&self.signal, round, SignalOp::Set, next)?;
        world.signal_wait_until(&self.signal, Cmp::Ge, round)?;
        let came = self.data.read(0, COUNT)?;
        if came != pattern((me + n - 1) % n) {
            return Err(Failure::Error(format!("round {round}: PE {me} has other data than was put")));
        }
        world.atomic_add(&self.counter, 1u64, next)?;
        world.barrier_all()?;
        let added = self.counter.read(0, 1)?;
        if added != [round] {
            return Err(Failure::Error(format!("round {round}: PE {me} has {added:?} atomic additions")));
        }
        Ok(())
    }
}

fn no_fault(world: &World) -> Result<(), Failure> {
    let failures = world.network_failures();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::Error(format!("PE {}: {}", world.my_pe(), failures.join("; ")))),
    }
}

/// Lets a world rest, and checks that no connection counts as failed and that all works as before.
pub fn idle(args: &WorldProbeArgs, interrupt: &Interrupt) -> Result<Value, Failure> {
    let plan = Plan::new(&args.world, &args.engine)?;
    let rest = args.rest.unwrap_or_default();
    let paths = plan.run(HEAP, interrupt, |world| {
        let memory = Memory::new(world)?;
        memory.works(world, 1)?;
        std::thread::sleep(rest);
        no_fault(world)?;
        memory.works(world, 2)?;
        no_fault(world)?;
        Ok(world.path().to_string())
    })?;
    Ok(json!({ "path": paths.first(), "rest_ns": nanoseconds(rest) }))
}

/// Line of output after the first round of [`exchange`].
pub const BEGUN: &str = "# exchanging";

/// Makes calls between all PEs, round after round. A PE that is gone ends the rounds with an error that names it.
pub fn exchange(args: &WorldProbeArgs, interrupt: &Interrupt) -> Result<Value, Failure> {
    let plan = Plan::new(&args.world, &args.engine)?;
    let until = args.rest.unwrap_or_default();
    let text = Text::beside(&args.report)?;
    let rounds = plan.run(HEAP, interrupt, |world| {
        let (memory, started) = (Memory::new(world)?, Instant::now());
        for round in 1.. {
            memory.works(world, round)?;
            if round == 1 && world.my_pe() == NEAR {
                text.line(format_args!("{BEGUN}"))?;
            }
            // All PEs make the same number of rounds.
            let is_over = world.allgather(&[u8::from(started.elapsed() >= until)])?;
            if is_over.iter().any(|over| over == &[1]) {
                return Ok(round);
            }
        }
        Ok(0)
    })?;
    Ok(json!({ "rounds": rounds.first() }))
}

/// Uses a wrong key, and checks that both PEs notice and that the world recovers.
pub fn bad_key(args: &WorldProbeArgs, interrupt: &Interrupt) -> Result<Value, Failure> {
    let plan = Plan::new(&args.world, &args.engine)?;
    let all = plan.run(HEAP, interrupt, |world| {
        let memory = Memory::new(world)?;
        memory.works(world, 1)?;
        let error = match world.my_pe() {
            NEAR => world.with_wrong_key(FAR, |w| w.put(&memory.data, &[7u64; COUNT][..], FAR))?.err(),
            // Ends by the failure, or else at its deadline.
            _ => world.signal_wait_until(&memory.signal, Cmp::Ge, u64::MAX).err(),
        };
        let Some(error) = error.map(|e| e.to_string()) else {
            return Err(Failure::Error("a put with a wrong key succeeded".to_owned()));
        };
        // A wait that only ran into its deadline has noticed nothing.
        if world.network_failures().is_empty() {
            return Err(Failure::Error(format!("PE {} did not notice the failed connection: {error}", world.my_pe())));
        }
        let recovery = world.recover()?;
        if recovery.pes.is_empty() {
            return Err(Failure::Error(format!("PE {}: there was nothing to recover after: {error}", world.my_pe())));
        }
        no_fault(world)?;
        memory.works(world, 2)?;
        Ok((error, recovery.to_string()))
    })?;
    let errors: Vec<&String> = all.iter().map(|(e, _)| e).collect();
    let recoveries: Vec<&String> = all.iter().map(|(_, r)| r).collect();
    Ok(json!({ "refusal": errors.first(), "errors": errors, "recoveries": recoveries }))
}
