//! Losses of power: a recorder below the back ends of files, and QEMU's log below its controller, see all writes and flushes of a
//! scenario. Each run cuts the power at one place of a recording: what a flush covers is there, of the rest any part, torn at sectors.
//! Then the volume is opened, checked, used further, and sometimes cut off once more.
//!
//! Runs share the recording of [`RUNS`] neighbouring seeds. Threads may order the requests of a recording otherwise the next time, so
//! that the same seed cuts it at another place; a failure says what was lost.

mod changes;
mod contents;
mod devices;
mod image;
mod interposed;
mod kv;
mod log_writes;
mod recorder;
mod recording;
mod rings;
mod scenario;

use crate::campaign::{Campaign, Outcome};
use crate::random::Random;
use changes::{Changes, Method};
use contents::{Contents, Step};
use devices::{BackEnd, Shape, has_qemu};
use kv::Kv;
use recording::Recording;
use scenario::Scenario;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use warpbell::engine::Engine;

/// Runs that share a recording.
const RUNS: u64 = 32;
/// Recordings that are kept.
const KEPT: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Import,
    Replace,
    Delete,
    Table,
    Store,
    Scatter,
    WriteBack,
    Kv,
    Repair,
}

impl Operation {
    const ALL: [Self; 9] = [
        Self::Import,
        Self::Replace,
        Self::Delete,
        Self::Table,
        Self::Store,
        Self::Scatter,
        Self::WriteBack,
        Self::Kv,
        Self::Repair,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Import => "graph import",
            Self::Replace => "graph replaced",
            Self::Delete => "graph delete",
            Self::Table => "table store",
            Self::Store => "store of all",
            Self::Scatter => "table scatter",
            Self::WriteBack => "cache write-back",
            Self::Kv => "KV store",
            Self::Repair => "repair",
        }
    }

    fn scenario(self, random: &mut Random) -> Box<dyn Scenario> {
        let mut seed = || random.below(1000);
        let [a, b, c] = [seed(), seed(), seed()];
        let contents = |prepared: &[Step], steps: &[Step]| Box::new(Contents::new(prepared.to_vec(), steps.to_vec()));
        // On a new device, or beside something else.
        let beside: &[Step] = if a.is_multiple_of(3) { &[] } else { &[Step::Table(b)] };
        match self {
            Self::Import => contents(beside, &[Step::Import(c)]),
            // The superblock that is written has graphs of the same form before it, in the same place.
            Self::Replace => {
                contents(&[Step::Table(a), Step::Import(b), Step::Import(a)], &[Step::Import(c), Step::Import(b)])
            }
            Self::Delete => contents(&[Step::Import(a), Step::Table(b)], &[Step::DeleteGraph, Step::DeleteTable]),
            Self::Table => contents(&[Step::Import(a)], &[Step::Table(b), Step::Table(c)]),
            Self::Store if a.is_multiple_of(4) => contents(&[], &[Step::Store(b)]),
            Self::Store => contents(&[Step::Store(a)], &[Step::Store(b)]),
            Self::Repair => Box::new(Contents::new(vec![Step::Import(a)], vec![Step::Repair]).damaged_by(b)),
            Self::Scatter => Box::new(Changes::new(Method::Scatter(random.of(&[64, 50, 512, 1024])), random)),
            Self::WriteBack => Box::new(Changes::new(Method::Cache, random)),
            Self::Kv => Box::new(Kv::new(random)),
        }
    }
}

/// A recording that one run makes, and others wait for.
type Shared = Arc<OnceLock<Result<Recording, String>>>;

/// Random losses of power.
pub struct Crashes {
    has_qemu: bool,
    recordings: Mutex<VecDeque<(u64, Shared)>>,
}

impl Crashes {
    pub fn new() -> Self {
        let has_qemu = has_qemu();
        if !has_qemu {
            eprintln!("crashes: no qemu-system-x86_64, so the runs with QEMU's controller are left out");
        }
        Self { has_qemu, recordings: Mutex::default() }
    }

    fn recording(&self, number: u64) -> Shared {
        let mut recordings = self.recordings.lock().unwrap();
        if let Some((_, shared)) = recordings.iter().find(|(n, _)| *n == number) {
            return Arc::clone(shared);
        }
        let shared = Shared::default();
        recordings.push_back((number, Arc::clone(&shared)));
        if recordings.len() > KEPT {
            recordings.pop_front();
        }
        shared
    }
}

/// Returns the operation and the back end of a recording.
fn choice(number: u64) -> (Operation, BackEnd) {
    let (operations, ends) = (Operation::ALL.len() as u64, BackEnd::ALL.len() as u64);
    (Operation::ALL[(number % operations) as usize], BackEnd::ALL[(number / operations % ends) as usize])
}

impl Campaign for Crashes {
    fn kind(&self, seed: u64) -> String {
        let (operation, back_end) = choice(seed / RUNS);
        format!("{}, {}", operation.name(), back_end.name())
    }

    fn run(&self, seed: u64) -> Outcome {
        let number = seed / RUNS;
        let (operation, back_end) = choice(number);
        if back_end == BackEnd::Qemu && !self.has_qemu {
            return Ok("left out");
        }
        let engine = Engine::builder().threads(2).cpu().map_err(|e| e.to_string())?;
        let shared = self.recording(number);
        let recording = shared.get_or_init(|| {
            let mut random = Random::new(number);
            let shape = Shape::of(&mut random, operation == Operation::Repair);
            Recording::new(&engine, shape, back_end, operation.scenario(&mut random))
        });
        let recording = recording.as_ref().map_err(|e| format!("recording {number}: {e}"))?;
        let mut random = Random::new(seed);
        let depth = u32::from(random.once_in(4));
        recording.cut(&engine, &mut random, depth)
    }
}
