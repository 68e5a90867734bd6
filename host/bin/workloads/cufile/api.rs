//! The three interfaces of cuFile: calls that wait, batches, and operations on a CUDA stream.

use super::abi::{self, BatchEntry, BatchEvent, BatchHandle};
use super::error::{CufileError, check_transfer};
use super::library::Session;
use super::pattern::Operation;
use serde::Serialize;
use std::ffi::{c_uint, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use warpbell::engine::{Engine, Stream};
use warpbell::memory::Region;

/// Interface of cuFile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// `cuFileRead` and `cuFileWrite` on many threads.
    Threads,
    /// `cuFileBatchIOSubmit`.
    Batch,
    /// `cuFileReadAsync` and `cuFileWriteAsync`.
    Stream,
}

impl Api {
    /// All interfaces.
    pub const ALL: [Self; 3] = [Self::Threads, Self::Batch, Self::Stream];
}

/// A file that is registered with cuFile.
pub struct Registered<'s> {
    pub(super) session: &'s Session,
    handle: abi::Handle,
    _file: File,
}

// SAFETY: the library's handle may be used from any thread; `&self` only copies it.
unsafe impl Send for Registered<'_> {}
// SAFETY: the library's handle may be used from several threads at the same time; `&self` only copies it.
unsafe impl Sync for Registered<'_> {}

impl<'s> Registered<'s> {
    /// Opens a file and registers it. `direct` bypasses the page cache.
    ///
    /// # Errors
    /// [`CufileError::File`] if the file cannot be opened, [`CufileError::Call`] if it cannot be registered.
    pub fn open(session: &'s Session, path: &Path, writes: bool, direct: bool) -> Result<Self, CufileError> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        let file = OpenOptions::new().read(true).write(writes).custom_flags(flags).open(path);
        let file = file.map_err(|source| CufileError::File { path: path.to_owned(), source })?;
        let mut handle = std::ptr::null_mut();
        let mut descriptor = abi::Descriptor::of(file.as_raw_fd());
        // SAFETY: writes one handle, and reads the description of a file that lives as long as the handle.
        let outcome = unsafe { (session.library.functions.handle_register)(&mut handle, &mut descriptor) };
        session.library.check("cuFileHandleRegister", outcome)?;
        Ok(Self { session, handle, _file: file })
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // SAFETY: registered in `open`; no operation is in flight.
        unsafe { (self.session.library.functions.handle_deregister)(self.handle) };
    }
}

/// Memory of the engine that cuFile reads into and writes from.
pub struct Buffer<'s> {
    session: &'s Session,
    pub(super) region: Region,
    /// Reason why the memory is not registered; `None` if it is.
    pub unregistered: Option<String>,
}

impl<'s> Buffer<'s> {
    /// Registers memory. Without a registration, cuFile goes through memory of its own.
    pub fn new(session: &'s Session, region: Region) -> Self {
        let functions = &session.library.functions;
        // SAFETY: the region lives as long as the registration.
        let outcome = unsafe { (functions.buffer_register)(region.address() as *const c_void, region.len(), 0) };
        let unregistered = session.library.check("cuFileBufRegister", outcome).err().map(|e| e.to_string());
        Self { session, region, unregistered }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if self.unregistered.is_none() {
            let deregister = self.session.library.functions.buffer_deregister;
            // SAFETY: registered in `new`; no operation is in flight.
            let outcome = unsafe { deregister(self.region.address() as *const c_void) };
            if let Some((code, _)) = outcome.failed() {
                tracing::warn!(%code, "memory stays registered with cuFile");
            }
        }
    }
}

/// Engine, file and memory of the operations of one thread.
pub struct Site<'a> {
    pub engine: &'a Engine,
    pub file: &'a Registered<'a>,
    pub buffer: &'a Buffer<'a>,
    /// Offset of the thread's part of the buffer in bytes.
    pub base: usize,
    /// Bytes of each operation.
    pub bytes: usize,
    /// Operations of a round.
    pub each: usize,
    /// Time limit of a round.
    pub deadline: Duration,
}

impl Site<'_> {
    fn offset(&self, o: &Operation) -> i64 {
        (o.unit * self.bytes as u64) as i64
    }

    /// Returns an address and an offset from it that name a slot: the buffer's own address if that was registered, or
    /// else the slot's. The stream API takes memory that was not registered for as long as the operation is, so an
    /// offset other than 0 ends it with -5 (seen in libcufile 1.15).
    fn slot(&self, slot: usize) -> (*mut c_void, i64) {
        let (buffer, offset) = (self.buffer.region.address(), self.base + slot * self.bytes);
        match self.buffer.unregistered {
            None => (buffer as *mut c_void, offset as i64),
            Some(_) => ((buffer + offset as u64) as *mut c_void, 0),
        }
    }

    fn functions(&self) -> &abi::Functions {
        &self.file.session.library.functions
    }

    /// Returns the error of operations that are still in flight. They may write to the buffer at any time, so it is
    /// never freed.
    fn late(&self, what: &'static str) -> CufileError {
        std::mem::forget(self.buffer.region.clone());
        CufileError::Late { what, seconds: self.deadline.as_secs(), next: "choose a longer --deadline" }
    }
}

/// Rounds of operations of one thread.
pub trait Rounds {
    /// Makes the operations, the first with slot `slot` of the thread's buffer, the next with the next slot. Calls
    /// `done` for each operation that has completed, with its position.
    ///
    /// # Errors
    /// [`CufileError`] for the first operation that failed. None is in flight then, unless the error is
    /// [`CufileError::Late`].
    fn run(&mut self, operations: &[Operation], slot: usize, done: &mut dyn FnMut(usize)) -> Result<(), CufileError>;
}

/// Prepares the operations of one thread.
///
/// # Errors
/// [`CufileError`] if a batch cannot be set up, or a stream cannot be created or registered.
pub fn rounds<'a>(api: Api, site: Site<'a>) -> Result<Box<dyn Rounds + 'a>, CufileError> {
    Ok(match api {
        Api::Threads => Box::new(Calls(site)),
        Api::Batch => Box::new(Batch::new(site)?),
        Api::Stream => Box::new(OnStream::new(site)?),
    })
}

struct Calls<'a>(Site<'a>);

impl Rounds for Calls<'_> {
    fn run(&mut self, operations: &[Operation], slot: usize, done: &mut dyn FnMut(usize)) -> Result<(), CufileError> {
        let Self(site) = self;
        let (functions, file) = (site.functions(), site.file.handle);
        for (i, o) in operations.iter().enumerate() {
            let (at, (buffer, to)) = (site.offset(o), site.slot(slot + i));
            // SAFETY: the slot lies in the buffer, and the call ends before it is used otherwise.
            let (name, moved) = unsafe {
                if o.is_read {
                    ("cuFileRead", (functions.read)(file, buffer, site.bytes, at, to))
                } else {
                    ("cuFileWrite", (functions.write)(file, buffer, site.bytes, at, to))
                }
            };
            check_transfer(name, at as u64, site.bytes, moved, io::Error::last_os_error)?;
            done(i);
        }
        Ok(())
    }
}

struct Batch<'a> {
    site: Site<'a>,
    handle: BatchHandle,
    entries: Vec<BatchEntry>,
    events: Vec<BatchEvent>,
}

impl<'a> Batch<'a> {
    fn new(site: Site<'a>) -> Result<Self, CufileError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let outcome = unsafe { (site.functions().batch_setup)(&mut handle, site.each as c_uint) };
        site.file.session.library.check("cuFileBatchIOSetUp", outcome)?;
        let nothing = BatchEvent { cookie: std::ptr::null_mut(), status: 0, result: 0 };
        let events = vec![nothing; site.each];
        Ok(Self { site, handle, entries: Vec::new(), events })
    }

    fn entry(&self, i: usize, o: &Operation, slot: usize) -> BatchEntry {
        let (buffer, buffer_offset) = self.site.slot(slot);
        BatchEntry {
            mode: abi::BATCH,
            buffer,
            file_offset: self.site.offset(o),
            buffer_offset,
            bytes: self.site.bytes,
            file: self.site.file.handle,
            opcode: if o.is_read { abi::READ } else { abi::WRITE },
            cookie: i as *mut c_void,
        }
    }

    /// Waits for events; returns their number, which may be 0.
    fn wait(&mut self, missing: usize) -> Result<usize, CufileError> {
        /// Time limit of one call.
        const SLICE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 500_000_000 };
        let (mut count, mut slice) = (missing as c_uint, SLICE);
        // SAFETY: there is room for `count` events.
        let outcome = unsafe {
            let events = self.events.as_mut_ptr();
            (self.site.functions().batch_status)(self.handle, 1, &mut count, events, &mut slice)
        };
        self.site.file.session.library.check("cuFileBatchIOGetStatus", outcome)?;
        Ok((count as usize).min(missing))
    }
}

impl Rounds for Batch<'_> {
    fn run(&mut self, operations: &[Operation], slot: usize, done: &mut dyn FnMut(usize)) -> Result<(), CufileError> {
        self.entries = operations.iter().enumerate().map(|(i, o)| self.entry(i, o, slot + i)).collect();
        let (n, entries) = (operations.len(), self.entries.as_mut_ptr());
        // SAFETY: the entries and the buffer live until the batch has completed or was destroyed.
        let outcome = unsafe { (self.site.functions().batch_submit)(self.handle, n as c_uint, entries, 0) };
        self.site.file.session.library.check("cuFileBatchIOSubmit", outcome)?;
        let began = Instant::now();
        let (mut in_flight, mut missing, mut failure) = (vec![true; n], n, None);
        while missing > 0 {
            let count = self.wait(missing)?;
            if count == 0 && began.elapsed() > self.site.deadline {
                // SAFETY: a batch that was set up.
                unsafe { (self.site.functions().batch_cancel)(self.handle) };
                return Err(self.site.late("a batch of cuFile"));
            }
            for event in &self.events[..count] {
                let entry = event.cookie as usize;
                if !in_flight.get_mut(entry).is_some_and(std::mem::take) {
                    return Err(CufileError::Event { entry });
                }
                missing -= 1;
                let (offset, bytes) = (self.entries[entry].file_offset as u64, self.site.bytes);
                let ended = match event.status {
                    abi::COMPLETE => {
                        let errno = || io::Error::from_raw_os_error(libc::EIO);
                        check_transfer("cuFileBatchIOSubmit", offset, bytes, event.result as isize, errno)
                    }
                    status => Err(CufileError::Batch { offset, bytes, status }),
                };
                match ended {
                    Ok(()) => done(entry),
                    Err(e) => failure = failure.or(Some(e)),
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // SAFETY: set up in `new`.
        unsafe { (self.site.functions().batch_destroy)(self.handle) };
    }
}

/// Arguments of an operation on a stream, which the library reads when the stream reaches it.
#[derive(Clone, Copy, Default)]
struct Arguments {
    bytes: usize,
    file_offset: i64,
    buffer_offset: i64,
    moved: isize,
}

struct OnStream<'a> {
    site: Site<'a>,
    stream: Stream,
    arguments: Box<[Arguments]>,
}

impl<'a> OnStream<'a> {
    fn new(site: Site<'a>) -> Result<Self, CufileError> {
        /// Alignment that the library takes for whole pages.
        const PAGE: usize = 4096;
        let stream = site.engine.stream()?;
        let aligned = site.bytes.is_multiple_of(PAGE) && site.base.is_multiple_of(PAGE);
        let flags = abi::STREAM_FIXED | if aligned { abi::STREAM_ALIGNED } else { 0 };
        let arguments = vec![Arguments::default(); site.each].into_boxed_slice();
        let this = Self { site, stream, arguments };
        // SAFETY: the stream lives until it was deregistered.
        let outcome = unsafe { (this.site.functions().stream_register)(this.raw(), flags) };
        this.site.file.session.library.check("cuFileStreamRegister", outcome)?;
        Ok(this)
    }

    /// Returns the CUDA stream, or null on a CPU engine.
    fn raw(&self) -> abi::Stream {
        self.stream.raw().unwrap_or(std::ptr::null_mut())
    }
}

impl Rounds for OnStream<'_> {
    fn run(&mut self, operations: &[Operation], slot: usize, done: &mut dyn FnMut(usize)) -> Result<(), CufileError> {
        let (stream, file) = (self.raw(), self.site.file.handle);
        let mut submitted = Ok(());
        for (i, o) in operations.iter().enumerate() {
            let (buffer, buffer_offset) = self.site.slot(slot + i);
            let (bytes, file_offset) = (self.site.bytes, self.site.offset(o));
            self.arguments[i] = Arguments { bytes, file_offset, buffer_offset, moved: 0 };
            let a = &mut self.arguments[i];
            let functions = self.site.functions();
            let (name, call) = if o.is_read {
                ("cuFileReadAsync", functions.read_async)
            } else {
                ("cuFileWriteAsync", functions.write_async)
            };
            // SAFETY: arguments and buffer live until the stream has been drained.
            let outcome = unsafe {
                call(file, buffer, &mut a.bytes, &mut a.file_offset, &mut a.buffer_offset, &mut a.moved, stream)
            };
            submitted = self.site.file.session.library.check(name, outcome);
            if submitted.is_err() {
                break;
            }
        }
        // Also after an error: earlier operations may be in flight.
        if !self.stream.drain(self.site.deadline)? {
            std::mem::forget(std::mem::take(&mut self.arguments));
            return Err(self.site.late("a stream of cuFile operations"));
        }
        submitted?;
        for (i, o) in operations.iter().enumerate() {
            let name = if o.is_read { "cuFileReadAsync" } else { "cuFileWriteAsync" };
            let errno = || io::Error::from_raw_os_error(libc::EIO);
            // SAFETY: the library has written the value before the stream went on; the compiler does not see that.
            let moved = unsafe { (&raw const self.arguments[i].moved).read_volatile() };
            check_transfer(name, self.site.offset(o) as u64, self.site.bytes, moved, errno)?;
            done(i);
        }
        Ok(())
    }
}

impl Drop for OnStream<'_> {
    fn drop(&mut self) {
        // SAFETY: the stream lives; registered in `new`, or the library returns an error.
        let outcome = unsafe { (self.site.functions().stream_deregister)(self.raw()) };
        if let Some((code, _)) = outcome.failed() {
            tracing::debug!(%code, "a stream stays registered with cuFile");
        }
    }
}

/// Number of threads, and of operations that each keeps in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Threads.
    pub threads: u32,
    /// Operations in flight for each thread.
    pub each: u32,
}

impl Shape {
    /// Returns the shape for `iodepth` operations in flight: as many threads as `threads`; batches of at most
    /// `max_batch`; or at most 32 streams.
    pub fn of(api: Api, iodepth: u32, threads: Option<u32>, max_batch: u32) -> Self {
        /// Most threads unless the user chooses.
        const THREADS: u32 = 128;
        const BATCHES: u32 = 64;
        /// Streams that a GPU runs side by side.
        const STREAMS: u32 = 32;
        /// Largest batch of a library that does not report it.
        const BATCH: u32 = 128;
        let split = |threads: u32| Self { threads, each: iodepth.div_ceil(threads).max(1) };
        match api {
            Api::Threads => Self { threads: threads.unwrap_or(iodepth.clamp(1, THREADS)), each: 1 },
            Api::Batch => {
                let max = if max_batch == 0 { BATCH } else { max_batch };
                let shape = split(iodepth.div_ceil(max).clamp(1, BATCHES));
                Self { each: shape.each.min(max), ..shape }
            }
            Api::Stream => split(iodepth.clamp(1, STREAMS)),
        }
    }

    /// Returns the operations in flight.
    pub fn in_flight(self) -> u32 {
        self.threads * self.each
    }

    /// Returns the words for a table, as in `cuFile, 2 batches of 128`.
    pub fn words(self, api: Api) -> String {
        let Self { threads: n, each } = self;
        let s = if n == 1 { "" } else { "s" };
        match api {
            Api::Threads => format!("cuFile, {n} thread{s}"),
            Api::Batch => format!("cuFile, {n} batch{} of {each}", if n == 1 { "" } else { "es" }),
            Api::Stream if each == 1 => format!("cuFile, {n} stream{s}"),
            Api::Stream => format!("cuFile, {n} stream{s} of {each}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_in_flight_are_those_of_the_job_as_far_as_the_interface_takes_them() {
        let of = |api, depth, threads| {
            let shape = Shape::of(api, depth, threads, 128);
            (shape.threads, shape.each, shape.words(api))
        };
        let is = |n, each, words: &str| (n, each, words.to_owned());
        assert_eq!(of(Api::Threads, 32, None), is(32, 1, "cuFile, 32 threads"));
        assert_eq!(of(Api::Threads, 4096, None), is(128, 1, "cuFile, 128 threads"));
        assert_eq!(of(Api::Threads, 32, Some(8)), is(8, 1, "cuFile, 8 threads"));
        assert_eq!(of(Api::Batch, 32, None), is(1, 32, "cuFile, 1 batch of 32"));
        assert_eq!(of(Api::Batch, 1000, None), is(8, 125, "cuFile, 8 batches of 125"));
        assert_eq!(of(Api::Batch, 1 << 20, None), is(64, 128, "cuFile, 64 batches of 128"));
        assert_eq!(of(Api::Stream, 1, None), is(1, 1, "cuFile, 1 stream"));
        assert_eq!(of(Api::Stream, 256, None), is(32, 8, "cuFile, 32 streams of 8"));
        assert_eq!(Shape::of(Api::Batch, 256, None, 0), Shape { threads: 2, each: 128 });
    }
}
