//! What two GPUs can do with each other's memory.

use super::device::find;
use super::driver::{Driver, call};
use super::error::CudaError;
use serde::Serialize;
use std::ffi::c_int;

/// `CUdevice_P2PAttribute` values (cuda.h).
mod attribute {
    pub const PERFORMANCE_RANK: i32 = 1;
    pub const NATIVE_ATOMIC_SUPPORTED: i32 = 3;
}

/// What the kernels of one GPU can do with the memory of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeerLink {
    /// Loads and stores reach it.
    pub access: bool,
    /// Atomic operations work on it. NVLink carries them, PCIe does not.
    pub native_atomics: bool,
    /// How links compare: the lower, the faster (`CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`).
    pub performance_rank: i32,
}

/// What the GPU with ordinal `from` can do with the memory of `to`. A GPU reaches its own.
pub fn peer_link(from: usize, to: usize) -> Result<PeerLink, CudaError> {
    const WHAT: &str = "asking whether GPUs reach each other";
    let driver = Driver::get()?;
    let (from, to) = (find(driver, from)?, find(driver, to)?);
    if from == to {
        return Ok(PeerLink { access: true, native_atomics: true, performance_rank: 0 });
    }
    let mut access: c_int = 0;
    // SAFETY: writes one int; both devices are ones that the driver gave.
    unsafe { call!(driver, cuDeviceCanAccessPeer(&mut access, from, to), WHAT) }?;
    let attribute = |which: c_int| {
        let mut value: c_int = 0;
        // SAFETY: as above.
        let answer = unsafe { call!(driver, cuDeviceGetP2PAttribute(&mut value, which, from, to), WHAT) };
        answer.map(|()| value)
    };
    Ok(PeerLink {
        access: access != 0,
        native_atomics: access != 0 && attribute(attribute::NATIVE_ATOMIC_SUPPORTED)? != 0,
        performance_rank: attribute(attribute::PERFORMANCE_RANK)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUdevice_P2PAttribute as Theirs;

    #[test]
    fn the_numbers_are_the_headers() {
        assert_eq!(attribute::PERFORMANCE_RANK, Theirs::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK as i32);
        assert_eq!(attribute::NATIVE_ATOMIC_SUPPORTED, Theirs::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED as i32);
    }

    #[test]
    fn gpus_that_are_not_there_are_an_error() {
        assert!(peer_link(0, usize::MAX >> 40).is_err());
    }
}
