//! Buffers: memory in which reads of a volume land.

use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::pointer::{In, Out, Owned};
use crate::region::wb_region_t;
use crate::volume::wb_volume_t;
use std::ffi::c_void;
use warpbell::storage::DataBuffer;

/// Memory that kernels name in reads and writes of a volume: the program's own region, or allocated for the volume.
pub struct wb_buffer_t {
    _private: (),
}

object!(wb_buffer_t: DataBuffer, "buffer");

/// Maps a region for the devices of a volume: reads of kernels then land in it directly, for example in tensors of the
/// program. With bounce landing nothing is mapped, and the call succeeds for every region.
///
/// @param region The region. `wb_region_reaches_devices` tells whether devices reach it.
/// @param buffer Receives the buffer, which keeps the region and the mapping. Its last release removes the mapping: kernels
///   that use the memory have ended by then.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the volume has no free entry (it has 16), or the region is host memory where
///   completions land in GPU memory; `WB_ERR_UNSUPPORTED` if a device does not reach the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_map(
    volume: In<wb_volume_t>,
    region: In<wb_region_t>,
    buffer: Out<*mut wb_buffer_t>,
) -> wb_code {
    guard(|| {
        buffer.check("buffer")?;
        let (volume, region) = (volume.get()?, region.get()?);
        if !region.space().same(volume.engine().space()) {
            return Err(Error::argument("the region belongs to another engine than the volume; allocate it there"));
        }
        buffer.give(volume.map_data(region)?)
    })
}

/// Allocates zeroed memory that the devices of a volume reach, on every data path.
///
/// @param bytes Length, at least 1.
/// @param buffer Receives the buffer.
/// @return `WB_OK`; `WB_ERR_MEMORY` without memory; `WB_ERR_ARGUMENT` if the volume has no free entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_allocate(
    volume: In<wb_volume_t>,
    bytes: usize,
    buffer: Out<*mut wb_buffer_t>,
) -> wb_code {
    guard(|| {
        buffer.check("buffer")?;
        if bytes == 0 {
            return Err(Error::argument("`bytes` is 0; a buffer has at least one byte"));
        }
        let made = volume.get()?.allocate_data(bytes)?;
        buffer.give(made)
    })
}

/// Adds a reference to a buffer.
///
/// @return The buffer; null with an error if it is no buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_buffer_retain(buffer: Owned<wb_buffer_t>) -> *mut wb_buffer_t {
    buffer.retain()
}

/// Gives a reference to a buffer back. Runs keep the buffers among their arguments.
///
/// @param buffer The buffer; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_buffer_release(buffer: Owned<wb_buffer_t>) {
    buffer.release()
}

/// Returns the address of a buffer's first byte, as kernels see it.
///
/// @param address Receives the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_buffer_address(buffer: In<wb_buffer_t>, address: Out<*mut c_void>) -> wb_code {
    guard(|| {
        let found = buffer.get()?.address();
        address.write("address", found as *mut c_void)
    })
}

/// Returns the length of a buffer in bytes.
///
/// @param bytes Receives the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_buffer_bytes(buffer: In<wb_buffer_t>, bytes: Out<usize>) -> wb_code {
    guard(|| {
        let found = buffer.get()?.len();
        bytes.write("bytes", found)
    })
}

/// Copies bytes of a buffer to the host.
///
/// @param offset First byte of the buffer.
/// @param data Destination.
/// @param bytes Number of bytes.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the buffer.
/// @note Waits for no kernel: finish runs that write the bytes first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_buffer_read(
    buffer: In<wb_buffer_t>,
    offset: usize,
    mut data: Out<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        Ok(buffer.get()?.read(offset, data)?)
    })
}

/// Copies bytes of the host into a buffer.
///
/// @param offset First byte of the buffer.
/// @param data Source.
/// @param bytes Number of bytes.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_buffer_write(
    buffer: In<wb_buffer_t>,
    offset: usize,
    data: In<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        Ok(buffer.get()?.write(offset, data)?)
    })
}
