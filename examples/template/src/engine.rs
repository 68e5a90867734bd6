//! Opens the engine that runs this program's kernels.

use warpbell::engine::{Engine, EngineError};

/// The image that build.rs compiled: `FAT_BINARY` for GPUs, and `cpu_image()` for CPU threads.
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/my_image.rs"));
}

/// Opens GPU 0, or CPU threads if this machine or this build has no GPU.
pub fn open() -> Result<Engine, EngineError> {
    let gpu = kernels::FAT_BINARY.ok_or(EngineError::NoDeviceImage).and_then(|binary| Engine::gpu_with(0, binary));
    gpu.or_else(|error| Engine::cpu_with(0, &kernels::cpu_image()?, Some(error.reason())))
}
