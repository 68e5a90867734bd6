//! What a run of the program reports, as text for people and as JSON for programs.

use serde::Serialize;
use std::time::Duration;
use warpbell::engine::{Engine, EngineKind};
use warpbell::processors;
use warpbell::storage::Redundancy;

/// One report: what was asked, where it ran, by which path, what came out.
#[derive(Clone, Debug, Serialize)]
pub struct Report<C: Serialize, R: Serialize> {
    /// Every setting that changes the figures.
    pub config: C,
    /// The machine and the program.
    pub environment: Environment,
    /// How commands and data travelled; absent when there was no device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathReport>,
    /// What was measured.
    pub results: R,
}

impl<C: Serialize, R: Serialize> Report<C, R> {
    /// A report of this version of the program.
    pub fn new(config: C, engine: &Engine, path: Option<PathReport>, results: R) -> Self {
        Self { config, environment: Environment::of(engine), path, results }
    }
}

/// The machine and the program.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// Version of this crate.
    pub version: &'static str,
    /// Kind of engine.
    pub engine: EngineKind,
    /// The engine in words.
    pub engine_name: String,
    /// Why it was chosen over another, if there was a choice.
    pub engine_note: Option<String>,
    /// Threads that run at once.
    pub engine_threads: usize,
    /// Lanes in a warp.
    pub warp_width: u32,
    /// The GPU, if kernels run on one.
    pub gpu: Option<warpbell::cuda::DeviceInfo>,
    /// GPU generations that this program has machine code for.
    pub image_archs: &'static str,
    /// Processor cores that this process may use.
    pub cores: usize,
    /// Processors that the program counts on: `cores`, or what `WARPBELL_PROCESSORS` says instead.
    pub processors: usize,
    /// `linux` and so on.
    pub os: &'static str,
    /// `x86_64` and so on.
    pub arch: &'static str,
    /// Debug assertions are on: figures are not to be compared.
    pub debug_build: bool,
}

impl Environment {
    /// Of the machine this runs on, with kernels on `engine`.
    pub fn of(engine: &Engine) -> Self {
        let info = engine.info();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            engine: info.kind,
            engine_name: info.name,
            engine_note: info.note,
            engine_threads: info.threads,
            warp_width: info.warp_width,
            gpu: info.gpu,
            image_archs: env!("WARPBELL_IMAGE_ARCHS"),
            cores: processors::of_system(),
            processors: processors::count(),
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            debug_build: cfg!(debug_assertions),
        }
    }
}

/// How commands and data travelled.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// Devices, queues, landing, doorbell.
    #[serde(flatten)]
    pub path: warpbell::storage::Path,
    /// I/O queue pairs on each device.
    pub queue_pairs: u32,
    /// Entries in each queue.
    pub depth: u32,
    /// Logical block.
    pub block_bytes: u64,
    /// The copies of a replicated volume after the measurement; absent on others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Redundancy>,
}

/// Least, middle and greatest of several measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// Middle; of an even number the mean of the two in the middle.
    pub median: f64,
    /// Greatest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut v: Vec<f64> = values.into_iter().collect();
        v.sort_by(f64::total_cmp);
        let middle = v.len() / 2;
        let median = match v.len() {
            0 => return None,
            n if n.is_multiple_of(2) => (v[middle - 1] + v[middle]) / 2.0,
            _ => v[middle],
        };
        Some(Self { min: v[0], median, max: v[v.len() - 1] })
    }
}

/// Whole nanoseconds, as JSON has times.
pub fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_have_their_middle() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn a_report_without_a_device_has_no_path() {
        let engine = Engine::cpu().unwrap();
        let report = Report::new((), &engine, None, [1u64]);
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(json["environment"]["engine"], "cpu");
        assert_eq!(json["results"][0], 1);
        assert!(json.get("path").is_none());
    }
}
