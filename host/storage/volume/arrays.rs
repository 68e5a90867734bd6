//! Stored arrays of a volume for programs: storing, reading, removing, verifying.

use super::Volume;
use crate::storage::contents::{ArrayReader, Manifest, Plan, Stored, Verification, VolumeWriter};
use crate::storage::element::{Element, ElementType};
use crate::storage::error::StorageError;

impl Volume {
    /// Returns the names and positions of the arrays that the volume holds, read from the superblocks of its drives.
    ///
    /// # Errors
    ///
    /// * [`StorageError::Manifest`] if nothing is stored there, or the manifest is damaged or of another version. Also if
    ///   the drives are not combined as when the data was stored.
    /// * [`StorageError::Nvme`] if a drive fails a read; [`StorageError::NoPath`] if running kernels have all queue
    ///   pairs of a controller, or the table of page checksums does not fit into memory.
    pub fn manifest(&self) -> Result<Manifest, StorageError> {
        self.contents().manifest()
    }

    /// Accepts the arrays as they are. Computes the checksums of arrays that were changed since they were stored, or
    /// that a program was changing when it ended. Writes the checksums to the manifest. Reads these arrays completely.
    /// On a replicated volume, writes their data to the copies that hold other data.
    ///
    /// # Errors
    ///
    /// [`StorageError::NoPath`] while kernels run, since they could change the arrays; [`StorageError::Manifest`] as
    /// for [`Volume::manifest`]; otherwise as for [`Volume::flush`].
    pub fn accept_changes(&self) -> Result<Manifest, StorageError> {
        self.contents().accept_changes()
    }

    /// Begins to store arrays. The new manifest is written when all arrays are complete. If both fit, the volume keeps
    /// its old content until then ([`VolumeWriter::keeps_old`]). Otherwise this call erases the old content. `what`
    /// names the data in errors, as in `the graph`.
    ///
    /// Copies that are left out and respond receive the new data, too. They are in use again after
    /// [`VolumeWriter::finish`].
    ///
    /// # Errors
    /// * [`StorageError::Nvme`] or [`StorageError::Unread`] if superblocks cannot be read, so that it is unknown what is
    ///   stored there, unless the overwrite policy names every device.
    /// * [`StorageError::Capacity`] if the volume is too small.
    /// * [`StorageError::Manifest`] if the plan has too many arrays, or one with a bad name or size.
    /// * [`StorageError::NoPath`] if there is no memory for the page checksums, or running kernels have all queue pairs
    ///   of a controller.
    /// * [`StorageError::Nvme`], on a replicated volume [`StorageError::NoCopy`], if devices fail commands.
    /// * [`StorageError::File`] if the system gives no random numbers for the volume's UUID.
    pub fn store(&self, plan: Plan, what: &str) -> Result<VolumeWriter<'_>, StorageError> {
        self.contents().store(plan, what)
    }

    /// Stores one array, in place of everything that the volume held.
    ///
    /// # Errors
    /// As for [`Volume::store`] and [`VolumeWriter::finish`].
    pub fn store_array<T: Element>(&self, name: &str, values: &[T]) -> Result<Manifest, StorageError> {
        self.contents().store_array(name, values)
    }

    /// Begins to store arrays beside those that the volume holds. These stay as they are, until and after
    /// [`VolumeWriter::finish`]. The volume must have space for both ([`Volume::needs_beside`]). `what` names the data
    /// in errors, as in `the graph`.
    ///
    /// A volume with page checksums keeps them; the plan's wish counts for a volume that has none.
    ///
    /// Caches of the volume may hold pages of arrays that were removed. Empty them ([`Cache::discard`]) before they
    /// read the new arrays.
    ///
    /// [`Cache::discard`]: crate::storage::Cache::discard
    ///
    /// # Errors
    /// * [`StorageError::Manifest`] if the volume holds an array of the same name, or the content cannot be read.
    /// * [`StorageError::NoPath`] if a program ended while it changed the stored arrays.
    /// * Otherwise as for [`Volume::store`].
    pub fn add(&self, plan: Plan, what: &str) -> Result<VolumeWriter<'_>, StorageError> {
        self.contents().add(plan, what)
    }

    /// Begins to store arrays as [`Volume::add`] does. With [`VolumeWriter::finish`] they take the place of the arrays
    /// in `replaced`, which are whole until then.
    ///
    /// # Errors
    /// As for [`Volume::add`]; also [`StorageError::Manifest`] if there is no array that `replaced` names. The end of the writer fails
    /// as [`Volume::remove`] does while a kernel moves data of one of them.
    pub fn replace(&self, plan: Plan, what: &str, replaced: &[&str]) -> Result<VolumeWriter<'_>, StorageError> {
        self.contents().replace(plan, what, replaced)
    }

    /// Returns the bytes that the volume needs to hold `plan` beside what it holds, as [`Volume::add`] stores it.
    ///
    /// # Errors
    /// As for [`Volume::manifest`]. A volume that holds nothing is no error.
    #[cfg(feature = "internals")]
    pub fn needs_beside(&self, plan: &Plan) -> Result<u64, StorageError> {
        self.contents().needs_beside(plan)
    }

    /// Returns the size in bytes that each drive needs for the volume to have `bytes` bytes.
    #[cfg(feature = "internals")]
    pub fn bytes_of_each_drive(&self, bytes: u64) -> u64 {
        self.contents().bytes_of_each_drive(bytes)
    }

    /// Removes arrays, and with that frees their space. The others stay as they are. The data itself is not erased.
    ///
    /// # Errors
    /// * [`StorageError::Manifest`] if there is no such array.
    /// * [`StorageError::NoPath`] while a kernel moves data of one of the arrays, which it was given by name.
    /// * Otherwise as for [`Volume::add`] and [`Volume::flush`].
    pub fn remove(&self, names: &[&str]) -> Result<Manifest, StorageError> {
        self.contents().remove(names)
    }

    /// Begins to read a stored array in pieces.
    ///
    /// # Errors
    /// [`StorageError::Manifest`] if there is no such array, or it has another type.
    pub(crate) fn array_reader<T: Element>(&self, name: &str) -> Result<ArrayReader<'_, T>, StorageError> {
        self.contents().array_reader::<T>(name)
    }

    /// Reads a whole array and compares it with the checksum that was stored. An array that was changed and flushed
    /// since is not checked until [`Volume::accept_changes`].
    ///
    /// # Errors
    /// [`StorageError::Manifest`] if there is no such array, it has another type, or its data is damaged;
    /// [`StorageError::Option`] if it does not fit into memory; [`StorageError::Engine`] if the engine was cancelled;
    /// otherwise as for [`Volume::read_bytes`].
    pub fn read_array<T: Element>(&self, name: &str) -> Result<Vec<T>, StorageError> {
        self.contents().read_array::<T>(name)
    }

    /// Reads a whole array, whose elements have the type `asked`, as bytes, and compares it with the checksum that was
    /// stored, as [`Volume::read_array`] does. `out` has as many bytes as the array.
    ///
    /// # Errors
    /// [`StorageError::Manifest`] if there is no such array, it has another type, or its data is damaged;
    /// [`StorageError::Option`] if the array has more or fewer bytes; [`StorageError::Engine`] if the engine was cancelled;
    /// otherwise as for [`Volume::read_bytes`].
    pub fn read_array_bytes(&self, name: &str, asked: ElementType, out: &mut [u8]) -> Result<(), StorageError> {
        self.contents().read_array_bytes(name, asked, out)
    }

    /// Reads all stored arrays, on every copy of a replicated volume, and compares them with their checksums. These are
    /// the arrays' own checksums, and page checksums where they were stored
    /// ([`VolumeBuilder::page_checksums`](crate::storage::VolumeBuilder::page_checksums)). An array's own checksum decides: where
    /// it is right and a page checksum contradicts it, the page checksum is wrong.
    ///
    /// With `repair`:
    ///
    /// * Damaged data of one copy is written again from a copy that has the right checksum, or from several copies that
    ///   have it together. A copy that fails this write is left out.
    /// * Page checksums that are wrong are computed again from data with the right checksum.
    /// * Copies that were left out, respond, and hold an older generation or nothing get all data, and are in use again.
    ///
    /// Call it after a flush. Writes of a cache that are not flushed yet look like damage.
    ///
    /// # Errors
    ///
    /// * [`StorageError::NoPath`] while kernels run.
    /// * [`StorageError::Manifest`] as for [`Volume::manifest`].
    /// * [`StorageError::Unread`] if a copy that cannot be read may hold newer data than the others.
    /// * [`StorageError::Engine`] if the engine was cancelled.
    /// * [`StorageError::Nvme`] if a device fails a command. Failed reads of arrays are not errors; they are in the
    ///   result. Reads of a volume without copies that get no completion are errors.
    pub fn verify(&self, repair: bool) -> Result<Verification, StorageError> {
        self.contents().verify(repair)
    }

    /// Returns true if kernels compare pages that they read with checksums: see [`VolumeBuilder::page_checksums`].
    ///
    /// [`VolumeBuilder::page_checksums`]: crate::storage::VolumeBuilder::page_checksums
    pub fn has_page_checksums(&self) -> bool {
        self.contents().has_page_checksums()
    }

    /// Returns the devices that hold stored arrays and may not be overwritten.
    ///
    /// # Errors
    ///
    /// [`StorageError::Nvme`] if a device cannot be read; [`StorageError::NoPath`] if running kernels have all queue
    /// pairs of its controller.
    pub fn stored(&self) -> Result<Vec<Stored>, StorageError> {
        self.contents().stored()
    }
}
