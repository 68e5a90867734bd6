//! Engines for tests: CPU threads, or GPUs if `WARPBELL_TEST_ENGINE` is `gpu`; or a GPU that is not there.

use super::gpu::GpuEngine;
use super::{Args, Backend, Engine, EngineError, Grid, Image, Operations, Outcome, Run, Stream};
use crate::cuda::{DeviceInfo, fake};
use crate::processors;

/// Most threads of a test's engine. As many tests run at once as there are processors; engines with that many threads
/// each would slow each other down.
const MOST_THREADS: usize = 4;

/// Returns a CPU engine for one of many tests.
pub(crate) fn cpu() -> Engine {
    let threads = processors::count().min(MOST_THREADS);
    Engine::builder().threads(threads).cpu().unwrap()
}

/// Returns the engine of PE `i`: the machine's GPUs in turn, or CPU threads.
pub(crate) fn engine(i: usize) -> Engine {
    match std::env::var("WARPBELL_TEST_ENGINE").as_deref() {
        Ok("gpu") => Engine::gpu(i % DeviceInfo::all().unwrap().len()).unwrap(),
        Ok(other) => panic!("WARPBELL_TEST_ENGINE is `{other}`: leave it out, or write gpu"),
        Err(_) => cpu(),
    }
}

/// Returns an engine on a GPU that is not there ([`fake`]), with these images alone.
pub(crate) fn fake_gpu(images: &[Image]) -> Result<(&'static fake::Gpu, Engine), EngineError> {
    let (gpu, context) = fake::Gpu::open();
    let (space, backend) = GpuEngine::on(context, &[], images)?;
    Ok((gpu, Engine::with(space, Backend::Gpu(backend))?))
}

/// Starts one of the crate's kernels.
pub(crate) fn start(engine: &Engine, kernel: &str, grid: Grid, args: Args) -> Result<Run, EngineError> {
    // SAFETY: tests pass arguments of the kernel's types, and memory by reference.
    unsafe { engine.launch(kernel, grid, args) }
}

/// Waits for the end of a run that was told to stop. No operation has failed but those that waited for room in a queue, as
/// where one thread uses one queue alone.
///
/// # Panics
/// If another operation has failed, or the run has.
pub(crate) fn finish_stopped(run: Run) {
    let Err(e) = run.finish() else { return };
    let waits = e.operations();
    assert!(!waits.is_empty() && waits.iter().all(|wait| wait.outcome == Outcome::Stopped), "{e:?}");
}

/// Launches one of the crate's kernels on a stream.
pub(crate) fn put(stream: &Stream, kernel: &str, grid: Grid, args: Args) -> Result<(), EngineError> {
    // SAFETY: tests pass arguments of the kernel's types, and memory by reference.
    unsafe { stream.launch(kernel, grid, args) }
}
