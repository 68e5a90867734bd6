//! A range of a cached volume whose element type is known at run time only, for programs in other languages.

use super::Cache;
use crate::engine::{Args, KernelArg, abi};
use crate::memory::{Place, Region};
use crate::storage::contents::Entry;
use crate::storage::element::ElementType;
use crate::storage::error::StorageError;
use std::fmt;
use std::ops::Range;

/// Elements of a volume, as bytes for the host. Kernels access them as a `warpbell::array_ref<T>` of elements of as many
/// bytes. [`Array`](crate::storage::Array) has the type `T` on the host, too. Cheap to clone.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Cache, Drive, ElementType, OverwritePolicy, Volume};
///
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
/// volume.store_array("numbers", &(0..100_000u32).collect::<Vec<_>>())?;
///
/// let cache = Cache::on(&volume).bytes(64 << 10).build()?;
/// let numbers = cache.open_untyped("numbers")?;
/// assert_eq!((numbers.element_type(), numbers.element_bytes()), (ElementType::U32, 4));
/// let mut bytes = [0; 8];
/// numbers.read(10, &mut bytes)?;
/// assert_eq!(bytes, [10, 0, 0, 0, 11, 0, 0, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct UntypedArray {
    cache: Cache,
    name: Option<String>,
    first_page: u64,
    count: u64,
    element_type: ElementType,
    element_bytes: usize,
}

impl KernelArg for UntypedArray {
    fn push(&self, args: &mut Args) {
        args.push_value(self.view());
        args.keep(self.cache.0.clone());
    }
}

/// Size of the staging buffer between the host and the cache, in bytes: whole elements of every size.
const STAGING_BYTES: usize = 4 << 20;

impl UntypedArray {
    /// Makes the array of these elements, if kernels can access elements of that size and all lie within the volume.
    pub(in crate::storage) fn new(
        cache: &Cache,
        first_page: u64,
        count: u64,
        (element_type, element_bytes): (ElementType, usize),
    ) -> Result<Self, StorageError> {
        let array = Self { cache: cache.clone(), name: None, first_page, count, element_type, element_bytes };
        array.checked()
    }

    /// Makes the array of a manifest's entry, which begins at page `first_page`.
    pub(in crate::storage) fn stored(cache: &Cache, entry: &Entry, first_page: u64) -> Result<Self, StorageError> {
        let (element_type, element_bytes) = (entry.element_type, entry.element_bytes as usize);
        let (cache, name) = (cache.clone(), Some(entry.name.clone()));
        Self { cache, name, first_page, count: entry.count, element_type, element_bytes }.checked()
    }

    fn checked(self) -> Result<Self, StorageError> {
        let what = || self.name().map_or_else(|| "an array".to_owned(), |n| format!("array `{n}`"));
        let (element, page) = (self.element_bytes, self.cache.page_bytes() as u64);
        if !element.is_power_of_two() || element > 16 {
            return Err(StorageError::Option(format!(
                "{} of elements of {element} bytes: kernels reach elements of 1, 2, 4, 8 or 16 bytes",
                what()
            )));
        }
        let pages = self.cache.0.constants.pages;
        let bytes = self.count.checked_mul(element as u64);
        let end = bytes.map(|b| b.div_ceil(page)).and_then(|p| p.checked_add(self.first_page));
        if end.is_none_or(|end| end > pages) {
            return Err(StorageError::Capacity {
                device: self.cache.volume().name().to_owned(),
                holds: pages * page,
                what: what(),
                needs: end.and_then(|end| end.checked_mul(page)).unwrap_or(u64::MAX),
                next: "use fewer elements or a larger device (an incomplete last page does not count)".to_owned(),
            });
        }
        Ok(self)
    }

    /// Returns the `wb_array_view`, the form in which kernels get the array: see [`Array::view`](crate::storage::Array::view).
    pub fn view(&self) -> abi::ArrayView {
        let array = abi::Array {
            cache: self.cache.address(),
            first_page: self.first_page,
            count: self.count,
            element_bytes: self.element_bytes as u32,
            page_elements_log2: (self.cache.page_bytes() / self.element_bytes).ilog2(),
        };
        abi::ArrayView { array, cache: self.cache.0.constants }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns true if the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the type of the elements.
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Returns the size of an element in bytes: 1, 2, 4, 8 or 16.
    pub fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    /// Returns the array's name in the manifest, or `None` if the array was not opened by name.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the cache through which host and kernels access the array.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the pages of the volume that hold the array.
    pub fn pages(&self) -> Range<u64> {
        let page = self.cache.page_bytes() as u64;
        self.first_page..self.first_page + (self.count * self.element_bytes as u64).div_ceil(page)
    }

    /// Reads whole elements through the cache, from element `first` on.
    ///
    /// # Errors
    /// [`StorageError::Option`] if `out` is not whole elements, or they are not within the array;
    /// [`StorageError::Memory`] without memory for the staging buffer; [`StorageError::Engine`] if the engine starts no
    /// kernel; [`StorageError::Run`] if a page cannot be read.
    pub fn read(&self, first: u64, out: &mut [u8]) -> Result<(), StorageError> {
        self.check(first, out.len())?;
        let staging = self.staging(out.len())?;
        let mut at = first;
        for part in out.chunks_mut(STAGING_BYTES) {
            self.copy("wb_cache_read", at, part.len(), &staging)?;
            staging.read(0, part)?;
            at += (part.len() / self.element_bytes) as u64;
        }
        Ok(())
    }

    /// Writes whole elements through the cache, from element `first` on. They are on the device after
    /// [`Cache::flush`].
    ///
    /// # Errors
    /// As for [`UntypedArray::read`]; [`StorageError::Run`] also if a page cannot be written back.
    pub fn write(&self, first: u64, values: &[u8]) -> Result<(), StorageError> {
        self.check(first, values.len())?;
        let staging = self.staging(values.len())?;
        let mut at = first;
        for part in values.chunks(STAGING_BYTES) {
            staging.write(0, part)?;
            self.copy("wb_cache_write", at, part.len(), &staging)?;
            at += (part.len() / self.element_bytes) as u64;
        }
        Ok(())
    }

    /// Reads all pages of the array into the cache, as far as they fit.
    ///
    /// # Errors
    /// [`StorageError::Engine`] if the engine starts no kernel; [`StorageError::Run`] if a page cannot be read.
    pub fn warm(&self) -> Result<(), StorageError> {
        let pages = self.pages();
        // SAFETY: these are the arguments that this kernel takes, and the array's pages lie within the volume.
        unsafe { self.cache.run("wb_cache_touch", crate::args!(&self.cache, pages.start, pages.end)) }
    }

    fn staging(&self, bytes: usize) -> Result<Region, StorageError> {
        Ok(self.cache.volume().engine().allocate(Place::Host, bytes.min(STAGING_BYTES))?)
    }

    fn copy(&self, kernel: &str, first: u64, bytes: usize, staging: &Region) -> Result<(), StorageError> {
        let byte = self.first_page * self.cache.page_bytes() as u64 + first * self.element_bytes as u64;
        // SAFETY: these are the arguments that this kernel takes, and the callers have checked the range.
        unsafe { self.cache.run(kernel, crate::args!(&self.cache, byte, bytes as u64, staging)) }
    }

    fn check(&self, first: u64, bytes: usize) -> Result<(), StorageError> {
        if !bytes.is_multiple_of(self.element_bytes) {
            let each = self.element_bytes;
            return Err(StorageError::Option(format!("{bytes} bytes are not whole elements of {each} bytes")));
        }
        self.check_elements(first, first.saturating_add((bytes / self.element_bytes) as u64))
    }

    pub(in crate::storage) fn check_elements(&self, first: u64, last: u64) -> Result<(), StorageError> {
        if first <= last && last <= self.count {
            return Ok(());
        }
        let name = self.name().unwrap_or("(unnamed)");
        Err(StorageError::Option(format!(
            "elements {first} to {last} do not lie within array `{name}` of {} elements",
            self.count
        )))
    }
}

impl fmt::Debug for UntypedArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("unnamed");
        write!(f, "UntypedArray({name}, {} of {} from page {})", self.count, self.element_type, self.first_page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::storage::{Drive, Element, Plan, Volume};

    /// A record of another size than those that are stored.
    #[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C)]
    struct Sixteen([u64; 2]);

    impl Element for Sixteen {
        const TYPE: ElementType = ElementType::Record;
    }

    #[test]
    fn bytes_of_an_array_are_those_of_its_elements() {
        let volume = Volume::on(&Engine::cpu().unwrap(), [Drive::open("soft:mem:1M").unwrap()]).build().unwrap();
        let plan = Plan::new().untyped("u16", ElementType::U16, 2, 3).untyped("odd", ElementType::Record, 12, 2);
        let mut writer = volume.store(plan, "it").unwrap();
        writer.append_bytes("u16", ElementType::U16, bytemuck::cast_slice(&[7u16, 8, 9])).unwrap();
        assert!(writer.append_bytes("u16", ElementType::I16, &[]).is_err(), "another type");
        writer.append_bytes("odd", ElementType::Record, &[5; 24]).unwrap();
        writer.finish().unwrap();

        let cache = Cache::on(&volume).bytes(64 << 10).build().unwrap();
        let array = cache.open_untyped("u16").unwrap();
        assert_eq!((array.element_type(), array.element_bytes(), array.len()), (ElementType::U16, 2, 3));
        let mut two = [0; 4];
        array.read(1, &mut two).unwrap();
        assert_eq!(bytemuck::cast::<_, [u16; 2]>(two), [8, 9]);
        array.write(0, bytemuck::bytes_of(&77u16)).unwrap();
        assert_eq!(cache.open::<u16>("u16").unwrap().read(0..2).unwrap(), [77, 8]);
        for (first, bytes, part) in
            [(0, 3, "3 bytes are not whole elements of 2"), (2, 4, "elements 2 to 4"), (4, 0, "elements 4 to 4")]
        {
            let text = array.read(first, &mut vec![0; bytes]).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
        let text = cache.open_untyped("odd").unwrap_err().to_string();
        assert!(text.contains("array `odd` of elements of 12 bytes"), "{text}");
        let mut whole = [0; 24];
        volume.read_array_bytes("odd", ElementType::Record, &mut whole).unwrap();
        assert_eq!(whole, [5; 24]);
        let text = volume.read_array_bytes("odd", ElementType::Record, &mut whole[1..]).unwrap_err().to_string();
        assert!(text.contains("has 24 bytes, and 23 were asked for"), "{text}");
        let text = volume.read_array_bytes("odd", ElementType::U8, &mut whole).unwrap_err().to_string();
        assert!(text.contains("holds record, not u8"), "{text}");
        let mut writer = volume.add(Plan::new().records("r8", 8, 1), "it").unwrap();
        writer.append_bytes("r8", ElementType::Record, &[1; 8]).unwrap();
        writer.finish().unwrap();
        let text = cache.open::<Sixteen>("r8").unwrap_err().to_string();
        assert!(text.contains("records of 8 bytes, not of 16"), "{text}");
        let view = cache.untyped_array(3, 10, 16).unwrap().view();
        assert_eq!((view.array.element_bytes, view.array.first_page, view.array.count), (16, 3, 10));
        assert!(cache.untyped_array(0, 10, 3).is_err());
    }
}
