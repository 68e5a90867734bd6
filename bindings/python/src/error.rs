//! Errors of the library as Python exceptions. The classes are in `python/warpbell/_errors.py`.

use crate::world_error::{is_call, name_of_pe};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warpbell::engine::{EngineError, OperationError, Operations};
use warpbell::failure::{ErrorKind, FailedCommand, FailedDevice};
use warpbell::graph::stored::StoredError;
use warpbell::graph::{CsrError, GraphError, ImportError, UnknownVertex};
use warpbell::memory::MemoryError;
use warpbell::storage::{KvError, RowFileError, StorageError, TableError, UnknownWord, Volume};

/// Class of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invalid,
    RowIndex,
    NotFound,
    Exists,
    Space,
    OutOfMemory,
    Unsupported,
    Damaged,
    Input,
    Device,
    Timeout,
    Cancelled,
    /// The base class: Python has none for a thing that is in use.
    Busy,
    Kernel,
    Cuda,
    Fork,
    World,
    LostPe,
    WorldTimeout,
    Internal,
}

impl Kind {
    /// Returns the name of the class.
    fn class(self) -> &'static str {
        match self {
            Self::Invalid => "InvalidError",
            Self::RowIndex => "RowIndexError",
            Self::NotFound => "NotFoundError",
            Self::Exists => "ExistsError",
            Self::Space => "SpaceError",
            Self::OutOfMemory => "OutOfMemoryError",
            Self::Unsupported => "UnsupportedError",
            Self::Damaged => "DamagedError",
            Self::Input => "InputError",
            Self::Device => "DeviceError",
            Self::Timeout => "TimeoutError",
            Self::Cancelled => "CancelledError",
            Self::Busy => "Error",
            Self::Kernel => "KernelError",
            Self::Cuda => "CudaError",
            Self::Fork => "ForkError",
            Self::World => "WorldError",
            Self::LostPe => "LostPeError",
            Self::WorldTimeout => "WorldTimeoutError",
            Self::Internal => "InternalError",
        }
    }

    fn is_of_worlds(self) -> bool {
        matches!(self, Self::World | Self::LostPe | Self::WorldTimeout)
    }
}

/// An error on its way to Python. Made without the interpreter.
#[derive(Debug)]
pub(crate) struct Failure(Box<Facts>);

#[derive(Debug)]
struct Facts {
    kind: Kind,
    text: String,
    remedies: Vec<String>,
    operations: Vec<OperationError>,
    /// Command of the driver that failed, if no kernel's operation did.
    command: Option<FailedCommand>,
    /// Volume whose devices the operations name by number.
    volume: Option<Volume>,
    /// PE that is the cause, and what is wrong with it.
    pe: Option<usize>,
    fault: Option<String>,
    /// An exception that Python code has raised meanwhile, instead of all others.
    raised: Option<PyErr>,
}

impl Failure {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self(Box::new(Facts {
            kind,
            text: text.into(),
            remedies: Vec::new(),
            operations: Vec::new(),
            command: None,
            volume: None,
            pe: None,
            fault: None,
            raised: None,
        }))
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, text)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Adds the next step, if the library does not know one.
    pub(crate) fn or_remedy(mut self, step: &str) -> Self {
        if self.0.remedies.is_empty() {
            self.0.remedies.push(step.to_owned());
        }
        self
    }

    /// Names the PE that is the cause, and what is wrong with it.
    pub(crate) fn with_fault(mut self, pe: Option<usize>, fault: impl Into<String>) -> Self {
        self.0.pe = pe;
        self.0.fault = Some(fault.into());
        self
    }

    /// Names the volume whose devices failed.
    pub(crate) fn on(mut self, volume: &Volume) -> Self {
        self.0.volume = Some(volume.clone());
        self
    }

    fn into_exception(self, py: Python<'_>) -> PyResult<PyErr> {
        let Facts { kind, text, remedies, operations, command, volume, pe, fault, raised } = *self.0;
        if let Some(raised) = raised {
            return Ok(raised);
        }
        let classes = py.import(intern!(py, "warpbell._errors"))?;
        let whole = if remedies.is_empty() { text } else { format!("{text}; {}", remedies.join(", or ")) };
        let error = classes.getattr(kind.class())?.call1((whole,))?;
        if let Some(remedy) = remedies.first() {
            error.setattr(intern!(py, "remedy"), remedy)?;
        }
        if kind.is_of_worlds() {
            error.setattr(intern!(py, "pe"), pe)?;
            error.setattr(intern!(py, "fault"), fault)?;
        }
        if let Some(first) = operations.first() {
            let name = |one: &OperationError| match volume.as_ref().and_then(|v| v.device_name(one.device as usize)) {
                _ if is_call(one) => name_of_pe(one),
                Some(name) => name.to_owned(),
                None => format!("device {}", one.device),
            };
            if !is_call(first) {
                error.setattr(intern!(py, "device"), name(first))?;
                error.setattr(intern!(py, "lba"), first.lba)?;
            }
            error.setattr(intern!(py, "status"), first.outcome.to_string())?;
            let entry = classes.getattr(intern!(py, "FailedOperation"))?;
            let entries = operations
                .iter()
                .map(|o| entry.call1((o.to_string(), name(o), o.lba, o.blocks, o.outcome.to_string())));
            let entries = PyTuple::new(py, entries.collect::<PyResult<Vec<_>>>()?)?;
            error.setattr(intern!(py, "operations"), entries)?;
        } else if let Some(FailedCommand { device: FailedDevice::Name(name), lba, status, .. }) = command {
            error.setattr(intern!(py, "device"), name)?;
            error.setattr(intern!(py, "lba"), lba)?;
            error.setattr(intern!(py, "status"), status)?;
        }
        // The last share of a volume waits for its devices.
        py.detach(|| drop(volume));
        Ok(PyErr::from_value(error))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| failure.into_exception(py).unwrap_or_else(|e| e))
    }
}

/// An exception that Python code has raised: a callback, or a signal handler.
impl From<PyErr> for Failure {
    fn from(raised: PyErr) -> Self {
        let mut failure = Self::new(Kind::Internal, "an exception of Python code");
        failure.0.raised = Some(raised);
        failure
    }
}

/// Returns a `TypeError`, for arguments of a wrong type.
pub(crate) fn wrong_type(text: impl Into<String>) -> PyErr {
    PyTypeError::new_err(text.into())
}

impl Failure {
    /// Returns the error once more, for an exception of its own. An exception that was raised keeps the frames that it has passed, with
    /// all that they name.
    pub(crate) fn again(&self, py: Python<'_>) -> Self {
        let Facts { kind, text, remedies, operations, command, volume, pe, fault, raised } = &*self.0;
        Self(Box::new(Facts {
            kind: *kind,
            text: text.clone(),
            remedies: remedies.clone(),
            operations: operations.clone(),
            command: command.clone(),
            volume: volume.clone(),
            pe: *pe,
            fault: fault.clone(),
            raised: raised.as_ref().map(|e| e.clone_ref(py)),
        }))
    }

    /// Takes kind, text, remedies, operations and command of an error of the library. `in_world` is true for calls of a
    /// world.
    pub(crate) fn of(error: &impl Operations, in_world: bool) -> Self {
        let kind = classes(error.kind())[usize::from(in_world)];
        let mut failure = Self::new(kind, error.to_string());
        failure.0.remedies = error.remedies().iter().map(ToString::to_string).collect();
        failure.0.operations = error.operations().to_vec();
        failure.0.command = error.command();
        failure
    }
}

/// Returns the classes of a kind of error of the library: that of calls in general, and that of calls of a world.
const fn classes(kind: ErrorKind) -> [Kind; 2] {
    match kind {
        ErrorKind::Argument => [Kind::Invalid; 2],
        ErrorKind::RowIndex => [Kind::RowIndex; 2],
        ErrorKind::State => [Kind::Invalid, Kind::World],
        ErrorKind::NotFound => [Kind::NotFound; 2],
        ErrorKind::Exists => [Kind::Exists; 2],
        ErrorKind::Space => [Kind::Space; 2],
        ErrorKind::HeapSpace | ErrorKind::Memory => [Kind::OutOfMemory; 2],
        ErrorKind::Unsupported => [Kind::Unsupported; 2],
        ErrorKind::Damaged => [Kind::Damaged; 2],
        ErrorKind::Input => [Kind::Input; 2],
        ErrorKind::Operation | ErrorKind::Io => [Kind::Device; 2],
        ErrorKind::TimedOut => [Kind::Timeout, Kind::WorldTimeout],
        ErrorKind::Stopped => [Kind::Cancelled; 2],
        ErrorKind::Busy => [Kind::Busy, Kind::World],
        ErrorKind::Kernel => [Kind::Kernel; 2],
        ErrorKind::Cuda => [Kind::Cuda; 2],
        ErrorKind::World => [Kind::World; 2],
        ErrorKind::LostPe => [Kind::LostPe; 2],
    }
}

/// Converts errors of the library.
macro_rules! convert {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(e: $error) -> Self {
                Self::of(&e, false)
            }
        })+
    };
}

convert!(EngineError, MemoryError, StorageError, TableError, KvError, RowFileError);
convert!(GraphError, StoredError, ImportError, CsrError, UnknownVertex, UnknownWord);

/// Returns for each kind of error of the library its name, its class in general, and its class in calls of a world. For tests.
#[pyfunction]
pub(crate) fn error_classes() -> Vec<(String, &'static str, &'static str)> {
    let row = |kind: &ErrorKind| {
        let [general, in_world] = classes(*kind).map(Kind::class);
        (format!("{kind:?}"), general, in_world)
    };
    ErrorKind::ALL.iter().map(row).collect()
}
