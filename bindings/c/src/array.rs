//! Arrays: elements of a volume that kernels and the host access through a cache.

use crate::cache::wb_cache_t;
use crate::element;
use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::pointer::{In, Out, Owned, Text};
use std::ffi::c_void;
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
    cache: In<wb_cache_t>,
    name: Text,
    dtype: u32,
    array: Out<*mut wb_array_t>,
) -> wb_code {
    guard(|| {
        array.check("array")?;
        let asked = if dtype == 0 { None } else { Some(element::element_type(dtype)?) };
        let (cache, name) = (cache.get()?, name.text("name")?);
        let elements = cache.open_untyped(name)?;
        let found = elements.element_type();
        if let Some(asked) = asked.filter(|asked| *asked != found) {
            let source = ManifestError::Type { name: name.to_owned(), found, asked };
            let device = cache.volume().name().to_owned();
            return Err(StorageError::Manifest { device, source }.into());
        }
        array.give(Array { elements, dtype: element::dtype_of(found) })
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
    cache: In<wb_cache_t>,
    first_page: u64,
    count: u64,
    dtype: u32,
    element_bytes: u32,
    array: Out<*mut wb_array_t>,
) -> wb_code {
    guard(|| {
        array.check("array")?;
        let (_, bytes) = element::sized(dtype, element_bytes)?;
        let elements = cache.get()?.untyped_array(first_page, count, bytes as usize)?;
        array.give(Array { elements, dtype })
    })
}

/// Adds a reference to an array.
///
/// @return The array; null with an error if it is no array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_retain(array: Owned<wb_array_t>) -> *mut wb_array_t {
    array.retain()
}

/// Gives a reference to an array back. Runs keep the arrays among their arguments.
///
/// @param array The array; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_release(array: Owned<wb_array_t>) {
    array.release()
}

/// Returns the form in which kernels get an array: `array_ref<T>` of `array.cuh` is made from it.
///
/// @param view Receives the view, to be passed by value. It is valid while the program or a run holds the array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_get_view(array: In<wb_array_t>, view: Out<wb_array_view>) -> wb_code {
    guard(|| {
        let found = array.get()?.elements.view();
        view.write("view", found)
    })
}

/// Returns the number of elements of an array.
///
/// @param length Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_length(array: In<wb_array_t>, length: Out<u64>) -> wb_code {
    guard(|| {
        let found = array.get()?.elements.len();
        length.write("length", found)
    })
}

/// Returns the type of the elements of an array, and their size.
///
/// @param dtype Receives the type, `WB_U8` to `WB_BF16`.
/// @param element_bytes Receives the bytes of an element; may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_dtype(array: In<wb_array_t>, dtype: Out<u32>, element_bytes: Out<u32>) -> wb_code {
    guard(|| {
        let found = array.get()?;
        dtype.write("dtype", found.dtype)?;
        if element_bytes.is_null() {
            return Ok(());
        }
        element_bytes.write("element_bytes", found.elements.element_bytes() as u32)
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
    array: In<wb_array_t>,
    first: u64,
    count: usize,
    mut data: Out<c_void>,
) -> wb_code {
    guard(|| {
        let array = array.get()?;
        let data = data.bytes(bytes_of(array, count)?, "data")?;
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
pub unsafe extern "C" fn wb_array_write(array: In<wb_array_t>, first: u64, count: usize, data: In<c_void>) -> wb_code {
    guard(|| {
        let array = array.get()?;
        let data = data.bytes(bytes_of(array, count)?, "data")?;
        Ok(array.elements.write(first, data)?)
    })
}

/// Reads all pages of an array into the cache, as far as they fit.
///
/// @return `WB_OK`; `WB_ERR_OPERATION` if a page cannot be read, with its LBA; `WB_ERR_STOPPED` on a cancelled engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_array_warm(array: In<wb_array_t>) -> wb_code {
    guard(|| Ok(array.get()?.elements.warm()?))
}
