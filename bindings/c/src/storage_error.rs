//! Codes of the errors of storage, tables and graphs.

use crate::error::*;
use std::io;
use warpbell::graph::stored::StoredError;
use warpbell::graph::{CsrError, GraphError, ImportError, UnknownVertex};
use warpbell::memory::DmaError;
use warpbell::nvme::NvmeError;
use warpbell::nvme::vfio::VfioError;
use warpbell::pci::FindError;
use warpbell::storage::{ManifestError, RowFileError, StorageError, TableError};

impl From<StorageError> for Error {
    fn from(e: StorageError) -> Self {
        let run = if let StorageError::Run(run) = &e { Some(run) } else { None };
        with_run(Self::of(code_of_storage(&e), &e), run)
    }
}

fn code_of_storage(e: &StorageError) -> wb_code {
    match e {
        StorageError::Missing { .. } => WB_ERR_NOT_FOUND,
        StorageError::Nvme(e) => code_of_nvme(e),
        StorageError::Vfio(e) => code_of_vfio(e),
        StorageError::Find(FindError::None { .. }) => WB_ERR_NOT_FOUND,
        StorageError::Dma(e) => code_of_dma(e),
        StorageError::Memory(e) => code_of_memory(e),
        StorageError::Engine(e) => code_of_engine(e),
        StorageError::Run(e) => code_of_run(e),
        StorageError::Manifest { source, .. } => code_of_manifest(source),
        StorageError::Table(e) => code_of_table(e),
        StorageError::File { .. } | StorageError::NoCopy { .. } | StorageError::Unread { .. } => WB_ERR_IO,
        StorageError::NotOurs { .. } | StorageError::InUse(_) => WB_ERR_EXISTS,
        StorageError::NoSpace { .. } | StorageError::Capacity { .. } => WB_ERR_SPACE,
        StorageError::NoPath { .. } => WB_ERR_UNSUPPORTED,
        // Specifications, words, options, ranges, members and counts.
        _ => WB_ERR_ARGUMENT,
    }
}

fn code_of_table(e: &TableError) -> wb_code {
    match e {
        TableError::Unknown { .. } => WB_ERR_NOT_FOUND,
        TableError::Exists { .. } => WB_ERR_EXISTS,
        TableError::Format { .. } => WB_ERR_UNSUPPORTED,
        TableError::Damaged { .. } => WB_ERR_DAMAGED,
        // Names, layouts, types, indices and sizes.
        _ => WB_ERR_ARGUMENT,
    }
}

impl From<TableError> for Error {
    fn from(e: TableError) -> Self {
        Self::of(code_of_table(&e), &e)
    }
}

impl From<RowFileError> for Error {
    fn from(e: RowFileError) -> Self {
        let code = match e {
            // The only error that may come from a run.
            RowFileError::Storage(e) => return e.into(),
            RowFileError::Io { ref source, .. } if source.kind() == io::ErrorKind::NotFound => WB_ERR_NOT_FOUND,
            RowFileError::Io { .. } => WB_ERR_IO,
            RowFileError::Choice { .. } | RowFileError::Flat { .. } => WB_ERR_ARGUMENT,
            RowFileError::Feature { .. } => WB_ERR_UNSUPPORTED,
            _ => WB_ERR_INPUT,
        };
        Self::new(code, e.to_string())
    }
}

fn code_of_manifest(e: &ManifestError) -> wb_code {
    match e {
        ManifestError::Absent | ManifestError::Unknown { .. } => WB_ERR_NOT_FOUND,
        ManifestError::Twice(_) => WB_ERR_EXISTS,
        ManifestError::TooMany(_) => WB_ERR_SPACE,
        ManifestError::Version(_) | ManifestError::Extension { .. } => WB_ERR_UNSUPPORTED,
        ManifestError::Name(_)
        | ManifestError::Type { .. }
        | ManifestError::Layout { .. }
        | ManifestError::Member { .. } => WB_ERR_ARGUMENT,
        _ => WB_ERR_DAMAGED,
    }
}

fn code_of_nvme(e: &NvmeError) -> wb_code {
    match e {
        NvmeError::Dma(e) => code_of_dma(e),
        NvmeError::Memory(e) => code_of_memory(e),
        NvmeError::TimedOut { .. } | NvmeError::BudgetExhausted { .. } => WB_ERR_TIMEOUT,
        NvmeError::NoNamespace { .. } => WB_ERR_NOT_FOUND,
        NvmeError::Unsupported { .. }
        | NvmeError::PageSize { .. }
        | NvmeError::CommandSet { .. }
        | NvmeError::NoDoorbell { .. }
        | NvmeError::NoKernelDoorbell { .. }
        | NvmeError::NoMemoryBuffer { .. } => WB_ERR_UNSUPPORTED,
        NvmeError::Options { .. }
        | NvmeError::Depth { .. }
        | NvmeError::TooDeep { .. }
        | NvmeError::TooManyQueues { .. }
        | NvmeError::Range { .. } => WB_ERR_ARGUMENT,
        _ => WB_ERR_IO,
    }
}

fn code_of_vfio(e: &VfioError) -> wb_code {
    match e {
        VfioError::NoDevice { .. } => WB_ERR_NOT_FOUND,
        VfioError::NotNvme { .. } => WB_ERR_ARGUMENT,
        VfioError::Open { .. }
        | VfioError::Call { .. }
        | VfioError::Registers { .. }
        | VfioError::Config { .. }
        | VfioError::Vectors { .. } => WB_ERR_IO,
        // Drivers, groups, rights and other users of the device.
        _ => WB_ERR_UNSUPPORTED,
    }
}

fn code_of_dma(e: &DmaError) -> wb_code {
    match e {
        DmaError::Memory(e) => code_of_memory(e),
        DmaError::Exhausted { .. } => WB_ERR_MEMORY,
        _ => WB_ERR_UNSUPPORTED,
    }
}

impl From<GraphError> for Error {
    fn from(e: GraphError) -> Self {
        let run = match &e {
            GraphError::Run(run) | GraphError::Storage(StorageError::Run(run)) => Some(run),
            _ => None,
        };
        with_run(Self::of(code_of_graph(&e), &e), run)
    }
}

fn code_of_graph(e: &GraphError) -> wb_code {
    match e {
        GraphError::Memory(e) => code_of_memory(e),
        GraphError::Engine(e) => code_of_engine(e),
        GraphError::Run(e) => code_of_run(e),
        GraphError::Storage(e) => code_of_storage(e),
        GraphError::Stored(e) => code_of_stored(e),
        GraphError::Import(e) => code_of_import(e),
        GraphError::NotPlaced { .. } => WB_ERR_STATE,
        GraphError::Occupied { .. } => WB_ERR_EXISTS,
        GraphError::Corrupt { .. } => WB_ERR_DAMAGED,
        GraphError::DistanceOverflow { .. } => WB_ERR_INPUT,
        GraphError::TooManyRounds { .. } => WB_ERR_TIMEOUT,
        GraphError::NoSuchVertex { .. } | GraphError::Parameter { .. } => WB_ERR_ARGUMENT,
        // Searches of several PEs.
        _ => WB_ERR_WORLD,
    }
}

impl From<StoredError> for Error {
    fn from(e: StoredError) -> Self {
        Self::of(code_of_stored(&e), &e)
    }
}

fn code_of_stored(e: &StoredError) -> wb_code {
    match e {
        StoredError::Name(_) => WB_ERR_ARGUMENT,
        StoredError::Unknown { .. } => WB_ERR_NOT_FOUND,
        StoredError::Exists { .. } => WB_ERR_EXISTS,
        StoredError::Format { .. } => WB_ERR_UNSUPPORTED,
        StoredError::NoWeights { .. } => WB_ERR_STATE,
        _ => WB_ERR_DAMAGED,
    }
}

impl From<ImportError> for Error {
    fn from(e: ImportError) -> Self {
        Self::new(code_of_import(&e), e.to_string())
    }
}

fn code_of_import(e: &ImportError) -> wb_code {
    match e {
        ImportError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => WB_ERR_NOT_FOUND,
        ImportError::Io { .. } | ImportError::TemporaryFile { .. } => WB_ERR_IO,
        ImportError::MissingPart { .. } => WB_ERR_NOT_FOUND,
        ImportError::UnknownEnding { .. }
        | ImportError::NoFormat { .. }
        | ImportError::NumberedFormat { .. }
        | ImportError::Generator { .. } => WB_ERR_ARGUMENT,
        ImportError::Feature { .. } => WB_ERR_UNSUPPORTED,
        ImportError::Memory { .. }
        | ImportError::Refused { .. }
        | ImportError::LargeText { .. }
        | ImportError::SmallBudget { .. } => WB_ERR_MEMORY,
        _ => WB_ERR_INPUT,
    }
}

impl From<CsrError> for Error {
    fn from(e: CsrError) -> Self {
        Self::argument(e.to_string())
    }
}

impl From<UnknownVertex> for Error {
    fn from(e: UnknownVertex) -> Self {
        Self::new(WB_ERR_NOT_FOUND, e.to_string())
    }
}
