//! Writes, reads and atomics between two sides over an RDMA adapter, as perftest measures them: posted by kernels, and posted by the
//! CPU, on the same kind of queue pair over the same adapter, one after the other.
//!
//! A side is a rank of a [`Bootstrap`] of two: threads of one process, or a process each. What arrives is verified after each size.

mod adapter;
mod endpoint;
mod kernel;
mod send_queues;
mod setting;
mod statistics;
pub mod table;

pub use adapter::AdapterChoice;
pub use endpoint::not_two;
pub use setting::{ALL_SIZES, Atomic, Kind, MOST_INLINE, Setting, Test};
pub use statistics::{Bandwidth, Latency, MeanLatency, Stamps};
pub use table::Figures;

use crate::measure::error::{MeasureError, refuse};
use endpoint::{Checked, Driver, Endpoint};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use warpbell::engine::Engine;
use warpbell::rdma::{Adapter, AdapterPath};
use warpbell::shmem::bootstrap::Bootstrap;

/// How long the messages of one size may take at most, beside a duration that was asked for.
pub const LIMIT: Duration = Duration::from_secs(600);

/// Who posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Initiator {
    /// Kernels, on the engine.
    Kernel,
    /// A CPU thread of the program, on the same kind of rings.
    Host,
    /// A CPU thread of the program, by verbs calls.
    Verbs,
}

impl fmt::Display for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Host => "host",
            Self::Verbs => "verbs",
        })
    }
}

/// One side.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Its adapter.
    pub adapter: &'a dyn Adapter,
    /// Where its kernels run.
    pub engine: &'a Engine,
    /// The way to the other side: two ranks.
    pub ranks: &'a dyn Bootstrap,
    /// The rank that begins, whose figures are shown.
    pub client: usize,
    /// How long one wait may last.
    pub deadline: Duration,
}

/// What came out for one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// The row of the table.
    #[serde(flatten)]
    pub figures: Figures,
    /// Messages of which both sides looked at what arrived.
    pub verified: u64,
    /// Those of them that were not what was sent.
    pub wrong: u64,
}

/// Messages that one side posted.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// On each queue pair.
    done: Vec<u64>,
    /// From the first post to the last completion.
    elapsed_ns: u64,
    stamps: Option<Stamps>,
}

/// What a side tells the other of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SideReport {
    done: Vec<u64>,
    figures: Option<(u64, f64, f64, f64)>,
}

/// A measurement between two sides, connected.
#[derive(Debug)]
pub struct RdmaBench<'a> {
    side: Side<'a>,
    setting: Setting,
    initiator: Initiator,
    // Queue pairs go before the memory that they reach.
    driver: Driver,
    endpoint: Endpoint,
}

impl<'a> RdmaBench<'a> {
    /// Makes queue pairs, registers memory, and connects with the other side, which calls this at the same time.
    pub fn new(side: Side<'a>, setting: Setting, initiator: Initiator) -> Result<Self, MeasureError> {
        let setting = setting.with_defaults();
        setting.check()?;
        let (endpoint, driver) = Endpoint::new(&side, &setting, initiator)?;
        Ok(Self { side, setting, initiator, driver, endpoint })
    }

    /// Which way work requests go.
    pub fn path(&self) -> AdapterPath {
        self.side.adapter.path()
    }

    /// Where the messages are: `GPU memory` or `host memory`.
    pub fn memory(&self) -> &'static str {
        self.endpoint.memory_name()
    }

    /// Messages that one doorbell is rung for: those of a list, and of a kernel at most as many as a warp has lanes.
    pub fn post_list(&self) -> u32 {
        match self.initiator {
            Initiator::Kernel => self.setting.post_list.min(self.side.engine.warp_width()),
            Initiator::Host | Initiator::Verbs => self.setting.post_list,
        }
    }

    /// What stands above the table.
    pub fn head<'h>(&'h self, path: &'h AdapterPath) -> table::Head<'h> {
        let (local, remote) = self.endpoint.addresses();
        // Of what a kernel posts together the last entry is the one with a completion; verbs calls ask for one each.
        let cq_mod = match self.initiator {
            Initiator::Kernel => self.post_list(),
            Initiator::Host => self.setting.cq_mod,
            Initiator::Verbs => 1,
        };
        table::Head { setting: &self.setting, path, inline_bytes: self.setting.inline_bytes, cq_mod, local, remote }
    }

    /// Whether this side posts.
    fn posts(&self) -> bool {
        let begins = self.side.ranks.rank() == self.side.client;
        begins || self.setting.bidirectional || self.setting.test.goes_there_and_back()
    }

    /// How long the other side is waited for.
    fn deadline(&self) -> Duration {
        LIMIT + self.setting.duration.unwrap_or_default() + self.side.deadline
    }

    /// Measures messages of `bytes` bytes. Both sides call it, with the same sizes in the same order, and get the same answer.
    pub fn measure(&mut self, bytes: u64) -> Result<Row, MeasureError> {
        self.endpoint.prepare(self.side.ranks.rank(), bytes)?;
        let buffers = match self.driver {
            Driver::Kernel(..) if self.posts() => Some(kernel::Buffers::new(&self.side, &self.setting)?),
            _ => None,
        };
        self.side.ranks.barrier(self.deadline())?;
        let nothing = || Ok(Sent { done: vec![0; self.setting.queue_pairs as usize], ..Sent::default() });
        let posts = self.posts();
        let sent = match (&mut self.driver, buffers) {
            (Driver::Kernel(queues, table), Some(buffers)) => {
                kernel::run(&self.side, &self.setting, &self.endpoint, (queues, table), &buffers, bytes)
            }
            (Driver::Host(send_queues), _) if posts => {
                send_queues::run(&self.side, &self.setting, &self.endpoint, send_queues, bytes)
            }
            _ => nothing(),
        };
        self.conclude(bytes, sent)
    }

    /// Both sides tell each other how it went, and look at what arrived.
    fn conclude(&self, bytes: u64, sent: Result<Sent, MeasureError>) -> Result<Row, MeasureError> {
        let mine = sent.as_ref().map_err(ToString::to_string).map(|sent| {
            let figures = self.posts().then(|| self.bandwidth(bytes, sent));
            let figures = figures.map(|b| (b.iterations, b.peak_bytes_per_s, b.average_bytes_per_s, b.messages_per_s));
            SideReport { done: sent.done.clone(), figures }
        });
        let told: Vec<Result<SideReport, String>> = endpoint::exchange(&self.side, self.deadline(), &mine)?;
        let sent = sent?;
        let (me, other) = (self.side.ranks.rank(), 1 - self.side.ranks.rank());
        let theirs = match told.into_iter().nth(other) {
            Some(Ok(theirs)) => theirs,
            Some(Err(reason)) => return Err(endpoint::other_side(other, reason)),
            None => return Err(endpoint::other_side(other, "it said nothing")),
        };
        let checked = self.endpoint.check(&self.setting, bytes, me, &sent.done, &theirs.done)?;
        // Whose messages are in the table, and what the table says of them.
        let figures = match self.setting.test.kind {
            Kind::Bandwidth => {
                let other = theirs.figures.map(|(iterations, peak, average, messages)| Bandwidth {
                    bytes,
                    iterations,
                    peak_bytes_per_s: peak,
                    average_bytes_per_s: average,
                    messages_per_s: messages,
                });
                let own = self.posts().then(|| self.bandwidth(bytes, &sent));
                match (own, other) {
                    (Some(a), Some(b)) => Some(Figures::Bandwidth(a.both(&b))),
                    (one, other) => one.or(other).map(Figures::Bandwidth),
                }
            }
            Kind::Latency => (me == self.side.client).then(|| self.latency(bytes, &sent)).flatten(),
        };
        let (both, figures) = self.agree(checked, figures)?;
        let Some(figures) = figures else {
            let done: u64 = sent.done.iter().sum();
            return refuse!(
                "{done} messages of {bytes} bytes are too few for a row of the table; give more --iters or a longer --duration"
            );
        };
        Ok(Row { figures, verified: both.verified, wrong: both.wrong })
    }

    /// What both sides verified, and the client's row.
    fn agree(&self, mine: Checked, figures: Option<Figures>) -> Result<(Checked, Option<Figures>), MeasureError> {
        let all: Vec<(Checked, Option<Figures>)> = endpoint::exchange(&self.side, self.deadline(), &(mine, figures))?;
        let sum = all.iter().fold(Checked::default(), |a, (b, _)| a.and(b));
        Ok((sum, all.get(self.side.client).and_then(|(_, figures)| *figures)))
    }

    fn bandwidth(&self, bytes: u64, sent: &Sent) -> Bandwidth {
        Bandwidth::new(bytes, sent.done.iter().sum(), sent.elapsed_ns, sent.stamps.as_ref())
    }

    fn latency(&self, bytes: u64, sent: &Sent) -> Option<Figures> {
        let both_ways = self.setting.test.goes_there_and_back();
        match (&sent.stamps, self.setting.duration) {
            (Some(stamps), None) => Latency::new(bytes, &stamps.posted, both_ways).map(Figures::Latency),
            _ => {
                let done = sent.done.iter().sum();
                (done > 0).then(|| Figures::MeanLatency(MeanLatency::new(bytes, done, sent.elapsed_ns, both_ways)))
            }
        }
    }
}

/// Returns what an adapter says of its failure, in brackets.
fn because(failure: Option<String>) -> String {
    failure.map_or_else(String::new, |f| format!(" ({f})"))
}

#[cfg(test)]
mod tests;
