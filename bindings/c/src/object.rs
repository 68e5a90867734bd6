//! Handles: pointers to objects with a reference count and a tag that says their type.

use crate::error::{Error, WB_ERR_HANDLE};
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warpbell::engine::{Args, KernelArg};

/// A type of handles. `Self` is the opaque structure of the header.
pub(crate) trait Object: Sized {
    /// The object behind the handle.
    type Value: Send + Sync + 'static;
    /// Number that only objects of this type begin with.
    const TAG: u64;
    /// Name of the type in messages.
    const NAME: &str;
}

/// Defines the type of a handle: `object!(wb_engine_t: Engine, "engine")`.
macro_rules! object {
    ($handle:ident: $value:ty, $name:literal) => {
        impl $crate::object::Object for $handle {
            type Value = $value;
            const TAG: u64 = $crate::object::tag($name);
            const NAME: &str = $name;
        }
    };
}
pub(crate) use object;

/// Returns the tag of a type: eight bytes that begin with `wb`, and hash the name.
pub(crate) const fn tag(name: &str) -> u64 {
    let (bytes, mut hash, mut i) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325u64, 0);
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    0x7762_0000_0000_0000 | hash >> 16
}

/// Object that a handle points to. The tag is the first field for every type, so that it can be read before the type is known.
#[repr(C)]
struct Held<T> {
    tag: AtomicU64,
    value: T,
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        // Most uses after the last release are found by this, as long as nothing else has taken the memory.
        self.tag.store(0, Ordering::Relaxed);
    }
}

/// Writes a new handle with one reference to `out`.
///
/// # Safety
///
/// `out` is null or valid for a write.
pub(crate) unsafe fn give<O: Object>(out: *mut *mut O, value: O::Value) -> Result<(), Error> {
    let held = Arc::new(Held { tag: AtomicU64::new(O::TAG), value });
    // SAFETY: the caller's promise.
    unsafe { write(out, O::NAME, Arc::into_raw(held).cast_mut().cast()) }
}

/// Writes a result to `out`, which `name` names in the error for a null pointer.
///
/// # Safety
///
/// `out` is null or valid for a write.
pub(crate) unsafe fn write<T>(out: *mut T, name: &str, value: T) -> Result<(), Error> {
    // SAFETY: the caller's promise; the pointer is not null.
    unsafe { checked(out, name)?.write(value) };
    Ok(())
}

/// Returns the pointer, or an error that names the result if it is null. For results that are costly to make.
pub(crate) fn checked<T>(out: *mut T, name: &str) -> Result<*mut T, Error> {
    if out.is_null() {
        return Err(Error::argument(format!("the pointer for the result `{name}` is null")));
    }
    Ok(out)
}

/// Returns the object behind a handle.
///
/// # Safety
///
/// `handle` is null or a handle of this library with a reference that the caller holds for `'a`.
pub(crate) unsafe fn get<'a, O: Object>(handle: *const O) -> Result<&'a O::Value, Error> {
    // SAFETY: the caller's promise.
    Ok(unsafe { &(*held(handle)?).value })
}

/// Returns the object behind a handle, or `None` for null.
///
/// # Safety
///
/// As of [`get`].
pub(crate) unsafe fn get_optional<'a, O: Object>(handle: *const O) -> Result<Option<&'a O::Value>, Error> {
    if handle.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { get(handle) }.map(Some)
}

/// Returns true if a handle, which is not null, is one of type `O`.
///
/// # Safety
///
/// As of [`get`].
pub(crate) unsafe fn is<O: Object>(handle: *const c_void) -> Result<bool, Error> {
    // SAFETY: the caller's promise.
    Ok(unsafe { tag_of(handle, O::NAME) }? == O::TAG)
}

/// A reference to an object of any type, for runs that keep the object.
pub(crate) struct Owner(pub(crate) Arc<dyn Any + Send + Sync>);

impl KernelArg for Owner {
    fn push(&self, args: &mut Args) {
        args.keep(self.0.clone());
    }
}

/// A type of handles that [`any`] accepts: its tag, and a function that takes a reference of a handle of that type.
pub(crate) type Keepable = (u64, unsafe fn(*const c_void) -> Result<Owner, Error>);

/// Makes the entry of a type in a list for [`any`].
pub(crate) const fn keepable<O: Object>() -> Keepable {
    unsafe fn owner<O: Object>(handle: *const c_void) -> Result<Owner, Error> {
        // SAFETY: the caller's promise, that of `any`.
        let held = unsafe { held(handle.cast::<O>()) }?;
        // SAFETY: `give` made the pointer by `Arc::into_raw`, and the caller holds a reference; one is added for the owner.
        let owner = unsafe {
            Arc::increment_strong_count(held);
            Arc::from_raw(held)
        };
        Ok(Owner(owner))
    }
    (O::TAG, owner::<O>)
}

/// Takes a reference of a handle whose type is one of a list.
///
/// # Safety
///
/// As of [`get`].
pub(crate) unsafe fn any(handle: *const c_void, types: &[Keepable]) -> Result<Owner, Error> {
    // SAFETY: the caller's promise.
    let tag = unsafe { tag_of(handle, "object to keep") }?;
    match types.iter().find(|(of, _)| *of == tag) {
        // SAFETY: see above.
        Some((_, owner)) => unsafe { owner(handle) },
        None => Err(bad("object to keep", tag)),
    }
}

fn bad(name: &str, tag: u64) -> Error {
    let what = if tag >> 48 == 0x7762 { "of another type" } else { "released, or no handle of this library" };
    Error::new(WB_ERR_HANDLE, format!("the handle of the {name} is {what}"))
}

/// # Safety
///
/// As of [`get`].
unsafe fn tag_of(handle: *const c_void, name: &str) -> Result<u64, Error> {
    let fail = |what: &str| Err(Error::new(WB_ERR_HANDLE, format!("the handle of the {name} is {what}")));
    if handle.is_null() {
        return fail("null");
    }
    if !handle.cast::<u64>().is_aligned() {
        return fail("no handle of this library: its address is not a multiple of 8");
    }
    // SAFETY: every object begins with its tag, and the caller holds a reference to it.
    Ok(unsafe { &*handle.cast::<AtomicU64>() }.load(Ordering::Relaxed))
}

/// Checks a handle and returns the pointer that `give` made. It is not one of a reference: the counts lie before the object.
///
/// # Safety
///
/// As of [`get`].
unsafe fn held<O: Object>(handle: *const O) -> Result<*const Held<O::Value>, Error> {
    // SAFETY: the caller's promise.
    let tag = unsafe { tag_of(handle.cast(), O::NAME) }?;
    if tag == O::TAG { Ok(handle.cast()) } else { Err(bad(O::NAME, tag)) }
}

/// Adds a reference. Returns the handle, or null with an error for a bad one.
///
/// # Safety
///
/// As of [`get`].
pub(crate) unsafe fn retain<O: Object>(handle: *mut O) -> *mut O {
    let code = crate::error::guard(|| {
        // SAFETY: the caller's promise.
        let held = unsafe { held(handle) }?;
        // SAFETY: `give` made the pointer by `Arc::into_raw`, and the caller holds a reference.
        unsafe { Arc::increment_strong_count(held) };
        Ok(())
    });
    if code == crate::error::WB_OK { handle } else { std::ptr::null_mut() }
}

/// Gives a reference back; the last one drops the object. Null is ignored, a handle of another type is an error that
/// changes nothing.
///
/// # Safety
///
/// As of [`get`]; the caller does not use its reference again.
pub(crate) unsafe fn release<O: Object>(handle: *mut O) {
    if handle.is_null() {
        return;
    }
    let _ = crate::error::guard(|| {
        // SAFETY: the caller's promise.
        let held = unsafe { held(handle) }?;
        // SAFETY: `give` made the pointer by `Arc::into_raw`, and the caller gives this reference up.
        unsafe { Arc::decrement_strong_count(held) };
        Ok(())
    });
}
