//! Functions of Python that are told the progress of long calls.

use crate::error::Failure;
use parking_lot::Mutex;
use pyo3::prelude::*;

/// A function, or none.
pub(crate) struct Progress {
    function: Option<Py<PyAny>>,
    /// The first exception that it has raised.
    raised: Mutex<Option<PyErr>>,
}

impl Progress {
    pub(crate) fn new(function: Option<Py<PyAny>>) -> Self {
        Self { function, raised: Mutex::new(None) }
    }

    /// Calls the function with what is done and the whole of it. Any thread without the interpreter may call this.
    pub(crate) fn report(&self, stage: &str, done: u64, total: u64) -> Result<(), Failure> {
        let Some(function) = &self.function else { return Ok(()) };
        Ok(Python::attach(|py| function.call1(py, (stage, done, total)).map(drop))?)
    }

    /// As [`Progress::report`], where no error can be returned. [`Progress::end`] returns it.
    pub(crate) fn note(&self, stage: &str, done: u64, total: u64) {
        if let Err(failure) = self.report(stage, done, total) {
            self.raised.lock().get_or_insert_with(|| failure.into());
        }
    }

    /// Fails with the exception that the function has raised.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        self.raised.lock().take().map_or(Ok(()), |raised| Err(raised.into()))
    }
}
