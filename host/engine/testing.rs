//! Which engine tests run on: CPU threads, or GPUs where `WARPBELL_TEST_ENGINE` is `gpu`.

use super::{Args, CpuImage, Engine, EngineError, Grid, Run, Stream};
use crate::cuda::DeviceInfo;
use crate::processors;

/// Tests run side by side, as many as there are processors. Engines of all of them with a thread for each would be in each other's way.
const MOST_THREADS: usize = 4;

/// CPU threads for one test of many.
pub(crate) fn cpu() -> Engine {
    let threads = processors::count().min(MOST_THREADS);
    Engine::cpu_with(threads, &CpuImage::shipped().unwrap(), None).unwrap()
}

/// The engine of PE `i`: the GPUs of the machine in turn, or CPU threads.
pub(crate) fn engine(i: usize) -> Engine {
    match std::env::var("WARPBELL_TEST_ENGINE").as_deref() {
        Ok("gpu") => Engine::gpu(i % DeviceInfo::all().unwrap().len()).unwrap(),
        Ok(other) => panic!("WARPBELL_TEST_ENGINE is `{other}`: leave it out, or write gpu"),
        Err(_) => cpu(),
    }
}

/// Starts a kernel of the crate's own.
pub(crate) fn start(engine: &Engine, kernel: &str, grid: Grid, args: Args) -> Result<Run, EngineError> {
    // SAFETY: tests pass what the kernel takes, and memory by reference.
    unsafe { engine.launch(kernel, grid, args) }
}

/// Puts a kernel of the crate's own into a stream.
pub(crate) fn put(stream: &Stream, kernel: &str, grid: Grid, args: Args) -> Result<(), EngineError> {
    // SAFETY: as in `start`.
    unsafe { stream.launch(kernel, grid, args) }
}
