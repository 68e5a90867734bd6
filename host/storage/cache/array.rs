//! A typed range of a cached volume.

use super::Cache;
use super::untyped_array::UntypedArray;
use crate::engine::{Args, KernelArg, abi};
use crate::storage::element::Element;
use crate::storage::error::StorageError;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

/// Elements of a volume, which kernels access as a `warpbell::array_ref<T>`. Cheap to clone.
///
/// [`Array::read`] and [`Array::write`] run kernels of their own that copy through the cache. Host and kernels
/// therefore always see each other's changes. The host may call both while another kernel uses the array.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Array, Cache, Drive, OverwritePolicy, Volume};
///
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
/// volume.store_array("numbers", &(0..100_000u32).collect::<Vec<_>>())?;
///
/// let cache = Cache::on(&volume).bytes(64 << 10).build()?;
/// let numbers: Array<u32> = cache.open("numbers")?;
/// assert_eq!((numbers.len(), numbers.name()), (100_000, Some("numbers")));
/// assert_eq!(numbers.read(10..13)?, [10, 11, 12]);
/// // The type must be the one that the array was stored with.
/// assert!(cache.open::<f32>("numbers").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Array<T> {
    untyped: UntypedArray,
    _element: PhantomData<T>,
}

impl<T: Element> KernelArg for Array<T> {
    fn push(&self, args: &mut Args) {
        self.untyped.push(args);
    }
}

impl<T: Element> Array<T> {
    /// Gives elements the type that they have.
    pub(in crate::storage) fn of(untyped: UntypedArray) -> Self {
        debug_assert_eq!((untyped.element_type(), untyped.element_bytes()), (T::TYPE, size_of::<T>()));
        Self { untyped, _element: PhantomData }
    }

    /// Returns the `wb_array_view`, the form in which kernels get the array: `array_ref<T>` of `array.cuh` is made from it.
    ///
    /// The view holds addresses of memory that the array owns. It stays valid while a clone of the array lives; kernels that
    /// use it must have ended before the last clone is dropped. A run ensures that for a launch with the array among its
    /// arguments, and for [`Run::keep`](crate::engine::Run::keep). The values are for kernels of this process and of
    /// the array's engine.
    pub fn view(&self) -> abi::ArrayView {
        self.untyped.view()
    }

    /// Returns the array without its type on the host.
    pub fn untyped(&self) -> &UntypedArray {
        &self.untyped
    }

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.untyped.len()
    }

    /// Returns true if the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.untyped.is_empty()
    }

    /// Returns the array's name in the manifest, or `None` if the array was not opened by name.
    pub fn name(&self) -> Option<&str> {
        self.untyped.name()
    }

    /// Returns the cache through which host and kernels access the array.
    pub fn cache(&self) -> &Cache {
        self.untyped.cache()
    }

    /// Returns the pages of the volume that hold the array.
    pub fn pages(&self) -> Range<u64> {
        self.untyped.pages()
    }

    /// Reads the elements of `range` through the cache and returns them.
    ///
    /// # Errors
    /// [`StorageError::Option`] if `range` is not within the array; [`StorageError::Memory`] without memory for the
    /// staging buffer; [`StorageError::Engine`] if the engine starts no kernel; [`StorageError::Run`] if a page cannot
    /// be read.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<T>, StorageError> {
        self.untyped.check_elements(range.start, range.end)?;
        let mut out = vec![T::zeroed(); (range.end - range.start) as usize];
        self.untyped.read(range.start, bytemuck::cast_slice_mut(&mut out))?;
        Ok(out)
    }

    /// Writes `values` through the cache, from element `first` on. They are on the device after [`Cache::flush`].
    ///
    /// # Errors
    /// [`StorageError::Option`] if the elements are not within the array; [`StorageError::Memory`] without memory for
    /// the staging buffer; [`StorageError::Engine`] if the engine starts no kernel; [`StorageError::Run`] if a page
    /// cannot be read or written back.
    pub fn write(&self, first: u64, values: &[T]) -> Result<(), StorageError> {
        self.untyped.write(first, bytemuck::cast_slice(values))
    }

    /// Reads all pages of the array into the cache, as far as they fit.
    ///
    /// # Errors
    /// [`StorageError::Engine`] if the engine starts no kernel; [`StorageError::Run`] if a page cannot be read.
    pub fn warm(&self) -> Result<(), StorageError> {
        self.untyped.warm()
    }
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, name) = (&self.untyped, self.untyped.name().unwrap_or("unnamed"));
        write!(f, "Array({name}, {} of {} from page {})", a.len(), std::any::type_name::<T>(), a.pages().start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::engine::testing::start;
    use crate::engine::{Engine, Outcome, RunError};
    use crate::memory::Place;
    use crate::storage::{Drive, LandingChoice, Volume};

    fn volume(specs: &[&str], landing: LandingChoice) -> Volume {
        let drives: Vec<_> = specs.iter().map(|s| Drive::open(s).unwrap()).collect();
        Volume::on(&Engine::cpu().unwrap(), drives).depth(16).chunk(16384).landing(landing).build().unwrap()
    }

    fn on_every_path(f: impl Fn(&Volume)) {
        for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
            f(&volume(&["soft:mem:1M"], landing));
            f(&volume(&["soft:mem:512k", "soft:mem:512k"], landing));
        }
    }

    #[test]
    fn what_the_host_writes_it_reads_through_a_small_cache() {
        on_every_path(|v| {
            for page in [512, 4096] {
                let cache = Cache::on(v).bytes(9 * page as u64).page(page).build().unwrap();
                let a = cache.array::<u32>(3, 40_000).unwrap();
                let values: Vec<u32> = (0..40_000u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
                a.write(0, &values).unwrap();
                assert_eq!(a.read(0..40_000).unwrap(), values);
                assert_eq!(a.read(12_345..12_350).unwrap(), values[12_345..12_350]);
                a.write(777, &[1, 2, 3]).unwrap();
                cache.flush().unwrap();
                assert_eq!(cache.occupancy().unwrap().dirty, 0);
                let mut bytes = vec![0; 40_000 * 4];
                v.read_bytes(3 * page as u64, &mut bytes).unwrap();
                let stored: &[u32] = bytemuck::cast_slice(&bytes);
                assert_eq!(stored[776..781], [values[776], 1, 2, 3, values[780]]);
                assert!(stored[781..] == values[781..]);
                // A write around the cache is visible after a reset of the cache.
                v.write_bytes(3 * page as u64, &7u32.to_le_bytes()).unwrap();
                cache.reset().unwrap();
                assert_eq!(a.read(0..2).unwrap(), [7, values[1]]);
                let o = cache.occupancy().unwrap();
                assert_eq!((o.busy, o.pinned, o.failed), (0, 0, 0));
            }
        });
    }

    #[test]
    fn a_run_that_is_forgotten_keeps_cache_and_volume() {
        let v = volume(&["soft:mem:1M"], LandingChoice::Bounce);
        let engine = v.engine().clone();
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        let a = cache.array::<u64>(0, v.bytes() / 8).unwrap();
        let inner = std::sync::Arc::downgrade(&cache.0);
        let n = a.len();
        let run = start(&engine, "wb_array_fill", engine.grid(256, 1), args!(&a, n, 3u64, 512u32)).unwrap();
        // Acts as `mem::forget`, but is undone below, so that the device does not stay open during all other tests.
        let run = std::mem::ManuallyDrop::new(run);
        drop((a, cache, v));
        assert!(inner.upgrade().is_some(), "its kernel still writes there");
        drop(std::mem::ManuallyDrop::into_inner(run));
        assert!(inner.upgrade().is_none());
    }

    /// Compares the sums that each way of reading an array gives with those of plain memory.
    #[test]
    fn kernels_read_the_same_by_every_way() {
        on_every_path(|v| {
            const N: u64 = 100_000;
            const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
            let engine = v.engine();
            let grid = engine.grid(256, 1);
            let threads = (grid.blocks * grid.threads) as usize;
            let cache = Cache::on(v).bytes(256 << 10).build().unwrap();
            let a = cache.array::<u64>(0, N).unwrap();
            let plain = engine.allocate(Place::Device, N as usize * 8).unwrap();
            let out = engine.allocate(Place::Device, threads * 8).unwrap();
            let run = |kernel: &str, args| start(engine, kernel, grid, args).unwrap().finish().unwrap();
            run("wb_array_fill_plain", args!(&plain, N, FACTOR));
            run("wb_array_fill", args!(&a, N, FACTOR, 512u32));
            let sums = |kernel: &str, args| {
                run(kernel, args);
                out.get_slice::<u64>(0, threads).unwrap()
            };
            let whole = (0..N).fold(0u64, |s, i| s.wrapping_add(i.wrapping_mul(FACTOR)));
            let total = |sums: Vec<u64>| sums.into_iter().fold(0u64, u64::wrapping_add);
            assert_eq!(
                sums("wb_array_random", args!(&a, N, 500u32, &out)),
                sums("wb_array_plain_random", args!(&plain, N, 500u32, &out))
            );
            assert_eq!(
                sums("wb_array_runs", args!(&a, N, 500u32, &out)),
                sums("wb_array_plain_runs", args!(&plain, N, 500u32, &out))
            );
            assert_eq!(total(sums("wb_array_plain_stride", args!(&plain, N, &out))), whole);
            assert_eq!(total(sums("wb_array_stride", args!(&a, N, &out))), whole);
            for kernel in ["wb_array_segment", "wb_array_handle", "wb_array_chunk"] {
                assert_eq!(total(sums(kernel, args!(&a, N, 512u32, &out))), whole, "{kernel}");
            }
            assert_eq!(total(sums("wb_array_plain_segment", args!(&plain, N, 512u32, &out))), whole);
            let s = cache.stats().unwrap();
            assert!(s.misses > 0 && s.evictions > 0 && s.write_backs > 0 && s.hits > s.misses, "{s:?}");
            assert_eq!(cache.occupancy().unwrap().pinned, 0);
        });
    }

    #[test]
    fn a_warm_cache_misses_nothing() {
        let v = volume(&["soft:mem:1M"], LandingChoice::Bounce);
        let cache = Cache::on(&v).bytes(1 << 20).build().unwrap();
        let a = cache.array::<u8>(0, v.bytes()).unwrap();
        a.warm().unwrap();
        assert_eq!(cache.occupancy().unwrap().valid, v.bytes() / 4096);
        let before = cache.stats().unwrap();
        a.read(0..a.len()).unwrap();
        let s = cache.stats().unwrap() - before;
        assert_eq!((s.misses, s.reads, s.hit_ratio()), (0, 0, Some(1.0)));
    }

    #[test]
    fn named_arrays_open_as_what_they_are() {
        let v = volume(&["soft:mem:1M"], LandingChoice::Direct);
        v.store_array("ranks", &[0.5f32; 1000]).unwrap();
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        let a = cache.open::<f32>("ranks").unwrap();
        assert_eq!((a.len(), a.name()), (1000, Some("ranks")));
        assert_eq!(a.read(990..1000).unwrap(), [0.5; 10]);
        assert!(cache.open::<u32>("ranks").unwrap_err().to_string().contains("holds f32, not u32"));
        assert!(cache.open::<f32>("rank").unwrap_err().to_string().contains("no array `rank`"));
        assert!(a.read(990..1001).unwrap_err().to_string().contains("of 1000 elements"));
        assert!(a.write(1000, &[1.0]).is_err());
        assert!(cache.array::<u64>(1, v.bytes() / 8).unwrap_err().to_string().contains("larger device"));
    }

    #[test]
    fn caches_that_cannot_be_are_refused() {
        let v = volume(&["soft:mem:512k,block=4096"], LandingChoice::Bounce);
        let build = |bytes, page| Cache::on(&v).bytes(bytes).page(page).build().unwrap_err().to_string();
        assert!(build(1 << 20, 512).contains("a block there has 4096 bytes"));
        assert!(build(8191, 4096).contains("holds 1 pages"));
        assert!(build(1 << 20, 5000).contains("power of two"));
        let striped = volume(&["soft:mem:512k", "soft:mem:512k"], LandingChoice::Bounce);
        let e = Cache::on(&striped).bytes(1 << 20).page(32 << 10).build().unwrap_err().to_string();
        assert!(e.contains("at most") || e.contains("stripe unit"), "{e}");
    }

    #[test]
    fn a_page_that_cannot_be_read_ends_the_run_with_its_block() {
        let v = volume(&["soft:mem:1M,media-error=331-331"], LandingChoice::Bounce);
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        let a = cache.array::<u64>(0, v.bytes() / 8).unwrap();
        assert!(a.read(0..1000).is_ok());
        match a.read(0..a.len()) {
            Err(StorageError::Run(RunError::Operations { errors, .. })) => {
                let e = &errors[0];
                assert!((e.lba..e.lba + u64::from(e.blocks)).contains(&331), "{e:?}");
                assert!(matches!(e.outcome, Outcome::DeviceError(_)), "{e:?}");
            }
            other => panic!("{other:?}"),
        }
        // A new run can still read the other pages.
        assert!(a.read(100_000..101_000).is_ok());
        assert_eq!(cache.occupancy().unwrap().pinned, 0);
    }
}
