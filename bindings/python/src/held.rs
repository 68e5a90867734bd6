//! Objects of the library that Python objects own.

use crate::fork;
use pyo3::Python;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// Owns an object. Dropping it releases the interpreter meanwhile: the object may wait for its commands in flight, and other threads of
/// Python run then. In a forked child nothing is dropped, because the threads that would be waited for are the parent's.
#[derive(Debug)]
pub(crate) struct Held<T: Send>(ManuallyDrop<T>);

impl<T: Send> Held<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// Returns the object.
    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the value is taken once, here: `self` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T: Send> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Send> Drop for Held<T> {
    fn drop(&mut self) {
        if fork::foreign().is_some() {
            return;
        }
        // SAFETY: the value is taken once, here, and `self` is gone afterwards.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        // Without an interpreter to attach to, the closure is dropped, and the value with it.
        let _ = Python::try_attach(|py| py.detach(|| drop(value)));
    }
}
