//! Streams for launches, and the number of kernels that run concurrently.
//!
//! The driver assigns each stream to one of a few hardware queues at the stream's first use. A hardware queue runs its
//! work in order. So if kernel A waits for kernel B, and both streams share a queue, B never starts.
//!
//! Therefore streams belong to the context and are reused: there are never more of them than kernels in flight at once.
//! Their first use is in this module, one stream at a time. If two streams are first used at the same moment, they may
//! get one queue although others are free. This was seen with driver 580 on an H100 in a fifth of all cases.

use super::context::Current;
use super::driver::{CUevent, CUstream, Driver, call};
use super::error::{CudaError, code};
use super::wait::Wait;
use cudarc::driver::sys;
use std::ffi::c_uint;
use std::time::{Duration, Instant};

/// Lanes that are made with the context: so many kernels can start concurrently without creating a stream first.
pub(super) const READY_LANES: usize = 4;

/// Environment variable for the number of hardware queues of a context. The driver reads it when the context is opened.
pub const CONNECTIONS_VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// Number of hardware queues that the driver makes if the variable is not set.
const DEFAULT_CONNECTIONS: usize = 8;
const WHAT: &str = "preparing launches";
/// Longest wait for a stream's first use. Far more than it takes, unless it has to wait for a kernel.
const FIRST_USE: Duration = Duration::from_millis(100);
/// Largest number of hardware queues that the driver makes.
pub const MOST_CONNECTIONS: usize = 32;

/// Returns the number of hardware queues for a value of the variable.
pub(super) fn connections(value: Option<&str>) -> usize {
    let asked = value.and_then(|v| v.trim().parse().ok()).filter(|n| *n > 0);
    asked.unwrap_or(DEFAULT_CONNECTIONS).min(MOST_CONNECTIONS)
}

/// A stream, and the two events that measure a kernel's time.
#[derive(Debug)]
pub(super) struct Lane {
    /// A non-blocking stream of the lane's own, or another owner's stream.
    pub(super) stream: CUstream,
    /// True if the stream has another owner: only the events are the lane's own.
    pub(super) is_adopted: bool,
    pub(super) start: CUevent,
    pub(super) end: CUevent,
}

// SAFETY: the handles may be used from any thread; one launch, or one stream, has them at a time.
unsafe impl Send for Lane {}

impl Lane {
    /// Creates a lane and uses its stream once. The caller ensures that no other lane is created meanwhile.
    pub(super) fn new(driver: &'static Driver, _current: &Current) -> Result<Self, CudaError> {
        let mut stream = std::ptr::null_mut();
        let non_blocking = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: writes one handle; a context is current.
        unsafe { call!(driver, cuStreamCreate(&mut stream, non_blocking), WHAT) }?;
        let mut lane = Self { stream, is_adopted: false, start: std::ptr::null_mut(), end: std::ptr::null_mut() };
        // SAFETY: own event, own stream.
        let made = lane
            .make_events(driver)
            .and_then(|()| unsafe { call!(driver, cuEventRecord(lane.start, lane.stream), WHAT) });
        made.inspect_err(|_| lane.destroy(driver))?;
        let (used, mut pauses) = (Instant::now(), Wait::new());
        // SAFETY: own event.
        while unsafe { (driver.cuEventQuery)(lane.start) } == code::NOT_READY && used.elapsed() < FIRST_USE {
            pauses.pause();
        }
        Ok(lane)
    }

    /// Creates a lane around another owner's stream of the current context.
    pub(super) fn around(driver: &'static Driver, _current: &Current, stream: CUstream) -> Result<Self, CudaError> {
        let mut lane = Self { stream, is_adopted: true, start: std::ptr::null_mut(), end: std::ptr::null_mut() };
        lane.make_events(driver).inspect_err(|_| lane.destroy(driver))?;
        Ok(lane)
    }

    fn make_events(&mut self, driver: &'static Driver) -> Result<(), CudaError> {
        let timed = sys::CUevent_flags_enum::CU_EVENT_DEFAULT as c_uint;
        // SAFETY: each writes one handle; the callers have made a context current.
        unsafe {
            call!(driver, cuEventCreate(&mut self.start, timed), WHAT)?;
            call!(driver, cuEventCreate(&mut self.end, timed), WHAT)
        }
    }

    pub(super) fn destroy(&mut self, driver: &Driver) {
        for event in [&mut self.start, &mut self.end] {
            if !event.is_null() {
                // SAFETY: made by `new`, and no launch uses it.
                unsafe { (driver.cuEventDestroy_v2)(std::mem::replace(event, std::ptr::null_mut())) };
            }
        }
        if !self.is_adopted && !self.stream.is_null() {
            // SAFETY: made by `new`, and no launch uses it.
            unsafe { (driver.cuStreamDestroy_v2)(std::mem::replace(&mut self.stream, std::ptr::null_mut())) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_what_the_variable_says_within_what_the_driver_makes() {
        let said = [None, Some("32"), Some(" 1 "), Some("64"), Some("0"), Some("many")].map(connections);
        assert_eq!(said, [8, 32, 1, 32, 8, 8]);
    }
}
