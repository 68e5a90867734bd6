//! Streams for launches, and how many of them run side by side.
//!
//! The driver puts streams into a few hardware queues, at the first use of each. What is in one queue runs in its order: a kernel whose
//! stream shares a queue with that of a kernel that waits for it never starts. So streams belong to the context and are used again, no more
//! of them than kernels that run at once; and their first use is here, one at a time: two that are first used at the same moment may get
//! one queue although others are free (seen with driver 580 on an H100 in a fifth of all cases).

use super::context::Current;
use super::driver::{CUevent, CUstream, Driver, call};
use super::error::{CudaError, code};
use cudarc::driver::sys;
use std::ffi::c_uint;
use std::time::{Duration, Instant};

/// Kernels that can start side by side without making a stream first.
pub(super) const READY_LANES: usize = 4;

/// Says how many hardware queues a context has; the driver reads it when the context is opened.
pub const CONNECTIONS_VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// As many as the driver makes unless told otherwise.
const DEFAULT_CONNECTIONS: usize = 8;
/// Far beyond what a stream's first use takes, unless it has to wait for a kernel.
const FIRST_USE: Duration = Duration::from_millis(100);
/// As many as it makes at most.
pub const MOST_CONNECTIONS: usize = 32;

/// Hardware queues by the variable's value.
pub(super) fn connections(value: Option<&str>) -> usize {
    let asked = value.and_then(|v| v.trim().parse().ok()).filter(|n| *n > 0);
    asked.unwrap_or(DEFAULT_CONNECTIONS).min(MOST_CONNECTIONS)
}

/// A stream that does not wait for others, and the two events that bound a kernel's time.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) stream: CUstream,
    pub(super) start: CUevent,
    pub(super) end: CUevent,
}

// SAFETY: handles that may be used from any thread; one launch has them at a time.
unsafe impl Send for Lane {}

impl Lane {
    /// A new one that was used once. No other may be made meanwhile.
    pub(super) fn new(driver: &'static Driver, _current: &Current) -> Result<Self, CudaError> {
        const WHAT: &str = "preparing launches";
        let (stream, start, end) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let mut lane = Self { stream, start, end };
        let non_blocking = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
        let timed = sys::CUevent_flags_enum::CU_EVENT_DEFAULT as c_uint;
        // SAFETY: each writes one handle; a context is current.
        let made = unsafe {
            call!(driver, cuStreamCreate(&mut lane.stream, non_blocking), WHAT)
                .and_then(|()| call!(driver, cuEventCreate(&mut lane.start, timed), WHAT))
                .and_then(|()| call!(driver, cuEventCreate(&mut lane.end, timed), WHAT))
                .and_then(|()| call!(driver, cuEventRecord(lane.start, lane.stream), WHAT))
        };
        made.inspect_err(|_| lane.destroy(driver))?;
        let used = Instant::now();
        // SAFETY: own event.
        while unsafe { (driver.cuEventQuery)(lane.start) } == code::NOT_READY && used.elapsed() < FIRST_USE {
            std::thread::yield_now();
        }
        Ok(lane)
    }

    pub(super) fn destroy(&mut self, driver: &Driver) {
        for event in [&mut self.start, &mut self.end] {
            if !event.is_null() {
                // SAFETY: made by `new`, used by no launch.
                unsafe { (driver.cuEventDestroy_v2)(std::mem::replace(event, std::ptr::null_mut())) };
            }
        }
        if !self.stream.is_null() {
            // SAFETY: as above.
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
