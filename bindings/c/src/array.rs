//! Arrays: elements of a volume that kernels and the host access through a cache.

use crate::cache::wb_cache_t;
use crate::element;
use crate::error::{Error, guard, wb_code};
use crate::object::{self, object};
use crate::options;
use std::ffi::{c_char, c_void};
use warpbell::engine::abi::ArrayView as wb_array_view;
use warpbell::storage::{ManifestError, StorageError, UntypedArray};

/// Elements of a volume, which kernels access as a `warpbell::array_ref<T>`. `wb_array_open` and `wb_array_at` make it.
pub struct wb_array_t {
    _private: (),
}

object!(wb_array_t: Array, "array");

pub(crate) struct Array {
    elements: UntypedArray,
    /// Type as the program named it.
    dtype: u32,
}

/// Opens the array of a name.
///
/// @param name Name under which the array was stored.
/// @param dtype Type of the elements, which must be that of the array; 0 for whatever type it has.
/// @param array Receives the array, with one reference. It keeps the cache.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if the volume holds no such array; `WB_ERR_ARGUMENT` if its type is another, or
///   kernels cannot access its elements through this cache; otherwise as `wb_volume_arrays`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_open(
    cache: *const wb_cache_t,
    name: *const c_char,
    dtype: u32,
    array: *mut *mut wb_array_t,
) -> wb_code {
    guard(|| {
        object::checked(array, "array")?;
        let asked = if dtype == 0 { None } else { Some(element::element_type(dtype)?) };
        // SAFETY: the rules of the header, as in the following.
        let (cache, name) = unsafe { (object::get(cache)?, options::text(name, "name")?) };
        let elements = cache.open_untyped(name)?;
        let found = elements.element_type();
        if let Some(asked) = asked.filter(|asked| *asked != found) {
            let source = ManifestError::Type { name: name.to_owned(), found, asked };
            let device = cache.volume().name().to_owned();
            return Err(StorageError::Manifest { device, source }.into());
        }
        // SAFETY: see above.
        unsafe { object::give(array, Array { elements, dtype: element::dtype_of(found) }) }
    })
}

/// Makes an array of elements at a place of the volume, whether or not something is stored there.
///
/// @param first_page First page of the volume, counted in pages of the cache.
/// @param count Number of elements.
/// @param dtype Type of the elements.
/// @param element_bytes Bytes of an element of type `WB_RECORD`: 1, 2, 4, 8 or 16; 0 for other types.
/// @param array Receives the array, with one reference. It keeps the cache.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` for a type or size that kernels cannot access; `WB_ERR_SPACE` if the array ends beyond
///   the volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_at(
    cache: *const wb_cache_t,
    first_page: u64,
    count: u64,
    dtype: u32,
    element_bytes: u32,
    array: *mut *mut wb_array_t,
) -> wb_code {
    guard(|| {
        object::checked(array, "array")?;
        let (_, bytes) = element::sized(dtype, element_bytes)?;
        // SAFETY: the rules of the header, as in the following.
        let elements = unsafe { object::get(cache) }?.untyped_array(first_page, count, bytes as usize)?;
        // SAFETY: see above.
        unsafe { object::give(array, Array { elements, dtype }) }
    })
}

/// Adds a reference to an array.
///
/// @return The array; null with an error if it is no array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_retain(array: *mut wb_array_t) -> *mut wb_array_t {
    // SAFETY: the rules of the header.
    unsafe { object::retain(array) }
}

/// Gives a reference to an array back. Runs keep the arrays among their arguments.
///
/// @param array The array; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_release(array: *mut wb_array_t) {
    // SAFETY: the rules of the header.
    unsafe { object::release(array) }
}

/// Returns the form in which kernels get an array: `array_ref<T>` of `array.cuh` is made from it.
///
/// @param view Receives the view, to be passed by value. It is valid while the program or a run holds the array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_get_view(array: *const wb_array_t, view: *mut wb_array_view) -> wb_code {
    guard(|| {
        // SAFETY: the rules of the header.
        let found = unsafe { object::get(array) }?.elements.view();
        // SAFETY: the rules of the header.
        unsafe { object::write(view, "view", found) }
    })
}

/// Returns the number of elements of an array.
///
/// @param length Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_length(array: *const wb_array_t, length: *mut u64) -> wb_code {
    guard(|| {
        // SAFETY: the rules of the header.
        let found = unsafe { object::get(array) }?.elements.len();
        // SAFETY: the rules of the header.
        unsafe { object::write(length, "length", found) }
    })
}

/// Returns the type of the elements of an array, and their size.
///
/// @param dtype Receives the type, `WB_U8` to `WB_BF16`.
/// @param element_bytes Receives the bytes of an element; may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_dtype(array: *const wb_array_t, dtype: *mut u32, element_bytes: *mut u32) -> wb_code {
    guard(|| {
        // SAFETY: the rules of the header, as in the following.
        let found = unsafe { object::get(array) }?;
        // SAFETY: see above.
        unsafe { object::write(dtype, "dtype", found.dtype) }?;
        if element_bytes.is_null() {
            return Ok(());
        }
        // SAFETY: see above.
        unsafe { object::write(element_bytes, "element_bytes", found.elements.element_bytes() as u32) }
    })
}

/// Returns the bytes of elements in memory.
fn bytes_of(array: &Array, count: usize) -> Result<usize, Error> {
    let bytes = count.checked_mul(array.elements.element_bytes());
    bytes.ok_or_else(|| Error::argument(format!("`count` is {count}, which no memory holds")))
}

/// Reads elements through the cache into memory of the host.
///
/// @param first First element.
/// @param count Number of elements.
/// @param data Destination, for elements of the array's type.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the elements lie outside the array; `WB_ERR_OPERATION` if a page cannot be read,
///   with its LBA; `WB_ERR_STOPPED` on a cancelled engine.
/// @note Also while kernels use the array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_read(
    array: *const wb_array_t,
    first: u64,
    count: usize,
    data: *mut c_void,
) -> wb_code {
    guard(|| {
        // SAFETY: the rules of the header, as in the following.
        let array = unsafe { object::get(array) }?;
        // SAFETY: see above; nothing else uses the elements during the call.
        let data = unsafe { options::list_mut(data.cast::<u8>(), bytes_of(array, count)?, "data") }?;
        Ok(array.elements.read(first, data)?)
    })
}

/// Writes elements of the host's memory through the cache. They are on the device after `wb_cache_flush`.
///
/// @param first First element.
/// @param count Number of elements.
/// @param data Source, elements of the array's type.
/// @return As `wb_array_read`.
/// @note Also while kernels use the array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_write(
    array: *const wb_array_t,
    first: u64,
    count: usize,
    data: *const c_void,
) -> wb_code {
    guard(|| {
        // SAFETY: the rules of the header, as in the following.
        let array = unsafe { object::get(array) }?;
        // SAFETY: see above; nothing changes the elements during the call.
        let data = unsafe { options::list(data.cast::<u8>(), bytes_of(array, count)?, "data") }?;
        Ok(array.elements.write(first, data)?)
    })
}

/// Reads all pages of an array into the cache, as far as they fit.
///
/// @return `WB_OK`; `WB_ERR_OPERATION` if a page cannot be read, with its LBA; `WB_ERR_STOPPED` on a cancelled engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_warm(array: *const wb_array_t) -> wb_code {
    // SAFETY: the rules of the header.
    guard(|| Ok(unsafe { object::get(array) }?.elements.warm()?))
}
