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
    /// True if the link itself carries atomic operations, also where access is denied.
    #[serde(skip)]
    pub link_atomics: bool,
}

impl PeerLink {
    /// Returns true if CUDA denies access over PCIe alone: NVLink would carry atomic operations.
    pub(crate) fn is_denied_over_pcie(&self) -> bool {
        !self.access && !self.link_atomics
    }
}

/// Returns the access that GPU `from` has to the memory of GPU `to` (both are ordinals, from 0). A
/// GPU reaches its own memory.
///
/// # Errors
/// - [`CudaError::NoDriver`] if libcuda does not load, [`CudaError::OldDriver`] if it lacks a function.
/// - [`CudaError::NoDevice`] if there is no GPU with one of these ordinals.
/// - [`CudaError::Call`] if the driver fails to report the access.
pub fn peer_link(from: usize, to: usize) -> Result<PeerLink, CudaError> {
    link(Driver::get()?, from, to)
}

fn link(driver: &Driver, from: usize, to: usize) -> Result<PeerLink, CudaError> {
    const WHAT: &str = "querying peer access between GPUs";
    let (from, to) = (find(driver, from)?, find(driver, to)?);
    if from == to {
        return Ok(PeerLink { access: true, native_atomics: true, performance_rank: 0, link_atomics: true });
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
    let access = access != 0;
    let link_atomics = match attribute(attribute::NATIVE_ATOMIC_SUPPORTED) {
        Ok(value) => value != 0,
        // Without access, the driver need not know the link.
        Err(_) if !access => false,
        Err(e) => return Err(e),
    };
    Ok(PeerLink {
        access,
        native_atomics: access && link_atomics,
        link_atomics,
        performance_rank: attribute(attribute::PERFORMANCE_RANK)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::error::code;
    use super::*;
    use cudarc::driver::sys::CUdevice_P2PAttribute as Theirs;

    #[test]
    fn the_numbers_are_the_headers() {
        assert_eq!(attribute::PERFORMANCE_RANK, Theirs::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK as i32);
        assert_eq!(attribute::NATIVE_ATOMIC_SUPPORTED, Theirs::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED as i32);
    }

    /// Returns a driver of two GPUs whose query of peer access writes `ACCESS`. The attribute of atomic operations is
    /// `ATOMICS`, and cannot be read if that is negative.
    fn driver<const ACCESS: c_int, const ATOMICS: c_int>() -> Driver {
        unsafe extern "C" fn count(to: *mut c_int) -> c_int {
            // SAFETY: the caller passes a place for the result.
            unsafe { *to = 2 };
            code::SUCCESS
        }
        unsafe extern "C" fn device(to: *mut c_int, ordinal: c_int) -> c_int {
            // SAFETY: the caller passes a place for the result.
            unsafe { *to = ordinal };
            code::SUCCESS
        }
        unsafe extern "C" fn access<const ACCESS: c_int>(to: *mut c_int, _: c_int, _: c_int) -> c_int {
            // SAFETY: the caller passes a place for the result.
            unsafe { *to = ACCESS };
            code::SUCCESS
        }
        unsafe extern "C" fn read<const ATOMICS: c_int>(to: *mut c_int, which: c_int, _: c_int, _: c_int) -> c_int {
            if which == attribute::NATIVE_ATOMIC_SUPPORTED && ATOMICS < 0 {
                return code::NOT_SUPPORTED;
            }
            // SAFETY: the caller passes a place for the result.
            unsafe { *to = ATOMICS };
            code::SUCCESS
        }
        Driver {
            cuDeviceGetCount: count,
            cuDeviceGet: device,
            cuDeviceCanAccessPeer: access::<ACCESS>,
            cuDeviceGetP2PAttribute: read::<ATOMICS>,
            ..Driver::refusing()
        }
    }

    #[test]
    fn access_and_the_link_are_told_apart() {
        let of = |driver: Driver| {
            let l = link(&driver, 0, 1).unwrap();
            (l.access, l.native_atomics, l.link_atomics, l.is_denied_over_pcie())
        };
        assert_eq!(of(driver::<1, 1>()), (true, true, true, false));
        assert_eq!(of(driver::<1, 0>()), (true, false, false, false));
        assert_eq!(of(driver::<0, 0>()), (false, false, false, true));
        assert_eq!(of(driver::<0, 1>()), (false, false, true, false));
        assert_eq!(of(driver::<0, -1>()), (false, false, false, true));
        assert!(link(&driver::<1, -1>(), 0, 1).is_err());
        let own = link(&driver::<0, 0>(), 1, 1).unwrap();
        assert!(own.access && own.link_atomics && !own.is_denied_over_pcie());
    }

    #[test]
    fn gpus_that_are_not_there_are_an_error() {
        assert!(peer_link(0, usize::MAX >> 40).is_err());
    }
}
