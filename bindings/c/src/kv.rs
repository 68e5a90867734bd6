//! KV stores: objects of a volume under keys, in a space of fixed size.

use crate::engine::as_json;
use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::options::{Options, owned_text};
use crate::pointer::{In, Out, Owned, Text};
use crate::volume::wb_volume_t;
use serde_json::json;
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpbell::storage::{KvError, KvKey, KvOptions, KvStore};

/// Objects of a volume under keys, such as parts of a KV cache. `wb_kv_create` and `wb_kv_open` make it.
pub struct wb_kv_t {
    _private: (),
}

object!(wb_kv_t: Kv, "KV store");

pub(crate) struct Kv {
    pub(crate) store: KvStore,
    /// Keys of evicted objects that were taken from the store, and not by the program yet.
    evicted: Mutex<VecDeque<KvKey>>,
}

impl Kv {
    fn new(store: KvStore) -> Self {
        Self { store, evicted: Mutex::default() }
    }

    pub(crate) fn evicted(&self) -> MutexGuard<'_, VecDeque<KvKey>> {
        self.evicted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of `count` keys of `key_bytes` bytes, which is the size of the store's keys.
    fn bytes_of(&self, key_bytes: u32, count: usize) -> Result<usize, Error> {
        let (stored, given) = (self.store.options().key_bytes as usize, key_bytes as usize);
        if given != stored {
            return Err(KvError::KeySize { name: self.store.name().to_owned(), stored, given }.into());
        }
        let bytes = count.checked_mul(stored);
        bytes.ok_or_else(|| Error::argument(format!("{count} keys, which no memory holds; give less")))
    }

    /// Reads the keys of a call.
    pub(crate) fn keys(&self, keys: In<c_void>, key_bytes: u32, count: usize) -> Result<Vec<KvKey>, Error> {
        let bytes = self.bytes_of(key_bytes, count)?;
        let keys = keys.bytes(bytes, "keys")?;
        Ok(keys.chunks_exact(key_bytes as usize).map(KvKey::new).collect::<Result<_, _>>()?)
    }

    /// Returns the place of one key, and its bytes, for each of the keys for which a call has space.
    pub(crate) fn space<'a>(
        &self,
        keys: &'a mut Out<c_void>,
        key_bytes: u32,
        capacity: usize,
    ) -> Result<impl Iterator<Item = &'a mut [u8]>, Error> {
        let bytes = self.bytes_of(key_bytes, capacity)?;
        Ok(keys.bytes(bytes, "keys")?.chunks_exact_mut(key_bytes as usize))
    }
}

/// Sizes of a KV store, fixed when it is created.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_kv_options {
    /// `sizeof(wb_kv_options)`.
    pub size: usize,
    /// Bytes of the space for data, rounded up to whole allocation units of 4096 bytes: at least one, fewer than 2^52. Each object
    /// occupies whole units.
    pub bytes: u64,
    /// Most objects at the same time, 1 to 2^30, rounded up to a multiple of 32. Each takes 128 bytes of the volume and about 70 bytes
    /// of memory.
    pub objects: u64,
    /// Bytes of each key: 16 or 32. 0 for 32 when a store is created.
    pub key_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_kv_options {
    const NAME: &str = "wb_kv_options";
}

/// Sizes and counters of a KV store. Counters begin when the store is opened.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_kv_stats {
    /// `sizeof(wb_kv_stats)`, set by the program before the call.
    pub size: usize,
    /// Number of objects.
    pub objects: u64,
    /// Bytes of the objects.
    pub bytes: u64,
    /// Bytes of the space that no object, load or store in flight has, in whole allocation units.
    pub free_bytes: u64,
    /// Number of objects that loads in flight keep, deleted ones included, and of places that stores in flight have.
    pub pinned: u64,
    /// Keys with an object in calls of `wb_kv_lookup`, `wb_kv_load` and `wb_kv_read`.
    pub hits: u64,
    /// Keys without an object in these calls.
    pub misses: u64,
    /// Number of evicted objects.
    pub evictions: u64,
    /// Number of these whose keys the store has dropped before they were taken by `wb_kv_take_evictions`.
    pub lost_evictions: u64,
    /// Number of records that were dropped when the store was opened: damaged, outside of the store, or contradicting a later one.
    pub damaged_records: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_kv_stats {
    const NAME: &str = "wb_kv_stats";
}

/// Creates an empty store beside everything that the volume holds, and opens it. Space for data is not written.
///
/// On the volume a store is three arrays, of 128, of `objects * 128` and of `bytes` bytes, after rounding up: `wb_volume_bytes_for` returns
/// the space that they need.
///
/// @param name Name: 1 to 40 letters, digits, `.`, `_` and `-`.
/// @param options Sizes of the store.
/// @param store Receives the store, with one reference. It keeps the volume.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` for a name or sizes that no store can have, with the bounds; `WB_ERR_EXISTS` if the volume holds a
///   store of the name; `WB_ERR_SPACE` if the volume is too small; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails;
///   `WB_ERR_STOPPED` on a cancelled engine.
/// @note One call at a time for a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_create(
    volume: In<wb_volume_t>,
    name: Text,
    options: In<wb_kv_options>,
    store: Out<*mut wb_kv_t>,
) -> wb_code {
    guard(|| {
        store.check("store")?;
        let (volume, name) = (volume.get()?, name.text("name")?);
        if options.is_null() {
            return Err(Error::argument("`options` is null; pass the sizes of the store"));
        }
        let wb_kv_options { bytes, objects, key_bytes, .. } = options.read()?;
        let key_bytes = if key_bytes == 0 { 32 } else { key_bytes };
        let made = KvStore::create(volume, name, &KvOptions { key_bytes, bytes, objects })?;
        store.give(Kv::new(made))
    })
}

/// Opens the store of a name: reads the records of its objects, 128 bytes for each that it may hold.
///
/// A store is open once at a time: share the handle by `wb_kv_retain`. Files and drives of this machine are locked by the process that
/// has opened them. A drive of another machine is not: one machine opens the store.
///
/// @param name Name of the store.
/// @param store Receives the store, with one reference. It keeps the volume.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if the volume holds no such store; `WB_ERR_BUSY` if this process has it open; `WB_ERR_DAMAGED`
///   or `WB_ERR_UNSUPPORTED` if its configuration is damaged, or of a later version; otherwise as `wb_volume_arrays`.
/// @note Damaged records are no error: `wb_kv_stats.damaged_records` counts them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_open(volume: In<wb_volume_t>, name: Text, store: Out<*mut wb_kv_t>) -> wb_code {
    guard(|| {
        store.check("store")?;
        let (volume, name) = (volume.get()?, name.text("name")?);
        store.give(Kv::new(KvStore::open(volume, name)?))
    })
}

/// Lists the stores of a volume as JSON: name, sizes as of `wb_kv_options`, and bytes that are stored; or the error of a store that
/// cannot be opened.
///
/// @param json Receives a list, which is empty if no store is there. Free it with `wb_string_free`.
/// @return As `wb_volume_arrays`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_list(volume: In<wb_volume_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let stores = KvStore::list(volume.get()?)?;
        let list = stores.iter().map(|s| {
            let mut facts = match &s.options {
                Ok(o) => json!({ "name": s.name, "bytes": o.bytes, "objects": o.objects, "key_bytes": o.key_bytes }),
                Err(e) => json!({ "name": s.name, "error": e.to_string() }),
            };
            facts["stored_bytes"] = s.bytes.into();
            facts
        });
        let list: Vec<_> = list.collect();
        json.write("json", owned_text(as_json(&list)?))
    })
}

/// Removes a store from a volume, with all its objects. Its space can be used again; the data itself is not erased.
///
/// @param name Name of the store.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if the volume holds no such store; `WB_ERR_BUSY` if this process has it open; `WB_ERR_IO` or
///   `WB_ERR_TIMEOUT` if a device fails.
/// @note One call at a time for a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_remove(volume: In<wb_volume_t>, name: Text) -> wb_code {
    guard(|| {
        let (volume, name) = (volume.get()?, name.text("name")?);
        Ok(KvStore::remove(volume, name)?)
    })
}

/// Adds a reference to a store.
///
/// @return The store; null with an error if it is no KV store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_retain(store: Owned<wb_kv_t>) -> *mut wb_kv_t {
    store.retain()
}

/// Gives a reference to a store back. Transfers keep the store: it is closed after the last of them.
///
/// @param store The store; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_release(store: Owned<wb_kv_t>) {
    store.release()
}

/// Returns the sizes of a store.
///
/// @param options Receives the sizes, as many fields as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_get_options(store: In<wb_kv_t>, options: Out<wb_kv_options>) -> wb_code {
    guard(|| {
        let KvOptions { key_bytes, bytes, objects } = store.get()?.store.options();
        let size = size_of::<wb_kv_options>();
        options.fill("options", wb_kv_options { size, bytes, objects, key_bytes, reserved: 0 })
    })
}

/// Returns sizes and counters of a store.
///
/// @param stats Receives them, as many fields as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_get_stats(store: In<wb_kv_t>, stats: Out<wb_kv_stats>) -> wb_code {
    guard(|| {
        let s = store.get()?.store.stats();
        let found = wb_kv_stats {
            size: size_of::<wb_kv_stats>(),
            objects: s.objects,
            bytes: s.bytes,
            free_bytes: s.free_bytes,
            pinned: s.pinned,
            hits: s.hits,
            misses: s.misses,
            evictions: s.evictions,
            lost_evictions: s.lost_evictions,
            damaged_records: s.damaged_records,
            index_bytes: s.index_bytes,
        };
        stats.fill("stats", found)
    })
}
