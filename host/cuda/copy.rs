//! Copies between host and GPU memory that do not wait for kernels.
//!
//! Copies use their own stream and pinned buffers. The default stream waits for other streams, and the driver may stage
//! a copy of pageable memory anywhere.

use super::context::Current;
use super::driver::{CUdeviceptr, CUevent, CUstream, Driver, call};
use super::error::{CudaError, code};
use super::wait::Wait;
use cudarc::driver::sys;
use std::ffi::{c_uint, c_void};
use std::time::{Duration, Instant};

/// Size of each of the two pinned buffers. Large enough for the link's full speed, small enough
/// to stay in the host's cache.
const STAGING_BYTES: usize = 2 << 20;
/// Longest wait for one copy: far more than a copy of a staging buffer takes.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A stream and two pinned buffers. Each method takes the guard that proves that the context is current.
#[derive(Debug)]
pub(super) struct Copier {
    driver: &'static Driver,
    stream: CUstream,
    slots: [Slot; 2],
    /// True after a copy did not end in time: the GPU may still access its buffer.
    lost: bool,
}

#[derive(Debug)]
struct Slot {
    host: *mut u8,
    done: CUevent,
}

impl Copier {
    pub(super) fn new(driver: &'static Driver, current: &Current) -> Result<Self, CudaError> {
        let null = || Slot { host: std::ptr::null_mut(), done: std::ptr::null_mut() };
        let mut this = Self { driver, stream: std::ptr::null_mut(), slots: [null(), null()], lost: false };
        match this.fill_in(current) {
            Ok(()) => Ok(this),
            Err(e) => {
                this.close(current);
                Err(e)
            }
        }
    }

    fn fill_in(&mut self, current: &Current) -> Result<(), CudaError> {
        let (driver, what) = (self.driver, "preparing copies");
        let non_blocking = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: writes one handle; the context is current.
        unsafe { call!(driver, cuStreamCreate(&mut self.stream, non_blocking), what) }?;
        for slot in &mut self.slots {
            let mut p: *mut c_void = std::ptr::null_mut();
            // SAFETY: writes one address; the context is current.
            unsafe { call!(driver, cuMemHostAlloc(&mut p, STAGING_BYTES, sys::CU_MEMHOSTALLOC_PORTABLE), what) }?;
            slot.host = p.cast();
            let no_timing = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as c_uint;
            // SAFETY: writes one handle.
            unsafe { call!(driver, cuEventCreate(&mut slot.done, no_timing), what) }?;
        }
        self.warm_up(current)
    }

    /// Uses each kind of operation once, so that the driver loads what it needs before any kernel runs. Loading later
    /// could wait for such a kernel.
    fn warm_up(&mut self, current: &Current) -> Result<(), CudaError> {
        let (driver, what) = (self.driver, "testing copies");
        const BYTES: usize = 64 << 10;
        let mut p: CUdeviceptr = 0;
        // SAFETY: writes one address; the context is current.
        unsafe { call!(driver, cuMemAlloc_v2(&mut p, BYTES), what) }?;
        let mut bytes = [0u8; 64];
        let tried = [(0, BYTES), (1, BYTES - 3), (4, 4), (16, 48)]
            .iter()
            .try_for_each(|(at, bytes)| self.fill(current, p + at, *bytes, 0))
            .and_then(|()| self.copy_out(current, p, &mut bytes))
            .and_then(|()| self.copy_in(current, p, &bytes));
        // SAFETY: allocated above, and the copies that used it have ended.
        unsafe { call!(driver, cuMemFree_v2(p), what) }.and(tried)
    }

    /// Destroys the stream, events and buffers. Does nothing to handles that are already
    /// destroyed, nor after a lost copy.
    pub(super) fn close(&mut self, _current: &Current) {
        if self.lost {
            return;
        }
        for slot in &mut self.slots {
            if !slot.done.is_null() {
                // SAFETY: made by `fill_in`, and no copy is in flight.
                unsafe { (self.driver.cuEventDestroy_v2)(std::mem::replace(&mut slot.done, std::ptr::null_mut())) };
            }
            if !slot.host.is_null() {
                let p = std::mem::replace(&mut slot.host, std::ptr::null_mut());
                // SAFETY: made by `fill_in`, and no copy is in flight.
                unsafe { (self.driver.cuMemFreeHost)(p.cast()) };
            }
        }
        if !self.stream.is_null() {
            // SAFETY: made by `fill_in`, and no copy is on the stream.
            unsafe { (self.driver.cuStreamDestroy_v2)(std::mem::replace(&mut self.stream, std::ptr::null_mut())) };
        }
    }

    fn usable(&self, what: &'static str) -> Result<(), CudaError> {
        if self.lost { Err(CudaError::NoAnswer { what, seconds: ANSWER_LIMIT.as_secs() }) } else { Ok(()) }
    }

    fn mark(&self, slot: usize, what: &'static str) -> Result<(), CudaError> {
        // SAFETY: own event, own stream.
        unsafe { call!(self.driver, cuEventRecord(self.slots[slot].done, self.stream), what) }
    }

    fn wait(&mut self, slot: usize, what: &'static str) -> Result<(), CudaError> {
        let (mut started, mut pauses) = (None, Wait::new());
        loop {
            // SAFETY: own event.
            let answer = unsafe { (self.driver.cuEventQuery)(self.slots[slot].done) };
            if answer != code::NOT_READY {
                return self.driver.check(answer, "cuEventQuery", what);
            }
            if started.get_or_insert_with(Instant::now).elapsed() > ANSWER_LIMIT {
                self.lost = true;
                return self.usable(what);
            }
            pauses.pause();
        }
    }

    pub(super) fn copy_in(&mut self, _current: &Current, to: u64, data: &[u8]) -> Result<(), CudaError> {
        const WHAT: &str = "copying to the GPU";
        self.usable(WHAT)?;
        let mut used = 0;
        for (i, chunk) in data.chunks(STAGING_BYTES).enumerate() {
            let slot = i % 2;
            if i >= 2 {
                self.wait(slot, WHAT)?;
            }
            let host = self.slots[slot].host;
            // SAFETY: the buffer holds `STAGING_BYTES`, and no copy from it is in flight any more.
            unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), host, chunk.len()) };
            let at = to + (i * STAGING_BYTES) as u64;
            // SAFETY: the caller's address range is memory of this context; the buffer stays unchanged until `wait`.
            unsafe { call!(self.driver, cuMemcpyHtoDAsync_v2(at, host.cast(), chunk.len(), self.stream), WHAT) }?;
            self.mark(slot, WHAT)?;
            used = i + 1;
        }
        (0..used.min(2)).try_for_each(|slot| self.wait(slot, WHAT))
    }

    pub(super) fn copy_out(&mut self, _current: &Current, from: u64, out: &mut [u8]) -> Result<(), CudaError> {
        const WHAT: &str = "copying from the GPU";
        self.usable(WHAT)?;
        let chunks = out.len().div_ceil(STAGING_BYTES);
        let bytes = |i: usize, len: usize| (len - i * STAGING_BYTES).min(STAGING_BYTES);
        for i in 0..=chunks {
            if i < chunks {
                let slot = i % 2;
                let (at, n) = (from + (i * STAGING_BYTES) as u64, bytes(i, out.len()));
                let host = self.slots[slot].host.cast();
                // SAFETY: the caller's address range is memory of this context; the buffer's previous
                // chunk was copied out already.
                unsafe { call!(self.driver, cuMemcpyDtoHAsync_v2(host, at, n, self.stream), WHAT) }?;
                self.mark(slot, WHAT)?;
            }
            if let Some(last) = i.checked_sub(1) {
                self.wait(last % 2, WHAT)?;
                let n = bytes(last, out.len());
                let part = &mut out[last * STAGING_BYTES..][..n];
                // SAFETY: the copy into the buffer has ended, and the buffer holds `STAGING_BYTES`.
                unsafe { std::ptr::copy_nonoverlapping(self.slots[last % 2].host, part.as_mut_ptr(), n) };
            }
        }
        Ok(())
    }

    pub(super) fn fill(&mut self, _current: &Current, to: u64, bytes: usize, value: u8) -> Result<(), CudaError> {
        const WHAT: &str = "filling GPU memory";
        self.usable(WHAT)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's address range is memory of this context.
        unsafe { call!(self.driver, cuMemsetD8Async(to, value, bytes, self.stream), WHAT) }?;
        self.mark(0, WHAT)?;
        self.wait(0, WHAT)
    }
}
