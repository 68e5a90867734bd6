//! Named arrays of a volume: stored, listed, read, checked and removed by the host.

use crate::element;
use crate::engine::as_json;
use crate::error::{Error, guard, wb_code};
use crate::options::{Options, owned_text};
use crate::pointer::{In, Out, Text};
use crate::volume::{switch, wb_volume_options, wb_volume_t};
use std::ffi::{c_char, c_void};
use warpbell::storage::{DEFAULT_CHUNK, ElementType, ManifestError, Plan, StorageError, Volume};

/// Adds an array beside those that the volume holds. One of its name is an error.
pub const WB_STORE_ADD: u32 = 0;
/// As `WB_STORE_ADD`, but an array of its name is replaced. It is whole until the new one is complete.
pub const WB_STORE_REPLACE: u32 = 1;
/// Stores the array in place of everything that the volume holds.
pub const WB_STORE_ALONE: u32 = 2;

/// Options of `wb_volume_store`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_store_options {
    /// `sizeof(wb_store_options)`.
    pub size: usize,
    /// `WB_STORE_ADD`, `WB_STORE_REPLACE` or `WB_STORE_ALONE`.
    pub mode: u32,
    /// Bytes of an element of type `WB_RECORD`. Kernels access records of 1, 2, 4, 8 and 16 bytes as elements.
    pub element_bytes: u32,
    /// `WB_ON` stores checksums for each 4096 bytes if the volume has none. The volume's options go first.
    pub page_checksums: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_store_options {
    const NAME: &str = "wb_store_options";
}

/// Stores an array under a name. It appears on the volume when it is complete, and is durable then.
///
/// @param name Name: 1 to 64 bytes, no control characters.
/// @param dtype Type of the elements: `WB_U8` to `WB_BF16`; `WB_RECORD` with `wb_store_options.element_bytes`.
/// @param data Elements, one behind the other; may be memory of a mapped file.
/// @param count Number of elements.
/// @param options Options, or null for the defaults.
/// @return `WB_OK`; `WB_ERR_EXISTS` if the volume holds an array of the name; `WB_ERR_SPACE` if the volume is too small;
///   `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails; `WB_ERR_STOPPED` on a cancelled engine.
/// @note One call at a time for a volume. Caches may hold pages of arrays that were there before: empty them by
///   `wb_cache_reset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_store(
    volume: In<wb_volume_t>,
    name: Text,
    dtype: u32,
    data: In<c_void>,
    count: u64,
    options: In<wb_store_options>,
) -> wb_code {
    guard(|| {
        let volume = volume.get()?;
        let name = name.text("name")?;
        let options = options.read()?;
        let (element, bytes) = element::sized(dtype, options.element_bytes)?;
        let data = data.bytes(total(count, bytes)?, "data")?;
        let checksums = switch(options.page_checksums, "page_checksums")?.unwrap_or(false);
        let plan = Plan::new().untyped(name, element, bytes, count).page_checksums(checksums);
        let what = format!("array `{name}`");
        let mut writer = match options.mode {
            WB_STORE_ADD => volume.add(plan, &what)?,
            WB_STORE_REPLACE if holds(volume, name)? => volume.replace(plan, &what, &[name])?,
            WB_STORE_REPLACE => volume.add(plan, &what)?,
            WB_STORE_ALONE => volume.store(plan, &what)?,
            other => {
                return Err(Error::argument(format!(
                    "`mode` is {other}; use WB_STORE_ADD, WB_STORE_REPLACE or WB_STORE_ALONE"
                )));
            }
        };
        writer.append_bytes(name, element, data)?;
        writer.finish()?;
        Ok(())
    })
}

/// Returns the bytes of an array in memory.
fn total(count: u64, each: u32) -> Result<usize, Error> {
    let bytes = count.checked_mul(each.into()).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| Error::argument(format!("`count` is {count}, which no memory holds")))
}

fn holds(volume: &Volume, name: &str) -> Result<bool, Error> {
    match volume.manifest() {
        Ok(manifest) => Ok(manifest.find(name).is_ok()),
        Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Reads a whole stored array into memory of the host, and compares it with the checksum that was stored.
///
/// @param dtype Type of the elements, which must be that of the array.
/// @param data Destination.
/// @param bytes Bytes of the array: `wb_volume_arrays` lists them.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if there is no such array; `WB_ERR_ARGUMENT` if its type or size is another;
///   `WB_ERR_DAMAGED` if the data is not what was stored; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_load(
    volume: In<wb_volume_t>,
    name: Text,
    dtype: u32,
    mut data: Out<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let element = element::element_type(dtype)?;
        let name = name.text("name")?;
        let data = data.bytes(bytes, "data")?;
        Ok(volume.get()?.read_array_bytes(name, element, data)?)
    })
}

/// Lists the arrays of a volume as JSON: name, type, bytes of an element, count, first byte, checksum, and whether the
/// array was changed since it was stored.
///
/// @param json Receives a list, which is empty if nothing is stored. Free it with `wb_string_free`.
/// @return `WB_OK`; `WB_ERR_DAMAGED` if the list on the volume is damaged; `WB_ERR_UNSUPPORTED` if a later version wrote it;
///   `WB_ERR_ARGUMENT` if the devices are not put together as they were; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_arrays(volume: In<wb_volume_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let entries = match volume.get()?.manifest() {
            Ok(manifest) => manifest.entries().to_vec(),
            Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => Vec::new(),
            Err(e) => return Err(e.into()),
        };
        json.write("json", owned_text(as_json(&entries)?))
    })
}

/// Removes arrays from a volume, which frees their space. The data itself is not erased.
///
/// @param names Names of the arrays.
/// @param count Number of names.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if there is no such array, and nothing is removed; otherwise as `wb_volume_store`.
/// @note One call at a time for a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_remove(volume: In<wb_volume_t>, names: In<Text>, count: usize) -> wb_code {
    guard(|| {
        let names = names.list(count, "names")?;
        let names = names.iter().map(|name| name.text("an entry of names"));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        volume.get()?.remove(&names)?;
        Ok(())
    })
}

/// Reads all stored arrays, on every copy of a replicated volume, and compares them with their checksums.
///
/// @param repair 1 writes damaged data of one copy again from another copy.
/// @param intact Receives 1 if no array is damaged or was left half changed, also if that is so after a repair; 0 otherwise.
/// @param json Receives the state of each array, and the damaged ranges with device and LBA. Free it with `wb_string_free`.
///   May be null.
/// @return `WB_OK`, also if arrays are damaged; `WB_ERR_UNSUPPORTED` while kernels run; `WB_ERR_STOPPED` on a cancelled
///   engine; `WB_ERR_NOT_FOUND` if nothing is stored.
/// @note After a flush: pages that a cache has not written yet look like damage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_verify(
    volume: In<wb_volume_t>,
    repair: u32,
    intact: Out<u32>,
    json: Out<*mut c_char>,
) -> wb_code {
    guard(|| {
        intact.check("intact")?;
        let found = volume.get()?.verify(repair != 0)?;
        if !json.is_null() {
            json.write("json", owned_text(as_json(&found)?))?;
        }
        intact.write("intact", found.is_intact().into())
    })
}

/// Accepts the stored arrays as they are: computes the checksums of those that were changed since they were stored.
///
/// @return `WB_OK`; `WB_ERR_UNSUPPORTED` while kernels run; otherwise as `wb_volume_flush`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_accept_changes(volume: In<wb_volume_t>) -> wb_code {
    guard(|| {
        volume.get()?.accept_changes()?;
        Ok(())
    })
}

/// Returns the bytes that each new device needs to hold arrays, for `wb_volume_create`.
///
/// @param array_bytes Bytes of each array.
/// @param arrays Number of arrays.
/// @param devices Number of devices.
/// @param options Options of the volume: its stripe unit, copies and page checksums matter; or null for the defaults.
/// @param bytes_each Receives the size of each device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_bytes_for(
    array_bytes: In<u64>,
    arrays: usize,
    devices: usize,
    options: In<wb_volume_options>,
    bytes_each: Out<u64>,
) -> wb_code {
    guard(|| {
        let options = options.read()?;
        let sizes = array_bytes.list(arrays, "array_bytes")?;
        let add = |plan: Plan, bytes: &u64| plan.untyped("", ElementType::U8, 1, *bytes);
        let checksums = switch(options.page_checksums, "page_checksums")?.unwrap_or(false);
        let plan = sizes.iter().fold(Plan::new(), add).page_checksums(checksums);
        let devices = if options.replicated != 0 { 1 } else { devices };
        let chunk = if options.chunk_bytes == 0 { DEFAULT_CHUNK } else { options.chunk_bytes };
        bytes_each.write("bytes_each", plan.bytes_for_each(devices, chunk))
    })
}
