//! Pointers of C as types with safe methods.
//!
//! **The rule.** Values of these types are arguments of exported functions, and fields of structures that such arguments point to. They
//! come from a program that keeps the rules of the header: a pointer is null, or what its type says, for as long as the call lasts.
//!
//! | type | in the header | unless null, points to |
//! |---|---|---|
//! | `In<T>` | `const T *` | one `T`, or as many as a count beside it says, which nothing changes during the call |
//! | `In<O>` of a handle | `const O *` | an object with a reference that the program holds during the call |
//! | `In<c_void>` | `const void *` | as many bytes as a count beside it says, or an object of any type |
//! | `Out<T>` | `T *` | space for one `T`, or for as many as a count beside it says, which nothing else uses during the call |
//! | `Owned<O>` | `O *` | an object with a reference, which the call may give back |
//! | `Text` | `const char *` | a text that ends with a zero byte and that nothing changes during the call |
//!
//! Results are borrowed from the pointer, so that none outlives the call. Each method checks for null. Exported functions are `unsafe`
//! because of this rule, and so is making one of these values in Rust. The test of the header reads the types as pointers.

#![allow(private_bounds, reason = "exported functions name the types, and only this library calls their methods")]

use crate::error::Error;
use crate::object::{self, Keepable, Object, Owner};
use crate::options::{self, Options};
use bytemuck::Pod;
use std::ffi::{c_char, c_void};

/// Defines a type that has the representation of a pointer. All bits zero is null, a valid value.
macro_rules! pointer {
    ($(#[$doc:meta])* $name:ident$(<$of:ident>)?, $pointer:ty) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name$(<$of>)?($pointer);

        impl$(<$of>)? Clone for $name$(<$of>)? {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl$(<$of>)? Copy for $name$(<$of>)? {}
    };
}

pointer! {
    /// A pointer to values that a call reads.
    In<T>, *const T
}

pointer! {
    /// A pointer to space for a result.
    Out<T>, *mut T
}

pointer! {
    /// A pointer to an object, with a reference that the call may give back.
    Owned<O>, *mut O
}

pointer! {
    /// A text.
    Text, *const c_char
}

impl Text {
    /// Returns the text. `name` names the argument in messages.
    pub(crate) fn text(&self, name: &str) -> Result<&str, Error> {
        self.optional(name)?.ok_or_else(|| Error::argument(format!("`{name}` is null; pass a text")))
    }

    /// Returns the text, or `None` for null.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<&str>, Error> {
        // SAFETY: the rule of this file.
        unsafe { options::optional_text(self.0, name) }
    }
}

impl<O: Object> In<O> {
    /// Returns the object behind the handle.
    pub(crate) fn get(&self) -> Result<&O::Value, Error> {
        // SAFETY: the rule of this file.
        unsafe { object::get(self.0) }
    }

    /// Returns the object behind the handle, or `None` for null.
    pub(crate) fn optional(&self) -> Result<Option<&O::Value>, Error> {
        if self.is_null() { Ok(None) } else { self.get().map(Some) }
    }
}

impl<T: Options> In<T> {
    /// Reads options; null stands for the defaults.
    pub(crate) fn read(self) -> Result<T, Error> {
        // SAFETY: the rule of this file.
        unsafe { options::read(self.0) }
    }
}

impl<T> In<T> {
    /// Returns true for a null pointer.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns a list. A null pointer is an empty list only with a count of 0.
    pub(crate) fn list(&self, count: usize, name: &str) -> Result<&[T], Error> {
        // SAFETY: the rule of this file.
        unsafe { options::list(self.0, count, name) }
    }
}

impl In<c_void> {
    /// Returns bytes. A null pointer is an empty list only with a count of 0.
    pub(crate) fn bytes(&self, count: usize, name: &str) -> Result<&[u8], Error> {
        self.of(count, name)
    }

    /// Returns a list of elements whose type another argument names.
    pub(crate) fn of<T: Pod>(&self, count: usize, name: &str) -> Result<&[T], Error> {
        // SAFETY: the rule of this file; any bytes are a valid element.
        unsafe { options::list(self.0.cast(), count, name) }
    }

    /// Returns an element whose type another argument names, wherever it lies; `None` for null.
    pub(crate) fn element<T: Pod>(self) -> Option<T> {
        // SAFETY: the rule of this file.
        (!self.is_null()).then(|| unsafe { self.0.cast::<T>().read_unaligned() })
    }

    /// Returns the pointer as a handle of one type, which is checked when the handle is used.
    pub(crate) fn handle<O: Object>(self) -> In<O> {
        In(self.0.cast())
    }

    /// Returns true if the pointer is a handle of one type.
    pub(crate) fn is<O: Object>(self) -> Result<bool, Error> {
        // SAFETY: the rule of this file.
        unsafe { object::is::<O>(self.0) }
    }

    /// Takes a reference of a handle whose type is one of a list.
    pub(crate) fn keep(self, types: &[Keepable]) -> Result<Owner, Error> {
        // SAFETY: the rule of this file.
        let tag = unsafe { object::tag_of(self.0, "object to keep") }?;
        match types.iter().find(|(of, _)| *of == tag) {
            Some((_, owner)) => owner(self),
            None => Err(object::bad("object to keep", tag)),
        }
    }

    /// Takes a reference of a handle of one type.
    pub(crate) fn owner<O: Object>(self) -> Result<Owner, Error> {
        // SAFETY: the rule of this file.
        unsafe { object::owner(self.0.cast::<O>()) }
    }
}

impl<T> Out<T> {
    /// Returns true for a null pointer.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Fails if the pointer is null. `name` names the result. For results that are costly to make.
    pub(crate) fn check(self, name: &str) -> Result<(), Error> {
        if self.is_null() {
            return Err(Error::argument(format!("the pointer for the result `{name}` is null")));
        }
        Ok(())
    }

    /// Writes the result.
    pub(crate) fn write(self, name: &str, value: T) -> Result<(), Error> {
        self.check(name)?;
        // SAFETY: the rule of this file; the pointer is not null.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Returns the place of a result in a list of `count`, or null for a null list.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
}

impl<O: Object> Out<*mut O> {
    /// Writes a new handle with one reference.
    pub(crate) fn give(self, value: O::Value) -> Result<(), Error> {
        self.write(O::NAME, object::new(value))
    }
}

impl<T: Options> Out<T> {
    /// Writes a result that begins with its size, as far as the program's version of the header has it.
    pub(crate) fn fill(self, name: &str, value: T) -> Result<(), Error> {
        self.check(name)?;
        // SAFETY: the rule of this file.
        unsafe { options::fill(self.0, value) }
    }
}

impl Out<c_void> {
    /// Returns bytes to be written to. A null pointer is an empty list only with a count of 0.
    pub(crate) fn bytes(&mut self, count: usize, name: &str) -> Result<&mut [u8], Error> {
        self.of(count, name)
    }

    /// Returns a list to be written to, of elements whose type another argument names.
    pub(crate) fn of<T: Pod>(&mut self, count: usize, name: &str) -> Result<&mut [T], Error> {
        // SAFETY: the rule of this file; any bytes are a valid element.
        unsafe { options::list_mut(self.0.cast(), count, name) }
    }

    /// Returns bytes that a call only reads, although the structure is for results, too.
    pub(crate) fn read_bytes(&self, count: usize, name: &str) -> Result<&[u8], Error> {
        // SAFETY: the rule of this file.
        unsafe { options::list(self.0.cast_const().cast(), count, name) }
    }

    /// Writes an element whose type another argument names, wherever it is to lie. Null is ignored.
    pub(crate) fn put<T: Pod>(self, value: T) {
        if !self.is_null() {
            // SAFETY: the rule of this file.
            unsafe { self.0.cast::<T>().write_unaligned(value) };
        }
    }
}

impl<O: Object> Owned<O> {
    /// Returns the object behind the handle.
    pub(crate) fn get(&self) -> Result<&O::Value, Error> {
        // SAFETY: the rule of this file.
        unsafe { object::get(self.0) }
    }

    /// Adds a reference. Returns the handle, or null with an error for a bad one.
    pub(crate) fn retain(self) -> *mut O {
        // SAFETY: the rule of this file.
        unsafe { object::retain(self.0) }
    }

    /// Gives a reference back; the last one drops the object. Null is ignored, a handle of another type is an error that
    /// changes nothing.
    pub(crate) fn release(self) {
        // SAFETY: the rule of this file.
        unsafe { object::release(self.0) }
    }
}
