//! Worlds of processes whose ranks are killed or stopped, whose networks are cut or change bits, and whose disks are full.

mod faults;
mod work;

use crate::campaign::{Campaign, Outcome};
use crate::family::Family;
use crate::program::{Ended, Running};
use crate::random::Random;
use std::process::Command;
use std::time::Duration;
use work::{Work, names_rank};

/// Time for the start of a world.
const START: &str = "10s";
/// Deadline of kernels where the news of a loss has to end them, and where a rank that was stopped has to be waited for.
const FAR: &str = "180s";
/// Deadline of kernels where nothing else ends them.
const NEAR: &str = "8s";
/// Time in which a busy machine does what takes a moment.
const BUSY: Duration = Duration::from_secs(20);
/// Time in which a busy machine does all of the work.
const LONG: Duration = Duration::from_secs(200);

/// Worlds of 2 to 4 processes.
pub struct Worlds;

impl Campaign for Worlds {
    fn kind(&self, seed: u64) -> String {
        let scenario = Scenario::of(seed);
        format!("{}, {}", scenario.fault.name(), scenario.transport.name())
    }

    fn run(&self, seed: u64) -> Outcome {
        let scenario = Scenario::of(seed);
        scenario.run().map_err(|e| format!("{:?} {}: {e}", scenario.work.args, scenario.ranks))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Peer,
    Unix,
    Tcp,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Unix => "soft",
            Self::Tcp => "soft TCP",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// SIGKILL.
    Killed,
    /// SIGSTOP, and SIGCONT later.
    Stopped,
    /// The network between a rank and the store holds all bytes for a while, or for good.
    StoreHeld,
    /// The connections between a rank and the store are closed.
    StoreClosed,
    /// The network between a rank and the store flips bits.
    StoreFlips,
    /// Frames between adapters are lost, changed or late, and connections end: all is repeated.
    Network,
    /// Requests of an adapter fail, are lost, or end it.
    Adapter,
    /// Files cannot become as large as they have to.
    FullDisk,
    /// The ranks' monotonic clocks differ.
    Clocks,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::None => "undisturbed",
            Self::Killed => "rank killed",
            Self::Stopped => "rank stopped",
            Self::StoreHeld => "store held",
            Self::StoreClosed => "store cut",
            Self::StoreFlips => "store flips bits",
            Self::Network => "NIC flips, drops, cuts",
            Self::Adapter => "NIC fails",
            Self::FullDisk => "disk full",
            Self::Clocks => "clocks differ",
        }
    }
}

/// All that a seed determines.
struct Scenario {
    fault: Fault,
    transport: Transport,
    ranks: usize,
    work: Work,
    random: Random,
}

impl Scenario {
    fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let fault = match random.below(20) {
            0 => Fault::None,
            1..=5 => Fault::Killed,
            6..=8 => Fault::Stopped,
            9 | 10 => Fault::StoreHeld,
            11 | 12 => Fault::StoreClosed,
            13 | 14 => Fault::StoreFlips,
            15 | 16 => Fault::Network,
            17 => Fault::Adapter,
            18 => Fault::FullDisk,
            _ => Fault::Clocks,
        };
        let transports = match fault {
            Fault::Network | Fault::Adapter => &[Transport::Unix, Transport::Tcp][..],
            _ => &[Transport::Peer, Transport::Unix, Transport::Tcp],
        };
        let (transport, ranks) = (random.of(transports), random.of(&[2, 2, 3, 4]));
        Self { fault, transport, ranks, work: Work::of(&mut random, ranks), random }
    }

    /// Returns a command of the work, with the options of its transport.
    fn command(&self, family: &Family, deadline: &'static str, nic: &str) -> Command {
        let transport = if self.transport == Transport::Peer { "peer" } else { "soft" };
        let rest = ["--transport", transport, "--deadline", deadline];
        let mut command = family.command(self.work.args.iter().chain(&rest).copied());
        let tcp = if self.transport == Transport::Tcp { "tcp" } else { "" };
        let options = [tcp, nic].into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>().join(",");
        command.env("WARPBELL_TIMEOUT", START).env("WARPBELL_SOFT_NIC", options);
        command
    }

    /// Returns the ranks' ends, none of which may be out of order.
    fn ends(ranks: Vec<Running>, within: Duration) -> Result<Vec<Ended>, String> {
        // All are waited for, so that an error shows the first that did not end.
        let ends: Vec<_> = ranks.into_iter().map(|rank| rank.end(within)).collect();
        let said = |i: usize| format!("rank {i}: {}", ends[i].as_ref().map_or_else(Clone::clone, Ended::text));
        let all = || (0..ends.len()).map(said).collect::<Vec<_>>().join("\n");
        if ends.iter().any(Result::is_err) {
            return Err(all());
        }
        ends.into_iter().collect()
    }

    /// Checks ranks that have to end well, or else in order with a message that `is_named` accepts.
    fn judge(&self, ends: &[Ended], is_named: impl Fn(usize, &str) -> bool) -> Outcome {
        // Where rank 0 gives up first, the others learn of that.
        let is_told = |rank: usize| is_named(rank, &ends[rank].err);
        let is_explained =
            |rank: usize| is_told(rank) || !ends[0].status.success() && is_told(0) && names_rank(&ends[rank].err, 0);
        let all = || ends.iter().map(Ended::text).collect::<Vec<_>>().join("\n");
        for (rank, end) in ends.iter().enumerate() {
            if let Some(what) = end.disorder() {
                return Err(format!("rank {rank} {what}\nof\n{}", all()));
            }
            if !end.status.success() && !is_explained(rank) {
                return Err(format!("rank {rank} does not name the cause:\n{}", all()));
            }
        }
        if ends[0].status.success() {
            self.work.check(&ends[0])?;
        }
        Ok(if ends.iter().all(|e| e.status.success()) { "verified" } else { "refused" })
    }
}
