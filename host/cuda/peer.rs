//! Peer access between two GPUs.

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

/// Access of one GPU's kernels to the memory of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeerLink {
    /// True if loads and stores reach the memory.
    pub access: bool,
    /// True if atomic operations work on the memory. NVLink carries them, PCIe does not.
    pub native_atomics: bool,
    /// Relative speed of the link: lower is faster (`CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`).
    pub performance_rank: i32,
}

/// Returns the access that GPU `from` has to the memory of GPU `to` (both are ordinals, from 0). A
/// GPU reaches its own memory.
///
/// # Errors
/// - [`CudaError::NoDriver`] if libcuda does not load, [`CudaError::OldDriver`] if it lacks a function.
/// - [`CudaError::NoDevice`] if there is no GPU with one of these ordinals.
/// - [`CudaError::Call`] if the driver fails to report the access.
pub fn peer_link(from: usize, to: usize) -> Result<PeerLink, CudaError> {
    const WHAT: &str = "querying peer access between GPUs";
    let driver = Driver::get()?;
    let (from, to) = (find(driver, from)?, find(driver, to)?);
    if from == to {
        return Ok(PeerLink { access: true, native_atomics: true, performance_rank: 0 });
    }
    let mut access: c_int = 0;
    // SAFETY: writes one int; the driver returned both devices.
    unsafe { call!(driver, cuDeviceCanAccessPeer(&mut access, from, to), WHAT) }?;
    let attribute = |which: c_int| {
        let mut value: c_int = 0;
        // SAFETY: writes one int; the driver returned both devices.
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
