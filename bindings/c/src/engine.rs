//! Engines, and the images of kernels that programs add to them.

use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::options::{self, Options, owned_text};
use crate::pointer::{In, Out, Owned, Text};
use std::borrow::Cow;
use std::ffi::{c_char, c_void};
use warpbell::engine::{CpuImage, Engine, EngineBuilder, EngineKind, Grid, Image};

/// An engine: a GPU or CPU threads that run kernels. `wb_engine_open` makes it.
pub struct wb_engine_t {
    _private: (),
}

object!(wb_engine_t: Engine, "engine");

/// A GPU if there is one with kernels for it, otherwise CPU threads.
pub const WB_ENGINE_AUTO: u32 = 0;
/// CPU threads.
pub const WB_ENGINE_CPU: u32 = 1;
/// A GPU.
pub const WB_ENGINE_GPU: u32 = 2;

/// Symbol that `WB_IMAGE(symbol)` defines in a source of kernels for CPU threads.
pub type wb_cpu_image = Option<unsafe extern "C" fn() -> *const c_void>;

/// Kernels of a program, compiled for CPU threads, for GPUs, or for both. `warpbell_add_image` of the CMake package
/// defines one.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_image {
    /// `sizeof(wb_image)`.
    pub size: usize,
    /// Name for messages.
    pub name: Text,
    /// Kernels for CPU threads, or null.
    pub cpu: wb_cpu_image,
    /// Kernels for GPUs: fat binaries, cubins or PTX, or null.
    pub gpu: In<In<c_void>>,
    /// Bytes of each of them. An entry of 0 bytes is left out.
    pub gpu_bytes: In<usize>,
    /// Number of them.
    pub gpu_count: usize,
}

// SAFETY: numbers, pointers and an optional function; the size comes first.
unsafe impl Options for wb_image {
    const NAME: &str = "wb_image";
}

/// Options of `wb_engine_open`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_engine_options {
    /// `sizeof(wb_engine_options)`.
    pub size: usize,
    /// `WB_ENGINE_AUTO`, `WB_ENGINE_CPU` or `WB_ENGINE_GPU`.
    pub kind: u32,
    /// Ordinal of the GPU, as of the CUDA driver.
    pub gpu: u32,
    /// CPU threads of an engine on CPU threads; 0 for as many as the machine has processors.
    pub threads: u32,
    /// 1 leaves out the kernels that ship with the library: graph algorithms, host calls of worlds and of arrays.
    pub without_shipped: u32,
    /// Images of the program, or null.
    pub images: In<In<wb_image>>,
    /// Number of images.
    pub image_count: usize,
}

// SAFETY: numbers and pointers; the size comes first.
unsafe impl Options for wb_engine_options {
    const NAME: &str = "wb_engine_options";
}

/// Blocks and threads of a launch, both in one dimension.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct wb_grid {
    /// Number of blocks.
    pub blocks: u32,
    /// Threads in each block: a multiple of the warp's width.
    pub threads: u32,
}

impl From<Grid> for wb_grid {
    fn from(grid: Grid) -> Self {
        Self { blocks: grid.blocks, threads: grid.threads }
    }
}

impl From<wb_grid> for Grid {
    fn from(grid: wb_grid) -> Self {
        Self { blocks: grid.blocks, threads: grid.threads }
    }
}

fn image(image: In<wb_image>) -> Result<Image, Error> {
    if image.is_null() {
        return Err(Error::argument("an entry of `images` is null"));
    }
    let wb_image { name, cpu, gpu, gpu_bytes, gpu_count, .. } = image.read()?;
    let mut made = Image::new(name.text("wb_image.name")?);
    if let Some(symbol) = cpu {
        // SAFETY: `WB_IMAGE` defined the function; the fingerprint of its headers is checked.
        made = made.cpu(unsafe { CpuImage::from_symbol(symbol) }?);
    }
    let parts = gpu.list(gpu_count, "wb_image.gpu")?;
    let sizes = gpu_bytes.list(gpu_count, "wb_image.gpu_bytes")?;
    for (&part, &bytes) in parts.iter().zip(sizes) {
        let part = part.bytes(bytes, "an entry of wb_image.gpu")?;
        made = made.gpu(Cow::Owned(part.to_vec()));
    }
    Ok(made)
}

/// Opens an engine.
///
/// @param options Options, or null for the defaults.
/// @param engine Receives the engine, with one reference.
/// @return `WB_OK`; `WB_ERR_UNSUPPORTED` if there is no such GPU or an image has no kernels for it; `WB_ERR_EXISTS` if two
///   images have a kernel of one name.
/// @note Any thread. Images may be freed after the call, but not the code of kernels for CPU threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_engine_open(options: In<wb_engine_options>, engine: Out<*mut wb_engine_t>) -> wb_code {
    guard(|| {
        engine.check("engine")?;
        let options = options.read()?;
        let images = options.images.list(options.image_count, "images")?;
        let mut builder: EngineBuilder = Engine::builder().shipped(options.without_shipped == 0);
        for &one in images {
            builder = builder.image(image(one)?);
        }
        if options.threads != 0 {
            builder = builder.threads(options.threads as usize);
        }
        let ordinal = options.gpu as usize;
        let opened = match options.kind {
            WB_ENGINE_AUTO => builder.auto_on(ordinal)?,
            WB_ENGINE_CPU => builder.cpu()?,
            WB_ENGINE_GPU => builder.gpu(ordinal)?,
            other => {
                return Err(Error::argument(format!(
                    "`kind` is {other}; use WB_ENGINE_AUTO, WB_ENGINE_CPU or WB_ENGINE_GPU"
                )));
            }
        };
        engine.give(opened)
    })
}

/// Adds a reference to an engine.
///
/// @return The engine; null with an error if it is no engine.
/// @note Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_engine_retain(engine: Owned<wb_engine_t>) -> *mut wb_engine_t {
    engine.retain()
}

/// Gives a reference to an engine back. Volumes, worlds and others keep the engine that they use.
///
/// @param engine The engine; null is ignored.
/// @note Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_engine_release(engine: Owned<wb_engine_t>) {
    engine.release()
}

/// Returns the kind of an engine.
///
/// @param kind Receives `WB_ENGINE_CPU` or `WB_ENGINE_GPU`.
/// @note Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_engine_kind(engine: In<wb_engine_t>, kind: Out<u32>) -> wb_code {
    guard(|| {
        let found = match engine.get()?.kind() {
            EngineKind::Cpu => WB_ENGINE_CPU,
            EngineKind::Gpu => WB_ENGINE_GPU,
        };
        kind.write("kind", found)
    })
}

/// Describes an engine as JSON: kind, name, reason for the choice, threads, width of a warp, kernels, GPU.
///
/// @param json Receives the text. Free it with `wb_string_free`.
/// @note Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_engine_info(engine: In<wb_engine_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let info = engine.get()?.info();
        json.write("json", owned_text(as_json(&info)?))
    })
}

/// Returns a value as JSON.
pub(crate) fn as_json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Error::new(crate::error::WB_ERR_INTERNAL, format!("no JSON: {e}")))
}

/// Returns a grid that fills the engine.
///
/// @param threads_per_block Threads in each block.
/// @param blocks_per_processor Blocks for each processor of the GPU, or each CPU thread.
/// @param grid Receives the grid.
/// @note Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_engine_grid(
    engine: In<wb_engine_t>,
    threads_per_block: u32,
    blocks_per_processor: u32,
    grid: Out<wb_grid>,
) -> wb_code {
    guard(|| {
        let made = engine.get()?.grid(threads_per_block, blocks_per_processor);
        grid.write("grid", made.into())
    })
}

/// Sets the longest time of one wait inside kernels: for a completion, for another PE.
///
/// @param seconds The time; 0 for the default of 10 s.
/// @note Any thread. Kernels that run already keep theirs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_engine_set_deadline(engine: In<wb_engine_t>, seconds: f64) -> wb_code {
    guard(|| {
        let deadline = options::seconds(seconds, "seconds")?.unwrap_or(warpbell::engine::DEFAULT_DEADLINE);
        Ok(engine.get()?.set_deadline(deadline)?)
    })
}

/// Stops all kernels of an engine, and refuses later ones until `wb_engine_resume`. For Ctrl-C.
///
/// @note Any thread, also while other threads wait in calls of this engine that run kernels: they return `WB_ERR_STOPPED`. Calls in
///   which hosts wait for each other (`wb_world_create`, `wb_world_barrier_host`, `wb_symmetric_allocate`) end by the world's timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_engine_cancel(engine: In<wb_engine_t>) -> wb_code {
    guard(|| Ok(engine.get()?.cancel()?))
}

/// Makes a cancelled engine usable again.
///
/// @return `WB_OK`; `WB_ERR_BUSY` while runs are in flight: finish or release them first.
/// @note Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_engine_resume(engine: In<wb_engine_t>) -> wb_code {
    guard(|| Ok(engine.get()?.resume()?))
}
