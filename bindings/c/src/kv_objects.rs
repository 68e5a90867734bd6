//! Objects of a KV store by their keys: found, read and written by the host, deleted, verified.
//!
//! Keys of a call follow each other in memory. A program says of how many bytes each is, which is compared with the store.

use crate::error::{Error, guard, wb_code};
use crate::kv::{Kv, wb_kv_t};
use crate::pointer::{In, Out};
use std::ffi::c_void;
use warpbell::storage::{KvKey, StorageError};

/// Data of an object in memory of the host.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_kv_data {
    /// First byte.
    pub data: In<c_void>,
    /// Number of bytes: 1 to 2^30, and no more than the store.
    pub bytes: usize,
}

/// Makes a call that reads or writes. Tells an engine that was stopped for a lost rank from one that the program has stopped.
pub(crate) fn on_engine<T>(kv: &Kv, result: Result<T, StorageError>) -> Result<T, Error> {
    result.map_err(|e| Error::from(e).on_engine(kv.store.volume().engine()))
}

/// Writes keys to the places for them. Returns how many were written.
fn put<'a>(keys: impl Iterator<Item = KvKey>, places: impl Iterator<Item = &'a mut [u8]>) -> usize {
    places.zip(keys).map(|(place, key)| place.copy_from_slice(key.as_bytes())).count()
}

/// Returns the bytes of the object of each key. Counts as a use: the objects are evicted later. The first key counts as the one that
/// was used last, so that the end of a sequence is evicted before its beginning.
///
/// @param keys Keys, one behind the other.
/// @param key_bytes Bytes of each key: those of the store's keys.
/// @param count Number of keys.
/// @param bytes Receives `count` numbers: the bytes of each object, or 0 where there is none with that key.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the store has keys of another size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_lookup(
    store: In<wb_kv_t>,
    keys: In<c_void>,
    key_bytes: u32,
    count: usize,
    bytes: Out<u64>,
) -> wb_code {
    guard(|| {
        let kv = store.get()?;
        let keys = kv.keys(keys, key_bytes, count)?;
        if count > 0 {
            bytes.check("bytes")?;
        }
        let found = kv.store.lookup(&keys)?;
        found.iter().enumerate().try_for_each(|(i, found)| bytes.at(i).write("bytes", found.unwrap_or(0)))
    })
}

/// Returns the number of keys before the first one without an object: how much of a sequence is there. Counts as no use.
///
/// @param keys Keys, one behind the other.
/// @param key_bytes Bytes of each key: those of the store's keys.
/// @param count Number of keys.
/// @param found Receives the number, 0 to `count`.
/// @return As `wb_kv_lookup`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_prefix(
    store: In<wb_kv_t>,
    keys: In<c_void>,
    key_bytes: u32,
    count: usize,
    found: Out<usize>,
) -> wb_code {
    guard(|| {
        let kv = store.get()?;
        let keys = kv.keys(keys, key_bytes, count)?;
        let number = kv.store.prefix(&keys)?;
        found.write("found", number)
    })
}

/// Counts a use of each object that is there, in the order of `wb_kv_lookup`. Hits and misses stay as they are.
///
/// @param keys Keys, one behind the other.
/// @param key_bytes Bytes of each key: those of the store's keys.
/// @param count Number of keys.
/// @return As `wb_kv_lookup`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_touch(store: In<wb_kv_t>, keys: In<c_void>, key_bytes: u32, count: usize) -> wb_code {
    guard(|| {
        let kv = store.get()?;
        Ok(kv.store.touch(&kv.keys(keys, key_bytes, count)?)?)
    })
}

/// Deletes objects. They do not come back when the store is opened again. The space of those that are being loaded is free afterwards.
///
/// @param keys Keys, one behind the other. Keys without an object count as nothing.
/// @param key_bytes Bytes of each key: those of the store's keys.
/// @param count Number of keys.
/// @param deleted Receives the number of deleted objects; may be null.
/// @return As `wb_kv_write`. After `WB_ERR_IO` and `WB_ERR_TIMEOUT` the objects are gone, and may come back when the store is opened
///   again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_delete(
    store: In<wb_kv_t>,
    keys: In<c_void>,
    key_bytes: u32,
    count: usize,
    deleted: Out<u64>,
) -> wb_code {
    guard(|| {
        let kv = store.get()?;
        let keys = kv.keys(keys, key_bytes, count)?;
        let number = on_engine(kv, kv.store.delete(&keys))?;
        if deleted.is_null() {
            return Ok(());
        }
        deleted.write("deleted", number)
    })
}

/// Reads an object into memory of the host, and compares it with its checksum. Counts as a use. On a replicated volume a damaged copy
/// is written again from a right one.
///
/// @param key The key.
/// @param key_bytes Bytes of the key: those of the store's keys.
/// @param data Destination.
/// @param capacity Bytes of the destination: at least those of the object, which `wb_kv_lookup` returns.
/// @param bytes Receives the bytes of the object.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if there is no object with this key; `WB_ERR_ARGUMENT` if the destination is too small, or the
///   store has keys of another size; `WB_ERR_DAMAGED` if the data is not what was stored; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device
///   fails; `WB_ERR_STOPPED` on a cancelled engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_read(
    store: In<wb_kv_t>,
    key: In<c_void>,
    key_bytes: u32,
    mut data: Out<c_void>,
    capacity: usize,
    bytes: Out<usize>,
) -> wb_code {
    guard(|| {
        bytes.check("bytes")?;
        let kv = store.get()?;
        let keys = kv.keys(key, key_bytes, 1)?;
        let data = data.bytes(capacity, "data")?;
        let read = keys.first().map_or(Ok(0), |key| kv.store.read(key, data));
        let read = on_engine(kv, read)?;
        bytes.write("bytes", read)
    })
}

/// Stores objects from memory of the host, all at once: they are durable when the call returns. Objects of the same keys are replaced.
/// Others are evicted as far as the new ones need their space, first those that were not used for longest.
///
/// @param keys Keys, one behind the other, each once.
/// @param key_bytes Bytes of each key: those of the store's keys.
/// @param count Number of keys and objects.
/// @param objects Data of each object.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if a key is given twice, the store has keys of another size, an object has none or too many bytes,
///   or the store was removed from its volume; `WB_ERR_SPACE` if transfers in flight leave too little space, or the objects have more
///   than the store; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails; `WB_ERR_STOPPED` on a cancelled engine.
/// @note After an error none of the objects is found, and those that they would have replaced are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_write(
    store: In<wb_kv_t>,
    keys: In<c_void>,
    key_bytes: u32,
    count: usize,
    objects: In<wb_kv_data>,
) -> wb_code {
    guard(|| {
        let kv = store.get()?;
        let keys = kv.keys(keys, key_bytes, count)?;
        let data = objects.list(count, "objects")?.iter().enumerate();
        let data = data.map(|(i, object)| object.data.bytes(object.bytes, &format!("objects[{i}].data")));
        let data = data.collect::<Result<Vec<_>, _>>()?;
        let all: Vec<_> = keys.into_iter().zip(data).collect();
        on_engine(kv, kv.store.write(&all))
    })
}

/// Reads all objects, on every copy of a replicated volume, and compares them with their checksums. A damaged copy is written again
/// from a right one, and its object is intact then. Counts as no use.
///
/// @param keys Receives the keys of damaged objects, as far as there is space; may be null if `capacity` is 0.
/// @param key_bytes Bytes of each key: those of the store's keys.
/// @param capacity Number of keys for which there is space.
/// @param damaged Receives the number of damaged objects, which may be more than `capacity`.
/// @return `WB_OK`, also if objects are damaged; `WB_ERR_ARGUMENT` if the store has keys of another size; `WB_ERR_IO` or
///   `WB_ERR_TIMEOUT` if a device fails; `WB_ERR_STOPPED` on a cancelled engine.
/// @note Others may use the store meanwhile. Objects that they store or delete may be left out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_verify(
    store: In<wb_kv_t>,
    mut keys: Out<c_void>,
    key_bytes: u32,
    capacity: usize,
    damaged: Out<usize>,
) -> wb_code {
    guard(|| {
        damaged.check("damaged")?;
        let kv = store.get()?;
        let places = kv.space(&mut keys, key_bytes, capacity)?;
        let found = on_engine(kv, kv.store.verify())?;
        let number = found.len();
        put(found.into_iter(), places);
        damaged.write("damaged", number)
    })
}

/// Takes the keys of objects that were evicted, in the order of their eviction, each once. Deleted and replaced objects are not among
/// them. The store keeps the last 65,536, and counts what it drops in `wb_kv_stats.lost_evictions`.
///
/// @param keys Receives the keys.
/// @param key_bytes Bytes of each key: those of the store's keys.
/// @param capacity Number of keys for which there is space.
/// @param taken Receives the number of keys, 0 to `capacity`. Fewer than `capacity` are all that there were.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the store has keys of another size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_take_evictions(
    store: In<wb_kv_t>,
    mut keys: Out<c_void>,
    key_bytes: u32,
    capacity: usize,
    taken: Out<usize>,
) -> wb_code {
    guard(|| {
        taken.check("taken")?;
        let kv = store.get()?;
        let places = kv.space(&mut keys, key_bytes, capacity)?;
        let mut evicted = kv.evicted();
        if evicted.len() < capacity {
            evicted.extend(kv.store.take_evictions());
        }
        let number = evicted.len().min(capacity);
        put(evicted.drain(..number), places);
        taken.write("taken", number)
    })
}
