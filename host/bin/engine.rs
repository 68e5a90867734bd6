//! The engine that `--engine` asks for, and the line that says which it is.

use crate::args::{EngineArgs, EngineChoice};
use crate::output::Failure;
use warpbell::engine::{CpuImage, Engine, EngineError};

/// Opens the engine.
pub fn open(args: &EngineArgs) -> Result<Engine, Failure> {
    let cpu = |note| Engine::cpu_with(args.threads.unwrap_or(0) as usize, &CpuImage::shipped()?, note);
    let engine = match args.engine {
        EngineChoice::Gpu(ordinal) => Engine::gpu(ordinal).map_err(with_way_out)?,
        EngineChoice::Cpu => cpu(None)?,
        EngineChoice::Auto => match Engine::gpu(0) {
            Ok(gpu) => gpu,
            // What to do about it belongs into an error; here it is only the reason of a choice.
            Err(e) => cpu(Some(e.to_string().split(';').next().unwrap_or_default().to_owned()))?,
        },
    };
    engine.set_deadline(args.deadline)?;
    Ok(engine)
}

/// An error that does not say so already ends with the way out.
fn with_way_out(e: EngineError) -> Failure {
    let text = e.to_string();
    Failure::Error(if text.contains("--engine cpu") { text } else { format!("{text}; or use --engine cpu") })
}
