//! Opens the engine that runs this program's kernels.

use std::ffi::c_void;
use warpbell::engine::{CpuImage, Engine, EngineError, Image};

/// Kernels for GPUs; empty if there was no nvcc.
static FATBIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/image.fatbin"));

unsafe extern "C" {
    // Kernels for CPU threads: WB_IMAGE in kernels/image.cu defines it.
    fn my_image() -> *const c_void;
}

/// Opens GPU 0, or CPU threads if this machine or this build has no GPU.
pub fn open() -> Result<Engine, EngineError> {
    // SAFETY: WB_IMAGE defines the symbol, compiled against the headers of the warpbell that is linked.
    let image = unsafe { CpuImage::from_symbol(my_image) }?;
    Engine::builder().image(Image::new("my kernels").cpu(image).gpu(FATBIN)).auto()
}
