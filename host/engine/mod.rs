//! Engines run kernels, on a GPU or on CPU threads. This module loads images, checks their ABI, and has launches, stop
//! flag and deadlines.

pub mod abi;
mod args;
mod builder;
mod cpu;
mod cpu_queue;
#[cfg(test)]
mod embedding_tests;
mod error;
mod failure;
mod gpu;
mod image;
mod pool;
mod run;
mod stream;
#[cfg(test)]
pub(crate) mod testing;

pub use args::{Args, KernelArg};
pub(crate) use args::{Kept, plain};
pub use builder::EngineBuilder;
pub use cpu::CpuImage;
pub use error::{EngineError, OperationError, Outcome, RunError};
pub use failure::Operations;
internal!(gpu::IMAGE_ARCHS);
pub use image::Image;
pub use run::{Grid, Run, RunReport};
pub(crate) use stream::Awaited;
pub use stream::Stream;

use crate::memory::{MemoryError, Place, Region, Space};
use crate::metrics::{self, Registration, family};
use parking_lot::Mutex;
use serde::Serialize;
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A GPU or a set of CPU threads that runs the kernels of one or more images. Clones share the engine.
///
/// # Examples
///
/// ```
/// use warpbell::args;
/// use warpbell::engine::Engine;
/// use warpbell::memory::Place;
///
/// let engine = Engine::cpu()?;
/// let numbers = engine.allocate(Place::Device, 1000 * 8)?;
/// // The shipped kernel `wb_iota` writes out[i] = start + i * step for all i < count.
/// // SAFETY: these are the types of its parameters: out, count, start, step.
/// let run = unsafe { engine.launch("wb_iota", engine.grid(256, 1), args!(&numbers, 1000u64, 7u64, 2u64)) }?;
/// run.finish()?;
/// assert_eq!(numbers.get::<u64>(8 * 999)?, 7 + 2 * 999);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    space: Space,
    backend: Backend,
    control: run::Control,
    /// Number of runs in flight. They share the stop flag and the error log, so a new run resets those only if it is
    /// alone.
    active: Mutex<usize>,
    /// True from [`Engine::cancel`] to [`Engine::resume`]: no launch starts.
    cancelled: AtomicBool,
    /// Reason given to [`Engine::stop_for`], once it was called: no launch starts any more.
    stopped_for: OnceLock<String>,
    /// The engine among the objects that are monitored.
    metrics: OnceLock<Registration>,
}

#[derive(Debug)]
enum Backend {
    Cpu(cpu::CpuEngine),
    Gpu(gpu::GpuEngine),
}

/// Kind of processor that runs kernels. Serialises as `cpu` or `gpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// CPU threads.
    Cpu,
    /// A GPU.
    Gpu,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        })
    }
}

/// Deadline of one wait inside a kernel, unless [`Engine::set_deadline`] sets another.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Limit of a wait that has none of its own: a year. Waits inside kernels have deadlines, which end the kernels.
pub const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

impl Engine {
    /// Returns default settings: the kernels that ship with the crate, and a thread for each processor.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    /// Opens the first GPU if it works, otherwise CPU threads. [`Engine::note`] then returns the reason.
    ///
    /// # Errors
    /// As [`Engine::cpu`], if no GPU can be used.
    ///
    /// # Examples
    ///
    /// ```
    /// let engine = warpbell::engine::Engine::auto()?;
    /// // The reason why there is no GPU, if there is none.
    /// if let Some(note) = engine.note() {
    ///     println!("kernels run on CPU threads: {note}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn auto() -> Result<Self, EngineError> {
        Self::builder().auto()
    }

    /// Opens CPU threads with the kernels that ship with the crate: one thread for each processor
    /// ([`processors::checked`](crate::processors::checked)).
    ///
    /// # Errors
    /// As [`EngineBuilder::cpu`].
    pub fn cpu() -> Result<Self, EngineError> {
        Self::builder().cpu()
    }

    /// Opens a GPU with the kernels that ship with the crate. `ordinal` is the GPU's position in the driver's list,
    /// from 0.
    ///
    /// # Errors
    /// As [`EngineBuilder::gpu`].
    pub fn gpu(ordinal: usize) -> Result<Self, EngineError> {
        Self::builder().gpu(ordinal)
    }

    fn with(space: Space, backend: Backend) -> Result<Self, EngineError> {
        let control = run::Control::new(&space)?;
        let made = Self(Arc::new(Inner {
            space,
            backend,
            control,
            active: Mutex::new(0),
            cancelled: AtomicBool::new(false),
            stopped_for: OnceLock::new(),
            metrics: OnceLock::new(),
        }));
        tracing::info!("engine opened: {made}");
        let kind = made.kind().to_string();
        made.0.metrics.get_or_init(|| {
            metrics::register("engine", &made.to_string(), move |to| {
                to.add(&family::ENGINE, &[("kind", &kind)], 1);
                true
            })
        });
        Ok(made)
    }

    /// Returns the kind of processor that runs kernels.
    pub fn kind(&self) -> EngineKind {
        match self.0.backend {
            Backend::Cpu(_) => EngineKind::Cpu,
            Backend::Gpu(_) => EngineKind::Gpu,
        }
    }

    /// Returns true if kernels run on a GPU.
    pub fn is_gpu(&self) -> bool {
        self.kind() == EngineKind::Gpu
    }

    /// Returns the number of lanes in a warp. The threads of a block are a multiple of it.
    pub fn warp_width(&self) -> u32 {
        match &self.0.backend {
            Backend::Cpu(c) => c.warp_width(),
            Backend::Gpu(_) => gpu::WARP,
        }
    }

    /// Returns true if all images were compiled with `WB_CHECKED=1`. Calls of a world in their kernels then check their
    /// addresses.
    pub fn is_checked(&self) -> bool {
        match &self.0.backend {
            Backend::Cpu(c) => c.is_checked(),
            Backend::Gpu(g) => g.is_checked(),
        }
    }

    /// Returns the reason why [`Engine::auto`] chose CPU threads, or `None` if it did not.
    pub fn note(&self) -> Option<&str> {
        match &self.0.backend {
            Backend::Cpu(c) => c.note(),
            Backend::Gpu(_) => None,
        }
    }

    /// Returns the number of threads that run at once: CPU threads, or the GPU's resident threads.
    pub fn threads(&self) -> usize {
        match &self.0.backend {
            Backend::Cpu(c) => c.threads(),
            Backend::Gpu(g) => g.threads(),
        }
    }

    /// Returns the grid that fills the engine: blocks of `threads_per_block` threads, `blocks_per_processor` for each
    /// multiprocessor. The CPU engine ignores both and returns one block of one warp for each thread.
    pub fn grid(&self, threads_per_block: u32, blocks_per_processor: u32) -> Grid {
        match &self.0.backend {
            Backend::Cpu(c) => c.grid(),
            Backend::Gpu(g) => g.grid(threads_per_block, blocks_per_processor),
        }
    }

    /// Returns the number of blocks of this kernel, of `threads_per_block` threads each, that one multiprocessor holds
    /// at once. Returns 1 on the CPU engine. `engine.grid(256, engine.occupancy("kernel", 256)?)` fills the machine.
    ///
    /// # Errors
    /// - [`EngineError::NoKernel`] if no image has such a kernel.
    /// - [`EngineError::Grid`] if a block of this kernel cannot have `threads_per_block` threads on the GPU.
    /// - [`EngineError::Cuda`] if the driver call fails.
    pub fn occupancy(&self, kernel: &str, threads_per_block: u32) -> Result<u32, EngineError> {
        match &self.0.backend {
            Backend::Cpu(c) => c.occupancy(kernel),
            Backend::Gpu(g) => g.occupancy(kernel, threads_per_block),
        }
    }

    /// Checks the size of a kernel's grid, as a launch does.
    ///
    /// # Errors
    /// [`EngineError::Grid`] if the engine cannot run such a grid. [`EngineError::NoKernel`] if no image of a GPU engine
    /// has such a kernel.
    #[cfg(feature = "internals")]
    pub fn check_grid(&self, kernel: &str, grid: Grid) -> Result<(), EngineError> {
        match &self.0.backend {
            Backend::Cpu(c) => c.check_grid(kernel, grid),
            Backend::Gpu(g) => g.check_grid(kernel, grid),
        }
    }

    /// Returns the registers that a thread of this kernel has on the GPU; 0 on the CPU engine.
    ///
    /// # Errors
    /// [`EngineError::NoKernel`] if no image has such a kernel.
    #[cfg(feature = "internals")]
    pub fn registers(&self, kernel: &str) -> Result<u32, EngineError> {
        match &self.0.backend {
            Backend::Cpu(c) => c.occupancy(kernel).map(|_| 0),
            Backend::Gpu(g) => g.registers(kernel),
        }
    }

    /// Returns the properties of this engine.
    pub fn info(&self) -> EngineInfo {
        let (warp_width, gpu, kernels) = match &self.0.backend {
            Backend::Cpu(c) => (c.warp_width(), None, c.kernels()),
            Backend::Gpu(g) => (gpu::WARP, Some(g.info().clone()), g.kernels()),
        };
        EngineInfo {
            kind: self.kind(),
            name: self.to_string(),
            note: self.note().map(str::to_owned),
            threads: self.threads(),
            warp_width,
            checked: self.is_checked(),
            kernels,
            gpu,
            stack_limit: match &self.0.backend {
                Backend::Cpu(_) => None,
                Backend::Gpu(g) => g.stack_limit(),
            },
        }
    }

    /// Reserves local memory for the kernels whose names begin with `prefix`, so that none of their launches enlarges
    /// it. Enlarging the local memory of the GPU's threads takes half a millisecond and waits for all running kernels.
    /// Kernels that wait for each other must be prepared together.
    pub(crate) fn prepare(&self, prefix: &str) -> Result<(), EngineError> {
        match &self.0.backend {
            Backend::Cpu(_) => Ok(()),
            Backend::Gpu(g) => g.prepare(prefix),
        }
    }

    /// Returns true if both are clones of one engine.
    pub fn is_same(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the address space that kernels run in.
    pub fn space(&self) -> &Space {
        &self.0.space
    }

    /// Allocates zeroed memory for kernels, of at least `bytes` bytes.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn allocate(&self, place: Place, bytes: usize) -> Result<Region, MemoryError> {
        self.0.space.allocate(place, bytes)
    }

    /// Returns the address of this engine's `wb_control`.
    pub fn control_address(&self) -> u64 {
        self.0.control.address()
    }

    /// Creates another `wb_control` with the same flags, log and deadline. Its `fault` is the address of a fault word
    /// in host memory, which long waits for memory read (`wb_control.fault`).
    pub(crate) fn control_with_fault(&self, fault: u64) -> Result<Region, MemoryError> {
        self.0.control.view(&self.0.space, fault)
    }

    /// Sets the longest time of one wait inside a kernel. It also limits one command that the host itself submits to a
    /// device of a volume on this engine.
    ///
    /// # Errors
    /// [`MemoryError::Cuda`] if copying the deadline to GPU memory fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let engine = warpbell::engine::Engine::cpu()?;
    /// engine.set_deadline(Duration::from_secs(2))?;
    /// assert_eq!(engine.deadline(), Duration::from_secs(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_deadline(&self, deadline: Duration) -> Result<(), MemoryError> {
        self.0.control.set_deadline(deadline)
    }

    /// Returns the deadline of one wait: [`DEFAULT_DEADLINE`] unless [`Engine::set_deadline`] set another.
    pub fn deadline(&self) -> Duration {
        self.0.control.deadline()
    }

    /// Returns true if no kernel of this engine is running.
    pub fn is_idle(&self) -> bool {
        *self.0.active.lock() == 0
    }

    /// Tells the runs in flight to end, and makes every later launch fail with [`EngineError::Cancelled`] until
    /// [`Engine::resume`]. For an interrupt from the keyboard: code that launches kernel after kernel then gets an error
    /// and can clean up. A call between two kernels has the same effect.
    ///
    /// # Errors
    /// [`MemoryError::Cuda`] if setting the stop flag in GPU memory fails. Long waits still see the copy of the flag in
    /// host memory.
    pub fn cancel(&self) -> Result<(), MemoryError> {
        self.0.cancelled.store(true, Ordering::Release);
        // Under the lock that launches take, so that none of them clears the flag afterwards.
        let _active = self.0.active.lock();
        self.0.control.stop()
    }

    /// Lets the engine start kernels again after [`Engine::cancel`]. Call it when the code that launched them has
    /// returned. The effect of [`Engine::stop_for`] stays.
    ///
    /// # Errors
    /// [`EngineError::Busy`] while kernels are in flight: those that were told to end would otherwise go on beside new
    /// ones, or end new ones with them.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::args;
    /// use warpbell::engine::{Engine, EngineError};
    /// use warpbell::memory::Place;
    ///
    /// let engine = Engine::cpu()?;
    /// let out = engine.allocate(Place::Device, 8)?;
    /// // SAFETY: these are the types of the parameters of `wb_iota`.
    /// let launch = || unsafe { engine.launch("wb_iota", engine.grid(32, 1), args!(&out, 1u64, 7u64, 0u64)) };
    /// engine.cancel()?;
    /// assert!(matches!(launch(), Err(EngineError::Cancelled)));
    /// engine.resume()?;
    /// launch()?.finish()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self) -> Result<(), EngineError> {
        // Under the lock that launches take: no run begins meanwhile.
        let active = self.0.active.lock();
        match *active {
            0 => {
                self.0.cancelled.store(false, Ordering::Release);
                Ok(())
            }
            runs => Err(EngineError::Busy { runs }),
        }
    }

    /// Tells the runs in flight to end and makes every later launch fail. Both report `reason` ([`RunError::Stopped`],
    /// [`EngineError::Stopped`]), for example that a PE which they would wait for is gone. The first reason stays.
    ///
    /// # Errors
    /// As [`Engine::cancel`].
    pub fn stop_for(&self, reason: impl Into<String>) -> Result<(), MemoryError> {
        // Under the lock that launches take, as in `cancel`.
        let _active = self.0.active.lock();
        let _ = self.0.stopped_for.set(reason.into());
        self.0.control.stop()
    }

    /// Returns the reason given to [`Engine::stop_for`], or `None` if it was not called.
    pub fn stopped_for(&self) -> Option<&str> {
        self.0.stopped_for.get().map(String::as_str)
    }

    /// Tells the runs in flight to end, without any effect on later launches. For code that notices a device failure
    /// before the waits inside a kernel do.
    ///
    /// # Errors
    /// As [`Engine::cancel`].
    pub fn stop_runs(&self) -> Result<(), MemoryError> {
        let active = self.0.active.lock();
        if *active > 0 { self.0.control.stop() } else { Ok(()) }
    }

    /// Returns true if [`Engine::cancel`] was called, and [`Engine::resume`] was not called since.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Returns true if the engine was told to end its work: by [`Engine::cancel`] or [`Engine::stop_for`].
    pub(crate) fn is_told_to_end(&self) -> bool {
        self.is_cancelled() || self.stopped_for().is_some()
    }

    /// Starts a kernel. The run keeps the memory that its arguments stand for.
    ///
    /// # Errors
    /// - [`EngineError::NoKernel`] if no image has such a kernel.
    /// - [`EngineError::Arguments`] if the sizes of the arguments are not those of the kernel's parameters.
    /// - [`EngineError::Grid`] if the engine cannot run the grid, or no CPU thread can be started.
    /// - [`EngineError::Cancelled`], [`EngineError::Stopped`], [`EngineError::Poisoned`] if this engine starts no more
    ///   kernels.
    /// - [`EngineError::Cuda`] if the driver refuses the launch.
    /// - [`EngineError::Memory`] if the flags or the error log cannot be accessed.
    ///
    /// # Safety
    /// - The values must have the types that the kernel takes.
    /// - Memory whose address is passed as a plain number must stay valid until the kernel has ended. [`Args::keep`]
    ///   ensures that, and so do arguments passed by reference.
    /// - The kernel must stay within the memory that its arguments name.
    pub unsafe fn launch(&self, kernel: &str, grid: Grid, args: Args) -> Result<Run, EngineError> {
        // SAFETY: this function's caller makes the same promise.
        unsafe { run::launch(self, false, kernel, grid, args) }
    }

    /// Starts a kernel that waits for what earlier kernels have begun, also on an engine that was told to start no more.
    ///
    /// # Safety
    /// As [`Engine::launch`].
    pub(crate) unsafe fn launch_to_clean_up(&self, kernel: &str, grid: Grid, args: Args) -> Result<Run, EngineError> {
        // SAFETY: this function's caller makes the same promise.
        unsafe { run::launch(self, true, kernel, grid, args) }
    }

    /// Begins a run of kernels that the program itself launches, on the stream of `stream` ([`Stream::raw`],
    /// [`Engine::adopt_stream`]). From now on the kernels see flags and an error log in order, and nothing that they use
    /// is freed by this crate. [`Run::finish`] waits for all work that is on the stream by then, and reports errors as it
    /// does for a launched kernel. `name` names the work in errors.
    ///
    /// The stream must not be capturing a graph now. To capture a program's kernels, capture first and launch the graph
    /// within the run.
    ///
    /// A CPU engine has no streams that other code could use. There the program calls its kernels on its own threads, and
    /// they have ended when it finishes or drops the run. `finish` also waits for the engine's kernels on `stream`.
    ///
    /// # Errors
    /// - [`EngineError::ForeignStream`] if the stream belongs to another engine.
    /// - [`EngineError::Cancelled`], [`EngineError::Stopped`], [`EngineError::Poisoned`] if this engine starts no more
    ///   kernels.
    /// - [`EngineError::Cuda`] if the stream is being captured ([`CudaError::Capturing`]), or a driver call fails.
    /// - [`EngineError::Memory`] if the flags or the error log cannot be accessed.
    ///
    /// [`CudaError::Capturing`]: crate::cuda::CudaError::Capturing
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Cache, Drive, Volume};
    ///
    /// let engine = Engine::cpu()?;
    /// let volume = Volume::on(&engine, [Drive::open("soft:mem:1M")?]).build()?;
    /// let numbers = Cache::on(&volume).bytes(64 << 10).build()?.array::<u32>(0, 1000)?;
    ///
    /// let stream = engine.stream()?;
    /// let mut run = engine.external("my kernel", &stream)?;
    /// // The run keeps the array; the view is the kernel's parameter.
    /// run.keep(&numbers);
    /// let view = numbers.view();
    /// // cuLaunchKernel(function, ..., stream.raw(), parameters with `view`, ...);
    /// # let _ = view;
    /// run.finish()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn external(&self, name: &str, stream: &Stream) -> Result<Run, EngineError> {
        run::external(self, name, stream)
    }

    /// Uses a CUDA stream of the program: the engine's kernels can be launched on it, in order with the program's own
    /// work there. `raw` is a `CUstream` (`cudaStream_t`) of the primary context of the engine's GPU; null stands for the
    /// legacy default stream, with its implicit waits. `keep` owns the stream; it is dropped when the last clone of the
    /// result is, and not before kernels on it have ended.
    ///
    /// # Errors
    /// - [`EngineError::NoCudaStreams`] if this is a CPU engine.
    /// - [`EngineError::Cuda`] if the stream belongs to another context or is the default stream of a thread
    ///   ([`CudaError::BadStream`](crate::cuda::CudaError::BadStream)), or a driver call fails.
    ///
    /// # Safety
    /// `raw` must be a valid stream for as long as `keep` lives.
    pub unsafe fn adopt_stream(
        &self,
        raw: *mut c_void,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Stream, EngineError> {
        // SAFETY: this function's caller makes the same promise.
        unsafe { Stream::adopt(self, raw, keep) }
    }

    /// Calls `f` with the context of the engine's GPU current on this thread, for libraries that use the current context.
    /// On a CPU engine it only calls `f`.
    ///
    /// # Errors
    /// [`EngineError::Cuda`] if the driver cannot make the context current.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    ///
    /// assert_eq!(Engine::cpu()?.within_context(|| 42)?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "internals")]
    pub fn within_context<R>(&self, f: impl FnOnce() -> R) -> Result<R, EngineError> {
        match &self.0.backend {
            Backend::Cpu(_) => Ok(f()),
            Backend::Gpu(g) => g.within(f),
        }
    }

    /// Creates an empty stream. Kernels launched on it run one after another.
    ///
    /// # Errors
    /// - [`EngineError::Thread`] if the thread of a CPU stream cannot be started.
    /// - [`EngineError::Cuda`] if the driver fails to create a GPU stream.
    pub fn stream(&self) -> Result<Stream, EngineError> {
        Stream::new(self)
    }
}

/// Properties of an engine, from [`Engine::info`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct EngineInfo {
    /// Kind of engine.
    pub kind: EngineKind,
    /// Text that the engine's `Display` prints.
    pub name: String,
    /// Result of [`Engine::note`].
    pub note: Option<String>,
    /// Threads that run at once.
    pub threads: usize,
    /// Number of lanes in a warp.
    pub warp_width: u32,
    /// True if calls of a world in the image's kernels check their addresses.
    pub checked: bool,
    /// Names of the image's kernels, sorted.
    pub kernels: Vec<String>,
    /// Properties of the GPU, if the engine is one.
    pub gpu: Option<crate::cuda::DeviceInfo>,
    /// Local memory per thread of the GPU, in bytes: as first found, and now. `None` until the engine has read it. A
    /// kernel that needs more enlarges it for the whole context.
    pub stack_limit: Option<crate::cuda::StackLimit>,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.backend {
            Backend::Cpu(c) => write!(f, "{c}"),
            Backend::Gpu(g) => write!(f, "{g}"),
        }
    }
}
