//! Where kernels run: a GPU, or CPU threads. Image loading, ABI check, launches, stop flag, deadlines.

pub mod abi;
mod args;
mod cpu;
mod cpu_queue;
mod error;
mod gpu;
mod run;
mod stream;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use args::plain;
pub use args::{Args, KernelArg};
pub use cpu::CpuImage;
pub use error::{EngineError, OperationError, Outcome, RunError};
pub use run::{Grid, Run, RunReport};
pub use stream::Stream;

use crate::memory::{MemoryError, Place, Region, Space};
use parking_lot::Mutex;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Where kernels run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    space: Space,
    backend: Backend,
    control: run::Control,
    /// Runs in flight: the stop flag and the error log are shared, so a fresh run resets them only when it is alone.
    active: Mutex<usize>,
    /// Somebody asked for the end of everything: no launch from here on.
    cancelled: AtomicBool,
    /// Why this engine starts no more kernels, once [`Engine::stop_for`] was called.
    stopped_for: OnceLock<String>,
}

#[derive(Debug)]
enum Backend {
    Cpu(cpu::CpuEngine),
    Gpu(gpu::GpuEngine),
}

/// Kind of processor that runs kernels. Reads and serialises as `cpu` or `gpu`.
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

/// How long a wait inside a kernel may last unless told otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

impl Engine {
    /// The first GPU if this machine has one that works, CPU threads if not. The reason is in [`Engine::note`].
    pub fn auto() -> Result<Self, EngineError> {
        match Self::gpu(0) {
            Ok(gpu) => Ok(gpu),
            Err(e) => Self::cpu_with(0, &CpuImage::shipped()?, Some(e.reason())),
        }
    }

    /// CPU threads, as many as the machine has cores.
    pub fn cpu() -> Result<Self, EngineError> {
        Self::cpu_with(0, &CpuImage::shipped()?, None)
    }

    /// `threads` CPU threads (0: as many as there are cores) with kernels from `image`.
    pub fn cpu_with(threads: usize, image: &CpuImage, note: Option<String>) -> Result<Self, EngineError> {
        let backend = Backend::Cpu(cpu::CpuEngine::new(threads, image, note)?);
        Self::with(Space::cpu(), backend)
    }

    /// The GPU with this ordinal, with the kernels that ship with the crate.
    pub fn gpu(ordinal: usize) -> Result<Self, EngineError> {
        let (space, gpu) = gpu::GpuEngine::open(ordinal, None)?;
        Self::with(space, Backend::Gpu(gpu))
    }

    /// The GPU with this ordinal, with kernels from a fat binary or PTX that was compiled against this crate's headers.
    pub fn gpu_with(ordinal: usize, image: &[u8]) -> Result<Self, EngineError> {
        let (space, gpu) = gpu::GpuEngine::open(ordinal, Some(image))?;
        Self::with(space, Backend::Gpu(gpu))
    }

    fn with(space: Space, backend: Backend) -> Result<Self, EngineError> {
        let control = run::Control::new(&space)?;
        Ok(Self(Arc::new(Inner {
            space,
            backend,
            control,
            active: Mutex::new(0),
            cancelled: AtomicBool::new(false),
            stopped_for: OnceLock::new(),
        })))
    }

    /// Returns where kernels run.
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

    /// Lanes in a warp: blocks are whole warps.
    pub fn warp_width(&self) -> u32 {
        match &self.0.backend {
            Backend::Cpu(c) => c.warp_width(),
            Backend::Gpu(_) => gpu::WARP,
        }
    }

    /// Returns true if the image was compiled with `WB_CHECKED=1`: calls of a world in its kernels check their addresses.
    pub fn is_checked(&self) -> bool {
        match &self.0.backend {
            Backend::Cpu(c) => c.is_checked(),
            Backend::Gpu(g) => g.is_checked(),
        }
    }

    /// Why this engine was chosen over another, if `auto` had to choose.
    pub fn note(&self) -> Option<&str> {
        match &self.0.backend {
            Backend::Cpu(c) => c.note(),
            Backend::Gpu(_) => None,
        }
    }

    /// Threads that run at once: CPU threads, or the GPU's resident threads.
    pub fn threads(&self) -> usize {
        match &self.0.backend {
            Backend::Cpu(c) => c.threads(),
            Backend::Gpu(g) => g.threads(),
        }
    }

    /// The grid that fills the engine with blocks of `threads_per_block` (ignored on the CPU engine, where a block is one
    /// warp), `blocks_per_processor` to a multiprocessor.
    pub fn grid(&self, threads_per_block: u32, blocks_per_processor: u32) -> Grid {
        match &self.0.backend {
            Backend::Cpu(c) => c.grid(),
            Backend::Gpu(g) => g.grid(threads_per_block, blocks_per_processor),
        }
    }

    /// Blocks of `threads_per_block` threads of this kernel that one multiprocessor holds at once, for a grid that fills the
    /// machine: `engine.grid(256, engine.occupancy("kernel", 256)?)`. 1 on the CPU engine.
    pub fn occupancy(&self, kernel: &str, threads_per_block: u32) -> Result<u32, EngineError> {
        match &self.0.backend {
            Backend::Cpu(c) => c.occupancy(kernel),
            Backend::Gpu(g) => g.occupancy(kernel, threads_per_block),
        }
    }

    /// What this engine is, in numbers.
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

    /// Prepares the kernels whose names begin with `prefix`: none of their launches enlarges the local memory of the GPU's threads, which
    /// takes half a millisecond and waits for all kernels that run. Kernels that wait for each other must be prepared together.
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

    /// The address space that kernels run in.
    pub fn space(&self) -> &Space {
        &self.0.space
    }

    /// Zeroed memory for kernels.
    pub fn allocate(&self, place: Place, bytes: usize) -> Result<Region, MemoryError> {
        self.0.space.allocate(place, bytes)
    }

    /// The address of this engine's `wb_control`.
    pub fn control_address(&self) -> u64 {
        self.0.control.address()
    }

    /// A `wb_control` of its own for some kernels: the same flags, log and deadline, and the address of a fault word in host memory
    /// that long waits for memory look at (`wb_control.fault`).
    pub(crate) fn control_with_fault(&self, fault: u64) -> Result<Region, MemoryError> {
        self.0.control.view(&self.0.space, fault)
    }

    /// Sets how long one wait inside a kernel may last, and one command that the host itself gives to a device of a volume on this
    /// engine.
    pub fn set_deadline(&self, deadline: Duration) -> Result<(), MemoryError> {
        self.0.control.set_deadline(deadline)
    }

    /// Returns the deadline that was set: ten seconds unless told otherwise.
    pub fn deadline(&self) -> Duration {
        self.0.control.deadline()
    }

    /// Whether no kernel of this engine runs now.
    pub fn is_idle(&self) -> bool {
        *self.0.active.lock() == 0
    }

    /// Asks the runs in flight to end and refuses every later launch with [`EngineError::Cancelled`]. For an interrupt from
    /// the keyboard: whoever launches kernel after kernel sees an error and winds up.
    pub fn cancel(&self) -> Result<(), MemoryError> {
        self.0.cancelled.store(true, Ordering::Release);
        // Under the launches' lock, so that none of them clears the flag after it was raised.
        let _active = self.0.active.lock();
        self.0.control.stop()
    }

    /// Asks the runs in flight to end and refuses every later launch, for a reason that their errors name
    /// ([`RunError::Stopped`], [`EngineError::Stopped`]): a PE that they would wait for is gone. The first reason stays.
    pub fn stop_for(&self, reason: impl Into<String>) -> Result<(), MemoryError> {
        // Under the launches' lock, as in `cancel`.
        let _active = self.0.active.lock();
        let _ = self.0.stopped_for.set(reason.into());
        self.0.control.stop()
    }

    /// The reason given to [`Engine::stop_for`].
    pub fn stopped_for(&self) -> Option<&str> {
        self.0.stopped_for.get().map(String::as_str)
    }

    /// Asks the runs in flight to end; later launches are not concerned. For whoever sees that a device is ill before the waits
    /// inside a kernel do.
    pub fn stop_runs(&self) -> Result<(), MemoryError> {
        let active = self.0.active.lock();
        if *active > 0 { self.0.control.stop() } else { Ok(()) }
    }

    /// Whether [`Engine::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Starts a kernel. The run has a share of what its arguments stand for.
    ///
    /// # Errors
    /// [`EngineError::NoKernel`], [`EngineError::Arguments`] (sizes are compared with the kernel's) and [`EngineError::Grid`] for a launch
    /// that cannot be; [`EngineError::Cancelled`], [`EngineError::Stopped`] and [`EngineError::Poisoned`] for an engine that starts no more.
    ///
    /// # Safety
    /// The values must be of the types that the kernel takes. Memory whose address is among them as a plain number stays valid until
    /// the kernel has ended ([`Args::keep`] sees to that, and arguments by reference do so themselves). The kernel keeps within what
    /// its arguments allow.
    pub unsafe fn launch(&self, kernel: &str, grid: Grid, args: Args) -> Result<Run, EngineError> {
        // SAFETY: the caller's promise is the same.
        unsafe { run::launch(self, kernel, grid, args) }
    }

    /// An empty stream: kernels launched on it run one after the other.
    pub fn stream(&self) -> Result<Stream, EngineError> {
        Stream::new(self)
    }
}

/// What an engine is: [`Engine::info`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct EngineInfo {
    /// Kind of engine.
    pub kind: EngineKind,
    /// As the engine prints itself.
    pub name: String,
    /// Why it was chosen over another, if there was a choice.
    pub note: Option<String>,
    /// Threads that run at once.
    pub threads: usize,
    /// Lanes in a warp.
    pub warp_width: u32,
    /// True if calls of a world in the image's kernels check their addresses.
    pub checked: bool,
    /// Names of the image's kernels, sorted.
    pub kernels: Vec<String>,
    /// The GPU, if it is one.
    pub gpu: Option<crate::cuda::DeviceInfo>,
    /// Local memory of a GPU's threads as it was found and as it is, in bytes, once it was looked at: a kernel that needs more enlarges it
    /// for the whole context.
    pub stack_limit: Option<crate::cuda::StackLimit>,
}

/// GPU generations in the image that ships with the crate, as in `80 90 100`; empty when it was built without nvcc.
pub const IMAGE_ARCHS: &str = gpu::SHIPPED_ARCHS;

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.backend {
            Backend::Cpu(c) => write!(f, "{c}"),
            Backend::Gpu(g) => write!(f, "{g}"),
        }
    }
}
