//! Arguments of C: structures that begin with their size, texts, durations, arrays.

use crate::error::Error;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::time::Duration;

/// A structure of options. All fields zero means: the defaults.
///
/// # Safety
///
/// The structure is `repr(C)`, begins with a `usize` that holds its size, and all zeroes is a valid value of it.
pub(crate) unsafe trait Options: Copy {
    /// Name in the header.
    const NAME: &str;
}

/// Reads options that the program's version of the header may have shorter or longer.
///
/// Fields that the program does not know are zero. Fields that this library does not know have to be zero.
///
/// # Safety
///
/// `options` is null, or points to a structure that begins with its size and has as many bytes.
pub(crate) unsafe fn read<T: Options>(options: *const T) -> Result<T, Error> {
    let mut read = MaybeUninit::<T>::zeroed();
    if !options.is_null() {
        // SAFETY: a structure of options begins with its size; the caller's promise.
        let size = unsafe { options.cast::<usize>().read_unaligned() };
        if size < size_of::<usize>() {
            return Err(Error::argument(format!(
                "`{}` has a size of {size}: set its first field to sizeof({0})",
                T::NAME
            )));
        }
        // SAFETY: the structure has `size` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), size) };
        let known = size.min(size_of::<T>());
        if let Some(at) = bytes[known..].iter().position(|&b| b != 0) {
            return Err(Error::argument(format!(
                "`{}` has {size} bytes and a field at byte {} that this library does not know; it knows {} bytes. Use a newer library",
                T::NAME,
                known + at,
                size_of::<T>()
            )));
        }
        // SAFETY: both have `known` bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), read.as_mut_ptr().cast(), known) };
    }
    // SAFETY: all zeroes is a valid value, and C wrote the rest with a structure of the same beginning: numbers and pointers.
    Ok(unsafe { read.assume_init() })
}

/// Writes a result of a structure that begins with its size, as far as the program's version of the header has it. Fields
/// that this library does not know become zero.
///
/// # Safety
///
/// `out` points to a structure that begins with its size and has as many bytes.
pub(crate) unsafe fn fill<T: Options>(out: *mut T, value: T) -> Result<(), Error> {
    // SAFETY: the structure begins with its size; the caller's promise.
    let size = unsafe { out.cast::<usize>().read_unaligned() };
    if size < size_of::<usize>() {
        return Err(Error::argument(format!("`{}` has a size of {size}: set its first field to sizeof({0})", T::NAME)));
    }
    let known = size.min(size_of::<T>());
    let first = size_of::<usize>();
    // SAFETY: the structure has `size` bytes, and the value `known` of them. The size stays that of the program.
    unsafe {
        let bytes = out.cast::<u8>();
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>().add(first), bytes.add(first), known - first);
        std::ptr::write_bytes(bytes.add(known), 0, size - known);
    }
    Ok(())
}

/// Returns a text, or `None` for null. `name` names the argument in messages.
///
/// # Safety
///
/// `text` is null or ends with a zero byte, and stays as it is for `'a`.
pub(crate) unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let valid =
        text.to_str().map_err(|e| Error::argument(format!("`{name}` is not UTF-8 from byte {} on", e.valid_up_to())));
    valid.map(Some)
}

/// Returns a list. A null pointer is an empty list only with a count of 0.
///
/// # Safety
///
/// `list` is null or points to `count` values, which stay as they are for `'a`.
pub(crate) unsafe fn list<'a, T>(list: *const T, count: usize, name: &str) -> Result<&'a [T], Error> {
    check_list(list, count, name)?;
    // SAFETY: the caller's promise; an empty list is not read.
    Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(list, count) } })
}

/// Returns a list to be written to.
///
/// # Safety
///
/// As of [`list`], and nothing else reads or writes the values for `'a`. Any bytes are a valid `T`.
pub(crate) unsafe fn list_mut<'a, T>(list: *mut T, count: usize, name: &str) -> Result<&'a mut [T], Error> {
    check_list(list, count, name)?;
    // SAFETY: the caller's promise; an empty list is not written.
    Ok(if count == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(list, count) } })
}

fn check_list<T>(list: *const T, count: usize, name: &str) -> Result<(), Error> {
    if count != 0 && list.is_null() {
        return Err(Error::argument(format!("`{name}` is null, with a count of {count}")));
    }
    if count != 0 && !list.is_aligned() {
        return Err(Error::argument(format!("`{name}` is not aligned to {} bytes", align_of::<T>())));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Error::argument(format!("`{name}` has a count of {count}, which no memory holds")));
    }
    Ok(())
}

/// Returns a duration, or `None` for 0, which stands for the default.
pub(crate) fn seconds(seconds: f64, name: &str) -> Result<Option<Duration>, Error> {
    if seconds == 0.0 {
        return Ok(None);
    }
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|d| !d.is_zero());
    duration.map(Some).ok_or_else(|| {
        Error::argument(format!("`{name}` is {seconds} s; it must be 0 for the default, or a finite positive time"))
    })
}

/// Makes a text for the caller, who frees it with `wb_string_free`.
pub(crate) fn owned_text(text: String) -> *mut c_char {
    CString::new(text.replace('\0', " ")).unwrap_or_default().into_raw()
}

/// Frees a text that a function of this library returned for the caller to free.
///
/// @param text The text; null is ignored.
/// @note Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: `owned_text` made it, and the caller gives it up.
        drop(unsafe { CString::from_raw(text) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Sample {
        size: usize,
        first: u32,
        second: u32,
        third: u64,
    }

    // SAFETY: numbers only, and the size comes first.
    unsafe impl Options for Sample {
        const NAME: &str = "sample";
    }

    #[test]
    fn older_programs_and_newer_ones_are_understood() {
        let whole = Sample { size: size_of::<Sample>(), first: 1, second: 2, third: 3 };
        // SAFETY: the size is that of the structure, or smaller.
        unsafe {
            assert_eq!(read(&whole).unwrap(), whole);
            assert_eq!(read::<Sample>(std::ptr::null()).unwrap().third, 0);
            let older = Sample { size: 12, ..whole };
            assert_eq!(read(&older).unwrap(), Sample { second: 0, third: 0, ..older });
            for size in [0, 1, 7] {
                let e = read(&Sample { size, ..whole }).unwrap_err();
                assert!(format!("{e:?}").contains("sizeof(sample)"), "{e:?}");
            }
        }
    }

    #[test]
    fn results_are_written_as_far_as_the_program_knows_them() {
        let value = Sample { size: size_of::<Sample>(), first: 1, second: 2, third: 3 };
        let mut out = Sample { size: 12, first: 8, second: 8, third: 8 };
        // SAFETY: the structures have as many bytes as they say.
        unsafe {
            fill(&mut out, value).unwrap();
            assert_eq!(out, Sample { size: 12, first: 1, second: 8, third: 8 });
            let mut newer = [size_of::<[u64; 5]>() as u64, 9, 9, 9, 9];
            fill(newer.as_mut_ptr().cast::<Sample>(), value).unwrap();
            assert_eq!((newer[0], newer[2], newer[3], newer[4]), (40, 3, 0, 0));
            out.size = 3;
            assert!(fill(&mut out, value).is_err());
        }
    }

    #[test]
    fn fields_of_the_future_have_to_be_zero() {
        #[repr(C)]
        struct Newer {
            sample: Sample,
            fourth: u64,
        }
        let mut newer = Newer { sample: Sample { size: 32, first: 1, second: 2, third: 3 }, fourth: 0 };
        // SAFETY: the structure has the 32 bytes that it names.
        unsafe {
            assert_eq!(read((&raw const newer).cast::<Sample>()).unwrap().third, 3);
            newer.fourth = 1 << 16;
            let e = read((&raw const newer).cast::<Sample>()).unwrap_err();
            assert!(format!("{e:?}").contains("a field at byte 26"), "{e:?}");
        }
    }

    #[test]
    fn times_are_zero_or_positive() {
        assert_eq!(seconds(0.0, "limit").unwrap(), None);
        assert_eq!(seconds(1.5, "limit").unwrap(), Some(Duration::from_millis(1500)));
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e30, 1e-12] {
            assert!(seconds(bad, "limit").is_err(), "{bad}");
        }
    }
}
