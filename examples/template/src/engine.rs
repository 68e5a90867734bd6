//! Opens the engine that runs this program's kernels.

use warpbell::engine::{Engine, EngineError, Image};

/// The image that build.rs compiled: `FAT_BINARY` for GPUs, and `cpu_image()` for CPU threads.
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/my_image.rs"));
}

/// Opens GPU 0, or CPU threads if this machine or this build has no GPU.
pub fn open() -> Result<Engine, EngineError> {
    let image = Image::new("my kernels").cpu(kernels::cpu_image()?).gpu(kernels::FAT_BINARY.unwrap_or_default());
    Engine::builder().image(image).auto()
}
