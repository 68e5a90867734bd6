//! Handles: pointers to objects with a reference count and a tag that says their type.

use crate::error::{Error, WB_ERR_HANDLE};
use crate::pointer::In;
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

/// Makes a handle with one reference.
pub(crate) fn new<O: Object>(value: O::Value) -> *mut O {
    let held = Arc::new(Held { tag: AtomicU64::new(O::TAG), value });
    Arc::into_raw(held).cast_mut().cast()
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

/// A type of handles that a run can keep: its tag, and a function that takes a reference of a handle of that type.
pub(crate) type Keepable = (u64, fn(In<c_void>) -> Result<Owner, Error>);

/// Makes the entry of a type in a list for [`In::keep`].
pub(crate) const fn keepable<O: Object>() -> Keepable {
    (O::TAG, In::owner::<O>)
}

/// Takes a reference of a handle.
///
/// # Safety
///
/// As of [`get`].
pub(crate) unsafe fn owner<O: Object>(handle: *const O) -> Result<Owner, Error> {
    // SAFETY: `new` made the pointer by `Arc::into_raw`, and the caller holds a reference; one is added for the owner.
    unsafe {
        let held = held(handle)?;
        Arc::increment_strong_count(held);
        Ok(Owner(Arc::from_raw(held)))
    }
}

pub(crate) fn bad(name: &str, tag: u64) -> Error {
    let what = if tag >> 48 == 0x7762 { "of another type" } else { "released, or no handle of this library" };
    Error::new(WB_ERR_HANDLE, format!("the handle of the {name} is {what}"))
}

/// # Safety
///
/// As of [`get`].
pub(crate) unsafe fn tag_of(handle: *const c_void, name: &str) -> Result<u64, Error> {
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

/// Checks a handle and returns the pointer that [`new`] made. It is not one of a reference: the counts lie before the object.
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
        // SAFETY: `new` made the pointer by `Arc::into_raw`, and the caller holds a reference.
        unsafe { Arc::increment_strong_count(held(handle)?) };
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
        // SAFETY: `new` made the pointer by `Arc::into_raw`, and the caller gives this reference up.
        unsafe { Arc::decrement_strong_count(held(handle)?) };
        Ok(())
    });
}
