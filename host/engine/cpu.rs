//! Kernels on CPU threads.

use super::{EngineError, Grid, abi, image, pool};
use crate::assist::{self, Assistant};
use crate::contention;
use parking_lot::{Condvar, Mutex};
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Call = unsafe extern "C" fn(*const *mut c_void);

/// `warpbell::cpu::kernel_entry` of `kernel.h`.
#[repr(C)]
struct KernelEntry {
    name: *const c_char,
    call: Call,
    parameter_count: u32,
    parameter_bytes: *const u32,
    next: *const KernelEntry,
}

/// `warpbell::cpu::image` of `kernel.h`.
#[repr(C)]
struct RawImage {
    fingerprint: u64,
    kernels: *const KernelEntry,
    run_block: RunBlock,
    warp_width: u32,
    flags: u32,
    set_assist: unsafe extern "C" fn(extern "C" fn(u64, usize) -> u32),
}

/// Kernels compiled for CPU threads and linked into this program.
#[derive(Clone, Copy)]
pub struct CpuImage(&'static RawImage);

// SAFETY: an image is constant data and functions that may be called from any thread.
unsafe impl Send for CpuImage {}
// SAFETY: the data is constant, and the functions may be called from several threads at the same time.
unsafe impl Sync for CpuImage {}

impl CpuImage {
    /// Returns the image behind a symbol that `WB_IMAGE(symbol)` defined in a linked C++ file.
    ///
    /// # Errors
    /// [`EngineError::AbiMismatch`] if the image was compiled against other headers.
    ///
    /// # Safety
    /// `symbol` must be a function that `WB_IMAGE` defined, compiled against the headers of this crate.
    pub unsafe fn from_symbol(symbol: unsafe extern "C" fn() -> *const c_void) -> Result<Self, EngineError> {
        // SAFETY: the caller promises that `WB_IMAGE` defined the function; the image lives as long as the program.
        let raw = unsafe { &*symbol().cast::<RawImage>() };
        if raw.fingerprint != abi::fingerprint() {
            let (found, host) = (raw.fingerprint, abi::fingerprint());
            return Err(EngineError::AbiMismatch { image: None, found, host });
        }
        // SAFETY: stores the function's address, which is valid as long as the program runs.
        unsafe { (raw.set_assist)(assist::assist_kernel) };
        Ok(Self(raw))
    }

    /// Returns the number of lanes in a warp: 1 unless the image was compiled for another width.
    pub(crate) fn warp_width(&self) -> u32 {
        self.0.warp_width
    }

    /// Returns true if the image was compiled with `WB_CHECKED=1`. Calls of a world in its kernels then check their
    /// addresses.
    pub fn is_checked(&self) -> bool {
        self.0.flags & abi::IMAGE_CHECKED != 0
    }

    fn find(&self, name: &str) -> Option<&'static KernelEntry> {
        let mut at = self.0.kernels;
        while !at.is_null() {
            // SAFETY: all entries of the list are static.
            let entry = unsafe { &*at };
            // SAFETY: the name is a string literal.
            if unsafe { CStr::from_ptr(entry.name) }.to_bytes() == name.as_bytes() {
                return Some(entry);
            }
            at = entry.next;
        }
        None
    }
}

impl CpuImage {
    /// Returns the names of the kernels, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = self.0.kernels;
        while !at.is_null() {
            // SAFETY: all entries of the list are static, and their names are string literals.
            let (entry, name) = unsafe { (&*at, CStr::from_ptr((*at).name)) };
            names.push(name.to_string_lossy().into_owned());
            at = entry.next;
        }
        names.sort();
        names
    }
}

impl fmt::Debug for CpuImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuImage(warp width {})", self.warp_width())
    }
}

impl CpuImage {
    /// Returns the kernels that ship with the crate.
    ///
    /// # Errors
    /// - [`EngineError::NoCpuImage`] if the crate was built without them (for documentation only).
    /// - [`EngineError::AbiMismatch`] if they were compiled against other headers.
    pub fn shipped() -> Result<Self, EngineError> {
        #[cfg(cpu_image)]
        {
            unsafe extern "C" {
                fn warpbell_image() -> *const c_void;
            }
            // SAFETY: `kernels/image.cu` defines the symbol with WB_IMAGE.
            unsafe { Self::from_symbol(warpbell_image) }
        }
        // Miri calls no C++: engines of its tests have no kernel.
        #[cfg(all(test, miri, not(cpu_image)))]
        return Ok(Self(WITHOUT_KERNELS));
        #[cfg(not(any(cpu_image, all(test, miri))))]
        Err(EngineError::NoCpuImage)
    }
}

#[cfg(all(test, miri))]
const WITHOUT_KERNELS: &RawImage = {
    unsafe extern "C" fn no_block(_: Call, _: *const *mut c_void, _: u32, _: u32, _: u32) {}
    unsafe extern "C" fn no_assist(_: extern "C" fn(u64, usize) -> u32) {}
    &RawImage {
        fingerprint: abi::fingerprint(),
        kernels: std::ptr::null(),
        run_block: no_block,
        warp_width: 1,
        flags: 0,
        set_assist: no_assist,
    }
};

#[derive(Debug)]
pub(super) struct CpuEngine {
    /// Images with their names; at least one.
    images: Vec<(String, CpuImage)>,
    warp_width: u32,
    threads: usize,
    note: Option<String>,
}

impl CpuEngine {
    pub(super) fn new(
        threads: usize,
        images: Vec<(String, CpuImage)>,
        note: Option<String>,
    ) -> Result<Self, EngineError> {
        let processors = crate::processors::checked()?;
        let Some((first, image)) = images.first() else { return Err(EngineError::NoCpuImage) };
        let warp_width = image.warp_width();
        if let Some((other, image)) = images.iter().find(|(_, image)| image.warp_width() != warp_width) {
            let (images, widths) = ([first.clone(), other.clone()], [warp_width, image.warp_width()]);
            return Err(EngineError::WarpWidth { images, widths });
        }
        image::check_names(
            images.iter().flat_map(|(name, image)| image.names().into_iter().map(|k| (name.as_str(), k))),
        )?;
        Ok(Self { images, warp_width, threads: if threads == 0 { processors } else { threads }, note })
    }

    /// Returns the kernel and its image.
    fn find(&self, kernel: &str) -> Result<(&'static KernelEntry, CpuImage), EngineError> {
        let found = self.images.iter().find_map(|(_, image)| Some((image.find(kernel)?, *image)));
        found.ok_or_else(|| EngineError::NoKernel(kernel.to_owned()))
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    pub(super) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    pub(super) fn warp_width(&self) -> u32 {
        self.warp_width
    }

    pub(super) fn is_checked(&self) -> bool {
        self.images.iter().all(|(_, image)| image.is_checked())
    }

    pub(super) fn kernels(&self) -> Vec<String> {
        let mut names: Vec<_> = self.images.iter().flat_map(|(_, image)| image.names()).collect();
        names.sort();
        names
    }

    /// Returns 1 if an image has the kernel: a processor holds one block at a time.
    pub(super) fn occupancy(&self, kernel: &str) -> Result<u32, EngineError> {
        self.find(kernel).map(|_| 1)
    }

    /// Returns a grid with one block for each thread of the engine, and one warp per block.
    pub(super) fn grid(&self) -> Grid {
        Grid { blocks: self.threads as u32, threads: self.warp_width }
    }

    /// Checks the size of a kernel's grid.
    pub(super) fn check_grid(&self, kernel: &str, grid: Grid) -> Result<(), EngineError> {
        let refuse = |reason: &str| refused(kernel, grid, reason);
        let width = self.warp_width;
        if grid.blocks == 0 || grid.threads == 0 || !grid.threads.is_multiple_of(width) {
            return Err(refuse(&format!("use at least one block, and whole warps of {width} threads in each")));
        }
        if u64::from(grid.blocks) * u64::from(grid.threads) > 4096 {
            return Err(refuse("the CPU engine runs at most 4,096 threads; use the grid that Engine::grid returns"));
        }
        Ok(())
    }

    /// # Safety
    /// As [`Engine::launch`](super::Engine::launch).
    pub(super) unsafe fn launch(&self, kernel: &str, grid: Grid, args: super::Args) -> Result<CpuRun, EngineError> {
        // SAFETY: this function's caller makes the same promise.
        unsafe { self.prepare(kernel, grid, args) }?.start()
    }

    /// Checks a launch without starting it.
    ///
    /// # Safety
    /// As [`Engine::launch`](super::Engine::launch), until the kernel has ended, if the launch is started.
    pub(super) unsafe fn prepare(
        &self,
        kernel: &str,
        grid: Grid,
        mut args: super::Args,
    ) -> Result<Prepared, EngineError> {
        let (entry, image) = self.find(kernel)?;
        // SAFETY: the table has `parameter_count` entries.
        let expected = unsafe { std::slice::from_raw_parts(entry.parameter_bytes, entry.parameter_count as usize) };
        if expected != args.sizes() {
            let (expected, given) = (expected.to_vec(), args.sizes().to_vec());
            return Err(EngineError::Arguments { kernel: kernel.to_owned(), expected, given });
        }
        self.check_grid(kernel, grid)?;
        let parameters = args.pointers();
        Ok(Prepared {
            kernel: kernel.to_owned(),
            grid,
            args,
            parameters,
            call: entry.call,
            run_block: image.0.run_block,
        })
    }
}

fn refused(kernel: &str, grid: Grid, reason: &str) -> EngineError {
    let (kernel, reason) = (kernel.to_owned(), reason.to_owned());
    EngineError::Grid { kernel, blocks: grid.blocks, threads: grid.threads, reason }
}

type RunBlock = unsafe extern "C" fn(Call, *const *mut c_void, u32, u32, u32);

/// A launch that passed all checks and can start.
pub(super) struct Prepared {
    kernel: String,
    grid: Grid,
    args: super::Args,
    /// Addresses of the values in `args`. The values do not move when `args` moves.
    parameters: Vec<*mut c_void>,
    call: Call,
    run_block: RunBlock,
}

// SAFETY: the pointers are to values in `args`, which moves together with them; nothing writes the values.
unsafe impl Send for Prepared {}

impl Prepared {
    /// Returns the kernel's name.
    pub(super) fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Starts the kernel.
    pub(super) fn start(self) -> Result<CpuRun, EngineError> {
        let (grid, run_block, call) = (self.grid, self.run_block, self.call);
        // The run owns the values: the thread that launched may end before the kernel does.
        let state = Progress { left: grid.blocks, panicked: false, elapsed: None };
        let shared = Arc::new(Shared {
            _args: self.args,
            parameters: self.parameters,
            started: Instant::now(),
            progress: Mutex::new(state),
            ended: Condvar::new(),
        });
        // All threads, or none: running blocks may wait for each other.
        let threads = pool::take(grid.blocks as usize)
            .map_err(|e| refused(&self.kernel, grid, &format!("a thread cannot be started: {e}")))?;
        for (block, thread) in (0..grid.blocks).zip(threads) {
            let block_end = BlockEnd(shared.clone());
            thread.run(move || {
                let _assistant = Assistant::enter();
                let parameters = block_end.0.parameters.as_ptr();
                // SAFETY: the parameters have the sizes that the kernel takes and live in `shared`. The caller of
                // `prepare` vouches for the memory that they point to.
                unsafe { run_block(call, parameters, block, grid.blocks, grid.threads) };
                block_end
            });
        }
        Ok(CpuRun { shared })
    }
}

impl fmt::Display for CpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu ({} threads", self.threads)?;
        if let Some(note) = &self.note {
            write!(f, "; {note}")?;
        }
        f.write_str(")")
    }
}

struct Shared {
    _args: super::Args,
    parameters: Vec<*mut c_void>,
    started: Instant,
    progress: Mutex<Progress>,
    ended: Condvar,
}

struct Progress {
    /// Number of blocks that have not ended.
    left: u32,
    panicked: bool,
    elapsed: Option<Duration>,
}

// SAFETY: the pointers are to values that nothing writes.
unsafe impl Send for Shared {}
// SAFETY: nothing writes the values to which the pointers lead; locks guard the rest.
unsafe impl Sync for Shared {}

/// Counts a block as ended when dropped.
struct BlockEnd(Arc<Shared>);

impl Drop for BlockEnd {
    fn drop(&mut self) {
        let mut progress = self.0.progress.lock();
        progress.panicked |= std::thread::panicking();
        progress.left -= 1;
        if progress.left == 0 {
            progress.elapsed = Some(self.0.started.elapsed());
            self.0.ended.notify_all();
        }
    }
}

pub(super) struct CpuRun {
    shared: Arc<Shared>,
}

impl CpuRun {
    /// Waits at most `within` for the kernel to end. Returns true if it has ended.
    pub(super) fn wait(&mut self, within: Duration) -> Result<bool, String> {
        // Beside programs that compute, the next kernel should start as soon as this one has ended.
        contention::respond(contention::of_process().holds());
        let mut progress = self.shared.progress.lock();
        self.shared.ended.wait_while_for(&mut progress, |p| p.left != 0, within);
        match progress.left {
            0 if progress.panicked => Err("a thread of the kernel panicked".to_owned()),
            left => Ok(left == 0),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.shared.progress.lock().elapsed.unwrap_or_else(|| self.shared.started.elapsed())
    }
}
