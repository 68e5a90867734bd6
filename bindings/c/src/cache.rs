//! Caches: pages of a volume in memory near the kernels.

use crate::engine::as_json;
use crate::error::{guard, wb_code};
use crate::object::object;
use crate::options::{Options, owned_text};
use crate::pointer::{In, Out, Owned};
use crate::volume::wb_volume_t;
use serde_json::json;
use std::ffi::{c_char, c_void};
use warpbell::storage::Cache;

/// Pages of a volume in memory near the kernels, which access them through arrays. `wb_cache_open` makes it.
///
/// Changes by kernels and by `wb_array_write` stay in the cache until `wb_cache_flush`. The last release loses them.
pub struct wb_cache_t {
    _private: (),
}

object!(wb_cache_t: Cache, "cache");

/// Options of `wb_cache_open`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_cache_options {
    /// `sizeof(wb_cache_options)`.
    pub size: usize,
    /// Memory for pages in bytes; 0 for 64 MiB. Rounding loses up to an eighth, and metadata takes 28 bytes for each page.
    pub bytes: u64,
    /// Size of a page in bytes: a power of two from 512 to 65536; 0 for 4096, or a block if blocks are larger.
    pub page_bytes: usize,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_cache_options {
    const NAME: &str = "wb_cache_options";
}

/// Numbers of pages in a cache by state.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct wb_occupancy {
    /// Pages that the cache can hold.
    pub frames: u64,
    /// Pages that the cache holds.
    pub valid: u64,
    /// Pages among them that were changed and are not written yet.
    pub dirty: u64,
    /// Pages with a read or write in flight.
    pub busy: u64,
    /// Pages whose last read or write failed.
    pub failed: u64,
    /// Pages that a kernel has not unpinned: more than 0 only after a kernel was torn down.
    pub pinned: u64,
}

/// Allocates an empty cache of a volume.
///
/// @param options Options, or null for the defaults.
/// @param cache Receives the cache, with one reference.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the size of a page does not fit the volume, or the memory holds too few pages;
///   `WB_ERR_MEMORY` without memory; `WB_ERR_UNSUPPORTED` if a device does not reach the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cache_open(
    volume: In<wb_volume_t>,
    options: In<wb_cache_options>,
    cache: Out<*mut wb_cache_t>,
) -> wb_code {
    guard(|| {
        cache.check("cache")?;
        let mut builder = Cache::on(volume.get()?);
        let options = options.read()?;
        if options.bytes != 0 {
            builder = builder.bytes(options.bytes);
        }
        if options.page_bytes != 0 {
            builder = builder.page(options.page_bytes);
        }
        cache.give(builder.build()?)
    })
}

/// Adds a reference to a cache.
///
/// @return The cache; null with an error if it is no cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cache_retain(cache: Owned<wb_cache_t>) -> *mut wb_cache_t {
    cache.retain()
}

/// Gives a reference to a cache back. Arrays, graphs and runs keep the cache that they use. Changes that were not flushed
/// are lost with the last of them.
///
/// @param cache The cache; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cache_release(cache: Owned<wb_cache_t>) {
    cache.release()
}

/// Describes a cache as JSON: name of the volume, sizes, sets and ways.
///
/// @param json Receives the text. Free it with `wb_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cache_info(cache: In<wb_cache_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let cache = cache.get()?;
        let (sets, ways) = cache.sets_and_ways();
        let facts = json!({
            "volume": cache.volume().name(), "bytes": cache.bytes(), "page_bytes": cache.page_bytes(),
            "frames": cache.frames(), "sets": sets, "ways": ways,
        });
        json.write("json", owned_text(as_json(&facts)?))
    })
}

/// Returns the address of the `wb_cache` that kernels read.
///
/// @param address Receives the address. It is valid while the program or a run holds the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cache_address(cache: In<wb_cache_t>, address: Out<*mut c_void>) -> wb_code {
    guard(|| {
        let found = cache.get()?.address();
        address.write("address", found as *mut c_void)
    })
}

/// Writes every changed page, and waits until the devices have made them durable. Pages stay in the cache.
///
/// @return `WB_OK`; `WB_ERR_OPERATION` if a page cannot be written, with its LBA; otherwise as `wb_volume_flush`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cache_flush(cache: In<wb_cache_t>) -> wb_code {
    guard(|| Ok(cache.get()?.flush()?))
}

/// Drops all unchanged pages, so that the next access reads them from the device, also pages that failed. Changed pages
/// stay.
///
/// @return `WB_OK`; `WB_ERR_STOPPED` on a cancelled engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cache_reset(cache: In<wb_cache_t>) -> wb_code {
    guard(|| Ok(cache.get()?.reset()?))
}

/// Drops all pages. Changes that were not flushed are lost.
///
/// @return `WB_OK`; `WB_ERR_STOPPED` on a cancelled engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cache_discard(cache: In<wb_cache_t>) -> wb_code {
    guard(|| Ok(cache.get()?.discard()?))
}

/// Counts the pages of a cache by state. `wb_volume_stats` has the counters of hits and misses.
///
/// @param occupancy Receives the numbers.
/// @note Meaningful only while no kernel runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cache_occupancy(cache: In<wb_cache_t>, occupancy: Out<wb_occupancy>) -> wb_code {
    guard(|| {
        let o = cache.get()?.occupancy()?;
        let found = wb_occupancy {
            frames: o.frames,
            valid: o.valid,
            dirty: o.dirty,
            busy: o.busy,
            failed: o.failed,
            pinned: o.pinned,
        };
        occupancy.write("occupancy", found)
    })
}
