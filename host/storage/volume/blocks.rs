//! Blocks of a volume for programs: reads, writes, durability, memory for transfers, and copies.

use super::Volume;
use crate::memory::Region;
#[cfg(feature = "internals")]
use crate::nvme::WriteCache;
use crate::storage::disk::{DataBuffer, Redundancy, RegisteredRegion};
use crate::storage::error::StorageError;
use std::ops::Range;

impl Volume {
    /// Reads whole blocks from block `first` on. The length of `out` must be a multiple of the block size.
    ///
    /// # Errors
    /// * [`StorageError::Option`] if `out` is not whole blocks, and [`StorageError::Range`] if they are not within the
    ///   volume.
    /// * [`StorageError::Nvme`] if a device fails the command, on a replicated volume [`StorageError::NoCopy`] if every
    ///   copy does.
    /// * [`StorageError::NoPath`] if running kernels have all queue pairs of a controller.
    pub fn read_blocks(&self, first: u64, out: &mut [u8]) -> Result<(), StorageError> {
        self.disk().read_blocks(first, out)
    }

    /// Reads bytes from any byte offset of the volume.
    ///
    /// # Errors
    /// As for [`Volume::read_blocks`].
    pub fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        self.disk().read_bytes(offset, out)
    }

    /// Writes whole blocks from block `first` on. The length of `data` must be a multiple of the block size. The blocks
    /// are on the medium after [`Volume::flush`].
    ///
    /// # Errors
    /// As for [`Volume::read_blocks`]; also [`StorageError::NoSpace`] if the file system below a device is full, and
    /// [`StorageError::Memory`] if the page checksums cannot be updated.
    pub fn write_blocks(&self, first: u64, data: &[u8]) -> Result<(), StorageError> {
        self.contents().write_blocks(first, data)
    }

    /// Writes bytes at any byte offset of the volume. Partly covered blocks are read first, so nobody else may write to
    /// these blocks meanwhile.
    ///
    /// # Errors
    /// As for [`Volume::write_blocks`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Drive, OverwritePolicy, Volume};
    ///
    /// let engine = Engine::cpu()?;
    /// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
    /// let volume = Volume::on(&engine, [drive]).build()?;
    ///
    /// volume.write_bytes(100, b"any offset, any length")?;
    /// let mut text = [0; 10];
    /// volume.read_bytes(104, &mut text)?;
    /// assert_eq!(&text, b"offset, an");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_bytes(&self, offset: u64, data: &[u8]) -> Result<(), StorageError> {
        self.contents().write_bytes(offset, data)
    }

    /// Makes all completed writes durable: sends a Flush to every device whose volatile write cache is enabled. On
    /// other devices a completed write is already on the medium. [`Path::write_cache`](crate::storage::Path) says which kind the
    /// devices are.
    ///
    /// On a replicated volume the flush first repairs blocks that a copy could not read ([`Volume::repair`]). It then
    /// records in the manifest which stored arrays have changed. The checksums of those arrays are invalid until
    /// [`Volume::accept_changes`].
    ///
    /// # Errors
    /// [`StorageError::Nvme`] if a device fails a command, on a replicated volume [`StorageError::NoCopy`] if every
    /// copy does; [`StorageError::NoPath`] if running kernels have all queue pairs of a controller;
    /// [`StorageError::Memory`] if the counters of changes cannot be read.
    pub fn flush(&self) -> Result<(), StorageError> {
        self.contents().flush()
    }

    /// Makes `blocks` read as zeros. Sends Write Zeroes where the device supports that command, and writes zeros
    /// elsewhere. With `deallocate` a device may free the blocks, if it reads freed blocks as zeros. The zeros are on
    /// the medium after [`Volume::flush`].
    ///
    /// # Errors
    /// [`StorageError::Range`] if `blocks` are not within the volume; [`StorageError::Nvme`], [`StorageError::NoSpace`]
    /// or, on a replicated volume, [`StorageError::NoCopy`] if devices fail the command; [`StorageError::NoPath`] if
    /// running kernels have all queue pairs of a controller.
    pub fn write_zeroes(&self, blocks: Range<u64>, deallocate: bool) -> Result<(), StorageError> {
        self.contents().write_zeroes(blocks, deallocate)
    }

    /// Tells the devices that the contents of `blocks` are no longer needed (`nvme dsm --ad`, TRIM). The device decides
    /// what the blocks read as afterwards.
    ///
    /// # Errors
    /// [`StorageError::Nvme`] if a device has no Dataset Management, or fails the command; otherwise as for
    /// [`Volume::write_zeroes`].
    pub fn deallocate(&self, blocks: Range<u64>) -> Result<(), StorageError> {
        self.contents().deallocate(blocks)
    }

    /// Returns the state of each device's volatile write cache, in the volume's order.
    ///
    /// # Errors
    /// [`StorageError::Nvme`] if a controller does not return the feature.
    #[cfg(feature = "internals")]
    pub fn write_caches(&self) -> Result<Vec<WriteCache>, StorageError> {
        self.disk().write_caches()
    }

    /// Returns the redundancy of the volume: the copies that are left out, and the number of reads that another copy
    /// completed.
    ///
    /// # Errors
    ///
    /// [`StorageError::Memory`] if the counters cannot be read.
    pub fn redundancy(&self) -> Result<Redundancy, StorageError> {
        self.disk().redundancy()
    }

    /// Writes blocks that one copy could not read, and another copy could, back to the first copy. A copy that fails
    /// this write is left out. Does nothing while kernels run, since it could undo their writes. [`Volume::flush`]
    /// calls it.
    ///
    /// # Errors
    ///
    /// [`StorageError::NoCopy`] if no copy can read the blocks any more; [`StorageError::Memory`] if the list of
    /// repairs cannot be read.
    pub fn repair(&self) -> Result<(), StorageError> {
        self.disk().repair()
    }

    /// Maps existing memory for the volume's devices, so that kernels can name it in transfers. With bounce landing no
    /// mapping is needed, and the result is only a token.
    ///
    /// # Errors
    /// * [`StorageError::Option`] for host memory where completions land in GPU memory, or if all registered regions of
    ///   the volume are in use.
    /// * [`StorageError::Dma`] if a device does not reach the memory.
    pub fn map(&self, region: &Region) -> Result<RegisteredRegion, StorageError> {
        self.disk().map(region)
    }

    /// Makes existing memory a buffer for transfers: maps it as [`Volume::map`] does, and keeps it and the mapping. For
    /// memory of the program ([`Space::import_device`](crate::memory::Space::import_device)).
    ///
    /// # Errors
    /// As for [`Volume::map`].
    pub fn map_data(&self, region: &Region) -> Result<DataBuffer, StorageError> {
        self.disk().map_data(region)
    }

    /// Allocates zeroed memory that kernels of this volume can read into and write from.
    ///
    /// # Errors
    /// [`StorageError::Memory`] without memory; [`StorageError::Option`] if all registered regions are in use;
    /// [`StorageError::Dma`] if a device does not reach the memory.
    pub fn allocate_data(&self, bytes: usize) -> Result<DataBuffer, StorageError> {
        self.disk().allocate_data(bytes)
    }
}
