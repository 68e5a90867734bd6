//! Sizes and versions of what is stored on drives. `superblock.rs` and `manifest.rs` have the structures.

use crate::file_identity::VOLUME_MAGIC;

/// Bytes at the start of every drive that are reserved for superblocks with the manifest.
pub const MANIFEST_BYTES: usize = 64 << 10;
/// Alignment of every array in bytes, so that arrays start at a page of any cache.
pub const ARRAY_ALIGN: u64 = 64 << 10;
/// Longest name of an array, in bytes.
pub const NAME_BYTES: usize = 64;
/// Largest number of arrays in a manifest.
pub const MAX_ARRAYS: usize = (SLOT_BYTES - HEADER_BYTES - MAX_EXTENSION_BYTES) / ENTRY_BYTES;

/// Bytes that extensions may take beside the largest number of arrays.
const MAX_EXTENSION_BYTES: usize = 4 << 10;
/// First bytes of a superblock.
pub(super) const MAGIC: [u8; 8] = VOLUME_MAGIC;
/// Version of superblocks.
pub(super) const VERSION: u32 = 2;
/// Version whose superblocks lack the layout of the data on the drives.
pub(super) const VERSION_WITHOUT_LAYOUT: u32 = 1;
/// First byte of each slot.
pub(super) const SLOTS: [usize; 2] = [0, 32 << 10];
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 28 << 10;
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 128;
/// Bytes of an array's entry.
pub(super) const ENTRY_BYTES: usize = 128;

/// Returns true if these bytes, the first of a file or device, mark it as warpbell's. The manifest itself may be
/// damaged.
pub(super) fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}
