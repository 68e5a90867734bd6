//! The engine that `--engine` asks for, and the line that says which it is.

use crate::args::{EngineArgs, EngineChoice};
use crate::output::Failure;
use crate::remedy;
use warpbell::engine::{CpuImage, Engine, EngineError};

/// Opens the engine.
pub fn open(args: &EngineArgs) -> Result<Engine, Failure> {
    open_on(args, 0, args.threads.unwrap_or(0) as usize)
}

/// The same, with another GPU in place of the first unless one is named, and with so many CPU threads (0: as many as there are cores).
pub fn open_on(args: &EngineArgs, gpu: usize, threads: usize) -> Result<Engine, Failure> {
    let cpu = |note| Engine::cpu_with(threads, &CpuImage::shipped()?, note);
    let engine = match args.engine {
        EngineChoice::Gpu(named) => Engine::gpu(named.unwrap_or(gpu)).map_err(with_remedy)?,
        EngineChoice::Cpu => cpu(None)?,
        EngineChoice::Auto => match Engine::gpu(gpu) {
            Ok(gpu) => gpu,
            Err(e) => cpu(Some(e.reason()))?,
        },
    };
    engine.set_deadline(args.deadline)?;
    Ok(engine)
}

/// The same can be done on CPU threads.
fn with_remedy(e: EngineError) -> Failure {
    let other = remedy::of(&e).map(|r| format!("{r}, or ")).unwrap_or_default();
    Failure::Error(format!("{e}; {other}use --engine cpu"))
}
