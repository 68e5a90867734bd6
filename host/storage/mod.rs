//! NVMe storage for kernels, from a namespace to `array[i]`: drives, volumes, the page cache, arrays.
//!
//! [`Drive::open`] enables a controller. [`Volume::on`] creates queues on one or several drives, to which kernels
//! submit commands. [`Volume::store`] writes arrays and a [`Manifest`] that names them. A [`Cache`] keeps pages of a
//! volume in memory near the kernels. Kernels access the pages through [`Array`]s. A [`Table`] has rows of equal size,
//! which kernels gather by number. A [`KvStore`] has objects under keys, and evicts those that were not used for longest.

mod cache;
mod checksum;
mod contents;
mod disk;
mod element;
mod error;
mod failure;
mod format;
mod kv;
#[cfg(test)]
mod stop_tests;
mod stored_name;
mod table;
mod volume;

pub use crate::data_path::UnknownWord;
pub use cache::{Array, Cache, CacheBuilder, Occupancy, UntypedArray};
internal!(checksum::Checksum);
pub use contents::{ArrayState, CheckedArray, DamagedRange, Entry, Manifest, Plan, Stored, Verification, VolumeWriter};
pub use disk::{
    DEFAULT_CHUNK, DataBuffer, Doorbell, DoorbellChoice, Drive, DriveSpec, LandingChoice, LandingPath, LostCopy,
    OverwritePolicy, Path, QueueMemory, QueueMemoryChoice, Redundancy, RegisteredRegion, Stats, WriteCaches,
    WritesOrder,
};
internal!(contents::ArrayReader);
internal!(disk::OpenController);
pub use element::{Element, ElementType};
pub use error::{KvError, ManifestError, StorageError, TableError};
internal!(format::{ARRAY_ALIGN, MANIFEST_BYTES, MAX_ARRAYS, NAME_BYTES});
pub use kv::{
    KvKey, KvLoad, KvObject, KvOptions, KvPins, KvReservation, KvStats, KvStore, KvStoring, StoredKv, kv_checksum,
};
pub use stored_name::LONGEST_NAME;
#[cfg(feature = "graph")]
pub(crate) use stored_name::{NAME_RULE as STORED_NAME_RULE, is_name as is_stored_name, listing};
pub use table::{
    Combine, GatheredRows, Gathering, NpyError, Prefetch, RowFile, RowFileError, RowFileOptions, RowIndices, RowInput,
    RowOutput, StoredTable, Table, TableBuilder, TableLayout, TableScratch, TableStats, TableWriter,
};
internal!(table::NpyHeader);
#[cfg(feature = "internals")]
pub use table::read_npy;
pub use volume::{
    Extent, PagedTensors, SegmentList, SegmentOutcome, SegmentQueue, SegmentQueueBuilder, SegmentTransfer, StreamQueue,
    Volume, VolumeBuilder, VolumeRecovery,
};
