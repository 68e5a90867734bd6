//! Errors of the library as Python exceptions. The classes are in `python/warpbell/_errors.py`.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::io;
use warpbell::cuda::CudaError;
use warpbell::engine::{EngineError, OperationError, Outcome, RunError};
use warpbell::graph::stored::StoredError;
use warpbell::graph::{CsrError, GraphError, ImportError, UnknownVertex};
use warpbell::memory::{DmaError, MemoryError};
use warpbell::nvme::NvmeError;
use warpbell::nvme::vfio::VfioError;
use warpbell::pci::FindError;
use warpbell::remedy::Remedies;
use warpbell::storage::{ManifestError, RowFileError, StorageError, TableError, UnknownWord, Volume};

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
            volume: None,
            pe: None,
            fault: None,
            raised: None,
        }))
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, text)
    }

    pub(crate) fn of(kind: Kind, error: &impl Remedies) -> Self {
        let mut failure = Self::new(kind, error.to_string());
        failure.0.remedies = error.remedies().iter().map(ToString::to_string).collect();
        failure
    }

    pub(crate) fn with_run(mut self, run: Option<&RunError>) -> Self {
        self.0.operations = run.map(operations_of).unwrap_or_default().to_vec();
        self
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
        let Facts { kind, text, remedies, operations, volume, pe, fault, raised } = *self.0;
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
            let name = |device: u32| match volume.as_ref().and_then(|v| v.device_name(device as usize)) {
                Some(name) => name.to_owned(),
                None if kind.is_of_worlds() => format!("PE {device}"),
                None => format!("device {device}"),
            };
            if !kind.is_of_worlds() {
                error.setattr(intern!(py, "device"), name(first.device))?;
                error.setattr(intern!(py, "lba"), first.lba)?;
            }
            error.setattr(intern!(py, "status"), first.outcome.to_string())?;
            let entry = classes.getattr(intern!(py, "FailedOperation"))?;
            let entries = operations
                .iter()
                .map(|o| entry.call1((o.to_string(), name(o.device), o.lba, o.blocks, o.outcome.to_string())));
            let entries = PyTuple::new(py, entries.collect::<PyResult<Vec<_>>>()?)?;
            error.setattr(intern!(py, "operations"), entries)?;
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

pub(crate) fn operations_of(e: &RunError) -> &[OperationError] {
    match e {
        RunError::Operations { errors, .. } | RunError::Stopped { errors, .. } | RunError::Stuck { errors, .. } => {
            errors
        }
        _ => &[],
    }
}

pub(crate) fn kind_of_run(e: &RunError) -> Kind {
    match e {
        RunError::Operations { errors, .. } => match errors.first().map(|e| e.outcome) {
            Some(Outcome::TimedOut) => Kind::Timeout,
            Some(Outcome::Damaged) => Kind::Damaged,
            Some(Outcome::BadArgument) => Kind::Invalid,
            Some(Outcome::Stopped) => Kind::Cancelled,
            _ => Kind::Device,
        },
        RunError::Stopped { .. } => Kind::Cancelled,
        RunError::TimedOut { .. } => Kind::Timeout,
        RunError::Memory(e) => kind_of_memory(e),
        _ => Kind::Kernel,
    }
}

fn kind_of_cuda(e: &CudaError) -> Kind {
    match e {
        CudaError::NoDriver | CudaError::NoDevice { .. } | CudaError::OldDriver { .. } => Kind::Unsupported,
        CudaError::Capturing { .. } | CudaError::BadStream { .. } => Kind::Unsupported,
        _ => Kind::Cuda,
    }
}

pub(crate) fn kind_of_memory(e: &MemoryError) -> Kind {
    match e {
        MemoryError::Host { .. } | MemoryError::Cuda { .. } => Kind::OutOfMemory,
        MemoryError::OutOfBounds { .. } => Kind::Invalid,
        _ => Kind::Unsupported,
    }
}

pub(crate) fn kind_of_engine(e: &EngineError) -> Kind {
    match e {
        EngineError::Cuda(e) => kind_of_cuda(e),
        EngineError::Memory(e) => kind_of_memory(e),
        EngineError::NoDeviceImage | EngineError::NoCpuImage | EngineError::NoCudaStreams => Kind::Unsupported,
        EngineError::NoKernel(_) => Kind::NotFound,
        EngineError::Cancelled | EngineError::Stopped { .. } => Kind::Cancelled,
        EngineError::Poisoned => Kind::Kernel,
        EngineError::Thread(_) => Kind::Device,
        _ => Kind::Invalid,
    }
}

fn kind_of_nvme(e: &NvmeError) -> Kind {
    match e {
        NvmeError::Dma(e) => kind_of_dma(e),
        NvmeError::Memory(e) => kind_of_memory(e),
        NvmeError::TimedOut { .. } | NvmeError::BudgetExhausted { .. } => Kind::Timeout,
        NvmeError::NoNamespace { .. } => Kind::NotFound,
        NvmeError::Unsupported { .. } | NvmeError::PageSize { .. } | NvmeError::CommandSet { .. } => Kind::Unsupported,
        NvmeError::NoDoorbell { .. } | NvmeError::NoKernelDoorbell { .. } | NvmeError::NoMemoryBuffer { .. } => {
            Kind::Unsupported
        }
        NvmeError::Options { .. } | NvmeError::Depth { .. } | NvmeError::TooDeep { .. } => Kind::Invalid,
        NvmeError::TooManyQueues { .. } | NvmeError::Range { .. } => Kind::Invalid,
        _ => Kind::Device,
    }
}

fn kind_of_dma(e: &DmaError) -> Kind {
    match e {
        DmaError::Memory(e) => kind_of_memory(e),
        DmaError::Exhausted { .. } => Kind::OutOfMemory,
        _ => Kind::Unsupported,
    }
}

fn kind_of_vfio(e: &VfioError) -> Kind {
    match e {
        VfioError::NoDevice { .. } => Kind::NotFound,
        VfioError::NotNvme { .. } => Kind::Invalid,
        VfioError::Open { .. } | VfioError::Call { .. } | VfioError::Registers { .. } => Kind::Device,
        VfioError::Config { .. } | VfioError::Vectors { .. } => Kind::Device,
        _ => Kind::Unsupported,
    }
}

fn kind_of_manifest(e: &ManifestError) -> Kind {
    match e {
        ManifestError::Absent | ManifestError::Unknown { .. } => Kind::NotFound,
        ManifestError::Twice(_) => Kind::Exists,
        ManifestError::TooMany(_) => Kind::Space,
        ManifestError::Version(_) | ManifestError::Extension { .. } => Kind::Unsupported,
        ManifestError::Name(_) | ManifestError::Type { .. } => Kind::Invalid,
        ManifestError::Layout { .. } | ManifestError::Member { .. } => Kind::Invalid,
        _ => Kind::Damaged,
    }
}

fn kind_of_table(e: &TableError) -> Kind {
    match e {
        TableError::Unknown { .. } => Kind::NotFound,
        TableError::Exists { .. } => Kind::Exists,
        TableError::Format { .. } => Kind::Unsupported,
        TableError::Damaged { .. } => Kind::Damaged,
        TableError::Index { .. } => Kind::RowIndex,
        _ => Kind::Invalid,
    }
}

fn kind_of_storage(e: &StorageError) -> Kind {
    match e {
        StorageError::Missing { .. } | StorageError::Find(FindError::None { .. }) => Kind::NotFound,
        StorageError::Nvme(e) => kind_of_nvme(e),
        StorageError::Vfio(e) => kind_of_vfio(e),
        StorageError::Dma(e) => kind_of_dma(e),
        StorageError::Memory(e) => kind_of_memory(e),
        StorageError::Engine(e) => kind_of_engine(e),
        StorageError::Run(e) => kind_of_run(e),
        StorageError::Manifest { source, .. } => kind_of_manifest(source),
        StorageError::Table(e) => kind_of_table(e),
        StorageError::File { .. } | StorageError::NoCopy { .. } | StorageError::Unread { .. } => Kind::Device,
        StorageError::NotOurs { .. } | StorageError::InUse(_) => Kind::Exists,
        StorageError::NoSpace { .. } | StorageError::Capacity { .. } => Kind::Space,
        StorageError::NoPath { .. } => Kind::Unsupported,
        _ => Kind::Invalid,
    }
}

fn kind_of_stored(e: &StoredError) -> Kind {
    match e {
        StoredError::Name(_) | StoredError::NoWeights { .. } => Kind::Invalid,
        StoredError::Unknown { .. } => Kind::NotFound,
        StoredError::Exists { .. } => Kind::Exists,
        StoredError::Format { .. } => Kind::Unsupported,
        _ => Kind::Damaged,
    }
}

fn kind_of_import(e: &ImportError) -> Kind {
    match e {
        ImportError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Kind::NotFound,
        ImportError::Io { .. } | ImportError::TemporaryFile { .. } => Kind::Device,
        ImportError::MissingPart { .. } => Kind::NotFound,
        ImportError::UnknownEnding { .. } | ImportError::NoFormat { .. } => Kind::Invalid,
        ImportError::NumberedFormat { .. } | ImportError::Generator { .. } => Kind::Invalid,
        ImportError::Feature { .. } => Kind::Unsupported,
        ImportError::Memory { .. } | ImportError::Refused { .. } => Kind::OutOfMemory,
        ImportError::LargeText { .. } | ImportError::SmallBudget { .. } => Kind::OutOfMemory,
        _ => Kind::Input,
    }
}

fn kind_of_graph(e: &GraphError) -> Kind {
    match e {
        GraphError::Memory(e) => kind_of_memory(e),
        GraphError::Engine(e) => kind_of_engine(e),
        GraphError::Run(e) => kind_of_run(e),
        GraphError::Storage(e) => kind_of_storage(e),
        GraphError::Stored(e) => kind_of_stored(e),
        GraphError::Import(e) => kind_of_import(e),
        GraphError::Occupied { .. } => Kind::Exists,
        GraphError::Corrupt { .. } => Kind::Damaged,
        GraphError::DistanceOverflow { .. } => Kind::Input,
        GraphError::TooManyRounds { .. } => Kind::Timeout,
        _ => Kind::Invalid,
    }
}

fn run_in_storage(e: &StorageError) -> Option<&RunError> {
    if let StorageError::Run(run) = e { Some(run) } else { None }
}

impl From<EngineError> for Failure {
    fn from(e: EngineError) -> Self {
        Self::of(kind_of_engine(&e), &e)
    }
}

impl From<MemoryError> for Failure {
    fn from(e: MemoryError) -> Self {
        Self::of(kind_of_memory(&e), &e)
    }
}

impl From<RunError> for Failure {
    fn from(e: RunError) -> Self {
        Self::of(kind_of_run(&e), &e).with_run(Some(&e))
    }
}

impl From<StorageError> for Failure {
    fn from(e: StorageError) -> Self {
        Self::of(kind_of_storage(&e), &e).with_run(run_in_storage(&e))
    }
}

impl From<TableError> for Failure {
    fn from(e: TableError) -> Self {
        Self::of(kind_of_table(&e), &e)
    }
}

impl From<RowFileError> for Failure {
    fn from(e: RowFileError) -> Self {
        let kind = match &e {
            RowFileError::Storage(e) => kind_of_storage(e),
            RowFileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::Input,
        };
        let run = if let RowFileError::Storage(e) = &e { run_in_storage(e) } else { None };
        Self::of(kind, &e).with_run(run)
    }
}

impl From<GraphError> for Failure {
    fn from(e: GraphError) -> Self {
        let run = match &e {
            GraphError::Run(run) | GraphError::Storage(StorageError::Run(run)) => Some(run),
            _ => None,
        };
        Self::of(kind_of_graph(&e), &e).with_run(run)
    }
}

impl From<StoredError> for Failure {
    fn from(e: StoredError) -> Self {
        Self::of(kind_of_stored(&e), &e)
    }
}

impl From<ImportError> for Failure {
    fn from(e: ImportError) -> Self {
        Self::new(kind_of_import(&e), e.to_string())
    }
}

impl From<CsrError> for Failure {
    fn from(e: CsrError) -> Self {
        Self::invalid(e.to_string())
    }
}

impl From<UnknownVertex> for Failure {
    fn from(e: UnknownVertex) -> Self {
        Self::new(Kind::NotFound, e.to_string())
    }
}

impl From<UnknownWord> for Failure {
    fn from(e: UnknownWord) -> Self {
        Self::invalid(e.to_string())
    }
}
