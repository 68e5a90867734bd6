//! Measures writes, reads and atomics between two sides over an RDMA adapter, as perftest does.
//!
//! Kernels post the messages, then the CPU does, on the same kind of queue pair over the same adapter. A side is a rank
//! of a [`Bootstrap`] of two: threads of one process, or one process each. The received data is verified after each
//! size.

mod adapter;
mod agreement;
mod difference;
mod endpoint;
mod kernel;
mod send_queues;
mod setting;
mod statistics;
pub mod table;

pub use adapter::AdapterChoice;
pub use agreement::agree;
pub use endpoint::not_two;
pub use setting::{ALL_SIZES, Atomic, Kind, MOST_INLINE, Setting, Test};
pub use statistics::{Bandwidth, Latency, MeanLatency, Stamps};
pub use table::Figures;

use crate::workloads::error::{MeasureError, refuse};
use endpoint::{Checked, Driver, Endpoint};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use warpbell::engine::Engine;
use warpbell::rdma::{Adapter, AdapterPath};
use warpbell::shmem::bootstrap::Bootstrap;

/// Time limit of the messages of one size, in addition to a requested duration.
pub const LIMIT: Duration = Duration::from_secs(600);

/// Initiator that posts work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Initiator {
    /// Kernels on the engine.
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

/// One of the two sides of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Adapter of this side.
    pub adapter: &'a dyn Adapter,
    /// Engine that runs this side's kernels.
    pub engine: &'a Engine,
    /// Bootstrap of two ranks that connects this side to the other.
    pub ranks: &'a dyn Bootstrap,
    /// Rank of the client, which begins and whose figures are printed.
    pub client: usize,
    /// Time limit of one wait.
    pub deadline: Duration,
}

/// Results for one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// Figures of the table's row.
    #[serde(flatten)]
    pub figures: Figures,
    /// Number of messages whose received data was checked, on both sides.
    pub verified: u64,
    /// Number of these messages with wrong data.
    pub wrong: u64,
}

/// Messages that one side posted.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// Number of messages on each queue pair.
    done: Vec<u64>,
    /// Time from the first post to the last completion, in nanoseconds.
    elapsed_ns: u64,
    stamps: Option<Stamps>,
}

/// Results of a side that it sends to the other side.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SideReport {
    done: Vec<u64>,
    figures: Option<(u64, f64, f64, f64)>,
}

/// A connected measurement between two sides.
#[derive(Debug)]
pub struct RdmaBench<'a> {
    side: Side<'a>,
    setting: Setting,
    initiator: Initiator,
    // Dropped before `endpoint`: queue pairs must not outlive the memory that they access.
    driver: Driver,
    endpoint: Endpoint,
}

impl<'a> RdmaBench<'a> {
    /// Creates queue pairs, registers memory, and connects to the other side, which must call this function at the same
    /// time.
    ///
    /// # Errors
    /// * [`MeasureError::Refused`] if the setting cannot be measured, there are not two ranks, the two sides have
    ///   different settings, or the adapter has no verbs calls for [`Initiator::Verbs`].
    /// * [`MeasureError::Failed`] if the other side failed.
    /// * [`MeasureError::Rdma`], [`MeasureError::Memory`], [`MeasureError::Post`] or [`MeasureError::Bootstrap`] if a
    ///   queue pair, a registration or the exchange with the other side fails.
    pub fn new(side: Side<'a>, setting: Setting, initiator: Initiator) -> Result<Self, MeasureError> {
        let setting = setting.with_defaults();
        setting.check()?;
        let (endpoint, driver) = Endpoint::new(&side, &setting, initiator)?;
        Ok(Self { side, setting, initiator, driver, endpoint })
    }

    /// Returns the path that work requests take.
    pub fn path(&self) -> AdapterPath {
        self.side.adapter.path()
    }

    /// Returns the kind of memory that holds the messages: `GPU memory` or `host memory`.
    pub fn memory(&self) -> &'static str {
        self.endpoint.memory_name()
    }

    /// Returns the number of messages per doorbell write: `post_list`, limited to the lanes of a warp for a kernel.
    pub fn post_list(&self) -> u32 {
        match self.initiator {
            Initiator::Kernel => self.setting.post_list.min(self.side.engine.warp_width()),
            Initiator::Host | Initiator::Verbs => self.setting.post_list,
        }
    }

    /// Returns the text above the table.
    pub fn head<'h>(&'h self, path: &'h AdapterPath) -> table::Head<'h> {
        let (local, remote) = self.endpoint.addresses();
        // A kernel requests a completion for the last entry of each post; verbs calls request one for each message.
        let cq_mod = match self.initiator {
            Initiator::Kernel => self.post_list(),
            Initiator::Host => self.setting.cq_mod,
            Initiator::Verbs => 1,
        };
        table::Head { setting: &self.setting, path, inline_bytes: self.setting.inline_bytes, cq_mod, local, remote }
    }

    /// Returns true if this side posts messages.
    fn posts(&self) -> bool {
        let begins = self.side.ranks.rank() == self.side.client;
        begins || self.setting.bidirectional || self.setting.test.goes_there_and_back()
    }

    /// Returns the time limit of a wait for the other side.
    fn deadline(&self) -> Duration {
        LIMIT + self.setting.duration.unwrap_or_default() + self.side.deadline
    }

    /// Measures messages of `bytes` bytes. Both sides must call it with the same sizes in the same order. Both get the
    /// same row.
    ///
    /// # Errors
    /// * [`MeasureError::Stopped`] if the user cancelled the run.
    /// * [`MeasureError::Failed`] if a message or the other side failed.
    /// * [`MeasureError::Refused`] if there were too few messages for a row of the table.
    /// * [`MeasureError::Memory`], [`MeasureError::Engine`], [`MeasureError::Run`] or [`MeasureError::Bootstrap`] if
    ///   memory, a kernel or the exchange with the other side fails.
    pub fn measure(&mut self, bytes: u64) -> Result<Row, MeasureError> {
        self.endpoint.prepare(&self.setting, self.side.ranks.rank(), bytes)?;
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

    /// Exchanges the results of both sides and checks the received data.
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
            None => return Err(endpoint::other_side(other, "it sent no message")),
        };
        let checked = self.endpoint.check(&self.setting, bytes, me, &sent.done, &theirs.done)?;
        // The row of the table: the figures of the side whose messages it shows, or of both together.
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

    /// Returns the number of verified messages of both sides, and the client's row.
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

/// Returns an adapter's description of its failure in brackets; empty without one.
fn because(failure: Option<String>) -> String {
    failure.map_or_else(String::new, |f| format!(" ({f})"))
}

#[cfg(test)]
mod tests;
