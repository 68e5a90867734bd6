//! NVMe storage for kernels, from a namespace to `array[i]`: drives, volumes, the page cache, arrays.
//!
//! [`Drive::open`] enables a controller. [`Volume::on`] creates queues on one or several drives, to which kernels
//! submit commands. [`Volume::store`] writes arrays and a [`Manifest`] that names them. A [`Cache`] keeps pages of a
//! volume in memory near the kernels. Kernels access the pages through [`Array`]s. A [`Table`] has rows of equal size,
//! which kernels gather by number.

mod add;
mod array;
mod array_reader;
mod blocks;
mod builder;
mod cache;
mod changes;
mod checksum;
mod checksum_table;
mod choose;
mod content;
#[cfg(test)]
mod content_tests;
mod contents;
mod copies;
#[cfg(test)]
mod copies_tests;
mod copy_io;
mod disk;
mod drive;
mod drive_spec;
mod element;
mod error;
#[cfg(test)]
mod fault_tests;
mod format;
mod geometry;
mod host_commands;
mod host_io;
mod host_side;
mod integrity;
mod load;
mod manifest;
mod manifest_error;
mod membership;
mod naming;
mod newest;
mod nvme;
mod open_arrays;
mod options;
#[cfg(test)]
mod outdated_copy_tests;
mod page_checksums;
#[cfg(test)]
mod page_checksums_tests;
mod path;
mod plan;
mod publish;
mod recover;
mod region_table;
mod registered_region;
mod repair;
mod restore;
#[cfg(test)]
mod sequence_tests;
#[cfg_attr(not(feature = "soft"), path = "no_soft_drive.rs")]
mod soft_drive;
mod stats;
mod stored;
mod stored_name;
mod stream_queue;
mod stripe;
mod superblock;
mod table;
mod target;
mod transfer;
mod unit_checksums;
mod untyped_array;
mod verify;
mod volume;
mod writer;
mod writes;

pub use crate::data_path::UnknownWord;
pub use array::Array;
pub use array_reader::ArrayReader;
pub use cache::{Cache, CacheBuilder, Occupancy};
pub use checksum::Checksum;
pub use copies::{LostCopy, Redundancy};
pub use drive::{Drive, OpenController};
pub use drive_spec::DriveSpec;
pub use element::{Element, ElementType};
pub use error::StorageError;
pub use format::{ARRAY_ALIGN, MANIFEST_BYTES, MAX_ARRAYS, NAME_BYTES};
pub use manifest::{Entry, Manifest};
pub use manifest_error::ManifestError;
pub use options::DEFAULT_CHUNK;
pub use path::{
    Doorbell, DoorbellChoice, LandingChoice, LandingPath, Path, QueueMemory, QueueMemoryChoice, WriteCaches,
    WritesOrder,
};
pub use plan::Plan;
pub use registered_region::{DataBuffer, RegisteredRegion};
pub use stats::Stats;
pub use stored::Stored;
pub use stored_name::LONGEST_NAME;
#[cfg(feature = "graph")]
pub(crate) use stored_name::{NAME_RULE as STORED_NAME_RULE, is_name as is_stored_name, listing};
pub use stream_queue::StreamQueue;
pub use table::{
    Combine, GatheredRows, Gathering, NpyError, NpyHeader, Prefetch, RowFile, RowFileError, RowFileOptions, RowIndices,
    RowInput, RowOutput, StoredTable, Table, TableBuilder, TableError, TableLayout, TableScratch, TableStats,
    TableWriter, read_npy,
};
pub use target::OverwritePolicy;
pub use untyped_array::UntypedArray;
pub use verify::{ArrayState, CheckedArray, DamagedRange, Verification};
pub use volume::{Volume, VolumeBuilder, VolumeRecovery};
pub use writer::VolumeWriter;
