//! The steps that recover a network: failed queue pairs are set aside, reset, and connected again, at both ends.

use super::tables::fresh;
use super::{Network, Which, WorldParts};
use crate::engine::abi;
use crate::rdma::QueueAddress;
use crate::shmem::ShmemError;
use crate::wire::mlx5::{Failure, Syndrome, VendorSyndrome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The outcome of [`World::recover`](crate::shmem::World::recover) on this PE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Recovery {
    /// The PEs whose connections with this PE were made again, in ascending order. Empty if all connections worked.
    pub pes: Vec<Recovered>,
}

/// The recovered connections of this PE with one other PE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Recovered {
    /// The other PE.
    pub pe: usize,
    /// Queue pairs that were reset and connected again.
    pub queue_pairs: usize,
    /// The reasons why they had failed, from both ends.
    pub reasons: Vec<String>,
}

impl fmt::Display for Recovery {
    /// Writes one line for each PE, as in `PE 1: 4 queue pairs connected again (...)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pes.is_empty() {
            return f.write_str("all connections work");
        }
        for (i, Recovered { pe, queue_pairs, reasons }) in self.pes.iter().enumerate() {
            let line = if i == 0 { "" } else { "\n" };
            let s = if *queue_pairs == 1 { "" } else { "s" };
            write!(f, "{line}PE {pe}: {queue_pairs} queue pair{s} connected again ({})", reasons.join("; "))?;
        }
        Ok(())
    }
}

/// The queue pairs of one PE that must be recovered, each with the reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::shmem) struct Report(Vec<(Which, String)>);

/// The queue pairs that a PE has reset, each with its new address.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::shmem) struct Reset(Vec<(Which, QueueAddress)>);

/// Returns the queue pairs that PE `me` recovers, each with the reasons from both ends.
pub(in crate::shmem) fn anew(me: usize, reports: &[Report]) -> BTreeMap<Which, Vec<String>> {
    let mut all: BTreeMap<Which, Vec<String>> = BTreeMap::new();
    for (rank, Report(failed)) in reports.iter().enumerate() {
        for ((pe, index), why) in failed {
            let own = (rank == me).then_some(*pe);
            let theirs = (*pe == me && rank != me).then_some(rank);
            if let Some(other) = own.or(theirs) {
                let why = if rank == me { why.clone() } else { format!("PE {rank} says: {why}") };
                all.entry((other, *index)).or_default().push(why);
            }
        }
    }
    all
}

impl Recovery {
    pub(in crate::shmem) fn of(anew: BTreeMap<Which, Vec<String>>) -> Self {
        let mut pes: Vec<Recovered> = Vec::new();
        for ((pe, _), why) in anew {
            match pes.last_mut().filter(|r| r.pe == pe) {
                Some(same) => {
                    same.queue_pairs += 1;
                    same.reasons.extend(why);
                }
                None => pes.push(Recovered { pe, queue_pairs: 1, reasons: why }),
            }
        }
        Self { pes }
    }
}

/// The failure that kernels get when they use a queue pair during its recovery.
const UNUSABLE: Failure = Failure::new(Syndrome::FLUSHED, VendorSyndrome::FORCED_ERROR);

impl WorldParts {
    /// Marks everything posted on a queue pair as completed, so that waits for all data sent ignore it. If `failed`,
    /// new posts on it fail with [`UNUSABLE`].
    fn set_aside(&self, which: Which, failed: bool) -> Result<(), ShmemError> {
        let queue = self.tables.queue(self.plan, which)?;
        let failed = if failed { super::faults::status_word(UNUSABLE) } else { 0 };
        let credit = if failed == 0 { queue.credit } else { 0 };
        let aside = abi::SendQueue { completed: queue.ticket, credit, failed, ..queue };
        Ok(self.tables.set_queue(self.plan, which, aside)?)
    }

    fn has_failed(&self, which: Which) -> Result<bool, ShmemError> {
        let seen = self.tables.queue(self.plan, which)?.failed != 0;
        Ok(seen || self.down.contains(&which) || self.queues[which.0][which.1].fault().is_some())
    }
}

impl Network {
    /// Sets failed queue pairs aside, so that kernels which wait for all data sent ignore them: nothing more completes
    /// on them. Returns those queue pairs with the reasons. No kernel may be running.
    pub(in crate::shmem) fn set_aside(&self) -> Result<BTreeMap<Which, String>, ShmemError> {
        let mut known = BTreeMap::new();
        if let Some(parts) = self.shared.parts().as_ref() {
            for which in parts.all() {
                if parts.has_failed(which)? {
                    known.insert(which, parts.why(which));
                    parts.set_aside(which, false)?;
                }
            }
        }
        Ok(known)
    }

    /// Returns the queue pairs to recover: those in `known`, and those on which an operation is still in flight.
    /// Kernels cannot use these queue pairs from here on.
    pub(in crate::shmem) fn unfinished(&self, mut known: BTreeMap<Which, String>) -> Result<Report, ShmemError> {
        if let Some(parts) = self.shared.parts().as_ref() {
            for which in parts.all() {
                let queue = parts.tables.queue(self.plan, which)?;
                if queue.ticket != queue.completed || parts.has_failed(which)? {
                    known.entry(which).or_insert_with(|| parts.why(which));
                }
            }
            for which in known.keys() {
                parts.set_aside(*which, true)?;
            }
        }
        Ok(Report(known.into_iter().collect()))
    }

    /// Resets queue pairs. Returns the addresses to which the other ends connect.
    pub(in crate::shmem) fn reset(&self, anew: impl Iterator<Item = Which>) -> Result<Reset, String> {
        let mut parts = self.shared.parts();
        let Some(parts) = parts.as_mut() else { return Ok(Reset::default()) };
        let mut all = Vec::new();
        for which in anew {
            let (pe, index) = which;
            let wrong = |e: &dyn fmt::Display| format!("queue pair {index} to PE {pe}: {e}");
            // The other end may have failed alone.
            parts.set_aside(which, true).map_err(|e| wrong(&e))?;
            parts.down.insert(which);
            let queue = parts.queues.get_mut(pe).and_then(|to| to.get_mut(index));
            let queue = queue.ok_or_else(|| wrong(&"no such queue pair"))?;
            queue.reset().map_err(|e| wrong(&e))?;
            all.push((which, queue.address()));
        }
        Ok(Reset(all))
    }

    /// Connects queue pairs with those that the other PEs have reset. Stops at the first one that fails, since the
    /// other PEs wait.
    pub(in crate::shmem) fn connect_again(
        &self,
        me: usize,
        anew: impl Iterator<Item = Which>,
        resets: &[Reset],
    ) -> Result<(), String> {
        let mut parts = self.shared.parts();
        let Some(parts) = parts.as_mut() else { return Ok(()) };
        for (pe, index) in anew {
            let wrong = |e: &dyn fmt::Display| format!("queue pair {index} to PE {pe}: {e}");
            let theirs = resets.get(pe).and_then(|r| r.0.iter().find(|(which, _)| *which == (me, index)));
            let (_, address) = theirs.ok_or_else(|| wrong(&"its other end was not reset"))?;
            parts.queues[pe][index].connect(address).map_err(|e| wrong(&e))?;
        }
        Ok(())
    }

    /// Lets kernels use the queue pairs again, and clears the failures.
    pub(in crate::shmem) fn recovered(&self, anew: impl Iterator<Item = Which>) -> Result<(), ShmemError> {
        let mut parts = self.shared.parts();
        let Some(parts) = parts.as_mut() else { return Ok(()) };
        for which in anew {
            let queue = &*parts.queues[which.0][which.1];
            let queue = fresh(self.plan, &parts.registered, &parts.staging, which, queue);
            parts.tables.set_queue(self.plan, which, queue)?;
        }
        parts.down.clear();
        parts.alerted.clear();
        self.shared.faults.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_made_anew() {
        let failed = |all: &[Which]| Report(all.iter().map(|w| (*w, format!("{w:?}"))).collect());
        let reports = [failed(&[(1, 0), (0, 1)]), failed(&[(0, 0), (2, 3)]), failed(&[])];
        let which = |me| anew(me, &reports).into_keys().collect::<Vec<_>>();
        assert_eq!(which(0), [(0, 1), (1, 0)]);
        assert_eq!(which(1), [(0, 0), (2, 3)]);
        assert_eq!(which(2), [(1, 3)]);
        let recovery = Recovery::of(anew(0, &reports));
        assert_eq!(recovery.pes.iter().map(|r| (r.pe, r.queue_pairs)).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
        let text = recovery.to_string();
        assert!(text.ends_with("PE 1: 1 queue pair connected again ((1, 0); PE 1 says: (0, 0))"), "{text}");
        assert_eq!(Recovery::of(BTreeMap::new()).to_string(), "all connections work");
    }
}
