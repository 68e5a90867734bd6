//! Report of a command: text for people and JSON for programs.

use serde::Serialize;
use std::time::Duration;
use warpbell::engine::{Engine, EngineKind};
use warpbell::processors;
use warpbell::storage::Redundancy;

/// Report of one command: settings, machine, data path and results.
#[derive(Clone, Debug, Serialize)]
pub struct Report<C: Serialize, R: Serialize> {
    /// Every setting that affects the figures.
    pub config: C,
    /// The machine and the program.
    pub environment: Environment,
    /// Data path of commands and data; absent if there was no device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathReport>,
    /// Measured figures.
    pub results: R,
}

impl<C: Serialize, R: Serialize> Report<C, R> {
    /// Creates a report of this version of the program.
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
    /// Name of the engine.
    pub engine_name: String,
    /// Reason why this engine was chosen over another, if there was a choice.
    pub engine_note: Option<String>,
    /// Number of threads that run at the same time.
    pub engine_threads: usize,
    /// Lanes in a warp.
    pub warp_width: u32,
    /// The GPU, if kernels run on one.
    pub gpu: Option<warpbell::cuda::DeviceInfo>,
    /// GPU generations that this program has machine code for.
    pub image_archs: &'static str,
    /// Processor cores that this process may use.
    pub cores: usize,
    /// Processors that the program uses: `cores`, unless `WARPBELL_PROCESSORS` replaces it.
    pub processors: usize,
    /// Operating system, as in `linux`.
    pub os: &'static str,
    /// Processor architecture, as in `x86_64`.
    pub arch: &'static str,
    /// True if debug assertions are enabled: the figures cannot be compared with others.
    pub debug_build: bool,
}

impl Environment {
    /// Describes this machine, with kernels on `engine`.
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

/// Data path of commands and data.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// Devices, queue memory, landing and doorbells.
    #[serde(flatten)]
    pub path: warpbell::storage::Path,
    /// I/O queue pairs on each device.
    pub queue_pairs: u32,
    /// Entries in each queue.
    pub depth: u32,
    /// Size of a logical block in bytes.
    pub block_bytes: u64,
    /// State of the copies of a replicated volume after the measurement; absent for other volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Redundancy>,
}

/// Converts a duration to whole nanoseconds, the unit of times in JSON; saturates.
pub fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
