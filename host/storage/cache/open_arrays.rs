//! Arrays of a cache: by position, or by their name in the volume's manifest.

use super::Cache;
use super::array::Array;
use super::untyped_array::UntypedArray;
use crate::engine::abi;
use crate::storage::contents::{Entry, Manifest};
use crate::storage::element::{Element, ElementType};
use crate::storage::error::{ManifestError, StorageError};

impl Cache {
    /// Returns an array of `count` elements from the start of page `first_page` of the volume on.
    ///
    /// # Errors
    /// [`StorageError::Option`] if an element has not 1, 2, 4, 8 or 16 bytes; [`StorageError::Capacity`] if the array
    /// ends beyond the last whole page of the volume.
    pub fn array<T: Element>(&self, first_page: u64, count: u64) -> Result<Array<T>, StorageError> {
        Ok(Array::of(UntypedArray::new(self, first_page, count, (T::TYPE, size_of::<T>()))?))
    }

    /// Returns an array of `count` elements of `element_bytes` bytes, from the start of page `first_page` of the volume on.
    ///
    /// # Errors
    /// As for [`Cache::array`].
    pub fn untyped_array(
        &self,
        first_page: u64,
        count: u64,
        element_bytes: usize,
    ) -> Result<UntypedArray, StorageError> {
        UntypedArray::new(self, first_page, count, (ElementType::Record, element_bytes))
    }

    /// Opens the array called `name` in the volume's manifest.
    ///
    /// # Errors
    /// * [`StorageError::Manifest`] if the volume has no readable manifest, no array of this name, or one of another
    ///   type.
    /// * [`StorageError::Option`] if the array does not start at a page of this cache, if pages are smaller than the
    ///   unit of the page checksums, or if its records have another size than `T`.
    /// * [`StorageError::Nvme`] if a device fails to read the manifest.
    pub fn open<T: Element>(&self, name: &str) -> Result<Array<T>, StorageError> {
        let untyped = self.open_entry(name, |manifest| manifest.find_typed::<T>(name))?;
        let (found, asked) = (untyped.element_bytes(), size_of::<T>());
        if found != asked {
            return Err(StorageError::Option(format!("array `{name}` has records of {found} bytes, not of {asked}")));
        }
        Ok(Array::of(untyped))
    }

    /// Opens the array called `name` in the volume's manifest, whatever its type is.
    ///
    /// # Errors
    /// As for [`Cache::open`]; also [`StorageError::Option`] if an element has not 1, 2, 4, 8 or 16 bytes.
    pub fn open_untyped(&self, name: &str) -> Result<UntypedArray, StorageError> {
        self.open_entry(name, |manifest| manifest.find(name))
    }

    fn open_entry(
        &self,
        name: &str,
        find: impl FnOnce(&Manifest) -> Result<&Entry, ManifestError>,
    ) -> Result<UntypedArray, StorageError> {
        let v = self.volume();
        let manifest = v.manifest()?;
        let entry = find(&manifest).map_err(|source| StorageError::Manifest { device: v.name().to_owned(), source })?;
        let page = self.page_bytes() as u64;
        if !entry.offset.is_multiple_of(page) {
            return Err(StorageError::Option(format!(
                "array `{name}` starts at byte {}, which is not a multiple of the cache's page of {page} bytes: use a smaller page",
                entry.offset
            )));
        }
        let unit = abi::CHECKSUM_BYTES as u64;
        if page < unit && v.has_page_checksums() {
            return Err(StorageError::Option(format!(
                "array `{name}` has checksums of {unit} bytes each, which cannot be compared with pages of {page} bytes: use a page of {unit} or more, or open the volume without page checksums"
            )));
        }
        UntypedArray::stored(self, entry, entry.offset / page)
    }
}
