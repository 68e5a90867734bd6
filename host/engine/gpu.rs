//! Kernels on a GPU.

use super::image::{self, Image};
use super::{EngineError, Grid, abi};
use crate::cuda::{self, CudaError};
use crate::memory::Space;
use crate::remedy::told;
use std::any::Any;
use std::collections::HashSet;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Threads in a warp, on every GPU so far.
pub(super) const WARP: u32 = 32;

/// Far longer than a first launch takes.
const FIRST_ANSWER: Duration = Duration::from_secs(30);

/// Kernels of one or more images on one GPU.
#[derive(Debug)]
pub(super) struct GpuEngine {
    context: Arc<cuda::Context>,
    launcher: Arc<cuda::Launcher>,
    checked: bool,
}

/// A kernel in flight.
pub(super) struct GpuRun(cuda::Launch);

/// GPU generations in the image that ships with the crate, as in `80 90 100`. Empty if the crate was built without
/// nvcc.
pub const IMAGE_ARCHS: &str = env!("WARPBELL_IMAGE_ARCHS");

/// The fat binaries that ship with the crate, one for each file of kernels. Empty if the crate was built without nvcc.
static SHIPPED: &[&[u8]] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

impl GpuEngine {
    /// Opens a GPU with the kernels of `images`, and with those that ship with the crate if `is_shipped_wanted`. Reports
    /// a missing driver or GPU before a missing image: without a GPU, an image would be of no use.
    pub(super) fn open(
        ordinal: usize,
        is_shipped_wanted: bool,
        images: &[Image],
    ) -> Result<(Space, Self), EngineError> {
        let context = cuda::Context::open(ordinal)?;
        Self::on(context, if is_shipped_wanted { SHIPPED } else { &[] }, images)
    }

    /// Loads images in a context. `shipped` are the parts of the image that ships with the crate.
    pub(super) fn on(
        context: Arc<cuda::Context>,
        shipped: &[&[u8]],
        images: &[Image],
    ) -> Result<(Space, Self), EngineError> {
        if shipped.is_empty() && images.is_empty() {
            return Err(EngineError::NoDeviceImage);
        }
        let (mut modules, mut owners) = (Vec::new(), Vec::new());
        for part in shipped {
            modules.push(cuda::Module::load(&context, part)?);
            owners.push(image::SHIPPED);
        }
        for image in images {
            for part in image.for_gpu()? {
                let module = cuda::Module::load(&context, part)?;
                // nvJitLink completes with success and without content if the program has ignored an error before.
                if module.names().next().is_none() {
                    return Err(EngineError::EmptyImage { image: image.name().to_owned(), bytes: part.len() });
                }
                modules.push(module);
                owners.push(image.name());
            }
        }
        let names = owners.iter().zip(&modules).flat_map(|(image, m)| m.names().map(|n| (*image, n.to_owned())));
        image::check_names(names)?;
        // Kernels of a program may wait for each other. Of the shipped kernels, only those of a world do.
        let own = modules[shipped.len()..].iter().map(|m| m.most_local_bytes("")).max();
        context.reserve_local_memory(own.unwrap_or(0))?;
        let launcher = cuda::Launcher::new(&context, modules);
        let checked = identify_all(&context, &launcher, &owners)?;
        Ok((Space::gpu(context.clone()), Self { context, launcher, checked }))
    }

    pub(super) fn info(&self) -> &cuda::DeviceInfo {
        self.context.info()
    }

    /// Reserves local memory for the kernels whose names begin with `prefix`.
    pub(super) fn prepare(&self, prefix: &str) -> Result<(), EngineError> {
        let most = self.launcher.modules().iter().map(|m| m.most_local_bytes(prefix)).max();
        Ok(self.context.reserve_local_memory(most.unwrap_or(0))?)
    }

    pub(super) fn stack_limit(&self) -> Option<cuda::StackLimit> {
        self.context.stack_limit()
    }

    pub(super) fn is_checked(&self) -> bool {
        self.checked
    }

    pub(super) fn kernels(&self) -> Vec<String> {
        let mut names: Vec<_> = self.launcher.modules().iter().flat_map(|m| m.names()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    pub(super) fn threads(&self) -> usize {
        self.info().resident_threads()
    }

    pub(super) fn grid(&self, threads: u32, blocks_per_processor: u32) -> Grid {
        Grid { blocks: self.info().processors.saturating_mul(blocks_per_processor), threads }
    }

    fn function(&self, kernel: &str) -> Result<&cuda::Function, EngineError> {
        self.launcher.function(kernel).ok_or_else(|| EngineError::NoKernel(kernel.to_owned()))
    }

    pub(super) fn occupancy(&self, kernel: &str, threads: u32) -> Result<u32, EngineError> {
        let function = self.function(kernel)?;
        check_grid(kernel, Grid { blocks: 1, threads }, function.max_threads)?;
        Ok(self.launcher.occupancy(function, threads)?)
    }

    #[cfg(feature = "internals")]
    pub(super) fn check_grid(&self, kernel: &str, grid: Grid) -> Result<(), EngineError> {
        check_grid(kernel, grid, self.function(kernel)?.max_threads)
    }

    #[cfg(feature = "internals")]
    pub(super) fn registers(&self, kernel: &str) -> Result<u32, EngineError> {
        Ok(self.function(kernel)?.registers)
    }

    /// # Safety
    /// As [`Engine::launch`](super::Engine::launch).
    pub(super) unsafe fn launch(&self, kernel: &str, grid: Grid, mut args: super::Args) -> Result<GpuRun, EngineError> {
        let function = self.launchable(kernel, grid, &args)?;
        let mut parameters = args.pointers();
        // SAFETY: the sizes are those that the kernel takes, and the driver copies the values during the call. The
        // caller vouches for the memory that they point to.
        let launch = unsafe { self.launcher.launch(function, grid.blocks, grid.threads, &mut parameters) }?;
        Ok(GpuRun(launch))
    }

    fn launchable(&self, kernel: &str, grid: Grid, args: &super::Args) -> Result<&cuda::Function, EngineError> {
        let function = self.function(kernel)?;
        check_arguments(kernel, &function.parameters, args.sizes())?;
        check_grid(kernel, grid, function.max_threads)?;
        Ok(function)
    }

    #[cfg(feature = "internals")]
    pub(super) fn within<R>(&self, f: impl FnOnce() -> R) -> Result<R, EngineError> {
        Ok(self.context.within(f)?)
    }

    pub(super) fn queue(&self) -> Result<GpuQueue, EngineError> {
        Ok(GpuQueue(cuda::Stream::new(&self.launcher)?))
    }

    /// Returns a queue on a stream of other code.
    ///
    /// # Safety
    /// As [`Engine::adopt_stream`](super::Engine::adopt_stream).
    pub(super) unsafe fn adopt(
        &self,
        raw: *mut c_void,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<GpuQueue, EngineError> {
        // SAFETY: this function's caller makes the same promise.
        Ok(GpuQueue(unsafe { cuda::Stream::adopt(&self.launcher, raw, keep) }?))
    }

    /// Begins a run of work that other code puts on a stream.
    ///
    /// # Safety
    /// `stream` must be a stream of this engine's context, and stay valid until the run has ended.
    pub(super) unsafe fn external(&self, stream: *mut c_void) -> Result<GpuRun, EngineError> {
        // SAFETY: this function's caller makes the same promise.
        Ok(GpuRun(unsafe { self.launcher.external(stream.cast()) }?))
    }

    /// Adds a kernel to a queue of this engine.
    ///
    /// # Safety
    /// As [`Engine::launch`](super::Engine::launch), until the queue has been waited for.
    pub(super) unsafe fn enqueue(
        &self,
        queue: &mut GpuQueue,
        kernel: &str,
        grid: Grid,
        mut args: super::Args,
    ) -> Result<(), EngineError> {
        let function = self.launchable(kernel, grid, &args)?;
        let mut parameters = args.pointers();
        // SAFETY: this function's caller makes the same promise.
        Ok(unsafe { queue.0.launch(function, grid.blocks, grid.threads, &mut parameters) }?)
    }
}

/// Kernels in flight that run one after another.
pub(super) struct GpuQueue(cuda::Stream);

impl GpuQueue {
    pub(super) fn wait(&mut self, within: Duration) -> Result<bool, String> {
        self.0.wait(within).map_err(in_words)
    }

    /// Waits for all work of the stream, that of other code included.
    pub(super) fn drain(&mut self, within: Duration) -> Result<bool, EngineError> {
        Ok(self.0.drain(within)?)
    }

    /// Fails if the stream is being captured.
    pub(super) fn refuse_capture(&self) -> Result<(), EngineError> {
        Ok(self.0.refuse_capture()?)
    }

    /// # Safety
    /// As [`cuda::Stream::operate`].
    pub(super) unsafe fn operate(&mut self, operations: &[cuda::MemoryOperation]) -> Result<(), EngineError> {
        // SAFETY: this function's caller makes the same promise.
        Ok(unsafe { self.0.operate(operations) }?)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.0.raw().cast()
    }

    /// # Safety
    /// `other` must be a valid stream.
    pub(super) unsafe fn wait_for(&self, other: *mut c_void) -> Result<(), EngineError> {
        // SAFETY: this function's caller makes the same promise.
        Ok(unsafe { self.0.wait_for(other.cast()) }?)
    }
}

fn in_words(e: CudaError) -> String {
    match e {
        CudaError::Call(call) => format!("{} ({}), {}; {}", call.name, call.code, call.text, call.next),
        other => told(&other),
    }
}

/// Checks the fingerprint of each image. `owners` has the image's name for each module of the launcher. Returns true if
/// all images were compiled with `WB_CHECKED=1`.
fn identify_all(
    context: &Arc<cuda::Context>,
    launcher: &Arc<cuda::Launcher>,
    owners: &[&str],
) -> Result<bool, EngineError> {
    let mismatch = |image: &str, found| EngineError::AbiMismatch {
        image: Some(image.to_owned()),
        found,
        host: abi::fingerprint(),
    };
    let (mut identified, mut is_checked) = (HashSet::new(), true);
    for (image, module) in owners.iter().zip(launcher.modules()) {
        let Some(function) = module.function(image::IDENTIFY) else { continue };
        let [found, flags] = identify(context, launcher, function)?;
        if found != abi::fingerprint() {
            return Err(mismatch(image, found));
        }
        is_checked &= flags & u64::from(abi::IMAGE_CHECKED) != 0;
        identified.insert(*image);
    }
    match owners.iter().find(|image| !identified.contains(*image)) {
        Some(image) => Err(mismatch(image, 0)),
        None => Ok(is_checked),
    }
}

/// Returns the ABI fingerprint and the flags that an image was compiled with. Its kernel returns the values, so a success
/// also proves that the GPU works.
fn identify(
    context: &Arc<cuda::Context>,
    launcher: &Arc<cuda::Launcher>,
    function: &cuda::Function,
) -> Result<[u64; 2], EngineError> {
    let answer = cuda::DeviceMemory::zeroed(context, size_of::<[u64; 2]>())?;
    let mut address = answer.address();
    // SAFETY: the kernel takes the address of two words. They live until the wait below is over or the process ends.
    let mut run = unsafe { launcher.launch(function, 1, WARP, &mut [(&raw mut address).cast()]) }?;
    if !run.wait(FIRST_ANSWER)? {
        return Err(CudaError::NoAnswer { what: "running a first kernel", seconds: FIRST_ANSWER.as_secs() }.into());
    }
    let mut words = [0u64; 2];
    context.copy_to_host(answer.address(), bytemuck::bytes_of_mut(&mut words))?;
    Ok(words)
}

fn check_arguments(kernel: &str, expected: &[u32], given: &[u32]) -> Result<(), EngineError> {
    if expected == given {
        return Ok(());
    }
    let (expected, given) = (expected.to_vec(), given.to_vec());
    Err(EngineError::Arguments { kernel: kernel.to_owned(), expected, given })
}

fn check_grid(kernel: &str, grid: Grid, max_threads: u32) -> Result<(), EngineError> {
    let reason = if grid.blocks == 0 || grid.threads == 0 || !grid.threads.is_multiple_of(WARP) {
        format!("use at least one block, and whole warps of {WARP} threads in each")
    } else if grid.threads > max_threads {
        format!("a block of this kernel has at most {max_threads} threads")
    } else if grid.blocks > i32::MAX as u32 {
        format!("a grid has at most {} blocks", i32::MAX)
    } else {
        return Ok(());
    };
    Err(EngineError::Grid { kernel: kernel.to_owned(), blocks: grid.blocks, threads: grid.threads, reason })
}

impl fmt::Display for GpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info().fmt(f)
    }
}

impl GpuRun {
    pub(super) fn wait(&mut self, within: Duration) -> Result<bool, String> {
        self.0.wait(within).map_err(in_words)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_cannot_be_had_names_the_first_thing_to_fix() {
        let damaged = [Image::new("damaged").gpu(&[0; 16][..])];
        for (gpu, images) in [(0, &[][..]), (0, &damaged), (99, &[])] {
            match (cuda::Context::open(gpu), GpuEngine::open(gpu, true, images)) {
                (Err(missing), Err(e)) => {
                    assert_eq!(e.to_string().split(',').next(), missing.to_string().split(',').next())
                }
                (Ok(_), Err(e)) => assert!(!e.to_string().is_empty()),
                (_, Ok(_)) => {}
            }
        }
    }

    #[test]
    fn grids_are_checked_before_the_driver_sees_them() {
        let ok = |blocks, threads| check_grid("k", Grid { blocks, threads }, 512).is_ok();
        assert!(ok(1, 32) && ok(132 * 8, 512));
        assert!(!ok(0, 32) && !ok(1, 0) && !ok(1, 33) && !ok(1, 544) && !ok(u32::MAX, 32));
    }

    #[test]
    fn arguments_are_compared_with_what_the_kernel_takes() {
        assert!(check_arguments("k", &[8, 4], &[8, 4]).is_ok());
        let e = check_arguments("k", &[8, 4], &[8]).unwrap_err().to_string();
        assert!(e.contains("[8, 4]") && e.contains("[8]"), "{e}");
    }
}
