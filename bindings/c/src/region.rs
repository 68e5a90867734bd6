//! Regions of memory: allocated by the library, or the program's own.

use crate::engine::wb_engine_t;
use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::pointer::{In, Out, Owned};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpbell::memory::{Place, Region};

/// A region of memory that host, kernels and devices access.
pub struct wb_region_t {
    _private: (),
}

object!(wb_region_t: Region, "region");

/// Memory of the engine: of the GPU, or of this process for CPU threads.
pub const WB_PLACE_DEVICE: u32 = 0;
/// Memory of the host that kernels access, too.
pub const WB_PLACE_HOST: u32 = 1;

/// Function that the library calls once, on any thread, when it no longer needs something of the program.
pub type wb_release_function = Option<unsafe extern "C" fn(argument: *mut c_void)>;

/// Something of the program that the library uses: `release(argument)` is called when the library has dropped it.
pub(crate) struct Foreign {
    release: wb_release_function,
    argument: *mut c_void,
    armed: AtomicBool,
}

// SAFETY: the header says that the function is called on any thread.
unsafe impl Send for Foreign {}
// SAFETY: nothing but the flag, which is atomic, is used through a reference.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// The function is called only after [`Foreign::arm`], so not if the call that takes it fails.
    pub(crate) fn new(release: wb_release_function, argument: *mut c_void) -> Arc<Self> {
        Arc::new(Self { release, argument, armed: AtomicBool::new(false) })
    }

    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let (Some(release), true) = (self.release, *self.armed.get_mut()) {
            // SAFETY: the program passed the two together.
            unsafe { release(self.argument) };
        }
    }
}

/// Allocates memory, filled with zeroes.
///
/// @param place `WB_PLACE_DEVICE` or `WB_PLACE_HOST`.
/// @param bytes Length, at least 1. Rounded up to whole pages.
/// @param region Receives the region.
/// @return `WB_OK`; `WB_ERR_MEMORY` if there is not enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_allocate(
    engine: In<wb_engine_t>,
    place: u32,
    bytes: usize,
    region: Out<*mut wb_region_t>,
) -> wb_code {
    guard(|| {
        region.check("region")?;
        let place = match place {
            WB_PLACE_DEVICE => Place::Device,
            WB_PLACE_HOST => Place::Host,
            other => {
                return Err(Error::argument(format!("`place` is {other}; use WB_PLACE_DEVICE or WB_PLACE_HOST")));
            }
        };
        let made = engine.get()?.allocate(place, bytes)?;
        region.give(made)
    })
}

/// Makes device memory of the program a region: memory of `cudaMalloc`, `cudaMallocAsync` or `cuMemMap`; on CPU threads
/// memory of this process. Reads of storage can land in it, where its kind permits (`wb_region_reaches_devices`).
///
/// @param pointer First byte, as kernels see it.
/// @param bytes Length. Direct landing needs whole pages of 64 KiB on a GPU.
/// @param release Called when the library no longer uses the memory; may be null. It is not called if this call fails.
/// @param argument Passed to `release`.
/// @param region Receives the region.
/// @return `WB_OK`; `WB_ERR_UNSUPPORTED` for host memory, managed memory, memory of another GPU or context.
/// @note The memory stays valid until `release` is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_import_device(
    engine: In<wb_engine_t>,
    pointer: *mut c_void,
    bytes: usize,
    release: wb_release_function,
    argument: *mut c_void,
    region: Out<*mut wb_region_t>,
) -> wb_code {
    guard(|| {
        region.check("region")?;
        let foreign = Foreign::new(release, argument);
        let space = engine.get()?.space();
        // SAFETY: the program promises that the memory stays valid until it is released.
        let made = unsafe { space.import_device(pointer as u64, bytes, foreign.clone()) }?;
        foreign.arm();
        region.give(made)
    })
}

/// Makes host memory of the program a region that kernels access, too.
///
/// @param pointer First byte.
/// @param bytes Length, at least 1. For a GPU, address and length are multiples of 4096.
/// @param release Called when the library no longer uses the memory; may be null. It is not called if this call fails.
/// @param argument Passed to `release`.
/// @param region Receives the region.
/// @return `WB_OK`; `WB_ERR_MEMORY` if the GPU driver refuses to map the memory.
/// @note The memory stays valid until `release` is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_import_host(
    engine: In<wb_engine_t>,
    pointer: *mut c_void,
    bytes: usize,
    release: wb_release_function,
    argument: *mut c_void,
    region: Out<*mut wb_region_t>,
) -> wb_code {
    guard(|| {
        region.check("region")?;
        let base = NonNull::new(pointer.cast::<u8>()).ok_or_else(|| Error::argument("`pointer` is null"))?;
        if bytes == 0 {
            return Err(Error::argument("`bytes` is 0; a region has at least one byte"));
        }
        let foreign = Foreign::new(release, argument);
        let space = engine.get()?.space();
        // SAFETY: the program promises that the memory stays valid until it is released.
        let made = unsafe { space.import_host(base, bytes, false, foreign.clone()) }?;
        foreign.arm();
        region.give(made)
    })
}

/// Adds a reference to a region.
///
/// @return The region; null with an error if it is no region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_retain(region: Owned<wb_region_t>) -> *mut wb_region_t {
    region.retain()
}

/// Gives a reference to a region back. Runs keep the regions among their arguments.
///
/// @param region The region; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_release(region: Owned<wb_region_t>) {
    region.release()
}

/// Returns the address of the first byte, as kernels see it.
///
/// @param address Receives the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_address(region: In<wb_region_t>, address: Out<*mut c_void>) -> wb_code {
    guard(|| {
        let found = region.get()?.address();
        address.write("address", found as *mut c_void)
    })
}

/// Returns the length of a region in bytes.
///
/// @param bytes Receives the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_bytes(region: In<wb_region_t>, bytes: Out<usize>) -> wb_code {
    guard(|| {
        let found = region.get()?.len();
        bytes.write("bytes", found)
    })
}

/// Succeeds if storage controllers and RDMA adapters can reach the memory, and says why otherwise.
///
/// @return `WB_OK`, or `WB_ERR_UNSUPPORTED` with the property of the memory that excludes them, and what to use instead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_reaches_devices(region: In<wb_region_t>) -> wb_code {
    guard(|| Ok(region.get()?.reaches_devices()?))
}

/// Copies bytes of a region to the host.
///
/// @param offset First byte of the region.
/// @param data Destination.
/// @param bytes Number of bytes.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the region.
/// @note Waits for no kernel: finish runs that write the bytes first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_read(
    region: In<wb_region_t>,
    offset: usize,
    mut data: Out<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        Ok(region.get()?.read(offset, data)?)
    })
}

/// Copies bytes of the host into a region.
///
/// @param offset First byte of the region.
/// @param data Source.
/// @param bytes Number of bytes.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_write(
    region: In<wb_region_t>,
    offset: usize,
    data: In<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        Ok(region.get()?.write(offset, data)?)
    })
}

/// Sets bytes of a region to a value.
///
/// @param offset First byte of the region.
/// @param bytes Number of bytes.
/// @param value The value of each byte.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_region_fill(region: In<wb_region_t>, offset: usize, bytes: usize, value: u8) -> wb_code {
    guard(|| Ok(region.get()?.fill(offset, bytes, value)?))
}
