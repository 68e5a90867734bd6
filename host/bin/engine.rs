//! Opens the engine that `--engine` selects.

use crate::args::{EngineArgs, EngineChoice};
use crate::output::Failure;
use crate::remedy;
use std::time::Duration;
use warpbell::engine::{Engine, EngineError};

/// Opens the engine.
///
/// # Errors
/// [`Failure::Error`] if the engine cannot be opened.
pub fn open(args: &EngineArgs) -> Result<Engine, Failure> {
    open_on(args, 0, args.threads.unwrap_or(0) as usize)
}

/// Opens the engine for one of several PEs: GPU number `gpu` unless `--engine` names one, or `threads` CPU threads (0:
/// one for each core).
///
/// # Errors
/// [`Failure::Error`] if the engine cannot be opened. `auto` falls back to the CPU engine if the GPU fails.
pub fn open_on(args: &EngineArgs, gpu: usize, threads: usize) -> Result<Engine, Failure> {
    let builder = Engine::builder().threads(threads);
    let engine = match args.engine {
        EngineChoice::Gpu(named) => builder.gpu(named.unwrap_or(gpu)).map_err(with_remedy)?,
        EngineChoice::Cpu => builder.cpu()?,
        EngineChoice::Auto => builder.auto_on(gpu)?,
    };
    engine.set_deadline(args.deadline)?;
    Ok(engine)
}

/// Opens the engine of a command that starts no kernels, with the time limit of one command of a device.
///
/// # Errors
/// [`Failure::Error`] if the engine cannot be opened.
pub fn for_host(deadline: Duration) -> Result<Engine, Failure> {
    let engine = Engine::cpu()?;
    engine.set_deadline(deadline)?;
    Ok(engine)
}

/// Adds `--engine cpu` to the remedies of a GPU engine's error.
fn with_remedy(e: EngineError) -> Failure {
    let other = remedy::of(&e).map(|r| format!("{r}, or ")).unwrap_or_default();
    Failure::Error(format!("{e}; {other}use --engine cpu"))
}
