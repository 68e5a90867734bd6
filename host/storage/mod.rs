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
mod checksum;
mod choose;
mod content;
#[cfg(test)]
mod content_tests;
mod copies;
#[cfg(test)]
mod copies_tests;
mod drive;
mod drive_spec;
mod error;
#[cfg(test)]
mod fault_tests;
mod geometry;
mod host_io;
mod integrity;
mod load;
mod manifest;
mod naming;
mod newest;
mod nvme;
#[cfg(test)]
mod outdated_copy_tests;
mod page_checksums;
#[cfg(test)]
mod page_checksums_tests;
mod path;
mod recover;
mod registered_region;
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
mod untyped_array;
mod verify;
mod volume;

pub use crate::data_path::UnknownWord;
pub use array::Array;
pub use array_reader::ArrayReader;
pub use builder::{DEFAULT_CHUNK, VolumeBuilder};
pub use cache::{Cache, CacheBuilder, Occupancy};
internal!(checksum::Checksum);
pub use copies::{LostCopy, Redundancy};
pub use drive::Drive;
internal!(drive::OpenController);
pub use drive_spec::DriveSpec;
pub use error::StorageError;
pub use load::{Plan, VolumeWriter};
pub use manifest::{Element, ElementType, Entry, Manifest, ManifestError};
internal!(manifest::{ARRAY_ALIGN, MANIFEST_BYTES, MAX_ARRAYS, NAME_BYTES});
pub use path::{
    Doorbell, DoorbellChoice, LandingChoice, LandingPath, Path, QueueMemory, QueueMemoryChoice, WriteCaches,
    WritesOrder,
};
pub use recover::VolumeRecovery;
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
pub use volume::Volume;

use registered_region::RegisteredRegions;
