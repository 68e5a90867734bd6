//! A CUDA driver for tests: one GPU whose memory is host memory. Work on a stream ends at once, unless the test holds the
//! stream; kernels do nothing, except for the one that returns an image's fingerprint.

mod calls;

use super::context::Context;
use super::driver::{CUcontext, CUstream};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// The GPU of one test.
pub(crate) struct Gpu {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    memory: BTreeMap<u64, Allocation>,
    streams: Vec<Stream>,
    events: Vec<Mark>,
    functions: Vec<CString>,
    /// Modules: ranges of functions.
    modules: Vec<std::ops::Range<usize>>,
    /// Calls that put work on the legacy default stream.
    legacy: Vec<&'static str>,
    /// True while the freeing calls wait, as they do behind a kernel of other code.
    holds_frees: bool,
    frees_waiting: usize,
    /// Local memory per thread in bytes.
    stack: usize,
    /// Allocations and event queries that a capture of other code would have refused.
    refused_by_capture: usize,
    /// Captures that a call invalidated.
    invalidated: usize,
    launches: Vec<String>,
}

/// Allocation with the attributes that the driver reports.
#[derive(Clone, Copy)]
pub(crate) struct Allocation {
    pub(crate) bytes: usize,
    pub(crate) device: i32,
    pub(crate) pool: usize,
    pub(crate) is_mapped: bool,
    pub(crate) is_host: bool,
    /// Bytes before the address that belong to the block.
    pub(crate) head: usize,
}

#[derive(Default)]
struct Stream {
    issued: u64,
    is_held: bool,
    is_capturing: bool,
    /// Marks that work behind these positions waits for.
    waits: Vec<(u64, Mark)>,
}

/// Position on a stream. Position 0 is always reached.
#[derive(Clone, Copy, Default)]
struct Mark {
    stream: usize,
    position: u64,
}

/// Local memory per thread that a context has at first, as CUDA's.
pub(crate) const STACK: usize = 1024;
/// Blocks of memory in the fake are so aligned.
const ALIGN: usize = 64 << 10;
const LEGACY: usize = 1;
const RELAXED: c_int = 2;

thread_local! {
    static CURRENT: RefCell<Vec<CUcontext>> = const { RefCell::new(Vec::new()) };
    static MODE: RefCell<c_int> = const { RefCell::new(0) };
}

impl State {
    fn stream(&mut self, raw: CUstream, call: &'static str) -> &mut Stream {
        let handle = raw as usize;
        if handle <= LEGACY {
            self.legacy.push(call);
        }
        &mut self.streams[handle]
    }

    fn is_reached(&self, mark: Mark) -> bool {
        let stream = &self.streams[mark.stream];
        let mut waits = stream.waits.iter().filter(|(position, _)| mark.position > *position);
        mark.position == 0 || (!stream.is_held && waits.all(|(_, m)| self.is_reached(*m)))
    }
}

/// Returns the GPU of the current context.
fn gpu() -> &'static Gpu {
    let raw = CURRENT.with_borrow(|all| all.last().copied()).expect("a context is current");
    of(raw)
}

fn of(raw: CUcontext) -> &'static Gpu {
    // SAFETY: `Gpu::new` made the handle from a leaked GPU.
    unsafe { &*raw.cast::<Gpu>() }
}

fn state() -> MutexGuard<'static, State> {
    gpu().state.lock()
}

impl Gpu {
    /// Opens a context on a new GPU. Both stay until the process ends.
    pub(crate) fn open() -> (&'static Self, Arc<Context>) {
        let gpu: &'static Self = Box::leak(Box::new(Self { state: Mutex::default(), changed: Condvar::new() }));
        let state = State {
            streams: vec![Stream::default(), Stream::default(), Stream::default()],
            stack: STACK,
            ..State::default()
        };
        *gpu.state.lock() = state;
        OPENING.set(Some(gpu));
        let context = Context::retain(Box::leak(Box::new(calls::driver())), 0).expect("the fake GPU opens");
        (gpu, Arc::new(context))
    }

    /// Returns the calls that used the legacy default stream so far.
    pub(crate) fn legacy_calls(&self) -> Vec<&'static str> {
        self.state.lock().legacy.clone()
    }

    /// Returns the number of driver calls that a capture by another thread would have refused.
    pub(crate) fn refused_by_capture(&self) -> usize {
        self.state.lock().refused_by_capture
    }

    /// Returns the number of calls that invalidated a capture.
    pub(crate) fn invalidated(&self) -> usize {
        self.state.lock().invalidated
    }

    /// Returns the names of the kernels that were launched, except for the one that identifies images.
    pub(crate) fn launches(&self) -> Vec<String> {
        self.state.lock().launches.clone()
    }

    pub(crate) fn stack(&self) -> usize {
        self.state.lock().stack
    }

    /// Creates a stream as other code would.
    pub(crate) fn stream(&self) -> *mut c_void {
        let mut state = self.state.lock();
        state.streams.push(Stream::default());
        (state.streams.len() - 1) as *mut c_void
    }

    /// Makes the work on a stream stay unfinished, or finish.
    pub(crate) fn hold(&self, stream: *mut c_void, holds: bool) {
        self.state.lock().streams[stream as usize].is_held = holds;
    }

    pub(crate) fn capture(&self, stream: *mut c_void, captures: bool) {
        self.state.lock().streams[stream as usize].is_capturing = captures;
    }

    /// Puts work of other code on a stream.
    pub(crate) fn work_on(&self, stream: *mut c_void) {
        self.state.lock().streams[stream as usize].issued += 1;
    }

    /// Returns true if all work on a stream has ended.
    pub(crate) fn is_done(&self, stream: *mut c_void) -> bool {
        let state = self.state.lock();
        state.is_reached(Mark { stream: stream as usize, position: state.streams[stream as usize].issued })
    }

    /// Makes the calls that free memory wait, or go on.
    pub(crate) fn hold_frees(&self, holds: bool) {
        self.state.lock().holds_frees = holds;
        self.changed.notify_all();
    }

    /// Waits for a thread that is inside such a call.
    pub(crate) fn await_a_free(&self) {
        let mut state = self.state.lock();
        let waited = self.changed.wait_while_for(&mut state, |s| s.frees_waiting == 0, Duration::from_secs(20));
        assert!(!waited.timed_out(), "no thread frees memory");
    }

    /// Allocates memory as other code would, with these attributes.
    pub(crate) fn allocate(&self, like: Allocation) -> u64 {
        let address = allocate(like.bytes);
        self.state.lock().memory.insert(address, like);
        address
    }

    pub(crate) fn has_freed(&self, address: u64) -> bool {
        !self.state.lock().memory.contains_key(&address)
    }
}

impl Allocation {
    /// Memory of cuMemAlloc.
    pub(crate) fn plain(bytes: usize) -> Self {
        Self { bytes, device: 0, pool: 0, is_mapped: false, is_host: false, head: 0 }
    }
}

thread_local! {
    static OPENING: std::cell::Cell<Option<&'static Gpu>> = const { std::cell::Cell::new(None) };
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), ALIGN).expect("a length")
}

fn allocate(bytes: usize) -> u64 {
    // SAFETY: the length is not zero.
    unsafe { alloc_zeroed(layout(bytes)) as u64 }
}
